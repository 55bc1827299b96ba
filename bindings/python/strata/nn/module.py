"""Module: a part of a network, with named parameters, buffers and child modules."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple, TypeVar, Union

from .._core import Tensor, bfloat16, dtype as DType, empty_like, float16, float32, float64
from .._grad_mode import no_grad
from .hooks import BackwardHooks, RemovableHandle
from .parameter import Buffer, Parameter
from .state import IncompatibleKeys, load

__all__ = ["Module", "RemovableHandle"]

T = TypeVar("T", bound="Module")
StateDict = Dict[str, Tensor]


class Module:
    """Base of every layer and network, as PyTorch's: assign parameters, buffers and modules, write ``forward``.

    >>> class Net(st.nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.hidden = st.nn.Linear(784, 128)
    ...         self.out = st.nn.Linear(128, 10)
    ...     def forward(self, x: st.Tensor) -> st.Tensor:
    ...         return self.out(st.relu(self.hidden(x)))
    """

    training: bool
    forward: Callable[..., Any]

    def __init__(self) -> None:
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_non_persistent_buffers"] = set()
        d["_modules"] = {}
        d["_forward_hooks"] = {}
        d["_forward_pre_hooks"] = {}
        d["_backward_hooks"] = {}
        d["_backward_pre_hooks"] = {}
        d["_state_dict_hooks"] = {}
        d["_load_pre_hooks"] = {}
        d["_load_post_hooks"] = {}

    # ---- attributes

    _parameters: Dict[str, Optional[Parameter]]
    _buffers: Dict[str, Optional[Tensor]]
    _non_persistent_buffers: Set[str]
    _modules: Dict[str, Optional["Module"]]
    _forward_hooks: Dict[int, Tuple[Callable[..., Any], bool, bool]]
    _forward_pre_hooks: Dict[int, Tuple[Callable[..., Any], bool]]
    _backward_hooks: Dict[int, Callable[..., Any]]
    _backward_pre_hooks: Dict[int, Callable[..., Any]]
    _state_dict_hooks: Dict[int, Callable[..., Any]]
    _load_pre_hooks: Dict[int, Callable[..., Any]]
    _load_post_hooks: Dict[int, Callable[..., Any]]
    _without_parameters = False  # a lazy layer before its first call

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            if kind in d and name in d[kind]:
                return d[kind][name]
        if name == "forward":
            raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        if isinstance(value, (Parameter, Module, Buffer)) and "_parameters" not in d:
            raise AttributeError("cannot assign parameters, buffers or modules before Module.__init__() call")
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._check_name(name, "module")
            if name not in self._modules:  # one that takes another's place stands where that stood
                self._forget(name)
            self._modules[name] = value
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, getattr(value, "persistent", True))
        elif "_parameters" in d and name in self._parameters:
            if value is not None:
                raise TypeError(f"cannot assign '{type(value).__name__}' as parameter '{name}' (Parameter or None expected)")
            self._parameters[name] = None
        elif "_modules" in d and name in self._modules:
            if value is not None:
                raise TypeError(f"cannot assign '{type(value).__name__}' as child module '{name}' (Module or None expected)")
            self._modules[name] = None
        elif "_buffers" in d and name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{type(value).__name__}' as buffer '{name}' (Tensor or None expected)")
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for kind in (self._parameters, self._buffers, self._modules):
            if name in kind:
                del kind[name]
                self._non_persistent_buffers.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> List[str]:
        names = [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]
        return sorted(n for n in set(names) if not n[:1].isdigit())

    def _check_name(self, name: str, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')

    def _forget(self, name: str) -> None:
        self.__dict__.pop(name, None)
        for kind in (self._parameters, self._buffers, self._modules):
            kind.pop(name, None)
        self._non_persistent_buffers.discard(name)

    def register_parameter(self, name: str, param: Optional[Parameter]) -> None:
        """Adds a parameter; None holds the place of one that there is not."""
        self._check_name(name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' (Parameter or None required)")
        if param is not None and not param.is_leaf:
            raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}': its values are computed from others")
        if name not in self._parameters:
            self._new_name(name)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Optional[Tensor], persistent: bool = True) -> None:
        """Adds a tensor that belongs to the state but is not trained; it is in the state_dict only if ``persistent``."""
        self._check_name(name, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (Tensor or None required)")
        if name not in self._buffers:
            self._new_name(name)
        self._buffers[name] = tensor
        (self._non_persistent_buffers.discard if persistent else self._non_persistent_buffers.add)(name)

    def register_module(self, name: str, module: Optional["Module"]) -> None:
        """The same as add_module()."""
        self.add_module(name, module)

    def add_module(self, name: str, module: Optional["Module"]) -> None:
        """Adds a child module."""
        self._check_name(name, "module")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        if name not in self._modules:
            self._new_name(name)
        self._modules[name] = module

    def _new_name(self, name: str) -> None:
        if name in self._parameters or name in self._buffers or name in self._modules:
            self._forget(name)
        elif hasattr(type(self), name) or name in self.__dict__:
            if name in self.__dict__:
                del self.__dict__[name]
            else:
                raise KeyError(f"attribute '{name}' already exists")

    def get_submodule(self, target: str) -> "Module":
        """The module of a dotted name; "" is this one."""
        module: Module = self
        for part in target.split(".") if target else []:
            found = module._modules.get(part)
            if found is None:
                raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
            module = found
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not a buffer")
        return found

    # ---- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks):
            return self.forward(*args, **kwargs)
        result: Any = None
        finished = False
        always = [(h, k) for h, k, a in self._forward_hooks.values() if a]
        try:
            for hook, with_kwargs in list(self._forward_pre_hooks.values()):
                out = hook(self, args, kwargs) if with_kwargs else hook(self, args)
                if out is None:
                    continue
                if with_kwargs:
                    if not (isinstance(out, tuple) and len(out) == 2):
                        raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {out}.")
                    args, kwargs = out
                else:
                    args = out if isinstance(out, tuple) else (out,)
            backward = None
            if self._backward_hooks or self._backward_pre_hooks:
                backward = BackwardHooks(self, list(self._backward_pre_hooks.values()), list(self._backward_hooks.values()))
                args = backward.at_input(args)
            result = self.forward(*args, **kwargs)
            for hook, with_kwargs, _ in list(self._forward_hooks.values()):
                always = [a for a in always if a[0] is not hook]
                out = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                if out is not None:
                    result = out
            if backward is not None:
                result = backward.at_output(result)
            finished = True
            return result
        finally:
            if not finished:
                for hook, with_kwargs in always:
                    hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """``hook(module, args)`` runs before forward(); what it returns, unless None, takes the arguments' place."""
        return RemovableHandle(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """``hook(module, args, result)`` runs after forward(); what it returns, unless None, takes the result's place.
        With ``always_call`` it also runs where forward() raised."""
        return RemovableHandle(self._forward_hooks, (hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_output)`` runs when the gradient of the result is known; it may return another one."""
        return RemovableHandle(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_input, grad_output)`` runs when the gradients of the positional arguments are known; what
        it returns, unless None, takes the place of grad_input."""
        return RemovableHandle(self._backward_hooks, hook, prepend)

    # ---- what it holds

    def named_modules(
        self, memo: Optional[Set["Module"]] = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[Tuple[str, "Module"]]:
        """This module and all below it, with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator["Module"]:
        """This module and all below it."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[Tuple[str, "Module"]]:
        """Direct children, each once."""
        seen: Set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator["Module"]:
        """Direct children, each once."""
        for _, child in self.named_children():
            yield child

    def _named(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[Tuple[str, Any]]:
        seen: Set[int] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            if module._without_parameters and kind == "_parameters":
                raise ValueError(f"{type(module).__name__} has no parameters yet: call the network once with an input of the "
                                 "right shape before its parameters are asked for")
            for name, tensor in getattr(module, kind).items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[Tuple[str, Parameter]]:
        """All parameters with dotted names, in order of registration, each once."""
        yield from self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[Tuple[str, Tensor]]:
        """All buffers with dotted names."""
        yield from self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # ---- state

    def state_dict(
        self, *, destination: Optional[StateDict] = None, prefix: str = "", keep_vars: bool = False
    ) -> StateDict:
        """Parameters and persistent buffers by dotted name: detached (unless ``keep_vars``), sharing their elements."""
        state: StateDict = OrderedDict() if destination is None else destination
        for name, parameter in self._parameters.items():
            if parameter is not None:
                state[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers:
                state[prefix + name] = buffer if keep_vars else buffer.detach()
        extra = self.get_extra_state()
        if extra is not None:
            state[prefix + "_extra_state"] = extra
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=state, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, state, prefix, {})
            if replaced is not None:
                state = replaced
        return state

    def get_extra_state(self) -> Optional[Tensor]:
        """More to keep in the state_dict than parameters and buffers; a tensor, so that st.save() takes it."""
        return None

    def set_extra_state(self, state: Any) -> None:
        """Takes back what get_extra_state() gave."""
        raise RuntimeError(f"{type(self).__name__} has get_extra_state() without set_extra_state()")

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata)`` runs at the end of state_dict()."""
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(module, state_dict, prefix, ...)`` runs before this module takes its part of a state_dict."""
        return RemovableHandle(self._load_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """``hook(module, incompatible_keys)`` runs after this module took its part; it may change the lists of keys."""
        return RemovableHandle(self._load_post_hooks, hook)

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copies values into parameters and buffers, converting dtypes; with ``assign`` they become the tensors of
        ``state_dict``. RuntimeError lists shapes that differ and, where ``strict``, keys that are missing or not expected.
        Unlike PyTorch, nothing has changed then."""
        return load(self, state_dict, strict, assign)

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Module.get_extra_state

    # ---- modes and conversions

    def train(self: T, mode: bool = True) -> T:
        """Training mode for this module and all below it: dropout drops, batch norm uses the batch's statistics."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: T) -> T:
        """Evaluation mode."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Whether all parameters want a gradient: False freezes them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of all parameters, or fills them with zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def apply(self: T, fn: Callable[["Module"], Any]) -> T:
        """``fn(module)`` for every module below this one, then for this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Replaces the elements of every parameter, its gradient and every buffer by ``fn`` of them."""
        done: Set[int] = set()
        with no_grad():
            for module in self.modules() if recurse else (self,):
                for tensors in (module._parameters, module._buffers):
                    for tensor in tensors.values():
                        if tensor is None or id(tensor) in done:
                            continue
                        done.add(id(tensor))
                        grad = tensor.grad if tensor.is_leaf else None
                        value = fn(tensor.detach())
                        tensor.grad = None
                        tensor.data = value
                        if grad is not None:
                            tensor.grad = fn(grad.detach())
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``: in place. A dtype converts floating tensors."""
        device = kwargs.pop("device", None)
        dtype: Optional[DType] = kwargs.pop("dtype", None)
        kwargs.pop("non_blocking", None)
        kwargs.pop("memory_format", None)  # that of the images decides; parameters are row-major, as optimizers read them
        if kwargs:
            raise TypeError(f"to() got an unexpected argument '{next(iter(kwargs))}'")
        for arg in args:
            if isinstance(arg, DType):
                dtype = arg
            elif isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif not isinstance(arg, bool) and arg is not None:
                device = arg
        if dtype is not None and dtype not in (float16, bfloat16, float32, float64):
            raise TypeError(f"nn.Module.to only accepts floating point dtypes, but got desired dtype={dtype}")

        def convert(t: Tensor) -> Tensor:
            if device is not None:
                t = t.to(device)
            return t.to(dtype) if dtype is not None and t.is_floating_point() else t

        return self._apply(convert)

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Moves parameters and buffers to the device without their values: what "meta" has none of."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def cpu(self: T) -> T:
        """Moves parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self: T, device: Union[int, str, None] = None) -> T:
        """Moves parameters and buffers to a CUDA device."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def float(self: T) -> T:
        """Converts floating tensors to float32."""
        return self.to(float32)

    def double(self: T) -> T:
        """Converts floating tensors to float64."""
        return self.to(float64)

    def half(self: T) -> T:
        """Converts floating tensors to float16."""
        return self.to(float16)

    def bfloat16(self: T) -> T:
        """Converts floating tensors to bfloat16."""
        return self.to(bfloat16)

    # ---- text, copies

    def extra_repr(self) -> str:
        """What stands between the parentheses of the module's line."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = []
        for name, child in self._modules.items():
            children.append(f"({name}): " + repr(child).replace("\n", "\n  "))
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return self._get_name() + "(\n  " + "\n  ".join(lines + children) + "\n)"

    def __getstate__(self) -> Dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self: T, memo: Dict[int, Any]) -> T:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            made.__dict__[name] = copy.deepcopy(value, memo)
        return made
