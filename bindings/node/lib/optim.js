'use strict';
// The engine's optimizers over groups of named parameters, gradient clipping, loss scaling. Learning rates over time:
// schedule.js.

const native = require('./native.js');
const { withSignal } = require('./signal.js');
const { settled, named } = require('./ops.js');
const { Module } = require('./nn/module.js');
const { ValueError } = require('./errors.js');
const schedules = require('./schedule.js');

const { Tensor } = native;

/** Parameters that share their options; `options` says what they are, set() changes some. */
class ParamGroup {
  #optimizer;
  #index;
  constructor(optimizer, index, names, params) {
    this.#optimizer = optimizer;
    this.#index = index;
    this.names = names;
    this.params = params;
  }
  get options() {
    return native.optimizerOptions(this.#optimizer, this.#index);
  }
  set(options) {
    native.optimizerSetOptions(this.#optimizer, this.#index, options);
  }
  get lr() {
    return this.options.lr;
  }
  set lr(value) {
    this.set({ lr: value });
  }
}

/** [name, tensor] pairs out of a Module, tensors or pairs. */
function pairsOf(params, kind, from = 0) {
  if (params instanceof Module) return params.namedParameters();
  if (params instanceof Tensor) return [[String(from), params]];
  return Array.from(params, (p, i) => (Array.isArray(p) ? p : [String(from + i), p]));
}

/** Base of all. params: a Module, tensors, [name, tensor] pairs, or groups {params, ...options of their own}. */
class Optimizer {
  #handle;
  #groups;
  constructor(kind, params, options = {}) {
    const isGroup = (p) => p !== null && typeof p === 'object' && !Array.isArray(p) && !(p instanceof Tensor) && 'params' in p;
    const list = params instanceof Module || params instanceof Tensor ? null : Array.from(params ?? []);
    const wanted = list !== null && list.length > 0 && list.every(isGroup) ? list : [{ params: list ?? params }];
    let count = 0;
    const groups = wanted.map(({ params: some, ...own }) => {
      const pairs = pairsOf(some, kind, count);
      count += pairs.length;
      return { names: pairs.map(([name]) => name), tensors: pairs.map(([, t]) => t), options: { ...options, ...own } };
    });
    if (count === 0) throw new ValueError(`${kind}: there are no parameters`, kind);
    this.#handle = native.newOptimizer(kind, groups);
    this.#groups = groups.map((g, i) => new ParamGroup(this.#handle, i, g.names, g.tensors));
  }
  /** The groups, whose options may be changed between steps. */
  get paramGroups() {
    return [...this.#groups];
  }
  /** Updates every parameter that has a gradient. With {maxNorm}, clips first and returns the norm before. */
  step({ maxNorm } = {}) {
    return native.optimizerStep(this.#handle, maxNorm);
  }
  stepAsync({ maxNorm, signal } = {}) {
    return withSignal(signal, (flag) => settled(() => native.optimizerStepAsync(flag, this.#handle, maxNorm)));
  }
  /**
   * A step that is left out where the loss or a gradient is not finite: {loss, norm, scale, outcome}, outcome being
   * 'updated', 'skipped' (scaled gradients; the scaler has made the scale smaller) or 'diverged' (later steps change nothing
   * either, until resetGuard()).
   */
  stepGuarded({ maxNorm, loss, scaler } = {}) {
    return native.optimizerStepGuarded(this.#handle, maxNorm, loss, scaler === undefined ? null : LossScaler.handleOf(scaler));
  }
  resetGuard() {
    native.optimizerResetGuard(this.#handle);
  }
  zeroGrad({ setToNone = true } = {}) {
    native.optimizerZeroGrad(this.#handle, setToNone);
  }
  /** Of the first group; setting it sets that of all. */
  get lr() {
    return native.optimizerLr(this.#handle);
  }
  set lr(value) {
    native.optimizerSetLr(this.#handle, value);
  }
  /** The parameters in order. */
  get parameters() {
    return this.#groups.flatMap((g) => g.params);
  }
  stateDict() {
    return native.optimizerState(this.#handle);
  }
  loadStateDict(state) {
    native.optimizerLoadState(this.#handle, Object.keys(state), Object.values(state));
  }
  /** Bytes of the state that every parameter will have once it was updated. */
  get stateBytes() {
    return native.optimizerStateBytes(this.#handle);
  }
}
const kinds = Object.fromEntries(['SGD', 'Adam', 'AdamW', 'Lion', 'Adafactor', 'Muon', 'RMSprop', 'Adagrad', 'Adadelta',
  'Adamax', 'NAdam', 'RAdam'].map((kind) => [kind,
  named(kind, class extends Optimizer {
    constructor(params, options) {
      super(kind, params, options);
    }
  })]));

/** Keeps gradients of f16 from vanishing: scaler.scale(loss).backward(), then optimizer.stepGuarded({loss, scaler}). */
class LossScaler {
  #handle;
  constructor({ device, ...options } = {}) {
    this.#handle = native.newScaler(device, options);
  }
  static handleOf(scaler) {
    if (!(scaler instanceof LossScaler)) throw new ValueError('stepGuarded: scaler must be a LossScaler', 'stepGuarded');
    return scaler.#handle;
  }
  /** loss times the scale, in f32. */
  scale(loss) {
    return native.scaleLoss(this.#handle, loss);
  }
  /** The scale; waits for the device. */
  get value() {
    return native.scaleValue(this.#handle);
  }
  /** f64 [2]: the scale, and the finite steps since it last changed. */
  state() {
    return native.scalerState(this.#handle).clone();
  }
  loadState(state) {
    native.scalerLoad(this.#handle, state);
  }
}

const tensorsOf = (params) => pairsOf(params, 'clipGradNorm').map(([, t]) => t);
/** Scales the parameters' gradients so that their joint 2-norm is at most maxNorm; returns the norm before. */
const clipGradNorm = (params, maxNorm) => native.clipGradNorm(tensorsOf(params), maxNorm);
/** Clamps every element of the gradients to [-max, max]. */
const clipGradValue = (params, max) => native.clipGradValue(tensorsOf(params), max);
/** The 2-norm of all gradients together. */
const gradNorm = (params) => native.gradNorm(tensorsOf(params));

module.exports = { Optimizer, ...kinds, LossScaler, clipGradNorm, clipGradValue, gradNorm, ...schedules };
