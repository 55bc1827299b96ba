#include "strata/optim/row_optimizer.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"
#include "strata/strata.h"

namespace strata::optim {
namespace {

class RowOptimizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    manual_seed(3);
    path_ = std::filesystem::temp_directory_path() / "strata-rows-XXXXXX";
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  struct Place {
    std::string name;
    nn::FeatureTableOptions options;
  };
  std::vector<Place> places() const {
    std::vector<Place> all = {{"RAM", {}},
                              {"RAM, some kept", {.cache_bytes = 200}},
                              {"disk", {.home = memory::kDisk, .cache_bytes = 200, .directories = {path_}}}};
    if (cuda::device_count() > 0) {
      all.push_back({"the card", {.device = Device::cuda()}});
      all.push_back({"the card, from disk",
                     {.device = Device::cuda(), .home = memory::kDisk, .cache_bytes = 200, .directories = {path_}}});
      if (memory::find_backend(DeviceType::cuda, memory::kUnified))
        all.push_back(
            {"the card, over the bus", {.device = Device::cuda(), .home = memory::kUnified, .cache_bytes = 200}});
    }
    return all;
  }

  std::string path_;
};

Tensor ids(const std::vector<int64_t>& v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}
bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu()).contiguous(), y = b.to(Device::cpu()).contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}
template <class E, class F>
void refuses(F&& f, const std::string& text) {
  const std::string said = message<E>(f);
  EXPECT_NE(said.find(text), std::string::npos) << said;
}

struct Kind {
  std::string name;
  OptionValues options;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"adamw", {{"lr", 0.1}, {"weight_decay", 0.2}}},
      {"adamw", {{"lr", 0.1}, {"amsgrad", true}}},
      {"adam", {{"lr", 0.05}, {"weight_decay", 0.1}}},
      {"adagrad", {{"lr", 0.3}, {"initial_accumulator_value", 0.5}}},
      {"sgd", {{"lr", 0.5}}},
      {"sgd", {{"lr", 0.5}, {"momentum", 0.9}}},
      {"rmsprop", {{"lr", 0.1}}},
  };
  return all;
}

TEST_F(RowOptimizerTest, AFirstStepIsThatOfTheDenseOptimizerOnTouchedRows) {
  for (const Place& place : places())
    for (const Kind& kind : kinds())
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        SCOPED_TRACE(cat(place.name, ", ", kind.name, " ", dtype));
        const Tensor start = randn({40, 13}).to(dtype), index = ids({7, 0, 7, 39, 22, 0});
        nn::FeatureTable table(start, place.options);
        table.set_requires_grad(true);
        RowOptimizer rows(table, kind.name, kind.options);
        const Tensor weights = randn({6, 13}).to(place.options.device).to(dtype);
        (table.gather(index) * weights).sum().backward();
        const nn::RowGradient g = table.gradient();
        // The dense one where these rows are updated: what a card's loops round is theirs.
        const bool on_card = place.options.device.is_cuda() && place.options.home != memory::kDisk;
        const Device where = on_card ? Device::cuda() : Device::cpu();
        Tensor dense = start.to(where).clone().set_requires_grad();
        Tensor full = zeros({40, 13}, g.values.dtype()).to(where);
        full.index_put_({g.rows.to(where)}, g.values.to(where));
        dense.set_grad(full);
        make_optimizer(kind.name, {{{{"table", dense}}, kind.options}})->step(0.5);
        rows.step(0.5);
        EXPECT_EQ(rows.updates(), 1);
        EXPECT_EQ(table.gradient().rows.numel(), 0);
        const Tensor touched = ids({0, 7, 22, 39}), now = table.read(0, 40);
        EXPECT_TRUE(
            same_bits(index_select(now, 0, touched), index_select(dense.detach().to(Device::cpu()), 0, touched)));
        Tensor rest = start.clone();
        rest.index_put_({touched}, index_select(now, 0, touched));
        EXPECT_TRUE(same_bits(rest, now));  // no other row has changed
        EXPECT_TRUE(same_bits(table.gather(arange(40)), now));
      }
}

// Adam without weight decay is what SparseAdam does, step by step; they add eps in different places.
TEST_F(RowOptimizerTest, StepsAreThoseOfSparseAdam) {
  Tensor first;  // of the processor: the same bits wherever the rows are
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    manual_seed(3);
    const Tensor start = randn({20, 9});
    nn::FeatureTable table(start, place.options);
    table.set_requires_grad(true);
    RowOptimizer rows(table, "adam", {{"lr", 0.1}, {"eps", 1e-20}});
    const Tensor dense = start.clone().set_requires_grad();
    SparseAdam sparse({{"table", dense}}, {.lr = 0.1, .eps = 1e-20});
    for (int step = 0; step < 6; ++step) {
      const Tensor index = randint(0, 20, {5}), weights = randn({5, 9});
      table.prefetch(index);
      (table.gather(index) * weights.to(place.options.device)).sum().backward();
      rows.step();
      sparse.zero_grad();
      (embedding(index, dense) * weights).sum().backward();
      sparse.step();
    }
    const Tensor now = table.read(0, 20);
    EXPECT_TRUE(allclose(now, dense.detach(), 1e-5, 1e-6));
    if (place.options.device.is_cuda()) continue;
    if (!first.defined()) first = now;
    EXPECT_TRUE(same_bits(now, first));
  }
}

TEST_F(RowOptimizerTest, BatchesBegunBeforeAnUpdateSeeIt) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    nn::FeatureTable table(randn({30, 8}), place.options);
    table.set_requires_grad(true);
    RowOptimizer rows(table, "sgd", {{"lr", 1.0}});
    const Tensor next = ids({4, 5, 29, 4});
    const Tensor used = table.gather(ids({4, 29, 1}));
    table.prefetch(next);
    used.sum().backward();
    rows.step();
    const NoGrad off;
    EXPECT_TRUE(same_bits(table.gather(next), embedding(next, table.read(0, 30))));
  }
}

TEST_F(RowOptimizerTest, ResultsDoNotDependOnThreadsOrChunks) {
  const Tensor start = randn({9000, 40}), index = randint(0, 9000, {20000}), weights = randn({20000, 40});
  const auto run = [&](int threads, nn::FeatureTableOptions options) {
    const int before = num_threads();
    set_num_threads(threads);
    nn::FeatureTable table(start, options);
    table.set_requires_grad(true);
    RowOptimizer rows(table, "adagrad");
    for (int step = 0; step < 2; ++step) {
      (table.gather(index) * weights).sum().backward();
      rows.step();
    }
    set_num_threads(before);
    return table.read(0, 9000);
  };
  const Tensor one = run(1, {});
  EXPECT_FALSE(same_bits(one, start));
  EXPECT_TRUE(same_bits(run(3, {}), one));
  EXPECT_TRUE(same_bits(run(2, {.home = memory::kDisk, .cache_bytes = 100 * 160, .directories = {path_}}), one));
}

TEST_F(RowOptimizerTest, GoesOnFromWhatACheckpointKept) {
  for (const Place& place : places()) {
    SCOPED_TRACE(place.name);
    const Tensor start = randn({12, 5});
    std::vector<Tensor> indices, weights;
    for (int i = 0; i < 4; ++i) {
      indices.push_back(randint(0, 12, {6}));
      weights.push_back(randn({6, 5}).to(place.options.device));
    }
    const auto steps = [&](nn::FeatureTable& table, RowOptimizer& rows, size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) {
        (table.gather(indices[i]) * weights[i]).sum().backward();
        rows.step();
      }
    };
    const auto make = [&](const Tensor& values) {
      auto table = std::make_unique<nn::FeatureTable>(values, place.options);
      table->set_requires_grad(true);
      return table;
    };
    const auto whole = make(start), half = make(start);
    RowOptimizer first(*whole, "adamw"), second(*half, "adamw");
    steps(*whole, first, 0, 4);
    steps(*half, second, 0, 2);
    const auto resumed = make(half->read(0, 12));
    RowOptimizer third(*resumed, "adamw");
    EXPECT_EQ(third.states(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
    for (const std::string& s : third.states()) third.write_state(s, 0, second.read_state(s, 0, 12));
    third.set_updates(second.updates());
    steps(*resumed, third, 2, 4);
    EXPECT_TRUE(same_bits(resumed->read(0, 12), whole->read(0, 12)));
    EXPECT_TRUE(same_bits(third.read_state("exp_avg_sq", 3, 5), first.read_state("exp_avg_sq", 3, 5)));
  }
}

TEST_F(RowOptimizerTest, RefusesWhatItCannotDo) {
  nn::FeatureTable table(randn({4, 3})), whole(zeros({4, 3}, DType::i32));
  refuses<ValueError>([&] { RowOptimizer(table, "adamm"); }, "adamm");
  refuses<ValueError>([&] { RowOptimizer(table, "sparse_adam"); }, "adam does the same");
  refuses<ValueError>([&] { RowOptimizer(table, "muon"); }, "muon");
  refuses<ValueError>([&] { RowOptimizer(table, "lbfgs"); }, "lbfgs");
  refuses<ValueError>([&] { RowOptimizer(table, "adam", {{"beta1", 2.0}}); }, "beta1");
  refuses<ValueError>([&] { RowOptimizer(table, "adam", {{"low_state", true}}); }, "low_state");
  refuses<DTypeError>([&] { RowOptimizer(whole, "adam"); }, "no gradient");
  RowOptimizer rows(table, "adam");
  refuses<ValueError>([&] { rows.read_state("sum", 0, 1); }, "exp_avg, exp_avg_sq");
  refuses<IndexError>([&] { rows.read_state("exp_avg", 3, 2); }, "[3, 5)");
  refuses<ShapeError>([&] { rows.write_state("exp_avg", 0, zeros({4, 2})); }, "rows of 3");
  refuses<DTypeError>([&] { rows.write_state("exp_avg", 0, zeros({4, 3}, DType::f64)); }, "f32");
  refuses<ValueError>([&] { rows.set_updates(-1); }, "negative");
  EXPECT_EQ(rows.lr(), 1e-3);
  rows.set_lr(0.25);
  EXPECT_EQ(rows.lr(), 0.25);
  rows.step();  // no gradients: nothing to do
  EXPECT_EQ(rows.updates(), 1);
}

}  // namespace
}  // namespace strata::optim
