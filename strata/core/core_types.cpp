#include <charconv>

#include "strata/core/device.h"
#include "strata/core/dims.h"
#include "strata/core/dtype.h"
#include "strata/core/error.h"

namespace strata {

std::string_view name_of(DType t) {
  constexpr std::string_view names[kNumDTypes] = {"u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool"};
  return names[static_cast<int>(t)];
}

DType parse_dtype(std::string_view text) {
  struct Alias {
    std::string_view name;
    DType type;
  };
  static constexpr Alias aliases[] = {
      {"uint8", DType::u8},  {"U8", DType::u8},         {"int8", DType::i8},        {"I8", DType::i8},
      {"int16", DType::i16}, {"I16", DType::i16},       {"int32", DType::i32},      {"I32", DType::i32},
      {"int64", DType::i64}, {"I64", DType::i64},       {"float16", DType::f16},    {"half", DType::f16},
      {"F16", DType::f16},   {"bfloat16", DType::bf16}, {"BF16", DType::bf16},      {"float32", DType::f32},
      {"float", DType::f32}, {"F32", DType::f32},       {"float64", DType::f64},    {"double", DType::f64},
      {"F64", DType::f64},   {"BOOL", DType::boolean},  {"boolean", DType::boolean}};
  for (DType t : kAllDTypes)
    if (text == name_of(t)) return t;
  for (const Alias& a : aliases)
    if (text == a.name) return a.type;
  throw ValueError("parse_dtype",
                   cat("'", text, "' is not a dtype; use one of f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool"));
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  const bool fa = is_floating(a), fb = is_floating(b);
  if (fa != fb) return fa ? a : b;
  if (fa) {
    // f16 and bf16 have no common 16-bit type
    if (is_reduced_floating(a) && is_reduced_floating(b)) return DType::f32;
    return std::max(a, b);
  }
  const DType lo = std::min(a, b), hi = std::max(a, b);
  if (lo == DType::u8 && hi == DType::i8) return DType::i16;
  return hi;
}

std::string to_string(Device d) {
  if (d.is_cpu()) return "cpu";
  if (d.is_meta()) return "meta";
  return "cuda:" + std::to_string(d.index);
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return Device::cpu();
  if (text == "meta") return Device::meta();
  if (text == "cuda") return Device::cuda(0);
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [p, ec] = std::from_chars(text.data() + 5, end, index);
    if (ec == std::errc() && p == end && index >= 0 && index < 128) return Device::cuda(index);
  }
  throw ValueError("parse_device", cat("'", text, "' is not a device; use cpu, cuda, cuda:N or meta"));
}

void throw_too_many_dims(int64_t n) {
  throw ShapeError("Dims", cat("a tensor has at most ", kMaxDims, " dimensions, got ", n));
}

std::string to_string(const Dims& d) {
  std::string s = "[";
  for (int i = 0; i < d.size(); ++i) {
    if (i) s += ", ";
    s += std::to_string(d[i]);
  }
  return s + "]";
}

Strides contiguous_strides(const Shape& s) {
  Strides r = Dims::filled(s.size(), 1);
  for (int i = s.size() - 2; i >= 0; --i) r[i] = r[i + 1] * std::max<int64_t>(s[i + 1], 1);
  return r;
}

void append_text(std::string& s, double v) {
  char buf[32];
  const auto [p, ec] = std::to_chars(buf, buf + sizeof buf, v);
  s.append(buf, p);
}

int64_t wrap_dim(int64_t dim, int64_t rank, std::string_view op) {
  const int64_t n = rank == 0 ? 1 : rank;
  if (dim < -n || dim >= n) [[unlikely]]
    throw IndexError(op, cat("dim ", dim, " is out of range for a tensor with ", rank, " dimensions (allowed: ", -n,
                             " to ", n - 1, ")"));
  return dim < 0 ? dim + n : dim;
}

}  // namespace strata
