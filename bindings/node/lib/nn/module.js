'use strict';
// Modules: parts of a network, with parameters by name. A property that holds a parameter, a buffer or a module belongs
// to the module it is set on, under the property's name.

const native = require('../native.js');
const { noGrad } = require('../autograd.js');
const { kindOf, optionsOf, wantTensor } = require('../arguments.js');
const { AutogradError, DTypeError, ShapeError, ValueError } = require('../errors.js');
const { addHook } = require('./hooks.js');

const { Tensor } = native;
const FLOATING = ['f32', 'f64', 'f16', 'bf16'];
const DTYPES = new Set([...FLOATING, 'u8', 'i8', 'i16', 'i32', 'i64', 'bool']);
const parameters = new WeakSet();
const buffers = new WeakSet();
// Lazy layers before their first forward().
const waiting = new WeakSet();
// Buffers that are not part of the state.
const passing = new WeakSet();

/** Marks a tensor as a module's parameter: trained, and part of its state. */
function parameter(t, requiresGrad = true) {
  wantTensor(t, 'parameter', 'the value');
  if (!t.isLeaf) throw new AutogradError('parameter: the tensor is computed from others; detach() it', 'parameter');
  t.requiresGrad = requiresGrad;
  parameters.add(t);
  return t;
}
/** Marks a tensor as a module's that is not trained, and unless {persistent: false} as part of its state. */
function buffer(t, options) {
  const { persistent } = optionsOf('buffer', options, { persistent: true });
  buffers.add(wantTensor(t, 'buffer', 'the value'));
  if (!persistent) passing.add(t);
  return t;
}
const shared = (state) => `[${state.shape.join(', ')}]`;
const pathOf = (prefix, name) => (prefix ? `${prefix}.${name}` : name);

class Module {
  training = true;

  /** Derive and write it. */
  forward() {
    throw new ValueError(`${this.constructor.name}: forward() is not written`, this.constructor.name);
  }

  // ---- what it holds

  /** Own modules by name, each once. */
  namedChildren() {
    const seen = new Set();
    return Object.entries(this).filter(([, v]) => v instanceof Module && !seen.has(v) && seen.add(v));
  }
  /** Own modules. */
  children() {
    return this.namedChildren().map(([, m]) => m);
  }
  /** This module and all below it with the paths to them, '' being this one; each once. */
  namedModules(prefix = '') {
    const seen = new Set();
    const walk = (m, path) => (seen.has(m) ? [] : [[path, seen.add(m) && m], ...m.namedChildren().flatMap(([name, child]) => walk(child, pathOf(path, name)))]);
    return walk(this, String(prefix).replace(/\.$/, ''));
  }
  modules() {
    return this.namedModules().map(([, m]) => m);
  }
  #named(wanted, prefix, options, op) {
    const { recurse, removeDuplicate } = optionsOf(op, options, { recurse: true, removeDuplicate: true });
    const seen = new Set();
    const out = [];
    const path = String(prefix ?? '').replace(/\.$/, '');
    for (const [where, m] of recurse ? this.#every(path, removeDuplicate) : [[path, this]]) {
      if (waiting.has(m) && wanted === parameters) {
        throw new ValueError(`${m.constructor.name}: has no parameters before its first forward()`, m.constructor.name);
      }
      for (const [key, value] of Object.entries(m)) {
        if (!(value instanceof Tensor) || !wanted.has(value) || (removeDuplicate && seen.has(value))) continue;
        seen.add(value);
        out.push([pathOf(where, key), value]);
      }
    }
    return out;
  }
  /** All modules with paths; those with several paths each time, unless `once`. */
  #every(path, once) {
    if (once) return this.namedModules(path);
    const walk = (m, at, above) => (above.includes(m) ? [] : [[at, m], ...Object.entries(m).filter(([, v]) => v instanceof Module)
      .flatMap(([name, child]) => walk(child, pathOf(at, name), [...above, m]))]);
    return walk(this, path, []);
  }
  /** [name, parameter] pairs: a module's own before those of its children; each parameter once. */
  namedParameters(prefix = '', options = undefined) {
    return this.#named(parameters, prefix, options, 'namedParameters');
  }
  parameters(options = undefined) {
    return this.namedParameters('', options).map(([, t]) => t);
  }
  namedBuffers(prefix = '', options = undefined) {
    return this.#named(buffers, prefix, options, 'namedBuffers');
  }
  buffers(options = undefined) {
    return this.namedBuffers('', options).map(([, t]) => t);
  }
  /** The module at a path; '' is this one. */
  getSubmodule(path) {
    return (path ? String(path).split('.') : []).reduce((m, name) => {
      if (!Object.hasOwn(m, name) || !(m[name] instanceof Module)) throw new ValueError(`${m.constructor.name}: has no module '${name}'`, 'getSubmodule');
      return m[name];
    }, this);
  }
  #tensorAt(path, wanted, what) {
    const at = String(path).lastIndexOf('.');
    const m = this.getSubmodule(at < 0 ? '' : path.slice(0, at));
    const name = String(path).slice(at + 1);
    if (!Object.hasOwn(m, name) || !wanted.has(m[name])) throw new ValueError(`${m.constructor.name}: '${name}' is no ${what}`, 'Module');
    return m[name];
  }
  getParameter(path) {
    return this.#tensorAt(path, parameters, 'parameter');
  }
  getBuffer(path) {
    return this.#tensorAt(path, buffers, 'buffer');
  }
  #register(name, value, what) {
    if (typeof name !== 'string' || name === '' || name.includes('.')) {
      throw new ValueError(`${this.constructor.name}: a ${what}'s name must be text without dots, got ${kindOf(name)}`, this.constructor.name);
    }
    if (name === 'training' || name in Object.getPrototypeOf(this)) {
      throw new ValueError(`${this.constructor.name}: a ${what} cannot be named '${name}'`, this.constructor.name);
    }
    this[name] = value;
    return this;
  }
  /** The same as setting the property; null holds the place of one that there is not. */
  registerParameter(name, value) {
    return this.#register(name, value === null || parameters.has(value) ? value : parameter(value), 'parameter');
  }
  registerBuffer(name, value, options = undefined) {
    return this.#register(name, value === null ? null : buffer(value, options), 'buffer');
  }
  addModule(name, module) {
    if (module !== null && !(module instanceof Module)) throw new ValueError(`addModule: needs a module, got ${kindOf(module)}`, 'addModule');
    return this.#register(name, module, 'module');
  }
  registerModule(name, module) {
    return this.addModule(name, module);
  }

  // ---- hooks; each registration gives {remove()}

  /** hook(module, args) before each forward(); what it returns, unless undefined or null, takes the arguments' place. */
  registerForwardPreHook(hook, options = undefined) {
    return addHook(this, 'pre', hook, options);
  }
  /** hook(module, args, result) after each forward(); what it returns, unless undefined or null, takes the result's place. */
  registerForwardHook(hook, options = undefined) {
    return addHook(this, 'forward', hook, options);
  }
  /** hook(module, gradOutput) when the gradients of the result are known; it may return others. */
  registerFullBackwardPreHook(hook, options = undefined) {
    return addHook(this, 'backwardPre', hook, options);
  }
  /** hook(module, gradInput, gradOutput) when the gradients of the arguments are known; it may return others for gradInput. */
  registerFullBackwardHook(hook, options = undefined) {
    return addHook(this, 'backward', hook, options);
  }

  // ---- modes and conversions

  train(on = true) {
    if (typeof on !== 'boolean') throw new ValueError(`train: wants true or false, got ${kindOf(on)}`, 'train');
    for (const m of this.modules()) m.training = on;
    return this;
  }
  eval() {
    return this.train(false);
  }
  /** Calls fn with every module, the innermost first. */
  apply(fn) {
    if (typeof fn !== 'function') throw new ValueError(`apply: needs a function, got ${kindOf(fn)}`, 'apply');
    for (const m of this.children()) m.apply(fn);
    fn(this);
    return this;
  }
  /** Drops the gradients, or with {setToNone: false} fills them with zeros. */
  zeroGrad(options = undefined) {
    const { setToNone } = optionsOf('zeroGrad', options, { setToNone: true });
    for (const p of this.parameters()) {
      if (setToNone) p.grad = null;
      else if (p.grad) noGrad(() => p.grad.detach().fill_(0));
    }
  }
  /** Freezes (false) or frees the parameters. */
  requiresGrad(on = true) {
    for (const p of this.parameters()) p.requiresGrad = on;
    return this;
  }
  numParameters() {
    return this.parameters().reduce((n, p) => n + p.numel, 0);
  }
  /**
   * To another device or floating dtype; a dtype converts floating tensors only. Make optimizers afterwards: the parameters are
   * new tensors.
   */
  to(...where) {
    const wanted = {};
    for (const part of where) {
      if (part instanceof Tensor) Object.assign(wanted, { dtype: part.dtype, device: part.device });
      else if (part !== null && typeof part === 'object') Object.assign(wanted, optionsOf('to', part, { dtype: wanted.dtype, device: wanted.device }));
      else if (typeof part === 'string') wanted[DTYPES.has(part) ? 'dtype' : 'device'] = part;
      else if (part !== undefined && part !== null) throw new ValueError(`to: wants a dtype or a device, got ${kindOf(part)}`, 'to');
    }
    const { dtype, device } = wanted;
    if (dtype !== undefined && !FLOATING.includes(dtype)) throw new DTypeError(`to: a module's dtype is a floating one, got ${kindOf(dtype)}`, 'to');
    const convert = (t) => t.to({ device, dtype: FLOATING.includes(t.dtype) ? dtype : undefined });
    // All of it is made before anything is replaced.
    const moved = new Map();
    for (const m of this.modules()) {
      for (const value of Object.values(m)) {
        if (!(value instanceof Tensor) || !(parameters.has(value) || buffers.has(value)) || moved.has(value)) continue;
        const made = noGrad(() => convert(value.detach()));
        for (const set of [parameters, buffers, passing]) if (set.has(value)) set.add(made);
        made.requiresGrad = value.requiresGrad;
        if (value.grad) made.grad = noGrad(() => convert(value.grad.detach()));
        moved.set(value, made);
      }
    }
    for (const m of this.modules()) {
      for (const [key, value] of Object.entries(m)) if (moved.has(value)) m[key] = moved.get(value);
    }
    return this;
  }
  cpu() {
    return this.to('cpu');
  }
  cuda(index = 0) {
    return this.to(`cuda:${index}`);
  }
  float() {
    return this.to('f32');
  }
  double() {
    return this.to('f64');
  }
  half() {
    return this.to('f16');
  }
  bfloat16() {
    return this.to('bf16');
  }
  /** Lets go of the memory of all parameters, buffers and gradients now; any use afterwards is a ValueError. */
  dispose() {
    for (const m of this.modules()) {
      for (const value of Object.values(m)) {
        if (!(value instanceof Tensor) || !(parameters.has(value) || buffers.has(value)) || value.disposed) continue;
        if (parameters.has(value)) {
          value.grad?.dispose();
          value.grad = null;
        }
        value.dispose();
      }
    }
  }
  [Symbol.dispose]() {
    this.dispose();
  }

  // ---- state

  /** Parameters and persistent buffers by name, sharing their memory; what has several names stands under each. */
  stateDict() {
    return Object.fromEntries(this.#own('stateDict').map(([name, t]) => [name, t.detach()]));
  }
  #own(op) {
    const every = { removeDuplicate: false };
    return [...this.#named(parameters, '', every, op), ...this.#named(buffers, '', every, op).filter(([, t]) => !passing.has(t))];
  }
  /**
   * Copies values in, converting dtypes. With {strict}, names that are missing or not expected are an error; then nothing has
   * changed.
   */
  loadStateDict(state, options = undefined) {
    const { strict } = optionsOf('loadStateDict', options, { strict: true });
    if (state === null || typeof state !== 'object' || state instanceof Tensor) {
      throw new ValueError(`loadStateDict: the state must be an object of tensors by name, got ${kindOf(state)}`, 'loadStateDict');
    }
    const own = this.#own('loadStateDict');
    const names = new Set(own.map(([name]) => name));
    const has = (name) => Object.hasOwn(state, name);
    const missing = own.map(([name]) => name).filter((name) => !has(name));
    const unexpected = Object.keys(state).filter((name) => !names.has(name));
    if (strict && missing.length + unexpected.length > 0) {
      throw new ValueError(`loadStateDict: missing [${missing.join(', ')}], not expected [${unexpected.join(', ')}]`, 'loadStateDict');
    }
    for (const [name, t] of own) {
      if (!has(name)) continue;
      wantTensor(state[name], 'loadStateDict', `'${name}'`);
      if (t.shape.join() !== state[name].shape.join()) {
        throw new ShapeError(`loadStateDict: ${name} is ${shared(t)} here and ${shared(state[name])} there`, 'loadStateDict');
      }
    }
    noGrad(() => {
      for (const [name, t] of own) if (has(name)) t.detach().copy_(state[name]);
    });
    return { missing, unexpected };
  }

  // ---- text

  toString(indent = '') {
    const inner = Object.entries(this).filter(([, v]) => v instanceof Module).map(([name, m]) => `${indent}  (${name}): ${m.toString(`${indent}  `)}`);
    const head = `${this.constructor.name}(${this.detail?.() ?? ''}`;
    return inner.length ? `${head}\n${inner.join('\n')}\n${indent})` : `${head})`;
  }
  [Symbol.for('nodejs.util.inspect.custom')]() {
    return this.toString();
  }
}


/** A module's options as PyTorch prints them: '3, 4, bias=false'. */
function detailOf(list, options = {}) {
  return [...list.map((v) => (Array.isArray(v) ? `[${v.join(', ')}]` : String(v))),
    ...Object.entries(options).filter(([, v]) => v !== undefined && v !== null).map(([k, v]) => `${k}=${Array.isArray(v) ? `[${v.join(', ')}]` : v}`)].join(', ');
}
const isParameter = (t) => parameters.has(t);

module.exports = { Module, parameter, buffer, isParameter, waiting, detailOf };
