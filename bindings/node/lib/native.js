'use strict';
// Finds and loads the addon: $STRATA_NODE_ADDON, a copy beside this file, or the newest of the repository's builds.

const fs = require('node:fs');
const path = require('node:path');
const { StrataError } = require('./errors.js');

function candidates() {
  if (process.env.STRATA_NODE_ADDON) return [path.resolve(process.env.STRATA_NODE_ADDON)];
  const found = [path.join(__dirname, 'strata.node')];
  const builds = path.join(__dirname, '..', '..', '..', 'build');
  const made = [];
  for (const name of fs.existsSync(builds) ? fs.readdirSync(builds) : []) {
    // A build with sanitizers needs their runtime loaded before Node: only where it is named.
    if (/san|fuzz/.test(name)) continue;
    const file = path.join(builds, name, 'bindings', 'node', 'strata.node');
    if (fs.existsSync(file)) made.push({ file, time: fs.statSync(file).mtimeMs });
  }
  made.sort((a, b) => b.time - a.time);
  return found.concat(made.map((m) => m.file));
}

const tried = candidates();
const file = tried.find((f) => fs.existsSync(f));
if (!file) {
  throw new Error(`strata: the addon was not found (looked for ${tried.join(', ')} and build/*/bindings/node/strata.node); ` +
    'build it with scripts/build-node, or set STRATA_NODE_ADDON');
}
// Before Node 20.
if (!Symbol.dispose) Object.defineProperty(Symbol, 'dispose', { value: Symbol('Symbol.dispose') });
let native;
try {
  native = require(file);
} catch (error) {
  const [, library] = /^(\S+): cannot open shared object file/.exec(error.message) ?? [];
  if (library && library !== file) {
    error.message = `strata needs ${library}, which is not on this machine. The addon uses the libraries of the distribution that ` +
      'it was built on; there this brings them:\n  sudo apt-get install libdnnl-dev libfmt-dev libhwy-dev libopenblas0-pthread libgomp1\n' +
      'For another distribution build it there, with scripts/build-node';
  }
  throw error;
}

// A native function that fails sets failed[0] and returns the error: throwing it is left to JavaScript. (While Node takes an
// exception over from native code, a collection may run a finalizer of ours, and Node then ends the process.)
const { failed } = native;
if (!failed) throw new Error(`strata: ${file} is older than the JavaScript beside it; build it again with scripts/build-node`);
function guarded(f, name = f?.name) {
  if (typeof f !== 'function') return f;
  const wrapped = function (...args) {
    const result = f.apply(this, args);
    if (failed[0] !== 0) {
      const described = failed[0] === 1;
      failed[0] = 0;
      throw described ? result : new StrataError('an error that could not be described');
    }
    return result;
  };
  Object.defineProperty(wrapped, 'name', { value: name });
  return wrapped;
}

const { prototype } = native.Tensor;
function Tensor() {
  throw new StrataError('Tensor: make tensors with tensor(), zeros() and the like', 'Tensor');
}
Tensor.prototype = prototype;
Object.defineProperty(prototype, 'constructor', { value: Tensor, writable: true, configurable: true });
for (const key of Object.getOwnPropertyNames(prototype)) {
  if (key === 'constructor') continue;
  const { value, get, set, ...rest } = Object.getOwnPropertyDescriptor(prototype, key);
  Object.defineProperty(prototype, key, value ? { value: guarded(value, key), ...rest }
    : { get: guarded(get, key), set: guarded(set, key), ...rest });
}
for (const key of Object.keys(native)) {
  if (key !== 'Tensor') exports[key] = guarded(native[key], key);
}
exports.Tensor = Tensor;
const listed = exports.ops;
exports.ops = () => listed().map((record) => {
  const { call, callShown, callAsync, callMethod, callInplace } = record;
  return { ...record, call: guarded(call), callShown: guarded(callShown), callAsync: guarded(callAsync), callMethod: guarded(callMethod),
    callInplace: guarded(callInplace) };
});
