#pragma once
// The arithmetic of reductions over ranks.

#include <cstdint>
#include <span>
#include <string_view>

#include "strata/core/dtype.h"

namespace strata::distributed {

/// What becomes of the ranks' values.
enum class Reduction : uint8_t { sum, avg, min, max, product };
/// "sum", "avg", ...
std::string_view name_of(Reduction r);
/// The one of that name. Throws ValueError naming `op` and what there is.
Reduction reduction_named(std::string_view op, std::string_view name);
/// Throws DTypeError naming `op` where there is no such reduction of this dtype: avg of integers and bool, sum of bool.
void check_reduction(std::string_view op, Reduction r, DType dtype);

/// out[i] = r of the parts' values at i, taken in the order of `parts`: so the bits depend on the ranks' order alone.
/// f16 and bf16 are added in f32 and rounded once. `out` may be one of the parts.
void reduce_parts(Reduction r, DType dtype, std::span<const void* const> parts, void* out, int64_t count);

/// out[i] = the parts' values at i, added in a tree: behind part p the two newest sums that are there are added
/// additions[p] times, which leaves one in the end. In one pass over memory; f16 and bf16 are added in f32 and rounded
/// once. `out` may be the first part. Throws ValueError for additions that leave none or several.
void add_in_tree(DType dtype, std::span<const void* const> parts, std::span<const int64_t> additions, void* out,
                 int64_t count);

}  // namespace strata::distributed
