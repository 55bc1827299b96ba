"""torch.distributed for one process: a group of one, in which every collective is what it is for one. More processes are
refused where they are asked for, in init_process_group()."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator, List, Optional, Sequence

from .._core import Tensor

__all__ = [
    "Backend", "GroupMember", "ProcessGroup", "ReduceOp", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "destroy_process_group",
    "gather", "gather_object", "get_backend", "get_global_rank", "get_group_rank", "get_process_group_ranks", "get_rank", "get_world_size",
    "group", "init_process_group", "irecv", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "isend", "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
]

_REASON = "strata runs one process on one device: a group has one member"


class ReduceOp:
    """How all_reduce() joins; one member's tensor is the result of each."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = "sum", "avg", "product", "min", "max", "band", "bor", "bxor"


class Backend(str):
    """The name of a library for collectives; none is loaded."""

    GLOO, NCCL, MPI, UCC, UNDEFINED = "gloo", "nccl", "mpi", "ucc", "undefined"


class ProcessGroup:
    """A group of one process."""

    def size(self) -> int:
        """1."""
        return 1

    def rank(self) -> int:
        """0."""
        return 0


class Work:
    """What a collective with ``async_op`` returns: it is done."""

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """True, at once."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    is_success = is_completed


class GroupMember:
    """PyTorch's names of the group of all processes."""

    WORLD: Optional[ProcessGroup] = None
    NON_GROUP_MEMBER = object()


group = GroupMember
_backend = ""


def is_available() -> bool:
    """True, for a group of one."""
    return True


def is_initialized() -> bool:
    """Whether init_process_group() was called."""
    return GroupMember.WORLD is not None


def is_nccl_available() -> bool:
    """False: nothing is to be sent anywhere."""
    return False


is_gloo_available = is_mpi_available = is_torchelastic_launched = is_nccl_available


def init_process_group(backend: Optional[str] = None, init_method: Optional[str] = None, timeout: Optional[timedelta] = None,
                       world_size: int = -1, rank: int = -1, store: Any = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None) -> None:
    """Begins the group of this process alone. ValueError where the arguments or the environment (WORLD_SIZE, RANK) ask for
    more processes."""
    global _backend
    if is_initialized():
        raise ValueError("init_process_group: the default process group was made already; destroy_process_group() ends it")
    size = int(os.environ.get("WORLD_SIZE", 1)) if world_size < 0 else world_size
    mine = int(os.environ.get("RANK", 0)) if rank < 0 else rank
    if size != 1 or mine != 0:
        raise ValueError(f"init_process_group: {_REASON}, asked for is rank {mine} of {size}")
    _backend = str(backend or "gloo").lower()
    GroupMember.WORLD = ProcessGroup()


def destroy_process_group(group: Any = None) -> None:
    """Ends the group."""
    GroupMember.WORLD = None


def _needed(what: str) -> None:
    if not is_initialized():
        raise ValueError(f"{what}: Default process group has not been initialized, please make sure to call init_process_group.")


def get_rank(group: Any = None) -> int:
    """0."""
    _needed("get_rank")
    return 0


def get_world_size(group: Any = None) -> int:
    """1."""
    _needed("get_world_size")
    return 1


def get_backend(group: Any = None) -> str:
    """The name given to init_process_group()."""
    _needed("get_backend")
    return _backend


def get_process_group_ranks(group: Any = None) -> List[int]:
    """[0]."""
    return [0]


def get_global_rank(group: Any, group_rank: int) -> int:
    """0."""
    return _only(group_rank, "get_global_rank")


def get_group_rank(group: Any, global_rank: int) -> int:
    """0."""
    return _only(global_rank, "get_group_rank")


def new_group(ranks: Optional[Sequence[int]] = None, *args: Any, **kwargs: Any) -> ProcessGroup:
    """A group of this process."""
    _needed("new_group")
    for rank in ranks or ():
        _only(rank, "new_group")
    return ProcessGroup()


def _only(rank: Optional[int], what: str) -> int:
    if rank not in (0, None):
        raise ValueError(f"{what}: {_REASON}, there is no rank {rank}")
    return 0


def _done(what: str, async_op: bool) -> Optional[Work]:
    _needed(what)
    return Work() if async_op else None


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """The tensor stays what it is."""
    return _done("all_reduce", async_op)


def broadcast(tensor: Tensor, src: Optional[int] = None, group: Any = None, async_op: bool = False,
              group_src: Optional[int] = None) -> Optional[Work]:
    """The tensor stays what it is."""
    _only(src, "broadcast")
    return _done("broadcast", async_op)


def reduce(tensor: Tensor, dst: Optional[int] = None, op: Any = ReduceOp.SUM, group: Any = None,
           async_op: bool = False, group_dst: Optional[int] = None) -> Optional[Work]:
    """The tensor stays what it is."""
    _only(dst, "reduce")
    return _done("reduce", async_op)


def _copied(what: str, targets: Any, sources: Any, async_op: bool) -> Optional[Work]:
    done = _done(what, async_op)
    if len(targets) != 1 or len(sources) != 1:
        raise ValueError(f"{what}: {_REASON}; {len(targets)} and {len(sources)} tensors were given")
    targets[0].copy_(sources[0].detach().reshape(targets[0].shape))
    return done


def all_gather(tensor_list: List[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """Copies the tensor into the list's only one."""
    return _copied("all_gather", tensor_list, [tensor], async_op)


def gather(tensor: Tensor, gather_list: Optional[List[Tensor]] = None, dst: Optional[int] = None, group: Any = None,
           async_op: bool = False, group_dst: Optional[int] = None) -> Optional[Work]:
    """Copies the tensor into the list's only one."""
    _only(dst, "gather")
    return _copied("gather", gather_list or [], [tensor], async_op)


def scatter(tensor: Tensor, scatter_list: Optional[List[Tensor]] = None, src: Optional[int] = None, group: Any = None,
            async_op: bool = False, group_src: Optional[int] = None) -> Optional[Work]:
    """Copies the list's only tensor."""
    _only(src, "scatter")
    return _copied("scatter", [tensor], scatter_list or [], async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Optional[Work]:
    """Copies the input."""
    return _copied("all_gather_into_tensor", [output_tensor], [input_tensor], async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Optional[Work]:
    """Copies the input."""
    return _copied("reduce_scatter_tensor", [output], [input], async_op)


def reduce_scatter(output: Tensor, input_list: List[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Optional[Work]:
    """Copies the list's only tensor."""
    return _copied("reduce_scatter", [output], input_list, async_op)


def all_to_all(output_tensor_list: List[Tensor], input_tensor_list: List[Tensor], group: Any = None,
               async_op: bool = False) -> Optional[Work]:
    """Copies the input."""
    return _copied("all_to_all", output_tensor_list, input_tensor_list, async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
                      group: Any = None, async_op: bool = False) -> Optional[Work]:
    """Copies the input."""
    return _copied("all_to_all_single", [output], [input], async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Optional[Work]:
    """Waits for nobody."""
    return _done("barrier", async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Waits for nobody."""
    _needed("monitored_barrier")


def all_gather_object(object_list: List[Any], obj: Any, group: Any = None) -> None:
    """Puts the object into the list."""
    _needed("all_gather_object")
    object_list[0] = obj


def gather_object(obj: Any, object_gather_list: Optional[List[Any]] = None, dst: Optional[int] = None, group: Any = None,
                  group_dst: Optional[int] = None) -> None:
    """Puts the object into the list."""
    _needed("gather_object")
    if object_gather_list is not None:
        object_gather_list[0] = obj


def broadcast_object_list(object_list: List[Any], src: Optional[int] = None, group: Any = None, device: Any = None,
                          group_src: Optional[int] = None) -> None:
    """The list stays what it is."""
    _needed("broadcast_object_list")


def scatter_object_list(scatter_object_output_list: List[Any], scatter_object_input_list: Optional[List[Any]] = None,
                        src: Optional[int] = None, group: Any = None, group_src: Optional[int] = None) -> None:
    """Puts the input's only object into the output."""
    _needed("scatter_object_list")
    scatter_object_output_list[0] = (scatter_object_input_list or [None])[0]


def send(*args: Any, **kwargs: Any) -> None:
    """ValueError: there is nobody to send to."""
    raise ValueError(f"send: {_REASON}")


recv = isend = irecv = batch_isend_irecv = send


@contextmanager
def _coalescing_manager(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield
