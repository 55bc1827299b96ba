#pragma once
// What tests of pretrained models share: the models that scripts/make-models writes, and comparing with what
// transformers computed.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/io/safetensors.h"
#include "strata/models/pretrained.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {

/// One of the small configurations of a family's record.
struct Sample {
  const Family* family;
  FamilySample sample;
  std::string name() const { return cat(family->name, '-', sample.name); }
};
inline void PrintTo(const Sample& s, std::ostream* out) {
  *out << s.name();
}
/// "gpt2_plain", for INSTANTIATE_TEST_SUITE_P.
inline std::string sample_test_name(const testing::TestParamInfo<Sample>& info) {
  std::string name = info.param.name();
  std::ranges::replace(name, '-', '_');
  return name;
}
/// Of the families of these kinds.
inline std::vector<Sample> samples_of(const std::vector<ModelKind>& kinds) {
  std::vector<Sample> all;
  for (const Family* family : families())
    if (std::ranges::find(kinds, family->kind) != kinds.end())
      for (const FamilySample& sample : family->samples) all.push_back({family, sample});
  return all;
}

/// Where scripts/make-models writes.
inline std::filesystem::path models_folder() {
  if (const char* models = std::getenv("STRATA_MODELS")) return models;
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  return std::filesystem::path(source ? source : ".") / "build/models";
}

inline double largest(const Tensor& t) {
  return t.abs().max().item();
}
inline void expect_near(const Tensor& got, const Tensor& want, double share, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  EXPECT_LE(largest(got.detach() - want), share * largest(want)) << what << ", of " << largest(want);
}

/// A model of a sample and what transformers computed with it; skips where they are not there.
class PretrainedSample : public testing::TestWithParam<Sample> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = models_folder() / GetParam().name();
    if (!std::filesystem::exists(folder / "reference.safetensors"))
      GTEST_SKIP() << folder << " is not there: scripts/make-models writes it";
    loaded = load_pretrained(folder.string());
    reference = io::SafetensorsFile((folder / "reference.safetensors").string()).tensors();
  }
  bool has(const char* name) const { return reference.contains(name); }
  Tensor of(const char* name) const { return reference.at(name); }

  Pretrained loaded;
  io::TensorMap reference;
};

}  // namespace strata
