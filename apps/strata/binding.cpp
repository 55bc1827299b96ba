#include "apps/strata/binding.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>

#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/dist/device_group_inl.h"
#include "strata/dist/module_file_inl.h"
#include "strata/io/files.h"

namespace strata::cli {
namespace {

// What is shared out: hardware threads that no two ranks get parts of.
using Unit = std::vector<int>;

// Processors that have the same `kind`, in the order in which they come.
std::vector<Unit> units_of(const std::vector<Processor>& processors, int Processor::*kind) {
  std::vector<Unit> units;
  std::map<int, size_t> place;
  for (const Processor& p : processors) {
    const auto [at, fresh] = place.emplace(p.*kind, units.size());
    if (fresh) units.emplace_back();
    units[at->second].push_back(p.number);
  }
  return units;
}

bool is_near(const Unit& unit, const std::vector<int>& near) {
  return near.empty() || std::ranges::any_of(unit, [&](int p) { return std::ranges::find(near, p) != near.end(); });
}

// Every rank as many units as the others, or one more. First how many of those beside its card each gets, then which:
// neighbours. Cards of one place on the machine are beside the same units, and of two places either has all units of
// the other or none, so that what was counted can be given, fewest first.
std::vector<ProcessorShare> share_evenly(const std::vector<Unit>& units, int ranks,
                                         const std::vector<std::vector<int>>& near) {
  const auto count = static_cast<size_t>(ranks);
  std::vector<std::vector<size_t>> beside(count);
  for (size_t r = 0; r < count; ++r)
    for (size_t u = 0; u < units.size(); ++u)
      if (is_near(units[u], near[r])) beside[r].push_back(u);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t r) { return beside[r].size(); });

  std::vector<bool> taken(units.size());
  const auto take = [&](size_t r) -> std::optional<size_t> {
    const auto free = std::ranges::find_if(beside[r], [&](size_t u) { return !taken[u]; });
    if (free == beside[r].end()) return std::nullopt;
    taken[*free] = true;
    return *free;
  };
  std::vector<size_t> wanted(count);
  const size_t even = units.size() / count;
  for (size_t round = 0; round < even; ++round)
    for (const size_t r : order) wanted[r] += take(r).has_value();
  for (size_t i = 0, more = units.size() % count; i < count && more > 0; ++i)
    if (wanted[order[i]] == even && take(order[i])) ++wanted[order[i]], --more;

  taken.assign(units.size(), false);
  std::vector<std::vector<size_t>> given(count);
  for (const size_t r : order)
    for (size_t i = 0; i < wanted[r]; ++i)
      if (const auto u = take(r)) given[r].push_back(*u);
  // The rest, beside nobody's card or too many's: first to who has less than the even share.
  for (size_t r = 0, u = 0; r < count; ++r)
    for (; given[r].size() < even; taken[u] = true, given[r].push_back(u))
      while (taken[u]) ++u;
  for (size_t u = 0, r = 0; u < units.size(); ++u) {
    if (taken[u]) continue;
    while (given[r].size() > even) ++r;
    given[r].push_back(u);
  }

  std::vector<ProcessorShare> shares(count);
  for (size_t r = 0; r < count; ++r) {
    for (const size_t u : given[r])
      shares[r].processors.insert(shares[r].processors.end(), units[u].begin(), units[u].end());
    std::ranges::sort(shares[r].processors);
    shares[r].threads = static_cast<int>(shares[r].processors.size());
  }
  return shares;
}

// Rank r of n: units [r m / n, (r + 1) m / n) of m, or the one that it shares.
std::vector<ProcessorShare> share_in_order(const std::vector<Unit>& units, int ranks,
                                           const std::vector<std::vector<int>>& near) {
  const auto count = static_cast<size_t>(ranks);
  std::vector<ProcessorShare> shares(count);
  std::vector<int> users(units.size());
  std::vector<std::vector<size_t>> given(count);
  for (size_t r = 0; r < count; ++r) {
    if (near[r].empty()) {
      const size_t begin = r * units.size() / count;
      for (size_t u = begin; u < std::max(begin + 1, (r + 1) * units.size() / count); ++u) given[r].push_back(u);
    } else {
      for (size_t u = 0; u < units.size(); ++u)
        if (is_near(units[u], near[r])) given[r].push_back(u);
    }
    for (const size_t u : given[r]) ++users[u];
  }
  for (size_t r = 0; r < count; ++r) {
    int threads = 0;
    for (const size_t u : given[r]) {
      shares[r].processors.insert(shares[r].processors.end(), units[u].begin(), units[u].end());
      threads += std::max(1, static_cast<int>(units[u].size()) / users[u]);
    }
    std::ranges::sort(shares[r].processors);
    shares[r].threads = std::max(1, threads);
  }
  return shares;
}

const char* value_in(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& v : environment)
    if (v.starts_with(name) && v.size() > name.size() && v[name.size()] == '=') return v.c_str() + name.size() + 1;
  return nullptr;
}

// Why there is no topology, or nothing.
std::string read_topology(std::vector<Processor>& found) {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0)
    return cat("the system does not tell its processors: ", io::errno_text(errno));
  std::vector<int> allowed;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &set)) allowed.push_back(p);
  std::string tried;
  const std::string file = distributed::detail::module_file("hwloc", tried);
  if (file.empty()) return "strata_hwloc.so is not there (it is built where hwloc is, package libhwloc-dev)";
  // Until the end of the process: it is needed once a launch.
  void* const module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return cat("strata_hwloc.so does not load: ", ::dlerror());
  const auto read = reinterpret_cast<ReadTopology>(::dlsym(module, kTopologySymbol));
  if (read == nullptr) return cat(file, " is none of this version");
  std::string error;
  read(allowed, found, error);
  return error;
}

std::string small_file(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  try {
    return io::read_file(file.string(), uint64_t{1} << 16);
  } catch (const IoError&) {
    return {};
  }
}

}  // namespace

Bind parse_bind(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames{"auto", "none", "cores", "numa"};
  const auto at = std::ranges::find(kNames, text);
  if (at == kNames.end()) throw UsageError(fmt::format("--bind: wants auto, none, cores or numa, got '{}'", text));
  return static_cast<Bind>(at - kNames.begin());
}

std::vector<ProcessorShare> share_processors(const std::vector<Processor>& processors, int ranks, Bind bind,
                                             const std::vector<std::vector<int>>& near) {
  const auto count = static_cast<size_t>(ranks);
  if (bind == Bind::numa) return share_in_order(units_of(processors, &Processor::node), ranks, near);
  const std::vector<Unit> cores = units_of(processors, &Processor::core);
  if (cores.size() >= count) return share_evenly(cores, ranks, near);
  const std::vector<Unit> threads = units_of(processors, &Processor::number);
  if (threads.size() >= count) return share_evenly(threads, ranks, near);
  return share_in_order(threads, ranks, std::vector<std::vector<int>>(count));
}

std::string text_of_processors(const std::vector<int>& processors) {
  std::string text;
  for (size_t i = 0, end = 0; i < processors.size(); i = end) {
    for (end = i + 1; end < processors.size() && processors[end] == processors[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", processors[i]);
    if (end > i + 1) text += fmt::format("-{}", processors[end - 1]);
  }
  return text;
}

std::vector<int> parse_processors(std::string_view text) {
  std::vector<int> found;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    const auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc() || first < 0) break;
    int last = first;
    at = next;
    if (at < end && *at == '-') {
      const auto [behind, wrong] = std::from_chars(at + 1, end, last);
      if (wrong != std::errc() || last < first || last >= (1 << 20)) break;
      at = behind;
    }
    for (int p = first; p <= last; ++p) found.push_back(p);
    if (at == end || *at != ',') break;
    ++at;
  }
  return found;
}

std::vector<std::vector<int>> processors_near_cards(const std::string& root, const char* visible, int ranks) {
  namespace fs = std::filesystem;
  std::vector<std::vector<int>> near(static_cast<size_t>(ranks));
  std::vector<std::string> cards;  // by their places on the bus
  std::error_code error;
  for (const auto& card : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", error))
    cards.push_back(card.path().filename().string());
  std::ranges::sort(cards);
  for (int r = 0; r < ranks && !cards.empty(); ++r) {
    std::string own;
    try {
      own = distributed::detail::own_card(visible, r, ranks);
    } catch (const Error&) {
      return std::vector<std::vector<int>>(static_cast<size_t>(ranks));  // the ranks will say what is wrong
    }
    own = own.empty() && visible == nullptr ? "0" : own.substr(0, own.find(','));
    size_t number = cards.size();
    if (std::from_chars(own.data(), own.data() + own.size(), number).ptr != own.data() + own.size() || own.empty()) {
      number = cards.size();
      for (size_t c = 0; c < cards.size() && own.size() > 4; ++c) {
        const std::string told = small_file(fs::path(root + "/proc/driver/nvidia/gpus") / cards[c] / "information");
        if (told.find(own) != std::string::npos) number = c;  // "GPU UUID: GPU-..."
      }
    }
    if (number >= cards.size()) continue;
    std::string list = small_file(fs::path(root + "/sys/bus/pci/devices") / cards[number] / "local_cpulist");
    near[static_cast<size_t>(r)] = parse_processors(list);
  }
  return near;
}

Binding bind_ranks(Bind bind, const std::vector<int>& which, const std::vector<std::string>& environment) {
  const int ranks = static_cast<int>(which.size());
  if (bind == Bind::none || (bind == Bind::automatic && ranks == 1)) return {};
  bool neighbours = true;
  for (int i = 1; i < ranks; ++i) neighbours = neighbours && which[static_cast<size_t>(i)] == which[0] + i;
  const std::string who = ranks == 1   ? fmt::format("rank {}", which[0])
                          : neighbours ? fmt::format("ranks {} to {}", which[0], which.back())
                                       : fmt::format("ranks {}", fmt::join(which, ", "));
  std::vector<Processor> processors;
  std::string why = read_topology(processors);
  if (bind == Bind::automatic) {
    const bool counted =
        value_in(environment, "STRATA_NUM_THREADS") != nullptr || value_in(environment, "OMP_NUM_THREADS") != nullptr;
    // Beside its pool a rank has threads that move data and wait for others: on a single core they are in its way.
    if (why.empty() && counted) why = "their number of threads is set";
    if (why.empty() && units_of(processors, &Processor::core).size() < 2 * static_cast<size_t>(ranks))
      why = "there are fewer than two cores for each";
    if (!why.empty()) return {{}, fmt::format("{} may use all processors: {}", who, why)};
    bind = Bind::cores;
  }
  if (!why.empty()) throw UsageError(fmt::format("--bind: {}", why));
  std::vector<std::vector<int>> near = processors_near_cards("", value_in(environment, "CUDA_VISIBLE_DEVICES"), ranks);
  for (std::vector<int>& n : near)
    std::erase_if(
        n, [&](int p) { return std::ranges::none_of(processors, [&](const Processor& q) { return q.number == p; }); });
  Binding binding{share_processors(processors, ranks, bind, near), {}};
  std::string lists;
  for (const ProcessorShare& s : binding.shares) {
    if (lists.size() > 200) {
      lists += " ...";
      break;
    }
    lists += fmt::format("{}{}", lists.empty() ? "" : " | ", text_of_processors(s.processors));
  }
  const std::string_view by = bind == Bind::cores ? "cores" : "numa";
  binding.line = fmt::format("{} may use processors {} (--bind {})", who, lists, by);
  return binding;
}

}  // namespace strata::cli
