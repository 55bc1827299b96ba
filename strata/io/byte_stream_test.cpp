#include "strata/io/byte_stream.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>
#include <string>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::io {
namespace {

std::string deflated(std::string_view text, int window, int level = 6) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 32, 0);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string gzipped(std::string_view text) {
  return deflated(text, 15 + 16);
}
std::string zstandard(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), 0);
  const size_t n = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  EXPECT_FALSE(ZSTD_isError(n));
  out.resize(n);
  return out;
}

std::string all_of(ByteStream stream, size_t step = 1000) {
  std::string text(step, 0), all;
  for (size_t n; (n = stream.read(text.data(), step)) > 0;) {
    all.append(text, 0, n);
    if (n < step) {
      EXPECT_EQ(stream.read(text.data(), step), 0u);
      break;
    }
  }
  EXPECT_EQ(stream.position(), all.size());
  EXPECT_EQ(stream.raw_position(), stream.raw_size());
  return all;
}

std::string error_of(std::string_view bytes) {
  try {
    all_of(ByteStream(bytes, "f"));
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

std::string some_text(size_t bytes) {
  std::mt19937 random(3);
  std::string text(bytes, 0);
  for (char& c : text) c = static_cast<char>('a' + random() % 7);
  return text;
}

TEST(ByteStream, WhateverItIsCompressedWith) {
  for (const size_t bytes : {size_t{1}, size_t{5}, size_t{999}, size_t{1000}, size_t{1'000'003}}) {
    const std::string text = some_text(bytes);
    const std::pair<Compression, std::string> files[] = {{Compression::none, text},
                                                         {Compression::gzip, gzipped(text)},
                                                         {Compression::zlib, deflated(text, 15)},
                                                         {Compression::zlib, deflated(text, 15, 1)},
                                                         {Compression::zstd, zstandard(text)}};
    for (const auto& [compression, file] : files) {
      EXPECT_EQ(ByteStream(file, "f").compression(), compression);
      for (const size_t step : {size_t{1}, size_t{1000}, size_t{3'000'000}})
        if (step > 1 || bytes < 10'000)
          EXPECT_TRUE(all_of(ByteStream(file, "f"), step) == text) << bytes << " " << step;
      const TempDir dir;
      write_file(dir / "f", file);
      Hasher raw;
      EXPECT_TRUE(all_of(ByteStream(dir / "f", &raw)) == text);
      EXPECT_EQ(raw.digest(), xxh64(file));
    }
  }
  EXPECT_EQ(to_string(Compression::zstd), "zstd");
}

TEST(ByteStream, OneBehindAnother) {
  const std::string a = some_text(300'000), b = some_text(7);
  EXPECT_TRUE(all_of(ByteStream(gzipped(a) + gzipped("") + gzipped(b), "f")) == a + b);
  EXPECT_TRUE(all_of(ByteStream(zstandard(a) + zstandard(b), "f")) == a + b);
  const std::string skipped("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12);
  EXPECT_TRUE(all_of(ByteStream(skipped + zstandard(b), "f")) == b);
}

TEST(ByteStream, WhatOnlyLooksCompressedIsText) {
  for (const std::string_view text : {"x^2 + 1", "x", "xy", "\x1f", "x\xda\x90", "(", "P*M"})
    EXPECT_EQ(all_of(ByteStream(text, "f")), text);
}

TEST(ByteStream, DamageNamesFileAndByte) {
  const std::string text = some_text(50'000);
  for (const std::string& good : {gzipped(text), deflated(text, 15), zstandard(text)}) {
    EXPECT_NE(error_of(std::string_view(good).substr(0, good.size() - 1)).find("the file ends within them"),
              std::string::npos)
        << error_of(std::string_view(good).substr(0, good.size() - 1));
    EXPECT_NE(error_of(std::string_view(good).substr(0, 12)).find("'f': byte 12 of the file: the "), std::string::npos);
    EXPECT_NE(error_of(good + "more").find("data are damaged"), std::string::npos);
  }
  std::string bad = gzipped(text);
  bad[bad.size() / 2] ^= 0x55;
  EXPECT_NE(error_of(bad).find("'f': byte "), std::string::npos);
  EXPECT_NE(error_of(deflated(text, 15) + deflated(text, 15)).find("something follows them"), std::string::npos);
  EXPECT_THROW(ByteStream("/no/such/file"), IoError);
}

// A window of more than 128 MiB would be memory that a few bytes ask for.
TEST(ByteStream, AWindowTooLargeIsRefused) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string file(1000, 0);
  ZSTD_inBuffer in{"abc", 3, 0};
  ZSTD_outBuffer out{file.data(), file.size(), 0};
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush), 0u);
  file.resize(out.pos);
  ZSTD_freeCCtx(context);
  EXPECT_NE(error_of(file).find("data are damaged: Frame requires too much memory"), std::string::npos)
      << error_of(file);
}

TEST(ByteStream, ABombStreams) {
  const std::string zeros(size_t{64} << 20, 0);
  const std::string bomb = zstandard(zeros);
  ASSERT_LT(bomb.size(), 16'384u);
  ByteStream stream(bomb, "f");
  std::vector<char> buffer(1 << 16);
  uint64_t all = 0;
  for (size_t n; (n = stream.read(buffer.data(), buffer.size())) > 0;) all += n;
  EXPECT_EQ(all, zeros.size());
}

TEST(ByteStream, FlippedBitsAreDataOrAnError) {
  const std::string text = some_text(200);
  for (const std::string& good : {gzipped(text), deflated(text, 15), zstandard(text)})
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      ByteStream stream(bad, "f");
      std::vector<char> buffer(1 << 12);
      size_t all = 0;
      try {
        for (size_t n; (n = stream.read(buffer.data(), buffer.size())) > 0;) all += n;
        EXPECT_LE(all, size_t{1} << 20);
      } catch (const IoError& e) {
        EXPECT_NE(std::string(e.what()).find("'f': byte "), std::string::npos);
      }
    }
}

}  // namespace
}  // namespace strata::io
