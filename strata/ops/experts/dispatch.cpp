// The records that bring rows to their experts' places and back. Each one's gradients are the others.

#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/experts/dispatch_kernel.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// What weights and dots are computed in.
DType wide(DType t) {
  return t == DType::f64 ? DType::f64 : DType::f32;
}

void check_place(std::string_view op, const Tensor& place, const Tensor& weights) {
  check<DTypeError>(place.dtype() == DType::i64, op, "needs i64 places, got ", place);
  check<ShapeError>(place.dim() == 2, op, "places are ", place, ", wanted [tokens, k]");
  if (!weights.defined()) return;
  check<DTypeError>(is_floating(weights.dtype()), op, "needs floating weights, got ", weights);
  check<ShapeError>(weights.shape() == place.shape(), op, "weights are ", weights, ", places ", place.shape());
}
void check_rows(std::string_view op, const Tensor& x, const Tensor& place, const char* name) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs floating rows, got ", x);
  check<ShapeError>(x.dim() == 2, op, name, " is ", x, ", wanted two dimensions");
  check<ShapeError>(place.dim() != 2 || place.size(0) == x.size(0), op, name, " has ", x.size(0), " rows, places ",
                    place.size(0));
}

Cost moving_cost(const Tensor& a, const Tensor& place, int64_t rows, const Tensor& weights) {
  const double width = static_cast<double>(a.size(1)), choices = static_cast<double>(place.numel());
  const auto element = static_cast<double>(size_of(a.dtype()));
  return {(weights.defined() ? 2 : 1) * choices * width,
          element * width * (static_cast<double>(rows) + static_cast<double>(place.size(0))) + 8 * choices};
}

// The operands as kernels read them, held while they do.
struct Operands {
  Tensor place, weights, x, y;
  DispatchCall call(Tensor& out, int64_t rows, int64_t width, DType dtype) const {
    DispatchCall c;
    c.dtype = dtype;
    c.tokens = place.size(0), c.k = place.size(1), c.width = width, c.rows = rows;
    c.place = static_cast<const int64_t*>(place.raw_data());
    if (weights.defined()) c.weights = weights.raw_data();
    if (x.defined()) c.x = x.raw_data();
    if (y.defined()) c.y = y.raw_data();
    c.out = out.raw_data();
    return c;
  }
};
Tensor weights_for(const Tensor& weights, DType t) {
  return weights.defined() ? to(weights, wide(t)).contiguous() : Tensor();
}

template <void (*compute)(const DispatchCall&)>
void dispatch_there(Tensor& out, const Tensor& x, const Tensor& place, int64_t rows, const Tensor& weights) {
  const Operands o{place.contiguous(), weights_for(weights, x.dtype()), x.contiguous(), {}};
  compute(o.call(out, rows, x.size(1), x.dtype()));
}
template <void (*compute)(const DispatchCall&)>
void combine_there(Tensor& out, const Tensor& y, const Tensor& place, const Tensor& weights) {
  const Operands o{place.contiguous(), weights_for(weights, y.dtype()), {}, y.contiguous()};
  compute(o.call(out, y.size(0), y.size(1), y.dtype()));
}
template <void (*compute)(const DispatchCall&)>
void dots_there(Tensor& out, const Tensor& x, const Tensor& y, const Tensor& place) {
  const Operands o{place.contiguous(), {}, x.contiguous(), y.contiguous()};
  compute(o.call(out, y.size(0), x.size(1), x.dtype()));
}

Tensor places(std::vector<int64_t> v, int64_t k) {
  const auto n = static_cast<int64_t>(v.size());
  return from_span<int64_t>(v, {n / k, k});
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t, const Tensor&)> dispatch_rows_op{{
    .schema = "dispatch_rows(Tensor x, Tensor place, int rows, Tensor? weights=None) -> Tensor",
    .shard = "n! d, n! k!, n! k! -> r! d",
    .doc =
        "Rows of x [N, D] where `place` [N, k], i64, says: row place[n, j] of the result [rows, D] is x[n], times "
        "weights[n, j] where given, and zeros where no place names it. Places are different numbers below `rows`; a "
        "negative one is none. On the CPU others are an IndexError; on cards one past the end is, and of those given "
        "twice the last counts. The gradient of x is "
        "combine_rows, that of the weights row_dots.",
    .example = "Tensor place = from_span<int64_t>(std::vector<int64_t>{2, 0, -1, 1}, {2, 2});\n"
               "Tensor y = dispatch_rows(from_span<float>(std::vector<float>{5, 7}, {2, 1}), place, 4);\n"
               "assert(y.to_vector<float>() == std::vector<float>({5, 7, 5, 0}));",
    .infer =
        [](const Tensor& x, const Tensor& place, int64_t rows, const Tensor& weights) {
          check_rows("dispatch_rows", x, place, "x");
          check_place("dispatch_rows", place, weights);
          check(rows >= 0, "dispatch_rows", "there cannot be ", rows, " rows");
          return like(x).with_shape({rows, x.size(1)});
        },
    .kernels = {.cpu = dispatch_there<dispatch_rows_cpu>,
                .cuda = STRATA_CUDA_KERNEL(dispatch_there<dispatch_rows_cuda>)},
    .saves = "x:weights place weights:x",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& place, int64_t, const Tensor& weights) {
          if (b.needs(0)) b.set(0, combine_rows(b.gy(), place, weights));
          if (b.needs(2)) b.set(2, row_dots(x, b.gy(), place).to(weights.dtype()));
        },
    .cost = [](const Tensor& x, const Tensor& place, int64_t rows,
               const Tensor& weights) { return moving_cost(x, place, rows, weights); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), places({4, 0, 2, 5, 1, 3}, 2), 6);
          s.add(s.tensor({3, 5}), places({4, -1, 2, -1, 7, 3}, 2), 8, s.tensor({3, 2})).named("weights, some nowhere");
          s.add(s.tensor({4, 16}), places({3, 1, 0, 2}, 1), 4).named("one choice");
          s.add(s.tensor({0, 3}), from_span<int64_t>(std::vector<int64_t>{}, {0, 2}), 3).named("no tokens");
          s.invalid<ShapeError>("places 2", s.tensor({3, 2}), places({0, 1}, 1), 4);
          s.invalid<DTypeError>("i64 places", s.tensor({3, 2}), s.tensor({3, 1}), 4);
          s.invalid<ShapeError>("weights are", s.tensor({2, 2}), places({0, 1}, 1), 4, s.tensor({2, 2}));
          if (s.benchmarking()) {
            std::vector<int64_t> all(16384);
            for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i * 4099 % all.size());
            s.bench(s.tensor({8192, 2048}), places(all, 2), 16384);
          }
        },
    .reference =
        [](const Tensor& x, const Tensor& place, int64_t rows, const Tensor& weights) {
          const std::vector<double> xv = x.to_vector<double>(),
                                    w = weights.defined() ? weights.to_vector<double>() : std::vector<double>();
          const std::vector<int64_t> at = place.to_vector<int64_t>();
          const int64_t k = place.size(1), d = x.size(1);
          std::vector<double> y(static_cast<size_t>(rows * d), 0.0);
          for (size_t i = 0; i < at.size(); ++i)
            for (int64_t c = 0; at[i] >= 0 && c < d; ++c)
              y[static_cast<size_t>(at[i] * d + c)] =
                  xv[static_cast<size_t>(static_cast<int64_t>(i) / k * d + c)] * (w.empty() ? 1 : w[i]);
          return from_span<double>(y, {rows, d});
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> combine_rows_op{{
    .schema = "combine_rows(Tensor y, Tensor place, Tensor? weights=None) -> Tensor",
    .shard = "r! d, n k!, n k! -> n d",
    .doc = "What dispatch_rows spread, gathered and added up: row n of the result [N, D] is the sum over j of row "
           "place[n, j] of y [R, D], times weights[n, j] where given, for `place` [N, k], i64, whose negative ones are "
           "none. Sums run in f32 (f64 for f64) in the order of j. Places are different ones, as dispatch_rows wants "
           "them. "
           "The gradient of y is dispatch_rows, that of the weights row_dots.",
    .example = "Tensor place = from_span<int64_t>(std::vector<int64_t>{2, 0, -1, 1}, {2, 2});\n"
               "Tensor y = combine_rows(from_span<float>(std::vector<float>{5, 7, 1}, {3, 1}), place);\n"
               "assert(y.to_vector<float>() == std::vector<float>({6, 7}));",
    .infer =
        [](const Tensor& y, const Tensor& place, const Tensor& weights) {
          check<DTypeError>(is_floating(y.dtype()), "combine_rows", "needs floating rows, got ", y);
          check<ShapeError>(y.dim() == 2, "combine_rows", "y is ", y, ", wanted two dimensions");
          check_place("combine_rows", place, weights);
          return like(y).with_shape({place.size(0), y.size(1)});
        },
    .kernels = {.cpu = combine_there<combine_rows_cpu>, .cuda = STRATA_CUDA_KERNEL(combine_there<combine_rows_cuda>)},
    .saves = "y:weights place weights:y",
    .backward =
        [](Backward& b, const Tensor& y, const Tensor& place, const Tensor& weights) {
          if (b.needs(0)) b.set(0, dispatch_rows(b.gy(), place, y.size(0), weights));
          if (b.needs(2)) b.set(2, row_dots(b.gy(), y, place).to(weights.dtype()));
        },
    .cost = [](const Tensor& y, const Tensor& place,
               const Tensor& weights) { return moving_cost(y, place, y.size(0), weights); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({6, 5}), places({4, 0, 2, 5, 1, 3}, 2));
          s.add(s.tensor({8, 5}), places({4, -1, 2, -1, 7, 3}, 2), s.tensor({3, 2})).named("weights, some nowhere");
          s.add(s.tensor({4, 16}), places({3, 1, 0, 2}, 1)).named("one choice");
          s.add(s.tensor({3, 2}), from_span<int64_t>(std::vector<int64_t>{}, {0, 2})).named("no tokens");
          s.invalid<ShapeError>("wanted [tokens, k]", s.tensor({3, 2}), s.integers({3}, 0, 3));
          s.invalid<DTypeError>("i64 places", s.tensor({3, 2}), s.tensor({3, 1}));
          if (s.benchmarking()) {
            std::vector<int64_t> all(16384);
            for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i * 4099 % all.size());
            s.bench(s.tensor({16384, 2048}), places(all, 2), s.tensor({8192, 2}, DType::f32));
          }
        },
    .reference =
        [](const Tensor& y, const Tensor& place, const Tensor& weights) {
          const std::vector<double> yv = y.to_vector<double>(),
                                    w = weights.defined() ? weights.to_vector<double>() : std::vector<double>();
          const std::vector<int64_t> at = place.to_vector<int64_t>();
          const int64_t k = place.size(1), d = y.size(1);
          std::vector<double> x(static_cast<size_t>(place.size(0) * d), 0.0);
          for (size_t i = 0; i < at.size(); ++i)
            for (int64_t c = 0; at[i] >= 0 && c < d; ++c)
              x[static_cast<size_t>(static_cast<int64_t>(i) / k * d + c)] +=
                  yv[static_cast<size_t>(at[i] * d + c)] * (w.empty() ? 1 : w[i]);
          return from_span<double>(x, {place.size(0), d});
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> row_dots_op{{
    .schema = "row_dots(Tensor x, Tensor y, Tensor place) -> Tensor",
    .shard = "n d, r! d, n k! -> n k!",
    .doc = "The inner products of x[n], of x [N, D], with the rows of y [R, D] that place[n, j] names: f32 [N, k] (f64 "
           "for f64), 0 where the place is negative. Places are different ones, as dispatch_rows wants them. It is "
           "what the weights of combine_rows get as gradients.",
    .example =
        "Tensor place = from_span<int64_t>(std::vector<int64_t>{1, -1}, {1, 2});\n"
        "assert(row_dots(ones({1, 3}), full({2, 3}, 2.0), place).to_vector<float>() == std::vector<float>({6, 0}));",
    .infer =
        [](const Tensor& x, const Tensor& y, const Tensor& place) {
          check_rows("row_dots", x, place, "x");
          check_place("row_dots", place, {});
          check<ShapeError>(y.dim() == 2 && y.size(1) == x.size(1), "row_dots", "y is ", y, ", wanted [rows, ",
                            x.size(1), "]");
          check<DTypeError>(x.dtype() == y.dtype(), "row_dots", "dtypes differ: ", x, " and ", y);
          return like(x).with_shape(place.shape()).with_dtype(wide(x.dtype()));
        },
    .kernels = {.cpu = dots_there<row_dots_cpu>, .cuda = STRATA_CUDA_KERNEL(dots_there<row_dots_cuda>)},
    .saves = "x:y y:x place",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& y, const Tensor& place) {
          if (b.needs(0)) b.set(0, combine_rows(y, place, b.gy()));
          if (b.needs(1)) b.set(1, dispatch_rows(x, place, y.size(0), b.gy()));
        },
    .cost = [](const Tensor& x, const Tensor& y,
               const Tensor& place) { return moving_cost(x, place, y.size(0), place); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({6, 5}), places({4, 0, 2, 5, 1, 3}, 2));
          s.add(s.tensor({3, 40}), s.tensor({8, 40}), places({4, -1, 2, -1, 7, 3}, 2)).named("some nowhere");
          s.add(s.tensor({2, 0}), s.tensor({2, 0}), places({1, 0}, 1)).named("empty sums");
          s.invalid<ShapeError>("y is", s.tensor({3, 5}), s.tensor({6, 4}), places({4, 0, 2}, 1));
          s.invalid<DTypeError>("i64 places", s.tensor({3, 2}), s.tensor({3, 2}), s.tensor({3, 1}));
        },
    .reference =
        [](const Tensor& x, const Tensor& y, const Tensor& place) {
          const std::vector<double> xv = x.to_vector<double>(), yv = y.to_vector<double>();
          const std::vector<int64_t> at = place.to_vector<int64_t>();
          const int64_t k = place.size(1), d = x.size(1);
          std::vector<double> dots(at.size(), 0.0);
          for (size_t i = 0; i < at.size(); ++i)
            for (int64_t c = 0; at[i] >= 0 && c < d; ++c)
              dots[i] +=
                  xv[static_cast<size_t>(static_cast<int64_t>(i) / k * d + c)] * yv[static_cast<size_t>(at[i] * d + c)];
          return from_span<double>(dots, place.shape());
        },
}};

}  // namespace

Tensor dispatch_rows(const Tensor& x, const Tensor& place, int64_t rows, const Tensor& weights) {
  return dispatch_rows_op(x, place, rows, weights);
}
Tensor combine_rows(const Tensor& y, const Tensor& place, const Tensor& weights) {
  return combine_rows_op(y, place, weights);
}
Tensor row_dots(const Tensor& x, const Tensor& y, const Tensor& place) {
  return row_dots_op(x, y, place);
}

}  // namespace strata
