'use strict';
// Pooling, resizing, padding, what moves channels.

const functional = require('./functional/index.js');
const { Module, detailOf } = require('./module.js');
const { ints, kindOf, optionsOf, wantCount, wantNumber, wantOneOf } = require('../arguments.js');
const { ValueError } = require('../errors.js');

const each = (names, make) => Object.fromEntries(names.flatMap((name) => [1, 2, 3].map((n) => [`${name}${n}d`, make(`${name}${n}d`, n)])));
const functionOf = (name) => functional[name.replace(/^LP/, 'lp').replace(/^[A-Z]/, (c) => c.toLowerCase())];
// The records' names of two options are taken, too.
const renamed = (options) => (options === null || typeof options !== 'object' ? options
  : Object.fromEntries(Object.entries(options).map(([key, v]) => [{ ceil_mode: 'ceilMode', count_include_pad: 'countIncludePad' }[key] ?? key, v])));

/** A module of f(x, ...required, options) over windows. */
const pool = (required, defaults) => (name, n) => ({ [name]: class extends Module {
  constructor(...args) {
    super();
    required.forEach((key, i) => {
      const v = args[i];
      if (v === undefined || v === null) throw new ValueError(`${name}: needs ${key}, got ${kindOf(v)}`, name);
      this[key] = key === 'kernelSize' ? ints(v, n, name, key) : v;
    });
    if (args.length > required.length + 1) throw new ValueError(`${name}: takes at most ${required.length + 1} arguments, got ${args.length}`, name);
    this.options = optionsOf(name, renamed(args[required.length]), n === 1 ? defaults : { ...defaults, ...('countIncludePad' in defaults ? { divisorOverride: null } : {}) });
    const { stride, padding, dilation } = this.options;
    for (const [key, v] of Object.entries({ stride, padding, dilation })) if (v !== undefined && v !== null) this.options[key] = ints(v, n, name, key);
  }
  forward(x) {
    return functionOf(name)(x, ...required.map((key) => this[key]), this.options);
  }
  detail() {
    const { stride, padding } = this.options;
    return detailOf([], { ...Object.fromEntries(required.map((key) => [key, this[key]])), stride: stride ?? this.kernelSize, padding });
  }
} })[name];
const maxUnpool = (name, n) => ({ [name]: class extends Module {
  constructor(kernelSize, options) {
    super();
    this.kernelSize = ints(kernelSize, n, name, 'kernelSize');
    const { stride, padding } = optionsOf(name, options, { stride: null, padding: 0 });
    this.options = { stride: stride === null ? this.kernelSize : ints(stride, n, name, 'stride'), padding: ints(padding, n, name, 'padding') };
  }
  forward(x, indices, outputSize) {
    return functionOf(name)(x, indices, this.kernelSize, { ...this.options, outputSize: outputSize ?? null });
  }
  detail() {
    return detailOf([], { kernelSize: this.kernelSize, ...this.options });
  }
} })[name];
/** Windows chosen so that the result has the size that is wanted; null keeps a dimension. */
const adaptive = (defaults) => (name, n) => ({ [name]: class extends Module {
  constructor(size, options) {
    super();
    const list = Array.isArray(size) ? size : new Array(n).fill(size);
    if (list.length !== n || !list.every((v) => v === null || (Number.isSafeInteger(v) && v >= 0))) {
      throw new ValueError(`${name}: the size wants one or ${n} whole numbers, or null for that of the input, got ${Array.isArray(size) ? `[${list.map(String).join(', ')}]` : kindOf(size)}`, name);
    }
    this.size = list;
    this.options = optionsOf(name, options, defaults);
  }
  forward(x) {
    return functionOf(name)(x, this.size, this.options);
  }
  detail() {
    return detailOf([this.size]);
  }
} })[name];

/** Maxima of windows that begin at random steps, so that the result has {outputSize}, or {outputRatio} of the input's size. */
const fractional = (name, n) => ({ [name]: class extends Module {
  constructor(kernelSize, options) {
    super();
    this.kernelSize = ints(kernelSize, n, name, 'kernelSize');
    this.options = optionsOf(name, options, { outputSize: null, outputRatio: null, returnIndices: false });
    const { outputSize, outputRatio } = this.options;
    if ((outputSize === null) === (outputRatio === null)) throw new ValueError(`${name}: needs either outputSize or outputRatio`, name);
    if (outputSize !== null) this.options.outputSize = ints(outputSize, n, name, 'outputSize');
    for (const ratio of outputRatio === null ? [] : [outputRatio].flat()) {
      if (!(wantNumber(ratio, name, 'outputRatio') > 0 && ratio < 1)) throw new ValueError(`${name}: outputRatio must be between 0 and 1, got ${ratio}`, name);
    }
  }
  forward(x) {
    return functionOf(name)(x, this.kernelSize, this.options);
  }
  detail() {
    return detailOf([], { kernelSize: this.kernelSize, ...this.options });
  }
} })[name];

/** Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W] to {size} or by {scaleFactor}. */
class Upsample extends Module {
  constructor(options) {
    super();
    const name = new.target.name;
    Object.assign(this, optionsOf(name, options, { size: null, scaleFactor: null, mode: 'nearest', alignCorners: null, recomputeScaleFactor: false }));
    wantOneOf(this.mode, ['nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear', 'bicubic', 'area'], name, 'mode');
    if ((this.size === null) === (this.scaleFactor === null)) throw new ValueError(`${name}: needs either size or scaleFactor`, name);
    if (this.alignCorners === false && ['nearest', 'nearest-exact', 'area'].includes(this.mode)) this.alignCorners = null;
  }
  forward(x) {
    const { size, scaleFactor, mode, alignCorners, recomputeScaleFactor } = this;
    return functional.interpolate(x, { size, scaleFactor, mode, alignCorners, recomputeScaleFactor });
  }
  detail() {
    return detailOf([], { size: this.size, scaleFactor: this.scaleFactor, mode: this.mode });
  }
}
/** Upsample with mode 'nearest'. */
class UpsamplingNearest2d extends Upsample {
  constructor(options) {
    super({ ...optionsOf('UpsamplingNearest2d', options, { size: null, scaleFactor: null }), mode: 'nearest' });
  }
}
/** Upsample with mode 'bilinear' and aligned corners. */
class UpsamplingBilinear2d extends Upsample {
  constructor(options) {
    super({ ...optionsOf('UpsamplingBilinear2d', options, { size: null, scaleFactor: null }), mode: 'bilinear', alignCorners: true });
  }
}
/** A module of f(x, count). */
const ofCount = (name, key) => ({ [name]: class extends Module {
  constructor(count) {
    super();
    this[key] = wantCount(count, name, key);
  }
  forward(x) {
    return functionOf(name)(x, this[key]);
  }
  detail() {
    return detailOf([this[key]]);
  }
} })[name];

/** Around the last n dimensions: one number, or [left, right, top, bottom, ...]. */
const padding = (mode) => (name, n) => ({ [name]: class extends Module {
  constructor(width, value = 0) {
    super();
    this.padding = ints(width, 2 * n, name, 'padding');
    if (mode === 'value' && typeof value !== 'number') throw new ValueError(`${name}: value must be a number, got ${kindOf(value)}`, name);
    this.value = mode === 'value' ? value : 0;
  }
  forward(x) {
    return functional.pad(x, this.padding, { mode: mode === 'value' ? 'constant' : mode, value: this.value });
  }
  detail() {
    return detailOf([this.padding], mode === 'value' ? { value: this.value } : {});
  }
} })[name];

module.exports = {
  ...each(['MaxPool'], pool(['kernelSize'], { stride: null, padding: 0, dilation: 1, ceilMode: false, returnIndices: false })),
  ...each(['AvgPool'], pool(['kernelSize'], { stride: null, padding: 0, ceilMode: false, countIncludePad: true })),
  ...each(['LPPool'], pool(['normType', 'kernelSize'], { stride: null, ceilMode: false })),
  ...each(['MaxUnpool'], maxUnpool),
  ...each(['AdaptiveAvgPool'], adaptive({})),
  ...each(['AdaptiveMaxPool'], adaptive({ returnIndices: false })),
  FractionalMaxPool2d: fractional('FractionalMaxPool2d', 2), FractionalMaxPool3d: fractional('FractionalMaxPool3d', 3),
  ...each(['ZeroPad'], padding('constant')),
  ...each(['ConstantPad'], padding('value')),
  ...each(['ReflectionPad'], padding('reflect')),
  ...each(['ReplicationPad'], padding('replicate')),
  ...each(['CircularPad'], padding('circular')),
  Upsample, UpsamplingNearest2d, UpsamplingBilinear2d,
  PixelShuffle: ofCount('PixelShuffle', 'upscaleFactor'), PixelUnshuffle: ofCount('PixelUnshuffle', 'downscaleFactor'),
  ChannelShuffle: ofCount('ChannelShuffle', 'groups'),
};
