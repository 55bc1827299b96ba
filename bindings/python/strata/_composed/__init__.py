"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .elementwise import *
from .places import *
from .._linear import *
from .shapes import *
from .special import *
from .statistics import *

from .. import _linear
from . import elementwise, places, shapes, special, statistics

__all__ = [*elementwise.__all__, *places.__all__, *_linear.__all__, *shapes.__all__, *special.__all__,
           *statistics.__all__]

# Those that are methods of Tensor as well.
METHODS: List[str] = [
    "cholesky", "det", "inverse", "pinverse", "qr", "slogdet", "svd",
    "atleast_1d", "atleast_2d", "atleast_3d", "corrcoef", "cov", "deg2rad", "diff",
    "digamma", "erfinv", "fliplr", "flipud", "float_power", "ger", "heaviside", "histc", "hsplit", "index_copy", "index_fill",
    "isneginf", "isposinf", "isreal", "ldexp", "lgamma", "logaddexp2", "logcumsumexp", "logit",
    "matrix_power", "median", "mode", "nanmean", "nansum", "orgqr", "quantile", "rad2deg", "rot90", "scatter_reduce",
    "select_scatter", "sgn", "sinc", "slice_scatter", "tensor_split", "trace", "unique_consecutive", "vsplit",
    "adjoint", "angle", "conj_physical", "diagflat", "diagonal_scatter",
    "frexp", "gcd", "histogram", "i0", "is_same_size", "is_signed", "lcm", "matrix_exp", "mvlgamma", "nanmedian", "nanquantile",
    "nextafter", "renorm", "resolve_conj", "resolve_neg",
]
