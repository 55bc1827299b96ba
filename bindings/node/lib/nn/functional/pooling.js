'use strict';
// Pooling.

const { functions: F, ops } = require('../../ops.js');
const T = require('../../tensor.js');
const { define, ints, wantNumber, wantTensor } = require('../../arguments.js');
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

/**
 * The largest elements of windows that begin at random steps (Graham, arXiv:1412.6071), so that the result has {outputSize}, or
 * {outputRatio} of the input's size; with {returnIndices} [values, indices]. {samples} are the numbers that are drawn otherwise.
 */
const fractionalMaxPool = (n) => {
  const name = `fractionalMaxPool${n}d`;
  return define(name, ['x', 'kernelSize*'], { outputSize: null, outputRatio: null, returnIndices: false, samples: null }, (x, kernelSize, o) => {
    if (x.ndim !== n + 1 && x.ndim !== n + 2) throw new ShapeError(`${name}: wants an input of ${n + 1} or ${n + 2} dimensions, got [${x.shape.join(', ')}]`, name);
    if (o.outputSize === null && o.outputRatio === null) throw new ValueError(`${name}: needs either outputSize or outputRatio`, name);
    const size = o.outputSize === null ? null : ints(o.outputSize, n, name, 'outputSize');
    const ratios = size !== null ? [] : Array.isArray(o.outputRatio) ? o.outputRatio : [o.outputRatio];
    if (![0, 1, n].includes(ratios.length)) throw new ValueError(`${name}: outputRatio wants one or ${n} numbers, got ${ratios.length}`, name);
    const drawn = () => T.rand([x.ndim === n + 2 ? x.shape[0] : 1, x.shape[x.ndim - n - 1], n], { dtype: x.dtype === 'f64' ? 'f64' : 'f32', device: x.device });
    const samples = o.samples === null ? drawn() : wantTensor(o.samples, name, 'samples');
    const { values, indices } = ops.fractional_max_pool(x, samples, ints(kernelSize, n, name, 'kernelSize'), size, ...ratios.map((r) => wantNumber(r, name, 'outputRatio')));
    return o.returnIndices ? [values, indices] : values;
  });
};

/** The same with {returnIndices: true}. */
const WITH_INDICES = new Map([
  [maxPool, ['kernelSize*', { stride: null, padding: [0], dilation: [1], ceilMode: false }]],
  [adaptiveMaxPool, ['outputSize*', {}]],
  [fractionalMaxPool, ['kernelSize*', { outputSize: null, outputRatio: null, samples: null }]],
]);
const withIndices = (make) => (n) => {
  const f = make(n);
  const [size, defaults] = WITH_INDICES.get(make);
  return define(`${f.name}WithIndices`, ['x', size], defaults, (x, wanted, o) => f(x, wanted, { ...o, returnIndices: true }));
};

const families = { maxPool, avgPool, lpPool, maxUnpool, adaptiveAvgPool, adaptiveMaxPool };
const made = (all, end, sizes = [1, 2, 3]) => Object.fromEntries(Object.entries(all).flatMap(([name, make]) => sizes.map((n) => [`${name}${n}d${end}`, make(n)])));
module.exports = {
  ...made(families, ''), ...made({ maxPool: withIndices(maxPool), adaptiveMaxPool: withIndices(adaptiveMaxPool) }, 'WithIndices'),
  ...made({ fractionalMaxPool }, '', [2, 3]), ...made({ fractionalMaxPool: withIndices(fractionalMaxPool) }, 'WithIndices', [2, 3]),
};
