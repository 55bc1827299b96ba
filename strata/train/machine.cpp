#include "strata/train/machine.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <hwy/highway.h>
#include <oneapi/dnnl/dnnl.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/io/files.h"
#include "strata/memory/bounds.h"
#include "strata/train/build_info.h"

namespace strata {
namespace {

// A file of /proc, /sys or /etc; empty where it is not there.
std::string system_file(const std::string& path) {
  try {
    return io::read_file(path, 4 << 20);
  } catch (const IoError&) {
    return "";
  }
}

// Calls visit(key, value) for lines of the form "key <separator> value".
template <class Visit>
void for_each_pair(std::string_view text, char separator, Visit&& visit) {
  const auto trim = [](std::string_view s) {
    const auto skip = " \t\"\n";
    const size_t b = s.find_first_not_of(skip);
    return b == std::string_view::npos ? std::string_view() : s.substr(b, s.find_last_not_of(skip) - b + 1);
  };
  while (!text.empty()) {
    const size_t n = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, n);
    if (const size_t at = line.find(separator); at != std::string_view::npos)
      visit(trim(line.substr(0, at)), trim(line.substr(at + 1)));
    text.remove_prefix(std::min(n + 1, text.size()));
  }
}

void read_cpu(MachineInfo& info) {
  // What matters to tensor kernels, as /proc/cpuinfo spells it.
  static constexpr std::string_view kFeatures[] = {"sse4_2",      "avx",         "f16c",     "fma",      "avx2",
                                                   "avx_vnni",    "avx512f",     "avx512bw", "avx512vl", "avx512_vnni",
                                                   "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8",
                                                   "asimd",       "sve",         "sve2",     "bf16",     "i8mm"};
  std::set<std::pair<std::string, std::string>> cores;
  std::string socket;
  for_each_pair(system_file("/proc/cpuinfo"), ':', [&](std::string_view key, std::string_view value) {
    if (key == "model name" && info.cpu.empty()) info.cpu = value;
    if (key == "physical id") socket = value;
    if (key == "core id") cores.emplace(socket, value);
    if ((key == "flags" || key == "Features") && info.features.empty()) {
      const std::string all = fmt::format(" {} ", value);
      for (const std::string_view f : kFeatures)
        if (all.find(fmt::format(" {} ", f)) != std::string::npos) info.features.emplace_back(f);
    }
  });
  info.cores = static_cast<int>(cores.size());
  cpu_set_t allowed;
  info.cpus = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0
                  ? CPU_COUNT(&allowed)
                  : static_cast<int>(std::thread::hardware_concurrency());
  if (info.cores == 0) info.cores = info.cpus;
  info.threads = num_threads();
  const int64_t targets = hwy::SupportedTargets();
  // The lowest bit is the best target.
  info.kernels = hwy::TargetName(targets & -targets);
}

int64_t memory_limit() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  for (const memory::Bound& b : memory::host_bounds()) bytes = std::min(bytes, b.limit);
  return bytes;
}

std::string os_name() {
  std::string name;
  for_each_pair(system_file("/etc/os-release"), '=', [&](std::string_view key, std::string_view value) {
    if (key == "PRETTY_NAME") name = value;
  });
  utsname u{};
  if (::uname(&u) == 0) name += fmt::format("{}{} {}", name.empty() ? "" : ", ", u.sysname, u.release);
  return name;
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string joined(const std::vector<std::string>& words) {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : " ") + w;
  return s;
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  read_cpu(info);
  info.memory_bytes = memory_limit();
  info.os = os_name();
  info.version = STRATA_VERSION;
  info.revision = STRATA_REVISION;
  info.compiler = compiler_name();
  info.build = STRATA_BUILD;
  const dnnl_version_t* dnnl = dnnl_version();
  info.libraries = {
      {"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
      {"Highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
  };
  for (int d = 0; d < cuda::device_count(); ++d) {
    const cuda::DeviceProperties& p = cuda::properties(d);
    info.cuda +=
        fmt::format("{}cuda:{} {}, {:.0f} GiB, {} multiprocessors, compute capability {}.{}", d > 0 ? "; " : "", d,
                    p.name, static_cast<double>(p.memory_bytes) / (1 << 30), p.multiprocessors, p.major, p.minor);
  }
  if (info.cuda.empty()) {
    info.cuda = "none: " + cuda::unavailable_reason();
  } else {
    const cuda::Versions v = cuda::versions();
    info.cuda += fmt::format("; driver for CUDA {}.{}, built with {}.{}", v.driver / 1000, v.driver % 1000 / 10,
                             v.runtime / 1000, v.runtime % 1000 / 10);
  }
  return info;
}

std::vector<std::pair<std::string, std::string>> machine_rows(const MachineInfo& info) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Processor", info.cpu},
      {"Cores", fmt::format("{} cores, {} hardware threads, {} in use", info.cores, info.cpus, info.threads)},
      {"Extensions", joined(info.features)},
      {"Kernels", info.kernels},
      {"Memory", fmt::format("{:.1f} GiB", static_cast<double>(info.memory_bytes) / (1 << 30))},
      {"System", info.os},
      {"Strata", info.revision.empty() ? info.version : fmt::format("{} ({})", info.version, info.revision)},
      {"Build", fmt::format("{}, {}", info.build, info.compiler)},
  };
  for (const auto& [name, version] : info.libraries) rows.emplace_back(name, version);
  rows.emplace_back("CUDA", info.cuda);
  return rows;
}

}  // namespace strata
