"""Sequences of different lengths: padded, and packed as torch.nn.utils.rnn packs them."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from ... import _core, _functions as F, _ops as ops
from ..._core import Tensor

__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Optional[Tensor]
    unsorted_indices: Optional[Tensor]


class PackedSequence(_Packed):
    """Sequences without their padding: ``data`` holds the first step of all, then the second of those that have one, ..;
    ``batch_sizes`` says how many have each step. The recurrent layers take and give them."""

    def __new__(cls, data: Tensor, batch_sizes: Tensor, sorted_indices: Optional[Tensor] = None,
                unsorted_indices: Optional[Tensor] = None) -> "PackedSequence":
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """The data (and the indices, where only the device changes) elsewhere; the lengths stay on the host."""
        data = self.data.to(*args, **kwargs)

        def moved(t: Optional[Tensor]) -> Optional[Tensor]:
            return None if t is None else t.to(data.device)

        return PackedSequence(data, self.batch_sizes, moved(self.sorted_indices), moved(self.unsorted_indices))

    def cpu(self) -> "PackedSequence":
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> "PackedSequence":
        """On a CUDA device."""
        return self.to("cuda" if device is None else device)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor) -> Tensor:
    """The order that undoes an order."""
    return ops.argsort(permutation, 0)


def pad_sequence(sequences: Union[Tensor, Sequence[Tensor]], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Sequences [T_i, ..] as one tensor [T, B, ..] ([B, T, ..] with ``batch_first``), the ends (or with ``padding_side``
    "left" the beginnings) filled."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be left or right, got {padding_side!r}")
    items = list(sequences)
    if not items:
        raise ValueError("pad_sequence: there are no sequences")
    longest = max(s.shape[0] for s in items)
    padded = []
    for s in items:
        fill = longest - s.shape[0]
        if fill:
            filler = _core.full([fill, *s.shape[1:]], padding_value, dtype=s.dtype, device=s.device)
            s = ops.cat([s, filler] if padding_side == "right" else [filler, s], 0)
        padded.append(s)
    return ops.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> List[Tensor]:
    """The sequences of pad_sequence() again."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(ops.unbind(x, 0), lengths.tolist())]


def pack_padded_sequence(input: Tensor, lengths: Union[Tensor, Sequence[int]], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs [T, B, ..] ([B, T, ..] with ``batch_first``) by the sequences' lengths, which are descending unless
    ``enforce_sorted`` is False."""
    sizes: List[int] = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    x = input.transpose(0, 1) if batch_first else input
    if len(sizes) != x.shape[1]:
        raise ValueError(f"pack_padded_sequence: {len(sizes)} lengths for a batch of {x.shape[1]}")
    if any(not 0 < n <= x.shape[0] for n in sizes):
        raise ValueError(f"pack_padded_sequence: lengths must be from 1 to {x.shape[0]}, got {sizes}")
    order: Optional[Tensor] = None
    if not enforce_sorted:
        places = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        order = F.tensor(places, dtype=_core.int64, device=x.device)
        x, sizes = ops.index_select(x, 1, order), [sizes[i] for i in places]
    elif any(a < b for a, b in zip(sizes, sizes[1:])):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                           "`enforce_sorted=False` to pack_padded_sequence to sidestep this requirement.")
    batch_sizes = [sum(n > t for n in sizes) for t in range(sizes[0])]
    data = ops.cat([x[t, :count] for t, count in enumerate(batch_sizes)], 0)
    return PackedSequence(data, F.tensor(batch_sizes, dtype=_core.int64), order)


def lengths_of(packed: PackedSequence) -> List[int]:
    """The lengths of the sequences in the packed order."""
    counts = packed.batch_sizes.tolist()
    return [sum(c > i for c in counts) for i in range(counts[0])]


def padded(packed: PackedSequence, padding_value: float = 0.0, length: Optional[int] = None) -> Tensor:
    """[T, B, ..] in the packed order."""
    counts = packed.batch_sizes.tolist()
    batch, steps, at = counts[0], [], 0
    for count in counts:
        step = packed.data[at : at + count]
        at += count
        if count < batch:
            fill = _core.full([batch - count, *step.shape[1:]], padding_value, dtype=step.dtype, device=step.device)
            step = ops.cat([step, fill], 0)
        steps.append(step)
    if length is not None:
        if length < len(counts):
            raise ValueError(f"pad_packed_sequence: total_length {length} is less than the longest sequence, {len(counts)}")
        filler = _core.full([batch, *packed.data.shape[1:]], padding_value, dtype=packed.data.dtype, device=packed.data.device)
        steps += [filler] * (length - len(counts))
    return ops.stack(steps, 0)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: Optional[int] = None) -> Tuple[Tensor, Tensor]:
    """Packed sequences as a padded tensor in the order in which they were given, and their lengths."""
    x = padded(sequence, padding_value, total_length)
    lengths = F.tensor(lengths_of(sequence), dtype=_core.int64)
    if sequence.unsorted_indices is not None:
        x = ops.index_select(x, 1, sequence.unsorted_indices)
        lengths = ops.index_select(lengths, 0, sequence.unsorted_indices.cpu())
    return (x.transpose(0, 1) if batch_first else x), lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences [T_i, ..]."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> List[Tensor]:
    """The sequences of pack_sequence() again."""
    x, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(x, lengths, batch_first=True)
