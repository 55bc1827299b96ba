"""A softmax for very many classes."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .. import _ops as ops
from .._core import Tensor, dtype as DType
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _Output(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Classes sorted from frequent to rare: those before the first of ``cutoffs`` get a score each from the head, the others
    one for their cluster, and within it from a tail of ``div_value`` times fewer features than the one before (Grave et al.,
    arXiv:1609.04309). Called with [N, in_features] and N classes: (log-probabilities of these [N], their negated mean)."""

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Any = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if any(int(c) != c or not 0 < c < n_classes for c in ends) or any(a >= b for a, b in zip(ends, ends[1:])):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where "
                             f"each value is between 1 and n_classes-1, got {ends} for {n_classes} classes")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*ends, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            features = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(
                Linear(in_features, features, False, device, dtype),
                Linear(features, self.cutoffs[i + 1] - self.cutoffs[i], False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draws the parameters again."""
        self.head.reset_parameters()
        for module in self.tail.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def _layers(self) -> Tuple[Tensor, Optional[Tensor], List[Tensor], List[int]]:
        parts: List[Any] = [part for layers in self.tail for part in layers]
        return self.head.weight, self.head.bias, [part.weight for part in parts], self.cutoffs

    def forward(self, input: Tensor, target: Tensor) -> _Output:
        if target.dim() > 1 or input.dim() != target.dim() + 1:
            raise ValueError("AdaptiveLogSoftmaxWithLoss: wants [N, in_features] and N targets (or [in_features] and one), got "
                             f"{list(input.shape)} and {list(target.shape)}")
        if target.dim() and input.shape[0] != target.shape[0]:
            raise ValueError("Input and target should have the same size in the batch dimension.")
        output = ops.adaptive_log_softmax(input, target, *self._layers())
        return _Output(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: [N, n_classes]."""
        return ops.adaptive_log_prob(input, *self._layers())

    def predict(self, input: Tensor) -> Tensor:
        """The most probable classes: [N]. The tails run for the rows in which the head prefers a cluster."""
        return ops.adaptive_predict(input, *self._layers())
