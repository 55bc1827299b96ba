#include "strata/io/weight_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/io/gguf.h"
#include "strata/io/sharded_safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_cases_test_util.h"
#include "strata/io/weight_index_inl.h"
#include "strata/memory/tiers.h"

namespace strata::io {
namespace {
namespace fs = std::filesystem;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

constexpr int64_t kRows = 1500, kColumns = 1024;  // more than one piece

Tensor zeros(const Shape& shape, DType dtype = DType::f32) {
  Tensor t = empty(TensorMeta{shape, dtype, Device::cpu(), std::nullopt});
  t.zero_();
  return t;
}

Tensor modulo(const Shape& shape) {
  Tensor t = counted(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i % 251) - 100;
  return t;
}

// A folder of two shards: a and b, then c.
std::string two_shards(const TempDir& dir) {
  const std::string folder = dir / "two";
  save_sharded(folder, {{"a", counted({2, 3})}, {"b", counted({4})}, {"c", modulo({kRows, kColumns})}}, 64);
  return folder;
}

std::string refusal(const std::string& path) {
  return message<IoError>([&] { WeightFiles files(path); });
}

TEST(WeightFiles, AFolderOfShardsIsReadAsOne) {
  const TempDir dir;
  const WeightFiles files(two_shards(dir));
  EXPECT_EQ(files.format(), WeightsFormat::safetensors);
  ASSERT_EQ(files.files().size(), 2);
  ASSERT_EQ(files.entries().size(), 3);
  EXPECT_EQ(files.entry("a").file, 0);
  EXPECT_EQ(files.entry("c").file, 1);
  EXPECT_EQ(files.metadata().at("format"), "pt");
  EXPECT_EQ(files.gguf(), nullptr);
  EXPECT_EQ(bytes_of(files.tensor("a")), bytes_of(counted({2, 3})));
  EXPECT_EQ(bytes_of(files.tensor("c")), bytes_of(modulo({kRows, kColumns})));
  EXPECT_EQ(files.size(), fs::file_size(files.files()[0]) + fs::file_size(files.files()[1]));
  EXPECT_EQ(bytes_of(WeightFiles(dir / "two/model.safetensors.index.json").tensor("b")), bytes_of(counted({4})));
  EXPECT_EQ(WeightFiles(files.files()[1]).entries().size(), 1);
  EXPECT_SAYS(message<IoError>([&] { files.tensor("d"); }), "has no tensor 'd'");
  EXPECT_FALSE(files.contains("d"));
}

TEST(WeightFiles, AFolderHasItsFirstName) {
  const TempDir dir;
  EXPECT_SAYS(refusal(dir.path()), "has no weights: model.safetensors, ");
  const std::string zip = from_hex(weight_cases("torch", "protocol4").at(0)[1]);
  GgufWriter(dir / "x.gguf", {}, {}).commit();
  EXPECT_EQ(WeightFiles(dir.path()).format(), WeightsFormat::gguf);
  write_file(dir / "y.gguf", read_file(dir / "x.gguf"));
  EXPECT_SAYS(refusal(dir.path()), "has 2 GGUF files");
  write_file(dir / "pytorch_model.bin", zip);
  EXPECT_EQ(WeightFiles(dir.path()).format(), WeightsFormat::torch);
  save_safetensors(dir / "model.safetensors", {{"a", counted({1})}});
  EXPECT_EQ(WeightFiles(dir.path()).format(), WeightsFormat::safetensors);
  write_file(dir / "misnamed.safetensors", zip);  // what a file is, is seen by its content
  EXPECT_EQ(WeightFiles(dir / "misnamed.safetensors").format(), WeightsFormat::torch);
  fs::remove(dir / "model.safetensors");
  fs::create_symlink("nowhere", dir / "model.safetensors");
  EXPECT_SAYS(refusal(dir.path()), "cannot open");
  EXPECT_SAYS(refusal(dir / "none"), "No such file");
}

// The length of a safetensors header may begin with the bytes that a pickle does.
TEST(WeightFiles, AHeaderWhoseLengthLooksLikeAPickle) {
  const TempDir dir;
  for (const uint64_t length : {0x280, 0x380, 0x480, 0x580}) {
    std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    write_file(dir / "x", number_bytes(length) + header + "\7");
    EXPECT_EQ(WeightFiles(dir / "x").tensor("x").item(), 7);
  }
}

TEST(WeightFiles, ShardsOfPyTorchsFilesAndTheirIndex) {
  const TempDir dir;
  write_file(dir / "pytorch_model-1.bin", from_hex(weight_cases("torch", "protocol4").at(0)[1]));
  write_file(dir / "pytorch_model.bin.index.json", R"({"weight_map": {"half": "pytorch_model-1.bin"}})");
  const WeightFiles files(dir.path());
  EXPECT_EQ(files.format(), WeightsFormat::torch);
  EXPECT_EQ(files.tensor("half").to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(WeightFiles, ADamagedFolderIsNamedWithLineFileAndTensor) {
  const TempDir dir;
  const std::string folder = two_shards(dir), index = folder + "/model.safetensors.index.json";
  const std::string first = folder + "/model-00001-of-00002.safetensors",
                    second = folder + "/model-00002-of-00002.safetensors";
  const std::string good = read_file(index);

  fs::rename(second, dir / "aside");
  std::string text = refusal(folder);
  EXPECT_SAYS(text, "index.json', line 8 and on, file 'model-00002-of-00002.safetensors'");
  EXPECT_SAYS(text, "No such file");

  fs::copy(first, second);
  EXPECT_SAYS(refusal(folder),
              "has tensor 'a', which line 6 of the index says is in 'model-00001-of-00002.safetensors'");
  fs::remove(second);
  save_safetensors(second, {{"other", counted({1})}});
  EXPECT_SAYS(refusal(folder), "has tensor 'other', which the index does not");
  save_safetensors(second, TensorMap{});
  EXPECT_SAYS(refusal(folder), "has no tensor 'c', which line 8 of");
  write_file(second, from_hex(weight_cases("torch", "protocol4").at(0)[1]));
  EXPECT_SAYS(refusal(folder), "is a PyTorch zip file, a safetensors file is wanted");

  fs::remove(second);
  fs::rename(dir / "aside", second);
  ASSERT_EQ(refusal(folder), "no error");
  fs::resize_file(second, fs::file_size(second) - 1);
  text = refusal(folder);
  EXPECT_SAYS(text, "line 8 and on, file 'model-00002-of-00002.safetensors'");
  EXPECT_SAYS(text, "tensor 'c'");

  write_file(index, R"({"weight_map": {}})");
  EXPECT_SAYS(refusal(folder), "its weight_map is empty");
  EXPECT_NE(good, read_file(index));
}

TEST(WeightIndex, IsCheckedLineByLine) {
  const auto lines = parse_weight_index(
      "{\"metadata\": {\"x\": [1, {\"weight_map\": 1}]},\n\"weight_map\": {\"a\": \"f\",\n"
      "\"b\": \"g\"}, \"rest\": null}",
      "i");
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].name, "a");
  EXPECT_EQ(lines[0].line, 2);
  EXPECT_EQ(lines[1].file, "g");
  EXPECT_EQ(lines[1].line, 3);
  const auto refused = [](const std::string& text) { return message<IoError>([&] { parse_weight_index(text, "i"); }); };
  for (const char* file : {"../f", "/etc/passwd", "a/b", "a\\\\b", ".", "..", ".hidden", "", "a\\u0000b"})
    EXPECT_SAYS(refused(cat("{\"weight_map\":{\n\"a\":\"", file, "\"}}")), "'i', line 2: weight_map says of tensor 'a'")
        << file;
  EXPECT_SAYS(refused("{\"weight_map\": {\"a\": \"f\",\n\"a\": \"g\"}}"), "line 2: weight_map names tensor 'a' twice");
  EXPECT_SAYS(refused(R"({"weight_map": {"a": "f"}, "weight_map": {}})"), "weight_map is given twice");
  EXPECT_SAYS(refused(R"({"weight_map": ["a"]})"), "weight_map must be an object");
  EXPECT_SAYS(refused(R"({"weight_map": {"a": {}}})"), "no file's name");
  EXPECT_SAYS(refused(R"({"weight_map": {"a": 1}})"), "no file's name");
  EXPECT_SAYS(refused(R"({"weight": {}})"), "has no weight_map");
  EXPECT_SAYS(refused(R"(["weight_map"])"), "an object is wanted");
  EXPECT_SAYS(refused(R"({"weight_map": {"a": "f")"), "not valid JSON at byte");
  EXPECT_SAYS(refused(""), "is empty");
  EXPECT_EQ(parse_weight_index(
                "{\"x\": " + std::string(100'000, '[') + std::string(100'000, ']') + ", \"weight_map\": {}}", "i")
                .size(),
            0);
}

TEST(WeightFiles, PartsAreReadIntoAnyViewOfAnyDtype) {
  const TempDir dir;
  const Tensor x = modulo({kRows, kColumns});
  save_safetensors(dir / "x.safetensors", {{"q", x},
                                           {"k", x.narrow(0, 0, 7)},
                                           {"n", counted({5}).to(DType::i64)},
                                           {"flag", zeros({3}, DType::boolean)},
                                           {"s", zeros({})}});
  const WeightFiles files(dir / "x.safetensors");
  const int64_t all = kRows + 7 + 3;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Tensor fused = zeros({all, kColumns}, dtype), transposed = zeros({kColumns, kRows}, dtype);
    Tensor wide = zeros({kRows, kColumns + 5}, dtype), heads = zeros({4, kRows / 4, kColumns}, dtype);
    const uint32_t before = fused.version();
    files.read({{"k", fused.narrow(0, kRows, 7)},
                {"q", fused.narrow(0, 0, kRows)},
                {"q", fused.narrow(0, kRows + 7, 3), 11},
                {"q", transposed.t()},
                {"q", wide.narrow(1, 2, kColumns)},
                {"q", heads.transpose(0, 1), std::nullopt, Shape{kRows / 4, 4, kColumns}}});
    EXPECT_GT(fused.version(), before);
    const Tensor want = x.to(dtype);
    EXPECT_EQ(bytes_of(fused.narrow(0, 0, kRows)), bytes_of(want));
    EXPECT_EQ(bytes_of(fused.narrow(0, kRows, 7)), bytes_of(want.narrow(0, 0, 7)));
    EXPECT_EQ(bytes_of(fused.narrow(0, kRows + 7, 3)), bytes_of(want.narrow(0, 11, 3)));
    EXPECT_EQ(bytes_of(transposed), bytes_of(want.t()));
    EXPECT_EQ(bytes_of(wide.narrow(1, 2, kColumns)), bytes_of(want));
    EXPECT_EQ(wide.narrow(1, 0, 2).abs().sum().item(), 0);
    EXPECT_EQ(bytes_of(heads), bytes_of(want.view({kRows / 4, 4, kColumns}).transpose(0, 1)));
  }
  Tensor parameter = zeros({kRows, kColumns});
  parameter.set_requires_grad();
  files.read_into("q", parameter);
  EXPECT_EQ(bytes_of(parameter), bytes_of(x));
  EXPECT_TRUE(parameter.is_leaf());
  Tensor number = zeros({}, DType::f16), n = zeros({5});
  files.read_into("s", number);
  files.read_into("n", n);
  EXPECT_EQ(bytes_of(n), bytes_of(counted({5})));
  EXPECT_EQ(files.tensor("flag").dtype(), DType::boolean);
  EXPECT_EQ(bytes_of(files.rows("q", 3, 2)), bytes_of(x.narrow(0, 3, 2)));
  EXPECT_EQ(files.rows("q", kRows, 0).shape(), (Shape{0, kColumns}));
  files.read({});
}

TEST(WeightFiles, ReadsIntoMemoryOfEveryTier) {
  const TempDir dir;
  const Tensor x = modulo({kRows, kColumns});
  save_safetensors(dir / "x.safetensors", {{"x", x}});
  const WeightFiles files(dir / "x.safetensors");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor far = empty(TensorMeta{x.shape(), dtype, Device::cpu(), std::nullopt}, memory::kDisk);
    files.read_into("x", far);
    EXPECT_EQ(bytes_of(far.to(Tier())), bytes_of(x.to(dtype)));
  }
}

TEST(WeightFiles, PartsThatMakeNoSenseAreRefusedBeforeAnythingIsRead) {
  const TempDir dir;
  save_safetensors(dir / "x.safetensors", {{"x", counted({4, 6})}});
  const WeightFiles files(dir / "x.safetensors");
  const Tensor untouched = zeros({4, 6});
  const auto read = [&](const WeightRead& part) { files.read({{"x", untouched}, part}); };
  EXPECT_SAYS(message<ShapeError>([&] { read({"x", zeros({3, 6})}); }), "is [4, 6], the target is [3, 6]");
  EXPECT_SAYS(message<ShapeError>([&] { read({"x", zeros({24})}); }), "tensor 'x' is [4, 6], the target is [24]");
  EXPECT_SAYS(message<ShapeError>([&] { read({"x", zeros({5, 5}), std::nullopt, Shape{5, 5}}); }), "cannot be viewed");
  EXPECT_THROW(read({"x", zeros({24}), std::nullopt, Shape{-24}}), ShapeError);
  EXPECT_THROW(read({"x", zeros({24}), std::nullopt, Shape{INT64_MAX, INT64_MAX}}), ShapeError);
  EXPECT_SAYS(message<IndexError>([&] { read({"x", zeros({2, 6}), 3}); }), "has 4 rows, 2 from 3 on are wanted");
  EXPECT_THROW(read({"x", zeros({2, 6}), -1}), IndexError);
  EXPECT_THROW(read({"x", zeros({2, 6}), INT64_MAX}), IndexError);
  EXPECT_THROW(files.rows("x", 0, -1), IndexError);
  EXPECT_SAYS(message<DTypeError>([&] { read({"x", zeros({4, 6}, DType::i32)}); }), "do not go into integers");
  EXPECT_THROW(read({"x", Tensor()}), ValueError);
  EXPECT_THROW(read({"x", empty(TensorMeta{{4, 6}, DType::f32, Device::meta(), std::nullopt})}), DeviceError);
  EXPECT_THROW(read({"y", zeros({4, 6})}), IoError);
  EXPECT_EQ(untouched.sum().item(), 0);
}

TEST(WeightFiles, BlocksAreReadInPiecesIntoAnyDtype) {
  const TempDir dir;
  const StoredType& q8 = *find_stored_type("Q8_0");
  const Tensor x = modulo({kRows, kColumns});
  GgufWriter out(dir / "x.gguf", {},
                 {{"x", &q8, x.shape()}, {"flat", &q8, {64}}, {"plain", &stored_type(DType::bf16), x.shape()}});
  out.write(x);
  out.write(counted({64}));
  out.write(x);
  out.commit();
  const WeightFiles files(dir / "x.gguf");
  const Tensor got = files.tensor("x");
  EXPECT_EQ(got.dtype(), DType::f32);
  const std::vector<double> a = got.to_vector<double>(), b = x.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.7) << i;
  Tensor half = zeros({kColumns, kRows}, DType::bf16);
  files.read({{"x", half.t()}, {"plain", got}});
  EXPECT_EQ(bytes_of(got), bytes_of(x));  // small integers are exact in bf16
  EXPECT_EQ(bytes_of(half.t()), bytes_of(files.tensor("x").to(DType::bf16)));
  EXPECT_EQ(bytes_of(files.rows("x", 1000, 400)), bytes_of(files.tensor("x").narrow(0, 1000, 400)));
  EXPECT_EQ(bytes_of(files.rows("flat", 32, 32)), bytes_of(files.tensor("flat").narrow(0, 32, 32)));
  EXPECT_SAYS(message<IndexError>([&] { files.rows("flat", 16, 32); }), "by blocks of 32");
  EXPECT_THROW(files.read({{"flat", zeros({4, 16}), std::nullopt, Shape{4, 16}}}), ShapeError);
  EXPECT_EQ(files.bytes("x").numel(), kRows * kColumns / 32 * 34);
}

TEST(WeightFiles, TypesWithoutADtypeAreListedAndReadAsBytes) {
  const TempDir dir;
  std::vector<StoredItem> items;
  for (const StoredType& t : stored_types())
    if (t.safetensors) items.push_back({std::string(t.name), &t, {4, 2}});
  ASSERT_EQ(items.size(), 22);
  ShardedSafetensorsWriter out(dir.path(), items, 20);
  std::map<std::string, std::string> want;
  for (const std::string& name : out.order()) {
    want[name] = std::string(*stored_bytes(*find_stored_type(name), {4, 2}), '\1');
    out.write_bytes(std::as_bytes(std::span(want[name].data(), want[name].size())));
  }
  out.commit();
  const WeightFiles files(dir.path());
  for (const WeightEntry& e : files.entries()) {
    EXPECT_EQ(e.type->name, e.name);
    EXPECT_EQ(bytes_of(files.bytes(e.name)), want[e.name]);
    if (e.type->dtype) {
      EXPECT_EQ(files.tensor(e.name).dtype(), *e.type->dtype);
    } else {
      EXPECT_SAYS(message<DTypeError>([&] { files.tensor(e.name); }), cat("is ", e.name, ", which is not decoded"));
    }
  }
  const std::string header = R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})";
  write_file(dir / "odd", number_bytes<uint64_t>(header.size()) + header + "1");
  EXPECT_SAYS(refusal(dir / "odd"), "shape [3] of F4 is no whole number of bytes");
  const std::string unknown = R"({"x":{"dtype":"F5","shape":[3],"data_offsets":[0,1]}})";
  write_file(dir / "odd", number_bytes<uint64_t>(unknown.size()) + unknown + "1");
  EXPECT_SAYS(refusal(dir / "odd"), "dtype 'F5' is not one of the format (F64 F32");
}

TEST(WeightFiles, AFileThatIsCutWhileItIsReadIsAnError) {
  const TempDir dir;
  const WeightFiles files(two_shards(dir));
  fs::resize_file(files.files()[1], 4096);
  EXPECT_SAYS(message<IoError>([&] { files.tensor("c"); }), "it was cut while it was in use");
  Tensor half = zeros({kRows, kColumns}, DType::f16);
  EXPECT_SAYS(message<IoError>([&] { files.read_into("c", half); }), "it was cut while it was in use");
  EXPECT_EQ(bytes_of(files.tensor("a")), bytes_of(counted({2, 3})));
}

TEST(WeightFiles, ABooleanThatIsNoneIsRefused) {
  const TempDir dir;
  const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  write_file(dir / "x", number_bytes<uint64_t>(header.size()) + header + std::string("\0\1\2", 3));
  const WeightFiles files(dir / "x");
  EXPECT_SAYS(message<IoError>([&] { files.tensor("m"); }), "tensor 'm' has a byte that is neither 0 nor 1");
}

// Numbers of its own for a tensor of this name.
Tensor shifted(const std::string& name) {
  return counted({8, 2}).narrow(0, name[0] - 'a', 3).contiguous();
}

// Part `which` of `of`, counted from 1, as llama.cpp's gguf-split writes it: the model's facts are in the first.
void write_part(const std::string& path, int which, int of, const std::vector<std::string>& tensors, int all) {
  GgufMetadata m;
  if (which == 1) m.set("general.architecture", GgufValue::of("llama"));
  m.set("split.no", GgufValue::of(static_cast<uint16_t>(which - 1)));
  m.set("split.count", GgufValue::of(static_cast<uint16_t>(of)));
  m.set("split.tensors.count", GgufValue::of(static_cast<int32_t>(all)));
  std::vector<StoredItem> items;
  for (const std::string& name : tensors) items.push_back({name, &stored_type(DType::f32), {3, 2}});
  GgufWriter out(path, m, items);
  for (const std::string& name : tensors) out.write(shifted(name));
  out.commit();
}

TEST(WeightFiles, AGgufModelInPartsIsReadAsOne) {
  const TempDir dir;
  const auto part = [&](int i) { return dir / ("x-0000" + std::to_string(i) + "-of-00003.gguf"); };
  EXPECT_EQ(gguf_parts(part(2)), (std::vector{part(1), part(2), part(3)}));
  for (const char* other : {"x.gguf", "-00001-of-00003.gguf", "x-00004-of-00003.gguf", "x-0001a-of-00003.gguf",
                            "x-00000-of-00003.gguf", "x_00001-of-00003.gguf", "x-00001-to-00003.gguf", "x-00001-of-00003"})
    EXPECT_EQ(gguf_parts(other), std::vector<std::string>{other});

  const auto write = [&] {
    write_part(part(1), 1, 3, {}, 3);  // of facts alone
    write_part(part(2), 2, 3, {"b", "a"}, 3);
    write_part(part(3), 3, 3, {"c"}, 3);
  };
  write();
  for (const std::string& named : {part(1), part(2), part(3), dir.path()}) {
    SCOPED_TRACE(named);
    EXPECT_EQ(find_gguf(named), part(1));
    const WeightFiles files(named);
    EXPECT_EQ(files.files(), gguf_parts(part(1)));
    EXPECT_EQ(files.gguf()->text("general.architecture"), "llama");
    ASSERT_EQ(files.entries().size(), 3U);
    for (const std::string name : {"a", "b", "c"})
      EXPECT_EQ(bytes_of(files.tensor(name)), bytes_of(shifted(name))) << name;
    EXPECT_EQ(files.entry("c").file, 2U);
    EXPECT_EQ(files.bytes("b").numel(), 24);
  }

  write_file(dir / ".gguf", "an ending without a name");  // is no model to either
  EXPECT_EQ(find_gguf(dir.path()), part(1));
  EXPECT_EQ(WeightFiles(dir.path()).files(), gguf_parts(part(1)));
  std::filesystem::remove(dir / ".gguf");

  std::filesystem::remove(part(2));
  EXPECT_SAYS(refusal(part(1)), "00002-of-00003.gguf': is missing, one of 3 parts");
  write_part(part(2), 3, 3, {"b", "a"}, 3);
  EXPECT_SAYS(refusal(part(1)), "00002-of-00003.gguf': says that it is part 3 of 3, part 2 of 3 is wanted");
  write_part(part(2), 2, 3, {"b", "c"}, 3);
  EXPECT_SAYS(refusal(dir.path()), "00003-of-00003.gguf': tensor 'c' is in an earlier part, too");
  write_part(part(2), 2, 3, {"b"}, 3);
  EXPECT_SAYS(refusal(part(3)), "says that the parts have 3 tensors, they have 2");
  write();
  write_file(part(3), "not a model");
  EXPECT_SAYS(refusal(part(1)), "00003-of-00003.gguf': is no GGUF file");
  std::filesystem::remove(part(1));
  EXPECT_SAYS(refusal(dir.path()), "00001-of-00003.gguf");
  const TempDir other;
  write_part(other / "y.gguf", 1, 3, {}, 3);
  EXPECT_SAYS(refusal(other / "y.gguf"), "is one of 3 parts of a GGUF model, and its name does not end in");
}

TEST(WeightFiles, ManyThreadsReadAtATime) {
  const TempDir dir;
  const WeightFiles files(two_shards(dir));
  const std::string want = bytes_of(modulo({kRows, kColumns}).to(DType::bf16));
  std::vector<int> right(4);
  {
    std::vector<std::jthread> threads;
    for (int& r : right)
      threads.emplace_back([&] {
        Tensor t = zeros({kRows, kColumns}, DType::bf16);
        files.read_into("c", t);
        r = bytes_of(t) == want && bytes_of(files.tensor("a")) == bytes_of(counted({2, 3}));
      });
  }
  EXPECT_EQ(right, (std::vector<int>{1, 1, 1, 1}));
}

}  // namespace
}  // namespace strata::io
