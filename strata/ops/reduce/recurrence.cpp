// The linear recurrence that gradients of running products and sums go by.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/recurrence_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

const Op<Tensor(const Tensor&, const Tensor&, int64_t, bool)> linear_recurrence_op{{
    .schema = "linear_recurrence(Tensor a, Tensor b, int dim, bool reverse=false) -> Tensor",
    .shard = "along dim",
    .internal = true,
    .doc = "y[k] = b[k] + a[k] y[k - 1] along dim, and with reverse y[k] = b[k] + a[k + 1] y[k + 1]: a[k] links k - 1 "
           "and k both ways, a[0] nothing. Where y[k - 1] is 0, y[k] is b[k]. Each is the gradient of the other. "
           "Computed in double, as a scan (Blelloch, Prefix Sums and Their Applications, 1990).",
    .infer =
        [](const Tensor& a, const Tensor& b, int64_t dim, bool) {
          constexpr std::string_view op = "linear_recurrence";
          check<ShapeError>(a.shape() == b.shape(), op, "a is ", a, ", b is ", b, ": they must have one shape");
          check<DTypeError>(is_floating(b.dtype()) && a.dtype() == b.dtype(), op, "needs one floating dtype, got ", a,
                            " and ", b);
          wrap_dim(dim, b.dim(), op);
          return like(b);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
      dim = wrap_dim(dim, b.dim(), "linear_recurrence");
      if constexpr (on.cuda)
        linear_recurrence_cuda(y, a, b, dim, reverse);
      else
        linear_recurrence_cpu(y, a, b, dim, reverse);
    }),
    .saves = "a result",
    .backward =
        [](Backward& b, const Tensor& a, const Tensor&, int64_t dim, bool reverse) {
          const Tensor gb = detail::linear_recurrence(a, b.gy(), dim, !reverse);
          if (b.needs(0)) {
            const Tensor &backwards = reverse ? b.y() : gb, forwards = reverse ? gb : b.y();
            b.set(0, backwards.dim() == 0 ? zeros_like(gb) : backwards * detail::shifted(forwards, dim, 0));
          }
          if (b.needs(1)) b.set(1, gb);
        },
    .cost =
        [](const Tensor& a, const Tensor&, int64_t, bool) {
          return Cost{2.0 * static_cast<double>(a.numel()), 3.0 * static_cast<double>(a.nbytes())};
        },
    .samples =
        [](Samples& s) {
          for (const bool reverse : {false, true}) {
            s.add(s.tensor({3, 5}), s.tensor({3, 5}), 1, reverse);
            s.add(s.tensor({7, 3}), s.tensor({7, 3}), 0, reverse);
            s.add(s.uniform({2, 261}, -1, 1), s.tensor({2, 261}), -1, reverse).named("long rows");
            s.add(s.uniform({1, 4500}, -1, 1), s.tensor({1, 4500}), 1, reverse).named("rows of several tiles");
            s.add(s.uniform({600, 3}, -1, 1), s.tensor({600, 3}), 0, reverse).named("long columns");
            s.add(s.tensor({2, 3, 4}), s.tensor({2, 4, 3}).transpose(1, 2), 1, reverse).named("strided");
          }
          s.add(s.tensor({}), s.tensor({}), 0);
          s.add(s.tensor({4, 1}), s.tensor({4, 1}), 1).named("one");
          s.add(s.tensor({0, 3}), s.tensor({0, 3}), 0).named("empty");
          s.invalid<ShapeError>("one shape", s.tensor({3}), s.tensor({4}), 0);
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), s.tensor({3}, DType::i64), 0);
          s.invalid<IndexError>("out of range", s.tensor({3}), s.tensor({3}), 1);
          if (s.benchmarking()) s.bench(s.uniform({4096, 4096}, -1, 1), s.tensor({4096, 4096}), 1, true);
        },
    .reference =
        [](const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
          const auto row = [](const Tensor& t) {
            return Array(t.dim() == 0 ? Shape{1} : t.shape(), t.to_vector<double>());
          };
          const Array links = row(a), terms = row(b);
          Array y = terms;
          const int64_t d = naive::from_front(dim, b.dim()), n = terms.shape()[static_cast<int>(d)];
          for (int64_t i = 1; i < n; ++i) {
            const int64_t k = reverse ? n - 1 - i : i;
            naive::each(y.shape(), [&](const Dims& place) {
              if (place[static_cast<int>(d)] != k) return;
              const Dims before = naive::moved(place, d, reverse ? k + 1 : k - 1);
              y[place] = terms[place] + links[reverse ? before : place] * y[before];
            });
          }
          return Tensor(Array(b.shape(), Tensor(y).to_vector<double>()));
        },
}};

}  // namespace

Tensor detail::linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
  return linear_recurrence_op(a, b, dim, reverse);
}
Tensor detail::shifted(const Tensor& x, int64_t dim, double value) {
  const int64_t n = x.size(dim);
  if (n == 0) return x;
  Shape one = x.shape();
  one[wrap_dim(dim, x.dim(), "shifted")] = 1;
  const DeviceScope there(x.device());
  return cat({full(one, value, x.dtype()), slice(x, dim, 0, n - 1)}, dim);
}

}  // namespace strata
