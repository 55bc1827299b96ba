// The record of multi-head attention with its projections.

#include "strata/ops/attention/multi_head_attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/attention_definition_record.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "multi_head_attention_forward";
using Pair = std::tuple<Tensor, Tensor>;
using Arguments = MultiHeadAttentionArguments;

// A mask with further keys, which it does not hide.
Tensor wider(const Tensor& mask, int64_t extra) {
  return extra == 0 || !mask.defined() ? mask : pad(mask, {0, extra});
}

// What hides keys from queries: places that are hidden, and numbers that are added to the scores. Both broadcast to
// [B, heads, Tq, Tk].
struct Masks {
  Tensor hidden, bias;

  void add(const Tensor& mask, DType dtype) {
    if (!mask.defined()) return;
    if (mask.dtype() == DType::boolean) {
      hidden = hidden.defined() ? logical_or(hidden, mask) : mask;
    } else {
      check<DTypeError>(is_floating(mask.dtype()), kOp, "a mask must be boolean or floating, got ", mask);
      bias = bias.defined() ? bias + mask.to(dtype) : mask.to(dtype);
    }
  }
  bool any() const { return hidden.defined() || bias.defined(); }
  // As scaled_dot_product_attention() takes it.
  Tensor together() const {
    if (!hidden.defined()) return bias;
    if (!bias.defined()) return logical_not(hidden);
    return bias + where(hidden, lowest(), Scalar(0.0)).to(bias.dtype());
  }
  Tensor on(const Tensor& scores) const {
    const Tensor s = bias.defined() ? scores + bias : scores;
    return hidden.defined() ? s + where(hidden, lowest(), Scalar(0.0)).to(s.dtype()) : s;
  }
  static Scalar lowest() { return -std::numeric_limits<double>::infinity(); }
};

// [B, T, E] as [B, heads, T, D].
Tensor heads_of(const Tensor& x, int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

void check_inputs(const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim, const Arguments& a) {
  check<ShapeError>(query.dim() == 2 || query.dim() == 3, kOp, "query must be [T, B, E] or [T, E], got ", query);
  check<ShapeError>(key.dim() == query.dim() && value.dim() == query.dim(), kOp, "query is ", query, ", key is ", key,
                    ", value is ", value, ": they must have one number of dimensions");
  check<ShapeError>(query.size(-1) == embed_dim, kOp, "was expecting embedding dimension of ", embed_dim, ", but got ",
                    query.size(-1));
  check(a.num_heads >= 1 && embed_dim >= 1 && embed_dim % a.num_heads == 0, kOp, "embed_dim ", embed_dim,
        " not divisible by num_heads ", a.num_heads);
  check<ShapeError>(key.size(0) == value.size(0), kOp, "key has ", key.size(0), " positions, value has ",
                    value.size(0));
  if (query.dim() == 3)
    check<ShapeError>(key.size(1) == query.size(1) && value.size(1) == query.size(1), kOp, "the batches of query ",
                      query, ", key ", key, " and value ", value, " differ");
  check(a.dropout_p >= 0 && a.dropout_p <= 1, kOp, "dropout_p must be in [0, 1], got ", a.dropout_p);
  check(a.bias_k.defined() == a.bias_v.defined(), kOp, "bias_k and bias_v come together");
  const auto want = [](const Tensor& t, std::string_view name, const Shape& shape) {
    check<ShapeError>(t.defined() && t.shape() == shape, kOp, name, " must be ", shape, ", got ", t);
  };
  if (a.in_proj_weight.defined()) {
    want(a.in_proj_weight, "in_proj_weight", {3 * embed_dim, embed_dim});
    check<ShapeError>(key.size(-1) == embed_dim && value.size(-1) == embed_dim, kOp, "key is ", key, " and value ",
                      value, ", wanted ", embed_dim, " columns as query has");
  } else {
    want(a.q_proj_weight, "q_proj_weight", {embed_dim, embed_dim});
    want(a.k_proj_weight, "k_proj_weight", {embed_dim, key.size(-1)});
    want(a.v_proj_weight, "v_proj_weight", {embed_dim, value.size(-1)});
  }
  if (a.in_proj_bias.defined()) want(a.in_proj_bias, "in_proj_bias", {3 * embed_dim});
  want(a.out_proj_weight, "out_proj_weight", {embed_dim, embed_dim});
  if (a.bias_k.defined()) want(a.bias_k, "bias_k", {1, 1, embed_dim});
  if (a.bias_v.defined()) want(a.bias_v, "bias_v", {1, 1, embed_dim});
}

// The additive and boolean masks over the keys that the projections give, `extra` further keys being seen by all.
Masks masks_of(const Arguments& a, int64_t batch, int64_t tq, int64_t tk, int64_t extra, const Tensor& like) {
  Masks m;
  if (a.attn_mask.defined()) {
    const Tensor& given = a.attn_mask;
    const bool flat = given.dim() == 2 && given.shape() == Shape{tq, tk};
    const bool each = given.dim() == 3 && given.shape() == Shape{batch * a.num_heads, tq, tk};
    check<ShapeError>(flat || each || given.dim() == 4, kOp, "attn_mask is ", given, ", wanted [", tq, ", ", tk,
                      "] or [", batch * a.num_heads, ", ", tq, ", ", tk, "]");
    Tensor mask = each ? given.reshape({batch, a.num_heads, tq, tk}) : given;
    if (given.dim() == 4 && extra > 0) mask = mask.expand({given.size(0), given.size(1), given.size(2), tk});
    m.add(wider(mask, extra), like.dtype());
  }
  if (a.is_causal && (extra > 0 || a.need_weights)) {
    const DeviceScope there(like.device());
    m.add(wider(triu(ones({tq, tk}, DType::u8), 1).to(DType::boolean), extra), like.dtype());
  }
  if (a.key_padding_mask.defined()) {
    const Tensor& given = a.key_padding_mask;
    check<ShapeError>(given.shape() == Shape{batch, tk} || (batch == 1 && given.shape() == Shape{tk}), kOp,
                      "key_padding_mask is ", given, ", wanted [", batch, ", ", tk, "]");
    m.add(wider(given, extra).reshape({batch, 1, 1, tk + extra}), like.dtype());
  }
  return m;
}

Pair attend(const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim, const Arguments& a) {
  check_inputs(query, key, value, embed_dim, a);
  const bool single = query.dim() == 2, same = query.same_as(key) && key.same_as(value);
  const double p = a.training ? a.dropout_p : 0;
  const auto batches_first = [&](const Tensor& x) { return single ? x.unsqueeze(0) : x.transpose(0, 1); };
  const auto result = [&](const Tensor& y) {
    const Tensor projected = linear(y, a.out_proj_weight, a.out_proj_bias);
    return single ? projected.squeeze(0) : projected.transpose(0, 1);
  };
  const auto no_weights = [&] { return empty(TensorMeta{Shape{0}, query.dtype(), query.device(), std::nullopt}); };
  const bool plain = !a.need_weights && !a.attn_mask.defined() && !a.key_padding_mask.defined() &&
                     !a.bias_k.defined() && !a.add_zero_attn && !a.static_k.defined() && !a.static_v.defined();
  if (same && a.in_proj_weight.defined() && plain) {
    const Tensor qkv = linear(batches_first(query), a.in_proj_weight, a.in_proj_bias);
    return {result(packed_attention(qkv, a.num_heads, a.num_heads, {.is_causal = a.is_causal, .dropout_p = p})),
            no_weights()};
  }

  const auto project = [&](const Tensor& x, int64_t part, const Tensor& apart) {
    const Tensor bias =
        a.in_proj_bias.defined() ? a.in_proj_bias.narrow(0, part * embed_dim, embed_dim) : a.in_proj_bias;
    const Tensor w = a.in_proj_weight.defined() ? a.in_proj_weight.narrow(0, part * embed_dim, embed_dim) : apart;
    return linear(batches_first(x), w, bias);
  };
  Tensor q, k, v;
  if (same && a.in_proj_weight.defined()) {
    const Tensor qkv = linear(batches_first(query), a.in_proj_weight, a.in_proj_bias);
    q = qkv.narrow(2, 0, embed_dim);
    k = qkv.narrow(2, embed_dim, embed_dim);
    v = qkv.narrow(2, 2 * embed_dim, embed_dim);
  } else {
    q = project(query, 0, a.q_proj_weight);
    k = project(key, 1, a.k_proj_weight);
    v = project(value, 2, a.v_proj_weight);
  }
  const int64_t batch = q.size(0), tq = q.size(1);
  int64_t extra = 0;
  if (a.bias_k.defined()) {
    k = cat({k, a.bias_k.to(k.dtype()).expand({batch, 1, embed_dim})}, 1);
    v = cat({v, a.bias_v.to(v.dtype()).expand({batch, 1, embed_dim})}, 1);
    ++extra;
  }
  q = heads_of(q, a.num_heads), k = heads_of(k, a.num_heads), v = heads_of(v, a.num_heads);
  const auto fixed = [&](const Tensor& t, std::string_view name) {
    const int64_t d = embed_dim / a.num_heads;
    check<ShapeError>(t.dim() == 3 && t.size(0) == batch * a.num_heads && t.size(2) == d, kOp, name, " is ", t,
                      ", wanted [", batch * a.num_heads, ", Tk, ", d, "]");
    return t.reshape({batch, a.num_heads, t.size(1), d});
  };
  if (a.static_k.defined()) k = fixed(a.static_k, "static_k");
  if (a.static_v.defined()) v = fixed(a.static_v, "static_v");
  check<ShapeError>(k.size(2) == v.size(2), kOp, "there are ", k.size(2), " keys and ", v.size(2), " values");
  if (a.add_zero_attn) {
    k = pad(k, {0, 0, 0, 1});
    v = pad(v, {0, 0, 0, 1});
    ++extra;
  }
  const Masks masks = masks_of(a, batch, tq, k.size(2) - extra, extra, q);

  const auto joined = [&](const Tensor& y) { return y.transpose(1, 2).reshape({batch, tq, embed_dim}); };
  if (!a.need_weights) {
    const Tensor y = scaled_dot_product_attention(q, k, v, masks.together(),
                                                  {.is_causal = a.is_causal && extra == 0, .dropout_p = p});
    return {result(joined(y)), no_weights()};
  }
  if (q.device().is_cuda() && p < 1) {
    // Weights from lse: none of each head's are kept where their mean is wanted.
    detail::AttentionArguments args;
    args.is_causal = false;  // it is one of the masks
    args.dropout_p = p;
    if (p > 0) args.key = default_generator().next(random_blocks(batch * a.num_heads * tq * k.size(2)));
    const Tensor mask = masks.together();
    const auto [y, lse] = detail::attention_with_lse(q, k, v, mask, args);
    const Tensor weights = detail::attention_weights(q, k, mask, lse, a.average_attn_weights, args);
    return {result(joined(y)), single ? weights.squeeze(0) : weights};
  }
  const double scale = 1 / std::sqrt(static_cast<double>(embed_dim / a.num_heads));
  Tensor weights = softmax(masks.on(matmul(q * scale, k.transpose(2, 3))), -1);
  if (p > 0) weights = dropout(weights, p);
  const Tensor y = result(joined(matmul(weights, v)));
  if (a.average_attn_weights) weights = mean(weights, {1});
  return {y, single ? weights.squeeze(0) : weights};
}

// ---- by hand --------------------------------------------------------------------------------------------------------

using Numbers = std::vector<double>;

Numbers numbers(const Tensor& t) {
  return t.defined() ? t.to_vector<double>() : Numbers();
}

// Row (t, b) of [T, B, width] or [T, width].
Numbers row_of(const Numbers& all, int64_t t, int64_t b, int64_t batch, int64_t width) {
  const int64_t at = (t * batch + b) * width;
  return Numbers(all.begin() + at, all.begin() + at + width);
}
Numbers product(const Numbers& w, int64_t first_row, int64_t rows, const Numbers& x, const Numbers& bias,
                int64_t first_bias) {
  Numbers y;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = bias.empty() ? 0 : bias[static_cast<size_t>(first_bias + r)];
    for (size_t i = 0; i < x.size(); ++i) sum += w[static_cast<size_t>(first_row + r) * x.size() + i] * x[i];
    y.push_back(sum);
  }
  return y;
}

Pair by_hand(const Tensor& query, const Tensor& key, const Tensor& value, int64_t e, const Arguments& a) {
  const bool single = query.dim() == 2;
  const int64_t tq = query.size(0), tk = key.size(0), batch = single ? 1 : query.size(1), heads = a.num_heads;
  const int64_t d = e / heads;
  const bool packed = a.in_proj_weight.defined();
  const Numbers in_w = numbers(a.in_proj_weight), in_b = numbers(a.in_proj_bias), out_w = numbers(a.out_proj_weight),
                out_b = numbers(a.out_proj_bias), attn = numbers(a.attn_mask), padding = numbers(a.key_padding_mask);
  const Numbers apart[3] = {numbers(a.q_proj_weight), numbers(a.k_proj_weight), numbers(a.v_proj_weight)};
  const Numbers inputs[3] = {numbers(query), numbers(key), numbers(value)};
  const Numbers fixed_k = numbers(a.static_k), fixed_v = numbers(a.static_v);
  const auto projected = [&](int part, int64_t t, int64_t b, int64_t width) {
    const Numbers x = row_of(inputs[part], t, b, batch, width);
    return packed ? product(in_w, part * e, e, x, in_b, part * e) : product(apart[part], 0, e, x, in_b, part * e);
  };
  const auto masked = [](const Tensor& mask, double v) {
    return mask.dtype() == DType::boolean ? (v != 0 ? -std::numeric_limits<double>::infinity() : 0.0) : v;
  };
  const double inf = std::numeric_limits<double>::infinity();
  int64_t total = a.static_k.defined() ? a.static_k.size(1) : tk + (a.bias_k.defined() ? 1 : 0);
  const int64_t masked_keys = total - (a.bias_k.defined() ? 1 : 0);
  if (a.add_zero_attn) ++total;
  Numbers out(static_cast<size_t>(tq * batch * e)),
      weights(static_cast<size_t>(a.average_attn_weights ? batch * tq * total : batch * heads * tq * total));
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<Numbers> k, v;
    for (int64_t t = 0; t < tk; ++t) {
      k.push_back(projected(1, t, b, key.size(-1)));
      v.push_back(projected(2, t, b, value.size(-1)));
    }
    if (a.bias_k.defined()) k.push_back(numbers(a.bias_k)), v.push_back(numbers(a.bias_v));
    const auto replace = [&](std::vector<Numbers>& rows, const Numbers& with) {
      if (with.empty()) return;
      rows.assign(static_cast<size_t>(masked_keys + (a.bias_k.defined() ? 1 : 0)), Numbers(static_cast<size_t>(e)));
      for (size_t t = 0; t < rows.size(); ++t)
        for (int64_t i = 0; i < e; ++i)
          rows[t][static_cast<size_t>(i)] = with[static_cast<size_t>(
              ((b * heads + i / d) * static_cast<int64_t>(rows.size()) + static_cast<int64_t>(t)) * d + i % d)];
    };
    replace(k, fixed_k);
    replace(v, fixed_v);
    if (a.add_zero_attn) k.emplace_back(static_cast<size_t>(e)), v.emplace_back(static_cast<size_t>(e));
    for (int64_t i = 0; i < tq; ++i) {
      const Numbers q = projected(0, i, b, e);
      Numbers y(static_cast<size_t>(e));
      for (int64_t h = 0; h < heads; ++h) {
        Numbers w(static_cast<size_t>(total));
        double sum = 0;
        for (int64_t j = 0; j < total; ++j) {
          double score = 0;
          for (int64_t c = h * d; c < (h + 1) * d; ++c)
            score += q[static_cast<size_t>(c)] * k[static_cast<size_t>(j)][static_cast<size_t>(c)];
          score /= std::sqrt(static_cast<double>(d));
          if (j < masked_keys) {
            if (a.attn_mask.defined()) {
              const int64_t matrix = a.attn_mask.dim() == 2 ? 0 : b * heads + h;
              score += masked(a.attn_mask, attn[static_cast<size_t>((matrix * tq + i) * masked_keys + j)]);
            }
            if (a.key_padding_mask.defined())
              score += masked(a.key_padding_mask, padding[static_cast<size_t>(b * masked_keys + j)]);
            if (a.is_causal && j > i) score = -inf;
          }
          w[static_cast<size_t>(j)] = std::exp(score);
          sum += w[static_cast<size_t>(j)];
        }
        for (int64_t j = 0; j < total; ++j) {
          const double share = w[static_cast<size_t>(j)] / sum;
          for (int64_t c = h * d; c < (h + 1) * d; ++c)
            y[static_cast<size_t>(c)] += share * v[static_cast<size_t>(j)][static_cast<size_t>(c)];
          if (a.average_attn_weights) {
            weights[static_cast<size_t>((b * tq + i) * total + j)] += share / static_cast<double>(heads);
          } else {
            weights[static_cast<size_t>(((b * heads + h) * tq + i) * total + j)] = share;
          }
        }
      }
      const Numbers projected_y = product(out_w, 0, e, y, out_b, 0);
      std::copy(projected_y.begin(), projected_y.end(), out.begin() + (i * batch + b) * e);
    }
  }
  if (!a.need_weights) return {from_span<double>(out, query.shape()), from_span<double>({}, {0})};
  Shape shape;
  if (!single) shape.push_back(batch);
  if (!a.average_attn_weights) shape.push_back(heads);
  shape.push_back(tq);
  shape.push_back(total);
  return {from_span<double>(out, query.shape()), from_span<double>(weights, shape)};
}

// ---- the record -----------------------------------------------------------------------------------------------------

// The record's arguments behind embed_dim_to_check, in the schema's order.
#define STRATA_MHA_ARGUMENTS                                                                                    \
  int64_t num_heads, const Tensor &in_proj_weight, const Tensor &in_proj_bias, const Tensor &bias_k,            \
      const Tensor &bias_v, bool add_zero_attn, double dropout_p, const Tensor &out_proj_weight,                \
      const Tensor &out_proj_bias, bool training, const Tensor &key_padding_mask, bool need_weights,            \
      const Tensor &attn_mask, bool use_separate_proj_weight, const Tensor &q_proj_weight,                      \
      const Tensor &k_proj_weight, const Tensor &v_proj_weight, const Tensor &static_k, const Tensor &static_v, \
      bool average_attn_weights, bool is_causal

Arguments collected(STRATA_MHA_ARGUMENTS) {
  return {.num_heads = num_heads,
          .in_proj_weight = use_separate_proj_weight ? Tensor() : in_proj_weight,
          .in_proj_bias = in_proj_bias,
          .q_proj_weight = q_proj_weight,
          .k_proj_weight = k_proj_weight,
          .v_proj_weight = v_proj_weight,
          .out_proj_weight = out_proj_weight,
          .out_proj_bias = out_proj_bias,
          .bias_k = bias_k,
          .bias_v = bias_v,
          .add_zero_attn = add_zero_attn,
          .dropout_p = dropout_p,
          .training = training,
          .key_padding_mask = key_padding_mask,
          .attn_mask = attn_mask,
          .is_causal = is_causal,
          .need_weights = need_weights,
          .average_attn_weights = average_attn_weights,
          .static_k = static_k,
          .static_v = static_v};
}

template <Pair (*kForm)(const Tensor&, const Tensor&, const Tensor&, int64_t, const Arguments&)>
Pair with_arguments(const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim_to_check,
                    STRATA_MHA_ARGUMENTS) {
  return kForm(
      query, key, value, embed_dim_to_check,
      collected(num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight,
                out_proj_bias, training, key_padding_mask, need_weights, attn_mask, use_separate_proj_weight,
                q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v, average_attn_weights, is_causal));
}

// The four projections and the two products of attention.
Cost cost_of(const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim, STRATA_MHA_ARGUMENTS) {
  const auto e = static_cast<double>(embed_dim), nq = static_cast<double>(query.numel()) / std::max(1.0, e);
  const auto tk = key.dim() > 0 ? static_cast<double>(key.size(0)) : 0.0;
  double bytes = 2.0 * static_cast<double>(query.nbytes() + key.nbytes() + value.nbytes());
  for (const Tensor* w : {&in_proj_weight, &q_proj_weight, &k_proj_weight, &v_proj_weight, &out_proj_weight})
    if (w->defined()) bytes += static_cast<double>(w->nbytes());
  const double kv = static_cast<double>(key.numel()) + static_cast<double>(value.numel());
  return {2 * e * (2 * e * nq + kv) + 4 * nq * tk * e, bytes};
}

void samples(Samples& s) {
  constexpr int64_t e = 6, heads = 2;
  const auto none = std::nullopt;
  const auto w = [&](const Shape& shape) { return s.uniform(shape, -0.5, 0.5); };
  const Tensor in_w = w({3 * e, e}), in_b = w({3 * e}), out_w = w({e, e}), out_b = w({e});
  const Tensor x = s.tensor({3, 2, e}), memory = s.tensor({4, 2, e});
  s.add(x, x, x, e, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b, false, none, false).named("self");
  s.add(x, x, x, e, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b, false, none, false, none, false, none,
        none, none, none, none, true, true)
      .named("causal");
  s.add(x, memory, memory, e, heads, in_w, none, none, none, false, 0.0, out_w, none).named("cross, weights");
  Tensor padding = zeros({2, 4}, DType::boolean);
  padding.narrow(1, 3, 1).copy_(ones({2, 1}, DType::boolean));
  s.add(x, memory, memory, e, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b, false, padding, false, w({3, 4}))
      .named("both masks");
  s.add(x, memory, memory, e, heads, in_w, in_b, w({1, 1, e}), w({1, 1, e}), true, 0.0, out_w, out_b, false, padding,
        true, w({2 * heads, 3, 4}), false, none, none, none, none, none, false, true)
      .named("further keys, each head's weights");
  s.add(x, s.tensor({4, 2, 3}), s.tensor({4, 2, 5}), e, heads, none, in_b, none, none, false, 0.0, out_w, out_b, false,
        none, false, triu(ones({3, 4}, DType::u8), 2).to(DType::boolean), true, w({e, e}), w({e, 3}), w({e, 5}))
      .named("separate projections");
  s.add(s.tensor({3, e}), s.tensor({4, e}), s.tensor({4, e}), e, 3, in_w, in_b, none, none, false, 0.0, out_w, out_b,
        false, none, true, none, false, none, none, none, w({3, 5, 2}), w({3, 5, 2}))
      .named("no batch, static keys");
  s.invalid<ShapeError>("embedding dimension", x, x, x, e + 1, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b);
  s.invalid<ValueError>("not divisible", x, x, x, e, 4, in_w, in_b, none, none, false, 0.0, out_w, out_b);
  s.invalid<ShapeError>("in_proj_weight must be", x, x, x, e, heads, out_w, in_b, none, none, false, 0.0, out_w, out_b);
  s.invalid<ShapeError>("attn_mask is", x, x, x, e, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b, false,
                        none, true, s.tensor({3, 4}));
  s.invalid<ShapeError>("key_padding_mask is", x, x, x, e, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b,
                        false, s.boolean({2, 4}));
  s.invalid<ShapeError>("positions", x, memory, x, e, heads, in_w, in_b, none, none, false, 0.0, out_w, out_b);
  if (s.benchmarking()) {
    const Tensor large = s.tensor({128, 4, 256});
    s.bench(large, large, large, 256, 8, w({768, 256}), w({768}), none, none, false, 0.0, w({256, 256}), w({256}),
            false, none, false);
  }
}

const Op<Pair(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, const Tensor&, const Tensor&,
              const Tensor&, const Tensor&, bool, double, const Tensor&, const Tensor&, bool, const Tensor&, bool,
              const Tensor&, bool, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
              bool)>
    multi_head_attention_op{{
        .schema =
            "multi_head_attention_forward(Tensor query, Tensor key, Tensor value, int embed_dim_to_check, int "
            "num_heads, Tensor? in_proj_weight, Tensor? in_proj_bias, Tensor? bias_k, Tensor? bias_v, bool "
            "add_zero_attn, float dropout_p, Tensor out_proj_weight, Tensor? out_proj_bias, bool training=true, "
            "Tensor? key_padding_mask=None, bool need_weights=true, Tensor? attn_mask=None, bool "
            "use_separate_proj_weight=false, Tensor? q_proj_weight=None, Tensor? k_proj_weight=None, Tensor? "
            "v_proj_weight=None, Tensor? static_k=None, Tensor? static_v=None, bool average_attn_weights=true, bool "
            "is_causal=false) -> (Tensor output, Tensor weights)",
        .doc =
            "softmax(q k^T / sqrt(E / num_heads) + masks) v of each head, between the projections of query [Tq, B, E], "
            "key and value [Tk, B, ..] (or all without B) and that of the output, which has query's shape (Vaswani et "
            "al., arXiv:1706.03762). The input projections are one weight [3 E, E] or three; bias_k and bias_v are one "
            "more key and value, add_zero_attn one more of zeros, static_k and static_v [B num_heads, Tk, E / "
            "num_heads] take the place of what is projected. attn_mask ([Tq, Tk], [B num_heads, Tq, Tk] or broadcast "
            "to [B, num_heads, Tq, Tk]) and key_padding_mask [B, Tk] are boolean (true: hidden) or added to the "
            "scores; is_causal, besides them, hides what is behind a query. With training, weights are dropped with "
            "probability dropout_p by numbers of the default generator. weights is the mean over the heads [B, Tq, Tk] "
            "or each "
            "head's, and without need_weights empty, [0]. ShapeError, ValueError.",
        .example = "Tensor x = ones({3, 1, 4}), w = eye(4); auto [y, weights] = multi_head_attention_forward(x, x, x, "
                   "{.num_heads = 2, .in_proj_weight = cat({w, w, w}), .out_proj_weight = w, .need_weights = true}); "
                   "assert(y.shape() == x.shape() && std::abs(weights.sum().item() - 3) < 1e-5);",
        .composed = with_arguments<attend>,
        .cost = cost_of,
        .samples = samples,
        .reference = with_arguments<by_hand>,
    }};

}  // namespace

std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                        const MultiHeadAttentionArguments& a) {
  return multi_head_attention_op(query, key, value, query.dim() > 0 ? query.size(-1) : 0, a.num_heads, a.in_proj_weight,
                                 a.in_proj_bias, a.bias_k, a.bias_v, a.add_zero_attn, a.dropout_p, a.out_proj_weight,
                                 a.out_proj_bias, a.training, a.key_padding_mask, a.need_weights, a.attn_mask,
                                 !a.in_proj_weight.defined(), a.q_proj_weight, a.k_proj_weight, a.v_proj_weight,
                                 a.static_k, a.static_v, a.average_attn_weights, a.is_causal);
}

}  // namespace strata
