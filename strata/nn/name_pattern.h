#pragma once
// Which of many dotted names somebody means.

#include <string>
#include <string_view>
#include <vector>

namespace strata::nn {

/// Whether `pattern` stands in the dotted `name` as whole parts of it, `*` standing for any one part: "head" in
/// "head.weight", "blocks.0" in "blocks.0.mlp.up.weight" but not in "blocks.01.mlp.up.weight", "blocks.*.attn" in
/// "blocks.7.attn.qkv". An empty pattern stands in none.
///     nn::is_named("blocks.3.attn.qkv.weight", "attn.qkv");  // true
bool is_named(std::string_view name, std::string_view pattern);
/// The same of any of `patterns`.
bool is_named(std::string_view name, const std::vector<std::string>& patterns);

/// The words of a text, between spaces, commas and line ends.
std::vector<std::string> words_of(std::string_view text);

}  // namespace strata::nn
