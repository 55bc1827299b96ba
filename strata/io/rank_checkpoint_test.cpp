// Checkpoints of several ranks, on ranks that are threads: any layout is read by any other, damage is named.

#include "strata/io/rank_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "strata/core/error_test_util.h"
#include "strata/core/placement.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/io/tensor_parts_inl.h"
#include "strata/ops/ops.h"

namespace strata::io {
namespace {

namespace fs = std::filesystem;
using distributed::Mesh;
using distributed::run_as_ranks;
using Placements = std::map<std::string, std::string>;

// What an expectation of every rank says.
void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.to_vector<double>() == b.to_vector<double>();
}

TensorMap whole() {
  const auto counted = [](const Shape& shape, DType dtype) {
    return (arange(shape.product()).to(DType::f64) * 1.5 + 0.25).to(dtype).reshape(shape);
  };
  return {{"rows", counted({7, 5}, DType::f32)},   {"both", counted({5, 6}, DType::f64)},
          {"twice", counted({7, 3}, DType::bf16)}, {"cube", counted({4, 3, 6}, DType::f32)},
          {"fused", counted({8, 4}, DType::f16)},  {"empty", counted({0, 3}, DType::f32)},
          {"few", counted({1, 4}, DType::i64)},    {"scalar", counted({}, DType::f64)},
          {"bytes", counted({9}, DType::u8)},      {"flags", (arange(6) > 2.0).reshape({2, 3})}};
}
// Layouts on "dp=2 tp=2"; what is not named is plain.
const Placements kFirst = {{"rows", "S(0) R"},    {"both", "S(0) S(1)"}, {"twice", "S(0) S(0)"},
                           {"cube", "S(2) S(0)"}, {"empty", "S(0) R"},   {"few", "S(0) S(0)"},
                           {"bytes", "R S(0)"},   {"flags", "S(1) R"},   {"fused", "R S(0,segments=4+2+2)"}};
const Placements kSecond = {{"rows", "R S(1)"}, {"both", "S(1) S(0)"}, {"twice", "R R"},    {"cube", "S(1) S(1)"},
                            {"scalar", "R R"},  {"few", "R S(1)"},     {"flags", "S(0) R"}, {"fused", "S(0,unit=2) R"}};

TensorMap lying(const Placements& how) {
  TensorMap all;
  for (const auto& [name, t] : whole())
    all[name] = how.contains(name) ? distributed::distribute(t, how.at(name)) : t.clone();
  return all;
}
std::string save(const std::string& run, int64_t step, const Placements& how, const std::string& mesh = "dp=2 tp=2",
                 int keep = 0) {
  std::string path;
  run_as_ranks(Mesh(mesh), [&](int rank) {
    const std::string saved = save_rank_checkpoint(distributed::group("world"), run, step,
                                                   {{"model", lying(how)}, {"optimizer", {{"step", ones({})}}}},
                                                   {{"who", cat("rank ", rank)}}, keep);
    if (rank == 3) path = saved;
  });
  return path;
}
void check_whole(const TensorMap& got) {
  const TensorMap want = whole();
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, t] : want) EXPECT_TRUE(same(got.at(name), t)) << name;
}
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

TEST(RankCheckpoint, AProcessReadsWhatRanksWrote) {
  const TempDir dir;
  const std::string path = save(dir / "run", 7, kFirst);
  EXPECT_EQ(path, (dir / "run") + "/step-00000007");
  const Checkpoint c = load_checkpoint(path);
  EXPECT_EQ(c.step, 7);
  EXPECT_EQ(c.state.at("who"), "rank 0");
  check_whole(c.files.at("model"));
  EXPECT_EQ(c.files.at("optimizer").at("step").item(), 1);
  verify_checkpoint(path);
  const auto found = find_latest_checkpoint(dir / "run");
  ASSERT_TRUE(found.has_value());
  check_whole(load_checkpoint(*found, {"model"}).files.at("model"));
  // In place, whatever the order.
  TensorMap into;
  for (const auto& [name, t] : whole()) into[name] = zeros_like(t);
  const TensorMap filled = load_checkpoint(open_checkpoint(path), {"model"}, {{"model", into}}).files.at("model");
  check_whole(filled);
  EXPECT_TRUE(filled.at("rows").same_as(into.at("rows")));
  EXPECT_THROW(load_checkpoint(path, {"other"}), IoError);
  // Nothing but the checkpoint is there.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "run"), fs::directory_iterator()), 1);
}

TEST(RankCheckpoint, EachPartIsWrittenOnceAndTheLoadIsShared) {
  const TempDir dir;
  const Tensor large = arange(4096).to(DType::f32), other = large + 1.0;
  run_as_ranks(Mesh("dp=4"), [&](int) {
    save_rank_checkpoint(distributed::group("world"), dir / "run", 1,
                         {{"model",
                           {{"a", large},
                            {"b", other},
                            {"c", large.clone()},
                            {"d", other.clone()},
                            {"s", distributed::distribute(large, "S(0)")}}}},
                         {});
  });
  const std::string path = (dir / "run") + "/step-00000001";
  for (int r = 0; r < 4; ++r) {
    const SafetensorsFile file(path + "/model.rank-" + std::to_string(r) + ".safetensors");
    EXPECT_EQ(file.entries().size(), 2u) << r;
    EXPECT_EQ(file.entry("s").shape, Shape({1024}));
  }
}

TEST(RankCheckpoint, AnyLayoutReadsAnyOther) {
  const TempDir dir;
  const std::string first = save(dir / "a", 1, kFirst), second = save(dir / "b", 1, kSecond);
  save_checkpoint(dir / "c", 1, {{"model", whole()}, {"optimizer", {{"step", ones({})}}}}, {});
  const std::string one = dir / "c" + "/step-00000001";
  for (const std::string& path : {first, second, one}) {
    const FoundCheckpoint found = open_checkpoint(path);
    for (const Placements& how : {kFirst, kSecond, Placements()}) {
      run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
        // In place.
        TensorMap into;
        for (const auto& [name, t] : whole())
          into[name] = how.contains(name) ? distributed::distribute(zeros_like(t), how.at(name)) : zeros_like(t);
        const TensorMap got =
            load_rank_checkpoint(distributed::group("world"), found, {"model"}, {{"model", into}}).files.at("model");
        for (const auto& [name, t] : whole()) {
          is(distributed::placements_of(got.at(name)) == (how.contains(name) ? how.at(name) : ""),
             cat(name, " lies so"));
          is(same(distributed::full_tensor(got.at(name)), t), cat(name, " in place, from ", path));
          is(t.dtype() == DType::boolean || got.at(name).same_as(into.at(name)), cat(name, " is the one given"));
        }
        // As it is named.
        const TensorMap lies = lying(how);
        const RankPlaces places{[&](const std::string&, const std::string& name, const Shape&) {
                                  return is_placed(lies.at(name)) ? layout_of(lies.at(name)) : nullptr;
                                },
                                {}};
        const TensorMap made =
            load_rank_checkpoint(distributed::group("world"), found, {"model"}, {}, Device::cpu(), places)
                .files.at("model");
        for (const auto& [name, t] : whole()) is(same(distributed::full_tensor(made.at(name)), t), name);
      });
    }
  }
  // Other numbers of ranks.
  for (const char* mesh : {"dp=1", "dp=3", "dp=2 tp=3"})
    run_as_ranks(Mesh(mesh), [&](int) {
      const bool two = std::string(mesh) == "dp=2 tp=3";
      const RankPlaces places{[&](const std::string&, const std::string&, const Shape& shape) -> LayoutRef {
                                if (shape.size() == 0 || distributed::size() == 1) return nullptr;
                                const Tensor like = distributed::distribute(zeros(shape), two ? "R S(0)" : "S(0)");
                                return is_placed(like) ? layout_of(like) : nullptr;
                              },
                              {}};
      const TensorMap made = load_rank_checkpoint(distributed::group("world"), open_checkpoint(first), {"model"}, {},
                                                  Device::cpu(), places)
                                 .files.at("model");
      for (const auto& [name, t] : whole()) is(same(distributed::full_tensor(made.at(name)), t), name);
    });
}

TEST(RankCheckpoint, StagesHaveTheirOwn) {
  const TempDir dir;
  run_as_ranks(Mesh("pp=2 dp=2"), [&](int rank) {
    const std::string mine = cat("stage", rank / 2);
    const auto value = [&](int stage) { return arange(10).to(DType::f32) + static_cast<double>(100 * stage); };
    const std::string path =
        save_rank_checkpoint(distributed::group("world"), dir / "run", 1,
                             {{"model", {{mine, distributed::distribute(value(rank / 2), "S(0)", "dp")}}}}, {});
    const RankPlaces places{[&](const std::string&, const std::string&, const Shape& shape) {
                              return layout_of(distributed::distribute(zeros(shape), "S(0)", "dp"));
                            },
                            [&](const std::string&, const std::string& name) { return name == mine; }};
    const TensorMap got =
        load_rank_checkpoint(distributed::group("world"), open_checkpoint(path), {}, {}, Device::cpu(), places)
            .files.at("model");
    is(got.size() == 1 && same(distributed::full_tensor(got.at(mine)), value(rank / 2)), "its own stage");
  });
  EXPECT_EQ(load_checkpoint((dir / "run") + "/step-00000001").files.at("model").size(), 2u);
  run_as_ranks(Mesh("dp=2"), [&](int) {
    const std::string e = error_of([&] {
      load_rank_checkpoint(distributed::group("world"), open_checkpoint((dir / "run") + "/step-00000001"), {}, {},
                           Device::cpu(), {{}, [](const std::string&, const std::string& n) { return n == "stage0"; }});
    });
    is(e.find("no rank has a place for tensor 'stage1'") != std::string::npos, e);
  });
}

TEST(RankCheckpoint, HashesAreTheTensorsWhateverTheLayout) {
  const TempDir dir;
  const auto hashes = [&](const std::string& path) {
    std::map<std::string, std::string> all;
    const std::string text = read_file(path + "/state.json");
    for (const auto& [name, t] : whole()) {
      const size_t at = text.find("\"hash\": \"", text.find("\"" + name + "\": {"));
      EXPECT_NE(at, text.npos);
      all[name] = text.substr(at + 9, 16);
    }
    return all;
  };
  const auto first = hashes(save(dir / "a", 1, kFirst));
  EXPECT_EQ(first, hashes(save(dir / "b", 1, kSecond)));
  EXPECT_EQ(first, hashes(save(dir / "c", 1, {})));
  std::set<std::string> distinct;
  for (const auto& [name, hash] : first) distinct.insert(hash);
  EXPECT_EQ(distinct.size(), first.size());
  // Elements that change places change it.
  const std::vector<float> a{1, 2, 3, 4}, b{1, 3, 2, 4};
  EXPECT_NE(detail::hash_of(a.data(), 4, 4, 0), detail::hash_of(b.data(), 4, 4, 0));
  EXPECT_NE(detail::hash_of(a.data(), 4, 4, 0), detail::hash_of(a.data(), 4, 4, 1));
  EXPECT_EQ(detail::hash_of(a.data(), 4, 4, 5),
            detail::hash_of(a.data(), 4, 1, 5) + detail::hash_of(a.data() + 1, 4, 3, 6));
}

// What happens to a checkpoint, and what is said of it.
TEST(RankCheckpoint, DamageIsNamedAndTheOneBeforeIsTaken) {
  const std::string f0 = "/model.rank-0.safetensors", f1 = "/model.rank-1.safetensors";
  struct Damage {
    const char* name;
    std::function<void(const std::string& path)> make;
    std::vector<const char*> says;
  };
  const TempDir other;
  const std::vector<Damage> all = {
      {"torn", [&](const std::string& p) { fs::resize_file(p + f1, fs::file_size(p + f1) - 3); }, {"rank-1"}},
      {"missing", [&](const std::string& p) { fs::remove(p + f1); }, {"rank-1"}},
      {"swapped",
       [&](const std::string& p) {
         fs::rename(p + f0, p + "/x");
         fs::rename(p + f1, p + f0);
         fs::rename(p + "/x", p + f1);
       },
       {"rank-0", "rank-1"}},
      {"foreign",
       [&](const std::string& p) {
         const std::string from = save(other / "run", 9, {{"rows", "S(1) R"}});
         fs::copy_file(from + f1, p + f1, fs::copy_options::overwrite_existing);
       },
       {"rank-1"}},
      {"a flipped bit",
       [&](const std::string& p) {
         std::string bytes = read_file(p + f1);
         bytes[bytes.size() - 1] ^= 1;
         write_file(p + f1, bytes);
       },
       {"rank-1"}},
      {"an index that says other places",
       [&](const std::string& p) {
         std::string text = read_file(p + "/state.json");
         text.replace(text.find("S(0)"), 4, "S(1)");
         write_file(p + "/state.json", text);
       },
       {"state.json"}},
  };
  for (const Damage& d : all) {
    SCOPED_TRACE(d.name);
    const TempDir dir;
    save(dir / "run", 1, kFirst);
    const std::string path = save(dir / "run", 2, kFirst);
    d.make(path);
    const auto named = [&](const std::string& text) {
      return std::ranges::any_of(d.says, [&](const char* s) { return text.find(s) != text.npos; });
    };
    EXPECT_TRUE(named(error_of([&] { load_checkpoint(path); }))) << error_of([&] { load_checkpoint(path); });
    EXPECT_TRUE(named(error_of([&] { verify_checkpoint(path); }))) << error_of([&] { verify_checkpoint(path); });
    std::vector<std::string> warnings;
    const auto found = find_latest_checkpoint(dir / "run", &warnings);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->step, 1);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(named(warnings[0])) << warnings[0];
    // By ranks of the same layout, all are told of it: where it opens, by who reads it.
    try {
      open_checkpoint(path);
    } catch (const IoError&) {
      continue;
    }
    run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
      const std::string e = error_of([&] {
        load_rank_checkpoint(distributed::group("world"), open_checkpoint(path), {"model"}, {{"model", lying(kFirst)}});
      });
      is(named(e), cat(d.name, ": ", e));
    });
  }
}

TEST(RankCheckpoint, WhatOneRankCannotDoIsToldToAll) {
  const TempDir dir;
  save(dir / "run", 1, kFirst);
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int rank) {
    const auto error = [&](const TensorFiles& files) -> std::string {
      try {
        save_rank_checkpoint(distributed::group("world"), dir / "run", 2, files, {});
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    const auto says = [&](const std::string& got, const char* what) {
      is(got.find(what) != std::string::npos, cat("'", got, "' does not say '", what, "'"));
    };
    const Tensor t = ones({rank == 2 ? 3 : 2});
    says(error({{"model", {{"w", t}}}}), "rank 2 has tensor 'w'");
    says(error({{rank == 1 ? "a/b" : "model", {{"w", ones({2})}}}}), "rank 1 could not");
    says(error({{"model", {{"w", distributed::distribute(ones({2}), "P(sum) R")}}}}), "sum that is still to be taken");
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "run"), fs::directory_iterator()), 1);  // nothing is left
  run_as_ranks(Mesh("dp=2"), [&](int rank) {
    std::string said;
    try {
      save_rank_checkpoint(distributed::group("world"), rank == 0 ? dir / "run" : std::string(), 3,
                           {{"model", {{"w", distributed::distribute(ones({4}), "S(0)")}}}},
                           {{"text", rank == 0 ? "\xff" : ""}});
    } catch (const ValueError& e) {
      said = e.what();
    }
    is(said.find("rank 0 could not finish step 3") != std::string::npos, said);
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "run"), fs::directory_iterator()), 1);
}

TEST(RankCheckpoint, OldOnesAreDeleted) {
  const TempDir dir;
  for (int64_t step = 1; step <= 4; ++step) save(dir / "run", step, kFirst, "dp=2 tp=2", 2);
  EXPECT_EQ(list_checkpoints(dir / "run").size(), 2u);
  // A step is replaced, by one of another number of files too.
  save(dir / "run", 4, kFirst, "dp=2 tp=2", 2);
  save_checkpoint(dir / "run", 4, {{"model", whole()}}, {}, 2);
  check_whole(load_checkpoint((dir / "run") + "/step-00000004").files.at("model"));
}

}  // namespace
}  // namespace strata::io
