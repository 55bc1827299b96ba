"""Norms and dropout."""

from __future__ import annotations

from typing import Optional, Sequence

from ... import _core as C
from ... import _functions, _ops as ops, _records as records
from ..._core import Tensor
from ..._grad_mode import no_grad
from .._parts import check_p, replace

__all__ = [
    "batch_norm", "dropout", "dropout1d", "dropout2d", "dropout3d", "group_norm", "instance_norm", "layer_norm",
    "local_response_norm", "normalize", "rms_norm",
]


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None,
               bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:
    """The last dimensions to mean 0 and variance 1, times weight plus bias."""
    return records.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Optional[Tensor] = None,
             eps: Optional[float] = None) -> Tensor:
    """The last dimensions over their root mean square, times weight. ``eps`` None is the dtype's machine
    epsilon."""
    return records.rms_norm(input, normalized_shape, weight, _functions.finfo(input.dtype).eps if eps is None else eps)


def group_norm(input: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5) -> Tensor:
    """Groups of channels of each item of [N, C, ..] to mean 0 and variance 1."""
    return records.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(input: Tensor, running_mean: Optional[Tensor], running_var: Optional[Tensor],
               weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel to mean 0 and variance 1: by the batch in training (the running statistics follow), else by them."""
    if not training and (running_mean is None or running_var is None):
        raise ValueError("Expected running_mean and running_var to be defined when training=False")
    if training and input.numel() == input.shape[1] > 0:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    return C.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input: Tensor, running_mean: Optional[Tensor] = None, running_var: Optional[Tensor] = None,
                  weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Each channel of each item to mean 0 and variance 1."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise ValueError("Expected running_mean and running_var to be defined when use_input_stats=False")
    if use_input_stats and input.numel() // max(1, input.shape[0] * input.shape[1]) <= 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {list(input.shape)}")
    y, mean, var = ops.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    if running_mean is not None and running_var is not None and use_input_stats:
        with no_grad():
            running_mean.copy_(mean)
            running_var.copy_(var)
    return y


local_response_norm, normalize = ops.local_response_norm, ops.normalize


# ---- dropout


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability p and divides the others by 1 - p."""
    check_p(p)
    if not training or p == 0.0:
        return input
    return replace(input, lambda x: C.dropout(x, p), inplace)


def _channel_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    check_p(p)
    return ops.feature_dropout(x, p) if training and p > 0 else x


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, L]."""
    return replace(input, lambda x: _channel_dropout(x, p, training), inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, H, W]."""
    return replace(input, lambda x: _channel_dropout(x, p, training), inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of [N, C, D, H, W] or [C, D, H, W]."""

    def drop(x: Tensor) -> Tensor:
        return _channel_dropout(x.unsqueeze(0), p, training).squeeze(0) if x.dim() == 4 else _channel_dropout(x, p, training)

    return replace(input, drop, inplace)
