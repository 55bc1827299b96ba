"""Resizing by matrices, sampling at positions, losses with margins, noise: against PyTorch's values (torch 2.15) and
what the definitions say."""

import math

import numpy as np
import pytest

import strata as st
from strata import nn
from strata.nn import functional as F

from nn_checks import check_gradients, close, rand, t64


def waves(*shape):
    return np.sin(np.arange(math.prod(shape), dtype=np.float64)).reshape(shape)


def flat(x):
    return x.reshape([-1])


def test_resizing_is_pytorchs():
    x = t64(waves(1, 1, 4, 5))
    close(flat(F.interpolate(x, size=(2, 3), mode="bicubic")),
          [-0.27579215997690804, 0.8950382174646626, 0.02414099920738862, -0.15263405075234088, -0.8608814096324232,
           0.3946815988811476])
    close(flat(F.interpolate(x, size=(2, 3), mode="bicubic", antialias=True)),
          [-0.2614175660423227, 0.6062239635516015, 0.23540576295414328, -0.32995827275463574, -0.5643066576879998,
           0.3541714918678054])
    close(F.interpolate(x, size=(2, 7), mode="bilinear", antialias=True)[0, 0, 1],
          [-0.0914462981228425, -0.37740319452989024, -0.5793740734912965, -0.548132090131598, -0.1569257383245099,
           0.234455245124465, 0.5476531687593178])
    close(flat(F.interpolate(x, size=(3, 2), mode="nearest-exact")),
          [0.8414709848078965, 0.1411200080598672, -0.9999902065507035, 0.4201670368266409, -0.2879033166650653,
           -0.750987246771676], 0)


def test_resizing_by_a_factor_for_each_dimension():
    x = rand(1, 2, 3, 4)
    close(F.interpolate(t64(x), scale_factor=(2.0, 3.0)), x.repeat(2, 2).repeat(3, 3), 0)
    same = F.interpolate(t64(x), scale_factor=(1.0, 0.5), mode="bilinear")
    close(same, (x[..., ::2] + x[..., 1::2]) / 2)
    with pytest.raises(ValueError, match="align_corners"):
        F.interpolate(t64(x), size=3, align_corners=True)
    with pytest.raises(ValueError, match="Anti-alias"):
        F.interpolate(t64(x), size=3, antialias=True)
    with pytest.raises(ValueError, match="only one"):
        F.interpolate(t64(x))
    with pytest.raises(ValueError, match="trilinear"):
        F.interpolate(t64(x), (3, 3), mode="trilinear")
    for mode in ("bicubic", "area", "nearest-exact"):
        check_gradients(nn.Upsample(size=(5, 3), mode=mode), t64(x[:, :1], True))


def test_sampling_is_pytorchs():
    x, grid = t64(waves(1, 1, 4, 5)), t64(waves(1, 2, 3, 2) * 1.3)
    wanted = {
        "zeros": [-0.3001246845611884, 0.04091486133700921, 0.0, -0.2769815973999323, 0.0, 0.0],
        "border": [-0.9613974918795568, 0.9136174410266193, 0.0, -0.3497971827492534, 0.5101232995834666, 0.19516353482261034],
        "reflection": [-0.9613974918795568, 0.9136174410266193, 0.0, -0.3497971827492534, 0.34656344745703876, 0.09554006890403535],
    }
    for padding_mode, values in wanted.items():
        close(flat(F.grid_sample(x, grid, padding_mode=padding_mode, align_corners=False)), values)
    close(flat(F.grid_sample(t64(waves(1, 2, 2, 3, 2)), t64(waves(1, 1, 2, 2, 3)), align_corners=True)),
          [-0.5430714530299621, 0.4753386329274488, -0.1980166074289784, 0.4905254509204376, -0.22899077925865538,
           0.19726903799986062, 0.09889675627048833, 0.4177178572496311])
    close(flat(F.affine_grid(t64([[[1, 2, 3], [4, 5, 6]]]), (1, 1, 2, 3), False)),
          [1.3333333333333335, 0.8333333333333339, 2.0, 3.5, 2.6666666666666665, 6.166666666666666, 3.3333333333333335,
           5.833333333333334, 4.0, 8.5, 4.666666666666666, 11.166666666666666])


def test_sampling_has_gradients():
    x, grid = t64(rand(2, 2, 3, 4), True), t64(rand(2, 2, 3, 2) * 0.8, True)
    for padding_mode in ("zeros", "border", "reflection"):
        assert st.autograd.gradcheck(lambda a, g: F.grid_sample(a, g, padding_mode=padding_mode), (x, grid))
        assert st.autograd.gradcheck(lambda a, g: F.grid_sample(a, g, "bicubic", padding_mode, True), (x, grid))
    theta = t64(rand(2, 2, 3), True)
    assert st.autograd.gradcheck(lambda t: F.affine_grid(t, (2, 1, 3, 4)), (theta,))
    with pytest.raises(ValueError, match="mode"):
        F.grid_sample(x, grid, "cubic")
    with pytest.raises(ValueError, match="bicubic .* four dimensions"):
        F.grid_sample(t64(rand(1, 1, 2, 3, 4)), t64(rand(1, 2, 2, 2, 3)), "bicubic")
    with pytest.raises(ValueError, match="does not belong"):
        F.grid_sample(x, t64(rand(2, 2, 3, 3)))


def test_the_identity_samples_the_image():
    x = rand(1, 2, 5, 4)
    theta = t64([[[1, 0, 0], [0, 1, 0]]])
    for align_corners in (False, True):
        for mode in ("bilinear", "nearest", "bicubic"):
            grid = F.affine_grid(theta, (1, 2, 5, 4), align_corners)
            close(F.grid_sample(t64(x), grid, mode, align_corners=align_corners), x)


def test_norms_and_channels():
    close(F.local_response_norm(t64(waves(1, 5, 3)), 4, 0.3, 0.6, 1.2)[0, :, 1],
          [0.7202175960853173, -0.6382319539225128, 0.5485730601790971, -0.46248818414171683, 0.36440935264919627])
    x = rand(2, 6, 3)
    close(nn.ChannelShuffle(3)(t64(x)), x[:, [0, 2, 4, 1, 3, 5]], 0)
    y = nn.InstanceNorm3d(2)(t64(rand(2, 2, 3, 4, 5)))
    close(y.mean([2, 3, 4]), np.zeros((2, 2)), 1e-12)
    close(nn.Softmax2d()(t64(rand(2, 3, 4, 5))).sum([1]), np.ones((2, 4, 5)))
    for layer, mode in ((nn.ReflectionPad3d(1), "reflect"), (nn.ReplicationPad3d(1), "edge"), (nn.CircularPad3d(1), "wrap"),
                        (nn.ZeroPad3d(1), "constant")):
        v = rand(1, 2, 3, 4, 5)
        close(layer(t64(v)), np.pad(v, [(0, 0)] * 2 + [(1, 1)] * 3, mode), 0)
    close(nn.ConstantPad1d((1, 2), 3.5)(t64([[[1.0]]])), [[[3.5, 1, 3.5, 3.5]]], 0)


def test_losses_with_margins_are_pytorchs():
    x, target = t64(waves(3, 4)), st.tensor([2, 0, 3])
    weight = t64(np.abs(waves(4)))
    close(nn.MultiMarginLoss(2, 0.7, weight, reduction="none")(x, target),
          [0.0908486805018704, 0.0, 0.4596935850858369])
    close(nn.MultiLabelMarginLoss(reduction="none")(x, st.tensor([[1, 2, -1, 0], [3, -1, 1, 1], [0, 1, 2, 3]])),
          [0.1951757982131445, 0.01589947577057127, 0.0])
    close(nn.MultiLabelSoftMarginLoss(weight, reduction="none")(x, t64(waves(3, 4) > 0.3)),
          [0.1793764175864965, 0.21101596733081862, 0.2219971977414484])
    close(F.pdist(x, 3.0), [2.007164305664813, 1.7761295977099845, 2.3188919157004513])
    a, b, c = (t64(rand(4, 3)) for _ in range(3))
    close(nn.TripletMarginWithDistanceLoss(swap=True)(a, b, c), F.triplet_margin_loss(a, b, c, swap=True).numpy())


def test_noise_has_the_moments_it_says():
    st.manual_seed(3)
    y = nn.AlphaDropout(0.4)(st.randn(200000))
    assert abs(y.mean().item()) < 0.02 and abs(y.std().item() - 1) < 0.02
    channels = nn.FeatureAlphaDropout(0.5)(st.ones(500, 4, 3))
    assert (channels == channels[:, :, :1]).all().item() and len(set(flat(channels[:, :, 0]).tolist())) == 2
    whole = nn.Dropout3d(0.5)(st.ones(100, 4, 2, 2, 2)).reshape([400, 8])
    assert set(flat(whole).tolist()) == {0.0, 2.0} and (whole == whole[:, :1]).all().item()
    slopes = -F.rrelu(-st.ones(100000), 0.1, 0.5, True)
    assert 0.1 <= slopes.min().item() and slopes.max().item() <= 0.5001 and abs(slopes.mean().item() - 0.3) < 0.01
    close(nn.RReLU(0.2, 0.4).eval()(st.tensor([-1.0, 2.0])), [-0.3, 2.0], 1e-6)


def test_gumbel_softmax_draws_the_classes_as_often_as_softmax_says():
    st.manual_seed(3)
    p = [0.2, 0.3, 0.5]
    logits = st.log(st.tensor(p)).expand([100000, 3])
    hard = F.gumbel_softmax(logits, 0.7, hard=True)
    assert set(flat(hard.round()).tolist()) == {0.0, 1.0}
    close(hard.mean([0]), p, 0.02)
    close(F.gumbel_softmax(logits[:5], 0.7).sum([1]), np.ones(5), 1e-6)
    q = st.zeros(3, 4, requires_grad=True)
    (F.gumbel_softmax(q, hard=True) * st.arange(4)).sum().backward()
    assert q.grad.abs().sum().item() > 0


def test_activations_in_place_can_be_trained():
    for f in (F.relu_, F.elu_, F.celu_, F.selu_, F.leaky_relu_, F.hardtanh_, F.rrelu_, lambda x: F.threshold_(x, 0.2, 3.0),
              nn.SiLU(inplace=True), nn.Mish(inplace=True), nn.Hardswish(inplace=True)):
        x = t64(rand(7), True)
        y = x * 1
        assert f(y) is y or y.data_ptr() == f(y).data_ptr()
        y.sum().backward()
        assert x.grad is not None
