"""Modules and parameters in lists and dictionaries."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union, overload

from .._core import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]

S = TypeVar("S", bound="Sequential")
L = TypeVar("L", bound="ModuleList")


class Sequential(Module):
    """Modules one after the other: ``Sequential(Linear(2, 8), Tanh())``, or one OrderedDict of named modules."""

    @overload
    def __init__(self, *args: Module) -> None: ...
    @overload
    def __init__(self, arg: "OrderedDict[str, Module]") -> None: ...
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()
        if named:  # the OrderedDict, by its name
            args = (named.pop("arg"),)
        if len(args) == 1 and isinstance(args[0], dict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def _key(self, index: int) -> str:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return list(self._modules)[index]

    @overload
    def __getitem__(self: S, index: slice) -> S: ...
    @overload
    def __getitem__(self, index: int) -> Module: ...
    def __getitem__(self, index: Union[int, slice]) -> Module:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._named_items())[index]))
        return self._child(self._key(index))

    def _named_items(self) -> List[Tuple[str, Module]]:
        return [(k, m) for k, m in self._modules.items() if m is not None]

    def _child(self, key: str) -> Module:
        module = self._modules[key]
        assert module is not None
        return module

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[self._key(index)] = module

    def __delitem__(self, index: Union[int, slice]) -> None:
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            del self._modules[key]
        self._renumber()

    def _renumber(self) -> None:
        if all(k.isdigit() for k in self._modules):
            modules = list(self._modules.values())
            self._modules.clear()
            self._modules.update({str(i): m for i, m in enumerate(modules)})

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter([m for _, m in self._named_items()])

    def append(self: S, module: Module) -> S:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: S, modules: Iterable[Module]) -> S:
        """Adds modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self: S, index: int, module: Module) -> S:
        """Puts a module before that of ``index``."""
        modules = [m for _, m in self._named_items()]
        modules.insert(index, module)
        self._modules.clear()
        self._modules.update({str(i): m for i, m in enumerate(modules)})
        return self

    def forward(self, input: Any) -> Any:
        """Each module's result is the next one's input."""
        for module in self._modules.values():
            assert module is not None
            input = module(input)
        return input


class ModuleList(Module):
    """A list of modules that are registered."""

    def __init__(self, modules: Optional[Iterable[Module]] = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _items(self) -> List[Any]:
        return list(self._modules.values())  # None holds a place

    def _key(self, index: int) -> str:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range")
        return str(index % size)

    def _fill(self, modules: Iterable[Module]) -> None:
        found = list(modules)
        self._modules.clear()
        for i, module in enumerate(found):
            self.add_module(str(i), module)

    @overload
    def __getitem__(self: L, index: slice) -> L: ...
    @overload
    def __getitem__(self, index: int) -> Any: ...
    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            return type(self)(self._items()[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[self._key(index)] = module

    def __delitem__(self, index: Union[int, slice]) -> None:
        modules = self._items()
        del modules[index]
        self._fill(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __iadd__(self: L, modules: Iterable[Module]) -> L:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *other])

    def append(self: L, module: Module) -> L:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: L, modules: Iterable[Module]) -> L:
        """Adds modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Puts a module before that of ``index``."""
        modules = self._items()
        modules.insert(index, module)
        self._fill(modules)

    def pop(self, index: int = -1) -> Any:
        """Takes a module out."""
        module = self[index]
        del self[index]
        return module


class ModuleDict(Module):
    """A dictionary of modules that are registered."""

    def __init__(self, modules: Union[Mapping[str, Module], Iterable[Tuple[str, Module]], None] = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        module = self._modules[key]
        assert module is not None
        return module

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._modules))

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return list(self._modules)

    def values(self) -> Iterable[Module]:
        """The modules."""
        return [m for m in self._modules.values() if m is not None]

    def items(self) -> Iterable[Tuple[str, Module]]:
        """Names and modules."""
        return [(k, m) for k, m in self._modules.items() if m is not None]

    def update(self, modules: Union[Mapping[str, Module], Iterable[Tuple[str, Module]]]) -> None:
        """Adds or replaces modules."""
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for name, module in pairs:
            self[name] = module

    def pop(self, key: str) -> Module:
        """Takes a module out."""
        module = self[key]
        del self[key]
        return module

    def clear(self) -> None:
        """Takes all modules out."""
        self._modules.clear()


def _parameter(value: Tensor) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


class ParameterList(Module):
    """A list of parameters that are registered; tensors become parameters."""

    def __init__(self, values: Optional[Iterable[Tensor]] = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int) -> Parameter:
        return list(self)[index]

    def __setitem__(self, index: int, value: Tensor) -> None:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        self._parameters[str(index % len(self))] = _parameter(value)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter([p for p in self._parameters.values() if p is not None])

    def append(self, value: Tensor) -> "ParameterList":
        """Adds a parameter at the end."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Tensor]) -> "ParameterList":
        """Adds parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(
            f"({i}): Parameter containing: [{p.dtype} of size {'x'.join(str(s) for s in p.shape)}]" for i, p in enumerate(self)
        )


class ParameterDict(Module):
    """A dictionary of parameters that are registered; tensors become parameters."""

    def __init__(self, values: Optional[Mapping[str, Tensor]] = None) -> None:
        super().__init__()
        for key, value in (values or {}).items():
            self[key] = value

    def __getitem__(self, key: str) -> Parameter:
        value = self._parameters[key]
        assert value is not None
        return value

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._parameters))

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return list(self._parameters)

    def values(self) -> Iterable[Parameter]:
        """The parameters."""
        return [p for p in self._parameters.values() if p is not None]

    def items(self) -> Iterable[Tuple[str, Parameter]]:
        """Names and parameters."""
        return [(k, p) for k, p in self._parameters.items() if p is not None]

    def extra_repr(self) -> str:
        return "\n".join(
            f"({k}): Parameter containing: [{p.dtype} of size {'x'.join(str(s) for s in p.shape)}]" for k, p in self.items()
        )
