#include "strata/distributions/constraint.h"

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Kind = Constraint::Kind;

struct About {
  std::string_view name, shown;
  int64_t event_dim = 0;
  bool discrete = false;
};

constexpr About kAbout[] = {
    {"dependent", "Dependent"},
    {"real", "Real"},
    {"boolean", "Boolean", 0, true},
    {"one_hot", "OneHot", 1, true},
    {"greater_than", "GreaterThan"},
    {"greater_than_eq", "GreaterThanEq"},
    {"less_than", "LessThan"},
    {"interval", "Interval"},
    {"half_open_interval", "HalfOpenInterval"},
    {"integer_interval", "IntegerInterval", 0, true},
    {"integer_greater_than_eq", "IntegerGreaterThan", 0, true},
    {"multinomial", "Multinomial", 1, true},
    {"simplex", "Simplex", 1},
    {"square", "Square", 2},
    {"lower_triangular", "LowerTriangular", 2},
    {"lower_cholesky", "LowerCholesky", 2},
    {"corr_cholesky", "CorrCholesky", 2},
    {"symmetric", "Symmetric", 2},
    {"positive_semidefinite", "PositiveSemidefinite", 2},
    {"positive_definite", "PositiveDefinite", 2},
};

const About& about(Kind kind) {
  return kAbout[static_cast<size_t>(kind)];
}

Tensor at_least(const Tensor& x, const Bound& b) {
  return b.number ? x >= *b.number : x >= b.tensor;
}
Tensor at_most(const Tensor& x, const Bound& b) {
  return b.number ? x <= *b.number : x <= b.tensor;
}
Tensor above(const Tensor& x, const Bound& b) {
  return b.number ? x > *b.number : x > b.tensor;
}
Tensor below(const Tensor& x, const Bound& b) {
  return b.number ? x < *b.number : x < b.tensor;
}
Tensor whole(const Tensor& x) {
  return is_floating(x.dtype()) ? floor(x) == x : x == x;
}

Tensor triangular(const Tensor& x) {
  return all(tril(x) == x, {-2, -1});
}
Tensor cholesky(const Tensor& x) {
  return triangular(x) & all(diagonal(x, 0, -2, -1) > 0, {-1});
}
Tensor symmetric(const Tensor& x) {
  return all(isclose(x, x.transpose(-2, -1), 1e-5, 1e-6), {-2, -1});
}
Tensor definite(const Tensor& x, bool strictly) {
  const Tensor inside = symmetric(x);
  if (!inside.all().item<bool>()) return inside;  // eigenvalues are of symmetric matrices
  if (x.size(-1) == 0) return inside;
  const Tensor least = amin(linalg_eigvalsh(x), {-1});
  return inside & (strictly ? least > 0 : least >= 0);
}

Tensor test(const Constraint& c, const Tensor& x) {
  switch (c.kind()) {
    case Kind::dependent:
      break;
    case Kind::real:
      return x == x;
    case Kind::boolean:
      return (x == 0) | (x == 1);
    case Kind::one_hot:
      return all((x == 0) | (x == 1), {-1}) & (sum(x, {-1}) == 1);
    case Kind::greater_than:
      return above(x, c.lower());
    case Kind::greater_than_eq:
      return at_least(x, c.lower());
    case Kind::less_than:
      return below(x, c.upper());
    case Kind::interval:
      return at_least(x, c.lower()) & at_most(x, c.upper());
    case Kind::half_open_interval:
      return at_least(x, c.lower()) & below(x, c.upper());
    case Kind::integer_interval:
      return whole(x) & at_least(x, c.lower()) & at_most(x, c.upper());
    case Kind::integer_greater_than_eq:
      return whole(x) & at_least(x, c.lower());
    case Kind::multinomial:
      return all(x >= 0, {-1}) & at_most(sum(x, {-1}), c.upper());
    case Kind::simplex:
      return all(x >= 0, {-1}) & ((sum(x, {-1}) - 1).abs() < 1e-6);
    case Kind::square:
      return full_like(x.select(-1, 0).select(-1, 0), Scalar(x.size(-1) == x.size(-2)), DType::boolean);
    case Kind::lower_triangular:
      return triangular(x);
    case Kind::lower_cholesky:
      return cholesky(x);
    case Kind::corr_cholesky: {
      const double tolerance = eps_of(x.dtype()) * static_cast<double>(x.size(-1)) * 10;
      return cholesky(x) & all((sum(x * x, {-1}) - 1).abs() < tolerance, {-1});
    }
    case Kind::symmetric:
      return symmetric(x);
    case Kind::positive_semidefinite:
      return definite(x, false);
    case Kind::positive_definite:
      return definite(x, true);
  }
  throw ValueError("Constraint", "Cannot determine validity of dependent constraint");
}

// A number as Python prints it: counts without a point.
std::string shown(const Bound& b, bool discrete) {
  if (!b.number) return b.tensor.to_string();
  std::string text = cat(*b.number);
  if (discrete || text.find_first_not_of("-0123456789") != std::string::npos) return text;
  return text + ".0";
}

}  // namespace

int64_t Constraint::event_dim() const {
  return about(kind_).event_dim + joined_;
}
bool Constraint::is_discrete() const {
  return about(kind_).discrete;
}
Tensor Constraint::check(const Tensor& value) const {
  strata::check<ShapeError>(value.dim() >= event_dim(), about(kind_).shown, "Expected value.dim() >= ", event_dim(),
                            " but got ", value.dim());
  return all_right(test(*this, value), joined_);
}
std::string Constraint::text() const {
  std::string s(about(kind_).shown);
  s += "(";
  if (lower_.given()) s += "lower_bound=" + shown(lower_, is_discrete());
  if (upper_.given()) s += (lower_.given() ? ", upper_bound=" : "upper_bound=") + shown(upper_, is_discrete());
  s += ")";
  return joined_ ? cat("IndependentConstraint(", s, ", ", joined_, ")") : s;
}

std::string_view name_of(Kind kind) {
  return about(kind).name;
}
Kind constraint_kind(std::string_view name) {
  for (const About& a : kAbout)
    if (a.name == name) return static_cast<Kind>(&a - kAbout);
  throw ValueError("Constraint", cat("there is no constraint '", name, "'"));
}
Tensor all_right(const Tensor& inside, int64_t n) {
  if (n == 0) return inside;
  check<ShapeError>(inside.dim() >= n, "Constraint", "Expected value.dim() >= ", n, " but got ", inside.dim());
  Dims dims;
  for (int64_t i = n; i > 0; --i) dims.push_back(-i);
  return all(inside, dims);
}

}  // namespace strata::distributions
