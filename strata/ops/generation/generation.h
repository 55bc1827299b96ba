#pragma once
// What generation does beside a model: tokens drawn from logits, penalties, keys and values kept, attention to them.
// All lengths are tensors on the device, so that a CUDA graph can be replayed with others. None of it waits for the
// device.

#include <optional>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// How each row's token is chosen: tensors [B], or [] for all rows, on the logits' device; undefined ones are off.
struct TokenFilters {
  Tensor temperature = {};  ///< f32, >= 0: logits are divided by it; 0 takes the likeliest token. Off: 1
  Tensor top_k = {};        ///< i64, >= 0: only the k likeliest, and what ties with the last of them; 0 is off
  Tensor top_p = {};  ///< f32 in (0, 1]: the likeliest that together have this probability (arXiv:1904.09751); 1 is off
  Tensor min_p = {};  ///< f32 in [0, 1]: only tokens at least this share as likely as the likeliest (arXiv:2407.01082)
  Tensor typical_p = {};  ///< f32 in (0, 1]: the tokens nearest to the entropy that together have this probability
                          ///< (Meister et al., arXiv:2202.00666); 1 is off
};

/// A token of each row of logits [B, V] (f16, bf16, f32): ids i64 [B] and the logarithm of each one's probability under
/// softmax(logits), f32 [B]: over all V, before temperature and filters. Only ids below `vocab` are drawn (0: all V).
///
/// Filters come in the order temperature, top_k, top_p, min_p, typical_p, each among what the earlier ones left, as
/// transformers' logits warpers do. Row b's number is philox() of seeds[b] at positions[b] (i64 [B]): it depends on
/// nothing else, so a request draws the same tokens in any batch. Equal logits stand in the order of their ids; NaN is
/// never drawn. The sums are of integers, so results depend on no order of summation.
///
/// Throws ShapeError, DTypeError, ValueError (filters out of range, a row with nothing but NaN: on a CUDA device when
/// the host next waits for it, and the id is 0). Not differentiable.
std::tuple<Tensor, Tensor> sample_tokens(const Tensor& logits, const Tensor& seeds, const Tensor& positions,
                                         const TokenFilters& filters = {}, int64_t vocab = 0);

/// Penalties of penalise_logits(): f32 [B], or [] for all rows; undefined ones are off.
struct TokenPenalties {
  Tensor repetition = {};  ///< > 0: logits of tokens in the history are divided by it, negative ones multiplied
                           ///< (Keskar et al., arXiv:1909.05858). Off: 1
  Tensor frequency = {};   ///< times how often a token stands behind the prompt, taken off its logit
  Tensor presence = {};    ///< taken off the logits of tokens that stand behind the prompt
};

/// logits [B, V] in f32 under the penalties for what row b of `history` [B, T] (i64) has in its first lengths[b] places
/// (i64 [B]); the first prompts[b] of them (i64 [B]) are the prompt. Repetition counts all of them, frequency and
/// presence those behind the prompt, after it. Throws ShapeError, DTypeError, IndexError for a token outside [0, V).
Tensor penalise_logits(const Tensor& logits, const Tensor& history, const Tensor& lengths, const Tensor& prompts,
                       const TokenPenalties& penalties);

/// logits [B, V] in f32 with values [N] or [B, N] (f32) added at ids (i64, the same shape); a negative id stands for
/// none, and minus infinity forbids one. With `counts` and `limits` (i64 [B]) only in rows where counts[b] < limits[b]:
/// a minimum length is minus infinity for the ids that end a text. Throws ShapeError, DTypeError, IndexError.
Tensor bias_logits(const Tensor& logits, const Tensor& ids, const Tensor& values, const Tensor& counts = {},
                   const Tensor& limits = {});

/// cache [B, H, C, D] with row i of x [B, H, T, D] at place starts[b] + i (starts: i64 [B]); only the first counts[b]
/// rows where there are `counts` (i64 [B]). Throws ShapeError, DTypeError, IndexError where a place is not below C.
Tensor cache_write(const Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts = {});
/// The same, into `cache`'s own memory. Returns it.
Tensor& cache_write_(Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts = {});

/// Of cache_attention().
struct CacheAttentionOptions {
  std::optional<double> scale = {};  ///< of the scores; 1 / sqrt(D) where not given
  int64_t window = 0;                ///< where > 0: the query's place and the window - 1 before it are seen
  double logit_soft_cap = 0;         ///< as AttentionOptions'
  Tensor sinks = {};                 ///< as AttentionOptions', [H]
};

/// Attention of q [B, H, T, D], at places starts[b] .. starts[b] + T - 1 (i64 [B]) of a cache, to the cache's k
/// [B, Hkv, C, D] and v [B, Hkv, C, Dv] up to the query's own place: [B, H, T, Dv]. What stands behind it is not read,
/// but on a CUDA device must be numbers. Throws ShapeError, DTypeError, ValueError.
Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts,
                       const CacheAttentionOptions& options = {});

}  // namespace strata
