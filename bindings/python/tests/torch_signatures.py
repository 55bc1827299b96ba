"""What PyTorch calls the arguments of each function, from its own schemas and documentation. As a program it writes
strata/_torch_signatures.py, in an environment with PyTorch and strata: python bindings/python/tests/torch_signatures.py"""

import inspect
import pathlib
import re
import textwrap

TAIL = '''LINES = SIGNATURES.replace("\\n ", " ").strip().split("\\n")
NAMES = frozenset([*(line.split(" ", 1)[0] for line in LINES), *ALIKE.split()])
'''
TARGET = pathlib.Path(__file__).resolve().parents[1] / "strata" / "_torch_signatures.py"
HEAD = '''"""What PyTorch calls the arguments of each function that has other names for them here, or not all of them: its name, then
the names in order, for each way to call it. A line that begins with a blank goes on with the one before. ALIKE are functions
written in Python whose names are PyTorch's: they get ``out=``. Written by tests/torch_signatures.py; do not edit."""

'''
# Python functions without a schema, whose documentation gives another signature than the one they have.
WRITTEN_OUT = {
    "einsum": [["equation", "operands"]], "meshgrid": [["tensors", "indexing"]], "where": [["condition", "input", "other", "out"]],
    "view": [["input", "size"], ["input", "shape"], ["input", "dtype"]], "to": [["input", "device", "dtype", "non_blocking", "copy", "memory_format"]],
}


def _documented(name, doc):
    """The argument lists in a docstring."""
    for match in re.finditer(r"(?:^|\n|\.\. (?:function|method):: *)\s*(?:torch\.)?" + re.escape(name) + r"\(", doc or ""):
        depth, text = 1, ""
        for c in doc[match.end():]:
            depth += (c in "([{") - (c in ")]}")
            if not depth:
                break
            text += c
        depth, part, names = 0, "", []
        for c in " ".join(text.split()) + ",":
            depth += (c in "([{") - (c in ")]}")
            if c == "," and not depth:
                part = re.sub(r"[=:].*$", "", part).strip().replace("\\*", "*").split(" ")[-1].lstrip("*")
                if part.isidentifier():
                    names.append(part)
                part = ""
            else:
                part += c
        yield names


def _schemas():
    import torch

    found = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        first = str(schema.arguments[0].type) if schema.arguments else ""
        if space != "aten" or name.startswith("_") or first in ("t", "t[]", "str", "int", "float", "number", "Scalar"):
            if name not in ("arange", "linspace", "logspace", "full", "eye", "randint", "randperm", "pow"):
                continue
        if any("Dimname" in str(a.type) for a in schema.arguments):
            continue
        names = ["input" if a.name == "self" else a.name for a in schema.arguments if not a.is_out]
        if any(a.is_out for a in schema.arguments):
            names.append("out")
        found.setdefault(name, []).append(names)
    return found


def of_torch(wanted):
    """{name: [names, ..]} of the functions and methods of PyTorch whose name is wanted."""
    import torch

    schemas, table = _schemas(), {}
    for name in sorted(wanted):
        ways = list(WRITTEN_OUT.get(name, ())) or list(schemas.get(name, ()))
        for space in () if name in WRITTEN_OUT else (torch, torch.Tensor):
            function = getattr(space, name, None)
            if function is None or isinstance(function, type):
                continue
            documented = list(_documented(name, function.__doc__))
            if inspect.isfunction(function) or (not documented and name not in schemas):
                try:
                    documented += [[p.name for p in inspect.signature(function).parameters.values() if p.name != "self"]]
                except (TypeError, ValueError):
                    continue
            for names in documented:
                names = [n for n in names if n not in ("args", "kwargs")]
                ways.append(["input"] + [n for n in names if n != "input"] if space is torch.Tensor else names)
        kept = []
        for way in ways:
            inside = any(way != other and [n for n in other if n in way] == way for other in ways)
            if way and not inside and way not in kept:
                kept.append(way)
        if kept:
            table[name] = kept
    return table


def wanted():
    """Public functions of strata, its methods, those of linalg and special with PyTorch's prefix."""
    import strata as st

    names = {n for n in (*vars(st), *dir(st.Tensor)) if not n.startswith("_")}
    for space in ("linalg", "special"):
        names |= {f"{space}_{n}" for n in getattr(st, space).__all__}
    return {n.rstrip("_") for n in names}


def _functions(name):
    """What is called so here: a function, a method."""
    import strata as st

    for space, prefix in ((st, ""), (st.linalg, "linalg_"), (st.special, "special_")):
        if name.startswith(prefix) and callable(found := getattr(space, name[len(prefix):], None)):
            yield found, ()
    for form in (name, name + "_"):
        if (found := vars(st.Tensor).get(form)) is not None:
            yield found, ("input",)


def sorted_out(table):
    """What of a table has to be said, and which functions of Python take PyTorch's names by themselves."""
    from strata import _signatures

    said, alike = {}, []
    for name, ways in table.items():
        asked = {n for way in ways for n in way} - {"out"} - _signatures._SILENT
        taken, found, of_python = True, False, False
        for function, bare in _functions(name):
            known = callable(function) and not isinstance(function, type)
            if known:
                own = _signatures.parameters(function)
                named = {n for i, n in enumerate(own.names) if i >= own.bare and i != own.star}
                taken = taken and all(n in named or own.more(n) or n in bare for n in asked)
            taken = taken and known
            of_python = of_python or type(function).__name__ not in ("Op", "OpMethod")
            found = True
        if not (taken and found):
            said[name] = ways
        elif of_python:
            alike.append(name)
    return said, alike


def text(table):
    said, alike = sorted_out(table)
    lines = [name + " " + " | ".join(" ".join(way) for way in ways) for name, ways in said.items()]
    wrapped = [textwrap.fill(line, 120, subsequent_indent=" ", break_on_hyphens=False) for line in lines]
    names = textwrap.fill(" ".join(alike), 120, break_on_hyphens=False)
    return f'{HEAD}SIGNATURES = """\n' + "\n".join(wrapped) + f'\n"""\nALIKE = """\n{names}\n"""\n{TAIL}'


if __name__ == "__main__":
    TARGET.write_text(text(of_torch(wanted())))
