"""torch.overrides: functions of tensors are not overridden here, so there is nothing to ask."""

from __future__ import annotations

from typing import Any, Callable


def has_torch_function(relevant_args: Any) -> bool:
    """False: no argument takes calls over."""
    return False


has_torch_function_unary = has_torch_function


def has_torch_function_variadic(*args: Any) -> bool:
    """False: no argument takes calls over."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor."""
    from ._core import Tensor

    return isinstance(inp, Tensor)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the function."""
    return public_api(*args, **kwargs)
