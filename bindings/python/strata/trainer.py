"""Training runs with the command line's log, report and progress bar."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

from . import _core as C
from ._core import Tensor, TrainConfig
from ._grad_mode import no_grad
from .models import Config, LanguageModel, make_config
from .nn.module import Module
from .optim import Optimizer
from .serialization import load, save

__all__ = ["DivergedError", "ModuleTrainer", "TrainConfig", "TrainResult", "Trainer"]

Metrics = Dict[str, Any]


class DivergedError(ArithmeticError):
    """The loss or the gradient became NaN or infinite."""


class TrainResult:
    """How a run ended."""

    def __init__(self, fields: Mapping[str, Any], out: str) -> None:
        self.out = out
        self.step: int = fields["step"]
        self.status: str = fields["status"]
        self.last: Metrics = fields["last"]
        self.valid_loss: float = fields["valid_loss"]
        self.checkpoint: str = fields["checkpoint"]
        self.peak_memory: int = fields.get("peak_memory", 0)

    @property
    def report(self) -> str:
        """The page of the run."""
        return os.path.join(self.out, "report.html")

    def metrics(self) -> List[Metrics]:
        """Every step of the run."""
        return C.read_metrics(os.path.join(self.out, "metrics.jsonl"))

    def __repr__(self) -> str:
        loss = f", loss {self.last['loss']:.4f}" if "loss" in self.last else ""
        return f"TrainResult({self.status}: {self.step} steps{loss}, checkpoint '{self.checkpoint}')"


class Trainer:
    """A training run of a language model on text: what ``strata train`` runs, to the same weights and the same files.

    >>> trainer = st.Trainer({"data.path": "book.txt", "model.layers": 4, "train.steps": 500}, out="runs/book")
    >>> result = trainer.train()
    >>> print(trainer.model().generate_text("Once"))

    ``config``: settings by name, a TrainConfig, or the path of a TOML file; TrainConfig.help() lists all. Ctrl-C saves,
    writes the report and raises KeyboardInterrupt; ``train(resume=True)`` goes on as if nothing had been."""

    def __init__(self, config: Config, out: Union[str, "os.PathLike[str]"]) -> None:
        self.config = make_config(config)
        self.out = os.fspath(out)

    def train(
        self, resume: bool = False, progress: bool = True, should_stop: Optional[Callable[[], bool]] = None
    ) -> TrainResult:
        """Runs. ``should_stop()`` is asked after every step: True saves and stops."""
        return TrainResult(C.train(self.config, self.out, resume, progress, should_stop), self.out)

    def model(self, device: Any = None) -> LanguageModel:
        """The model of the run's newest checkpoint."""
        return LanguageModel.load(self.out, device)


Batch = Any


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return int(value.shape[0]) if value.dim() else 1
    items = list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, (list, tuple)) else []
    return _size(items[0]) if items else 1


class ModuleTrainer:
    """A training run of any Module: ``loss(module(*inputs), target)`` for batches (*inputs, target), or, with
    ``compute_loss(module, batch)``, whatever that returns.

    >>> trainer = st.ModuleTrainer(net, st.nn.CrossEntropyLoss(), optimizer, loader, out="runs/digits", epochs=3,
    ...                            valid_loader=test_loader)
    >>> trainer.train()

    Writes metrics.jsonl, report.html and checkpoints into ``out``. With ``resume`` a run that was stopped goes on at the
    exact batch, where the loader's order depends on its seed alone. ``max_norm`` clips gradients, ``scheduler`` is stepped
    after every step, every ``eval_every`` steps (0: after each epoch) the validation loss is measured and every
    ``save_every`` steps (0: after each epoch; -1: never) a checkpoint is written, of which ``keep_last`` stay."""

    def __init__(
        self,
        module: Module,
        loss: Optional[Callable[..., Tensor]],
        optimizer: Optimizer,
        loader: Any,
        *,
        out: Union[str, "os.PathLike[str]"],
        epochs: int = 1,
        steps: Optional[int] = None,
        valid_loader: Any = None,
        scheduler: Any = None,
        max_norm: Optional[float] = None,
        compute_loss: Optional[Callable[[Module, Batch], Tensor]] = None,
        eval_every: int = 0,
        save_every: int = 0,
        keep_last: int = 2,
        device: Any = None,
    ) -> None:
        if (loss is None) == (compute_loss is None):
            raise ValueError("ModuleTrainer wants either loss or compute_loss")
        self.module, self.optimizer, self.loader = module, optimizer, loader
        self.valid_loader, self.scheduler, self.max_norm = valid_loader, scheduler, max_norm
        self.out = os.fspath(out)
        self.steps_per_epoch = len(loader)
        self.total_steps = epochs * self.steps_per_epoch if steps is None else steps
        if self.total_steps < 1:
            raise ValueError("ModuleTrainer: there is no step to make (the loader is empty, or steps is less than 1)")
        self.eval_every, self.save_every, self.keep_last = eval_every, save_every, keep_last
        self.device = device
        self._loss, self._compute = loss, compute_loss
        self.step = 0
        self.samples = 0
        self.elapsed = 0.0
        self._valid_loss = math.nan
        self._checkpoint = ""
        self._mark = ""  # of metrics.jsonl, from the checkpoint

    # ---- one batch

    def _on_device(self, value: Any) -> Any:
        if self.device is None:
            return value
        if isinstance(value, Tensor):
            return value.to(self.device)
        if isinstance(value, Mapping):
            return {k: self._on_device(v) for k, v in value.items()}
        return type(value)(self._on_device(v) for v in value) if isinstance(value, (list, tuple)) else value

    def compute_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        batch = self._on_device(batch)
        if self._compute is not None:
            return self._compute(self.module, batch)
        assert self._loss is not None
        *inputs, target = batch
        return self._loss(self.module(*inputs), target)

    def validate(self) -> float:
        """The mean loss over the validation data."""
        was_training = self.module.training
        self.module.eval()
        total, count = 0.0, 0
        with no_grad():
            for batch in self.valid_loader:
                size = _size(batch)
                total += float(self.compute_loss(batch).item()) * size
                count += size
        self.module.train(was_training)
        return total / max(1, count)

    def _batches(self) -> Iterator[Batch]:
        epoch, skip = divmod(self.step, self.steps_per_epoch)
        while True:
            sampler: Any = getattr(self.loader, "sampler", None)
            if hasattr(sampler, "epoch"):
                setattr(sampler, "epoch", epoch)
            for i, batch in enumerate(self.loader):
                if i >= skip:
                    yield batch
            epoch, skip = epoch + 1, 0

    # ---- the run

    def train(self, resume: bool = False, progress: bool = True) -> TrainResult:
        """Runs to the last step. Ctrl-C saves, writes the report and raises KeyboardInterrupt; DivergedError where the
        loss or the gradient is not finite."""
        os.makedirs(self.out, exist_ok=True)
        found = self._checkpoints()
        if found and not resume:
            raise ValueError(f"'{self.out}' holds a run already: train(resume=True) goes on with it")
        if found:
            self._load_newest(found)
        log = self._log = C.MetricsWriter(os.path.join(self.out, "metrics.jsonl"), self.step, self._mark)
        bar = C.Progress(self.total_steps, 10.0, "samples") if progress else None
        if bar is not None and self.step:
            bar.resume(self.step, self.elapsed)
        begin = time.perf_counter() - self.elapsed
        self.module.train()
        last: Metrics = {"step": self.step}
        status = "finished"
        batches = self._batches()
        try:
            while self.step < self.total_steps:
                last = self._one_step(next(batches), begin)
                if self._due(self.eval_every) and self.valid_loader is not None:
                    last["valid_loss"] = self._valid_loss = self.validate()
                    last["elapsed_s"] = time.perf_counter() - begin
                self.elapsed = last["elapsed_s"]
                log.write(last)
                if bar is not None:
                    bar.update(last)
                    if "valid_loss" in last:
                        bar.note(f"step {self.step}: validation loss {self._valid_loss:.4f}")
                if self._due(self.save_every) or self.step == self.total_steps:
                    self._save()
        except KeyboardInterrupt:
            status = f"stopped at step {self.step}"
            self._save()
            raise
        except DivergedError as error:
            status = f"stopped: {error}"
            raise
        except BaseException as error:
            status = f"stopped at step {self.step} by {type(error).__name__}"
            raise
        finally:
            batches.close()  # type: ignore[attr-defined]
            if bar is not None:
                bar.finish()
            self._report(status)
        fields = {
            "step": self.step, "status": status, "last": last, "valid_loss": self._valid_loss,
            "checkpoint": self._checkpoint,
        }
        return TrainResult(fields, self.out)

    def _due(self, every: int) -> bool:
        if every < 0:
            return False
        last = self.step == self.total_steps
        return last or self.step % (every if every > 0 else self.steps_per_epoch) == 0

    def _one_step(self, batch: Batch, begin: float) -> Metrics:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        if self.max_norm is not None:
            norm = self.optimizer.step_clipped(self.max_norm)
        else:
            norm = C.grad_norm([p for g in self.optimizer.param_groups for p in g["params"] if p.grad is not None])
            if math.isfinite(norm):
                self.optimizer.step()
        value = float(loss.item())
        if not math.isfinite(value) or not math.isfinite(norm):
            raise DivergedError(f"step {self.step + 1}: the loss is {value}, the gradient's norm {norm}")
        lr = float(self.optimizer.param_groups[0]["lr"])
        if self.scheduler is not None:
            self.scheduler.step()
        size = _size(batch)
        self.step += 1
        self.samples += size
        now = time.perf_counter()
        return {
            "step": self.step, "loss": value, "lr": lr, "grad_norm": norm, "tokens": self.samples,
            "tokens_per_s": size / max(now - start, 1e-9), "elapsed_s": now - begin,
        }

    def _report(self, status: str) -> None:
        path = os.path.join(self.out, "metrics.jsonl")
        group = self.optimizer.param_groups[0]
        settings = [("optimizer", type(self.optimizer).__name__)]
        settings += [(k, str(v)) for k, v in group.items() if k not in ("params", "param_names")]
        settings += [("steps", str(self.total_steps)), ("max_norm", str(self.max_norm))]
        if self.scheduler is not None:
            settings.append(("scheduler", type(self.scheduler).__name__))
        notes = [("Checkpoint", os.path.basename(self._checkpoint) or "none yet")]
        title = os.path.basename(os.path.abspath(self.out))
        count = sum(p.numel() for p in self.module.parameters())
        C.write_report(os.path.join(self.out, "report.html"), title, status, C.read_metrics(path, True), self.total_steps, count,
                       repr(self.module), settings, notes)

    # ---- checkpoints

    def _checkpoints(self) -> List[str]:
        names = sorted(n for n in os.listdir(self.out) if n.startswith("step-") and n.endswith(".safetensors"))
        return [os.path.join(self.out, n) for n in names]

    def _save(self) -> None:
        if self.save_every < 0 or self.step == 0:
            return
        path = os.path.join(self.out, f"step-{self.step:08d}.safetensors")
        if path == self._checkpoint:
            return
        state: Dict[str, Any] = {
            "model": dict(self.module.state_dict()), "optimizer": self.optimizer.state_dict(), "step": self.step,
            "samples": self.samples, "elapsed": self.elapsed, "rng": list(C._rng_key()),
            "log": self._log.mark(),
        }
        if self.scheduler is not None:
            state["scheduler"] = self.scheduler.state_dict()
        save(state, path)
        self._checkpoint = path
        for old in self._checkpoints()[: -max(1, self.keep_last)]:
            os.remove(old)

    def _load_newest(self, found: List[str]) -> None:
        for path in reversed(found):
            try:
                return self._load(load(path), path)
            except C.IoError as error:
                if path == found[0]:
                    raise
                print(f"skipping the broken checkpoint: {error}", file=sys.stderr)

    def _load(self, state: Dict[str, Any], path: str) -> None:
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.step, self.samples, self.elapsed = state["step"], state["samples"], state["elapsed"]
        C._set_rng_key(tuple(state["rng"]))
        self._mark = state.get("log", "")
        self._checkpoint = path
