// A byte a number in the order of the matrix, and bitsandbytes' NF4.

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/io/json.h"
#include "strata/models/packed_files_inl.h"

namespace strata::packed_file {

// ---- one byte a number: compressed-tensors' other formats, and fp8 by blocks ----

namespace {

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
}  // namespace

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

PackedWeight read_nf4(const PackedScheme& s, const PackedPieces& pieces) {
  const Tensor text = piece(pieces, kNf4State, {DType::u8}, 1);
  const auto* from = static_cast<const char*>(text.raw_data());
  nlohmann::json state;
  try {
    state = io::parse_json(std::string_view(from, static_cast<size_t>(text.numel())), kNf4State);
    const std::vector<int64_t> shape = state.at("shape").get<std::vector<int64_t>>();
    check(state.at("quant_type").get<std::string>() == "nf4", kRead, "\"", kNf4State, "\" is not of nf4");
    check<ShapeError>(shape.size() == 2, kRead, "\"", kNf4State, "\" is of ", shape.size(), " dimensions, wants 2");
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
    throw ValueError(kRead, cat("\"", kNf4State, "\": ", e.what()));
  }
}

namespace {
// As Python writes a float: the shortest text that reads back.
std::string python_number(double v) {
  return nlohmann::json(v).dump();
}
}  // namespace

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
  pieces.emplace(kNf4State, from_span<uint8_t>(std::vector<uint8_t>(state.begin(), state.end()),
                                               {static_cast<int64_t>(state.size())}));
  return pieces;
}

}  // namespace strata::packed_file
