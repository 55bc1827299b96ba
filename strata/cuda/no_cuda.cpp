// What this room is in a build without CUDA: no devices, and an error with the reason for whoever asks for one.

#include <atomic>

#include "strata/core/error.h"
#include "strata/core/tensor.h"
#include "strata/cuda/blas.h"
#include "strata/cuda/blas_scaled.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/attention/rotary_kernel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/dropout/dropout_kernel.h"
#include "strata/ops/elementwise/map_cuda.h"
#include "strata/ops/embedding/embedding_kernel.h"
#include "strata/ops/factory/ranges_kernels.h"
#include "strata/ops/index/index_kernels.h"
#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/softmax/softmax_kernel.h"

namespace strata::cuda {
namespace {
constexpr const char* kReason = "this build has no CUDA (configure with -DSTRATA_CUDA=ON where nvcc is installed)";
[[noreturn]] void refuse(std::string_view what) {
  throw DeviceError(what, kReason);
}
}  // namespace

int device_count() {
  return 0;
}
std::string unavailable_reason() {
  return kReason;
}
const DeviceProperties& properties(int) {
  refuse("cuda");
}
Versions versions() {
  return {};
}

Stream Stream::main(int) {
  refuse("Stream");
}
Stream Stream::create(int) {
  refuse("Stream");
}
void Stream::synchronize() const {
  refuse("Stream");
}
bool Stream::query() const {
  refuse("Stream");
}
void Stream::wait(const Stream&) const {
  refuse("Stream");
}
void Stream::host_callback(void (*)(void*), void*) const {
  refuse("Stream");
}
Stream current_stream(int) {
  refuse("current_stream");
}
StreamScope::StreamScope(const Stream& stream) : previous_(stream) {
  refuse("StreamScope");
}
StreamScope::~StreamScope() = default;

Event::Event(bool timing, int device) : device_(device), timing_(timing) {
  refuse("Event");
}
Event::~Event() = default;
void Event::record(const Stream&) {
  refuse("Event");
}
void Event::wait(const Stream&) const {
  refuse("Event");
}
bool Event::query() const {
  refuse("Event");
}
void Event::synchronize() const {
  refuse("Event");
}
double Event::elapsed_ms(const Event&) const {
  refuse("Event");
}

void synchronize(int) {
  refuse("synchronize");
}

struct GraphPool::State {};
GraphPool::GraphPool(int) {
  refuse("GraphPool");
}
int GraphPool::device() const {
  refuse("GraphPool");
}
int64_t GraphPool::reserved_bytes() const {
  refuse("GraphPool");
}
struct Graph::Capture::State {};
Graph::Capture::Capture(Graph&) {
  refuse("Graph");
}
Graph::Capture::~Capture() = default;
void Graph::Capture::finish() {
  refuse("Graph");
}
Graph::Graph(const GraphPool& pool) : pool_(pool) {
  refuse("Graph");
}
Graph::~Graph() = default;
void Graph::replay() {
  refuse("Graph");
}
void Graph::reset() {}
bool capturing() {
  return false;
}
void before_replays(std::weak_ptr<const void>, std::function<void()>) {
  refuse("before_replays");
}

void set_launch_blocking(bool) {}
bool launch_blocking() {
  return false;
}
void set_nvtx(bool) {}

namespace {
// Memory of a card: a reason why there is none.
class NoMemory final : public memory::Backend {
 public:
  NoMemory() : Backend("cuda", DeviceType::cuda, Tier::device, memory::Bytes::fixed) {}
  void* allocate(Device, size_t, memory::Tag) override { refuse("allocate"); }
  void deallocate(Device, void*, size_t, memory::Tag) override {}
  void retag(Device, void*, size_t, memory::Tag, memory::Tag) override {}
  memory::Bound bound(Device) override { refuse("bound"); }
  memory::Stats stats(Device) override { return {}; }
  void reset_peak(Device) override {}
  std::vector<memory::BlockInfo> blocks(Device) override { return {}; }
};
[[maybe_unused]] const bool g_registered = [] {
  memory::register_backend(*new NoMemory);
  return true;
}();
}  // namespace

LaunchScope::LaunchScope(std::string_view op, Device) {
  refuse(op);
}
LaunchScope::~LaunchScope() = default;
const char* LaunchScope::failure() const {
  return nullptr;
}

double set_memory_fraction(double, int) {
  refuse("set_memory_fraction");
}
void record_stream(const Tensor&, const Stream&) {
  refuse("record_stream");
}
void copy_to_pinned(const Tensor&, const Tensor&) {
  refuse("copy_to_pinned");
}
void put_bytes(void*, Device, const void*, size_t) {
  refuse("copy");
}
void copy_bytes(void*, Device, const void*, Device, size_t) {
  refuse("copy");
}
void fill_bytes(Device, void*, uint8_t, size_t) {
  refuse("fill");
}

void gemm(const cpu::Gemm&, Device) {
  refuse("matmul");
}
bool scaled_gemm(const ScaledGemm&, Device) {
  refuse("scaled_matmul");
}
// A setting of the process, kept for whoever asks; there are no tensor cores to follow it.
static std::atomic<bool> g_tf32{false};
void set_allow_tf32(bool on) {
  g_tf32.store(on);
}
bool allow_tf32() {
  return g_tf32.load(std::memory_order_relaxed);
}

}  // namespace strata::cuda

// Kernels that other kernels call by device.
namespace strata {
void copy_elements_cuda(const Tensor&, const Tensor&) {
  cuda::refuse("copy");
}
void map_cuda(Map, Tensor&, std::initializer_list<const Tensor*>, const MapParams&) {
  cuda::refuse("map");
}
void fill_elements_cuda(const Tensor&, Scalar) {
  cuda::refuse("fill");
}
void reduce_cuda(Reduction, const Tensor&, const Tensor&, uint32_t, const Tensor&, double) {
  cuda::refuse("reduce");
}
void reduce_index_cuda(bool, const Tensor&, const Tensor&, const Tensor&, uint32_t) {
  cuda::refuse("reduce");
}
void scan_cuda(Reduction, const Tensor&, const Tensor&, const Tensor&, int64_t, bool) {
  cuda::refuse("scan");
}
void pick_along_cuda(const Tensor&, const Tensor&, const Tensor&, int64_t) {
  cuda::refuse("pick_along");
}
void put_along_cuda(const Tensor&, const Tensor&, const Tensor&, int64_t) {
  cuda::refuse("put_along");
}
void attention_forward_cuda(const AttentionCall&, const Tensor&) {
  cuda::refuse("scaled_dot_product_attention");
}
void attention_backward_cuda(const AttentionCall&, const Tensor&) {
  cuda::refuse("scaled_dot_product_attention_backward");
}
void rotary_cuda(const RotaryCall&) {
  cuda::refuse("rotary");
}
void dropout_cuda(DType, const void*, void*, int64_t, float, double, RngKey) {
  cuda::refuse("dropout");
}
void range_cuda(Tensor&, const RangeNumbers&) {
  cuda::refuse("range");
}
void triangle_indices_cuda(Tensor&, const Triangle&) {
  cuda::refuse("triangle_indices");
}
void softmax_forward_cuda(DType, bool, const void*, void*, int64_t, int64_t, int64_t) {
  cuda::refuse("softmax");
}
void softmax_backward_cuda(DType, bool, const void*, const void*, void*, int64_t, int64_t, int64_t) {
  cuda::refuse("softmax_backward");
}
void row_norm_cuda(const RowNorm&) {
  cuda::refuse("norm");
}
void row_norm_backward_cuda(const RowNormBackward&) {
  cuda::refuse("norm_backward");
}
void channel_norm_cuda(const ChannelNorm&) {
  cuda::refuse("norm");
}
void channel_norm_backward_cuda(const ChannelNormBackward&) {
  cuda::refuse("norm_backward");
}
int64_t count_nonzero_cuda(const Tensor&) {
  cuda::refuse("nonzero");
}
void masked_select_into_cuda(Tensor&, const Tensor&, const Tensor&) {
  cuda::refuse("masked_select");
}
void nonzero_into_cuda(Tensor&, const Tensor&) {
  cuda::refuse("nonzero");
}
Tensor bincount_cuda(const Tensor&, const Tensor&, int64_t) {
  cuda::refuse("bincount");
}
void swiglu_cuda(const SwigluCall&) {
  cuda::refuse("swiglu");
}
void swiglu_backward_cuda(const SwigluCall&) {
  cuda::refuse("swiglu");
}
}  // namespace strata
