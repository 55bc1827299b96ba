#include <algorithm>
#include <numeric>

#include "strata/core/error.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/nn/fully_sharded.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/plan/forecast_inl.h"
#include "strata/train/ranks.h"

namespace strata::plan {

namespace pipeline = distributed::pipeline;

namespace {
// Bytes of gradients that travel together.
const auto kBucket = static_cast<double>(nn::FullyShardedOptions().bucket_bytes);
}  // namespace

void Lanes::compute(double seconds) {
  const double beside = std::clamp(network_ - now_, 0.0, seconds);
  const double all = seconds + slower_ * beside;
  now_ += all;
  computed_ += all;
}

double Lanes::start(double seconds, double bytes) {
  const double begin = std::max(now_, network_);
  network_ = begin + seconds;
  sent_ += bytes;
  messages_.push_back({begin, network_, bytes});
  return network_;
}

void Lanes::wait(double until) {
  if (until <= now_) return;
  for (; gone_ < messages_.size() && messages_[gone_].end <= now_; ++gone_) {
  }
  for (size_t i = gone_; i < messages_.size() && messages_[i].begin < until; ++i) {
    const Message& m = messages_[i];
    const double waited = std::min(until, m.end) - std::max(now_, m.begin);
    if (m.end > m.begin && waited > 0) exposed_bytes_ += m.bytes * waited / (m.end - m.begin);
  }
  now_ = until;
}

void Lanes::again(const Lanes& before, double times) {
  const double passed = now_ - before.now_;
  const double later = times * passed;
  computed_ += times * (computed_ - before.computed_);
  sent_ += times * (sent_ - before.sent_);
  exposed_bytes_ += times * (exposed_bytes_ - before.exposed_bytes_);
  network_ += later;
  now_ += later;
  messages_.clear();
  gone_ = 0;
}

struct Forecaster::Step {
  const ParallelLayout& l;
  TrainConfig config;  // train.batch: a rank's rows of a pass, of a pipeline those of a batch
  const Network& net;
  double rows = 1;  // of a pass or micro-batch
  double parts = 1;
  Span tp, cp, ep, gradients, parted, replicas, experts, stages;

  Step(const ParallelLayout& layout, const TrainConfig& whole, const Network& network)
      : l(layout), config(layout.applied(whole)), net(network), parts(static_cast<double>(l.tp * l.cp)) {
    config.batch = std::max<int64_t>(config.batch / l.dp, 1);
    const int64_t pieces = l.pp > 1 ? ModelPipeline::pieces(layout.applied(whole), l.dp) : 1;
    rows = static_cast<double>(config.batch) / static_cast<double>(pieces);
    tp = {1, l.tp}, cp = {l.tp, l.cp}, ep = {1, l.ep};
    gradients = {l.tp, l.cp * l.dp};
    parted = l.dp > 1 ? Span{l.tp * l.cp, l.dp} : cp;
    replicas = l.dp > 1 ? cp : Span{};
    experts = {l.ep, l.tp * l.cp * l.dp / l.ep};
    stages = {l.tp * l.cp * l.dp, l.pp};
  }
};

Forecaster::Forecaster(const Profile& profile) : profile_(profile), later_(may_begin_in_parts(profile.config())) {}

Within Forecaster::within(const Step& s, size_t layer, bool backward) const {
  Within w;
  const auto n = profile_.layers().size();
  const bool block = profile_.decoder() && layer > 0 && layer + 1 < n;
  const double again = backward && s.l.recompute ? 2 : 1;
  const auto add = [&](Collective c, Span span, double bytes, double times) {
    w.seconds += times * s.net.seconds(c, span, bytes);
    w.bytes += times * Network::sent(c, span.size, bytes);
  };
  const double activations = s.rows * profile_.tokens / static_cast<double>(s.l.cp) *
                             static_cast<double>(s.config.model.dim) * profile_.activation_size;
  if (s.l.tp > 1) add(Collective::all_reduce, s.tp, activations, (block ? 2 : 1) * again);
  if (!block) return w;
  if (s.l.ep > 1) {
    const double bytes = static_cast<double>(rows_to_experts(s.config)) * static_cast<double>(s.config.model.dim) *
                         profile_.activation_size;
    add(Collective::all_to_all, s.ep, bytes, 2 * again);
  }
  if (s.l.cp > 1) {
    const double all = static_cast<double>(context_costs(*profile_.decoder(), s.config).sends) / static_cast<double>(n - 2);
    const bool ring = s.l.cp_kind == "ring";
    const double bytes = (ring ? (backward ? 2.0 / 3 : 1.0 / 3) : 0.5) * all;
    const double ways = ring ? static_cast<double>(s.l.cp - 1) : 1;
    const double seconds = s.net.message(s.cp, bytes / ways) * ways;
    (ring ? w.beside_seconds : w.seconds) += again * seconds;
    (ring ? w.beside_bytes : w.bytes) += again * bytes;
  }
  return w;
}

void Forecaster::flat(const Step& s, Forecast& f) const {
  const Profile& p = profile_;
  const ParallelLayout& l = s.l;
  const size_t n = p.layers().size();
  const auto tp = static_cast<double>(l.tp);
  Lanes lanes(p.machine().links.overlap);
  std::vector<Within> forward(n), backward(n);
  for (size_t i = 0; i < n; ++i) {
    // Blocks that are alike exchange the same.
    const bool same = i > 1 && i + 1 < n && p.decoder();
    forward[i] = same ? forward[i - 1] : within(s, i, false);
    backward[i] = same ? backward[i - 1] : within(s, i, true);
  }
  const auto run = [&](double seconds, const Within& w) {
    double beside = lanes.now();
    if (w.beside_seconds > 0) beside = lanes.start(w.beside_seconds, w.beside_bytes);
    lanes.compute(seconds);
    lanes.wait(beside);
    if (w.seconds > 0) lanes.send(w.seconds, w.bytes);
  };
  // ZeRO 3: a layer is gathered while the one before it computes.
  const bool gathers = l.zero == 3 && s.parted.size > 1;
  const bool again = gathers && s.config.parallel.reshard != "never";
  const auto gather = [&](size_t i) {
    const double bytes = p.kind(i).trained * p.gathered_size / tp;
    return lanes.start(s.net.seconds(Collective::all_gather, s.parted, bytes),
                       Network::sent(Collective::all_gather, s.parted.size, bytes));
  };
  // Gradients travel in buckets.
  double dense = 0, experts = 0;
  const bool shares = s.gradients.size > 1;
  const auto reduce = [&](double bytes, bool of_experts) {
    if (bytes <= 0) return;
    const auto begin = [&](Collective c, Span span, double b) {
      if (span.size > 1) lanes.start(s.net.seconds(c, span, b), Network::sent(c, span.size, b));
    };
    if (of_experts) return begin(Collective::all_reduce, s.experts, bytes);
    if (l.zero < 2) return begin(Collective::all_reduce, s.gradients, bytes);
    begin(Collective::reduce_scatter, s.parted, bytes);
    begin(Collective::all_reduce, s.replicas, bytes / static_cast<double>(s.parted.size));
  };
  const auto arrived = [&](size_t i, bool travels, bool first) {
    const LayerKind& k = p.kind(i);
    const double all = k.trained * p.gradient_size / tp, part = k.weights > 0 ? k.experts / k.weights : 0;
    if (!first) lanes.compute(p.moving(3 * all));
    if (!travels || !shares) return;
    lanes.compute(p.moving(2 * all));  // to their places in buckets
    dense += all * (1 - (l.ep > 1 ? part : 0));
    experts += l.ep > 1 ? k.trained * p.gradient_size * part / static_cast<double>(l.ep) : 0;  // tp cuts none
    if (dense >= kBucket) reduce(std::exchange(dense, 0), false);
    if (experts >= kBucket) reduce(std::exchange(experts, 0), true);
  };
  const bool every = (l.zero == 3 && s.config.parallel.every_pass) || (l.zero > 1 && s.config.parallel.exact > 0);
  const auto pass = [&](bool first, bool last) {
    double ready = gathers ? gather(0) : 0;
    for (size_t i = 0; i < n; ++i) {
      lanes.wait(ready);
      if (gathers && i + 1 < n) ready = gather(i + 1);
      run(p.times(i, s.rows, s.parts, tp, l.recompute).forward, forward[i]);
    }
    ready = lanes.now();
    for (size_t i = n; i-- > 0;) {
      lanes.wait(ready);
      if (again && i > 0) ready = gather(i - 1);
      run(p.times(i, s.rows, s.parts, tp, l.recompute).backward, backward[i]);
      arrived(i, last || every, first);
    }
    if (!last && !every) return;
    reduce(std::exchange(dense, 0), false);
    reduce(std::exchange(experts, 0), true);
    if (every) lanes.finish();
  };
  const int64_t passes = s.config.accumulate;
  pass(true, passes == 1);
  if (passes > 2) {
    const Lanes before = lanes;
    pass(false, false);
    lanes.again(before, static_cast<double>(passes - 3));
  }
  if (passes > 1) pass(false, true);
  lanes.finish();
  double trained = 0;
  for (size_t i = 0; i < n; ++i) trained += p.kind(i).trained;
  const double own = 1 / tp / static_cast<double>(l.zero > 0 ? s.parted.size : 1);
  lanes.compute(p.update(own) + p.moving(trained * p.gradient_size * own));  // the norm reads gradients
  if (l.zero == 1 || l.zero == 2) {
    const double bytes = trained * p.gradient_size / tp;
    lanes.send(s.net.seconds(Collective::all_gather, s.parted, bytes),
               Network::sent(Collective::all_gather, s.parted.size, bytes));
  }
  talk(s, lanes);
  f.seconds = lanes.now();
  f.computes = lanes.computed();
  f.exposed = lanes.exposed();
  f.sent = static_cast<int64_t>(lanes.sent());
  f.exposed_bytes = static_cast<int64_t>(lanes.exposed_bytes());
}

// The loss, and whether to go on: a few numbers of all ranks, three times a step.
void Forecaster::talk(const Step& s, Lanes& lanes) const {
  const Span all{1, s.l.ranks()};
  for (int i = 0; i < 3 && all.size > 1; ++i) lanes.send(s.net.seconds(Collective::all_reduce, all, 8), 8);
}

const Forecaster::Proved& Forecaster::table(const ParallelLayout& l) {
  const int64_t all = l.micro_batches * l.accumulate;
  const auto [at, fresh] = tables_.try_emplace({l.schedule, l.pp, all, l.stages});
  if (!fresh) return at->second;
  Proved& p = at->second;
  p.table = pipeline::make_table(l.schedule, static_cast<int>(l.pp), static_cast<int>(all), static_cast<int>(l.stages));
  p.proof = pipeline::prove(p.table);
  p.halves = std::ranges::any_of(p.table.actions, [](const auto& actions) {
    return std::ranges::any_of(actions, [](const pipeline::Action& a) { return a.pass == pipeline::Pass::weight_gradient; });
  });
  p.cuts = ModelPipeline::cuts(profile_.cut_by(), p.table.stages);
  return p;
}

void Forecaster::pipelined(const Step& s, Forecast& f) {
  const Profile& p = profile_;
  const Proved& t = table(s.l);
  const auto stages = static_cast<size_t>(t.table.stages), ranks = static_cast<size_t>(t.table.ranks);
  const size_t n = p.layers().size();
  const auto tp = static_cast<double>(s.l.tp);
  std::vector<pipeline::StageCost> costs(stages, {0, 0, 0});
  struct Here {
    double trained = 0, weights = 0, saved = 0, takes = 0, last = 0, largest = 0;  // weights of a layer
    int stages = 0;
  };
  const double overlap = p.machine().links.overlap;
  // What travels beside what is computed.
  const auto beside = [&](double computes, double travels) {
    Lanes lanes(overlap);
    const double ready = lanes.start(travels, 0);
    lanes.compute(computes);
    lanes.wait(ready);
    return lanes.now();
  };
  // ZeRO 3 gathers a stage's weights for each of its passes, or once a step, and its gradients leave behind each.
  const bool gathers = s.l.zero == 3 && s.parted.size > 1, again = gathers && s.config.parallel.reshard != "never";
  const bool every = gathers && s.config.parallel.every_pass;
  const auto passes = static_cast<double>(t.table.micro_batches);
  const auto reduce_seconds = [&](double bytes) {
    if (s.l.zero < 2) return s.net.seconds(Collective::all_reduce, s.gradients, bytes);
    return s.net.seconds(Collective::reduce_scatter, s.parted, bytes) +
           s.net.seconds(Collective::all_reduce, s.replicas, bytes / static_cast<double>(s.parted.size));
  };
  const auto reduce_sends = [&](double bytes) {
    if (s.l.zero < 2) return s.gradients.size > 1 ? Network::sent(Collective::all_reduce, s.gradients.size, bytes) : 0;
    return Network::sent(Collective::reduce_scatter, s.parted.size, bytes) +
           Network::sent(Collective::all_reduce, s.replicas.size, bytes / static_cast<double>(s.parted.size));
  };
  std::vector<Here> here(ranks);
  double trained = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    Here& h = here[static_cast<size_t>(t.table.rank_of[stage])];
    size_t begin = static_cast<size_t>(t.cuts[stage]) + 1, end = static_cast<size_t>(t.cuts[stage + 1]) + 1;
    if (stage == 0) begin = 0;
    if (stage + 1 == stages) end = n;
    double saved = 0, own = 0;  // trained
    for (size_t i = begin; i < end; ++i) {
      const LayerKind& k = p.kind(i);
      const LayerTimes c = p.times(i, s.rows, s.parts, tp, s.l.recompute);
      const Within forward = within(s, i, false), backward = within(s, i, true);
      costs[stage].forward += c.forward + forward.seconds + forward.beside_seconds;
      costs[stage].input += (t.halves ? c.input : c.backward) + backward.seconds + backward.beside_seconds;
      costs[stage].weight += (t.halves ? c.weight : 0) + p.moving(3 * k.trained * p.gradient_size / tp);
      h.trained += k.trained, h.weights += k.weights, trained += k.trained, own += k.trained;
      h.largest = std::max(h.largest, k.weights);
      saved += (s.l.recompute ? k.saved_again : k.saved).at(s.rows) / s.parts;
      h.takes = std::max(h.takes, k.takes.at(s.rows) / s.parts);
    }
    pipeline::StageCost& c = costs[stage];
    const double gather = gathers ? s.net.seconds(Collective::all_gather, s.parted, own * p.gathered_size / tp) : 0;
    const double reduce = every ? reduce_seconds(own * p.gradient_size / tp) : 0;
    c.forward = beside(c.forward, again ? gather : gather / passes);
    c.input = beside(c.input, (again ? gather : 0) + (t.halves ? 0 : reduce));
    if (t.halves) c.weight = beside(c.weight, reduce);
    h.saved = std::max(h.saved, saved);
    h.last = std::max(h.last, costs[stage].input + costs[stage].weight);
    ++h.stages;
  }
  // A rank of parallel.tp sends its part of the positions.
  const double message = s.rows * p.tokens / static_cast<double>(s.l.cp) * static_cast<double>(s.config.model.dim) *
                         p.activation_size / (s.config.parallel.sequence ? tp : 1);
  const pipeline::Simulation run =
      pipeline::simulate(t.table, costs, s.net.message(s.stages, message), std::max(t.proof.buffers, 2));
  // Behind its last action a rank's gradients are averaged, as far as they have not gone under its backward.
  double end = run.seconds, tail_bytes = 0, waits = 0;
  for (size_t r = 0; r < ranks; ++r) {
    const Here& h = here[r];
    const double bytes = h.trained * p.gradient_size / tp;
    const double seconds = every ? 0 : reduce_seconds(bytes);
    const double own = s.l.zero > 0 ? 1 / static_cast<double>(s.parted.size) : 1;
    const double wait = std::max(seconds - overlap * h.last, 0.0);
    const auto& a = t.table.actions[r].back();
    const pipeline::StageCost& c = costs[static_cast<size_t>(a.stage)];
    const double done = run.begin[r].back() + (a.pass == pipeline::Pass::backward ? c.input + c.weight
                                               : a.pass == pipeline::Pass::input_gradient ? c.input
                                                                                          : c.weight);
    const double update = p.update(h.trained / std::max(trained, 1.0) * own / tp);
    const bool comes_back = s.l.zero > 0 && !gathers;  // what others have updated
    const double back = comes_back ? s.net.seconds(Collective::all_gather, s.parted, bytes) : 0;
    if (done + wait + update + back > end) end = done + wait + update + back, waits = wait + back;
    f.computes = std::max(f.computes, run.busy[r] + update);
    const double moved = (every ? 0 : reduce_sends(bytes)) +
                         (comes_back ? Network::sent(Collective::all_gather, s.parted.size, bytes) : 0);
    const double messages = 2.0 * static_cast<double>(h.stages) * passes * message;
    const double gathered = Network::sent(Collective::all_gather, s.parted.size, h.trained * p.gathered_size / tp);
    const double in_passes = (gathers ? gathered * (again ? 2 * passes : 1) : 0) + (every ? passes * reduce_sends(bytes) : 0);
    f.sent = std::max(f.sent, static_cast<int64_t>(moved + messages + in_passes));
    tail_bytes = std::max(tail_bytes, seconds > 0 ? moved * (wait + back) / (seconds + back) : 0);
  }
  Lanes after(overlap);
  if (p.tied && t.table.rank_of.front() != t.table.rank_of.back()) {
    const double table = static_cast<double>(s.config.model.vocab * s.config.model.dim) * p.gradient_size / tp /
                         (gathers ? static_cast<double>(s.parted.size) : 1);
    for (int i = 0; i < 2; ++i) after.send(s.net.message(s.stages, table), table);
  }
  talk(s, after);
  f.seconds = end + after.now();
  f.bubble = run.bubble * run.seconds / f.seconds;
  f.exposed = waits + after.now();
  f.exposed_bytes = static_cast<int64_t>(tail_bytes + after.exposed_bytes());

  const double start = whole_at_start(s);
  for (size_t r = 0; r < ranks; ++r) {
    const Here& h = here[r];
    const double own = s.l.zero > 0 ? 1 / static_cast<double>(s.parted.size) : 1, largest = h.largest / tp;
    const double whole = h.weights / tp, gathered = again ? std::min(2 * largest, whole) : whole;
    const double weights = gathers ? whole * own + gathered : whole, all = h.trained * p.gradient_size / tp;
    // Of ZeRO 2 whole ones until they leave, bucket by bucket.
    const double gradients = every ? std::min(all * own + std::max(2 * largest, std::min(2 * kBucket, all)), all + all * own)
                             : s.l.zero > 1 ? all + std::min(kBucket, all * own)
                                            : all;
    const double optimizer = h.trained * p.state / tp * own;
    const double live = t.proof.live.empty() ? 1 : t.proof.live[r];
    const double activations = live * h.saved + h.takes + 2 * std::max(t.proof.buffers, 2) * message;
    // Whole gradients lie in buckets, which are made anew after the first step beside those that hold them.
    const double both = s.gradients.size > 1 && s.l.zero < 2 ? gradients + std::max(gradients, activations) : gradients + activations;
    const double copies = p.gathered_size < 4 && s.config.param_dtype == "f32" ? (gathers ? whole * own : whole) / 2 : 0;
    const double data = 3 * static_cast<double>(s.config.batch) * p.tokens * 16 * static_cast<double>(s.config.accumulate);
    const double peak = std::max(weights + copies + optimizer + both + data, start);
    if (peak <= static_cast<double>(f.peak)) continue;
    f.peak = static_cast<int64_t>(peak);
    f.parameters = static_cast<int64_t>(weights + copies), f.gradients = static_cast<int64_t>(gradients);
    f.optimizer = static_cast<int64_t>(optimizer), f.activations = static_cast<int64_t>(activations);
    f.data = static_cast<int64_t>(data);
  }
}

void Forecaster::memory_of(const Step& s, Forecast& f) const {
  AloneEstimate a = profile_.alone(s.rows / static_cast<double>(s.l.cp), s.config.accumulate, s.l.recompute);
  if (s.l.cp > 1 && profile_.decoder()) {
    const int64_t workspace = context_costs(*profile_.decoder(), s.config).workspace;
    a.alone.activations += workspace, a.alone.peak += workspace, a.activations += workspace;
  }
  const MemoryEstimate e = of_a_rank(a.alone, s.config, profile_.model(), a.activations);
  f.parameters = e.parameters, f.gradients = e.gradients, f.optimizer = e.optimizer, f.activations = e.activations;
  f.data = e.data;
  f.peak = std::max(e.peak, static_cast<int64_t>(whole_at_start(s)));
}

// Bytes of the whole model's weights, where a rank begins with them.
double Forecaster::whole_at_start(const Step& s) const {
  if (later_ && keeps_parts(s.config.parallel)) return 0;
  double bytes = 0;
  for (size_t i = 0; i < profile_.layers().size(); ++i) bytes += profile_.kind(i).weights;
  return bytes;
}

const Network& Forecaster::network(int64_t ranks, const std::vector<int>& order) {
  if (std::exchange(ranks_, ranks) != ranks) networks_.clear();
  const auto at = networks_.find(order);
  if (at != networks_.end()) return at->second;
  if (networks_.size() > 64) networks_.clear();  // an order is asked for many times, or never again
  return networks_.try_emplace(order, profile_.machine().links, ranks, order).first->second;
}

double Forecaster::seconds(const ParallelLayout& layout, const std::vector<int>& order) {
  Forecast f;
  const Step s(layout, profile_.config(), network(layout.ranks(), order));
  layout.pp > 1 ? pipelined(s, f) : flat(s, f);
  return f.seconds;
}

Forecast Forecaster::operator()(const ParallelLayout& layout, const std::vector<int>& order) {
  Forecast f;
  const Step s(layout, profile_.config(), network(layout.ranks(), order));
  if (layout.pp > 1) {
    pipelined(s, f);
  } else {
    flat(s, f);
    memory_of(s, f);
  }
  return f;
}

}  // namespace strata::plan
