"""Weights set to zero for good: the parameter becomes <name>_orig, and <name> is it times the buffer <name>_mask, computed
before each call. Names, arguments and what is counted are torch.nn.utils.prune's."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ... import _core as C
from ... import _ops as ops
from ..._core import Tensor
from ..._grad_mode import no_grad
from ..module import Module
from ..parameter import Parameter
from .weights import _hook, _unhook

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured",
    "ln_structured", "random_structured", "random_unstructured", "remove",
]

Amount = Union[int, float]


def _checked(amount: Amount) -> Amount:
    """A share or a number; whether there are so many is for the records to say."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"amount={amount} must be a number")
    if isinstance(amount, float) and not 0.0 <= amount <= 1.0 or amount < 0:
        raise ValueError(f"amount={amount} should be a float in the range [0.0, 1.0] or a non-negative integer")
    return amount


class BasePruningMethod:
    """A way to choose what goes. compute_mask(scores, mask) gives the new mask; what an earlier one removed stays removed."""

    PRUNING_TYPE = "unstructured"  # or "structured", over the channels of ``dim``, or "global"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no compute_mask()")

    def prune(self, t: Tensor, default_mask: Optional[Tensor] = None, importance_scores: Optional[Tensor] = None) -> Tensor:
        """A tensor times its new mask."""
        mask = C.ones_like(t) if default_mask is None else default_mask
        found: Tensor = t * self.compute_mask(t if importance_scores is None else importance_scores, mask)
        return found

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Optional[Tensor] = None, **kwargs: Any) -> Any:
        """Prunes a parameter of the module, or prunes it further."""
        method = cls(*args, **kwargs)
        pruned = _is(module, name)
        if not pruned and module._parameters.get(name) is None:
            raise AttributeError(f"{type(module).__name__} has no parameter {name!r} to prune")
        original: Any = module._parameters[name + "_orig"] if pruned else module._parameters[name]
        before: Any = module._buffers[name + "_mask"] if pruned else C.ones_like(original.detach())
        scores = (original.detach() * before) if importance_scores is None else importance_scores
        if list(scores.shape) != list(original.shape):
            raise ValueError("importance_scores should have the same shape as the parameter")
        with no_grad():
            mask = method.compute_mask(scores, before)
        if pruned:
            module._buffers[name + "_mask"] = mask
            object.__setattr__(module, name, _masked(module, name))
            return method
        del module._parameters[name]
        module.register_parameter(name + "_orig", original)
        module.register_buffer(name + "_mask", mask)
        _hook(module, name, "prune", lambda owner: _masked(owner, name))
        return method


def _masked(module: Any, name: str) -> Tensor:
    made: Tensor = getattr(module, name + "_orig") * getattr(module, name + "_mask")
    return made


def _is(module: Module, name: str) -> bool:
    return f"_prune_{name}" in module.__dict__


class Identity(BasePruningMethod):
    """Keeps everything: a mask of ones."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask.clone()


class CustomFromMask(BasePruningMethod):
    """A mask that is given."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        found: Tensor = default_mask * self.mask.to(default_mask.dtype)
        return found


class L1Unstructured(BasePruningMethod):
    """The smallest elements go."""

    def __init__(self, amount: Amount) -> None:
        self.amount = _checked(amount)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return ops.l1_unstructured_mask(default_mask, t, self.amount)


class RandomUnstructured(L1Unstructured):
    """Elements that are drawn go."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return ops.random_unstructured_mask(default_mask, self.amount)


class LnStructured(BasePruningMethod):
    """Channels of ``dim`` with the smallest n-norms go."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, n: float, dim: int = -1) -> None:
        self.amount, self.n, self.dim = _checked(amount), float(n), dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return ops.ln_structured_mask(default_mask, t, self.amount, self.n, self.dim)


class RandomStructured(LnStructured):
    """Channels of ``dim`` that are drawn go."""

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        super().__init__(amount, 1, dim)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return ops.random_structured_mask(default_mask, self.amount, self.dim)


def identity(module: Module, name: str) -> Module:
    """A mask of ones, for a parameter that is to be pruned elsewhere."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Amount) -> Module:
    """``amount`` of the elements, a share or a number, that are drawn."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Amount, importance_scores: Optional[Tensor] = None) -> Module:
    """``amount`` of the elements, the smallest."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Amount, dim: int) -> Module:
    """``amount`` of the channels of ``dim`` that are drawn."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: Amount, n: float, dim: int,
                  importance_scores: Optional[Tensor] = None) -> Module:
    """``amount`` of the channels of ``dim``, those of the smallest n-norms."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """A mask of one's own."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Iterable[Tuple[Module, str]], pruning_method: Callable[..., BasePruningMethod],
                        importance_scores: Optional[Dict[Tuple[Module, str], Tensor]] = None, **kwargs: Any) -> None:
    """One choice over the elements of several parameters, as if they were one."""
    pairs: Sequence[Tuple[Module, str]] = list(parameters)
    if not pairs:
        raise ValueError("global_unstructured: no parameters were given")
    scores: List[Tensor] = []
    masks: List[Tensor] = []
    for module, name in pairs:
        pruned = _is(module, name)
        value: Any = getattr(module, name).detach()
        given = (importance_scores or {}).get((module, name))
        scores.append((value if given is None else given).reshape([-1]))
        mask: Any = module._buffers[name + "_mask"] if pruned else C.ones_like(value)
        masks.append(mask.reshape([-1]))
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"only unstructured methods are global, not {pruning_method}")
    with no_grad():
        together = method.compute_mask(ops.cat(scores, 0), ops.cat(masks, 0))
    start = 0
    for (module, name), part in zip(pairs, masks):
        chosen = together.narrow(0, start, part.numel())
        start += part.numel()
        custom_from_mask(module, name, chosen.reshape(list(getattr(module, name).shape)))


def remove(module: Module, name: str) -> Module:
    """The parameter with zeros where the mask has them, and no mask."""
    if not _is(module, name):
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    value = _masked(module, name).detach()
    _unhook(module, name, "prune")
    original: Any = module._parameters.pop(name + "_orig")
    del module._buffers[name + "_mask"]
    with no_grad():
        original.copy_(value)
    module.register_parameter(name, original if isinstance(original, Parameter) else Parameter(original))
    return module


def is_pruned(module: Module) -> bool:
    """Whether the module or one inside it has a pruned parameter."""
    return any(key.startswith("_prune_") for part in module.modules() for key in part.__dict__)
