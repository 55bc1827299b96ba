#include "strata/dist/rank_memory_inl.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"

namespace strata::distributed {

const Tier kRanks = Tier::named("ranks");

namespace {

// Where the parts of a block are.
struct Parts {
  Tensor part;
  Cut cut;
  std::string name;
  Group* group = nullptr;
};

thread_local std::optional<Parts> t_parts;  // of the block that is allocated next
thread_local Group* t_group = nullptr;

struct Block {
  size_t bytes = 0;
  memory::Tag tag = memory::Tag::activation;
  std::optional<Parts> parts;  // none: it is whole
  Tensor whole;                // flat, in the device's own memory; of the parts' dtype, or u8
  uint32_t version = 0;        // of the part, when it was gathered
  Work gather;
};

// Neither recorded nor observed, and in the device's own memory.
struct Plainly {
  strata::detail::ThreadModeScope mode{{false, 0}};
  memory::TierScope tier{Tier()};
};

class RankMemory final : public memory::Backend {
 public:
  explicit RankMemory(DeviceType type) : Backend("ranks' memory", type, kRanks, memory::Bytes::movable) {}

  void* allocate(Device, size_t nbytes, memory::Tag tag) override {
    auto* b = new Block{.bytes = nbytes, .tag = tag, .parts = {}, .whole = {}, .version = 0, .gather = {}};
    if (t_parts) b->parts = std::exchange(t_parts, std::nullopt);
    return b;
  }
  void deallocate(Device, void* block, size_t, memory::Tag) override {
    const std::unique_ptr<Block> b(static_cast<Block*>(block));
    try {
      b->gather.wait();  // somebody writes there
    } catch (const Error&) {
    }
  }
  void retag(Device, void* block, size_t, memory::Tag, memory::Tag to) override {
    static_cast<Block*>(block)->tag = to;
  }

  std::byte* fetch(Device device, void* block) override {
    Block& b = *static_cast<Block*>(block);
    begin(device, b);
    try {
      std::exchange(b.gather, Work()).wait();
    } catch (...) {
      b.whole = {};
      throw;
    }
    return static_cast<std::byte*>(b.whole.raw_data());
  }
  void leave(Device, void* block, bool written) override {
    Block& b = *static_cast<Block*>(block);
    const Plainly plainly;
    if (!b.parts && t_group) {
      Cut cut(Shape{static_cast<int64_t>(b.bytes)}, t_group->size());
      const memory::TagScope tag(b.tag);
      Tensor part = cut.part(b.whole, t_group->rank()).clone();
      b.parts = Parts{std::move(part), std::move(cut), "a copy in low precision", t_group};
      written = false;
    }
    if (!b.parts) return;
    if (written) copy_elements(b.parts->part, own_part(b));
    b.whole = {};
  }
  void prefetch(Device device, void* block) override {
    Block& b = *static_cast<Block*>(block);
    if (b.parts) begin(device, b);
  }
  bool resident(Device, const void* block) override { return static_cast<const Block*>(block)->whole.defined(); }

  void copy_in(Device device, void* to, const void* from, size_t nbytes) override {
    memory::backend(device).copy_in(device, to, from, nbytes);
  }
  void copy_out(Device device, void* to, const void* from, size_t nbytes) override {
    memory::backend(device).copy_out(device, to, from, nbytes);
  }
  // Parts and whole tensors are in the device's own memory, which counts them.
  memory::Bound bound(Device device) override { return memory::backend(device).bound(device); }
  memory::Stats stats(Device) override { return {}; }
  void reset_peak(Device) override {}
  std::vector<memory::BlockInfo> blocks(Device) override { return {}; }

 private:
  // This rank's part of the whole tensor's memory.
  static Tensor own_part(const Block& b) {
    const int r = b.parts->group->rank();
    return b.whole.narrow(0, b.parts->cut.begin(r), b.parts->cut.numel(r)).view(b.parts->part.shape());
  }
  // What was gathered and never used may be older than the parts.
  static void begin(Device device, Block& b) {
    if (b.whole.defined() && (!b.parts || b.version == b.parts->part.version())) return;
    const Plainly plainly;
    const memory::TagScope tag(b.tag);
    std::exchange(b.gather, Work()).wait();
    b.whole = {};
    const DType dtype = b.parts ? b.parts->part.dtype() : DType::u8;
    const auto numel = static_cast<int64_t>(b.bytes / size_of(dtype));
    b.whole = empty(TensorMeta{{numel}, dtype, device, std::nullopt});
    if (!b.parts) return;
    const Parts& p = *b.parts;
    b.version = p.part.version();
    copy_elements(own_part(b), p.part);
    b.gather = p.group->start(
        device, cat("gather ", p.name, " ", dtype, " [", numel, "]"),
        [whole = b.whole, cut = p.cut](Collectives& c) {
          gather_parts(c, static_cast<std::byte*>(whole.raw_data()), cut, static_cast<int64_t>(size_of(whole.dtype())));
        },
        {b.whole});
  }
};

void require_backend(DeviceType type) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (memory::find_backend(type, kRanks)) return;
  memory::register_backend(*new RankMemory(type));  // lives as long as the program
}

}  // namespace

Tensor tensor_of_parts(const Tensor& part, const Shape& whole, std::string name, Group& group) {
  require_backend(part.device().type);
  t_parts = Parts{part, Cut(whole, group.size()), std::move(name), &group};
  TensorMeta meta = part.meta();
  meta.shape = whole;
  return empty(meta, kRanks);
}

CutBetween::CutBetween(Group& group) : previous_(std::exchange(t_group, &group)) {}
CutBetween::~CutBetween() {
  t_group = previous_;
}

}  // namespace strata::distributed
