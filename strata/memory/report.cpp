#include "strata/memory/report.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/budget.h"

namespace strata::memory {

namespace {

// "linear in blocks.*" for "linear in blocks.3".
std::string without_numbers(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    if (!digit || text.empty() || (text.back() != '.' && text.back() != '*')) {
      text += name[i];
    } else if (text.back() == '.') {
      text += '*';
    }
  }
  return text;
}

}  // namespace

void refuse(const Stats& s, std::span<const BlockInfo> blocks, int64_t asked, int64_t limit, Tag tag,
            std::string_view where) {
  std::string text = cat("cannot get ", bytes_text(asked), " for ", name_of(tag), " memory on ", where, ": ",
                         bytes_text(s.live_total), " are in use and the limit is ", bytes_text(limit));
  const char* before = ". Held by tag: ";
  for (int i = 0; i < kNumTags; ++i) {
    if (s.live[i] == 0) continue;
    text += cat(before, name_of(static_cast<Tag>(i)), " ", bytes_text(s.live[i]));
    before = ", ";
  }
  // Layers of one kind are one line: "linear in blocks.*".
  struct Held {
    int64_t bytes = 0, blocks = 0;
    std::string name;
    Tag tag = Tag::activation;
  };
  std::map<std::pair<std::string, Tag>, Held> holders;
  for (const BlockInfo& block : blocks) {
    if (block.holder.empty()) continue;
    const std::string pattern = without_numbers(block.holder);
    Held& h = holders[{pattern, block.tag}];
    if (h.blocks == 0) h.name = block.holder;
    if (h.name != block.holder) h.name = pattern;
    h.bytes += block.bytes, ++h.blocks, h.tag = block.tag;
  }
  std::vector<Held> top;
  for (const auto& [key, held] : holders) top.push_back(held);
  std::sort(top.begin(), top.end(), [](const Held& a, const Held& b) { return a.bytes > b.bytes; });
  if (top.size() > 8) top.resize(8);
  before = ". Most is held by ";
  for (const Held& h : top) {
    text += cat(before, h.name, " ", bytes_text(h.bytes));
    if (h.blocks > 1) text += cat(" in ", h.blocks, " tensors");
    if (h.tag != Tag::activation) text += cat(" (", name_of(h.tag), ")");
    before = ", ";
  }
  const bool activations = s.live[static_cast<int>(Tag::activation)] * 2 > s.live_total;
  text +=
      activations
          ? ". Cheapest fix: a smaller batch with gradient accumulation, or checkpoint() around the largest modules."
          : ". Cheapest fix: an optimizer with less state (SGD, Lion, Adafactor) or a smaller model.";
  throw MemoryError("allocate", text);
}

}  // namespace strata::memory
