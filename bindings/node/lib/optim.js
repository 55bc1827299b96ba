'use strict';
// The engine's optimizers, and learning rates by step.

const native = require('./native.js');
const { withSignal } = require('./signal.js');
const { settled } = require('./ops.js');
const { Module } = require('./nn.js');
const { ValueError } = require('./errors.js');

/** Base of all; params is a Module, an array of tensors, or an array of [name, tensor]. */
class Optimizer {
  #handle;
  #names;
  #tensors;
  constructor(kind, params, options = {}) {
    const named = params instanceof Module ? params.namedParameters()
      : Array.from(params, (p, i) => (Array.isArray(p) ? p : [String(i), p]));
    if (named.length === 0) throw new ValueError(`${kind}: there are no parameters`, kind);
    this.#names = named.map(([name]) => name);
    this.#tensors = named.map(([, t]) => t);
    this.#handle = native.newOptimizer(kind, this.#names, this.#tensors, options);
  }
  /** Updates every parameter that has a gradient. With {maxNorm}, clips first and returns the norm before. */
  step({ maxNorm } = {}) {
    return native.optimizerStep(this.#handle, maxNorm);
  }
  stepAsync({ maxNorm, signal } = {}) {
    return withSignal(signal, (flag) => settled(() => native.optimizerStepAsync(flag, this.#handle, maxNorm)));
  }
  zeroGrad({ setToNone = true } = {}) {
    native.optimizerZeroGrad(this.#handle, setToNone);
  }
  get lr() {
    return native.optimizerLr(this.#handle);
  }
  set lr(value) {
    native.optimizerSetLr(this.#handle, value);
  }
  /** The parameters in order. */
  get parameters() {
    return [...this.#tensors];
  }
  stateDict() {
    return native.optimizerState(this.#handle);
  }
  loadStateDict(state) {
    native.optimizerLoadState(this.#handle, Object.keys(state), Object.values(state));
  }
}
class SGD extends Optimizer {
  constructor(params, options) {
    super('SGD', params, options);
  }
}
class Adam extends Optimizer {
  constructor(params, options) {
    super('Adam', params, options);
  }
}
class AdamW extends Optimizer {
  constructor(params, options) {
    super('AdamW', params, options);
  }
}
class Lion extends Optimizer {
  constructor(params, options) {
    super('Lion', params, options);
  }
}

/** Linear warm-up to `lr`, then a cosine down to lr * floor at `steps`: a function of the step. */
function cosine(lr, steps, { warmup = 0, floor = 0 } = {}) {
  return (step) => {
    if (step < warmup) return (lr * (step + 1)) / warmup;
    const t = Math.min(1, (step - warmup) / Math.max(1, steps - warmup));
    return lr * (floor + (1 - floor) * 0.5 * (1 + Math.cos(Math.PI * t)));
  };
}
/** Scales the parameters' gradients so that their joint 2-norm is at most maxNorm; returns the norm before. */
function clipGradNorm(params, maxNorm) {
  return native.clipGradNorm(params instanceof Module ? params.parameters() : Array.from(params), maxNorm);
}

module.exports = { Optimizer, SGD, Adam, AdamW, Lion, cosine, clipGradNorm };
