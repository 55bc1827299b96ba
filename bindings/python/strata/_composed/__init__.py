"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .._ops import digamma, erfinv, lgamma, logit  # the distributions take them from here
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
    "addmv", "addr", "atleast_1d", "atleast_2d", "atleast_3d", "baddbmm", "corrcoef", "cov", "cross", "diff",
    "dist", "fliplr", "flipud", "ger", "histc", "hsplit", "index_copy", "index_fill",
    "inner", "kron", "logcumsumexp",
    "matrix_power", "median", "mode", "nanmean", "nansum", "outer", "quantile", "rot90", "scatter_reduce",
    "select_scatter", "slice_scatter", "tensor_split", "trace", "unique_consecutive", "vsplit",
    "addbmm", "adjoint", "cholesky_inverse", "cholesky_solve", "conj_physical", "diagflat", "diagonal_scatter",
    "histogram", "is_same_size", "is_signed", "matrix_exp", "nanmedian", "nanquantile",
    "renorm", "resolve_conj", "resolve_neg", "vdot",
]
