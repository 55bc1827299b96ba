// Which of the host's cards is a rank's.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/device_group_inl.h"
#include "strata/dist/group.h"

namespace strata::distributed {

Device card() {
  const Job& j = job();
  const int cards = cuda::device_count();
  check<DeviceError>(
      cards > 0, "dist", "rank ", j.rank, " has no card: ", cuda::unavailable_reason(),
      j.local_size == 1 ? std::string() : cat("; this host has ", j.local_size, " ranks, and each needs one"));
  if (cards == 1) return Device::cuda(0);
  check<DeviceError>(j.local_rank < cards, "dist", "there are ", j.local_size, " ranks on this host and ", cards,
                     " cards: start no more ranks than there are cards");
  return Device::cuda(j.local_rank);
}

std::string detail::own_card(const char* visible, int local_rank, int local_size) {
  if (local_size == 1 || (visible != nullptr && *visible == '\0')) return visible != nullptr ? visible : "";
  if (visible == nullptr) return cat(local_rank);
  std::vector<std::string> cards;
  for (std::string_view rest = visible; !rest.empty();) {
    const size_t at = std::min(rest.find(','), rest.size());
    cards.emplace_back(rest.substr(0, at));
    rest.remove_prefix(std::min(at + 1, rest.size()));
  }
  if (cards.size() == 1) return cards[0];  // the launcher's choice
  check<DistributedError>(local_size <= static_cast<int>(cards.size()), "dist", "CUDA_VISIBLE_DEVICES names ",
                          cards.size(), " cards, and there are ", local_size,
                          " ranks on this host: start no more ranks than there are cards");
  return cards[static_cast<size_t>(local_rank)];
}
void detail::want_queues() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

void take_own_card() {
  const Job& j = job();
  if (j.local_size == 1) return;
  detail::want_queues();
  setenv("CUDA_VISIBLE_DEVICES",
         detail::own_card(std::getenv("CUDA_VISIBLE_DEVICES"), j.local_rank, j.local_size).c_str(), 1);
}

}  // namespace strata::distributed
