'use strict';
// Convolutions, and windows as columns.

const { functions: F } = require('../../ops.js');
const { define, ints } = require('../../arguments.js');
const { ShapeError, ValueError } = require('../../errors.js');

/** The symmetric padding, and what 'same' adds after it, last dimension first. */
function paddingOf(padding, weight, stride, dilation, n, name) {
  if (padding === 'valid') return [new Array(n).fill(0), null];
  if (padding !== 'same') {
    if (typeof padding === 'string') throw new ValueError(`${name}: padding must be numbers, 'same' or 'valid', got '${padding}'`, name);
    return [ints(padding, n, name, 'padding'), null];
  }
  if (stride.some((s) => s !== 1)) throw new ValueError(`${name}: padding 'same' goes with a stride of 1 only`, name);
  const total = weight.shape.slice(2).map((k, i) => dilation[i] * (k - 1));
  const odd = total.some((t) => t % 2 === 1);
  return [total.map((t) => Math.floor(t / 2)), odd ? total.reverse().flatMap((t) => [0, t % 2]) : null];
}
/** Convolution of [N, C, ...]; padding may be 'same' or 'valid'. */
const convolution = (name, n) => define(name, ['x', 'weight', 'bias?'], { stride: [1], padding: [0], dilation: [1], groups: 1 }, (x, weight, bias, o) => {
  if (weight.ndim !== n + 2) throw new ShapeError(`${name}: weight must have ${n + 2} dimensions, got [${weight.shape.join(', ')}]`, name);
  const stride = ints(o.stride, n, name, 'stride');
  const dilation = ints(o.dilation, n, name, 'dilation');
  const [pads, extra] = paddingOf(o.padding, weight, stride, dilation, n, name);
  return F[name](extra ? F.constant_pad(x, extra) : x, weight, bias, stride, pads, dilation, o.groups);
});
/** The gradient of a convolution for its input, as a function. */
const transposed = (name, n) => define(name, ['x', 'weight', 'bias?'], { stride: [1], padding: [0], outputPadding: [0], groups: 1, dilation: [1] },
  (x, weight, bias, o) => F[`conv_transpose${n}d`](x, weight, bias, ints(o.stride, n, name, 'stride'), ints(o.padding, n, name, 'padding'),
    ints(o.outputPadding, n, name, 'outputPadding'), o.groups, ints(o.dilation, n, name, 'dilation')));

const windows = { dilation: [1], padding: [0], stride: [1] };
const pairs = (name, o) => Object.entries(o).map(([key, v]) => ints(v, 2, name, key));
/** Windows of [N, C, H, W] (or [C, H, W]) as columns: [N, C kh kw, windows]. */
const unfold = define('unfold', ['x', 'kernelSize*'], windows, (x, kernelSize, { dilation, padding, stride }) => (
  F.im2col(x, ...pairs('unfold', { kernelSize, dilation, padding, stride }))));
/** Adds up the columns [N, C kh kw, windows] of unfold() where they came from: [N, C, ...outputSize]. */
const fold = define('fold', ['x', 'outputSize*', 'kernelSize*'], windows, (x, outputSize, kernelSize, { dilation, padding, stride }) => (
  F.col2im(x, ...pairs('fold', { outputSize, kernelSize, dilation, padding, stride }))));

module.exports = {
  conv1d: convolution('conv1d', 1), conv2d: convolution('conv2d', 2), conv3d: convolution('conv3d', 3),
  convTranspose1d: transposed('convTranspose1d', 1), convTranspose2d: transposed('convTranspose2d', 2),
  convTranspose3d: transposed('convTranspose3d', 3), unfold, fold,
};
