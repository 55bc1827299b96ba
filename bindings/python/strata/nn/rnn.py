"""Recurrent layers. Parameter names, gate order, shapes and initial values are PyTorch's."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Tuple

from .. import _ops as ops
from .._core import Tensor, dtype as DType, zeros
from . import functional as F
from . import init
from ._parts import check_p, new_parameter
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]


def _rnn(from_x: Tensor, from_h: Tensor, relu: bool) -> Tensor:
    return ops.relu(from_x + from_h) if relu else ops.tanh(from_x + from_h)


def _lstm(from_x: Tensor, from_h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
    i, f, g, o = ops.chunk(from_x + from_h, 4, 1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


def _gru(from_x: Tensor, from_h: Tensor, h: Tensor) -> Tensor:
    xr, xz, xn = ops.chunk(from_x, 3, 1)
    hr, hz, hn = ops.chunk(from_h, 3, 1)
    n = ops.tanh(xn + ops.sigmoid(xr + hr) * hn)
    return n + ops.sigmoid(xz + hz) * (h - n)


class RNNBase(Module):
    """What RNN, LSTM and GRU share: layers, directions, padded and packed sequences."""

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

    def _step(self, from_x: Tensor, from_h: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _from_input(self, suffix: str, x: Tensor) -> Tensor:
        """What the input gives to the gates: all steps in one product."""
        weight_ih = self._parameters["weight_ih" + suffix]
        assert weight_ih is not None
        return ops.linear(x, weight_ih, self._parameters.get("bias_ih" + suffix))

    def _stepper(self, suffix: str) -> Callable[[Tensor, Tensor, Tensor], Tuple[Tensor, Tensor]]:
        """One step of a direction: what the input gave, h and c -> h and c."""
        p = self._parameters
        weight_hh, bias_hh, weight_hr = p["weight_hh" + suffix], p.get("bias_hh" + suffix), p.get("weight_hr" + suffix)
        assert weight_hh is not None

        def step(from_x: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
            h, c = self._step(from_x, ops.linear(h, weight_hh, bias_hh), h, c)
            return (h if weight_hr is None else ops.linear(h, weight_hr)), c

        return step

    def _direction(self, suffix: str, x: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        steps = list(ops.unbind(self._from_input(suffix, x), 0))
        advance = self._stepper(suffix)
        reverse = suffix.endswith("_reverse")
        outputs: List[Tensor] = []
        for from_x in reversed(steps) if reverse else steps:
            h, c = advance(from_x, h, c)
            outputs.append(h)
        return ops.stack(outputs[::-1] if reverse else outputs, 0), h, c

    def _layers(self, x: Tensor, states: List[Tensor], direction: Callable[..., Tuple[Tensor, Tensor, Tensor]],
                dim: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Every layer from its first states. ``direction`` runs one of a layer's: suffix, x, h, c -> outputs, h, c; what
        both give stands side by side along ``dim``."""
        last_h: List[Tensor] = []
        last_c: List[Tensor] = []
        for layer in range(self.num_layers):
            outputs: List[Tensor] = []
            for suffix in self._suffixes(layer):
                i = len(last_h)
                y, h, c = direction(suffix, x, states[0].select(0, i), states[1].select(0, i))
                outputs.append(y)
                last_h.append(h)
                last_c.append(c)
            x = outputs[0] if len(outputs) == 1 else ops.cat(outputs, dim)
            if self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        return x, ops.stack(last_h, 0), ops.stack(last_c, 0)

    def _run(self, input: Any, h0: Optional[Tensor], c0: Optional[Tensor]) -> Tuple[Any, Tensor, Tensor]:
        name = type(self).__name__
        if isinstance(input, PackedSequence):
            return self._run_packed(input, h0, c0)
        if input.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise ValueError(f"{name}: input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}")
        unbatched = input.dim() == 2
        x = input.unsqueeze(1) if unbatched else input.transpose(0, 1) if self.batch_first else input
        if x.shape[0] < 1:
            raise ValueError(f"{name}: Expected sequence length to be larger than 0")
        directions = 2 if self.bidirectional else 1
        states: List[Tensor] = []
        for given, size in ((h0, self._output_size()), (c0, self.hidden_size)):
            shape = [self.num_layers * directions, x.shape[1], size]
            if given is None:
                states.append(zeros(shape, dtype=x.dtype, device=x.device))
                continue
            state = given.unsqueeze(1) if unbatched and given.dim() == 2 else given
            if list(state.shape) != shape:
                raise ValueError(f"{name}: Expected hidden size {shape}, got {list(state.shape)}")
            states.append(state)
        x, h, c = self._layers(x, states, self._direction, 2)
        if unbatched:
            return x.squeeze(1), h.squeeze(1), c.squeeze(1)
        return (x.transpose(0, 1) if self.batch_first else x), h, c

    def _run_packed(self, packed: PackedSequence, h0: Optional[Tensor], c0: Optional[Tensor]) -> Tuple[Any, Tensor, Tensor]:
        """The same for sequences of different lengths, in their packed order: step t runs those that have one."""
        counts: List[int] = packed.batch_sizes.tolist()
        if packed.data.shape[-1] != self.input_size:
            raise ValueError(f"{type(self).__name__}: input.size(-1) must be equal to input_size. Expected {self.input_size}, "
                             f"got {packed.data.shape[-1]}")
        directions = 2 if self.bidirectional else 1
        states: List[Tensor] = []
        for given, size in ((h0, self._output_size()), (c0, self.hidden_size)):
            shape = [self.num_layers * directions, counts[0], size]
            if given is None:
                states.append(zeros(shape, dtype=packed.data.dtype, device=packed.data.device))
            elif list(given.shape) != shape:
                raise ValueError(f"{type(self).__name__}: Expected hidden size {shape}, got {list(given.shape)}")
            else:
                order = packed.sorted_indices
                states.append(given if order is None else ops.index_select(given, 1, order))

        def direction(suffix: str, x: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
            return self._packed_direction(suffix, x, counts, h, c)

        x, h, c = self._layers(packed.data, states, direction, 1)
        if packed.unsorted_indices is not None:
            h, c = ops.index_select(h, 1, packed.unsorted_indices), ops.index_select(c, 1, packed.unsorted_indices)
        return PackedSequence(x, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), h, c

    def _packed_direction(self, suffix: str, x: Tensor, counts: List[int], h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        steps = ops.split_with_sizes(self._from_input(suffix, x), counts, 0)
        advance = self._stepper(suffix)
        reverse = suffix.endswith("_reverse")
        outputs: List[Tensor] = []
        if reverse:  # sequences join as their last steps come
            start_h, start_c = h, c
            h, c = h[:0], c[:0]
            for from_x in reversed(steps):
                n = from_x.shape[0]
                if n > h.shape[0]:
                    h, c = ops.cat([h, start_h[h.shape[0] : n]], 0), ops.cat([c, start_c[c.shape[0] : n]], 0)
                h, c = advance(from_x, h, c)
                outputs.append(h)
            return ops.cat(outputs[::-1], 0), h, c
        done_h: List[Tensor] = []
        done_c: List[Tensor] = []
        for from_x in steps:  # sequences leave after their last steps, the shortest first
            n = from_x.shape[0]
            if n < h.shape[0]:
                done_h.append(h[n:])
                done_c.append(c[n:])
                h, c = h[:n], c[:n]
            h, c = advance(from_x, h, c)
            outputs.append(h)
        return ops.cat(outputs, 0), ops.cat([h, *done_h[::-1]], 0), ops.cat([c, *done_c[::-1]], 0)

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

    def _step(self, from_x: Tensor, from_h: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
        return _rnn(from_x, from_h, self.nonlinearity == "relu"), c

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        y, h, _ = self._run(input, hx, None)
        return y, h


class LSTM(RNNBase):
    """Gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c') (Hochreiter and Schmidhuber 1997).
    Returns output, (h, c). With ``proj_size`` h is W_hr h' of that size (Sak et al., arXiv:1402.1128)."""

    gates = 4
    projects = True

    def _step(self, from_x: Tensor, from_h: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
        return _lstm(from_x, from_h, c)

    def forward(
        self, input: Any, hx: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Any, Tuple[Tensor, Tensor]]:
        y, h, c = self._run(input, *((None, None) if hx is None else hx))
        return y, (h, c)


class GRU(RNNBase):
    """Gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h (Cho et al., arXiv:1406.1078)."""

    gates = 3

    def _step(self, from_x: Tensor, from_h: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
        return _gru(from_x, from_h, h), c

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        y, h, _ = self._run(input, hx, None)
        return y, h


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

    def _project(self, x: Tensor, h: Tensor) -> Tuple[Tensor, Tensor]:
        return ops.linear(x, self.weight_ih, self.bias_ih), ops.linear(h, self.weight_hh, self.bias_hh)

    def _state(self, input: Tensor, given: Optional[Tensor]) -> Tuple[Tensor, Tensor, bool]:
        unbatched = input.dim() == 1
        x = input.unsqueeze(0) if unbatched else input
        if given is None:
            return x, zeros([x.shape[0], self.hidden_size], dtype=x.dtype, device=x.device), unbatched
        return x, given.unsqueeze(0) if unbatched else given, unbatched

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
        x, h, unbatched = self._state(input, hx)
        y = _rnn(*self._project(x, h), self.nonlinearity == "relu")
        return y.squeeze(0) if unbatched else y


class LSTMCell(RNNCellBase):
    """One step of LSTM: (h, c)."""

    gates = 4

    def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        x, h, unbatched = self._state(input, None if hx is None else hx[0])
        c = self._state(input, None if hx is None else hx[1])[1]
        h, c = _lstm(*self._project(x, h), c)
        return (h.squeeze(0), c.squeeze(0)) if unbatched else (h, c)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    gates = 3

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        x, h, unbatched = self._state(input, hx)
        y = _gru(*self._project(x, h), h)
        return y.squeeze(0) if unbatched else y
