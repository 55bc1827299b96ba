// The transforms that are records.

#include "strata/distributions/transform.h"

#include "strata/distributions/formulas_inl.h"

namespace strata::distributions {
namespace {

using Kind = Constraint::Kind;
using In = const TransformArgs&;

// A parameter beside x: numbers take its dtype.
Tensor beside(const Given& g, const Tensor& x) {
  return g.number ? x.new_full({}, *g.number) : g.tensor;
}
Shape with_last(Shape s, int64_t change, std::string_view name) {
  check<ShapeError>(!s.empty(), name, "Too few dimensions on input");
  s[s.size() - 1] += change;
  return s;
}
Given sign_of_number(const Given& g) {
  if (g.tensor.defined()) return sign(g.tensor);
  return *g.number > 0 ? 1.0 : *g.number < 0 ? -1.0 : 0.0;
}
// log(n + 1 - k) for the k-th of n numbers: the stick is broken evenly where they are 0.
Tensor stick_offsets(const Tensor& x, int64_t n) {
  return (n + 1 - counts_like(x, 1, n + 1)).log();
}
Tensor exp_diagonal(In, const Tensor& x) {
  return tril(x, -1) + diag_embed(exp(diagonal(x, 0, -2, -1)));
}
Tensor log_diagonal(In, const Tensor& y) {
  return tril(y, -1) + diag_embed(log(diagonal(y, 0, -2, -1)));
}
// y in another shape, past the dimensions of its events.
Tensor reshaped(const Tensor& x, const Shape& from, const Shape& to) {
  return reshape(x, joined(without_right(x.shape(), from.size()), to));
}
Shape reshaped(const Shape& s, const Shape& from, const Shape& to) {
  check<ShapeError>(s.size() >= from.size() && right(s, from.size()) == from, "ReshapeTransform",
                    "Shape mismatch: expected ", from, " but got ", s);
  return joined(without_right(s, from.size()), to);
}

// ---- triangles of correlation matrices ----

// How large a matrix is that has n numbers below its diagonal.
int64_t size_for(int64_t n) {
  const auto size = static_cast<int64_t>(std::llround(std::sqrt(0.25 + 2.0 * static_cast<double>(n)) + 0.5));
  check(size * (size - 1) / 2 == n, "CorrCholeskyTransform", "Input is not a flattened lower-diagonal number");
  return size;
}
// Where those numbers are in a flattened matrix, below the diagonal of that offset.
Tensor places(const Tensor& like, int64_t size, int64_t offset) {
  const DeviceScope at(like.device());
  const Tensor both = strata::tril_indices(size, size, offset);
  return both.select(0, 0) * size + both.select(0, 1);
}
Tensor below(const Tensor& m, int64_t offset) {
  return index_select(flatten(m, -2, -1), -1, places(m, m.size(-1), offset));
}
Tensor corr_forward(In, const Tensor& x) {
  const int64_t n = size_for(x.size(-1));
  const double eps = eps_of(x.dtype());
  const Tensor flat = tanh(x).clamp(eps - 1, 1 - eps);
  const Shape batch = without_right(x.shape(), 1);
  const Tensor none = x.new_full(joined(batch, {n * n}), 0), at = places(x, n, -1).expand(x.shape());
  const Tensor r = reshape(scatter(none, -1, at, flat), joined(batch, {n, n}));
  const Tensor left = cumprod(sqrt(1 - square(r)), -1);
  const DeviceScope device(x.device());
  return (r + strata::eye(n, {}, x.dtype())) * pad(left.narrow(-1, 0, n - 1), {1, 0}, "constant", 1);
}
Tensor corr_left(const Tensor& y) {
  return 1 - cumsum(square(y), -1);
}
Tensor corr_inverse(In, const Tensor& y) {
  const Tensor left = pad(corr_left(y).narrow(-1, 0, y.size(-1) - 1), {1, 0}, "constant", 1);
  const Tensor t = below(y, -1) / sqrt(below(left, -1));
  return (log1p(t) - log1p(-t)) / 2;
}
Tensor corr_log_det(In, const Tensor& x, const Tensor& y) {
  const Tensor sticks = 0.5 * sum(log(below(corr_left(y), -2)), {-1});
  return sticks - 2 * sum(x + softplus(-2 * x) - kLn2, {-1});
}

const std::vector<TransformRecord>& all() {
  static const std::vector<TransformRecord> records{
      {.name = "AbsTransform",
       .doc = "y = |x|: the inverse gives the positive one.",
       .domain = real(),
       .codomain = positive(),
       .bijective = false,
       .forward = [](In, const Tensor& x) { return abs(x); },
       .inverse = [](In, const Tensor& y) { return y; }},
      {.name = "AffineTransform",
       .doc = "y = loc + scale x.",
       .domain = real(),
       .codomain = real(),
       .parameters = {"loc", "scale"},
       .forward = [](In a, const Tensor& x) { return beside(a.values[0], x) + beside(a.values[1], x) * x; },
       .inverse = [](In a, const Tensor& y) { return (y - beside(a.values[0], y)) / beside(a.values[1], y); },
       .log_abs_det =
           [](In a, const Tensor& x, const Tensor&) {
             return sum_right(zeros_like(x) + log(abs(beside(a.values[1], x))), a.event_dim);
           },
       .sign_of = [](In a) { return sign_of_number(a.values[1]); }},
      {.name = "CorrCholeskyTransform",
       .doc = "n (n - 1) / 2 numbers to the Cholesky triangle of a correlation matrix: tanh of each takes a part of "
              "what is "
              "left of its row (Lewandowski, Kurowicka, Joe 2009; Stan Reference Manual, section 10.12).",
       .domain = real().independent(1),
       .codomain = Kind::corr_cholesky,
       .forward = corr_forward,
       .inverse = corr_inverse,
       .log_abs_det = corr_log_det,
       .forward_shape =
           [](In, const Shape& s) {
             check<ShapeError>(!s.empty(), "CorrCholeskyTransform", "Too few dimensions on input");
             const int64_t n = size_for(s.back());
             return joined(without_right(s, 1), {n, n});
           },
       .inverse_shape =
           [](In, const Shape& s) {
             check<ShapeError>(s.size() > 1 && s.back() == s[s.size() - 2], "CorrCholeskyTransform",
                               "Input is not square");
             return joined(without_right(s, 2), {s.back() * (s.back() - 1) / 2});
           }},
      {.name = "ExpTransform",
       .doc = "y = exp(x).",
       .domain = real(),
       .codomain = positive(),
       .sign = 1,
       .forward = [](In, const Tensor& x) { return exp(x); },
       .inverse = [](In, const Tensor& y) { return log(y); },
       .log_abs_det = [](In, const Tensor& x, const Tensor&) { return x; }},
      {.name = "LowerCholeskyTransform",
       .doc = "Square matrices to lower triangles with a positive diagonal.",
       .domain = real().independent(2),
       .codomain = Kind::lower_cholesky,
       .bijective = false,
       .forward = exp_diagonal,
       .inverse = log_diagonal},
      {.name = "PositiveDefiniteTransform",
       .doc = "Square matrices to positive definite ones, by their lower triangles.",
       .domain = real().independent(2),
       .codomain = Kind::positive_definite,
       .bijective = false,
       .forward =
           [](In a, const Tensor& x) {
             const Tensor l = exp_diagonal(a, x);
             return matmul(l, l.transpose(-2, -1));
           },
       .inverse = [](In a, const Tensor& y) { return log_diagonal(a, linalg_cholesky(y)); }},
      {.name = "PowerTransform",
       .doc = "y = x^exponent for positive x.",
       .domain = positive(),
       .codomain = positive(),
       .parameters = {"exponent"},
       .forward = [](In a, const Tensor& x) { return pow(x, beside(a.values[0], x)); },
       .inverse = [](In a, const Tensor& y) { return pow(y, reciprocal(beside(a.values[0], y))); },
       .log_abs_det = [](In a, const Tensor& x, const Tensor& y) { return log(abs(beside(a.values[0], x) * y / x)); },
       .sign_of = [](In a) { return sign_of_number(a.values[0]); }},
      {.name = "ReshapeTransform",
       .doc = "Events of another shape.",
       .domain = real(),
       .codomain = real(),
       .parameters = {"in_shape", "out_shape"},
       .forward = [](In a, const Tensor& x) { return reshaped(x, a.shapes[0], a.shapes[1]); },
       .inverse = [](In a, const Tensor& y) { return reshaped(y, a.shapes[1], a.shapes[0]); },
       .log_abs_det = [](In a, const Tensor& x,
                         const Tensor&) { return x.new_full(without_right(x.shape(), a.shapes[0].size()), 0); },
       .forward_shape = [](In a, const Shape& s) { return reshaped(s, a.shapes[0], a.shapes[1]); },
       .inverse_shape = [](In a, const Shape& s) { return reshaped(s, a.shapes[1], a.shapes[0]); }},
      {.name = "SigmoidTransform",
       .doc = "y = 1 / (1 + exp(-x)).",
       .domain = real(),
       .codomain = unit_interval(),
       .sign = 1,
       .forward = [](In, const Tensor& x) { return sigmoid(x).clamp(tiny_of(x.dtype()), 1 - eps_of(x.dtype())); },
       .inverse =
           [](In, const Tensor& given) {
             const Tensor y = given.clamp(tiny_of(given.dtype()), 1 - eps_of(given.dtype()));
             return log(y) - log1p(-y);
           },
       .log_abs_det = [](In, const Tensor& x, const Tensor&) { return -softplus(-x) - softplus(x); }},
      {.name = "SoftmaxTransform",
       .doc = "y = softmax(x) over the last dimension; the inverse gives log y.",
       .domain = real().independent(1),
       .codomain = Kind::simplex,
       .bijective = false,
       .forward = [](In, const Tensor& x) { return softmax(x, -1); },
       .inverse = [](In, const Tensor& y) { return log(y); },
       .forward_shape = [](In, const Shape& s) { return with_last(s, 0, "SoftmaxTransform"); },
       .inverse_shape = [](In, const Shape& s) { return with_last(s, 0, "SoftmaxTransform"); }},
      {.name = "SoftplusTransform",
       .doc = "y = log(1 + exp(x)).",
       .domain = real(),
       .codomain = positive(),
       .sign = 1,
       .forward = [](In, const Tensor& x) { return softplus(x); },
       .inverse = [](In, const Tensor& y) { return log(-expm1(-y)) + y; },
       .log_abs_det = [](In, const Tensor& x, const Tensor&) { return -softplus(-x); }},
      {.name = "StickBreakingTransform",
       .doc = "n numbers to n + 1 shares: each takes a part of what is left (Stan Reference Manual, section 10.7).",
       .domain = real().independent(1),
       .codomain = Kind::simplex,
       .forward =
           [](In, const Tensor& x) {
             const Tensor z = sigmoid(x - stick_offsets(x, x.size(-1)));
             const Tensor one = ones_like(z.narrow(-1, 0, 1));
             return cat({z, one}, -1) * cat({one, cumprod(1 - z, -1)}, -1);
           },
       .inverse =
           [](In, const Tensor& y) {
             const int64_t n = y.size(-1) - 1;
             const Tensor taken = y.narrow(-1, 0, n);
             return log(taken) - log(clamp_min(1 - cumsum(taken, -1), tiny_of(y.dtype()))) + stick_offsets(y, n);
           },
       .log_abs_det =
           [](In, const Tensor& x, const Tensor& y) {
             const Tensor z = x - stick_offsets(x, x.size(-1));
             return sum(logsigmoid(z) - z + log(y.narrow(-1, 0, x.size(-1))), {-1});
           },
       .forward_shape = [](In, const Shape& s) { return with_last(s, 1, "StickBreakingTransform"); },
       .inverse_shape = [](In, const Shape& s) { return with_last(s, -1, "StickBreakingTransform"); }},
      {.name = "TanhTransform",
       .doc = "y = tanh(x).",
       .domain = real(),
       .codomain = {Kind::interval, -1.0, 1.0},
       .sign = 1,
       .forward = [](In, const Tensor& x) { return tanh(x); },
       .inverse = [](In, const Tensor& y) { return atanh(y); },
       .log_abs_det = [](In, const Tensor& x, const Tensor&) { return 2 * (kLn2 - x - softplus(-2 * x)); }},
  };
  return records;
}

bool same(const Given& a, const Given& b) {
  if (a.number && b.number) return *a.number == *b.number;
  return a.tensor.defined() && b.tensor.defined() && (a.tensor.same_as(b.tensor) || equal(a.tensor, b.tensor));
}

class RecordedTransform final : public TransformBase {
 public:
  RecordedTransform(const TransformRecord& record, TransformArgs args) : record_(record), args_(std::move(args)) {}
  std::string name() const override { return std::string(record_.name); }
  Constraint domain() const override { return record_.domain.independent(more(0)); }
  Constraint codomain() const override { return record_.codomain.independent(more(1)); }
  bool bijective() const override { return record_.bijective; }
  Given sign() const override {
    if (record_.sign_of) return record_.sign_of(args_);
    return record_.sign != 0 ? Given(record_.sign) : TransformBase::sign();
  }
  Tensor forward(const Tensor& x) const override { return record_.forward(args_, x); }
  Tensor inverse(const Tensor& y) const override { return record_.inverse(args_, y); }
  Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override {
    return record_.log_abs_det ? record_.log_abs_det(args_, x, y) : TransformBase::log_abs_det_jacobian(x, y);
  }
  Shape forward_shape(const Shape& s) const override {
    return record_.forward_shape ? record_.forward_shape(args_, s) : s;
  }
  Shape inverse_shape(const Shape& s) const override {
    return record_.inverse_shape ? record_.inverse_shape(args_, s) : s;
  }
  TensorList tensors() const override {
    TensorList held;
    for (const Given& g : args_.values)
      if (g.tensor.defined()) held.push_back(g.tensor);
    return held;
  }
  bool equals(const TransformBase& other) const override {
    const auto* o = dynamic_cast<const RecordedTransform*>(&other);
    if (!o || &o->record_ != &record_ || o->args_.event_dim != args_.event_dim || o->args_.shapes != args_.shapes)
      return false;
    for (size_t i = 0; i < args_.values.size(); ++i)
      if (!same(args_.values[i], o->args_.values[i])) return false;
    return true;
  }

 private:
  // Dimensions of events that the parameters say.
  int64_t more(size_t side) const { return args_.shapes.empty() ? args_.event_dim : args_.shapes[side].size(); }
  const TransformRecord& record_;
  TransformArgs args_;
};

}  // namespace

std::span<const TransformRecord> transform_records() {
  return all();
}
const TransformRecord& transform_record(std::string_view name) {
  std::string names;
  for (const TransformRecord& r : all()) {
    if (r.name == name) return r;
    names += cat(names.empty() ? "" : ", ", r.name);
  }
  throw ValueError("distributions", cat("there is no transform '", name, "'; there are ", names));
}
Transform make_transform(std::string_view name, const TransformArgs& args) {
  const TransformRecord& r = transform_record(name);
  const bool shapes = r.name == "ReshapeTransform";
  const size_t given = shapes ? args.shapes.size() : args.values.size();
  check(given == r.parameters.size(), r.name, "wants ", static_cast<int64_t>(r.parameters.size()), " parameters, got ",
        static_cast<int64_t>(given));
  for (size_t i = 0; i < args.values.size(); ++i)
    check(args.values[i].given(), r.name, "parameter ", r.parameters[i], " is missing");
  if (shapes)
    check(args.shapes[0].product() == args.shapes[1].product(), r.name,
          "in_shape, out_shape have different numbers of elements");
  return Transform(std::make_shared<RecordedTransform>(r, args));
}

Transform exp_transform() {
  return make_transform("ExpTransform");
}
Transform sigmoid_transform() {
  return make_transform("SigmoidTransform");
}
Transform tanh_transform() {
  return make_transform("TanhTransform");
}
Transform softplus_transform() {
  return make_transform("SoftplusTransform");
}
Transform softmax_transform() {
  return make_transform("SoftmaxTransform");
}
Transform abs_transform() {
  return make_transform("AbsTransform");
}
Transform stick_breaking_transform() {
  return make_transform("StickBreakingTransform");
}
Transform lower_cholesky_transform() {
  return make_transform("LowerCholeskyTransform");
}
Transform positive_definite_transform() {
  return make_transform("PositiveDefiniteTransform");
}
Transform corr_cholesky_transform() {
  return make_transform("CorrCholeskyTransform");
}
Transform affine_transform(const Given& loc, const Given& scale, int64_t event_dim) {
  return make_transform("AffineTransform", {{loc, scale}, {}, event_dim});
}
Transform power_transform(const Given& exponent) {
  return make_transform("PowerTransform", {{exponent}});
}
Transform reshape_transform(const Shape& in, const Shape& out) {
  return make_transform("ReshapeTransform", {{}, {in, out}});
}

}  // namespace strata::distributions
