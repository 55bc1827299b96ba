#include "strata/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "strata/autograd/autograd.h"
#include "strata/core/rng.h"

namespace strata {
namespace {

// A row-major leaf with x's values that shares nothing with it.
Tensor fresh_leaf(const Tensor& x) {
  Tensor t = x.detach().contiguous().clone();
  if (x.requires_grad()) t.set_requires_grad();
  return t;
}

// Weights of the outputs in [-1.5, -0.5] or [0.5, 1.5]: none so small that it would hide an error.
Tensor weights_for(const Tensor& y, uint64_t seed) {
  Tensor w = empty({y.shape(), DType::f64, Device::cpu(), std::nullopt});
  double* p = w.data<double>();
  for (int64_t i = 0; i < w.numel(); ++i) {
    const auto r = philox({seed, 0}, static_cast<uint64_t>(i));
    p[i] = (0.5 + uniform_f64(r[0], r[1])) * (r[2] & 1 ? 1 : -1);
  }
  return w;
}

// x's values as f64, row-major.
Tensor on_host(const Tensor& x) {
  return x.detach().to(DType::f64).to(Device::cpu()).contiguous();
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", v);
  return text;
}

// "[1, 2]": where element `i` of a row-major tensor is.
std::string position(int64_t i, const Shape& shape) {
  Dims at = Dims::filled(shape.size(), 0);
  for (int d = shape.size() - 1; d >= 0; --d) {
    at[d] = i % shape[d];
    i /= shape[d];
  }
  return to_string(at);
}

void require_f64(const TensorList& inputs, std::string_view op) {
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    any = true;
    check<DTypeError>(inputs[i].dtype() == DType::f64, op, "input ", i, " is ", inputs[i],
                      "; differences need f64: convert with .to(DType::f64)");
  }
  check(any, op, "no input requires a gradient");
}

class Checker {
 public:
  Checker(detail::TensorFnRef fn, const TensorList& inputs, const GradcheckOptions& options)
      : fn_(fn), options_(options) {
    for (const Tensor& x : inputs) inputs_.push_back(x.defined() ? fresh_leaf(x) : Tensor());
  }

  GradcheckResult run() {
    TensorList outputs;
    {
      GradMode on(true);
      outputs = fn_.call(fn_.fn, inputs_);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      weights_.push_back(outputs[i].defined() && is_floating(outputs[i].dtype()) ? weights_for(outputs[i], i + 1)
                                                                                 : Tensor());
    if (const double a = weighted(outputs), b = evaluate(); !(a == b) && !(std::isnan(a) && std::isnan(b))) {
      result_.ok = false;
      result_.report = cat("the function is not deterministic: the weighted sum of its outputs is ", number(a),
                           " the first time and ", number(b), " the second");
      return result_;
    }
    const TensorList grads = analytic(outputs);
    size_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].defined() && inputs_[i].requires_grad()) compare(i, grads[next++]);
    if (!result_.ok)
      result_.report = cat(wrong_, " of ", compared_, " gradients differ; the worst is that of input ", worst_input_,
                           " at ", worst_position_, ": analytic ", number(worst_analytic_), ", numerical ",
                           number(worst_numerical_), ", difference ", number(result_.worst_error));
    return result_;
  }

 private:
  double weighted(const TensorList& outputs) const {
    double total = 0;
    for (size_t i = 0; i < outputs.size() && i < weights_.size(); ++i) {
      if (!weights_[i].defined()) continue;
      const Tensor y = on_host(outputs[i]);
      const double* py = y.data<double>();
      const double* pw = weights_[i].data<double>();
      for (int64_t k = 0; k < y.numel(); ++k) total += py[k] * pw[k];
    }
    return total;
  }

  double evaluate() const {
    // Recording stays on: a function may itself take gradients. What it records is dropped.
    GradMode on(true);
    return weighted(fn_.call(fn_.fn, inputs_));
  }

  TensorList analytic(const TensorList& outputs) const {
    TensorList ys, gys, xs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!weights_[i].defined() || !outputs[i].requires_grad()) continue;
      ys.push_back(outputs[i]);
      gys.push_back(weights_[i].to(outputs[i].dtype()).to(outputs[i].device()));
    }
    for (const Tensor& x : inputs_)
      if (x.defined() && x.requires_grad()) xs.push_back(x);
    if (ys.empty()) return TensorList(xs.size());
    return grad(ys, xs, gys, false, false, true);
  }

  void compare(size_t input, const Tensor& analytic) {
    const Tensor& x = inputs_[input];
    if (analytic.defined() && (analytic.shape() != x.shape() || analytic.dtype() != x.dtype())) {
      throw ShapeError("gradcheck", cat("the gradient of input ", input, " is ", analytic, ", the input ", x));
    }
    const Tensor g = on_host(analytic.defined() ? analytic : x.new_full(x.shape(), 0)), values = on_host(x);
    const double* pg = g.data<double>();
    const auto at = [&](int64_t i, double v) {
      if (x.device().is_cpu()) {
        x.data<double>()[i] = v;
        return;
      }
      NoGrad guard;
      x.detach().view({x.numel()}).select(0, i).fill_(v);
    };
    const auto output_at = [&](int64_t i, double v) {
      at(i, v);
      return evaluate();
    };
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double old = values.data<double>()[i], up = old + options_.eps, down = old - options_.eps;
      const double high = output_at(i, up), low = output_at(i, down);
      at(i, old);
      const double numerical = (high - low) / (up - down);
      const double error = std::abs(pg[i] - numerical);
      ++compared_;
      const double bound = options_.atol + options_.rtol * std::max(std::abs(pg[i]), std::abs(numerical));
      const bool wrong = !(error <= bound);  // also when either is NaN
      wrong_ += wrong;
      // The worst of the wrong ones, if there are any; a NaN is worse than any number.
      const bool worse =
          wrong != !result_.ok ? wrong : !(error <= result_.worst_error) && !std::isnan(result_.worst_error);
      if (wrong) result_.ok = false;
      if (!worse) continue;
      result_.worst_error = error;
      worst_input_ = input;
      worst_position_ = position(i, x.shape());
      worst_analytic_ = pg[i];
      worst_numerical_ = numerical;
    }
  }

  detail::TensorFnRef fn_;
  GradcheckOptions options_;
  TensorList inputs_, weights_;
  GradcheckResult result_;
  int64_t wrong_ = 0, compared_ = 0;
  size_t worst_input_ = 0;
  std::string worst_position_;
  double worst_analytic_ = 0, worst_numerical_ = 0;
};

}  // namespace

GradcheckResult detail::gradcheck(TensorFnRef fn, const TensorList& inputs, const GradcheckOptions& options) {
  require_f64(inputs, "gradcheck");
  return Checker(fn, inputs, options).run();
}

GradcheckResult detail::gradgradcheck(TensorFnRef fn, const TensorList& inputs, const GradcheckOptions& options) {
  require_f64(inputs, "gradgradcheck");
  TensorList leaves;
  for (const Tensor& x : inputs) leaves.push_back(x.defined() ? fresh_leaf(x) : Tensor());
  // The outputs' gradients are inputs of the second-order function.
  std::vector<size_t> differentiable;
  TensorList all = leaves;
  {
    GradMode on(true);
    const TensorList outputs = fn.call(fn.fn, leaves);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad()) continue;
      differentiable.push_back(i);
      all.push_back(weights_for(outputs[i], 100 + i).to(outputs[i].dtype()).to(outputs[i].device()));
      all.back().set_requires_grad();
    }
  }
  check<AutogradError>(!differentiable.empty(), "gradgradcheck", "no output of the function requires a gradient");
  const auto gradients = [&](const TensorList& in) -> TensorList {
    const TensorList xs(in.begin(), in.begin() + static_cast<int64_t>(leaves.size()));
    const TensorList outputs = fn.call(fn.fn, xs);
    TensorList ys, gys, wanted;
    for (size_t i = 0; i < differentiable.size(); ++i) {
      ys.push_back(outputs[differentiable[i]]);
      gys.push_back(in[leaves.size() + i]);
    }
    for (const Tensor& x : xs)
      if (x.defined() && x.requires_grad()) wanted.push_back(x);
    TensorList grads = grad(ys, wanted, gys, true, true, true);
    for (size_t i = 0; i < grads.size(); ++i)
      if (!grads[i].defined()) grads[i] = wanted[i].detach().new_full(wanted[i].shape(), 0);
    return grads;
  };
  GradcheckResult r = gradcheck(tensor_fn_ref(gradients), all, options);
  if (!r.ok)
    r.report = cat("second derivatives (inputs 0 to ", leaves.size() - 1,
                   " are the function's, then come the gradients of its outputs): ", r.report);
  return r;
}

}  // namespace strata
