'use strict';
// st.nn.utils: clipping of gradients, parameters as one vector, sequences of different lengths, computed weights.

const native = require('../native.js');
const { functions: F } = require('../ops.js');
const { noGrad } = require('../autograd.js');
const { Module } = require('./module.js');
const weights = require('./weights.js');
const { kindOf, optionsOf, wantNumber, wantOneOf, wantTensor } = require('../arguments.js');
const { DivergedError, ShapeError, ValueError } = require('../errors.js');

/** Tensors out of a module, a tensor or several. */
function tensorsOf(some, name) {
  if (some instanceof Module) return some.parameters();
  if (some instanceof native.Tensor) return [some];
  if (some === null || some === undefined || typeof some[Symbol.iterator] !== 'function') {
    throw new ValueError(`${name}: needs a module or tensors, got ${kindOf(some)}`, name);
  }
  return Array.from(some, (t, i) => wantTensor(t, name, `tensor ${i}`));
}
const withGrad = (params, name) => tensorsOf(params, name).filter((p) => p.grad);

/** The norm of all tensors together, as a number. */
function getTotalNorm(tensors, normType = 2) {
  const found = tensorsOf(tensors, 'getTotalNorm');
  wantNumber(normType, 'getTotalNorm', 'normType');
  return noGrad(() => F.total_norm(found.map((t) => t.detach()), normType).item());
}
/**
 * Scales gradients in place so that their joint norm is at most maxNorm; returns the norm before. One that is not finite leaves
 * them unchanged, or is a DivergedError with {errorIfNonfinite}.
 */
function clipGradNorm_(params, maxNorm, options = undefined) {
  const { normType, errorIfNonfinite } = optionsOf('clipGradNorm_', options, { normType: 2, errorIfNonfinite: false });
  wantNumber(maxNorm, 'clipGradNorm_', 'maxNorm');
  const found = withGrad(params, 'clipGradNorm_');
  const total = found.length ? native.clipGradNorm(found, maxNorm, wantNumber(normType, 'clipGradNorm_', 'normType')) : 0;
  if (errorIfNonfinite && !Number.isFinite(total)) {
    throw new DivergedError(`clipGradNorm_: the gradients' norm of order ${normType} is ${total}`, 'clipGradNorm_');
  }
  return total;
}
/** Scales gradients in place by what brings a joint norm that is known to maxNorm. */
function clipGradsWithNorm_(params, maxNorm, totalNorm) {
  wantNumber(maxNorm, 'clipGradsWithNorm_', 'maxNorm');
  wantNumber(totalNorm, 'clipGradsWithNorm_', 'totalNorm');
  native.clipGradsWithNorm(withGrad(params, 'clipGradsWithNorm_'), maxNorm, totalNorm);
}
/** Clamps every element of the gradients to [-clipValue, clipValue], in place. */
function clipGradValue_(params, clipValue) {
  wantNumber(clipValue, 'clipGradValue_', 'clipValue');
  const found = withGrad(params, 'clipGradValue_');
  if (found.length) native.clipGradValue(found, clipValue);
}
/** All elements in one vector. */
function parametersToVector(params) {
  const found = tensorsOf(params, 'parametersToVector');
  if (found.length === 0) throw new ValueError('parametersToVector: there are no parameters', 'parametersToVector');
  return F.cat(found.map((p) => p.reshape([p.numel])), 0);
}
/** The inverse: copies the vector's elements into the parameters. */
function vectorToParameters(vector, params) {
  const found = tensorsOf(params, 'vectorToParameters');
  const wanted = found.reduce((n, p) => n + p.numel, 0);
  if (wantTensor(vector, 'vectorToParameters', 'vector').ndim !== 1 || vector.numel !== wanted) {
    throw new ShapeError(`vectorToParameters: the parameters have ${wanted} elements, the vector is [${vector.shape.join(', ')}]`, 'vectorToParameters');
  }
  let start = 0;
  noGrad(() => {
    for (const p of found) {
      p.detach().copy_(vector.detach().narrow(0, start, p.numel).reshape(p.shape));
      start += p.numel;
    }
  });
}
/**
 * Sequences [T_i, ..] as one tensor [T, B, ..] ([B, T, ..] with {batchFirst}), the ends (with {paddingSide: 'left'} the beginnings)
 * filled.
 */
function padSequence(sequences, options = undefined) {
  const { batchFirst, paddingValue, paddingSide } = optionsOf('padSequence', options, { batchFirst: false, paddingValue: 0, paddingSide: 'right' });
  wantOneOf(paddingSide, ['left', 'right'], 'padSequence', 'paddingSide');
  return F.pad_sequence(tensorsOf(sequences, 'padSequence'), batchFirst, paddingValue, paddingSide);
}
/** The sequences of padSequence() again. */
function unpadSequence(padded, lengths, options = undefined) {
  const { batchFirst } = optionsOf('unpadSequence', options, { batchFirst: false });
  const x = wantTensor(padded, 'unpadSequence', 'padded');
  if (x.ndim < 2) throw new ShapeError(`unpadSequence: wants [T, B, ..], got [${x.shape.join(', ')}]`, 'unpadSequence');
  const sizes = Array.from(lengths instanceof native.Tensor ? lengths.toTypedArray() : lengths ?? [], Number);
  const rows = (batchFirst ? x : x.transpose(0, 1)).unbind(0);
  if (sizes.length !== rows.length) throw new ShapeError(`unpadSequence: ${sizes.length} lengths for a batch of ${rows.length}`, 'unpadSequence');
  return rows.map((row, i) => row.narrow(0, 0, sizes[i]));
}

module.exports = { getTotalNorm, clipGradNorm_, clipGradsWithNorm_, clipGradValue_, parametersToVector, vectorToParameters, padSequence, unpadSequence, ...weights };
