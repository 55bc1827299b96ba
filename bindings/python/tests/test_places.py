"""Elements by place, order, shapes and statistics: values that PyTorch gives, pinned, and compared where it is installed."""

import itertools
import math

import pytest

import strata as st

try:
    import torch
except ImportError:
    torch = None

nan = math.nan


def same(got, want):
    if isinstance(got, (tuple, list)) and not isinstance(got, st.Tensor):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
        return
    assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]
    assert list(got.shape) == list(want.shape)
    g, w = got.detach().reshape(-1).tolist(), want.detach().reshape(-1).tolist()
    for a, b in zip(g, w):
        assert a == b or (a != a and b != b) or abs(a - b) <= 1e-5 * max(1, abs(b)), (g, w)


def ints(*v):
    return st.tensor(list(v))


def test_unique_along_a_dimension():
    x = st.tensor([[2, 1], [0, 5], [2, 1], [0, 4]])
    values, inverse, counts = st.unique(x, return_inverse=True, return_counts=True, dim=0)
    assert values.tolist() == [[0, 4], [0, 5], [2, 1]]
    assert inverse.tolist() == [2, 1, 2, 0] and counts.tolist() == [1, 1, 2]
    values, inverse, counts = st.unique_consecutive(st.tensor([[1, 1, 2], [3, 3, 3]]), True, True, dim=1)
    assert values.tolist() == [[1, 2], [3, 3]] and inverse.tolist() == [0, 0, 1] and counts.tolist() == [2, 1]
    assert st.unique_consecutive(st.tensor([[1, 1], [1, 2]]), True)[1].tolist() == [[0, 0], [0, 1]]


def test_moments_read_true_as_unbiased():
    x = st.tensor([[1.0, 2.0], [3.0, 6.0]])
    for name in ("std_mean", "var_mean"):
        spread, mean = getattr(st, name)(x, True)
        assert list(mean.shape) == list(spread.shape) == [] and mean.item() == 3.0
        assert math.isclose(spread.item(), (14 / 3) ** (0.5 if name == "std_mean" else 1), rel_tol=1e-6)
        assert getattr(st, name)(x, 0, correction=0, keepdim=True)[1].tolist() == [[2.0, 4.0]]


def test_cov_with_both_weights():
    x = st.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 3.0]], dtype=st.float64)
    got = st.cov(x, fweights=st.tensor([2, 1, 3]), aweights=st.tensor([0.5, 1.0, 2.0], dtype=st.float64))
    same(got, st.tensor([[0.61386139, 0.45544554], [0.45544554, 0.61386139]], dtype=st.float64))


def test_integer_ranges_with_fractional_ends():
    assert st.arange(0.5, 5.5, 1.5, dtype=st.int64).tolist() == [0, 1, 2, 3]
    assert st.arange(-3.9, 3.9, 1, dtype=st.int32).tolist() == [-3, -2, -1, 0, 1, 2, 3, 4]
    assert st.linspace(0.9, 5.7, 4, dtype=st.int64).tolist() == [0, 1, 3, 5]
    assert st.linspace(-5.5, 5.5, 6, dtype=st.int32).tolist() == [-5, -3, -1, 1, 3, 5]
    assert st.logspace(0.9, 3.7, 4, dtype=st.int64).tolist() == [1, 10, 100, 1000]
    assert st.logspace(1.7, 1.9, 1, dtype=st.int64).tolist() == [50]


def test_nonsense_is_refused():
    for call, text in [(lambda: st.arange(0, -3, 2), "leads away"), (lambda: st.rot90(st.ones(2, 2), 1, (1, 1)), "different"),
                       (lambda: st.trace(st.ones(2, 2, 2)), "needs a matrix"), (lambda: st.diff(st.tensor(1.0)), "0-dim"),
                       (lambda: st.quantile(st.ones(3), 1.5), "in \\[0, 1\\]"),
                       (lambda: st.index_fill(st.ones(3), 0, ints(3), 1.0), "out of range"),
                       (lambda: st.hsplit(st.ones(4, 3), 2), "equal parts")]:
        with pytest.raises(st.StrataError if "parts" not in text else ValueError, match=text):
            call()


def test_gradients_reach_the_filled_value():
    for fill in (lambda v: st.index_fill(st.zeros(4, 2), 0, ints(0, -1), v),
                 lambda v: st.masked_fill(st.zeros(4), st.tensor([True, True, True, True]), v)):
        v = st.tensor(2.0, requires_grad=True)
        fill(v).sum().backward()
        assert v.grad.item() == 4


def test_inputs_without_a_dimension():
    x, one, two = st.tensor(3.0), ints(0), ints(0, 0)
    assert st.gather(x, 0, two).tolist() == [3.0, 3.0] and st.index_select(x, 0, one).item() == 3.0
    assert st.index_add(x, 0, one, st.tensor(2.0)).item() == 5.0 and st.index_copy(x, 0, one, st.tensor(2.0)).item() == 2.0
    assert st.index_fill(x, 0, one, 7).item() == 7.0 and st.take(x, one).tolist() == [3.0]
    assert st.scatter_add(x, 0, two, st.tensor([2.0, 3.0])).item() == 8.0
    assert st.scatter(st.arange(3.0), 0, st.tensor(0), st.tensor(2.0)).tolist() == [2.0, 1.0, 2.0]
    assert [t.item() for t in st.median(x, 0)] == [3.0, 0] and st.median(x).item() == 3.0
    assert [t.item() for t in st.mode(x)] == [3.0, 0] and st.logcumsumexp(x, 0).item() == 3.0
    assert st.unique_consecutive(x, True, True)[1].item() == 0
    with pytest.raises(st.ShapeError, match="single slice"):
        st.index_select(x, 0, two)


def test_options_of_order():
    values, places = st.sort(st.tensor([2, 1, 2]), stable=True, descending=True)
    assert values.tolist() == [2, 2, 1] and places.tolist() == [0, 2, 1]
    assert st.tensor([2, 1]).sort(stable=True)[0].tolist() == [1, 2]
    assert st.tensor([2, 1]).argsort(stable=True).tolist() == [1, 0]
    edges = st.tensor([1.0, 3.0, 5.0])
    assert st.searchsorted(edges, st.tensor([3.0]), out_int32=True).dtype is st.int32
    assert st.searchsorted(edges, 3.0, side="right").item() == 2
    assert st.searchsorted(st.tensor([5.0, 1.0, 3.0]), st.tensor([3.0]), sorter=ints(1, 2, 0)).tolist() == [1]
    assert st.bucketize(st.tensor([3.0, 6.0]), edges, out_int32=True, right=True).tolist() == [2, 3]
    with pytest.raises(ValueError, match="side"):
        st.searchsorted(edges, 3.0, side="left", right=True)
    assert st.cumsum(st.tensor([1, 2]), 0, dtype=st.float64).dtype is st.float64
    assert st.tensor([True, True]).cumsum(0, dtype=st.int32).tolist() == [1, 2]
    assert st.nansum(st.tensor([1.0, nan]), dtype=st.float64).item() == 1.0


def test_median_picks_as_pytorch_does():
    x = st.tensor([1.0, nan, 2.0, nan])
    values, places = st.median(x, 0)
    assert math.isnan(values.item()) and places.item() == 1
    assert [t.item() for t in st.nanmedian(x, 0)] == [1.0, 0]
    x = st.tensor([2.0, 1.0, 2.0], requires_grad=True)
    st.median(x).backward()
    assert x.grad.tolist() == [0.5, 0.0, 0.5]
    assert math.isnan(st.median(st.zeros(0)).item())


def test_masks_in_index_put():
    x = st.zeros(2, 2)
    mask = st.tensor([[True, False], [True, True]])
    x.index_put_((mask,), st.tensor([1.0, 2.0, 3.0]))
    assert x.tolist() == [[1, 0], [2, 3]]
    x.index_put_((mask,), st.tensor(1.0), accumulate=True)
    assert x.tolist() == [[2, 0], [3, 4]]
    y = st.index_put(x, (ints(0, 0), ints(1, 1)), st.tensor([1.0, 1.0]), True)
    assert y.tolist() == [[2, 2], [3, 4]] and x.tolist() == [[2, 0], [3, 4]]
    v = st.ones(3, requires_grad=True)
    (st.index_put(x, (mask,), v) * 2).sum().backward()
    assert v.grad.tolist() == [2, 2, 2]


def test_circular_padding_that_crops():
    x = st.arange(5.0).reshape(1, 5)
    pad = st.nn.functional.pad
    assert pad(x, (-1, 2), "circular").tolist() == [[1, 2, 3, 4, 1, 2]]
    assert pad(x, (2, -1), "circular").tolist() == [[2, 3, 0, 1, 2, 3]]
    assert pad(x, (-1, -2), "circular").tolist() == [[1, 2]]
    assert pad(x, (-1, 4), "reflect").tolist() == [[1, 2, 3, 4, 3, 2, 1, 0]]


def test_histograms():
    x = st.tensor([0.0, 1.0, 1.5, 2.0, 4.0])
    hist, edges = st.histogram(x, 4)
    assert hist.tolist() == [1, 2, 1, 1] and edges.tolist() == [0, 1, 2, 3, 4]
    hist, _ = st.histogram(x, st.tensor([0.0, 1.0, 4.0]), weight=st.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), density=True)
    same(hist, st.tensor([1 / 15, 14 / 15 / 3]))
    hist, edges = st.histogramdd(st.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [2.0, 2.0]]), [3, 3])
    assert hist.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 2]] and len(edges) == 2


def test_gradient_of_samples():
    x = st.tensor([1.0, 2.0, 4.0, 8.0])
    assert st.gradient(x)[0].tolist() == [1.0, 1.5, 3.0, 4.0]
    assert st.gradient(x, spacing=2.0, edge_order=2)[0].tolist() == [0.25, 0.75, 1.5, 2.5]
    same(st.gradient(x, spacing=(st.tensor([0.0, 1.0, 3.0, 4.0]),))[0], st.tensor([1.0, 1.0, 3.0, 4.0]))


# ---- against PyTorch, where it is installed


def cases():
    """(label, function of the module and of tensors, tensors as nested lists, with dtype names)."""
    f, i = "float64", "int64"
    rows = [[0.5, -1.25, 2.0, 0.5], [3.0, 0.25, -2.0, 0.75], [1.5, 0.5, 0.5, -0.25]]
    whole = [[3, 1, 2, 1], [0, 2, 2, 5], [1, 1, 4, 0]]
    for dim, keep in itertools.product((0, 1, -1), (False, True)):
        for name in ("median", "nanmedian", "mode", "kthvalue"):
            def call(m, x, name=name, dim=dim, keep=keep):
                k = (2,) if name == "kthvalue" else ()
                return tuple(getattr(m, name)(x, *k, dim, keep))[0]
            yield name, call, [(rows, f)]
            yield name, call, [(whole, i)]
        for how in ("linear", "lower", "higher", "midpoint", "nearest"):
            for name in ("quantile", "nanquantile"):
                yield name, (lambda m, x, q, n=name, d=dim, k=keep, h=how: getattr(m, n)(x, q, d, k, interpolation=h)), [
                    (rows, f), ([0.1, 0.5, 0.9], f)]
                yield name, (lambda m, x, n=name, d=dim, k=keep, h=how: getattr(m, n)(x, 0.3, d, keepdim=k, interpolation=h)), [
                    ([[nan, 1.0], [2.0, 3.0], [nan, nan]], f)]
        for name in ("nansum", "nanmean", "sum", "mean", "prod"):
            yield name, (lambda m, x, n=name, d=dim, k=keep: getattr(m, n)(x, d, k, dtype=m.float32)), [(rows, f)]
        yield "aminmax", (lambda m, x, d=dim, k=keep: tuple(m.aminmax(x, dim=d, keepdim=k))), [(rows, f)]
        yield "var_mean", (lambda m, x, d=dim, k=keep: m.var_mean(x, d, correction=2, keepdim=k)), [(rows, f)]
    for reduce, own in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
        at, src = [[0, 2, 2], [1, 2, 0]], [[2.0, -3.0, 0.5], [1.0, nan, -1.0]]
        yield "scatter_reduce", (lambda m, x, a, s, r=reduce, o=own: m.scatter_reduce(x, 0, a, s, r, include_self=o)), [
            (rows, f), (at, i), (src, f)]
        yield "scatter_reduce", (lambda m, x, a, s, r=reduce, o=own: x.scatter_reduce(1, a, s, r, include_self=o)), [
            (whole, i), (at, i), ([[7, -3, 2], [1, 4, 9]], i)]
        if reduce != "sum":
            yield "index_reduce", (lambda m, x, a, s, r=reduce, o=own: x.index_reduce(0, a, s, r, include_self=o)), [
                (rows, f), ([2, 0, 2], i), ([[1.0, -2.0, 0.25, 4.0], [0.0, 5.0, 3.0, -7.0], [2.5, 6.0, -1.0, 0.125]], f)]
    for right, small in itertools.product((False, True), (False, True)):
        yield "searchsorted", (lambda m, s, v, r=right, t=small: m.searchsorted(s, v, right=r, out_int32=t)), [
            ([[0.0, 1.0, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]], f), ([[1.0, 5.0], [3.0, -1.0]], f)]
        yield "bucketize", (lambda m, s, v, r=right, t=small: m.bucketize(v, s, right=r, out_int32=t)), [
            ([0.0, 1.0, 1.0, 2.0], f), ([[1.0, 5.0], [3.0, -1.0]], f)]
    for dim in (0, 1, -1):
        for name in ("logcumsumexp", "cumsum", "cumprod"):
            yield name, (lambda m, x, n=name, d=dim: getattr(m, n)(x, d)), [(rows, f)]
        for n in (0, 1, 2, 7):
            yield "diff", (lambda m, x, n=n, d=dim: m.diff(x, n, d)), [(whole, i)]
        yield "diff", (lambda m, x, d=dim: m.diff(x, dim=d, prepend=x, append=x)), [(rows, f)]
        yield "trapezoid", (lambda m, x, d=dim: m.trapezoid(x, dx=0.5, dim=d)), [(rows, f)]
        yield "cumulative_trapezoid", (lambda m, x, d=dim: m.cumulative_trapezoid(x, x * x, dim=d)), [(rows, f)]
        yield "unique", (lambda m, x, d=dim: m.unique(x, return_inverse=True, return_counts=True, dim=d)), [
            ([[1, 0, 1], [1, 0, 1], [0, 2, 0]], i)]
        yield "unique_consecutive", (lambda m, x, d=dim: m.unique_consecutive(x, True, True, d)), [
            ([[1, 1, 0], [1, 1, 0], [0, 0, 2]], i)]
        for edge in (1, 2):
            yield "gradient", (lambda m, x, d=dim, e=edge: list(m.gradient(x, spacing=0.5, dim=d, edge_order=e))), [(rows, f)]
        for sections in (1, 2, 3, 5, [1, 2], [-1], [2, 1, 9]):
            yield "tensor_split", (lambda m, x, s=sections, d=dim: list(m.tensor_split(x, s, d))), [(whole, i)]
        yield "slice_scatter", (lambda m, x, d=dim: m.slice_scatter(x, m.zeros_like(x.narrow(d, 0, 1)), d, 1, 2)), [(whole, i)]
        yield "select_scatter", (lambda m, x, d=dim: m.select_scatter(x, m.zeros_like(x.select(d, 0)), d, -1)), [(whole, i)]
        for k in range(-1, 4):
            yield "rot90", (lambda m, x, k=k, d=dim: m.rot90(x, k, (d, 1 - d % 2))), [(whole, i)]
    for correction in (0, 1, 2):
        yield "cov", (lambda m, x, w, a, c=correction: m.cov(x, correction=c, fweights=w, aweights=a)), [
            (rows, f), ([1, 2, 1, 3], i), ([0.5, 1.0, 2.0, 0.25], f)]
    yield "corrcoef", (lambda m, x: m.corrcoef(x)), [(rows, f)]
    for name in ("atleast_1d", "atleast_2d", "atleast_3d", "hstack", "vstack", "dstack", "column_stack"):
        yield name, (lambda m, x, y, n=name: getattr(m, n)((x, y))), [(rows, f), (whole, i)] if name[0] in "hvdc" else [
            ([1.0, 2.0], f), (3.0, f)]
    yield "block_diag", (lambda m, x, y: m.block_diag(x, y, y.reshape(-1))), [(rows, f), ([[1.0, 2.0]], f)]
    for r, again in itertools.product((1, 2, 3), (False, True)):
        yield "combinations", (lambda m, x, r=r, a=again: m.combinations(x, r, a)), [([3, 1, 2, 1], i)]
    yield "cartesian_prod", (lambda m, x, y: m.cartesian_prod(x, y)), [([1, 2], i), ([3, 4, 5], i)]
    for n, up in itertools.product((None, 2, 5), (False, True)):
        yield "vander", (lambda m, x, n=n, u=up: m.vander(x, n, u)), [([1.0, 0.0, -2.0], f)]
    for invert in (False, True):
        yield "isin", (lambda m, x, y, v=invert: m.isin(x, y, invert=v)), [(whole, i), ([2, 5], i)]
    yield "take", (lambda m, x, a: m.take(x, a)), [(rows, f), ([[0, -1], [5, 3]], i)]
    for accumulate in (False, True):
        yield "put", (lambda m, x, a, s, c=accumulate: x.put(a, s, c)), [(rows, f), ([0, -1, 5], i), ([9.0, 8.0, 7.0], f)]
    for offset in (-1, 0, 2):
        yield "diagonal_scatter", (lambda m, x, o=offset: m.diagonal_scatter(x, m.zeros_like(x.diagonal(o)), o)), [(rows, f)]
        yield "diagflat", (lambda m, x, o=offset: m.diagflat(x, o)), [([[1, 2], [3, 4]], i)]
        yield "tril_indices", (lambda m, x, o=offset: m.tril_indices(3, 4, o)), [(0, i)]
    for density in (False, True):
        yield "histogram", (lambda m, x, w, d=density: tuple(m.histogram(x, 4, range=(-1.0, 2.0), weight=w, density=d))), [
            (rows, f), (rows, f)]
        yield "histogramdd", (lambda m, x, d=density: m.histogramdd(x, [2, 3, 2, 2], density=d)[0]), [(rows, f)]
    yield "histc", (lambda m, x: m.histc(x, 5, -2, 2)), [(rows, f)]
    yield "histc", (lambda m, x: m.histc(x, 3)), [(rows, f)]


def made(module, data, kind, grad):
    t = module.tensor(data, dtype=getattr(module, kind))
    return t.requires_grad_() if grad and kind == "float64" else t


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed: nothing to compare with")
def test_as_pytorch_gives():
    wrong = []
    for number, (name, call, inputs) in enumerate(cases()):
        ours, theirs = ([made(m, *given, True) for given in inputs] for m in (st, torch))
        try:
            want = call(torch, *theirs)
        except Exception as error:  # what it refuses has no value to compare with
            want = error
        try:
            got = call(st, *ours)
            if isinstance(want, Exception):
                continue
            same(got, want)
            g, w = (r[0] if isinstance(r, (tuple, list)) else r for r in (got, want))
            if not (w.requires_grad and w.numel()):
                continue
            weights = [0.5 + 0.25 * k for k in range(w.numel())]
            try:
                (w.reshape(-1) * torch.tensor(weights, dtype=w.dtype)).sum().backward()
            except RuntimeError:  # it has no gradient of histograms, and loses that of vander
                continue
            (g.reshape(-1) * st.tensor(weights, dtype=g.dtype)).sum().backward()
            # It shares an extreme with the element that is left out, where that is as large.
            alone = name == "scatter_reduce" and call.__defaults__ in (("amax", False), ("amin", False))
            for a, b in list(zip(ours, theirs))[: 1 if alone else None]:
                if b.grad is not None:
                    same(a.grad, b.grad)
        except Exception as error:
            if not isinstance(want, Exception):
                wrong.append(f"{number} {name}: {type(error).__name__} {error}"[:300])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("reduce", ["amax", "amin", "mean", "sum", "prod"])
def test_what_a_scatter_leaves_out_has_no_gradient(reduce):
    x = st.tensor([1.0, 2.0, 3.0], requires_grad=True)
    src = st.tensor([math.nan, 4.0])
    st.scatter_reduce(x, 0, st.tensor([1, 2]), src, reduce, include_self=False).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.0, 0.0]
