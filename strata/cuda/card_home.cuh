#pragma once
// What homes of a card's tensors share: near memory, moments of streams, the streams that copy.

#include <memory>

#include "strata/cuda/check.cuh"
#include "strata/cuda/page_locked.h"
#include "strata/memory/homed.h"

namespace strata::cuda {

/// The streams of a device that copies to and from homes run on: each way its own, as a bus has both at once. Near
/// memory belongs to `near`, which only waits: for those who had a block before to whoever has it next. What is at home
/// on a disk has a stream of its own, and with it a heap, so that each kind keeps to its bound.
struct CopyStreams {
  Stream in, out, near, near_of_disk;
  /// Throws DeviceError where there is no such device.
  static const CopyStreams& of(int device);
};

/// The point that `stream` has come to now.
memory::MomentPtr stream_point(const Stream& stream);

/// Near memory of a card, and graphs.
class CardHome : public memory::Home {
 public:
  bool has_hole(Device device, size_t bytes, int64_t limit) override;
  std::byte* allocate_near(Device device, size_t bytes, memory::Tag tag) override;
  void deallocate_near(Device device, std::byte* near, size_t bytes, memory::Tag tag,
                       std::span<const memory::MomentPtr> after) override;
  memory::MomentPtr ready(Device device) override { return stream_point(near_stream(device)); }
  std::function<memory::MomentPtr()> point(Device device) override;
  bool capturing() const override;
  void with_captured(Device device, std::function<void()> before_replay) override;

 protected:
  virtual const Stream& near_stream(Device device) const { return CopyStreams::of(device.index).near; }
};

/// At home in page-locked memory, and on a disk.
std::unique_ptr<memory::Home> make_pinned_home();
std::unique_ptr<memory::Home> make_card_disk_home();

}  // namespace strata::cuda
