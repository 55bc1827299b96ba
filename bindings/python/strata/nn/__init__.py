"""Layers, losses and what builds networks of them, as torch.nn."""

from . import functional, init, utils
from .activation import *
from .attention import *
from .container import *
from .layers import *
from .loss import *
from .module import Module
from .parameter import Buffer, Parameter
from .rnn import *

from . import activation, attention, container, layers, loss, rnn

__all__ = [
    "Buffer", "Module", "Parameter", "functional", "init", "utils",
    *activation.__all__, *attention.__all__, *container.__all__, *layers.__all__, *loss.__all__, *rnn.__all__,
]
