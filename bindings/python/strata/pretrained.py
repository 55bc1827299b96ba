"""Models that exist: folders as Hugging Face writes them, as modules that run, learn and write.

    model = st.load_pretrained("Qwen2.5-0.5B-Instruct", dtype=st.bfloat16, device="cuda")
    print(model.generate_text("The sea is", max_new_tokens=40))
    print(model.chat([{"role": "user", "content": "Hello!"}], max_new_tokens=100))
"""

from __future__ import annotations

import json
import math
import operator
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from . import _core as C
from ._core import Tensor, Tokenizer
from .models import adopt
from .nn.module import Module

__all__ = ["Completion", "PretrainedModel", "evaluate", "load_pretrained", "read_wav", "text_embeddings"]

P = TypeVar("P", bound="PretrainedModel")
Prompt = Union[str, Sequence[int]]
Message = Mapping[str, Any]


def _is_ids(x: Any) -> bool:
    """Whether it is one prompt's ids: whole numbers, or a tensor or an array of one dimension."""
    dims = getattr(x, "ndim", None)
    if dims is not None:
        return bool(dims == 1)
    return len(x) > 0 and all(hasattr(i, "__index__") and not isinstance(i, Tensor) for i in x)


def _ids(x: Any) -> List[int]:
    if isinstance(x, (bytes, bytearray)):
        raise TypeError("generate: a prompt is a text or ids, got bytes: decode them")
    if getattr(x, "ndim", 1) != 1:
        raise ValueError(f"generate: a prompt's ids have one dimension, got {x.ndim}")
    return [operator.index(i) for i in (x.tolist() if hasattr(x, "tolist") else x)]


def _number(x: Any) -> Any:
    if isinstance(x, os.PathLike):
        return os.fspath(x)
    if not hasattr(x, "item"):
        raise TypeError(f"an option is a {type(x).__name__}")
    return x.item()


def _json(what: str, options: Mapping[str, Any]) -> str:
    """A call's options; numbers of numpy are numbers."""
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{what}: {name} is {value}: wanted a finite number")
    return json.dumps(options, default=_number)


class Completion:
    """A text that was written: ``tokens`` (a stop id included), ``text``, ``finish`` ("length", "stop_id", "stop_string",
    "cancelled"), ``score`` (of beams), ``logprobs`` and ``top_logprobs`` where asked for, ``prompt_logprobs`` and
    ``top_prompt_logprobs`` of the prompt's tokens but the first."""

    def __init__(self, made: Mapping[str, Any], prompt: Mapping[str, Any]) -> None:
        self.tokens: List[int] = list(made["tokens"])
        self.text: str = made["text"]
        self.finish: str = made["finish"]
        self.score: float = made["score"]
        self.logprobs: List[float] = list(made["logprobs"])
        self.top_logprobs: List[List[Any]] = list(made["top_logprobs"])
        self.prompt_logprobs: List[float] = list(prompt["prompt_logprobs"])
        self.top_prompt_logprobs: List[List[Any]] = list(prompt["top_prompt_logprobs"])

    def __repr__(self) -> str:
        return f"Completion({self.text!r}, {len(self.tokens)} tokens, finish={self.finish!r})"


class PretrainedModel(Module):
    """A model of a folder (:func:`load_pretrained`). What it takes depends on its ``kind``:

    ``decoder``: tokens [B, T] -> logits [B, T, vocab]; :meth:`generate`, :meth:`chat`, :meth:`loss`.
    ``encoder``: tokens [B, T] -> hidden states, or logits where the folder's class has a head; :meth:`embed`.
    ``image_encoder``: pixels [B, C, H, W] -> hidden states, or logits.
    ``encoder_decoder``: what it reads [B, S] (of Whisper frames of sound) and ``tokens=`` [B, T] -> logits [B, T, vocab];
    :meth:`generate` answers texts, :meth:`transcribe` writes what is said.
    ``pair`` (CLIP): :meth:`text_vectors`, :meth:`image_vectors`, :meth:`scores`.

    ``padding`` is boolean, [B, T], True at what is no token. Parameters have the engine's names."""

    tokenizer: Optional[Tokenizer]

    def __init__(self, engine: "C.Pretrained") -> None:
        super().__init__()
        self._engine = engine
        self._description: Dict[str, Any] = json.loads(engine.description)
        self.tokenizer = engine.tokenizer
        adopt(self, engine)
        self.eval()

    @property
    def family(self) -> str:
        """The record that it was loaded by: "llama", "bert"."""
        return str(self._description["family"])

    @property
    def kind(self) -> str:
        """"decoder", "encoder", "encoder_decoder", "image_encoder" or "pair"."""
        return str(self._description["kind"])

    @property
    def config(self) -> Dict[str, Any]:
        """What config.json says."""
        return dict(self._description["config"])

    @property
    def generation_config(self) -> Dict[str, Any]:
        """What generation_config.json says; empty where there is none."""
        return dict(self._description["generation_config"] or {})

    @property
    def special_ids(self) -> Dict[str, int]:
        """Ids of the tokenizer's named tokens: {"bos_token": 1, ..}."""
        return dict(self._description["special_ids"])

    @property
    def context(self) -> int:
        """The most positions that it was made for."""
        return int(self._description["context"])

    @property
    def vocab_size(self) -> int:
        """How many tokens its embedding has."""
        return int(self._description["vocab_size"])

    def save_pretrained(self, folder: Union[str, "os.PathLike[str]"], dtype: Optional["C.dtype"] = None) -> None:
        """Writes a folder that transformers reads, whole or not at all, with the tokenizer, chat template and generation
        settings of the folder that the model came from; one that is there is refused. Weights have their parameters'
        types, or ``dtype``; those that nobody touched have the bytes that they came with."""
        self._engine.save_pretrained(os.fspath(folder), dtype)

    def save_gguf(self, path: Union[str, "os.PathLike[str]"], type: Optional[str] = None) -> None:
        """Writes a GGUF file, whole or not at all, with the tokenizer and the chat template of the folder that the model
        came from. ``type``, of matrices: "f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k"; as they are where
        it is not given. ValueError for a model that such a file cannot say, with the reason."""
        self._engine.save_gguf(os.fspath(path), type or "")

    def describe(self) -> str:
        """All that decides what it computes, as text."""
        return str(self._engine.spec)

    def forward(
        self, x: Tensor, padding: Optional[Tensor] = None, types: Optional[Tensor] = None, *, tokens: Optional[Tensor] = None
    ) -> Tensor:
        if tokens is not None:
            return self._engine.forward_source(x, tokens, padding)
        return self._engine.forward(x, padding, types)

    def hidden(self, x: Tensor, padding: Optional[Tensor] = None, types: Optional[Tensor] = None) -> Tensor:
        """What the last block gives, [B, T, dim]."""
        return self._engine.hidden(x, padding, types)

    def pooled(self, hidden: Tensor) -> Tensor:
        """An encoder's one vector [B, dim] of hidden()."""
        return self._engine.pooled(hidden)

    def loss(
        self, tokens: Tensor, targets: Tensor, *, source: Optional[Tensor] = None, padding: Optional[Tensor] = None
    ) -> Tensor:
        """A decoder's mean cross entropy of the tokens that follow, without all logits in memory; of an encoder-decoder for
        what it reads, ``source`` with its ``padding``. Targets of -100 count nothing."""
        if source is not None:
            return self._engine.source_loss(source, tokens, targets, padding)
        return self._engine.loss(tokens, targets)

    def text_vectors(self, tokens: Tensor, padding: Optional[Tensor] = None) -> Tensor:
        """A pair's vectors of texts, of length 1."""
        return self._engine.text_vectors(tokens, padding)

    def image_vectors(self, pixels: Tensor) -> Tensor:
        """A pair's vectors of images, of length 1."""
        return self._engine.image_vectors(pixels)

    def scores(self, text_vectors: Tensor, image_vectors: Tensor) -> Tensor:
        """How well they go together, [texts, images]: logits."""
        return self._engine.scores(text_vectors, image_vectors)

    def train(self: P, mode: bool = True) -> P:
        super().train(mode)
        self._engine.train(mode)
        return self

    # ---- text ----

    def encode(self, text: str) -> List[int]:
        """Ids of a text, with the special tokens that the model's makers put around one."""
        try:
            return list(self._engine.encode(text))
        except (TypeError, UnicodeEncodeError):
            if not isinstance(text, str):
                raise
            raise ValueError("encode: the text holds half of a surrogate pair, which is no character") from None

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids."""
        return str(self._engine.decode([int(i) for i in ids], skip_special_tokens))

    def _ids(self, prompt: Prompt) -> List[int]:
        return self.encode(prompt) if isinstance(prompt, str) else _ids(prompt)

    def generate(
        self, prompts: Union[Prompt, Sequence[Prompt]], *,
        callback: Optional[Callable[[int, int, int, str, bool], Optional[bool]]] = None, **options: Any,
    ) -> Any:
        """Continues a prompt (a text or ids), or answers it (T5), or many at a time: a list of completions for each (one list for a single
        prompt). Options are those of generation_config.json (``max_new_tokens``, ``do_sample``, ``temperature``, ``top_k``,
        ``top_p``, ``min_p``, ``typical_p``, ``repetition_penalty``, ``num_return_sequences``, ``num_beams``,
        ``stop_strings``, ..), which the folder's file has defaults of, and ``seed``, ``frequency_penalty``,
        ``presence_penalty``, ``logit_bias``, ``logprobs``, ``top_logprobs``, ``prompt_logprobs``. Who says how to draw and
        not ``do_sample`` draws. ``callback(request, completion, token, text, last)`` sees each
        token as it is drawn; False ends that text."""
        single = isinstance(prompts, (str, bytes)) or _is_ids(prompts)
        many: List[Prompt] = [prompts] if single else list(prompts)  # type: ignore[list-item, arg-type]
        made = self._engine.generate([self._ids(p) for p in many], _json("generate", options), callback)
        completions = [[Completion(c, g) for c in g["completions"]] for g in made]
        return completions[0] if single else completions

    def transcribe(
        self, sound: Union[str, "os.PathLike[str]", Tensor], rate: Optional[int] = None, *, language: Optional[str] = None,
        task: Optional[str] = None, timestamps: Optional[bool] = None, word_timestamps: bool = False,
        prompt: Optional[str] = None, **options: Any,
    ) -> Dict[str, Any]:
        """What is said in a WAV file, or in samples [n] or [channels, n] of ``rate`` a second, by a model that reads sound
        (Whisper): ``{"language", "text", "segments": [{"start", "end", "text", "tokens"}, ..]}``. Sound of any length; what
        is longer than a window of the model is written with times, as ``timestamps=True`` asks for. With ``word_timestamps``
        segments have ``"words": [{"start", "end", "text"}, ..]``. ``prompt`` is a text that stands before, say with names.
        ``condition_on_prev_tokens=True``: a window sees what was said. ``temperature=[0, 0.2, ..]`` with
        ``compression_ratio_threshold``, ``logprob_threshold``, ``no_speech_threshold``: unlikely texts are written anew."""
        if not isinstance(sound, Tensor):
            sound, own = read_wav(sound)
            rate = own if rate is None else rate
        elif rate is None:
            raise ValueError("transcribe: samples want a rate")
        call = dict(options, language=language, task=task, timestamps=timestamps, prompt=prompt)
        call["word_timestamps"] = word_timestamps
        return dict(json.loads(self._engine.transcribe(sound, rate, _json("transcribe", call))))

    def generate_text(self, prompt: str, **options: Any) -> str:
        """The text that continues ``prompt``."""
        return str(self.generate(prompt, **options)[0].text)

    def chat_prompt(self, messages: Iterable[Message], **variables: Any) -> List[int]:
        """The ids of a conversation as the folder's chat template writes it, ending where the assistant is to write.
        ``tools``, ``documents`` and what else the template knows are ``variables``. What a message spells is text, special
        tokens too."""
        return list(self._engine.chat_prompt(json.dumps(list(messages)), json.dumps(variables)))

    def chat(self, messages: Iterable[Message], *, variables: Optional[Mapping[str, Any]] = None, **options: Any) -> str:
        """The assistant's answer to a conversation."""
        ids = self.chat_prompt(messages, **dict(variables or {}))
        return str(self.generate(ids, **options)[0].text)

    def embed(
        self, texts: Sequence[str], *, pooling: Optional[str] = None, normalize: Optional[bool] = None
    ) -> Tensor:
        """One vector [texts, dim] for each text: hidden states pooled as the folder says (else their mean), or as asked."""
        if isinstance(texts, (str, bytes)):
            raise TypeError("embed: wanted a list of texts; one text is a list, too")
        return self._engine.embed(list(texts), json.dumps({"pooling": pooling, "normalize": normalize}))


def text_embeddings(
    hidden: Tensor, padding: Optional[Tensor] = None, *, pooling: str = "mean", normalize: bool = False
) -> Tensor:
    """One vector [B, dim] of hidden states [B, T, dim]: pooling "first", "last", "mean", "max", "weighted_mean" or
    "root_mean" over what is no padding."""
    return C.text_embeddings(hidden, padding, pooling, normalize)


def read_wav(path: Union[str, "os.PathLike[str]"]) -> Tuple[Tensor, int]:
    """The samples of a WAV file, f32 [channels, n] from -1 to 1, and how many there are a second."""
    samples, rate = C.read_wav(os.fspath(path))
    return samples, int(rate)


def evaluate(
    model: PretrainedModel, *, reference: Optional[PretrainedModel] = None,
    callback: Optional[Callable[[str, str, int, int], Optional[bool]]] = None, **options: Any,
) -> Dict[str, Any]:
    """Measures a decoder on local files, as ``strata eval`` does and to its numbers, which are lm-evaluation-harness's.

    ``text`` (files) or ``documents`` (texts): perplexities; with ``reference`` also how far its probabilities are from
    another model's (kl). ``choices`` (JSONL): acc, acc_norm, acc_bytes. ``answers`` (JSONL): exact_match. ``num_fewshot``
    with ``fewshot_from`` and ``fewshot_seed``, ``fields``, ``limit``, ``batch_size``, ``max_gen_toks``, ``until``,
    ``max_length``, ``overlap``, ``log_samples`` and what else there is
    (``st._core.describe_evaluation_options()``) have the meanings of the command's.

    Gives what the command writes by ``--json``: ``{"results": {"text": {"measures": {"loss": {"value", "error"}}}}}``.
    ``callback(name, unit, done, all)`` hears how far it is; False ends it with a ValueError."""
    for given in (model, *([] if reference is None else [reference])):
        if not isinstance(given, PretrainedModel):
            raise TypeError(f"evaluate: wanted a model of load_pretrained(), got {type(given).__name__}")
    other = None if reference is None else reference._engine
    return dict(json.loads(C.evaluate(model._engine, _json("evaluate", options), other, callback)))


def load_pretrained(
    folder: Union[str, "os.PathLike[str]"], *, dtype: Optional["C.dtype"] = None, device: Any = "cpu"
) -> PretrainedModel:
    """Loads a folder as Hugging Face writes it (config.json, safetensors or PyTorch's files, tokenizer.json, ..), or a
    GGUF file with its tokenizer: weights straight to ``device``, as stored or in ``dtype``. In evaluation mode. ValueError
    for a configuration that is not known in full, and where files do not hold what it says."""
    return PretrainedModel(C.Pretrained.load(os.fspath(folder), dtype, C.device(device)))
