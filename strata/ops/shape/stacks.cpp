// Tensors with more dimensions, and side by side.

#include <algorithm>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;
using UnaryOp = Op<Tensor(const Tensor&)>;
using ListOp = Op<Tensor(const TensorList&)>;

Shape at_least(const Shape& shape, int rank) {
  Shape s = shape;
  if (rank == 3 && s.size() == 2) {
    s.push_back(1);
    return s;
  }
  if (rank == 3 && s.size() == 1) return {1, s[0], 1};
  while (s.size() < rank) s.insert(0, 1);
  return s;
}
Tensor with_rank(const Tensor& x, int rank) {
  return x.dim() >= rank ? x : reshape(x, at_least(x.shape(), rank));
}
Tensor alias_with_rank(const Tensor& x, int rank) {
  return Array(x.dim() >= rank ? x.shape() : at_least(x.shape(), rank), x.to_vector<double>());
}
void samples_rank(Samples& s) {
  s.add(s.tensor({}));
  s.add(s.tensor({3}));
  s.add(s.tensor({2, 3}));
  s.add(s.tensor({2, 0, 3}));
  s.add(s.tensor({1, 2, 3, 2}));
}
UnaryOp::Record ranked(std::string_view schema, std::string_view doc, std::string_view example,
                       Tensor (*composed)(const Tensor&), Tensor (*reference)(const Tensor&)) {
  return {.schema = schema,
          .doc = doc,
          .example = example,
          .composed = composed,
          .dtypes = kAllTypes,
          .samples = samples_rank,
          .reference = reference};
}
const UnaryOp atleast_1d_op{ranked(
    "atleast_1d(Tensor x) -> Tensor", "x, as a view with one dimension where it has none.",
    "assert(atleast_1d(full({}, 2)).shape() == Shape({1}));", [](const Tensor& x) { return with_rank(x, 1); },
    [](const Tensor& x) { return alias_with_rank(x, 1); })};
const UnaryOp atleast_2d_op{ranked(
    "atleast_2d(Tensor x) -> Tensor", "x, as a view with two dimensions where it has fewer: new ones come first.",
    "assert(atleast_2d(arange(3)).shape() == Shape({1, 3}));", [](const Tensor& x) { return with_rank(x, 2); },
    [](const Tensor& x) { return alias_with_rank(x, 2); })};
const UnaryOp atleast_3d_op{ranked(
    "atleast_3d(Tensor x) -> Tensor",
    "x, as a view with three dimensions where it has fewer: a vector [n] becomes [1, n, 1], a matrix [n, m] becomes "
    "[n, "
    "m, 1].",
    "assert(atleast_3d(arange(3)).shape() == Shape({1, 3, 1}));", [](const Tensor& x) { return with_rank(x, 3); },
    [](const Tensor& x) { return alias_with_rank(x, 3); })};

// ---- side by side

void check_some(const TensorList& tensors, std::string_view op) {
  check<ShapeError>(!tensors.empty(), op, "needs at least one tensor");
}
template <class F>
TensorList each_of(const TensorList& tensors, F f) {
  TensorList all;
  all.reserve(tensors.size());
  for (const Tensor& t : tensors) all.push_back(f(t));
  return all;
}
Tensor column(const Tensor& t) {
  return t.dim() < 2 ? reshape(t, {t.numel(), 1}) : t;
}
// The tensors as arrays of the given shapes, one after the other along dim.
template <class F>
Array joined(const TensorList& tensors, int64_t dim, F shape_of) {
  Shape whole = shape_of(tensors[0]);
  whole[dim] = 0;
  for (const Tensor& t : tensors) whole[dim] += shape_of(t)[dim];
  Array y(whole);
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    const Array from(shape_of(t), t.to_vector<double>());
    naive::each(from.shape(), [&](const Dims& p) { y[naive::moved(p, dim, p[dim] + at)] = from[p]; });
    at += from.shape()[dim];
  }
  return y;
}
Shape with_some(const Tensor& t, int rank) {
  return t.dim() >= rank ? t.shape() : at_least(t.shape(), rank);
}
Cost list_cost(const TensorList& tensors) {
  double n = 0;
  for (const Tensor& t : tensors) n += static_cast<double>(t.nbytes());
  return {0, 2 * n};
}
void samples_stack(Samples& s) {
  s.add(TensorList{s.tensor({3}), s.tensor({3})});
  s.add(TensorList{s.tensor({2, 3}), s.tensor({2, 3})});
  s.add(TensorList{s.tensor({}), s.tensor({})});
  s.add(TensorList{s.tensor({2, 1, 3})});
  s.invalid<ShapeError>("at least one", TensorList{});
  s.invalid<ShapeError>("must agree", TensorList{s.tensor({2, 3}), s.tensor({4, 5})});
}

const ListOp hstack_op{{
    .schema = "hstack(Tensor[] tensors) -> Tensor",
    .doc = "The tensors one after the other along the second dimension; numbers and vectors along the first. Different "
           "dtypes are promoted.",
    .example = "assert(hstack({zeros({2, 1}), ones({2, 2})}).shape() == Shape({2, 3}));",
    .composed =
        [](const TensorList& tensors) {
          check_some(tensors, "hstack");
          const TensorList all = each_of(tensors, [](const Tensor& t) { return with_rank(t, 1); });
          return cat(all, all[0].dim() == 1 ? 0 : 1);
        },
    .dtypes = kAllTypes,
    .cost = list_cost,
    .samples = samples_stack,
    .reference =
        [](const TensorList& tensors) {
          return Tensor(joined(tensors, tensors[0].dim() < 2 ? 0 : 1, [](const Tensor& t) { return with_some(t, 1); }));
        },
}};
const ListOp vstack_op{{
    .schema = "vstack(Tensor[] tensors) -> Tensor",
    .doc = "The tensors one after the other along the first dimension; numbers and vectors are rows. Different dtypes "
           "are promoted.",
    .example = "assert(vstack({arange(3), arange(3)}).shape() == Shape({2, 3}));",
    .composed =
        [](const TensorList& tensors) {
          check_some(tensors, "vstack");
          return cat(each_of(tensors, [](const Tensor& t) { return with_rank(t, 2); }), 0);
        },
    .dtypes = kAllTypes,
    .cost = list_cost,
    .samples = samples_stack,
    .reference =
        [](const TensorList& tensors) {
          return Tensor(joined(tensors, 0, [](const Tensor& t) { return with_some(t, 2); }));
        },
}};
const ListOp dstack_op{{
    .schema = "dstack(Tensor[] tensors) -> Tensor",
    .doc =
        "The tensors one after the other along the third dimension, after atleast_3d. Different dtypes are promoted.",
    .example = "assert(dstack({arange(3), arange(3)}).shape() == Shape({1, 3, 2}));",
    .composed =
        [](const TensorList& tensors) {
          check_some(tensors, "dstack");
          return cat(each_of(tensors, [](const Tensor& t) { return with_rank(t, 3); }), 2);
        },
    .dtypes = kAllTypes,
    .cost = list_cost,
    .samples = samples_stack,
    .reference =
        [](const TensorList& tensors) {
          return Tensor(joined(tensors, 2, [](const Tensor& t) { return with_some(t, 3); }));
        },
}};
const ListOp column_stack_op{{
    .schema = "column_stack(Tensor[] tensors) -> Tensor",
    .doc = "Vectors as columns, matrices side by side. Different dtypes are promoted.",
    .example = "assert(column_stack({arange(3), arange(3)}).shape() == Shape({3, 2}));",
    .composed =
        [](const TensorList& tensors) {
          check_some(tensors, "column_stack");
          return cat(each_of(tensors, column), 1);
        },
    .dtypes = kAllTypes,
    .cost = list_cost,
    .samples =
        [](Samples& s) {
          samples_stack(s);
          s.add(TensorList{s.tensor({3}), s.tensor({3, 2})});
        },
    .reference =
        [](const TensorList& tensors) {
          return Tensor(joined(tensors, 1, [](const Tensor& t) {
            return t.dim() < 2 ? Shape{t.numel(), 1} : t.shape();
          }));
        },
}};

const ListOp block_diag_op{{
    .schema = "block_diag(Tensor[] tensors) -> Tensor",
    .shard = "whole",
    .doc =
        "A matrix with the given ones along its diagonal and zeros elsewhere; vectors and numbers are rows. Different "
        "dtypes are promoted.",
    .example = "assert(block_diag({ones({1, 2}), ones({2, 1})}).shape() == Shape({3, 3}));",
    .infer =
        [](const TensorList& tensors) {
          check_some(tensors, "block_diag");
          Shape whole{0, 0};
          DType common = tensors[0].dtype();
          for (const Tensor& t : tensors) {
            check<ShapeError>(t.dim() <= 2, "block_diag", "needs matrices, got ", t);
            const Shape block = at_least(t.shape(), 2);
            whole[0] += block[0];
            whole[1] += block[1];
            common = promote_types(common, t.dtype());
          }
          return like(tensors[0]).with_shape(whole).with_dtype(common);
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const TensorList& tensors) {
                      fill_elements(y, 0);
                      int64_t top = 0, left = 0;
                      for (const Tensor& t : tensors) {
                        const Tensor block = with_rank(t, 2);
                        const int64_t rows = block.shape()[0], columns = block.shape()[1];
                        if (block.numel() > 0)
                          copy_elements(slice(slice(y, 0, top, top + rows), 1, left, left + columns), block);
                        top += rows;
                        left += columns;
                      }
                    }},
    .backward =
        [](Backward& b, const TensorList& tensors) {
          int64_t top = 0, left = 0;
          for (size_t i = 0; i < tensors.size(); ++i) {
            const Tensor& t = tensors[i];
            const Shape block = at_least(t.shape(), 2);
            if (b.needs(static_cast<int>(i)))
              b.set(static_cast<int>(i), slice(slice(b.gy(), 0, top, top + block[0]), 1, left, left + block[1])
                                             .reshape(t.shape())
                                             .to(t.dtype()));
            top += block[0];
            left += block[1];
          }
        },
    .dtypes = kAllTypes,
    .cost = list_cost,
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.tensor({2, 3}), s.tensor({1, 2}), s.tensor({})});
          s.add(TensorList{s.tensor({3}), s.tensor({2, 0})});
          s.invalid<ShapeError>("matrices", TensorList{s.tensor({2, 2, 2})});
          s.invalid<ShapeError>("at least one", TensorList{});
        },
    .reference =
        [](const TensorList& tensors) {
          Shape whole{0, 0};
          for (const Tensor& t : tensors)
            for (int d = 0; d < 2; ++d) whole[d] += with_some(t, 2)[d];
          Array y(whole);
          int64_t row = 0, col = 0;
          for (const Tensor& t : tensors) {
            const Array from(with_some(t, 2), t.to_vector<double>());
            naive::each(from.shape(), [&](const Dims& p) { y[{p[0] + row, p[1] + col}] = from[p]; });
            row += from.shape()[0];
            col += from.shape()[1];
          }
          return Tensor(y);
        },
}};

}  // namespace

Tensor atleast_1d(const Tensor& x) {
  return atleast_1d_op(x);
}
Tensor atleast_2d(const Tensor& x) {
  return atleast_2d_op(x);
}
Tensor atleast_3d(const Tensor& x) {
  return atleast_3d_op(x);
}
Tensor hstack(const TensorList& tensors) {
  return hstack_op(tensors);
}
Tensor vstack(const TensorList& tensors) {
  return vstack_op(tensors);
}
Tensor dstack(const TensorList& tensors) {
  return dstack_op(tensors);
}
Tensor column_stack(const TensorList& tensors) {
  return column_stack_op(tensors);
}
Tensor block_diag(const TensorList& tensors) {
  return block_diag_op(tensors);
}

}  // namespace strata
