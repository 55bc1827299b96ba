'use strict';
// Optimizers that are written with tensor operations, parameter by parameter.

const native = require('../native.js');
const T = require('../tensor.js');
const { noGrad } = require('../autograd.js');
const { settled } = require('../ops.js');
const { kindOf, optionsOf, wantTensor } = require('../arguments.js');
const { Optimizer } = require('./optimizer.js');
const { ShapeError, ValueError } = require('../errors.js');

/** A rule over groups, as Optimizer wants it. `of` is the class of the optimizer: defaults, numbers, ranges, update(). */
class Rule {
  #of;
  #kind;
  #groups;
  #state = new Map();
  #diverged = false;
  constructor(of, kind, groups) {
    this.#of = of;
    this.#kind = kind;
    this.#groups = groups.map((g) => ({ ...g, options: this.#checked(optionsOf(kind, g.options, { ...of.defaults, maximize: false })) }));
    const seen = new Set();
    const names = new Set();
    for (const { tensors, names: own } of this.#groups) {
      tensors.forEach((t, i) => {
        if (!t.isLeaf) throw new ValueError(`${kind}: parameter '${own[i]}' is computed from others`, kind);
        if (!['f32', 'f64', 'f16', 'bf16'].includes(t.dtype)) throw new ValueError(`${kind}: parameter '${own[i]}' is no floating tensor but ${t.dtype}`, kind);
        if (seen.has(t) || names.has(own[i])) throw new ValueError(`${kind}: parameter '${own[i]}' is there twice`, kind);
        seen.add(t);
        names.add(own[i]);
      });
    }
  }
  #checked(options) {
    for (const [key, value] of Object.entries(options)) {
      const wanted = typeof (key === 'maximize' ? false : this.#of.defaults[key]);
      if (typeof value !== wanted || Number.isNaN(value)) throw new ValueError(`${this.#kind}: ${key} must be a ${wanted}, got ${kindOf(value)}`, this.#kind);
    }
    const wrong = options.lr < 0 ? `lr must not be negative, got ${options.lr}` : this.#of.complaint?.(options);
    if (wrong) throw new ValueError(`${this.#kind}: ${wrong}`, this.#kind);
    return options;
  }
  options(group) {
    return { ...this.#groups[group].options };
  }
  setOptions(group, options) {
    const g = this.#groups[group];
    g.options = this.#checked(optionsOf(this.#kind, options, g.options));
  }
  #withGrad() {
    return this.#groups.flatMap((g) => g.tensors).filter((p) => p.grad);
  }
  step(maxNorm) {
    let norm = null;
    if (maxNorm !== undefined && maxNorm !== null) {
      norm = native.clipGradNorm(this.#withGrad(), maxNorm);
      if (!Number.isFinite(norm)) return norm;
    }
    noGrad(() => {
      for (const { tensors, options } of this.#groups) {
        for (const p of tensors) {
          if (!p.grad) continue;
          if (!this.#state.has(p)) this.#state.set(p, {});
          const grad = p.grad.detach();
          this.#of.update(p.detach(), options.maximize ? grad.neg() : grad, this.#state.get(p), options);
        }
      }
    });
    return norm;
  }
  /** On the JavaScript thread. */
  stepAsync(maxNorm, signal) {
    return settled(async () => {
      signal?.throwIfAborted();
      return this.step(maxNorm);
    });
  }
  stepGuarded(maxNorm, loss, scaler) {
    if (scaler !== undefined && scaler !== null) throw new ValueError(`stepGuarded: ${this.#kind} takes no scaler`, 'stepGuarded');
    const value = loss === undefined || loss === null ? 0 : Number(wantTensor(loss, 'stepGuarded', 'loss').detach().item());
    const norm = native.gradNorm(this.#withGrad());
    this.#diverged ||= !Number.isFinite(value) || !Number.isFinite(norm);
    if (!this.#diverged) this.step(maxNorm);
    return { loss: value, norm, scale: 1, outcome: this.#diverged ? 'diverged' : 'updated' };
  }
  resetGuard() {
    this.#diverged = false;
  }
  zeroGrad(setToNone) {
    for (const p of this.#withGrad()) {
      if (setToNone) p.grad = null;
      else p.grad.detach().fill_(0);
    }
  }
  get lr() {
    return this.#groups[0].options.lr;
  }
  set lr(value) {
    this.#groups.forEach((g, i) => this.setOptions(i, { lr: value }));
  }
  #named() {
    return this.#groups.flatMap((g) => g.tensors.map((t, i) => [g.names[i], t]));
  }
  state() {
    const made = {};
    for (const [name, p] of this.#named()) {
      for (const [key, v] of Object.entries(this.#state.get(p) ?? {})) made[`${name}.${key}`] = typeof v === 'number' ? T.tensor(v, { dtype: 'f64' }) : v;
    }
    return made;
  }
  loadState(state) {
    const own = new Map(this.#named());
    const loaded = new Map();
    for (const [path, value] of Object.entries(state)) {
      const at = path.lastIndexOf('.');
      const p = own.get(path.slice(0, at));
      const key = path.slice(at + 1);
      if (!p) throw new ValueError(`loadStateDict: there is no parameter for '${path}'`, 'loadStateDict');
      wantTensor(value, 'loadStateDict', `'${path}'`);
      const isNumber = this.#of.numbers.includes(key);
      if (isNumber ? value.numel !== 1 : value.shape.join() !== p.shape.join()) {
        throw new ShapeError(`loadStateDict: '${path}' is [${value.shape.join(', ')}], which does not fit`, 'loadStateDict');
      }
      if (!loaded.has(p)) loaded.set(p, {});
      loaded.get(p)[key] = isNumber ? Number(value.item()) : noGrad(() => value.detach().clone().to(p.device));
    }
    this.#state = loaded;
  }
  get stateBytes() {
    return this.#named().reduce((n, [, p]) => n + p.nbytes * this.#of.stateTensors, 0);
  }
}

/**
 * Derive to write an optimizer of one's own:
 *   class Signs extends st.optim.RuleOptimizer {
 *     static defaults = { lr: 0.01 };
 *     static update(p, grad, state, { lr }) { p.sub_(st.sign(grad).mul(lr)); }
 *   }
 * update() writes to p and keeps what it needs in `state`: tensors of p's shape, and numbers, which `numbers` names.
 * stateTensors is how many tensors there are; complaint(options) may say what is wrong with them.
 */
class RuleOptimizer extends Optimizer {
  static defaults = { lr: 0.001 };
  static numbers = [];
  static stateTensors = 0;
  constructor(params, options) {
    const of = new.target;
    super(of.name, params, options, class extends Rule {
      constructor(kind, groups) {
        super(of, kind, groups);
      }
    });
  }
  static update() {
    throw new ValueError(`${this.name}: update() is not written`, this.name);
  }
}

module.exports = { RuleOptimizer };
