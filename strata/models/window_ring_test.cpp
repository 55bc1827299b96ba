// Caches of layers that see a window: the same logits in memory that does not grow with the text.

#include <algorithm>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/models/family.h"
#include "strata/models/language_model.h"
#include "strata/nn/window_ring_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using nn::detail::WindowRing;

constexpr int64_t kVocab = 23, kContext = 160;

LanguageModel model_of(int64_t window) {
  const std::string config =
      cat(R"({"model_type": "mistral", "vocab_size": )", kVocab, R"(, "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": )",
          kContext, R"(, "rms_norm_eps": 1e-5, "sliding_window": )", window,
          R"(, "tie_word_embeddings": false, "hidden_act": "silu"})");
  return LanguageModel(read_spec(family_named("mistral"), ConfigReader(config, "config")));
}
Tensor text_of(int64_t rows, int64_t tokens) {
  return randint(0, kVocab, {rows, tokens});
}
double difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item();
}

TEST(WindowRing, SizesAndWhatIsKept) {
  for (const int64_t window : {1, 2, 5, 8, 100, 4096}) {
    const WindowRing ring = WindowRing::of(window);
    const auto again = WindowRing::with_places(ring.places());
    ASSERT_TRUE(again.has_value()) << window;
    EXPECT_EQ(again->window, window);
    EXPECT_EQ(again->chunk, ring.chunk);
    EXPECT_LE(ring.places(), 2 * window + 4 * std::max<int64_t>(2, window / 8));
    EXPECT_FALSE(WindowRing::with_places(ring.places() + 1).has_value());
    EXPECT_TRUE(ring.keeps(1, ring.turn()));
    EXPECT_TRUE(ring.keeps(1000, 1000 + ring.chunk));
    EXPECT_FALSE(ring.keeps(10000, 10001 + ring.chunk));
  }
}

// Texts read in chunks of any size, the first of each by itself, on and on past many turns of the ring.
TEST(WindowRing, GivesTheLogitsOfTheWholeText) {
  manual_seed(2);
  const NoGrad guard;
  for (const int64_t window : {1, 5, 8, 33}) {
    LanguageModel model = model_of(window);
    model.eval();
    const Tensor text = text_of(2, 150);
    const Tensor want = model.forward(text);
    for (const int64_t chunk : {1, 2, 3, 7, 50}) {
      SCOPED_TRACE(cat("window ", window, ", chunks of ", chunk));
      ModelCache cache = model.make_cache(2);
      for (const nn::KvCache& layer : cache.layers) EXPECT_EQ(layer.k.size(2), WindowRing::of(window).places());
      for (int64_t at = 0; at < text.size(1); at += chunk) {
        const int64_t n = std::min(chunk, text.size(1) - at);
        const Tensor got = model.logits(model.hidden(text.narrow(1, at, n), cache));
        EXPECT_LT(difference(got, want.narrow(1, at, n)), 1e-4) << at;
      }
    }
  }
}

// Rows of different lengths, one of which rests, and steps that the host does not count.
TEST(WindowRing, RowsOfTheirOwnLengths) {
  manual_seed(3);
  const NoGrad guard;
  LanguageModel model = model_of(6);
  model.eval();
  const Tensor text = text_of(3, 150);
  const Tensor want = model.forward(text);
  ModelCache cache = model.make_cache(3);
  std::vector<int64_t> lengths(3, 0);
  for (int step = 0; step < 40; ++step) {
    const int64_t time = 1 + step % 5;
    std::vector<int64_t> counts(3);
    for (size_t b = 0; b < 3; ++b)
      counts[b] = b == 2 && step % 3 == 0 ? 0 : std::min<int64_t>(time, 1 + (step + b) % 4);
    if (*std::ranges::max_element(lengths) + time > 150) break;
    cache.host_counts = step < 20;
    std::vector<Tensor> rows;
    Tensor tokens = zeros({3, time}, DType::i64);
    for (size_t b = 0; b < 3; ++b) {
      const auto row = static_cast<int64_t>(b);
      tokens.narrow(0, row, 1).narrow(1, 0, counts[b]).copy_(text.narrow(0, row, 1).narrow(1, lengths[b], counts[b]));
    }
    const Tensor got = model.logits(model.hidden(tokens, cache, from_span<int64_t>(counts, {3})));
    for (size_t b = 0; b < 3; ++b) {
      const auto row = static_cast<int64_t>(b);
      if (counts[b] == 0) continue;
      EXPECT_LT(difference(got.narrow(0, row, 1).narrow(1, 0, counts[b]),
                           want.narrow(0, row, 1).narrow(1, lengths[b], counts[b])),
                1e-4)
          << "step " << step << ", row " << b;
      lengths[b] += counts[b];
    }
  }
  EXPECT_EQ(cache.lengths.to_vector<int64_t>(), lengths);
}

// A short cache has a place for each position, and a text that has turned cannot go back beyond its chunk.
TEST(WindowRing, OnlyWhereItIsLess) {
  LanguageModel model = model_of(8);
  const int64_t places = WindowRing::of(8).places();
  EXPECT_EQ(model.make_cache(1, places - 1).layers[0].k.size(2), places - 1);
  EXPECT_EQ(model.make_cache(1, places).layers[0].k.size(2), places + 1);
  EXPECT_EQ(model.make_cache(1, places + 1).layers[0].k.size(2), places);
  EXPECT_EQ(model.make_cache(1, kContext).layers[0].k.size(2), places);
}

}  // namespace
}  // namespace strata
