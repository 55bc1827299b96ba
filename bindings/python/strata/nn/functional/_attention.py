"""Attention."""

from __future__ import annotations

from typing import Optional

from ... import _core as C
from ..._core import Tensor

__all__ = [
    "multi_head_attention", "scaled_dot_product_attention",
]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(q k^T scale + mask) v, without the [Tq, Tk] matrix in memory. Heads are grouped where they divide."""
    if query.dim() == 3:
        return scaled_dot_product_attention(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), attn_mask,
                                            dropout_p, is_causal, scale).squeeze(0)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}: enable_gqa=True groups them")
    return C.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)


def multi_head_attention(query: Tensor, key: Tensor, value: Tensor, num_heads: int,
                         attn_mask: Optional[Tensor] = None, is_causal: bool = False,
                         dropout_p: float = 0.0) -> Tensor:
    """Attention of projected [B, T, E] with ``num_heads`` heads of size E / num_heads: [B, Tq, E]."""

    def heads(x: Tensor) -> Tensor:
        return x.reshape([x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads]).transpose(1, 2)

    y = scaled_dot_product_attention(heads(query), heads(key), heads(value), attn_mask, dropout_p, is_causal)
    return y.transpose(1, 2).reshape([query.shape[0], query.shape[1], value.shape[2]])
