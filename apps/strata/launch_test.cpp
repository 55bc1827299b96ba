#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "apps/strata/child.h"
#include "apps/strata/command.h"
#include "apps/strata/host_list.h"
#include "apps/strata/remote_host.h"
#include "strata/core/error.h"
#include "strata/dist/coordinator.h"

namespace strata::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

const std::string kRank = STRATA_TEST_RANK;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
size_t count(const Result& r, const std::string& line) {
  const std::vector<std::string> lines = lines_of(r.output);
  return static_cast<size_t>(std::ranges::count(lines, line));
}
std::string last_line(const Result& r) {
  return r.output.empty() ? "" : lines_of(r.output).back();
}
bool has(const Result& r, const std::string& text) {
  return r.output.find(text) != std::string::npos;
}

bool wait_for(const std::function<bool()>& done, milliseconds most = milliseconds(20000)) {
  for (const auto end = Clock::now() + most; Clock::now() < end; std::this_thread::sleep_for(milliseconds(20)))
    if (done()) return true;
  return done();
}

// A folder of this test's own. Every process that a test starts has it in its command line.
class Launch : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::path(::testing::TempDir()) / cat("strata_launch_", info->name(), "_", static_cast<int64_t>(::getpid()));
    fs::create_directories(folder_);
    fs::create_symlink("/bin/sleep", folder_ / "sleep");
    fs::create_symlink(kRank, folder_ / "rank");
    fs::create_symlink("/bin/sh", folder_ / "sh");
  }
  void TearDown() override {
    // Whatever became of the job, nothing of it is left.
    EXPECT_TRUE(wait_for([&] { return left().empty(); }, milliseconds(5000))) << left();
    fs::remove_all(folder_);
  }
  // Processes that have the folder in their command line.
  std::string left() const { return left(folder_.string()); }
  static std::string left(const std::string& text) {
    std::string found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline");
      std::string line;
      std::getline(file, line);
      if (line.find(text) == std::string::npos) continue;
      std::ranges::replace(line, '\0', ' ');
      if (entry.path().filename() != std::to_string(::getpid()))
        found += entry.path().filename().string() + ": " + line + "\n";
    }
    return found;
  }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  // `strata launch OPTIONS -- sh -c 'SCRIPT'`
  Result script(const std::string& options, const std::string& text, const std::string& before = {}) const {
    return strata(cat("launch ", options, " -- ", in("sh"), " -c '", text, "'"), before);
  }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return in(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream f(folder_ / name);
    return {std::istreambuf_iterator<char>(f), {}};
  }
  // What stands in place of ssh: it runs the command here.
  std::string shell(const std::string& more = {}) const {
    const std::string path =
        file("rsh", cat("#!/bin/sh\necho \"$@\" >>", in("rsh.log"), "\n", more, "\nshift\nexec sh -c \"$*\"\n"));
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  fs::path folder_;
};

TEST_F(Launch, RanksKnowWhoTheyAre) {
  const Result r = script("-n 4",
                          "echo rank $RANK $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE at $MASTER_ADDR; "
                          "echo secret ${#STRATA_JOB_SECRET}; echo threads $STRATA_NUM_THREADS; "
                          "[ -n \"$MASTER_PORT\" ] && echo port; echo $* >&2");
  EXPECT_EQ(r.status, 0) << r.output;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(count(r, cat("[", rank, "] rank ", rank, " ", rank, " of 4 4 at 127.0.0.1")), 1u) << r.output;
    EXPECT_EQ(count(r, cat("[", rank, "] secret 32")), 1u) << r.output;
    EXPECT_EQ(count(r, cat("[", rank, "] port")), 1u) << r.output;
    EXPECT_TRUE(has(r, cat("[", rank, "] threads "))) << r.output;
  }
  EXPECT_FALSE(has(r, "threads 0"));
  // The user's own number of threads stays, and launchers around this one are not its ranks'.
  const Result mine = script("-n 2", "echo $STRATA_NUM_THREADS ${OMPI_COMM_WORLD_RANK-none} $RANK",
                             "export STRATA_NUM_THREADS=7 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=9 RANK=8;");
  EXPECT_EQ(mine.status, 0) << mine.output;
  EXPECT_EQ(count(mine, "[0] 7 none 0") + count(mine, "[1] 7 none 1"), 2u) << mine.output;
}

TEST_F(Launch, SecretsAreOnNoCommandLine) {
  const std::string hosts = file("hosts", "localhost\nnode1\n");
  Child launcher({"launch", "--hostfile", hosts, "--host", "127.0.0.1", "--rsh", shell(), "--", in("sh"), "-c",
                  cat("echo $STRATA_JOB_SECRET >", in("secret"), ".$RANK; exec ", in("sleep"), " 1000")});
  ASSERT_TRUE(wait_for([&] { return read("secret.0").size() == 33 && read("secret.1").size() == 33; }));
  EXPECT_EQ(read("secret.0"), read("secret.1"));
  EXPECT_NE(left(), "");
  EXPECT_EQ(left(read("secret.0").substr(0, 32)), "");
  launcher.kill(SIGTERM);
  launcher.wait();
}

TEST_F(Launch, LinesStayWhole) {
  const Result r =
      script("-n 4",
             "i=0; while [ $i -lt 300 ]; do printf \"%s\" \"begin $RANK \"; echo \"$i end\"; i=$((i+1)); done; "
             "printf \"no newline\"");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(count(r, "[3] no newline"), 1u) << r.output;
  std::vector<int> next(4, 0);
  for (const std::string& line : lines_of(r.output)) {
    int rank = 0, mine = 0, i = 0;
    if (line.find("begin") == std::string::npos) continue;
    ASSERT_EQ(std::sscanf(line.c_str(), "[%d] begin %d %d end", &rank, &mine, &i), 3) << line;
    EXPECT_EQ(rank, mine);
    EXPECT_EQ(i, next[static_cast<size_t>(rank)]++);
  }
  EXPECT_EQ(next, std::vector<int>(4, 300));
  // A line without end comes in pieces, not in memory alone.
  const Result longer = script("-n 1", "head -c 200000 /dev/zero | tr \"\\0\" x");
  EXPECT_EQ(longer.status, 0);
  EXPECT_EQ(std::ranges::count(longer.output, 'x'), 200000);
  EXPECT_EQ(lines_of(longer.output).size(), 5u);  // the address and four pieces
}

TEST_F(Launch, StandardInputIsRank0s) {
  const std::string input = file("input", "one\ntwo\n");
  const Result r = strata(cat("launch -n 3 -- ", in("sh"), " -c 'echo got $(cat)' <", input));
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(count(r, "[0] got one two"), 1u) << r.output;
  EXPECT_EQ(count(r, "[1] got") + count(r, "[2] got"), 2u) << r.output;
}

TEST_F(Launch, StatusIsOfTheFirstThatFailed) {
  const Result r = script("-n 4 --grace 0.3", cat("if [ $RANK = 2 ]; then exit 7; fi; exec ", in("sleep"), " 100"));
  EXPECT_EQ(r.status, 7) << r.output;
  EXPECT_TRUE(last_line(r).starts_with("strata: error: rank 2 (")) << r.output;
  EXPECT_TRUE(last_line(r).ends_with(") ended with status 7")) << r.output;
  EXPECT_TRUE(has(r, "still running: 0, 1, 3; they get SIGTERM")) << r.output;
  EXPECT_FALSE(has(r, "SIGKILL"));
  const Result killed = script("-n 3 --grace 0.3", "if [ $RANK = 1 ]; then kill -KILL $$; fi; exit 0");
  EXPECT_EQ(killed.status, 137);
  EXPECT_TRUE(last_line(killed).ends_with(") was killed by SIGKILL")) << killed.output;
  EXPECT_TRUE(last_line(killed).starts_with("strata: error: rank 1 (")) << killed.output;
}

TEST_F(Launch, WhoDoesNotHearIsKilled) {
  const auto begin = Clock::now();
  const Result r = script("-n 2 --grace 0.3", cat("if [ $RANK = 0 ]; then exit 1; fi; trap : TERM; while :; do ",
                                                  in("sleep"), " 100; done"));
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r, "still running: 1; they get SIGKILL")) << r.output;
  EXPECT_TRUE(last_line(r).ends_with(") ended with status 1")) << r.output;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(Launch, OthersMayEndByThemselves) {
  const Result r = script("-n 2 --grace 30", "if [ $RANK = 0 ]; then exit 4; fi; sleep 1; echo finished");
  EXPECT_EQ(r.status, 4);
  EXPECT_EQ(count(r, "[1] finished"), 1u) << r.output;
  EXPECT_FALSE(has(r, "SIGTERM"));
}

TEST_F(Launch, NothingOfAGroupIsLeft) {
  const Result r = script("-n 2", cat(in("sleep"), " 1000 & echo begun"));
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(count(r, "[0] begun"), 1u);
}

TEST_F(Launch, WordsOfTheProgramStayAsTheyAre) {
  const Result r = strata("launch -n 1 -- printf '<%s>' '[1, 2]' '[]' a,b -n --ranks=3 -- '\"q\"' '' '[ x'");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_TRUE(has(r, "[0] <[1, 2]><[]><a,b><-n><--ranks=3><--><\"q\"><><[ x>")) << r.output;
  EXPECT_EQ(script("-n 2", "[ $RANK != 1 ]").status, 1);
  EXPECT_EQ(script("-n 2", "[ $RANK != 2 ]").status, 0);
  EXPECT_EQ(strata("launch -n 1 true").status, 0);
  EXPECT_TRUE(has(strata("launch -n 1 --"), "what shall be started?"));
}

TEST_F(Launch, ProgramsThatDoNotExist) {
  EXPECT_EQ(strata("launch -n 2 -- /no/such/program").output, "strata: error: '/no/such/program' is not there\n");
  EXPECT_EQ(strata("launch -n 2 -- no_such_program").output,
            "strata: error: there is no program 'no_such_program' in PATH\n");
  EXPECT_EQ(strata("launch -n 2 -- /etc/passwd").output, "strata: error: '/etc/passwd' is no program that can run\n");
  EXPECT_EQ(strata("launch -n 2 -- /no/such/program").status, 2);
  const std::string odd = file("odd", "neither a script nor a program");
  fs::permissions(odd, fs::perms::owner_all);
  const Result r = strata(cat("launch -n 2 -- ", odd));
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r, "Exec format error")) << r.output;
}

TEST_F(Launch, BadUsage) {
  const std::pair<const char*, const char*> cases[] = {
      {"launch -n 2", "what shall be started? strata launch -n 4 -- PROGRAM ARGS"},
      {"launch -- true", "say how many ranks to start (-n), or where (--hostfile)"},
      {"launch -n 0 -- true",
       "--ranks: wants an integer from 1 to 65536, got '0' (strata launch --help lists the options)"},
      {"launch -n 2 --port 99999 -- true",
       "--port: wants an integer from 1 to 65535, got '99999' (strata launch --help lists the options)"},
      {"launch -n 3 --order 0,1 -- true", "--order: it names 2 slots, and 3 ranks are started"},
      {"launch -n 3 --order 0,3,1 -- true", "--order: there is no slot 3: ranks are started in slots 0 to 2"},
      {"launch -n 3 --order 2,0,2 -- true", "--order: slot 2 is rank 0's and rank 2's"},
      {"launch -n 3 --order 2,0,1, -- true", "--order: '' is no slot's number; a list is 2,0,1"},
      {"launch -n 3 --order 2,-1,0 -- true", "--order: '-1' is no slot's number; a list is 2,0,1"}};
  for (const auto& [arguments, text] : cases) {
    const Result r = strata(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_EQ(r.output, cat("strata: error: ", text, "\n"));
  }
  EXPECT_EQ(strata("launch -n 2 --hostfile /no/such/file -- true").status, 1);
  // What follows -- is the program's.
  EXPECT_EQ(count(strata("launch -n 1 -- echo --port x -n 7"), "[0] --port x -n 7"), 1u);
}

TEST_F(Launch, RanksMeet) {
  const Result r = strata(cat("launch -n 4 -- ", in("rank"), " meet"));
  EXPECT_EQ(r.status, 0) << r.output;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(count(r, cat("[", rank, "] strata launch: rank ", rank, " of 4 has met 0123")), 1u) << r.output;
}

TEST_F(Launch, TwoJobsAtOnce) {
  Result a, b;
  std::thread other([&] { a = strata(cat("launch -n 3 -- ", in("rank"), " meet")); });
  b = strata(cat("launch -n 2 -- ", in("rank"), " meet"));
  other.join();
  EXPECT_EQ(a.status, 0) << a.output;
  EXPECT_EQ(b.status, 0) << b.output;
  EXPECT_EQ(count(a, "[2] strata launch: rank 2 of 3 has met 012"), 1u) << a.output;
  EXPECT_EQ(count(b, "[1] strata launch: rank 1 of 2 has met 01"), 1u) << b.output;
}

TEST_F(Launch, WrongSecretsAreRefused) {
  const Result r = script("-n 2 --grace 0.1", cat("STRATA_JOB_SECRET=wrong exec ", in("rank"), " meet"));
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r, "refuses this job's secret")) << r.output;
}

TEST_F(Launch, TakenPorts) {
  const distributed::Coordinator other({.size = 1, .secret = "x"});
  const Result r = strata(cat("launch -n 2 --port ", other.port(), " -- true"));
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.output,
            cat("strata: error: cannot listen at 127.0.0.1, port ", other.port(), ": Address already in use\n"));
}

TEST_F(Launch, OthersHearOfAKill) {
  const Result r =
      script("-n 4", cat("if [ $RANK = 3 ]; then sleep 1; kill -KILL $$; fi; exec ", in("rank"), " beat 60"));
  EXPECT_EQ(r.status, 137) << r.output;
  EXPECT_TRUE(last_line(r).ends_with(") was killed by SIGKILL")) << r.output;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(count(r, cat("[", rank, "] heard that rank 3 was killed by SIGKILL")), 1u) << r.output;
  EXPECT_FALSE(has(r, "SIGTERM"));  // they ended by themselves
}

TEST_F(Launch, AStoppedRankIsNamed) {
  // Its shell is no rank that beats: the program is, once it has taken the shell's place.
  const auto begin = Clock::now();
  const Result r = script("-n 3 --grace 1",
                          cat("if [ $RANK = 1 ]; then (sleep 2; kill -STOP $$) & fi; exec ", in("rank"), " beat 60"));
  EXPECT_EQ(r.status, 1) << r.output;
  EXPECT_TRUE(last_line(r).starts_with("strata: error: rank 1 (")) << r.output;
  EXPECT_TRUE(has(r, ") gave no heartbeat for ")) << r.output;
  for (const int rank : {0, 2})
    EXPECT_TRUE(has(r, cat("[", rank, "] heard that rank 1 no heartbeat for "))) << r.output;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(Launch, EndsWithItsLauncher) {
  Child launcher({"launch", "-n", "3", "--", in("sh"), "-c",
                  cat(in("sleep"), " 1000 & echo $! >", in("inner"), ".$RANK; exec ", in("sleep"), " 1000")});
  ASSERT_TRUE(
      wait_for([&] { return !read("inner.0").empty() && !read("inner.1").empty() && !read("inner.2").empty(); }));
  EXPECT_NE(left(), "");
  launcher.kill(SIGKILL);
  EXPECT_EQ(launcher.wait(), 137);
  EXPECT_TRUE(wait_for([&] { return left().empty(); }, milliseconds(5000))) << left();
}

TEST_F(Launch, SignalsGoToAll) {
  const std::string wait =
      cat("trap \"echo told; exit 5\" INT; : >", in("ready"), ".$RANK; while :; do sleep 0.1; done");
  Child launcher({"launch", "-n", "2", "--", in("sh"), "-c", wait});
  ASSERT_TRUE(wait_for([&] { return fs::exists(in("ready.0")) && fs::exists(in("ready.1")); }));
  launcher.kill(SIGINT);
  EXPECT_EQ(launcher.wait(), 5);
  fs::remove(in("ready.0"));
  // They may take their time; a second one does not wait.
  Child stubborn(
      {"launch", "-n", "1", "--grace", "0", "--", in("sh"), "-c",
       cat("trap \"echo told >", in("told"), "\" TERM; : >", in("ready"), ".0; while :; do sleep 0.1; done")});
  ASSERT_TRUE(wait_for([&] { return fs::exists(in("ready.0")); }));
  stubborn.kill(SIGTERM);
  ASSERT_TRUE(wait_for([&] { return read("told") == "told\n"; }));
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_TRUE(stubborn.running());
  stubborn.kill(SIGTERM);
  EXPECT_EQ(stubborn.wait(), 137);
}

TEST_F(Launch, AClosedPipeEndsTheJob) {
  const auto begin = Clock::now();
  const Result head =
      strata(cat("launch -n 2 --grace 0.5 -- ", in("sh"), " -c 'while :; do echo line; sleep 0.01; done' | head -3"));
  EXPECT_EQ(count(head, "[0] line") + count(head, "[1] line"), 3u) << head.output;
  EXPECT_TRUE(has(head, "cannot write to the standard output: Broken pipe")) << head.output;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(Launch, OtherHosts) {
  const std::string hosts = file("hosts", "# a comment\nlocalhost slots=1\nnode1 slots=2  # more\n\nnode2\n");
  const std::string rsh = shell();
  const Result r = strata(
      cat("launch --hostfile ", hosts, " --host 127.0.0.1 --rsh ", rsh, " -- ", in("sh"),
          " -c 'echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $PWD \"$ODD\"; exec ", in("rank"), " meet'"),
      cat("cd ", folder_.string(), "; export ODD=\"a b  'c'\";"));
  EXPECT_EQ(r.status, 0) << r.output;
  const char* const who[] = {"0 0 1 4", "1 0 2 4", "2 1 2 4", "3 0 1 4"};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(count(r, cat("[", rank, "] ", who[rank], " ", folder_.string(), " a b  'c'")), 1u) << r.output;
    EXPECT_EQ(count(r, cat("[", rank, "] strata launch: rank ", rank, " of 4 has met 0123")), 1u) << r.output;
  }
  // The shell hears of nothing but the host and this command.
  const std::string log = read("rsh.log");
  EXPECT_EQ(lines_of(log).size(), 2u) << log;
  for (const std::string& line : lines_of(log)) {
    EXPECT_TRUE(line.starts_with("node") && line.ends_with("' launch --serve")) << line;
  }
  const Result some = strata(
      cat("launch -n 2 --hostfile ", hosts, " --host 127.0.0.1 --rsh ", rsh, " -- ", in("sh"), " -c 'exit $RANK'"));
  EXPECT_EQ(some.status, 1) << some.output;
  EXPECT_TRUE(last_line(some).starts_with("strata: error: rank 1 (node1, pid ")) << some.output;
  EXPECT_TRUE(last_line(some).ends_with(") ended with status 1")) << some.output;
  EXPECT_EQ(strata(cat("launch -n 5 --hostfile ", hosts, " -- true")).output,
            cat("strata: error: -n 5: ", hosts, " has 4 slots\n"));
}

// Rank r is where the list says: what it has of its own (RANK) is the rank's, what it has of the host (LOCAL_RANK, for
// its card and processors) is the slot's.
TEST_F(Launch, AnOrderPutsRanksIntoSlots) {
  const Result r =
      script("-n 4 --order 2,0,3,1", cat("echo $RANK in $LOCAL_RANK of $LOCAL_WORLD_SIZE; exec ", in("rank"), " meet"));
  EXPECT_EQ(r.status, 0) << r.output;
  const int slots[] = {2, 0, 3, 1};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(count(r, cat("[", rank, "] ", rank, " in ", slots[rank], " of 4")), 1u) << r.output;
    EXPECT_EQ(count(r, cat("[", rank, "] strata launch: rank ", rank, " of 4 has met 0123")), 1u) << r.output;
  }
  // Of slots of other hosts, too; the command that goes on has it.
  const std::string hosts = file("hosts", "localhost slots=1\nnode1 slots=2\nnode2\n");
  const std::string options = cat("--hostfile ", hosts, " --host 127.0.0.1 --rsh ", shell(), " --order 1,3,0,2");
  const Result far = script(options, "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE; echo $STRATA_LAUNCHED_AS");
  EXPECT_EQ(far.status, 0) << far.output;
  const char* const who[] = {"0 0 2", "1 0 1", "2 0 1", "3 1 2"};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(count(far, cat("[", rank, "] ", who[rank])), 1u) << far.output;
  EXPECT_TRUE(has(far, "--order 1,3,0,2")) << far.output;
  const Result failed = script(options, "test $RANK != 3");
  EXPECT_TRUE(last_line(failed).starts_with("strata: error: rank 3 (node1, pid ")) << failed.output;
  const Result bound = script("-n 3 --order 2,0,1 --bind numa", "true");
  if (bound.status == 0)
    EXPECT_TRUE(has(bound, "ranks 1, 2, 0 may use processors")) << bound.output;
  else
    EXPECT_TRUE(has(bound, "--bind: ")) << bound.output;
}

TEST_F(Launch, OtherHostsFail) {
  const std::string hosts = file("hosts", "node1\nnode2\n");
  const std::string options = cat("launch --grace 0.3 --hostfile ", hosts, " --host 127.0.0.1 --rsh ");
  // No way there.
  const std::string rsh = shell("[ $1 = node1 ] || { echo no route to $1 >&2; exit 255; }");
  const Result lost = strata(cat(options, rsh, " -- ", in("sleep"), " 1000"));
  EXPECT_EQ(lost.status, 1) << lost.output;
  EXPECT_EQ(
      last_line(lost),
      "strata: error: rank 1 (node2) is lost with its host: the remote shell ended with status 255: no route to node2");
  EXPECT_EQ(count(lost, "node2: no route to node2"), 1u) << lost.output;
  // The program is here and not there.
  fs::create_symlink("/bin/sleep", in("gone"));
  const Result none = strata(cat(options, shell(cat("rm -f ", in("gone"))), " -- ", in("gone"), " 1000"));
  EXPECT_EQ(none.status, 1) << none.output;
  EXPECT_TRUE(has(none, "is lost with its host: the remote shell ended with status 0: ")) << none.output;
  EXPECT_TRUE(last_line(none).ends_with("/gone' is not there")) << none.output;
  // Killed there, and the connection cut.
  const Result killed = strata(cat(options, shell(), " -- ", in("sh"),
                                   " -c 'if [ $RANK = 1 ]; then kill -SEGV $$; fi; exec ", in("sleep"), " 1000'"));
  EXPECT_EQ(killed.status, 139) << killed.output;
  EXPECT_TRUE(last_line(killed).ends_with(") was killed by SIGSEGV")) << killed.output;
  EXPECT_EQ(strata(cat(options, in("no_such_shell"), " -- true")).status, 2);
}

TEST_F(Launch, OtherHostsEndWithTheLauncher) {
  const std::string hosts = file("hosts", "node1 slots=2\n");
  const std::vector<std::string> arguments{
      "launch",
      "--hostfile",
      hosts,
      "--host",
      "127.0.0.1",
      "--rsh",
      shell(),
      "--",
      in("sh"),
      "-c",
      cat("trap \"exit 6\" INT; : >", in("ready"), ".$RANK; while :; do ", in("sleep"), " 0.1; done")};
  const auto ready = [&] { return fs::exists(in("ready.0")) && fs::exists(in("ready.1")); };
  {
    Child launcher(arguments);
    ASSERT_TRUE(wait_for(ready));
    launcher.kill(SIGINT);
    EXPECT_EQ(launcher.wait(), 6);
  }
  fs::remove(in("ready.0"));
  Child launcher(arguments);
  ASSERT_TRUE(wait_for(ready));
  launcher.kill(SIGKILL);
  launcher.wait();
  EXPECT_TRUE(wait_for([&] { return left().empty(); }, milliseconds(15000))) << left();
}

// What mpirun says of so many ranks of the program. Containers may forbid reading from another process, as Open MPI
// does with long messages.
Result mpirun(const std::string& folder, int ranks, const std::string& environment, const std::string& arguments) {
  const std::string output = folder + "/output";
  const std::string command =
      cat("ASAN_OPTIONS=detect_leaks=0 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=1 "
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ",
          environment, " timeout 120 mpirun --oversubscribe -np ", ranks, " ", folder, "/rank ", arguments, " >",
          output, " 2>&1");
  const int status = std::system(command.c_str());
  std::ifstream file(output);
  return {status, std::string(std::istreambuf_iterator<char>(file), {})};
}

bool has_mpirun() {
  return std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

TEST_F(Launch, MpirunStartsTheSameProgram) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Result r = mpirun(folder_.string(), 3, "", "meet");
  EXPECT_EQ(r.status, 0) << r.output;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(count(r, cat("mpirun: rank ", rank, " of 3 has met 012")), 1u) << r.output;
}

// The same collectives over MPI's messages. Where the module was not built, the error that says so is what is tested.
TEST_F(Launch, MpiCarriesCollectives) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const fs::path module = fs::path(kRank).parent_path().parent_path() / "lib/strata/strata_mpi.so";
  const Result r = mpirun(folder_.string(), 3, "STRATA_TRANSPORT=mpi", "add 300001");
  if (!fs::exists(module)) {
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.output.find("there is no transport mpi"), std::string::npos) << r.output;
    return;
  }
  EXPECT_EQ(r.status, 0) << r.output;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(count(r, cat("rank ", rank, " of 3 has added 300001")), 1u) << r.output;
  const Result other = mpirun(folder_.string(), 3, "STRATA_TRANSPORT=mpi", "shapes");
  EXPECT_NE(other.status, 0);
  EXPECT_NE(other.output.find("all_reduce(sum) f32 [7]"), std::string::npos) << other.output;
  EXPECT_NE(other.output.find("all_reduce(sum) f32 [9]"), std::string::npos) << other.output;
}

TEST_F(Launch, MpiWithoutItsLauncherIsNamed) {
  const Result r = script("-n 2", cat("STRATA_TRANSPORT=mpi exec ", in("rank"), " add 5"));
  EXPECT_NE(r.status, 0);
  EXPECT_TRUE(r.output.find("start them with this MPI's launcher") != std::string::npos ||
              r.output.find("there is no transport mpi") != std::string::npos)
      << r.output;
}

TEST_F(Launch, TwoTransportsInOneJobAreNamed) {
  const Result r =
      script("-n 2", cat("if [ $RANK = 1 ]; then export STRATA_TRANSPORT=pigeon; fi; exec ", in("rank"), " add 5"));
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.output.find("the transport pigeon (STRATA_TRANSPORT)"), std::string::npos) << r.output;
}

TEST(HostList, ReadsOpenMpisForm) {
  const std::vector<Host> hosts = parse_hosts("a slots=2\n#x\n\n  b.c-d_1\t# y\na slots=3\r\nuser@e", "f");
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].slots, 5);
  EXPECT_EQ(hosts[1].name, "b.c-d_1");
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_EQ(hosts[2].name, "user@e");
  const std::pair<const char*, const char*> wrong[] = {
      {"a\nb slot=2", "f, line 2: 'slot=2' is nothing that a host has, which is slots=N"},
      {"a slots=0", "f, line 1: 'slots=0' must be a number from 1 to 4096"},
      {"a slots=", "f, line 1: 'slots=' must be a number from 1 to 4096"},
      {"a slots=2x", "f, line 1: 'slots=2x' must be a number from 1 to 4096"},
      {"\n\n-oProxyCommand=x", "f, line 3: '-oProxyCommand=x' is no host's name"},
      {"a;b", "f, line 1: 'a;b' is no host's name"},
      {"# nothing", "f names no host"}};
  for (const auto& [text, message] : wrong) {
    try {
      parse_hosts(text, "f");
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(), message);
    }
  }
}

TEST(RemoteHost, StartsAreReadAsTheyWereWritten) {
  const HostStart start{"/a b", {"A=1", "B=\n\xff", "C="}, {"prog", "", "x y"}, {3, 8}, 9, "numa"};
  const std::string text = encode(start);
  HostStart back;
  // In pieces.
  std::string pieces;
  for (size_t n = 0; n < text.size(); ++n) {
    EXPECT_FALSE(decode(pieces, back)) << n;
    pieces += text[n];
  }
  pieces += "signal 9\n";
  ASSERT_TRUE(decode(pieces, back));
  EXPECT_EQ(pieces, "signal 9\n");
  EXPECT_EQ(back.folder, start.folder);
  EXPECT_EQ(back.environment, start.environment);
  EXPECT_EQ(back.command, start.command);
  EXPECT_EQ(back.ranks, (std::vector<int>{3, 8}));
  EXPECT_EQ(back.size, 9);
  EXPECT_EQ(back.bind, "numa");
  std::minstd_rand random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string changed = text;
    for (unsigned n = 1 + random() % 4; n > 0; --n) changed[random() % changed.size()] = " 0129x\n\xff"[random() % 8];
    try {
      if (decode(changed, back)) {
        EXPECT_FALSE(back.command.empty());
        EXPECT_FALSE(back.ranks.empty());
        for (const int rank : back.ranks) EXPECT_LT(rank, back.size);
      }
    } catch (const IoError&) {
    }
  }
  std::string endless(100, '1');
  EXPECT_THROW(decode(endless, back), IoError);
  for (const std::vector<int>& ranks : {std::vector<int>{3, 8, 3}, {9}, {}}) {
    std::string wrong = encode({"/a", {}, {"prog"}, ranks, 9, "none"});
    EXPECT_THROW(decode(wrong, back), IoError);
  }
}

}  // namespace
}  // namespace strata::cli
