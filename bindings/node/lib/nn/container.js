'use strict';
// Modules of modules, and of parameters.

const { Module, isParameter, parameter, detailOf } = require('./module.js');
const { kindOf } = require('../arguments.js');
const { IndexError, ValueError } = require('../errors.js');

function wantModule(m, name) {
  if (!(m instanceof Module)) throw new ValueError(`${name}: needs modules, got ${kindOf(m)}`, name);
  return m;
}
function listOf(values, name) {
  if (values === null || values === undefined || typeof values[Symbol.iterator] !== 'function' || typeof values === 'string') {
    throw new ValueError(`${name}: needs an array, got ${kindOf(values)}`, name);
  }
  return [...values];
}
const asParameter = (t) => (isParameter(t) ? t : parameter(t));
/** A place in a list of n; negative ones count from the end. */
function placeOf(i, n, name) {
  if (!Number.isSafeInteger(i) || i < -n || i >= n) throw new IndexError(`${name}: there is no place ${kindOf(i)} in a list of ${n}`, name);
  return i < 0 ? i + n : i;
}

/** What all of a list are; own elements stand as properties 0, 1, ... */
class List extends Module {
  #items = [];
  #want;
  constructor(want, shows) {
    super();
    this.#want = want;
    this.#shows = shows;
  }
  #shows;
  // Properties for those that belong to the module.
  #set(items) {
    this.#items = this.#now();
    const made = items.map((item) => this.#want(item, this.constructor.name));
    for (let i = 0; i < Math.max(made.length, this.#items.length); ++i) {
      delete this[i];
      if (i < made.length && this.#shows(made[i])) this[i] = made[i];
    }
    this.#items = made;
    return this;
  }
  /** The elements; what was put in a property's place since counts. */
  #now() {
    return this.#items.map((item, i) => (this.#shows(item) && Object.hasOwn(this, i) ? this[i] : item));
  }
  get length() {
    return this.#items.length;
  }
  [Symbol.iterator]() {
    return this.#now()[Symbol.iterator]();
  }
  /** The element at a place; negative ones count from the end. */
  at(i) {
    return this.#now()[placeOf(i, this.length, this.constructor.name)];
  }
  push(...items) {
    return this.#set([...this.#now(), ...items]);
  }
  append(item) {
    return this.push(item);
  }
  extend(items) {
    return this.push(...listOf(items, this.constructor.name));
  }
  insert(i, item) {
    const at = i === this.length ? i : placeOf(i, this.length, this.constructor.name);
    return this.#set([...this.#now().slice(0, at), item, ...this.#now().slice(at)]);
  }
  /** Puts an element in a place. */
  set(i, item) {
    const at = placeOf(i, this.length, this.constructor.name);
    return this.#set(this.#now().map((old, j) => (j === at ? item : old)));
  }
  /** Takes the element at a place out, the last one where none is named; those after it move up. */
  pop(i = -1) {
    const at = placeOf(i, this.length, this.constructor.name);
    const items = this.#now();
    const item = items[at];
    this.#set(items.filter((_, j) => j !== at));
    return item;
  }
}

/** Modules, or functions of a tensor, one after the other. */
class Sequential extends List {
  constructor(...parts) {
    super((part, name) => {
      if (!(part instanceof Module) && typeof part !== 'function') throw new ValueError(`${name}: a part is neither a module nor a function: ${kindOf(part)}`, name);
      return part;
    }, (part) => part instanceof Module);
    this.push(...parts);
  }
  /** All parts in order. */
  get parts() {
    return [...this];
  }
  forward(x) {
    let y = x;
    for (const part of this) y = part instanceof Module ? part.forward(y) : part(y);
    return y;
  }
}
class ModuleList extends List {
  constructor(modules = []) {
    super(wantModule, () => true);
    this.extend(modules);
  }
}
/** Parameters in order; tensors become parameters. */
class ParameterList extends List {
  constructor(values = []) {
    super(asParameter, () => true);
    this.extend(values);
  }
  detail() {
    return detailOf([...this].map((p) => `${p.dtype} [${p.shape.join(', ')}]`));
  }
}

/** What all of a dictionary have: elements by name, in the order in which they came. */
class Dict extends Module {
  #want;
  #names = new Set();
  constructor(want) {
    super();
    this.#want = want;
  }
  set(name, value) {
    const own = this.constructor.name;
    if (typeof name !== 'string' || name === '' || name.includes('.')) throw new ValueError(`${own}: a name must be text without dots, got ${kindOf(name)}`, own);
    if (name in Object.getPrototypeOf(this) || name === 'training') throw new ValueError(`${own}: nothing can be named '${name}' there`, own);
    this[name] = this.#want(value, own);
    this.#names.add(name);
    return this;
  }
  get(name) {
    return this.has(name) ? this[name] : undefined;
  }
  has(name) {
    return this.#names.has(name);
  }
  delete(name) {
    return this.#names.delete(name) && delete this[name];
  }
  /** Takes an element out. */
  pop(name) {
    if (!this.has(name)) throw new ValueError(`${this.constructor.name}: there is no '${String(name)}'`, this.constructor.name);
    const value = this[name];
    this.delete(name);
    return value;
  }
  clear() {
    for (const name of this.keys()) this.delete(name);
  }
  /** Adds or replaces elements: an object of them, [name, element] pairs, or another dictionary. */
  update(values) {
    if (values === null || typeof values !== 'object') throw new ValueError(`${this.constructor.name}: needs an object, got ${kindOf(values)}`, this.constructor.name);
    for (const pair of typeof values[Symbol.iterator] === 'function' ? values : Object.entries(values)) {
      if (!Array.isArray(pair)) throw new ValueError(`${this.constructor.name}: needs [name, element] pairs, got ${kindOf(pair)}`, this.constructor.name);
      this.set(...pair);
    }
    return this;
  }
  get size() {
    return this.#names.size;
  }
  keys() {
    return [...this.#names];
  }
  values() {
    return this.keys().map((name) => this[name]);
  }
  entries() {
    return this.keys().map((name) => [name, this[name]]);
  }
  [Symbol.iterator]() {
    return this.entries()[Symbol.iterator]();
  }
}
/** Modules by name: get(name), set(name, module), has(name), and all in the order in which they came. */
class ModuleDict extends Dict {
  constructor(modules = {}) {
    super(wantModule);
    this.update(modules);
  }
}
/** Parameters by name; tensors become parameters. */
class ParameterDict extends Dict {
  constructor(values = {}) {
    super(asParameter);
    this.update(values);
  }
  detail() {
    return detailOf(this.entries().map(([name, p]) => `${name}: ${p.dtype} [${p.shape.join(', ')}]`));
  }
}

module.exports = { Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict };
