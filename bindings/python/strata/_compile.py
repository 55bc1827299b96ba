"""torch.compile and torch.compiler: functions run as they are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, TypeVar

from ._once import once

__all__ = ["compile"]

F = TypeVar("F", bound=Callable[..., Any])


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: Optional[bool] = None, backend: Any = "inductor",
            mode: Optional[str] = None, options: Any = None, disable: bool = False) -> Any:
    """The function or module itself, which runs op by op with the engine's own kernels; says so once. Without an argument a
    decorator."""
    if not disable:
        once("compile", "compile(): nothing is compiled; the function runs as it is, with the engine's fused kernels. "
                        "st.graphed records and repeats the work of a step")
    return (lambda function: function) if model is None else model


def is_compiling() -> bool:
    """False."""
    return False


def disable(fn: Any = None, recursive: bool = True) -> Any:
    """The function itself."""
    return (lambda function: function) if fn is None else fn


allow_in_graph = assume_constant_result = disable
is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Nothing is kept."""


def cudagraph_mark_step_begin() -> None:
    """Nothing is recorded."""


@contextmanager
def set_stance(stance: str = "default", **more: Any) -> Iterator[None]:
    """Changes nothing."""
    yield
