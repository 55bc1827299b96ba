#include "strata/train/layered_inl.h"

#include <algorithm>
#include <utility>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

using Rows = LanguageModel::Rows;
using nn::Residual;

// Of a forward whose backward runs from its inputs again: nothing that is saved is kept.
struct KeepNothing final : SavedTensorHooks {
  std::shared_ptr<void> pack(const Tensor&) override { return std::make_shared<char>(); }
  Tensor unpack(const std::shared_ptr<void>&) override {
    throw AutogradError("backward", "nothing was kept of this forward: its groups run again");
  }
};

// Hands a leaf a gradient that was computed before: what the rest of a pass adds to it is added as if all of it came in
// that pass, in place where nobody else holds it.
struct EarlierGradient final : Node {
  EarlierGradient(const Tensor& leaf, Tensor gradient) : gradient(std::move(gradient)) {
    edges.push_back(gradient_edge(leaf));
  }
  std::string_view name() const override { return "earlier gradient"; }
  void apply(Grads&, Grads& gx) override { gx[0] = std::move(gradient); }
  Tensor gradient;
};

Rows rows_of(const data::Batch& b) {
  return b.size() == 2 ? Rows{b[0], b[1]} : Rows{b[0], b[1], b[2], b[3]};
}
// f of each tensor that is there.
template <class F>
Residual each_of(const Residual& r, F&& f) {
  const auto of = [&](const Tensor& t) { return t.defined() ? f(t) : Tensor(); };
  return {of(r.branch), of(r.stream), of(r.loss)};
}
Residual detached(const Residual& r) {
  return each_of(r, [](const Tensor& t) { return t.detach(); });
}
Residual leaves(const Residual& r, bool wanted) {
  return each_of(r, [&](const Tensor& t) {
    Tensor leaf = t.detach();
    leaf.set_requires_grad(wanted);
    return leaf;
  });
}
Residual gradients_of(const Residual& leaf) {
  return each_of(leaf, [](const Tensor& t) { return t.grad(); });
}
void prefetch(const Residual& r) {
  if (r.branch.defined()) r.branch.storage()->prefetch();
  if (r.stream.defined()) r.stream.storage()->prefetch();
}
bool any_trained(const nn::Module& m) {
  return std::ranges::any_of(m.parameters(), [](const Tensor& p) { return p.requires_grad(); });
}

}  // namespace

// One step. Stages are the embeddings, the groups of blocks, and the output layer with the loss.
struct LayeredAccumulation::Step {
  Step(LayeredAccumulation& owner, const std::vector<data::Batch>& batches,
       const std::optional<AutocastSettings>& autocast, const optim::LossScaler* scaler)
      : model(owner.model_),
        options(owner.options_),
        done(owner.group_done_),
        autocast(autocast),
        scaler(scaler),
        start(default_generator().state()),
        count(batches.size()),
        layers(static_cast<int64_t>(model.blocks.size())),
        groups(static_cast<size_t>((layers + options.blocks - 1) / options.blocks)),
        recomputed(model.recomputed_blocks()) {
    for (const data::Batch& b : batches) {
      data::Batch here;
      for (const Tensor& t : b) here.push_back(t.to(model.device()));
      rows.push_back(rows_of(here));
    }
    kept.resize(groups, std::vector<Residual>(count));
    began.resize(groups + 1, std::vector<RngKey>(count));
    for (size_t b = 0; b < count; ++b) keys.push_back(key_of(b));
    now.resize(count);
    grads.resize(count);
    tied.resize(count);
    find_trained();
    model.set_recomputed_blocks(0);  // a group's blocks run again as one
  }
  ~Step() { model.set_recomputed_blocks(recomputed); }
  Step(const Step&) = delete;

  Tensor run() {
    forward_embeddings();
    for (size_t g = 0; g < groups; ++g) forward_group(g);
    Tensor total = head();
    if (!reaches_head) return total;
    end_group();
    for (size_t g = groups; g-- > 0;) {
      if (!trained_before[g + 1]) return total;  // nothing from here down learns
      backward_group(g);
      end_group();
    }
    if (trained_before[0]) {
      backward_embeddings();
      end_group();
    }
    return total;
  }

  RngKey key_of(size_t pass) const { return {start.seed, start.offset + pass * options.draws}; }

  // trained_before[g]: whether anything before group g learns, [groups]: before the output layer.
  void find_trained() {
    bool any =
        any_trained(model.token_embedding) || (model.position_embedding && any_trained(*model.position_embedding));
    trained_before.push_back(any);
    for (size_t g = 0; g < groups; ++g) {
      for (int64_t i = first(g); i < first(g + 1); ++i) any = any || any_trained(model.blocks[static_cast<size_t>(i)]);
      trained_before.push_back(any);
    }
    reaches_head = any_trained(model);
  }
  int64_t first(size_t group) const { return std::min(static_cast<int64_t>(group) * options.blocks, layers); }

  // A part of a pass in forward's precision, with the random numbers of `key`, which goes on.
  template <class F>
  auto part(RngKey& key, F&& f) {
    std::optional<AutocastScope> low;
    if (autocast) low.emplace(*autocast);
    default_generator().set_state(key);
    auto result = f();
    key = default_generator().state();
    return result;
  }
  Residual through(size_t group, size_t b, const Residual& r) const {
    return model.pass_blocks(r, rows[b], first(group), first(group + 1));
  }

  void forward_embeddings() {
    const SavedTensorHooksScope nothing(std::make_shared<KeepNothing>());
    for (size_t b = 0; b < count; ++b) {
      began[groups][b] = keys[b];
      now[b] = detached(part(keys[b], [&] { return model.begin_pass(rows[b]); }));
    }
  }
  void forward_group(size_t g) {
    const SavedTensorHooksScope nothing(std::make_shared<KeepNothing>());
    for (size_t b = 0; b < count; ++b) {
      began[g][b] = keys[b];
      const Residual in = leaves(now[b], trained_before[g]);
      now[b] = detached(part(keys[b], [&] { return through(g, b, in); }));
      kept[g][b] = put_away(in);
    }
  }
  Residual put_away(const Residual& r) {
    const auto put = [&](const Tensor& t) {
      if (!t.defined()) return Tensor();
      const Tensor plain = t.detach();
      const auto bytes = static_cast<int64_t>(plain.nbytes());
      if (left >= options.leaving || bytes < options.least || options.inputs == Tier()) return plain;
      left += bytes;
      const NoGrad guard;
      const memory::TagScope tag(memory::Tag::activation);
      return plain.to(options.inputs);
    };
    return {put(r.branch), put(r.stream), r.loss.defined() ? r.loss.detach() : Tensor()};
  }

  // Both ways at once: backward begins here.
  Tensor head() {
    const double share = 1.0 / static_cast<double>(count);
    // Of a table that is the output layer's weight too, each pass's gradients are added up before they are accumulated.
    const Tensor table = model.token_embedding.weight;
    const bool shared = model.spec().tied && table.requires_grad();
    const Tensor before = shared ? table.grad() : Tensor();
    Tensor total;
    for (size_t b = 0; b < count; ++b) {
      const Residual in = leaves(now[b], trained_before[groups]);
      now[b] = {};
      const Tensor l = part(keys[b], [&] { return model.end_pass(in, rows[b]); });
      check(keys[b] == key_of(b + 1), "LayeredAccumulation", "a pass took ", keys[b].offset - key_of(b).offset,
            " blocks of random numbers, not the ", options.draws, " that the plan says");
      {
        NoGrad guard;
        const Tensor piece = to(l.detach(), DType::f64) * share;
        total = total.defined() ? total + piece : piece;
      }
      if (!reaches_head) continue;
      const Tensor scaled = count == 1 ? l : l * share;
      if (shared) Tensor(table).set_grad({});
      (scaler ? scaler->scale(scaled) : scaled).backward();
      if (shared) tied[b] = table.grad();
      grads[b] = gradients_of(in);
    }
    if (shared) Tensor(table).set_grad(before);
    return total;
  }

  void backward_group(size_t g) {
    for (size_t b = 0; b < count; ++b) {
      if (b + 1 < count)
        prefetch(kept[g][b + 1]);
      else if (g > 0)
        prefetch(kept[g - 1][0]);
      const Residual in = leaves(kept[g][b], trained_before[g]);
      kept[g][b] = {};
      const Residual out = again(began[g][b], [&] { return through(g, b, in); });
      push(out, grads[b]);
      grads[b] = gradients_of(in);
    }
  }
  void backward_embeddings() {
    for (size_t b = 0; b < count; ++b) {
      const Residual out = again(began[groups][b], [&] { return model.begin_pass(rows[b]); });
      TensorList roots, with;
      if (tied[b].defined()) {  // the output layer's part came first
        roots.push_back(zeros({}, DType::f32));
        set_history(roots[0], Ref<Node>(new EarlierGradient(model.token_embedding.weight, std::move(tied[b]))), 0);
        with.emplace_back();
      }
      push(out, grads[b], std::move(roots), std::move(with));
      grads[b] = {};
    }
  }
  template <class F>
  Residual again(RngKey key, F&& f) {
    const detail::PhaseScope phase(Phase::backward);
    const memory::TagScope tag(memory::Tag::activation);
    return part(key, std::forward<F>(f));
  }
  static void push(const Residual& out, const Residual& gradient, TensorList of = {}, TensorList with = {}) {
    const auto add = [&](const Tensor& t, const Tensor& g) {
      if (!t.defined() || !t.requires_grad() || !g.defined()) return;
      of.push_back(t);
      with.push_back(g);
    };
    add(out.branch, gradient.branch);
    add(out.stream, gradient.stream);
    add(out.loss, gradient.loss);
    if (!of.empty()) backward(of, with);
  }
  void end_group() const {
    if (done) done();
  }

  LanguageModel& model;
  const LayeredOptions& options;
  const std::function<void()>& done;
  const std::optional<AutocastSettings>& autocast;
  const optim::LossScaler* scaler;
  const RngKey start;
  const size_t count;
  const int64_t layers;
  const size_t groups;
  const int64_t recomputed;
  std::vector<Rows> rows;
  std::vector<std::vector<Residual>> kept;  // by group and batch: what came in
  std::vector<std::vector<RngKey>> began;   // by group and batch: random numbers there; the last are the embeddings'
  std::vector<RngKey> keys;                 // where each batch's pass is
  std::vector<Residual> now, grads;         // what came out of the last group, and its gradients
  std::vector<Tensor> tied;                 // the output layer's part of the table's gradient
  std::vector<bool> trained_before;
  bool reaches_head = false;
  int64_t left = 0;  // bytes that have gone to their tier
};

LayeredAccumulation::LayeredAccumulation(LanguageModel& model, const LayeredOptions& options,
                                         std::function<void()> group_done)
    : model_(model), options_(options), group_done_(std::move(group_done)) {
  check(options.blocks > 0, "LayeredAccumulation", "at least one block goes at a time, got ", options.blocks);
}

std::string LayeredAccumulation::refuses(const TrainConfig& config) {
  if (config.accumulate < 2) return "train.accumulate is 1: there is one pass a step";
  if (config.data.format == "seq2seq") return "the model has an encoder, which all blocks of the decoder read";
  if (config.data.format == "preferences") return "data.format = preferences compares answers within a pass";
  return {};
}

Tensor LayeredAccumulation::run(const std::vector<data::Batch>& batches,
                                const std::optional<AutocastSettings>& autocast, const optim::LossScaler* scaler) {
  Step step(*this, batches, autocast, scaler);
  Tensor total = step.run();
  default_generator().set_state(step.key_of(batches.size()));
  return total;
}

}  // namespace strata
