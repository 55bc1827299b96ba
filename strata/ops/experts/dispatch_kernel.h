#pragma once
// Rows to places and back, and places within capacities, on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// Tokens n < tokens with k choices each, of which choice (n, j) has row place[n k + j] of `rows` rows, or none where
/// that is negative. All are contiguous; weights [tokens, k] and `dots` are f32, or f64 where dtype is.
struct DispatchCall {
  DType dtype = DType::f32;
  int64_t tokens = 0, k = 0, width = 0, rows = 0;
  const int64_t* place = nullptr;
  const void* weights = nullptr;  ///< nullptr: ones
  const void* x = nullptr;        ///< [tokens, width]
  const void* y = nullptr;        ///< [rows, width]
  void* out = nullptr;            ///< rows of dispatch_rows, tokens of combine_rows, or the dots
};

void dispatch_rows_cpu(const DispatchCall& c);
void combine_rows_cpu(const DispatchCall& c);
void row_dots_cpu(const DispatchCall& c);
void dispatch_rows_cuda(const DispatchCall& c);
void combine_rows_cuda(const DispatchCall& c);
void row_dots_cuda(const DispatchCall& c);

/// expert_slots: tokens in groups of `rows` that follow each other, k choices each of `count` experts.
struct SlotsCall {
  int64_t tokens = 0, k = 0, count = 0, rows = 0, capacity = 0;
  bool reroute = false;
  DType dtype = DType::f32;         ///< of scores: f32 or f64
  const void* scores = nullptr;     ///< [tokens, count]
  const int64_t* chosen = nullptr;  ///< [tokens, k]
  int64_t* experts = nullptr;       ///< [tokens, k]: those that the choices go to
  int64_t* slots = nullptr;         ///< [tokens, k]: their places there; -1: none
};

/// Marks of choices on their way; all others are places.
inline constexpr int64_t kDropped = -1, kWaiting = -2;

void expert_slots_cpu(const SlotsCall& c);
void expert_slots_cuda(const SlotsCall& c);

}  // namespace strata
