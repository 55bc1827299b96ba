#include "strata/ops/windows/windows.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr double kPi = std::numbers::pi;

// What a name stands for: a sum of cosines, or a formula of its own; and what `a` is without a value.
enum class Form { cosines, bartlett, cosine, exponential, gaussian, kaiser };
struct Window {
  std::string_view name;
  Form form;
  double cosines[4];
  double a;
  bool any_a;  // zero and negative ones mean something
};
constexpr Window kWindows[] = {
    {"bartlett", Form::bartlett, {}, 1, true},
    {"blackman", Form::cosines, {0.42, 0.5, 0.08, 0}, 1, true},
    {"cosine", Form::cosine, {}, 1, true},
    {"exponential", Form::exponential, {}, 1, false},
    {"gaussian", Form::gaussian, {}, 1, false},
    {"general_hamming", Form::cosines, {}, 0.54, true},
    {"hamming", Form::cosines, {0.54, 0.46, 0, 0}, 1, true},
    {"hann", Form::cosines, {0.5, 0.5, 0, 0}, 1, true},
    {"kaiser", Form::kaiser, {}, 12, true},
    {"nuttall", Form::cosines, {0.3635819, 0.4891775, 0.1365995, 0.0106411}, 1, true},
};

void check_size(int64_t size, std::string_view op) {
  check(size >= 0, op, "size must not be negative, got ", size);
}

const Window& find(const std::string& name, int64_t size, double a) {
  check_size(size, "signal_window");
  std::string names;
  for (const Window& w : kWindows) {
    names += cat(' ', w.name);
    if (w.name != name) continue;
    check(std::isfinite(a) && (w.any_a || a > 0), "signal_window", "a of ", name, " must be ",
          w.any_a ? "finite" : "positive and finite", ", got ", a);
    return w;
  }
  throw ValueError("signal_window", cat("'", name, "' is none of:", names));
}

// Steps from the first to the last point of the symmetric window that one of `size` > 1 points is a part of: its last
// point is left out without `sym`. In f64, as one more than the largest size is no int64.
double steps(int64_t size, bool sym) {
  return static_cast<double>(sym ? size - 1 : size);
}

// The modified Bessel function of order 0 by its series, in which every term is positive: sum ((x/2)^k / k!)^2. `most`
// is the largest |x|.
Tensor bessel_i0(const Tensor& x, double most) {
  const Tensor quarter = x * x * 0.25;
  Tensor term = ones_like(x), sum = term;
  for (int k = 1; k < 20 + 2 * most; ++k) {
    term = term * quarter / (static_cast<double>(k) * k);
    sum = sum + term;
  }
  return sum;
}

Tensor cosines(const Tensor& x, std::span<const double> coefficients) {
  Tensor y = full_like(x, coefficients[0]);
  for (size_t k = 1; k < coefficients.size(); ++k)
    if (coefficients[k] != 0) y = y + cos(x * static_cast<double>(k)) * (k % 2 ? -coefficients[k] : coefficients[k]);
  return y;
}

// Kaiser's beta may be large: what is left of I0(beta) in a double ends at 700.
void check_beta(double beta) {
  check(std::abs(beta) <= 700, "signal_window", "a of kaiser must be at most 700 in size, got ", beta);
}

Tensor make(const std::string& name, int64_t size, double a, bool sym) {
  const Window& w = find(name, size, a);
  if (w.form == Form::kaiser) check_beta(a);
  if (size < 2) return ones({size}, DType::f64);
  const double last = steps(size, sym);
  const Tensor n = arange(0, size, 1, DType::f64);
  switch (w.form) {
    case Form::cosines: {
      const double hamming[] = {a, 1 - a};
      const bool general = w.cosines[0] == 0;
      return cosines(n * (2 * kPi / last),
                     general ? std::span<const double>(hamming) : std::span<const double>(w.cosines));
    }
    case Form::bartlett:
      return 1 - abs(n * (2 / last) - 1);
    case Form::cosine:
      return sin((n + 0.5) * (kPi / (last + 1)));
    case Form::exponential:
      return exp(abs(n - last / 2) * (-1 / a));
    case Form::gaussian: {
      const Tensor x = (n - last / 2) / a;
      return exp(x * x * -0.5);
    }
    default: {
      const Tensor t = n * (2 / last) - 1;
      const double beta = std::abs(a);
      const Tensor x = sqrt(clamp(1 - t * t, std::optional<Scalar>(0.0), std::nullopt)) * beta;
      return bessel_i0(x, beta) / bessel_i0(full({1}, beta, DType::f64), beta);
    }
  }
}

// The definitions, point by point.
Tensor by_definition(const std::string& name, int64_t size, double a, bool sym) {
  const Window& w = find(name, size, a);
  std::vector<double> y(static_cast<size_t>(size), 1);
  const double points = steps(size, sym) + 1;
  for (int64_t i = 0; size > 1 && i < size; ++i) {
    const double n = static_cast<double>(i), turn = 2 * kPi * n / (points - 1), off = n - (points - 1) / 2;
    double& v = y[static_cast<size_t>(i)];
    if (name == "hann") v = std::pow(std::sin(turn / 2), 2);
    if (name == "hamming") v = 0.54 - 0.46 * std::cos(turn);
    if (name == "general_hamming") v = a - (1 - a) * std::cos(turn);
    if (name == "blackman") v = 0.42 - 0.5 * std::cos(turn) + 0.08 * std::cos(2 * turn);
    if (name == "nuttall") {
      v = 0.3635819 - 0.4891775 * std::cos(turn);
      v += 0.1365995 * std::cos(2 * turn) - 0.0106411 * std::cos(3 * turn);
    }
    if (name == "bartlett") v = n <= (points - 1) / 2 ? 2 * n / (points - 1) : 2 - 2 * n / (points - 1);
    if (name == "cosine") v = std::sin(kPi * (n + 0.5) / points);
    if (name == "exponential") v = std::exp(-std::abs(off) / a);
    if (name == "gaussian") v = std::exp(-off * off / (2 * a * a));
    if (name == "kaiser") {
      const double t = 2 * off / (points - 1);
      v = std::cyl_bessel_i(0, std::abs(a) * std::sqrt(std::max(0.0, 1 - t * t))) / std::cyl_bessel_i(0, std::abs(a));
    }
  }
  (void)w;
  return from_span<double>(y, {size});
}

const Op<Tensor(const std::string&, int64_t, double, bool, DType, Device)> signal_window_op{{
    .schema = "signal_window(str name, int size, float a, bool sym=true, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc =
        "The window of signal processing of that name at size points, 1-D: bartlett, blackman, cosine, exponential (a: "
        "the length of its decay), gaussian (a: its standard deviation), general_hamming (a: its alpha), hamming, "
        "hann, "
        "kaiser (a: its beta), nuttall; a says nothing to the others. Without sym the last point of the symmetric "
        "window "
        "of one more is left out, as for spectra. Formulas: Harris, On the use of windows for harmonic analysis with "
        "the "
        "discrete Fourier transform (1978).",
    .example = "assert(allclose(signal_window(\"bartlett\", 5), from_span<float>(std::vector<float>{0, 0.5f, 1, 0.5f, "
               "0}, {5})));",
    .composed =
        [](const std::string& name, int64_t size, double a, bool sym, DType dtype, Device device) {
          check<DTypeError>(is_floating(dtype), "signal_window", "a floating dtype is wanted, got ", dtype);
          DeviceScope scope(device);
          return make(name, size, a, sym).to(dtype);
        },
    .dtypes = kFloats,
    .samples =
        [](Samples& s) {
          for (const Window& w : kWindows)
            for (const bool sym : {true, false})
              s.add(std::string(w.name), 7, w.form == Form::kaiser ? 8.0 : w.a * 1.25, sym, s.dtype(), Device::cpu());
          s.add("hann", 1, 1.0, false, s.dtype(), Device::cpu());
          s.add("kaiser", 0, 12.0, true, s.dtype(), Device::cpu());
          s.add("kaiser", 6, 0.0, true, s.dtype(), Device::cpu());
          s.invalid<ValueError>("none of: bartlett", "hanning", 3, 1.0, true, s.dtype(), Device::cpu());
          s.invalid<ValueError>("negative", "hann", -1, 1.0, true, s.dtype(), Device::cpu());
          s.invalid<ValueError>("positive", "gaussian", 3, 0.0, true, s.dtype(), Device::cpu());
          s.invalid<ValueError>("too large", "hann", std::numeric_limits<int64_t>::max(), 1.0, false, s.dtype(),
                                Device::cpu());
          s.invalid<DTypeError>("floating", "hann", 3, 1.0, true, DType::i64, Device::cpu());
        },
    .reference = [](const std::string& name, int64_t size, double a, bool sym, DType,
                    Device) { return by_definition(name, size, a, sym); },
}};

void check_coefficients(const Tensor& a, int64_t size) {
  check<ShapeError>(a.dim() == 1 && a.numel() > 0, "general_cosine_window",
                    "coefficients must be 1-D and not empty, got ", a);
  check_size(size, "general_cosine_window");
}

const Op<Tensor(const Tensor&, int64_t, bool)> general_cosine_op{{
    .schema = "general_cosine_window(Tensor coefficients, int size, bool sym=true) -> Tensor",
    .doc = "sum_k (-1)^k coefficients[k] cos(2 pi k n / (points - 1)) for n below size, 1-D; points is size, or "
           "without sym "
           "one more.",
    .example =
        "Tensor hann = general_cosine_window(full({2}, 0.5), 5); assert(allclose(hann, signal_window(\"hann\", 5)));",
    .composed =
        [](const Tensor& a, int64_t size, bool sym) {
          check_coefficients(a, size);
          if (size < 2) return ones({size}, a.dtype()).to(a.device());
          DeviceScope scope(a.device());
          const Tensor n = arange(0, size, 1, DType::f64) * (2 * kPi / steps(size, sym));
          const Tensor k = arange(0, a.numel(), 1, DType::f64);
          const Tensor sign = 1 - 2 * remainder(k, 2);
          return sum(cos(n.unsqueeze(1) * k) * (a.to(DType::f64) * sign), Dims{1}).to(a.dtype());
        },
    .dtypes = kFloats,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4}), 7, true);
          s.add(s.tensor({1}), 4, false);
          s.add(s.tensor({3}), 6, false);
          s.invalid<ShapeError>("1-D", s.tensor({2, 2}), 4, true);
          s.invalid<ValueError>("negative", s.tensor({2}), -4, true);
          s.invalid<ValueError>("too large", s.tensor({2}), std::numeric_limits<int64_t>::max(), false);
        },
    .reference =
        [](const Tensor& a, int64_t size, bool sym) {
          const std::vector<double> c = a.to(DType::f64).to_vector<double>();
          std::vector<double> y(static_cast<size_t>(size), size == 1 ? 1 : 0);
          for (int64_t i = 0; size > 1 && i < size; ++i)
            for (size_t k = 0; k < c.size(); ++k)
              y[static_cast<size_t>(i)] +=
                  (k % 2 ? -1 : 1) * c[k] *
                  std::cos(2 * kPi * static_cast<double>(k) * static_cast<double>(i) / steps(size, sym));
          return from_span<double>(y, {size});
        },
}};

}  // namespace

Tensor signal_window(const std::string& name, int64_t size, std::optional<double> a, bool sym,
                     std::optional<DType> dtype) {
  double otherwise = 1;
  for (const Window& w : kWindows)
    if (w.name == name) otherwise = w.a;
  return signal_window_op(name, size, a.value_or(otherwise), sym, dtype.value_or(default_dtype()), default_device());
}
Tensor general_cosine_window(const Tensor& coefficients, int64_t size, bool sym) {
  return general_cosine_op(coefficients, size, sym);
}

}  // namespace strata
