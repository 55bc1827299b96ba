"""st.record: the calls of a step."""

import pytest

import strata as st


class Net(st.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = st.nn.Linear(4, 8)
        self.drop = st.nn.Dropout(0.5)
        self.down = st.nn.Linear(8, 2)

    def forward(self, x):
        return self.down(self.drop(st.relu(self.up(x))))


def recorded(values=True, kind=st.optim.AdamW):
    st.manual_seed(1)
    net = Net()
    optimizer = kind(net.parameters(), lr=0.1)
    x = st.ones(3, 4)

    def step():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()

    step()
    return net, st.record(step, values=values)


def test_calls_know_op_phase_module_and_values():
    net, r = recorded()
    calls = [r[i] for i in range(len(r))]
    assert {c["phase"] for c in calls} == {"forward", "backward", "update"}
    assert {"up", "down"} <= {c["module"] for c in calls if c["phase"] == "forward"}
    assert {"up", "down"} <= {c["module"] for c in calls if c["phase"] == "backward"}
    assert calls[-1]["op"] == "optimizer_update"
    assert [tuple(p["shape"]) for p in calls[-1]["args"]["params"]] == [tuple(p.shape) for p in net.parameters()]
    first = calls[0]
    assert tuple(first["args"]["x"]["shape"]) == (3, 4) and first["args"]["x"]["dtype"] == st.float32
    storage = r.storages()[first["args"]["x"]["storage"]]
    assert storage["nbytes"] == 48 and storage["born"] == -1 and storage["kept"]
    assert "forward up" in str(r)
    assert "update" in r.table("phase") and "least ms" in r.table("op", gb_s=10.0, gflops=10.0, matmul_f32=10.0)
    assert r.peak_bytes() == max(r.live_bytes()) > 0


@pytest.mark.parametrize("kind", [st.optim.AdamW, st.optim.ASGD])  # the second replaces a rate in its state
def test_replay_from_a_file_has_the_same_bits(tmp_path, kind):
    net, r = recorded(kind=kind)
    path = tmp_path / "step.txt"
    path.write_text(r.to_text())
    again = st.Recording.from_text(path.read_text()).replay()
    again.run()
    update = r[len(r) - 1]
    for p, v in zip(net.parameters(), update["args"]["params"]):
        assert st.equal(again.value(v["value"]), p.detach())


def test_errors_name_their_place():
    _, r = recorded(values=False)
    with pytest.raises(st.errors.IoError, match="line 1, byte 0"):
        st.Recording.from_text("x" + r.to_text())
    with pytest.raises(ValueError, match="bytes are not there"):
        r.replay().run()
    with pytest.raises(ValueError, match="'op', 'module' or 'phase'"):
        r.table("size")
    with pytest.raises(IndexError):
        r[len(r)]
    with pytest.raises(ZeroDivisionError):
        st.record(lambda: 1 / 0)
    assert type(Net().up).__call__ is st.nn.Module.__call__


def test_nothing_is_left_on():
    before = st.nn.Module.__call__
    st.record(lambda: st.record(lambda: st.ones(2) + 1))
    assert st.nn.Module.__call__ is before
