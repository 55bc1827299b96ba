"""Switching recording on and off: context managers that are decorators, too."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

from . import _core

F = TypeVar("F", bound=Callable[..., Any])


class _Mode:
    """A context manager that may be entered again while it is entered, and that decorates functions."""

    def __init__(self) -> None:
        self._previous: list[bool] = []

    def _wanted(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> None:
        self._previous.append(_core._set_grad_enabled(self._wanted()))

    def __exit__(self, *error: object) -> None:
        _core._set_grad_enabled(self._previous.pop())

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            previous = _core._set_grad_enabled(self._wanted())
            try:
                return function(*args, **kwargs)
            finally:
                _core._set_grad_enabled(previous)

        return wrapped  # type: ignore[return-value]


class _Decorator(_Mode):
    """A mode without arguments: ``@mode`` decorates as ``@mode()`` does."""

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        if function is None:
            return self
        _Mode.__init__(self)
        return self(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class no_grad(_Decorator):
    """Nothing is recorded inside. ``@no_grad`` and ``@no_grad()`` decorate functions."""

    def _wanted(self) -> bool:
        return False


class enable_grad(_Decorator):
    """Calls are recorded inside."""

    def _wanted(self) -> bool:
        return True


class _Switch(_Mode):
    """A mode that is chosen by a bool."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._mode = mode


class inference_mode(_Switch):
    """As no_grad: the engine keeps nothing else that inference could drop."""

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        if isinstance(mode, bool):
            return self
        _Switch.__init__(self, True)
        return self(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(mode)

    def _wanted(self) -> bool:
        return not self._mode and _core.is_grad_enabled()


class set_grad_enabled(_Switch):
    """Switches recording at once, and back at the end of a ``with``."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._before = _core._set_grad_enabled(mode)

    def _wanted(self) -> bool:
        return self._mode

    def __enter__(self) -> None:
        self._previous.append(self._before)
        _core._set_grad_enabled(self._mode)


_core.no_grad = no_grad  # type: ignore[misc]
