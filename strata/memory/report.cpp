#include "strata/memory/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "strata/core/error.h"

namespace strata::memory {
namespace {
std::string megabytes(int64_t bytes) {
  char text[48];
  std::snprintf(text, sizeof text, bytes >= (int64_t{1} << 30) ? "%.2f GiB" : "%.1f MiB",
                static_cast<double>(bytes) / (bytes >= (int64_t{1} << 30) ? 1073741824.0 : 1048576.0));
  return text;
}

}  // namespace

void refuse(const Stats& s, std::span<const Heap* const> heaps, int64_t asked, int64_t limit, Tag tag,
            std::string_view where) {
  std::string text = cat("cannot get ", megabytes(asked), " for ", name_of(tag), " memory on ", where, ": ",
                         megabytes(s.live_total), " are in use and the limit is ", megabytes(limit), ". Held by tag:");
  for (int i = 0; i < kNumTags; ++i)
    if (s.live[i] > 0) text += cat(" ", name_of(static_cast<Tag>(i)), " ", megabytes(s.live[i]), ";");
  std::map<std::string, int64_t> modules;
  for (const Heap* heap : heaps) {
    for (const auto& [offset, block] : heap->used())
      if (block.module) modules[*block.module] += block.bytes;
  }
  if (!modules.empty()) {
    std::vector<std::pair<int64_t, std::string>> top;
    for (const auto& [name, bytes] : modules) top.emplace_back(bytes, name);
    std::sort(top.rbegin(), top.rend());
    text += " by module:";
    for (size_t i = 0; i < std::min<size_t>(top.size(), 5); ++i)
      text += cat(" ", top[i].second, " ", megabytes(top[i].first), ";");
  }
  const bool activations = s.live[static_cast<int>(Tag::activation)] * 2 > s.live_total;
  text += activations
              ? " Cheapest fix: a smaller batch with gradient accumulation, or checkpoint() around the largest modules."
              : " Cheapest fix: an optimizer with less state (SGD, Lion, Adafactor) or a smaller model.";
  throw MemoryError("allocate", text);
}

}  // namespace strata::memory
