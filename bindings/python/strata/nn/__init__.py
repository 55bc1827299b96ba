"""Layers, losses and what builds networks of them, as torch.nn."""

from . import functional, init, utils
from .activation import *
from .adaptive import *
from .attention import *
from .container import *
from .conv import *
from .distance import *
from .dropout import *
from .lazy import *
from .linear import *
from .loss import *
from .module import Module
from .norm import *
from .padding import *
from .parallel import DataParallel
from .parameter import Buffer, Parameter
from .pooling import *
from .rnn import *

from . import activation, adaptive, attention, container, conv, distance, dropout, lazy, linear, loss, norm, padding, pooling
from . import parallel, rnn
from . import modules

__all__ = [
    "Buffer", "DataParallel", "Module", "Parameter", "functional", "init", "modules", "parallel", "utils",
    *activation.__all__, *adaptive.__all__, *attention.__all__, *container.__all__, *conv.__all__,
    *distance.__all__, *dropout.__all__, *lazy.__all__, *linear.__all__, *loss.__all__, *norm.__all__,
    *padding.__all__, *pooling.__all__, *rnn.__all__,
]


from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from .._compat import missing

        missing(__name__, name, __all__)
