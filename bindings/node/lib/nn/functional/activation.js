'use strict';
// Activations: the records with their options by name.

const { functions: F } = require('../../ops.js');
const native = require('../../native.js');
const { define, wantTensor } = require('../../arguments.js');
const { shell } = require('./loss.js');
const { ValueError } = require('../../errors.js');

const leakyRelu = shell('leaky_relu', ['x'], { negativeSlope: 0.01 });
/** x where positive, else x times a slope: drawn from [lower, upper) for each element in training, else their mean. */
const rrelu = define('rrelu', ['x'], { lower: 1 / 8, upper: 1 / 3, training: false }, (x, { lower, upper, training }) => {
  if (!(lower <= upper)) throw new ValueError(`rrelu: lower ${lower} is above upper ${upper}`, 'rrelu');
  return training ? F.rrelu(x, lower, upper) : F.leaky_relu(x, (lower + upper) / 2);
});
const celu = shell('celu', ['x'], { alpha: 1 });
const threshold = shell('threshold', ['x', 'threshold*', 'value*'], {});

/** f, written over its first argument; the gradient then reads a copy of that. */
const over = (name, f) => ({ [name](x, ...rest) {
  wantTensor(x, name);
  return x.copy_(f(x.requiresGrad && native.isGradEnabled() ? x.clone() : x, ...rest));
} })[name];

module.exports = {
  relu_: over('relu_', F.relu), elu_: over('elu_', F.elu), celu_: over('celu_', celu), selu_: over('selu_', F.selu), leakyRelu_: over('leakyRelu_', leakyRelu),
  hardtanh_: over('hardtanh_', F.hardtanh), threshold_: over('threshold_', threshold), rrelu_: over('rrelu_', rrelu),
  relu6: shell('relu6', ['x'], {}), celu, selu: shell('selu', ['x'], {}), leakyRelu, prelu: shell('prelu', ['x', 'weight'], {}),
  softsign: shell('softsign', ['x'], {}), softshrink: shell('softshrink', ['x'], { lambd: 0.5 }), hardshrink: shell('hardshrink', ['x'], { lambd: 0.5 }),
  tanhshrink: shell('tanhshrink', ['x'], {}), threshold, glu: shell('glu', ['x'], { dim: -1 }), softmin: shell('softmin', ['x', 'dim*'], {}), rrelu,
  gumbelSoftmax: shell('gumbel_softmax', ['x'], { tau: 1, hard: false, dim: -1 }),
};
