"""In-place forms under autograd: the same gradients as the plain forms, with a copy kept only where backward reads it."""

import pytest

import strata as st

OPS = st._core.ops
# A cache is written without gradients.
NAMES = sorted(name[:-1] for name in OPS if name.endswith("_") and name[:-1] in OPS and name != "cache_write_")


def arguments(name):
    """Tensors in (0.2, 0.8) and what else the schema wants; None where the op has no gradient to compare."""
    st.manual_seed(1)
    places = st.tensor([[0, 2], [1, 0], [2, 1]])
    special = {
        "index_add": (0, st.tensor([2, 0]), st.rand(2, 4)), "index_put": ([st.tensor([2, 0])], st.rand(2, 4)),
        "scatter": (1, places, st.rand(3, 2)), "scatter_add": (1, places, st.rand(3, 2)),
        "scatter_reduce": (1, places, st.rand(3, 2), "prod"),
        "masked_fill": (st.rand(3, 4) > 0.5, 2.0), "fill": (2.0,), "clamp": (0.3, 0.6), "pow_scalar": (3,),
        "masked_scatter": (st.rand(3, 4) > 0.5, st.rand(12)), "index_fill": (0, st.tensor([2, 0]), st.tensor(0.5)),
        "index_copy": (0, st.tensor([2, 0]), st.rand(2, 4)), "index_reduce": (0, st.tensor([2, 0]), st.rand(2, 4), "prod"),
        "put": (st.tensor([2, 7]), st.rand(2)), "addmm": (st.rand(3, 2), st.rand(2, 4)), "addmv": (st.rand(3, 4), st.rand(4)),
        "addr": (st.rand(3), st.rand(4)), "addbmm": (st.rand(2, 3, 2), st.rand(2, 2, 4)),
        "baddbmm": (st.rand(2, 3, 2), st.rand(2, 2, 4)), "cumsum": (1,), "cumprod": (1,), "mvlgamma": (1,), "renorm": (2.0, 0, 0.8),
        "add_mixed": (st.rand(3, 4).to(st.bfloat16),), "mul_mixed": (st.rand(3, 4).to(st.float16),),
        "matmul_add": (st.rand(3, 2), st.rand(2, 4)),
        "add_scalar": (2,), "mul_scalar": (3.0,), "div_scalar": (3.0,), "rsub_scalar": (3.0,),
    }
    if name in special:
        rest = special[name]
    else:
        schema = OPS[name].schema
        count = schema.split("->")[0].count("Tensor ")
        rest = tuple(st.rand(3, 4) * 0.6 + 0.2 for _ in range(count - 1))
    shape = {"addmv": [3], "baddbmm": [2, 3, 4]}.get(name, [3, 4])
    return st.rand(shape) * 0.6 + 0.2 + (1 if name in ("acosh", "mvlgamma") else 0), rest


def gradients(name, inplace, wants):
    x, rest = arguments(name)
    x.requires_grad_(wants[0])
    floating = [t for t in rest if isinstance(t, st.Tensor) and t.is_floating_point()]
    for t in floating:
        t.requires_grad_(wants[1])
    if not any(t.requires_grad for t in (x, *floating)):
        return None
    start = x * 1.0 if wants[0] else x
    y = (OPS[name + "_"] if inplace else OPS[name])(start, *rest)
    if inplace:
        assert y is start
    if not y.requires_grad or y.dtype != x.dtype:  # in place the result is cast to what it is written over
        return None
    (y * y).sum().backward()
    return [t.grad.clone() for t in (x, *floating) if t.grad is not None]


@pytest.mark.parametrize("wants", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("bitwise") and n not in ("gcd", "lcm")])
def test_gradients_are_those_of_the_plain_form(name, wants):
    try:
        want = gradients(name, False, wants)
    except st.AutogradError:
        pytest.skip("not differentiable")
    if want is None:
        pytest.skip("not differentiable, or of another dtype")
    got = gradients(name, True, wants)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert st.equal(a, b)


def test_a_copy_is_kept_only_where_backward_reads_it():
    for name, copies in (("sin", True), ("exp", False), ("abs", True), ("relu", False), ("square", True), ("neg", False)):
        x = st.rand(4, requires_grad=True) * 1.0
        versions = []
        with st.autograd.graph.saved_tensors_hooks(lambda t: versions.append(t.data_ptr()) or t, lambda t: t):
            getattr(x, name + "_")()
        assert (x.data_ptr() not in versions and len(versions) == 1) == copies, name


def test_operators_follow_the_record():
    for op in ("__imul__", "__itruediv__", "__iadd__", "__isub__"):
        plain = {"__imul__": "__mul__", "__itruediv__": "__truediv__", "__iadd__": "__add__", "__isub__": "__sub__"}[op]
        found = []
        for form in (op, plain):
            a, b = st.tensor([2.0, 3.0], requires_grad=True), st.tensor([5.0, 4.0], requires_grad=True)
            y = getattr(a * 1.0, form)(b)
            (y * y).sum().backward()
            found.append((a.grad.tolist(), b.grad.tolist()))
        assert found[0] == found[1]


def calls(function):
    recording = st.record(function)
    return [recording[i]["op"] for i in range(len(recording)) if recording[i]["work"]]


def test_a_number_is_no_tensor():
    """One call each, in place or not, as operators and as methods; integers go the way of promotion."""
    x = st.ones(4)

    def in_place_operators():
        y = x
        y += 1
        y -= 0.5
        y *= 3.0
        y /= 2

    assert calls(in_place_operators) == ["add_scalar", "add_scalar", "mul_scalar", "div_scalar"]
    assert x.tolist() == [2.25] * 4
    assert calls(lambda: x.add_(1).sub_(0.25).mul_(2).div_(3.0)) == ["add_scalar", "add_scalar", "mul_scalar", "div_scalar"]
    assert x.tolist() == [2.0] * 4
    assert calls(lambda: st.mul(x, 0.5)) == ["mul_scalar"] and calls(lambda: x.sub(1)) == ["add_scalar"]
    whole = st.tensor([3, 4])
    whole += 1
    assert whole.mul_(2).tolist() == [8, 10] and whole.dtype == st.int64
    assert (whole.mul(0.5)).tolist() == [4.0, 5.0]
    with pytest.raises(st.AutogradError, match="leaf"):
        st.ones(2, requires_grad=True).mul_(2)
    half = st.ones(3, dtype=st.bfloat16)
    assert half.mul_(0.1).dtype == st.bfloat16
    w = st.ones(3, requires_grad=True)
    y = w * 1.0
    y *= 2.5
    y.sum().backward()
    assert w.grad.tolist() == [2.5] * 3


@pytest.mark.parametrize("layer", [st.nn.SiLU, st.nn.LeakyReLU, st.nn.ELU, st.nn.Hardswish, st.nn.Mish])
def test_an_activation_in_place_makes_no_copy(layer):
    x = st.rand(3, 4) - 0.5
    found = []
    for inplace in (False, True):
        w = st.ones(3, 4, requires_grad=True)
        h = x * w
        if inplace:
            assert not {"clone", "copy_"} & set(calls(lambda: layer(inplace=True)(h)))
            y = h
        else:
            y = layer()(h)
        (y * y).sum().backward()
        found.append((y.detach().tolist(), w.grad.tolist()))
    assert found[0] == found[1]
    h = x * st.ones(3, 4, requires_grad=True)
    row = h[0]
    layer(inplace=True)(h)  # a view sees the write
    assert row.tolist() == h[0].tolist() == layer()(x)[0].tolist()
    assert st.equal(layer(inplace=True)(x.clone()), layer()(x))
