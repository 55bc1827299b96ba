#include "strata/distributions/distribution.h"

#include <algorithm>

#include "strata/core/node.h"
#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Role = Parameter::Role;

bool is_batch(const Parameter& p) {
  return p.role == Role::batch || p.role == Role::one_of;
}
std::string shape_text(const Shape& s) {
  std::string text = "(";
  for (int i = 0; i < s.size(); ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text + (s.size() == 1 ? ",)" : ")");
}
// "`probs` or `logits`".
std::string alternatives(const DistributionRecord& r, std::string_view quote) {
  std::string text;
  for (const Parameter& p : r.parameters)
    if (p.role == Role::one_of) text += cat(text.empty() ? "" : " or ", quote, p.name, quote);
  return text;
}
// Throws unless exactly one of the alternatives is given.
void check_alternatives(const DistributionRecord& r, const std::vector<Given>& given) {
  int kinds = 0, count = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    if (r.parameters[i].role != Role::one_of) continue;
    ++kinds;
    count += given[i].given();
  }
  if (kinds == 0 || count == 1) return;
  if (kinds == 2) throw ValueError(r.name, cat("Either ", alternatives(r, "`"), " must be specified, but not both."));
  throw ValueError(r.name, cat("Exactly one of ", alternatives(r, ""), " may be specified."));
}

}  // namespace

// ---- Args and the record ----

int64_t DistributionRecord::index(std::string_view parameter) const {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == parameter) return static_cast<int64_t>(i);
  return -1;
}
Tensor Args::operator[](size_t i) const {
  if (values_[i].defined()) return values_[i];
  return record_->derive(*this, i);
}
Shape Args::extended(const Shape& sample_shape) const {
  return joined(joined(sample_shape, batch_), event_);
}

// ---- the base ----

std::string_view name_of(Function f) {
  constexpr std::string_view names[] = {"rsample",  "log_prob",          "cdf",   "icdf", "entropy", "mean", "mode",
                                        "variance", "enumerate_support", "expand"};
  return names[static_cast<size_t>(f)];
}
void DistributionBase::refuse(Function f) const {
  throw NotDefined(
      name(), cat(name(), " has no ", name_of(f), f == Function::rsample ? "(): use sample() and log_prob()" : "()"));
}
Tensor DistributionBase::cdf(const Tensor&) const {
  refuse(Function::cdf);
}
Tensor DistributionBase::icdf(const Tensor&) const {
  refuse(Function::icdf);
}
Tensor DistributionBase::entropy() const {
  refuse(Function::entropy);
}
Tensor DistributionBase::mean() const {
  refuse(Function::mean);
}
Tensor DistributionBase::mode() const {
  refuse(Function::mode);
}
Tensor DistributionBase::variance() const {
  refuse(Function::variance);
}
Tensor DistributionBase::enumerate_support(bool) const {
  refuse(Function::enumerate_support);
}
std::shared_ptr<const DistributionBase> DistributionBase::expand(const Shape&) const {
  refuse(Function::expand);
}

// ---- the handle ----

Tensor Distribution::parameter(std::string_view which) const {
  Tensor found = base_->parameter(which);
  check(found.defined(), name(), "there is no parameter '", which, "'");
  return found;
}
Tensor Distribution::sample(const Shape& sample_shape, Generator& generator) const {
  const NoGrad guard;
  return base_->sample(sample_shape, generator).detach();
}
Tensor Distribution::rsample(const Shape& sample_shape, Generator& generator) const {
  return base_->rsample(sample_shape, generator);
}
Tensor Distribution::log_prob(const Tensor& value) const {
  if (checks_) validate_sample(value);
  return base_->log_prob(value);
}
Tensor Distribution::cdf(const Tensor& value) const {
  if (checks_) validate_sample(value);
  return base_->cdf(value);
}
Tensor Distribution::icdf(const Tensor& share) const {
  if (checks_ && !share.is_meta())
    check(all((share >= 0) & (share <= 1)).item<bool>(), name(), "icdf() takes shares between 0 and 1");
  return base_->icdf(share);
}
Tensor Distribution::perplexity() const {
  return exp(entropy());
}
Tensor Distribution::stddev() const {
  return sqrt(variance());
}
void Distribution::validate_sample(const Tensor& value) const {
  const Shape event = event_shape(), whole = joined(batch_shape(), event), shape = value.shape();
  const bool fits = shape.size() >= event.size() && right(shape, event.size()) == event;
  check(fits, name(), "The right-most size of value must match event_shape: ", shape_text(shape), " vs ",
        shape_text(event), ".");
  for (int i = 1; i <= std::min(shape.size(), whole.size()); ++i) {
    const int64_t a = shape[shape.size() - i], b = whole[whole.size() - i];
    check(a == 1 || b == 1 || a == b, name(),
          "Value is not broadcastable with batch_shape+event_shape: ", shape_text(shape), " vs ", shape_text(whole),
          ".");
  }
  const Constraint inside = support();
  if (inside.kind() == Constraint::Kind::dependent || value.is_meta()) return;
  check_values(inside.check(value.detach()), name(), [&] {
    return cat("Expected value argument (Tensor of shape ", shape_text(shape), ") to be within the support (",
               inside.text(), ") of the distribution ", to_string(), ", but found invalid values:\n",
               value.to_string());
  });
}
std::string Distribution::to_string() const {
  return cat(name(), "(batch_shape=", batch_shape(), ", event_shape=", event_shape(), ")");
}

// ---- records with parameters ----

RecordedDistribution::RecordedDistribution(const DistributionRecord& record, const std::vector<Given>& given,
                                           bool checks) {
  args_.record_ = &record;
  check_alternatives(record, given);
  prepare(given);
  broadcast();
  if (record.event_shape) args_.event_ = record.event_shape(args_);
  if (checks) validate();
  for (size_t i = 0; i < record.parameters.size(); ++i)
    if (record.parameters[i].eager && !args_.values_[i].defined()) args_.values_[i] = record.derive(args_, i);
}

// Numbers become tensors of the first floating tensor's dtype and device, or of the default ones.
void RecordedDistribution::prepare(const std::vector<Given>& given) {
  const DistributionRecord& r = args_.record();
  DType dtype = default_dtype();
  Device device = default_device();
  bool found = false;
  for (const bool floating : {true, false})
    for (size_t i = 0; i < given.size(); ++i)
      if (const Given& g = given[i]; r.parameters[i].role != Role::pair && g.tensor.defined() &&
                                     is_floating(g.tensor.dtype()) == floating && !found) {
        if (floating) dtype = g.tensor.dtype();
        device = g.tensor.device();
        found = true;
      }
  for (size_t i = 0; i < r.parameters.size(); ++i) {
    const Parameter& p = r.parameters[i];
    Given g = given[i];
    if (!g.given() && p.fallback) g = Given(*p.fallback);
    args_.given_.push_back(g.given());
    check(g.given() || p.role == Role::one_of || p.role == Role::derived || p.fallback_pair, r.name, "parameter ",
          p.name, " is missing");
    const DeviceScope at(p.role == Role::count ? Device::cpu() : device);
    const Shape one = found && p.event_dim == 1 ? Shape{1} : Shape{};  // of a number beside vectors
    Tensor t = g.number ? strata::full(one, *g.number, p.role == Role::count ? DType::f64 : dtype) : g.tensor;
    if (p.role == Role::pair) {
      check<ShapeError>(!g.given() || t.shape() == Shape({2}), r.name, p.name, " are two numbers, got ", t);
      t = (g.given() ? t : from_span<double>(*p.fallback_pair, {2})).to(dtype).to(device);
    }
    if (t.defined() && p.role == Role::count) {
      check(t.numel() == 1, r.name, "inhomogeneous ", p.name, " is not supported: it is one number");
      const double n = t.item<double>();
      check(p.constraint.check(strata::full({}, n, DType::f64)).item<bool>(), r.name, "Expected parameter ", p.name,
            " to satisfy the constraint ", p.constraint.text(), ", but found ", n);
      t = strata::full({}, static_cast<int64_t>(n), DType::i64);
    } else if (t.defined() && !is_floating(t.dtype())) {
      t = t.to(dtype);
    }
    if (t.defined() && is_batch(p))
      check(t.dim() >= std::min<int64_t>(p.event_dim, 1) && (p.event_dim < 2 || t.dim() >= 2), r.name, "`", p.name,
            "` parameter must be at least ", p.event_dim == 1 ? "one" : "two", "-dimensional.");
    if (t.defined() && r.adjust) t = r.adjust(i, t);
    args_.values_.push_back(std::move(t));
  }
}

// The batch's dimensions of all of them together; events of vectors too.
void RecordedDistribution::broadcast() {
  const DistributionRecord& r = args_.record();
  Shape batch, vector;
  for (size_t i = 0; i < r.parameters.size(); ++i) {
    const Parameter& p = r.parameters[i];
    if (!is_batch(p) || !args_.given_[i]) continue;
    batch = broadcast_shapes(batch, without_right(args_.values_[i].shape(), p.event_dim), r.name);
    if (p.event_dim == 1) vector = broadcast_shapes(vector, right(args_.values_[i].shape(), 1), r.name);
  }
  for (size_t i = 0; i < r.parameters.size(); ++i) {
    const Parameter& p = r.parameters[i];
    if (!is_batch(p) || !args_.given_[i]) continue;
    Tensor& t = args_.values_[i];
    t = t.expand(joined(batch, p.event_dim == 1 ? vector : right(t.shape(), p.event_dim)));
  }
  args_.batch_ = batch;
}

void RecordedDistribution::validate() const {
  const DistributionRecord& r = args_.record();
  for (size_t i = 0; i < r.parameters.size(); ++i) {
    const Parameter& p = r.parameters[i];
    if (!args_.given_[i] || p.role == Role::count || p.constraint.kind() == Constraint::Kind::dependent) continue;
    const Tensor t = args_.values_[i].detach();
    if (t.is_meta()) continue;
    check_values(p.constraint.check(t), r.name, [&] {
      return cat("Expected parameter ", p.name, " (Tensor of shape ", shape_text(t.shape()), ") of distribution ",
                 r.name, " to satisfy the constraint ", p.constraint.text(), ", but found invalid values:\n",
                 t.to_string());
    });
  }
  if (r.together && !(args_.values_[0].defined() && args_.values_[0].is_meta())) r.together(args_);
}

Constraint RecordedDistribution::support() const {
  const DistributionRecord& r = args_.record();
  return r.support_of ? r.support_of(args_) : r.support;
}
bool RecordedDistribution::has(Function f) const {
  const DistributionRecord& r = args_.record();
  switch (f) {
    case Function::rsample:
      return r.has_rsample;
    case Function::log_prob:
      return r.log_prob != nullptr;
    case Function::cdf:
      return r.cdf != nullptr;
    case Function::icdf:
      return r.icdf != nullptr;
    case Function::entropy:
      return r.entropy != nullptr;
    case Function::mean:
      return r.mean != nullptr;
    case Function::mode:
      return r.mode != nullptr;
    case Function::variance:
      return r.variance != nullptr;
    case Function::enumerate_support:
      return r.enumerate != nullptr;
    case Function::expand:
      return true;
  }
  return false;
}
Tensor RecordedDistribution::sample(const Shape& sample_shape, Generator& g) const {
  return args_.record().draw(args_, args_.extended(sample_shape), g);
}
Tensor RecordedDistribution::rsample(const Shape& sample_shape, Generator& g) const {
  if (!args_.record().has_rsample) refuse(Function::rsample);
  return sample(sample_shape, g);
}
Tensor RecordedDistribution::log_prob(const Tensor& value) const {
  return args_.record().log_prob(args_, value);
}
Tensor RecordedDistribution::cdf(const Tensor& value) const {
  const auto f = args_.record().cdf;
  return f ? f(args_, value) : DistributionBase::cdf(value);
}
Tensor RecordedDistribution::icdf(const Tensor& share) const {
  const auto f = args_.record().icdf;
  return f ? f(args_, share) : DistributionBase::icdf(share);
}
Tensor RecordedDistribution::entropy() const {
  const auto f = args_.record().entropy;
  return f ? f(args_) : DistributionBase::entropy();
}
Tensor RecordedDistribution::mean() const {
  const auto f = args_.record().mean;
  return f ? f(args_) : DistributionBase::mean();
}
Tensor RecordedDistribution::mode() const {
  const auto f = args_.record().mode;
  return f ? f(args_) : DistributionBase::mode();
}
Tensor RecordedDistribution::variance() const {
  const auto f = args_.record().variance;
  return f ? f(args_) : DistributionBase::variance();
}
Tensor RecordedDistribution::enumerate_support(bool expand) const {
  const auto f = args_.record().enumerate;
  if (!f) return DistributionBase::enumerate_support(expand);
  const Tensor values = f(args_);
  return expand ? values.expand(args_.extended({values.size(0)})) : values;
}
std::shared_ptr<const DistributionBase> RecordedDistribution::expand(const Shape& batch_shape) const {
  const std::shared_ptr<RecordedDistribution> larger(new RecordedDistribution());
  larger->args_ = args_;
  Args& args = larger->args_;
  args.batch_ = batch_shape;
  for (size_t i = 0; i < args.values_.size(); ++i) {
    const Parameter& p = args.record().parameters[i];
    const bool follows = is_batch(p) || p.role == Role::derived;
    if (follows && args.values_[i].defined())
      args.values_[i] = args.values_[i].expand(joined(batch_shape, right(args.values_[i].shape(), p.event_dim)));
  }
  return larger;
}
Tensor RecordedDistribution::parameter(std::string_view which) const {
  const int64_t i = args_.record().index(which);
  return i < 0 ? Tensor() : args_[static_cast<size_t>(i)];
}

TensorList RecordedDistribution::tensors() const {
  TensorList held;
  for (const Tensor& t : args_.values())
    if (t.defined()) held.push_back(t);
  return held;
}

Distribution make(std::string_view name, const std::vector<std::pair<std::string, Given>>& parameters, bool checks) {
  const DistributionRecord& r = distribution_record(name);
  std::vector<Given> given(r.parameters.size());
  for (const auto& [key, value] : parameters) {
    const int64_t i = r.index(key);
    std::string known;
    for (const Parameter& p : r.parameters)
      if (p.role != Role::derived) known += cat(known.empty() ? "" : ", ", p.name);
    check(i >= 0 && r.parameters[static_cast<size_t>(i)].role != Role::derived, r.name, "there is no parameter '", key,
          "'; there are ", known);
    given[static_cast<size_t>(i)] = value;
  }
  return Distribution(std::make_shared<RecordedDistribution>(r, given, checks), checks);
}

Tensor sum_right(const Tensor& x, int64_t n) {
  if (n == 0) return x;
  Dims dims;
  for (int64_t i = n; i > 0; --i) dims.push_back(-i);
  return sum(x, dims);
}

}  // namespace strata::distributions
