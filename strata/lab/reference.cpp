#include "strata/lab/reference.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "strata/core/samples.h"
#include "strata/lab/compare.h"

namespace strata::lab {
namespace {

using Families = std::map<std::string_view, std::vector<const OpBase*>>;

Families by_family(const std::vector<const OpBase*>& ops) {
  Families families;
  for (const OpBase* op : ops) families[op->family()].push_back(op);
  return families;
}

// Breaks text at blanks so that lines have at most `width` characters.
std::string wrapped(std::string_view text, size_t width, std::string_view indent) {
  std::string out(indent);
  size_t column = indent.size();
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) {
      if (column + 1 + end > width && column > indent.size()) {
        out += '\n';
        out += indent;
        column = indent.size();
      } else if (column > indent.size()) {
        out += ' ';
        ++column;
      }
      out += text.substr(0, end);
      column += end;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
}

// One statement per line; a ';' within brackets, quotes or braces ends none.
std::string statements(std::string_view code, std::string_view indent) {
  std::string out, line;
  int depth = 0;
  char quote = 0;
  const auto flush = [&] {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos) out += std::string(indent) + line.substr(begin) + "\n";
    line.clear();
  };
  for (size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    line += c;
    if (quote) {
      if (c == '\\' && i + 1 < code.size()) {
        line += code[++i];
      } else if (c == quote) {
        quote = 0;
      }
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '}' || c == ']') --depth;
    if (c == ';' && depth == 0) flush();
    if (c == '\n') {
      line.pop_back();
      flush();
    }
  }
  flush();
  return out;
}

std::string gradient_text(const OpBase& op) {
  if (!op.has_backward()) return "none";
  return op.has_composed() && op.is_composed() ? "through the ops that it is composed of" : "yes";
}

std::string kind_text(const OpBase& op) {
  std::string text;
  const auto add = [&](bool has, std::string_view what) {
    if (has) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(op.is_view(), "a view of its first argument");
  add(op.is_dynamic(), "the result's size depends on values");
  add(op.is_composed(), "composed of other ops");
  add(op.internal(), "internal: only other ops and gradient rules call it");
  add(op.has_inplace(), "has an in-place form");
  add(op.schema().is_random(), "random");
  add(op.autocast() == Autocast::low, "runs in the low precision under autocast");
  add(op.autocast() == Autocast::full, "runs in f32 under autocast");
  add(op.autocast() == Autocast::promote, "runs in the widest argument's precision under autocast");
  add(op.adapt() == Adapt::broadcast, "arguments broadcast");
  add(op.adapt() == Adapt::promote || op.adapt() == Adapt::promote_but_first, "arguments broadcast and promote");
  add(op.adapt() == Adapt::promote_float, "arguments broadcast and promote to floating");
  return text;
}

std::string aliases_text(const OpBase& op) {
  std::string text;
  for (const std::string_view alias : op.aliases()) text += (text.empty() ? "" : ", ") + std::string(alias);
  return text;
}

// Where callers get fewer results than the record has.
std::string callers_text(const OpBase& op) {
  const std::vector<SchemaArg>& results = op.schema().results;
  std::string text;
  if (op.shown() < results.size())
    for (size_t i = 0; i < op.shown(); ++i) text += (i ? ", " : "") + results[i].name;
  return text;
}

struct CostAt {
  std::string arguments;
  Cost cost;
};
// The cost at the first sample that has one.
CostAt cost_at(const OpBase& op) {
  for (const DType dtype : {DType::f32, DType::i64, DType::boolean}) {
    if (!(op.dtypes() & dtype_bit(dtype))) continue;
    Samples samples(dtype);
    op.samples(samples);
    for (const Sample& s : samples.valid) {
      try {
        const Cost c = op.cost_boxed(s.args);
        if (c.flops > 0 || c.bytes > 0) return {text_of(s.args), c};
      } catch (const Error&) {
        // A sample that leaves out what the formula needs tells no cost.
      }
    }
    break;
  }
  return {};
}

std::string cost_text(const OpBase& op) {
  const CostAt at = cost_at(op);
  if (at.arguments.empty()) return "";
  return fmt::format("{:.0f} operations and at least {:.0f} bytes for {}", at.cost.flops, at.cost.bytes, at.arguments);
}

std::string markdown_escaped(std::string_view text) {
  std::string r;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_') r += '\\';
    r += c;
  }
  return r;
}

}  // namespace

std::string dtypes_text(DTypeSet set) {
  if (set == kAllTypes) return "all";
  if (set == kFloats) return "floating";
  if (set == kInts) return "integer";
  if (set == (kFloats | kInts)) return "floating, integer";
  if (set == (kInts | kBool)) return "integer, bool";
  std::string text;
  for (const DType t : kAllDTypes)
    if (set & dtype_bit(t)) text += (text.empty() ? "" : " ") + std::string(name_of(t));
  return text;
}

std::string list(const std::vector<const OpBase*>& ops) {
  size_t name = 0, dtypes = 0;
  for (const OpBase* op : ops) {
    name = std::max(name, op->name().size());
    dtypes = std::max(dtypes, dtypes_text(op->dtypes()).size());
  }
  std::string text;
  const Families families = by_family(ops);
  for (const auto& [family, members] : families) {
    text += fmt::format("{}{} ({})\n", text.empty() ? "" : "\n", family, members.size());
    for (const OpBase* op : members)
      text += fmt::format("  {:<{}}  {:<{}}  {:<8}  {}\n", op->name(), name, dtypes_text(op->dtypes()), dtypes,
                          op->has_backward() ? "gradient" : "-", op->schema_text().substr(op->name().size()));
  }
  text += fmt::format("\n{} ops in {} families. strata ops NAME tells all about one.\n", ops.size(), families.size());
  return text;
}

std::string page(const OpBase& op) {
  std::string text = fmt::format("{}\n\n{}", op.schema_text(), wrapped(op.doc(), 100, "  "));
  const Schema& schema = op.schema();
  if (!schema.args.empty()) text += "\nArguments\n";
  for (const SchemaArg& a : schema.args)
    text += fmt::format("  {:<16} {:<9}{}\n", a.name, a.type.text(),
                        a.default_value ? "  default " + text_of(*a.default_value) : "");
  text += "\nResults\n";
  for (const SchemaArg& r : schema.results)
    text += fmt::format("  {:<16} {}\n", r.name.empty() ? "-" : r.name, r.type.text());
  const auto row = [&](std::string_view label, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<11} {}\n", label, value);
  };
  text += "\n";
  row("Also", aliases_text(op));
  row("Callers get", callers_text(op));
  row("Dtypes", dtypes_text(op.dtypes()));
  row("Gradient", gradient_text(op));
  row("Kind", kind_text(op));
  row("Cost", cost_text(op));
  if (op.tolerance() > 1)
    row("Tolerance", fmt::format("{} times the usual: {}", op.tolerance(), op.tolerance_reason()));
  const bool plugin = op.file().starts_with("plugin/");
  row("Family", plugin ? fmt::format("{} (a plugin)", op.family()) : fmt::format("{0} (strata/ops/{0}/)", op.family()));
  if (!op.example().empty()) text += "\nExample\n" + statements(op.example(), "  ");
  return text;
}

std::vector<std::pair<std::string, std::string>> reference(const std::vector<const OpBase*>& ops) {
  std::vector<std::pair<std::string, std::string>> files;
  const Families families = by_family(ops);
  std::string index = fmt::format(
      "# Reference of the operations\n\n"
      "Generated from the op records by `strata ops --markdown docs/reference`; do not edit. {} ops in {} families.\n"
      "`strata ops NAME` prints the same in a terminal, `strata lab verify NAME` checks it, `strata lab bench NAME` "
      "times it.\n"
      "Modules, optimizers, data sets and runs have [pages of their own](classes/README.md).\n",
      ops.size(), families.size());
  for (const auto& [family, members] : families) {
    index += fmt::format("\n## [{0}]({0}.md)\n", family);
    std::string names;
    for (const OpBase* op : members)
      names += fmt::format("{}[{}]({}.md#{})", names.empty() ? "" : ", ", op->name(), family, op->name());
    index += wrapped(names, 118, "");
    std::string page =
        fmt::format("# {}\n\nGenerated from the op records; do not edit. Header of the family: `strata/ops/{}/`.\n",
                    family, family);
    for (const OpBase* op : members) {
      page += fmt::format("\n## {}\n\n```\n{}```\n\n{}\n", op->name(), wrapped(op->schema_text(), 118, ""),
                          wrapped(markdown_escaped(op->doc()), 118, ""));
      page += "| | |\n|---|---|\n";
      const auto row = [&](std::string_view label, const std::string& value) {
        if (!value.empty()) page += fmt::format("| {} | {} |\n", label, markdown_escaped(value));
      };
      row("Also", aliases_text(*op));
      row("Callers get", callers_text(*op));
      row("Dtypes", dtypes_text(op->dtypes()));
      row("Gradient", gradient_text(*op));
      row("Kind", kind_text(*op));
      row("Cost", cost_text(*op));
      if (op->tolerance() > 1)
        row("Tolerance", fmt::format("{} times the usual: {}", op->tolerance(), op->tolerance_reason()));
      if (!op->example().empty()) page += "\n```cpp\n" + statements(op->example(), "") + "```\n";
    }
    files.emplace_back(fmt::format("{}.md", family), std::move(page));
  }
  files.emplace_back("README.md", std::move(index));
  return files;
}

}  // namespace strata::lab
