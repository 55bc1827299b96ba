'use strict';
// Making tensors, and what Tensor has beside the records' methods.

const { markAsUntransferable } = require('node:worker_threads');
const native = require('./native.js');
const { functions, ops } = require('./ops.js');
const { withSignal } = require('./signal.js');
const { ShapeError, DTypeError, ValueError } = require('./errors.js');

const { Tensor } = native;

const ARRAYS = {
  u8: Uint8Array, bool: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  f16: Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array,
};
const DTYPES = new Map([[Uint8Array, 'u8'], [Uint8ClampedArray, 'u8'], [Int8Array, 'i8'], [Int16Array, 'i16'],
  [Int32Array, 'i32'], [BigInt64Array, 'i64'], [Float32Array, 'f32'], [Float64Array, 'f64']]);

/** A number whose kind is said: 'f64', 'i64' or 'bool'. Plain numbers that are whole count as integers. */
class Scalar {
  constructor(value, kind) {
    if (kind !== 'f64' && kind !== 'i64' && kind !== 'bool') {
      throw new ValueError(`Scalar: kind must be 'f64', 'i64' or 'bool', got ${String(kind)}`, 'Scalar');
    }
    this.value = value;
    this.kind = kind;
  }
}

function isTypedArray(v) {
  return ArrayBuffer.isView(v) && !(v instanceof DataView);
}
function dtypeOfArray(array, dtype, op) {
  if (dtype !== undefined && ARRAYS[dtype] !== undefined && array instanceof ARRAYS[dtype]) return dtype;
  for (const [cls, name] of DTYPES) if (array instanceof cls) return name;
  if (array instanceof Uint16Array) {
    throw new DTypeError(`${op}: a Uint16Array holds f16 or bf16, say which with {dtype}`, op);
  }
  throw new DTypeError(`${op}: there is no dtype for ${array.constructor.name}`, op);
}

function shapeOf(data) {
  const shape = [];
  for (let d = data; Array.isArray(d); d = d[0]) shape.push(d.length);
  return shape;
}
function flattenInto(data, shape, depth, out) {
  if (depth === shape.length) {
    if (Array.isArray(data)) throw new ShapeError('tensor: the nested arrays are not all of one length', 'tensor');
    out.push(data);
    return;
  }
  if (!Array.isArray(data) || data.length !== shape[depth]) {
    throw new ShapeError('tensor: the nested arrays are not all of one length', 'tensor');
  }
  for (const d of data) flattenInto(d, shape, depth + 1, out);
}

/** A new tensor with a copy of numbers, nested arrays, a typed array or another tensor. */
function tensor(data, options = {}) {
  const { dtype, device, requiresGrad = false, shape } = options;
  let made;
  if (data instanceof Tensor) {
    made = data.detach().clone();
    if (shape !== undefined) made = made.reshape(shape);
  } else if (isTypedArray(data)) {
    made = native.copyFrom(data, shape ?? [data.length], dtypeOfArray(data, dtype, 'tensor'));
  } else {
    const inner = shapeOf(data);
    const flat = [];
    flattenInto(data, inner, 0, flat);
    for (const v of flat) {
      if (typeof v !== 'number' && typeof v !== 'bigint' && typeof v !== 'boolean') {
        throw new ValueError(`tensor: needs numbers, BigInts or booleans, got ${v === null ? 'null' : typeof v}`, 'tensor');
      }
    }
    const bools = flat.length > 0 && flat.every((v) => typeof v === 'boolean');
    const bigs = flat.length > 0 && flat.every((v) => typeof v === 'bigint');
    const kind = dtype ?? (bools ? 'bool' : bigs ? 'i64' : 'f32');
    let array;
    let held = kind;
    if (kind === 'i64') {
      array = BigInt64Array.from(flat, (v) => whole64(v));
    } else if (kind === 'bool') {
      array = Uint8Array.from(flat, (v) => (v ? 1 : 0));
    } else if (kind === 'f32' || kind === 'f64') {
      array = ARRAYS[kind].from(flat, Number);
    } else {
      // Rounded by the engine.
      array = Float64Array.from(flat, Number);
      held = 'f64';
    }
    made = native.copyFrom(array, shape ?? inner, held);
  }
  if (dtype !== undefined || device !== undefined) made = made.to({ dtype, device });
  if (requiresGrad) made.requiresGrad = true;
  return made;
}
function whole64(v) {
  if (typeof v === 'number' && !Number.isInteger(v)) {
    throw new ValueError(`tensor: an i64 tensor's elements are whole numbers, got ${v}`, 'tensor');
  }
  const big = BigInt(v);
  if (BigInt.asIntN(64, big) !== big) throw new ValueError(`tensor: ${big} does not fit into 64 bits`, 'tensor');
  return big;
}

/**
 * A tensor over a typed array's memory: writes to one are seen by the other. The array's buffer is kept alive, and is not
 * to be transferred or resized while the tensor lives (transferring is refused).
 */
function fromTypedArray(array, shape, options = {}) {
  if (!isTypedArray(array)) throw new ValueError('fromTypedArray: needs a typed array', 'fromTypedArray');
  const buffer = array.buffer;
  if (buffer.resizable || buffer.growable) {
    throw new ValueError('fromTypedArray: the memory of a resizable buffer cannot be borrowed, use tensor()', 'fromTypedArray');
  }
  if (buffer instanceof ArrayBuffer) {
    markAsUntransferable(buffer);
    for (const name of ['transfer', 'transferToFixedLength']) {
      if (!(name in ArrayBuffer.prototype) || Object.hasOwn(buffer, name)) continue;
      Object.defineProperty(buffer, name, {
        value() { throw new TypeError('strata: a tensor borrows this ArrayBuffer; it cannot be transferred'); },
      });
    }
  }
  return native.borrow(array, shape ?? [array.length], dtypeOfArray(array, options.dtype, 'fromTypedArray'));
}

function marked(t, requiresGrad) {
  if (requiresGrad) t.requiresGrad = true;
  return t;
}
function full(shape, value, { dtype, device, requiresGrad } = {}) {
  const kind = dtype ?? (typeof value === 'bigint' ? 'i64' : typeof value === 'boolean' ? 'bool' : 'f32');
  return marked(native.full(shape, value, kind, device), requiresGrad);
}
const zeros = (shape, options = {}) => full(shape, 0, options);
const ones = (shape, options = {}) => full(shape, 1, options);
function empty(shape, { dtype, device, requiresGrad } = {}) {
  return marked(native.empty(shape, dtype, device), requiresGrad);
}
const like = (t, options) => ({ dtype: t.dtype, device: t.device, ...options });
const zerosLike = (t, options) => zeros(t.shape, like(t, options));
const onesLike = (t, options) => ones(t.shape, like(t, options));
const fullLike = (t, value, options) => full(t.shape, value, like(t, options));
const emptyLike = (t, options) => empty(t.shape, like(t, options));
function rand(shape, { dtype, device, requiresGrad } = {}) {
  return marked(ops.uniform(shape, 0, 1, { dtype, device }), requiresGrad);
}
function randn(shape, { dtype, device, requiresGrad } = {}) {
  return marked(ops.normal(shape, 0, 1, { dtype, device }), requiresGrad);
}
const randLike = (t, options) => rand(t.shape, like(t, options));
const randnLike = (t, options) => randn(t.shape, like(t, options));
/** arange(end), arange(start, end, step); f32 unless every number is a BigInt (i64) or {dtype} says otherwise. */
function arange(...args) {
  const last = args[args.length - 1];
  const options = last !== null && typeof last === 'object' && !(last instanceof Scalar) ? args.pop() : {};
  const [start, end, step = 1] = args.length === 1 ? [typeof args[0] === 'bigint' ? 0n : 0, args[0]] : args;
  const { dtype, device, requiresGrad } = options;
  const kind = dtype ?? ([start, end].every((v) => typeof v === 'bigint') ? 'i64' : 'f32');
  return marked(ops.arange(start, end, step, { dtype: kind, device }), requiresGrad);
}
/** The identity matrix [n, m]. */
function eye(n, m, options = {}) {
  if (m !== null && typeof m === 'object') return ops.eye(n, n, m);
  return ops.eye(n, m ?? n, options);
}

function nest(flat, shape, depth, at) {
  if (depth === shape.length) return [flat[at], at + 1];
  const list = new Array(shape[depth]);
  for (let i = 0; i < shape[depth]; ++i) [list[i], at] = nest(flat, shape, depth + 1, at);
  return [list, at];
}

const methods = {
  /** A typed array over the elements (row-major tensors on the CPU); it keeps them alive. */
  data() {
    return native.data(this);
  },
  /** A typed array with a copy of the elements, in row-major order. */
  toTypedArray() {
    return native.copyTo(this);
  },
  /** The elements as nested arrays: numbers, BigInts (i64) or booleans. */
  toArray() {
    const small = this.dtype === 'f16' || this.dtype === 'bf16';
    let flat = native.copyTo(small ? this.detach().to('f32') : this);
    if (this.dtype === 'bool') flat = Array.from(flat, (v) => v !== 0);
    return nest(flat, this.shape, 0, 0)[0];
  },
  /** Says that elements were written through data() or a borrowed array: a graph that saved them then notices. */
  markWritten() {
    native.written(this);
    return this;
  },
  /** A ticket with which another thread of this process takes the tensor: fromShared(ticket), once. */
  share() {
    return native.share(this);
  },
  size(dim) {
    const { shape } = this;
    if (dim === undefined) return shape;
    const d = dim < 0 ? dim + shape.length : dim;
    if (!(d >= 0 && d < shape.length)) {
      throw new (require('./errors.js').IndexError)(`size: dim ${dim} is out of range for ${shape.length} dims`, 'size');
    }
    return shape[d];
  },
  /** The largest element, or {values, indices} along a dimension. */
  max(dim, keepdim = false) {
    return dim === undefined ? this.amax() : this.max_dim(dim, keepdim);
  },
  min(dim, keepdim = false) {
    return dim === undefined ? this.amin() : this.min_dim(dim, keepdim);
  },
  zero_() {
    return this.fill_(0);
  },
  cpu() {
    return this.to('cpu');
  },
  cuda(index = 0) {
    return this.to(`cuda:${index}`);
  },

  backward(grad, { retainGraph = false, createGraph = false } = {}) {
    native.walk([this], null, grad === undefined || grad === null ? null : [grad], retainGraph, createGraph, false);
  },
  backwardAsync(grad, { retainGraph = false, createGraph = false, signal } = {}) {
    return withSignal(signal, (flag) => require('./ops.js').settled(() => native.walkAsync(flag, [this], null,
      grad === undefined || grad === null ? null : [grad], retainGraph, createGraph, false)));
  },
  retainGrad() {
    native.retainGrad(this);
    return this;
  },
  /** fn(gradient) whenever the tensor's gradient is known; it may return another in its place. {remove()} ends it. */
  registerHook(fn) {
    const handle = native.addHook(this, fn, false);
    return { remove: () => native.removeHook(handle) };
  },
  /** fn(leaf) after a gradient was added to the leaf's grad. */
  registerPostAccumulateGradHook(fn) {
    const handle = native.addHook(this, fn, true);
    return { remove: () => native.removeHook(handle) };
  },
  [Symbol.for('nodejs.util.inspect.custom')]() {
    return this.disposed ? 'Tensor (disposed)' : this.toString();
  },
};
methods[Symbol.dispose] = function () {
  this.dispose();
};
for (const key of Reflect.ownKeys(methods)) {
  Object.defineProperty(Tensor.prototype, key, { value: methods[key], writable: true, configurable: true });
}

// Methods that are no records, as functions too.
const views = Object.create(null);
for (const name of ['reshape', 'flatten', 'unflatten', 'squeeze', 'unsqueeze', 'narrow', 'contiguous', 't', 'max', 'min']) {
  views[name] = (x, ...args) => x[name](...args);
}

module.exports = {
  Tensor, Scalar, tensor, fromTypedArray, fromShared: (ticket) => native.takeShared(ticket), full, zeros, ones, empty,
  zerosLike, onesLike, fullLike, emptyLike, rand, randn, randLike, randnLike, arange, eye, views, functions,
};
