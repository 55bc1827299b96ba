#include <algorithm>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/io/rank_checkpoint.h"
#include "strata/memory/budget.h"
#include "strata/train/exchange_run_inl.h"

namespace strata {
namespace {

using distributed::ExchangeOption;
using distributed::ExchangeRecord;
using distributed::ExchangeRefusal;
using Gives = ExchangeRecord::Gives;

constexpr std::string_view kOptimizer = "optimizer.";

bool has_word(std::string_view words, std::string_view word) {
  return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

bool refused(const ExchangeRefusal& r, const ConfigKey& key, TrainConfig& c) {
  void* const at = key.field(c);
  if (key.type == ConfigType::text) {
    const std::string& text = *static_cast<std::string*>(at);
    return r.texts == "*" ? !text.empty() : has_word(r.texts, text);
  }
  return static_cast<double>(*static_cast<int64_t*>(at)) > r.most;
}

bool is_direction(const TrainConfig& c, int64_t ranks) {
  return ranks > 1 && distributed::exchange_record(c.parallel.reduce).gives == Gives::direction;
}

}  // namespace

std::string ExchangeRun::refuses(const TrainConfig& config) {
  TrainConfig c = config;  // whose table gives fields to write; nothing is written here
  const std::string kind = cat("parallel.reduce = ", c.parallel.reduce);
  const ExchangeRecord& record = distributed::exchange_record(c.parallel.reduce);
  for (const ExchangeRefusal& r : record.refuses) {
    const auto key = std::ranges::find(config_keys(), r.key, &ConfigKey::name);
    if (refused(r, *key, c)) return cat(kind, " is not for ", r.key, " = ", value_text(c, *key), ": ", r.why);
  }
  if (!record.optimizers.empty() && !has_word(record.optimizers, c.optim.optimizer))
    return cat(kind, " is for train.optimizer = ", record.optimizers, ", not ", c.optim.optimizer);
  for (const ExchangeOption& o : distributed::exchange_options()) {
    if (record.reads(o.name) || o.value(c.parallel.reduce_options) == o.value({})) continue;
    return cat("parallel.reduce_", o.name, " is not read with ", kind);
  }
  return {};
}

OptimConfig ExchangeRun::update(const TrainConfig& config, int64_t ranks) {
  OptimConfig o = config.optim;
  if (!is_direction(config, ranks)) return o;
  o.optimizer = "sgd";
  o.number("momentum") = 0;
  o.flag("nesterov") = false;
  return o;
}

void ExchangeRun::check_same_update(const RunState& then, const TrainConfig& now, int64_t ranks) {
  const std::string &before = then.config.parallel.reduce, &after = now.parallel.reduce;
  const bool was = is_direction(then.config, std::max<int64_t>(then.ranks, 1)), is = is_direction(now, ranks);
  check(was == is && (!was || before == after), "train", "parallel.reduce was ", before, " on ",
        std::max<int64_t>(then.ranks, 1), " ranks and is ", after, " on ", ranks,
        ": moments of one are no state of the other");
}

ExchangeRun::ExchangeRun(std::unique_ptr<distributed::GradientExchange> exchange, bool on_host)
    : exchange_(std::move(exchange)), on_host_(on_host), plain_seconds_(exchange_->plain_seconds()) {}

std::unique_ptr<ExchangeRun> ExchangeRun::make(const nn::NamedTensors& parameters, distributed::Group& group,
                                               const TrainConfig& config) {
  const ParallelConfig& p = config.parallel;
  if (p.reduce == "plain") return nullptr;
  OptimConfig optim = config.optim;  // whose accessors give numbers to write
  distributed::ExchangeOptions options = p.reduce_options;
  options.beta1 = optim.number("beta1");
  options.beta2 = optim.number("beta2");
  options.eps = optim.number("eps");
  return std::unique_ptr<ExchangeRun>(
      new ExchangeRun(distributed::make_exchange(p.reduce, parameters, group, options),
                      parse_device(config.device).is_cpu()));
}

std::string ExchangeRun::refuses_capture(const TrainConfig& config) {
  const std::string& name = config.parallel.reduce;
  if (distributed::size() == 1 || distributed::exchange_record(name).alike) return {};
  return cat("the steps of parallel.reduce = ", name, " are not all alike");
}

void ExchangeRun::save(RunState& state, const optim::Optimizer& optimizer) const {
  state.ranks = exchange_->ranks();
  state.exchange = exchange_->state_dict();
  if (!gives(Gives::parameters)) return;
  const std::string own = cat("rank-", exchange_->rank(), ".", kOptimizer);
  for (const auto& [name, t] : optimizer.state_dict()) state.exchange[own + name] = t;
}

std::string ExchangeRun::resume(const FoundRun& found, optim::Optimizer& optimizer) const {
  const RunState& s = found.state;
  const std::string_view now = exchange_->record().name;
  if (s.config.parallel.reduce != now)
    return fmt::format("parallel.reduce was {} and is {}, which begins anew", s.config.parallel.reduce, now);
  if (s.ranks == 0) return {};  // of one rank, which exchanges nothing
  const std::string own = cat("rank-", exchange_->rank(), ".");
  const bool same = s.ranks == exchange_->ranks(), first = exchange_->rank() == 0;
  io::RankPlaces places;
  places.has = [&](const std::string&, const std::string& name) {
    // What is nobody's is read by the first, and dropped.
    return !name.starts_with("rank-") || (same ? name.starts_with(own) : first);
  };
  io::Checkpoint c = io::load_rank_checkpoint(distributed::group("world"), found.checkpoint, {"exchange"}, {},
                                              Device::cpu(), places);
  std::map<std::string, Tensor>& state = c.files.at("exchange");
  if (!same) {
    exchange_->load_common_state(state);
    return fmt::format("what {} ranks had kept back of parallel.reduce = {} is left out: there are {} now", s.ranks, now,
                       exchange_->ranks());
  }
  exchange_->load_state_dict(state);
  optim::StateDict moments;
  for (const auto& [name, t] : state)
    if (const std::string prefix = own + std::string(kOptimizer); name.starts_with(prefix))
      moments[name.substr(prefix.size())] = t;
  if (!moments.empty()) optimizer.load_state_dict(moments);
  return {};
}

void ExchangeRun::tell(StepMetrics& m) const {
  m.sent_bytes = static_cast<double>(exchange_->step_bytes());
  m.plain_bytes = exchange_->plain_bytes();
  if (on_host_) m.exchange_s = exchange_->seconds();
  seconds_ += exchange_->seconds();
  sent_ += exchange_->step_bytes();
  ++steps_;
}

std::string ExchangeRun::summary() const {
  if (steps_ == 0) return {};
  const auto steps = static_cast<double>(steps_);
  const double sent = static_cast<double>(sent_) / steps, plain = exchange_->plain_bytes();
  const double saved = plain_seconds_ * steps - seconds_;
  std::string text = fmt::format("parallel.reduce = {}: a rank sent {} in a step, {:.1f} times less than the {} of whole gradients",
                                 exchange_->record().name, memory::bytes_text(static_cast<int64_t>(sent)),
                                 plain / std::max(sent, 1.0), memory::bytes_text(static_cast<int64_t>(plain)));
  if (!on_host_) return text + fmt::format(", which take {:.2g} s (its own seconds are not measured on a card)", plain_seconds_);
  return text + fmt::format("; {:.2g} s with its coding, where sending those takes {:.2g} s: {:.2g} s {} in {} steps",
                            seconds_ / steps, plain_seconds_, std::abs(saved), saved >= 0 ? "saved" : "lost", steps_);
}

}  // namespace strata
