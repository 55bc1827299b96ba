#include "strata/train/tier_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "strata/core/error.h"
#include "strata/memory/plan.h"
#include "strata/train/tier_steps_inl.h"

namespace strata {
namespace {

using namespace planning;
using memory::Away;
using memory::Tag;

// Of a budget, that is left to kernels' workspace and to holes: a tenth, and no more than this.
// Of a card where nothing moves a part for holes, but a tenth of little: a captured step has a heap of its own, from which
// nothing can be unmapped. GPT-2 had 7.13 GiB mapped where 6.82 were forecast, 4.88 for 4.69 and 4.31 for 4.11
// (bench/results/tiers-h200-2026-11-27.md).
constexpr int64_t kGraphHoles = 20;
constexpr double kMargin = 0.1;
constexpr int64_t kMostMargin = int64_t{512} << 20, kLeastMargin = int64_t{128} << 20;
constexpr int64_t kWindow = int64_t{256} << 20;  // fetched ahead of its use at most
constexpr int64_t kGroup = int64_t{64} << 20;    // of an update in groups: two are near at once, both ways
// Of a weight's gradient several parts of a step may add to it, with so many calls between: it is at home meanwhile.
constexpr int32_t kGradientGap = 8;
constexpr int64_t kInputsNear = 6;  // branch and stream of three batches
constexpr int kMostTries = 12;  // of larger budgets, each by an eighth
constexpr int64_t kHoles = 4;   // what is near takes so much more room for holes: a part of it (set_near_limit())
// What a bus and an updating host reach beside what was measured of either alone: copies both ways at once 48.8 to 50.8
// of 55.3 GB/s (bench/results/tiers-2026-11-26.md); an update reads whatever it writes, of which a triad's count leaves
// out a quarter (bench/results/optim-home-2026-11-26.md: 134 of 110 GB/s).
constexpr double kBothWays = 0.9, kUpdateBytes = 1.2;

// A card that computes beside copies loses so much of the time that the bus is busy: 8 ms of 5.5 GiB each way for
// Llama's layers, 5 ms of 1.2 GiB within GPT-2's graph (bench/results/offload-2026-11-26.md).
constexpr double kCopyPrice = 0.06;

// An updating host and a card's copies reach a tenth more together than the host alone (the same page: 148 of 134
// GB/s).
constexpr double kTogether = 1.1;

// Of an update that runs ahead: what its card's pieces take (strata/optim/ahead_inl.h), four of 2 Mi elements of
// weights, gradient and two moments in f32 and a copy.
constexpr int64_t kPieces = 4 * (int64_t{2} << 20) * 18;

class Planner {
 public:
  Planner(Steps& steps, const MemoryConfig& keys, bool on_cpu, const TierRates& rates)
      : steps_(steps), keys_(keys), on_cpu_(on_cpu), rates_(rates), budget_(keys.budget()) {
    set_budget(budget_.device);
  }

  TierPlan run() {
    TierPlan plan = best();
    if (!plan.fits && budget_.device > 0) plan.least_budget = least_budget(plan);
    return plan;
  }

 private:
  void set_budget(int64_t device) {
    budget_.device = device;
    planned_ = device - std::min(static_cast<int64_t>(kMargin * static_cast<double>(device)), kMostMargin);
  }

  // The smallest budget of the device, in whole MiB and to a hundredth, with which there is a way; 0 where none is
  // found.
  int64_t least_budget(const TierPlan& smallest) {
    constexpr int64_t kMiB = int64_t{1} << 20;
    if (smallest.peak.device == std::numeric_limits<int64_t>::max()) return 0;
    const int64_t given = budget_.device;
    const auto fits = [&](int64_t mib) {
      set_budget(mib * kMiB);
      return best().fits;
    };
    int64_t lo = given / kMiB, hi = std::max(lo, smallest.peak.device / kMiB) + 1;
    int tries = 0;
    for (; tries < kMostTries && !fits(hi); ++tries) lo = hi, hi += std::max<int64_t>(1, hi / 8);
    const bool found = tries < kMostTries;
    while (found && hi - lo > 1 + hi / 100) {
      const int64_t middle = (lo + hi) / 2;
      (fits(middle) ? hi : lo) = middle;
    }
    set_budget(given);
    return found ? hi * kMiB : 0;
  }

  TierPlan best() {
    const Variant& plain = *variant({});
    const TierPlan without = with(plain, {});
    std::optional<TierPlan> best;
    std::map<Again, double> fastest;
    const auto try_ways = [&](const Again& again) {
      const Variant* v = variant(again);
      if (!v) return;
      for (TierPlan& p : ways(*v)) {
        p.budget = budget_;
        p.peak_without = without.peak.device;
        p.seconds_without = without.seconds;
        double& least = fastest.try_emplace(again, p.seconds).first->second;
        least = std::min(least, p.seconds);
        if (!best || better(p, *best)) best = std::move(p);
      }
    };
    for (const Again& again : recomputations()) try_ways(again);
    if (!best) try_ways({});  // no call can run again, or what leaves has them do so
    // Between the last of the parts that were faster than what was found, but did not fit, and the next.
    int faster = 0;
    for (const auto& [again, seconds] : fastest)
      if (seconds < best->seconds) faster = std::max(faster, again.parts);
    for (int more = 1; more < kStride && faster > 0; ++more) try_ways({.parts = faster + more});
    return *best;
  }

  bool on_cpu() const { return on_cpu_; }
  bool bounded() const { return budget_.any(); }

  std::vector<Again> recomputations() const {
    std::vector<Again> all;
    if (keys_.accumulation == "layers" || (keys_.accumulation == "auto" && bounded() && keys_.recompute == "auto"))
      for (const int64_t n : steps_.layers()) all.push_back({.layers = n});
    if (keys_.accumulation == "layers" && !all.empty()) return all;
    for (const Again& again : of_passes()) all.push_back(again);
    return all;
  }
  std::vector<Again> of_passes() const {
    if (keys_.recompute == "none") return {{}};
    const int64_t blocks = steps_.blocks();
    if (keys_.recompute == "blocks") return {{.blocks = blocks}};
    const bool calls = keys_.recompute == "calls" && steps_.single_calls();
    if (!bounded() && !calls) return {{}};
    std::vector<Again> all;
    for (int64_t i = 0; i <= 8 && !calls; ++i)
      if (const int64_t n = blocks * i / 8; all.empty() || all.back().blocks != n) all.push_back({.blocks = n});
    for (int i = kStride; i < kParts && steps_.single_calls(); i += kStride) all.push_back({.parts = i});
    return all;
  }
  // All that the keys leave open.
  std::vector<TierPlan> ways(const Variant& v) const {
    std::vector<TierPlan> all;
    for (const Place parameters : places(keys_.parameters)) {
      for (const Place state : places(keys_.state)) {
        // Weights that live elsewhere are updated there, or by groups that stream through.
        if (parameters != Place::device && state == Place::device) continue;
        // Weights that stay gain nothing.
        if (v.layers > 0 && parameters == Place::device && keys_.accumulation == "auto") continue;
        for (const Updater who : updaters(parameters, state)) {
          TierPlan p;
          p.least = steps_.least();
          p.recomputed = v.recomputed;
          p.layers_at_once = v.layers;
          p.draws = v.layers > 0 ? v.dry.draws : 0;
          p.parameters = parameters;
          p.state = state;
          p.update = who;
          p.delayed = keys_.delayed_update && who == Updater::cpu;
          // Gradients that an optimizer takes as they are made are not to wait for their group.
          if (v.layers > 0 && who != Updater::device && !(runs_ahead(p) && !p.delayed)) continue;
          for (const Place saved : places(keys_.activations)) {
            // What leaves by a plan of its own has calls run again as its times, once measured, say: about these.
            const bool both = saved != Place::device && !v.calls.choices.empty();
            if (both && !bounded()) continue;
            p.activations = saved;
            p.calls = both ? OffloadPlan() : v.calls;
            p.again = both ? v.calls.recomputed_bytes : 0;
            if (saved == Place::device) {
              all.push_back(with(v, p));
              continue;
            }
            for (const int64_t leaving : shares(v.saved)) {
              p.leaving = leaving;
              all.push_back(with(v, p));
            }
            p.leaving = 0;
          }
        }
      }
    }
    return all;
  }
  std::vector<Place> places(const std::string& key) const {
    if (key == "host") return {Place::host};
    if (key == "disk") return {Place::disk};
    std::vector<Place> all{Place::device};
    if (key == "auto" && bounded()) {
      if (!on_cpu()) all.push_back(Place::host);
      if (!budget_.disk.empty()) all.push_back(Place::disk);
    }
    return all;
  }
  std::vector<Updater> updaters(Place parameters, Place state) const {
    const std::string& key = keys_.update;
    if (state == Place::device || on_cpu() || key == "device") return {Updater::device};
    if (key == "cpu") return {Updater::cpu};
    if (key == "split") return {Updater::split};
    // One that has other bits only who asks for it gets.
    if (steps_.same_bits() && parameters == Place::host && state == Place::host)
      return {Updater::device, Updater::split};
    return {Updater::device};
  }
  // Eighths of what is saved.
  static std::vector<int64_t> shares(int64_t bytes) {
    std::vector<int64_t> all;
    for (int64_t i = 1; i <= 8; ++i) all.push_back(bytes * i / 8);
    return all;
  }

  // nullptr: there is no such way.
  const Variant* variant(const Again& again) {
    const auto [at, fresh] = variants_.try_emplace(again);
    if (fresh) {
      at->second = steps_.variant(again);
      if (at->second) {
        Variant& v = *at->second;
        v.step_saved = memory::saved_stretches(v.dry.step, steps_.least());
        v.pass_saved = memory::saved_stretches(v.dry.pass, steps_.least());
        for (const Away& a : v.step_saved) v.saved += bytes(v.dry.step, a) / (v.layers > 0 ? 1 : steps_.passes());
      }
    }
    return at->second ? &*at->second : nullptr;
  }
  static int64_t bytes(const Recording& r, const Away& a) { return r.storages[static_cast<size_t>(a.storage)].nbytes; }
  memory::Link link(Place place) const {
    if (place == Place::host) return {rates_.to_host, rates_.from_host};
    memory::Link disk{rates_.disk_write, rates_.disk_read};
    if (!on_cpu()) disk = {std::min(disk.out, rates_.to_host), std::min(disk.in, rates_.from_host)};
    return disk;
  }
  // The first `leaving` bytes that each pass saves.
  static std::vector<Away> first(const Recording& r, const std::vector<Away>& saved, int64_t leaving) {
    std::vector<Away> all;
    int64_t sum = 0;
    int32_t last = -1;
    for (const Away& a : saved) {
      // The next pass saves after the backward of the one before.
      if (last >= 0 && a.from > last) sum = 0, last = -1;
      if (sum >= leaving) continue;
      sum += bytes(r, a);
      last = std::max(last, a.until);
      all.push_back(a);
    }
    return all;
  }
  // Away all the time; what the update does of them is counted apart.
  static int64_t drop(const Recording& r, Tag tag, std::vector<Away>& away) {
    int64_t sum = 0;
    const auto n = static_cast<int32_t>(r.calls.size());
    for (size_t s = 0; s < r.storages.size(); ++s) {
      const RecordedStorage& st = r.storages[s];
      if (st.tag != tag || st.born >= 0 || st.freed < n) continue;
      sum += st.nbytes;
      away.push_back({static_cast<int32_t>(s), -1, n, false});
    }
    return sum;
  }
  static int32_t update_begins(const Recording& r) {
    auto update = static_cast<int32_t>(r.calls.size());
    while (update > 0 && r.calls[static_cast<size_t>(update - 1)].phase == Phase::update) --update;
    return update;
  }
  // Near while a forward or backward call uses them, and elsewhere during the update.
  static void come_and_go(const Recording& r, std::vector<Away> stretches, bool weights, std::vector<Away>& away) {
    const int32_t update = update_begins(r);
    for (Away a : stretches) {
      if (a.from >= update) continue;
      if (a.until >= update) a.until = static_cast<int32_t>(r.calls.size());
      a.apart = weights;
      away.push_back(a);
    }
  }
  // Weights of which a card reads copies or rows come by turns. The processor's are converted anew in each step.
  void stream_weights(const Recording& r, const StepWeights& w, bool in_place, std::vector<Away>& away) const {
    const auto n = static_cast<int32_t>(r.calls.size());
    std::vector<int32_t> all = w.by_turns;
    all.insert(all.end(), w.at_rest.begin(), w.at_rest.end());
    if (in_place) {
      for (const int32_t s : w.in_place) away.push_back({s, -1, n, false});
    } else {
      all.insert(all.end(), w.in_place.begin(), w.in_place.end());
    }
    come_and_go(r, memory::home_stretches(r, all), true, away);
  }
  // Gradients are near while backward adds to them.
  static void send_gradients(const Recording& r, std::vector<Away>& away, int32_t gap = kGradientGap) {
    come_and_go(r, memory::home_stretches(r, Tag::gradient, gap), false, away);
  }

  // On the device when the update begins.
  static int64_t live_in_update(const Recording& r, const std::vector<Away>& away) {
    const auto n = static_cast<int32_t>(r.calls.size());
    int32_t begins = 0;
    while (begins < n && r.calls[static_cast<size_t>(begins)].phase != Phase::update) ++begins;
    int64_t live = 0;
    for (const RecordedStorage& s : r.storages)
      if (s.born < begins && s.freed > begins) live += s.nbytes;
    for (const Away& a : away)
      if (a.from < begins && a.until > begins) live -= bytes(r, a);
    return live;
  }

  // The most that a forward holds whose saved tensors stay up to `kept` bytes and one more, whichever these are: what
  // each call has besides, with what was saved until then or that bound.
  static int64_t in_forward(const Recording& r, const std::vector<Away>& saved, int64_t kept) {
    std::vector<int64_t> live(r.calls.size() + 1), held(r.calls.size() + 1);
    const auto add = [](std::vector<int64_t>& to, int32_t from, int32_t until, int64_t n) {
      to[static_cast<size_t>(std::max(from, 0))] += n;
      if (static_cast<size_t>(until) < to.size()) to[static_cast<size_t>(until)] -= n;
    };
    for (const RecordedStorage& s : r.storages) add(live, s.born, s.freed, s.nbytes);
    int64_t largest = 0;
    for (const Away& a : saved) {
      add(held, a.from + 1, a.until, bytes(r, a));
      largest = std::max(largest, bytes(r, a));
    }
    int64_t now = 0, of_saved = 0, most = 0;
    for (size_t i = 0; i < r.calls.size(); ++i) {
      now += live[i], of_saved += held[i];
      if (r.calls[i].phase == Phase::forward)
        most = std::max(most, now - of_saved + std::min(of_saved, kept + largest));
    }
    return most;
  }

  TierPlan with(const Variant& v, TierPlan p) const {
    const Recording& step = v.dry.step;
    std::vector<Away> away, pass_away;
    double copies = 0;  // what they cost the card beside waiting
    memory::MoveRules rules{.budget = planned_, .others = v.others};
    if (p.activations != Place::device) {
      rules.link = link(p.activations);
      away = first(step, v.step_saved, p.leaving);
      pass_away = first(v.dry.pass, v.pass_saved, p.leaving);
      if (v.layers == 0)
        for (std::vector<Away>* all : {&away, &pass_away})
          for (Away& a : *all) a.early = true;
      if (!on_cpu() && rates_.to_host > 0 && rates_.from_host > 0) {
        const double each = kCopyPrice * (1 / rates_.to_host + 1 / rates_.from_host);
        for (const Away& a : away) copies += each * static_cast<double>(bytes(step, a));
        for (const Away& a : pass_away) copies += each * static_cast<double>(bytes(v.dry.pass, a) * v.dry.further);
      }
    }
    const StepWeights& w = v.weights;
    const bool weights_away = p.parameters != Place::device;
    int64_t state = 0, gradients = 0;
    if (p.state != Place::device) {
      state = drop(step, Tag::optimizer, away);
      drop(v.dry.pass, Tag::optimizer, pass_away);
      p.group = std::clamp(state / 32, int64_t{1} << 20, kGroup);
    }
    if (weights_away) {
      if (p.parameters == Place::host && !on_cpu() && !w.in_place.empty())
        p.in_place = w.copied > 0 ? v.dry.tables_and_head : v.dry.tables;
      stream_weights(step, w, !p.in_place.empty(), away);
      stream_weights(v.dry.pass, v.pass_weights, !p.in_place.empty(), pass_away);
    }
    if (weights_away || p.update != Updater::device) {
      // Those of a group of layers stay until it has all of them.
      send_gradients(step, away, v.layers > 0 ? std::numeric_limits<int32_t>::max() : kGradientGap);
      send_gradients(v.dry.pass, pass_away);
    }
    for (const RecordedStorage& s : step.storages)
      if (s.tag == Tag::gradient) gradients += s.nbytes;
    set_near(v, static_cast<double>(state) / static_cast<double>(std::max<int64_t>(gradients, 1)), p);
    rules.near = p.weights_near;
    // Room of its own, also while it is empty: memory that two streams took in turns would be mapped anew each time.
    const int64_t room = p.near + p.near / kHoles + (runs_ahead(p) && p.update != Updater::cpu ? kPieces : 0);
    rules.others += room;
    p.kept = p.activations == Place::device ? 0 : v.saved - p.leaving;
    if (rules.link.in == 0) rules.link = link(weights_away ? p.parameters : p.state);
    if (weights_away) rules.link.in *= kBothWays, rules.link.out *= kBothWays;
    if (p.moves() && p.activations == Place::device && p.state == Place::device && p.parameters == Place::device)
      rules.link = {1, 1};  // what is computed again moves nothing
    if ((rules.link.in <= 0 || rules.link.out <= 0) && !away.empty()) {
      p.fits = false;
      p.peak.device = std::numeric_limits<int64_t>::max();
      return p;
    }
    std::vector<double> seconds = v.step_seconds;
    double update = 0, passes = 0;
    for (size_t i = 0; i < seconds.size(); ++i) {
      (step.calls[i].phase == Phase::update ? update : passes) += seconds[i];
      if (step.calls[i].phase != Phase::update) continue;
      if (p.state != Place::device) seconds[i] = 0;
    }
    p.pass_seconds = passes / static_cast<double>(steps_.passes());
    // What is left of the budget while as little as possible is fetched ahead is room to fetch more.
    rules.window = 0;
    memory::Movement m = memory::simulate(step, seconds, away, rules);
    if (p.activations != Place::device && (planned_ == 0 || m.peak < planned_)) {
      rules.window = planned_ == 0 ? kWindow : std::min(kWindow, planned_ - m.peak);
      const memory::Movement ahead = memory::simulate(step, seconds, away, rules);
      if (planned_ == 0 || ahead.peak <= planned_) {
        m = ahead;
      } else {
        rules.window = 0;
      }
    }
    p.window = rules.window;
    int64_t in_update = v.others + live_in_update(step, away) + room;
    // What is left then keeps weights near.
    if (weights_away && rules.window == 0 && std::max(m.peak, in_update) < planned_) {
      const int64_t left = planned_ - std::max(m.peak, in_update);
      const int64_t more = std::min(left * kHoles / (kHoles + 1), w.bytes + w.copied);
      p.weights_near += more, p.near += more;
      rules.near += more, rules.others += more + more / kHoles;
      in_update += more + more / kHoles;
      m = memory::simulate(step, seconds, away, rules);
    }
    p.peak.device = std::max(m.peak, in_update);
    // Without a card's weights by turns, which are counted apart.
    if (p.activations != Place::device && v.layers == 0 && !weights_away)
      p.peak.device = std::max(p.peak.device, v.others + in_forward(step, v.step_saved, p.kept) - state + room);
    p.seconds = m.seconds;
    double waited = m.waited;
    if (v.dry.further > 0) {
      const memory::Movement f = memory::simulate(v.dry.pass, v.pass_seconds, pass_away, rules);
      p.seconds += static_cast<double>(v.dry.further) * f.seconds;
      waited += static_cast<double>(v.dry.further) * f.waited;
      p.peak.device = std::max(p.peak.device, f.peak);
    }
    p.seconds += copies;
    if (waited > 0.02 * p.seconds) {
      p.bound = p.activations == Place::disk || p.parameters == Place::disk ? "the disk" : "the bus";
    }
    if (p.state != Place::device) {
      const auto [took, by] =
          runs_ahead(p) ? time_ahead(p, step, w, static_cast<double>(state), static_cast<double>(gradients), m)
                        : update_time(p, w, static_cast<double>(state), static_cast<double>(gradients), update);
      p.seconds += took;
      if (took > update && took > 0.1 * p.seconds) p.bound = by;
    }
    if (p.bound.empty()) p.bound = "compute";
    // Elsewhere: what is at home there, and the most that was away of the rest.
    const auto add = [&](Place where, int64_t bytes) { (where == Place::disk ? p.peak.disk : p.peak.host) += bytes; };
    if (p.state != Place::device) add(p.state, state);
    const int64_t at_home = w.bytes + w.copied;
    if (weights_away) add(p.parameters, at_home + gradients);
    if (p.activations != Place::device)
      add(p.activations, std::max<int64_t>(0, m.elsewhere - state - (weights_away ? at_home : 0)));
    const bool away_at_all = p.activations != Place::device || p.state != Place::device || weights_away;
    // Holes are room that no tensor has.
    const int64_t mapped = p.peak.device;
    p.peak.device -= p.near / kHoles;
    // Where nothing moves a card keeps to its forecast, but for holes that a captured step cannot give back; the
    // processor's kernels take workspace that no dry run sees.
    const int64_t error = std::max(budget_.device / kGraphHoles, std::min(budget_.device - planned_, kLeastMargin));
    const int64_t most = away_at_all || (on_cpu() && p.moves()) ? planned_
                         : p.moves()                            ? budget_.device - error
                                                                : budget_.device;
    p.fits = (most == 0 || mapped <= most) && (budget_.host == 0 || p.peak.host <= budget_.host);
    return p;
  }

  // What is near at most of what lives elsewhere: weights by turns and gradients on their way in forward and backward,
  // and what an update through the device works on.
  void set_near(const Variant& v, double state_each, TierPlan& p) const {
    const StepWeights& w = v.weights;
    const bool weights_away = p.parameters != Place::device;
    int64_t beside = 0;  // weights
    if (weights_away) {
      const int64_t turn = on_cpu() ? std::max(w.largest_turn, v.dry.largest_part) : w.largest_turn;
      p.weights_near =
          std::max((1 + std::max<int64_t>(p.layers_at_once, 1)) * turn + w.largest_head,
                   p.in_place.empty() ? v.dry.largest_part : v.dry.largest_block);
      // A turn that leaves, and gradients on their way home, the largest at once.
      beside = turn + std::max(2 * turn, (on_cpu() ? 2 : 1) * w.largest);
      p.near = p.weights_near + beside;
    }
    if (p.layers_at_once > 0 && p.activations != Place::device) {
      // What comes into a group of a batch, of the next, and of one that leaves.
      int64_t largest = 0;
      for (const Away& a : v.step_saved) largest = std::max(largest, bytes(v.dry.step, a));
      beside += kInputsNear * largest;
      p.near += kInputsNear * largest;
    }
    if (p.state == Place::device || runs_ahead(p)) return;
    // Groups, or what belongs to the largest weight, which is never divided: its state (a table may keep more than
    // others have on average), and where weights are away its gradient, itself and its copy.
    const auto largest = static_cast<double>(w.largest);
    const double own = std::max(static_cast<double>(v.dry.largest_state), state_each * largest);
    const double with_it = p.update == Updater::cpu && !on_cpu() ? 0 : own + (weights_away ? largest : 0);
    const double itself = weights_away ? (p.in_place.empty() ? 1.5 : 0.5) * largest : 0;
    const int64_t update = std::max(4 * p.group, static_cast<int64_t>(with_it + itself) + 2 * p.group);
    if (update <= p.near) return;
    p.near = update;
    if (weights_away) p.weights_near = update - beside;
  }

  // Whether the update runs under the next forward, on the host's memory (optim::StateHome::ahead), as Tiers has it;
  // the squares of gradients were added up as they were made.
  bool runs_ahead(const TierPlan& p) const {
    return !on_cpu() && p.state == Place::host && p.parameters == Place::host && steps_.fused_update();
  }

  struct Update {
    double seconds;
    const char* by;
  };
  // Of an update that runs ahead: what it adds to a step. It has the bus and the host's memory together with the passes
  // that it runs beside, and bounds from bytes are all there is: those that come over the bus, those that the host's
  // processor reads and writes, and all that its memory moves. It runs beside the next forward, but for weights that a
  // card reads in place, which are waited for.
  Update time_ahead(const TierPlan& p, const Recording& step, const StepWeights& w, double state, double gradients,
                    const memory::Movement& m) const {
    const auto weights = static_cast<double>(w.bytes), copies = static_cast<double>(w.copied);
    const auto beside = static_cast<double>(m.forward_in);
    const memory::Link l = link(p.state);
    const double all = 2 * state + 2 * weights + gradients + copies;
    // Seconds of the host's processor for all of it, of the bus for all of it, and of the bus for what runs beside.
    const double speed = std::max(rates_.host_memory * kUpdateBytes, 1.0);
    const double host = all / speed, in = (state + weights + gradients) / l.in / kBothWays,
                 out = (state + weights + copies) / l.out / kBothWays;
    const double in_beside = beside / l.in / kBothWays;
    const auto bus = [&](double card) { return std::max(card * in + in_beside, card * out); };
    double share = p.update == Updater::cpu ? 1 : 0;  // of the processor
    if (p.update == Updater::split)                   // both end together
      share = std::clamp((std::max(in, out) + in_beside) / (host + std::max(in, out)), 0.0, 1.0);
    const double memory = (all + beside) / (speed * (p.update == Updater::cpu ? 1 : kTogether));
    const double took = std::max({share * host, bus(1 - share), memory});
    double exposed = 0;
    for (const int32_t s : w.in_place)
      if (!p.in_place.empty()) exposed += static_cast<double>(step.storages[static_cast<size_t>(s)].nbytes);
    const double more = std::max(took - m.forward, took * exposed / std::max(weights, 1.0));
    const double gradients_come = std::max(m.left - m.seconds, 0.0);  // it begins when all are there
    return {more + gradients_come, p.update == Updater::device ? "the bus" : "the host's update"};
  }

  // Of state that lives elsewhere and is updated when backward has ended: in groups through the device, both directions
  // at once; or by the host's processor, which reads and writes state and weights and reads gradients. What is at home
  // with the weights passes over the bus too: copies both ways, and gradients twice, first for their norm.
  Update update_time(const TierPlan& p, const StepWeights& w, double state, double gradients, double on_device) const {
    const memory::Link l = link(p.state);
    const bool away = p.parameters != Place::device;
    const double weights = away ? static_cast<double>(w.bytes) : 0, copies = away ? static_cast<double>(w.copied) : 0;
    const double in = state + weights + copies + (away ? gradients : 0), out = state + weights + copies;
    const double norm = away ? gradients / l.in : 0;
    const double streamed = std::max({in / l.in / kBothWays, out / l.out / kBothWays, on_device}) + norm;
    if (p.update == Updater::device)
      return {streamed, streamed <= on_device ? "compute" : p.state == Place::disk ? "the disk" : "the bus"};
    const double bytes = 2 * state + gradients + 2 * static_cast<double>(w.bytes);
    const double speed = std::max(rates_.host_memory * kUpdateBytes, 1.0);
    double host = std::max(bytes / speed, static_cast<double>(w.bytes) / rates_.from_host) + gradients / speed;
    if (p.state == Place::disk) host = std::max({host, state / l.in, state / l.out});
    if (p.update == Updater::cpu) return {host, "the host's update"};
    return {host * streamed / (host + streamed), "the host's update"};
  }

  // The faster of those that fit; of those that do not, the smaller. Less is moved where the time is the same.
  static bool better(const TierPlan& a, const TierPlan& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.peak.device < b.peak.device;
    if (a.seconds != b.seconds) return a.seconds < b.seconds;
    return a.peak.host + a.peak.disk < b.peak.host + b.peak.disk;
  }

  Steps& steps_;
  const MemoryConfig& keys_;
  const bool on_cpu_;
  const TierRates& rates_;
  memory::Budget budget_;
  // Of the device. A run in which nothing moves is as its forecast, so it may take all of it.
  int64_t planned_ = 0;
  std::map<Again, std::optional<Variant>> variants_;
};

}  // namespace

TierPlan plan_tiers(const TrainConfig& config, const lab::Limits& limits, const TierRates& rates) {
  const std::unique_ptr<Steps> steps = dry_steps(config, limits, rates.efficiency);
  return Planner(*steps, config.memory, config.device == "cpu", rates).run();
}

TierPlan plan_recorded(const RecordedStep& step, const MemoryConfig& memory, Device device, const TierRates& rates) {
  const std::unique_ptr<Steps> steps = ran_steps(step, !device.is_cpu());
  return Planner(*steps, memory, device.is_cpu(), rates).run();
}

}  // namespace strata
