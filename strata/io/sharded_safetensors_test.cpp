#include "strata/io/sharded_safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/error_test_util.h"
#include "strata/io/folder_writer.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_cases_test_util.h"
#include "strata/io/weight_files.h"

namespace strata::io {
namespace {
namespace fs = std::filesystem;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(FolderWriter, AFolderAppearsWholeOrNotAtAll) {
  const TempDir dir;
  {
    FolderWriter folder(dir / "deep/model/");
    write_file(folder.path() + "/x", "x");
    EXPECT_FALSE(fs::exists(dir / "deep/model"));
  }
  EXPECT_TRUE(names_in(dir / "deep").empty());
  FolderWriter folder(dir / "deep/model");
  write_file(folder.path() + "/x", "x");
  folder.commit();
  EXPECT_EQ(names_in(dir / "deep"), std::vector<std::string>{"model"});
  EXPECT_EQ(read_file(dir / "deep/model/x"), "x");
}

TEST(FolderWriter, WhatIsThereIsRefusedAndStays) {
  const TempDir dir;
  write_file(dir / "file", "x");
  fs::create_directory(dir / "folder");
  fs::create_symlink("nowhere", dir / "link");
  for (const char* name : {"file", "folder", "link"})
    EXPECT_SAYS(message<IoError>([&] { FolderWriter folder(dir / name); }), "is there already") << name;
  FolderWriter folder(dir / "late");
  fs::create_directory(dir / "late");
  EXPECT_SAYS(message<IoError>([&] { folder.commit(); }), "is there already");
  EXPECT_THROW(FolderWriter(dir.path() + "/.."), IoError);
  EXPECT_THROW(FolderWriter("/"), IoError);
}

TEST(FolderWriter, WhatAKilledWriterLeftGoesAndALivingOnesStays) {
  const TempDir dir;
  fs::create_directory(dir / ".tmp-model-999999-1");
  write_file(dir / ".tmp-model-999999-1/x", "x");
  fs::create_directory(dir / ".tmp-other-1-1");
  FolderWriter living(dir / "model");
  const FolderWriter second(dir / "model");
  EXPECT_FALSE(fs::exists(dir / ".tmp-model-999999-1"));
  EXPECT_TRUE(fs::exists(dir / ".tmp-other-1-1"));
  EXPECT_TRUE(fs::exists(living.path()));
  living.commit();
  EXPECT_TRUE(fs::exists(second.path()));
}

TEST(ShardedSafetensors, AreCutInOrderAndHaveAnIndex) {
  const TempDir dir;
  const StoredType& f32 = stored_type(DType::f32);
  ShardedSafetensorsWriter out(dir.path(),
                               {{"e", &f32, {4}}, {"a", &f32, {4}}, {"big", &f32, {20}}, {"z", &f32, {0, 3}}}, 40,
                               {{"format", "pt"}});
  ASSERT_EQ(out.order(), (std::vector<std::string>{"a", "e", "big", "z"}));
  for (const std::string& name : out.order())
    out.write(name == "big" ? counted({20}) : name == "z" ? counted({0, 3}) : counted({4}));
  EXPECT_THROW(out.write(counted({1})), ValueError);
  EXPECT_EQ(out.commit(),
            (std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  const auto index = nlohmann::json::parse(read_file(dir / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 112);
  EXPECT_EQ(index["weight_map"]["big"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["weight_map"]["e"], "model-00001-of-00003.safetensors");
  EXPECT_EQ(bytes_of(WeightFiles(dir.path()).tensor("big")), bytes_of(counted({20})));
}

TEST(ShardedSafetensors, OneShardHasNoIndexAndNoneIsAFileToo) {
  const TempDir dir;
  save_sharded(dir / "one", {{"a", counted({4}).to(DType::bf16)}});
  EXPECT_EQ(names_in(dir / "one"), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(WeightFiles(dir / "one").metadata(), (Metadata{{"format", "pt"}}));
  save_sharded(dir / "none", {});
  EXPECT_TRUE(WeightFiles(dir / "none").entries().empty());
  EXPECT_THROW(save_sharded(dir / "one", {}), IoError);
}

TEST(ShardedSafetensors, AnUntouchedFolderIsTheSameTensorByTensor) {
  const TempDir dir;
  TensorMap tensors;
  for (const DType dtype : kAllDTypes)
    for (int64_t n : {0, 1, 7}) tensors[cat(name_of(dtype), ".", n)] = counted({n, 3}).to(dtype);
  save_sharded(dir / "a", tensors, 100);
  const WeightFiles a(dir / "a");
  std::vector<StoredItem> items;
  for (const WeightEntry& e : a.entries()) items.push_back({e.name, e.type, e.shape});
  FolderWriter folder(dir / "b");
  ShardedSafetensorsWriter out(folder.path(), items, 70, a.metadata());
  for (const std::string& name : out.order()) {
    const std::string bytes = bytes_of(a.bytes(name));
    out.write_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())));
  }
  out.commit();
  folder.commit();
  const WeightFiles b(dir / "b");
  ASSERT_EQ(b.entries().size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(b.entry(name).type->dtype, t.dtype());
    EXPECT_EQ(bytes_of(b.tensor(name)), bytes_of(t)) << name;
  }
}

TEST(ShardedSafetensors, Refuse) {
  const TempDir dir;
  const StoredType& f32 = stored_type(DType::f32);
  const auto refused = [&](const std::vector<StoredItem>& items, uint64_t bytes = 100) {
    return message<ValueError>([&] { ShardedSafetensorsWriter(dir.path(), items, bytes); });
  };
  EXPECT_SAYS(refused({{"a", &f32, {20}}, {"a", &f32, {20}}}), "the name 'a' is given twice");
  EXPECT_SAYS(refused({{"a", find_stored_type("Q8_0"), {32}}}), "the format has no type Q8_0");
  EXPECT_SAYS(refused({{"a", find_stored_type("F4"), {3}}}), "no whole number of bytes");
  EXPECT_SAYS(refused({{"a", nullptr, {3}}}), "has no type");
  EXPECT_SAYS(refused({{"__metadata__", &f32, {3}}}), "cannot be named");
  EXPECT_SAYS(refused({}, 0), "at least 1");
  ShardedSafetensorsWriter out(dir.path(),
                               {{"a", &stored_type(DType::i32), {3}}, {"f", find_stored_type("F8_E4M3"), {3}}});
  EXPECT_SAYS(message<DTypeError>([&] { out.write(counted({3})); }), "do not go into integers");
  EXPECT_THROW(out.write(counted({2}).to(DType::i32)), ShapeError);
  out.write(counted({3}).to(DType::i32));
  EXPECT_SAYS(message<ValueError>([&] { out.commit(); }), "not all of 2 tensors");
  EXPECT_THROW(out.write(counted({3})), DTypeError);
}

}  // namespace
}  // namespace strata::io
