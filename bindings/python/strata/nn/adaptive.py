"""A softmax for very many classes."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

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

    def forward(self, input: Tensor, target: Tensor) -> _Output:
        if target.dim() > 1 or input.dim() != target.dim() + 1:
            raise ValueError("AdaptiveLogSoftmaxWithLoss: wants [N, in_features] and N targets (or [in_features] and one), got "
                             f"{list(input.shape)} and {list(target.shape)}")
        if target.dim() == 0:
            output, loss = self.forward(input.unsqueeze(0), target.unsqueeze(0))
            return _Output(output.squeeze(0), loss)
        if input.shape[0] != target.shape[0]:
            raise ValueError("Input and target should have the same size in the batch dimension.")
        if target.numel() and (int(target.min().item()) < 0 or int(target.max().item()) >= self.n_classes):
            raise ValueError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                             f"[{target.min().item()}, {target.max().item()}] were found.")
        cluster: Any = 0  # 0 for the head's own classes
        for end in self.cutoffs[:-1]:
            cluster = cluster + (target >= end).to(target.dtype)
        place = ops.where(cluster == 0, target, cluster + (self.shortlist_size - 1))
        output = ops.log_softmax(self.head(input), 1).gather(1, place.unsqueeze(1)).squeeze(1)
        for i, layers in enumerate(self.tail):
            rows = ops.nonzero(cluster == i + 1).squeeze(1)
            if rows.numel() == 0:
                continue
            logs = ops.log_softmax(layers(input.index_select(0, rows)), 1)
            inside = target.index_select(0, rows) - self.cutoffs[i]
            output = output.index_add(0, rows, logs.gather(1, inside.unsqueeze(1)).squeeze(1))
        return _Output(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: [N, n_classes]."""
        head = ops.log_softmax(self.head(input), 1)
        parts: List[Tensor] = [head[:, : self.shortlist_size]]
        for i, layers in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(ops.log_softmax(layers(input), 1) + head[:, at : at + 1])
        return ops.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable classes: [N]. The tails run for the rows in which the head prefers a cluster."""
        best: Tensor = self.head(input).argmax(1)
        rows = ops.nonzero(best >= self.shortlist_size).squeeze(1)
        if rows.numel():
            best = best.index_put([rows], self.log_prob(input.index_select(0, rows)).argmax(1))
        return best
