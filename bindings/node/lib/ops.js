'use strict';
// The records as functions, promises and methods. `ops` has each with all of its results, and in `ops.internal` those that only other
// ops and gradient rules call; the functions give what callers see of them.

const native = require('./native.js');
const { withSignal, takeSignal } = require('./signal.js');

const ops = Object.create(null);
Object.defineProperty(ops, 'internal', { value: Object.create(null) });
const functions = Object.create(null);
const asyncFunctions = Object.create(null);

/** Makes the functions of a record, and its methods on Tensor where no method of that name is there. */
function add({ name, aliases, internal, call, callShown, callAsync, callMethod, callInplace }) {
  if (internal) {
    ops.internal[name] = call;
    return;
  }
  ops[name] = call;
  const prototype = native.Tensor.prototype;
  const define = (method, value) => {
    if (value && !(method in prototype)) Object.defineProperty(prototype, method, { value, writable: true, configurable: true });
  };
  for (const each of [name, ...aliases]) {
    functions[each] = callShown ?? call;
    asyncFunctions[each] = named(each, (...args) => {
      const [signal, rest] = takeSignal(args);
      return withSignal(signal, (flag) => settled(() => callAsync(flag, ...rest)));
    });
    define(each, callMethod);
    define(`${each}_`, callInplace);
  }
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

for (const record of native.ops()) add(record);

/** What the records say; plain data: docs/design/bindings.md. */
function describe() {
  const { ops: described } = JSON.parse(native.describeOps());
  return described.map((op) => ({ ...op, method: op.args[0]?.kind === 'Tensor',
    args: op.args.map((a) => ({ ...a, hasDefault: 'default' in a })) }));
}

/** Takes up records that were registered since: a plugin's. Returns their names. */
function refresh() {
  const added = [];
  for (const record of native.ops()) {
    if (record.name in ops || record.name in ops.internal) continue;
    add(record);
    added.push(record.name);
  }
  return added;
}

module.exports = { ops, functions, asyncFunctions, describe, refresh, settled, named };
