"""torch.nn.functional's names and argument order over the op records."""

from ._activation import *
from ._attention import *
from ._conv import *
from ._fractional import *
from ._linear import *
from ._loss import *
from ._margin import *
from ._noise import *
from ._norm import *
from ._pooling import *
from ._sampling import *

from . import _activation, _attention, _conv, _fractional, _linear, _loss, _margin, _noise, _norm, _pooling, _sampling

__all__ = [
    *_activation.__all__, *_attention.__all__, *_conv.__all__, *_fractional.__all__,
    *_linear.__all__, *_loss.__all__, *_margin.__all__, *_noise.__all__, *_norm.__all__, *_pooling.__all__, *_sampling.__all__,
]

from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ..._compat import missing

        missing(__name__, name, __all__)
