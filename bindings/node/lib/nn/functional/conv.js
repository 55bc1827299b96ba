'use strict';
// Convolutions, and windows as columns.

const { functions: F } = require('../../ops.js');
const { define, ints } = require('../../arguments.js');
const { ShapeError, ValueError } = require('../../errors.js');

/** Convolution of [N, C, ...]; padding may be 'same' or 'valid'. */
const convolution = (name, n) => define(name, ['x', 'weight', 'bias?'], { stride: [1], padding: [0], dilation: [1], groups: 1 }, (x, weight, bias, o) => {
  if (weight.ndim !== n + 2) throw new ShapeError(`${name}: weight must have ${n + 2} dimensions, got [${weight.shape.join(', ')}]`, name);
  const stride = ints(o.stride, n, name, 'stride');
  const dilation = ints(o.dilation, n, name, 'dilation');
  if (o.padding === 'same') {
    if (stride.some((s) => s !== 1)) throw new ValueError(`${name}: padding 'same' goes with a stride of 1 only`, name);
    return F.conv_same(x, weight, bias, dilation, o.groups);
  }
  if (typeof o.padding === 'string' && o.padding !== 'valid') throw new ValueError(`${name}: padding must be numbers, 'same' or 'valid', got '${o.padding}'`, name);
  return F[name](x, weight, bias, stride, o.padding === 'valid' ? [0] : ints(o.padding, n, name, 'padding'), dilation, o.groups);
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
