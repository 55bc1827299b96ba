"""PyTorch's argument names, and ``out=``, for every function and method: one table of what PyTorch calls the arguments
(tests/torch_signatures.py writes it from PyTorch's own schemas), and one way to call a function by them. A call that the
function understands by itself never comes here."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _core
from ._core import Tensor

# What may be said and changes nothing: there is one layout, memory is pinned by pin_memory(), and so on.
_SILENT = {"layout", "pin_memory", "memory_format", "non_blocking", "implicit", "sparse_grad", "async_", "foreach"}


class _Parameters(NamedTuple):
    names: Tuple[str, ...]
    star: Optional[int]  # the place of *args
    rest: bool  # whether there are **keywords
    more: Any  # tells of further names that are taken
    bare: int = 0  # leading arguments that have no name to callers


_parameters: Dict[Any, _Parameters] = {}
_table: Dict[str, List[List[str]]] = {}


def table() -> Dict[str, List[List[str]]]:
    """The names of each function's arguments in PyTorch, a list for each way to call it."""
    if not _table:
        from ._torch_signatures import LINES

        for line in LINES:
            name, _, rest = line.partition(" ")
            _table[name] = [way.split() for way in rest.split("|")]
    return _table


def _nothing(name: str) -> bool:
    return False


def parameters(function: Any) -> _Parameters:
    """What a function's own arguments are called."""
    function = getattr(function, "__wrapped__", function)
    found = _parameters.get(function)
    if found is None:
        found = _parameters[function] = _parameters_of(function)
    return found


def _parameters_of(function: Any) -> _Parameters:
    if type(function).__name__ in ("Op", "OpMethod"):
        return _Parameters(function._parameters, None, False, function._takes)
    written = getattr(function, "__nb_signature__", None)
    if written is not None:
        ways = [_of_text(str(way[0])) for way in written]
        longest = max(ways, key=lambda way: len(way.names))
        every = {name for way in ways for name in way.names}
        return longest._replace(more=every.__contains__)
    found = list(inspect.signature(function).parameters.values())
    star = next((i for i, p in enumerate(found) if p.kind == p.VAR_POSITIONAL), None)
    rest = any(p.kind == p.VAR_KEYWORD for p in found)
    bare = sum(p.kind == p.POSITIONAL_ONLY for p in found)
    return _Parameters(tuple(p.name for p in found if p.kind != p.VAR_KEYWORD), star, rest, _nothing, bare)


def _of_text(text: str) -> _Parameters:
    """The same of a signature that nanobind wrote: ``def eye(n: int, m: int | None = None, *, device: ..) -> Tensor``."""
    names: List[str] = []
    star, rest, depth, part = None, False, 0, ""
    for c in text[text.index("(") + 1 : text.rindex(") ->") if ") ->" in text else text.rindex(")")] + ",":
        depth += (c in "([{") - (c in ")]}")
        if c != "," or depth:
            part += c
            continue
        name = re.split(r"[:=]", part.strip())[0].strip()
        part = ""
        if name.startswith("**"):
            rest = True
        elif name.startswith("*") and name != "*":
            star = len(names)
            names.append(name[1:])
        elif name and name not in ("*", "/"):
            names.append(name)
    return _Parameters(tuple(names), star, rest, _nothing)


def place(name: str, keywords: Any) -> Dict[str, int]:
    """For keywords that the function does not take: which of its arguments each one is, where PyTorch has such a name."""
    asked = {k for k in keywords}
    ways = sorted(table().get(name) or table().get(name.rstrip("_"), []), key=lambda way: (len(asked & set(way)), -len(way)), reverse=True)
    found: Dict[str, int] = {}
    for way in ways:
        for keyword in asked:
            if keyword in way and keyword not in found:
                found[keyword] = way.index(keyword)
    return found


def call(function: Any, args: List[Any], keywords: Dict[str, Any]) -> Any:
    """The function, called by PyTorch's names."""
    name: str = function.__name__
    own = parameters(function)
    scoped, known = function, getattr(function, "_known", None)
    function = getattr(function, "__wrapped__", function)
    out = keywords.pop("out", None) if "out" not in own.names else None
    named = [n for i, n in enumerate(own.names) if i >= own.bare and i != own.star]
    given: Dict[str, Any] = {}
    unknown: Dict[str, Any] = {}
    for keyword, value in keywords.items():
        taken = keyword in named or own.more(keyword)
        (given if taken else unknown)[keyword] = value
        if taken and known is not None and own.star is None:
            known.add(keyword)
    places = place(getattr(scoped, "_scope", "") + name, unknown)
    dtype, wants_grad = None, False
    for keyword, value in sorted(unknown.items(), key=lambda item: places.get(item[0], 99)):
        at = places.get(keyword)
        spread = own.star is not None and at is not None and at >= own.star and at == len(args)
        if spread and not (own.rest and keyword in ("dtype", "device")):
            args.append(value)
        elif own.rest:
            given[keyword] = value
        elif at is None or at >= len(own.names) or own.names[at] in given or at < len(args) or own.names[at] in keywords:
            if keyword in _SILENT or (value is None and at is not None):
                continue
            if keyword == "dtype" and at is not None:
                dtype = value
            elif keyword == "requires_grad" and at is not None:
                wants_grad = bool(value)
            else:
                raise TypeError(f"{name}: there is no argument '{keyword}'; there are {', '.join(own.names) or 'none'}")
        else:
            given[own.names[at]] = value
    if dtype is not None and args and isinstance(args[0], Tensor):
        args = [args[0].to(dtype), *args[1:]]  # the input in another dtype first, as PyTorch's sums and products do it
        dtype = None
    while len(args) < max(own.bare, 1) and own.names[len(args) : len(args) + 1] and own.names[len(args)] in given:
        args.append(given.pop(own.names[len(args)]))  # a method's first argument has no name
    result = function(*args, **given)
    if dtype is not None:  # of what has no input
        result = result.to(dtype)
    if wants_grad:
        result.requires_grad_()
    return result if out is None else written(name, result, out)


def written(name: str, result: Any, out: Any) -> Any:
    """``out`` with the result in it: in its dtype, and in another shape where it has the wrong one."""
    if isinstance(out, (tuple, list)):
        if not isinstance(result, tuple) or len(result) != len(out):
            raise TypeError(f"{name}: out has {len(out)} tensors, the result has "
                            f"{len(result) if isinstance(result, tuple) else 1}")
        filled = [written(name, r, o) for r, o in zip(result, out)]
        return type(result)(*filled) if hasattr(result, "_fields") else tuple(filled)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}: out must be a Tensor, got {type(out).__name__}")
    if not isinstance(result, Tensor):
        raise TypeError(f"{name}: out must be {len(result)} tensors, as the result is")
    if _core.is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise _core.AutogradError(f"{name}: nothing can be differentiated through out=, and an argument requires a gradient")
    if result.device != out.device:
        raise _core.DeviceError(f"{name}: out is on {out.device}, the result on {result.device}")
    if not _castable(result.dtype, out.dtype):
        raise _core.DTypeError(f"{name}: the result of {result.dtype} cannot be cast to out's {out.dtype}")
    if out.shape != result.shape:
        if out.numel():
            warnings.warn(f"{name}: out of shape {list(out.shape)} was resized to {list(result.shape)}: give an empty tensor, "
                          "or one of the right shape", stacklevel=4)
        out.data = _core.empty(result.shape, dtype=out.dtype, device=out.device)
    return out.copy_(result.detach())


def _kind(dtype: Any) -> int:
    return 2 if dtype.is_floating_point else 0 if dtype == _core.bool else 1


def _castable(source: Any, target: Any) -> bool:
    return _kind(source) <= _kind(target)


def install(namespace: Dict[str, Any], prefix: str = "") -> None:
    """Gives the functions of a module PyTorch's names."""
    for key in list(namespace):
        function = namespace[key]
        if prefix + key in _names() and _plain(function):
            namespace[key] = named = _core.Named(function)
            named._scope = prefix


def install_methods() -> None:
    """The same for the methods of Tensor."""
    methods = vars(Tensor)
    for key in _names():
        function = methods.get(key)
        if function is not None and _plain(function):
            setattr(Tensor, key, _core.Named(function))


def _plain(function: Any) -> bool:
    """Whether it is a function that has to be told; the records' ask by themselves."""
    return type(function).__name__ in ("function", "nb_func", "nb_method")


def _names() -> Any:
    from ._torch_signatures import NAMES

    return NAMES
