'use strict';
// Losses as modules: new st.nn.CrossEntropyLoss({labelSmoothing: 0.1}).forward(logits, targets).

const { functions: F } = require('../ops.js');
const { Module, buffer, detailOf } = require('./module.js');
const functional = require('./functional.js');
const { ValueError } = require('../errors.js');

/** A module of f(inputs..., options), whose options are `allowed`. Tensors among them are buffers. */
function loss(name, allowed, f) {
  return { [name]: class extends Module {
    constructor(options = {}) {
      super();
      for (const [key, value] of Object.entries(options)) {
        if (!allowed.includes(key)) throw new ValueError(`${name}: there is no option '${key}'`, name);
        this[key] = value !== null && typeof value === 'object' ? buffer(value) : value;
      }
    }
    forward(...inputs) {
      return f(...inputs, Object.fromEntries(allowed.filter((key) => this[key] !== undefined).map((key) => [key, this[key]])));
    }
    detail() {
      return detailOf([], Object.fromEntries(allowed.filter((key) => typeof this[key] !== 'object').map((key) => [key, this[key]])));
    }
  } }[name];
}

module.exports = {
  CrossEntropyLoss: loss('CrossEntropyLoss', ['weight', 'ignoreIndex', 'reduction', 'labelSmoothing'], functional.crossEntropy),
  NLLLoss: loss('NLLLoss', ['weight', 'ignoreIndex', 'reduction'], functional.nllLoss),
  BCELoss: loss('BCELoss', ['weight', 'reduction'], functional.binaryCrossEntropy),
  BCEWithLogitsLoss: loss('BCEWithLogitsLoss', ['weight', 'posWeight', 'reduction'], functional.binaryCrossEntropyWithLogits),
  KLDivLoss: loss('KLDivLoss', ['reduction', 'logTarget'], functional.klDiv),
  MSELoss: loss('MSELoss', ['reduction'], (x, t, o) => F.mse_loss(x, t, o)),
  L1Loss: loss('L1Loss', ['reduction'], (x, t, o) => F.l1_loss(x, t, o)),
  SmoothL1Loss: loss('SmoothL1Loss', ['reduction', 'beta'], (x, t, o) => F.smooth_l1_loss(x, t, o)),
  HuberLoss: loss('HuberLoss', ['reduction', 'delta'], (x, t, o) => F.huber_loss(x, t, o)),
  TripletMarginLoss: loss('TripletMarginLoss', ['margin', 'p', 'eps', 'reduction'], functional.tripletMarginLoss),
  CosineEmbeddingLoss: loss('CosineEmbeddingLoss', ['margin', 'reduction'], functional.cosineEmbeddingLoss),
  MarginRankingLoss: loss('MarginRankingLoss', ['margin', 'reduction'], functional.marginRankingLoss),
};
