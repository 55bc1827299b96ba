"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .elementwise import *
from .places import *
from .products import *
from .shapes import *
from .special import *
from .statistics import *

from . import elementwise, places, products, shapes, special, statistics

__all__ = [*elementwise.__all__, *places.__all__, *products.__all__, *shapes.__all__, *special.__all__,
           *statistics.__all__]

# Those that are methods of Tensor as well.
METHODS: List[str] = [
    "cholesky", "det", "inverse", "logdet", "pinverse", "slogdet", "svd",
    "addmv", "addr", "atleast_1d", "atleast_2d", "atleast_3d", "baddbmm", "corrcoef", "cov", "cross", "deg2rad", "diff",
    "digamma", "dist", "erfinv", "fliplr", "flipud", "float_power", "ger", "heaviside", "histc", "hsplit", "index_copy", "index_fill",
    "inner", "isneginf", "isposinf", "isreal", "kron", "ldexp", "lgamma", "logaddexp2", "logcumsumexp", "logit",
    "matrix_power", "median", "mode", "nanmean", "nansum", "outer", "quantile", "rad2deg", "rot90", "scatter_reduce",
    "select_scatter", "sgn", "sinc", "slice_scatter", "tensor_split", "trace", "unique_consecutive", "vsplit",
    "addbmm", "adjoint", "angle", "cholesky_inverse", "cholesky_solve", "conj_physical", "diagflat", "diagonal_scatter",
    "frexp", "gcd", "histogram", "i0", "is_same_size", "is_signed", "lcm", "matrix_exp", "mvlgamma", "nanmedian", "nanquantile",
    "nextafter", "renorm", "resolve_conj", "resolve_neg", "vdot",
]
