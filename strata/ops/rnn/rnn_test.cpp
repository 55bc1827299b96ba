// Recurrent layers beyond what the generated tests know: layers against cells, packed against padded, dropout's
// numbers.

#include "strata/ops/rnn/rnn.h"

#include <gtest/gtest.h>

#include "strata/autograd/gradcheck.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/rnn/recurrence_cuda.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor drawn(const Shape& shape, uint64_t key) {
  Generator g(key);
  return uniform(shape, -0.6, 0.6, DType::f64, g);
}

TensorList parameters(int64_t rows, int64_t in, int64_t hidden, int64_t layers, int64_t directions,
                      int64_t projection = 0) {
  TensorList all;
  const int64_t real = projection ? projection : hidden;
  uint64_t key = 100;
  for (int64_t i = 0; i < layers * directions; ++i) {
    all.push_back(drawn({rows, i < directions ? in : real * directions}, ++key));
    all.push_back(drawn({rows, real}, ++key));
    all.push_back(drawn({rows}, ++key));
    all.push_back(drawn({rows}, ++key));
    if (projection) all.push_back(drawn({projection, hidden}, ++key));
  }
  return all;
}

Tensor sizes(const std::vector<int64_t>& v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}

void expect_close(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_LE(a.numel() == 0 ? 0.0 : max(abs(a - b)).item(), tolerance);
}

TEST(Recurrent, LayersAreTheirCells) {
  const Tensor x = drawn({12, 3, 5}, 1), h0 = drawn({1, 3, 4}, 2), c0 = drawn({1, 3, 4}, 3);
  const TensorList p = parameters(16, 5, 4, 1, 1), g = parameters(12, 5, 4, 1, 1), r = parameters(4, 5, 4, 1, 1);
  const auto [y, h, c] = lstm(x, {h0, c0}, p);
  const auto [gy, gh] = gru(x, h0, g);
  const auto [ry, rh] = rnn_relu(x, h0, r);
  Tensor ht = h0.select(0, 0), ct = c0.select(0, 0), gt = ht, rt = ht;
  for (int64_t t = 0; t < 12; ++t) {
    std::tie(ht, ct) = lstm_cell(x.select(0, t), {ht, ct}, p[0], p[1], p[2], p[3]);
    gt = gru_cell(x.select(0, t), gt, g[0], g[1], g[2], g[3]);
    rt = rnn_relu_cell(x.select(0, t), rt, r[0], r[1], r[2], r[3]);
    expect_close(y.select(0, t), ht);
    expect_close(gy.select(0, t), gt);
    expect_close(ry.select(0, t), rt);
  }
  expect_close(h.select(0, 0), ht);
  expect_close(c.select(0, 0), ct);
  expect_close(gh.select(0, 0), gt);
  expect_close(rh.select(0, 0), rt);
}

// Eleven steps: more than a list of sizes holds.
TEST(Recurrent, PackedSequencesAreEachOnItsOwn) {
  const std::vector<int64_t> lengths{11, 6, 6, 2, 1};
  for (const int64_t projection : {0, 2}) {
    const int64_t real = projection ? projection : 3;
    const TensorList p = parameters(12, 2, 3, 2, 2, projection);
    const Tensor padded = drawn({11, 5, 2}, 7), h0 = drawn({4, 5, real}, 8), c0 = drawn({4, 5, 3}, 9);
    const auto [data, counts] = pack_padded_sequence(padded, sizes(lengths));
    const auto [y, h, c] = lstm(data, {h0, c0}, p, {.num_layers = 2, .bidirectional = true, .batch_sizes = counts});
    const auto [out, found] = pad_packed_sequence(y, counts);
    EXPECT_EQ(found.to_vector<int64_t>(), lengths);
    for (int64_t b = 0; b < 5; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      const auto [yb, hb, cb] = lstm(padded.narrow(1, b, 1).narrow(0, 0, n), {h0.narrow(1, b, 1), c0.narrow(1, b, 1)},
                                     p, {.num_layers = 2, .bidirectional = true});
      expect_close(out.narrow(1, b, 1).narrow(0, 0, n), yb);
      expect_close(h.narrow(1, b, 1), hb);
      expect_close(c.narrow(1, b, 1), cb);
      if (n < 11) {
        EXPECT_EQ(max(abs(out.narrow(1, b, 1).narrow(0, n, 11 - n))).item(), 0);
      }
    }
  }
}

TEST(Recurrent, GradientsOfPackedProjectedLayersAreRight) {
  const TensorList p = parameters(8, 2, 2, 1, 2, 1);
  const Tensor counts = sizes({3, 2, 2});
  const Tensor x = drawn({7, 2}, 21), h0 = drawn({2, 3, 1}, 22), c0 = drawn({2, 3, 2}, 23);
  TensorList inputs{x, h0, c0};
  inputs.insert(inputs.end(), p.begin(), p.end());
  for (Tensor& t : inputs) t.set_requires_grad();
  const auto f = [&](const TensorList& in) {
    const auto [y, h, c] = lstm(in[0], {in[1], in[2]}, TensorList(in.begin() + 3, in.end()),
                                {.bidirectional = true, .batch_sizes = counts});
    return sum(y * y) + sum(h) + sum(c * c);
  };
  EXPECT_TRUE(gradcheck(f, inputs).ok);
}

TEST(Recurrent, DropoutDrawsWhatDropoutDraws) {
  const TensorList p = parameters(12, 5, 4, 3, 1);
  const Tensor x = drawn({6, 2, 5}, 31);
  const RecurrentArguments options{.num_layers = 3, .dropout = 0.4, .train = true};
  manual_seed(5);
  const auto [y, h] = gru(x, {}, p, options);
  manual_seed(5);
  Tensor by_layer = x;
  for (size_t layer = 0; layer < 3; ++layer) {
    const auto at = p.begin() + static_cast<int64_t>(4 * layer);
    by_layer = std::get<0>(gru(by_layer, {}, TensorList(at, at + 4)));
    if (layer < 2) by_layer = dropout(by_layer, 0.4);
  }
  expect_close(y, by_layer, 0);
  const auto [still, last] = gru(x, {}, p, {.num_layers = 3, .dropout = 0.4});
  EXPECT_GT(max(abs(still - y)).item(), 1e-3);
}

TEST(Recurrent, LayoutsAreViewsOfOne) {
  const TensorList p = parameters(4, 3, 4, 2, 2);
  const Tensor x = drawn({5, 2, 3}, 41);
  const auto [y, h] = rnn_tanh(x, {}, p, {.num_layers = 2, .bidirectional = true});
  const auto [z, last] =
      rnn_tanh(x.transpose(0, 1), {}, p, {.num_layers = 2, .bidirectional = true, .batch_first = true});
  expect_close(z.transpose(0, 1), y, 0);
  const auto [single, state] = rnn_tanh(x.select(1, 1), {}, p, {.num_layers = 2, .bidirectional = true});
  expect_close(single, y.select(1, 1));
  expect_close(state, h.select(1, 1));
  const auto [none, empty_state] =
      rnn_tanh(zeros({5, 0, 3}, DType::f64), {}, p, {.num_layers = 2, .bidirectional = true});
  EXPECT_EQ(none.shape(), Shape({5, 0, 8}));
  EXPECT_EQ(empty_state.shape(), Shape({4, 0, 4}));
}

TEST(Recurrent, PaddingAndPackingAreInverse) {
  const Tensor a = drawn({4, 2}, 51), b = drawn({1, 2}, 52), c = drawn({3, 2}, 53);
  const Tensor padded = pad_sequence({a, c, b}, true, -1.0);
  EXPECT_EQ(padded.shape(), Shape({3, 4, 2}));
  EXPECT_EQ(padded[2][1][0].item(), -1.0);
  const auto [data, counts] = pack_padded_sequence(padded, sizes({4, 3, 1}), true);
  EXPECT_EQ(counts.to_vector<int64_t>(), std::vector<int64_t>({3, 2, 2, 1}));
  const auto [again, lengths] = pad_packed_sequence(data, counts, true, -1.0);
  expect_close(again, padded, 0);
  EXPECT_EQ(std::get<0>(pad_packed_sequence(data, counts, true, 0.0, 6)).shape(), Shape({3, 6, 2}));
  EXPECT_THROW(pack_padded_sequence(padded, sizes({3, 4, 1}), true), ValueError);
  EXPECT_THROW(pack_padded_sequence(padded, sizes({4, 3}), true), ShapeError);
}

// The kernels on a card rely on these; planning needs none.
TEST(RecurrencePlan, CoversAllWithWhatTheCardHas) {
  using namespace recurrent;
  for (const CardLimits card : {CardLimits{132, 232448}, {108, 166912}, {20, 101376}, {1, 101376}})
    for (const auto& [size, tf32] : {std::pair(2, false), {4, false}, {4, true}, {8, false}})
      for (const int64_t gates : {1, 3, 4})
        for (const int64_t batch : {1, 16, 17, 33, 64, 100, 1000, 5000})
          for (const int64_t hidden : {1, 5, 100, 513, 1024, 3000, 20000})
            for (const bool forward : {true, false}) {
              const RecurrencePlan p = plan_recurrence(
                  {batch, hidden, forward ? gates : 1, forward ? hidden : gates * hidden, size, tf32}, card);
              const auto covers = [](int64_t parts, int64_t each, int64_t all) {
                return parts * each >= all && (parts - 1) * each < all;
              };
              const std::string what = cat(card.multiprocessors, " ", size, " ", gates, " ", batch, " ", hidden);
              ASSERT_TRUE(covers(p.groups, p.rows, batch)) << what;
              ASSERT_TRUE(covers(p.parts, p.units, hidden)) << what;
              ASSERT_EQ(p.rows % p.tile, 0) << what;
              ASSERT_EQ(p.columns, p.units * (forward ? gates : 1)) << what;
              ASSERT_EQ(p.depth_bytes % 64, 0) << what;
              ASSERT_EQ(p.pitch % 128, 64) << what;
              ASSERT_GE(p.depth_bytes, (forward ? hidden : gates * hidden) * size) << what;
              ASSERT_GE(p.partial_pitch, (p.columns + 7) / 8 * 8) << what;
              ASSERT_LE(p.shared_bytes, card.shared_bytes) << what;
              ASSERT_TRUE(!p.resident || p.groups * p.parts <= card.multiprocessors) << what;
            }
}

TEST(RecurrencePlan, KeepsTheWeightOfUsualLayersInSharedMemory) {
  using namespace recurrent;
  const CardLimits card{132, 232448};
  const auto both = [&](int64_t batch, int64_t hidden, int64_t size) {
    return plan_recurrence({batch, hidden, 4, hidden, size}, card).resident &&
           plan_recurrence({batch, hidden, 1, 4 * hidden, size}, card).resident;
  };
  EXPECT_TRUE(both(32, 512, 4) && both(16, 768, 2) && both(64, 1024, 2) && both(64, 1024, 4) && both(8, 1536, 2));
  EXPECT_FALSE(both(16, 4096, 2));
  EXPECT_TRUE(recurrence_pays(Cell::lstm, DType::bf16, false, 16, 2048, card));
  EXPECT_FALSE(recurrence_pays(Cell::lstm, DType::bf16, false, 512, 4096, card));
}

TEST(RecurrencePlan, LeavesSmallLayersToABlockForEachSixteenSequences) {
  using namespace recurrent;
  EXPECT_EQ(units_alone(Cell::relu, DType::f32, true, 128), 2);
  EXPECT_EQ(units_alone(Cell::relu, DType::f16, false, 256), 4);
  EXPECT_EQ(units_alone(Cell::tanh, DType::bf16, true, 64), 1);
  EXPECT_EQ(units_alone(Cell::lstm, DType::f32, true, 64), 1);
  // Full precision, and weights that registers do not hold.
  for (const int64_t hidden : {0, 126, 132, 256}) EXPECT_EQ(units_alone(Cell::relu, DType::f32, true, hidden), 0);
  EXPECT_EQ(units_alone(Cell::relu, DType::f32, false, 64), 0);
  EXPECT_EQ(units_alone(Cell::relu, DType::f64, true, 64), 0);
  EXPECT_EQ(units_alone(Cell::gru, DType::f32, true, 68), 0);
  EXPECT_EQ(units_alone(Cell::relu, DType::f16, false, 264), 0);
  EXPECT_EQ(units_alone(Cell::relu, DType::f16, false, 60), 0);
}

// By numbers of products: few are the walk's, and what was measured to be faster by the library's products is theirs.
TEST(RecurrencePlan, TakesTheLibrarysProductsWhereTheyFillTheCard) {
  using namespace recurrent;
  const CardLimits card{132, 232448};
  for (const int64_t batch : {128, 256, 4096})
    EXPECT_TRUE(by_products(Cell::lstm, DType::f32, true, batch, 1024, card));
  EXPECT_FALSE(by_products(Cell::lstm, DType::f32, true, 64, 1024, card));
  EXPECT_FALSE(by_products(Cell::lstm, DType::f32, true, 32, 512, card));
  EXPECT_TRUE(by_products(Cell::lstm, DType::bf16, false, 256, 1024, card));
  EXPECT_FALSE(by_products(Cell::lstm, DType::bf16, true, 128, 1024, card));
  // Elsewhere whatever the walk is not for: full precision beyond 2^30 products.
  EXPECT_FALSE(by_products(Cell::lstm, DType::f32, false, 256, 1024, card));
  EXPECT_TRUE(by_products(Cell::lstm, DType::f32, false, 257, 1024, card));
  EXPECT_TRUE(by_products(Cell::lstm, DType::f64, false, 512, 1024, card));
  EXPECT_FALSE(by_products(Cell::relu, DType::f32, true, 64, 128, card));
}

}  // namespace
}  // namespace strata
