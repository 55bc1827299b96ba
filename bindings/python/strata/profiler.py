"""torch.profiler over the engine's: each op of this thread with its time, on a card also the device's. Shapes, stacks and
memory are not noted."""

from __future__ import annotations

import functools
import json
import time
from enum import Enum
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from . import _core, cuda
from ._once import once

__all__ = ["EventList", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule",
           "supported_activities", "tensorboard_trace_handler"]


class ProfilerActivity(Enum):
    """What is timed."""

    CPU = 0
    CUDA = 1
    XPU = 2


class ProfilerAction(Enum):
    """What a schedule says of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The CPU, and CUDA where there is a card."""
    return {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if cuda.is_available() else set())


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """What each step does: ``skip_first`` nothing, then rounds of ``wait`` without, ``warmup`` dropped and ``active`` recorded
    steps, ``repeat`` of them (0: without end)."""
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError("schedule: wait, warmup, repeat and skip_first must not be negative, active must be positive")

    def of(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        length = wait + warmup + active
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return of


def tensorboard_trace_handler(dir_name: str, worker_name: Optional[str] = None, use_gzip: bool = False) -> Callable[[Any], None]:
    """For ``on_trace_ready``: writes each trace into the folder as Chrome's JSON."""

    def handler(prof: Any) -> None:
        import os

        os.makedirs(dir_name, exist_ok=True)
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker_name or 'strata'}.{time.time_ns()}.pt.trace.json"))

    return handler


class FunctionEventAvg:
    """All calls of one op, or passes of one range, together. Times are microseconds."""

    def __init__(self, key: str, is_range: bool) -> None:
        self.key, self.is_user_annotation = key, is_range
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = self.device_time_total = 0.0

    @property
    def cpu_time(self) -> float:
        """Of one call."""
        return self.cpu_time_total / max(self.count, 1)

    @property
    def device_time(self) -> float:
        """Of one call, on the card."""
        return self.device_time_total / max(self.count, 1)

    @property
    def self_device_time_total(self) -> float:
        """On the card, without the ops that it called."""
        return self.device_time_total

    cuda_time = device_time
    cuda_time_total = self_cuda_time_total = self_device_time_total

    def __repr__(self) -> str:
        return f"<FunctionEventAvg {self.key}: {self.count} calls, {self.cpu_time_total:.1f} us>"


def _time(micros: float) -> str:
    return f"{micros / 1e6:.3f}s" if micros >= 1e6 else f"{micros / 1e3:.3f}ms" if micros >= 1e3 else f"{micros:.3f}us"


class EventList(List[FunctionEventAvg]):
    """What key_averages() gives."""

    def table(self, sort_by: Optional[str] = None, row_limit: int = 100, max_src_column_width: int = 75,
              max_name_column_width: int = 55, max_shapes_column_width: int = 80, header: Optional[str] = None,
              top_level_events_only: bool = False) -> str:
        """The rows as text, the largest by ``sort_by`` first."""
        rows = list(self)
        if sort_by is not None:
            name = sort_by.replace("cuda_", "device_")
            if rows and not hasattr(rows[0], name):
                raise ValueError(f"table: sort_by {sort_by!r} is none of count, cpu_time, cpu_time_total, self_cpu_time_total, "
                                 "cuda_time, cuda_time_total, self_cuda_time_total")
            rows.sort(key=lambda r: float(getattr(r, name)), reverse=True)
        total = sum(r.self_cpu_time_total for r in self) or 1.0
        device = sum(r.device_time_total for r in self)
        titles = ["Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg"] + (["CUDA total", "CUDA time avg"] if device else [])
        titles.append("# of Calls")
        lines = [titles]
        for r in rows[: row_limit if row_limit >= 0 else None]:
            name = r.key if len(r.key) <= max_name_column_width else r.key[: max_name_column_width - 3] + "..."
            line = [name, f"{100 * r.self_cpu_time_total / total:.2f}%", _time(r.self_cpu_time_total), _time(r.cpu_time_total),
                    _time(r.cpu_time)]
            lines.append(line + ([_time(r.device_time_total), _time(r.device_time)] if device else []) + [str(r.count)])
        widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
        rule = "  ".join("-" * w for w in widths)
        text = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths)) for line in lines]
        end = [f"Self CPU time total: {_time(sum(r.self_cpu_time_total for r in self))}"]
        end += [f"Self CUDA time total: {_time(device)}"] if device else []
        return "\n".join(([header] if header else []) + [rule, text[0], rule, *text[1:], rule, *end]) + "\n"

    def total_average(self) -> FunctionEventAvg:
        """All rows as one."""
        whole = FunctionEventAvg("Total", False)
        for r in self:
            whole.count += r.count
            whole.cpu_time_total += r.self_cpu_time_total
            whole.self_cpu_time_total += r.self_cpu_time_total
            whole.device_time_total += r.device_time_total
        return whole


_running: List["profile"] = []


class profile:
    """Times the ops between its start and its stop, or in the steps that ``schedule`` chooses."""

    def __init__(self, *, activities: Optional[Iterable[ProfilerActivity]] = None, schedule: Optional[Callable[[int], ProfilerAction]] = None,
                 on_trace_ready: Optional[Callable[["profile"], Any]] = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, acc_events: bool = False, use_cuda: Optional[bool] = None,
                 use_device: Any = None, enabled: bool = True) -> None:
        wanted = supported_activities() if activities is None else set(activities)
        self._device = ProfilerActivity.CUDA in wanted and cuda.is_available()
        self._schedule, self._ready = schedule, on_trace_ready
        self.step_num = 0
        self._events: Optional[_core.OpEvents] = None
        self._times: Optional[_core.DeviceTimes] = None
        self._found: List[Tuple[str, float, float, int, bool]] = []
        self._device_rows: Dict[str, Tuple[int, float]] = {}
        self._enabled = enabled
        for name, value in dict(record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack,
                                with_flops=with_flops).items():
            if value:
                once(f"profile.{name}", f"profile({name}=True): only times are noted; `strata estimate` and st.cuda.memory_snapshot() "
                                        "tell of memory")

    def _begin(self) -> None:
        self._events = _core.OpEvents()
        self._events.start()
        if self._device:
            self._times = _core.DeviceTimes(_core.device("cuda"))
        _running.append(self)

    def _end(self, keep: bool) -> None:
        events, times = self._events, self._times
        if events is None:
            return
        _running.remove(self)
        if times is not None:
            rows = times.rows()
            times.close()
            if keep:
                self._device_rows = {name: (calls, seconds * 1e6) for name, calls, seconds in rows}
        events.stop()
        if keep:
            self._found = events.events()
        self._events = self._times = None

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self._schedule is None else self._schedule(self.step_num)

    def start(self) -> None:
        """Begins; what ``with`` does."""
        if self._enabled and self._action() in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            self._begin()

    def stop(self) -> None:
        """Ends, and hands what was recorded to ``on_trace_ready``."""
        recorded = self._events is not None
        self._end(True)
        if recorded and self._ready is not None:
            self._ready(self)

    def step(self) -> None:
        """The end of a training step: the schedule goes on."""
        before = self._action()
        self.step_num += 1
        if self._schedule is None or not self._enabled:
            return
        after = self._action()
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if before == ProfilerAction.RECORD_AND_SAVE:
            self.stop()
        if after in recording and self._events is None:
            self._begin()

    def __enter__(self) -> "profile":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def events(self) -> List[Tuple[str, float, float, int, bool]]:
        """(name, begin and end in microseconds, how deep, whether it is a record_function) of each call."""
        return self._found

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The calls by name."""
        rows: Dict[Tuple[str, bool], FunctionEventAvg] = {}
        inside: List[float] = []  # time of the calls directly below the open one, by depth
        for name, begin, end, depth, is_range in reversed(self._found):  # callees stand behind their callers
            took = end - begin
            row = rows.setdefault((name, is_range), FunctionEventAvg(name, is_range))
            row.count += 1
            row.cpu_time_total += took
            while len(inside) < depth + 2:
                inside.append(0.0)
            row.self_cpu_time_total += max(took - inside[depth + 1], 0.0)
            inside[depth + 1] = 0.0
            inside[depth] += took
        for name, (_, micros) in self._device_rows.items():
            found = rows.get((name, False))
            if found is not None:
                found.device_time_total += micros
        return EventList(sorted(rows.values(), key=lambda r: r.self_cpu_time_total, reverse=True))

    def export_chrome_trace(self, path: str) -> None:
        """Writes the calls as chrome://tracing and Perfetto read them."""
        events = [{"ph": "X", "name": name, "cat": "user_annotation" if is_range else "cpu_op", "ts": begin, "dur": end - begin,
                   "pid": 0, "tid": 0} for name, begin, end, _, is_range in self._found]
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def add_metadata(self, key: str, value: str) -> None:
        """Nothing keeps it."""

    add_metadata_json = add_metadata


class record_function:
    """A range with a name in what is recorded: ``with record_function("attention"):``, or a decorator."""

    def __init__(self, name: str, args: Optional[str] = None) -> None:
        self.name = name
        self._events: Optional[_core.OpEvents] = None

    def __enter__(self) -> "record_function":
        self._events = _running[-1]._events if _running else None
        if self._events is not None:
            self._events.push(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        if self._events is not None:
            self._events.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return wrapped
