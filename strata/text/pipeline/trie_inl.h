#pragma once
// Which of many tokens a text starts with.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::text::detail {

/// Tokens by their bytes. The children of a node lie side by side in the order of their bytes; nodes with many have a
/// table of 256, the others are searched.
class Trie {
 public:
  /// Tokens and their values (>= 0); of equal tokens the last counts, empty ones are left out.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  /// Calls f(bytes, value) for every token that `text` starts with, the shortest first.
  template <class F>
  void prefixes(std::string_view text, F&& f) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (const int32_t value = nodes_[node].value; value >= 0) f(i + 1, value);
    }
  }

 private:
  static constexpr uint32_t kMany = 12;  // children from which a node has a table
  struct Node {
    uint32_t first = 0;     // its first child
    uint16_t children = 0;  // how many
    int32_t table = -1;     // of its children, where it has one
    int32_t value = -1;     // of the token that ends here
  };

  uint32_t child(uint32_t node, unsigned char byte) const {
    const Node& n = nodes_[node];
    if (n.table >= 0) return tables_[static_cast<size_t>(n.table) * 256 + byte];
    for (uint32_t c = n.first; c < n.first + n.children; ++c)
      if (labels_[c] == byte) return c;
    return 0;
  }

  std::vector<Node> nodes_;            // the root is 0
  std::vector<unsigned char> labels_;  // the byte that leads to a node
  std::vector<uint32_t> tables_;
};

}  // namespace strata::text::detail
