#include "strata/dist/exact_gradients.h"

#include <algorithm>
#include <mutex>
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

using strata::detail::here;  // of a sharded parameter its part: the group's ranks have the same

constexpr std::string_view kOp = "ExactGradients";

Places share_of(int64_t micro_batches, int64_t ranks, int64_t rank) {
  const int64_t each = micro_batches / ranks;
  return {rank * each, each};
}

// into += from, in into's dtype.
void add_to(const Tensor& into, const Tensor& from) {
  Tensor sum = into;
  sum.add_(from.dtype() == into.dtype() ? from : from.to(into.dtype()));
}

// The parts' sum in their tree. On the host in one pass over memory, elsewhere over the parts.
void add_up(TensorList& parts, const std::vector<int64_t>& additions, const Tensor& into) {
  if (into.device().is_cpu()) {
    std::vector<const void*> at;
    for (const Tensor& t : parts) at.push_back(t.raw_data());
    return add_in_tree(into.dtype(), at, additions, into.raw_data(), into.numel());
  }
  size_t held = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    parts[held++] = parts[p];
    for (int64_t left = additions[p]; left > 0; --left) {
      --held;
      add_to(parts[held - 1], parts[held]);
    }
  }
  copy_elements(into, parts[0]);
}

}  // namespace

struct ExactGradients::Impl {
  struct Parameter {
    std::string name;
    Tensor tensor;
    size_t kind = 0;     // of sums
    int64_t offset = 0;  // elements into them
    bool came = false;   // of the last micro-batch, into the sums
    HookHandle hook;
  };
  // The elements of all parameters whose gradients are added in one dtype, one behind the other.
  struct Kind {
    DType dtype = DType::f32;
    int64_t numel = 0;
  };
  // Of a micro-batch or several: a tensor for each kind.
  using Sums = TensorList;
  // A stretch of one kind's elements, and what comes of it from the ranks.
  struct Exchange {
    size_t kind = 0;
    int64_t begin = 0, count = 0, each = 0;  // each: elements that one rank adds up, the last ones fewer
    size_t missing = 0;                       // parameters of which the last micro-batch's gradient has not come
    Tensor sent, received, gathered;
    Work work;
  };

  Impl(Group* g, int64_t micro_batches)
      : group(g),
        ranks(g ? g->size() : 1),
        rank(g ? g->rank() : 0),
        own(share_of(micro_batches, ranks, rank)),
        tree(micro_batches) {
    for (int64_t r = 0; r < ranks; ++r) {
      std::vector<Places> nodes = tree.nodes_within(share_of(micro_batches, ranks, r));
      sums_of.push_back(static_cast<int64_t>(nodes.size()));
      if (r == rank)
        for (const Places& n : nodes) {
          const std::vector<int64_t> times = tree.additions(n);
          additions.insert(additions.end(), times.begin(), times.end());
        }
      all.insert(all.end(), nodes.begin(), nodes.end());
    }
  }

  void arrived(size_t index);
  void add();
  void finish();
  void begin_micro();
  void take(size_t index);
  Sums empty_sums() const;
  Tensor slot(const Sums& sums, const Parameter& p) const {
    const Tensor& own = here(p.tensor);
    return sums[p.kind].narrow(0, p.offset, own.numel()).view(own.shape());
  }
  std::vector<Exchange> cut() const;
  template <class F>
  void each_exchange(const Parameter& p, F&& act);
  void advance();
  void begin(size_t number);
  void add_parts(size_t number);
  void end(size_t number);
  // Elements of the stretch that rank r adds up.
  static int64_t part(const Exchange& e, int64_t r) { return std::clamp<int64_t>(e.count - r * e.each, 0, e.each); }

  Group* group;
  int64_t ranks, rank;
  Places own;  // this rank's micro-batches
  SumTree tree;
  std::vector<Places> all;         // nodes that the ranks add up alone, by rank
  std::vector<int64_t> sums_of;    // how many of them each rank has
  std::vector<int64_t> additions;  // behind each micro-batch of this rank
  int64_t bucket_bytes = 0;
  Device device;
  std::vector<Parameter> parameters;
  std::vector<Kind> kinds;
  std::vector<uint8_t> used, used_before;
  std::vector<Sums> held;  // the newest last
  int64_t added = 0;
  std::mutex mutex;  // hooks of one pass may run on several threads
  bool in_micro = false, fresh = false, travels = false;
  size_t left_over = 0;  // of held, behind the micro-batch that is being added
  std::vector<Exchange> exchanges;
  size_t begun = 0;  // of them, from the last on
};

ExactGradients::Impl::Sums ExactGradients::Impl::empty_sums() const {
  const memory::TagScope tag(memory::Tag::gradient);
  Sums sums;
  for (const Kind& k : kinds) sums.push_back(empty(TensorMeta{{k.numel}, k.dtype, device, std::nullopt}));
  return sums;
}

// What is added next goes straight into the newest sum.
void ExactGradients::Impl::begin_micro() {
  if (in_micro) return;
  check(added < own.count, kOp, "this rank has ", own.count, " micro-batches of the step, and all have come");
  in_micro = true;
  const int64_t left = additions[static_cast<size_t>(added)];
  fresh = left == 0;
  if (fresh) held.push_back(empty_sums());
  left_over = held.size() - static_cast<size_t>(std::max<int64_t>(left - 1, 0));
  for (Parameter& p : parameters) p.came = false;
  if (!group || added + 1 < own.count) return;
  exchanges = cut();
  begun = 0;
  for (const Parameter& p : parameters) each_exchange(p, [](Exchange& e) { ++e.missing; });
}

// A parameter's gradient, or that there is none: into the newest sum, and from there into those before it that the tree
// has it added to.
void ExactGradients::Impl::take(size_t index) {
  Parameter& p = parameters[index];
  const Tensor g = here(p.tensor.grad()), into = slot(held.back(), p);
  if (g.defined()) used[index] = 1;
  if (fresh && g.defined())
    Tensor(into).copy_(g);
  else if (fresh)
    fill_elements(into, 0.0);
  else if (g.defined())
    add_to(into, g);
  else
    Tensor(into).add_(0.0);  // what -0 and the zeros of a rank's own sum would give
  p.tensor.set_grad({});
  for (size_t k = held.size(); k-- > left_over;) add_to(slot(held[k - 1], p), slot(held[k], p));
  p.came = true;
  if (group && added + 1 == own.count) each_exchange(p, [](Exchange& e) { --e.missing; });
}

// In the backward pass of the last micro-batch.
void ExactGradients::Impl::arrived(size_t index) {
  const std::lock_guard lock(mutex);
  if (!travels || added + 1 != own.count) return;
  const NoGrad guard;
  begin_micro();
  check(!parameters[index].came, kOp, "the gradient of ", parameters[index].name,
        " came twice in one micro-batch: reduce_next() says that one backward pass gives all of it");
  take(index);
  advance();
}

void ExactGradients::Impl::add() {
  const std::lock_guard lock(mutex);
  const NoGrad guard;
  begin_micro();
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].came) take(i);
  held.resize(left_over);
  ++added;
  in_micro = travels = false;
}

// What lies in a stretch of the elements of `p`.
template <class F>
void ExactGradients::Impl::each_exchange(const Parameter& p, F&& act) {
  const int64_t end = p.offset + here(p.tensor).numel();
  for (Exchange& e : exchanges)
    if (e.kind == p.kind && e.begin < end && p.offset < e.begin + e.count) act(e);
}

std::vector<ExactGradients::Impl::Exchange> ExactGradients::Impl::cut() const {
  std::vector<Exchange> exchanges;
  for (size_t k = 0; k < kinds.size(); ++k) {
    const int64_t most = std::max<int64_t>(bucket_bytes / size_of(kinds[k].dtype), 1);
    for (int64_t at = 0; at < kinds[k].numel; at += most) {
      Exchange e;
      e.kind = k;
      e.begin = at;
      e.count = std::min(most, kinds[k].numel - at);
      e.each = (e.count + ranks - 1) / ranks;
      exchanges.push_back(std::move(e));
    }
  }
  return exchanges;
}

// Begins what is complete. Backward comes to what was made first last, so stretches travel from the last on, in every
// rank: one's parts come while the one's before it are added up, and the sums of the one before that come back.
void ExactGradients::Impl::advance() {
  while (begun < exchanges.size() && exchanges[exchanges.size() - 1 - begun].missing == 0) {
    begin(begun++);
    if (begun > 1) add_parts(begun - 2);
    if (begun > 2) end(begun - 3);
  }
}

// Each rank's part of each of this rank's sums goes to it.
void ExactGradients::Impl::begin(size_t number) {
  Exchange& e = exchanges[exchanges.size() - 1 - number];
  const memory::TagScope tag(memory::Tag::gradient);
  const DType dtype = kinds[e.kind].dtype;
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements * size_of(dtype)); };
  const auto make = [&](int64_t n) { return empty(TensorMeta{{n}, dtype, device, std::nullopt}); };
  std::vector<size_t> to, from;
  int64_t coming = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    to.push_back(bytes(part(e, r) * sums_of[static_cast<size_t>(rank)]));
    from.push_back(bytes(part(e, rank) * sums_of[static_cast<size_t>(r)]));
    coming += part(e, rank) * sums_of[static_cast<size_t>(r)];
  }
  if (left_over == 1) {
    e.sent = held[0][e.kind].narrow(0, e.begin, e.count);
  } else {
    e.sent = make(e.count * static_cast<int64_t>(left_over));
    int64_t at = 0;
    for (int64_t r = 0; r < ranks; ++r)
      for (size_t s = 0; s < left_over; ++s) {
        const int64_t n = part(e, r);
        if (n > 0) copy_elements(e.sent.narrow(0, at, n), held[s][e.kind].narrow(0, e.begin + r * e.each, n));
        at += n;
      }
  }
  e.received = make(coming);
  e.work = group->start(device, cat("exact gradients ", number, " ", dtype, " [", e.count, "] of ", all.size()),
                        [sent = e.sent, received = e.received, to, from](Collectives& c) {
                          c.all_to_all(received.raw_data(), from, sent.raw_data(), to);
                        },
                        {e.sent, e.received});
}

// This rank's part of the tree's root goes to the others, theirs come beside it.
void ExactGradients::Impl::add_parts(size_t number) {
  Exchange& e = exchanges[exchanges.size() - 1 - number];
  std::exchange(e.work, Work()).wait();
  e.sent = {};
  const memory::TagScope tag(memory::Tag::gradient);
  const DType dtype = kinds[e.kind].dtype;
  e.gathered = empty(TensorMeta{{e.each * ranks}, dtype, device, std::nullopt});
  if (const int64_t n = part(e, rank); n > 0) {
    const std::vector<int64_t> times = tree.additions({0, ranks * own.count}, all);
    TensorList sums;
    for (size_t i = 0; i < times.size(); ++i) sums.push_back(e.received.narrow(0, static_cast<int64_t>(i) * n, n));
    add_up(sums, times, e.gathered.narrow(0, rank * e.each, n));
  }
  e.received = {};
  const auto bytes = static_cast<size_t>(e.each * size_of(dtype));
  e.work = group->start(device, cat("exact sums ", number, " ", dtype, " [", e.count, "]"),
                        [gathered = e.gathered, bytes](Collectives& c) {
                          auto* const at = static_cast<std::byte*>(gathered.raw_data());
                          c.all_gather(at, at + static_cast<size_t>(c.rank()) * bytes, bytes);
                        },
                        {e.gathered});
}

// Over the first of the sums.
void ExactGradients::Impl::end(size_t number) {
  Exchange& e = exchanges[exchanges.size() - 1 - number];
  std::exchange(e.work, Work()).wait();
  copy_elements(held[0][e.kind].narrow(0, e.begin, e.count), e.gathered.narrow(0, 0, e.count));
  e.gathered = {};
}

void ExactGradients::Impl::finish() {
  check(added == own.count, kOp, "this rank has ", own.count, " micro-batches of the step, and ", added, " have come");
  const NoGrad guard;
  if (group) {
    advance();
    const size_t n = exchanges.size();
    if (n > 0) add_parts(n - 1);
    if (n > 1) end(n - 2);
    if (n > 0) end(n - 1);
    exchanges.clear();
    used = agreed_use(kOp, std::move(used), used_before, {group}, [&](size_t i) { return parameters[i].name; });
  }
  const Sums sums = std::move(held[0]);
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& p = parameters[i];
    if (!used[i]) continue;
    const memory::TagScope tag(memory::Tag::gradient);
    Tensor sum = slot(sums, p);
    if (sum.dtype() != p.tensor.dtype()) sum = sum.to(p.tensor.dtype());
    p.tensor.set_grad(is_placed(p.tensor) ? strata::detail::place(sum, p.tensor.meta(), layout_of(p.tensor)) : sum);
  }
  held.clear();
  used.assign(parameters.size(), 0);
  added = 0;
}

ExactGradients::ExactGradients(const Parameters& parameters, Group* group, int64_t micro_batches,
                               const ExactGradientsOptions& options) {
  const int64_t ranks = group ? group->size() : 1;
  check(micro_batches > 0 && micro_batches % ranks == 0, kOp, "there are ", micro_batches, " micro-batches, which ",
        ranks, ranks == 1 ? " rank does" : " ranks do", " not share evenly");
  check(options.bucket_bytes > 0, kOp, "bucket_bytes must be positive, got ", options.bucket_bytes);
  impl_ = std::make_unique<Impl>(group && ranks > 1 ? group : nullptr, micro_batches);
  impl_->bucket_bytes = options.bucket_bytes;
  Parameters trained;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    if (impl_->parameters.empty()) impl_->device = tensor.device();
    check<DeviceError>(tensor.device() == impl_->device, kOp, name, " is on ", tensor.device(), ", ",
                       impl_->parameters.empty() ? name : impl_->parameters[0].name, " on ", impl_->device,
                       ": all parameters of a rank must be on one device");
    const DType dtype = tensor.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const auto kind = std::ranges::find(impl_->kinds, dtype, &Impl::Kind::dtype);
    const auto k = static_cast<size_t>(kind - impl_->kinds.begin());
    if (kind == impl_->kinds.end()) impl_->kinds.push_back({dtype, 0});
    impl_->parameters.push_back({.name = name, .tensor = tensor, .kind = k, .offset = impl_->kinds[k].numel});
    impl_->kinds[k].numel += here(tensor).numel();
    trained.emplace_back(name, tensor);
  }
  impl_->used.assign(trained.size(), 0);
  if (!impl_->group) return;
  check_same_parameters(kOp, trained, *group);
  broadcast_parameters(trained, *group);
  for (size_t i = 0; i < impl_->parameters.size(); ++i)
    impl_->parameters[i].hook = register_post_accumulate_grad_hook(
        impl_->parameters[i].tensor, [impl = impl_.get(), i](const Tensor&) { impl->arrived(i); });
}
ExactGradients::~ExactGradients() {
  for (Impl::Parameter& p : impl_->parameters) p.hook.remove();
}

int64_t ExactGradients::first() const {
  return impl_->own.begin;
}
int64_t ExactGradients::count() const {
  return impl_->own.count;
}
void ExactGradients::begin() {
  impl_->exchanges.clear();  // of a step that has failed
  impl_->held.clear();
  impl_->added = 0;
  impl_->in_micro = impl_->travels = false;
  impl_->used.assign(impl_->parameters.size(), 0);
  for (Impl::Parameter& p : impl_->parameters) p.tensor.set_grad({});
}
void ExactGradients::reduce_next() {
  const std::lock_guard lock(impl_->mutex);
  impl_->travels = impl_->group != nullptr;
}
void ExactGradients::add() {
  impl_->add();
}
void ExactGradients::finish() {
  impl_->finish();
}
int64_t ExactGradients::sums_held(int64_t micro_batches, int64_t ranks) {
  check(ranks > 0 && micro_batches > 0 && micro_batches % ranks == 0, kOp, "there are ", micro_batches,
        " micro-batches, which ", ranks, " ranks do not share evenly");
  int64_t most = 0;
  for (int64_t r = 0; r < ranks; ++r)
    most = std::max(most, SumTree(micro_batches).most_held(share_of(micro_batches, ranks, r)));
  return most;
}

int64_t ExactGradients::sums_kept(int64_t micro_batches, int64_t ranks) {
  check(ranks > 0 && micro_batches > 0 && micro_batches % ranks == 0, kOp, "there are ", micro_batches,
        " micro-batches, which ", ranks, " ranks do not share evenly");
  size_t most = 0;
  for (int64_t come = ranks; come < micro_batches; come += ranks)
    most = std::max(most, SumTree(micro_batches).nodes_within({0, come}).size());
  return static_cast<int64_t>(most);
}

}  // namespace strata::distributed
