// A rank for the tests of `strata launch`: meets the others, and says what it hears of them.
//
//   rank meet           every rank tells every other its number
//   rank add N          the sum of N numbers of each rank, and the ranks' parts of an all_gather, right to the last one
//   rank shapes         the last rank adds other numbers than the others do: what each says of it
//   rank beat SECONDS   a heartbeat every 0.2 s; status 3 once another rank has failed, 0 after SECONDS

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "strata/core/error.h"
#include "strata/dist/coordinator.h"
#include "strata/dist/group.h"
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

int add(int64_t n) {
  distributed::init();
  const int rank = distributed::rank(), size = distributed::size();
  std::vector<float> sums(static_cast<size_t>(n)), parts(static_cast<size_t>(size) * sums.size());
  for (int64_t i = 0; i < n; ++i) sums[static_cast<size_t>(i)] = static_cast<float>(i % 1000 + rank);
  distributed::group("world").run("sums of a test", [&](distributed::Communicator& c) {
    c.all_gather(parts.data(), sums.data(), sums.size() * sizeof(float));
    c.all_reduce(sums.data(), n, DType::f32, distributed::Reduction::sum);
  });
  for (int64_t i = 0; i < n; ++i) {
    const float wanted = static_cast<float>(size * (i % 1000) + size * (size - 1) / 2);
    if (sums[static_cast<size_t>(i)] != wanted) throw ValueError("rank", cat("sum ", i, " is wrong"));
    for (int r = 0; r < size; ++r)
      if (parts[static_cast<size_t>(r * n + i)] != static_cast<float>(i % 1000 + r))
        throw ValueError("rank", cat("part ", i, " of rank ", r, " is wrong"));
  }
  distributed::shutdown();
  say(cat("rank ", rank, " of ", size, " has added ", n));
  return 0;
}

int add_other_shapes() {
  distributed::init();
  std::vector<float> x(distributed::rank() + 1 == distributed::size() ? 7 : 9, 1);
  const auto n = static_cast<int64_t>(x.size());
  distributed::group("world").run(cat("all_reduce(sum) f32 [", n, "]"), [&](distributed::Communicator& c) {
    c.all_reduce(x.data(), n, DType::f32, distributed::Reduction::sum);
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 3 && std::string(argv[1]) == "add") return add(std::atoll(argv[2]));
    if (argc == 2 && std::string(argv[1]) == "shapes") return add_other_shapes();
    const auto job = distributed::current_job();
    if (!job) throw ValueError("rank", "there is no job");
    const distributed::Membership member = distributed::join(*job, milliseconds(60000));
    if (argc == 2 && std::string(argv[1]) == "meet") return meet_all(*job, member);
    if (argc == 3 && std::string(argv[1]) == "beat") return beat(*job, member, std::atof(argv[2]));
    throw ValueError("rank", "wants meet, shapes, add and how many, or beat and the seconds");
  } catch (const std::exception& e) {
    say(cat("error: ", e.what()));
    return 1;
  }
}
