'use strict';
// Losses as modules: new st.nn.CrossEntropyLoss({labelSmoothing: 0.1}).forward(logits, targets).

const native = require('../native.js');
const { Module, buffer, detailOf } = require('./module.js');
const functional = require('./functional/index.js');
const { kindOf, optionsOf } = require('../arguments.js');
const { ValueError } = require('../errors.js');

// A buffer has PyTorch's name.
const nameOf = (key) => (key === 'posWeight' ? 'pos_weight' : key);
const REDUCTIONS = ['mean', 'sum', 'none'];
/** A module of f(inputs..., options) with these options. Tensors among them are buffers. */
function loss(name, f, allowed, reductions = REDUCTIONS) {
  const defaults = Object.fromEntries([...allowed, 'reduction'].map((key) => [key, undefined]));
  return { [name]: class extends Module {
    constructor(options) {
      super();
      for (const [key, value] of Object.entries(optionsOf(name, options, defaults))) {
        if (value !== undefined) this[nameOf(key)] = value instanceof native.Tensor ? buffer(value) : value;
      }
      if (this.reduction !== undefined && !reductions.includes(this.reduction)) {
        throw new ValueError(`${name}: reduction must be '${reductions.join("', '")}', got ${kindOf(this.reduction)}`, name);
      }
    }
    forward(...inputs) {
      return f(...inputs, Object.fromEntries(Object.keys(defaults).filter((key) => this[nameOf(key)] !== undefined).map((key) => [key, this[nameOf(key)]])));
    }
    detail() {
      return detailOf([], Object.fromEntries(Object.keys(defaults).filter((key) => ['number', 'string', 'boolean'].includes(typeof this[key]))
        .map((key) => [key, this[key]])));
    }
  } }[name];
}

module.exports = {
  CrossEntropyLoss: loss('CrossEntropyLoss', functional.crossEntropy, ['weight', 'ignoreIndex', 'labelSmoothing']),
  NLLLoss: loss('NLLLoss', functional.nllLoss, ['weight', 'ignoreIndex']),
  NLLLoss2d: loss('NLLLoss2d', functional.nllLoss, ['weight', 'ignoreIndex']),
  BCELoss: loss('BCELoss', functional.binaryCrossEntropy, ['weight']),
  BCEWithLogitsLoss: loss('BCEWithLogitsLoss', functional.binaryCrossEntropyWithLogits, ['weight', 'posWeight']),
  KLDivLoss: loss('KLDivLoss', functional.klDiv, ['logTarget'], [...REDUCTIONS, 'batchmean']),
  MSELoss: loss('MSELoss', functional.mseLoss, []),
  L1Loss: loss('L1Loss', functional.l1Loss, []),
  SmoothL1Loss: loss('SmoothL1Loss', functional.smoothL1Loss, ['beta']),
  HuberLoss: loss('HuberLoss', functional.huberLoss, ['delta']),
  PoissonNLLLoss: loss('PoissonNLLLoss', functional.poissonNllLoss, ['logInput', 'full', 'eps']),
  GaussianNLLLoss: loss('GaussianNLLLoss', functional.gaussianNllLoss, ['full', 'eps']),
  SoftMarginLoss: loss('SoftMarginLoss', functional.softMarginLoss, []),
  HingeEmbeddingLoss: loss('HingeEmbeddingLoss', functional.hingeEmbeddingLoss, ['margin']),
  MarginRankingLoss: loss('MarginRankingLoss', functional.marginRankingLoss, ['margin']),
  CosineEmbeddingLoss: loss('CosineEmbeddingLoss', functional.cosineEmbeddingLoss, ['margin']),
  TripletMarginLoss: loss('TripletMarginLoss', functional.tripletMarginLoss, ['margin', 'p', 'eps', 'swap']),
  TripletMarginWithDistanceLoss: loss('TripletMarginWithDistanceLoss', functional.tripletMarginWithDistanceLoss, ['distanceFunction', 'margin', 'swap']),
  MultiMarginLoss: loss('MultiMarginLoss', functional.multiMarginLoss, ['p', 'margin', 'weight']),
  MultiLabelMarginLoss: loss('MultiLabelMarginLoss', functional.multilabelMarginLoss, []),
  MultiLabelSoftMarginLoss: loss('MultiLabelSoftMarginLoss', functional.multilabelSoftMarginLoss, ['weight']),
  CTCLoss: loss('CTCLoss', functional.ctcLoss, ['blank', 'zeroInfinity']),
};
