// Gradients against central differences, in f64.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "strata/autograd/autograd.h"
#include "strata/lab/gradients_inl.h"
#include "strata/lab/verifier.h"
#include "strata/ops/copy/copy.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;

// Step of the central differences, relative to the element. Truncation and rounding errors are then about 1e-10 of the
// function's third derivative and of its value.
constexpr double kStep = 1e-5;
// Elements of one input that are tried one by one; all of them together move along a random direction as well.
constexpr int64_t kElements = 48;

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// A function of several f64 tensors, its derivative, and where to evaluate both.
struct Function {
  std::vector<Tensor> inputs;     // leaves; moved in place and put back
  std::vector<Tensor> gradients;  // what the rule says
  double magnitude = 1;           // of the numbers that are summed: their rounding errors reach the differences
};

// Compares every gradient with central differences of `value`.
template <class Value>
void check_differences(const Function& f, Value&& value, std::string_view what) {
  for (size_t k = 0; k < f.inputs.size(); ++k) {
    const Tensor& x = f.inputs[k];
    const Tensor& g = f.gradients[k];
    if (x.numel() == 0) continue;
    double* p = x.data<double>();
    const std::vector<double> rule = values(g);
    const std::vector<double> at(p, p + x.numel());
    const double bound = 2e-6 * std::max(1.0, largest_of(g)) + 1e-9 * f.magnitude;
    const int64_t every = std::max<int64_t>(1, (x.numel() + kElements - 1) / kElements);
    for (int64_t i = 0; i < x.numel(); i += every) {
      const double h = kStep * std::max(1.0, std::abs(at[static_cast<size_t>(i)]));
      p[i] = at[static_cast<size_t>(i)] + h;
      const double up = value();
      p[i] = at[static_cast<size_t>(i)] - h;
      const double down = value();
      p[i] = at[static_cast<size_t>(i)];
      const double numeric = (up - down) / (2 * h), error = std::abs(numeric - rule[static_cast<size_t>(i)]);
      expect(error <= bound, what, " with respect to input ", k, " ", x, ", element ", i, ": the rule says ",
             rule[static_cast<size_t>(i)], ", differences say ", numeric, "; off by ", error, ", allowed ", bound);
    }
    const std::vector<double> u = values(direction(x, 77 + k));
    const auto move = [&](double h) {
      for (size_t i = 0; i < u.size(); ++i) p[i] = at[i] + h * u[i];
    };
    move(kStep);
    const double up = value();
    move(-kStep);
    const double down = value();
    std::copy(at.begin(), at.end(), p);
    double expected = 0;
    for (size_t i = 0; i < u.size(); ++i) expected += rule[i] * u[i];
    const double numeric = (up - down) / (2 * kStep), error = std::abs(numeric - expected);
    const double allowed = bound * std::sqrt(static_cast<double>(u.size()));
    expect(error <= allowed, what, " with respect to input ", k, " ", x, ", along a random direction: the rule says ",
           expected, ", differences say ", numeric, "; off by ", error, ", allowed ", allowed);
  }
}

}  // namespace

Tensor direction(const Tensor& like, uint64_t stream) {
  Tensor r = empty({like.shape(), DType::f64, Device::cpu(), std::nullopt});
  double* p = r.numel() > 0 ? r.data<double>() : nullptr;
  for (int64_t i = 0; i < r.numel(); ++i) {
    const auto bits = philox({stream, 0}, static_cast<uint64_t>(i));
    p[i] = 2 * uniform_f64(bits[0], bits[1]) - 1;
  }
  return like.dtype() == DType::f64 ? r : converted(r, like.dtype());
}

double largest_of(const Tensor& t) {
  double m = 0;
  for (const double v : values(t)) m = std::max(m, std::abs(v));
  return m;
}

Recorded recorded(const std::vector<Tensor>& results) {
  Recorded r;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    if (!t.defined() || !is_floating(t.dtype()) || !t.requires_grad()) continue;
    r.results.push_back(t);
    r.weights.push_back(direction(t, 5 + i).to(t.device()));
    r.positions.push_back(i);
  }
  return r;
}

std::vector<Value> leaves(const std::vector<Value>& args, int only) {
  int position = -1;
  return map(args, [&](const Tensor& t) {
    ++position;
    Tensor x = dense_copy(t);
    if (is_floating(t.dtype()) && (only < 0 || only == position)) x.set_requires_grad();
    return x;
  });
}
std::vector<Tensor> wanting(const std::vector<Value>& args) {
  std::vector<Tensor> r;
  visit(args, [&](const Tensor& t) {
    if (t.defined() && t.requires_grad()) r.push_back(t);
  });
  return r;
}

namespace {
Tensor zeros_of(const Tensor& t) {
  const Tensor r = empty({t.shape(), t.dtype(), Device::cpu(), std::nullopt});
  if (r.numel() > 0) std::memset(r.raw_data(), 0, static_cast<size_t>(r.nbytes()));
  return r;
}
}  // namespace

std::vector<Tensor> rule_gradients(const std::vector<Tensor>& results, const std::vector<Tensor>& inputs,
                                   const std::vector<Tensor>& weights, bool create_graph) {
  if (results.empty()) {
    std::vector<Tensor> zeros;
    zeros.reserve(inputs.size());
    for (const Tensor& t : inputs) zeros.push_back(zeros_of(t));
    return zeros;
  }
  std::vector<Tensor> g = grad(results, inputs, weights, create_graph, false, true);
  for (size_t i = 0; i < g.size(); ++i) {
    if (!g[i].defined()) g[i] = zeros_of(inputs[i]);
    expect(g[i].shape() == inputs[i].shape() && g[i].dtype() == inputs[i].dtype(), "the gradient of input ", i, " ",
           inputs[i], " is ", g[i]);
  }
  return g;
}

void Verifier::gradient(const Args& args) const {
  const Args own = leaves(args);
  const std::vector<Tensor> inputs = wanting(own);
  if (inputs.empty()) return;
  const std::vector<Tensor> results = tensors_of(op_.call_boxed(own));
  const Recorded y = recorded(results);
  for (const Tensor& t : results)
    expect(!t.defined() || !is_floating(t.dtype()) || !y.results.empty(),
           "an input wants a gradient, but no result is recorded");
  if (y.results.empty()) return;
  Function f{inputs, rule_gradients(y.results, inputs, y.weights), 1};
  for (const Tensor& t : y.results) {
    if (t.dtype() != DType::f64) return;  // rounded on the way: no differences to be had
    f.magnitude += largest_of(t) * static_cast<double>(t.numel());
  }
  check_differences(
      f,
      [&] {
        const std::vector<Tensor> now = call(own);  // without recording: that must give the same numbers
        double sum = 0;
        for (size_t i = 0; i < y.positions.size(); ++i) sum += dot(now[y.positions[i]], y.weights[i]);
        return sum;
      },
      "gradient");
  // With one input wanting a gradient, the rule keeps and computes less: the numbers must be the same.
  if (inputs.size() < 2) return;
  const std::vector<Tensor> all = tensors_of(own);
  size_t k = 0;
  for (size_t i = 0, defined = 0; i < all.size(); ++i) {
    if (!all[i].defined()) continue;
    const int position = static_cast<int>(defined++);
    if (!is_floating(all[i].dtype())) continue;
    const Args alone = leaves(args, position);
    const Recorded one = recorded(tensors_of(op_.call_boxed(alone)));
    const Tensor g = rule_gradients(one.results, wanting(alone), one.weights)[0];
    const Difference d = compare(g, f.gradients[k], {1e-10, 1e-10 * std::max(1.0, largest_of(g))});
    expect(d.ratio <= 1, "gradient with respect to input ", k, " when it alone wants one: element ", d.index, " is ",
           d.got, ", when all do ", d.want);
    ++k;
  }
}

// The gradient as a function of the inputs and of the results' gradients, summed with fixed weights.
void Verifier::second_gradient(const Args& args) const {
  const Args own = leaves(args);
  const std::vector<Tensor> inputs = wanting(own);
  if (inputs.empty()) return;
  Recorded y = recorded(tensors_of(op_.call_boxed(own)));
  if (y.results.empty()) return;
  for (const Tensor& t : y.results)
    if (t.dtype() != DType::f64) return;
  for (Tensor& w : y.weights) w.set_requires_grad();
  std::vector<Tensor> all = inputs;
  all.insert(all.end(), y.weights.begin(), y.weights.end());
  const std::vector<Tensor> first = rule_gradients(y.results, inputs, y.weights, true);
  std::vector<Tensor> outer, from, from_weights;
  double magnitude = 1;
  for (size_t i = 0; i < first.size(); ++i) {
    outer.push_back(direction(inputs[i], 31 + i));
    magnitude += largest_of(first[i]) * static_cast<double>(first[i].numel());
    if (!first[i].requires_grad()) continue;
    from.push_back(first[i]);
    from_weights.push_back(outer[i]);
  }
  check_differences(
      Function{all, rule_gradients(from, all, from_weights), magnitude},
      [&] {
        const Recorded now = recorded(tensors_of(op_.call_boxed(own)));
        std::vector<Tensor> plain;
        for (const Tensor& w : y.weights) plain.push_back(w.detach());
        const std::vector<Tensor> g = rule_gradients(now.results, inputs, plain);
        double sum = 0;
        for (size_t i = 0; i < g.size(); ++i) sum += dot(g[i], outer[i]);
        return sum;
      },
      "second gradient");
}

std::vector<Tensor> Verifier::gradients_of(const Args& own) const {
  const std::vector<Tensor> inputs = wanting(own);
  const Recorded y = recorded(tensors_of(op_.call_boxed(own)));
  return rule_gradients(y.results, inputs, y.weights);
}

std::vector<Tensor> Verifier::gradients_on_device(const Args& args) const {
  DeviceScope scope(options_.device);
  Args own = on_device(args);
  if (options_.device.is_cpu()) {
    own = leaves(args);
  } else {
    for (Value& v : own) {
      if (Tensor* t = std::get_if<Tensor>(&v);
          t && t->defined() && is_floating(t->dtype()) && !t->impl().wrapped_number)
        t->set_requires_grad();
      if (TensorList* l = std::get_if<TensorList>(&v)) {
        for (Tensor& t : *l)
          if (t.defined() && is_floating(t.dtype())) t.set_requires_grad();
      }
    }
  }
  std::vector<Tensor> got = gradients_of(own);
  for (Tensor& t : got) t = t.to(Device::cpu());
  return got;
}

// A smaller dtype's gradient has its input's shape and dtype and is near that in f64.
void Verifier::gradient_in(DType dtype, const Args& args) const {
  const std::vector<Tensor> got = gradients_on_device(args);
  if (!(op_.dtypes() & dtype_bit(DType::f64)) || schema_has("RngKey")) return;
  Args wide = map(args, [](const Tensor& t) { return is_floating(t.dtype()) ? converted(t, DType::f64) : t; });
  for (Value& v : wide)
    if (DType* d = std::get_if<DType>(&v); d && *d == dtype) *d = DType::f64;
  const std::vector<Tensor> want = gradients_of(leaves(wide));
  expect(got.size() == want.size(), "gradients of ", got.size(), " inputs, in f64 of ", want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    // A rule is several ops, each rounding to the dtype.
    const double scale = std::max(1.0, largest_of(want[i])) * std::max(1.0, op_.tolerance());
    const double terms = std::sqrt(static_cast<double>(std::max<int64_t>(1, want[i].numel())));
    const Difference d = compare(got[i], want[i], {16 * epsilon(dtype), 16 * epsilon(dtype) * scale * terms});
    expect(d.ratio <= 1, "gradient with respect to input ", i, " in ", dtype, ", element ", d.index, ": ", d.got,
           ", in f64 ", d.want, "; allowed ", d.bound);
  }
}

// A kernel that makes what it needs on the device for new tensors, and not where its arguments are, works wherever both
// are the same: here new tensors are made on none. What has no tensor among its arguments makes them there rightly.
void Verifier::elsewhere(const Sample& sample, DType dtype) const {
  bool tensors = false;
  visit(sample.args, [&](const Tensor& t) { tensors = tensors || t.defined(); });
  if (!tensors) return;
  const bool rule = op_.has_backward() && is_floating(dtype) && sample.differentiable;
  const auto bits = [&](Device made_on) {
    const Args own = rule ? leaves(sample.args) : sample.args;
    std::vector<Tensor> results;
    {
      const DeviceScope there(made_on);
      results = rule ? tensors_of(op_.call_boxed(own)) : call(own);
    }
    for (const Tensor& t : results)
      if (t.defined())
        expect(t.device().is_cpu(), "a result is on ", t.device(),
               " as new tensors are, and not where the arguments are");
    std::vector<Tensor> all;
    for (const Tensor& t : results) all.push_back(t.defined() ? t.detach() : t);
    if (rule) {
      const Recorded y = recorded(results);
      const std::vector<Tensor> inputs = wanting(own);
      const DeviceScope there(made_on);
      if (!y.results.empty())
        for (Tensor& t : grad(y.results, inputs, y.weights, false, false, true)) {
          if (t.defined())
            expect(t.device().is_cpu(), "a gradient is on ", t.device(), " as new tensors are, and its input is not");
          all.push_back(std::move(t));
        }
    }
    std::erase_if(all, [](const Tensor& t) { return !t.defined(); });
    return bytes(all);
  };
  const std::vector<std::string> want = bits(Device::cpu());
  expect(bits(Device::meta()) == want, "other bits where new tensors are made on another device");
}

// Writing over a non-leaf in place gives the plain form's gradient, or an error that names what was overwritten.
void Verifier::inplace_gradient(const Args& args) const {
  const Args own = leaves(args);
  const std::vector<Tensor> inputs = wanting(own);
  const Recorded y = recorded(tensors_of(op_.call_boxed(own)));
  const Tensor& self = std::get<Tensor>(own[0]);
  if (y.results.empty() || y.results[0].shape() != self.shape() || y.results[0].dtype() != self.dtype()) return;
  const std::vector<Tensor> want = rule_gradients(y.results, inputs, y.weights);
  Args written = own;
  written[0] = clone(self);
  std::vector<Tensor> got;
  try {
    const Recorded z = recorded(tensors_of(op_.inplace_boxed(written)));
    expect(!z.results.empty(), "an input wants a gradient, but the in-place result is not recorded");
    got = rule_gradients(z.results, inputs, y.weights);
  } catch (const AutogradError&) {
    return;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const Difference d = compare(got[i], want[i], {1e-10, 1e-10 * std::max(1.0, largest_of(want[i]))});
    expect(d.ratio <= 1, "in place, the gradient of input ", i, ", element ", d.index, " is ", d.got, ", otherwise ",
           d.want);
  }
}

}  // namespace strata::lab
