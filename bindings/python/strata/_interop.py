"""NumPy's functions and einops over tensors."""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any, Dict, Optional, Sequence

from . import _core, _ops
from ._core import Tensor

# NumPy's ufuncs whose names are others here.
_NAMES: Dict[str, str] = {
    "absolute": "abs", "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "negative": "neg", "power": "pow", "float_power": "pow", "arctan2": "atan2", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "equal": "eq", "not_equal": "ne", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "conjugate": "clone", "fabs": "abs",
}
_SAME = frozenset(
    "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh floor ceil trunc sign square reciprocal maximum minimum "
    "fmod remainder floor_divide isnan isinf isfinite logical_and logical_or logical_xor logical_not bitwise_and bitwise_or "
    "bitwise_xor hypot logaddexp matmul".split()
)


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
    """``np.sqrt(tensor)`` and ``array * tensor`` are tensors, with gradients where there is an op of that kind; what only NumPy
    has is computed by it, on the host."""
    name = ufunc.__name__
    op = _NAMES.get(name) or (name if name in _SAME else None)
    import numpy as np

    if method == "__call__" and op is not None and out is None and not options:
        device = next(x.device for x in inputs if isinstance(x, Tensor))
        given = [_core._tensor(x, None, device) if isinstance(x, np.ndarray) else x for x in inputs]
        if op == "matmul":
            kind = _core.promote_types(given[0].dtype, given[1].dtype)
            given = [x.to(kind) for x in given]
        if op in _core.ops:
            return _core.ops[op](*given)
        import strata

        return getattr(strata, op)(*given)
    arrays = [x.numpy() if isinstance(x, Tensor) else x for x in inputs]
    targets = tuple(o.numpy() if isinstance(o, Tensor) else o for o in out) if out is not None else None
    found = getattr(ufunc, method)(*arrays, **options, **({} if targets is None else {"out": targets}))
    if out is not None:
        return out[0] if len(out) == 1 else out
    if isinstance(found, tuple):
        return tuple(_core._tensor(f) for f in found)
    return _core._tensor(found) if isinstance(found, (np.ndarray, np.generic)) else found


def _array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What NumPy's own functions make of a tensor is a tensor again."""
    return _core._tensor(array)


setattr(Tensor, "__array_priority__", 1000)
setattr(Tensor, "__array_ufunc__", _array_ufunc)
setattr(Tensor, "__array_wrap__", _array_wrap)


# ---- einops: a backend of its own, made when einops is imported


def _register(backends: Any) -> None:
    class StrataBackend(backends.AbstractBackend):  # type: ignore[misc, name-defined, unused-ignore]
        framework_name = "strata"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, Tensor)

        def from_numpy(self, x: Any) -> Tensor:
            return _core.from_numpy(x)

        def to_numpy(self, x: Tensor) -> Any:
            return x.detach().cpu().numpy()

        def arange(self, start: int, stop: int) -> Tensor:
            return _core.arange(start, stop)

        def shape(self, x: Tensor) -> Any:
            return tuple(x.shape)

        def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
            return x.reshape(tuple(shape))

        def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
            return x.permute(tuple(axes))

        def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
            if operation == "min":
                return _ops.amin(x, list(axes))
            if operation == "max":
                return _ops.amax(x, list(axes))
            if operation == "prod":
                for i in sorted(axes, reverse=True):
                    x = x.prod(i)
                return x
            if operation in ("sum", "mean", "any", "all"):
                found: Tensor = getattr(_ops, operation)(x, list(axes))
                return found
            raise NotImplementedError(f"einops: there is no reduction {operation!r} of tensors")

        def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
            return _ops.stack(list(tensors), 0)

        def add_axis(self, x: Tensor, new_position: int) -> Tensor:
            return x.unsqueeze(new_position)

        def add_axes(self, x: Tensor, n_axes: int, pos2len: Dict[int, int]) -> Tensor:
            for position, _ in pos2len.items():
                x = x.unsqueeze(position)
            repeats = [-1] * n_axes
            for position, length in pos2len.items():
                repeats[position] = length
            return x.expand(repeats)

        def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
            return x.repeat(list(repeats))

        def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
            return _ops.cat(list(tensors), axis)

        def is_float_type(self, x: Tensor) -> bool:
            return x.dtype.is_floating_point

        def layers(self) -> Any:
            raise NotImplementedError("einops.layers.torch works under python -m strata.torch")

        def einsum(self, pattern: str, *x: Tensor) -> Tensor:
            return _ops.einsum(pattern, *x)

    backends.StrataBackend = StrataBackend  # einops finds it among the subclasses that there still are


class _Finder(importlib.abc.MetaPathFinder):
    """Tells einops of tensors once it is there; finds nothing by itself."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[Any]:
        if name != "einops._backends":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                _register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "einops._backends" in sys.modules:
    _register(sys.modules["einops._backends"])
else:
    sys.meta_path.insert(0, _Finder())
