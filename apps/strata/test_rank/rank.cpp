// A rank for the tests of `strata launch`: meets the others, and says what it hears of them.
//
//   rank meet           every rank tells every other its number
//   rank beat SECONDS   a heartbeat every 0.2 s; status 3 once another rank has failed, 0 after SECONDS

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include "strata/core/error.h"
#include "strata/dist/coordinator.h"
#include "strata/dist/job.h"

namespace {

using namespace strata;
using std::chrono::milliseconds;

void say(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int meet_all(const distributed::Job& job, const distributed::Membership& member) {
  member.client->set(cat("number/", job.rank), std::to_string(job.rank));
  std::string all;
  for (int r = 0; r < job.size; ++r) all += member.client->get(cat("number/", r), milliseconds(60000));
  say(cat(job.launcher, ": rank ", job.rank, " of ", job.size, " has met ", all));
  return 0;
}

int beat(const distributed::Job& job, const distributed::Membership& member, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  bool first = true;
  while (std::chrono::steady_clock::now() < end) {
    const auto ranks =
        member.client->beat({.rank = job.rank, .host = "here", .pid = ::getpid(), .state = "beating", .step = 1});
    if (first) say(cat("beats ", static_cast<int64_t>(::getpid())));
    first = false;
    for (const distributed::RankState& other : ranks)
      if (other.order == 1) {
        say(cat("heard that rank ", other.last.rank, " ", other.failure));
        return 3;
      }
    std::this_thread::sleep_for(milliseconds(200));
  }
  member.client->leave(job.rank);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto job = distributed::current_job();
    if (!job) throw ValueError("rank", "there is no job");
    const distributed::Membership member = distributed::join(*job, milliseconds(60000));
    if (argc == 2 && std::string(argv[1]) == "meet") return meet_all(*job, member);
    if (argc == 3 && std::string(argv[1]) == "beat") return beat(*job, member, std::atof(argv[2]));
    throw ValueError("rank", "wants meet, or beat and the seconds");
  } catch (const std::exception& e) {
    say(cat("error: ", e.what()));
    return 1;
  }
}
