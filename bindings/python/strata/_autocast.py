"""autocast: products in low precision, what needs precision in float32, by each record's policy."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, List, Optional, Tuple, TypeVar

from . import _core

F = TypeVar("F", bound=Callable[..., Any])


def in_full(*tensors: _core.Tensor) -> Tuple[_core.Tensor, ...]:
    """Under autocast, those in low precision as float32: for what is composed of ops but has one policy as a whole."""
    if not _core.is_autocast_enabled():
        return tensors
    return tuple(t.to(_core.float32) if t.dtype in (_core.bfloat16, _core.float16) else t for t in tensors)


def _weights(layers: Iterable[Any]) -> List[_core.Tensor]:
    """Tensors, and the parameters of modules."""
    return [t for one in layers for t in ([one] if isinstance(one, _core.Tensor) else one.parameters())]


class autocast:
    """``with st.autocast("cuda", dtype=st.bfloat16):``, or as a decorator. Parameters stay float32.

    ``low_gradients`` leaves the gradients of parameters in the low dtype, which only the optimizers read.

    With ``fp8="tensor"`` or ``fp8="row"`` products of linear layers whose sizes are multiples of 16 run in eight bits
    (``linear_fp8`` with that scaling), all else in bfloat16. ``fp8_exclude``: modules and weights that stay in
    bfloat16, best the first and last layers."""

    def __init__(self, device_type: Any = "cpu", dtype: Any = None, enabled: bool = True, cache_enabled: bool = True, *,
                 low_gradients: bool = False, fp8: Optional[str] = None, fp8_exclude: Iterable[Any] = ()) -> None:
        if isinstance(device_type, _core.dtype):
            device_type, dtype = "cpu", device_type
        _core.device(device_type)  # an unknown one is an error
        if fp8 is not None and dtype not in (None, _core.bfloat16):
            raise ValueError(f"autocast: with fp8 all else runs in bfloat16, not {dtype}")
        self._arguments = (_core.bfloat16 if dtype is None else dtype, enabled, low_gradients)
        self._fp8 = None if fp8 is None else (fp8, _weights(fp8_exclude), enabled, low_gradients)
        self._scopes: List[_core.AutocastScope] = []

    def __enter__(self) -> "autocast":
        scope = _core.AutocastScope()
        if self._fp8 is None:
            scope.enter(*self._arguments)
        else:
            scope.enter_fp8(*self._fp8)
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
