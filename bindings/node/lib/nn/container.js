'use strict';
// Modules of modules.

const { Module } = require('./module.js');
const { ValueError } = require('../errors.js');

function wantModule(m, name) {
  if (!(m instanceof Module)) throw new ValueError(`${name}: needs modules`, name);
  return m;
}
/** Modules, or functions of a tensor, one after the other. */
class Sequential extends Module {
  constructor(...parts) {
    super();
    Object.defineProperty(this, 'parts', { value: [] });
    this.push(...parts);
  }
  push(...parts) {
    for (const part of parts) {
      const i = this.parts.length;
      if (!(part instanceof Module) && typeof part !== 'function') {
        throw new ValueError(`Sequential: part ${i} is neither a module nor a function`, 'Sequential');
      }
      if (part instanceof Module) this[i] = part;
      this.parts.push(part);
    }
    return this;
  }
  forward(x) {
    return this.parts.reduce((y, part) => (part instanceof Module ? part.forward(y) : part(y)), x);
  }
  get length() {
    return this.parts.length;
  }
  [Symbol.iterator]() {
    return this.parts[Symbol.iterator]();
  }
}
class ModuleList extends Module {
  #length = 0;
  constructor(modules = []) {
    super();
    this.push(...modules);
  }
  push(...modules) {
    for (const m of modules) this[this.#length++] = wantModule(m, 'ModuleList');
    return this;
  }
  get length() {
    return this.#length;
  }
  * [Symbol.iterator]() {
    for (let i = 0; i < this.length; ++i) yield this[i];
  }
}
/** Modules by name: get(name), set(name, module), has(name), and all in the order in which they came. */
class ModuleDict extends Module {
  constructor(modules = {}) {
    super();
    for (const [name, m] of Object.entries(modules)) this.set(name, m);
  }
  set(name, m) {
    if (name in ModuleDict.prototype || name === 'training') throw new ValueError(`ModuleDict: a module cannot be named '${name}'`, 'ModuleDict');
    this[name] = wantModule(m, 'ModuleDict');
    return this;
  }
  get(name) {
    return this.has(name) ? this[name] : undefined;
  }
  has(name) {
    return Object.hasOwn(this, name) && this[name] instanceof Module;
  }
  delete(name) {
    return this.has(name) && delete this[name];
  }
  [Symbol.iterator]() {
    return this.namedChildren()[Symbol.iterator]();
  }
}

module.exports = { Sequential, ModuleList, ModuleDict };
