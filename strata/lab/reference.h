#pragma once
// Documentation generated from the records.

#include <string>
#include <utility>
#include <vector>

#include "strata/core/op.h"

namespace strata::lab {

/// The ops grouped by family: name, schema, dtypes, gradient. For a terminal.
std::string list(const std::vector<const OpBase*>& ops);
/// One record as a page of text: all that it says, with its cost evaluated at its first sample.
std::string page(const OpBase& op);
/// The reference as Markdown: (file name, contents) of an index, README.md, and of one page for each family.
std::vector<std::pair<std::string, std::string>> reference(const std::vector<const OpBase*>& ops);
/// "f16 bf16 f32 f64", or "floating", "integer", "all" for the usual sets.
std::string dtypes_text(DTypeSet set);

}  // namespace strata::lab
