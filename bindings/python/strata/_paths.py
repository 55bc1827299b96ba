"""PyTorch's module paths: ``from strata.utils.data.dataloader import DataLoader``. Where PyTorch has a module and strata has a
class, or another module, of those things, the path leads there; what is not there says why."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any, Dict, List

# Path under strata: where what it holds is found.
_SAME: Dict[str, str] = {
    "utils.data.dataloader": "utils.data", "utils.data.dataset": "utils.data", "utils.data.sampler": "utils.data",
    "utils.data.distributed": "utils.data", "utils.data._utils": "utils.data", "utils.data._utils.collate": "utils.data",
    "utils.hooks": "nn.hooks", "utils.dlpack": "_dlpack",
    "nn.parallel.distributed": "nn.parallel", "nn.parallel.data_parallel": "nn.parallel", "nn.common_types": "_types",
    "nn.grad": "nn.functional",
    "autograd.function": "autograd", "autograd.functional": "_derivatives", "autograd.grad_mode": "autograd",
    "autograd.graph": "autograd.graph", "autograd.gradcheck": "autograd", "autograd.variable": "autograd",
    "autograd.anomaly_mode": "autograd", "autograd.profiler": "profiler",
    "cuda.amp.autocast_mode": "cuda.amp", "cuda.amp.grad_scaler": "cuda.amp", "cuda.random": "cuda", "cuda.memory": "cuda",
    "cuda.graphs": "cuda", "cuda.streams": "cuda",
    "amp.autocast_mode": "amp", "amp.grad_scaler": "amp",
    "compiler": "_compile", "_dynamo": "_compile", "types": "_types", "version": "_types", "functional": "", "tensor": "", "_tensor_str": "_printing",
    "return_types": "return_types", "storage": "_storage", "overrides": "_overrides",
    "distributed.distributed_c10d": "distributed",
    "nn.attention.flex_attention": "nn.attention",
    "optim.adam": "optim", "optim.adamw": "optim", "optim.sgd": "optim", "optim.rmsprop": "optim", "optim.adagrad": "optim",
    "optim.adadelta": "optim", "optim.adamax": "optim", "optim.nadam": "optim", "optim.radam": "optim", "optim.asgd": "optim",
    "optim.rprop": "optim", "optim.sparse_adam": "optim", "optim._functional": "optim",
    **{f"distributions.{name}": "distributions" for name in (
        "normal bernoulli beta binomial categorical cauchy chi2 constraints dirichlet exponential fishersnedecor gamma "
        "geometric gumbel half_cauchy half_normal independent kl kumaraswamy laplace log_normal logistic_normal "
        "mixture_same_family multinomial multivariate_normal negative_binomial one_hot_categorical pareto poisson "
        "relaxed_bernoulli relaxed_categorical studentT transformed_distribution transforms uniform utils von_mises weibull"
    ).split()},
}

# Modules of PyTorch that there is nothing for.
REFUSED: Dict[str, str] = {
    "onnx": "nothing writes ONNX; st.save() writes safetensors, which other programs read",
    "fx": "there is no graph tracing; hooks of modules see values as they pass",
    "export": "there is no graph tracing; modules run as they are",
    "sparse": "there are no sparse tensors; index_add, scatter_add and gather do what graph networks need",
    "fft": "there are no complex tensors and no Fourier transforms yet; use numpy.fft on x.numpy()",
    "quantization": "st.int8_matmul and st.fp8_quantize are what there is", "ao": "st.int8_matmul and st.fp8_quantize are what there is",
    "nested": "there are no nested tensors; pad, or use nn.utils.rnn's packed sequences",
    "package": "modules are not packaged; st.save() their state_dict",
    "_C": "the engine is not PyTorch's", "_inductor": "nothing is compiled", "utils.cpp_extension": "an op of one's own is a plugin: docs/guide/own_op.md",
    "utils.mobile_optimizer": "there is no mobile runtime", "utils.model_zoo": "nothing is downloaded; st.load() reads safetensors",
    "utils.bundled_inputs": "there is no TorchScript", "autograd.forward_ad": "gradients go backward; st.func.jvp differentiates twice",
    "distributed.fsdp": "one process, one device", "distributed.rpc": "one process, one device",
    "distributed.tensor": "one process, one device", "distributed.pipelining": "one process, one device",
    "distributed.checkpoint": "one process, one device: st.save()", "distributed.elastic": "one process, one device",
    "mps": "devices are cpu and cuda", "xpu": "devices are cpu and cuda", "mtia": "devices are cpu and cuda",
    "testing._internal": "PyTorch's own tests are not here", "multiprocessing": "there is one process; threads work in parallel, as the "
    "engine releases the GIL while it computes",
}


def _object(path: str) -> Any:
    found: Any = sys.modules["strata"]
    for part in path.split(".") if path else []:
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(f"{found.__name__}.{part}")
    return found


class _Path(types.ModuleType):
    """A module of PyTorch's that shows what another place holds."""

    def __init__(self, name: str, shows: Any) -> None:
        super().__init__(name, f"What PyTorch has at this path: {getattr(shows, '__name__', name)}.")
        self.__dict__["_shows"] = shows
        self.__dict__["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_shows"], name)

    def __dir__(self) -> List[str]:
        return [n for n in dir(self._shows) if not n.startswith("__")]

    @property
    def __all__(self) -> List[str]:
        return [n for n in dir(self._shows) if not n.startswith("_")]


def make() -> None:
    """Puts the paths where import looks."""
    for path, shown in _SAME.items():
        name = f"strata.{path}"
        if name in sys.modules:
            continue
        parent, _, last = path.rpartition(".")
        module = _Path(name, _object(shown))
        sys.modules[name] = module
        above = _object(parent)
        if not hasattr(above, "__path__"):
            above.__path__ = []
        if last not in vars(above):
            setattr(above, last, module)
