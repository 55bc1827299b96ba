'use strict';
// Losses with margins, and distances within a batch.

const { functions: F } = require('../../ops.js');
const T = require('../../tensor.js');
const { define } = require('../../arguments.js');
const { reduce, pairwiseDistance } = require('./loss.js');
const { ShapeError, ValueError } = require('../../errors.js');

function wantRows(x, name) {
  if (x.ndim !== 2) throw new ShapeError(`${name}: wants [N, C] or [C], got [${x.shape.join(', ')}]`, name);
}
/** f of a batch of one, for a loss of one row. */
function ofOne(f, x, target, options) {
  const loss = f(x.unsqueeze(0), target.unsqueeze(0), { ...options, reduction: 'none' });
  return options.reduction === 'none' ? loss.squeeze(0) : reduce(loss, options.reduction);
}
/** The sum over the other classes of max(0, margin - x[target] + x)^p, over the number of classes; p is 1 or 2. */
const multiMarginLoss = define('multiMarginLoss', ['x', 'target'], { p: 1, margin: 1, weight: null, reduction: 'mean' }, (x, target, o) => {
  if (o.p !== 1 && o.p !== 2) throw new ValueError(`multiMarginLoss: p must be 1 or 2, got ${String(o.p)}`, 'multiMarginLoss');
  if (x.ndim === 1) return ofOne(multiMarginLoss, x, target.reshape([]), o);
  wantRows(x, 'multiMarginLoss');
  const at = target.unsqueeze(1);
  let short = F.relu(F.add(F.sub(o.margin, x.gather(1, at)), x));
  if (o.p === 2) short = F.square(short);
  if (o.weight) short = short.mul(o.weight.index_select(0, target).unsqueeze(1));
  const others = F.ne(at, T.arange(x.shape[1], { dtype: 'i64', device: x.device }));
  return reduce(short.mul(others.to(short.dtype)).sum([1]).div(x.shape[1]), o.reduction);
});
/**
 * The sum over pairs of a target class and another of max(0, 1 - x[target] + x[other]), over the number of classes; target
 * [N, C] holds class indices, and ends where -1 stands.
 */
const multilabelMarginLoss = define('multilabelMarginLoss', ['x', 'target'], { reduction: 'mean' }, (x, target, o) => {
  if (x.ndim === 1) return ofOne(multilabelMarginLoss, x, target, o);
  wantRows(x, 'multilabelMarginLoss');
  const used = F.eq(F.cumsum(F.lt(target, 0).to('i64'), 1), 0);
  const at = F.where(used, target, 0n).to('i64');
  const named = F.gt(F.scatter_add(T.zeros(x.shape, { dtype: 'i64', device: x.device }), 1, at, used.to('i64')), 0);
  const short = F.relu(F.add(F.sub(1, x.gather(1, at).unsqueeze(2)), x.unsqueeze(1)));
  const pairs = F.logical_and(used.unsqueeze(2), F.logical_not(named.unsqueeze(1)));
  return reduce(short.mul(pairs.to(short.dtype)).sum([1, 2]).div(x.shape[1]), o.reduction);
});
/** -(t log sigmoid(x) + (1 - t) log sigmoid(-x)), the mean over the classes. */
const multilabelSoftMarginLoss = define('multilabelSoftMarginLoss', ['x', 'target'], { weight: null, reduction: 'mean' }, (x, target, o) => {
  const loss = F.neg(F.add(F.mul(target, F.logsigmoid(x)), F.mul(F.sub(1, target), F.logsigmoid(F.neg(x)))));
  return reduce((o.weight ? loss.mul(o.weight) : loss).mean([-1]), o.reduction);
});
/** max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance. */
const tripletMarginWithDistanceLoss = define('tripletMarginWithDistanceLoss', ['anchor', 'positive', 'negative'], { distanceFunction: null, margin: 1,
  swap: false, reduction: 'mean' }, (anchor, positive, negative, o) => {
  const distance = o.distanceFunction ?? ((a, b) => pairwiseDistance(a, b));
  if (typeof distance !== 'function') throw new ValueError('tripletMarginWithDistanceLoss: distanceFunction must be a function', 'tripletMarginWithDistanceLoss');
  const near = distance(anchor, positive);
  let far = distance(anchor, negative);
  if (o.swap) far = F.minimum(far, distance(positive, negative));
  return reduce(F.relu(F.add(F.sub(near, far), o.margin)), o.reduction);
});
/** The p-norms of the differences of all pairs of rows of [N, M]: [N (N - 1) / 2]. */
const pdist = define('pdist', ['x'], { p: 2 }, (x, { p }) => {
  if (x.ndim !== 2) throw new ShapeError(`pdist: wants [N, M], got [${x.shape.join(', ')}]`, 'pdist');
  const first = [];
  const second = [];
  for (let i = 0; i < x.shape[0]; ++i) {
    for (let j = i + 1; j < x.shape[0]; ++j) {
      first.push(BigInt(i));
      second.push(BigInt(j));
    }
  }
  const rows = (list) => x.index_select(0, T.tensor(list, { dtype: 'i64', device: x.device }));
  return F.norm(F.sub(rows(first), rows(second)), p, [1]);
});

module.exports = { multiMarginLoss, multilabelMarginLoss, multilabelSoftMarginLoss, tripletMarginWithDistanceLoss, pdist };
