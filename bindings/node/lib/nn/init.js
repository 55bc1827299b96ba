'use strict';
// First values of parameters; each function writes over its tensor, unrecorded, and returns it.

const { functions: F, ops } = require('../ops.js');
const T = require('../tensor.js');
const { noGrad } = require('../autograd.js');
const { kindOf, optionsOf, wantCount, wantNumber, wantTensor } = require('../arguments.js');
const { ShapeError, ValueError } = require('../errors.js');

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
/** The identity matrix. */
function eye_(tensor) {
  if (wantTensor(tensor, 'init', 'the tensor').ndim !== 2) throw new ShapeError('init: eye_() wants two dimensions', 'init');
  return write(tensor, () => T.eye(tensor.shape[0], tensor.shape[1], like(tensor)));
}

/** The factor by which a nonlinearity's weights are to be larger than a linear layer's. */
function calculateGain(nonlinearity, param = 0.01) {
  wantNumber(param, 'init', 'param');
  const gains = { linear: 1, sigmoid: 1, conv1d: 1, conv2d: 1, conv3d: 1, conv_transpose1d: 1, conv_transpose2d: 1, conv_transpose3d: 1, tanh: 5 / 3, relu: Math.SQRT2, leaky_relu: Math.sqrt(2 / (1 + param ** 2)), selu: 0.75 };
  if (!Object.hasOwn(gains, nonlinearity)) throw new ValueError(`init: there is no gain for ${kindOf(nonlinearity)}`, 'init');
  return gains[nonlinearity];
}
function fans(tensor) {
  if (wantTensor(tensor, 'init', 'the tensor').ndim < 2) throw new ShapeError('init: fan in and fan out want two dimensions or more', 'init');
  const field = tensor.shape.slice(2).reduce((a, b) => a * b, 1);
  return [tensor.shape[1] * field, tensor.shape[0] * field];
}
/** Uniform in +- gain sqrt(6 / (fan in + fan out)) (Glorot and Bengio, AISTATS 2010). */
function xavierUniform_(tensor, gain = 1) {
  wantNumber(gain, 'init', 'gain');
  const bound = gain * Math.sqrt(6 / fans(tensor).reduce((a, b) => a + b));
  return uniform_(tensor, -bound, bound);
}
/** Normal with standard deviation gain sqrt(2 / (fan in + fan out)). */
const xavierNormal_ = (tensor, gain = 1) => normal_(tensor, 0, wantNumber(gain, 'init', 'gain') * Math.sqrt(2 / fans(tensor).reduce((a, b) => a + b)));
function kaimingStd(tensor, options) {
  const { a, mode, nonlinearity } = optionsOf('init', options, { a: 0, mode: 'fan_in', nonlinearity: 'leaky_relu' });
  if (mode !== 'fan_in' && mode !== 'fan_out') throw new ValueError(`init: mode must be 'fan_in' or 'fan_out', got ${kindOf(mode)}`, 'init');
  return calculateGain(nonlinearity, a) / Math.sqrt(Math.max(1, fans(tensor)[mode === 'fan_in' ? 0 : 1]));
}
/** Uniform in +- gain sqrt(3 / fan) (He et al., arXiv:1502.01852). */
function kaimingUniform_(tensor, options = {}) {
  const bound = Math.sqrt(3) * kaimingStd(tensor, options);
  return uniform_(tensor, -bound, bound);
}
/** Normal with standard deviation gain / sqrt(fan). */
const kaimingNormal_ = (tensor, options = {}) => normal_(tensor, 0, kaimingStd(tensor, options));
/** Rows (or columns, where there are more rows) that are orthonormal (Saxe et al., arXiv:1312.6120). */
function orthogonal_(tensor, gain = 1) {
  wantNumber(gain, 'init', 'gain');
  if (wantTensor(tensor, 'init', 'the tensor').ndim < 2) throw new ShapeError('init: orthogonal_() wants two dimensions or more', 'init');
  if (tensor.numel === 0) return tensor;
  const rows = tensor.shape[0];
  const columns = tensor.numel / rows;
  return write(tensor, () => {
    const a = ops.normal([Math.min(rows, columns), Math.max(rows, columns)], 0, 1, { dtype: 'f64' });
    let basis = null;
    for (let row of a.unbind(0)) {
      // Gram-Schmidt, each vector twice for accuracy.
      for (let i = 0; basis && i < 2; ++i) row = row.sub(F.matmul(F.matmul(basis, row), basis));
      row = row.div(F.norm(row)).unsqueeze(0);
      basis = basis ? F.cat([basis, row], 0) : row;
    }
    return (rows <= columns ? basis : basis.t()).mul(gain).reshape(tensor.shape).to(like(tensor));
  });
}

/** A convolution's weight that keeps its input, in `groups` groups. */
function dirac_(tensor, groups = 1) {
  if (![3, 4, 5].includes(wantTensor(tensor, 'init', 'the tensor').ndim)) throw new ShapeError('init: dirac_() wants three to five dimensions', 'init');
  if (tensor.shape[0] % wantCount(groups, 'init', 'groups') !== 0) throw new ValueError(`init: ${groups} groups do not divide [${tensor.shape.join(', ')}]`, 'init');
  const out = tensor.shape[0] / groups;
  zeros_(tensor);
  const middle = tensor.shape.slice(2).map((s) => Math.floor(s / 2));
  noGrad(() => {
    for (let group = 0; group < groups; ++group) {
      for (let i = 0; i < Math.min(out, tensor.shape[1]); ++i) tensor.detach().setAt([group * out + i, i, ...middle], 1);
    }
  });
  return tensor;
}
/** A matrix drawn from N(0, std^2), a share `sparsity` of each column 0 (Martens, ICML 2010). */
function sparse_(tensor, sparsity, std = 0.01) {
  if (wantTensor(tensor, 'init', 'the tensor').ndim !== 2) throw new ShapeError('init: sparse_() wants two dimensions', 'init');
  if (typeof sparsity !== 'number' || !(sparsity >= 0 && sparsity <= 1)) throw new ValueError(`init: sparsity must be between 0 and 1, got ${kindOf(sparsity)}`, 'init');
  const [rows] = tensor.shape;
  // In each column the places of the smallest of as many random numbers.
  return write(tensor, () => {
    const order = F.argsort(F.argsort(ops.uniform(tensor.shape, 0, 1, { dtype: 'f32' }), 0), 0);
    const kept = F.ge(order, Math.ceil(sparsity * rows)).to(like(tensor));
    return ops.normal(tensor.shape, 0, std, like(tensor)).mul(kept);
  });
}

module.exports = {
  init: {
    constant_, zeros_, ones_, uniform_, normal_, truncNormal_, eye_, calculateGain, xavierUniform_, xavierNormal_, kaimingUniform_, kaimingNormal_,
    orthogonal_, dirac_, sparse_,
  },
};
