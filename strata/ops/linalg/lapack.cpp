#include "strata/ops/linalg/lapack.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include "strata/core/error.h"
#include "strata/ops/vec/level.h"

namespace strata::linalg {
namespace {

// A processor that is younger than the library gets its kernels of 2004 (Prescott): several times slower, and in 0.3.21
// some read past what was packed, where an earlier call may have left a NaN. Then the library is loaded again with the
// kernels that this processor runs, unless somebody has chosen.
void* with_kernels_of_this_processor(void* library, const std::string& path) {
  constexpr const char* kChoice = "OPENBLAS_CORETYPE";
  void* const name = dlsym(library, "openblas_get_corename");
  if (!name || vec_level() < 1 || std::getenv(kChoice)) return library;
  if (std::string_view(reinterpret_cast<const char* (*)()>(name)()) != "Prescott") return library;
  dlclose(library);
  setenv(kChoice, vec_level() >= 2 ? "SkylakeX" : "Haswell", 1);
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unsetenv(kChoice);
  if (!library) throw Error("linalg", cat("OpenBLAS could not be loaded again: ", dlerror()));
  return library;
}

void* load() {
  std::string tried;
  std::string found;
  const auto attempt = [&](const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library)
      found = path;
    else
      tried += cat("\n  ", dlerror());
    return library;
  };
  // A package for machines that have none of the engine's libraries brings it in its own folder.
  void* library = nullptr;
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&load), &self) && self.dli_fname) {
    const std::string file = self.dli_fname;
    const size_t slash = file.rfind('/');
    if (slash != std::string::npos) library = attempt(file.substr(0, slash) + "/libopenblas.so.0");
  }
  for (const char* name : {"libopenblas.so.0", "libopenblas.so"})
    if (!library) library = attempt(name);
  if (!library)
    throw Error("linalg", cat("OpenBLAS, which solves and decomposes matrices on the CPU, is not found; install "
                              "libopenblas0-pthread (Debian, Ubuntu) or its equivalent:",
                              tried));
  library = with_kernels_of_this_processor(library, found);
  // OpenBLAS's own threads would compete with the pool, and make results depend on their number.
  if (void* set = dlsym(library, "openblas_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(1);
  return library;
}

struct Library {
  void* handle = load();
  std::mutex turn;
  // openblas_get_parallel() is 0 in a sequential build. Debian's has no locks: four threads that inverted 24 x 24
  // matrices got other digits in 2% of them.
  bool one_at_a_time = [this] {
    void* parallel = dlsym(handle, "openblas_get_parallel");
    return parallel && reinterpret_cast<int (*)()>(parallel)() == 0;
  }();
};

// One for both element types: they share the scratch memory.
Library& library() {
  static Library one;
  return one;
}

template <class... A>
void find(Routine<void(A...)>& routine, char type, const char* name) {
  const std::string symbol = std::string(1, type) + name + "_";
  routine.call = reinterpret_cast<void (*)(A...)>(dlsym(library().handle, symbol.c_str()));
  if (!routine.call) throw Error("linalg", cat("OpenBLAS has no ", symbol, "; a build of it without LAPACK?"));
  if (library().one_at_a_time) routine.turn = &library().turn;
}

}  // namespace

template <class T>
const Lapack<T>& lapack() {
  static const Lapack<T> table = [] {
    constexpr char type = std::is_same_v<T, float> ? 's' : 'd';
    Lapack<T> t;
    find(t.potrf, type, "potrf");
    find(t.getrf, type, "getrf");
    find(t.getrs, type, "getrs");
    find(t.trsm, type, "trsm");
    find(t.geqrf, type, "geqrf");
    find(t.orgqr, type, "orgqr");
    find(t.syevd, type, "syevd");
    find(t.gesdd, type, "gesdd");
    find(t.gesvd, type, "gesvd");
    find(t.gelsy, type, "gelsy");
    return t;
  }();
  return table;
}

template const Lapack<float>& lapack();
template const Lapack<double>& lapack();

}  // namespace strata::linalg
