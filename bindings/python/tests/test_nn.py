"""Modules against references in double precision, written with NumPy."""

import copy
import math
import pickle

import numpy as np
import pytest

import strata as st
from strata import nn
from strata.nn import functional as F

RNG = np.random.default_rng(7)


def rand(*shape):
    return RNG.standard_normal(shape)


def t64(a, grad=False):
    return st.tensor(np.asarray(a, dtype=np.float64), requires_grad=grad)


def close(actual, wanted, tol=1e-10):
    a = actual.detach().numpy() if isinstance(actual, st.Tensor) else np.asarray(actual)
    np.testing.assert_allclose(a, wanted, rtol=tol, atol=tol)


def set64(module):
    """The module in float64 with normal random parameters, and these as NumPy arrays."""
    module.double()
    arrays = {}
    with st.no_grad():
        for name, p in module.named_parameters():
            value = rand(*p.shape) * 0.5
            p.copy_(t64(value))
            arrays[name] = value
    return arrays


def check_gradients(module, *inputs):
    """Central differences for the inputs that are floating and all parameters."""
    names = [n for n, _ in module.named_parameters()]
    params = [p.detach().clone().requires_grad_() for p in module.parameters()]
    differentiable = [i for i, x in enumerate(inputs) if x.is_floating_point()]

    def run(*values):
        given = list(inputs)
        for i, v in zip(differentiable, values):
            given[i] = v
        for name, v in zip(names, values[len(differentiable):]):
            path, _, leaf = name.rpartition(".")
            module.get_submodule(path)._parameters[leaf] = v
        out = module(*given)
        return out[0] if isinstance(out, tuple) else out

    floats = [inputs[i].detach().clone().requires_grad_() for i in differentiable]
    saved = {n: p for n, p in module.named_parameters()}
    try:
        assert st.autograd.gradcheck(run, (*floats, *params))
    finally:
        for name, p in saved.items():
            path, _, leaf = name.rpartition(".")
            module.get_submodule(path)._parameters[leaf] = p


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- linear layers


def test_linear():
    m = nn.Linear(4, 3)
    assert abs(m.weight.detach().numpy()).max() <= 0.5 and m.bias.shape == (3,)
    w = set64(m)
    x = rand(5, 2, 4)
    close(m(t64(x)), x @ w["weight"].T + w["bias"])
    check_gradients(m, t64(x))
    assert repr(m) == "Linear(in_features=4, out_features=3, bias=True)"
    assert nn.Linear(4, 3, bias=False).bias is None


def test_bilinear():
    m = nn.Bilinear(3, 4, 2)
    w = set64(m)
    a, b = rand(5, 3), rand(5, 4)
    close(m(t64(a), t64(b)), np.einsum("ni,oij,nj->no", a, w["weight"], b) + w["bias"])
    check_gradients(m, t64(a), t64(b))


def test_embedding():
    m = nn.Embedding(6, 3, padding_idx=-2)
    assert (m.weight.detach().numpy()[4] == 0).all()
    w = set64(m)
    index = np.array([[0, 5], [4, 4]])
    y = m(st.tensor(index))
    close(y, w["weight"][index])
    y.sum().backward()
    wanted = np.zeros((6, 3))
    wanted[[0, 5]] = 1
    close(m.weight.grad, wanted)
    with pytest.raises(IndexError):
        m(st.tensor([6]))
    with pytest.raises(ValueError):
        nn.Embedding(3, 3, padding_idx=3)
    table = nn.Embedding.from_pretrained(st.ones(2, 3))
    assert not table.weight.requires_grad


# ---- convolutions


def conv_reference(x, w, b, stride, padding, dilation, groups):
    n, c, *size = x.shape
    out, per_group, *kernel = w.shape
    x = np.pad(x, [(0, 0), (0, 0)] + [(p, p) for p in padding])
    result = [(s + 2 * p - d * (k - 1) - 1) // st_ + 1 for s, p, d, k, st_ in zip(size, padding, dilation, kernel, stride)]
    y = np.zeros((n, out, *result))
    for index in np.ndindex(*result):
        window = x[(slice(None), slice(None), *(
            slice(i * s, i * s + d * (k - 1) + 1, d) for i, s, d, k in zip(index, stride, dilation, kernel)))]
        for o in range(out):
            g = o // (out // groups)
            part = window[:, g * per_group : (g + 1) * per_group]
            y[(slice(None), o, *index)] = (part * w[o]).reshape(n, -1).sum(1)
    return y + (0 if b is None else b.reshape(1, -1, *[1] * len(kernel)))


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("options", [
    dict(), dict(stride=2, padding=1), dict(dilation=2, padding=2, bias=False), dict(groups=2, padding=1), dict(padding="same"),
])
def test_conv(spatial, options):
    m = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[spatial - 1](4, 6, 3 if spatial < 3 else 2, **options)
    w = set64(m)
    x = rand(2, 4, *[6, 5, 5][:spatial])
    if options.get("padding") == "same":
        assert m(t64(x)).shape[2:] == tuple(x.shape[2:])
        if spatial == 3:
            x3 = np.pad(x, [(0, 0)] * 2 + [(0, 1)] * 3)
            close(m(t64(x)), conv_reference(x3, w["weight"], w["bias"], [1] * 3, [0] * 3, [1] * 3, 1))
            return
    padding = [1] * spatial if options.get("padding") == "same" else [options.get("padding", 0)] * spatial
    wanted = conv_reference(x, w["weight"], w.get("bias"), [options.get("stride", 1)] * spatial, padding,
                            [options.get("dilation", 1)] * spatial, options.get("groups", 1))
    close(m(t64(x)), wanted)
    if spatial < 3 or not options:
        check_gradients(m, t64(x[:1, :, :4]))


def test_conv_padding_modes():
    x = rand(1, 2, 5, 6)
    for mode, name in [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]:
        m = nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode=mode)
        w = set64(m)
        padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (2, 2)], mode=name)
        close(m(t64(x)), conv_reference(padded, w["weight"], w["bias"], [1, 1], [0, 0], [1, 1], 1))
    with pytest.raises(ValueError, match="padding_mode"):
        nn.Conv2d(2, 3, 3, padding_mode="mirror")


def test_conv_transpose_is_the_adjoint():
    for cls, fwd, size in [(nn.ConvTranspose1d, F.conv1d, (7,)), (nn.ConvTranspose2d, F.conv2d, (5, 6))]:
        m = cls(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False)
        set64(m)
        x = t64(rand(2, 4, *size))
        y = m(x)
        z = t64(rand(*y.shape))
        # <transpose(x), z> = <x, conv(z)>
        back = fwd(z, m.weight, None, 2, 1, 1, 2)
        close((y * z).sum(), (x * back).sum().item())
        check_gradients(m, x[:1])


def test_repr_of_conv_is_pytorchs():
    assert repr(nn.Conv2d(1, 2, 3, padding=1)) == "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
    text = "ConvTranspose1d(4, 2, kernel_size=(3,), stride=(2,), output_padding=(1,), groups=2, bias=False)"
    assert repr(nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=1, groups=2, bias=False)) == text


def test_unfold_is_convolution():
    x, w = rand(2, 3, 6, 5), rand(4, 3, 2, 3)
    columns = nn.Unfold((2, 3), padding=1, stride=2)(t64(x))
    y = np.einsum("ok,nkl->nol", w.reshape(4, -1), columns.numpy())
    close(t64(y.reshape(2, 4, 4, 3)), conv_reference(x, w, None, [2, 2], [1, 1], [1, 1], 1))


# ---- pooling


def test_pooling():
    x = rand(2, 3, 6, 8)
    blocks = x.reshape(2, 3, 3, 2, 4, 2)
    close(nn.MaxPool2d(2)(t64(x)), blocks.max((3, 5)))
    close(nn.AvgPool2d(2)(t64(x)), blocks.mean((3, 5)))
    close(nn.AdaptiveAvgPool2d((3, 4))(t64(x)), blocks.mean((3, 5)))
    close(nn.AdaptiveAvgPool2d((None, 1))(t64(x)), x.mean(3, keepdims=True))
    close(nn.AdaptiveMaxPool2d(1)(t64(x)), x.max((2, 3), keepdims=True))
    values, where = nn.MaxPool2d(2, return_indices=True)(t64(x))
    flat = x.reshape(2, 3, -1)
    close(values, np.take_along_axis(flat, where.numpy().reshape(2, 3, -1), 2).reshape(2, 3, 3, 4))
    line = rand(2, 3, 9)
    close(nn.MaxPool1d(3)(t64(line)), line.reshape(2, 3, 3, 3).max(3))
    close(nn.AvgPool1d(3)(t64(line)), line.reshape(2, 3, 3, 3).mean(3))
    close(nn.AdaptiveAvgPool1d(3)(t64(line)), line.reshape(2, 3, 3, 3).mean(3))
    check_gradients(nn.MaxPool2d(3, 2, 1), t64(x[:1]))
    check_gradients(nn.AvgPool2d(3, 2, 1), t64(x[:1]))


def test_resizing_and_shuffling():
    x = rand(1, 4, 3, 2)
    close(nn.Upsample(scale_factor=2)(t64(x)), x.repeat(2, 2).repeat(2, 3))
    up = nn.Upsample(size=(5, 3), mode="bilinear", align_corners=True)(t64(x)).numpy()
    close(up[..., ::2, ::2], x)
    shuffled = nn.PixelShuffle(2)(t64(x))
    assert shuffled.shape == (1, 1, 6, 4)
    close(shuffled[0, 0, 1::2, 0::2], x[0, 2])
    close(nn.PixelUnshuffle(2)(shuffled), x)
    close(nn.ZeroPad2d((1, 0, 2, 0))(t64(x)), np.pad(x, [(0, 0), (0, 0), (2, 0), (1, 0)]))


# ---- norms


def normed(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_layer_norm():
    m = nn.LayerNorm((3, 4))
    assert (m.weight.detach().numpy() == 1).all() and (m.bias.detach().numpy() == 0).all()
    w = set64(m)
    x = rand(5, 3, 4)
    close(m(t64(x)), normed(x, (1, 2), 1e-5) * w["weight"] + w["bias"])
    check_gradients(m, t64(x))
    assert repr(m) == "LayerNorm((3, 4), eps=1e-05, elementwise_affine=True)"
    plain = nn.LayerNorm(4, elementwise_affine=False)
    close(plain(t64(x)), normed(x, (2,), 1e-5))


def test_rms_norm():
    m = nn.RMSNorm(4, eps=1e-3)
    w = set64(m)
    x = rand(5, 3, 4)
    close(m(t64(x)), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w["weight"])
    check_gradients(m, t64(x))
    tiny = x * 1e-6
    close(nn.RMSNorm(4).double()(t64(tiny)), tiny / np.sqrt((tiny**2).mean(-1, keepdims=True) + np.finfo(float).eps))


def test_group_and_instance_norm():
    m = nn.GroupNorm(2, 6)
    w = set64(m)
    x = rand(3, 6, 4, 5)
    wanted = normed(x.reshape(3, 2, -1), (2,), 1e-5).reshape(x.shape)
    close(m(t64(x)), wanted * w["weight"].reshape(-1, 1, 1) + w["bias"].reshape(-1, 1, 1))
    check_gradients(m, t64(x[:1, :, :2]))
    close(nn.InstanceNorm2d(6)(t64(x)), normed(x, (2, 3), 1e-5))
    i = nn.InstanceNorm1d(6, affine=True, track_running_stats=True).double()
    line = x.reshape(3, 6, -1)
    close(i(t64(line)), normed(line, (2,), 1e-5))
    close(i.running_mean, 0.1 * line.mean((0, 2)))
    close(i.running_var, 0.9 + 0.1 * line.var(2, ddof=1).mean(0))
    with pytest.raises(ValueError, match="divisible"):
        nn.GroupNorm(4, 6)


@pytest.mark.parametrize("cls,shape", [(nn.BatchNorm1d, (8, 3)), (nn.BatchNorm1d, (4, 3, 5)), (nn.BatchNorm2d, (2, 3, 4, 5))])
def test_batch_norm(cls, shape):
    m = cls(3)
    w = set64(m)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    form = (1, 3) + (1,) * (len(shape) - 2)
    mean, var = np.zeros(3), np.ones(3)
    for _ in range(3):
        x = rand(*shape) * 2 + 1
        y = m(t64(x))
        close(y, normed(x, axes, 1e-5) * w["weight"].reshape(form) + w["bias"].reshape(form))
        mean = 0.9 * mean + 0.1 * x.mean(axes)
        var = 0.9 * var + 0.1 * x.var(axes, ddof=1)
    close(m.running_mean, mean)
    close(m.running_var, var)
    assert m.num_batches_tracked.item() == 3
    m.eval()
    wanted = (x - mean.reshape(form)) / np.sqrt(var.reshape(form) + 1e-5) * w["weight"].reshape(form) + w["bias"].reshape(form)
    close(m(t64(x)), wanted)
    assert m.num_batches_tracked.item() == 3
    plain = cls(3, momentum=None).double()
    a, b = rand(*shape), rand(*shape)
    plain(t64(a))
    plain(t64(b))
    close(plain.running_mean, (a.mean(axes) + b.mean(axes)) / 2)
    with pytest.raises(ValueError, match="expected"):
        m(t64(rand(3)))
    check_gradients(cls(3, track_running_stats=False).double(), t64(rand(*shape)))


# ---- activations and losses


ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "ReLU": (nn.ReLU(), lambda x: np.maximum(x, 0)),
    "ReLU6": (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    "SiLU": (nn.SiLU(), lambda x: x * sigmoid(x)),
    "Mish": (nn.Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "ELU": (nn.ELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "CELU": (nn.CELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x / 0.7))),
    "SELU": (nn.SELU(), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))),
    "LeakyReLU": (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "PReLU": (nn.PReLU(3).double(), lambda x: np.where(x > 0, x, 0.25 * x)),
    "Hardtanh": (nn.Hardtanh(-0.5, 0.8), lambda x: np.clip(x, -0.5, 0.8)),
    "Hardsigmoid": (nn.Hardsigmoid(), lambda x: np.clip(x + 3, 0, 6) / 6),
    "Hardswish": (nn.Hardswish(), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "GELU": (nn.GELU(), lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2)))),
    "GELU tanh": (nn.GELU("tanh"), lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "Softplus": (nn.Softplus(2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    "Softsign": (nn.Softsign(), lambda x: x / (1 + abs(x))),
    "Softshrink": (nn.Softshrink(), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
    "Hardshrink": (nn.Hardshrink(), lambda x: np.where(abs(x) > 0.5, x, 0)),
    "Sigmoid": (nn.Sigmoid(), sigmoid),
    "LogSigmoid": (nn.LogSigmoid(), lambda x: np.log(sigmoid(x))),
    "Tanh": (nn.Tanh(), np.tanh),
    "Tanhshrink": (nn.Tanhshrink(), lambda x: x - np.tanh(x)),
    "Threshold": (nn.Threshold(0.1, 20.0), lambda x: np.where(x > 0.1, x, 20.0)),
    "GLU": (nn.GLU(), lambda x: x[..., :2] * sigmoid(x[..., 2:])),
    "Softmax": (nn.Softmax(1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "Softmin": (nn.Softmin(1), lambda x: np.exp(-x) / np.exp(-x).sum(1, keepdims=True)),
    "LogSoftmax": (nn.LogSoftmax(1), lambda x: x - np.log(np.exp(x).sum(1, keepdims=True))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    module, reference = ACTIVATIONS[name]
    x = rand(2, 3, 4)
    x[np.abs(np.abs(x) - 0.5) < 0.05] = 0.3  # off the kinks
    x[np.abs(x) < 0.05] = 0.25
    x[np.abs(x - 0.8) < 0.05] = 0.9
    x[np.abs(x - 0.1) < 0.05] = 0.3
    close(module(t64(x)), reference(x), 1e-9)
    check_gradients(module, t64(x))
    assert repr(copy.deepcopy(module)) == repr(module)


def test_activations_in_place():
    x = t64(rand(3, 4))
    y = nn.ReLU(inplace=True)(x)
    assert y is x and (x.numpy() >= 0).all()


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classification_losses(reduction):
    def reduce(a, weights=None):
        if reduction == "mean":
            return a.sum() / (len(a.ravel()) if weights is None else weights.sum())
        return a.sum() if reduction == "sum" else a

    x, target, w = rand(5, 4), np.array([0, 3, 1, 1, 2]), np.array([0.5, 1.0, 2.0, 0.3])
    logs = log_softmax(x)
    picked = -logs[np.arange(5), target]
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(x), st.tensor(target)), reduce(picked))
    close(nn.NLLLoss(reduction=reduction)(t64(logs), st.tensor(target)), reduce(picked))
    weighted = nn.CrossEntropyLoss(t64(w), reduction=reduction)
    close(weighted(t64(x), st.tensor(target)), reduce(picked * w[target], w[target]))
    close(nn.NLLLoss(t64(w), reduction=reduction)(t64(logs), st.tensor(target)), reduce(picked * w[target], w[target]))
    smooth = 0.9 * picked + 0.1 * -logs.mean(1)
    close(nn.CrossEntropyLoss(label_smoothing=0.1, reduction=reduction)(t64(x), st.tensor(target)), reduce(smooth))
    soft = np.exp(rand(5, 4))
    soft /= soft.sum(1, keepdims=True)
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(x), t64(soft)), reduce(-(soft * logs).sum(1)))
    ignored = np.array([0, -100, 1, -100, 2])
    keep = ignored >= 0
    wanted = np.where(keep, -logs[np.arange(5), np.maximum(ignored, 0)], 0)
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(x), st.tensor(ignored)), reduce(wanted, keep))
    image = rand(2, 4, 3, 2)
    classes = RNG.integers(0, 4, (2, 3, 2))
    dense = -np.take_along_axis(log_softmax(image), classes[:, None], 1)[:, 0]
    close(nn.CrossEntropyLoss(reduction=reduction)(t64(image), st.tensor(classes)), reduce(dense))
    wk = w[classes]
    close(nn.CrossEntropyLoss(t64(w), reduction=reduction)(t64(image), st.tensor(classes)), reduce(dense * wk, wk))
    check_gradients(weighted, t64(x), st.tensor(target))


X, Y = rand(4, 3), rand(4, 3)
P, B = sigmoid(X), (Y > 0).astype(float)
SIGNS = np.sign(Y)
LOSSES = {
    "MSE": (nn.MSELoss, (X, Y), (X - Y) ** 2),
    "L1": (nn.L1Loss, (X, Y), abs(X - Y)),
    "SmoothL1": (lambda **k: nn.SmoothL1Loss(beta=0.5, **k), (X, Y),
                 np.where(abs(X - Y) < 0.5, (X - Y) ** 2, abs(X - Y) - 0.25)),
    "Huber": (lambda **k: nn.HuberLoss(delta=0.5, **k), (X, Y),
              np.where(abs(X - Y) <= 0.5, (X - Y) ** 2 / 2, 0.5 * (abs(X - Y) - 0.25))),
    "BCE": (nn.BCELoss, (P, B), -(B * np.log(P) + (1 - B) * np.log(1 - P))),
    "BCEWithLogits": (nn.BCEWithLogitsLoss, (X, B), -(B * np.log(P) + (1 - B) * np.log(1 - P))),
    "BCEWithLogits pos": (lambda **k: nn.BCEWithLogitsLoss(pos_weight=t64([1.0, 2.0, 3.0]), **k), (X, B),
                          -(B * np.log(P) * [1, 2, 3] + (1 - B) * np.log(1 - P))),
    "KLDiv": (nn.KLDivLoss, (np.log(P), sigmoid(Y)), sigmoid(Y) * (np.log(sigmoid(Y)) - np.log(P))),
    "PoissonNLL": (nn.PoissonNLLLoss, (X, np.exp(Y)), np.exp(X) - np.exp(Y) * X),
    "GaussianNLL": (nn.GaussianNLLLoss, (X, Y, np.exp(Y)), 0.5 * (Y + (X - Y) ** 2 / np.exp(Y))),
    "SoftMargin": (nn.SoftMarginLoss, (X, SIGNS), np.log1p(np.exp(-SIGNS * X))),
    "HingeEmbedding": (nn.HingeEmbeddingLoss, (X, SIGNS), np.where(SIGNS == 1, X, np.maximum(0, 1 - X))),
    "MarginRanking": (lambda **k: nn.MarginRankingLoss(0.1, **k), (X, Y, SIGNS), np.maximum(0, -SIGNS * (X - Y) + 0.1)),
    "CosineEmbedding": (nn.CosineEmbeddingLoss, (X, Y, SIGNS[:, 0]), np.where(
        SIGNS[:, 0] == 1, 1 - (X * Y).sum(1) / np.linalg.norm(X, axis=1) / np.linalg.norm(Y, axis=1),
        np.maximum(0, (X * Y).sum(1) / np.linalg.norm(X, axis=1) / np.linalg.norm(Y, axis=1)))),
    "TripletMargin": (nn.TripletMarginLoss, (X, Y, X + 0.3 * Y), np.maximum(
        0, np.linalg.norm(X - Y + 1e-6, axis=1) - np.linalg.norm(-0.3 * Y + 1e-6, axis=1) + 1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name):
    make, inputs, wanted = LOSSES[name]
    args = [t64(a) for a in inputs]
    close(make(reduction="none")(*args), wanted, 1e-9)
    close(make(reduction="sum")(*args), wanted.sum(), 1e-9)
    close(make()(*args), wanted.mean(), 1e-9)
    first = t64(inputs[0], grad=True)
    assert st.autograd.gradcheck(lambda x: make()(x, *args[1:]), (first,))


def test_losses_refuse_shapes_and_reductions():
    with pytest.raises(ValueError, match="same"):
        nn.BCELoss()(t64(P), t64(B[:2]))
    with pytest.raises(ValueError):
        nn.MSELoss(reduction="median")(t64(X), t64(Y))
    close(F.kl_div(t64(np.log(P)), t64(sigmoid(Y)), reduction="batchmean"), LOSSES["KLDiv"][2].sum() / 4)


# ---- dropout


def test_dropout():
    st.manual_seed(3)
    m = nn.Dropout(0.25)
    y = m(st.ones(200, 200)).numpy()
    assert set(np.unique(y)) <= {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.01
    st.manual_seed(3)
    np.testing.assert_array_equal(m(st.ones(200, 200)).numpy(), y)
    m.eval()
    x = st.ones(3)
    assert m(x) is x
    channels = nn.Dropout2d(0.5)(st.ones(8, 16, 3, 3)).numpy()
    assert (channels == channels[:, :, :1, :1]).all() and 0 < (channels == 0).mean() < 1
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


# ---- attention


def attention_reference(m, w, q, k, v, mask=None):
    e, h = m.embed_dim, m.num_heads
    parts = [w["in_proj_weight"][i * e : (i + 1) * e] for i in range(3)]
    bias = [w["in_proj_bias"][i * e : (i + 1) * e] for i in range(3)]
    q, k, v = (x @ p.T + b for x, p, b in zip((q, k, v), parts, bias))
    split = lambda x: x.reshape(x.shape[0], x.shape[1], h, e // h).transpose(0, 2, 1, 3)
    scores = split(q) @ split(k).transpose(0, 1, 3, 2) / math.sqrt(e // h)
    if mask is not None:
        scores = scores + mask
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = (p @ split(v)).transpose(0, 2, 1, 3).reshape(q.shape)
    return y @ w["out_proj.weight"].T + w["out_proj.bias"], p


@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(need_weights):
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    w = set64(m)
    q, k, v = rand(2, 3, 8), rand(2, 5, 8), rand(2, 5, 8)
    y, p = m(t64(q), t64(k), t64(v), need_weights=need_weights)
    wanted, weights = attention_reference(m, w, q, k, v)
    close(y, wanted, 1e-9)
    if need_weights:
        close(p, weights.mean(1), 1e-9)
    else:
        assert p is None
    hidden = np.zeros((2, 5), dtype=bool)
    hidden[1, 3:] = True
    added = np.where(hidden, -np.inf, 0)[:, None, None, :]
    y, _ = m(t64(q), t64(k), t64(v), key_padding_mask=st.tensor(hidden), need_weights=need_weights)
    close(y, attention_reference(m, w, q, k, v, added)[0], 1e-9)
    causal = np.triu(np.full((5, 5), -np.inf), 1)
    x = t64(k)
    for mask in (st.tensor(causal), st.tensor(causal < 0)):
        y, _ = m(x, x, x, attn_mask=mask, need_weights=need_weights)
        close(y, attention_reference(m, w, k, k, k, causal)[0], 1e-9)
    y, _ = m(x, x, x, attn_mask=st.tensor(causal), is_causal=True, need_weights=need_weights)
    close(y, attention_reference(m, w, k, k, k, causal)[0], 1e-9)


def test_multihead_attention_layouts():
    m = nn.MultiheadAttention(8, 2, kdim=6, vdim=5)
    assert {n for n, _ in m.named_parameters()} == {
        "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}
    set64(m)
    q, k, v = t64(rand(3, 2, 8)), t64(rand(4, 2, 6)), t64(rand(4, 2, 5))
    y, p = m(q, k, v)
    assert y.shape == (3, 2, 8) and p.shape == (2, 3, 4)
    single, _ = m(q[:, 0], k[:, 0], v[:, 0])
    close(single, y[:, 0].detach().numpy(), 1e-9)
    check_gradients(m, q, k, v)
    with pytest.raises(ValueError, match="divisible"):
        nn.MultiheadAttention(7, 2)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers(norm_first):
    st.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first, activation="gelu")
    w = set64(layer)
    x = rand(2, 4, 8)
    layer_norm = lambda a, n: normed(a, (-1,), 1e-5) * w[f"{n}.weight"] + w[f"{n}.bias"]
    attn = {k.removeprefix("self_attn."): v for k, v in w.items() if k.startswith("self_attn")}
    attend = lambda a: attention_reference(layer.self_attn, attn, a, a, a)[0]
    gelu = ACTIVATIONS["GELU"][1]
    feed = lambda a: gelu(a @ w["linear1.weight"].T + w["linear1.bias"]) @ w["linear2.weight"].T + w["linear2.bias"]
    if norm_first:
        wanted = x + attend(layer_norm(x, "norm1"))
        wanted = wanted + feed(layer_norm(wanted, "norm2"))
    else:
        wanted = layer_norm(x + attend(x), "norm1")
        wanted = layer_norm(wanted + feed(wanted), "norm2")
    close(layer(t64(x)), wanted, 1e-9)
    encoder = nn.TransformerEncoder(layer, 2)
    assert encoder.layers[0].linear1.weight is not encoder.layers[1].linear1.weight
    close(encoder(t64(x)), layer(layer(t64(x))).detach().numpy(), 1e-9)


def test_transformer_is_causal_and_trains():
    st.manual_seed(0)
    m = nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    src, tgt = st.randn(2, 3, 8), st.randn(2, 4, 8)
    m.eval()
    y = m(src, tgt, tgt_mask=mask, tgt_is_causal=True)
    changed = tgt.clone()
    changed[:, 2:] = 0
    z = m(src, changed, tgt_mask=mask, tgt_is_causal=True)
    close(y[:, :2], z[:, :2].detach().numpy(), 1e-5)
    assert not np.allclose(y[:, 2:].detach().numpy(), z[:, 2:].detach().numpy())
    m.train()
    m(src, tgt, tgt_mask=mask).square().sum().backward()
    assert all(p.grad is not None for p in m.parameters())


# ---- recurrent layers


def rnn_reference(kind, w, suffix, x, h, c):
    outputs = []
    for xt in x:
        gx = xt @ w["weight_ih" + suffix].T + w["bias_ih" + suffix]
        gh = h @ w["weight_hh" + suffix].T + w["bias_hh" + suffix]
        if kind == "RNN":
            h = np.tanh(gx + gh)
        elif kind == "LSTM":
            i, f, g, o = np.split(gx + gh, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (xr, xz, xn), (hr, hz, hn) = np.split(gx, 3, 1), np.split(gh, 3, 1)
            z = sigmoid(xz + hz)
            h = (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
        outputs.append(h)
    return np.stack(outputs), h, c


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent(kind):
    m = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True)
    assert [n for n, _ in m.named_parameters()][:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    w = set64(m)
    x, h0, c0 = rand(5, 2, 3), rand(4, 2, 4), rand(4, 2, 4)
    layer, last_h, last_c = x, [], []
    for l in range(2):
        f, hf, cf = rnn_reference(kind, w, f"_l{l}", layer, h0[2 * l], c0[2 * l])
        b, hb, cb = rnn_reference(kind, w, f"_l{l}_reverse", layer[::-1], h0[2 * l + 1], c0[2 * l + 1])
        layer = np.concatenate([f, b[::-1]], 2)
        last_h += [hf, hb]
        last_c += [cf, cb]
    state = (t64(h0), t64(c0)) if kind == "LSTM" else t64(h0)
    y, s = m(t64(x), state)
    close(y, layer)
    close(s[0] if kind == "LSTM" else s, np.stack(last_h))
    if kind == "LSTM":
        close(s[1], np.stack(last_c))
    batch_first = getattr(nn, kind)(3, 4, 2, bidirectional=True, batch_first=True).double()
    batch_first.load_state_dict(m.state_dict())
    close(batch_first(t64(x.transpose(1, 0, 2)))[0], m(t64(x))[0].detach().numpy().transpose(1, 0, 2))
    close(m(t64(x[:, 0]))[0], m(t64(x[:, :1]))[0].detach().numpy()[:, 0])
    small = getattr(nn, kind)(2, 2)
    set64(small)
    check_gradients(small, t64(rand(3, 2, 2)))
    cell = getattr(nn, kind + "Cell")(3, 4).double()
    one = getattr(nn, kind)(3, 4).double()
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in one.state_dict().items()})
    got = cell(t64(x[0]))
    close(got[0] if kind == "LSTM" else got, one(t64(x[:1]))[0].detach().numpy()[0])
    with pytest.raises(ValueError, match="input_size"):
        m(t64(rand(5, 2, 4)))
    assert repr(m) == f"{kind}(3, 4, num_layers=2, bidirectional=True)"


# ---- initial values


def test_init():
    st.manual_seed(11)
    w = st.empty(200, 300)
    nn.init.uniform_(w, -1, 3)
    assert -1 <= w.min().item() and w.max().item() < 3 and abs(w.mean().item() - 1) < 0.02
    nn.init.normal_(w, 2, 0.5)
    assert abs(w.mean().item() - 2) < 0.01 and abs(w.std().item() - 0.5) < 0.01
    nn.init.trunc_normal_(w, 0, 1, -0.5, 0.5)
    assert abs(w.numpy()).max() <= 0.5
    bounds = {
        nn.init.xavier_uniform_: math.sqrt(6 / 500), nn.init.kaiming_uniform_: math.sqrt(6 / 300),
    }
    for fn, bound in bounds.items():
        fn(w)
        assert 0.99 * bound < abs(w.numpy()).max() <= bound
    for fn, std in {nn.init.xavier_normal_: math.sqrt(2 / 500), nn.init.kaiming_normal_: math.sqrt(2 / 300)}.items():
        fn(w)
        assert abs(w.std().item() / std - 1) < 0.02
    nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu")
    assert abs(w.std().item() / math.sqrt(2 / 200) - 1) < 0.02
    q = nn.init.orthogonal_(st.empty(5, 8, dtype=st.float64))
    close(q @ q.T, np.eye(5))
    close(nn.init.eye_(st.empty(2, 3)), np.eye(2, 3))
    kernel = nn.init.dirac_(st.empty(3, 3, 3, dtype=st.float64))
    x = rand(1, 3, 6)
    close(F.conv1d(t64(x), kernel, padding=1), x)
    with pytest.raises(ValueError):
        nn.init.xavier_normal_(st.empty(3))


def test_clip_and_vectors():
    m = nn.Linear(3, 2).double()
    for p in m.parameters():
        p.grad = t64(rand(*p.shape) * 10)
    g = np.concatenate([p.grad.numpy().ravel() for p in m.parameters()])
    norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    assert norm.item() == pytest.approx(np.linalg.norm(g), rel=1e-5)
    after = np.concatenate([p.grad.numpy().ravel() for p in m.parameters()])
    np.testing.assert_allclose(after, g / np.linalg.norm(g), rtol=1e-5)
    nn.utils.clip_grad_norm_(m.parameters(), 0.1, norm_type=float("inf"))
    assert max(abs(p.grad.numpy()).max() for p in m.parameters()) <= 0.1
    nn.utils.clip_grad_value_(m.parameters(), 0.01)
    assert max(abs(p.grad.numpy()).max() for p in m.parameters()) <= 0.01
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v.detach() * 2, m.parameters())
    close(nn.utils.parameters_to_vector(m.parameters()), 2 * v.detach().numpy())


def test_modules_pickle_and_copy():
    m = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    x = st.randn(2, 1, 4, 4)
    m(x)
    m.eval()
    for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m)):
        assert repr(other) == repr(m) and not other.training
        np.testing.assert_array_equal(other(x).detach().numpy(), m(x).detach().numpy())
        with st.no_grad():
            other[4].weight.fill_(0)
        assert abs(m[4].weight.detach().numpy()).max() > 0
        assert isinstance(other[4].weight, nn.Parameter) and other[4].weight.requires_grad
