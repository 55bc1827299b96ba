"""Parametrisations that are often wanted: weight and spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ... import _core, _ops as ops, linalg
from ..._core import Tensor
from ..._grad_mode import no_grad
from .. import functional as F
from ..module import Module
from .parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: Optional[int] = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim  # -1: one length for all

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return ops.weight_norm(v, g, self.dim)

    def right_inverse(self, weight: Tensor) -> Tuple[Tensor, Tensor]:
        return ops.norm_except_dim(weight, 2.0, self.dim), weight


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        self.dim, self.n_power_iterations, self.eps = dim, n_power_iterations, eps
        rows = weight.shape[dim]
        for name, n in (("_u", rows), ("_v", weight.numel() // rows)):
            drawn = _core.randn(n, dtype=weight.dtype, device=weight.device)
            self.register_buffer(name, F.normalize(drawn, dim=0, eps=eps))
        self._divided(weight.detach(), 15)

    def _divided(self, weight: Tensor, iterations: int) -> Tensor:
        """Also moves _u and _v by so many iterations."""
        y, u, v = ops.spectral_norm(weight, self._u, self._v, iterations, self.dim, self.eps)
        if iterations:
            with no_grad():
                self._u.copy_(u)
                self._v.copy_(v)
        return y

    def forward(self, weight: Tensor) -> Tensor:
        return self._divided(weight, self.n_power_iterations if self.training else 0)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


class _Orthogonal(Module):
    """An orthonormal matrix from a free one, times where it began: the record orthogonal_map."""

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str) -> None:
        super().__init__()
        self.orthogonal_map = orthogonal_map
        q, r = linalg.qr(weight.detach() if weight.shape[0] >= weight.shape[1] else weight.detach().mT, mode="complete")
        sign = ops.sign(ops.diagonal(r))
        k = sign.shape[0]
        self.register_buffer("base", ops.cat([q[:, :k] * sign, q[:, k:]], 1))

    def forward(self, x: Tensor) -> Tensor:
        return ops.orthogonal_map(x, self.orthogonal_map, self.base)

    def right_inverse(self, value: Tensor) -> Tensor:
        start = _core.zeros_like(value)
        start.diagonal().fill_(-1)
        return start


def weight_norm(module: Module, name: str = "weight", dim: Optional[int] = 0) -> Module:
    """The weight as a length (original0) times a direction (original1) for each slice along ``dim`` (arXiv:1602.07868)."""
    return register_parametrization(module, name, _WeightNorm(dim))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: Optional[int] = None) -> Module:
    """The weight over its largest singular value, which power iterations follow (arXiv:1802.05957)."""
    weight = getattr(module, name)
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def orthogonal(module: Module, name: str = "weight", orthogonal_map: Optional[str] = None, *,
               use_trivialization: bool = True) -> Module:
    """A matrix with orthonormal columns (rows, where it is wide), by the map "cayley", "matrix_exp" (the default of
    square ones) or "householder" (of others); it begins at the orthonormal factor of the weight's QR decomposition."""
    if orthogonal_map not in (None, "cayley", "matrix_exp", "householder"):
        raise ValueError(f"orthogonal: the map is cayley, matrix_exp or householder, got {orthogonal_map!r}")
    weight: Any = getattr(module, name)
    if weight.dim() != 2:
        raise ValueError(f"orthogonal: a matrix is wanted, got {list(weight.shape)}")
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map or ""))
