#include "strata/memory/disk_engine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include "strata/core/error.h"

namespace strata::memory {
namespace {

struct Engines {
  std::mutex mutex;
  MakeDiskEngine make = make_disk_engine;
};
Engines& engines() {
  static auto* e = new Engines;  // stores of static objects may come late
  return *e;
}

}  // namespace

AllSignalsHeld::AllSignalsHeld() {
  static_assert(sizeof(sigset_t) <= sizeof before_);
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, reinterpret_cast<sigset_t*>(before_));
}
AllSignalsHeld::~AllSignalsHeld() {
  pthread_sigmask(SIG_SETMASK, reinterpret_cast<sigset_t*>(before_), nullptr);
}

int write_zeros(int fd, int64_t offset, int64_t nbytes) {
  constexpr size_t kChunk = size_t{1} << 20;
  const std::unique_ptr<void, void (*)(void*)> zeros(std::aligned_alloc(kDiskPage, kChunk), std::free);
  if (!zeros) return ENOMEM;
  std::memset(zeros.get(), 0, kChunk);
  while (nbytes > 0) {
    const ssize_t n = ::pwrite(fd, zeros.get(), std::min<size_t>(kChunk, static_cast<size_t>(nbytes)), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    offset += n;
    nbytes -= n;
  }
  return 0;
}

int reserve_in_file(int fd, int64_t offset, int64_t nbytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(offset + nbytes) > limit.rlim_cur)
    return EFBIG;
  int status;
  do status = ::fallocate(fd, 0, offset, nbytes) == 0 ? 0 : errno;
  while (status == EINTR);
  return status == EOPNOTSUPP || status == ENOSYS ? write_zeros(fd, offset, nbytes) : status;
}

void release_in_file(int fd, int64_t offset, int64_t nbytes) {
  (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, nbytes);
}

std::unique_ptr<DiskEngine> make_disk_engine(const DiskOptions& options, int fd, DiskSink& sink) {
  using Engine = DiskOptions::Engine;
  if (options.engine != Engine::threads) {
    int error = 0;
    if (auto engine = make_uring_engine(options.depth, fd, sink, error)) return engine;
    check<IoError>(options.engine == Engine::best, "DiskStore",
                   "the system does not permit io_uring: ", std::generic_category().message(error));
  }
  return make_threads_engine(options.depth, fd, sink);
}

MakeDiskEngine disk_engines() {
  const std::lock_guard lock(engines().mutex);
  return engines().make;
}
MakeDiskEngine exchange_disk_engines(MakeDiskEngine make) {
  const std::lock_guard lock(engines().mutex);
  return std::exchange(engines().make, std::move(make));
}

}  // namespace strata::memory
