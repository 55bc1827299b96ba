#include "strata/ops/attention/attention_record.h"

#include <algorithm>
#include <cmath>

namespace strata::detail {

double AttentionPlain::scale_for(int64_t d) const {
  return scale ? *scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, d)));
}

void check_attention_dtypes(const Tensor& q, const Tensor& k, const Tensor& v, std::string_view op) {
  check<DTypeError>(is_floating(q.dtype()), op, "needs a floating dtype, got ", q.dtype());
  check<DTypeError>(k.dtype() == q.dtype() && v.dtype() == q.dtype(), op, "q is ", q.dtype(), ", k is ", k.dtype(),
                    ", v is ", v.dtype(), "; they must agree");
}

void check_attention_heads(int64_t heads, int64_t kv_heads, std::string_view op) {
  check<ShapeError>(kv_heads > 0 ? heads % kv_heads == 0 : heads == 0, op, "the ", heads,
                    " heads of q are no multiple of the ", kv_heads, " heads of k and v");
}

void check_attention_window(int64_t window, int64_t query_offset, std::string_view op) {
  check(window >= 0 && window <= INT32_MAX, op, "window must not be negative and be below 2^31, got ", window);
  check(query_offset >= -INT32_MAX && query_offset <= INT32_MAX, op, "query_offset must be within +-2^31, got ",
        query_offset);
}

void check_attention_results(const Tensor& gout, const Tensor& glse, const Tensor& out, const Tensor& lse,
                             const Shape& result, const Shape& rows, DType dtype, std::string_view op) {
  check<ShapeError>(gout.shape() == result && out.shape() == result, op, "gout is ", gout, ", out is ", out,
                    ", wanted ", result);
  check<DTypeError>(gout.dtype() == dtype && out.dtype() == dtype, op, "gout is ", gout.dtype(), ", out is ",
                    out.dtype(), ", wanted ", dtype);
  for (const Tensor* t : {&lse, &glse})
    check<ShapeError>((t == &glse && !t->defined()) || (t->shape() == rows && t->dtype() == statistic_dtype(dtype)), op,
                      "lse and glse must be ", rows, " ", statistic_dtype(dtype), ", got ", *t);
}

Tensor dense_rows(const Tensor& t) {
  return t.strides().back() == 1 || t.shape().back() <= 1 ? t : t.contiguous();
}

}  // namespace strata::detail
