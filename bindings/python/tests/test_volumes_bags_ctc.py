"""Pools and convolutions of volumes, fold, unpooling, bags of embeddings and CTC: against NumPy and PyTorch's values."""

import itertools
import math

import numpy as np
import pytest

import strata as st
from strata import nn
from strata.nn import functional as F

from nn_checks import check_gradients, close, rand, set64, t64


def waves(*shape, f=np.sin):
    return f(np.arange(math.prod(shape), dtype=np.float64)).reshape(shape)


def windows(x, kernel, stride):
    """[.., windows.., kernel..] of the last three dimensions."""
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(-3, -2, -1))
    return view[..., :: stride[0], :: stride[1], :: stride[2], :, :, :]


@pytest.mark.parametrize("kernel, stride", [((2, 2, 2), (2, 2, 2)), ((3, 1, 2), (1, 2, 3))])
def test_pools_of_volumes(kernel, stride):
    x = rand(2, 3, 5, 6, 7)
    parts = windows(x, kernel, stride)
    close(F.max_pool3d(t64(x), kernel, stride), parts.max((-3, -2, -1)), 0)
    close(F.avg_pool3d(t64(x), kernel, stride), parts.mean((-3, -2, -1)))
    close(F.lp_pool3d(t64(np.abs(x)), 3.0, kernel, stride), (np.abs(parts) ** 3).sum((-3, -2, -1)) ** (1 / 3))
    close(nn.AvgPool3d(kernel, stride, divisor_override=5)(t64(x)), parts.sum((-3, -2, -1)) / 5)
    values, indices = F.max_pool3d(t64(x), kernel, stride, return_indices=True)
    close(values, np.take_along_axis(x.reshape(2, 3, -1), indices.numpy().reshape(2, 3, -1), -1).reshape(values.shape), 0)
    with pytest.raises(ValueError, match="divisor_override"):
        F.avg_pool2d(t64(x[0]), 2, divisor_override=0)
    for layer in (nn.MaxPool3d(kernel, stride), nn.AvgPool3d(kernel, stride), nn.AdaptiveAvgPool3d((2, 3, None)),
                  nn.AdaptiveMaxPool3d(2)):
        check_gradients(layer, t64(x[:1, :1], True))


def test_unpooling_puts_back_what_pooling_took():
    x = rand(2, 3, 4, 6, 8)
    for n, pool, unpool in ((1, nn.MaxPool1d, nn.MaxUnpool1d), (2, nn.MaxPool2d, nn.MaxUnpool2d),
                            (3, nn.MaxPool3d, nn.MaxUnpool3d)):
        given = t64(x.reshape(2, 3, 24, 8)) if n == 2 else t64(x) if n == 3 else t64(x.reshape(2, 3, -1))
        values, indices = pool(2, return_indices=True)(given)
        back = unpool(2)(values, indices)
        assert back.shape == given.shape
        close(pool(2)(back), np.maximum(values.numpy(), 0), 0)
        close(back.sum(), values.numpy().sum(), 1e-12)
    with pytest.raises(ValueError, match="within a stride"):
        F.max_unpool2d(t64(rand(1, 1, 2, 2)), st.zeros(1, 1, 2, 2, dtype=st.int64), 2, output_size=[9, 4])


def test_resizing_volumes():
    x = rand(1, 2, 3, 4, 5)
    close(F.interpolate(t64(x), scale_factor=2), x.repeat(2, 2).repeat(2, 3).repeat(2, 4), 0)
    corners = F.interpolate(t64(x), size=(5, 7, 9), mode="trilinear", align_corners=True).numpy()
    close(corners[:, :, ::2, ::2, ::2], x)
    close(F.interpolate(t64(x), size=(1, 2, 5), mode="area"), x.reshape(1, 2, 1, 3, 2, 2, 5, 1).mean((3, 5, 7)))


# torch 2.15, summed over batch, channels and width.
def test_convolutions_of_volumes_are_pytorchs():
    x, w = t64(waves(1, 2, 3, 4, 3)), t64(waves(2, 2, 2, 2, 2, f=np.cos))
    close(F.conv3d(x, w, None, (1, 2, 1), (1, 0, 1)).sum([0, 1, 4]),
          [[-0.5406013397124383, -0.13524607000734434], [-0.7875136372765379, -0.7011847613699629],
           [-0.5589999093623923, -0.37228544505007144], [-1.5874641159469896, -1.4023504452175244]])
    close(F.conv_transpose3d(x, w, None, (1, 2, 1), (1, 0, 1), (0, 1, 0)).sum([0, 1, 4]),
          [[4.311262109556171, -2.860737001594028, -4.352397812147165, 2.4506398800669658, 4.306420242935607,
            -1.991493184678194, -4.174249643281871, 1.4924867396577102, 0.0],
           [3.9585314086366705, -0.9636081623953971, -3.66358314093312, 0.4154429612110633, 3.295308231754691,
            0.14103733366655202, -2.861077705912532, -0.6946947653519031, 0.0]])


def test_layers_of_volumes():
    for layer, shape in ((nn.Conv3d(2, 4, (2, 3, 1), padding="same", groups=2), (2, 4, 3, 4, 3)),
                         (nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=1), (2, 3, 7, 9, 7))):
        set64(layer)
        x = t64(rand(2, 2, 3, 4, 3), True)
        assert layer(x).shape == shape
        check_gradients(layer, x)
    assert repr(nn.ConvTranspose3d(2, 3, 2)) == "ConvTranspose3d(2, 3, kernel_size=(2, 2, 2), stride=(1, 1, 1))"
    assert nn.Conv3d(2, 3, 2)(st.zeros(2, 4, 4, 4)).shape == (3, 3, 3, 3)


def test_fold_is_the_transpose_of_unfold():
    for options in (dict(kernel_size=(3, 2)), dict(kernel_size=2, dilation=(1, 2), padding=1, stride=(2, 1))):
        x, unfold = t64(rand(2, 3, 6, 7), True), nn.Unfold(**options)
        columns = unfold(x)
        y = t64(rand(*columns.shape))
        (wanted,) = st.autograd.grad([columns], [x], [y])
        close(nn.Fold((6, 7), **options)(y), wanted.numpy())
        close(F.fold(y[0], (6, 7), **options), wanted[0].numpy())
    with pytest.raises(ValueError, match="windows"):
        F.fold(t64(rand(1, 4, 5)), (4, 4), 2)


def test_bags_are_reductions_of_rows():
    table, index = rand(7, 5), np.array([3, 1, 1, 6, 0, 2, 2, 3])
    starts = [0, 3, 3, 5]
    groups = [index[a:b] for a, b in zip(starts, starts[1:] + [8])]
    weights = rand(8)
    ids, offsets, w = st.tensor(index), st.tensor(starts), t64(table, True)
    reduced = {"sum": np.sum, "mean": np.mean, "max": np.max}
    for mode, reduce in reduced.items():
        wanted = np.stack([reduce(table[g], 0) if len(g) else np.zeros(5) for g in groups])
        close(F.embedding_bag(ids, w, offsets, mode=mode), wanted)
        close(F.embedding_bag(ids.int(), w, st.tensor(starts + [8]).int(), mode=mode, include_last_offset=True), wanted)
        close(F.embedding_bag(ids.reshape([4, 2]), w, mode=mode), reduce(table[index.reshape(4, 2)], 1))
        bag = nn.EmbeddingBag.from_pretrained(w.detach(), mode=mode, padding_idx=1)
        kept = [g[g != 1] for g in groups]
        close(bag(ids, offsets), np.stack([reduce(table[g], 0) if len(g) else np.zeros(5) for g in kept]))
    f = t64(weights, True)
    y = F.embedding_bag(ids, w, offsets, mode="sum", per_sample_weights=f)
    spans = np.split(weights, starts[1:])
    close(y, np.stack([(table[g] * s[:, None]).sum(0) for g, s in zip(groups, spans)]))
    assert st.autograd.gradcheck(lambda a, b: F.embedding_bag(ids, a, offsets, mode="sum", per_sample_weights=b), (w, f))
    assert repr(nn.EmbeddingBag(7, 5)) == "EmbeddingBag(7, 5, mode='mean')"
    with pytest.raises(ValueError, match="mode"):
        F.embedding_bag(ids, w, offsets, mode="median")
    with pytest.raises(IndexError):
        F.embedding_bag(ids + 7, w, offsets)
    with pytest.raises(ValueError, match="max mode"):
        F.embedding_bag(ids, w, offsets, scale_grad_by_freq=True, mode="max")
    with pytest.raises(ValueError, match="max mode"):
        nn.EmbeddingBag(7, 5, scale_grad_by_freq=True, mode="max")
    given = nn.EmbeddingBag(7, 5, mode="sum", _weight=w.detach())
    assert given.weight.requires_grad and not nn.EmbeddingBag.from_pretrained(w.detach()).weight.requires_grad
    with pytest.raises(ValueError, match="does not match"):
        nn.EmbeddingBag(7, 6, _weight=w.detach())


def ctc_by_paths(logs, labels, blank=0):
    """-log of the probability of all ways to write the labels."""
    steps, classes = logs.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        written = [c for c, before in zip(path, (None, *path)) if c != before and c != blank]
        if written == list(labels):
            total += math.exp(sum(logs[t, c] for t, c in enumerate(path)))
    return -math.log(total)


def test_ctc_is_the_sum_over_all_paths():
    logs = F.log_softmax(t64(rand(5, 2, 3)), -1)
    targets = [[1, 2], [1, 1]]
    wanted = [ctc_by_paths(logs.numpy()[:, n], targets[n]) for n in range(2)]
    loss = nn.CTCLoss(reduction="none")
    close(loss(logs, st.tensor(targets), (5, 5), (2, 2)), wanted)
    close(F.ctc_loss(logs, st.tensor([1, 2, 1, 1]), st.tensor([5, 5]), st.tensor([2, 2]), reduction="sum"), sum(wanted))
    close(F.ctc_loss(logs, st.tensor(targets).int(), (5, 5), (2, 2)), sum(wanted) / 4)
    close(F.ctc_loss(logs[:, 0], st.tensor([1, 2]), st.tensor(5), st.tensor(2), reduction="none"), wanted[0])


# torch 2.15.
def test_ctc_is_pytorchs():
    x = t64(waves(6, 2, 4), True)
    args = st.tensor([[1, 2, 2], [3, 1, 0]]), st.tensor([6, 5]), st.tensor([3, 2])
    each = F.ctc_loss(F.log_softmax(x, -1), *args, reduction="none")
    close(each, [5.602497438922332, 3.8858170744883282])
    close(F.ctc_loss(F.log_softmax(x, -1), *args), 1.905203841775804)
    (g,) = st.autograd.grad([each.sum()], [x])
    close(g[2], [[-0.2867271221037365, 0.061119969207967736, -0.19441533248000661, 0.4200224853757754],
                 [-0.07718736416790398, -0.07696183044200632, 0.15934201644324714, -0.005192821833336845]])
    half = x.detach().float().requires_grad_()
    close(F.ctc_loss(F.log_softmax(half, -1).to(st.bfloat16), *args), 1.905203841775804, 2e-2)


def test_ctc_where_labels_do_not_fit():
    logs = F.log_softmax(t64(rand(2, 1, 3)), -1).detach().requires_grad_()
    args = st.tensor([[1, 1]]), (2,), (2,)
    assert F.ctc_loss(logs, *args).item() == math.inf
    loss = nn.CTCLoss(zero_infinity=True)(logs, *args)
    assert loss.item() == 0
    loss.backward()
    close(logs.grad, np.zeros((2, 1, 3)), 0)
    with pytest.raises(IndexError, match="not one of"):
        F.ctc_loss(logs, st.tensor([[3]]), (2,), (1,))
    with pytest.raises(ValueError, match="input_lengths"):
        F.ctc_loss(logs, st.tensor([[1]]), (3,), (1,))
