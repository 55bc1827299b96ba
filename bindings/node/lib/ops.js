'use strict';
// The records as functions, promises and methods. first_results.json names those whose further results only a gradient
// rule reads: as in C++, the function returns the first one; `ops` has them with all.

const native = require('./native.js');
const first = require('./first_results.json');
const { withSignal, takeSignal } = require('./signal.js');

const records = native.ops();
const ops = Object.create(null);
const functions = Object.create(null);
const asyncFunctions = Object.create(null);

function only(result, name) {
  for (const [key, tensor] of Object.entries(result)) if (key !== name && tensor) tensor.dispose();
  return result[name];
}

/** Makes the functions of a record, and its methods on Tensor where no method of that name is there. */
function add(record) {
  const { name, call, callAsync, callMethod, callInplace } = record;
  const keep = first[name];
  ops[name] = call;
  functions[name] = keep ? named(name, (...args) => only(call(...args), keep)) : call;
  asyncFunctions[name] = named(name, (...args) => {
    const [signal, rest] = takeSignal(args);
    const done = withSignal(signal, (flag) => settled(() => callAsync(flag, ...rest)));
    return keep ? done.then((result) => only(result, keep)) : done;
  });
  const prototype = native.Tensor.prototype;
  const define = (method, value) => {
    if (!(method in prototype)) Object.defineProperty(prototype, method, { value, writable: true, configurable: true });
  };
  if (callMethod) {
    define(name, keep ? named(name, function (...args) { return only(callMethod.apply(this, args), keep); }) : callMethod);
  }
  if (callInplace) define(`${name}_`, callInplace);
}
function named(name, f) {
  Object.defineProperty(f, 'name', { value: name });
  return f;
}
/** A promise that also rejects for what start() throws. */
function settled(start) {
  try {
    return start();
  } catch (error) {
    return Promise.reject(error);
  }
}

for (const record of records) add(record);

/** What the records say; plain data. */
function describe() {
  return native.ops().map(({ name, schema, doc, family, inplace, method, args, results }) =>
    ({ name, schema, doc, family, inplace, method, args, results }));
}

/** Takes up records that were registered since: a plugin's. Returns their names. */
function refresh() {
  const added = [];
  for (const record of native.ops()) {
    if (record.name in ops) continue;
    add(record);
    added.push(record.name);
  }
  return added;
}

module.exports = { ops, functions, asyncFunctions, describe, refresh, settled, named };
