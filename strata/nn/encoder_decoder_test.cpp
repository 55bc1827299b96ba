// The Transformer, attention's options, recurrent modules' further forms, and averages of weights.

#include "strata/nn/encoder_decoder.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/nn/averaging.h"
#include "strata/nn/rnn.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

double distance(const Tensor& a, const Tensor& b) {
  return max(abs(a - b)).item();
}

TEST(EncoderDecoder, NamesAreThoseOfPyTorch) {
  const Transformer m(
      {.d_model = 8, .nhead = 2, .num_encoder_layers = 1, .num_decoder_layers = 2, .dim_feedforward = 16});
  const StateDict state = m.state_dict();
  for (const char* name :
       {"encoder.layers.0.self_attn.in_proj_weight", "encoder.layers.0.self_attn.out_proj.bias",
        "encoder.layers.0.linear1.weight", "encoder.layers.0.norm2.bias", "encoder.norm.weight",
        "decoder.layers.1.multihead_attn.in_proj_bias", "decoder.layers.1.norm3.weight", "decoder.norm.bias"})
    EXPECT_TRUE(state.contains(name)) << name;
  EXPECT_EQ(state.size(), 12u + 2u * 18u + 4u);
}

TEST(EncoderDecoder, MasksHideAndGradientsReachAll) {
  manual_seed(3);
  for (const bool norm_first : {false, true}) {
    Transformer m({.d_model = 8,
                   .nhead = 2,
                   .num_encoder_layers = 1,
                   .num_decoder_layers = 1,
                   .dim_feedforward = 16,
                   .activation = norm_first ? "gelu" : "relu",
                   .batch_first = true,
                   .norm_first = norm_first});
    m.eval();
    const Tensor src = randn({2, 5, 8}), tgt = randn({2, 4, 8});
    const Tensor y = m(src, tgt, {}, {.is_causal = true});
    Tensor later = tgt.clone();
    later.narrow(1, 2, 2).zero_();
    const Tensor z = m(src, later, {}, {.is_causal = true});
    EXPECT_LT(distance(y.narrow(1, 0, 2), z.narrow(1, 0, 2)), 1e-5);
    EXPECT_GT(distance(y.narrow(1, 2, 2), z.narrow(1, 2, 2)), 1e-3);

    // Padding of the source: what stands there does not count.
    Tensor padding = zeros({2, 5}, DType::boolean);
    padding.narrow(1, 3, 2).copy_(ones({2, 2}, DType::boolean));
    Tensor other = src.clone();
    other.narrow(1, 3, 2).zero_();
    const AttentionMasks hide{.key_padding_mask = padding};
    EXPECT_LT(distance(m(src, tgt, hide, {}, hide), m(other, tgt, hide, {}, hide)), 1e-5);
    EXPECT_GT(distance(m(src, tgt), m(other, tgt)), 1e-3);

    m.train();
    sum(m(src, tgt) * randn({2, 4, 8})).backward();
    for (const auto& [name, p] : m.named_parameters()) EXPECT_TRUE(p.grad().defined()) << name;
  }
  EXPECT_THROW(TransformerEncoderLayer({.activation = "tanh"}), ValueError);
}

TEST(EncoderDecoder, AttentionsOptions) {
  manual_seed(4);
  const MultiheadAttention m(6, 2,
                             {.batch_first = true, .add_bias_kv = true, .add_zero_attn = true, .kdim = 3, .vdim = 5});
  EXPECT_EQ(m.k_proj_weight.shape(), Shape({6, 3}));
  EXPECT_EQ(m.bias_v.shape(), Shape({1, 1, 6}));
  const Tensor q = randn({2, 3, 6}), k = randn({2, 4, 3}), v = randn({2, 4, 5});
  const auto [y, weights] = m.forward_with_weights(q, k, v);
  EXPECT_EQ(weights.shape(), Shape({2, 3, 6}));
  EXPECT_LT(distance(sum(weights, {-1}), ones({2, 3})), 1e-5);
  EXPECT_LT(distance(y, m(q, k, v)), 1e-5);
  EXPECT_EQ(m.forward_with_weights(q, k, v, {}, false).second.shape(), Shape({2, 2, 3, 6}));
  // Seen where true: a mask that shows everything changes nothing.
  EXPECT_LT(distance(m(q, k, v, ones({3, 4}, DType::boolean)), y), 1e-5);
  EXPECT_GT(distance(m(q, k, v, zeros({3, 4}, DType::boolean)), y), 1e-3);
}

TEST(EncoderDecoder, PackedSequencesAndCells) {
  manual_seed(5);
  const Tensor x = randn({6, 3, 4});
  const std::vector<int64_t> lengths{2, 6, 4};
  const LSTM lstm(4, 5, {.num_layers = 2, .bidirectional = true, .proj_size = 2});
  EXPECT_EQ(lstm.parameter("weight_hr_l1_reverse").shape(), Shape({2, 5}));
  const PackedSequence packed = PackedSequence::pack(x, from_span<int64_t>(lengths, {3}));
  const PackedOutput out = lstm.forward(packed);
  const auto [padded, found] = out.output.pad();
  EXPECT_EQ(found.to_vector<int64_t>(), lengths);
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t n = lengths[static_cast<size_t>(b)];
    const LstmOutput alone = lstm(x.narrow(1, b, 1).narrow(0, 0, n));
    EXPECT_LT(distance(padded.narrow(1, b, 1).narrow(0, 0, n), alone.output), 1e-5);
    EXPECT_LT(distance(out.hidden.narrow(1, b, 1), alone.hidden), 1e-5);
    EXPECT_LT(distance(out.cell.narrow(1, b, 1), alone.cell), 1e-5);
  }
  const LSTMCell cell(4, 5);
  const auto [h, c] = cell(x[0]);
  const auto [h2, c2] = cell(x[1], h, c);
  EXPECT_EQ(h2.shape(), Shape({3, 5}));
  EXPECT_EQ(c2.shape(), Shape({3, 5}));
  EXPECT_EQ(GRUCell(4, 5)(x[0][0]).shape(), Shape({5}));
  EXPECT_EQ(RNNCell(4, 5, false).named_parameters().size(), 2u);
  EXPECT_THROW(GRU(4, 5, {.proj_size = 2}), ValueError);
}

TEST(Averaging, EqualAndExponential) {
  Linear model(2, 1, false);
  const auto set = [&](float v) {
    const NoGrad guard;
    model.weight.fill_(v);
  };
  AveragedModel equal(model), moving(model, {.decay = 0.75});
  EXPECT_THROW(equal.copy_to_model(), ValueError);
  for (const float v : {1.f, 2.f, 6.f}) {
    set(v);
    equal.update();
    moving.update();
  }
  EXPECT_FLOAT_EQ(equal.averages().at("weight").to_vector<float>()[0], 3);
  EXPECT_FLOAT_EQ(moving.averages().at("weight").to_vector<float>()[1], 0.75f * (0.75f * 1 + 0.25f * 2) + 0.25f * 6);
  {
    const AveragedModel::Scope in(equal);
    EXPECT_FLOAT_EQ(model.weight.to_vector<float>()[0], 3);
  }
  EXPECT_FLOAT_EQ(model.weight.to_vector<float>()[0], 6);
  equal.copy_to_model();
  EXPECT_FLOAT_EQ(model.weight.to_vector<float>()[0], 3);
  EXPECT_TRUE(model.weight.requires_grad());
  EXPECT_THROW(AveragedModel(model, {.decay = 1.5}), ValueError);
}

TEST(AveragedModel, ListsOfTensors) {
  const Tensor mean = full({3}, 2.0, DType::f64), count = full({}, 4, DType::i64), narrow = full({2}, 1.0, DType::bf16);
  const TensorList means{mean, count, narrow};
  const TensorList values{full({3}, 5.0, DType::f64), full({}, 9, DType::i64), full({2}, 3.0)};
  update_averages(means, values, 2);
  EXPECT_EQ(mean.to_vector<double>(), std::vector<double>(3, 3));
  EXPECT_EQ(count.item<int64_t>(), 9);
  EXPECT_NEAR(narrow.to_vector<double>()[0], 1 + 2 / 3., 1e-2);
  update_averages(means, values, 7, 0.25);
  EXPECT_EQ(mean.to_vector<double>(), std::vector<double>(3, 4.5));
  update_averages(means, values, 0);
  EXPECT_EQ(mean.to_vector<double>(), std::vector<double>(3, 5));
  // A leaf that wants a gradient may be the mean.
  const Tensor leaf = zeros({2}).set_requires_grad();
  update_averages({leaf}, {ones({2})}, 1);
  EXPECT_TRUE(leaf.is_leaf() && leaf.to_vector<float>()[0] == 0.5f);
  EXPECT_THROW(update_averages(means, {mean}, 1), ShapeError);
  EXPECT_THROW(update_averages({mean}, {narrow}, 1), ShapeError);
  EXPECT_THROW(update_averages({mean}, {mean}, -1), ValueError);
  EXPECT_THROW(update_averages({mean}, {mean}, 1, 1.5), ValueError);
}

}  // namespace
}  // namespace strata::nn
