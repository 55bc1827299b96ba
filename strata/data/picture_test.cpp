#include "strata/data/picture.h"

#include <cstdlib>
#include <sstream>

#include <nlohmann/json.hpp>

#include "strata/core/error_test_util.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/weight_cases_test_util.h"

#include "strata/data/picture_fuzz.cpp"

namespace strata::data {
namespace {

using io::from_hex;

struct Case {
  std::string name, file, pixels;
  Shape shape;
};

// make_picture_cases.py
std::vector<Case> cases() {
  const char* root = std::getenv("STRATA_SOURCE_DIR");
  std::istringstream rows(io::read_file(std::string(root ? root : ".") + "/strata/data/picture_cases.jsonl"));
  std::vector<Case> all;
  for (std::string line; std::getline(rows, line);) {
    const nlohmann::json j = nlohmann::json::parse(line);
    all.push_back({j["name"],
                   from_hex(j["file"].get<std::string>()),
                   from_hex(j["pixels"].get<std::string>()),
                   {j["height"].get<int64_t>(), j["width"].get<int64_t>(), 3}});
  }
  return all;
}

Tensor parse(const std::string& file) {
  return parse_picture(std::as_bytes(std::span(file)), "a.picture");
}
std::string said(const std::string& file) {
  return message<IoError>([&] { parse(file); });
}
void put(std::string& file, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) file[at + static_cast<size_t>(i)] = static_cast<char>(value >> (24 - 8 * i));
}

TEST(Pictures, AreThoseOfPillow) {
  int compared = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    if (c.name == "jpeg-cmyk") {
      EXPECT_NE(said(c.file).find("CMYK"), std::string::npos) << said(c.file);
      continue;
    }
    const Tensor got = parse(c.file);
    ASSERT_EQ(got.shape(), c.shape);
    const std::vector<int> values = got.to_vector<int>();
    int largest = 0;
    for (size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(values[i] - static_cast<int>(static_cast<uint8_t>(c.pixels[i]))));
    EXPECT_LE(largest, c.name.starts_with("jpeg") ? 1 : 0);
    ++compared;
  }
  EXPECT_EQ(compared, 16);
  EXPECT_EQ(parse("P6 1 1 255\nabc").to_vector<int>(), (std::vector<int>{'a', 'b', 'c'}));
}

TEST(Pictures, Refusals) {
  EXPECT_NE(said("GIF89a").find("PNG, JPEG or PPM"), std::string::npos);
  EXPECT_NE(said("").find("'a.picture'"), std::string::npos);
  for (const Case& c : cases()) {
    if (c.name == "jpeg-cmyk") continue;
    SCOPED_TRACE(c.name);
    for (const size_t part : {4, 3, 2}) {
      const std::string why = said(c.file.substr(0, c.file.size() * (part - 1) / part));
      EXPECT_TRUE(why.starts_with("read_picture: 'a.picture': ")) << why;
    }
    if (!c.name.starts_with("png") || c.name == "png-one") continue;
    std::string damaged = c.file;
    damaged[damaged.size() - 16] = static_cast<char>(damaged[damaged.size() - 16] + 1);  // a checksum
    EXPECT_NE(said(damaged).find("PNG, byte"), std::string::npos) << said(damaged);
  }
  // Sizes are believed only where the file could hold them.
  std::string large = cases().front().file;
  const auto sized = [&](uint32_t width, uint32_t height) {
    put(large, 16, width), put(large, 20, height);
    uint32_t crc = 0xffffffff;
    for (size_t i = 12; i < 29; ++i) {
      crc ^= static_cast<uint8_t>(large[i]);
      for (int k = 0; k < 8; ++k) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    put(large, 29, ~crc);
    return said(large);
  };
  EXPECT_NE(sized(60000, 60000).find("more than 100000000"), std::string::npos);
  EXPECT_NE(sized(9000, 9000).find("cannot hold 9000 x 9000"), std::string::npos);
  EXPECT_NE(sized(70000, 1).find("PNG, byte"), std::string::npos);
  EXPECT_NE(sized(0, 1).find("PNG, byte"), std::string::npos);
  EXPECT_THROW(read_picture("no such file"), IoError);
}

TEST(PictureFuzz, OfCases) {
  std::vector<std::string> corpus;
  for (const Case& c : cases()) corpus.push_back(c.file);
  corpus.push_back("P6\n# c\n2 3\n255\nabcdefghijklmnopqr");
  fuzz::run(&LLVMFuzzerTestOneInput, corpus, 3000);
}

}  // namespace
}  // namespace strata::data
