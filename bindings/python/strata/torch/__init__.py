"""PyTorch's name for strata: after ``install()`` every ``import torch`` and ``import torch.nn`` finds strata's module of that
path, and what is not there is an ImportError that says why. ``python -m strata.torch script.py`` runs a script so."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Optional, Sequence

__all__ = ["install", "run"]


class _Loader(importlib.abc.Loader):
    """Hands over strata's module."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._own = {k: module.__dict__.get(k, self) for k in ("__spec__", "__loader__", "__package__", "__path__")}

    def create_module(self, spec: Any) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        for key, value in self._own.items():  # import wrote its own
            if value is self:
                module.__dict__.pop(key, None)
            else:
                module.__dict__[key] = value
        module.__dict__.setdefault("__path__", [])  # PyTorch may have modules below where strata has none


class _Finder(importlib.abc.MetaPathFinder):
    """Finds ``torch.x`` as ``strata.x``."""

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "torch" and not name.startswith("torch."):
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(_module(name)), is_package=True)


def _module(name: str) -> types.ModuleType:
    import strata
    from .. import _paths

    rest = name[len("torch."):]
    if not rest:
        return strata
    parts = rest.split(".")
    for i in range(len(parts), 0, -1):
        reason = _paths.REFUSED.get(".".join(parts[:i]))
        if reason:
            raise ModuleNotFoundError(f"{name} is not there under strata: {reason}", name=name)
    try:
        return importlib.import_module(f"strata.{rest}")
    except ModuleNotFoundError as error:
        if error.name is None or not f"strata.{rest}".startswith(error.name):
            raise
    above: Any = importlib.import_module("strata" + "".join(f".{p}" for p in parts[:-1]))
    found = vars(above).get(parts[-1])
    if found is None or isinstance(found, (types.FunctionType, type(len))):
        raise ModuleNotFoundError(f"{name} is not there under strata; docs/library/python.md lists what differs from PyTorch", name=name)
    return found if isinstance(found, types.ModuleType) else _paths._Path(f"strata.{rest}", found)


def install() -> None:
    """From here on, ``torch`` is strata, and texts say so: ``str(torch.float32)`` is "torch.float32". RuntimeError where
    PyTorch itself was imported already."""
    import strata

    loaded = sys.modules.get("torch")
    if loaded is strata:
        return
    if loaded is not None:
        raise RuntimeError("strata.torch.install: PyTorch was imported already; install() comes before it")
    strata._paths.make()
    strata._core._show_as("torch")
    sys.meta_path.insert(0, _Finder())
    importlib.import_module("torch")


def run(arguments: Sequence[str]) -> None:
    """``[script.py, ..]``, ``["-m", module, ..]`` or ``["-c", code, ..]``, as Python itself would run them."""
    import runpy

    given = list(arguments)
    if not given or given[0] in ("-h", "--help"):
        print("usage: python -m strata.torch (SCRIPT | -m MODULE | -c CODE) [ARGUMENTS]\n\n"
              "Runs a PyTorch program with strata in PyTorch's place.")
        raise SystemExit(0 if given else 2)
    if given[0] in ("-m", "-c") and len(given) < 2:
        raise SystemExit(f"strata.torch: {given[0]} wants an argument")
    install()
    if given[0] == "-m":
        sys.argv = given[1:]
        sys.path[0] = ""
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
    elif given[0] == "-c":
        sys.argv = ["-c", *given[2:]]
        sys.path[0] = ""
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        main.__dict__["__builtins__"] = __builtins__
        exec(compile(given[1], "<string>", "exec"), main.__dict__)
    else:
        _script(given)


def _script(given: Sequence[str]) -> None:
    """The file as the program: its folder first in the path, its module __main__, its traceback without this one's frames."""
    import io
    import os

    path = given[0]
    if os.path.isdir(path):
        path = os.path.join(path, "__main__.py")
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        raise SystemExit(f"strata.torch: can't open file {given[0]!r}: [Errno {error.errno}] {error.strerror}") from None
    sys.argv = list(given)
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=os.path.abspath(path), __builtins__=__builtins__, __spec__=None, __loader__=None,
                         __cached__=None)
    sys.modules["__main__"] = main
    exec(compile(source, os.path.abspath(path), "exec"), main.__dict__)
