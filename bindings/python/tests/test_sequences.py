"""Attention, the Transformer and recurrent layers against NumPy in double precision."""

import math

import numpy as np
import pytest

import strata as st
from nn_checks import check_gradients, close, normed, rand, set64, sigmoid, t64
from strata import nn


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
    gelu = lambda a: a * 0.5 * (1 + np.vectorize(math.erf)(a / math.sqrt(2)))
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
