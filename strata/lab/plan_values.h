#pragma once
// What an argument's elements are, said so that a tensor of any size can be filled with the like: a plan of comparisons
// has no data in it.

#include <string>

#include <nlohmann/json.hpp>

#include "strata/core/tensor.h"

namespace strata::lab {

/// How to fill a tensor.
struct Contents {
  /// Which numbers.
  enum Kind : uint8_t {
    uniform,     ///< between low and high; whole numbers for integers, both ends included
    ascending,   ///< the same, sorted along the last dimension, which begins with low and ends with high
    descending,  ///< the same the other way round
    positive,    ///< symmetric, positive definite matrices
    tiled,       ///< those of `of`, again and again
    spread,      ///< whole numbers in order over the last `dims` dimensions as one list, none twice: places of maxima
  };
  Kind kind = uniform;
  double low = 0, high = 1;
  Tensor of;
  int64_t dims = 1;  ///< of `spread`, which needs as many numbers as those dimensions have elements

  /// What a sample's tensor looks like.
  static Contents like(const Tensor& t);
  /// Integers that are not negative, changed by `factor` as the sizes were that they may point into: a range that
  /// ended with a size's last index does so again, a list that ended with the size itself too.
  Contents grown(double factor) const;
  /// The places that integers of both signs name where they count from the end too: none below zero.
  Contents from_the_front() const;
  /// A host tensor like that, the same each time. With `bounds` the first and the last of uniform integers are the
  /// largest and the least of them, so that whoever takes the tensor takes any other.
  Tensor make(const Shape& shape, DType dtype, bool bounds = false) const;
  /// {"kind": "uniform", "low": -2, "high": 2}; of "tiled" the tensor itself, as in the table of samples; of "spread"
  /// "dims" too.
  nlohmann::ordered_json json() const;
};

}  // namespace strata::lab
