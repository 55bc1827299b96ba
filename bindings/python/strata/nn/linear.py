"""Linear layers, embeddings and layers that only reshape. Names, arguments, parameter names and initial values are
PyTorch's."""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

from .. import _ops as ops
from .._core import Tensor, dtype as DType
from .._grad_mode import no_grad
from . import functional as F
from .functional._linear import check_bag
from . import init
from ._parts import Device, draw_uniform, new_parameter
from .module import Module
from .parameter import Parameter

__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Flatten", "Identity", "Linear", "Unflatten"]


class Identity(Module):
    """Returns what it gets; takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Flatten(Module):
    """Dimensions start_dim to end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        shape = list(input.shape)
        dim = self.dim % len(shape)
        return input.reshape([*shape[:dim], *self.unflattened_size, *shape[dim + 1 :]])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Linear(Module):
    """x weight^T + bias: [.., in] -> [.., out]. Parameters: weight [out, in], bias [out]; both uniform in +- 1 / sqrt(in)."""

    weight: Parameter
    bias: Optional[Parameter]

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Device = None, dtype: Optional[DType] = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_parameter([out_features, in_features], device, dtype)
        self.register_parameter("bias", new_parameter([out_features], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
        draw_uniform(bound, self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return ops.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1^T weight[o] x2 + bias[o]. Parameters: weight [out, in1, in2], bias [out]."""

    weight: Parameter
    bias: Optional[Parameter]

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = new_parameter([out_features, in1_features, in2_features], device, dtype)
        self.register_parameter("bias", new_parameter([out_features], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again, uniform in +- 1 / sqrt(in1)."""
        bound = 1 / math.sqrt(self.in1_features)
        draw_uniform(bound, self.weight, self.bias)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class _Table(Module):
    """What Embedding and EmbeddingBag share."""

    weight: Parameter
    padding_idx: Optional[int]

    def _set_table(self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int], given: Optional[Tensor],
                   freeze: bool, device: Device, dtype: Optional[DType]) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError("padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if given is None:
            self.weight = new_parameter([num_embeddings, embedding_dim], device, dtype)
            self.reset_parameters()
            self.weight.requires_grad = not freeze
        elif list(given.shape) != [num_embeddings, embedding_dim]:
            raise ValueError(f"a table of {list(given.shape)} does not match num_embeddings and embedding_dim, "
                             f"{num_embeddings} and {embedding_dim}")
        else:
            self.weight = Parameter(given, not freeze)

    def reset_parameters(self) -> None:
        """Draws the table again; the row of padding_idx is 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0


class Embedding(_Table):
    """Rows of a table: indices [..] (i64) -> [.., dim]. Parameter: weight [num, dim], drawn from N(0, 1). The gradient is
    dense, also with ``sparse``; ``max_norm`` and ``scale_grad_by_freq`` as in functional.embedding()."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Optional[Tensor] = None,
        _freeze: bool = False, device: Device = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        self._set_table(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> "Embedding":
        """An embedding over a given table."""
        return cls(embeddings.shape[0], embeddings.shape[1], padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                   embeddings, freeze)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text + (", sparse=True" if self.sparse else "")


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a table. Parameter: weight [num, dim], drawn from N(0, 1). The gradient is dense, also
    with ``sparse``."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: Optional[float] = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Optional[Tensor] = None,
        include_last_offset: bool = False, padding_idx: Optional[int] = None, device: Device = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        check_bag(scale_grad_by_freq, mode)
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset
        self._set_table(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: Optional[float] = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: Optional[int] = None,
    ) -> "EmbeddingBag":
        """Bags over a given table."""
        made = cls(embeddings.shape[0], embeddings.shape[1], max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
                   include_last_offset, padding_idx)
        made.weight.requires_grad = not freeze
        return made

    def forward(self, input: Tensor, offsets: Optional[Tensor] = None,
                per_sample_weights: Optional[Tensor] = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type,
                               self.scale_grad_by_freq, self.mode,
                               per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
                               padding_idx=self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}{padding}"
