// Collectives between processes, over Gloo, over a library that plays NCCL, and between cards where there are enough:
// values against loops, gradients against what the ranks' losses say.

#include "strata/dist/collectives/collectives.h"

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/lane_test_util.h"
#include "strata/dist/processes_test_util.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

// A tensor that tells its rank: rank * 64 + its index.
Tensor of(int rank, const Shape& shape, DType dtype = DType::f32) {
  // Sums of three are below 256, which bf16 holds exactly however they are rounded on the way.
  return (arange(0, Tensor(zeros(shape)).numel(), 1).to(DType::f64) + static_cast<double>(rank) * 64)
      .view(shape)
      .to(dtype);
}
std::vector<double> values(const Tensor& t) {
  return t.detach().to(DType::f64).to_vector<double>();
}

// Between what the collectives are.
enum class Way { hosts, played_cards, cards };

class Collectives : public testing::TestWithParam<Way> {
 protected:
  // body(rank) in each process, with new tensors where the way wants them.
  void on_each(int size, const std::function<void(int)>& body) const {
    // A rank asks only when it has its card.
    if (GetParam() == Way::cards && std::getenv("STRATA_RANKS_OF_TEST") == nullptr && cuda::device_count() < size) {
      GTEST_SKIP() << "needs " << size << " cards, and there are " << cuda::device_count();
    }
    on_processes(size, [&](int rank) {
      if (GetParam() == Way::played_cards) play_cards();
      if (GetParam() == Way::cards) take_own_card();
      const DeviceScope there(GetParam() == Way::cards ? Device::cuda(0) : Device::cpu());
      body(rank);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Collectives, testing::Values(Way::hosts, Way::played_cards, Way::cards),
                         [](const auto& info) {
                           return std::string(info.param == Way::hosts          ? "Hosts"
                                              : info.param == Way::played_cards ? "PlayedCards"
                                                                                : "Cards");
                         });

TEST_P(Collectives, OfEveryKindBetweenProcesses) {
  on_each(3, [](int rank) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i64, DType::bf16, DType::u8}) {
      const Tensor x = of(rank == 0 && dtype == DType::u8 ? 0 : dtype == DType::u8 ? 0 : rank, {4, 3}, dtype);
      const Tensor a = of(0, {4, 3}, dtype), b = of(dtype == DType::u8 ? 0 : 1, {4, 3}, dtype),
                   c = of(dtype == DType::u8 ? 0 : 2, {4, 3}, dtype);
      const Tensor total = (a.to(DType::f64) + b.to(DType::f64) + c.to(DType::f64)).to(dtype);
      EXPECT_EQ(values(all_reduce(x)), values(total));
      EXPECT_EQ(values(all_reduce(x, "max")), values(c));
      EXPECT_EQ(values(all_reduce(x, "min")), values(a));
      EXPECT_EQ(values(reduce(x, 1)), rank == 1 ? values(total) : std::vector<double>(12, 0.0));
      EXPECT_EQ(values(broadcast(x, 2)), values(c));
      for (const int dim : {0, 1, -1}) EXPECT_EQ(values(all_gather(x, dim)), values(cat({a, b, c}, dim)));
      EXPECT_EQ(values(reduce_scatter(x, 1)), values(total.narrow(1, rank, 1)));
      EXPECT_EQ(values(ring_shift(x)), values(rank == 0 ? c : rank == 1 ? a : b));
      EXPECT_EQ(values(ring_shift(x, -1)), values(rank == 0 ? b : rank == 1 ? c : a));
      EXPECT_EQ(values(ring_shift(x, 3)), values(x));
      EXPECT_EQ(values(all_to_all(x, 1, 0)),
                values(cat({a.narrow(1, rank, 1), b.narrow(1, rank, 1), c.narrow(1, rank, 1)}, 0)));
      // A transposed, a sliced and an empty tensor.
      EXPECT_EQ(values(all_reduce(x.t())), values(total.t()));
      EXPECT_EQ(values(all_gather(x.narrow(1, 1, 2), 0)), values(cat({a, b, c}, 0).narrow(1, 1, 2)));
      EXPECT_EQ(all_gather(x.narrow(0, 0, 0)).shape(), Shape({0, 3}));
    }
    // Rank r sends p + r rows to rank p.
    std::vector<int64_t> counts;
    int64_t rows = 0;
    for (int p = 0; p < 3; ++p) counts.push_back(p + rank), rows += p + rank;
    const Tensor n = from_span<int64_t>(counts, {3});
    const Tensor got = all_to_all_rows(of(rank, {rows, 2}), n, n);
    std::vector<Tensor> want;
    for (int p = 0; p < 3; ++p) {
      int64_t before = 0, all = 0;
      for (int q = 0; q < 3; ++q) (q < rank ? before += q + p : 0), all += q + p;
      want.push_back(of(p, {all, 2}).narrow(0, before, rank + p));
    }
    EXPECT_EQ(values(got), values(cat(want, 0)));
    EXPECT_EQ(values(exchange_rows(of(rank, {rows, 2}), counts, counts)), values(got));
    if (rank == 0) send(of(0, {5}), 2);
    if (rank == 2) {
      EXPECT_EQ(values(receive(zeros({5}), 0)), values(of(0, {5})));
    }
    barrier();
  });
}

// Whatever the elements are, and as the CPU reduces them in one process.
TEST_P(Collectives, OfEveryType) {
  const bool played = GetParam() == Way::played_cards;
  on_each(2, [played](int rank) {
    for (const DType dtype : kAllDTypes) {
      // The host's memory does not go to NCCL outside of tests: what widens for it is a card's.
      if (played && dtype == DType::i16) continue;
      const auto make = [&](int r) {
        const Tensor t = arange(0, 9, 1).to(DType::f64) * (r == 0 ? 1.0 : -1.0) + 20.0 * r;
        return dtype == DType::boolean ? (t.to(DType::i64) % 3 == 0).to(dtype) : t.to(dtype);
      };
      const Tensor x = make(rank), a = make(0), b = make(1);
      EXPECT_EQ(values(broadcast(x, 1)), values(b)) << strata::cat(dtype);
      EXPECT_EQ(values(all_gather(x)), values(cat({a, b}, 0))) << strata::cat(dtype);
      for (const char* name : {"sum", "avg", "min", "max", "product"}) {
        const Reduction r = reduction_named("test", name);
        if (name == std::string("avg") && !is_floating(dtype)) continue;
        if (dtype == DType::boolean && r != Reduction::min && r != Reduction::max) continue;
        const Tensor ca = a.to(Device::cpu()), cb = b.to(Device::cpu());
        Tensor want = empty({9}, dtype).to(Device::cpu());
        const void* const parts[] = {ca.raw_data(), cb.raw_data()};
        reduce_parts(r, dtype, parts, want.raw_data(), 9);
        EXPECT_EQ(values(all_reduce(x, name)), values(want)) << strata::cat(dtype, ' ', name);
        EXPECT_EQ(values(reduce_scatter(cat({x, x}, 0), 0, name)), values(want)) << strata::cat(dtype, ' ', name);
        EXPECT_EQ(values(reduce(x, 0, name)), rank == 0 ? values(want) : std::vector<double>(9, 0.0)) << strata::cat(dtype);
      }
    }
  });
}

TEST_P(Collectives, GradientsAreThoseOfTheSumOfTheRanksLosses) {
  // With weights w_r, loss_r = sum(w_r * f(x_0 ... x_n)); the gradient of x_r is that of the sum of all losses.
  on_each(2, [](int rank) {
    Tensor x = of(rank, {4, 6}, DType::f64);
    x.set_requires_grad(true);
    const auto weight = [](int r, const Shape& s) { return of(r, s, DType::f64) * 0.5 + 1.0; };
    const auto gradient = [&](const Tensor& y) {
      x.set_grad(Tensor());
      sum(y * weight(rank, y.shape())).backward();
      return values(x.grad());
    };
    const Tensor w0 = weight(0, {4, 6}), w1 = weight(1, {4, 6});
    EXPECT_EQ(gradient(all_reduce(x)), values(w0 + w1));
    EXPECT_EQ(gradient(all_reduce(x, "avg")), values((w0 + w1) * 0.5));
    EXPECT_EQ(gradient(broadcast(x, 1)), rank == 1 ? values(w0 + w1) : std::vector<double>(24, 0.0));
    EXPECT_EQ(gradient(reduce(x, 1)), values(w1));
    const auto part = [&](const Shape& s, int64_t dim) {
      return (weight(0, s) + weight(1, s)).narrow(dim, rank * x.size(dim), x.size(dim));
    };
    EXPECT_EQ(gradient(all_gather(x, 0)), values(part({8, 6}, 0)));
    EXPECT_EQ(gradient(all_gather(x, 1)), values(part({4, 12}, 1)));
    EXPECT_EQ(gradient(reduce_scatter(x, 0)), values(cat({weight(0, {2, 6}), weight(1, {2, 6})}, 0)));
    EXPECT_EQ(gradient(reduce_scatter(x, 1, "avg")),
              values(cat({weight(0, {4, 3}), weight(1, {4, 3})}, 1) * 0.5));
    EXPECT_EQ(gradient(ring_shift(x)), values(rank == 0 ? w1 : w0));
    // What this rank's halves became: rows `rank` of each rank's result.
    EXPECT_EQ(gradient(all_to_all(x, 1, 0)),
              values(cat({weight(0, {8, 3}).narrow(0, rank * 4, 4), weight(1, {8, 3}).narrow(0, rank * 4, 4)}, 1)));
    const Tensor gives = from_span<int64_t>(std::vector<int64_t>{1 + rank, 3 - rank}, {2});
    const Tensor gets = from_span<int64_t>(std::vector<int64_t>{1 + 2 * rank, 2}, {2});
    const Tensor y = all_to_all_rows(x, gives, rank == 0 ? from_span<int64_t>(std::vector<int64_t>{1, 2}, {2})
                                                         : from_span<int64_t>(std::vector<int64_t>{3, 2}, {2}));
    EXPECT_EQ(gets.numel(), 2);
    EXPECT_EQ(y.size(0), rank == 0 ? 3 : 5);
    const Tensor v0 = weight(0, {3, 6}), v1 = weight(1, {5, 6});
    EXPECT_EQ(gradient(y), values(rank == 0 ? cat({v0.narrow(0, 0, 1), v1.narrow(0, 0, 3)}, 0)
                                            : cat({v0.narrow(0, 1, 2), v1.narrow(0, 3, 2)}, 0)));
    EXPECT_THROW(sum(all_reduce(x, "max")).backward(), AutogradError);
  });
}

// Whole numbers, which every order of additions and every blocking of a product give exactly.
TEST_P(Collectives, ProductsMoveTheirPieces) {
  on_each(3, [](int rank) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = of(rank, {2, 5, 4}, dtype), w = of(rank, {4, 3}, dtype);
      for (const int dim : {0, 1}) {
        const auto [y, gathered] = all_gather_matmul(x, w, dim);
        const Tensor all = all_gather(x, dim);
        EXPECT_EQ(values(gathered), values(all));
        EXPECT_EQ(values(y), values(matmul(all, w)));
      }
      const Tensor z = of(rank, {3, 6, 4}, dtype);
      EXPECT_EQ(values(matmul_reduce_scatter(z, w, 0)), values(reduce_scatter(matmul(z, w), 0)));
      EXPECT_EQ(values(matmul_reduce_scatter(z, w, 1)), values(reduce_scatter(matmul(z, w), 1)));
    }
  });
}

TEST_P(Collectives, GroupsOfAMesh) {
  on_each(4, [](int rank) {
    set_mesh(Mesh("dp=2 tp=2"));
    const auto total = [&](const char* group) { return all_reduce(full({}, rank + 1.0), "sum", group).item(); };
    EXPECT_EQ(total("tp"), rank < 2 ? 3 : 7);
    EXPECT_EQ(total("dp"), rank % 2 == 0 ? 4 : 6);
    EXPECT_EQ(total("dp+tp"), 10);
    EXPECT_EQ(total("world"), 10);
    EXPECT_EQ(group("dp").rank(), rank / 2);
    EXPECT_THROW(all_reduce(ones({1}), "sum", "pp"), ValueError);
    EXPECT_THROW(set_mesh(Mesh("dp=3")), ValueError);
  });
}

TEST(CollectivesOfOne, AProcessAloneIsAJobOfOne) {
  EXPECT_EQ(size(), 1);
  EXPECT_FALSE(initialized());
  set_mesh(Mesh("dp=1 tp=1"));
  const Tensor x = of(0, {2, 4});
  for (const char* g : {"world", "dp", "dp+tp"}) {
    EXPECT_EQ(values(all_reduce(x, "sum", g)), values(x));
    EXPECT_EQ(values(all_to_all(x, 1, 0, g)), values(x));
  }
  EXPECT_THROW(send(x, 0), ValueError);
  EXPECT_THROW(broadcast(x, 1), IndexError);
  barrier();
  shutdown();
}

}  // namespace
}  // namespace strata::distributed
