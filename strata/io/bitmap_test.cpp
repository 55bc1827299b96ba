#include "strata/io/bitmap.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/disk_store.h"

namespace strata::io {
namespace {

using memory::DiskStore;

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.raw_data()), static_cast<size_t>(t.nbytes())};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::ranges::equal(bytes_of(a), bytes_of(b));
}

// Any bits at all, of which this share is zero.
Tensor pruned(const Shape& shape, DType dtype, double zeros, uint32_t seed) {
  Tensor x = empty({shape, dtype, Device::cpu(), {}});
  std::mt19937 random(seed);
  auto* p = static_cast<unsigned char*>(x.raw_data());
  const auto each = static_cast<int64_t>(size_of(dtype));
  for (int64_t i = 0; i < x.numel(); ++i) {
    const bool zero = std::generate_canonical<double, 32>(random) < zeros;
    for (int64_t b = 0; b < each; ++b) p[i * each + b] = zero ? 0 : static_cast<unsigned char>(random());
    if (dtype == DType::boolean) p[i] &= 1;
  }
  return x;
}

TEST(Bitmap, EveryDtypeSizeAndShareOfZeros) {
  for (const DType dtype : kAllDTypes)
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3, 5}, Shape{65536}, Shape{65537}, Shape{7, 3, 9973}})
      for (const double zeros : {0.0, 0.5, 0.97, 1.0}) {
        const Tensor x = pruned(shape, dtype, zeros, 11);
        const Tensor y = unpack_bitmap(pack_bitmap(x));
        EXPECT_TRUE(same_bits(x, y)) << describe(x) << ", " << zeros;
      }
}

TEST(Bitmap, NegativeZeroAndNanAreKept) {
  const float f[] = {0.0f, -0.0f, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
                     std::numeric_limits<float>::denorm_min(), 0.0f, 1.0f, -1.0f, 0.0f};
  const Tensor x = from_span(std::span<const float>(f), {9});
  EXPECT_TRUE(same_bits(x, unpack_bitmap(pack_bitmap(x))));
  EXPECT_TRUE(std::signbit(unpack_bitmap(pack_bitmap(x)).data<float>()[1]));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Tensor h = empty({{256, 256}, dtype, Device::cpu(), {}});
    for (int i = 0; i < 65536; ++i) static_cast<uint16_t*>(h.raw_data())[i] = static_cast<uint16_t>(i);
    EXPECT_TRUE(same_bits(h, unpack_bitmap(pack_bitmap(h)))) << "every number of 16 bits";
  }
}

TEST(Bitmap, Size) {
  const Tensor x = pruned({1000, 1000}, DType::f16, 0.5, 3);
  EXPECT_NEAR(static_cast<double>(pack_bitmap(x).size()) / static_cast<double>(x.nbytes()), 0.5625, 0.002);
}

TEST(Bitmap, ViewsAndThreads) {
  const Tensor x = pruned({300, 500}, DType::f32, 0.5, 4);
  const Tensor view = x.transpose(0, 1);
  EXPECT_TRUE(same_bits(view.contiguous(), unpack_bitmap(pack_bitmap(view))));
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<std::byte> one = pack_bitmap(x);
  set_num_threads(7);
  EXPECT_TRUE(one == pack_bitmap(x));
  EXPECT_TRUE(same_bits(x, unpack_bitmap(one)));
  set_num_threads(before);
}

TEST(Bitmap, PartsOfIt) {
  const Tensor x = pruned({5, 40000}, DType::bf16, 0.6, 5);
  const std::vector<std::byte> packed = pack_bitmap(x);
  const BitmapHeader h = parse_bitmap_header(packed, packed.size());
  EXPECT_EQ(h.shape, x.shape());
  EXPECT_EQ(h.chunks(), 4);
  EXPECT_EQ(h.nbytes(), packed.size());
  std::vector<std::byte> out(2 * kBitmapChunk * 2);
  expand_bitmap(h, 1, 3, std::span(packed).subspan(h.begin[1], h.begin[3] - h.begin[1]), out.data());
  EXPECT_TRUE(std::ranges::equal(out, bytes_of(x).subspan(kBitmapChunk * 2, out.size())));
  EXPECT_THROW(expand_bitmap(h, 1, 5, packed, out.data()), ValueError);
  EXPECT_THROW(expand_bitmap(h, 1, 3, packed, out.data()), ValueError);
}

TEST(Bitmap, BrokenBytes) {
  const Tensor x = pruned({3, 40000}, DType::f16, 0.5, 6);
  const std::vector<std::byte> packed = pack_bitmap(x);
  const auto after = [&](auto change) {
    std::vector<std::byte> p = packed;
    change(p);
    return message<IoError>([&] { unpack_bitmap(p); });
  };
  const auto set = [](std::vector<std::byte>& p, size_t at, uint64_t v) { std::memcpy(p.data() + at, &v, 8); };
  EXPECT_NE(after([](auto& p) { p[0] = std::byte{'X'}; }).find("no packed tensor"), std::string::npos);
  EXPECT_NE(after([](auto& p) { p.resize(31); }).find("no packed tensor"), std::string::npos);
  EXPECT_NE(after([](auto& p) { p.resize(40); }).find("the header has"), std::string::npos);
  EXPECT_NE(after([](auto& p) { p[8] = std::byte{'q'}; }).find("byte 8: no dtype"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 16, 9); }).find("byte 16: a tensor of 9 dims"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 24, 3); }).find("byte 24: 3 chunks for 120000 elements"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 24, ~uint64_t{0}); }).find("byte 24"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 32, ~uint64_t{0}); }).find("byte 32: a size of"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 40, uint64_t{1} << 60); }).find("byte 40: a size of"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 48, 1 << 30); }).find("byte 48: chunk 0 would begin at byte"), std::string::npos);
  EXPECT_NE(after([&](auto& p) { set(p, 56, 128); }).find("byte 56: chunk 0 of 65536 elements would end"), std::string::npos);
  EXPECT_NE(after([](auto& p) { p.resize(p.size() - 64); }).find("chunk 2 would begin"), std::string::npos);
  EXPECT_NE(after([](auto& p) { p.resize(p.size() + 1); }).find("packed bytes end at"), std::string::npos);
  const BitmapHeader h = parse_bitmap_header(packed, packed.size());
  EXPECT_NE(after([&](auto& p) { std::fill_n(p.begin() + static_cast<std::ptrdiff_t>(h.begin[1]), 20, std::byte{0xff}); })
                .find("the bits of chunk 1, at byte " + std::to_string(h.begin[1])),
            std::string::npos);
}

TEST(Bitmap, BitsBehindTheLastElement) {
  const Tensor x = pruned({9}, DType::f32, 0.0, 7);
  std::vector<std::byte> packed = pack_bitmap(x);
  packed[parse_bitmap_header(packed, packed.size()).begin[0] + 1] |= std::byte{0x80};
  EXPECT_NE(message<IoError>([&] { unpack_bitmap(packed); }).find("the bits of chunk 0"), std::string::npos);
}

// Endor: half of the weights pruned, from a disk through the bitmap, bit for bit.
TEST(Bitmap, EndorFromADisk) {
  const TempDir dir;
  memory::DiskOptions o;
  o.directories = {dir.path()};
  DiskStore store(o);
  for (const int64_t rows : {0, 1, 700, 9000}) {
    const Tensor x = pruned({rows, 1111}, DType::bf16, 0.5, 8);
    const std::vector<std::byte> packed = pack_bitmap(x);
    DiskStore::Block* block = store.allocate(packed.size() + 100);  // room behind it does not matter
    store.wait(store.write(block, packed.data(), packed.size()));
    const BitmapHeader h = read_bitmap_header(store, block);
    const Tensor y = empty({h.shape, h.dtype, Device::cpu(), {}});
    const int64_t before = store.stats().bytes_read;
    read_bitmap(store, block, h, static_cast<std::byte*>(y.raw_data()));
    EXPECT_TRUE(same_bits(x, y)) << rows;
    if (rows == 9000) EXPECT_LT(static_cast<double>(store.stats().bytes_read - before), 0.57 * static_cast<double>(x.nbytes()));
    store.deallocate(block);
  }
  // A block that holds something else, and one that was never written.
  std::vector<std::byte> other(100, std::byte{1});
  DiskStore::Block* block = store.allocate(100);
  EXPECT_THROW(read_bitmap_header(store, block), IoError);
  store.wait(store.write(block, other.data(), 100));
  EXPECT_NE(message<IoError>([&] { read_bitmap_header(store, block); }).find("no packed tensor"), std::string::npos);
  EXPECT_THROW(read_bitmap_header(store, store.allocate(3)), IoError);
}

}  // namespace
}  // namespace strata::io
