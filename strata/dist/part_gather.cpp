#include "strata/dist/part_gather_inl.h"

#include <algorithm>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

// Tensors of fewer bytes are packed.
constexpr int64_t kPackedBelow = int64_t{128} << 10;

// Neither recorded nor observed, and in the device's own memory.
struct Plainly {
  strata::detail::ThreadModeScope mode{{false, 0}};
  memory::TierScope tier{Tier()};
  memory::TagScope tag{memory::Tag::workspace};
};

}  // namespace

PartGather::PartGather(Group& group, std::vector<Item> items) : rank_(group.rank()), ranks_(group.size()) {
  const Plainly plainly;
  const Device device = items[0].whole.device();
  std::string what = cat("gather ", items[0].name, items.size() > 1 ? cat(" and ", items.size() - 1, " more") : "");
  std::vector<Item> direct;
  while (!items.empty()) {
    const DType dtype = items[0].whole.dtype();
    int64_t numel = 0;
    std::vector<Item> small, others;
    for (Item& i : items) {
      const bool of_dtype = i.whole.dtype() == dtype;
      if (of_dtype) numel += i.whole.numel();
      (!of_dtype ? others : i.whole.nbytes() < kPackedBelow ? small : direct).push_back(std::move(i));
    }
    items = std::move(others);
    what += cat(' ', dtype, " [", numel, ']');
    if (small.size() == 1 && small[0].cut.even())
      direct.push_back(std::move(small[0]));
    else if (!small.empty())
      packed_.push_back(pack(small));
  }
  // What does not travel from where the part lies is to be in its place before.
  for (Item& i : direct) {
    if (!i.part.defined() || (i.cut.even() && i.part.tier() == memory::backend(device).tier)) continue;
    const int64_t n = i.cut.numel(rank_);
    if (n > 0) copy_elements(i.whole.narrow(0, i.cut.begin(rank_), n), i.part.view({n}));
    i.part = {};
  }
  std::vector<Tensor> buffers;
  for (const Packed& p : packed_) buffers.push_back(p.memory);
  std::vector<Tensor> held = buffers;
  for (const Item& i : direct) {
    held.push_back(i.whole);
    if (i.part.defined()) held.push_back(i.part);
  }
  work_ = group.start(
      device, std::move(what),
      [direct, buffers](Collectives& c) {
        for (const Item& i : direct)
          gather_parts(c, static_cast<std::byte*>(i.whole.raw_data()),
                       i.part.defined() ? static_cast<const std::byte*>(i.part.raw_data()) : nullptr, i.cut,
                       static_cast<int64_t>(size_of(i.whole.dtype())));
        for (const Tensor& b : buffers) {
          const size_t stretch = static_cast<size_t>(b.nbytes() / c.size());
          auto* const all = static_cast<std::byte*>(b.raw_data());
          c.all_gather(all, all + static_cast<size_t>(c.rank()) * stretch, stretch);
        }
      },
      std::move(held));
}

PartGather::Packed PartGather::pack(const std::vector<Item>& small) const {
  Packed p;
  for (const Item& i : small) {
    p.members.emplace_back(i, p.stretch);
    p.stretch += i.cut.numel(0);
  }
  p.memory = empty(TensorMeta{{p.stretch * ranks_}, small[0].whole.dtype(), small[0].whole.device(), std::nullopt});
  for (const auto& [item, at] : p.members) {
    const int64_t n = item.cut.numel(rank_);
    if (n == 0) continue;
    copy_elements(p.memory.narrow(0, rank_ * p.stretch + at, n),
                  item.part.defined() ? item.part.view({n}) : item.whole.narrow(0, item.cut.begin(rank_), n));
  }
  return p;
}

// The parts to their places.
void PartGather::unpack(const Packed& p) const {
  const Plainly plainly;
  for (const auto& [item, at] : p.members) {
    if (item.cut.even()) {
      const int64_t n = item.cut.numel(0);
      copy_elements(item.whole.view({ranks_, n}), p.memory.view({ranks_, p.stretch}).narrow(1, at, n));
      continue;
    }
    for (int r = 0; r < ranks_; ++r) {
      const int64_t n = item.cut.numel(r);
      if (n == 0 || (r == rank_ && !item.part.defined())) continue;
      copy_elements(item.whole.narrow(0, item.cut.begin(r), n), p.memory.narrow(0, r * p.stretch + at, n));
    }
  }
}

void PartGather::finish() {
  if (failed_) std::rethrow_exception(failed_);
  try {
    std::exchange(work_, Work()).wait();
  } catch (...) {
    failed_ = std::current_exception();
    packed_.clear();
    throw;
  }
  for (const Packed& p : std::exchange(packed_, {})) unpack(p);
}

void PartGather::end() noexcept {
  try {
    finish();
  } catch (const Error&) {  // whoever wants them is told
  }
}

}  // namespace strata::distributed
