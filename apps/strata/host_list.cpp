#include "apps/strata/host_list.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/strata/command.h"
#include "strata/io/files.h"

namespace strata::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr int kMostSlots = 4096;
constexpr size_t kMostHosts = 65536;

std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

// No word that a remote shell could take for an option or a command.
bool is_host_name(std::string_view name) {
  return name.size() <= 253 && name[0] != '-' && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  std::string_view("-._:@").find(c) != std::string_view::npos;
         });
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text, const std::string& file) {
  std::vector<Host> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const auto wrong = [&](std::string_view word, const char* what) {
      return UsageError(fmt::format("{}, line {}: {} {}", file, number, io::quote(word), what));
    };
    Host host;
    const std::string_view name = next_word(line);
    if (name.empty()) continue;
    if (!is_host_name(name)) throw wrong(name, "is no host's name");
    host.name = name;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      if (!word.starts_with("slots=")) throw wrong(word, "is nothing that a host has, which is slots=N");
      const std::string_view count = word.substr(6);
      const auto [stop, error] = std::from_chars(count.data(), count.data() + count.size(), host.slots);
      if (error != std::errc() || stop != count.data() + count.size() || host.slots < 1 || host.slots > kMostSlots)
        throw wrong(word, "must be a number from 1 to 4096");
    }
    const auto same = std::ranges::find(hosts, host.name, &Host::name);
    if (same != hosts.end()) {
      same->slots = std::min(same->slots + host.slots, kMostSlots);
    } else {
      if (hosts.size() == kMostHosts) throw wrong(name, "is one host too many");
      hosts.push_back(std::move(host));
    }
  }
  if (hosts.empty()) throw UsageError(fmt::format("{} names no host", file));
  return hosts;
}

std::vector<int> ranks_of_slots(std::string_view order, int slots) {
  std::vector<int> ranks(static_cast<size_t>(slots), -1);
  if (order.empty()) {
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  int rank = 0;
  for (size_t begin = 0; begin <= order.size(); ++rank) {
    const std::string_view word = order.substr(begin, order.find(',', begin) - begin);
    begin += word.size() + 1;
    int slot = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), slot);
    if (error != std::errc() || stop != word.data() + word.size() || slot < 0)
      throw UsageError(fmt::format("--order: {} is no slot's number; a list is 2,0,1", io::quote(word)));
    if (slot >= slots)
      throw UsageError(
          fmt::format("--order: there is no slot {}: ranks are started in slots 0 to {}", slot, slots - 1));
    int& here = ranks[static_cast<size_t>(slot)];
    if (here >= 0) throw UsageError(fmt::format("--order: slot {} is rank {}'s and rank {}'s", slot, here, rank));
    here = rank;
  }
  if (rank < slots)
    throw UsageError(
        fmt::format("--order: it names {} slot{}, and {} ranks are started", rank, rank == 1 ? "" : "s", slots));
  return ranks;
}

std::string own_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

bool is_here(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.") || host == own_name();
}

}  // namespace strata::cli
