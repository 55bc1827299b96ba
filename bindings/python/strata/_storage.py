"""What x.storage() gives: the memory behind a tensor, as elements in one dimension or as bytes."""

from __future__ import annotations

from typing import Any, Iterator, List

from . import _core
from ._core import Tensor

__all__ = ["TypedStorage", "UntypedStorage"]


class TypedStorage:
    """All elements of the memory that a tensor is a view of."""

    def __init__(self, flat: Tensor) -> None:
        self._flat = flat

    dtype = property(lambda self: self._flat.dtype)
    device = property(lambda self: self._flat.device)
    is_cuda = property(lambda self: self._flat.is_cuda)

    def __len__(self) -> int:
        return int(self._flat.shape[0])

    def size(self) -> int:
        """Elements."""
        return len(self)

    def nbytes(self) -> int:
        """Bytes."""
        return len(self) * self.element_size()

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self._flat.itemsize)

    def data_ptr(self) -> int:
        """Where the memory begins: the same for tensors that share it."""
        return int(self._flat.data_ptr())

    def untyped(self) -> "UntypedStorage":
        """The same as bytes."""
        return UntypedStorage(self._flat)

    def tolist(self) -> List[Any]:
        """The elements."""
        return list(self._flat.tolist())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        return self._flat[index].item() if isinstance(index, int) else TypedStorage(self._flat[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._flat[index] = value

    def fill_(self, value: Any) -> "TypedStorage":
        """Fills the memory."""
        self._flat.fill_(value)
        return self

    def cpu(self) -> "TypedStorage":
        """On the host."""
        return TypedStorage(self._flat.cpu())

    def clone(self) -> "TypedStorage":
        """A copy."""
        return TypedStorage(self._flat.clone())

    def is_shared(self) -> bool:
        """False: memory is not shared between processes."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and (self.data_ptr(), self.nbytes()) == (other.data_ptr(), other.nbytes())

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self)} elements of {self.dtype} on {self.device}"


class UntypedStorage(TypedStorage):
    """The same as bytes."""

    def __init__(self, flat: Tensor) -> None:
        same = flat.dtype == _core.uint8
        if not same and flat.device.type == "cpu":
            words = flat.view(_core.int16) if flat.dtype == _core.bfloat16 else flat
            bytes_ = _core.frombuffer(memoryview(words).cast("B"), dtype=_core.uint8) if flat.numel() else flat.to(_core.uint8)
        else:
            bytes_ = flat
        super().__init__(bytes_)
        self._bytes = int(flat.nbytes)

    def nbytes(self) -> int:
        """Bytes."""
        return self._bytes

    def __len__(self) -> int:
        return self._bytes
