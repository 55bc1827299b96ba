"""torch.cuda.amp's names: autocast and GradScaler for CUDA."""

from __future__ import annotations

from typing import Any

from .. import amp as _amp
from ..amp import custom_bwd, custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(_amp.autocast):
    """st.autocast("cuda"), which also stands where there is no card."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        super().__init__("cuda" if _available() else "cpu", dtype, enabled, cache_enabled)


class GradScaler(_amp.GradScaler):
    """st.amp.GradScaler("cuda"); without a card it does nothing."""

    def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        card = _available()
        super().__init__("cuda" if card else "cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled and card)


def _available() -> bool:
    from . import is_available

    return is_available()
