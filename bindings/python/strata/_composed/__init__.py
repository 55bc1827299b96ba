"""PyTorch's functions that are composed of records."""

from __future__ import annotations

from typing import List

from .._ops import digamma, erfinv, lgamma, logit  # the distributions take them from here
from .choices import *
from .elementwise import *
from .products import *
from .special import *

from . import choices, elementwise, products, special

__all__ = [*choices.__all__, *elementwise.__all__, *products.__all__, *special.__all__]

# Those that are methods of Tensor as well.
METHODS: List[str] = [
    "cholesky", "det", "inverse", "logdet", "pinverse", "slogdet", "svd", "addmv", "addr", "atleast_1d",
    "atleast_2d", "atleast_3d", "baddbmm", "cross", "dist", "ger", "dsplit", "histogramdd", "index_put",
    "masked_fill", "hsplit", "inner", "kron", "matrix_power", "median", "nanmean", "nansum", "outer",
    "tensor_split", "unique_consecutive", "vsplit", "addbmm", "adjoint", "cholesky_inverse", "cholesky_solve",
    "conj_physical", "histogram", "is_same_size", "is_signed", "matrix_exp", "nanmedian", "renorm", "resolve_conj",
    "resolve_neg", "vdot",
]
