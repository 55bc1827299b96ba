"""Weight and spectral norm by hooks (PyTorch's older form), norms folded into layers, layers without initial values."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional, Type, TypeVar

from ..._core import Tensor
from ..._grad_mode import no_grad
from ..module import Module
from ..parameter import Parameter
from .parametrizations import _SpectralNorm, norm_except

M = TypeVar("M", bound=Module)


def _hook(module: Module, name: str, kind: str, compute: Callable[[Any], Tensor]) -> None:
    """module.<name> as a plain attribute that is computed before each call."""
    if f"_{kind}_{name}" in module.__dict__:
        raise RuntimeError(f"Cannot register two {kind} hooks on the same parameter {name}")

    def refresh(owner: Any, _: Any = None) -> None:
        object.__setattr__(owner, name, compute(owner))

    refresh(module)
    object.__setattr__(module, f"_{kind}_{name}", module.register_forward_pre_hook(refresh))


def _unhook(module: Module, name: str, kind: str) -> Tensor:
    handle = module.__dict__.pop(f"_{kind}_{name}", None)
    if handle is None:
        raise ValueError(f"{kind} of '{name}' not found in {type(module).__name__}")
    handle.remove()
    value: Tensor = module.__dict__.pop(name)
    return value.detach()


def weight_norm(module: M, name: str = "weight", dim: Optional[int] = 0) -> M:
    """The weight as a length, <name>_g, times a direction, <name>_v (arXiv:1602.07868)."""
    weight = module._parameters[name]
    assert weight is not None
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except(weight.detach(), dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach().clone()))

    def compute(owner: Any) -> Tensor:
        v = getattr(owner, name + "_v")
        made: Tensor = v * (getattr(owner, name + "_g") / norm_except(v, dim))
        return made

    _hook(module, name, "weight_norm", compute)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """The weight as one parameter again."""
    value = _unhook(module, name, "weight_norm")
    del module._parameters[name + "_g"], module._parameters[name + "_v"]
    module.register_parameter(name, Parameter(value))
    return module


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: Optional[int] = None) -> M:
    """The weight, <name>_orig, over its largest singular value (arXiv:1802.05957)."""
    weight = module._parameters[name]
    assert weight is not None
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    rule = _SpectralNorm(weight, n_power_iterations, dim, eps)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    module.register_buffer(name + "_u", rule._u)
    module.register_buffer(name + "_v", rule._v)

    def compute(owner: Any) -> Tensor:
        rule._buffers["_u"], rule._buffers["_v"] = owner._buffers[name + "_u"], owner._buffers[name + "_v"]
        rule.training = owner.training
        made: Tensor = rule(getattr(owner, name + "_orig"))
        return made

    _hook(module, name, "spectral_norm", compute)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """The weight as one parameter again."""
    value = _unhook(module, name, "spectral_norm")
    del module._parameters[name + "_orig"], module._buffers[name + "_u"], module._buffers[name + "_v"]
    module.register_parameter(name, Parameter(value))
    return module


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A convolution that does what ``conv`` and the batch norm after it do in evaluation."""
    if conv.training or bn.training:
        raise ValueError("fuse_conv_bn_eval: fusion only for eval()")
    made: Any = copy.deepcopy(conv)
    norm: Any = bn
    with no_grad():
        scale = (norm.running_var + norm.eps).rsqrt()
        scale = scale if norm.weight is None else scale * norm.weight
        shift = norm.running_mean * -1 if made.bias is None else made.bias - norm.running_mean
        shift = shift * scale
        shift = shift if norm.bias is None else shift + norm.bias
        form = [1] * made.weight.dim()
        form[1 if transpose else 0] = -1
        made.weight = Parameter((made.weight * scale.reshape(form)).detach(), made.weight.requires_grad)
        made.bias = None
        made.register_parameter("bias", Parameter(shift.detach()))
    fused: M = made
    return fused


def skip_init(module_cls: Type[M], *args: Any, **kwargs: Any) -> M:
    """A module; drawing initial values costs little here, so they are drawn."""
    return module_cls(*args, **kwargs)
