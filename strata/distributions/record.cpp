// The records together: found by name, as data and as a page.

#include "strata/distributions/record.h"

#include <algorithm>

#include "strata/core/json_text.h"
#include "strata/distributions/formulas_inl.h"
#include "strata/distributions/transform.h"

namespace strata::distributions {
namespace {

using detail::json_list;
using detail::json_string;
using Role = Parameter::Role;

std::string number(const Bound& b) {
  return b.number ? cat(*b.number) : "null";
}
std::string json(const Constraint& c) {
  return cat("{\"kind\": ", json_string(name_of(c.kind())), ", \"lower\": ", number(c.lower()),
             ", \"upper\": ", number(c.upper()), ", \"joined\": ", c.joined(), "}");
}
std::string_view name_of(Role role) {
  constexpr std::string_view names[] = {"batch", "one_of", "aside", "pair", "count", "derived"};
  return names[static_cast<size_t>(role)];
}
// A parameter's default, or `otherwise`.
std::string fallback_of(const Parameter& p, std::string_view otherwise) {
  if (p.fallback_pair) return cat('[', (*p.fallback_pair)[0], ", ", (*p.fallback_pair)[1], ']');
  return p.fallback ? cat(*p.fallback) : std::string(otherwise);
}
// What a family has of what not all have.
std::vector<std::string_view> functions_of(const DistributionRecord& r) {
  std::vector<std::string_view> all;
  if (r.has_rsample) all.push_back("rsample");
  if (r.cdf) all.push_back("cdf");
  if (r.icdf) all.push_back("icdf");
  if (r.entropy) all.push_back("entropy");
  if (r.mean) all.push_back("mean");
  if (r.mode) all.push_back("mode");
  if (r.variance) all.push_back("variance");
  if (r.enumerate) all.push_back("enumerate_support");
  return all;
}

std::vector<const DistributionRecord*> collected() {
  std::vector<const DistributionRecord*> all;
  for (const auto& records : {line_records(), positive_records(), unit_records(), vector_records(), matrix_records(),
                              count_records(), class_records()})
    for (const DistributionRecord& r : records) all.push_back(&r);
  std::ranges::sort(all, {}, &DistributionRecord::name);
  return all;
}

}  // namespace

std::span<const DistributionRecord* const> distribution_records() {
  static const std::vector<const DistributionRecord*> all = collected();
  return all;
}

const DistributionRecord& distribution_record(std::string_view name) {
  std::string names;
  for (const DistributionRecord* r : distribution_records()) {
    if (r->name == name) return *r;
    names += cat(names.empty() ? "" : ", ", r->name);
  }
  throw ValueError("distributions", cat("there is no distribution '", name, "'; there are ", names));
}

const DivergenceRecord* divergence_record(const DistributionRecord& p, const DistributionRecord& q) {
  // A family, then the one that it is a kind of.
  const auto line = [](const DistributionRecord& r) {
    std::vector<std::string_view> names{r.name};
    if (!r.parent.empty()) names.push_back(r.parent);
    return names;
  };
  for (const std::string_view a : line(p))
    for (const std::string_view b : line(q))
      for (const DivergenceRecord& d : divergence_records())
        if (d.p == a && d.q == b) return &d;
  return nullptr;
}

std::string distributions_json() {
  const std::string records = json_list(distribution_records(), [](const DistributionRecord* r) {
    const std::string parameters = json_list(r->parameters, [](const Parameter& p) {
      return cat("{\"name\": ", json_string(p.name), ", \"doc\": ", json_string(p.doc),
                 ", \"role\": ", json_string(name_of(p.role)), ", \"event_dim\": ", p.event_dim,
                 ", \"default\": ", fallback_of(p, "null"), ", \"constraint\": ", json(p.constraint), "}");
    });
    return cat("{\"name\": ", json_string(r->name), ", \"module\": ", json_string(r->module),
               ", \"doc\": ", json_string(r->doc), ", \"parent\": ", json_string(r->parent),
               ", \"exponential\": ", r->exponential, ", \"parameters\": ", parameters,
               ", \"support\": ", json(r->support), ", \"functions\": ", json_list(functions_of(*r), json_string), "}");
  });
  const std::string divergences = json_list(divergence_records(), [](const DivergenceRecord& d) {
    return cat("[", json_string(d.p), ", ", json_string(d.q), "]");
  });
  const std::string transforms = json_list(transform_records(), [](const TransformRecord& r) {
    return cat("{\"name\": ", json_string(r.name), ", \"doc\": ", json_string(r.doc), ", \"domain\": ", json(r.domain),
               ", \"codomain\": ", json(r.codomain), ", \"bijective\": ", r.bijective,
               ", \"parameters\": ", json_list(r.parameters, json_string), "}");
  });
  return cat("{\"distributions\": ", records, ", \"divergences\": ", divergences, ", \"transforms\": ", transforms,
             "}");
}

std::string distributions_markdown() {
  std::string s =
      "# Distributions over tensors\n\nWritten from the records in `strata/distributions/`; "
      "`strata/distributions/record.h` "
      "says what a record is. Parameters have the\nsame names in C++ and Python; Node writes them in camelCase. Every "
      "one "
      "has `sample` and `log_prob`.\n";
  for (const DistributionRecord* r : distribution_records()) {
    s += cat("\n## ", r->name, "\n\n", r->doc, "\n\n| parameter | | values | default |\n|---|---|---|---|\n");
    for (const Parameter& p : r->parameters)
      s += cat("| `", p.name, "` | ", p.doc, p.role == Role::derived ? " It follows from the others." : "", " | ",
               p.constraint.kind() == Constraint::Kind::dependent ? std::string() : cat('`', p.constraint.text(), '`'),
               " | ", fallback_of(p, p.role == Role::one_of ? "one of these" : ""), " |\n");
    if (r->support.kind() != Constraint::Kind::dependent) s += cat("\nSupport: `", r->support.text(), "`.\n");
    s += "\nBesides:";
    for (const std::string_view f : functions_of(*r)) s += cat(" `", f, "`");
    std::string others;
    for (const DivergenceRecord& d : divergence_records())
      if (d.p == r->name && d.value) others += cat(others.empty() ? "" : ", ", d.q);
    s += cat(".\n", others.empty() ? "" : cat("\nDivergence from: ", others, ".\n"));
  }
  s += "\n## Transforms\n\n| | | from | to |\n|---|---|---|---|\n";
  for (const TransformRecord& r : transform_records())
    s += cat("| `", r.name, "` | ", r.doc, " | `", r.domain.text(), "` | `", r.codomain.text(), "` |\n");
  return s;
}

}  // namespace strata::distributions
