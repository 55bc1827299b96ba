"""Linear layers, convolutions, pooling, norms and dropout against NumPy in double precision."""

import numpy as np
import pytest

import strata as st
from nn_checks import check_gradients, close, normed, rand, set64, t64
from strata import nn
from strata.nn import functional as F


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
