'use strict';
// What the functions and classes that are written in JavaScript are given: by position, or by name in an object at the end,
// as the ops take it. What does not fit is a ValueError with the function's name.

const native = require('./native.js');
const { ValueError } = require('./errors.js');

const { Tensor } = native;

/** What a value is, for messages. */
function kindOf(v) {
  if (v === null || v === undefined) return String(v);
  if (v instanceof Tensor) return 'a Tensor';
  if (typeof v === 'string') return `the string '${v.length > 60 ? `${v.slice(0, 60)}...` : v}'`;
  if (typeof v === 'number' || typeof v === 'bigint' || typeof v === 'boolean') return `the ${typeof v} ${v}`;
  if (Array.isArray(v)) return 'an array';
  if (v instanceof Promise) return 'a Promise: await it first';
  return typeof v === 'object' ? 'an object' : `a ${typeof v}`;
}
function wantTensor(v, op, name = 'x') {
  if (!(v instanceof Tensor)) throw new ValueError(`${op}: ${name} must be a Tensor, got ${kindOf(v)}`, op);
  return v;
}
function wantNumber(v, op, name) {
  if (typeof v !== 'number') throw new ValueError(`${op}: ${name} must be a number, got ${kindOf(v)}`, op);
  return v;
}
/** A whole number that is at least `least`. */
function wantCount(v, op, name, least = 1) {
  if (!Number.isSafeInteger(v) || v < least) throw new ValueError(`${op}: ${name} must be a whole number of at least ${least}, got ${kindOf(v)}`, op);
  return v;
}
function wantOneOf(v, allowed, op, name) {
  if (!allowed.includes(v)) {
    throw new ValueError(`${op}: ${name} must be ${allowed.map((a) => `'${a}'`).join(', ')}, got ${kindOf(v)}`, op);
  }
  return v;
}
/** One number for each of n dimensions: a number, or an array of one or n. */
function ints(v, n, op, name) {
  const list = Array.isArray(v) ? v : [v];
  if ((list.length !== 1 && list.length !== n) || !list.every((x) => Number.isSafeInteger(x))) {
    throw new ValueError(`${op}: ${name} wants ${n === 1 ? 'a whole number' : `one or ${n} whole numbers`}, got ` +
      `${Array.isArray(v) ? `[${list.map((x) => (typeof x === 'number' ? x : kindOf(x))).join(', ')}]` : kindOf(v)}`, op);
  }
  return list.length === n ? [...list] : new Array(n).fill(list[0]);
}

function isOptions(v) {
  return v !== null && typeof v === 'object' && !(v instanceof Tensor) && !Array.isArray(v) && !ArrayBuffer.isView(v) && !(v instanceof Promise);
}
/** `defaults` with what is given in their place; other names are refused. */
function optionsOf(op, given, defaults) {
  const made = { ...defaults };
  if (given === undefined || given === null) return made;
  if (!isOptions(given)) throw new ValueError(`${op}: the options must be an object, got ${kindOf(given)}`, op);
  for (const [key, value] of Object.entries(given)) {
    if (!Object.hasOwn(defaults, key)) throw new ValueError(`${op}: there is no option '${key}'`, op);
    if (value !== undefined) made[key] = value;
  }
  return made;
}

const KINDS = { number: 'a number', boolean: 'true or false', string: 'text' };
/**
 * A function body(inputs..., options). `inputs` names what must be given: tensors; 'name?' is a tensor or null, 'name*' anything.
 * `defaults` are the options in their order: by position after the inputs, or by name; where a default is a number, a truth value or
 * text, so is what is given.
 */
function define(name, inputs, defaults, body) {
  const wanted = inputs.map((text) => ({ key: text.replace(/[?*]$/, ''), optional: text.endsWith('?'), any: text.endsWith('*') }));
  const keys = [...wanted.map(({ key }) => key), ...Object.keys(defaults)];
  const f = (...given) => {
    const last = given[given.length - 1];
    const byName = given.length > 0 && isOptions(last) && !wanted[given.length - 1]?.any ? given.pop() : {};
    if (given.length > keys.length) throw new ValueError(`${name}: takes at most ${keys.length} arguments, got ${given.length}`, name);
    const values = Object.fromEntries(given.map((v, i) => [keys[i], v]));
    for (const [key, v] of Object.entries(byName)) {
      if (!keys.includes(key)) throw new ValueError(`${name}: has no argument '${key}'`, name);
      if (values[key] !== undefined) throw new ValueError(`${name}: ${key} was given twice`, name);
      values[key] = v;
    }
    const tensors = wanted.map(({ key, optional, any }) => {
      const v = values[key];
      if (any) {
        if (v === undefined) throw new ValueError(`${name}: needs ${key}`, name);
        return v;
      }
      return optional && (v === undefined || v === null) ? null : wantTensor(v, name, key);
    });
    const options = {};
    for (const [key, usual] of Object.entries(defaults)) {
      const v = values[key];
      options[key] = v === undefined ? usual : v;
      if (v !== undefined && typeof usual !== 'object' && typeof v !== typeof usual) {
        throw new ValueError(`${name}: ${key} must be ${KINDS[typeof usual]}, got ${kindOf(v)}`, name);
      }
    }
    return body(...tensors, options);
  };
  Object.defineProperty(f, 'name', { value: name });
  return f;
}

module.exports = { kindOf, wantTensor, wantNumber, wantCount, wantOneOf, ints, isOptions, optionsOf, define };
