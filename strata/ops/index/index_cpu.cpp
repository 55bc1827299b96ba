// Kernels that read and write by index. Every one of them sees its tensor as [pre, indexed, post]: element offsets of
// the dimensions before, of the named elements, and of the dimensions after.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/index/index_kernels.h"

namespace strata {
namespace {

using Offsets = std::vector<int64_t>;

// The element offset of each position of `shape`, in row-major order.
Offsets offsets_of(const Shape& shape, const Strides& strides) {
  Offsets all{0};
  all.reserve(static_cast<size_t>(shape.product()));
  for (int d = 0; d < shape.size(); ++d) {
    Offsets next;
    next.reserve(all.size() * static_cast<size_t>(shape[d]));
    for (int64_t base : all)
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(base + i * strides[d]);
    all = std::move(next);
  }
  return all;
}

Offsets offsets_of_dims(const Tensor& x, const Dims& dims) {
  Shape shape;
  Strides strides;
  for (int64_t d : dims) {
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return offsets_of(shape, strides);
}

// Whether they lie `step` apart, from 0 on.
bool is_run(const Offsets& o, int64_t step = 1) {
  for (size_t i = 0; i < o.size(); ++i)
    if (o[i] != static_cast<int64_t>(i) * step) return false;
  return true;
}

[[noreturn]] void throw_range(std::string_view op, int64_t index, int64_t dim, int64_t size) {
  throw IndexError(op, cat("index ", index, " is out of range for dimension ", dim, " with size ", size));
}

// Adds index * stride of one index tensor (broadcast to `shape`) to `offsets`.
void add_index(Offsets& offsets, const Tensor& index, const Shape& shape, int64_t dim, int64_t size, int64_t stride,
               bool wrap, std::string_view op) {
  const Tensor i64 = to(index, DType::i64);
  const int lead = shape.size() - static_cast<int>(i64.dim());
  Strides strides = Strides::filled(shape.size(), 0);
  for (int d = 0; d < i64.dim(); ++d)
    if (i64.shape()[d] != 1) strides[lead + d] = i64.strides()[d];
  const Tensor dense = contiguous(alias(i64, shape, strides, i64.storage_offset()));
  const int64_t* p = dense.data<int64_t>();
  for (size_t i = 0; i < offsets.size(); ++i) {
    int64_t v = p[i];
    if (v < 0 && wrap) v += size;
    if (v < 0 || v >= size) throw_range(op, p[i], dim, size);
    offsets[i] += v * stride;
  }
}

struct Places {
  Offsets pre, at, post;
  bool run = false;  // post is 0, 1, 2, ...
  int64_t count() const { return static_cast<int64_t>(pre.size() * at.size() * post.size()); }
};

Places places(const Tensor& x, const TensorList& indices, const IndexPlan& plan, std::string_view op) {
  Places r;
  r.at.assign(static_cast<size_t>(plan.broadcast.product()), 0);
  for (int64_t d : plan.indexed)
    add_index(r.at, indices[static_cast<size_t>(d)], plan.broadcast, d, x.shape()[d], x.strides()[d], true, op);
  if (x.numel() == 0 || r.at.empty()) return {};  // the other sizes may be beyond all memory
  r.pre = offsets_of_dims(x, plan.pre);
  r.post = offsets_of_dims(x, plan.post);
  r.run = is_run(r.post);
  return r;
}

// The same for one 1-D index into dimension `dim`.
Places places(const Tensor& x, int64_t dim, const Tensor& index, std::string_view op) {
  Places r;
  r.at.assign(static_cast<size_t>(index.numel()), 0);
  const int64_t size = x.dim() == 0 ? 1 : x.shape()[dim], stride = x.dim() == 0 ? 1 : x.strides()[dim];
  add_index(r.at, index, {index.numel()}, dim, size, stride, false, op);
  if (x.numel() == 0 || r.at.empty()) return {};
  Dims pre, post;
  for (int i = 0; i < x.dim(); ++i)
    if (i != dim) (i < dim ? pre : post).push_back(i);
  r.pre = offsets_of_dims(x, pre);
  r.post = offsets_of_dims(x, post);
  r.run = is_run(r.post);
  return r;
}

// y, row-major, = x at the places.
void read_places(Tensor& y, const Tensor& x, const Places& at) {
  if (at.count() == 0) return;
  const int64_t n = static_cast<int64_t>(at.at.size()), width = static_cast<int64_t>(at.post.size());
  dispatch_bytes(x.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(x.raw_data());
    T* to = static_cast<T*>(y.raw_data());
    // Few elements are copied one by one: a call for each would take longer.
    const bool few = at.run && width <= 4, seconds = width >= 8 && is_run(at.post, 2);
    parallel_for(0, static_cast<int64_t>(at.pre.size()) * n, std::max<int64_t>(1, kGrain / width),
                 [&](int64_t b, int64_t e) {
                   while (b < e) {
                     const int64_t p = b / n, first = b % n, last = std::min(n, first + e - b);
                     const T* src = from + at.pre[static_cast<size_t>(p)];
                     T* dst = to + b * width;
                     const int64_t* places = at.at.data();
                     if (width == 1 && at.run) {
                       for (int64_t k = first; k < last; ++k) *dst++ = src[places[k]];
                     } else if (few) {
                       for (int64_t k = first; k < last; ++k)
                         for (int64_t i = 0; i < width; ++i) *dst++ = src[places[k] + i];
                     } else if (at.run) {
                       // Rows lie anywhere: what the next ones read is asked for before.
                       const int64_t bytes = width * static_cast<int64_t>(sizeof(T));
                       const int64_t ahead = bytes <= 4096 ? 2 : last;
                       for (int64_t k = first; k < last; ++k, dst += width) {
                         if (k + ahead < last)
                           for (int64_t i = 0; i < bytes; i += 64)
                             __builtin_prefetch(reinterpret_cast<const char*>(src + places[k + ahead]) + i);
                         std::memcpy(dst, src + places[k], static_cast<size_t>(bytes));
                       }
                     } else if (seconds) {
                       for (int64_t k = first; k < last; ++k, dst += width)
                         gather_second(sizeof(T), dst, reinterpret_cast<const char*>(src + places[k]), width);
                     } else {
                       const int64_t* const post = at.post.data();
                       for (int64_t k = first; k < last; ++k)
                         for (int64_t i = 0; i < width; ++i) *dst++ = src[places[k] + post[i]];
                     }
                     b += last - first;
                   }
                 });
  });
}

// Splits the columns (pre, post) over threads and calls f(pre, first, last): no two threads meet at one element, and
// each goes through the named places in order.
template <class F>
void for_columns(size_t pre, size_t named, size_t post, F f) {
  const int64_t width = static_cast<int64_t>(post),
                grain = std::max<int64_t>(16, kGrain / std::max<int64_t>(1, static_cast<int64_t>(named)));
  parallel_for(0, static_cast<int64_t>(pre) * width, grain, [&](int64_t b, int64_t e) {
    while (b < e) {
      const int64_t p = b / width, first = b % width, last = std::min(width, first + e - b);
      f(p, first, last);
      b += last - first;
    }
  });
}

// sum + factor * term; integers wrap around.
template <class T>
T accumulated(T sum, T factor, T term) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(factor) * static_cast<uint64_t>(term));
  } else {
    return static_cast<T>(sum + factor * term);
  }
}

template <class T, bool add>
void write_places(Tensor& y, const Places& at, const Tensor& value, T factor) {
  const int64_t n = static_cast<int64_t>(at.at.size()), width = static_cast<int64_t>(at.post.size());
  T* to = static_cast<T*>(y.raw_data());
  const T* from = static_cast<const T*>(value.raw_data());
  for_columns(at.pre.size(), at.at.size(), at.post.size(), [&](int64_t p, int64_t first, int64_t last) {
    if (width == 1) {  // the last dimension is the indexed one
      T* row = to + at.pre[static_cast<size_t>(p)];
      const T* src = from + p * n;
      const int64_t* named = at.at.data();
      for (int64_t k = 0; k < n; ++k) {
        T& d = row[named[k]];
        if constexpr (add)
          d = accumulated(d, factor, src[k]);
        else
          d = src[k];
      }
      return;
    }
    for (int64_t k = 0; k < n; ++k) {
      T* dst = to + at.pre[static_cast<size_t>(p)] + at.at[static_cast<size_t>(k)];
      const T* src = from + (p * n + k) * width;
      if constexpr (add) {
        if (at.run) {
          for (int64_t i = first; i < last; ++i) dst[i] = accumulated(dst[i], factor, src[i]);
        } else {
          for (int64_t i = first; i < last; ++i) {
            T& d = dst[at.post[static_cast<size_t>(i)]];
            d = accumulated(d, factor, src[i]);
          }
        }
      } else if (at.run) {
        std::memcpy(dst + first, src + first, static_cast<size_t>(last - first) * sizeof(T));
      } else {
        for (int64_t i = first; i < last; ++i) dst[at.post[static_cast<size_t>(i)]] = src[i];
      }
    }
  });
}

void start_from(Tensor& y, const Tensor& x) {
  if (!y.same_as(x)) copy_elements(y, x);
}

// Runs `add` on y holding x, or for bf16 and f16 on f32 copies that are rounded once at the end.
template <class Add>
void accumulate_into(Tensor& y, const Tensor& x, const Tensor& source, Add&& add) {
  if (is_reduced_floating(y.dtype())) {
    Tensor wide = to(x, DType::f32);
    add(wide, contiguous(to(source, DType::f32)));
    copy_elements(y, wide);
    return;
  }
  start_from(y, x);
  add(y, contiguous(source));
}

// Calls f.operator()<T>() for the types in which sums are formed.
template <class F>
void dispatch_sums(DType t, std::string_view op, F&& f) {
  if (t == DType::f16 || t == DType::bf16) throw DTypeError(op, "sums of 16-bit floats are formed in f32");
  if (is_floating(t)) {
    dispatch_wide_floats(t, op, f);
  } else if (t == DType::boolean) {
    f.template operator()<bool>();
  } else {
    dispatch_ints(t, op, f);
  }
}

}  // namespace

void index_cpu(Tensor& y, const Tensor& x, const TensorList& indices) {
  read_places(y, x, places(x, indices, plan_index(x, indices, "index"), "index"));
}

void index_select_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index) {
  dim = wrap_dim(dim, x.dim(), "index_select");
  if (index.numel() == 1 && x.dim() > 0) {  // one slice is copied as any other
    const int64_t i = to(index, DType::i64).data<int64_t>()[0], size = x.shape()[dim];
    if (i < 0 || i >= size) throw_range("index_select", i, dim, size);
    return copy_elements(y, alias(x, y.shape(), x.strides(), x.storage_offset() + i * x.strides()[dim]));
  }
  read_places(y, x, places(x, dim, index, "index_select"));
}

void index_put_cpu(Tensor& y, const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate) {
  const IndexPlan plan = plan_index(x, indices, "index_put");
  if (!accumulate) {
    start_from(y, x);
    const Places at = places(y, indices, plan, "index_put");
    if (at.count() == 0) return;
    const Tensor dense = contiguous(value);
    dispatch_bytes(y.dtype(), [&]<class T>() { write_places<T, false>(y, at, dense, T{}); });
    return;
  }
  accumulate_into(y, x, value, [&](Tensor& sum, const Tensor& dense) {
    const Places at = places(sum, indices, plan, "index_put");
    if (at.count() == 0) return;
    dispatch_sums(sum.dtype(), "index_put",
                  [&]<class T>() { write_places<T, true>(sum, at, dense, static_cast<T>(1)); });
  });
}

void index_add_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  dim = wrap_dim(dim, x.dim(), "index_add");
  accumulate_into(y, x, source, [&](Tensor& sum, const Tensor& dense) {
    const Places at = places(sum, dim, index, "index_add");
    if (at.count() == 0) return;
    dispatch_sums(sum.dtype(), "index_add", [&]<class T>() { write_places<T, true>(sum, at, dense, alpha.to<T>()); });
  });
}

// ---- an index for each element ----

namespace {

// x as [pre, dim, post] restricted to the index's sizes, and the index itself, dense and checked.
struct Lines {
  Offsets pre, post;
  int64_t length = 1;  // of the index along dim
  int64_t stride = 0;  // of x along dim
  bool run = false;
  Tensor index;
  const int64_t* row(int64_t p, int64_t k) const {
    return index.data<int64_t>() + (p * length + k) * static_cast<int64_t>(post.size());
  }
};

// `from_end`: negative indices count from the end.
Lines lines(const Tensor& x, int64_t dim, const Tensor& index, std::string_view op, bool from_end = false) {
  Lines r;
  r.index = contiguous(to(index, DType::i64));
  Shape pre, post;
  Strides pre_strides, post_strides;
  for (int i = 0; i < x.dim(); ++i) {
    if (i == dim) continue;
    (i < dim ? pre : post).push_back(index.shape()[i]);
    (i < dim ? pre_strides : post_strides).push_back(x.strides()[i]);
  }
  r.pre = offsets_of(pre, pre_strides);
  r.post = offsets_of(post, post_strides);
  r.run = is_run(r.post);
  const int64_t size = x.dim() == 0 ? 1 : x.shape()[dim];
  r.length = x.dim() == 0 ? 1 : index.shape()[dim];
  r.stride = x.dim() == 0 ? 0 : x.strides()[dim];
  const int64_t* p = r.index.data<int64_t>();
  std::atomic<bool> some_negative = false;
  parallel_for(0, r.index.numel(), kGrain, [&](int64_t b, int64_t e) {
    // A sign, of an index or of what it leaves to the last one, says that one is outside.
    uint64_t outside = 0;
    for (int64_t i = b; i < e; ++i)
      outside |= static_cast<uint64_t>(p[i]) | (static_cast<uint64_t>(size - 1) - static_cast<uint64_t>(p[i]));
    if (outside >> 63 == 0) return;
    const int64_t least = from_end ? -size : 0;
    for (int64_t i = b; i < e; ++i)
      if (p[i] < least || p[i] >= size) throw_range(op, p[i], dim, size);
    some_negative.store(true, std::memory_order_relaxed);
  });
  if (!some_negative) return r;
  if (r.index.same_as(index) || r.index.storage() == index.storage()) r.index = clone(r.index);
  int64_t* const q = r.index.data<int64_t>();
  parallel_for(0, r.index.numel(), kGrain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) q[i] += q[i] < 0 ? size : 0;
  });
  return r;
}

// The leading part of src that the index uses, row-major.
Tensor source_part(const Tensor& src, const Tensor& index) {
  return contiguous(alias(src, index.shape(), src.strides(), src.storage_offset()));
}

// Numbers of a call by value: elements of one byte may be anything's bytes, so that those behind a reference would be
// read again after each store.
template <class T, bool add>
void write_lines(Tensor& y, const Lines& l, const Tensor& src) {
  T* to = static_cast<T*>(y.raw_data());
  const T* from = static_cast<const T*>(src.raw_data());
  const auto put = [](T& d, T v) {
    if constexpr (add)
      d = accumulated(d, static_cast<T>(1.0f), v);
    else
      d = v;
  };
  for_columns(l.pre.size(), static_cast<size_t>(l.length), l.post.size(), [&](int64_t p, int64_t first, int64_t last) {
    T* const base = to + l.pre[static_cast<size_t>(p)];
    const int64_t width = static_cast<int64_t>(l.post.size()), length = l.length, stride = l.stride;
    if (width == 1) {  // the last dimension is the indexed one
      const int64_t* const index = l.row(p, 0);
      const T* const s = from + p * length;
      if (stride == 1)
        for (int64_t k = 0; k < length; ++k) put(base[index[k]], s[k]);
      else
        for (int64_t k = 0; k < length; ++k) put(base[index[k] * stride], s[k]);
      return;
    }
    const int64_t* const post = l.post.data();
    for (int64_t k = 0; k < length; ++k) {
      const int64_t* const index = l.row(p, k);
      const T* const s = from + (p * length + k) * width;
      if (l.run)
        for (int64_t i = first; i < last; ++i) put(base[index[i] * stride + i], s[i]);
      else
        for (int64_t i = first; i < last; ++i) put(base[index[i] * stride + post[i]], s[i]);
    }
  });
}

}  // namespace

void gather_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, bool from_end) {
  dim = wrap_dim(dim, x.dim(), "gather");
  if (index.numel() == 0) return;
  const Lines l = lines(x, dim, index, from_end ? "take_along_dim" : "gather", from_end);
  const int64_t width = static_cast<int64_t>(l.post.size());
  dispatch_bytes(x.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(x.raw_data());
    T* to = static_cast<T*>(y.raw_data());
    const int64_t length = l.length;
    parallel_for(0, static_cast<int64_t>(l.pre.size()) * length, std::max<int64_t>(1, kGrain / width),
                 [&l, from, to, width, length](int64_t b, int64_t e) {
                   const int64_t stride = l.stride;
                   const int64_t *const pre = l.pre.data(), *const post = l.post.data(), *const at = l.row(0, 0);
                   while (width == 1 && b < e) {  // the last dimension is the indexed one
                     const int64_t p = b / length, stop = std::min(e, (p + 1) * length);
                     const T* const base = from + pre[p];
                     if (stride == 1)
                       for (; b < stop; ++b) to[b] = base[at[b]];
                     else
                       for (; b < stop; ++b) to[b] = base[at[b] * stride];
                   }
                   for (int64_t row = b; row < e; ++row) {
                     const T* const base = from + pre[row / length];
                     const int64_t* const index = at + row * width;
                     T* const dst = to + row * width;
                     if (l.run)
                       for (int64_t i = 0; i < width; ++i) dst[i] = base[index[i] * stride + i];
                     else
                       for (int64_t i = 0; i < width; ++i) dst[i] = base[index[i] * stride + post[i]];
                   }
                 });
  });
}

void scatter_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  dim = wrap_dim(dim, x.dim(), "scatter");
  start_from(y, x);
  if (index.numel() == 0) return;
  const Lines l = lines(y, dim, index, "scatter");
  const Tensor part = source_part(src, index);
  dispatch_bytes(y.dtype(), [&]<class T>() { write_lines<T, false>(y, l, part); });
}

void scatter_add_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  dim = wrap_dim(dim, x.dim(), "scatter_add");
  accumulate_into(y, x, source_part(src, index), [&](Tensor& sum, const Tensor& part) {
    if (index.numel() == 0) return;
    const Lines l = lines(sum, dim, index, "scatter_add");
    dispatch_sums(sum.dtype(), "scatter_add", [&]<class T>() { write_lines<T, true>(sum, l, part); });
  });
}

// ---- masks ----

void masked_fill_cpu(Tensor& y, const Tensor& x, const Tensor& mask, Scalar value) {
  const Tensor one = empty({{}, y.dtype(), Device::cpu(), std::nullopt});
  fill_elements(one, value);
  const Tensor filled = alias(one, y.shape(), Strides::filled(y.shape().size(), 0), 0);
  // As where() does: nothing is computed, so 16-bit floats are taken as they are.
  const auto bits = [](const Tensor& t) {
    Tensor r = alias(t, t.shape(), t.strides(), t.storage_offset());
    if (is_reduced_floating(t.dtype())) r.impl().dtype = DType::i16;
    return r;
  };
  Tensor out = bits(y);
  const Tensor yes = bits(filled), no = bits(x);
  map_cpu(Map::where, out, {&mask, &yes, &no}, {});
}

void masked_scatter_cpu(Tensor& y, const Tensor& x, const Tensor& mask, const Tensor& source) {
  const Tensor m = contiguous(mask), in = contiguous(source);
  const bool* on = m.data<bool>();
  const int64_t wanted = std::count(on, on + m.numel(), true);
  check<ShapeError>(source.numel() >= wanted, "masked_scatter", "the mask is true at ", wanted, " places, source ",
                    source, " has ", source.numel(), " elements");
  Tensor dense = y.is_contiguous() ? y : empty(like(y));
  start_from(dense, x);
  dispatch_bytes(y.dtype(), [&]<class T>() {
    T* o = static_cast<T*>(dense.raw_data());
    const T* s = static_cast<const T*>(in.raw_data());
    for (int64_t i = 0; i < m.numel(); ++i)
      // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): where the mask is true there are elements
      if (on[i]) o[i] = *s++;
  });
  if (!dense.same_as(y)) copy_elements(y, dense);
}

int64_t count_nonzero(const Tensor& x) {
  const Tensor on = contiguous(to(x, DType::boolean));
  const auto* p = on.numel() > 0 ? reinterpret_cast<const uint8_t*>(on.data<bool>()) : nullptr;
  int64_t count = 0;
  for (int64_t i = 0; i < on.numel();) {  // sums of 8 bits lie in the lanes of a vector, and hold 255
    uint8_t sums[64] = {};
    const int64_t stop = std::min<int64_t>(on.numel(), i + 64 * 255) - 63;
    for (; i < stop; i += 64)
      for (int j = 0; j < 64; ++j) sums[j] = static_cast<uint8_t>(sums[j] + p[i + j]);
    for (const uint8_t v : sums) count += v;
    if (on.numel() - i < 64)
      for (; i < on.numel(); ++i) count += p[i];
  }
  return count;
}

void masked_select_into(Tensor& y, const Tensor& x, const Tensor& mask) {
  const Tensor m = contiguous(mask), in = contiguous(x);
  const bool* on = m.data<bool>();
  dispatch_bytes(y.dtype(), [&]<class T>() {
    T* o = static_cast<T*>(y.raw_data());
    const T* s = static_cast<const T*>(in.raw_data());
    for (int64_t i = 0; i < m.numel(); ++i)
      // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): where the mask is true there are elements
      if (on[i]) *o++ = s[i];
  });
}

void nonzero_into(Tensor& y, const Tensor& x) {
  const Tensor on = contiguous(to(x, DType::boolean));
  if (y.numel() == 0) return;
  const bool* p = on.data<bool>();
  int64_t* o = y.data<int64_t>();
  // Row by row: the places before the last dimension are one for the whole row.
  const int rank = static_cast<int>(x.dim());
  const int64_t width = x.shape().back();
  Dims at = Dims::filled(rank - 1, 0);
  for (int64_t begin = 0; begin < on.numel(); begin += width, p += width) {
    for (int64_t j = 0; j < width;) {
      uint64_t eight = 0;
      if (j + 8 <= width) {
        std::memcpy(&eight, p + j, 8);
        if (eight == 0) {
          j += 8;
          continue;
        }
      }
      for (const int64_t stop = std::min(width, j + 8); j < stop; ++j) {
        if (!p[j]) continue;
        for (int d = 0; d + 1 < rank; ++d) *o++ = at[d];
        *o++ = j;
      }
    }
    for (int d = at.size() - 1; d >= 0; --d) {
      if (++at[d] < x.shape()[d]) break;
      at[d] = 0;
    }
  }
}

// ---- classes and counts ----

void one_hot_cpu(Tensor& y, const Tensor& x, int64_t num_classes) {
  const Tensor dense = contiguous(to(x, DType::i64));
  const int64_t* p = dense.data<int64_t>();
  int64_t* o = y.data<int64_t>();
  std::fill_n(o, y.numel(), 0);
  for (int64_t i = 0; i < dense.numel(); ++i) {
    check<IndexError>(p[i] >= 0 && p[i] < num_classes, "one_hot", "class ", p[i], " at element ", i,
                      " is out of range for ", num_classes, " classes");
    o[i * num_classes + p[i]] = 1;
  }
}

Tensor bincount_cpu(const Tensor& x, const Tensor& weights, int64_t minlength) {
  const Tensor dense = contiguous(x);
  const int64_t n = x.numel();
  const DType type = !weights.defined() ? DType::i64 : weights.dtype() == DType::f32 ? DType::f32 : DType::f64;
  const Tensor w = weights.defined() ? contiguous(to(weights, type)) : weights;
  Tensor y;
  dispatch_ints(x.dtype(), "bincount", [&]<class I>() {
    const I* p = n > 0 ? dense.data<I>() : nullptr;
    I low = 0, high = 0;
    for (int64_t i = 0; i < n; ++i) low = std::min(low, p[i]), high = std::max(high, p[i]);
    if (low < 0 || static_cast<int64_t>(high) >= kMostBins) {
      for (int64_t i = 0; i < n; ++i) {
        check(p[i] >= 0, "bincount", "values must not be negative, got ", static_cast<int64_t>(p[i]), " at element ",
              i);
        check(static_cast<int64_t>(p[i]) < kMostBins, "bincount", "values must be below 2^60, got ",
              static_cast<int64_t>(p[i]), " at element ", i);
      }
    }
    y = empty({{std::max(minlength, n > 0 ? static_cast<int64_t>(high) + 1 : 0)}, type, x.device(), std::nullopt});
    fill_elements(y, 0);
    if (n == 0) return;
    if (w.defined()) {
      dispatch_wide_floats(type, "bincount", [&]<class T>() {
        T* o = y.data<T>();
        const T* v = w.data<T>();
        for (int64_t i = 0; i < n; ++i) o[p[i]] += v[i];
      });
      return;
    }
    // Four counts side by side where they are few: one that grows in every step would wait for itself.
    int64_t* o = y.data<int64_t>();
    const int64_t bins = y.numel();
    int64_t i = 0;
    if (bins <= 4096 && n >= 4 * bins) {
      std::vector<int64_t> more(static_cast<size_t>(3 * bins));
      int64_t *o1 = more.data(), *o2 = o1 + bins, *o3 = o2 + bins;
      for (; i + 4 <= n; i += 4) ++o[p[i]], ++o1[p[i + 1]], ++o2[p[i + 2]], ++o3[p[i + 3]];
      for (int64_t k = 0; k < bins; ++k) o[k] += o1[k] + o2[k] + o3[k];
    }
    for (; i < n; ++i) ++o[p[i]];
  });
  return y;
}

}  // namespace strata
