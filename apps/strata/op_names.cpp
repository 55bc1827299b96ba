#include "apps/strata/op_names.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "strata/text/nearest.h"

namespace strata::cli {
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
      return text::edit_distance(a->name(), name) < text::edit_distance(b->name(), name);
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
      throw UsageError(plain_text(e));
    }
    begin = end + 1;
  }
  return set;
}

}  // namespace strata::cli
