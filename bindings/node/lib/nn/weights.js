'use strict';
// Weight and spectral norm: a weight that is computed from others before each forward().

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const { noGrad } = require('../autograd.js');
const { Module, parameter, buffer, isParameter } = require('./module.js');
const { kindOf, optionsOf, wantCount } = require('../arguments.js');
const { IndexError, ShapeError, ValueError } = require('../errors.js');

// Of each module: by kind and name, what ends it.
const made = new WeakMap();

function wantWeight(module, name, op) {
  if (!(module instanceof Module)) throw new ValueError(`${op}: needs a module, got ${kindOf(module)}`, op);
  if (typeof name !== 'string' || !Object.hasOwn(module, name) || !isParameter(module[name])) {
    throw new ValueError(`${op}: ${module.constructor.name} has no parameter ${kindOf(name)}`, op);
  }
  return module[name];
}
/** module[name] as a plain tensor that compute() makes before each forward(). */
function computed(module, name, kind, compute, parts) {
  const refresh = () => { module[name] = compute(); };
  refresh();
  const hook = module.registerForwardPreHook(refresh);
  if (!made.has(module)) made.set(module, new Map());
  made.get(module).set(`${kind} ${name}`, () => {
    hook.remove();
    const value = noGrad(compute).detach().clone();
    for (const part of parts) delete module[part];
    module[name] = parameter(value);
  });
  return module;
}
function remove(module, name, kind, op) {
  const end = module instanceof Module ? made.get(module)?.get(`${kind} ${name}`) : undefined;
  if (!end) throw new ValueError(`${op}: there is no ${kind} norm of ${kindOf(name)}`, op);
  made.get(module).delete(`${kind} ${name}`);
  end();
  return module;
}
function placeOf(dim, ndim, op) {
  if (!Number.isSafeInteger(dim) || dim < -ndim || dim >= ndim) throw new IndexError(`${op}: dim ${kindOf(dim)} is out of range for ${ndim} dimensions`, op);
  return dim < 0 ? dim + ndim : dim;
}

/** The weight as a length, <name>_g, times a direction, <name>_v (Salimans and Kingma, arXiv:1602.07868). */
function weightNorm(module, options = undefined) {
  const { name, dim } = optionsOf('weightNorm', options, { name: 'weight', dim: 0 });
  const weight = wantWeight(module, name, 'weightNorm');
  if (weight.ndim === 0) throw new ShapeError('weightNorm: the weight has no dimensions', 'weightNorm');
  const kept = dim === null ? -1 : placeOf(dim, weight.ndim, 'weightNorm');
  const [g, v] = [`${name}_g`, `${name}_v`];
  delete module[name];
  module[g] = parameter(noGrad(() => F.norm_except_dim(weight.detach(), 2, kept)).detach().clone());
  module[v] = parameter(weight.detach().clone());
  return computed(module, name, 'weight', () => F.weight_norm(module[v], module[g], kept), [g, v]);
}
/** The weight as one parameter again. */
const removeWeightNorm = (module, name = 'weight') => remove(module, name, 'weight', 'removeWeightNorm');

/**
 * The weight, <name>_orig, over its largest singular value (Miyato et al., arXiv:1802.05957), which power iterations in training
 * approach; <name>_u and <name>_v are their vectors.
 */
function spectralNorm(module, options = undefined) {
  const o = optionsOf('spectralNorm', options, { name: 'weight', nPowerIterations: 1, eps: 1e-12, dim: null });
  const weight = wantWeight(module, o.name, 'spectralNorm');
  wantCount(o.nPowerIterations, 'spectralNorm', 'nPowerIterations');
  if (weight.ndim < 2 || weight.numel === 0) throw new ShapeError(`spectralNorm: wants two dimensions or more, got [${weight.shape.join(', ')}]`, 'spectralNorm');
  const dim = placeOf(o.dim ?? (module.constructor.name.startsWith('ConvTranspose') ? 1 : 0), weight.ndim, 'spectralNorm');
  const [orig, u, v] = [`${o.name}_orig`, `${o.name}_u`, `${o.name}_v`];
  const drawn = (n) => buffer(F.normalize(T.randn([n], { dtype: weight.dtype, device: weight.device }), 2, 0, o.eps));
  delete module[o.name];
  module[orig] = weight;
  module[u] = drawn(weight.shape[dim]);
  module[v] = drawn(weight.numel / weight.shape[dim]);
  return computed(module, o.name, 'spectral', () => {
    const iterations = module.training ? o.nPowerIterations : 0;
    const moved = F.spectral_norm(module[orig], module[u], module[v], iterations, dim, o.eps);
    if (iterations > 0) {
      noGrad(() => {
        module[u].copy_(moved.new_u);
        module[v].copy_(moved.new_v);
      });
    }
    return moved.y;
  }, [orig, u, v]);
}
/** The weight as one parameter again. */
const removeSpectralNorm = (module, name = 'weight') => remove(module, name, 'spectral', 'removeSpectralNorm');

module.exports = { weightNorm, removeWeightNorm, spectralNorm, removeSpectralNorm };
