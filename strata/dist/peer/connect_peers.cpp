#include <cstdlib>
#include <functional>
#include <string_view>

#include <unistd.h>

#include "strata/core/error.h"
#include "strata/dist/peer/peer_copies_inl.h"
#include "strata/dist/peer/peer_copies_kernel.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {
namespace {

bool is_set(const char* name, std::string_view value) {
  const char* const set = std::getenv(name);
  return set != nullptr && std::string_view(set) == value;
}

// Keys of one kind of memory among a group's.
class Under final : public AddressBook {
 public:
  Under(AddressBook& book, std::string what) : book_(book), what_(std::move(what)) {}
  void set(const std::string& key, const std::string& value) override { book_.set(what_ + key, value); }
  std::string get(const std::string& key) override { return book_.get(what_ + key); }

 private:
  AddressBook& book_;
  std::string what_;
};

// `make` gives this rank's memory; `refused` is why it does not want to, or empty.
template <class Peers>
std::unique_ptr<Peers> connected(const std::function<std::unique_ptr<Peers>()>& make, const std::string& refused,
                                 int rank, int size, AddressBook& book, std::chrono::milliseconds patience,
                                 std::string& why) {
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
  std::unique_ptr<Peers> peers;
  std::string problem = refused;
  if (problem.empty()) {
    try {
      peers = make();
    } catch (const std::exception& e) {
      problem = e.what();
    }
  }
  if (!all("made", problem)) return nullptr;
  try {
    const std::vector<int> files = exchange_files(peers->file(), rank, size, book, patience);
    for (int p = 0; p < size; ++p) {
      if (p == rank) continue;
      try {
        peers->join(p, files[static_cast<size_t>(p)]);
      } catch (const std::exception& e) {
        if (problem.empty()) problem = e.what();
      }
    }
  } catch (const std::exception& e) {
    problem = e.what();
  }
  return all("joined", problem) ? std::move(peers) : nullptr;
}

bool is_added(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}
constexpr int64_t kLeastCopy = 256 << 10;

}  // namespace

bool PeerSums::takes(int64_t count, DType dtype) {
  return is_added(dtype) && count > 0 && count <= peer::kMostBytes / static_cast<int64_t>(size_of(dtype));
}

std::unique_ptr<PeerSums> connect_peer_sums(int device, int rank, int size, AddressBook& book,
                                            std::chrono::milliseconds patience, std::string& why) {
  return connected<PeerSums>([&] { return make_peer_sums(device, rank, size); },
                             is_set("STRATA_PEER_SUMS", "0") ? "STRATA_PEER_SUMS is 0" : "", rank, size, book, patience,
                             why);
}

bool PeerCopies::takes(size_t bytes) {
  return bytes >= static_cast<size_t>(kLeastCopy);
}
bool PeerCopies::takes(int64_t count, DType dtype, Reduction r) {
  return is_added(dtype) && (r == Reduction::sum || r == Reduction::avg) &&
         count >= kLeastCopy / static_cast<int64_t>(size_of(dtype));
}

std::unique_ptr<PeerCopies> connect_peer_copies(int device, int rank, int size, AddressBook& book,
                                                std::chrono::milliseconds patience, std::string& why) {
  Under apart(book, "copies/");
  return connected<PeerCopies>([&] { return make_peer_copies(device, rank, size); },
                               is_set("STRATA_PEER_COPIES", "1") ? "" : "STRATA_PEER_COPIES is not 1", rank, size,
                               apart, patience, why);
}

}  // namespace strata::distributed::detail
