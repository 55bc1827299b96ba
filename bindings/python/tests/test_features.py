"""Tables off the card from Python: the engine tests what they compute, this what reaches it and comes back."""

import pytest

import strata as st
from strata.features import FeatureLoader, FeatureTable, RowOptimizer
from strata.utils.data import DataLoader, TensorDataset


def plain(rows=30, width=5):
    st.manual_seed(1)
    return st.randn(rows, width)


HOMES = ["own", "disk"] + (["unified"] if st.cuda.is_available() else [])


def same(a, b):
    return st.equal(a.cpu(), b)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("keep", ["last_used", "most_used"])
def test_rows_are_those_of_the_table(home, keep, tmp_path):
    values = plain()
    where = {"disk": {"directories": str(tmp_path)}, "unified": {"device": "cuda"}}.get(home, {})
    table = FeatureTable.from_tensor(values, home=home, keep=keep, cache_bytes=8 * 20, **where)
    assert (len(table), table.width, table.dtype, table.cache_rows) == (30, 5, st.float32, 8)
    index = st.tensor([[3, 29], [3, 0]])
    table.count_uses(True)
    assert same(table[index], values[index])
    table.prefetch(index)
    assert same(table.gather(index.to(st.int32)), values[index])
    assert table.uses().tolist()[3] >= 2
    if keep == "most_used":
        table.keep_most_used()
        assert same(table[index], values[index])
    stats = table.stats()
    assert stats["rows"] >= 8 and stats["hits"] > 0 and 0 < stats["hit_rate"] < 1
    table.reset_stats()
    assert table.stats()["rows"] == 0
    table.write_rows(st.tensor([3]), st.zeros(1, 5))
    table.write(29, st.ones(1, 5))
    assert table[index].sum().item() == pytest.approx(5 + values[0].sum().item(), rel=1e-5)
    assert same(table.read(1, 2), values[1:3])


def test_errors_are_pythons(tmp_path):
    table = FeatureTable.from_tensor(plain())
    with pytest.raises(IndexError, match="index 30 at position 1"):
        table[st.tensor([0, 30])]
    with pytest.raises(ValueError, match="home is own, unified or disk"):
        FeatureTable(3, 3, home="moon")
    with pytest.raises(ValueError, match="directories"):
        FeatureTable(3, 3, home="disk")
    with pytest.raises(ValueError, match="keep is"):
        FeatureTable(3, 3, keep="all")
    with pytest.raises(ValueError, match="adamm"):
        RowOptimizer(table, "adamm")
    with pytest.raises(ValueError, match="ahead"):
        FeatureLoader([], table, ahead=-1)


def test_rows_learn_as_a_dense_table_does_in_its_first_step():
    values = plain()
    table = FeatureTable.from_tensor(values)
    rows = RowOptimizer(table, "adamw", lr=0.1, weight_decay=0.3)
    index = st.tensor([4, 7, 4])
    weights = st.randn(3, 5)
    (table[index] * weights).sum().backward()
    named, sums = table.gradient()
    assert named.tolist() == [4, 7] and st.equal(sums[1], weights[1])
    rows.step()
    dense = values.clone().requires_grad_()
    (st.nn.functional.embedding(index, dense) * weights).sum().backward()
    st.optim.AdamW([dense], lr=0.1, weight_decay=0.3).step()
    now = table.read(0, 30)
    assert st.equal(now[4], dense.detach()[4]) and st.equal(now[7], dense.detach()[7]) and st.equal(now[5], values[5])
    assert rows.updates == 1 and rows.states == ["exp_avg", "exp_avg_sq"]
    rows.write_state("exp_avg", 0, rows.read_state("exp_avg", 0, 30))
    rows.lr = rows.lr / 2
    assert rows.lr == 0.05
    table.zero_grad()
    assert table.gradient()[0].numel() == 0


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_batches_come_with_their_rows(ahead):
    values = plain()
    table = FeatureTable.from_tensor(values, cache_bytes=10 * 20)
    loader = FeatureLoader(DataLoader(TensorDataset(st.arange(30), st.arange(30) * 2), batch_size=8), table, ahead=ahead)
    assert len(loader) == 4
    seen = 0
    for nodes, twice, x in loader:
        assert st.equal(twice, nodes * 2) and st.equal(x, values[nodes])
        seen += len(nodes)
    assert seen == 30
