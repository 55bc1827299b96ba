#pragma once
// Arguments and results without their C++ types: what lets one call path, compiled once, serve every record.

#include <array>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/core/op_base.h"

namespace strata::detail {

/// What the call path has to know of an argument's type where it sees only its address.
struct ArgType {
  enum Kind : uint8_t { tensor, tensors, key, optional_key, other };
  Kind kind;
  uint32_t size, align;
  void (*copy)(void* into, const void* from);  ///< constructs; tensors' are not called
  void (*destroy)(void* at);
  Value (*box)(const void* at);
  /// The argument that `v` holds: in place where the types are the same, else constructed at `into`. nullptr where `v`
  /// holds none of this type. None is the undefined tensor, and nothing of an optional.
  const void* (*unbox)(const Value& v, void* into);
};

/// Every T that a record's functions may take: those of a Value, and optional ones. Each has ArgTypeOf<T>::type.
// clang-format off
#define STRATA_FOR_EACH_ARG_TYPE(DO)                                                              \
  DO(Tensor) DO(TensorList)                                                                       \
  DO(Scalar)      DO(std::optional<Scalar>)      DO(int64_t) DO(std::optional<int64_t>)           \
  DO(double)      DO(std::optional<double>)      DO(bool)    DO(std::optional<bool>)              \
  DO(std::string) DO(std::optional<std::string>) DO(Dims)    DO(std::optional<Dims>)              \
  DO(DType)       DO(std::optional<DType>)       DO(Device)  DO(std::optional<Device>)            \
  DO(RngKey)      DO(std::optional<RngKey>)
// clang-format on
template <class T>
struct ArgTypeOf;
#define STRATA_ARG_TYPE(...)      \
  template <>                     \
  struct ArgTypeOf<__VA_ARGS__> { \
    static const ArgType type;    \
  };
STRATA_FOR_EACH_ARG_TYPE(STRATA_ARG_TYPE)
#undef STRATA_ARG_TYPE

/// The most arguments, and the most results that are not a list.
inline constexpr int kMostArgs = 32, kMostResults = 8;

/// The arguments of a call: an address for each.
using ArgsAt = const void* const*;

/// Where results lie: `count` tensors, or a list.
struct Results {
  Tensor* const* each = nullptr;
  size_t count = 0;
  TensorList* list = nullptr;
  size_t size() const { return list ? list->size() : count; }
  Tensor& operator[](size_t i) const { return list ? (*list)[i] : *each[i]; }
};

/// A record's function: of which type, its TypedCalls know.
using AnyFunction = void (*)();

/// Where `infer` writes: room for a TensorMeta for each tensor, in which none is yet, or a list.
struct InferredInto {
  TensorMeta* each = nullptr;
  std::vector<TensorMeta>* list = nullptr;
};

/// Result types: how many tensors, what `infer` returns, and how a result becomes Results.
template <class R>
struct ResultTraits;
template <>
struct ResultTraits<Tensor> {
  using Metas = TensorMeta;
  static constexpr int count = 1;
  static std::array<Tensor*, 1> slots(Tensor& r) { return {&r}; }
  static Results results(const std::array<Tensor*, 1>& slots, Tensor&) { return {slots.data(), 1, nullptr}; }
  static void store(const Results& into, Tensor&& r) { *into.each[0] = std::move(r); }
};
template <class... T>
struct ResultTraits<std::tuple<T...>> {
  using Metas = std::array<TensorMeta, sizeof...(T)>;
  static constexpr int count = sizeof...(T);
  static_assert(count <= kMostResults);
  using Slots = std::array<Tensor*, sizeof...(T)>;
  static Slots slots(std::tuple<T...>& r) {
    return std::apply([](T&... each) { return Slots{&each...}; }, r);
  }
  static Results results(const Slots& slots, std::tuple<T...>&) { return {slots.data(), slots.size(), nullptr}; }
  static void store(const Results& into, std::tuple<T...>&& r) {
    size_t i = 0;
    std::apply([&](T&... each) { ((*into.each[i++] = std::move(each)), ...); }, r);
  }
};
template <>
struct ResultTraits<TensorList> {
  using Metas = std::vector<TensorMeta>;
  static constexpr int count = -1;
  static std::array<Tensor*, 1> slots(TensorList&) { return {}; }
  static Results results(const std::array<Tensor*, 1>&, TensorList& r) { return {nullptr, 0, &r}; }
  static void store(const Results& into, TensorList&& r) { *into.list = std::move(r); }
};

template <class R, class... A>
struct KernelType;
template <class... A>
struct KernelType<Tensor, A...> {
  using type = void (*)(Tensor&, A...);
};
template <class... T, class... A>
struct KernelType<std::tuple<T...>, A...> {
  using type = void (*)(T&..., A...);
};
template <class... A>
struct KernelType<TensorList, A...> {
  using type = void (*)(TensorList&, A...);
};

/// Calls a record's functions with arguments whose addresses are known: all that is compiled for each signature.
struct TypedCalls {
  void (*form)(AnyFunction f, ArgsAt at, const Results& into);  ///< view, dynamic, composed, reference
  void (*infer)(AnyFunction f, ArgsAt at, const InferredInto& into);
  void (*kernel)(AnyFunction f, const Results& into, ArgsAt at);
  void (*backward)(AnyFunction f, Backward& b, ArgsAt at);
  uint64_t (*draws)(AnyFunction f, ArgsAt at);
  Cost (*cost)(AnyFunction f, ArgsAt at);
};

template <class T>
const std::remove_cvref_t<T>& arg_at(const void* at) {
  return *static_cast<const std::remove_cvref_t<T>*>(at);
}

template <class Signature, class Indices>
struct TypedCallsOf;
template <class R, class... A, size_t... I>
struct TypedCallsOf<R(A...), std::index_sequence<I...>> {
  using Traits = ResultTraits<R>;
  using Kernel = typename KernelType<R, A...>::type;

  static void form(AnyFunction f, ArgsAt at, const Results& into) {
    Traits::store(into, reinterpret_cast<R (*)(A...)>(f)(arg_at<A>(at[I])...));
  }
  static void infer(AnyFunction f, ArgsAt at, const InferredInto& into) {
    using Metas = typename Traits::Metas;
    const auto inferred = reinterpret_cast<Metas (*)(A...)>(f);
    if constexpr (Traits::count < 0) {
      *into.list = inferred(arg_at<A>(at[I])...);
    } else {
      // An array of TensorMetas lies as they lie one after the other.
      static_assert(sizeof(Metas) == static_cast<size_t>(Traits::count) * sizeof(TensorMeta));
      new (static_cast<void*>(into.each)) Metas(inferred(arg_at<A>(at[I])...));
    }
  }
  static void kernel(AnyFunction f, const Results& into, ArgsAt at) {
    const auto k = reinterpret_cast<Kernel>(f);
    if constexpr (Traits::count < 0) {
      k(*into.list, arg_at<A>(at[I])...);
    } else {
      [&]<size_t... J>(std::index_sequence<J...>) {
        k(*into.each[J]..., arg_at<A>(at[I])...);
      }
      (std::make_index_sequence<static_cast<size_t>(Traits::count)>());
    }
  }
  static void backward(AnyFunction f, Backward& b, ArgsAt at) {
    reinterpret_cast<void (*)(Backward&, A...)>(f)(b, arg_at<A>(at[I])...);
  }
  static uint64_t draws(AnyFunction f, ArgsAt at) {
    return reinterpret_cast<uint64_t (*)(A...)>(f)(arg_at<A>(at[I])...);
  }
  static Cost cost(AnyFunction f, ArgsAt at) { return reinterpret_cast<Cost (*)(A...)>(f)(arg_at<A>(at[I])...); }

  static constexpr TypedCalls calls{form, infer, kernel, backward, draws, cost};
  /// One more than there are arguments, so that there is one.
  static constexpr const ArgType* types[sizeof...(A) + 1] = {&ArgTypeOf<std::remove_cvref_t<A>>::type..., nullptr};
};

}  // namespace strata::detail
