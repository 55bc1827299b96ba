// A dry run of a step tells its peak within a tenth (the memory estimators' row): an MLP, a convolutional network, a
// transformer's encoder and a module of one's own, at two batch sizes and optimizers.

#include <functional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/recording.h"
#include "strata/memory/allocator.h"
#include "strata/nn/nn.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim.h"

namespace strata {
namespace {

// A network's parameters and its loss of one batch.
struct Program {
  TensorList parameters;
  std::function<Tensor()> loss;
};
using Make = std::function<Program(int64_t batch)>;

Tensor input(Shape shape) {
  const memory::TagScope tag(memory::Tag::data);
  return full(shape, 0.5, DType::f32);
}

Program mlp(int64_t batch) {
  auto net = std::make_shared<nn::Sequential>(nn::Linear(256, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::GELU(),
                                              nn::Linear(1024, 128));
  const Tensor x = input({batch, 256});
  return {net->parameters(), [net, x] { return mean((*net)(x)*2.0); }};
}

Program cnn(int64_t batch) {
  auto net = std::make_shared<nn::Sequential>(nn::Conv2d(3, 32, 3, {.padding = {1}}), nn::BatchNorm2d(32), nn::ReLU(),
                                              nn::MaxPool2d(2), nn::Conv2d(32, 64, 3, {.padding = {1}}), nn::ReLU(),
                                              nn::Flatten(), nn::Linear(64 * 16 * 16, 10));
  const Tensor x = input({batch, 3, 32, 32});
  return {net->parameters(), [net, x] { return mean((*net)(x)); }};
}

Program encoder(int64_t batch) {
  auto net = std::make_shared<nn::TransformerEncoder>(nn::TransformerOptions{
      .d_model = 128, .nhead = 4, .num_encoder_layers = 3, .dim_feedforward = 512, .dropout = 0.1});
  const Tensor x = input({64, batch, 128});
  return {net->parameters(), [net, x] { return mean((*net)(x)); }};
}

// One's own: branches, a weight that is used twice, control flow.
struct Own : nn::Module {
  nn::Linear a = register_module("a", nn::Linear(512, 512));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(Shape{512}));
  Tensor gate = register_parameter("gate", ones({512}));
  Tensor forward(Tensor x) const {
    for (int i = 0; i < 3; ++i) {
      const Tensor y = gelu(a(norm(x)));
      x = i % 2 == 0 ? x + y * gate : x - sigmoid(y);
    }
    return x;
  }
};
Program own(int64_t batch) {
  auto net = std::make_shared<Own>();
  const Tensor x = input({batch * 4, 512});
  return {net->parameters(), [net, x] { return mean(net->forward(x)); }};
}

// A program in training; a first step has made the optimizer's state.
struct Training {
  Training(const Make& make, int64_t batch, const std::string& name)
      : program(make(batch)), optimizer(optim::make_optimizer(name, {{optim::number_params(program.parameters)}})) {
    step();
  }
  void step() const {
    optimizer->zero_grad();
    program.loss().backward();
    optimizer->step();
  }
  Program program;
  std::unique_ptr<optim::Optimizer> optimizer;
};

int64_t dry_peak(const Make& make, int64_t batch, const std::string& optimizer) {
  const DeviceScope dry(Device::meta());
  const Training training(make, batch, optimizer);
  return record([&] { training.step(); }).peak_bytes().first;
}

int64_t real_peak(const Make& make, int64_t batch, const std::string& optimizer) {
  // What kernels take for themselves, and keep, is not of the program.
  const auto workspace = static_cast<int>(memory::Tag::workspace);
  const memory::Stats before = memory::stats(Device::cpu());
  const Training training(make, batch, optimizer);
  memory::reset_peak(Device::cpu());
  training.step();
  const memory::Stats s = memory::stats(Device::cpu());
  return s.peak_total - s.peak[workspace] - (before.live_total - before.live[workspace]);
}

TEST(DryRun, TellsThePeakOfOrdinaryPrograms) {
  const std::pair<const char*, Make> programs[] = {{"mlp", mlp}, {"cnn", cnn}, {"encoder", encoder}, {"own", own}};
  for (const auto& [name, make] : programs)
    for (const int64_t batch : {16, 96})
      for (const char* optimizer : {"adamw", "sgd"}) {
        const auto dry = static_cast<double>(dry_peak(make, batch, optimizer));
        const auto real = static_cast<double>(real_peak(make, batch, optimizer));
        EXPECT_NEAR(dry / real, 1, 0.1) << name << ", batch " << batch << ", " << optimizer << ": " << dry << " and "
                                        << real;
      }
}

}  // namespace
}  // namespace strata
