// Averages of models' files, and adapters merged into files.

#include "strata/models/average.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/rank_checkpoint.h"
#include "strata/io/temp_dir.h"
#include "strata/io/weight_files.h"
#include "strata/models/model_test_util.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

double distance(const Tensor& a, const Tensor& b) {
  return (a.to(DType::f64) - b.to(DType::f64)).abs().max().item();
}

// A folder of a model: two matrices of two dtypes, whole numbers, a configuration, and files beside it.
std::string make_folder(const io::TempDir& at, const std::string& name, int64_t seed, const io::TensorMap& other = {}) {
  manual_seed(static_cast<uint64_t>(seed));
  io::TensorMap t{
      {"a.weight", randn({5, 3})}, {"b.weight", randn({4, 4}).to(DType::bf16)}, {"ids", stepping_tokens(1, 3, 1, 9)}};
  for (const auto& [key, value] : other) {
    if (value.defined())
      t[key] = value;
    else
      t.erase(key);
  }
  const std::string dir = at.path() + "/" + name;
  io::make_directories(dir);
  io::save_safetensors(dir + "/model.safetensors", t, {{"format", "pt"}});
  io::write_file(dir + "/config.json", json{{"model_type", "tiny"}, {"_name_or_path", name}}.dump());
  io::write_file(dir + "/tokenizer.json", "{}");
  io::write_file(dir + "/adapter_config.json", "{}");
  return dir;
}

TEST(Average, IsTheMeanInTheFirstOnesDtypes) {
  const io::TempDir at;
  std::vector<std::string> dirs;
  for (int i = 0; i < 3; ++i) dirs.push_back(make_folder(at, "m" + std::to_string(i), i));
  const std::string to = at.path() + "/soup";
  average_models(dirs, to);
  const io::WeightFiles soup(to);
  EXPECT_EQ(soup.entries().size(), 3U);
  for (const char* name : {"a.weight", "b.weight"}) {
    Tensor sum = zeros(soup.entry(name).shape, DType::f64);
    for (const std::string& dir : dirs) sum = sum + io::WeightFiles(dir).tensor(name).to(DType::f64);
    const Tensor mean = soup.tensor(name);
    EXPECT_EQ(mean.dtype(), io::WeightFiles(dirs[0]).tensor(name).dtype());
    EXPECT_LE(distance(mean, sum / 3), mean.dtype() == DType::f32 ? 1e-7 : 0.01) << name;
    EXPECT_EQ(bits(mean), bits((sum * (1.0 / 3)).to(mean.dtype()))) << name;
  }
  EXPECT_EQ(bits(soup.tensor("ids")), bits(stepping_tokens(1, 3, 1, 9)));
  EXPECT_TRUE(fs::exists(to + "/tokenizer.json"));
  EXPECT_EQ(io::read_file(to + "/config.json"), io::read_file(dirs[0] + "/config.json"));
  EXPECT_FALSE(fs::exists(to + "/adapter_config.json"));
  EXPECT_THROW(average_models(dirs, to), IoError);  // it is there

  average_models({dirs[0], dirs[1]}, at.path() + "/weighted", {3, 1});
  const Tensor w = io::WeightFiles(at.path() + "/weighted").tensor("a.weight");
  const Tensor wanted =
      io::WeightFiles(dirs[0]).tensor("a.weight") * 0.75 + io::WeightFiles(dirs[1]).tensor("a.weight") * 0.25;
  EXPECT_LE(distance(w, wanted), 1e-6);
  average_models({dirs[1]}, at.path() + "/alone");
  for (const char* name : {"a.weight", "b.weight"})
    EXPECT_EQ(bits(io::WeightFiles(at.path() + "/alone").tensor(name)), bits(io::WeightFiles(dirs[1]).tensor(name)));
}

TEST(Average, MembersThatAreNoneAreRefusedWithAllThatIsWrong) {
  const io::TempDir at;
  const std::string one = make_folder(at, "one", 1), to = at.path() + "/soup";
  const auto refused = [&](const std::string& other, const std::vector<std::string>& words) {
    try {
      average_models({one, other}, to);
      ADD_FAILURE() << other;
    } catch (const ValueError& e) {
      for (const std::string& word : words)
        EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in " << e.what();
    }
    EXPECT_FALSE(fs::exists(to));
  };
  refused(make_folder(at, "shape", 2, {{"a.weight", zeros({3, 5})}, {"c", zeros({2})}, {"b.weight", {}}}),
          {"a.weight of", "has no b.weight", "also has c"});
  refused(make_folder(at, "ids", 2, {{"ids", stepping_tokens(1, 3, 2, 9)}}), {"'ids' holds whole numbers"});
  const std::string config = make_folder(at, "config", 2);
  io::write_file(config + "/config.json", R"({"model_type": "tiny", "rope_theta": 3})");
  refused(config, {"another config.json"});
  EXPECT_THROW(average_models({}, to), ValueError);
  EXPECT_THROW(average_models({one}, to, {1, 2}), ValueError);
  EXPECT_THROW(average_models({one, one}, to, {1, -1}), ValueError);
  EXPECT_THROW(average_models({one, one}, to, {1, NAN}), ValueError);
  EXPECT_THROW(average_models({one, at.path() + "/none"}, to), IoError);
  const std::string run = io::save_checkpoint(at.path() + "/run", 1, {{"model", {{"w", zeros({1})}}}}, {});
  EXPECT_THROW(average_models({run, one}, to), ValueError);
}

TEST(Average, OfCheckpointsIsARunWithOne) {
  const io::TempDir at;
  std::vector<std::string> members;
  for (int i = 0; i < 2; ++i)
    members.push_back(io::save_checkpoint(at.path() + "/run" + std::to_string(i), 7 + i,
                                          {{"model", {{"w", full({3}, 2.0 * i)}}}, {"optimizer", {{"m", ones({3})}}}},
                                          {{"config", "text"}}));
  average_models(members, at.path() + "/soup");
  const auto found = io::find_latest_checkpoint(at.path() + "/soup");
  ASSERT_TRUE(found.has_value());
  const io::Checkpoint c = io::load_checkpoint(*found);
  EXPECT_EQ(c.step, 7);
  EXPECT_EQ(c.state.at("config"), "text");
  EXPECT_EQ(c.files.size(), 1U);
  EXPECT_EQ(c.files.at("model").at("w").to_vector<float>(), std::vector<float>({1, 1, 1}));
}

// Weights of a member: floating ones of three dtypes, and whole numbers that are the same in all.
io::TensorMap member_weights(int64_t seed) {
  manual_seed(static_cast<uint64_t>(seed));
  return {{"rows", randn({7, 5})},
          {"halves", randn({6, 4}).to(DType::bf16)},
          {"fused", randn({8, 4}).to(DType::f16)},
          {"scalar", randn({})},
          {"ids", stepping_tokens(1, 6, 1, 9)}};
}
using Layouts = std::map<std::string, std::string>;

// The same as a checkpoint of so many ranks; what `how` does not name is plain.
std::string save_by_ranks(const std::string& run, int64_t step, const io::TensorMap& whole, const std::string& mesh,
                          const Layouts& how) {
  std::string path;
  distributed::run_as_ranks(distributed::Mesh(mesh), [&](int rank) {
    io::TensorMap mine;
    for (const auto& [name, t] : whole)
      mine[name] = how.contains(name) ? distributed::distribute(t, how.at(name)) : t.clone();
    const std::string saved =
        io::save_rank_checkpoint(distributed::group("world"), run, step,
                                 {{"model", mine}, {"optimizer", {{"m", ones({3})}}}}, {{"config", "text"}});
    if (rank == 0) path = saved;
  });
  return path;
}

// Whoever wrote the members, in whatever layout: what the same members of one process give, bit for bit.
TEST(Average, OfCheckpointsOfSeveralRanksIsThatOfOneProcess) {
  const io::TempDir at;
  std::vector<std::string> whole, parts;
  for (int64_t i = 0; i < 3; ++i)
    whole.push_back(io::save_checkpoint(at.path() + "/whole" + std::to_string(i), 7 + i,
                                        {{"model", member_weights(i)}, {"optimizer", {{"m", ones({3})}}}},
                                        {{"config", "text"}}));
  parts.push_back(save_by_ranks(at.path() + "/parts0", 7, member_weights(0), "dp=2 tp=2",
                                {{"rows", "S(0) S(1)"}, {"fused", "R S(0,segments=4+2+2)"}, {"ids", "S(1) R"}}));
  parts.push_back(save_by_ranks(at.path() + "/parts1", 8, member_weights(1), "tp=3",
                                {{"rows", "S(1)"}, {"halves", "S(0,unit=2)"}}));
  parts.push_back(whole[2]);  // and one of one process among them
  average_models(whole, at.path() + "/soup", {1, 2, 3});
  average_models(parts, at.path() + "/soup_of_parts", {1, 2, 3});
  const auto want = io::find_latest_checkpoint(at.path() + "/soup");
  const auto found = io::find_latest_checkpoint(at.path() + "/soup_of_parts");
  ASSERT_TRUE(want && found);
  const io::Checkpoint expected = io::load_checkpoint(*want), got = io::load_checkpoint(*found);
  EXPECT_EQ(got.step, 7);
  EXPECT_EQ(got.state.at("config"), "text");
  ASSERT_EQ(got.files.size(), 1U);
  ASSERT_EQ(got.files.at("model").size(), 5U);
  for (const auto& [name, t] : expected.files.at("model")) {
    EXPECT_EQ(bits(got.files.at("model").at(name)), bits(t)) << name;
    EXPECT_EQ(got.files.at("model").at(name).dtype(), t.dtype()) << name;
  }
  const auto soup = greedy_average(parts, at.path() + "/greedy", [](const std::string& folder) {
    const auto c = fs::exists(folder + "/state.json") ? io::load_checkpoint(folder)
                                                      : io::load_checkpoint(*io::find_latest_checkpoint(folder));
    return c.files.at("model").at("scalar").abs().item();
  });
  EXPECT_GE(soup.members.size(), 1U);
  EXPECT_TRUE(io::find_latest_checkpoint(at.path() + "/greedy").has_value());
}

TEST(Average, DamageOfACheckpointIsNamedAndNothingIsLeft) {
  const io::TempDir at;
  // Both files have as many bytes, so that two that are swapped are told apart by what they hold.
  const auto weights = [](int64_t seed) {
    manual_seed(static_cast<uint64_t>(seed));
    return io::TensorMap{{"rows", randn({8, 5})}, {"halves", randn({6, 4}).to(DType::bf16)}};
  };
  const Layouts all{{"rows", "S(0)"}, {"halves", "S(0)"}};
  const std::string good = save_by_ranks(at.path() + "/good", 1, weights(0), "dp=2", all);
  const std::string f0 = "/model.rank-0.safetensors", f1 = "/model.rank-1.safetensors";
  const std::vector<std::pair<std::string, std::function<void(const std::string& dir)>>> damages{
      {"rank-1.safetensors' has", [&](const std::string& d) { fs::resize_file(d + f1, fs::file_size(d + f1) - 3); }},
      {"model.rank-1.safetensors", [&](const std::string& d) { fs::remove(d + f1); }},
      {"the part of tensor '",
       [&](const std::string& d) {
         std::string bytes = io::read_file(d + f1);
         bytes[bytes.size() - 1] ^= 1;
         io::write_file(d + f1, bytes);
       }},
      {"is not the one that was written",  // swapped
       [&](const std::string& d) {
         fs::rename(d + f0, d + "/x");
         fs::rename(d + f1, d + f0);
         fs::rename(d + "/x", d + f1);
       }},
      {"state.json",
       [&](const std::string& d) {
         std::string text = io::read_file(d + "/state.json");
         text.replace(text.find("S(0)"), 4, "S(1)");
         io::write_file(d + "/state.json", text);
       }},
      {"xxh64",
       [&](const std::string& d) {  // of one process
         fs::remove_all(d);
         const std::string one = io::save_checkpoint(fs::path(d).parent_path(), 1, {{"model", weights(1)}}, {});
         std::string bytes = io::read_file(one + "/model.safetensors");
         bytes[bytes.size() - 1] ^= 1;
         io::write_file(one + "/model.safetensors", bytes);
       }},
  };
  int64_t number = 0;
  for (const auto& [says, make] : damages) {
    SCOPED_TRACE(says);
    const std::string bad = save_by_ranks(at.path() + "/bad" + std::to_string(number++), 1, weights(1), "dp=2", all);
    make(bad);
    try {
      average_models({good, bad}, at.path() + "/soup");
      ADD_FAILURE() << "taken";
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
    EXPECT_FALSE(fs::exists(at.path() + "/soup"));
  }
  // Other networks are named with all that differs, as of folders.
  const std::string other = io::save_checkpoint(at.path() + "/other", 1, {{"model", {{"rows", zeros({8, 4})}}}}, {});
  try {
    average_models({good, other}, at.path() + "/soup");
    ADD_FAILURE() << "taken";
  } catch (const ValueError& e) {
    for (const char* word : {"has no halves", "rows of", "[8, 5]"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in " << e.what();
  }
}

TEST(Average, GreedyIsNeverWorseThanTheBest) {
  for (int64_t round = 0; round < 8; ++round) {
    const io::TempDir at;
    std::vector<std::string> dirs;
    for (int64_t i = 0; i < 4; ++i) dirs.push_back(make_folder(at, "m" + std::to_string(i), 10 * round + i));
    manual_seed(static_cast<uint64_t>(round));
    const Tensor wanted = randn({5, 3});
    int64_t calls = 0;
    const auto loss = [&](const std::string& dir) {
      ++calls;
      const Tensor d = io::WeightFiles(dir).tensor("a.weight") - wanted;
      return (d * d).mean().item();
    };
    const std::string to = at.path() + "/soup";
    const GreedySoup soup = greedy_average(dirs, to, loss);
    EXPECT_EQ(calls, 7);
    ASSERT_EQ(soup.losses.size(), 4U);
    for (size_t i = 1; i < 4; ++i) EXPECT_LE(soup.losses[i - 1].second, soup.losses[i].second);
    EXPECT_LE(soup.loss, soup.losses[0].second);
    EXPECT_EQ(soup.members[0], soup.losses[0].first);
    EXPECT_EQ(loss(to), soup.loss);
    const std::string again = at.path() + "/again";
    average_models(soup.members, again);
    for (const char* name : {"a.weight", "b.weight"})
      EXPECT_EQ(bits(io::WeightFiles(again).tensor(name)), bits(io::WeightFiles(to).tensor(name)));
    size_t left = 0;  // of what was tried
    for (const auto& entry : fs::directory_iterator(at.path())) left += entry.path().filename().string()[0] == '.';
    EXPECT_EQ(left, 0U);
  }
  const io::TempDir at;
  const std::string one = make_folder(at, "one", 1);
  EXPECT_THROW(greedy_average({one}, at.path() + "/soup", [](const std::string&) { return NAN; }), ValueError);
  EXPECT_THROW(greedy_average({}, at.path() + "/soup", [](const std::string&) { return 0.0; }), ValueError);
}

TEST(MergeAdapter, WritesWhatPeftMerges) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  const json cases =
      json::parse(io::read_file(std::string(source_dir ? source_dir : ".") + "/strata/models/peft_cases.json"));
  const auto tensor = [](const json& t) {
    return from_span<float>(t.at("values").get<std::vector<float>>(), Shape(t.at("shape").get<std::vector<int64_t>>()));
  };
  int64_t transposed = 0;
  for (const json& c : cases) {
    const std::string name = c.at("name");
    const io::TempDir at;
    const std::string base = at.path() + "/base", adapter = at.path() + "/adapter", to = at.path() + "/merged";
    io::make_directories(base);
    io::make_directories(adapter);
    io::TensorMap weights{{"proj.weight", tensor(c.at("weight"))}, {"other.weight", ones({2})}};
    io::save_safetensors(base + "/model.safetensors", weights, {{"format", "pt"}});
    io::write_file(base + "/config.json", "{}");
    io::TensorMap file;
    for (const auto& [key, value] : c.at("tensors").items()) file.emplace(key, tensor(value));
    io::save_safetensors(adapter + "/adapter_model.safetensors", file);
    io::write_file(adapter + "/adapter_config.json", c.at("config").dump());
    transposed += c.at("config").at("fan_in_fan_out") == true;
    merge_adapter(base, adapter, to);
    const io::WeightFiles merged(to);
    EXPECT_LE(distance(merged.tensor("proj.weight"), tensor(c.at("merged"))), 1e-6) << name;
    EXPECT_EQ(bits(merged.tensor("other.weight")), bits(weights.at("other.weight")));
    EXPECT_EQ(io::read_file(to + "/config.json"), "{}");

    file["base_model.model.nothing.lora_A.weight"] = zeros({2, 2});
    file["base_model.model.other.weight"] = zeros({3});
    file["stray"] = zeros({1});
    file.erase("base_model.model.proj.lora_B.weight");
    io::save_safetensors(adapter + "/adapter_model.safetensors", file);
    try {
      merge_adapter(base, adapter, at.path() + "/refused");
      ADD_FAILURE() << name;
    } catch (const IoError& e) {
      for (const char* word : {"nothing.lora_A", "other.weight", "stray", "no proj.lora_B.weight"})
        EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in " << e.what();
    }
    EXPECT_FALSE(fs::exists(at.path() + "/refused"));
  }
  EXPECT_EQ(transposed, 1);
}

}  // namespace
}  // namespace strata
