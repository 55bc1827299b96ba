#pragma once
// How a tensor of a file and a parameter of ours are one another: rows that loading and export both go by.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// A file's tensor as a view of a parameter of ours: steps that take the parameter to a tensor whose elements, in
/// order, are the file's. Nothing is copied, so that the same steps serve both ways:
///     view.copy_(file.view(view.shape()))            reading
///     view.contiguous().view(file_shape)             writing
class WeightView {
 public:
  /// The whole parameter as it is.
  WeightView() = default;
  /// `length` places of dimension `dim` from `start` on: one of several tensors that lie in one of ours.
  WeightView narrow(int64_t dim, int64_t start, int64_t length) const;
  /// The i-th of dimension `dim`, which goes: one expert of many.
  WeightView select(int64_t dim, int64_t index) const;
  /// Other sizes for the same elements in the same order.
  WeightView view(const Shape& sizes) const;
  /// Dimensions in another order.
  WeightView permute(const Dims& order) const;
  /// Two dimensions changed for one another: a matrix that the file has as [in, out].
  WeightView transposed() const { return permute({1, 0}); }

  /// The view of `parameter`, which shares its memory. Throws ShapeError where the steps do not fit it.
  Tensor of(const Tensor& parameter) const;

 private:
  struct Step {
    enum class Kind : uint8_t { narrow, select, view, permute };
    Kind kind;
    int64_t dim = 0, start = 0, length = 0;
    Shape sizes = {};
    Dims order = {};
  };
  WeightView with(Step step) const;
  std::vector<Step> steps_;
};

/// One tensor of a file.
struct WeightRow {
  std::string parameter;  ///< our name, "blocks.0.attn.qkv.weight"
  std::string name;       ///< in a Hugging Face folder, "model.layers.0.self_attn.q_proj.weight"; empty: not there
  std::string other_name = {};  ///< what it is called in files of other versions of that library
  Shape shape;                  ///< there
  WeightView view = {};         ///< of ours, in the order of that file
  std::string gguf = {};        ///< of a GGUF file, "blk.0.attn_q.weight"; empty: not there
  WeightView gguf_view = {};    ///< of ours, in the order of that file, whose shape it has
  double gguf_plus = 0;         ///< is added there to each number (Gemma's norms: 1)
  /// The file may have it not. Where it has, it is equal to the parameter, which another row fills; it is not written.
  bool repeats = false;
  /// Of an expert's matrix: the parameter of transformers 5 that has those of all experts, of which this is a part, and
  /// the expert's number. Adapters are named by it (strata/models/peft.h).
  std::string stacked = {};
  int64_t expert = -1;
};

/// Rows are made for a Hugging Face file, and the same for GGUF where it does not say otherwise.
WeightRow weight_row(std::string parameter, std::string name, const Shape& shape, const WeightView& view = {},
                     std::string gguf = {});

/// How GGUF orders the rows of queries and keys that turn by halves: (i, i + n / 2) become neighbours. `rows` is a view
/// [heads * head_size, ..] of `heads` heads.
WeightView gguf_rotary_rows(const WeightView& rows, int64_t heads, int64_t head_size, const Shape& rest);

}  // namespace strata
