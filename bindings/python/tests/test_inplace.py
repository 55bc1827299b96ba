"""In-place forms under autograd: the same gradients as the plain forms, with a copy kept only where backward reads it."""

import pytest

import strata as st

OPS = st._core.ops
NAMES = sorted(name[:-1] for name in OPS if name.endswith("_") and name[:-1] in OPS)


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
