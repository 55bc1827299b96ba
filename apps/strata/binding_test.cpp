#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "apps/strata/binding.h"
#include "apps/strata/child.h"
#include "apps/strata/command.h"
#include "strata/core/error.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
const fs::path kModule = fs::path(STRATA_TEST_RANK).parent_path().parent_path() / "lib/strata/strata_hwloc.so";

// Nodes of so many cores of so many hardware threads, numbered as Linux does: second threads behind all first ones.
std::vector<Processor> machine(int nodes, int cores, int threads) {
  std::vector<Processor> all;
  for (int c = 0; c < nodes * cores; ++c)
    for (int t = 0; t < threads; ++t) all.push_back({t * nodes * cores + c, c, c / cores});
  return all;
}
std::vector<std::vector<int>> no_cards(int ranks) {
  return std::vector<std::vector<int>>(static_cast<size_t>(ranks));
}
std::vector<std::string> texts(const std::vector<ProcessorShare>& shares) {
  std::vector<std::string> all;
  for (const ProcessorShare& s : shares) all.push_back(text_of_processors(s.processors));
  return all;
}
using Texts = std::vector<std::string>;

// No processor is two ranks', none is left over, and ranks have as many units as each other, or one more.
void expect_partition(const std::vector<Processor>& processors, const std::vector<ProcessorShare>& shares, int unit) {
  std::multiset<int> seen, all;
  size_t least = SIZE_MAX, most = 0;
  for (const Processor& p : processors) all.insert(p.number);
  for (const ProcessorShare& s : shares) {
    seen.insert(s.processors.begin(), s.processors.end());
    least = std::min(least, s.processors.size());
    most = std::max(most, s.processors.size());
    EXPECT_EQ(s.threads, static_cast<int>(s.processors.size()));
    EXPECT_TRUE(std::ranges::is_sorted(s.processors));
  }
  EXPECT_EQ(seen, all);
  EXPECT_GT(least, 0u);
  EXPECT_LE(most - least, static_cast<size_t>(unit));
}

TEST(Binding, CoresAreSharedOutWhole) {
  EXPECT_EQ(texts(share_processors(machine(2, 4, 2), 4, Bind::cores, no_cards(4))),
            Texts({"0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"}));
  EXPECT_EQ(texts(share_processors(machine(1, 5, 1), 2, Bind::cores, no_cards(2))), Texts({"0-2", "3-4"}));
  for (const int threads : {1, 2})
    for (int ranks = 1; ranks <= 14; ++ranks) {
      const std::vector<Processor> all = machine(2, 7, threads);
      const auto shares = share_processors(all, ranks, Bind::cores, no_cards(ranks));
      ASSERT_EQ(shares.size(), static_cast<size_t>(ranks));
      expect_partition(all, shares, threads);
      for (const ProcessorShare& s : shares)  // both threads of a core go together
        for (const int p : s.processors)
          EXPECT_TRUE(threads == 1 || std::ranges::find(s.processors, (p + 14) % 28) != s.processors.end()) << p;
    }
}

TEST(Binding, MoreRanksThanCores) {
  const std::vector<Processor> all = machine(1, 3, 2);
  for (const int ranks : {4, 5, 6})
    expect_partition(all, share_processors(all, ranks, Bind::cores, no_cards(ranks)), 1);
  const auto shares = share_processors(all, 13, Bind::cores, no_cards(13));
  std::vector<int> users(6);
  for (const ProcessorShare& s : shares) {
    ASSERT_EQ(s.processors.size(), 1u);
    EXPECT_EQ(s.threads, 1);
    ++users[static_cast<size_t>(s.processors[0])];
  }
  EXPECT_EQ(*std::ranges::min_element(users), 2);
  EXPECT_EQ(*std::ranges::max_element(users), 3);
}

TEST(Binding, NodesOfMemory) {
  const std::vector<Processor> all = machine(2, 4, 1);
  const auto four = share_processors(all, 4, Bind::numa, no_cards(4));
  EXPECT_EQ(texts(four), Texts({"0-3", "0-3", "4-7", "4-7"}));
  for (const ProcessorShare& s : four) EXPECT_EQ(s.threads, 2);
  const auto one = share_processors(all, 1, Bind::numa, no_cards(1));
  EXPECT_EQ(texts(one), Texts({"0-7"}));
  EXPECT_EQ(one[0].threads, 8);
  // The card's own, whichever rank it is.
  EXPECT_EQ(texts(share_processors(all, 2, Bind::numa, {{4, 5, 6, 7}, {0, 1, 2, 3}})), Texts({"4-7", "0-3"}));
  EXPECT_EQ(share_processors(all, 9, Bind::numa, no_cards(9))[8].threads, 1);
}

TEST(Binding, CoresBesideTheCardComeFirst) {
  const std::vector<Processor> all = machine(2, 4, 1);
  const std::vector<int> first{0, 1, 2, 3}, second{4, 5, 6, 7};
  EXPECT_EQ(texts(share_processors(all, 4, Bind::cores, {second, first, second, first})),
            Texts({"4-5", "0-1", "6-7", "2-3"}));
  // More cards than cores beside them: the shares stay even.
  const auto shares = share_processors(all, 4, Bind::cores, {first, first, first, second});
  EXPECT_EQ(texts(shares), Texts({"0-1", "2,6", "3,7", "4-5"}));
  std::minstd_rand random(7);
  for (int i = 0; i < 300; ++i) {
    const int ranks = 1 + static_cast<int>(random() % 9);
    std::vector<std::vector<int>> near;
    near.reserve(static_cast<size_t>(ranks));
    const std::vector<int> some[] = {{}, first, second, {5}, {4, 5}, {0, 1, 2, 3, 4, 5, 6, 7}};
    for (int r = 0; r < ranks; ++r) near.push_back(some[random() % 6]);
    if (ranks <= 8) expect_partition(all, share_processors(all, ranks, Bind::cores, near), 1);
  }
}

TEST(Binding, ListsOfProcessors) {
  EXPECT_EQ(text_of_processors({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(text_of_processors({}), "");
  EXPECT_EQ(parse_processors("0-2,5,7-8\n"), std::vector<int>({0, 1, 2, 5, 7, 8}));
  EXPECT_EQ(parse_processors(""), std::vector<int>());
  EXPECT_EQ(parse_processors("3,x"), std::vector<int>({3}));
  EXPECT_EQ(parse_processors("3,9-2"), std::vector<int>({3}));
  EXPECT_EQ(parse_processors("0-99999999999"), std::vector<int>());
}

TEST(Binding, CardsAreFoundByTheirPlaces) {
  const fs::path root = fs::path(::testing::TempDir()) / ("strata_binding_" + std::to_string(::getpid()));
  const auto write = [&](const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  EXPECT_EQ(processors_near_cards(root.string(), nullptr, 2), no_cards(2));
  const char* const places[] = {"0000:18:00.0", "0000:3b:00.0", "0000:9a:00.0"};
  const char* const lists[] = {"0-3\n", "0-3\n", "4-7\n"};
  for (int c = 0; c < 3; ++c) {
    write(std::string("proc/driver/nvidia/gpus/") + places[c] + "/information",
          std::string("Model: \t\t NVIDIA\nGPU UUID: \t GPU-0000000") + std::to_string(c) + "\n");
    write(std::string("sys/bus/pci/devices/") + places[c] + "/local_cpulist", lists[c]);
  }
  const std::vector<int> first{0, 1, 2, 3}, second{4, 5, 6, 7};
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(processors_near_cards(root.string(), nullptr, 3), Lists({first, first, second}));
  EXPECT_EQ(processors_near_cards(root.string(), nullptr, 4), Lists({first, first, second, {}}));
  EXPECT_EQ(processors_near_cards(root.string(), "2,0", 2), Lists({second, first}));
  EXPECT_EQ(processors_near_cards(root.string(), "GPU-00000002,GPU-00000001", 2), Lists({second, first}));
  EXPECT_EQ(processors_near_cards(root.string(), "2,0", 1), Lists({second}));
  EXPECT_EQ(processors_near_cards(root.string(), "", 2), no_cards(2));
  EXPECT_EQ(processors_near_cards(root.string(), "0,1", 3), no_cards(3));
  fs::remove_all(root);
}

TEST(Binding, TheModuleTellsCoresAndNodes) {
  if (!fs::exists(kModule)) GTEST_SKIP() << "hwloc was not there when this was built";
  void* const module = ::dlopen(kModule.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << ::dlerror();
  const auto read = reinterpret_cast<ReadTopology>(::dlsym(module, kTopologySymbol));
  ASSERT_NE(read, nullptr);
  ::setenv("HWLOC_SYNTHETIC", "numa:2 core:3 pu:2", 1);
  std::vector<Processor> found;
  std::string error;
  read({0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 99}, found, error);
  EXPECT_EQ(error, "");
  ASSERT_EQ(found.size(), 10u);
  for (const Processor& p : found) {
    EXPECT_EQ(p.core, p.number / 2);
    EXPECT_EQ(p.node, p.number / 6);
  }
  found.clear();
  read({77}, found, error);
  EXPECT_EQ(error, "hwloc knows none of the processors that this process may use");
  ::unsetenv("HWLOC_SYNTHETIC");
}

// What the system says of each rank, by rank.
std::vector<std::vector<int>> masks(const std::string& options, int ranks, const std::string& before = {}) {
  const Result r =
      strata(cat("launch -n ", ranks, " ", options,
                 " -- sh -c 'echo $(sed -n s/^Cpus_allowed_list:.//p /proc/self/status) $STRATA_NUM_THREADS'"),
             before);
  EXPECT_EQ(r.status, 0) << r.output;
  std::vector<std::vector<int>> all(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string begin = cat("[", rank, "] ");
    const size_t at = r.output.find(begin);
    if (at == std::string::npos) continue;
    const std::string line = r.output.substr(at + begin.size(), r.output.find('\n', at) - at - begin.size());
    all[static_cast<size_t>(rank)] = parse_processors(line.substr(0, line.find(' ')));
    EXPECT_EQ(std::atoi(line.substr(line.find(' ') + 1).c_str()) >= 1, true) << line;
  }
  return all;
}

TEST(Binding, RanksAreBound) {
  if (!fs::exists(kModule)) GTEST_SKIP() << "hwloc was not there when this was built";
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> allowed;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &set)) allowed.push_back(p);
  const auto none = masks("--bind none", 2);
  EXPECT_EQ(none, std::vector<std::vector<int>>({allowed, allowed}));
  const auto cores = masks("--bind cores", 2);
  std::vector<int> both;
  for (const auto& m : cores) both.insert(both.end(), m.begin(), m.end());
  std::ranges::sort(both);
  if (allowed.size() > 1) {
    EXPECT_EQ(both, allowed);
  }
  // No more than the launcher itself may use.
  const int last = allowed.back();
  EXPECT_EQ(masks("--bind cores", 3, cat("taskset -c ", last)), std::vector<std::vector<int>>(3, {last}));
  EXPECT_EQ(masks("--bind numa", 1, cat("taskset -c ", last)), std::vector<std::vector<int>>(1, {last}));
  const Result told = strata("launch -n 2 -- true", cat("taskset -c ", last));
  EXPECT_NE(told.output.find("strata: ranks 0 to 1 may use all processors: there are fewer than two cores for each\n"),
            std::string::npos)
      << told.output;
  const Result set_by_hand = strata("launch -n 2 -- true", "STRATA_NUM_THREADS=1");
  EXPECT_NE(set_by_hand.output.find("may use all processors: their number of threads is set\n"), std::string::npos)
      << set_by_hand.output;
  const Result bound = strata("launch -n 2 --bind cores -- true", cat("taskset -c ", last));
  EXPECT_NE(bound.output.find(cat("strata: ranks 0 to 1 may use processors ", last, " | ", last, " (--bind cores)\n")),
            std::string::npos)
      << bound.output;
}

TEST(Binding, BadUsage) {
  const Result r = strata("launch -n 2 --bind sockets -- true");
  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.output, "strata: error: --bind: wants auto, none, cores or numa, got 'sockets'\n");
}

}  // namespace
}  // namespace strata::cli
