'use strict';
// Recurrent layers. Parameter names, gate order, shapes and first values are PyTorch's.

const { functions: F, ops } = require('../ops.js');
const { Module, parameter, detailOf } = require('./module.js');
const { MADE, wantCounts } = require('./parts.js');
const { wantShare } = require('./functional/norm.js');
const { optionsOf, wantOneOf, wantTensor } = require('../arguments.js');
const { ShapeError } = require('../errors.js');

const records = { tanh: 'rnn_tanh', relu: 'rnn_relu', lstm: 'lstm', gru: 'gru' };
const gates = { tanh: 1, relu: 1, lstm: 4, gru: 3 };

function addParameters(module, suffix, rows, width, hidden, bias, { dtype = 'f32', device }) {
  const bound = 1 / Math.sqrt(hidden);
  const draw = (shape) => parameter(F.uniform(shape, -bound, bound, { dtype, device }));
  module[`weight_ih${suffix}`] = draw([rows, width]);
  module[`weight_hh${suffix}`] = draw([rows, hidden]);
  module[`bias_ih${suffix}`] = bias ? draw([rows]) : null;
  module[`bias_hh${suffix}`] = bias ? draw([rows]) : null;
}

/** One direction's parameters as the records take them. */
function weightsOf(module, suffix) {
  return ['weight_ih', 'weight_hh', 'bias_ih', 'bias_hh'].map((name) => module[name + suffix]).filter((p) => p !== null);
}
/** The states that were given, as the record of `kind` takes them. */
function statesOf(name, kind, given) {
  const states = [given?.[0], given?.[1]].filter((s) => s !== undefined && s !== null);
  for (const s of states) wantTensor(s, name, 'a state');
  if (kind === 'lstm') return states;
  return states.length > 0 ? states[0] : null;
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
  /** The output of the last layer, and the last states of all: one or two [layers * directions, B, hidden]. */
  run(input, given) {
    const name = this.constructor.name;
    wantTensor(input, name, 'the input');
    if ((input.ndim !== 2 && input.ndim !== 3) || input.shape[input.ndim - 1] !== this.inputSize) {
      throw new ShapeError(`${name}: the input must be [T, B, ${this.inputSize}] or [T, ${this.inputSize}], got [${input.shape.join(', ')}]`, name);
    }
    const weights = [];
    for (let layer = 0; layer < this.layers; ++layer) {
      for (const suffix of this.#suffixes(layer)) weights.push(...weightsOf(this, suffix));
    }
    const result = ops[records[this.kind]](input, statesOf(name, this.kind, given), weights, { has_biases: this.bias_ih_l0 !== null, num_layers: this.layers,
      dropout: this.dropout, train: this.training, bidirectional: this.bidirectional, batch_first: this.batchFirst });
    return [result.output, this.kind === 'lstm' ? [result.h, result.c] : [result.h]];
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

/** The sLSTM (Beck et al., arXiv:2405.04517), gates i, f, z, o, over [T, B, in] ([B, T, in] with {batchFirst}):
 * [output, [h, c / n, log n]], n being the normaliser. */
class SLSTM extends Module {
  constructor(inputSize, hiddenSize, given) {
    super();
    const { layers, bias, batchFirst, ...options } = optionsOf('SLSTM', given, { layers: 1, bias: true, batchFirst: false, ...MADE });
    wantCounts('SLSTM', { inputSize, hiddenSize, layers });
    Object.assign(this, { inputSize, hiddenSize, layers, batchFirst });
    for (let layer = 0; layer < layers; ++layer) {
      addParameters(this, `_l${layer}`, 4 * hiddenSize, layer === 0 ? inputSize : hiddenSize, hiddenSize, bias, options);
    }
  }
  forward(x, states) {
    wantTensor(x, 'SLSTM', 'the input');
    const before = [states?.[0], states?.[1], states?.[2]].filter((s) => s !== undefined && s !== null);
    for (const s of before) wantTensor(s, 'SLSTM', 'a state');
    const weights = Array.from({ length: this.layers }, (_, layer) => weightsOf(this, `_l${layer}`)).flat();
    const result = ops.slstm(x, before, weights, { has_biases: this.bias_ih_l0 !== null, num_layers: this.layers,
      batch_first: this.batchFirst });
    return [result.output, [result.h, result.c, result.l]];
  }
  detail() {
    return detailOf([this.inputSize, this.hiddenSize], { layers: this.layers === 1 ? undefined : this.layers });
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
    const result = ops[`${records[this.kind]}_cell`](input, statesOf(name, this.kind, given), this.weight_ih, this.weight_hh, this.bias_ih, this.bias_hh);
    return this.kind === 'lstm' ? [result.h, result.c] : [result];
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

module.exports = { RNN, LSTM, GRU, SLSTM, RNNCell, LSTMCell, GRUCell };
