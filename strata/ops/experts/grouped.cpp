// The records of products by groups of rows.

#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/experts/grouped_kernel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Signature = Tensor(const Tensor&, const Tensor&, const Tensor&);

void check_groups(std::string_view op, const Tensor& a, const Tensor& b, const Tensor& offsets) {
  check<ShapeError>(a.dim() == 2, op, "rows are ", a, ", wanted two dimensions");
  check<DTypeError>(a.dtype() == b.dtype(), op, "dtypes differ: ", a, " and ", b);
  check<DTypeError>(offsets.dtype() == DType::i64, op, "needs i64 offsets, got ", offsets);
  check<ShapeError>(offsets.dim() == 1 && offsets.size(0) >= 1, op, "offsets are ", offsets, ", wanted [groups + 1]");
}

Cost grouped_cost(const Tensor& a, const Tensor& b, int64_t groups, int64_t m, int64_t k) {
  const double n = static_cast<double>(a.size(0)), mk = static_cast<double>(m) * static_cast<double>(k);
  const auto element = static_cast<double>(size_of(a.dtype()));
  return {2 * n * mk, element * (n * static_cast<double>(m + k) + static_cast<double>(groups) * mk)};
}

Tensor offsets_of(std::vector<int64_t> v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}

template <void (*compute)(const GroupedCall&), bool outer>
void kernel(Tensor& y, const Tensor& a, const Tensor& b, const Tensor& offsets) {
  const Tensor dense = offsets.contiguous();
  GroupedCall c;
  c.dtype = a.dtype();
  c.n = a.size(0), c.groups = dense.size(0) - 1;
  c.m = outer ? a.size(1) : b.size(1), c.k = outer ? b.size(1) : a.size(1);
  c.a = a.raw_data(), c.a_row = a.strides()[0], c.a_col = a.strides()[1];
  c.b = b.raw_data();
  if (!outer) c.b_group = b.strides()[0];
  c.b_row = b.strides()[outer ? 0 : 1], c.b_col = b.strides()[outer ? 1 : 2];
  c.y = y.raw_data(), c.y_row = y.strides()[outer ? 1 : 0];
  c.offsets = static_cast<const int64_t*>(dense.raw_data());
  compute(c);
}

// ---- rows of whole 16 bytes, which tensor cores' kernels want of numbers of 16 bits ----

constexpr int64_t kWhole = 8;

inline Tensor whole_rows(Shape shape, DType t, Device device) {
  const size_t last = shape.size() - 1;
  const int64_t columns = shape[last];
  shape[last] = (columns + kWhole - 1) / kWhole * kWhole;
  return empty({shape, t, device, std::nullopt}).narrow(-1, 0, columns);
}
inline bool has_whole_rows(const Tensor& t, bool or_columns) {
  const Strides& s = t.strides();
  const size_t last = s.size() - 1, dense = or_columns && s[last] != 1 ? last - 1 : last;
  for (size_t d = 0; d <= last; ++d)
    if (t.shape()[d] != 1 && (d == dense ? s[d] != 1 : s[d] <= 0 || s[d] % kWhole != 0)) return false;
  return reinterpret_cast<uintptr_t>(t.raw_data()) % 16 == 0;
}
inline Tensor with_whole_rows(const Tensor& t, bool or_columns = false) {
  if (has_whole_rows(t, or_columns)) return t;
  Tensor to = whole_rows(t.shape(), t.dtype(), t.device());
  return to.copy_(t);
}

template <void (*compute)(const GroupedCall&), bool outer>
void card_kernel(Tensor& y, const Tensor& a, const Tensor& b, const Tensor& offsets) {
  if (y.numel() == 0 || !cuda::has_grouped_tiles(y.dtype())) return kernel<compute, outer>(y, a, b, offsets);
  const Tensor left = with_whole_rows(a), right = with_whole_rows(b, !outer);
  if (has_whole_rows(y, false)) return kernel<compute, outer>(y, left, right, offsets);
  Tensor to = whole_rows(y.shape(), y.dtype(), y.device());
  kernel<compute, outer>(to, left, right, offsets);
  y.copy_(to);
}

const Op<Signature> grouped_outer_op{{
    .schema = "grouped_outer(Tensor g, Tensor x, Tensor offsets) -> Tensor",
    .shard = "n! m, n! k, _ -> e! m k",
    .doc = "For each group e the product of g [N, M], transposed, with x [N, K] over the rows offsets[e] to offsets[e "
           "+ 1]: "
           "[E, M, K], zeros for an empty group. Offsets are i64 [E + 1], ascend from 0 to N, and stay on the device; "
           "on the "
           "CPU others are an IndexError. It is the gradient of grouped_linear for its weight.",
    .example = "Tensor offsets = from_span<int64_t>(std::vector<int64_t>{0, 2, 3}, {3});\n"
               "assert(grouped_outer(ones({3, 2}), ones({3, 4}), offsets)[0][0][0].item() == 2);",
    .infer =
        [](const Tensor& g, const Tensor& x, const Tensor& offsets) {
          check_groups("grouped_outer", g, x, offsets);
          check<ShapeError>(x.dim() == 2 && x.size(0) == g.size(0), "grouped_outer", "x is ", x, ", wanted [",
                            g.size(0), ", K]");
          return like(g).with_shape({offsets.size(0) - 1, g.size(1), x.size(1)});
        },
    .kernels = {.cpu = kernel<grouped_outer_cpu, true>,
                .cuda = STRATA_CUDA_KERNEL(card_kernel<grouped_outer_cuda, true>)},
    .saves = "g:x x:g offsets",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x, const Tensor& offsets) {
          if (b.needs(0)) b.set(0, grouped_linear(x, b.gy(), offsets));
          if (b.needs(1)) b.set(1, grouped_linear(g, b.gy().transpose(1, 2), offsets));
        },
    .cost = [](const Tensor& g, const Tensor& x,
               const Tensor& offsets) { return grouped_cost(g, x, offsets.size(0) - 1, g.size(1), x.size(1)); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7, 5}), s.tensor({7, 3}), offsets_of({0, 2, 2, 7}));
          s.add(s.tensor({4, 2}), s.tensor({4, 6}), offsets_of({0, 4})).named("one group");
          s.add(s.tensor({0, 2}), s.tensor({0, 3}), offsets_of({0, 0, 0})).named("no rows");
          s.add(s.tensor({150, 70}), s.tensor({150, 33}), offsets_of({0, 1, 130, 130, 150})).named("past a tile");
          s.invalid<ShapeError>("x is", s.tensor({4, 2}), s.tensor({5, 2}), offsets_of({0, 4}));
          s.invalid<DTypeError>("i64 offsets", s.tensor({4, 2}), s.tensor({4, 2}), s.tensor({2}));
          if (s.benchmarking()) {
            std::vector<int64_t> from;
            for (int64_t i = 0; i <= 64; ++i) from.push_back(128 * i);
            s.bench(s.tensor({8192, 1024}), s.tensor({8192, 2048}), offsets_of(from));
          }
        },
    .reference =
        [](const Tensor& g, const Tensor& x, const Tensor& offsets) {
          const std::vector<double> gv = g.to_vector<double>(), xv = x.to_vector<double>();
          const std::vector<int64_t> from = offsets.to_vector<int64_t>();
          const int64_t m = g.size(1), k = x.size(1), groups = offsets.size(0) - 1;
          std::vector<double> y(static_cast<size_t>(groups * m * k), 0.0);
          for (int64_t e = 0; e < groups; ++e)
            for (int64_t n = from[static_cast<size_t>(e)]; n < from[static_cast<size_t>(e) + 1]; ++n)
              for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < k; ++j)
                  y[static_cast<size_t>((e * m + i) * k + j)] +=
                      gv[static_cast<size_t>(n * m + i)] * xv[static_cast<size_t>(n * k + j)];
          return from_span<double>(y, {groups, m, k});
        },
}};

const Op<Signature> grouped_linear_op{{
    .schema = "grouped_linear(Tensor x, Tensor weight, Tensor offsets) -> Tensor",
    .shard = "n! k, e! m k, _ -> n! m",
    .doc = "Rows of x [N, K] times their group's matrix, weight [E, M, K] transposed: [N, M]. Group e has the rows "
           "offsets[e] "
           "to offsets[e + 1]. Offsets are i64 [E + 1], ascend from 0 to N, and stay on the device; on the CPU others "
           "are an "
           "IndexError. Sums run in f32 (f64 for f64).",
    .example = "Tensor offsets = from_span<int64_t>(std::vector<int64_t>{0, 2, 3}, {3});\n"
               "assert(grouped_linear(ones({3, 4}), ones({2, 5, 4}), offsets)[2][0].item() == 4);",
    .infer =
        [](const Tensor& x, const Tensor& weight, const Tensor& offsets) {
          check_groups("grouped_linear", x, weight, offsets);
          check<ShapeError>(weight.dim() == 3 && weight.size(0) == offsets.size(0) - 1 && weight.size(2) == x.size(1),
                            "grouped_linear", "weight is ", weight, ", wanted [", offsets.size(0) - 1, ", M, ",
                            x.size(1), "]");
          return like(x).with_shape({x.size(0), weight.size(1)});
        },
    .kernels = {.cpu = kernel<grouped_linear_cpu, false>,
                .cuda = STRATA_CUDA_KERNEL(card_kernel<grouped_linear_cuda, false>)},
    .saves = "x:weight weight:x offsets",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, const Tensor& offsets) {
          if (b.needs(0)) b.set(0, grouped_linear(b.gy(), weight.transpose(1, 2), offsets));
          if (b.needs(1)) b.set(1, grouped_outer(b.gy(), x, offsets));
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& x, const Tensor& weight, const Tensor& offsets) {
          return grouped_cost(x, weight, offsets.size(0) - 1, weight.size(1), x.size(1));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7, 5}), s.tensor({3, 4, 5}), offsets_of({0, 2, 2, 7}));
          s.add(s.tensor({4, 2}), s.tensor({1, 6, 2}), offsets_of({0, 4})).named("one group");
          s.add(s.tensor({0, 2}), s.tensor({2, 3, 2}), offsets_of({0, 0, 0})).named("no rows");
          s.add(s.tensor({3, 0}), s.tensor({2, 3, 0}), offsets_of({0, 1, 3})).named("empty sum");
          s.add(s.tensor({150, 33}), s.tensor({4, 70, 33}), offsets_of({0, 1, 130, 130, 150})).named("past a tile");
          s.invalid<ShapeError>("weight is", s.tensor({4, 2}), s.tensor({2, 3, 2}), offsets_of({0, 4}));
          s.invalid<DTypeError>("i64 offsets", s.tensor({4, 2}), s.tensor({1, 3, 2}), s.tensor({2}));
          if (s.benchmarking()) {
            std::vector<int64_t> from;
            for (int64_t i = 0; i <= 64; ++i) from.push_back(128 * i);
            s.bench(s.tensor({8192, 2048}), s.tensor({64, 1024, 2048}), offsets_of(from));
          }
        },
    .reference =
        [](const Tensor& x, const Tensor& weight, const Tensor& offsets) {
          const std::vector<double> xv = x.to_vector<double>(), wv = weight.to_vector<double>();
          const std::vector<int64_t> from = offsets.to_vector<int64_t>();
          const int64_t k = x.size(1), m = weight.size(1), groups = offsets.size(0) - 1;
          std::vector<double> y(static_cast<size_t>(x.size(0) * m), 0.0);
          for (int64_t e = 0; e < groups; ++e)
            for (int64_t n = from[static_cast<size_t>(e)]; n < from[static_cast<size_t>(e) + 1]; ++n)
              for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < k; ++j)
                  y[static_cast<size_t>(n * m + i)] +=
                      xv[static_cast<size_t>(n * k + j)] * wv[static_cast<size_t>((e * m + i) * k + j)];
          return from_span<double>(y, {x.size(0), m});
        },
}};

}  // namespace

Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets) {
  return grouped_linear_op(x, weight, offsets);
}
Tensor grouped_outer(const Tensor& g, const Tensor& x, const Tensor& offsets) {
  return grouped_outer_op(g, x, offsets);
}

}  // namespace strata
