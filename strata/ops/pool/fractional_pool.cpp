// Max pooling whose windows begin at random steps.

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/pool/pool_common_inl.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {
using namespace pool;

constexpr std::string_view kOp = "fractional_max_pool";
using Pair = std::tuple<Tensor, Tensor>;
using Ratio = std::optional<double>;

// The last `kernel.size()` sizes of the result.
Dims result_size(const Tensor& x, const Dims& kernel, const std::optional<Dims>& output_size, Ratio ratio, Ratio second,
                 Ratio third) {
  const int n = kernel.size();
  check(n == 2 || n == 3, kOp, "kernel ", kernel, " needs two or three entries");
  check_rank(kOp, x, n);
  check_floating(kOp, x);
  check(output_size.has_value() != ratio.has_value(), kOp, "needs either output_size or output_ratio");
  check(ratio || !(second || third), kOp, "the second and third output_ratio go with the first");
  const Dims in = spatial_of(kOp, x, n);
  Dims out;
  if (output_size) {
    out = spread(*output_size, n);
    check(out.size() == n, kOp, "output_size ", *output_size, " needs ", n, " entries");
  }
  for (int d = 0; d < n; ++d) {
    if (ratio) {
      const double r = d == 1 ? second.value_or(*ratio) : d == 2 ? third.value_or(*ratio) : *ratio;
      check(r > 0 && r < 1, kOp, "output_ratio must be between 0 and 1, got ", r);
      out.push_back(static_cast<int64_t>(static_cast<double>(in[d]) * r));
    }
    check<ShapeError>(out[d] >= 1 && kernel[d] >= 1 && out[d] <= in[d] && kernel[d] <= in[d] - out[d] + 1, kOp,
                      "windows of ", kernel, " do not give ", out, " from ", in);
  }
  return out;
}

// Which of a sample's numbers is dimension d's: PyTorch's order, width and height, but depth first.
int64_t sample_of(int d, int n) {
  return n == 2 ? 1 - d : d;
}

void check_samples(const Tensor& x, const Tensor& samples, int n) {
  const int64_t batch = x.dim() == n + 2 ? x.size(0) : 1;
  check<ShapeError>(samples.shape() == Shape({batch, x.size(-n - 1), n}), kOp, "samples are [", batch, ", ",
                    x.size(-n - 1), ", ", n, "], got ", samples);
  check<DTypeError>(is_floating(samples.dtype()), kOp, "samples need a floating dtype, are ", samples);
}

// Where windows begin, [n, c, out]: from the drawn numbers [n, c] in [0, 1). The last one ends at the border.
Tensor starts(const Tensor& drawn, int64_t size, int64_t out, int64_t kernel) {
  Shape one = drawn.shape();
  one.push_back(1);
  const Tensor last = full_like(drawn.reshape(one), size - kernel, DType::i64);
  if (out == 1) return last;
  const double step = static_cast<double>(size - kernel) / static_cast<double>(out - 1);
  const Tensor at = drawn.reshape(one), steps = arange(0, out - 1, 1, drawn.dtype());
  return cat({((steps + at) * step).to(DType::i64) - (at * step).to(DType::i64), last}, 2);
}

Pair composed(const Tensor& x, const Tensor& samples, const Dims& kernel, const std::optional<Dims>& output_size,
              Ratio ratio, Ratio second, Ratio third) {
  const int n = kernel.size();
  const Dims out = result_size(x, kernel, output_size, ratio, second, third), in = spatial_of(kOp, x, n);
  check_samples(x, samples, n);
  const DeviceScope there(x.device());
  const int64_t batch = samples.size(0), channels = samples.size(1);
  const Tensor drawn = samples.detach().to(statistic_dtype(samples.dtype()));
  Tensor index;  // of every element of every window: [n, c, out .., kernel ..], out and kernel each flattened later
  int64_t outs = 1, kernels = 1;
  for (int d = 0; d < n; ++d) {
    const Tensor rows = unsqueeze(starts(select(drawn, 2, sample_of(d, n)), in[d], out[d], kernel[d]), -1) +
                        arange(0, kernel[d], 1, DType::i64);  // [n, c, out, kernel]
    if (!index.defined()) {
      index = rows;
    } else {
      const Tensor before = (index * in[d]).reshape({batch, channels, outs, 1, kernels, 1});
      index = before + rows.reshape({batch, channels, 1, out[d], 1, kernel[d]});
    }
    outs *= out[d], kernels *= kernel[d];
    index = index.reshape({batch, channels, outs, kernels});
  }
  const Tensor flat = x.reshape({batch, channels, in.product()});
  const Tensor values = gather(flat, 2, index.reshape({batch, channels, outs * kernels})).reshape(index.shape());
  const Tensor which = argmax(values.detach(), -1, true);
  const Shape result = with_spatial(x.shape(), out);
  return Pair(gather(values, -1, which).reshape(result), gather(index, -1, which).reshape(result));
}

Pair by_hand(const Tensor& x, const Tensor& samples, const Dims& kernel, const std::optional<Dims>& output_size,
             Ratio ratio, Ratio second, Ratio third) {
  const int n = kernel.size();
  const Dims out = result_size(x, kernel, output_size, ratio, second, third), in = spatial_of(kOp, x, n);
  const naive::Array from(x), drawn(samples);
  const Shape result = with_spatial(x.shape(), out);
  naive::Array values(result), places(result);
  int64_t i = 0;
  naive::each(result, [&](const Dims& place) {
    const int64_t plane = i / out.product();
    double best = 0;
    int64_t best_at = -1;
    naive::each(kernel, [&](const Dims& step) {
      int64_t at = 0;
      for (int d = 0; d < n; ++d) {
        const int64_t o = place[place.size() - n + d];
        const double a = drawn.flat(plane * n + sample_of(d, n));
        const double each = out[d] > 1 ? static_cast<double>(in[d] - kernel[d]) / static_cast<double>(out[d] - 1) : 0;
        const double start = o + 1 == out[d] ? static_cast<double>(in[d] - kernel[d])
                                             : std::trunc((static_cast<double>(o) + a) * each) - std::trunc(a * each);
        at = at * in[d] + static_cast<int64_t>(start) + step[d];
      }
      const double v = from.flat(plane * in.product() + at);
      if (best_at < 0 || v > best) best = v, best_at = at;
    });
    values.flat(i) = best;
    places.flat(i++) = static_cast<double>(best_at);
  });
  return Pair(values, Tensor(places).to(DType::i64));
}

const Op<Pair(const Tensor&, const Tensor&, const Dims&, const std::optional<Dims>&, Ratio, Ratio, Ratio)>
    fractional_max_pool_op{{
        .schema = "fractional_max_pool(Tensor x, Tensor samples, int[] kernel, int[]? output_size=None, float? "
                  "output_ratio=None, float? second_ratio=None, float? third_ratio=None) -> (Tensor values, Tensor "
                  "indices)",
        .doc = "The largest elements of windows that begin at random steps (Graham, arXiv:1412.6071), and where they "
               "were in the plane: x [N, C, H, W] or [N, C, D, H, W] (or without N) to output_size, or to output_ratio "
               "times the input's size; the second and third dimension may have a ratio of their own. samples [N, C, "
               "2] (width and height) or [N, C, 3] (depth, height, width) from [0, 1) say where windows begin. "
               "ShapeError, ValueError, DTypeError.",
        .example = "const auto [y, at] = fractional_max_pool(ones({1, 2, 6, 7}), {2, 2}, Dims{3, 4});\n"
                   "assert(y.shape() == Shape({1, 2, 3, 4}) && at.shape() == y.shape());",
        .composed = composed,
        .samples =
            [](Samples& s) {
              const auto none = std::nullopt;
              // Odd sixteenths, which every dtype has and no window's beginning is near to a step of.
              const auto drawn = [&](const Shape& shape) {
                return (s.integers(shape, 0, 8) * 0.125 + 0.0625).to(s.dtype());
              };
              s.add(s.distinct({2, 3, 6, 7}), drawn({2, 3, 2}), Dims{2, 3}, Dims{3, 4});
              s.add(s.distinct({3, 8, 5}), drawn({1, 3, 2}), Dims{2, 2}, none, 0.6, 0.5).named("ratios, no batch");
              s.add(s.distinct({1, 2, 5, 4, 6}), drawn({1, 2, 3}), Dims{2, 1, 3}, Dims{3, 2, 1})
                  .named("three dimensions");
              s.invalid<ValueError>("either output_size", s.tensor({1, 1, 4, 4}), drawn({1, 1, 2}), Dims{2, 2});
              s.invalid<ValueError>("between 0 and 1", s.tensor({1, 1, 4, 4}), drawn({1, 1, 2}), Dims{2, 2}, none, 1.5);
              s.invalid<ShapeError>("do not give", s.tensor({1, 1, 4, 4}), drawn({1, 1, 2}), Dims{2, 2}, Dims{4, 4});
              s.invalid<ShapeError>("samples are", s.tensor({1, 1, 4, 4}), drawn({1, 2, 2}), Dims{2, 2}, Dims{2, 2});
              s.invalid<ShapeError>("dimensions", s.tensor({4, 4}), drawn({1, 1, 2}), Dims{2, 2}, Dims{2, 2});
              s.invalid<ValueError>("two or three", s.tensor({1, 1, 4}), drawn({1, 1, 1}), Dims{2}, Dims{2});
            },
        .reference = by_hand,
    }};

}  // namespace

std::tuple<Tensor, Tensor> fractional_max_pool(const Tensor& x, const Dims& kernel,
                                               const std::optional<Dims>& output_size,
                                               std::optional<double> output_ratio, std::optional<double> second_ratio,
                                               std::optional<double> third_ratio, const Tensor& samples) {
  if (samples.defined())
    return fractional_max_pool_op(x, samples, kernel, output_size, output_ratio, second_ratio, third_ratio);
  const int n = kernel.size();
  result_size(x, kernel, output_size, output_ratio, second_ratio, third_ratio);
  const DeviceScope there(x.device());
  const Tensor drawn =
      rand({x.dim() == n + 2 ? x.size(0) : 1, x.size(-n - 1), n}, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  return fractional_max_pool_op(x, drawn, kernel, output_size, output_ratio, second_ratio, third_ratio);
}

}  // namespace strata
