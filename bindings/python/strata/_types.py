"""torch.types, torch.version and torch.nn.common_types: names for annotations and of this build."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, TypeVar, Union

from ._core import Size, Tensor, device as _device, dtype as _dtype
from ._version import __version__

Number = Union[int, float, bool]
Device = Union[_device, str, int, None]
FileLike = Any
Storage = Any
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_size = Union[Size, Sequence[int]]
_int, _float, _bool = int, float, bool
T = TypeVar("T")
_scalar_or_tuple_any_t = Union[T, Tuple[T, ...]]
_scalar_or_tuple_1_t = Union[T, Tuple[T]]
_scalar_or_tuple_2_t = Union[T, Tuple[T, T]]
_scalar_or_tuple_3_t = Union[T, Tuple[T, T, T]]
_size_1_t, _size_2_t, _size_3_t, _size_any_t = (
    Union[int, Tuple[int]], Union[int, Tuple[int, int]], Union[int, Tuple[int, int, int]], Union[int, Tuple[int, ...]])
_ratio_2_t, _ratio_3_t, _ratio_any_t = (
    Union[float, Tuple[float, float]], Union[float, Tuple[float, float, float]], Union[float, Tuple[float, ...]])
cuda: Optional[str] = None
hip: Optional[str] = None
git_version = ""
debug = False
