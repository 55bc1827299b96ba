// The order of elements along dimensions, and of dimensions: roll, flip, movedim.

#include <algorithm>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/shape/shape_kernels.h"
#include "strata/ops/shape/shape_reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Cost move_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

// The places that each dimension is moved by, in [0, size): shifts of one dimension add up. Without `dims` the
// flattened x has the only one.
Dims places_moved(const Tensor& x, const Dims& shifts, const Dims& dims) {
  const auto within = [](int64_t shift, int64_t n) { return n == 0 ? 0 : (shift % n + n) % n; };
  if (dims.empty()) {
    check(shifts.size() == 1, "roll", "without dims one shift is wanted, got ", shifts);
    return {within(shifts[0], x.numel())};
  }
  check(shifts.size() == dims.size(), "roll", "shifts ", shifts, " and dims ", dims, " differ in length");
  Dims by = Dims::filled(std::max(1, static_cast<int>(x.dim())), 0);
  for (int i = 0; i < dims.size(); ++i) {
    const int64_t d = wrap_dim(dims[i], x.dim(), "roll"), n = x.dim() == 0 ? 1 : x.shape()[d];
    by[d] = within(within(shifts[i], n) + by[d], n);
  }
  return by;
}

// Copies x to y, both from dimension d on still to be moved: each in two parts, so that an element is copied once.
void roll_parts(const Tensor& y, const Tensor& x, const Dims& by, int64_t d) {
  while (d < by.size() && by[d] == 0) ++d;
  if (d == by.size()) return copy_elements(y, x);
  const int64_t n = x.size(d), first = n - by[d];
  roll_parts(slice(y, d, by[d], n), slice(x, d, 0, first), by, d + 1);
  roll_parts(slice(y, d, 0, by[d]), slice(x, d, first, n), by, d + 1);
}

template <class On>
void roll_into(On, Tensor& y, const Tensor& x, const Dims& shifts, const Dims& dims) {
  const Dims by = places_moved(x, shifts, dims);
  if (x.numel() == 0) return;
  const Tensor to = dims.empty() ? y.view({x.numel()}) : y, from = dims.empty() ? reshape(x, {x.numel()}) : x;
  if constexpr (On::cuda)
    if (roll_at_once_cuda(to, from, by)) return;
  roll_parts(to, from, by, 0);
}

const Op<Tensor(const Tensor&, const Dims&, const Dims&)> roll_op{{
    .schema = "roll(Tensor x, int[] shifts, int[] dims=[]) -> Tensor",
    .shard = "along dims",
    .doc = "Elements moved by shifts[i] places along dims[i]; those beyond the end come back at the start. Without "
           "dims the flattened x is rolled, and the result is row-major.",
    .example = "assert(roll(arange(4), {1}).to_vector<int64_t>() == std::vector<int64_t>({3, 0, 1, 2}));",
    .infer =
        [](const Tensor& x, const Dims& shifts, const Dims& dims) {
          places_moved(x, shifts, dims);
          return dims.empty() ? like(x) : laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& shifts, const Dims& dims) {
      roll_into(on, y, x, shifts, dims);
    }),
    .backward =
        [](Backward& b, const Tensor&, const Dims& shifts, const Dims& dims) {
          Dims back = shifts;
          for (int64_t& s : back) s = -s;
          b.set(0, roll(b.gy(), back, dims));
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&, const Dims&) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Dims{1});
          s.add(s.tensor({2, 3}), Dims{-1, 4}, Dims{0, 1});
          s.add(s.tensor({2, 3, 4}), Dims{1, -2, 5}, Dims{2, 1, 2}).named("a dimension twice");
          s.add(s.tensor({3, 2}).t(), Dims{1, 1}, Dims{0, 1}).named("turned");
          s.add(s.tensor({3, 2}).t(), Dims{2}).named("turned, flattened");
          s.add(s.tensor({3, 8, 8}), Dims{4}, Dims{1}).named("whole vectors");
          s.add(s.tensor({3, 8, 8}), Dims{1, 3}, Dims{0, 2}).named("rows of vectors");
          s.add(s.tensor({9, 7}).slice(1, 0, 7, 2), Dims{2, 3}, Dims{0, 1}).named("every second element");
          s.add(expand(s.tensor({3, 1}), {3, 5}), Dims{1, 2}, Dims{0, 1}).named("broadcast");
          s.add(s.tensor({}), Dims{1}, Dims{0});
          s.add(s.tensor({0, 3}), Dims{1}, Dims{0});
          s.invalid<ValueError>("differ in length", s.tensor({3}), Dims{1, 2}, Dims{0});
          s.invalid<ValueError>("one shift is wanted", s.tensor({3}), Dims{1, 2});
          s.invalid<IndexError>("out of range", s.tensor({3}), Dims{1}, Dims{1});
        },
    .reference = by_loops::rolled,
}};

const Op<Tensor(const Tensor&, const Dims&)> flip_op{{
    .schema = "flip(Tensor x, int[] dims) -> Tensor",
    .shard = "along dims",
    .doc = "The order along each of dims reversed (a copy).",
    .infer =
        [](const Tensor& x, const Dims& dims) {
          unsigned seen = 0;
          for (int64_t d : dims) {
            const int64_t w = wrap_dim(d, x.dim(), "flip");
            check(!(seen >> w & 1), "flip", "dims ", dims, " lists dimension ", w, " twice");
            seen |= 1u << w;
          }
          return laid_like(x);
        },
    .kernels = {.everywhere = flip_into},
    .backward = [](Backward& b, const Tensor&, const Dims& dims) { b.set(0, flip(b.gy(), dims)); },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Dims&) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), Dims{0, -1});
          s.add(s.tensor({2, 3, 2}), Dims{1});
          s.add(s.tensor({0, 3}), Dims{0});
          s.add(s.tensor({}), Dims{0});
          s.invalid<ValueError>("twice", s.tensor({2, 3}), Dims{1, -1});
          s.invalid<IndexError>("out of range", s.tensor({3}), Dims{1});
        },
    .reference =
        [](const Tensor& x, const Dims& dims) {
          Tensor y = clone(x);
          for (int64_t d : dims) {
            if (x.dim() == 0) break;
            const Tensor before = clone(y);
            for (int64_t i = 0; i < x.size(d); ++i) select(y, d, i).copy_(select(before, d, x.size(d) - 1 - i));
          }
          return y;
        },
}};

const Op<Tensor(const Tensor&, const Dims&, const Dims&)> movedim_op{{
    .schema = "movedim(Tensor x, int[] source, int[] destination) -> Tensor",
    .aliases = "moveaxis",
    .doc = "Dimension source[i] moved to place destination[i], the others in their order, as a view.",
    .composed =
        [](const Tensor& x, const Dims& source, const Dims& destination) {
          check(source.size() == destination.size(), "movedim", "source ", source, " and destination ", destination,
                " differ in length");
          const int n = static_cast<int>(x.dim());
          Dims order = Dims::filled(n, -1);
          unsigned moved = 0;
          for (int i = 0; i < source.size(); ++i) {
            const int64_t from = wrap_dim(source[i], n, "movedim"), to = wrap_dim(destination[i], n, "movedim");
            check(!(moved >> from & 1), "movedim", "source ", source, " lists dimension ", from, " twice");
            if (n == 0) continue;
            check(order[to] < 0, "movedim", "destination ", destination, " lists place ", to, " twice");
            moved |= 1u << from;
            order[to] = from;
          }
          for (int64_t d = 0, place = 0; d < n; ++d) {
            if (moved >> d & 1) continue;
            while (order[place] >= 0) ++place;
            order[place] = d;
          }
          return permute(x, order);
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 4}), Dims{0}, Dims{-1});
          s.add(s.tensor({2, 3, 4}), Dims{2, 0}, Dims{0, 1});
          s.invalid<ValueError>("differ in length", s.tensor({2, 3}), Dims{0}, Dims{0, 1});
          s.invalid<ValueError>("twice", s.tensor({2, 3}), Dims{0, 0}, Dims{0, 1});
        },
    .reference = by_loops::dims_moved,
}};

}  // namespace

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  return roll_op(x, shifts, dims);
}
Tensor flip(const Tensor& x, const Dims& dims) {
  return flip_op(x, dims);
}
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  return movedim_op(x, source, destination);
}

}  // namespace strata
