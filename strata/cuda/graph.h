#pragma once
// CUDA graphs: the work that a function queues on a device, recorded once and queued again by one call.
//
// A replay does what the function's kernels did, at the same addresses: inputs are read from, and results written to,
// the tensors that the function saw. What the host computed while it ran (sizes, numbers passed to ops, whatever it did
// to tensors of the host) is not done again. Random numbers are: a replay draws from default_generator() what the
// function would draw, and advances it; and optimizers' learning rates (before_replays()).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"

namespace strata::cuda {

/// Device memory that belongs to graphs: what a captured function allocates comes from the pool of its graph and is not
/// given to anyone else while a graph of the pool lives, because every replay uses it again. Graphs that share a pool
/// reuse each other's memory: a replay of one overwrites what another left there, tensors that are still held aside,
/// and they must not run at the same time. Copies of a pool name the same memory.
class GraphPool {
 public:
  /// Throws DeviceError where there is no such device.
  explicit GraphPool(int device = 0);
  int device() const;
  /// Bytes of the card behind the pool.
  int64_t reserved_bytes() const;

 private:
  friend class Graph;
  struct State;
  std::shared_ptr<State> state_;
};

/// A captured function.
/// \code
///   cuda::Graph graph;
///   Tensor y;
///   graph.capture([&] { y = model(x); });  // queues nothing
///   x.copy_(next);
///   graph.replay();                        // y is the model's output for the new x
/// \endcode
/// Tensors made outside that the function reads or writes must live as long as the graph is replayed. A function is
/// best run once before it is captured: what happens at first use only (searching algorithms, making an optimizer's
/// state) is then not recorded.
class Graph {
 public:
  Graph() : Graph(GraphPool()) {}
  explicit Graph(const GraphPool& pool);
  /// Waits for the device: its memory may be given to others afterwards.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Runs fn() and records, in place of what the graph held before, what this thread queues on the current stream of
  /// the pool's device, which no other thread may use meanwhile. default_generator() stays where it was. Rethrows what
  /// fn throws; then the graph is empty, and everything else as it was. Throws DeviceError, naming the op, where fn
  /// waits for the device, copies from host memory that is not pinned, or reads a value on the host (item(),
  /// to_vector()).
  template <class F>
  void capture(F&& fn) {
    Capture c(*this);
    fn();
    c.finish();
  }
  /// Queues the recorded work on the current stream. Throws DeviceError where nothing is recorded.
  void replay();

  bool empty() const { return handle_ == nullptr; }
  /// Kernels, copies and fills of a replay.
  int64_t nodes() const { return nodes_; }
  /// Counter blocks of random numbers that a replay draws.
  uint64_t random_blocks() const { return blocks_; }
  const GraphPool& pool() const { return pool_; }

  /// From the beginning of a capture to finish(), for callers that have no function to pass (bindings); gives up where
  /// it is destroyed before. The same thread begins and ends it.
  class Capture {
   public:
    /// Begins; `graph` forgets what it held. Throws DeviceError where the thread captures already.
    explicit Capture(Graph& graph);
    ~Capture();
    Capture(const Capture&) = delete;
    /// Ends the capture: `graph` can be replayed. Throws DeviceError where something in between cannot be captured.
    void finish();

   private:
    friend void before_replays(std::weak_ptr<const void> owner, std::function<void()> update);
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  void reset();

  GraphPool pool_;
  void* handle_ = nullptr;  // cudaGraphExec_t
  int64_t nodes_ = 0;
  RngKey drawn_from_;  // where default_generator() was when the function began
  uint64_t blocks_ = 0;
  void* base_ = nullptr;  // on the device: what drawn_from_ is moved by
  std::vector<std::pair<std::weak_ptr<const void>, std::function<void()>>> before_;  // of before_replays()
};

/// Whether this thread is inside Graph::capture().
bool capturing();
/// For functions that compute with numbers of the host: update() runs at the beginning of each replay of the graph that
/// this thread is capturing, as long as `owner` lives, to bring what the graph reads up to date. What it queues runs
/// before the replay. Throws DeviceError where this thread captures nothing.
void before_replays(std::weak_ptr<const void> owner, std::function<void()> update);

}  // namespace strata::cuda
