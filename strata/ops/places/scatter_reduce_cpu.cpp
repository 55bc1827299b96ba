// scatter_reduce on the CPU: in the order of the elements, accumulated in the wide type and rounded once.

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/places/scatter_reduce_kernel.h"
#include "strata/ops/places/sending_inl.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
namespace strata {
namespace {
// Rows of Elements that are joined to rows of what they are accumulated in.
template <Join kJoin, class T>
struct JoinRow {
  static constexpr Join join = kJoin;
  using Element = T;
  using Total = std::conditional_t<std::is_integral_v<T>, T, compute_t<T>>;
};
}  // namespace
}  // namespace strata
#define STRATA_VEC_FILE "strata/ops/places/join_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

using sending::join_of;
using sending::kName;
using sending::plain;
using sending::Sending;

// What is accumulated. Of whole numbers the low bits are those of the wide type's, and the largest is the same; a sum
// of bits is whether there is one.
template <Join join, class T>
using Total = std::conditional_t<std::is_integral_v<T> && join != Join::mean, T, Joined<T>>;

template <Join join, class C>
C join_one(C total, C v) {
  using W = std::conditional_t<std::is_integral_v<C>, std::conditional_t<(sizeof(C) < 4), int32_t, int64_t>, C>;
  return static_cast<C>(joined(join, static_cast<W>(total), static_cast<W>(v)));
}

// to[j] = to[j] joined with from[j], in rows that do not overlap.
template <Join join, class T, class C>
void join_row(const T* from, C* to, int64_t n) {
  if constexpr (std::is_same_v<T, C> || is_reduced_floating(dtype_of<T>)) {
    using Row = JoinRow<join, T>;
    STRATA_VEC_CALL(join_row<Row>)(from, to, n);
  } else {  // for a mean
    for (int64_t j = 0; j < n; ++j) to[j] = join_one<join>(to[j], static_cast<C>(from[j]));
  }
}

// How many a place has had, for a mean, else whether it has had one.
template <Join join>
using Had = std::conditional_t<join == Join::mean, int32_t, uint8_t>;

// Sends src to its places in `total` (which holds x), and counts what each has had where count is not null. Both are
// row-major in x's shape; index and src are read where they lie.
template <Join join, bool counted, class T, class C>
void send(const Sending& c, C* total, Had<join>* count) {
  const Shape& sizes = c.index.shape();
  const int last = sizes.size() - 1;
  Strides strides = Strides::filled(sizes.size(), 1);
  for (int d = last; d-- > 0;) strides[d] = strides[d + 1] * c.x.shape()[d + 1];
  const int64_t n = c.x.shape()[c.dim], width = sizes[last], along = strides[c.dim],
                step = c.dim == last ? 0 : strides[last], index_step = c.index.strides()[last],
                src_step = c.src.strides()[last];
  const int64_t* at0 = c.index.data<int64_t>();
  const T* from0 = c.src.data<T>();
  const auto with_one_more = [](Had<join> had) { return static_cast<Had<join>>(join == Join::mean ? had + 1 : 1); };
  const auto put = [&](int64_t i, const T& v) {
    const C w = static_cast<C>(v);
    if constexpr (counted) {
      total[i] = count[i] == 0 ? w : join_one<join>(total[i], w);
      count[i] = with_one_more(count[i]);
    } else {
      total[i] = join_one<join>(total[i], w);
    }
  };
  Shape lead = sizes;
  lead[last] = std::min<int64_t>(width, 1);
  naive::each(lead, [&](const Dims& place) {
    int64_t row = 0, at_row = 0, from_row = 0;
    for (int d = 0; d < last; ++d) {
      row += d == c.dim ? 0 : place[d] * strides[d];
      at_row += place[d] * c.index.strides()[d];
      from_row += place[d] * c.src.strides()[d];
    }
    const int64_t* at = at0 + at_row;
    const T* from = from0 + from_row;
    const auto checked = [&](int64_t i) {
      if (i < 0 || i >= n)
        throw IndexError(kName, cat("index ", i, " is out of range for dimension ", c.dim, " with size ", n));
      return i;
    };
    if (index_step == 0 && step == 1) {  // one index for a whole row
      const int64_t base = row + checked(*at) * along;
      if (src_step == 1) {
        if constexpr (!counted) return join_row<join>(from, total + base, width);
        // Every call comes with rows of the same width, so that a row's places have had as many.
        if (count[base] > 0)
          join_row<join>(from, total + base, width);
        else
          for (int64_t j = 0; j < width; ++j) total[base + j] = static_cast<C>(from[j]);
        for (int64_t j = 0; j < width; ++j) count[base + j] = with_one_more(count[base + j]);
      } else
        for (int64_t j = 0; j < width; ++j) put(base + j, from[j * src_step]);
      return;
    }
    for (int64_t j = 0; j < width; ++j) put(row + checked(at[j * index_step]) * along + j * step, from[j * src_step]);
  });
}

template <Join join, class T>
void join_typed(Tensor& y, const Sending& given, bool include_self) {
  using C = Total<join, T>;
  Sending c = given;
  c.index = to(c.index, DType::i64);
  const int64_t size = c.x.numel();
  // How many each place has had, where that is asked for.
  const bool counted = !include_self || join == Join::mean;
  std::vector<Had<join>> count(counted ? static_cast<size_t>(size) : 0, include_self ? 1 : 0);
  const auto run = [&](C* total) {
    if (c.index.numel() == 0) return;
    if (counted)
      send<join, true, T, C>(c, total, count.data());
    else
      send<join, false, T, C>(c, total, nullptr);
  };
  T* out = size > 0 ? y.data<T>() : nullptr;
  if constexpr (std::is_same_v<T, C>) {
    // Where x is written over, src may lie in the same memory.
    if (y.storage() == c.src.storage()) c.src = clone(c.src);
    if (size > 0 && !(y.raw_data() == c.x.raw_data() && c.x.is_contiguous())) copy_elements(y, reshape(c.x, y.shape()));
    run(out);
    if constexpr (join == Join::mean)
      for (int64_t i = 0; i < size; ++i) out[i] = mean_of(out[i], count[static_cast<size_t>(i)]);
  } else {
    const Tensor x = contiguous(c.x);
    const auto total = std::make_unique_for_overwrite<C[]>(static_cast<size_t>(size));
    if constexpr (is_reduced_floating(dtype_of<T>))
      (std::is_same_v<T, Half> ? converters().f16_to_f32 : converters().bf16_to_f32)(total.get(), x.data<T>(), size);
    else
      for (int64_t i = 0; i < size; ++i) total[static_cast<size_t>(i)] = static_cast<C>(x.data<T>()[i]);
    run(total.get());
    if constexpr (join == Join::mean)
      for (int64_t i = 0; i < size; ++i) {
        C& v = total[static_cast<size_t>(i)];
        v = mean_of(v, count[static_cast<size_t>(i)]);
      }
    if constexpr (is_reduced_floating(dtype_of<T>))
      (std::is_same_v<T, Half> ? converters().f32_to_f16 : converters().f32_to_bf16)(out, total.get(), size);
    else
      for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(total[static_cast<size_t>(i)]);
  }
}

template <class T>
void join_typed(Tensor& y, const Sending& c, Join join, bool include_self) {
  switch (join) {
    case Join::sum:
      return join_typed<Join::sum, T>(y, c, include_self);
    case Join::prod:
      return join_typed<Join::prod, T>(y, c, include_self);
    case Join::mean:
      return join_typed<Join::mean, T>(y, c, include_self);
    case Join::amax:
      return join_typed<Join::amax, T>(y, c, include_self);
    case Join::amin:
      return join_typed<Join::amin, T>(y, c, include_self);
  }
}

}  // namespace

void scatter_reduce_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                        const std::string& reduce, bool include_self) {
  Tensor dense = y.is_contiguous() ? y : empty(like(y));
  dispatch_all(x.dtype(), kName,
               [&]<class T>() { join_typed<T>(dense, plain(x, dim, index, src), join_of(reduce), include_self); });
  if (!dense.same_as(y)) copy_elements(y, dense);
}

}  // namespace strata
