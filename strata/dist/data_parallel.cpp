#include "strata/dist/data_parallel.h"

#include <algorithm>
#include <mutex>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/error.h"
#include "strata/core/placement.h"
#include "strata/dist/parts_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using strata::detail::here;

constexpr std::string_view kOp = "DataParallel";

}  // namespace

struct DataParallel::Impl {
  struct Parameter {
    std::string name;
    Tensor tensor;
    // Of a sharded parameter its part here travels: the group's ranks have the same.
    Tensor data() const { return here(tensor); }
    Tensor slot(const Tensor& memory) const {
      const Tensor own = data(), part = memory.narrow(0, offset, own.numel()).view(own.shape());
      return is_placed(tensor) ? strata::detail::place(part, tensor.meta(), layout_of(tensor)) : part;
    }
    HookHandle hook;
    size_t bucket = 0;
    int64_t offset = 0;  // elements into the bucket
    bool ready = false;  // in this step
  };
  // Gradients of one dtype, one behind the other.
  struct Bucket {
    DType dtype = DType::f32;
    int64_t numel = 0;
    std::vector<size_t> members;
    Tensor memory;
    size_t missing = 0;
    bool begun = false;
    Work work;
  };

  Impl(Group& g, const DataParallelOptions& o) : group(g), options(o) {}

  void make_buckets(const std::vector<size_t>& order);
  void begin_step();
  void arrived(size_t index);
  void take(Parameter& p);
  void begin_ready();
  void begin(Bucket& b);
  void finish();

  Group& group;
  DataParallelOptions options;
  Device device;
  std::vector<Parameter> parameters;
  std::vector<uint8_t> used_before;  // on any rank, in the step before
  std::mutex mutex;                  // hooks of one pass may run on several threads
  std::vector<Bucket> buckets;
  size_t next = 0;  // the bucket that travels next
  bool travels = true, in_step = false, ordered = false;
  std::vector<size_t> order;  // of arrival, in the first step
};

void DataParallel::Impl::make_buckets(const std::vector<size_t>& by_arrival) {
  buckets.clear();
  const memory::TagScope tag(memory::Tag::gradient);
  for (const size_t i : by_arrival) {
    Parameter& p = parameters[i];
    const int64_t bytes = p.data().nbytes();
    // The newest bucket of its dtype, where it has room.
    size_t b = buckets.size();
    for (size_t k = buckets.size(); k-- > 0;) {
      if (buckets[k].dtype != p.tensor.dtype()) continue;
      if (buckets[k].numel * static_cast<int64_t>(size_of(buckets[k].dtype)) + bytes <= options.bucket_bytes) b = k;
      break;
    }
    if (b == buckets.size()) {
      buckets.emplace_back();
      buckets[b].dtype = p.tensor.dtype();
    }
    p.bucket = b;
    p.offset = buckets[b].numel;
    buckets[b].numel += p.data().numel();
    buckets[b].members.push_back(i);
  }
  for (Bucket& b : buckets) b.memory = empty(TensorMeta{{b.numel}, b.dtype, device, std::nullopt});
}

void DataParallel::Impl::begin_step() {
  if (in_step) return;
  in_step = true;
  next = 0;
  for (Parameter& p : parameters) p.ready = false;
  for (Bucket& b : buckets) {
    b.missing = b.members.size();
    b.begun = false;
    b.work = Work();
  }
}

// A gradient is there. Its memory becomes the bucket's.
void DataParallel::Impl::arrived(size_t index) {
  const std::lock_guard lock(mutex);
  if (!travels) return;
  begin_step();
  Parameter& p = parameters[index];
  check(!p.ready, kOp, "the gradient of ", p.name,
        " came twice in one step: reduce_next(false) says that a pass is not the last");
  take(p);
  if (!ordered) order.push_back(index);
  begin_ready();
}

void DataParallel::Impl::take(Parameter& p) {
  NoGrad guard;
  Bucket& b = buckets[p.bucket];
  const Tensor slot = p.slot(b.memory), came = here(p.tensor.grad());
  // Where the gradients of the step before were kept, this pass has added to them in place.
  if (came.raw_data() != here(slot).raw_data()) copy_elements(here(slot), came);
  p.tensor.set_grad(slot);
  p.ready = true;
  --b.missing;
}

// In the buckets' order, which is the same in every rank.
void DataParallel::Impl::begin_ready() {
  while (next < buckets.size() && buckets[next].missing == 0) begin(buckets[next++]);
}

void DataParallel::Impl::begin(Bucket& b) {
  b.begun = true;
  Tensor memory = b.memory;
  b.work = group.start(device, cat("gradients ", next, " ", b.dtype, " [", b.numel, "]"),
                       [memory](Collectives& c) mutable {
                         c.all_reduce(memory.raw_data(), memory.numel(), memory.dtype(), Reduction::avg);
                       },
                       {memory});
}

void DataParallel::Impl::finish() {
  std::unique_lock lock(mutex);
  NoGrad guard;
  begin_step();
  // What got no gradient here may have got one elsewhere.
  std::vector<uint8_t> used(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& p = parameters[i];
    if (!p.ready && p.tensor.grad().defined()) take(p);  // of a pass before the last
    used[i] = p.ready;
    if (p.ready) continue;
    Bucket& b = buckets[p.bucket];
    fill_elements(b.memory.narrow(0, p.offset, p.data().numel()), 0.0);
    --b.missing;
  }
  begin_ready();
  for (Bucket& b : buckets) b.work.wait();
  used = agreed_use(kOp, std::move(used), used_before, {&group}, [&](size_t i) { return parameters[i].name; });
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& p = parameters[i];
    if (p.ready || used[i] == 0) continue;
    p.tensor.set_grad(p.slot(buckets[p.bucket].memory));
  }
  in_step = false;
  if (ordered) return;
  ordered = true;
  // Gradients of this step keep the memory that they are in.
  make_buckets(agreed_order(std::exchange(order, {}), parameters.size(), group));
  if (device.is_cpu()) return;
  // Of zeros, for nothing: what cards connect at the first use of a size is not captured then.
  for (next = 0; next < buckets.size(); ++next) {
    fill_elements(buckets[next].memory, 0.0);
    begin(buckets[next]);
    buckets[next].work.wait();
  }
}

DataParallel::DataParallel(const Parameters& parameters, Group& group, const DataParallelOptions& options)
    : impl_(std::make_unique<Impl>(group, options)) {
  check(options.bucket_bytes > 0, kOp, "bucket_bytes must be positive, got ", options.bucket_bytes);
  Parameters trained;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    if (impl_->parameters.empty()) impl_->device = tensor.device();
    check<DeviceError>(tensor.device() == impl_->device, kOp, name, " is on ", tensor.device(), ", ",
                       impl_->parameters.empty() ? name : impl_->parameters[0].name, " on ", impl_->device,
                       ": all parameters of a rank must be on one device");
    impl_->parameters.push_back({name, tensor, {}});
    trained.emplace_back(name, tensor);
  }
  check_same_parameters(kOp, trained, group);
  broadcast_parameters(trained, group);
  std::vector<size_t> order(impl_->parameters.size());
  // Backward meets the last first, as a guess.
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  impl_->make_buckets(order);
  for (size_t i = 0; i < order.size(); ++i) {
    impl_->parameters[i].hook = register_post_accumulate_grad_hook(
        impl_->parameters[i].tensor, [impl = impl_.get(), i](const Tensor&) { impl->arrived(i); });
  }
}

DataParallel::~DataParallel() {
  for (Impl::Parameter& p : impl_->parameters) p.hook.remove();
}

void DataParallel::reduce_next(bool yes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->travels = yes;
}
void DataParallel::finish() {
  impl_->finish();
}
int64_t DataParallel::buckets() const {
  return static_cast<int64_t>(impl_->buckets.size());
}

}  // namespace strata::distributed
