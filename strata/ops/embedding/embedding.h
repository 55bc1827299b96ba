#pragma once
// Lookup tables.

#include <optional>
#include <string>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// Rows of `weight` [V, D] at `indices` (i64 or i32, of any shape): shape indices.shape() + [D]. Row padding_idx, where
/// given (it may count from the end), gets no gradient. Gradient rows of equal indices are added in f32 in the order of
/// the indices. Throws IndexError for an index outside the table (on a CUDA device it ends all work there and later
/// calls throw DeviceError), DTypeError, ShapeError.
///   Tensor tokens = embedding(ids, table);
Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx = {});

/// Rows of `weight` [V, D] taken together bag by bag, [bags, D]: `mode` is "mean", "sum" or "max". `indices` (integers)
/// are [bags, n], or one bag after the other with `offsets` (integers), where each begins; with include_last_offset a
/// last one says where the last bag ends. per_sample_weights, of indices' shape, multiply the rows of a sum. Positions
/// with index padding_idx count nothing. An empty bag gives zeros. Throws ShapeError, DTypeError, ValueError for
/// offsets that do not rise from 0, IndexError as embedding does.
///   Tensor y = embedding_bag(words, table, starts, "sum");
Tensor embedding_bag(const Tensor& indices, const Tensor& weight, const Tensor& offsets = {},
                     const std::string& mode = "mean", const Tensor& per_sample_weights = {},
                     bool include_last_offset = false, std::optional<int64_t> padding_idx = {});

/// The table itself, whose gradient has row v divided by how often v is among `indices`: a view, for embedding() and
/// embedding_bag() whose gradients are to be scaled by frequency. Throws ShapeError, DTypeError.
///   Tensor y = embedding(ids, rows_by_frequency(table, ids));
Tensor rows_by_frequency(const Tensor& weight, const Tensor& indices);
/// Which rows of the table `indices` name, each once and in ascending order, and these, scaled down to max_norm where
/// their norm_type-norm is above it. Not differentiable. Throws ShapeError, DTypeError, ValueError, IndexError.
std::tuple<Tensor, Tensor> renormed_rows(const Tensor& weight, const Tensor& indices, double max_norm,
                                         double norm_type = 2);
/// Writes what renormed_rows() gives into the table; not recorded.
void embedding_renorm(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type = 2);

}  // namespace strata
