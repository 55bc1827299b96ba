"""Written by bindings/python/stubs.py from the op records; do not edit."""

from typing import Any, Optional, Sequence, Tuple, Union

from ._core import DeviceLike, DTypeLike, Ints, Number, Tensor, TensorLike, _bool, _float, _int

def abs(input: Tensor) -> Tensor:
    """The absolute value of x. The gradient at 0 is 0. DTypeError for bool."""
    ...

def abs_(input: Tensor) -> Tensor:
    """abs(), written over the first argument."""
    ...

def acos(input: Tensor) -> Tensor:
    """The inverse cosine, in [0, pi]; NaN outside [-1, 1]."""
    ...

def acos_(input: Tensor) -> Tensor:
    """acos(), written over the first argument."""
    ...

def acosh(input: Tensor) -> Tensor:
    """The inverse hyperbolic cosine; NaN below 1."""
    ...

def acosh_(input: Tensor) -> Tensor:
    """acosh(), written over the first argument."""
    ...

def adaptive_avg_pool(input: Tensor, output_size: Ints) -> Tensor:
    """Means of windows that cover the last one to three dimensions so that the result has output_size; output i covers
    inputs floor(i in / out) to ceil((i + 1) in / out) - 1."""
    ...

def adaptive_avg_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """Means along the last dimension of [n, c, length] or [c, length], of windows such that the result has
    output_size."""
    ...

def adaptive_avg_pool2d(input: Tensor, output_size: Ints) -> Tensor:
    """Means over the last two dimensions of [n, c, h, w] or [c, h, w], of windows such that the result has
    output_size."""
    ...

def adaptive_avg_pool3d(input: Tensor, output_size: Ints) -> Tensor:
    """Means over the last three dimensions of [n, c, d, h, w] or [c, d, h, w], of windows such that the result has
    output_size."""
    ...

def adaptive_avg_pool_backward(g: Tensor, size: Ints) -> Tensor:
    """Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of
    adaptive_avg_pool."""
    ...

def adaptive_max_pool(input: Tensor, output_size: Ints) -> Tuple[Tensor, Tensor]:
    """The largest elements of windows that cover the last one to three dimensions so that the result has output_size,
    and their positions in the plane. Output i covers inputs floor(i in / out) to ceil((i + 1) in / out) - 1."""
    ...

def adaptive_max_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """Largest elements along the last dimension of [n, c, length] or [c, length], of windows such that the result has
    output_size."""
    ...

def adaptive_max_pool2d(input: Tensor, output_size: Ints) -> Tensor:
    """Largest elements over the last two dimensions of [n, c, h, w] or [c, h, w], of windows such that the result has
    output_size."""
    ...

def adaptive_max_pool3d(input: Tensor, output_size: Ints) -> Tensor:
    """Largest elements over the last three dimensions of [n, c, d, h, w] or [c, d, h, w], of windows such that the
    result has output_size."""
    ...

def add(input: Tensor, other: TensorLike, alpha: Number = ...) -> Tensor:
    """a + alpha * b. Integers wrap around; bool adds as "or"."""
    ...

def add_(input: Tensor, other: TensorLike, alpha: Number = ...) -> Tensor:
    """add(), written over the first argument."""
    ...

def add_layer_norm(input: Tensor, residual: TensorLike, weight: TensorLike, bias: TensorLike, eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """sum = x + residual and y = layer_norm(sum) over the last dimension, in one pass over memory: a transformer
    block's residual connection and the norm behind it. What is normalised is the sum before it is rounded.
    ShapeError unless x and residual have one shape and weight and bias fit its last dimension."""
    ...

def add_rms_norm(input: Tensor, residual: TensorLike, weight: TensorLike, eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """sum = x + residual and y = rms_norm(sum) over the last dimension, in one pass over memory: a transformer block's
    residual connection and the norm behind it. What is normalised is the sum before it is rounded. ShapeError
    unless x and residual have one shape and weight fits its last dimension."""
    ...

def add_scalar(input: Tensor, value: Number) -> Tensor:
    """x + value for a floating tensor; add(x, value)."""
    ...

def add_scalar_(input: Tensor, value: Number) -> Tensor:
    """add_scalar(), written over the first argument."""
    ...

def addcdiv(input: Tensor, a: TensorLike, b: TensorLike, value: Number = ...) -> Tensor:
    """x + value * a / b. DTypeError for integers."""
    ...

def addcdiv_(input: Tensor, a: TensorLike, b: TensorLike, value: Number = ...) -> Tensor:
    """addcdiv(), written over the first argument."""
    ...

def addcmul(input: Tensor, a: TensorLike, b: TensorLike, value: Number = ...) -> Tensor:
    """x + value * a * b."""
    ...

def addcmul_(input: Tensor, a: TensorLike, b: TensorLike, value: Number = ...) -> Tensor:
    """addcmul(), written over the first argument."""
    ...

def addmm(input: Tensor, a: TensorLike, b: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """beta * input + alpha * a b for a [m, k] and b [k, n]; input broadcasts to [m, n]. With beta = 0 input is not
    read, so that its NaNs do not spread."""
    ...

def all(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Whether all elements over dims differ from 0; true for no elements."""
    ...

def amax(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Largest element over dims, or of all; NaN wins. Equal elements share the gradient. ShapeError for no elements."""
    ...

def amin(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Smallest element over dims, or of all; NaN wins. Equal elements share the gradient. ShapeError for no elements."""
    ...

def any(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Whether any element over dims differs from 0; false for no elements."""
    ...

def arange(start: Number, end: Number, step: Number = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """start, start + step, ... before end: ceil((end - start) / step) elements, 1-D. ValueError when step is 0 or
    leads away from end."""
    ...

def argmax(input: Tensor, dim: Optional[_int] = ..., keepdim: _bool = ...) -> Tensor:
    """Position (i64) of the first largest element along dim, or in row-major order of all; NaN wins. ShapeError for no
    elements."""
    ...

def argmin(input: Tensor, dim: Optional[_int] = ..., keepdim: _bool = ...) -> Tensor:
    """Position (i64) of the first smallest element along dim, or in row-major order of all; NaN wins. ShapeError for
    no elements."""
    ...

def argsort(input: Tensor, dim: _int = ..., descending: _bool = ...) -> Tensor:
    """Where the elements of each row along dim, in order, come from (i64). Stable; NaN counts as the largest."""
    ...

def as_strided(input: Tensor, shape: Ints, strides: Ints, offset: _int) -> Tensor:
    """Any geometry over x's storage; strides and offset in elements. ShapeError when it reaches outside."""
    ...

def as_strided_backward(g: Tensor, base_shape: Ints, base_strides: Ints, base_offset: _int, shape: Ints, strides: Ints, offset: _int) -> Tensor:
    """Adds g into a tensor of base_shape where as_strided read it: the gradient of as_strided for a base whose
    elements do not overlap."""
    ...

def asin(input: Tensor) -> Tensor:
    """The inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1]."""
    ...

def asin_(input: Tensor) -> Tensor:
    """asin(), written over the first argument."""
    ...

def asinh(input: Tensor) -> Tensor:
    """The inverse hyperbolic sine."""
    ...

def asinh_(input: Tensor) -> Tensor:
    """asinh(), written over the first argument."""
    ...

def atan(input: Tensor) -> Tensor:
    """The inverse tangent, in [-pi/2, pi/2]."""
    ...

def atan2(input: Tensor, other: TensorLike) -> Tensor:
    """The angle of the point (b, a) in (-pi, pi]."""
    ...

def atan2_(input: Tensor, other: TensorLike) -> Tensor:
    """atan2(), written over the first argument."""
    ...

def atan_(input: Tensor) -> Tensor:
    """atan(), written over the first argument."""
    ...

def atanh(input: Tensor) -> Tensor:
    """The inverse hyperbolic tangent; NaN outside [-1, 1]."""
    ...

def atanh_(input: Tensor) -> Tensor:
    """atanh(), written over the first argument."""
    ...

def avg_pool(input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """The mean of each window over the last one to three dimensions (as many as kernel has entries). Padding counts as
    zeros unless count_include_pad is false. avg_pool1d, avg_pool2d and avg_pool3d are the friendlier forms."""
    ...

def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """The mean of each window along the last dimension of [n, c, length] or [c, length]. The stride is the kernel's
    size unless given."""
    ...

def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """The mean of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride is the kernel's
    size unless given. A list with one entry serves both dimensions."""
    ...

def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """The mean of each window over the last three dimensions of [n, c, d, h, w] or [c, d, h, w]. The stride is the
    kernel's size unless given. A list with one entry serves all three dimensions."""
    ...

def avg_pool_backward(g: Tensor, size: Ints, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of avg_pool."""
    ...

def batch_norm(input: Tensor, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """Each channel of x [N, C, ...] minus its mean over everything else, over its standard deviation (divisor n, eps
    added to the variance), times weight [C] plus bias [C]: batch normalisation in training (Ioffe and Szegedy,
    arXiv:1502.03167). mean and rstd are [C], f32 (f64 for f64). The function batch_norm also keeps running
    statistics, uses them in evaluation, and returns y alone."""
    ...

def batch_norm_backward(gy: Tensor, x: TensorLike, weight: Optional[Tensor], mean: TensorLike, rstd: TensorLike) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of batch_norm in training for x, weight and bias, from the gradient gy of its result and its
    statistics."""
    ...

def bernoulli(p: Tensor, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """1 with probability p, elementwise, else 0. Its gradient with respect to p is taken as 0. On a CUDA device the
    values of p are not checked."""
    ...

def binary_cross_entropy_with_logits(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for logits x and probabilities t, computed as max(x, 0) - x t
    + log(1 + exp(-|x|)), which does not overflow; averaged (mean), added (sum) or as it is (none). The arguments
    broadcast and promote."""
    ...

def bincount(input: Tensor, weights: Optional[Tensor] = ..., minlength: _int = ...) -> Tensor:
    """How often each of 0, 1, ... occurs in the 1-D, non-negative x (i64; values below 2^60), or with weights the sum
    of those (f32 for f32, else f64). At least minlength bins. Not differentiable."""
    ...

def bitwise_and(input: Tensor, other: TensorLike) -> Tensor:
    """The bits set in both a and b. DTypeError for floating tensors."""
    ...

def bitwise_and_(input: Tensor, other: TensorLike) -> Tensor:
    """bitwise_and(), written over the first argument."""
    ...

def bitwise_left_shift(input: Tensor, other: TensorLike) -> Tensor:
    """a * 2^b without the bits that leave the dtype; 0 for b outside [0, bits). DTypeError unless integers."""
    ...

def bitwise_left_shift_(input: Tensor, other: TensorLike) -> Tensor:
    """bitwise_left_shift(), written over the first argument."""
    ...

def bitwise_not(input: Tensor) -> Tensor:
    """Every bit of x flipped; logical_not for bool. DTypeError for floating tensors."""
    ...

def bitwise_not_(input: Tensor) -> Tensor:
    """bitwise_not(), written over the first argument."""
    ...

def bitwise_or(input: Tensor, other: TensorLike) -> Tensor:
    """The bits set in a or b. DTypeError for floating tensors."""
    ...

def bitwise_or_(input: Tensor, other: TensorLike) -> Tensor:
    """bitwise_or(), written over the first argument."""
    ...

def bitwise_right_shift(input: Tensor, other: TensorLike) -> Tensor:
    """a / 2^b rounded down; 0, or -1 for negative a, for b outside [0, bits). DTypeError unless integers."""
    ...

def bitwise_right_shift_(input: Tensor, other: TensorLike) -> Tensor:
    """bitwise_right_shift(), written over the first argument."""
    ...

def bitwise_xor(input: Tensor, other: TensorLike) -> Tensor:
    """The bits set in exactly one of a and b. DTypeError for floating tensors."""
    ...

def bitwise_xor_(input: Tensor, other: TensorLike) -> Tensor:
    """bitwise_xor(), written over the first argument."""
    ...

def bmm(input: Tensor, other: TensorLike) -> Tensor:
    """The products of two equally long rows of matrices: [batch, m, k] x [batch, k, n] -> [batch, m, n]. Unlike matmul
    it does not broadcast."""
    ...

def broadcast_to(input: Tensor, shape: Ints) -> Tensor:
    """x broadcast to shape, as a view: another name of expand."""
    ...

def cat(tensors: Sequence[Optional[Tensor]], dim: _int = ...) -> Tensor:
    """The tensors one after the other along dim. All other sizes must agree; tensors of shape [0] are skipped. The
    function cat converts to the common dtype first."""
    ...

def ceil(input: Tensor) -> Tensor:
    """The smallest integer not below x, in x's dtype; integers stay."""
    ...

def ceil_(input: Tensor) -> Tensor:
    """ceil(), written over the first argument."""
    ...

def chunk(input: Tensor, chunks: _int, dim: _int = ...) -> Tuple[Tensor, ...]:
    """At most `chunks` views of equal size along dim, the last one possibly shorter."""
    ...

def clamp(input: Tensor, min: Optional[Number] = ..., max: Optional[Number] = ...) -> Tensor:
    """x limited to [min, max]; max wins where min is above it, NaN stays. The gradient passes where min <= x <= max.
    ValueError when neither bound is given."""
    ...

def clamp_(input: Tensor, min: Optional[Number] = ..., max: Optional[Number] = ...) -> Tensor:
    """clamp(), written over the first argument."""
    ...

def clamp_backward(g: Tensor, x: TensorLike, min: Optional[Number] = ..., max: Optional[Number] = ...) -> Tensor:
    """g where min <= x <= max, else 0: the gradient of clamp."""
    ...

def clone(input: Tensor) -> Tensor:
    """A row-major copy of x with its own storage."""
    ...

def constant_pad(input: Tensor, pads: Ints, value: Number = ...) -> Tensor:
    """x with `value` around it: pads holds (before, after) for the last dimension, then for the one before it, and so
    on. A negative number crops."""
    ...

def conv1d(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ..., stride: Ints = ..., padding: Ints = ..., dilation: Ints = ..., groups: _int = ...) -> Tensor:
    """One-dimensional convolution: x [n, in, length] (or [in, length]), weight [out, in / groups, k], bias [out] ->
    [n, out, (length + 2 padding - dilation (k - 1) - 1) / stride + 1]. ShapeError for sizes that do not fit."""
    ...

def conv2d(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ..., stride: Ints = ..., padding: Ints = ..., dilation: Ints = ..., groups: _int = ...) -> Tensor:
    """Two-dimensional convolution: x [n, in, h, w] (or [in, h, w]), weight [out, in / groups, kh, kw], bias [out];
    sizes as in conv1d, for each dimension. A list with one entry serves both dimensions. ShapeError for sizes that
    do not fit."""
    ...

def conv3d(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ..., stride: Ints = ..., padding: Ints = ..., dilation: Ints = ..., groups: _int = ...) -> Tensor:
    """Three-dimensional convolution: x [n, in, d, h, w] (or [in, d, h, w]), weight [out, in / groups, kd, kh, kw],
    bias [out]; sizes as in conv1d, for each dimension. A list with one entry serves all three. Computed as a two-
    dimensional convolution with in * kd channels, for which x is copied kd times. ShapeError for sizes that do not
    fit."""
    ...

def conv_transpose1d(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ..., stride: Ints = ..., padding: Ints = ..., output_padding: Ints = ..., groups: _int = ..., dilation: Ints = ...) -> Tensor:
    """Transposed one-dimensional convolution: x [n, in, length], weight [in, out / groups, k], bias [out] -> [n, out,
    (length - 1) stride - 2 padding + dilation (k - 1) + 1 + output_padding]. output_padding must be smaller than
    the stride (PyTorch also allows it below the dilation)."""
    ...

def conv_transpose2d(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ..., stride: Ints = ..., padding: Ints = ..., output_padding: Ints = ..., groups: _int = ..., dilation: Ints = ...) -> Tensor:
    """Transposed two-dimensional convolution: x [n, in, h, w], weight [in, out / groups, kh, kw], bias [out]; sizes as
    in conv_transpose1d, for each dimension."""
    ...

def conv_transpose3d(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ..., stride: Ints = ..., padding: Ints = ..., output_padding: Ints = ..., groups: _int = ..., dilation: Ints = ...) -> Tensor:
    """Transposed three-dimensional convolution: x [n, in, d, h, w], weight [in, out / groups, kd, kh, kw], bias [out];
    sizes as in conv_transpose1d, for each dimension. Computed as a transposed two-dimensional convolution with out
    * kd channels, whose slices are added up."""
    ...

def convolution(input: Tensor, weight: TensorLike, bias: Optional[Tensor], stride: Ints, padding: Ints, dilation: Ints, groups: _int) -> Tensor:
    """Cross-correlation of x [n, in, ..] with weight [out, in / groups, ..], plus bias [out], in one or two spatial
    dimensions; the lists have one entry for each. Zeros stand around x. conv1d and conv2d are the friendlier forms."""
    ...

def convolution_transpose(y: Tensor, weight: TensorLike, bias: Optional[Tensor], size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: _int) -> Tensor:
    """The gradient of convolution with respect to its input, as an op: y [n, out, ..] and weight [out, in / groups,
    ..] give [n, in, size..], plus bias [in]. `size` must be one from which convolution leads to y's size."""
    ...

def convolution_weight(input: Tensor, y: TensorLike, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: _int) -> Tensor:
    """The gradient of convolution with respect to its weight, as an op: x [n, in, ..] and y [n, out, ..] give [out, in
    / groups, kernel..]."""
    ...

def copy(input: Tensor, src: TensorLike) -> Tensor:
    """src broadcast to x's shape and converted to x's dtype; x.copy_(src) writes it over x."""
    ...

def copy_(input: Tensor, src: TensorLike) -> Tensor:
    """copy(), written over the first argument."""
    ...

def cos(input: Tensor) -> Tensor:
    """The cosine of x in radians."""
    ...

def cos_(input: Tensor) -> Tensor:
    """cos(), written over the first argument."""
    ...

def cosh(input: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    ...

def cosh_(input: Tensor) -> Tensor:
    """cosh(), written over the first argument."""
    ...

def count_nonzero(input: Tensor, dim: Ints = ...) -> Tensor:
    """How many elements over dims differ from 0; i64."""
    ...

def cross_entropy(input: Tensor, target: TensorLike, ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ...) -> Tuple[Tensor, Tensor]:
    """lse - x[target] with lse = log(sum(exp(x))) over the classes of x [N, C], for i64 targets [N]; rows whose target
    is ignore_index count nothing. With label smoothing e the wanted distribution is (1 - e) at the target plus e /
    C at every class. reduction is mean (over the rows that count), sum or none. Only lse [N] is kept for the
    gradient. Loss and lse are f32 (f64 for f64): PyTorch rounds the loss of bf16 logits to bf16. The function
    cross_entropy also takes x as [C] or [N, C, d1, ...] and returns the loss alone. IndexError for a target that is
    no class."""
    ...

def cross_entropy_backward(gloss: Tensor, x: TensorLike, target: TensorLike, lse: TensorLike, ignore_index: _int, reduction: str, label_smoothing: _float) -> Tensor:
    """The gradient of cross_entropy for x [N, C], in one pass: (exp(x - lse) - wanted distribution) times the gradient
    gloss of the loss, 0 in ignored rows."""
    ...

def ctc_backward(gloss: Tensor, log_probs: TensorLike, targets: TensorLike, input_lengths: TensorLike, target_lengths: TensorLike, alpha: TensorLike, blank: _int = ..., zero_infinity: _bool = ...) -> Tensor:
    """The gradient of ctc_forward for log_probs: -gloss times the probability that a step has a class, given that the
    labels come out. NaN for a sequence whose labels have no path, 0 with zero_infinity; 0 past a sequence's steps."""
    ...

def ctc_forward(log_probs: Tensor, targets: TensorLike, input_lengths: TensorLike, target_lengths: TensorLike, blank: _int = ..., zero_infinity: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The loss [N] of each sequence of ctc_loss, and alpha [N, T, 2 S + 1], the log-probabilities of the prefixes that
    end in each state (-inf outside of a sequence), which the gradient uses. Both are f32 (f64 for f64). targets are
    i64 [N, S], lengths i64 [N]. alpha has no gradient."""
    ...

def ctc_loss(log_probs: Tensor, targets: TensorLike, input_lengths: TensorLike, target_lengths: TensorLike, blank: _int = ..., reduction: str = ..., zero_infinity: _bool = ...) -> Tensor:
    """Connectionist temporal classification (Graves et al., 2006): -log of the probability that log_probs [T, N, C],
    the outputs of log_softmax at each step, spell out the labels, summed over all ways to repeat labels and to put
    blanks between them. targets hold N sequences of integer classes other than the blank: [N, S], of which the
    first target_lengths count, or one after the other in one dimension (the lengths are then read on the host).
    input_lengths [N] say how many of the T steps count. Without N: log_probs [T, C], targets [S], lengths of one
    element. reduction is mean (of the losses over their target lengths), sum or none. Labels that need more steps
    than there are have the loss inf and the gradient NaN; zero_infinity makes both 0. The loss is f32 (f64 for
    f64). The gradient is that of the formula as it stands: PyTorch's assumes that log_softmax comes before, and
    adds exp(log_probs). ValueError for lengths out of range, IndexError for labels that are no class; on CUDA the
    loss is NaN."""
    ...

def cummax(input: Tensor, dim: _int) -> Tuple[Tensor, Tensor]:
    """Largest element up to each along dim, and where it last occurs (i64); NaN wins."""
    ...

def cummin(input: Tensor, dim: _int) -> Tuple[Tensor, Tensor]:
    """Smallest element up to each along dim, and where it last occurs (i64); NaN wins."""
    ...

def cumprod(input: Tensor, dim: _int) -> Tensor:
    """Products of the elements up to each along dim. Integers and bool in i64."""
    ...

def cumsum(input: Tensor, dim: _int, reverse: _bool = ...) -> Tensor:
    """Sums of the elements up to each along dim, or with reverse from each to the end. Integers and bool in i64."""
    ...

def diag(input: Tensor, diagonal: _int = ...) -> Tensor:
    """A matrix with a 1-D x on its diagonal, or the diagonal (a view) of a 2-D x."""
    ...

def diag_embed(input: Tensor, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
    """Zero matrices over dimensions dim1 and dim2 of the result with the last dimension of x on their diagonals."""
    ...

def diagonal(input: Tensor, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
    """The diagonal of dimensions dim1 and dim2, as a view in which it is the last dimension."""
    ...

def diagonal_backward(g: Tensor, shape: Ints, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
    """Zeros of the given shape with g on a diagonal: the gradient of diagonal."""
    ...

def div(input: Tensor, other: TensorLike) -> Tensor:
    """a / b; integers become default_dtype(). floor_divide and trunc_divide round."""
    ...

def div_(input: Tensor, other: TensorLike) -> Tensor:
    """div(), written over the first argument."""
    ...

def div_scalar(input: Tensor, value: Number) -> Tensor:
    """x / value for a floating tensor; div(x, value)."""
    ...

def div_scalar_(input: Tensor, value: Number) -> Tensor:
    """div_scalar(), written over the first argument."""
    ...

def dot(input: Tensor, other: TensorLike) -> Tensor:
    """The sum of the products of two vectors of one length, a 0-dim tensor."""
    ...

def dropout(input: Tensor, p: _float, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Each element set to 0 with probability p, the others divided by 1 - p (Srivastava et al., JMLR 15, 2014).
    Element i, in row-major order, is dropped where number i of the key's stream is below p: the same elements for
    equal keys, on any device and any number of threads. ValueError unless 0 <= p <= 1, DTypeError unless x is
    floating."""
    ...

def einsum(equation: str, *operands: Union[Tensor, Sequence[Tensor]]) -> Tensor:
    """Products and sums by Einstein's convention. Each operand has a term of letters, one for each dimension, and the
    result has the term after "->"; letters that the result lacks are summed over. "..." stands for further
    dimensions, which broadcast. A letter twice in one term takes the diagonal. Without "->" the result has the
    dimensions of "...", then the letters met once in alphabetical order. Operands are contracted from left to right
    by matmul. ValueError for a malformed equation, ShapeError for sizes that do not agree."""
    ...

def elu(input: Tensor, alpha: _float = ..., scale: _float = ...) -> Tensor:
    """scale * x where positive, else scale * alpha * (exp(x) - 1); arXiv:1511.07289. selu is elu with the constants of
    arXiv:1706.02515."""
    ...

def elu_(input: Tensor, alpha: _float = ..., scale: _float = ...) -> Tensor:
    """elu(), written over the first argument."""
    ...

def elu_backward(g: Tensor, x: TensorLike, alpha: _float) -> Tensor:
    """g where x > 0, else g * alpha * exp(x): the gradient of elu."""
    ...

def embedding(indices: Tensor, weight: TensorLike, padding_idx: Optional[_int] = ...) -> Tensor:
    """Rows of weight [V, D] at indices (i64 of any shape): the result's shape is indices' followed by D. Row
    padding_idx, where given, gets no gradient; a negative one counts from the end. IndexError for an index outside
    the table."""
    ...

def embedding_backward(gy: Tensor, indices: TensorLike, rows: _int, padding_idx: Optional[_int] = ...) -> Tensor:
    """The gradient of embedding for its table of `rows` rows: row v is the sum of the rows of gy at the positions that
    hold index v, added in f32 in the order of the positions (on CUDA in parts, each in that order; the same bits in
    every call and for any number of threads); row padding_idx is 0. IndexError for an index outside the table."""
    ...

def embedding_bag(indices: Tensor, weight: TensorLike, offsets: Optional[Tensor] = ..., mode: str = ..., per_sample_weights: Optional[Tensor] = ..., include_last_offset: _bool = ..., padding_idx: Optional[_int] = ...) -> Tensor:
    """Rows of weight [V, D] taken together bag by bag: mode is mean, sum or max. indices (i64) are [bags, n], or one
    bag after the other with offsets (i64), where each begins; with include_last_offset a last offset says where the
    last one ends. per_sample_weights, of indices' shape, multiply the rows of a sum. Positions with index
    padding_idx count nothing, and that row gets no gradient. An empty bag gives zeros. ValueError for offsets that
    do not rise from 0, IndexError for an index outside the table."""
    ...

def embedding_bag_backward(g: Tensor, indices: TensorLike, offsets: TensorLike, per_sample_weights: Optional[Tensor], rows: _int, mean: _bool = ..., padding_idx: Optional[_int] = ...) -> Tensor:
    """The gradient of embedding_bag_sum for its table of `rows` rows: row v is the sum of the rows of g of the bags
    that hold index v, each times what the index counts there, added in f32 in the order of the positions (on CUDA
    in parts, each in that order; the same bits in every call and for any number of threads)."""
    ...

def embedding_bag_max(indices: Tensor, weight: TensorLike, offsets: TensorLike, padding_idx: Optional[_int] = ...) -> Tuple[Tensor, Tensor]:
    """The largest elements, column by column, of the rows of weight that each bag names, bags as in embedding_bag_sum,
    and the rows they come from. NaN wins; of equal elements the first. An empty bag gives 0 and row -1."""
    ...

def embedding_bag_sum(indices: Tensor, weight: TensorLike, offsets: TensorLike, per_sample_weights: Optional[Tensor] = ..., mean: _bool = ..., padding_idx: Optional[_int] = ...) -> Tensor:
    """The sum, or the mean, of the rows of weight [V, D] that each bag names: bag b holds the indices (i64 [n]) at
    positions offsets[b] to offsets[b + 1] - 1, offsets (i64 [bags + 1]) rising from 0 to n. per_sample_weights [n]
    multiply the rows of a sum. Positions with index padding_idx count nothing. An empty bag gives zeros.
    embedding_bag is the friendlier form."""
    ...

def eq(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a equals b; bool."""
    ...

def erf(input: Tensor) -> Tensor:
    """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    ...

def erf_(input: Tensor) -> Tensor:
    """erf(), written over the first argument."""
    ...

def erfc(input: Tensor) -> Tensor:
    """1 - erf(x), accurate where that is small."""
    ...

def erfc_(input: Tensor) -> Tensor:
    """erfc(), written over the first argument."""
    ...

def exp(input: Tensor) -> Tensor:
    """e to the power x."""
    ...

def exp2(input: Tensor) -> Tensor:
    """2 to the power x."""
    ...

def exp2_(input: Tensor) -> Tensor:
    """exp2(), written over the first argument."""
    ...

def exp_(input: Tensor) -> Tensor:
    """exp(), written over the first argument."""
    ...

def expand(input: Tensor, shape: Ints) -> Tensor:
    """Repeats dimensions of size 1 (and new leading ones) to the given shape without copying: their stride is 0. -1
    keeps a size. Its gradient is the sum over the repeated dimensions."""
    ...

def expm1(input: Tensor) -> Tensor:
    """exp(x) - 1, accurate also near 0."""
    ...

def expm1_(input: Tensor) -> Tensor:
    """expm1(), written over the first argument."""
    ...

def eye(n: _int, m: _int, dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """[n, m] with ones on the main diagonal and zeros elsewhere."""
    ...

def fill(input: Tensor, value: Number) -> Tensor:
    """A tensor like x with every element equal to value; x.fill_(value) writes it over x."""
    ...

def fill_(input: Tensor, value: Number) -> Tensor:
    """fill(), written over the first argument."""
    ...

def flip(input: Tensor, dim: Ints) -> Tensor:
    """The order along each of dims reversed (a copy)."""
    ...

def floor(input: Tensor) -> Tensor:
    """The largest integer not above x, in x's dtype; integers stay."""
    ...

def floor_(input: Tensor) -> Tensor:
    """floor(), written over the first argument."""
    ...

def floor_divide(input: Tensor, other: TensorLike) -> Tensor:
    """floor(a / b), keeping integer dtypes. ValueError for an integer division by zero. Its gradient is 0."""
    ...

def floor_divide_(input: Tensor, other: TensorLike) -> Tensor:
    """floor_divide(), written over the first argument."""
    ...

def fmax(input: Tensor, other: TensorLike) -> Tensor:
    """The larger of a and b, ignoring NaN where the other is a number. At a tie a gets the gradient."""
    ...

def fmax_(input: Tensor, other: TensorLike) -> Tensor:
    """fmax(), written over the first argument."""
    ...

def fmin(input: Tensor, other: TensorLike) -> Tensor:
    """The smaller of a and b, ignoring NaN where the other is a number. At a tie a gets the gradient."""
    ...

def fmin_(input: Tensor, other: TensorLike) -> Tensor:
    """fmin(), written over the first argument."""
    ...

def fmod(input: Tensor, other: TensorLike) -> Tensor:
    """a - b * trunc(a / b): it has the sign of a, as C's fmod. ValueError for an integer division by zero."""
    ...

def fmod_(input: Tensor, other: TensorLike) -> Tensor:
    """fmod(), written over the first argument."""
    ...

def fp8_dequantize(codes: Tensor, scale: TensorLike, format: str = ..., dtype: DTypeLike = ...) -> Tensor:
    """The numbers that fp8 codes (u8) stand for, times scale (f32, of one element or broadcasting to codes), in the
    floating dtype. Not differentiable."""
    ...

def fp8_quantize(input: Tensor, scale: TensorLike, format: str = ...) -> Tensor:
    """The fp8 codes (u8) of x / scale, divided in f32 and rounded to nearest even. What is too large, infinity too,
    becomes the largest number (448 for e4m3, 57344 for e5m2), NaN stays NaN. scale (f32) has one element or
    broadcasts to x. Formats: https://arxiv.org/abs/2209.05433. Not differentiable."""
    ...

def frac(input: Tensor) -> Tensor:
    """x - trunc(x). DTypeError for integers."""
    ...

def frac_(input: Tensor) -> Tensor:
    """frac(), written over the first argument."""
    ...

def full(shape: Ints, value: Number, dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """A new tensor with every element equal to value."""
    ...

def gather(input: Tensor, dim: _int, index: TensorLike) -> Tensor:
    """result[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on. The result has the shape of index, which may be
    shorter than x in the other dimensions."""
    ...

def ge(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a >= b; bool."""
    ...

def gelu(input: Tensor, approximate: str = ...) -> Tensor:
    """x * Phi(x), Phi the standard normal distribution: x / 2 * (1 + erf(x / sqrt(2))), or with approximate "tanh" x /
    2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); arXiv:1606.08415. ValueError for another form."""
    ...

def gelu_(input: Tensor, approximate: str = ...) -> Tensor:
    """gelu(), written over the first argument."""
    ...

def gelu_backward(g: Tensor, x: TensorLike, approximate: str = ...) -> Tensor:
    """g times the derivative of gelu at x: Phi(x) + x * phi(x), phi the normal density, or that of the tanh form."""
    ...

def gelu_mlp(input: Tensor, up_weight: TensorLike, up_bias: Optional[Tensor], down_weight: TensorLike, down_bias: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """GPT's feed-forward layer: hidden = gelu(pre, "tanh") of pre = linear(x, up_weight, up_bias), y = linear(hidden,
    down_weight, down_bias). GELU and its derivative happen inside the products. pre and hidden are what the
    gradient needs."""
    ...

def group_norm(input: Tensor, num_groups: _int, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """Each of num_groups groups of neighbouring channels of each item of x [N, C, ...] minus its mean, over its
    standard deviation (divisor n, eps added to the variance), times weight [C] plus bias [C] (Wu and He,
    arXiv:1803.08494). mean and rstd are [N, num_groups], f32 (f64 for f64). ShapeError when the channels do not
    make groups. The function group_norm returns y alone."""
    ...

def group_norm_backward(gy: Tensor, x: TensorLike, num_groups: _int, weight: Optional[Tensor], mean: TensorLike, rstd: TensorLike) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of group_norm for x, weight and bias, from the gradient gy of its result and its statistics."""
    ...

def gt(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a > b; bool."""
    ...

def hardsigmoid(input: Tensor) -> Tensor:
    """x / 6 + 1/2 limited to [0, 1]; arXiv:1905.02244."""
    ...

def hardsigmoid_(input: Tensor) -> Tensor:
    """hardsigmoid(), written over the first argument."""
    ...

def hardswish(input: Tensor) -> Tensor:
    """x * hardsigmoid(x); arXiv:1905.02244."""
    ...

def hardswish_(input: Tensor) -> Tensor:
    """hardswish(), written over the first argument."""
    ...

def hardswish_backward(g: Tensor, x: TensorLike) -> Tensor:
    """g times the derivative of hardswish at x: 0 below -3, 1 above 3, else x / 3 + 1/2."""
    ...

def hardswish_backward_(g: Tensor, x: TensorLike) -> Tensor:
    """hardswish_backward(), written over the first argument."""
    ...

def hardtanh(input: Tensor, min: _float = ..., max: _float = ...) -> Tensor:
    """x limited to [min, max]; the gradient at the bounds is 0. ValueError unless min <= max."""
    ...

def hardtanh_(input: Tensor, min: _float = ..., max: _float = ...) -> Tensor:
    """hardtanh(), written over the first argument."""
    ...

def hardtanh_backward(g: Tensor, x: TensorLike, min: _float, max: _float) -> Tensor:
    """g where min < x < max, else 0: the gradient of hardtanh."""
    ...

def huber_loss(input: Tensor, target: TensorLike, reduction: str = ..., delta: _float = ...) -> Tensor:
    """With d = x - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); averaged (mean), added (sum) or
    as it is (none). The arguments broadcast and promote. ValueError unless delta > 0."""
    ...

def hypot(input: Tensor, other: TensorLike) -> Tensor:
    """sqrt(a^2 + b^2), without overflow on the way."""
    ...

def hypot_(input: Tensor, other: TensorLike) -> Tensor:
    """hypot(), written over the first argument."""
    ...

def index(input: Tensor, indices: Sequence[Optional[Tensor]]) -> Tensor:
    """The elements that integer tensors name, one for each leading dimension (None for a whole dimension).
    Neighbouring tensors are replaced by their common shape in place, others by it in front. Negative indices count
    from the end. x.index({...}) also takes integers, slices, None, Ellipsis and masks."""
    ...

def index_add(input: Tensor, dim: _int, index: TensorLike, source: TensorLike, alpha: Number = ...) -> Tensor:
    """x with alpha * (slice i of source) added to its slice index[i] along dim, in order (bf16 and f16 in f32)."""
    ...

def index_add_(input: Tensor, dim: _int, index: TensorLike, source: TensorLike, alpha: Number = ...) -> Tensor:
    """index_add(), written over the first argument."""
    ...

def index_put(input: Tensor, indices: Sequence[Optional[Tensor]], value: TensorLike, accumulate: _bool = ...) -> Tensor:
    """x with the elements that index names replaced by value (of the shape and dtype that index gives), or increased
    by it: then elements named twice are added up in order. Without accumulate the last one wins, and the gradient
    supposes that none is named twice."""
    ...

def index_put_(input: Tensor, indices: Sequence[Optional[Tensor]], value: TensorLike, accumulate: _bool = ...) -> Tensor:
    """index_put(), written over the first argument."""
    ...

def index_select(input: Tensor, dim: _int, index: TensorLike) -> Tensor:
    """The slices of x along dim that the 1-D index names."""
    ...

def int8_matmul(input: Tensor, other: TensorLike) -> Tensor:
    """The product of i8 matrices, summed in i32: [m, k] x [k, n] -> [m, n]. Exact while k is below 131072. Not
    differentiable."""
    ...

def interpolate(input: Tensor, size: Optional[Ints] = ..., scale_factor: Optional[_float] = ..., mode: str = ..., align_corners: _bool = ...) -> Tensor:
    """Resizes [n, c, length], [n, c, h, w] or [n, c, d, h, w] to `size`, or to floor(scale_factor * size of x);
    exactly one of them. Modes: nearest; linear for one spatial dimension, bilinear for two, trilinear for three.
    With align_corners the corner elements map to each other, else the outer corners of the image do."""
    ...

def isclose(input: Tensor, other: TensorLike, rtol: _float = ..., atol: _float = ..., equal_nan: _bool = ...) -> Tensor:
    """Whether |a - b| <= atol + rtol * |b|; equal infinities are close, two NaN only with equal_nan. Integers are
    compared in f64."""
    ...

def isfinite(input: Tensor) -> Tensor:
    """Whether x is neither NaN nor infinite; bool."""
    ...

def isinf(input: Tensor) -> Tensor:
    """Whether x is infinite; bool."""
    ...

def isnan(input: Tensor) -> Tensor:
    """Whether x is not a number; bool."""
    ...

def kl_div(input: Tensor, target: TensorLike, reduction: str = ..., log_target: _bool = ...) -> Tensor:
    """t (log t - x) for log-probabilities x and probabilities t (0 where t is 0, NaN where it is negative); with
    log_target, exp(t) (t - x). Averaged over all elements (mean), added (sum) or as it is (none); the function also
    takes batchmean. The arguments broadcast and promote. The gradient for the target wants positive probabilities."""
    ...

def kthvalue(input: Tensor, key: _int, dim: _int = ..., keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The k-th smallest element along dim (1 for the smallest) and where it came from (i64). NaN counts as the
    largest."""
    ...

def l1_loss(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """|x - target|, averaged (mean), added (sum) or as it is (none). The gradient is 0 where they are equal. The
    arguments broadcast and promote."""
    ...

def layer_norm(input: Tensor, normalized_shape: Ints, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which must be normalized_shape; the
    variance has divisor n (Ba et al., arXiv:1607.06450). mean and rstd = 1 / sqrt(var + eps) are kept for the
    gradient, in f32 (f64 for f64), with ones in place of the normalised dimensions. weight and bias may be f32
    where x is bf16 or f16. ShapeError when the shapes do not fit. The function layer_norm returns y alone."""
    ...

def layer_norm_backward(gy: Tensor, x: TensorLike, normalized_shape: Ints, weight: Optional[Tensor], mean: TensorLike, rstd: TensorLike, gsum: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of layer_norm for x, weight and bias, from the gradient gy of its result and the mean and rstd
    that it saved; where gsum is given, it is added to gx. The weight's gradient is summed over the rows in f32 in a
    fixed order."""
    ...

def le(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a <= b; bool."""
    ...

def leaky_relu(input: Tensor, negative_slope: _float = ...) -> Tensor:
    """x where positive, else negative_slope * x."""
    ...

def leaky_relu_(input: Tensor, negative_slope: _float = ...) -> Tensor:
    """leaky_relu(), written over the first argument."""
    ...

def leaky_relu_backward(g: Tensor, x: TensorLike, negative_slope: _float) -> Tensor:
    """g where x > 0, else negative_slope * g: the gradient of leaky_relu."""
    ...

def lerp(input: Tensor, other: TensorLike, weight: TensorLike) -> Tensor:
    """a + weight * (b - a), exact at weight 0 and 1."""
    ...

def lerp_(input: Tensor, other: TensorLike, weight: TensorLike) -> Tensor:
    """lerp(), written over the first argument."""
    ...

def linear(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ...) -> Tensor:
    """x weight^T + bias along the last dimension: x [.., in], weight [out, in], bias [out] -> [.., out]. The bias is
    added inside the product."""
    ...

def linear_cross_entropy(input: Tensor, weight: TensorLike, target: TensorLike, ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ...) -> Tuple[Tensor, Tensor]:
    """cross_entropy(linear(x, weight), target) for x [N, D], weight [C, D] and i64 targets [N], with the logits of
    some rows at a time in memory, never of all. lse [N] is log(sum(exp)) of each row's logits. weight has x's
    dtype, or f32 where x is bf16 or f16. The gradient computes the logits again. ShapeError, DTypeError, and
    IndexError for a target that is no class."""
    ...

def linear_cross_entropy_backward(gloss: Tensor, x: TensorLike, weight: TensorLike, target: TensorLike, lse: TensorLike, ignore_index: _int, reduction: str, label_smoothing: _float) -> Tuple[Tensor, Tensor]:
    """The gradients of linear_cross_entropy for x [N, D] and weight [C, D] from the gradient gloss of its loss and the
    lse [N] that it kept. The logits are computed again, by chunks of rows."""
    ...

def linear_cross_entropy_gradients(input: Tensor, weight: TensorLike, target: TensorLike, ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ..., of_sum: _bool = ...) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """linear_cross_entropy, mean or sum, with its gradients at once, so that no product is done twice. The gradient of
    loss is gx and gweight times share [] times its own gradient; they have no gradients themselves. With of_sum gx
    and gweight are those of the rows' sum and share is what the loss is of that sum (1 over the number of rows that
    count, or 1): so nothing of f16 is lost before a loss scaler's factor comes. Else they are those of loss, and
    share is 1."""
    ...

def linear_gelu(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor]:
    """pre = linear(x, weight, bias) and y = gelu(pre, "tanh"), computed together: the activation happens while the
    product's results are at hand."""
    ...

def linspace(start: Number, end: Number, steps: _int, dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """steps values at equal distances from start to end, both included. Integer dtypes truncate."""
    ...

def log(input: Tensor) -> Tensor:
    """The natural logarithm: -inf at 0, NaN for negative x."""
    ...

def log10(input: Tensor) -> Tensor:
    """The logarithm to base 10."""
    ...

def log10_(input: Tensor) -> Tensor:
    """log10(), written over the first argument."""
    ...

def log1p(input: Tensor) -> Tensor:
    """log(1 + x), accurate also near 0."""
    ...

def log1p_(input: Tensor) -> Tensor:
    """log1p(), written over the first argument."""
    ...

def log2(input: Tensor) -> Tensor:
    """The logarithm to base 2."""
    ...

def log2_(input: Tensor) -> Tensor:
    """log2(), written over the first argument."""
    ...

def log_(input: Tensor) -> Tensor:
    """log(), written over the first argument."""
    ...

def log_softmax(input: Tensor, dim: _int) -> Tensor:
    """The logarithm of softmax along dim, computed as x - logsumexp(x), which keeps the digits that the logarithm of a
    tiny softmax would lose. IndexError when dim is out of range, DTypeError unless x is floating."""
    ...

def log_softmax_backward(gy: Tensor, y: TensorLike, dim: _int) -> Tensor:
    """The gradient of log_softmax from its result y and that result's gradient gy: gy - exp(y) * sum(gy), the sum
    along dim. ShapeError unless gy and y have one shape."""
    ...

def logaddexp(input: Tensor, other: TensorLike) -> Tensor:
    """log(exp(a) + exp(b)), without overflow on the way."""
    ...

def logaddexp_(input: Tensor, other: TensorLike) -> Tensor:
    """logaddexp(), written over the first argument."""
    ...

def logical_and(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a and b are both other than 0; bool."""
    ...

def logical_not(input: Tensor) -> Tensor:
    """Whether x is 0; bool."""
    ...

def logical_or(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a or b is other than 0; bool."""
    ...

def logical_xor(input: Tensor, other: TensorLike) -> Tensor:
    """Whether exactly one of a and b is other than 0; bool."""
    ...

def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    ...

def logsigmoid_(input: Tensor) -> Tensor:
    """logsigmoid(), written over the first argument."""
    ...

def logspace(start: Number, end: Number, steps: _int, base: _float = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """base^v for steps values v at equal distances from start to end, both included."""
    ...

def logsumexp(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """log(sum(exp(x))) over dims, with the largest element taken out first so that nothing overflows. -inf for no
    elements."""
    ...

def lt(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a < b; bool."""
    ...

def masked_fill(input: Tensor, mask: TensorLike, value: Number) -> Tensor:
    """x with value where the bool mask is true; x and mask broadcast."""
    ...

def masked_fill_(input: Tensor, mask: TensorLike, value: Number) -> Tensor:
    """masked_fill(), written over the first argument."""
    ...

def masked_scatter(input: Tensor, mask: TensorLike, source: TensorLike) -> Tensor:
    """x with the elements where the bool mask (of x's shape) is true replaced by those of source, in row-major order.
    ShapeError when source has too few."""
    ...

def masked_select(input: Tensor, mask: TensorLike) -> Tensor:
    """The elements of x where the bool mask is true, 1-D, in row-major order; x and mask broadcast."""
    ...

def matmul(input: Tensor, other: TensorLike) -> Tensor:
    """The product of the matrices in the last two dimensions: [.., m, k] x [.., k, n] -> [.., m, n], with the leading
    dimensions broadcast. A 1-dim operand is a row (left) or a column (right), whose dimension the result lacks; two
    vectors give a 0-dim result. Strided and transposed views are read in place. ShapeError when the inner sizes
    differ or the leading ones do not broadcast, DTypeError when the dtypes differ."""
    ...

def matmul_f32(input: Tensor, other: TensorLike) -> Tensor:
    """matmul whose result is f32 where the operands are bf16 or f16: the sums are not rounded to their dtype."""
    ...

def matmul_gelu_grad(g: Tensor, weight: TensorLike, pre: TensorLike) -> Tensor:
    """gelu_backward(matmul(g, weight), pre, "tanh") in one step: the gradient of gelu's argument when gelu's result
    goes through linear with that weight. g [.., n], weight [n, k], pre [.., k] -> [.., k]."""
    ...

def max_dim(input: Tensor, dim: _int, keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """Largest elements along dim and where each first occurs (i64); max(x, dim). NaN wins. The gradient goes to that
    element. ShapeError for no elements."""
    ...

def max_pool(input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The largest element of each window over the last one to three dimensions (as many as kernel has entries), and
    its position in the plane, row-major. Padding never wins; NaN wins; of equal elements the first. max_pool1d,
    max_pool2d and max_pool3d are the friendlier forms."""
    ...

def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., dilation: Ints = ..., ceil_mode: _bool = ...) -> Tensor:
    """The largest element of each window along the last dimension of [n, c, length] or [c, length]. The stride is the
    kernel's size unless given; padding, at most half the kernel, never wins."""
    ...

def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., dilation: Ints = ..., ceil_mode: _bool = ...) -> Tensor:
    """The largest element of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride is the
    kernel's size unless given; padding, at most half the kernel, never wins. A list with one entry serves both
    dimensions."""
    ...

def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., dilation: Ints = ..., ceil_mode: _bool = ...) -> Tensor:
    """The largest element of each window over the last three dimensions of [n, c, d, h, w] or [c, d, h, w]. The stride
    is the kernel's size unless given; padding, at most half the kernel, never wins. A list with one entry serves
    all three dimensions."""
    ...

def max_pool_backward(g: Tensor, positions: TensorLike, size: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
    """Adds each element of g to the input that won its window, by the positions that max_pool gave for an input of
    spatial size `size`: the gradient of max_pool. Positions outside their window, which max_pool does not give, may
    be left out."""
    ...

def maximum(input: Tensor, other: TensorLike) -> Tensor:
    """The larger of a and b; NaN if either is. At a tie each gets half the gradient."""
    ...

def maximum_(input: Tensor, other: TensorLike) -> Tensor:
    """maximum(), written over the first argument."""
    ...

def mean(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Mean over dims, or over everything; NaN for no elements. DTypeError for integers."""
    ...

def meshgrid(tensors: Sequence[Optional[Tensor]], indexing: str = ...) -> Tuple[Tensor, ...]:
    """1-D tensors as coordinates of a grid: each as a view of the shape of all. With indexing "xy" the first two
    dimensions are exchanged."""
    ...

def min_dim(input: Tensor, dim: _int, keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """Smallest elements along dim and where each first occurs (i64); min(x, dim). NaN wins. The gradient goes to that
    element. ShapeError for no elements."""
    ...

def minimum(input: Tensor, other: TensorLike) -> Tensor:
    """The smaller of a and b; NaN if either is. At a tie each gets half the gradient."""
    ...

def minimum_(input: Tensor, other: TensorLike) -> Tensor:
    """minimum(), written over the first argument."""
    ...

def mish(input: Tensor) -> Tensor:
    """x * tanh(softplus(x)); arXiv:1908.08681."""
    ...

def mish_(input: Tensor) -> Tensor:
    """mish(), written over the first argument."""
    ...

def mish_backward(g: Tensor, x: TensorLike) -> Tensor:
    """g times the derivative of mish at x: with t = tanh(softplus(x)), t + x * sigmoid(x) * (1 - t^2)."""
    ...

def mish_backward_(g: Tensor, x: TensorLike) -> Tensor:
    """mish_backward(), written over the first argument."""
    ...

def mm(input: Tensor, other: TensorLike) -> Tensor:
    """The product of two matrices: [m, k] x [k, n] -> [m, n]. matmul without vectors, batches and broadcasting."""
    ...

def movedim(input: Tensor, source: Ints, destination: Ints) -> Tensor:
    """Dimension source[i] moved to place destination[i], the others in their order, as a view."""
    ...

def mse_loss(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """(x - target)^2, averaged (mean), added (sum) or as it is (none). The arguments broadcast and promote."""
    ...

def mul(input: Tensor, other: TensorLike) -> Tensor:
    """a * b. Integers wrap around; bool multiplies as "and"."""
    ...

def mul_(input: Tensor, other: TensorLike) -> Tensor:
    """mul(), written over the first argument."""
    ...

def mul_scalar(input: Tensor, value: Number) -> Tensor:
    """x * value for a floating tensor; mul(x, value)."""
    ...

def mul_scalar_(input: Tensor, value: Number) -> Tensor:
    """mul_scalar(), written over the first argument."""
    ...

def multinomial(weights: Tensor, num_samples: _int, replacement: _bool, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Indices drawn with probabilities proportional to weights ([n] or [rows, n]): [num_samples] or [rows,
    num_samples] i64. ValueError for negative, infinite or all-zero weights, and when without replacement more are
    asked for than have a positive weight; on a CUDA device the values of weights are not checked."""
    ...

def mv(input: Tensor, x: TensorLike) -> Tensor:
    """A matrix times a vector: [m, k] x [k] -> [m]."""
    ...

def nan_to_num(input: Tensor, nan: _float = ..., posinf: Optional[_float] = ..., neginf: Optional[_float] = ...) -> Tensor:
    """NaN replaced by nan, infinities by posinf and neginf, or by the dtype's largest finite numbers. The gradient
    passes where x is finite. Integers stay."""
    ...

def nan_to_num_(input: Tensor, nan: _float = ..., posinf: Optional[_float] = ..., neginf: Optional[_float] = ...) -> Tensor:
    """nan_to_num(), written over the first argument."""
    ...

def ne(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a differs from b; bool."""
    ...

def neg(input: Tensor) -> Tensor:
    """-x. Integers wrap around; DTypeError for bool (use logical_not)."""
    ...

def neg_(input: Tensor) -> Tensor:
    """neg(), written over the first argument."""
    ...

def nll_loss(input: Tensor, target: TensorLike, ignore_index: _int = ..., reduction: str = ...) -> Tensor:
    """-x[target] for log-probabilities x [N, C] and i64 targets [N]; rows whose target is ignore_index count nothing.
    Averaged over the rows that count (mean), added (sum) or as it is (none). The function also takes x as [C] or
    [N, C, d1, ...]. IndexError for a target that is no class."""
    ...

def nonzero(input: Tensor) -> Tensor:
    """Positions of the elements that are not 0: [count, x.dim()] i64, in row-major order."""
    ...

def norm(input: Tensor, p: _float = ..., dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """(sum |x|^p)^(1/p) over dims; the largest |x| for p = inf, the smallest for -inf, the count of non-zeros for 0.
    Where the norm is 0, so is the gradient; at inf equal elements share it. DTypeError for integers."""
    ...

def normal(shape: Ints, mean: _float, std: _float, key: Optional[Tuple[_int, _int]] = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """Normal with the given mean and standard deviation, by Box and Muller's transform: elements 2j and 2j + 1 come
    from one pair of uniform numbers."""
    ...

def one_hot(input: Tensor, num_classes: _int) -> Tensor:
    """[..., num_classes] i64 with a 1 at the place that each element of x names, zeros elsewhere. The function one_hot
    works num_classes out when it is -1."""
    ...

def outer(input: Tensor, other: TensorLike) -> Tensor:
    """All products of the elements of two vectors: y[i, j] = a[i] * b[j]."""
    ...

def packed_attention(qkv: Tensor, heads: _int, kv_heads: _int, is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ...) -> Tuple[Tensor, Tensor]:
    """Self-attention of heads that lie packed in one tensor: qkv is [B, T, (heads + 2 * kv_heads) * D], the queries of
    all heads first, then the keys, then the values; out is [B, T, heads * D]. Otherwise as
    scaled_dot_product_attention. Neither direction copies the parts out: the gradient is written straight into one
    tensor of qkv's shape. ShapeError, DTypeError, ValueError when the sizes do not fit."""
    ...

def packed_attention_backward(gout: Tensor, glse: Optional[Tensor], qkv: TensorLike, out: TensorLike, lse: TensorLike, heads: _int, kv_heads: _int, is_causal: _bool, scale: Optional[_float], window: _int) -> Tensor:
    """The gradient of packed_attention for qkv, from the gradients of its results out and (where given) lse. The same
    bits for any number of threads."""
    ...

def packed_rotary(qkv: Tensor, cos: TensorLike, sin: TensorLike, heads: _int, kv_heads: _int, inverse: _bool = ...) -> Tensor:
    """rotary() of the queries and keys that lie packed in qkv [B, T, (heads + 2 * kv_heads) * D], as packed_attention
    reads them; the values are copied. cos and sin are [T, P], 2 P <= D. With inverse, by the opposite angles.
    ShapeError, DTypeError when the tables do not fit."""
    ...

def pad(input: Tensor, pads: Ints, mode: str = ..., value: Number = ...) -> Tensor:
    """Pads or (with negative numbers) crops. pads holds (before, after) for the last dimension, then for the one
    before it, and so on. Modes: constant (with value), reflect (without the edge), replicate (the edge), circular."""
    ...

def permute(input: Tensor, dim: Ints) -> Tensor:
    """Dimension i of the result is dimension dims[i] of x, as a view."""
    ...

def pick_along(input: Tensor, indices: TensorLike, shape: Ints, dim: _int) -> Tensor:
    """The elements of x (of the given shape) at `indices` along dim: what max and cummax select. indices has x's rank."""
    ...

def plane_gather(input: Tensor, positions: TensorLike) -> Tensor:
    """y[.., i] = x[.., positions[.., i]], and 0 for positions outside x's last dimension. The gradient of
    plane_scatter."""
    ...

def plane_scatter(y: Tensor, positions: TensorLike, size: Ints) -> Tensor:
    """Adds each element of y into zeros whose last dimensions are `size`, at its row-major position in the plane;
    positions outside the plane are skipped. The gradient of adaptive_max_pool."""
    ...

def pow(input: Tensor, other: TensorLike) -> Tensor:
    """a to the power b, elementwise. An integer to a negative integer power is 0 unless the base is 1 or -1."""
    ...

def pow_(input: Tensor, other: TensorLike) -> Tensor:
    """pow(), written over the first argument."""
    ...

def pow_scalar(input: Tensor, exponent: Number) -> Tensor:
    """x to a fixed power; pow(x, exponent). ValueError for an integer tensor to a negative integer power."""
    ...

def pow_scalar_(input: Tensor, exponent: Number) -> Tensor:
    """pow_scalar(), written over the first argument."""
    ...

def prod(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Product over dims, or over everything. Integers and bool multiply in i64. 1 for no elements."""
    ...

def put_along(g: Tensor, indices: TensorLike, shape: Ints, dim: _int) -> Tensor:
    """g added into zeros of the given shape at `indices` along dim: the gradient of pick_along."""
    ...

def randint(low: _int, high: _int, shape: Ints, key: Optional[Tuple[_int, _int]] = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """Integers uniform in [low, high), from 64 random bits each."""
    ...

def randperm(n: _int, key: Optional[Tuple[_int, _int]] = ..., device: DeviceLike = ...) -> Tensor:
    """A random order of 0 .. n-1, i64."""
    ...

def reciprocal(input: Tensor) -> Tensor:
    """1 / x."""
    ...

def reciprocal_(input: Tensor) -> Tensor:
    """reciprocal(), written over the first argument."""
    ...

def relu(input: Tensor) -> Tensor:
    """max(x, 0). The gradient at 0 is 0. DTypeError for bool."""
    ...

def relu_(input: Tensor) -> Tensor:
    """relu(), written over the first argument."""
    ...

def relu_backward(g: Tensor, y: TensorLike) -> Tensor:
    """g where y > 0, else 0: the gradient of relu from its result or its argument."""
    ...

def relu_backward_(g: Tensor, y: TensorLike) -> Tensor:
    """relu_backward(), written over the first argument."""
    ...

def remainder(input: Tensor, other: TensorLike) -> Tensor:
    """a - b * floor(a / b): it has the sign of b, as Python's %. ValueError for an integer division by zero."""
    ...

def remainder_(input: Tensor, other: TensorLike) -> Tensor:
    """remainder(), written over the first argument."""
    ...

def repeat(input: Tensor, repeats: Ints) -> Tensor:
    """x as often as repeats says along each dimension; new leading dimensions where repeats is longer than x's shape."""
    ...

def repeat_index(repeats: Tensor) -> Tensor:
    """0 repeats[0] times, then 1 repeats[1] times, and so on: the index that repeat_interleave selects with."""
    ...

def repeat_interleave(input: Tensor, repeats: _int, dim: Optional[_int] = ...) -> Tensor:
    """Each element along dim (of the flattened x without one) repeats times in a row. The function of this name also
    takes a tensor of counts."""
    ...

def resize(input: Tensor, size: Ints, mode: str = ..., align_corners: _bool = ..., scale: _float = ...) -> Tensor:
    """The last one to three dimensions resized to `size`: nearest, or linear in each of them. scale is the step in the
    input for one in the result; 0 takes it from the sizes. interpolate is the friendlier form."""
    ...

def resize_backward(g: Tensor, size: Ints, mode: str = ..., align_corners: _bool = ..., scale: _float = ...) -> Tensor:
    """The gradient of resize: each element of g added to the inputs it came from, by their weights. `size` is the
    input's."""
    ...

def rms_norm(input: Tensor, normalized_shape: Ints, weight: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor]:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions, which must be normalized_shape (Zhang and Sennrich,
    arXiv:1910.07467). rstd = 1 / sqrt(mean(x^2) + eps) is kept for the gradient, in f32 (f64 for f64). weight may
    be f32 where x is bf16 or f16. ShapeError when the shapes do not fit. The function rms_norm returns y alone."""
    ...

def rms_norm_backward(gy: Tensor, x: TensorLike, normalized_shape: Ints, weight: Optional[Tensor], rstd: TensorLike, gsum: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor]:
    """The gradients of rms_norm for x and weight, from the gradient gy of its result and the rstd that it saved. The
    weight's gradient is summed over the rows in f32 in a fixed order."""
    ...

def roll(input: Tensor, shifts: Ints, dim: Ints = ...) -> Tensor:
    """Elements moved by shifts[i] places along dims[i]; those beyond the end come back at the start. Without dims the
    flattened x is rolled."""
    ...

def rotary(input: Tensor, cos: TensorLike, sin: TensorLike, interleaved: _bool = ..., inverse: _bool = ...) -> Tensor:
    """Turns pairs of elements of each row of x [..., T, D] by angles: (a, b) becomes (a cos - b sin, a sin + b cos);
    with inverse, by the opposite angles. cos and sin are [T, P], 2 P <= D, f32 (f64 where x is f64); pair i is (i,
    i + P), or (2i, 2i + 1) where interleaved; elements from 2P on stay (Su et al., RoFormer, arXiv:2104.09864). The
    result's dimensions lie in memory in x's order. ShapeError, DTypeError when the tables do not fit."""
    ...

def round(input: Tensor) -> Tensor:
    """The nearest integer, halves to even, in x's dtype; integers stay."""
    ...

def round_(input: Tensor) -> Tensor:
    """round(), written over the first argument."""
    ...

def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    ...

def rsqrt_(input: Tensor) -> Tensor:
    """rsqrt(), written over the first argument."""
    ...

def rsub_scalar(input: Tensor, value: Number) -> Tensor:
    """value - x for a floating tensor; rsub(x, value)."""
    ...

def rsub_scalar_(input: Tensor, value: Number) -> Tensor:
    """rsub_scalar(), written over the first argument."""
    ...

def scalar_pow(base: Number, x: TensorLike) -> Tensor:
    """A fixed base to the power x; pow(base, x)."""
    ...

def scaled(input: Tensor, factor: TensorLike) -> Tensor:
    """x times a 0-dim factor of dtype f32 (f64 for f64), rounded once to x's dtype; mul would round the factor first."""
    ...

def scaled_dot_product_attention(query: Tensor, k: TensorLike, value: TensorLike, attn_mask: Optional[Tensor] = ..., is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ..., query_offset: _int = ..., dropout_p: _float = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tuple[Tensor, Tensor]:
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

def scaled_dot_product_attention_backward(gout: Tensor, glse: Optional[Tensor], query: TensorLike, k: TensorLike, value: TensorLike, attn_mask: Optional[Tensor], out: TensorLike, lse: TensorLike, is_causal: _bool, scale: Optional[_float], window: _int, query_offset: _int, dropout_p: _float, key: Optional[Tuple[_int, _int]]) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of scaled_dot_product_attention for q, k and v, from the gradients gout and (where given) glse of
    its results out and lse. The weights are computed again block by block. The same bits for any number of threads."""
    ...

def scaled_matmul(input: Tensor, other: TensorLike, scale_a: TensorLike, scale_b: TensorLike, bias: Optional[Tensor] = ..., a_format: str = ..., b_format: str = ..., dtype: DTypeLike = ...) -> Tensor:
    """(a b) * scale_a * scale_b + bias for eight-bit matrices a [m, k] and b [k, n]: fp8 codes (u8) of the given
    formats, or i8 (the formats count for nothing then). Scales (f32) have one element or the shapes [m, 1] and [1,
    n]; bias [n] has the result's dtype, bf16, f16 or f32. Sums run in f32 (of fp8 on a Hopper card with about 14
    bits in between), for i8 in i32, and are rounded once. Not differentiable."""
    ...

def scatter(input: Tensor, dim: _int, index: TensorLike, src: TensorLike) -> Tensor:
    """x with x[index[i][j][k]][j][k] replaced by src[i][j][k] for dim 0, and so on; src has the shape of index. Where
    an index comes twice the later element wins, and the gradient supposes that none does."""
    ...

def scatter_(input: Tensor, dim: _int, index: TensorLike, src: TensorLike) -> Tensor:
    """scatter(), written over the first argument."""
    ...

def scatter_add(input: Tensor, dim: _int, index: TensorLike, src: TensorLike) -> Tensor:
    """x with src[i][j][k] added to x[index[i][j][k]][j][k] for dim 0, and so on; src has the shape of index. Elements
    with one target are added in order (bf16 and f16 in f32), so the sum does not depend on threads."""
    ...

def scatter_add_(input: Tensor, dim: _int, index: TensorLike, src: TensorLike) -> Tensor:
    """scatter_add(), written over the first argument."""
    ...

def searchsorted(sorted: Tensor, values: TensorLike, right: _bool = ...) -> Tensor:
    """For each value the number of elements of sorted (ascending along its last dimension) that are below it, or with
    right not above it (i64). sorted is 1-D, or agrees with values in all dimensions but the last. One dtype."""
    ...

def select(input: Tensor, dim: _int, index: _int) -> Tensor:
    """The index-th sub-tensor along dim, which disappears, as a view. A negative index counts from the end."""
    ...

def select_backward(g: Tensor, shape: Ints, dim: _int, index: _int) -> Tensor:
    """Zeros of the given shape with g as the index-th sub-tensor along dim: the gradient of select."""
    ...

def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    ...

def sigmoid_(input: Tensor) -> Tensor:
    """sigmoid(), written over the first argument."""
    ...

def sigmoid_backward(g: Tensor, y: TensorLike) -> Tensor:
    """g * y * (1 - y): the gradient of y = sigmoid(x)."""
    ...

def sigmoid_backward_(g: Tensor, y: TensorLike) -> Tensor:
    """sigmoid_backward(), written over the first argument."""
    ...

def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 as x is negative, 0 or positive; NaN stays. DTypeError for bool."""
    ...

def sign_(input: Tensor) -> Tensor:
    """sign(), written over the first argument."""
    ...

def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x), also known as swish; arXiv:1606.08415."""
    ...

def silu_(input: Tensor) -> Tensor:
    """silu(), written over the first argument."""
    ...

def silu_backward(g: Tensor, x: TensorLike) -> Tensor:
    """g times the derivative of silu at x: with s = sigmoid(x), s * (1 + x * (1 - s))."""
    ...

def silu_backward_(g: Tensor, x: TensorLike) -> Tensor:
    """silu_backward(), written over the first argument."""
    ...

def sin(input: Tensor) -> Tensor:
    """The sine of x in radians."""
    ...

def sin_(input: Tensor) -> Tensor:
    """sin(), written over the first argument."""
    ...

def sinh(input: Tensor) -> Tensor:
    """The hyperbolic sine."""
    ...

def sinh_(input: Tensor) -> Tensor:
    """sinh(), written over the first argument."""
    ...

def slice(input: Tensor, dim: _int, start: _int, end: _int, step: _int = ...) -> Tensor:
    """Elements start, start + step, ... before end of one dimension, as a view. Negative positions count from the end;
    positions outside are clamped."""
    ...

def slice_backward(g: Tensor, shape: Ints, dim: _int, start: _int, end: _int, step: _int = ...) -> Tensor:
    """Zeros of the given shape with g in the place that slice took: the gradient of slice."""
    ...

def smooth_l1_loss(input: Tensor, target: TensorLike, reduction: str = ..., beta: _float = ...) -> Tensor:
    """With d = x - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; averaged (mean), added (sum) or as it
    is (none). The arguments broadcast and promote. ValueError unless beta > 0."""
    ...

def softmax(input: Tensor, dim: _int) -> Tensor:
    """exp(x) divided by its sum along dim, with the maximum subtracted first so that large values do not overflow. The
    result has x's shape and dtype. IndexError when dim is out of range, DTypeError unless x is floating."""
    ...

def softmax_backward(gy: Tensor, y: TensorLike, dim: _int) -> Tensor:
    """The gradient of softmax from its result y and that result's gradient gy: y * (gy - sum(gy * y)), the sum along
    dim. ShapeError unless gy and y have one shape."""
    ...

def softplus(input: Tensor, beta: _float = ..., threshold: _float = ...) -> Tensor:
    """log(1 + exp(beta * x)) / beta, or x where beta * x > threshold (the difference is then below rounding)."""
    ...

def softplus_(input: Tensor, beta: _float = ..., threshold: _float = ...) -> Tensor:
    """softplus(), written over the first argument."""
    ...

def softplus_backward(g: Tensor, x: TensorLike, beta: _float, threshold: _float) -> Tensor:
    """g * sigmoid(beta * x), or g where beta * x > threshold: the gradient of softplus."""
    ...

def sort(input: Tensor, dim: _int = ..., descending: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The elements of each row along dim in order, and where they came from (i64). Stable; NaN counts as the largest."""
    ...

def split(input: Tensor, size: _int, dim: _int = ...) -> Tuple[Tensor, ...]:
    """Views of `size` elements along dim, the last one possibly shorter; at most 2^20."""
    ...

def split_with_sizes(input: Tensor, sizes: Ints, dim: _int = ...) -> Tuple[Tensor, ...]:
    """Views of the given sizes along dim, which they must add up to. At most 8."""
    ...

def sqrt(input: Tensor) -> Tensor:
    """The square root; NaN for negative x."""
    ...

def sqrt_(input: Tensor) -> Tensor:
    """sqrt(), written over the first argument."""
    ...

def square(input: Tensor) -> Tensor:
    """x * x. DTypeError for bool."""
    ...

def square_(input: Tensor) -> Tensor:
    """square(), written over the first argument."""
    ...

def stack(tensors: Sequence[Optional[Tensor]], dim: _int = ...) -> Tensor:
    """Tensors of one shape as the slices of a new dimension dim."""
    ...

def std(input: Tensor, dim: Ints = ..., correction: _float = ..., keepdim: _bool = ...) -> Tensor:
    """The square root of var. Where it is 0, so is the gradient."""
    ...

def sub(input: Tensor, other: TensorLike, alpha: Number = ...) -> Tensor:
    """a - alpha * b. Integers wrap around; DTypeError for two bool tensors (use logical_xor)."""
    ...

def sub_(input: Tensor, other: TensorLike, alpha: Number = ...) -> Tensor:
    """sub(), written over the first argument."""
    ...

def sum(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Sum over dims, or over everything. Integers and bool sum in i64; bf16 and f16 accumulate in f32. 0 for no
    elements."""
    ...

def swiglu(input: Tensor, other: TensorLike) -> Tensor:
    """silu(a) * b = a * sigmoid(a) * b in one pass, for a and b of one shape and dtype: the gated activation of feed-
    forward blocks (Shazeer, arXiv:2002.05202). ShapeError, DTypeError when they differ."""
    ...

def swiglu_backward(gy: Tensor, a: TensorLike, b: TensorLike) -> Tuple[Tensor, Tensor]:
    """The gradients of swiglu for a and b from the gradient gy of its result, in one pass."""
    ...

def swiglu_packed(input: Tensor) -> Tensor:
    """swiglu of the two halves of x's last dimension: silu(x[..., :N]) * x[..., N:] for x [..., 2 N]. ShapeError when
    that dimension is odd. The C++ function is swiglu(x)."""
    ...

def swiglu_packed_backward(gy: Tensor, x: TensorLike) -> Tensor:
    """The gradient of swiglu_packed for x from the gradient gy of its result, in one pass."""
    ...

def take_along_dim(input: Tensor, index: TensorLike, dim: Optional[_int] = ...) -> Tensor:
    """gather with x and index broadcast against each other in the other dimensions; without dim on the flattened x."""
    ...

def tan(input: Tensor) -> Tensor:
    """The tangent of x in radians."""
    ...

def tan_(input: Tensor) -> Tensor:
    """tan(), written over the first argument."""
    ...

def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    ...

def tanh_(input: Tensor) -> Tensor:
    """tanh(), written over the first argument."""
    ...

def tanh_backward(g: Tensor, y: TensorLike) -> Tensor:
    """g * (1 - y^2): the gradient of y = tanh(x)."""
    ...

def tanh_backward_(g: Tensor, y: TensorLike) -> Tensor:
    """tanh_backward(), written over the first argument."""
    ...

def tile(input: Tensor, repeats: Ints) -> Tensor:
    """repeat, with ones added in front of a repeats that is shorter than x's shape."""
    ...

def to(input: Tensor, dtype: DTypeLike) -> Tensor:
    """x converted to another dtype, row-major. Floating to integer truncates towards zero; any number but 0 is true.
    The gradient is converted back."""
    ...

def to_device(input: Tensor, device: DeviceLike, source: DeviceLike = ...) -> Tensor:
    """A row-major copy of x, which is on `source`, on another device; x.to(device) is x itself when it is there
    already. A copy to the host returns when the bytes have arrived. The gradient is copied back."""
    ...

def topk(input: Tensor, key: _int, dim: _int = ..., largest: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along dim, best first, and where they came from (i64). Of equal elements
    the earlier comes first; NaN counts as the largest."""
    ...

def transpose(input: Tensor, a: _int, b: _int) -> Tensor:
    """Exchanges dimensions a and b, as a view."""
    ...

def triangle_indices(lower: _bool, rows: _int, cols: _int, offset: _int = ..., device: DeviceLike = ...) -> Tensor:
    """[2, k] i64: rows and columns of the elements of a [rows, cols] matrix on and below (lower) or on and above the
    offset-th diagonal, in row-major order: tril_indices and triu_indices."""
    ...

def tril(input: Tensor, diagonal: _int = ...) -> Tensor:
    """The matrices of the last two dimensions with zeros above the diagonal-th diagonal."""
    ...

def triu(input: Tensor, diagonal: _int = ...) -> Tensor:
    """The matrices of the last two dimensions with zeros below the diagonal-th diagonal."""
    ...

def trunc(input: Tensor) -> Tensor:
    """x without its fraction, in x's dtype; integers stay."""
    ...

def trunc_(input: Tensor) -> Tensor:
    """trunc(), written over the first argument."""
    ...

def trunc_divide(input: Tensor, other: TensorLike) -> Tensor:
    """a / b without its fraction, keeping integer dtypes. ValueError for an integer division by zero. Its gradient is
    0."""
    ...

def trunc_divide_(input: Tensor, other: TensorLike) -> Tensor:
    """trunc_divide(), written over the first argument."""
    ...

def trunc_normal(shape: Ints, mean: _float, std: _float, low: _float, high: _float, key: Optional[Tuple[_int, _int]] = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """Normal restricted to [low, high], by the inverse of its distribution function."""
    ...

def unbind(input: Tensor, dim: _int = ...) -> Tuple[Tensor, ...]:
    """Views of the slices along dim, which disappears; at most 2^20."""
    ...

def unfold(input: Tensor, dim: _int, size: _int, step: _int) -> Tensor:
    """Windows of `size` elements, `step` apart, along dim, as a view; the window is the new last dimension."""
    ...

def unfold_backward(g: Tensor, shape: Ints, dim: _int, size: _int, step: _int) -> Tensor:
    """Adds windows back into a tensor of the given shape: the gradient of unfold."""
    ...

def uniform(shape: Ints, low: _float, high: _float, key: Optional[Tuple[_int, _int]] = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """Uniform in [low, high). Element i depends on key and i only. Numbers come from Philox4x32-10 (Salmon et al.,
    2011): one 32-bit number an element, two for f64."""
    ...

def unique(input: Tensor, return_inverse: _bool = ..., return_counts: _bool = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """The different values of x in ascending order, 1-D; where each element of x is among them (x's shape); how often
    each occurs. What was not asked for is an empty tensor. Every NaN counts as different. Not differentiable."""
    ...

def var(input: Tensor, dim: Ints = ..., correction: _float = ..., keepdim: _bool = ...) -> Tensor:
    """Sum of squared differences from the mean over dims, divided by the number of elements less correction (NaN where
    that leaves nothing). DTypeError for integers."""
    ...

def varlen_attention(query: Tensor, key: TensorLike, value: TensorLike, cu_seqlens_q: TensorLike, cu_seqlens_k: TensorLike, is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ..., query_offset: _int = ...) -> Tuple[Tensor, Tensor]:
    """Attention over sequences of different lengths that lie one after another: q [total of queries, H, D], k [total
    of keys, Hkv, D], v [total of keys, Hkv, Dv]; sequence i has the rows from cu_seqlens[i] up to cu_seqlens[i +
    1], and its queries see its keys alone. cu_seqlens are i64 [sequences + 1], from 0 on, never falling; behind the
    last, queries see nothing and keys are not seen. is_causal, scale, window and query_offset are those of
    scaled_dot_product_attention, within each sequence. out [total of queries, H, Dv]; lse [H, total of queries] is
    the logarithm of the sum of exponentials of the scores, in f32 (f64 for f64). One launch on a CUDA device, for
    which the host does not read the lengths: wrong ones give wrong results there, a ShapeError on the CPU."""
    ...

def varlen_attention_backward(gout: Tensor, glse: Optional[Tensor], query: TensorLike, key: TensorLike, value: TensorLike, cu_seqlens_q: TensorLike, cu_seqlens_k: TensorLike, out: TensorLike, lse: TensorLike, is_causal: _bool, scale: Optional[_float], window: _int, query_offset: _int) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients of varlen_attention for q, k and v, from the gradients gout and (where given) glse of its results
    out and lse; zeros behind the last sequence. The same bits for any number of threads."""
    ...

def view(input: Tensor, shape: Ints) -> Tensor:
    """x's elements in row-major order under another shape, without a copy. One size may be -1. ShapeError when the
    number of elements differs or the strides of x do not allow it (reshape copies in that case)."""
    ...

def where(condition: Tensor, a: TensorLike, b: TensorLike) -> Tensor:
    """a where condition, else b; the three broadcast. DTypeError unless condition is bool."""
    ...

def xlogy(input: Tensor, other: TensorLike) -> Tensor:
    """a * log(b), 0 where a is 0; NaN where b is NaN."""
    ...

def xlogy_(input: Tensor, other: TensorLike) -> Tensor:
    """xlogy(), written over the first argument."""
    ...
