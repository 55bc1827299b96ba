"""The engine's language models as modules: build one, load a trained one, let it write."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union

from . import _core as C
from ._core import Tensor, Tokenizer, TrainConfig
from .nn.module import Module
from .nn.parameter import Parameter

__all__ = ["LanguageModel"]

L = TypeVar("L", bound="LanguageModel")
Config = Union[TrainConfig, Mapping[str, Any], str, "os.PathLike[str]"]


def make_config(config: Config) -> TrainConfig:
    """Settings from a TrainConfig (copied), a dictionary {"model.layers": 2, ..} or the path of a TOML file."""
    if isinstance(config, TrainConfig):
        return config.copy()
    if isinstance(config, Mapping):
        made = TrainConfig()
        for key, value in config.items():
            made[key] = os.fspath(value) if isinstance(value, os.PathLike) else value
        made.validate()
        return made
    return TrainConfig.load(os.fspath(config))


def adopt(module: Module, engine: Any) -> None:
    """Registers the parameters and buffers of an engine's model under their names, in modules made for the dots in them."""

    def owner(name: str) -> Module:
        inner = module
        for part in name.split(".")[:-1]:
            child = inner._modules.get(part)
            if child is None:
                child = Module()
                inner.add_module(part, child)
            inner = child
        return inner

    for name, tensor in engine.named_parameters():
        owner(name).register_parameter(name.rpartition(".")[2], tensor._as_subclass(Parameter))
    for name, tensor in engine.named_buffers():
        owner(name).register_buffer(name.rpartition(".")[2], tensor)


class LanguageModel(Module):
    """A decoder-only language model (settings ``model.*``): tokens [B, T] (i64) -> logits [B, T, vocab].

    >>> model = st.models.LanguageModel({"model.layers": 2, "model.dim": 64, "model.heads": 4, "model.vocab": 256})
    >>> model = st.models.LanguageModel.load("runs/quickstart")
    >>> print(model.generate_text("Tensor ", 100))
    """

    tokenizer: Optional[Tokenizer]

    def __init__(self, config: Config) -> None:
        super().__init__()
        settings = make_config(config)
        if settings["model.vocab"] == 0:
            raise ValueError("LanguageModel: model.vocab is not set")
        self._adopt(C.LanguageModel(settings), settings, 0)

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"], device: Any = None) -> "LanguageModel":
        """The newest checkpoint of a run's folder, or the checkpoint at ``path``, in evaluation mode."""
        engine, settings, step = C.LanguageModel.load(os.fspath(path))
        made = cls.__new__(cls)
        Module.__init__(made)
        made._adopt(engine, settings, step)
        if device is not None:
            made.to(device)
        return made.eval()

    def _adopt(self, engine: "C.LanguageModel", settings: TrainConfig, step: int) -> None:
        self._engine, self.config, self.step = engine, settings, step
        self.tokenizer = engine.tokenizer
        adopt(self, engine)

    @property
    def context(self) -> int:
        """The most tokens that it looks at."""
        return self._engine.context

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self._engine.vocab

    def forward(self, tokens: Tensor) -> Tensor:
        return self._engine.forward(tokens)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of the tokens that follow, without all logits in memory."""
        return self._engine.loss(tokens, targets)

    def train(self: L, mode: bool = True) -> L:
        super().train(mode)
        self._engine.train(mode)
        return self

    def generate(
        self, prompt: List[int], tokens: int = 200, temperature: float = 0.8, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0,
    ) -> List[int]:
        """Ids that continue ``prompt``: the same for the same seed. temperature 0 takes the likeliest token."""
        return self._engine.generate(prompt, tokens, temperature, top_k, top_p, seed)

    def generate_text(
        self, prompt: str, tokens: int = 200, temperature: float = 0.8, top_k: int = 0, top_p: float = 1.0,
        seed: int = 0,
    ) -> str:
        """Text that continues ``prompt``, with the tokenizer of the checkpoint."""
        if self.tokenizer is None:
            raise ValueError("this model was not loaded from a run, so it has no tokenizer: use generate() with ids")
        ids = self.generate(self.tokenizer.encode(prompt), tokens, temperature, top_k, top_p, seed)
        return str(self.tokenizer.decode(ids))

    def stream(
        self, prompt: List[int], temperature: float = 0.8, top_k: int = 0, top_p: float = 1.0, seed: int = 0
    ) -> Iterator[int]:
        """The ids of generate(), one at a time, without end."""
        engine = self._engine.stream(prompt, temperature, top_k, top_p, seed)
        while True:
            yield engine.next()

    def __deepcopy__(self: L, memo: Dict[int, Any]) -> L:
        made = type(self)(self.config)
        made.load_state_dict(self.state_dict())
        made.step, made.tokenizer = self.step, self.tokenizer
        memo[id(self)] = made
        return made.train(self.training)

    def __reduce__(self) -> Tuple[Any, ...]:
        tokenizer = None if self.tokenizer is None else self.tokenizer.to_json()
        return _rebuild, (type(self), self.config.to_toml(), dict(self.state_dict()), tokenizer, self.step, self.training)


def _rebuild(
    cls: Any, toml: str, state: Dict[str, Tensor], tokenizer: Optional[str], step: int, training: bool
) -> LanguageModel:
    made: LanguageModel = cls(TrainConfig(toml))
    made.load_state_dict(state)
    made.tokenizer = None if tokenizer is None else Tokenizer.from_json(tokenizer)
    made.step = step
    return made.train(training)
