"""CUDA devices: what they are, streams and events, graphs, memory."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from .. import _core, random
from .._core import CudaDeviceProperties, CudaStream, Tensor
from . import _scripts
from ._scripts import *

__all__ = [
    "CUDAGraph", "Event", "Stream", "current_device", "current_stream", "default_stream", "device_count", "empty_cache",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "graph",
    "graph_pool_handle", "initial_seed", "is_available", "is_current_stream_capturing", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_snapshot",
    "memory_stats", "reset_peak_memory_stats", "seed", "seed_all", "set_per_process_memory_fraction", "set_rng_state",
    "set_rng_state_all", "stream", "synchronize", "unavailable_reason", *_scripts.__all__,
]

DeviceArgument = Union[None, int, str, _core.device]


def _index(device: DeviceArgument) -> int:
    if device is None:
        return 0
    if isinstance(device, int):
        return device
    d = _core.device(device)
    if d.type != "cuda":
        raise ValueError(f"a CUDA device is wanted, got {device}")
    return d.index or 0


def _device(device: DeviceArgument) -> _core.device:
    return _core.device("cuda", _index(device))


def is_available() -> bool:
    """Whether there is a card that this build can use."""
    return _core.cuda_device_count() > 0


def unavailable_reason() -> str:
    """Why is_available() is False; empty where it is not."""
    return _core.cuda_unavailable_reason()


def device_count() -> int:
    return _core.cuda_device_count()


def current_device() -> int:
    """The card that "cuda" means: 0."""
    return 0


def get_device_properties(device: DeviceArgument = None) -> CudaDeviceProperties:
    return _core.cuda_properties(_index(device))


def get_device_name(device: DeviceArgument = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: DeviceArgument = None) -> tuple[int, int]:
    p = get_device_properties(device)
    return p.major, p.minor


def synchronize(device: DeviceArgument = None) -> None:
    """Waits for all work of the device."""
    _core.cuda_synchronize(_index(device))


# ---- random numbers: one generator serves all devices, so these are strata.random's


def manual_seed(seed: int) -> None:
    """One generator serves all devices: strata.manual_seed()."""
    _core.manual_seed(seed)


def seed() -> None:
    """Restarts the generator with a seed that nobody knows."""
    random.seed()


manual_seed_all = manual_seed
seed_all = seed


def initial_seed() -> int:
    """The seed of the generator."""
    return _core.initial_seed()


def get_rng_state(device: DeviceArgument = "cuda") -> Tensor:
    """strata.get_rng_state()."""
    _index(device)
    return random.get_rng_state()


def set_rng_state(new_state: Tensor, device: DeviceArgument = "cuda") -> None:
    """strata.set_rng_state()."""
    _index(device)
    random.set_rng_state(new_state)


def get_rng_state_all() -> List[Tensor]:
    """The state once for each card."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Goes on from a get_rng_state_all()."""
    for state in new_states:
        random.set_rng_state(state)


# ---- streams and events


def Stream(device: DeviceArgument = None, priority: int = 0) -> CudaStream:
    """A stream beside the main one, from a pool."""
    return CudaStream.create(_index(device))


def current_stream(device: DeviceArgument = None) -> CudaStream:
    """This thread's current stream."""
    return _core.cuda_current_stream(_index(device))


def default_stream(device: DeviceArgument = None) -> CudaStream:
    return CudaStream.main(_index(device))


class stream:
    """``with st.cuda.stream(s):`` makes it this thread's current stream; None changes nothing."""

    def __init__(self, stream: Optional[CudaStream]) -> None:
        self._stream = stream
        self._scope = _core.CudaStreamScope()

    def __enter__(self) -> None:
        if self._stream is not None:
            self._scope.enter(self._stream)

    def __exit__(self, *error: object) -> None:
        self._scope.exit()


class Event:
    """A point in a stream; with ``enable_timing`` elapsed_time() measures between two of them."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, device: DeviceArgument = None) -> None:
        self._device = _index(device)
        self._event = _core.CudaEvent(enable_timing, self._device)

    def record(self, stream: Optional[CudaStream] = None) -> None:
        self._event.record(stream or current_stream(self._device))

    def wait(self, stream: Optional[CudaStream] = None) -> None:
        self._event.wait(stream or current_stream(self._device))

    def query(self) -> bool:
        return self._event.query()

    def synchronize(self) -> None:
        self._event.synchronize()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from here to ``end_event``."""
        return self._event.elapsed_time(end_event._event)


# ---- graphs


def graph_pool_handle(device: DeviceArgument = None) -> _core.CudaGraphPool:
    """Memory for several graphs that never run at the same time."""
    return _core.CudaGraphPool(_index(device))


class CUDAGraph:
    """Work of a device, recorded once (``with st.cuda.graph(g):``, or ``g.capture(function)``) and queued again by
    ``replay()``: it reads and writes the tensors that the recorded code saw."""

    def __init__(self, pool: Optional[_core.CudaGraphPool] = None) -> None:
        self._pool = pool
        self._made: Optional[_core.CudaGraph] = None

    @property
    def _graph(self) -> _core.CudaGraph:
        if self._made is None:
            self._made = _core.CudaGraph(self._pool if self._pool is not None else _core.CudaGraphPool(0))
        return self._made

    def capture(self, function: Callable[[], Any]) -> Any:
        """Runs the function, recording what it queues; returns what it returns."""
        with graph(self):
            return function()

    def capture_begin(self, pool: Optional[_core.CudaGraphPool] = None) -> None:
        if pool is not None:
            self._pool, self._made = pool, None
        self._graph.capture_begin()

    def capture_end(self) -> None:
        self._graph.capture_end()

    def replay(self) -> None:
        """Queues the recorded work on the current stream."""
        self._graph.replay()

    def pool(self) -> _core.CudaGraphPool:
        return self._graph.pool()

    @property
    def nodes(self) -> int:
        """Kernels, copies and fills of a replay."""
        return self._graph.nodes


class graph:
    """``with st.cuda.graph(g, pool=..., stream=...):`` records what is queued inside."""

    def __init__(self, cuda_graph: CUDAGraph, pool: Optional[_core.CudaGraphPool] = None,
                 stream: Optional[CudaStream] = None) -> None:
        self._graph, self._pool = cuda_graph, pool
        self._scope = globals()["stream"](stream)

    def __enter__(self) -> None:
        self._scope.__enter__()
        try:
            self._graph.capture_begin(self._pool)
        except BaseException:
            self._scope.__exit__()
            raise

    def __exit__(self, kind: Any, *error: object) -> None:
        try:
            if kind is None:
                self._graph.capture_end()
            else:
                self._graph._graph.capture_abandon()
        finally:
            self._scope.__exit__()


def is_current_stream_capturing() -> bool:
    return _core.cuda_capturing()


# ---- memory


def memory_stats(device: DeviceArgument = None) -> Dict[str, Any]:
    """Bytes in use by tag (parameter, gradient, optimizer, activation, data, workspace), peaks, and the heap's extent."""
    s = _core.memory_stats(_device(device))
    s["allocated_bytes.all.current"] = s["live_total"]
    s["allocated_bytes.all.peak"] = s["peak_total"]
    s["reserved_bytes.all.current"] = s["reserved"]
    s["reserved_bytes.all.peak"] = s["peak_reserved"]
    s["num_alloc_retries"] = s["retries"]
    return s


def memory_allocated(device: DeviceArgument = None) -> int:
    """Bytes of tensors now."""
    return int(memory_stats(device)["live_total"]) if is_available() else 0


def max_memory_allocated(device: DeviceArgument = None) -> int:
    """Most bytes of tensors since the last reset."""
    return int(memory_stats(device)["peak_total"]) if is_available() else 0


def memory_reserved(device: DeviceArgument = None) -> int:
    """Bytes of the card that the heap holds."""
    return int(memory_stats(device)["reserved"]) if is_available() else 0


def max_memory_reserved(device: DeviceArgument = None) -> int:
    return int(memory_stats(device)["peak_reserved"]) if is_available() else 0


def reset_peak_memory_stats(device: DeviceArgument = None) -> None:
    _core.memory_reset_peak(_device(device))


def memory_snapshot(device: DeviceArgument = None) -> List[Dict[str, Any]]:
    """Every block in use: address, bytes, tag, and the op and module that hold it."""
    blocks: List[Dict[str, Any]] = json.loads(_core.memory_snapshot_json(_device(device)))["blocks"]
    return blocks


def empty_cache() -> None:
    """Returns the heaps' holes to the devices and the system."""
    _core.memory_release_cached()


def set_per_process_memory_fraction(fraction: float, device: DeviceArgument = None) -> None:
    """At most this share of the card's memory for tensors."""
    _core.cuda_set_memory_fraction(fraction, _index(device))


def record_stream(tensor: Tensor, stream: CudaStream) -> None:
    """The tensor's memory is not reused before ``stream`` has passed."""
    _core.cuda_record_stream(tensor, stream)


def __getattr__(name: str) -> Any:
    if name.endswith("Tensor"):  # st.cuda.FloatTensor and its kin
        from .._compat import CUDA_TYPES

        if name in CUDA_TYPES:
            return CUDA_TYPES[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
