#include <algorithm>

#include "strata/text/pipeline/trie_inl.h"

namespace strata::text::detail {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges = {{0, tokens.size()}};  // of the tokens below each node
  nodes_.emplace_back();
  labels_.push_back(0);
  // Breadth first: the nodes of one depth after those of the depth before.
  size_t depth = 0, last_of_depth = 0;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [at, end] = ranges[node];
    for (; at < end && tokens[at].first.size() == depth; ++at)
      if (depth > 0) nodes_[node].value = tokens[at].second;
    nodes_[node].first = static_cast<uint32_t>(nodes_.size());
    while (at < end) {
      const char byte = tokens[at].first[depth];
      size_t next = at;
      while (next < end && tokens[next].first[depth] == byte) ++next;
      nodes_.emplace_back();
      labels_.push_back(static_cast<unsigned char>(byte));
      ranges.push_back({at, next});
      ++nodes_[node].children;
      at = next;
    }
    if (nodes_[node].children >= kMany) {
      nodes_[node].table = static_cast<int32_t>(tables_.size() / 256);
      tables_.resize(tables_.size() + 256);
      for (uint32_t c = 0; c < nodes_[node].children; ++c)
        tables_[tables_.size() - 256 + labels_[nodes_[node].first + c]] = nodes_[node].first + c;
    }
    if (node == last_of_depth) {
      ++depth;
      last_of_depth = nodes_.size() - 1;
    }
  }
}

}  // namespace strata::text::detail
