// Dropout of processes that share sequences: each has its part of what one process drops.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/core/position_share_inl.h"
#include "strata/core/rng.h"
#include "strata/core/row_share.h"
#include "strata/nn/position_dropout_inl.h"
#include "strata/nn/transformer.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using detail::PositionShare;
using detail::PositionShareScope;

// This part of x [B, 12, ..].
Tensor part_of(const Tensor& x, const PositionShare& s) {
  if (!s.paired) return x.narrow(1, 12 / s.parts * s.part, 12 / s.parts);
  const int64_t chunk = 6 / s.parts;
  return strata::cat({x.narrow(1, s.part * chunk, chunk), x.narrow(1, (2 * s.parts - 1 - s.part) * chunk, chunk)}, 1);
}

TEST(PositionDropout, EachPartIsThatOfTheWhole) {
  for (const Shape& inner : {Shape{4}, Shape{2, 8}}) {
    Shape shape{3, 12};
    for (const int64_t n : inner) shape.push_back(n);
    manual_seed(5);
    const Tensor x = rand(shape) + 1;
    const RngKey begin = default_generator().state();
    const Tensor want = dropout(x, 0.4), next = rand({4});
    for (const int64_t parts : {1, 2, 3})
      for (const bool paired : {false, true})
        for (int64_t part = 0; part < parts; ++part) {
          const PositionShare share{.length = 12, .part = part, .parts = parts, .paired = paired};
          const PositionShareScope scope(share);
          default_generator().set_state(begin);
          const Tensor own = part_of(x, share).set_requires_grad();
          const Tensor y = nn::detail::dropped(own, 0.4);
          EXPECT_EQ(y.to_vector<float>(), part_of(want, share).to_vector<float>())
              << parts << ' ' << part << ' ' << paired;
          EXPECT_EQ(rand({4}).to_vector<float>(), next.to_vector<float>());
          // The gradient is dropped where the element was.
          (y * 3).sum().backward();
          const auto gradient = own.grad().to_vector<float>(), kept = y.to_vector<float>();
          for (size_t i = 0; i < kept.size(); ++i) EXPECT_FLOAT_EQ(gradient[i], kept[i] == 0 ? 0 : 3 / 0.6F) << i;
          // Of some rows of a batch.
          const RowShareScope rows({.first = 1, .own = 2, .all = 3});
          default_generator().set_state(begin);
          EXPECT_EQ(nn::detail::dropped(own.detach().narrow(0, 1, 2), 0.4).to_vector<float>(),
                    part_of(want, share).narrow(0, 1, 2).to_vector<float>());
        }
  }
}

// A feed-forward part that drops between its products, in tiles, of some rows and positions: what it is of a whole
// batch.
TEST(PositionDropout, TilesAreThatOfTheWhole) {
  for (const bool gated : {false, true}) {
    manual_seed(5);
    nn::FeedForward whole(8, {.width = 12, .gated = gated, .dropout = 0.4}), tiles(8, whole.spec());
    for (const auto& [name, t] : tiles.named_parameters())
      for (const auto& [own, from] : whole.named_parameters())
        if (own == name) tiles.load_state_dict({{name, from.detach().clone()}}, false);
    Tensor x = rand({3, 12, 8}).set_requires_grad();
    const RngKey begin = default_generator().state();
    const Tensor want = whole(x);
    const RngKey end = default_generator().state();
    (want * want).sum().backward();
    for (const int64_t parts : {1, 2})
      for (const bool paired : {false, true})
        for (int64_t part = 0; part < parts; ++part)
          for (const int64_t tile : {5, 7, 18}) {
            const PositionShare share{.length = 12, .part = part, .parts = parts, .paired = paired};
            const PositionShareScope scope(share);
            tiles.set_tile(tile);
            for (const RowShare& rows : {RowShare{}, RowShare{.first = 1, .own = 2, .all = 3}}) {
              const RowShareScope of(rows);
              const auto mine = [&](const Tensor& t) {
                return part_of(rows.all == 1 ? t : t.narrow(0, rows.first, rows.own), share);
              };
              default_generator().set_state(begin);
              Tensor own = mine(x.detach()).contiguous().set_requires_grad();
              const Tensor y = tiles(own);
              EXPECT_LT((y - mine(want)).abs().max().item(), 1e-6) << tile;
              EXPECT_EQ(default_generator().state(), end);
              (y * y).sum().backward();
              EXPECT_LT((own.grad() - mine(x.grad())).abs().max().item(), 1e-5) << tile;
            }
          }
  }
}

TEST(PositionDropout, WhatHasNoPositionsDrawsForItself) {
  std::set<std::vector<float>> seen;
  std::set<uint64_t> ends;
  for (int64_t part = 0; part < 3; ++part) {
    const PositionShareScope scope({.length = 12, .part = part, .parts = 3, .paired = true});
    manual_seed(7);
    seen.insert(nn::detail::dropped(ones({10, 8}), 0.5).to_vector<float>());
    ends.insert(default_generator().state().offset);
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(ends.size(), 1U);
  EXPECT_EQ(nn::detail::dropped(empty({0, 4, 8}), 0.5).numel(), 0);
}

}  // namespace
}  // namespace strata
