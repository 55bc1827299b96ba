#include "strata/memory/bounds.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include <sys/resource.h>
#include <unistd.h>

#include "strata/core/error.h"

namespace strata::memory {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

// The number that a text begins with; version 2 writes "max" where there is none, version 1 a number past all memory.
std::optional<int64_t> number(std::string_view text) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  int64_t v = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), v).ec != std::errc() || v >= kNoLimit)
    return std::nullopt;
  return v;
}

template <class Visit>
void for_each_part(std::string_view text, char separator, Visit&& visit) {
  while (!text.empty()) {
    const size_t n = std::min(text.find(separator), text.size());
    visit(text.substr(0, n));
    text.remove_prefix(std::min(n + 1, text.size()));
  }
}

// Of a file with lines "name value" or "name: value kB"; 0 where it has none of that name.
int64_t field(std::string_view text, std::string_view name) {
  int64_t v = 0;
  for_each_part(text, '\n', [&](std::string_view line) {
    if (!line.starts_with(name)) return;
    line.remove_prefix(name.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    if (line.starts_with(' ') || line.starts_with('\t')) v = number(line).value_or(0);
  });
  return v;
}

bool has_word(std::string_view words, std::string_view word) {
  bool found = false;
  for_each_part(words, ',', [&](std::string_view w) { found = found || w == word; });
  return found;
}

// Where a version's groups are mounted, which group stands there, and this process's group.
struct Groups {
  std::string mounted, top, path;
};

void add_groups(const std::string& root, const Groups& groups, bool second, std::vector<Bound>& bounds) {
  // Seen from inside a container, its group may lie above or beside the mounted one: then the mounted one counts.
  std::string inside = groups.path;
  if (groups.top != "/" && inside.starts_with(groups.top)) inside.erase(0, groups.top.size());
  if (inside == "/" || inside.starts_with("/..")) inside.clear();
  while (true) {
    const std::string folder = root + groups.mounted + inside + "/";
    const auto read = [&](const char* name) { return text_of(folder + name); };
    const std::string stat = read("memory.stat");
    std::optional<int64_t> limit, used;
    int64_t cached = 0;
    if (second) {
      limit = number(read("memory.max"));
      if (const auto high = number(read("memory.high")); high && (!limit || *high < *limit)) limit = high;
      used = number(read("memory.current"));
      cached = field(stat, "inactive_file") + field(stat, "active_file") + field(stat, "slab_reclaimable");
    } else {
      limit = number(read("memory.limit_in_bytes"));
      used = number(read("memory.usage_in_bytes"));
      cached = field(stat, "total_inactive_file") + field(stat, "total_active_file");
    }
    if (limit)
      bounds.push_back({"the control group " + (inside.empty() ? std::string("/") : inside), *limit,
                        std::max<int64_t>(used.value_or(0) - cached, 0)});
    if (inside.empty()) return;
    inside.resize(inside.rfind('/'));
  }
}

void add_groups(const std::string& root, std::vector<Bound>& bounds) {
  std::optional<Groups> first, second;
  for_each_part(text_of(root + "/proc/self/cgroup"), '\n', [&](std::string_view line) {
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (b == std::string_view::npos) return;
    const std::string_view controllers = line.substr(a + 1, b - a - 1);
    const std::string path(line.substr(b + 1));
    if (controllers.empty()) second = {"/sys/fs/cgroup", "/", path};
    if (has_word(controllers, "memory")) first = {"/sys/fs/cgroup/memory", "/", path};
  });
  // id parent device root mountpoint options [more...] - type source options
  for_each_part(text_of(root + "/proc/self/mountinfo"), '\n', [&](std::string_view line) {
    std::vector<std::string> words;
    for_each_part(line, ' ', [&](std::string_view w) { words.emplace_back(w); });
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) return;
    if (second && dash[1] == "cgroup2") second->top = words[3], second->mounted = words[4];
    if (first && dash[1] == "cgroup" && has_word(dash[3], "memory")) first->top = words[3], first->mounted = words[4];
  });
  if (second) add_groups(root, *second, true, bounds);
  if (first) add_groups(root, *first, false, bounds);
}

}  // namespace

std::vector<Bound> host_bounds(const std::string& root) {
  std::vector<Bound> bounds;
  const std::string memory = text_of(root + "/proc/meminfo");
  Bound machine{"this machine", field(memory, "MemTotal") << 10, 0};
  if (machine.limit == 0) machine.limit = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (memory.find("MemAvailable:") != std::string::npos)
    machine.used = std::max<int64_t>(machine.limit - (field(memory, "MemAvailable") << 10), 0);
  bounds.push_back(machine);
  add_groups(root, bounds);
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bounds.push_back({std::string(kAddressSpace),
                      static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, int64_t{1} << 60)),
                      number(text_of(root + "/proc/self/statm")).value_or(0) * ::sysconf(_SC_PAGESIZE)});
  return bounds;
}

Bound tightest_bound(Device device) {
  Backend& kind = backend(device);
  Bound bound = kind.bound(device);
  const Stats s = kind.stats(device);
  bound.used = std::max<int64_t>(bound.used - (s.reserved - s.live_total), 0);
  return bound;
}

}  // namespace strata::memory
