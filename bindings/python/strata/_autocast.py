"""autocast: products in low precision, what needs precision in float32, by each record's policy."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Tuple, TypeVar

from . import _core

F = TypeVar("F", bound=Callable[..., Any])


def in_full(*tensors: _core.Tensor) -> Tuple[_core.Tensor, ...]:
    """Under autocast, those in low precision as float32: for what is composed of ops but has one policy as a whole."""
    if not _core.is_autocast_enabled():
        return tensors
    return tuple(t.to(_core.float32) if t.dtype in (_core.bfloat16, _core.float16) else t for t in tensors)


class autocast:
    """``with st.autocast("cuda", dtype=st.bfloat16):``, or as a decorator. Parameters stay float32.

    ``low_gradients`` leaves the gradients of parameters in the low dtype, which only the optimizers read."""

    def __init__(self, device_type: Any = "cpu", dtype: Any = None, enabled: bool = True, cache_enabled: bool = True, *,
                 low_gradients: bool = False) -> None:
        if isinstance(device_type, _core.dtype):
            device_type, dtype = "cpu", device_type
        _core.device(device_type)  # an unknown one is an error
        self._arguments = (_core.bfloat16 if dtype is None else dtype, enabled, low_gradients)
        self._scopes: List[_core.AutocastScope] = []

    def __enter__(self) -> "autocast":
        scope = _core.AutocastScope()
        scope.enter(*self._arguments)
        self._scopes.append(scope)
        return self

    def __exit__(self, *error: object) -> None:
        self._scopes.pop().exit()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def exact(function: F) -> F:
    """The function with autocast off inside, and low-precision arguments as float32."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not _core.is_autocast_enabled():
            return function(*args, **kwargs)
        args = tuple(in_full(a)[0] if isinstance(a, _core.Tensor) else a for a in args)
        kwargs = {k: in_full(a)[0] if isinstance(a, _core.Tensor) else a for k, a in kwargs.items()}
        with autocast(enabled=False):
            return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
