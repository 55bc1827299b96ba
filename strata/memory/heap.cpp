#include "strata/memory/heap.h"

namespace strata::memory {

int64_t Heap::top_after(int64_t bytes) const {
  if (fit_.lower_bound({bytes, 0}) != fit_.end()) return top_;
  if (!holes_.empty()) {
    const auto last = std::prev(holes_.end());
    if (last->first + last->second == top_) return last->first + bytes;
  }
  return top_ + bytes;
}

int64_t Heap::place(int64_t bytes, Tag tag, const std::string* module) {
  int64_t offset;
  if (const auto it = fit_.lower_bound({bytes, 0}); it != fit_.end()) {
    const auto [hole, at] = *it;
    drop_hole(holes_.find(at));
    if (hole > bytes) add_hole(at + bytes, hole - bytes);
    offset = at;
  } else {
    // A hole at the end is extended rather than left behind.
    offset = top_;
    if (!holes_.empty()) {
      const auto last = std::prev(holes_.end());
      if (last->first + last->second == top_) {
        offset = last->first;
        drop_hole(last);
      }
    }
    top_ = offset + bytes;
  }
  used_.emplace(offset, Block{bytes, tag, module});
  return offset;
}

int64_t Heap::place_within(int64_t bytes, Tag tag, const std::string* module,
                           const std::function<int64_t(int64_t, int64_t)>& where) {
  for (auto it = fit_.lower_bound({bytes, 0}); it != fit_.end(); ++it) {
    const auto [hole, begin] = *it;
    const int64_t end = begin + hole, at = where(begin, end);
    if (at < 0) continue;
    drop_hole(holes_.find(begin));
    if (at > begin) add_hole(begin, at - begin);
    if (at + bytes < end) add_hole(at + bytes, end - at - bytes);
    used_.emplace(at, Block{bytes, tag, module});
    return at;
  }
  return -1;
}

int64_t Heap::remove(int64_t offset) {
  const auto it = used_.find(offset);
  const int64_t bytes = it->second.bytes;
  used_.erase(it);
  int64_t begin = offset, end = offset + bytes;
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == end) {
    end += next->second;
    next = holes_.erase((fit_.erase({next->second, next->first}), next));
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      drop_hole(before);
    }
  }
  add_hole(begin, end - begin);
  return bytes;
}

void Heap::list(uintptr_t base, std::vector<BlockInfo>& into) const {
  for (const auto& [offset, b] : used_)
    into.push_back({base + static_cast<uintptr_t>(offset), b.bytes, b.tag, b.module ? *b.module : std::string()});
}

void Heap::trim() {
  if (holes_.empty()) return;
  const auto last = std::prev(holes_.end());
  if (last->first + last->second != top_) return;
  top_ = last->first;
  drop_hole(last);
}

void Heap::add_hole(int64_t offset, int64_t bytes) {
  holes_.emplace(offset, bytes);
  fit_.emplace(bytes, offset);
}

void Heap::drop_hole(std::map<int64_t, int64_t>::iterator it) {
  fit_.erase({it->second, it->first});
  holes_.erase(it);
}

}  // namespace strata::memory
