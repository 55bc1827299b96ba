#pragma once
// Groups of ranks, and this process's part in its job.
//
//     distributed::init();                                   // reads what strata launch, mpirun, srun or torchrun says
//     distributed::set_mesh(distributed::Mesh("dp=2 tp=2"));
//     Tensor y = distributed::all_reduce(x, "sum", "dp");    // strata/dist/collectives/collectives.h
//     distributed::shutdown();

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/device.h"
#include "strata/core/tensor.h"
#include "strata/dist/communicator.h"
#include "strata/dist/job.h"
#include "strata/dist/recorder.h"
#include "strata/dist/store.h"

namespace strata::distributed {

/// The ranks of a job as a grid with named axes, the last one varying fastest: "dp=2 tp=2" puts ranks 0 and 1 into one
/// "tp" group and 0 and 2 into one "dp" group.
class Mesh {
 public:
  /// One axis.
  struct Axis {
    std::string name;  ///< letters, digits and '_', beginning with a letter; not "world"
    int size = 1;
  };
  /// Axes as text, separated by blanks: "dp=2 tp=2". Throws ValueError naming what cannot be read, a name given twice
  /// or a size below 1.
  explicit Mesh(std::string_view text);
  explicit Mesh(std::vector<Axis> axes);
  const std::vector<Axis>& axes() const { return axes_; }
  /// The product of the axes' sizes.
  int size() const { return size_; }
  /// The ranks that differ from `rank` along the axes of `group` ("tp", "dp+cp"; "dp:2" two neighbours at a time)
  /// alone, in the mesh's order. "world" is all. Throws ValueError naming an axis or a number that does not fit, and
  /// what there is.
  std::vector<int> ranks_of(std::string_view group, int rank) const;

 private:
  std::vector<Axis> axes_;
  int size_ = 1;
};

namespace detail {
struct WorkState;
}

/// Work on a group that was begun and may be waited for.
class Work {
 public:
  Work() = default;
  /// Of the host: returns when it is done, and throws DistributedError where it failed. Of a card: the current stream
  /// waits, the host does not; what failed is told as by every op on a card (Group::run()). Nothing happens for a
  /// Work().
  void wait();

 private:
  friend class Group;
  std::shared_ptr<detail::WorkState> state_;
};

/// Some ranks of the job that compute together. Calls are done one after the other, in the order in which this process
/// makes them, which must be the same in every rank of the group.
class Group {
 public:
  ~Group();
  Group(const Group&) = delete;
  const std::string& name() const;
  /// This process's number in the group.
  int rank() const;
  int size() const;
  /// The job's numbers of its ranks.
  const std::vector<int>& ranks() const;
  /// Calls `run` with the group's communicator when all earlier work is done, and returns when it has returned. `what`
  /// is what every rank of the group must agree on: "all_reduce(sum) f32 [1024]". Throws DistributedError naming the
  /// rank to blame, with what every rank was doing; the job's groups are then of no more use.
  void run(std::string what, const std::function<void(Communicator&)>& run);
  /// The same on a thread of the group's own, beside the caller. What `run` uses must live until wait() has returned,
  /// or be held by `run` itself.
  Work start(std::string what, std::function<void(Communicator&)> run);
  /// The same for memory of `device`. On a card `run` is called at once and queues on a stream of the group's own, for
  /// which the caller's current stream then waits; in a CUDA graph the calls are replayed like any op. Each rank has a
  /// card of its own; the ranks connect at the first call (NCCL). What goes wrong there (a dead rank, another call than
  /// the others', one that does not end) throws DistributedError at the next op on the card, wait for it, or call here.
  void run(Device device, std::string what, const std::function<void(Collectives&)>& run);
  /// The same beside the caller's stream: what `run` uses must not be changed before the Work was waited for, which
  /// holds `held` until then.
  Work start(Device device, std::string what, std::function<void(Collectives&)> run, std::vector<Tensor> held = {});
  /// A message between two ranks of the group: run(), but for the others nothing happens, so they need not agree.
  void message(Device device, std::string what, const std::function<void(Collectives&)>& run);
  /// @name Messages that run beside all other calls
  /// A way for them, from one rank of the group to another. What is sent on it is received in the same order.
  struct Way {
    int from = 0, to = 0;
    uint64_t number = 0;  ///< tells ways between the same ranks from each other
  };
  /// Between cards ways are connected before their first message: all ranks of the group call it with the same ways in
  /// the same order. Those that are connected stay so; on the host nothing happens. Throws as run().
  void connect(Device device, std::span<const Way> ways);
  /// Begins a message of t's bytes, which must lie one behind the other, on a way from or to this rank. `what` is the
  /// same at both of its ends, as are the bytes. The Work holds `t`, which must not be changed, or read, before it was
  /// waited for. On a card the host waits for nothing; where messages are large, a send may end only when its receive
  /// has begun; there the message begins when `behind`, another one of this rank's, has ended (on the host it does not
  /// wait). Throws as start(), and ValueError where cards' way is not connected.
  Work send(const Tensor& t, const Way& way, std::string what, const Work& behind = {});
  Work receive(const Tensor& t, const Way& way, std::string what, const Work& behind = {});

  /// Returns when every rank of the group is here.
  void barrier();
  /// Over what calls between cards go, for people ("NCCL 2.28.3; small sums too, as there is no memory that the ranks
  /// map: .."); empty before the first one, and for a group that computes on the host.
  std::string way_of_cards() const;

  /// @name For tests and for those who bring a transport of their own
  Group(std::string name, std::vector<int> ranks, int rank, std::unique_ptr<Transport> transport);

 private:
  friend class World;
  Work queue(Device device, std::string what, const std::function<void(Collectives&)>& run, std::vector<Tensor> held,
             bool all_ranks);
  Work post(const Tensor& t, const Way& way, std::string what, bool sends, const Work& behind);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// How a process takes part in a job.
struct InitOptions {
  std::optional<Job> job;                      ///< what current_job() says where none is given
  std::chrono::milliseconds patience{60'000};  ///< for the others to come
  std::chrono::milliseconds complain{10'000};  ///< a collective that waits longer is named on stderr, once
  std::chrono::milliseconds timeout{600'000};  ///< one that waits longer ends in a DistributedError
  /// What carries bytes between processes on the host: "gloo" (TCP) or "mpi" (in processes that its launcher started);
  /// where it is empty the environment's STRATA_TRANSPORT, else "gloo". All ranks say the same.
  std::string transport = {};
};

/// Joins the job: finds the coordinator, begins to send heartbeats. A process that no launcher started is a job of one.
/// Throws ValueError where it has joined already or the environment contradicts itself, DistributedError where the
/// others do not come.
void init(const InitOptions& options = {});
/// Whether init() was called, and shutdown() not.
bool initialized();
/// This process's number in the job; 0 before init().
int rank();
/// Ranks of the job; 1 before init().
int size();
/// The job; one of one rank before init().
const Job& job();
/// This rank's card: the one of its number on this host (LOCAL_RANK), or cuda:0 where the process sees a single one.
/// Throws DeviceError where there are fewer cards than ranks.
Device card();
/// Behind init(), before anything asks for a card: the process sees its rank's card alone from then on, as cuda:0,
/// and takes all its queues (CUDA_DEVICE_MAX_CONNECTIONS). A job of one, or who sees one card, keeps it. Throws
/// DistributedError where CUDA_VISIBLE_DEVICES names fewer cards than this host has ranks.
void take_own_card();
/// Names the axes that groups are made of. Throws ValueError unless its size is the job's.
void set_mesh(const Mesh& mesh);
/// What set_mesh() was given. Throws ValueError where it was not called.
Mesh mesh();
/// The group of this process: "world" or "" is the whole job, else axes of the mesh ("dp", "dp+cp"). It is connected
/// when it is first asked for, by all its ranks. A process alone has "world" and, of a mesh, groups of one.
Group& group(std::string_view name);
/// The job's store. Throws DistributedError before init().
Store& store();
/// What this process's collectives did.
FlightRecorder& recorder();
/// Whether a collective of this process has failed and its launcher lets the others go on: it puts another process in
/// the place of one that died (`strata launch --restarts`), or goes on with fewer (`--min-ranks`). Then rejoin() may
/// be called.
bool can_rejoin();
/// Forms the job again after a failure, with every process that is left and those that take the others' places, which
/// do their part of this in init(). rank() and size() may be others then, where some were not replaced; axes are to be
/// named again by set_mesh(), and every Group of before is gone: what holds one (DataParallel, an op's graph) must be
/// destroyed first. Waits for the others for up to `patience`. Throws DistributedError where they do not come, or
/// can_rejoin() is false.
///
///     try {
///       train_some_steps();
///     } catch (const DistributedError&) {
///       if (!distributed::can_rejoin()) throw;
///       distributed::rejoin();
///       read_back_what_was_saved();
///     }
void rejoin(std::chrono::milliseconds patience = std::chrono::milliseconds(60'000));
/// Leaves the job: waits for every rank where nothing has failed, then says goodbye. Nothing happens before init().
void shutdown();

}  // namespace strata::distributed
