#include "strata/dist/sharded_gradients_inl.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "strata/autograd/hooks.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/dist/parts_inl.h"
#include "strata/dist/sum_tree_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using strata::detail::here;

constexpr std::string_view kOp = "FullySharded";

}  // namespace

struct ShardedGradients::Impl {
  struct Parameter {
    std::string name;
    Tensor tensor;
    Cut cut;  // none where every rank gets the whole
    HookHandle hook;
    size_t bucket = 0;
    std::vector<int64_t> offsets;        // of each rank's part, elements into the bucket
    Tensor gradient;                     // until it is in its bucket
    bool ready = false;                  // in this pass
    bool used = false;                   // in this step
    std::shared_ptr<RowGradients> rows;  // it has a bucket of its own then
    Tensor part;                         // of this step's average
    // Of rank r's elements.
    int64_t begin(int r) const { return cut.begins.empty() ? 0 : cut.begin(r); }
    int64_t numel(int r) const { return cut.begins.empty() ? here(tensor).numel() : cut.numel(r); }
    // Whether all ranks get as much of it.
    bool is_even() const { return !cut.begins.empty() && cut.even(); }
    // Of rank r's part. By numbers alone: a view of a parameter that lies with the ranks would bring it.
    Shape shape(int r) const {
      Shape of = here(tensor).shape();
      if (!cut.begins.empty()) of[0] = cut.rows(of[0], r);
      return of;
    }
  };
  // Rank 0's parts of all members, then rank 1's: stretches of one length, which is rank 0's, whose parts are largest.
  // While another one travels it has no memory: its gradients stay where they are. One gradient alone whose rows divide
  // evenly is its bucket.
  struct Bucket {
    DType dtype = DType::f32;
    std::vector<size_t> members;
    int64_t bytes = 0;    // of the gradients
    int64_t stretch = 0;  // elements
    size_t missing = 0;
    bool stays = false;   // in this pass: no rank has any of it
    bool stayed = false;  // in the pass before
    Tensor memory;        // until it travels
    Tensor own;           // this rank's stretch of the averages; of micro-batches each rank's of it
    TensorList sums;      // of micro-batches: this rank's stretch of what the tree has added up, the newest last
    Work work;
  };

  Impl(Group& g, const Options& o) : group(g), options(o) {
    if (o.micro_batches > 0) additions = SumTree(o.micro_batches).additions({0, o.micro_batches});
  }

  void make_buckets(const std::vector<size_t>& order);
  // Of the bucket that fills while this one travels.
  int64_t bytes_behind(size_t index) const {
    return index + 1 < buckets.size() && !buckets[index + 1].stayed ? buckets[index + 1].bytes : 0;
  }
  void make_room();
  void begin_pass();
  void arrived(size_t index);
  void take(size_t index);
  bool is_one(const Bucket& b) const;
  void fill(Bucket& b);
  void begin_ready();
  void begin(size_t index);
  void collect();
  void add_micro(Bucket& b, const Tensor& all);
  void add_part(Parameter& p, const Tensor& part);
  void settle_rows();
  bool may_have_rows() const {
    return std::ranges::any_of(parameters, [](const Parameter& p) { return p.rows && p.rows->may_have(); });
  }
  void end_pass();
  // In which gradients travel.
  DType dtype_of(const Tensor& t) const {
    return additions.empty() || t.dtype() == DType::f64 ? t.dtype() : DType::f32;
  }
  std::vector<Tensor> finish();

  Group& group;
  Options options;
  Device device;
  std::vector<Parameter> parameters;
  std::vector<uint8_t> used_before;  // on any rank, in the step before
  std::mutex mutex;                  // hooks of one pass may run on several threads
  std::vector<Bucket> buckets;
  size_t next = 0;              // the bucket that travels next
  size_t late = 0;              // this one and those behind it travel when the pass ends, if rows are not all that came
  bool ending = false;          // it does
  std::deque<size_t> underway;  // buckets
  int64_t underway_bytes = 0;
  int64_t most_bytes = 0;  // of two that follow each other: what there is room for
  bool travels = true, in_pass = false, ordered = false;
  std::vector<int64_t> additions;  // of micro-batches, behind each of all ranks'
  bool in_micro = false;           // reduce_next() has told of one
  int64_t micro = 0;               // those of this rank that have come
  std::vector<size_t> order;       // of arrival, in the first step
};

void ShardedGradients::Impl::make_buckets(const std::vector<size_t>& by_arrival) {
  buckets.clear();
  for (const size_t i : by_arrival) {
    Parameter& p = parameters[i];
    const DType dtype = dtype_of(p.tensor);
    const int64_t bytes = here(p.tensor).numel() * size_of(dtype);
    // The newest bucket of its dtype, where it has room.
    size_t b = buckets.size();
    for (size_t k = buckets.size(); k-- > 0 && !p.rows;) {
      if (buckets[k].dtype != dtype || parameters[buckets[k].members[0]].rows) continue;
      if (buckets[k].bytes + bytes <= options.bucket_bytes) b = k;
      break;
    }
    if (b == buckets.size()) buckets.emplace_back().dtype = dtype;
    p.bucket = b;
    buckets[b].bytes += bytes;
    buckets[b].stretch += p.numel(0);
    buckets[b].members.push_back(i);
  }
  late = buckets.size();
  while (late > 0 && parameters[buckets[late - 1].members[0]].rows) --late;
  make_room();
  for (const Bucket& b : buckets) {
    for (int r = 0; r < group.size(); ++r) {
      int64_t at = b.stretch * r;
      for (const size_t i : b.members) {
        parameters[i].offsets.resize(static_cast<size_t>(group.size()));
        parameters[i].offsets[static_cast<size_t>(r)] = at;
        at += parameters[i].numel(r);
      }
    }
  }
}

// Of buckets that travel, as the pass before went.
void ShardedGradients::Impl::make_room() {
  most_bytes = 0;
  for (size_t i = 0; i < buckets.size(); ++i)
    if (!buckets[i].stayed) most_bytes = std::max(most_bytes, buckets[i].bytes + bytes_behind(i));
}

void ShardedGradients::Impl::begin_pass() {
  if (in_pass) return;
  in_pass = true;
  next = 0;
  for (Parameter& p : parameters) p.ready = false;
  for (Bucket& b : buckets) {
    b.missing = b.members.size();
    b.stayed = std::exchange(b.stays, false);
  }
  make_room();
}

void ShardedGradients::Impl::arrived(size_t index) {
  const std::lock_guard lock(mutex);
  if (!travels) return;
  Parameter& p = parameters[index];
  check(additions.empty() || in_micro, kOp, "the gradient of ", p.name,
        " came, and reduce_next() has told of no micro-batch");
  begin_pass();
  check(!p.ready, kOp, "the gradient of ", p.name,
        " came twice in one pass: reduce_next() says that the next one begins");
  take(index);
  if (!ordered) order.push_back(index);
  begin_ready();
}

// A gradient is complete.
void ShardedGradients::Impl::take(size_t index) {
  Parameter& p = parameters[index];
  p.gradient = here(p.tensor.grad());
  p.tensor.set_grad(Tensor());
  p.ready = p.used = true;
  --buckets[p.bucket].missing;
  if (p.bucket == next && underway.empty()) fill(buckets[next]);
}

// Whether the ranks' stretches are the rows of one gradient, one behind the other.
bool ShardedGradients::Impl::is_one(const Bucket& b) const {
  return b.members.size() == 1 && parameters[b.members[0]].is_even();
}

// The gradients that there are go to their places: rows to their ranks' stretches.
void ShardedGradients::Impl::fill(Bucket& b) {
  NoGrad guard;
  if (is_one(b) && !b.memory.defined()) {
    Tensor& g = parameters[b.members[0]].gradient;
    if (g.defined() && g.dtype() == b.dtype) {
      b.memory = std::exchange(g, Tensor()).contiguous().view({b.stretch * group.size()});
      return;
    }
  }
  if (!b.memory.defined()) {
    const memory::TagScope tag(memory::Tag::gradient);
    b.memory = empty(TensorMeta{{b.stretch * group.size()}, b.dtype, device, std::nullopt});
    // What is missing counts as zero, and so does what fills up stretches.
    const bool covered = std::ranges::all_of(
        b.members, [&](size_t i) { return parameters[i].is_even() && parameters[i].gradient.defined(); });
    if (!covered) fill_elements(b.memory, 0.0);
  }
  for (const size_t i : b.members) {
    Parameter& p = parameters[i];
    if (!p.gradient.defined()) continue;
    Tensor flat = std::exchange(p.gradient, Tensor()).contiguous().view({here(p.tensor).numel()});
    if (flat.dtype() != b.dtype) flat = flat.to(b.dtype);
    for (int r = 0; r < group.size(); ++r) {
      if (p.numel(r) == 0) continue;
      copy_elements(b.memory.narrow(0, p.offsets[static_cast<size_t>(r)], p.numel(r)),
                    flat.narrow(0, p.begin(r), p.numel(r)));
    }
  }
}

// In the buckets' order, which is the same in every rank.
void ShardedGradients::Impl::begin_ready() {
  const size_t end = ending ? buckets.size() : late;
  while (next < end && buckets[next].missing == 0) {
    const size_t index = next++;
    if (!buckets[index].stays) begin(index);
  }
}

void ShardedGradients::Impl::begin(size_t index) {
  Bucket& b = buckets[index];
  // As many as travel beside the next one's gradients in the room of the two largest neighbours: backward does not wait
  // for a large one where small ones follow. Gradients that are copied to a bucket are there twice meanwhile, and
  // micro-batches' parts take as much again where they arrive: those go one at a time.
  const int64_t more = (is_one(b) ? 1 : 2) * b.bytes + bytes_behind(index);
  while (!underway.empty() && (!additions.empty() || underway_bytes + more > most_bytes)) collect();
  underway_bytes += b.bytes;
  const memory::TagScope tag(memory::Tag::gradient);
  fill(b);
  const Tensor memory = std::exchange(b.memory, Tensor());
  const int64_t ranks = group.size();
  b.own = empty(TensorMeta{{additions.empty() ? b.stretch : b.stretch * ranks}, b.dtype, device, std::nullopt});
  if (!additions.empty()) {
    const std::vector<size_t> each(static_cast<size_t>(ranks), static_cast<size_t>(b.stretch * size_of(b.dtype)));
    b.work = group.start(
        device, cat("parts of micro-batches ", index, " ", b.dtype, " [", memory.numel(), "]"),
        [memory, own = b.own, each](Collectives& c) { c.all_to_all(own.raw_data(), each, memory.raw_data(), each); },
        {memory, b.own});
    underway.push_back(index);
    return;
  }
  b.work = group.start(device, cat("parts of gradients ", index, " ", b.dtype, " [", memory.numel(), "]"),
                       [memory, own = b.own](Collectives& c) {
                         c.reduce_scatter(own.raw_data(), memory.raw_data(), own.numel(), own.dtype(), Reduction::avg);
                       },
                       {memory, b.own});
  underway.push_back(index);
}

// Waits for the oldest bucket under way.
void ShardedGradients::Impl::collect() {
  NoGrad guard;
  Bucket& b = buckets[underway.front()];
  underway.pop_front();
  underway_bytes -= b.bytes;
  std::exchange(b.work, Work()).wait();
  const Tensor own = std::exchange(b.own, Tensor());
  if (!additions.empty()) return add_micro(b, own);
  if (options.replicas) {
    options.replicas->run(
        device, cat("replicas' gradients ", own.dtype(), " [", own.numel(), "]"),
        [&](Collectives& c) { c.all_reduce(own.raw_data(), own.numel(), own.dtype(), Reduction::avg); });
  }
  int64_t at = 0;
  for (const size_t i : b.members) {
    Parameter& p = parameters[i];
    const int64_t n = p.cut.numel(group.rank());
    const Tensor part = own.narrow(0, at, n).view(p.shape(group.rank()));
    at += n;
    add_part(p, part);
  }
}

void ShardedGradients::Impl::add_part(Parameter& p, const Tensor& part) {
  if (p.part.defined())
    p.part.add_(part);
  else
    p.part = part;
}

// Every rank's micro-batch of this pass, this rank's stretch of each, in the order of their numbers.
void ShardedGradients::Impl::add_micro(Bucket& b, const Tensor& all) {
  const memory::TagScope tag(memory::Tag::gradient);
  const size_t before = b.sums.size();
  for (int64_t r = 0; r < group.size(); ++r) {
    b.sums.push_back(all.narrow(0, r * b.stretch, b.stretch));
    for (int64_t left = additions[static_cast<size_t>(micro * group.size() + r)]; left > 0; --left) {
      const Tensor newest = b.sums.back();
      b.sums.pop_back();
      b.sums.back().add_(newest);
    }
  }
  // What stays does not hold the memory of the others'.
  for (size_t i = before; i < b.sums.size(); ++i) b.sums[i] = b.sums[i].clone();
}

void ShardedGradients::Impl::end_pass() {
  begin_pass();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].ready) continue;
    if (parameters[i].tensor.grad().defined()) {
      take(i);  // of an earlier pass
    } else {
      --buckets[parameters[i].bucket].missing;  // it may have come elsewhere
    }
  }
  begin_ready();
  // No rank waits for another here before it has begun what others may wait for.
  settle_rows();
  ending = true;
  begin_ready();
  ending = false;
  while (!underway.empty()) collect();
  in_pass = false;
  if (additions.empty()) return;
  in_micro = false;
  ++micro;
}

void ShardedGradients::Impl::settle_rows() {
  const NoGrad guard;
  for (Parameter& p : parameters) {
    if (!p.rows || !p.rows->may_have()) continue;
    const RowGradients::Settled settled = p.rows->settle(p.ready);
    if (!settled.part.defined()) continue;
    p.used = true;
    buckets[p.bucket].stays = p.bucket >= late && !settled.whole;
    add_part(p, settled.part);
  }
}

std::vector<Tensor> ShardedGradients::Impl::finish() {
  const std::lock_guard lock(mutex);
  if (additions.empty() || in_micro) end_pass();
  if (!additions.empty()) {
    const int64_t own = options.micro_batches / group.size();
    check(micro == own, kOp, "this rank has ", own, " micro-batches of the step, and ", micro, " have come");
    micro = 0;
    const NoGrad guard;
    for (Bucket& b : buckets) {
      const TensorList sums = std::exchange(b.sums, {});
      for (const size_t i : b.members) {
        Parameter& p = parameters[i];
        const int rank = group.rank();
        const Tensor sum = sums[0].narrow(0, p.offsets[static_cast<size_t>(rank)] - b.stretch * rank, p.numel(rank));
        p.part = sum.view(p.shape(rank));
        if (p.part.dtype() != p.tensor.dtype()) p.part = p.part.to(p.tensor.dtype());
      }
    }
  }
  std::vector<uint8_t> used;
  for (Parameter& p : parameters) used.push_back(std::exchange(p.used, false));
  std::vector<Group*> groups{&group};
  if (options.replicas) groups.push_back(options.replicas);
  used = agreed_use(kOp, std::move(used), used_before, groups, [&](size_t i) { return parameters[i].name; });
  std::vector<Tensor> parts;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor part = std::exchange(parameters[i].part, Tensor());
    parts.push_back(used[i] ? std::move(part) : Tensor());
  }
  if (!ordered) {
    ordered = true;
    // What may not come as a whole is last.
    for (const bool by_rows : {false, true})
      for (size_t i = 0; i < parameters.size(); ++i)
        if ((parameters[i].rows != nullptr) == by_rows && std::ranges::find(order, i) == order.end())
          order.push_back(i);
    make_buckets(agreed_order(std::exchange(order, {}), parameters.size(), group));
  }
  return parts;
}

ShardedGradients::ShardedGradients(const std::vector<std::pair<std::string, Tensor>>& parameters, Group& group,
                                   const Options& options)
    : impl_(std::make_unique<Impl>(group, options)) {
  check(options.bucket_bytes > 0, kOp, "bucket_bytes must be positive, got ", options.bucket_bytes);
  check(options.micro_batches % group.size() == 0, kOp, "there are ", options.micro_batches, " micro-batches, which ",
        group.size(), " ranks do not share evenly");
  for (const auto& [name, tensor] : parameters) {
    impl_->device = tensor.device();
    impl_->parameters.push_back({.name = name, .tensor = tensor});
    if (tensor.dim() > 0) impl_->parameters.back().cut = Cut(here(tensor).shape(), group.size());
    const auto rows = options.by_rows.find(name);
    if (rows != options.by_rows.end()) impl_->parameters.back().rows = rows->second;
  }
  std::vector<size_t> order(impl_->parameters.size());
  // Backward meets the last first, as a guess.
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  const auto joined = [&](size_t i) {
    return std::ranges::find(options.joined, impl_->parameters[i].name) != options.joined.end();
  };
  std::ranges::stable_partition(order, [&](size_t i) { return !joined(i); });  // the others do not wait for them
  std::ranges::stable_partition(order, [&](size_t i) { return !impl_->parameters[i].rows; });
  impl_->make_buckets(order);
  for (size_t i = 0; i < order.size(); ++i) {
    if (joined(i)) continue;
    impl_->parameters[i].hook = register_post_accumulate_grad_hook(
        impl_->parameters[i].tensor, [impl = impl_.get(), i](const Tensor&) { impl->arrived(i); });
  }
}

ShardedGradients::~ShardedGradients() {
  for (Impl::Parameter& p : impl_->parameters) p.hook.remove();
}

void ShardedGradients::reduce_next(bool yes) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->options.micro_batches > 0) {
    if (impl_->in_micro) impl_->end_pass();
    const int64_t own = impl_->options.micro_batches / impl_->group.size();
    check(impl_->micro < own, kOp, "this rank has ", own, " micro-batches of the step, and all have come");
    impl_->in_micro = true;
  } else if (impl_->options.every_pass) {
    if (impl_->in_pass || impl_->may_have_rows()) impl_->end_pass();
    impl_->travels = true;
  } else {
    impl_->travels = yes;
  }
}

void ShardedGradients::add_next() {
  const std::lock_guard lock(impl_->mutex);
  impl_->travels = false;
}

void ShardedGradients::settle() {
  const std::lock_guard lock(impl_->mutex);
  while (!impl_->underway.empty()) impl_->collect();
}

std::vector<Tensor> ShardedGradients::finish() {
  return impl_->finish();
}

}  // namespace strata::distributed
