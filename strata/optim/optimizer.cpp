#include "strata/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/kernels.h"

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
                  std::string_view op, DeviceClip clip = {}) {
  for (Slab& s : slabs) {
    s.k[0] = scale;
    s.k[1] = limit;
  }
  run_rule(rule, slabs, clip);
  for (const Tensor& g : grads) bump_version(g, op);
}

// Slightly below max_norm / norm, as in PyTorch, so that rounding does not end above the limit.
double clip_scale(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + 1e-6));
}

// The CUDA device that holds all of them, if one does.
std::optional<Device> only_device(const std::vector<Slab>& slabs) {
  if (slabs.empty() || !slabs[0].device.is_cuda()) return {};
  for (const Slab& s : slabs)
    if (!(s.device == slabs[0].device)) return {};
  return slabs[0].device;
}

// Step counts stay on the host, which computes with them.
Device state_device(std::string_view key, const Tensor& param) {
  return key == "step" && param.device().is_cuda() ? Device::cpu() : param.device();
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
  return s;
}

void Optimizer::step(double grad_scale) {
  NoGrad guard;
  std::vector<Param*> active;
  bool dry = false;
  for (Param& p : params_) {
    const Tensor g = p.tensor.grad();
    if (!g.defined()) continue;
    p.grad = readable_grad(g, p.tensor, name_);
    active.push_back(&p);
    dry = dry || p.tensor.is_meta() || g.is_meta();
  }
  for (Param* p : active) {
    const std::vector<StateSpec> spec = state_spec(*p);
    p->first = p->state.size() != spec.size();
    if (p->first) {
      memory::TagScope tag(memory::Tag::optimizer);
      p->state.clear();
      for (const StateSpec& s : spec) {
        p->state.push_back(empty({s.shape, s.dtype, state_device(s.key, p->tensor), std::nullopt}));
        if (!dry) fill_elements(p->state.back(), 0);
      }
    }
    if (!dry && !spec.empty() && spec[0].key == "step") ++*p->state[0].data<int64_t>();
  }
  if (!dry && !active.empty()) update(active, grad_scale);
  for (Param* p : active) {
    bump_version(p->tensor, name_);
    p->grad = Tensor();
    p->first = false;
  }
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
  const Tensor sum = sum_of_squares_cuda(grads, grads[0].device);
  clip_sum_ = static_cast<const double*>(sum.raw_data());
  clip_norm_ = max_norm;
  step();
  clip_sum_ = nullptr;
  const double norm = std::sqrt(sum.item<double>());
  if (std::isfinite(norm)) return norm;
  for (size_t i = 0; i < params_.size(); ++i) {
    Param& p = params_[i];
    if (!p.tensor.grad().defined() || p.state.empty()) continue;
    if (fresh[i]) {
      p.state.clear();
    } else if (state_spec(p)[0].key == "step") {
      --*p.state[0].data<int64_t>();
    }
  }
  return norm;
}

void Optimizer::run(Rule rule, const std::vector<Slab>& slabs) const {
  run_rule(rule, slabs, {clip_sum_, clip_norm_});
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
      Tensor copy = empty({spec[i].shape, spec[i].dtype, state_device(spec[i].key, p.tensor), std::nullopt});
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
    const Tensor sum = sum_of_squares_cuda(slabs, *device);
    change_grads(Rule::scale_grad, slabs, keep, 1, 0, "clip_grad_norm",
                 {static_cast<const double*>(sum.raw_data()), max_norm});
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
