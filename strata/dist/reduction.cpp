#include "strata/dist/reduction.h"

#include <algorithm>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"

namespace strata::distributed {
namespace {

constexpr std::string_view kNames[] = {"sum", "avg", "min", "max", "product"};
// A stretch that a thread works on at a time: its sums stay in the nearest cache.
constexpr int64_t kStretch = 1024;

template <class C>
C joined(Reduction r, C a, C b) {
  switch (r) {
    case Reduction::min:
      // A NaN of any rank is seen by all.
      return a != a ? a : (b < a || b != b) ? b : a;
    case Reduction::max:
      return a != a ? a : (b > a || b != b) ? b : a;
    case Reduction::product:
      return static_cast<C>(a * b);
    case Reduction::sum:
    case Reduction::avg:
      break;
  }
  return static_cast<C>(a + b);
}

template <class T>
void reduce_typed(Reduction r, std::span<const void* const> parts, void* out, int64_t count) {
  using C = compute_t<T>;
  parallel_for(0, count, 16 * kStretch, [&](int64_t begin, int64_t end) {
    C sums[kStretch];
    for (int64_t at = begin; at < end; at += kStretch) {
      const int64_t n = std::min(kStretch, end - at);
      for (size_t p = 0; p < parts.size(); ++p) {
        const T* const x = static_cast<const T*>(parts[p]) + at;
        if (p == 0) {
          for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<C>(x[i]);
        } else if (r == Reduction::sum || r == Reduction::avg) {
          for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<C>(sums[i] + static_cast<C>(x[i]));
        } else {
          for (int64_t i = 0; i < n; ++i) sums[i] = joined(r, sums[i], static_cast<C>(x[i]));
        }
      }
      if (r == Reduction::avg) {
        for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<C>(sums[i] / static_cast<C>(parts.size()));
      }
      T* const y = static_cast<T*>(out) + at;
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(sums[i]);
    }
  });
}

template <class T>
void add_typed(std::span<const void* const> parts, std::span<const int64_t> additions, size_t most, void* out,
               int64_t count) {
  using C = compute_t<T>;
  parallel_for(0, count, 16 * kStretch, [&](int64_t begin, int64_t end) {
    std::vector<C> room(most * kStretch);
    for (int64_t at = begin; at < end; at += kStretch) {
      const int64_t n = std::min(kStretch, end - at);
      C* next = room.data();  // behind the newest sum
      for (size_t p = 0; p < parts.size(); ++p) {
        const T* const x = static_cast<const T*>(parts[p]) + at;
        if (additions[p] == 0) {
          for (int64_t i = 0; i < n; ++i) next[i] = static_cast<C>(x[i]);
          next += kStretch;
          continue;
        }
        C* sum = next - kStretch;
        for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<C>(sum[i] + static_cast<C>(x[i]));
        for (int64_t left = additions[p]; left > 1; --left) {
          next = sum;
          sum -= kStretch;
          for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<C>(sum[i] + next[i]);
        }
      }
      T* const y = static_cast<T*>(out) + at;
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(room[static_cast<size_t>(i)]);
    }
  });
}

}  // namespace

std::string_view name_of(Reduction r) {
  return kNames[static_cast<int>(r)];
}

Reduction reduction_named(std::string_view op, std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Reduction>(i);
  }
  throw ValueError(op, cat("a reduction is sum, avg, min, max or product, got '", name, "'"));
}

void check_reduction(std::string_view op, Reduction r, DType dtype) {
  check<DTypeError>(r != Reduction::avg || is_floating(dtype), op, "avg needs a floating dtype, got ", dtype);
  check<DTypeError>(dtype != DType::boolean || r == Reduction::min || r == Reduction::max, op,
                    "bool takes min (all) or max (any), got ", name_of(r));
}

void reduce_parts(Reduction r, DType dtype, std::span<const void* const> parts, void* out, int64_t count) {
  dispatch_all(dtype, "reduce", [&]<class T>() { reduce_typed<T>(r, parts, out, count); });
}

void add_in_tree(DType dtype, std::span<const void* const> parts, std::span<const int64_t> additions, void* out,
                 int64_t count) {
  check(parts.size() == additions.size(), "add_in_tree", "there are ", parts.size(), " parts, and additions behind ",
        additions.size());
  int64_t held = 0, most = 0;
  for (const int64_t n : additions) {
    check(n >= 0 && n <= held, "add_in_tree", n, " additions of ", held + 1, " sums");
    held += 1 - n;
    most = std::max(most, held);
  }
  check(held == 1, "add_in_tree", "the additions leave ", held, " sums");
  dispatch_floats(dtype, "add_in_tree",
                  [&]<class T>() { add_typed<T>(parts, additions, static_cast<size_t>(most), out, count); });
}

}  // namespace strata::distributed
