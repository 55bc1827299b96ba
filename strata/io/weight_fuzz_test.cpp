// The fuzz targets of weight files over their corpora, and mutations of those.

#include <gtest/gtest.h>

#include "strata/core/fuzz_test_util.h"
#include "strata/io/bitmap.h"
#include "strata/io/safetensors.h"
#include "strata/io/sharded_safetensors.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_cases_test_util.h"
#include "strata/io/zip_inl.h"

#define LLVMFuzzerTestOneInput fuzz_gguf
#include "strata/io/gguf_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_torch_file
#include "strata/io/torch_file_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_torch_pickle
#include "strata/io/torch_pickle_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_weight_index
#include "strata/io/weight_index_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "strata/io/safetensors_fuzz.cpp"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_bitmap
#include "strata/io/bitmap_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace strata::io {
namespace {

// Files of bytes, whose numbers become edges.
void run(fuzz::Target target, const std::vector<std::string>& corpus) {
  const auto feed = [&](const std::string& s) { return target(reinterpret_cast<const uint8_t*>(s.data()), s.size()); };
  ASSERT_FALSE(corpus.empty());
  for (const std::string& file : corpus) EXPECT_EQ(feed(file), 0);
  for (fuzz::Rounds round(2000); round.next();)
    ASSERT_EQ(feed(mutated(corpus[round.below(corpus.size())], round.random)), 0) << round.number();
}

std::vector<std::string> torch_files() {
  std::vector<std::string> files;
  for (const auto& c : weight_cases("torch")) files.push_back(from_hex(c[1]));
  return files;
}

TEST(WeightFuzz, Gguf) {
  run(fuzz_gguf, {from_hex(weight_cases("gguf", "all").at(0)[1])});
}

TEST(WeightFuzz, TorchFile) {
  run(fuzz_torch_file, torch_files());
}

TEST(WeightFuzz, TorchPickle) {
  std::vector<std::string> pickles;
  for (const std::string& file : torch_files()) {
    const Source source(std::as_bytes(std::span(file.data(), file.size())), "x");
    const ZipFile zip(source);
    for (const auto& [name, entry] : zip.entries())
      if (name.ends_with(".pkl")) pickles.push_back(zip.read(name, 1 << 20));
  }
  run(fuzz_torch_pickle, pickles);
}

TEST(WeightFuzz, Safetensors) {
  const TempDir dir;
  save_safetensors(dir / "x", {{"a", counted({2, 3})}, {"b.c", counted({0})}, {"d", counted({4}).to(DType::bf16)}},
                   {{"format", "pt"}});
  run(fuzz_safetensors, {read_file(dir / "x")});
}

TEST(WeightFuzz, Bitmap) {
  Tensor x = counted({300});
  x.narrow(0, 40, 200).fill_(0);
  std::vector<std::string> corpus;
  for (const Tensor& t : {x, counted({3, 4})}) {
    const std::vector<std::byte> packed = pack_bitmap(t);
    corpus.emplace_back(reinterpret_cast<const char*>(packed.data()), packed.size());
  }
  run(fuzz_bitmap, corpus);
}

TEST(WeightFuzz, Index) {
  const TempDir dir;
  save_sharded(dir / "x", {{"a", counted({4})}, {"b.c", counted({4})}, {"d", counted({4})}}, 20);
  run(fuzz_weight_index,
      {read_file(dir / "x/model.safetensors.index.json"), R"({"weight_map":{"a":"f"},"x":[1,{"y":2.5}]})"});
}

}  // namespace
}  // namespace strata::io
