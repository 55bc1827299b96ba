#include "strata/io/torch_file_inl.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/io/temp_dir.h"
#include "strata/io/torch_pickle_inl.h"
#include "strata/io/weight_cases_test_util.h"
#include "strata/io/zip_inl.h"

namespace strata::io {
namespace {

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::span<const std::byte> span_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string text(const std::string& s) {
  return "X" + number_bytes(static_cast<uint32_t>(s.size())) + s;
}

const std::string kStorage = "ctorch\nFloatStorage\n", kV2 = "ctorch._utils\n_rebuild_tensor_v2\n",
                  kDict = "ccollections\nOrderedDict\n)R";

std::string integer(int64_t n) {
  return "\x8a\x08" + number_bytes(n);
}

std::string tuple(const std::vector<int64_t>& numbers) {
  std::string s = "(";
  for (const int64_t n : numbers) s += integer(n);
  return s + "t";
}

// A storage of `n` floats under a key.
std::string storage(const std::string& key, int64_t n, const std::string& type = kStorage) {
  return "(" + text("storage") + type + text(key) + text("cpu") + integer(n) + "tQ";
}

std::string tensor(const std::string& from, int64_t first, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return kV2 + "(" + from + integer(first) + tuple(shape) + tuple(strides) + "\x89" + kDict + "tR";
}

std::string dict(const std::string& items) {
  return "\x80\x02}(" + items + "u.";
}

// A file of that pickle with one storage, '0', of four floats.
std::string file_of(const std::string& pickle) {
  ZipBuilder zip;
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/byteorder", "little");
  zip.add("archive/data/0", bytes_of(counted({4})));
  return zip.finish();
}

std::string refusal(const std::string& file) {
  return message<IoError>([&] { read_torch_file(Source(span_of(file), "x.bin")); });
}

TEST(Zip, ReadsBothKindsOfEndAndAComment) {
  ZipBuilder zip;
  zip.add("a", "one");
  zip.add("b/c", "");
  zip.add("packed", "x", 8);
  for (const bool wide : {false, true}) {
    for (const std::string& comment : {std::string(), std::string(3000, 'c')}) {
      const std::string bytes = zip.finish(wide, comment);
      const Source source(span_of(bytes), "z");
      const ZipFile file(source);
      EXPECT_EQ(file.entries().size(), 3);
      EXPECT_EQ(file.read("a", 10), "one");
      EXPECT_EQ(file.place("b/c").size, 0);
      EXPECT_SAYS(message<IoError>([&] { file.read("a", 2); }), "entry 'a' has 3 bytes, at most 2");
      EXPECT_SAYS(message<IoError>([&] { file.read("packed", 10); }), "entry 'packed' is compressed");
      EXPECT_SAYS(message<IoError>([&] { file.read("none", 10); }), "has no entry 'none'");
    }
  }
}

TEST(Zip, RefusesWhatDoesNotAgree) {
  ZipBuilder zip;
  zip.add("a", "one");
  zip.add("b", "two");
  const std::string good = zip.finish(), wide = zip.finish(true);
  const auto refused = [](const std::string& bytes, const char* entry = nullptr) {
    return message<IoError>([&] {
      const Source source(span_of(bytes), "z");
      const ZipFile file(source);
      if (entry) file.read(entry, 100);
    });
  };
  ASSERT_EQ(refused(good, "b"), "no error");
  EXPECT_SAYS(refused(good.substr(0, good.size() - 1)), "was the file cut off?");
  EXPECT_SAYS(refused("PK"), "has no list of its entries");
  const auto changed = [](std::string bytes, size_t at, const std::string& to) {
    return bytes.replace(at, to.size(), to);
  };
  const size_t end = good.size() - 22, list = good.find("PK\1\2");
  EXPECT_SAYS(refused(changed(good, end + 4, "\1")), "several volumes");
  EXPECT_SAYS(refused(changed(good, end + 16, "\xff\xff")), "is not in the file");
  EXPECT_SAYS(refused(changed(good, end + 8, std::string("\x09\0\x09\0", 4))), "9 entries are more than");
  EXPECT_SAYS(refused(changed(good, list, "x")), "an entry's record is wanted");
  EXPECT_SAYS(refused(changed(good, list + 42, "\xf0\xff")), "is said to be at byte");
  EXPECT_SAYS(refused(changed(good, list + 20, "\x70"), "a"), "are not in the file before its list");
  EXPECT_SAYS(refused(changed(good, 30, "x"), "a"), "has another name");
  EXPECT_SAYS(refused(changed(good, 0, "x"), "a"), "the header of entry 'a' is wanted");
  EXPECT_SAYS(refused(changed(good, list + 8, "\1"), "a"), "is encrypted");
  const size_t wide_end = wide.find(std::string("PK\6\6"));
  EXPECT_SAYS(refused(changed(wide, wide_end, "x")), "the zip64 end record is not there");
  EXPECT_SAYS(refused(changed(wide, wide.find("PK\6\7") + 8, "\xff\xff\xff\xff")), "the zip64 locator leads to byte");
  ZipBuilder twice;
  twice.add("a", "1");
  twice.add("a", "2");
  EXPECT_SAYS(refused(twice.finish()), "entry 'a' is given twice");
}

TEST(TorchFile, ReadsWhatPyTorchSaves) {
  const TempDir dir;
  for (const char* name : {"protocol2", "protocol4"}) {
    write_file(dir / "x.bin", from_hex(weight_cases("torch", name).at(0)[1]));
    const WeightFiles files(dir / "x.bin");
    EXPECT_EQ(files.format(), WeightsFormat::torch);
    const auto tensors = weight_cases("tensor", name);
    EXPECT_EQ(files.entries().size(), tensors.size());
    for (const auto& t : tensors) {
      const WeightEntry& e = files.entry(t[1]);
      EXPECT_EQ(e.type->torch, t[2]);
      const std::string shape = cat(e.shape);
      std::string wanted = "[";
      for (const char c : t[3] == "-" ? "" : t[3]) wanted += c == ',' ? std::string(", ") : std::string(1, c);
      EXPECT_EQ(shape, wanted + "]");
      EXPECT_EQ(bytes_of(e.type->dtype ? files.tensor(t[1]) : files.bytes(t[1])), from_hex(t[4])) << t[1];
    }
  }
}

TEST(TorchFile, ViewsAreReadByRowsAndSharedStoragesTwice) {
  const TempDir dir;
  write_file(dir / "x.bin", from_hex(weight_cases("torch", "protocol2").at(0)[1]));
  const WeightFiles files(dir / "x.bin");
  ASSERT_TRUE(files.entry("transposed").strides.has_value());
  EXPECT_EQ(bytes_of(files.rows("transposed", 1, 2)), bytes_of(files.tensor("transposed").narrow(0, 1, 2)));
  EXPECT_THROW(files.bytes("transposed"), IoError);
  Tensor all = counted({4, 3}), tied = counted({4, 3}), rows = counted({2, 3});
  files.read({{"rows", rows}, {"tied", tied}, {"all", all}});
  EXPECT_EQ(bytes_of(all), bytes_of(tied));
  EXPECT_EQ(bytes_of(rows), bytes_of(all.narrow(0, 1, 2)));
}

TEST(TorchFile, TreesOfDictsAndListsGiveNames) {
  const std::string t = tensor(storage("0", 4), 0, {2, 2}, {2, 1});
  const std::string inner = "}(" + text("w") + t + "K\7" + t + text("no") + "Nu";
  const std::string file = file_of(
      dict(text("model") + inner + text("list") + "](" + t + "K\1e" + text("step") + "G" + std::string(8, '\0')));
  const auto entries = read_torch_file(Source(span_of(file), "x"));
  std::vector<std::string> names;
  for (const WeightEntry& e : entries) names.push_back(e.name);
  EXPECT_EQ(names, (std::vector<std::string>{"list.0", "model.7", "model.w"}));
}

TEST(TorchFile, NothingIsRun) {
  const auto wants = [](const std::string& global) { return refusal(file_of(dict(text("a") + global))); };
  EXPECT_SAYS(wants("cposix\nsystem\n(" + text("touch /tmp/x") + "tR"), "wants 'posix.system', which is not run");
  EXPECT_SAYS(wants("\x8c\x08"
                    "builtins\x8c\4eval\x93"),
              "wants 'builtins.eval'");
  EXPECT_SAYS(wants("ctorch\nload\n"), "wants 'torch.load'");
  EXPECT_SAYS(wants("ctorch._utils\n_rebuild_sparse_tensor\n"), "wants 'torch._utils._rebuild_sparse_tensor'");
  EXPECT_SAYS(wants("(iposix\nsystem\n"), "opcode 105");
  EXPECT_SAYS(wants("(cposix\nsystem\no"), "wants 'posix.system'");
  EXPECT_SAYS(wants("ccollections\nOrderedDict\n)\x81"), "opcode 129");
  EXPECT_SAYS(wants(kStorage + ")R"), "calls a type");
  EXPECT_SAYS(wants(text("f") + ")R"), "what is called is a text, not a global");
  EXPECT_SAYS(wants(integer(1) + "}b"), "what attributes are set of is an integer, not a dict");
}

TEST(TorchFile, RefusesViewsThatAreNotTheirStorages) {
  const auto view = [](int64_t first, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    return refusal(file_of(dict(text("a") + tensor(storage("0", 4), first, shape, strides))));
  };
  EXPECT_EQ(view(1, {3}, {1}), "no error");
  EXPECT_EQ(view(0, {0, 9}, {9, 1}), "no error");
  EXPECT_EQ(view(0, {}, {}), "no error");
  EXPECT_SAYS(view(2, {3}, {1}), "leaves its storage of 4 elements");
  EXPECT_SAYS(view(-1, {3}, {1}), "leaves its storage");
  EXPECT_SAYS(view(4, {}, {}), "leaves its storage");
  EXPECT_SAYS(view(0, {2}, {INT64_MAX}), "leaves its storage");
  EXPECT_SAYS(view(0, {INT64_MAX, 3}, {0, 0}), "leaves its storage");
  EXPECT_SAYS(view(0, {5}, {0}), "shows elements more than once");
  EXPECT_SAYS(view(0, {-2}, {1}), "has a negative number");
  EXPECT_SAYS(view(0, {2}, {-1}), "has a negative number");
  EXPECT_SAYS(view(0, {2}, {1, 1}), "has 1 sizes and 2 strides");
  EXPECT_SAYS(view(0, std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1)), "has 9 dimensions");
  const auto stored = [](const std::string& s) { return refusal(file_of(dict(text("a") + tensor(s, 0, {1}, {1})))); };
  EXPECT_SAYS(stored(storage("0", 5)), "said to have 5 elements of 4 bytes, its entry has 16 bytes");
  EXPECT_SAYS(stored(storage("0", -4)), "said to have -4");
  EXPECT_SAYS(stored(storage("0", INT64_MAX / 2)), "said to have");
  EXPECT_SAYS(stored(storage("1", 4)), "has no entry 'archive/data/1'");
  EXPECT_SAYS(stored(storage("../data.pkl", 4)), "has no entry 'archive/data/../data.pkl'");
  EXPECT_SAYS(stored(storage("0", 4, "ccollections\nOrderedDict\n")), "a storage's type is a function");
  EXPECT_SAYS(stored(storage("0", 2, "ctorch\nDoubleStorage\n") + "0" + storage("0", 4)), "has two types");
  EXPECT_SAYS(stored(storage("0", 16, "ctorch.storage\nUntypedStorage\n")), "a tensor's dtype is no dtype");
}

TEST(TorchFile, RefusesBrokenPickles) {
  const auto pickle = [](const std::string& p) { return refusal(file_of(p)); };
  EXPECT_SAYS(pickle(""), "ends inside of a value");
  EXPECT_SAYS(pickle("\x80\x06."), "protocol 6");
  EXPECT_SAYS(pickle("."), "takes a value where there is none");
  EXPECT_SAYS(pickle("(."), "takes a value where there is none");
  EXPECT_SAYS(pickle("t."), "takes values where there is no mark");
  EXPECT_SAYS(pickle("X\xff\xff\xff\xff"
                     "a"),
              "ends inside of a value");
  EXPECT_SAYS(pickle("ctorch"), "ends inside of a line");
  EXPECT_SAYS(pickle("h\3."), "recalls value 3");
  EXPECT_SAYS(pickle("}K\1a."), "what is appended to is a dict, not a list");
  EXPECT_SAYS(pickle("}(K\1u."), "a key without a value");
  EXPECT_SAYS(pickle("\x8a\x09"
                     "123456789."),
              "an integer of 9 bytes");
  EXPECT_SAYS(pickle("]."), "holds no dict of tensors");
  EXPECT_SAYS(pickle("}(NK\1u."), "has a key that is neither a text nor an integer");
  EXPECT_SAYS(pickle("K\1Q."), "a persistent id is an integer, not a tuple");
  EXPECT_SAYS(pickle(")Q."), "a persistent id is no storage");
  // a dict that holds itself
  EXPECT_SAYS(pickle(std::string("}q\0", 3) + text("a") + std::string("h\0s.", 4)), "nests more than 32 deep");
  // lists of the same lists, 30 deep: 10 to the 30 values
  std::string laughs(
      "]q\0"
      "0",
      4);
  for (char i = 1; i < 30; ++i) {
    laughs += "](";
    for (int k = 0; k < 10; ++k) laughs += std::string("h") + static_cast<char>(i - 1);
    laughs += std::string("eq") + i + "0";
  }
  EXPECT_SAYS(pickle("}" + text("a") + laughs + "h\x1ds."), "hold too many values");
  const std::string t = tensor(storage("0", 4), 0, {1}, {1});
  EXPECT_SAYS(pickle(dict(text("a") + t + text("a") + t)), "tensor 'a' is given twice");
  EXPECT_SAYS(pickle(dict(text("a.b") + t + text("a") + "}" + text("b") + t + "s")), "tensor 'a.b' is given twice");
  EXPECT_SAYS(pickle(dict(text("") + t)), "a tensor has no name");
  EXPECT_SAYS(pickle(std::string(kMaxPickleStack + 1, 'N')), "values on the stack");
}

TEST(TorchFile, RefusesOtherArchives) {
  ZipBuilder script;
  script.add("m/data.pkl", "}.");
  script.add("m/constants.pkl", "}.");
  EXPECT_SAYS(refusal(script.finish()), "is a TorchScript archive");
  ZipBuilder big;
  big.add("m/data.pkl", "}.");
  big.add("m/byteorder", "big");
  EXPECT_SAYS(refusal(big.finish()), "byte order 'big', little is read");
  ZipBuilder other;
  other.add("a.npy", "x");
  EXPECT_SAYS(refusal(other.finish()), "has no data.pkl");
  ZipBuilder two;
  two.add("a/data.pkl", "}.");
  two.add("b/data.pkl", "}.");
  EXPECT_SAYS(refusal(two.finish()), "has several data.pkl");
  const TempDir dir;
  write_file(dir / "old.bin",
             "\x80\x02\x8a\nl\xfc\x9c"
             "F\xf9 j\xa8P\x19.");
  EXPECT_SAYS(message<IoError>([&] { WeightFiles(dir / "old.bin"); }), "PyTorch's format from before 1.6");
}

}  // namespace
}  // namespace strata::io
