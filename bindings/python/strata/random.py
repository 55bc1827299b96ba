"""Random numbers: generators of one's own, and the state of the default one."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Tuple

from . import _core, _ops
from ._core import Tensor, _rng_key, _set_rng_key, initial_seed
from ._functions import manual_seed

__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

_lock = threading.RLock()


def _unknown() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1


def _as_tensor(key: Tuple[int, int]) -> Tensor:
    return _core._tensor(list(b"".join(part.to_bytes(8, "little") for part in key)), _core.uint8, _core.device("cpu"))


def _as_key(state: Any) -> Tuple[int, int]:
    if not isinstance(state, Tensor) or state.dtype != _core.uint8:
        what = state.dtype if isinstance(state, Tensor) else type(state).__name__
        raise TypeError(f"the state of a generator is a uint8 tensor, got {what}")
    if state.numel() != 16:
        raise ValueError(f"the state of a generator has 16 elements, got {state.numel()}")
    raw = bytes(state.reshape([16]).tolist())
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")


def get_rng_state() -> Tensor:
    """Where the default generator is: a uint8 tensor for set_rng_state()."""
    return _as_tensor(_rng_key())


def set_rng_state(new_state: Tensor) -> None:
    """Goes on from a get_rng_state()."""
    _set_rng_key(_as_key(new_state))


class Generator:
    """A sequence of random numbers beside the default one; ``generator=`` of a random function draws from it."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = _core.device(device)
        self._seed = 67280421310721
        self._state: Tuple[int, int] = (self._seed, 0)

    def manual_seed(self, seed: int) -> "Generator":
        """Starts the sequence of ``seed``."""
        self._seed = seed & 0xFFFFFFFFFFFFFFFF
        self._state = (self._seed, 0)
        return self

    def seed(self) -> int:
        """Starts a sequence that nobody knows; returns its seed."""
        self.manual_seed(_unknown())
        return self._seed

    def initial_seed(self) -> int:
        """The seed of the sequence."""
        return self._seed

    def get_state(self) -> Tensor:
        """Where it is: a uint8 tensor for set_state()."""
        return _as_tensor(self._state)

    def set_state(self, new_state: Tensor) -> "Generator":
        """Goes on from a get_state()."""
        self._state = _as_key(new_state)
        self._seed = self._state[0]
        return self

    def clone_state(self) -> "Generator":
        """Another generator at the same place."""
        return Generator(self.device).set_state(self.get_state())

    @contextmanager
    def _drawn(self) -> Iterator[None]:
        """Inside, what draws from the default generator draws from this one."""
        with _lock:
            before = _rng_key()
            _set_rng_key(self._state)
            try:
                yield
            finally:
                self._state = _rng_key()
                _set_rng_key(before)

    def _draw_seed(self) -> int:
        with self._drawn():
            return int(_core.randint(0, 2**62, [1]).item())


class _Default(Generator):
    def __init__(self) -> None:
        self.device = _core.device("cpu")

    def manual_seed(self, seed: int) -> "Generator":
        manual_seed(seed)
        return self

    def initial_seed(self) -> int:
        return initial_seed()

    def get_state(self) -> Tensor:
        return get_rng_state()

    def set_state(self, new_state: Tensor) -> "Generator":
        set_rng_state(new_state)
        return self

    def clone_state(self) -> Generator:
        return Generator().set_state(get_rng_state())

    @contextmanager
    def _drawn(self) -> Iterator[None]:
        yield


default_generator: Generator = _Default()


def seed() -> int:
    """Restarts the default generator with a seed that nobody knows, and returns it."""
    chosen = _unknown()
    manual_seed(chosen)
    return chosen


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """After it, random numbers go on as if nothing had been drawn inside."""
    before = _rng_key()
    try:
        yield
    finally:
        if enabled:
            _set_rng_key(before)


def _drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with PyTorch's ``generator=`` and the arguments that say nothing here."""

    def draw(*args: Any, generator: Optional[Generator] = None, requires_grad: bool = False, layout: Any = None,
             pin_memory: bool = False, memory_format: Any = None, **kwargs: Any) -> Any:
        if args and "size" in kwargs:
            args = (*args, kwargs.pop("size"))
        elif "size" in kwargs:
            args = (kwargs.pop("size"),)
        if generator is None:
            made = function(*args, **kwargs)
        else:
            with generator._drawn():
                made = function(*args, **kwargs)
        return made.requires_grad_() if requires_grad else made

    draw.__name__ = draw.__qualname__ = function.__name__
    draw.__doc__ = function.__doc__
    return draw


def _normal(mean: Any, std: Any = 1.0, size: Any = None, *, dtype: Any = None, device: Any = None) -> Tensor:
    """N(mean, std^2) of a size, or elementwise for tensors."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        like = mean if isinstance(mean, Tensor) else std
        known = not isinstance(std, Tensor) or (std.numel() > 0 and std.device.type == "cpu")  # a card is not waited for
        least = 0.0 if not known else std.detach().min().item() if isinstance(std, Tensor) else std
        if least < 0:
            raise ValueError(f"normal: the standard deviation must not be negative, got {least:g}")
        shape = like.shape if not (isinstance(mean, Tensor) and isinstance(std, Tensor)) else _core.broadcast_shapes(
            mean.shape, std.shape)
        drawn: Tensor = _core.randn(shape, dtype=like.dtype, device=like.device)
        found: Tensor = drawn * std + mean
        return found
    return _core.normal(float(mean), float(std), [] if size is None else size, dtype=dtype, device=device)


_normal.__name__ = "normal"


_poisson = _drawing(_ops.poisson)


def poisson(input: Tensor, generator: Optional[Generator] = None) -> Tensor:
    """Numbers of events where ``input`` are expected."""
    drawn: Tensor = _poisson(input.detach(), generator=generator)
    return drawn


_rand = _drawing(_core.rand)


def _draw_methods() -> None:
    for name in ("uniform_", "normal_", "trunc_normal_", "bernoulli_", "random_"):
        setattr(Tensor, name, _drawing(getattr(Tensor, name)))

    def of_record(name: str, doc: str) -> None:
        draw = _drawing(_core.ops[name])

        def method(self: Tensor, *args: Any, generator: Optional[Generator] = None, **kwargs: Any) -> Tensor:
            return self.copy_(draw(self.shape, *args, generator=generator, dtype=self.dtype, device=self.device, **kwargs))

        method.__name__, method.__doc__ = name + "_", doc
        setattr(Tensor, name + "_", method)

    of_record("exponential", "Exponential numbers of rate ``lambd``.")
    of_record("cauchy", "Cauchy's numbers.")
    of_record("geometric", "Numbers of trials until the first success of probability ``p``.")
    of_record("log_normal", "Numbers whose logarithm is normal.")
