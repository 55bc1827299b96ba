"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .choices import *
from .elementwise import *
from .._linear import *
from .special import *

from .. import _linear
from . import choices, elementwise, special

__all__ = [*choices.__all__, *elementwise.__all__, *_linear.__all__, *special.__all__]

# Those that are methods of Tensor as well.
METHODS: List[str] = [
    "cholesky", "det", "inverse", "orgqr", "pinverse", "qr", "slogdet", "svd",
    "atleast_1d", "atleast_2d", "atleast_3d", "deg2rad",
    "digamma", "erfinv", "float_power", "ger", "heaviside", "dsplit", "histogramdd", "index_put", "masked_fill", "hsplit",
    "isneginf", "isposinf", "isreal", "ldexp", "lgamma", "logaddexp2", "logit",
    "matrix_power", "median", "nanmean", "nansum", "rad2deg",
    "sgn", "sinc", "tensor_split", "unique_consecutive", "vsplit",
    "adjoint", "angle", "conj_physical",
    "frexp", "gcd", "histogram", "i0", "is_same_size", "is_signed", "lcm", "matrix_exp", "mvlgamma", "nanmedian",
    "nextafter", "renorm", "resolve_conj", "resolve_neg",
]
