"""autocast: products in low precision, what needs precision in float32, by each record's policy."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, TypeVar

from . import _core

F = TypeVar("F", bound=Callable[..., Any])


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
