'use strict';
// Recurrent layers. Parameter names, gate order, shapes and first values are PyTorch's.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { Module, parameter, detailOf } = require('./module.js');
const { MADE, wantCounts } = require('./parts.js');
const { wantShare } = require('./functional/norm.js');
const { optionsOf, wantOneOf, wantTensor } = require('../arguments.js');
const { ShapeError } = require('../errors.js');

// One step from the two projections and the states [h] or [h, c] before: the states after.
const steps = {
  tanh: (x, h) => [F.tanh(x.add(h))],
  relu: (x, h) => [F.relu(x.add(h))],
  lstm(x, h, [, c]) {
    const [i, f, g, o] = F.chunk(x.add(h), 4, 1);
    const next = F.sigmoid(f).mul(c).add(F.sigmoid(i).mul(F.tanh(g)));
    return [F.sigmoid(o).mul(F.tanh(next)), next];
  },
  gru(x, h, [before]) {
    const [xr, xz, xn] = F.chunk(x, 3, 1);
    const [hr, hz, hn] = F.chunk(h, 3, 1);
    const n = F.tanh(xn.add(F.sigmoid(xr.add(hr)).mul(hn)));
    return [n.add(F.sigmoid(xz.add(hz)).mul(before.sub(n)))];
  },
};
const gates = { tanh: 1, relu: 1, lstm: 4, gru: 3 };

function addParameters(module, suffix, rows, width, hidden, bias, { dtype = 'f32', device }) {
  const bound = 1 / Math.sqrt(hidden);
  const draw = (shape) => parameter(F.uniform(shape, -bound, bound, { dtype, device }));
  module[`weight_ih${suffix}`] = draw([rows, width]);
  module[`weight_hh${suffix}`] = draw([rows, hidden]);
  module[`bias_ih${suffix}`] = bias ? draw([rows]) : null;
  module[`bias_hh${suffix}`] = bias ? draw([rows]) : null;
}

/** Layers over [T, B, in] ([B, T, in] with {batchFirst}), or [T, in] for one sequence. */
class Recurrent extends Module {
  constructor(kind, inputSize, hiddenSize, given) {
    super();
    const { layers, bias, batchFirst, dropout, bidirectional, ...options } = optionsOf(new.target.name, given, { layers: 1, bias: true, batchFirst: false,
      dropout: 0, bidirectional: false, ...MADE });
    wantCounts(new.target.name, { inputSize, hiddenSize, layers });
    wantShare(dropout, new.target.name);
    Object.assign(this, { kind, inputSize, hiddenSize, layers, batchFirst, dropout, bidirectional });
    for (let layer = 0; layer < layers; ++layer) {
      const width = layer === 0 ? inputSize : hiddenSize * (bidirectional ? 2 : 1);
      for (const suffix of this.#suffixes(layer)) addParameters(this, suffix, gates[kind] * hiddenSize, width, hiddenSize, bias, options);
    }
  }
  #suffixes(layer) {
    return this.bidirectional ? [`_l${layer}`, `_l${layer}_reverse`] : [`_l${layer}`];
  }
  #direction(suffix, x, states) {
    // All steps' inputs in one product.
    const projected = F.linear(x, this[`weight_ih${suffix}`], this[`bias_ih${suffix}`]).unbind(0);
    const reverse = suffix.endsWith('_reverse');
    if (reverse) projected.reverse();
    const outputs = [];
    for (const from of projected) {
      states = steps[this.kind](from, F.linear(states[0], this[`weight_hh${suffix}`], this[`bias_hh${suffix}`]), states);
      outputs.push(states[0]);
    }
    if (reverse) outputs.reverse();
    return [F.stack(outputs, 0), states];
  }
  /** The output of the last layer, and the last states of all: one or two [layers * directions, B, hidden]. */
  run(input, given) {
    const name = this.constructor.name;
    wantTensor(input, name, 'the input');
    if ((input.ndim !== 2 && input.ndim !== 3) || input.shape[input.ndim - 1] !== this.inputSize) {
      throw new ShapeError(`${name}: the input must be [T, B, ${this.inputSize}] or [T, ${this.inputSize}], got [${input.shape.join(', ')}]`, name);
    }
    const single = input.ndim === 2;
    let x = single ? input.unsqueeze(1) : this.batchFirst ? input.transpose(0, 1) : input;
    if (x.shape[0] < 1) throw new ShapeError(`${name}: a sequence has at least one element`, name);
    const directions = this.bidirectional ? 2 : 1;
    const shape = [this.layers * directions, x.shape[1], this.hiddenSize];
    const count = this.kind === 'lstm' ? 2 : 1;
    const first = Array.from({ length: count }, (_, i) => {
      const state = given?.[i];
      if (state === undefined || state === null) return T.zeros(shape, { dtype: x.dtype, device: x.device });
      wantTensor(state, name, 'a state');
      const s = single && state.ndim === 2 ? state.unsqueeze(1) : state;
      if (s.shape.join() !== shape.join()) {
        throw new ShapeError(`${name}: a state must be [${shape.join(', ')}], got [${state.shape.join(', ')}]`, name);
      }
      return s;
    });
    const last = first.map(() => []);
    for (let layer = 0; layer < this.layers; ++layer) {
      const outputs = this.#suffixes(layer).map((suffix) => {
        const [y, states] = this.#direction(suffix, x, first.map((s) => s.select(0, last[0].length)));
        states.forEach((s, i) => last[i].push(s));
        return y;
      });
      x = directions === 1 ? outputs[0] : F.cat(outputs, 2);
      if (this.dropout && this.training && layer + 1 < this.layers) x = F.dropout(x, this.dropout);
    }
    const states = last.map((list) => F.stack(list, 0));
    if (single) return [x.squeeze(1), states.map((s) => s.squeeze(1))];
    return [this.batchFirst ? x.transpose(0, 1) : x, states];
  }
  detail() {
    return detailOf([this.inputSize, this.hiddenSize], { layers: this.layers === 1 ? undefined : this.layers,
      bidirectional: this.bidirectional || undefined });
  }
}
/** h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu: [output, h]. */
class RNN extends Recurrent {
  constructor(inputSize, hiddenSize, given) {
    const { nonlinearity = 'tanh', ...options } = given ?? {};
    wantOneOf(nonlinearity, ['tanh', 'relu'], 'RNN', 'nonlinearity');
    super(nonlinearity, inputSize, hiddenSize, options);
  }
  forward(x, h) {
    const [y, [last]] = this.run(x, [h]);
    return [y, last];
  }
}
/** Gates i, f, g, o (Hochreiter and Schmidhuber 1997): [output, [h, c]]. */
class LSTM extends Recurrent {
  constructor(inputSize, hiddenSize, options) {
    super('lstm', inputSize, hiddenSize, options);
  }
  forward(x, states) {
    return this.run(x, states);
  }
}
/** Gates r, z, n (Cho et al., arXiv:1406.1078): [output, h]. */
class GRU extends Recurrent {
  constructor(inputSize, hiddenSize, options) {
    super('gru', inputSize, hiddenSize, options);
  }
  forward(x, h) {
    const [y, [last]] = this.run(x, [h]);
    return [y, last];
  }
}

/** One step of [B, in] (or [in]). */
class Cell extends Module {
  constructor(kind, inputSize, hiddenSize, given) {
    super();
    const { bias, ...options } = optionsOf(new.target.name, given, { bias: true, ...MADE });
    wantCounts(new.target.name, { inputSize, hiddenSize });
    Object.assign(this, { kind, inputSize, hiddenSize });
    addParameters(this, '', gates[kind] * hiddenSize, inputSize, hiddenSize, bias, options);
  }
  run(input, given) {
    const name = this.constructor.name;
    const single = wantTensor(input, name, 'the input').ndim === 1;
    if (!single && input.ndim !== 2) throw new ShapeError(`${name}: the input must be [B, ${this.inputSize}] or [${this.inputSize}], got [${input.shape.join(', ')}]`, name);
    const x = single ? input.unsqueeze(0) : input;
    const states = Array.from({ length: this.kind === 'lstm' ? 2 : 1 }, (_, i) => {
      const state = given?.[i];
      if (state === undefined || state === null) return T.zeros([x.shape[0], this.hiddenSize], { dtype: x.dtype, device: x.device });
      const s = single && wantTensor(state, name, 'a state').ndim === 1 ? state.unsqueeze(0) : wantTensor(state, name, 'a state');
      if (s.shape.join() !== [x.shape[0], this.hiddenSize].join()) {
        throw new ShapeError(`${name}: a state must be [${x.shape[0]}, ${this.hiddenSize}], got [${state.shape.join(', ')}]`, name);
      }
      return s;
    });
    const next = steps[this.kind](F.linear(x, this.weight_ih, this.bias_ih), F.linear(states[0], this.weight_hh, this.bias_hh), states);
    return single ? next.map((s) => s.squeeze(0)) : next;
  }
  detail() {
    return detailOf([this.inputSize, this.hiddenSize]);
  }
}
/** The next h. */
class RNNCell extends Cell {
  constructor(inputSize, hiddenSize, given) {
    const { nonlinearity = 'tanh', ...options } = given ?? {};
    wantOneOf(nonlinearity, ['tanh', 'relu'], 'RNNCell', 'nonlinearity');
    super(nonlinearity, inputSize, hiddenSize, options);
  }
  forward(x, h) {
    return this.run(x, [h])[0];
  }
}
/** The next [h, c]. */
class LSTMCell extends Cell {
  constructor(inputSize, hiddenSize, options) {
    super('lstm', inputSize, hiddenSize, options);
  }
  forward(x, states) {
    return this.run(x, states);
  }
}
/** The next h. */
class GRUCell extends Cell {
  constructor(inputSize, hiddenSize, options) {
    super('gru', inputSize, hiddenSize, options);
  }
  forward(x, h) {
    return this.run(x, [h])[0];
  }
}

module.exports = { RNN, LSTM, GRU, RNNCell, LSTMCell, GRUCell };
