'use strict';
// CUDA devices: what they are, streams and events, graphs, memory. Without a card everything but the first functions
// throws DeviceError with the reason.

const native = require('./native.js');
const { ValueError } = require('./errors.js');
const { under, wantFunction } = require('./modes.js');
const { withSignal } = require('./signal.js');
const { settled } = require('./ops.js');

/** A device's number out of 1, 'cuda:1' or nothing. */
function indexOf(device) {
  if (device === undefined || device === null) return 0;
  if (Number.isInteger(device) && device >= 0) return device;
  const found = /^cuda(?::(\d+))?$/.exec(device);
  if (!found) throw new ValueError(`cuda: a CUDA device is wanted ('cuda:0', 0), got ${String(device)}`, 'cuda');
  return Number(found[1] ?? 0);
}
const nameOf = (device) => `cuda:${indexOf(device)}`;
const isAvailable = () => native.cudaDeviceCount() > 0;
const waited = (options, start) => withSignal(options?.signal, (flag) => settled(() => start(flag)));

/** A queue of work on one device: a new one beside the main one, from a pool of 32. */
class Stream {
  #handle;
  constructor(device) {
    this.#handle = device instanceof Given ? device.handle : native.streamCreate(indexOf(device));
    Object.assign(this, native.streamInfo(this.#handle));
  }
  static handleOf(stream, name) {
    if (!(stream instanceof Stream)) throw new ValueError(`${name}: needs a Stream`, name);
    return stream.#handle;
  }
  /** Waits, on this thread, until the queue is empty. */
  synchronize() {
    native.streamSynchronize(this.#handle);
  }
  /** A promise of the same. */
  synchronizeAsync(options) {
    return waited(options, (flag) => native.streamSynchronizeAsync(flag, this.#handle));
  }
  /** Whether the queue is empty. */
  query() {
    return native.streamQuery(this.#handle);
  }
  /** Later work here waits for what `other` holds now. */
  waitStream(other) {
    native.streamWait(this.#handle, Stream.handleOf(other, 'waitStream'));
  }
  waitEvent(event) {
    event.wait(this);
  }
  /** A new event after what the queue holds now. */
  recordEvent(event = new Event({ device: this.device })) {
    event.record(this);
    return event;
  }
  equals(other) {
    return other instanceof Stream && other.device === this.device && other.handle === this.handle;
  }
}
class Given {
  constructor(handle) {
    this.handle = handle;
  }
}
const currentStream = (device) => new Stream(new Given(native.streamCurrent(indexOf(device))));
const defaultStream = (device) => new Stream(new Given(native.streamMain(indexOf(device))));
/** fn() with `s` as this thread's current stream (null: as it is); without fn an object that ends it. */
function stream(s, fn) {
  if (s === null && fn !== undefined) return fn();
  const handle = Stream.handleOf(s, 'stream');
  return under('stream', () => native.enterStream(handle), fn);
}
/** The tensor's memory is not reused before `s`, which is not the stream that it was made on, has passed. */
function recordStream(tensor, s) {
  native.recordStream(tensor, Stream.handleOf(s, 'recordStream'));
}

/** A point in a stream; with {enableTiming} elapsedTime() measures between two of them. */
class Event {
  #handle;
  #device;
  constructor({ enableTiming = false, device } = {}) {
    this.#device = indexOf(device);
    this.#handle = native.eventCreate(enableTiming, this.#device);
  }
  #stream(s) {
    return Stream.handleOf(s ?? currentStream(this.#device), 'Event');
  }
  record(s) {
    native.eventRecord(this.#handle, this.#stream(s));
    return this;
  }
  /** Later work of the stream waits for this point. */
  wait(s) {
    native.eventWait(this.#handle, this.#stream(s));
  }
  query() {
    return native.eventQuery(this.#handle);
  }
  synchronize() {
    native.eventSynchronize(this.#handle);
  }
  synchronizeAsync(options) {
    return waited(options, (flag) => native.eventSynchronizeAsync(flag, this.#handle));
  }
  /** Milliseconds from here to a later event. */
  elapsedTime(end) {
    return native.eventElapsed(this.#handle, end.#handle);
  }
}

/** Device memory for graphs; those that share a pool must not run at the same time. */
class GraphPool {
  #handle;
  constructor(device) {
    this.#handle = native.poolCreate(indexOf(device));
  }
  static handleOf(pool) {
    if (!(pool instanceof GraphPool)) throw new ValueError('CUDAGraph: pool must be a GraphPool', 'CUDAGraph');
    return pool.#handle;
  }
  get device() {
    return native.poolInfo(this.#handle).device;
  }
  /** Bytes of the card behind it. */
  get reservedBytes() {
    return native.poolInfo(this.#handle).reservedBytes;
  }
}
const graphPoolHandle = (device) => new GraphPool(device);

/**
 * Work of a device, recorded once and queued again by replay(): it reads and writes the tensors that the recorded code
 * saw. Only what this thread queues is recorded: no promises inside.
 */
class CUDAGraph {
  #handle;
  #pool;
  constructor({ pool, device } = {}) {
    this.#pool = pool ?? new GraphPool(device);
    this.#handle = native.graphCreate(GraphPool.handleOf(this.#pool));
  }
  /** Runs fn, recording what it queues on the current stream (or {stream}); returns what it returns. */
  capture(fn, { stream: s = null } = {}) {
    wantFunction(fn, 'CUDAGraph');
    return stream(s, () => {
      native.graphBegin(this.#handle);
      let keep = false;
      try {
        const result = fn();
        keep = true;
        return result;
      } finally {
        native.graphEnd(this.#handle, keep);
      }
    });
  }
  captureBegin() {
    native.graphBegin(this.#handle);
  }
  captureEnd() {
    native.graphEnd(this.#handle, true);
  }
  /** Queues the recorded work on the current stream. */
  replay() {
    native.graphReplay(this.#handle);
  }
  /** Kernels, copies and fills of a replay; null before there are any. */
  get nodes() {
    return native.graphNodes(this.#handle);
  }
  get pool() {
    return this.#pool;
  }
  /** Gives the graph's memory back now. */
  dispose() {
    native.graphDispose(this.#handle);
  }
  [Symbol.dispose]() {
    this.dispose();
  }
}

const number = (key) => (device) => (isAvailable() ? native.memoryStats(nameOf(device))[key] : 0);
function getDeviceProperties(device) {
  return native.cudaProperties(indexOf(device));
}

module.exports = {
  isAvailable,
  deviceCount: () => native.cudaDeviceCount(),
  unavailableReason: () => native.cudaUnavailableReason(),
  versions: () => native.cudaVersions(),
  getDeviceProperties,
  getDeviceName: (device) => getDeviceProperties(device).name,
  getDeviceCapability(device) {
    const { major, minor } = getDeviceProperties(device);
    return [major, minor];
  },
  synchronize: (device) => native.cudaSynchronize(indexOf(device)),
  synchronizeAsync: (device, options) => waited(options, (flag) => native.cudaSynchronizeAsync(flag, indexOf(device))),
  setAllowTf32: (on) => native.cudaSetAllowTf32(on),
  allowTf32: () => native.cudaAllowTf32(),
  setAllowTf32Convolutions: (on) => native.setAllowTf32Convolutions(on),
  allowTf32Convolutions: () => native.allowTf32Convolutions(),
  setLaunchBlocking: (on) => native.cudaSetLaunchBlocking(on),
  Stream, currentStream, defaultStream, stream, recordStream, Event,
  CUDAGraph, GraphPool, graphPoolHandle,
  isCurrentStreamCapturing: () => native.cudaCapturing(),
  memoryAllocated: number('live'),
  maxMemoryAllocated: number('peak'),
  memoryReserved: number('reserved'),
  maxMemoryReserved: number('peakReserved'),
  memoryStats(device) {
    getDeviceProperties(device);  // a build without CUDA has figures all the same, of nothing
    return native.memoryStats(nameOf(device));
  },
  resetPeakMemoryStats: (device) => native.memoryResetPeak(nameOf(device)),
  memorySnapshot: (device) => JSON.parse(native.memorySnapshot(nameOf(device))).blocks,
  emptyCache: () => native.memoryReleaseCached(),
  setMemoryFraction: (fraction, device) => native.cudaSetMemoryFraction(fraction, indexOf(device)),
};
