#include "strata/cuda/runtime.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include "strata/core/launch.h"
#include "strata/core/once.h"
#include "strata/core/storage.h"
#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/current.h"
#include "strata/cuda/driver_function_inl.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/job_inl.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/range.cuh"

namespace strata::cuda {

struct StreamAccess {
  static Stream make(int device, int id, cudaStream_t s) { return Stream(device, id, s); }
};

namespace {
constexpr int kStreams = 32;  // beside the main one
constexpr int kUrgent = 8;    // the last of them
constexpr int kMostDevices = 64;

bool flag(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}
std::atomic<bool> g_blocking{flag("STRATA_LAUNCH_BLOCKING")};
std::atomic<bool> g_nvtx{flag("STRATA_NVTX")};
std::atomic<bool> g_tf32{false};
std::atomic<void (*)()> g_raise{nullptr};

struct Count {
  int devices = 0;
  std::string reason;
};
const Count& count() {
  static const Count c = [] {
    Count r;
    const cudaError_t e = cudaGetDeviceCount(&r.devices);
    if (e != cudaSuccess) {
      r.devices = 0;
      r.reason = e == cudaErrorInsufficientDriver ? "no NVIDIA driver, or one too old for this build"
                 : e == cudaErrorNoDevice         ? "no CUDA-capable device"
                                                  : cudaGetErrorString(e);
      cudaGetLastError();
    } else if (r.devices == 0) {
      r.reason = "no CUDA-capable device";
    }
    return r;
  }();
  return c;
}

struct DeviceState {
  std::once_flag once;
  std::atomic<bool> ready{false};
  DeviceProperties properties;
  std::array<cudaStream_t, kStreams + 1> streams{};
  std::atomic<int> next{0}, next_urgent{0};
  RangeReport* report = nullptr;
  unsigned* claimed = nullptr;
};
__device__ unsigned g_claimed;  // RangeCheck's, of each device
[[noreturn]] void throw_no_device(int device) {
  throw DeviceError("cuda", cat("there is no device cuda:", device, ": ",
                                device_count() == 0 ? unavailable_reason() : cat(device_count(), " found")));
}
DeviceState& state(int device) {
  if (device < 0 || device >= device_count()) [[unlikely]]
    throw_no_device(device);
  static auto* states = new std::array<DeviceState, kMostDevices>;
  DeviceState& s = (*states)[static_cast<size_t>(device)];
  if (s.ready.load(std::memory_order_acquire)) [[likely]]
    return s;
  std::call_once(s.once, [&] {
    const strata::detail::OnceScope once("card");
    const DeviceScope scope(device);
    cudaDeviceProp p;
    check_cuda(cudaGetDeviceProperties(&p, device), "cuda", "cudaGetDeviceProperties");
    s.properties = {
        p.name,        static_cast<int64_t>(p.totalGlobalMem),        p.multiProcessorCount, p.major, p.minor,
        p.l2CacheSize, static_cast<int64_t>(p.sharedMemPerBlockOptin)};
    void* report = nullptr;
    check_cuda(cudaHostAlloc(&report, sizeof(RangeReport), cudaHostAllocPortable | cudaHostAllocMapped), "cuda",
               "cudaHostAlloc");
    s.report = new (report) RangeReport;
    check_cuda(cudaGetSymbolAddress(reinterpret_cast<void**>(&s.claimed), g_claimed), "cuda", "cudaGetSymbolAddress");
    // Non-blocking: the legacy stream 0 would wait for them and could not be captured beside them.
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cuda", "cudaDeviceGetStreamPriorityRange");
    for (int i = 0; i <= kStreams; ++i)
      check_cuda(cudaStreamCreateWithPriority(&s.streams[static_cast<size_t>(i)], cudaStreamNonBlocking,
                                              i > kStreams - kUrgent ? greatest : least),
                 "cuda", "cudaStreamCreateWithPriority");
    s.ready.store(true, std::memory_order_release);
  });
  return s;
}

// Each thread's current stream by device: an index into the device's streams.
thread_local std::array<int8_t, kMostDevices> t_current{};

std::atomic<int> g_captures{0};
thread_local int t_pool = 0;          // of the capture that this thread is in
thread_local bool t_outside = false;  // inside an OutsidePoolScope
// The ops whose kernels are being launched, each inside the one before; deeper ones go by the name of the last.
struct OpStack {
  std::array<std::string_view, 8> names;
  size_t depth = 0;
  std::string_view top() const { return depth == 0 ? std::string_view() : names[std::min(depth, names.size()) - 1]; }
};
thread_local OpStack t_ops;
}  // namespace

bool capturing() {
  return t_pool != 0;
}
int capture_pool() {
  return t_outside ? 0 : t_pool;
}
OutsidePoolScope::OutsidePoolScope() : previous_(std::exchange(t_outside, true)) {}
OutsidePoolScope::~OutsidePoolScope() {
  t_outside = previous_;
}
int captures_in_progress() {
  return g_captures.load();
}
PoolScope::PoolScope(int pool) {
  t_pool = pool;
  ++g_captures;
}
PoolScope::~PoolScope() {
  t_pool = 0;
  --g_captures;
}
void refuse_in_capture(std::string_view where, std::string_view what) {
  if (t_pool == 0) [[likely]]
    return;
  throw DeviceError(t_ops.depth == 0 ? where : t_ops.top(),
                    cat(what, ": a CUDA graph that is being captured cannot record that"));
}

int device_count() {
  return count().devices;
}
std::string unavailable_reason() {
  return count().reason;
}
const DeviceProperties& properties(int device) {
  return state(device).properties;
}

Versions versions() {
  Versions v;
  cudaDriverGetVersion(&v.driver);
  cudaRuntimeGetVersion(&v.runtime);
  return v;
}

void check_driver(CUresult e, std::string_view op, std::string_view what) {
  if (e == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().get_error_string(e, &text);
  throw DeviceError(op,
                    cat(what, " failed: ", text != nullptr ? text : "unknown error", " (", static_cast<int>(e), ")"));
}

void* driver_function(const char* name, unsigned version) noexcept {
  void* p = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t e = cudaGetDriverEntryPointByVersion(name, &p, version, cudaEnableDefault, &result);
#else
  const cudaError_t e = cudaGetDriverEntryPoint(name, &p, cudaEnableDefault, &result);
#endif
  const bool found = e == cudaSuccess && result == cudaDriverEntryPointSuccess;
  if (!found) cudaGetLastError();
  return found ? p : nullptr;
}

const Driver& driver() {
  static const Driver d = [] {
    Driver r{};
    const auto find = [](auto& f, const char* name, unsigned version) {
      void* const p = driver_function(name, version);
      check<DeviceError>(p != nullptr, "cuda", "the driver has no ", name);
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(p);
    };
    find(r.mem_address_reserve, "cuMemAddressReserve", 10020);
    find(r.mem_address_free, "cuMemAddressFree", 10020);
    find(r.mem_create, "cuMemCreate", 10020);
    find(r.mem_release, "cuMemRelease", 10020);
    find(r.mem_map, "cuMemMap", 10020);
    find(r.mem_unmap, "cuMemUnmap", 10020);
    find(r.mem_set_access, "cuMemSetAccess", 10020);
    find(r.mem_get_allocation_granularity, "cuMemGetAllocationGranularity", 10020);
    find(r.get_error_string, "cuGetErrorString", 6000);
    find(r.launch_kernel, "cuLaunchKernel", 4000);
    return r;
  }();
  return d;
}

Stream Stream::main(int device) {
  return StreamAccess::make(device, 0, state(device).streams[0]);
}
Stream Stream::create(int device) {
  DeviceState& s = state(device);
  const int id = 1 + static_cast<int>(static_cast<unsigned>(s.next.fetch_add(1)) % (kStreams - kUrgent));
  return StreamAccess::make(device, id, s.streams[static_cast<size_t>(id)]);
}
Stream urgent_stream(int device) {
  DeviceState& s = state(device);
  const int id = kStreams - static_cast<int>(static_cast<unsigned>(s.next_urgent.fetch_add(1)) % kUrgent);
  return StreamAccess::make(device, id, s.streams[static_cast<size_t>(id)]);
}
void Stream::synchronize() const {
  refuse_in_capture("Stream::synchronize", "the host waits for the device");
  check_cuda(cudaStreamSynchronize(raw(*this)), "Stream::synchronize", "an earlier kernel");
  throw_out_of_range(device_);
}
bool Stream::query() const {
  refuse_in_capture("Stream::query", "the host asks how far the device is");
  const cudaError_t e = cudaStreamQuery(raw(*this));
  if (e == cudaErrorNotReady) return false;
  check_cuda(e, "Stream::query", "an earlier kernel");
  return true;
}
void Stream::wait(const Stream& other) const {
  if (other == *this) return;
  Event e(false, other.device());
  e.record(other);
  e.wait(*this);
}
void Stream::host_callback(void (*fn)(void*), void* context) const {
  check_cuda(cudaLaunchHostFunc(raw(*this), fn, context), "Stream::host_callback", "cudaLaunchHostFunc");
}

Stream current_stream(int device) {
  DeviceState& s = state(device);
  const int id = t_current[static_cast<size_t>(device)];
  return StreamAccess::make(device, id, s.streams[static_cast<size_t>(id)]);
}
int current_device() {
  if (device_count() == 1) [[likely]]
    return 0;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cuda", "cudaGetDevice");
  return device;
}
cudaStream_t stream() {
  return raw(current_stream(current_device()));
}
void Launcher::operator()(unsigned blocks, unsigned threads, void** parameters) {
  // The driver, unlike the runtime, does not make a new thread's device current by itself.
  static thread_local bool known = false;
  const int device = current_device();
  if (!known) [[unlikely]] {
    check_cuda(cudaSetDevice(device), "cuda", "cudaSetDevice");
    known = true;
  }
  std::atomic<CUfunction>& cached = functions_[device];
  CUfunction function = cached.load(std::memory_order_relaxed);
  if (function == nullptr) [[unlikely]] {
    check_cuda(cudaGetFuncBySymbol(&function, kernel_), "cuda", "finding a kernel");
    cached.store(function, std::memory_order_relaxed);
  }
  const CUresult e = driver().launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, raw(current_stream(device)),
                                            parameters, nullptr);
  if (e != CUDA_SUCCESS) [[unlikely]]
    check_driver(e, "cuda", "a launch");
}
StreamScope::StreamScope(const Stream& stream) : previous_(current_stream(stream.device())) {
  t_current[static_cast<size_t>(stream.device())] = static_cast<int8_t>(stream.id());
}
StreamScope::~StreamScope() {
  t_current[static_cast<size_t>(previous_.device())] = static_cast<int8_t>(previous_.id());
}

Event::Event(bool timing, int device) : device_(device), timing_(timing) {
  state(device);
  const DeviceScope scope(device);
  cudaEvent_t e;
  check_cuda(cudaEventCreateWithFlags(&e, timing ? cudaEventDefault : cudaEventDisableTiming), "Event",
             "cudaEventCreate");
  handle_ = e;
}
Event::~Event() {
  cudaEventDestroy(static_cast<cudaEvent_t>(handle_));
}
void Event::record(const Stream& stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(handle_), raw(stream)), "Event::record", "cudaEventRecord");
}
void Event::wait(const Stream& stream) const {
  check_cuda(cudaStreamWaitEvent(raw(stream), static_cast<cudaEvent_t>(handle_), 0), "Event::wait",
             "cudaStreamWaitEvent");
}
bool Event::query() const {
  refuse_in_capture("Event::query", "the host asks how far the device is");
  const cudaError_t e = cudaEventQuery(static_cast<cudaEvent_t>(handle_));
  if (e == cudaErrorNotReady) return false;
  check_cuda(e, "Event::query", "an earlier kernel");
  return true;
}
void Event::synchronize() const {
  refuse_in_capture("Event::synchronize", "the host waits for the device");
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)), "Event::synchronize", "an earlier kernel");
  throw_out_of_range(device_);
}
double Event::elapsed_ms(const Event& start) const {
  check(timing_ && start.timing_, "Event::elapsed_ms", "both events must be made with timing");
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(start.handle_), static_cast<cudaEvent_t>(handle_)),
             "Event::elapsed_ms", "cudaEventElapsedTime");
  return ms;
}

void synchronize(int device) {
  refuse_in_capture("synchronize", "the host waits for the device");
  state(device);
  const DeviceScope scope(device);
  check_cuda(cudaDeviceSynchronize(), "synchronize", "an earlier kernel");
  throw_out_of_range(device);
}

RangeCheck value_check(const char* rule) {
  const DeviceState& s = state(current_device());
  const std::string_view op = t_ops.top();
  return {s.report, s.claimed, op.data(), op.size(), rule};
}
RangeCheck range_check() {
  return value_check(nullptr);
}
void throw_out_of_range(int device) {
  RangeReport& r = *state(device).report;
  std::atomic_ref<int> told(r.told);
  if (told.load(std::memory_order_acquire) == 0) [[likely]]
    return;
  if (const auto raise = g_raise.load()) raise();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (told.load(std::memory_order_acquire) == 0) return;
  const RangeReport seen = r;
  told.store(0);
  std::atomic_ref<unsigned>(r.round).fetch_add(1);
  const std::string_view op(seen.op, seen.op_length);
  const std::string where = cat(", found by the kernel on cuda:", device, "; results that depend on it are not right");
  if (seen.rule != nullptr) throw ValueError(op, cat(seen.rule, ", got ", seen.value, where));
  throw IndexError(op, cat("index ", seen.index, " is out of range for size ", seen.size, where));
}

// By the report that every op looks at anyway. What a kernel tells besides comes second.
void fail_card(int device, void (*raise)()) {
  g_raise.store(raise);
  std::atomic_ref<int>(state(device).report->told).store(raise != nullptr ? 1 : 0);
}

void set_launch_blocking(bool on) {
  g_blocking.store(on);
}
bool launch_blocking() {
  return g_blocking.load(std::memory_order_relaxed);
}
void set_allow_tf32(bool on) {
  g_tf32.store(on);
}
bool allow_tf32() {
  return g_tf32.load(std::memory_order_relaxed);
}
void set_nvtx(bool on) {
  g_nvtx.store(on);
}

LaunchScope::LaunchScope(std::string_view op, Device device) {
  if (t_pool == 0) throw_out_of_range(device.index);
  const int now = current_device();
  if (now != device.index) {
    check_cuda(cudaSetDevice(device.index), op, "cudaSetDevice");
    previous_ = now;
  }
  if (g_nvtx.load(std::memory_order_relaxed)) [[unlikely]] {
    nvtxRangePushA(std::string(op).c_str());
    range_ = true;
  }
  if (t_ops.depth < t_ops.names.size()) t_ops.names[t_ops.depth] = op;
  ++t_ops.depth;
}
LaunchScope::~LaunchScope() {
  --t_ops.depth;
  if (range_) nvtxRangePop();
  if (previous_ >= 0) cudaSetDevice(previous_);
}
const char* LaunchScope::failure() const {
  cudaError_t e = cudaGetLastError();
  if (e == cudaSuccess && launch_blocking() && t_pool == 0) [[unlikely]] {
    e = cudaStreamSynchronize(stream());
    cudaGetLastError();
    throw_out_of_range(current_device());
  }
  return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}

namespace {
const LaunchRoom kRoom{
    .run = [](std::string_view op, Device device, void (*launch)(const void*), const void* data) -> const char* {
      const LaunchScope scope(op, device);
      launch(data);
      return scope.failure();
    },
    .stream = [](Device device) -> int { return current_stream(device.index).id(); },
    .blocking = launch_blocking,
};
// Every CUDA kernel asks this file for its stream, so a program with one has this.
[[maybe_unused]] const bool g_registered = [] {
  detail::g_launch_rooms[static_cast<int>(DeviceType::cuda)] = &kRoom;
  return true;
}();
}  // namespace

}  // namespace strata::cuda
