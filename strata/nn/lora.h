#pragma once
// Adapters of low rank on linear maps (LoRA, Hu et al., arXiv:2106.09685; DoRA, Liu et al., arXiv:2402.09353), computed
// as PEFT does. docs/design/fine_tuning.md.
//
//     nn::add_lora(net, {.rank = 16, .alpha = 32, .targets = {"qkv", "mlp"}});  // freezes what was there
//     optim::AdamW optimizer(nn::lora_parameters(net), {.lr = 1e-4});           // A, B, and of DoRA the magnitudes
//     Tensor loss = cross_entropy(net(x), y);                                   // every call of these maps adds B A x
//     nn::merge_lora(net);                                                      // into the weights: no more work a
//     call
//
// A map is a module of kind "Linear" that is called: what reads its weight itself would not see the adapter; or one of
// the stacked weights of nn::Experts, in which each expert's matrix has an adapter of its own.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/nn/module.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata::nn {

/// Rows of a linear map that have an adapter of their own: q, k, v of a fused projection. Of experts, rows of every
/// expert's matrix: a part of name "model.layers.0.mlp.experts.gate_up_proj" has one tensor for all of them in files,
/// and "model.layers.0.mlp.experts.*.gate_proj" one for each, whose number stands in the place of the *.
struct LinearPart {
  std::string name;   ///< dotted, as in files: "model.layers.0.self_attn.q_proj"
  int64_t first = 0;  ///< the first row of the weight, which is the first column of the output
  int64_t rows = 0;
};
/// The parts of maps, by the map's path in the tree. One that is not in it is one part named as its path, or where it
/// is the tree itself "Linear". Parts of experts may share rows: they are ways to adapt these.
using LinearParts = std::map<std::string, std::vector<LinearPart>>;

/// Which maps get an adapter, and what kind.
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 8;       ///< the addition is multiplied by alpha / rank
  double dropout = 0;     ///< of the adapter's input, while training
  bool rslora = false;    ///< by alpha / sqrt(rank) instead (arXiv:2312.03732)
  bool dora = false;      ///< rows of the sum have learned lengths
  bool gaussian = false;  ///< A begins as N(0, 1 / rank) instead of uniform in +- 1 / sqrt(in); B begins as 0
  /// Patterns (is_named()) for a map's path or its parts' names; empty: all linear maps but those that `exclude` names.
  /// Experts get adapters by patterns that have the word "experts" alone ("experts", "blocks.0.mlp.experts.down",
  /// "experts.*.up_proj"): of the parts that such patterns name and that share rows, the first.
  std::vector<std::string> targets = {};
  std::vector<std::string> exclude = {};
  /// Other ranks and alphas for the parts that a pattern names; the first that does counts. Each must name one that
  /// gets an adapter (ValueError).
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
};

/// The adapter of one part: B A of the input, times `scale`, is added to its rows.
struct LoraPart {
  LinearPart of;
  int64_t rank = 0;
  double alpha = 0;
  double scale = 0;  ///< alpha / rank, or alpha / sqrt(rank)
  Tensor A, B;       ///< [rank, in], [rows, rank], of experts [count, rank, in], [count, rows, rank]; f32
  Tensor magnitude;  ///< of DoRA: [rows]
};

/// The adapters of one map, its child "lora", or of a weight of experts theirs, "lora_gate_up" and "lora_down".
/// Parameters: <part>.A, <part>.B, <part>.magnitude, <part> being the last word of the part's name. A handle, as every
/// Module.
class Lora : public Module {
 public:
  /// On `map`, a module of kind "Linear", or "Experts", then on its parameter `weight` ("gate_up", "down"); for
  /// `parts`, of which `of`, `rank` and `alpha` are read; of `options` how, not what. Magnitudes begin as the lengths
  /// of the weight's rows. Throws ValueError for a map that has one already, parts that overlap or leave the map, two
  /// of one last word, a rank below 1, an alpha that is not finite, a dropout outside of [0, 1), and of experts for
  /// learned lengths and for experts that lie on several ranks.
  Lora(const Module& map, const std::vector<LoraPart>& parts, const LoraOptions& options,
       const std::string& weight = {});
  const std::vector<LoraPart>& parts() const { return inside_->parts; }
  /// What all parts have in common.
  struct Form {
    double dropout = 0;
    bool rslora = false, dora = false;
  };
  const Form& form() const { return inside_->form; }
  /// y, what the map makes of x, with what the adapters add; y itself where they are merged or switched off. Of experts
  /// rows x [N, in] and y [N, out] of which expert e has offsets[e] to offsets[e + 1] (grouped_linear()).
  Tensor forward(const Tensor& x, const Tensor& y, const Tensor& offsets = {}) const;
  bool is_merged() const { return inside_->merged; }
  /// Writes what is added into the map's weight, computed in f32 and rounded once, or takes it out again within that
  /// rounding. Throws ValueError where that has been done, and for a weight that is packed.
  void merge() const;
  void unmerge() const;

 private:
  struct Inside {
    Tensor weight, bias;               // the map's
    std::vector<PackedWeight> packed;  // in the weight's place, one below the other
    std::vector<LoraPart> parts;
    int64_t in = 0, out = 0;
    int64_t experts = 0;  // 0: of a linear map
    Form form;
    bool merged = false;
    std::vector<Tensor> merged_growth;  // of DoRA: what rows were multiplied with
  };
  Tensor down() const;
  Tensor up() const;
  Tensor dense(DType dtype) const;
  void change(bool in) const;
  Tensor lengths(const LoraPart& part) const;
  std::shared_ptr<Inside> inside_;
};

/// A linear map of a tree that can have an adapter, and its parts; or a weight of experts.
struct LinearMap {
  std::string path;  ///< of experts the weight's, "blocks.0.mlp.experts.gate_up"
  Module module;
  Shape shape;  ///< of its weight, [out, in], of experts [count, out, in]
  std::vector<LinearPart> parts;
  std::string weight = {};  ///< of experts its name there, "gate_up"; empty for a linear map
};
/// All of them, in the order of the tree; those of which a module reads the weight itself (MultiheadAttention's
/// out_proj) are left out. Throws ValueError for parts that leave their map.
std::vector<LinearMap> linear_maps(const Module& root, const LinearParts& parts = {});
/// The weights of experts of a tree, two of each nn::Experts, in its order. Throws ValueError for parts that leave
/// them.
std::vector<LinearMap> expert_maps(const Module& root, const LinearParts& parts = {});

/// Freezes all that is in the tree and puts adapters on the maps that the options name, drawn from
/// default_generator(); the optimizer is made after it. Returns the names of the parts that got one. Throws ValueError,
/// before anything is changed, where there is none, for a pattern that names nothing, and as Lora does.
std::vector<std::string> add_lora(const Module& root, const LoraOptions& options, const LinearParts& parts = {});
/// The maps of a tree that have adapters, by path, with these.
struct AdaptedMap {
  std::string path;  ///< of experts the weight's, "blocks.0.mlp.experts.gate_up"
  Module map;        ///< the Linear, or the Experts
  Lora lora;
  std::string lora_path;    ///< "blocks.0.attn.qkv.lora", "blocks.0.mlp.experts.lora_gate_up"
  std::string weight = {};  ///< of experts the parameter that is adapted, "gate_up"; empty for a linear map
  /// The full name of the weight that is adapted.
  std::string weight_name() const;
};
std::vector<AdaptedMap> adapted_maps(const Module& root);
/// The parameters of all adapters of a tree, by their full names.
NamedTensors lora_parameters(const Module& root);
/// Merges all adapters that are not, or takes all out of the weights that are. Throws as Lora::merge.
void merge_lora(const Module& root);
void unmerge_lora(const Module& root);
/// Takes all adapters off; weights stay as they are, merged or not, and frozen.
void remove_lora(const Module& root);

/// While one lives, the calls on this thread pass adapters by, but for those that are merged: what the base computes.
class WithoutLora {
 public:
  WithoutLora();
  ~WithoutLora();
  WithoutLora(const WithoutLora&) = delete;

 private:
  bool before_;
};

}  // namespace strata::nn
