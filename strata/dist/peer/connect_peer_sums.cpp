#include <cstdlib>
#include <string_view>

#include <unistd.h>

#include "strata/core/error.h"
#include "strata/dist/peer/peer_sum_kernel.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {

bool PeerSums::takes(int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
      return count > 0 && count <= peer::kMostBytes / static_cast<int64_t>(size_of(dtype));
    default:
      return false;
  }
}

std::unique_ptr<PeerSums> connect_peer_sums(int device, int rank, int size, AddressBook& book,
                                            std::chrono::milliseconds patience, std::string& why) {
  if (size < 2 || size > peer::kMostRanks) {
    why = cat("for two to ", peer::kMostRanks, " ranks");
    return nullptr;
  }
  // In two rounds: nobody waits for the file of who has none, and nobody uses what another could not map.
  const auto all = [&](const char* round, const std::string& problem) {
    book.set(cat(round, "/", rank), problem.empty() ? "yes" : problem);
    for (int r = 0; r < size; ++r) {
      const std::string said = book.get(cat(round, "/", r));
      if (said != "yes" && why.empty()) why = cat("rank ", r, ": ", said);
    }
    return why.empty();
  };
  std::unique_ptr<PeerSums> sums;
  std::string problem;
  if (const char* set = std::getenv("STRATA_PEER_SUMS"); set != nullptr && std::string_view(set) == "0") {
    problem = "STRATA_PEER_SUMS is 0";
  } else {
    try {
      sums = make_peer_sums(device, rank, size);
    } catch (const std::exception& e) {
      problem = e.what();
    }
  }
  if (!all("made", problem)) return nullptr;
  try {
    const std::vector<int> files = exchange_files(sums->file(), rank, size, book, patience);
    for (int p = 0; p < size; ++p) {
      if (p == rank) continue;
      try {
        sums->join(p, files[static_cast<size_t>(p)]);
      } catch (const std::exception& e) {
        if (problem.empty()) problem = e.what();
      }
    }
  } catch (const std::exception& e) {
    problem = e.what();
  }
  return all("joined", problem) ? std::move(sums) : nullptr;
}

}  // namespace strata::distributed::detail
