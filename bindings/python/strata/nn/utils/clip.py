"""Gradient clipping, parameters as one vector."""

from __future__ import annotations

import math
import warnings
from typing import Iterable, List, Optional, Union

from ... import _core as C
from ... import _functions as F
from ... import _ops as ops
from ..._core import Tensor
from ..._grad_mode import no_grad

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "vector_to_parameters",
]


def _list(parameters: Union[Tensor, Iterable[Tensor]]) -> List[Tensor]:
    found = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in found if p.grad is not None]


def _checked(total: Tensor, norm_type: float, error_if_nonfinite: bool) -> Tensor:
    if error_if_nonfinite and not math.isfinite(float(total.item())):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients is non-finite, so it cannot be clipped.")
    return total


def get_total_norm(tensors: Union[Tensor, Iterable[Tensor]], norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: Optional[bool] = None) -> Tensor:
    """The norm of all tensors together."""
    found = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    return _checked(ops.total_norm([t.detach() for t in found], float(norm_type)), norm_type, error_if_nonfinite)


def clip_grad_norm_(
    parameters: Union[Tensor, Iterable[Tensor]], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: Optional[bool] = None,
) -> Tensor:
    """Scales gradients in place so that their joint norm is at most ``max_norm``; returns the norm before. A norm that is
    not finite leaves them unchanged (PyTorch makes them NaN)."""
    found = _list(parameters)
    wide = any(g.dtype == C.float64 for p in found if (g := p.grad) is not None)
    norm = C.clip_grad_norm(found, float(max_norm), float(norm_type))
    return _checked(F.tensor(norm, dtype=C.float64 if wide else C.float32), norm_type, error_if_nonfinite)


def clip_grads_with_norm_(parameters: Union[Tensor, Iterable[Tensor]], max_norm: float, total_norm: Tensor,
                          foreach: Optional[bool] = None) -> None:
    """Scales gradients in place by max_norm / total_norm, where that is below 1."""
    C.clip_grads_with_norm(_list(parameters), float(max_norm), total_norm)


def clip_grad_norm(
    parameters: Union[Tensor, Iterable[Tensor]], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: Optional[bool] = None,
) -> Tensor:
    """The older name of clip_grad_norm_(), with PyTorch's warning."""
    warnings.warn("`clip_grad_norm` is now deprecated in favor of `clip_grad_norm_`.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)


def clip_grad_value_(parameters: Union[Tensor, Iterable[Tensor]], clip_value: float, foreach: Optional[bool] = None) -> None:
    """Clamps every element of the gradients to [-clip_value, clip_value], in place."""
    C.clip_grad_value(_list(parameters), float(clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements in one vector."""
    return ops.cat([p.reshape([-1]) for p in parameters], 0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """The inverse: copies the vector's elements into the parameters."""
    start = 0
    with no_grad():
        for p in parameters:
            p.copy_(vec.narrow(0, start, p.numel()).reshape(list(p.shape)))
            start += p.numel()
    if start != vec.numel():
        raise ValueError(f"vector_to_parameters: the vector has {vec.numel()} elements, the parameters have {start}")
