"""PyTorch's paths: ``from strata.nn.modules.batchnorm import _BatchNorm``. Each of its files is a module here, which holds
the classes of strata.nn that PyTorch has there, the private bases that programs ask for among them."""

from __future__ import annotations

import collections.abc
import itertools
import sys
import types
from typing import Any, Callable, Dict, Tuple

from .. import (
    activation as _activation, adaptive as _adaptive, attention as _attention, container as _container, conv as _conv,
    distance as _distance, dropout as _dropout, lazy as _lazy, linear as _linear, loss as _loss, module as _module,
    norm as _norm, padding as _padding, pooling as _pooling, rnn as _rnn,
)
from ..module import Module


def _ntuple(n: int) -> Callable[[Any], Tuple[Any, ...]]:
    """A function that makes n of one, and a tuple of several."""
    return lambda x: tuple(x) if isinstance(x, collections.abc.Iterable) else tuple(itertools.repeat(x, n))


def consume_prefix_in_state_dict_if_present(state_dict: Dict[str, Any], prefix: str) -> None:
    """Takes a prefix off the keys, in place: that of DataParallel, mostly."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix):]] = state_dict.pop(key)


_files: Dict[str, Any] = {
    "activation": (_activation, _attention), "adaptive": (_adaptive,), "batchnorm": (_norm, _lazy),
    "channelshuffle": (_pooling,), "container": (_container,), "conv": (_conv, _lazy), "distance": (_distance,),
    "dropout": (_dropout,), "flatten": (_linear, _container), "fold": (_conv,), "instancenorm": (_norm, _lazy),
    "lazy": (_lazy,), "linear": (_linear, _lazy), "loss": (_loss,), "module": (_module,), "normalization": (_norm,),
    "padding": (_padding,), "pixelshuffle": (_pooling,), "pooling": (_pooling,), "rnn": (_rnn,), "sparse": (_linear,),
    "transformer": (_attention,), "upsampling": (_pooling,), "utils": (),
}
_private: Dict[str, Dict[str, Any]] = {
    "batchnorm": {"_BatchNorm": _norm._BatchNorm, "_NormBase": _norm._RunningNorm},
    "instancenorm": {"_InstanceNorm": _norm._InstanceNorm, "_NormBase": _norm._RunningNorm},
    "conv": {"_ConvNd": _conv._Conv, "_ConvTransposeNd": _conv._ConvTranspose},
    "dropout": {"_DropoutNd": _dropout._Dropout},
    "loss": {"_Loss": _loss._Loss, "_WeightedLoss": _loss._WeightedLoss},
    "pooling": {"_MaxPoolNd": _pooling._MaxPool, "_AvgPoolNd": _pooling._AvgPool, "_LPPoolNd": _pooling._LPPool,
                "_MaxUnpoolNd": _pooling._MaxUnpool, "_AdaptiveAvgPoolNd": _pooling._AdaptiveAvgPool,
                "_AdaptiveMaxPoolNd": _pooling._AdaptiveMaxPool},
    "utils": {"_ntuple": _ntuple, "_single": _ntuple(1), "_pair": _ntuple(2), "_triple": _ntuple(3), "_quadruple": _ntuple(4),
              "consume_prefix_in_state_dict_if_present": consume_prefix_in_state_dict_if_present},
}


def _make() -> None:
    for name, sources in _files.items():
        made = types.ModuleType(f"{__name__}.{name}", f"What torch.nn.modules.{name} holds.")
        found: Dict[str, Any] = {"Module": Module}
        for source in sources:
            found.update((key, getattr(source, key)) for key in getattr(source, "__all__", ()))
        found.update(_private.get(name, {}))
        vars(made).update(found)
        sys.modules[made.__name__] = made
        globals()[name] = made
        globals().update((key, value) for key, value in found.items() if not key.startswith("_") and isinstance(value, type))


_make()
