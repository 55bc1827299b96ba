"""Random tensors, each with PyTorch's ``generator=``."""

from __future__ import annotations

from . import _core, _ops
from .random import Generator, _draw_methods, _drawing, _normal, _rand as rand, default_generator, poisson, seed

__all__ = [
    "Generator", "bernoulli", "default_generator", "multinomial", "normal", "poisson", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "seed",
]

bernoulli = _drawing(_ops.bernoulli)
multinomial = _drawing(_ops.multinomial)
normal = _drawing(_normal)
rand_like = _drawing(_core.rand_like)
randint = _drawing(_core.randint)
randint_like = _drawing(_core.randint_like)
randn = _drawing(_core.randn)
randn_like = _drawing(_core.randn_like)
randperm = _drawing(_core.randperm)

_draw_methods()
