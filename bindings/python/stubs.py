"""Writes what type checkers read of the package (_core.pyi, _ops.pyi, _records.pyi, __init__.pyi, optim/_rules.pyi,
distributions/families.pyi)
from the description of the records and from what Python adds to Tensor:
`python bindings/python/stubs.py [--package FOLDER] [--to FOLDER]`.

The build calls it (CMakeLists.txt), so a package that is installed has them. Without arguments it asks the installed
package and writes them beside the source, where git ignores them: for mypy over the source, and for editors. --package
names the folder in which strata/ lies, where it is not installed.

What is no record stands in core_template.pyi, with a line `#: methods` where the records' methods belong."""

from __future__ import annotations

import argparse
import inspect
import json
import pathlib
import re
import sys
import textwrap
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
HEADER = '"""Written by bindings/python/stubs.py from the op records."""\n'
# What the description's kinds are in Python.
TYPES = {
    "Tensor": "TensorLike", "Tensor[]": "Sequence[Optional[Tensor]]", "Scalar": "Number", "int": "_int", "float": "_float",
    "bool": "_bool", "str": "str", "int[]": "Ints", "DType": "DTypeLike", "Device": "DeviceLike",
    "RngKey": "Optional[Tuple[_int, _int]]",
}
# The names that PyTorch users know; the schema's own are understood as well.
NAMES = {"dims": "dim", "kernel": "kernel_size", "q": "query", "k": "key", "v": "value"}


def type_of(arg: dict[str, Any]) -> str:
    text = "Tensor" if arg["optional"] and arg["kind"] == "Tensor" else TYPES[arg["kind"]]
    return f"Optional[{text}]" if arg["optional"] and not text.startswith("Optional[") else text


def result_type(op: dict[str, Any], whole: bool) -> str:
    results = op["results"] if whole else op["results"][: op["shown"]]
    if len(results) > 1:
        return "Tuple[" + ", ".join("Tensor" for _ in results) + "]"
    return "Tuple[Tensor, ...]" if results[0]["kind"] == "Tensor[]" else "Tensor"


def parameters(args: list[dict[str, Any]], method: bool) -> str:
    out = []
    used = set()
    for i, arg in enumerate(args):
        if method and i == 0:
            out.append("self")
            continue
        kind, name = arg["kind"], arg["name"]
        default = "default" in arg or kind == "RngKey"
        shown = NAMES.get(name, name)
        if i == 0 and name in ("x", "a") and kind == "Tensor":
            shown = "input"
        elif i == 1 and name == "b":
            shown = "other"
        if shown in used or any(shown == other["name"] for other in args):
            shown = name
        used.add(shown)
        kind_text = type_of(arg)
        last = i == len(args) - 1
        if kind == "int[]" and not arg["optional"] and last and (i == 0 or method):
            out.append(f"*{shown}: Ints")
            continue
        if kind == "Tensor[]" and last:
            out.append(f"*{shown}: Union[Tensor, Sequence[Tensor]]" if name == "operands" else f"{shown}: {kind_text}")
            continue
        if kind == "Tensor" and i == 0 and not arg["optional"]:
            kind_text = "Tensor"
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


def function(name: str, op: dict[str, Any], whole: bool, indent: str = "") -> str:
    doc = op["doc"] if name == op["name"] else f"{op['name']}(), written over the first argument."
    head = f"{indent}@staticmethod\n" if indent else ""
    return (f"{head}{indent}def {name}({parameters(op['args'], False)}) -> {result_type(op, whole)}:\n"
            f"{docstring(doc, indent + '    ')}\n{indent}    ...\n")


def write(tensor: Any, records: list[dict[str, Any]], template: str, rest: str) -> dict[str, str]:
    """_ops.pyi, _records.pyi and _core.pyi."""
    by_hand = set(re.findall(r"^    def (\w+)\(", template, re.M)) | set(re.findall(r"^    (\w+):", template, re.M))
    functions, internal, shown, methods, known = [], [], [], [], set(by_hand)
    for op in records:
        forms = [""] + ["_"] * op["inplace"]
        if op["internal"]:
            internal += [function(op["name"] + form, op, True, "    ") for form in forms]
            continue
        functions += [function(op["name"] + form, op, True) for form in forms]
        if op["shown"] < len(op["results"]):
            shown.append(function(op["name"], op, False))
        shown += [f"{alias}{form} = _ops.{op['name']}{form}\n" for alias in op["aliases"] for form in forms]
        for name in (name + form for name in [op["name"], *op["aliases"]] for form in forms):
            known.add(name)
            if op["args"] and op["args"][0]["type"] == "Tensor" and name not in by_hand:
                methods.append(f"    def {name}({parameters(op['args'], True)}) -> {result_type(op, False)}: ...\n")
    for name in sorted(n for n in dir(tensor) if not n.startswith("_") and n not in known):
        methods.append(of_method(name, vars(tensor)[name]))
    head = (HEADER + "\nfrom typing import Any, Optional, Sequence, Tuple, Union\n\n"
            "from ._core import DeviceLike, DTypeLike, Ints, Number, Tensor, TensorLike, _bool, _float, _int\n\n")
    return {
        "_ops.pyi": head + "\n".join(functions) + "\nclass internal:\n" + "\n".join(internal),
        "_records.pyi": head.replace("from ._core", "from . import _ops\nfrom ._core") + "\n".join(shown),
        "_core.pyi": HEADER + template.replace("    #: methods\n", "".join(methods)) + "\n# ---- what nanobind made\n" + rest,
    }


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


def of_package(strata: Any, records: list[dict[str, Any]]) -> str:
    """strata/__init__.pyi: every public name with the module that says what it is."""
    lines = []
    # What _records.pyi has, beside what is as in _ops.pyi.
    apart = {op["name"] for op in records if op["shown"] < len(op["results"])}
    apart |= {alias + form for op in records for alias in op["aliases"] for form in [""] + ["_"] * op["inplace"]}
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
        elif name in apart and value is strata._core.shown_ops[name]:
            lines.append(f"from ._records import {name} as {name}")
        elif name in vars(strata._functions):
            lines.append(f"from ._functions import {name} as {name}")
        elif name in strata._core.shown_ops:
            lines.append(f"from ._ops import {name} as {name}")
        elif name == "__version__":
            lines.append("from ._version import __version__ as __version__")
        else:
            module = value.__module__.removeprefix("strata.")
            lines.append(f"from .{module} import {name} as {name}")
    return HEADER + "\n" + "\n".join(lines) + "\n"


def of_optimizers(rules: Any) -> str:
    """optim/_rules.pyi: the classes that are made of the optimizers' records."""
    lines = [HEADER, "from typing import Optional, Tuple", "", "from .optimizer import Optimizer, Params", "",
             f"__all__ = {rules.__all__}"]
    for name in rules.__all__:
        made = getattr(rules, name)
        parameters = inspect.signature(made).parameters.values()
        found = ["self"] + [str(p).replace("'", "") for p in parameters]
        named = next(i for i, p in enumerate(parameters, 1) if p.kind == p.KEYWORD_ONLY)
        found.insert(named, "*")
        lines += ["", f"class {name}({made.__bases__[0].__name__}):", docstring(made.__doc__, "    "),
                  f"    def __init__({', '.join(found)}) -> None: ..."]
    return "\n".join(lines) + "\n"


def of_distributions(strata: Any) -> str:
    """strata/distributions/families.pyi: the classes that families.py makes of the records."""
    lines = [HEADER, "from typing import Any, Dict, Optional, Sequence, Union", "", "from .._core import Tensor",
             "from .distribution import ExponentialFamily, Shell", "from .constraints import Constraint", "",
             "Value = Union[Tensor, float]", "_RECORDS: Dict[str, Any]", "_MADE: Dict[str, type]", "",
             "def _constraint(said: Dict[str, Any]) -> Constraint: ...", "",
             "class Recorded(Shell):", "    support: Constraint", "    param_shape: Any",
             "    def expand(self, batch_shape: Any, _instance: Any = ...) -> Any: ...", "",
             "class RecordedExponential(Recorded, ExponentialFamily): ...", ""]
    records = json.loads(strata._core._distribution_records())["distributions"]
    for record in sorted(records, key=lambda r: (bool(r["parent"]), r["name"])):
        parent = record["parent"] or ("RecordedExponential" if record["exponential"] else "Recorded")
        lines += [f"class {record['name']}({parent}):", docstring(record["doc"], "    ")]
        arguments = []
        for p in record["parameters"]:
            count = p["role"] == "count"
            lines.append(f"    {p['name']}: {'int' if count else 'Tensor'}")
            if p["role"] == "derived":
                continue
            kind = "int" if count else "Union[Tensor, Sequence[float]]" if p["role"] == "pair" else "Value"
            kind = f"Optional[{kind}]" if p["role"] == "one_of" else kind
            left_out = p["role"] == "one_of" or p["default"] is not None
            arguments.append(f"{p['name']}: {kind}" + (" = ..." if left_out else ""))
        if record["name"] in ("LogNormal", "HalfNormal", "HalfCauchy"):
            lines.append(f"    base_dist: {'Cauchy' if record['name'] == 'HalfCauchy' else 'Normal'}")
        head = "    def __init__("  # arguments stay whole where it is wrapped
        text = ", ".join(a.replace(" ", "~") for a in ["self", *arguments, "validate_args: Optional[bool] = ...) -> None: ..."])
        lines += [line.replace("~", " ") for line in textwrap.wrap(head.strip() + text, 116, initial_indent="    ",
                                                                   subsequent_indent=" " * len(head))] + [""]
    return "\n".join(lines)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--package", help="the folder in which the strata/ lies that is described")
    asked.add_argument("--to", default=str(HERE / "strata"), help="the folder that gets the stubs")
    options = asked.parse_args()
    sys.path[:] = [p for p in sys.path if pathlib.Path(p).resolve() != HERE]  # the built package, not its source
    if options.package:
        sys.path.insert(0, options.package)
    import strata

    template = (HERE / "core_template.pyi").read_text()
    records = json.loads(strata._core.describe_ops())["ops"]
    texts = write(strata.Tensor, records, template, of_nanobind(strata._core, template))
    texts["__init__.pyi"] = of_package(strata, records)
    texts["optim/_rules.pyi"] = of_optimizers(strata.optim._rules)
    texts["distributions/families.pyi"] = of_distributions(strata)
    for name, text in texts.items():
        path = pathlib.Path(options.to) / name
        if path.is_symlink():  # into the source, by a build that is older than this
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
