#include "strata/dist/pipeline/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <utility>

#include "strata/autograd/autograd.h"
#include "strata/autograd/split_backward.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/device_group_inl.h"
#include "strata/dist/pipeline/table_run_inl.h"
#include "strata/ops/copy/copy.h"
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
  // A message under way.
  struct Message {
    Tensor tensor;
    Work work;
  };
  // What comes to one of this rank's stages from another rank, in order.
  struct Inbox {
    Group::Way way;
    std::vector<int> micros;  // whose messages come
    size_t asked = 0;
    std::deque<Message> messages;
  };
  struct Outbox {
    Group::Way way;
    std::deque<Work> messages;
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
  void ask_once(Inbox& in);
  void ask_in_order(size_t actions);
  void wait(Work& work, double& waited);
  void begins(ActionSpan& span) { span.begin = now(); }
  void ends(ActionSpan& span) { span.end = now(); }
  double now();
  void read_times();
  std::string text(const Group::Way& way, int micro) const;
  std::vector<Group::Way> ways() const;
  int rank_of(int stage) const { return table.rank_of[static_cast<size_t>(stage)]; }
  Inbox* inbox(int stage, Pass pass);
  Outbox* outbox(int stage, Pass pass);

  Table table;
  Proof proof;
  Group& group;
  int rank;
  TensorMeta between;
  std::map<uint64_t, Inbox> inboxes;
  std::map<uint64_t, Outbox> outboxes;
  std::map<At, Tensor> forwards, backwards;  // handed over within this rank, by the stage that they are for
  std::map<At, Passed> passed;
  std::vector<ActionSpan> spans;
  Clock::time_point begun;
  // Of a card's step: the beginning, then the beginning and the end of each action, until they are read.
  bool time_next = false, timed = false;
  // Messages of a card's step that is no graph's: see run().
  bool by_host = false;
  // Messages go by the cards' ways: this rank's in their order, how many were begun, and the last of those.
  bool in_order = false;
  std::vector<detail::QueuedMessage> order;
  size_t begun_messages = 0;
  Work last;
  std::vector<std::unique_ptr<cuda::Event>> points;
};

Pipeline::Impl::Impl(const Table& t, Group& g, int buffers) : table(t), group(g), rank(g.rank()) {
  check(table.ranks == group.size(), kOp, "the table is for ", table.ranks, " ranks, group ", group.name(), " has ",
        group.size());
  proof = prove(table, buffers);
  // One message is computed on, one is on its way.
  if (buffers == 0) proof.buffers = std::max(proof.buffers, 2);
  order = detail::TableRun(table, {StageCost{}}, 0, proof.buffers).message_order()[static_cast<size_t>(rank)];
  for (const Action& a : table.actions[static_cast<size_t>(rank)]) {
    if (a.pass == Pass::weight_gradient) continue;
    const bool forward = a.pass == Pass::forward;
    const int from = a.stage + (forward ? -1 : 1), to = a.stage + (forward ? 1 : -1);
    const Pass kind = forward ? Pass::forward : Pass::backward;
    if (from >= 0 && from < table.stages && rank_of(from) != rank) {
      const uint64_t number = channel_to(a.stage, kind);
      Inbox& in = inboxes[number];
      in.way = {rank_of(from), rank, number};
      in.micros.push_back(a.micro);
    }
    if (to >= 0 && to < table.stages && rank_of(to) != rank) {
      const uint64_t number = channel_to(to, kind);
      outboxes[number].way = {rank, rank_of(to), number};
    }
  }
}

// All ranks', in one order.
std::vector<Group::Way> Pipeline::Impl::ways() const {
  std::vector<Group::Way> all;
  for (int stage = 1; stage < table.stages; ++stage) {
    const int before = rank_of(stage - 1), here = rank_of(stage);
    if (before == here) continue;
    all.push_back({before, here, channel_to(stage, Pass::forward)});
    if (table.trains) all.push_back({here, before, channel_to(stage - 1, Pass::backward)});
  }
  return all;
}

// The same at both ends.
std::string Pipeline::Impl::text(const Group::Way& way, int micro) const {
  return cat("message(", way.number % 2 == 0 ? "activations" : "gradient", " of micro-batch ", micro, " for stage ",
             way.number / 2, ", rank ", group.ranks()[static_cast<size_t>(way.from)], " to rank ",
             group.ranks()[static_cast<size_t>(way.to)], ") ", numbered(between));
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
            [](Communicator& c) { c.barrier(); });
}

// A card's points are read later.
double Pipeline::Impl::now() {
  if (between.device.is_cpu()) return seconds_since(begun);
  if (!timed) return 0;
  points.push_back(std::make_unique<cuda::Event>(true, between.device.index));
  points.back()->record(cuda::current_stream(between.device.index));
  return 0;
}

// Nothing is between two actions on a card's stream but waiting.
void Pipeline::Impl::read_times() {
  if (points.empty()) return;
  points.back()->synchronize();
  const auto at = [&](size_t point) { return points[point]->elapsed_ms(*points[0]) / 1e3; };
  double before = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    ActionSpan& s = spans[i];
    s.begin = at(2 * i + 1);
    s.end = at(2 * i + 2);
    s.waited = s.begin - std::exchange(before, s.end);
  }
  points.clear();
}

void Pipeline::Impl::wait(Work& work, double& waited) {
  const Clock::time_point since = Clock::now();
  work.wait();
  waited += seconds_since(since);
}

void Pipeline::Impl::ask_once(Inbox& in) {
  TensorMeta meta = between;
  if (by_host) meta.device = Device::cpu();
  const Tensor t = empty(meta);
  in.messages.push_back({t, group.receive(t, in.way, text(in.way, in.micros[in.asked]), last)});
  ++in.asked;
}

// Asks for the next message, where one will come and there is room.
void Pipeline::Impl::ask(int stage, Pass pass) {
  Inbox& in = *inbox(stage, pass);
  while (in.asked < in.micros.size() && in.messages.size() < static_cast<size_t>(proof.buffers)) ask_once(in);
}

// Asks for the messages that come before the next one sent, and have no more of this rank's actions before them.
void Pipeline::Impl::ask_in_order(size_t actions) {
  for (; begun_messages < order.size(); ++begun_messages) {
    const detail::QueuedMessage& m = order[begun_messages];
    if (m.sends || m.behind > actions) return;
    Inbox& in = *inbox(m.stage, m.pass);
    ask_once(in);
    last = in.messages.back().work;
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
  wait(m.work, span.waited);
  in->messages.pop_front();
  m.work = {};
  if (!in_order) ask(a.stage, kind);
  return m.tensor.to(between.device);
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
  while (out->messages.size() >= static_cast<size_t>(proof.buffers)) {
    wait(out->messages.front(), span.waited);
    out->messages.pop_front();
  }
  const Tensor whole = t.contiguous();
  if (in_order) ask_in_order(table.actions[static_cast<size_t>(rank)].size());
  out->messages.push_back(
      group.send(by_host ? whole.to(Device::cpu()) : whole, out->way, text(out->way, a.micro), last));
  if (!in_order) return;
  last = out->messages.back();
  ++begun_messages;
}

void Pipeline::Impl::forward(const Action& a, StageWork& work, ActionSpan& span) {
  Passed p;
  if (a.stage > 0) {
    p.x = receive(a, span);
    if (table.trains) p.x.set_requires_grad();
  }
  begins(span);
  p.y = work.forward(a.stage, a.micro, p.x);
  ends(span);
  if (a.stage + 1 < table.stages)
    send(a, a.stage + 1, p.y.detach(), span);
  else
    check<ShapeError>(p.y.numel() == 1, kOp, to_text(a), " made ", p.y, ", wanted one number");
  if (table.trains) passed.emplace(At{a.stage, a.micro}, std::move(p));
}

void Pipeline::Impl::backward(const Action& a, StageWork& work, ActionSpan& span) {
  const auto at = passed.find({a.stage, a.micro});
  if (a.pass == Pass::weight_gradient) {
    begins(span);
    work.before_gradients(a);
    at->second.rest->finish();
    passed.erase(at);
    ends(span);
    return work.after_gradients(a);
  }
  Passed& p = at->second;
  const Tensor gy = a.stage + 1 < table.stages ? receive(a, span) : Tensor();
  begins(span);
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
  ends(span);
  if (a.stage == 0) return work.after_gradients(a);
  // What did not come to the loss.
  if (!gx.defined()) {
    gx = empty(between);
    fill_elements(gx, 0.0);
  }
  send(a, a.stage - 1, gx, span);
  work.after_gradients(a);
}

void Pipeline::Impl::run(StageWork& work, const TensorMeta& meta) {
  check<DeviceError>(meta.device.is_cpu() || meta.device.is_cuda(), kOp, "there are no messages on ", meta.device);
  between = meta;
  passed.clear();
  forwards.clear();
  backwards.clear();
  if (meta.device.is_cpu() || time_next) spans.clear();
  timed = meta.device.is_cuda() && time_next;
  points.clear();
  for (auto& [channel, in] : inboxes) {
    in.messages.clear();
    in.asked = 0;
  }
  for (auto& [channel, out] : outboxes) out.messages.clear();
  // Op by op the host may have to wait for all that the card was given: where a kernel is loaded, memory is mapped or
  // products are tried for the first time. A message that the card waits for, in a kernel of NCCL's, would then wait
  // for a rank whose host stands still for the same reason. So messages go over the host until the step is a graph, in
  // which nothing of that kind is left.
  by_host = meta.device.is_cuda() && !cuda::capturing();
  // Otherwise cards may stand still, which put a graph's branches into few queues: see pipeline.md.
  in_order = !by_host && (meta.device.is_cuda() || distributed::detail::test_lanes() != nullptr);
  begun_messages = 0;
  last = {};
  // A graph's messages are matched by the ranks' heartbeats.
  if (!cuda::capturing()) {
    group.connect(meta.device, ways());
    if (timed) cuda::synchronize(meta.device.index);
    meet();
  }
  time_next = false;
  begun = Clock::now();
  if (timed) now();
  for (const int stage : table.stages_of(rank)) {
    for (const Pass pass : {Pass::forward, Pass::backward})
      if (!in_order && inbox(stage, pass)) ask(stage, pass);
  }
  size_t actions = 0;
  for (const Action& a : table.actions[static_cast<size_t>(rank)]) {
    if (in_order) ask_in_order(actions++);
    ActionSpan span{a};
    if (a.pass == Pass::forward)
      forward(a, work, span);
    else
      backward(a, work, span);
    if (meta.device.is_cpu() || timed) spans.push_back(span);
  }
  for (auto& [channel, out] : outboxes) {
    for (Work& w : out.messages) w.wait();
    out.messages.clear();
  }
  last = {};
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
void Pipeline::time_next() {
  impl_->time_next = true;
}
const std::vector<ActionSpan>& Pipeline::spans() const {
  impl_->read_times();
  return impl_->spans;
}

std::vector<std::vector<ActionSpan>> Pipeline::all_spans() const {
  const Table& t = impl_->table;
  size_t most = 0;
  for (const auto& actions : t.actions) most = std::max(most, actions.size());
  std::vector<std::array<double, 3>> mine(most), all(most * t.actions.size());
  const std::vector<ActionSpan>& own = spans();
  for (size_t i = 0; i < own.size(); ++i) mine[i] = {own[i].begin, own[i].end, own[i].waited};
  impl_->group.run(cat("spans of a pipeline [", most, "]"),
                   [&](Communicator& c) { c.all_gather(all.data(), mine.data(), most * sizeof mine[0]); });
  std::vector<std::vector<ActionSpan>> every(t.actions.size());
  for (size_t r = 0; r < every.size(); ++r) {
    for (size_t i = 0; i < t.actions[r].size(); ++i) {
      const auto& [begin, end, waited] = all[r * most + i];
      every[r].push_back({t.actions[r][i], begin, end, waited});
    }
  }
  return every;
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
