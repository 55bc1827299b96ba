"""Norms. Names, arguments, parameter names and initial values are PyTorch's."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from .. import _records as records
from .._core import Tensor, dtype as DType, int64, ones, zeros
from .._grad_mode import no_grad
from . import functional as F
from . import init
from ._parts import Device, Ints, new_parameter
from .module import Module
from .parameter import Parameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm",
]


class _AffineNorm(Module):
    """A norm with a weight and a bias, either of which may be None."""

    weight: Optional[Parameter]
    bias: Optional[Parameter]

    def _make_affine(self, shape: Sequence[int], weight: bool, bias: bool, device: Device, dtype: Optional[DType]) -> None:
        self.register_parameter("weight", new_parameter(shape, device, dtype) if weight else None)
        self.register_parameter("bias", new_parameter(shape, device, dtype) if bias else None)
        self._reset_affine()

    def _reset_affine(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def reset_parameters(self) -> None:
        """weight 1, bias 0."""
        self._reset_affine()


def _shape_of(normalized_shape: Ints) -> Tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(_AffineNorm):
    """The last dimensions to mean 0 and variance 1. Parameters: weight 1, bias 0, of ``normalized_shape``."""

    def __init__(
        self, normalized_shape: Ints, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape_of(normalized_shape), eps, elementwise_affine
        self._make_affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return records.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """The last dimensions over their root mean square. Parameter: weight 1, of ``normalized_shape``."""

    weight: Optional[Parameter]

    def __init__(
        self, normalized_shape: Ints, eps: Optional[float] = None, elementwise_affine: bool = True,
        device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape_of(normalized_shape), eps, elementwise_affine
        weight = new_parameter(self.normalized_shape, device, dtype) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_AffineNorm):
    """Groups of channels of each item of [N, C, ..] to mean 0 and variance 1. Parameters: weight and bias [C]."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Device = None,
        dtype: Optional[DType] = None, *, bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make_affine([num_channels], affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class _RunningNorm(_AffineNorm):
    running_mean: Optional[Tensor]
    running_var: Optional[Tensor]
    num_batches_tracked: Optional[Tensor]
    ranks: Tuple[int, ...] = ()

    def __init__(
        self, num_features: int, eps: float, momentum: Optional[float], affine: bool, track_running_stats: bool,
        device: Device, dtype: Optional[DType], bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._make_affine([num_features], affine, affine and bias, device, dtype)
        track = track_running_stats
        self.register_buffer("running_mean", zeros([num_features], dtype=dtype, device=device) if track else None)
        self.register_buffer("running_var", ones([num_features], dtype=dtype, device=device) if track else None)
        self.register_buffer("num_batches_tracked", zeros([], dtype=int64, device=device) if track else None)

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1, of no batches."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with no_grad():
                self.running_mean.fill_(0)
                self.running_var.fill_(1)
                self.num_batches_tracked.fill_(0)

    def reset_parameters(self) -> None:
        """weight 1, bias 0, and reset_running_stats()."""
        self.reset_running_stats()
        self._reset_affine()

    def _check_input(self, input: Tensor) -> None:
        if input.dim() not in self.ranks:
            wanted = " or ".join(f"{r}D" for r in self.ranks)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Device = None, dtype: Optional[DType] = None, *, bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean over all batches
                momentum = 1.0 / float(self.num_batches_tracked.item())
        by_batch = self.training or self.running_mean is None
        return F.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight, self.bias, by_batch, momentum, self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Each channel of [N, C] or [N, C, L] over the batch in training, by the running statistics in evaluation."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """The same for [N, C, H, W]."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """The same for [N, C, D, H, W]."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over all processes, of which there is one: BatchNorm of [N, C, ..]."""

    ranks = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Device = None, dtype: Optional[DType] = None,
        *, bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with a SyncBatchNorm in the place of every BatchNorm, over the same parameters and statistics."""
        made: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
                       bias=module.bias is not None)
            for kind in ("_parameters", "_buffers"):
                getattr(made, kind).update(getattr(module, kind))
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _InstanceNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Device = None, dtype: Optional[DType] = None, *, bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input(input)
        unbatched = input.dim() == min(self.ranks)
        x = input.unsqueeze(0) if unbatched else input
        momentum = 0.1 if self.momentum is None else self.momentum
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats, momentum, self.eps)
        return y.squeeze(0) if unbatched else y


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each item of [N, C, L] to mean 0 and variance 1."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """The same for [N, C, H, W]."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """The same for [N, C, D, H, W]."""

    ranks = (4, 5)


class LocalResponseNorm(Module):
    """[N, C, ..] over (k + alpha times the mean of the squares of ``size`` channels around)^beta."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
