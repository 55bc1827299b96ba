// Saved tensors sent away and fetched: the same gradients, and what can fail.
#include "strata/autograd/offload.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/function.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/core/autocast.h"
#include "strata/core/recording.h"
#include "strata/memory/allocator.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata {
namespace {

TEST(Offload, MlpOfEveryFloatingType) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) expect_same_bits(mlp, mlp_leaves(t));
}

TEST(Offload, ConvolutionsNormsAndPools) {
  expect_same_bits(
      [](const TensorList& p) {
        const Tensor a = relu(conv2d(p[0], p[1], {}));
        const Tensor b = group_norm(a, 2, p[2], p[3]);
        return sum(sigmoid(conv2d(b, p[4], {})) * 3.0);
      },
      {leaf({2, 3, 9, 7}), leaf({4, 3, 3, 3}, 2), leaf({4}, 3), leaf({4}, 4), leaf({2, 4, 3, 3}, 5)});
}

TEST(Offload, AttentionWithViewsOfOneStorage) {
  expect_same_bits(
      [](const TensorList& p) {
        const Tensor qkv = linear(rms_norm(p[0], {16}, p[1]), p[2]);  // [2, 11, 48]
        const Tensor heads = qkv.view({2, 11, 3, 2, 8}).permute({2, 0, 3, 1, 4});
        const Tensor out = scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, true);
        return sum(softmax(linear(dropout(out, 0.3), p[3]), -1) * p[4]);
      },
      {leaf({2, 11, 16}), leaf({16}, 2), leaf({48, 16}, 3), leaf({8, 8}, 4), leaf({2, 2, 11, 8}, 5)});
}

TEST(Offload, AutocastAndItsLowCopies) {
  const TensorList leaves = mlp_leaves();
  const auto offload = SavedTensorOffload::create(all_away());
  const auto low = [](const TensorList& p) {
    const AutocastScope scope(DType::bf16);
    return to(mlp(p), DType::f32);
  };
  EXPECT_EQ(gradients(low, leaves, offload), gradients(low, leaves, nullptr));
  // The weights' copies stay: 33 x 9 and 21 x 33 elements of 2 bytes are none of what was saved.
  for (const SavedRecord& r : offload->measured().saved) {
    EXPECT_NE(r.bytes, 33 * 9 * 2);
    EXPECT_NE(r.bytes, 21 * 33 * 2);
  }
}

// What a recorder sees: the calls that run again, and with which arguments.
TEST(Offload, CheapCallsRunAgainFromWhatIsSavedBesides) {
  Tensor x = leaf({256, 256}), w = leaf({256, 256}, 2), v = leaf({8, 256}, 3);
  const auto loss = [](const TensorList& p) {
    const Tensor pair = linear(p[0], p[1]);            // dear enough to be stored
    return sum(linear(silu(pair) * 2.0, p[2]) * 1.5);  // silu saves pair; the product is saved by linear
  };
  const auto offload = SavedTensorOffload::create(all_again());
  const std::vector<std::string> want = gradients(loss, {x, w, v}, nullptr);
  const Recording r = record([&] { EXPECT_EQ(gradients(loss, {x, w, v}, offload), want); });
  int silus = 0;
  for (const RecordedCall& c : r.calls) silus += c.op->name() == "silu";
  EXPECT_EQ(silus, 2);
  EXPECT_EQ(offload->stats().recomputed, 256 * 256 * 4);
}

// The weights' low copies are read where they are.
TEST(Offload, ProductsUnderAutocastRunAgain) {
  const TensorList leaves = {leaf({64, 32}), leaf({48, 32}, 2)};
  const auto loss = [](const TensorList& p) {
    const AutocastScope low(DType::bf16);
    return sum(to(sin(linear(p[0] * 1.0, p[1])), DType::f32));  // sin saves the product
  };
  OffloadOptions o = all_again();
  o.min_bytes = 1024;
  const auto offload = SavedTensorOffload::create(o);
  offload->set_plan(OffloadPlan::of({SavedPlace::host, SavedPlace::recompute}));
  const std::vector<std::string> want = gradients(loss, leaves, nullptr);
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(gradients(loss, leaves, offload), want);
  EXPECT_EQ(offload->stats().recomputed, 2 * 64 * 48 * 2);
  const std::vector<SavedRecord> saved = offload->measured().saved;
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[1].reads, std::vector<int32_t>{0});
  EXPECT_GE(saved[1].cost.flops, 2.0 * 64 * 48 * 32);
}

TEST(Offload, RandomMasksAreDrawnAgain) {
  const TensorList leaves = {leaf({500}), leaf({500}, 2)};
  const auto loss = [](const TensorList& p) {
    const Tensor h = sin(p[0] * 1.0);         // p[0] * 1.0 is saved
    return sum(dropout(exp(h), 0.4) * p[1]);  // exp's result is saved, the product reads the dropped
  };
  manual_seed(3);
  const std::vector<std::string> want = gradients(loss, leaves, nullptr);
  manual_seed(3);
  const auto offload = SavedTensorOffload::create(all_again());
  EXPECT_EQ(gradients(loss, leaves, offload), want);
  EXPECT_GT(offload->stats().recomputed, 0);
}

TEST(Offload, WritesAfterSavingAreErrorsAsWithout) {
  for (const bool dies_first : {false, true}) {
    for (const OffloadOptions& o : {all_away(), all_again()}) {
      const auto offload = SavedTensorOffload::create(o);
      Tensor x = leaf({64});
      Tensor loss;
      {
        const SavedTensorOffload::Scope scope(offload);
        Tensor h = x * 2.0;
        loss = sum(h * h);
        h.detach().add_(1.0);
        if (!dies_first) {
          EXPECT_THROW(loss.backward(), AutogradError);
          continue;
        }
      }
      try {
        loss.backward();
        FAIL() << "no error";
      } catch (const AutogradError& e) {
        EXPECT_NE(std::string(e.what()).find("was overwritten by add"), std::string::npos) << e.what();
      }
    }
  }
}

TEST(Offload, ANewVersionIsAnotherTensor) {
  Tensor x = leaf({64});
  const auto loss = [](const TensorList& p) {
    Tensor h = p[0] * 2.0;
    const Tensor c = h.clone();
    const Tensor first = sum(exp(c));
    h.add_(c);  // h is saved by nobody before this
    return first + sum(sin(h));
  };
  const auto offload = SavedTensorOffload::create(all_away());
  EXPECT_EQ(gradients(loss, {x}, offload), gradients(loss, {x}, nullptr));
}

TEST(Offload, RetainedGraphsAndHigherDerivatives) {
  for (const OffloadOptions& o : {all_away(), all_again()}) {
    const auto offload = SavedTensorOffload::create(o);
    Tensor x = leaf({50}, 1, DType::f64), w = leaf({50}, 2, DType::f64);
    const auto f = [&] { return sum(exp(sin(x * w)) * w); };
    const auto thrice = [&](bool hooked) {
      std::optional<SavedTensorOffload::Scope> scope;
      if (hooked) scope.emplace(offload);
      const Tensor y = f();
      x.set_grad({});
      y.backward({}, true);
      y.backward({}, true);
      const TensorList g = grad({y}, {x, w}, {}, true);
      const TensorList gg = grad({sum(g[0] * g[1])}, {x, w}, {}, false, true);
      y.backward();
      EXPECT_THROW(y.backward(), AutogradError);
      return std::vector<std::string>{bits(x.grad()), bits(g[0]), bits(g[1]), bits(gg[0]), bits(gg[1])};
    };
    EXPECT_EQ(thrice(true), thrice(false));
    EXPECT_EQ(offload->stats().away_bytes, 0);
  }
}

TEST(Offload, GradToSomeInputs) {
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor x = leaf({30}), w = leaf({30}, 2);
  const auto get = [&](bool hooked) {
    std::optional<SavedTensorOffload::Scope> scope;
    if (hooked) scope.emplace(offload);
    const Tensor h = x * w;
    return bits(grad({sum(sin(h) * h)}, {w})[0]);
  };
  EXPECT_EQ(get(true), get(false));
}

TEST(Offload, CheckpointedBlocksInside) {
  const TensorList leaves = {leaf({12, 16}), leaf({16, 16}, 2), leaf({16, 16}, 3)};
  const Loss loss = [](const TensorList& p) {
    Tensor h = p[0] * 1.0;
    for (int i = 0; i < 3; ++i)
      h = checkpoint([&](const Tensor& t) { return dropout(gelu(matmul(gelu(matmul(t, p[1])), p[2])), 0.2); }, h);
    return sum(h);
  };
  expect_same_bits(loss, leaves);
  // The inputs of the blocks are all that is saved, and they go.
  const auto offload = SavedTensorOffload::create(all_away());
  (void)gradients(loss, leaves, offload);
  EXPECT_EQ(offload->stats().sent, 3 * 12 * 16 * 4);
}

TEST(Offload, InsideOfACheckpoint) {
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor x = leaf({40});
  const auto loss = [&](const TensorList& p) {
    return checkpoint(
        [&](const Tensor& t) {
          const SavedTensorOffload::Scope scope(offload);
          return sum(sin(t * t));
        },
        p[0]);
  };
  EXPECT_EQ(gradients(loss, {x}, nullptr),
            gradients([](const TensorList& p) { return sum(sin(p[0] * p[0])); }, {x}, nullptr));
}

TEST(Offload, FunctionsOfOnesOwn) {
  struct Cube : Function<Cube> {
    static Tensor forward(Ctx& ctx, const Tensor& x) {
      const Tensor square = x * x;
      ctx.save_for_backward({x, square});
      return square * x;
    }
    static TensorList backward(Ctx& ctx, const TensorList& g) { return {g[0] * ctx.saved_tensors()[1] * 3.0}; }
  };
  const auto loss = [](const TensorList& p) { return sum(Cube::apply(p[0] * 2.0)); };
  expect_same_bits(loss, {leaf({70})});
}

TEST(Offload, ThreadsWithHooksOfTheirOwn) {
  std::vector<std::string> want;
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t seed) {
    const TensorList leaves = {leaf({16, 16}, seed), leaf({16, 16}, seed + 1)};
    const Loss loss = [](const TensorList& p) { return sum(gelu(matmul(gelu(matmul(p[0], p[1])), p[1]))); };
    const std::vector<std::string> plain = gradients(loss, leaves, nullptr);
    const auto offload = SavedTensorOffload::create(all_again());
    for (int i = 0; i < 30; ++i) wrong += gradients(loss, leaves, offload) != plain;
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, 10 * i + 1);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Offload, ThreadsOverOneObjectAndBackwardOnAnother) {
  OffloadOptions adaptive = all_again();
  adaptive.adaptive = true;
  adaptive.slowdown = 2;
  std::atomic<int> wrong{0};
  for (const OffloadOptions& o : {all_away(), all_again(), adaptive}) {
    const auto shared = SavedTensorOffload::create(o);
    const auto work = [&](uint64_t seed) {
      const TensorList leaves = {leaf({32}, seed)};
      const Loss loss = [](const TensorList& p) { return sum(sin(silu(exp(p[0] * 0.5) * p[0]) * p[0])); };
      const std::vector<std::string> plain = gradients(loss, leaves, nullptr);
      for (int i = 0; i < 50; ++i) wrong += gradients(loss, leaves, shared) != plain;
    };
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 3; ++i) threads.emplace_back(work, 10 * i + 1);
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(shared->stats().away_bytes, 0);
  }
  EXPECT_EQ(wrong, 0);
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor x = leaf({32});
  Tensor y;
  {
    const SavedTensorOffload::Scope scope(offload);
    y = sum(sin(x * 2.0));
  }
  std::thread([&] { y.backward(); }).join();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(offload->stats().away_bytes, 0);
}

TEST(Offload, BadOptions) {
  EXPECT_THROW(SavedTensorOffload::create({.away = SavedPlace::keep}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.away = SavedPlace::disk}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.min_bytes = 0}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.slowdown = 0.9}), ValueError);
  EXPECT_THROW(SavedTensorOffload::Scope(nullptr), ValueError);
}

}  // namespace
}  // namespace strata
