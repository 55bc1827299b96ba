'use strict';
// L-BFGS: a quasi-Newton method over all parameters at once, for problems whose gradients are exact.

const native = require('../native.js');
const { enableGrad } = require('../autograd.js');
const { kindOf, optionsOf, wantOneOf, wantTensor } = require('../arguments.js');
const { Optimizer } = require('./optimizer.js');
const { ValueError } = require('../errors.js');

const DEFAULTS = { lr: 1, maxIter: 20, maxEval: null, toleranceGrad: 1e-7, toleranceChange: 1e-9, historySize: 100, lineSearchFn: null };
/** The engine's, as Optimizer wants a rule. */
class Rule {
  #handle;
  #params;
  #options;
  constructor(kind, groups) {
    if (groups.length !== 1) throw new ValueError('LBFGS: has one group of parameters', 'LBFGS');
    this.#params = groups[0].tensors;
    this.#handle = native.newLbfgs(groups[0].names, this.#params);
    this.#options = this.#taken(optionsOf(kind, groups[0].options, DEFAULTS));
  }
  #taken(options) {
    const { lineSearchFn, maxEval, ...others } = options;
    if (lineSearchFn !== null) wantOneOf(lineSearchFn, ['strong_wolfe'], 'LBFGS', 'lineSearchFn');
    native.lbfgsOptions(this.#handle, { ...others, ...(maxEval === null ? {} : { maxEval }), strongWolfe: lineSearchFn !== null });
    return options;
  }
  options() {
    return { ...this.#options };
  }
  setOptions(group, options) {
    this.#options = this.#taken(optionsOf('LBFGS', options, this.#options));
  }
  step() {
    throw new ValueError('LBFGS: step() wants a function that drops the gradients, computes the loss and its gradients, and returns the loss', 'LBFGS');
  }
  async stepAsync() {
    this.step();
  }
  stepGuarded() {
    this.step();
  }
  resetGuard() {}
  zeroGrad(setToNone) {
    for (const p of this.#params) {
      if (setToNone) p.grad = null;
      else if (p.grad) p.grad.detach().fill_(0);
    }
  }
  get lr() {
    return this.#options.lr;
  }
  set lr(value) {
    this.setOptions(0, { lr: value });
  }
  get stateBytes() {
    return native.lbfgsBytes(this.#handle);
  }
  /** Until one of the limits; what the first call of `closure` returned. */
  iterate(closure) {
    const results = [];
    native.lbfgsStep(this.#handle, () => {
      const loss = enableGrad(closure);
      const value = loss instanceof native.Tensor ? Number(loss.detach().item()) : loss;
      if (typeof value !== 'number') throw new ValueError(`LBFGS: the function must return the loss, got ${kindOf(loss)}`, 'LBFGS');
      if (results.length === 0) results.push(loss);
      return value;
    });
    return results[0];
  }
  state() {
    return native.lbfgsState(this.#handle);
  }
  loadState(state) {
    for (const [path, value] of Object.entries(state)) wantTensor(value, 'loadStateDict', `'${path}'`);
    native.lbfgsLoad(this.#handle, Object.keys(state), Object.values(state));
  }
}

/**
 * L-BFGS (Nocedal 1980; Liu and Nocedal 1989). step(closure) makes up to maxIter iterations, each of one or more calls of the
 * closure, which drops the gradients, computes the loss and its gradients, and returns it. lineSearchFn: null for steps of lr,
 * or 'strong_wolfe'. One group of parameters.
 */
class LBFGS extends Optimizer {
  constructor(params, options) {
    super('LBFGS', params, options, Rule);
  }
}

module.exports = { LBFGS };
