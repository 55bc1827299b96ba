#pragma once
// Modules made of other modules.

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "strata/nn/module.h"

namespace strata::nn {

/// One module after the other, registered as "0", "1", ...:
///     nn::Sequential net(nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 1));
///     Tensor y = net(x);
class Sequential : public Module {
 public:
  /// Any modules with `Tensor forward(const Tensor&)`.
  template <class... M>
  requires(std::derived_from<M, Module>&&...) explicit Sequential(M... modules) : Module("Sequential") {
    (push_back(std::move(modules)), ...);
  }
  template <std::derived_from<Module> M>
  void push_back(M module) {
    steps_.push_back(std::make_shared<StepOf<M>>(register_module(std::to_string(steps_.size()), std::move(module))));
  }
  size_t size() const { return steps_.size(); }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const auto& step : steps_) y = step->forward(y);
    return y;
  }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  struct Step {
    virtual ~Step() = default;
    virtual Tensor forward(const Tensor& x) = 0;
  };
  template <class M>
  struct StepOf final : Step {
    explicit StepOf(M m) : module(std::move(m)) {}
    Tensor forward(const Tensor& x) override {
      return called(module, x, [this](const Tensor& t) { return module.forward(t); });
    }
    M module;
  };
  std::vector<std::shared_ptr<Step>> steps_;
};

/// Modules of one type, registered as "0", "1", ...; what to do with them is the owner's business:
///     nn::ModuleList<nn::Linear> layers = register_module("layers", nn::ModuleList<nn::Linear>());
///     for (int i = 0; i < 4; ++i) layers.push_back(nn::Linear(64, 64));
///     for (const nn::Linear& layer : layers) x = relu(layer(x));
template <std::derived_from<Module> M>
class ModuleList : public Module {
 public:
  ModuleList() : Module("ModuleList") {}
  void push_back(M module) { list_.push_back(register_module(std::to_string(list_.size()), std::move(module))); }
  size_t size() const { return list_.size(); }
  bool empty() const { return list_.empty(); }
  M& operator[](size_t i) { return list_.at(i); }
  const M& operator[](size_t i) const { return list_.at(i); }
  auto begin() { return list_.begin(); }
  auto end() { return list_.end(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<M> list_;
};

}  // namespace strata::nn
