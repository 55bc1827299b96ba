#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "strata/core/shard_text_inl.h"

namespace strata::detail {
namespace {

struct Pattern {
  std::vector<std::string> before, after;  // letters before and behind "..."; all before where there is none
  bool run = false, run_whole = false;     // "..."
  bool whole = false;                      // "_"
  bool added = false, may_lack = false;    // "+", "~"
};
struct Form {
  std::vector<Pattern> args, results;
};

std::vector<std::string_view> split(std::string_view text, std::string_view by) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + by.size());
  }
}

Pattern parse_pattern(std::string_view text, std::string_view all) {
  Pattern p;
  for (const std::string_view word : split(text, " ")) {
    if (word.empty()) continue;
    if (word == "_") {
      p.whole = true;
    } else if (word == "+") {
      p.added = true;
    } else if (word == "~") {
      p.may_lack = true;
    } else if (word == "..." || word == "...!") {
      check(!p.run, "shard rule", "'", all, "' has '...' twice in '", text, "'");
      p.run = true;
      p.run_whole = word.size() == 4;
    } else {
      const bool letter = word[0] >= 'a' && word[0] <= 'z';
      check(letter && (word.size() == 1 || (word.size() == 2 && word[1] == '!')), "shard rule", "'", all, "': '", word,
            "' is no letter, letter!, ..., ...!, _, + or ~");
      (p.run ? p.after : p.before).emplace_back(word);
    }
  }
  return p;
}

std::vector<Form> parse_forms(std::string_view text) {
  std::vector<Form> forms;
  for (const std::string_view one : split(text, " | ")) {
    const auto sides = split(one, "->");
    check(sides.size() == 2, "shard rule", "'", text, "' needs one '->' in each form");
    Form form;
    for (const std::string_view a : split(sides[0], ",")) form.args.push_back(parse_pattern(a, text));
    for (const std::string_view r : split(sides[1], ",")) form.results.push_back(parse_pattern(r, text));
    check(forms.empty() || (forms[0].args.size() == form.args.size() && forms[0].results.size() == form.results.size()),
          "shard rule", "the forms of '", text, "' have different numbers of patterns");
    forms.push_back(std::move(form));
  }
  return forms;
}

const std::vector<Form>& forms_of(std::string_view text) {
  static std::mutex lock;
  static std::unordered_map<std::string, std::vector<Form>> known;
  const std::lock_guard guard(lock);
  const auto found = known.find(std::string(text));
  if (found != known.end()) return found->second;
  return known.emplace(std::string(text), parse_forms(text)).first->second;
}

// The name of each dimension: a letter, or ".0" for the last that "..." stands for; with '!' where it is never sharded.
// False where the pattern does not fit so many dimensions.
bool name_dims(const Pattern& p, int rank, std::vector<std::string>& names) {
  const int fixed = static_cast<int>(p.before.size() + p.after.size());
  if (p.whole) {
    names.assign(static_cast<size_t>(rank), "_!");
    return true;
  }
  if (!p.run && !(rank == fixed || (p.may_lack && rank < fixed))) return false;
  if (p.run && rank < fixed) return false;
  if (!p.run) {
    names.assign(p.before.end() - rank, p.before.end());
    return true;
  }
  names = p.before;
  for (int i = rank - fixed; i-- > 0;) names.push_back(cat(".", i, p.run_whole ? "!" : ""));
  names.insert(names.end(), p.after.begin(), p.after.end());
  return true;
}

struct Place {
  size_t tensor;
  int dim;
  int64_t size;
};
struct Letter {
  std::vector<Place> args, results;
  bool whole = false;
};

void note(std::map<std::string, Letter>& letters, std::vector<Place> Letter::*where, const Pattern& p, size_t tensor,
          const Shape& shape, bool& fits) {
  std::vector<std::string> names;
  fits = fits && name_dims(p, shape.size(), names);
  if (!fits) return;
  for (int d = 0; d < shape.size(); ++d) {
    std::string name = names[static_cast<size_t>(d)];
    const bool whole = name.back() == '!';
    if (whole) name.pop_back();
    Letter& l = letters[name];
    l.whole = l.whole || whole;
    (l.*where).push_back({tensor, d, shape[d]});
  }
}

void add_letter(Sharding& s, const Letter& letter, const std::vector<const Pattern*>& of_arg) {
  if (letter.whole || letter.args.empty()) return;
  // Its size; what has 1 beside that is broadcast.
  int64_t size = 1;
  bool alike = true;
  for (const auto* places : {&letter.args, &letter.results}) {
    for (const Place& p : *places) {
      if (p.size == 1) continue;
      alike = alike && (size == 1 || size == p.size);
      size = p.size;
    }
  }
  for (const Place& r : letter.results)
    if (r.size == 1 && size != 1) return;
  std::vector<Placement> ways;
  if (alike) {
    for (const Place& p : letter.args)
      if (p.size == size) s.ways(ways, p.tensor, p.dim, size);
  } else {
    // Heads of queries beside fewer heads of keys: parts of each belong together where all divide evenly.
    ways.push_back(Placement::sharded(0));
  }
  for (const Placement& way : ways) {
    Sharding::Possibility p = s.whole();
    p.evenly = !alike;
    const auto cut = [&](int dim) {
      Placement c = way;
      c.dim = dim;
      return c;
    };
    for (const Place& a : letter.args)
      if (a.size != 1 || size == 1) p.args[a.tensor] = cut(a.dim);
    bool vanished = false;
    for (size_t r = 0; r < s.results.size(); ++r) {
      const auto at =
          std::find_if(letter.results.begin(), letter.results.end(), [&](const Place& x) { return x.tensor == r; });
      vanished = vanished || at == letter.results.end();
      p.results[r] = at == letter.results.end() ? Placement::partial_of("sum") : cut(at->dim);
    }
    if (vanished)
      for (size_t i = 0; i < s.args.size(); ++i)
        if (of_arg[i]->added && s.args[i].defined && p.args[i].is_replicate()) p.args[i] = Placement::partial_of("sum");
    s.add(std::move(p));
  }
}

}  // namespace

std::pair<size_t, size_t> count_patterns(std::string_view text) {
  const std::vector<Form>& forms = forms_of(text);
  return {forms[0].args.size(), forms[0].results.size()};
}

void apply_text(std::string_view text, Sharding& s) {
  // Patterns are counted over the schema's tensor arguments.
  std::vector<size_t> pattern_of(s.op.schema().args.size(), 0);
  size_t count = 0;
  for (size_t a = 0; a < pattern_of.size(); ++a) {
    const SchemaType::Kind kind = s.op.schema().args[a].type.kind;
    if (kind == SchemaType::tensor || kind == SchemaType::tensors) pattern_of[a] = count++;
  }
  for (const Form& form : forms_of(text)) {
    check(form.args.size() == count && form.results.size() == s.op.schema().results.size(), s.op.name(),
          "its shard rule '", text, "' is one for ", form.args.size(), " arguments and ", form.results.size(),
          " results, not for ", s.op.schema_text());
    std::map<std::string, Letter> letters;
    std::vector<const Pattern*> of_arg(s.args.size());
    bool fits = true;
    for (size_t i = 0; i < s.args.size(); ++i) {
      of_arg[i] = &form.args[pattern_of[static_cast<size_t>(s.args[i].arg)]];
      if (s.args[i].defined) note(letters, &Letter::args, *of_arg[i], i, s.args[i].shape, fits);
    }
    for (size_t r = 0; r < s.results.size() && fits; ++r)
      note(letters, &Letter::results, form.results[std::min(r, form.results.size() - 1)], r, s.results[r], fits);
    if (!fits) continue;
    for (const auto& [name, letter] : letters) add_letter(s, letter, of_arg);
    return;
  }
}

}  // namespace strata::detail
