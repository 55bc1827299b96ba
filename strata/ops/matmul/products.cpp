#include "strata/ops/matmul/products.h"

#include <cmath>

#include "strata/core/layout.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace products;

constexpr DTypeSet kNumbers = kFloats | kInts;
using ScaledOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar)>;

void check_broadcast(std::string_view op, const Tensor& input, const Shape& s) {
  check<ShapeError>(input.dim() <= s.size() && broadcast_shapes(input.shape(), s, op) == s, op, "input ", input,
                    " does not broadcast to the product's ", s);
}

// ---- a product and what is added to it -----------------------------------------------------------------------------

Tensor vector_product(const Tensor& input, const Tensor& mat, const Tensor& vec, Scalar beta, Scalar alpha) {
  check_rank("addmv", mat, "mat", 2);
  check_rank("addmv", vec, "vec", 1);
  check_dtypes("addmv", mat, vec);
  check_dtypes("addmv", input, mat);
  check_factors("addmv", mat, beta, alpha);
  check<ShapeError>(mat.shape()[1] == vec.shape()[0], "addmv", "inner sizes differ: mat is ", mat, ", vec is ", vec);
  check_broadcast("addmv", input, {mat.shape()[0]});
  // A number is no row of the product's one column.
  const Tensor column = input.dim() == 0 ? expand(input, {mat.shape()[0]}) : input;
  return squeeze(addmm(unsqueeze(column, -1), mat, unsqueeze(vec, 1), beta, alpha), 1);
}

const ScaledOp addmv_op{{
    .schema = "addmv(Tensor input, Tensor mat, Tensor vec, Scalar beta=1, Scalar alpha=1) -> Tensor",
    .inplace_by_copy = true,
    .doc =
        "beta * input + alpha * mat vec for mat [m, k] and vec [k]; input broadcasts to [m] and, with beta 0, is not "
        "read. Integers take integer factors.",
    .example = "assert(addmv(ones({2}), ones({2, 3}), ones({3}))[0].item() == 4);",
    .composed = vector_product,
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = [](const Tensor&, const Tensor& a, const Tensor& b, Scalar, Scalar) { return matmul_cost(a, b); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4}), s.tensor({4, 3}), s.tensor({3}));
          s.add(s.tensor({1}), s.tensor({4, 3}), s.tensor({3}), 2, -3).named("broadcast, scaled");
          s.add(s.tensor({}), s.tensor({4, 3}), s.tensor({3})).named("0-dim");
          s.add(s.tensor({4}), s.tensor({4, 0}), s.tensor({0})).named("empty sum");
          if (is_floating(s.dtype()))
            s.add(full({4}, std::nan(""), s.dtype()), s.tensor({4, 3}), s.tensor({3}), 0)
                .named("beta 0")
                .not_differentiable();
          s.invalid<ShapeError>("inner sizes", s.tensor({4}), s.tensor({4, 3}), s.tensor({4}));
          s.invalid<ShapeError>("broadcast", s.tensor({3}), s.tensor({4, 3}), s.tensor({3}));
          s.invalid<ShapeError>("needs 1 dimension", s.tensor({4}), s.tensor({4, 3}), s.tensor({3, 1}));
          if (!is_floating(s.dtype()))
            s.invalid<DTypeError>("alpha is 1.5", s.tensor({2}), s.tensor({2, 2}), s.tensor({2}), 1, 1.5);
        },
    .reference = [](const Tensor& input, const Tensor& mat, const Tensor& vec, Scalar beta,
                    Scalar alpha) { return combined_reference(input, matmul_reference(mat, vec), beta, alpha); },
}};

TensorMeta addr_infer(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  check_rank("addr", a, "vec1", 1);
  check_rank("addr", b, "vec2", 1);
  check_dtypes("addr", a, b);
  check_dtypes("addr", input, a);
  check_factors("addr", a, beta, alpha);
  const Shape s{a.shape()[0], b.shape()[0]};
  check_broadcast("addr", input, s);
  return input.shape() == s ? laid_like(input) : like(a).with_shape(s);
}

template <class On>
void addr_kernel(On on, Tensor& y, const Tensor& input, const Tensor& vec1, const Tensor& vec2, Scalar beta,
                 Scalar alpha) {
  const Tensor column = expand(unsqueeze(vec1, 1), y.shape()), row = expand(unsqueeze(vec2, 0), y.shape());
  const auto times = [&](const Tensor& x, Scalar factor) {  // into y
    if (is_floating(y.dtype())) return map(on, Map::mul_scalar, y, {&x}, {{factor}});
    const DeviceScope there(y.device());
    const Tensor everywhere = expand(full({}, factor, y.dtype()), y.shape());
    map(on, Map::mul, y, {&x, &everywhere});
  };
  if (beta.to_double() == 0) {
    map(on, Map::mul, y, {&column, &row});
    if (alpha.to_double() != 1) times(y, alpha);
    return;
  }
  const Tensor x = expand(input, y.shape());
  if (beta.to_double() == 1) return map(on, Map::addcmul, y, {&x, &column, &row}, {{alpha}});
  times(x, beta);
  map(on, Map::addcmul, y, {&y, &column, &row}, {{alpha}});
}

const ScaledOp addr_op{{
    .schema = "addr(Tensor input, Tensor vec1, Tensor vec2, Scalar beta=1, Scalar alpha=1) -> Tensor",
    .shard = "~ m n, m, n -> m n",
    .inplace_by_copy = true,
    .doc =
        "beta * input + alpha * vec1 vec2^T for vec1 [m] and vec2 [n]; input broadcasts to [m, n] and, with beta 0, is "
        "not read. Integers take integer factors.",
    .example = "assert(addr(ones({2, 2}), ones({2}), ones({2}))[0][0].item() == 2);",
    .infer = addr_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { addr_kernel(on, all...); }),
    .composed = [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta,
                   Scalar alpha) { return addmm(input, unsqueeze(a, 1), unsqueeze(b, 0), beta, alpha); },
    .saves = "vec1:vec2 vec2:vec1",
    .backward =
        [](Backward& bw, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
          if (bw.needs(0)) bw.set(0, scaled(sum_to(bw.gy(), input.shape()), beta));
          if (bw.needs(1)) bw.set(1, scaled(mv(bw.gy(), b), alpha));
          if (bw.needs(2)) bw.set(2, scaled(mv(bw.gy().t(), a), alpha));
        },
    .autocast = Autocast::promote,
    .dtypes = kNumbers,
    .cost =
        [](const Tensor&, const Tensor& a, const Tensor& b, Scalar, Scalar) {
          const auto n = static_cast<double>(a.numel() * b.numel());
          return Cost{2 * n, 2 * n * static_cast<double>(size_of(a.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({4}), s.tensor({3}));
          s.add(s.tensor({3}), s.tensor({4}), s.tensor({3}), 2, -3).named("broadcast, scaled");
          s.add(s.tensor({9, 21}).t(), s.tensor({21}), s.tensor({9}), 1, 2).named("transposed");
          s.add(s.tensor({3, 4}).t(), s.tensor({4}), s.tensor({3}), 2, 3).named("transposed, scaled");
          s.add(s.tensor({0, 3}), s.tensor({0}), s.tensor({3})).named("empty");
          if (is_floating(s.dtype()))
            s.add(full({4, 3}, std::nan(""), s.dtype()), s.tensor({4}), s.tensor({3}), 0)
                .named("beta 0")
                .not_differentiable();
          s.invalid<ShapeError>("needs 1 dimension", s.tensor({4, 3}), s.tensor({4, 1}), s.tensor({3}));
          s.invalid<ShapeError>("broadcast", s.tensor({4}), s.tensor({4}), s.tensor({3}));
          if (!is_floating(s.dtype()))
            s.invalid<DTypeError>("beta is 0.5", s.tensor({2, 2}), s.tensor({2}), s.tensor({2}), 0.5);
        },
    .reference =
        [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
          return combined_reference(input, matmul_reference(a.unsqueeze(1), b.unsqueeze(0)), beta, alpha);
        },
}};

void check_batches(std::string_view op, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta,
                   Scalar alpha) {
  check_rank(op, a, "batch1", 3);
  check_rank(op, b, "batch2", 3);
  check_dtypes(op, a, b);
  check_dtypes(op, input, a);
  check_factors(op, a, beta, alpha);
  check<ShapeError>(a.shape()[0] == b.shape()[0], op, "batch sizes differ: batch1 is ", a, ", batch2 is ", b);
  check<ShapeError>(a.shape()[2] == b.shape()[1], op, "inner sizes differ: batch1 is ", a, ", batch2 is ", b);
}

void add_batches(Samples& s, bool summed) {
  const auto input = [&](int64_t m, int64_t n) { return summed ? s.tensor({m, n}) : s.tensor({2, m, n}); };
  s.add(input(4, 5), s.tensor({2, 4, 3}), s.tensor({2, 3, 5}));
  s.add(s.tensor({5}), s.tensor({2, 4, 3}), s.tensor({2, 3, 5}), 2, -3).named("broadcast, scaled");
  s.add(input(4, 5), s.tensor({2, 4, 0}), s.tensor({2, 0, 5})).named("empty sum");
  if (is_floating(s.dtype()))
    s.add(full(input(4, 5).shape(), std::nan(""), s.dtype()), s.tensor({2, 4, 3}), s.tensor({2, 3, 5}), 0, 2)
        .named("beta 0")
        .not_differentiable();
  s.invalid<ShapeError>("batch sizes", input(4, 5), s.tensor({1, 4, 3}), s.tensor({2, 3, 5}));
  s.invalid<ShapeError>("inner sizes", input(4, 5), s.tensor({2, 4, 3}), s.tensor({2, 4, 5}));
  s.invalid<ShapeError>("broadcast", s.tensor({3}), s.tensor({2, 4, 3}), s.tensor({2, 3, 5}));
  if (!is_floating(s.dtype()))
    s.invalid<DTypeError>("beta is 0.5", input(2, 2), s.tensor({2, 2, 2}), s.tensor({2, 2, 2}), 0.5);
}

const ScaledOp addbmm_op{{
    .schema = "addbmm(Tensor input, Tensor batch1, Tensor batch2, Scalar beta=1, Scalar alpha=1) -> Tensor",
    .inplace_by_copy = true,
    .doc = "beta * input + alpha * the sum of batch1[i] batch2[i] for batch1 [b, m, k] and batch2 [b, k, n]: one "
           "product of "
           "[m, b k] and [b k, n]. input broadcasts to [m, n] and, with beta 0, is not read. Integers take integer "
           "factors.",
    .example = "assert(addbmm(zeros({2, 2}), ones({3, 2, 4}), ones({3, 4, 2}))[0][0].item() == 12);",
    .composed =
        [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
          check_batches("addbmm", input, a, b, beta, alpha);
          const int64_t batch = a.shape()[0], m = a.shape()[1], k = a.shape()[2], n = b.shape()[2];
          check_broadcast("addbmm", input, {m, n});
          return addmm(input, reshape(permute(a, {1, 0, 2}), {m, batch * k}), reshape(b, {batch * k, n}), beta, alpha);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = [](const Tensor&, const Tensor& a, const Tensor& b, Scalar, Scalar) { return matmul_cost(a, b); },
    .samples = [](Samples& s) { add_batches(s, true); },
    .reference =
        [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
          const Tensor all = matmul_reference(a, b);
          const int64_t size = all.shape()[1] * all.shape()[2];
          const Tensor y = empty({{all.shape()[1], all.shape()[2]}, DType::f64, Device::cpu(), std::nullopt}).zero_();
          for (int64_t i = 0; i < all.numel(); ++i) y.data<double>()[i % size] += all.data<double>()[i];
          return combined_reference(input, y, beta, alpha);
        },
}};

const ScaledOp baddbmm_op{{
    .schema = "baddbmm(Tensor input, Tensor batch1, Tensor batch2, Scalar beta=1, Scalar alpha=1) -> Tensor",
    .inplace_by_copy = true,
    .doc = "beta * input + alpha * batch1 batch2, matrix by matrix, for batch1 [b, m, k] and batch2 [b, k, n]; input "
           "broadcasts to [b, m, n] and, with beta 0, is not read. Integers take integer factors.",
    .example = "assert(baddbmm(ones({3, 2, 2}), ones({3, 2, 4}), ones({3, 4, 2}))[0][0][0].item() == 5);",
    .composed =
        [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
          check_batches("baddbmm", input, a, b, beta, alpha);
          check_broadcast("baddbmm", input, {a.shape()[0], a.shape()[1], b.shape()[2]});
          const Tensor product = matmul(a, b), y = alpha.to_double() == 1 ? product : product * alpha;
          if (beta.to_double() == 0) return y;
          return y + (beta.to_double() == 1 ? input : input * beta).to(y.dtype());
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = [](const Tensor&, const Tensor& a, const Tensor& b, Scalar, Scalar) { return matmul_cost(a, b); },
    .samples = [](Samples& s) { add_batches(s, false); },
    .reference = [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta,
                    Scalar alpha) { return combined_reference(input, matmul_reference(a, b), beta, alpha); },
    .tolerance = 4,
    .tolerance_reason = "the product is rounded before input is added",
}};

// ---- sums over chosen dimensions -----------------------------------------------------------------------------------

Tensor contract(std::string_view op, const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
  check_dtypes(op, a, b);
  check<ShapeError>(dims_a.size() == dims_b.size(), op, "dims ", dims_a, " of a and ", dims_b,
                    " of b differ in number");
  Dims left, right, order_a, order_b, result;
  for (int64_t i = 0; i < dims_a.size(); ++i) {
    left.push_back(wrap_dim(dims_a[i], a.dim(), op));
    right.push_back(wrap_dim(dims_b[i], b.dim(), op));
    // As in PyTorch a size of 1 meets any other: the other's elements are summed.
    if (a.dim() > 0 && b.dim() > 0 && a.shape()[left[i]] != b.shape()[right[i]]) {
      if (b.shape()[right[i]] == 1) return contract(op, sum(a, {left[i]}, true).to(a.dtype()), b, dims_a, dims_b);
      if (a.shape()[left[i]] == 1) return contract(op, a, sum(b, {right[i]}, true).to(b.dtype()), dims_a, dims_b);
    }
    check<ShapeError>(a.dim() > 0 && b.dim() > 0 && a.shape()[left[i]] == b.shape()[right[i]], op, "a is ", a,
                      ", b is ", b, ": sizes differ along dims ", dims_a[i], " and ", dims_b[i]);
    for (int64_t j = 0; j < i; ++j)
      check<ShapeError>(left[i] != left[j] && right[i] != right[j], op, "a dim appears twice in ", dims_a, " or ",
                        dims_b);
  }
  int64_t m = 1, n = 1, k = 1;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (left.contains(d)) continue;
    order_a.push_back(d);
    result.push_back(a.shape()[d]);
    m *= a.shape()[d];
  }
  for (const int64_t d : left) order_a.push_back(d), k *= a.shape()[d];
  for (const int64_t d : right) order_b.push_back(d);
  for (int64_t d = 0; d < b.dim(); ++d) {
    if (right.contains(d)) continue;
    order_b.push_back(d);
    result.push_back(b.shape()[d]);
    n *= b.shape()[d];
  }
  const Tensor rows = permute(a, order_a), columns = permute(b, order_b);
  // One number: gradients are then multiples of a and b, and no products of matrices.
  if (result.empty()) return dot(reshape(rows, {k}), reshape(columns, {k}));
  return reshape(matmul(reshape(rows, {m, k}), reshape(columns, {k, n})), result);
}

// Every pair of elements whose indices agree in the dimensions that are summed.
Tensor contract_reference(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  const auto indices = [](int64_t i, const Shape& s) {
    Dims r = Dims::filled(s.size(), 0);
    for (int64_t d = s.size() - 1; d >= 0; --d) r[d] = i % s[d], i /= s[d];
    return r;
  };
  const auto summed = [](const Dims& dims, int64_t d, int64_t rank) {
    return dims.contains(d) || dims.contains(d - rank);
  };
  Shape result;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (!summed(dims_a, d, a.dim())) result.push_back(a.shape()[d]);
  for (int64_t d = 0; d < b.dim(); ++d)
    if (!summed(dims_b, d, b.dim())) result.push_back(b.shape()[d]);
  std::vector<double> sums(static_cast<size_t>(result.product()), 0.0);
  check<ShapeError>(x.size() * y.size() < 2000000, "reference", "too many pairs");
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const Dims p = indices(i, a.shape());
    for (int64_t j = 0; j < static_cast<int64_t>(y.size()); ++j) {
      const Dims q = indices(j, b.shape());
      bool same = true;
      for (int64_t d = 0; d < dims_a.size(); ++d) {
        const int64_t l = (dims_a[d] + a.dim()) % a.dim(), r = (dims_b[d] + b.dim()) % b.dim();
        same = same && (a.shape()[l] == 1 || b.shape()[r] == 1 || p[l] == q[r]);
      }
      if (!same) continue;
      int64_t at = 0;
      for (int64_t d = 0; d < a.dim(); ++d)
        if (!summed(dims_a, d, a.dim())) at = at * a.shape()[d] + p[d];
      for (int64_t d = 0; d < b.dim(); ++d)
        if (!summed(dims_b, d, b.dim())) at = at * b.shape()[d] + q[d];
      sums[static_cast<size_t>(at)] += x[static_cast<size_t>(i)] * y[static_cast<size_t>(j)];
    }
  }
  return from_span<double>(sums, result);
}

double contract_flops(const Tensor& a, const Tensor& b, const Dims& dims_a) {
  double summed = 1;
  for (const int64_t d : dims_a)
    if (d >= -a.dim() && d < a.dim()) summed *= static_cast<double>(std::max<int64_t>(1, a.size(d)));
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.numel()) / summed;
}

const Op<Tensor(const Tensor&, const Tensor&, const Dims&, const Dims&)> tensordot_op{{
    .schema = "tensordot(Tensor a, Tensor b, int[] dims_a, int[] dims_b) -> Tensor",
    .doc = "Sums of products over the dimensions dims_a of a and dims_b of b, taken in pairs; the result has a's other "
           "dimensions, then b's. A size of 1 meets any other, which is summed. No dims: all products.",
    .example = "assert(tensordot(ones({2, 3, 4}), ones({4, 3}), Dims{1, 2}, Dims{1, 0})[0].item() == 12);",
    .composed = [](const Tensor& a, const Tensor& b, const Dims& dims_a,
                   const Dims& dims_b) { return contract("tensordot", a, b, dims_a, dims_b); },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost =
        [](const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims&) {
          return Cost{contract_flops(a, b, dims_a), static_cast<double>(a.nbytes() + b.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4}), s.tensor({4, 3, 2}), Dims{1, 2}, Dims{1, 0});
          s.add(s.tensor({2, 3}), s.tensor({4}), Dims(), Dims()).named("all products");
          s.add(s.tensor({2, 3}), s.tensor({2, 3}), Dims{0, 1}, Dims{0, -1}).named("one number");
          s.add(s.tensor({}), s.tensor({3}), Dims(), Dims()).named("0-dim");
          s.add(s.tensor({2, 3}), s.tensor({2, 1}), Dims{1}, Dims{1}).named("size 1");
          s.add(s.tensor({2, 0}), s.tensor({0, 3}), Dims{1}, Dims{0}).named("empty sum");
          s.invalid<ShapeError>("sizes differ", s.tensor({2, 3}), s.tensor({2, 3}), Dims{1}, Dims{0});
          s.invalid<ShapeError>("in number", s.tensor({2, 3}), s.tensor({2, 3}), Dims{1}, Dims{0, 1});
          s.invalid<ShapeError>("twice", s.tensor({3, 3}), s.tensor({3, 3}), Dims{1, 1}, Dims{0, 1});
          s.invalid<IndexError>("", s.tensor({2, 3}), s.tensor({2, 3}), Dims{2}, Dims{0});
          s.invalid<DTypeError>("different dtypes", s.tensor({2, 2}),
                                s.tensor({2, 2}, s.dtype() == DType::f32 ? DType::f64 : DType::f32), Dims{0}, Dims{0});
        },
    .reference = contract_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> inner_op{{
    .schema = "inner(Tensor a, Tensor b) -> Tensor",
    .doc =
        "Sums of products over the last dimension of both, which have one size: [.., k] and [.., k]. A 0-dim operand "
        "multiplies the other.",
    .example = "assert(inner(ones({2, 3}), ones({4, 3})).shape() == Shape({2, 4}));",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          check_dtypes("inner", a, b);
          check<ShapeError>(a.dim() == 0 || b.dim() == 0 || a.size(-1) == b.size(-1), "inner", "a is ", a, ", b is ", b,
                            ": sizes differ along the last dim");
          if (a.dim() == 0 || b.dim() == 0) return a * b;
          if (a.dim() == 1 && b.dim() == 1) return matmul(a, b);  // whose gradients are multiples of the vectors
          return contract("inner", a, b, {-1}, {-1});
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost =
        [](const Tensor& a, const Tensor& b) {
          return Cost{contract_flops(a, b, a.dim() == 0 || b.dim() == 0 ? Dims() : Dims{-1}),
                      static_cast<double>(a.nbytes() + b.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3}), s.tensor({3}));
          s.add(s.tensor({2, 3}), s.tensor({4, 5, 3}));
          s.add(s.tensor({}), s.tensor({2, 3})).named("0-dim");
          s.invalid<ShapeError>("sizes differ", s.tensor({3}), s.tensor({4}));
          s.invalid<DTypeError>("different dtypes", s.tensor({2}),
                                s.tensor({2}, s.dtype() == DType::f32 ? DType::f64 : DType::f32));
        },
    .reference =
        [](const Tensor& a, const Tensor& b) {
          const bool number = a.dim() == 0 || b.dim() == 0;
          return contract_reference(a, b, number ? Dims() : Dims{-1}, number ? Dims() : Dims{-1});
        },
}};

const Op<Tensor(const Tensor&, const Tensor&)> vdot_op{{
    .schema = "vdot(Tensor a, Tensor b) -> Tensor",
    .doc = "dot: there are no complex numbers.",
    .example = "assert(vdot(ones({3}), ones({3})).item() == 3);",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          check_rank("vdot", a, "a", 1);
          check_rank("vdot", b, "b", 1);
          check<ShapeError>(a.numel() == b.numel(), "vdot", "sizes differ: a is ", a, ", b is ", b);
          check_dtypes("vdot", a, b);
          return dot(a, b);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = matmul_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7}), s.tensor({7}));
          s.invalid<ShapeError>("sizes differ", s.tensor({3}), s.tensor({4}));
          s.invalid<ShapeError>("needs 1 dimension", s.tensor({3, 1}), s.tensor({3}));
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> kron_op{{
    .schema = "kron(Tensor a, Tensor b) -> Tensor",
    .doc = "Kronecker's product: every element of a times the whole of b, as blocks; each size is the product of "
           "theirs. The "
           "smaller rank is filled up with ones in front.",
    .example = "assert(kron(eye(2), ones({2, 3})).shape() == Shape({4, 6}));",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          const int64_t n = std::max(a.dim(), b.dim());
          check<ShapeError>(2 * n <= kMaxDims, "kron", "a is ", a, " and b is ", b, ", wants at most ",
                            int64_t{kMaxDims / 2}, " dimensions");
          Shape sa, sb, result;
          for (int64_t d = 0; d < n; ++d) {
            const int64_t x = d < n - a.dim() ? 1 : a.shape()[d - (n - a.dim())];
            const int64_t y = d < n - b.dim() ? 1 : b.shape()[d - (n - b.dim())];
            sa.push_back(x), sa.push_back(1);
            sb.push_back(1), sb.push_back(y);
            result.push_back(x * y);
          }
          return reshape(reshape(a, sa) * reshape(b, sb), result);
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& a, const Tensor& b) {
          const auto n = static_cast<double>(a.numel()) * static_cast<double>(b.numel());
          return Cost{n, n * static_cast<double>(size_of(a.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), s.tensor({4, 2}));
          s.add(s.tensor({3}), s.tensor({2, 2})).named("other ranks");
          s.add(s.tensor({}), s.tensor({2, 2})).named("0-dim");
          s.add(s.tensor({0, 2}), s.tensor({2, 2})).named("empty");
          s.invalid<ShapeError>("at most", s.tensor({1, 1, 1, 1, 2}), s.tensor({2}));
        },
    .reference =
        [](const Tensor& a, const Tensor& b) {
          const int64_t n = std::max(a.dim(), b.dim());
          Shape sa = a.shape(), sb = b.shape(), s;
          while (sa.size() < n) sa.insert(0, 1);
          while (sb.size() < n) sb.insert(0, 1);
          for (int64_t d = 0; d < n; ++d) s.push_back(sa[d] * sb[d]);
          const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
          std::vector<double> all;
          for (int64_t i = 0; i < s.product(); ++i) {
            int64_t rest = i, p = 0, q = 0, step_a = 1, step_b = 1;
            for (int64_t d = n - 1; d >= 0; --d) {
              const int64_t index = rest % s[d];
              rest /= s[d];
              p += index / sb[d] * step_a, q += index % sb[d] * step_b;
              step_a *= sa[d], step_b *= sb[d];
            }
            all.push_back(x[static_cast<size_t>(p)] * y[static_cast<size_t>(q)]);
          }
          return from_span<double>(all, s);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, double)> dist_op{{
    .schema = "dist(Tensor a, Tensor b, float p=2) -> Tensor",
    .doc = "The p-norm of a - b over all elements; shapes broadcast.",
    .example = "assert(dist(ones({4}), zeros({4})).item() == 2);",
    .composed = [](const Tensor& a, const Tensor& b, double p) { return norm(a - b, p); },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& a, const Tensor& b, double) {
          return Cost{3.0 * static_cast<double>(std::max(a.numel(), b.numel())),
                      static_cast<double>(a.nbytes() + b.nbytes())};
        },
    .samples =
        [](Samples& s) {
          for (const double p : {2.0, 1.0, 3.0}) s.add(s.uniform({2, 3}, 1, 2), s.uniform({2, 3}, -2, 0.5), p);
          s.add(s.uniform({2, 3}, 1, 2), s.uniform({3}, -2, 0.5)).named("broadcast");
          s.add(s.distinct({4}), s.tensor({4}) * 0.0, double(INFINITY)).not_differentiable();
          s.invalid<ShapeError>("broadcast", s.tensor({3}), s.tensor({4}));
        },
    .reference =
        [](const Tensor& a, const Tensor& b, double p) {
          const Shape s = broadcast_shapes(a.shape(), b.shape(), "reference");
          const std::vector<double> x = a.expand(s).to_vector<double>(), y = b.expand(s).to_vector<double>();
          double total = 0;
          for (size_t i = 0; i < x.size(); ++i) {
            const double d = std::abs(x[i] - y[i]);
            total = std::isinf(p) ? std::max(total, d) : total + std::pow(d, p);
          }
          if (!std::isinf(p)) total = std::pow(total, 1 / p);
          return from_span<double>(std::span(&total, 1), {});
        },
}};

}  // namespace

Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, Scalar beta, Scalar alpha) {
  return addmv_op(input, mat, vec, beta, alpha);
}
Tensor addr(const Tensor& input, const Tensor& vec1, const Tensor& vec2, Scalar beta, Scalar alpha) {
  return addr_op(input, vec1, vec2, beta, alpha);
}
Tensor addbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, Scalar beta, Scalar alpha) {
  return addbmm_op(input, batch1, batch2, beta, alpha);
}
Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, Scalar beta, Scalar alpha) {
  return baddbmm_op(input, batch1, batch2, beta, alpha);
}
Tensor inner(const Tensor& a, const Tensor& b) {
  return inner_op(a, b);
}
Tensor vdot(const Tensor& a, const Tensor& b) {
  return vdot_op(a, b);
}
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b) {
  return tensordot_op(a, b, dims_a, dims_b);
}
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  check(dims >= 0 && dims <= a.dim() && dims <= b.dim(), "tensordot", "dims is ", dims, " for a ", a, " and b ", b);
  Dims left, right;
  for (int64_t i = 0; i < dims; ++i) left.push_back(a.dim() - dims + i), right.push_back(i);
  return tensordot_op(a, b, left, right);
}
Tensor kron(const Tensor& a, const Tensor& b) {
  return kron_op(a, b);
}
Tensor dist(const Tensor& a, const Tensor& b, double p) {
  return dist_op(a, b, p);
}

}  // namespace strata
