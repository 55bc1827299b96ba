'use strict';
// Norms and dropout.

const { functions: F, ops } = require('../../ops.js');
const { noGrad } = require('../../autograd.js');
const { define, kindOf } = require('../../arguments.js');
const { shell } = require('./loss.js');
const { ValueError } = require('../../errors.js');

const running = ['x', 'runningMean?', 'runningVar?', 'weight?', 'bias?'];
/** y of a record that also gives what the running statistics become: nothing where they do not change. */
function keep({ y, mean, var: variance }, runningMean, runningVar) {
  if (runningMean && mean.numel > 0) {
    noGrad(() => {
      runningMean.copy_(mean);
      runningVar.copy_(variance);
    });
  }
  return y;
}
/**
 * Each channel of [N, C, ...] to mean 0 and variance 1: by the batch in training, where the running statistics follow, else by
 * them.
 */
const batchNorm = define('batchNorm', running, { training: false, momentum: 0.1, eps: 1e-5 },
  (x, runningMean, runningVar, weight, bias, o) => {
    if (!o.training && !runningMean) throw new ValueError('batchNorm: runningMean and runningVar are wanted unless {training: true}', 'batchNorm');
    return keep(ops.batch_norm_running(x, runningMean, runningVar, weight, bias, ...Object.values(o)), runningMean, runningVar);
  });
/** Each channel of each item of [N, C, ...] to mean 0 and variance 1; with {useInputStats: false} by the running statistics. */
const instanceNorm = define('instanceNorm', running, { useInputStats: true, momentum: 0.1, eps: 1e-5 },
  (x, runningMean, runningVar, weight, bias, o) => (
    keep(ops.instance_norm(x, runningMean, runningVar, weight, bias, ...Object.values(o)), runningMean, runningVar)));
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
