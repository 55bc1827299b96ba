#pragma once
// What the records of attention check and prepare alike. Errors name `op`.

#include <cstdint>
#include <optional>
#include <string_view>

#include "strata/core/tensor.h"

namespace strata::detail {

/// Which keys a query sees, and what scores are multiplied by: the plain arguments that the records share.
struct AttentionPlain {
  bool is_causal = false;
  std::optional<double> scale;
  int64_t window = 0, query_offset = 0;
  /// 1 / sqrt(d) where no scale is given; `d` is the size of a query.
  double scale_for(int64_t d) const;
};

/// Throws DTypeError unless q, k and v are of one floating dtype.
void check_attention_dtypes(const Tensor& q, const Tensor& k, const Tensor& v, std::string_view op);
/// Throws ShapeError unless the heads of keys and values divide those of the queries.
void check_attention_heads(int64_t heads, int64_t kv_heads, std::string_view op);
/// Throws ValueError for a window or a query_offset that the kernels do not take.
void check_attention_window(int64_t window, int64_t query_offset, std::string_view op);
/// What a gradient is given beside its operands of `dtype`: gout and out of shape `result`, lse and (where defined)
/// glse of shape `rows`. Throws ShapeError, DTypeError.
void check_attention_results(const Tensor& gout, const Tensor& glse, const Tensor& out, const Tensor& lse,
                             const Shape& result, const Shape& rows, DType dtype, std::string_view op);

/// `t` itself where its last dimension is dense, which is all that the kernels want; else a row-major copy.
Tensor dense_rows(const Tensor& t);

}  // namespace strata::detail
