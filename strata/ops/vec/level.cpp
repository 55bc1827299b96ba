#include "strata/ops/vec/level.h"

#include <algorithm>
#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "strata/core/error.h"

namespace strata {
namespace {

int processor_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 0;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 29))) return 0;  // F16C
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")))
    return 1;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & (1u << 5))) return 2;  // AVX512_BF16
  return 3;
#else
  return 0;
#endif
}

bool processor_amx() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((d & (kAmxBf16 | kAmxTile)) != (kAmxBf16 | kAmxTile)) return false;
  // Tile registers are large: Linux hands them out per process, on request (arch_prctl(2), ARCH_REQ_XCOMP_PERM).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::atomic<int> g_limit{-1};

}  // namespace

int vec_level() {
  static const int level = processor_level();
  const int limit = g_limit.load(std::memory_order_relaxed);
  return limit < 0 ? level : std::min(level, limit);
}

void set_vec_level(int level) {
  g_limit.store(level, std::memory_order_relaxed);
}

void need_vec_level(int level) {
  static const int own = processor_level();
  if (own < level) [[unlikely]]
    throw DeviceError("", "this program was built for another machine's processor alone (STRATA_QUICK_BUILD)");
}

bool has_amx_bf16() {
  static const bool amx = processor_level() == 3 && processor_amx();
  return amx && vec_level() == 3;
}

}  // namespace strata
