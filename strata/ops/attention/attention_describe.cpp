// A call of attention's record as its kernels read it.

#include "strata/ops/attention/attention_definition_record.h"

namespace strata::detail {

AttentionView attention_view(const Tensor& t) {
  return {t.raw_data(), t.strides()[0], t.strides()[1], t.strides()[2]};
}

DescribedAttention describe_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                      const AttentionArguments& a) {
  DescribedAttention r;
  AttentionCall& c = r.c;
  c.dtype = q.dtype();
  c.batch = q.shape()[0];
  c.heads = q.shape()[1];
  c.kv_heads = k.shape()[1];
  c.tq = q.shape()[2];
  c.tk = k.shape()[2];
  c.lse_head = c.tq;
  c.d = q.shape()[3];
  c.dv = v.shape()[3];
  c.scale = a.scale_for(c.d);
  c.causal = a.is_causal;
  c.window = a.window;
  c.offset = a.query_offset;
  c.dropout = a.dropout_p;
  c.key = a.key;
  c.numbers = a.numbers_for(c.heads, c.tq, c.tk);
  c.q = attention_view(q);
  c.k = attention_view(k);
  c.v = attention_view(v);
  if (mask.defined()) {
    c.mask = mask.raw_data();
    c.mask_dtype = mask.dtype();
    for (int64_t i = 0; i < mask.dim(); ++i)
      c.mask_stride[4 - mask.dim() + i] = mask.shape()[i] == 1 ? 0 : mask.strides()[i];
  }
  c.soft_cap = a.logit_soft_cap;
  const auto point = [](const void*& at, Tensor& kept, const Tensor& given, DType dtype) {
    if (given.defined()) kept = given.to(dtype).contiguous(), at = kept.raw_data();
  };
  point(c.alibi_slopes, r.slopes, a.alibi_slopes, statistic_dtype(c.dtype));
  c.alibi_batch = a.alibi_slopes.defined() && a.alibi_slopes.dim() == 2 ? c.heads : 0;
  point(c.sinks, r.sinks, a.sinks, statistic_dtype(c.dtype));
  const void* lengths = nullptr;
  point(lengths, r.lengths, a.key_lengths, DType::i64);
  c.key_lengths = static_cast<const int64_t*>(lengths);
  return r;
}

}  // namespace strata::detail
