// Tensors in parts, turned, and as grids.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

// ---- parts

int64_t split_dim(const Tensor& x, int64_t dim, std::string_view op) {
  check<ShapeError>(x.dim() > 0, op, "a 0-dim tensor cannot be split");
  return wrap_dim(dim, x.dim(), op);
}
TensorList parts_at(const Tensor& x, int64_t dim, const std::vector<int64_t>& begins) {
  TensorList parts;
  const int64_t size = x.shape()[dim];
  const auto place = [&](int64_t p) { return std::clamp<int64_t>(p < 0 ? p + size : p, 0, size); };
  int64_t begin = 0;
  for (size_t i = 0; i <= begins.size(); ++i) {
    const int64_t end = i < begins.size() ? place(begins[i]) : size;
    parts.push_back(slice(x, dim, begin, std::max(begin, end)));
    begin = end;
  }
  return parts;
}
Tensor part_by_hand(const Array& x, int64_t dim, int64_t begin, int64_t end) {
  Shape shape = x.shape();
  shape[dim] = std::max<int64_t>(0, end - begin);
  Array y(shape);
  naive::each(shape, [&](const Dims& p) { y[p] = x[naive::moved(p, dim, p[dim] + begin)]; });
  return y;
}

const Op<TensorList(const Tensor&, int64_t, int64_t)> tensor_split_op{{
    .schema = "tensor_split(Tensor x, int sections, int dim=0) -> Tensor[]",
    .doc = "`sections` views along dim, as equal as can be, the longer ones first; at most 2^16, or as many as the "
           "dimension "
           "has.",
    .example = "TensorList p = tensor_split(arange(5), 3); assert(p[0].numel() == 2 && p[2].numel() == 1);",
    .composed =
        [](const Tensor& x, int64_t sections, int64_t dim) {
          dim = split_dim(x, dim, "tensor_split");
          const int64_t most = std::max<int64_t>(x.shape()[dim], 1 << 16);
          check(sections >= 1 && sections <= most, "tensor_split", "sections must be between 1 and ", most, ", got ",
                sections);
          const int64_t each = x.shape()[dim] / sections, longer = x.shape()[dim] % sections;
          std::vector<int64_t> begins;
          for (int64_t i = 1; i < sections; ++i) begins.push_back(i * each + std::min(i, longer));
          return parts_at(x, dim, begins);
        },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7, 2}), 3).not_differentiable();
          s.add(s.tensor({2, 3}), 5, -1).not_differentiable();
          s.add(s.tensor({4}), 1);
          s.invalid<ValueError>("sections", s.tensor({3}), 0);
          s.invalid<ValueError>("between 1 and 65536", s.tensor({3}), 65537);
          s.invalid<ShapeError>("0-dim", s.tensor({}), 2);
        },
    .reference =
        [](const Tensor& x, int64_t sections, int64_t dim) {
          const Array all(x);
          dim = naive::from_front(dim, x.dim());
          TensorList parts;
          int64_t begin = 0;
          for (int64_t i = 0; i < sections; ++i) {
            // What is left, shared among the parts that are left, rounded up.
            const int64_t left = x.shape()[dim] - begin, size = (left + sections - i - 1) / (sections - i);
            parts.push_back(part_by_hand(all, dim, begin, begin + size));
            begin += size;
          }
          return parts;
        },
}};
// ---- turns

Cost move_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

const Op<Tensor(const Tensor&, int64_t, const Dims&)> rot90_op{{
    .schema = "rot90(Tensor x, int k=1, int[] dims=[0, 1]) -> Tensor",
    .doc = "x turned k times by 90 degrees, from the first of two different dims to the second.",
    .example =
        "Tensor y = rot90(arange(4).view({2, 2})); assert(y.to_vector<int64_t>() == std::vector<int64_t>({1, 3, 0, "
        "2}));",
    .composed =
        [](const Tensor& x, int64_t k, const Dims& dims) {
          check(dims.size() == 2, "rot90", "needs two dims, got ", dims);
          check<ShapeError>(x.dim() >= 2, "rot90", "needs at least two dimensions, got ", x);
          const int64_t a = wrap_dim(dims[0], x.dim(), "rot90"), b = wrap_dim(dims[1], x.dim(), "rot90");
          check(a != b, "rot90", "the dims must be different, got ", dims);
          switch ((k % 4 + 4) % 4) {
            case 1:
              return transpose(flip(x, {b}), a, b);
            case 2:
              return flip(x, {a, b});
            case 3:
              return flip(transpose(x, a, b), {b});
            default:
              return clone(x);
          }
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, const Dims&) { return move_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}));
          s.add(s.tensor({2, 3, 4}), 3, Dims{-1, 0});
          s.add(s.tensor({2, 3}), -2);
          s.add(s.tensor({2, 3}), 4);
          s.invalid<ValueError>("must be different", s.tensor({2, 3}), 1, Dims{1, -1});
          s.invalid<ValueError>("two dims", s.tensor({2, 3}), 1, Dims{1});
          s.invalid<ShapeError>("two dimensions", s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, int64_t k, const Dims& dims) {
          Array y(x);
          const int64_t a = naive::from_front(dims[0], x.dim()), b = naive::from_front(dims[1], x.dim());
          for (int64_t i = 0; i < ((k % 4) + 4) % 4; ++i) {
            Shape turned = y.shape();
            std::swap(turned[a], turned[b]);
            Array z(turned);
            naive::each(turned, [&](const Dims& p) {
              Dims from = p;
              from[a] = p[b];
              from[b] = y.shape()[b] - 1 - p[a];
              z[p] = y[from];
            });
            y = z;
          }
          return Tensor(y);
        },
}};

template <int Dim>
Tensor mirrored(const Tensor& x) {
  const Array from(x);
  Array y(x.shape());
  naive::each(x.shape(), [&](const Dims& p) { y[p] = from[naive::moved(p, Dim, x.shape()[Dim] - 1 - p[Dim])]; });
  return y;
}
const Op<Tensor(const Tensor&)> fliplr_op{{
    .schema = "fliplr(Tensor x) -> Tensor",
    .doc = "The columns (the second dimension) in reverse.",
    .example = "assert(fliplr(arange(2).view({1, 2})).to_vector<int64_t>() == std::vector<int64_t>({1, 0}));",
    .composed =
        [](const Tensor& x) {
          check<ShapeError>(x.dim() >= 2, "fliplr", "needs at least two dimensions, got ", x);
          return flip(x, {1});
        },
    .dtypes = kAllTypes,
    .cost = move_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}));
          s.invalid<ShapeError>("two dimensions", s.tensor({3}));
        },
    .reference = mirrored<1>,
}};
const Op<Tensor(const Tensor&)> flipud_op{{
    .schema = "flipud(Tensor x) -> Tensor",
    .doc = "The rows (the first dimension) in reverse.",
    .example = "assert(flipud(arange(2)).to_vector<int64_t>() == std::vector<int64_t>({1, 0}));",
    .composed =
        [](const Tensor& x) {
          check<ShapeError>(x.dim() >= 1, "flipud", "needs at least one dimension, got ", x);
          return flip(x, {0});
        },
    .dtypes = kAllTypes,
    .cost = move_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}));
          s.add(s.tensor({4}));
          s.invalid<ShapeError>("one dimension", s.tensor({}));
        },
    .reference = mirrored<0>,
}};

const Op<Tensor(const Tensor&)> trace_op{{
    .schema = "trace(Tensor x) -> Tensor",
    .doc = "The sum of a matrix's diagonal; integers in i64. ShapeError unless x is a matrix.",
    .example = "assert(trace(arange(4).view({2, 2})).item() == 3);",
    .composed =
        [](const Tensor& x) {
          check<ShapeError>(x.dim() == 2, "trace", "needs a matrix, got ", x);
          return sum(diagonal(x));
        },
    .autocast = Autocast::full,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x) {
          const double n = x.dim() == 2 ? static_cast<double>(std::min(x.shape()[0], x.shape()[1])) : 0;
          return Cost{n, n * static_cast<double>(size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 3}));
          s.add(s.tensor({2, 4}));
          s.add(s.tensor({0, 2}));
          s.invalid<ShapeError>("needs a matrix", s.tensor({2, 2, 2}));
          s.invalid<ShapeError>("needs a matrix", s.tensor({2}));
        },
    .reference =
        [](const Tensor& x) {
          const Array v(x);
          double total = 0;
          for (int64_t i = 0; i < std::min(x.shape()[0], x.shape()[1]); ++i) total += v[{i, i}];
          return Tensor(Array(Shape{}, total));
        },
}};

const Op<Tensor(const Tensor&, int64_t)> diagflat_op{{
    .schema = "diagflat(Tensor x, int offset=0) -> Tensor",
    .doc = "A matrix with the elements of x in row-major order on its offset-th diagonal and zeros elsewhere.",
    .example = "assert(diagflat(ones({2, 2})).shape() == Shape({4, 4}));",
    .composed = [](const Tensor& x, int64_t offset) { return diag_embed(reshape(x, {x.numel()}), offset); },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t) {
          return Cost{0, static_cast<double>(x.numel() * x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 2}));
          s.add(s.tensor({3}), -1);
          s.add(s.tensor({}), 2);
        },
    .reference =
        [](const Tensor& x, int64_t offset) {
          const Array v(x);
          const int64_t n = v.size() + std::abs(offset);
          Array y(Shape{n, n});
          for (int64_t i = 0; i < v.size(); ++i)
            y[{i + std::max<int64_t>(0, -offset), i + std::max<int64_t>(0, offset)}] = v.flat(i);
          return Tensor(y);
        },
}};

// ---- grids

const Op<Tensor(const Tensor&, std::optional<int64_t>, bool)> vander_op{{
    .schema = "vander(Tensor x, int? n=None, bool increasing=false) -> Tensor",
    .doc =
        "Powers n - 1, ..., 0 (increasing: 0, ..., n - 1) of each element of a vector, a row each; n defaults to the "
        "vector's length. Running products, so gradients are right at 0 too.",
    .example = "assert(vander(arange(3), 2).to_vector<int64_t>() == std::vector<int64_t>({0, 1, 1, 1, 2, 1}));",
    .composed =
        [](const Tensor& x, std::optional<int64_t> n, bool increasing) {
          check<ShapeError>(x.dim() == 1, "vander", "needs a 1-D tensor, got ", x);
          const int64_t columns = n.value_or(x.numel());
          check(columns >= 0 && columns < int64_t{1} << 31, "vander", "n must not be negative or above 2^31, got ",
                columns);
          const Tensor v = x.dtype() == DType::boolean || !is_floating(x.dtype()) ? to(x, DType::i64) : x;
          const Tensor one = full_like(empty(like(v).with_shape({x.numel(), std::min<int64_t>(columns, 1)})), 1);
          if (columns < 2) return one;
          const Tensor rest = cumprod(expand(unsqueeze(v, 1), {x.numel(), columns - 1}), 1);
          const Tensor y = cat({one, rest}, 1);
          return increasing ? y : flip(y, {1});
        },
    .dtypes = kFloats | kInts,
    .cost =
        [](const Tensor& x, std::optional<int64_t> n, bool) {
          const double all = static_cast<double>(x.numel()) * static_cast<double>(n.value_or(x.numel()));
          return Cost{all, all * static_cast<double>(size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4}));
          s.add(s.tensor({3}), 5, true);
          s.add(s.tensor({3}), 1).not_differentiable();
          s.add(s.tensor({3}), 0).not_differentiable();
          s.invalid<ShapeError>("1-D", s.tensor({2, 2}));
          s.invalid<ValueError>("negative", s.tensor({2}), -1);
        },
    .reference =
        [](const Tensor& x, std::optional<int64_t> n, bool increasing) {
          const Array v(x);
          const int64_t columns = n.value_or(x.numel());
          Array y(Shape{x.numel(), columns});
          naive::each(y.shape(), [&](const Dims& p) {
            y[p] = std::pow(v.flat(p[0]), static_cast<double>(increasing ? p[1] : columns - 1 - p[1]));
          });
          return Tensor(y);
        },
}};

const Op<Tensor(const TensorList&)> cartesian_prod_op{{
    .schema = "cartesian_prod(Tensor[] tensors) -> Tensor",
    .doc = "Every choice of one element from each vector, a row each, the last vector changing fastest; of one vector "
           "itself.",
    .example = "assert(cartesian_prod({arange(2), arange(3)}).shape() == Shape({6, 2}));",
    .composed =
        [](const TensorList& tensors) {
          check<ShapeError>(!tensors.empty(), "cartesian_prod", "needs at least one tensor");
          for (const Tensor& t : tensors)
            check<ShapeError>(t.dim() == 1, "cartesian_prod", "needs 1-D tensors, got ", t);
          if (tensors.size() == 1) return tensors[0];
          TensorList columns;
          for (const Tensor& g : meshgrid(tensors)) columns.push_back(reshape(g, {g.numel()}));
          return stack(columns, 1);
        },
    .dtypes = kAllTypes,
    .cost =
        [](const TensorList& tensors) {
          double rows = 1;
          for (const Tensor& t : tensors) rows *= static_cast<double>(t.numel());
          return Cost{rows, tensors.empty() ? 0
                                            : rows * static_cast<double>(tensors.size()) *
                                                  static_cast<double>(size_of(tensors[0].dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({2}), s.tensor({3})});
          s.add(TensorList{s.tensor({2}), s.tensor({1}), s.tensor({3})});
          s.add(TensorList{s.tensor({4})});
          s.invalid<ShapeError>("1-D", TensorList{s.tensor({2, 2})});
          s.invalid<ShapeError>("at least one", TensorList{});
        },
    .reference =
        [](const TensorList& tensors) {
          if (tensors.size() == 1) return Tensor(Array(tensors[0]));
          Shape grid;
          for (const Tensor& t : tensors) grid.push_back(t.numel());
          Array y(Shape{grid.product(), grid.size()});
          std::vector<Array> columns;
          for (const Tensor& t : tensors) columns.emplace_back(t);
          int64_t row = 0;
          naive::each(grid, [&](const Dims& p) {
            for (int64_t i = 0; i < grid.size(); ++i) y[{row, i}] = columns[static_cast<size_t>(i)].flat(p[i]);
            ++row;
          });
          return Tensor(y);
        },
}};

// Calls f with each choice of r > 0 places below n, in lexicographic order; again: a place may be chosen more than
// once.
template <class F>
void choices(int64_t n, int64_t r, bool again, F&& f) {
  if (n == 0 || (!again && r > n)) return;
  std::vector<int64_t> chosen(static_cast<size_t>(r), 0);
  if (!again) std::iota(chosen.begin(), chosen.end(), 0);
  for (;;) {
    f(chosen);
    int64_t last = r - 1;  // the last that can go on
    const auto at_end = [&](int64_t j) { return chosen[static_cast<size_t>(j)] == (again ? n - 1 : n - r + j); };
    while (last >= 0 && at_end(last)) --last;
    if (last < 0) return;
    int64_t place = ++chosen[static_cast<size_t>(last)];
    for (int64_t j = last + 1; j < r; ++j) chosen[static_cast<size_t>(j)] = again ? place : ++place;
  }
}

const Op<Tensor(const Tensor&, int64_t, bool)> combinations_op{{
    .schema = "combinations(Tensor x, int r=2, bool with_replacement=false) -> Tensor",
    .doc = "Every choice of r elements of a vector (with_replacement: also the same again), a row each, in order of "
           "their places; empty for r = 0.",
    .example =
        "Tensor y = combinations(arange(3)); assert(y.to_vector<int64_t>() == std::vector<int64_t>({0, 1, 0, 2, 1, "
        "2}));",
    .composed =
        [](const Tensor& x, int64_t r, bool with_replacement) {
          check<ShapeError>(x.dim() == 1, "combinations", "needs a 1-D tensor, got ", x);
          check(r >= 0, "combinations", "r must not be negative, got ", r);
          if (r == 0) return empty(like(x).with_shape({0}));
          const int64_t n = x.numel();
          const auto fit = [&](bool yes) {
            check<ShapeError>(yes, "combinations", "of ", r, " out of ", n, " elements there are too many");
          };
          fit(r < 1 << 28);
          const int64_t from = with_replacement ? n + r - 1 : n;
          double rows = 1;
          for (int64_t i = 0; i < std::min(r, from - r); ++i)
            rows *= static_cast<double>(from - i) / static_cast<double>(i + 1);
          fit(rows * static_cast<double>(r) < 0x1p28);
          if (r == 1) return clone(unsqueeze(x, 1));
          if (r == 2 && n > 0) {
            const DeviceScope there(x.device());
            const Tensor places = triu_indices(n, n, with_replacement ? 0 : 1);
            return reshape(index_select(x, 0, reshape(places.t(), {places.numel()})), {places.size(1), 2});
          }
          std::vector<int64_t> places;
          choices(n, r, with_replacement,
                  [&](const std::vector<int64_t>& c) { places.insert(places.end(), c.begin(), c.end()); });
          const auto count = static_cast<int64_t>(places.size());
          const Tensor index = to(from_span<int64_t>(places, {count}), x.device());
          return reshape(index_select(x, 0, index), {count / r, r});
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t r, bool) {  // no more than all lists of r places
          const double lists = std::pow(static_cast<double>(x.numel()), static_cast<double>(r));
          return Cost{lists, lists * static_cast<double>(r) * static_cast<double>(size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4}));
          s.add(s.tensor({4}), 3, true);
          s.add(s.tensor({2}), 3);
          s.add(s.tensor({3}), 1);
          s.add(s.tensor({3}), 0).not_differentiable();
          s.invalid<ShapeError>("1-D", s.tensor({2, 2}));
          s.invalid<ShapeError>("too many", s.tensor({3}), std::numeric_limits<int64_t>::max(), true);
          s.invalid<ValueError>("negative", s.tensor({3}), -1);
        },
    .reference =
        [](const Tensor& x, int64_t r, bool with_replacement) {
          const Array v(x);
          if (r == 0) return Tensor(Array(Shape{0}));
          std::vector<double> all;
          int64_t rows = 0;
          naive::each(Shape::filled(static_cast<int>(r), x.numel()),
                      [&](const Dims& p) {  // all, but those in order stay
                        for (int i = 1; i < p.size(); ++i)
                          if (p[i] < p[i - 1] || (p[i] == p[i - 1] && !with_replacement)) return;
                        for (const int64_t i : p) all.push_back(v.flat(i));
                        ++rows;
                      });
          return Tensor(Array(Shape{rows, r}, all));
        },
}};

}  // namespace

TensorList tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  return tensor_split_op(x, sections, dim);
}
TensorList tensor_split(const Tensor& x, const Tensor& indices, int64_t dim) {
  dim = split_dim(x, dim, "tensor_split");
  check<ShapeError>(indices.dim() == 1, "tensor_split", "indices must be 1-D, got ", indices);
  check<DTypeError>(is_integral(indices.dtype()), "tensor_split", "indices must be integers, got ", indices);
  return parts_at(x, dim, indices.to_vector<int64_t>());
}
Tensor rot90(const Tensor& x, int64_t k, const Dims& dims) {
  return rot90_op(x, k, dims);
}
Tensor fliplr(const Tensor& x) {
  return fliplr_op(x);
}
Tensor flipud(const Tensor& x) {
  return flipud_op(x);
}
Tensor trace(const Tensor& x) {
  return trace_op(x);
}
Tensor diagflat(const Tensor& x, int64_t offset) {
  return diagflat_op(x, offset);
}
Tensor vander(const Tensor& x, std::optional<int64_t> n, bool increasing) {
  return vander_op(x, n, increasing);
}
Tensor cartesian_prod(const TensorList& tensors) {
  return cartesian_prod_op(tensors);
}
Tensor combinations(const Tensor& x, int64_t r, bool with_replacement) {
  return combinations_op(x, r, with_replacement);
}

}  // namespace strata
