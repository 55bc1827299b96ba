#pragma once
// graphed(): a training step that runs as one CUDA graph, as `strata train` runs its own.

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// How graphed() goes about a step.
struct GraphedOptions {
  /// Calls with arguments of a kind (shapes, dtypes, devices, plain values) that run op by op before one is captured:
  /// at least 1, which makes what exists from the first step on, such as an optimizer's moments.
  int warmup = 1;
  /// Graphs that are kept. Where another is wanted the one that was used longest ago goes.
  int most = 8;
  /// A step that cannot be captured runs op by op, and note() says why, instead of throwing.
  bool fallback = false;
};

namespace detail {

/// What a step returned: its tensors, and what else there was.
struct GraphedResult {
  TensorList tensors;
  std::shared_ptr<void> rest;
};

/// Refers to the step, as a function of the tensors among its arguments.
class GraphedCall {
 public:
  template <class F>
  requires(!std::same_as<F, GraphedCall>) explicit GraphedCall(F& f)
      : object_(&f), call_([](void* o, const TensorList& in) { return (*static_cast<F*>(o))(in); }) {}
  GraphedResult operator()(const TensorList& in) const { return call_(object_, in); }

 private:
  void* object_;
  GraphedResult (*call_)(void*, const TensorList&);
};

/// A captured step.
struct GraphedWork {
  virtual ~GraphedWork() = default;
  virtual void replay() = 0;
};
/// What captures: CUDA's graphs, or in tests what stands in for them.
struct GraphedBackend {
  virtual ~GraphedBackend() = default;
  /// Whether steps on the device are captured; on others they run op by op.
  virtual bool captures(Device device) const = 0;
  /// Whether the thread is capturing something already.
  virtual bool capturing() const = 0;
  /// A captured step is about to be made or run on the current stream.
  virtual void begin(Device device) = 0;
  /// Runs nothing on the device; `result` is then what a replay writes. Rethrows.
  virtual std::unique_ptr<GraphedWork> capture(Device device, const GraphedCall& step, const TensorList& inputs,
                                               GraphedResult& result) = 0;
};

/// The part of Graphed that knows nothing of types: bindings use it.
class GraphedSteps {
 public:
  explicit GraphedSteps(const GraphedOptions& options = {}, std::unique_ptr<GraphedBackend> backend = nullptr);
  ~GraphedSteps();
  GraphedSteps(GraphedSteps&&) noexcept;
  /// The step's results over `tensors`. `rest` stands for the arguments that are no tensors.
  GraphedResult call(const TensorList& tensors, std::string_view rest, const GraphedCall& step);
  int64_t graphs() const;
  int64_t captures() const;
  int64_t replays() const;
  const std::string& note() const;
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tensors out of arguments and results, and back: tensors, lists, tuples and pairs of such; anything else is plain.
template <class T>
struct GraphedParts {
  static void take(const T&, TensorList&) {}
  static void name(const T& v, std::string& key) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      key.append(reinterpret_cast<const char*>(&v), sizeof v);
    } else {
      static_assert(std::convertible_to<T, std::string_view>,
                    "graphed: an argument is a tensor, a number, an enum, a text, or a list, tuple or pair of those");
      const std::string_view text = v;
      const size_t size = text.size();
      key.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
    }
  }
  static T put(const T& v, const TensorList&, size_t&) { return v; }
};
template <>
struct GraphedParts<Tensor> {
  static void take(const Tensor& t, TensorList& all) { all.push_back(t); }
  static void name(const Tensor&, std::string& key) { key += 't'; }
  static Tensor put(const Tensor&, const TensorList& all, size_t& at) { return all[at++]; }
};
template <class T>
struct GraphedParts<std::vector<T>> {
  static void take(const std::vector<T>& list, TensorList& all) {
    for (const auto& v : list) GraphedParts<T>::take(v, all);
  }
  static void name(const std::vector<T>& list, std::string& key) {
    const size_t size = list.size();
    key.append(reinterpret_cast<const char*>(&size), sizeof size);
    for (const auto& v : list) GraphedParts<T>::name(v, key);
  }
  static std::vector<T> put(const std::vector<T>& list, const TensorList& all, size_t& at) {
    std::vector<T> r;
    r.reserve(list.size());
    for (const auto& v : list) r.push_back(GraphedParts<T>::put(v, all, at));
    return r;
  }
};
template <class Tuple, class... T>
struct GraphedTuple {
  static void take(const Tuple& t, TensorList& all) {
    std::apply([&](const T&... v) { (GraphedParts<T>::take(v, all), ...); }, t);
  }
  static void name(const Tuple& t, std::string& key) {
    std::apply([&](const T&... v) { (GraphedParts<T>::name(v, key), ...); }, t);
  }
  static Tuple put(const Tuple& t, const TensorList& all, size_t& at) {
    return std::apply([&](const T&... v) { return Tuple{GraphedParts<T>::put(v, all, at)...}; }, t);
  }
};
template <class... T>
struct GraphedParts<std::tuple<T...>> : GraphedTuple<std::tuple<T...>, T...> {};
template <class A, class B>
struct GraphedParts<std::pair<A, B>> : GraphedTuple<std::pair<A, B>, A, B> {};

}  // namespace detail

/// A step that was captured; graphed() makes one. One thread at a time calls it.
template <class F>
class Graphed {
 public:
  explicit Graphed(F fn, const GraphedOptions& options = {}) : fn_(std::move(fn)), steps_(options) {}

  /// What fn(args...) returns, its tensors without history and in memory of their own.
  template <class... A>
  auto operator()(const A&... args) {
    using Args = std::tuple<std::decay_t<const A&>...>;
    using Parts = detail::GraphedParts<Args>;
    using R = std::invoke_result_t<F&, const std::decay_t<const A&>&...>;
    const Args given(args...);
    TensorList tensors;
    std::string rest;
    Parts::take(given, tensors);
    Parts::name(given, rest);
    auto step = [&](const TensorList& in) {
      size_t at = 0;
      const Args now = Parts::put(given, in, at);
      detail::GraphedResult result;
      if constexpr (std::is_void_v<R>) {
        std::apply(fn_, now);
      } else {
        auto made = std::make_shared<std::decay_t<R>>(std::apply(fn_, now));
        detail::GraphedParts<std::decay_t<R>>::take(*made, result.tensors);
        for (Tensor& t : result.tensors)
          if (t.defined()) t = t.detach();
        *made = detail::GraphedParts<std::decay_t<R>>::put(*made, result.tensors, at = 0);
        result.rest = std::move(made);
      }
      return result;
    };
    const detail::GraphedResult result = steps_.call(tensors, rest, detail::GraphedCall(step));
    if constexpr (!std::is_void_v<R>) {
      size_t at = 0;
      return detail::GraphedParts<std::decay_t<R>>::put(*static_cast<std::decay_t<R>*>(result.rest.get()),
                                                        result.tensors, at);
    }
  }

  /// Graphs that are kept now.
  int64_t graphs() const { return steps_.graphs(); }
  /// Steps captured so far, and calls that were a replay.
  int64_t captures() const { return steps_.captures(); }
  int64_t replays() const { return steps_.replays(); }
  /// With GraphedOptions::fallback: why the step was not captured when that was last tried. Empty where it was.
  const std::string& note() const { return steps_.note(); }
  /// Drops the graphs and gives their memory back; the next calls begin anew.
  void clear() { steps_.clear(); }

 private:
  F fn_;
  detail::GraphedSteps steps_;
};

/// The training step `fn` (forward, backward, update) as something to call in its place, with the same bits:
/// \code
///   auto step = graphed([&](const Tensor& x, const Tensor& y) {
///     const Tensor loss = cross_entropy(model(x), y);
///     loss.backward();
///     optimizer.step();
///     optimizer.zero_grad();
///     return loss;
///   });
///   for (const auto& [x, y] : batches) losses.push_back(step(x, y));
/// \endcode
/// On a CUDA device the first call with arguments of a kind runs `fn`; the second records what it queues as a CUDA
/// graph; from then on a call copies the tensors among its arguments to where the graph reads them, and launches it. On
/// other devices each call runs `fn`. Arguments are tensors, numbers, texts, and lists, tuples and pairs of those;
/// other shapes, strides, dtypes, plain values or gradient modes make another graph (autocast belongs inside). Tensors
/// that `fn` knows without being given them are read and written where they were, so its model and optimizer must live
/// as long as this does; what it does on the host (printing, counting, a schedule's step, which belongs between calls)
/// happens while it runs and is recorded, and not at a replay. Random numbers, the optimizer's learning rates and count
/// of steps, and the gradients that tensors hold between calls are as if it ran.
///
/// Throws, naming the op, where what cannot be recorded is met: a value of the device that the host reads (item()), an
/// optimizer that computes on the host, an argument on another device or one that `fn` writes to. Then, and where `fn`
/// throws, nothing of a call that was to be captured has happened to tensors, random numbers or gradients.
/// AutogradError where an argument requires a gradient.
template <class F>
Graphed<std::decay_t<F>> graphed(F&& fn, const GraphedOptions& options = {}) {
  return Graphed<std::decay_t<F>>(std::forward<F>(fn), options);
}

}  // namespace strata
