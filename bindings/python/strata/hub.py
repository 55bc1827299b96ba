"""torch.hub, which downloads code and weights: refused, but for what reads no network."""

from __future__ import annotations

import os
from typing import Any, NoReturn, Optional

from .serialization import load as _load

__all__ = ["get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

_folder: Optional[str] = None


def get_dir() -> str:
    """Where downloads would stand: $TORCH_HOME/hub, or what set_dir() said."""
    home = os.environ.get("TORCH_HOME", os.path.join(os.path.expanduser("~"), ".cache", "torch"))
    return os.path.join(home, "hub") if _folder is None else _folder


def set_dir(d: str) -> None:
    """Another folder."""
    global _folder
    _folder = os.path.expanduser(d)


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"hub.{what}: strata downloads nothing and runs no code of others; fetch a safetensors file and st.load() it")


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """The model that a folder's hubconf.py makes, with ``source="local"``; RuntimeError for what would be downloaded."""
    if source != "local":
        _refuse("load")
    return getattr(_config(repo_or_dir), model)(*args, **kwargs)


def _config(folder: str) -> Any:
    import importlib.util
    import sys

    path = os.path.join(folder, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise FileNotFoundError(f"hub: there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None, verbose: bool = True) -> Any:
    """RuntimeError: nothing is downloaded."""
    _refuse("list")


def help(github: str, model: str, *args: Any, **kwargs: Any) -> Any:
    """RuntimeError: nothing is downloaded."""
    _refuse("help")


def load_state_dict_from_url(url: str, model_dir: Optional[str] = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: Optional[str] = None, weights_only: bool = False) -> Any:
    """The state_dict of that name, where the file is in ``model_dir`` (or get_dir()/checkpoints) already."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(url.split("?")[0]))
    if not os.path.exists(path):
        raise RuntimeError(f"hub: strata downloads nothing; put the file of {url} at {path} as safetensors")
    return _load(path, map_location)
