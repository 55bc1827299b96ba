'use strict';
// Modules: parts of a network, with parameters by name. A property that holds a parameter, a buffer or a module belongs
// to the module it is set on, under the property's name.

const native = require('./native.js');
const { functions: F } = require('./ops.js');
const T = require('./tensor.js');
const { noGrad } = require('./autograd.js');
const { ShapeError, ValueError } = require('./errors.js');

const { Tensor } = native;
const parameters = new WeakSet();
const buffers = new WeakSet();

/** Marks a tensor as a module's parameter: trained, and part of its state. */
function parameter(t) {
  t.requiresGrad = true;
  parameters.add(t);
  return t;
}
/** Marks a tensor as part of a module's state that is not trained. */
function buffer(t) {
  buffers.add(t);
  return t;
}

class Module {
  training = true;

  /** Derive and write it. */
  forward() {
    throw new ValueError(`${this.constructor.name}: forward() is not written`, this.constructor.name);
  }
  /** Own modules by name. */
  namedChildren() {
    return Object.entries(this).filter(([, v]) => v instanceof Module);
  }
  #walk(prefix, seen, wanted, out) {
    if (seen.has(this)) return out;
    seen.add(this);
    for (const [key, value] of Object.entries(this)) {
      const name = prefix + key;
      if (value instanceof Tensor && wanted.has(value) && !seen.has(value)) {
        seen.add(value);
        out.push([name, value]);
      } else if (value instanceof Module) {
        value.#walk(`${name}.`, seen, wanted, out);
      }
    }
    return out;
  }
  namedParameters(prefix = '') {
    return this.#walk(prefix, new Set(), parameters, []);
  }
  parameters() {
    return this.namedParameters().map(([, t]) => t);
  }
  namedBuffers(prefix = '') {
    return this.#walk(prefix, new Set(), buffers, []);
  }
  modules() {
    return [this, ...this.namedChildren().flatMap(([, m]) => m.modules())];
  }
  train(on = true) {
    for (const m of this.modules()) m.training = on;
    return this;
  }
  eval() {
    return this.train(false);
  }
  zeroGrad() {
    for (const p of this.parameters()) p.grad = null;
  }
  /** Freezes (false) or frees the parameters. */
  requiresGrad(on) {
    for (const p of this.parameters()) p.requiresGrad = on;
    return this;
  }
  numParameters() {
    return this.parameters().reduce((n, p) => n + p.numel, 0);
  }
  /** To another device or floating dtype. Make optimizers afterwards: the parameters are new tensors. */
  to(...where) {
    const moved = new Map();
    for (const m of this.modules()) {
      for (const [key, value] of Object.entries(m)) {
        if (!(value instanceof Tensor) || !(parameters.has(value) || buffers.has(value))) continue;
        if (!moved.has(value)) {
          const isParameter = parameters.has(value);
          const wanted = value.requiresGrad;
          const made = noGrad(() => value.detach().to(...where));
          (isParameter ? parameters : buffers).add(made);
          made.requiresGrad = wanted;
          moved.set(value, made);
        }
        m[key] = moved.get(value);
      }
    }
    return this;
  }
  /** Parameters and buffers by name, sharing their memory. */
  stateDict() {
    const state = {};
    for (const [name, t] of [...this.namedParameters(), ...this.namedBuffers()]) state[name] = t.detach();
    return state;
  }
  /** Copies values in. With {strict}, names that are missing or not expected are an error; then nothing has changed. */
  loadStateDict(state, { strict = true } = {}) {
    const own = [...this.namedParameters(), ...this.namedBuffers()];
    const names = new Set(own.map(([name]) => name));
    const missing = own.map(([name]) => name).filter((name) => !(name in state));
    const unexpected = Object.keys(state).filter((name) => !names.has(name));
    if (strict && missing.length + unexpected.length > 0) {
      throw new ValueError(`loadStateDict: missing [${missing.join(', ')}], not expected [${unexpected.join(', ')}]`, 'loadStateDict');
    }
    for (const [name, t] of own) {
      if (name in state && t.shape.join() !== state[name].shape.join()) {
        throw new ShapeError(`loadStateDict: ${name} is [${t.shape.join(', ')}] here and [${state[name].shape.join(', ')}] there`, 'loadStateDict');
      }
    }
    noGrad(() => {
      for (const [name, t] of own) if (name in state) t.detach().copy_(state[name]);
    });
    return { missing, unexpected };
  }
  toString(indent = '') {
    const inner = this.namedChildren().map(([name, m]) => `${indent}  (${name}): ${m.toString(`${indent}  `)}`);
    const head = `${this.constructor.name}(${this.detail?.() ?? ''}`;
    return inner.length ? `${head}\n${inner.join('\n')}\n${indent})` : `${head})`;
  }
  [Symbol.for('nodejs.util.inspect.custom')]() {
    return this.toString();
  }
}

const uniform = (shape, bound, { dtype = 'f32', device } = {}) => parameter(F.uniform(shape, -bound, bound, { dtype, device }));

/** y = x W^T + b, W [out, in]; drawn as PyTorch does, uniformly within 1 / sqrt(in). */
class Linear extends Module {
  constructor(inFeatures, outFeatures, { bias = true, ...options } = {}) {
    super();
    const bound = 1 / Math.sqrt(inFeatures);
    this.weight = uniform([outFeatures, inFeatures], bound, options);
    this.bias = bias ? uniform([outFeatures], bound, options) : null;
  }
  forward(x) {
    return F.linear(x, this.weight, this.bias);
  }
  detail() {
    return `${this.weight.shape[1]}, ${this.weight.shape[0]}${this.bias ? '' : ', bias=false'}`;
  }
}
const pair = (v) => (Array.isArray(v) ? v : [v, v]);
/** Convolution of [N, C, H, W]. */
class Conv2d extends Module {
  constructor(inChannels, outChannels, kernel, { stride = 1, padding = 0, dilation = 1, groups = 1, bias = true, ...options } = {}) {
    super();
    const k = pair(kernel);
    const bound = 1 / Math.sqrt((inChannels / groups) * k[0] * k[1]);
    this.options = { stride: pair(stride), padding: pair(padding), dilation: pair(dilation), groups };
    this.weight = uniform([outChannels, inChannels / groups, ...k], bound, options);
    this.bias = bias ? uniform([outChannels], bound, options) : null;
  }
  forward(x) {
    return F.conv2d(x, this.weight, this.bias, this.options);
  }
  detail() {
    const [out, inner, h, w] = this.weight.shape;
    return `${inner * this.options.groups}, ${out}, [${h}, ${w}]`;
  }
}
/** Rows of a table, N(0, 1), at i64 indices. */
class Embedding extends Module {
  constructor(count, dim, { paddingIdx, device, dtype = 'f32' } = {}) {
    super();
    this.paddingIdx = paddingIdx;
    this.weight = parameter(T.randn([count, dim], { device, dtype }));
  }
  forward(indices) {
    return F.embedding(indices, this.weight, this.paddingIdx);
  }
  detail() {
    return this.weight.shape.join(', ');
  }
}
class LayerNorm extends Module {
  constructor(shape, { eps = 1e-5, bias = true, ...options } = {}) {
    super();
    this.shape = [shape].flat();
    this.eps = eps;
    this.weight = parameter(T.ones(this.shape, options));
    this.bias = bias ? parameter(T.zeros(this.shape, options)) : null;
  }
  forward(x) {
    return F.layer_norm(x, this.shape, this.weight, this.bias, this.eps);
  }
  detail() {
    return `[${this.shape.join(', ')}]`;
  }
}
class RMSNorm extends Module {
  constructor(shape, { eps = 1e-6, ...options } = {}) {
    super();
    this.shape = [shape].flat();
    this.eps = eps;
    this.weight = parameter(T.ones(this.shape, options));
  }
  forward(x) {
    return F.rms_norm(x, this.shape, this.weight, this.eps);
  }
  detail() {
    return `[${this.shape.join(', ')}]`;
  }
}
/** Batch normalisation of [N, C, ...]: the batch's statistics in training, running ones in evaluation. */
class BatchNorm extends Module {
  constructor(features, { eps = 1e-5, momentum = 0.1, ...options } = {}) {
    super();
    this.eps = eps;
    this.momentum = momentum;
    this.weight = parameter(T.ones([features], options));
    this.bias = parameter(T.zeros([features], options));
    this.running_mean = buffer(T.zeros([features], options));
    this.running_var = buffer(T.ones([features], options));
  }
  forward(x) {
    if (this.training) {
      const { y, mean, rstd } = F.batch_norm(x, this.weight, this.bias, this.eps);
      noGrad(() => {
        const n = x.numel / this.weight.numel;
        const variance = F.reciprocal(F.square(rstd.detach())).sub(this.eps).mul(n / Math.max(1, n - 1));
        this.running_mean.mul_(1 - this.momentum).add_(mean.detach(), this.momentum);
        this.running_var.mul_(1 - this.momentum).add_(variance, this.momentum);
      });
      return y;
    }
    const shape = [1, this.weight.numel, ...new Array(x.ndim - 2).fill(1)];
    const scale = F.rsqrt(this.running_var.add(this.eps)).mul(this.weight);
    return x.sub(this.running_mean.reshape(shape)).mul(scale.reshape(shape)).add(this.bias.reshape(shape));
  }
  detail() {
    return String(this.weight.numel);
  }
}
class BatchNorm1d extends BatchNorm {}
class BatchNorm2d extends BatchNorm {}
class Dropout extends Module {
  constructor(p = 0.5) {
    super();
    this.p = p;
  }
  forward(x) {
    return this.training && this.p > 0 ? F.dropout(x, this.p) : x;
  }
  detail() {
    return `p=${this.p}`;
  }
}
class Flatten extends Module {
  constructor(start = 1, end = -1) {
    super();
    this.start = start;
    this.end = end;
  }
  forward(x) {
    return x.flatten(this.start, this.end);
  }
}
class MaxPool2d extends Module {
  constructor(kernel, { stride, padding = 0 } = {}) {
    super();
    this.options = [pair(kernel), pair(stride ?? kernel), pair(padding)];
  }
  forward(x) {
    return F.max_pool2d(x, ...this.options);
  }
}
class AvgPool2d extends Module {
  constructor(kernel, { stride, padding = 0 } = {}) {
    super();
    this.options = [pair(kernel), pair(stride ?? kernel), pair(padding)];
  }
  forward(x) {
    return F.avg_pool2d(x, ...this.options);
  }
}
/** Scaled dot-product attention over several heads, of [B, T, dim]. */
class MultiheadAttention extends Module {
  constructor(dim, heads, { bias = true, causal = false, ...options } = {}) {
    super();
    if (dim % heads !== 0) throw new ValueError(`MultiheadAttention: ${heads} heads do not divide ${dim}`, 'MultiheadAttention');
    this.heads = heads;
    this.causal = causal;
    this.qkv = new Linear(dim, 3 * dim, { bias, ...options });
    this.out = new Linear(dim, dim, { bias, ...options });
  }
  forward(x) {
    const [b, t, dim] = x.shape;
    const [q, k, v] = this.qkv.forward(x).reshape([b, t, 3, this.heads, dim / this.heads]).permute([2, 0, 3, 1, 4]).unbind(0);
    const y = F.scaled_dot_product_attention(q, k, v, { is_causal: this.causal });
    return this.out.forward(y.transpose(1, 2).reshape([b, t, dim]));
  }
}
/** Modules, or functions of a tensor, one after the other. */
class Sequential extends Module {
  constructor(...parts) {
    super();
    Object.defineProperty(this, 'parts', { value: parts });
    parts.forEach((part, i) => {
      if (part instanceof Module) this[i] = part;
      else if (typeof part !== 'function') throw new ValueError(`Sequential: part ${i} is neither a module nor a function`, 'Sequential');
    });
  }
  forward(x) {
    return this.parts.reduce((y, part) => (part instanceof Module ? part.forward(y) : part(y)), x);
  }
  get length() {
    return this.parts.length;
  }
  [Symbol.iterator]() {
    return this.parts[Symbol.iterator]();
  }
}
class ModuleList extends Module {
  constructor(modules = []) {
    super();
    Object.defineProperty(this, 'length', { value: modules.length });
    modules.forEach((m, i) => { this[i] = m; });
  }
  * [Symbol.iterator]() {
    for (let i = 0; i < this.length; ++i) yield this[i];
  }
}
const activation = (name, op) => ({ [name]: class extends Module { forward(x) { return F[op](x); } } })[name];

module.exports = {
  Module, parameter, buffer, Linear, Conv2d, Embedding, LayerNorm, RMSNorm, BatchNorm1d, BatchNorm2d, Dropout, Flatten,
  MaxPool2d, AvgPool2d, MultiheadAttention, Sequential, ModuleList,
  ReLU: activation('ReLU', 'relu'), GELU: activation('GELU', 'gelu'), SiLU: activation('SiLU', 'silu'),
  Tanh: activation('Tanh', 'tanh'), Sigmoid: activation('Sigmoid', 'sigmoid'),
};
