'use strict';
// Convolutions, and windows as columns.

const { functions: F, ops } = require('../../ops.js');
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
const pairs = (name, o) => ['kernelSize', 'dilation', 'padding', 'stride'].map((key) => {
  const v = ints(o[key], 2, name, key);
  if (v.some((x) => x < (key === 'padding' ? 0 : 1))) throw new ValueError(`${name}: ${key} must not be [${v.join(', ')}]`, name);
  return v;
});
/** Windows of [N, C, H, W] (or [C, H, W]) as columns: [N, C kh kw, windows]. */
const unfold = define('unfold', ['x', 'kernelSize*'], windows, (x, kernelSize, o) => {
  if (x.ndim === 3) return unfold(x.unsqueeze(0), kernelSize, o).squeeze(0);
  if (x.ndim !== 4) throw new ShapeError(`unfold: wants [N, C, H, W] or [C, H, W], got [${x.shape.join(', ')}]`, 'unfold');
  const [[kh, kw], [dh, dw], [ph, pw], [sh, sw]] = pairs('unfold', { kernelSize, ...o });
  let y = ph || pw ? F.constant_pad(x, [pw, pw, ph, ph]) : x;
  y = F.unfold(F.unfold(y, 2, dh * (kh - 1) + 1, sh), 3, dw * (kw - 1) + 1, sw).at('...', [null, null, dh], [null, null, dw]);
  const [n, c, oh, ow] = y.shape;
  return y.permute([0, 1, 4, 5, 2, 3]).reshape([n, c * kh * kw, oh * ow]);
});
/** Adds up the columns [N, C kh kw, windows] of unfold() where they came from: [N, C, ...outputSize]. */
const fold = define('fold', ['x', 'outputSize*', 'kernelSize*'], windows, (x, outputSize, kernelSize, o) => {
  if (x.ndim === 2) return fold(x.unsqueeze(0), outputSize, kernelSize, o).squeeze(0);
  const [[kh, kw], [dh, dw], [ph, pw], [sh, sw]] = pairs('fold', { kernelSize, ...o });
  const size = ints(outputSize, 2, 'fold', 'outputSize');
  const [h, w] = [size[0] + 2 * ph, size[1] + 2 * pw];
  const [eh, ew] = [dh * (kh - 1) + 1, dw * (kw - 1) + 1];
  const [oh, ow] = [Math.floor((h - eh) / sh) + 1, Math.floor((w - ew) / sw) + 1];
  if (x.ndim !== 3 || x.shape[1] % (kh * kw) !== 0 || oh < 1 || ow < 1 || x.shape[2] !== oh * ow) {
    throw new ShapeError(`fold: [${x.shape.join(', ')}] does not hold ${oh} x ${ow} windows of ${kh} x ${kw}`, 'fold');
  }
  const n = x.shape[0];
  const c = x.shape[1] / (kh * kw);
  // The steps of unfold() backwards.
  let y = ops.internal.slice_backward(x.reshape([n, c, kh, kw, oh, ow]), [n, c, eh, kw, oh, ow], 2, 0, eh, dh).permute([0, 1, 4, 5, 3, 2]);
  y = ops.internal.unfold_backward(y, [n, c, h, ow, kw], 2, eh, sh);
  y = ops.internal.slice_backward(y, [n, c, h, ow, ew], 4, 0, ew, dw);
  y = ops.internal.unfold_backward(y, [n, c, h, w], 3, ew, sw);
  return ph || pw ? y.narrow(2, ph, size[0]).narrow(3, pw, size[1]).contiguous() : y;
});

module.exports = {
  conv1d: convolution('conv1d', 1), conv2d: convolution('conv2d', 2), conv3d: convolution('conv3d', 3),
  convTranspose1d: transposed('convTranspose1d', 1), convTranspose2d: transposed('convTranspose2d', 2),
  convTranspose3d: transposed('convTranspose3d', 3), unfold, fold,
};
