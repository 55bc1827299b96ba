// The ways that files store low-bit weights.

#include "strata/models/packed_files.h"

#include <algorithm>
#include <utility>

#include "strata/models/packed_files_inl.h"
#include "strata/nn/layer_error_inl.h"

namespace strata {

using namespace packed_file;

std::span<const PackedFile> packed_files() {
  static const PackedFile all[] = {
      {"GPTQ",
       "gptq",
       "AutoGPTQ and GPTQModel, 4 and 8 bits: codes of a column below one another in words, zeros less 1 in "
       "the first format",
       "",
       {{"qweight", true}, {"qzeros", true}, {"scales", true}, {"g_idx", false}},
       read_gptq,
       write_gptq},
      {"AWQ",
       "awq",
       "AutoAWQ's version gemm: eight rows in a word, in the order 0 2 4 6 1 3 5 7",
       "modules_to_not_convert",
       {{"qweight", true}, {"qzeros", true}, {"scales", true}},
       read_awq,
       write_awq},
      {"compressed-tensors pack-quantized",
       "compressed-tensors",
       "4 and 8 bits along rows in words, groups or channels",
       "ignore",
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
       "ignore",
       {{"weight", true}, {"weight_scale", true}, {"input_scale", false}},
       read_int8,
       write_int8},
      {"compressed-tensors float-quantized",
       "compressed-tensors",
       "e4m3, a scale for all, for each row or for a block",
       "ignore",
       {{"weight", true}, {"weight_scale", true}, {"input_scale", false}},
       read_float8,
       write_float8},
      {"fp8",
       "fp8",
       "e4m3, a scale for each block (DeepSeek-V3 and what transformers makes)",
       "modules_to_not_convert",
       {{"weight", true}, {"weight_scale_inv", true}, {"input_scale", false}},
       read_fp8,
       write_fp8},
      {"bitsandbytes nf4",
       "bitsandbytes",
       "NF4 in blocks over the flat matrix, scales once more in 8 bits",
       "llm_int8_skip_modules",
       {{"weight", true},
        {"weight.absmax", true},
        {"weight.quant_map", true},
        {kNf4State, true},
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

PackedWeight read_packed(const PackedScheme& scheme, const PackedPieces& pieces, std::string_view layer) {
  check(scheme.file != nullptr, kRead, "the scheme is empty");
  return nn::detail::of_layer(kRead, layer, [&] {
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
  return nn::detail::of_layer(kWrite, layer, [&] {
    weight.check(kWrite);
    return scheme.file->write(scheme, weight);
  });
}

}  // namespace strata
