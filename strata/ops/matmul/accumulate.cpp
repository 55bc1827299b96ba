// Gradients that are products go into what is there already, instead of into a tensor of their own that is then added.

#include <cstdlib>
#include <string_view>
#include <tuple>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/core/sharding.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/matmul_inl.h"
#include "strata/ops/matmul/matmul_kernels.h"
#include "strata/ops/matmul/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace products;

bool holds_sum_of(DType sum, DType in) {
  return sum == in || (sum == DType::f32 && is_reduced_floating(in));
}

// Of [.., m, k] and [.., k, n], without broadcasting.
Shape product_shape(const Tensor& a, const Tensor& b) {
  Shape s = a.shape();
  s[s.size() - 1] = b.shape().back();
  return s;
}
bool same_batch(const Tensor& a, const Tensor& b) {
  if (a.dim() != b.dim() || a.dim() < 2) return false;
  for (int64_t d = 0; d + 2 < a.dim(); ++d)
    if (a.shape()[d] != b.shape()[d]) return false;
  return true;
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> matmul_add_op{{
    .schema = "matmul_add(Tensor sum, Tensor a, Tensor b) -> Tensor",
    .shard = "+ m n, m k, k n -> m n",
    .internal = true,
    .doc =
        "sum + a b for a [.., m, k], b [.., k, n] and sum [.., m, n], without broadcasting; sum has the dtype of a and "
        "b, or is f32 where they are bf16 or f16. In place it is one pass over sum, within the product.",
    .infer =
        [](const Tensor& sum, const Tensor& a, const Tensor& b) {
          check_dtypes("matmul_add", a, b);
          check<DTypeError>(holds_sum_of(sum.dtype(), a.dtype()), "matmul_add", "sum is ", sum, ", wants ", a.dtype(),
                            " or the f32 of their products");
          check<ShapeError>(same_batch(a, b) && a.shape().back() == b.shape()[b.dim() - 2], "matmul_add", "a is ", a,
                            " and b is ", b, ", wants [.., m, k] and [.., k, n]");
          check<ShapeError>(sum.shape() == product_shape(a, b), "matmul_add", "sum is ", sum, ", the product ",
                            product_shape(a, b));
          return like(sum);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& sum, const Tensor& a, const Tensor& b) {
      if (!y.same_as(sum)) y.copy_(sum);
      Gemm g = product(y, a, b);
      g.beta = 1;
      run(on, g, y);
    }),
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor&, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, bw.gy());
          const Tensor gy = bw.gy().to(a.dtype());
          if (bw.needs(1)) bw.set(1, matmul(gy, transpose(b, -2, -1)));
          if (bw.needs(2)) bw.set(2, matmul(transpose(a, -2, -1), gy));
        },
    .inplace = true,
    .dtypes = kFloats,
    .cost =
        [](const Tensor& sum, const Tensor& a, const Tensor& b) {
          Cost c = matmul_cost(a, b);
          c.bytes = static_cast<double>(a.nbytes() + b.nbytes() + 2 * sum.nbytes());
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({2, 4, 5}), s.tensor({2, 4, 3}), transpose(s.tensor({2, 5, 3}), 1, 2)).named("batch");
          s.add(s.tensor({5, 4}).t(), s.tensor({3, 4}).t(), s.tensor({3, 5})).named("transposed");
          s.add(s.tensor({4, 5}), s.tensor({4, 0}), s.tensor({0, 5})).named("empty sum");
          s.add(s.tensor({0, 5}), s.tensor({0, 3}), s.tensor({3, 5})).named("no rows");
          s.add(s.tensor({40, 50}), s.tensor({40, 70}), s.tensor({70, 50})).named("medium");
          s.invalid<ShapeError>("the product", s.tensor({4, 1}), s.tensor({4, 3}), s.tensor({3, 5}));
          s.invalid<ShapeError>("wants [.., m, k]", s.tensor({4, 5}), s.tensor({4, 3}), s.tensor({2, 5}));
          s.invalid<DTypeError>("sum is", s.tensor({2, 2}, DType::f64), s.tensor({2, 2}, DType::f32),
                                s.tensor({2, 2}, DType::f32));
          if (s.benchmarking()) s.bench(s.tensor({1024, 256}), s.tensor({2048, 1024}).t(), s.tensor({2048, 256}));
        },
    .reference = [](const Tensor& sum, const Tensor& a,
                    const Tensor& b) { return combined_reference(sum, matmul_reference(a, b), 1, 1); },
}};

// STRATA_BIAS_SUMS=within at the start of the program: a card's library sums the bias's gradient while the weight's
// reads the same rows, where it can.
bool sums_within() {
  static const bool within = [] {
    const char* const s = std::getenv("STRATA_BIAS_SUMS");
    return s != nullptr && std::string_view(s) == "within";
  }();
  return within;
}

using Pair = std::tuple<Tensor, Tensor>;

// Where the columns of x are cut, the weight's are; every rank sums all of gy.
void shard_gradients(Sharding& s) {
  detail::apply_rule("r o, r i! -> o i!, o", s);
  std::vector<Placement> ways;
  s.ways(ways, 1, 1, s.args[1].shape[1]);
  for (Placement way : ways) {
    way.dim = 1;
    Sharding::Possibility p = s.whole();
    p.args[1] = p.results[0] = way;
    s.add(std::move(p));
  }
}

const Op<Pair(const Tensor&, const Tensor&, bool)> linear_gradients_op{{
    .schema = "linear_gradients(Tensor gy, Tensor x, bool wide=false) -> (Tensor gweight, Tensor gbias)",
    .shard = shard_gradients,
    .internal = true,
    .doc =
        "The gradients of a linear layer's weight [out, in] and bias [out] from the rows gy [rows, out] and x [rows, "
        "in]: gy^T x, with `wide` in f32 where they are bf16 or f16, and the sums of gy's columns.",
    .infer =
        [](const Tensor& gy, const Tensor& x, bool wide) {
          check_rank("linear_gradients", gy, "gy", 2);
          check_rank("linear_gradients", x, "x", 2);
          check_dtypes("linear_gradients", gy, x);
          check<DTypeError>(is_floating(gy.dtype()), "linear_gradients", "needs floating rows, got ", gy);
          check<ShapeError>(gy.shape()[0] == x.shape()[0], "linear_gradients", "gy is ", gy, ", x is ", x);
          const TensorMeta w = like(gy).with_shape({gy.shape()[1], x.shape()[1]});
          return std::array<TensorMeta, 2>{wide ? w.with_dtype(statistic_dtype(gy.dtype())) : w,
                                           like(gy).with_shape({gy.shape()[1]})};
        },
    .kernels = on_each_device([](auto on, Tensor& gw, Tensor& gb, const Tensor& gy, const Tensor& x, bool) {
      const Gemm g = product(gw, gy.t(), x);
      if constexpr (on.cuda) {
        const Tensor sums = gw.dtype() == gb.dtype() ? gb : empty(like(gb).with_dtype(gw.dtype()));
        if (sums_within() && cuda::gemm_with_sums(g, sums.raw_data(), gw.device())) {
          if (!sums.same_as(gb)) gb.copy_(sums);
          return;
        }
      }
      run(on, g, gw);
      gb.copy_(sum(gy, {0}));
    }),
    .composed =
        [](const Tensor& gy, const Tensor& x, bool wide) {
          const bool f32 = wide && is_reduced_floating(gy.dtype());
          return Pair(f32 ? matmul_f32(gy.t(), x) : matmul(gy.t(), x), sum(gy, {0}));
        },
    .dtypes = kFloats,
    .cost =
        [](const Tensor& gy, const Tensor& x, bool wide) {
          Cost c = matmul_cost(gy.t(), x);
          if (wide) c.bytes += 2.0 * static_cast<double>(gy.shape()[1] * x.shape()[1]);
          c.bytes += static_cast<double>(gy.nbytes());
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7, 5}), s.tensor({7, 3}));
          s.add(s.tensor({64, 96}), s.tensor({64, 32}), true).named("wide");
          s.add(s.tensor({5, 7}).t(), s.tensor({7, 6})).named("strided");
          s.add(s.tensor({0, 4}), s.tensor({0, 3})).named("no rows");
          s.invalid<ShapeError>("x is", s.tensor({4, 5}), s.tensor({3, 5}));
          if (s.benchmarking()) s.bench(s.tensor({8192, 2048}), s.tensor({8192, 512}), true);
        },
    .reference =
        [](const Tensor& gy, const Tensor& x, bool) {
          const std::vector<double> v = gy.to_vector<double>();
          std::vector<double> sums(static_cast<size_t>(gy.shape()[1]));
          for (size_t i = 0; i < v.size(); ++i) sums[i % sums.size()] += v[i];
          return Pair(matmul_reference(gy.t(), x), from_span<double>(sums, {gy.shape()[1]}));
        },
}};

}  // namespace

void set_layer_gradients(Backward& bw, const Tensor& gy, const Tensor& x) {
  if (bw.needs(1) && bw.needs(2) && bw.gathered(1) == nullptr) {
    auto [weight, bias] = linear_gradients_op(gy, x, bw.takes_f32(1) && !grad_enabled());
    bw.set(1, std::move(weight));
    bw.set(2, std::move(bias));
    return;
  }
  if (bw.needs(1)) set_weight_gradient(bw, 1, gy, x);
  if (bw.needs(2)) bw.set(2, gy.sum({0}));
}

void set_product_gradient(Backward& bw, int i, const Tensor& a, const Tensor& b, const Shape& shape) {
  const bool to_cast = bw.takes_f32(i) && !grad_enabled();
  const bool wide = to_cast && is_reduced_floating(a.dtype());
  if (same_batch(a, b)) {
    // A cast's sum is f32: what came in 16 bits is widened by the engine, not added to in place.
    Tensor* const sum = bw.gathered(i);
    if (sum != nullptr && sum->shape() == shape && sum->device() == a.device() &&
        holds_sum_of(sum->dtype(), a.dtype()) && !(wide && sum->dtype() != DType::f32)) {
      Tensor into = sum->view(product_shape(a, b));
      matmul_add_op.inplace(into, a, b);
      return;
    }
  }
  // Of a column and a row on the CPU, each number is one product: elementwise kernels write large results past the
  // caches.
  const bool outer = a.dim() == 2 && b.dim() == 2 && a.size(1) == 1 && a.device().is_cpu() && !wide;
  bw.set(i, reshape(outer ? a * b : wide ? matmul_f32(a, b) : matmul(a, b), shape));
}

void set_weight_gradient(Backward& bw, int i, const Tensor& gy, const Tensor& x) {
  set_product_gradient(bw, i, gy.t(), x, {gy.shape()[1], x.shape()[1]});
}

}  // namespace strata
