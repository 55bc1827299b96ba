#include "strata/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "strata/core/error.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/io/temp_dir.h"

// The largest block asked for, to see that a lie in a header is not believed.
namespace {
thread_local size_t largest_block = 0;
}
// noinline: GCC takes an inlined pair of malloc and delete for a mismatch.
__attribute__((noinline)) void* operator new(size_t n) {
  largest_block = std::max(largest_block, n);
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* p) noexcept {
  std::free(p);
}
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace strata::io {
namespace {

std::string with_length(const std::string& header, const std::string& data = "") {
  const uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string error_of(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "x.safetensors");
  } catch (const IoError& e) {
    EXPECT_NE(std::string(e.what()).find("x.safetensors"), std::string::npos) << e.what();
    return e.what();
  }
  return "";
}

#define EXPECT_REFUSED(file, part) \
  EXPECT_NE(error_of(file).find(part), std::string::npos) << "message: '" << error_of(file) << "'"

std::string one(const std::string& fields, const std::string& data = "01234567") {
  return with_length("{\"w\":{" + fields + "}}", data);
}

Tensor counting(const Shape& shape, DType dtype) {
  Tensor t = empty(TensorMeta{shape, dtype, Device::cpu()});
  auto* p = static_cast<unsigned char*>(t.numel() ? t.raw_data() : nullptr);
  for (int64_t i = 0; i < t.nbytes(); ++i)
    p[i] = static_cast<unsigned char>(dtype == DType::boolean ? i % 2 : i * 37 + 11);
  return t;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.numel() == 0 || std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0);
}

TEST(Safetensors, ReadsAHandWrittenFile) {
  const std::string file =
      with_length(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]},"__metadata__":{"k":"v"},)"
                  R"("a":{"shape":[1,2],"data_offsets":[0,8],"dtype":"F32"},"z":)"
                  R"({"dtype":"I64","shape":[0,3],"data_offsets":[8,8]}}  )",
                  std::string("\0\0\x80\x3f\0\0\0\x40\x07\x09", 10));
  const SafetensorsHeader header = parse_safetensors(bytes_of(file), "f");
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].shape, (Shape{1, 2}));
  EXPECT_EQ(header.entries[0].dtype, DType::f32);
  float f[2];
  std::memcpy(f, file.data() + header.entries[0].offset, 8);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_EQ(f[1], 2.0f);
  EXPECT_EQ(header.entries[1].name, "z");
  EXPECT_EQ(header.entries[1].nbytes, 0u);
  EXPECT_EQ(header.entries[2].name, "b");
  EXPECT_EQ(header.metadata.at("k"), "v");
}

TEST(Safetensors, WritesTheFormat) {
  TempDir dir;
  const float x[2] = {1, 2};
  const uint8_t y[1] = {7};
  const WrittenFile written =
      save_safetensors(dir / "f", {{"y", DType::u8, Shape{1}, y}, {"x", DType::f32, Shape{2}, x}}, {{"k", "\"v\""}});
  std::string header = R"({"__metadata__":{"k":"\"v\""},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("y":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string expected = with_length(header, std::string("\0\0\x80\x3f\0\0\0\x40\x07", 9));
  EXPECT_EQ(read_file(dir / "f"), expected);
  EXPECT_EQ(written.xxh64, xxh64(std::string_view(expected)));
}

TEST(Safetensors, RoundTripsEveryDtypeAndShape) {
  TempDir dir;
  TensorMap tensors;
  for (const DType t : kAllDTypes)
    for (const Shape& s : {Shape{}, Shape{0}, Shape{3}, Shape{2, 3}, Shape{1, 1, 1, 1, 1, 1, 2, 2}})
      tensors.emplace(cat("t.", t, to_string(s)), counting(s, t));
  tensors.emplace("unicode \xc3\xa9 \" \\ \n", counting({5}, DType::f16));
  const Metadata metadata{{"format", "pt"}, {"quote\"", "line\nbreak"}};
  save_safetensors(dir / "f", tensors, metadata);
  const SafetensorsFile file(dir / "f");
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    ASSERT_TRUE(file.contains(name)) << name;
    EXPECT_TRUE(same_bytes(file.tensor(name), t)) << name;
    EXPECT_EQ(file.entry(name).offset % static_cast<uint64_t>(size_of(t.dtype())), 0u) << name;
  }
  EXPECT_THROW(file.tensor("none"), IoError);
  const TensorMap all = file.tensors();
  EXPECT_EQ(all.size(), tensors.size());
  const std::string image = encode_safetensors(tensors, metadata);
  EXPECT_EQ(image, read_file(dir / "f"));
  const TensorMap read = read_safetensors(bytes_of(image), parse_safetensors(bytes_of(image), "f"), "f");
  ASSERT_EQ(read.size(), tensors.size());
  for (const auto& [name, t] : tensors) EXPECT_TRUE(same_bytes(read.at(name), t)) << name;
}

std::vector<float> floats(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.numel()};
}

TEST(Safetensors, WritesViewsRowMajor) {
  TempDir dir;
  Tensor x = empty(TensorMeta{Shape{2, 3}, DType::f32, Device::cpu()});
  for (int i = 0; i < 6; ++i) x.data<float>()[i] = static_cast<float>(i);
  save_safetensors(dir / "f", TensorMap{{"t", x.t()}, {"column", x.select(1, 2)}, {"row", x.select(0, 1)}});
  const SafetensorsFile file(dir / "f");
  EXPECT_EQ(file.tensor("t").shape(), (Shape{3, 2}));
  EXPECT_EQ(floats(file.tensor("t")), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(floats(file.tensor("column")), (std::vector<float>{2, 5}));
  EXPECT_EQ(floats(file.tensor("row")), (std::vector<float>{3, 4, 5}));
}

TEST(Safetensors, WriterRefusesBadInput) {
  TempDir dir;
  const uint8_t x[1] = {0};
  const SafetensorsItem item{"x", DType::u8, Shape{1}, x};
  EXPECT_THROW(save_safetensors(dir / "f", std::vector<SafetensorsItem>{item, item}), ValueError);
  EXPECT_THROW(save_safetensors(dir / "f", {{"", DType::u8, Shape{1}, x}}), ValueError);
  EXPECT_THROW(save_safetensors(dir / "f", {{"__metadata__", DType::u8, Shape{1}, x}}), ValueError);
  EXPECT_THROW(save_safetensors(dir / "f", {{"\xff", DType::u8, Shape{1}, x}}), ValueError);
  EXPECT_THROW(save_safetensors(dir / "f", {{"x", DType::u8, Shape{1}, nullptr}}), ValueError);
  EXPECT_THROW(save_safetensors(dir / "f", {item}, {{"k", "\xff"}}), ValueError);
  EXPECT_THROW(save_safetensors(dir / "f", TensorMap{{"m", empty(TensorMeta{Shape{2}, DType::f32, Device::meta()})}}),
               DeviceError);
  EXPECT_THROW(save_safetensors(dir / "no/f", {item}), IoError);
  EXPECT_THROW(SafetensorsFile(dir / "f"), IoError);  // nothing was left behind
}

TEST(Safetensors, EmptyListOfTensors) {
  TempDir dir;
  save_safetensors(dir / "f", TensorMap{});
  EXPECT_EQ(SafetensorsFile(dir / "f").entries().size(), 0u);
}

TEST(Safetensors, RefusesBadLengths) {
  EXPECT_REFUSED("", "has 0 bytes");
  EXPECT_REFUSED("1234567", "has 7 bytes");
  EXPECT_REFUSED(std::string("\x10\0\0\0\0\0\0\0{}", 10), "byte 0: the header length is 16");
  EXPECT_REFUSED(std::string(8, '\xff') + "{}", "byte 0: the header length is 18446744073709551615");
  EXPECT_REFUSED(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "at most 100000000");
  EXPECT_REFUSED(with_length(""), "byte 8");
  EXPECT_REFUSED(with_length(" {}"), "byte 8");
}

TEST(Safetensors, SaysWhatAnotherFileIs) {
  const std::string zip = std::string("PK\x03\x04", 4) + std::string(26, '\x14');
  EXPECT_REFUSED(zip + "archive/data.pkl" + std::string(200, 'x'), "is a PyTorch file");
  EXPECT_REFUSED(zip + "archive/data.pkl" + std::string(200, 'x'), "from safetensors.torch import save_file");
  EXPECT_REFUSED(zip + "w.npy" + std::string(200, 'x'), "is a NumPy archive");
  EXPECT_REFUSED(std::string("\x80\x02}q") + "\x01(X\x05weight", "is a PyTorch file");
  EXPECT_REFUSED("\x93NUMPY\x01 {'descr': '<f4'", "is a NumPy array");
  EXPECT_REFUSED(std::string("GGUF\x03\0\0\0\x05\0\0\0", 12), "is a GGUF file");
}

TEST(Safetensors, AFileThatIsCutMeanwhileIsAnError) {
  TempDir dir;
  save_safetensors(dir / "f", TensorMap{{"a", counting({10'000}, DType::f32)}, {"b", counting({10'000}, DType::f32)}});
  const SafetensorsFile file(dir / "f");
  std::filesystem::resize_file(dir / "f", 50'000);
  EXPECT_TRUE(same_bytes(file.tensor("a"), counting({10'000}, DType::f32)));
  EXPECT_THROW(file.tensor("b"), IoError);
  EXPECT_THROW(file.tensors(), IoError);
}

TEST(Safetensors, RefusesBadJson) {
  EXPECT_REFUSED(with_length("{"), "not valid JSON");
  EXPECT_REFUSED(with_length("{\"a\":,}"), "byte 13");
  EXPECT_REFUSED(with_length("{} x"), "not valid JSON");
  EXPECT_REFUSED(with_length("{\"\xff\":1}"), "not valid JSON");
  EXPECT_REFUSED(with_length("{\"a\":1e999}"), "not valid JSON");
  EXPECT_REFUSED(with_length("{\"a\":" + std::string(10'000, '[')), "tensor 'a': its value is an array");
  EXPECT_REFUSED(with_length("{\"a\":3}"), "its value is the number 3");
  EXPECT_REFUSED(with_length("{\"a\":null}"), "its value is null");
  EXPECT_REFUSED(with_length("{\"__metadata__\":[]}"), "__metadata__ is an array");
  EXPECT_REFUSED(with_length("{\"__metadata__\":{\"k\":1}}"), "the value of 'k' in __metadata__ is the number 1");
  EXPECT_REFUSED(with_length("{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}"), "'k' of __metadata__ is given twice");
  EXPECT_REFUSED(with_length("{\"__metadata__\":{},\"__metadata__\":{}}"), "__metadata__ is given twice");
}

TEST(Safetensors, RefusesBadFields) {
  const std::string d = R"("dtype":"F32")", s = R"("shape":[2])", o = R"("data_offsets":[0,8])";
  ASSERT_EQ(error_of(one(d + "," + s + "," + o)), "");
  EXPECT_REFUSED(one(s + "," + o), "tensor 'w': the field dtype is missing");
  EXPECT_REFUSED(one(d + "," + o), "the field shape is missing");
  EXPECT_REFUSED(one(d + "," + s), "the field data_offsets is missing");
  EXPECT_REFUSED(one(d + "," + d + "," + s + "," + o), "the field dtype is given twice");
  EXPECT_REFUSED(one(d + "," + s + "," + o + R"(,"x":1)"), "unknown field 'x'");
  EXPECT_REFUSED(one(R"("dtype":"F31",)" + s + "," + o), "dtype 'F31'");
  EXPECT_REFUSED(one(R"("dtype":7,)" + s + "," + o), "dtype is the number 7");
  EXPECT_REFUSED(one(d + R"(,"shape":2,)" + o), "shape is the number 2");
  EXPECT_REFUSED(one(d + R"(,"shape":[-2],)" + o), "shape holds the negative number -2");
  EXPECT_REFUSED(one(d + R"(,"shape":[2.0],)" + o), "not an integer");
  EXPECT_REFUSED(one(d + R"(,"shape":[[2]],)" + o), "shape holds an array");
  EXPECT_REFUSED(one(d + R"(,"shape":[18446744073709551615],)" + o), "too large");
  EXPECT_REFUSED(one(d + R"(,"shape":[4294967296,4294967296],)" + o), "larger than 64 bits");
  EXPECT_REFUSED(one(d + R"(,"shape":[1,1,1,1,1,1,1,1,2],)" + o), "more than 8 dimensions");
  EXPECT_REFUSED(one(d + "," + s + R"(,"data_offsets":[0])"), "data_offsets has 1 numbers");
  EXPECT_REFUSED(one(d + "," + s + R"(,"data_offsets":[0,8,9])"), "more than 2");
  EXPECT_REFUSED(one(d + "," + s + R"(,"data_offsets":[0,-8])"), "data_offsets holds the negative number -8");
  EXPECT_REFUSED(one(d + "," + s + R"(,"data_offsets":[8,0])"), "out of range");
  EXPECT_REFUSED(one(d + "," + s + R"(,"data_offsets":[0,9])"), "out of range");
  EXPECT_REFUSED(one(d + "," + s + R"(,"data_offsets":[0,18446744073709551615])"), "out of range");
  EXPECT_REFUSED(one(d + R"(,"shape":[1],)" + o), "are 8 bytes, shape [1] of f32 needs 4");
  EXPECT_REFUSED(one(d + "," + s + "," + o, "0123456789"), "2 belong to no tensor");
}

TEST(Safetensors, RefusesBadLayout) {
  const auto two = [](const std::string& a, const std::string& b, const std::string& name = "b") {
    return with_length("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + a + "},\"" + name +
                           "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + b + "}}",
                       "01234567");
  };
  ASSERT_EQ(error_of(two("[4,8]", "[0,4]")), "");
  EXPECT_REFUSED(two("[0,4]", "[0,4]"), "overlap");
  EXPECT_REFUSED(two("[0,4]", "[3,7]"), "overlap");
  EXPECT_REFUSED(two("[0,3]", "[4,8]"), "are 3 bytes");
  EXPECT_REFUSED(two("[1,5]", "[4,8]"), "belong to no tensor, from 0");
  EXPECT_REFUSED(two("[0,4]", "[4,8]", "a"), "tensor 'a' is given twice");
}

TEST(Safetensors, RefusesABoolThatIsNone) {
  TempDir dir;
  write_file(dir / "f",
             with_length(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\0\1\2", 3)));
  const SafetensorsFile file(dir / "f");
  try {
    file.tensor("m");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_NE(std::string(e.what()).find("byte 2"), std::string::npos) << e.what();
  }
}

// 2,000 damaged files: each loads whole or is refused with an Error, and none makes the reader ask for much memory.
TEST(Safetensors, SurvivesMutatedFiles) {
  TempDir dir;
  fuzz::Rounds round(2000);
  const auto pick = [&](size_t n) { return round.below(n); };
  std::vector<std::string> seeds;
  for (int i = 0; i < 4; ++i) {
    TensorMap tensors;
    for (int j = 0; j <= 2 * i; ++j)
      tensors.emplace(cat("layers.", j, ".weight"),
                      counting({j % 4, static_cast<int64_t>(1 + pick(5))}, kAllDTypes[pick(kNumDTypes)]));
    save_safetensors(dir / "seed", tensors, i % 2 ? Metadata{{"format", "pt"}} : Metadata{});
    seeds.push_back(read_file(dir / "seed"));
  }
  const std::string_view tokens[] = {"-1",
                                     "0",
                                     "1",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "9223372036854775807",
                                     "1e400",
                                     "0.5",
                                     "null",
                                     "true",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "\"",
                                     ",",
                                     ":",
                                     "\\u0000",
                                     "\\ud800",
                                     "\"F32\"",
                                     "\"U16\"",
                                     "\"dtype\"",
                                     "\"shape\"",
                                     "\"data_offsets\"",
                                     "\"__metadata__\"",
                                     " ",
                                     "\xff",
                                     "[0,0]",
                                     "[4294967296,4294967296]",
                                     "{\"\":{}}"};
  int loaded = 0, refused = 0;
  while (round.next()) {
    std::string file = seeds[pick(seeds.size())];
    uint64_t header = 0;
    std::memcpy(&header, file.data(), 8);
    const bool fix_length = pick(3) != 0;  // so that the damage is seen by what comes after the length
    for (size_t n = 1 + pick(3); n > 0 && !file.empty(); --n) {
      const size_t at = pick(2) && file.size() > 8 ? 8 + pick(file.size() - 8) : pick(file.size());
      const size_t before = file.size();
      switch (pick(7)) {
        case 0:
          file[at] = static_cast<char>(file[at] ^ 1 << pick(8));
          break;
        case 1:
          file[at] = static_cast<char>(round.random());
          break;
        case 2:
          file.insert(at, tokens[pick(std::size(tokens))]);
          break;
        case 3:
          file.erase(at, 1 + pick(8));
          break;
        case 4:
          file.resize(at);
          break;
        case 5:
          file.insert(at, file.substr(pick(file.size()), pick(60)));
          break;
        case 6: {
          const std::string_view token = tokens[pick(std::size(tokens))];
          file.replace(at, token.size(), token);
          break;
        }
      }
      if (at < 8 + header) header += file.size() - before;  // modulo 2^64, also when it shrank
    }
    if (fix_length && file.size() >= 8) std::memcpy(file.data(), &header, 8);
    if (pick(20) == 0 && file.size() >= 8) std::memset(file.data() + pick(8), 0xff, 1);
    std::ofstream(dir / "f", std::ios::binary) << file;  // without write_file's 2,000 syncs
    largest_block = 0;
    try {
      const SafetensorsFile opened(dir / "f");
      int64_t bytes = 0;
      for (const auto& [name, t] : opened.tensors()) bytes += t.nbytes();
      EXPECT_LE(bytes, static_cast<int64_t>(file.size()));
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
    EXPECT_LE(largest_block, 64 * 1024 + 16 * file.size()) << "round " << round.number();
  }
  EXPECT_EQ(static_cast<uint64_t>(loaded + refused), round.done());
  // the corpus must exercise both ways
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace strata::io
