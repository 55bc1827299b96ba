"""torch.jit: functions and modules as they are. There is no TorchScript; files of it are refused."""

from __future__ import annotations

from typing import Any, Callable, NoReturn, TypeVar

from ._once import once
from .nn.module import Module as ScriptModule

__all__ = ["Final", "ScriptModule", "annotate", "export", "freeze", "fork", "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
           "load", "optimize_for_inference", "save", "script", "script_if_tracing", "trace", "trace_module", "unused", "wait"]

F = TypeVar("F", bound=Callable[..., Any])
_TEXT = "there is no TorchScript: the function or module is used as it is"

try:
    from typing import Final
except ImportError:  # pragma: no cover
    Final = Any  # type: ignore[assignment]


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """The object itself, and a warning once."""
    once("jit", f"jit.script(): {_TEXT}")
    return obj


def trace(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The function or module itself, and a warning once."""
    once("jit", f"jit.trace(): {_TEXT}")
    return func


trace_module = trace


def _same(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    return fn if callable(fn) else (lambda function: function)


# What marks functions for the compiler that there is not.
ignore = unused = export = interface = script_if_tracing = freeze = optimize_for_inference = _same


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's."""
    import builtins

    return builtins.isinstance(obj, target_type)


def is_scripting() -> bool:
    """False."""
    return False


is_tracing = is_scripting


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function's result: it runs at once, and wait() hands it over."""
    return func(*args, **kwargs)


def wait(future: Any) -> Any:
    """What fork() returned."""
    return future


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError: there is no TorchScript."""
    raise RuntimeError("there is no TorchScript, so its files are neither written nor read: st.save() a state_dict, st.load() it")


load = save = _refuse
