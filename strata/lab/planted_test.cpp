// Wrong kernels planted into real ops: each gives results as plausible as the right ones, and gradients that belong to
// what it computes. Nothing but the comparison with a reference of another make can tell.

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/op_base.h"
#include "strata/core/samples.h"
#include "strata/lab/compare.h"
#include "strata/lab/verify.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/distributions/distributions.h"
#include "strata/ops/distributions/distributions_reference_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;

/// What is wrong: the arguments that the kernel sees, its results, or both. Written with ops that have gradients.
struct Fault {
  const char* op;
  const char* what;
  std::function<void(Args&)> arguments;
  std::function<Tensor(const Tensor&)> results;
};

/// The record of an op, with the fault in its calls. It has no in-place form, and is no view.
class Planted final : public OpBase {
 public:
  Planted(const OpBase& op, const Fault& fault)
      : OpBase(op.schema_text(), op.doc(), "", op.file().data(), false), op_(op), fault_(fault) {
    policies_.autocast = op.autocast();
    policies_.adapt = op.adapt();
    policies_.dtypes = op.dtypes();
    policies_.tolerance = op.tolerance();
    policies_.tolerance_reason = op.tolerance_reason();
  }
  bool is_view() const override { return false; }
  bool is_dynamic() const override { return op_.is_dynamic(); }
  bool is_composed() const override { return op_.is_composed(); }
  bool has_kernel(DeviceType device) const override { return op_.has_kernel(device); }
  bool has_backward() const override { return op_.has_backward(); }
  bool has_reference() const override { return op_.has_reference(); }
  bool has_composed() const override { return op_.has_composed(); }
  bool can_inplace() const override { return false; }
  Args call_boxed(std::span<const Value> args) const override {
    Args given(args.begin(), args.end());
    const auto& schema = op_.schema().args;
    for (size_t i = given.size(); i < schema.size(); ++i)
      given.push_back(schema[i].default_value.value_or(std::monostate()));
    if (fault_.arguments) fault_.arguments(given);
    Args results = op_.call_boxed(given);
    if (fault_.results)
      if (Tensor* y = std::get_if<Tensor>(&results[0])) *y = fault_.results(*y);
    return results;
  }
  Args inplace_boxed(std::span<const Value>) const override { return {}; }
  Args reference_boxed(std::span<const Value> args) const override { return op_.reference_boxed(args); }
  Cost cost_boxed(std::span<const Value> args) const override { return op_.cost_boxed(args); }
  void samples(Samples& s) const override { op_.samples(s); }
  bool has_samples() const override { return op_.has_samples(); }

 private:
  const OpBase& op_;
  const Fault& fault_;
};

// ---- faults

Tensor& tensor(Args& a, size_t i) {
  return std::get<Tensor>(a[i]);
}
int64_t& integer(Args& a, size_t i) {
  return std::get<int64_t>(a[i]);
}
/// Argument i, a number, one more (but for the largest, which samples have too).
std::function<void(Args&)> one_more(size_t i) {
  return [=](Args& a) {
    if (integer(a, i) < std::numeric_limits<int64_t>::max()) ++integer(a, i);
  };
}
/// The dimension that argument i names swapped for the one before it; one that does not exist stays.
std::function<void(Args&)> other_dim(size_t i) {
  return [=](Args& a) {
    const int64_t rank = std::max<int64_t>(1, tensor(a, 0).dim());
    if (integer(a, i) >= -rank && integer(a, i) < rank) integer(a, i) = (integer(a, i) + 2 * rank - 1) % rank;
  };
}
/// Argument i, an index into dimension d of x, shifted by one.
std::function<void(Args&)> shifted_index(size_t i, int64_t d) {
  return [=](Args& a) {
    if (tensor(a, 0).numel() > 0) tensor(a, i) = remainder(tensor(a, i) + 1, tensor(a, 0).size(d));
  };
}
std::function<void(Args&)> toggled(size_t i) {
  return [=](Args& a) { std::get<bool>(a[i]) = !std::get<bool>(a[i]); };
}
Tensor slightly_larger(const Tensor& y) {
  return is_floating(y.dtype()) ? y * 1.001 : y + 1;
}
Tensor shifted(const Tensor& y) {
  return y.dim() == 0 ? y : roll(y, {1}, {y.dim() - 1});
}
Tensor not_transposed(const Tensor& y) {
  return y.dim() < 2 ? y : reshape(transpose(y, -1, -2), y.shape());
}

const Fault kFaults[] = {
    // elementwise, special
    {"asinh", "the identity", nullptr, [](const Tensor& y) { return sinh(y); }},
    {"sigmoid", "a steeper slope", [](Args& a) { tensor(a, 0) = tensor(a, 0) * 1.01; }, nullptr},
    {"lgamma", "of the neighbour", nullptr, shifted},
    // reductions and scans
    {"sum", "a constant factor", nullptr, slightly_larger},
    {"mean", "a constant factor", nullptr, slightly_larger},
    {"var", "one degree of freedom fewer", [](Args& a) { std::get<double>(a[2]) += 1; }, nullptr},
    {"logsumexp", "a constant summand", nullptr, [](const Tensor& y) { return y + 0.01; }},
    {"cumsum", "the other dimension", other_dim(1), nullptr},
    {"cumsum", "from the other end", toggled(2), nullptr},
    // views
    {"transpose", "the elements in their old order", nullptr, not_transposed},
    {"permute", "two dimensions swapped back", nullptr, not_transposed},
    {"slice", "a shifted index", nullptr, shifted},
    {"diagonal", "from the other end", nullptr, [](const Tensor& y) { return flip(y, {-1}); }},
    {"unfold", "windows read backwards", nullptr, [](const Tensor& y) { return flip(y, {-1}); }},
    // shape
    {"roll", "to the other side",
     [](Args& a) {
       for (int64_t& n : std::get<Dims>(a[1]))
         if (n != std::numeric_limits<int64_t>::min()) n = -n;
     },
     nullptr},
    {"tril", "one diagonal further", one_more(1), nullptr},
    {"repeat_interleave", "as repeat does", nullptr, shifted},
    {"cat", "the last two elements exchanged", nullptr, shifted},
    // index
    {"index_select", "a shifted index",
     [](Args& a) {
       if (tensor(a, 0).dim() > 0 && tensor(a, 0).numel() > 0)
         tensor(a, 2) = remainder(tensor(a, 2) + 1, tensor(a, 0).size(integer(a, 1)));
     },
     nullptr},
    {"embedding", "a shifted index", shifted_index(1, 0), nullptr},
    // products, convolutions, pools
    {"matmul", "one operand shifted along the sum", [](Args& a) { tensor(a, 0) = shifted(tensor(a, 0)); }, nullptr},
    {"conv2d", "the kernel flipped",
     [](Args& a) {
       if (tensor(a, 1).dim() == 4) tensor(a, 1) = flip(tensor(a, 1), {-1});
     },
     nullptr},
    {"conv_transpose1d", "the kernel flipped", [](Args& a) { tensor(a, 1) = flip(tensor(a, 1), {-1}); }, nullptr},
    {"avg_pool2d", "a constant factor", nullptr, slightly_larger},
    {"max_pool1d", "the window beside it", nullptr, shifted},
    {"interpolate", "another scale", nullptr, slightly_larger},
    // norms, softmax, losses
    {"layer_norm", "a constant factor", nullptr, slightly_larger},
    {"softmax", "the other dimension", other_dim(1), nullptr},
    {"mse_loss", "a half in front", nullptr, [](const Tensor& y) { return y * 0.5; }},
    {"ctc_loss", "a constant summand", nullptr, [](const Tensor& y) { return y + 0.01; }},
    // linear algebra, sorting, statistics
    {"linalg_cholesky", "the transpose", nullptr, [](const Tensor& y) { return transpose(y, -1, -2); }},
    {"sort", "the other order", toggled(2), nullptr},
    // made from numbers, and drawn
    {"linspace", "without the end", nullptr, [](const Tensor& y) { return y * 0.9; }},
    {"uniform", "counted from the other end", nullptr, shifted},
    {"bernoulli", "the opposite", nullptr, [](const Tensor& y) { return 1 - y; }},
};

class PlantedFault : public ::testing::TestWithParam<size_t> {};

TEST_P(PlantedFault, IsSeenByTheReferenceAlone) {
  const Fault& fault = kFaults[GetParam()];
  const OpBase* op = OpBase::find(fault.op);
  ASSERT_NE(op, nullptr) << fault.op;
  VerifyOptions few;
  few.dtypes = dtype_bit(DType::f64) | dtype_bit(DType::f32);
  const OpReport sound = verify(*op, few);
  EXPECT_TRUE(sound.ok()) << table({sound});
  // Records live as long as the program, and so does what they keep.
  static auto* planted = new std::vector<std::unique_ptr<Planted>>;
  const OpReport r = verify(*planted->emplace_back(std::make_unique<Planted>(*op, fault)), few);
  EXPECT_GT(r.failed[static_cast<size_t>(Check::forward)], 0) << fault.op << ": " << fault.what << "\n" << table({r});
  for (const Check consistent : {Check::gradient, Check::second, Check::meta, Check::memory})
    EXPECT_EQ(r.failed[static_cast<size_t>(consistent)], 0) << fault.op << ": " << fault.what << "\n" << table({r});
}

INSTANTIATE_TEST_SUITE_P(Verify, PlantedFault, ::testing::Range(size_t{0}, std::size(kFaults)),
                         [](const auto& info) { return std::to_string(info.param) + "_" + kFaults[info.param].op; });

// A sampler's reference takes its numbers as they come, and tests what they follow.
TEST(PlantedSampler, IsSeenByItsDistribution) {
  const Tensor rate = full({5}, 4.0, DType::f64);
  const auto follows = [&](double truth) {
    by_distribution::tested(
        rate, "poisson",
        [&](const Shape& s) {
          Generator g(7);
          return poisson(expand(rate, s), g);
        },
        [&](double k, size_t, double part) {
          return by_distribution::whole_below(k, part, [&](double j) { return by_distribution::poisson_of(truth, j); });
        });
  };
  EXPECT_NO_THROW(follows(4.0));
  EXPECT_THROW(follows(4.3), ValueError);
  EXPECT_THROW(follows(3.7), ValueError);
}

}  // namespace
}  // namespace strata::lab
