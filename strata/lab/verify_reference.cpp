// What results should be, and how near they have to come.

#include <algorithm>
#include <cmath>

#include "strata/lab/verifier.h"

namespace strata::lab {
namespace {

// Rounding errors allowed to a kernel that accumulates in f32 (f64 for f64), in units of that type's epsilon.
constexpr double kUnits = 4;

// The results' usual size: their root mean square.
double usual_size(const Tensor& t) {
  double sum = 0;
  int64_t n = 0;
  for (const double v : values(t)) {
    if (!std::isfinite(v)) continue;
    sum += v * v;
    ++n;
  }
  return n > 0 ? std::sqrt(sum / static_cast<double>(n)) : 0;
}

double magnitude(const Tensor& t) {
  double m = 0;
  for (const double v : values(t))
    if (std::isfinite(v)) m = std::max(m, std::abs(v));
  return m;
}

}  // namespace

// Dense copies, broadcast as the op would, floating ones in f64; with `integers_too` also those of `dtype`.
Verifier::Args Verifier::reference_args(const Args& args, DType dtype, bool integers_too) const {
  Shape common;
  if (op_.adapt() != Adapt::none) {
    visit(args, [&](const Tensor& t) {
      if (t.defined()) common = broadcast_shapes(common, t.shape(), op_.name());
    });
  }
  Args r = map(args, [&](const Tensor& t) {
    Tensor x = t;
    if (op_.adapt() != Adapt::none) {
      Strides strides = Strides::filled(common.size(), 0);
      const int lead = common.size() - t.shape().size();
      for (int i = lead; i < common.size(); ++i)
        if (t.shape()[i - lead] == common[i]) strides[i] = t.strides()[i - lead];
      x = alias(t, common, strides, t.storage_offset());
    }
    return is_floating(t.dtype()) || (integers_too && t.dtype() == dtype) ? converted(x, DType::f64) : dense_copy(x);
  });
  // How many random bits an element takes depends on the dtype asked for.
  if (schema_has("RngKey")) return r;
  for (Value& v : r)
    if (const DType* d = std::get_if<DType>(&v); d && *d == dtype && is_floating(dtype)) v = DType::f64;
  return r;
}

// Something else than the op itself: an identity agrees with itself whatever it should have been.
bool Verifier::has_reference() const {
  return op_.has_reference() || (op_.has_composed() && !op_.is_composed());
}

Verifier::Reference Verifier::reference(const Args& args, DType dtype) const {
  NoGrad guard;
  // The missing one is reported by run(); the other checks compare with the op's own results.
  if (!has_reference()) return {tensors_of(op_.call_boxed(map(args, dense_copy))), "none"};
  const char* kind = op_.has_reference() ? "record" : "composed";
  if (is_floating(dtype)) return {tensors_of(op_.reference_boxed(reference_args(args, dtype, false))), kind};
  const bool to_float = op_.adapt() == Adapt::promote_float;
  try {
    return {tensors_of(op_.reference_boxed(reference_args(args, dtype, to_float))), kind};
  } catch (const Error&) {
    // A reference may be written for f64 alone, or for integers.
  }
  return {tensors_of(op_.reference_boxed(reference_args(args, dtype, !to_float))), kind};
}

// Kernels accumulate in f32 or f64 and round to the result's dtype once; an op composed of others rounds each step. A
// record that asks for more tolerance rounds in between: errors are then relative to the results' usual size as well.
Tolerance Verifier::tolerance(const Tensor& result, const Args& args) const {
  const DType dtype = result.dtype();
  if (!is_floating(dtype)) return {};
  double length = 1, scale = 1;
  const auto outputs = static_cast<double>(std::max<int64_t>(result.numel(), 1));
  bool reduced = is_reduced_floating(dtype);
  visit(args, [&](const Tensor& t) {
    if (!t.defined()) return;
    length = std::max(length, static_cast<double>(t.numel()) / outputs);
    for (const int64_t n : t.shape()) length = std::max(length, std::sqrt(static_cast<double>(n)));
    if (is_floating(t.dtype())) scale = std::max(scale, magnitude(t));
    reduced = reduced || is_reduced_floating(t.dtype());
  });
  scale = std::max(scale, magnitude(result));
  try {
    length = std::max(length, op_.cost_boxed(args).flops / outputs);
  } catch (const Error&) {
    // A cost that needs more than these arguments tells no length.
  }
  const double widen = std::max(1.0, op_.tolerance());
  const DType computed = op_.is_composed() && reduced ? dtype : dtype == DType::f64 ? DType::f64 : DType::f32;
  double coarsest = epsilon(dtype);
  if (widen > 1)
    visit(args, [&](const Tensor& t) { coarsest = std::max(coarsest, t.defined() ? epsilon(t.dtype()) : 0); });
  const double between = widen > 1 ? widen * coarsest * usual_size(result) : 0;
  return {widen * coarsest, widen * kUnits * epsilon(computed) * length * scale + between};
}

void Verifier::expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const Args& args,
                            double widen) {
  expect(got.size() == want.size(), got.size(), " results, the reference has ", want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    expect(got[i].shape() == want[i].shape(), "result ", i, " is ", got[i], ", the reference's is ", want[i]);
    Tolerance t = tolerance(got[i], args);
    t.absolute *= widen;
    const Difference d = compare(got[i], want[i], t);
    if (d.index >= 0) report_.worst = std::max(report_.worst, d.ratio);
    expect(d.ratio <= 1, "result ", i, " ", got[i], ", element ", d.index, ": got ", d.got, ", the reference (",
           report_.reference, ") says ", d.want, "; off by ", std::abs(d.got - d.want), ", allowed ", d.bound);
  }
}

}  // namespace strata::lab
