"""Data sets, samplers, the loader; save and load."""

import gzip
import os
import struct
import threading
import time

import numpy as np
import pytest

import strata as st
from strata.utils.data import (
    BatchSampler, ConcatDataset, DataLoader, Dataset, IdxDataset, IterableDataset, RandomSampler, StackDataset, Subset,
    SubsetRandomSampler, TensorDataset, TokenDataset, TokenFile, WeightedRandomSampler, default_collate, random_split,
)


class Squares(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": i, "y": st.tensor([float(i * i)]), "name": f"s{i}"}


def flat(loader):
    return [b.tolist() for b in loader]


def test_loader_in_order():
    batches = list(DataLoader(Squares(7), batch_size=3))
    assert [b["x"].tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches[1]["y"].tolist() == [[9], [16], [25]] and batches[2]["name"] == ["s6"]
    assert len(DataLoader(Squares(7), batch_size=3)) == 3
    assert len(list(DataLoader(Squares(7), batch_size=3, drop_last=True))) == 2
    assert [b["x"] for b in DataLoader(Squares(3), batch_size=None)] == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_shuffled_order_depends_on_seed_and_epoch_alone(workers):
    data = TensorDataset(st.arange(20))
    make = lambda seed: DataLoader(data, batch_size=6, shuffle=True, seed=seed, num_workers=workers)
    a, b = make(1), make(1)
    first, second = [flat(x[0] for x in a) for _ in range(2)]
    assert sorted(sum(first, [])) == list(range(20)) and first != second
    assert [flat(x[0] for x in b) for _ in range(2)] == [first, second]
    assert flat(x[0] for x in make(2)) != first
    assert sum(first, []) == st._core.sample_order(20, 1, 0).tolist()


def test_workers_keep_the_order_and_run_at_once():
    class Meeting(Squares):
        def __init__(self, n):
            super().__init__(n)
            self.barrier = threading.Barrier(4)

        def __getitem__(self, i):
            if i < 8 and i % 2 == 0:  # the first four batches wait for one another
                self.barrier.wait(timeout=60)
            time.sleep(0.01 if i % 4 == 0 else 0)
            return i

    started = []
    loader = DataLoader(Meeting(32), batch_size=2, num_workers=4, worker_init_fn=started.append)
    assert sum(flat(loader), []) == list(range(32))
    assert sorted(started) == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_exceptions_of_a_data_set(workers):
    class Broken(Squares):
        def __getitem__(self, i):
            if i == 5:
                raise KeyError("sample 5")
            return i

    got = []
    before = threading.active_count()
    with pytest.raises(KeyError, match="sample 5"):
        for batch in DataLoader(Broken(8), batch_size=2, num_workers=workers):
            got.append(batch.tolist())
    assert got == [[0, 1], [2, 3]]
    time.sleep(0.05)
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_data(workers):
    class Count(IterableDataset):
        def __iter__(self):
            return iter(range(7))

    loader = DataLoader(Count(), batch_size=3, num_workers=workers)
    assert flat(loader) == [[0, 1, 2], [3, 4, 5], [6]]
    assert flat(DataLoader(Count(), batch_size=3, drop_last=True, num_workers=workers)) == [[0, 1, 2], [3, 4, 5]]
    for batch in loader:
        break  # leaving early ends the thread

    class Bad(IterableDataset):
        def __iter__(self):
            yield 1
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(DataLoader(Bad(), num_workers=workers))


def test_collate():
    samples = [(1, 2.5, st.ones(2), np.zeros(3), True, "a", [1, 2]), (2, 3.5, st.zeros(2), np.ones(3), False, "b", [3, 4])]
    i, f, t, a, b, s, l = default_collate(samples)
    assert i.dtype == st.int64 and f.dtype == st.float64 and b.dtype == st.bool
    assert t.tolist() == [[1, 1], [0, 0]] and a.shape == (2, 3) and s == ["a", "b"] and l[1].tolist() == [2, 4]
    with pytest.raises(TypeError, match="object"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [1, 2]])
    loader = DataLoader(Squares(4), batch_size=2, collate_fn=lambda items: [s["x"] for s in items])
    assert list(loader) == [[0, 1], [2, 3]]


def test_combining_data_sets():
    a, b = TensorDataset(st.arange(3)), TensorDataset(st.arange(10, 14))
    both = a + b
    assert len(both) == 7 and both[3][0].item() == 10 and both[-1][0].item() == 13
    with pytest.raises(IndexError):
        both[7]
    assert isinstance(both, ConcatDataset)
    assert [x[0].item() for x in Subset(both, [0, 5])] == [0, 12]
    pair = StackDataset(a=a, b=Subset(b, [0, 1, 2]))
    assert pair[2]["b"][0].item() == 12
    parts = random_split(both, [0.5, 0.5], seed=3)
    assert [len(p) for p in parts] == [4, 3]
    assert sorted(x[0].item() for p in parts for x in p) == [0, 1, 2, 10, 11, 12, 13]
    assert [p.indices for p in random_split(both, [4, 3], seed=3)] == [p.indices for p in parts]
    with pytest.raises(ValueError, match="Sum"):
        random_split(both, [4, 4])
    with pytest.raises(ValueError, match="mismatch"):
        TensorDataset(st.ones(2), st.ones(3))


def test_samplers():
    assert sorted(SubsetRandomSampler([4, 5, 6])) == [4, 5, 6]
    drawn = list(WeightedRandomSampler([0.0, 1.0, 0.0], 5))
    assert drawn == [1] * 5
    with_replacement = list(RandomSampler(range(3), replacement=True, num_samples=50))
    assert len(with_replacement) == 50 and set(with_replacement) == {0, 1, 2}
    assert len(list(RandomSampler(range(3), num_samples=7))) == 7
    assert list(BatchSampler([3, 1, 2], 2, False)) == [[3, 1], [2]]
    loader = DataLoader(TensorDataset(st.arange(4)), batch_sampler=[[3], [0, 1]])
    assert [x[0].tolist() for x in loader] == [[3], [0, 1]]


def test_loader_refuses():
    for bad in (dict(batch_size=0), dict(num_workers=-1), dict(shuffle=True, sampler=[0]), dict(prefetch_factor=2),
                dict(batch_sampler=[[0]], batch_size=2)):
        with pytest.raises(ValueError):
            DataLoader(Squares(), **bad)


def write_idx(path, array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + b"".join(struct.pack(">I", s) for s in array.shape)
    with gzip.open(path, "wb") if str(path).endswith("gz") else open(path, "wb") as f:
        f.write(header + array.tobytes())


def test_idx_files(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4) * 10
    write_idx(tmp_path / "i.gz", images)
    write_idx(tmp_path / "l", np.array([7, 9], dtype=np.uint8))
    data = IdxDataset(str(tmp_path / "i.gz"), str(tmp_path / "l"))
    x, y = next(iter(DataLoader(data, batch_size=2)))
    assert x.shape == (2, 1, 3, 4) and y.tolist() == [7, 9]
    np.testing.assert_allclose(x.numpy()[:, 0], images / np.float32(255))
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(OSError, match="bad"):
        IdxDataset(str(tmp_path / "bad"), str(tmp_path / "l"))


def test_token_files(tmp_path):
    (tmp_path / "text").write_text("to be or not to be")
    tokenizer = st.Tokenizer.bytes()
    assert tokenizer.decode(tokenizer.encode("héllo")) == "héllo" and tokenizer.vocab_size == 256
    path = str(tmp_path / "t.tokens")
    st._core.build_token_file(str(tmp_path / "text"), tokenizer, path)
    file = TokenFile(path)
    assert len(file) == 18 and tokenizer.decode(file.read(3, 2).tolist()) == "be"
    data = TokenDataset(file, context=5)
    assert len(data) == 3
    x, y = data[1]
    assert tokenizer.decode(x.tolist()) == " or n" and tokenizer.decode(y.tolist()) == "or no"
    with pytest.raises(IndexError):
        file.read(10, 20)
    with pytest.raises(ValueError):
        TokenDataset(file, context=18)
    bpe = st.Tokenizer.train_bpe("aaa bbb aaa bbb aaa" * 20, vocab_size=260)
    assert bpe.decode(bpe.encode("aaa ab")) == "aaa ab" and len(bpe.encode("aaa")) < 3
    bpe.save(str(tmp_path / "tok.json"))
    assert st.Tokenizer.load(str(tmp_path / "tok.json")).encode("aaa bbb") == bpe.encode("aaa bbb")


# ---- save and load


def test_save_nested(tmp_path):
    path = tmp_path / "f.safetensors"
    value = {
        "model": {"w": st.ones(2, 3), "b": st.tensor([1, 2])}, "list": [1, 2.5, None, True, "text", st.zeros(1)],
        "tuple": (1, (st.ones(1, dtype=st.bfloat16),)), 3: "int key", "nan": float("nan"), "empty": {}, "w": st.tensor(5.0),
    }
    st.save(value, path)
    got = st.load(path)
    assert got["model"]["w"].tolist() == [[1, 1, 1], [1, 1, 1]] and got["model"]["b"].dtype == st.int64
    assert got["list"][:5] == [1, 2.5, None, True, "text"] and got["list"][3] is True
    assert got["tuple"][0] == 1 and got["tuple"][1][0].dtype == st.bfloat16
    assert got[3] == "int key" and got["nan"] != got["nan"] and got["empty"] == {} and got["w"].shape == ()
    st.save(st.ones(2), path)
    assert st.load(path).tolist() == [1, 1]
    st.save({}, path)
    assert st.load(path) == {}


def test_save_is_plain_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = str(tmp_path / "p.safetensors")
    st.save({"a": st.ones(2), "b": st.arange(3)}, path)
    other = safetensors.load_file(path)
    assert other["b"].tolist() == [0, 1, 2]
    safetensors.save_file({"x": np.arange(4.0)}, path)
    assert st.load(path)["x"].tolist() == [0, 1, 2, 3]


def test_save_refuses_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "f"
    st.save({"a": st.ones(1)}, path)
    with pytest.raises(TypeError, match="state_dict"):
        st.save({"net": st.nn.Linear(1, 1)}, path)
    with pytest.raises(TypeError, match="key"):
        st.save({1.5: 3}, path)
    assert st.load(path)["a"].tolist() == [1]
    assert os.listdir(tmp_path) == ["f"]
    path.write_bytes(b"garbage")
    with pytest.raises(OSError):
        st.load(path)
    with pytest.raises(OSError):
        st.load(tmp_path / "missing")
    with pytest.raises(ValueError, match="weights_only"):
        st.load(path, weights_only=False)
