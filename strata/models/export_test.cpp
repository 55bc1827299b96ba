// Models of every family given back as folders, and loaded from them again.

#include "strata/models/export.h"

#include <filesystem>
#include <map>

#include "strata/core/error_test_util.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/model_test_util.h"
#include "strata/models/pretrained_test_util.h"

namespace strata {
namespace {
namespace fs = std::filesystem;

// A model of a sample with weights as they are drawn.
Pretrained make(const Family& family, std::string_view config) {
  Pretrained p = make_module(read_spec(family, ConfigReader(config, "config.json")));
  p.family = &family;
  p.config = config;
  return p;
}

// Bytes of every tensor of a folder, by name.
std::map<std::string, std::vector<uint8_t>> tensors_of(const std::string& folder) {
  const io::WeightFiles files(folder);
  std::map<std::string, std::vector<uint8_t>> all;
  for (const io::WeightEntry& e : files.entries())
    all[cat(e.name, ' ', e.type->name, ' ', e.shape)] = bits(files.bytes(e.name));
  return all;
}

TEST(Export, AModelOfEveryFamilyComesBack) {
  int models = 0;
  for (const Family* family : families()) {
    for (const FamilySample& sample : family->samples) {
      SCOPED_TRACE(cat(family->name, '-', sample.name));
      const io::TempDir dir;
      const Pretrained made = make(*family, sample.config);
      save_pretrained(made.module(), *family, made.spec, dir / "a", {.max_shard_bytes = 20'000});
      const Pretrained again = load_pretrained(dir / "a");
      EXPECT_EQ(again.family, family);
      EXPECT_TRUE(again.spec == made.spec);
      std::map<std::string, Tensor> want;
      for (const auto& [name, p] : made.module().named_parameters()) want.emplace(name, p);
      for (const auto& [name, p] : again.module().named_parameters()) EXPECT_EQ(bits(p), bits(want.at(name))) << name;
      save_pretrained(again, dir / "b");
      EXPECT_EQ(tensors_of(dir / "b"), tensors_of(dir / "a"));
      EXPECT_EQ(io::read_file(dir / "b/config.json"), io::read_file(dir / "a/config.json"));
      ++models;
    }
  }
  EXPECT_GE(models, 30);
}

// What scripts/make-models has written with transformers: tensor by tensor the same bytes, those that repeat others and
// tables that the library makes again aside.
TEST(Export, AFolderOfTransformersIsTheSameTensorByTensor) {
  const fs::path root = models_folder();
  int folders = 0;
  for (const Family* family : families()) {
    for (const FamilySample& sample : family->samples) {
      const std::string folder = (root / cat(family->name, '-', sample.name)).string();
      if (!fs::exists(folder + "/config.json")) continue;
      SCOPED_TRACE(folder);
      const io::TempDir dir;
      save_pretrained(load_pretrained(folder), dir / "again");
      const io::WeightFiles before(folder), after(dir / "again");
      for (const WeightRow& row : family->weights(read_pretrained_spec(folder).second)) {
        if (row.repeats || row.name.empty()) continue;
        const std::string name = before.contains(row.name) ? row.name : row.other_name;
        if (!before.contains(name)) continue;  // a file without its head's prefix
        EXPECT_EQ(before.entry(name).type, after.entry(row.name).type) << name;
        EXPECT_EQ(bits(before.bytes(name)), bits(after.bytes(row.name))) << name;
      }
      ++folders;
    }
  }
  if (folders == 0) GTEST_SKIP() << root << " has no models: scripts/make-models writes them";
}

TEST(Export, DtypeConfigAndCompanions) {
  const io::TempDir dir;
  const Family& family = family_named("llama");
  const Pretrained made = make(family, family.samples.front().config);
  save_pretrained(made.module(), family, made.spec, dir / "a", {.dtype = DType::bf16});
  EXPECT_NE(io::read_file(dir / "a/config.json").find("\"torch_dtype\": \"bfloat16\""), std::string::npos);
  EXPECT_EQ(load_pretrained(dir / "a").model->token_embedding.weight.dtype(), DType::bf16);

  io::write_file(dir / "a/tokenizer.json", "{}");
  io::write_file(dir / "a/secret.txt", "x");
  io::make_directories(dir / "a/1_Pooling");
  io::write_file(dir / "a/1_Pooling/config.json", "{\"p\": 1}");
  save_pretrained(load_pretrained(dir / "a"), dir / "b");
  EXPECT_EQ(io::read_file(dir / "b/tokenizer.json"), "{}");
  EXPECT_EQ(io::read_file(dir / "b/1_Pooling/config.json"), "{\"p\": 1}");
  EXPECT_FALSE(fs::exists(dir / "b/secret.txt"));
  save_pretrained(load_pretrained(dir / "b"), dir / "c", {.dtype = DType::f32});
  EXPECT_EQ(load_pretrained(dir / "c").model->token_embedding.weight.dtype(), DType::f32);
}

TEST(Export, RefusesWhatIsNotTheModel) {
  const io::TempDir dir;
  const Family& family = family_named("llama");
  const Pretrained made = make(family, family.samples.front().config), other = make(family, family.samples[1].config);
  EXPECT_THROW(save_pretrained(made.module(), family, other.spec, dir / "a"), Error);
  const std::string text = message<ValueError>(
      [&] { save_pretrained(made.module(), family, made.spec, dir / "a", {.config = other.config}); });
  EXPECT_NE(text.find("says another model"), std::string::npos) << text;
  EXPECT_THROW(save_pretrained(Pretrained(), dir / "a"), ValueError);
  EXPECT_FALSE(fs::exists(dir / "a"));
  EXPECT_TRUE(fs::is_empty(dir.path()));  // nothing half-written beside it
  io::write_file(dir / "a", "x");
  EXPECT_THROW(save_pretrained(made, dir / "a"), IoError);
}

}  // namespace
}  // namespace strata
