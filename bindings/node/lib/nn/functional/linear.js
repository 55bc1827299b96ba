'use strict';
// Linear maps, tables, attention.

const { functions: F } = require('../../ops.js');
const { define } = require('../../arguments.js');
const { ShapeError } = require('../../errors.js');

/** x1^T weight[o] x2 + bias[o]: [.., in1], [.., in2], weight [out, in1, in2] -> [.., out]. */
const bilinear = define('bilinear', ['x1', 'x2', 'weight', 'bias?'], {}, (x1, x2, weight, bias) => F.bilinear(x1, x2, weight, bias));
const whole = (t) => (t === null || t.dtype === 'i64' ? t : t.to('i64'));
/** Sums, means or maxima (mode 'sum', 'mean', 'max') of the rows of weight that each bag names: [bags, n], or [n] with offsets. */
const embeddingBag = define('embeddingBag', ['indices', 'weight', 'offsets?'], { mode: 'mean', perSampleWeights: null, includeLastOffset: false,
  paddingIdx: null }, (indices, weight, offsets, o) => F.embedding_bag(whole(indices), weight, whole(offsets), o.mode, o.perSampleWeights,
  o.includeLastOffset, o.paddingIdx));
/** [..] i64 -> [.., numClasses]; without numClasses the largest element plus one. */
const oneHot = define('oneHot', ['x'], { numClasses: -1 }, (x, { numClasses }) => F.one_hot(x, numClasses === -1 ? Number(F.amax(x).item()) + 1 : numClasses));
/** softmax(q k^T scale + mask) v of [B, heads, T, E] or [heads, T, E]; heads are grouped where those of the keys divide those of the queries.
 * alibiSlopes [heads]: a score falls by slope times distance; logitSoftCap: scaled scores become cap * tanh(score / cap); sinks [heads]: a score
 * without a value; keyLengths [B]: keys behind them are not seen. */
const scaledDotProductAttention = define('scaledDotProductAttention', ['query', 'key', 'value', 'attnMask?'], { dropoutP: 0, isCausal: false,
  scale: null, enableGqa: false, window: 0, queryOffset: 0, alibiSlopes: null, logitSoftCap: 0, sinks: null, keyLengths: null }, (query, key, value, mask, o) => {
  if (query.ndim === 3) {
    return scaledDotProductAttention(query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), mask, { ...o, enableGqa: true }).squeeze(0);
  }
  if (!o.enableGqa && query.shape[1] !== key.shape[1]) {
    throw new ShapeError(`scaledDotProductAttention: query has ${query.shape[1]} heads and key ${key.shape[1]}: {enableGqa: true} groups them`,
      'scaledDotProductAttention');
  }
  return F.scaled_dot_product_attention(query, key, value, { attn_mask: mask, is_causal: o.isCausal, scale: o.scale, dropout_p: o.dropoutP,
    window: o.window, query_offset: o.queryOffset, alibi_slopes: o.alibiSlopes, logit_soft_cap: o.logitSoftCap, sinks: o.sinks,
    key_lengths: o.keyLengths });
});

module.exports = { bilinear, embeddingBag, oneHot, scaledDotProductAttention };
