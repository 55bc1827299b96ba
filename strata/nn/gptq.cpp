#include "strata/nn/gptq.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/nn/hooks.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

constexpr std::string_view kName = "gptq";
constexpr int64_t kBlock = 128;  // columns whose corrections of all later ones are made by one product

// The upper triangle U with U^T U = H^-1, H damped until it has one.
Tensor inverse_factor(const Tensor& hessian, double damp) {
  const int64_t k = hessian.size(0);
  const Tensor h = hessian.clone();
  auto* const p = h.data<double>();
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += p[i * k + i] / static_cast<double>(k);
  // Sums in f32 may leave H with small negative eigenvalues that the first damping does not lift.
  for (int tries = 0; tries < 8; ++tries, damp *= 4) {
    for (int64_t i = 0; i < k; ++i) p[i * k + i] = hessian.data<double>()[i * k + i] + damp * mean;
    const auto [lower, info] = linalg_cholesky_ex(h);
    if (info.item() != 0) continue;
    const auto [upper, info2] = linalg_cholesky_ex(cholesky_inverse(lower), true);
    if (info2.item() == 0) return upper.contiguous();
  }
  throw ValueError(kName,
                   "the inputs' products have no inverse, however much is added to their diagonal: are there numbers "
                   "that are not finite?");
}

struct Codes {
  int least, most, middle;
};

// One row's grid over columns [c, c_end), as quantize_weight() makes it.
struct Grid {
  float scale = 1, zero = 0;
};
Grid grid_of(const float* row, int64_t c, int64_t c_end, Codes codes, bool symmetric, DType scale_dtype) {
  float low = 0, high = 0;
  for (int64_t j = c; j < c_end; ++j) low = std::min(low, row[j]), high = std::max(high, row[j]);
  const float span = symmetric ? std::max(-low, high) / static_cast<float>(codes.most - codes.middle)
                               : (high - low) / static_cast<float>(codes.most - codes.least);
  Grid g;
  g.scale = lowbit::stored_scale(span, scale_dtype, kName);
  g.zero = static_cast<float>(
      symmetric ? codes.middle
                : lowbit::nearest_code(-low, g.scale, static_cast<float>(codes.least), codes.least, codes.most));
  return g;
}

}  // namespace

double output_error(const Tensor& weight, const Tensor& decoded, const Tensor& hessian) {
  const Tensor h = hessian.to(Device::cpu()).to(DType::f64), w = weight.detach().to(Device::cpu()).to(DType::f64),
               d = w - decoded.detach().to(Device::cpu()).to(DType::f64);
  const double whole = (matmul(w, h) * w).sum().item(), off = (matmul(d, h) * d).sum().item();
  return whole > 0 ? std::sqrt(std::max(0.0, off) / whole) : 0;
}

PackedWeight gptq_weight(const Tensor& weight, const Tensor& hessian, std::string_view format, const GptqOptions& o) {
  const NoGrad guard;
  const WeightFormat& f = weight_format(format);
  check(f.codes == WeightCodes::int4 || f.codes == WeightCodes::int8, kName, "makes int4 and int8, not ", f.name);
  check<ShapeError>(weight.dim() == 2 && hessian.shape() == Shape{weight.size(1), weight.size(1)}, kName,
                    "wants a weight [rows, columns] and sums [columns, columns], got ", weight, " and ", hessian);
  check<DTypeError>(is_floating(weight.dtype()) && is_floating(hessian.dtype()) && is_floating(o.scale_dtype), kName,
                    "takes floating dtypes, got ", weight, ", ", hessian, " and scales of ", o.scale_dtype);
  check(o.damp > 0, kName, "damp is above 0, got ", o.damp);
  const int64_t n = weight.size(0), k = weight.size(1);
  check(o.group_size >= 0 && (o.group_size % 32 == 0 || o.group_size >= k), kName,
        "group_size is a multiple of 32, or 0 for all, got ", o.group_size);
  check(n > 0 && k > 0, kName, "there is nothing in ", weight);
  const bool eight = f.codes == WeightCodes::int8;
  const Codes codes = eight ? Codes{-128, 127, 0} : Codes{0, 15, 8};

  Tensor w = weight.detach().to(Device::cpu()).to(DType::f32).contiguous().clone();
  Tensor h = hessian.detach().to(Device::cpu()).to(DType::f64).contiguous().clone();
  for (int64_t i = 0; i < k; ++i)
    if (h.data<double>()[i * k + i] == 0) {  // never seen: any code will do, and 0 costs nothing
      h.data<double>()[i * k + i] = 1;
      for (int64_t r = 0; r < n; ++r) w.data<float>()[r * k + i] = 0;
    }
  PackedWeight packed;
  packed.format = &f, packed.rows = n, packed.columns = k, packed.block_columns = o.group_size;
  if (o.act_order) {
    std::vector<int64_t> order(static_cast<size_t>(k));
    std::iota(order.begin(), order.end(), 0);
    const double* diagonal = h.data<double>();
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return diagonal[a * k + a] > diagonal[b * k + b]; });
    const Tensor index = from_span<int64_t>(order, {k});
    w = index_select(w, 1, index).contiguous();
    h = index_select(index_select(h, 0, index), 1, index).contiguous();
    packed.order = index.to(DType::i32);
  }
  const Tensor upper = inverse_factor(h, o.damp).to(DType::f32);
  const Shape grid = packed.grid();
  packed.codes = zeros({n, f.row_bytes(k)}, f.dtype).to(Device::cpu());
  packed.scales = zeros(grid).to(Device::cpu());
  if (!o.symmetric) packed.zeros = zeros(grid, eight ? DType::i8 : DType::u8).to(Device::cpu());
  const int64_t group = o.group_size == 0 ? k : o.group_size;
  const auto* u = upper.data<float>();
  auto* const to = static_cast<uint8_t*>(packed.codes.raw_data());
  const Tensor errors = zeros({n, kBlock});
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t end = std::min(k, begin + kBlock);
    parallel_for(0, n, 1, [&](int64_t r_begin, int64_t r_end) {
      for (int64_t r = r_begin; r < r_end; ++r) {
        float* const row = w.data<float>() + r * k;
        float* const error = errors.data<float>() + r * kBlock;
        Grid g;
        for (int64_t c = begin; c < end; ++c) {
          const int64_t block = r * grid[1] + c / group;
          if (c % group == 0) {
            // Of a group that reaches past this block, the later columns lack this block's corrections, as in the
            // paper.
            g = grid_of(row, c, std::min(k, c + group), codes, o.symmetric, o.scale_dtype);
            packed.scales.data<float>()[block] = g.scale;
            if (packed.zeros.defined())
              static_cast<uint8_t*>(packed.zeros.raw_data())[block] = static_cast<uint8_t>(static_cast<int>(g.zero));
          } else if (c == begin) {
            g.scale = packed.scales.data<float>()[block];
            g.zero = static_cast<float>(codes.middle);
            if (packed.zeros.defined()) {
              const uint8_t byte = static_cast<const uint8_t*>(packed.zeros.raw_data())[block];
              g.zero = eight ? static_cast<float>(static_cast<int8_t>(byte)) : static_cast<float>(byte);
            }
          }
          const int code = lowbit::nearest_code(row[c], g.scale, g.zero, codes.least, codes.most);
          if (eight)
            to[r * f.row_bytes(k) + c] = static_cast<uint8_t>(code);
          else
            lowbit::put_four_bits(to + r * f.row_bytes(k), c, code);
          const float off = (row[c] - (static_cast<float>(code) - g.zero) * g.scale) / u[c * k + c];
          error[c - begin] = off;
          for (int64_t j = c + 1; j < end; ++j) row[j] -= off * u[c * k + j];
        }
      }
    });
    if (end == k) break;
    const Tensor rest = w.narrow(1, end, k - end),
                 shift = matmul(errors.narrow(1, 0, end - begin),
                                upper.narrow(0, begin, end - begin).narrow(1, end, k - end));
    Tensor(rest).copy_(rest - shift);
  }
  packed.scales = packed.scales.to(o.scale_dtype);
  packed.check(kName);
  return packed;
}

std::vector<PackedLayer> detail::gptq(const Module& module, std::string_view format, const GptqOptions& options,
                                      Calibration calibration) {
  const NoGrad guard;
  std::map<std::string, Module> modules;
  for (const auto& [name, part] : module.named_modules()) modules.emplace(name, part);
  const std::vector<std::string> layers = packable_layers(module, options.skip);
  std::vector<PackedLayer> made;
  for (size_t first = 0; first < layers.size();) {
    std::vector<Tensor> sums;
    std::vector<ModuleHookHandle> hooks;
    int64_t bytes = 0;
    size_t last = first;
    for (; last < layers.size(); ++last) {
      const Module& layer = modules.at(layers[last]);
      const Tensor weight = layer.parameter("weight");
      const int64_t k = weight.size(1);
      bytes += k * k * size_of(DType::f32);
      if (last > first && bytes > options.hessian_bytes) break;
      sums.push_back(zeros({k, k}).to(weight.device()));
      hooks.push_back(register_forward_pre_hook(layer, [sum = sums.back(), k](const Module&, const Tensor& x) {
        const Tensor rows = x.detach().reshape({-1, k}).to(DType::f32);
        Tensor(sum).add_(matmul(rows.t(), rows));
      }));
    }
    try {
      calibration.run(calibration.fn);
    } catch (...) {
      for (ModuleHookHandle& h : hooks) h.remove();
      throw;
    }
    for (ModuleHookHandle& h : hooks) h.remove();
    for (size_t i = first; i < last; ++i)
      check(sums[i - first].abs().max().item() > 0, kName, "calibration gave the layer \"", layers[i], "\" nothing");
    for (size_t i = first; i < last; ++i) {
      const Module& layer = modules.at(layers[i]);
      const Tensor weight = layer.parameter("weight"), near = weight.detach().to(Device::cpu()).to(DType::f32);
      PackedWeight w;
      try {
        w = gptq_weight(weight, sums[i - first], format, options);
      } catch (const ValueError& e) {
        throw ValueError(kName, cat("layer \"", layers[i], "\": ", e.what()));
      }
      const Tensor decoded = dequantize_weight(w);
      const double size = (near * near).sum().item(), off = ((near - decoded) * (near - decoded)).sum().item();
      made.push_back(
          {layers[i], w.bits(), size > 0 ? std::sqrt(off / size) : 0, output_error(near, decoded, sums[i - first])});
      pack_linear(layer, moved(w, weight.device()));
    }
    first = last;
  }
  return made;
}

}  // namespace strata::nn
