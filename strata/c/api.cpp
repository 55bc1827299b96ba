// The library itself: versions, errors, random numbers, threads, streams.

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "strata/c/handles.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/train/machine.h"

using namespace strata;
using namespace strata::c;

uint32_t strata_abi_version(void) {
  return STRATA_ABI_VERSION;
}

const char* strata_version(void) {
  return guarded_or<const char*>("", [] {
    static const std::string version = machine_info().version;
    return version.c_str();
  });
}

const char* strata_error_text(void) {
  return last_failure().text.c_str();
}

strata_status strata_error_status(void) {
  return last_failure().status;
}

void strata_seed(uint64_t seed) {
  guarded([&] { manual_seed(seed); });
}

strata_rng_key strata_rng_next(uint64_t blocks) {
  return guarded_or(strata_rng_key{0, 0}, [&] {
    const RngKey key = default_generator().next(blocks);
    return strata_rng_key{key.seed, key.offset};
  });
}

strata_status strata_set_num_threads(int32_t count) {
  return guarded([&] {
    check(count >= 1, "strata_set_num_threads", "at least 1 thread is needed, got ", count);
    set_num_threads(count);
  });
}

int32_t strata_num_threads(void) {
  return guarded_or<int32_t>(1, [] { return num_threads(); });
}

int32_t strata_cuda_device_count(void) {
  return guarded_or<int32_t>(0, [] { return cuda::device_count(); });
}

// ---- streams

namespace {

// A card that can be used, or a device without streams.
Device usable(strata_device device, const char* function) {
  const Device d = device_from(device, function);
  if (d.is_cuda())
    check<DeviceError>(d.index < cuda::device_count(), function, "there is no ", d, ": ", cuda::unavailable_reason());
  return d;
}

// Streams that programs were given; a cudaStream_t of someone else's is none of them.
std::mutex g_streams_mutex;
std::vector<cuda::Stream>& streams() {
  static std::vector<cuda::Stream> all;
  return all;
}

}  // namespace

strata_status strata_current_stream(strata_device device, void** out) {
  return guarded([&] {
    need(out, "strata_current_stream", "out");
    const Device d = usable(device, "strata_current_stream");
    *out = d.is_cuda() ? cuda::current_stream(d.index).handle() : nullptr;
  });
}

strata_status strata_stream_create(strata_device device, void** out) {
  return guarded([&] {
    need(out, "strata_stream_create", "out");
    const Device d = usable(device, "strata_stream_create");
    check<DeviceError>(d.is_cuda(), "strata_stream_create", "only a CUDA device has streams, got ", d);
    const cuda::Stream stream = cuda::Stream::create(d.index);
    const std::lock_guard lock(g_streams_mutex);
    // They come from a pool that hands them out in turn.
    if (std::find(streams().begin(), streams().end(), stream) == streams().end()) streams().push_back(stream);
    *out = stream.handle();
  });
}

strata_status strata_set_current_stream(strata_device device, void* stream) {
  return guarded([&] {
    constexpr const char* kName = "strata_set_current_stream";
    const Device d = usable(device, kName);
    if (d.is_cpu() && stream == nullptr) return;
    check<DeviceError>(d.is_cuda(), kName, "only a CUDA device has streams, got ", d);
    // What the engine offers is a scope: this thread's stays open until the next call.
    thread_local std::map<int, std::unique_ptr<cuda::StreamScope>> scopes;
    std::unique_ptr<cuda::StreamScope>& scope = scopes[d.index];
    if (stream == nullptr) {
      scope.reset();
      return;
    }
    const std::lock_guard lock(g_streams_mutex);
    const auto found = std::find_if(streams().begin(), streams().end(), [&](const cuda::Stream& s) {
      return s.handle() == stream && s.device() == d.index;
    });
    check(found != streams().end(), kName, "this is no stream that strata_stream_create gave for ", d);
    scope.reset();
    scope = std::make_unique<cuda::StreamScope>(*found);
  });
}

strata_status strata_synchronize(strata_device device) {
  return guarded([&] {
    const Device d = usable(device, "strata_synchronize");
    if (d.is_cuda()) cuda::synchronize(d.index);
  });
}
