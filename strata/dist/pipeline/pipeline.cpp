#include "strata/dist/pipeline/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <utility>

#include "strata/autograd/autograd.h"
#include "strata/autograd/split_backward.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/factory/factory.h"

namespace strata::distributed::pipeline {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kOp = "pipeline";

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Messages of a kind to one stage.
uint64_t channel_to(int stage, Pass pass) {
  return 2 * static_cast<uint64_t>(stage) + (pass == Pass::forward ? 0 : 1);
}

std::string numbered(const TensorMeta& t) {
  return cat(t.dtype, ' ', t.shape);
}

}  // namespace

void StageWork::before_gradients(const Action&) {}
void StageWork::after_gradients(const Action&) {}
TensorList StageWork::never_late(int) {
  return {};
}

struct Pipeline::Impl {
  // A message under way. Its transfer ends before its memory.
  struct Message {
    Tensor tensor;
    std::unique_ptr<Transfer> transfer;
  };
  // What comes to one of this rank's stages from another rank, in order.
  struct Inbox {
    int from = 0;
    size_t asked = 0, wanted = 0;
    std::deque<Message> messages;
  };
  struct Outbox {
    int to = 0;
    std::deque<Message> messages;
  };
  // A micro-batch at a stage, between its passes.
  struct Passed {
    Tensor x, y;
    std::unique_ptr<SplitBackward> rest;
  };
  using At = std::pair<int, int>;  // stage, micro-batch

  Impl(const Table& t, Group& g, int buffers);

  void run(StageWork& work, const TensorMeta& between);
  void meet();
  void forward(const Action& a, StageWork& work, ActionSpan& span);
  void backward(const Action& a, StageWork& work, ActionSpan& span);
  Tensor receive(const Action& a, ActionSpan& span);
  void send(const Action& a, int to_stage, const Tensor& t, ActionSpan& span);
  void ask(int stage, Pass pass);
  void wait(Transfer& transfer, const std::string& what, double& waited);
  template <class Post>
  std::unique_ptr<Transfer> posted(const std::string& what, const Post& post);
  int rank_of(int stage) const { return table.rank_of[static_cast<size_t>(stage)]; }
  Inbox* inbox(int stage, Pass pass);
  Outbox* outbox(int stage, Pass pass);

  Table table;
  Proof proof;
  Group& group;
  int rank;
  Communicator* communicator = nullptr;  // of the group, in a step
  TensorMeta between;
  std::map<uint64_t, Inbox> inboxes;
  std::map<uint64_t, Outbox> outboxes;
  std::map<At, Tensor> forwards, backwards;  // handed over within this rank, by the stage that they are for
  std::map<At, Passed> passed;
  std::vector<ActionSpan> spans;
  Clock::time_point begun;
};

Pipeline::Impl::Impl(const Table& t, Group& g, int buffers) : table(t), group(g), rank(g.rank()) {
  check(table.ranks == group.size(), kOp, "the table is for ", table.ranks, " ranks, group ", group.name(), " has ",
        group.size());
  proof = prove(table, buffers);
  // One message is computed on, one is on its way.
  if (buffers == 0) proof.buffers = std::max(proof.buffers, 2);
  for (const Action& a : table.actions[static_cast<size_t>(rank)]) {
    if (a.pass == Pass::weight_gradient) continue;
    const bool forward = a.pass == Pass::forward;
    const int from = a.stage + (forward ? -1 : 1), to = a.stage + (forward ? 1 : -1);
    const Pass kind = forward ? Pass::forward : Pass::backward;
    if (from >= 0 && from < table.stages && rank_of(from) != rank) {
      Inbox& in = inboxes[channel_to(a.stage, kind)];
      in.from = rank_of(from);
      ++in.wanted;
    }
    if (to >= 0 && to < table.stages && rank_of(to) != rank) outboxes[channel_to(to, kind)].to = rank_of(to);
  }
}

Pipeline::Impl::Inbox* Pipeline::Impl::inbox(int stage, Pass pass) {
  const auto it = inboxes.find(channel_to(stage, pass));
  return it == inboxes.end() ? nullptr : &it->second;
}
Pipeline::Impl::Outbox* Pipeline::Impl::outbox(int stage, Pass pass) {
  const auto it = outboxes.find(channel_to(stage, pass));
  return it == outboxes.end() ? nullptr : &it->second;
}

// Whoever would send or take something else is found here, before a message is.
void Pipeline::Impl::meet() {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : to_text(table)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  group.run(cat("pipeline(", table.schedule, ", ", table.stages, " stages, ", table.micro_batches,
                " micro-batches, table ", hash % 1000000, ") ", numbered(between)),
            [&](Communicator& c) {
              communicator = &c;
              c.barrier();
            });
}

// Begins a transfer. What goes wrong is told as of any call of the group's.
template <class Post>
std::unique_ptr<Transfer> Pipeline::Impl::posted(const std::string& what, const Post& post) {
  try {
    return post(*communicator);
  } catch (const std::exception&) {
    group.run(what, [&, error = std::current_exception()](Communicator&) { std::rethrow_exception(error); });
    throw;
  }
}

void Pipeline::Impl::wait(Transfer& transfer, const std::string& what, double& waited) {
  const Clock::time_point since = Clock::now();
  group.run(what, [&](Communicator&) { transfer.wait(); });
  waited += seconds_since(since);
}

// Asks for the next message, where one will come and there is room.
void Pipeline::Impl::ask(int stage, Pass pass) {
  Inbox& in = *inbox(stage, pass);
  while (in.asked < in.wanted && in.messages.size() < static_cast<size_t>(proof.buffers)) {
    Tensor t = empty(between);
    void* const data = t.raw_data();
    auto transfer = posted("receive", [&](Communicator& c) {
      return c.post_receive(data, static_cast<size_t>(t.nbytes()), in.from, channel_to(stage, pass));
    });
    in.messages.push_back({std::move(t), std::move(transfer)});
    ++in.asked;
  }
}

Tensor Pipeline::Impl::receive(const Action& a, ActionSpan& span) {
  const Pass kind = a.pass == Pass::forward ? Pass::forward : Pass::backward;
  Inbox* const in = inbox(a.stage, kind);
  if (!in) {
    auto node = (kind == Pass::forward ? forwards : backwards).extract({a.stage, a.micro});
    return std::move(node.mapped());
  }
  Message m = std::move(in->messages.front());
  wait(*m.transfer, cat("receive(for ", to_text(a), " from rank ", group.ranks()[static_cast<size_t>(in->from)], ")"),
       span.waited);
  in->messages.pop_front();
  m.transfer = nullptr;
  ask(a.stage, kind);
  return std::move(m.tensor);
}

void Pipeline::Impl::send(const Action& a, int to_stage, const Tensor& t, ActionSpan& span) {
  check<ShapeError>(t.shape() == between.shape, kOp, to_text(a), " made ", t, ", between stages goes ",
                    numbered(between));
  check<DTypeError>(t.dtype() == between.dtype, kOp, to_text(a), " made ", t, ", between stages goes ",
                    numbered(between));
  const Pass kind = a.pass == Pass::forward ? Pass::forward : Pass::backward;
  Outbox* const out = outbox(to_stage, kind);
  if (!out) {
    (kind == Pass::forward ? forwards : backwards).emplace(At{to_stage, a.micro}, t);
    return;
  }
  const std::string what = cat("send(of ", to_text(a), " to rank ", group.ranks()[static_cast<size_t>(out->to)], ")");
  while (out->messages.size() >= static_cast<size_t>(proof.buffers)) {
    wait(*out->messages.front().transfer, what, span.waited);
    out->messages.pop_front();
  }
  Tensor whole = t.contiguous();
  auto transfer = posted(what, [&](Communicator& c) {
    return c.post_send(whole.raw_data(), static_cast<size_t>(whole.nbytes()), out->to, channel_to(to_stage, kind));
  });
  out->messages.push_back({std::move(whole), std::move(transfer)});
}

void Pipeline::Impl::forward(const Action& a, StageWork& work, ActionSpan& span) {
  Passed p;
  if (a.stage > 0) {
    p.x = receive(a, span);
    if (table.trains) p.x.set_requires_grad();
  }
  span.begin = seconds_since(begun);
  p.y = work.forward(a.stage, a.micro, p.x);
  span.end = seconds_since(begun);
  if (a.stage + 1 < table.stages)
    send(a, a.stage + 1, p.y.detach(), span);
  else
    check<ShapeError>(p.y.numel() == 1, kOp, to_text(a), " made ", p.y, ", wanted one number");
  if (table.trains) passed.emplace(At{a.stage, a.micro}, std::move(p));
}

void Pipeline::Impl::backward(const Action& a, StageWork& work, ActionSpan& span) {
  const auto at = passed.find({a.stage, a.micro});
  if (a.pass == Pass::weight_gradient) {
    span.begin = seconds_since(begun);
    work.before_gradients(a);
    at->second.rest->finish();
    passed.erase(at);
    span.end = seconds_since(begun);
    return work.after_gradients(a);
  }
  Passed& p = at->second;
  const Tensor gy = a.stage + 1 < table.stages ? receive(a, span) : Tensor();
  span.begin = seconds_since(begun);
  work.before_gradients(a);
  if (a.pass == Pass::input_gradient) {
    TensorList now = work.never_late(a.stage);
    if (p.x.defined()) now.push_back(p.x);
    p.rest = std::make_unique<SplitBackward>(TensorList{p.y}, TensorList{gy}, now);
  } else {
    strata::backward({p.y}, {gy});
  }
  p.y = Tensor();
  Tensor gx = p.x.defined() ? p.x.grad() : Tensor();
  p.x = Tensor();
  if (a.pass == Pass::backward) passed.erase(at);
  span.end = seconds_since(begun);
  if (a.stage == 0) return work.after_gradients(a);
  // What did not come to the loss.
  if (!gx.defined()) gx = zeros(between.shape, between.dtype);
  send(a, a.stage - 1, gx, span);
  work.after_gradients(a);
}

void Pipeline::Impl::run(StageWork& work, const TensorMeta& meta) {
  check<DeviceError>(meta.device.is_cpu(), kOp, "messages are on the CPU, not on ", meta.device);
  between = meta;
  passed.clear();
  forwards.clear();
  backwards.clear();
  spans.clear();
  for (auto& [channel, in] : inboxes) {
    in.messages.clear();
    in.asked = 0;
  }
  for (auto& [channel, out] : outboxes) out.messages.clear();
  meet();
  begun = Clock::now();
  for (const int stage : table.stages_of(rank)) {
    for (const Pass pass : {Pass::forward, Pass::backward})
      if (inbox(stage, pass)) ask(stage, pass);
  }
  for (const Action& a : table.actions[static_cast<size_t>(rank)]) {
    ActionSpan& span = spans.emplace_back(ActionSpan{a});
    if (a.pass == Pass::forward)
      forward(a, work, span);
    else
      backward(a, work, span);
  }
  for (auto& [channel, out] : outboxes) {
    double ignored = 0;
    for (Message& m : out.messages) wait(*m.transfer, "send(of the last messages)", ignored);
    out.messages.clear();
  }
}

Pipeline::Pipeline(const Table& table, Group& group, int buffers)
    : impl_(std::make_unique<Impl>(table, group, buffers)) {}
Pipeline::~Pipeline() = default;

void Pipeline::run(StageWork& work, const TensorMeta& between) {
  impl_->run(work, between);
}
const Table& Pipeline::table() const {
  return impl_->table;
}
const Proof& Pipeline::proof() const {
  return impl_->proof;
}
const std::vector<ActionSpan>& Pipeline::spans() const {
  return impl_->spans;
}

std::vector<std::vector<ActionSpan>> Pipeline::all_spans() const {
  const Table& t = impl_->table;
  size_t most = 0;
  for (const auto& actions : t.actions) most = std::max(most, actions.size());
  std::vector<std::array<double, 3>> mine(most), all(most * t.actions.size());
  const std::vector<ActionSpan>& own = impl_->spans;
  for (size_t i = 0; i < own.size(); ++i) mine[i] = {own[i].begin, own[i].end, own[i].waited};
  impl_->group.run(cat("spans of a pipeline [", most, "]"),
                   [&](Communicator& c) { c.all_gather(all.data(), mine.data(), most * sizeof mine[0]); });
  std::vector<std::vector<ActionSpan>> spans(t.actions.size());
  for (size_t r = 0; r < spans.size(); ++r) {
    for (size_t i = 0; i < t.actions[r].size(); ++i) {
      const auto& [begin, end, waited] = all[r * most + i];
      spans[r].push_back({t.actions[r][i], begin, end, waited});
    }
  }
  return spans;
}

double measured_bubble(const std::vector<std::vector<ActionSpan>>& spans) {
  double busy = 0, end = 0;
  for (const auto& rank : spans) {
    for (const ActionSpan& s : rank) {
      busy += s.end - s.begin;
      end = std::max(end, s.end);
    }
  }
  return end > 0 ? 1 - busy / (end * static_cast<double>(spans.size())) : 0;
}

}  // namespace strata::distributed::pipeline
