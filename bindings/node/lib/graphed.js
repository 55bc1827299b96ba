'use strict';
// graphed(): a training step as one CUDA graph.

const native = require('./native.js');
const { Tensor } = native;
const { ValueError, DeviceError } = require('./errors.js');
const { wantFunction } = require('./modes.js');

const HOLE = Symbol('tensor');
const isPlainObject = (v) => v !== null && typeof v === 'object' &&
  (Object.getPrototypeOf(v) === Object.prototype || Object.getPrototypeOf(v) === null);

/** The same arrays and objects, with change() of what is in them. */
function map(value, change) {
  if (Array.isArray(value)) return value.map((v) => map(v, change));
  if (isPlainObject(value)) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, map(v, change)]));
  return change(value);
}
function withoutTensors(value, into) {
  return map(value, (v) => (v instanceof Tensor ? (into.push(v), HOLE) : v));
}
function withTensors(value, tensors) {
  let next = 0;
  return map(value, (v) => (v === HOLE ? tensors[next++] : v));
}
/** What tells plain arguments apart. */
function nameOf(value) {
  if (Array.isArray(value)) return `[${value.map(nameOf).join()}]`;
  if (isPlainObject(value)) return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}:${nameOf(v)}`).join()}}`;
  if (typeof value === 'string') return JSON.stringify(value);
  if (Object.is(value, -0)) return '-0';
  if (value === HOLE || value === null || ['number', 'boolean', 'bigint', 'undefined'].includes(typeof value)) {
    return `${typeof value} ${String(value)}`;
  }
  throw new ValueError(`graphed: an argument of type ${value?.constructor?.name ?? typeof value}; arguments are tensors, ` +
    'numbers, strings, booleans, null, and arrays and objects of those', 'graphed');
}

/**
 * The training step fn (forward, backward, update) as a function to call in its place, with the same bits. On a CUDA device
 * its first call with arguments of a kind runs fn, the next records what fn queues as a CUDA graph, and later ones copy their
 * tensors to where the graph reads them and launch it; on the CPU each call runs fn. Results are tensors of their own, without
 * history. What fn does on the host (printing, counting) happens at the first calls only; random numbers, learning rates and
 * gradients are as if it ran. What cannot be recorded (item()) is a DeviceError, and nothing of that call has happened; with
 * {fallback: true} the step runs op by op then, with one warning. {warmup}: calls that run fn first (1); {most}: graphs kept (8).
 */
function graphed(fn, options = {}) {
  wantFunction(fn, 'graphed');
  const { warmup = 1, most = 8, fallback = false, ...rest } = options;
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw new ValueError(`graphed: there is no option '${unknown}'`, 'graphed');
  const steps = native.graphedNew(warmup, most, fallback);
  let reason = '';
  let warned = false;
  const call = (...args) => {
    const tensors = [];
    const plain = withoutTensors(args, tensors);
    const [found, shape] = native.graphedCall(steps, tensors, nameOf(plain), (given) => {
      let made;
      try {
        made = fn(...withTensors(plain, given));
        if (typeof made?.then === 'function') {
          throw new ValueError('graphed: the function must not be async: its ops have to be queued when it returns', 'graphed');
        }
      } catch (error) {
        if (!native.cudaCapturing()) throw error;
        reason = error.message;
        if (!(error instanceof DeviceError)) throw error;
        throw new DeviceError(`graphed: the step cannot be captured as one graph: ${reason}. Nothing of this call was run. ` +
          'Leave that out of the step, or let it run op by op with {fallback: true}', 'graphed');
      }
      const results = [];
      const left = withoutTensors(made, results);
      return [results, [left]];
    });
    if (!warned && native.graphedInfo(steps).note !== '') {
      warned = true;
      process.emitWarning(`graphed: the step runs op by op: ${reason}`);
    }
    return withTensors(shape[0], found);
  };
  const info = (key) => ({ get: () => native.graphedInfo(steps)[key], enumerable: true });
  Object.defineProperties(call, { graphs: info('graphs'), captures: info('captures'), replays: info('replays'), note: info('note') });
  /** Drops the graphs and gives their memory back; the next calls begin anew. */
  call.clear = () => native.graphedClear(steps);
  call[Symbol.dispose] = call.clear;
  return call;
}

module.exports = { graphed };
