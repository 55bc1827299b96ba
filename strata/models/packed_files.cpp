// The ways that files store low-bit weights: pieces to a PackedWeight, and back.

#include "strata/models/packed_files.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/json.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kRead = "read_packed", kWrite = "write_packed";

Tensor host(const Shape& shape, DType dtype) {
  return empty({shape, dtype, Device::cpu(), std::nullopt});
}
Tensor near(const Tensor& t) {
  return t.detach().to(Device::cpu()).contiguous();
}
int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A piece on the host, checked.
Tensor piece(const PackedPieces& pieces, std::string_view name, std::initializer_list<DType> dtypes, int64_t dims) {
  const auto found = pieces.find(name);
  check(found != pieces.end(), kRead, "\"", name, "\" is missing");
  const Tensor& t = found->second;
  check<DTypeError>(std::ranges::find(dtypes, t.dtype()) != dtypes.end(), kRead, "\"", name, "\" is ", t, ", wants ",
                    *dtypes.begin());
  check<ShapeError>(t.dim() == dims, kRead, "\"", name, "\" is ", t, ", wants ", dims, " dimensions");
  return near(t);
}
void check_shape(const Tensor& t, std::string_view name, const Shape& shape) {
  check<ShapeError>(t.shape() == shape, kRead, "\"", name, "\" is ", t, ", wants ", shape);
}
bool has(const PackedPieces& pieces, std::string_view name) {
  return pieces.find(name) != pieces.end();
}
constexpr std::initializer_list<DType> kScales = {DType::f16, DType::bf16, DType::f32};

// The code at (i, j) of words that hold 32 / bits codes, side by side along a row or one below the other.
struct Words {
  const uint32_t* at;
  int64_t row;  // words from one row of the matrix of words to the next
  int bits;
  int code(int64_t word_row, int64_t word_column, int place) const {
    return static_cast<int>(at[word_row * row + word_column] >> (place * bits) & ((1u << bits) - 1));
  }
};
Words words_of(const Tensor& t, int bits) {
  return {t.numel() > 0 ? static_cast<const uint32_t*>(t.raw_data()) : nullptr, t.size(1), bits};
}

// Codes of our order from code(row, column), 0 to 2^bits - 1. Whole numbers of 8 bits are kept less 128.
template <class Code>
Tensor codes_from(const WeightFormat& f, int64_t rows, int64_t columns, Code&& code) {
  const Tensor codes = zeros({rows, f.row_bytes(columns)}, f.dtype).to(Device::cpu());
  if (codes.numel() == 0) return codes;
  auto* const to = static_cast<uint8_t*>(codes.raw_data());
  const int64_t bytes = f.row_bytes(columns);
  parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t k = 0; k < columns; ++k) {
        if (f.codes == WeightCodes::int8)
          to[n * bytes + k] = static_cast<uint8_t>(code(n, k) - 128);
        else
          lowbit::put_four_bits(to + n * bytes, k, code(n, k));
      }
  });
  return codes;
}
int code_of(const PackedWeight& w, const Tensor& codes, int64_t n, int64_t k) {
  const uint8_t* row = static_cast<const uint8_t*>(codes.raw_data()) + n * w.format->row_bytes(w.columns);
  return w.format->codes == WeightCodes::int8 ? static_cast<int8_t>(row[k]) + 128 : lowbit::get_four_bits(row, k);
}
// Words [rows, columns] of which code(row, column, place) fills each place.
template <class Code>
Tensor words_from(int64_t rows, int64_t columns, int bits, Code&& code) {
  const Tensor words = host({rows, columns}, DType::i32);
  if (words.numel() == 0) return words;
  auto* const to = static_cast<uint32_t*>(words.raw_data());
  parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        uint32_t word = 0;
        for (int p = 0; p < 32 / bits; ++p) word |= static_cast<uint32_t>(code(i, j, p)) << (p * bits);
        to[i * columns + j] = word;
      }
  });
  return words;
}
const WeightFormat& whole(int bits) {
  return weight_format(bits == 8 ? WeightCodes::int8 : WeightCodes::int4);
}
// Zeros [rows, groups] of our dtype from zero(row, group), 0 to 2^bits - 1.
template <class Zero>
Tensor zeros_from(const WeightFormat& f, int64_t rows, int64_t groups, Zero&& zero) {
  const bool eight = f.codes == WeightCodes::int8;
  const Tensor z = host({rows, groups}, eight ? DType::i8 : DType::u8);
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t g = 0; g < groups; ++g)
      static_cast<uint8_t*>(z.raw_data())[n * groups + g] = static_cast<uint8_t>(zero(n, g) - (eight ? 128 : 0));
  return z;
}
int zero_of(const PackedWeight& w, const Tensor& zeros, int64_t n, int64_t g) {
  const bool eight = w.format->codes == WeightCodes::int8;
  if (!zeros.defined()) return eight ? 128 : 8;
  const uint8_t byte = static_cast<const uint8_t*>(zeros.raw_data())[n * zeros.size(1) + g];
  return eight ? static_cast<int8_t>(byte) + 128 : byte;
}

// ---- groups of columns: GPTQ and AWQ, whose matrices are [columns, rows] ----

int64_t group_of(const PackedScheme& s, int64_t columns) {
  return s.group_size == 0 ? columns : s.group_size;
}
void check_groups(const PackedScheme& s, int64_t columns) {
  check<ShapeError>(columns > 0 && columns % group_of(s, columns) == 0, kRead, columns,
                    " columns are no multiple of a group of ", s.group_size);
}
// The order of columns by group, from each column's group. Undefined where they lie so.
Tensor order_of(const Tensor& g_idx, int64_t group) {
  const int64_t k = g_idx.numel();
  const auto* of = g_idx.data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return of[a] < of[b]; });
  bool sorted = true;
  for (int64_t j = 0; j < k; ++j) {
    const int32_t column = order[static_cast<size_t>(j)];
    check(of[column] == j / group, kRead, "\"g_idx\" puts column ", column, " into group ", of[column], ": groups of ",
          group, " columns each are wanted");
    sorted = sorted && column == j;
  }
  return sorted ? Tensor() : from_span<int32_t>(order, {k});
}
Tensor g_idx_of(const PackedWeight& w, int64_t group) {
  const Tensor g = host({w.columns}, DType::i32), order = w.order.defined() ? near(w.order) : Tensor();
  for (int64_t j = 0; j < w.columns; ++j)
    g.data<int32_t>()[order.defined() ? order.data<int32_t>()[j] : j] = static_cast<int32_t>(j / group);
  return g;
}
void check_whole(const PackedScheme& s, const PackedWeight& w) {
  check(w.format->codes == whole(s.bits).codes && w.block_rows == 1 && !w.nested.defined(), kWrite, s.file->name,
        " of ", s.bits, " bits does not store ", w.format->name, " in blocks of ", w.block_rows, " rows");
  check((w.block_columns == 0 ? w.columns : w.block_columns) == group_of(s, w.columns), kWrite, "groups are of ",
        w.block_columns, " columns, the scheme's of ", s.group_size);
}

PackedWeight read_gptq(const PackedScheme& s, const PackedPieces& pieces) {
  const int per = 32 / s.bits;
  const Tensor q = piece(pieces, "qweight", {DType::i32}, 2), z = piece(pieces, "qzeros", {DType::i32}, 2),
               scales = piece(pieces, "scales", kScales, 2);
  PackedWeight w;
  w.format = &whole(s.bits), w.columns = q.size(0) * per, w.rows = q.size(1), w.block_columns = s.group_size;
  check_groups(s, w.columns);
  const int64_t group = group_of(s, w.columns), groups = w.columns / group;
  check<ShapeError>(w.rows % per == 0, kRead, "\"qweight\" is ", q, ", wants a multiple of ", per, " columns");
  check_shape(z, "qzeros", {groups, w.rows / per});
  check_shape(scales, "scales", {groups, w.rows});
  if (has(pieces, "g_idx")) {
    const Tensor g = piece(pieces, "g_idx", {DType::i32}, 1);
    check_shape(g, "g_idx", {w.columns});
    w.order = order_of(g, group);
  }
  const Words codes = words_of(q, s.bits), zeros = words_of(z, s.bits);
  const int32_t* order = w.order.defined() ? w.order.data<int32_t>() : nullptr;
  w.codes = codes_from(*w.format, w.rows, w.columns, [&](int64_t n, int64_t j) {
    const int64_t k = order ? order[j] : j;
    return codes.code(k / per, n, static_cast<int>(k % per));
  });
  const int most = (1 << s.bits) - 1;
  w.zeros = zeros_from(*w.format, w.rows, groups, [&](int64_t n, int64_t g) {
    return zeros.code(g, n / per, static_cast<int>(n % per)) + s.zero_offset & most;
  });
  w.scales = scales.t().contiguous();
  return w;
}
PackedPieces write_gptq(const PackedScheme& s, const PackedWeight& w) {
  check_whole(s, w);
  const int per = 32 / s.bits, most = (1 << s.bits) - 1;
  check(w.rows % per == 0 && w.columns % per == 0, kWrite, "GPTQ stores rows and columns in multiples of ", per,
        ", not ", w.rows, " and ", w.columns);
  const int64_t group = group_of(s, w.columns);
  const Tensor codes = near(w.codes), zeros = w.zeros.defined() ? near(w.zeros) : Tensor(), g_idx = g_idx_of(w, group);
  std::vector<int64_t> place(static_cast<size_t>(w.columns));  // where a column's codes are
  const Tensor order = w.order.defined() ? near(w.order) : Tensor();
  for (int64_t j = 0; j < w.columns; ++j)
    place[static_cast<size_t>(order.defined() ? order.data<int32_t>()[j] : j)] = j;
  return {{"qweight", words_from(w.columns / per, w.rows, s.bits,
                                 [&](int64_t i, int64_t n, int p) {
                                   return code_of(w, codes, n, place[static_cast<size_t>(i * per + p)]);
                                 })},
          {"qzeros", words_from(w.columns / group, w.rows / per, s.bits,
                                [&](int64_t g, int64_t i, int p) {
                                  return zero_of(w, zeros, i * per + p, g) - s.zero_offset & most;
                                })},
          {"scales", near(w.scales).t().contiguous()},
          {"g_idx", g_idx}};
}

// The column of eight that each place of a word holds.
constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
// And the place that holds a column.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

PackedWeight read_awq(const PackedScheme& s, const PackedPieces& pieces) {
  const Tensor q = piece(pieces, "qweight", {DType::i32}, 2), z = piece(pieces, "qzeros", {DType::i32}, 2),
               scales = piece(pieces, "scales", kScales, 2);
  PackedWeight w;
  w.format = &whole(4), w.columns = q.size(0), w.rows = q.size(1) * 8, w.block_columns = s.group_size;
  check_groups(s, w.columns);
  const int64_t groups = w.columns / group_of(s, w.columns);
  check_shape(z, "qzeros", {groups, w.rows / 8});
  check_shape(scales, "scales", {groups, w.rows});
  const Words codes = words_of(q, 4), zeros = words_of(z, 4);
  w.codes = codes_from(*w.format, w.rows, w.columns,
                       [&](int64_t n, int64_t k) { return codes.code(k, n / 8, kAwqPlace[n % 8]); });
  w.zeros = zeros_from(*w.format, w.rows, groups,
                       [&](int64_t n, int64_t g) { return zeros.code(g, n / 8, kAwqPlace[n % 8]); });
  w.scales = scales.t().contiguous();
  return w;
}
PackedPieces write_awq(const PackedScheme& s, const PackedWeight& w) {
  check_whole(s, w);
  check(!w.order.defined(), kWrite, "AWQ has no order of columns");
  check(w.rows % 8 == 0, kWrite, "AWQ stores rows in multiples of 8, not ", w.rows);
  const Tensor codes = near(w.codes), zeros = w.zeros.defined() ? near(w.zeros) : Tensor();
  return {
      {"qweight", words_from(w.columns, w.rows / 8, 4,
                             [&](int64_t k, int64_t i, int p) { return code_of(w, codes, i * 8 + kAwqOrder[p], k); })},
      {"qzeros", words_from(w.columns / group_of(s, w.columns), w.rows / 8, 4,
                            [&](int64_t g, int64_t i, int p) { return zero_of(w, zeros, i * 8 + kAwqOrder[p], g); })},
      {"scales", near(w.scales).t().contiguous()}};
}

// ---- compressed-tensors ----

PackedWeight read_pack_quantized(const PackedScheme& s, const PackedPieces& pieces) {
  const int per = 32 / s.bits;
  const Tensor q = piece(pieces, "weight_packed", {DType::i32}, 2), scales = piece(pieces, "weight_scale", kScales, 2),
               shape = piece(pieces, "weight_shape", {DType::i64, DType::i32}, 1).to(DType::i64);
  check_shape(shape, "weight_shape", {2});
  PackedWeight w;
  w.format = &whole(s.bits), w.rows = shape.data<int64_t>()[0], w.columns = shape.data<int64_t>()[1],
  w.block_columns = s.group_size;
  check<ShapeError>(
      w.rows == q.size(0) && w.columns > 0 && w.columns <= q.size(1) * per && w.columns > (q.size(1) - 1) * per, kRead,
      "\"weight_shape\" says [", w.rows, ", ", w.columns, "], \"weight_packed\" is ", q);
  check_groups(s, w.columns);
  const int64_t group = group_of(s, w.columns), groups = w.columns / group;
  check_shape(scales, "weight_scale", {w.rows, groups});
  if (has(pieces, "weight_g_idx")) {
    const Tensor g = piece(pieces, "weight_g_idx", {DType::i32}, 1);
    check_shape(g, "weight_g_idx", {w.columns});
    w.order = order_of(g, group);
  }
  const Words codes = words_of(q, s.bits);
  const int32_t* order = w.order.defined() ? w.order.data<int32_t>() : nullptr;
  w.codes = codes_from(*w.format, w.rows, w.columns, [&](int64_t n, int64_t j) {
    const int64_t k = order ? order[j] : j;
    return codes.code(n, k / per, static_cast<int>(k % per));
  });
  check(s.symmetric != has(pieces, "weight_zero_point"), kRead, "\"weight_zero_point\" is ",
        s.symmetric ? "there, and the scheme is symmetric" : "missing, and the scheme is not symmetric");
  if (!s.symmetric) {
    const Tensor z = piece(pieces, "weight_zero_point", {DType::i32}, 2);
    check_shape(z, "weight_zero_point", {ceil_div(w.rows, per), groups});
    const Words zeros = words_of(z, s.bits);
    w.zeros = zeros_from(*w.format, w.rows, groups,
                         [&](int64_t n, int64_t g) { return zeros.code(n / per, g, static_cast<int>(n % per)); });
  }
  w.scales = scales;
  return w;
}
PackedPieces write_pack_quantized(const PackedScheme& s, const PackedWeight& w) {
  check_whole(s, w);
  check(s.symmetric != w.zeros.defined(), kWrite, "the weight has ", s.symmetric ? "zeros" : "no zeros",
        ", the scheme is ", s.symmetric ? "" : "not ", "symmetric");
  const int per = 32 / s.bits;
  const int64_t group = group_of(s, w.columns);
  const Tensor codes = near(w.codes), zeros = w.zeros.defined() ? near(w.zeros) : Tensor(),
               order = w.order.defined() ? near(w.order) : Tensor();
  std::vector<int64_t> place(static_cast<size_t>(w.columns));
  for (int64_t j = 0; j < w.columns; ++j)
    place[static_cast<size_t>(order.defined() ? order.data<int32_t>()[j] : j)] = j;
  PackedPieces pieces{
      {"weight_packed", words_from(w.rows, ceil_div(w.columns, per), s.bits,
                                   [&](int64_t n, int64_t i, int p) {
                                     const int64_t k = i * per + p;
                                     return k < w.columns ? code_of(w, codes, n, place[static_cast<size_t>(k)]) : 0;
                                   })},
      {"weight_scale", near(w.scales)},
      {"weight_shape", from_span<int64_t>(std::vector<int64_t>{w.rows, w.columns}, {2})}};
  if (zeros.defined())
    pieces.emplace("weight_zero_point",
                   words_from(ceil_div(w.rows, per), w.columns / group, s.bits, [&](int64_t i, int64_t g, int p) {
                     return i * per + p < w.rows ? zero_of(w, zeros, i * per + p, g) : 0;
                   }));
  if (order.defined()) pieces.emplace("weight_g_idx", g_idx_of(w, group));
  return pieces;
}

// ---- one byte a number, in the order of the matrix: compressed-tensors' other formats, and fp8 by blocks ----

PackedWeight read_bytes(const PackedScheme& s, const PackedPieces& pieces, WeightCodes codes,
                        std::string_view scale_name) {
  PackedWeight w;
  w.format = &weight_format(codes);
  w.codes = piece(pieces, "weight", {w.format->dtype}, 2);
  w.rows = w.codes.size(0), w.columns = w.codes.size(1);
  w.block_rows = s.block_rows, w.block_columns = s.group_size;
  const auto found = pieces.find(scale_name);
  check(found != pieces.end(), kRead, "\"", scale_name, "\" is missing");
  check<DTypeError>(is_floating(found->second.dtype()), kRead, "\"", scale_name, "\" is ", found->second,
                    ", wants a floating dtype");
  const Shape grid = w.grid();
  check<ShapeError>(found->second.shape() == grid || (grid == Shape{1, 1} && found->second.numel() == 1), kRead, "\"",
                    scale_name, "\" is ", found->second, ", wants ", grid);
  w.scales = near(found->second).view(grid);
  return w;
}
PackedPieces write_bytes(const PackedScheme& s, const PackedWeight& w, WeightCodes codes, std::string_view scale_name,
                         const Shape& one) {
  check(w.format->codes == codes && !w.zeros.defined() && !w.order.defined(), kWrite, s.file->name, " does not store ",
        w.format->name, w.zeros.defined() ? " with zeros" : "");
  check(w.block_rows == s.block_rows && w.block_columns == s.group_size, kWrite, "blocks are of [", w.block_rows, ", ",
        w.block_columns, "], the scheme's of [", s.block_rows, ", ", s.group_size, "]");
  const Tensor scales = near(w.scales);
  return {{"weight", near(w.codes)},
          {std::string(scale_name), w.block_rows == 0 && w.block_columns == 0 ? scales.view(one) : scales}};
}

PackedWeight read_int8(const PackedScheme& s, const PackedPieces& p) {
  return read_bytes(s, p, WeightCodes::int8, "weight_scale");
}
PackedPieces write_int8(const PackedScheme& s, const PackedWeight& w) {
  return write_bytes(s, w, WeightCodes::int8, "weight_scale", {1});
}
PackedWeight read_float8(const PackedScheme& s, const PackedPieces& p) {
  return read_bytes(s, p, WeightCodes::e4m3, "weight_scale");
}
PackedPieces write_float8(const PackedScheme& s, const PackedWeight& w) {
  return write_bytes(s, w, WeightCodes::e4m3, "weight_scale", {1});
}
PackedWeight read_fp8(const PackedScheme& s, const PackedPieces& p) {
  return read_bytes(s, p, WeightCodes::e4m3, "weight_scale_inv");
}
PackedPieces write_fp8(const PackedScheme& s, const PackedWeight& w) {
  return write_bytes(s, w, WeightCodes::e4m3, "weight_scale_inv", {1});
}

// ---- bitsandbytes' NF4 ----

constexpr std::string_view kState = "weight.quant_state.bitsandbytes__nf4";

PackedWeight read_nf4(const PackedScheme& s, const PackedPieces& pieces) {
  const Tensor text = piece(pieces, kState, {DType::u8}, 1);
  const auto* from = static_cast<const char*>(text.raw_data());
  nlohmann::json state;
  try {
    state = io::parse_json(std::string_view(from, static_cast<size_t>(text.numel())), kState);
    const std::vector<int64_t> shape = state.at("shape").get<std::vector<int64_t>>();
    check(state.at("quant_type").get<std::string>() == "nf4", kRead, "\"", kState, "\" is not of nf4");
    check<ShapeError>(shape.size() == 2, kRead, "\"", kState, "\" is of ", shape.size(), " dimensions, wants 2");
    PackedWeight w;
    w.format = &weight_format(WeightCodes::nf4), w.rows = shape[0], w.columns = shape[1];
    w.block_columns = state.at("blocksize").get<int64_t>();
    // Codes lie two in a byte, the first in the high half, and blocks go on over the ends of rows.
    const Tensor codes = piece(pieces, "weight", {DType::u8}, 2);
    check<ShapeError>(w.rows > 0 && w.columns > 0 && w.columns < (int64_t{1} << 31) && w.rows < (int64_t{1} << 31) &&
                          codes.numel() == ceil_div(w.rows * w.columns, 2),
                      kRead, "\"weight\" is ", codes, " for [", w.rows, ", ", w.columns, "]");
    check<ShapeError>(w.block_columns > 0 && w.block_columns % 32 == 0 && w.columns % w.block_columns == 0, kRead,
                      "blocks of ", w.block_columns, " do not end with the rows of ", w.columns, " columns");
    const auto* bytes = codes.data<uint8_t>();
    w.codes = codes_from(*w.format, w.rows, w.columns, [&](int64_t n, int64_t k) {
      const int64_t i = n * w.columns + k;
      return i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15;
    });
    const Tensor map = piece(pieces, "weight.quant_map", {DType::f32}, 1);
    check(map.numel() == 16 && std::equal(nf4_values().begin(), nf4_values().end(), map.data<float>()), kRead,
          "\"weight.quant_map\" is not NF4's");
    const bool nested = has(pieces, "weight.nested_absmax");
    const Tensor absmax = piece(pieces, "weight.absmax", {nested ? DType::u8 : DType::f32}, 1);
    check_shape(absmax, "weight.absmax", {w.grid().product()});
    w.scales = absmax.view(w.grid());
    if (nested) {
      const Tensor scales = piece(pieces, "weight.nested_absmax", {DType::f32}, 1),
                   values = piece(pieces, "weight.nested_quant_map", {DType::f32}, 1);
      check(state.at("nested_blocksize").get<int64_t>() == 256, kRead, "nested blocks are of ",
            state.at("nested_blocksize").get<int64_t>(), ", wants 256");
      check_shape(values, "weight.nested_quant_map", {256});
      check_shape(scales, "weight.nested_absmax", {ceil_div(absmax.numel(), 256)});
      w.nested = host({257 + scales.numel()}, DType::f32);
      auto* const to = w.nested.data<float>();
      to[0] = static_cast<float>(state.at("nested_offset").get<double>());
      std::copy_n(values.data<float>(), 256, to + 1);
      std::copy_n(scales.data<float>(), scales.numel(), to + 257);
    }
    static_cast<void>(s);
    return w;
  } catch (const nlohmann::json::exception& e) {
    throw ValueError(kRead, cat("\"", kState, "\": ", e.what()));
  }
}
// As Python writes a float: the shortest text that reads back.
std::string python_number(double v) {
  return nlohmann::json(v).dump();
}
PackedPieces write_nf4(const PackedScheme& s, const PackedWeight& w) {
  check(w.format->codes == WeightCodes::nf4, kWrite, "bitsandbytes' files store nf4 here, not ", w.format->name);
  check(w.columns % 2 == 0 && w.block_columns > 0, kWrite, "nf4 is stored with blocks and an even number of columns");
  const Tensor codes = near(w.codes), bytes = host({w.rows * w.columns / 2, 1}, DType::u8);
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    const int64_t n = 2 * i / w.columns, k = 2 * i % w.columns;
    bytes.data<uint8_t>()[i] = static_cast<uint8_t>(code_of(w, codes, n, k) << 4 | code_of(w, codes, n, k + 1));
  }
  std::string state = cat(R"({"quant_type": "nf4", "blocksize": )", w.block_columns, R"(, "dtype": ")", s.storage_dtype,
                          R"(", "shape": [)", w.rows, ", ", w.columns, "]");
  PackedPieces pieces{
      {"weight", bytes},
      {"weight.absmax", near(w.scales).view({w.scales.numel()})},
      {"weight.quant_map", from_span<float>(std::vector<float>(nf4_values().begin(), nf4_values().end()), {16})}};
  if (w.nested.defined()) {
    const Tensor nested = near(w.nested).to(DType::f32);
    pieces.emplace("weight.nested_quant_map", nested.narrow(0, 1, 256).clone());
    pieces.emplace("weight.nested_absmax", nested.narrow(0, 257, nested.numel() - 257).clone());
    state += cat(R"(, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": )",
                 python_number(nested.data<float>()[0]));
  }
  state += "}";
  pieces.emplace(kState, from_span<uint8_t>(std::vector<uint8_t>(state.begin(), state.end()),
                                            {static_cast<int64_t>(state.size())}));
  return pieces;
}

}  // namespace

std::span<const PackedFile> packed_files() {
  static const PackedFile all[] = {
      {"GPTQ",
       "gptq",
       "AutoGPTQ and GPTQModel, 4 and 8 bits: codes of a column below one another in words, zeros less 1 in "
       "the first format",
       {{"qweight", true}, {"qzeros", true}, {"scales", true}, {"g_idx", false}},
       read_gptq,
       write_gptq},
      {"AWQ",
       "awq",
       "AutoAWQ's version gemm: eight rows in a word, in the order 0 2 4 6 1 3 5 7",
       {{"qweight", true}, {"qzeros", true}, {"scales", true}},
       read_awq,
       write_awq},
      {"compressed-tensors pack-quantized",
       "compressed-tensors",
       "4 and 8 bits along rows in words, groups or channels",
       {{"weight_packed", true},
        {"weight_scale", true},
        {"weight_shape", true},
        {"weight_zero_point", false},
        {"weight_g_idx", false}},
       read_pack_quantized,
       write_pack_quantized},
      {"compressed-tensors int-quantized",
       "compressed-tensors",
       "whole numbers of 8 bits, a scale for all or for each row",
       {{"weight", true}, {"weight_scale", true}, {"input_scale", false}},
       read_int8,
       write_int8},
      {"compressed-tensors float-quantized",
       "compressed-tensors",
       "e4m3, a scale for all, for each row or for a block",
       {{"weight", true}, {"weight_scale", true}, {"input_scale", false}},
       read_float8,
       write_float8},
      {"fp8",
       "fp8",
       "e4m3, a scale for each block (DeepSeek-V3 and what transformers makes)",
       {{"weight", true}, {"weight_scale_inv", true}, {"input_scale", false}},
       read_fp8,
       write_fp8},
      {"bitsandbytes nf4",
       "bitsandbytes",
       "NF4 in blocks over the flat matrix, scales once more in 8 bits",
       {{"weight", true},
        {"weight.absmax", true},
        {"weight.quant_map", true},
        {kState, true},
        {"weight.nested_absmax", false},
        {"weight.nested_quant_map", false}},
       read_nf4,
       write_nf4},
  };
  return all;
}

bool is_packed_layer(const PackedScheme& scheme, const PackedPieces& pieces) {
  return std::ranges::all_of(scheme.file->pieces,
                             [&](const PackedPiece& p) { return !p.required || has(pieces, p.suffix); });
}

namespace {
// f() with the layer's name in what it throws.
template <class F>
auto in_layer(std::string_view op, std::string_view layer, F&& f) {
  const auto text = [&](const Error& e) {
    const std::string_view all = e.what();
    const std::string own = cat(op, ": ");
    return cat("\"", layer, "\": ", all.starts_with(own) ? all.substr(own.size()) : all);
  };
  try {
    return f();
  } catch (const ShapeError& e) {
    throw ShapeError(op, text(e));
  } catch (const DTypeError& e) {
    throw DTypeError(op, text(e));
  } catch (const Error& e) {
    throw ValueError(op, text(e));
  }
}
}  // namespace

PackedWeight read_packed(const PackedScheme& scheme, const PackedPieces& pieces, std::string_view layer) {
  check(scheme.file != nullptr, kRead, "the scheme is empty");
  return in_layer(kRead, layer, [&] {
    for (const auto& [name, t] : pieces) {
      check(std::ranges::any_of(scheme.file->pieces, [&](const PackedPiece& p) { return p.suffix == name; }) ||
                name == "bias",
            kRead, scheme.file->name, " has no \"", name, "\"");
      check(t.defined(), kRead, "\"", name, "\" is undefined");
    }
    PackedWeight w = scheme.file->read(scheme, pieces);
    w.check(kRead);
    return w;
  });
}
PackedPieces write_packed(const PackedScheme& scheme, const PackedWeight& weight, std::string_view layer) {
  check(scheme.file != nullptr, kWrite, "the scheme is empty");
  return in_layer(kWrite, layer, [&] {
    weight.check(kWrite);
    return scheme.file->write(scheme, weight);
  });
}

PackedWeight packed_gguf(std::string_view type, const Tensor& bytes, int64_t rows, int64_t columns) {
  constexpr std::string_view op = "packed_gguf";
  std::string all;
  for (const WeightFormat& f : weight_formats()) {
    if (f.scaled) continue;
    std::string name(f.name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    all += cat(all.empty() ? "" : ", ", name);
    if (name != type) continue;
    check<DTypeError>(bytes.dtype() == DType::u8, op, "bytes are u8, got ", bytes);
    check<ShapeError>(rows >= 0 && columns >= 0 && columns < (int64_t{1} << 31) && columns % f.unit == 0 &&
                          (rows == 0 || bytes.numel() / rows == f.row_bytes(columns)) &&
                          bytes.numel() == rows * f.row_bytes(columns),
                      op, type, " of [", rows, ", ", columns, "] wants columns in multiples of ", f.unit, " and ",
                      f.row_bytes(columns), " bytes a row, got ", bytes);
    PackedWeight w;
    w.format = &f, w.rows = rows, w.columns = columns;
    w.codes = bytes.contiguous().view({rows, f.row_bytes(columns)});
    return w;
  }
  throw ValueError(op, cat("there is no type \"", type, "\"; there are ", all));
}

}  // namespace strata
