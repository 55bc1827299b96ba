// The records of products with what travels before or behind them: a piece moves while another's product runs.

#include <array>
#include <vector>

#include "strata/core/dims.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/group.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/matmul_inl.h"
#include "strata/ops/matmul/matmul_kernels.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using Text = const std::string&;
using Pair = std::tuple<Tensor, Tensor>;

// The dimension whose pieces are ranks': any of x but the last, which the product adds up.
int64_t piece_dim(std::string_view op, const Tensor& x, const Tensor& weight, int64_t dim) {
  check<ShapeError>(x.dim() >= 2, op, "x needs at least two dimensions, got ", x);
  check<ShapeError>(weight.dim() == 2, op, "weight needs two dimensions, got ", weight);
  check<DTypeError>(x.dtype() == weight.dtype(), op, "x and weight have different dtypes: ", x, " and ", weight);
  check<DTypeError>(x.dtype() != DType::boolean, op, "does not take bool, got ", x);
  check<ShapeError>(x.shape().back() == weight.size(0), op, "inner sizes differ: x is ", x.shape(), ", weight is ",
                    weight.shape());
  dim = wrap_dim(dim, x.dim(), op);
  check<ShapeError>(dim + 1 < x.dim(), op, "dimension ", dim, " of ", x, " is the one that the product adds up");
  return dim;
}

Shape product_shape(const Tensor& x, const Tensor& weight) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(x.dim() - 1)] = weight.size(1);
  return shape;
}

// [rows, last] from [.., last].
Tensor as_rows(const Tensor& t) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.size(d);
  return t.reshape({rows, t.shape().back()});
}

// What moves between this rank and one a time: in step s a rank sends to the one s behind it and hears from the one s
// before it, so each pair is busy once.
struct Steps {
  Group& group;
  int64_t n, rank;
  explicit Steps(Text name) : group(distributed::group(name)), n(group.size()), rank(group.rank()) {}
  int64_t to(int64_t step) const { return (rank + step) % n; }
  int64_t from(int64_t step) const { return (rank - step + n) % n; }
  Work start(std::string_view op, int64_t step, const Tensor& coming, const Tensor& going) const {
    const auto peer_to = static_cast<int>(to(step)), peer_from = static_cast<int>(from(step));
    return group.start(going.device(), strata::cat(op, " step ", step, ' ', going.dtype(), ' ', going.shape()),
                       [=](Collectives& c) {
                         c.shift(coming.raw_data(), going.raw_data(), static_cast<size_t>(going.nbytes()), peer_to,
                                 peer_from);
                       },
                       {coming, going});
  }
};

// y = x weight, into memory that may be a part of a larger tensor.
template <class On>
void product_into(On on, Tensor y, const Tensor& x, const Tensor& weight) {
  if (y.numel() > 0) matmul_kernel(on, y, x, weight);
}

// All pieces set out at once; each is multiplied when it has come, this rank's own first.
template <class On>
void all_gather_matmul_there(On on, Tensor& y, Tensor& gathered, const Tensor& x, const Tensor& weight, int64_t dim,
                             Text group) {
  constexpr std::string_view kOp = "all_gather_matmul";
  const Steps steps(group);
  dim = piece_dim(kOp, x, weight, dim);
  const int64_t length = x.size(dim);
  const auto piece = [&](const Tensor& t, int64_t of) { return t.narrow(dim, of * length, length); };
  const Tensor own = x.contiguous();
  std::vector<Tensor> coming;
  std::vector<Work> works;
  for (int64_t s = 1; s < steps.n; ++s) {
    const Tensor place = piece(gathered, steps.from(s));
    coming.push_back(place.is_contiguous() ? place : empty(like(own).with_shape(own.shape())));
    works.push_back(steps.start(kOp, s, coming.back(), own));
  }
  copy_elements(piece(gathered, steps.rank), own);
  product_into(on, piece(y, steps.rank), own, weight);
  for (int64_t s = 1; s < steps.n; ++s) {
    const auto at = static_cast<size_t>(s - 1);
    works[at].wait();
    const Tensor place = piece(gathered, steps.from(s));
    if (!place.is_contiguous()) copy_elements(place, coming[at]);
    product_into(on, piece(y, steps.from(s)), coming[at], weight);
  }
}

// The others' pieces are computed first, and set out as they are done; then this rank's own. What came is added up in
// the order of the ranks and rounded once, as reduce_scatter does.
template <class On>
void matmul_reduce_scatter_there(On on, Tensor& y, const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
  constexpr std::string_view kOp = "matmul_reduce_scatter";
  const Steps steps(group);
  dim = piece_dim(kOp, x, weight, dim);
  if (steps.n == 1) return product_into(on, y, x, weight);
  const int64_t length = y.size(dim);
  std::vector<Tensor> parts(static_cast<size_t>(steps.n));  // of y, by ranks
  std::vector<Work> works;
  const auto product_for = [&](int64_t rank) {
    const Tensor going = empty(like(y).with_shape(y.shape()));
    product_into(on, going, x.narrow(dim, rank * length, length), weight);
    return going;
  };
  for (int64_t s = 1; s < steps.n; ++s) {
    Tensor& coming = parts[static_cast<size_t>(steps.from(s))];
    coming = empty(like(y).with_shape(y.shape()));
    works.push_back(steps.start(kOp, s, coming, product_for(steps.to(s))));
  }
  parts[static_cast<size_t>(steps.rank)] = product_for(steps.rank);
  for (Work& w : works) w.wait();
  if (y.device().is_cpu()) {
    std::vector<const void*> data;
    for (const Tensor& p : parts) data.push_back(p.raw_data());
    Tensor& sum = parts[0];
    reduce_parts(Reduction::sum, y.dtype(), data, sum.raw_data(), sum.numel());
    return copy_elements(y, sum);
  }
  const DType wide = statistic_dtype(y.dtype());
  Tensor sum = parts[0].to(wide);
  for (size_t p = 1; p < parts.size(); ++p) sum = sum + parts[p].to(wide);
  copy_elements(y, sum);
}

Cost product_cost(const Tensor& x, const Tensor& weight, double rows_of_x, double kept, double sent) {
  const double rows =
      rows_of_x * static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, x.shape().back()));
  const double element = static_cast<double>(size_of(x.dtype()));
  const double result = rows * static_cast<double>(weight.size(1)) * element;
  // Read and written by the product, and what goes through the links.
  return {
      2 * rows * static_cast<double>(weight.numel()),
      rows_of_x * static_cast<double>(x.nbytes()) + static_cast<double>(weight.nbytes()) + result * kept + sent * 2};
}

const Op<Pair(const Tensor&, const Tensor&, int64_t, Text)>& all_gather_matmul_record();

const Op<Tensor(const Tensor&, const Tensor&, int64_t, Text)> matmul_reduce_scatter_op{{
    .schema = "matmul_reduce_scatter(Tensor x, Tensor weight, int dim=0, str group=\"world\") -> Tensor",
    .shard = "unplaced",
    .doc =
        "reduce_scatter(matmul(x, weight), dim) in one: of x [.., K] times weight [K, N], each rank's own, summed over "
        "the "
        "ranks of the group, this rank's part along `dim`, any dimension of x but the last, whose size is a multiple "
        "of "
        "the group's. The others' parts are computed first and travel while the next is computed, so the exchange lies "
        "beside the product (the row-parallel half of Korthikanti et al., arXiv:2205.05198). On the CPU the sum is "
        "that of "
        "reduce_scatter, in the order of the ranks and rounded once; on cards it is this order, too, in f32. The "
        "gradient "
        "of x is all_gather_matmul. ShapeError when sizes do not fit, DTypeError when dtypes differ.",
    .example = "Tensor y = distributed::matmul_reduce_scatter(ones({4, 3}), ones({3, 2}));  // a job of one\n"
               "assert(y.shape() == Shape({4, 2}) && y.to_vector<float>()[0] == 3);",
    .infer =
        [](const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
          constexpr std::string_view kOp = "matmul_reduce_scatter";
          dim = piece_dim(kOp, x, weight, dim);
          const int64_t n = distributed::group(group).size();
          check<ShapeError>(x.size(dim) % n == 0, kOp, "dimension ", dim, " of ", x, " is no multiple of the ", n,
                            " ranks of ", group);
          Shape shape = product_shape(x, weight);
          shape[static_cast<size_t>(dim)] /= n;
          return like(x).with_shape(shape);
        },
    .kernels = on_each_device([](auto on, auto&&... all) { matmul_reduce_scatter_there(on, all...); }),
    .composed = [](const Tensor& x, const Tensor& weight, int64_t dim,
                   Text group) { return reduce_scatter(matmul(x, weight), dim, "sum", group); },
    .saves = "x weight",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
          // Whatever is asked for, every rank makes the same exchange.
          const auto [gx, gy] = all_gather_matmul_record()(b.gy(), weight.t(), dim, group);
          b.set(0, gx);
          if (b.needs(1)) set_product_gradient(b, 1, as_rows(x).t(), as_rows(gy), weight.shape());
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& x, const Tensor& weight, int64_t, Text group) {
          const double n = static_cast<double>(distributed::group(group).size());
          const double whole = static_cast<double>(product_shape(x, weight).product() * size_of(x.dtype()));
          return product_cost(x, weight, 1, 2, (n - 1) / n * whole);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({2, 4, 3}), s.tensor({3, 2}), 1).named("positions");
          s.add(s.tensor({0, 3}), s.tensor({3, 2})).named("no rows");
          s.invalid<ShapeError>("at least two dimensions", s.tensor({3}), s.tensor({3, 2}));
          s.invalid<ShapeError>("the product adds up", s.tensor({4, 3}), s.tensor({3, 2}), 1);
          s.invalid<ShapeError>("inner sizes differ", s.tensor({4, 3}), s.tensor({2, 2}));
          s.invalid<ValueError>("there is no group", s.tensor({4, 3}), s.tensor({3, 2}), 0, "sideways");
        },
}};

const Op<Pair(const Tensor&, const Tensor&, int64_t, Text)> all_gather_matmul_op{{
    .schema =
        "all_gather_matmul(Tensor x, Tensor weight, int dim=0, str group=\"world\") -> (Tensor y, Tensor gathered)",
    .shard = "unplaced",
    .doc =
        "matmul(all_gather(x, dim), weight) in one, and the gathered x beside it: x [.., K] of every rank of the "
        "group, one "
        "behind the other along `dim`, any dimension but the last, times this rank's weight [K, N]. All x have the "
        "same "
        "shape and dtype. Each rank's piece is multiplied when it has come, this rank's own while the others' travel, "
        "so "
        "the exchange lies beside the product (the column-parallel half of Korthikanti et al., arXiv:2205.05198). The "
        "numbers are those of gathering first, within the rounding of a product of fewer rows. The gradient of x is "
        "matmul_reduce_scatter. ShapeError when sizes do not fit, DTypeError when dtypes differ.",
    .example =
        "const auto [y, gathered] = distributed::all_gather_matmul(ones({4, 3}), ones({3, 2}));  // a job of one\n"
        "assert(y.shape() == Shape({4, 2}) && gathered.shape() == Shape({4, 3}));",
    .infer =
        [](const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
          dim = piece_dim("all_gather_matmul", x, weight, dim);
          Shape all = x.shape(), shape = product_shape(x, weight);
          for (Shape* s : {&all, &shape}) (*s)[static_cast<size_t>(dim)] *= distributed::group(group).size();
          return std::array<TensorMeta, 2>{like(x).with_shape(shape), like(x).with_shape(all)};
        },
    .kernels = on_each_device([](auto on, auto&&... all) { all_gather_matmul_there(on, all...); }),
    .composed =
        [](const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
          const Tensor all = all_gather(x, dim, group);
          return Pair(matmul(all, weight), all);
        },
    .saves = "weight gathered",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& weight, int64_t dim, Text group) {
          const Tensor gathered = b.y(1);
          Tensor gx;
          if (b.has_gy(0)) gx = matmul_reduce_scatter(b.gy(0), weight.t(), dim, group);
          if (b.has_gy(1)) {
            const Tensor direct = reduce_scatter(b.gy(1), dim, "sum", group);
            gx = gx.defined() ? gx + direct : direct;
          }
          b.set(0, gx);
          if (b.needs(1) && b.has_gy(0))
            set_product_gradient(b, 1, as_rows(gathered).t(), as_rows(b.gy(0)), weight.shape());
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& x, const Tensor& weight, int64_t, Text group) {
          const double n = static_cast<double>(distributed::group(group).size());
          return product_cost(x, weight, n, 1, (n - 1) * static_cast<double>(x.nbytes()));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({2, 4, 3}), s.tensor({3, 2}), 1).named("positions");
          s.add(s.tensor({0, 3}), s.tensor({3, 2})).named("no rows");
          s.invalid<ShapeError>("at least two dimensions", s.tensor({3}), s.tensor({3, 2}));
          s.invalid<ShapeError>("weight needs two dimensions", s.tensor({4, 3}), s.tensor({3}));
          s.invalid<ShapeError>("the product adds up", s.tensor({4, 3}), s.tensor({3, 2}), -1);
          s.invalid<ShapeError>("inner sizes differ", s.tensor({4, 3}), s.tensor({2, 2}));
          s.invalid<ValueError>("there is no group", s.tensor({4, 3}), s.tensor({3, 2}), 0, "sideways");
        },
}};

const Op<Pair(const Tensor&, const Tensor&, int64_t, Text)>& all_gather_matmul_record() {
  return all_gather_matmul_op;
}

}  // namespace

std::tuple<Tensor, Tensor> all_gather_matmul(const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
  return all_gather_matmul_op(x, weight, dim, group);
}
Tensor matmul_reduce_scatter(const Tensor& x, const Tensor& weight, int64_t dim, Text group) {
  return matmul_reduce_scatter_op(x, weight, dim, group);
}

}  // namespace strata::distributed
