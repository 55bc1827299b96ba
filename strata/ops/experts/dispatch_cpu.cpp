// Rows to places and back on the processor. Every result is written by one thread, in a fixed order.

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/experts/dispatch_kernel.h"

namespace strata {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread

int64_t grain(int64_t each) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(each, 1));
}

void check_places(const DispatchCall& c, const char* op) {
  for (int64_t i = 0; i < c.tokens * c.k; ++i)
    check<IndexError>(c.place[i] < c.rows, op, "place ", c.place[i], " of token ", i / c.k, " is past the ", c.rows,
                      " rows");
}

// The choice that goes to each row, -1 where none does. Throws IndexError where two do.
std::vector<int64_t> choices_of_rows(const DispatchCall& c, const char* op) {
  std::vector<int64_t> from(static_cast<size_t>(c.rows), -1);
  for (int64_t i = 0; i < c.tokens * c.k; ++i) {
    if (c.place[i] < 0) continue;
    int64_t& of = from[static_cast<size_t>(c.place[i])];
    check<IndexError>(of < 0, op, "place ", c.place[i], " is given twice, to tokens ", of / c.k, " and ", i / c.k);
    of = i;
  }
  return from;
}

template <class T>
void dispatch(const DispatchCall& c) {
  using C = compute_t<T>;
  const std::vector<int64_t> from = choices_of_rows(c, "dispatch_rows");
  const auto* x = static_cast<const T*>(c.x);
  const auto* weights = static_cast<const C*>(c.weights);
  auto* y = static_cast<T*>(c.out);
  parallel_for(0, c.rows, grain(c.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t i = from[static_cast<size_t>(r)];
      T* to = y + r * c.width;
      if (i < 0) {
        std::fill(to, to + c.width, T{});
        continue;
      }
      const T* of = x + i / c.k * c.width;
      if (!weights) {
        std::copy(of, of + c.width, to);
        continue;
      }
      for (int64_t d = 0; d < c.width; ++d) to[d] = static_cast<T>(weights[i] * static_cast<C>(of[d]));
    }
  });
}

template <class T>
void combine(const DispatchCall& c) {
  using C = compute_t<T>;
  constexpr int64_t kPart = 256;
  const auto* y = static_cast<const T*>(c.y);
  const auto* weights = static_cast<const C*>(c.weights);
  auto* out = static_cast<T*>(c.out);
  parallel_for(0, c.tokens, grain(c.width * c.k), [&](int64_t begin, int64_t end) {
    std::array<C, kPart> sum;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t first = 0; first < c.width; first += kPart) {
        const int64_t part = std::min(kPart, c.width - first);
        sum.fill(0);
        for (int64_t i = n * c.k; i < (n + 1) * c.k; ++i) {
          if (c.place[i] < 0) continue;
          const T* of = y + c.place[i] * c.width + first;
          const C w = weights ? weights[i] : C(1);
          for (int64_t d = 0; d < part; ++d) sum[static_cast<size_t>(d)] += w * static_cast<C>(of[d]);
        }
        T* to = out + n * c.width + first;
        for (int64_t d = 0; d < part; ++d) to[d] = static_cast<T>(sum[static_cast<size_t>(d)]);
      }
    }
  });
}

template <class T>
void dots(const DispatchCall& c) {
  using C = compute_t<T>;
  const auto* x = static_cast<const T*>(c.x);
  const auto* y = static_cast<const T*>(c.y);
  auto* out = static_cast<C*>(c.out);
  parallel_for(0, c.tokens * c.k, grain(c.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      if (c.place[i] >= 0) {
        const T *a = x + i / c.k * c.width, *b = y + c.place[i] * c.width;
        for (int64_t d = 0; d < c.width; ++d) sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
      }
      out[i] = static_cast<C>(sum);
    }
  });
}

// One group. In each round every waiting choice names an expert, and experts take them in the order of choices: first
// choices of all tokens, then second ones. An expert that refuses one is full, so there are at most count rounds more.
template <class C>
class Group {
 public:
  Group(const SlotsCall& c, int64_t first)
      : c_(c),
        scores_(static_cast<const C*>(c.scores) + first * c.count),
        chosen_(c.chosen + first * c.k),
        experts_(c.experts + first * c.k),
        slots_(c.slots + first * c.k),
        taken_(static_cast<size_t>(c.count), 0) {}

  void run() {
    for (int64_t i = 0; i < c_.rows * c_.k; ++i) {
      check<IndexError>(chosen_[i] >= 0 && chosen_[i] < c_.count, "expert_slots", "there is no expert ", chosen_[i],
                        " among ", c_.count);
      experts_[i] = chosen_[i];
      slots_[i] = kWaiting;
    }
    accept();
    while (c_.reroute && propose()) accept();
    for (int64_t i = 0; i < c_.rows * c_.k; ++i) {
      if (slots_[i] >= 0) continue;
      slots_[i] = kDropped;
      experts_[i] = chosen_[i];
    }
  }

 private:
  void accept() {
    for (int64_t j = 0; j < c_.k; ++j) {
      for (int64_t t = 0; t < c_.rows; ++t) {
        const int64_t i = t * c_.k + j;
        if (slots_[i] != kWaiting) continue;
        int64_t& taken = taken_[static_cast<size_t>(experts_[i])];
        if (taken < c_.capacity) slots_[i] = taken++;
      }
    }
  }

  // Whether any choice has somewhere to go.
  bool propose() {
    bool any = false;
    for (int64_t t = 0; t < c_.rows; ++t) {
      for (int64_t j = 0; j < c_.k; ++j) {
        const int64_t i = t * c_.k + j;
        if (slots_[i] != kWaiting) continue;
        const int64_t e = best(t, j);
        if (e < 0) {
          slots_[i] = kDropped;
          continue;
        }
        experts_[i] = e;
        any = true;
      }
    }
    return any;
  }

  // The expert with room of the highest score that no other choice of the token is at, or has just named.
  int64_t best(int64_t t, int64_t j) const {
    int64_t found = -1;
    for (int64_t e = 0; e < c_.count; ++e) {
      if (taken_[static_cast<size_t>(e)] >= c_.capacity) continue;
      bool other = false;
      for (int64_t o = 0; o < c_.k; ++o) {
        const int64_t i = t * c_.k + o;
        other = other || (experts_[i] == e && (slots_[i] >= 0 || (o < j && slots_[i] == kWaiting)));
      }
      if (other) continue;
      if (found < 0 || scores_[t * c_.count + e] > scores_[t * c_.count + found]) found = e;
    }
    return found;
  }

  const SlotsCall& c_;
  const C* scores_;
  const int64_t* chosen_;
  int64_t *experts_, *slots_;
  std::vector<int64_t> taken_;
};

}  // namespace

void dispatch_rows_cpu(const DispatchCall& c) {
  check_places(c, "dispatch_rows");
  dispatch_floats(c.dtype, "dispatch_rows", [&]<class T>() { dispatch<T>(c); });
}
void combine_rows_cpu(const DispatchCall& c) {
  check_places(c, "combine_rows");
  choices_of_rows(c, "combine_rows");
  dispatch_floats(c.dtype, "combine_rows", [&]<class T>() { combine<T>(c); });
}
void row_dots_cpu(const DispatchCall& c) {
  check_places(c, "row_dots");
  choices_of_rows(c, "row_dots");
  dispatch_floats(c.dtype, "row_dots", [&]<class T>() { dots<T>(c); });
}

void expert_slots_cpu(const SlotsCall& c) {
  const int64_t groups = c.rows == 0 ? 0 : c.tokens / c.rows;
  dispatch_wide_floats(c.dtype, "expert_slots", [&]<class T>() {
    parallel_for(0, groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) Group<T>(c, g * c.rows).run();
    });
  });
}

}  // namespace strata
