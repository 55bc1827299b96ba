"""Gradient clipping, parameters as one vector, padded and packed sequences, parametrisations."""

from . import clip_grad, convert_parameters, parametrizations, parametrize, prune, rnn, stateless
from .clip import *
from .weights import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from .weights import remove_spectral_norm, remove_weight_norm, skip_init, spectral_norm, weight_norm

from . import clip

__all__ = [
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "parametrizations",
    "parametrize", "prune", "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "weight_norm",
    *clip.__all__,
]

from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ..._compat import missing

        missing(__name__, name, __all__)
