#pragma once
// The coordinator: an HTTP server that holds a job's Store, hears its ranks' heartbeats, and shows its state.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/dist/store.h"

namespace strata::distributed {

/// How a coordinator is started.
struct CoordinatorOptions {
  int size = 1;                    ///< ranks of the job
  std::string host = "127.0.0.1";  ///< the interface that it listens on
  int port = 0;                    ///< 0: any that is free; it is bound before the constructor returns
  std::string secret;              ///< requests without it are refused; not empty, printable ASCII, 256 bytes at most
  /// A rank whose last heartbeat is older has failed.
  std::chrono::milliseconds silence{5000};
  /// Of how long ranks' waits are compared: who is waited for is known after that, and a heartbeat.
  std::chrono::milliseconds window{10000};
};

/// What a rank says of itself, every second.
struct Heartbeat {
  int rank = 0;
  std::string host;  ///< at most 256 bytes
  int64_t pid = 0;
  std::string state;   ///< one line: the collective it is in or did last, and the step; at most 1,024 bytes are sent
  int64_t step = -1;   ///< of training; -1 where there is none
  double waiting = 0;  ///< seconds it has been waiting for others in the collective it is in; 0 outside
  /// Of its collectives on cards how many there were, and a hash of them; at most 1,024 bytes are sent.
  std::string calls = {};
  double waited = 0;  ///< seconds in which any of its collectives was under way, since it began
};

/// What is known of a rank.
struct RankState {
  Heartbeat last;
  double age = 0;       ///< seconds since that heartbeat; negative where none came yet
  bool left = false;    ///< said goodbye
  std::string failure;  ///< why it is taken for dead or failed; empty while it is well
  int order = 0;        ///< of its failure: 1 for the first of the job, of which the others may have died
  /// Part of the last CoordinatorOptions::window in which it was in collectives; negative where that is not known, as
  /// before it has trained for so long.
  double share = -1;
  /// Whether the others wait for it: it waits least, by a tenth of the time and by half of what most others do.
  bool straggler = false;
};

/// "rank 2 (HOST, pid 17) is waited for: it spends 3 % of its time in collectives, others 61 %"; empty where nobody is.
std::string straggler_text(const std::vector<RankState>& ranks);

/// Who the ranks of a job are after some have died: the processes' first numbers, in the order of their ranks now.
struct Formation {
  int64_t number = 0;  ///< how often the job was formed anew
  std::vector<int> seats;
};

/// The server. Its pages: /status (people), /metrics (Prometheus), and what StoreClient asks. Both pages are open to
/// this host, where they show no more than `ps` does, and to others with the secret (as a password or bearer token).
///
/// Requests are bounded in size and time; a client that is slow or sends garbage holds up nobody else. At most 64
/// requests wait for a key at once; others are told to ask again, less often the more ranks there are, so that the
/// server's threads (96 at most) and load are bounded whatever the size of the job.
class Coordinator {
 public:
  /// Binds and serves. Throws DistributedError where the port is taken or the host is none of this machine's.
  explicit Coordinator(const CoordinatorOptions& options);
  ~Coordinator();
  int port() const;
  /// Tells where a rank runs, before it says so itself.
  void started(int rank, std::string_view host, int64_t pid);
  /// Every rank's state.
  std::vector<RankState> ranks() const;
  /// Marks a rank as failed: what the launcher saw of it. Every rank learns of it with its next heartbeat.
  /// A rank that has left cannot fail any more, and one that has failed stays so until another process takes its place.
  void fail(int rank, std::string_view why);
  /// A rank ended in order, whether it said so or not.
  void leave(int rank);
  /// A rank that has failed will not be replaced: the job can be formed without it.
  void lose(int rank);
  /// The ranks as they were formed last.
  Formation formation() const;
  /// The store, for this process.
  Store& store();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A rank's way to the coordinator: one connection a request, so that any threads can ask at once.
class StoreClient final : public Store {
 public:
  /// Waits for the coordinator at `address` ("host:port") for up to `patience`. Throws DistributedError when there is
  /// none by then or the secret is refused.
  StoreClient(std::string_view address, std::string_view secret, std::chrono::milliseconds patience);
  ~StoreClient() override;
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  int64_t add(std::string_view key, int64_t amount) override;
  void remove(std::string_view key) override;
  /// Says that this rank lives, and hears of the others: every rank's state by its number, those that failed with why.
  /// Where `everyone` is false, only those that left or failed are told (the others are as if never heard of): what a
  /// large job asks for every second. Throws DistributedError where another living process has this rank.
  std::vector<RankState> beat(const Heartbeat& mine, bool everyone = true);
  /// Asks for the forming of the job behind number `after`, of which this process wants to be with the number `rank`
  /// that it was started with: one of number `after` where others are still missing. It is formed once every rank has
  /// asked that is not given up (Coordinator::lose()). Throws DistributedError where one has ended in order, none has
  /// died since it was formed last, or this one was given up.
  Formation form(int rank, int64_t after);
  /// Says goodbye: this rank ends in order.
  void leave(int rank);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Job;
namespace detail {
class MeetingFile;
}

/// How a rank takes part in its job: what it hosts for the others (rank 0 under mpirun, srun and torchrun) and its
/// connection; both null in a job of one.
///
/// Its end says goodbye, unless an exception is the reason. Where it hosts the coordinator it then waits up to 10 s
/// until every other rank has left or failed, so that their last requests are answered.
///
/// ```cpp
/// if (const auto job = distributed::current_job()) {
///   const distributed::Membership member = distributed::join(*job, std::chrono::seconds(60));
///   if (member.client) member.client->set(cat("address/", job->rank), "...");
/// }
/// ```
struct Membership {
  std::unique_ptr<Coordinator> hosted;  ///< null where another process holds it
  std::unique_ptr<StoreClient> client;

  Membership();
  ~Membership();
  Membership(Membership&&) noexcept;
  Membership& operator=(Membership&&) = delete;

 private:
  friend Membership join(const Job& job, std::chrono::milliseconds patience);
  std::unique_ptr<detail::MeetingFile> file_;
  int rank_ = 0, exceptions_ = 0;
};

/// Finds the job's coordinator, or starts it where that is this rank's part, and connects, waiting up to `patience`.
/// Where a job has several hosts, rank 0's coordinator listens at all interfaces of its host, otherwise at the loopback
/// alone. Throws DistributedError saying what was missing.
Membership join(const Job& job, std::chrono::milliseconds patience);

}  // namespace strata::distributed
