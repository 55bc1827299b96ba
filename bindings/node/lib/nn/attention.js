'use strict';
// Attention and transformers, of [B, T, dim]. Parameters have PyTorch's names and shapes; batches come first here.

const { functions: F, ops } = require('../ops.js');
const T = require('../tensor.js');
const { Module, parameter, detailOf } = require('./module.js');
const { Linear } = require('./layers.js');
const { Dropout } = require('./dropout.js');
const { LayerNorm } = require('./norm.js');
const { ModuleList } = require('./container.js');
const { init } = require('./init.js');
const { MADE, wantCounts } = require('./parts.js');
const { wantShare } = require('./functional/norm.js');
const { optionsOf, wantCount, wantTensor } = require('../arguments.js');
const { ShapeError, ValueError } = require('../errors.js');

/** Scaled dot-product attention of several heads: forward(query, key = query, value = key, {attnMask, keyPaddingMask, causal}). */
class MultiheadAttention extends Module {
  constructor(dim, heads, given) {
    super();
    wantCounts('MultiheadAttention', { dim, heads });
    const { dropout, bias, causal, kdim, vdim, ...options } = optionsOf('MultiheadAttention', given, { dropout: 0, bias: true, causal: false, kdim: dim, vdim: dim,
      ...MADE });
    wantCounts('MultiheadAttention', { kdim, vdim });
    wantShare(dropout, 'MultiheadAttention');
    if (dim % heads !== 0) throw new ValueError(`MultiheadAttention: ${heads} heads do not divide ${dim}`, 'MultiheadAttention');
    Object.assign(this, { dim, heads, causal, dropout });
    const draw = (rows, columns) => parameter(init.xavierUniform_(T.empty([rows, columns], options)));
    if (kdim === dim && vdim === dim) {
      this.in_proj_weight = draw(3 * dim, dim);
    } else {
      this.q_proj_weight = draw(dim, dim);
      this.k_proj_weight = draw(dim, kdim);
      this.v_proj_weight = draw(dim, vdim);
    }
    this.in_proj_bias = bias ? parameter(T.zeros([3 * dim], options)) : null;
    this.out_proj = new Linear(dim, dim, { bias, ...options });
    if (bias) init.zeros_(this.out_proj.bias);
  }
  /** With {needWeights} [result, weights]: the mean over the heads, [B, Tq, Tk], or with {averageWeights: false} of each, [B, heads, Tq, Tk]. */
  forward(query, key = query, value = key, given = undefined) {
    const name = 'MultiheadAttention';
    const { attnMask, keyPaddingMask, causal, needWeights, averageWeights } = optionsOf(name, given, { attnMask: null, keyPaddingMask: null,
      causal: this.causal, needWeights: false, averageWeights: true });
    for (const [what, x] of Object.entries({ query, key, value })) {
      if (wantTensor(x, name, what).ndim !== 3) throw new ShapeError(`${name}: ${what} must be [B, T, dim], got [${x.shape.join(', ')}]`, name);
    }
    for (const [what, m] of Object.entries({ attnMask, keyPaddingMask })) if (m) wantTensor(m, name, what);
    const q = query.transpose(0, 1);
    const k = key === query ? q : key.transpose(0, 1);
    const v = value === key ? k : value.transpose(0, 1);
    const { output, weights } = ops.multi_head_attention_forward(q, k, v, this.dim, this.heads, this.in_proj_weight ?? null, this.in_proj_bias, null, null, false, this.dropout, this.out_proj.weight, this.out_proj.bias, {
        training: this.training, key_padding_mask: keyPaddingMask, need_weights: needWeights, attn_mask: attnMask, use_separate_proj_weight: !this.in_proj_weight,
        q_proj_weight: this.q_proj_weight ?? null, k_proj_weight: this.k_proj_weight ?? null, v_proj_weight: this.v_proj_weight ?? null,
        average_attn_weights: averageWeights, is_causal: causal });
    const y = output.transpose(0, 1);
    return needWeights ? [y, weights] : y;
  }
  detail() {
    return detailOf([this.dim, this.heads], { causal: this.causal || undefined });
  }
}
/** [t, t]: -inf above the diagonal, 0 elsewhere: a position sees itself and what is before it. */
function causalMask(t, { dtype = 'f32', device = 'cpu' } = {}) {
  wantCount(t, 'causalMask', 't', 0);
  return F.triu(T.full([t, t], -Infinity, { dtype, device }), 1);
}

const MASKS = { mask: null, keyPaddingMask: null, causal: undefined };
function activationOf(activation) {
  if (typeof activation === 'function') return activation;
  if (activation === 'relu' || activation === 'gelu') return F[activation];
  throw new ValueError(`Transformer: activation must be 'relu', 'gelu' or a function, got ${String(activation)}`, 'Transformer');
}

/** What an encoder's and a decoder's layer share: attentions and a feed-forward network, each with a residual and a norm. */
class TransformerLayer extends Module {
  constructor(attentions, dim, heads, given) {
    super();
    wantCounts(new.target.name, { dim, heads });
    const { feedForward, dropout, activation, eps, normFirst, bias, ...options } = optionsOf(new.target.name, given, { feedForward: 4 * dim, dropout: 0.1,
      activation: 'relu', eps: 1e-5, normFirst: false, bias: true, ...MADE });
    for (const name of attentions) this[name] = new MultiheadAttention(dim, heads, { dropout, bias, ...options });
    this.linear1 = new Linear(dim, feedForward, { bias, ...options });
    this.dropout = new Dropout(dropout);
    this.linear2 = new Linear(feedForward, dim, { bias, ...options });
    this.normFirst = normFirst;
    for (let i = 1; i <= attentions.length + 1; ++i) {
      this[`norm${i}`] = new LayerNorm(dim, { eps, bias, ...options });
      this[`dropout${i}`] = new Dropout(dropout);
    }
    Object.defineProperty(this, 'activation', { value: activationOf(activation) });
  }
  feed(x) {
    return this.linear2.forward(this.dropout.forward(this.activation(this.linear1.forward(x))));
  }
  /** x through the parts, each a function, with the residuals and norms. */
  through(x, parts) {
    return parts.reduce((h, part, i) => {
      const norm = this[`norm${i + 1}`];
      const drop = this[`dropout${i + 1}`];
      return this.normFirst ? h.add(drop.forward(part(norm.forward(h)))) : norm.forward(h.add(drop.forward(part(h))));
    }, x);
  }
}
/** forward(x, {mask, keyPaddingMask, causal}) */
class TransformerEncoderLayer extends TransformerLayer {
  constructor(dim, heads, options) {
    super(['self_attn'], dim, heads, options);
  }
  forward(x, options = undefined) {
    const { mask, keyPaddingMask, causal } = optionsOf('TransformerEncoderLayer', options, MASKS);
    wantTensor(x, 'TransformerEncoderLayer');
    return this.through(x, [(h) => this.self_attn.forward(h, h, h, { attnMask: mask, keyPaddingMask, causal }), (h) => this.feed(h)]);
  }
}
/** forward(x, memory, {mask, keyPaddingMask, causal, memoryMask, memoryKeyPaddingMask}) */
class TransformerDecoderLayer extends TransformerLayer {
  constructor(dim, heads, options) {
    super(['self_attn', 'multihead_attn'], dim, heads, options);
  }
  forward(x, memory, options = undefined) {
    const { mask, keyPaddingMask, causal, memoryMask, memoryKeyPaddingMask } = optionsOf('TransformerDecoderLayer', options, { ...MASKS, memoryMask: null,
      memoryKeyPaddingMask: null });
    wantTensor(x, 'TransformerDecoderLayer');
    return this.through(x, [(h) => this.self_attn.forward(h, h, h, { attnMask: mask, keyPaddingMask, causal }),
      (h) => this.multihead_attn.forward(h, memory, memory, { attnMask: memoryMask, keyPaddingMask: memoryKeyPaddingMask }), (h) => this.feed(h)]);
  }
}
class Stack extends Module {
  constructor(makeLayer, count, options) {
    super();
    const { norm } = optionsOf(new.target.name, options, { norm: null });
    wantCount(count, new.target.name, 'count');
    if (typeof makeLayer !== 'function') throw new ValueError(`${new.target.name}: needs a function that makes a layer`, new.target.name);
    this.layers = new ModuleList(Array.from({ length: count }, (_, i) => makeLayer(i)));
    this.norm = norm;
  }
  forward(x, ...rest) {
    for (const layer of this.layers) x = layer.forward(x, ...rest);
    return this.norm ? this.norm.forward(x) : x;
  }
}
/** `count` layers that makeLayer() makes, then norm. */
class TransformerEncoder extends Stack {}
class TransformerDecoder extends Stack {}
/** An encoder and a decoder (Vaswani et al., arXiv:1706.03762): forward(src, tgt, {...}). */
class Transformer extends Module {
  constructor(given) {
    super();
    const { dim = 512, heads = 8, encoderLayers = 6, decoderLayers = 6, ...options } = given ?? {};
    const { eps = 1e-5, bias = true, dtype, device } = options;
    const norm = () => new LayerNorm(dim, { eps, bias, dtype, device });
    this.encoder = new TransformerEncoder(() => new TransformerEncoderLayer(dim, heads, options), encoderLayers, { norm: norm() });
    this.decoder = new TransformerDecoder(() => new TransformerDecoderLayer(dim, heads, options), decoderLayers, { norm: norm() });
    for (const p of this.parameters()) if (p.ndim > 1) init.xavierUniform_(p);
  }
  forward(src, tgt, options = undefined) {
    const { srcMask, srcKeyPaddingMask, tgtMask, tgtKeyPaddingMask, tgtCausal, memoryMask, memoryKeyPaddingMask = srcKeyPaddingMask } = optionsOf('Transformer',
      options, { srcMask: null, srcKeyPaddingMask: null, tgtMask: null, tgtKeyPaddingMask: null, tgtCausal: false, memoryMask: null, memoryKeyPaddingMask: undefined });
    const memory = this.encoder.forward(src, { mask: srcMask, keyPaddingMask: srcKeyPaddingMask });
    return this.decoder.forward(tgt, memory, { mask: tgtMask, keyPaddingMask: tgtKeyPaddingMask, causal: tgtCausal, memoryMask, memoryKeyPaddingMask });
  }
}

module.exports = {
  MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer, TransformerEncoder, TransformerDecoder, Transformer, causalMask,
};
