// A job that is formed anew after a death: with another process, or without.

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "strata/core/error_test_util.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/wire_inl.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using std::chrono::milliseconds;

class Forming : public testing::Test {
 protected:
  Forming() {
    for (int r = 0; r < 3; ++r) beat(r, 100 + r);
  }
  void beat(int rank, int64_t pid) { client_.beat({.rank = rank, .host = "a", .pid = pid}); }
  // The number of the forming that a rank is told.
  int64_t form(int rank, int64_t after) { return client_.form(rank, after).number; }
  std::string error(int rank, int64_t after) {
    try {
      client_.form(rank, after);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  Coordinator coordinator_{{.size = 3, .secret = "secret-of-a-test"}};
  StoreClient client_{cat("127.0.0.1:", coordinator_.port()), "secret-of-a-test", milliseconds(5000)};
};

TEST_F(Forming, WaitsForWhoTakesADeadRanksPlace) {
  EXPECT_EQ(coordinator_.formation().number, 0);
  EXPECT_EQ(coordinator_.formation().seats, (std::vector<int>{0, 1, 2}));
  coordinator_.fail(1, "killed");
  EXPECT_EQ(form(0, 0), 0);
  EXPECT_EQ(form(2, 0), 0);
  EXPECT_EQ(form(1, 0), 0);  // it is dead for all that is known
  coordinator_.started(1, "a", 200);
  EXPECT_EQ(coordinator_.ranks()[1].failure, "killed") << "the others still ask why";
  beat(1, 200);
  EXPECT_EQ(coordinator_.ranks()[1].failure, "");
  coordinator_.fail(1, "killed, too");
  EXPECT_EQ(form(0, 0), 0);
  beat(1, 300);
  const Formation formed = client_.form(1, 0);
  EXPECT_EQ(formed.number, 1);
  EXPECT_EQ(formed.seats, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(form(0, 0), 1);
  EXPECT_EQ(form(2, 0), 1);
  EXPECT_EQ(coordinator_.formation().number, 1);
}

TEST_F(Forming, OfThoseWhoCameTheDeadCountNoMore) {
  coordinator_.fail(1, "killed");
  EXPECT_EQ(form(2, 0), 0);
  coordinator_.fail(2, "killed");
  beat(1, 200);
  beat(2, 200);
  EXPECT_EQ(form(0, 0), 0);
  EXPECT_EQ(form(1, 0), 0);  // rank 2 is to come again
  EXPECT_EQ(form(2, 0), 1);
}

TEST_F(Forming, GoesOnWithoutWhoIsGivenUp) {
  coordinator_.fail(1, "killed");
  EXPECT_EQ(form(0, 0), 0);
  EXPECT_EQ(form(2, 0), 0);
  coordinator_.lose(1);
  EXPECT_EQ(client_.form(0, 0).seats, (std::vector<int>{0, 2}));
  EXPECT_NE(error(1, 0).find("rank 1 was given up"), std::string::npos);
}

TEST_F(Forming, IsRefusedWhereItWouldChangeNothing) {
  EXPECT_EQ(form(0, 0), 0);
  EXPECT_EQ(form(1, 0), 0);
  EXPECT_NE(error(2, 0).find("no rank has died"), std::string::npos) << error(2, 0);
  coordinator_.leave(0);
  EXPECT_NE(error(1, 0).find("rank 0 has ended"), std::string::npos) << error(1, 0);
}

TEST_F(Forming, WhatIsNoRequestIsNamed) {
  for (const char* text : {"", "{}", "[1]", R"({"rank": 3, "after": 0})", R"({"rank": 0, "after": -1})",
                           R"({"rank": "0", "after": 0})", R"({"rank": 0})"}) {
    EXPECT_THROW(detail::forming_of(text, 3), ValueError) << text;
  }
  for (const char* text : {"", "{}", R"({"number": 1, "seats": [1, 0]})", R"({"number": 1, "seats": ["a"]})",
                           R"({"number": 1, "seats": [-1]})", R"({"number": -1, "seats": []})"}) {
    EXPECT_THROW(detail::formation_of(text), DistributedError) << text;
  }
  const Formation formed{7, {0, 2, 5}};
  EXPECT_EQ(detail::formation_of(detail::formation_text(formed)).seats, formed.seats);
  EXPECT_EQ(detail::formation_of(detail::formation_text(formed)).number, 7);
}

TEST(Rejoin, ALauncherSaysWhatItDoes) {
  std::map<std::string, std::string> set{
      {"STRATA_LAUNCH", "1"},    {"RANK", "0"},        {"WORLD_SIZE", "2"},  {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"STRATA_JOB_SECRET", "x"}};
  const auto job = [&] {
    return *job_of([&](const char* name) { return set.contains(name) ? set.at(name).c_str() : nullptr; });
  };
  EXPECT_FALSE(job().replaces);
  EXPECT_EQ(job().joins, -1);
  set["STRATA_REPLACES"] = "1";
  set["STRATA_JOINS"] = "3";
  EXPECT_TRUE(job().replaces);
  EXPECT_EQ(job().joins, 3);
  set["STRATA_JOINS"] = "-1";
  EXPECT_THROW(job(), ValueError);
  // Of another launcher's job they say nothing.
  set.erase("STRATA_LAUNCH");
  EXPECT_FALSE(job().replaces);
}

// The parent does what the launcher does.
TEST(Rejoin, TheOthersComputeOnWithOtherNumbers) {
  setenv("STRATA_REPLACES", "1", 1);
  const auto watch = [](Coordinator& coordinator) {
    coordinator.store().get("dying", std::chrono::seconds(60));
    coordinator.fail(1, "was killed");
    coordinator.lose(1);
  };
  on_processes(3,
               [](int rank) {
                 set_mesh(Mesh("dp=3"));
                 EXPECT_FALSE(can_rejoin());
                 EXPECT_EQ(all_reduce(full({1}, rank + 1), "sum", "dp").item(), 6);
                 expect_failure({"nothing has failed"}, [] { rejoin(); });
                 if (rank == 1) {
                   store().set("dying", "1");
                   raise(SIGKILL);
                 }
                 expect_failure({"rank 1"}, [] { all_reduce(ones({7}), "sum", "dp"); });
                 EXPECT_TRUE(can_rejoin());
                 rejoin();
                 EXPECT_FALSE(can_rejoin());
                 EXPECT_EQ(size(), 2);
                 EXPECT_EQ(distributed::rank(), rank == 0 ? 0 : 1);
                 set_mesh(Mesh("dp=2"));
                 EXPECT_EQ(all_reduce(full({1}, rank + 1), "sum", "dp").item(), 4);
                 EXPECT_EQ(all_reduce(ones({2})).to_vector<float>(), (std::vector<float>{2, 2}));
               },
               {.ends = {0, -SIGKILL, 0}, .watch = watch});
  unsetenv("STRATA_REPLACES");
}

}  // namespace
}  // namespace strata::distributed
