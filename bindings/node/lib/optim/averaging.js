'use strict';
// Means of a model's weights over training, by what nn::AveragedModel takes (strata/nn/averaging.h).

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const native = require('../native.js');
const { noGrad } = require('../autograd.js');
const { Module, buffer } = require('../nn/module.js');
const { kindOf, optionsOf } = require('../arguments.js');
const { ShapeError, ValueError } = require('../errors.js');

/** decay times the mean so far plus 1 - decay times the new value. */
function emaAverage(decay = 0.999) {
  if (typeof decay !== 'number' || !(decay >= 0 && decay <= 1)) throw new ValueError(`emaAverage: decay must be between 0 and 1, got ${kindOf(decay)}`, 'emaAverage');
  return inLists((mean, value) => F.lerp(mean, value, 1 - decay), decay);
}
/** The plain mean of all values, of which there were `count` before. */
const swaAverage = () => inLists((mean, value, count) => F.lerp(mean, value, 1 / (count + 1)), null);
/** An average that also takes lists of tensors in place, all at once. */
const inLists = (average, decay) =>
  Object.defineProperty(average, 'lists', { value: (means, values, count) => native.updateAverages(means, values, count, decay) });

/**
 * A model's means: `module`, a second module like it, holds them, and updateParameters(model) takes its values in. average(mean, value,
 * count): the plain mean when left out. Buffers are copied, or averaged with {useBuffers}.
 */
class AveragedModel extends Module {
  constructor(module, options) {
    super();
    if (!(module instanceof Module)) throw new ValueError(`AveragedModel: needs a module that holds the means, got ${kindOf(module)}`, 'AveragedModel');
    const { average, useBuffers } = optionsOf('AveragedModel', options, { average: swaAverage(), useBuffers: false });
    if (typeof average !== 'function') throw new ValueError(`AveragedModel: average must be a function, got ${kindOf(average)}`, 'AveragedModel');
    this.module = module;
    this.n_averaged = buffer(T.zeros([], { dtype: 'i64' }));
    Object.defineProperty(this, 'average', { value: average });
    Object.defineProperty(this, 'useBuffers', { value: Boolean(useBuffers) });
  }
  forward(...args) {
    return this.module.forward(...args);
  }
  updateParameters(model) {
    if (!(model instanceof Module) || model === this.module) throw new ValueError('AveragedModel: updateParameters() wants the model, another module than that of the means', 'AveragedModel');
    const averaged = [this.module.parameters(), model.parameters()];
    const copied = [this.module.buffers(), model.buffers()];
    for (const [means, values] of [averaged, copied]) {
      if (means.map((t) => t.shape.join()).join(';') !== values.map((t) => t.shape.join()).join(';')) {
        throw new ShapeError('AveragedModel: the model and the module of the means have different parameters or buffers', 'AveragedModel');
      }
    }
    const count = Number(this.n_averaged.item());
    const floating = (t) => t.dtype === 'bf16' || t.dtype.startsWith('f');
    const one = (mean, value) => {
      const from = value.detach().to(mean.device);
      mean.detach().copy_(floating(mean) ? this.average(mean.detach(), from, count) : from);
    };
    noGrad(() => {
      for (const [[means, values], mixes] of [[averaged, true], [copied, this.useBuffers]]) {
        if (!mixes || count === 0) native.updateAverages(means, values, 0);
        else if (this.average.lists) this.average.lists(means, values, count);
        else means.forEach((mean, i) => one(mean, values[i]));
      }
      this.n_averaged.add_(1);
    });
  }
}
/** The running statistics of the model's batch norms over the batches of a loader, from the start. The loader may be async. */
async function updateBn(loader, model) {
  if (!(model instanceof Module)) throw new ValueError(`updateBn: needs a module, got ${kindOf(model)}`, 'updateBn');
  if (typeof loader?.[Symbol.iterator] !== 'function' && typeof loader?.[Symbol.asyncIterator] !== 'function') {
    throw new ValueError(`updateBn: needs a loader of batches, got ${kindOf(loader)}`, 'updateBn');
  }
  const norms = model.modules().filter((m) => typeof m.resetRunningStats === 'function' && m.running_mean);
  if (norms.length === 0) return;
  const momenta = norms.map((m) => m.momentum);
  const modes = model.modules().map((m) => [m, m.training]);
  try {
    model.train();
    for (const m of norms) {
      m.resetRunningStats();
      m.momentum = null;
    }
    for await (const batch of loader) {
      const x = Array.isArray(batch) ? batch[0] : batch;
      if (!(x instanceof native.Tensor)) throw new ValueError(`updateBn: a batch must be a Tensor or an array that begins with one, got ${kindOf(x)}`, 'updateBn');
      noGrad(() => { model.forward(x); });
    }
  } finally {
    norms.forEach((m, i) => { m.momentum = momenta[i]; });
    for (const [m, training] of modes) m.training = training;
  }
}

module.exports = { AveragedModel, emaAverage, swaAverage, updateBn };
