import os

import pytest

import strata as st

PATH = os.environ.get("STRATA_PLUGIN", "")


def test_what_is_no_plugin(tmp_path):
    with pytest.raises(st.PluginError):
        st.load_plugin(tmp_path / "nothing.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ImportError):
        st.load_plugin(tmp_path / "text.so")
    assert not hasattr(st, "squared_relu") or PATH


def test_a_plugins_op_is_an_op():
    if not os.path.exists(PATH):
        pytest.skip("STRATA_PLUGIN names no library: examples/plugin/squared_relu is one")
    plugin = st.load_plugin(PATH)
    assert plugin.ops == ("squared_relu",) and st.load_plugin(PATH) == plugin
    x = st.tensor([-1.0, 2.0], requires_grad=True)
    bias = st.tensor([0.0, 1.0])
    y = st.squared_relu(x, bias)
    expected = st.relu(x.detach() + bias) ** 2
    assert y.tolist() == expected.tolist() == x.squared_relu(bias).tolist() == st.ops.squared_relu(x=x, bias=bias).tolist()
    y.sum().backward()
    assert x.grad.tolist() == [0, 6] and "squared_relu" in st.squared_relu.__doc__
    v = st.tensor([0.5, 1.5], dtype=st.float64, requires_grad=True)
    assert st.autograd.gradcheck(lambda t: st.squared_relu(t, bias.double(), scale=2.0), v)
    with pytest.raises(TypeError, match="squared_relu"):
        st.squared_relu("a", bias)
    with pytest.raises(st.StrataError, match="squared_relu"):
        st.squared_relu(st.ones(2, 3), st.ones(5))
