// The measured limits of a card, and of a folder's disk.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"
#include "strata/lab/peaks.h"
#include "strata/lab/peaks_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"

namespace strata::lab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Highest rate of `run`, which queues `amount` of work, over groups of calls.
template <class Run>
double best_rate(Device card, double amount, double seconds, Run&& run) {
  const cuda::Stream stream = cuda::current_stream(card.index);
  cuda::Event begin(true, card.index), end(true, card.index);
  for (int i = 0; i < 3; ++i) run();  // memory, kernels, choice of an algorithm
  double best = 0;
  const auto start = Clock::now();
  for (int i = 0; i < 3 || seconds_since(start) < seconds; ++i) {
    constexpr int kGroup = 4;
    begin.record(stream);
    for (int j = 0; j < kGroup; ++j) run();
    end.record(stream);
    end.synchronize();
    best = std::max(best, kGroup * amount / (1e-3 * end.elapsed_ms(begin)));
  }
  return best;
}

double matmul_rate(Device card, DType dtype, bool tf32, int64_t n, double seconds) {
  Generator generator(1);
  const Tensor a = randn({n, n}, DType::f32, generator).to(dtype), b = randn({n, n}, DType::f32, generator).to(dtype);
  const bool before = cuda::allow_tf32();
  cuda::set_allow_tf32(tf32);
  const double rate = 1e-9 * best_rate(card, 2.0 * static_cast<double>(n * n * n), seconds, [&] { matmul(a, b); });
  cuda::set_allow_tf32(before);
  return rate;
}

// Copies of half a GiB.
double copy_rate(Device card, double seconds) {
  const Tensor a = zeros({int64_t{1} << 29}, DType::u8);
  Tensor b = zeros({int64_t{1} << 29}, DType::u8);
  return 1e-9 * best_rate(card, 2.0 * static_cast<double>(a.nbytes()), seconds, [&] { b.copy_(a); });
}

void need_card(Device card, std::string_view who) {
  check<DeviceError>(card.is_cuda(), who, "needs a CUDA device, got ", to_string(card));
  cuda::properties(card.index);  // says why where there is none
}

// Page-locked memory of so many bytes, or as many as half of that, a quarter and so on; where there is not even a
// little, memory as programs usually have it.
Tensor host_memory(size_t& bytes) {
  constexpr size_t kLeast = size_t{1} << 20;
  const auto of = [&](Tier tier) {
    return empty({{static_cast<int64_t>(bytes)}, DType::u8, Device::cpu(), std::nullopt}, tier);
  };
  for (; bytes >= kLeast; bytes /= 2) {
    try {
      return of(Tier::pinned);
    } catch (const MemoryError&) {
      // Less may be there.
    }
  }
  bytes = kLeast;
  return of(Tier::host);
}

// A file that is gone when it is closed.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder) : name_(folder + "/strata-disk-XXXXXX") {
    fd_ = ::mkstemp(name_.data());
    check<IoError>(fd_ >= 0, "", "cannot make a file in '", folder, "': ", std::strerror(errno));
    ::unlink(name_.c_str());
    const int flags = ::fcntl(fd_, F_GETFL);
    direct_ = ::fcntl(fd_, F_SETFL, flags | O_DIRECT) == 0;
  }
  ~ScratchFile() { ::close(fd_); }
  ScratchFile(const ScratchFile&) = delete;

  // Calls move(fd, buffer, size, offset) over the whole file; its rate in bytes a second.
  template <class Move>
  double rate(int64_t pieces, char* buffer, size_t piece, const char* what, Move&& move) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < pieces; ++i) {
      const ssize_t n = move(fd_, buffer, piece, static_cast<off_t>(i) * static_cast<off_t>(piece));
      check<IoError>(n == static_cast<ssize_t>(piece), "", "cannot ", what, " '", name_,
                     "': ", n < 0 ? std::strerror(errno) : "the disk is full");
    }
    if (!direct_) {
      ::fdatasync(fd_);
      ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    }
    return static_cast<double>(pieces) * static_cast<double>(piece) / seconds_since(start);
  }

 private:
  std::string name_;
  int fd_ = -1;
  bool direct_ = false;
};

// A quarter of what a file there may take; as much as one wants where nobody says.
int64_t most_to_measure(const std::string& folder) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  int64_t most = kAny;
  struct statvfs s {};
  if (::statvfs(folder.c_str(), &s) == 0)
    most = static_cast<int64_t>(std::min<uint64_t>(uint64_t{s.f_bavail} * s.f_frsize, kAny));
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    most = std::min(most, static_cast<int64_t>(limit.rlim_cur));
  if (most == kAny) return kAny;
  // Whole pieces, so that rounding up finds room.
  return most / 4 / (1 << 20) * (1 << 20);
}

}  // namespace

CardPeaks measure_card(Device card, double seconds) {
  need_card(card, "measure_card");
  DeviceScope scope(card);
  NoGrad guard;
  CardPeaks p;
  p.copy_gb_s = copy_rate(card, seconds);
  {
    size_t bytes = size_t{1} << 28;
    const Tensor of_host = host_memory(bytes);
    void* const host = of_host.raw_data();
    std::memset(host, 1, bytes);
    Tensor there = zeros({static_cast<int64_t>(bytes)}, DType::u8);
    const auto rate = [&](auto&& copy) { return 1e-9 * best_rate(card, static_cast<double>(bytes), seconds, copy); };
    p.to_card_gb_s = rate([&] { cuda::copy_bytes(there.raw_data(), card, host, Device::cpu(), bytes); });
    p.from_card_gb_s = rate([&] { cuda::copy_bytes(host, Device::cpu(), there.raw_data(), card, bytes); });
  }
  p.matmul_bf16_gflops = matmul_rate(card, DType::bf16, false, 8192, seconds);
  p.matmul_tf32_gflops = matmul_rate(card, DType::f32, true, 8192, seconds);
  p.matmul_f32_gflops = matmul_rate(card, DType::f32, false, 4096, seconds);
  return p;
}

Limits detail::card_limits(Device card, double seconds) {
  need_card(card, "measure_limits");
  Limits l;
  {
    DeviceScope scope(card);
    NoGrad guard;
    l.gb_s = copy_rate(card, seconds);
    l.matmul_bf16 = matmul_rate(card, DType::bf16, false, 8192, seconds);
    l.matmul_f32 = matmul_rate(card, DType::f32, cuda::allow_tf32(), 4096, seconds);
    // Multiply-adds outside products: those units' peak is what products without TF32 come near.
    l.gflops = cuda::allow_tf32() ? matmul_rate(card, DType::f32, false, 4096, seconds) : l.matmul_f32;
  }
  memory::release_cached();
  return l;
}

DiskRates measure_disk(const std::string& folder, int64_t bytes) {
  check(bytes > 0, "measure_disk", "needs a number of bytes, got ", bytes);
  constexpr size_t kPiece = 1 << 20;
  if (const int64_t most = most_to_measure(folder); bytes > most) {
    check<IoError>(most >= static_cast<int64_t>(kPiece), "measure_disk", "'", folder, "' has no room for ", 4 * kPiece,
                   " bytes, a quarter of which would be written to measure it");
    bytes = most;
  }
  const int64_t pieces = (bytes + static_cast<int64_t>(kPiece) - 1) / static_cast<int64_t>(kPiece);
  const std::unique_ptr<char, decltype(&std::free)> buffer(static_cast<char*>(std::aligned_alloc(4096, kPiece)),
                                                           &std::free);
  check<MemoryError>(buffer != nullptr, "measure_disk", "no memory for a buffer");
  // Numbers without a pattern: some disks compress.
  uint32_t state = 1;
  for (size_t i = 0; i < kPiece; ++i) {
    state = state * 1664525u + 1013904223u;
    buffer.get()[i] = static_cast<char>(state >> 24);
  }
  ScratchFile file(folder);
  DiskRates r;
  r.write_gb_s = 1e-9 * file.rate(pieces, buffer.get(), kPiece, "write to",
                                  [](int fd, char* p, size_t n, off_t at) { return ::pwrite(fd, p, n, at); });
  r.read_gb_s = 1e-9 * file.rate(pieces, buffer.get(), kPiece, "read from",
                                 [](int fd, char* p, size_t n, off_t at) { return ::pread(fd, p, n, at); });
  return r;
}

}  // namespace strata::lab
