// Launches of grouped_tiles_kernel.

#include "strata/cuda/tile/launch.cuh"
#include "strata/ops/experts/grouped_kernel.h"
#include "strata/ops/experts/grouped_tiles.cuh"

namespace strata::cuda {
namespace {

using tile::Matrices;

// [batches][rows][columns] of 16 bits, of strides in elements.
Matrices matrices(const void* data, int64_t columns, int64_t rows, int64_t row, int64_t batches = 1,
                  int64_t batch = 0) {
  return {data, 2, columns, rows, batches, 2 * row, 2 * batch};
}

struct Job {
  Matrices a, b, y;
  Groups groups;
  int64_t rows = 0;  // of the results' tiles
};

template <class T, int kColumns, bool kTurnB, bool kOuter>
void queue(const Job& j, int tiles) {
  using S = GemmShape<T, T, kColumns, kOuter, kTurnB>;
  const GemmMaps maps{tile::tensor_map(j.a, S::kTurnA ? 64 : S::kRows),
                      tile::tensor_map(j.b, S::kTurnB ? 64 : S::kColumns), tile::tensor_map(j.y, 64)};
  tile::launch<grouped_tiles_kernel<T, S, kOuter>>(tile::staying_blocks(tiles), S::kThreads, S::kSharedBytes, maps,
                                                   j.groups);
}

template <class T>
void queue(const Job& j, bool outer, bool turned) {
  // As many row tiles as any division of the rows can have.
  const int64_t each = (j.rows + 127) / 128, rows = outer ? each * j.groups.count : each + j.groups.count;
  const auto tiles = [&](int64_t wide) { return static_cast<int>(rows * ((j.groups.columns + wide - 1) / wide)); };
  const bool narrow = tile::staying_blocks(tiles(256)) == tiles(256);  // multiprocessors would be without work
  const auto with = [&]<int kColumns>() {
    if (outer)
      queue<T, kColumns, true, true>(j, tiles(kColumns));
    else if (turned)
      queue<T, kColumns, true, false>(j, tiles(kColumns));
    else
      queue<T, kColumns, false, false>(j, tiles(kColumns));
  };
  narrow ? with.template operator()<128>() : with.template operator()<256>();
}

}  // namespace

bool has_grouped_tiles(DType t) {
  return (t == DType::bf16 || t == DType::f16) && tile::has_tiles();
}

bool grouped_tiles(const GroupedCall& c, bool outer) {
  if (!has_grouped_tiles(c.dtype) || c.n == 0 || c.m == 0 || c.k == 0 || c.groups == 0) return false;
  if (c.a_col != 1 && (outer ? c.m : c.k) != 1) return false;
  const bool turned = outer || (c.b_col != 1 && c.k != 1);
  if (turned && (outer ? c.b_col != 1 && c.k != 1 : c.b_row != 1 && c.m != 1)) return false;
  Job j;
  if (outer) {
    j.a = matrices(c.a, c.m, c.n, c.a_row);
    j.b = matrices(c.b, c.k, c.n, c.b_row);
    j.y = matrices(c.y, c.k, c.m, c.y_row, c.groups, c.m * c.y_row);
  } else {
    j.a = matrices(c.a, c.k, c.n, c.a_row);
    j.b = turned ? matrices(c.b, c.m, c.k, c.b_col, c.groups, c.b_group)
                 : matrices(c.b, c.k, c.m, c.b_row, c.groups, c.b_group);
    j.y = matrices(c.y, c.m, c.n, c.y_row);
  }
  if (!tile::fits_copies(j.a) || !tile::fits_copies(j.b) || !tile::fits_copies(j.y)) return false;
  j.rows = outer ? c.m : c.n;
  const int64_t columns = outer ? c.k : c.m;
  if ((j.rows / 128 + 1) * (columns / 128 + 1) * (outer ? c.groups : 1) + c.groups * (columns / 128 + 1) >= 1 << 30)
    return false;
  j.groups = {c.offsets,
              static_cast<int>(c.groups),
              static_cast<int>(c.n),
              static_cast<int>(c.m),
              static_cast<int>(columns),
              static_cast<int>(c.k),
              c.y,
              c.y_row};
  c.dtype == DType::bf16 ? queue<BFloat16>(j, outer, turned) : queue<Half>(j, outer, turned);
  return true;
}

}  // namespace strata::cuda
