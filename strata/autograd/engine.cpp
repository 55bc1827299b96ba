#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "strata/autograd/anomaly.h"
#include "strata/autograd/autograd.h"
#include "strata/autograd/split_backward.h"
#include "strata/core/autocast.h"
#include "strata/core/op_base.h"
#include "strata/core/partial_pass.h"

namespace strata {
namespace {

// Ops whose rules make the gradients of weights apart from that of the input, and only those that are asked for.
constexpr std::string_view kSplit[] = {"linear", "matmul", "addmm", "gelu_mlp"};

struct Pending {
  uint32_t waiting = 0;  // edges into this node that have not delivered yet
  bool needed = true;    // on a path to one of the inputs asked for
  Grads grads;
};

// One backward pass: counts the edges into every reachable node, then runs nodes whose edges have all delivered,
// newest first.
class Pass : detail::GatheredGrads, detail::PartialPass {
 public:
  Pass(bool retain_graph, bool create_graph) : retain_graph_(retain_graph), mode_(create_graph) {}

  // Restricts the pass to what leads to `inputs`, whose gradients are captured instead of accumulated.
  void capture(const TensorList& inputs) {
    for (const Tensor& t : inputs) {
      check<AutogradError>(t.requires_grad(), "grad", "an input (", t, ") does not require a gradient");
      const Edge e = gradient_edge(t);
      captures_[e.node.get()].push_back({e.index, captured_.size()});
      captured_.emplace_back();
      holders_.push_back(e.node);
    }
    capturing_ = true;
  }

  void seed(const Tensor& output, const Tensor& given) {
    check<AutogradError>(output.requires_grad(), "backward", "the output (", output,
                         ") does not require a gradient: it depends on no tensor with requires_grad");
    Tensor g = given;
    if (!g.defined()) {
      check<AutogradError>(output.numel() == 1, "backward", "the output is ", output,
                           "; a gradient for it must be given unless it has one element");
      g = output.new_full(output.shape(), 1);
    }
    check<ShapeError>(g.shape() == output.shape(), "backward", "the gradient given is ", g, ", the output ", output);
    check<DeviceError>(g.device() == output.device(), "backward", "the gradient given is ", g, ", the output ", output);
    if (g.dtype() != output.dtype()) {  // as PyTorch does
      const GradMode mode(mode_);
      g = g.to(output.dtype());
    }
    roots_.push_back({gradient_edge(output), std::move(g)});
  }

  // Gradients of weights wait until run_held(), but those of `now`.
  void split(const TensorList& now) {
    splits_ = true;
    for (const Tensor& t : now)
      if (t.requires_grad()) now_.insert(gradient_edge(t).node.get());
  }
  size_t num_held() const { return held_.size(); }

  std::vector<Tensor> run() {
    const Running running(this);
    // The forward pass chose the dtypes: rules compute in those, and each gradient has its tensor's.
    const AutocastScope plain(autocast_dtype(), false);
    discover();
    for (auto& [edge, g] : roots_) deliver(edge, std::move(g), false);
    for (auto& [edge, g] : roots_)
      if (nodes_[edge.node.get()].waiting == 0) enqueue(edge.node);
    process_ready();
    return std::move(captured_);
  }

  // The second half of a pass that was split: in the order of the first.
  void run_held() {
    const Running running(this);
    const AutocastScope plain(autocast_dtype(), false);
    for (Held& h : std::exchange(held_, {})) {
      Grads gx(h.node->edges.size());
      half_ = Half::second;
      apply(h.node, h.grads, gx);
      half_ = Half::none;
      h.grads.clear();
      for (size_t i = 0; i < gx.size(); ++i)
        if (waits(h.node->edges[i])) deliver(h.node->edges[i], std::move(gx[i]), true);
      process_ready();
    }
  }

 private:
  enum class Half : uint8_t { none, first, second };
  // A node whose weights' gradients wait, with those of its results.
  struct Held {
    Ref<Node> node;
    Grads grads;
  };

  struct Capture {
    uint32_t index;
    size_t slot;
  };
  struct Ready {
    Ref<Node> node;
    uint64_t sequence;
    bool operator<(const Ready& o) const { return sequence < o.sequence; }
  };

  // This thread's pass while it runs; a rule may run another inside.
  struct Running {
    explicit Running(Pass* pass) : outer(detail::t_gathered), outer_partial(detail::t_partial_pass) {
      detail::t_gathered = pass;
      detail::t_partial_pass = pass->capturing_ || pass->splits_ ? pass : nullptr;
    }
    ~Running() {
      detail::t_gathered = outer;
      detail::t_partial_pass = outer_partial;
    }
    Running(const Running&) = delete;
    detail::GatheredGrads* outer;
    const detail::PartialPass* outer_partial;
  };

  // This pass at a node. One that releases it is alone with it, so that passes of other threads over the same graph,
  // which retain it, see its saved tensors whole or not at all; where others are at work already, it leaves them to
  // those.
  struct Visit {
    Visit(Node& n, bool releases) : node(n) {
      int16_t others = 0;
      if (releases && n.passes.compare_exchange_strong(others, -1, std::memory_order_acquire)) {
        alone = n.runs_last = true;
        return;
      }
      others = n.passes.load(std::memory_order_relaxed);
      do
        check<AutogradError>(others >= 0, n.name(),
                             "another thread's backward is releasing this graph; pass retain_graph = true to both");
      while (!n.passes.compare_exchange_weak(others, static_cast<int16_t>(others + 1), std::memory_order_acquire));
    }
    ~Visit() {
      if (alone) node.runs_last = false;
      if (alone)
        node.passes.store(0, std::memory_order_release);
      else
        node.passes.fetch_sub(1, std::memory_order_release);
    }
    Visit(const Visit&) = delete;
    Node& node;
    bool alone = false;
  };

  static bool is_exclusive(Tensor& t) {
    return t.ref().use_count() == 1 && t.storage().use_count() == 1 && t.is_contiguous();
  }

  Tensor* at(const Edge& edge) override {
    if (mode_) return nullptr;
    const auto found = nodes_.find(edge.node.get());
    if (found == nodes_.end() || !found->second.needed || found->second.grads.empty()) return nullptr;
    Tensor& sum = found->second.grads[edge.index];
    return sum.defined() && is_exclusive(sum) ? &sum : nullptr;
  }

  bool needs(const Edge& edge) const override {
    if (half_ != Half::none) return waits(edge) == (half_ == Half::second);
    const auto found = nodes_.find(edge.node.get());
    // A rule that runs inside of another (of a write through a view) has edges that the pass does not know.
    return found == nodes_.end() || found->second.needed;
  }

  // Whether an edge of a node that splits leads to a leaf whose gradient may wait.
  bool waits(const Edge& edge) const {
    Node* n = edge.node.get();
    while (n && n->passes_on() && n->edges.size() == 1) n = n->edges[0].node.get();
    return n && n->leaf_hooks() && !now_.contains(n);
  }
  bool splits(const Node& n) const {
    return splits_ && n.op() && std::ranges::find(kSplit, n.op()->name()) != std::end(kSplit) &&
           std::ranges::any_of(n.edges, [&](const Edge& e) { return waits(e); });
  }

  void process_ready() {
    while (!ready_.empty()) {
      Ref<Node> node = std::move(const_cast<Ref<Node>&>(ready_.top().node));
      ready_.pop();
      process(node);
    }
  }

  void discover() {
    std::vector<Node*> order, stack;
    for (auto& [edge, g] : roots_)
      if (nodes_.try_emplace(edge.node.get()).second) stack.push_back(edge.node.get());
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      order.push_back(n);
      for (const Edge& e : n->edges) {
        if (!e.node) continue;
        const auto [it, fresh] = nodes_.try_emplace(e.node.get());
        ++it->second.waiting;
        if (fresh) stack.push_back(e.node.get());
      }
    }
    for (Node* n : order)
      if (n->packs) packed_.push_back(n);
    if (!packed_.empty()) see_packed();
    if (!capturing_) return;
    // Oldest first, so that a node's inputs are decided before the node itself.
    std::sort(order.begin(), order.end(), [](Node* a, Node* b) {
      const uint64_t sa = a->edges.empty() ? 0 : a->sequence, sb = b->edges.empty() ? 0 : b->sequence;
      return sa < sb;
    });
    for (Node* n : order) {
      bool needed = captures_.contains(n);
      for (const Edge& e : n->edges) needed = needed || (e.node && nodes_[e.node.get()].needed);
      nodes_[n].needed = needed;
    }
  }

  // In the order in which the queue will give them, as far as creation tells.
  void see_packed() {
    std::vector<PackedTensor> all;
    for (const Node* n : packed_) n->list_packed(all);
    for (PackedTensor& p : all)
      if (p.hooks->looks_ahead() && std::find(hooks_.begin(), hooks_.end(), p.hooks) == hooks_.end())
        hooks_.push_back(std::move(p.hooks));
    std::sort(packed_.begin(), packed_.end(), [](Node* a, Node* b) { return a->sequence > b->sequence; });
  }
  void tell_ahead(Node* node) {
    const auto at = std::find(packed_.begin() + static_cast<ptrdiff_t>(next_packed_), packed_.end(), node);
    // Before its turn: the others keep theirs.
    if (at == packed_.end()) return;
    std::rotate(packed_.begin() + static_cast<ptrdiff_t>(next_packed_), at, at + 1);
    for (const auto& h : hooks_) h->ahead(std::span(packed_).subspan(next_packed_));
    ++next_packed_;
  }

  void enqueue(const Ref<Node>& n) {
    if (queued_.insert(n.get()).second) ready_.push({n, n->sequence});
  }

  void deliver(const Edge& e, Tensor g, bool counts) {
    Pending& p = nodes_[e.node.get()];
    if (g.defined() && p.needed) {
      if (p.grads.empty()) p.grads.resize(e.node->num_results);
      Tensor& slot = p.grads[e.index];
      if (!slot.defined()) {
        slot = std::move(g);
      } else if (e.node->takes_f32() && is_reduced_floating(slot.dtype()) && g.dtype() == slot.dtype()) {
        slot = slot.to(DType::f32).add(g.to(DType::f32));  // what was cast for several ops has its sum in f32
      } else if (!mode_ && is_exclusive(slot) &&
                 (slot.dtype() == g.dtype() || (slot.dtype() == DType::f32 && is_reduced_floating(g.dtype())))) {
        slot.add_(g);
      } else {
        slot = slot.add(g);
      }
    }
    if (counts && --p.waiting == 0) enqueue(e.node);
  }

  static void run_hooks(const TensorHooks& hooks, Grads& grads) {
    if (hooks.empty()) return;
    for (const TensorHooks::Entry& h : hooks.list()) {
      Tensor& g = grads[h.index];
      if (!g.defined() || h.hook->removed) continue;
      if (Tensor replaced = (*h.hook)(g); replaced.defined()) {
        check<ShapeError>(replaced.shape() == g.shape(), "register_hook", "the hook returned ", replaced,
                          " for a gradient ", g);
        check<DTypeError>(replaced.dtype() == g.dtype(), "register_hook", "the hook returned ", replaced,
                          " for a gradient ", g, "; return it in the gradient's dtype");
        check<DeviceError>(replaced.device() == g.device(), "register_hook", "the hook returned ", replaced,
                           " for a gradient ", g, "; return it on the gradient's device");
        g = std::move(replaced);
      }
    }
  }

  void process(const Ref<Node>& node) {
    if (node->packs && !hooks_.empty()) tell_ahead(node.get());
    Pending& p = nodes_[node.get()];
    Grads gy = std::move(p.grads);
    Grads gx(node->edges.size());
    const bool any = std::any_of(gy.begin(), gy.end(), [](const Tensor& t) { return t.defined(); });
    const bool halves = any && splits(*node);
    if (any) {
      if (const TensorHooks* hooks = node->hooks.get()) run_hooks(*hooks, gy);
      if (const TensorHooks* leaf = node->leaf_hooks()) run_hooks(*leaf, gy);
      if (auto it = captures_.find(node.get()); it != captures_.end())
        for (const Capture& c : it->second) captured_[c.slot] = gy[c.index];
      const bool leaf = node->edges.empty();
      bool wanted = !capturing_ || (!leaf && std::any_of(node->edges.begin(), node->edges.end(), [&](const Edge& e) {
        return e.node && nodes_[e.node.get()].needed;
      }));
      if (halves) {
        held_.push_back({node, gy});
        half_ = Half::first;
      }
      if (wanted) apply(node, gy, gx);
      half_ = Half::none;
    }
    gy.clear();
    for (size_t i = 0; i < node->edges.size(); ++i)
      if (node->edges[i].node && !(halves && waits(node->edges[i]))) deliver(node->edges[i], std::move(gx[i]), true);
  }

  void apply(const Ref<Node>& node, Grads& gy, Grads& gx) {
    GradMode mode(mode_);
    anomaly::BackwardOf running(*node);
    memory::detail::RecordedModule at(node->module);
    const Visit visit(*node, !retain_graph_ && !node->edges.empty() && half_ != Half::first);
    node->apply(gy, gx);
    anomaly::check_gradients(*node, gx);
    if (visit.alone) node->release();
  }

  bool retain_graph_;
  bool mode_;
  bool capturing_ = false, splits_ = false;
  Half half_ = Half::none;         // of the node that runs
  std::unordered_set<Node*> now_;  // leaves whose gradients do not wait
  std::vector<Held> held_;
  std::unordered_map<Node*, Pending> nodes_;
  std::unordered_set<Node*> queued_;
  std::unordered_map<Node*, std::vector<Capture>> captures_;
  std::vector<Tensor> captured_;
  std::vector<Node*> packed_;  // made under saved-tensor hooks; those from next_packed_ on have not run
  size_t next_packed_ = 0;
  std::vector<std::shared_ptr<SavedTensorHooks>> hooks_;
  std::vector<Ref<Node>> holders_;
  std::vector<std::pair<Edge, Tensor>> roots_;
  std::priority_queue<Ready> ready_;
};

void seed_all(Pass& pass, const TensorList& outputs, const TensorList& grad_outputs, std::string_view op) {
  check(grad_outputs.empty() || grad_outputs.size() == outputs.size(), op, "got ", outputs.size(), " outputs but ",
        grad_outputs.size(), " gradients for them");
  for (size_t i = 0; i < outputs.size(); ++i) pass.seed(outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i]);
}

}  // namespace

void backward(const TensorList& outputs, const TensorList& grad_outputs, bool retain_graph, bool create_graph) {
  const detail::PhaseScope phase(Phase::backward);
  Pass pass(retain_graph || create_graph, create_graph);
  NoGrad guard;
  seed_all(pass, outputs, grad_outputs, "backward");
  GradMode mode(create_graph);
  pass.run();
}

TensorList grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs, bool create_graph,
                bool retain_graph, bool allow_unused) {
  const detail::PhaseScope phase(Phase::backward);
  Pass pass(retain_graph || create_graph, create_graph);
  GradMode mode(create_graph);
  pass.capture(inputs);
  seed_all(pass, outputs, grad_outputs, "grad");
  TensorList grads = pass.run();
  for (size_t i = 0; i < grads.size(); ++i)
    check<AutogradError>(allow_unused || grads[i].defined(), "grad", "input ", i, " (", inputs[i],
                         ") was not used to compute the outputs; pass allow_unused = true if that is meant");
  return grads;
}

struct SplitBackward::Impl {
  Pass pass{false, false};
};

SplitBackward::SplitBackward(const TensorList& outputs, const TensorList& grad_outputs, const TensorList& now)
    : impl_(std::make_unique<Impl>()) {
  const detail::PhaseScope phase(Phase::backward);
  const NoGrad guard;
  seed_all(impl_->pass, outputs, grad_outputs, "backward");
  impl_->pass.split(now);
  impl_->pass.run();
}
SplitBackward::~SplitBackward() = default;

void SplitBackward::finish() {
  const detail::PhaseScope phase(Phase::backward);
  const NoGrad guard;
  impl_->pass.run_held();
}
int64_t SplitBackward::waiting() const {
  return static_cast<int64_t>(impl_->pass.num_held());
}

void Tensor::backward(const Tensor& grad, bool retain_graph, bool create_graph) const {
  strata::backward({*this}, {grad}, retain_graph, create_graph);
}

}  // namespace strata
