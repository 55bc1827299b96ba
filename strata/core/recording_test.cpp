// Recordings: what they hold, as text, and run again.
#include "strata/core/recording.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// The ops of the calls that do the work.
std::vector<std::string> work(const Recording& r) {
  std::vector<std::string> names;
  for (size_t i = 0; i < r.calls.size(); ++i)
    if (r.is_work(i)) names.emplace_back(r.calls[i].op->name());
  return names;
}
const RecordedCall& call_of(const Recording& r, std::string_view op, size_t skip = 0) {
  for (const RecordedCall& c : r.calls)
    if (c.op->name() == op && skip-- == 0) return c;
  throw std::runtime_error("no call of " + std::string(op));
}
const RecordedValue& value_of(const Recording& r, ValueIndex v) {
  return r.values.at(static_cast<size_t>(v.at));
}
const RecordedStorage& storage_of(const Recording& r, ValueIndex v) {
  return r.storages.at(static_cast<size_t>(value_of(r, v).storage));
}
std::vector<float> numbers(const Tensor& t) {
  return t.to_vector<float>();
}

TEST(Recording, HasCallsWithTheirValues) {
  const Tensor a = full({2, 3}, 2.0), b = full({3}, 3.0);
  Tensor y;
  const Recording r = record([&] { y = exp((a * b).transpose(0, 1)); });
  // Broadcasting is a call of its own, before the product.
  EXPECT_EQ(work(r), (std::vector<std::string>{"expand", "mul", "transpose", "exp"}));
  const RecordedCall& mul = call_of(r, "mul");
  const auto x = std::get<ValueIndex>(mul.args[0]), factor = std::get<ValueIndex>(mul.args[1]);
  EXPECT_EQ(value_of(r, x).shape, Shape({2, 3}));
  EXPECT_EQ(value_of(r, factor).strides, Strides({0, 1}));
  EXPECT_EQ(value_of(r, factor).storage, value_of(r, std::get<ValueIndex>(call_of(r, "expand").args[0])).storage);
  EXPECT_EQ(storage_of(r, x).born, -1);
  EXPECT_EQ(storage_of(r, x).freed, 4);
  EXPECT_EQ(storage_of(r, x).nbytes, 24);
  EXPECT_EQ(numbers(storage_of(r, x).given.defined() ? ones({1}) : zeros({1})), std::vector<float>{1});  // a small one
  EXPECT_EQ(mul.form, Form::fresh);
  EXPECT_EQ(mul.phase, Phase::forward);
  EXPECT_EQ(mul.cost.flops, 6);
  // A view shares its storage; the result of mul goes when its view does, with the statement.
  const ValueIndex product = mul.results[0], turned = call_of(r, "transpose").results[0];
  EXPECT_EQ(value_of(r, product).storage, value_of(r, turned).storage);
  EXPECT_EQ(storage_of(r, product).born, 1);
  EXPECT_EQ(storage_of(r, product).freed, 4);
  EXPECT_EQ(call_of(r, "transpose").cost.bytes, 0);
  EXPECT_EQ(std::get<int64_t>(call_of(r, "transpose").args[1]), 0);
}

TEST(Recording, HasEveryFormOfCall) {
  Tensor x = full({2}, 1.0), y = empty({2});
  const Recording r = record([&] {
    x.mul_(full({2}, 3.0));
    x.fill_(2.5);
    {
      const NoGrad guard;
      x.copy_(ones({2}));
      silu(x);
    }
  });
  const RecordedCall& mul = call_of(r, "mul");
  EXPECT_EQ(mul.form, Form::inplace);
  ASSERT_EQ(mul.targets.size(), 1u);
  EXPECT_EQ(mul.targets[0], std::get<ValueIndex>(mul.args[0]));
  EXPECT_EQ(mul.results, mul.targets);
  const RecordedCall* copy = nullptr;
  for (const RecordedCall& c : r.calls)
    if (c.form == Form::inplace && c.op->name().starts_with("copy")) copy = &c;
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->targets, mul.targets);
  EXPECT_TRUE(r.writes.empty());
}

// An op with an own out= form, and a composed one.
const Op<Tensor(const Tensor&)> twice_op{{
    .schema = "recording_test_twice(Tensor x) -> Tensor",
    .doc = "x + x.",
    .infer = [](const Tensor& x) { return like(x); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x) { y.copy_(x + x); }},
}};
const Op<Tensor(const Tensor&)> composed_op{{
    .schema = "recording_test_composed(Tensor x) -> Tensor",
    .doc = "exp(x) + x.",
    .composed = [](const Tensor& x) { return exp(x) + x; },
}};

TEST(Recording, HasOutAndComposedCalls) {
  const Tensor x = full({2}, 3.0);
  Tensor y = empty({2});
  const Recording r = record([&] {
    twice_op.out(y, x);
    composed_op(x);
  });
  const RecordedCall& out = r.calls[0];
  EXPECT_EQ(out.op->name(), "recording_test_twice");
  EXPECT_EQ(out.form, Form::out);
  EXPECT_EQ(value_of(r, out.targets[0]).shape, Shape({2}));
  EXPECT_FALSE(out.targets[0] == std::get<ValueIndex>(out.args[0]));
  // What a kernel calls is its own affair; what a composed op calls stands for it.
  EXPECT_EQ(work(r), (std::vector<std::string>{"recording_test_twice", "exp", "add"}));
  EXPECT_TRUE(r.calls[1].composed);
  EXPECT_EQ(r.calls[2].parent, 1);
  EXPECT_EQ(r.calls[3].parent, 1);
  EXPECT_EQ(r.calls[1].results, r.calls[3].results);
  Replay again(r);
  again.run();
  EXPECT_EQ(numbers(again.value(out.targets[0])), numbers(y));
}

TEST(Recording, KnowsPhaseModuleAndAutocast) {
  const Tensor w = full({4, 4}, 0.5).set_requires_grad(), x = ones({2, 4});
  const Recording r = record([&] {
    Tensor y;
    {
      const memory::ModuleScope at("layer");
      const AutocastScope low;
      y = matmul(x, w);
    }
    sum(y).backward();
  });
  const RecordedCall& forward = call_of(r, "matmul");
  EXPECT_EQ(forward.phase, Phase::forward);
  ASSERT_TRUE(forward.module);
  EXPECT_EQ(*forward.module, "layer");
  EXPECT_TRUE(forward.autocast);
  EXPECT_EQ(forward.autocast_dtype, DType::bf16);
  EXPECT_EQ(value_of(r, std::get<ValueIndex>(forward.args[1])).dtype, DType::bf16);
  const RecordedCall& backward = call_of(r, "matmul_f32");  // to a parameter's cast, whose gradient is f32
  EXPECT_EQ(backward.phase, Phase::backward);
  ASSERT_TRUE(backward.module);
  EXPECT_EQ(*backward.module, "layer");  // its rule's
  EXPECT_EQ(call_of(r, "sum").module, nullptr);
}

TEST(Recording, HoldsNothingAndChangesNothing) {
  const Tensor x = ones({64}).set_requires_grad();
  const int64_t before = memory::stats(Device::cpu()).live_total;
  const auto step = [&] {
    Tensor t = x;
    t.set_grad({});
    for (int i = 0; i < 3; ++i) t = exp(t) * 0.5;
    sum(t).backward();
    return numbers(x.grad());
  };
  const std::vector<float> plain = step();
  std::vector<float> seen;
  const Recording r = record([&] { seen = step(); });
  EXPECT_EQ(seen, plain);
  x.detach();
  EXPECT_LE(memory::stats(Device::cpu()).live_total, before + 4096);
  // Where a result is used for the last time its storage ends: at the peak there is less than the sum of all.
  int64_t all = 0;
  for (const RecordedStorage& s : r.storages) all += s.nbytes;
  EXPECT_LT(r.peak_bytes().first, all);
  EXPECT_EQ(t_mode.unusual, 0u);
}

TEST(Recording, OfTheMetaDeviceIsTheSame) {
  const auto step = [](Device device) {
    const DeviceScope on(device);
    const Tensor w = full({8, 8}, 0.25).set_requires_grad(), x = full({4, 8}, 0.5);
    return record([&] { sum(softmax(matmul(x, w), -1) * 2.0).backward(); });
  };
  const Recording here = step(Device::cpu()), dry = step(Device::meta());
  EXPECT_EQ(work(here), work(dry));
  ASSERT_EQ(here.values.size(), dry.values.size());
  EXPECT_EQ(here.values, dry.values);
  for (size_t i = 0; i < here.storages.size(); ++i) {
    EXPECT_EQ(here.storages[i].nbytes, dry.storages[i].nbytes);
    EXPECT_EQ(here.storages[i].born, dry.storages[i].born);
    EXPECT_EQ(here.storages[i].freed, dry.storages[i].freed);
  }
  Replay(dry).run();  // shapes alone
}

// Runs fn, and its recording twice: from memory and from its text. All values that outlived it have the same bits.
template <class F>
Recording expect_same_bits(F&& fn) {
  const Recording recorded = record(fn, {.values = true});
  std::vector<std::vector<uint8_t>> bits;
  for (const bool from_text : {false, true}) {
    const Recording read = Recording::from_text(recorded.to_text());
    EXPECT_EQ(read.to_text(), recorded.to_text());
    EXPECT_EQ(read.to_string(), recorded.to_string());
    const Recording& r = from_text ? read : recorded;
    for (const int threads : {1, 3}) {
      const int before = num_threads();
      set_num_threads(threads);
      Replay again(r);
      again.run();
      set_num_threads(before);
      std::vector<uint8_t> all;
      for (size_t v = 0; v < r.values.size(); ++v) {
        const RecordedStorage& s = r.storages[static_cast<size_t>(r.values[v].storage)];
        if (s.freed < static_cast<int32_t>(r.calls.size())) continue;
        const Tensor t = again.value({static_cast<int32_t>(v)}).contiguous();
        const auto* p = static_cast<const uint8_t*>(t.raw_data());
        all.insert(all.end(), p, p + t.nbytes());
      }
      bits.push_back(all);
    }
  }
  EXPECT_FALSE(bits[0].empty());
  for (const auto& b : bits) EXPECT_EQ(b, bits[0]);
  return recorded;
}
// What the recorded run itself left in `t`, which must be the recording's last value of that shape.
void expect_in_replay(const Recording& r, const Tensor& t) {
  Replay again(r);
  again.run();
  bool found = false;
  for (size_t v = 0; v < r.values.size() && !found; ++v) {
    if (r.values[v].shape != t.shape() || r.values[v].dtype != t.dtype()) continue;
    if (r.storages[static_cast<size_t>(r.values[v].storage)].freed < static_cast<int32_t>(r.calls.size())) continue;
    found = numbers(again.value({static_cast<int32_t>(v)})) == numbers(t);
  }
  EXPECT_TRUE(found) << describe(t);
}

TEST(Replay, GivesTheSameBits) {
  manual_seed(3);
  const Tensor w = rand({7, 5}).set_requires_grad(), x = rand({4, 7});
  Tensor running = zeros({5}), loss;
  const Recording r = expect_same_bits([&] {
    const Tensor y = dropout(softmax(matmul(x, w), -1), 0.5, true);
    running.mul_(full({5}, 0.9)).add_(mean(y.detach(), {0}), 0.1);
    loss = sum(y * y.select(0, 1));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
  EXPECT_TRUE(r.writes.empty());
  expect_in_replay(r, running);
  expect_in_replay(r, w.grad());
}

TEST(Replay, GivesTheSameBitsOfARealRun) {
  manual_seed(3);
  const Tensor w = rand({7, 5}).set_requires_grad(), x = rand({4, 7});
  Tensor loss;
  const Recording r = expect_same_bits([&] {
    const Tensor y = checkpoint([&](const Tensor& t) { return dropout(exp(matmul(t, w)), 0.5, true); }, x);
    loss = sum(y * y.slice(1, 0, 1));
    loss.backward();
  });
  expect_in_replay(r, w.grad());
  expect_in_replay(r, loss.detach());
}

TEST(Replay, TakesWritesThatNoCallMade) {
  Tensor x = full({4}, 1.0);
  Tensor a, b;
  const auto fn = [&] {
    a = x * x;
    x.data<float>()[1] = 5;
    bump_version(x, "program");
    b = x * x;
  };
  const Recording r = record(fn, {.values = true});
  ASSERT_EQ(r.writes.size(), 1u);
  EXPECT_EQ(r.writes[0].call, 1);
  Replay again(r);
  again.run();
  EXPECT_EQ(numbers(again.value(call_of(r, "mul", 0).results[0])), numbers(a));
  EXPECT_EQ(numbers(again.value(call_of(r, "mul", 1).results[0])), numbers(b));
}

TEST(Replay, NeedsWhatNoCallMade) {
  const Tensor x = full({64}, 2.0);
  Tensor y;
  const Recording r = record([&] { y = exp(x); });
  Replay again(r);
  EXPECT_EQ(message<ValueError>([&] { again.run(); }),
            "Replay: call 0 (exp): Replay: value 0 is in storage 0, whose bytes are not there: they were not kept, or "
            "it is not made yet, or was freed");
  EXPECT_THROW(again.give(0, ones({63})), ValueError);
  EXPECT_THROW(again.give(1, ones({64})), ValueError);
  EXPECT_THROW(again.give(7, ones({64})), ValueError);
  again.give(0, x);
  again.run();
  EXPECT_EQ(numbers(again.value(r.calls[0].results[0])), numbers(y));
  EXPECT_EQ(numbers(x), numbers(full({64}, 2.0)));
}

TEST(Recording, ACallThatThrowsIsNoWork) {
  const Tensor x = ones({2, 3});
  const Recording r = record([&] {
    EXPECT_THROW(matmul(x, x), ShapeError);
    exp(x);
  });
  EXPECT_EQ(work(r), std::vector<std::string>{"exp"});
}

TEST(Recording, RecordersNestAndOtherThreadsAreNotSeen) {
  const Tensor x = ones({2});
  Recording inner;
  const Recording outer = record([&] {
    exp(x);
    inner = record([&] { sin(x); });
    std::thread([&] { cos(x); }).join();
  });
  EXPECT_EQ(work(inner), std::vector<std::string>{"sin"});
  EXPECT_EQ(work(outer), (std::vector<std::string>{"exp", "sin"}));
  EXPECT_EQ(std::get<ValueIndex>(outer.calls[0].args[0]), std::get<ValueIndex>(outer.calls[1].args[0]));
}

// A second for each mark.
struct Ticks final : RecordClock {
  void mark(int32_t call) override { marks.push_back(call); }
  double read(std::span<double> seconds) override {
    double none = 0;
    for (const int32_t call : marks) (call < 0 ? none : seconds[static_cast<size_t>(call)]) += 1;
    marks.clear();
    return none;
  }
  std::vector<int32_t> marks;
};

TEST(Recording, TimesCallsByAnotherClock) {
  const Tensor x = ones({2});
  Ticks ticks;
  Recorder recorder({.clock = &ticks});
  exp(x);
  composed_op(x);
  EXPECT_EQ(ticks.marks, (std::vector<int32_t>{0, -1, 1, 2, 1, 3, 1, -1}));
  const Recording r = recorder.finish();
  ASSERT_EQ(r.calls.size(), 4u);
  EXPECT_EQ(r.calls[0].seconds, 1);
  EXPECT_EQ(r.calls[1].seconds, 3);  // before, between and after what it calls
  EXPECT_EQ(r.calls[2].seconds, 1);
  EXPECT_EQ(r.outside, 2);
  const Recording read = Recording::from_text(r.to_text());
  EXPECT_EQ(read.outside, 2);
  EXPECT_EQ(read.calls[1].seconds, 3);
}

TEST(Recording, TheHostsClockTimesEverything) {
  const Tensor x = ones({256, 256});
  const auto begin = std::chrono::steady_clock::now();
  const Recording r = record([&] {
    for (int i = 0; i < 3; ++i) composed_op(matmul(x, x));
  });
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double sum = r.outside;
  for (const RecordedCall& c : r.calls) {
    EXPECT_GT(c.seconds, 0) << c.op->name();
    sum += c.seconds;
  }
  EXPECT_GT(r.outside, 0);
  EXPECT_LE(sum, whole);
}

// Takes parts.
struct Parts final : RecordSink {
  void take(Recording&& part) override { all.push_back(std::move(part)); }
  std::vector<Recording> all;
};

TEST(Recording, GoesOnInParts) {
  Parts parts;
  const Tensor x = ones({32}), wide = ones({2, 3});
  Tensor y = x;
  Recorder recorder({.sink = &parts, .part_calls = 2});
  for (int i = 0; i < 3; ++i) y = exp(y);  // the first is freed when the third is there
  composed_op(x);                          // three calls, which stay together
  EXPECT_THROW(matmul(wide, wide), ShapeError);
  const Recording rest = recorder.cut();
  const Recording none = recorder.finish();
  ASSERT_EQ(parts.all.size(), 2u);
  EXPECT_EQ(work(parts.all[0]), (std::vector<std::string>{"exp", "exp"}));
  EXPECT_EQ(work(parts.all[1]), (std::vector<std::string>{"exp", "exp", "add"}));
  EXPECT_EQ(parts.all[1].calls.size(), 4u);
  EXPECT_TRUE(work(rest).empty());
  EXPECT_FALSE(rest.calls.empty());
  EXPECT_TRUE(none.calls.empty());
  // What an older part made counts as given, and goes with the call that takes its place.
  const RecordedStorage& given = storage_of(parts.all[1], std::get<ValueIndex>(parts.all[1].calls[0].args[0]));
  EXPECT_EQ(given.born, -1);
  EXPECT_EQ(given.freed, 1);
  for (const Recording& part : parts.all) EXPECT_EQ(Recording::from_text(part.to_text()).to_text(), part.to_text());
}

TEST(Recording, PrintsALineACall) {
  const Tensor x = ones({2, 3});
  const Recording r = record([&] { softmax(x, 1); });
  const std::string text = r.to_string();
  EXPECT_NE(text.find("0 forward - softmax(%0[2, 3]f32, 1) -> %1[2, 3]f32"), std::string::npos) << text;
  EXPECT_NE(text.find("2 storages, at most 48 B at once (call 0)"), std::string::npos) << text;
}

TEST(Recording, TextThatDoesNotFitIsRefusedWithItsPlace) {
  const Tensor x = ones({2, 3});
  const std::string good = record([&] { softmax(x, 1); }).to_text();
  const auto refused = [&](std::string_view from, std::string_view to) {
    std::string bad = good;
    const size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in\n" << good;
    bad.replace(at, from.size(), to);
    return message<IoError>([&] { Recording::from_text(bad); });
  };
  EXPECT_EQ(refused("strata-recording 1", "strata-recording 2").substr(0, 58),
            "Recording: line 1, byte 0, the first line: expected 'strat");
  EXPECT_NE(refused("v 0 f32", "v 9 f32").find("a value's storage: 9 is not in 0 to 1"), std::string::npos);
  EXPECT_NE(refused("v 0 f32", "v 0 f33").find("a value's dtype: "), std::string::npos);
  EXPECT_NE(refused("[2,3] [3,1] 0", "[2,3] [3,1] 1").find("reaches past its storage of 24 bytes"), std::string::npos);
  EXPECT_NE(refused("[2,3] [3,1]", "[2,3] [3]").find("as many strides as sizes"), std::string::npos);
  EXPECT_NE(refused("[2,3] [3,1]", "[4611686018427387904,3] [3,1]").find("a value's shape"), std::string::npos);
  EXPECT_NE(refused("c softmax", "c softmux").find("a call's op: this program has no op 'softmux'"), std::string::npos);
  EXPECT_NE(refused(" t0 i1", " t0 f1").find("argument 'dim' of softmax: it must be of type int"), std::string::npos);
  EXPECT_NE(refused(" t0 i1", " t7 i1").find("argument 'x' of softmax: 7 is not in 0 to 1"), std::string::npos);
  EXPECT_NE(refused("storages 2", "storages 99999999999").find("the number of storages"), std::string::npos);
  // Every beginning, and every changed byte: refused, or read as something whole.
  for (size_t n = 0; n < good.size(); ++n) EXPECT_THROW(Recording::from_text(good.substr(0, n)), IoError) << n;
  EXPECT_THROW(Recording::from_text(good + "x"), IoError);
  for (size_t n = 0; n < good.size(); ++n) {
    for (const char c : {'\0', '9', '-', ' ', '\n', '"', '[', 'z', '\xff'}) {
      std::string bad = good;
      bad[n] = c;
      try {
        const Recording r = Recording::from_text(bad);
        (void)r.to_string();
        (void)r.to_text();
      } catch (const IoError&) {
      }
    }
  }
}

TEST(Node, GivesItsOpAndItsValues) {
  const Tensor a = full({2}, 2.0).set_requires_grad(), b = full({2}, 3.0);
  const Tensor y = softmax(a * b, 0);
  const Ref<Node> node = y.grad_fn();
  ASSERT_TRUE(node->op());
  EXPECT_EQ(node->op()->name(), "softmax");
  const NodeValues v = node->values();
  ASSERT_EQ(v.args.size(), node->op()->schema().args.size());
  EXPECT_TRUE(std::get<Tensor>(v.args[0]).is_meta());  // its rule does not read it
  EXPECT_EQ(std::get<Tensor>(v.args[0]).shape(), Shape({2}));
  EXPECT_EQ(std::get<int64_t>(v.args[1]), 0);
  ASSERT_EQ(v.results.size(), 1u);
  EXPECT_EQ(numbers(v.results[0]), numbers(y));
  EXPECT_EQ(gradient_edge(a).node->op(), nullptr);
  EXPECT_TRUE(gradient_edge(a).node->values().args.empty());
}

}  // namespace
}  // namespace strata
