#pragma once
// Functions with a gradient of their own.

#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "strata/core/node.h"

namespace strata {

/// What forward() leaves for backward(). A function that keeps more than tensors derives its own from it and names it
/// Ctx.
class FunctionCtx {
 public:
  virtual ~FunctionCtx() = default;
  FunctionCtx() = default;
  FunctionCtx(const FunctionCtx&) = delete;

  /// In forward(): keeps inputs, results or anything between for backward(). They are released after backward (unless
  /// retain_graph), go through saved-tensor hooks, and overwriting them is an error. Called once.
  void save_for_backward(const TensorList& tensors) { to_save_ = tensors; }
  /// In backward(): what save_for_backward() kept, inputs and results with their history.
  TensorList saved_tensors() const;
  /// In forward(): this result has no gradient. Results that are not floating have none anyway.
  void mark_non_differentiable(const Tensor& result) { non_differentiable_.push_back(result); }
  /// In forward(): with false, backward() gets an undefined tensor for a result that no gradient reached, instead of
  /// zeros.
  void set_materialize_grads(bool value) { materialize_ = value; }
  /// Whether tensor input `i` wants a gradient: skip the work when not.
  bool needs_input_grad(size_t i) const { return i < needs_.size() && needs_[i]; }

 private:
  friend class FunctionNode;
  TensorList to_save_, non_differentiable_;
  bool materialize_ = true;
  std::vector<bool> needs_;
  std::vector<SavedTensor> saved_;
  Node* node_ = nullptr;
};

/// The node of a user-defined function.
class FunctionNode : public Node {
 public:
  std::string_view name() const override { return name_; }
  void apply(Grads& gy, Grads& gx) final;
  void release() final;
  void list_packed(std::vector<PackedTensor>& all) const final;

  /// Before forward: looks at the inputs.
  void begin(FunctionCtx& ctx, const TensorList& inputs);
  /// After forward: gives `results` their history. Throws AutogradError when forward wrote to an input.
  void record(FunctionCtx& ctx, const TensorList& inputs, const std::vector<Tensor*>& results);

 protected:
  explicit FunctionNode(std::string_view name) : name_(name) {}
  virtual FunctionCtx& ctx() = 0;
  const FunctionCtx& ctx() const { return const_cast<FunctionNode*>(this)->ctx(); }
  virtual TensorList call_backward(const TensorList& gy) = 0;

 private:
  std::string_view name_;
  std::vector<TensorMeta> input_metas_, result_metas_;
  std::vector<uint32_t> versions_;
};

namespace detail {

/// "MyFn", from the compiler's own spelling of T.
template <class T>
constexpr std::string_view type_name() {
  std::string_view s = __PRETTY_FUNCTION__;
  s = s.substr(s.find("T = ") + 4);
  s = s.substr(0, s.find_first_of(";]"));
  const size_t colon = s.rfind("::");
  return colon == std::string_view::npos ? s : s.substr(colon + 2);
}

template <class F>
class FunctionNodeOf final : public FunctionNode {
 public:
  FunctionNodeOf() : FunctionNode(type_name<F>()) {}
  typename F::Ctx context;

 protected:
  FunctionCtx& ctx() override { return context; }
  TensorList call_backward(const TensorList& gy) override {
    if constexpr (std::is_same_v<decltype(F::backward(context, gy)), Tensor>) {
      return {F::backward(context, gy)};
    } else {
      return F::backward(context, gy);
    }
  }
};

inline void list_inputs(TensorList& all, const Tensor& t) {
  all.push_back(t);
}
inline void list_inputs(TensorList& all, const TensorList& l) {
  all.insert(all.end(), l.begin(), l.end());
}
template <class T>
void list_inputs(TensorList&, const T&) {}
inline void list_results(std::vector<Tensor*>& all, Tensor& t) {
  all.push_back(&t);
}
inline void list_results(std::vector<Tensor*>& all, TensorList& l) {
  for (Tensor& t : l) all.push_back(&t);
}
template <class... T>
void list_results(std::vector<Tensor*>& all, std::tuple<T...>& ts) {
  std::apply([&](T&... t) { (all.push_back(&t), ...); }, ts);
}

}  // namespace detail

/// Derive from Function<YourFn> to give code of your own a gradient of your own. forward() takes the context and any
/// arguments (Tensor, TensorList or other) and returns a Tensor, TensorList or tuple of Tensors; nothing in it is
/// recorded. backward() takes the context and the gradients of the results, and returns one gradient for each tensor
/// argument, lists flattened (undefined for none). Written with ops, it can be differentiated again.
///
///     struct Square : Function<Square> {
///       static Tensor forward(Ctx& ctx, const Tensor& x) {
///         ctx.save_for_backward({x});
///         return x * x;
///       }
///       static TensorList backward(Ctx& ctx, const TensorList& gy) { return {gy[0] * ctx.saved_tensors()[0] * 2}; }
///     };
///     Tensor y = Square::apply(x);
///
/// A wrong number of gradients is an AutogradError, a wrong shape a ShapeError, another device a DeviceError, all
/// naming the function. A gradient of another dtype is converted to its input's, as PyTorch does.
template <class Derived>
struct Function {
  /// The context that forward() and backward() get; hide it with your own to keep more than tensors.
  using Ctx = FunctionCtx;

  /// Calls forward() and records it: what users of the function write.
  template <class... A>
  static auto apply(const A&... args) {
    TensorList inputs;
    (detail::list_inputs(inputs, args), ...);
    auto* node = new detail::FunctionNodeOf<Derived>();
    const Ref<Node> owner(node);
    node->begin(node->context, inputs);
    auto result = [&] {
      NoGrad guard;
      return Derived::forward(node->context, args...);
    }();
    std::vector<Tensor*> results;
    detail::list_results(results, result);
    node->record(node->context, inputs, results);
    return result;
  }
};

}  // namespace strata
