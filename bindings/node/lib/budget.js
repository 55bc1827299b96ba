'use strict';
// memoryBudget(): a training loop within so many bytes of each tier.

const v8 = require('node:v8');
const vm = require('node:vm');
const native = require('./native.js');
const { Module } = require('./nn/module.js');
const { Sequential, ModuleList, ModuleDict } = require('./nn/container.js');
const { Optimizer } = require('./optim/optimizer.js');
const { rules, budgets } = require('./optim/within.js');
const { kindOf, optionsOf } = require('./arguments.js');
const { MemoryError, ValueError } = require('./errors.js');

const NAME = 'memoryBudget';
const KEYS = { device: '', host: '', disk: '', activations: 'auto', recompute: 'auto', state: 'auto', update: 'auto', parameters: 'auto' };

function textOf(key, value) {
  if (key === 'disk' && Array.isArray(value)) return value.map((v) => textOf(key, v)).join(':');
  if (typeof value === 'string') return value;
  const bytes = (key === 'device' || key === 'host') && (typeof value === 'bigint' || Number.isSafeInteger(value));
  if (!bytes) throw new ValueError(`${NAME}: ${key} must be a ${key === 'device' || key === 'host' ? 'string or whole number' : 'string'}, got ${kindOf(value)}`, NAME);
  return String(value);
}
const kindOfModule = (m) => (m instanceof Sequential ? 'Sequential' : m instanceof ModuleList || m instanceof ModuleDict ? 'ModuleList' : m.constructor.name);

let collecting;
/** A function that collects garbage now. */
function collector() {
  if (!collecting) {
    v8.setFlagsFromString('--expose-gc');
    collecting = vm.runInNewContext('gc');
  }
  return collecting;
}
let finish;
/** What memoryBudget() hands to its function; afterwards it says what it said last, and holds nothing of the loop. */
class MemoryBudget {
  #handle;
  #last = null;
  constructor(handle) {
    this.#handle = handle;
  }
  #state() {
    return this.#last ?? native.budgetState(this.#handle);
  }
  static {
    finish = (budget) => {
      const handle = budget.#handle;
      budget.#last = native.budgetState(handle);
      budget.#handle = null;
      native.budgetEnd(handle);
      return budget.#last;
    };
  }
  /** Whether the steps go by a plan yet: from the third on. */
  get planned() {
    return this.#state().planned;
  }
  /** What is where now, and the forecast. */
  get plan() {
    return this.#state().plan;
  }
  /** Most bytes of the device's tensors at once so far. */
  get peak() {
    return this.#state().peak;
  }
  /** The plan as lines, and what was used and moved so far. */
  describe() {
    return this.#state().text;
  }
}
/** update(), which ends a step. */
function step(handle, update) {
  native.budgetBefore(handle);
  let result;
  try {
    result = update();
  } catch (error) {
    native.budgetFailed(handle);
    throw error;
  }
  native.budgetAfter(handle);
  return result;
}

/**
 * fn(budget), in which a loop over `model` and `optimizer` keeps to so many bytes of each tier: `device` (of a card's memory; of
 * RAM where the model is on the CPU), `host` (of the host's beside a card), numbers or texts ("7.2GiB"), and folders on a `disk`.
 * Each optimizer.step() ends a step; losses, gradients and weights have the bits of the loop without. The first two steps run with
 * as much elsewhere as can be, the second is recorded, and what is where from the third on is planned from that, unless
 * `activations` ('keep', 'host', 'disk'), `recompute` ('none', 'blocks'), `state` and `parameters` ('device', 'host', 'disk') and
 * `update` ('device', 'cpu', 'split') say. It ends with fn, or with the promise that fn returns; weights and state then return
 * to the device where there is room. A request past it is a MemoryError, which names a budget to try.
 */
function memoryBudget(model, optimizer, options, fn) {
  if (!(model instanceof Module)) throw new ValueError(`${NAME}: the model must be a Module, got ${kindOf(model)}`, NAME);
  if (!(optimizer instanceof Optimizer)) throw new ValueError(`${NAME}: the optimizer must be one of st.optim, got ${kindOf(optimizer)}`, NAME);
  if (typeof fn !== 'function') throw new ValueError(`${NAME}: needs a function, got ${kindOf(fn)}`, NAME);
  const keys = Object.fromEntries(Object.entries(optionsOf(NAME, options, KEYS)).map(([key, v]) => [key, textOf(key, v)]));
  const rule = rules.get(optimizer);
  if (rule.iterate) throw new ValueError(`${NAME}: ${optimizer.constructor.name} computes losses within its step(), so that a step has no end before it`, NAME);
  if (budgets.has(optimizer)) throw new ValueError(`${NAME}: the optimizer is within one already`, NAME);
  const collect = collector();
  collect();  // what was dropped before the loop is not to count
  const modules = model.namedModules();
  const parameters = model.namedParameters();
  const handle = native.budgetBegin(modules.map(([path]) => path), modules.map(([, m]) => kindOfModule(m)),
    parameters.map(([name]) => name), parameters.map(([, t]) => t), rule.engine ?? null, keys, collect);
  budgets.set(optimizer, { step: (update) => step(handle, update) });
  const budget = new MemoryBudget(handle);
  const end = () => {
    budgets.delete(optimizer);
    return finish(budget);
  };
  const fail = (error) => {
    let advice = '';
    try {
      ({ advice } = end());
    } catch {
      throw error;  // what ended the loop is the greater news
    }
    if (advice === '' || !(error instanceof MemoryError)) throw error;
    throw Object.assign(new MemoryError(`${error.message}\n${advice}`, error.op), { cause: error });
  };
  let result;
  try {
    result = fn(budget);
  } catch (error) {
    return fail(error);
  }
  if (typeof result?.then !== 'function') {
    end();
    return result;
  }
  return result.then((value) => {
    end();
    return value;
  }, fail);
}

module.exports = { memoryBudget };
