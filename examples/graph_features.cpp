// Communities of a graph are found from sampled neighbours, while the nodes' features live where there is room: in
// memory, in page-locked memory that a card reads in place, or on a disk.
//     graph_features [NODES [CACHE_MIB [DIRECTORY]]]
// With a directory the features are in a file there and CACHE_MIB of them in memory. GraphSAGE (Hamilton et al., 2017),
// two layers, means of neighbours.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <strata/data/feature_loader.h>

#include "table.h"

using namespace strata;

namespace {

constexpr int64_t kCommunities = 5, kDegree = 10, kFanOut = 5, kWidth = 64, kHidden = 32;

// Neighbours of node i are edges[begin[i]] ... edges[begin[i + 1] - 1]: four of five in its own community.
struct Graph {
  std::vector<int64_t> begin, edges, community;
};
Graph make_graph(int64_t nodes, uint32_t seed) {
  std::mt19937_64 random(seed);
  Graph g;
  for (int64_t i = 0; i < nodes; ++i) g.community.push_back(static_cast<int64_t>(random() % kCommunities));
  std::vector<std::vector<int64_t>> members(kCommunities);
  for (int64_t i = 0; i < nodes; ++i) members[static_cast<size_t>(g.community[static_cast<size_t>(i)])].push_back(i);
  for (int64_t i = 0; i < nodes; ++i) {
    g.begin.push_back(static_cast<int64_t>(g.edges.size()));
    const auto& own = members[static_cast<size_t>(g.community[static_cast<size_t>(i)])];
    for (int64_t k = 0; k < kDegree; ++k)
      g.edges.push_back(random() % 5 != 0 ? own[random() % own.size()] : static_cast<int64_t>(random() % nodes));
  }
  g.begin.push_back(static_cast<int64_t>(g.edges.size()));
  return g;
}

// A sample is a node: {rows [1 + F, 1 + F], its community}. Row 0 of the rows is of the node and F of its neighbours,
// the others are of these neighbours and theirs; each begins with its own.
class Neighbourhoods final : public data::Dataset {
 public:
  Neighbourhoods(std::shared_ptr<const Graph> graph, int64_t first, int64_t count)
      : graph_(std::move(graph)), first_(first), count_(count) {}
  int64_t size() const override { return count_; }
  data::Batch get_batch(std::span<const data::Sample> samples) const override {
    const auto n = static_cast<int64_t>(samples.size()), each = 1 + kFanOut;
    std::vector<int64_t> rows, labels;
    rows.reserve(static_cast<size_t>(n * each * each));
    for (const data::Sample& s : samples) {
      const int64_t node = first_ + s.index;
      std::mt19937_64 random(static_cast<uint64_t>(node) * 1000003u + static_cast<uint64_t>(s.epoch));
      labels.push_back(graph_->community[static_cast<size_t>(node)]);
      const size_t at = rows.size();
      add(rows, node, random);
      for (int64_t k = 1; k < each; ++k) add(rows, rows[at + static_cast<size_t>(k)], random);
    }
    return {from_span<int64_t>(rows, {n, each, each}), from_span<int64_t>(labels, {n})};
  }

 private:
  void add(std::vector<int64_t>& rows, int64_t node, std::mt19937_64& random) const {
    rows.push_back(node);
    const int64_t from = graph_->begin[static_cast<size_t>(node)], to = graph_->begin[static_cast<size_t>(node + 1)];
    for (int64_t k = 0; k < kFanOut; ++k)
      rows.push_back(graph_->edges[static_cast<size_t>(from) + random() % static_cast<uint64_t>(to - from)]);
  }
  std::shared_ptr<const Graph> graph_;
  int64_t first_, count_;
};

// What a node and the mean of its neighbours say: x [..., 1 + F, in] -> [..., out].
class Sage final : public nn::Module {
 public:
  Sage(int64_t in, int64_t out) : Module("Sage"), linear_(register_module("linear", nn::Linear(2 * in, out))) {}
  Tensor forward(const Tensor& x) const {
    const int64_t dim = x.dim() - 2;
    return linear_(cat({x.select(dim, 0), x.narrow(dim, 1, kFanOut).mean({dim})}, -1));
  }
  Tensor operator()(const Tensor& x) const { return called(*this, x); }

 private:
  nn::Linear linear_;
};

}  // namespace

int main(int argc, char** argv) {
  const int64_t nodes = argc > 1 ? std::atoll(argv[1]) : 4000;
  manual_seed(1);
  const auto graph = std::make_shared<Graph>(make_graph(nodes, 1));

  const nn::FeatureTableOptions options = table_options(argc, argv);
  const auto features = std::make_shared<nn::FeatureTable>(nodes, kWidth, DType::f32, options);
  // Noise, and a faint word of the community; made and written part by part, as a larger table would be.
  const Tensor signs = randn({kCommunities, kWidth}) * 0.3;
  write_in_parts(nodes, [&](int64_t first, int64_t count) {
    const Tensor of = from_span<int64_t>(
        std::span(graph->community).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), {count});
    features->write(first, randn({count, kWidth}) + index_select(signs, 0, of));
  });

  Sage first(kWidth, kHidden), second(kHidden, kCommunities);
  first.to(options.device);
  second.to(options.device);
  TensorList parameters = first.parameters();
  for (const Tensor& p : second.parameters()) parameters.push_back(p);
  optim::AdamW optimizer(parameters, {0.005});
  const auto logits = [&](const Tensor& x) { return second(first(x).relu()); };  // [B, 1 + F, 1 + F, width]

  // Two thirds of the nodes to learn from, the rest to see.
  const int64_t known = nodes * 2 / 3;
  data::FeatureLoader training(data::DataLoader(std::make_shared<Neighbourhoods>(graph, 0, known),
                                                {.batch_size = 64, .shuffle = true, .repeat = true}),
                               features, {.ahead = 2});
  const int steps = 150;
  for (int step = 0; step < steps; ++step) {
    const auto batch = *training.next();
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(logits(batch[2]), batch[1].to(options.device));
    loss.backward();
    optimizer.step();
    if (step % 30 == 0) std::printf("step %3d  loss %.4f\n", step, loss.item());
  }
  const NoGrad no_grad;
  data::FeatureLoader unseen(
      data::DataLoader(std::make_shared<Neighbourhoods>(graph, known, std::min<int64_t>(nodes - known, 2000)),
                       {.batch_size = 256}),
      features);
  int64_t right = 0, all = 0;
  while (const auto batch = unseen.next()) {
    right += (logits((*batch)[2]).argmax(-1) == (*batch)[1].to(options.device)).to(DType::i64).sum().item<int64_t>();
    all += (*batch)[1].numel();
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(all);
  std::printf("%.1f %% of the nodes that were not seen are right\n", 100 * accuracy);
  print_reads(*features);
  return accuracy > 0.9 ? 0 : 1;
}
