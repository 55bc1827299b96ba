#include "apps/strata/signals.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace strata::cli {
namespace {

TEST(StopOnSignal, FirstSignalSetsTheFlag) {
  StopOnSignal guard("this step");
  EXPECT_FALSE(StopOnSignal::stop_requested());
  ::raise(SIGINT);
  EXPECT_TRUE(StopOnSignal::stop_requested());
}

TEST(StopOnSignal, SecondSignalEndsTheProcess) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    StopOnSignal guard("this step");
    ::raise(SIGINT);
    ::raise(SIGINT);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

TEST(StopOnSignal, AClosedTerminalStopsHoweverOftenItSaysSo) {
  StopOnSignal guard("this step");
  ::raise(SIGHUP);
  ::raise(SIGHUP);
  EXPECT_TRUE(StopOnSignal::stop_requested());
}

TEST(StopOnSignal, NohupHolds) {
  const auto outer = std::signal(SIGHUP, SIG_IGN);
  {
    StopOnSignal guard("this step");
    ::raise(SIGHUP);
    EXPECT_FALSE(StopOnSignal::stop_requested());
  }
  EXPECT_EQ(std::signal(SIGHUP, outer), SIG_IGN);
}

TEST(StopOnSignal, LeavesTheHandlersAsTheyWere) {
  std::signal(SIGTERM, SIG_IGN);
  { StopOnSignal guard("this step"); }
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace strata::cli
