#include "strata/io/stored_type.h"

#include <algorithm>
#include <iterator>

#include "strata/io/gguf_blocks_cpu.h"

namespace strata::io {
namespace {

// Plain numbers, with their names in every kind of file; then safetensors' and PyTorch's that Strata has no dtype for;
// then blocks of GGUF (sizes: ggml's format, as its Python package `gguf` lists them).
constexpr StoredType kTypes[] = {
    {"F64", DType::f64, 1, 8, 28, true, "float64", "DoubleStorage"},
    {"F32", DType::f32, 1, 4, 0, true, "float32", "FloatStorage"},
    {"F16", DType::f16, 1, 2, 1, true, "float16", "HalfStorage"},
    {"BF16", DType::bf16, 1, 2, 30, true, "bfloat16", "BFloat16Storage"},
    {"I64", DType::i64, 1, 8, 27, true, "int64", "LongStorage"},
    {"I32", DType::i32, 1, 4, 26, true, "int32", "IntStorage"},
    {"I16", DType::i16, 1, 2, 25, true, "int16", "ShortStorage"},
    {"I8", DType::i8, 1, 1, 24, true, "int8", "CharStorage"},
    {"U8", DType::u8, 1, 1, -1, true, "uint8", "ByteStorage"},
    {"BOOL", DType::boolean, 1, 1, -1, true, "bool", "BoolStorage"},

    {"U64", {}, 1, 8, -1, true, "uint64", ""},
    {"U32", {}, 1, 4, -1, true, "uint32", ""},
    {"U16", {}, 1, 2, -1, true, "uint16", ""},
    {"F8_E4M3", {}, 1, 1, -1, true, "float8_e4m3fn", ""},
    {"F8_E5M2", {}, 1, 1, -1, true, "float8_e5m2", ""},
    {"F8_E8M0", {}, 1, 1, -1, true, "float8_e8m0fnu", ""},
    {"F8_E4M3FNUZ", {}, 1, 1, -1, true, "float8_e4m3fnuz", ""},
    {"F8_E5M2FNUZ", {}, 1, 1, -1, true, "float8_e5m2fnuz", ""},
    {"F6_E2M3", {}, 4, 3, -1, true, "", ""},
    {"F6_E3M2", {}, 4, 3, -1, true, "", ""},
    {"F4", {}, 2, 1, -1, true, "", ""},
    {"C64", {}, 1, 8, -1, true, "complex64", "ComplexFloatStorage"},
    {"C128", {}, 1, 16, -1, false, "complex128", "ComplexDoubleStorage"},

    {"Q8_0", DType::f32, 32, 34, 8, false, "", "", decode_q8_0, encode_q8_0},
    {"Q4_0", DType::f32, 32, 18, 2, false, "", "", decode_q4_0, encode_q4_0},
    {"Q4_K", DType::f32, 256, 144, 12, false, "", "", decode_q4_k, encode_q4_k},
    {"Q5_K", DType::f32, 256, 176, 13, false, "", "", decode_q5_k, encode_q5_k},
    {"Q6_K", DType::f32, 256, 210, 14, false, "", "", decode_q6_k, encode_q6_k},
    {"Q4_1", DType::f32, 32, 20, 3, false, "", "", decode_q4_1},
    {"Q5_0", DType::f32, 32, 22, 6, false, "", "", decode_q5_0},
    {"Q5_1", DType::f32, 32, 24, 7, false, "", "", decode_q5_1},
    {"Q8_1", {}, 32, 40, 9},
    {"Q2_K", DType::f32, 256, 84, 10, false, "", "", decode_q2_k},
    {"Q3_K", DType::f32, 256, 110, 11, false, "", "", decode_q3_k},
    {"Q8_K", {}, 256, 292, 15},
    {"IQ2_XXS", {}, 256, 66, 16},
    {"IQ2_XS", {}, 256, 74, 17},
    {"IQ3_XXS", {}, 256, 98, 18},
    {"IQ1_S", {}, 256, 50, 19},
    {"IQ4_NL", DType::f32, 32, 18, 20, false, "", "", decode_iq4_nl},
    {"IQ3_S", {}, 256, 110, 21},
    {"IQ2_S", {}, 256, 82, 22},
    {"IQ4_XS", DType::f32, 256, 136, 23, false, "", "", decode_iq4_xs},
    {"IQ1_M", {}, 256, 56, 29},
    {"TQ1_0", {}, 256, 54, 34},
    {"TQ2_0", {}, 256, 66, 35},
    {"MXFP4", DType::f32, 32, 17, 39, false, "", "", decode_mxfp4},
    {"NVFP4", {}, 64, 36, 40},
    {"Q1_0", {}, 128, 18, 41},
};

template <class Fits>
const StoredType* find(Fits fits) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), fits);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

std::span<const StoredType> stored_types() {
  return kTypes;
}

const StoredType& stored_type(DType dtype) {
  return *find([&](const StoredType& t) { return t.is_plain() && t.dtype == dtype; });
}

const StoredType* find_stored_type(std::string_view name) {
  return find([&](const StoredType& t) { return t.name == name; });
}

const StoredType* find_ggml_type(uint64_t number) {
  return find([&](const StoredType& t) { return t.ggml >= 0 && static_cast<uint64_t>(t.ggml) == number; });
}

const StoredType* find_torch_type(std::string_view name) {
  return name.empty() ? nullptr : find([&](const StoredType& t) { return t.torch == name || t.torch_storage == name; });
}

std::optional<uint64_t> stored_bytes(const StoredType& type, const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(n, size, &n)) return {};
  if (type.block > 1 && type.ggml >= 0 && (shape.empty() || shape.back() % type.block != 0)) return {};
  if (n % type.block != 0 || __builtin_mul_overflow(n / type.block, type.block_bytes, &n)) return {};
  return static_cast<uint64_t>(n);
}

}  // namespace strata::io
