#include "strata/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/kernels.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/verdict_inl.h"

namespace strata::optim {
namespace {

// A gradient as the kernels read it: row-major, of the parameter's dtype or bf16 beside f32.
Tensor readable_grad(const Tensor& grad, const Tensor& param, std::string_view op) {
  check<ShapeError>(grad.shape() == param.shape(), op, "the gradient ", grad,
                    " does not have the shape of its parameter ", param);
  const bool as_is = grad.dtype() == param.dtype() || (grad.dtype() == DType::bf16 && param.dtype() == DType::f32);
  return contiguous(as_is ? grad.detach() : to(grad.detach(), param.dtype()));
}

// The gradients of `params` as slabs; `keep` holds what they point into.
std::vector<Slab> grad_slabs(const TensorList& params, bool writable, std::string_view op, TensorList& keep) {
  std::vector<Slab> slabs;
  for (const Tensor& p : params) {
    Tensor g = p.grad();
    if (!g.defined() || g.is_meta()) continue;
    g = g.detach();
    if (!writable) {
      if (g.dtype() == DType::f16) g = to(g, DType::f32);
      g = contiguous(g);
    }
    check<ShapeError>(g.is_contiguous(), op, "needs row-major gradients; one of shape ", g.shape(), " has strides ",
                      g.strides());
    check<DTypeError>(is_floating(g.dtype()) && g.dtype() != DType::f16, op, "takes f32, f64 and bf16 gradients, got ",
                      g);
    keep.push_back(g);
    slabs.push_back({.grad = g.raw_data(), .numel = g.numel(), .grad_dtype = g.dtype(), .device = g.device()});
  }
  return slabs;
}

// Runs a rule that writes to gradients.
void change_grads(Rule rule, std::vector<Slab>& slabs, const TensorList& grads, double scale, double limit,
                  std::string_view op, const double* factor = nullptr) {
  for (Slab& s : slabs) {
    s.k[0] = scale;
    s.k[1] = limit;
  }
  run_rule(rule, slabs, factor);
  for (const Tensor& g : grads) bump_version(g, op);
}

// The CUDA device that holds all of them, if one does.
std::optional<Device> only_device(const std::vector<Slab>& slabs) {
  if (slabs.empty() || !slabs[0].device.is_cuda()) return {};
  for (const Slab& s : slabs)
    if (!(s.device == slabs[0].device)) return {};
  return slabs[0].device;
}

// A verdict on gradients of one device, as step_clipped() needs it.
Tensor judge_once(const Tensor& sum, double max_norm) {
  const Tensor verdict = empty({{kVerdictSize}, DType::f64, sum.device(), std::nullopt});
  fill_elements(verdict, 0);
  judge_cuda(verdict, sum, {}, max_norm, {});
  return verdict;
}
const double* factor_of(const Tensor& verdict) {
  return &static_cast<const Verdict*>(verdict.raw_data())->factor;
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

void Optimizer::add_params(const NamedTensors& params, size_t group) {
  for (const auto& [name, t] : params) {
    check(t.defined(), name_, "parameter '", name, "' is undefined");
    check<DTypeError>(t.dtype() == DType::f32 || t.dtype() == DType::f64, name_, "parameter '", name, "' is ", t,
                      "; keep parameters in f32 and compute in low precision with AutocastScope");
    check<AutogradError>(t.is_leaf(), name_, "parameter '", name, "' is the result of an op, not a leaf");
    check<ShapeError>(t.is_contiguous(), name_, "parameter '", name, "' must be row-major; it has strides ",
                      t.strides());
    for (const Param& p : params_) {
      check(p.name != name, name_, "two parameters are named '", name, "'");
      check(!p.tensor.same_as(t), name_, "parameter '", name, "' is given twice, before as '", p.name, "'");
    }
    params_.push_back({.name = name, .tensor = t, .group = group});
  }
}

Slab Optimizer::slab_of(const Param& p, size_t first_state) {
  Slab s{.param = p.tensor.raw_data(),
         .grad = p.grad.raw_data(),
         .numel = p.tensor.numel(),
         .dtype = p.tensor.dtype(),
         .grad_dtype = p.grad.dtype(),
         .device = p.tensor.device()};
  for (size_t i = first_state; i < p.state.size() && i < first_state + 2; ++i)
    s.state[i - first_state] = p.state[i].raw_data();
  if (p.renews_low) {
    const Tensor& low = autograd_meta(p.tensor).low.tensor;
    s.low = low.raw_data();
    s.low_dtype = low.dtype();
  }
  return s;
}

// The host computes with step counts, but for rules that run on a device as a whole.
Device Optimizer::step_device(const Tensor& param) const {
  return param.device().is_cuda() && !fused() ? Device::cpu() : param.device();
}

void Optimizer::count_write(Param& p) {
  bump_version(p.tensor, name_);
  if (p.renews_low) {
    LowCopy& low = autograd_meta(p.tensor).low;
    bump_version(low.tensor, name_);
    low.version = p.tensor.version();
  }
  p.grad = Tensor();
  p.first = false;
}

void Optimizer::step(double grad_scale) {
  NoGrad guard;
  const bool captured = cuda::capturing();
  check(!captured || fused(), name_,
        "cannot be captured in a CUDA graph: it computes on the host with each step's numbers");
  std::vector<Param*> active;
  bool dry = false;
  for (Param& p : params_) {
    const Tensor g = p.tensor.grad();
    if (!g.defined()) continue;
    p.grad = readable_grad(g, p.tensor, name_);
    // A copy that holds what the parameter holds still does so where the device decides against the step.
    const LowCopy& low = autograd_meta(p.tensor).low;
    p.renews_low =
        fused() && p.tensor.device().is_cuda() && low.tensor.defined() && low.is_current(p.tensor, low.tensor.dtype());
    active.push_back(&p);
    dry = dry || p.tensor.is_meta() || g.is_meta();
  }
  for (Param* p : active) {
    const std::vector<StateSpec> spec = state_spec(*p);
    p->first = p->state.size() != spec.size();
    if (p->first) {
      check(!captured, name_, "run a step before capturing one: '", p->name, "' has no state yet");
      memory::TagScope tag(memory::Tag::optimizer);
      p->state.clear();
      for (const StateSpec& s : spec) {
        const Device device = s.key == "step" ? step_device(p->tensor) : p->tensor.device();
        p->state.push_back(empty({s.shape, s.dtype, device, std::nullopt}));
        if (!dry) fill_elements(p->state.back(), 0);
      }
    }
    if (!dry && !spec.empty() && spec[0].key == "step" && p->state[0].device().is_cpu()) ++*p->state[0].data<int64_t>();
  }
  if (captured) {
    captured_ = std::make_shared<Captured>();
    captured_->grad_scale = grad_scale;
    cuda::before_replays(alive_, [this, captured = captured_] { refresh(captured); });
    for (Param* p : active) {
      captured_->active.push_back(static_cast<size_t>(p - params_.data()));
      captured_->low.push_back(p->renews_low ? autograd_meta(p->tensor).low.tensor : Tensor());
    }
  }
  if (!dry && !active.empty()) update(active, grad_scale);
  for (Param* p : active) count_write(*p);
}

double Optimizer::step_clipped(double max_norm) {
  check(max_norm > 0, name_, "max_norm must be positive, got ", max_norm);
  TensorList tensors;
  for (const Param& p : params_) tensors.push_back(p.tensor);
  NoGrad guard;
  TensorList keep;
  const std::vector<Slab> grads = grad_slabs(tensors, false, name_, keep);
  if (fused() && only_device(grads)) return step_clipped_on_device(max_norm, grads);
  const double norm = std::sqrt(sum_of_squares(grads));
  if (std::isfinite(norm)) step(clip_scale(norm, max_norm));
  return norm;
}

// The device scales by the norm that it finds, or leaves everything as it is where that is not finite; the host asks
// for the norm when all is queued.
double Optimizer::step_clipped_on_device(double max_norm, const std::vector<Slab>& grads) {
  std::vector<bool> fresh;
  for (const Param& p : params_) fresh.push_back(p.state.empty());
  const Tensor sum = sum_of_squares_cuda(grads, grads[0].device), verdict = judge_once(sum, max_norm);
  factor_ = factor_of(verdict);
  step();
  factor_ = nullptr;
  const double norm = std::sqrt(sum.item<double>());
  for (size_t i = 0; i < params_.size() && !std::isfinite(norm); ++i)
    if (fresh[i]) params_[i].state.clear();
  return norm;
}

StepReport StepReport::of(const double* numbers) {
  return {numbers[0], numbers[1], numbers[2], static_cast<Outcome>(static_cast<int>(numbers[3]))};
}

Tensor Optimizer::step_guarded(const StepGuard& guard) {
  check(guard.max_norm > 0, name_, "max_norm must be positive, got ", guard.max_norm);
  if (guard.loss.defined()) {
    check<ShapeError>(guard.loss.numel() == 1, name_, "the loss must be one number, got ", guard.loss);
    check<DTypeError>(guard.loss.dtype() == DType::f32 || guard.loss.dtype() == DType::f64, name_,
                      "the loss must be f32 or f64, got ", guard.loss);
  }
  NoGrad no_grad;
  TensorList tensors, keep;
  for (const Param& p : params_) tensors.push_back(p.tensor);
  const std::vector<Slab> grads = grad_slabs(tensors, false, name_, keep);
  const std::optional<Device> card = fused() ? only_device(grads) : std::nullopt;
  const Device where = card.value_or(Device::cpu());
  for (const Tensor& t : {guard.loss, guard.scaler ? guard.scaler->state() : Tensor()})
    check<DeviceError>(!t.defined() || !card || t.device() == *card, name_, "the gradients are on ", where,
                       ", the loss or its scale is ", t);
  check(!cuda::capturing() || card, name_, "cannot be captured in a CUDA graph: ",
        fused() ? "its gradients are not on one CUDA device" : "it computes on the host with each step's numbers");
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
    judge_cuda(report_, sum_of_squares_cuda(grads, *card), guard.loss, guard.max_norm, rule);
    factor_ = factor_of(report_);
    try {
      step();
    } catch (...) {
      factor_ = nullptr;
      throw;
    }
    factor_ = nullptr;
  } else {
    auto& verdict = *static_cast<Verdict*>(report_.raw_data());
    judge(verdict, sum_of_squares(grads), guard.loss.defined() ? guard.loss.item() : 0, guard.max_norm, rule);
    if (guard.scaler && !guard.scaler->state().same_as(host_state)) guard.scaler->load_state(host_state);
    if (static_cast<int>(verdict.outcome) == StepReport::updated) step(verdict.factor);
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
    Tensor& low = captured->low[i];
    p.renews_low = low.defined();
    if (!low.defined()) continue;
    LowCopy& now = autograd_meta(p.tensor).low;
    if (now.tensor.defined() && now.tensor.same_as(low) && now.is_current(p.tensor, low.dtype())) continue;
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
  if (refreshing_ > 0) return write_constants(captured_->constants.at(refreshing_++ - 1), slabs);
  if (!cuda::capturing()) return run_rule(rule, slabs, factor_);
  if (slabs.empty()) {
    captured_->constants.push_back(empty({{0}, DType::f64, Device::cpu(), std::nullopt}));
    return;
  }
  check(only_device(slabs).has_value(), name_, "cannot be captured in a CUDA graph: parameters are on several devices");
  captured_->constants.push_back(empty_constants(slabs.size(), slabs[0].device));
  run_rule_cuda(rule, slabs, captured_->constants.back(), factor_);
}

void Optimizer::zero_grad(bool set_to_none) {
  for (Param& p : params_) {
    Tensor g = p.tensor.grad();
    if (!g.defined()) continue;
    if (set_to_none) {
      p.tensor.set_grad({});
    } else {
      g = g.detach();
      NoGrad guard;
      g.zero_();
    }
  }
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Param& p : params_)
    for (const StateSpec& spec : state_spec(p)) bytes += spec.shape.product() * size_of(spec.dtype);
  return bytes;
}

StateDict Optimizer::state_dict() const {
  StateDict all;
  for (const Param& p : params_) {
    const std::vector<StateSpec> spec = state_spec(p);
    if (p.state.size() != spec.size()) continue;
    for (size_t i = 0; i < spec.size(); ++i) all.emplace(cat(p.name, '.', spec[i].key), p.state[i]);
  }
  return all;
}

void Optimizer::load_state_dict(const StateDict& state) {
  NoGrad guard;
  memory::TagScope tag(memory::Tag::optimizer);
  std::vector<std::vector<Tensor>> loaded(params_.size());
  size_t used = 0;
  for (size_t k = 0; k < params_.size(); ++k) {
    const Param& p = params_[k];
    const std::vector<StateSpec> spec = state_spec(p);
    for (size_t i = 0; i < spec.size(); ++i) {
      const std::string key = cat(p.name, '.', spec[i].key);
      const auto it = state.find(key);
      if (it == state.end()) {
        check(loaded[k].empty(), name_, "the state has no '", key, "' although it has '", p.name, '.', spec[0].key,
              "'");
        for (size_t j = i + 1; j < spec.size(); ++j)
          check(!state.contains(cat(p.name, '.', spec[j].key)), name_, "the state has no '", key, "'");
        break;
      }
      check<ShapeError>(it->second.shape() == spec[i].shape, name_, "'", key, "' is ", it->second, ", wanted is ",
                        spec[i].shape);
      check<DTypeError>(it->second.dtype() == spec[i].dtype, name_, "'", key, "' is ", it->second, ", wanted is ",
                        spec[i].dtype);
      const Device device = spec[i].key == "step" ? step_device(p.tensor) : p.tensor.device();
      Tensor copy = empty({spec[i].shape, spec[i].dtype, device, std::nullopt});
      if (!copy.is_meta()) copy_elements(copy, it->second);
      loaded[k].push_back(std::move(copy));
      ++used;
    }
  }
  if (used != state.size()) {
    for (const auto& entry : state) {
      const std::string& key = entry.first;
      const bool known = std::any_of(params_.begin(), params_.end(), [&](const Param& p) {
        const std::vector<StateSpec> spec = state_spec(p);
        return std::any_of(spec.begin(), spec.end(),
                           [&](const StateSpec& s) { return cat(p.name, '.', s.key) == key; });
      });
      check(known, name_, "the state has '", key, "', which belongs to no parameter of this optimizer");
    }
  }
  for (size_t k = 0; k < params_.size(); ++k) params_[k].state = std::move(loaded[k]);
}

NamedTensors Optimizer::params() const {
  NamedTensors named;
  for (const Param& p : params_) named.emplace_back(p.name, p.tensor);
  return named;
}

double grad_norm(const TensorList& params) {
  NoGrad guard;
  TensorList keep;
  return std::sqrt(sum_of_squares(grad_slabs(params, false, "grad_norm", keep)));
}

double clip_grad_norm(const TensorList& params, double max_norm) {
  check(max_norm > 0, "clip_grad_norm", "max_norm must be positive, got ", max_norm);
  NoGrad guard;
  TensorList keep;
  std::vector<Slab> slabs = grad_slabs(params, true, "clip_grad_norm", keep);
  if (const auto device = only_device(slabs)) {
    const Tensor sum = sum_of_squares_cuda(slabs, *device), verdict = judge_once(sum, max_norm);
    change_grads(Rule::scale_grad, slabs, keep, 1, 0, "clip_grad_norm", factor_of(verdict));
    return std::sqrt(sum.item<double>());
  }
  const double norm = std::sqrt(sum_of_squares(slabs));
  const double scale = clip_scale(norm, max_norm);
  if (std::isfinite(norm) && scale < 1) change_grads(Rule::scale_grad, slabs, keep, scale, 0, "clip_grad_norm");
  return norm;
}

void clip_grad_value(const TensorList& params, double max) {
  check(max >= 0, "clip_grad_value", "the largest value must not be negative, got ", max);
  NoGrad guard;
  TensorList keep;
  std::vector<Slab> slabs = grad_slabs(params, true, "clip_grad_value", keep);
  change_grads(Rule::clamp_grad, slabs, keep, 1, max, "clip_grad_value");
}

}  // namespace strata::optim
