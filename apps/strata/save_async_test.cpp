// train.save_async: checkpoints beside the steps, with the bytes of those that steps wait for.

#include <filesystem>
#include <map>
#include <string>

#include "apps/strata/ranks_test_util.h"

namespace strata::cli {
namespace {

class SaveAsync : public RanksTest {
 protected:
  // The tensors' files of each checkpoint, by path.
  std::map<std::string, std::string> tensors(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (const std::string& path : io::list_checkpoints(dir_ / out))
      for (const auto& f : std::filesystem::directory_iterator(path))
        if (f.path().extension() == ".safetensors")
          all[f.path().parent_path().filename() / f.path().filename()] = io::read_file(f.path());
    return all;
  }
  std::string resume(const std::string& out, const std::string& more = {}) const {
    return std::string(program()) + " train --resume --out " + (dir_ / out) + " " + more;
  }
  const std::string async_ = "--set train.save_async=true ";
};

TEST_F(SaveAsync, HasTheBytesOfCheckpointsThatStepsWaitFor) {
  const std::string every = "--set train.save_every=5 --set train.save_first=true --set train.keep_last=20 ";
  for (const auto& [name, start, more] : std::vector<std::tuple<std::string, int, std::string>>{
           {"one", 1, ""}, {"zero", 2, "--set parallel.zero=3 "}}) {
    SCOPED_TRACE(name);
    const std::string other = name + "_async";
    const Result sync = strata((start == 1 ? train(name) : on(start, name)) + every + more + "--steps 20");
    const Result async = strata((start == 1 ? train(other) : on(start, other)) + every + more + async_ + "--steps 20");
    ASSERT_EQ(sync.status, 0) << sync.output;
    ASSERT_EQ(async.status, 0) << async.output;
    const auto want = tensors(name), got = tensors(other);
    ASSERT_GE(want.size(), 4U * 2U * static_cast<size_t>(start));  // before the first step there may be no state
    EXPECT_EQ(got, want);
    EXPECT_NE(async.output.find("step-00000020"), std::string::npos) << async.output;
  }
}

TEST_F(SaveAsync, AKillLeavesAWholeCheckpointBehind) {
  const std::string more = "--set train.accumulate=2 --set model.dropout=0.1 ";
  const Result whole = strata(on(2, "whole") + more);
  ASSERT_EQ(whole.status, 0) << whole.output;
  Child child({"launch", "-n", "2", "--grace", "1", "--", program(), "train", dir_ / "tiny.toml", "--data",
               dir_ / "text.txt", "--out", dir_ / "killed", "--set", "model.dropout=0.1", "--set",
               "train.accumulate=2", "--set", "train.save_every=2", "--set", "train.save_async=true"});
  Result resumed;
  ASSERT_NO_FATAL_FAILURE(kill_and_resume(child, "killed", "launch -n 2 -- " + resume("killed"), resumed));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_EQ(weights("killed"), weights("whole"));
}

// Told by all ranks, one or a few steps later, and the checkpoint before is still there.
TEST_F(SaveAsync, AFullDiskIsNamed) {
  ASSERT_EQ(strata(on(2, "run") + async_ + "--steps 10").status, 0);
  const Result full = strata("launch -n 2 -- sh -c 'if [ $RANK = 1 ]; then ulimit -f 8; fi; exec " +
                             resume("run", "--steps 1000 --set train.save_every=10") + "'");
  EXPECT_NE(full.status, 0);
  EXPECT_NE(full.output.find("[0] strata: error: "), std::string::npos) << full.output;
  EXPECT_NE(full.output.find("rank 1 could not save its part of step 20"), std::string::npos) << full.output;
  EXPECT_NE(full.output.find("File too large"), std::string::npos) << full.output;
  EXPECT_EQ(io::find_latest_checkpoint(dir_ / "run")->step, 10);
  const Result on_again = strata("launch -n 2 -- " + resume("run", "--steps 20"));
  EXPECT_EQ(on_again.status, 0) << on_again.output;
  for (const auto& f : std::filesystem::directory_iterator(dir_ / "run"))
    EXPECT_FALSE(f.path().filename().string().starts_with(".tmp-")) << f.path();
}

TEST_F(SaveAsync, IsNotForBudgets) {
  const Result r = strata(train("refused") + async_ + "--set memory.device=1GiB");
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.output.find("train.save_async is not for [memory]"), std::string::npos) << r.output;
}

}  // namespace
}  // namespace strata::cli
