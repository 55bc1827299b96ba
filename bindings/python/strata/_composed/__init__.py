"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .choices import *
from .elementwise import *
from .products import *
from .special import *

from . import choices, elementwise, products, special

__all__ = [*choices.__all__, *elementwise.__all__, *products.__all__, *special.__all__]

# Those that are methods of Tensor as well.
METHODS: List[str] = [
    "cholesky", "det", "inverse", "logdet", "pinverse", "slogdet", "svd",
    "addmv", "addr", "atleast_1d", "atleast_2d", "atleast_3d", "baddbmm", "cross", "deg2rad",
    "digamma", "dist", "erfinv", "float_power", "ger", "heaviside", "dsplit", "histogramdd", "index_put", "masked_fill", "hsplit",
    "inner", "isneginf", "isposinf", "isreal", "kron", "ldexp", "lgamma", "logaddexp2", "logit",
    "matrix_power", "median", "nanmean", "nansum", "outer", "rad2deg",
    "sgn", "sinc", "tensor_split", "unique_consecutive", "vsplit",
    "addbmm", "adjoint", "angle", "cholesky_inverse", "cholesky_solve", "conj_physical",
    "frexp", "gcd", "histogram", "i0", "is_same_size", "is_signed", "lcm", "matrix_exp", "mvlgamma", "nanmedian",
    "nextafter", "renorm", "resolve_conj", "resolve_neg", "vdot",
]
