// Rows of packed matrices: other orders of them, and several matrices as one.

#include <algorithm>
#include <optional>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/lowbit/weight_format.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// Scales as floating numbers, as kernels make them of nested ones: a product, rounded, and a sum.
PackedWeight with_plain_scales(PackedWeight w) {
  if (!w.nested.defined()) return w;
  const Tensor codes = w.scales.to(Device::cpu()).contiguous(),
               nested = w.nested.to(Device::cpu()).to(DType::f32).contiguous();
  const Tensor scales = empty({codes.shape(), DType::f32, Device::cpu(), std::nullopt});
  const auto* values = nested.data<float>();
  for (int64_t i = 0; i < codes.numel(); ++i) {
    const volatile float product = values[1 + codes.data<uint8_t>()[i]] * values[257 + i / 256];  // rounded by itself
    scales.data<float>()[i] = product + values[0];
  }
  w.scales = scales.to(w.codes.device());
  w.nested = {};
  return w;
}
// A scale, and a zero, for each row.
PackedWeight with_scales_by_row(PackedWeight w) {
  if (!w.format->scaled || w.block_rows == 1) return w;
  std::vector<int64_t> block;
  for (int64_t r = 0; r < w.rows; ++r) block.push_back(w.block_rows == 0 ? 0 : r / w.block_rows);
  const Tensor index = from_span<int64_t>(block, {w.rows}).to(w.codes.device());
  w.scales = index_select(w.scales, 0, index);
  if (w.zeros.defined()) w.zeros = index_select(w.zeros, 0, index);
  w.block_rows = 1;
  return w;
}
// Rows one behind another of which the first begins with a scale of scales, double quantised as they are; nothing where
// they are not such.
std::optional<PackedWeight> nested_rows(const PackedWeight& w, const std::vector<int64_t>& rows) {
  constexpr int64_t kNested = 256, kValues = 257;  // scales with one scale; numbers before those
  if (!w.nested.defined() || rows.empty()) return {};
  const int64_t first = rows[0], count = static_cast<int64_t>(rows.size()), each = w.grid()[1];
  for (int64_t i = 0; i < count; ++i)
    if (rows[static_cast<size_t>(i)] != first + i) return {};
  if (first * each % kNested != 0) return {};
  PackedWeight y = w;
  y.rows = count;
  y.codes = w.codes.narrow(0, first, count).contiguous();
  y.scales = w.scales.narrow(0, first, count).contiguous();
  y.nested = cat({w.nested.narrow(0, 0, kValues),
                  w.nested.narrow(0, kValues + first * each / kNested, (count * each + kNested - 1) / kNested)},
                 0);
  return y;
}
bool same_order(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || a.to(Device::cpu()).to_vector<int32_t>() == b.to(Device::cpu()).to_vector<int32_t>();
}

}  // namespace

PackedWeight take_rows(const PackedWeight& w, const Tensor& rows) {
  constexpr std::string_view op = "take_rows";
  w.check(op);
  const NoGrad guard;
  check<DTypeError>(rows.dtype() == DType::i64, op, "rows are numbers in i64, got ", rows);
  check<ShapeError>(rows.dim() == 1, op, "rows are [n], got ", rows);
  check(!w.format->scaled || w.block_rows <= 1, op, "a scale is for ", w.block_rows,
        " rows: they cannot be taken one by one");
  const std::vector<int64_t> all = rows.to(Device::cpu()).to_vector<int64_t>();
  for (const int64_t r : all) check<IndexError>(r >= 0 && r < w.rows, op, "there is no row ", r, " of ", w.rows);
  if (const std::optional<PackedWeight> nested = nested_rows(w, all)) return *nested;
  PackedWeight y = with_plain_scales(w);
  const Tensor index = rows.to(w.codes.device());
  y.rows = rows.numel();
  y.codes = index_select(y.codes, 0, index);
  if (y.format->scaled && y.block_rows == 1) {
    y.scales = index_select(y.scales, 0, index);
    if (y.zeros.defined()) y.zeros = index_select(y.zeros, 0, index);
  }
  y.check(op);
  return y;
}

PackedWeight concat_rows(const std::vector<PackedWeight>& parts) {
  constexpr std::string_view op = "concat_rows";
  check(!parts.empty(), op, "wants one matrix at least");
  const NoGrad guard;
  const PackedWeight& first = parts[0];
  for (const PackedWeight& p : parts) {
    p.check(op);
    check(p.format == first.format && p.columns == first.columns && p.block_columns == first.block_columns, op,
          "matrices of one format are wanted, got ", first.format->name, " of ", first.columns,
          " columns in blocks of ", first.block_columns, ", and ", p.format->name, " of ", p.columns, " in blocks of ",
          p.block_columns);
    check(same_order(p.order, first.order), op, "the columns are in different orders");
    check<DeviceError>(p.codes.device() == first.codes.device(), op, "codes are ", first.codes, " and ", p.codes);
  }
  if (parts.size() == 1) return first;
  // Blocks of rows stay where every matrix but the last ends with one.
  bool blocks = true, zeros = false, one_dtype = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PackedWeight& p = parts[i];
    blocks = blocks && p.block_rows == first.block_rows && p.block_rows > 0 &&
             (i + 1 == parts.size() || p.rows % p.block_rows == 0);
    zeros = zeros || p.zeros.defined();
    one_dtype = one_dtype && !p.nested.defined() && p.format->scaled && p.scales.dtype() == first.scales.dtype();
  }
  PackedWeight y = first;
  y.rows = 0;
  y.nested = {};
  TensorList codes, scales, all_zeros;
  for (const PackedWeight& given : parts) {
    PackedWeight p = with_plain_scales(given);
    if (!blocks) p = with_scales_by_row(std::move(p));
    y.rows += p.rows, y.block_rows = p.block_rows;
    codes.push_back(p.codes);
    if (!p.format->scaled) continue;
    scales.push_back(one_dtype ? p.scales : p.scales.to(DType::f32));
    if (!zeros) continue;
    const bool eight = p.format->codes == WeightCodes::int8;
    all_zeros.push_back(p.zeros.defined()
                            ? p.zeros
                            : full(p.grid(), eight ? 0 : 8, eight ? DType::i8 : DType::u8).to(p.codes.device()));
  }
  y.codes = cat(codes, 0);
  if (!scales.empty()) y.scales = cat(scales, 0);
  if (!all_zeros.empty()) y.zeros = cat(all_zeros, 0);
  y.check(op);
  return y;
}

}  // namespace strata
