// Each layer against its formula, written with plain ops, and its gradient reaching every parameter.

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/nn/nn.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"

namespace strata::nn {
namespace {

void expect_close(const Tensor& a, const Tensor& b, double tolerance = 2e-5) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_LE((a - b).abs().max().item(), tolerance);
}

void expect_gradients(const Module& m, const Tensor& y) {
  sum(y * y).backward();
  for (const auto& [name, p] : m.named_parameters()) {
    ASSERT_TRUE(p.grad().defined()) << name;
    EXPECT_GT(p.grad().abs().max().item(), 0) << name;
  }
}

TEST(Layers, Linear) {
  const Linear l(5, 3);
  const Tensor x = randn({2, 4, 5});
  expect_close(l(x), x.matmul(l.weight.t()) + l.bias);
  expect_gradients(l, l(x));
  EXPECT_THROW(l(randn({2, 4})), ShapeError);
}

TEST(Layers, Embedding) {
  const Embedding e(7, 3, -1);
  const Tensor ids = from_span<int64_t>(std::vector<int64_t>{6, 2, 2}, {3});
  expect_close(e(ids).select(0, 1), e.weight.select(0, 2));
  sum(e(ids)).backward();
  EXPECT_EQ(e.weight.grad().select(0, 6).abs().max().item(), 0);
  EXPECT_EQ(e.weight.grad().select(0, 2).max().item(), 2);
  EXPECT_THROW(e(from_span<int64_t>(std::vector<int64_t>{7}, {1})), IndexError);
  EXPECT_THROW(Embedding(7, 3, 7), IndexError);
}

TEST(Layers, DropoutOnlyInTraining) {
  Dropout d(0.25);
  const Tensor x = ones({10000});
  const Tensor y = d(x);
  EXPECT_NEAR(y.mean().item(), 1, 0.03);
  EXPECT_NEAR((y > 0.0).to(DType::f32).mean().item(), 0.75, 0.02);
  EXPECT_NEAR(y.max().item(), 4.0 / 3, 1e-6);
  d.eval();
  EXPECT_TRUE(equal(d(x), x));
  EXPECT_THROW(Dropout(1.5), ValueError);
}

TEST(Layers, Activations) {
  const Tensor x = randn({50});
  expect_close(ReLU()(x), maximum(x, zeros({50})));
  expect_close(SiLU()(x), x * sigmoid(x));
  expect_close(GELU()(x), x * 0.5 * (erf(x / std::sqrt(2.0)) + 1.0));
  expect_close(GELU("tanh")(x), x * 0.5 * (tanh((x + x * x * x * 0.044715) * std::sqrt(2 / M_PI)) + 1.0));
  expect_close(Softmax(0)(x), exp(x) / sum(exp(x)));
  expect_close(Tanh()(x), tanh(x));
  expect_close(Sigmoid()(x), sigmoid(x));
  EXPECT_EQ(Flatten()(randn({2, 3, 4})).shape(), Shape({2, 12}));
  EXPECT_THROW(GELU("fast"), ValueError);
}

TEST(Layers, Norms) {
  const Tensor x = randn({4, 6, 5, 3}) * 2.0 + 1.0;
  const auto normalise = [](const Tensor& t, const Dims& dims) {
    const Tensor c = t - t.mean(dims, true);
    return c / sqrt((c * c).mean(dims, true) + 1e-5);
  };
  LayerNorm ln(Shape{5, 3});
  init::normal_(ln.weight);
  init::normal_(ln.bias);
  expect_close(ln(x), normalise(x, {2, 3}) * ln.weight + ln.bias);
  expect_gradients(ln, ln(x));
  RMSNorm rms(3);
  init::normal_(rms.weight);
  expect_close(rms(x), x / sqrt((x * x).mean({3}, true) + 1e-6) * rms.weight);
  expect_gradients(rms, rms(x));
  const GroupNorm gn(3, 6);
  expect_close(gn(x), normalise(x.reshape({4, 3, 30}), {2}).reshape({4, 6, 5, 3}));
  EXPECT_THROW(GroupNorm(4, 6), ValueError);
}

TEST(Layers, BatchNorm) {
  BatchNorm2d bn(6);
  const Tensor x = randn({4, 6, 5, 3}) * 2.0 + 1.0;
  const Dims dims{0, 2, 3};
  const Tensor mean = x.mean(dims, true), c = x - mean, var = (c * c).mean(dims, true);
  expect_close(bn(x), c / sqrt(var + 1e-5));
  expect_close(bn.running_mean, mean.flatten() * 0.1);
  expect_close(bn.running_var, var.flatten() * (60.0 / 59 * 0.1) + 0.9);
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 1);
  bn.eval();
  const Shape per_channel{1, 6, 1, 1};
  expect_close(bn(x), (x - bn.running_mean.view(per_channel)) / sqrt(bn.running_var.view(per_channel) + 1e-5));
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 1);
  EXPECT_THROW(bn(randn({4, 6})), ShapeError);
}

TEST(Layers, ConvolutionsAgainstMatrixProducts) {
  const Conv1d c(3, 4, 3, {.stride = {2}, .padding = {1}});
  const Tensor x = randn({2, 3, 9});
  const Tensor columns = pad(x, {1, 1}).unfold(2, 3, 2);  // [2, 3, 5, 3]
  expect_close(
      c(x), columns.transpose(1, 2).flatten(2).matmul(c.weight.flatten(1).t()).transpose(1, 2) + c.bias.view({4, 1}));
  expect_gradients(c, c(x));
  EXPECT_EQ(Conv2d(4, 6, 3, {.stride = {2}, .groups = 2})(randn({1, 4, 9, 9})).shape(), Shape({1, 6, 4, 4}));
  // A transposed convolution is the gradient of a convolution.
  const ConvTranspose2d t(4, 3, 3, {.stride = {2}, .bias = false, .output_padding = {1}});
  EXPECT_EQ(t(randn({2, 4, 5, 5})).shape(), Shape({2, 3, 12, 12}));
  EXPECT_EQ(ConvTranspose1d(4, 3, 2)(randn({2, 4, 5})).shape(), Shape({2, 3, 6}));
  EXPECT_THROW(Conv2d(4, 6, 3, {.groups = 4}), ValueError);
  EXPECT_EQ(MaxPool2d(2)(randn({1, 2, 6, 6})).shape(), Shape({1, 2, 3, 3}));
  EXPECT_EQ(AvgPool2d(2)(randn({1, 2, 6, 6})).shape(), Shape({1, 2, 3, 3}));
  const Tensor image = randn({1, 2, 6, 6});
  expect_close(AdaptiveAvgPool2d(Dims{1})(image), image.mean({2, 3}, true));
}

// Attention written out: [B, H, T, D].
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) {
    const Tensor i = arange(q.size(2)).unsqueeze(1), j = arange(k.size(2));
    scores = where(le(j, i + (k.size(2) - q.size(2))), scores, full_like(scores, -1e30));
  }
  return scores.softmax(-1).matmul(v);
}
Tensor heads_of(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

TEST(Layers, MultiheadAttention) {
  const MultiheadAttention m(12, 3, {.batch_first = true});
  init::normal_(m.in_proj_bias);
  const Tensor x = randn({2, 5, 12}), memory = randn({2, 7, 12});
  const auto part = [&](const Tensor& t, int64_t i) {
    return heads_of(linear(t, m.in_proj_weight.narrow(0, 12 * i, 12), m.in_proj_bias.narrow(0, 12 * i, 12)), 3);
  };
  const auto join = [&](const Tensor& t) { return m.out_proj(t.transpose(1, 2).flatten(2)); };
  expect_close(m(x, x, x, {}, true), join(attention(part(x, 0), part(x, 1), part(x, 2), true)));
  expect_close(m(x, memory, memory), join(attention(part(x, 0), part(memory, 1), part(memory, 2), false)));
  expect_gradients(m, m(x, x, x));
  const MultiheadAttention time_first(12, 3);
  EXPECT_EQ(time_first(randn({5, 2, 12}), randn({7, 2, 12}), randn({7, 2, 12})).shape(), Shape({5, 2, 12}));
  EXPECT_THROW(MultiheadAttention(12, 5), ValueError);
  EXPECT_THROW(m(randn({2, 5, 11}), x, x), ShapeError);
}

TEST(Layers, SelfAttentionGroupedHeads) {
  const SelfAttention a(16, {.heads = 4, .kv_heads = 2, .head_size = 4, .value_size = 4});
  const Tensor x = randn({2, 6, 16}), packed = a.qkv(x);
  const Tensor q = heads_of(packed.narrow(2, 0, 16).contiguous(), 4);
  const auto shared = [&](int64_t at) {  // each key head serves two query heads
    return heads_of(packed.narrow(2, at, 8).contiguous(), 2).unsqueeze(2).expand({2, 2, 2, 6, 4}).reshape({2, 4, 6, 4});
  };
  expect_close(a(x), a.out(attention(q, shared(16), shared(24), true).transpose(1, 2).flatten(2)));
  expect_gradients(a, a(x));
  EXPECT_THROW(SelfAttention(16, {.heads = 4, .kv_heads = 3, .head_size = 4, .value_size = 4}), ValueError);
}

// Queries, keys and values of other sizes, norms of queries and keys, windows, soft caps, pairs of neighbours: against
// the definition.
TEST(Layers, SelfAttentionOfASpec) {
  const NoGrad guard;
  const Tensor x = randn({2, 7, 16});
  const RotaryTables tables({.dims = 4, .base = 100, .interleaved = true});
  const Turns turns = tables.rows(0, 7, 7, x);
  const AttentionSpec spec{.heads = 4,
                           .kv_heads = 2,
                           .head_size = 6,
                           .value_size = 5,
                           .window = 3,
                           .bias = false,
                           .query_key_norm = NormSpec{.kind = NormSpec::Kind::rms, .one_plus = true},
                           .scale = 0.3,
                           .soft_cap = 2,
                           .rotary = 0};
  const SelfAttention a(16, spec);
  EXPECT_EQ(a.qkv.weight.shape(), Shape({24 + 12 + 10, 16}));
  EXPECT_EQ(a.out.weight.shape(), Shape({16, 20}));
  EXPECT_EQ(a.q_norm->weight.to_vector<float>(), std::vector<float>(6, 0));
  const Tensor packed = a.qkv(x);
  const auto heads = [&](int64_t at, int64_t n, int64_t d) {
    return packed.narrow(2, at, n * d).reshape({2, 7, n, d}).transpose(1, 2);
  };
  const auto twice = [](const Tensor& t) {
    return t.unsqueeze(2).expand({2, 2, 2, 7, t.size(3)}).reshape({2, 4, 7, t.size(3)});
  };
  const auto normed = [](const Tensor& t) { return t / sqrt(mean(t * t, {-1}, true) + 1e-5); };
  const Tensor q = rotary(normed(heads(0, 4, 6)), turns.cos, turns.sin, true);
  const Tensor k = twice(rotary(normed(heads(24, 2, 6)), turns.cos, turns.sin, true)), v = twice(heads(36, 2, 5));
  Tensor scores = tanh(matmul(q, k.transpose(2, 3)) * 0.3 / 2) * 2;
  const Tensor at = arange(7, DType::i64), gap = at.unsqueeze(1) - at.unsqueeze(0);
  scores = masked_fill(scores, logical_or(gap < 0, gap >= 3), -INFINITY);
  const Tensor want = a.out(matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2));
  const Places places{.turns = {turns}};
  expect_close(a(x, places), want);
  // The turns of each row beside one another, and a mask that hides nothing.
  const Tensor rows = at.unsqueeze(0).expand({2, 7});
  const Places by_row{.turns = {tables.at(rows, 7, x)}, .turns_by_row = true, .seen = full({2, 1, 1, 7}, true)};
  expect_close(a(x, by_row), want);
  EXPECT_THROW(a(x), ValueError);
}

TEST(Layers, Blocks) {
  const Tensor x = randn({2, 6, 16});
  const TransformerBlock g(16, gpt_layer({.dim = 16, .heads = 4}));
  const Tensor h = x + g.attn(g.norm1(x));
  expect_close(g(x), h + (*g.mlp.down)(gelu((*g.mlp.up)((*g.norm2)(h)), "tanh")));
  expect_gradients(g, g(x));
  EXPECT_EQ(g.mlp.up->weight.shape(), Shape({64, 16}));
  const TransformerBlock l(16, llama_layer({.dim = 16, .heads = 4, .kv_heads = 2}));
  const Places places{.turns = {RotaryTables({.dims = 4}).rows(0, 6, 6, x)}};
  const Tensor k = x + l.attn(l.norm1(x), places);
  const Tensor both = (*l.mlp.gate_up)((*l.norm2)(k));
  const int64_t n = both.size(-1) / 2;
  expect_close(l(x, places), k + (*l.mlp.down)(silu(both.narrow(-1, 0, n)) * both.narrow(-1, n, n)));
  expect_gradients(l, l(x, places));
  EXPECT_EQ(n, 64);
  EXPECT_FALSE(l.attn.qkv.bias.defined());
}

TEST(Layers, BlocksWithNormsElsewhere) {
  const Tensor x = randn({2, 6, 16});
  LayerSpec spec = gpt_layer({.dim = 16, .heads = 4});
  spec.feed_forward = {.width = 24, .activation = Activation::gelu, .gated = true, .bias = false};
  const auto make = [&](NormPlacement placement) {
    spec.placement = placement;
    TransformerBlock block(16, spec);
    const NoGrad guard;
    for (const auto& [name, p] : block.named_parameters())
      if (p.dim() == 1) init::uniform_(p, 0.5, 1.5);
    return block;
  };
  const auto feed = [](const TransformerBlock& b, const Tensor& t) {
    const Tensor both = (*b.mlp.gate_up)(t);
    return (*b.mlp.down)(gelu(both.narrow(2, 0, 24), "none") * both.narrow(2, 24, 24));
  };
  {
    const TransformerBlock b = make(NormPlacement::after);
    const Tensor y = b.norm1(x + b.attn(x));
    expect_close(b(x), (*b.norm2)(y + feed(b, y)));
    expect_gradients(b, b(x));
  }
  {
    const TransformerBlock b = make(NormPlacement::branch);
    const Tensor y = x + b.norm1(b.attn(x));
    expect_close(b(x), y + (*b.norm2)(feed(b, y)));
    expect_gradients(b, b(x));
  }
  {
    const TransformerBlock b = make(NormPlacement::sandwich);
    const Tensor y = x + (*b.norm3)(b.attn(b.norm1(x)));
    expect_close(b(x), y + (*b.norm4)(feed(b, (*b.norm2)(y))));
    expect_gradients(b, b(x));
  }
  {
    const TransformerBlock b = make(NormPlacement::parallel);
    const Tensor n = b.norm1(x);
    expect_close(b(x), x + b.attn(n) + feed(b, n));
    EXPECT_FALSE(b.norm2.has_value());
    expect_gradients(b, b(x));
  }
  {
    const TransformerBlock b = make(NormPlacement::parallel_norms);
    expect_close(b(x), x + b.attn(b.norm1(x)) + feed(b, (*b.norm2)(x)));
    expect_gradients(b, b(x));
  }
  {
    // Of a single block both halves read x.
    const TransformerBlock b = make(NormPlacement::ladder);
    expect_close(b(x), x + b.attn(b.norm1(x)) + feed(b, (*b.norm2)(x)));
    expect_gradients(b, b(x));
    const TransformerBlock next = make(NormPlacement::ladder);
    const Tensor attended = x + b.attn(b.norm1(x)), fed = attended + feed(b, (*b.norm2)(x));
    const Tensor wanted = fed + next.attn(next.norm1(attended)) + feed(next, (*next.norm2)(fed));
    expect_close(next.step(b.step({x, {}})).sum(), wanted);
  }
  spec.layer_scale = true;
  const TransformerBlock b = make(NormPlacement::before);
  const Tensor y = x + b.attn(b.norm1(x)) * b.scale1;
  expect_close(b(x), y + feed(b, (*b.norm2)(y)) * b.scale2);
}

// Frequencies against the formulas of the papers, at numbers worked out by hand.
TEST(Layers, RotaryScaling) {
  const auto frequencies = [](const RotarySpec& spec, int64_t length) { return rotary_frequencies(spec, length); };
  using Scaling = RotarySpec::Scaling;
  EXPECT_EQ(frequencies({.dims = 4, .base = 100}, 8), (std::vector<double>{1, 0.1}));
  EXPECT_EQ(frequencies({.dims = 4, .base = 100, .scaling = Scaling::linear, .factor = 4}, 8),
            (std::vector<double>{0.25, 0.025}));
  const RotarySpec dynamic{.dims = 4, .base = 100, .scaling = Scaling::dynamic, .factor = 2, .context = 8};
  EXPECT_EQ(frequencies(dynamic, 8), (std::vector<double>{1, 0.1}));
  EXPECT_NEAR(frequencies(dynamic, 16)[1], 1 / std::sqrt(100 * 9.0), 1e-12);  // base * (2 * 2 - 1)^(4 / 2)
  const RotarySpec longrope{.dims = 4,
                            .base = 100,
                            .scaling = Scaling::longrope,
                            .original_context = 8,
                            .short_factors = {1, 2},
                            .long_factors = {4, 5}};
  EXPECT_EQ(frequencies(longrope, 8), (std::vector<double>{1, 0.05}));
  EXPECT_EQ(frequencies(longrope, 9), (std::vector<double>{0.25, 0.02}));
  EXPECT_THROW(RotaryTables({.dims = 4, .scaling = Scaling::longrope, .original_context = 8, .short_factors = {1}}),
               ValueError);
  EXPECT_THROW(RotaryTables({.dims = 3}), ValueError);
  EXPECT_THROW(RotaryTables({.dims = 4, .scaling = Scaling::yarn}), ValueError);
  // A context of 2 pi 8 turns pair 0 eight times and pair 1 0.8 times.
  const RotarySpec llama3{.dims = 4, .base = 100, .scaling = Scaling::llama3, .factor = 8, .original_context = 50};
  const double turns = 5 / (2 * std::numbers::pi);  // of pair 1: below low_frequency 1
  EXPECT_NEAR(frequencies(llama3, 8)[0], 1, 1e-12);
  EXPECT_NEAR(frequencies(llama3, 8)[1], turns < 1 ? 0.0125 : 0, 1e-12);
  // One regime after the other from the same tables.
  const RotaryTables tables(longrope);
  const Tensor x = zeros({1});
  EXPECT_NEAR(tables.rows(1, 1, 8, x).cos.select(1, 0).item(), std::cos(1.0), 1e-6);
  EXPECT_NEAR(tables.rows(1, 1, 9, x).cos.select(1, 0).item(), std::cos(0.25), 1e-6);
  EXPECT_NEAR(tables.rows(1, 1, 8, x).sin.select(1, 1).item(), std::sin(0.05), 1e-6);
}

TEST(Layers, RecurrentCells) {
  const Tensor x = randn({1, 2, 3});
  const auto pre = [&](const Module& m, const Tensor& h) {
    return std::pair{linear(x.select(0, 0), m.parameter("weight_ih_l0"), m.parameter("bias_ih_l0")),
                     linear(h, m.parameter("weight_hh_l0"), m.parameter("bias_hh_l0"))};
  };
  const Tensor h = randn({1, 2, 4}), c = randn({1, 2, 4});
  const auto gate = [](const Tensor& t, int64_t i) { return t.narrow(1, 4 * i, 4); };

  const RNN rnn(3, 4);
  const auto [ri, rh] = pre(rnn, h.select(0, 0));
  expect_close(rnn(x, h).output.select(0, 0), tanh(ri + rh));

  const LSTM lstm(3, 4);
  const auto [li, lh] = pre(lstm, h.select(0, 0));
  const Tensor s = li + lh;
  const Tensor cell = sigmoid(gate(s, 1)) * c.select(0, 0) + sigmoid(gate(s, 0)) * tanh(gate(s, 2));
  const LstmOutput out = lstm(x, h, c);
  expect_close(out.cell.select(0, 0), cell);
  expect_close(out.hidden.select(0, 0), sigmoid(gate(s, 3)) * tanh(cell));

  const GRU gru(3, 4);
  const auto [gi, gh] = pre(gru, h.select(0, 0));
  const Tensor r = sigmoid(gate(gi, 0) + gate(gh, 0)), z = sigmoid(gate(gi, 1) + gate(gh, 1));
  const Tensor n = tanh(gate(gi, 2) + r * gate(gh, 2));
  expect_close(gru(x, h).output.select(0, 0), (1.0 - z) * n + z * h.select(0, 0));
}

TEST(Layers, RecurrentLayersAndDirections) {
  const Tensor x = randn({5, 2, 3});
  LSTM two(3, 4, {.num_layers = 2, .bidirectional = true});
  const LstmOutput out = two(x);
  EXPECT_EQ(out.output.shape(), Shape({5, 2, 8}));
  EXPECT_EQ(out.hidden.shape(), Shape({4, 2, 4}));
  // The last step of the forward direction and the first of the reverse one are the last states.
  expect_close(out.output.select(0, 4).narrow(1, 0, 4), out.hidden.select(0, 2));
  expect_close(out.output.select(0, 0).narrow(1, 4, 4), out.hidden.select(0, 3));
  expect_gradients(two, out.output);
  EXPECT_EQ(two.parameter("weight_ih_l1_reverse").shape(), Shape({16, 8}));

  const GRU gru(3, 4, {.batch_first = true});
  const Tensor whole = gru(x.transpose(0, 1)).output;
  const RnnOutput begin = gru(x.narrow(0, 0, 2).transpose(0, 1)),
                  rest = gru(x.narrow(0, 2, 3).transpose(0, 1), begin.hidden);
  expect_close(cat({begin.output, rest.output}, 1), whole);
  EXPECT_THROW(gru(randn({5, 2, 4})), ShapeError);
  EXPECT_THROW(gru(x, randn({1, 9, 4})), ShapeError);
}

TEST(Layers, AutocastRunsLowAndKeepsMasterWeights) {
  const TransformerBlock g(32, gpt_layer({.dim = 32, .heads = 4}));
  const Tensor x = randn({2, 6, 32}), exact = g(x);
  Tensor low;
  {
    AutocastScope scope(DType::bf16);
    low = g(x.to(DType::bf16));
  }
  EXPECT_EQ(low.dtype(), DType::bf16);
  expect_close(low.to(DType::f32), exact, 0.05);
  sum(low).backward();
  for (const auto& [name, p] : g.named_parameters()) {
    EXPECT_EQ(p.dtype(), DType::f32) << name;
    EXPECT_EQ(p.grad().dtype(), DType::f32) << name;
  }
}

}  // namespace
}  // namespace strata::nn
