#pragma once
// What new folders of models have in common with those that they are made of.

#include <string>

namespace strata::detail {

/// Copies the files of a model's folder that are no weights and no adapter: configuration, tokenizer, templates,
/// licence. Throws IoError.
void copy_companions(const std::string& from, const std::string& to);

}  // namespace strata::detail
