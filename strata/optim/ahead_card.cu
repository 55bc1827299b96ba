// A card's part of an update that runs ahead: pieces of parameters and state come from the host's memory, are updated,
// and go back, several under way.

#include <algorithm>
#include <array>

#include "strata/core/node.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/stream_transfer.h"
#include "strata/memory/allocator.h"
#include "strata/optim/ahead_inl.h"
#include "strata/optim/eight_bit_inl.h"

namespace strata::optim {
namespace {

constexpr int64_t kAligned = 256;

// One array of a piece: where it is on the host, and where in a slot.
struct Array {
  void* home = nullptr;
  int64_t bytes = 0, at = 0;
  bool comes = true, goes = true;
};
struct Layout {
  Array param, grad, low, state[kMostStates], scale[kMostStates];
  int64_t bytes = 0, coming = 0, going = 0;

  explicit Layout(const Slab& s) {
    add(param, s.param, s.numel * size_of(s.dtype));
    add(grad, s.grad, s.numel * size_of(s.grad_dtype));
    grad.goes = false;
    add(low, s.low, s.numel * size_of(s.low_dtype));
    low.comes = is_split(s);  // else it is only written
    for (int i = 0; i < kMostStates; ++i) {
      add(state[i], s.state[i], s.numel * size_of(s.state_dtype));
      add(scale[i], s.scale[i], (s.numel + kScaleBlock - 1) / kScaleBlock * static_cast<int64_t>(sizeof(float)));
    }
    each([&](const Array& a) {
      coming += a.comes ? a.bytes : 0;
      going += a.goes ? a.bytes : 0;
    });
  }
  template <class F>
  void each(F&& f) const {
    for (const Array* a : {&param, &grad, &low}) f(*a);
    for (const Array& a : state) f(a);
    for (const Array& a : scale) f(a);
  }

 private:
  void add(Array& a, void* home, int64_t n) {
    if (home == nullptr) return;
    a.home = home;
    a.bytes = n;
    a.at = bytes;
    bytes += (n + kAligned - 1) / kAligned * kAligned;
  }
};

class Executor final : public AheadCard {
 public:
  explicit Executor(Device device)
      : device_(device),
        in_(cuda::Stream::create(device.index)),
        rule_(cuda::Stream::create(device.index)),
        out_(cuda::Stream::create(device.index)) {
    const cuda::StreamScope scope(rule_);
    const memory::TagScope tag(memory::Tag::workspace);
    const memory::TierScope own{Tier()};
    counts_ = empty({{static_cast<int64_t>(kSlots)}, DType::i64, Device::cpu(), std::nullopt}, Tier::pinned);
    for (Slot& s : slots_) {
      s.constants = empty_constants(1, device);
      s.count = empty({{1}, DType::i64, device, std::nullopt});
      for (auto* e : {&s.came, &s.updated, &s.gone}) e->emplace(false, device.index);
    }
  }
  ~Executor() override {
    try {
      for (const cuda::Stream& s : {in_, rule_, out_}) s.synchronize();
    } catch (const Error&) {  // the device has failed, as whoever asks next is told
    }
  }

  void follow() override { rule_.wait(cuda::current_stream(device_.index)); }

  void run(AheadUpdate& update) override {
    const cuda::DeviceScope device(device_.index);
    const cuda::StreamScope scope(rule_);
    const memory::TierScope own{Tier()};
    try {
      for (size_t i = 0;; i = (i + 1) % kSlots) {
        finish(slots_[i], update);
        const std::vector<const AheadUpdate::Piece*> taken = update.claim(1);
        if (taken.empty()) break;
        queue(slots_[i], i, *taken[0], update.factor());
      }
      for (Slot& s : slots_) finish(s, update);
    } catch (...) {
      // What is under way still reads and writes the host's memory.
      for (const cuda::Stream& s : {in_, rule_, out_}) cudaStreamSynchronize(cuda::raw(s));
      for (Slot& s : slots_) s.piece = nullptr;
      throw;
    }
  }

 private:
  struct Slot {
    Tensor bytes, constants, count;
    std::optional<cuda::Event> came, updated, gone;
    const AheadUpdate::Piece* piece = nullptr;
  };

  static void finish(Slot& s, AheadUpdate& update) {
    if (s.piece == nullptr) return;
    s.gone->synchronize();
    update.done(*std::exchange(s.piece, nullptr));
  }

  // The slot's last piece has gone.
  void queue(Slot& s, size_t index, const AheadUpdate::Piece& piece, const double* factor) {
    const Layout layout(piece.slab);
    if (!s.bytes.defined() || s.bytes.numel() < layout.bytes) {
      const memory::TagScope tag(memory::Tag::workspace);
      s.bytes = {};
      s.bytes = empty({{layout.bytes}, DType::u8, device_, std::nullopt});
      in_.wait(rule_);  // on which memory is had from others
    }
    s.piece = &piece;
    auto* near = static_cast<std::byte*>(s.bytes.raw_data());
    const memory::MovedName moved([&] { return "update of " + piece.owner->name; });
    {
      const cuda::StreamTransfer transfer(memory::TransferKind::copy, "from host", layout.coming, in_);
      layout.each([&](const Array& a) {
        if (a.home && a.comes) copy(in_, near + a.at, a.home, a.bytes, cudaMemcpyHostToDevice);
      });
    }
    int64_t* count = static_cast<int64_t*>(counts_.raw_data()) + index;
    *count = piece.slab.t - 1;
    copy(in_, s.count.raw_data(), count, sizeof *count, cudaMemcpyHostToDevice);
    s.came->record(in_);
    s.came->wait(rule_);

    Slab slab = piece.slab;
    const auto at = [&](const Array& a) -> void* { return a.home ? near + a.at : nullptr; };
    slab.param = at(layout.param);
    slab.grad = at(layout.grad);
    slab.low = at(layout.low);
    for (int i = 0; i < kMostStates; ++i) {
      slab.state[i] = at(layout.state[i]);
      slab.scale[i] = static_cast<float*>(at(layout.scale[i]));
    }
    slab.device = device_;
    slab.tensors = nullptr;
    if (piece.slab.t > 0) slab.count = static_cast<const int64_t*>(s.count.raw_data());
    const std::span<const Slab> one(&slab, 1);
    write_constants(piece.rule, s.constants, one);
    run_rule_cuda(piece.rule, one, s.constants, factor);
    s.updated->record(rule_);
    s.updated->wait(out_);
    {
      const cuda::StreamTransfer transfer(memory::TransferKind::copy, "to host", layout.going, out_);
      layout.each([&](const Array& a) {
        if (a.home && a.goes) copy(out_, a.home, near + a.at, a.bytes, cudaMemcpyDeviceToHost);
      });
    }
    s.gone->record(out_);
  }

  static void copy(const cuda::Stream& stream, void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    cuda::check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, cuda::raw(stream)), "optimizer",
                     "a copy of its state");
  }

  const Device device_;
  const cuda::Stream in_, rule_, out_;
  Tensor counts_;  // page-locked: what a slot's count is copied from
  std::array<Slot, kSlots> slots_;
};

}  // namespace

std::unique_ptr<AheadCard> make_ahead_card(Device device) {
  return std::make_unique<Executor>(device);
}

}  // namespace strata::optim
