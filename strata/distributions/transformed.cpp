// Transforms that are made of others, and distributions of transformed values.

#include <algorithm>

#include "strata/distributions/composed.h"
#include "strata/distributions/formulas_inl.h"
#include "strata/distributions/transform.h"

namespace strata::distributions {

Given TransformBase::sign() const {
  throw NotDefined(name(), "rises or falls nowhere in particular: it has no sign");
}
Tensor TransformBase::log_abs_det_jacobian(const Tensor&, const Tensor&) const {
  throw NotDefined(name(), "has no log_abs_det_jacobian()");
}

namespace {

using Kind = Constraint::Kind;

Given times(const Given& a, const Given& b) {
  if (a.number && b.number) return *a.number * *b.number;
  if (a.number) return b.tensor * *a.number;
  return b.number ? a.tensor * *b.number : a.tensor * b.tensor;
}

TensorList held_by(const std::vector<Transform>& parts) {
  TensorList held;
  for (const Transform& t : parts)
    for (Tensor& one : t.base().tensors()) held.push_back(std::move(one));
  return held;
}

class InverseTransform final : public TransformBase {
 public:
  explicit InverseTransform(Transform of) : of_(std::move(of)) {}
  const Transform& of() const { return of_; }
  std::string name() const override { return "the inverse of " + of_.name(); }
  Constraint domain() const override { return of_.codomain(); }
  Constraint codomain() const override { return of_.domain(); }
  bool bijective() const override { return of_.bijective(); }
  Given sign() const override { return of_.sign(); }
  Tensor forward(const Tensor& x) const override { return of_.inverse(x); }
  Tensor inverse(const Tensor& y) const override { return of_(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return -of_.log_abs_det_jacobian(y, x);
  }
  Shape forward_shape(const Shape& s) const override { return of_.inverse_shape(s); }
  Shape inverse_shape(const Shape& s) const override { return of_.forward_shape(s); }
  TensorList tensors() const override { return of_.base().tensors(); }
  bool equals(const TransformBase& other) const override {
    const auto* o = dynamic_cast<const InverseTransform*>(&other);
    return o && o->of_ == of_;
  }

 private:
  Transform of_;
};

// Dimensions of one event at an end of a chain: what comes after (before) may want more than the end itself.
int64_t event_dim_of(const std::vector<Transform>& parts, bool at_domain) {
  int64_t wanted = at_domain ? parts.back().codomain().event_dim() : parts.front().domain().event_dim();
  const auto step = [&](const Transform& t) {
    const int64_t in = t.domain().event_dim(), out = t.codomain().event_dim();
    wanted = at_domain ? std::max(wanted + in - out, in) : std::max(wanted + out - in, out);
  };
  if (at_domain) {
    std::for_each(parts.rbegin(), parts.rend(), step);
  } else {
    std::for_each(parts.begin(), parts.end(), step);
  }
  return wanted;
}

class ComposeTransform final : public TransformBase {
 public:
  explicit ComposeTransform(std::vector<Transform> parts) : parts_(std::move(parts)) {}
  std::string name() const override { return "ComposeTransform"; }
  Constraint domain() const override {
    if (parts_.empty()) return real();
    const Constraint first = parts_.front().domain();
    return first.independent(event_dim_of(parts_, true) - first.event_dim());
  }
  Constraint codomain() const override {
    if (parts_.empty()) return real();
    const Constraint last = parts_.back().codomain();
    return last.independent(event_dim_of(parts_, false) - last.event_dim());
  }
  bool bijective() const override {
    return std::ranges::all_of(parts_, [](const Transform& t) { return t.bijective(); });
  }
  Given sign() const override {
    Given all(1.0);
    for (const Transform& t : parts_) all = times(all, t.sign());
    return all;
  }
  Tensor forward(const Tensor& given) const override {
    Tensor x = given;
    for (const Transform& t : parts_) x = t(x);
    return x;
  }
  Tensor inverse(const Tensor& given) const override {
    Tensor y = given;
    for (auto t = parts_.rbegin(); t != parts_.rend(); ++t) y = t->inverse(y);
    return y;
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    if (parts_.empty()) return zeros_like(x);
    int64_t event = domain().event_dim();
    Tensor total, before = x;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Transform& t = parts_[i];
      const Tensor after = i + 1 == parts_.size() ? y : t(before);
      const int64_t in = t.domain().event_dim();
      const Tensor one = sum_right(t.log_abs_det_jacobian(before, after), event - in);
      total = total.defined() ? total + one : one;
      event += t.codomain().event_dim() - in;
      before = after;
    }
    return total;
  }
  Shape forward_shape(const Shape& given) const override {
    Shape s = given;
    for (const Transform& t : parts_) s = t.forward_shape(s);
    return s;
  }
  Shape inverse_shape(const Shape& given) const override {
    Shape s = given;
    for (auto t = parts_.rbegin(); t != parts_.rend(); ++t) s = t->inverse_shape(s);
    return s;
  }
  TensorList tensors() const override { return held_by(parts_); }
  bool equals(const TransformBase& other) const override {
    const auto* o = dynamic_cast<const ComposeTransform*>(&other);
    return o && o->parts_ == parts_;
  }

 private:
  std::vector<Transform> parts_;
};

class IndependentTransform final : public TransformBase {
 public:
  IndependentTransform(Transform of, int64_t joined) : of_(std::move(of)), joined_(joined) {}
  std::string name() const override { return "IndependentTransform"; }
  Constraint domain() const override { return of_.domain().independent(joined_); }
  Constraint codomain() const override { return of_.codomain().independent(joined_); }
  bool bijective() const override { return of_.bijective(); }
  Given sign() const override { return of_.sign(); }
  Tensor forward(const Tensor& x) const override { return of_(x); }
  Tensor inverse(const Tensor& y) const override { return of_.inverse(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return sum_right(of_.log_abs_det_jacobian(x, y), joined_);
  }
  Shape forward_shape(const Shape& s) const override { return of_.forward_shape(s); }
  Shape inverse_shape(const Shape& s) const override { return of_.inverse_shape(s); }
  TensorList tensors() const override { return of_.base().tensors(); }
  bool equals(const TransformBase& other) const override {
    const auto* o = dynamic_cast<const IndependentTransform*>(&other);
    return o && o->joined_ == joined_ && o->of_ == of_;
  }

 private:
  Transform of_;
  int64_t joined_;
};

// A transform for each piece along a dimension: of `lengths`, or slices where there are none.
class PiecesTransform final : public TransformBase {
 public:
  PiecesTransform(std::vector<Transform> parts, int64_t dim, std::vector<int64_t> lengths)
      : parts_(std::move(parts)), dim_(dim), lengths_(std::move(lengths)) {}
  std::string name() const override { return lengths_.empty() ? "StackTransform" : "CatTransform"; }
  Constraint domain() const override { return ends(true); }
  Constraint codomain() const override { return ends(false); }
  bool bijective() const override {
    return std::ranges::all_of(parts_, [](const Transform& t) { return t.bijective(); });
  }
  Tensor forward(const Tensor& x) const override {
    return each({x}, [](const Transform& t, const TensorList& v) { return t(v[0]); });
  }
  Tensor inverse(const Tensor& y) const override {
    return each({y}, [](const Transform& t, const TensorList& v) { return t.inverse(v[0]); });
  }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return each({x, y}, [](const Transform& t, const TensorList& v) { return t.log_abs_det_jacobian(v[0], v[1]); });
  }
  TensorList tensors() const override { return held_by(parts_); }

 private:
  // The pieces have constraints of their own, which one constraint does not say.
  Constraint ends(bool at_domain) const {
    int64_t event = 0;
    for (const Transform& t : parts_) event = std::max(event, (at_domain ? t.domain() : t.codomain()).event_dim());
    return Constraint(Kind::dependent).independent(event);
  }
  template <class F>
  Tensor each(const TensorList& values, F f) const {
    TensorList made;
    int64_t begin = 0;
    const int64_t dim = wrap_dim(dim_, values[0].dim(), name());
    const int64_t wanted = lengths_.empty() ? static_cast<int64_t>(parts_.size()) : total();
    check<ShapeError>(values[0].size(dim) == wanted, name(), "wants ", wanted, " along dimension ", dim_, ", got ",
                      values[0].shape());
    for (size_t i = 0; i < parts_.size(); ++i) {
      TensorList pieces;
      for (const Tensor& v : values)
        pieces.push_back(lengths_.empty() ? v.select(dim, static_cast<int64_t>(i)) : v.narrow(dim, begin, lengths_[i]));
      if (!lengths_.empty()) begin += lengths_[i];
      made.push_back(f(parts_[i], pieces));
    }
    return lengths_.empty() ? stack(made, dim) : cat(made, dim);
  }
  int64_t total() const {
    int64_t n = 0;
    for (const int64_t l : lengths_) n += l;
    return n;
  }
  std::vector<Transform> parts_;
  int64_t dim_;
  std::vector<int64_t> lengths_;
};

class CumulativeTransform final : public TransformBase {
 public:
  explicit CumulativeTransform(Distribution d) : d_(std::move(d)) {}
  std::string name() const override { return "CumulativeDistributionTransform"; }
  Constraint domain() const override { return d_.support(); }
  Constraint codomain() const override { return unit_interval(); }
  bool bijective() const override { return true; }
  Given sign() const override { return 1.0; }
  Tensor forward(const Tensor& x) const override { return d_.base().cdf(x); }
  Tensor inverse(const Tensor& y) const override { return d_.base().icdf(y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor&) const override { return d_.base().log_prob(x); }
  TensorList tensors() const override { return d_.base().tensors(); }

 private:
  Distribution d_;
};

// The base as events for the transforms.
Distribution widened(const Distribution& d, const Transform& chain) {
  const int64_t wanted = chain.domain().event_dim(), has = d.event_shape().size();
  const int64_t whole = d.batch_shape().size() + has;
  check(whole >= wanted, "TransformedDistribution", "base_distribution needs to have shape with size at least ", wanted,
        ", but got ", joined(d.batch_shape(), d.event_shape()), ".");
  return wanted > has ? Distribution(std::make_shared<IndependentDistribution>(d, wanted - has)) : d;
}

}  // namespace

Transform Transform::inv() const {
  if (const auto* i = dynamic_cast<const InverseTransform*>(base_.get())) return i->of();
  return Transform(std::make_shared<InverseTransform>(*this));
}
Transform compose(const std::vector<Transform>& parts) {
  return Transform(std::make_shared<ComposeTransform>(parts));
}
Transform independent_transform(const Transform& base, int64_t joined) {
  return Transform(std::make_shared<IndependentTransform>(base, joined));
}
Transform cat_transform(const std::vector<Transform>& parts, int64_t dim, const std::vector<int64_t>& lengths) {
  check(!parts.empty() && parts.size() == lengths.size(), "CatTransform", "wants a length for each transform");
  return Transform(std::make_shared<PiecesTransform>(parts, dim, lengths));
}
Transform stack_transform(const std::vector<Transform>& parts, int64_t dim) {
  check(!parts.empty(), "StackTransform", "wants a transform for each slice");
  return Transform(std::make_shared<PiecesTransform>(parts, dim, std::vector<int64_t>{}));
}
Transform cumulative_transform(const Distribution& d) {
  return Transform(std::make_shared<CumulativeTransform>(d));
}

// ---- distributions ----

TransformedDistribution::TransformedDistribution(const Distribution& inner, std::vector<Transform> transforms)
    : inner_(widened(inner, compose(transforms))), transforms_(std::move(transforms)) {
  const Transform chain = compose(transforms_);
  const Shape shape = chain.forward_shape(joined(inner_.batch_shape(), inner_.event_shape()));
  const int64_t change = chain.codomain().event_dim() - chain.domain().event_dim();
  const int64_t event = std::max<int64_t>(chain.codomain().event_dim(), inner_.event_shape().size() + change);
  batch_ = without_right(shape, event);
  event_ = right(shape, event);
}
Constraint TransformedDistribution::support() const {
  if (transforms_.empty()) return inner_.support();
  const Constraint c = transforms_.back().codomain();
  return c.independent(std::max<int64_t>(event_.size() - c.event_dim(), 0));
}
bool TransformedDistribution::has(Function f) const {
  switch (f) {
    case Function::rsample:
    case Function::log_prob:
    case Function::cdf:
    case Function::icdf:
    case Function::expand:
      return inner_.has(f);
    default:
      return false;
  }
}
Tensor TransformedDistribution::through(Tensor x) const {
  for (const Transform& t : transforms_) x = t(x);
  return x;
}
Tensor TransformedDistribution::sample(const Shape& sample_shape, Generator& g) const {
  return through(inner_.base().sample(sample_shape, g));
}
Tensor TransformedDistribution::rsample(const Shape& sample_shape, Generator& g) const {
  return through(inner_.base().rsample(sample_shape, g));
}
Tensor TransformedDistribution::log_prob(const Tensor& value) const {
  int64_t event = event_.size();
  Tensor y = value, total;
  for (auto t = transforms_.rbegin(); t != transforms_.rend(); ++t) {
    const Tensor x = t->inverse(y);
    const int64_t in = t->domain().event_dim();
    event += in - t->codomain().event_dim();
    const Tensor one = -sum_right(t->log_abs_det_jacobian(x, y), event - in);
    total = total.defined() ? total + one : one;
    y = x;
  }
  const Tensor base = sum_right(inner_.base().log_prob(y), event - inner_.event_shape().size());
  return total.defined() ? total + base : base;
}
// A share counted from the other end where the transforms fall.
Tensor TransformedDistribution::turned(const Tensor& share) const {
  const Given sign = compose(transforms_).sign();
  return (sign.number ? *sign.number * (share - 0.5) : sign.tensor * (share - 0.5)) + 0.5;
}
Tensor TransformedDistribution::cdf(const Tensor& value) const {
  Tensor x = value;
  for (auto t = transforms_.rbegin(); t != transforms_.rend(); ++t) x = t->inverse(x);
  return turned(inner_.base().cdf(x));
}
Tensor TransformedDistribution::icdf(const Tensor& share) const {
  return through(inner_.base().icdf(turned(share)));
}
std::shared_ptr<const DistributionBase> TransformedDistribution::expand(const Shape& batch_shape) const {
  const Shape whole = compose(transforms_).inverse_shape(joined(batch_shape, event_));
  return std::make_shared<TransformedDistribution>(inner_.expand(without_right(whole, inner_.event_shape().size())),
                                                   transforms_);
}

TensorList TransformedDistribution::tensors() const {
  TensorList held = held_by(transforms_);
  for (const Tensor& t : inner_.base().tensors()) held.push_back(t);
  return held;
}

Distribution transformed(const Distribution& d, const std::vector<Transform>& transforms) {
  return Distribution(std::make_shared<TransformedDistribution>(d, transforms));
}

}  // namespace strata::distributions
