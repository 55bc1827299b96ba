#include "strata/core/arg_type.h"

#include <new>

namespace strata::detail {
namespace {

const Tensor kUndefined;

template <class T>
Value box_of(const T& v) {
  return v;
}
Value box_of(const Tensor& t) {
  return t.defined() ? Value(t) : Value();
}
template <class T>
Value box_of(const std::optional<T>& v) {
  return v ? Value(*v) : Value();
}

// The T that a Value holds, or what is as good.
template <class T>
struct Unbox {
  static const void* from(const Value& v, void*) { return std::get_if<T>(&v); }
};
template <>
struct Unbox<Tensor> {
  static const void* from(const Value& v, void*) {
    return std::holds_alternative<std::monostate>(v) ? &kUndefined : std::get_if<Tensor>(&v);
  }
};
template <>
struct Unbox<double> {
  static const void* from(const Value& v, void* into) {
    if (const double* p = std::get_if<double>(&v)) return p;
    if (const int64_t* p = std::get_if<int64_t>(&v)) return new (into) double(static_cast<double>(*p));
    if (const Scalar* p = std::get_if<Scalar>(&v)) return new (into) double(p->to_double());
    return nullptr;
  }
};
template <>
struct Unbox<Scalar> {
  static const void* from(const Value& v, void* into) {
    if (const Scalar* p = std::get_if<Scalar>(&v)) return p;
    if (const int64_t* p = std::get_if<int64_t>(&v)) return new (into) Scalar(*p);
    if (const double* p = std::get_if<double>(&v)) return new (into) Scalar(*p);
    if (const bool* p = std::get_if<bool>(&v)) return new (into) Scalar(*p);
    return nullptr;
  }
};
template <class T>
struct Unbox<std::optional<T>> {
  static const void* from(const Value& v, void* into) {
    if (std::holds_alternative<std::monostate>(v)) return new (into) std::optional<T>();
    alignas(T) std::byte room[sizeof(T)];
    const void* const held = Unbox<T>::from(v, room);  // what it may construct there needs no end
    return held ? new (into) std::optional<T>(*static_cast<const T*>(held)) : nullptr;
  }
};

template <class T>
constexpr ArgType type_of() {
  constexpr ArgType::Kind kind = std::is_same_v<T, Tensor>                  ? ArgType::tensor
                                 : std::is_same_v<T, TensorList>            ? ArgType::tensors
                                 : std::is_same_v<T, RngKey>                ? ArgType::key
                                 : std::is_same_v<T, std::optional<RngKey>> ? ArgType::optional_key
                                                                            : ArgType::other;
  return {kind,
          sizeof(T),
          alignof(T),
          [](void* into, const void* from) { new (into) T(*static_cast<const T*>(from)); },
          [](void* at) { static_cast<T*>(at)->~T(); },
          [](const void* at) { return box_of(*static_cast<const T*>(at)); },
          [](const Value& v, void* into) -> const void* { return Unbox<T>::from(v, into); }};
}

}  // namespace

#define STRATA_ARG_TYPE(...) constinit const ArgType ArgTypeOf<__VA_ARGS__>::type = type_of<__VA_ARGS__>();
STRATA_FOR_EACH_ARG_TYPE(STRATA_ARG_TYPE)
#undef STRATA_ARG_TYPE

}  // namespace strata::detail
