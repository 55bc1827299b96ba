#include "strata/io/bitmap.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/bitmap_cpu.h"

namespace strata::io {
namespace {

using memory::DiskStore;
using memory::kDiskPage;
static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kName = "bitmap";
constexpr char kMagic[9] = "SBITMAP1";
constexpr uint64_t kFixedBytes = 32;  // before the sizes
constexpr uint64_t kSpare = 16;       // behind a chunk's values: vectors are read whole

constexpr uint64_t round_up(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

int64_t elements_of(int64_t numel, int64_t chunk) {
  return std::min(kBitmapChunk, numel - chunk * kBitmapChunk);
}

uint64_t u64_at(std::span<const std::byte> bytes, uint64_t at) {
  uint64_t v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

template <class... Parts>
void demand(bool ok, const Parts&... parts) {
  check<IoError>(ok, kName, parts...);
}

}  // namespace

std::vector<std::byte> pack_bitmap(const Tensor& x) {
  check<DeviceError>(x.device().is_cpu(), kName, "packs tensors of the CPU; got one on ", x.device());
  const Pin pin(x, Access::read);
  const Tensor dense = x.detach().contiguous();
  const auto* data = static_cast<const std::byte*>(dense.raw_data());
  const int64_t numel = dense.numel(), chunks = (numel + kBitmapChunk - 1) / kBitmapChunk;
  const auto size = static_cast<uint64_t>(size_of(dense.dtype()));

  // How much is in each chunk says where the next one begins.
  std::vector<uint64_t> begin(static_cast<size_t>(chunks) + 1, 0);
  const auto place = [&](int64_t chunk) { return data + static_cast<uint64_t>(chunk * kBitmapChunk) * size; };
  parallel_for(0, chunks, 1, [&](int64_t b, int64_t e) {
    std::vector<uint8_t> bits(kBitmapChunk / 8);
    std::vector<std::byte> values(static_cast<size_t>(kBitmapChunk) * size);
    for (int64_t c = b; c < e; ++c) {
      const int64_t n = elements_of(numel, c);
      const auto kept = static_cast<uint64_t>(pack_bits(place(c), n, static_cast<int>(size), bits.data(), values.data()));
      begin[static_cast<size_t>(c) + 1] = round_up(static_cast<uint64_t>(n + 7) / 8 + kept * size + kSpare, 64);
    }
  });
  begin[0] = round_up(kFixedBytes + static_cast<uint64_t>(dense.shape().size()) * 8 + begin.size() * 8, 64);
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];

  std::vector<std::byte> packed(begin.back());
  std::byte* p = packed.data();
  std::memcpy(p, kMagic, 8);
  const std::string_view name = name_of(dense.dtype());
  std::memcpy(p + 8, name.data(), name.size());
  const uint64_t counts[2] = {static_cast<uint64_t>(dense.shape().size()), static_cast<uint64_t>(chunks)};
  std::memcpy(p + 16, counts, sizeof counts);
  std::memcpy(p + kFixedBytes, dense.shape().data(), counts[0] * 8);
  std::memcpy(p + kFixedBytes + counts[0] * 8, begin.data(), begin.size() * 8);
  parallel_for(0, chunks, 1, [&](int64_t b, int64_t e) {
    std::vector<std::byte> values(static_cast<size_t>(kBitmapChunk) * size);
    for (int64_t c = b; c < e; ++c) {
      const int64_t n = elements_of(numel, c);
      std::byte* to = p + begin[static_cast<size_t>(c)];
      const auto kept = static_cast<uint64_t>(
          pack_bits(place(c), n, static_cast<int>(size), reinterpret_cast<uint8_t*>(to), values.data()));
      std::memcpy(to + (n + 7) / 8, values.data(), kept * size);
    }
  });
  return packed;
}

uint64_t bitmap_header_bytes(std::span<const std::byte> first) {
  demand(first.size() >= kFixedBytes && std::memcmp(first.data(), kMagic, 8) == 0,
         "these bytes are no packed tensor: they do not begin with SBITMAP1 and 24 further bytes");
  const uint64_t rank = u64_at(first, 16), chunks = u64_at(first, 24);
  demand(rank <= kMaxDims, "byte 16: a tensor of ", rank, " dims, more than ", kMaxDims);
  demand(chunks < uint64_t{1} << 44, "byte 24: ", chunks, " chunks");
  return kFixedBytes + rank * 8 + (chunks + 1) * 8;
}

BitmapHeader parse_bitmap_header(std::span<const std::byte> bytes, uint64_t total) {
  const uint64_t length = bitmap_header_bytes(bytes);
  demand(length <= bytes.size(), "the header has ", length, " bytes, and there are ", bytes.size());
  BitmapHeader h;
  std::string name(reinterpret_cast<const char*>(bytes.data()) + 8, 8);
  name.resize(std::min(name.find('\0'), name.size()));
  const auto* known = std::find_if(std::begin(kAllDTypes), std::end(kAllDTypes), [&](DType d) { return name_of(d) == name; });
  demand(known != std::end(kAllDTypes), "byte 8: no dtype has this name");
  h.dtype = *known;
  const uint64_t rank = u64_at(bytes, 16), chunks = u64_at(bytes, 24);
  uint64_t numel = 1;
  for (uint64_t i = 0; i < rank; ++i) {
    const uint64_t size = u64_at(bytes, kFixedBytes + i * 8);
    demand(size <= (uint64_t{1} << 56) && (size == 0 || numel <= (uint64_t{1} << 56) / size), "byte ", kFixedBytes + i * 8,
           ": a size of ", size, " makes the tensor too large");
    numel *= size;
    h.shape.push_back(static_cast<int64_t>(size));
  }
  h.numel = static_cast<int64_t>(numel);
  demand(chunks == (numel + kBitmapChunk - 1) / kBitmapChunk, "byte 24: ", chunks, " chunks for ", numel, " elements");
  const auto each = static_cast<uint64_t>(size_of(h.dtype));
  h.begin.resize(chunks + 1);
  for (uint64_t i = 0; i <= chunks; ++i) {
    const uint64_t at = kFixedBytes + rank * 8 + i * 8, begin = h.begin[i] = u64_at(bytes, at);
    demand(begin % 64 == 0 && begin >= length && begin <= total, "byte ", at, ": chunk ", i, " would begin at byte ", begin,
           " of ", total);
    if (i == 0) continue;
    const auto n = static_cast<uint64_t>(elements_of(h.numel, static_cast<int64_t>(i) - 1));
    const uint64_t least = (n + 7) / 8 + kSpare, most = round_up(least + n * each, 64);
    demand(begin >= h.begin[i - 1] + least && begin <= h.begin[i - 1] + most, "byte ", at, ": chunk ", i - 1, " of ", n,
           " elements would end at byte ", begin, " and begin at ", h.begin[i - 1]);
  }
  return h;
}

void expand_bitmap(const BitmapHeader& h, int64_t first, int64_t last, std::span<const std::byte> bytes, std::byte* out) {
  check(0 <= first && first <= last && last <= h.chunks(), kName, "chunks [", first, ", ", last, ") of ", h.chunks());
  const uint64_t origin = h.begin[static_cast<size_t>(first)];
  check(bytes.size() == h.begin[static_cast<size_t>(last)] - origin, kName, "chunks [", first, ", ", last, ") have ",
        h.begin[static_cast<size_t>(last)] - origin, " bytes; got ", bytes.size());
  const int size = static_cast<int>(size_of(h.dtype));
  std::atomic<int64_t> wrong{std::numeric_limits<int64_t>::max()};
  parallel_for(first, last, 1, [&](int64_t b, int64_t e) {
    for (int64_t c = b; c < e; ++c) {
      const int64_t n = elements_of(h.numel, c);
      const uint64_t at = h.begin[static_cast<size_t>(c)], length = h.begin[static_cast<size_t>(c) + 1] - at;
      const std::byte* chunk = bytes.data() + (at - origin);
      const auto* bits = reinterpret_cast<const uint8_t*>(chunk);
      const int64_t kept = count_bits(bits, n);
      const uint64_t n_bits = static_cast<uint64_t>(n + 7) / 8;
      // Its length says how many values there are, but for the rounding.
      if (kept < 0 || round_up(n_bits + static_cast<uint64_t>(kept * size) + kSpare, 64) != length) {
        for (int64_t w = wrong; c < w && !wrong.compare_exchange_weak(w, c);) {
        }
        continue;
      }
      expand_bits(bits, chunk + n_bits, n, size,
                  out + static_cast<uint64_t>((c - first) * kBitmapChunk) * static_cast<uint64_t>(size));
    }
  });
  const int64_t c = wrong;
  if (c == std::numeric_limits<int64_t>::max()) return;
  throw IoError(kName, cat("the bits of chunk ", c, ", at byte ", h.begin[static_cast<size_t>(c)],
                           ", do not agree with the number of its values"));
}

Tensor unpack_bitmap(std::span<const std::byte> bytes) {
  const BitmapHeader h = parse_bitmap_header(bytes, bytes.size());
  demand(h.nbytes() == bytes.size(), "packed bytes end at ", h.nbytes(), ", and there are ", bytes.size());
  Tensor x = empty(TensorMeta{h.shape, h.dtype, Device::cpu(), {}});
  const Pin pin(x, Access::write);
  expand_bitmap(h, 0, h.chunks(), bytes.subspan(h.begin[0]), static_cast<std::byte*>(x.raw_data()));
  return x;
}

BitmapHeader read_bitmap_header(DiskStore& store, const DiskStore::Block* block) {
  const size_t size = DiskStore::size(block);
  std::vector<std::byte> bytes(std::min<size_t>(size, kFixedBytes));
  store.wait(store.read(block, bytes.data(), bytes.size()));
  bytes.resize(std::min<uint64_t>(size, bitmap_header_bytes(bytes)));
  store.wait(store.read(block, bytes.data(), bytes.size()));
  return parse_bitmap_header(bytes, size);
}

void read_bitmap(DiskStore& store, const DiskStore::Block* block, const BitmapHeader& h, std::byte* out) {
  constexpr uint64_t kPart = uint64_t{4} << 20;
  constexpr size_t kAhead = 6;  // parts that are read while one is expanded
  struct Part {
    int64_t first, last;  // chunks
    uint64_t from, to;    // bytes: whole pages, so that they are read straight to their place
  };
  std::vector<Part> parts;
  uint64_t most = 0;
  for (int64_t c = 0; c < h.chunks();) {
    Part p{c, c + 1, h.begin[static_cast<size_t>(c)] / kDiskPage * kDiskPage, 0};
    while (p.last < h.chunks() && h.begin[static_cast<size_t>(p.last) + 1] - p.from <= kPart) ++p.last;
    p.to = std::min<uint64_t>(round_up(h.begin[static_cast<size_t>(p.last)], kDiskPage), DiskStore::size(block));
    most = std::max(most, round_up(p.to - p.from, kDiskPage));
    parts.push_back(p);
    c = p.last;
  }
  const size_t places = std::min(parts.size(), kAhead + 1);
  if (places == 0) return;
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kDiskPage, places * most)), std::free);
  check<MemoryError>(memory != nullptr, kName, "no memory for ", places, " buffers of ", most, " bytes");
  const auto place = [&](size_t i) { return memory.get() + i % places * most; };
  std::vector<DiskStore::Ticket> tickets(places);
  // However this ends, nobody may write to the buffers afterwards.
  struct WaitForAll {
    DiskStore& store;
    std::vector<DiskStore::Ticket>& tickets;
    ~WaitForAll() {
      for (const DiskStore::Ticket& t : tickets) try {
          store.wait(t);
        } catch (const IoError&) {
        }
    }
  } last{store, tickets};
  const auto begin = [&](size_t i) {
    if (i < parts.size()) tickets[i % places] = store.read(block, place(i), parts[i].to - parts[i].from, parts[i].from);
  };
  for (size_t i = 0; i < places; ++i) begin(i);
  const auto each = static_cast<uint64_t>(size_of(h.dtype));
  for (size_t i = 0; i < parts.size(); ++i) {
    store.wait(tickets[i % places]);
    const Part& p = parts[i];
    const uint64_t a = h.begin[static_cast<size_t>(p.first)], b = h.begin[static_cast<size_t>(p.last)];
    expand_bitmap(h, p.first, p.last, {place(i) + (a - p.from), b - a},
                  out + static_cast<uint64_t>(p.first * kBitmapChunk) * each);
    begin(i + places);
  }
}

}  // namespace strata::io
