#include "strata/train/budget_scope.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/core/recording_marks.h"
#include "strata/cuda/graph.h"
#include "strata/lab/device_clock.h"
#include "strata/memory/allocator.h"
#include "strata/memory/bounds.h"
#include "strata/memory/plan.h"
#include "strata/memory/pressure.h"
#include "strata/memory/tiers.h"
#include "strata/nn/streamed.h"
#include "strata/ops/vec/scratch_kept.h"
#include "strata/optim/home.h"
#include "strata/optim/record.h"
#include "strata/train/budget_turns_inl.h"
#include "strata/train/tiers.h"

namespace strata {
namespace {

using memory::bytes_text;

constexpr int64_t kRecordedStep = 1;  // the first makes the optimizer's state
constexpr int64_t kGroup = int64_t{64} << 20;

// Asked for memory where there is none: gives nothing, and knows what was wanted.
struct Wanted final : memory::Reliever {
  explicit Wanted(Device d) : device(d) {}
  bool relieve(Device of, int64_t bytes) noexcept override {
    if (of == device) last.store(bytes, std::memory_order_relaxed);
    return false;
  }
  const Device device;
  std::atomic<int64_t> last{0};  // bytes missing when somebody was last asked for them
};

// Devices that have a scope.
struct Taken {
  explicit Taken(Device d) : device(d) {
    const std::lock_guard lock(mutex());
    check(all().insert(to_string(d)).second, "BudgetScope", "the memory of ", d,
          " is within a budget already: one scope at a time");
  }
  ~Taken() {
    const std::lock_guard lock(mutex());
    all().erase(to_string(device));
  }
  Taken(const Taken&) = delete;
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::set<std::string>& all() {
    static std::set<std::string> s;
    return s;
  }
  const Device device;
};

Device device_of(const nn::Module& model) {
  const TensorList all = model.parameters();
  check(!all.empty(), "BudgetScope", "the model has no parameters");
  for (const Tensor& t : all)
    check(t.device() == all[0].device(), "BudgetScope", "parameters are on ", all[0].device(), " and on ", t.device(),
          ": a budget is for one device");
  check(!all[0].device().is_meta(), "BudgetScope", "parameters are on meta: there is nothing to keep");
  return all[0].device();
}

// The keys as a run's settings would be checked.
MemoryConfig checked(const MemoryConfig& keys, Device device, bool engine) {
  TrainConfig config;
  config.memory = keys;
  config.device = device.is_cpu() ? "cpu" : to_string(device);
  validate(config);
  if (engine) return keys;
  MemoryConfig own = keys;
  for (std::string* key : {&own.state, &own.parameters}) {
    check(*key == "auto" || *key == "device", "BudgetScope",
          "the optimizer is none of the library's: its state cannot live on ", *key);
    *key = "device";
  }
  return own;
}

class Limit {
 public:
  Limit(Device device, int64_t bytes) : device_(device), bytes_(bytes) {
    if (bytes == 0) return;
    // A card's bound is one of the memory that it has mapped, so what others have left there counts.
    memory::backend(device).release_cached();
    before_ = memory::backend(device).set_limit(device, bytes);
  }
  ~Limit() {
    if (bytes_ > 0) memory::backend(device_).set_limit(device_, before_);
  }
  Limit(const Limit&) = delete;

 private:
  Device device_;
  int64_t bytes_, before_ = 0;
};

}  // namespace

struct BudgetScope::State {
  State(const nn::Module& m, optim::Optimizer* o, const MemoryConfig& keys)
      : model(m),
        optimizer(o),
        device(device_of(m)),
        keys(checked(keys, device, o != nullptr)),
        budget(this->keys.budget()),
        taken(device),
        speeds(measured_speeds(device, budget)) {
    for (const Tensor& t : model.parameters()) t.storage()->retag(memory::Tag::parameter);
    turns.emplace(strata::budget::parts_of(model), device);
    try {
      start(thrifty());
    } catch (...) {
      end();
      throw;
    }
  }

  void start(const TierPlan& first) {
    move(first);
    if (device.is_cpu()) release_scratch();
    const memory::Stats now = memory::stats(device);
    const int64_t stays = now.live_total - near_bytes();  // the rest is on its way, or goes when it must
    if (budget.device > 0 && stays > budget.device) {
      std::string held;
      for (int i = 0; i < memory::kNumTags; ++i)
        if (now.live[i] > 0)
          held +=
              cat(held.empty() ? "" : ", ", memory::name_of(static_cast<memory::Tag>(i)), " ", bytes_text(now.live[i]));
      throw MemoryError("BudgetScope",
                        cat(bytes_text(now.live_total), " of tensors (", held, ") are on ", device,
                            " before the loop begins, more than the budget of ", bytes_text(budget.device),
                            "; it needs ", bytes_text(stays + std::max(stays / 8, 4 * largest_part())), " or more"));
    }
    limit.emplace(device, budget.device);
    memory::reset_peak(device);
    begin();
  }

  int64_t bytes_of_parameters() const {
    int64_t n = 0;
    for (const strata::budget::Part& p : turns->parts()) n += p.bytes;
    return n;
  }
  int64_t largest_part() const {
    std::map<std::string, int64_t> by_name;
    int64_t most = 0;
    for (const strata::budget::Part& p : turns->parts()) most = std::max(most, by_name[p.name] += p.bytes);
    return most;
  }
  int64_t largest_weight() const {
    int64_t most = 0;
    for (const Tensor& t : model.parameters()) most = std::max(most, static_cast<int64_t>(t.nbytes()));
    return most;
  }
  // Of an update: a 32nd of the state, so that no group has many more of the weights than that.
  int64_t group_bytes() const {
    const int64_t state = optimizer ? optimizer->state_bytes() : 0;
    return std::clamp(state / 32, int64_t{4} << 10, kGroup);
  }
  int64_t least_leaving() const {
    constexpr int64_t kLeast = int64_t{64} << 10, kMost = int64_t{1} << 20;
    return budget.device > 0 ? std::clamp(budget.device >> 10, kLeast, kMost) : kMost;
  }

  // As much elsewhere as can be, of what would not fit well beside activations: how the steps begin that nobody knows
  // yet.
  TierPlan thrifty() const {
    const Place away = !device.is_cpu() ? Place::host : !budget.disk.empty() ? Place::disk : Place::device;
    const int64_t weights = 2 * bytes_of_parameters(), state = optimizer ? optimizer->state_bytes() : 0;
    const auto place = [&](const std::string& key, bool leaves) {
      if (key == "host") return Place::host;
      if (key == "disk") return Place::disk;
      return key == "auto" && leaves ? away : Place::device;
    };
    const bool bounded = budget.device > 0;
    TierPlan p{.budget = budget, .least = least_leaving(), .cheap_again = false};
    p.activations = place(keys.activations, bounded);
    p.state = place(keys.state, bounded && state > 0 && weights + state > budget.device / 8);
    p.parameters = p.state == Place::device ? Place::device : place(keys.parameters, weights > budget.device / 4);
    if (keys.parameters == "host" || keys.parameters == "disk")
      check(p.state != Place::device, "BudgetScope", "weights on the ", keys.parameters,
            " are updated there: the state has to be elsewhere too");
    p.update = keys.update == "cpu" && !device.is_cpu() ? Updater::cpu : Updater::device;
    // Of an update: a group and the next one, or what belongs to the largest weight.
    p.group = group_bytes();
    const double each = static_cast<double>(state) / static_cast<double>(std::max<int64_t>(weights / 2, 1));
    const auto largest = static_cast<double>(largest_weight());
    p.near = std::max(4 * p.group, static_cast<int64_t>((each + 2) * largest) + 2 * p.group + weights / 16);
    if (p.parameters != Place::device) p.near += 5 * largest_part();
    p.window = p.least;
    return p;
  }

  // The disk of the budget, at its first use. Where tensors of an earlier scope are still there, so is this one's
  // place.
  void use_disk(const TierPlan& to) {
    static std::mutex mutex;
    static std::vector<std::string> folders;
    const std::lock_guard lock(mutex);
    if (disk_known) return;
    if (!Tiers::uses_disk(to, device)) return;
    try {
      Tiers::use_disk(to, device);
    } catch (const ValueError&) {
      if (folders != budget.disk) throw;
    }
    folders = budget.disk;
    disk_known = true;
  }

  // What is elsewhere goes by `to` from now on.
  void move(const TierPlan& to) {
    pass.reset();
    turns->rest();
    forward.reset();
    if (optimizer) optimizer->finish();  // an update that still runs writes the weights where they are
    tiers.reset();
    use_disk(to);
    if (optimizer && to.state == Place::device) optimizer->set_home({});
    if (to.parameters == Place::device) nn::move_parameters(model, Tier());
    tiers.emplace(to, model, optimizer, device, false);  // the bound is the scope's, from its beginning to its end
    // Asked after all others: where they have given nothing.
    const int64_t last = wanted ? wanted->last.load() : 0;
    wanted = std::make_shared<Wanted>(device);
    wanted->last = last;
    memory::add_reliever(wanted);
    turns->set_again(to.recomputed, !planned);
    plan = to;
  }
  void begin() {
    const Tiers* now = tiers ? &*tiers : nullptr;
    if (!forward) forward.emplace(now);
    pass.emplace(now);
    if (steps < kRecordedStep || planned || recorder) return;
    if (device.is_cpu()) release_scratch();  // counted with the calls that take it
    others = other_bytes();
    turns->take();
    if (!clock) clock = lab::clock_of(device);
    turns->begin_own();
    recorder.emplace(RecordOptions{.clock = clock.get()});
  }

  // On the device, but for parameters, gradients and state.
  int64_t other_bytes() const {
    std::set<const Storage*> known;
    int64_t bytes = 0;
    const auto count = [&](const Tensor& t) {
      if (t.defined() && t.device() == device && t.tier() == memory::backend(device).tier &&
          known.insert(t.storage().get()).second)
        bytes += static_cast<int64_t>(t.storage()->nbytes);
    };
    for (const Tensor& t : model.parameters()) {
      count(t);
      count(t.grad());
    }
    if (optimizer)
      for (const auto& [name, t] : optimizer->state_dict()) count(t);
    return memory::stats(device).live_total - bytes - near_bytes();
  }
  // Of what is at home elsewhere.
  int64_t near_bytes() const {
    int64_t bytes = 0;
    for (const Tier tier : {memory::kDisk, Tier::pinned})
      if (memory::find_backend(device.type, tier) && memory::backend(device, tier).bytes == memory::Bytes::movable)
        bytes += memory::near_stats(device, tier).bytes;
    return bytes;
  }

  void learn() {
    RecordedStep ran{.dry = {.step = recorder->finish()}, .turns = turns->take(), .least = least_leaving()};
    ran.fused_update = optimizer && optimizer->record() && optimizer->record()->rule;
    recorder.reset();
    Recording& r = ran.dry.step;
    const auto n = static_cast<int32_t>(r.calls.size());
    for (const strata::budget::Turns::Own& own : turns->end_own(peak_before))
      if (own.call < n) r.storages.push_back({own.bytes, device, memory::Tag::workspace, own.call, own.call + 1, {}});
    if (std::none_of(r.calls.begin(), r.calls.end(), [](const RecordedCall& c) { return c.phase == Phase::backward; }))
      return;  // no step: the next may be one
    ran.dry.largest_part = largest_part();
    ran.dry.largest_weight = largest_weight();
    if (optimizer) {
      std::map<std::string, int64_t> own;
      for (const auto& [name, t] : optimizer->state_dict())
        ran.dry.largest_state = std::max(ran.dry.largest_state, own[name.substr(0, name.rfind('.'))] += t.nbytes());
    }
    for (const RecordedStorage& s : r.storages)
      if (s.born < 0 && s.tag != memory::Tag::parameter && s.tag != memory::Tag::gradient &&
          s.tag != memory::Tag::optimizer)
        others -= s.nbytes;
    ran.others = std::max<int64_t>(0, others);
    TierPlan best = plan_recorded(ran, keys, device, speeds.rates);
    if (best.state != Place::device) best.group = std::min(best.group, group_bytes());
    planned = true;
    if (!best.fits) {  // what has run so far has kept to the budget
      why = "no other way was found that keeps to the budget: steps go on as the first ones";
      TierPlan now = plan;
      now.peak_without = best.peak_without;
      now.seconds_without = best.seconds_without;
      now.peak.device = std::max(now.peak.device, peak());
      plan = now;
      turns->set_again(0, false);
      return;
    }
    const TierPlan before = plan;
    try {
      move(best);
    } catch (const MemoryError& e) {
      why = cat("the plan found no room, so steps go on as the first ones: ", e.what());
      move(before);
    } catch (const Error&) {  // the loop may end, or go on without what a disk has refused
      pass.reset();
      forward.reset();
      tiers.reset();
      turns->set_again(0, false);
      throw;
    }
  }

  // The most that was in use since the scope began.
  int64_t peak() const { return std::max(peak_before, memory::stats(device).peak_total); }

  void check_thread() const {
    check(std::this_thread::get_id() == thread, "BudgetScope", "a step ends on another thread than the scope's");
  }
  // Everything is as without a scope. Weights and state return where `device` has room.
  void end() {
    recorder.reset();
    pass.reset();
    turns.reset();
    forward.reset();
    if (optimizer) optimizer->finish();
    tiers.reset();
    limit.reset();
    int64_t away = 0;
    const Tier near = memory::backend(device).tier;
    for (const Tensor& t : model.parameters())
      if (t.tier() != near) away += t.nbytes() + (t.grad().defined() ? t.grad().nbytes() : 0);
    const bool state = optimizer && optimizer->home().where != Tier();
    if (state) away += optimizer->state_bytes();
    if (away == 0 && !state) return;
    // Something is to be left for who goes on.
    if (static_cast<double>(away) > 0.8 * static_cast<double>(memory::tightest_bound(device).free())) return;
    try {
      nn::move_parameters(model, Tier());
      if (state) optimizer->set_home({});
    } catch (const MemoryError&) {  // others took it meanwhile: the rest stays, and is read where it is
    }
  }

  nn::Module model;
  optim::Optimizer* optimizer;
  const Device device;
  const MemoryConfig keys;
  const memory::Budget budget;
  const std::thread::id thread = std::this_thread::get_id();
  const Taken taken;
  std::shared_ptr<Wanted> wanted;
  const TierSpeeds speeds;
  std::optional<Limit> limit;
  std::optional<strata::budget::Turns> turns;
  TierPlan plan;
  std::optional<Tiers> tiers;
  std::optional<Tiers::Forward> forward;
  std::optional<Tiers::Pass> pass;
  std::unique_ptr<RecordClock> clock;
  std::optional<Recorder> recorder;
  bool disk_known = false;
  int64_t steps = 0;
  int64_t others = 0;
  int64_t peak_before = 0;  // before the device's peak began anew: calls of the recorded step are measured each
  bool planned = false;
  std::string why;
};

BudgetScope::BudgetScope(const nn::Module& model, optim::Optimizer& optimizer, const MemoryConfig& budget)
    : state_(std::make_unique<State>(model, &optimizer, budget)) {}
BudgetScope::BudgetScope(const nn::Module& model, const MemoryConfig& budget)
    : state_(std::make_unique<State>(model, nullptr, budget)) {}

BudgetScope::~BudgetScope() {
  try {
    close();
  } catch (const Error&) {  // a disk that fails: told by whoever reads there next
  }
  // Of another thread: what that one's calls still look at stays.
  if (state_) (void)state_.release();
}

void BudgetScope::close() {
  if (!state_) return;
  state_->check_thread();
  const std::unique_ptr<State> last = std::move(state_);
  last->end();
}

void BudgetScope::before_update() {
  check(state_ != nullptr, "BudgetScope", "it has ended");
  State& s = *state_;
  s.check_thread();
  check<DeviceError>(!cuda::capturing(), "BudgetScope", "a step within a budget cannot be captured in a CUDA graph");
  s.turns->rest();
  s.pass.reset();  // the update wants the room
}

void BudgetScope::after_update() {
  check(state_ != nullptr, "BudgetScope", "it has ended");
  State& s = *state_;
  ++s.steps;
  if (s.recorder) s.learn();
  s.begin();
}

void BudgetScope::update_failed() noexcept {
  try {
    if (state_) state_->begin();
  } catch (const Error&) {  // steps go on without bringing ahead
  }
}

bool BudgetScope::planned() const {
  return state_ && state_->planned;
}
const TierPlan& BudgetScope::plan() const {
  check(state_ != nullptr, "BudgetScope", "it has ended");
  return state_->plan;
}
int64_t BudgetScope::peak() const {
  check(state_ != nullptr, "BudgetScope", "it has ended");
  return state_->peak();
}

std::string BudgetScope::describe() const {
  check(state_ != nullptr, "BudgetScope", "it has ended");
  const State& s = *state_;
  std::string text;
  if (!s.planned)
    text += fmt::format("step {} of the first {}, which are recorded with as much elsewhere as can be\n", s.steps + 1,
                        kRecordedStep + 1);
  if (!s.why.empty()) text += s.why + "\n";
  text += to_text(s.plan);
  text += fmt::format("{:<14}{} on {} after {} steps\n", "so far", bytes_text(peak()), to_string(s.device), s.steps);
  if (const std::string moved = s.tiers ? s.tiers->summary() : ""; !moved.empty())
    text += fmt::format("{:<14}{}\n", "moved", moved);
  return text;
}

std::string BudgetScope::advice() const {
  if (!state_) return {};
  const State& s = *state_;
  const int64_t missing = s.wanted->last.load(std::memory_order_relaxed);
  if (missing == 0 || s.budget.device == 0) return {};
  const int64_t least = s.budget.device + missing;
  std::string text = fmt::format(
      "the budget of {} was not enough: {} more were wanted when all that can be elsewhere was; "
      "device = \"{}MiB\" is the least to try",
      bytes_text(s.budget.device), bytes_text(missing), ((least + least / 10) >> 20) + 1);
  if (s.device.is_cpu() && s.budget.disk.empty()) text += ", or disk = \"FOLDER\", which lets tensors leave memory";
  return text;
}

}  // namespace strata
