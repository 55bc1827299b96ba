#include "strata/data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "strata/core/error.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::data {
namespace {

std::string header(int type, const std::vector<uint32_t>& sizes) {
  std::string s{0, 0, static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const uint32_t n : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) s += static_cast<char>(n >> shift);
  return s;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, 0);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Tensor parse(const std::string& file) {
  return parse_idx(std::as_bytes(std::span(file.data(), file.size())), "f.idx");
}

std::string error_of(const std::string& file) {
  try {
    parse(file);
  } catch (const IoError& e) {
    EXPECT_NE(std::string(e.what()).find("f.idx"), std::string::npos);
    return e.what();
  }
  return "";
}

#define EXPECT_REFUSED(file, part) \
  EXPECT_NE(error_of(file).find(part), std::string::npos) << "message: '" << error_of(file) << "'"

TEST(Idx, ReadsEveryType) {
  const Tensor u8 = parse(header(8, {2, 2}) + "\x01\x02\x03\xff");
  EXPECT_EQ(u8.shape(), (Shape{2, 2}));
  EXPECT_EQ(u8.data<uint8_t>()[3], 255);
  EXPECT_EQ(parse(header(9, {1}) + "\xff").data<int8_t>()[0], -1);
  EXPECT_EQ(parse(header(11, {2}) + std::string("\x01\x02\xff\xff", 4)).data<int16_t>()[0], 258);
  EXPECT_EQ(parse(header(12, {1}) + std::string("\0\0\x01\x02", 4)).data<int32_t>()[0], 258);
  EXPECT_EQ(parse(header(13, {1}) + std::string("\x3f\xc0\0\0", 4)).data<float>()[0], 1.5f);
  EXPECT_EQ(parse(header(14, {1}) + std::string("\x3f\xf8\0\0\0\0\0\0", 8)).data<double>()[0], 1.5);
  EXPECT_EQ(parse(header(8, {0, 5})).numel(), 0);
}

TEST(Idx, ReadsCompressedFiles) {
  std::string data(100'000, 0);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i >> 4);
  const std::string file = header(8, {100'000}) + data;
  const Tensor t = parse(gzip(file));
  ASSERT_EQ(t.numel(), 100'000);
  EXPECT_EQ(std::string(static_cast<const char*>(t.raw_data()), 100'000), data);
  EXPECT_EQ(parse(gzip(header(8, {1'000'000}) + std::string(1'000'000, 0))).numel(), 1'000'000);  // nearly 1032 : 1
  io::TempDir dir;
  io::write_file(dir / "f.gz", gzip(file));
  EXPECT_EQ(read_idx(dir / "f.gz").numel(), 100'000);
  EXPECT_THROW(read_idx(dir / "none"), IoError);
}

TEST(Idx, SaysWhatIsWrong) {
  EXPECT_REFUSED("abc", "ends within the magic number");
  EXPECT_REFUSED("abcd", "byte 0: is not an IDX file");
  EXPECT_REFUSED(header(10, {1}) + "x", "byte 2: the element type 10");
  EXPECT_REFUSED(header(8, {}), "byte 3: 0 dimensions");
  EXPECT_REFUSED(header(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}) + "x", "byte 3: 9 dimensions");
  EXPECT_REFUSED(header(8, {3}).substr(0, 6), "ends within the sizes");
  EXPECT_REFUSED(header(8, {3}) + "xy", "need 3 bytes");
  EXPECT_REFUSED(header(8, {3}) + "wxyz", "data from byte 11");
  EXPECT_REFUSED(header(8, {0xffffffff, 0xffffffff}), "cannot hold more");
  EXPECT_REFUSED(header(8, {0xffffffff, 0xffffffff, 0xffffffff}), "larger than 64 bits");
  const std::string good = gzip(header(8, {4}) + "abcd");
  EXPECT_REFUSED(good.substr(0, good.size() - 9), "cut off");
  EXPECT_REFUSED(good.substr(0, good.size() - 1), "cut off");  // within the checksum
  EXPECT_REFUSED(good + "x", "after the compressed part");
  std::string bad = good;
  bad[bad.size() - 6] ^= 1;  // the stored checksum
  EXPECT_REFUSED(bad, "damaged");
  EXPECT_REFUSED(gzip(header(8, {5}) + "abcd"), "ends within the elements");
  EXPECT_REFUSED(gzip(header(8, {3}) + "abcd"), "data from byte 11");
  EXPECT_REFUSED(gzip(header(8, {0x7fffffff})), "cannot hold more");
}

TEST(Idx, SurvivesMutatedFiles) {
  const std::string plain = header(12, {3, 4}) + std::string(48, 'x');
  const std::string seeds[] = {plain, gzip(plain)};
  int loaded = 0, refused = 0;
  fuzz::Rounds round(2000);
  while (round.next()) {
    std::string file = seeds[round.number() % 2];
    for (size_t n = 1 + round.below(2); n > 0; --n) file[round.below(file.size())] = static_cast<char>(round.random());
    if (round.below(4) == 0) file.resize(round.below(file.size()));
    try {
      parse(file);
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_EQ(static_cast<uint64_t>(loaded + refused), round.done());
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

TEST(Idx, ReadsMnist) {
  const char* env = std::getenv("STRATA_DATA_DIR");
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const std::string dir = env ? env : std::string(source ? source : ".") + "/../shared/data";
  const std::string images = dir + "/mnist-t10k-images-idx3-ubyte.gz";
  if (!std::filesystem::exists(images)) GTEST_SKIP() << "no " << images;
  const Tensor x = read_idx(images), y = read_idx(dir + "/mnist-t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(x.shape(), (Shape{10'000, 28, 28}));
  EXPECT_EQ(y.shape(), (Shape{10'000}));
  int64_t counts[256] = {};
  for (int64_t i = 0; i < 10'000; ++i) ++counts[y.data<uint8_t>()[i]];
  EXPECT_EQ(counts[0], 980);
  EXPECT_EQ(counts[9], 1009);
  EXPECT_EQ(counts[10], 0);
}

}  // namespace
}  // namespace strata::data
