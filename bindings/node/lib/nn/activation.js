'use strict';
// Activations as modules.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { Module, parameter, detailOf } = require('./module.js');

/** A module of `op` whose options are `defaults`, given to the op in their order. */
function activation(name, op, defaults = {}) {
  const keys = Object.keys(defaults);
  return { [name]: class extends Module {
    constructor(...values) {
      super();
      keys.forEach((key, i) => { this[key] = values[i] ?? defaults[key]; });
    }
    forward(x) {
      return typeof op === 'function' ? op(x, this) : F[op](x, ...keys.map((key) => this[key]));
    }
    detail() {
      return detailOf([], Object.fromEntries(keys.map((key) => [key, this[key]])));
    }
  } }[name];
}

/** max(0, x) + weight min(0, x), with one weight or one for each channel. */
class PReLU extends Module {
  constructor(count = 1, { init = 0.25, ...options } = {}) {
    super();
    this.weight = parameter(T.full([count], init, options));
  }
  forward(x) {
    const w = this.weight.numel === 1 ? this.weight : this.weight.reshape([1, -1, ...new Array(Math.max(0, x.ndim - 2)).fill(1)]);
    return F.where(F.gt(x, 0), x, x.mul(w));
  }
}

module.exports = {
  ReLU: activation('ReLU', 'relu'),
  GELU: activation('GELU', 'gelu', { approximate: 'none' }),
  SiLU: activation('SiLU', 'silu'),
  Tanh: activation('Tanh', 'tanh'),
  Sigmoid: activation('Sigmoid', 'sigmoid'),
  ReLU6: activation('ReLU6', (x) => F.clamp(x, 0, 6)),
  LeakyReLU: activation('LeakyReLU', 'leaky_relu', { negativeSlope: 0.01 }),
  ELU: activation('ELU', 'elu', { alpha: 1 }),
  SELU: activation('SELU', (x) => F.elu(x, 1.6732632423543772, 1.0507009873554805)),
  Mish: activation('Mish', 'mish'),
  Hardsigmoid: activation('Hardsigmoid', 'hardsigmoid'),
  Hardswish: activation('Hardswish', 'hardswish'),
  Hardtanh: activation('Hardtanh', 'hardtanh', { min: -1, max: 1 }),
  Softplus: activation('Softplus', 'softplus', { beta: 1, threshold: 20 }),
  Softsign: activation('Softsign', (x) => x.div(F.abs(x).add(1))),
  LogSigmoid: activation('LogSigmoid', 'logsigmoid'),
  Softmax: activation('Softmax', 'softmax', { dim: -1 }),
  LogSoftmax: activation('LogSoftmax', 'log_softmax', { dim: -1 }),
  GLU: activation('GLU', (x, { dim }) => {
    const [a, b] = F.chunk(x, 2, dim);
    return a.mul(F.sigmoid(b));
  }, { dim: -1 }),
  PReLU,
};
