'use strict';
// Linear layers, convolutions, tables, pooling, resizing, dropout. Parameters have the names, the shapes and the first values
// that PyTorch gives them.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { Module, parameter, detailOf } = require('./module.js');
const { quietly } = require('./init.js');
const { ValueError } = require('../errors.js');

/** A parameter drawn uniformly within `bound`. */
const uniform = (shape, bound, { dtype = 'f32', device } = {}) => parameter(F.uniform(shape, -bound, bound, { dtype, device }));
const times = (v, n) => (Array.isArray(v) ? v : new Array(n).fill(v));

class Identity extends Module {
  forward(x) {
    return x;
  }
}
/** y = x W^T + b, W [out, in]. */
class Linear extends Module {
  constructor(inFeatures, outFeatures, { bias = true, ...options } = {}) {
    super();
    const bound = 1 / Math.sqrt(inFeatures);
    this.weight = uniform([outFeatures, inFeatures], bound, options);
    this.bias = bias ? uniform([outFeatures], bound, options) : null;
  }
  forward(x) {
    return F.linear(x, this.weight, this.bias);
  }
  detail() {
    return detailOf([this.weight.shape[1], this.weight.shape[0]], { bias: this.bias ? undefined : false });
  }
}
/** y_k = x1 W_k x2 + b_k, W [out, in1, in2]. */
class Bilinear extends Module {
  constructor(in1, in2, outFeatures, { bias = true, ...options } = {}) {
    super();
    const bound = 1 / Math.sqrt(in1);
    this.weight = uniform([outFeatures, in1, in2], bound, options);
    this.bias = bias ? uniform([outFeatures], bound, options) : null;
  }
  forward(a, b) {
    const y = F.einsum('...i,kij,...j->...k', [a, this.weight, b]);
    return this.bias ? y.add(this.bias) : y;
  }
  detail() {
    const [out, in1, in2] = this.weight.shape;
    return detailOf([in1, in2, out]);
  }
}

/** Of `n` dimensions, forward or transposed. */
class Conv extends Module {
  constructor(n, transposed, inChannels, outChannels, kernel, { stride = 1, padding = 0, outputPadding, dilation = 1, groups = 1, bias = true,
    ...options } = {}) {
    super();
    const k = times(kernel, n);
    const shape = transposed ? [inChannels, outChannels / groups, ...k] : [outChannels, inChannels / groups, ...k];
    if (!shape.every(Number.isInteger)) {
      throw new ValueError(`Conv: ${groups} groups do not divide ${inChannels} and ${outChannels} channels`, 'Conv');
    }
    this.sizes = [inChannels, outChannels];
    this.options = { stride: times(stride, n), padding: times(padding, n), dilation: times(dilation, n), groups };
    if (transposed) this.options.output_padding = times(outputPadding ?? 0, n);
    const bound = 1 / Math.sqrt(shape.slice(1).reduce((a, b) => a * b, 1));
    this.weight = uniform(shape, bound, options);
    this.bias = bias ? uniform([outChannels], bound, options) : null;
  }
  detail() {
    const usual = { stride: 1, padding: 0, output_padding: 0, dilation: 1, groups: 1 };
    const others = Object.entries(this.options).filter(([key, v]) => [v].flat().some((x) => x !== usual[key]));
    return detailOf([...this.sizes, this.weight.shape.slice(2)], Object.fromEntries(others));
  }
}
const conv = (name, op, n, transposed) => ({ [name]: class extends Conv {
  constructor(inChannels, outChannels, kernel, options) {
    super(n, transposed, inChannels, outChannels, kernel, options);
  }
  forward(x) {
    return F[op](x, this.weight, this.bias, this.options);
  }
} })[name];
/** Convolution of [N, C, L]. */
const Conv1d = conv('Conv1d', 'conv1d', 1, false);
/** Convolution of [N, C, H, W]. */
const Conv2d = conv('Conv2d', 'conv2d', 2, false);
const ConvTranspose1d = conv('ConvTranspose1d', 'conv_transpose1d', 1, true);
const ConvTranspose2d = conv('ConvTranspose2d', 'conv_transpose2d', 2, true);

/** Rows of a table, N(0, 1), at i64 indices. */
class Embedding extends Module {
  constructor(count, dim, { paddingIdx, device, dtype = 'f32' } = {}) {
    super();
    this.paddingIdx = paddingIdx;
    this.weight = parameter(T.randn([count, dim], { device, dtype }));
    if (paddingIdx !== undefined) quietly(() => this.weight.detach().select(0, paddingIdx).fill_(0));
  }
  forward(indices) {
    return F.embedding(indices, this.weight, this.paddingIdx);
  }
  detail() {
    return detailOf(this.weight.shape);
  }
}
class Flatten extends Module {
  constructor(start = 1, end = -1) {
    super();
    this.start = start;
    this.end = end;
  }
  forward(x) {
    return x.flatten(this.start, this.end);
  }
}
class Unflatten extends Module {
  constructor(dim, sizes) {
    super();
    this.dim = dim;
    this.sizes = sizes;
  }
  forward(x) {
    return x.unflatten(this.dim, this.sizes);
  }
}

const pool = (name, op, n) => ({ [name]: class extends Module {
  constructor(kernel, { stride, padding = 0, ...options } = {}) {
    super();
    this.options = [times(kernel, n), times(stride ?? kernel, n), times(padding, n)];
    // dilation, ceil_mode, count_include_pad: whatever the op has.
    this.further = options;
  }
  forward(x) {
    return F[op](x, ...this.options, this.further);
  }
  detail() {
    const [kernel, stride, padding] = this.options;
    return detailOf([], { kernel, stride, padding });
  }
} })[name];
const MaxPool1d = pool('MaxPool1d', 'max_pool1d', 1);
const MaxPool2d = pool('MaxPool2d', 'max_pool2d', 2);
const AvgPool1d = pool('AvgPool1d', 'avg_pool1d', 1);
const AvgPool2d = pool('AvgPool2d', 'avg_pool2d', 2);
/** Windows chosen so that the result has the size that is wanted. */
const adaptive = (name, op, n) => ({ [name]: class extends Module {
  constructor(size) {
    super();
    this.size = times(size, n);
  }
  forward(x) {
    return F[op](x, this.size);
  }
  detail() {
    return detailOf([this.size]);
  }
} })[name];
const AdaptiveAvgPool1d = adaptive('AdaptiveAvgPool1d', 'adaptive_avg_pool1d', 1);
const AdaptiveAvgPool2d = adaptive('AdaptiveAvgPool2d', 'adaptive_avg_pool2d', 2);

/** Resizes [N, C, L] or [N, C, H, W] to {size} or by {scaleFactor}; modes 'nearest', 'linear', 'bilinear'. */
class Upsample extends Module {
  constructor({ size, scaleFactor, mode = 'nearest', alignCorners = false } = {}) {
    super();
    if ((size === undefined) === (scaleFactor === undefined)) throw new ValueError('Upsample: needs either size or scaleFactor', 'Upsample');
    Object.assign(this, { size, scaleFactor, mode, alignCorners });
  }
  forward(x) {
    const size = this.size === undefined ? null : times(this.size, x.ndim - 2);
    return F.interpolate(x, size, this.scaleFactor ?? null, this.mode, this.alignCorners);
  }
  detail() {
    return detailOf([], { size: this.size, scaleFactor: this.scaleFactor, mode: this.mode });
  }
}
/** [.., C r^2, H, W] to [.., C, H r, W r]. */
class PixelShuffle extends Module {
  constructor(factor) {
    super();
    this.factor = factor;
  }
  forward(x) {
    const r = this.factor;
    const [c, h, w] = x.shape.slice(-3);
    const rest = x.shape.slice(0, -3);
    const n = rest.length;
    const order = [...rest.keys(), n, n + 3, n + 1, n + 4, n + 2];
    return x.reshape([...rest, c / (r * r), r, r, h, w]).permute(order).reshape([...rest, c / (r * r), h * r, w * r]);
  }
  detail() {
    return detailOf([this.factor]);
  }
}
/** Zeros around [.., H, W]: a number, or [left, right, top, bottom]. */
class ZeroPad2d extends Module {
  constructor(padding) {
    super();
    this.padding = times(padding, 4);
  }
  forward(x) {
    return F.constant_pad(x, this.padding, 0);
  }
}

class Dropout extends Module {
  constructor(p = 0.5) {
    super();
    if (!(p >= 0 && p <= 1)) throw new ValueError(`Dropout: p must be between 0 and 1, got ${p}`, 'Dropout');
    this.p = p;
  }
  forward(x) {
    return this.training && this.p > 0 ? F.dropout(x, this.p) : x;
  }
  detail() {
    return detailOf([], { p: this.p });
  }
}
/** Drops whole channels of [N, C, ...]. */
class Dropout2d extends Dropout {
  forward(x) {
    if (!this.training || this.p === 0) return x;
    const mask = F.dropout(T.ones([...x.shape.slice(0, 2), ...new Array(x.ndim - 2).fill(1)], { dtype: x.dtype, device: x.device }), this.p);
    return x.mul(mask);
  }
}
class CosineSimilarity extends Module {
  constructor({ dim = 1, eps = 1e-8 } = {}) {
    super();
    Object.assign(this, { dim, eps });
  }
  forward(a, b) {
    return require('./functional.js').cosineSimilarity(a, b, this);
  }
}

module.exports = {
  Identity, Linear, Bilinear, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Embedding, Flatten, Unflatten, MaxPool1d, MaxPool2d, AvgPool1d,
  AvgPool2d, AdaptiveAvgPool1d, AdaptiveAvgPool2d, Upsample, PixelShuffle, ZeroPad2d, Dropout, Dropout2d, CosineSimilarity,
};
