#include <limits>

#include "strata/core/dispatch.h"
#include "strata/core/error.h"
#include "strata/ops/embedding/embedding_bag_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/embedding/embedding_bag_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

void check_bags(const BagCall& c) {
  constexpr std::string_view op = "embedding_bag";
  check(c.offsets[0] == 0, op, "offsets must begin with 0, got ", c.offsets[0]);
  for (int64_t b = 0; b < c.bags; ++b)
    check(c.offsets[b] <= c.offsets[b + 1], op, "offsets must not fall: ", c.offsets[b], " is followed by ",
          c.offsets[b + 1]);
  check(c.offsets[c.bags] == c.n, op, "offsets must end with the number of indices, ", c.n, ", got ",
        c.offsets[c.bags]);
  for (int64_t i = 0; i < c.n; ++i)
    check<IndexError>(c.indices[i] >= 0 && c.indices[i] < c.rows, op, "index ", c.indices[i], " at position ", i,
                      " is out of range for a table of ", c.rows, " rows");
}

}  // namespace

void bag_sum_cpu(const BagCall& c) {
  check_bags(c);
  STRATA_VEC_CALL(bag_sum)(c);
}

void bag_max_cpu(const BagCall& c) {
  check_bags(c);
  check<ValueError>(c.dtype == DType::f64 || c.n <= std::numeric_limits<int32_t>::max(), "embedding_bag",
                    "mode max takes at most 2^31 - 1 indices, got ", c.n);
  STRATA_VEC_CALL(bag_max)(c);
}

void bag_backward_cpu(const BagCall& c) {
  check_bags(c);
  if (c.rows * c.width == 0) return;
  ScratchFrame frame;
  // A counting sort keeps equal indices in order: the sum of a row is the same on any number of threads.
  int64_t *start = frame.take<int64_t>(c.rows + 2), *order = frame.take<int64_t>(c.n), *bag = frame.take<int64_t>(c.n);
  double* factor = frame.take<double>(c.n);
  std::fill(start, start + c.rows + 2, int64_t{0});
  for (int64_t i = 0; i < c.n; ++i) ++start[c.indices[i] + 2];
  for (int64_t v = 0; v < c.rows; ++v) start[v + 2] += start[v + 1];
  for (int64_t i = 0; i < c.n; ++i) order[start[c.indices[i] + 1]++] = i;
  for (int64_t b = 0; b < c.bags; ++b) {
    int64_t count = 0;
    for (int64_t i = c.offsets[b]; i < c.offsets[b + 1]; ++i) count += c.indices[i] != c.padding;
    for (int64_t i = c.offsets[b]; i < c.offsets[b + 1]; ++i) {
      bag[i] = b;
      factor[i] = c.mean ? 1 / static_cast<double>(std::max<int64_t>(count, 1)) : 1;
    }
  }
  if (c.scale)
    dispatch_floats(c.dtype, "embedding_bag", [&]<class T>() {
      for (int64_t i = 0; i < c.n; ++i) factor[i] *= static_cast<double>(static_cast<const T*>(c.scale)[i]);
    });
  STRATA_VEC_CALL(bag_backward)(c, start, order, bag, factor);
}

}  // namespace strata
