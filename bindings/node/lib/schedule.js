'use strict';
// Learning rates over time. A schedule is a function of the step: optimizer.lr = schedule(step). A scheduler holds the
// optimizer and is stepped: rates of all groups, each from the rate that it had.

const native = require('./native.js');
const { ValueError } = require('./errors.js');

/**
 * One of the engine's, 'constant', 'linear', 'cosine', 'wsd' (warm-up, stable, decay) or 'one_cycle': a function of the step.
 * Options: lr, warmup, total, decay, minRatio, pctStart, divFactor, finalDivFactor.
 */
function schedule(kind, options = {}) {
  const handle = native.newSchedule(kind, options);
  return (step) => native.scheduleAt(handle, step);
}
/** Linear warm-up to `lr`, then a cosine down to lr * floor at `steps`: a function of the step. */
const cosine = (lr, steps, { warmup = 0, floor = 0 } = {}) => schedule('cosine', { lr, total: steps, warmup, minRatio: floor });

/** Base: derive and write rate(step, base, group), the learning rate of a group whose rate was `base` at first. */
class LRScheduler {
  #optimizer;
  constructor(optimizer) {
    this.#optimizer = optimizer;
    this.baseLrs = optimizer.paramGroups.map((g) => g.lr);
    this.lastStep = 0;
  }
  get optimizer() {
    return this.#optimizer;
  }
  /** Sets the rates of lastStep; constructors call it when all is known. */
  apply() {
    this.optimizer.paramGroups.forEach((g, i) => { g.lr = this.rate(this.lastStep, this.baseLrs[i], i); });
  }
  rate() {
    throw new ValueError(`${this.constructor.name}: rate() is not written`, this.constructor.name);
  }
  /** After each optimizer step (or epoch): the next rates. With a number: those of that step. */
  step(step = this.lastStep + 1) {
    this.lastStep = step;
    this.apply();
  }
  /** The rates now, one for each group. */
  get lastLr() {
    return this.optimizer.paramGroups.map((g) => g.lr);
  }
  /** Plain data: all but the optimizer and functions. */
  stateDict() {
    return Object.fromEntries(Object.entries(this).filter(([, v]) => ['number', 'string', 'boolean'].includes(typeof v) ||
      (Array.isArray(v) && v.every((x) => typeof x === 'number'))));
  }
  loadStateDict(state) {
    Object.assign(this, state);
    this.apply();
  }
}

/** A class whose rate is f(step, base, options, group); `defaults` are its options, those that are undefined must be given. */
function scheduler(name, defaults, f) {
  return { [name]: class extends LRScheduler {
    constructor(optimizer, options = {}) {
      super(optimizer);
      for (const key of Object.keys(options)) {
        if (!(key in defaults)) throw new ValueError(`${name}: there is no option '${key}'`, name);
      }
      for (const [key, value] of Object.entries({ ...defaults, ...options })) {
        if (value === undefined) throw new ValueError(`${name}: needs ${key}`, name);
        this[key] = value;
      }
      this.apply();
    }
    rate(step, base, group) {
      return f(step, base, this, group);
    }
  } }[name];
}
const half = (part) => (1 + Math.cos(Math.PI * part)) / 2;
const of = (f, group) => (Array.isArray(f) ? f[group] : f);

/** The first rate times lambda(step); an array has one function for each group. */
const LambdaLR = scheduler('LambdaLR', { lambda: undefined }, (step, base, o, group) => base * of(o.lambda, group)(step));
/** Each step's rate is the one before times lambda(step). */
const MultiplicativeLR = scheduler('MultiplicativeLR', { lambda: undefined }, (step, base, o, group) => {
  let lr = base;
  for (let i = 1; i <= step; ++i) lr *= of(o.lambda, group)(i);
  return lr;
});
/** Times gamma every stepSize steps. */
const StepLR = scheduler('StepLR', { stepSize: undefined, gamma: 0.1 }, (step, base, o) => base * o.gamma ** Math.floor(step / o.stepSize));
/** Times gamma at each of the milestones. */
const MultiStepLR = scheduler('MultiStepLR', { milestones: undefined, gamma: 0.1 },
  (step, base, o) => base * o.gamma ** o.milestones.filter((m) => m <= step).length);
/** Times factor for the first totalIters steps. */
const ConstantLR = scheduler('ConstantLR', { factor: 1 / 3, totalIters: 5 }, (step, base, o) => (step < o.totalIters ? base * o.factor : base));
/** From startFactor to endFactor of the rate in a straight line over totalIters steps. */
const LinearLR = scheduler('LinearLR', { startFactor: 1 / 3, endFactor: 1, totalIters: 5 },
  (step, base, o) => base * (o.startFactor + (o.endFactor - o.startFactor) * Math.min(1, step / o.totalIters)));
/** The rate times (1 - step / totalIters)^power. */
const PolynomialLR = scheduler('PolynomialLR', { totalIters: 5, power: 1 }, (step, base, o) => base * (1 - Math.min(1, step / o.totalIters)) ** o.power);
/** Times gamma every step. */
const ExponentialLR = scheduler('ExponentialLR', { gamma: undefined }, (step, base, o) => base * o.gamma ** step);
/** Half a cosine from the rate to etaMin over tMax steps, and back (Loshchilov and Hutter, SGDR, 2017). */
const CosineAnnealingLR = scheduler('CosineAnnealingLR', { tMax: undefined, etaMin: 0 }, (step, base, o) => o.etaMin + (base - o.etaMin) * half(step / o.tMax));
/** Half cosines one after the other, the first of t0 steps, each tMult times as long as the one before. */
const CosineAnnealingWarmRestarts = scheduler('CosineAnnealingWarmRestarts', { t0: undefined, tMult: 1, etaMin: 0 }, (step, base, o) => {
  let length = o.t0;
  let left = step;
  for (; left >= length; length *= o.tMult) left -= length;
  return o.etaMin + (base - o.etaMin) * half(left / length);
});
/**
 * Up from maxLr / divFactor to maxLr over pctStart of the steps, then down to that start over finalDivFactor (Smith and
 * Topin 2018), as half cosines or, with annealStrategy 'linear', straight lines.
 */
const OneCycleLR = scheduler('OneCycleLR', { maxLr: undefined, totalSteps: undefined, pctStart: 0.3, annealStrategy: 'cos', divFactor: 25,
  finalDivFactor: 1e4 }, (step, base, o, group) => {
  const peak = of(o.maxLr, group);
  const start = peak / o.divFactor;
  const top = o.pctStart * o.totalSteps - 1;
  const end = o.totalSteps - 1;
  const between = (a, b, part) => (o.annealStrategy === 'linear' ? a + (b - a) * part : b + (a - b) * half(part));
  return step <= top ? between(start, peak, step / top) : between(peak, start / o.finalDivFactor, Math.min(1, (step - top) / (end - top)));
});

/** Schedulers of one optimizer one after the other, each from the beginning at its milestone. */
class SequentialLR extends LRScheduler {
  #parts;
  constructor(optimizer, { schedulers, milestones } = {}) {
    super(optimizer);
    if (!Array.isArray(schedulers) || !Array.isArray(milestones) || milestones.length !== schedulers.length - 1) {
      throw new ValueError('SequentialLR: needs schedulers, and milestones, one less', 'SequentialLR');
    }
    this.#parts = schedulers;
    this.milestones = [...milestones];
    this.baseLrs = [...schedulers[0].baseLrs];
    for (const part of schedulers) part.baseLrs = this.baseLrs;
    this.apply();
  }
  rate(step, base, group) {
    const which = this.milestones.filter((m) => m <= step).length;
    return this.#parts[which].rate(step - (which ? this.milestones[which - 1] : 0), base, group);
  }
}

/** Times factor where a quantity, given to step(value), has not become better for `patience` steps. */
class ReduceLROnPlateau extends LRScheduler {
  constructor(optimizer, { mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4, thresholdMode = 'rel', cooldown = 0, minLr = 0 } = {}) {
    super(optimizer);
    if (!(factor < 1) || !['min', 'max'].includes(mode) || !['rel', 'abs'].includes(thresholdMode)) {
      throw new ValueError(`ReduceLROnPlateau: mode ${mode}, thresholdMode ${thresholdMode} or factor ${factor} is not possible`, 'ReduceLROnPlateau');
    }
    Object.assign(this, { mode, factor, patience, threshold, thresholdMode, cooldown, minLr });
    this.best = null;
    this.bad = 0;
    this.cooling = 0;
  }
  step(value) {
    const current = typeof value === 'object' && value !== null ? Number(value.item()) : value;
    if (typeof current !== 'number') throw new ValueError('ReduceLROnPlateau: step() wants the quantity that is watched', 'ReduceLROnPlateau');
    ++this.lastStep;
    if (this.better(current)) {
      this.best = current;
      this.bad = 0;
    } else {
      ++this.bad;
    }
    if (this.cooling > 0) {
      --this.cooling;
      this.bad = 0;
    }
    if (this.bad <= this.patience) return;
    for (const group of this.optimizer.paramGroups) group.lr = Math.max(group.lr * this.factor, this.minLr);
    this.cooling = this.cooldown;
    this.bad = 0;
  }
  better(value) {
    if (this.best === null) return !Number.isNaN(value);
    const sign = this.mode === 'min' ? 1 : -1;
    const wanted = this.thresholdMode === 'rel' ? this.best * (1 - sign * this.threshold) : this.best - sign * this.threshold;
    return sign * value < sign * wanted;
  }
  stateDict() {
    return { ...super.stateDict(), best: this.best, lrs: this.lastLr };
  }
  loadStateDict({ lrs, ...state }) {
    Object.assign(this, state);
    this.optimizer.paramGroups.forEach((g, i) => { g.lr = lrs[i]; });
  }
}

module.exports = {
  schedule, cosine, LRScheduler, LambdaLR, MultiplicativeLR, StepLR, MultiStepLR, ConstantLR, LinearLR, PolynomialLR, ExponentialLR,
  CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR, SequentialLR, ReduceLROnPlateau,
};
