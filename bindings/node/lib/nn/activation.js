'use strict';
// Activations as modules.

const T = require('../tensor.js');
const { functions: F } = require('../ops.js');
const functional = require('./functional/index.js');
const { Module, parameter, detailOf } = require('./module.js');
const { MADE, madeOf } = require('./parts.js');
const { isOptions, kindOf, optionsOf, wantCount, wantTensor } = require('../arguments.js');
const { ShapeError, ValueError } = require('../errors.js');

/** A module of f(x, ...options) whose options are `defaults`: by position, or by name in an object. */
function activation(name, f, defaults = {}) {
  const keys = Object.keys(defaults);
  return { [name]: class extends Module {
    constructor(...values) {
      super();
      const byName = values.length === 1 && isOptions(values[0]);
      if (!byName && values.length > keys.length) throw new ValueError(`${name}: takes at most ${keys.length} arguments, got ${values.length}`, name);
      Object.assign(this, byName ? optionsOf(name, values[0], defaults)
        : Object.fromEntries(keys.map((key, i) => [key, values[i] ?? defaults[key]])));
    }
    forward(x) {
      return f(wantTensor(x, name), ...keys.map((key) => this[key]), this);
    }
    detail() {
      return detailOf([], Object.fromEntries(keys.map((key) => [key, this[key]])));
    }
  } }[name];
}
const composed = (name, f, defaults) => activation(name, (x, ...options) => f(x, ...options.slice(0, -1)), defaults);
const record = (name, op, defaults) => composed(name, F[op], defaults);

/** max(0, x) + weight min(0, x), with one weight or one for each channel. */
class PReLU extends Module {
  constructor(count = 1, options = undefined) {
    super();
    const { init, ...made } = optionsOf('PReLU', options, { init: 0.25, ...MADE });
    this.weight = parameter(T.full([wantCount(count, 'PReLU', 'count')], init, madeOf(made)));
  }
  forward(x) {
    return functional.prelu(x, this.weight);
  }
  detail() {
    return detailOf([this.weight.numel]);
  }
}
/** softmax over the channels of [N, C, H, W] or [C, H, W]. */
class Softmax2d extends Module {
  forward(x) {
    if (wantTensor(x, 'Softmax2d').ndim !== 3 && x.ndim !== 4) throw new ShapeError(`Softmax2d: wants [N, C, H, W] or [C, H, W], got [${x.shape.join(', ')}]`, 'Softmax2d');
    return F.softmax(x, -3);
  }
}
/** x where it is above `threshold`, else `value`. */
class Threshold extends Module {
  constructor(threshold, value) {
    super();
    for (const v of [threshold, value]) if (typeof v !== 'number') throw new ValueError(`Threshold: needs threshold and value, numbers, got ${kindOf(v)}`, 'Threshold');
    Object.assign(this, { threshold, value });
  }
  forward(x) {
    return functional.threshold(x, this.threshold, this.value);
  }
  detail() {
    return detailOf([], { threshold: this.threshold, value: this.value });
  }
}

module.exports = {
  ReLU: record('ReLU', 'relu'),
  GELU: record('GELU', 'gelu', { approximate: 'none' }),
  SiLU: record('SiLU', 'silu'),
  Tanh: record('Tanh', 'tanh'),
  Sigmoid: record('Sigmoid', 'sigmoid'),
  ReLU6: composed('ReLU6', functional.relu6),
  LeakyReLU: record('LeakyReLU', 'leaky_relu', { negativeSlope: 0.01 }),
  ELU: record('ELU', 'elu', { alpha: 1 }),
  CELU: composed('CELU', functional.celu, { alpha: 1 }),
  SELU: composed('SELU', functional.selu),
  Mish: record('Mish', 'mish'),
  Hardsigmoid: record('Hardsigmoid', 'hardsigmoid'),
  Hardswish: record('Hardswish', 'hardswish'),
  Hardtanh: record('Hardtanh', 'hardtanh', { min: -1, max: 1 }),
  Hardshrink: composed('Hardshrink', functional.hardshrink, { lambd: 0.5 }),
  Softplus: record('Softplus', 'softplus', { beta: 1, threshold: 20 }),
  Softshrink: composed('Softshrink', functional.softshrink, { lambd: 0.5 }),
  Softsign: composed('Softsign', functional.softsign),
  Tanhshrink: composed('Tanhshrink', functional.tanhshrink),
  LogSigmoid: record('LogSigmoid', 'logsigmoid'),
  Softmax: record('Softmax', 'softmax', { dim: -1 }),
  Softmin: composed('Softmin', functional.softmin, { dim: -1 }),
  LogSoftmax: record('LogSoftmax', 'log_softmax', { dim: -1 }),
  GLU: composed('GLU', functional.glu, { dim: -1 }),
  RReLU: activation('RReLU', (x, lower, upper, module) => functional.rrelu(x, { lower, upper, training: module.training }), { lower: 1 / 8, upper: 1 / 3 }),
  PReLU, Softmax2d, Threshold,
};
