"""Strata, a deep-learning engine. The surface is PyTorch's: ``import strata as st``."""

try:
    from . import _core
except ImportError as error:
    from ._missing import explain

    raise explain(error) from None

from . import _grad_mode
from ._core import Tensor, device, dtype
from ._core import bfloat16, bool, float16, float32, float64, int8, int16, int32, int64, uint8  # noqa: A004
from ._records import *  # noqa: F403
from ._functions import *  # noqa: F403
from ._array_api import *  # noqa: F403
from ._array_api import __array_api_version__, __array_namespace_info__
from ._composed import *  # noqa: F403
from ._compat import *  # noqa: F403
from . import _ops as ops
from . import _tensor
from ._drawn import *  # noqa: F403
from ._printing import set_printoptions
from . import autograd, cuda, errors
from ._core import (
    get_autocast_dtype,
    get_default_device,
    get_default_dtype,
    get_num_threads,
    initial_seed,
    is_autocast_enabled,
    is_grad_enabled,
    set_default_dtype,
    set_num_threads,
)
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from ._ops import round  # noqa: A004
from ._functions import max, min, pow, sum  # noqa: A004
from .errors import AutogradError, OutOfMemoryError, DeviceError, DTypeError, PluginError, ShapeError, StrataError
from ._autocast import autocast
from ._device import default_device, set_default_device
from .random import get_rng_state, set_rng_state
from ._plugin import Plugin, load_plugin
from ._version import __version__
from . import amp, backends, distributions, func, linalg, models, nn, optim, random, special, testing, utils
from . import accelerator, distributed, features, hub, jit, masked, memory, profiler, signal
from ._compile import compile  # noqa: A004
from ._graphed import graphed
from ._vmap import vmap
from .signal.windows import (
    bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window,
)
from .serialization import load, save
from .trainer import DivergedError, ModuleTrainer, TrainConfig, Trainer, TrainResult
from .planning import plan
from .models import LanguageModel
from .pretrained import PretrainedModel, evaluate, load_pretrained, read_wav, text_embeddings
from ._core import Recording, Replay, Tokenizer
from ._recording import record
from .utils.checkpoint import checkpoint


from . import _interop, _overrides, _paths, _signatures, _storage, _types, _dlpack  # noqa: E402, F401

_signatures.install(globals())
_signatures.install(vars(linalg), "linalg_")
_signatures.install(vars(special), "special_")
_signatures.install_methods()
_paths.make()

from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from ._compat import missing

        missing(__name__, name, globals())
