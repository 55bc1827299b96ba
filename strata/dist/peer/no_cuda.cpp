#include "strata/core/error.h"
#include "strata/dist/peer/peer_copies_inl.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {

std::unique_ptr<PeerSums> make_peer_sums(int, int, int) {
  throw DeviceError("peer sums", "this build has no CUDA");
}
std::unique_ptr<PeerCopies> make_peer_copies(int, int, int) {
  throw DeviceError("peer copies", "this build has no CUDA");
}

}  // namespace strata::distributed::detail
