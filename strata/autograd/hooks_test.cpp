// Hooks on gradients, and hooks on saved tensors.
#include "strata/autograd/hooks.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "strata/autograd/autograd.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

Tensor leaf(std::vector<double> v) {
  return from_span<double>(v, {static_cast<int64_t>(v.size())}).set_requires_grad();
}
double first(const Tensor& t) {
  return *t.data<double>();
}

TEST(Hooks, SeeAndReplaceInOrder) {
  Tensor x = leaf({3});
  const Tensor y = x * 2.0;
  std::vector<std::string> order;
  register_hook(y, [&](const Tensor& g) {
    order.push_back("a");
    return g * 10.0;
  });
  register_hook(y, [&](const Tensor& g) {
    order.push_back("b");
    EXPECT_EQ(first(g), 10);
  });
  register_hook(x, [&](const Tensor& g) {
    order.push_back("leaf");
    EXPECT_EQ(first(g), 20);
    return g + 1.0;
  });
  register_post_accumulate_grad_hook(x, [&](const Tensor& t) {
    order.push_back("post");
    EXPECT_TRUE(t.same_as(x));
    EXPECT_EQ(first(t.grad()), 21);
  });
  y.backward();
  EXPECT_EQ(order, std::vector<std::string>({"a", "b", "leaf", "post"}));
  EXPECT_EQ(first(x.grad()), 21);
}

TEST(Hooks, RunOnceOnTheSumOfAllPaths) {
  Tensor x = leaf({3});
  const Tensor y = x * 2.0;
  int calls = 0;
  double seen = 0;
  register_hook(y, [&](const Tensor& g) {
    ++calls;
    seen = first(g);
  });
  (y * y + y).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, 13);
}

TEST(Hooks, RemovedOnesAreNotCalledAndForgotten) {
  Tensor x = leaf({1});
  int calls = 0;
  auto held = std::make_shared<int>(0);
  HookHandle h = register_hook(x, [&calls, held](const Tensor&) { ++calls; });
  (x * 1.0).backward();
  EXPECT_EQ(calls, 1);
  h.remove();
  h.remove();
  (x * 1.0).backward();
  EXPECT_EQ(calls, 1);
  for (int i = 0; i < 100; ++i) register_hook(x, [](const Tensor&) {}).remove();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_LE(gradient_edge(x).node->leaf_hooks()->size(), 1u);
  HookHandle late;
  {
    Tensor z = leaf({1});
    late = register_hook(z, [](const Tensor&) {});
  }
  late.remove();  // its tensor is gone
}

TEST(Hooks, MayAddAndRemoveHooksWhileRunning) {
  Tensor x = leaf({1});
  int second = 0;
  HookHandle self;
  self = register_hook(x, [&](const Tensor&) {
    self.remove();
    register_hook(x, [&](const Tensor&) { ++second; });
  });
  (x * 1.0).backward();
  EXPECT_EQ(second, 0);
  (x * 1.0).backward();
  EXPECT_EQ(second, 1);
}

TEST(Hooks, OptimizerInBackward) {
  Tensor x = leaf({4});
  register_post_accumulate_grad_hook(x, [](const Tensor& p) {
    NoGrad guard;
    Tensor t = p;
    t.add_(p.grad(), -0.5);
    t.set_grad({});
  });
  (x * x).backward();
  EXPECT_EQ(first(x), 0);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Hooks, GradRunsTensorHooksButNotPostHooks) {
  Tensor x = leaf({4});
  int post = 0;
  register_hook(x, [](const Tensor& g) { return g * 3.0; });
  register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++post; });
  EXPECT_EQ(first(grad({x * 1.0}, {x})[0]), 3);
  EXPECT_EQ(post, 0);
}

TEST(Hooks, TakePartInHigherDerivatives) {
  Tensor x = leaf({2});
  const Tensor y = x * x;
  register_hook(y, [&](const Tensor& g) { return g * x; });  // turns 2x into 2x^2
  const Tensor g = grad({y}, {x}, {}, true)[0];
  EXPECT_EQ(first(g), 8);
  EXPECT_EQ(first(grad({g}, {x})[0]), 8);
}

TEST(Hooks, Errors) {
  Tensor x = leaf({1, 2});
  EXPECT_THROW(register_hook(x.detach(), [](const Tensor&) {}), AutogradError);
  EXPECT_THROW(register_post_accumulate_grad_hook(x * 2.0, [](const Tensor&) {}), AutogradError);
  register_hook(x, [](const Tensor& g) { return sum(g); });
  EXPECT_THROW(sum(x).backward(), ShapeError);
}

// A leaf of f32 never gets a gradient of another kind.
TEST(Hooks, OfAnotherDtypeOrDeviceAreRefused) {
  const auto backward_with = [](auto hook, bool of_result) {
    Tensor x = ones({2}).set_requires_grad();
    const Tensor y = x * 2.0;
    register_hook(of_result ? y : x, hook);
    std::string text;
    try {
      sum(y).backward();
    } catch (const DTypeError& e) {
      text = e.what();
    } catch (const DeviceError& e) {
      text = e.what();
    }
    EXPECT_FALSE(x.grad().defined());
    return text;
  };
  for (const bool of_result : {false, true}) {
    EXPECT_EQ(backward_with([](const Tensor& g) { return g.to(DType::i64); }, of_result),
              "register_hook: the hook returned [2] i64 for a gradient [2] f32; return it in the gradient's dtype");
    EXPECT_EQ(backward_with([](const Tensor& g) { return g.to(DType::f64); }, of_result),
              "register_hook: the hook returned [2] f64 for a gradient [2] f32; return it in the gradient's dtype");
    EXPECT_EQ(backward_with([](const Tensor& g) { return g.to(Device::meta()); }, of_result),
              "register_hook: the hook returned [2] f32 on meta for a gradient [2] f32; return it on the gradient's "
              "device");
  }
  Tensor x = ones({2}).set_requires_grad();
  EXPECT_THROW(x.set_grad(ones({2}, DType::i64)), DTypeError);
  EXPECT_THROW(x.set_grad(ones({2}).to(Device::meta())), DeviceError);
  EXPECT_THROW(x.set_grad(ones({3})), ShapeError);
  // What backward begins with is converted, as PyTorch does.
  (x * 2.0).backward(ones({2}, DType::i64));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>({2, 2}));
  EXPECT_THROW((x * 2.0).backward(ones({2}).to(Device::meta())), DeviceError);
}

// ---- saved tensors ----

// Keeps saved f64 tensors as f32 copies: half the memory, some precision.
struct HalfPrecision final : SavedTensorHooks {
  std::shared_ptr<void> pack(const Tensor& t) override {
    ++packed;
    live.push_back(std::make_shared<Tensor>(to(t, DType::f32)));
    return live.back();
  }
  Tensor unpack(const std::shared_ptr<void>& p) override {
    ++unpacked;
    return to(*static_cast<Tensor*>(p.get()), DType::f64);
  }
  int packed = 0, unpacked = 0;
  std::vector<std::shared_ptr<Tensor>> live;
};

TEST(SavedTensorHooks, PackAndUnpack) {
  const auto hooks = std::make_shared<HalfPrecision>();
  Tensor x = leaf({1.0 / 3}), w = leaf({3});
  Tensor y;
  {
    SavedTensorHooksScope scope(hooks);
    y = x * w;
  }
  const Tensor z = y * w;  // outside: kept as it is
  EXPECT_EQ(hooks->packed, 2);
  z.backward();
  EXPECT_EQ(hooks->unpacked, 2);
  const double third = static_cast<double>(static_cast<float>(1.0 / 3));
  EXPECT_EQ(first(x.grad()), 9);
  EXPECT_EQ(first(w.grad()), 3 * third + (1.0 / 3) * 3);
}

TEST(SavedTensorHooks, PackedMemoryIsFreedAfterBackward) {
  Tensor x = leaf({2});
  const auto hooks = std::make_shared<HalfPrecision>();
  Tensor y;
  {
    SavedTensorHooksScope scope(hooks);
    y = x * x;
  }
  const std::weak_ptr<Tensor> packed = hooks->live[0];
  hooks->live.clear();
  EXPECT_FALSE(packed.expired());
  y.backward({}, true);
  EXPECT_FALSE(packed.expired());
  y.backward();
  EXPECT_TRUE(packed.expired());
  EXPECT_EQ(first(x.grad()), 8);
}

TEST(SavedTensorHooks, HigherDerivativesGoThroughThem) {
  const auto hooks = std::make_shared<HalfPrecision>();
  SavedTensorHooksScope scope(hooks);
  Tensor x = leaf({2});
  const Tensor g = grad({x * x * x}, {x}, {}, true)[0];
  EXPECT_EQ(first(g), 12);
  EXPECT_EQ(first(grad({g}, {x})[0]), 12);
}

TEST(SavedTensorHooks, InnermostScopeDecidesAndScopesEnd) {
  const auto outer = std::make_shared<HalfPrecision>(), inner = std::make_shared<HalfPrecision>();
  Tensor x = leaf({2});
  {
    SavedTensorHooksScope a(outer);
    {
      SavedTensorHooksScope b(inner);
      (x * x).backward();
    }
    (x * x).backward();
  }
  (x * x).backward();
  EXPECT_EQ(outer->packed, 2);
  EXPECT_EQ(inner->packed, 2);
  EXPECT_EQ(first(x.grad()), 12);
}

TEST(SavedTensorHooks, ScopesMayEndInAnyOrder) {
  std::shared_ptr<HalfPrecision> hooks[3];
  std::unique_ptr<SavedTensorHooksScope> scopes[3];
  for (int i = 0; i < 3; ++i) {
    hooks[i] = std::make_shared<HalfPrecision>();
    scopes[i] = std::make_unique<SavedTensorHooksScope>(hooks[i]);
  }
  Tensor x = leaf({2});
  const auto packs = [&] {
    (x * x).backward();
    return std::vector<int>{hooks[0]->packed, hooks[1]->packed, hooks[2]->packed};
  };
  EXPECT_EQ(packs(), (std::vector<int>{0, 0, 2}));
  scopes[1].reset();
  EXPECT_EQ(packs(), (std::vector<int>{0, 0, 4}));
  scopes[2].reset();
  EXPECT_EQ(packs(), (std::vector<int>{2, 0, 4}));
  scopes[1] = std::make_unique<SavedTensorHooksScope>(hooks[1]);
  scopes[0].reset();
  EXPECT_EQ(packs(), (std::vector<int>{2, 2, 4}));
  scopes[1].reset();
  EXPECT_EQ(packs(), (std::vector<int>{2, 2, 4}));
}

// It changes nothing there; where it began it stays, whatever begins and ends there later.
TEST(SavedTensorHooks, AScopeThatEndsOnAnotherThreadIsNone) {
  std::thread([] {
    const auto stray = std::make_shared<HalfPrecision>(), own = std::make_shared<HalfPrecision>();
    auto scope = std::make_unique<SavedTensorHooksScope>(stray);
    Tensor x = leaf({2});
    std::thread([&] {
      const SavedTensorHooksScope mine(own);
      scope.reset();
      (x * x).backward();
    }).join();
    EXPECT_EQ(own->packed, 2);
    {
      const SavedTensorHooksScope mine(own);
      (x * x).backward();
    }
    (x * x).backward();
    EXPECT_EQ(own->packed, 4);
    EXPECT_EQ(stray->packed, 2);
  }).join();
}

TEST(SavedTensorHooks, AnUnpackOfTheWrongShapeIsAnError) {
  struct Wrong final : SavedTensorHooks {
    std::shared_ptr<void> pack(const Tensor&) override { return nullptr; }
    Tensor unpack(const std::shared_ptr<void>&) override { return zeros({7}, DType::f64); }
  };
  Tensor x = leaf({2});
  Tensor y;
  {
    SavedTensorHooksScope scope(std::make_shared<Wrong>());
    y = x * x;
  }
  EXPECT_THROW(y.backward(), AutogradError);
}

// Returns what unpack() of a test says.
struct Changed final : SavedTensorHooks {
  explicit Changed(Tensor (*f)(const Tensor&)) : change(f) {}
  std::shared_ptr<void> pack(const Tensor& t) override { return std::make_shared<Tensor>(t); }
  Tensor unpack(const std::shared_ptr<void>& p) override { return change(*static_cast<Tensor*>(p.get())); }
  Tensor (*change)(const Tensor&);
};

TEST(SavedTensorHooks, UnpackGivesTheSameKindOfTensor) {
  for (Tensor (*change)(const Tensor&) :
       {+[](const Tensor& t) { return t.to(DType::i64); }, +[](const Tensor& t) { return t.to(Device::meta()); },
        +[](const Tensor& t) { return sum(t); }, +[](const Tensor&) { return Tensor(); }}) {
    Tensor x = leaf({1, 2});
    Tensor y;
    {
      SavedTensorHooksScope scope(std::make_shared<Changed>(change));
      y = exp(x);
    }
    EXPECT_THROW(sum(y).backward(), AutogradError);
    EXPECT_FALSE(x.grad().defined());
  }
}

// Notes the names of the nodes that are said to come, each time.
struct Looking final : SavedTensorHooks {
  std::shared_ptr<void> pack(const Tensor& t) override { return std::make_shared<Tensor>(t); }
  Tensor unpack(const std::shared_ptr<void>& p) override {
    unpacked.push_back(p.get());
    return *static_cast<Tensor*>(p.get());
  }
  void ahead(std::span<Node* const> next) override {
    std::string line;
    for (const Node* n : next) line += std::string(line.empty() ? "" : " ") + std::string(n->name());
    lines.push_back(line);
    if (lines.size() > 1) return;
    for (const Node* n : next) {
      std::vector<PackedTensor> packed;
      n->list_packed(packed);
      for (const PackedTensor& p : packed) {
        EXPECT_EQ(p.hooks.get(), this);
        announced.push_back(p.value.get());
      }
    }
  }
  bool looks_ahead() const override { return true; }
  std::vector<std::string> lines;
  std::vector<void*> announced, unpacked;
};

TEST(SavedTensorHooks, SeeWhichNodesComeNext) {
  const auto hooks = std::make_shared<Looking>();
  Tensor x = leaf({1, 2});
  Tensor y;
  {
    SavedTensorHooksScope scope(hooks);
    y = sigmoid(exp(sin(x)));
  }
  sum(y).backward();
  EXPECT_EQ(hooks->lines, (std::vector<std::string>{"sigmoid exp sin", "exp sin", "sin"}));
  EXPECT_EQ(hooks->unpacked.size(), 3u);
  EXPECT_EQ(hooks->announced, hooks->unpacked);  // in the order in which they are wanted
}

}  // namespace
}  // namespace strata
