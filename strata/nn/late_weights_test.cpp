// Weights that come one after the other: the same bits, and a start that never has all of them.
#include <gtest/gtest.h>

#include <map>

#include "strata/core/error_test_util.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/processes_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/nn/convert.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/fully_sharded_test_util.h"
#include "strata/nn/init.h"
#include "strata/nn/late_weights_inl.h"

namespace strata::nn {
namespace {

using distributed::Mesh;

// One of every way to fill a weight.
struct Filled : Module {
  Filled() : Module("Filled") {
    init::trunc_normal_(new_parameter("cut", {5, 7}), 0.5, 2);
    init::constant_(new_parameter("same", {3, 4}), 0.25);
    init::orthogonal_(new_parameter("turned", {6, 3}));
    init::sparse_(new_parameter("thin", {9, 4}), 0.5);
    init::eye_(new_parameter("eye", {4, 4}));
    init::dirac_(new_parameter("delta", {4, 2, 3}));
    init::xavier_normal_(init::kaiming_uniform_(new_parameter("twice", {8, 8})));  // the last one counts
    init::uniform_(new_parameter("bias", {8}));
    init::normal_(new_parameter("own", {2, 9}), 0, 1, own_);
    register_module("map", Linear(6, 5));
    register_module("table", Embedding(11, 4));
  }
  Generator own_{77};
};

std::map<std::string, std::vector<double>> values(const Module& m) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, t] : m.named_parameters()) all[name] = t.to_vector<double>();
  return all;
}

TEST(LateWeights, HaveTheBitsOfThoseThatCameAtOnce) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    manual_seed(3);
    const Filled at_once;
    convert_parameters(at_once, dtype);
    const uint64_t drawn = default_generator().state().offset;
    manual_seed(3);
    detail::LateWeights late;
    const Filled m;
    late.made();
    convert_parameters(m, dtype);
    EXPECT_EQ(default_generator().state().offset, drawn);
    int waiting = 0;
    for (const auto& [name, t] : m.named_parameters()) waiting += detail::is_late(t);
    EXPECT_EQ(waiting, 6);  // bias has one dimension, and what is no plain draw has come
    late.come(m);
    EXPECT_EQ(values(m), values(at_once)) << name_of(dtype);
    EXPECT_EQ(default_generator().state().offset, drawn);
    EXPECT_TRUE(Linear(2, 2).weight.device().is_cpu());
  }
}

TEST(LateWeights, NotDrawnAreNotFilledAndNotWantedStayAway) {
  const init::SkipDraws from_file;
  detail::LateWeights late;
  const Linear m(6, 5), other(6, 5);
  late.made();
  detail::never_come(other.weight);
  late.come(m);
  late.come(other);
  EXPECT_TRUE(m.weight.device().is_cpu());
  EXPECT_TRUE(other.weight.is_meta());
  EXPECT_FALSE(detail::is_late(other.weight));
}

TEST(LateWeights, PartsAreNotFilledAndScopesDoNotNest) {
  detail::LateWeights late;
  const Linear m(6, 5);
  EXPECT_NE(message<ValueError>([&] { init::zeros_(m.weight.narrow(0, 0, 2)); }).find("by itself"), std::string::npos);
  EXPECT_NE(message<ValueError>([] { const detail::LateWeights second; }).find("one lives"), std::string::npos);
}

// What the start of a rank takes at most, by the allocator's count, and that its parts are those of the whole model.
TEST(LateWeights, ARankBeginsWithItsPartsAndOneWhole) {
  distributed::on_processes(4, [](int) {
    distributed::set_mesh(Mesh("dp=4"));
    constexpr int kBlocks = 8;
    std::map<std::string, std::vector<double>> want;
    int64_t whole = 0, largest = 0;
    {
      const Net net(1, 256, kBlocks);
      want = values(net);
      for (const Tensor& t : net.parameters()) {
        whole += t.nbytes();
        largest = std::max<int64_t>(largest, t.nbytes());
      }
    }
    const int64_t before = memory::stats(Device::cpu()).live_total;
    memory::reset_peak(Device::cpu());
    detail::LateWeights late;
    const Net net(1, 256, kBlocks);
    late.made();
    FullySharded sharded(net, {.zero = 3});
    late.come(net);
    const int64_t peak = memory::stats(Device::cpu()).peak_total - before;
    is(peak > whole / 4 && peak < whole / 4 + 3 * largest, cat("a start takes ", peak, " bytes of a model of ", whole));
    for (const auto& [name, t] : sharded.parameters())
      is(distributed::full_tensor(t).to_vector<double>() == want.at(name), name);
  });
}

}  // namespace
}  // namespace strata::nn
