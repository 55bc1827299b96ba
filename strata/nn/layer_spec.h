#pragma once
// What the layers of transformers are made like: plain data, from which strata/nn/attention.h and transformer.h build
// modules. A whole model is strata/models/spec.h's.

#include <cstdint>
#include <optional>
#include <vector>

namespace strata::nn {

/// The nonlinearity of a feed-forward layer.
enum class Activation : uint8_t {
  gelu,        ///< x Phi(x) (Hendrycks and Gimpel, arXiv:1606.08415)
  gelu_tanh,   ///< the same with Phi by tanh
  gelu_quick,  ///< x sigmoid(1.702 x)
  silu,        ///< x sigmoid(x)
  relu,        ///< max(x, 0)
  tanh,
  sigmoid,
};

/// A norm over the last dimension.
struct NormSpec {
  /// Which.
  enum class Kind : uint8_t {
    layer,  ///< mean 0, variance 1 (Ba et al., arXiv:1607.06450)
    rms,    ///< root mean square 1 (Zhang and Sennrich, arXiv:1910.07467)
  };
  Kind kind = Kind::layer;
  double eps = 1e-5;
  bool bias = true;       ///< of Kind::layer
  bool one_plus = false;  ///< the factor is 1 + weight, and the weight begins at 0 (Gemma)

  bool operator==(const NormSpec&) const = default;
};

/// Rotary positions (Su et al., arXiv:2104.09864): pair i of the turned elements turns by position * frequency i, which
/// is base^(-2 i / dims) before scaling.
struct RotarySpec {
  /// How frequencies are changed for texts longer than those of the first training; the rules are those of
  /// transformers' modeling_rope_utils.
  enum class Scaling : uint8_t {
    none,
    linear,    ///< all divided by factor
    dynamic,   ///< the base grows with the length above `context` (NTK-aware)
    llama3,    ///< by wavelength: kept, divided by factor, or between
    yarn,      ///< by wavelength, with a ramp (Peng et al., arXiv:2309.00071)
    longrope,  ///< divided by a number of each: short_factors up to original_context positions, long_factors beyond
  };
  int64_t dims = 0;  ///< elements of a head that turn, the first ones; even
  double base = 10000;
  bool interleaved = false;  ///< pairs are (2i, 2i + 1), else (i, i + dims / 2)
  Scaling scaling = Scaling::none;
  double factor = 1;
  double attention_factor = 1;           ///< cosines and sines are multiplied by it (yarn, longrope)
  int64_t context = 0;                   ///< positions that the model is for (dynamic)
  int64_t original_context = 0;          ///< positions of the first training (llama3, yarn, longrope)
  double low_frequency = 1;              ///< llama3: wavelengths above original_context / this are divided
  double high_frequency = 4;             ///< llama3: wavelengths below original_context / this are kept
  double beta_fast = 32, beta_slow = 1;  ///< yarn: turns over original_context at which the ramp begins and ends
  bool truncate = true;                  ///< yarn: the ramp's ends are whole numbers
  std::vector<double> short_factors = {}, long_factors = {};  ///< longrope: dims / 2 each

  bool operator==(const RotarySpec&) const = default;
};

/// DeepSeek's attention over a compressed cache (DeepSeek-V2, arXiv:2405.04434): keys and values are made from kv_rank
/// numbers a position, and rope_size more, which all heads share, hold the position. Only these are cached.
struct LatentSpec {
  int64_t q_rank = 0;  ///< queries pass through so many numbers; 0: directly
  int64_t kv_rank = 0;
  int64_t rope_size = 0;  ///< elements of queries and keys, beside head_size - rope_size others, that turn

  bool operator==(const LatentSpec&) const = default;
};

/// Attention of a layer.
struct AttentionSpec {
  int64_t heads = 0;
  int64_t kv_heads = 0;    ///< a divisor of heads
  int64_t head_size = 0;   ///< of queries and keys
  int64_t value_size = 0;  ///< of values
  int64_t window = 0;      ///< keys seen, the query's own included; 0: all
  bool causal = true;      ///< no key behind the query is seen
  bool bias = true;        ///< of queries, keys and values
  /// Where not, keys have no bias of those (Whisper): the numbers in its place are 0 at first and change no result, as
  /// a softmax takes no note of what all scores of a query share.
  bool key_bias = true;
  bool out_bias = true;
  std::optional<NormSpec> query_key_norm = {};  ///< of queries and of keys, before they turn
  bool norm_whole_width = false;                ///< that norm is over all heads together, else over each
  std::optional<double> scale = {};             ///< of scores; 1 / sqrt(head_size) where not given
  double soft_cap = 0;                          ///< where > 0: a score s is soft_cap * tanh(s / soft_cap)
  int64_t rotary = -1;                          ///< which of the model's rotary specs; -1: none
  double dropout = 0;                           ///< on the attention weights, in training
  std::optional<LatentSpec> latent = {};

  bool operator==(const AttentionSpec&) const = default;
};

/// Experts, of which each token takes some (Shazeer et al., arXiv:1701.06538).
struct ExpertsSpec {
  /// What makes weights of the router's scores.
  enum class Scoring : uint8_t { softmax, sigmoid };
  int64_t count = 0;
  int64_t per_token = 0;
  int64_t width = 0;         ///< inside an expert
  int64_t shared_width = 0;  ///< inside a feed-forward layer that all tokens pass besides; 0: none
  int64_t groups = 1;        ///< experts stand in so many groups,
  int64_t top_groups = 1;    ///< and only those of the best so many groups are taken
  /// How a group is judged: by its best expert's score (DeepSeek-V2), or by the sum of its two best (DeepSeek-V3).
  bool groups_by_two = false;
  Scoring scoring = Scoring::softmax;
  bool correction_bias = false;  ///< a number of each expert is added to the scores for the choice alone
  bool normalise = false;        ///< the taken weights are divided by their sum
  double scale = 1;              ///< of the taken weights
  bool precise_router = false;   ///< the router's product is in f32, whatever x is

  /// @name In training alone
  /// Where > 0: an expert takes at most this times its even share of each sequence's choices, rounded up; what comes
  /// later is left out (GShard, arXiv:2006.16668). 0: all that come. A sequence's own choices decide, so the result is
  /// the same however sequences are batched or shared among ranks.
  double capacity = 0;
  bool reroute = false;     ///< what is left out goes to the best expert with room instead (after arXiv:2402.12399)
  double balance_loss = 0;  ///< of strata::balance_loss(), added to the model's loss; about 0.01
  double z_loss = 0;        ///< of strata::router_z_loss(), the same; about 0.001
  /// @}

  bool operator==(const ExpertsSpec&) const = default;
};

/// The feed-forward part of a layer: down(act(up(x))), or down(act(gate(x)) * up(x)).
struct FeedForwardSpec {
  int64_t width = 0;
  Activation activation = Activation::gelu_tanh;
  bool gated = false;
  bool bias = true;
  std::optional<ExpertsSpec> experts = {};  ///< then `width` is not used
  double dropout = 0;                       ///< on what goes into down(), in training; not within experts

  bool operator==(const FeedForwardSpec&) const = default;
};

/// Where a block's norms stand; f is attention, g the feed-forward part, n a norm.
enum class NormPlacement : uint8_t {
  before,          ///< x + f(n1(x)), then x + g(n2(x)): GPT-2, Llama
  after,           ///< n1(x + f(x)), then n2(x + g(x)): the first transformers, BERT
  branch,          ///< x + n1(f(x)), then x + n2(g(x))
  sandwich,        ///< x + n3(f(n1(x))), then x + n4(g(n2(x))): Gemma 2 and 3
  parallel,        ///< x + f(n1(x)) + g(n1(x))
  parallel_norms,  ///< x + f(n1(x)) + g(n2(x)): GPT-NeoX
  /// As before, but f and g read x as it was before what the last of them added (Ladder Residual, arXiv:2501.06589):
  /// with tensor parallelism that sum travels while the next is computed. Of decoders alone.
  ladder,
};

/// A block.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  NormPlacement placement = NormPlacement::before;
  NormSpec norm;             ///< all of the block's
  double dropout = 0;        ///< on what each branch adds, in training
  bool layer_scale = false;  ///< what each branch adds is multiplied by a learned vector (Touvron et al., 2103.17239)

  bool operator==(const LayerSpec&) const = default;
};

}  // namespace strata::nn
