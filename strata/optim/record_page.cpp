// The records as pages and data for others.

#include <algorithm>

#include "strata/core/error.h"
#include "strata/core/json_text.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

using detail::json_list;
using detail::json_string;
using Kind = OptimizerOption::Kind;

std::string shown(const OptionValue& v) {
  if (const bool* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  return std::visit([](auto x) { return cat(x); }, v);
}
std::string_view name_of(Kind kind) {
  return kind == Kind::number ? "number" : kind == Kind::boolean ? "boolean" : kind == Kind::count ? "count" : "seed";
}
std::string range_of(const OptimizerOption& o) {
  const bool any = o.range.min == -o.range.max;
  return o.kind == Kind::boolean || any ? std::string() : o.range.text();
}

}  // namespace

std::string optimizers_json() {
  return json_list(optimizer_records(), [](const OptimizerRecord* r) {
    const std::string options = json_list(r->options, [&](const OptimizerOption& o) {
      return cat("{\"name\": ", json_string(o.name), ", \"kind\": ", json_string(name_of(o.kind)),
                 ", \"default\": ", shown(o.get(r->defaults)), ", \"range\": ", json_string(range_of(o)),
                 ", \"doc\": ", json_string(o.doc), "}");
    });
    const std::string states = json_list(r->states, [](const OptimizerState& s) { return json_string(s.name); });
    std::string rates;
    for (const OptimizerState& s : r->states)
      if (s.kind == OptimizerState::Kind::rate) rates += cat(rates.empty() ? "" : ", ", json_string(s.name));
    const std::string derived = json_list(r->derived, [](const DerivedState& d) { return json_string(d.name); });
    return cat("{\"name\": ", json_string(r->name), ", \"title\": ", json_string(r->title),
               ", \"doc\": ", json_string(r->doc), ", \"python\": ", json_string(r->python), ", \"options\": ", options,
               ", \"states\": ", states, ", \"rates\": [", rates, "], \"derived\": ", derived, "}");
  });
}

std::string optimizers_markdown() {
  std::string s =
      "# Optimizers\n\nWritten from the records in `strata/optim/`; `strata/optim/record.h` says what a record is. "
      "Options "
      "have the same\nnames in C++ and in Python's groups, Node writes them in camelCase; the keys are those of a "
      "configuration of `strata train`.\nEvery one has those of `LowPrecision` besides: `master_weights`, "
      "`compensated_weights`,\n`stochastic_rounding`, `low_state`, `state_8bit`, `min_8bit_size`, `rounding_seed`.\n";
  for (const OptimizerRecord* r : optimizer_records()) {
    s += cat("\n## ", r->title, "\n\n", r->doc, "\n");
    s += r->in_training ? cat("`train.optimizer = \"", r->name, "\"`\n")
                        : std::string("Not one of `train.optimizer`.\n");
    s += "\n| option | default | | key |\n|---|---|---|---|\n";
    for (const OptimizerOption& o : r->options) {
      if (o.name == "master_weights") break;
      const std::string range = range_of(o);
      const bool common = o.name == "lr" || o.name == "weight_decay";
      const std::string key = o.key == "-" ? common ? cat("`train.", o.name, '`') : std::string()
                                           : cat("`train.", o.key.empty() ? o.name : o.key, '`');
      s += cat("| `", o.name, "` | ", shown(o.get(r->defaults)), " | ", o.doc,
               range.empty() ? "" : cat(" It ", range, '.'), " | ", r->in_training ? key : std::string(), " |\n");
    }
    if (r->states.empty()) continue;
    s += "\nState:";
    for (const OptimizerState& state : r->states)
      s += cat(&state == &r->states.front() ? " " : "; ", '`', state.name, "`, ",
               static_cast<char>(state.doc[0] - 'A' + 'a'), state.doc.substr(1, state.doc.size() - 2));
    s += ".\n";
  }
  return s;
}

}  // namespace strata::optim
