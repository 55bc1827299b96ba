// Matrices rounded to the formats' numbers.

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/lowbit/weight_format.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kName = "quantize_weight";

Tensor host(const Shape& shape, DType dtype) {
  return empty({shape, dtype, Device::cpu(), std::nullopt});
}
uint16_t half_bits(float v) {
  return Half(v).bits;
}
float half_value(uint16_t bits) {
  Half h;
  h.bits = bits;
  return static_cast<float>(h);
}

// The numbers of a block: rows [r, r_end) by columns [c, c_end) of a dense matrix.
template <class F>
void each_in(const float* x, int64_t columns, int64_t r, int64_t r_end, int64_t c, int64_t c_end, F&& f) {
  for (int64_t i = r; i < r_end; ++i)
    for (int64_t j = c; j < c_end; ++j) f(i, j, x[i * columns + j]);
}

struct Grid {
  float scale;
  int zero;
};
// Scale and zero of codes `least` to `most` for numbers from `low` to `high`.
Grid grid_of(float low, float high, int least, int most, bool symmetric, int middle, DType scale_dtype) {
  if (symmetric) {
    const float largest = std::max(std::fabs(low), std::fabs(high));
    return {lowbit::stored_scale(largest / static_cast<float>(most - middle), scale_dtype, kName), middle};
  }
  low = std::min(low, 0.0f), high = std::max(high, 0.0f);
  if (low == high) return {1.0f, least};
  const float scale = lowbit::stored_scale((high - low) / static_cast<float>(most - least), scale_dtype, kName);
  return {scale, std::clamp(static_cast<int>(std::nearbyint(static_cast<float>(least) - low / scale)), least, most)};
}

// int8, int4 and e4m3: a scale for each block.
void by_blocks(PackedWeight& w, const float* x, const QuantizeOptions& o) {
  const bool eight = w.format->codes == WeightCodes::int8, floating = w.format->codes == WeightCodes::e4m3;
  const int least = eight ? -128 : 0, most = eight ? 127 : 15, middle = eight ? 0 : 8;
  const Shape grid = w.grid();
  const Tensor scales = host(grid, DType::f32);
  if (!floating && !o.symmetric) w.zeros = host(grid, eight ? DType::i8 : DType::u8);
  const int64_t height = w.block_rows == 0 ? w.rows : w.block_rows,
                width = w.block_columns == 0 ? w.columns : w.block_columns, bytes = w.format->row_bytes(w.columns);
  auto* const codes = static_cast<uint8_t*>(w.codes.raw_data());
  parallel_for(0, grid[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin * grid[1]; b < end * grid[1]; ++b) {
      const int64_t r = b / grid[1] * height, c = b % grid[1] * width, r_end = std::min(w.rows, r + height),
                    c_end = std::min(w.columns, c + width);
      float low = INFINITY, high = -INFINITY;
      each_in(x, w.columns, r, r_end, c, c_end, [&](int64_t, int64_t, float v) {
        low = std::min(low, v);
        high = std::max(high, v);
      });
      if (floating) {
        const float largest = std::max(std::fabs(low), std::fabs(high));
        const float scale = lowbit::stored_scale(largest / 448.0f, o.scale_dtype, kName);
        scales.data<float>()[b] = scale;
        each_in(x, w.columns, r, r_end, c, c_end,
                [&](int64_t i, int64_t j, float v) { codes[i * bytes + j] = fp8_code(v / scale, kE4m3); });
        continue;
      }
      const Grid g = grid_of(low, high, least, most, o.symmetric, middle, o.scale_dtype);
      scales.data<float>()[b] = g.scale;
      if (w.zeros.defined()) static_cast<uint8_t*>(w.zeros.raw_data())[b] = static_cast<uint8_t>(g.zero);
      each_in(x, w.columns, r, r_end, c, c_end, [&](int64_t i, int64_t j, float v) {
        const int code = lowbit::nearest_code(v, g.scale, static_cast<float>(g.zero), least, most);
        if (eight)
          codes[i * bytes + j] = static_cast<uint8_t>(code);
        else
          lowbit::put_four_bits(codes + i * bytes, j, code);
      });
    }
  });
  w.scales = scales.to(o.scale_dtype);
}

// The 256 numbers of bitsandbytes' dynamic codes, which double quantisation keeps scales in ("8-bit Optimizers via
// Block-wise Quantization", https://arxiv.org/abs/2110.02861, section 2.2): an exponent in leading zeros, a fraction in
// the bits that are left. Each is the middle of two of 2^n + 1 numbers evenly between 0.1 and 1.
std::vector<float> dynamic_values() {
  std::vector<float> all{0.0f, 1.0f};
  for (int exponent = 0; exponent < 7; ++exponent) {
    const int parts = 1 << exponent;
    const double power = std::pow(10.0, exponent - 6);
    for (int i = 0; i < parts; ++i) {
      const double a = 0.1 + 0.9 * i / parts, b = 0.1 + 0.9 * (i + 1) / parts;
      all.push_back(static_cast<float>(power * (a + b) / 2));
      all.push_back(static_cast<float>(-power * (a + b) / 2));
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}
uint8_t nearest_of(const std::vector<float>& sorted, float v) {
  const auto above = std::lower_bound(sorted.begin(), sorted.end(), v);
  auto at = above == sorted.end() ? above - 1 : above;
  if (at != sorted.begin() && v - *(at - 1) <= *at - v) --at;
  return static_cast<uint8_t>(at - sorted.begin());
}

void nest_scales(PackedWeight& w) {
  const int64_t n = w.scales.numel(), blocks = (n + 255) / 256;
  const auto* from = w.scales.data<float>();
  const std::vector<float> values = dynamic_values();
  const Tensor codes = host(w.scales.shape(), DType::u8), nested = host({257 + blocks}, DType::f32);
  auto* const to = nested.data<float>();
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += from[i];
  to[0] = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(1, n)));
  std::copy(values.begin(), values.end(), to + 1);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * 256, end = std::min(n, begin + 256);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(from[i] - to[0]));
    to[257 + b] = largest;
    for (int64_t i = begin; i < end; ++i)
      codes.data<uint8_t>()[i] = nearest_of(values, largest == 0 ? 0.0f : (from[i] - to[0]) / largest);
  }
  w.scales = codes;
  w.nested = nested;
}

void as_nf4(PackedWeight& w, const float* x, const QuantizeOptions& o) {
  const auto values = nf4_values();
  const Shape grid = w.grid();
  w.scales = host(grid, DType::f32);
  auto* const codes = w.codes.data<uint8_t>();
  const int64_t bytes = w.format->row_bytes(w.columns), width = w.block_columns;
  parallel_for(0, w.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin * grid[1]; b < end * grid[1]; ++b) {
      const int64_t r = b / grid[1], c = b % grid[1] * width;
      const float* from = x + r * w.columns + c;
      float largest = 0;
      for (int64_t j = 0; j < width; ++j) largest = std::max(largest, std::fabs(from[j]));
      w.scales.data<float>()[b] = largest;
      for (int64_t j = 0; j < width; ++j) {
        const float v = largest == 0 ? 0.0f : from[j] * (1 / largest);
        int code = 0;
        while (code < 15 && v > (values[static_cast<size_t>(code)] + values[static_cast<size_t>(code) + 1]) / 2) ++code;
        lowbit::put_four_bits(codes + r * bytes, c + j, code);
      }
    }
  });
  if (o.nested)
    nest_scales(w);
  else
    w.scales = w.scales.to(o.scale_dtype);
}

// GGUF's blocks of 32, as its quantize functions describe them: the scale is that of the number of largest magnitude,
// whose sign Q4_0 keeps, since its codes reach one further down than up.
void as_gguf(PackedWeight& w, const float* x) {
  const bool eight = w.format->codes == WeightCodes::q8_0;
  const int bytes = w.format->unit_bytes;
  auto* const codes = w.codes.data<uint8_t>();
  parallel_for(0, w.rows * w.columns / 32, 256, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const float* from = x + b * 32;
      uint8_t* const to = codes + b * bytes;
      float at_largest = 0;
      for (int j = 0; j < 32; ++j)
        if (std::fabs(from[j]) > std::fabs(at_largest)) at_largest = from[j];
      const float d = eight ? std::fabs(at_largest) / 127 : at_largest / -8, inverse = d == 0 ? 0.0f : 1 / d;
      const uint16_t bits = half_bits(d);
      check(std::isfinite(half_value(bits)), kName, w.format->name, " keeps scales in f16, which ", d,
            " is too large for");
      to[0] = static_cast<uint8_t>(bits & 255), to[1] = static_cast<uint8_t>(bits >> 8);
      for (int j = 0; j < 32; ++j) {
        const float v = from[j] * inverse;
        if (eight)
          to[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(std::round(v)));
        else
          lowbit::put_four_bits(to + 2, j, std::min(15, static_cast<int>(v + 8.5f)));
      }
    }
  });
}

}  // namespace

PackedWeight quantize_weight(const Tensor& weight, std::string_view format, const QuantizeOptions& options) {
  const WeightFormat& f = weight_format(format);
  check<ShapeError>(weight.dim() == 2, kName, "a weight is [rows, columns], got ", weight);
  check<DTypeError>(is_floating(weight.dtype()), kName, "a weight is floating, got ", weight);
  check(is_floating(options.scale_dtype), kName, "scale_dtype is floating, got ", options.scale_dtype);
  const bool gguf = f.codes == WeightCodes::q8_0 || f.codes == WeightCodes::q4_0;
  check(f.scaled || gguf, kName, f.name, " is read, not made");
  check(!options.nested || f.nested, kName, f.name, " has no nested scales");
  const Tensor x = weight.detach().to(Device::cpu()).to(DType::f32).contiguous();
  PackedWeight w;
  w.format = &f, w.rows = x.size(0), w.columns = x.size(1);
  check<ShapeError>(!f.whole_units || w.columns % f.unit == 0, kName, f.name, " wants columns in multiples of ", f.unit,
                    ", got ", weight);
  w.codes = zeros({w.rows, f.row_bytes(w.columns)}, f.dtype).to(Device::cpu());
  if (f.scaled) {
    w.block_rows = options.block_rows, w.block_columns = options.block_columns;
    if (f.codes == WeightCodes::nf4 && w.block_columns == 0) w.block_columns = 64;
    check(w.block_rows >= 0 && w.block_columns >= 0 && (w.block_columns % 32 == 0 || w.block_columns >= w.columns),
          kName, "blocks are of 0 or more rows, and of columns in multiples of 32 or all, got ", w.block_rows, " and ",
          w.block_columns);
    check<ShapeError>(f.codes != WeightCodes::nf4 || (w.block_rows == 1 && w.columns % w.block_columns == 0), kName,
                      "blocks of nf4 are of one row and divide its columns, got [", w.block_rows, ", ", w.block_columns,
                      "] for ", weight);
  }
  for (int64_t i = 0; i < x.numel(); ++i)
    check(std::isfinite(x.data<float>()[i]), kName, "element ", i, " of ", weight, " is ", x.data<float>()[i],
          ": only finite numbers have codes");
  const float* from = x.numel() > 0 ? x.data<float>() : nullptr;
  if (gguf)
    as_gguf(w, from);
  else if (f.codes == WeightCodes::nf4)
    as_nf4(w, from, options);
  else
    by_blocks(w, from, options);
  w.check(kName);
  return w;
}

}  // namespace strata
