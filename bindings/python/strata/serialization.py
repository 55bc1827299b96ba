"""st.save and st.load: nested dictionaries, lists and tuples of tensors and plain values as one safetensors file. Nothing
in a file is ever executed."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from ._core import Tensor
from ._io import load_file, save_file

__all__ = ["load", "save"]

Path = Union[str, "os.PathLike[str]"]

# Structure and plain values of a nested object stand as JSON in the file's metadata under this key; {"$": NAME} is the
# tensor of that name. A plain dictionary of tensors needs none of it: such a file is what other programs write.
_KEY = "strata.structure"
_PLAIN = (str, int, float, bool, type(None))


def save(obj: Any, path: Path) -> None:
    """Writes ``obj``: a dictionary of tensors becomes a safetensors file that any program reads; other nested dictionaries
    (keys of str or int), lists and tuples of tensors, numbers, text, bool and None come back as they were. TypeError for
    anything else."""
    tensors: Dict[str, Tensor] = {}
    if isinstance(obj, Mapping) and obj and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in obj.items()):
        tensors = {str(k): v.detach() for k, v in obj.items()}
        save_file(tensors, os.fspath(path), {})
        return
    structure = _pack(obj, "", tensors)
    save_file(tensors, os.fspath(path), {_KEY: json.dumps(structure)})


def _pack(value: Any, path: str, tensors: Dict[str, Tensor]) -> Any:
    def below(name: Any) -> str:
        return f"{path}.{name}" if path else str(name)

    if isinstance(value, Tensor):
        name = path or "tensor"
        while name in tensors:
            name += "_"
        tensors[name] = value.detach()
        return {"$": name}
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
        if kind == "$float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if kind == "$tuple" and isinstance(content, list):
            return tuple(_unpack(v, tensors) for v in content)
        if kind == "$dict" and isinstance(content, list) and all(isinstance(i, list) and len(i) == 2 for i in content):
            return {k: _unpack(v, tensors) for k, v in content if isinstance(k, (str, int))}
    if isinstance(value, _PLAIN):
        return value
    raise ValueError(f"st.load: the structure in the file is damaged at {str(value)[:60]!r}")


def load(path: Path, map_location: Any = None, weights_only: bool = True) -> Any:
    """Reads what save() wrote, or any safetensors file (as a dictionary of tensors). ``map_location``: the device to put
    tensors on. Throws IoError for a file that is missing or damaged."""
    if not weights_only:
        raise ValueError("st.load reads safetensors files, which hold no code: weights_only=False has no meaning here")
    tensors, metadata = load_file(os.fspath(path))
    if map_location is not None:
        tensors = {k: v.to(map_location) for k, v in tensors.items()}
    structure: Optional[str] = metadata.get(_KEY)
    if structure is None:
        return tensors
    try:
        parsed = json.loads(structure)
    except ValueError as error:
        raise ValueError(f"st.load: the structure in {os.fspath(path)} is damaged: {error}") from None
    return _unpack(parsed, tensors)
