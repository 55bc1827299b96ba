// A DiskStore beside plain io_uring on the same file system, in turns: a ring of the same depth, O_DIRECT, registered
// buffers, one file whose room was taken by fallocate. Sequential writes and reads in requests of 1 MiB, random reads
// of 4, 16 and 64 KiB; then pruned weights, read dense and as a bitmap with values (io/bitmap.h; Endor). The best of
// the rounds.
//     disk_bench [directory] [GiB] [rounds]
#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/tensor.h"
#include "strata/cuda/runtime.h"
#include "strata/io/bitmap.h"
#include "strata/memory/disk_store.h"
#include "strata/ops/copy/copy.h"

namespace {

using namespace strata;
using memory::DiskOptions;
using memory::DiskStore;

constexpr size_t kRequest = size_t{1} << 20, kMemory = size_t{256} << 20;
constexpr int kDepth = 64;

template <class F>
double seconds(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Page-aligned, filled with numbers that no disk makes smaller.
struct Memory {
  std::byte* data = static_cast<std::byte*>(std::aligned_alloc(memory::kDiskPage, kMemory));
  Memory() {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < kMemory; i += 8) reinterpret_cast<uint64_t*>(data)[i / 8] = random();
  }
  ~Memory() { std::free(data); }
};

void fail(const std::string& what, int error) {
  throw IoError("disk_bench", what + ": " + std::generic_category().message(error));
}

// What one can do without a store.
class Raw {
 public:
  Raw(const std::string& directory, size_t nbytes, const Memory& memory) : memory_(memory.data) {
    fd_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd_ < 0) fail("opening a file in " + directory + " with O_DIRECT", errno);
    if (::fallocate(fd_, 0, 0, static_cast<off_t>(nbytes)) != 0) fail("fallocate", errno);
    if (const int e = io_uring_queue_init(kDepth, &ring_, 0); e != 0) fail("io_uring_queue_init", -e);
    const iovec all{memory_, kMemory};
    fixed_ = io_uring_register_buffers(&ring_, &all, 1) == 0;
    io_uring_register_files(&ring_, &fd_, 1);
  }
  ~Raw() {
    io_uring_queue_exit(&ring_);
    ::close(fd_);
  }
  // Requests of `each` bytes at these places of the file, to or from consecutive places of the memory.
  void run(bool write, const std::vector<int64_t>& at, size_t each) {
    size_t begun = 0, done = 0;
    while (done < at.size()) {
      while (begun < at.size() && begun - done < kDepth) {
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        std::byte* p = memory_ + begun * each % kMemory;
        const auto n = static_cast<unsigned>(each);
        const auto offset = static_cast<uint64_t>(at[begun]);
        if (fixed_)
          write ? io_uring_prep_write_fixed(sqe, 0, p, n, offset, 0)
                : io_uring_prep_read_fixed(sqe, 0, p, n, offset, 0);
        else
          write ? io_uring_prep_write(sqe, 0, p, n, offset) : io_uring_prep_read(sqe, 0, p, n, offset);
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
        ++begun;
      }
      io_uring_submit_and_wait(&ring_, 1);
      io_uring_cqe* cqe = nullptr;
      while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        if (cqe->res != static_cast<int>(each)) fail("a request", cqe->res < 0 ? -cqe->res : EIO);
        io_uring_cqe_seen(&ring_, cqe);
        ++done;
      }
    }
  }

 private:
  std::byte* memory_;
  int fd_ = -1;
  io_uring ring_{};
  bool fixed_ = false;
};

// The same through a store.
struct Stored {
  Stored(std::string name, const std::string& directory, size_t nbytes, const Memory& memory,
         DiskOptions::Engine engine, bool checksums)
      : name(std::move(name)), memory(memory.data), nbytes(nbytes) {
    DiskOptions o;
    o.directories = {directory};
    o.engine = engine;
    o.checksums = checksums;
    o.depth = kDepth;
    o.request = kRequest;
    store = std::make_unique<DiskStore>(o);
    store->register_buffer(memory.data, kMemory);
    block = store->allocate(nbytes);
  }
  // Four requests of a quarter of the memory under way.
  void all(bool write) {
    constexpr size_t kPart = kMemory / 4;
    DiskStore::Ticket under_way[4];
    for (size_t at = 0, i = 0; at < nbytes; at += kPart, i = (i + 1) % 4) {
      store->wait(under_way[i]);
      const size_t n = std::min(kPart, nbytes - at);
      under_way[i] =
          write ? store->write(block, memory + i * kPart, n, at) : store->read(block, memory + i * kPart, n, at);
    }
    for (const DiskStore::Ticket& t : under_way) store->wait(t);
  }
  // Rows of `each` bytes, as many a request as the memory has room for.
  void rows(const std::vector<int64_t>& wanted, size_t each) {
    for (size_t i = 0; i < wanted.size(); i += kMemory / each)
      store->wait(
          store->read_rows(block, memory, each, wanted.data() + i, std::min(kMemory / each, wanted.size() - i), each));
  }

  std::string name;
  std::byte* memory;
  size_t nbytes;
  std::unique_ptr<DiskStore> store;
  DiskStore::Block* block = nullptr;
};

void print(const std::string& what, const std::string& who, double gb, double best, double raw) {
  std::printf("%-22s %-28s %7.2f GB/s  %5.1f%% of raw\n", what.c_str(), who.c_str(), gb / best, 100 * raw / best);
  std::fflush(stdout);
}

// Everybody's turn, `rounds` times.
void compare(const std::string& what, double gb, int rounds, std::vector<std::unique_ptr<Stored>>& stores, auto&& raw,
             auto&& stored) {
  double best_raw = 1e30;
  std::vector<double> best(stores.size(), 1e30);
  for (int round = 0; round < rounds; ++round) {
    best_raw = std::min(best_raw, seconds(raw));
    for (size_t i = 0; i < stores.size(); ++i) best[i] = std::min(best[i], seconds([&] { stored(*stores[i]); }));
  }
  print(what, "raw io_uring", gb, best_raw, best_raw);
  for (size_t i = 0; i < stores.size(); ++i) print(what, stores[i]->name, gb, best[i], best_raw);
}

// bf16 weights of which half are zero, by magnitude: dense ones read to where they are used, beside packed ones that
// are expanded on the way. With a card they are used there: both go on from page-locked memory when they are whole.
void compare_pruned(const std::string& directory, double gb, int rounds) {
  const auto numel = static_cast<int64_t>(gb * 5e8);
  const Tensor x = empty({{numel}, DType::bf16, Device::cpu(), {}});
  auto* weights = static_cast<uint16_t*>(x.raw_data());
  std::mt19937_64 random(2);
  for (int64_t i = 0; i < numel; i += 4) {
    const uint64_t r = random();
    for (int64_t j = 0; j < std::min<int64_t>(4, numel - i); ++j)
      weights[i + j] = r >> j & 1 ? static_cast<uint16_t>(r >> 16 * j | 1) : 0;
  }
  const std::vector<std::byte> packed = io::pack_bitmap(x);
  const auto nbytes = static_cast<size_t>(numel) * 2;
  const bool card = cuda::device_count() > 0;
  const Tensor there = card ? empty({{numel}, DType::bf16, Device::cuda(), {}}) : Tensor();
  const Tensor here = empty({{numel}, DType::bf16, Device::cpu(), {}}, card ? Tier(Tier::pinned) : Tier());
  auto* out = static_cast<std::byte*>(here.raw_data());
  const auto go_on = [&] {
    if (!card) return;
    copy_elements(there, here);
    cuda::synchronize();
  };
  DiskOptions o;
  o.directories = {directory};
  DiskStore store(o);
  DiskStore::Block *dense = store.allocate(nbytes), *small = store.allocate(packed.size());
  store.wait(store.write(dense, reinterpret_cast<const std::byte*>(weights), nbytes));
  store.wait(store.write(small, packed.data(), packed.size()));
  double best_dense = 1e30, best_packed = 1e30;
  for (int round = 0; round < rounds + 1; ++round) {
    best_dense = std::min(best_dense, seconds([&] {
                            store.wait(store.read(dense, out, nbytes));
                            go_on();
                          }));
    std::fill_n(out, nbytes, std::byte{0xff});
    best_packed = std::min(best_packed, seconds([&] {
                             io::read_bitmap(store, small, io::read_bitmap_header(store, small), out);
                             go_on();
                           }));
    check(std::equal(out, out + nbytes, reinterpret_cast<const std::byte*>(weights)), "disk_bench",
          "the weights are not those that were written");
  }
  const io::BitmapHeader h = io::parse_bitmap_header(packed, packed.size());
  double best_expand = 1e30;
  for (int round = 0; round < 3; ++round)
    best_expand = std::min(
        best_expand, seconds([&] { io::expand_bitmap(h, 0, h.chunks(), std::span(packed).subspan(h.begin[0]), out); }));
  const double bytes = static_cast<double>(nbytes) * 1e-9,
               share = static_cast<double>(packed.size()) / static_cast<double>(nbytes);
  std::printf(
      "pruned weights, bf16, half of them zero, to %s, %.2f GB dense, %.4f of it packed (at most %.2f times as fast)\n",
      card ? "the card" : "memory", bytes, share, 1 / share);
  std::printf("  dense from the disk               %7.2f GB/s of weights\n", bytes / best_dense);
  std::printf("  packed, expanded on the way       %7.2f GB/s of weights, %.2f times dense\n", bytes / best_packed,
              best_dense / best_packed);
  std::printf("  expansion alone, from memory      %7.2f GB/s of weights\n", bytes / best_expand);
}

int run(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "/tmp";
  const double gib = argc > 2 ? std::atof(argv[2]) : 1;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 2;
  const auto nbytes = static_cast<size_t>(gib * 1024) * kRequest;
  check(nbytes >= kMemory && rounds > 0, "disk_bench", "wants a directory, at least 0.25 GiB, and a number of rounds");
  std::printf("%s, %.2f GiB in a file, depth %d, best of %d rounds\n", directory.c_str(), gib, kDepth, rounds);
  const Memory memory;
  Raw raw(directory, nbytes, memory);
  std::vector<std::unique_ptr<Stored>> stores;
  for (const auto engine : {DiskOptions::Engine::best, DiskOptions::Engine::threads})
    for (const bool checksums : {true, false}) {
      auto made = std::make_unique<Stored>("", directory, nbytes, memory, engine, checksums);
      made->name = "store, " + std::string(made->store->engine()) + (checksums ? ", checksums" : "");
      if (!made->store->direct()) made->name += " (not direct)";
      stores.push_back(std::move(made));
    }

  std::vector<int64_t> in_order(nbytes / kRequest);
  for (size_t i = 0; i < in_order.size(); ++i) in_order[i] = static_cast<int64_t>(i * kRequest);
  const double gb = static_cast<double>(nbytes) * 1e-9;
  const auto write_raw = [&] { raw.run(true, in_order, kRequest); };
  const auto write = [](Stored& s) { s.all(true); };
  compare("first write", gb, 1, stores, write_raw, write);
  compare("write", gb, rounds, stores, write_raw, write);
  compare(
      "read", gb, rounds, stores, [&] { raw.run(false, in_order, kRequest); }, [](Stored& s) { s.all(false); });
  for (const size_t kib : {4, 16, 64}) {
    const size_t each = kib << 10, n = std::min(nbytes, kMemory * (kib == 64 ? 2 : 1)) / each;
    std::mt19937_64 random(kib);
    std::vector<int64_t> rows(n), at(n);
    for (size_t i = 0; i < n; ++i) {
      rows[i] = static_cast<int64_t>(random() % (nbytes / each));
      at[i] = rows[i] * static_cast<int64_t>(each);
    }
    compare(
        "random read of " + std::to_string(kib) + " KiB", static_cast<double>(n * each) * 1e-9, rounds, stores,
        [&] { raw.run(false, at, each); }, [&](Stored& s) { s.rows(rows, each); });
  }
  stores.clear();
  compare_pruned(directory, std::min(gb, 1.0), rounds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
