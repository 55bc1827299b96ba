// Threads that share tensors: what docs/library/autograd.md promises. Run under the thread sanitizer as well.
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/autocast.h"
#include "strata/core/op.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr int kThreads = 4;

// body(i) on kThreads threads, which begin together.
template <class Body>
void together(Body&& body) {
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  for (std::thread& t : threads) t.join();
}

// Numbers whose sums are exact in any order.
Tensor leaf(const Shape& shape, double value = 2) {
  return full(shape, value).set_requires_grad();
}

TEST(Threads, ShareAParameterInForwardOnly) {
  const Tensor w = leaf({4, 4}), x = ones({4, 4});
  together([&](int) {
    for (int n = 0; n < 500; ++n) {
      const Tensor y = w * x;
      ASSERT_TRUE(y.requires_grad());
      ASSERT_EQ(y.grad_fn()->edges[0].node->name(), "accumulate_grad");
    }
  });
  // One node for all graphs, whoever made it.
  EXPECT_TRUE((w * x).grad_fn()->edges[0].node == (x * w).grad_fn()->edges[1].node);
}

TEST(Threads, MeetAtATensorThatNobodyUsedBefore) {
  for (int n = 0; n < 200; ++n) {
    const Tensor w = leaf({2});
    std::vector<Tensor> results(kThreads);
    together([&](int i) { results[static_cast<size_t>(i)] = w + w; });
    for (const Tensor& y : results) {
      EXPECT_TRUE(y.grad_fn()->edges[0].node == results[0].grad_fn()->edges[1].node);
      y.backward(ones({2}));
    }
    EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(2, 2 * kThreads));
  }
}

TEST(Threads, AddToOneGradient) {
  const Tensor w = leaf({8, 8}), b = leaf({8});
  const Tensor x = ones({3, 8});
  constexpr int kRounds = 60;
  together([&](int i) {
    for (int n = 0; n < kRounds; ++n) sum((matmul(x, w) + b) * static_cast<double>(i + 1)).backward();
  });
  const float sum_of_factors = kThreads * (kThreads + 1) / 2;
  EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(64, 3 * kRounds * sum_of_factors));
  EXPECT_EQ(b.grad().to_vector<float>(), std::vector<float>(8, 3 * kRounds * sum_of_factors));
}

TEST(Threads, OutliveTheTensorThatTheirGraphsEndAt) {
  for (int n = 0; n < 100; ++n) {
    Tensor w = leaf({3});
    std::vector<Tensor> copies(kThreads, w);
    w = {};
    together([&](int i) {
      Tensor& mine = copies[static_cast<size_t>(i)];
      const Tensor y = mine * 3.0;
      mine = {};
      y.backward(ones({3}));  // the graph alone holds the leaf
    });
  }
}

TEST(Threads, ReadAndDropAGradientWhileOthersAddToIt) {
  const Tensor w = leaf({16});
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      const Tensor g = w.grad();
      if (g.defined()) ASSERT_EQ(g.numel(), 16);
      Tensor same = w;
      same.set_grad({});
    }
  });
  together([&](int) {
    for (int n = 0; n < 100; ++n) sum(w * 2.0).backward();
  });
  done = true;
  reader.join();
}

TEST(Threads, ReadAViewWhoseBaseWasWrittenInPlace) {
  for (int n = 0; n < 100; ++n) {
    const Tensor x = leaf({4, 2});
    Tensor base = x * 1.0;
    const Tensor row = base.select(0, 1);
    base.mul_(ones({4, 2}) * 3.0);
    std::vector<Ref<Node>> seen(kThreads);
    together([&](int i) { seen[static_cast<size_t>(i)] = (row * 2.0).grad_fn()->edges[0].node; });
    for (const Ref<Node>& node : seen) EXPECT_TRUE(node == seen[0]);
    (row * 2.0).backward(ones({2}));
    EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>({0, 0, 6, 6, 0, 0, 0, 0}));
  }
}

TEST(Threads, AddHooksWhileOthersRunThem) {
  const Tensor w = leaf({2});
  const Tensor y = w * 1.0;
  std::atomic<int> calls{0};
  together([&](int) {
    for (int n = 0; n < 50; ++n) {
      HookHandle on_leaf = register_hook(w, [&](const Tensor&) { ++calls; });
      HookHandle on_result = register_hook(y, [&](const Tensor&) { ++calls; });
      HookHandle after = register_post_accumulate_grad_hook(w, [&](const Tensor&) { ++calls; });
      backward({y}, {ones({2})}, /*retain_graph=*/true);
      on_leaf.remove();
      on_result.remove();
      after.remove();
    }
  });
  EXPECT_GE(calls.load(), kThreads * 50 * 3);  // at least one's own
}

TEST(Threads, RunBackwardThroughOneGraphThatTheyRetain) {
  const Tensor w = leaf({4});
  const Tensor shared = exp(w * 0.0) * w;
  constexpr int kRounds = 50;
  together([&](int) {
    for (int n = 0; n < kRounds; ++n) backward({sum(shared * 2.0)}, {}, /*retain_graph=*/true);
  });
  EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(4, 2 * kThreads * kRounds));
}

TEST(Threads, RunBackwardThroughOneGraphThatOneReleases) {
  for (int n = 0; n < 100; ++n) {
    const Tensor w = leaf({4});
    const Tensor shared = exp(w) * w;
    std::atomic<int> whole{0}, refused{0};
    together([&](int) {
      try {
        shared.backward(ones({4}));
        ++whole;
      } catch (const AutogradError&) {
        ++refused;
      }
    });
    EXPECT_EQ(whole.load(), 1);
    EXPECT_EQ(refused.load(), kThreads - 1);
    EXPECT_THROW(shared.backward(ones({4})), AutogradError);
  }
}

TEST(Threads, ShareAParameterThatAutocastCopies) {
  const Tensor w = leaf({8, 8});
  const Tensor x = ones({8, 8});
  together([&](int) {
    for (int n = 0; n < 30; ++n) {
      AutocastScope scope;
      const Tensor y = matmul(x, w);
      ASSERT_EQ(y.dtype(), DType::bf16);
      sum(y).backward();
    }
  });
  EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(64, 8 * 30 * kThreads));
}

TEST(Threads, ReadTheRecordsForTheFirstTime) {
  together([](int) {
    for (const OpBase* op : OpBase::all()) ASSERT_EQ(op->schema().name, op->name());
  });
}

}  // namespace
}  // namespace strata
