#include "strata/train/feeder.h"

#include <optional>
#include <utility>

#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"

namespace strata {
namespace {

// Tensors like those of a batch, on `device`.
std::vector<data::Batch> empty_like(const std::vector<data::Batch>& batches, Device device) {
  const memory::TagScope tag(memory::Tag::data);
  std::vector<data::Batch> made;
  for (const data::Batch& batch : batches) {
    made.emplace_back();
    for (const Tensor& t : batch) made.back().push_back(empty({t.shape(), t.dtype(), device, std::nullopt}));
  }
  return made;
}

void copy_all(const std::vector<data::Batch>& to, const std::vector<data::Batch>& from) {
  for (size_t i = 0; i < to.size(); ++i)
    for (size_t j = 0; j < to[i].size(); ++j) Tensor(to[i][j]).copy_(from[i][j]);
}

}  // namespace

struct BatchFeeder::Cuda {
  explicit Cuda(int device) : stream(cuda::Stream::create(device)), arrived(false, device), taken(false, device) {}
  ~Cuda() {
    try {
      stream.synchronize();   // it may still read the host's batches
    } catch (const Error&) {  // a failed device: told by whoever asks next
    }
  }

  cuda::Stream stream;
  cuda::Event arrived, taken;             // of `staged`: it is filled; it may be filled again
  std::vector<data::Batch> host, staged;  // the next step's
  data::SamplerState after;
  bool fetched = false;
};

BatchFeeder::BatchFeeder(data::DataLoader& loader, int64_t count, Device device)
    : loader_(loader), count_(count), device_(device), state_(loader.state()) {
  if (device_.is_cuda()) cuda_ = std::make_unique<Cuda>(device_.index);
}
BatchFeeder::~BatchFeeder() = default;

std::vector<data::Batch> BatchFeeder::take() {
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < count_; ++i) {
    std::optional<data::Batch> batch = loader_.next();
    check(batch.has_value(), "BatchFeeder", "the loader came to its end; it must repeat");
    batches.push_back(std::move(*batch));
  }
  return batches;
}

void BatchFeeder::prefetch() {
  if (!cuda_ || cuda_->fetched) return;
  NoGrad guard;
  Cuda& c = *cuda_;
  std::vector<data::Batch> host = take();
  if (c.staged.empty()) {
    c.staged = empty_like(host, device_);
    here_ = empty_like(host, device_);
    c.stream.wait(cuda::current_stream(device_.index));  // what used the memory before
  }
  c.taken.wait(c.stream);
  {
    const cuda::StreamScope scope(c.stream);
    copy_all(c.staged, host);
  }
  c.arrived.record(c.stream);
  c.host = std::move(host);
  c.after = loader_.state();
  c.fetched = true;
}

const std::vector<data::Batch>& BatchFeeder::next() {
  if (!cuda_) {
    host_ = take();
    state_ = loader_.state();
    return host_;
  }
  prefetch();
  NoGrad guard;
  Cuda& c = *cuda_;
  const cuda::Stream stream = cuda::current_stream(device_.index);
  c.arrived.wait(stream);
  copy_all(here_, c.staged);
  c.taken.record(stream);
  host_ = std::exchange(c.host, {});
  state_ = c.after;
  c.fetched = false;
  return here_;
}

}  // namespace strata
