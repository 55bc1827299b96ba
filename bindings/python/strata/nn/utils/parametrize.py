"""Parameters computed from others: torch.nn.utils.parametrize."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Type

from ..._core import Tensor
from ..._grad_mode import no_grad
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations"]

_cache: Optional[Dict[Any, Tensor]] = None


class ParametrizationList(ModuleList):
    """The modules that make one parameter, one after the other, and what they make it of: ``original`` (or ``original0``,
    ``original1``, .. where the first one's right_inverse() gives several)."""

    def __init__(self, first: Module, original: Tensor) -> None:
        super().__init__([first])
        self.ntensors = 1
        self.is_tensor = True
        with no_grad():
            start: Any = original.detach()
            inverse = getattr(first, "right_inverse", None)
            if inverse is not None:
                start = inverse(start)
        self.is_tensor = isinstance(start, Tensor)
        if self.is_tensor:
            self._keep("original", start, original)
        else:
            self.ntensors = len(start)
            for i, part in enumerate(start):
                self._keep(f"original{i}", part, original)

    def _keep(self, name: str, value: Tensor, like: Tensor) -> None:
        if isinstance(like, Parameter):
            self.register_parameter(name, Parameter(value.detach().clone(), like.requires_grad))
        else:
            self.register_buffer(name, value)

    def forward(self) -> Tensor:
        if self.is_tensor:
            x = self[0](self.original)
        else:
            x = self[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for step in list(self)[1:]:
            x = step(x)
        result: Tensor = x
        return result


def _make(name: str) -> property:
    def read(self: Any) -> Tensor:
        made = self.parametrizations[name]
        if _cache is None:
            value: Tensor = made()
            return value
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = made()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        made = self.parametrizations[name]
        with no_grad():
            for step in reversed(list(made)):
                inverse = getattr(step, "right_inverse", None)
                if inverse is None:
                    raise RuntimeError(f"parametrization {type(step).__name__} of '{name}' has no right_inverse(), so that "
                                       f"'{name}' cannot be assigned")
                value = inverse(value)
            parts = (value,) if made.is_tensor else value
            names = ("original",) if made.is_tensor else tuple(f"original{i}" for i in range(made.ntensors))
            for key, part in zip(names, parts):
                getattr(made, key).copy_(part)

    return property(read, write)


def _kind(module: Module) -> Type[Module]:
    """A class of the module's own, which computes the parametrised parameters."""
    cls = type(module)
    if "_parametrized_of" in cls.__dict__:
        return cls

    def deepcopied(self: Any, memo: Dict[int, Any]) -> Any:
        made = cls.__deepcopy__(self, memo)
        object.__setattr__(made, "__class__", type(self))
        return made

    return type("Parametrized" + cls.__name__, (cls,), {"_parametrized_of": cls, "__deepcopy__": deepcopied})


def is_parametrized(module: Module, tensor_name: Optional[str] = None) -> bool:
    """Whether a parameter (or that one) of the module is computed from others."""
    made = module._modules.get("parametrizations")
    return isinstance(made, ModuleDict) and (tensor_name is None or tensor_name in made)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """module.<tensor_name> is from now on ``parametrization`` of a parameter, which the optimizer sees as
    module.parametrizations.<tensor_name>.original."""
    if is_parametrized(module, tensor_name):
        made: Any = module.parametrizations[tensor_name]
        with no_grad():
            inverse = getattr(parametrization, "right_inverse", None)
            if inverse is not None:
                setattr(module, tensor_name, inverse(getattr(module, tensor_name)))
        made.append(parametrization)
        return module
    original = module._parameters.get(tensor_name)
    given: Optional[Tensor] = original if original is not None else module._buffers.get(tensor_name)
    if given is None:
        raise ValueError(f"Module '{type(module).__name__}' does not have a parameter, a buffer, or a parametrized element "
                         f"with name '{tensor_name}'")
    made = ParametrizationList(parametrization, given)
    with no_grad():
        made.train(module.training)
        value = made()
        if not unsafe and (tuple(value.shape) != tuple(given.shape) or value.dtype != given.dtype):
            raise ValueError(f"the parametrization of '{tensor_name}' changes its shape or dtype: {list(given.shape)} "
                             f"{given.dtype.name} to {list(value.shape)} {value.dtype.name}; unsafe=True allows it")
    delattr(module, tensor_name)
    kind = _kind(module)
    if not is_parametrized(module):
        object.__setattr__(module, "__class__", kind)
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    setattr(kind, tensor_name, _make(tensor_name))
    return module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """module.<tensor_name> is a parameter again: of the value that it has, or without ``leave_parametrized`` of the one that
    it was computed from."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {type(module).__name__} does not have a parametrization on {tensor_name}")
    made: Any = module.parametrizations[tensor_name]
    if leave_parametrized:
        with no_grad():
            value = made().detach().clone()
    elif made.is_tensor:
        value = made.original.detach()
    else:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of "
                         "a sequence of tensors.")
    trained = made._parameters
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        del module._modules["parametrizations"]
        object.__setattr__(module, "__class__", type(module)._parametrized_of)  # type: ignore[attr-defined]
    if trained:
        wants = any(p.requires_grad for p in trained.values() if p is not None)
        module.register_parameter(tensor_name, Parameter(value, wants))
    else:
        module.register_buffer(tensor_name, value)
    return module


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrised parameter is computed once."""
    global _cache
    before, _cache = _cache, {} if _cache is None else _cache
    try:
        yield
    finally:
        _cache = before
