'use strict';
// L-BFGS: a quasi-Newton method over all parameters at once, for problems whose gradients are exact.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const native = require('../native.js');
const { enableGrad, noGrad } = require('../autograd.js');
const { kindOf, optionsOf, wantOneOf, wantTensor } = require('../arguments.js');
const { Optimizer } = require('./optimizer.js');
const { ShapeError, ValueError } = require('../errors.js');

const number = (t) => Number(t.item());
const dot = (a, b) => number(F.sum(F.mul(a, b)));
const largest = (t) => number(F.amax(F.abs(t)));

/** The minimum of the cubic through two points with their slopes (Nocedal and Wright, (3.59)), kept in [low, high]. */
function cubicMinimum(a, b, low, high) {
  const d1 = a.slope + b.slope - (3 * (a.loss - b.loss)) / (a.t - b.t);
  const square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const d2 = Math.sign(b.t - a.t) * Math.sqrt(square);
  const bottom = b.slope - a.slope + 2 * d2;
  const t = bottom ? b.t - ((b.t - a.t) * (b.slope + d2 - d1)) / bottom : low;
  return Math.min(Math.max(t, low), high);
}
/**
 * A step that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6) and the calls of `at`; the best
 * one found where there is none in 25 calls.
 */
function strongWolfe(at, start, first, tolerance) {
  const [c1, c2, most] = [1e-4, 0.9, 25];
  const tooHigh = (p) => !(p.loss <= start.loss + c1 * p.t * start.slope);
  const flat = (p) => Math.abs(p.slope) <= -c2 * start.slope;
  let last = start;
  let now = at(first);
  let calls = 1;
  let low;
  let high;
  for (;;) {
    if (tooHigh(now) || (calls > 1 && now.loss >= last.loss)) {
      [low, high] = [last, now];
      break;
    }
    if (flat(now) || calls >= most) return [now, calls];
    if (now.slope >= 0) {
      [low, high] = [now, last];
      break;
    }
    const t = cubicMinimum(last, now, now.t + 0.01 * (now.t - last.t), now.t * 10);
    last = now;
    now = at(t);
    ++calls;
  }
  // The minimum lies between `low`, the better end, and `high`.
  while (calls < most && Math.abs(high.t - low.t) * -start.slope > tolerance) {
    const left = Math.min(low.t, high.t);
    const right = Math.max(low.t, high.t);
    const margin = 0.1 * (right - left);
    const finite = Number.isFinite(high.loss) && Number.isFinite(high.slope);
    now = at(finite ? cubicMinimum(low, high, left + margin, right - margin) : (left + right) / 2);
    ++calls;
    if (tooHigh(now) || now.loss >= low.loss) {
      high = now;
    } else {
      if (flat(now)) return [now, calls];
      if (now.slope * (high.t - low.t) >= 0) high = low;
      low = now;
    }
  }
  return [low, calls];
}

const DEFAULTS = { lr: 1, maxIter: 20, maxEval: null, toleranceGrad: 1e-7, toleranceChange: 1e-9, historySize: 100, lineSearchFn: null };
class Rule {
  #params;
  #options;
  #dtype;
  #history = { steps: [], changes: [] };
  constructor(kind, groups) {
    if (groups.length !== 1) throw new ValueError('LBFGS: has one group of parameters', 'LBFGS');
    this.#params = groups[0].tensors;
    for (const p of this.#params) {
      if (!p.isLeaf || !['f32', 'f64', 'f16', 'bf16'].includes(p.dtype)) throw new ValueError('LBFGS: the parameters must be floating leaves', 'LBFGS');
    }
    this.#options = this.#checked(optionsOf(kind, groups[0].options, DEFAULTS));
    this.#dtype = this.#params.some((p) => p.dtype === 'f64') ? 'f64' : 'f32';
  }
  #checked(options) {
    for (const [key, v] of Object.entries(options)) {
      if (key === 'lineSearchFn') {
        if (v !== null) wantOneOf(v, ['strong_wolfe'], 'LBFGS', key);
      } else if (!(key === 'maxEval' && v === null) && !(typeof v === 'number' && v >= 0)) {
        throw new ValueError(`LBFGS: ${key} must be a number that is not negative, got ${kindOf(v)}`, 'LBFGS');
      }
    }
    return options;
  }
  options() {
    return { ...this.#options };
  }
  setOptions(group, options) {
    this.#options = this.#checked(optionsOf('LBFGS', options, this.#options));
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
    const size = this.#dtype === 'f64' ? 8 : 4;
    return this.#params.reduce((n, p) => n + p.numel, 0) * size * (2 * this.#options.historySize + 2);
  }

  // ---- all parameters as one vector

  #grad() {
    return F.cat(this.#params.map((p) => (p.grad ? p.grad.detach().reshape([p.numel]).to(this.#dtype) : T.zeros([p.numel], { dtype: this.#dtype, device: p.device }))), 0);
  }
  #values() {
    return this.#params.map((p) => p.detach().clone());
  }
  /** The parameters at start + t d. */
  #move(start, t, d) {
    let offset = 0;
    this.#params.forEach((p, i) => {
      p.detach().copy_(F.add(start[i].to(this.#dtype), F.mul(d.narrow(0, offset, p.numel).reshape(p.shape), t)));
      offset += p.numel;
    });
  }

  // ---- iterations

  /** Until one of the limits; what the first call of `closure` returned. */
  iterate(closure) {
    const compute = () => {
      const loss = enableGrad(closure);
      const value = loss instanceof native.Tensor ? number(loss.detach()) : loss;
      if (typeof value !== 'number') throw new ValueError(`LBFGS: the function must return the loss, got ${kindOf(loss)}`, 'LBFGS');
      return [loss, value];
    };
    return noGrad(() => this.#iterate(compute));
  }
  #iterate(compute) {
    const o = this.#options;
    const h = this.#history;
    const maxEval = o.maxEval ?? Math.floor((o.maxIter * 5) / 4);
    const [first, value] = compute();
    let loss = value;
    h.func_evals = (h.func_evals ?? 0) + 1;
    let calls = 1;
    let grad = this.#grad();
    if (largest(grad) <= o.toleranceGrad) return first;
    for (let iteration = 1; iteration <= o.maxIter; ++iteration) {
      h.n_iter = (h.n_iter ?? 0) + 1;
      const d = this.#direction(grad);
      h.prev_grad = grad;
      const before = loss;
      let t = o.lr * (h.n_iter === 1 ? Math.min(1, 1 / number(F.sum(F.abs(grad)))) : 1);
      const slope = dot(grad, d);
      h.d = d;
      h.t = t;
      if (slope > -o.toleranceChange) break;
      const values = this.#values();
      let evaluations = 0;
      if (o.lineSearchFn) {
        let found;
        [found, evaluations] = strongWolfe((step) => {
          this.#move(values, step, d);
          const [, there] = compute();
          const g = this.#grad();
          return { t: step, loss: there, grad: g, slope: dot(g, d) };
        }, { t: 0, loss, grad, slope }, t, o.toleranceChange);
        this.#move(values, found.t, d);
        ({ t, loss, grad } = found);
      } else {
        this.#move(values, t, d);
        if (iteration !== o.maxIter) {
          [, loss] = compute();
          evaluations = 1;
          grad = this.#grad();
        }
      }
      h.t = t;
      calls += evaluations;
      h.func_evals += evaluations;
      if (calls >= maxEval || largest(grad) <= o.toleranceGrad) break;
      if (largest(d) * Math.abs(t) <= o.toleranceChange || Math.abs(loss - before) < o.toleranceChange) break;
    }
    return first;
  }
  /** Minus the gradient times the approximation of the inverse Hessian: the two-loop recursion. */
  #direction(grad) {
    const h = this.#history;
    if (!h.prev_grad) {
      h.scale = 1;
      return F.neg(grad);
    }
    const step = F.mul(h.d, h.t);
    const change = F.sub(grad, h.prev_grad);
    const curvature = dot(change, step);
    if (curvature > 1e-10) {
      h.steps.push(step);
      h.changes.push(change);
      for (const list of [h.steps, h.changes]) list.splice(0, Math.max(0, list.length - this.#options.historySize));
      h.scale = curvature / dot(change, change);
    }
    let q = F.neg(grad);
    const pairs = h.steps.map((s, i) => [s, h.changes[i], 1 / dot(s, h.changes[i])]);
    const weights = [];
    for (const [s, y, inverse] of [...pairs].reverse()) {
      weights.push(dot(s, q) * inverse);
      q = F.sub(q, F.mul(y, weights[weights.length - 1]));
    }
    q = F.mul(q, h.scale);
    for (const [s, y, inverse] of pairs) q = F.add(q, F.mul(s, weights.pop() - dot(y, q) * inverse));
    return q;
  }

  // ---- state: numbers as tensors, lists with numbers after their names

  state() {
    const made = {};
    for (const [key, v] of Object.entries(this.#history)) {
      if (Array.isArray(v)) v.forEach((t, i) => { made[`${key}.${i}`] = t; });
      else made[key] = typeof v === 'number' ? T.tensor(v, { dtype: 'f64' }) : v;
    }
    return made;
  }
  loadState(state) {
    const size = this.#params.reduce((n, p) => n + p.numel, 0);
    const loaded = { steps: [], changes: [] };
    for (const [path, value] of Object.entries(state)) {
      wantTensor(value, 'loadStateDict', `'${path}'`);
      const [key, index] = path.split('.');
      const isNumber = ['func_evals', 'n_iter', 't', 'scale'].includes(key);
      const isList = Object.hasOwn(loaded, key) && Array.isArray(loaded[key]);
      if (!isNumber && !isList && key !== 'd' && key !== 'prev_grad') throw new ValueError(`loadStateDict: LBFGS has no '${path}'`, 'loadStateDict');
      if (isNumber ? value.numel !== 1 : value.ndim !== 1 || value.numel !== size) {
        throw new ShapeError(`loadStateDict: '${path}' is [${value.shape.join(', ')}], which does not fit`, 'loadStateDict');
      }
      if (isList && !(Number(index) >= 0 && Number(index) < 1e6)) throw new ValueError(`loadStateDict: LBFGS has no '${path}'`, 'loadStateDict');
      if (isList) loaded[key][Number(index)] = value.detach().clone();
      else loaded[key] = isNumber ? Number(value.item()) : value.detach().clone();
    }
    if (loaded.steps.length !== loaded.changes.length || [...loaded.steps, ...loaded.changes].includes(undefined)) {
      throw new ValueError('loadStateDict: steps and changes of LBFGS do not correspond', 'loadStateDict');
    }
    this.#history = loaded;
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
