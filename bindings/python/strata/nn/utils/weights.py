"""Weight and spectral norm by hooks (PyTorch's older form), norms folded into layers, layers without initial values."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional, Tuple, Type, TypeVar

from ... import _ops as ops
from ..._core import Tensor
from ..._grad_mode import no_grad
from ..module import Module
from ..parameter import Parameter
from .parametrizations import _SpectralNorm

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
    along = -1 if dim is None else dim  # -1: one length for all
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(ops.norm_except_dim(weight.detach(), 2.0, along)))
    module.register_parameter(name + "_v", Parameter(weight.detach().clone()))

    def compute(owner: Any) -> Tensor:
        return ops.weight_norm(getattr(owner, name + "_v"), getattr(owner, name + "_g"), along)

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


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Optional[Tensor], bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Optional[Tensor],
    bn_b: Optional[Tensor], transpose: bool = False,
) -> Tuple[Parameter, Parameter]:
    """Weight and bias of a convolution (or, without more dimensions, a linear map) with a batch norm folded in."""
    with no_grad():
        weight, bias = ops.fold_batch_norm(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)
    return (Parameter(weight.detach(), conv_w.requires_grad),
            Parameter(bias.detach(), conv_w.requires_grad if conv_b is None else conv_b.requires_grad))


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Optional[Tensor], bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                           bn_w: Optional[Tensor], bn_b: Optional[Tensor]) -> Tuple[Parameter, Parameter]:
    """Weight and bias of a linear map with a batch norm folded in."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(layer: M, bn: Module, name: str, transpose: bool) -> M:
    if layer.training or bn.training:
        raise ValueError(f"{name}: fusion only for eval()")
    made: Any = copy.deepcopy(layer)
    norm: Any = bn
    weight, bias = fuse_conv_bn_weights(made.weight, made.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight,
                                        norm.bias, transpose)
    made.weight = weight
    made.bias = None
    made.register_parameter("bias", bias)
    fused: M = made
    return fused


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A convolution that does what ``conv`` and the batch norm after it do in evaluation."""
    return _fused(conv, bn, "fuse_conv_bn_eval", transpose)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A linear map that does what ``linear`` and the batch norm after it do in evaluation."""
    return _fused(linear, bn, "fuse_linear_bn_eval", False)


def skip_init(module_cls: Type[M], *args: Any, **kwargs: Any) -> M:
    """A module; drawing initial values costs little here, so they are drawn."""
    return module_cls(*args, **kwargs)
