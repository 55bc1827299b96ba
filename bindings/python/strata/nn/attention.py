"""MultiheadAttention and the Transformer's layers. Arguments and parameter names are PyTorch's."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from enum import Enum
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple, Union

from .. import _ops as ops
from .._core import Tensor, dtype as DType, full
from .._once import once
from . import functional as F
from . import init
from .container import ModuleList
from ._parts import new_parameter
from .dropout import Dropout
from .linear import Linear
from .norm import LayerNorm
from .module import Module
from .parameter import Parameter

__all__ = [
    "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads of size embed_dim / num_heads. query [Tq, B, E], key and value [Tk, B, E] ([B, T, E]
    with ``batch_first``). Parameters: in_proj_weight [3 E, E] (or q_proj_weight, k_proj_weight, v_proj_weight where kdim or
    vdim differ), in_proj_bias [3 E], out_proj, and with ``add_bias_kv`` one more key and value for every sequence, bias_k and
    bias_v; ``add_zero_attn`` adds a key and a value of zeros. In a mask, true hides, as in PyTorch's layer."""

    in_proj_weight: Optional[Parameter]
    in_proj_bias: Optional[Parameter]
    q_proj_weight: Optional[Parameter]
    k_proj_weight: Optional[Parameter]
    v_proj_weight: Optional[Parameter]
    bias_k: Optional[Parameter]
    bias_v: Optional[Parameter]
    out_proj: Linear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: Optional[int] = None,
        vdim: Optional[int] = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        same = self.kdim == embed_dim and self.vdim == embed_dim
        self.register_parameter("in_proj_weight", new_parameter([3 * embed_dim, embed_dim], device, dtype) if same else None)
        self.register_parameter("q_proj_weight", None if same else new_parameter([embed_dim, embed_dim], device, dtype))
        self.register_parameter("k_proj_weight", None if same else new_parameter([embed_dim, self.kdim], device, dtype))
        self.register_parameter("v_proj_weight", None if same else new_parameter([embed_dim, self.vdim], device, dtype))
        self.register_parameter("in_proj_bias", new_parameter([3 * embed_dim], device, dtype) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, new_parameter([1, 1, embed_dim], device, dtype) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for row in (self.bias_k, self.bias_v):
            if row is not None:
                init.xavier_normal_(row)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """The result and, with ``need_weights`` (which is slower), the attention weights. attn_mask [Tq, Tk] or
        [B heads, Tq, Tk] and key_padding_mask [B, Tk]: boolean (true: hidden) or added to the scores."""
        if self.batch_first and query.dim() == 3:
            same = query is key and key is value
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
            if same:
                key = value = query
        y, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask,
            need_weights, attn_mask, self.in_proj_weight is None, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
            None, None, average_attn_weights, is_causal)
        return (y.transpose(0, 1) if self.batch_first and y.dim() == 3 else y), weights


class SDPBackend(Enum):
    """PyTorch's choices for scaled_dot_product_attention(). Here there is one kernel for each device."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Union[SDPBackend, Sequence[SDPBackend]], set_priority: bool = False) -> Iterator[None]:
    """Takes PyTorch's choice of attention kernels, changes nothing, and says so once."""
    once("sdp", "sdpa_kernel() changes nothing: there is one kernel of attention for each device, which never writes the matrix "
                "of weights out", 4)
    for backend in [backends] if isinstance(backends, SDPBackend) else backends:
        if not isinstance(backend, SDPBackend):
            raise TypeError(f"sdpa_kernel: an SDPBackend or a list of them is wanted, got {backend!r}")
    yield


Activation = Union[str, Callable[[Tensor], Tensor]]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


class _TransformerLayer(Module):
    """What both layers have: self-attention, a feed-forward network, and ``attentions`` + 1 norms and dropouts."""

    _attentions: int

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        for name in ("self_attn", "multihead_attn")[: self._attentions]:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype)
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        for i in range(1, self._attentions + 2):
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype))
        for i in range(1, self._attentions + 2):
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _attend(self, attention: Module, dropout: Module, x: Tensor, memory: Tensor, mask: Optional[Tensor],
                padding: Optional[Tensor], is_causal: bool) -> Tensor:
        y: Tensor = dropout(attention(x, memory, memory, key_padding_mask=padding, need_weights=False, attn_mask=mask,
                                      is_causal=is_causal)[0])
        return y

    def _feed(self, dropout: Module, x: Tensor) -> Tensor:
        y: Tensor = dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return y

    def _residual(self, x: Tensor, norm: Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return y


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual and a norm (before it with ``norm_first``)."""

    _attentions = 1

    def forward(
        self, src: Tensor, src_mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self._residual(src, self.norm1, lambda x: self._attend(
            self.self_attn, self.dropout1, x, x, src_mask, src_key_padding_mask, is_causal))
        return self._residual(x, self.norm2, lambda x: self._feed(self.dropout2, x))


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's result and a feed-forward network."""

    _attentions = 2

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None,
        tgt_key_padding_mask: Optional[Tensor] = None, memory_key_padding_mask: Optional[Tensor] = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:
        x = self._residual(tgt, self.norm1, lambda x: self._attend(
            self.self_attn, self.dropout1, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._residual(x, self.norm2, lambda x: self._attend(
            self.multihead_attn, self.dropout2, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self._residual(x, self.norm3, lambda x: self._feed(self.dropout3, x))


class _Stack(Module):
    """``num_layers`` copies of a layer, then ``norm``."""

    def __init__(self, layer: Module, num_layers: int, norm: Optional[Module] = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """``num_layers`` copies of a layer, then ``norm``."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Optional[Module] = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self, src: Tensor, mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=is_causal)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(_Stack):
    """``num_layers`` copies of a layer, then ``norm``."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Optional[Module] = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None,
        tgt_key_padding_mask: Optional[Tensor] = None, memory_key_padding_mask: Optional[Tensor] = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                      memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
                      memory_is_causal=memory_is_causal)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder and a decoder (Vaswani et al., arXiv:1706.03762)."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = "relu",
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        device: Any = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        settings: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
                         device, dtype)
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*settings), num_encoder_layers,
                                          LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype))
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*settings), num_decoder_layers,
                                          LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Optional[DType] = None) -> Tensor:
        """-inf above the diagonal, 0 elsewhere: a position sees itself and what is before it."""
        return ops.triu(full([sz, sz], float("-inf"), dtype=dtype, device=device), 1)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Optional[Tensor] = None, tgt_mask: Optional[Tensor] = None,
        memory_mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None,
        tgt_key_padding_mask: Optional[Tensor] = None, memory_key_padding_mask: Optional[Tensor] = None,
        src_is_causal: bool = False, tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        y: Tensor = self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                                 tgt_is_causal, memory_is_causal)
        return y
