#pragma once
// How the steps of a recurrent layer are spread over a card: plain numbers, for the kernels and for who asks whether
// they are the faster way.

#include <cstdint>

#include "strata/ops/rnn/recurrence_kernel.h"

namespace strata::recurrent {

/// What a step multiplies: [batch, depth] by [columns_per_unit hidden, depth]. Forward depth is hidden and a unit has a
/// column for each gate; backward depth is gates hidden and a unit has one.
struct StepProduct {
  int64_t batch, hidden, columns_per_unit, depth, size;  ///< size of an element in bytes
  bool tf32 = false;                                     ///< operands of f32 are rounded to TF32
  bool tensor_cores() const { return size == 2 || tf32; }
};

/// What a card has.
struct CardLimits {
  int64_t multiprocessors, shared_bytes;  ///< shared memory of a block
};

CardLimits card_limits(int device);

/// Blocks of one launch. Sequences are split into groups, which never wait for each other; the hidden units of a group
/// are split among its blocks.
struct RecurrencePlan {
  int64_t groups, rows;           ///< of sequences; sequences of each, a multiple of tile
  int64_t parts, units, columns;  ///< blocks of a group; hidden units and columns of the product of each
  int64_t tile, width;            ///< sequences and columns that one pass of a block computes
  int64_t depth_bytes;            ///< a row of an operand, filled up with zeros to whole 64 bytes
  int64_t pitch;                  ///< bytes between rows of the weight in shared memory
  int64_t partial_pitch;          ///< elements between rows of a warp's partial sums
  int64_t partial_bytes;          ///< of all warps, the last of shared_bytes
  int64_t shared_bytes;
  bool resident;  ///< a block's part of the weight stays in shared memory; else every step reads it from the L2 cache
};
RecurrencePlan plan_recurrence(const StepProduct& p, const CardLimits& card);

/// Whether the walk is faster than steps by ops: not for steps that are so large that products by the library, and
/// launches for each step, cost less. `tf32`: f32 operands are rounded.
bool recurrence_pays(Cell cell, DType t, bool tf32, int64_t batch, int64_t hidden, const CardLimits& card);
/// Tiles of 8 units that a warp has where 16 sequences a block go forward alone, with the weight in registers
/// (recurrence_alone.cuh): 1, 2 or 4, or 0 where it does not fit or its products are none of tensor cores. Then that is
/// the fastest way by far: nothing waits.
int units_alone(Cell cell, DType t, bool tf32, int64_t hidden);
/// Whether a product of the library and a launch of the cell for each step are faster than the walk, where all
/// sequences have every step: where a product fills the card.
bool by_products(Cell cell, DType t, bool tf32, int64_t batch, int64_t hidden, const CardLimits& card);
/// The calls of recurrence_kernel.h, on the current card and stream. The same bits every time.
void recurrence_cuda(const RecurrenceCall& r);
void recurrence_backward_cuda(const RecurrenceBackwardCall& r);
/// The forward call where units_alone() says so: without counts, and of some elements.
void recurrence_alone(const RecurrenceCall& r);
/// Both step by step, which those two call where by_products() says so: without counts, and of some elements.
void recurrence_by_products(const RecurrenceCall& r);
void recurrence_backward_by_products(const RecurrenceBackwardCall& r);

}  // namespace strata::recurrent
