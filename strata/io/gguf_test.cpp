#include "strata/io/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/io/gguf_blocks_cpu.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_cases_test_util.h"
#include "strata/io/weight_files.h"

namespace strata::io {
namespace {

std::span<const std::byte> span_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string refusal(const std::string& file) {
  return message<IoError>([&] { parse_gguf(span_of(file), "x.gguf"); });
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::string text_bytes(const std::string& text) {
  return number_bytes<uint64_t>(text.size()) + text;
}

std::string head(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
  return "GGUF" + number_bytes(version) + number_bytes(tensors) + number_bytes(pairs);
}

std::string pair_of(const std::string& key, uint32_t type, const std::string& value) {
  return text_bytes(key) + number_bytes(type) + value;
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
  std::string s = text_bytes(name) + number_bytes(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t n : sizes) s += number_bytes(n);
  return s + number_bytes(type) + number_bytes(offset);
}

// The head padded, and data behind it.
std::string file_of(std::string start, size_t data, size_t alignment = 32) {
  start.resize((start.size() + alignment - 1) / alignment * alignment);
  return start + std::string(data, '\1');
}

TEST(GgufBlocks, AreDecodedAsTheReferenceDoes) {
  const auto cases = weight_cases("decode");
  ASSERT_EQ(cases.size(), 17);
  std::set<std::string> types;
  for (const auto& c : cases) {
    const StoredType* type = find_stored_type(c[0]);
    const std::string block = from_hex(c[1]), want = from_hex(c[2]);
    ASSERT_EQ(block.size(), static_cast<size_t>(type->block_bytes));
    ASSERT_EQ(want.size(), static_cast<size_t>(type->block) * 4);
    const std::string twice = "x" + block + block;  // unaligned
    std::vector<float> got(static_cast<size_t>(type->block) * 2);
    type->decode(reinterpret_cast<const std::byte*>(twice.data()) + 1, 2, got.data());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0) << c[0];
    EXPECT_EQ(std::memcmp(got.data() + type->block, want.data(), want.size()), 0) << c[0];
    types.insert(c[0]);
  }
  for (const StoredType& t : stored_types()) {
    if (t.decode) {
      EXPECT_TRUE(types.contains(std::string(t.name))) << t.name;
    }
  }
}

TEST(GgufBlocks, AreEncodedAsTheReferenceDoes) {
  const auto cases = weight_cases("encode");
  ASSERT_EQ(cases.size(), 8);
  for (const auto& c : cases) {
    const StoredType* type = find_stored_type(c[0]);
    const std::string numbers = from_hex(c[1]), want = from_hex(c[2]);
    std::vector<float> x(numbers.size() / 4);
    std::memcpy(x.data(), numbers.data(), numbers.size());
    std::string got(want.size(), '\0');
    type->encode(x.data(), 1, reinterpret_cast<std::byte*>(got.data()));
    EXPECT_EQ(got, want) << c[0];
  }
}

TEST(GgufBlocks, RefuseWhatTheyDoNotHold) {
  std::byte block[256];
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e30F}) {
    const float x[256] = {1, bad};
    for (const StoredType& t : stored_types())
      if (t.encode) {
        EXPECT_THROW(t.encode(x, 1, block), ValueError) << t.name << " " << bad;
      }
  }
}

// The share of a normal sample's root mean square that is lost: what so many bits under these scales can keep.
TEST(GgufBlocks, OfTwoHundredAndFiftySixKeepMostOfANormalSample) {
  std::mt19937 draw(3);
  std::normal_distribution<float> normal;
  constexpr int kBlocks = 8, kCount = kBlocks * 256;
  for (const auto& [name, share] : {std::pair("Q4_K", 0.075), {"Q5_K", 0.038}, {"Q6_K", 0.022}}) {
    const StoredType& type = *find_stored_type(name);
    for (const float scale : {1.0F, 1e-3F, -40.0F}) {
      std::vector<float> x(kCount), got(kCount);
      for (float& v : x) v = scale * normal(draw);
      for (int i = 0; i < 256; ++i) x[static_cast<size_t>(i)] = i < 128 ? std::fabs(x[static_cast<size_t>(i)]) : 0;
      std::vector<std::byte> bytes(static_cast<size_t>(kBlocks * type.block_bytes));
      type.encode(x.data(), kBlocks, bytes.data());
      type.decode(bytes.data(), kBlocks, got.data());
      double lost = 0, all = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        lost += (got[i] - x[i]) * (got[i] - x[i]), all += x[i] * x[i];
        if (i >= 128 && i < 256) {
          ASSERT_EQ(got[i], 0) << name << " " << i;
        }
      }
      EXPECT_LT(std::sqrt(lost / all), share) << name << " " << scale;
      // Numbers that blocks hold are kept nearly.
      std::vector<float> again(kCount);
      type.encode(got.data(), kBlocks, bytes.data());
      type.decode(bytes.data(), kBlocks, again.data());
      double moved = 0;
      for (size_t i = 0; i < x.size(); ++i) moved += (got[i] - again[i]) * (got[i] - again[i]);
      EXPECT_LT(std::sqrt(moved / all), share / 2) << name << " " << scale;
    }
    const std::vector<float> none(256);
    std::vector<float> got(256, 1);
    std::vector<std::byte> bytes(static_cast<size_t>(type.block_bytes), std::byte{255});
    type.encode(none.data(), 1, bytes.data());
    type.decode(bytes.data(), 1, got.data());
    EXPECT_EQ(got, none) << name;
  }
}

TEST(StoredTypes, AreOneTable) {
  for (const StoredType& t : stored_types()) {
    EXPECT_EQ(find_stored_type(t.name), &t);
    EXPECT_TRUE(t.ggml < 0 || find_ggml_type(static_cast<uint64_t>(t.ggml)) == &t) << t.name;
    EXPECT_EQ(find_torch_type(t.torch), t.torch.empty() ? nullptr : &t);
    EXPECT_TRUE(!t.decode || t.dtype == DType::f32) << t.name;
  }
  for (const DType t : kAllDTypes) {
    EXPECT_EQ(stored_type(t).dtype, t);
    EXPECT_EQ(stored_type(t).block_bytes, size_of(t));
  }
  const StoredType &q4 = *find_stored_type("Q4_0"), &f6 = *find_stored_type("F6_E2M3");
  EXPECT_EQ(stored_bytes(q4, {3, 64}), 3 * 36);
  EXPECT_EQ(stored_bytes(q4, {64, 3}), std::nullopt);
  EXPECT_EQ(stored_bytes(q4, {}), std::nullopt);
  EXPECT_EQ(stored_bytes(f6, {2, 6}), 9);  // of any shape, as long as bytes are whole
  EXPECT_EQ(stored_bytes(f6, {3}), std::nullopt);
  EXPECT_EQ(stored_bytes(stored_type(DType::f64), {INT64_MAX / 4}), std::nullopt);
  EXPECT_EQ(stored_bytes(stored_type(DType::u8), {INT64_MAX, 2, 0}), std::nullopt);
}

TEST(Gguf, AFileOfThePackageIsReadAndWrittenAgainByteForByte) {
  const std::string bytes = from_hex(weight_cases("gguf", "all").at(0)[1]);
  const GgufHeader header = parse_gguf(span_of(bytes), "all");
  const GgufMetadata& m = header.metadata;
  EXPECT_EQ(m.text("general.architecture"), "llama");
  EXPECT_EQ(m.integer("k.u8"), 255);
  EXPECT_EQ(m.integer("k.i8"), -1);
  EXPECT_EQ(m.integer("k.u16"), 65535);
  EXPECT_EQ(m.integer("k.i16"), -2);
  EXPECT_EQ(m.integer("k.u32"), 7);
  EXPECT_EQ(m.integer("k.i32"), -5);
  EXPECT_EQ(m.number("k.f32"), 1.5);
  EXPECT_EQ(m.integer("k.u64"), INT64_MAX);
  EXPECT_EQ(m.integer("k.i64"), INT64_MIN);
  EXPECT_EQ(m.number("k.f64"), 1e300);
  EXPECT_TRUE(m.boolean("k.bool"));
  EXPECT_EQ(m.text("k.text"), "h\xc3\xa4");
  EXPECT_EQ(m.texts("k.texts"), (std::vector<std::string>{"a", "", "\xc3\x9f"}));
  EXPECT_EQ(m.integers("k.integers"), (std::vector<int64_t>{1, 2, -3}));
  EXPECT_EQ(m.numbers("k.numbers"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(m.at("k.bools").booleans(), (std::vector<bool>{true, false}));
  EXPECT_EQ(m.numbers("k.integers"), (std::vector<double>{1, 2, -3}));
  EXPECT_SAYS(message<IoError>([&] { m.integer("k.text"); }), "'all': key 'k.text' is a string, an integer is wanted");
  EXPECT_SAYS(message<IoError>([&] { m.texts("k.text"); }), "is a string, an array of strings is wanted");
  EXPECT_SAYS(message<IoError>([&] { m.integers("k.texts"); }),
              "is an array of string, an array of integers is wanted");
  EXPECT_SAYS(message<IoError>([&] { m.number("none"); }), "has no key 'none'");

  const TempDir dir;
  write_file(dir / "x", bytes);
  const WeightFiles files(dir / "x");
  ASSERT_EQ(files.format(), WeightsFormat::gguf);
  EXPECT_EQ(files.entry("f32").shape, (Shape{2, 3}));
  EXPECT_EQ(bytes_of(files.tensor("f32")), bytes_of(counted({2, 3})));
  EXPECT_EQ(files.tensor("f16").dtype(), DType::f16);
  EXPECT_EQ(files.tensor("f16").to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(files.tensor("i32").shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(files.tensor("i32").to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_NEAR(files.tensor("q8_0").to_vector<float>()[63], 63, 0.3);
  EXPECT_EQ(files.tensor("q2_k").dtype(), DType::f32);
  EXPECT_EQ(files.bytes("q2_k").to_vector<int>()[83], 83);

  std::vector<StoredItem> items;
  for (const WeightEntry& e : files.entries()) items.push_back({e.name, e.type, e.shape});
  GgufWriter again(dir / "y", *files.gguf(), items);
  for (const StoredItem& item : items) again.write_bytes(span_of(bytes_of(files.bytes(item.name))));
  again.commit();
  EXPECT_EQ(read_file(dir / "y"), bytes);
}

TEST(Gguf, EveryValueThatIsWrittenIsRead) {
  GgufMetadata m;
  m.set("u8", GgufValue::of(uint8_t{200}));
  m.set("i8", GgufValue::of(int8_t{-100}));
  m.set("u16", GgufValue::of(uint16_t{60000}));
  m.set("i16", GgufValue::of(int16_t{-30000}));
  m.set("u32", GgufValue::of(uint32_t{4'000'000'000}));
  m.set("i32", GgufValue::of(int32_t{-2'000'000'000}));
  m.set("u64", GgufValue::of(UINT64_MAX));
  m.set("i64", GgufValue::of(INT64_MIN));
  m.set("f32", GgufValue::of(0.1F));
  m.set("f64", GgufValue::of(0.1));
  m.set("yes", GgufValue::of(true));
  m.set("text", GgufValue::of("t"));
  m.set("texts", GgufValue::of(std::vector<std::string>{"", "b"}));
  m.set("i32s", GgufValue::of(std::vector<int32_t>{-1, 2}));
  m.set("u32s", GgufValue::of(std::vector<uint32_t>{1, 2}));
  m.set("f32s", GgufValue::of(std::vector<float>{1, 2}));
  m.set("bools", GgufValue::of(std::vector<bool>{true}));
  m.set("none", GgufValue::of(std::vector<float>{}));
  m.set("deep", GgufValue::of({GgufValue::of(std::vector<float>{1}), GgufValue::of(std::vector<std::string>{"x"})},
                              GgufType::array));
  m.set("yes", GgufValue::of(false));  // replaced in its place
  std::vector<std::string> many;       // longer than what is read at a time
  for (int i = 0; i < 40'000; ++i) many.push_back(std::string(static_cast<size_t>(i % 23), 'x'));
  m.set("many", GgufValue::of(many));
  m.set("long", GgufValue::of(std::string(700'000, 'y')));
  m.set("after", GgufValue::of(many));
  const TempDir dir;
  for (const uint32_t version : {2U, 3U}) {
    GgufWriter(dir / "x", m, {}, version).commit();
    const GgufHeader header = parse_gguf(span_of(read_file(dir / "x")), "x");
    EXPECT_EQ(header.version, version);
    EXPECT_EQ(header.metadata.entries(), m.entries());
  }
  EXPECT_FALSE(m.boolean("yes"));
  EXPECT_EQ(m.number("u64"), 18446744073709551615.0);
  EXPECT_SAYS(message<IoError>([&] { m.integer("u64"); }), "more than 63 bits hold");
  EXPECT_EQ(m.at("deep").arrays().at(1).texts().at(0), "x");
  EXPECT_THROW(GgufValue::of({GgufValue::of(1.0)}, GgufType::f32), ValueError);
}

TEST(Gguf, TensorsOfEveryWritableTypeAreEncodedAsTheyAreWritten) {
  const TempDir dir;
  const Tensor x = counted({2, 256});
  std::vector<StoredItem> items;
  for (const StoredType& t : stored_types())
    if (t.ggml >= 0 && t.dtype && (t.is_plain() || t.encode)) items.push_back({std::string(t.name), &t, {2, 256}});
  ASSERT_EQ(items.size(), 13);
  GgufMetadata m;
  m.set("general.alignment", GgufValue::of(uint32_t{4}));
  GgufWriter out(dir / "x", m, items);
  for (const StoredItem& item : items) out.write(is_floating(*item.type->dtype) ? x : x.to(*item.type->dtype));
  EXPECT_THROW(out.write(x), ValueError);
  out.commit();
  const WeightFiles files(dir / "x");
  const std::map<std::string, double> gap = {{"Q8_0", 2.1}, {"Q4_0", 33}, {"Q4_K", 18}, {"Q5_K", 9.5}, {"Q6_K", 9}};
  const std::vector<double> want = x.to_vector<double>();
  for (const StoredItem& item : items) {
    const std::vector<double> got = files.tensor(item.name).to_vector<double>();
    const Tensor converted = is_floating(*item.type->dtype) ? x : x.to(*item.type->dtype);
    const std::vector<double> own = item.type->is_plain() ? converted.to(*item.type->dtype).to_vector<double>() : want;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], own[i], item.type->is_plain() ? 0 : gap.at(item.name)) << item.name << " " << i;
  }
}

TEST(Gguf, TheWriterRefuses) {
  const TempDir dir;
  const GgufMetadata none;
  const StoredType &f32 = stored_type(DType::f32), &q8 = *find_stored_type("Q8_0");
  const auto refused = [&](const std::vector<StoredItem>& items, const GgufMetadata& m = {}, uint32_t version = 3) {
    return message<ValueError>([&] { GgufWriter(dir / "x", m, items, version); });
  };
  EXPECT_SAYS(refused({{"a", &f32, {1}}, {"a", &f32, {1}}}), "tensor 'a' is given twice");
  EXPECT_SAYS(refused({{"", &f32, {1}}}), "a tensor's name is empty");
  EXPECT_SAYS(refused({{"\xff", &f32, {1}}}), "is not UTF-8");
  EXPECT_SAYS(refused({{"a", &stored_type(DType::boolean), {1}}}), "GGUF files have no type for BOOL");
  EXPECT_SAYS(refused({{"a", nullptr, {1}}}), "GGUF files have no type for it");
  EXPECT_SAYS(refused({{"a", &q8, {32, 31}}}), "no multiple of 32");
  EXPECT_SAYS(refused({}, none, 1), "version 1");
  GgufMetadata odd;
  odd.set("general.alignment", GgufValue::of(uint32_t{24}));
  EXPECT_SAYS(refused({}, odd), "a power of two");

  GgufWriter out(dir / "x", none, {{"a", &q8, {32}}, {"b", &*find_stored_type("Q4_1"), {256}}});
  EXPECT_THROW(out.write(counted({31})), ShapeError);
  EXPECT_THROW(out.write(counted({32}).to(DType::i32)), DTypeError);
  EXPECT_THROW(out.write_bytes(span_of("x")), ValueError);
  EXPECT_THROW(out.write(empty(TensorMeta{{32}, DType::f32, Device::meta(), std::nullopt})), DeviceError);
  Tensor infinite = counted({32});
  infinite.data<float>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_SAYS(message<ValueError>([&] { out.write(infinite); }), "tensor 'a': Q8_0: a number is not finite");
  out.write(counted({32}));
  EXPECT_SAYS(message<DTypeError>([&] { out.write(counted({256})); }), "there is no encoder for Q4_1");
  EXPECT_SAYS(message<ValueError>([&] { out.commit(); }), "1 tensors have not been written");
  EXPECT_THROW(InputFile(dir / "x"), IoError);  // nothing under the name
}

TEST(Gguf, ATensorThatFailedHalfWayIsNotGoneOnWith) {
  const TempDir dir;
  Tensor x = counted({(1 << 20) + 32});  // two pieces
  x.data<float>()[1 << 20] = std::numeric_limits<float>::infinity();
  GgufWriter out(dir / "x", {}, {{"a", find_stored_type("Q8_0"), x.shape()}});
  EXPECT_THROW(out.write(x), ValueError);
  EXPECT_SAYS(message<ValueError>([&] { out.write(x); }), "tensor 'a' was written in part");
  EXPECT_THROW(out.commit(), ValueError);
}

TEST(Gguf, RefusesWhatIsNoFileOfOurs) {
  EXPECT_SAYS(refusal("GGU"), "byte 0: does not begin with 'GGUF'");
  EXPECT_SAYS(refusal("GGML" + std::string(40, '\0')), "does not begin with 'GGUF'");
  EXPECT_SAYS(refusal(head(0, 0, 1)), "version 1; 2 and 3 are read");
  EXPECT_SAYS(refusal(head(0, 0, 0x03000000)), "is big-endian");
  EXPECT_SAYS(refusal(head(1, 0)), "1 tensors are more than 0 bytes describe");
  EXPECT_SAYS(refusal(head(UINT64_MAX, 0)), "tensors are more than");
  EXPECT_SAYS(refusal(head(0, UINT64_MAX)), "keys are more than");
  EXPECT_SAYS(refusal("GGUF\3"), "the version needs 4 bytes, 1 are left");
}

TEST(Gguf, RefusesBadMetadata) {
  const auto one = [](const std::string& pair) { return refusal(head(0, 1) + pair); };
  EXPECT_SAYS(one(pair_of("k", 13, "xxxx")), "key 'k' has the unknown type 13");
  EXPECT_SAYS(one(pair_of("", 0, "x")), "byte 24: a key is empty");
  EXPECT_SAYS(one(pair_of("k", 7, "\2")), "byte 37: key 'k' is a bool of 2");
  EXPECT_SAYS(one(pair_of("k", 8, number_bytes<uint64_t>(100) + "abc")), "key 'k' needs 100 bytes, 3 are left");
  EXPECT_SAYS(one(pair_of("k", 9, number_bytes<uint32_t>(4) + number_bytes(UINT64_MAX / 2))),
              "elements, which 0 bytes");
  EXPECT_SAYS(one(pair_of("k", 9, number_bytes<uint32_t>(99) + number_bytes<uint64_t>(0))), "unknown type 99");
  EXPECT_SAYS(one(pair_of("k", 9, number_bytes<uint32_t>(7) + number_bytes<uint64_t>(2) + std::string("\1\3"))),
              "is a bool of 3");
  std::string deep = number_bytes<uint32_t>(9) + number_bytes<uint64_t>(1);
  for (int i = 0; i < 3; ++i) deep += deep;
  EXPECT_SAYS(one(pair_of("k", 9, deep)), "nests arrays more than 4 deep");
  EXPECT_SAYS(refusal(head(0, 2) + pair_of("k", 0, "x") + pair_of("k", 0, "y")), "key 'k' is given twice");
  EXPECT_SAYS(one(pair_of("general.alignment", 4, number_bytes<uint32_t>(0))), "is 0, a power of two is wanted");
  EXPECT_SAYS(one(pair_of("general.alignment", 5, number_bytes<int32_t>(32))), "is a i32, a u32 is wanted");
}

TEST(Gguf, RefusesBadTensors) {
  const auto of = [](const std::vector<std::string>& tensors, size_t data) {
    std::string start = head(tensors.size(), 0);
    for (const std::string& t : tensors) start += t;
    return refusal(file_of(start, data));
  };
  EXPECT_EQ(of({tensor("a", {2, 3}, 0, 0), tensor("b", {4}, 24, 32)}, 36), "no error");
  EXPECT_EQ(of({tensor("a", {2, 3}, 0, 0), tensor("b", {4}, 24, 32)}, 64), "no error");
  EXPECT_SAYS(of({tensor("a", {2, 3}, 0, 0), tensor("b", {4}, 24, 32)}, 65), "1 bytes belong to no tensor");
  EXPECT_SAYS(of({tensor("a", {2, 3}, 0, 0), tensor("b", {4}, 24, 32)}, 35), "tensor 'b' needs 4 bytes at 32");
  EXPECT_SAYS(of({tensor("a", {2}, 0, 0), tensor("b", {4}, 24, 8)}, 64),
              "tensor 'b' is at 8 of the data, 32 is wanted");
  EXPECT_SAYS(of({tensor("a", {2}, 0, 0), tensor("a", {4}, 24, 32)}, 64), "tensor 'a' is given twice");
  EXPECT_SAYS(of({tensor("", {2}, 0, 0)}, 32), "a tensor has no name");
  EXPECT_SAYS(of({tensor("a", {2}, 4, 0)}, 32), "tensor 'a' has the unknown type 4");
  EXPECT_SAYS(of({tensor("a", {33}, 8, 0)}, 64), "no multiple of 32");
  EXPECT_SAYS(of({tensor("a", {UINT64_MAX}, 0, 0)}, 64), "is too large");
  EXPECT_SAYS(of({tensor("a", {1ULL << 62, 1ULL << 62}, 0, 0)}, 64), "is too large");
  EXPECT_SAYS(of({tensor("a", {1ULL << 60}, 0, 0)}, 64), "was the file cut off?");
  EXPECT_SAYS(of({tensor("a", std::vector<uint64_t>(9, 1), 0, 0)}, 64), "has 9 dimensions");
}

}  // namespace
}  // namespace strata::io
