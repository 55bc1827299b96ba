#pragma once
// Seconds of collectives along the axes of a layout's ranks.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "strata/train/plan/machine.h"

namespace strata::plan {

// Ranks that differ along neighbouring axes of a mesh: `size` of them, `stride` apart.
struct Span {
  int64_t stride = 1, size = 1;
  auto operator<=>(const Span&) const = default;
};

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all };

// `order`: which rank is at each place of the mesh; empty: rank i at place i.
class Network {
 public:
  Network(const Links& links, int64_t ranks, std::vector<int> order = {});

  // Bytes that a rank sends where each has `bytes` (all_gather: will have; reduce_scatter: of which it will have its part).
  static double sent(Collective c, int64_t ranks, double bytes);
  // Of the slowest of the groups that the span cuts the ranks into, all at once.
  double seconds(Collective c, Span span, double bytes) const;
  // Of one message from a rank to the next along the span.
  double message(Span span, double bytes) const;

 private:
  struct Cost {
    double byte = 0, first = 0;  // seconds of a byte, and of a message's way
  };
  const Cost& cost(Span span) const;
  Cost measured(Span span) const;
  int at(int64_t place) const { return order_.empty() ? static_cast<int>(place) : order_[static_cast<size_t>(place)]; }

  const Links& links_;
  int64_t ranks_;
  std::vector<int> order_;
  mutable std::map<Span, Cost> known_;
};

}  // namespace strata::plan
