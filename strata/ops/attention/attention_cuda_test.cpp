// Attention on a CUDA device against the CPU's in double, for every head size that has kernels of its own.

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

struct Config {
  int64_t batch, heads, kv_heads, tq, tk;
  AttentionOptions options;
};

// Queries, keys, values, the result and its gradients, of which the last four are filled by run().
struct Tensors {
  Tensor q, k, v, gy, y, gq, gk, gv;

  Tensors(const Config& c, int64_t d) {
    manual_seed(5);
    q = randn({c.batch, c.tq, c.heads, d}).transpose(1, 2);
    k = randn({c.batch, c.tk, c.kv_heads, d}).transpose(1, 2);
    v = randn({c.batch, c.kv_heads, c.tk, d});
    gy = randn({c.batch, c.heads, c.tq, d});
  }
  void convert(DType dtype, Device device) {
    for (Tensor* t : {&q, &k, &v, &gy}) *t = t->to(dtype).to(device);
  }
  void run(const AttentionOptions& options, const Tensor& mask = {}) {
    for (Tensor* t : {&q, &k, &v}) t->set_requires_grad();
    manual_seed(6);  // dropout's
    y = scaled_dot_product_attention(q, k, v, mask, options);
    y.backward(gy);
    gq = q.grad(), gk = k.grad(), gv = v.grad();
  }
};

// The largest difference in units of the largest value.
double difference(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.detach().to_vector<double>(), b = want.detach().to_vector<double>();
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= most)) most = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return most / largest;
}

// What a call is made in, and how far its results may be from those in double, in units of the largest. TF32 has as
// many bits as f16; where it is not allowed, f32 is two numbers of TF32.
struct Kind {
  DType dtype;
  double tolerance;
  bool tf32 = false;
};
constexpr Kind kKinds[] = {{DType::f32, 2e-5}, {DType::f32, 5e-3, true}, {DType::bf16, 2e-2}, {DType::f16, 5e-3}};

struct AllowTf32 {
  explicit AllowTf32(bool on) { cuda::set_allow_tf32(on); }
  ~AllowTf32() { cuda::set_allow_tf32(false); }
  AllowTf32(const AllowTf32&) = delete;
  AllowTf32& operator=(const AllowTf32&) = delete;
};

std::string text_of(const Kind& kind) {
  return (kind.tf32 ? "TF32 of " : "") + std::string(name_of(kind.dtype));
}

class CudaAttention : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_P(CudaAttention, AgreesWithTheCpuInDouble) {
  const int64_t d = GetParam();
  AttentionOptions plain, causal, window, earlier, dropout, both_sides, behind;
  causal.is_causal = true;
  window.is_causal = true;
  window.window = 21;
  both_sides.window = 13;
  both_sides.scale = 0.3;
  earlier.is_causal = true;
  earlier.query_offset = 63;
  behind.is_causal = true;  // windows behind the last key
  behind.window = 4;
  behind.query_offset = 300;
  dropout.is_causal = true;
  dropout.dropout_p = 0.25;
  const Config configs[] = {{2, 2, 2, 67, 131, plain},   {1, 4, 2, 150, 150, causal}, {1, 2, 1, 150, 150, window},
                            {1, 3, 1, 40, 103, earlier}, {2, 2, 2, 33, 33, dropout},  {1, 2, 2, 200, 170, both_sides},
                            {1, 2, 2, 200, 100, behind}, {1, 2, 1, 400, 431, plain},  {1, 2, 2, 513, 513, causal},
                            {1, 1, 1, 5, 0, plain}};
  for (size_t i = 0; i < std::size(configs); ++i) {
    for (const Kind& kind : kKinds) {
      const AllowTf32 allowed(kind.tf32);
      const DType dtype = kind.dtype;
      const double tolerance = kind.tolerance;
      const Config& c = configs[i];
      Tensors here(c, d), there(c, d);
      here.convert(dtype, Device::cpu());
      here.convert(DType::f64, Device::cpu());
      there.convert(dtype, Device::cuda());
      here.run(c.options);
      there.run(c.options);
      EXPECT_LE(difference(there.y, here.y), tolerance) << "config " << i << ' ' << text_of(kind);
      EXPECT_LE(difference(there.gq, here.gq), tolerance) << "config " << i << ' ' << text_of(kind);
      EXPECT_LE(difference(there.gk, here.gk), tolerance) << "config " << i << ' ' << text_of(kind);
      EXPECT_LE(difference(there.gv, here.gv), tolerance) << "config " << i << ' ' << text_of(kind);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(HeadSizes, CudaAttention,
                         ::testing::Values(3, 8, 16, 32, 40, 64, 72, 80, 96, 100, 128, 160, 256));

// What tensor cores do not take, by ordinary arithmetic: a negative scale, f64, heads above 256; and what is padded for
// them: values of another size than keys, rows that begin anywhere.
TEST(CudaAttentionCalls, OrdinaryArithmeticAndPaddedHeads) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  struct Call {
    DType dtype;
    double tolerance;
    int64_t d, dv, begin = 0;  // of rows that are views from this number on
    std::optional<double> scale = {};
    int64_t tq = 200, tk = 230;
  };
  const Call calls[] = {{DType::f32, 1e-5, 64, 64, 0, -0.1},
                        {DType::bf16, 2e-2, 100, 100, 0, -0.1},
                        {DType::f32, 1e-5, 37, 37, 1, -0.1},
                        {DType::f64, 1e-12, 40, 72},
                        {DType::f32, 1e-5, 300, 260},
                        {DType::f32, 2e-5, 24, 100},
                        {DType::bf16, 2e-2, 192, 128},
                        {DType::f16, 5e-3, 64, 64, 3},
                        {DType::f32, 2e-5, 3, 3, 0, {}, 2000, 6},
                        {DType::f16, 5e-3, 100, 20, 0, {}, 5, 400}};
  for (const Call& c : calls) {
    SCOPED_TRACE(cat(c.dtype, ", sizes ", c.d, " and ", c.dv, " from ", c.begin));
    AttentionOptions options;
    options.is_causal = true;
    options.query_offset = 30;
    options.scale = c.scale;
    const auto run = [&](DType dtype, Device device) {
      manual_seed(8);
      const auto operand = [&](int64_t heads, int64_t time, int64_t size) {
        const Tensor all = randn({2, heads, time, c.begin + size + 1}).to(c.dtype).to(dtype).to(device);
        return slice(all, 3, c.begin, c.begin + size);
      };
      Tensor q = operand(4, c.tq, c.d), k = operand(2, c.tk, c.d), v = operand(2, c.tk, c.dv);
      const Tensor gy = operand(4, c.tq, c.dv);
      for (Tensor* t : {&q, &k, &v}) t->set_requires_grad();
      const Tensor y = scaled_dot_product_attention(q, k, v, {}, options);
      y.backward(gy);
      return std::array<Tensor, 4>{y, q.grad(), k.grad(), v.grad()};
    };
    const auto got = run(c.dtype, Device::cuda()), want = run(DType::f64, Device::cpu());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(difference(got[i], want[i]), c.tolerance) << i;
  }
}

// A mask for [batch, heads, tq, tk], in f32 or boolean, as its name says.
Tensor mask_of(const std::string& kind, const Config& c) {
  manual_seed(9);
  const int64_t b = c.batch, h = c.heads, tq = c.tq, tk = c.tk;
  const auto boolean = [&](const Shape& shape, auto&& seen) {  // seen(flat index)
    std::vector<float> values(static_cast<size_t>(empty(shape).numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = seen(static_cast<int64_t>(i)) ? 1.f : 0.f;
    return from_span<float>(values, shape).to(DType::boolean);
  };
  if (kind == "lengths") return boolean({b, 1, 1, tk}, [&](int64_t i) { return i % tk < tk - 37 * (i / tk) - 5; });
  if (kind == "documents")  // nothing of most tiles is seen, and the queries from 300 on see nothing at all
    return boolean({tq, tk}, [&](int64_t i) { return i / tk < 300 && i / tk / 70 == i % tk / 70; });
  if (kind == "every pair") {
    const Tensor r = rand({b, h, tk, tq}).transpose(2, 3);  // strided
    return r > 0.3;
  }
  if (kind == "a query for all keys") return rand({h, tq, 1}) > 0.2;
  if (kind == "slopes") return randn({h, 1, tk});
  if (kind == "bias") return randn({b, 1, tq, tk}).transpose(2, 3).contiguous().transpose(2, 3);
  const Tensor bias = randn({tq, tk});
  if (kind == "bias and hidden") return where(rand({tq, tk}) > 0.4, bias, full_like(bias, -INFINITY));
  return where(rand({b, h, tq, tk}) > 0.5, 0.f * randn({b, h, tq, tk}), full({b, h, tq, tk}, -1e9));
}

TEST_P(CudaAttention, MasksAgreeWithTheCpuInDouble) {
  const int64_t d = GetParam();
  AttentionOptions plain, causal, window, dropout, both;
  causal.is_causal = true;
  window.window = 90;
  dropout.dropout_p = 0.3;
  both.is_causal = true;
  both.dropout_p = 0.1;
  struct Masked {
    const char* mask;
    Config c;
  };
  const Masked all[] = {
      {"lengths", {3, 2, 2, 129, 132, plain}},          {"lengths", {2, 2, 1, 260, 260, both}},
      {"documents", {1, 2, 2, 420, 420, plain}},        {"documents", {1, 4, 2, 500, 500, causal}},
      {"documents", {1, 2, 1, 420, 431, dropout}},      {"every pair", {2, 4, 2, 65, 131, plain}},
      {"every pair", {1, 2, 2, 300, 300, window}},      {"a query for all keys", {2, 2, 2, 67, 130, plain}},
      {"slopes", {2, 2, 2, 140, 260, causal}},          {"bias", {2, 2, 1, 70, 132, plain}},
      {"bias", {1, 2, 2, 150, 151, dropout}},           {"bias and hidden", {2, 2, 2, 200, 300, both}},
      {"bias and hidden", {1, 2, 2, 300, 300, window}}, {"far below", {1, 2, 2, 100, 200, plain}}};
  for (const auto& [name, c] : all) {
    for (const Kind& kind : kKinds) {
      const AllowTf32 allowed(kind.tf32);
      const DType dtype = kind.dtype;
      const double tolerance = kind.tolerance;
      const Tensor mask = mask_of(name, c);
      const bool additive = mask.dtype() != DType::boolean;
      for (const DType type : {additive ? DType::f32 : DType::boolean, additive ? dtype : DType::boolean}) {
        Tensors here(c, d), there(c, d), again(c, d);
        const Tensor given = mask.to(type);
        here.convert(dtype, Device::cpu());
        here.convert(DType::f64, Device::cpu());
        here.run(c.options, additive ? given.to(DType::f64) : given);
        for (Tensors* t : {&there, &again}) {
          t->convert(dtype, Device::cuda());
          t->run(c.options, given.to(Device::cuda()));
        }
        const auto what = [&](const char* of) {
          return std::string(name) + " of " + std::string(name_of(type)) + ", " + std::to_string(c.tq) + " x " +
                 std::to_string(c.tk) + ' ' + text_of(kind) + ": " + of;
        };
        EXPECT_LE(difference(there.y, here.y), tolerance) << what("result");
        EXPECT_LE(difference(there.gq, here.gq), tolerance) << what("grad q");
        EXPECT_LE(difference(there.gk, here.gk), tolerance) << what("grad k");
        EXPECT_LE(difference(there.gv, here.gv), tolerance) << what("grad v");
        EXPECT_EQ(there.y.detach().to_vector<float>(), again.y.detach().to_vector<float>()) << what("bits");
        EXPECT_EQ(there.gq.to_vector<float>(), again.gq.to_vector<float>()) << what("bits of grad q");
        if (type == DType::boolean || type == dtype) break;
      }
    }
  }
}

// What the options of a call are made of, beside is_causal and the like.
struct Further {
  bool slopes = false, of_each_batch = false, sinks = false;
  double cap = 0;
  std::vector<int64_t> lengths = {};
  const char* mask = nullptr;
};

TEST_P(CudaAttention, DistancesSoftCapSinksAndLengthsAgreeWithTheCpuInDouble) {
  const int64_t d = GetParam();
  AttentionOptions plain, causal, window, earlier, dropout, small;
  causal.is_causal = true;
  window.window = 90;
  earlier.is_causal = true;
  earlier.query_offset = 63;
  dropout.dropout_p = 0.2;
  small.scale = 0.02;  // all scores well below the cap
  struct Optional {
    Further more;
    Config c;
  };
  const Optional all[] = {
      {{.slopes = true}, {2, 4, 2, 150, 150, causal}},
      {{.slopes = true, .of_each_batch = true}, {2, 2, 2, 300, 271, plain}},
      {{.slopes = true}, {1, 2, 1, 40, 303, earlier}},
      {{.slopes = true, .mask = "bias"}, {2, 2, 1, 70, 132, plain}},
      {{.cap = 2.0}, {2, 2, 2, 129, 260, plain}},
      {{.cap = 30.0}, {2, 2, 1, 200, 260, small}},
      {{.cap = 1.5}, {1, 4, 2, 300, 300, causal}},
      {{.slopes = true, .cap = 2.0}, {1, 2, 2, 150, 270, window}},
      {{.cap = 2.0, .mask = "documents"}, {1, 2, 2, 420, 420, plain}},
      {{.cap = 2.0, .mask = "bias and hidden"}, {2, 2, 2, 200, 300, causal}},
      {{.sinks = true}, {2, 4, 2, 140, 200, causal}},
      {{.sinks = true, .mask = "documents"}, {1, 2, 2, 420, 420, dropout}},
      {{.lengths = {131, 0, 260}}, {3, 2, 1, 150, 260, plain}},
      {{.lengths = {300, 128}}, {2, 4, 2, 300, 300, causal}},
      {{.lengths = {5, 400}}, {2, 2, 2, 270, 390, window}},  // the second is more than there are
      {{.lengths = {129, 256, 3}, .mask = "every pair"}, {3, 2, 2, 65, 300, plain}},
      {{.slopes = true, .sinks = true, .cap = 3.0, .lengths = {200, 77}, .mask = "slopes"},
       {2, 4, 2, 150, 260, dropout}},
      {{.slopes = true, .sinks = true, .cap = 3.0, .lengths = {200, 77}}, {2, 4, 2, 150, 260, dropout}}};
  for (size_t i = 0; i < std::size(all); ++i) {
    const auto& [more, c] = all[i];
    manual_seed(11);
    const Shape slopes = more.of_each_batch ? Shape{c.batch, c.heads} : Shape{c.heads};
    const Tensor falls = rand(slopes) * 0.2 + 0.01, sinks = randn({c.heads});
    for (const Kind& kind : kKinds) {
      const AllowTf32 allowed(kind.tf32);
      const DType dtype = kind.dtype;
      const double tolerance = kind.tolerance;
      Tensors here(c, d), there(c, d), again(c, d);
      Tensor sink_grads[3];
      const auto run = [&](Tensors& t, Tensor& sink_grad, bool reference) {
        const Device device = reference ? Device::cpu() : Device::cuda();
        t.convert(dtype, device);
        if (reference) t.convert(DType::f64, device);
        const DType wide = reference ? DType::f64 : DType::f32;
        AttentionOptions o = c.options;
        if (more.slopes) o.alibi_slopes = falls.to(wide).to(device);
        o.logit_soft_cap = more.cap;
        if (more.sinks) {
          o.sinks = sinks.to(wide).to(device);
          o.sinks.set_requires_grad();
        }
        if (!more.lengths.empty())
          o.key_lengths = from_span<int64_t>(more.lengths, {static_cast<int64_t>(more.lengths.size())}).to(device);
        Tensor mask;
        if (more.mask != nullptr) mask = mask_of(more.mask, c).to(device);
        if (mask.defined() && mask.dtype() != DType::boolean) mask = mask.to(dtype).to(reference ? DType::f64 : dtype);
        t.run(o, mask);
        if (more.sinks) sink_grad = o.sinks.grad();
      };
      run(here, sink_grads[0], true), run(there, sink_grads[1], false), run(again, sink_grads[2], false);
      const auto what = [&](const char* of) { return "config " + std::to_string(i) + ' ' + text_of(kind) + ": " + of; };
      EXPECT_LE(difference(there.y, here.y), tolerance) << what("result");
      EXPECT_LE(difference(there.gq, here.gq), tolerance) << what("grad q");
      EXPECT_LE(difference(there.gk, here.gk), tolerance) << what("grad k");
      EXPECT_LE(difference(there.gv, here.gv), tolerance) << what("grad v");
      if (more.sinks) EXPECT_LE(difference(sink_grads[1], sink_grads[0]), 2 * tolerance) << what("grad sinks");
      EXPECT_EQ(there.y.detach().to_vector<float>(), again.y.detach().to_vector<float>()) << what("bits");
      EXPECT_EQ(there.gq.to_vector<float>(), again.gq.to_vector<float>()) << what("bits of grad q");
      EXPECT_EQ(there.gk.to_vector<float>(), again.gk.to_vector<float>()) << what("bits of grad k");
    }
  }
}

// So many keys that bits drawn beforehand would take more than the operands: the kernels draw (see draw_kept()).
TEST_P(CudaAttention, DropoutDrawnWithinTheKernelsAgreesWithTheCpuInDouble) {
  const int64_t d = GetParam();
  if (d != 40) GTEST_SKIP() << "one size will do";
  AttentionOptions dropout;
  dropout.dropout_p = 0.25;
  const Config c{1, 1, 1, 2700, 2700, dropout};
  Tensors here(c, d), there(c, d);
  here.convert(DType::bf16, Device::cpu());
  here.convert(DType::f64, Device::cpu());
  there.convert(DType::bf16, Device::cuda());
  here.run(dropout);
  there.run(dropout);
  EXPECT_LE(difference(there.y, here.y), 2e-2);
  EXPECT_LE(difference(there.gq, here.gq), 2e-2);
  EXPECT_LE(difference(there.gk, here.gk), 2e-2);
  EXPECT_LE(difference(there.gv, here.gv), 2e-2);
}

TEST_P(CudaAttention, GradientsOfAdditiveMasksAgreeWithTheCpuInDouble) {
  const int64_t d = GetParam();
  AttentionOptions plain, causal, dropout;
  causal.is_causal = true;
  dropout.dropout_p = 0.2;
  struct Masked {
    Shape mask;
    Config c;
  };
  const Masked all[] = {{{131, 200}, {2, 4, 2, 131, 200, plain}},       {{1, 1, 150, 150}, {2, 2, 1, 150, 150, causal}},
                        {{2, 1, 1, 270}, {2, 4, 2, 150, 270, dropout}}, {{2, 140, 1}, {3, 2, 2, 140, 130, plain}},
                        {{2, 2, 65, 131}, {2, 2, 2, 65, 131, causal}},  {{1, 4, 1, 1}, {2, 4, 2, 129, 140, plain}}};
  for (size_t i = 0; i < std::size(all); ++i) {
    const auto& [shape, c] = all[i];
    manual_seed(13);
    const Tensor numbers = randn(shape);
    for (const Kind& kind : kKinds) {
      const AllowTf32 allowed(kind.tf32);
      const DType dtype = kind.dtype;
      const double tolerance = dtype == DType::bf16 ? 3e-2 : dtype == DType::f32 && !kind.tf32 ? 5e-5 : 1e-2;
      Tensors here(c, d), there(c, d);
      here.convert(dtype, Device::cpu());
      here.convert(DType::f64, Device::cpu());
      there.convert(dtype, Device::cuda());
      const Tensor rounded = numbers.to(dtype);
      Tensor want = rounded.to(DType::f64), got = rounded.to(Device::cuda());
      want.set_requires_grad(), got.set_requires_grad();
      here.run(c.options, want);
      there.run(c.options, got);
      EXPECT_EQ(got.grad().shape(), shape);
      // A number for a whole row changes no weight: its gradient is 0, up to what the operands' rounding leaves.
      if (shape[shape.size() - 1] == 1)
        EXPECT_LE(amax(abs(got.grad())).item(), 30 * tolerance) << "config " << i << ' ' << text_of(kind);
      else
        EXPECT_LE(difference(got.grad(), want.grad()), tolerance) << "config " << i << ' ' << text_of(kind);
      EXPECT_LE(difference(there.gq, here.gq), tolerance) << "config " << i << ' ' << text_of(kind);
    }
  }
}

TEST_P(CudaAttention, PackedHeadsGiveTheSameAsSeparateOnes) {
  const int64_t d = GetParam(), heads = 4, kv = 2, t = 150;
  manual_seed(1);
  AttentionOptions causal;
  causal.is_causal = true;
  const Tensor numbers = randn({2, t, (heads + 2 * kv) * d}), gy = randn({2, t, heads * d});
  Tensor here = numbers.to(DType::bf16).to(DType::f64), there = numbers.to(DType::bf16).to(Device::cuda());
  here.set_requires_grad();
  there.set_requires_grad();
  const Tensor a = packed_attention(here, heads, kv, causal), b = packed_attention(there, heads, kv, causal);
  a.backward(gy.to(DType::bf16).to(DType::f64));
  b.backward(gy.to(DType::bf16).to(Device::cuda()));
  EXPECT_LE(difference(b, a), 2e-2);
  EXPECT_LE(difference(there.grad(), here.grad()), 2e-2);
}

TEST_P(CudaAttention, GradientsAreTheSameBitsEveryTime) {
  AttentionOptions causal;
  causal.is_causal = true;
  const Config c{2, 4, 2, 300, 300, causal};
  Tensors a(c, GetParam()), b(c, GetParam());
  for (Tensors* t : {&a, &b}) {
    t->convert(DType::bf16, Device::cuda());
    t->run(causal);
  }
  EXPECT_EQ(a.gq.to_vector<float>(), b.gq.to_vector<float>());
  EXPECT_EQ(a.gk.to_vector<float>(), b.gk.to_vector<float>());
  EXPECT_EQ(a.gv.to_vector<float>(), b.gv.to_vector<float>());
}

// Lengths of queries and of keys, and rows behind the last sequence.
struct Lengths {
  std::vector<int64_t> q, k;
  int64_t q_more = 0, k_more = 0;
};
std::vector<int64_t> ends_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ends{0};
  for (int64_t n : lengths) ends.push_back(ends.back() + n);
  return ends;
}

TEST_P(CudaAttention, SequencesOfDifferentLengthsAgreeWithTheCpuInDouble) {
  const int64_t d = GetParam();
  AttentionOptions plain, causal, window, earlier, both_sides;
  causal.is_causal = true;
  window.is_causal = true;
  window.window = 21;
  both_sides.window = 13;
  both_sides.scale = 0.3;
  earlier.is_causal = true;
  earlier.query_offset = 3;
  const Lengths equal{{1, 200, 0, 129, 64, 3}, {1, 200, 0, 129, 64, 3}}, more{{131, 1, 260}, {131, 1, 260}, 40, 70};
  const Lengths differ{{0, 67, 1, 128, 5, 33}, {7, 131, 300, 0, 1, 90}};
  Lengths many;
  for (int64_t i = 0; i < 1300; ++i) many.q.push_back(i % 3), many.k.push_back(i % 4);
  struct VarlenConfig {
    const Lengths& lengths;
    int64_t heads, kv_heads;
    AttentionOptions options;
  };
  const VarlenConfig configs[] = {{equal, 2, 2, causal},     {differ, 4, 2, plain}, {differ, 2, 1, earlier},
                                  {equal, 4, 1, window},     {more, 2, 2, causal},  {more, 2, 2, plain},
                                  {equal, 2, 2, both_sides}, {many, 2, 1, causal}};
  for (size_t i = 0; i < std::size(configs); ++i) {
    const VarlenConfig& c = configs[i];
    const std::vector<int64_t> q_ends = ends_of(c.lengths.q), k_ends = ends_of(c.lengths.k);
    const int64_t tq = q_ends.back() + c.lengths.q_more, tk = k_ends.back() + c.lengths.k_more;
    for (const Kind& kind : kKinds) {
      const AllowTf32 allowed(kind.tf32);
      const DType dtype = kind.dtype;
      const double tolerance = kind.tolerance;
      manual_seed(i + 1);
      const Tensor q = randn({tq, c.heads, d}).to(dtype), kv = randn({tk, c.kv_heads, 2 * d}).to(dtype),
                   gy = randn({tq, c.heads, d}).to(dtype);
      const auto run = [&](DType type, Device device) {
        const auto leaf = [&](const Tensor& x) {
          Tensor t = x.to(type).to(device);
          t.set_requires_grad();
          return t;
        };
        const auto ends = [&](const std::vector<int64_t>& e) {
          return from_span<int64_t>(e, {static_cast<int64_t>(e.size())}).to(device);
        };
        const Tensor a = leaf(q), b = leaf(kv);
        const Tensor y =
            varlen_attention(a, b.narrow(2, 0, d), b.narrow(2, d, d), ends(q_ends), ends(k_ends), c.options);
        y.backward(gy.to(type).to(device));
        return std::array<Tensor, 3>{y, a.grad(), b.grad()};
      };
      const auto here = run(DType::f64, Device::cpu()), there = run(dtype, Device::cuda()),
                 again = run(dtype, Device::cuda());
      for (size_t n = 0; n < 3; ++n) {
        EXPECT_LE(difference(there[n], here[n]), tolerance)
            << "config " << i << " result " << n << ' ' << text_of(kind);
        EXPECT_EQ(there[n].detach().to_vector<float>(), again[n].detach().to_vector<float>())
            << "config " << i << " result " << n << ' ' << text_of(kind);
      }
    }
  }
}

// Lengths are read when a graph is replayed.
TEST_P(CudaAttention, CapturedSequencesTakeOtherLengths) {
  const int64_t d = GetParam();
  const DeviceScope on(Device::cuda());
  manual_seed(4);
  Tensor q = randn({300, 2, d}).to(DType::bf16);
  const Tensor gy = randn({300, 2, d}).to(DType::bf16);
  q.set_requires_grad();
  const auto ends_tensor = [](const std::vector<int64_t>& e) {
    return from_span<int64_t>(e, {static_cast<int64_t>(e.size())}).to(Device::cuda());
  };
  const Tensor ends = ends_tensor({0, 100, 180, 300});
  const auto run = [&](const Tensor& at) {
    const Tensor y = varlen_attention(q, q, q, at, at, {.is_causal = true});
    return std::pair(y, grad({y}, {q}, {gy})[0]);
  };
  run(ends);
  std::pair<Tensor, Tensor> captured;
  cuda::Graph graph;
  graph.capture([&] { captured = run(ends); });
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{0, 100, 180, 300}, {0, 0, 299, 300}, {0, 1, 2, 250}}) {
    const Tensor others = ends_tensor(lengths);
    copy_elements(ends, others);
    graph.replay();
    const auto want = run(others);
    EXPECT_EQ(captured.first.detach().to_vector<float>(), want.first.detach().to_vector<float>());
    EXPECT_EQ(captured.second.to_vector<float>(), want.second.to_vector<float>());
  }
}

// A sequence's values do not reach its neighbours, not even as 0 * infinity.
TEST_P(CudaAttention, SequencesDoNotTouchEachOther) {
  const int64_t d = GetParam();
  const std::vector<int64_t> ends{0, 50, 130, 200};
  manual_seed(3);
  const Tensor x = randn({200, 2, d}).to(DType::bf16), infinite = full({80, 2, d}, INFINITY).to(DType::bf16);
  const Tensor bad = cat({x.narrow(0, 0, 50), infinite, x.narrow(0, 130, 70)}, 0);
  const auto run = [&](const Tensor& from) {
    Tensor q = from.to(Device::cuda());
    q.set_requires_grad();
    const Tensor y = varlen_attention(q, q, q, ends, ends, {.is_causal = true});
    y.backward(from.to(Device::cuda()));
    return std::pair(y, q.grad());
  };
  const auto a = run(x), b = run(bad);
  for (const auto& [first, n] : {std::pair<int64_t, int64_t>(0, 50), {130, 70}}) {
    EXPECT_EQ(a.first.detach().narrow(0, first, n).to_vector<float>(),
              b.first.detach().narrow(0, first, n).to_vector<float>());
    EXPECT_EQ(a.second.narrow(0, first, n).to_vector<float>(), b.second.narrow(0, first, n).to_vector<float>());
  }
}

}  // namespace
}  // namespace strata
