'use strict';
// A step as a list of calls.

const native = require('./native.js');
const { ValueError } = require('./errors.js');
const { wantFunction } = require('./modes.js');

/** What record() gives: the calls of a function, in order, and the storages that they read and write. */
class Recording {
  #handle;
  constructor(handle) {
    if (typeof handle !== 'object') throw new ValueError('Recording: st.record() and Recording.fromText() make them', 'Recording');
    this.#handle = handle;
  }
  /** How many calls there are. */
  get length() {
    return native.recordingSize(this.#handle);
  }
  /** Call i: op, form, phase, args, targets, results, flops, bytes, seconds and more. */
  call(i) {
    return native.recordingCall(this.#handle, i);
  }
  /** All of them, one after the other. */
  * [Symbol.iterator]() {
    for (let i = 0; i < this.length; ++i) yield this.call(i);
  }
  /** Every storage: bytes, device, tag, the calls that it lived through. */
  storages() {
    return native.recordingStorages(this.#handle);
  }
  /** The most that storages take at once, in bytes. */
  peakBytes() {
    return native.recordingPeak(this.#handle);
  }
  /** Time and bytes by 'op', 'module' or 'phase', beside what the machine can do: {gb_s, gflops, matmul_f32, matmul_bf16}. */
  table(by = 'op', { rows = 20, ...limits } = {}) {
    return native.recordingTable(this.#handle, by, limits, rows);
  }
  /** A line a call. */
  toString() {
    return native.recordingString(this.#handle);
  }
  /** The whole of it, for a file; fromText() reads it again. */
  toText() {
    return native.recordingText(this.#handle);
  }
  static fromText(text) {
    return new Recording(native.readRecording(text));
  }
}

/**
 * The calls that fn() makes on this thread, as a Recording: forward, backward and updates, with shapes, dtypes, storages and
 * their lifetimes, and cost. With {values} the bytes of what no call made are kept. fn must not be an async function.
 */
function record(fn, { values = false } = {}) {
  wantFunction(fn, 'record');
  return new Recording(native.record(fn, values));
}

module.exports = { Recording, record };
