"""Recomputation in place of memory: what a function keeps for backward is dropped and computed again there."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from .. import _core as C
from ..nn.container import Sequential

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: Optional[bool] = None, preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate results are not kept but computed again in backward, with the same
    random numbers whatever ``preserve_rng_state`` says. ``use_reentrant`` is taken for PyTorch's sake; there is one way."""
    return C.checkpoint(function, *args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: Optional[bool] = None, **kwargs: Any
) -> Any:
    """A Sequential (or list of functions) in ``segments`` parts, all but the last one checkpointed."""
    parts: Sequence[Callable[..., Any]] = list(functions) if not isinstance(functions, Sequential) else list(functions)
    size = len(parts) // segments
    if size < 1:
        raise ValueError(f"checkpoint_sequential: {segments} segments of {len(parts)} functions")

    def run(begin: int, end: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for part in parts[begin:end]:
                x = part(x)
            return x

        return forward

    end = 0
    for segment in range(segments - 1):
        begin, end = segment * size, (segment + 1) * size
        input = checkpoint(run(begin, end), input)
    return run(end, len(parts))(input)
