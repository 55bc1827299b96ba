"""What losses, layers and pooling once did wrongly or refused, pinned to PyTorch's values."""

import numpy as np
import pytest

import strata as st
from strata import nn
from strata.nn import functional as F


def t(*values):
    return st.tensor(list(values), dtype=st.float64)


X = t([1.0, 2.0, 3.0], [4.0, -5.0, 6.0])
LOGITS = st.arange(12, dtype=st.float64).reshape(3, 4) / 5
WEIGHTS = t(0.5, 1.0, 2.0, 0.3)


def test_cosine_similarity_broadcasts():
    found = F.cosine_similarity(X, t(0.5, -1.0, 2.0), dim=-1)
    np.testing.assert_allclose(found.numpy(), [0.524890659167824, 0.9449929894737883])
    assert F.cosine_similarity(st.ones(2, 1, 3), st.ones(4, 3), dim=2).shape == (2, 4)


def test_gaussian_nll_takes_a_variance_for_each_row():
    other = X.flip(0) * 0.3
    assert F.gaussian_nll_loss(X, other, t(0.5, 2.0)).item() == pytest.approx(5.2491666666666665)
    one = F.gaussian_nll_loss(X, X * 0.3, t([0.5, 2.0, 1.0]), full=True, reduction="sum")
    assert one.item() == pytest.approx(28.421131199228036)
    assert F.gaussian_nll_loss(X, X, 1.0).item() == 0
    with pytest.raises(ValueError, match="var is"):
        F.gaussian_nll_loss(X, X, t(0.5, 2.0, 1.0))
    with pytest.raises(ValueError, match="negative"):
        F.gaussian_nll_loss(X, X, -st.ones(2, 3, dtype=st.float64))


def test_cross_entropy_weighs_classes_and_refuses_other_weights():
    target = st.tensor([0, 3, -100])
    assert F.cross_entropy(LOGITS, target, WEIGHTS, label_smoothing=0.1).item() == pytest.approx(1.670187813526507)
    wanted = st.softmax(LOGITS.flip(1), 1)
    assert F.cross_entropy(LOGITS, wanted, WEIGHTS, label_smoothing=0.2).item() == pytest.approx(1.3283228753195935)
    for bad in (st.ones(3), st.ones(5), st.ones(1), st.ones(4, 1)):
        for loss in (lambda: F.cross_entropy(LOGITS, target, bad), lambda: F.nll_loss(LOGITS, target, bad),
                     lambda: F.cross_entropy(LOGITS, wanted, bad), lambda: F.multi_margin_loss(LOGITS, target.abs() % 4, weight=bad)):
            with pytest.raises(ValueError, match="weight is"):
                loss()
    small = F.cross_entropy(LOGITS, target.to(st.int32), WEIGHTS)
    assert small.item() == F.cross_entropy(LOGITS, target, WEIGHTS).item()


def test_batch_norm_refuses_an_eps_that_is_not_positive():
    x = st.randn(4, 3)
    for eps in (-1.0, 0.0):
        with pytest.raises(ValueError, match="eps must be positive"):
            nn.BatchNorm1d(3, eps=eps)(x)
        with pytest.raises(ValueError, match="eps must be positive"):
            F.batch_norm(x, st.zeros(3), st.ones(3), eps=eps)


def test_norms_without_bias():
    for norm, x in ((nn.BatchNorm1d(3, bias=False), st.randn(4, 3)), (nn.GroupNorm(1, 3, bias=False), st.randn(4, 3)),
                    (nn.InstanceNorm1d(3, affine=True, bias=False), st.randn(2, 3, 4)), (nn.LayerNorm(3, bias=False), st.randn(4, 3))):
        assert norm.bias is None and list(norm.state_dict())[0] == "weight" and norm(x).shape == x.shape
        assert [n for n, _ in norm.named_parameters()] == ["weight"]


def test_lazy_layers_without_a_batch_and_of_another_dtype():
    conv = nn.LazyConv1d(4, 3)
    assert conv(st.randn(2, 8)).shape == (4, 6) and conv.in_channels == 2
    assert nn.LazyConv2d(4, 3)(st.randn(5, 2, 8, 8)).shape == (5, 4, 6, 6)
    assert nn.LazyInstanceNorm1d(affine=True)(st.randn(2, 8)).shape == (2, 8)
    linear = nn.LazyLinear(4).to(st.float64)
    assert linear(st.randn(2, 3, dtype=st.float64)).dtype == st.float64 and linear.weight.dtype == st.float64
    assert nn.LazyLinear(4, dtype=st.float64)(st.randn(2, 3, dtype=st.float64)).dtype == st.float64
    assert list(nn.LazyLinear(2).state_dict()) == []


def test_integer_convolution_and_pooling():
    x = st.arange(50).reshape(2, 1, 5, 5) % 7 - 3
    kernel = st.arange(8).reshape(2, 1, 2, 2) - 3
    found = F.conv2d(x, kernel, st.tensor([1, -2]), stride=2, padding=1)
    assert found.dtype == st.int64 and found.flatten().tolist() == [
        1, 3, 1, -3, -3, 6, 5, 7, -5, -14, -12, 2, 2, 6, -9, 6, -20, 0, 1, -1, 4, 3, 1, -11, -3, -3, 6, 2, 16, -19, -16, -10, 10, 2,
        6, -9]
    assert F.conv1d(st.arange(14).reshape(1, 2, 7), st.arange(6).reshape(1, 2, 3), dilation=2).tolist() == [[[122, 137, 152]]]
    assert F.max_pool2d(x, 3, 2, 1, ceil_mode=True).flatten().tolist() == [3, 3, 1, 3, 3, 3, 3, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    means = F.avg_pool2d(x, (2, 3), (2, 2), (1, 1), ceil_mode=True, count_include_pad=False)
    assert means.flatten().tolist() == [-2, -1, 0, 1, 0, 0, 0, -1, 0, 1, 0, -2, -1, 0, 1, 1, 0, 0]


def test_divisor_with_ceil_mode():
    y = st.arange(30, dtype=st.float64).reshape(1, 1, 5, 6)
    np.testing.assert_allclose(
        F.avg_pool2d(y, 3, 2, 1, ceil_mode=True, divisor_override=5).flatten().numpy(),
        [2.8, 6.0, 8.4, 3.2, 15.0, 25.2, 28.8, 10.2, 17.2, 27.6, 30.0, 10.4])
    np.testing.assert_allclose(
        F.avg_pool3d(y.reshape(1, 1, 2, 3, 5), 2, 2, 1, ceil_mode=True, divisor_override=3).flatten().numpy(),
        [0, 1, 7 / 3, 5, 12, 44 / 3, 5, 11, 37 / 3, 15, 32, 104 / 3])


def test_embeddings_take_i32():
    table = st.randn(5, 3, requires_grad=True)
    rows = st.tensor([1, 4, 1])
    wanted = F.embedding(rows, table)
    found = F.embedding(rows.to(st.int32), table)
    assert (found == wanted).all() and nn.Embedding(5, 3)(rows.to(st.int32)).shape == (3, 3)
    found.sum().backward()
    assert table.grad[:, 0].tolist() == [0, 2, 0, 0, 1]
    bags = F.embedding_bag(rows.to(st.int32), table, st.tensor([0, 2], dtype=st.int32))
    assert (bags == F.embedding_bag(rows, table, st.tensor([0, 2]))).all()


@pytest.mark.parametrize("loss", [
    lambda x, t: F.binary_cross_entropy(x.sigmoid(), t.sigmoid()), lambda x, t: F.soft_margin_loss(x, t),
    lambda x, t: F.hinge_embedding_loss(x, t.sign()), lambda x, t: F.poisson_nll_loss(x, t.abs()),
    lambda x, t: F.cosine_embedding_loss(x, t, st.ones(4)), lambda x, t: F.triplet_margin_loss(x, t, x + t),
    lambda x, t: F.margin_ranking_loss(x, t, t.sign()), lambda x, t: F.multilabel_soft_margin_loss(x, t.sigmoid()),
    lambda x, t: F.huber_loss(x, t), lambda x, t: F.gaussian_nll_loss(x, t, t.abs() + 1), lambda x, t: F.cosine_similarity(x, t).sum(),
])
def test_losses_run_in_f32_under_autocast(loss):
    st.manual_seed(1)
    x, target = st.randn(4, 6).bfloat16().requires_grad_(), st.randn(4, 6).bfloat16()
    with st.autocast("cpu", dtype=st.bfloat16):
        found = loss(x, target)
    assert found.dtype == st.float32
    found.backward()
    assert x.grad.dtype == st.bfloat16 and st.isfinite(x.grad.float()).all()


def test_covariance_of_one_row_has_no_dimensions():
    assert st.cov(t([1.0, 2.0, 4.0])).shape == () and st.corrcoef(t([1.0, 2.0, 4.0])).shape == ()
    np.testing.assert_allclose(st.cov(t([1.0, 2.0, 4.0])).item(), np.cov([[1.0, 2.0, 4.0]]))


def test_places_of_small_integers_do_not_wrap():
    row, column = st.unravel_index(st.tensor([3, 200], dtype=st.uint8), (2, 300))
    assert row.tolist() == [0, 0] and column.tolist() == [3, 200] and row.dtype == st.int64
    assert [p.tolist() for p in st.unravel_index(st.tensor([7], dtype=st.int8), (4, 2**30))] == [[0], [7]]


def test_masked_scatter_broadcasts():
    x, mask = st.zeros(2, 3), st.tensor([True, False, True])
    assert st.masked_scatter(x, mask, st.arange(4.0)).tolist() == [[0, 0, 1], [2, 0, 3]]
    assert x[0].masked_scatter(mask.expand(2, 3), st.arange(4.0)).tolist() == [[0, 0, 1], [2, 0, 3]]


def test_as_strided_begins_where_the_tensor_does():
    x = st.arange(9.0)
    assert x.as_strided((2, 2), (1, 2)).tolist() == [[0, 2], [1, 3]]
    assert st.as_strided(x[3:], (2,), (1,)).tolist() == [3, 4]
    assert x[3:].as_strided((2,), (1,), 0).tolist() == [0, 1]


def test_arguments_that_pytorch_has_too():
    samples = st.tensor([1.0, 2.0, 4.0, 8.0])
    assert st.gradient(samples, spacing=None, dim=None)[0].tolist() == [1.0, 1.5, 3.0, 4.0]
    with pytest.raises(ValueError, match="one for each of 2"):
        st.gradient(st.ones(3, 3), spacing=[0.1], dim=(1, 0))
    assert st.repeat_interleave(st.tensor([1, 2]), st.tensor([2, 1]), output_size=3).tolist() == [1, 1, 2]
    with pytest.raises(ValueError, match="output_size is 4, the repeats make 3"):
        st.repeat_interleave(st.tensor([1, 2]), st.tensor([2, 1]), output_size=4)
    assert st.scalar_tensor(2.0, requires_grad=True).requires_grad
    assert st.tril_indices(2, 2, dtype=st.int32, device="cpu").dtype == st.int32
    assert [p.tolist() for p in st.nonzero(st.tensor(3.0), as_tuple=True)] == [[0]]
    assert [g.shape for g in st.meshgrid(st.tensor(1.0))] == [(1,)]
    assert st.masked.var(samples, correction=0).item() == pytest.approx(np.var([1, 2, 4, 8]))
    with pytest.raises(ValueError, match="both"):
        st.masked.std(samples, unbiased=True, correction=1)


def test_normal_refuses_a_negative_deviation():
    for deviation in (-1.0, st.tensor([1.0, -0.5, 1.0])):
        with pytest.raises(ValueError, match="must not be negative"):
            st.normal(st.zeros(3), deviation)
