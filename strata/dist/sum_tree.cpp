#include "strata/dist/sum_tree_inl.h"

#include <algorithm>

#include "strata/core/error.h"

namespace strata::distributed {
namespace {

Places left_of(Places node) {
  return {node.begin, (node.count + 1) / 2};
}
Places right_of(Places node) {
  const int64_t left = (node.count + 1) / 2;
  return {node.begin + left, node.count - left};
}

void collect(Places node, Places held, std::vector<Places>& into) {
  const int64_t end = node.begin + node.count, held_end = held.begin + held.count;
  if (end <= held.begin || node.begin >= held_end) return;
  if (node.begin >= held.begin && end <= held_end) {
    into.push_back(node);
    return;
  }
  collect(left_of(node), held, into);
  collect(right_of(node), held, into);
}

// Adds to the last entry of `into` each time a node's right half is complete.
void walk(Places node, const std::vector<Places>& nodes, std::vector<int64_t>& into) {
  if (into.size() < nodes.size() && nodes[into.size()] == node) {
    into.push_back(0);
    return;
  }
  check(node.count > 1, "SumTree", "the nodes are not all of a node's");
  walk(left_of(node), nodes, into);
  walk(right_of(node), nodes, into);
  ++into.back();
}

}  // namespace

SumTree::SumTree(int64_t count) : count_(count) {
  check(count > 0, "SumTree", "wants at least one place, got ", count);
}

std::vector<Places> SumTree::nodes_within(Places held) const {
  std::vector<Places> nodes;
  collect({0, count_}, held, nodes);
  return nodes;
}

std::vector<int64_t> SumTree::additions(Places root, const std::vector<Places>& nodes) const {
  std::vector<int64_t> all;
  walk(root, nodes, all);
  check(all.size() == nodes.size(), "SumTree", "there are ", nodes.size(), " nodes, and ", all.size(),
        " belong to the one that is wanted");
  return all;
}

std::vector<int64_t> SumTree::additions(Places root) const {
  std::vector<Places> each;
  for (int64_t i = 0; i < root.count; ++i) each.push_back({root.begin + i, 1});
  return additions(root, each);
}

int64_t SumTree::most_held(Places held) const {
  int64_t now = 0, most = 0;
  for (const Places& node : nodes_within(held))
    for (const int64_t n : additions(node)) {
      now += 1 - n;
      most = std::max(most, now);
    }
  return most;
}

}  // namespace strata::distributed
