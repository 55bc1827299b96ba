#pragma once
// The op record: everything the engine knows about an operation, and the call path from a typed function to a kernel.
// docs/design/op_record.md explains it with a complete example.

#include <string_view>
#include <type_traits>
#include <utility>

#include "strata/core/call_path.h"

namespace strata {

template <class Signature>
class Op;

/// One operation of C++ signature R(A...), R being Tensor, a tuple of Tensors or a TensorList: a static object, made
/// from a Record, that registers itself and is called like a function.
template <class R, class... A>
class Op<R(A...)> final : public detail::CallPath {
 public:
  /// What `infer` returns: a TensorMeta for each result.
  using Metas = typename detail::ResultTraits<R>::Metas;
  /// A function of the results, to be written into, and the arguments.
  using Kernel = typename detail::KernelType<R, A...>::type;

  /// A kernel for each device; it writes into results that are already allocated. It never allocates a result.
  using Kernels = ByDevice<Kernel>;

  /// What a record says. One of `infer`+`kernels`, `view`, `dynamic` or `composed` says how results come about.
  struct Record {
    std::string_view schema;        ///< "softmax(Tensor x, int dim) -> Tensor"
    ShardRule shard = {};           ///< which placements of arguments give which of results: strata/core/shard_rule.h
    std::string_view aliases = {};  ///< other names of the function, separated by blanks: "arccos"
    int shown = 0;                  ///< results that callers get, the first ones; the others are for `backward`. 0: all
    bool internal = false;          ///< called by other ops and gradient rules only: no language offers it
    bool inplace_by_copy = false;   ///< for languages: an in-place form that computes elsewhere, then copies
    std::string_view doc;           ///< one paragraph: meaning, shapes, errors, source of the formula
    std::string_view example = {};  ///< C++ statements, compiled and run by the tests
    Metas (*infer)(A...) = nullptr;  ///< checks the arguments, says what the results are
    Kernels kernels = {};
    R (*view)(A...) = nullptr;      ///< returns a tensor that shares the first argument's storage
    ByDevice<R (*)(A...)> dynamic;  ///< for results whose size depends on values
    R (*composed)(A...) = nullptr;  ///< the same function written with other ops
    /// Arguments and results whose elements `backward` reads: "x result". "a:b,c" keeps a only when b or c
    /// wants a gradient.
    std::string_view saves = {};
    void (*backward)(Backward&, A...) = nullptr;
    bool inplace = false;  ///< the kernel may write over its first argument
    /// Blocks of random numbers that a call with these arguments uses up: how far a generator moves for its RngKey.
    uint64_t (*draws)(A...) = nullptr;
    Adapt adapt = Adapt::none;
    Autocast autocast = Autocast::keep;
    DTypeSet dtypes = kFloats;  ///< what the samples are tried with
    Cost (*cost)(A...) = nullptr;
    void (*samples)(Samples&) = nullptr;
    R (*reference)(A...) = nullptr;  ///< slow and obviously right, called with f64 tensors
    double tolerance = 0;            ///< widens the verification's bound by this factor; 0 and 1 mean no widening
    std::string_view tolerance_reason = {};
  };

  Op(const Record& r, const char* file = __builtin_FILE())
      : CallPath(r.schema, r.doc, r.example, file, r.saves, policies_of(r), facts_of(r)) {}

  /// The call path: infer, allocate, kernel, record.
  R operator()(A... args) const {
    return returned([&](const detail::Results& into, detail::ArgsAt at) { call(at, into); }, args...);
  }

  /// Runs the kernel into `result`, which must be what infer says. Not recorded: an error while a gradient is wanted.
  void out(Tensor& result, A... args) const requires std::is_same_v<R, Tensor> {
    const void* const at[] = {std::addressof(args)..., nullptr};
    call_out(result, at);
  }

  /// Writes the result over the first argument, records it, and returns it.
  template <class... Rest>
  Tensor& inplace(Tensor& self, Rest&&... rest) const requires std::is_same_v<R, Tensor> {
    inplace_at(self, self, std::forward<Rest>(rest)...);
    return self;
  }

  /// The call with the next numbers of `g` for its RngKey, whatever stands in that place.
  R drawn(Generator& g, A... args) const {
    return returned([&](const detail::Results& into, detail::ArgsAt at) { call_drawn(g, at, into); }, args...);
  }

  /// The record's reference; it must have one.
  R reference(A... args) const { return reinterpret_cast<R (*)(A...)>(facts().reference)(args...); }

 private:
  using Traits = detail::ResultTraits<R>;
  using Typed = detail::TypedCallsOf<R(A...), std::index_sequence_for<A...>>;
  static_assert(sizeof...(A) <= detail::kMostArgs);

  template <class F>
  static R returned(F&& run, std::add_lvalue_reference_t<A>... args) {
    const void* const at[] = {std::addressof(args)..., nullptr};
    R result;
    const auto slots = Traits::slots(result);
    run(Traits::results(slots, result), at);
    return result;
  }
  void inplace_at(Tensor& self, A... args) const {
    const void* const at[] = {std::addressof(args)..., nullptr};
    call_inplace(self, at);
  }

  template <class F>
  static detail::AnyFunction any(F f) {
    return reinterpret_cast<detail::AnyFunction>(f);
  }
  template <class F>
  static ByDevice<detail::AnyFunction> any(const ByDevice<F>& f) {
    return {any(f.cpu), any(f.cuda), any(f.everywhere)};
  }
  static Policies policies_of(const Record& r) {
    return {.aliases = r.aliases,
            .shown = r.shown,
            .internal = r.internal,
            .inplace_by_copy = r.inplace_by_copy,
            .autocast = r.autocast,
            .adapt = r.adapt,
            .dtypes = r.dtypes,
            .tolerance = r.tolerance,
            .tolerance_reason = r.tolerance_reason};
  }
  static detail::RecordFacts facts_of(const Record& r) {
    return {.inplace = r.inplace,
            .infer = any(r.infer),
            .view = any(r.view),
            .composed = any(r.composed),
            .backward = any(r.backward),
            .draws = any(r.draws),
            .cost = any(r.cost),
            .reference = any(r.reference),
            .kernels = any(r.kernels),
            .dynamic = any(r.dynamic),
            .samples = r.samples,
            .shard = r.shard,
            .calls = &Typed::calls,
            .types = Typed::types,
            .args = sizeof...(A),
            .results = Traits::count};
  }
};

}  // namespace strata
