"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .choices import *
from .elementwise import *
from .._linear import *
from .special import *
from ..signal.windows import bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window

from .. import _linear
from . import choices, elementwise, special

__all__ = [*choices.__all__, *elementwise.__all__, *_linear.__all__, *special.__all__,
           "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]

# Those that are methods of Tensor as well.
METHODS: List[str] = [
    "as_strided", "cholesky", "det", "inverse", "pinverse", "slogdet", "svd", "atleast_1d", "atleast_2d", "atleast_3d", "ger",
    "dsplit", "histogramdd", "index_put", "masked_fill", "masked_scatter", "hsplit", "matrix_power", "median", "nanmean", "nansum",
    "tensor_split", "unique_consecutive", "vsplit", "adjoint", "conj_physical", "histogram", "is_same_size",
    "is_signed", "matrix_exp", "nanmedian", "resolve_conj", "resolve_neg", "orgqr", "qr",
]
