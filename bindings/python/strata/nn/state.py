"""How a module takes a state_dict."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple, TYPE_CHECKING

from .._core import Tensor
from .._grad_mode import no_grad
from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module


class IncompatibleKeys(NamedTuple):
    """What load_state_dict found no counterpart for."""

    missing_keys: List[str]
    unexpected_keys: List[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _Plan:
    """What a module and all below it want of a state_dict."""

    def __init__(self, root: Module, state: Dict[str, Any], strict: bool) -> None:
        self.state, self.strict = state, strict
        self.own: List[Tuple[Module, str, str, Tensor]] = []
        self.extras: List[Tuple[Module, str]] = []
        self.errors: List[str] = []
        self.missing: List[str] = []
        self._add(root, "")

    def _add(self, module: Module, prefix: str) -> None:
        for hook in module._load_pre_hooks.values():
            hook(module, self.state, prefix, {}, self.strict, self.missing, [], self.errors)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                self.own.append((module, name, prefix + name, parameter))
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers:
                self.own.append((module, name, prefix + name, buffer))
        if module._has_extra_state():
            self.extras.append((module, prefix + "_extra_state"))
        for name, child in module._modules.items():
            if child is not None:
                self._add(child, prefix + name + ".")


def load(root: Module, state_dict: Mapping[str, Tensor], strict: bool, assign: bool) -> IncompatibleKeys:
    """Module.load_state_dict()."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    state: Dict[str, Any] = OrderedDict(state_dict)
    plan = _Plan(root, state, strict)
    own, extras, errors, missing = plan.own, plan.extras, plan.errors, plan.missing
    known = {key for _, _, key, _ in own} | {key for _, key in extras}
    unexpected = [key for key in state if key not in known]
    for _, _, key, tensor in own:
        if key not in state:
            missing.append(key)
        elif not isinstance(state[key], Tensor):
            errors.append(f'While copying the parameter named "{key}", expected a Tensor but received {type(state[key])}.')
        elif tuple(state[key].shape) != tuple(tensor.shape):
            errors.append(
                f"size mismatch for {key}: copying a param with shape {list(state[key].shape)} from checkpoint, "
                f"the shape in current model is {list(tensor.shape)}."
            )
    missing.extend(key for _, key in extras if key not in state)
    hooked = any(module._load_post_hooks for module in root.modules())
    if errors or not hooked:  # hooks may yet strike keys out
        _refuse(root, missing if strict else [], unexpected if strict else [], errors)
    with no_grad():
        for module, name, key, tensor in own:
            if key not in state:
                continue
            if not assign:
                tensor.copy_(state[key])
            elif name in module._parameters:
                module._parameters[name] = Parameter(state[key], tensor.requires_grad)
            else:
                module._buffers[name] = state[key]
    for module, key in extras:
        if key in state:
            module.set_extra_state(state[key])
    found = IncompatibleKeys(missing, unexpected)
    if hooked:
        _call_hooks(root, found)
        _refuse(root, missing if strict else [], unexpected if strict else [], [])
    return found


def _quoted(key: str) -> str:
    return f'"{key}"'


def _refuse(root: Module, missing: List[str], unexpected: List[str], errors: List[str]) -> None:
    """RuntimeError, where there is something to say."""
    said = [f"{kind} key(s) in state_dict: {', '.join(_quoted(k) for k in keys)}. "
            for kind, keys in (("Missing", missing), ("Unexpected", unexpected)) if keys] + errors
    if said:
        raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(root).__name__, "\n\t".join(said)))


def _call_hooks(module: Module, found: IncompatibleKeys) -> None:
    """Those of the modules below first."""
    for child in module._modules.values():
        if child is not None:
            _call_hooks(child, found)
    for hook in module._load_post_hooks.values():
        if hook(module, found) is not None:
            raise AssertionError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                                 "values, if incompatible_keys need to be modified, it should be done inplace.")
