#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/dist/group.h"

namespace strata::distributed {
namespace {

using Ranks = std::vector<int>;

TEST(Mesh, TheLastAxisVariesFastest) {
  const Mesh m("dp=2 tp=2");
  EXPECT_EQ(m.size(), 4);
  EXPECT_EQ(m.ranks_of("tp", 0), Ranks({0, 1}));
  EXPECT_EQ(m.ranks_of("tp", 3), Ranks({2, 3}));
  EXPECT_EQ(m.ranks_of("dp", 1), Ranks({1, 3}));
  EXPECT_EQ(m.ranks_of("dp+tp", 2), Ranks({0, 1, 2, 3}));
  EXPECT_EQ(m.ranks_of("world", 2), Ranks({0, 1, 2, 3}));
}

TEST(Mesh, EveryRankIsInTheGroupsThatItIsToldOf) {
  const Mesh m("pp=2 dp=3 cp=1 tp=2");
  for (const char* group : {"pp", "dp", "cp", "tp", "dp+cp", "pp+tp", "tp+dp+pp"}) {
    for (int r = 0; r < m.size(); ++r) {
      const Ranks ranks = m.ranks_of(group, r);
      EXPECT_NE(std::find(ranks.begin(), ranks.end(), r), ranks.end());
      for (const int other : ranks) EXPECT_EQ(m.ranks_of(group, other), ranks) << group << ' ' << r;
    }
  }
  EXPECT_EQ(m.ranks_of("cp", 5), Ranks({5}));
  EXPECT_EQ(m.ranks_of("dp+cp", 0).size(), 3U);
}

TEST(Mesh, NeighboursOfAGroup) {
  const Mesh m("dp=4 tp=2");
  EXPECT_EQ(m.ranks_of("dp:2", 0), Ranks({0, 2}));
  EXPECT_EQ(m.ranks_of("dp:2", 5), Ranks({5, 7}));
  EXPECT_EQ(m.ranks_of("dp+dp:2", 7), Ranks({5, 7}));
  EXPECT_EQ(m.ranks_of("dp:1", 3), Ranks({3}));
  EXPECT_EQ(m.ranks_of("dp:4", 3), m.ranks_of("dp", 3));
  EXPECT_EQ(m.ranks_of("world:4", 6), Ranks({4, 5, 6, 7}));
}

TEST(Mesh, RefusesWhatItCannotBe) {
  for (const auto& [text, piece] : std::vector<std::pair<const char*, const char*>>{
           {"dp", "'dp' is no axis"}, {"dp=x", "'x' in 'dp=x' is no size"}, {"dp=2 dp=3", "given twice"},
           {"dp=0", "has size 0"}, {"dp=-1", "has size -1"}, {"2p=2", "cannot be an axis"}, {"world=2", "cannot be an axis"},
           {"a=1048576 b=2", "at most 1048576 ranks"}, {"dp=2x", "is no size"}, {"=3", "cannot be an axis"}}) {
    try {
      const Mesh m(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(Mesh("dp=2").ranks_of("tp", 0), ValueError);
  EXPECT_THROW(Mesh("dp=2").ranks_of("dp", 2), ValueError);
  for (const char* group : {"dp:3", "dp:0", "dp:-2", "dp:", "dp:2x", "dp:2:1", "tp:2"})
    EXPECT_THROW(Mesh("dp=4").ranks_of(group, 0), ValueError) << group;
}

}  // namespace
}  // namespace strata::distributed
