// Capturing and replaying CUDA graphs.

#include "strata/cuda/graph.h"

#include <atomic>
#include <optional>

#include "strata/cuda/check.cuh"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"
#include "strata/memory/allocator.h"

namespace strata::cuda {

struct GraphPool::State {
  explicit State(int d) : device(d), id(create_pool(d)) {}
  ~State() { release_pool(device, id); }
  int device, id;
};

GraphPool::GraphPool(int device) : state_(std::make_shared<State>(device)) {}
int GraphPool::device() const {
  return state_->device;
}
int64_t GraphPool::reserved_bytes() const {
  return pool_bytes(state_->device, state_->id);
}

namespace {
thread_local Graph::Capture* t_capture = nullptr;
std::atomic<uint64_t> g_captures{0};
thread_local uint64_t t_number = 0;
}  // namespace

uint64_t capture_number() {
  return t_capture ? t_number : 0;
}

struct Graph::Capture::State {
  explicit State(Graph& g)
      : graph(g),
        device(g.pool_.device()),
        stream(current_stream(g.pool_.device())),
        random(default_generator().state()) {}
  Graph& graph;
  DeviceScope device;
  Stream stream;
  RngKey random;
  std::optional<RngBaseScope> numbers;
  std::optional<PoolScope> memory;
  decltype(Graph::before_) before;
};

Graph::Capture::Capture(Graph& graph) {
  check<DeviceError>(!capturing(), "Graph::capture", "this thread is capturing a graph already");
  graph.reset();
  const int device = graph.pool_.device();
  if (graph.base_ == nullptr)
    graph.base_ = memory::allocate(Device::cuda(device), sizeof(RngKey), memory::Tag::workspace);
  state_ = std::make_unique<State>(graph);
  state_->memory.emplace(graph.pool_.state_->id);
  state_->numbers.emplace(static_cast<const RngKey*>(graph.base_));
  check_cuda(cudaStreamBeginCapture(raw(state_->stream), cudaStreamCaptureModeThreadLocal), "Graph::capture",
             "cudaStreamBeginCapture");
  t_capture = this;
  t_number = g_captures.fetch_add(1) + 1;
}

void before_replays(std::weak_ptr<const void> owner, std::function<void()> update) {
  check<DeviceError>(t_capture != nullptr, "before_replays", "this thread captures no graph");
  t_capture->state_->before.emplace_back(std::move(owner), std::move(update));
}

void Graph::Capture::finish() {
  const std::unique_ptr<State> s = std::move(state_);
  t_capture = nullptr;
  s->numbers.reset();
  const RngKey after = default_generator().state();
  default_generator().set_state(s->random);
  cudaGraph_t recorded = nullptr;
  const cudaError_t e = cudaStreamEndCapture(raw(s->stream), &recorded);
  s->memory.reset();
  check_cuda(e, "Graph::capture", "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  size_t nodes = 0;
  cudaError_t made = cudaGraphGetNodes(recorded, nullptr, &nodes);
  // Kernels have the priority of the stream that they were captured on, as outside of a graph.
  if (made == cudaSuccess) made = cudaGraphInstantiate(&exec, recorded, cudaGraphInstantiateFlagUseNodePriority);
  cudaGraphDestroy(recorded);
  check_cuda(made, "Graph::capture", "cudaGraphInstantiate");
  s->graph.handle_ = exec;
  s->graph.nodes_ = static_cast<int64_t>(nodes);
  if (after.seed != s->random.seed || after.offset < s->random.offset) {
    s->graph.reset();
    throw ValueError("Graph::capture", "the function set default_generator()'s seed or state");
  }
  s->graph.drawn_from_ = s->random;
  s->graph.blocks_ = after.offset - s->random.offset;
  s->graph.before_ = std::move(s->before);
}

Graph::Capture::~Capture() {
  if (!state_) return;
  t_capture = nullptr;
  cudaGraph_t recorded = nullptr;
  cudaStreamEndCapture(raw(state_->stream), &recorded);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  cudaGetLastError();  // of the capture, which its own error has told
  default_generator().set_state(state_->random);
}

Graph::Graph(const GraphPool& pool) : pool_(pool) {}

Graph::~Graph() {
  reset();
  if (base_ != nullptr) memory::deallocate(Device::cuda(pool_.device()), base_, sizeof(RngKey), memory::Tag::workspace);
}

void Graph::reset() {
  if (handle_ == nullptr) return;
  if (captures_in_progress() == 0) {
    int previous = 0;
    cudaGetDevice(&previous);
    cudaSetDevice(pool_.device());
    cudaDeviceSynchronize();
    cudaGetLastError();  // a kernel's failure is told by the next call that asks
    cudaSetDevice(previous);
  }
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
  handle_ = nullptr;
  before_.clear();
  nodes_ = 0;
  blocks_ = 0;
}

void Graph::replay() {
  check<DeviceError>(handle_ != nullptr, "Graph::replay", "nothing was captured");
  const Device device = Device::cuda(pool_.device());
  const DeviceScope scope(device.index);
  throw_out_of_range(device.index);
  for (const auto& [owner, update] : before_)
    if (const std::shared_ptr<const void> alive = owner.lock()) update();
  if (blocks_ > 0) {
    RngKey moved = default_generator().next(blocks_);
    moved.offset -= drawn_from_.offset;  // modulo 2^64, as kernels add it
    put_bytes(base_, device, &moved, sizeof moved);
  }
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), stream()), "Graph::replay", "cudaGraphLaunch");
}

}  // namespace strata::cuda
