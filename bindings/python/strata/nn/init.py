"""Filling parameters; nothing is recorded. Distributions are PyTorch's, the random numbers are the engine's."""

from __future__ import annotations

import warnings
from typing import Any, Callable, TypeVar, Union

from .. import _core as C
from .._core import Tensor
from .._grad_mode import no_grad

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]

T = TypeVar("T", bound=Tensor)


def calculate_gain(nonlinearity: str, param: Union[int, float, None] = None) -> float:
    """The factor by which a nonlinearity's weights are to be larger than a linear layer's."""
    return C._calculate_gain(nonlinearity, 0.01 if param is None else float(param))


_calculate_fan_in_and_fan_out = C._fans  # PyTorch's name, which layers of others use


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return C._fans(tensor)[0 if mode == "fan_in" else 1]


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
    C._eye_(tensor)
    return tensor


def dirac_(tensor: T, groups: int = 1) -> T:
    """A convolution's weight that keeps its input."""
    C._dirac_(tensor, groups)
    return tensor


def xavier_uniform_(tensor: T, gain: float = 1.0) -> T:
    """Uniform in +- gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010)."""
    C._xavier_uniform_(tensor, gain)
    return tensor


def xavier_normal_(tensor: T, gain: float = 1.0) -> T:
    """Normal with standard deviation gain sqrt(2 / (fan_in + fan_out))."""
    C._xavier_normal_(tensor, gain)
    return tensor


def kaiming_uniform_(tensor: T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> T:
    """Uniform in +- gain sqrt(3 / fan) (He et al., arXiv:1502.01852)."""
    C._kaiming_uniform_(tensor, a, mode, nonlinearity)
    return tensor


def kaiming_normal_(tensor: T, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> T:
    """Normal with standard deviation gain / sqrt(fan)."""
    C._kaiming_normal_(tensor, a, mode, nonlinearity)
    return tensor


def orthogonal_(tensor: T, gain: float = 1.0) -> T:
    """Rows (or columns, where there are more rows) that are orthonormal (Saxe et al., arXiv:1312.6120)."""
    C._orthogonal_(tensor, gain)
    return tensor


def sparse_(tensor: T, sparsity: float, std: float = 0.01) -> T:
    """A matrix drawn from N(0, std^2), a share ``sparsity`` of each column 0 (Martens 2010)."""
    C._sparse_(tensor, sparsity, std)
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


uniform, normal, constant, eye = _older(uniform_), _older(normal_), _older(constant_), _older(eye_)
dirac, orthogonal, sparse = _older(dirac_), _older(orthogonal_), _older(sparse_)
xavier_uniform, xavier_normal = _older(xavier_uniform_), _older(xavier_normal_)
kaiming_uniform, kaiming_normal = _older(kaiming_uniform_), _older(kaiming_normal_)
