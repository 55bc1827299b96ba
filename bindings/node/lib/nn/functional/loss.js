'use strict';
// Losses and distances: the records with their options by name.

const { functions: F } = require('../../ops.js');
const T = require('../../tensor.js');
const native = require('../../native.js');
const { define, kindOf } = require('../../arguments.js');
const { ValueError } = require('../../errors.js');

const camel = (name) => name.replace(/_([a-z0-9])/g, (all, c) => c.toUpperCase());
/** The function of a record: its leading arguments by position, its options by name, in the record's order. */
const shell = (record, leading, defaults) => define(camel(record), leading, defaults, (...args) => {
  const options = args.pop();
  return F[record](...args, ...Object.values(options));
});
const REDUCED = { reduction: 'mean' };

/**
 * Connectionist temporal classification of logProbs [T, N, C] (or [T, C]): targets [N, S] or one after the other; lengths are
 * tensors or arrays of numbers.
 */
const ctcLoss = define('ctcLoss', ['logProbs', 'targets', 'inputLengths*', 'targetLengths*'], { blank: 0, reduction: 'mean', zeroInfinity: false },
  (logProbs, targets, inputLengths, targetLengths, o) => {
    const lengths = (v) => {
      const t = v instanceof native.Tensor ? v : T.tensor(v, { dtype: 'i64' });
      return t.to('i64').to(logProbs.device);
    };
    return F.ctc_loss(logProbs, targets.to(logProbs.device), lengths(inputLengths), lengths(targetLengths), o.blank, o.reduction, o.zeroInfinity);
  });
const pairwiseDistance = shell('pairwise_distance', ['x1', 'x2'], { p: 2, eps: 1e-6, keepdim: false });
/** max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance. */
const tripletMarginWithDistanceLoss = define('tripletMarginWithDistanceLoss', ['anchor', 'positive', 'negative'], { distanceFunction: null, margin: 1,
  swap: false, reduction: 'mean' }, (anchor, positive, negative, o) => {
  const distance = o.distanceFunction ?? ((a, b) => pairwiseDistance(a, b));
  if (typeof distance !== 'function') {
    throw new ValueError(`tripletMarginWithDistanceLoss: distanceFunction must be a function, got ${kindOf(distance)}`, 'tripletMarginWithDistanceLoss');
  }
  return F.triplet_margin_of_distances(distance(anchor, positive), distance(anchor, negative), o.swap ? distance(positive, negative) : null,
    o.margin, o.reduction);
});

module.exports = {
  shell,
  crossEntropy: shell('cross_entropy', ['x', 'target'], { weight: null, ignoreIndex: -100, reduction: 'mean', labelSmoothing: 0 }),
  nllLoss: shell('nll_loss', ['x', 'target'], { weight: null, ignoreIndex: -100, reduction: 'mean' }),
  binaryCrossEntropy: shell('binary_cross_entropy', ['p', 'target'], { weight: null, reduction: 'mean' }),
  binaryCrossEntropyWithLogits: shell('binary_cross_entropy_with_logits', ['x', 'target'], { weight: null, reduction: 'mean', posWeight: null }),
  klDiv: shell('kl_div', ['x', 'target'], { reduction: 'mean', logTarget: false }),
  mseLoss: shell('mse_loss', ['x', 'target'], { reduction: 'mean', weight: null }),
  l1Loss: shell('l1_loss', ['x', 'target'], { reduction: 'mean', weight: null }),
  smoothL1Loss: shell('smooth_l1_loss', ['x', 'target'], { reduction: 'mean', beta: 1 }),
  huberLoss: shell('huber_loss', ['x', 'target'], { reduction: 'mean', delta: 1, weight: null }),
  poissonNllLoss: shell('poisson_nll_loss', ['x', 'target'], { logInput: true, full: false, eps: 1e-8, reduction: 'mean' }),
  gaussianNllLoss: shell('gaussian_nll_loss', ['x', 'target', 'variance'], { full: false, eps: 1e-6, reduction: 'mean' }),
  softMarginLoss: shell('soft_margin_loss', ['x', 'target'], REDUCED),
  hingeEmbeddingLoss: shell('hinge_embedding_loss', ['x', 'target'], { margin: 1, reduction: 'mean' }),
  marginRankingLoss: shell('margin_ranking_loss', ['x1', 'x2', 'target'], { margin: 0, reduction: 'mean' }),
  multiMarginLoss: shell('multi_margin_loss', ['x', 'target'], { p: 1, margin: 1, weight: null, reduction: 'mean' }),
  multilabelMarginLoss: shell('multilabel_margin_loss', ['x', 'target'], REDUCED),
  multilabelSoftMarginLoss: shell('multilabel_soft_margin_loss', ['x', 'target'], { weight: null, reduction: 'mean' }),
  cosineEmbeddingLoss: shell('cosine_embedding_loss', ['x1', 'x2', 'target'], { margin: 0, reduction: 'mean' }),
  tripletMarginLoss: shell('triplet_margin_loss', ['anchor', 'positive', 'negative'], { margin: 1, p: 2, eps: 1e-6, swap: false, reduction: 'mean' }),
  tripletMarginWithDistanceLoss,
  ctcLoss,
  cosineSimilarity: shell('cosine_similarity', ['x1', 'x2'], { dim: 1, eps: 1e-8 }),
  pairwiseDistance,
  pdist: shell('pdist', ['x'], { p: 2 }),
};
