'use strict';
// Losses and distances.

const { functions: F } = require('../../ops.js');
const T = require('../../tensor.js');
const native = require('../../native.js');
const { noGrad } = require('../../autograd.js');
const { define, kindOf } = require('../../arguments.js');
const { ShapeError, ValueError } = require('../../errors.js');

function reduce(x, reduction = 'mean') {
  if (reduction === 'mean') return x.mean();
  if (reduction === 'sum') return x.sum();
  if (reduction === 'none') return x;
  throw new ValueError(`reduction must be 'mean', 'sum' or 'none', got ${kindOf(reduction)}`, 'reduction');
}

/** Class scores [.., C, ...] as [rows, C] and targets as [rows]. */
function rowsOf(x, target) {
  if (x.ndim === 1) return [x.unsqueeze(0), target.reshape([1])];
  if (x.ndim === 2) return [x, target];
  const last = x.ndim - 1;
  const order = [0, ...Array.from({ length: last - 1 }, (_, i) => i + 2), 1];
  return [x.permute(order).reshape([-1, x.shape[1]]), target.reshape([-1])];
}
const floating = (t) => t.dtype.startsWith('f') || t.dtype === 'bf16';
function weighted(logs, target, weight, ignoreIndex, reduction, smoothing) {
  const counts = F.ne(target, ignoreIndex);
  const classes = F.where(counts, target, 0n).to('i64');
  const weights = weight.index_select(0, classes).mul(counts.to(weight.dtype));
  let loss = logs.gather(1, classes.unsqueeze(1)).squeeze(1).neg().mul(weights);
  if (smoothing) {
    const smooth = logs.mul(weight).sum([1]).neg().mul(counts.to(weight.dtype));
    loss = loss.mul(1 - smoothing).add(smooth.mul(smoothing / logs.shape[1]));
  }
  return reduction === 'mean' ? loss.sum().div(weights.sum()) : reduce(loss, reduction);
}
/**
 * -log softmax(x)[target] of [N, C] or [N, C, ...] for i64 targets, or -sum(target log softmax(x)) for floating ones
 * (probabilities). weight [C] weighs the classes.
 */
const crossEntropy = define('crossEntropy', ['x', 'target'], { weight: null, ignoreIndex: -100, reduction: 'mean', labelSmoothing: 0 }, (x, target, o) => {
  const { weight, ignoreIndex, reduction, labelSmoothing } = o;
  const dim = x.ndim > 1 ? 1 : 0;
  if (floating(target)) {
    const t = labelSmoothing ? target.mul(1 - labelSmoothing).add(labelSmoothing / x.shape[dim]) : target;
    let loss = F.log_softmax(x, dim).mul(t).neg();
    if (weight) loss = loss.mul(dim ? weight.reshape([1, -1, ...new Array(x.ndim - 2).fill(1)]) : weight);
    return reduction === 'mean' ? loss.sum().div(x.numel / x.shape[dim]) : reduce(loss.sum([dim]), reduction);
  }
  const [rows, t] = rowsOf(x, target);
  const loss = weight ? weighted(F.log_softmax(rows, 1), t, weight, ignoreIndex, reduction, labelSmoothing)
    : F.cross_entropy(rows, t, ignoreIndex, reduction, labelSmoothing);
  return reduction === 'none' ? loss.reshape(target.shape) : loss;
});
/** -x[target] of log-probabilities. */
const nllLoss = define('nllLoss', ['x', 'target'], { weight: null, ignoreIndex: -100, reduction: 'mean' }, (x, target, { weight, ignoreIndex, reduction }) => {
  const [rows, t] = rowsOf(x, target);
  const loss = weight ? weighted(rows, t, weight, ignoreIndex, reduction, 0) : F.nll_loss(rows, t, ignoreIndex, reduction);
  return reduction === 'none' ? loss.reshape(target.shape) : loss;
});
function sameShape(x, target, name) {
  if (x.shape.join() !== target.shape.join()) {
    throw new ShapeError(`${name}: the target is [${target.shape.join(', ')}], the input [${x.shape.join(', ')}]`, name);
  }
}
/** log p, at least -100. Where p is 0 the gradient is finite: that of a p of 1e-12. */
function logAtLeast(p) {
  const fixed = p.detach();
  const low = F.lt(fixed, 1e-12);
  const y = F.clamp(F.log(F.where(low, fixed, p)), -100);
  return F.add(y, F.where(low, F.mul(F.sub(p, fixed), 1e12), T.zerosLike(fixed)));
}
/** -(t log p + (1 - t) log(1 - p)); logarithms are at least -100. */
const binaryCrossEntropy = define('binaryCrossEntropy', ['p', 'target'], { weight: null, reduction: 'mean' }, (p, target, { weight, reduction }) => {
  sameShape(p, target, 'binaryCrossEntropy');
  const loss = F.neg(F.add(F.mul(target, logAtLeast(p)), F.mul(F.sub(1, target), logAtLeast(F.sub(1, p)))));
  return reduce(weight ? loss.mul(weight) : loss, reduction);
});
/** The same of sigmoid(x), without overflow; posWeight weighs the positive targets. */
const binaryCrossEntropyWithLogits = define('binaryCrossEntropyWithLogits', ['x', 'target'], { weight: null, posWeight: null, reduction: 'mean' },
  (x, target, { weight, posWeight, reduction }) => {
    sameShape(x, target, 'binaryCrossEntropyWithLogits');
    if (!weight && !posWeight) return F.binary_cross_entropy_with_logits(x, target, reduction);
    const loss = posWeight
      ? F.neg(target).add(1).mul(x).sub(F.sub(posWeight, 1).mul(target).add(1).mul(F.logsigmoid(x)))
      : F.binary_cross_entropy_with_logits(x, target, 'none');
    return reduce(weight ? loss.mul(weight) : loss, reduction);
  });
/** t (log t - x) for log-probabilities x; reduction also 'batchmean'. */
const klDiv = define('klDiv', ['x', 'target'], { reduction: 'mean', logTarget: false }, (x, target, { reduction, logTarget }) => (
  reduction === 'batchmean' ? F.kl_div(x, target, 'sum', logTarget).div(x.shape[0] ?? 1) : F.kl_div(x, target, reduction, logTarget)));
/** A loss that is a record. */
const plain = (name, record, defaults) => define(name, ['x', 'target'], { reduction: 'mean', ...defaults },
  (x, target, o) => F[record](x, target, ...Object.values(o)));
/** d^2 / (2 beta) where |d| < beta, else |d| - beta / 2. */
const smoothL1Loss = define('smoothL1Loss', ['x', 'target'], { reduction: 'mean', beta: 1 }, (x, target, { reduction, beta }) => (
  beta === 0 ? F.l1_loss(x, target, reduction) : F.smooth_l1_loss(x, target, reduction, beta)));
/** exp(x) - target x, or with {logInput: false} x - target log(x + eps). */
const poissonNllLoss = define('poissonNllLoss', ['x', 'target'], { logInput: true, full: false, eps: 1e-8, reduction: 'mean' }, (x, target, o) => {
  let loss = o.logInput ? F.sub(F.exp(x), F.mul(target, x)) : F.sub(x, F.mul(target, F.log(F.add(x, o.eps))));
  if (o.full) {
    const stirling = F.add(F.sub(F.mul(target, F.log(target)), target), F.mul(F.log(F.mul(target, 2 * Math.PI)), 0.5));
    loss = F.add(loss, F.masked_fill(stirling, F.le(target, 1), 0));
  }
  return reduce(loss, o.reduction);
});
/** (log var + (x - target)^2 / var) / 2, var at least eps. */
const gaussianNllLoss = define('gaussianNllLoss', ['x', 'target', 'variance'], { full: false, eps: 1e-6, reduction: 'mean' }, (x, target, variance, o) => {
  const v = F.add(variance, noGrad(() => F.sub(F.clamp(variance.detach(), o.eps), variance.detach())));
  const loss = F.mul(F.add(F.log(v), F.div(F.square(F.sub(x, target)), v)), 0.5);
  return reduce(o.full ? loss.add(0.5 * Math.log(2 * Math.PI)) : loss, o.reduction);
});
/** log(1 + exp(-t x)). */
const softMarginLoss = define('softMarginLoss', ['x', 'target'], { reduction: 'mean' }, (x, target, o) => (
  reduce(F.softplus(F.mul(F.neg(target), x)), o.reduction)));
/** x where t is 1, max(0, margin - x) where it is -1. */
const hingeEmbeddingLoss = define('hingeEmbeddingLoss', ['x', 'target'], { margin: 1, reduction: 'mean' }, (x, target, o) => (
  reduce(F.where(F.eq(target, 1), x, F.relu(F.sub(o.margin, x))), o.reduction)));
/** max(0, -t (x1 - x2) + margin). */
const marginRankingLoss = define('marginRankingLoss', ['x1', 'x2', 'target'], { margin: 0, reduction: 'mean' }, (x1, x2, target, o) => (
  reduce(F.relu(F.add(F.mul(F.neg(target), F.sub(x1, x2)), o.margin)), o.reduction)));
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

/** x1 . x2 over the product of their norms along dim. */
const cosineSimilarity = define('cosineSimilarity', ['x1', 'x2'], { dim: 1, eps: 1e-8 }, (x1, x2, { dim, eps }) => {
  const unit = (t) => F.div(t, F.clamp(F.norm(t, 2, [dim], true), eps));
  return F.sum(F.mul(unit(x1), unit(x2)), [dim]);
});
/** The p-norm of x1 - x2 + eps over the last dimension. */
const pairwiseDistance = define('pairwiseDistance', ['x1', 'x2'], { p: 2, eps: 1e-6, keepdim: false }, (x1, x2, { p, eps, keepdim }) => (
  F.norm(F.add(F.sub(x1, x2), eps), p, [-1], keepdim)));
/** max(0, d(anchor, positive) - d(anchor, negative) + margin); with {swap} the negative is that nearer to anchor or positive. */
const tripletMarginLoss = define('tripletMarginLoss', ['anchor', 'positive', 'negative'], { margin: 1, p: 2, eps: 1e-6, swap: false, reduction: 'mean' },
  (anchor, positive, negative, { margin, p, eps, swap, reduction }) => {
    let far = pairwiseDistance(anchor, negative, { p, eps });
    if (swap) far = F.minimum(far, pairwiseDistance(positive, negative, { p, eps }));
    return reduce(F.relu(F.add(F.sub(pairwiseDistance(anchor, positive, { p, eps }), far), margin)), reduction);
  });
/** 1 - cos where t is 1, max(0, cos - margin) where it is -1. */
const cosineEmbeddingLoss = define('cosineEmbeddingLoss', ['x1', 'x2', 'target'], { margin: 0, reduction: 'mean' }, (x1, x2, target, { margin, reduction }) => {
  const cos = cosineSimilarity(x1, x2, { dim: -1 });
  return reduce(F.where(F.eq(target, 1), F.sub(1, cos), F.relu(F.sub(cos, margin))), reduction);
});

module.exports = {
  reduce, crossEntropy, nllLoss, binaryCrossEntropy, binaryCrossEntropyWithLogits, klDiv, mseLoss: plain('mseLoss', 'mse_loss'),
  l1Loss: plain('l1Loss', 'l1_loss'), smoothL1Loss, huberLoss: plain('huberLoss', 'huber_loss', { delta: 1 }), poissonNllLoss, gaussianNllLoss,
  softMarginLoss, hingeEmbeddingLoss, marginRankingLoss, ctcLoss, cosineSimilarity, pairwiseDistance, tripletMarginLoss, cosineEmbeddingLoss,
};
