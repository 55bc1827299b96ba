'use strict';
// Normalisation.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { noGrad } = require('../autograd.js');
const { Module, parameter, buffer, detailOf } = require('./module.js');
const { ValueError } = require('../errors.js');

class LayerNorm extends Module {
  constructor(shape, { eps = 1e-5, bias = true, ...options } = {}) {
    super();
    this.shape = [shape].flat();
    this.eps = eps;
    this.weight = parameter(T.ones(this.shape, options));
    this.bias = bias ? parameter(T.zeros(this.shape, options)) : null;
  }
  forward(x) {
    return F.layer_norm(x, this.shape, this.weight, this.bias, this.eps);
  }
  detail() {
    return detailOf([this.shape]);
  }
}
class RMSNorm extends Module {
  constructor(shape, { eps = 1e-6, ...options } = {}) {
    super();
    this.shape = [shape].flat();
    this.eps = eps;
    this.weight = parameter(T.ones(this.shape, options));
  }
  forward(x) {
    return F.rms_norm(x, this.shape, this.weight, this.eps);
  }
  detail() {
    return detailOf([this.shape]);
  }
}
/** Groups of neighbouring channels of [N, C, ...], each over its items. */
class GroupNorm extends Module {
  constructor(groups, channels, { eps = 1e-5, affine = true, ...options } = {}) {
    super();
    if (channels % groups !== 0) throw new ValueError(`GroupNorm: ${groups} groups do not divide ${channels} channels`, 'GroupNorm');
    Object.assign(this, { groups, channels, eps });
    this.weight = affine ? parameter(T.ones([channels], options)) : null;
    this.bias = affine ? parameter(T.zeros([channels], options)) : null;
  }
  forward(x) {
    return F.group_norm(x, this.groups, this.weight, this.bias, this.eps);
  }
  detail() {
    return detailOf([this.groups, this.channels]);
  }
}
/** Batch normalisation of [N, C, ...]: the batch's statistics in training, running ones in evaluation. */
class BatchNorm extends Module {
  constructor(features, { eps = 1e-5, momentum = 0.1, ...options } = {}) {
    super();
    this.eps = eps;
    this.momentum = momentum;
    this.weight = parameter(T.ones([features], options));
    this.bias = parameter(T.zeros([features], options));
    this.running_mean = buffer(T.zeros([features], options));
    this.running_var = buffer(T.ones([features], options));
  }
  forward(x) {
    if (this.training) {
      const { y, mean, rstd } = F.batch_norm(x, this.weight, this.bias, this.eps);
      noGrad(() => {
        const n = x.numel / this.weight.numel;
        const variance = F.reciprocal(F.square(rstd.detach())).sub(this.eps).mul(n / Math.max(1, n - 1));
        this.running_mean.mul_(1 - this.momentum).add_(mean.detach(), this.momentum);
        this.running_var.mul_(1 - this.momentum).add_(variance, this.momentum);
      });
      return y;
    }
    const shape = [1, this.weight.numel, ...new Array(x.ndim - 2).fill(1)];
    const scale = F.rsqrt(this.running_var.add(this.eps)).mul(this.weight);
    return x.sub(this.running_mean.reshape(shape)).mul(scale.reshape(shape)).add(this.bias.reshape(shape));
  }
  detail() {
    return detailOf([this.weight.numel]);
  }
}
class BatchNorm1d extends BatchNorm {}
class BatchNorm2d extends BatchNorm {}
class BatchNorm3d extends BatchNorm {}
/** Each channel of each item of [N, C, ...] by itself. */
class InstanceNorm extends Module {
  constructor(features, { eps = 1e-5, affine = false, ...options } = {}) {
    super();
    Object.assign(this, { features, eps });
    this.weight = affine ? parameter(T.ones([features], options)) : null;
    this.bias = affine ? parameter(T.zeros([features], options)) : null;
  }
  forward(x) {
    return F.group_norm(x, this.features, this.weight, this.bias, this.eps);
  }
  detail() {
    return detailOf([this.features]);
  }
}
class InstanceNorm1d extends InstanceNorm {}
class InstanceNorm2d extends InstanceNorm {}

module.exports = { LayerNorm, RMSNorm, GroupNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d };
