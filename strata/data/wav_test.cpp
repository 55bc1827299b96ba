#include "strata/data/wav.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::data {
namespace {

void put(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 255);
}

// The chunk "fmt ", in the longer form where `extensible`.
std::string format(uint64_t kind, uint64_t channels, uint64_t rate, uint64_t bits, bool extensible = false) {
  std::string chunk = "fmt ";
  put(chunk, extensible ? 40 : 16, 4);
  put(chunk, extensible ? 0xFFFE : kind, 2), put(chunk, channels, 2), put(chunk, rate, 4);
  put(chunk, rate * channels * bits / 8, 4), put(chunk, channels * bits / 8, 2), put(chunk, bits, 2);
  if (!extensible) return chunk;
  put(chunk, 22, 2), put(chunk, bits, 2), put(chunk, 3, 4), put(chunk, kind, 2);
  return chunk + std::string("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71", 14);
}
std::string chunk(const std::string& tag, const std::string& data) {
  std::string all = tag;
  put(all, data.size(), 4);
  return all + data + std::string(data.size() % 2, '\0');
}
std::string wav(const std::string& chunks) {
  std::string all = "RIFF";
  put(all, chunks.size() + 4, 4);
  return all + "WAVE" + chunks;
}
std::string whole(const std::vector<int64_t>& values, int bytes) {
  std::string data;
  for (const int64_t v : values) put(data, static_cast<uint64_t>(v), bytes);
  return data;
}
template <class T>
std::string floating(const std::vector<T>& values) {
  std::string data(values.size() * sizeof(T), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  return data;
}
Sound parse(const std::string& file) {
  return parse_wav(std::as_bytes(std::span(file)), "a.wav");
}
std::vector<float> numbers(const std::string& file) {
  return parse(file).samples.to_vector<float>();
}
std::string refusal(const std::string& file) {
  return message<IoError>([&] { parse(file); });
}
void expect_part(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Wav, EveryKindOfSample) {
  using F = std::vector<float>;
  EXPECT_EQ(numbers(wav(format(1, 1, 8000, 8) + chunk("data", whole({0, 128, 192}, 1)))), (F{-1, 0, 0.5F}));
  EXPECT_EQ(numbers(wav(format(1, 1, 8000, 16) + chunk("data", whole({-32768, 0, 16384}, 2)))), (F{-1, 0, 0.5F}));
  EXPECT_EQ(numbers(wav(format(1, 1, 8000, 24) + chunk("data", whole({-8388608, 0, 4194304}, 3)))), (F{-1, 0, 0.5F}));
  EXPECT_EQ(numbers(wav(format(1, 1, 8000, 32) + chunk("data", whole({-2147483648, 0, 1073741824}, 4)))),
            (F{-1, 0, 0.5F}));
  EXPECT_EQ(numbers(wav(format(3, 1, 8000, 32) + chunk("data", floating<float>({-1, 0.25F, 3})))), (F{-1, 0.25F, 3}));
  EXPECT_EQ(numbers(wav(format(3, 1, 8000, 64) + chunk("data", floating<double>({-1, 0.25})))), (F{-1, 0.25F}));
  EXPECT_EQ(numbers(wav(format(1, 1, 8000, 16, true) + chunk("data", whole({16384}, 2)))), F{0.5F});
  EXPECT_EQ(numbers(wav(format(3, 1, 8000, 32, true) + chunk("data", floating<float>({0.5F})))), F{0.5F});
}

TEST(Wav, ChannelsOtherChunksAndFiles) {
  const std::string file = wav(chunk("LIST", "odd") + format(1, 2, 44100, 16) + chunk("fact", "1234") +
                               chunk("data", whole({16384, -16384, 8192, 0}, 2)) + chunk("more", "x"));
  const Sound s = parse(file);
  EXPECT_EQ(s.rate, 44100);
  EXPECT_EQ(s.samples.shape(), Shape({2, 2}));
  EXPECT_EQ(s.samples.to_vector<float>(), (std::vector<float>{0.5F, 0.25F, -0.5F, 0}));
  EXPECT_EQ(s.mono().to_vector<float>(), (std::vector<float>{0, 0.125F}));
  const io::TempDir dir;
  io::write_file(dir / "a.wav", file);
  EXPECT_EQ(read_wav(dir / "a.wav").samples.shape(), Shape({2, 2}));
  EXPECT_EQ(parse(wav(format(1, 1, 16000, 16) + chunk("data", ""))).mono().shape(), Shape{0});
  EXPECT_THROW(read_wav(dir / "none.wav"), IoError);
}

TEST(Wav, RefusalsNameTheByte) {
  const std::string data = chunk("data", whole({1, 2}, 2));
  expect_part(refusal("RIFF"), "byte 8: the file ends within the header");
  expect_part(refusal("RIFX0000WAVE"), "no WAV file");
  expect_part(refusal(wav("")), "none is called 'data'");
  expect_part(refusal(wav(format(1, 1, 8000, 16))), "none is called 'data'");
  expect_part(refusal(wav(data)), "stands before 'fmt '");
  expect_part(refusal(wav(format(1, 1, 8000, 16) + format(1, 1, 8000, 16) + data)), "a second chunk");
  expect_part(refusal(wav(chunk("fmt ", "12345678"))), "byte 20: the chunk 'fmt ' is shorter");
  expect_part(refusal(wav(format(2, 1, 8000, 16) + data)), "samples of kind 2 and 16 bits");
  expect_part(refusal(wav(format(3, 1, 8000, 16) + data)), "samples of kind 3 and 16 bits");
  expect_part(refusal(wav(format(1, 0, 8000, 16) + data)), "0 channels");
  expect_part(refusal(wav(format(1, 65, 8000, 16) + data)), "65 channels");
  expect_part(refusal(wav(format(1, 1, 0, 16) + data)), "0 samples a second");
  std::string block = format(1, 1, 8000, 16);
  block[20] = 4;
  expect_part(refusal(wav(block + data)), "is 4 bytes, wanted 2");
  expect_part(refusal(wav(format(1, 1, 8000, 16) + chunk("data", "abc"))), "3 bytes are no whole number");
  const std::string cut = wav(format(1, 1, 8000, 16) + data);
  expect_part(refusal(cut.substr(0, cut.size() - 1)), "is longer than the file, which has 3");
  expect_part(refusal(wav(format(3, 1, 8000, 32) + chunk("data", whole({0x7f800000}, 4)))), "not a finite number");
  expect_part(refusal(wav(format(3, 1, 8000, 64) + chunk("data", floating<double>({1e300})))), "not a finite number");
}

// Any bytes are sound or an error.
TEST(Wav, MutatedFiles) {
  const std::string file = wav(chunk("LIST", "odd") + format(1, 2, 44100, 16, true) + chunk("fact", "1234") +
                               chunk("data", whole({16384, -16384, 8192, 0}, 2)));
  int sounds = 0, errors = 0;
  for (fuzz::Rounds round(20000); round.next();) {
    std::string other = file;
    for (size_t n = 1 + round.below(3); n > 0; --n)
      other[round.below(other.size())] = static_cast<char>(round.random());
    if (round.below(4) == 0) other.resize(round.below(other.size()));
    try {
      EXPECT_LE(parse(other).samples.numel(), static_cast<int64_t>(file.size()));
      ++sounds;
    } catch (const IoError&) {
      ++errors;
    }
  }
  EXPECT_GT(sounds, 0);
  EXPECT_GT(errors, 0);
}

}  // namespace
}  // namespace strata::data
