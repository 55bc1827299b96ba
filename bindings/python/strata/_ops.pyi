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

def addbmm(input: Tensor, batch1: TensorLike, batch2: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """beta * input + alpha * the sum of batch1[i] batch2[i] for batch1 [b, m, k] and batch2 [b, k, n]: one product of
    [m, b k] and [b k, n]. input broadcasts to [m, n] and, with beta 0, is not read. Integers take integer factors."""
    ...

def addbmm_(input: Tensor, batch1: TensorLike, batch2: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """addbmm(), written over the first argument."""
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

def addmm_(input: Tensor, a: TensorLike, b: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """addmm(), written over the first argument."""
    ...

def addmv(input: Tensor, mat: TensorLike, vec: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """beta * input + alpha * mat vec for mat [m, k] and vec [k]; input broadcasts to [m] and, with beta 0, is not
    read. Integers take integer factors."""
    ...

def addmv_(input: Tensor, mat: TensorLike, vec: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """addmv(), written over the first argument."""
    ...

def addr(input: Tensor, vec1: TensorLike, vec2: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """beta * input + alpha * vec1 vec2^T for vec1 [m] and vec2 [n]; input broadcasts to [m, n] and, with beta 0, is
    not read. Integers take integer factors."""
    ...

def addr_(input: Tensor, vec1: TensorLike, vec2: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """addr(), written over the first argument."""
    ...

def affine_grid(theta: Tensor, size: Ints, align_corners: _bool = ...) -> Tensor:
    """Positions for grid_sample: theta [N, 2, 3] (or [N, 3, 4]) maps a result of `size` [N, C, H, W] ([N, C, D, H, W])
    into the input, both from -1 to 1: [N, H, W, 2] ([N, D, H, W, 3]), columns first (Jaderberg et al.,
    arXiv:1506.02025). With align_corners the ends are the middles of the corner elements, else the corners of the
    image. ShapeError, DTypeError."""
    ...

def airy_ai(input: Tensor) -> Tensor:
    """Airy's function Ai. DLMF 9.2."""
    ...

def airy_ai_(input: Tensor) -> Tensor:
    """airy_ai(), written over the first argument."""
    ...

def airy_ai_derivative(input: Tensor) -> Tensor:
    """The derivative of Airy's Ai: the gradient of airy_ai. DLMF 9.2."""
    ...

def airy_ai_derivative_(input: Tensor) -> Tensor:
    """airy_ai_derivative(), written over the first argument."""
    ...

def all(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Whether all elements over dims differ from 0; true for no elements."""
    ...

def alpha_dropout(input: Tensor, p: _float, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Dropout that suits SELU: elements become SELU's floor with probability p, then all are scaled and shifted so
    that mean 0 and variance 1 stay (Klambauer et al., arXiv:1706.02515). Element i is dropped where number i of the
    key's stream is below p. ValueError unless 0 <= p <= 1, DTypeError."""
    ...

def amax(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Largest element over dims, or of all; NaN wins. Equal elements share the gradient. ShapeError for no elements."""
    ...

def amin(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Smallest element over dims, or of all; NaN wins. Equal elements share the gradient. ShapeError for no elements."""
    ...

def aminmax(input: Tensor, dim: Optional[_int] = ..., keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The smallest and the largest element along dim, or of all; NaN wins. Equal elements share the gradient.
    ShapeError for no elements."""
    ...

def angle(input: Tensor) -> Tensor:
    """pi for negative x, NaN for NaN, else 0; integers become default_dtype(). The gradient is 0."""
    ...

def any(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Whether any element over dims differs from 0; false for no elements."""
    ...

def arange(start: Number, end: Number, step: Number = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """start, start + step, ... before end: ceil((end - start) / step) elements, 1-D; an integer dtype truncates start
    and step first, and has as many. ValueError when step is 0 or leads away from end."""
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

def as_strided_scatter(input: Tensor, src: TensorLike, shape: Ints, strides: Ints, offset: _int = ...) -> Tensor:
    """A row-major copy of x with src in the place of as_strided(copy, shape, strides, offset). The gradient supposes
    that no element is shown twice."""
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

def atan_(input: Tensor) -> Tensor:
    """atan(), written over the first argument."""
    ...

def atan2(input: Tensor, other: TensorLike) -> Tensor:
    """The angle of the point (b, a) in (-pi, pi]."""
    ...

def atan2_(input: Tensor, other: TensorLike) -> Tensor:
    """atan2(), written over the first argument."""
    ...

def atanh(input: Tensor) -> Tensor:
    """The inverse hyperbolic tangent; NaN outside [-1, 1]."""
    ...

def atanh_(input: Tensor) -> Tensor:
    """atanh(), written over the first argument."""
    ...

def atleast_1d(input: Tensor) -> Tensor:
    """x, as a view with one dimension where it has none."""
    ...

def atleast_2d(input: Tensor) -> Tensor:
    """x, as a view with two dimensions where it has fewer: new ones come first."""
    ...

def atleast_3d(input: Tensor) -> Tensor:
    """x, as a view with three dimensions where it has fewer: a vector [n] becomes [1, n, 1], a matrix [n, m] becomes
    [n, m, 1]."""
    ...

def avg_pool(input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """The mean of each window over the last one to three dimensions (as many as kernel has entries). Padding counts as
    zeros unless count_include_pad is false. avg_pool1d, avg_pool2d and avg_pool3d are the friendlier forms."""
    ...

def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
    """The mean of each window along the last dimension of [n, c, length] or [c, length]. The stride is the kernel's
    size unless given."""
    ...

def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., ceil_mode: _bool = ..., count_include_pad: _bool = ..., divisor_override: Optional[_int] = ...) -> Tensor:
    """The mean of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride is the kernel's
    size unless given. A list with one entry serves both dimensions. With divisor_override the sum over it. Means of
    integers are rounded towards 0."""
    ...

def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., ceil_mode: _bool = ..., count_include_pad: _bool = ..., divisor_override: Optional[_int] = ...) -> Tensor:
    """The mean of each window over the last three dimensions of [n, c, d, h, w] or [c, d, h, w]. The stride is the
    kernel's size unless given. A list with one entry serves all three dimensions. With divisor_override the sum
    over it."""
    ...

def baddbmm(input: Tensor, batch1: TensorLike, batch2: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """beta * input + alpha * batch1 batch2, matrix by matrix, for batch1 [b, m, k] and batch2 [b, k, n]; input
    broadcasts to [b, m, n] and, with beta 0, is not read. Integers take integer factors."""
    ...

def baddbmm_(input: Tensor, batch1: TensorLike, batch2: TensorLike, beta: Number = ..., alpha: Number = ...) -> Tensor:
    """baddbmm(), written over the first argument."""
    ...

def batch_norm(input: Tensor, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """Each channel of x [N, C, ...] minus its mean over everything else, over its standard deviation (divisor n, eps
    added to the variance), times weight [C] plus bias [C]: batch normalisation in training (Ioffe and Szegedy,
    arXiv:1502.03167). mean and rstd are [C], f32 (f64 for f64). The function batch_norm also keeps running
    statistics, uses them in evaluation, and returns y alone."""
    ...

def batch_norm_running(input: Tensor, running_mean: Optional[Tensor] = ..., running_var: Optional[Tensor] = ..., weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., training: _bool = ..., momentum: _float = ..., eps: _float = ...) -> Tensor:
    """Each channel of x [N, C, ...] normalised by its own mean and variance in training, or without running statistics
    [C]; else by these (Ioffe and Szegedy, arXiv:1502.03167). In training the running statistics, where given, are
    written over: they take the share `momentum` of x's, the variance with divisor n - 1. The function batch_norm.
    ShapeError, ValueError."""
    ...

def bce_logits_pairs(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for logits x and probabilities t, computed as max(x, 0) - x t
    + log(1 + exp(-|x|)), which does not overflow; averaged (mean), added (sum) or as it is (none). The arguments
    broadcast and promote."""
    ...

def bce_pairs(input: Tensor, target: TensorLike) -> Tensor:
    """-(t log p + (1 - t) log(1 - p)) of each pair, logarithms being at least -100. The gradient for p is (p - t) over
    p (1 - p), which is taken as at least 1e-12. ValueError where p is outside [0, 1], except on devices."""
    ...

def bernoulli(p: Tensor, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """1 with probability p, elementwise, else 0. Its gradient with respect to p is taken as 0. On a CUDA device the
    values of p are not checked."""
    ...

def bessel_in(input: Tensor, n: _int, scaled: _bool = ...) -> Tensor:
    """The modified Bessel function of the first kind and order n, 0 to 16 (ValueError for another); scaled: times
    exp(-|x|). DLMF 10.25.2."""
    ...

def bessel_j0(input: Tensor) -> Tensor:
    """The Bessel function of the first kind and order 0. DLMF 10.2."""
    ...

def bessel_j0_(input: Tensor) -> Tensor:
    """bessel_j0(), written over the first argument."""
    ...

def bessel_j1(input: Tensor) -> Tensor:
    """The Bessel function of the first kind and order 1. DLMF 10.2."""
    ...

def bessel_j1_(input: Tensor) -> Tensor:
    """bessel_j1(), written over the first argument."""
    ...

def bessel_jn(input: Tensor, n: _int) -> Tensor:
    """The Bessel function of the first kind and order n, 0 to 16; ValueError for another. DLMF 10.2."""
    ...

def bessel_y0(input: Tensor) -> Tensor:
    """The Bessel function of the second kind and order 0; -inf at 0, NaN below. DLMF 10.2."""
    ...

def bessel_y0_(input: Tensor) -> Tensor:
    """bessel_y0(), written over the first argument."""
    ...

def bessel_y1(input: Tensor) -> Tensor:
    """The Bessel function of the second kind and order 1; -inf at 0, NaN below. DLMF 10.2."""
    ...

def bessel_y1_(input: Tensor) -> Tensor:
    """bessel_y1(), written over the first argument."""
    ...

def bilinear(input1: Tensor, input2: TensorLike, weight: TensorLike, bias: Optional[Tensor] = ...) -> Tensor:
    """input1^T weight[o] input2 + bias[o] for every o: input1 [.., k], input2 [.., l], weight [out, k, l], bias [out]
    -> [.., out]. ShapeError."""
    ...

def bin_edges(input: Tensor, bins: Ints, range: Optional[Tensor] = ...) -> Tuple[Tensor, ...]:
    """bins[d] + 1 equally spaced edges for each column d of x [samples, columns], over the range (lowest and highest
    of each column in turn) or that of the elements; 0.5 to both sides where that is one number. Not differentiable."""
    ...

def binary_cross_entropy(input: Tensor, target: TensorLike, weight: Optional[Tensor] = ..., reduction: str = ...) -> Tensor:
    """-(t log p + (1 - t) log(1 - p)) for probabilities p (input) and t (target) of one shape, logarithms being at
    least -100; times weight, which broadcasts; averaged over the elements (mean), added (sum) or as it is (none).
    ShapeError, DTypeError, and on the CPU ValueError where p is outside [0, 1]."""
    ...

def binary_cross_entropy_with_logits(input: Tensor, target: TensorLike, weight: Optional[Tensor] = ..., reduction: str = ..., pos_weight: Optional[Tensor] = ...) -> Tensor:
    """-(w t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for logits x (input) and probabilities t (target) of one
    shape, computed without overflow; w is pos_weight, which broadcasts. Times weight, which broadcasts; averaged
    over the elements (mean), added (sum) or as it is (none). ShapeError, DTypeError."""
    ...

def bincount(input: Tensor, weights: Optional[Tensor] = ..., minlength: _int = ...) -> Tensor:
    """How often each of 0, 1, ... occurs in the 1-D, non-negative x (i64; values below 2^60), or with weights the sum
    of those (f32 for f32, else f64). At least minlength bins. Not differentiable."""
    ...

def binomial(count: Tensor, prob: TensorLike, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Successes of `count` trials of probability `prob`, which broadcast and promote: by waiting times where few are
    expected, else by transformed rejection (Hoermann, 1993). NaN where the count is negative or prob no
    probability. Element i depends on key, i and its arguments alone. The gradient is taken as 0. DTypeError."""
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

def block_diag(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """A matrix with the given ones along its diagonal and zeros elsewhere; vectors and numbers are rows. Different
    dtypes are promoted."""
    ...

def bmm(input: Tensor, other: TensorLike) -> Tensor:
    """The products of two equally long rows of matrices: [batch, m, k] x [batch, k, n] -> [batch, m, n]. Unlike matmul
    it does not broadcast."""
    ...

def broadcast_to(input: Tensor, shape: Ints) -> Tensor:
    """x broadcast to shape, as a view: another name of expand."""
    ...

def bucketize(input: Tensor, boundaries: TensorLike, out_int32: _bool = ..., right: _bool = ...) -> Tensor:
    """For each element the number of ascending 1-D boundaries that are below it, or with right not above it: the part
    in which it lies (i64, or i32 with out_int32). Both are compared in their common dtype."""
    ...

def cartesian_prod(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """Every choice of one element from each vector, a row each, the last vector changing fastest; of one vector
    itself."""
    ...

def cat(tensors: Sequence[Optional[Tensor]], dim: _int = ...) -> Tensor:
    """The tensors one after the other along dim. All other sizes must agree; tensors of shape [0] are skipped. The
    function cat converts to the common dtype first."""
    ...

def cdist(x1: Tensor, x2: TensorLike, p: _float = ...) -> Tensor:
    """The p-norms of the differences of each row of x1 [.., P, M] and each of x2 [.., R, M]: [.., P, R]. The leading
    dimensions broadcast. ShapeError, and ValueError where p is negative."""
    ...

def ceil(input: Tensor) -> Tensor:
    """The smallest integer not below x, in x's dtype; integers stay."""
    ...

def ceil_(input: Tensor) -> Tensor:
    """ceil(), written over the first argument."""
    ...

def celu(input: Tensor, alpha: _float = ...) -> Tensor:
    """input where positive, else alpha (exp(input / alpha) - 1); arXiv:1704.07483. ValueError where alpha is 0."""
    ...

def channel_shuffle(input: Tensor, groups: _int) -> Tensor:
    """Channels of input [N, C, ..] dealt out in turn: those of `groups` groups are interleaved (Zhang et al.,
    arXiv:1707.01083). ShapeError, ValueError unless groups > 0."""
    ...

def chebyshev_polynomial_t(input: Tensor, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the first kind and order n: cos(n acos x). DLMF 18.5.1. The fraction of n is dropped;
    a negative order gives 0."""
    ...

def chebyshev_polynomial_u(input: Tensor, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the second kind and order n: sin((n + 1) t) / sin(t), x = cos(t). DLMF 18.5.2. The
    fraction of n is dropped; a negative order gives 0."""
    ...

def chebyshev_polynomial_v(input: Tensor, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the third kind and order n: cos((n + 1/2) t) / cos(t / 2), x = cos(t). DLMF 18.5.3.
    The fraction of n is dropped; a negative order gives 0."""
    ...

def chebyshev_polynomial_w(input: Tensor, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the fourth kind and order n: sin((n + 1/2) t) / sin(t / 2), x = cos(t). DLMF 18.5.4.
    The fraction of n is dropped; a negative order gives 0."""
    ...

def cholesky_inverse(L: Tensor, upper: _bool = ...) -> Tensor:
    """The inverse of the matrix whose factor is L: cholesky_solve of the identity."""
    ...

def cholesky_solve(B: Tensor, L: TensorLike, upper: _bool = ...) -> Tensor:
    """X with A X = B, A being L L^T (with upper L^T L): two triangles solved. B [.., n, k]; batches broadcast."""
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

def clone(input: Tensor) -> Tensor:
    """A row-major copy of x with its own storage."""
    ...

def col2im(input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints = ..., padding: Ints = ..., stride: Ints = ...) -> Tensor:
    """Columns x [N, C kh kw, windows] (or [C kh kw, windows]) added up where im2col of images of output_size took them
    from: [N, C, H, W], the transpose of im2col. PyTorch's nn.functional.fold. ShapeError, ValueError, DTypeError
    for bool."""
    ...

def column_stack(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """Vectors as columns, matrices side by side. Different dtypes are promoted."""
    ...

def combinations(input: Tensor, r: _int = ..., with_replacement: _bool = ...) -> Tensor:
    """Every choice of r elements of a vector (with_replacement: also the same again), a row each, in order of their
    places; empty for r = 0."""
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

def copysign(input: Tensor, other: TensorLike) -> Tensor:
    """|a| with the sign of b, also that of -0 and NaN; integers become default_dtype(). The gradient at a = 0 is 0."""
    ...

def copysign_(input: Tensor, other: TensorLike) -> Tensor:
    """copysign(), written over the first argument."""
    ...

def corrcoef(input: Tensor) -> Tensor:
    """Correlations of the rows of x [variables, observations]: their covariances divided by both standard deviations,
    kept within [-1, 1]; of one row 1."""
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

def cosine_embedding_loss(input1: Tensor, input2: TensorLike, target: TensorLike, margin: _float = ..., reduction: str = ...) -> Tensor:
    """With c the cosine of the rows of input1 and input2, [N, D] or [D]: 1 - c where target ([N] or no dimension) is
    1, max(0, c - margin) where it is -1; averaged (mean), added (sum) or as it is (none). ShapeError."""
    ...

def cosine_similarity(x1: Tensor, x2: TensorLike, dim: _int = ..., eps: _float = ...) -> Tensor:
    """x1 . x2 over the product of their norms along `dim`, each norm counting as at least eps. The arguments broadcast
    and promote; `dim` counts in their common shape, and is not in the result's. IndexError, ShapeError."""
    ...

def count_nonzero(input: Tensor, dim: Ints = ...) -> Tensor:
    """How many elements over dims differ from 0; i64."""
    ...

def cov(input: Tensor, correction: _float = ..., fweights: Optional[Tensor] = ..., aweights: Optional[Tensor] = ...) -> Tensor:
    """Covariances of the rows of x [variables, observations] (of one row, its variance): weighted sums of products of
    differences from the weighted mean, divided by w - correction (with aweights a: w - correction sum(a f a) / w),
    w being the sum of the weights f a. NaN or inf where that is not positive. fweights (integers) say how often an
    observation was seen, aweights how much it counts. Integers are converted."""
    ...

def cross(input: Tensor, other: TensorLike, dim: Optional[_int] = ...) -> Tensor:
    """linalg_cross along dim, without it along the first dimension of 3 elements."""
    ...

def cross_entropy(input: Tensor, target: TensorLike, weight: Optional[Tensor] = ..., ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ...) -> Tensor:
    """-log softmax(input)[target] for logits input [N, C], [C] or [N, C, d1, ...] and integer targets of that shape
    without C; targets of ignore_index count nothing. With a floating target of input's shape (probabilities) it is
    -sum(target log softmax(input)) over the classes. label_smoothing e makes (1 - e) of the wanted distribution and
    spreads e evenly; weight [C] multiplies the classes. reduction is mean (over the weights of the targets that
    count; over all rows for probabilities), sum or none. The loss of bf16 and f16 logits is f32, since a mean over
    thousands of rows does not fit 8 bits (PyTorch rounds it). ShapeError, DTypeError, ValueError, IndexError for a
    target that is no class."""
    ...

def cross_entropy_rows(input: Tensor, target: TensorLike, ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ...) -> Tuple[Tensor, Tensor]:
    """lse - x[target] with lse = log(sum(exp(x))) over the classes of x [N, C], for i64 targets [N]; rows whose target
    is ignore_index count nothing. With label smoothing e the wanted distribution is (1 - e) at the target plus e /
    C at every class. reduction is mean (over the rows that count), sum or none. Only lse [N] is kept for the
    gradient. Loss and lse are f32 (f64 for f64). IndexError for a target that is no class."""
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

def cumprod_(input: Tensor, dim: _int) -> Tensor:
    """cumprod(), written over the first argument."""
    ...

def cumsum(input: Tensor, dim: _int, reverse: _bool = ...) -> Tensor:
    """Sums of the elements up to each along dim, or with reverse from each to the end. Integers and bool in i64."""
    ...

def cumsum_(input: Tensor, dim: _int, reverse: _bool = ...) -> Tensor:
    """cumsum(), written over the first argument."""
    ...

def cumulative_trapezoid(y: Tensor, x: Optional[Tensor] = ..., dx: _float = ..., dim: _int = ...) -> Tensor:
    """trapezoid up to each point but the first."""
    ...

def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians: x * pi / 180; integers become default_dtype()."""
    ...

def deg2rad_(input: Tensor) -> Tensor:
    """deg2rad(), written over the first argument."""
    ...

def diag(input: Tensor, diagonal: _int = ...) -> Tensor:
    """A matrix with a 1-D x on its diagonal, or the diagonal (a view) of a 2-D x."""
    ...

def diag_embed(input: Tensor, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
    """Zero matrices over dimensions dim1 and dim2 of the result with the last dimension of x on their diagonals."""
    ...

def diagflat(input: Tensor, offset: _int = ...) -> Tensor:
    """A matrix with the elements of x in row-major order on its offset-th diagonal and zeros elsewhere."""
    ...

def diagonal(input: Tensor, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
    """The diagonal of dimensions dim1 and dim2, as a view in which it is the last dimension."""
    ...

def diagonal_scatter(input: Tensor, src: TensorLike, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
    """A copy of x with src in the place of diagonal(x, offset, dim1, dim2)."""
    ...

def diff(input: Tensor, n: _int = ..., dim: _int = ..., prepend: Optional[Tensor] = ..., append: Optional[Tensor] = ...) -> Tensor:
    """Differences of neighbours along dim, n times, with prepend and append joined on first unless n is 0; of bool
    whether they differ."""
    ...

def digamma(input: Tensor) -> Tensor:
    """The derivative of lgamma; NaN at the negative integers, -inf at 0 and inf at -0. DLMF 5.2, 5.11.2."""
    ...

def digamma_(input: Tensor) -> Tensor:
    """digamma(), written over the first argument."""
    ...

def dirichlet(concentration: Tensor, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Shares that sum to 1 over the last dimension, of density proportional to the product of x_i^(a_i - 1): gamma
    numbers over their sum. ShapeError, DTypeError."""
    ...

def dist(input: Tensor, other: TensorLike, p: _float = ...) -> Tensor:
    """The p-norm of a - b over all elements; shapes broadcast."""
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

def dstack(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """The tensors one after the other along the third dimension, after atleast_3d. Different dtypes are promoted."""
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

def embedding(indices: Tensor, weight: TensorLike, padding_idx: Optional[_int] = ...) -> Tensor:
    """Rows of weight [V, D] at indices (i64 or i32, of any shape): the result's shape is indices' followed by D. Row
    padding_idx, where given, gets no gradient; a negative one counts from the end. IndexError for an index outside
    the table."""
    ...

def embedding_bag(indices: Tensor, weight: TensorLike, offsets: Optional[Tensor] = ..., mode: str = ..., per_sample_weights: Optional[Tensor] = ..., include_last_offset: _bool = ..., padding_idx: Optional[_int] = ...) -> Tensor:
    """Rows of weight [V, D] taken together bag by bag: mode is mean, sum or max. indices (integers) are [bags, n], or
    one bag after the other with offsets (integers), where each begins; with include_last_offset a last offset says
    where the last one ends. per_sample_weights, of indices' shape, multiply the rows of a sum. Positions with index
    padding_idx count nothing, and that row gets no gradient. An empty bag gives zeros. ValueError for offsets that
    do not rise from 0, IndexError for an index outside the table."""
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

def entr(input: Tensor) -> Tensor:
    """-x log x; 0 at 0, -inf below."""
    ...

def entr_(input: Tensor) -> Tensor:
    """entr(), written over the first argument."""
    ...

def eq(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a equals b; bool."""
    ...

def eq_(input: Tensor, other: TensorLike) -> Tensor:
    """eq(), written over the first argument."""
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

def erfcx(input: Tensor) -> Tensor:
    """exp(x^2) erfc(x), accurate where the factors overflow and underflow. DLMF 7.2.3."""
    ...

def erfcx_(input: Tensor) -> Tensor:
    """erfcx(), written over the first argument."""
    ...

def erfinv(input: Tensor) -> Tensor:
    """The inverse of erf; infinite at -1 and 1, NaN beyond. DLMF 7.17."""
    ...

def erfinv_(input: Tensor) -> Tensor:
    """erfinv(), written over the first argument."""
    ...

def exp(input: Tensor) -> Tensor:
    """e to the power x."""
    ...

def exp_(input: Tensor) -> Tensor:
    """exp(), written over the first argument."""
    ...

def exp2(input: Tensor) -> Tensor:
    """2 to the power x."""
    ...

def exp2_(input: Tensor) -> Tensor:
    """exp2(), written over the first argument."""
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

def feature_alpha_dropout(input: Tensor, p: _float, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """alpha_dropout of whole channels of input [N, C, ..]. ValueError unless 0 <= p <= 1, ShapeError, DTypeError."""
    ...

def feature_dropout(input: Tensor, p: _float, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Whole channels of input [N, C, ..] set to 0 with probability p, the others divided by 1 - p (Tompson et al.,
    arXiv:1411.4280): dropout1d, 2d and 3d. Channel i, in row-major order, is dropped where number i of the key's
    stream is below p. ValueError unless 0 <= p <= 1, ShapeError, DTypeError."""
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

def fliplr(input: Tensor) -> Tensor:
    """The columns (the second dimension) in reverse."""
    ...

def flipud(input: Tensor) -> Tensor:
    """The rows (the first dimension) in reverse."""
    ...

def float_power(input: Tensor, exponent: TensorLike) -> Tensor:
    """a to the power exponent, both as f64."""
    ...

def float_power_(input: Tensor, exponent: TensorLike) -> Tensor:
    """float_power(), written over the first argument."""
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

def fractional_max_pool(input: Tensor, samples: TensorLike, kernel_size: Ints, output_size: Optional[Ints] = ..., output_ratio: Optional[_float] = ..., second_ratio: Optional[_float] = ..., third_ratio: Optional[_float] = ...) -> Tuple[Tensor, Tensor]:
    """The largest elements of windows that begin at random steps (Graham, arXiv:1412.6071), and where they were in the
    plane: x [N, C, H, W] or [N, C, D, H, W] (or without N) to output_size, or to output_ratio times the input's
    size; the second and third dimension may have a ratio of their own. samples [N, C, 2] (width and height) or [N,
    C, 3] (depth, height, width) from [0, 1) say where windows begin. ShapeError, ValueError, DTypeError."""
    ...

def frexp(input: Tensor) -> Tuple[Tensor, Tensor]:
    """x = mantissa * 2^exponent, the mantissa of size in [1/2, 1), the exponent in i32; 0 has the exponent 0, and so
    do infinities and NaN, which are their own mantissa. The gradient of the mantissa is 2^-exponent. DTypeError for
    integers."""
    ...

def full(shape: Ints, value: Number, dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """A new tensor with every element equal to value."""
    ...

def gather(input: Tensor, dim: _int, index: TensorLike) -> Tensor:
    """result[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on. The result has the shape of index, which may be
    shorter than x in the other dimensions."""
    ...

def gaussian_nll_loss(input: Tensor, target: TensorLike, var: TensorLike, full: _bool = ..., eps: _float = ..., reduction: str = ...) -> Tensor:
    """(log var + (input - target)^2 / var) / 2, the negative logarithm of a normal density without its constant; full
    adds log(2 pi) / 2. var has input's shape, that without the last dimension, or that with 1 in one place (or
    none: one number), and is taken as at least eps (the gradient does not notice). Averaged (mean), added (sum) or
    as it is (none). ShapeError; on the CPU ValueError for a negative variance."""
    ...

def gcd(input: Tensor, other: TensorLike) -> Tensor:
    """The greatest common divisor, not negative; of 0 and 0 it is 0. DTypeError unless integers."""
    ...

def gcd_(input: Tensor, other: TensorLike) -> Tensor:
    """gcd(), written over the first argument."""
    ...

def ge(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a >= b; bool."""
    ...

def ge_(input: Tensor, other: TensorLike) -> Tensor:
    """ge(), written over the first argument."""
    ...

def gelu(input: Tensor, approximate: str = ...) -> Tensor:
    """x * Phi(x), Phi the standard normal distribution: x / 2 * (1 + erf(x / sqrt(2))), or with approximate "tanh" x /
    2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); arXiv:1606.08415. ValueError for another form."""
    ...

def gelu_(input: Tensor, approximate: str = ...) -> Tensor:
    """gelu(), written over the first argument."""
    ...

def gelu_mlp(input: Tensor, up_weight: TensorLike, up_bias: Optional[Tensor], down_weight: TensorLike, down_bias: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """GPT's feed-forward layer: hidden = gelu(pre, "tanh") of pre = linear(x, up_weight, up_bias), y = linear(hidden,
    down_weight, down_bias). GELU and its derivative happen inside the products. pre and hidden are what the
    gradient needs."""
    ...

def general_cosine_window(coefficients: Tensor, size: _int, sym: _bool = ...) -> Tensor:
    """sum_k (-1)^k coefficients[k] cos(2 pi k n / (points - 1)) for n below size, 1-D; points is size, or without sym
    one more."""
    ...

def geqrf(A: Tensor) -> Tuple[Tensor, Tensor]:
    """R on and above the diagonal, the vectors of Householder's reflections I - tau v v^T below it (their first
    element, on the diagonal, is 1): what linalg_householder_product takes. No gradient: linalg_qr has one."""
    ...

def glu(input: Tensor, dim: _int = ...) -> Tensor:
    """a sigmoid(b) of the two halves a, b of input along `dim` (Dauphin et al., arXiv:1612.08083). ShapeError where
    there are no two halves, IndexError."""
    ...

def gradient(input: Tensor, spacing: Sequence[Optional[Tensor]], dim: Ints = ..., edge_order: _int = ...) -> Tuple[Tensor, ...]:
    """Derivatives of samples along each of dims (all without any): central differences of second order, at the ends
    one-sided ones of edge_order 1 or 2. spacing holds one entry for all dims or one for each: a distance (0-dim) or
    coordinates (1-D); an empty list stands for distance 1. Fornberg, Generation of finite difference formulas on
    arbitrarily spaced grids, 1988."""
    ...

def grid_sample(input: Tensor, grid: TensorLike, mode: str = ..., padding_mode: str = ..., align_corners: _bool = ...) -> Tensor:
    """x [N, C, H, W] at the positions grid [N, H', W', 2], (column, row) from -1 to 1 (or [N, C, D, H, W] at [N, D',
    H', W', 3]): [N, C, H', W'] (Jaderberg et al., arXiv:1506.02025). Modes bilinear, nearest and, in two
    dimensions, bicubic (Keys, 1981, a = -0.75); outside are zeros, the border or a reflection at it. With
    align_corners -1 and 1 are the middles of the corner elements, else the corners of the image. Positions that are
    no number are outside. ShapeError, DTypeError, ValueError."""
    ...

def group_norm(input: Tensor, num_groups: _int, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """Each of num_groups groups of neighbouring channels of each item of x [N, C, ...] minus its mean, over its
    standard deviation (divisor n, eps added to the variance), times weight [C] plus bias [C] (Wu and He,
    arXiv:1803.08494). mean and rstd are [N, num_groups], f32 (f64 for f64). ShapeError when the channels do not
    make groups. The function group_norm returns y alone."""
    ...

def gru(input: Tensor, hx: Optional[Tensor], params: Sequence[Optional[Tensor]], has_biases: _bool = ..., num_layers: _int = ..., dropout: _float = ..., train: _bool = ..., bidirectional: _bool = ..., batch_first: _bool = ..., batch_sizes: Optional[Tensor] = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tuple[Tensor, Tensor]:
    """Layers of gated recurrent units over a sequence, gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h'
    = (1 - z) n + z h (Cho et al., arXiv:1406.1078): the last layer's output [T, B, directions hidden] and the last
    states. The input is [T, B, in] ([B, T, in] with batch_first), [T, in], or with batch_sizes (i64 [T], how many
    of the sequences have each step, never rising) packed: [total of the lengths, in], the first step of all
    sequences, then the second of those that have one, and so on. States are [layers directions, B, hidden]; without
    hx they start at zero. params holds, for each layer and direction, W_ih [gates hidden, in], W_hh [gates hidden,
    hidden] and, with has_biases, b_ih and b_hh. With train, what each layer but the last gives is dropped with
    probability dropout: element i of layer l by number i of the key's stream from block l ceil(elements / 4) on;
    the key comes from the default generator where there is none. ShapeError, ValueError."""
    ...

def gru_cell(input: Tensor, hx: Optional[Tensor], w_ih: TensorLike, w_hh: TensorLike, b_ih: Optional[Tensor] = ..., b_hh: Optional[Tensor] = ...) -> Tensor:
    """One step of gru, gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h (Cho et al.,
    arXiv:1406.1078), for input [B, in] or [in], w_ih [3 hidden, in], w_hh [3 hidden, hidden] and hx [B, hidden] or
    [hidden], zeros where not given. ShapeError."""
    ...

def gt(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a > b; bool."""
    ...

def gt_(input: Tensor, other: TensorLike) -> Tensor:
    """gt(), written over the first argument."""
    ...

def gumbel_softmax(logits: Tensor, tau: _float, hard: _bool, dim: _int, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """softmax((logits + g) / tau) along `dim` with g = -log(-log(1 - u)), u being uniform: a sample that is nearly
    one-hot for small tau (Jang et al., arXiv:1611.01144). With hard it is 1 at the largest and 0 elsewhere, with
    the gradient of the soft one. ValueError unless tau > 0, IndexError."""
    ...

def hardshrink(input: Tensor, lambd: _float = ...) -> Tensor:
    """input, 0 where |input| <= lambd."""
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

def hardtanh(input: Tensor, min: _float = ..., max: _float = ...) -> Tensor:
    """x limited to [min, max]; the gradient at the bounds is 0. Integers stay, the bounds rounded inwards. ValueError
    unless min <= max; DTypeError for bool."""
    ...

def hardtanh_(input: Tensor, min: _float = ..., max: _float = ...) -> Tensor:
    """hardtanh(), written over the first argument."""
    ...

def heaviside(input: Tensor, values: TensorLike) -> Tensor:
    """0 where x < 0 or is NaN, `values` where x is 0, 1 above. DTypeError for bool."""
    ...

def heaviside_(input: Tensor, values: TensorLike) -> Tensor:
    """heaviside(), written over the first argument."""
    ...

def hermite_polynomial_h(input: Tensor, n: TensorLike) -> Tensor:
    """The physicists' Hermite polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order gives
    0."""
    ...

def hermite_polynomial_he(input: Tensor, n: TensorLike) -> Tensor:
    """The probabilists' Hermite polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order gives
    0."""
    ...

def hinge_embedding_loss(input: Tensor, target: TensorLike, margin: _float = ..., reduction: str = ...) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1; averaged (mean), added (sum) or as it is (none).
    The arguments broadcast and promote."""
    ...

def histc(input: Tensor, bins: _int = ..., min: Number = ..., max: Number = ...) -> Tensor:
    """How many elements lie in each of `bins` equal parts of [min, max], in x's dtype; what lies outside is not
    counted. Where min and max are equal: the range of the elements. Not differentiable."""
    ...

def histogram(input: Tensor, edges: TensorLike, weight: Optional[Tensor] = ..., density: _bool = ...) -> Tensor:
    """How many elements of x (or the sum of their weights, of x's shape) lie between neighbours of the ascending
    edges; the last part holds its upper edge too. With density divided by the total and by the width. In x's dtype;
    not differentiable."""
    ...

def histogramdd(input: Tensor, edges: Sequence[Optional[Tensor]], weight: Optional[Tensor] = ..., density: _bool = ...) -> Tensor:
    """How many points of x [..., columns] (or the sum of their weights [...]) lie between neighbours of the ascending
    edges of each column; the last part holds its upper edge too, points outside are not counted. With density
    divided by the total and by the widths. In x's dtype; not differentiable."""
    ...

def hstack(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """The tensors one after the other along the second dimension; numbers and vectors along the first. Different
    dtypes are promoted."""
    ...

def huber_loss(input: Tensor, target: TensorLike, reduction: str = ..., delta: _float = ..., weight: Optional[Tensor] = ...) -> Tensor:
    """With d = input - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2) (Huber, 1964); averaged
    (mean), added (sum) or as it is (none). weight, of input's shape, multiplies the elements; the mean stays that
    of the elements. The arguments broadcast and promote. ValueError unless delta > 0."""
    ...

def huber_pairs(input: Tensor, target: TensorLike, reduction: str = ..., delta: _float = ...) -> Tensor:
    """With d = x - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); averaged (mean), added (sum) or
    as it is (none). The arguments broadcast and promote. ValueError unless delta > 0."""
    ...

def hypot(input: Tensor, other: TensorLike) -> Tensor:
    """sqrt(a^2 + b^2), without overflow on the way."""
    ...

def hypot_(input: Tensor, other: TensorLike) -> Tensor:
    """hypot(), written over the first argument."""
    ...

def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind and order 0. DLMF 10.25.2."""
    ...

def i0_(input: Tensor) -> Tensor:
    """i0(), written over the first argument."""
    ...

def i0e(input: Tensor) -> Tensor:
    """exp(-|x|) i0(x). The gradient at 0 is 0."""
    ...

def i0e_(input: Tensor) -> Tensor:
    """i0e(), written over the first argument."""
    ...

def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind and order 1. DLMF 10.25.2."""
    ...

def i1_(input: Tensor) -> Tensor:
    """i1(), written over the first argument."""
    ...

def i1e(input: Tensor) -> Tensor:
    """exp(-|x|) i1(x)."""
    ...

def i1e_(input: Tensor) -> Tensor:
    """i1e(), written over the first argument."""
    ...

def igamma(input: Tensor, other: TensorLike) -> Tensor:
    """The regularised lower incomplete gamma function P(a, b), DLMF 8.2.4. NaN for negative arguments. The gradient is
    that in b; AutogradError where a wants one."""
    ...

def igamma_(input: Tensor, other: TensorLike) -> Tensor:
    """igamma(), written over the first argument."""
    ...

def igammac(input: Tensor, other: TensorLike) -> Tensor:
    """The regularised upper incomplete gamma function Q(a, b) = 1 - P(a, b), DLMF 8.2.4. NaN for negative arguments.
    The gradient is that in b; AutogradError where a wants one."""
    ...

def igammac_(input: Tensor, other: TensorLike) -> Tensor:
    """igammac(), written over the first argument."""
    ...

def im2col(input: Tensor, kernel_size: Ints, dilation: Ints = ..., padding: Ints = ..., stride: Ints = ...) -> Tensor:
    """Windows of x [N, C, H, W] (or [C, H, W]) as columns [N, C kh kw, windows], 0 outside: what makes a convolution a
    matrix product. There are (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1 windows along a dimension,
    rounded down. A list with one entry serves both dimensions. PyTorch's nn.functional.unfold. ShapeError,
    ValueError."""
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

def index_copy(input: Tensor, dim: _int, index: TensorLike, source: TensorLike) -> Tensor:
    """x with its slices index[i] along dim replaced by slice i of source. Where an index comes twice the later slice
    wins, and the gradient supposes that none does."""
    ...

def index_copy_(input: Tensor, dim: _int, index: TensorLike, source: TensorLike) -> Tensor:
    """index_copy(), written over the first argument."""
    ...

def index_fill(input: Tensor, dim: _int, index: TensorLike, value: TensorLike) -> Tensor:
    """x with its slices index[i] along dim filled with value, which has one element and is converted to x's dtype.
    Negative indices count from the end."""
    ...

def index_fill_(input: Tensor, dim: _int, index: TensorLike, value: TensorLike) -> Tensor:
    """index_fill(), written over the first argument."""
    ...

def index_put(input: Tensor, indices: Sequence[Optional[Tensor]], value: TensorLike, accumulate: _bool = ...) -> Tensor:
    """x with the elements that index names replaced by value (of the shape and dtype that index gives), or increased
    by it: then elements named twice are added up in order. Without accumulate the last one wins, and the gradient
    supposes that none is named twice."""
    ...

def index_put_(input: Tensor, indices: Sequence[Optional[Tensor]], value: TensorLike, accumulate: _bool = ...) -> Tensor:
    """index_put(), written over the first argument."""
    ...

def index_reduce(input: Tensor, dim: _int, index: TensorLike, source: TensorLike, reduce: str, include_self: _bool = ...) -> Tensor:
    """x with slice i of source joined to its slice index[i] along dim by prod, mean, amax or amin; without
    include_self what was there does not count where something is sent. Gradients as scatter_reduce has them."""
    ...

def index_reduce_(input: Tensor, dim: _int, index: TensorLike, source: TensorLike, reduce: str, include_self: _bool = ...) -> Tensor:
    """index_reduce(), written over the first argument."""
    ...

def index_select(input: Tensor, dim: _int, index: TensorLike) -> Tensor:
    """The slices of x along dim that the 1-D index names."""
    ...

def inner(input: Tensor, other: TensorLike) -> Tensor:
    """Sums of products over the last dimension of both, which have one size: [.., k] and [.., k]. A 0-dim operand
    multiplies the other."""
    ...

def instance_norm(input: Tensor, running_mean: Optional[Tensor] = ..., running_var: Optional[Tensor] = ..., weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., use_input_stats: _bool = ..., momentum: _float = ..., eps: _float = ...) -> Tensor:
    """Each channel of each item of x [N, C, ...] normalised by its own mean and variance, times weight [C] plus bias
    [C] (Ulyanov et al., arXiv:1607.08022); without use_input_stats by the running statistics [C]. These, where
    given, are written over otherwise: they take the share `momentum` of the items' mean ones, the variance with
    divisor n - 1. ShapeError, ValueError."""
    ...

def int8_matmul(input: Tensor, other: TensorLike) -> Tensor:
    """The product of i8 matrices, summed in i32: [m, k] x [k, n] -> [m, n]. Exact while k is below 131072. Not
    differentiable."""
    ...

def interpolate(input: Tensor, size: Optional[Ints] = ..., scale_factor: Optional[_float] = ..., mode: str = ..., align_corners: _bool = ..., recompute_scale_factor: _bool = ..., antialias: _bool = ..., second_scale_factor: Optional[_float] = ..., third_scale_factor: Optional[_float] = ...) -> Tensor:
    """Resizes [n, c, length], [n, c, h, w] or [n, c, d, h, w] to `size`, or to floor(scale_factor * size of x);
    exactly one of them. Modes: nearest (by the output's start), nearest-exact (by its middle), area (the mean of
    what an output covers); linear for one spatial dimension, bilinear and bicubic for two, trilinear for three.
    With align_corners the corner elements map to each other, else the outer corners of the image do. With
    recompute_scale_factor the step follows from the sizes, not from the factor. antialias widens the filter of
    bilinear and bicubic to the step. The second and third spatial dimension may have a factor of their own."""
    ...

def isclose(input: Tensor, other: TensorLike, rtol: _float = ..., atol: _float = ..., equal_nan: _bool = ...) -> Tensor:
    """Whether |a - b| <= atol + rtol * |b|; equal infinities are close, two NaN only with equal_nan. Integers are
    compared in f64."""
    ...

def isfinite(input: Tensor) -> Tensor:
    """Whether x is neither NaN nor infinite; bool."""
    ...

def isin(elements: Tensor, test_elements: TensorLike, assume_unique: _bool = ..., invert: _bool = ...) -> Tensor:
    """Whether each element is among test_elements (with invert: whether it is not), bool. NaN is among nothing.
    assume_unique changes nothing."""
    ...

def isinf(input: Tensor) -> Tensor:
    """Whether x is infinite; bool."""
    ...

def isnan(input: Tensor) -> Tensor:
    """Whether x is not a number; bool."""
    ...

def isneginf(input: Tensor) -> Tensor:
    """Whether x is -inf; bool."""
    ...

def isposinf(input: Tensor) -> Tensor:
    """Whether x is +inf; bool."""
    ...

def isreal(input: Tensor) -> Tensor:
    """True everywhere: there are no complex tensors."""
    ...

def kl_div(input: Tensor, target: TensorLike, reduction: str = ..., log_target: _bool = ...) -> Tensor:
    """target (log target - input) for log-probabilities input and probabilities target (0 where target is 0, NaN where
    it is negative); with log_target, exp(target) (target - input). Averaged over all elements (mean), over
    input.size(0) (batchmean), added (sum) or as it is (none). The arguments broadcast and promote. The gradient for
    the target wants positive probabilities."""
    ...

def kl_div_pairs(input: Tensor, target: TensorLike, reduction: str = ..., log_target: _bool = ...) -> Tensor:
    """t (log t - x) for log-probabilities x and probabilities t (0 where t is 0, NaN where it is negative); with
    log_target, exp(t) (t - x). Averaged over all elements (mean), added (sum) or as it is (none). The arguments
    broadcast and promote. The gradient for the target wants positive probabilities."""
    ...

def kron(input: Tensor, other: TensorLike) -> Tensor:
    """Kronecker's product: every element of a times the whole of b, as blocks; each size is the product of theirs. The
    smaller rank is filled up with ones in front."""
    ...

def kthvalue(input: Tensor, key: _int, dim: _int = ..., keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The k-th smallest element along dim (1 for the smallest) and where it came from (i64). NaN counts as the
    largest."""
    ...

def l1_loss(input: Tensor, target: TensorLike, reduction: str = ..., weight: Optional[Tensor] = ...) -> Tensor:
    """|input - target|, averaged (mean), added (sum) or as it is (none); the gradient is 0 where they are equal.
    weight, of input's shape, multiplies the elements, and the mean is then over the weights. The arguments
    broadcast and promote."""
    ...

def l1_pairs(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """|x - target|, averaged (mean), added (sum) or as it is (none). The gradient is 0 where they are equal. The
    arguments broadcast and promote."""
    ...

def laguerre_polynomial_l(input: Tensor, n: TensorLike) -> Tensor:
    """Laguerre's polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order gives 0."""
    ...

def layer_norm(input: Tensor, normalized_shape: Ints, weight: Optional[Tensor] = ..., bias: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which must be normalized_shape; the
    variance has divisor n (Ba et al., arXiv:1607.06450). mean and rstd = 1 / sqrt(var + eps) are kept for the
    gradient, in f32 (f64 for f64), with ones in place of the normalised dimensions. weight and bias may be f32
    where x is bf16 or f16. ShapeError when the shapes do not fit. The function layer_norm returns y alone."""
    ...

def lcm(input: Tensor, other: TensorLike) -> Tensor:
    """The least common multiple, not negative; 0 where either is 0; it wraps around. DTypeError unless integers."""
    ...

def lcm_(input: Tensor, other: TensorLike) -> Tensor:
    """lcm(), written over the first argument."""
    ...

def ldexp(input: Tensor, other: TensorLike) -> Tensor:
    """a * 2^b, for whole b without passing through 2^b; integers become default_dtype()."""
    ...

def ldexp_(input: Tensor, other: TensorLike) -> Tensor:
    """ldexp(), written over the first argument."""
    ...

def le(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a <= b; bool."""
    ...

def le_(input: Tensor, other: TensorLike) -> Tensor:
    """le(), written over the first argument."""
    ...

def leaky_relu(input: Tensor, negative_slope: _float = ...) -> Tensor:
    """x where positive, else negative_slope * x."""
    ...

def leaky_relu_(input: Tensor, negative_slope: _float = ...) -> Tensor:
    """leaky_relu(), written over the first argument."""
    ...

def legendre_polynomial_p(input: Tensor, n: TensorLike) -> Tensor:
    """Legendre's polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order gives 0."""
    ...

def lerp(input: Tensor, other: TensorLike, weight: TensorLike) -> Tensor:
    """a + weight * (b - a), exact at weight 0 and 1."""
    ...

def lerp_(input: Tensor, other: TensorLike, weight: TensorLike) -> Tensor:
    """lerp(), written over the first argument."""
    ...

def lgamma(input: Tensor) -> Tensor:
    """The logarithm of |Gamma(x)|; infinite at 0 and the negative integers. DLMF 5.2."""
    ...

def lgamma_(input: Tensor) -> Tensor:
    """lgamma(), written over the first argument."""
    ...

def linalg_cholesky(A: Tensor, upper: _bool = ...) -> Tensor:
    """linalg_cholesky_ex, with a LinAlgError that names the batch element for a matrix that is not positive definite."""
    ...

def linalg_cholesky_ex(A: Tensor, upper: _bool = ..., check_errors: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The lower triangle L with A = L L^T of positive definite matrices (with upper, U with A = U^T U), of which that
    triangle alone is read, and for each matrix an info: 0, or the order of the first leading minor that is not
    positive (L is then unfinished). With check_errors that is a LinAlgError. Gradient: Murray, arXiv:1602.07527; it
    is symmetric."""
    ...

def linalg_cond(A: Tensor, p: str = ...) -> Tensor:
    """The condition of a matrix: the largest singular value by the smallest (p "" and "2"), the reverse ("-2"), or the
    norm p (fro, nuc, inf, -inf, 1, -1) of a square matrix times that of its inverse. inf for a singular one."""
    ...

def linalg_cross(input: Tensor, other: TensorLike, dim: _int = ...) -> Tensor:
    """The cross products of the vectors of three elements along dim; the shapes broadcast."""
    ...

def linalg_det(A: Tensor) -> Tensor:
    """Determinants of square matrices: products of the pivots of linalg_lu_factor. 1 for a matrix of no elements. The
    gradient is the matrix of cofactors, also of a singular matrix."""
    ...

def linalg_eigh(A: Tensor, UPLO: str = ...) -> Tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and orthonormal eigenvectors (columns) of symmetric matrices, of which the triangle UPLO
    alone is read. A vector's sign is that which makes its largest element positive. The gradient (Giles 2008) of
    the vectors wants eigenvalues that differ. LinAlgError where the algorithm does not converge."""
    ...

def linalg_eigvalsh(A: Tensor, UPLO: str = ...) -> Tensor:
    """The eigenvalues of linalg_eigh alone. Gradient: V diag(g) V^T."""
    ...

def linalg_householder_product(A: Tensor, tau: TensorLike) -> Tensor:
    """The first n columns of the product of the reflections I - tau[i] v v^T, v being column i of A [.., m, n] below
    the diagonal, 1 on it and 0 above; tau [.., k], k <= n <= m. The gradient is that of the product written out."""
    ...

def linalg_inv(A: Tensor) -> Tensor:
    """Inverses of square matrices; a LinAlgError that names the batch element for a singular one."""
    ...

def linalg_inv_ex(A: Tensor, check_errors: _bool = ...) -> Tuple[Tensor, Tensor]:
    """Inverses of square matrices, and for each an info: 0, or the place from 1 of the first zero pivot of a singular
    one, with check_errors a LinAlgError."""
    ...

def linalg_lstsq(A: Tensor, B: TensorLike, rcond: Optional[_float] = ..., driver: str = ...) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """X of least |A X - B|, and of these of least |X|. driver "gels" takes A's rank as full (by linalg_qr) and is
    wrong where it is not; "gelsy", "gelsd" and "gelss" take singular values up to rcond (epsilon times the longer
    side) times the largest as 0 (by linalg_pinv), and give the rank, the last two also the singular values; "" is
    gelsy on every device (PyTorch's is gels on a card). residuals are sums of squares for each column of B where A
    has more rows than columns and full rank (not for gelsy). What is not computed is empty. B is [.., m, k], or
    vectors [.., m]."""
    ...

def linalg_lu(A: Tensor, pivot: _bool = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """A = P L U: P a permutation, L a lower triangle with a diagonal of 1, U an upper one."""
    ...

def linalg_lu_factor(A: Tensor, pivot: _bool = ...) -> Tuple[Tensor, Tensor]:
    """linalg_lu_factor_ex, with a LinAlgError for a singular matrix."""
    ...

def linalg_lu_factor_ex(A: Tensor, pivot: _bool = ..., check_errors: _bool = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """A = P L U of matrices [.., m, n]: U on and above the diagonal of LU, L below it (its diagonal is 1), row i
    exchanged with row pivots[i] (i32, counted from 1). info is 0, or the place from 1 of the first zero on U's
    diagonal, with check_errors a LinAlgError. pivot=false, without exchanges, is for cards. Gradient: Walter and
    Lehmann, arXiv:1009.6112."""
    ...

def linalg_lu_solve(LU: Tensor, pivots: TensorLike, B: TensorLike, left: _bool = ..., adjoint: _bool = ...) -> Tensor:
    """X with A X = B (X A = B without left; A^T in A's place with adjoint) from the results of linalg_lu_factor.
    Batches broadcast."""
    ...

def linalg_matrix_exp(A: Tensor) -> Tensor:
    """exp of square matrices: 18 terms of the series of A / 2^s, whose largest sum of a row is at most 1, squared s
    times (Higham, Functions of Matrices, 2008, chapter 10). Each matrix has its own s."""
    ...

def linalg_matrix_norm(A: Tensor, ord: str = ..., dim: Ints = ..., keepdim: _bool = ..., dtype: Optional[DTypeLike] = ...) -> Tensor:
    """Norms of the matrices in two dimensions: "fro" (the root of the sum of squares), "nuc" (the sum of the singular
    values), "inf" and "-inf" (the largest and smallest sum of a row's sizes), "1" and "-1" (of a column's), "2" and
    "-2" (singular value). Those of singular values take f32 and f64."""
    ...

def linalg_matrix_power(A: Tensor, n: _int) -> Tensor:
    """A to the power n of square matrices by repeated squaring: the identity for 0, the power of the inverse below."""
    ...

def linalg_matrix_rank(A: Tensor, atol: Optional[Tensor] = ..., rtol: Optional[Tensor] = ..., hermitian: _bool = ...) -> Tensor:
    """How many singular values (with hermitian sizes of eigenvalues) are above max(atol, rtol * largest), as for
    linalg_pinv; i64."""
    ...

def linalg_multi_dot(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """The product of two or more matrices in the order of fewest multiplications. The first may be a row [n], the last
    a column [n]; the result then lacks that dimension."""
    ...

def linalg_norm(input: Tensor, ord: str = ..., dim: Optional[Ints] = ..., keepdim: _bool = ..., dtype: Optional[DTypeLike] = ...) -> Tensor:
    """linalg_matrix_norm where ord is given and there are two dimensions (dim, or x's own), linalg_vector_norm where
    there is one; without ord the 2-norm of all elements, or of those of dim."""
    ...

def linalg_pinv(A: Tensor, atol: Optional[Tensor] = ..., rtol: Optional[Tensor] = ..., hermitian: _bool = ...) -> Tensor:
    """Moore and Penrose's pseudo-inverse by singular values (with hermitian by eigenvalues of a symmetric matrix):
    those up to max(atol, rtol * largest) count as 0. rtol is epsilon times the longer side, unless atol above 0 is
    given; both may be one number for each matrix. The gradient (Golub and Pereyra 1973) takes the rank as constant."""
    ...

def linalg_qr(A: Tensor, mode: str = ...) -> Tuple[Tensor, Tensor]:
    """A = Q R of matrices [.., m, n] with orthonormal columns of Q and an upper triangle R, by Householder's
    reflections. mode "reduced": Q [.., m, k], R [.., k, n], k the shorter side; "complete": Q [.., m, m], R [.., m,
    n]; "r": R alone. The gradient (Walter and Lehmann, arXiv:1009.6112) wants the first k columns to be
    independent; "r", and "complete" of tall matrices, have none."""
    ...

def linalg_slogdet(A: Tensor) -> Tuple[Tensor, Tensor]:
    """The sign of the determinant (0 for a singular matrix) and the logarithm of its size (-inf): no overflow of large
    matrices. Gradient: A^-T."""
    ...

def linalg_solve(A: Tensor, B: TensorLike, left: _bool = ...) -> Tensor:
    """linalg_solve_ex, with a LinAlgError that names the batch element for a singular matrix."""
    ...

def linalg_solve_ex(A: Tensor, B: TensorLike, left: _bool = ..., check_errors: _bool = ...) -> Tuple[Tensor, Tensor]:
    """X with A X = B (X A = B without left) by Gauss's elimination with exchanged rows, and for each matrix A an info:
    0, or the place from 1 of the first zero pivot (X then is not finite), with check_errors a LinAlgError. B is
    [.., n, k], or vectors [.., n] where it has one dimension, or A's batch and n. Batches broadcast. Gradient: gB
    solves the transposed system (Giles 2008), gA = -gB X^T."""
    ...

def linalg_solve_triangular(A: Tensor, B: TensorLike, upper: _bool, left: _bool = ..., unitriangular: _bool = ...) -> Tensor:
    """linalg_solve for a triangle of A, of which nothing else is read; with unitriangular its diagonal counts as 1. B
    [.., n, k] ([.., k, n] without left); batches broadcast. A zero on the diagonal gives results that are not
    finite."""
    ...

def linalg_svd(A: Tensor, full_matrices: _bool = ..., driver: str = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """A = U diag(S) Vh of matrices [.., m, n]: orthonormal columns of U and rows of Vh, S descending. With
    full_matrices U is [.., m, m] and Vh [.., n, n], else [.., m, k] and [.., k, n], k the shorter side. The largest
    element of each column of U is positive. driver (gesvd, gesvdj) chooses among cuSOLVER's algorithms on a card.
    The gradient (Townsend 2016) of the vectors wants singular values that differ and, of matrices that are not
    square, are not 0; that of columns beyond the first k is left out."""
    ...

def linalg_svdvals(A: Tensor, driver: str = ...) -> Tensor:
    """The singular values of linalg_svd alone. Gradient: U diag(g) Vh."""
    ...

def linalg_tensorinv(A: Tensor, ind: _int = ...) -> Tensor:
    """The inverse of a tensor seen as a square matrix of its first ind dimensions by the others."""
    ...

def linalg_tensorsolve(A: Tensor, B: TensorLike, dim: Optional[Ints] = ...) -> Tensor:
    """X with tensordot(A, X, X.dim()) = B: A seen as a square matrix of B's dimensions by X's. dims of A are moved to
    its end first."""
    ...

def linalg_vander(input: Tensor, N: Optional[_int] = ...) -> Tensor:
    """Rows of powers x^0, x^1 .. x^(N - 1) of each element: [..] gives [.., N]. N is the length of the last dimension
    unless given, and at least 2. Integers in i64."""
    ...

def linalg_vecdot(input: Tensor, y: TensorLike, dim: _int = ...) -> Tensor:
    """Sums of the products along dim; the shapes broadcast."""
    ...

def linalg_vector_norm(input: Tensor, ord: _float = ..., dim: Optional[Ints] = ..., keepdim: _bool = ..., dtype: Optional[DTypeLike] = ...) -> Tensor:
    """(sum |x|^ord)^(1/ord) over dim, over everything without it; the largest |x| for ord inf, the smallest for -inf,
    the count of non-zeros for 0. dtype converts x first."""
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

def linear_gelu(input: Tensor, weight: TensorLike, bias: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor]:
    """pre = linear(x, weight, bias) and y = gelu(pre, "tanh"), computed together: the activation happens while the
    product's results are at hand."""
    ...

def linspace(start: Number, end: Number, steps: _int, dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """steps values at equal distances from start to end, both included. Integer dtypes truncate start, end and the
    values."""
    ...

def local_response_norm(input: Tensor, size: _int, alpha: _float = ..., beta: _float = ..., key: _float = ...) -> Tensor:
    """input [N, C, ..] over (k + alpha m)^beta, m being the mean of the squares of `size` channels around each, those
    beyond the ends counting as 0 (Krizhevsky et al., 2012). ShapeError, ValueError unless size > 0, DTypeError."""
    ...

def log(input: Tensor) -> Tensor:
    """The natural logarithm: -inf at 0, NaN for negative x."""
    ...

def log_(input: Tensor) -> Tensor:
    """log(), written over the first argument."""
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

def log_ndtr(input: Tensor) -> Tensor:
    """log ndtr(x), also where ndtr underflows or is all but 1."""
    ...

def log_ndtr_(input: Tensor) -> Tensor:
    """log_ndtr(), written over the first argument."""
    ...

def log_softmax(input: Tensor, dim: _int) -> Tensor:
    """The logarithm of softmax along dim, computed as x - logsumexp(x), which keeps the digits that the logarithm of a
    tiny softmax would lose. IndexError when dim is out of range, DTypeError unless x is floating."""
    ...

def logaddexp(input: Tensor, other: TensorLike) -> Tensor:
    """log(exp(a) + exp(b)), without overflow on the way."""
    ...

def logaddexp_(input: Tensor, other: TensorLike) -> Tensor:
    """logaddexp(), written over the first argument."""
    ...

def logaddexp2(input: Tensor, other: TensorLike) -> Tensor:
    """log2(2^a + 2^b), without overflow on the way."""
    ...

def logaddexp2_(input: Tensor, other: TensorLike) -> Tensor:
    """logaddexp2(), written over the first argument."""
    ...

def logcumsumexp(input: Tensor, dim: _int) -> Tensor:
    """log of the sums of exp(x) up to each element along dim, without overflow: each element joined by logaddexp to
    the one 1, 2, 4, ... places before it. DTypeError for integers."""
    ...

def logdet(A: Tensor) -> Tensor:
    """Logarithms of the determinants of square matrices: NaN where one is negative, -inf where it is 0."""
    ...

def logical_and(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a and b are both other than 0; bool."""
    ...

def logical_and_(input: Tensor, other: TensorLike) -> Tensor:
    """logical_and(), written over the first argument."""
    ...

def logical_not(input: Tensor) -> Tensor:
    """Whether x is 0; bool."""
    ...

def logical_not_(input: Tensor) -> Tensor:
    """logical_not(), written over the first argument."""
    ...

def logical_or(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a or b is other than 0; bool."""
    ...

def logical_or_(input: Tensor, other: TensorLike) -> Tensor:
    """logical_or(), written over the first argument."""
    ...

def logical_xor(input: Tensor, other: TensorLike) -> Tensor:
    """Whether exactly one of a and b is other than 0; bool."""
    ...

def logical_xor_(input: Tensor, other: TensorLike) -> Tensor:
    """logical_xor(), written over the first argument."""
    ...

def logit(input: Tensor, eps: Optional[_float] = ...) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid, x limited to [eps, 1 - eps] where eps is given (the gradient is 0
    where that changes x); NaN outside [0, 1] without it. ValueError for a negative eps."""
    ...

def logit_(input: Tensor, eps: Optional[_float] = ...) -> Tensor:
    """logit(), written over the first argument."""
    ...

def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    ...

def logsigmoid_(input: Tensor) -> Tensor:
    """logsigmoid(), written over the first argument."""
    ...

def logspace(start: Number, end: Number, steps: _int, base: _float = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """base^v for steps values v at equal distances from start to end, both included. Integer dtypes truncate start and
    end (but of a single value) and the results."""
    ...

def logsumexp(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """log(sum(exp(x))) over dims, with the largest element taken out first so that nothing overflows. -inf for no
    elements."""
    ...

def lp_pool1d(input: Tensor, norm_type: _float, kernel_size: Ints, stride: Ints = ..., ceil_mode: _bool = ...) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) of each window; one that reaches over the end, with ceil_mode, counts as a
    whole one. The stride is the kernel's size unless given. ShapeError, ValueError for a norm_type of 0."""
    ...

def lp_pool2d(input: Tensor, norm_type: _float, kernel_size: Ints, stride: Ints = ..., ceil_mode: _bool = ...) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) of each window; one that reaches over the end, with ceil_mode, counts as a
    whole one. The stride is the kernel's size unless given. ShapeError, ValueError for a norm_type of 0."""
    ...

def lp_pool3d(input: Tensor, norm_type: _float, kernel_size: Ints, stride: Ints = ..., ceil_mode: _bool = ...) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) of each window; one that reaches over the end, with ceil_mode, counts as a
    whole one. The stride is the kernel's size unless given. ShapeError, ValueError for a norm_type of 0."""
    ...

def lstm(input: Tensor, hx: Sequence[Optional[Tensor]], params: Sequence[Optional[Tensor]], has_biases: _bool = ..., num_layers: _int = ..., dropout: _float = ..., train: _bool = ..., bidirectional: _bool = ..., batch_first: _bool = ..., batch_sizes: Optional[Tensor] = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """Layers of long short-term memory over a sequence, gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' =
    sigmoid(o) tanh(c') (Hochreiter and Schmidhuber 1997): the last layer's output [T, B, directions hidden] and the
    last states h and c. The input is [T, B, in] ([B, T, in] with batch_first), [T, in], or with batch_sizes (i64
    [T], how many of the sequences have each step, never rising) packed: [total of the lengths, in], the first step
    of all sequences, then the second of those that have one, and so on. States are [layers directions, B, hidden];
    without hx they start at zero. params holds, for each layer and direction, W_ih [gates hidden, in], W_hh [gates
    hidden, hidden] and, with has_biases, b_ih and b_hh. With train, what each layer but the last gives is dropped
    with probability dropout: element i of layer l by number i of the key's stream from block l ceil(elements / 4)
    on; the key comes from the default generator where there is none. hx is {h, c} or empty. With one more matrix
    W_hr [projection, hidden] at the end of each direction's parameters h is W_hr h' (Sak et al., arXiv:1402.1128).
    ShapeError, ValueError."""
    ...

def lstm_cell(input: Tensor, hx: Sequence[Optional[Tensor]], w_ih: TensorLike, w_hh: TensorLike, b_ih: Optional[Tensor] = ..., b_hh: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor]:
    """One step of lstm, gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c') (Hochreiter
    and Schmidhuber 1997), for input [B, in] or [in], w_ih [4 hidden, in], w_hh [4 hidden, hidden] and hx = {h, c},
    [B, hidden] or [hidden] each; zeros where the list is empty. ShapeError."""
    ...

def lt(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a < b; bool."""
    ...

def lt_(input: Tensor, other: TensorLike) -> Tensor:
    """lt(), written over the first argument."""
    ...

def lu_permutation(pivots: Tensor, rows: _int) -> Tensor:
    """The order of rows (i64) after the exchanges `pivots` (i32, from 1) of linalg_lu_factor: A[order] = L U."""
    ...

def lu_unpack(LU_data: Tensor, LU_pivots: TensorLike, unpack_data: _bool = ..., unpack_pivots: _bool = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """P [.., m, m], L [.., m, k] and U [.., k, n] from the results of linalg_lu_factor; what is not asked for is
    empty."""
    ...

def margin_ranking_loss(input1: Tensor, input2: TensorLike, target: TensorLike, margin: _float = ..., reduction: str = ...) -> Tensor:
    """max(0, -target (input1 - input2) + margin): target 1 says that input1 ranks higher, -1 that input2 does.
    Averaged (mean), added (sum) or as it is (none). The arguments broadcast and promote; ShapeError unless they
    have one number of dimensions."""
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

def masked_scatter_(input: Tensor, mask: TensorLike, source: TensorLike) -> Tensor:
    """masked_scatter(), written over the first argument."""
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

def max_unpool1d(input: Tensor, indices: TensorLike, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., output_size: Optional[Ints] = ...) -> Tensor:
    """Zeros with x's elements at `indices`, where max_pool found them in their planes; those with one place are added,
    those outside left out. The result's size is (length - 1) stride - 2 padding + kernel, unless output_size (its
    last entries) says another within a stride of it. ShapeError, ValueError, DTypeError."""
    ...

def max_unpool2d(input: Tensor, indices: TensorLike, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., output_size: Optional[Ints] = ...) -> Tensor:
    """Zeros with x's elements at `indices`, where max_pool found them in their planes; those with one place are added,
    those outside left out. The result's size is (length - 1) stride - 2 padding + kernel, unless output_size (its
    last entries) says another within a stride of it. ShapeError, ValueError, DTypeError."""
    ...

def max_unpool3d(input: Tensor, indices: TensorLike, kernel_size: Ints, stride: Ints = ..., padding: Ints = ..., output_size: Optional[Ints] = ...) -> Tensor:
    """Zeros with x's elements at `indices`, where max_pool found them in their planes; those with one place are added,
    those outside left out. The result's size is (length - 1) stride - 2 padding + kernel, unless output_size (its
    last entries) says another within a stride of it. ShapeError, ValueError, DTypeError."""
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

def median(input: Tensor) -> Tensor:
    """The lower median of all elements; NaN where one is NaN, or of no floating elements. Equal elements share the
    gradient."""
    ...

def median_dim(input: Tensor, dim: _int, keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The lower medians along dim and where they are (i64); median(x, dim). NaN wins. The gradient goes to that
    element. ShapeError for no elements."""
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

def mm(input: Tensor, other: TensorLike) -> Tensor:
    """The product of two matrices: [m, k] x [k, n] -> [m, n]. matmul without vectors, batches and broadcasting."""
    ...

def mode(input: Tensor, dim: _int = ..., keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The commonest value along dim (the smallest of several) and the last place where it is (i64). The gradient goes
    to that element. ShapeError for no elements."""
    ...

def modified_bessel_i0(input: Tensor) -> Tensor:
    """i0 by its other name."""
    ...

def modified_bessel_i1(input: Tensor) -> Tensor:
    """i1 by its other name."""
    ...

def modified_bessel_k0(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind and order 0; inf at 0, NaN below. DLMF 10.25.3."""
    ...

def modified_bessel_k0_(input: Tensor) -> Tensor:
    """modified_bessel_k0(), written over the first argument."""
    ...

def modified_bessel_k1(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind and order 1; inf at 0, NaN below. DLMF 10.25.3."""
    ...

def modified_bessel_k1_(input: Tensor) -> Tensor:
    """modified_bessel_k1(), written over the first argument."""
    ...

def movedim(input: Tensor, source: Ints, destination: Ints) -> Tensor:
    """Dimension source[i] moved to place destination[i], the others in their order, as a view."""
    ...

def mse_loss(input: Tensor, target: TensorLike, reduction: str = ..., weight: Optional[Tensor] = ...) -> Tensor:
    """(input - target)^2, averaged (mean), added (sum) or as it is (none). weight, of input's shape, multiplies the
    elements, and the mean is then over the weights. The arguments broadcast and promote."""
    ...

def mse_pairs(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
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

def multi_head_attention_forward(query: Tensor, key: TensorLike, value: TensorLike, embed_dim_to_check: _int, num_heads: _int, in_proj_weight: Optional[Tensor], in_proj_bias: Optional[Tensor], bias_k: Optional[Tensor], bias_v: Optional[Tensor], add_zero_attn: _bool, dropout_p: _float, out_proj_weight: TensorLike, out_proj_bias: Optional[Tensor], training: _bool = ..., key_padding_mask: Optional[Tensor] = ..., need_weights: _bool = ..., attn_mask: Optional[Tensor] = ..., use_separate_proj_weight: _bool = ..., q_proj_weight: Optional[Tensor] = ..., k_proj_weight: Optional[Tensor] = ..., v_proj_weight: Optional[Tensor] = ..., static_k: Optional[Tensor] = ..., static_v: Optional[Tensor] = ..., average_attn_weights: _bool = ..., is_causal: _bool = ...) -> Tuple[Tensor, Tensor]:
    """softmax(q k^T / sqrt(E / num_heads) + masks) v of each head, between the projections of query [Tq, B, E], key
    and value [Tk, B, ..] (or all without B) and that of the output, which has query's shape (Vaswani et al.,
    arXiv:1706.03762). The input projections are one weight [3 E, E] or three; bias_k and bias_v are one more key
    and value, add_zero_attn one more of zeros, static_k and static_v [B num_heads, Tk, E / num_heads] take the
    place of what is projected. attn_mask ([Tq, Tk], [B num_heads, Tq, Tk] or broadcast to [B, num_heads, Tq, Tk])
    and key_padding_mask [B, Tk] are boolean (true: hidden) or added to the scores; is_causal, besides them, hides
    what is behind a query. With training, weights are dropped with probability dropout_p by numbers of the default
    generator. weights is the mean over the heads [B, Tq, Tk] or each head's, and without need_weights empty, [0].
    ShapeError, ValueError."""
    ...

def multi_margin_loss(input: Tensor, target: TensorLike, p: _int = ..., margin: _float = ..., weight: Optional[Tensor] = ..., reduction: str = ...) -> Tensor:
    """The sum over the other classes c of max(0, margin - input[target] + input[c])^p over the number of classes, for
    scores input [N, C] or [C], integer targets [N] or one, and p 1 or 2; weight [C] multiplies the loss of a target
    class. Averaged over the rows (mean), added (sum) or as it is (none). ShapeError, DTypeError, ValueError,
    IndexError for a target that is no class."""
    ...

def multilabel_margin_loss(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """The sum over pairs of a target class t and another class c of max(0, 1 - input[t] + input[c]), over the number
    of classes, for scores input [N, C] or [C]; target, of its shape, holds class indices and ends where -1 stands.
    Averaged over the rows (mean), added (sum) or as it is (none). ShapeError, DTypeError, IndexError for a target
    that is no class."""
    ...

def multilabel_soft_margin_loss(input: Tensor, target: TensorLike, weight: Optional[Tensor] = ..., reduction: str = ...) -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log sigmoid(-x)) for scores x (input) [.., C] and targets t of 0 and 1, the mean
    over the classes; weight [C] multiplies them. Averaged over the rows (mean), added (sum) or as it is (none). The
    arguments broadcast and promote. ShapeError."""
    ...

def multinomial(weights: Tensor, num_samples: _int, replacement: _bool = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Indices drawn with probabilities proportional to weights ([n] or [rows, n]): [num_samples] or [rows,
    num_samples] i64. ValueError for negative, infinite or all-zero weights, and when without replacement more are
    asked for than have a positive weight; on a CUDA device the values of weights are not checked."""
    ...

def mv(input: Tensor, x: TensorLike) -> Tensor:
    """A matrix times a vector: [m, k] x [k] -> [m]."""
    ...

def mvlgamma(input: Tensor, p: _int) -> Tensor:
    """The logarithm of the gamma function of p dimensions: p (p - 1) / 4 log(pi) plus the sum of lgamma(x - j / 2) for
    j from 0 to p - 1; DLMF 35.3.4. ValueError unless 1 <= p <= 1024."""
    ...

def mvlgamma_(input: Tensor, p: _int) -> Tensor:
    """mvlgamma(), written over the first argument."""
    ...

def nan_to_num(input: Tensor, nan: _float = ..., posinf: Optional[_float] = ..., neginf: Optional[_float] = ...) -> Tensor:
    """NaN replaced by nan, infinities by posinf and neginf, or by the dtype's largest finite numbers. The gradient
    passes where x is finite. Integers and bool stay."""
    ...

def nan_to_num_(input: Tensor, nan: _float = ..., posinf: Optional[_float] = ..., neginf: Optional[_float] = ...) -> Tensor:
    """nan_to_num(), written over the first argument."""
    ...

def nanmean(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Mean over dims, or over everything, of what is not NaN; NaN where that is nothing. DTypeError for integers."""
    ...

def nanmedian(input: Tensor) -> Tensor:
    """The lower median of the elements that are not NaN; NaN where there are none. Equal elements share the gradient."""
    ...

def nanmedian_dim(input: Tensor, dim: _int, keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The lower medians along dim of the elements that are not NaN (NaN where there are none) and where they are
    (i64); nanmedian(x, dim). The gradient goes to that element. ShapeError for no elements."""
    ...

def nanquantile(input: Tensor, query: TensorLike, dim: Optional[_int] = ..., keepdim: _bool = ..., interpolation: str = ...) -> Tensor:
    """quantile of the elements that are not NaN; NaN where there are none."""
    ...

def nansum(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Sum over dims, or over everything, of what is not NaN. Integers and bool sum in i64."""
    ...

def ndtr(input: Tensor) -> Tensor:
    """The share of a standard normal distribution below x: erfc(-x / sqrt(2)) / 2."""
    ...

def ndtr_(input: Tensor) -> Tensor:
    """ndtr(), written over the first argument."""
    ...

def ndtri(input: Tensor) -> Tensor:
    """The inverse of ndtr, the normal distribution's quantile; infinite at 0 and 1, NaN beyond."""
    ...

def ndtri_(input: Tensor) -> Tensor:
    """ndtri(), written over the first argument."""
    ...

def ne(input: Tensor, other: TensorLike) -> Tensor:
    """Whether a differs from b; bool."""
    ...

def ne_(input: Tensor, other: TensorLike) -> Tensor:
    """ne(), written over the first argument."""
    ...

def neg(input: Tensor) -> Tensor:
    """-x. Integers wrap around; DTypeError for bool (use logical_not)."""
    ...

def neg_(input: Tensor) -> Tensor:
    """neg(), written over the first argument."""
    ...

def nextafter(input: Tensor, other: TensorLike) -> Tensor:
    """The neighbour of a in the direction of b. DTypeError unless both are f32 or f64. It has no gradient:
    AutogradError where one is asked for."""
    ...

def nextafter_(input: Tensor, other: TensorLike) -> Tensor:
    """nextafter(), written over the first argument."""
    ...

def nll_loss(input: Tensor, target: TensorLike, weight: Optional[Tensor] = ..., ignore_index: _int = ..., reduction: str = ...) -> Tensor:
    """-input[target] for log-probabilities input [N, C], [C] or [N, C, d1, ...] and integer targets of that shape
    without C; targets of ignore_index count nothing. weight [C] multiplies the classes; reduction is mean (over the
    weights of the targets that count), sum or none. ShapeError, DTypeError, ValueError, IndexError for a target
    that is no class."""
    ...

def nll_rows(input: Tensor, target: TensorLike, ignore_index: _int = ..., reduction: str = ...) -> Tensor:
    """-x[target] for log-probabilities x [N, C] and i64 targets [N]; rows whose target is ignore_index count nothing.
    Averaged over the rows that count (mean), added (sum) or as it is (none). IndexError for a target that is no
    class."""
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

def normalize(input: Tensor, p: _float = ..., dim: _int = ..., eps: _float = ...) -> Tensor:
    """input over its p-norm along `dim`, or over eps where that is larger. DTypeError, IndexError."""
    ...

def one_hot(input: Tensor, num_classes: _int) -> Tensor:
    """[..., num_classes] i64 with a 1 at the place that each element of x names, zeros elsewhere. The function one_hot
    works num_classes out when it is -1."""
    ...

def orthogonal_polynomial(input: Tensor, n: TensorLike, family: str, derivative: _int = ...) -> Tensor:
    """The derivative of that number (0 to 7) in x of the polynomial of order n, of the family chebyshev_t, _u, _v or
    _w, shifted_t, _u, _v or _w (of 2x - 1), hermite_h, hermite_he, laguerre_l or legendre_p, by the recurrence of
    DLMF 18.9.1. The fraction of n is dropped; a negative order gives 0. ValueError for another family or number."""
    ...

def outer(input: Tensor, other: TensorLike) -> Tensor:
    """All products of the elements of two vectors: y[i, j] = a[i] * b[j]; dtypes are promoted."""
    ...

def pack_padded_sequence(input: Tensor, lengths: TensorLike, batch_first: _bool = ...) -> Tuple[Tensor, Tensor]:
    """Packs sequences [T, B, ..] ([B, T, ..] with batch_first) by their lengths, i64 [B], which must not rise: data
    [total of the lengths, ..] has the first step of all, then the second of those that have one, and so on;
    batch_sizes, on the CPU, says how many have each step. ShapeError, ValueError."""
    ...

def packed_attention(qkv: Tensor, heads: _int, kv_heads: _int, is_causal: _bool = ..., scale: Optional[_float] = ..., window: _int = ...) -> Tuple[Tensor, Tensor]:
    """Self-attention of heads that lie packed in one tensor: qkv is [B, T, (heads + 2 * kv_heads) * D], the queries of
    all heads first, then the keys, then the values; out is [B, T, heads * D]. Otherwise as
    scaled_dot_product_attention. Neither direction copies the parts out: the gradient is written straight into one
    tensor of qkv's shape. ShapeError, DTypeError, ValueError when the sizes do not fit."""
    ...

def packed_rotary(qkv: Tensor, cos: TensorLike, sin: TensorLike, heads: _int, kv_heads: _int, inverse: _bool = ...) -> Tensor:
    """rotary() of the queries and keys that lie packed in qkv [B, T, (heads + 2 * kv_heads) * D], as packed_attention
    reads them; the values are copied. cos and sin are [T, P], 2 P <= D. With inverse, by the opposite angles.
    ShapeError, DTypeError when the tables do not fit."""
    ...

def pad(input: Tensor, pads: Ints, mode: str = ..., value: Number = ...) -> Tensor:
    """Pads or (with negative numbers) crops. pads holds (before, after) for the last dimension, then for the one
    before it, and so on. Modes: constant (with value), reflect (without the edge), replicate (the edge), circular
    (of what is left where a side crops)."""
    ...

def pad_packed_sequence(data: Tensor, batch_sizes: TensorLike, batch_first: _bool = ..., padding_value: _float = ..., total_length: Optional[_int] = ...) -> Tuple[Tensor, Tensor]:
    """Undoes pack_padded_sequence: data [total of the lengths, ..] and batch_sizes, i64 [T], give [T, B, ..] ([B, T,
    ..] with batch_first; total_length takes T's place) with padding_value behind the ends, and the lengths, i64 [B]
    on the CPU. ShapeError, ValueError."""
    ...

def pad_sequence(sequences: Sequence[Optional[Tensor]], batch_first: _bool = ..., padding_value: _float = ..., padding_side: str = ...) -> Tensor:
    """Sequences [T_i, ..] as one tensor [T, B, ..] ([B, T, ..] with batch_first), T being the longest: the ends of the
    others (with padding_side "left" their beginnings) are padding_value. ShapeError, ValueError."""
    ...

def pairwise_distance(x1: Tensor, x2: TensorLike, p: _float = ..., eps: _float = ..., keepdim: _bool = ...) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension. The arguments broadcast and promote. ShapeError."""
    ...

def pdist(input: Tensor, p: _float = ...) -> Tensor:
    """The p-norms of the differences of all pairs of rows i < j of input [N, M], in the order (0, 1), (0, 2), ..: [N
    (N - 1) / 2]. ShapeError, and ValueError where p is negative."""
    ...

def permute(input: Tensor, dim: Ints) -> Tensor:
    """Dimension i of the result is dimension dims[i] of x, as a view."""
    ...

def pick_along(input: Tensor, indices: TensorLike, shape: Ints, dim: _int) -> Tensor:
    """The elements of x (of the given shape) at `indices` along dim: what max and cummax select. indices has x's rank."""
    ...

def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor:
    """[.., C r^2, H, W] to [.., C, H r, W r]: r^2 channels become an r x r block (Shi et al., arXiv:1609.05158).
    ShapeError, ValueError unless r > 0."""
    ...

def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor:
    """The inverse of pixel_shuffle: [.., C, H r, W r] to [.., C r^2, H, W]. ShapeError, ValueError unless r > 0."""
    ...

def plane_gather(input: Tensor, positions: TensorLike) -> Tensor:
    """y[.., i] = x[.., positions[.., i]], and 0 for positions outside x's last dimension. The gradient of
    plane_scatter."""
    ...

def plane_scatter(y: Tensor, positions: TensorLike, size: Ints) -> Tensor:
    """Adds each element of y into zeros whose last dimensions are `size`, at its row-major position in the plane;
    positions outside the plane are skipped. The gradient of adaptive_max_pool."""
    ...

def poisson(rate: Tensor, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Numbers of events where `rate` are expected, in rate's dtype: by products of uniform numbers below 10, from
    there by transformed rejection (Hoermann, 1993). NaN where the rate is negative or NaN. Element i depends on
    key, i and its rate alone. The gradient is taken as 0. DTypeError."""
    ...

def poisson_nll_loss(input: Tensor, target: TensorLike, log_input: _bool = ..., full: _bool = ..., eps: _float = ..., reduction: str = ...) -> Tensor:
    """exp(input) - target input, the negative logarithm of a Poisson probability without its constant, for the
    logarithm of the rate; with log_input false, input - target log(input + eps) for the rate itself. full adds
    Stirling's approximation of log(target!) where target > 1. Averaged (mean), added (sum) or as it is (none). The
    arguments broadcast and promote."""
    ...

def polygamma(n: _int, x: TensorLike) -> Tensor:
    """The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x), DLMF 5.15.1. ValueError for a negative n."""
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

def prelu(input: Tensor, weight: TensorLike) -> Tensor:
    """input where positive, else weight input: weight has one element, or one for each channel input.size(1) (He et
    al., arXiv:1502.01852). The gradient at 0 is that of the negative side. ShapeError."""
    ...

def prod(input: Tensor, dim: Ints = ..., keepdim: _bool = ...) -> Tensor:
    """Product over dims, or over everything. Integers and bool multiply in i64. 1 for no elements."""
    ...

def put(input: Tensor, index: TensorLike, source: TensorLike, accumulate: _bool = ...) -> Tensor:
    """x with the elements at places index of the flattened x replaced by (or increased by) those of source, which has
    as many elements as index. Negative places count from the end."""
    ...

def put_(input: Tensor, index: TensorLike, source: TensorLike, accumulate: _bool = ...) -> Tensor:
    """put(), written over the first argument."""
    ...

def put_along(g: Tensor, indices: TensorLike, shape: Ints, dim: _int) -> Tensor:
    """g added into zeros of the given shape at `indices` along dim: the gradient of pick_along."""
    ...

def quantile(input: Tensor, query: TensorLike, dim: Optional[_int] = ..., keepdim: _bool = ..., interpolation: str = ...) -> Tensor:
    """The values below which the shares q (0-dim or 1-D) of the elements along dim, or of all, lie: place q (n - 1) of
    the elements in order, between two of them by linear, lower, higher, midpoint or nearest. A 1-D q comes first in
    the shape. NaN where an element is NaN."""
    ...

def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees: x * 180 / pi; integers become default_dtype()."""
    ...

def rad2deg_(input: Tensor) -> Tensor:
    """rad2deg(), written over the first argument."""
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

def relu6(input: Tensor) -> Tensor:
    """input limited to [0, 6]; the gradient at the bounds is 0."""
    ...

def remainder(input: Tensor, other: TensorLike) -> Tensor:
    """a - b * floor(a / b): it has the sign of b, as Python's %. ValueError for an integer division by zero."""
    ...

def remainder_(input: Tensor, other: TensorLike) -> Tensor:
    """remainder(), written over the first argument."""
    ...

def renormed_rows(weight: Tensor, indices: TensorLike, max_norm: _float, norm_type: _float = ...) -> Tuple[Tensor, Tensor]:
    """Which rows of weight [V, D] indices name, each once and in ascending order, and these rows, scaled down to
    max_norm where their norm_type-norm is above it: what embedding_renorm writes into the table. Not
    differentiable. ShapeError, DTypeError, ValueError, IndexError."""
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

def resize(input: Tensor, size: Ints, mode: str = ..., align_corners: _bool = ..., scale: _float = ..., second_scale: Optional[_float] = ..., third_scale: Optional[_float] = ...) -> Tensor:
    """The last one to three dimensions resized to `size`: the nearest element ("nearest" by the output's start,
    "nearest-exact" by its middle), or linear in each of them. scale is the step in the input for one in the result;
    0 takes it from the sizes. second_scale and third_scale are those of the second and third of the dimensions,
    where they differ. interpolate is the friendlier form."""
    ...

def resize_axis(input: Tensor, dim: _int, size: _int, mode: str = ..., align_corners: _bool = ..., antialias: _bool = ..., scale: _float = ...) -> Tensor:
    """Dimension `dim` resized to `size` by a filter: linear, or cubic convolution (Keys, 1981, with a = -0.75; -0.5
    with antialias). With antialias the filter is as wide as the step where that is more than 1, and its weights add
    up to 1. scale is the step in the input for one in the result; 0 takes it from the sizes. interpolate is the
    friendlier form. ShapeError, ValueError."""
    ...

def rms_norm(input: Tensor, normalized_shape: Ints, weight: Optional[Tensor] = ..., eps: _float = ...) -> Tuple[Tensor, Tensor]:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions, which must be normalized_shape (Zhang and Sennrich,
    arXiv:1910.07467). rstd = 1 / sqrt(mean(x^2) + eps) is kept for the gradient, in f32 (f64 for f64). weight may
    be f32 where x is bf16 or f16. ShapeError when the shapes do not fit. The function rms_norm returns y alone."""
    ...

def rnn_relu(input: Tensor, hx: Optional[Tensor], params: Sequence[Optional[Tensor]], has_biases: _bool = ..., num_layers: _int = ..., dropout: _float = ..., train: _bool = ..., bidirectional: _bool = ..., batch_first: _bool = ..., batch_sizes: Optional[Tensor] = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tuple[Tensor, Tensor]:
    """Layers of h' = relu(W_ih x + b_ih + W_hh h + b_hh) over a sequence: the last layer's output [T, B, directions
    hidden] and the last states. The input is [T, B, in] ([B, T, in] with batch_first), [T, in], or with batch_sizes
    (i64 [T], how many of the sequences have each step, never rising) packed: [total of the lengths, in], the first
    step of all sequences, then the second of those that have one, and so on. States are [layers directions, B,
    hidden]; without hx they start at zero. params holds, for each layer and direction, W_ih [gates hidden, in],
    W_hh [gates hidden, hidden] and, with has_biases, b_ih and b_hh. With train, what each layer but the last gives
    is dropped with probability dropout: element i of layer l by number i of the key's stream from block l
    ceil(elements / 4) on; the key comes from the default generator where there is none. ShapeError, ValueError."""
    ...

def rnn_relu_cell(input: Tensor, hx: Optional[Tensor], w_ih: TensorLike, w_hh: TensorLike, b_ih: Optional[Tensor] = ..., b_hh: Optional[Tensor] = ...) -> Tensor:
    """One step of rnn_relu: rnn_tanh_cell with relu in tanh's place. ShapeError."""
    ...

def rnn_tanh(input: Tensor, hx: Optional[Tensor], params: Sequence[Optional[Tensor]], has_biases: _bool = ..., num_layers: _int = ..., dropout: _float = ..., train: _bool = ..., bidirectional: _bool = ..., batch_first: _bool = ..., batch_sizes: Optional[Tensor] = ..., key: Optional[Tuple[_int, _int]] = ...) -> Tuple[Tensor, Tensor]:
    """Layers of h' = tanh(W_ih x + b_ih + W_hh h + b_hh) over a sequence: the last layer's output [T, B, directions
    hidden] and the last states. The input is [T, B, in] ([B, T, in] with batch_first), [T, in], or with batch_sizes
    (i64 [T], how many of the sequences have each step, never rising) packed: [total of the lengths, in], the first
    step of all sequences, then the second of those that have one, and so on. States are [layers directions, B,
    hidden]; without hx they start at zero. params holds, for each layer and direction, W_ih [gates hidden, in],
    W_hh [gates hidden, hidden] and, with has_biases, b_ih and b_hh. With train, what each layer but the last gives
    is dropped with probability dropout: element i of layer l by number i of the key's stream from block l
    ceil(elements / 4) on; the key comes from the default generator where there is none. ShapeError, ValueError."""
    ...

def rnn_tanh_cell(input: Tensor, hx: Optional[Tensor], w_ih: TensorLike, w_hh: TensorLike, b_ih: Optional[Tensor] = ..., b_hh: Optional[Tensor] = ...) -> Tensor:
    """One step of rnn_tanh: tanh(w_ih x + b_ih + w_hh h + b_hh) for input [B, in] or [in], w_ih [hidden, in], w_hh
    [hidden, hidden] and hx [B, hidden] or [hidden], zeros where not given. ShapeError."""
    ...

def roll(input: Tensor, shifts: Ints, dim: Ints = ...) -> Tensor:
    """Elements moved by shifts[i] places along dims[i]; those beyond the end come back at the start. Without dims the
    flattened x is rolled."""
    ...

def rot90(input: Tensor, key: _int = ..., dim: Ints = ...) -> Tensor:
    """x turned k times by 90 degrees, from the first of two different dims to the second."""
    ...

def rotary(input: Tensor, cos: TensorLike, sin: TensorLike, interleaved: _bool = ..., inverse: _bool = ...) -> Tensor:
    """Turns pairs of elements of each row of x [..., T, D] by angles: (a, b) becomes (a cos - b sin, a sin + b cos);
    with inverse, by the opposite angles. cos and sin are [T, P], 2 P <= D, f32 (f64 where x is f64); pair i is (i,
    i + P), or (2i, 2i + 1) where interleaved; elements from 2P on stay (Su et al., RoFormer, arXiv:2104.09864). The
    result's dimensions lie in memory in x's order. ShapeError, DTypeError when the tables do not fit."""
    ...

def round(input: Tensor, decimals: _int = ...) -> Tensor:
    """The nearest number of so many decimals, halves to even, in x's dtype: x * 10^decimals rounded and divided again,
    so what the product loses is lost. Negative: the nearest multiple of 10^-decimals. Integers stay."""
    ...

def round_(input: Tensor, decimals: _int = ...) -> Tensor:
    """round(), written over the first argument."""
    ...

def rows_by_frequency(weight: Tensor, indices: TensorLike) -> Tensor:
    """weight [V, D] itself, as a view, whose gradient has row v divided by how often v is among indices: what
    embedding and embedding_bag read where gradients are to be scaled by frequency. ShapeError, DTypeError."""
    ...

def rrelu(input: Tensor, lower: _float, upper: _float, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """input where positive, else input times a slope, uniform in [lower, upper): number i of the key's stream is that
    of element i (Xu et al., arXiv:1505.00853). ValueError where lower is above upper."""
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

def scaled_matmul(input: Tensor, other: TensorLike, scale_a: TensorLike, scale_b: TensorLike, bias: Optional[Tensor] = ..., a_format: str = ..., b_format: str = ..., dtype: DTypeLike = ...) -> Tensor:
    """(a b) * scale_a * scale_b + bias for eight-bit matrices a [m, k] and b [k, n]: fp8 codes (u8) of the given
    formats, or i8 (the formats count for nothing then). Scales (f32) have one element or the shapes [m, 1] and [1,
    n]; bias [n] has the result's dtype, bf16, f16 or f32. Sums run in f32 (of fp8 on a Hopper card with about 14
    bits in between), for i8 in i32, and are rounded once. Not differentiable."""
    ...

def scaled_modified_bessel_k0(input: Tensor) -> Tensor:
    """exp(x) modified_bessel_k0(x)."""
    ...

def scaled_modified_bessel_k0_(input: Tensor) -> Tensor:
    """scaled_modified_bessel_k0(), written over the first argument."""
    ...

def scaled_modified_bessel_k1(input: Tensor) -> Tensor:
    """exp(x) modified_bessel_k1(x)."""
    ...

def scaled_modified_bessel_k1_(input: Tensor) -> Tensor:
    """scaled_modified_bessel_k1(), written over the first argument."""
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

def scatter_reduce(input: Tensor, dim: _int, index: TensorLike, src: TensorLike, reduce: str, include_self: _bool = ...) -> Tensor:
    """x with src[i][j][k] joined to x[index[i][j][k]][j][k] for dim 0, and so on, by sum, prod, mean (of integers
    rounded down), amax or amin; NaN wins. Without include_self what was there does not count where something is
    sent. src may be larger than index. Equal extremes share the gradient."""
    ...

def scatter_reduce_(input: Tensor, dim: _int, index: TensorLike, src: TensorLike, reduce: str, include_self: _bool = ...) -> Tensor:
    """scatter_reduce(), written over the first argument."""
    ...

def searchsorted(sorted: Tensor, values: TensorLike, right: _bool = ..., out_int32: _bool = ...) -> Tensor:
    """For each value the number of elements of sorted (ascending along its last dimension) that are below it, or with
    right not above it (i64, or i32 with out_int32). sorted is 1-D, or agrees with values in all dimensions but the
    last. One dtype."""
    ...

def select(input: Tensor, dim: _int, index: _int) -> Tensor:
    """The index-th sub-tensor along dim, which disappears, as a view. A negative index counts from the end."""
    ...

def select_scatter(input: Tensor, src: TensorLike, dim: _int, index: _int) -> Tensor:
    """A copy of x with src in the place of select(x, dim, index)."""
    ...

def selu(input: Tensor) -> Tensor:
    """scale input where positive, else scale alpha (exp(input) - 1) with alpha 1.67326.. and scale 1.05070.., which
    keep mean 0 and variance 1 (Klambauer et al., arXiv:1706.02515)."""
    ...

def sgn(input: Tensor) -> Tensor:
    """sign(x): there are no complex numbers, for which the two differ."""
    ...

def sgn_(input: Tensor) -> Tensor:
    """sgn(), written over the first argument."""
    ...

def shifted_chebyshev_polynomial_t(input: Tensor, n: TensorLike) -> Tensor:
    """chebyshev_polynomial_t of 2x - 1."""
    ...

def shifted_chebyshev_polynomial_u(input: Tensor, n: TensorLike) -> Tensor:
    """chebyshev_polynomial_u of 2x - 1."""
    ...

def shifted_chebyshev_polynomial_v(input: Tensor, n: TensorLike) -> Tensor:
    """chebyshev_polynomial_v of 2x - 1."""
    ...

def shifted_chebyshev_polynomial_w(input: Tensor, n: TensorLike) -> Tensor:
    """chebyshev_polynomial_w of 2x - 1."""
    ...

def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    ...

def sigmoid_(input: Tensor) -> Tensor:
    """sigmoid(), written over the first argument."""
    ...

def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 as x is negative, 0 or positive; NaN stays. DTypeError for bool."""
    ...

def sign_(input: Tensor) -> Tensor:
    """sign(), written over the first argument."""
    ...

def signal_window(name: str, size: _int, a: _float, sym: _bool = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """The window of signal processing of that name at size points, 1-D: bartlett, blackman, cosine, exponential (a:
    the length of its decay), gaussian (a: its standard deviation), general_hamming (a: its alpha), hamming, hann,
    kaiser (a: its beta), nuttall; a says nothing to the others. Without sym the last point of the symmetric window
    of one more is left out, as for spectra. Formulas: Harris, On the use of windows for harmonic analysis with the
    discrete Fourier transform (1978)."""
    ...

def signbit(input: Tensor) -> Tensor:
    """Whether the sign bit is set, that of -0 and of a negative NaN too; bool. Integers: whether x < 0."""
    ...

def silu(input: Tensor) -> Tensor:
    """x * sigmoid(x), also known as swish; arXiv:1606.08415."""
    ...

def silu_(input: Tensor) -> Tensor:
    """silu(), written over the first argument."""
    ...

def sin(input: Tensor) -> Tensor:
    """The sine of x in radians."""
    ...

def sin_(input: Tensor) -> Tensor:
    """sin(), written over the first argument."""
    ...

def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x); 1 at 0, and 0 exactly at the other integers."""
    ...

def sinc_(input: Tensor) -> Tensor:
    """sinc(), written over the first argument."""
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

def slice_scatter(input: Tensor, src: TensorLike, dim: _int = ..., start: Optional[_int] = ..., end: Optional[_int] = ..., step: _int = ...) -> Tensor:
    """A copy of x with src in the place of slice(x, dim, start, end, step)."""
    ...

def smooth_l1_loss(input: Tensor, target: TensorLike, reduction: str = ..., beta: _float = ...) -> Tensor:
    """With d = input - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2 (Girshick, arXiv:1504.08083);
    averaged (mean), added (sum) or as it is (none). beta 0 is l1_loss. The arguments broadcast and promote.
    ValueError where beta is negative."""
    ...

def smooth_l1_pairs(input: Tensor, target: TensorLike, reduction: str = ..., beta: _float = ...) -> Tensor:
    """With d = x - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2; averaged (mean), added (sum) or as it
    is (none). The arguments broadcast and promote. ValueError unless beta > 0."""
    ...

def soft_margin_loss(input: Tensor, target: TensorLike, reduction: str = ...) -> Tensor:
    """log(1 + exp(-target input)) for targets of 1 and -1, without overflow; averaged (mean), added (sum) or as it is
    (none). The arguments broadcast and promote."""
    ...

def softmax(input: Tensor, dim: _int) -> Tensor:
    """exp(x) divided by its sum along dim, with the maximum subtracted first so that large values do not overflow. The
    result has x's shape and dtype. IndexError when dim is out of range, DTypeError unless x is floating."""
    ...

def softmin(input: Tensor, dim: _int) -> Tensor:
    """softmax(-input) along `dim`. IndexError, DTypeError."""
    ...

def softplus(input: Tensor, beta: _float = ..., threshold: _float = ...) -> Tensor:
    """log(1 + exp(beta * x)) / beta, or x where beta * x > threshold (the difference is then below rounding)."""
    ...

def softplus_(input: Tensor, beta: _float = ..., threshold: _float = ...) -> Tensor:
    """softplus(), written over the first argument."""
    ...

def softshrink(input: Tensor, lambd: _float = ...) -> Tensor:
    """input nearer to 0 by lambd, 0 where |input| <= lambd. ValueError where lambd is negative."""
    ...

def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    ...

def sort(input: Tensor, dim: _int = ..., descending: _bool = ...) -> Tuple[Tensor, Tensor]:
    """The elements of each row along dim in order, and where they came from (i64). Stable; NaN counts as the largest."""
    ...

def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, the spherical Bessel function of order 0; 1 at 0."""
    ...

def spherical_bessel_j0_(input: Tensor) -> Tensor:
    """spherical_bessel_j0(), written over the first argument."""
    ...

def spherical_bessel_jn(input: Tensor, n: _int) -> Tensor:
    """The spherical Bessel function of the first kind and order n, 0 to 16; ValueError for another. DLMF 10.47.3."""
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

def standard_gamma(concentration: Tensor, key: Optional[Tuple[_int, _int]] = ...) -> Tensor:
    """Gamma numbers of rate 1 (Marsaglia and Tsang, ACM TOMS 26, 2000); NaN where the concentration is negative or
    NaN, 0 where it is 0. Element i depends on key, i and its concentration alone. The gradient is
    standard_gamma_grad. DTypeError."""
    ...

def standard_gamma_grad(concentration: Tensor, sample: TensorLike) -> Tensor:
    """The derivative of gamma numbers (of rate 1) for their concentration at a fixed share below them: -(dP / da) /
    (dP / dx), P being the distribution function (Figurnov et al., arXiv:1805.08498). The arguments broadcast and
    promote. NaN for a concentration that is not positive."""
    ...

def std(input: Tensor, dim: Ints = ..., correction: _float = ..., keepdim: _bool = ...) -> Tensor:
    """The square root of var. Where it is 0, so is the gradient."""
    ...

def std_mean(input: Tensor, dim: Ints = ..., correction: _float = ..., keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """std and mean over the same dims."""
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

def swiglu_packed(input: Tensor) -> Tensor:
    """swiglu of the two halves of x's last dimension: silu(x[..., :N]) * x[..., N:] for x [..., 2 N]. ShapeError when
    that dimension is odd. The C++ function is swiglu(x)."""
    ...

def take(input: Tensor, index: TensorLike) -> Tensor:
    """The elements at places index of the flattened x, in index's shape. Negative places count from the end."""
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

def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    ...

def tensor_split(input: Tensor, sections: _int, dim: _int = ...) -> Tuple[Tensor, ...]:
    """`sections` views along dim, as equal as can be, the longer ones first; at most 2^20."""
    ...

def tensordot(input: Tensor, other: TensorLike, dims_a: Ints, dims_b: Ints) -> Tensor:
    """Sums of products over the dimensions dims_a of a and dims_b of b, taken in pairs; the result has a's other
    dimensions, then b's. A size of 1 meets any other, which is summed. No dims: all products."""
    ...

def threshold(input: Tensor, threshold: _float, value: _float) -> Tensor:
    """input where it is above threshold (or NaN), else value."""
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

def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal; integers in i64. ShapeError unless x is a matrix."""
    ...

def transpose(input: Tensor, a: _int, b: _int) -> Tensor:
    """Exchanges dimensions a and b, as a view."""
    ...

def trapezoid(y: Tensor, x: Optional[Tensor] = ..., dx: _float = ..., dim: _int = ...) -> Tensor:
    """The integral of y along dim by trapezoids, over points x (1-D, or broadcast to y) or steps of dx. Integers are
    converted to the default dtype."""
    ...

def triangle_indices(lower: _bool, rows: _int, cols: _int, offset: _int = ..., device: DeviceLike = ...) -> Tensor:
    """[2, k] i64: rows and columns of the elements of a [rows, cols] matrix on and below (lower) or on and above the
    offset-th diagonal, in row-major order: tril_indices and triu_indices."""
    ...

def tril(input: Tensor, diagonal: _int = ...) -> Tensor:
    """The matrices of the last two dimensions with zeros above the diagonal-th diagonal."""
    ...

def tril_(input: Tensor, diagonal: _int = ...) -> Tensor:
    """tril(), written over the first argument."""
    ...

def triplet_margin_loss(anchor: Tensor, positive: TensorLike, negative: TensorLike, margin: _float = ..., p: _float = ..., eps: _float = ..., swap: _bool = ..., reduction: str = ...) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) with d pairwise_distance of p and eps; with swap the
    negative's distance is that from anchor or positive, whichever is smaller (Balntas et al., 2016). Averaged
    (mean), added (sum) or as it is (none). ShapeError unless all have one number of dimensions."""
    ...

def triplet_margin_of_distances(near: Tensor, far: TensorLike, between: Optional[Tensor] = ..., margin: _float = ..., reduction: str = ...) -> Tensor:
    """max(0, near - far + margin), what triplet losses are made of: near are the distances of anchor and positive, far
    those of anchor and negative, between those of positive and negative; where given, the smaller of far and
    between counts (swap, Balntas et al., 2016). Averaged (mean), added (sum) or as it is (none)."""
    ...

def triu(input: Tensor, diagonal: _int = ...) -> Tensor:
    """The matrices of the last two dimensions with zeros below the diagonal-th diagonal."""
    ...

def triu_(input: Tensor, diagonal: _int = ...) -> Tensor:
    """triu(), written over the first argument."""
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

def uniform(shape: Ints, low: _float, high: _float, key: Optional[Tuple[_int, _int]] = ..., dtype: DTypeLike = ..., device: DeviceLike = ...) -> Tensor:
    """Uniform in [low, high). Element i depends on key and i only. Numbers come from Philox4x32-10 (Salmon et al.,
    2011): one 32-bit number an element, two for f64."""
    ...

def unique(input: Tensor, return_inverse: _bool = ..., return_counts: _bool = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """The different values of x in ascending order, 1-D; where each element of x is among them (x's shape); how often
    each occurs. What was not asked for is an empty tensor. Every NaN counts as different. Not differentiable."""
    ...

def unique_consecutive(input: Tensor, return_inverse: _bool = ..., return_counts: _bool = ..., dim: Optional[_int] = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """The first of each run of equal slices along dim (of equal elements of the flattened x without one); which run
    each is in (without dim of x's shape); how long each is. What was not asked for is an empty tensor. Worked out
    on the host. Not differentiable."""
    ...

def unique_dim(input: Tensor, dim: _int, return_inverse: _bool = ..., return_counts: _bool = ...) -> Tuple[Tensor, Tensor, Tensor]:
    """The different slices of x along dim in ascending (lexicographic) order; which of them each slice is; how often
    each occurs: unique(x, dim). What was not asked for is an empty tensor. A slice with NaN equals none. Worked out
    on the host. Not differentiable."""
    ...

def vander(input: Tensor, n: Optional[_int] = ..., increasing: _bool = ...) -> Tensor:
    """Powers n - 1, ..., 0 (increasing: 0, ..., n - 1) of each element of a vector, a row each; n defaults to the
    vector's length. Running products, so gradients are right at 0 too."""
    ...

def var(input: Tensor, dim: Ints = ..., correction: _float = ..., keepdim: _bool = ...) -> Tensor:
    """Sum of squared differences from the mean over dims, divided by the number of elements less correction (NaN where
    that leaves nothing). DTypeError for integers."""
    ...

def var_mean(input: Tensor, dim: Ints = ..., correction: _float = ..., keepdim: _bool = ...) -> Tuple[Tensor, Tensor]:
    """var and mean over the same dims."""
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

def vdot(input: Tensor, other: TensorLike) -> Tensor:
    """dot: there are no complex numbers."""
    ...

def view(input: Tensor, shape: Ints) -> Tensor:
    """x's elements in row-major order under another shape, without a copy. One size may be -1. ShapeError when the
    number of elements differs or the strides of x do not allow it (reshape copies in that case)."""
    ...

def vstack(tensors: Sequence[Optional[Tensor]]) -> Tensor:
    """The tensors one after the other along the first dimension; numbers and vectors are rows. Different dtypes are
    promoted."""
    ...

def where(condition: Tensor, a: TensorLike, b: TensorLike) -> Tensor:
    """a where condition, else b; the three broadcast. DTypeError unless condition is bool."""
    ...

def xlog1py(input: Tensor, other: TensorLike) -> Tensor:
    """a * log1p(b), 0 where a is 0; NaN where b is NaN."""
    ...

def xlog1py_(input: Tensor, other: TensorLike) -> Tensor:
    """xlog1py(), written over the first argument."""
    ...

def xlogy(input: Tensor, other: TensorLike) -> Tensor:
    """a * log(b), 0 where a is 0; NaN where b is NaN."""
    ...

def xlogy_(input: Tensor, other: TensorLike) -> Tensor:
    """xlogy(), written over the first argument."""
    ...

def zeta(input: Tensor, other: TensorLike) -> Tensor:
    """Hurwitz's zeta function: the sum of (b + k)^-a over k >= 0, by Euler and Maclaurin's formula, DLMF 25.11.
    Infinite at a = 1 and where b is 0 or a negative integer; NaN for a < 1, and for other negative b unless a is
    whole. The gradient is that in b; AutogradError where a wants one."""
    ...

class internal:
    @staticmethod
    def adaptive_avg_pool_backward(g: Tensor, size: Ints) -> Tensor:
        """Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of
        adaptive_avg_pool."""
        ...

    @staticmethod
    def as_strided_backward(g: Tensor, base_shape: Ints, base_strides: Ints, base_offset: _int, shape: Ints, strides: Ints, offset: _int) -> Tensor:
        """Adds g into a tensor of base_shape where as_strided read it: the gradient of as_strided for a base whose
        elements do not overlap."""
        ...

    @staticmethod
    def avg_pool_backward(g: Tensor, size: Ints, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: _bool = ..., count_include_pad: _bool = ...) -> Tensor:
        """Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of
        avg_pool."""
        ...

    @staticmethod
    def batch_norm_backward(gy: Tensor, x: TensorLike, weight: Optional[Tensor], mean: TensorLike, rstd: TensorLike) -> Tuple[Tensor, Tensor, Tensor]:
        """The gradients of batch_norm in training for x, weight and bias, from the gradient gy of its result and its
        statistics."""
        ...

    @staticmethod
    def clamp_backward(g: Tensor, x: TensorLike, min: Optional[Number] = ..., max: Optional[Number] = ...) -> Tensor:
        """g where min <= x <= max, else 0: the gradient of clamp."""
        ...

    @staticmethod
    def cross_entropy_backward(gloss: Tensor, x: TensorLike, target: TensorLike, lse: TensorLike, ignore_index: _int, reduction: str, label_smoothing: _float) -> Tensor:
        """The gradient of cross_entropy for x [N, C], in one pass: (exp(x - lse) - wanted distribution) times the
        gradient gloss of the loss, 0 in ignored rows."""
        ...

    @staticmethod
    def ctc_backward(gloss: Tensor, log_probs: TensorLike, targets: TensorLike, input_lengths: TensorLike, target_lengths: TensorLike, alpha: TensorLike, blank: _int = ..., zero_infinity: _bool = ...) -> Tensor:
        """The gradient of ctc_forward for log_probs: -gloss times the probability that a step has a class, given that
        the labels come out. NaN for a sequence whose labels have no path, 0 with zero_infinity; 0 past a sequence's
        steps."""
        ...

    @staticmethod
    def diagonal_backward(g: Tensor, shape: Ints, offset: _int = ..., dim1: _int = ..., dim2: _int = ...) -> Tensor:
        """Zeros of the given shape with g on a diagonal: the gradient of diagonal."""
        ...

    @staticmethod
    def elu_backward(g: Tensor, x: TensorLike, alpha: _float) -> Tensor:
        """g where x > 0, else g * alpha * exp(x): the gradient of elu."""
        ...

    @staticmethod
    def embedding_backward(gy: Tensor, indices: TensorLike, rows: _int, padding_idx: Optional[_int] = ...) -> Tensor:
        """The gradient of embedding for its table of `rows` rows: row v is the sum of the rows of gy at the positions
        that hold index v, added in f32 in the order of the positions (on CUDA in parts, each in that order; the
        same bits in every call and for any number of threads); row padding_idx is 0. IndexError for an index
        outside the table."""
        ...

    @staticmethod
    def embedding_bag_backward(g: Tensor, indices: TensorLike, offsets: TensorLike, per_sample_weights: Optional[Tensor], rows: _int, mean: _bool = ..., padding_idx: Optional[_int] = ...) -> Tensor:
        """The gradient of embedding_bag_sum for its table of `rows` rows: row v is the sum of the rows of g of the
        bags that hold index v, each times what the index counts there, added in f32 in the order of the positions
        (on CUDA in parts, each in that order; the same bits in every call and for any number of threads)."""
        ...

    @staticmethod
    def gelu_backward(g: Tensor, x: TensorLike, approximate: str = ...) -> Tensor:
        """g times the derivative of gelu at x: Phi(x) + x * phi(x), phi the normal density, or that of the tanh form."""
        ...

    @staticmethod
    def grid_sample_backward_grid(g: Tensor, x: TensorLike, grid: TensorLike, mode: str, padding_mode: str, align_corners: _bool) -> Tensor:
        """The gradient of grid_sample for its positions; 0 for mode nearest, and where a position was moved to the
        border."""
        ...

    @staticmethod
    def grid_sample_backward_input(g: Tensor, grid: TensorLike, size: Ints, mode: str, padding_mode: str, align_corners: _bool) -> Tensor:
        """The gradient of grid_sample for its input, whose spatial sizes are `size`: each element of g added to the
        elements that its position read, by their weights, in an order that is always the same."""
        ...

    @staticmethod
    def group_norm_backward(gy: Tensor, x: TensorLike, num_groups: _int, weight: Optional[Tensor], mean: TensorLike, rstd: TensorLike) -> Tuple[Tensor, Tensor, Tensor]:
        """The gradients of group_norm for x, weight and bias, from the gradient gy of its result and its statistics."""
        ...

    @staticmethod
    def hardswish_backward(g: Tensor, x: TensorLike) -> Tensor:
        """g times the derivative of hardswish at x: 0 below -3, 1 above 3, else x / 3 + 1/2."""
        ...

    @staticmethod
    def hardswish_backward_(g: Tensor, x: TensorLike) -> Tensor:
        """hardswish_backward(), written over the first argument."""
        ...

    @staticmethod
    def hardtanh_backward(g: Tensor, x: TensorLike, min: _float, max: _float) -> Tensor:
        """g where min < x < max, else 0: the gradient of hardtanh."""
        ...

    @staticmethod
    def layer_norm_backward(gy: Tensor, x: TensorLike, normalized_shape: Ints, weight: Optional[Tensor], mean: TensorLike, rstd: TensorLike, gsum: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor, Tensor]:
        """The gradients of layer_norm for x, weight and bias, from the gradient gy of its result and the mean and rstd
        that it saved; where gsum is given, it is added to gx. The weight's gradient is summed over the rows in f32
        in a fixed order."""
        ...

    @staticmethod
    def leaky_relu_backward(g: Tensor, x: TensorLike, negative_slope: _float) -> Tensor:
        """g where x > 0, else negative_slope * g: the gradient of leaky_relu."""
        ...

    @staticmethod
    def linear_cross_entropy_backward(gloss: Tensor, x: TensorLike, weight: TensorLike, target: TensorLike, lse: TensorLike, ignore_index: _int, reduction: str, label_smoothing: _float) -> Tuple[Tensor, Tensor]:
        """The gradients of linear_cross_entropy for x [N, D] and weight [C, D] from the gradient gloss of its loss and
        the lse [N] that it kept. The logits are computed again, by chunks of rows."""
        ...

    @staticmethod
    def linear_cross_entropy_gradients(input: Tensor, weight: TensorLike, target: TensorLike, ignore_index: _int = ..., reduction: str = ..., label_smoothing: _float = ..., of_sum: _bool = ...) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """linear_cross_entropy, mean or sum, with its gradients at once, so that no product is done twice. The
        gradient of loss is gx and gweight times share [] times its own gradient; they have no gradients themselves.
        With of_sum gx and gweight are those of the rows' sum and share is what the loss is of that sum (1 over the
        number of rows that count, or 1): so nothing of f16 is lost before a loss scaler's factor comes. Else they
        are those of loss, and share is 1."""
        ...

    @staticmethod
    def log_softmax_backward(gy: Tensor, y: TensorLike, dim: _int) -> Tensor:
        """The gradient of log_softmax from its result y and that result's gradient gy: gy - exp(y) * sum(gy), the sum
        along dim. ShapeError unless gy and y have one shape."""
        ...

    @staticmethod
    def matmul_gelu_grad(g: Tensor, weight: TensorLike, pre: TensorLike) -> Tensor:
        """gelu_backward(matmul(g, weight), pre, "tanh") in one step: the gradient of gelu's argument when gelu's
        result goes through linear with that weight. g [.., n], weight [n, k], pre [.., k] -> [.., k]."""
        ...

    @staticmethod
    def max_pool_backward(g: Tensor, positions: TensorLike, size: Ints, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Tensor:
        """Adds each element of g to the input that won its window, by the positions that max_pool gave for an input of
        spatial size `size`: the gradient of max_pool. Positions outside their window, which max_pool does not give,
        may be left out."""
        ...

    @staticmethod
    def mish_backward(g: Tensor, x: TensorLike) -> Tensor:
        """g times the derivative of mish at x: with t = tanh(softplus(x)), t + x * sigmoid(x) * (1 - t^2)."""
        ...

    @staticmethod
    def mish_backward_(g: Tensor, x: TensorLike) -> Tensor:
        """mish_backward(), written over the first argument."""
        ...

    @staticmethod
    def packed_attention_backward(gout: Tensor, glse: Optional[Tensor], qkv: TensorLike, out: TensorLike, lse: TensorLike, heads: _int, kv_heads: _int, is_causal: _bool, scale: Optional[_float], window: _int) -> Tensor:
        """The gradient of packed_attention for qkv, from the gradients of its results out and (where given) lse. The
        same bits for any number of threads."""
        ...

    @staticmethod
    def relu_backward(g: Tensor, y: TensorLike) -> Tensor:
        """g where y > 0, else 0: the gradient of relu from its result or its argument."""
        ...

    @staticmethod
    def relu_backward_(g: Tensor, y: TensorLike) -> Tensor:
        """relu_backward(), written over the first argument."""
        ...

    @staticmethod
    def resize_axis_backward(g: Tensor, dim: _int, size: _int, mode: str = ..., align_corners: _bool = ..., antialias: _bool = ..., scale: _float = ...) -> Tensor:
        """The gradient of resize_axis: each element of g added to the inputs it came from, by their weights. `size` is
        the input's."""
        ...

    @staticmethod
    def resize_backward(g: Tensor, size: Ints, mode: str = ..., align_corners: _bool = ..., scale: _float = ..., second_scale: Optional[_float] = ..., third_scale: Optional[_float] = ...) -> Tensor:
        """The gradient of resize: each element of g added to the inputs it came from, by their weights. `size` is the
        input's."""
        ...

    @staticmethod
    def rms_norm_backward(gy: Tensor, x: TensorLike, normalized_shape: Ints, weight: Optional[Tensor], rstd: TensorLike, gsum: Optional[Tensor] = ...) -> Tuple[Tensor, Tensor]:
        """The gradients of rms_norm for x and weight, from the gradient gy of its result and the rstd that it saved.
        The weight's gradient is summed over the rows in f32 in a fixed order."""
        ...

    @staticmethod
    def scaled_dot_product_attention_backward(gout: Tensor, glse: Optional[Tensor], query: TensorLike, k: TensorLike, value: TensorLike, attn_mask: Optional[Tensor], out: TensorLike, lse: TensorLike, is_causal: _bool, scale: Optional[_float], window: _int, query_offset: _int, dropout_p: _float, key: Optional[Tuple[_int, _int]] = ...) -> Tuple[Tensor, Tensor, Tensor]:
        """The gradients of scaled_dot_product_attention for q, k and v, from the gradients gout and (where given) glse
        of its results out and lse. The weights are computed again block by block. The same bits for any number of
        threads."""
        ...

    @staticmethod
    def select_backward(g: Tensor, shape: Ints, dim: _int, index: _int) -> Tensor:
        """Zeros of the given shape with g as the index-th sub-tensor along dim: the gradient of select."""
        ...

    @staticmethod
    def sigmoid_backward(g: Tensor, y: TensorLike) -> Tensor:
        """g * y * (1 - y): the gradient of y = sigmoid(x)."""
        ...

    @staticmethod
    def sigmoid_backward_(g: Tensor, y: TensorLike) -> Tensor:
        """sigmoid_backward(), written over the first argument."""
        ...

    @staticmethod
    def silu_backward(g: Tensor, x: TensorLike) -> Tensor:
        """g times the derivative of silu at x: with s = sigmoid(x), s * (1 + x * (1 - s))."""
        ...

    @staticmethod
    def silu_backward_(g: Tensor, x: TensorLike) -> Tensor:
        """silu_backward(), written over the first argument."""
        ...

    @staticmethod
    def slice_backward(g: Tensor, shape: Ints, dim: _int, start: _int, end: _int, step: _int = ...) -> Tensor:
        """Zeros of the given shape with g in the place that slice took: the gradient of slice."""
        ...

    @staticmethod
    def softmax_backward(gy: Tensor, y: TensorLike, dim: _int) -> Tensor:
        """The gradient of softmax from its result y and that result's gradient gy: y * (gy - sum(gy * y)), the sum
        along dim. ShapeError unless gy and y have one shape."""
        ...

    @staticmethod
    def softplus_backward(g: Tensor, x: TensorLike, beta: _float, threshold: _float) -> Tensor:
        """g * sigmoid(beta * x), or g where beta * x > threshold: the gradient of softplus."""
        ...

    @staticmethod
    def swiglu_backward(gy: Tensor, a: TensorLike, b: TensorLike) -> Tuple[Tensor, Tensor]:
        """The gradients of swiglu for a and b from the gradient gy of its result, in one pass."""
        ...

    @staticmethod
    def swiglu_packed_backward(gy: Tensor, x: TensorLike) -> Tensor:
        """The gradient of swiglu_packed for x from the gradient gy of its result, in one pass."""
        ...

    @staticmethod
    def tanh_backward(g: Tensor, y: TensorLike) -> Tensor:
        """g * (1 - y^2): the gradient of y = tanh(x)."""
        ...

    @staticmethod
    def tanh_backward_(g: Tensor, y: TensorLike) -> Tensor:
        """tanh_backward(), written over the first argument."""
        ...

    @staticmethod
    def unfold_backward(g: Tensor, shape: Ints, dim: _int, size: _int, step: _int) -> Tensor:
        """Adds windows back into a tensor of the given shape: the gradient of unfold."""
        ...

    @staticmethod
    def varlen_attention_backward(gout: Tensor, glse: Optional[Tensor], query: TensorLike, key: TensorLike, value: TensorLike, cu_seqlens_q: TensorLike, cu_seqlens_k: TensorLike, out: TensorLike, lse: TensorLike, is_causal: _bool, scale: Optional[_float], window: _int, query_offset: _int) -> Tuple[Tensor, Tensor, Tensor]:
        """The gradients of varlen_attention for q, k and v, from the gradients gout and (where given) glse of its
        results out and lse; zeros behind the last sequence. The same bits for any number of threads."""
        ...
