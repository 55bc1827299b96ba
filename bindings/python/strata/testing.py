"""Comparison of tensors in tests."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from . import _core
from ._functions import as_tensor

__all__ = ["assert_close"]

# (relative, absolute) by dtype; other dtypes must be equal.
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, rtol: Optional[float] = None, atol: Optional[float] = None,
                 equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, msg: Optional[str] = None) -> None:
    """AssertionError unless two tensors (numbers, sequences or mappings of such) have the same shape and dtype, and elements
    that differ by at most atol + rtol |expected|; without tolerances those of the dtype."""
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping) and set(actual) == set(expected), msg or "the keys differ"
        for key in expected:
            assert_close(actual[key], expected[key], rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, msg=msg)
        return
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        assert isinstance(actual, Sequence) and len(actual) == len(expected), msg or "the lengths differ"
        for a, b in zip(actual, expected):
            assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, msg=msg)
        return
    a, b = as_tensor(actual).detach(), as_tensor(expected).detach()
    assert a.shape == b.shape, msg or f"shapes {tuple(a.shape)} and {tuple(b.shape)} differ"
    assert not check_dtype or a.dtype == b.dtype, msg or f"dtypes {a.dtype} and {b.dtype} differ"
    assert not check_device or a.device == b.device, msg or f"devices {a.device} and {b.device} differ"
    kind = _core.promote_types(a.dtype, b.dtype)
    relative, absolute = _TOLERANCES.get(kind.name, (0.0, 0.0))
    relative, absolute = relative if rtol is None else rtol, absolute if atol is None else atol
    if not kind.is_floating_point:
        kind = _core.float64
    x, y = a.cpu().to(kind), b.cpu().to(kind)
    close = _core.ops["isclose"](x, y, relative, absolute, equal_nan)
    if bool(close.all()):
        return
    if msg is None:
        wrong = int((~close).sum().item())
        msg = (f"Tensor-likes are not close: {wrong} of {x.numel()} elements; greatest difference "
               f"{float((x - y).abs().max().item()):g} (rtol {relative:g}, atol {absolute:g})")
    raise AssertionError(msg)
