#pragma once
#include <set>

#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Of Muon.
struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;  ///< decoupled
  int ns_steps = 5;           ///< Newton-Schulz iterations
  double eps = 1e-7;          ///< least norm that a momentum matrix is divided by
  /// Whether the step is scaled by 0.2 sqrt(max(rows, cols)), so that its root mean square is that of AdamW's and both
  /// take one learning rate and one weight decay (Liu et al., "Muon is scalable for LLM training", 2025); else by
  /// sqrt(max(1, rows / cols)), the original scale and PyTorch's default.
  bool match_rms_adamw = false;
  /// Turns a group over to AdamW, as do the parameters of it that are not matrices. Embeddings, output layers, norms
  /// and biases belong there.
  bool use_adamw = false;
  double beta1 = 0.9;  ///< of AdamW, as the two below; lr and weight_decay are the group's
  double beta2 = 0.95;
  double adamw_eps = 1e-8;
  LowPrecision low = {};
  void validate() const;  ///< throws ValueError
  static const OptimizerRecord& record();
};

/// Muon (Jordan et al., 2024): momentum, orthogonalised. b = momentum b + (1 - momentum) g; u = b, or Nesterov's
/// (1 - momentum) g + momentum b; p -= lr (scale newton_schulz(u) + weight_decay p). Everything that is not a matrix,
/// and groups with use_adamw, are updated by AdamW. State: momentum_buffer, or AdamW's.
///
///     Muon opt(muon_groups(model.named_parameters(), {.lr = 1e-3}, nn::table_names(model)));
class Muon final : public OptimizerOf<MuonOptions> {
 public:
  using OptimizerOf::OptimizerOf;

 protected:
  std::vector<StateSpec> state_spec(const Param& p) const override;
  void update(const std::vector<Param*>& active, double grad_scale) override;
  bool fused() const override { return true; }

 private:
  bool orthogonal(const Param& p) const { return p.tensor.dim() == 2 && !options_of(p).use_adamw; }
};

/// The usual groups: hidden matrices for Muon; those of the names `tables` (embeddings, see nn::table_names(), and
/// output layers) and what has more dimensions for AdamW; vectors for AdamW without weight decay.
std::vector<ParamGroup<MuonOptions>> muon_groups(const NamedTensors& params, const MuonOptions& options = {},
                                                 const std::set<std::string>& tables = {});

/// An approximation of U V^T for x = U S V^T, of shape [m, n], by `steps` of the quintic Newton-Schulz iteration with
/// Jordan's coefficients: singular values end between about 0.7 and 1.2. Not recorded.
Tensor newton_schulz(const Tensor& x, int steps = 5, double eps = 1e-7);

}  // namespace strata::optim
