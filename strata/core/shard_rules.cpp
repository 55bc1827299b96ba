// The rules that many records share. docs/design/placements.md has the list with what each means.

#include <algorithm>
#include <map>
#include <numeric>

#include "strata/core/call_path.h"
#include "strata/core/dims.h"
#include "strata/core/shard_text_inl.h"
#include "strata/core/sharding.h"

namespace strata {

// ---- what rules ask ----------------------------------------------------------------------------------------------

namespace {
std::optional<size_t> index_of(const OpBase& op, std::string_view name) {
  const auto& args = op.schema().args;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name == name) return i;
  return std::nullopt;
}
}  // namespace

Value& LocalCall::arg(std::string_view name) const {
  const std::optional<size_t> i = index_of(op, name);
  check(i.has_value(), op.name(), "its shard rule names '", name, "', which is no argument");
  return args[*i];
}

bool Sharding::has(std::string_view name) const {
  const std::optional<size_t> i = index_of(op, name);
  return i && !std::holds_alternative<std::monostate>(values[*i]);
}
std::optional<int64_t> Sharding::integer(std::string_view name) const {
  const std::optional<size_t> i = index_of(op, name);
  check(i.has_value(), op.name(), "its shard rule names '", name, "', which is no argument");
  if (const int64_t* n = std::get_if<int64_t>(&values[*i])) return *n;
  if (const bool* b = std::get_if<bool>(&values[*i])) return *b;
  return std::nullopt;
}
std::string Sharding::text(std::string_view name) const {
  const std::optional<size_t> i = index_of(op, name);
  const std::string* s = i ? std::get_if<std::string>(&values[*i]) : nullptr;
  check(s != nullptr, op.name(), "its shard rule names '", name, "', which is no text");
  return *s;
}
double Sharding::number(std::string_view name) const {
  const std::optional<size_t> i = index_of(op, name);
  const double* x = i ? std::get_if<double>(&values[*i]) : nullptr;
  check(x != nullptr, op.name(), "its shard rule names '", name, "', which is no number");
  return *x;
}
std::optional<std::vector<int>> Sharding::dims(std::string_view name, int64_t rank) const {
  const std::optional<size_t> i = index_of(op, name);
  check(i.has_value(), op.name(), "its shard rule names '", name, "', which is no argument");
  std::vector<int> all;
  if (const Dims* d = std::get_if<Dims>(&values[*i])) {
    for (const int64_t n : *d) all.push_back(static_cast<int>(n < 0 ? n + rank : n));
  } else if (const std::optional<int64_t> n = integer(name)) {
    all.push_back(static_cast<int>(*n < 0 ? *n + rank : *n));
  } else {
    return std::nullopt;
  }
  return all;
}

void Sharding::ways(std::vector<Placement>& into, size_t i, int dim, int64_t size) const {
  const auto add_way = [&](Placement p) {
    p.dim = 0;
    const int64_t sum = std::accumulate(p.segments.begin(), p.segments.end(), int64_t{0});
    const bool fits = size % p.unit == 0 && (p.segments.empty() || sum == size);
    if (fits && std::find(into.begin(), into.end(), p) == into.end()) into.push_back(std::move(p));
  };
  if (into.empty()) add_way(Placement::sharded(0));
  if (const Placement& now = args[i].now; now.is_shard() && now.dim == dim) add_way(now);
}

namespace {

using Possibility = Sharding::Possibility;

Placement at(Placement way, int dim) {
  way.dim = dim;
  return way;
}

// How argument i's dimension `d` of the whole's last ones is named in a tensor with more of them; -1 where it has none.
int aligned(const Shape& shape, const Shape& whole, int d) {
  return d - (whole.size() - shape.size());
}

// ---- elementwise -------------------------------------------------------------------------------------------------

// Every argument broadcasts to the results' shape.
void elementwise(Sharding& s, std::string_view kind) {
  if (s.results.empty()) return;
  const Shape& whole = s.results[0];
  for (const Shape& r : s.results)
    if (r != whole) return;
  for (int d = 0; d < whole.size(); ++d) {
    std::vector<Placement> ways;
    bool fits = true;
    for (size_t i = 0; i < s.args.size(); ++i) {
      if (!s.args[i].defined) continue;
      const int own = aligned(s.args[i].shape, whole, d);
      if (own < 0 || (s.args[i].shape[own] == 1 && whole[d] != 1)) continue;
      fits = fits && s.args[i].shape[own] == whole[d];
      s.ways(ways, i, own, whole[d]);
    }
    if (!fits) continue;
    for (const Placement& way : ways) {
      Possibility p = s.whole();
      p.may_be_empty = true;
      p.of_whole_size = kind == "random";
      for (size_t i = 0; i < s.args.size(); ++i) {
        if (!s.args[i].defined) continue;
        const int own = aligned(s.args[i].shape, whole, d);
        if (own >= 0 && s.args[i].shape[own] == whole[d]) p.args[i] = at(way, own);
      }
      for (Placement& r : p.results) r = at(way, d);
      s.add(std::move(p));
    }
  }
  if (kind != "linear") return;
  const bool sums = std::all_of(s.args.begin(), s.args.end(), [](const Sharding::Arg& a) {
    return !a.defined || (a.now == Placement::partial_of("sum") && is_floating(a.dtype));
  });
  if (!sums) return;
  Possibility p = s.whole();
  p.may_be_empty = true;
  for (size_t i = 0; i < s.args.size(); ++i)
    if (s.args[i].defined) p.args[i] = Placement::partial_of("sum");
  for (Placement& r : p.results) r = Placement::partial_of("sum");
  s.add(std::move(p));
}

// What moves elements and computes nothing keeps any kind of partial result.
void keep_partial(Sharding& s) {
  for (const Sharding::Arg& a : s.args)
    if (a.defined && !(a.now.is_partial() && a.now == s.args[0].now)) return;
  Possibility p = s.whole();
  p.may_be_empty = true;
  for (Placement& a : p.args) a = s.args[0].now;
  for (Placement& r : p.results) r = s.args[0].now;
  s.add(std::move(p));
}

// ---- along some dimensions ---------------------------------------------------------------------------------------

// Every dimension of the first tensor but those of argument `name` may be sharded: in all arguments of as many
// dimensions, which have the same size there, and in all results. A result that has one dimension less lacks the named
// one; one that has more has them behind.
void along(Sharding& s, std::string_view name, bool moves) {
  const int rank = s.args[0].shape.size();
  const std::optional<std::vector<int>> named = s.dims(name, rank);
  if (!named || named->empty()) return;
  for (int d = 0; d < rank; ++d) {
    if (std::find(named->begin(), named->end(), d) != named->end()) continue;
    const int64_t size = s.args[0].shape[d];
    const auto in_result = [&](const Shape& r) { return r.size() < rank && d > (*named)[0] ? d - 1 : d; };
    bool fits = true;
    std::vector<Placement> ways;
    for (size_t i = 0; i < s.args.size(); ++i) {
      if (!s.args[i].defined || s.args[i].shape.size() != rank) continue;
      fits = fits && s.args[i].shape[d] == size;
      s.ways(ways, i, d, size);
    }
    for (const Shape& r : s.results)
      fits = fits && r.size() >= rank - 1 && in_result(r) < r.size() && r[in_result(r)] == size;
    if (!fits) continue;
    for (const Placement& way : ways) {
      Possibility p = s.whole();
      for (size_t i = 0; i < s.args.size(); ++i)
        if (s.args[i].defined && s.args[i].shape.size() == rank) p.args[i] = at(way, d);
      for (size_t r = 0; r < s.results.size(); ++r) p.results[r] = at(way, in_result(s.results[r]));
      s.add(std::move(p));
    }
  }
  if (moves) keep_partial(s);
}

// Gradients of views along one dimension: of select the result has that dimension again, of unfold one less, behind.
void restores(Sharding& s, std::string_view name) {
  const int rank = s.results[0].size();
  const std::optional<std::vector<int>> named = s.dims(name, rank);
  if (!named || named->size() != 1 || s.args.size() != 1) return;
  const int more = rank - s.args[0].shape.size();  // 1 of select, -1 of unfold
  for (int d = 0; d < rank; ++d) {
    if (d == (*named)[0]) continue;
    const int own = more == 1 && d > (*named)[0] ? d - 1 : d;
    if (own >= s.args[0].shape.size() || s.args[0].shape[own] != s.results[0][d]) continue;
    std::vector<Placement> ways;
    s.ways(ways, 0, own, s.results[0][d]);
    for (const Placement& way : ways) {
      Possibility p = s.whole();
      p.args[0] = at(way, own);
      p.results[0] = at(way, d);
      s.add(std::move(p));
    }
  }
  keep_partial(s);
}

// Reductions over argument `name`'s dimensions, all where it is empty. `by` is how the ranks' results of a sharded
// reduced dimension belong together; empty where they cannot be put together.
void reduce(Sharding& s, std::string_view name, std::string_view by) {
  const Shape& shape = s.args[0].shape;
  std::vector<int> named = s.dims(name, shape.size()).value_or(std::vector<int>());
  if (named.empty()) {
    named.resize(static_cast<size_t>(shape.size()));
    std::iota(named.begin(), named.end(), 0);
  }
  for (int d = 0; d < shape.size(); ++d) {
    const bool reduced = std::find(named.begin(), named.end(), d) != named.end();
    if (reduced && by.empty()) continue;
    std::vector<Placement> ways;
    s.ways(ways, 0, d, shape[d]);
    for (const Placement& way : ways) {
      // An average of averages is one of parts of one size.
      if (reduced && by == "avg" && (!way.segments.empty() || shape[d] % (s.all_ranks * way.unit) != 0)) continue;
      Possibility p = s.whole();
      p.may_be_empty = by == "sum";
      p.args[0] = at(way, d);
      for (size_t r = 0; r < s.results.size(); ++r) {
        const bool keepdim = s.results[r].size() == shape.size();
        const auto before = std::count_if(named.begin(), named.end(), [&](int n) { return n < d; });
        p.results[r] = reduced ? Placement::partial_of(by) : at(way, keepdim ? d : d - static_cast<int>(before));
      }
      s.add(std::move(p));
    }
  }
  if (by == "sum" && s.args[0].now == Placement::partial_of("sum")) keep_partial(s);
}

// Norms over the last dimensions, as many as argument `name` has. Tensors of fewer dimensions are weights: whole as
// arguments, and as results the sum over all rows.
void rows(Sharding& s, std::string_view name) {
  const int rank = s.args[0].shape.size();
  const std::optional<std::vector<int>> normal = s.dims(name, 0);
  if (!normal || static_cast<int>(normal->size()) >= rank) return;
  for (int d = 0; d < rank - static_cast<int>(normal->size()); ++d) {
    std::vector<Placement> ways;
    for (size_t i = 0; i < s.args.size(); ++i)
      if (s.args[i].defined && s.args[i].shape.size() == rank) s.ways(ways, i, d, s.args[0].shape[d]);
    for (const Placement& way : ways) {
      Possibility p = s.whole();
      for (size_t i = 0; i < s.args.size(); ++i)
        if (s.args[i].defined && s.args[i].shape.size() == rank) p.args[i] = at(way, d);
      for (size_t r = 0; r < s.results.size(); ++r)
        p.results[r] = s.results[r].size() == rank ? at(way, d) : Placement::partial_of("sum");
      s.add(std::move(p));
    }
  }
}

// All dimensions that argument `name`, pairs of widths from the last dimension on, does not pad.
void padded(Sharding& s, std::string_view name) {
  const Shape& shape = s.args[0].shape;
  const std::optional<std::vector<int>> widths = s.dims(name, 0);
  if (!widths) return;
  for (int d = 0; d < shape.size(); ++d) {
    const size_t from_end = static_cast<size_t>(shape.size() - 1 - d);
    if (2 * from_end + 1 < widths->size()) continue;
    std::vector<Placement> ways;
    s.ways(ways, 0, d, shape[d]);
    for (const Placement& way : ways) {
      Possibility p = s.whole();
      p.args[0] = at(way, d);
      p.results[0] = at(way, d);
      s.add(std::move(p));
    }
  }
}

// ---- views -------------------------------------------------------------------------------------------------------

// Dimension `own` of the first argument may be cut, and is `d` of the result.
void carry(Sharding& s, int own, int d) {
  std::vector<Placement> ways;
  s.ways(ways, 0, own, s.args[0].shape[own]);
  for (const Placement& way : ways) {
    Possibility p = s.whole();
    p.may_be_empty = true;
    p.args[0] = at(way, own);
    p.results[0] = at(way, d);
    s.add(std::move(p));
  }
}

void permute(Sharding& s, const std::vector<int>& order) {
  for (int d = 0; d < static_cast<int>(order.size()); ++d) {
    const int own = order[static_cast<size_t>(d)];
    carry(s, own, d);
  }
  keep_partial(s);
}

void local_shape(LocalCall& c) {
  c.arg("shape") = Value(c.local_result);
}

void expand(Sharding& s) {
  const Shape &shape = s.args[0].shape, &whole = s.results[0];
  for (int d = 0; d < whole.size(); ++d) {
    const int own = aligned(shape, whole, d);
    if (own < 0 || shape[own] != whole[d]) continue;
    carry(s, own, d);
  }
  keep_partial(s);
}

// Dimensions of the old and the new shape whose products agree belong together. Of each such pair of groups the first
// ones that are not 1 may be sharded, in units that both can cut.
void view(Sharding& s) {
  const Shape &from = s.args[0].shape, &to = s.results[0];
  int i = 0, j = 0;
  while (i < from.size() && j < to.size() && from.product() > 0) {
    const int i0 = i, j0 = j;
    int64_t a = from[i++], b = to[j++];
    while (a != b) {
      if (a < b)
        a *= from[i++];
      else
        b *= to[j++];
    }
    int lead = i0, into = j0;
    while (lead + 1 < i && from[lead] == 1) ++lead;
    while (into + 1 < j && to[into] == 1) ++into;
    if (from[lead] == 1 || to[into] == 1) continue;
    const int64_t inner_from = a / from[lead], inner_to = a / to[into];
    const auto add = [&](const Placement& way, const Placement& way_to) {
      Possibility p = s.whole();
      p.may_be_empty = true;
      p.args[0] = at(way, lead);
      p.results[0] = at(way_to, into);
      s.add(std::move(p));
    };
    std::vector<Placement> ways;
    s.ways(ways, 0, lead, from[lead]);
    for (const Placement& way : ways) {
      if (inner_from == inner_to) {
        add(way, way);
      } else if (way.segments.empty()) {
        Placement cut = way;
        const int64_t wanted = inner_to / std::gcd(inner_from, inner_to);
        cut.unit = std::lcm(way.unit, wanted);
        if (from[lead] % cut.unit != 0) continue;
        Placement cut_to = way;
        cut_to.unit = cut.unit * inner_from / inner_to;
        add(cut, cut_to);
      }
    }
  }
  keep_partial(s);
}

// ---- losses ------------------------------------------------------------------------------------------------------

// Losses of pairs of elements with argument `name` none, sum or mean.
void pairs(Sharding& s, std::string_view name) {
  const std::string reduction = s.text(name);
  if (reduction == "none") return elementwise(s, "");
  if (reduction != "sum" && reduction != "mean") return;
  const Shape& shape = s.args[0].shape;
  for (const Sharding::Arg& a : s.args)
    if (a.defined && a.shape != shape) return;
  for (int d = 0; d < shape.size(); ++d) {
    if (reduction == "mean" && shape[d] % s.all_ranks != 0) continue;
    Possibility p = s.whole();
    for (size_t i = 0; i < s.args.size(); ++i)
      if (s.args[i].defined) p.args[i] = Placement::sharded(d);
    p.results[0] = Placement::partial_of(reduction == "sum" ? "sum" : "avg");
    s.add(std::move(p));
  }
}

}  // namespace

// ---- which rule --------------------------------------------------------------------------------------------------

namespace detail {
namespace {

void with_local_shape(Sharding& s, size_t from) {
  for (size_t i = from; i < s.possible.size(); ++i) {
    s.possible[i].before = local_shape;
    s.possible[i].repeats = true;
  }
}

// By the rule's first word; what follows names arguments.
using Shared = void (*)(Sharding&, std::string_view rest);
const std::map<std::string_view, Shared>& shared_rules() {
  static const std::map<std::string_view, Shared> all{
      {"whole", [](Sharding&, std::string_view) {}},
      {"unplaced",
       [](Sharding& s, std::string_view) {
         throw ValueError(s.op.name(), "takes each rank's own tensor, not a sharded one: local_part() gives it");
       }},
      {"parts", [](Sharding&, std::string_view) {}},
      {"itself", [](Sharding&, std::string_view) {}},
      {"elementwise", elementwise},
      {"along",
       [](Sharding& s, std::string_view name) {
         const size_t before = s.possible.size();
         along(s, name, s.op.is_view());
         if (s.op.name().ends_with("_backward") && s.has("shape")) with_local_shape(s, before);
       }},
      {"restores",
       [](Sharding& s, std::string_view name) {
         restores(s, name);
         with_local_shape(s, 0);
       }},
      {"reduce",
       [](Sharding& s, std::string_view rest) {
         const size_t blank = std::min(rest.find(' '), rest.size());
         reduce(s, rest.substr(0, blank), rest.substr(std::min(blank + 1, rest.size())));
       }},
      {"rows", rows},
      {"padded", padded},
      {"pairs", pairs},
      {"view",
       [](Sharding& s, std::string_view) {
         view(s);
         with_local_shape(s, 0);
       }},
      {"expand",
       [](Sharding& s, std::string_view) {
         expand(s);
         with_local_shape(s, 0);
       }},
      {"permute", [](Sharding& s, std::string_view) { permute(s, *s.dims("dims", s.args[0].shape.size())); }},
      {"transpose",
       [](Sharding& s, std::string_view) {
         const int rank = s.args[0].shape.size();
         std::vector<int> order(static_cast<size_t>(rank));
         std::iota(order.begin(), order.end(), 0);
         std::swap(order[static_cast<size_t>((*s.dims("a", rank))[0])],
                   order[static_cast<size_t>((*s.dims("b", rank))[0])]);
         permute(s, order);
       }},
  };
  return all;
}

bool is_text_of_dims(std::string_view text) {
  return text.find("->") != std::string_view::npos;
}

}  // namespace

const ShardRule& rule_of(const OpBase& op) {
  static constexpr ShardRule none, by_elements = "elementwise", of_parts = "parts", all_whole = "whole";
  if (const auto* record = dynamic_cast<const CallPath*>(&op)) {
    if (!record->shard().empty()) return record->shard();
    const auto& args = op.schema().args;
    if (std::none_of(args.begin(), args.end(), [](const SchemaArg& a) {
          return a.type.kind == SchemaType::tensor || a.type.kind == SchemaType::tensors;
        }))
      return all_whole;
    if (op.is_composed()) return of_parts;
    if (op.family() == "elementwise" || op.family() == "special") return by_elements;
    return none;
  }
  return all_whole;  // a plugin's
}

std::optional<std::pair<size_t, size_t>> patterns_of(const ShardRule& rule) {
  if (!is_text_of_dims(rule.text)) return std::nullopt;
  return count_patterns(rule.text);
}

bool is_shared_rule(std::string_view text) {
  return shared_rules().contains(text.substr(0, std::min(text.find(' '), text.size())));
}

void apply_rule(const ShardRule& rule, Sharding& s) {
  if (rule.function) return rule.function(s);
  if (is_text_of_dims(rule.text)) return apply_text(rule.text, s);
  const size_t blank = std::min(rule.text.find(' '), rule.text.size());
  const auto found = shared_rules().find(rule.text.substr(0, blank));
  check(found != shared_rules().end(), s.op.name(), "there is no shard rule '", rule.text, "'");
  if (s.args.empty()) return;
  found->second(s, rule.text.substr(std::min(blank + 1, rule.text.size())));
}

}  // namespace detail
}  // namespace strata
