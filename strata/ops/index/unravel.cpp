#include "strata/ops/index/unravel.h"

#include <algorithm>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/naive_inl.h"

namespace strata {
namespace {

using naive::Array;

const Op<TensorList(const Tensor&, const Dims&)> unravel_index_op{{
    .schema = "unravel_index(Tensor indices, int[] shape) -> Tensor[]",
    .doc = "Places in a flattened tensor, row-major, as places in one of that shape: one tensor of the shape of "
           "indices for each dimension, of their dtype if that is i32 or i64, else i64, which holds every place. "
           "DTypeError unless they are integers.",
    .example = "TensorList at = unravel_index(full({1}, 7), {2, 4}); assert(at[0].item() == 1 && at[1].item() == 3);",
    .composed =
        [](const Tensor& indices, const Dims& shape) {
          check<DTypeError>(!is_floating(indices.dtype()) && indices.dtype() != DType::boolean, "unravel_index",
                            "indices must be integers, got ", indices);
          for (const int64_t size : shape) check(size > 0, "unravel_index", "shape must be positive, got ", shape);
          TensorList found;
          Tensor rest = size_of(indices.dtype()) < 4 ? indices.to(DType::i64) : indices;
          for (int64_t d = shape.size() - 1; d > 0; --d) {  // one division for both
            const Tensor quotient = floor_divide(rest, Scalar(shape[d]));
            found.push_back(sub(rest, quotient, Scalar(shape[d])));
            rest = quotient;
          }
          if (!shape.empty()) found.push_back(remainder(rest, Scalar(shape[0])));
          std::ranges::reverse(found);
          return found;
        },
    .dtypes = kInts,
    .samples =
        [](Samples& s) {
          const DType dtype = s.dtype() == DType::i32 ? DType::i32 : DType::i64;
          s.add(s.integers({5}, 0, 24, dtype), Dims{2, 3, 4});
          s.add(s.integers({3, 2}, 0, 24, dtype).t(), Dims{24}).named("strided");
          s.add(s.integers({}, 0, 5, dtype), Dims{5, 1});
          s.add(s.integers({4}, 0, 100, s.dtype()), Dims{2, 300, 70000});
          s.invalid<DTypeError>("integers", s.uniform({2}, 0, 1, DType::f32), Dims{2});
          s.invalid<ValueError>("positive", s.integers({2}, 0, 2), Dims{2, 0});
        },
    .reference =
        [](const Tensor& indices, const Dims& shape) {
          std::vector<Array> found(static_cast<size_t>(shape.size()), Array(indices.shape()));
          int64_t i = 0;
          for (int64_t at : indices.to_vector<int64_t>()) {
            for (int64_t d = shape.size() - 1; d >= 0; --d, ++i) {
              found[static_cast<size_t>(d)].flat(i / shape.size()) = static_cast<double>(at % shape[d]);
              at /= shape[d];
            }
          }
          return TensorList(found.begin(), found.end());
        },
}};

}  // namespace

TensorList unravel_index(const Tensor& indices, const Dims& shape) {
  return unravel_index_op(indices, shape);
}

}  // namespace strata
