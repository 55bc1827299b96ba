"""Attention."""

from __future__ import annotations

from typing import Optional, Tuple

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor

__all__ = [
    "multi_head_attention", "multi_head_attention_forward", "scaled_dot_product_attention",
]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False, *, window: int = 0, query_offset: int = 0,
                                 alibi_slopes: Optional[Tensor] = None, logit_soft_cap: float = 0.0,
                                 sinks: Optional[Tensor] = None, key_lengths: Optional[Tensor] = None) -> Tensor:
    """softmax(q k^T scale + mask) v, without the [Tq, Tk] matrix in memory. Heads are grouped where they divide.

    PyTorch lacks what follows enable_gqa: ``window`` (how far a query sees), ``query_offset`` (its first one's
    position among the keys), ``alibi_slopes`` [H] or [B, H] (a score falls by slope times distance),
    ``logit_soft_cap`` (scaled scores become cap * tanh(score / cap)), ``sinks`` [H] (a score without a value) and
    ``key_lengths`` [B] (keys behind them are not seen, and not computed)."""
    if query.dim() == 3:
        return scaled_dot_product_attention(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), attn_mask,
                                            dropout_p, is_causal, scale, enable_gqa, window=window,
                                            query_offset=query_offset, alibi_slopes=alibi_slopes,
                                            logit_soft_cap=logit_soft_cap, sinks=sinks,
                                            key_lengths=key_lengths).squeeze(0)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}: enable_gqa=True groups them")
    return C.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, window,
                                          query_offset, alibi_slopes, logit_soft_cap, sinks, key_lengths)


def multi_head_attention(query: Tensor, key: Tensor, value: Tensor, num_heads: int,
                         attn_mask: Optional[Tensor] = None, is_causal: bool = False,
                         dropout_p: float = 0.0) -> Tensor:
    """Attention of projected [B, T, E] with ``num_heads`` heads of size E / num_heads: [B, Tq, E]."""

    def heads(x: Tensor) -> Tensor:
        return x.reshape([x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads]).transpose(1, 2)

    y = scaled_dot_product_attention(heads(query), heads(key), heads(value), attn_mask, dropout_p, is_causal)
    return y.transpose(1, 2).reshape([query.shape[0], query.shape[1], value.shape[2]])


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Optional[Tensor],
    in_proj_bias: Optional[Tensor], bias_k: Optional[Tensor], bias_v: Optional[Tensor], add_zero_attn: bool,
    dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Optional[Tensor], training: bool = True,
    key_padding_mask: Optional[Tensor] = None, need_weights: bool = True, attn_mask: Optional[Tensor] = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Optional[Tensor] = None, k_proj_weight: Optional[Tensor] = None,
    v_proj_weight: Optional[Tensor] = None, static_k: Optional[Tensor] = None, static_v: Optional[Tensor] = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """nn.MultiheadAttention with its parameters as arguments, for [T, B, E] (or [T, E])."""
    if is_causal and attn_mask is None:
        raise ValueError("Need attn_mask if specifying the is_causal hint.")
    # PyTorch's is_causal is a hint of what attn_mask is; the record's hides by itself, and needs no mask.
    is_causal = is_causal and key_padding_mask is None and not need_weights and bias_k is None and not add_zero_attn
    output, weights = ops.multi_head_attention_forward(
        query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
        dropout_p, out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, None if is_causal else attn_mask,
        use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v, average_attn_weights,
        is_causal)
    return output, weights if need_weights else None
