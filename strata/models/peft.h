#pragma once
// Adapter folders as PEFT writes them: adapter_config.json and adapter_model.safetensors. docs/design/fine_tuning.md.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/models/language_model.h"
#include "strata/models/weight_row.h"
#include "strata/nn/lora.h"

namespace strata {

/// Where the maps of a model stand in files. What a family's rows say of its weights says this too.
struct AdapterNames {
  /// The parts of each map, named as the file's modules: "model.layers.0.self_attn.q_proj". Of a weight of experts
  /// first all of it, "model.layers.0.mlp.experts.gate_up_proj", as adapters of transformers 5 have it (PEFT's
  /// target_parameters), then as those of transformers 4 do: "model.layers.0.mlp.experts.*.gate_proj".
  nn::LinearParts parts;
  /// Of parts whose rows stand in another order in files: our row i is the file's row rows[i].
  std::map<std::string, std::vector<int64_t>> rows;
  /// Parameters that may be saved whole beside adapters, by our names: {"head.weight", "lm_head.weight"}.
  std::map<std::string, std::string> tensors;
  bool fan_in_fan_out = false;  ///< the files' weights are [in, out], as GPT-2's
};

/// What a family's rows say of the maps of `model`, which was built from the spec that the rows are of. Maps whose
/// rows lie in a file in pieces have no part.
AdapterNames adapter_names(const nn::Module& model, const std::vector<WeightRow>& rows);
/// Names for a model of no family's, which PEFT does not know: its own, "blocks.0.attn.q" for the queries' rows of
/// "blocks.0.attn.qkv", and "gate" and "up" of "gate_up".
AdapterNames own_adapter_names(const LanguageModel& model);

/// What an adapter_config.json says. Ranks and alphas of `patterns` are those of the modules whose name is the key, or
/// ends with it behind a dot; a key that begins with ^ is the whole name.
struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool rslora = false, dora = false;
  bool fan_in_fan_out = false;  ///< the weights that were adapted are [in, out] in their files
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
  std::vector<std::string> modules_to_save;
  /// Parameters of experts that have one adapter tensor for all of them: names, or their ends behind a dot.
  std::vector<std::string> target_parameters;
  std::string peft_version;  ///< of the PEFT that wrote it; empty before 0.18
  std::string base;          ///< base_model_name_or_path: what was adapted; empty where it is not said

  /// The rank of a module of the file, by the pattern that names it, else `r`.
  int64_t rank_of(std::string_view module) const;
  /// Its alpha, likewise.
  double alpha_of(std::string_view module) const;
  /// What its addition is multiplied by.
  double scale_of(std::string_view module) const;
};

/// Reads one. Throws IoError naming `source` and the key: for what is not JSON, another peft_type, a value of a wrong
/// type or out of range, a pattern that is more than a name (or, as PEFT writes them of experts, .*\.NAME), and every
/// key that changes what the adapter computes and is not read here, unless its value is null, false or empty.
AdapterConfig parse_adapter_config(std::string_view json, std::string_view source);

/// Puts the adapters of a folder on the maps of `model`, which has none, and freezes the rest of it but for the modules
/// that the folder holds whole; these take its values. Of experts there are both forms: a tensor for each, and one of
/// all (lora_A [count rank, in], lora_B [out, rank count], of PEFT before 0.19 with `in` and `out` changed for one
/// another). Throws IoError for what cannot be read, for tensors that are missing, of another shape than the maps and
/// the configuration say, or for which the model has no place, and for experts of one weight with other ranks or alphas
/// than its first, all of them listed; then the model is as it was.
AdapterConfig load_adapter(const std::string& dir, const nn::Module& model, const AdapterNames& names);

/// What save_adapter writes beside what the model says.
struct AdapterNote {
  std::string base;       ///< base_model_name_or_path
  std::string task_type;  ///< "CAUSAL_LM"
};
/// Writes the adapters of `model`, and whole the other parameters that are trained, as a folder that PEFT reads.
/// Experts are in the form that their parts are named by. Throws ValueError where the model has no adapters or they are
/// merged, for a trained parameter that `names.tensors` has not, and for a dropout of experts in one tensor, which PEFT
/// has not; IoError.
void save_adapter(const std::string& dir, const nn::Module& model, const AdapterNames& names,
                  const AdapterNote& note = {});

}  // namespace strata
