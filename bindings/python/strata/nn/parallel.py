"""torch.nn.parallel on one device: the wrappers hold a module under PyTorch's names and call it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Optional, Sequence, Tuple

from .module import Module

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]


def _one_device(what: str, device_ids: Optional[Sequence[Any]]) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError(f"{what}: there is one device, device_ids names {len(device_ids)}: {list(device_ids)}")


class _Wrapper(Module):
    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class DataParallel(_Wrapper):
    """The module on its one device; parameters are named ``module.``, as PyTorch names them."""

    def __init__(self, module: Module, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None, dim: int = 0) -> None:
        _one_device("DataParallel", device_ids)
        super().__init__(module)
        self.dim, self.device_ids, self.output_device = dim, list(device_ids or []), output_device


class DistributedDataParallel(_Wrapper):
    """The module in a group of one process, whose gradients are the group's."""

    def __init__(self, module: Module, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None, dim: int = 0,
                 broadcast_buffers: bool = True, process_group: Any = None, bucket_cap_mb: Optional[float] = None,
                 find_unused_parameters: bool = False, check_reduction: bool = False, gradient_as_bucket_view: bool = False,
                 static_graph: bool = False, **more: Any) -> None:
        _one_device("DistributedDataParallel", device_ids)
        from .. import distributed

        distributed._needed("DistributedDataParallel")
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        super().__init__(module)
        self.device_ids, self.output_device = list(device_ids or []), output_device
        self.require_backward_grad_sync = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are this process's anyway."""
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = True

    @contextmanager
    def join(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """Nobody is waited for."""
        yield

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Nothing is sent, so the hook is never called."""


def data_parallel(module: Module, inputs: Any, device_ids: Optional[Sequence[Any]] = None, output_device: Any = None, dim: int = 0,
                  module_kwargs: Optional[dict[str, Any]] = None) -> Any:
    """The module of the inputs."""
    _one_device("data_parallel", device_ids)
    given: Tuple[Any, ...] = inputs if isinstance(inputs, tuple) else (inputs,)
    result: Any = module(*given, **(module_kwargs or {}))
    return result
