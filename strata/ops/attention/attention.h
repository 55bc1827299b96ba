#pragma once
// Scaled dot-product attention and rotary position embedding.

#include <optional>
#include <span>
#include <tuple>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// What limits and shapes attention, beside its tensors.
struct AttentionOptions {
  /// Query i sees key j only where j <= i + query_offset.
  bool is_causal = false;
  /// Scores are q . k times this; 1 / sqrt(D) where not given.
  std::optional<double> scale;
  /// Where > 0: query i sees key j only where |i + query_offset - j| < window.
  int64_t window = 0;
  /// Position of the first query among the keys: with a cache of n earlier keys, n. PyTorch has only 0.
  int64_t query_offset = 0;
  /// Weights are set to 0 with this probability, the others divided by its complement.
  double dropout_p = 0;
  /// [H] or [B, H]: a score falls by slope * |i + query_offset - j| (Press et al., ALiBi, arXiv:2108.12409).
  Tensor alibi_slopes = {};
  /// Where > 0: a scaled score s becomes logit_soft_cap * tanh(s / logit_soft_cap), before anything is added to it.
  double logit_soft_cap = 0;
  /// [H]: one more score for every query of a head, of a key without a value. What they add to lse has a gradient.
  Tensor sinks = {};
  /// [B], i64 or i32, on q's device: query i of batch b sees key j only where j < key_lengths[b]. The host does not
  /// read them; tiles behind them are skipped.
  Tensor key_lengths = {};
};

/// softmax(q k^T * scale + mask) v for q [B, H, Tq, D], k [B, Hkv, Tk, D] and v [B, Hkv, Tk, Dv]; Hkv divides H, and
/// query head h reads key head h / (H / Hkv). attn_mask broadcasts to [B, H, Tq, Tk]: boolean (true: seen) or floating
/// (added to the scores). A query that sees nothing gives zeros. The result [B, H, Tq, Dv] is laid out so that
/// transpose(1, 2) of it is contiguous. No [Tq, Tk] matrix is stored (Dao, arXiv:2307.08691), unless slopes or a
/// gradient of the gradient are differentiated; the gradient of a floating mask has the mask's size. Throws ShapeError,
/// DTypeError, ValueError.
///   Tensor y = scaled_dot_product_attention(q, k, v, {}, {.is_causal = true});
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attn_mask = {},
                                    const AttentionOptions& options = {});
/// PyTorch's argument list.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attn_mask,
                                    double dropout_p, bool is_causal, std::optional<double> scale = {});

/// Self-attention of heads that lie packed in one tensor: qkv is [B, T, (heads + 2 * kv_heads) * D], the queries of all
/// heads first, then the keys, then the values; the result is [B, T, heads * D]. Neither direction copies the parts
/// out: the gradient is written straight into one tensor of qkv's shape. Throws ShapeError, DTypeError, ValueError.
Tensor packed_attention(const Tensor& qkv, int64_t heads, int64_t kv_heads, const AttentionOptions& options = {});

/// Attention over sequences of different lengths that lie one after another: q [total of queries, H, D], k and v
/// [total of keys, Hkv, D]; sequence i has the rows from cu_seqlens[i] up to cu_seqlens[i + 1], and its queries see its
/// keys alone. The options hold within each sequence; the result is [total of queries, H, Dv]. One pass over all
/// sequences, except with dropout, slopes, a soft cap or sinks: then one call of scaled_dot_product_attention each.
/// key_lengths are not taken: lengths are cu_seqlens'. Throws ShapeError, DTypeError,
/// ValueError.
///   Tensor y = varlen_attention(q, k, v, ends, ends, {.is_causal = true});  // ends: {0, 3, 10} are lengths 3 and 7
Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::span<const int64_t> cu_seqlens_q,
                        std::span<const int64_t> cu_seqlens_k, const AttentionOptions& options = {});
/// The same with the numbers, i64 [sequences + 1] from 0 on and never falling, in memory of q's device: the host does
/// not read them there, so that a CUDA graph can be replayed with other lengths. The last may be below the number of
/// rows; queries behind it give zeros. On a CUDA device wrong numbers give wrong results, no error.
Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens_q,
                        const Tensor& cu_seqlens_k, const AttentionOptions& options = {});

/// Turns pairs of elements of each row of x [..., T, D] by angles: (a, b) becomes (a cos - b sin, a sin + b cos). cos
/// and sin are [T, P], P <= D / 2, f32 (f64 where x is f64); pair i is (i, i + P), or (2i, 2i + 1) where `interleaved`;
/// elements from 2P on stay (Su et al., RoFormer, arXiv:2104.09864). Throws ShapeError, DTypeError.
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved = false);
/// rotary() of the queries and keys that lie packed in qkv [B, T, (heads + 2 * kv_heads) * D], as packed_attention
/// reads them; the values are copied. Throws ShapeError, DTypeError, ValueError.
Tensor packed_rotary(const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads, int64_t kv_heads);
/// (cos, sin) for positions offset .. offset + time - 1 of D = `dim` elements: angle i is position / base^(2i / dim).
std::tuple<Tensor, Tensor> rotary_tables(int64_t time, int64_t dim, double base = 10000, int64_t offset = 0,
                                         DType dtype = DType::f32);

namespace detail {
/// The definition in double precision, and the gradient written with ordinary ops: for the records of both forms.
std::tuple<Tensor, Tensor> attention_reference(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal,
                                               std::optional<double> scale, int64_t window, int64_t query_offset = 0);
std::tuple<Tensor, Tensor, Tensor> attention_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                      const Tensor& k, const Tensor& v, const Tensor& out,
                                                      const Tensor& lse, bool is_causal, std::optional<double> scale,
                                                      int64_t window, int64_t query_offset = 0);
}  // namespace detail

}  // namespace strata
