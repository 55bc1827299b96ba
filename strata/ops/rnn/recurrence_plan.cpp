#include <algorithm>

#include "strata/cuda/runtime.h"
#include "strata/ops/rnn/recurrence_cuda.h"

namespace strata::recurrent {
namespace {

constexpr int64_t kWarps = 8, kTile = 16;  // of a block; the fewest sequences of a pass
constexpr int64_t kLeastUnits = 4;         // of a block: fewer would cost more in waiting than they save in work

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// The columns of a pass, as the kernels are compiled.
int64_t width_of(const StepProduct& p, int64_t tile, int64_t columns) {
  if (p.tensor_cores()) return tile == 32 ? (columns <= 16 ? 16 : 64) : columns <= 8 ? 8 : columns <= 32 ? 32 : 64;
  return columns <= 8 ? 8 : p.size == 4 ? 32 : 16;
}

}  // namespace

CardLimits card_limits(int device) {
  const cuda::DeviceProperties& card = cuda::properties(device);
  return {card.multiprocessors, card.shared_bytes_per_block};
}

RecurrencePlan plan_recurrence(const StepProduct& p, const CardLimits& card) {
  const auto planned = [&](int64_t groups, int64_t tile, bool resident, int64_t most_units) {
    RecurrencePlan r{};
    r.tile = tile;
    r.rows = round_up(ceil_div(p.batch, groups), tile);
    r.groups = ceil_div(p.batch, r.rows);
    r.units =
        std::clamp(ceil_div(p.hidden, card.multiprocessors / groups), std::min(kLeastUnits, most_units), most_units);
    r.parts = ceil_div(p.hidden, r.units);
    r.columns = r.units * p.columns_per_unit;
    r.width = width_of(p, tile, r.columns);
    r.depth_bytes = round_up(p.depth * p.size, 64);
    r.pitch = r.depth_bytes % 128 == 64 ? r.depth_bytes : r.depth_bytes + 64;
    // 8 more than a multiple of 16: rows of a store lie in different banks.
    const int64_t padded = round_up(r.columns, 8);
    r.partial_pitch = padded % 16 == 8 ? padded : padded + 8;
    r.partial_bytes = kWarps * tile * r.partial_pitch * std::max<int64_t>(p.size, 4);
    r.resident = resident;
    r.shared_bytes = (resident ? r.columns * r.pitch : 0) + r.partial_bytes;
    return r;
  };
  const bool tall = p.tensor_cores() && p.batch > kTile;  // passes of 32 sequences
  // The more groups, the fewer blocks wait for each other and the less of the states each of them reads; the weight
  // is then held more often.
  for (int64_t groups = std::min(ceil_div(p.batch, kTile), card.multiprocessors); groups > 0; --groups) {
    for (const int64_t tile : {2 * kTile, kTile}) {
      if (tile > kTile && (!tall || ceil_div(p.batch, groups) <= kTile)) continue;
      const RecurrencePlan r = planned(groups, tile, true, p.hidden);
      if (r.groups == groups && r.shared_bytes <= card.shared_bytes) return r;
    }
  }
  for (int64_t units = p.hidden;; units = (units + 1) / 2) {  // the partial sums must fit, if need be in more blocks
    const RecurrencePlan r = planned(1, tall ? 2 * kTile : kTile, false, units);
    if (r.shared_bytes <= card.shared_bytes || units <= kLeastUnits) return r;
  }
}

bool recurrence_pays(Cell cell, DType t, bool tf32, int64_t batch, int64_t hidden, const CardLimits& card) {
  const int64_t g = gates(cell), size = size_of(t);
  // What a step as ops costs besides its product is some 40 us, in which the kernel multiplies this much.
  constexpr double kMost = 1LL << 30, kMostTf32 = 1LL << 31, kMostHalf = 1LL << 32;
  const double products = static_cast<double>(batch) * static_cast<double>(hidden) * static_cast<double>(g * hidden);
  const bool rounded = tf32 && t == DType::f32;
  if (products > (size == 2 ? kMostHalf : rounded ? kMostTf32 : kMost)) return false;
  const RecurrencePlan forward = plan_recurrence({batch, hidden, g, hidden, size, rounded}, card),
                       backward = plan_recurrence({batch, hidden, 1, g * hidden, size, rounded}, card);
  for (const RecurrencePlan& p : {forward, backward}) {
    // A weight that does not fit is read once for each tile.
    constexpr double kMostBytes = 128e6;
    const double bytes = static_cast<double>(g * hidden) * static_cast<double>(hidden * size);
    if (!p.resident && bytes * static_cast<double>(ceil_div(p.rows, p.tile)) > kMostBytes) return false;
  }
  return true;
}

int units_alone(Cell cell, DType t, bool tf32, int64_t hidden) {
  // Of a warp's tiles a lane holds 4 of each 64 bytes' registers of the depth, which is the units': 128 at most.
  constexpr int64_t kMostBytes = 512, kMostTiles = 4;
  const int64_t size = size_of(t), bytes = hidden * size, tiles = ceil_div(hidden, 64);
  if ((size == 4 && !tf32) || size > 4 || hidden == 0 || bytes > kMostBytes || bytes % 16 != 0) return 0;
  const int64_t units = tiles <= 2 ? tiles : 4;
  return units * gates(cell) <= kMostTiles ? static_cast<int>(units) : 0;
}

bool by_products(Cell cell, DType t, bool tf32, int64_t batch, int64_t hidden, const CardLimits& card) {
  // LSTM by TF32 on an H200: a step of the walk takes 58 us of 256 x 1024, PyTorch's product and cell 25 (measured); of
  // 128 x 1024 the walk 30 (measured, with all around it), product and cell some 13 (estimated). In 16 bits both are
  // taken to be twice as fast, while a step has two launches of the host's in any case.
  constexpr double kLeastTf32 = 1LL << 29, kLeastHalf = 1LL << 30;
  const double products =
      static_cast<double>(batch) * static_cast<double>(hidden) * static_cast<double>(gates(cell) * hidden);
  const bool rounded = tf32 && t == DType::f32, half = size_of(t) == 2;
  if ((rounded && products >= kLeastTf32) || (half && products >= kLeastHalf)) return true;
  return !recurrence_pays(cell, t, tf32, batch, hidden, card);
}

}  // namespace strata::recurrent
