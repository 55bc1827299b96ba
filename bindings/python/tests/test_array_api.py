"""The names of the Python array API standard 2023.12, and what docs/library/python_array_api.md says of them."""

import pathlib
import re

import numpy as np
import pytest

import strata as st

NAMES = """
e inf nan newaxis pi __array_api_version__ __array_namespace_info__
arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like
astype broadcast_arrays broadcast_to can_cast finfo iinfo isdtype result_type
bool int8 int16 int32 int64 uint8 float32 float64
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift
bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot isfinite isinf
isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply
negative not_equal positive pow real remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc
matmul matrix_transpose tensordot vecdot
concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack
argmax argmin nonzero searchsorted where take
unique_all unique_counts unique_inverse unique_values argsort sort
cumulative_sum max mean min prod std sum var all any
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_name(name):
    assert hasattr(st, name)
    assert st.ones(1).__array_namespace__(api_version="2023.12") is st
    with pytest.raises(ValueError):
        st.ones(1).__array_namespace__(api_version="1999.01")


def test_behaviour():
    a = np.random.rand(2, 3, 4).astype(np.float32)
    x = st.tensor(a)
    near = lambda got, wanted: np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)  # noqa: E731
    near(st.std(x, axis=1, correction=0, keepdims=True), a.std(1, keepdims=True))
    near(st.max(x, axis=(0, 2)), a.max((0, 2)))
    near(st.sort(x, axis=1, descending=True), -np.sort(-a, 1))
    near(st.tensordot(x, x, axes=((0, 1), (0, 1))), np.tensordot(a, a, ((0, 1), (0, 1))))
    near(st.vecdot(x, x), (a * a).sum(-1))
    near(st.cumulative_sum(x, axis=2, include_initial=True), np.concatenate([np.zeros((2, 3, 1)), a.cumsum(2)], 2))
    near(st.roll(x, 1, axis=(0, 2)), np.roll(a, 1, (0, 2)))
    near(st.repeat(x, 2, axis=1), np.repeat(a, 2, 1))
    near(st.take(x, st.tensor([2, 0]), axis=2), a.take([2, 0], 2))
    near(st.copysign(x, -0.0), -a)
    near(st.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, endpoint=False))
    near(st.eye(3, 4, k=1), np.eye(3, 4, 1))
    assert st.signbit(st.tensor([-0.0, 0.0, -1.0])).tolist() == [True, False, True]
    u = st.unique_all(st.tensor([[3, 1], [3, 2]]))
    assert [t.tolist() for t in u] == [[1, 2, 3], [1, 3, 0], [[2, 0], [2, 1]], [1, 1, 2]]
    assert st.isdtype(st.float32, "real floating") and st.isdtype(st.int8, ("bool", "integral")) and not st.isdtype(st.bool, "numeric")
    assert st.can_cast(st.int8, st.int32) and not st.can_cast(st.float64, st.float32)
    assert st.astype(x, st.float32, copy=False) is x and st.astype(x, st.float32).data_ptr() != x.data_ptr()
    assert st.finfo(st.float32).eps == np.finfo(np.float32).eps and st.iinfo(st.int8).min == -128
    assert st.__array_namespace_info__().default_dtypes()["integral"] is st.int64
    with pytest.raises(ValueError):
        st.squeeze(x, axis=0)


def test_the_page_runs():
    page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "library" / "python_array_api.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, str(page), "exec"), {})


def test_slices_with_a_negative_step():
    x = np.arange(60).reshape(3, 4, 5)
    keys = [np.s_[::-1], np.s_[:, ::-2], np.s_[..., 3:0:-1], np.s_[1, ::-1, None, ::-1], np.s_[[0, 2], ::-1], np.s_[::-1, [0, 1]],
            np.s_[:, -1:-10:-3], np.s_[0:2:-1], np.s_[None, ..., ::-1], np.s_[5:1:-1], np.s_[:, 10::-1]]
    for key in keys:
        assert np.array_equal(st.from_numpy(x.copy())[key].numpy(), x[key]), key
        written, wanted = st.from_numpy(x.copy()), x.copy()
        values = np.arange(x[key].size).reshape(x[key].shape)
        written[key], wanted[key] = st.from_numpy(values), values
        assert np.array_equal(written.numpy(), wanted), key
    mask = x.sum(2) % 2 == 0
    assert np.array_equal(st.from_numpy(x.copy())[st.tensor(mask), ::-1].numpy(), x[mask, ::-1])
    g = st.ones(4, requires_grad=True)
    (g[::-1] * st.arange(4.0)).sum().backward()
    assert g.grad.tolist() == [3, 2, 1, 0]


def test_empty_axes_and_ranges():
    x = st.tensor([[1.0, 2.0]])
    for function in (st.sum, st.mean, st.prod, st.max, st.min):
        assert function(x, axis=()).tolist() == [[1, 2]] and function(x, axis=(), keepdims=True).shape == (1, 2)
    assert st.std(x, axis=(), correction=0).tolist() == [[0, 0]] and st.all(x, axis=()).dtype == st.bool
    assert st.sum(x, dim=()).item() == 3  # PyTorch's
    for ends in ((3, 0), (1.0, 0), (0, 3, -1)):  # the standard would have nothing, PyTorch refuses
        with pytest.raises(ValueError, match="leads away"):
            st.arange(*ends)
    assert st.linspace(0, 1, num=3).tolist() == st.linspace(0, 1, steps=3).tolist() == [0, 0.5, 1]


def test_joining_promotes():
    a, b = st.tensor([1, 2], dtype=st.int8), st.tensor([0.5, 1.5])
    for joined in (st.cat([a, b]), st.concat([a, b]), st.concat([a, b], axis=None), st.hstack([a, b]), st.cat((a, b), dim=-1)):
        assert joined.dtype == st.float32 and joined.tolist() == [1, 2, 0.5, 1.5]
    assert st.stack([a, b]).dtype == st.stack([a, b], axis=1).dtype == st.vstack([a, b]).dtype == st.float32
    assert st.cat([a, st.tensor([300], dtype=st.int16)]).tolist() == [1, 2, 300]
    with pytest.raises(st.ShapeError):
        st.cat([a, st.ones(2, 2)])
