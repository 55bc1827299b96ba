'use strict';
// Functions of several records: losses, distances.

const { functions: F } = require('../ops.js');
const { ShapeError, ValueError } = require('../errors.js');

function reduce(x, reduction = 'mean') {
  if (reduction === 'mean') return x.mean();
  if (reduction === 'sum') return x.sum();
  if (reduction === 'none') return x;
  throw new ValueError(`reduction must be 'mean', 'sum' or 'none', got ${String(reduction)}`, 'reduction');
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
function crossEntropy(x, target, { weight, ignoreIndex = -100, reduction = 'mean', labelSmoothing = 0 } = {}) {
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
}
/** -x[target] of log-probabilities. */
function nllLoss(x, target, { weight, ignoreIndex = -100, reduction = 'mean' } = {}) {
  const [rows, t] = rowsOf(x, target);
  const loss = weight ? weighted(rows, t, weight, ignoreIndex, reduction, 0) : F.nll_loss(rows, t, ignoreIndex, reduction);
  return reduction === 'none' ? loss.reshape(target.shape) : loss;
}
function sameShape(x, target, name) {
  if (x.shape.join() !== target.shape.join()) {
    throw new ShapeError(`${name}: the target is [${target.shape.join(', ')}], the input [${x.shape.join(', ')}]`, name);
  }
}
/** -(t log p + (1 - t) log(1 - p)); logarithms are at least -100. */
function binaryCrossEntropy(p, target, { weight, reduction } = {}) {
  sameShape(p, target, 'binaryCrossEntropy');
  const loss = target.mul(F.clamp(F.log(p), -100)).add(F.neg(target).add(1).mul(F.clamp(F.log1p(p.neg()), -100))).neg();
  return reduce(weight ? loss.mul(weight) : loss, reduction);
}
/** The same of sigmoid(x), without overflow; posWeight weighs the positive targets. */
function binaryCrossEntropyWithLogits(x, target, { weight, posWeight, reduction = 'mean' } = {}) {
  sameShape(x, target, 'binaryCrossEntropyWithLogits');
  if (!weight && !posWeight) return F.binary_cross_entropy_with_logits(x, target, reduction);
  const loss = posWeight
    ? F.neg(target).add(1).mul(x).sub(F.sub(posWeight, 1).mul(target).add(1).mul(F.logsigmoid(x)))
    : F.binary_cross_entropy_with_logits(x, target, 'none');
  return reduce(weight ? loss.mul(weight) : loss, reduction);
}
/** t (log t - x) for log-probabilities x; reduction also 'batchmean'. */
function klDiv(x, target, { reduction = 'mean', logTarget = false } = {}) {
  if (reduction === 'batchmean') return F.kl_div(x, target, 'sum', logTarget).div(x.shape[0]);
  return F.kl_div(x, target, reduction, logTarget);
}

/** x . y over the product of their norms along dim. */
function cosineSimilarity(x, y, { dim = 1, eps = 1e-8 } = {}) {
  const unit = (t) => t.div(F.clamp(F.norm(t, 2, [dim], true), eps));
  return unit(x).mul(unit(y)).sum([dim]);
}
/** x over its p-norm along dim, which counts as at least eps. */
const normalize = (x, { p = 2, dim = 1, eps = 1e-12 } = {}) => x.div(F.clamp(F.norm(x, p, [dim], true), eps));
/** The p-norm of x - y + eps over the last dimension. */
const pairwiseDistance = (x, y, { p = 2, eps = 1e-6, keepdim = false } = {}) => F.norm(x.sub(y).add(eps), p, [-1], keepdim);
/** max(0, d(anchor, positive) - d(anchor, negative) + margin). */
function tripletMarginLoss(anchor, positive, negative, { margin = 1, p = 2, eps = 1e-6, reduction } = {}) {
  const near = pairwiseDistance(anchor, positive, { p, eps });
  return reduce(F.relu(near.sub(pairwiseDistance(anchor, negative, { p, eps })).add(margin)), reduction);
}
/** 1 - cos where t is 1, max(0, cos - margin) where it is -1. */
function cosineEmbeddingLoss(x, y, target, { margin = 0, reduction } = {}) {
  const cos = cosineSimilarity(x, y, { dim: -1 });
  return reduce(F.where(F.eq(target, 1), cos.neg().add(1), F.relu(cos.sub(margin))), reduction);
}
/** max(0, -t (x - y) + margin). */
const marginRankingLoss = (x, y, target, { margin = 0, reduction } = {}) => reduce(F.relu(target.neg().mul(x.sub(y)).add(margin)), reduction);

module.exports = {
  crossEntropy, nllLoss, binaryCrossEntropy, binaryCrossEntropyWithLogits, klDiv, cosineSimilarity, normalize, pairwiseDistance, tripletMarginLoss,
  cosineEmbeddingLoss, marginRankingLoss,
};
