'use strict';
// First values of parameters; each function writes over its tensor, unrecorded, and returns it.

const native = require('../native.js');
const { ops } = require('../ops.js');
const T = require('../tensor.js');
const { noGrad } = require('../autograd.js');
const { optionsOf, wantTensor } = require('../arguments.js');

function write(tensor, values) {
  wantTensor(tensor, 'init', 'the tensor');
  noGrad(() => tensor.detach().copy_(values()));
  return tensor;
}
const like = (t) => ({ dtype: t.dtype, device: t.device });

const constant_ = (tensor, value) => write(tensor, () => T.full(tensor.shape, value, like(tensor)));
const zeros_ = (tensor) => constant_(tensor, 0);
const ones_ = (tensor) => constant_(tensor, 1);
/** Uniform in [a, b). */
const uniform_ = (tensor, a = 0, b = 1) => write(tensor, () => ops.uniform(tensor.shape, a, b, like(tensor)));
const normal_ = (tensor, mean = 0, std = 1) => write(tensor, () => ops.normal(tensor.shape, mean, std, like(tensor)));
/** Normal, drawn again where it falls outside [a, b]. */
const truncNormal_ = (tensor, mean = 0, std = 1, a = -2, b = 2) => write(tensor, () => ops.trunc_normal(tensor.shape, mean, std, a, b, like(tensor)));
/** Written by the engine (strata/nn/init.h). */
function made(name, tensor, ...how) {
  wantTensor(tensor, 'init', 'the tensor');
  native.initial(name, tensor.detach(), ...how);
  return tensor;
}
/** The identity matrix. */
const eye_ = (tensor) => made('eye', tensor);
/** The factor by which a nonlinearity's weights are to be larger than a linear layer's. */
const calculateGain = (nonlinearity, param = 0.01) => native.calculateGain(nonlinearity, param);
/** Uniform in +- gain sqrt(6 / (fan in + fan out)) (Glorot and Bengio, AISTATS 2010). */
const xavierUniform_ = (tensor, gain = 1) => made('xavier_uniform', tensor, gain);
/** Normal with standard deviation gain sqrt(2 / (fan in + fan out)). */
const xavierNormal_ = (tensor, gain = 1) => made('xavier_normal', tensor, gain);
const kaiming = (name) => (tensor, options = {}) => {
  const { a, mode, nonlinearity } = optionsOf('init', options, { a: 0, mode: 'fan_in', nonlinearity: 'leaky_relu' });
  return made(name, tensor, a, mode, nonlinearity);
};
/** Uniform in +- gain sqrt(3 / fan) (He et al., arXiv:1502.01852). */
const kaimingUniform_ = kaiming('kaiming_uniform');
/** Normal with standard deviation gain / sqrt(fan). */
const kaimingNormal_ = kaiming('kaiming_normal');
/** Rows (or columns, where there are more rows) that are orthonormal (Saxe et al., arXiv:1312.6120). */
const orthogonal_ = (tensor, gain = 1) => made('orthogonal', tensor, gain);
/** A convolution's weight that keeps its input, in `groups` groups. */
const dirac_ = (tensor, groups = 1) => made('dirac', tensor, groups);
/** A matrix drawn from N(0, std^2), a share `sparsity` of each column 0 (Martens, ICML 2010). */
const sparse_ = (tensor, sparsity, std = 0.01) => made('sparse', tensor, sparsity, std);

module.exports = {
  init: {
    constant_, zeros_, ones_, uniform_, normal_, truncNormal_, eye_, calculateGain, xavierUniform_, xavierNormal_, kaimingUniform_, kaimingNormal_,
    orthogonal_, dirac_, sparse_,
  },
};
