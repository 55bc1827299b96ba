"""st.save and st.load: nested dictionaries, lists and tuples of tensors, arrays and plain values as one safetensors file.
Nothing in a file is ever executed."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any, Dict, List, Mapping, Optional, Tuple, Union

from . import _core
from ._core import IoError, Tensor
from ._functions import tensor as _tensor
from ._io import load_file, save_file

__all__ = ["load", "save"]

File = Union[str, "os.PathLike[str]", IO[bytes]]

# Structure and plain values of a nested object stand as JSON in the file's metadata under this key; {"$": NAME} is the
# tensor of that name, {"$array": NAME} the same as a NumPy array, {"$scalar": NAME} as a NumPy scalar. A plain dictionary
# of tensors needs none of it: such a file is what other programs write.
_KEY = "strata.structure"
_PLAIN = (str, int, float, bool, type(None))


def save(obj: Any, f: File) -> None:
    """Writes ``obj`` to a path, or to a file that is open for writing bytes (an io.BytesIO, say): a dictionary of tensors
    becomes a safetensors file that any program reads; other nested dictionaries (keys of str or int), lists and tuples of
    tensors, NumPy arrays, numbers, text, bool and None come back as they were. TypeError for anything else."""
    tensors: Dict[str, Tensor] = {}
    metadata: Dict[str, str] = {}
    if isinstance(obj, Mapping) and obj and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in obj.items()):
        tensors = {str(k): v.detach() for k, v in obj.items()}
    else:
        try:
            metadata[_KEY] = json.dumps(_pack(obj, "", tensors))
        except RecursionError:
            raise ValueError("st.save: the object is nested too deep, or holds itself") from None
    write = getattr(f, "write", None)
    if write is None:
        save_file(tensors, os.fspath(f), metadata)  # type: ignore[arg-type]
        return
    _write_all(write, _core.encode_safetensors(tensors, metadata))


def _write_all(write: Any, data: bytes) -> None:
    rest = memoryview(data)
    while len(rest) > 0:
        try:
            n = write(rest)
        except TypeError as error:
            raise TypeError(f"st.save: the file wants text; open it for bytes, as in open(path, 'wb') ({error})") from None
        # a raw file may take a part; most objects give no number and take all
        rest = rest[n:] if isinstance(n, int) and 0 < n < len(rest) else rest[len(rest):]


def _array(value: Any) -> Optional[str]:
    """How a NumPy value comes back; None for what is none."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    return "$array" if isinstance(value, numpy.ndarray) else "$scalar" if isinstance(value, numpy.generic) else None


def _pack(value: Any, path: str, tensors: Dict[str, Tensor]) -> Any:
    def below(name: Any) -> str:
        return f"{path}.{name}" if path else str(name)

    def add(content: Tensor) -> str:
        name = path or "tensor"
        while name in tensors:
            name += "_"
        tensors[name] = content
        return name

    if isinstance(value, Tensor):
        return {"$": add(value.detach())}
    kind = _array(value)
    if kind is not None:
        try:
            return {kind: add(_tensor(value if kind == "$array" else sys.modules["numpy"].asarray(value)))}
        except (TypeError, ValueError) as error:
            raise TypeError(f"st.save: the array at '{path}' cannot be saved: {error}") from None
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$float": repr(value)}
    if isinstance(value, _PLAIN) and type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        items: List[Tuple[Any, Any]] = []
        for k, v in value.items():
            if type(k) not in (str, int):
                raise TypeError(f"st.save: a key is {type(k).__name__} ({k!r}); str and int can be saved")
            items.append((k, _pack(v, below(k), tensors)))
        return {"$dict": items}
    if isinstance(value, tuple):
        return {"$tuple": [_pack(v, below(i), tensors) for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [_pack(v, below(i), tensors) for i, v in enumerate(value)]
    raise TypeError(
        f"st.save: {type(value).__name__} at '{path}' cannot be saved; tensors, dict, list, tuple, str, int, float, bool and "
        "None can (a module's state_dict(), not the module)"
    )


def _unpack(value: Any, tensors: Dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    if isinstance(value, dict) and len(value) == 1:
        (kind, content), = value.items()
        if kind == "$" and isinstance(content, str) and content in tensors:
            return tensors[content]
        if kind in ("$array", "$scalar") and isinstance(content, str) and content in tensors:
            array = tensors[content].numpy()
            return array if kind == "$array" else array[()]
        if kind == "$float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if kind == "$tuple" and isinstance(content, list):
            return tuple(_unpack(v, tensors) for v in content)
        if kind == "$dict" and isinstance(content, list) and all(isinstance(i, list) and len(i) == 2 for i in content):
            return {k: _unpack(v, tensors) for k, v in content if isinstance(k, (str, int))}
    if isinstance(value, _PLAIN):
        return value
    raise ValueError(f"at {str(value)[:60]!r}")


def load(f: File, map_location: Any = None, weights_only: bool = True) -> Any:
    """Reads what save() wrote, or any safetensors file (as a dictionary of tensors), from a path or from a file that is
    open for reading bytes. ``map_location``: the device to put tensors on. IoError for a file that is missing, damaged
    or of another kind; of PyTorch's own it says how to convert it."""
    if not weights_only:
        raise ValueError("st.load reads safetensors files, which hold no code: weights_only=False has no meaning here")
    read = getattr(f, "read", None)
    if read is None:
        name = os.fspath(f)  # type: ignore[arg-type]
        tensors, metadata = load_file(name)
    else:
        name = str(getattr(f, "name", "") or type(f).__name__)
        data = read()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"st.load: reading {name} gave {type(data).__name__}; open it for bytes, as in open(path, 'rb')")
        tensors, metadata = _core.decode_safetensors(bytes(data), name)
    structure: Optional[str] = metadata.get(_KEY)
    if map_location is not None:
        tensors = {k: v.to(map_location) for k, v in tensors.items()}
    if structure is None:
        return tensors
    try:
        return _unpack(json.loads(structure), tensors)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise IoError(f"st.load: the structure in {name} is damaged: {why}") from None
