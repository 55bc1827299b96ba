#include "apps/strata/op_names.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "apps/strata/command.h"

namespace strata::cli {
namespace {

// Insertions, deletions and replacements that turn one word into the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::vector<const OpBase*> find_ops(const std::vector<std::string>& names) {
  const std::vector<const OpBase*> all = OpBase::all();
  if (names.empty()) return all;
  std::set<std::string_view> found;
  for (const std::string& name : names) {
    if (const OpBase* op = OpBase::find(name)) {
      found.insert(op->name());
      continue;
    }
    bool family = false;
    for (const OpBase* op : all) {
      if (op->family() != name) continue;
      found.insert(op->name());
      family = true;
    }
    if (family) continue;
    const auto* nearest = *std::min_element(all.begin(), all.end(), [&](auto* a, auto* b) {
      return distance(a->name(), name) < distance(b->name(), name);
    });
    throw UsageError(
        fmt::format("there is no op or family '{}' (did you mean '{}'? strata ops lists all)", name, nearest->name()));
  }
  std::vector<const OpBase*> ops;
  for (const OpBase* op : all)
    if (found.contains(op->name())) ops.push_back(op);
  return ops;
}

DTypeSet parse_dtypes(const std::string& text) {
  if (text == "all") return static_cast<DTypeSet>(~0u);
  DTypeSet set = 0;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    try {
      set |= dtype_bit(parse_dtype(text.substr(begin, end - begin)));
    } catch (const ValueError& e) {
      throw UsageError(e.what());
    }
    begin = end + 1;
  }
  return set;
}

}  // namespace strata::cli
