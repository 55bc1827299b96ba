"""Filling parameters; nothing is recorded. Distributions are PyTorch's, the random numbers are the engine's."""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable, Optional, Tuple, TypeVar, Union

from .. import _core as C
from .. import _ops as ops
from .._core import Tensor, float64
from .._grad_mode import no_grad

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]

T = TypeVar("T", bound=Tensor)


def calculate_gain(nonlinearity: str, param: Union[int, float, None] = None) -> float:
    """The factor by which a nonlinearity's weights are to be larger than a linear layer's."""
    if nonlinearity in ("linear", "sigmoid") or nonlinearity.startswith("conv"):
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3.0
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else float(param)) ** 2))
    if nonlinearity == "selu":
        return 0.75
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _fans(tensor: Tensor) -> Tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive = math.prod(list(tensor.shape)[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def uniform_(tensor: T, a: float = 0.0, b: float = 1.0) -> T:
    """Uniform in [a, b)."""
    with no_grad():
        tensor.uniform_(a, b)
    return tensor


def normal_(tensor: T, mean: float = 0.0, std: float = 1.0) -> T:
    """Normal."""
    with no_grad():
        tensor.normal_(mean, std)
    return tensor


def trunc_normal_(tensor: T, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> T:
    """Normal, drawn again where it falls outside [a, b]."""
    with no_grad():
        tensor.trunc_normal_(mean, std, a, b)
    return tensor


def constant_(tensor: T, val: float) -> T:
    """One value everywhere."""
    with no_grad():
        tensor.fill_(val)
    return tensor


def ones_(tensor: T) -> T:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: T) -> T:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: T) -> T:
    """The identity matrix."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.copy_(C.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype, device=tensor.device))
    return tensor


def dirac_(tensor: T, groups: int = 1) -> T:
    """A convolution's weight that keeps its input."""
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    out = tensor.shape[0] // groups
    zeros_(tensor)
    middle = tuple(s // 2 for s in list(tensor.shape)[2:])
    with no_grad():
        for group in range(groups):
            for i in range(min(out, tensor.shape[1])):
                tensor[(group * out + i, i) + middle] = 1
    return tensor


_calculate_fan_in_and_fan_out = _fans  # PyTorch's name, which layers of others use


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _fans(tensor)[0 if mode == "fan_in" else 1]


def _old_name(name: str) -> Callable[..., Any]:
    def old(tensor: T, *args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"nn.init.{name} is now deprecated in favor of nn.init.{name}_.", FutureWarning, stacklevel=2)
        return globals()[name + "_"](tensor, *args, **kwargs)

    return old


(uniform, normal, constant, eye, dirac, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal, sparse) = (
    _old_name(name) for name in ("uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal",
                                 "kaiming_uniform", "kaiming_normal", "orthogonal", "sparse"))


def xavier_uniform_(tensor: T, gain: float = 1.0) -> T:
    """Uniform in +- gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010)."""
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: T, gain: float = 1.0) -> T:
    """Normal with standard deviation gain sqrt(2 / (fan_in + fan_out))."""
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan = _fans(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(1, fan))


def kaiming_uniform_(tensor: T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> T:
    """Uniform in +- gain sqrt(3 / fan) (He et al., arXiv:1502.01852)."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> T:
    """Normal with standard deviation gain / sqrt(fan)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: T, gain: float = 1.0) -> T:
    """Rows (or columns, where there are more rows) that are orthonormal (Saxe et al., arXiv:1312.6120)."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        count, size = min(rows, cols), max(rows, cols)
        a = C.normal(0.0, 1.0, [count, size], dtype=float64)
        basis: Optional[Tensor] = None
        for i in range(count):  # Gram-Schmidt, each vector twice for accuracy
            v = a[i]
            if basis is not None:
                for _ in range(2):
                    v = v - ops.matmul(ops.matmul(basis, v), basis)
            v = (v / ops.norm(v)).unsqueeze(0)
            basis = v if basis is None else ops.cat([basis, v], 0)
        assert basis is not None
        q = basis if rows <= cols else basis.transpose(0, 1)
        tensor.copy_((q * gain).reshape(list(tensor.shape)))
    return tensor


def sparse_(tensor: T, sparsity: float, std: float = 0.01) -> T:
    """A matrix drawn from N(0, std^2), a share ``sparsity`` of each column 0 (Martens 2010)."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std)
        for column in range(columns):
            tensor[C.randperm(rows)[:zeros], column] = 0
    return tensor


# ---- the older names, with PyTorch's warning


def _older(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__[:-1]

    def deprecated(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    deprecated.__name__ = deprecated.__qualname__ = name
    deprecated.__doc__ = f"The older name of {name}_()."
    return deprecated


uniform = _older(uniform_)
normal = _older(normal_)
constant = _older(constant_)
eye = _older(eye_)
dirac = _older(dirac_)
xavier_uniform = _older(xavier_uniform_)
xavier_normal = _older(xavier_normal_)
orthogonal = _older(orthogonal_)
sparse = _older(sparse_)
kaiming_uniform = _older(kaiming_uniform_)
kaiming_normal = _older(kaiming_normal_)
