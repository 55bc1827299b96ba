"""Writes strata/_core.pyi and strata/_ops.pyi from the op records, and from what Python adds to Tensor:
`python bindings/python/stubs.py [--check]`.

What is no record stands in core_template.pyi, with a line `#: methods` where the records' methods belong."""

from __future__ import annotations

import inspect
import pathlib
import re
import sys
import textwrap
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
HEADER = '"""Written by bindings/python/stubs.py from the op records; do not edit."""\n'
TYPES = {
    "Tensor": "TensorLike", "Tensor?": "Optional[Tensor]", "Tensor[]": "Sequence[Optional[Tensor]]", "Scalar": "Number",
    "Scalar?": "Optional[Number]", "int": "_int", "int?": "Optional[_int]", "float": "_float",
    "float?": "Optional[_float]", "bool": "_bool", "str": "str", "int[]": "Ints", "int[]?": "Optional[Ints]", "DType": "DTypeLike",
    "DType?": "Optional[DTypeLike]", "Device": "DeviceLike", "Device?": "Optional[DeviceLike]",
    "RngKey": "Optional[Tuple[_int, _int]]", "RngKey?": "Optional[Tuple[_int, _int]]",
}
# The names that PyTorch users know; the schema's own are understood as well.
NAMES = {"dims": "dim", "kernel": "kernel_size", "q": "query", "k": "key", "v": "value"}


def split_schema(schema: str) -> tuple[str, list[tuple[str, str, bool]], list[str]]:
    """Name, arguments (type, name, has a default) and results of "softmax(Tensor x, int dim) -> Tensor"."""
    name, rest = schema.split("(", 1)
    depth, args_text, at = 1, "", 0
    for at, c in enumerate(rest):
        depth += (c in "([") - (c in ")]")
        if depth == 0:
            break
        args_text += c
    args, part, depth = [], "", 0
    for c in args_text + ",":
        depth += (c in "[") - (c in "]")
        if c == "," and depth == 0:
            if part.strip():
                kind, arg = part.strip().split(" ", 1)
                args.append((kind, arg.split("=")[0], "=" in arg))
            part = ""
        else:
            part += c
    results = rest[at + 1 :].replace("->", "").strip().strip("()")
    return name, args, [r.strip() for r in results.split(",")]


def result_type(op: str, results: list[str]) -> str:
    if len(results) > 1:
        return "Tuple[" + ", ".join("Tensor" for _ in results) + "]"
    return "Tuple[Tensor, ...]" if results[0].startswith("Tensor[]") else "Tensor"


def parameters(args: list[tuple[str, str, bool]], method: bool) -> str:
    out = []
    used = set()
    for i, (kind, name, default) in enumerate(args):
        if method and i == 0:
            out.append("self")
            continue
        shown = NAMES.get(name, name)
        if i == 0 and name in ("x", "a") and kind == "Tensor":
            shown = "input"
        elif i == 1 and name == "b":
            shown = "other"
        if shown in used or any(shown == other for _, other, _ in args):
            shown = name
        used.add(shown)
        kind_text = TYPES[kind]
        last = i == len(args) - 1
        if kind in ("int[]",) and last and (i == 0 or method):
            out.append(f"*{shown}: Ints")
            continue
        if kind == "Tensor[]" and last:
            out.append(f"*{shown}: Union[Tensor, Sequence[Tensor]]" if name == "operands" else f"{shown}: {kind_text}")
            continue
        if kind == "Tensor" and i == 0:
            kind_text = "Tensor"
        if kind == "RngKey":
            default = True
        out.append(f"{shown}: {kind_text}" + (" = ..." if default else ""))
    # No argument without a default may follow one that has one.
    seen = False
    for i, p in enumerate(out):
        if p.endswith("= ..."):
            seen = True
        elif seen and not p.startswith("*") and p != "self":
            out[i] = p + " = ..."
    return ", ".join(out)


def docstring(doc: str, indent: str) -> str:
    text = doc.replace("\\", "\\\\").replace('"""', "'''")
    if text.endswith('"'):
        text += " "
    lines = textwrap.wrap(text, 116 - len(indent)) or [""]
    return f'{indent}"""' + ("\n" + indent).join(lines) + '"""'


def of_method(name: str, value: Any) -> str:
    """Stub of a method or property of Tensor that is written in Python, beside the records."""
    if isinstance(value, property):
        return f"    @property\n    def {name}(self) -> Any: ...\n"
    try:
        found = list(inspect.signature(value).parameters.values())[1:]
    except (TypeError, ValueError):
        return f"    def {name}(self, *args: Any, **kwargs: Any) -> Any: ...\n"
    out, named = ["self"], False
    for p in found:
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if p.kind == p.KEYWORD_ONLY and not named:
            out.append("*")
        named = named or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        out.append(f"{star}{p.name}: Any" + ("" if star or p.default is p.empty else " = ..."))
    of_record = type(value).__name__ == "OpMethod"
    result = '"Tensor"' if of_record or getattr(value, "__annotations__", {}).get("return") == "Tensor" else "Any"
    return f"    def {name}({', '.join(out)}) -> {result}: ...\n"


def write(tensor: Any, ops: dict[str, Any], template: str, rest: str) -> tuple[str, str]:
    by_hand = set(re.findall(r"^    def (\w+)\(", template, re.M)) | set(re.findall(r"^    (\w+):", template, re.M))
    functions, methods = [], []
    for name in sorted(ops):
        op = ops[name]
        schema, _, doc = (op.__doc__ or "").partition("\n\n")
        _, args, results = split_schema(schema)
        if name.endswith("_") and name[:-1] in ops:
            doc = f"{name[:-1]}(), written over the first argument."
        result = result_type(name, results)
        functions.append(f"def {name}({parameters(args, False)}) -> {result}:\n{docstring(doc, '    ')}\n    ...\n")
        if args and args[0][0] == "Tensor" and name not in by_hand:
            methods.append(f"    def {name}({parameters(args, True)}) -> {result}: ...\n")
    known = by_hand | set(ops)
    for name in sorted(n for n in dir(tensor) if not n.startswith("_") and n not in known):
        methods.append(of_method(name, vars(tensor)[name]))
    ops_text = (HEADER + "\nfrom typing import Any, Optional, Sequence, Tuple, Union\n\n"
                "from ._core import DeviceLike, DTypeLike, Ints, Number, Tensor, TensorLike, _bool, _float, _int\n\n"
                + "\n".join(functions))
    core_text = HEADER + template.replace("    #: methods\n", "".join(methods)) + "\n# ---- what nanobind made\n" + rest
    return core_text, ops_text


def of_nanobind(core: Any, template: str) -> str:
    """Stubs of what nanobind made and the template does not write out."""
    from nanobind.stubgen import StubGen

    written = set(re.findall(r"^(?:def|class) (\w+)", template, re.M)) | set(re.findall(r"^(\w+):", template, re.M))
    generator = StubGen(core, recursive=False, quiet=True)
    for name in sorted(vars(core)):
        value = getattr(core, name)
        if name in written or name.startswith("__") or type(value).__name__ in ("Op", "module", "dict"):
            continue
        if isinstance(value, type) and value.__module__ != "strata._core":
            continue
        generator.put(value, name=name)
    lines = [line for line in generator.get().splitlines() if not re.match(r'(from|import) |"""', line)]
    return "\n".join(clean(line) for line in lines) + "\n"


def clean(line: str) -> str:
    """The same names as in the template: the builtins and classes that methods and properties hide, with an underscore."""
    line = re.sub(r"\b(?:strata\._core\.|_core\.|collections\.abc\.|typing\.)", "", line)
    if not re.match(r"\s*(def |\w+:)", line):
        return line
    if " def __eq__(" in line:
        return re.sub(r"\(.*$", "(self, other: object) -> _bool: ...", line)
    line = re.sub(r"(?<=[\[ ])(int|float|bool|dtype|device)(?=[\],)\s]|$)(?! \()", r"_\1", line)
    line = re.sub(r"-> (int|float|bool|dtype|device):", r"-> _\1:", line)
    line = re.sub(r"(?<=[\[ ])bytes(?=[\],):\s]|$)", "builtins.bytes", line)
    for bare, full in (("tuple", "Tuple[Any, ...]"), ("dict", "dict[Any, Any]"), ("list", "List[Any]")):
        line = re.sub(rf"(?<=[\[ ]){bare}(?=[\],):]|$)", full, line)
    return line


def of_package(strata: Any) -> str:
    """strata/__init__.pyi: every public name with the module that says what it is."""
    lines = []
    for name in sorted(vars(strata)):
        value = vars(strata)[name]
        value = getattr(value, "__wrapped__", value) if type(value).__name__ == "Named" else value  # by PyTorch's names
        if name.startswith("_") and name != "__version__":
            continue
        if name == "ops":
            lines.append("from . import _ops as ops")
        elif isinstance(value, type(re)):
            if type(value) is type(re) and value.__name__ == f"strata.{name}":
                lines.append(f"from . import {name} as {name}")
        elif name in vars(strata._core) and getattr(strata._core, name) is value:
            lines.append(f"from ._core import {name} as {name}")
        elif getattr(value, "__module__", "") == "strata._array_api":
            lines.append(f"from ._array_api import {name} as {name}")
        elif any(name in part.__all__ for part in (strata._drawn, strata._compat)):
            part = "_drawn" if name in strata._drawn.__all__ else "_compat"
            lines.append(f"from .{part} import {name} as {name}")
        elif name in strata._composed.__all__:
            lines.append(f"from ._composed import {name} as {name}")
        elif name in vars(strata._functions):
            lines.append(f"from ._functions import {name} as {name}")
        elif name in strata._core.ops:
            lines.append(f"from ._ops import {name} as {name}")
        elif name == "__version__":
            lines.append("from ._version import __version__ as __version__")
        else:
            module = value.__module__.removeprefix("strata.")
            lines.append(f"from .{module} import {name} as {name}")
    return HEADER + "\n" + "\n".join(lines) + "\n"


def main() -> int:
    sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != HERE]  # the built package, not its source
    import strata

    template = (HERE / "core_template.pyi").read_text()
    texts = dict(zip(("_core.pyi", "_ops.pyi"), write(strata.Tensor, strata._core.ops, template, of_nanobind(strata._core, template))))
    texts["__init__.pyi"] = of_package(strata)
    stale = []
    for name, text in texts.items():
        path = HERE / "strata" / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if "--check" in sys.argv and stale:
        print(f"not current: {', '.join(stale)}; run bindings/python/stubs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
