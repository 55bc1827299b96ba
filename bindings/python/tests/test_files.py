"""st.save and st.load: files of every kind, objects that read and write, arrays; a run's log and its checkpoints."""

import io
import json
import os
import stat
import zipfile

import numpy as np
import pytest

import strata as st
from test_trainer import trainer_of

VALUE = {"w": st.arange(6).reshape(2, 3), "list": [st.ones(2), 3, "text", None, True, float("inf")], 7: (1, 2)}


def same(a, b):
    if isinstance(a, st.Tensor):
        return isinstance(b, st.Tensor) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b and type(a) is type(b)


@pytest.mark.parametrize("value", [VALUE, {"a": st.ones(3)}, {}, 3, [st.ones(0)]], ids=["nested", "plain", "empty", "number", "list"])
def test_file_objects_hold_the_same_bytes_as_files(tmp_path, value):
    st.save(value, tmp_path / "f")
    assert same(st.load(tmp_path / "f"), value)
    buffer = io.BytesIO()
    st.save(value, buffer)
    assert buffer.getvalue() == (tmp_path / "f").read_bytes()
    buffer.seek(0)
    assert same(st.load(buffer), value)
    with open(tmp_path / "g", "wb", buffering=0) as raw:
        st.save(value, raw)
    with open(tmp_path / "g", "rb") as f:
        assert same(st.load(f), value)
    buffer.seek(0)
    moved = st.load(buffer, map_location="cpu")
    assert same(moved, value)


def test_a_file_object_may_take_parts():
    class Slow(io.RawIOBase):
        def __init__(self):
            self.got = b""

        def writable(self):
            return True

        def write(self, data):
            self.got += bytes(data[:7])
            return min(7, len(data))

    slow, whole = Slow(), io.BytesIO()
    st.save(VALUE, slow)
    st.save(VALUE, whole)
    assert slow.got == whole.getvalue()


def test_file_objects_of_text_are_refused(tmp_path):
    with pytest.raises(TypeError, match="open it for bytes"):
        st.save(VALUE, io.StringIO())
    with pytest.raises(TypeError, match="open it for bytes"):
        st.load(io.StringIO("text"))
    with pytest.raises(TypeError):
        st.save(VALUE, 3)


def test_arrays_come_back_as_arrays():
    arrays = {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3), "i64": np.arange(3), "bool": np.array([True, False]),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "empty": np.zeros((0, 2)), "point": np.array(2.5),
        "scalar": np.float32(1.5), "f16": np.ones(2, np.float16), "tensor": st.ones(2),
    }
    buffer = io.BytesIO()
    st.save(arrays, buffer)
    buffer.seek(0)
    back = st.load(buffer)
    assert isinstance(back["tensor"], st.Tensor)
    assert isinstance(back["scalar"], np.float32) and back["scalar"] == 1.5
    for name, a in arrays.items():
        if name not in ("tensor", "scalar"):
            assert isinstance(back[name], np.ndarray) and back[name].dtype == a.dtype, name
            np.testing.assert_array_equal(back[name], a)
    with pytest.raises(TypeError, match="'text' cannot be saved"):
        st.save({"text": np.array(["a"])}, io.BytesIO())


def test_an_object_that_holds_itself_is_refused(tmp_path):
    loop = [1]
    loop.append(loop)
    with pytest.raises(ValueError, match="holds itself"):
        st.save(loop, tmp_path / "f")
    assert os.listdir(tmp_path) == []


def test_damaged_structure_is_an_error(tmp_path):
    for structure in ("[" * 100_000, '{"$": "none"}', "{", '{"$array": "none"}', '{"$dict": [1]}'):
        st._core.save_safetensors(str(tmp_path / "f"), {"a": st.ones(1)}, {"strata.structure": structure})
        with pytest.raises(st.errors.IoError, match="damaged"):
            st.load(tmp_path / "f")


def test_other_formats_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as z:
        z.writestr("model/data.pkl", b"\x80\x02}q\x00." + b"x" * 300)
    for source in (tmp_path / "model.pt", open(tmp_path / "model.pt", "rb")):
        with pytest.raises(st.errors.IoError, match=r"model\.pt' is a PyTorch file.*from safetensors\.torch import save_file"):
            st.load(source)
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(st.errors.IoError, match="NumPy archive"):
        st.load(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(st.errors.IoError, match="NumPy array"):
        st.load(tmp_path / "a.npy")


def test_pytorch_files_are_named(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(3)}, tmp_path / "new.pt")
    torch.save({"w": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("new.pt", "old.pt"):
        with pytest.raises(st.errors.IoError, match="is a PyTorch file"):
            st.load(tmp_path / name)


def test_devices_links_pipes_and_permissions(tmp_path):
    st.save(VALUE, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(st.errors.IoError, match="cannot write '/dev/full': No space left on device"):
        st.save(VALUE, "/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    st.save({"a": st.ones(1)}, tmp_path / "real")
    os.chmod(tmp_path / "real", 0o600)
    os.symlink("real", tmp_path / "link")
    st.save({"b": st.ones(1)}, tmp_path / "link")
    assert os.path.islink(tmp_path / "link") and list(st.load(tmp_path / "real")) == ["b"]
    assert stat.S_IMODE(os.stat(tmp_path / "real").st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]
    with pytest.raises(st.errors.IoError) as error:
        st.load(tmp_path / "none")
    assert str(error.value).startswith("cannot open '")


def test_a_run_of_ones_own_knows_its_log(tmp_path, capfd):
    first = trainer_of(tmp_path / "run", save_every=2, steps=4)
    first.train(progress=False)
    log = tmp_path / "run" / "metrics.jsonl"
    lines = log.read_text().splitlines(True)
    log.write_text(lines[0] + "rubbish\n" + "".join(lines[2:]))
    (tmp_path / "run" / "step-00000004.safetensors").write_bytes(b"half")
    capfd.readouterr()
    result = trainer_of(tmp_path / "run", steps=6).train(resume=True, progress=False)
    told = capfd.readouterr().err
    assert "skipping the broken checkpoint" in told and "line 2 is no step of a run" in told
    assert result.step == 6
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 3, 4, 5, 6]
    assert "rubbish" in (tmp_path / "run" / "metrics.1.jsonl").read_text()
    trainer_of(tmp_path / "none", steps=2, save_every=-1).train(progress=False)
    trainer_of(tmp_path / "none", steps=2, save_every=-1).train(progress=False)
    assert "is kept as" in capfd.readouterr().err
    assert (tmp_path / "none" / "metrics.1.jsonl").exists()
