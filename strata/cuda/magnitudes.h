#pragma once
// The largest magnitudes of a tensor, left beside it by the kernel that wrote it: products in fp8 take their scale from
// them, and need not read the tensor for it (docs/design/fp8.md).

#include <cstdint>

#include "strata/core/tensor.h"

namespace strata::cuda {

/// Of as many parts of a tensor, in no order, as bits of f32: NaN above all.
inline constexpr int kMagnitudeParts = 1024;

/// Where the kernel that writes all of `y` leaves them (Most), zeroed on the current stream; nullptr where nobody asks
/// for them: no product in fp8 with one scale follows, or not of such a tensor. To be called before the kernel.
uint32_t* magnitudes_beside(const Tensor& y);

/// What was left beside `x`, i32 [kMagnitudeParts]; undefined where nothing was, on another stream, or somebody wrote
/// to x since.
Tensor magnitudes_of(const Tensor& x);

// ---- of parameters ----

/// A parameter's are kept from step to step, one for each warp of the optimizers' loops: these write them with the
/// parameter. Elements that a block of such a loop takes, and its warps.
inline constexpr int64_t kParameterChunk = 4096;
inline constexpr int kParameterWarps = 8;

/// Keeps those of `parameter`, a leaf that wants a gradient, from now on, where it is a tensor that the loops can keep
/// them of (f32, all of its storage). Does nothing while a graph is captured: a replay would write to them again.
void want_magnitudes(const Tensor& parameter);
/// What is kept of what `parameter` holds now, f32 [parts], parts a multiple of four; undefined for nothing.
Tensor kept_magnitudes(const Tensor& parameter);
/// The same, but undefined while a graph is captured before whose replays nobody brings them up to date.
Tensor readable_magnitudes(const Tensor& parameter);
/// `magnitudes`, kept_magnitudes() of before, are those of the parameter as it is now.
void keep_magnitudes(const Tensor& parameter, const Tensor& magnitudes);
/// Before the replay of a step that reads and writes `magnitudes` with the parameter: makes them those of what it holds
/// now, where they are not. Undefined, where the step does not know of any: what is kept is forgotten.
void renew_magnitudes(const Tensor& parameter, const Tensor& magnitudes);

}  // namespace strata::cuda
