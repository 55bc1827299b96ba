#include "strata/cuda/card_home.cuh"

#include <array>
#include <mutex>
#include <optional>

#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/memory_inl.cuh"
#include "strata/cuda/stream_transfer.h"

namespace strata::cuda {
namespace {
using memory::MomentPtr;
using memory::Tag;

class StreamMoment final : public memory::Moment {
 public:
  explicit StreamMoment(const Stream& stream) : stream_(stream), event_(false, stream.device()) {
    event_.record(stream);
  }
  // A thread that captures may not ask.
  bool passed() override {
    if (capturing()) return false;
    try {
      return event_.query();
    } catch (const Error&) {  // the device has failed: nothing of it will pass otherwise
      return true;
    }
  }
  void wait() override {
    try {
      event_.synchronize();
    } catch (const Error&) {  // whoever asks the device next is told
    }
  }
  void order() override {
    const Stream now = current_stream(stream_.device());
    if (now == stream_) return;
    std::optional<StreamTransfer> wait;
    if (memory::transfers_wanted() && !copies(now)) wait.emplace(memory::TransferKind::wait, "waiting", 0, now);
    event_.wait(now);
  }
  bool streamed() const override { return true; }

 private:
  // Whether that is a stream which nobody computes on.
  static bool copies(const Stream& stream) {
    const CopyStreams& s = CopyStreams::of(stream.device());
    return stream == s.in || stream == s.out || stream == s.near;
  }
  const Stream stream_;
  Event event_;
};
}  // namespace

const CopyStreams& CopyStreams::of(int device) {
  struct All {
    std::mutex mutex;
    std::array<std::optional<CopyStreams>, 64> streams;
  };
  static auto* all = new All;
  properties(device);  // throws where there is no such device
  const std::lock_guard lock(all->mutex);
  auto& s = all->streams.at(static_cast<size_t>(device));
  if (!s)
    s.emplace(
        CopyStreams{Stream::create(device), Stream::create(device), Stream::create(device), Stream::create(device)});
  return *s;
}

MomentPtr stream_point(const Stream& stream) {
  return std::make_shared<StreamMoment>(stream);
}

bool CardHome::has_hole(Device device, size_t bytes, int64_t limit) {
  return heap_holds(near_stream(device), bytes, limit);
}
std::byte* CardHome::allocate_near(Device device, size_t bytes, Tag tag) {
  const StreamScope scope(near_stream(device));
  return Home::allocate_near(device, bytes, tag);
}
void CardHome::deallocate_near(Device device, std::byte* near, size_t bytes, Tag tag,
                               std::span<const MomentPtr> after) {
  const StreamScope scope(near_stream(device));
  Home::deallocate_near(device, near, bytes, tag, after);
}
std::function<MomentPtr()> CardHome::point(Device device) {
  return [stream = current_stream(device.index)] { return stream_point(stream); };
}
bool CardHome::capturing() const {
  return cuda::capturing();
}
void CardHome::with_captured(Device, std::function<void()> before_replay) {
  auto owner = std::make_shared<std::function<void()>>(std::move(before_replay));
  before_replays(owner, [owner] { (*owner)(); });
}

namespace {
// Rooms are page-locked blocks: copies are the card's own.
class PinnedHome final : public CardHome {
 public:
  void* allocate(Device device, size_t nbytes) override {
    properties(device.index);  // throws where there is no such card
    return allocate_locked(nbytes);
  }
  void deallocate(Device, void* room, size_t) override { deallocate_locked(room); }
  MomentPtr bring(Device device, std::byte* near, void* room, size_t nbytes) override {
    const CopyStreams& streams = CopyStreams::of(device.index);
    streams.in.wait(streams.near);
    return copy(streams.in, near, room, nbytes, cudaMemcpyHostToDevice);
  }
  MomentPtr send(Device device, void* room, const std::byte* near, size_t nbytes,
                 std::span<const MomentPtr> after) override {
    const Stream& out = CopyStreams::of(device.index).out;
    const StreamScope scope(out);
    for (const MomentPtr& m : after) m->order();
    return copy(out, room, near, nbytes, cudaMemcpyDeviceToHost);
  }
  std::byte* address(void* room) const override { return static_cast<std::byte*>(room); }
  memory::Bound bound(Device) override { return memory::backend(Device::cpu()).bound(Device::cpu()); }
  void release_cached() override { release_locked(); }

 private:
  static MomentPtr copy(const Stream& stream, void* to, const void* from, size_t nbytes, cudaMemcpyKind kind) {
    const DeviceScope device(stream.device());
    const StreamTransfer transfer(memory::TransferKind::copy,
                                  kind == cudaMemcpyDeviceToHost ? "to host" : "from host",
                                  static_cast<int64_t>(nbytes), stream);
    check_cuda(cudaMemcpyAsync(to, from, nbytes, kind, raw(stream)), "copy", "cudaMemcpyAsync");
    return stream_point(stream);
  }
};
}  // namespace

std::unique_ptr<memory::Home> make_pinned_home() {
  return std::make_unique<PinnedHome>();
}

memory::Backend& pinned_host_memory();
memory::Backend& unified_memory();

void register_tiers() {
  register_backend(pinned_host_memory());
  register_backend(unified_memory());
  register_backend(
      *new memory::HomedMemory("page-locked home of cuda", DeviceType::cuda, Tier::pinned, make_pinned_home()));
  register_backend(
      *new memory::HomedMemory("disk of cuda", DeviceType::cuda, Tier::named("disk"), make_card_disk_home()));
}

}  // namespace strata::cuda
