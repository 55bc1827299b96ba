"""Recurrent layers over packed sequences of many steps, with projections and parametrised weights; attention's record."""

import numpy as np
import pytest

import strata as st
from strata import nn
from strata.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence


def values(x):
    return x.detach().numpy()


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}, {"num_layers": 2, "bidirectional": True}])
def test_packed_sequences_of_many_steps(options):
    st.manual_seed(1)
    m = nn.LSTM(3, 4, **options)
    lengths = [2, 13, 9, 9]
    sequences = [st.randn(n, 3, requires_grad=True) for n in lengths]
    y, (h, c) = m(pack_sequence(sequences, enforce_sorted=False))
    padded, found = pad_packed_sequence(y, batch_first=True)
    assert found.tolist() == lengths
    padded.sum().backward()
    for i, s in enumerate(sequences):
        alone = s.detach().clone().requires_grad_()
        out, (ha, ca) = m(alone)
        out.sum().backward()
        np.testing.assert_allclose(values(padded[i, : lengths[i]]), values(out), atol=1e-6)
        np.testing.assert_allclose(values(h[:, i]), values(ha), atol=1e-6)
        np.testing.assert_allclose(values(c[:, i]), values(ca), atol=1e-6)
        np.testing.assert_allclose(s.grad.numpy(), alone.grad.numpy(), atol=1e-5)


def test_states_of_packed_sequences_are_in_the_callers_order():
    st.manual_seed(2)
    m = nn.GRU(3, 4)
    sequences, h0 = [st.randn(2, 3), st.randn(5, 3)], st.randn(1, 2, 4)
    _, h = m(pack_sequence(sequences, enforce_sorted=False), h0)
    for i, s in enumerate(sequences):
        np.testing.assert_allclose(values(h[:, i]), values(m(s, h0[:, i])[1]), atol=1e-6)


def test_wrong_lengths_are_refused():
    x = st.randn(4, 2, 3)
    with pytest.raises(ValueError, match="from 1 to 4"):
        pack_padded_sequence(x, [5, 1])
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        pack_padded_sequence(x, [1, 4])
    with pytest.raises(ValueError, match="1 lengths for a batch of 2"):
        pack_padded_sequence(x, [4])
    with pytest.raises(ValueError, match="add up"):
        nn.LSTM(3, 4)(PackedSequence(st.randn(5, 3), st.tensor([2, 2])))
    with pytest.raises(ValueError, match="padding_side"):
        pad_sequence([x], padding_side="middle")


def slstm_in_numpy(m, x):
    """c and n as they stand in the paper, in f64, over [T, B, in]; the input gate's exponential is small enough here."""
    w = {name: values(p).astype(np.float64) for name, p in m.named_parameters()}
    y, last = x.astype(np.float64), []
    for layer in range(m.num_layers):
        h, c, n = (np.zeros((x.shape[1], m.hidden_size)) for _ in range(3))
        out = []
        for t in range(len(y)):
            sums = y[t] @ w[f"weight_ih_l{layer}"].T + h @ w[f"weight_hh_l{layer}"].T
            if m.bias:
                sums += w[f"bias_ih_l{layer}"] + w[f"bias_hh_l{layer}"]
            i, f, z, o = np.split(sums, 4, axis=1)
            i, f, o = np.exp(i), 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-o))
            c, n = f * c + i * np.tanh(z), f * n + i
            h = o * c / n
            out.append(h)
        y = np.stack(out)
        last.append((h, c / n, np.log(n)))
    return y, [np.stack(s) for s in zip(*last)]


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bias": False}, {"num_layers": 2, "batch_first": True}])
def test_slstm_is_the_papers(options):
    st.manual_seed(4)
    m = nn.SLSTM(3, 5, **options)
    assert repr(m).startswith("SLSTM(3, 5") and sum(1 for _ in m.parameters()) == (4 if m.bias else 2) * m.num_layers
    x = st.randn(7, 2, 3, requires_grad=True)
    turned = (lambda t: t.transpose(0, 1)) if m.batch_first else (lambda t: t)
    y, states = m(turned(x))
    want, last = slstm_in_numpy(m, values(x))
    np.testing.assert_allclose(values(turned(y)), want, atol=1e-5)
    for got, wanted in zip(states, last):
        np.testing.assert_allclose(values(got), wanted, atol=1e-5)
    # In two pieces: the states go on where the first stopped.
    first, between = m(turned(x[:3]))
    second, _ = m(turned(x[3:]), between)
    np.testing.assert_allclose(values(turned(second)), want[3:], atol=1e-5)
    y.sum().backward()
    assert x.grad.abs().min().item() > 0 and all(p.grad is not None for p in m.parameters())
    with pytest.raises(ValueError, match="slstm"):
        m(st.randn(7, 2, 4))


def test_parametrised_weights_are_used():
    m = nn.LSTM(3, 4)
    assert [len(w) for w in m.all_weights] == [4]
    nn.utils.parametrizations.weight_norm(m, "weight_hh_l0")
    x = st.randn(5, 2, 3)
    m(x)[0].square().sum().backward()
    grads = {name: p.grad for name, p in m.named_parameters()}
    assert any("original" in name and g is not None for name, g in grads.items())


def test_attention_weights_are_none_unless_asked_for():
    st.manual_seed(3)
    m = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, memory = st.randn(2, 3, 8), st.randn(2, 5, 8)
    y, weights = m(x, memory, memory)
    assert list(weights.shape) == [2, 3, 5]
    plain, none = m(x, memory, memory, need_weights=False)
    assert none is None
    np.testing.assert_allclose(values(plain), values(y), atol=1e-5)
    hidden = st.ones(3, 5, dtype=st.bool).triu(1)
    a = m(x, memory, memory, attn_mask=hidden, is_causal=True, need_weights=False)[0]
    b = m(x, memory, memory, attn_mask=hidden, need_weights=True)[0]
    np.testing.assert_allclose(values(a), values(b), atol=1e-5)
