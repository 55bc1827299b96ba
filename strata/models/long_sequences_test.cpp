// Sequences that would not fit: parts of them on ranks, tiles of the widest layers, blocks computed again. What a step
// takes at most is read from the allocator, and the loss is that of one process.

#include <gtest/gtest.h>

#include <cmath>

#include "strata/autograd/autograd.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/processes_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/models/language_model.h"
#include "strata/models/tiny_model_test_util.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

using distributed::ContextKind;
using distributed::ContextParallel;

double farthest(const Tensor& a, const Tensor& b) {
  return (a.detach() - b.detach()).abs().max().item();
}

TEST(Tiles, LossAndGradientsAreTheModels) {
  ModelSpec capped = model_spec(tiny("llama", 23));
  capped.logit_soft_cap = 3;
  for (const ModelSpec& spec : {model_spec(tiny("gpt", 23)), model_spec(tiny("llama", 23)), capped}) {
    manual_seed(3);
    LanguageModel model(spec);
    const Tensor x = pattern(3, 15, 23, 0);
    Tensor y = pattern(3, 15, 23, 1);
    y = where(y == 4, full_like(y, -100), y);  // not learned
    const auto pass = [&](int64_t tile) {
      model.set_tile(tile);
      for (const Tensor& p : model.parameters()) Tensor(p).set_grad({});
      const Tensor loss = model.loss(x, y);
      loss.backward();
      TensorList all{loss.detach()};
      for (const Tensor& p : model.parameters()) all.push_back(p.grad());
      const NoGrad guard;
      all.push_back(model.loss(x, y));
      all.push_back(model.log_probabilities(x, y));
      return all;
    };
    const TensorList want = pass(0);
    for (const int64_t tile : {1, 7, 45, 1000}) {
      const TensorList got = pass(tile);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(farthest(got[i], want[i]), 1e-5) << tile << ", tensor " << i;
    }
  }
  LanguageModel model(capped);
  EXPECT_THROW(model.set_tile(-1), ValueError);
}

ModelConfig deep(int64_t context) {
  ModelConfig c = tiny("llama", 256);
  c.layers = 4;
  c.dim = 64;
  c.context = context;
  return c;
}

struct Step {
  double loss = 0;
  int64_t peak = 0;  // bytes of tensors, beside the weights
};

// Without what threads keep for kernels, which is of the machine and of the calls before.
int64_t tensors(const int64_t (&bytes)[memory::kNumTags], int64_t total) {
  return total - bytes[static_cast<size_t>(memory::Tag::workspace)];
}

// A step of a row of `time` tokens, of which this rank has its part where the model says so.
Step step_of(LanguageModel& model, int64_t time) {
  const Tensor x = pattern(1, time, 256, 0), y = pattern(1, time, 256, 1);
  const auto part = [&](const Tensor& t) {
    return model.context_parallel() ? distributed::context_part(t, 1, *model.context_parallel()) : t;
  };
  const Tensor own_x = part(x), own_y = part(y);
  for (const Tensor& p : model.parameters()) Tensor(p).set_grad({});
  memory::reset_peak(Device::cpu());
  const memory::Stats before = memory::stats(Device::cpu());
  const Tensor loss = model.loss(own_x, own_y);
  loss.backward();
  const memory::Stats after = memory::stats(Device::cpu());
  Step s{.loss = loss.item(), .peak = tensors(after.peak, after.peak_total) - tensors(before.live, before.live_total)};
  if (model.context_parallel()) s.loss = distributed::all_reduce(loss.detach(), "avg", "cp").item();
  return s;
}

constexpr int64_t kTime = 256;

// What a gated part's last product reads is the third of what its two products keep: of each layer but the one that
// backward is at it is not there.
TEST(GateAgain, TakesAThirdLessOfFeedForwardPartsWithTheSameBits) {
  ModelConfig c = deep(kTime);
  c.ffn_dim = 512;
  for (const bool tied : {false, true}) {
    c.tied_embeddings = tied;
    manual_seed(3);
    LanguageModel model(model_spec(c));
    const auto gradients = [&] {
      TensorList all;
      for (const Tensor& p : model.parameters()) all.push_back(p.grad().clone());
      return all;
    };
    const Step kept = step_of(model, kTime);
    const TensorList want = gradients();
    model.set_gate_again(true);
    const Step again = step_of(model, kTime);
    const TensorList got = gradients();
    EXPECT_EQ(again.loss, kept.loss);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << i;
    const int64_t inner = kTime * c.ffn_dim * 4;
    EXPECT_GE(kept.peak - again.peak, (c.layers - 1) * inner);
    EXPECT_LE(kept.peak - again.peak, c.layers * inner);
    model.set_recomputed_blocks(2);  // which keep nothing of it
    const Step both = step_of(model, kTime);
    EXPECT_EQ(both.loss, kept.loss);
    EXPECT_LT(both.peak, again.peak);
  }
}

// Sequence parallelism's promise (Li et al., arXiv:2105.13120): in the memory of one device for T positions, 4 of them
// train 3 T.
TEST(LongSequences, FourRanksTakeThreeTimesAsLong) {
  distributed::on_processes(4, [](int) {
    set_mesh(distributed::Mesh("cp=4"));
    manual_seed(3);
    LanguageModel model(model_spec(deep(3 * kTime)));
    const Step one = step_of(model, kTime);
    const double wanted = distributed::rank() == 0 ? step_of(model, 3 * kTime).loss : 0;
    model.set_context_parallel(ContextParallel{});
    const Step shared = step_of(model, 3 * kTime);
    if (distributed::rank() == 0) {
      EXPECT_LT(std::abs(shared.loss - wanted), 1e-5);
    }
    EXPECT_LE(shared.peak, one.peak) << 3 * kTime << " positions on 4 ranks beside " << kTime << " on one";
    if (distributed::rank() == 0)
      std::printf("%lld positions on one: %lld bytes; %lld on four: %lld\n", static_cast<long long>(kTime),
                  static_cast<long long>(one.peak), static_cast<long long>(3 * kTime),
                  static_cast<long long>(shared.peak));
  });
}

// With tiles, and blocks computed again, 10 T.
TEST(LongSequences, WithTilesTenTimesAsLong) {
  distributed::on_processes(4, [](int) {
    set_mesh(distributed::Mesh("cp=4"));
    manual_seed(3);
    LanguageModel model(model_spec(deep(10 * kTime)));
    const Step one = step_of(model, kTime);
    const double wanted = distributed::rank() == 0 ? step_of(model, 10 * kTime).loss : 0;
    model.set_recomputed_blocks(4);
    model.set_tile(64);
    for (const ContextKind kind : {ContextKind::ulysses, ContextKind::ring}) {
      model.set_context_parallel(ContextParallel{.kind = kind});
      const Step shared = step_of(model, 10 * kTime);
      if (distributed::rank() == 0) {
        EXPECT_LT(std::abs(shared.loss - wanted), 1e-5);
      }
      EXPECT_LE(shared.peak, one.peak) << 10 * kTime << " positions on 4 ranks beside " << kTime << " on one";
      if (distributed::rank() == 0)
        std::printf("%lld positions on one: %lld bytes; %lld on four: %lld\n", static_cast<long long>(kTime),
                    static_cast<long long>(one.peak), static_cast<long long>(10 * kTime),
                    static_cast<long long>(shared.peak));
    }
  });
}

}  // namespace
}  // namespace strata
