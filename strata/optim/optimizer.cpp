#include "strata/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/op_call.h"
#include "strata/core/placement.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/magnitudes.h"
#include "strata/memory/allocator.h"
#include "strata/memory/transfers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/grad_parts_inl.h"
#include "strata/optim/kernels.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/rounding_inl.h"
#include "strata/optim/update_op.h"
#include "strata/optim/verdict_inl.h"

namespace strata::optim {
namespace {

bool is_low(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16;
}

// A gradient as the kernels read it: row-major, f64 beside f64, else f32 or one of 16 bits.
Tensor readable_grad(const Tensor& grad, const Tensor& param, std::string_view op) {
  check<ShapeError>(grad.shape() == param.shape(), op, "the gradient ", grad,
                    " does not have the shape of its parameter ", param);
  const bool wide = param.dtype() == DType::f64;
  const bool as_is = wide ? grad.dtype() == DType::f64 : grad.dtype() == DType::f32 || is_low(grad.dtype());
  return contiguous(as_is ? grad.detach() : to(grad.detach(), wide ? DType::f64 : DType::f32));
}

const double* factor_of(const Tensor& verdict) {
  return &static_cast<const Verdict*>(verdict.raw_data())->factor;
}

// Runs a rule that writes to gradients.
void change_grads(Rule rule, GradParts& grads, double scale, double limit, std::string_view op,
                  const Tensor& verdict = {}) {
  for (Slab& s : grads.slabs) {
    s.k[0] = scale;
    s.k[1] = limit;
  }
  const strata::detail::PhaseScope phase(Phase::update);
  ObservedUpdate shown(rule, grads.slabs, verdict);
  run_rule(rule, grads.slabs, verdict.defined() ? factor_of(verdict) : nullptr);
  for (const Tensor& g : grads.given) bump_version(g, op);
  shown.done();
}

// A verdict on gradients of one device, as step_clipped() needs it.
Tensor judge_once(const Tensor& sum, double max_norm) {
  const Tensor verdict = empty({{kVerdictSize}, DType::f64, sum.device(), std::nullopt});
  fill_elements(verdict, 0);
  judge_cuda(verdict, sum, {}, max_norm, {});
  return verdict;
}

}  // namespace

NamedTensors number_params(const TensorList& params) {
  NamedTensors named;
  for (size_t i = 0; i < params.size(); ++i) named.emplace_back(std::to_string(i), params[i]);
  return named;
}

std::pair<NamedTensors, NamedTensors> split_by_rank(const NamedTensors& params) {
  std::pair<NamedTensors, NamedTensors> split;
  for (const auto& p : params) (p.second.dim() >= 2 ? split.first : split.second).push_back(p);
  return split;
}

void LowPrecision::validate() const {
  for (const auto& [in_f32, name] :
       {std::pair{master_weights, "master_weights"}, std::pair{compensated_weights, "compensated_weights"}})
    check(!in_f32 || !(stochastic_rounding || low_state), "LowPrecision", name,
          " keeps weights and state in f32: stochastic_rounding and low_state do not go with it");
  check(!(master_weights && compensated_weights), "LowPrecision",
        "master_weights and compensated_weights do not go together: both keep the weights in f32");
  check(!(low_state && state_8bit), "LowPrecision",
        "low_state and state_8bit do not go together: both say how moments are kept");
  check(min_8bit_size >= 0, "LowPrecision", "min_8bit_size must not be negative, got ", min_8bit_size);
}

void Optimizer::add_params(const NamedTensors& params, size_t group, const LowPrecision& low) {
  for (const auto& [name, t] : params) {
    check(t.defined(), name_, "parameter '", name, "' is undefined");
    check<DTypeError>(is_floating(t.dtype()), name_, "parameter '", name, "' is ", t, ", which has no gradient");
    check<DTypeError>(
        t.dtype() != DType::f16 || !(low.stochastic_rounding || low.low_state || low.compensated_weights), name_,
        "parameter '", name, "' is ", t,
        ": stochastic_rounding, compensated_weights and low_state are for bf16; f16 wants master_weights");
    check<AutogradError>(t.is_leaf(), name_, "parameter '", name, "' is the result of an op, not a leaf");
    check<ShapeError>(t.is_contiguous(), name_, "parameter '", name, "' must be row-major; it has strides ",
                      t.strides());
    for (const Param& p : params_) {
      check(p.name != name, name_, "two parameters are named '", name, "'");
      check(!p.given().same_as(t), name_, "parameter '", name, "' is given twice, before as '", p.name, "'");
    }
    Param p{.name = name, .tensor = t, .group = group, .low = low, .index = params_.size()};
    if (is_placed(t)) {
      p.sharded = t;
      p.tensor = local_part(t);
      check_sharded(p);
    }
    params_.push_back(std::move(p));
  }
}

DType Optimizer::arithmetic_dtype(const Param& p) {
  return p.tensor.dtype() == DType::f64 ? DType::f64 : DType::f32;
}
DType Optimizer::moment_dtype(const Param& p) {
  return p.low.low_state ? p.tensor.dtype() : arithmetic_dtype(p);
}
bool Optimizer::has_master(const Param& p) {
  return p.low.master_weights && is_low(p.tensor.dtype());
}
bool Optimizer::is_compensated(const Param& p) {
  return p.low.compensated_weights && p.tensor.dtype() == DType::bf16;
}
Tensor Optimizer::weights_of(const Param& p) {
  return has_master(p) ? p.state.back() : p.tensor.detach();
}

std::vector<Optimizer::StateSpec> Optimizer::full_spec(const Param& p) const {
  std::vector<StateSpec> spec = state_spec(p);
  const bool counts = !spec.empty() && spec[0].key == "step";
  if (p.low.stochastic_rounding && p.tensor.dtype() == DType::bf16 && !counts) spec.push_back({"step", {}, DType::i64});
  if (has_master(p)) spec.push_back({"master", p.shape(), DType::f32});
  if (is_compensated(p)) spec.push_back({"compensation", p.shape(), DType::i16});
  if (p.sharded.defined() && p.shape().size() > 0) {
    for (StateSpec& s : spec) {
      s.lies = s.shape == p.shape();
      if (s.lies) s.shape = p.tensor.shape();
    }
  }
  return spec;
}

Slab Optimizer::slab_of(const Param& p, size_t first_state) {
  const Tensor weights = weights_of(p);
  Slab s{.param = weights.raw_data(),
         .grad = p.grad.raw_data(),
         .numel = weights.numel(),
         .dtype = weights.dtype(),
         .grad_dtype = p.grad.dtype(),
         .state_dtype = moment_dtype(p),
         .device = weights.device()};
  // The rule's, each with its scales where it has some; not what LowPrecision adds behind them.
  Tensor states[kMostStates], scales[kMostStates];
  const size_t end = p.state.size() - (has_master(p) ? 1 : 0);
  int n = 0;
  for (size_t i = first_state; i < end && n < kMostStates; ++i, ++n) {
    const Tensor& t = p.state[i];
    if (t.dtype() == DType::i64 || t.dtype() == DType::i16) break;
    states[n] = t;
    s.state[n] = t.raw_data();
    if (t.dtype() != DType::u8) continue;
    s.state_dtype = DType::u8;
    scales[n] = p.state[++i];
    s.scale[n] = static_cast<float*>(scales[n].raw_data());
  }
  for (const Tensor& t : p.state) {
    if (t.dtype() != DType::i64) continue;
    auto* count = static_cast<int64_t*>(t.raw_data());
    if (t.device().is_cuda()) {
      s.count = s.step = count;
    } else {
      s.t = *count;
    }
  }
  s.stochastic = p.low.stochastic_rounding && p.tensor.dtype() == DType::bf16;
  s.seed = rounding_key(p.low.seed, p.index);
  // A device that is given no count takes this update for the first: its random bits are then those of update s.t.
  if (s.device.is_cuda() && !s.count && s.t > 0) s.seed += static_cast<uint64_t>(s.t - 1) * kRoundingStride;
  Tensor low;  // what is written with the parameter
  if (has_master(p)) {
    low = p.tensor.detach();
  } else if (is_compensated(p)) {
    low = p.state.back();
  } else if (p.renews_low) {
    low = autograd_meta(p.tensor).low.tensor;
  }
  if (low.defined()) {
    s.low = low.raw_data();
    s.low_dtype = low.dtype();
  }
  // What is kept of the parameter for fp8 is written with it.
  if (const Tensor kept = cuda::kept_magnitudes(p.tensor); kept.defined())
    s.most = static_cast<uint32_t*>(kept.raw_data());
  if (t_mode.unusual & kObserved) {
    s.tensors = std::make_shared<SlabTensors>(SlabTensors{.param = weights, .grad = p.grad});
    std::copy(states, states + n, s.tensors->state);
    std::copy(scales, scales + n, s.tensors->scale);
    for (const Tensor& t : p.state)
      if (t.dtype() == DType::i64) s.tensors->count = t;
    s.tensors->low = low;
  }
  return s;
}

// The host computes with step counts, but for rules that run on a device as a whole.
Device Optimizer::step_device(const Tensor& param) const {
  return param.device().is_cuda() && !fused() ? Device::cpu() : param.device();
}

void Optimizer::count_write(Param& p) {
  const Tensor magnitudes = fused() ? cuda::kept_magnitudes(p.tensor) : Tensor();  // slab_of()
  bump_version(p.tensor, name_);
  if (p.sharded.defined()) bump_version(p.sharded, name_);
  if (magnitudes.defined()) cuda::keep_magnitudes(p.tensor, magnitudes);
  if (p.renews_low) {
    LowCopy& low = autograd_meta(p.tensor).low;
    bump_version(low.tensor, name_);
    low.version = p.tensor.version();
  }
  p.version = p.given().version();
  p.grad = Tensor();
  p.first = false;
}

size_t Optimizer::keep_state(Param& p, const std::vector<StateSpec>& spec, strata::detail::Pins& pins) {
  refit(p.state, spec);
  // What there is may be of a parameter that had another dtype, device or home then, or without weights in f32.
  size_t kept = 0;
  const size_t both = std::min(p.state.size(), spec.size());
  while (kept < both && p.state[kept].shape() == spec[kept].shape) ++kept;
  if (kept < both) kept = 0;  // the state of another rule
  p.state.resize(kept);
  for (size_t i = 0; i < kept; ++i) {
    const Place place = place_of(p, spec[i]);
    Tensor& t = p.state[i];
    if (t.dtype() == spec[i].dtype && t.device() == place.device && (!place.tier || t.tier() == *place.tier)) continue;
    check(!cuda::capturing(), name_, "run a step before capturing one: '", p.name, "' has no such state yet");
    const Tensor made = place.make(spec[i]);
    pins.hold(made, Access::write);
    const Pin from(t, Access::read);
    if (!made.is_meta()) copy_elements(made, t);
    t = made;
  }
  return kept;
}

bool Optimizer::prepare_state(Param& p, bool dry, strata::detail::Pins& pins) {
  const std::vector<StateSpec> spec = full_spec(p);
  memory::TagScope tag(memory::Tag::optimizer);
  const memory::MovedName moved([&] { return "state of " + p.name; });
  const size_t kept = keep_state(p, spec, pins);
  for (size_t i = kept; i < spec.size(); ++i) {
    check(!cuda::capturing(), name_, "run a step before capturing one: '", p.name, "' has no such state yet");
    p.state.push_back(place_of(p, spec[i]).make(spec[i]));
    pins.hold(p.state.back(), Access::write);
    if (!dry) fill_elements(p.state.back(), spec[i].fill);
  }
  const bool make = kept == 0 && !spec.empty();
  if (!dry && has_master(p)) {
    if (kept < spec.size()) copy_elements(p.state.back(), p.tensor);
    renew_master(p);
  }
  if (dry) return make;
  for (size_t i = 0; i < spec.size(); ++i)
    if (spec[i].key == "step" && p.state[i].device().is_cpu()) ++*p.state[i].data<int64_t>();
  return make;
}

// Somebody may have written to the parameter: where it is not what its weights round to, it counts.
void Optimizer::renew_master(Param& p) {
  if (p.version == p.given().version()) return;
  check(!cuda::capturing(), name_, "run a step before capturing one: '", p.name, "' was written since");
  Tensor& master = p.state.back();
  const Tensor now = p.tensor.detach();
  master.copy_(where(to(master, now.dtype()) == now, master, to(now, DType::f32)));
  p.version = p.given().version();
}

bool Optimizer::capturable() const {
  if (!fused() || home_) return false;
  return std::none_of(params_.begin(), params_.end(), [&](const Param& p) { return is_gathered(p); });
}

bool Optimizer::take_gradient(Param& p, strata::detail::Pins& pins) {
  const Tensor g = gradient_part(p.given());
  if (!g.defined()) return false;
  const auto hold = [&](const Tensor& t, Access access, const char* what) {
    const memory::MovedName moved([&] { return what + p.name; });
    pins.hold(t, access);
  };
  {
    const memory::MovedName moved([&] { return "gradient of " + p.name; });
    p.grad = readable_grad(g, p.tensor, name_);
  }
  hold(p.grad, Access::read, "gradient of ");
  hold(p.tensor, Access::write, "");
  for (const Tensor& state : p.state) hold(state, Access::write, "state of ");
  // A copy that holds what the parameter holds still does so where the device decides against the step.
  const LowCopy& low = autograd_meta(p.tensor).low;
  p.renews_low = fused() && p.tensor.dtype() == DType::f32 && p.tensor.device().is_cuda() && low.tensor.defined() &&
                 low.is_current(p.tensor, low.tensor.dtype());
  if (p.renews_low) pins.hold(low.tensor, Access::write);  // it may live elsewhere, as the parameter may
  return true;
}

void Optimizer::step(double grad_scale) {
  NoGrad guard;
  const strata::detail::PhaseScope phase(Phase::update);
  const bool captured = cuda::capturing();
  check_none_begun(grad_scale != 1);
  check(!captured || capturable(), name_, "cannot be captured in a CUDA graph: ",
        home_     ? "its state has a home from which each step fetches it"
        : fused() ? "it gathers sharded parameters"
                  : "it computes on the host with each step's numbers");
  // Rules read and write by address. What they take for themselves is in memory that has one.
  const memory::TierScope own{Tier()};
  if (home_) return step_from_home(grad_scale);
  strata::detail::Pins pins;
  std::vector<Param*> active;
  bool dry = false;
  for (Param& p : params_) {
    if (!take_gradient(p, pins)) continue;
    active.push_back(&p);
    dry = dry || p.tensor.is_meta() || p.grad.is_meta();
  }
  for (Param* p : active) p->first = prepare_state(*p, dry, pins);
  if (captured) {
    captured_ = std::make_shared<Captured>();
    captured_->grad_scale = grad_scale;
    std::vector<std::pair<Tensor, Tensor>> kept;  // parameters, and what the loops will write of them for fp8
    for (Param* p : active) kept.emplace_back(p->tensor, cuda::kept_magnitudes(p->tensor));
    cuda::before_replays(alive_, [this, captured = captured_, kept = std::move(kept)] {
      for (const auto& [parameter, magnitudes] : kept) cuda::renew_magnitudes(parameter, magnitudes);
      refresh(captured);
    });
    for (Param* p : active) {
      captured_->active.push_back(static_cast<size_t>(p - params_.data()));
      captured_->low.push_back(p->renews_low ? autograd_meta(p->tensor).low.tensor : Tensor());
    }
  }
  update_taken(active, grad_scale, dry);
}

void Optimizer::update_taken(const std::vector<Param*>& active, double grad_scale, bool dry) {
  observed_runs_ = 0;
  std::vector<Param*> apart, here;
  for (Param* p : active) (is_gathered(*p) ? apart : here).push_back(p);
  if (!dry && !here.empty()) update(here, grad_scale);
  for (Param* p : apart)
    if (!dry) update_gathered(*p, grad_scale);
  if ((t_mode.unusual & kObserved) && observed_runs_ == 0 && !active.empty()) show_update(active);
  for (Param* p : active) count_write(*p);
}

// Of a dry run, and of a rule that has loops of its own.
void Optimizer::show_update(const std::vector<Param*>& active) {
  TensorList params, grads, states;
  for (const Param* p : active) {
    params.push_back(p->tensor.detach());
    grads.push_back(p->grad);
    states.insert(states.end(), p->state.begin(), p->state.end());
  }
  ObservedUpdate(name_, params, grads, states).done();
}

double Optimizer::step_clipped(double max_norm) {
  check(max_norm > 0, name_, "max_norm must be positive, got ", max_norm);
  check_none_begun(std::isfinite(max_norm));
  NoGrad guard;
  end_ahead();  // the last verdict is read by it
  const HostGradients gathered(*this);
  const GradParts grads = gradients_of(gathered.holders(), false);
  if (fused() && grads.only_device()) return step_clipped_on_device(max_norm, grads);
  const Tensor noted = noted_squares(Device::cpu());
  const double norm = std::sqrt(noted.defined() ? noted.item<double>() : grads.look(0).squares);
  if (std::isfinite(norm)) {
    step(clip_scale(norm, max_norm));
  } else if (ahead_) {
    end_early();
  }
  return norm;
}

// The device scales by the norm that it finds, or leaves everything as it is where that is not finite; the host asks
// for the norm when all is queued.
double Optimizer::step_clipped_on_device(double max_norm, const GradParts& grads) {
  std::vector<bool> fresh;
  for (const Param& p : params_) fresh.push_back(p.state.empty());
  Tensor sum = noted_squares(*grads.only_device());
  if (!sum.defined()) sum = grads.look_on_device({}).squares;
  const Tensor verdict = judge_once(sum, max_norm);
  factor_ = factor_of(verdict);
  verdict_ = verdict;
  step();
  factor_ = nullptr;
  verdict_ = {};
  const double norm = std::sqrt(sum.item<double>());
  if (!std::isfinite(norm)) end_ahead();
  for (size_t i = 0; i < params_.size() && !std::isfinite(norm); ++i)
    if (fresh[i]) params_[i].state.clear();
  return norm;
}

StepReport StepReport::of(const double* numbers) {
  return {numbers[0], numbers[1], numbers[2], static_cast<Outcome>(static_cast<int>(numbers[3]))};
}

Tensor Optimizer::step_guarded(const StepGuard& guard) {
  check(guard.max_norm > 0, name_, "max_norm must be positive, got ", guard.max_norm);
  check_none_begun(guard.scaler != nullptr || std::isfinite(guard.max_norm));
  if (guard.loss.defined()) {
    check<ShapeError>(guard.loss.numel() == 1, name_, "the loss must be one number, got ", guard.loss);
    check<DTypeError>(guard.loss.dtype() == DType::f32 || guard.loss.dtype() == DType::f64, name_,
                      "the loss must be f32 or f64, got ", guard.loss);
  }
  if (guard.squares.defined()) {
    check<ShapeError>(guard.squares.numel() == 1, name_, "the squares must be one number, got ", guard.squares);
    check<DTypeError>(guard.squares.dtype() == DType::f64, name_, "the squares must be f64, got ", guard.squares);
  }
  NoGrad no_grad;
  end_ahead();  // the last verdict is read by it
  const HostGradients gathered(*this);
  const GradParts grads = gradients_of(gathered.holders(), false);
  const std::optional<Device> card = fused() ? grads.only_device() : std::nullopt;
  const Device where = card.value_or(Device::cpu());
  for (const Tensor& t : {guard.loss, guard.scaler ? guard.scaler->state() : Tensor(), guard.squares})
    check<DeviceError>(!t.defined() || !card || t.device() == *card, name_, "the gradients are on ", where,
                       ", the loss, its scale or the squares are ", t);
  check(!cuda::capturing() || card, name_, "cannot be captured in a CUDA graph: ",
        home_     ? "its state has a home from which each step fetches it"
        : fused() ? "its gradients are not on one CUDA device"
                  : "it computes on the host with each step's numbers");
  if (!report_.defined() || !(report_.device() == where)) {
    check(!cuda::capturing(), name_, "run a step before capturing one");
    memory::TagScope tag(memory::Tag::optimizer);
    report_ = empty({{kVerdictSize}, DType::f64, where, std::nullopt});
    fill_elements(report_, 0);
  }
  ScaleRule rule;
  Tensor host_state;  // of a scaler on a device that the host has to decide for
  if (guard.scaler) {
    const LossScalerOptions& o = guard.scaler->options();
    host_state = card ? guard.scaler->state() : guard.scaler->state().to(Device::cpu());
    rule = {static_cast<double*>(host_state.raw_data()), o.growth, o.backoff, static_cast<double>(o.growth_interval)};
  }
  if (card) {
    const Tensor noted = guard.squares.defined() ? guard.squares : noted_squares(*card);
    GradParts::OnDevice seen{noted, guard.loss};
    if (!noted.defined()) seen = grads.look_on_device(guard.loss);
    judge_cuda(report_, seen.squares, seen.loss, guard.max_norm, rule);
    factor_ = factor_of(report_);
    verdict_ = report_;
    try {
      step();
    } catch (...) {
      factor_ = nullptr;
      verdict_ = {};
      throw;
    }
    factor_ = nullptr;
    verdict_ = {};
  } else {
    auto& verdict = *static_cast<Verdict*>(report_.raw_data());
    const Tensor noted = guard.squares.defined() ? guard.squares : noted_squares(Device::cpu());
    GradParts::Seen seen{0, guard.loss.defined() ? guard.loss.item() : 0};
    if (noted.defined())
      seen.squares = noted.item<double>();
    else
      seen = grads.look(seen.loss);
    judge(verdict, seen.squares, seen.loss, guard.max_norm, rule);
    if (guard.scaler && !guard.scaler->state().same_as(host_state)) guard.scaler->load_state(host_state);
    if (static_cast<int>(verdict.outcome) == StepReport::updated) {
      step(verdict.factor);
    } else if (ahead_) {
      end_early();
    }
  }
  return report_;
}

void Optimizer::reset_guard() {
  NoGrad guard;
  if (report_.defined()) fill_elements(report_, 0);
}

void Optimizer::refresh(const std::shared_ptr<Captured>& captured) {
  NoGrad guard;
  std::vector<Param*> active;
  for (size_t i = 0; i < captured->active.size(); ++i) {
    Param& p = params_[captured->active[i]];
    active.push_back(&p);
    p.grad = p.tensor.detach();  // stands in: only constants are written
    if (has_master(p)) renew_master(p);
    Tensor& low = captured->low[i];
    p.renews_low = low.defined();
    if (!low.defined()) continue;
    LowCopy& now = autograd_meta(p.tensor).low;
    if (now.tensor.defined() && now.tensor.same_as(low) && now.is_current(p.tensor, low.dtype())) continue;
    const Pin to(low), from(p.tensor, Access::read);
    copy_elements(low, p.tensor);  // somebody wrote to the parameter since
    now = {low, p.tensor.version()};
  }
  const std::shared_ptr<Captured> last = std::exchange(captured_, captured);
  refreshing_ = 1;
  update(active, captured->grad_scale);
  refreshing_ = 0;
  captured_ = last;
  for (Param* p : active) count_write(*p);
}

// A captured loop reads constants that only refresh() writes.
void Optimizer::run(Rule rule, const std::vector<Slab>& slabs) {
  if (refreshing_ > 0) return write_constants(rule, captured_->constants.at(refreshing_++ - 1), slabs);
  ObservedUpdate shown(rule, slabs, verdict_);
  observed_runs_ += shown.seen();
  run_loops(rule, slabs);
  shown.done();
}

void Optimizer::run_loops(Rule rule, const std::vector<Slab>& slabs) {
  if (delay(rule, slabs)) return;
  if (!cuda::capturing()) return run_rule(rule, slabs, factor_);
  if (slabs.empty()) {
    captured_->constants.push_back(empty({{0}, DType::f64, Device::cpu(), std::nullopt}));
    return;
  }
  check(device_of_all(slabs).has_value(), name_,
        "cannot be captured in a CUDA graph: parameters are on several devices");
  captured_->constants.push_back(empty_constants(slabs.size(), slabs[0].device));
  run_rule_cuda(rule, slabs, captured_->constants.back(), factor_);
}

void Optimizer::zero_grad(bool set_to_none) {
  clear_host_gradients(set_to_none);
  for (Param& p : params_) {
    Tensor given = p.given(), g = given.grad();
    if (!g.defined()) continue;
    if (set_to_none) {
      given.set_grad({});
    } else {
      g = g.detach();
      NoGrad guard;
      g.zero_();
    }
  }
}

NamedTensors Optimizer::params() const {
  NamedTensors named;
  for (const Param& p : params_) named.emplace_back(p.name, p.given());
  return named;
}

double grad_norm(const TensorList& params) {
  NoGrad guard;
  return std::sqrt(GradParts(params, false, "grad_norm").look(0).squares);
}

double clip_grad_norm(const TensorList& params, double max_norm) {
  check(max_norm > 0, "clip_grad_norm", "max_norm must be positive, got ", max_norm);
  NoGrad guard;
  GradParts grads(params, true, "clip_grad_norm");
  if (grads.only_device()) {
    const Tensor sum = grads.look_on_device({}).squares, verdict = judge_once(sum, max_norm);
    change_grads(Rule::scale_grad, grads, 1, 0, "clip_grad_norm", verdict);
    return std::sqrt(sum.item<double>());
  }
  const double norm = std::sqrt(grads.look(0).squares);
  const double scale = clip_scale(norm, max_norm);
  if (std::isfinite(norm) && scale < 1) change_grads(Rule::scale_grad, grads, scale, 0, "clip_grad_norm");
  return norm;
}

void clip_grad_value(const TensorList& params, double max) {
  check(max >= 0, "clip_grad_value", "the largest value must not be negative, got ", max);
  NoGrad guard;
  GradParts grads(params, true, "clip_grad_value");
  change_grads(Rule::clamp_grad, grads, 1, max, "clip_grad_value");
}

}  // namespace strata::optim
