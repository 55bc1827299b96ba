'use strict';
// What every optimizer does, the engine's optimizers over groups of named parameters, gradient clipping, loss scaling.

const native = require('../native.js');
const { withSignal } = require('../signal.js');
const { settled, named } = require('../ops.js');
const { enableGrad } = require('../autograd.js');
const { Module } = require('../nn/module.js');
const { kindOf, isOptions, optionsOf } = require('../arguments.js');
const { ValueError } = require('../errors.js');
const { rules, budgets } = require('./within.js');

const { Tensor } = native;

/** What a group of options says of all optimizers here, and the engine does not know: whether to climb. */
function withoutMaximize({ maximize = false, ...options }, name) {
  if (typeof maximize !== 'boolean') throw new ValueError(`${name}: maximize must be true or false, got ${kindOf(maximize)}`, name);
  return [maximize, options];
}
/** One of the engine's rules over groups {names, tensors, options}. */
class Engine {
  #handle;
  #maximize;
  constructor(kind, groups) {
    const split = groups.map((g) => withoutMaximize(g.options, kind));
    this.#maximize = split[0][0];
    if (split.some(([m]) => m !== this.#maximize)) throw new ValueError(`${kind}: maximize must be the same in all groups`, kind);
    this.#handle = native.newOptimizer(kind, groups.map((g, i) => ({ ...g, options: split[i][1] })));
  }
  /** For st.memoryBudget. */
  get engine() {
    return this.#handle;
  }
  options(group) {
    return { ...native.optimizerOptions(this.#handle, group), ...(this.#maximize ? { maximize: true } : {}) };
  }
  setOptions(group, options) {
    native.optimizerSetOptions(this.#handle, group, options);
  }
  step(maxNorm) {
    return native.optimizerStep(this.#handle, maxNorm, this.#maximize);
  }
  stepAsync(maxNorm, signal) {
    return withSignal(signal, (flag) => settled(() => native.optimizerStepAsync(flag, this.#handle, maxNorm, this.#maximize)));
  }
  stepGuarded(maxNorm, loss, scaler) {
    if (this.#maximize) throw new ValueError('stepGuarded: does not go with maximize', 'stepGuarded');
    return native.optimizerStepGuarded(this.#handle, maxNorm, loss, scaler === undefined ? null : LossScaler.handleOf(scaler));
  }
  resetGuard() {
    native.optimizerResetGuard(this.#handle);
  }
  zeroGrad(setToNone) {
    native.optimizerZeroGrad(this.#handle, setToNone);
  }
  get lr() {
    return native.optimizerLr(this.#handle);
  }
  set lr(value) {
    native.optimizerSetLr(this.#handle, value);
  }
  state() {
    return native.optimizerState(this.#handle);
  }
  loadState(state) {
    native.optimizerLoadState(this.#handle, Object.keys(state), Object.values(state));
  }
  get stateBytes() {
    return native.optimizerStateBytes(this.#handle);
  }
}

/** Parameters that share their options; `options` says what they are, set() changes some. */
class ParamGroup {
  #engine;
  #index;
  constructor(engine, index, names, params) {
    this.#engine = engine;
    this.#index = index;
    this.names = names;
    this.params = params;
  }
  get options() {
    return this.#engine().options(this.#index);
  }
  set(options) {
    this.#engine().setOptions(this.#index, options);
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
  if (params === null || params === undefined || typeof params[Symbol.iterator] !== 'function' || typeof params === 'string') {
    throw new ValueError(`${kind}: the parameters must be a module, tensors or [name, tensor] pairs, got ${kindOf(params)}`, kind);
  }
  return Array.from(params, (p, i) => {
    const pair = Array.isArray(p) ? p : [String(from + i), p];
    if (typeof pair[0] !== 'string' || !(pair[1] instanceof Tensor)) {
      throw new ValueError(`${kind}: parameter ${i} must be a Tensor or a [name, tensor] pair, got ${kindOf(Array.isArray(p) ? p[1] : p)}`, kind);
    }
    return pair;
  });
}
const isGroup = (p) => p !== null && typeof p === 'object' && !Array.isArray(p) && !(p instanceof Tensor) && !(p instanceof Module) && 'params' in p;
/** {names, tensors, options}; parameters without names count from `from`. */
function groupOf({ params, ...own }, options, kind, from) {
  const pairs = pairsOf(params, kind, from);
  return { names: pairs.map(([name]) => name), tensors: pairs.map(([, t]) => t), options: { ...options, ...own } };
}
const stepOptions = (given) => optionsOf('step', given, { maxNorm: undefined });
const asyncOptions = (given) => optionsOf('stepAsync', given, { maxNorm: undefined, signal: undefined });
const guardOptions = (given) => optionsOf('stepGuarded', given, { maxNorm: undefined, loss: undefined, scaler: undefined });

/**
 * Base of all. params: a Module, tensors, [name, tensor] pairs, or groups {params, ...options of their own}. Makes the rule,
 * `new Rule(kind, groups)`.
 */
class Optimizer {
  #kind;
  #Rule;
  #rule;
  #defaults;
  #made;
  #groups = [];
  #before = [];
  #after = [];
  constructor(kind, params, options = {}, Rule = Engine) {
    this.#kind = kind;
    this.#Rule = Rule;
    if (options !== null && !isOptions(options)) throw new ValueError(`${kind}: the options must be an object, got ${kindOf(options)}`, kind);
    const list = params instanceof Module || params instanceof Tensor || typeof params?.[Symbol.iterator] !== 'function' ? null : [...params];
    const wanted = list !== null && list.length > 0 && list.every(isGroup) ? list : [{ params: list ?? params }];
    let count = 0;
    this.#defaults = { ...options };
    this.#made = wanted.map((given) => {
      const group = groupOf(given, this.#defaults, kind, count);
      count += group.tensors.length;
      return group;
    });
    if (count === 0) throw new ValueError(`${kind}: there are no parameters`, kind);
    this.#build();
  }
  #build() {
    this.#rule = new this.#Rule(this.#kind, this.#made);
    rules.set(this, this.#rule);
    this.#groups = this.#made.map((g, i) => new ParamGroup(() => this.#rule, i, g.names, g.tensors));
  }
  /** The groups, whose options may be changed between steps. */
  get paramGroups() {
    return [...this.#groups];
  }
  /** Adds {params, ...options of their own}; what the others have learned stays. */
  addParamGroup(group) {
    if (!isGroup(group)) throw new ValueError(`addParamGroup: needs {params, ...options}, got ${kindOf(group)}`, 'addParamGroup');
    this.#outside('addParamGroup');
    const count = this.#made.reduce((n, g) => n + g.tensors.length, 0);
    const before = this.#made;
    const now = before.map((g, i) => ({ ...g, options: this.#rule.options(i) }));
    const added = groupOf(group, this.#defaults, this.#kind, count);
    const state = this.#rule.state();
    const rule = new this.#Rule(this.#kind, [...now, added]);
    if (Object.keys(state).length > 0) rule.loadState(state);
    this.#rule = rule;
    rules.set(this, rule);
    this.#made = [...now, added];
    this.#groups.push(new ParamGroup(() => this.#rule, this.#groups.length, added.names, added.tensors));
  }
  /** Where the state is at home in a budget it stays there. */
  #outside(what) {
    if (budgets.has(this)) throw new ValueError(`${what}: is not for within st.memoryBudget()`, what);
  }
  /** update(), at which a step within a budget ends. */
  #ends(update) {
    const budget = budgets.get(this);
    return budget ? budget.step(update) : update();
  }
  #around(run) {
    for (const hook of [...this.#before]) hook(this);
    const result = run();
    for (const hook of [...this.#after]) hook(this);
    return result;
  }
  /**
   * Updates every parameter that has a gradient. With {maxNorm}, clips first and returns the norm before. With a function, calls it
   * first, which makes the gradients, and returns what it returned.
   */
  step(given) {
    if (typeof given !== 'function') {
      const { maxNorm } = stepOptions(given);
      return this.#around(() => this.#ends(() => this.#rule.step(maxNorm)));
    }
    return this.#around(() => {
      if (this.#rule.iterate) return this.#rule.iterate(given);
      const result = enableGrad(given);
      this.#ends(() => this.#rule.step());
      return result;
    });
  }
  stepAsync(given) {
    return settled(async () => {
      this.#outside('stepAsync');
      const { maxNorm, signal } = asyncOptions(given);
      for (const hook of [...this.#before]) hook(this);
      const result = await this.#rule.stepAsync(maxNorm, signal);
      for (const hook of [...this.#after]) hook(this);
      return result;
    });
  }
  /** hook(optimizer) before each step; {remove()} ends it. */
  registerStepPreHook(hook) {
    return this.#hook(this.#before, hook);
  }
  /** hook(optimizer) after each step. */
  registerStepPostHook(hook) {
    return this.#hook(this.#after, hook);
  }
  #hook(list, hook) {
    if (typeof hook !== 'function') throw new ValueError(`${this.#kind}: a hook must be a function, got ${kindOf(hook)}`, this.#kind);
    const entry = (o) => hook(o);
    list.push(entry);
    return { remove: () => { if (list.includes(entry)) list.splice(list.indexOf(entry), 1); } };
  }
  /**
   * A step that is left out where the loss or a gradient is not finite: {loss, norm, scale, outcome}, outcome being
   * 'updated', 'skipped' (scaled gradients; the scaler has made the scale smaller) or 'diverged' (later steps change nothing
   * either, until resetGuard()).
   */
  stepGuarded(given) {
    const { maxNorm, loss, scaler } = guardOptions(given);
    return this.#around(() => this.#ends(() => this.#rule.stepGuarded(maxNorm, loss, scaler)));
  }
  resetGuard() {
    this.#rule.resetGuard();
  }
  zeroGrad(given) {
    this.#rule.zeroGrad(optionsOf('zeroGrad', given, { setToNone: true }).setToNone);
  }
  /** Of the first group; setting it sets that of all. */
  get lr() {
    return this.#rule.lr;
  }
  set lr(value) {
    this.#rule.lr = value;
  }
  /** The parameters in order. */
  get parameters() {
    return this.#groups.flatMap((g) => g.params);
  }
  stateDict() {
    return this.#rule.state();
  }
  loadStateDict(state) {
    if (state === null || typeof state !== 'object' || state instanceof Tensor) {
      throw new ValueError(`loadStateDict: the state must be an object of tensors by name, got ${kindOf(state)}`, 'loadStateDict');
    }
    this.#outside('loadStateDict');
    this.#rule.loadState(state);
  }
  /** Bytes of the state that every parameter will have once it was updated. */
  get stateBytes() {
    return this.#rule.stateBytes;
  }
}
const kinds = Object.fromEntries(JSON.parse(native.optimizerRecords()).map(({ title }) => title).map((kind) => [kind,
  named(kind, class extends Optimizer {
    constructor(params, options) {
      super(kind, params, options);
    }
  })]));

/** Keeps gradients of f16 from vanishing: scaler.scale(loss).backward(), then optimizer.stepGuarded({loss, scaler}). */
class LossScaler {
  #handle;
  constructor(given) {
    const { device, ...options } = given ?? {};
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

const tensorsOf = (params, name) => pairsOf(params, name).map(([, t]) => t);
/** Scales the parameters' gradients so that their joint 2-norm is at most maxNorm; returns the norm before. */
const clipGradNorm = (params, maxNorm) => native.clipGradNorm(tensorsOf(params, 'clipGradNorm'), maxNorm);
/** Clamps every element of the gradients to [-max, max]. */
const clipGradValue = (params, max) => native.clipGradValue(tensorsOf(params, 'clipGradValue'), max);
/** The 2-norm of all gradients together. */
const gradNorm = (params) => native.gradNorm(tensorsOf(params, 'gradNorm'));

module.exports = { Optimizer, ...kinds, LossScaler, clipGradNorm, clipGradValue, gradNorm };
