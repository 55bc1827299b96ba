// What a card ran and when: kernels, copies and fills of a program that is not changed for it, those of replayed graphs
// one by one. The driver loads this library before the program's first call:
//     CUDA_INJECTION64_PATH=device_timeline.so STRATA_TIMELINE=FILE program
// FILE.PID gets one line an activity: begin and end in ns, stream, the graph's launch (0: none), bytes of a copy, name.
// bench/step_timeline.py starts the ranks of a run with it, and says what of a step is exchanges that were waited for.

#include <cupti.h>
#include <cxxabi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

constexpr size_t kBuffer = 8 << 20;
std::mutex g_mutex;
FILE* g_file = nullptr;

std::string readable(const char* name) {
  if (name == nullptr) return "?";
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain != nullptr ? plain : name;
  std::free(plain);
  return text;
}

template <class Record>
void write(const Record& r, uint32_t launch, unsigned long long bytes, const char* name) {
  std::fprintf(g_file, "%llu\t%llu\t%u\t%u\t%llu\t%s\n", static_cast<unsigned long long>(r.start),
               static_cast<unsigned long long>(r.end), r.streamId, launch, bytes, name);
}

// A graph's activities have the number of the call that launched it, all the same one.
template <class Record>
uint32_t launch_of(const Record& r) {
  return r.graphId != 0 ? r.correlationId : 0;
}

void write_all(uint8_t* buffer, size_t bytes) {
  const std::lock_guard lock(g_mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& r = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        write(r, launch_of(r), 0, readable(r.name).c_str());
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& r = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
        const bool between = r.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
        write(r, launch_of(r), r.bytes, between ? "memcpy between cards" : "memcpy");
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& r = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
        write(r, launch_of(r), r.bytes, "memcpy between cards");
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& r = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
        write(r, launch_of(r), r.bytes, "memset");
        break;
      }
      default:
        break;
    }
  }
  std::fflush(g_file);
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBuffer));
  *bytes = *buffer == nullptr ? 0 : kBuffer;
  *most = 0;
}
void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (valid > 0) write_all(buffer, valid);
  std::free(buffer);
}

void flush() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* const where = std::getenv("STRATA_TIMELINE");
  if (where == nullptr) return 1;
  const std::string path = std::string(where) + "." + std::to_string(getpid());
  g_file = std::fopen(path.c_str(), "w");
  if (g_file == nullptr) {
    std::fprintf(stderr, "device_timeline: %s cannot be written\n", path.c_str());
    return 1;
  }
  CUptiResult e = cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (e == CUPTI_SUCCESS) e = cuptiActivityEnable(kind);
  }
  if (e == CUPTI_SUCCESS) e = cuptiActivityFlushPeriod(500);
  if (e != CUPTI_SUCCESS) {
    const char* why = nullptr;
    cuptiGetResultString(e, &why);
    std::fprintf(stderr, "device_timeline: CUPTI says: %s\n", why != nullptr ? why : "?");
    return 1;
  }
  std::atexit(flush);
  return 1;
}
