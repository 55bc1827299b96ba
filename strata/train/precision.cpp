#include "strata/train/precision.h"

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "strata/train/fine_tune_inl.h"

namespace strata {
namespace {

// Whether `part` stands in the dotted `name` as whole parts of it: "head" in "head.weight", "blocks.0" in
// "blocks.0.mlp.up.weight", but not in "blocks.01.mlp.up.weight".
bool names(std::string_view part, std::string_view name) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

TensorList excluded(const std::string& text, TokenDecoder& model) {
  TensorList weights;
  std::istringstream in(text);
  for (std::string part; in >> part;) {
    // The head's weight may be the table of tokens, under the table's name.
    const bool head = part == "head";
    bool found = head;
    const std::set<std::string> tables = head ? table_names(model) : std::set<std::string>();
    for (const auto& [name, weight] : model.as_module().named_parameters()) {
      if (!names(part, name) && !tables.contains(name)) continue;
      found = true;
      weights.push_back(weight);
    }
    check(found, "train", "train.fp8_exclude: the model has no layer '", part, "'");
  }
  return weights;
}

}  // namespace

DType activation_dtype(const TrainConfig& config) {
  return config.dtype == "fp8" ? DType::bf16 : parse_dtype(config.dtype);
}

std::optional<AutocastSettings> autocast_of(const TrainConfig& config, TokenDecoder& model) {
  if (config.dtype == "f32") return std::nullopt;
  AutocastSettings s{.dtype = activation_dtype(config), .low_gradients = config.grad_dtype == "bf16", .fp8 = nullptr};
  if (config.dtype == "fp8")
    s.fp8 = std::make_shared<const Fp8Options>(
        Fp8Options{.scaling = config.fp8_scaling, .exclude = excluded(config.fp8_exclude, model)});
  return s;
}

}  // namespace strata
