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

    _unsorted_on_host: Optional[Tensor] = None  # where it is known: reading it from a card would wait for the card

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
    return ops.pad_sequence(list(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> List[Tensor]:
    """The sequences of pad_sequence() again."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(ops.unbind(x, 0), lengths.tolist())]


def pack_padded_sequence(input: Tensor, lengths: Union[Tensor, Sequence[int]], batch_first: bool = False,
                         enforce_sorted: bool = True) -> PackedSequence:
    """Packs [T, B, ..] ([B, T, ..] with ``batch_first``) by the sequences' lengths, which are descending unless
    ``enforce_sorted`` is False."""
    sizes = lengths.cpu().to(_core.int64) if isinstance(lengths, Tensor) else F.tensor(list(lengths), dtype=_core.int64)
    order: Optional[Tensor] = None
    if not enforce_sorted:
        sizes, places = ops.sort(sizes, 0, True)
        order = places.to(input.device)
        input = ops.index_select(input, 0 if batch_first else 1, order)
    elif sizes.tolist() != sorted(sizes.tolist(), reverse=True):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                           "`enforce_sorted=False` to pack_padded_sequence to sidestep this requirement.")
    data, batch_sizes = ops.pack_padded_sequence(input, sizes, batch_first)
    packed = PackedSequence(data, batch_sizes, order)
    if order is not None:
        packed._unsorted_on_host = invert_permutation(places)
    return packed


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: Optional[int] = None) -> Tuple[Tensor, Tensor]:
    """Packed sequences as a padded tensor in the order in which they were given, and their lengths."""
    x, lengths = ops.pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value, total_length)
    if sequence.unsorted_indices is not None:
        x = ops.index_select(x, 0 if batch_first else 1, sequence.unsorted_indices)
        back = sequence._unsorted_on_host
        lengths = ops.index_select(lengths, 0, sequence.unsorted_indices.cpu() if back is None else back)
    return x, lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences [T_i, ..]."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> List[Tensor]:
    """The sequences of pack_sequence() again."""
    x, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(x, lengths, batch_first=True)
