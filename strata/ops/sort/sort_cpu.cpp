#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/sort/order_inl.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr int64_t kSortGrain = 4096;

// Asks `choose` for each row's items, then writes the first `take` of them from item `skip` on.
template <class Choose>
void write_rows(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, int64_t skip, int64_t take,
                std::string_view op, Choose choose) {
  dim = wrap_dim(dim, x.dim(), op);
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0 || take == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = take;
  Tensor v = empty(like(x).with_shape(shape));
  Tensor at = empty({shape, DType::i64, x.device(), std::nullopt});
  dispatch_all(x.dtype(), op, [&]<class T>() {
    const T* in = rows.dense.data<T>();
    T* out = v.data<T>();
    int64_t* out_at = at.data<int64_t>();
    order::with_items<T>(rows.length, [&]<class Item>() {
      parallel_for(0, rows.count, std::max<int64_t>(1, kSortGrain / rows.length), [&](int64_t b, int64_t e) {
        std::vector<Item> items, room;
        for (int64_t r = b; r < e; ++r) {
          const T* row = in + r * rows.length;
          choose(items, room, row, rows.length);
          for (int64_t i = 0; i < take; ++i) {
            const int64_t from = items[static_cast<size_t>(skip + i)].at();
            out[r * take + i] = row[from];
            out_at[r * take + i] = from;
          }
        }
      });
    });
  });
  const auto place = [&](Tensor& to, const Tensor& from) {
    if (x.dim() == 0) {
      copy_elements(to, reshape(from, to.shape()));
    } else {
      const Tensor t = transpose(from, dim, -1);
      copy_elements(to, to.shape() == t.shape() ? t : reshape(t, to.shape()));
    }
  };
  place(values, v);
  place(indices, at);
}

// The place in its row that `choose` finds among the row's items: indices [.., 1, ..] from x.
template <class Choose>
void write_places(Tensor& indices, const Tensor& x, int64_t dim, std::string_view op, Choose choose) {
  const SortRows rows = sort_rows(x, wrap_dim(dim, x.dim(), op));
  if (rows.count == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = 1;
  Tensor at = empty({shape, DType::i64, x.device(), std::nullopt});
  dispatch_all(x.dtype(), op, [&]<class T>() {
    const T* in = rows.dense.data<T>();
    int64_t* out = at.data<int64_t>();
    order::with_items<T>(rows.length, [&]<class Item>() {
      parallel_for(0, rows.count, std::max<int64_t>(1, kSortGrain / rows.length), [&](int64_t b, int64_t e) {
        std::vector<Item> items, room;
        for (int64_t r = b; r < e; ++r) {
          order::fill(items, in + r * rows.length, rows.length, false);
          out[r] = choose.template operator()<T>(items, room);
        }
      });
    });
  });
  copy_elements(indices, x.dim() == 0 ? reshape(at, indices.shape()) : transpose(at, dim, -1));
}

}  // namespace

void sort_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending) {
  const int64_t n = x.dim() == 0 ? 1 : x.size(dim);
  write_rows(values, indices, x, dim, 0, n, "sort",
             [descending]<class T>(auto& items, auto& room, const T* row, int64_t length) {
               order::fill(items, row, length, descending);
               order::sort(items, room, sizeof(T));
             });
}

void sort_values_cpu(Tensor& values, const Tensor& x, int64_t dim, bool descending) {
  Tensor indices = empty({x.shape(), DType::i64, x.device(), std::nullopt});
  sort_cpu(values, indices, x, dim, descending);
}

void topk_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest) {
  write_rows(values, indices, x, dim, 0, k, "topk",
             [k, largest]<class T>(auto& items, auto&, const T* row, int64_t length) {
               // A heap of k is quicker for few; else the k best are parted off and then ordered.
               if (k * 64 <= length) return order::first_few(items, row, length, k, largest);
               order::fill(items, row, length, largest);
               if (k < length) std::nth_element(items.begin(), items.begin() + (k - 1), items.end());
               std::sort(items.begin(), items.begin() + k);
             });
}

void kthvalue_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool) {
  write_rows(values, indices, x, dim, k - 1, 1, "kthvalue",
             [k]<class T>(auto& items, auto&, const T* row, int64_t length) {
               order::fill(items, row, length, false);
               std::nth_element(items.begin(), items.begin() + (k - 1), items.end());
             });
}

void median_place_cpu(Tensor& indices, const Tensor& x, int64_t dim, bool skip_nan) {
  write_places(indices, x, dim, "median", [skip_nan]<class T>(auto& items, auto&) -> int64_t {
    [[maybe_unused]] constexpr uint64_t kNan = std::numeric_limits<order::Key<T>>::max();
    auto numbers = static_cast<std::ptrdiff_t>(items.size());
    if constexpr (order::kHasNan<T>) {
      const auto is_nan = [](const auto& item) { return item.key() == kNan; };
      if (!skip_nan) {
        const auto found = std::find_if(items.begin(), items.end(), is_nan);
        if (found != items.end()) return found->at();
      } else {
        numbers -= std::count_if(items.begin(), items.end(), is_nan);
      }
    }
    const auto middle = items.begin() + std::max<std::ptrdiff_t>(numbers - 1, 0) / 2;
    std::nth_element(items.begin(), middle, items.end());
    return middle->at();
  });
}

void median_cpu(Tensor& y, const Tensor& x, bool skip_nan) {
  const Tensor dense = contiguous(x);
  dispatch_all(x.dtype(), "median", [&]<class T>() {
    using K = order::Key<T>;
    constexpr K kNan = std::numeric_limits<K>::max();
    std::vector<K> keys(static_cast<size_t>(x.numel()));
    std::transform(dense.data<T>(), dense.data<T>() + x.numel(), keys.begin(), order::key_of<T>);
    T* to = y.data<T>();
    if constexpr (order::kHasNan<T>) {
      const auto nan = static_cast<size_t>(std::count(keys.begin(), keys.end(), kNan));
      if (nan == keys.size() || (nan > 0 && !skip_nan)) {
        *to = static_cast<T>(std::numeric_limits<compute_t<T>>::quiet_NaN());
        return;
      }
      *to = order::value_of<T>(order::select(keys, (keys.size() - nan - 1) / 2));
    } else {
      *to = order::value_of<T>(order::select(keys, (keys.size() - 1) / 2));
    }
  });
}

void mode_place_cpu(Tensor& indices, const Tensor& x, int64_t dim) {
  write_places(indices, x, dim, "mode", []<class T>(auto& items, auto& room) -> int64_t {
    constexpr uint64_t kNan = std::numeric_limits<order::Key<T>>::max();
    order::sort(items, room, sizeof(T));
    size_t best = 0, longest = 0;
    for (size_t i = 0, begin = 0; i < items.size(); ++i) {
      if (items[i].key() != items[begin].key() || (order::kHasNan<T> && items[i].key() == kNan)) begin = i;
      if (i - begin + 1 > longest) longest = i - begin + 1, best = i;
    }
    return items[best].at();
  });
}

namespace {

// Elements of so few bits are counted, key by key.
template <class T>
std::tuple<Tensor, Tensor> counted_unique(const T* in, int64_t n, int64_t* inverse, bool return_counts,
                                          const TensorMeta& meta) {
  constexpr size_t kKeys = size_t{1} << (8 * sizeof(T));
  std::vector<int64_t> count(kKeys);
  std::vector<T> value(kKeys);
  for (int64_t i = 0; i < n; ++i) {
    const auto key = order::key_of(in[i]);
    if (count[key]++ == 0) value[key] = in[i];
  }
  std::vector<T> found;
  std::vector<int64_t> often, rank(kKeys);
  for (size_t k = 0; k < kKeys; ++k) {
    if (count[k] == 0) continue;
    rank[k] = static_cast<int64_t>(found.size());
    found.push_back(value[k]);
    often.push_back(count[k]);
  }
  if (inverse)
    for (int64_t i = 0; i < n; ++i) inverse[i] = rank[order::key_of(in[i])];
  const auto different = static_cast<int64_t>(found.size());
  Tensor values = empty(meta.with_shape({different})),
         counts = empty(meta.with_shape({return_counts ? different : 0}).with_dtype(DType::i64));
  std::copy(found.begin(), found.end(), different > 0 ? values.data<T>() : nullptr);
  if (return_counts && different > 0) std::copy(often.begin(), often.end(), counts.data<int64_t>());
  return {values, counts};
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> unique_cpu(const Tensor& x, bool return_inverse, bool return_counts) {
  const Tensor dense = contiguous(x);
  const int64_t n = x.numel();
  const auto make = [&](const Shape& shape, DType t) { return empty({shape, t, x.device(), std::nullopt}); };
  Tensor values, inverse = make(return_inverse ? x.shape() : Shape{0}, DType::i64), counts;
  int64_t* at = return_inverse && n > 0 ? inverse.data<int64_t>() : nullptr;
  dispatch_all(x.dtype(), "unique", [&]<class T>() {
    const T* in = n > 0 ? dense.data<T>() : nullptr;
    if constexpr (sizeof(T) <= 2 && std::is_integral_v<T>) {  // a NaN equals nothing
      std::tie(values, counts) = counted_unique<T>(in, n, at, return_counts, like(x));
      return;
    }
    order::with_items<T>(n, [&]<class Item>() {
      constexpr uint64_t kNan = std::numeric_limits<order::Key<T>>::max();
      std::vector<Item> items, room;
      order::fill(items, in, n, false);
      order::sort(items, room, sizeof(T));
      room = {};
      std::vector<int64_t> starts;  // of each run of equal keys
      for (int64_t i = 0; i < n; ++i) {
        const Item& item = items[static_cast<size_t>(i)];
        const bool nan = order::kHasNan<T> && item.key() == kNan;
        if (i == 0 || nan || items[static_cast<size_t>(i - 1)].key() != item.key()) starts.push_back(i);
        if (at) at[item.at()] = static_cast<int64_t>(starts.size()) - 1;
      }
      const auto found = static_cast<int64_t>(starts.size());
      values = make({found}, x.dtype());
      counts = make({return_counts ? found : 0}, DType::i64);
      T* to = found > 0 ? values.data<T>() : nullptr;
      int64_t* often = return_counts && found > 0 ? counts.data<int64_t>() : nullptr;
      for (int64_t i = 0; i < found; ++i) {
        const int64_t start = starts[static_cast<size_t>(i)];
        to[i] = in[items[static_cast<size_t>(start)].at()];
        if (often) often[i] = (i + 1 < found ? starts[static_cast<size_t>(i + 1)] : n) - start;
      }
    });
  });
  return {values, inverse, counts};
}

void searchsorted_cpu(Tensor& y, const Tensor& sorted, const Tensor& values, bool right) {
  const Tensor s = contiguous(sorted), v = contiguous(values);
  const int64_t n = s.shape().back(), m = s.dim() == 1 ? v.numel() : v.shape().back();
  int64_t* out = y.data<int64_t>();
  dispatch_all(s.dtype(), "searchsorted", [&]<class T>() {
    using K = order::Key<T>;
    const T *table = n > 0 ? s.data<T>() : nullptr, *in = v.numel() > 0 ? v.data<T>() : nullptr;
    const auto run = [&]<class E>(const E* sorted, auto&& element, auto&& below, auto&& no_further) {
      parallel_for(0, v.numel(), kSortGrain, [&](int64_t b, int64_t e) {
        // Several searches go side by side: each step of one waits for its step before.
        const auto together = [&]<int64_t kMany>(int64_t row, int64_t i, int64_t count) {
          E key[kMany] = {};
          for (int64_t q = 0; q < count; ++q) key[q] = element(in[i + q]);
          int64_t found[kMany] = {};
          if (right)
            order::search(sorted + row * n, n, key, found, no_further);
          else
            order::search(sorted + row * n, n, key, found, below);
          std::copy(found, found + count, out + i);
        };
        constexpr int64_t kTogether = 8;
        for (int64_t i = b; i < e;) {
          const int64_t row = m == 0 ? 0 : i / m, last = m == 0 ? e : std::min(e, (row + 1) * m);
          for (; last - i > 1; i += kTogether)
            together.template operator()<kTogether>(row, i, std::min(kTogether, last - i));
          if (i < last) together.template operator()<1>(row, i, 1);
          i = last;
        }
      });
    };
    const auto key = [](T value) { return order::key_of(value); };  // no pointer, which would be called at each step
    if (v.numel() < s.numel() / 64) {  // keys of all that is sorted would take longer than the searches
      const auto same = [](T value) { return value; };
      return run(
          table, same, [&](T k, T t) { return key(t) < key(k); }, [&](T k, T t) { return key(t) <= key(k); });
    }
    std::vector<K> keys(static_cast<size_t>(s.numel()));
    std::transform(table, table + s.numel(), keys.begin(), key);
    run(
        keys.data(), key, [](K k, K t) { return t < k; }, [](K k, K t) { return t <= k; });
  });
}

}  // namespace strata
