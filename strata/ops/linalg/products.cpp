// Products that torch.linalg has, and tensors seen as matrices.

#include <cmath>
#include <limits>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/linalg/cross_kernel.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/linalg/vecdot_kernel.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;

// The order of fewest multiplications (Cormen et al., Introduction to Algorithms, chapter 15): best[i][j] is the cost
// of the product of tensors i .. j, at[i][j] where it is cut.
Tensor in_best_order(const TensorList& t) {
  const size_t n = t.size();
  std::vector<double> sizes;
  for (const Tensor& m : t) sizes.push_back(static_cast<double>(rows(m)));
  sizes.push_back(static_cast<double>(cols(t.back())));
  std::vector<std::vector<double>> best(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> at(n, std::vector<size_t>(n, 0));
  for (size_t length = 1; length < n; ++length) {
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      best[i][j] = std::numeric_limits<double>::infinity();
      for (size_t k = i; k < j; ++k) {
        const double cost = best[i][k] + best[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1];
        if (cost < best[i][j]) best[i][j] = cost, at[i][j] = k;
      }
    }
  }
  const auto multiply = [&](const auto& self, size_t i, size_t j) -> Tensor {
    if (i == j) return t[i];
    return matmul(self(self, i, at[i][j]), self(self, at[i][j] + 1, j));
  };
  return multiply(multiply, 0, n - 1);
}

const Op<Tensor(const TensorList&)> multi_dot_op{{
    .schema = "linalg_multi_dot(Tensor[] tensors) -> Tensor",
    .doc = "The product of two or more matrices in the order of fewest multiplications. The first may be a row [n], "
           "the last "
           "a column [n]; the result then lacks that dimension.",
    .example = "assert(linalg_multi_dot({ones({2, 3}), ones({3, 4}), ones({4})}).shape() == Shape({2}));",
    .composed =
        [](const TensorList& tensors) {
          constexpr std::string_view op = "linalg_multi_dot";
          check<ValueError>(tensors.size() >= 2, op, "got ", static_cast<int64_t>(tensors.size()),
                            " tensors, wants at least 2");
          TensorList t = tensors;
          for (size_t i = 0; i < t.size(); ++i) {
            const bool end = i == 0 || i + 1 == t.size();
            check<ShapeError>(t[i].defined() && (t[i].dim() == 2 || (end && t[i].dim() == 1)), op, "tensor ",
                              static_cast<int64_t>(i), " is ", t[i], ", wants a matrix", end ? " or a vector" : "");
          }
          const bool row = t.front().dim() == 1, column = t.back().dim() == 1;
          if (row) t.front() = unsqueeze(t.front(), 0);
          if (column) t.back() = unsqueeze(t.back(), 1);
          for (size_t i = 1; i < t.size(); ++i) {
            check<ShapeError>(cols(t[i - 1]) == rows(t[i]), op, "tensors ", static_cast<int64_t>(i - 1), " and ",
                              static_cast<int64_t>(i), " are ", tensors[i - 1], " and ", tensors[i]);
            check_same(op, t[i - 1], "a tensor", t[i], "the next");
          }
          Tensor y = in_best_order(t);
          if (row) y = squeeze(y, 0);
          return column ? squeeze(y, -1) : y;
        },
    .autocast = Autocast::low,
    .dtypes = kFloats | kInts,
    .cost =
        [](const TensorList& t) {
          double flops = 0, bytes = 0;
          for (size_t i = 0; i < t.size(); ++i) {
            bytes += static_cast<double>(t[i].nbytes());
            if (i > 0) flops += 2.0 * static_cast<double>(t[i].numel()) * static_cast<double>(t[0].shape()[0]);
          }
          return Cost{flops, bytes};
        },
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({2, 3}), s.tensor({3, 4})});
          s.add(TensorList{s.tensor({4, 2}), s.tensor({2, 5}), s.tensor({5, 1}), s.tensor({1, 3})}).named("four");
          s.add(TensorList{s.tensor({3}), s.tensor({3, 2}), s.tensor({2})}).named("vectors at the ends");
          s.invalid<ValueError>("at least 2", TensorList{s.tensor({2, 3})});
          s.invalid<ShapeError>("wants a matrix", TensorList{s.tensor({2, 3}), s.tensor({3}), s.tensor({3, 2})});
          s.invalid<ShapeError>("are", TensorList{s.tensor({2, 3}), s.tensor({2, 3})});
        },
    .reference =
        [](const TensorList& t) {
          Shape shape;
          naive::Matrix y;
          for (size_t i = 0; i < t.size(); ++i) {
            const bool vector = t[i].dim() == 1;
            const Tensor as = !vector ? t[i] : i == 0 ? t[i].unsqueeze(0) : t[i].unsqueeze(1);
            const naive::Matrix m = naive::matrices(as)[0];
            if (i > 0) check<ShapeError>(y.n == m.m, "reference", "sizes differ");
            y = i == 0 ? m : naive::product(y, m);
            if (!vector && i == 0) shape.push_back(m.m);
            if (!vector && i + 1 == t.size()) shape.push_back(m.n);
          }
          return naive::tensor({y}, shape);
        },
    .tolerance = 4,
    .tolerance_reason = "each product is rounded",
}};

// ---- vectors -------------------------------------------------------------------------------------------------------

// The shape of the products; `dim` is one of its dimensions.
Shape cross_shape(std::string_view op, const Tensor& a, const Tensor& b, int64_t dim) {
  check_same(op, a, "a", b, "b");
  const Shape s = broadcast_shapes(a.shape(), b.shape(), op);
  const int64_t d = wrap_dim(dim, s.size(), op);
  check<ShapeError>(!s.empty() && s[d] == 3, op, "a is ", a, " and b is ", b, ", wants 3 elements along dim ", dim);
  check<DTypeError>(a.dtype() != DType::boolean, op, "does not take bool");
  return s;
}

template <class C>
C product_minus(C a, C b, C c, C d) {
  if constexpr (std::is_integral_v<C>) {  // they wrap around
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(a) * static_cast<U>(b) - static_cast<U>(c) * static_cast<U>(d));
  } else {
    return a * b - c * d;
  }
}

void cross_cpu(Tensor& z, const Tensor& a, const Tensor& b, int64_t dim) {
  if (z.numel() == 0) return;
  const Shape& s = z.shape();
  const int64_t d = wrap_dim(dim, s.size(), "linalg_cross");
  // Of 16 bits in f32, converted at once.
  const DType wide = is_reduced_floating(z.dtype()) ? DType::f32 : z.dtype();
  const Tensor x = expand(a.to(wide), s).contiguous(), y = expand(b.to(wide), s).contiguous(),
               to = z.is_contiguous() && z.dtype() == wide ? z : empty({s, wide, z.device(), std::nullopt});
  int64_t inner = 1;
  for (int64_t i = d + 1; i < s.size(); ++i) inner *= s[i];
  dispatch_all(wide, "linalg_cross", [&]<class T>() {
    using C = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;  // bool does not come here
    parallel_for(0, z.numel() / 3, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        // As many as lie side by side.
        const int64_t at = i / inner * 3 * inner + i % inner, n = std::min(end - i, inner - i % inner);
        const T *px = x.data<T>() + at, *py = y.data<T>() + at;
        T* pz = to.data<T>() + at;
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) {
          const auto from = [&](const T* p, int64_t k) { return static_cast<C>(p[j + k * inner]); };
          const C x0 = from(px, 0), x1 = from(px, 1), x2 = from(px, 2), y0 = from(py, 0), y1 = from(py, 1),
                  y2 = from(py, 2);
          pz[j] = static_cast<T>(product_minus(x1, y2, x2, y1));
          pz[j + inner] = static_cast<T>(product_minus(x2, y0, x0, y2));
          pz[j + 2 * inner] = static_cast<T>(product_minus(x0, y1, x1, y0));
        }
        i += n;
      }
    });
  });
  if (!to.same_as(z)) copy_elements(z, to);
}

Tensor cross_of_turns(const Tensor& a, const Tensor& b, int64_t dim) {
  const Shape s = cross_shape("linalg_cross", a, b, dim);
  const int64_t d = wrap_dim(dim, s.size(), "linalg_cross");
  const Tensor x = expand(a, s), y = expand(b, s);
  // a x b = (a turned by one place) * (b turned by two) - (by two) * (by one).
  return roll(x, {-1}, {d}) * roll(y, {-2}, {d}) - roll(x, {-2}, {d}) * roll(y, {-1}, {d});
}

Tensor cross_reference(const Tensor& a, const Tensor& b, int64_t dim) {
  const Shape s = broadcast_shapes(a.shape(), b.shape(), "reference");
  const int64_t d = dim < 0 ? dim + s.size() : dim;
  const std::vector<double> x = a.expand(s).to_vector<double>(), y = b.expand(s).to_vector<double>();
  check<ShapeError>(s[d] == 3, "reference", "3 elements");
  int64_t step = 1;
  for (int64_t i = d + 1; i < s.size(); ++i) step *= s[i];
  std::vector<double> z(x.size());
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    const int64_t at = i / step % 3, base = i - at * step;
    const auto p = static_cast<size_t>(base + (at + 1) % 3 * step), q = static_cast<size_t>(base + (at + 2) % 3 * step);
    z[static_cast<size_t>(i)] = x[p] * y[q] - x[q] * y[p];
  }
  return naive::numbers(z, s);
}

Cost pair_cost(const Tensor& a, const Tensor& b, double each) {
  return {each * static_cast<double>(std::max(a.numel(), b.numel())), static_cast<double>(a.nbytes() + b.nbytes())};
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> linalg_cross_op{{
    .schema = "linalg_cross(Tensor a, Tensor b, int dim=-1) -> Tensor",
    .shard = "along dim",
    .doc = "The cross products of the vectors of three elements along dim; the shapes broadcast.",
    .example = "Tensor z = linalg_cross(eye(3)[0], eye(3)[1]); assert(z[2].item() == 1);",
    .infer = [](const Tensor& a, const Tensor& b,
                int64_t dim) { return like(a).with_shape(cross_shape("linalg_cross", a, b, dim)); },
    .kernels = {.cpu = cross_cpu, .cuda = STRATA_CUDA_KERNEL(cross_cuda)},
    .composed = cross_of_turns,
    .saves = "a:b b:a",
    .backward =
        [](Backward& back, const Tensor& a, const Tensor& b, int64_t dim) {
          if (back.needs(0)) back.set(0, sum_to(linalg_cross(b, back.gy(), dim), a.shape()));
          if (back.needs(1)) back.set(1, sum_to(linalg_cross(back.gy(), a, dim), b.shape()));
        },
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& a, const Tensor& b, int64_t) { return pair_cost(a, b, 3); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({4, 3}));
          s.add(s.tensor({3}), s.tensor({2, 3})).named("broadcast");
          s.add(s.tensor({2, 3, 2}), s.tensor({1, 3, 2}), 1).named("along dim 1");
          s.add(s.tensor({3, 5}).t(), s.tensor({5, 3})).named("strided");
          s.add(s.tensor({3, 130}), s.tensor({130, 3}).t(), 0).named("many, strided");
          s.add(s.tensor({0, 3}), s.tensor({0, 3})).named("none");
          s.invalid<ShapeError>("3 elements", s.tensor({4}), s.tensor({4}));
          s.invalid<DTypeError>("one dtype", s.tensor({3}, DType::f32), s.tensor({3}, DType::f64));
        },
    .reference = cross_reference,
    .tolerance = 4,
    .tolerance_reason = "products are rounded before they are subtracted",
}};

const Op<Tensor(const Tensor&, const Tensor&, std::optional<int64_t>)> cross_op{{
    .schema = "cross(Tensor a, Tensor b, int? dim=None) -> Tensor",
    .doc = "linalg_cross along dim, without it along the first dimension of 3 elements.",
    .example = "assert(cross(eye(3), eye(3)).shape() == Shape({3, 3}));",
    .composed =
        [](const Tensor& a, const Tensor& b, std::optional<int64_t> dim) {
          const Shape s = broadcast_shapes(a.shape(), b.shape(), "cross");
          int64_t d = 0;
          if (!dim) {
            while (d < s.size() && s[d] != 3) ++d;
            check<ShapeError>(d < s.size(), "cross", "a is ", a, " and b is ", b, ", wants a dimension of 3 elements");
          }
          cross_shape("cross", a, b, dim.value_or(d));
          return linalg_cross_op(a, b, dim.value_or(d));
        },
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& a, const Tensor& b, std::optional<int64_t>) { return pair_cost(a, b, 3); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.tensor({3, 4}));
          s.add(s.tensor({2, 3}), s.tensor({2, 3}), -1);
          s.invalid<ShapeError>("3 elements", s.tensor({4}), s.tensor({4}));
        },
    .reference =
        [](const Tensor& a, const Tensor& b, std::optional<int64_t> dim) {
          const Shape s = broadcast_shapes(a.shape(), b.shape(), "reference");
          return cross_reference(a, b, dim.value_or(std::find(s.begin(), s.end(), 3) - s.begin()));
        },
    .tolerance = 4,
    .tolerance_reason = "products are rounded before they are subtracted",
}};

// The dimension that is summed over, of the shape that x and y have together.
int64_t vecdot_dim(const Tensor& x, const Tensor& y, int64_t dim, Shape& s) {
  check_same("linalg_vecdot", x, "x", y, "y");
  check<DTypeError>(x.dtype() != DType::boolean, "linalg_vecdot", "does not take bool");
  s = broadcast_shapes(x.shape(), y.shape(), "linalg_vecdot");
  const int64_t d = wrap_dim(dim, s.size(), "linalg_vecdot");
  check<ShapeError>(!s.empty(), "linalg_vecdot", "x and y are 0-dim, wants vectors");
  return d;
}
Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  Shape s;
  const int64_t d = vecdot_dim(x, y, dim, s);
  const auto wide = [&](const Tensor& t) { return expand(is_reduced_floating(t.dtype()) ? t.to(DType::f32) : t, s); };
  return sum(wide(x) * wide(y), {d}).to(x.dtype());
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> vecdot_op{{
    .schema = "linalg_vecdot(Tensor x, Tensor y, int dim=-1) -> Tensor",
    .shard = "along dim",
    .doc = "Sums of the products along dim; the shapes broadcast.",
    .example = "assert(linalg_vecdot(ones({2, 3}), ones({3}))[0].item() == 3);",
    .infer =
        [](const Tensor& x, const Tensor& y, int64_t dim) {
          Shape s;
          s.erase(vecdot_dim(x, y, dim, s));
          return like(x).with_shape(s);
        },
    .kernels = on_each_device([](auto on, Tensor& to, const Tensor& x, const Tensor& y, int64_t dim) {
      Shape s;
      const int64_t d = vecdot_dim(x, y, dim, s);
      if constexpr (on.cuda) {
        if (vecdot_cuda(to, expand(x, s), expand(y, s), d)) return;
      } else {
        if (is_floating(x.dtype()) && dot_cpu(to, expand(x, s), expand(y, s), d)) return;
      }
      copy_elements(to, vecdot(x, y, dim));
    }),
    .composed = vecdot,
    .saves = "x:y y:x",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& y, int64_t dim) {
          Shape s;
          const int64_t d = vecdot_dim(x, y, dim, s);
          const Tensor g = unsqueeze(b.gy(), d);
          // Of all of s: along dim g has one element, and so may the other operand.
          if (b.needs(0)) b.set(0, sum_to(expand(g * y, s), x.shape()));
          if (b.needs(1)) b.set(1, sum_to(expand(g * x, s), y.shape()));
        },
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, const Tensor& y, int64_t) { return pair_cost(x, y, 2); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({4, 3}));
          s.add(s.tensor({4, 3}), s.tensor({3})).named("broadcast");
          s.add(s.tensor({4, 3}), s.tensor({1})).named("broadcast along dim");
          s.add(s.tensor({}), s.tensor({2, 3})).named("a number");
          s.add(s.tensor({4, 1}), s.tensor({3})).named("both broadcast");
          s.add(s.tensor({2, 5, 3}), s.tensor({2, 5, 3}), 1).named("along dim 1");
          s.add(s.tensor({3, 0}), s.tensor({3, 0})).named("empty sums");
          s.add(s.tensor({5, 70}), s.tensor({5, 70})).named("long rows");
          s.add(s.tensor({70, 5}).t(), s.tensor({70, 5}).t()).named("both lie across");
          s.add(s.tensor({70, 5}), s.tensor({5, 70}).t(), 0).named("one lies across");
          s.add(s.tensor({3, 70, 2}).permute({2, 0, 1}), s.tensor({3, 70, 2}).permute({2, 0, 1})).named("turned");
          s.invalid<ShapeError>("broadcast", s.tensor({3}), s.tensor({4}));
          s.invalid<DTypeError>("one dtype", s.tensor({3}, DType::f32), s.tensor({3}, DType::f64));
          s.invalid<IndexError>("out of range", s.tensor({3}), s.tensor({3}), 1);
        },
    .reference =
        [](const Tensor& x, const Tensor& y, int64_t dim) {
          const Shape s = broadcast_shapes(x.shape(), y.shape(), "reference");
          const int64_t d = dim < 0 ? dim + s.size() : dim, n = s[d];
          const std::vector<double> a = x.expand(s).to_vector<double>(), b = y.expand(s).to_vector<double>();
          Shape left = s;
          left.erase(d);
          int64_t step = 1;
          for (int64_t i = d + 1; i < s.size(); ++i) step *= s[i];
          std::vector<double> sums(static_cast<size_t>(left.product()), 0.0);
          for (size_t i = 0; i < sums.size(); ++i)
            for (int64_t k = 0; k < n; ++k) {
              const auto at = static_cast<int64_t>(i);
              const auto from = static_cast<size_t>(at / step * step * n + k * step + at % step);
              sums[i] += a[from] * b[from];
            }
          return naive::numbers(sums, left);
        },
}};

const Op<Tensor(const Tensor&, std::optional<int64_t>)> vander_op{{
    .schema = "linalg_vander(Tensor x, int? N=None) -> Tensor",
    .doc = "Rows of powers x^0, x^1 .. x^(N - 1) of each element: [..] gives [.., N]. N is the length of the last "
           "dimension "
           "unless given, and at least 2. Integers in i64.",
    .example = "assert(linalg_vander(full({2}, 2.0), 3)[0][2].item() == 4);",
    .composed =
        [](const Tensor& x, std::optional<int64_t> N) {
          check<ShapeError>(x.dim() >= 1, "linalg_vander", "x is ", x, ", wants at least one dimension");
          check<DTypeError>(x.dtype() != DType::boolean, "linalg_vander", "does not take bool");
          const int64_t n = N.value_or(x.shape().back());
          check<ValueError>(n > 1, "linalg_vander", "N is ", n, ", wants at least 2");
          const Tensor powers = cumprod(expand(unsqueeze(x, -1), with(x.shape(), n - 1)), -1);
          return cat({ones_like(unsqueeze(x, -1)).to(powers.dtype()), powers}, -1);
        },
    .dtypes = kFloats | kInts,
    .cost =
        [](const Tensor& x, std::optional<int64_t> N) {
          const double n =
              static_cast<double>(N.value_or(x.dim() > 0 ? x.shape().back() : 1)) * static_cast<double>(x.numel());
          return Cost{n, n * static_cast<double>(size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3}));
          s.add(s.off_grid({2, 3}), 4).named("batch");
          s.add(s.off_grid({2}), 2);
          s.invalid<ValueError>("at least 2", s.tensor({3}), 1);
          s.invalid<ShapeError>("dimension", s.tensor({}), 3);
        },
    .reference =
        [](const Tensor& x, std::optional<int64_t> N) {
          const int64_t n = N.value_or(x.shape().back());
          std::vector<double> all;
          for (const double v : x.to_vector<double>()) {
            double power = 1;
            for (int64_t i = 0; i < n; ++i, power *= v) all.push_back(power);
          }
          return naive::numbers(all, with(x.shape(), n), is_floating(x.dtype()) ? DType::f64 : DType::i64);
        },
    .tolerance = 4,
    .tolerance_reason = "powers are rounded one after the other",
}};

// ---- tensors as matrices -------------------------------------------------------------------------------------------

const Op<Tensor(const Tensor&, int64_t)> tensorinv_op{{
    .schema = "linalg_tensorinv(Tensor A, int ind=2) -> Tensor",
    .doc = "The inverse of a tensor seen as a square matrix of its first ind dimensions by the others.",
    .example = "assert(linalg_tensorinv(reshape(eye(4), {2, 2, 4}), 2).shape() == Shape({4, 2, 2}));",
    .composed =
        [](const Tensor& A, int64_t ind) {
          check<ValueError>(ind > 0, "linalg_tensorinv", "ind is ", ind, ", wants a positive number");
          Shape first, rest;
          for (int64_t d = 0; d < A.dim(); ++d) (d < ind ? first : rest).push_back(A.shape()[d]);
          check<ShapeError>(first.product() == rest.product(), "linalg_tensorinv", "A is ", A, " and ind is ", ind,
                            ": not a square matrix");
          const Tensor y = linalg_inv(reshape(A, {first.product(), rest.product()}));
          for (const int64_t n : first) rest.push_back(n);
          return reshape(y, rest);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost =
        [](const Tensor& A, int64_t) {
          return Cost{2 * std::pow(static_cast<double>(A.numel()), 1.5), 2.0 * static_cast<double>(A.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(reshape(well(s, {4, 4}), {2, 2, 4}));
          s.add(reshape(well(s, {6, 6}), {6, 2, 3}), 1);
          s.invalid<ShapeError>("square", s.tensor({2, 3, 4}));
          s.invalid<ValueError>("positive", s.tensor({2, 2}), 0);
        },
    .reference =
        [](const Tensor& A, int64_t ind) {
          Shape s, first;
          for (int64_t d = 0; d < A.dim(); ++d) (d < ind ? first : s).push_back(A.shape()[d]);
          const int64_t n = first.product();
          naive::Matrix m(n, n);
          m.v = A.to_vector<double>();
          for (const int64_t d : first) s.push_back(d);
          return naive::tensor({naive::solve(m, naive::unit(n))}, s);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, std::optional<Dims>)> tensorsolve_op{{
    .schema = "linalg_tensorsolve(Tensor A, Tensor B, int[]? dims=None) -> Tensor",
    .doc = "X with tensordot(A, X, X.dim()) = B: A seen as a square matrix of B's dimensions by X's. dims of A are "
           "moved to "
           "its end first.",
    .example = "assert(linalg_tensorsolve(reshape(eye(4), {2, 2, 4}), ones({2, 2})).shape() == Shape({4}));",
    .composed =
        [](const Tensor& A, const Tensor& B, std::optional<Dims> dims) {
          constexpr std::string_view op = "linalg_tensorsolve";
          Tensor a = A;
          if (dims) {
            Dims ends;
            check<ShapeError>(dims->size() <= A.dim(), op, "dims is ", *dims, " for A ", A);
            for (int64_t i = 0; i < dims->size(); ++i) ends.push_back(A.dim() - dims->size() + i);
            a = movedim(A, *dims, ends);
          }
          check<ShapeError>(a.dim() >= B.dim(), op, "A is ", A, ", B is ", B);
          Shape rest;
          for (int64_t d = B.dim(); d < a.dim(); ++d) rest.push_back(a.shape()[d]);
          check<ShapeError>(rest.product() == B.numel() && a.numel() == B.numel() * rest.product(), op, "A is ", A,
                            ", B is ", B, ", wants as many elements in B as in A's dimensions after B's");
          return reshape(linalg_solve(reshape(a, {B.numel(), rest.product()}), reshape(B, {B.numel()})), rest);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost =
        [](const Tensor& A, const Tensor&, std::optional<Dims>) {
          return Cost{std::pow(static_cast<double>(A.numel()), 1.5), static_cast<double>(A.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(reshape(well(s, {4, 4}), {2, 2, 4}), s.tensor({2, 2}));
          s.add(transpose(reshape(well(s, {6, 6}), {6, 2, 3}), 0, 1), s.tensor({6}), Dims{0, 2}).named("dims moved");
          s.invalid<ShapeError>("B is", s.tensor({2, 3, 4}), s.tensor({2, 3}));
        },
    .reference =
        [](const Tensor& A, const Tensor& B, std::optional<Dims> dims) {
          Dims order;
          for (int64_t d = 0; d < A.dim(); ++d)
            if (!dims || !dims->contains(d)) order.push_back(d);
          if (dims)
            for (const int64_t d : *dims) order.push_back(d);
          const Tensor a = A.permute(order);
          Shape rest;
          for (int64_t d = B.dim(); d < a.dim(); ++d) rest.push_back(a.shape()[d]);
          naive::Matrix m(B.numel(), B.numel()), b(B.numel(), 1);
          m.v = a.to_vector<double>();
          b.v = B.to_vector<double>();
          return naive::tensor({naive::solve(m, b)}, rest);
        },
}};

}  // namespace

Tensor linalg_multi_dot(const TensorList& tensors) {
  return multi_dot_op(tensors);
}
Tensor linalg_cross(const Tensor& a, const Tensor& b, int64_t dim) {
  return linalg_cross_op(a, b, dim);
}
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim) {
  return cross_op(a, b, dim);
}
Tensor linalg_vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  return vecdot_op(x, y, dim);
}
Tensor linalg_vander(const Tensor& x, std::optional<int64_t> N) {
  return vander_op(x, N);
}
Tensor linalg_tensorinv(const Tensor& A, int64_t ind) {
  return tensorinv_op(A, ind);
}
Tensor linalg_tensorsolve(const Tensor& A, const Tensor& B, std::optional<Dims> dims) {
  return tensorsolve_op(A, B, dims);
}

}  // namespace strata
