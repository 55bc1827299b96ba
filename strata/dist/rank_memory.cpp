#include "strata/dist/rank_memory_inl.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/part_gather_inl.h"
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

struct Block {
  size_t bytes = 0;
  memory::Tag tag = memory::Tag::activation;
  Device device;
  std::optional<Parts> parts;  // none: it is whole
  Tensor whole;                // flat, in the device's own memory; of the parts' dtype, or u8
  uint32_t version = 0;        // of the part, when it was gathered
  std::shared_ptr<PartGather> bringing;
  Tensor kept;  // of what was whole in this pass this rank's share among its neighbours
  uint32_t kept_version = 0;
  RankUnit* unit = nullptr;
};

// What allocate() makes next.
struct Wanted {
  Parts parts;
  RankUnit* unit = nullptr;
};
thread_local std::optional<Wanted> t_wanted;
thread_local Group* t_group = nullptr;

// Neither recorded nor observed, and in the device's own memory.
struct Plainly {
  strata::detail::ThreadModeScope mode{{false, 0}};
  memory::TierScope tier{Tier()};
};

}  // namespace

struct RankUnit::State {
  std::mutex mutex;  // of all that its blocks hold
  std::vector<Block*> blocks;
  int pinned = 0;
  bool ahead = true;
  Group* near = nullptr;  // what goes after a forward is kept among its ranks
};

namespace {

class RankMemory final : public memory::Backend {
 public:
  explicit RankMemory(DeviceType type) : Backend("ranks' memory", type, kRanks, memory::Bytes::movable) {}

  void* allocate(Device device, size_t nbytes, memory::Tag tag) override {
    auto b = std::make_unique<Block>();
    b->bytes = nbytes;
    b->tag = tag;
    b->device = device;
    if (t_wanted) {
      b->parts = std::move(t_wanted->parts);
      b->unit = t_wanted->unit;
      t_wanted.reset();
      const std::lock_guard lock(b->unit->state->mutex);
      b->unit->state->blocks.push_back(b.get());
    }
    return b.release();
  }
  void deallocate(Device, void* block, size_t, memory::Tag) override {
    const std::unique_ptr<Block> b(static_cast<Block*>(block));
    const auto lock = locked(*b);
    if (b->unit) std::erase(b->unit->state->blocks, b.get());
    drop(*b);
  }
  void retag(Device, void* block, size_t, memory::Tag, memory::Tag to) override {
    static_cast<Block*>(block)->tag = to;
  }

  std::byte* fetch(Device, void* block) override {
    Block& b = *static_cast<Block*>(block);
    const auto lock = locked(b);
    begin_all(b);
    if (const std::shared_ptr<PartGather> all = b.bringing) {
      try {
        all->finish();
      } catch (...) {
        for_each(b, [&](Block& other) {
          if (other.bringing != all) return;
          other.bringing = nullptr;
          other.whole = {};
        });
        throw;
      }
      for_each(b, [&](Block& other) {
        if (other.bringing == all) other.bringing = nullptr;
      });
    }
    if (b.unit) ++b.unit->state->pinned;
    return static_cast<std::byte*>(b.whole.raw_data());
  }
  void leave(Device, void* block, bool written) override {
    Block& b = *static_cast<Block*>(block);
    const auto lock = locked(b);
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
    if (!b.unit) return drop(b);
    if (--b.unit->state->pinned > 0) return;
    Group* const near = b.unit->state->near;
    for (Block* each : b.unit->state->blocks) {
      if (near) keep(*each, *near);
      drop(*each);
    }
  }
  void prefetch(Device, void* block) override {
    Block& b = *static_cast<Block*>(block);
    const auto lock = locked(b);
    if (b.parts && (!b.unit || b.unit->state->ahead)) begin_all(b);
  }
  bool resident(Device, const void* block) override {
    const Block& b = *static_cast<const Block*>(block);
    const auto lock = locked(b);
    return b.whole.defined();
  }
  // Lets the whole tensor go.
  static void drop(Block& b) {
    if (b.bringing) std::exchange(b.bringing, nullptr)->end();  // somebody writes there
    b.whole = {};
  }

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
  static std::unique_lock<std::mutex> locked(const Block& b) {
    return b.unit ? std::unique_lock(b.unit->state->mutex) : std::unique_lock<std::mutex>();
  }
  static void for_each(Block& b, const auto& act) {
    if (!b.unit) return act(b);
    for (Block* each : b.unit->state->blocks) act(*each);
  }
  // Between a forward and its backward this rank keeps its share of the whole tensor; backward is the last to want it.
  static void keep(Block& b, const Group& near) {
    if (current_phase() == Phase::backward || !b.parts) {
      b.kept = {};
      return;
    }
    if (!b.whole.defined() || (b.kept.defined() && b.kept_version == b.version)) return;
    if (b.bringing) std::exchange(b.bringing, nullptr)->finish();
    const memory::TagScope tag(b.tag);
    b.kept = Cut(b.whole.shape(), near.size()).part(b.whole, near.rank()).clone();
    b.kept_version = b.version;
  }
  // What was gathered and never used may be older than the parts.
  static void begin_all(Block& b) {
    const Plainly plainly;
    std::map<Group*, std::vector<Block*>> from;
    std::vector<Group*> groups;  // in the order of the blocks, which is every rank's
    for_each(b, [&](Block& each) {
      if (each.whole.defined() && (!each.parts || each.version == each.parts->part.version())) return;
      Group* const group = make_room(each);
      if (!group) return;
      if (!from.contains(group)) groups.push_back(group);
      from[group].push_back(&each);
    });
    for (Group* const group : groups) {
      std::vector<PartGather::Item> items;
      for (Block* each : from[group]) {
        const bool near = group != each->parts->group;
        items.push_back({each->parts->name, each->whole,
                         near ? Cut(each->whole.shape(), group->size()) : each->parts->cut,
                         near ? each->kept : each->parts->part});
      }
      const auto all = std::make_shared<PartGather>(*group, std::move(items));
      for (Block* each : from[group]) each->bringing = all;
    }
  }
  // Memory, and whom the parts come from.
  static Group* make_room(Block& b) {
    const memory::TagScope tag(b.tag);
    drop(b);
    const DType dtype = b.parts ? b.parts->part.dtype() : DType::u8;
    const auto numel = static_cast<int64_t>(b.bytes / size_of(dtype));
    b.whole = empty(TensorMeta{{numel}, dtype, b.device, std::nullopt});
    if (!b.parts) return nullptr;
    const Parts& p = *b.parts;
    b.version = p.part.version();
    Group* const near = b.unit ? b.unit->state->near : nullptr;
    return near && b.kept.defined() && b.kept_version == b.version ? near : p.group;
  }
};

void require_backend(DeviceType type) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (memory::find_backend(type, kRanks)) return;
  memory::register_backend(*new RankMemory(type));  // lives as long as the program
}

}  // namespace

RankUnit::RankUnit() : state(std::make_unique<State>()) {}
RankUnit::~RankUnit() {
  // A tensor that somebody holds on to goes on by itself.
  for (Block* b : state->blocks) b->unit = nullptr;
}

void RankUnit::join(RankUnit& other) {
  const std::scoped_lock lock(state->mutex, other.state->mutex);
  for (Block* b : other.state->blocks) {
    b->unit = this;
    state->blocks.push_back(b);
  }
  state->pinned += std::exchange(other.state->pinned, 0);
  other.state->blocks.clear();
}

void RankUnit::give(const Tensor& part, RankUnit& to) {
  const std::scoped_lock lock(state->mutex, to.state->mutex);
  check(state->pinned == 0, "RankUnit", "a tensor of it is in use");
  std::erase_if(state->blocks, [&](Block* b) {
    if (b->parts->part.storage() != part.storage()) return false;
    b->unit = &to;
    to.state->blocks.push_back(b);
    return true;
  });
}

void RankUnit::only_when_wanted() {
  const std::lock_guard lock(state->mutex);
  state->ahead = false;
}

void RankUnit::keep_among(Group* near) {
  const std::lock_guard lock(state->mutex);
  state->near = near;
  for (Block* b : state->blocks) b->kept = {};
}

void RankUnit::drop() {
  const std::lock_guard lock(state->mutex);
  if (state->pinned > 0) return;
  for (Block* b : state->blocks) RankMemory::drop(*b);
}

Tensor tensor_of_parts(const Tensor& part, const Shape& whole, std::string name, Group& group, RankUnit& unit) {
  require_backend(part.device().type);
  t_wanted = Wanted{{part, Cut(whole, group.size()), std::move(name), &group}, &unit};
  TensorMeta meta = part.meta();
  meta.shape = whole;
  return empty(meta, kRanks);
}

CutBetween::CutBetween(Group& group) : previous_(std::exchange(t_group, &group)) {}
CutBetween::~CutBetween() {
  t_group = previous_;
}

}  // namespace strata::distributed
