#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr int64_t kSortGrain = 4096;

// An element of a row as it is compared, and its place. Total order: by value (NaN last), then by place.
template <class K>
struct Item {
  K key;
  int64_t at;
};
template <class K>
bool below(K a, K b) {
  return a < b || (b != b && a == a);
}
template <class K>
struct Ascending {
  bool operator()(const Item<K>& a, const Item<K>& b) const {
    return below(a.key, b.key) || (!below(b.key, a.key) && a.at < b.at);
  }
};
template <class K>
struct Descending {
  bool operator()(const Item<K>& a, const Item<K>& b) const {
    return below(b.key, a.key) || (!below(a.key, b.key) && a.at < b.at);
  }
};

// Calls f.operator()<T, K>(): T as stored, K as compared. Three kinds of keys keep the code small.
template <class F>
void dispatch_keys(DType t, std::string_view op, F&& f) {
  dispatch_all(t, op, [&]<class T>() {
    if constexpr (std::is_same_v<T, double>)
      f.template operator()<T, double>();
    else if constexpr (std::is_same_v<compute_t<T>, float>)
      f.template operator()<T, float>();
    else
      f.template operator()<T, int64_t>();
  });
}

// Takes each row's items through `order`, then writes the first `take` of them from item `skip` on.
template <class Order>
void write_rows(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, int64_t skip, int64_t take,
                std::string_view op, Order order) {
  dim = wrap_dim(dim, x.dim(), op);
  const SortRows rows = sort_rows(x, dim);
  if (rows.count == 0 || take == 0) return;
  Shape shape = rows.dense.shape();
  shape[shape.size() - 1] = take;
  Tensor v = empty(like(x).with_shape(shape));
  Tensor at = empty({shape, DType::i64, x.device(), std::nullopt});
  dispatch_keys(x.dtype(), op, [&]<class T, class K>() {
    const T* in = rows.dense.data<T>();
    T* out = v.data<T>();
    int64_t* out_at = at.data<int64_t>();
    parallel_for(0, rows.count, std::max<int64_t>(1, kSortGrain / rows.length), [&](int64_t b, int64_t e) {
      std::vector<Item<K>> items(static_cast<size_t>(rows.length));
      for (int64_t r = b; r < e; ++r) {
        const T* row = in + r * rows.length;
        for (int64_t i = 0; i < rows.length; ++i) items[static_cast<size_t>(i)] = {static_cast<K>(row[i]), i};
        order(items);
        for (int64_t i = 0; i < take; ++i) {
          const int64_t from = items[static_cast<size_t>(skip + i)].at;
          out[r * take + i] = row[from];
          out_at[r * take + i] = from;
        }
      }
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

}  // namespace

void sort_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending) {
  const int64_t n = x.dim() == 0 ? 1 : x.size(dim);
  write_rows(values, indices, x, dim, 0, n, "sort", [descending]<class K>(std::vector<Item<K>>& items) {
    if (descending)
      std::sort(items.begin(), items.end(), Descending<K>());
    else
      std::sort(items.begin(), items.end(), Ascending<K>());
  });
}

void topk_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest) {
  write_rows(values, indices, x, dim, 0, k, "topk", [largest, k]<class K>(std::vector<Item<K>>& items) {
    const auto best = [&](auto before) {
      // A heap of k is quicker for few; else the k best are parted off and then ordered.
      if (k * 64 <= static_cast<int64_t>(items.size())) {
        std::partial_sort(items.begin(), items.begin() + k, items.end(), before);
      } else {
        if (k < static_cast<int64_t>(items.size()))
          std::nth_element(items.begin(), items.begin() + (k - 1), items.end(), before);
        std::sort(items.begin(), items.begin() + k, before);
      }
    };
    if (largest)
      best(Descending<K>());
    else
      best(Ascending<K>());
  });
}

void kthvalue_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool) {
  write_rows(values, indices, x, dim, k - 1, 1, "kthvalue", [k]<class K>(std::vector<Item<K>>& items) {
    std::nth_element(items.begin(), items.begin() + (k - 1), items.end(), Ascending<K>());
  });
}

std::tuple<Tensor, Tensor, Tensor> unique_cpu(const Tensor& x, bool return_inverse, bool return_counts) {
  const Tensor dense = contiguous(x);
  const int64_t n = x.numel();
  const auto make = [&](const Shape& shape, DType t) { return empty({shape, t, x.device(), std::nullopt}); };
  Tensor values, inverse = make(return_inverse ? x.shape() : Shape{0}, DType::i64), counts;
  dispatch_keys(x.dtype(), "unique", [&]<class T, class K>() {
    const T* in = dense.data<T>();
    std::vector<Item<K>> items(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) items[static_cast<size_t>(i)] = {static_cast<K>(in[i]), i};
    std::sort(items.begin(), items.end(), Ascending<K>());
    std::vector<int64_t> starts;  // of each run of equal keys
    for (int64_t i = 0; i < n; ++i) {
      const Item<K>& item = items[static_cast<size_t>(i)];
      if (i == 0 || !(items[static_cast<size_t>(i - 1)].key == item.key)) starts.push_back(i);
      if (return_inverse) inverse.data<int64_t>()[item.at] = static_cast<int64_t>(starts.size()) - 1;
    }
    const int64_t found = static_cast<int64_t>(starts.size());
    values = make({found}, x.dtype());
    counts = make({return_counts ? found : 0}, DType::i64);
    for (int64_t i = 0; i < found; ++i) {
      const int64_t start = starts[static_cast<size_t>(i)];
      values.data<T>()[i] = in[items[static_cast<size_t>(start)].at];
      if (return_counts) counts.data<int64_t>()[i] = (i + 1 < found ? starts[static_cast<size_t>(i + 1)] : n) - start;
    }
  });
  return {values, inverse, counts};
}

void searchsorted_cpu(Tensor& y, const Tensor& sorted, const Tensor& values, bool right) {
  const Tensor s = contiguous(sorted), v = contiguous(values);
  const int64_t n = s.shape().back(), m = s.dim() == 1 ? v.numel() : v.shape().back();
  int64_t* out = y.data<int64_t>();
  dispatch_keys(s.dtype(), "searchsorted", [&]<class T, class K>() {
    const T* table = s.data<T>();
    const T* in = v.data<T>();
    parallel_for(0, v.numel(), kSortGrain, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        const T* row = table + (m == 0 ? 0 : i / m) * n;
        const K key = static_cast<K>(in[i]);
        const T* at =
            right ? std::upper_bound(row, row + n, key, [](K k, const T& t) { return below(k, static_cast<K>(t)); })
                  : std::lower_bound(row, row + n, key, [](const T& t, K k) { return below(static_cast<K>(t), k); });
        out[i] = at - row;
      }
    });
  });
}

}  // namespace strata
