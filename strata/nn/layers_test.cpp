// Each layer against its formula, written with plain ops, and its gradient reaching every parameter.

#include <cmath>

#include <gtest/gtest.h>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/nn/nn.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
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
  const SelfAttention a(16, 4, {.kv_heads = 2});
  const Tensor x = randn({2, 6, 16}), packed = a.qkv(x);
  const Tensor q = heads_of(packed.narrow(2, 0, 16).contiguous(), 4);
  const auto shared = [&](int64_t at) {  // each key head serves two query heads
    return heads_of(packed.narrow(2, at, 8).contiguous(), 2).unsqueeze(2).expand({2, 2, 2, 6, 4}).reshape({2, 4, 6, 4});
  };
  expect_close(a(x), a.out(attention(q, shared(16), shared(24), true).transpose(1, 2).flatten(2)));
  expect_gradients(a, a(x));
  EXPECT_THROW(SelfAttention(16, 4, {.kv_heads = 3}), ValueError);
}

TEST(Layers, CacheGivesWhatOnePassGives) {
  NoGrad guard;
  for (const bool rope : {false, true}) {
    SelfAttentionOptions options{.kv_heads = 2};
    if (rope) options.rope_base = 10000;
    const SelfAttention a(16, 4, options);
    const Tensor x = randn({2, 9, 16});
    KvCache cache = KvCache::create(2, 2, 9, 4, DType::f32);
    const Tensor first = a(x.narrow(1, 0, 5), &cache), second = a(x.narrow(1, 5, 1), &cache),
                 third = a(x.narrow(1, 6, 3), &cache);
    expect_close(cat({first, second, third}, 1), a(x));
    EXPECT_EQ(cache.length, 9);
    EXPECT_THROW(a(x.narrow(1, 0, 1), &cache), ValueError);
  }
}

TEST(Layers, Blocks) {
  const Tensor x = randn({2, 6, 16});
  const GptBlock g({.dim = 16, .heads = 4});
  const Tensor h = x + g.attn(g.norm1(x));
  expect_close(g(x), h + g.mlp.down(gelu(g.mlp.up(g.norm2(h)), "tanh")));
  expect_gradients(g, g(x));
  EXPECT_EQ(g.mlp.up.weight.shape(), Shape({64, 16}));
  const LlamaBlock l({.dim = 16, .heads = 4, .kv_heads = 2});
  const Tensor k = x + l.attn(l.norm1(x));
  const Tensor both = l.mlp.gate_up(l.norm2(k));
  const int64_t n = both.size(-1) / 2;
  expect_close(l(x), k + l.mlp.down(silu(both.narrow(-1, 0, n)) * both.narrow(-1, n, n)));
  expect_gradients(l, l(x));
  EXPECT_EQ(n, 64);
  EXPECT_FALSE(l.attn.qkv.bias.defined());
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
  const GptBlock g({.dim = 32, .heads = 4});
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
