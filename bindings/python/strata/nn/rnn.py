"""Recurrent layers. Parameter names, gate order, shapes and initial values are PyTorch's."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Sequence, Tuple

from .. import _ops as ops
from .._core import Tensor, dtype as DType
from . import init
from ._parts import check_p, new_parameter
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase", "SLSTM"]


class RNNBase(Module):
    """What RNN, LSTM and GRU share: their parameters, and packed sequences in and out."""

    gates = 1
    projects = False

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__()
        if proj_size and not self.projects:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size > 0:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if input_size < 1 or hidden_size < 1 or num_layers < 1:
            raise ValueError(f"sizes and layers are at least 1, got {input_size}, {hidden_size} and {num_layers}")
        check_p(dropout)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        rows, real = self.gates * hidden_size, self._output_size()
        for layer in range(num_layers):
            width = input_size if layer == 0 else real * (2 if bidirectional else 1)
            for suffix in self._suffixes(layer):
                self.register_parameter("weight_ih" + suffix, new_parameter([rows, width], device, dtype))
                self.register_parameter("weight_hh" + suffix, new_parameter([rows, real], device, dtype))
                if bias:
                    self.register_parameter("bias_ih" + suffix, new_parameter([rows], device, dtype))
                    self.register_parameter("bias_hh" + suffix, new_parameter([rows], device, dtype))
                if proj_size:
                    self.register_parameter("weight_hr" + suffix, new_parameter([proj_size, hidden_size], device, dtype))
        self.reset_parameters()

    def _output_size(self) -> int:
        """The size of h: that of the projection, where there is one."""
        return self.proj_size or self.hidden_size

    def _suffixes(self, layer: int) -> List[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def reset_parameters(self) -> None:
        """Draws the parameters again, uniform in +- 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do here; code written for PyTorch calls it."""

    @property
    def _flat_weights(self) -> List[Tensor]:
        """The parameters as the records take them: layer by layer, direction by direction."""
        names = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * self.bias + ["weight_hr"] * bool(self.proj_size)
        return [getattr(self, name + suffix) for layer in range(self.num_layers) for suffix in self._suffixes(layer)
                for name in names]

    @property
    def all_weights(self) -> List[List[Tensor]]:
        """The parameters of each layer and direction."""
        flat, count = self._flat_weights, 2 + 2 * self.bias + bool(self.proj_size)
        return [flat[i : i + count] for i in range(0, len(flat), count)]

    def _run(self, record: Callable[..., Any], input: Any, states: Sequence[Tensor]) -> Tuple[Any, List[Tensor]]:
        """The record of the layer on a padded or packed input and its first states, of which there may be none."""
        packed = input if isinstance(input, PackedSequence) else None
        if packed and packed.sorted_indices is not None:
            states = [ops.index_select(s, 1, packed.sorted_indices) for s in states]
        hx: Any = list(states) if self.gates == 4 else states[0] if states else None
        y, *last = record(packed.data if packed else input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout,
                          self.training, self.bidirectional, self.batch_first and not packed,
                          packed.batch_sizes if packed else None)
        if not packed:
            return y, last
        if packed.unsorted_indices is not None:
            last = [ops.index_select(s, 1, packed.unsorted_indices) for s in last]
        out = PackedSequence(y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        out._unsorted_on_host = packed._unsorted_on_host
        return out, last

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += ", bias=False"
        if self.batch_first:
            text += ", batch_first=True"
        if self.dropout:
            text += f", dropout={self.dropout}"
        return text + (", bidirectional=True" if self.bidirectional else "")


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh): input [T, B, in] -> output [T, B, dirs hidden], h [layers dirs, B, hidden]."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Optional[DType] = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        record = ops.rnn_relu if self.nonlinearity == "relu" else ops.rnn_tanh
        y, last = self._run(record, input, () if hx is None else (hx,))
        return y, last[0]


class LSTM(RNNBase):
    """Gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c') (Hochreiter and Schmidhuber 1997).
    Returns output, (h, c). With ``proj_size`` h is W_hr h' of that size (Sak et al., arXiv:1402.1128)."""

    gates = 4
    projects = True

    def forward(
        self, input: Any, hx: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Any, Tuple[Tensor, Tensor]]:
        y, (h, c) = self._run(ops.lstm, input, () if hx is None else hx)
        return y, (h, c)


class GRU(RNNBase):
    """Gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h (Cho et al., arXiv:1406.1078)."""

    gates = 3

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        y, last = self._run(ops.gru, input, () if hx is None else (hx,))
        return y, last[0]


class SLSTM(RNNBase):
    """Layers of the sLSTM (Beck et al., xLSTM, arXiv:2405.04517): gates i, f, z, o, the first an exponential. Returns output,
    (h, c / n, log n), n being the normaliser; these states go on where an earlier call stopped. PyTorch has no such layer."""

    gates = 4

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        device: Any = None, dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, device=device, dtype=dtype)

    def forward(
        self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor, Tensor]]:
        y, h, c, l = ops.slstm(input, [] if hx is None else list(hx), self._flat_weights, self.bias, self.num_layers,
                               self.batch_first)
        return y, (h, c, l)


class RNNCellBase(Module):
    """What the cells share: one step of a recurrent layer."""

    gates = 1
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Optional[Parameter]
    bias_hh: Optional[Parameter]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Optional[DType] = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
        self.weight_ih = new_parameter([rows, input_size], device, dtype)
        self.weight_hh = new_parameter([rows, hidden_size], device, dtype)
        self.register_parameter("bias_ih", new_parameter([rows], device, dtype) if bias else None)
        self.register_parameter("bias_hh", new_parameter([rows], device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again, uniform in +- 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _weights(self) -> Tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Optional[DType] = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        record = ops.rnn_relu_cell if self.nonlinearity == "relu" else ops.rnn_tanh_cell
        return record(input, hx, *self._weights())


class LSTMCell(RNNCellBase):
    """One step of LSTM: (h, c)."""

    gates = 4

    def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        h, c = ops.lstm_cell(input, [] if hx is None else list(hx), *self._weights())
        return h, c


class GRUCell(RNNCellBase):
    """One step of GRU."""

    gates = 3

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        return ops.gru_cell(input, hx, *self._weights())
