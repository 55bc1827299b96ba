'use strict';
// Linear layers, tables, what only reshapes, distances. Parameters have the names, the shapes and the first values that PyTorch
// gives them.

const { functions: F } = require('../ops.js');
const T = require('../tensor.js');
const functional = require('./functional/index.js');
const { Module, isParameter, parameter, detailOf } = require('./module.js');
const { MADE, madeOf, uniform, redraw, wantCounts } = require('./parts.js');
const { init } = require('./init.js');
const { noGrad } = require('../autograd.js');
const { ints, kindOf, optionsOf, wantOneOf, wantTensor } = require('../arguments.js');
const { IndexError, ShapeError, ValueError } = require('../errors.js');

class Identity extends Module {
  forward(x) {
    return x;
  }
}
/** y = x W^T + b, W [out, in]. */
class Linear extends Module {
  constructor(inFeatures, outFeatures, options) {
    super();
    const o = optionsOf('Linear', options, { bias: true, ...MADE });
    wantCounts('Linear', { inFeatures, outFeatures });
    const bound = 1 / Math.sqrt(inFeatures);
    this.weight = uniform([outFeatures, inFeatures], bound, madeOf(o));
    this.bias = o.bias ? uniform([outFeatures], bound, madeOf(o)) : null;
  }
  /** Draws the parameters again. */
  resetParameters() {
    redraw(1 / Math.sqrt(this.weight.shape[1]), this.weight, this.bias);
  }
  forward(x) {
    return F.linear(x, this.weight, this.bias);
  }
  detail() {
    return detailOf([this.weight.shape[1], this.weight.shape[0]], { bias: this.bias ? undefined : false });
  }
}
/** y_k = x1 W_k x2 + b_k, W [out, in1, in2]. */
class Bilinear extends Module {
  constructor(in1, in2, outFeatures, options) {
    super();
    const o = optionsOf('Bilinear', options, { bias: true, ...MADE });
    wantCounts('Bilinear', { in1, in2, outFeatures });
    const bound = 1 / Math.sqrt(in1);
    this.weight = uniform([outFeatures, in1, in2], bound, madeOf(o));
    this.bias = o.bias ? uniform([outFeatures], bound, madeOf(o)) : null;
  }
  resetParameters() {
    redraw(1 / Math.sqrt(this.weight.shape[1]), this.weight, this.bias);
  }
  forward(a, b) {
    return functional.bilinear(a, b, this.weight, this.bias);
  }
  detail() {
    const [out, in1, in2] = this.weight.shape;
    return detailOf([in1, in2, out]);
  }
}

/** What Embedding and EmbeddingBag share: a table, N(0, 1), whose row paddingIdx is 0. */
class Table extends Module {
  constructor(count, dim, paddingIdx, weight, options) {
    super();
    const name = new.target.name;
    wantCounts(name, { count, dim });
    if (paddingIdx !== null && (!Number.isSafeInteger(paddingIdx) || paddingIdx < -count || paddingIdx >= count)) {
      throw new IndexError(`${name}: paddingIdx must be a row of the ${count}, got ${kindOf(paddingIdx)}`, name);
    }
    this.paddingIdx = paddingIdx === null || paddingIdx >= 0 ? paddingIdx : paddingIdx + count;
    if (weight !== null) {
      if (wantTensor(weight, name, 'weight').shape.join() !== [count, dim].join()) {
        throw new ShapeError(`${name}: a table must be [${count}, ${dim}], got [${weight.shape.join(', ')}]`, name);
      }
      this.weight = isParameter(weight) ? weight : parameter(weight);
      return;
    }
    this.weight = parameter(T.empty([count, dim], options));
    this.resetParameters();
  }
  /** Draws the table again. */
  resetParameters() {
    init.normal_(this.weight);
    if (this.paddingIdx !== null) noGrad(() => this.weight.detach().select(0, this.paddingIdx).fill_(0));
  }
  detail() {
    return detailOf(this.weight.shape, { paddingIdx: this.paddingIdx });
  }
  /** Over a given table [count, dim], which is not trained unless {freeze: false}. */
  static fromPretrained(weight, options) {
    const { freeze = true, ...rest } = options ?? {};
    if (wantTensor(weight, this.name, 'weight').ndim !== 2) throw new ShapeError(`${this.name}: a table must be [count, dim], got [${weight.shape.join(', ')}]`, this.name);
    const made = new this(...weight.shape, { ...rest, weight });
    made.weight.requiresGrad = !freeze;
    return made;
  }
}
/** Rows of a table at i64 indices. */
class Embedding extends Table {
  constructor(count, dim, options) {
    const o = optionsOf('Embedding', options, { paddingIdx: null, weight: null, ...MADE });
    super(count, dim, o.paddingIdx, o.weight, madeOf(o));
  }
  forward(indices) {
    return F.embedding(indices, this.weight, this.paddingIdx);
  }
}
/** Sums, means or maxima of rows of a table. */
class EmbeddingBag extends Table {
  constructor(count, dim, options) {
    const o = optionsOf('EmbeddingBag', options, { mode: 'mean', includeLastOffset: false, paddingIdx: null, weight: null, ...MADE });
    super(count, dim, o.paddingIdx, o.weight, madeOf(o));
    this.mode = wantOneOf(o.mode, ['sum', 'mean', 'max'], 'EmbeddingBag', 'mode');
    this.includeLastOffset = o.includeLastOffset;
  }
  /** indices [bags, n], or [n] with the bags' first places in offsets. */
  forward(indices, offsets, perSampleWeights) {
    return functional.embeddingBag(indices, this.weight, offsets ?? null, { mode: this.mode, perSampleWeights: perSampleWeights ?? null,
      includeLastOffset: this.includeLastOffset, paddingIdx: this.paddingIdx });
  }
}

class Flatten extends Module {
  constructor(start = 1, end = -1) {
    super();
    this.start = start;
    this.end = end;
  }
  forward(x) {
    return wantTensor(x, 'Flatten').flatten(this.start, this.end);
  }
  detail() {
    return detailOf([], { start: this.start, end: this.end });
  }
}
class Unflatten extends Module {
  constructor(dim, sizes) {
    super();
    if (!Array.isArray(sizes)) throw new ValueError(`Unflatten: the sizes must be an array, got ${kindOf(sizes)}`, 'Unflatten');
    this.dim = dim;
    this.sizes = ints(sizes, sizes.length, 'Unflatten', 'sizes');
  }
  forward(x) {
    return wantTensor(x, 'Unflatten').unflatten(this.dim, this.sizes);
  }
  detail() {
    return detailOf([], { dim: this.dim, sizes: this.sizes });
  }
}
class CosineSimilarity extends Module {
  constructor(options) {
    super();
    Object.assign(this, optionsOf('CosineSimilarity', options, { dim: 1, eps: 1e-8 }));
  }
  forward(a, b) {
    return functional.cosineSimilarity(a, b, { dim: this.dim, eps: this.eps });
  }
}
/** The p-norm of x1 - x2 + eps over the last dimension. */
class PairwiseDistance extends Module {
  constructor(options) {
    super();
    Object.assign(this, optionsOf('PairwiseDistance', options, { p: 2, eps: 1e-6, keepdim: false }));
  }
  forward(a, b) {
    return functional.pairwiseDistance(a, b, { p: this.p, eps: this.eps, keepdim: this.keepdim });
  }
}

module.exports = { Identity, Linear, Bilinear, Embedding, EmbeddingBag, Flatten, Unflatten, CosineSimilarity, PairwiseDistance };
