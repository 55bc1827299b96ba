'use strict';
// Norms and dropout.

const { functions: F, ops } = require('../../ops.js');
const T = require('../../tensor.js');
const { noGrad } = require('../../autograd.js');
const { define, kindOf } = require('../../arguments.js');
const { shell } = require('./loss.js');
const { ShapeError, ValueError } = require('../../errors.js');

const shapeOf = (x) => `[${x.shape.join(', ')}]`;
const channelsOf = (x) => [1, x.shape[1], ...new Array(x.ndim - 2).fill(1)];

/** The running statistics take a share `momentum` of those of a batch; those are of `count` values each. */
function follow(runningMean, runningVar, mean, rstd, eps, count, momentum) {
  noGrad(() => {
    const variance = F.sub(F.reciprocal(F.square(rstd.detach())), eps).mul(count / (count - 1));
    runningMean.mul_(1 - momentum).add_(mean.detach().to(runningMean.dtype), momentum);
    runningVar.mul_(1 - momentum).add_(variance.to(runningVar.dtype), momentum);
  });
}
/**
 * Each channel of [N, C, ...] to mean 0 and variance 1: by the batch in training, where the running statistics follow, else by
 * them.
 */
const batchNorm = define('batchNorm', ['x', 'runningMean?', 'runningVar?', 'weight?', 'bias?'], { training: false, momentum: 0.1, eps: 1e-5 },
  (x, runningMean, runningVar, weight, bias, { training, momentum, eps }) => {
    if (x.ndim < 2) throw new ShapeError(`batchNorm: wants [N, C, ...], got ${shapeOf(x)}`, 'batchNorm');
    if ((runningMean === null) !== (runningVar === null)) throw new ValueError('batchNorm: runningMean and runningVar go together', 'batchNorm');
    for (const t of [runningMean, runningVar]) {
      if (t && (t.ndim !== 1 || t.shape[0] !== x.shape[1])) {
        throw new ShapeError(`batchNorm: the running statistics must be [${x.shape[1]}], got ${shapeOf(t)}`, 'batchNorm');
      }
    }
    if (training) {
      const count = x.numel / Math.max(1, x.shape[1]);
      if (count <= 1) throw new ShapeError(`batchNorm: training needs more than one value per channel, got x ${shapeOf(x)}`, 'batchNorm');
      const { y, mean, rstd } = ops.batch_norm(x, weight, bias, eps);
      if (runningMean) follow(runningMean, runningVar, mean, rstd, eps, count, momentum);
      return y;
    }
    if (!runningMean) throw new ValueError('batchNorm: runningMean and runningVar are wanted unless {training: true}', 'batchNorm');
    let scale = F.rsqrt(F.add(runningVar, eps));
    if (weight) scale = scale.mul(weight);
    let shift = F.neg(F.mul(runningMean, scale));
    if (bias) shift = shift.add(bias);
    const channels = channelsOf(x);
    return F.add(F.mul(x, scale.reshape(channels)), shift.reshape(channels)).to(x.dtype);
  });
/** Each channel of each item of [N, C, ...] to mean 0 and variance 1; with {useInputStats: false} by the running statistics. */
const instanceNorm = define('instanceNorm', ['x', 'runningMean?', 'runningVar?', 'weight?', 'bias?'], { useInputStats: true, momentum: 0.1, eps: 1e-5 },
  (x, runningMean, runningVar, weight, bias, { useInputStats, momentum, eps }) => {
    if (x.ndim < 3) throw new ShapeError(`instanceNorm: wants [N, C, ...], got ${shapeOf(x)}`, 'instanceNorm');
    if (!useInputStats) return batchNorm(x, runningMean, runningVar, weight, bias, { eps });
    const [n, c] = x.shape;
    const count = x.numel / Math.max(1, n * c);
    if (count <= 1) throw new ShapeError(`instanceNorm: needs more than one value per channel and item, got x ${shapeOf(x)}`, 'instanceNorm');
    const { y, mean, rstd } = ops.group_norm(x, c, weight, bias, eps);
    if (runningMean && runningVar) {
      noGrad(() => {
        const variance = F.sub(F.reciprocal(F.square(rstd.detach().reshape([n, c]))), eps).mul(count / (count - 1)).mean([0]);
        runningMean.mul_(1 - momentum).add_(mean.detach().reshape([n, c]).mean([0]).to(runningMean.dtype), momentum);
        runningVar.mul_(1 - momentum).add_(variance.to(runningVar.dtype), momentum);
      });
    }
    return y;
  });
const localResponseNorm = shell('local_response_norm', ['x', 'size*'], { alpha: 1e-4, beta: 0.75, k: 1 });
const normalize = shell('normalize', ['x'], { p: 2, dim: 1, eps: 1e-12 });

// ---- dropout

function wantShare(p, name) {
  if (typeof p !== 'number' || !(p >= 0 && p <= 1)) throw new ValueError(`${name}: p must be between 0 and 1, got ${typeof p === 'number' ? p : kindOf(p)}`, name);
  return p;
}
/** Zeroes elements with probability p and divides the others by 1 - p. */
const dropout = define('dropout', ['x'], { p: 0.5, training: true }, (x, { p, training }) => (wantShare(p, 'dropout') > 0 && training ? F.dropout(x, p) : x));
/** Zeroes whole channels. Without a batch where x has `single` dimensions. */
const channelDropout = (name, single) => define(name, ['x'], { p: 0.5, training: true }, (x, { p, training }) => {
  if (wantShare(p, name) === 0 || !training) return x;
  return x.ndim === single ? F.feature_dropout(x.unsqueeze(0), p).squeeze(0) : F.feature_dropout(x, p);
});
/** A dropout that is a record, drawn in training alone. */
const drawn = (name, record) => define(name, ['x'], { p: 0.5, training: false }, (x, { p, training }) => (
  wantShare(p, name) > 0 && training ? F[record](x, p) : x));

module.exports = {
  batchNorm, instanceNorm, localResponseNorm, normalize, wantShare, dropout,
  dropout1d: channelDropout('dropout1d', 0), dropout2d: channelDropout('dropout2d', 0), dropout3d: channelDropout('dropout3d', 4),
  alphaDropout: drawn('alphaDropout', 'alpha_dropout'), featureAlphaDropout: drawn('featureAlphaDropout', 'feature_alpha_dropout'),
};
