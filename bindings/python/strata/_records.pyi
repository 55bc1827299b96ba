"""Written by bindings/python/stubs.py from the op records; do not edit."""

from typing import Any, Optional, Sequence, Tuple, Union

from . import _ops
from ._core import DeviceLike, DTypeLike, Ints, Number, Tensor, TensorLike, _bool, _float, _int

absolute = _ops.abs

absolute_ = _ops.abs_

arccos = _ops.acos

arccos_ = _ops.acos_

arccosh = _ops.acosh

arccosh_ = _ops.acosh_

def add_layer_norm(input: Tensor, residual: TensorLike, weight: TensorLike, bias: TensorLike, eps: _float = ...) -> Tuple[Tensor, Tensor]:
    """sum = x + residual and y = layer_norm(sum) over the last dimension, in one pass over memory: a transformer
    block's residual connection and the norm behind it. What is normalised is the sum before it is rounded.
    ShapeError unless x and residual have one shape and weight and bias fit its last dimension."""
    ...

def add_rms_norm(input: Tensor, residual: TensorLike, weight: TensorLike, eps: _float = ...) -> Tuple[Tensor, Tensor]:
    """sum = x + residual and y = rms_norm(sum) over the last dimension, in one pass over memory: a transformer block's
    residual connection and the norm behind it. What is normalised is the sum before it is rounded. ShapeError
    unless x and residual have one shape and weight fits its last dimension."""
    ...

arcsin = _ops.asin

arcsin_ = _ops.asin_

arcsinh = _ops.asinh

arcsinh_ = _ops.asinh_

arctan = _ops.atan

arctan_ = _ops.atan_

arctan2 = _ops.atan2

arctan2_ = _ops.atan2_

arctanh = _ops.atanh

arctanh_ = _ops.atanh_

bitwise_invert = _ops.bitwise_not

bitwise_invert_ = _ops.bitwise_not_

greater_equal = _ops.ge

greater_equal_ = _ops.ge_

def gelu_mlp(input: Tensor, up_weight: TensorLike, up_bias: Optional[Tensor], down_weight: TensorLike, down_bias: Optional[Tensor] = ...) -> Tensor:
    """GPT's feed-forward layer: hidden = gelu(pre, "tanh") of pre = linear(x, up_weight, up_bias), y = linear(hidden,
    down_weight, down_bias). GELU and its derivative happen inside the products. pre and hidden are what the
    gradient needs."""
    ...

def group_norm(input: Tensor, num_groups: _int, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tensor:
    """Each of num_groups groups of neighbouring channels of each item of x [N, C, ...] minus its mean, over its
    standard deviation (divisor n, eps added to the variance), times weight [C] plus bias [C] (Wu and He,
    arXiv:1803.08494). mean and rstd are [N, num_groups], f32 (f64 for f64). ShapeError when the channels do not
    make groups. The function group_norm returns y alone."""
    ...

greater = _ops.gt

greater_ = _ops.gt_

def layer_norm(input: Tensor, normalized_shape: Ints, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which must be normalized_shape; the
    variance has divisor n (Ba et al., arXiv:1607.06450). mean and rstd = 1 / sqrt(var + eps) are kept for the
    gradient, in f32 (f64 for f64), with ones in place of the normalised dimensions. weight and bias may be f32
    where x is bf16 or f16. ShapeError when the shapes do not fit. The function layer_norm returns y alone."""
    ...

less_equal = _ops.le

less_equal_ = _ops.le_

def linear_cross_entropy(input: Tensor, weight: TensorLike, target: TensorLike, ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ...) -> Tensor:
    """cross_entropy(linear(x, weight), target) for x [N, D], weight [C, D] and i64 targets [N], with the logits of
    some rows at a time in memory, never of all. lse [N] is log(sum(exp)) of each row's logits. weight has x's
    dtype, or f32 where x is bf16 or f16. The gradient computes the logits again. ShapeError, DTypeError, and
    IndexError for a target that is no class."""
    ...

def linear_gelu(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ...) -> Tensor:
    """pre = linear(x, weight, bias) and y = gelu(pre, "tanh"), computed together: the activation happens while the
    product's results are at hand."""
    ...

less = _ops.lt

less_ = _ops.lt_

moveaxis = _ops.movedim

multiply = _ops.mul

multiply_ = _ops.mul_

not_equal = _ops.ne

not_equal_ = _ops.ne_

negative = _ops.neg

negative_ = _ops.neg_

def packed_attention(qkv: Tensor, heads: _int, kv_heads: _int, is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ...) -> Tensor:
    """Self-attention of heads that lie packed in one tensor: qkv is [B, T, (heads + 2 * kv_heads) * D], the queries of
    all heads first, then the keys, then the values; out is [B, T, heads * D]. Otherwise as
    scaled_dot_product_attention. Neither direction copies the parts out: the gradient is written straight into one
    tensor of qkv's shape. ShapeError, DTypeError, ValueError when the sizes do not fit."""
    ...

def rms_norm(input: Tensor, normalized_shape: Ints, weight: Optional[Tensor] = ..., eps: _float = ...) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions, which must be normalized_shape (Zhang and Sennrich,
    arXiv:1910.07467). rstd = 1 / sqrt(mean(x^2) + eps) is kept for the gradient, in f32 (f64 for f64). weight may
    be f32 where x is bf16 or f16. ShapeError when the shapes do not fit. The function rms_norm returns y alone."""
    ...

def scaled_dot_product_attention(query: Tensor, k: TensorLike, value: TensorLike, attn_mask: Optional[Tensor] = ..., is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ..., query_offset: _int = ..., dropout_p: _float = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [B, H, Tq, D], k [B, Hkv, Tk, D] and v [B, Hkv, Tk, Dv]; Hkv divides H,
    and query head h reads key head h / (H / Hkv). scale is 1 / sqrt(D) where not given. attn_mask broadcasts to [B,
    H, Tq, Tk]: boolean (true: seen) or floating (added). is_causal: query i sees key j only where j <= i +
    query_offset; window > 0: only where |i + query_offset - j| < window. A query that sees nothing gives zeros. out
    [B, H, Tq, Dv] is laid out so that transpose(1, 2) of it is contiguous; lse [B, H, Tq] is the logarithm of the
    sum of exponentials of the scores, in f32 (f64 for f64). Computed in tiles with an online softmax: no [Tq, Tk]
    matrix is stored (Dao, arXiv:2307.08691), unless a floating mask or a gradient of the gradient is
    differentiated. Weight (b, h, i, j) is dropped by number ((b H + h) Tq + i) Tk + j of the key's stream.
    ShapeError, DTypeError when q, k, v and the mask do not fit."""
    ...

subtract = _ops.sub

subtract_ = _ops.sub_

swapaxes = _ops.transpose

swapdims = _ops.transpose

fix = _ops.trunc

fix_ = _ops.trunc_

def varlen_attention(query: Tensor, key: TensorLike, value: TensorLike, cu_seqlens_q: TensorLike, cu_seqlens_k: TensorLike, is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ..., query_offset: _int = ...) -> Tensor:
    """Attention over sequences of different lengths that lie one after another: q [total of queries, H, D], k [total
    of keys, Hkv, D], v [total of keys, Hkv, Dv]; sequence i has the rows from cu_seqlens[i] up to cu_seqlens[i +
    1], and its queries see its keys alone. cu_seqlens are i64 [sequences + 1], from 0 on, never falling; behind the
    last, queries see nothing and keys are not seen. is_causal, scale, window and query_offset are those of
    scaled_dot_product_attention, within each sequence. out [total of queries, H, Dv]; lse [H, total of queries] is
    the logarithm of the sum of exponentials of the scores, in f32 (f64 for f64). One launch on a CUDA device, for
    which the host does not read the lengths: wrong ones give wrong results there, a ShapeError on the CPU."""
    ...
