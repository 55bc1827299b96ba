"""Tables that may be larger than the card, or than memory: rows live where there is room, and are gathered as they are asked for.

    table = st.features.FeatureTable(10_000_000, 128, device="cuda", home="unified", cache_bytes=1 << 30)
    for first in range(0, len(table), 100_000):
        table.write(first, part_of_the_features(first))
    for nodes, labels, x in st.features.FeatureLoader(loader, table):
        ...
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Iterable, Iterator, List, Optional, Sequence, Union, cast

from . import _core as C
from ._core import Tensor

__all__ = ["FeatureLoader", "FeatureTable", "RowOptimizer"]


class FeatureTable(C.FeatureTable):
    """``rows`` rows of ``width`` numbers, undefined until they are written. ``home``: ``"own"`` (the device's memory),
    ``"unified"`` (page-locked memory that a card reads in place) or ``"disk"`` (files in ``directories``). ``cache_bytes`` of
    rows are kept in the device's own memory: the ``"last_used"``, or the ``"most_used"`` that :meth:`keep_most_used` chose."""

    def __init__(
        self,
        rows: int,
        width: int,
        dtype: C.DTypeLike = "float32",
        *,
        device: C.DeviceLike = "cpu",
        home: str = "own",
        keep: str = "last_used",
        cache_bytes: int = 0,
        directories: Union[str, Sequence[str]] = (),
    ) -> None:
        where = [directories] if isinstance(directories, str) else list(directories)
        super().__init__(rows, width, cast(C.dtype, dtype), cast(C.device, device), home, keep, cache_bytes, where)

    @classmethod
    def from_tensor(cls, values: Tensor, **options: Any) -> "FeatureTable":
        """A copy of ``values`` [rows, width]."""
        table = cls(values.shape[0], values.shape[1], values.dtype, **options)
        table.write(0, values)
        return table

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self.gather(indices)


class RowOptimizer(C.RowOptimizer):
    """Updates the rows of a table that have a gradient, where they live, by the rule ``kind`` ("adamw", "adagrad", "sgd", ...).
    Lazy, as SparseAdam: rows without a gradient stay as they are. Sets ``table.requires_grad``.

        rows = RowOptimizer(table, "adagrad", lr=0.01)
        loss(table[indices]).backward()
        rows.step()
    """

    def __init__(self, table: C.FeatureTable, kind: str, **options: Union[bool, int, float]) -> None:
        super().__init__(table, kind, options)
        table.requires_grad = True


class FeatureLoader:
    """The batches of ``loader`` (tuples or lists of tensors), each with the rows that its tensor number ``indices`` names at its end.
    Those of the next ``ahead`` batches begin to be read while one is used; a batch's own are gathered when it is handed out."""

    def __init__(self, loader: Iterable[Any], table: C.FeatureTable, *, indices: int = 0, ahead: int = 1) -> None:
        if ahead < 0:
            raise ValueError(f"FeatureLoader: ahead must be at least 0, got {ahead}")
        self.loader, self.table, self.indices, self.ahead = loader, table, indices, ahead

    def __iter__(self) -> Iterator[List[Tensor]]:
        waiting: Deque[List[Tensor]] = deque()
        batches = iter(self.loader)
        batch: Optional[Any] = None
        while True:
            while len(waiting) <= self.ahead:
                batch = next(batches, None)
                if batch is None:
                    break
                waiting.append([batch] if isinstance(batch, Tensor) else list(batch))
                if self.ahead > 0:
                    self.table.prefetch(waiting[-1][self.indices])
            if not waiting:
                return
            first = waiting.popleft()
            yield [*first, self.table.gather(first[self.indices])]

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]
