// Slices and elements by place: index_fill, index_copy, index_reduce, put, take, isin.

#include "strata/ops/places/places.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/places/scatter_reduce_kernel.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/order_inl.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

void check_integers(const Tensor& index, std::string_view op) {
  check<DTypeError>(index.dtype() == DType::i64 || index.dtype() == DType::i32, op, "index must be i64 or i32, got ",
                    index);
}

// The index counted from the front. What is out of range is refused here where the elements can be seen; a CUDA device
// finds it in the kernel.
Tensor counted_from_front(const Tensor& index, int64_t size, int64_t dim, std::string_view op) {
  if (index.device().is_cpu() && index.numel() > 0) {
    const auto low = amin(index).item<int64_t>(), high = amax(index).item<int64_t>();
    for (const int64_t i : {low, high})
      check<IndexError>(i >= -size && i < size, op, "index ", i, " is out of range for dimension ", dim, " with size ",
                        size);
    if (low >= 0) return index;
  }
  return where(lt(index, wrap_number(0, index.device())), index + size, index);
}

// The same for index() and index_put(), which count places from the end themselves on a device.
Tensor checked(const Tensor& index, int64_t size, int64_t dim, std::string_view op) {
  return index.device().is_cpu() ? counted_from_front(index, size, dim, op) : index;
}

// What index names, one entry for each slice along dim, spread over the other dimensions of x.
struct Slices {
  Tensor x, index;
  int64_t dim;
  Tensor entries;  // [index's number]
};
Slices slices_of(const Tensor& x, int64_t dim, const Tensor& index, std::string_view op, bool as_it_is = false) {
  dim = wrap_dim(dim, x.dim(), op);
  check_integers(index, op);
  check<ShapeError>(index.dim() <= 1, op, "index must be 1-D, got ", index);
  const Tensor y = x.dim() == 0 ? view(x, {1}) : x;
  Shape column = Shape::filled(static_cast<int>(y.dim()), 1), spread = y.shape();
  column[dim] = spread[dim] = index.numel();
  const auto counted = as_it_is ? checked : counted_from_front;
  const Tensor places = counted(index, y.shape()[dim], dim, op);
  return {y, expand(view(contiguous(places), column), spread), dim, reshape(places, {index.numel()})};
}

// The entries once, not for each element of a slice.
Tensor one_column(const Slices& s) {
  Tensor index = s.index;
  for (int64_t d = 0; d < index.dim(); ++d)
    if (d != s.dim) index = slice(index, d, 0, std::min<int64_t>(1, index.shape()[d]));
  return index;
}

// Of source, in the shape that the slices want: a 0-dim one, or one of x's shape but along dim. Whether it is the
// former.
bool check_source(const Tensor& x, const Tensor& source, const Shape& wanted, std::string_view op) {
  check<DTypeError>(source.dtype() == x.dtype(), op, "source is ", source, ", x is ", x, ": they must have one dtype");
  const bool single = source.numel() == 1 && wanted.product() == 1 && (source.dim() == 0 || x.dim() == 0);
  check<ShapeError>(single || source.shape() == wanted, op, "source is ", source, ", wanted shape ", wanted);
  return single;
}
Tensor fitting(const Slices& s, const Tensor& x, const Tensor& source, std::string_view op) {
  return check_source(x, source, s.index.shape(), op) ? reshape(source, s.index.shape()) : source;
}

Cost write_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

// The references' way to the slices that index names: f(place in the index's slices, place in x).
template <class F>
void each_slice(const Tensor& x, int64_t dim, const Tensor& index, F f) {
  const Array at(index);
  const Shape whole = x.dim() == 0 ? Shape{1} : x.shape();
  dim = naive::from_front(dim, x.dim());
  Shape part = whole;
  part[dim] = at.size();
  naive::each(part, [&](const Dims& place) {
    const auto i = static_cast<int64_t>(at.flat(place[dim]));
    f(place, naive::moved(place, dim, i < 0 ? i + whole[dim] : i));
  });
}
Array as_row(const Tensor& x) {
  return {x.dim() == 0 ? Shape{1} : x.shape(), x.to_vector<double>()};
}
Tensor in_shape_of(const Tensor& x, const Array& y) {
  return Array(x.shape(), Tensor(y).to_vector<double>());
}

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)> index_fill_op{{
    .schema = "index_fill(Tensor x, int dim, Tensor index, Tensor value) -> Tensor",
    .inplace_by_copy = true,
    .doc = "x with its slices index[i] along dim filled with value, which has one element and is converted to x's "
           "dtype. Negative indices count from the end.",
    .example = "Tensor y = index_fill(zeros({3}), 0, full({1}, -1), full({}, 7.0)); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 0, 7}));",
    .composed =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
          check<ShapeError>(value.numel() == 1 && value.dim() == 0, "index_fill", "value must be 0-dim, got ", value);
          Tensor v = to(value, x.dtype());
          if (!(v.device() == x.device())) v = to(v, x.device());
          // A copy with the slices written over, where they are few: on the CPU each of their elements costs a dozen of
          // a choice.
          const int64_t d = dim < 0 ? dim + x.dim() : dim, size = d >= 0 && d < x.dim() ? x.size(d) : 1;
          const bool few =
              x.device().is_cuda() ? x.numel() <= int64_t{1} << 20 : x.numel() <= 4096 || index.numel() * 16 <= size;
          if (few && !(grad_enabled() && (x.requires_grad() || v.requires_grad()))) {
            const Slices s = slices_of(x, dim, index, "index_fill", true);
            TensorList places(static_cast<size_t>(s.dim) + 1);
            places.back() = s.entries;
            return view(index_put(s.x, places, v), x.shape());
          }
          const Slices s = slices_of(x, dim, index, "index_fill");
          // Which slices are named, one number each; then all of x in one pass.
          Shape column = Shape::filled(static_cast<int>(s.x.dim()), 1);
          column[s.dim] = s.x.shape()[s.dim];
          const Tensor named = scatter(zeros_like(empty(like(s.x).with_shape(column)), DType::boolean), s.dim,
                                       one_column(s), Scalar(true));
          return view(where(named, v, lie_alike(s.x, s.x) ? s.x : contiguous(s.x)), x.shape());
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, const Tensor&, const Tensor&) { return write_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, from_span<int64_t>(std::vector<int64_t>{2, -4}, {2}), s.tensor({}));
          s.add(s.tensor({2, 4, 3}), -1, s.integers({2}, 0, 3, DType::i32), s.tensor({}));
          s.add(s.tensor({}), 0, s.integers({1}, 0, 1), s.tensor({}));
          s.add(s.tensor({3}), 0, s.integers({}, 0, 3), s.tensor({}));
          s.add(s.tensor({4, 3}), 0, s.integers({0}, 0, 1), s.tensor({}));
          s.invalid<IndexError>("index 4 is out of range for dimension 0 with size 4", s.tensor({4, 3}), 0,
                                s.integers({1}, 4, 5), s.tensor({}));
          s.invalid<ShapeError>("0-dim", s.tensor({4, 3}), 0, s.integers({1}, 0, 4), s.tensor({2}));
          s.invalid<ShapeError>("1-D", s.tensor({4, 3}), 0, s.integers({1, 1}, 0, 4), s.tensor({}));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
          Array y = as_row(x);
          each_slice(x, dim, index, [&](const Dims&, const Dims& to) { y[to] = Array(value).flat(0); });
          return in_shape_of(x, y);
        },
}};

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&)> index_copy_op{{
    .schema = "index_copy(Tensor x, int dim, Tensor index, Tensor source) -> Tensor",
    .inplace_by_copy = true,
    .doc = "x with its slices index[i] along dim replaced by slice i of source. Where an index comes twice the later "
           "slice wins, and the gradient supposes that none does.",
    .example = "Tensor y = index_copy(zeros({3}), 0, full({1}, 1), ones({1})); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 1, 0}));",
    .composed =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
          const Slices s = slices_of(x, dim, index, "index_copy", true);
          const Tensor from = fitting(s, x, source, "index_copy");
          TensorList places(static_cast<size_t>(s.dim) + 1);
          places.back() = s.entries;
          return view(index_put(s.x, places, from), x.shape());
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, const Tensor&, const Tensor&) { return write_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), 0, from_span<int64_t>(std::vector<int64_t>{2, 0}, {2}), s.tensor({2, 3}));
          s.add(s.tensor({2, 4, 3}), -2, from_span<int64_t>(std::vector<int64_t>{3}, {1}), s.tensor({2, 1, 3}));
          s.add(s.tensor({}), 0, s.integers({1}, 0, 1), s.tensor({}));
          s.add(s.tensor({3}), 0, s.integers({1}, 0, 3), s.tensor({}));
          s.add(s.tensor({7, 5}).t(), 1, from_span<int64_t>(std::vector<int64_t>{-1, 0, 3}, {3}), s.tensor({5, 3}))
              .named("strided, from the end");
          s.add(s.tensor({3, 0}), 0, from_span<int64_t>(std::vector<int64_t>{2, 0}, {2}), s.tensor({2, 0}));
          s.invalid<ShapeError>("wanted shape", s.tensor({4, 3}), 0, s.integers({2}, 0, 4), s.tensor({3, 3}));
          s.invalid<IndexError>("out of range", s.tensor({4}), 0, s.integers({1}, 5, 6), s.tensor({1}));
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
          Array y = as_row(x);
          const Array from = as_row(source);
          each_slice(x, dim, index, [&](const Dims& at, const Dims& to) { y[to] = from[at]; });
          return in_shape_of(x, y);
        },
}};

// Of a call without gradients, which are scatter_reduce's.
TensorMeta index_reduce_infer(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                              const std::string& reduce, bool) {
  constexpr std::string_view op = "index_reduce";
  check(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin", op,
        "reduce must be prod, mean, amax or amin, got \"", reduce, "\"");
  check<DTypeError>(reduce != "mean" || x.dtype() != DType::boolean, op, "bool has no mean, got ", x);
  dim = wrap_dim(dim, x.dim(), op);
  check_integers(index, op);
  check<ShapeError>(index.dim() <= 1, op, "index must be 1-D, got ", index);
  Shape wanted = x.dim() == 0 ? Shape{1} : x.shape();
  wanted[dim] = index.numel();
  check_source(x, source, wanted, op);
  return like(x);
}
void index_reduce_by(auto on, Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                     const std::string& reduce, bool include_self) {
  const Slices s = slices_of(x, dim, index, "index_reduce", on.cuda);
  const Tensor from = fitting(s, x, source, "index_reduce");
  Tensor rows = y.dim() == 0 ? alias(y, {1}, {1}, y.storage_offset()) : y;
  if constexpr (on.cuda)
    scatter_reduce_cuda(rows, s.x, s.dim, s.index, from, reduce, include_self, true);
  else
    scatter_reduce_cpu(rows, s.x, s.dim, s.index, from, reduce, include_self);
}

const Op<Tensor(const Tensor&, int64_t, const Tensor&, const Tensor&, const std::string&, bool)> index_reduce_op{{
    .schema = "index_reduce(Tensor x, int dim, Tensor index, Tensor source, str reduce, bool include_self=true) -> "
              "Tensor",
    .shard = "along dim",
    .inplace_by_copy = true,
    .doc = "x with slice i of source joined to its slice index[i] along dim by prod, mean, amax or amin; without "
           "include_self what was there does not count where something is sent. Gradients as scatter_reduce has them.",
    .example = "Tensor y = index_reduce(ones({2}), 0, zeros({2}, DType::i64), full({2}, 3.0), \"prod\"); "
               "assert(y.to_vector<float>() == std::vector<float>({9, 1}));",
    .infer = index_reduce_infer,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t dim, const Tensor& index,
                                 const Tensor& source, const std::string& reduce, bool include_self) {
      index_reduce_by(on, y, x, dim, index, source, reduce, include_self);
    }),
    .composed =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const std::string& reduce,
           bool include_self) {
          constexpr std::string_view op = "index_reduce";
          const Slices s = slices_of(x, dim, index, op);
          return view(scatter_reduce(s.x, s.dim, s.index, fitting(s, x, source, op), reduce, include_self), x.shape());
        },
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, int64_t, const Tensor&, const Tensor&, const std::string&,
               bool) { return write_cost(x); },
    .samples =
        [](Samples& s) {
          const Tensor index = from_span<int64_t>(std::vector<int64_t>{2, 0, 2}, {3});
          for (const char* reduce : {"prod", "mean", "amax", "amin"}) {
            s.add(s.distinct({4, 2}), 0, index, s.distinct({3, 2}), reduce).not_differentiable();
            s.add(s.distinct({2, 4}), -1, index, s.distinct({2, 3}), reduce, false).not_differentiable();
            s.add(s.distinct({4, 33}), 0, index, s.distinct({3, 33}), reduce, false).not_differentiable();
          }
          s.add(s.tensor({4, 2}), 0, index, s.tensor({3, 2}), "mean", false);
          s.invalid<ValueError>("reduce must be", s.tensor({4}), 0, index, s.tensor({3}), "sum");
          s.invalid<ShapeError>("wanted shape", s.tensor({4}), 0, index, s.tensor({2}), "prod");
        },
    .reference =
        [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const std::string& reduce,
           bool include_self) {
          Array y = as_row(x), count(y.shape(), include_self ? 1 : 0);
          const Array from = as_row(source);
          each_slice(x, dim, index, [&](const Dims& at, const Dims& to) {
            const double v = from[at], old = y[to];
            if (count[to] == 0)
              y[to] = v;
            else if (reduce == "prod")
              y[to] = old * v;
            else if (reduce == "mean")
              y[to] = old + v;
            else
              y[to] = reduce == "amax" ? std::max(old, v) : std::min(old, v);
            count[to] += 1;
          });
          if (reduce == "mean") {
            for (int64_t i = 0; i < y.size(); ++i) {
              y.flat(i) /= std::max(count.flat(i), 1.0);
              if (!is_floating(x.dtype())) y.flat(i) = std::floor(y.flat(i));
            }
          }
          return in_shape_of(x, y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool)> put_op{{
    .schema = "put(Tensor x, Tensor index, Tensor source, bool accumulate=false) -> Tensor",
    .inplace_by_copy = true,
    .doc = "x with the elements at places index of the flattened x replaced by (or increased by) those of source, "
           "which has as many elements as index. Negative places count from the end.",
    .example = "Tensor y = put(zeros({2, 2}), full({1}, 3), ones({1})); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 0, 0, 1}));",
    .composed =
        [](const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
          check_integers(index, "put");
          check<DTypeError>(source.dtype() == x.dtype(), "put", "source is ", source, ", x is ", x,
                            ": they must have one dtype");
          check<ShapeError>(source.numel() == index.numel(), "put", "source is ", source, ", index is ", index,
                            ": they must have as many elements");
          Tensor flat = reshape(x, {x.numel()});
          const Tensor places = checked(reshape(index, {index.numel()}), x.numel(), 0, "put");
          // What is a copy already needs no other.
          const bool recorded = grad_enabled() && (x.requires_grad() || source.requires_grad());
          if (!recorded && !is_placed(x) && flat.storage() != x.storage())
            return reshape(index_put_(flat, {places}, reshape(source, {source.numel()}), accumulate), x.shape());
          return reshape(index_put(flat, {places}, reshape(source, {source.numel()}), accumulate), x.shape());
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, const Tensor&, const Tensor&, bool) { return write_cost(x); },
    .samples =
        [](Samples& s) {
          const Tensor places = from_span<int64_t>(std::vector<int64_t>{2, -1, 0}, {3});
          s.add(s.tensor({2, 3}), places, s.tensor({3}));
          s.add(s.tensor({2, 3}), s.integers({2, 2}, 0, 6), s.tensor({4}), true);
          s.add(s.tensor({}), s.integers({1}, 0, 1, DType::i32), s.tensor({1}));
          // More than a line is walked for.
          for (const bool accumulate : {false, true})
            s.add(s.tensor({60, 60}), s.integers({5000}, -3600, 3600), s.tensor({5000}), accumulate)
                .not_differentiable();
          s.invalid<ShapeError>("as many elements", s.tensor({4}), places, s.tensor({2}));
          s.invalid<IndexError>("out of range", s.tensor({2}), places, s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
          Array y(x);
          const Array at(index), from(source);
          for (int64_t i = 0; i < at.size(); ++i) {
            const auto place = static_cast<int64_t>(at.flat(i));
            double& to = y.flat(place < 0 ? place + y.size() : place);
            const double sum = x.dtype() == DType::boolean ? std::max(to, from.flat(i)) : to + from.flat(i);
            to = accumulate ? sum : from.flat(i);
          }
          return Tensor(y);
        },
}};

void take_cpu(Tensor& y, const Tensor& x, const Tensor& index) {
  const int64_t n = x.numel(), m = index.numel();
  if (m == 0) return;
  const Tensor from = contiguous(x), places = contiguous(index);
  const auto copy = [&]<class T, class I>() {
    const T* p = static_cast<const T*>(from.raw_data());
    T* to = static_cast<T*>(y.raw_data());
    const I* at = static_cast<const I*>(places.raw_data());
    parallel_for(0, m, 16384, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t given = at[i], place = given < 0 ? given + n : given;
        if (static_cast<uint64_t>(place) >= static_cast<uint64_t>(n)) [[unlikely]]
          throw IndexError("take", cat("index ", given, " is out of range for dimension 0 with size ", n));
        to[i] = p[place];
      }
    });
  };
  dispatch_bytes(x.dtype(), [&]<class T>() {
    index.dtype() == DType::i64 ? copy.template operator()<T, int64_t>() : copy.template operator()<T, int32_t>();
  });
}

const Op<Tensor(const Tensor&, const Tensor&)> take_op{{
    .schema = "take(Tensor x, Tensor index) -> Tensor",
    .shard = "_, ... -> ...",
    .doc = "The elements at places index of the flattened x, in index's shape. Negative places count from the end.",
    .example = "assert(take(arange(6).view({2, 3}), full({1}, -2)).item() == 4);",
    .infer =
        [](const Tensor& x, const Tensor& index) {
          check_integers(index, "take");
          return like(x).with_shape(index.shape());
        },
    .kernels = {.cpu = take_cpu, .cuda = STRATA_CUDA_KERNEL(take_cuda)},
    .saves = "index",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& index) {
          const DeviceScope there(b.gy().device());
          const int64_t n = index.numel();
          const TensorList at = {checked(reshape(index, {n}), x.numel(), 0, "take")};
          const Tensor gy = reshape(b.gy(), {n});
          Tensor g = zeros({x.numel()}, x.dtype());
          b.set(0, (is_placed(gy) ? index_put(g, at, gy, true) : index_put_(g, at, gy, true)).reshape(x.shape()));
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Tensor& index) {
          return Cost{0, static_cast<double>(index.nbytes() + 2 * index.numel() * size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3}), s.integers({2, 2}, -6, 6));
          s.add(s.tensor({}), s.integers({3}, 0, 1, DType::i32));
          s.add(s.tensor({4}), s.integers({}, 0, 4));
          s.invalid<IndexError>("index 6 is out of range", s.tensor({2, 3}), s.integers({1}, 6, 7));
          s.invalid<DTypeError>("i64 or i32", s.tensor({4}), s.tensor({2}, DType::f32));
        },
    .reference =
        [](const Tensor& x, const Tensor& index) {
          const Array from(x);
          Array y(index);
          for (int64_t i = 0; i < y.size(); ++i) {
            const auto place = static_cast<int64_t>(y.flat(i));
            y.flat(i) = from.flat(place < 0 ? place + from.size() : place);
          }
          return Tensor(y);
        },
}};

// Each element is searched among the sorted others, or, where there are few numbers of the dtype, looked up in a table.
void isin_cpu(Tensor& y, const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
  const DType common = result_type(elements, test_elements);
  const Tensor x = contiguous(to(elements, common)), among = contiguous(to(test_elements, common));
  const Tensor found = y.is_contiguous() ? y : empty(like(y));
  const int64_t n = x.numel(), m = among.numel();
  if (n == 0) return;
  dispatch_all(common, "isin", [&]<class T>() {
    using K = order::Key<T>;
    constexpr K kNan = std::numeric_limits<K>::max();
    std::vector<K> keys(static_cast<size_t>(m));
    if (m > 0) std::transform(among.data<T>(), among.data<T>() + m, keys.begin(), order::key_of<T>);
    if constexpr (order::kHasNan<T>) std::erase(keys, kNan);  // a NaN equals nothing
    const T* in = x.data<T>();
    bool* out = found.data<bool>();
    if constexpr (sizeof(T) <= 2) {
      std::vector<uint8_t> there(size_t{1} << (8 * sizeof(T)));
      for (const K key : keys) there[key] = 1;
      parallel_for(0, n, 32768, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) out[i] = (there[order::key_of(in[i])] != 0) != invert;
      });
    } else {
      std::sort(keys.begin(), keys.end());
      const auto count = static_cast<int64_t>(keys.size());
      parallel_for(0, n, 8192, [&](int64_t b, int64_t e) {
        constexpr int64_t kTogether = 8;
        for (int64_t i = b; i < e; i += kTogether) {
          const int64_t some = std::min(kTogether, e - i);
          K key[kTogether] = {};
          int64_t at[kTogether];
          for (int64_t q = 0; q < some; ++q) key[q] = order::key_of(in[i + q]);
          order::search(keys.data(), count, key, at, [](K k, K t) { return t < k; });
          for (int64_t q = 0; q < some; ++q)
            out[i + q] = (at[q] < count && keys[static_cast<size_t>(at[q])] == key[q]) != invert;
        }
      });
    }
  });
  if (!found.same_as(y)) copy_elements(y, found);
}

const Op<Tensor(const Tensor&, const Tensor&, bool, bool)> isin_op{{
    .schema = "isin(Tensor elements, Tensor test_elements, bool assume_unique=false, bool invert=false) -> Tensor",
    .shard = "..., _ -> ...",
    .doc = "Whether each element is among test_elements (with invert: whether it is not), bool. NaN is among nothing. "
           "assume_unique changes nothing.",
    .example = "assert(isin(arange(3), full({1}, 2)).to_vector<bool>() == std::vector<bool>({false, false, true}));",
    .infer = [](const Tensor& elements, const Tensor&, bool,
                bool) { return like(elements).with_dtype(DType::boolean); },
    .kernels = {.cpu = isin_cpu},
    .composed =
        [](const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
          NoGrad guard;
          const DType common = result_type(elements, test_elements);
          const Tensor x = to(elements, common), flat = reshape(to(test_elements, common), {test_elements.numel()});
          if (flat.numel() == 0) return full_like(x, invert, DType::boolean);
          const Tensor among = sort_values(flat, 0);
          const Tensor at = clamp(searchsorted(among, x), Scalar(0), Scalar(flat.numel() - 1));
          const Tensor found = eq(strata::index(among, {at}), x);
          return invert ? logical_not(found) : found;
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& elements, const Tensor& test_elements, bool, bool) {
          return Cost{0, static_cast<double>(elements.nbytes() + test_elements.nbytes() + elements.numel())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3, 4}, 0, 6, s.dtype()), s.integers({5}, 0, 6, s.dtype())).not_differentiable();
          s.add(s.integers({7}, 0, 2, s.dtype()), s.integers({}, 0, 2, s.dtype()), false, true).not_differentiable();
          s.add(s.tensor({}), s.tensor({2, 2}), true).not_differentiable();
          s.add(s.tensor({3}), s.tensor({0})).not_differentiable();
          s.add(s.integers({5, 7}, 0, 90, s.dtype()).t(), s.integers({30}, 0, 90, s.dtype())).not_differentiable();
          if (is_floating(s.dtype()))
            s.add(full({3}, Scalar(NAN), s.dtype()), full({2}, Scalar(NAN), s.dtype())).not_differentiable();
        },
    .reference =
        [](const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
          Array y(elements);
          const Array among(test_elements);
          for (int64_t i = 0; i < y.size(); ++i) {
            bool found = false;
            for (int64_t j = 0; j < among.size(); ++j) found = found || among.flat(j) == y.flat(i);
            y.flat(i) = found != invert;
          }
          return Tensor(y);
        },
}};

}  // namespace

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
  return index_fill_op(x, dim, index, value);
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return index_copy_op(x, dim, index, source);
}
Tensor index_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    bool include_self) {
  return index_reduce_op(x, dim, index, source, std::string(reduce), include_self);
}
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
  return put_op(x, index, source, accumulate);
}
Tensor take(const Tensor& x, const Tensor& index) {
  return take_op(x, index);
}
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool assume_unique, bool invert) {
  return isin_op(elements, test_elements, assume_unique, invert);
}

}  // namespace strata
