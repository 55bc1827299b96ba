# Layers beside the common ones: fractional pooling, adaptive softmax, bicubic sampling, recurrent layers with projections.
import strata as st
import strata.nn as nn
import strata.nn.functional as F

T = lambda *s: st.from_numpy(F32(*s))


def gradients(key, loss, *inputs):
    loss.backward()
    for i, x in enumerate(inputs):
        out(f"{key} grad {i}", x.grad)


# ---- fractional pooling: the places are given, so that both libraries draw the same
samples = st.tensor([[[0.1, 0.7], [0.45, 0.2], [0.9, 0.999]], [[0.3, 0.6], [0.05, 0.8], [0.5, 0.5]]])
x = T(2, 3, 9, 11).requires_grad_()
y, at = F.fractional_max_pool2d(x, (2, 3), output_size=(5, 4), return_indices=True, _random_samples=samples)
out("frac2 y", y)
out("frac2 at", at)
gradients("frac2", (y * T(2, 3, 5, 4)).sum(), x)
m = nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.6), _random_samples=samples[:1])
out("frac2 module", m(T(1, 3, 10, 12)))
out("frac2 unbatched", nn.FractionalMaxPool2d(2, output_size=1, _random_samples=samples[:1])(T(3, 8, 8)))
volume = T(2, 2, 7, 8, 9).requires_grad_()
places = st.tensor([[[0.1, 0.7, 0.4], [0.45, 0.2, 0.6]], [[0.3, 0.6, 0.2], [0.05, 0.8, 0.9]]])
y, at = F.fractional_max_pool3d(volume, 2, output_size=(3, 4, 5), return_indices=True, _random_samples=places)
out("frac3 y", y)
out("frac3 at", at)
gradients("frac3", (y * T(2, 2, 3, 4, 5)).sum(), volume)
assert F.fractional_max_pool2d(T(1, 2, 8, 8), 2, output_ratio=(0.5, 0.5)).shape == (1, 2, 4, 4)
y, at = F.max_pool2d_with_indices(T(1, 2, 6, 6), 2)
out("pool at", at)
y, at = F.adaptive_max_pool2d_with_indices(T(1, 2, 6, 6), 4)
out("adaptive at", at)

# ---- adaptive softmax
for bias in (False, True):
    asm = fill(nn.AdaptiveLogSoftmaxWithLoss(16, 40, [6, 15, 30], div_value=2.0, head_bias=bias), 3, 0.5)
    h = T(12, 16).requires_grad_()
    t = st.tensor([0, 5, 6, 14, 15, 29, 30, 39, 3, 7, 20, 35])
    o, loss = asm(h, t)
    out(f"asm{bias} o", o)
    out(f"asm{bias} loss", loss)
    out(f"asm{bias} all", asm.log_prob(h))
    out(f"asm{bias} best", asm.predict(h * 5))
    gradients(f"asm{bias}", loss, h, asm.head.weight, asm.tail[0][0].weight, asm.tail[2][1].weight)
result = asm(h[0], t[0])
out("asm one", result.output)
out("asm one loss", result.loss)
assert [n for n, _ in asm.named_parameters()][:3] == ["head.weight", "head.bias", "tail.0.0.weight"]

# ---- bicubic sampling
image = T(2, 3, 6, 7).requires_grad_()
grid = (T(2, 5, 4, 2) * 0.9).requires_grad_()
for padding in ("zeros", "border", "reflection"):
    for align in (False, True):
        y = F.grid_sample(image, grid, mode="bicubic", padding_mode=padding, align_corners=align)
        out(f"grid {padding} {align}", y)
        image.grad = grid.grad = None
        gradients(f"grid {padding} {align}", (y * T(2, 3, 5, 4)).sum(), image, grid)

# ---- LSTM with a projection
for options in ({}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "batch_first": True}):
    lstm = fill(nn.LSTM(5, 8, proj_size=3, **options), 7, 0.4)
    s = T(4, 6, 5).requires_grad_()
    y, (h, c) = lstm(s)
    key = f"lstm {sorted(options)}"
    out(key, y)
    out(key + " h", h)
    out(key + " c", c)
    gradients(key, (y * y).sum() + h.sum() + (c * c).sum(), s, lstm.weight_hr_l0, lstm.weight_hh_l0)
    assert [n for n, _ in lstm.named_parameters()][4 if options.get("bias", True) else 2] == "weight_hr_l0"
lstm = fill(nn.LSTM(5, 8, 2, proj_size=3, bidirectional=True), 9, 0.4)
packed = nn.utils.rnn.pack_padded_sequence(T(6, 3, 5), st.tensor([4, 6, 2]), enforce_sorted=False)
y, (h, c) = lstm(packed, (T(4, 3, 3), T(4, 3, 8)))
out("lstm packed", y.data)
out("lstm packed h", h)
out("lstm packed c", c)
assert "proj_size=3" in repr(lstm)
for bad in (lambda: nn.GRU(3, 4, proj_size=2), lambda: nn.LSTM(3, 4, proj_size=4), lambda: nn.LSTM(3, 4, proj_size=-1)):
    try:
        bad()
        raise AssertionError("accepted")
    except ValueError:
        pass
