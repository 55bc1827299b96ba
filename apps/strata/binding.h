#pragma once
// Which of its host's processors each rank may use.

#include <string>
#include <string_view>
#include <vector>

#include "apps/strata/topology/topology.h"

namespace strata::cli {

/// What `strata launch --bind` says.
enum class Bind { automatic, none, cores, numa };
/// "auto", "none", "cores" or "numa". Throws UsageError for another text.
Bind parse_bind(std::string_view text);

/// A rank's processors (the system's numbers, ascending), and how many threads of its pool have room on them.
struct ProcessorShare {
  std::vector<int> processors;
  int threads = 0;
};

/// The processors of each of `ranks` ranks.
///
/// cores: whole cores, every rank as many, one more for some where they do not divide; no core is two ranks' and none
/// is left over. With more ranks than cores hardware threads are shared out so, and with more ranks than these each
/// rank has one that others have too. numa: whole nodes of memory, which ranks share where they are more than the
/// nodes. `near[i]`: processors beside rank i's card, which come first; empty where it has none. `processors` is not
/// empty; neighbours in it are neighbours in the machine.
std::vector<ProcessorShare> share_processors(const std::vector<Processor>& processors, int ranks, Bind bind,
                                             const std::vector<std::vector<int>>& near);

/// "0-3,8,10-11", as the kernel writes it, and back. A text that is none gives the numbers before the mistake.
std::string text_of_processors(const std::vector<int>& processors);
std::vector<int> parse_processors(std::string_view text);

/// The processors beside each rank's card, as the system under `root` ("" for this one) tells: NVIDIA's cards that this
/// process sees, by their places on the bus, which is CUDA's order where they are alike. `visible`: the value of
/// CUDA_VISIBLE_DEVICES, null where it is not set. Empty for a rank without a card.
std::vector<std::vector<int>> processors_near_cards(const std::string& root, const char* visible, int ranks);

/// What a host's ranks get, and the line that tells of it.
struct Binding {
  std::vector<ProcessorShare> shares;  ///< empty: they are not bound
  std::string line;                    ///< "ranks 0 to 3 have ..."; empty where there is nothing to tell
};
/// `ranks`: their numbers, at least one. `environment`: that of the ranks, "NAME=value". automatic binds to cores where
/// each of several ranks gets two or more and nobody set the number of threads. Throws UsageError where another wish
/// cannot be met.
Binding bind_ranks(Bind bind, const std::vector<int>& ranks, const std::vector<std::string>& environment);

}  // namespace strata::cli
