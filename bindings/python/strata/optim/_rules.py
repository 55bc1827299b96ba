"""The engine's optimizers: a class for each record, whose line for Python says the arguments in their order."""

from __future__ import annotations

import ast
import inspect
import json
import re
from typing import Any, Dict, List

from .. import _core as C
from .optimizer import _LOW, Optimizer

# PyTorch's switches of how it computes, which is one way here.
_SWITCHES = {"foreach": ("Optional[bool]", None), "fused": ("Optional[bool]", None), "capturable": ("bool", False),
             "differentiable": ("bool", False), "decoupled_weight_decay": ("bool", False)}
_TYPES = {"number": "float", "boolean": "bool", "count": "int", "seed": "int"}


def _split(text: str) -> List[str]:
    """At the commas outside of brackets."""
    return re.findall(r"(?:[^,(]|\([^)]*\))+", text.replace(", ", ","))


def _default(option: Dict[str, Any], sign: int = 1) -> Any:
    return sign * float(option["default"]) if option["kind"] == "number" else option["default"]


def _class_of(record: Dict[str, Any]) -> Any:
    options = {o["name"]: o for o in record["options"]}
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("params", kind, annotation="Params")]
    takes: Dict[str, Any] = {}
    beside: Dict[str, Any] = {}
    defaults: List[str] = []

    def add(name: str, default: Any, annotation: str) -> None:
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))

    for item in [*_split(record["python"]), *([] if "*" in _split(record["python"]) else ["*"]), *_LOW]:
        name, _, target = item.partition("=")
        if name == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif ":" in name:
            name, _, value = name.partition(":")
            beside[name] = ast.literal_eval(value)
        elif name in _LOW:
            add(name, _default(options[name]), _TYPES[options[name]["kind"]])
            defaults.append(name)
        elif target.startswith("("):
            parts = target.strip("()").split(",")
            types = ", ".join("Optional[float]" if p.endswith("?") else "float" for p in parts)
            takes[name] = tuple(p.rstrip("?") for p in parts)
            add(name, tuple(None if p.endswith("?") else _default(options[p]) for p in parts), f"Tuple[{types}]")
            defaults.append(name)
        elif target or name in options:
            option = options[(target or name).lstrip("-")]
            takes[name] = target or name
            add(name, _default(option, -1 if target.startswith("-") else 1), _TYPES[option["kind"]])
            defaults.append(name)
        elif name == "maximize":
            add(name, False, "bool")
            defaults.append(name)
        else:
            annotation, beside[name] = _SWITCHES[name]
            add(name, beside[name], annotation)
    signature = inspect.Signature(parameters)
    switches = [name for name in ("differentiable", "decoupled_weight_decay")
                if name in signature.parameters and name not in defaults]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        if switches:
            self._switch(**{name: given.arguments[name] for name in switches})
        Optimizer.__init__(self, given.arguments["params"], {name: given.arguments[name] for name in defaults})

    __init__.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *parameters])
    base = globals()["Adam"] if record["title"] == "AdamW" else Optimizer
    return type(record["title"], (base,), {
        "__doc__": record["doc"], "__module__": __name__, "__init__": __init__, "_kind": record["name"],
        "_takes": takes, "_beside": beside})


__all__: List[str] = []
for _record in sorted(json.loads(C._optimizer_records()), key=lambda r: bool(r["title"] == "AdamW")):  # it is an Adam
    if _record["python"]:
        globals()[_record["title"]] = _class_of(_record)
        __all__.append(_record["title"])
