// scatter_reduce: values sent to places and joined there.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/index/join_lines_kernel.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/places/places.h"
#include "strata/ops/places/scatter_reduce_kernel.h"
#include "strata/ops/places/sending_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using sending::as_row;
using sending::join_of;
using sending::kName;
using sending::plain;
using sending::Sending;

TensorMeta infer(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce,
                 bool) {
  check<DTypeError>(join_of(reduce) != Join::mean || x.dtype() != DType::boolean, kName, "bool has no mean, got ", x);
  dim = wrap_dim(dim, x.dim(), kName);
  check<DTypeError>(index.dtype() == DType::i64 || index.dtype() == DType::i32, kName, "index must be i64 or i32, got ",
                    index);
  check<DTypeError>(src.dtype() == x.dtype(), kName, "src is ", src, ", x is ", x, ": they must have one dtype");
  if (x.dim() == 0 || index.dim() == 0) {
    check<ShapeError>(x.dim() <= 1 && index.dim() <= 1 && src.dim() <= 1 && src.numel() >= index.numel(), kName,
                      "index is ", index, ", src ", src, " and x ", x, ": they must have as many dimensions");
    return like(x);
  }
  check<ShapeError>(index.dim() == x.dim() && src.dim() == x.dim(), kName, "index is ", index, ", src ", src, " and x ",
                    x, ": they must have as many dimensions");
  for (int64_t d = 0; d < x.dim(); ++d) {
    check<ShapeError>(d == dim || index.shape()[d] <= x.shape()[d], kName, "index is ", index, ", x is ", x,
                      ": index must not be longer in dimension ", d);
    check<ShapeError>(index.shape()[d] <= src.shape()[d], kName, "index is ", index, ", src is ", src,
                      ": src must not be shorter in dimension ", d);
  }
  return like(x);
}

// Where all of a slice along dim has one index, as index_reduce() sends them: the indices of slices; else undefined.
Tensor slice_index(const Sending& c) {
  if (c.index.dim() < 2) return Tensor();
  Tensor one = c.index;
  for (int64_t d = c.index.dim() - 1; d >= 0; --d) {
    if (d == c.dim) continue;
    const int64_t size = c.index.shape()[d];
    if (size == 0 || size != c.x.shape()[d] || (size > 1 && c.index.strides()[d] != 0)) return Tensor();
    one = select(one, d, 0);
  }
  return one;
}

// ---- of other ops, for devices without a kernel

Scalar neutral(Join join, DType t) {
  if (join == Join::sum || join == Join::mean) return 0;
  if (join == Join::prod) return 1;
  const bool low = join == Join::amax;
  if (is_floating(t)) return low ? -HUGE_VAL : HUGE_VAL;
  Scalar limit = 0;
  dispatch_ints(t, kName, [&]<class T>() {
    limit = static_cast<int64_t>(low ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max());
  });
  return limit;
}

// The largest (smallest) of what is sent to each place: of the values in order, and then by place, the last one.
Tensor extreme_sent(const Sending& c, Join join, const Tensor& base) {
  const bool largest = join == Join::amax;
  const auto [values, order] = sort(transpose(c.src, c.dim, -1), -1, !largest);
  const auto [places, again] = sort(gather(transpose(c.index, c.dim, -1), -1, order), -1);
  const Tensor best = gather(values, -1, again);
  const int64_t n = c.x.shape()[c.dim], m = places.shape().back();
  Shape one = places.shape();
  one.resize(one.size() - 1);
  one.push_back(std::min<int64_t>(m, 1));
  const Tensor last = cat({ne(slice(places, -1, 1, m), slice(places, -1, 0, m - 1)),
                           full_like(empty(like(places).with_shape(one)), true, DType::boolean)},
                          -1);
  Shape spread = transpose(base, c.dim, -1).shape();
  spread[spread.size() - 1] = n + 1;  // what is not the last of its place goes beyond the end
  Tensor sent = empty(like(base).with_shape(spread));
  sent.fill_(neutral(join, base.dtype()));
  sent = transpose(slice(scatter(sent, -1, where(last, places, n), best), -1, 0, n), c.dim, -1);
  Tensor y = largest ? maximum(base, sent) : minimum(base, sent);
  if (!is_floating(base.dtype())) return y;
  const Tensor lost = scatter_add(zeros_like(base, DType::i64), c.dim, c.index, isnan(c.src).to(DType::i64));
  return masked_fill(y, gt(lost, zeros_like(lost)), NAN);
}

// As many rounds as the most that is sent to one place.
Tensor product_sent(const Sending& c, const Tensor& base) {
  const auto [places, order] = sort(transpose(c.index, c.dim, -1), -1);
  const Tensor values = gather(transpose(c.src, c.dim, -1), -1, order);
  const int64_t n = c.x.shape()[c.dim], m = places.shape().back();
  Tensor y = transpose(base, c.dim, -1);
  if (places.numel() == 0) return base;
  const DeviceScope there(base.device());
  const Tensor at = expand(arange(0, m), places.shape());
  Tensor begin = zeros_like(places);
  if (m > 1)
    slice(begin, -1, 1, m)
        .copy_(where(ne(slice(places, -1, 1, m), slice(places, -1, 0, m - 1)), slice(at, -1, 1, m), 0));
  const Tensor turn = at - cummax(begin, -1).first;
  Shape spread = y.shape();
  spread[spread.size() - 1] = n + 1;
  const auto rounds = base.is_meta() ? 0 : max(turn).item<int64_t>() + 1;
  for (int64_t k = 0; k < rounds; ++k) {
    Tensor sent = empty(like(base).with_shape(spread));
    sent.fill_(1);
    y = y * slice(scatter(sent, -1, where(eq(turn, full_like(turn, k)), places, n), values), -1, 0, n);
  }
  return transpose(y, c.dim, -1);
}

Tensor composed(const Tensor& whole, int64_t d, const Tensor& index, const Tensor& src, const std::string& reduce,
                bool include_self) {
  NoGrad guard;
  if (whole.dtype() == DType::boolean)  // mean of bits has no meaning of its own: any of them
    return ne(composed(whole.to(DType::u8), d, index, src.to(DType::u8), reduce, include_self),
              wrap_number(0, whole.device()));
  const Join join = join_of(reduce);
  // Rounded once, at the end; and a sum of small integers may leave their range before it is divided.
  const DType own = whole.dtype();
  const DType wide = own == DType::f16 || own == DType::bf16   ? DType::f32
                     : join == Join::mean && !is_floating(own) ? DType::i64
                                                               : own;
  if (wide != own) return composed(whole.to(wide), d, index, src.to(wide), reduce, include_self).to(own);
  Sending c = plain(whole, d, contiguous(to(index, DType::i64)), src);
  // The part of x that index reaches.
  Tensor y = clone(c.x), part = y;
  for (int64_t i = 0; i < c.index.dim(); ++i)
    if (i != c.dim) part = slice(part, i, 0, c.index.shape()[i]);
  c.x = part;
  if (c.index.numel() == 0) return clone(whole);
  const Tensor count = scatter_add(zeros_like(part, DType::i64), c.dim, c.index, full_like(c.index, 1));
  const Tensor base =
      include_self ? part : masked_fill(part, gt(count, zeros_like(count)), neutral(join, part.dtype()));
  Tensor result;
  if (join == Join::sum || join == Join::mean) {
    result = scatter_add(base, c.dim, c.index, c.src);
    if (join == Join::mean) {
      const Tensor by = clamp_min(include_self ? count + 1 : count, 1);
      result = is_floating(part.dtype()) ? result / by.to(part.dtype()) : floor_divide(result, by.to(part.dtype()));
    }
  } else {
    result = join == Join::prod ? product_sent(c, base) : extreme_sent(c, join, base);
  }
  part.copy_(result);
  return reshape(y, whole.shape());
}

}  // namespace

#ifdef STRATA_WITH_CUDA
void scatter_reduce_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                         const std::string& reduce, bool include_self, bool from_end) {
  const Sending c = plain(x, dim, to(index, DType::i64), src);
  const Join join = join_of(reduce);
  Tensor rows = y.dim() == 0 ? alias(y, {1}, {1}, y.storage_offset()) : y;
  const bool sums = join == Join::sum && include_self && !from_end;
  if (const Tensor slices = slice_index(c);
      slices.defined() && c.x.is_contiguous() && c.src.is_contiguous() && joins_slices(rows, c.dim, c.src))
    return join_slices_cuda(rows, c.x, c.dim, slices, c.src, {join, include_self, from_end});
  if (joins_lines(rows, c.dim, c.index, sums && is_floating(x.dtype()) && x.dtype() != DType::f64))
    return join_lines_cuda(rows, c.x, c.dim, c.index, c.src, {join, include_self, from_end});
  if (sums) return scatter_add_cuda(rows, c.x, c.dim, c.index, c.src);
  const int64_t n = c.x.shape()[c.dim];
  const Tensor front = from_end ? where(lt(c.index, zeros_like(c.index)), c.index + n, c.index) : c.index;
  copy_elements(y, reshape(composed(c.x, c.dim, front, c.src, reduce, include_self), y.shape()));
}
#endif

namespace {
#ifdef STRATA_WITH_CUDA
void scatter_reduce_on_card(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                            const std::string& reduce, bool include_self) {
  scatter_reduce_cuda(y, x, dim, index, src, reduce, include_self, false);
}
#endif

// ---- the gradient

void backward(Backward& b, const Tensor& whole, int64_t d, const Tensor& index, const Tensor& all,
              const std::string& reduce, bool include_self) {
  const Join join = join_of(reduce);
  const Sending c = plain(whole, d, index, all);
  const Tensor g = as_row(b.gy());
  Tensor gx, gs;
  // What x has no part in where something is sent.
  const Tensor slices = slice_index(c);
  const auto filled = [&](const Tensor& t, int value) {
    return slices.defined() ? index_fill(t, c.dim, slices, full_like(empty(like(t).with_shape({})), value))
                            : scatter(t, c.dim, c.index, Scalar(value));
  };
  const auto own = [&](const Tensor& t) { return include_self ? t : filled(t, 0); };
  const auto sums = [&](const Tensor& start, const Tensor& sent) {
    return slices.defined() ? index_add(start, c.dim, slices, sent) : scatter_add(start, c.dim, c.index, sent);
  };
  const auto at = [&](const Tensor& t) {
    return slices.defined() ? index_select(t, c.dim, slices) : gather(t, c.dim, c.index);
  };
  switch (join) {
    case Join::sum:
      gx = own(g);
      gs = at(g);
      break;
    case Join::mean: {
      const Tensor one = ones_like(g), none = include_self ? one : zeros_like(g);
      const Tensor each = full_like(empty(like(g).with_shape(c.index.shape())), 1);
      const Tensor share = g / clamp_min(sums(none, each), 1);
      gx = own(share);
      gs = at(share);
      break;
    }
    case Join::amax:
    case Join::amin: {
      // All that are as large share it; of NaN, which equals nothing, it is NaN.
      const Tensor y = as_row(b.y());
      const Tensor mine = own(eq(c.x, y).to(g.dtype())), theirs = eq(c.src, at(y)).to(g.dtype());
      const Tensor share = g / sums(mine, theirs);
      gx = own(mine * share);  // 0, not 0 times NaN
      gs = theirs * at(share);
      break;
    }
    case Join::prod: {
      // The product of all others; zeros are counted apart, so that nothing is divided by them.
      const auto product = [&](const Tensor& x, const Tensor& sent) {
        return scatter_reduce(x, c.dim, c.index, sent, "prod", true);
      };
      gx = own(g * product(ones_like(g), c.src));
      const auto is = [](const Tensor& t, double n) { return eq(t, wrap_number(n, t.device())); };
      const Tensor none_x = is(c.x, 0), zero_s = is(c.src, 0), none_s = zero_s.to(g.dtype());
      const Tensor zeros = sums(own(none_x.to(g.dtype())), none_s);
      const Tensor factor = where(none_x, 1, c.x), self = include_self ? factor : filled(factor, 1);
      const Tensor sent = where(zero_s, 1, c.src), rest = at(product(self, sent)), count = at(zeros);
      if (!grad_enabled()) {  // no other factor is 0
        gs = at(g) * where(eq(count, none_s), rest / sent, 0);
        break;
      }
      // A product with zeros is 0, but not its derivative by them: they stay factors.
      const Tensor zero = at(sums(own(where(none_x, c.x, 0)), where(zero_s, c.src, 0)));
      const Tensor of_zero = where(is(count, 1), rest, where(is(count, 2), rest * (zero - c.src), 0));
      const Tensor others =
          where(zero_s, of_zero, where(is(count, 0), rest / sent, where(is(count, 1), rest / sent * zero, 0)));
      gs = at(g) * others;
      break;
    }
  }
  if (b.needs(0)) b.set(0, reshape(gx, whole.shape()));
  if (!b.needs(2)) return;
  for (int64_t i = 0; i < c.index.dim(); ++i) {
    const int64_t size = as_row(all).shape()[i];
    if (gs.shape()[i] == size) continue;
    Shape grown = gs.shape();
    grown[i] = size;
    gs = slice_backward(gs, grown, i, 0, c.index.shape()[i], 1);
  }
  b.set(2, reshape(gs, all.shape()));
}

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, const std::string&, bool)> scatter_reduce_op{{
    .schema = "scatter_reduce(Tensor x, int dim, Tensor index, Tensor src, str reduce, bool include_self=true) -> "
              "Tensor",
    .shard = "along dim",
    .doc = "x with src[i][j][k] joined to x[index[i][j][k]][j][k] for dim 0, and so on, by sum, prod, mean (of "
           "integers rounded down), amax or amin; NaN wins. Without include_self what was there does not count where "
           "something is sent. src may be larger than index. Equal extremes share the gradient.",
    .example = "Tensor y = scatter_reduce(ones({2}), 0, zeros({2}, DType::i64), full({2}, 4.0), \"mean\"); "
               "assert(y.to_vector<float>() == std::vector<float>({3, 1}));",
    .infer = infer,
    .kernels = {.cpu = scatter_reduce_cpu, .cuda = STRATA_CUDA_KERNEL(scatter_reduce_on_card)},
    .composed = composed,
    .saves = "x index src result",
    .backward = backward,
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, int64_t, const Tensor& index, const Tensor&, const std::string&, bool) {
          return Cost{static_cast<double>(index.numel()),
                      static_cast<double>(2 * x.nbytes() + index.nbytes() + index.numel() * size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          const Tensor rows = from_span<int64_t>(std::vector<int64_t>{2, 0, 2, 2, 3, 0}, {2, 3});
          for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
            if (s.dtype() == DType::boolean && reduce[0] == 'm') continue;
            s.add(s.distinct({4, 3}), 0, rows, s.distinct({2, 3}), reduce).not_differentiable();
            s.add(s.distinct({4, 4}), -2, rows, s.distinct({3, 4}), reduce, false).not_differentiable();
          }
          const Tensor once = from_span<int64_t>(std::vector<int64_t>{3, 1, 1, 0, 1, 2}, {3, 2});
          for (const char* reduce : {"sum", "prod", "mean"}) {
            if (s.dtype() == DType::boolean && reduce[0] == 'm') continue;
            s.add(s.tensor({4, 2}), 0, once, s.tensor({3, 2}), reduce);
            s.add(s.tensor({4, 2}), 0, once, s.tensor({4, 2}), reduce, false);
          }
          const Tensor apart = s.distinct({10});
          s.add(apart.slice(0, 0, 4), 0, rows.view({6}), apart.slice(0, 4, 10), "amax");
          s.add(apart.slice(0, 0, 4), 0, rows.view({6}), apart.slice(0, 4, 10), "amin", false);
          // Two parts of places, three stretches of a line, more lines than a block has, and ties.
          for (const char* reduce : {"sum", "mean", "amax", "amin"}) {
            if (s.dtype() == DType::boolean && reduce[0] == 'm') continue;
            s.add(s.tensor({400, 2}), 0, s.integers({130, 2}, 0, 400), s.tensor({130, 2}), reduce).not_differentiable();
            s.add(s.tensor({40, 3}), 1, s.integers({40, 70}, 0, 3), s.tensor({70, 40}).t(), reduce, false)
                .not_differentiable();
          }
          const Tensor zero = s.tensor({6});
          zero.slice(0, 0, 1).fill_(0);
          s.add(s.tensor({4}), 0, rows.view({6}), zero, "prod").named("one zero");
          s.add(s.tensor({}), 0, s.integers({2}, 0, 1), s.tensor({2}), "sum");
          s.add(s.tensor({3, 0}), 1, s.integers({3, 0}, 0, 1), s.tensor({3, 0}), "amax");
          s.invalid<ValueError>("reduce must be", s.tensor({3}), 0, s.integers({2}, 0, 3), s.tensor({2}), "max");
          s.invalid<IndexError>("index 3 is out of range", s.tensor({3}), 0, s.integers({1}, 3, 4), s.tensor({1}),
                                "sum");
          s.invalid<ShapeError>("as many dimensions", s.tensor({3, 2}), 0, s.integers({2}, 0, 3), s.tensor({2}), "sum");
          s.invalid<ShapeError>("shorter", s.tensor({3}), 0, s.integers({2}, 0, 3), s.tensor({1}), "sum");
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce,
           bool include_self) {
          const auto row = [](const Tensor& t) {
            return naive::Array(t.dim() == 0 ? Shape{1} : t.shape(), t.to_vector<double>());
          };
          naive::Array y = row(x), count(y.shape(), include_self ? 1 : 0);
          const naive::Array from = row(src), at = row(index);
          dim = naive::from_front(dim, x.dim());
          naive::each(at.shape(), [&](const Dims& place) {
            const Dims to = naive::moved(place, dim, static_cast<int64_t>(at[place]));
            const double v = from[place], old = y[to];
            if (count[to] == 0)
              y[to] = v;
            else if (reduce == "prod")
              y[to] = old * v;
            else if (reduce == "amax" || reduce == "amin")
              y[to] = reduce == "amax" ? std::max(old, v) : std::min(old, v);
            else
              y[to] = old + v;
            count[to] += 1;
          });
          for (int64_t i = 0; i < y.size(); ++i) {
            if (reduce == "mean") y.flat(i) /= std::max(count.flat(i), 1.0);
            if (x.dtype() == DType::boolean)
              y.flat(i) = y.flat(i) > 0;
            else if (!is_floating(x.dtype()))
              y.flat(i) = std::floor(y.flat(i));
          }
          return Tensor(naive::Array(x.shape(), Tensor(y).to_vector<double>()));
        },
}};

}  // namespace

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self) {
  return scatter_reduce_op(x, dim, index, src, std::string(reduce), include_self);
}

}  // namespace strata
