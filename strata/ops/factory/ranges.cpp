#include "strata/ops/factory/ranges.h"

#include <algorithm>
#include <cmath>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/factory/factory_reference_inl.h"
#include "strata/ops/factory/ranges_kernels.h"

namespace strata {
namespace {

constexpr int64_t kRangeGrain = 32768;

// Writes y[i] = f(i), computed in double or int64, to a row-major y.
template <class F>
void generate(Tensor& y, F f) {
  dispatch_all(y.dtype(), "range", [&]<class T>() {
    T* p = y.data<T>();
    parallel_for(0, y.numel(), kRangeGrain, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) p[i] = static_cast<T>(static_cast<compute_t<T>>(f(i)));
    });
  });
}

void range_cpu(Tensor& y, const RangeNumbers& r) {
  if (!y.is_contiguous()) {
    Tensor dense = empty(like(y));
    range_cpu(dense, r);
    copy_elements(y, dense);
    return;
  }
  if (r.integral)
    return generate(
        y, [=](int64_t i) { return static_cast<int64_t>(r.first_int + static_cast<uint64_t>(i) * r.step_int); });
  const auto value = [=](int64_t i) {
    return i < r.turn ? r.first + r.step * static_cast<double>(i)
                      : r.last - r.step * static_cast<double>(r.size - 1 - i);
  };
  if (r.power) return generate(y, [=](int64_t i) { return std::pow(r.base, value(i)); });
  if (y.dtype() != DType::f32 && y.dtype() != DType::f64) return generate(y, value);
  const int64_t turn = std::min(r.turn, y.numel());
  parallel_for(0, y.numel(), kRangeGrain, [&](int64_t b, int64_t e) {
    evenly_spaced_cpu(y.dtype(), y.raw_data(), b, std::min(e, turn), r.first, r.step, 0);
    evenly_spaced_cpu(y.dtype(), y.raw_data(), std::max(b, turn), e, r.last, r.step, r.size - 1);
  });
}
template <class On>
void fill_range(On on, Tensor& y, const RangeNumbers& r) {
  if constexpr (on.cuda)
    range_cuda(y, r);
  else
    range_cpu(y, r);
}

bool integral(Scalar s) {
  return s.kind() != DType::f64;
}

int64_t arange_length(Scalar start, Scalar end, Scalar step) {
  check(std::isfinite(start.to_double()) && std::isfinite(end.to_double()) && std::isfinite(step.to_double()), "arange",
        "start, end and step must be finite, got ", start.to_double(), ", ", end.to_double(), ", ", step.to_double());
  check(step.to_double() != 0, "arange", "step must not be 0");
  check((end.to_double() - start.to_double()) * step.to_double() >= 0, "arange", "step ", step.to_double(),
        " leads away from end: start ", start.to_double(), ", end ", end.to_double());
  const double n = std::ceil((end.to_double() - start.to_double()) / step.to_double());
  check(n < 0x1p60, "arange", "a range of ", n, " elements is too large");
  if (integral(start) && integral(end) && integral(step)) {
    const __int128 distance = static_cast<__int128>(end.to_int()) - start.to_int(), s = step.to_int();
    return static_cast<int64_t>((distance + s - (s > 0 ? 1 : -1)) / s);
  }
  return static_cast<int64_t>(n);
}

DType range_dtype(std::initializer_list<Scalar> bounds) {
  return std::all_of(bounds.begin(), bounds.end(), integral) ? DType::i64 : default_dtype();
}

Cost write_cost(double n, DType dtype) {
  return {n, n * static_cast<double>(size_of(dtype))};
}

const Op<Tensor(Scalar, Scalar, Scalar, DType, Device)> arange_op{{
    .schema = "arange(Scalar start, Scalar end, Scalar step=1, DType dtype=i64, Device device=cpu) -> Tensor",
    .doc = "start, start + step, ... before end: ceil((end - start) / step) elements, 1-D; an integer dtype truncates "
           "start "
           "and step first, and has as many. ValueError when step is 0 or leads away from end.",
    .example = "assert(arange(1, 7, 2).to_vector<int64_t>() == std::vector<int64_t>({1, 3, 5}));",
    .infer =
        [](Scalar start, Scalar end, Scalar step, DType dtype, Device device) {
          return TensorMeta{{arange_length(start, end, step)}, dtype, device, std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, Scalar start, Scalar end, Scalar step, DType dtype, Device) {
      RangeNumbers r;
      // An integer dtype counts in integers, from a truncated start by a truncated step.
      r.integral = !is_floating(dtype) || (integral(start) && integral(end) && integral(step));
      if (r.integral) {
        r.first_int = static_cast<uint64_t>(start.to_int());
        r.step_int = static_cast<uint64_t>(step.to_int());
      }
      r.first = start.to_double();
      r.step = step.to_double();
      fill_range(on, y, r);
    }),
    .dtypes = kFloats | kInts,
    .cost = [](Scalar start, Scalar end, Scalar step, DType dtype,
               Device) { return write_cost(static_cast<double>(arange_length(start, end, step)), dtype); },
    .samples =
        [](Samples& s) {
          s.add(Scalar(0), Scalar(7), Scalar(1), s.dtype(), Device::cpu());
          s.add(Scalar(9), Scalar(1), Scalar(-3), s.dtype(), Device::cpu());
          s.add(Scalar(0.5), Scalar(3.0), Scalar(0.75), s.dtype(), Device::cpu());
          s.add(Scalar(2), Scalar(2), Scalar(1), s.dtype(), Device::cpu());
          s.invalid<ValueError>("must not be 0", Scalar(0), Scalar(1), Scalar(0), s.dtype(), Device::cpu());
          s.invalid<ValueError>("leads away", Scalar(0), Scalar(3), Scalar(-1), s.dtype(), Device::cpu());
        },
    .reference = by_loops::counted,
}};

// Counting from both ends keeps the last value exact.
RangeNumbers from_both_ends(Scalar start, Scalar end, int64_t steps, DType dtype) {
  RangeNumbers r;
  r.first = start.to_double();
  r.last = end.to_double();
  if (!is_floating(dtype)) {
    r.first = std::trunc(r.first);
    r.last = std::trunc(r.last);
  }
  r.step = steps > 1 ? (r.last - r.first) / static_cast<double>(steps - 1) : 0;
  r.size = steps;
  r.turn = (steps + 1) / 2;
  return r;
}

void check_steps(int64_t steps, std::string_view op) {
  check(steps >= 0, op, "steps must not be negative, got ", steps);
}

const Op<Tensor(Scalar, Scalar, int64_t, DType, Device)> linspace_op{{
    .schema = "linspace(Scalar start, Scalar end, int steps, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc = "steps values at equal distances from start to end, both included. Integer dtypes truncate start, end and "
           "the values.",
    .example = "assert(linspace(0, 1, 3).to_vector<float>() == std::vector<float>({0, 0.5f, 1}));",
    .infer =
        [](Scalar, Scalar, int64_t steps, DType dtype, Device device) {
          check_steps(steps, "linspace");
          return TensorMeta{{steps}, dtype, device, std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, Scalar start, Scalar end, int64_t steps, DType dtype, Device) {
      fill_range(on, y, from_both_ends(start, end, steps, dtype));
    }),
    .cost = [](Scalar, Scalar, int64_t steps, DType dtype,
               Device) { return write_cost(static_cast<double>(steps), dtype); },
    .samples =
        [](Samples& s) {
          s.add(Scalar(0), Scalar(1), 5, s.dtype(), Device::cpu());
          s.add(Scalar(2.5), Scalar(-1), 4, s.dtype(), Device::cpu());
          s.add(Scalar(3), Scalar(8), 1, s.dtype(), Device::cpu());
          s.add(Scalar(3), Scalar(8), 0, s.dtype(), Device::cpu());
          s.invalid<ValueError>("steps", Scalar(0), Scalar(1), -1, s.dtype(), Device::cpu());
        },
    .reference = by_loops::evenly_spaced,
}};

const Op<Tensor(Scalar, Scalar, int64_t, double, DType, Device)> logspace_op{{
    .schema =
        "logspace(Scalar start, Scalar end, int steps, float base=10, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc =
        "base^v for steps values v at equal distances from start to end, both included. Integer dtypes truncate start "
        "and end (but of a single value) and the results.",
    .infer =
        [](Scalar, Scalar, int64_t steps, double, DType dtype, Device device) {
          check_steps(steps, "logspace");
          return TensorMeta{{steps}, dtype, device, std::nullopt};
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, Scalar start, Scalar end, int64_t steps, double base, DType dtype, Device) {
          RangeNumbers r = from_both_ends(start, end, steps, steps == 1 ? DType::f64 : dtype);
          r.power = true;
          r.base = base;
          fill_range(on, y, r);
        }),
    .cost = [](Scalar, Scalar, int64_t steps, double, DType dtype,
               Device) { return write_cost(static_cast<double>(steps), dtype); },
    .samples =
        [](Samples& s) {
          s.add(Scalar(0), Scalar(2), 5, 10.0, s.dtype(), Device::cpu());
          s.add(Scalar(1), Scalar(-3), 3, 2.0, s.dtype(), Device::cpu());
          s.invalid<ValueError>("steps", Scalar(0), Scalar(1), -1, 10.0, s.dtype(), Device::cpu());
        },
    .reference = by_loops::powers_evenly_spaced,
}};

const Op<Tensor(int64_t, int64_t, DType, Device)> eye_op{{
    .schema = "eye(int n, int m, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc = "[n, m] with ones on the main diagonal and zeros elsewhere.",
    .infer =
        [](int64_t n, int64_t m, DType dtype, Device device) {
          check<ShapeError>(n >= 0 && m >= 0, "eye", "sizes must not be negative, got ", n, " and ", m);
          return TensorMeta{{n, m}, dtype, device, std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, int64_t n, int64_t m, DType, Device) {
      if (y.numel() == 0) return;
      fill_elements(on, y, 0);
      const int64_t k = std::min(n, m);
      fill_elements(on, alias(y, {k}, {y.strides()[0] + y.strides()[1]}, y.storage_offset()), 1);
    }),
    .dtypes = kAllTypes,
    .cost = [](int64_t n, int64_t m, DType dtype, Device) { return write_cost(static_cast<double>(n * m), dtype); },
    .samples =
        [](Samples& s) {
          s.add(3, 3, s.dtype(), Device::cpu());
          s.add(2, 5, s.dtype(), Device::cpu());
          s.add(4, 0, s.dtype(), Device::cpu());
          s.invalid<ShapeError>("negative", -1, 2, s.dtype(), Device::cpu());
        },
    .reference = by_loops::identity,
}};

const Op<Tensor(bool, int64_t, int64_t, int64_t, Device)> triangle_indices_op{{
    .schema = "triangle_indices(bool lower, int rows, int cols, int offset=0, Device device=cpu) -> Tensor",
    .doc = "[2, k] i64: rows and columns of the elements of a [rows, cols] matrix on and below (lower) or on and above "
           "the "
           "offset-th diagonal, in row-major order: tril_indices and triu_indices.",
    .infer =
        [](bool lower, int64_t rows, int64_t cols, int64_t offset, Device device) {
          check<ShapeError>(rows >= 0 && cols >= 0, "triangle_indices", "sizes must not be negative, got ", rows,
                            " and ", cols);
          check<ShapeError>(rows < int64_t{1} << 62 && cols < int64_t{1} << 62, "triangle_indices", "sizes ", rows,
                            " and ", cols, " are too large");
          const __int128 n = Triangle(lower, rows, cols, offset).count();
          check<ShapeError>(n < int64_t{1} << 60, "triangle_indices", "the triangle of a [", rows, ", ", cols,
                            "] matrix is too large");
          return TensorMeta{{2, static_cast<int64_t>(n)}, DType::i64, device, std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, bool lower, int64_t rows, int64_t cols, int64_t offset, Device) {
      const Triangle t(lower, rows, cols, offset);
      if constexpr (on.cuda) return triangle_indices_cuda(y, t);
      int64_t* row = y.data<int64_t>();
      int64_t* col = row + y.shape()[1];
      if (y.numel() == 0) return;
      for (int64_t i = t.first_row(); i < t.last_row(); ++i) {
        for (int64_t j = lower ? 0 : t.edge(i), last = lower ? t.edge(i) : cols; j < last; ++j) {
          *row++ = i;
          *col++ = j;
        }
      }
    }),
    .dtypes = dtype_bit(DType::i64),
    .cost =
        [](bool, int64_t rows, int64_t cols, int64_t, Device) {
          return Cost{0, 8.0 * static_cast<double>(rows) * static_cast<double>(cols)};
        },
    .samples =
        [](Samples& s) {
          s.add(true, 3, 4, 0, Device::cpu());
          s.add(true, 3, 4, -1, Device::cpu());
          s.add(false, 4, 3, 1, Device::cpu());
          s.add(false, 0, 3, 0, Device::cpu());
          s.invalid<ShapeError>("negative", true, -1, 2, 0, Device::cpu());
        },
    .reference = by_loops::places_of_triangle,
}};

}  // namespace

Tensor arange(Scalar end, std::optional<DType> dtype) {
  return arange(0, end, 1, dtype);
}
Tensor arange(Scalar start, Scalar end, Scalar step, std::optional<DType> dtype) {
  return arange_op(start, end, step, dtype.value_or(range_dtype({start, end, step})), default_device());
}
Tensor linspace(Scalar start, Scalar end, int64_t steps, std::optional<DType> dtype) {
  return linspace_op(start, end, steps, dtype.value_or(default_dtype()), default_device());
}
Tensor logspace(Scalar start, Scalar end, int64_t steps, double base, std::optional<DType> dtype) {
  return logspace_op(start, end, steps, base, dtype.value_or(default_dtype()), default_device());
}
Tensor eye(int64_t n, std::optional<int64_t> m, std::optional<DType> dtype) {
  return eye_op(n, m.value_or(n), dtype.value_or(default_dtype()), default_device());
}
Tensor tril_indices(int64_t rows, int64_t cols, int64_t offset) {
  return triangle_indices_op(true, rows, cols, offset, default_device());
}
Tensor triu_indices(int64_t rows, int64_t cols, int64_t offset) {
  return triangle_indices_op(false, rows, cols, offset, default_device());
}

}  // namespace strata
