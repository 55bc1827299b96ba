// Which settings of [parallel] go together: each two of them train as one process does, or are refused by name. The
// guide's table is what this test finds.

#include <cstdlib>
#include <set>
#include <sstream>

#include "strata/train/rank_runs_test_util.h"

namespace strata {
namespace {

struct Setting {
  std::string name;  // as the table has it
  std::string key;   // that a refusal names
  RankRunsTest::Change change;
};

class Layouts : public RankRunsTest {
 protected:
  Layouts() {
    c_.model.layers = 2;
    c_.model.dim = 16;
    c_.model.heads = 2;
    c_.model.context = 16;
    c_.steps = 3;
    c_.eval_every = 0;
  }
  static void with_experts(TrainConfig& c) {
    c.model.experts = 4, c.model.experts_per_token = 2, c.model.ffn_dim = 16;
    c.model.balance_loss = 0;  // of a pipeline's micro-batches the loads are their own
    c.model.z_loss = 0.01;
  }
  std::vector<Setting> settings_{
      {"dp", "parallel.dp", [](TrainConfig&) {}},
      {"tp", "parallel.tp", [](TrainConfig& c) { c.parallel.tp = 2; }},
      {"cp", "parallel.cp", [](TrainConfig& c) { c.parallel.cp = 2; }},
      {"pp", "parallel.pp", [](TrainConfig& c) { c.parallel.pp = 2; }},
      {"ep", "parallel.ep", [](TrainConfig& c) { c.parallel.ep = 2; }},
      {"zero=1", "parallel.zero", [](TrainConfig& c) { c.parallel.zero = 1; }},
      {"zero=2", "parallel.zero", [](TrainConfig& c) { c.parallel.zero = 2; }},
      {"zero=3", "parallel.zero", [](TrainConfig& c) { c.parallel.zero = 3; }},
      {"exact", "parallel.exact", [](TrainConfig& c) { c.parallel.exact = 4; }},
  };
};

TEST_F(Layouts, EachTwoTrainAsOneProcessOrAreRefusedByName) {
  if (!is_rank()) {
    run("dense", [](TrainConfig&) {});
    run("experts", with_experts);
  }
  const auto each_two = [&](const auto& f) {
    for (size_t i = 1; i < settings_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (settings_[i].key != settings_[j].key) f(settings_[i], settings_[j]);
  };
  const auto folder_of = [](const Setting& a, const Setting& b) { return cat(a.name, "_", b.name); };
  distributed::on_processes(4, [&](int rank) {
    std::ostringstream refused;
    each_two([&](const Setting& a, const Setting& b) {
      const Change both = [&](TrainConfig& c) {
        a.change(c), b.change(c);
        if (c.parallel.ep > 1) with_experts(c);
        if (c.parallel.ep > 1 && c.parallel.tp * c.parallel.cp > 1) c.parallel.ep = 4;  // over both axes
        c.parallel.dp = 4 / (c.parallel.tp * c.parallel.cp * c.parallel.pp);
      };
      try {
        run(folder_of(a, b), both);
      } catch (const Error& e) {
        refused << folder_of(a, b) << '\n';
        for (const Setting* s : {&a, &b})
          EXPECT_NE(std::string(e.what()).find(s->key), std::string::npos) << folder_of(a, b) << ": " << e.what();
      }
    });
    if (rank == 0) io::write_file(folder_ + "refused", refused.str());
  });
  if (is_rank()) return;
  std::istringstream lines(io::read_file(folder_ + "refused"));
  std::set<std::string> refused;
  for (std::string line; std::getline(lines, line);) refused.insert(line);
  std::string table = "|";
  for (size_t j = 0; j + 1 < settings_.size(); ++j) table += cat(" | ", settings_[j].name);
  table += " |\n|";
  for (size_t j = 0; j < settings_.size(); ++j) table += "---|";
  for (size_t i = 1; i < settings_.size(); ++i) {
    table += cat("\n| ", settings_[i].name);
    for (size_t j = 0; j + 1 < settings_.size(); ++j) {
      const bool apart = j >= i || settings_[i].key == settings_[j].key;
      table += cat(" | ", apart ? "" : refused.contains(folder_of(settings_[i], settings_[j])) ? "no" : "yes");
    }
    table += " |";
  }
  each_two([&](const Setting& a, const Setting& b) {
    if (!refused.contains(folder_of(a, b)))
      expect_same(a.name == "ep" || b.name == "ep" ? "experts" : "dense", folder_of(a, b));
  });
  const char* const source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  const std::string guide = io::read_file(std::string(source_dir) + "/docs/guide/parallel.md");
  EXPECT_NE(guide.find(table), std::string::npos) << "docs/guide/parallel.md has another table than\n" << table;
}

}  // namespace
}  // namespace strata
