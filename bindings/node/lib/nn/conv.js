'use strict';
// Convolutions, and windows as columns. Parameters have the names, the shapes and the first values that PyTorch gives them.

const functional = require('./functional/index.js');
const { Module, detailOf } = require('./module.js');
const { MADE, madeOf, uniform, redraw, wantCounts } = require('./parts.js');
const { ints, optionsOf, wantOneOf, wantTensor } = require('../arguments.js');
const { ShapeError, ValueError } = require('../errors.js');

/** Of `n` dimensions, forward or transposed. */
class Conv extends Module {
  constructor(n, isTransposed, inChannels, outChannels, kernelSize, given) {
    super();
    const name = new.target.name;
    const o = optionsOf(name, given, { stride: 1, padding: 0, ...(isTransposed ? { outputPadding: 0 } : { paddingMode: 'zeros' }), dilation: 1, groups: 1, bias: true,
      ...MADE });
    wantCounts(name, { inChannels, outChannels, groups: o.groups });
    if (inChannels % o.groups !== 0 || outChannels % o.groups !== 0) {
      throw new ValueError(`${name}: ${o.groups} groups do not divide ${inChannels} and ${outChannels} channels`, name);
    }
    const kernel = ints(kernelSize, n, name, 'kernelSize');
    if (kernel.some((k) => k < 1)) throw new ValueError(`${name}: kernelSize must be at least 1, got [${kernel.join(', ')}]`, name);
    const text = !isTransposed && typeof o.padding === 'string';
    const padding = text ? wantOneOf(o.padding, ['same', 'valid'], name, 'padding') : ints(o.padding, n, name, 'padding');
    Object.assign(this, { inChannels, outChannels, kernelSize: kernel });
    this.options = { stride: ints(o.stride, n, name, 'stride'), padding, dilation: ints(o.dilation, n, name, 'dilation'), groups: o.groups };
    if (isTransposed) this.options.outputPadding = ints(o.outputPadding, n, name, 'outputPadding');
    else this.paddingMode = wantOneOf(o.paddingMode, ['zeros', 'reflect', 'replicate', 'circular'], name, 'paddingMode');
    const shape = isTransposed ? [inChannels, outChannels / o.groups, ...kernel] : [outChannels, inChannels / o.groups, ...kernel];
    const bound = 1 / Math.sqrt(shape.slice(1).reduce((a, b) => a * b, 1));
    this.weight = uniform(shape, bound, madeOf(o));
    this.bias = o.bias ? uniform([outChannels], bound, madeOf(o)) : null;
  }
  /** Draws the parameters again, uniform in +- 1 / sqrt(fan in). */
  resetParameters() {
    redraw(1 / Math.sqrt(this.weight.numel / this.weight.shape[0]), this.weight, this.bias);
  }
  detail() {
    const usual = { stride: 1, padding: 0, outputPadding: 0, dilation: 1, groups: 1 };
    const others = Object.entries(this.options).filter(([key, v]) => [v].flat().some((x) => x !== usual[key]));
    return detailOf([this.inChannels, this.outChannels, this.kernelSize], { ...Object.fromEntries(others), bias: this.bias ? undefined : false,
      paddingMode: (this.paddingMode ?? 'zeros') === 'zeros' ? undefined : this.paddingMode });
  }
}
const conv = (n) => ({ [`Conv${n}d`]: class extends Conv {
  constructor(inChannels, outChannels, kernelSize, options) {
    super(n, false, inChannels, outChannels, kernelSize, options);
  }
  forward(x) {
    const f = functional[`conv${n}d`];
    if (this.paddingMode === 'zeros') return f(x, this.weight, this.bias, this.options);
    const { padding, ...options } = this.options;
    const pads = [];
    for (let i = n - 1; i >= 0; --i) {
      const total = padding === 'same' ? options.dilation[i] * (this.kernelSize[i] - 1) : padding === 'valid' ? 0 : 2 * padding[i];
      pads.push(Math.floor(total / 2), total - Math.floor(total / 2));
    }
    return f(functional.pad(x, pads, { mode: this.paddingMode }), this.weight, this.bias, options);
  }
} })[`Conv${n}d`];
const transposed = (n) => ({ [`ConvTranspose${n}d`]: class extends Conv {
  constructor(inChannels, outChannels, kernelSize, options) {
    super(n, true, inChannels, outChannels, kernelSize, options);
  }
  /** outputSize chooses among the sizes that the stride leaves open, in place of outputPadding. */
  forward(x, outputSize) {
    const name = this.constructor.name;
    const options = { ...this.options };
    if (outputSize !== undefined && outputSize !== null) {
      const size = ints(Array.isArray(outputSize) ? outputSize.slice(-n) : outputSize, n, name, 'outputSize');
      const spatial = wantTensor(x, name).shape.slice(-n);
      const least = spatial.map((s, i) => (s - 1) * options.stride[i] - 2 * options.padding[i] + options.dilation[i] * (this.kernelSize[i] - 1) + 1);
      options.outputPadding = size.map((s, i) => s - least[i]);
      if (options.outputPadding.some((v, i) => v < 0 || v >= options.stride[i])) {
        throw new ShapeError(`${name}: an outputSize of [${size.join(', ')}] is not between [${least.join(', ')}] and ` +
          `[${least.map((v, i) => v + options.stride[i] - 1).join(', ')}]`, name);
      }
    }
    return functional[`convTranspose${n}d`](x, this.weight, this.bias, options);
  }
} })[`ConvTranspose${n}d`];

const WINDOWS = { dilation: 1, padding: 0, stride: 1 };
/** Windows of [N, C, H, W] as columns: [N, C kh kw, windows]. */
class Unfold extends Module {
  constructor(kernelSize, options) {
    super();
    this.kernelSize = ints(kernelSize, 2, 'Unfold', 'kernelSize');
    this.options = optionsOf('Unfold', options, WINDOWS);
  }
  forward(x) {
    return functional.unfold(x, this.kernelSize, this.options);
  }
  detail() {
    return detailOf([], { kernelSize: this.kernelSize, ...this.options });
  }
}
/** Adds up the columns of Unfold where they came from: [N, C, ...outputSize]. */
class Fold extends Module {
  constructor(outputSize, kernelSize, options) {
    super();
    this.outputSize = ints(outputSize, 2, 'Fold', 'outputSize');
    this.kernelSize = ints(kernelSize, 2, 'Fold', 'kernelSize');
    this.options = optionsOf('Fold', options, WINDOWS);
  }
  forward(x) {
    return functional.fold(x, this.outputSize, this.kernelSize, this.options);
  }
  detail() {
    return detailOf([], { outputSize: this.outputSize, kernelSize: this.kernelSize, ...this.options });
  }
}

module.exports = {
  Conv1d: conv(1), Conv2d: conv(2), Conv3d: conv(3), ConvTranspose1d: transposed(1), ConvTranspose2d: transposed(2), ConvTranspose3d: transposed(3),
  Unfold, Fold,
};
