// What several ranks wrote, in the hands of commands of one process.

#include <filesystem>
#include <map>
#include <string>

#include "apps/strata/ranks_test_util.h"

namespace strata::cli {
namespace {

using RankFiles = RanksTest;

io::TensorMap model_of(const std::string& checkpoint) {
  return io::load_checkpoint(checkpoint, {"model"}).files.at("model");
}

// Members that learned from one beginning on other numbers of ranks and in other layouts.
TEST_F(RankFiles, AreAveragedWithThoseOfOneProcess) {
  const std::string more = "--steps 12 --set model.heads=4 --set train.save_every=0 ";
  ASSERT_EQ(strata(train("one") + more).status, 0);
  ASSERT_EQ(strata(on(2, "zero") + more + "--set parallel.zero=3 --set train.lr=2e-3").status, 0);
  ASSERT_EQ(strata(on(4, "both") + more + "--set parallel.dp=2 --set parallel.tp=2 --set train.lr=3e-3").status, 0);
  std::map<std::string, std::string> at;
  for (const char* run : {"one", "zero", "both"}) at[run] = (dir_ / run) + "/step-00000012";
  EXPECT_TRUE(std::filesystem::exists(at["both"] + "/model.rank-3.safetensors"));
  const std::string members = at["one"] + " " + at["zero"] + " " + at["both"];
  const Result r = strata("model average " + members + " --out " + (dir_ / "soup") + " --weights 1 2 1");
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("the mean of 3"), std::string::npos) << r.output;
  const io::TensorMap soup = model_of((dir_ / "soup") + "/step-00000012"), one = model_of(at["one"]),
                      zero = model_of(at["zero"]), both = model_of(at["both"]);
  ASSERT_EQ(soup.size(), one.size());
  int64_t others = 0;  // elements in which the members differ
  for (const auto& [name, t] : soup) {
    const auto got = t.to_vector<float>(), a = one.at(name).to_vector<float>(), b = zero.at(name).to_vector<float>(),
               c = both.at(name).to_vector<float>();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<float>(double{a[i]} * 0.25 + double{b[i]} * 0.5 + double{c[i]} * 0.25)) << name;
      others += a[i] != b[i] && a[i] != c[i];
    }
  }
  EXPECT_GT(others, 10000) << "the members are one model";
  const Result text = strata("generate --checkpoint " + (dir_ / "soup") + " --prompt line --tokens 4");
  EXPECT_EQ(text.status, 0) << text.output;
  const Result chosen =
      strata("model average " + members + " --out " + (dir_ / "best") + " --held-out " + (dir_ / "text.txt"));
  ASSERT_EQ(chosen.status, 0) << chosen.output;
  EXPECT_EQ(strata("generate --checkpoint " + (dir_ / "best") + " --prompt line --tokens 4").status, 0);

  // A part that was changed is named, and nothing is written.
  const std::string part = at["zero"] + "/model.rank-1.safetensors";
  std::string bytes = io::read_file(part);
  bytes[bytes.size() - 1] ^= 1;
  io::write_file(part, bytes);
  const Result bad = strata("model average " + members + " --out " + (dir_ / "bad"));
  EXPECT_NE(bad.status, 0);
  EXPECT_NE(bad.output.find("is not the one that was written"), std::string::npos) << bad.output;
  EXPECT_FALSE(std::filesystem::exists(dir_ / "bad"));
}

}  // namespace
}  // namespace strata::cli
