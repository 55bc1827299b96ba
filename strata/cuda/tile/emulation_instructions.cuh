#pragma once
// The instructions of the vocabulary, for the end of emulation.cuh: what the other headers here have as assembly.

#include <cstdint>

#include "strata/cuda/tile/emulation_language.cuh"

namespace strata::cuda::tile {

struct E4M3;
struct E5M2;
template <class A, class B>
struct Pair;

inline uint32_t shared_address(const void* p) {
  return emulation::block->address(p);
}
inline uint8_t* shared_memory() {
  return emulation::block->shared;
}
template <class T>
void store_pair(uint8_t* to, T a, T b) {
  emulation::block->stored(shared_address(to), 2 * sizeof(T));
  std::memcpy(to, &a, sizeof a), std::memcpy(to + sizeof a, &b, sizeof b);
}
inline void store_four(float4* to, float a, float b, float c, float d) {
  emulation::block->stored(shared_address(to), 16);
  *to = {a, b, c, d};
}

// ---- single threads ----

/// Flushed to zero, as the hardware does.
inline float fast_exp2(float x) {
  const float y = std::exp2(x);
  return y < FLT_MIN ? 0 : y;
}
inline float fast_reciprocal(float x) {
  return 1 / x;
}
template <uint32_t kFactor>
void multiply_wide(uint32_t x, uint32_t& low, uint32_t& high) {
  const uint64_t p = uint64_t{kFactor} * x;
  low = static_cast<uint32_t>(p), high = static_cast<uint32_t>(p >> 32);
}
inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  uint32_t x = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t of = selector >> (4 * i) & 15;
    const auto byte = static_cast<uint8_t>(both >> (8 * (of & 7)));
    x |= static_cast<uint32_t>((of & 8) == 0 ? byte : byte & 0x80 ? 0xff : 0) << (8 * i);
  }
  return x;
}
inline void wait_count(const int* p, int wanted) {
  emulation::block->wait_until([=] { return *p >= wanted; }, "a count of", wanted);
  emulation::block->now->unordered = "wait_count";
}
inline void count_arrival(unsigned* p) {
  ++*p;
}
inline void wait_arrivals(const unsigned* p, unsigned wanted) {
  emulation::block->wait_until([=] { return static_cast<int>(*p - wanted) >= 0; }, "a count of", wanted);
}
inline uint4 load_written(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(uint4) != 0) emulation::block->fail("16 bytes that are not aligned");
  return *static_cast<const uint4*>(p);
}
inline uint4 load_constant(const void* p) {
  return load_written(p);
}
inline void fence_proxies() {
  emulation::block->now->unordered = nullptr;
}
inline void post_count(int* p, int value) {
  if (emulation::block->now->unordered != nullptr)
    emulation::block->fail(cat("post_count() after ", emulation::block->now->unordered, "() without fence_proxies()"));
  *p = value;
}

// ---- barriers ----

inline void init_barrier(uint64_t* b, int arrivals) {
  emulation::block->barriers[shared_address(b)] = {arrivals, arrivals, 0, 0};
}
inline void fence_barriers() {}
inline void arrive(uint64_t* at) {
  emulation::Barrier& b = emulation::block->barrier(at);
  if (b.pending == 0) emulation::block->fail("more arrivals than a barrier expects");
  --b.pending;
  emulation::Block::settle(b);
}
inline void arrive_expecting(uint64_t* at, uint32_t bytes) {
  emulation::block->barrier(at).bytes += bytes;
  arrive(at);
}
inline void wait(uint64_t* at, uint32_t parity) {
  const emulation::Barrier& b = emulation::block->barrier(at);
  emulation::block->wait_until([&] { return (b.phase & 1) != parity; }, "the barrier at", shared_address(at));
}
inline void fence_shared() {
  emulation::block->fenced();
}
inline void named_arrive(int id, int threads) {
  emulation::NamedBarrier& b = emulation::block->named[id];
  if (b.arrived > 0 && b.threads != threads)
    emulation::block->fail(cat("barrier ", id, " of different numbers of threads"));
  b.threads = threads;
  if (++b.arrived == threads) b.arrived = 0, ++b.times;
}
inline void named_sync(int id, int threads) {
  emulation::NamedBarrier& b = emulation::block->named[id];
  const uint64_t times = b.times;
  named_arrive(id, threads);
  emulation::block->wait_until([&] { return b.times != times; }, "named barrier", id);
}

// ---- copies ----

inline void copy_async(uint32_t to, const void* from, bool valid = true) {
  emulation::Block* const block = emulation::block;
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    block->fail("a copy of 16 bytes that is not aligned");
  uint8_t* const at = block->pointer(to, 16);
  emulation::Thread* const thread = block->now;
  thread->copies.open.push_back([=] {
    valid ? std::memcpy(at, from, 16) : std::memset(at, 0, 16);
    // Of the thread that waits for its copies, and tells the tensor cores by its fence.
    const uint32_t place = (to - emulation::kBase) / 16;
    block->unfenced[place] = thread->number + 1;
    thread->unfenced.push_back(place);
  });
}
inline void copy_async(void* to, const void* from) {
  copy_async(shared_address(to), from);
}
inline void copy_four_async(float* to, const float* from) {
  emulation::Block* const block = emulation::block;
  uint8_t* const at = block->pointer(shared_address(to), 4);
  block->now->copies.open.push_back([=] { std::memcpy(at, from, 4); });
}
inline void commit_copies() {
  emulation::block->now->copies.close();
}
template <int Pending>
void wait_copies() {
  emulation::block->now->copies.finish(Pending);
}
inline void wait_all_copies() {
  commit_copies();
  emulation::block->now->copies.finish(0);
}

namespace emulation {

using Place = std::array<int64_t, 4>;  // where a box begins: column, row, and two more
// Calls f(shared memory, global memory or null, bytes) for the pieces of a box that lies swizzled from `to` on.
template <class F>
void each_piece(const CUtensorMap& map, uint8_t* shared, uint32_t to, const Place& begin, const F& f) {
  const int pieces = map.box[0] * map.element_bytes / 16, in_piece = 16 / map.element_bytes;
  const auto inside = [&](int dim, int64_t i) { return i >= 0 && i < map.sizes[dim]; };
  const auto element = static_cast<size_t>(map.element_bytes);
  uint32_t at = to;
  for (int z = 0; z < map.box[2] * map.box[3]; ++z)
    for (int y = 0; y < map.box[1]; ++y) {
      const int64_t i[4] = {begin[0], begin[1] + y, begin[2] + z % map.box[2], begin[3] + z / map.box[2]};
      const bool row = inside(1, i[1]) && inside(2, i[2]) && inside(3, i[3]);
      uint8_t* const from = row ? map.data + i[1] * map.steps[1] + i[2] * map.steps[2] + i[3] * map.steps[3] : nullptr;
      for (int p = 0; p < pieces; ++p, at += 16) {
        uint8_t* const here = shared + ((at ^ ((at >> 7 & 7) << 4)) - kBase);
        const int64_t column = i[0] + p * in_piece;
        if (row && inside(0, column) && inside(0, column + in_piece - 1)) {
          f(here, from + column * map.element_bytes, 16);
        } else {
          for (int e = 0; e < in_piece; ++e)
            f(here + e * map.element_bytes,
              row && inside(0, column + e) ? from + (column + e) * map.element_bytes : nullptr, element);
        }
      }
    }
}
inline size_t box_bytes(const CUtensorMap& map) {
  return static_cast<size_t>(map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.element_bytes);
}
// Lands in block `there` when nothing else goes on, and completes on its barrier at `at`.
template <class Copy>
void arrives_later(Block& there, uint32_t at, size_t bytes, const Copy& copy) {
  const auto found = there.barriers.find(at);
  if (found == there.barriers.end()) block->fail("a copy for a barrier that was not initialised");
  Barrier* const barrier = &found->second;
  there.arriving.push_back([=] {
    copy();
    barrier->bytes -= static_cast<int64_t>(bytes);
    Block::settle(*barrier);
  });
}
template <class Copy>
void arrives_later(uint64_t* at, size_t bytes, const Copy& copy) {
  arrives_later(*block, shared_address(at), bytes, copy);
}
// Reads `bytes` of shared memory when it has to, and calls write() with them some time after.
template <class Write>
void leaves_later(uint32_t address, size_t bytes, const Write& write) {
  block->pointer(address, bytes);
  for (uint32_t i = 0; i < bytes; i += 16)
    if (!block->seen(address + i)) block->fail("a copy out of what was stored without fence_shared()");
  Block* const from = block;
  Thread* const thread = block->now;
  thread->out.open.push_back([=] {
    const uint8_t* const begin = from->pointer(address, bytes);
    thread->writes.push_back([=, read = std::vector<uint8_t>(begin, begin + bytes)]() mutable { write(read.data()); });
  });
}
inline void copy_box_in(Block& there, void* to, const CUtensorMap& map, uint64_t* at, const Place& begin) {
  const uint32_t address = shared_address(to);
  const size_t bytes = box_bytes(map);
  if (address % 128 != 0) block->fail("a box begins at no multiple of 128 bytes");
  block->pointer(address, bytes);
  uint8_t* const shared = there.shared;
  arrives_later(there, shared_address(at), bytes, [=] {
    each_piece(map, shared, address, begin, [](uint8_t* to, const uint8_t* global, size_t n) {
      global != nullptr ? std::memcpy(to, global, n) : std::memset(to, 0, n);
    });
  });
}
inline void copy_box_in(void* to, const CUtensorMap& map, uint64_t* at, const Place& begin) {
  copy_box_in(*block, to, map, at, begin);
}
inline void copy_box_out(const CUtensorMap& map, const void* from, const Place& begin) {
  const uint32_t address = shared_address(from);
  if (address % 128 != 0) block->fail("a box begins at no multiple of 128 bytes");
  for (const int64_t b : begin)
    if (b < 0) block->fail("a copy out begins at a negative place");
  leaves_later(address, box_bytes(map), [=](uint8_t* read) {
    each_piece(map, read - (address - kBase), address, begin, [](const uint8_t* from, uint8_t* global, size_t n) {
      if (global != nullptr) std::memcpy(global, from, n);
    });
  });
}
inline void check_run(const void* global, uint32_t address, int bytes) {
  if (address % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0 || bytes % 16 != 0)
    block->fail("a copy of a run of bytes that is not aligned");
  block->pointer(address, static_cast<size_t>(bytes));
}

}  // namespace emulation

inline void acquire_map(const CUtensorMap&) {}
inline void copy_in(void* to, const CUtensorMap& map, uint64_t* at, int column, int row, int head, int batch) {
  emulation::copy_box_in(to, map, at, {column, row, head, batch});
}
inline void copy_in(void* to, const CUtensorMap& map, uint64_t* at, int column, int row, int batch) {
  emulation::copy_box_in(to, map, at, {column, row, batch, 0});
}
inline void copy_in(void* to, const CUtensorMap& map, uint64_t* at, int column, int row) {
  copy_in(to, map, at, column, row, 0);
}
inline void copy_out(const CUtensorMap& map, const void* from, int column, int row, int head, int batch) {
  emulation::copy_box_out(map, from, {column, row, head, batch});
}
inline void copy_out(const CUtensorMap& map, const void* from, int column, int row, int batch) {
  copy_out(map, from, column, row, batch, 0);
}
inline void copy_out(const CUtensorMap& map, const void* from, int column, int row) {
  copy_out(map, from, column, row, 0);
}
inline void copy_bytes_in(void* to, const void* from, uint64_t* at, int bytes) {
  emulation::check_run(from, shared_address(to), bytes);
  const auto n = static_cast<size_t>(bytes);
  emulation::arrives_later(at, n, [=] { std::memcpy(to, from, n); });
}
inline void copy_bytes_out(float* to, const void* from, int bytes) {
  emulation::check_run(to, shared_address(from), bytes);
  const auto n = static_cast<size_t>(bytes);
  emulation::leaves_later(shared_address(from), n, [=](const uint8_t* read) { std::memcpy(to, read, n); });
}
inline void add_bytes_out(float* to, const void* from, int bytes) {
  if (emulation::block->now->unordered != nullptr)
    emulation::block->fail(cat("a copy out after ", emulation::block->now->unordered, "() without fence_proxies()"));
  emulation::check_run(to, shared_address(from), bytes);
  const auto n = static_cast<size_t>(bytes);
  emulation::leaves_later(shared_address(from), n, [=](const uint8_t* read) {
    for (size_t i = 0; i < n / 4; ++i) {
      float v;
      std::memcpy(&v, read + 4 * i, 4);
      to[i] += v;
    }
  });
}
inline void commit_out() {
  emulation::block->now->out.close();
}
template <int Pending>
void wait_out_read() {
  emulation::block->now->out.finish(Pending);
}
inline void wait_out_read() {
  wait_out_read<0>();
}
inline void wait_out() {
  wait_out_read<0>();
  emulation::Thread& now = *emulation::block->now;
  if (!now.writes.empty()) now.unordered = "wait_out";
  now.write();
}

// ---- fragments ----

template <class T>
uint32_t pack2(float low, float high) {
  return static_cast<uint32_t>(T(low).bits) | static_cast<uint32_t>(T(high).bits) << 16;
}
template <class T>
float2 unpack2(uint32_t v) {
  T low, high;
  low.bits = static_cast<uint16_t>(v), high.bits = static_cast<uint16_t>(v >> 16);
  return {static_cast<float>(low), static_cast<float>(high)};
}

namespace emulation {

struct Matrices4 {
  uint8_t* row;
  uint32_t* r[4];
};
// Element (i, j) of matrix m, both in shared memory and in the lane that holds it.
template <class F>
void each_element(void** all, bool transposed, const F& f) {
  for (int m = 0; m < 4; ++m)
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j) {
        const int row = transposed ? j : i, column = transposed ? i : j;  // of the fragment
        uint32_t& reg = *static_cast<Matrices4*>(all[row * 4 + column / 2])->r[m];
        f(static_cast<Matrices4*>(all[8 * m + i])->row + 2 * j, reg, 16 * (column % 2));
      }
}
inline void load_four(uint32_t (&r)[4], const uint16_t* p, bool transposed) {
  Matrices4 mine{block->pointer(block->address(p), 16), {&r[0], &r[1], &r[2], &r[3]}};
  block->meet_warp("ldmatrix", &mine, [&](void** all) {
    each_element(all, transposed, [](const uint8_t* at, uint32_t& reg, int shift) {
      uint16_t v;
      std::memcpy(&v, at, 2);
      reg = (reg & ~(0xffffu << shift)) | static_cast<uint32_t>(v) << shift;
    });
  });
}
inline void store_four(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d, bool transposed) {
  Matrices4 mine{block->pointer(address, 16), {&a, &b, &c, &d}};
  block->stored(address, 16);
  block->meet_warp("stmatrix", &mine, [&](void** all) {
    each_element(all, transposed, [](uint8_t* at, uint32_t& reg, int shift) {
      const auto v = static_cast<uint16_t>(reg >> shift);
      std::memcpy(at, &v, 2);
    });
  });
}

}  // namespace emulation

inline void load_matrices(uint32_t (&r)[4], const uint16_t* p) {
  emulation::load_four(r, p, false);
}
inline void load_transposed(uint32_t (&r)[4], const uint16_t* p) {
  emulation::load_four(r, p, true);
}
inline void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  emulation::store_four(address, a, b, c, d, false);
}
inline void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  emulation::store_four(address, a, b, c, d, true);
}

// ---- products ----

namespace emulation {

// The value of a number of eight bits with this many bits of mantissa.
inline float fp8(uint8_t code, int mantissa, int bias) {
  const int exponent = code >> mantissa & ((1 << (7 - mantissa)) - 1), fraction = code & ((1 << mantissa) - 1);
  float v;
  if (mantissa == 3 ? (code & 0x7f) == 0x7f : exponent == 31) {
    v = mantissa == 2 && fraction == 0 ? INFINITY : NAN;
  } else {
    v = exponent == 0 ? std::ldexp(static_cast<float>(fraction), 1 - bias - mantissa)
                      : std::ldexp(static_cast<float>(fraction + (1 << mantissa)), exponent - bias - mantissa);
  }
  return code & 0x80 ? -v : v;
}
template <class T>
float number(const uint8_t* p) {
  if constexpr (std::is_same_v<T, E4M3>) return fp8(*p, 3, 7);
  if constexpr (std::is_same_v<T, E5M2>) return fp8(*p, 2, 15);
  if constexpr (std::is_same_v<T, int8_t>) return static_cast<int8_t>(*p);
  if constexpr (std::is_same_v<T, float>) {
    uint32_t u;
    std::memcpy(&u, p, 4);
    u &= 0xffffe000u;  // TF32
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    T v;
    std::memcpy(&v, p, 2);
    return static_cast<float>(v);
  }
  return 0;
}
template <class T>
struct Types {
  using A = T;
  using B = T;
  static constexpr int kBytes = std::is_same_v<T, float>                                 ? 4
                                : std::is_same_v<T, BFloat16> || std::is_same_v<T, Half> ? 2
                                                                                         : 1;
};
template <class L, class R>
struct Types<Pair<L, R>> {
  using A = L;
  using B = R;
  static constexpr int kBytes = 1;
};

// Where element (outer, k) of an operand lies (PTX ISA 9.7.15.5: canonical layouts, 128-byte swizzle).
inline uint32_t place(uint64_t descriptor, bool transposed, int outer, int k, int bytes) {
  const auto start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  const auto leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  const auto stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  const auto u = [](int v) { return static_cast<uint32_t>(v); };
  const uint32_t at = transposed ? start + u(outer / 64) * leading + u(k / 8) * stride + u(k % 8 * 128 + outer % 64 * 2)
                                 : start + u(outer / 8) * stride + u(outer % 8 * 128 + k * bytes);
  return at ^ ((at >> 7 & 7) << 4);
}
inline void check_descriptor(uint64_t descriptor) {
  if (descriptor >> 62 != 1) block->fail("a descriptor without the 128-byte swizzle");
  if (((descriptor & 0x3fff) << 4 & 0x380) != 0) block->fail("an operand that begins at no multiple of 1024 bytes");
}
// The numbers of an operand, [outer][k], read when the product runs.
template <class T>
std::vector<float> read_operand(uint64_t descriptor, bool transposed, int outers, int depth, int bytes) {
  std::vector<float> all(static_cast<size_t>(outers * depth));
  for (int o = 0; o < outers; ++o)
    for (int k = 0; k < depth; ++k) {
      const uint32_t at = place(descriptor, transposed, o, k, bytes);
      if (at < kBase || at - kBase + static_cast<uint32_t>(bytes) > block->shared_size) {
        block->failure = "a product reads outside of shared memory";
        return all;
      }
      if (!block->seen(at)) block->failure = "a product of what was stored without fence_shared()";
      all[static_cast<size_t>(o * depth + k)] = number<T>(block->shared + (at - kBase));
    }
  return all;
}

}  // namespace emulation

inline void fence_products() {
  emulation::block->meet_group("wgmma.fence", nullptr, [](void**) {});
}
inline void commit_products() {
  using emulation::block;
  block->meet_group("wgmma.commit_group", nullptr,
                    [](void**) { block->products[static_cast<size_t>(block->now->number / 128)].close(); });
}
template <int Pending>
void wait_products() {
  using emulation::block;
  block->meet_group("wgmma.wait_group", nullptr,
                    [](void**) { block->products[static_cast<size_t>(block->now->number / 128)].finish(Pending); });
}
template <class T, int N>
void pin(T (&)[N]) {}
template <int N>
void take_registers() {
  emulation::block->meet_group("setmaxnreg", nullptr, [](void**) {});
}
template <int N>
void give_registers() {
  emulation::block->meet_group("setmaxnreg", nullptr, [](void**) {});
}

template <class T, bool kShared, int kTransA, int kTransB, class A, class D, int R>
void wgmma(D (&d)[R], const A& a, uint64_t b, int accumulate) {
  using emulation::block;
  using Types = emulation::Types<T>;
  constexpr int kBytes = Types::kBytes, kDepth = 32 / kBytes, kColumns = 2 * R;
  struct Part {
    D* d;
    const uint32_t* regs;
  } mine{d, nullptr};
  if constexpr (kShared) {
    emulation::check_descriptor(a.shared);
  } else {
    mine.regs = a.regs;
  }
  emulation::check_descriptor(b);
  block->meet_group("wgmma", &mine, [&](void** all) {
    std::vector<Part> parts;
    for (int t = 0; t < 128; ++t) parts.push_back(*static_cast<Part*>(all[t]));
    uint64_t shared = 0;
    if constexpr (kShared) shared = a.shared;
    const auto multiply_all = [=] {
      std::vector<float> rows(64 * kDepth);
      if constexpr (kShared) {
        rows = emulation::read_operand<typename Types::A>(shared, kTransA, 64, kDepth, kBytes);
      } else {
        constexpr int kIn = 4 / kBytes;  // numbers of a register
        for (int t = 0; t < 128; ++t)
          for (int i = 0; i < 4; ++i)
            for (int e = 0; e < kIn; ++e) {
              const int row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8, k = i / 2 * kDepth / 2 + t % 4 * kIn + e;
              rows[static_cast<size_t>(row * kDepth + k)] = emulation::number<typename Types::A>(
                  reinterpret_cast<const uint8_t*>(parts[static_cast<size_t>(t)].regs + i) + e * kBytes);
            }
      }
      const std::vector<float> columns =
          emulation::read_operand<typename Types::B>(b, kTransB, kColumns, kDepth, kBytes);
      // [depth][columns], for loops along the columns.
      std::vector<float> turned(columns.size());
      for (int n = 0; n < kColumns; ++n)
        for (int k = 0; k < kDepth; ++k)
          turned[static_cast<size_t>(k * kColumns + n)] = columns[static_cast<size_t>(n * kDepth + k)];
      for (int row = 0; row < 64; ++row) {
        // The four threads of the row, whose registers lie in pairs by 8 columns.
        const Part* const four = parts.data() + row / 16 * 32 + row % 8 * 4;
        const int first = row % 16 / 8 * 2;
        const auto place = [](int n) { return n / 8 * 4 + n % 2; };
        D sums[kColumns];
        for (int n = 0; n < kColumns; ++n) sums[n] = accumulate ? four[n % 8 / 2].d[place(n) + first] : D(0);
        for (int k = 0; k < kDepth; ++k) {
          const float x = rows[static_cast<size_t>(row * kDepth + k)];
          const float* const y = turned.data() + k * kColumns;
          for (int n = 0; n < kColumns; ++n) sums[n] += static_cast<D>(x * y[n]);
        }
        for (int n = 0; n < kColumns; ++n) four[n % 8 / 2].d[place(n) + first] = sums[n];
      }
    };
    block->products[static_cast<size_t>(block->now->number / 128)].open.push_back(multiply_all);
  });
}

/// To nearest, halves away from zero, as cvt.rna has it.
inline float round_tf32(float v) {
  return std::isfinite(v) ? __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u) : v;
}

/// c += a b of a warp, at once.
template <class T>
void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Part {
    float* c;
    const uint32_t* a;
    uint32_t b[2];
  } mine{c, a, {b0, b1}};
  emulation::block->meet_warp("mma.sync", &mine, [](void** all) {
    // Numbers in a register, and registers along the depth: the first four threads' lie before the next ones'.
    constexpr int kIn = std::is_same_v<T, float> ? 1 : 2, kHalf = 4 * kIn;
    const auto number_of = [](const uint32_t& v, int e) {
      using Operand = emulation::Types<T>;
      return emulation::number<T>(reinterpret_cast<const uint8_t*>(&v) + e * Operand::kBytes);
    };
    for (int t = 0; t < 32; ++t)
      for (int i = 0; i < 4; ++i) {
        const int row = t / 4 + i / 2 * 8, column = t % 4 * 2 + i % 2;
        float& sum = static_cast<Part*>(all[t])->c[i];
        for (int k = 0; k < 2 * kHalf; ++k) {
          const Part& x = *static_cast<Part*>(all[row % 8 * 4 + k % kHalf / kIn]);
          const Part& y = *static_cast<Part*>(all[column * 4 + k % kHalf / kIn]);
          sum += number_of(x.a[row / 8 + k / kHalf * 2], k % kIn) * number_of(y.b[k / kHalf], k % kIn);
        }
      }
  });
}

}  // namespace strata::cuda::tile

inline void __syncthreads() {
  strata::cuda::tile::named_sync(0, static_cast<int>(blockDim.x));
}
