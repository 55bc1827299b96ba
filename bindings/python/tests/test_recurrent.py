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
