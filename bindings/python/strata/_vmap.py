"""vmap: a function over slices, one after the other, and its results side by side. Right for every function, and as slow as the
loop that it is; a batch dimension written out is faster."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional

from . import _core, _ops
from ._core import Tensor
from .utils._pytree import _broadcast_to, tree_flatten, tree_unflatten

__all__ = ["vmap"]


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: Optional[int] = None) -> Callable[..., Any]:
    """``func`` for each slice of its tensor arguments along ``in_dims`` (None: the whole argument each time), its results
    stacked along ``out_dims``. ``randomness`` "same" draws the same numbers for each slice, "different" others; "error" lets
    them be drawn as by "different", while PyTorch refuses them. ``chunk_size`` says nothing to a loop."""
    if randomness not in ("error", "different", "same"):
        raise ValueError(f"vmap: randomness must be error, different or same, got {randomness!r}")

    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten(args)
        dims = _broadcast_to(tuple(in_dims) if isinstance(in_dims, list) else in_dims, spec)
        if dims is None or (isinstance(in_dims, (tuple, list)) and len(in_dims) != len(args)):
            raise ValueError(f"vmap: in_dims {in_dims!r} does not have the form of the arguments")
        # Keywords are mapped over their first dimension, as PyTorch does it.
        more, more_spec = tree_flatten(kwargs)
        leaves = leaves + more
        dims = dims + [0 if isinstance(v, Tensor) else None for v in more]
        sizes = set()
        for leaf, dim in zip(leaves, dims):
            if dim is None or not isinstance(leaf, Tensor):
                if isinstance(dim, int) and not isinstance(in_dims, int):
                    raise ValueError(f"vmap: in_dims has {dim} for an argument of type {type(leaf).__name__}, which has no dimensions")
                continue
            if not -leaf.dim() <= dim < leaf.dim():
                raise ValueError(f"vmap: in_dims has {dim} for an argument of {leaf.dim()} dimensions")
            sizes.add(int(leaf.shape[dim]))
        if len(sizes) != 1:
            raise ValueError("vmap: at least one argument must be a tensor to map over" if not sizes else
                             f"vmap: the arguments' sizes to map over differ: {sorted(sizes)}")
        count = sizes.pop()
        if count == 0:
            raise ValueError("vmap: there are no slices to map over")
        key = _core._rng_key()
        results: List[List[Any]] = []
        spec_out: Any = None
        for i in range(count):
            if randomness == "same" and i:
                _core._set_rng_key(key)
            each = [v.select(d, i) if d is not None and isinstance(v, Tensor) else v for v, d in zip(leaves, dims)]
            n = spec.num_leaves
            made = func(*tree_unflatten(each[:n], spec), **tree_unflatten(each[n:], more_spec))
            flat, spec_out = tree_flatten(made)
            results.append(flat)
        where = _broadcast_to(tuple(out_dims) if isinstance(out_dims, list) else out_dims, spec_out)
        if where is None:
            raise ValueError(f"vmap: out_dims {out_dims!r} does not have the form of the results")
        joined: List[Any] = []
        for column, dim in zip(zip(*results), where):
            if not all(isinstance(v, Tensor) for v in column):
                raise ValueError(f"vmap: the function must return tensors, got {type(column[0]).__name__}")
            joined.append(column[0] if dim is None else _ops.stack(list(column), dim))
        return tree_unflatten(joined, spec_out)

    functools.update_wrapper(batched, func, assigned=("__name__", "__qualname__", "__doc__", "__module__"), updated=())
    return batched
