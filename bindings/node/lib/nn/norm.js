'use strict';
// Normalisation.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { noGrad } = require('../autograd.js');
const functional = require('./functional/index.js');
const { Module, buffer, detailOf } = require('./module.js');
const { MADE, madeOf, filled, wantCounts } = require('./parts.js');
const { init } = require('./init.js');
const { kindOf, optionsOf, wantCount, wantNumber, wantTensor } = require('../arguments.js');
const { ShapeError, ValueError } = require('../errors.js');

/** A norm with a weight and a bias, either of which may be null. */
class Affine extends Module {
  /** weight 1, bias 0. */
  resetParameters() {
    if (this.weight) init.ones_(this.weight);
    if (this.bias) init.zeros_(this.bias);
  }
}
function shapeOf(shape, name) {
  const list = [shape].flat();
  if (list.length === 0 || !list.every((v) => Number.isSafeInteger(v) && v > 0)) {
    throw new ValueError(`${name}: the shape wants positive whole numbers, got ${Array.isArray(shape) ? `[${list.map(String).join(', ')}]` : kindOf(shape)}`, name);
  }
  return list;
}
/** The last dimensions to mean 0 and variance 1. */
class LayerNorm extends Affine {
  constructor(shape, options) {
    super();
    const o = optionsOf('LayerNorm', options, { eps: 1e-5, elementwiseAffine: true, bias: true, ...MADE });
    this.shape = shapeOf(shape, 'LayerNorm');
    this.eps = wantNumber(o.eps, 'LayerNorm', 'eps');
    this.weight = filled(o.elementwiseAffine, this.shape, 1, madeOf(o));
    this.bias = filled(o.elementwiseAffine && o.bias, this.shape, 0, madeOf(o));
  }
  forward(x) {
    return F.layer_norm(x, this.shape, this.weight, this.bias, this.eps);
  }
  detail() {
    return detailOf([this.shape]);
  }
}
/** The last dimensions over their root mean square. */
class RMSNorm extends Affine {
  constructor(shape, options) {
    super();
    const o = optionsOf('RMSNorm', options, { eps: 1e-6, elementwiseAffine: true, ...MADE });
    this.shape = shapeOf(shape, 'RMSNorm');
    this.eps = wantNumber(o.eps, 'RMSNorm', 'eps');
    this.weight = filled(o.elementwiseAffine, this.shape, 1, madeOf(o));
  }
  forward(x) {
    return F.rms_norm(x, this.shape, this.weight, this.eps);
  }
  detail() {
    return detailOf([this.shape]);
  }
}
/** Groups of neighbouring channels of [N, C, ...], each over its items. */
class GroupNorm extends Affine {
  constructor(groups, channels, options) {
    super();
    const o = optionsOf('GroupNorm', options, { eps: 1e-5, affine: true, ...MADE });
    wantCounts('GroupNorm', { groups, channels });
    if (channels % groups !== 0) throw new ValueError(`GroupNorm: ${groups} groups do not divide ${channels} channels`, 'GroupNorm');
    Object.assign(this, { groups, channels, eps: wantNumber(o.eps, 'GroupNorm', 'eps') });
    this.weight = filled(o.affine, [channels], 1, madeOf(o));
    this.bias = filled(o.affine, [channels], 0, madeOf(o));
  }
  forward(x) {
    return F.group_norm(x, this.groups, this.weight, this.bias, this.eps);
  }
  detail() {
    return detailOf([this.groups, this.channels]);
  }
}
/** A norm with running statistics, of inputs with one of `ranks` numbers of dimensions. */
class Running extends Affine {
  constructor(features, ranks, options, defaults) {
    super();
    const name = new.target.name;
    const o = optionsOf(name, options, { eps: 1e-5, momentum: 0.1, ...defaults, ...MADE });
    Object.assign(this, { features: wantCount(features, name, 'features'), eps: wantNumber(o.eps, name, 'eps'),
      momentum: o.momentum === null ? null : wantNumber(o.momentum, name, 'momentum'), trackRunningStats: Boolean(o.trackRunningStats) });
    Object.defineProperty(this, 'ranks', { value: ranks });
    this.weight = filled(o.affine, [features], 1, madeOf(o));
    this.bias = filled(o.affine, [features], 0, madeOf(o));
    const tracked = (t) => (o.trackRunningStats ? buffer(t()) : null);
    this.running_mean = tracked(() => T.zeros([features], madeOf(o)));
    this.running_var = tracked(() => T.ones([features], madeOf(o)));
    this.num_batches_tracked = tracked(() => T.zeros([], { dtype: 'i64', device: o.device }));
  }
  /** Mean 0 and variance 1, of no batches. */
  resetRunningStats() {
    if (!this.running_mean) return;
    noGrad(() => {
      this.running_mean.fill_(0);
      this.running_var.fill_(1);
      this.num_batches_tracked.fill_(0);
    });
  }
  resetParameters() {
    this.resetRunningStats();
    super.resetParameters();
  }
  wantInput(x) {
    const { name } = this.constructor;
    if (!this.ranks.includes(wantTensor(x, name).ndim)) {
      throw new ShapeError(`${name}: wants ${this.ranks.join(' or ')} dimensions, got [${x.shape.join(', ')}]`, name);
    }
  }
  detail() {
    return detailOf([this.features]);
  }
}
/**
 * Batch normalisation of [N, C, ...]: the batch's statistics in training, running ones in evaluation. A momentum of null keeps the
 * plain mean over all batches.
 */
const batchNorm = (name, ranks) => ({ [name]: class extends Running {
  constructor(features, options) {
    super(features, ranks, options, { affine: true, trackRunningStats: true });
  }
  forward(x) {
    this.wantInput(x);
    let momentum = this.momentum ?? 0;
    const count = this.num_batches_tracked;
    if (this.training && count) {
      noGrad(() => count.add_(1));
      if (this.momentum === null) momentum = 1 / Number(count.item());
    }
    return functional.batchNorm(x, this.running_mean, this.running_var, this.weight, this.bias,
      { training: this.training || !this.running_mean, momentum, eps: this.eps });
  }
} })[name];
/** Each channel of each item of [N, C, ...] (or [C, ...]) by itself. */
const instanceNorm = (name, ranks) => ({ [name]: class extends Running {
  constructor(features, options) {
    super(features, ranks, options, { affine: false, trackRunningStats: false });
  }
  forward(x) {
    this.wantInput(x);
    const single = x.ndim === ranks[0];
    const y = functional.instanceNorm(single ? x.unsqueeze(0) : x, this.running_mean, this.running_var, this.weight, this.bias,
      { useInputStats: this.training || !this.trackRunningStats, momentum: this.momentum ?? 0.1, eps: this.eps });
    return single ? y.squeeze(0) : y;
  }
} })[name];
/** [N, C, ..] over (k + alpha times the mean of the squares of `size` channels around)^beta. */
class LocalResponseNorm extends Module {
  constructor(size, options) {
    super();
    this.size = wantCount(size, 'LocalResponseNorm', 'size');
    Object.assign(this, optionsOf('LocalResponseNorm', options, { alpha: 1e-4, beta: 0.75, k: 1 }));
  }
  forward(x) {
    return functional.localResponseNorm(x, this.size, { alpha: this.alpha, beta: this.beta, k: this.k });
  }
  detail() {
    return detailOf([this.size], { alpha: this.alpha, beta: this.beta, k: this.k });
  }
}

module.exports = {
  LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm,
  BatchNorm1d: batchNorm('BatchNorm1d', [2, 3]), BatchNorm2d: batchNorm('BatchNorm2d', [4]), BatchNorm3d: batchNorm('BatchNorm3d', [5]),
  InstanceNorm1d: instanceNorm('InstanceNorm1d', [2, 3]), InstanceNorm2d: instanceNorm('InstanceNorm2d', [3, 4]),
  InstanceNorm3d: instanceNorm('InstanceNorm3d', [4, 5]),
};
