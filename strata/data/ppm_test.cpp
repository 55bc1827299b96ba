#include "strata/data/ppm.h"

#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::data {
namespace {

Tensor parse(const std::string& file) {
  return parse_ppm(std::as_bytes(std::span(file)), "a.ppm");
}
void expect_refusal(const std::string& file, std::string_view part) {
  const std::string said = message<IoError>([&] { parse(file); });
  EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  EXPECT_NE(said.find("a.ppm"), std::string::npos) << said;
}

TEST(Ppm, Pictures) {
  const Tensor colour = parse("P6\n# made by hand\n2 1\n255\nabcdef");
  EXPECT_EQ(colour.shape(), Shape({1, 2, 3}));
  EXPECT_EQ(colour.to_vector<uint8_t>(), (std::vector<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  const Tensor grey = parse("P5 1 2 255 \xff\n");
  EXPECT_EQ(grey.to_vector<uint8_t>(), (std::vector<uint8_t>{255, 255, 255, 10, 10, 10}));
  const io::TempDir dir;
  io::write_file(dir / "a.ppm", "P6 1 1 255\nabc");
  EXPECT_EQ(read_ppm(dir / "a.ppm").shape(), Shape({1, 1, 3}));
  EXPECT_THROW(read_ppm(dir / "b.ppm"), IoError);
}

TEST(Ppm, RefusalsNameTheByte) {
  expect_refusal("", "byte 2: this is no PPM file");
  expect_refusal("P3 1 1 255\n1 1 1", "no PPM file");
  expect_refusal("P6", "the width is to be a number");
  expect_refusal("P6 0 1 255\n", "the width is to be a number");
  expect_refusal("P6 70000 1 255\n", "byte 8: the width is to be a number from 1 to 65535");
  expect_refusal("P6 123456 1 255\n", "the width");
  expect_refusal("P6 2 -1 255\n", "the height");
  expect_refusal("P6 2 1 65535\n", "taken as 255 alone");
  expect_refusal("P6 2 1 255", "the largest value");
  expect_refusal("P6 2 1 255\nabcde", "5 bytes follow, a picture of 2 x 1 has 6");
  expect_refusal("P6 2 1 255\nabcdefg", "7 bytes follow");
  expect_refusal("P6 # all of it", "the width");
  expect_refusal("P6 65535 65535 255\n", "0 bytes follow");
}

TEST(Ppm, MutatedFiles) {
  const std::string file = "P6\n# c\n2 3\n255\nabcdefghijklmnopqr";
  int pictures = 0, errors = 0;
  for (fuzz::Rounds round(20000); round.next();) {
    std::string other = file;
    other[round.below(other.size())] = static_cast<char>(round.random());
    if (round.below(4) == 0) other.resize(round.below(other.size()));
    try {
      EXPECT_LE(parse(other).numel(), static_cast<int64_t>(3 * file.size()));
      ++pictures;
    } catch (const IoError&) {
      ++errors;
    }
  }
  EXPECT_GT(pictures, 0);
  EXPECT_GT(errors, 0);
}

}  // namespace
}  // namespace strata::data
