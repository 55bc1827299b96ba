'use strict';
// Pooling.

const { functions: F, ops } = require('../../ops.js');
const { define, ints, wantNumber } = require('../../arguments.js');
const { ShapeError, ValueError } = require('../../errors.js');

const strideOf = (stride, kernel, n, name) => (stride === null ? kernel : ints(stride, n, name, 'stride'));

/** The largest element of each window; with {returnIndices} [values, indices], where in its plane each was. */
const maxPool = (n) => {
  const name = `maxPool${n}d`;
  return define(name, ['x', 'kernelSize*'], { stride: null, padding: [0], dilation: [1], ceilMode: false, returnIndices: false }, (x, kernelSize, o) => {
    const kernel = ints(kernelSize, n, name, 'kernelSize');
    const args = [x, kernel, strideOf(o.stride, kernel, n, name), ints(o.padding, n, name, 'padding'), ints(o.dilation, n, name, 'dilation'), o.ceilMode];
    if (!o.returnIndices) return F[`max_pool${n}d`](...args);
    const { values, indices } = ops.max_pool(...args);
    return [values, indices];
  });
};
/** The mean of each window, or its sum over divisorOverride. */
const avgPool = (n) => {
  const name = `avgPool${n}d`;
  const defaults = { stride: null, padding: [0], ceilMode: false, countIncludePad: true, ...(n > 1 ? { divisorOverride: null } : {}) };
  return define(name, ['x', 'kernelSize*'], defaults, (x, kernelSize, o) => {
    const kernel = ints(kernelSize, n, name, 'kernelSize');
    const stride = strideOf(o.stride, kernel, n, name);
    const padding = ints(o.padding, n, name, 'padding');
    const divisor = o.divisorOverride ?? null;
    if (divisor !== null && (typeof divisor !== 'number' || divisor === 0)) throw new ValueError(`${name}: divisorOverride must be a number other than 0`, name);
    return F[`avg_pool${n}d`](x, kernel, stride, padding, o.ceilMode, o.countIncludePad, ...(n > 1 ? [divisor] : []));
  });
};
/** (sum of x^normType)^(1 / normType) of each window; one at the border counts as a whole one. */
const lpPool = (n) => {
  const name = `lpPool${n}d`;
  return define(name, ['x', 'normType*', 'kernelSize*'], { stride: null, ceilMode: false }, (x, p, kernelSize, o) => {
    const kernel = ints(kernelSize, n, name, 'kernelSize');
    return F[`lp_pool${n}d`](x, wantNumber(p, name, 'normType'), kernel, strideOf(o.stride, kernel, n, name), o.ceilMode);
  });
};
/** Zeros with the elements where maxPool found them; those with one place are added. */
const maxUnpool = (n) => {
  const name = `maxUnpool${n}d`;
  return define(name, ['x', 'indices', 'kernelSize*'], { stride: null, padding: [0], outputSize: null }, (x, indices, kernelSize, o) => {
    const kernel = ints(kernelSize, n, name, 'kernelSize');
    const size = o.outputSize === null ? null : ints(Array.isArray(o.outputSize) ? o.outputSize.slice(-n) : o.outputSize, n, name, 'outputSize');
    return F[`max_unpool${n}d`](x, indices, kernel, strideOf(o.stride, kernel, n, name), ints(o.padding, n, name, 'padding'), size);
  });
};
/** One size for each of the last n dimensions; null keeps a dimension. */
function outputSize(x, size, n, name) {
  const list = Array.isArray(size) ? size : new Array(n).fill(size);
  if (list.length !== n || x.ndim < n) {
    throw new ShapeError(`${name}: an outputSize of ${list.length} dimensions for an input of [${x.shape.join(', ')}], wants ${n}`, name);
  }
  return list.map((v, i) => v ?? x.shape[x.ndim - n + i]);
}
/** Means of windows chosen so that the result has outputSize; null keeps a dimension. */
const adaptiveAvgPool = (n) => define(`adaptiveAvgPool${n}d`, ['x', 'outputSize*'], {},
  (x, size) => F[`adaptive_avg_pool${n}d`](x, outputSize(x, size, n, `adaptiveAvgPool${n}d`)));
/** Maxima of windows chosen so that the result has outputSize; with {returnIndices} [values, indices]. */
const adaptiveMaxPool = (n) => define(`adaptiveMaxPool${n}d`, ['x', 'outputSize*'], { returnIndices: false }, (x, size, { returnIndices }) => {
  const wanted = outputSize(x, size, n, `adaptiveMaxPool${n}d`);
  if (!returnIndices) return F[`adaptive_max_pool${n}d`](x, wanted);
  const { values, indices } = ops.adaptive_max_pool(x, wanted);
  return [values, indices];
});

/** The same with {returnIndices: true}. */
const withIndices = (make) => (n) => {
  const f = make(n);
  return define(`${f.name}WithIndices`, ['x', make === maxPool ? 'kernelSize*' : 'outputSize*'], make === maxPool
    ? { stride: null, padding: [0], dilation: [1], ceilMode: false } : {}, (x, size, o) => f(x, size, { ...o, returnIndices: true }));
};

const families = { maxPool, avgPool, lpPool, maxUnpool, adaptiveAvgPool, adaptiveMaxPool };
const made = (all, end) => Object.fromEntries(Object.entries(all).flatMap(([name, make]) => [1, 2, 3].map((n) => [`${name}${n}d${end}`, make(n)])));
module.exports = { ...made(families, ''), ...made({ maxPool: withIndices(maxPool), adaptiveMaxPool: withIndices(adaptiveMaxPool) }, 'WithIndices') };
