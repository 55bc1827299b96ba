// parallel.check_replicas: a bit that is another one on one rank is named on all of them.

#include "strata/train/replicas_inl.h"

#include <cstdlib>

#include "strata/core/error_test_util.h"
#include "strata/core/placement.h"
#include "strata/dist/processes_test_util.h"
#include "strata/train/ranks.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

using detail::differences;
using detail::Replica;

std::vector<Replica> three(uint64_t a, uint64_t b, uint64_t c) {
  return {{1, 0, a}, {2, 0, b}, {2, 1, c}};
}

TEST(Replicas, TheMostAreRightAndTwoOnlyDiffer) {
  EXPECT_EQ(differences({three(5, 6, 7), three(5, 6, 7)}, {}), "");
  EXPECT_EQ(differences({three(5, 6, 7), three(5, 6, 8), three(5, 6, 7), three(5, 6, 7)}, {}),
            "rank 1 differs from ranks 0, 2 and 3 in a tensor (0000000000000002)");
  EXPECT_EQ(differences({three(5, 6, 7), three(4, 6, 7)}, {}),
            "ranks 0 and 1 differ, and no more of them agree on one than on another, in a tensor (0000000000000001)");
  // Ranks that have other parts, or other tensors, than others.
  EXPECT_EQ(differences({{{1, 0, 5}}, {{1, 1, 6}}, {{2, 0, 7}}}, {}), "");
  EXPECT_EQ(differences({three(1, 2, 3), three(1, 2, 3), three(9, 9, 9)}, {}),
            "rank 2 differs from ranks 0 and 1 in a tensor (0000000000000001), a tensor (0000000000000002)");
  EXPECT_EQ(
      differences({three(1, 2, 3), three(1, 2, 9), three(1, 2, 3), three(1, 2, 9)}, {}),
      "ranks 0, 1, 2 and 3 differ, and no more of them agree on one than on another, in a tensor (0000000000000002)");
}

class ReplicaRuns : public TrainTest {
 protected:
  ReplicaRuns() {
    // The processes of a test have one folder, the first one's.
    if (const char* const shared = std::getenv("STRATA_REPLICA_RUNS"))
      folder_ = shared;
    else
      setenv("STRATA_REPLICA_RUNS", folder_.c_str(), 1);
    c_.data.path = folder_ + "text.txt";
    c_.steps = 6;
    c_.parallel.check_replicas = 2;
  }
  ~ReplicaRuns() override {
    if (std::getenv("STRATA_RANKS_OF_TEST") == nullptr) unsetenv("STRATA_REPLICA_RUNS");
  }
  // Behind step 3 rank `broken` has another bit in a weight; the error's text, empty where there is none.
  std::string error(const std::string& out, int broken, const std::string& tensor) {
    try {
      train(c_, {.out = folder_ + out, .log = nullptr, .after_step = [&](int64_t step, nn::Module& model) {
                   if (step != 3 || distributed::rank() != broken) return;
                   const NoGrad guard;
                   Tensor t = model.state_dict().at(tensor);
                   if (is_placed(t)) t = local_part(t);
                   static_cast<unsigned char*>(t.raw_data())[8] ^= 1;
                 }});
    } catch (const distributed::DistributedError& e) {
      return e.what();
    }
    return {};
  }
  std::string folder_ = dir_ / "";
};

TEST_F(ReplicaRuns, OfFourTheOneThatDiffersIsNamedOnAll) {
  distributed::on_processes(4, [&](int) {
    EXPECT_EQ(error("well", -1, ""), "");
    const std::string text = error("flipped", 2, "blocks.1.mlp.up.weight");
    EXPECT_NE(text.find("step 4: "), text.npos) << text;
    EXPECT_NE(text.find("rank 2 differs from ranks 0, 1 and 3 in blocks.1.mlp.up.weight"), text.npos) << text;
  });
}

TEST_F(ReplicaRuns, OfTwoBothAreNamed) {
  distributed::on_processes(2, [&](int) {
    const std::string text = error("flipped", 1, "norm.weight");
    EXPECT_NE(text.find("step 4: "), text.npos) << text;
    EXPECT_NE(text.find("ranks 0 and 1 differ"), text.npos) << text;
    EXPECT_NE(text.find("norm.weight"), text.npos) << text;
  });
}

// Parts are compared with those of the ranks that have the same ones.
TEST_F(ReplicaRuns, PartsHaveReplicasToo) {
  distributed::on_processes(4, [&](int) {
    c_.parallel.tp = 2;
    c_.parallel.zero = 1;
    EXPECT_EQ(error("well", -1, ""), "");
    c_.parallel.zero = 0;  // of 1 the one that updates a row makes it the others' again
    const std::string text = error("flipped", 3, "blocks.0.mlp.up.weight");
    EXPECT_NE(text.find("ranks 1 and 3 differ"), text.npos) << text;
    EXPECT_NE(text.find("blocks.0.mlp.up.weight"), text.npos) << text;
    c_.parallel.tp = 1;
    c_.parallel.zero = 3;
    EXPECT_EQ(error("zero", -1, ""), "");
  });
}

}  // namespace
}  // namespace strata
