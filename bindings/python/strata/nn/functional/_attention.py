"""Attention."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor

__all__ = [
    "multi_head_attention", "multi_head_attention_forward", "scaled_dot_product_attention",
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


def _as_bias(mask: Tensor, like: Tensor) -> Tensor:
    """PyTorch's layer mask (true: hidden) as numbers that are added to the scores."""
    if mask.dtype != C.bool:
        return mask.to(like.dtype)
    return ops.masked_fill(C.full(list(mask.shape), 0.0, dtype=like.dtype, device=like.device), mask, float("-inf"))


def _projected(inputs: Sequence[Tensor], together: Optional[Tensor], apart: Sequence[Optional[Tensor]],
               bias: Optional[Tensor]) -> Sequence[Tensor]:
    """Query, key and value by one weight [3 E, E], or by a weight for each."""
    q, k, v = inputs
    weights: List[Optional[Tensor]] = list(apart)
    if together is not None:
        e = together.shape[0] // 3
        if q is k and k is v:
            y = ops.linear(q, together, bias)
            return [y.narrow(-1, i * e, e) for i in range(3)]
        weights = [together.narrow(0, i * e, e) for i in range(3)]
    found = []
    for i, (x, w) in enumerate(zip(inputs, weights)):
        assert w is not None
        e = w.shape[0]
        found.append(ops.linear(x, w, None if bias is None else bias.narrow(0, i * e, e)))
    return found


def _wider(mask: Optional[Tensor]) -> Optional[Tensor]:
    """A mask with one more key, which it does not hide."""
    return None if mask is None else ops.pad(mask, [0, 1], "constant", 0)


def attend(query: Tensor, key: Tensor, value: Tensor, num_heads: int, in_proj_weight: Optional[Tensor],
           apart: Sequence[Optional[Tensor]], in_proj_bias: Optional[Tensor], bias_k: Optional[Tensor],
           bias_v: Optional[Tensor], add_zero_attn: bool, p: float, key_padding_mask: Optional[Tensor], need_weights: bool,
           attn_mask: Optional[Tensor], is_causal: bool, static_k: Optional[Tensor] = None,
           static_v: Optional[Tensor] = None) -> Tuple[Tensor, Optional[Tensor]]:
    """What MultiheadAttention does before its last projection, for [B, T, E]; the weights are [B, heads, Tq, Tk]."""
    if is_causal and attn_mask is None:
        raise ValueError("Need attn_mask if specifying the is_causal hint.")
    q, k, v = _projected((query, key, value), in_proj_weight, apart, in_proj_bias)
    batch, tq, heads = q.shape[0], q.shape[1], num_heads
    head_dim = q.shape[2] // heads
    if bias_k is not None and bias_v is not None:
        k = ops.cat([k, bias_k.to(k.dtype).expand(batch, 1, k.shape[2])], 1)
        v = ops.cat([v, bias_v.to(v.dtype).expand(batch, 1, v.shape[2])], 1)
        attn_mask, key_padding_mask = _wider(attn_mask), _wider(key_padding_mask)

    def split(x: Tensor) -> Tensor:
        return x.reshape([batch, x.shape[1], heads, -1]).transpose(1, 2)

    q, k, v = split(q), split(k), split(v)
    if static_k is not None:
        k = static_k.reshape([batch, heads, -1, head_dim])
    if static_v is not None:
        v = static_v.reshape([batch, heads, -1, head_dim])
    if add_zero_attn:
        k, v = ops.pad(k, [0, 0, 0, 1], "constant", 0), ops.pad(v, [0, 0, 0, 1], "constant", 0)
        attn_mask, key_padding_mask = _wider(attn_mask), _wider(key_padding_mask)
    tk = k.shape[2]

    mask: Optional[Tensor] = None
    plain_causal = is_causal and key_padding_mask is None and not need_weights and bias_k is None and not add_zero_attn
    if attn_mask is not None and not plain_causal:
        mask = _as_bias(attn_mask, q)
        if mask.dim() == 3:
            mask = mask.reshape([-1, heads, tq, tk])
    if key_padding_mask is not None:
        padding = _as_bias(key_padding_mask, q).reshape([-1, 1, 1, tk])
        mask = padding if mask is None else mask + padding

    weights: Optional[Tensor] = None
    if need_weights:
        scores = ops.matmul(q * head_dim**-0.5, k.transpose(-2, -1))
        weights = ops.softmax(scores if mask is None else scores + mask, -1)
        y = ops.matmul(C.dropout(weights, p) if p else weights, v)
    else:
        y = scaled_dot_product_attention(q, k, v, mask, p, plain_causal)
    return y.transpose(1, 2).reshape([batch, tq, -1]), weights


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
    if query.shape[-1] != embed_dim_to_check:
        raise ValueError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {query.shape[-1]}")
    if embed_dim_to_check % num_heads:
        raise ValueError(f"embed_dim {embed_dim_to_check} not divisible by num_heads {num_heads}")
    unbatched = query.dim() == 2
    same = query is key and key is value
    query, key, value = (x.unsqueeze(0) if unbatched else x.transpose(0, 1) for x in (query, key, value))
    if same:
        key = value = query
    y, weights = attend(
        query, key, value, num_heads, None if use_separate_proj_weight else in_proj_weight,
        (q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias, bias_k, bias_v, add_zero_attn,
        dropout_p if training else 0.0, key_padding_mask, need_weights, attn_mask, is_causal, static_k, static_v)
    y = ops.linear(y, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean([1])
    if unbatched:
        return y.squeeze(0), None if weights is None else weights.squeeze(0)
    return y.transpose(0, 1), weights
