// Who clicks on what is learnt with a table of users and items that lives where there is room for it, and is updated
// there: in memory, in page-locked memory that a card reads in place, or on a disk.
//     recommender [USERS [CACHE_MIB [DIRECTORY]]]
// With a directory the table and its optimizer's state are in a file there and CACHE_MIB of the rows in memory. The
// model is DLRM's (Naumov et al., 2019) in small: products of embeddings, and a network over them and dense features.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include <strata/data/feature_loader.h>
#include <strata/optim/row_optimizer.h>

#include "table.h"

using namespace strata;

namespace {

constexpr int64_t kWidth = 16, kDense = 4, kPlanted = 4;

// A number in [-1, 1) that belongs to (thing, place): the planted taste of a user, or kind of an item.
float planted(int64_t thing, int64_t place) {
  std::mt19937_64 random(static_cast<uint64_t>(thing) * 7919u + static_cast<uint64_t>(place) * 104729u + 17u);
  random.discard(3);
  return static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
}

// Visits: {rows [n, 2] of user and item, dense [n, kDense], clicked [n]}. Popular ones come more often.
class Visits final : public data::Dataset {
 public:
  Visits(int64_t users, int64_t items) : users_(users), items_(items) {}
  int64_t size() const override { return int64_t{1} << 40; }
  data::Batch get_batch(std::span<const data::Sample> samples) const override {
    std::vector<int64_t> rows;
    std::vector<float> dense, clicked;
    for (const data::Sample& s : samples) {
      std::mt19937_64 random(static_cast<uint64_t>(s.index));
      random.discard(2);
      std::uniform_real_distribution<double> uniform(0, 1);
      const auto popular = [&](int64_t n) {
        const double u = uniform(random);
        return std::min(n - 1, static_cast<int64_t>(u * u * u * static_cast<double>(n)));
      };
      const int64_t user = popular(users_), item = users_ + popular(items_);
      double likes = 0;
      for (int64_t k = 0; k < kPlanted; ++k) likes += 4 * planted(user, k) * planted(item, k);
      for (int64_t k = 0; k < kDense; ++k) dense.push_back(static_cast<float>(2 * uniform(random) - 1));
      likes += dense[dense.size() - 1];
      rows.push_back(user);
      rows.push_back(item);
      clicked.push_back(uniform(random) < 1 / (1 + std::exp(-likes)) ? 1.f : 0.f);
    }
    const auto n = static_cast<int64_t>(samples.size());
    return {from_span<int64_t>(rows, {n, 2}), from_span<float>(dense, {n, kDense}), from_span<float>(clicked, {n})};
  }

 private:
  int64_t users_, items_;
};

}  // namespace

int main(int argc, char** argv) {
  const int64_t users = argc > 1 ? std::atoll(argv[1]) : 600, items = users / 3;
  manual_seed(1);

  const nn::FeatureTableOptions options = table_options(argc, argv);
  const auto table = std::make_shared<nn::FeatureTable>(users + items, kWidth, DType::f32, options);
  write_in_parts(users + items, [&](int64_t first, int64_t count) {
    table->write(first, randn({count, kWidth}) * 0.3);
  });
  table->set_requires_grad(true);
  optim::RowOptimizer rows(*table, "adagrad", {{"lr", 0.15}});

  nn::Sequential net(nn::Linear(2 * kWidth + kDense, 32), nn::ReLU(), nn::Linear(32, 1));
  net.to(options.device);
  optim::AdamW optimizer(net.named_parameters(), {0.003});

  data::FeatureLoader visits(
      data::DataLoader(std::make_shared<Visits>(users, items), {.batch_size = 256, .shuffle = true, .repeat = true}),
      table, {.ahead = 1});
  const int steps = 300;
  double begin = 0, end = 0;
  for (int step = 0; step < steps; ++step) {
    const auto batch = *visits.next();
    const Tensor user = batch[3].select(1, 0), item = batch[3].select(1, 1), product = user * item;
    const Tensor input = cat({product, user + item, batch[1].to(options.device)}, -1);
    const Tensor likes = net(input).squeeze(-1) + product.sum({1});
    const Tensor loss = binary_cross_entropy_with_logits(likes, batch[2].to(options.device));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    rows.step();
    const double now = loss.item();
    if (step < 30) begin += now / 30;
    if (step >= steps - 30) end += now / 30;
    if (step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, now);
  }
  std::printf("loss %.4f in the first 30 steps, %.4f in the last\n", begin, end);
  print_reads(*table);
  return end < begin - 0.03 || users > 600 ? 0 : 1;  // more users want more visits
}
