'use strict';
// Activations.

const { functions: F } = require('../../ops.js');
const T = require('../../tensor.js');
const native = require('../../native.js');
const { define, wantTensor } = require('../../arguments.js');
const { ShapeError, ValueError } = require('../../errors.js');

const relu6 = define('relu6', ['x'], {}, (x) => F.hardtanh(x, 0, 6));
/** x where positive, else alpha (exp(x / alpha) - 1). */
const celu = define('celu', ['x'], { alpha: 1 }, (x, { alpha }) => F.elu(F.div(x, alpha), 1, alpha));
/** elu with the constants of arXiv:1706.02515. */
const selu = define('selu', ['x'], {}, (x) => F.elu(x, 1.6732632423543772, 1.0507009873554805));
const leakyRelu = define('leakyRelu', ['x'], { negativeSlope: 0.01 }, (x, { negativeSlope }) => F.leaky_relu(x, negativeSlope));
/** leakyRelu with a learned slope, one for all or one for each channel. */
const prelu = define('prelu', ['x', 'weight'], {}, (x, weight) => {
  const w = weight.numel > 1 && x.ndim > 1 ? weight.reshape([1, -1, ...new Array(x.ndim - 2).fill(1)]) : weight;
  return F.sub(F.relu(x), F.mul(w, F.relu(F.neg(x))));
});
const softsign = define('softsign', ['x'], {}, (x) => F.div(x, F.add(F.abs(x), 1)));
/** x towards 0 by lambd, 0 where it is nearer than that. */
const softshrink = define('softshrink', ['x'], { lambd: 0.5 }, (x, { lambd }) => F.sub(x, F.clamp(x, -lambd, lambd)));
/** x, or 0 where |x| <= lambd. */
const hardshrink = define('hardshrink', ['x'], { lambd: 0.5 }, (x, { lambd }) => F.masked_fill(x, F.le(F.abs(x), lambd), 0));
const tanhshrink = define('tanhshrink', ['x'], {}, (x) => F.sub(x, F.tanh(x)));
/** x where it is above `threshold`, else `value`. */
const threshold = define('threshold', ['x', 'threshold*', 'value*'], {}, (x, limit, value) => F.masked_fill(x, F.le(x, limit), value));
/** a sigmoid(b) of the two halves along dim. */
const glu = define('glu', ['x'], { dim: -1 }, (x, { dim }) => {
  if (x.size(dim) % 2 !== 0) throw new ShapeError(`glu: dimension ${dim} of [${x.shape.join(', ')}] has no two halves`, 'glu');
  const [a, b] = F.chunk(x, 2, dim);
  return F.mul(a, F.sigmoid(b));
});
const softmin = define('softmin', ['x', 'dim*'], {}, (x, dim) => F.softmax(F.neg(x), dim));
/** x where positive, else x times a slope: drawn from [lower, upper) for each element in training, else their mean. */
const rrelu = define('rrelu', ['x'], { lower: 1 / 8, upper: 1 / 3, training: false }, (x, { lower, upper, training }) => {
  if (!(lower <= upper)) throw new ValueError(`rrelu: lower ${lower} is above upper ${upper}`, 'rrelu');
  if (!training) return F.leaky_relu(x, (lower + upper) / 2);
  const slope = T.rand(x.shape, { device: x.device }).mul(upper - lower).add(lower).to(x.dtype);
  return F.where(F.gt(x, 0), x, F.mul(x, slope));
});
/** A sample of softmax((x + Gumbel noise) / tau); with {hard} one-hot, with the gradient of the soft one. */
const gumbelSoftmax = define('gumbelSoftmax', ['x'], { tau: 1, hard: false, dim: -1 }, (x, { tau, hard, dim }) => {
  // -log of an exponential variable; what is drawn is never 1.
  const noise = F.neg(F.log(F.sub(1e-20, F.log1p(F.neg(T.rand(x.shape, { device: x.device })))))).to(x.dtype);
  const soft = F.softmax(F.div(F.add(x, noise), tau), dim);
  if (!hard) return soft;
  const at = F.argmax(soft.detach(), dim, true);
  const one = F.scatter(T.zerosLike(soft.detach()), dim, at, T.ones(at.shape, { dtype: soft.dtype, device: soft.device }));
  return F.add(F.sub(one, soft.detach()), soft);
});

/** f, written over its first argument; the gradient then reads a copy of that. */
const over = (name, f) => ({ [name](x, ...rest) {
  wantTensor(x, name);
  return x.copy_(f(x.requiresGrad && native.isGradEnabled() ? x.clone() : x, ...rest));
} })[name];

module.exports = {
  relu_: over('relu_', F.relu), elu_: over('elu_', F.elu), celu_: over('celu_', celu), selu_: over('selu_', selu), leakyRelu_: over('leakyRelu_', leakyRelu),
  hardtanh_: over('hardtanh_', F.hardtanh), threshold_: over('threshold_', threshold), rrelu_: over('rrelu_', rrelu),
  relu6, celu, selu, leakyRelu, prelu, softsign, softshrink, hardshrink, tanhshrink, threshold, glu, softmin, rrelu, gumbelSoftmax,
};
