'use strict';
// Learning rates over time. A schedule is a function of the step: optimizer.lr = schedule(step). A scheduler holds the
// optimizer and is stepped: rates of all groups, each from the rate that it had.

const native = require('../native.js');
const { Optimizer } = require('./optimizer.js');
const { camel, records, recorded } = require('./recorded.js');
const { kindOf, optionsOf, wantNumber, wantOneOf } = require('../arguments.js');
const { ValueError } = require('../errors.js');

/** Any of the engine's schedules by the name of its record, 'cosine' or 'StepLR', from the rate `lr`: a function of the step. */
function schedule(name, { lr = 1e-3, ...options } = {}) {
  wantNumber(lr, 'schedule', 'lr');
  const handle = engineSchedule(name, optionsOfRecord(name, options), 0);
  return (step) => native.lrScheduleAt(handle, step, lr);
}
/** Linear warm-up to `lr`, then a cosine down to lr * floor at `steps`: a function of the step. */
const cosine = (lr, steps, { warmup = 0, floor = 0 } = {}) => schedule('cosine', { lr, total: steps, warmup, minRatio: floor });

/** Base: derive and write rate(step, base, group), the learning rate of a group whose rate was `base` at first. */
class LRScheduler {
  #optimizer;
  constructor(optimizer) {
    if (!(optimizer instanceof Optimizer)) throw new ValueError(`${new.target.name}: needs an optimizer, got ${kindOf(optimizer)}`, new.target.name);
    this.#optimizer = optimizer;
    this.baseLrs = optimizer.paramGroups.map((g) => g.lr);
    this.lastStep = 0;
  }
  get optimizer() {
    return this.#optimizer;
  }
  /** Sets the rates of lastStep, and the momentum where momentum(step) says one; constructors call it when all is known. */
  apply() {
    const momentum = this.momentum?.(this.lastStep);
    this.optimizer.paramGroups.forEach((g, i) => {
      const key = 'momentum' in g.options ? 'momentum' : 'beta1';
      g.set({ lr: this.rate(this.lastStep, this.baseLrs[i], i), ...(momentum === undefined ? {} : { [key]: momentum }) });
    });
  }
  rate() {
    throw new ValueError(`${this.constructor.name}: rate() is not written`, this.constructor.name);
  }
  /** After each optimizer step (or epoch): the next rates. With a number: those of that step. */
  step(step = this.lastStep + 1) {
    if (!(typeof step === 'number' && step >= 0)) throw new ValueError(`${this.constructor.name}: step() wants a number of steps, got ${kindOf(step)}`, this.constructor.name);
    const before = this.lastStep;
    this.lastStep = step;
    try {
      this.apply();
    } catch (error) {
      this.lastStep = before;
      throw error;
    }
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
    if (state === null || typeof state !== 'object') throw new ValueError(`${this.constructor.name}: the state must be an object, got ${kindOf(state)}`, this.constructor.name);
    const own = this.stateDict();
    Object.assign(this, Object.fromEntries(Object.entries(state).filter(([key]) => key in own)));
    this.apply();
  }
}

/** A class whose rate is f(step, base, options, group); `defaults` are its options, those that are undefined must be given. */
function scheduler(name, defaults, f) {
  return { [name]: class extends LRScheduler {
    constructor(optimizer, options) {
      super(optimizer);
      const groups = this.baseLrs.length;
      for (const [key, value] of Object.entries(optionsOf(name, options, defaults))) {
        if (value === undefined) throw new ValueError(`${name}: needs ${key}`, name);
        const list = Array.isArray(value) && key !== 'milestones';
        if (list && value.length !== groups) throw new ValueError(`${name}: ${key} has ${value.length} entries for ${groups} groups`, name);
        for (const v of key === 'milestones' || list ? [value].flat() : [value]) {
          if (key === 'lambda' ? typeof v !== 'function' : typeof v !== 'number') {
            throw new ValueError(`${name}: ${key} must be ${key === 'lambda' ? 'a function' : 'a number'}, got ${kindOf(v)}`, name);
          }
        }
        this[key] = value;
      }
      this.apply();
    }
    rate(step, base, group) {
      return f(step, base, this, group);
    }
  } }[name];
}
/** Of a list, the entry of a group. */
const of = (f, group) => (Array.isArray(f) ? f[group] : f);
/** The options of one of the engine's: [here, there]. */
const optionNames = (name) => (records.get(name)?.options ?? []).map((o) => [camel(o.name), o.name]);
/** One of the engine's with the options that `from` has; what a list says of a group but for milestones. */
function engineSchedule(name, from, group, more = {}) {
  const options = Object.fromEntries(optionNames(name).map(([here, there]) => [there, more[here] ?? from[here]])
    .filter(([, v]) => v !== undefined && v !== null).map(([there, v]) => [there, there === 'milestones' ? v : of(v, group)]));
  return native.newLrSchedule(name, options);
}
/** Options by the names that they have here, checked: of a record. */
const optionsOfRecord = (name, options) => optionsOf(name, options,
  Object.fromEntries((records.get(name)?.options ?? []).map((o) => [camel(o.name), o.required ? undefined : o.default])));
/** Classes whose rates are the engine's. */
const classOf = (name) => scheduler(name, Object.fromEntries(records.get(name).options.map((o) => [camel(o.name), o.required ? undefined : o.default])),
  (step, base, o, group) => native.lrScheduleAt(engineSchedule(name, o, group), step, base));
const classes = Object.fromEntries(recorded.map((name) => [name, classOf(name)]));

/** Any of the engine's schedules, by the name of its record: new ScheduleLR(optimizer, { schedule: 'wsd', total: 1000, decay: 200 }). */
class ScheduleLR extends LRScheduler {
  constructor(optimizer, { schedule: name, ...options } = {}) {
    super(optimizer);
    if (!records.has(name)) throw new ValueError(`ScheduleLR: schedule must be one of ${[...records.keys()].join(', ')}, got ${kindOf(name)}`, 'ScheduleLR');
    Object.assign(this, { schedule: name, ...optionsOfRecord(name, options) });
    this.apply();
  }
  rate(step, base, group) {
    return native.lrScheduleAt(engineSchedule(this.schedule, this, group), step, base);
  }
}
/** The first rate times lambda(step); an array has one function for each group. */
const LambdaLR = scheduler('LambdaLR', { lambda: undefined }, (step, base, o, group) => base * of(o.lambda, group)(step));
/** Each step's rate is the one before times lambda(step). */
const MultiplicativeLR = scheduler('MultiplicativeLR', { lambda: undefined }, (step, base, o, group) => {
  let lr = base;
  for (let i = 1; i <= step; ++i) lr *= of(o.lambda, group)(i);
  return lr;
});
/** One number for each group. */
function perGroup(value, count, name, key) {
  const list = Array.isArray(value) ? value : new Array(count).fill(value);
  if (list.length !== count || !list.every((v) => typeof v === 'number')) throw new ValueError(`${name}: ${key} wants a number, or one for each of the ${count} groups`, name);
  return list;
}
function wantMomentum(optimizer, name) {
  if (!optimizer.paramGroups.every(({ options }) => 'momentum' in options || 'beta1' in options)) {
    throw new ValueError(`${name}: ${optimizer.constructor.name} has neither momentum nor beta1; say {cycleMomentum: false}`, name);
  }
}
/**
 * Up from maxLr / divFactor to maxLr over pctStart of the steps, then down to that start over finalDivFactor (Smith and
 * Topin 2018), as half cosines or, with annealStrategy 'linear', straight lines; with {threePhase} first down to the start as
 * it went up. With cycleMomentum the momentum (or beta1) goes the other way, from maxMomentum to baseMomentum and back.
 */
class OneCycleLR extends LRScheduler {
  #cycles;
  constructor(optimizer, options) {
    super(optimizer);
    const name = 'OneCycleLR';
    const o = optionsOf(name, options, { maxLr: undefined, totalSteps: null, epochs: null, stepsPerEpoch: null, pctStart: 0.3, annealStrategy: 'cos',
      cycleMomentum: true, baseMomentum: 0.85, maxMomentum: 0.95, divFactor: 25, finalDivFactor: 1e4, threePhase: false });
    if (o.maxLr === undefined) throw new ValueError(`${name}: needs maxLr`, name);
    for (const key of ['totalSteps', 'epochs', 'stepsPerEpoch']) if (o[key] !== null) wantNumber(o[key], name, key);
    const total = o.totalSteps ?? o.epochs * o.stepsPerEpoch;
    if (!(total >= 1 && Number.isFinite(total))) throw new ValueError(`${name}: needs totalSteps, or epochs and stepsPerEpoch, of at least 1`, name);
    wantOneOf(o.annealStrategy, ['cos', 'linear'], name, 'annealStrategy');
    for (const key of ['pctStart', 'divFactor', 'finalDivFactor', 'baseMomentum', 'maxMomentum']) wantNumber(o[key], name, key);
    if (o.cycleMomentum) wantMomentum(optimizer, name);
    Object.assign(this, { annealStrategy: o.annealStrategy, totalSteps: total, maxLr: perGroup(o.maxLr, this.baseLrs.length, name, 'maxLr'), pctStart: o.pctStart,
      divFactor: o.divFactor, finalDivFactor: o.finalDivFactor });
    Object.assign(this, { baseMomentum: o.baseMomentum, maxMomentum: o.maxMomentum, threePhase: Number(o.threePhase) });
    this.#cycles = Boolean(o.cycleMomentum);
    this.apply();
  }
  rate(step, base, group) {
    return native.lrScheduleAt(engineSchedule('OneCycleLR', this, group), step, base);
  }
  momentum(step) {
    return this.#cycles ? native.lrScheduleMomentum(engineSchedule('OneCycleLR', this, 0), step) : undefined;
  }
}
/**
 * Up from baseLr to maxLr over stepSizeUp steps and down again over stepSizeDown, for ever (Smith 2017). mode: 'triangular';
 * 'triangular2', each cycle half as high as the one before; 'exp_range', times gamma^step. Or a scaleFn of the cycle's number
 * (from 1) or, with scaleMode 'iterations', of the step. Momentum goes the other way, with cycleMomentum.
 */
class CyclicLR extends LRScheduler {
  #scaleFn;
  constructor(optimizer, options) {
    super(optimizer);
    const name = 'CyclicLR';
    const o = optionsOf(name, options, { baseLr: undefined, maxLr: undefined, stepSizeUp: 2000, stepSizeDown: null, mode: 'triangular', gamma: 1, scaleFn: null,
      scaleMode: 'cycle', cycleMomentum: true, baseMomentum: 0.8, maxMomentum: 0.9 });
    for (const key of ['baseLr', 'maxLr']) if (o[key] === undefined) throw new ValueError(`${name}: needs ${key}`, name);
    if (o.scaleFn === null) wantOneOf(o.mode, ['triangular', 'triangular2', 'exp_range'], name, 'mode');
    else if (typeof o.scaleFn !== 'function') throw new ValueError(`${name}: scaleFn must be a function, got ${kindOf(o.scaleFn)}`, name);
    wantOneOf(o.scaleMode, ['cycle', 'iterations'], name, 'scaleMode');
    const [up, down] = [o.stepSizeUp, o.stepSizeDown ?? o.stepSizeUp];
    if (typeof up !== 'number' || typeof down !== 'number' || !(up > 0 && down > 0)) throw new ValueError(`${name}: stepSizeUp and stepSizeDown must be positive`, name);
    for (const key of ['gamma', 'baseMomentum', 'maxMomentum']) wantNumber(o[key], name, key);
    if (o.cycleMomentum) wantMomentum(optimizer, name);
    this.#scaleFn = o.scaleFn;
    Object.assign(this, { mode: o.scaleFn === null ? o.mode : 'triangular', gamma: o.gamma });
    Object.assign(this, { stepSizeUp: up, stepSizeDown: down, maxLr: perGroup(o.maxLr, this.baseLrs.length, name, 'maxLr'),
      scaleMode: o.scaleFn === null && o.mode === 'exp_range' ? 'iterations' : o.scaleMode, cycleMomentum: Boolean(o.cycleMomentum), baseMomentum: o.baseMomentum,
      maxMomentum: o.maxMomentum });
    this.baseLrs = [...perGroup(o.baseLr, this.baseLrs.length, name, 'baseLr')];
    this.apply();
  }
  #schedule(step, base, group) {
    const cycle = Math.floor(step / (this.stepSizeUp + this.stepSizeDown)) + 1;
    const scale = this.#scaleFn ? { scale: this.#scaleFn(this.scaleMode === 'cycle' ? cycle : step) } : {};
    return engineSchedule('CyclicLR', this, group, { baseLr: base, ...scale });
  }
  rate(step, base, group) {
    return native.lrScheduleAt(this.#schedule(step, base, group), step, base);
  }
  momentum(step) {
    return this.cycleMomentum ? native.lrScheduleMomentum(this.#schedule(step, this.baseLrs[0], 0), step) : undefined;
  }
}
/** From the rate there is to swaLr in annealEpochs steps, by a cosine ('cos') or a line ('linear'). */
class SWALR extends LRScheduler {
  constructor(optimizer, options) {
    super(optimizer);
    const o = optionsOf('SWALR', options, { swaLr: undefined, annealEpochs: 10, annealStrategy: 'cos' });
    if (o.swaLr === undefined) throw new ValueError('SWALR: needs swaLr', 'SWALR');
    wantOneOf(o.annealStrategy, ['cos', 'linear'], 'SWALR', 'annealStrategy');
    if (typeof o.annealEpochs !== 'number' || !(o.annealEpochs >= 0)) throw new ValueError(`SWALR: annealEpochs must not be negative, got ${kindOf(o.annealEpochs)}`, 'SWALR');
    Object.assign(this, { annealEpochs: o.annealEpochs, annealStrategy: o.annealStrategy, swaLr: perGroup(o.swaLr, this.baseLrs.length, 'SWALR', 'swaLr') });
    this.apply();
  }
  rate(step, base, group) {
    return native.lrScheduleAt(engineSchedule('SWALR', this, group), step, base);
  }
}

/** Schedulers of one optimizer one after the other, each from the beginning at its milestone. */
class SequentialLR extends LRScheduler {
  #parts;
  constructor(optimizer, options) {
    super(optimizer);
    const { schedulers, milestones } = optionsOf('SequentialLR', options, { schedulers: undefined, milestones: undefined });
    this.#parts = partsOf(schedulers, optimizer, 'SequentialLR');
    if (!Array.isArray(milestones) || milestones.length !== schedulers.length - 1 || !milestones.every((m) => typeof m === 'number')) {
      throw new ValueError('SequentialLR: needs schedulers, and milestones, one less', 'SequentialLR');
    }
    this.milestones = [...milestones];
    this.baseLrs = [...schedulers[0].baseLrs];
    for (const part of schedulers) if (!(part instanceof CyclicLR)) part.baseLrs = this.baseLrs;
    this.apply();
  }
  #at(step) {
    const which = this.milestones.filter((m) => m <= step).length;
    return [this.#parts[which], step - (which ? this.milestones[which - 1] : 0)];
  }
  rate(step, base, group) {
    const [part, at] = this.#at(step);
    return part.rate(at, part instanceof CyclicLR ? part.baseLrs[group] : base, group);
  }
  momentum(step) {
    const [part, at] = this.#at(step);
    return part.momentum?.(at);
  }
}
function partsOf(schedulers, optimizer, name) {
  if (!Array.isArray(schedulers) || schedulers.length === 0 || !schedulers.every((s) => s instanceof LRScheduler)) {
    throw new ValueError(`${name}: needs schedulers, an array of them`, name);
  }
  for (const part of schedulers) {
    if (part instanceof ReduceLROnPlateau) throw new ValueError(`${name}: ReduceLROnPlateau wants a quantity and cannot be one of several`, name);
    if (part.optimizer !== optimizer) throw new ValueError(`${name}: the schedulers must belong to one optimizer`, name);
  }
  return [...schedulers];
}
/** Schedulers of one optimizer at the same time: each changes the rate that the one before it makes. */
class ChainedScheduler extends LRScheduler {
  #parts;
  constructor(schedulers) {
    super(schedulers?.[0]?.optimizer);
    this.#parts = partsOf(schedulers, this.optimizer, 'ChainedScheduler');
    this.baseLrs = [...schedulers[0].baseLrs];
    this.apply();
  }
  rate(step, base, group) {
    return this.#parts.reduce((lr, part) => part.rate(step, lr, group), base);
  }
  momentum(step) {
    return this.#parts.reduce((m, part) => part.momentum?.(step) ?? m, undefined);
  }
}

/** Times factor where a quantity, given to step(value), has not become better for `patience` steps. */
class ReduceLROnPlateau extends LRScheduler {
  constructor(optimizer, options) {
    super(optimizer);
    const name = 'ReduceLROnPlateau';
    const o = optionsOf(name, options, { mode: 'min', factor: 0.1, patience: 10, threshold: 1e-4, thresholdMode: 'rel', cooldown: 0, minLr: 0, eps: 1e-8 });
    wantOneOf(o.mode, ['min', 'max'], name, 'mode');
    wantOneOf(o.thresholdMode, ['rel', 'abs'], name, 'thresholdMode');
    for (const key of ['factor', 'patience', 'threshold', 'cooldown', 'eps']) wantNumber(o[key], name, key);
    if (!(o.factor < 1)) throw new ValueError(`${name}: factor must be less than 1, got ${o.factor}`, name);
    Object.assign(this, o, { minLr: perGroup(o.minLr, this.baseLrs.length, name, 'minLr') });
    this.best = null;
    this.bad = 0;
    this.cooling = 0;
  }
  step(value) {
    const current = typeof value === 'object' && value !== null ? Number(value.item()) : value;
    if (typeof current !== 'number') throw new ValueError('ReduceLROnPlateau: step() wants the quantity that is watched', 'ReduceLROnPlateau');
    ++this.lastStep;
    const { factor, patience, threshold, cooldown, bad, cooling } = this;
    const known = { largest: this.mode === 'max', relative: this.thresholdMode === 'rel', factor, patience, threshold, cooldown, bad, cooling };
    const now = native.plateauStep(this.best === null ? known : { ...known, best: this.best }, current);
    Object.assign(this, { best: now.best ?? null, bad: now.bad, cooling: now.cooling });
    if (!now.down) return;
    this.optimizer.paramGroups.forEach((group, i) => {
      const { lr } = group;
      const next = native.plateauLowered(lr, this.minLr[i], factor, this.eps);
      if (next !== lr) group.lr = next;
    });
  }
  stateDict() {
    return { ...super.stateDict(), best: this.best, lrs: this.lastLr };
  }
  loadStateDict(given) {
    if (given === null || typeof given !== 'object' || !Array.isArray(given.lrs)) {
      throw new ValueError(`ReduceLROnPlateau: the state must be what stateDict() gave, got ${kindOf(given)}`, 'ReduceLROnPlateau');
    }
    const { lrs, ...state } = given;
    const own = this.stateDict();
    Object.assign(this, Object.fromEntries(Object.entries(state).filter(([key]) => key in own)));
    this.optimizer.paramGroups.forEach((g, i) => { g.lr = lrs[i]; });
  }
}

module.exports = {
  ...classes, schedule, cosine, LRScheduler, ScheduleLR, CyclicLR, ChainedScheduler, SWALR, LambdaLR, MultiplicativeLR, OneCycleLR, SequentialLR, ReduceLROnPlateau,
};
