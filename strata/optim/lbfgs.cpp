#include "strata/optim/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::optim {

struct LBFGS::History {
  std::vector<Tensor> steps, changes;
  Tensor d, prev_grad;
  double t = 0, scale = 1;
  int64_t func_evals = 0, n_iter = 0;
};

namespace {

double dot(const Tensor& a, const Tensor& b) {
  return sum(a * b).item();
}
double largest(const Tensor& t) {
  return amax(abs(t)).item();
}

// Where a line search has been: a step along the direction, the loss there, the gradient, and its slope.
struct Point {
  double t, loss;
  Tensor grad;
  double slope;
};

// The minimum of the cubic through two points with their slopes (Nocedal and Wright, (3.59)), kept in an interval.
double cubic_minimum(const Point& a, const Point& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::copysign(std::sqrt(square), b.t - a.t), bottom = b.slope - a.slope + 2 * d2;
  const double t = bottom != 0 ? b.t - (b.t - a.t) * (b.slope + d2 - d1) / bottom : low;
  return std::min(std::max(t, low), high);
}

// A step that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6), and the calls of
// `at`; the best one found where there is none in 25 calls.
template <class At>
std::pair<Point, int> strong_wolfe(At&& at, const Point& start, double t, double tolerance) {
  constexpr double c1 = 1e-4, c2 = 0.9;
  constexpr int most = 25;
  const auto too_high = [&](const Point& p) { return !(p.loss <= start.loss + c1 * p.t * start.slope); };
  const auto flat = [&](const Point& p) { return std::abs(p.slope) <= -c2 * start.slope; };
  Point last = start, now = at(t), low, high;
  int calls = 1;
  for (;;) {
    if (too_high(now) || (calls > 1 && now.loss >= last.loss)) {
      low = last, high = now;
      break;
    }
    if (flat(now) || calls >= most) return {now, calls};
    if (now.slope >= 0) {
      low = now, high = last;
      break;
    }
    t = cubic_minimum(last, now, now.t + 0.01 * (now.t - last.t), now.t * 10);
    last = now;
    now = at(t);
    ++calls;
  }
  // The minimum lies between `low`, the better end, and `high`.
  while (calls < most && std::abs(high.t - low.t) * -start.slope > tolerance) {
    const double left = std::min(low.t, high.t), right = std::max(low.t, high.t), margin = 0.1 * (right - left);
    const bool finite = std::isfinite(high.loss) && std::isfinite(high.slope);
    now = at(finite ? cubic_minimum(low, high, left + margin, right - margin) : (left + right) / 2);
    ++calls;
    if (too_high(now) || now.loss >= low.loss) {
      high = now;
      continue;
    }
    if (flat(now)) return {now, calls};
    if (now.slope * (high.t - low.t) >= 0) high = low;
    low = now;
  }
  return {low, calls};
}

DType dtype_of(const NamedTensors& params) {
  return std::ranges::any_of(params, [](const auto& p) { return p.second.dtype() == DType::f64; }) ? DType::f64
                                                                                                   : DType::f32;
}
int64_t size_of_all(const NamedTensors& params) {
  int64_t n = 0;
  for (const auto& p : params) n += p.second.numel();
  return n;
}
Tensor all_grads(const NamedTensors& params) {
  const DType dtype = dtype_of(params);
  TensorList parts;
  for (const auto& [name, p] : params) {
    const Tensor g = p.grad();
    parts.push_back(g.defined() ? to(g.detach().reshape({-1}), dtype)
                                : zeros({p.numel()}, dtype).to(p.device()));
  }
  return cat(parts, 0);
}
// The parameters at start + t d.
void move(const NamedTensors& params, const std::vector<Tensor>& start, double t, const Tensor& d) {
  int64_t offset = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor p = params[i].second.detach();
    p.copy_(to(start[i], d.dtype()) + d.narrow(0, offset, p.numel()).reshape(p.shape()) * t);
    offset += p.numel();
  }
}

}  // namespace

void LBFGSOptions::validate() const {
  check(lr >= 0, "LBFGS", "lr must not be negative, got ", lr);
  check(max_iter >= 0, "LBFGS", "max_iter must not be negative, got ", max_iter);
  check(max_eval >= -1, "LBFGS", "max_eval must not be negative, got ", max_eval);
  check(tolerance_grad >= 0, "LBFGS", "tolerance_grad must not be negative, got ", tolerance_grad);
  check(tolerance_change >= 0, "LBFGS", "tolerance_change must not be negative, got ", tolerance_change);
  check(history_size >= 0, "LBFGS", "history_size must not be negative, got ", history_size);
}

LBFGS::LBFGS(NamedTensors params, const LBFGSOptions& options)
    : params_(std::move(params)), options_(options), history_(std::make_unique<History>()) {
  options_.validate();
  check(!params_.empty(), "LBFGS", "there are no parameters");
  for (const auto& [name, p] : params_) {
    check(p.defined(), "LBFGS", "parameter '", name, "' is undefined");
    check<DTypeError>(is_floating(p.dtype()), "LBFGS", "parameter '", name, "' is ", p, ", which has no gradient");
    check<AutogradError>(p.is_leaf(), "LBFGS", "parameter '", name, "' is the result of an op, not a leaf");
  }
}
LBFGS::~LBFGS() = default;

double LBFGS::run(double (*closure)(void*), void* context) {
  options_.validate();
  const LBFGSOptions o = options_;
  const int64_t max_eval = o.max_eval < 0 ? int64_t{o.max_iter} * 5 / 4 : o.max_eval;
  History& h = *history_;
  const double first = closure(context);
  double loss = first;
  ++h.func_evals;
  NoGrad guard;
  const auto evaluate = [&] {
    const GradMode grads(true);
    return closure(context);
  };
  memory::TagScope tag(memory::Tag::optimizer);
  int64_t calls = 1;
  Tensor grad = all_grads(params_);
  if (largest(grad) <= o.tolerance_grad) return first;
  for (int iteration = 1; iteration <= o.max_iter; ++iteration) {
    ++h.n_iter;
    // Minus the gradient times the approximation of the inverse Hessian: the two-loop recursion.
    Tensor d = -grad;
    if (!h.prev_grad.defined()) {
      h.scale = 1;
    } else {
      const Tensor step = h.d * h.t, change = grad - h.prev_grad;
      const double curvature = dot(change, step);
      if (curvature > 1e-10) {
        h.steps.push_back(step);
        h.changes.push_back(change);
        for (std::vector<Tensor>* list : {&h.steps, &h.changes})
          if (list->size() > static_cast<size_t>(o.history_size)) list->erase(list->begin());
        h.scale = curvature / dot(change, change);
      }
      std::vector<double> inverse, weights;
      for (size_t i = 0; i < h.steps.size(); ++i) inverse.push_back(1 / dot(h.steps[i], h.changes[i]));
      for (size_t i = h.steps.size(); i-- > 0;) {
        weights.push_back(dot(h.steps[i], d) * inverse[i]);
        d = d - h.changes[i] * weights.back();
      }
      d = d * h.scale;
      for (size_t i = 0; i < h.steps.size(); ++i) {
        d = d + h.steps[i] * (weights.back() - dot(h.changes[i], d) * inverse[i]);
        weights.pop_back();
      }
    }
    h.prev_grad = grad;
    const double before = loss;
    double t = o.lr * (h.n_iter == 1 ? std::min(1.0, 1 / sum(abs(grad)).item()) : 1);
    const double slope = dot(grad, d);
    h.d = d;
    h.t = t;
    if (slope > -o.tolerance_change) break;
    std::vector<Tensor> start;
    for (const auto& p : params_) start.push_back(clone(p.second.detach()));
    int evaluations = 0;
    if (o.strong_wolfe) {
      const auto at = [&](double step) {
        move(params_, start, step, d);
        const double value = evaluate();
        const Tensor g = all_grads(params_);
        return Point{step, value, g, dot(g, d)};
      };
      const auto [found, count] = strong_wolfe(at, {0, loss, grad, slope}, t, o.tolerance_change);
      evaluations = count;
      move(params_, start, found.t, d);
      t = found.t, loss = found.loss, grad = found.grad;
    } else {
      move(params_, start, t, d);
      if (iteration != o.max_iter) {
        loss = evaluate();
        evaluations = 1;
        grad = all_grads(params_);
      }
    }
    h.t = t;
    calls += evaluations;
    h.func_evals += evaluations;
    if (calls >= max_eval || largest(grad) <= o.tolerance_grad) break;
    if (largest(d * t) <= o.tolerance_change || std::abs(loss - before) < o.tolerance_change) break;
  }
  return first;
}

StateDict LBFGS::state_dict() const {
  StateDict all;
  const History& h = *history_;
  if (h.func_evals == 0) return all;
  const auto number = [&](const char* name, double v) { all.emplace(name, full({}, v, DType::f64)); };
  number("func_evals", static_cast<double>(h.func_evals));
  number("n_iter", static_cast<double>(h.n_iter));
  if (!h.prev_grad.defined()) return all;
  number("t", h.t);
  number("scale", h.scale);
  all.emplace("d", h.d);
  all.emplace("prev_grad", h.prev_grad);
  for (size_t i = 0; i < h.steps.size(); ++i) {
    all.emplace(strata::cat("steps.", i), h.steps[i]);
    all.emplace(strata::cat("changes.", i), h.changes[i]);
  }
  return all;
}

void LBFGS::load_state_dict(const StateDict& state) {
  auto loaded = std::make_unique<History>();
  const int64_t size = size_of_all(params_);
  const DType dtype = dtype_of(params_);
  size_t used = 0;
  const auto number = [&](const char* name, auto& field) {
    const auto it = state.find(name);
    if (it == state.end()) return;
    check<ShapeError>(it->second.numel() == 1, "LBFGS", "'", name, "' is ", it->second, ", which does not fit");
    field = static_cast<std::remove_reference_t<decltype(field)>>(it->second.item());
    ++used;
  };
  const auto vector = [&](const std::string& name) -> Tensor {
    const auto it = state.find(name);
    if (it == state.end()) return {};
    check<ShapeError>(it->second.shape() == Shape{size}, "LBFGS", "'", name, "' is ", it->second, ", wanted is [", size,
                      ']');
    ++used;
    return clone(to(it->second.detach().to(params_[0].second.device()), dtype));
  };
  NoGrad guard;
  number("func_evals", loaded->func_evals);
  number("n_iter", loaded->n_iter);
  number("t", loaded->t);
  number("scale", loaded->scale);
  loaded->d = vector("d");
  loaded->prev_grad = vector("prev_grad");
  for (size_t i = 0;; ++i) {
    const Tensor step = vector(strata::cat("steps.", i)), change = vector(strata::cat("changes.", i));
    check(step.defined() == change.defined(), "LBFGS", "steps and changes of the state do not correspond");
    if (!step.defined()) break;
    loaded->steps.push_back(step);
    loaded->changes.push_back(change);
  }
  check(loaded->d.defined() == loaded->prev_grad.defined(), "LBFGS", "the state has one of 'd' and 'prev_grad'");
  check(used == state.size(), "LBFGS", "the state has ", state.size() - used, " entries that are none of LBFGS");
  history_ = std::move(loaded);
}

int64_t LBFGS::state_bytes() const {
  return size_of_all(params_) * strata::size_of(dtype_of(params_)) * (2 * int64_t{options_.history_size} + 2);
}

}  // namespace strata::optim
