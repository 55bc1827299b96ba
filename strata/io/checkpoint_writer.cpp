#include "strata/io/checkpoint_writer.h"

#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/cuda/runtime.h"
#include "strata/io/rank_save_inl.h"
#include "strata/ops/copy/copy.h"

namespace strata::io {
namespace {

using Key = std::pair<std::string, std::string>;  // stem, name

// A tensor's elements in the host's memory. `room`, of an earlier one, is taken where it fits.
Tensor host_copy(const Tensor& t, Tensor room) {
  const NoGrad guard;
  const memory::TierScope own{Tier()};
  const DeviceScope host(Device::cpu());
  const bool from_card = t.device().is_cuda();
  if (!room.defined() || room.shape() != t.shape() || room.dtype() != t.dtype()) {
    room = {};  // before there are two
    room = empty(TensorMeta{t.shape(), t.dtype(), Device::cpu(), std::nullopt}, from_card ? Tier::pinned : Tier());
  }
  if (t.numel() == 0) return room;
  const bool fixed = t.storage()->backend().bytes == memory::Bytes::fixed;
  if (from_card && fixed)
    cuda::copy_to_pinned(room, t.contiguous());
  else
    copy_elements(room, fixed ? t : t.contiguous());
  return room;
}

}  // namespace

struct CheckpointWriter::Impl {
  // What the thread waits for before it reads copies of what is on a card.
  struct Copied {
    explicit Copied(int device) : event(false, device) { event.record(cuda::current_stream(device)); }
    cuda::Event event;
  };

  // The copy of `t`, kept under its name.
  Tensor copy(const Key& key, const Tensor& t) {
    if (t.device().is_cuda()) card = t.device().index;
    Tensor& kept = copies[key];
    kept = host_copy(t, std::exchange(kept, Tensor()));
    return kept;
  }
  template <class F>
  void start(F&& write) {
    done = false;
    failed = nullptr;
    std::shared_ptr<Copied> copied;
    if (card) copied = std::make_shared<Copied>(*card);
    active = true;
    thread = std::thread([this, copied, write = std::forward<F>(write)] {
      try {
        if (copied) copied->event.synchronize();
        write();
      } catch (...) {
        failed = std::current_exception();
      }
      done = true;
    });
  }
  void wait() {
    if (thread.joinable()) thread.join();
  }

  distributed::Group* group = nullptr;
  std::map<Key, Tensor> copies;
  std::optional<int> card;
  std::map<std::string, std::string> state;
  int keep_last = 0;
  std::unique_ptr<detail::RankSave> save;  // of several ranks
  std::string path;                        // of one
  std::exception_ptr failed;
  std::atomic<bool> done{false};
  bool active = false;
  std::thread thread;
};

CheckpointWriter::CheckpointWriter(distributed::Group* group) : impl_(std::make_unique<Impl>()) {
  impl_->group = group && group->size() > 1 ? group : nullptr;
}
CheckpointWriter::~CheckpointWriter() {
  impl_->wait();
}

void CheckpointWriter::begin(const std::string& run_dir, int64_t step, const TensorFiles& files,
                             const std::map<std::string, std::string>& state, int keep_last) {
  finish();
  check<ValueError>(keep_last >= 0, "save_checkpoint", "keep_last must be at least 0 (0 keeps all), got ", keep_last);
  Impl& all = *impl_;
  std::map<Key, Tensor> before = std::exchange(all.copies, {});  // of names that are gone nothing is kept
  const auto copy = [&](const std::string& stem, const std::string& name, const Tensor& t) {
    const Key key{stem, name};
    if (const auto had = before.find(key); had != before.end()) all.copies[key] = std::move(had->second);
    return all.copy(key, t);
  };
  if (!all.group) {
    check<ValueError>(step >= 0, "save_checkpoint", "step must be at least 0, got ", step);
    TensorFiles copies;
    for (const auto& [stem, tensors] : files) {
      copies[stem];
      for (const auto& [name, t] : tensors) {
        check<DeviceError>(!t.is_meta(), "save_checkpoint", "the tensor ", name, " is on the meta device");
        copies[stem][name] = copy(stem, name, t);
      }
    }
    all.start([&all, run_dir, step, copies = std::move(copies), state, keep_last] {
      all.path = save_checkpoint(run_dir, step, copies, state, keep_last);
    });
    return;
  }
  all.save = std::make_unique<detail::RankSave>(*all.group, run_dir, step, files);
  all.state = state;
  all.keep_last = keep_last;
  std::vector<Tensor> tensors;
  std::exception_ptr no_room;
  try {
    for (const detail::RankSave::Piece& p : all.save->pieces()) tensors.push_back(copy(p.stem, p.name, p.part));
  } catch (...) {  // the others are told by finish()
    no_room = std::current_exception();
  }
  all.start([&all, tensors = std::move(tensors), no_room] { all.save->write(tensors, true, no_room); });
}

bool CheckpointWriter::under_way() const {
  return impl_->active;
}
bool CheckpointWriter::written() const {
  return impl_->done;
}

std::string CheckpointWriter::finish() {
  Impl& all = *impl_;
  if (!all.active) return {};
  all.wait();
  all.active = false;
  if (!all.group) {
    if (all.failed) std::rethrow_exception(std::exchange(all.failed, nullptr));
    return all.path;
  }
  const std::unique_ptr<detail::RankSave> save = std::move(all.save);
  if (all.failed) save->write({}, true, std::exchange(all.failed, nullptr));  // so that the others are told
  return save->commit(all.state, all.keep_last);
}

int64_t CheckpointWriter::held_bytes() const {
  int64_t n = 0;
  for (const auto& [key, t] : impl_->copies) n += t.nbytes();
  return n;
}

}  // namespace strata::io
