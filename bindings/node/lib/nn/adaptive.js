'use strict';
// A softmax for very many classes: the records adaptive_log_softmax, adaptive_log_prob and adaptive_predict.

const { functions: F } = require('../ops.js');
const { Module, detailOf } = require('./module.js');
const { Linear } = require('./layers.js');
const { ModuleList, Sequential } = require('./container.js');
const { MADE, wantCounts } = require('./parts.js');
const { kindOf, optionsOf, wantNumber, wantTensor } = require('../arguments.js');
const { ValueError } = require('../errors.js');

/**
 * Classes sorted from frequent to rare: those before the first of `cutoffs` get a score each from the head, the others one for their
 * cluster, and within it from a tail of {divValue} times fewer features than the one before (Grave et al., arXiv:1609.04309).
 * forward(x [N, inFeatures], target [N]): {output, loss}, the log-probabilities of the targets and their negated mean.
 */
class AdaptiveLogSoftmaxWithLoss extends Module {
  constructor(inFeatures, nClasses, cutoffs, options) {
    super();
    const name = 'AdaptiveLogSoftmaxWithLoss';
    const { divValue, headBias, ...made } = optionsOf(name, options, { divValue: 4, headBias: false, ...MADE });
    wantCounts(name, { inFeatures, nClasses });
    const ends = Array.isArray(cutoffs) ? [...cutoffs, nClasses] : [];
    if (ends.length < 2 || !ends.every((end, i) => Number.isSafeInteger(end) && end > (i ? ends[i - 1] : 0))) {
      throw new ValueError(`${name}: cutoffs must be ascending whole numbers between 1 and ${nClasses - 1}, got ${Array.isArray(cutoffs) ? `[${cutoffs.map(String).join(', ')}]` : kindOf(cutoffs)}`, name);
    }
    if (!(wantNumber(divValue, name, 'divValue') > 0)) throw new ValueError(`${name}: divValue must be positive, got ${divValue}`, name);
    this.cutoffs = ends;
    this.head = new Linear(inFeatures, ends[0] + ends.length - 1, { bias: Boolean(headBias), ...made });
    this.tail = new ModuleList(ends.slice(1).map((end, i) => {
      const features = Math.floor(inFeatures / divValue ** (i + 1));
      return new Sequential(new Linear(inFeatures, features, { bias: false, ...made }), new Linear(features, end - ends[i], { bias: false, ...made }));
    }));
  }
  /** Draws the parameters again. */
  resetParameters() {
    for (const layer of this.modules()) if (layer instanceof Linear) layer.resetParameters();
  }
  #layers() {
    return [this.head.weight, this.head.bias, [...this.tail].flatMap((layers) => [...layers].map((layer) => layer.weight)), this.cutoffs];
  }
  forward(x, target) {
    const name = 'AdaptiveLogSoftmaxWithLoss';
    const output = F.adaptive_log_softmax(wantTensor(x, name, 'x'), wantTensor(target, name, 'target'), ...this.#layers());
    return { output, loss: F.neg(F.mean(output)) };
  }
  /** The log-probabilities of all classes: [N, nClasses]. */
  logProb(x) {
    return F.adaptive_log_prob(wantTensor(x, 'AdaptiveLogSoftmaxWithLoss', 'x'), ...this.#layers());
  }
  /** The most probable classes: [N]. */
  predict(x) {
    return F.adaptive_predict(wantTensor(x, 'AdaptiveLogSoftmaxWithLoss', 'x'), ...this.#layers());
  }
  detail() {
    return detailOf([this.head.weight.shape[1], this.cutoffs.at(-1), this.cutoffs.slice(0, -1)]);
  }
}

module.exports = { AdaptiveLogSoftmaxWithLoss };
