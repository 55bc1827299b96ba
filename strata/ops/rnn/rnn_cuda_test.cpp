// Recurrent layers on a CUDA device against the CPU's, and what the kernels' launches promise.

#include <string_view>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/rnn/rnn.h"
#include "strata/ops/rnn/slstm.h"

namespace strata {
namespace {

class CudaRecurrent : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

struct Problem {
  Tensor x, h, c;
  TensorList parameters;
  std::string_view cell;
};

// Numbers that all dtypes share.
Problem problem(std::string_view cell, int64_t steps, int64_t batch, int64_t hidden, DType dtype, Device device) {
  manual_seed(5);
  const int64_t in = 20, width = hidden * (cell == "lstm" || cell == "slstm" ? 4 : cell == "gru" ? 3 : 1);
  const double most = 1 / std::sqrt(static_cast<double>(hidden));
  const auto drawn = [&](const Shape& shape, double bound) {
    Tensor t = uniform(shape, -bound, bound).to(DType::bf16).to(dtype).to(device);
    t.set_requires_grad();
    return t;
  };
  return {drawn({steps, batch, in}, 1),
          drawn({1, batch, hidden}, 1),
          drawn({1, batch, hidden}, 1),
          {drawn({width, in}, 0.3), drawn({width, hidden}, most), drawn({width}, most), drawn({width}, most)},
          cell};
}

Tensor output(const Problem& p) {
  if (p.cell == "slstm") return std::get<0>(slstm(p.x, {}, p.parameters));
  if (p.cell == "lstm") return std::get<0>(lstm(p.x, {p.h, p.c}, p.parameters));
  return std::get<0>(p.cell == "gru" ? gru(p.x, p.h, p.parameters) : rnn_tanh(p.x, p.h, p.parameters));
}

// The output, and the gradients of everything.
TensorList results(const Problem& p) {
  const Tensor y = output(p);
  TensorList inputs = p.parameters;
  inputs.push_back(p.x);
  if (p.cell != "slstm") inputs.push_back(p.h);
  if (p.cell == "lstm") inputs.push_back(p.c);
  manual_seed(6);
  TensorList all = grad({y}, inputs, {randn(y.shape()).to(DType::bf16).to(y.dtype()).to(y.device())}, false);
  all.push_back(y);
  return all;
}

struct Tf32 {
  explicit Tf32(bool on) { set_allow_tf32_convolutions(on); }
  ~Tf32() { set_allow_tf32_convolutions(true); }
  Tf32(const Tf32&) = delete;
};

TEST_F(CudaRecurrent, AgreesWithTheCpuOverManySteps) {
  const Tf32 off(false);
  for (const std::string_view cell : {"lstm", "gru", "tanh", "slstm"})
    for (const auto& [batch, hidden] : {std::pair(1, 1), {3, 100}, {50, 131}, {19, 520}}) {
      for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-10), {DType::f32, 1e-4}}) {
        const TensorList here = results(problem(cell, 30, batch, hidden, DType::f64, Device::cpu())),
                         there = results(problem(cell, 30, batch, hidden, dtype, Device::cuda()));
        ASSERT_EQ(here.size(), there.size());
        for (size_t i = 0; i < here.size(); ++i)
          EXPECT_LE(difference(there[i], here[i]), tolerance) << cell << " " << batch << " " << hidden << " " << i;
      }
    }
}

// As it comes: products in TF32, those within the steps too, forward and in gradients, which other operands than whole
// ones show. Few and many sequences and units take other kernels.
TEST_F(CudaRecurrent, RoundsProductsToTf32) {
  for (const std::string_view cell : {"lstm", "gru", "tanh", "slstm"})
    for (const auto& [batch, hidden] : {std::pair(32, 256), {5, 17}, {200, 48}, {70, 520}}) {
      const Problem p = problem(cell, 20, batch, hidden, DType::f32, Device::cuda());
      const TensorList here = results(problem(cell, 20, batch, hidden, DType::f64, Device::cpu())), there = results(p);
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_LE(difference(there[i], here[i]), 5e-3) << cell << " " << batch << " " << hidden << " " << i;
      const Tf32 off(false);
      const TensorList whole = results(p);
      double most = 0;
      for (size_t i = 0; i < 2; ++i)
        most = std::max(most, difference(there[i], whole[i].to(DType::f64).to(Device::cpu())));
      EXPECT_GT(most, 1e-7) << cell << " " << batch << " " << hidden;
    }
}

// Layers whose weight lies in registers, from a place that is none of 16 bytes too.
TEST_F(CudaRecurrent, SmallLayersAlone) {
  for (const auto& [cell, hidden, dtype, tolerance] :
       {std::tuple<std::string_view, int64_t, DType, double>("tanh", 128, DType::f32, 5e-3),
        {"tanh", 256, DType::f16, 5e-3},
        {"lstm", 64, DType::f32, 5e-3},
        {"gru", 64, DType::bf16, 4e-2},
        {"lstm", 40, DType::bf16, 4e-2}}) {
    const TensorList here = results(problem(cell, 12, 37, hidden, DType::f64, Device::cpu())),
                     there = results(problem(cell, 12, 37, hidden, dtype, Device::cuda()));
    for (size_t i = 0; i < here.size(); ++i) {
      double largest = 1;
      for (const double v : here[i].to_vector<double>()) largest = std::max(largest, std::fabs(v));
      EXPECT_LE(difference(there[i], here[i]), tolerance * largest) << cell << " " << hidden << " " << i;
    }
    const NoGrad guard;
    Problem p = problem(cell, 12, 37, hidden, dtype, Device::cuda());
    const std::vector<double> wanted = output(p).to_vector<double>();
    const Tensor wide = zeros({p.parameters[1].numel() + 1}).to(dtype).to(Device::cuda());
    Tensor moved = wide.narrow(0, 1, p.parameters[1].numel()).reshape(p.parameters[1].shape());
    moved.copy_(p.parameters[1]);
    p.parameters[1] = moved;
    EXPECT_EQ(output(p).to_vector<double>(), wanted) << cell << " " << hidden;
  }
}

// Steps that fill the card are products of the library: both directions of time, the gradients of everything, the same
// bits again and in a graph.
TEST_F(CudaRecurrent, LargeStepsByTheLibrarysProducts) {
  for (const auto& [cell, batch] : {std::pair<std::string_view, int64_t>("lstm", 130), {"gru", 180}, {"tanh", 520}}) {
    const TensorList here = results(problem(cell, 4, batch, 1024, DType::f64, Device::cpu()));
    const Problem p = problem(cell, 4, batch, 1024, DType::f32, Device::cuda());
    const TensorList there = results(p), again = results(p);
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_LE(difference(there[i], here[i]), 5e-3) << cell << " " << i;
      EXPECT_EQ(there[i].to_vector<double>(), again[i].to_vector<double>()) << cell << " " << i;
    }
    const NoGrad guard;
    cuda::Graph graph;
    Tensor y;
    graph.capture([&] { y = output(p); });
    graph.replay();
    EXPECT_EQ(y.to_vector<double>(), there.back().to_vector<double>()) << cell;
  }
  const auto both_ways = [](DType dtype, const Device& device) {
    Problem p = problem("lstm", 3, 260, 1024, dtype, device);
    TensorList parameters = p.parameters;
    parameters.insert(parameters.end(), p.parameters.begin(), p.parameters.end());
    TensorList inputs = p.parameters;
    inputs.push_back(p.x);
    const auto [y, h, c] = lstm(p.x, {}, parameters, {.bidirectional = true});
    TensorList all = grad({y, c}, inputs, {ones_like(y), ones_like(c)}, false);
    all.push_back(y);
    return all;
  };
  const TensorList here = both_ways(DType::f64, Device::cpu());
  for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-10), {DType::f32, 5e-3}, {DType::bf16, 5e-2}}) {
    const TensorList there = both_ways(dtype, Device::cuda());
    for (size_t i = 0; i < here.size(); ++i) {
      double largest = 1;  // gradients of sums are
      for (const double v : here[i].to_vector<double>()) largest = std::max(largest, std::fabs(v));
      EXPECT_LE(difference(there[i], here[i]), tolerance * largest) << static_cast<int>(dtype) << " " << i;
    }
  }
}

TEST_F(CudaRecurrent, OneSequenceWithoutBiasesOrGradients) {
  const NoGrad guard;
  const auto run = [](std::string_view cell, DType dtype, const Device& device) {
    Problem p = problem(cell, 256, 1, 256, dtype, device);
    p.parameters.resize(2);
    const Tensor x = p.x.select(1, 0);
    const RecurrentArguments bare{.has_biases = false};
    if (cell == "lstm") return std::get<0>(lstm(x, {}, p.parameters, bare));
    return std::get<0>(cell == "gru" ? gru(x, {}, p.parameters, bare) : rnn_tanh(x, {}, p.parameters, bare));
  };
  for (const std::string_view cell : {"lstm", "gru", "tanh"}) {
    const Tensor here = run(cell, DType::f64, Device::cpu());
    EXPECT_LE(difference(run(cell, DType::f32, Device::cuda()), here), 5e-3) << cell;
    const Tf32 off(false);
    EXPECT_LE(difference(run(cell, DType::f32, Device::cuda()), here), 1e-4) << cell;
  }
}

// Two layers of both directions over sequences of other lengths, and the gradients of everything.
TEST_F(CudaRecurrent, PackedLayersAgreeWithTheCpus) {
  std::vector<int64_t> sizes;
  for (int64_t t = 0; t < 40; ++t) sizes.push_back(t < 3 ? 50 : 50 - t);
  const Tensor counts = from_span<int64_t>(sizes, {40});
  int64_t rows = 0;
  for (const int64_t n : sizes) rows += n;
  const auto run = [&](bool projects, DType dtype, const Device& device) {
    manual_seed(9);
    const auto drawn = [&](const Shape& shape, double bound) {
      Tensor t = uniform(shape, -bound, bound).to(DType::bf16).to(dtype).to(device);
      t.set_requires_grad();
      return t;
    };
    const int64_t hidden = 70, real = projects ? 30 : hidden;
    TensorList inputs{drawn({rows, 24}, 1), drawn({4, 50, real}, 1), drawn({4, 50, hidden}, 1)};
    for (int64_t i = 0; i < 4; ++i) {
      inputs.push_back(drawn({4 * hidden, i < 2 ? 24 : 2 * real}, 0.2));
      inputs.push_back(drawn({4 * hidden, real}, 0.1));
      for (int k = 0; k < 2; ++k) inputs.push_back(drawn({4 * hidden}, 0.1));
      if (projects) inputs.push_back(drawn({real, hidden}, 0.1));
    }
    const auto [y, h, c] = lstm(inputs[0], {inputs[1], inputs[2]}, TensorList(inputs.begin() + 3, inputs.end()),
                                {.num_layers = 2, .bidirectional = true, .batch_sizes = counts});
    manual_seed(10);
    const auto weight = [&](const Tensor& t) { return randn(t.shape()).to(DType::bf16).to(dtype).to(device); };
    TensorList all = grad({y, h, c}, inputs, {weight(y), weight(h), weight(c)}, false);
    all.insert(all.end(), {y, h, c});
    return all;
  };
  const Tf32 off(false);
  for (const bool projects : {false, true}) {
    const TensorList here = run(projects, DType::f64, Device::cpu());
    for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-10), {DType::f32, 2e-4}}) {
      const TensorList there = run(projects, dtype, Device::cuda());
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_LE(difference(there[i], here[i]), tolerance) << projects << " " << i;
    }
  }
}

TEST_F(CudaRecurrent, TheSameBitsEveryTime) {
  for (const std::string_view cell : {"lstm", "gru", "tanh", "slstm"})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const Problem p = problem(cell, 60, 40, 300, dtype, Device::cuda());
      const TensorList first = results(p);
      for (int i = 0; i < 3; ++i) {
        const TensorList again = results(p);
        for (size_t k = 0; k < first.size(); ++k)
          EXPECT_EQ(again[k].to_vector<double>(), first[k].to_vector<double>()) << cell << k;
      }
    }
}

TEST_F(CudaRecurrent, TwoStreamsAtATime) {
  const NoGrad guard;
  const Problem p = problem("lstm", 200, 20, 256, DType::f32, Device::cuda());
  const std::vector<double> alone = output(p).to_vector<double>();
  const cuda::Stream main = cuda::current_stream(), side = cuda::Stream::create();
  side.wait(main);
  TensorList here, there;
  for (int i = 0; i < 4; ++i) {
    here.push_back(output(p));
    const cuda::StreamScope scope(side);
    there.push_back(output(p));
  }
  cuda::synchronize();
  for (const TensorList& list : {here, there})
    for (const Tensor& y : list) EXPECT_EQ(y.to_vector<double>(), alone);
}

TEST_F(CudaRecurrent, InAGraph) {
  const NoGrad guard;
  for (const std::string_view cell : {"lstm", "gru", "slstm"}) {
    Problem p = problem(cell, 20, 20, 256, DType::f32, Device::cuda());
    output(p);
    cuda::Graph graph;
    Tensor y;
    graph.capture([&] { y = output(p); });
    p.x.mul_(0.5);
    const std::vector<double> wanted = output(p).to_vector<double>();
    for (int i = 0; i < 3; ++i) {
      graph.replay();
      EXPECT_EQ(y.to_vector<double>(), wanted) << cell;
    }
  }
}

}  // namespace
}  // namespace strata
