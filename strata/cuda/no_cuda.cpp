// What this room is in a build without CUDA: no devices, and an error with the reason for whoever asks for one.

#include <atomic>

#include "strata/core/error.h"
#include "strata/core/tensor.h"
#include "strata/cuda/far_rows_kernel.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/job_inl.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/libraries.h"
#include "strata/cuda/links_inl.h"
#include "strata/cuda/magnitudes.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/page_locked.h"
#include "strata/cuda/runtime.h"

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
uint64_t capture_number() {
  return 0;
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

void want_magnitudes(const Tensor&) {}
Tensor kept_magnitudes(const Tensor&) {
  return {};
}
void keep_magnitudes(const Tensor&, const Tensor&) {}
void renew_magnitudes(const Tensor&, const Tensor&) {}

std::jthread detail::load_libraries(Device) {
  return {};
}

// A setting of the process, kept for whoever asks; there are no tensor cores to follow it.
static std::atomic<bool> g_tf32{false};
void set_allow_tf32(bool on) {
  g_tf32.store(on);
}
bool allow_tf32() {
  return g_tf32.load(std::memory_order_relaxed);
}

void on_card(int, const std::function<void()>&) {
  refuse("on_card");
}
Stream urgent_stream(int) {
  refuse("urgent_stream");
}
std::string card_uuid(int) {
  refuse("card_uuid");
}
Marks make_marks(int) {
  refuse("make_marks");
}
void add_mark(const Marks&, Mark, const Stream&) {
  refuse("add_mark");
}
uint64_t read_mark(const Marks&, Mark) {
  refuse("read_mark");
}
std::vector<Link> measure_links() {
  return {};
}
void fail_card(int, void (*)()) {}

int64_t locked_bytes_used() {
  return 0;
}

void put_far_rows(const Tensor&, const Tensor&, const Tensor&) {
  refuse("put_rows");
}

}  // namespace strata::cuda
