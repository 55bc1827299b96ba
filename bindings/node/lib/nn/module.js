'use strict';
// Modules: parts of a network, with parameters by name. A property that holds a parameter, a buffer or a module belongs
// to the module it is set on, under the property's name.

const native = require('../native.js');
const { noGrad } = require('../autograd.js');
const { ShapeError, ValueError } = require('../errors.js');

const { Tensor } = native;
const parameters = new WeakSet();
const buffers = new WeakSet();

/** Marks a tensor as a module's parameter: trained, and part of its state. */
function parameter(t) {
  t.requiresGrad = true;
  parameters.add(t);
  return t;
}
/** Marks a tensor as part of a module's state that is not trained. */
function buffer(t) {
  buffers.add(t);
  return t;
}

class Module {
  training = true;

  /** Derive and write it. */
  forward() {
    throw new ValueError(`${this.constructor.name}: forward() is not written`, this.constructor.name);
  }
  /** Own modules by name. */
  namedChildren() {
    return Object.entries(this).filter(([, v]) => v instanceof Module);
  }
  #walk(prefix, seen, wanted, out) {
    if (seen.has(this)) return out;
    seen.add(this);
    for (const [key, value] of Object.entries(this)) {
      const name = prefix + key;
      if (value instanceof Tensor && wanted.has(value) && !seen.has(value)) {
        seen.add(value);
        out.push([name, value]);
      } else if (value instanceof Module) {
        value.#walk(`${name}.`, seen, wanted, out);
      }
    }
    return out;
  }
  namedParameters(prefix = '') {
    return this.#walk(prefix, new Set(), parameters, []);
  }
  parameters() {
    return this.namedParameters().map(([, t]) => t);
  }
  namedBuffers(prefix = '') {
    return this.#walk(prefix, new Set(), buffers, []);
  }
  modules() {
    return [this, ...this.namedChildren().flatMap(([, m]) => m.modules())];
  }
  train(on = true) {
    for (const m of this.modules()) m.training = on;
    return this;
  }
  eval() {
    return this.train(false);
  }
  /** Own modules. */
  children() {
    return this.namedChildren().map(([, m]) => m);
  }
  namedModules(prefix = '') {
    return [[prefix, this], ...this.namedChildren().flatMap(([name, m]) => m.namedModules(prefix ? `${prefix}.${name}` : name))];
  }
  buffers() {
    return this.namedBuffers().map(([, t]) => t);
  }
  /** Calls fn with every module, the innermost first. */
  apply(fn) {
    for (const m of this.children()) m.apply(fn);
    fn(this);
    return this;
  }
  zeroGrad() {
    for (const p of this.parameters()) p.grad = null;
  }
  /** Freezes (false) or frees the parameters. */
  requiresGrad(on) {
    for (const p of this.parameters()) p.requiresGrad = on;
    return this;
  }
  numParameters() {
    return this.parameters().reduce((n, p) => n + p.numel, 0);
  }
  /** To another device or floating dtype. Make optimizers afterwards: the parameters are new tensors. */
  to(...where) {
    const moved = new Map();
    for (const m of this.modules()) {
      for (const [key, value] of Object.entries(m)) {
        if (!(value instanceof Tensor) || !(parameters.has(value) || buffers.has(value))) continue;
        if (!moved.has(value)) {
          const isParameter = parameters.has(value);
          const wanted = value.requiresGrad;
          const made = noGrad(() => value.detach().to(...where));
          (isParameter ? parameters : buffers).add(made);
          made.requiresGrad = wanted;
          moved.set(value, made);
        }
        m[key] = moved.get(value);
      }
    }
    return this;
  }
  /** Parameters and buffers by name, sharing their memory. */
  stateDict() {
    const state = {};
    for (const [name, t] of [...this.namedParameters(), ...this.namedBuffers()]) state[name] = t.detach();
    return state;
  }
  /** Copies values in. With {strict}, names that are missing or not expected are an error; then nothing has changed. */
  loadStateDict(state, { strict = true } = {}) {
    const own = [...this.namedParameters(), ...this.namedBuffers()];
    const names = new Set(own.map(([name]) => name));
    const missing = own.map(([name]) => name).filter((name) => !(name in state));
    const unexpected = Object.keys(state).filter((name) => !names.has(name));
    if (strict && missing.length + unexpected.length > 0) {
      throw new ValueError(`loadStateDict: missing [${missing.join(', ')}], not expected [${unexpected.join(', ')}]`, 'loadStateDict');
    }
    for (const [name, t] of own) {
      if (name in state && t.shape.join() !== state[name].shape.join()) {
        throw new ShapeError(`loadStateDict: ${name} is [${t.shape.join(', ')}] here and [${state[name].shape.join(', ')}] there`, 'loadStateDict');
      }
    }
    noGrad(() => {
      for (const [name, t] of own) if (name in state) t.detach().copy_(state[name]);
    });
    return { missing, unexpected };
  }
  toString(indent = '') {
    const inner = this.namedChildren().map(([name, m]) => `${indent}  (${name}): ${m.toString(`${indent}  `)}`);
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
    ...Object.entries(options).filter(([, v]) => v !== undefined).map(([k, v]) => `${k}=${Array.isArray(v) ? `[${v.join(', ')}]` : v}`)].join(', ');
}

module.exports = { Module, parameter, buffer, detailOf };
