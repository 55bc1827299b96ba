"""Writes strata/optim/_rules.py, a class for each of the engine's optimizers, from their records:
`python bindings/python/optimizers.py [--check]`; with --json FILE from a file of records in place of the built module."""

from __future__ import annotations

import json
import pathlib
import re
import sys
import textwrap
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE / "strata/optim/_rules.py"
HEADER = '''"""Written by bindings/python/optimizers.py from the optimizers' records; do not edit."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from .optimizer import Optimizer, Params

'''
# PyTorch's switches of how it computes, which is one way here.
SWITCHES = {"foreach": ("Optional[bool]", "None"), "fused": ("Optional[bool]", "None"), "capturable": ("bool", "False"),
            "differentiable": ("bool", "False"), "decoupled_weight_decay": ("bool", "False")}
LOW = ("master_weights", "stochastic_rounding", "low_state", "rounding_seed")
TYPES = {"number": "float", "boolean": "bool", "count": "int", "seed": "int"}


def split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    return re.findall(r"(?:[^,(]|\([^)]*\))+", text.replace(", ", ","))


def shown(option: dict[str, Any], sign: int = 1) -> str:
    value = option["default"]
    return repr(sign * float(value)) if option["kind"] == "number" else repr(value)


def wrapped(parts: list[str], indent: int) -> str:
    """One after the other with commas, none broken."""
    text = ", ".join(part.replace(" ", "\0") for part in parts) + ","
    return textwrap.fill(text, 116, initial_indent=" " * indent, subsequent_indent=" " * indent,
                         break_on_hyphens=False, break_long_words=False).replace("\0", " ")


def class_of(record: dict[str, Any]) -> str:
    options = {o["name"]: o for o in record["options"]}
    parameters, takes, defaults, beside = [], {}, [], []
    for item in split(record["python"]):
        name, _, target = item.partition("=")
        if name == "*":
            parameters.append("*")
        elif ":" in name:
            name, _, value = name.partition(":")
            beside.append(f'"{name}": {value}')
        elif target.startswith("("):
            parts = target.strip("()").split(",")
            values = [options[p.rstrip("?")] for p in parts]
            types = ", ".join("Optional[float]" if p.endswith("?") else "float" for p in parts)
            text = ", ".join("None" if p.endswith("?") else shown(v) for p, v in zip(parts, values))
            parameters.append(f"{name}: Tuple[{types}] = ({text})")
            takes[name] = tuple(p.rstrip("?") for p in parts)
        elif target or name in options:
            option = options[(target or name).lstrip("-")]
            sign = -1 if target.startswith("-") else 1
            parameters.append(f"{name}: {TYPES[option['kind']]} = {shown(option, sign)}")
            takes[name] = target or name
        elif name == "maximize":
            parameters.append("maximize: bool = False")
        else:
            kind, default = SWITCHES[name]
            parameters.append(f"{name}: {kind} = {default}")
            beside.append(f'"{name}": {default}')
            continue
        if name != "*" and ":" not in item:
            defaults.append(name)
    if "*" not in split(record["python"]):
        parameters.append("*")
    for name in LOW:
        parameters.append(f"{name}: {TYPES[options[name]['kind']]} = {shown(options[name])}")
        defaults.append(name)
    base = "Adam" if record["title"] == "AdamW" else "Optimizer"
    doc = textwrap.fill(f'"""{record["doc"]}"""', 116, initial_indent="    ", subsequent_indent="    ")
    switches = [name for name in ("differentiable", "decoupled_weight_decay") if any(p.startswith(name + ":") for p in parameters)
                and name not in defaults]
    lines = [f"class {record['title']}({base}):", doc, "", f'    _kind = "{record["name"]}"',
             "    _takes: Dict[str, Any] = {",
             wrapped([f'"{k}": ' + repr(v).replace("'", '"') for k, v in takes.items()], 8), "    }",
             "    _beside: Dict[str, Any] = {" + ", ".join(beside) + "}", "",
             "    def __init__(", wrapped(["self", "params: Params", *parameters], 8), "    ) -> None:"]
    if switches:
        lines.append(f"        self._switch({', '.join(f'{s}={s}' for s in switches)})")
    call = [f"{name}={name}" for name in defaults]
    lines += ["        Optimizer.__init__(self, params, dict(", wrapped(call, 12), "        ))"]
    return "\n".join(lines) + "\n"


def write(records: list[dict[str, Any]]) -> str:
    found = [r for r in records if r["python"]]
    found.sort(key=lambda r: r["title"] == "AdamW")  # after Adam
    names = ", ".join(f'"{r["title"]}"' for r in found)
    return HEADER + textwrap.fill(f"__all__ = [{names}]", 116, subsequent_indent="    ") + "\n\n\n" + "\n\n".join(class_of(r) for r in found)


def main() -> int:
    if "--json" in sys.argv:
        records = json.loads(pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).read_text())
    else:
        sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != HERE]  # the built package, not its source
        from strata import _core

        records = json.loads(_core._optimizer_records())
    text = write(records)
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    if "--check" in sys.argv:
        print("strata/optim/_rules.py is not current; run bindings/python/optimizers.py")
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
