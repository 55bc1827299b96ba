#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "apps/strata/child.h"

namespace strata::cli {
namespace {

TEST(Cli, Version) {
  const Result r = strata("--version");
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(r.output.starts_with("strata 0.")) << r.output;
}

TEST(Cli, HelpOfEachCommand) {
  const Result all = strata("--help");
  EXPECT_EQ(all.status, 0);
  EXPECT_NE(all.output.find("info"), std::string::npos);
  const Result info = strata("info --help");
  EXPECT_EQ(info.status, 0);
  EXPECT_NE(info.output.find("--no-peaks"), std::string::npos) << info.output;
}

TEST(Cli, BadUsageIsStatus2AndOneLine) {
  for (const char* arguments : {"trian", "--nonsense", "info --nonsense", "info more"}) {
    const Result r = strata(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
    EXPECT_EQ(r.output.find('\n'), r.output.size() - 1) << r.output;
  }
  EXPECT_EQ(strata("").status, 2);
  EXPECT_TRUE(strata("trian --steps 3").output.starts_with("strata: error: unknown command 'trian'"));
}

TEST(Cli, ErrorsSayWhatIsWantedAndWhereTheHelpIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"trian --steps 3", "unknown command 'trian'; did you mean train? (strata --help lists the commands)"},
      {"xyz", "unknown command 'xyz' (strata --help lists the commands)"},
      {"train --stpes 3", "unknown option '--stpes'; did you mean --steps? (strata train --help lists the options)"},
      {"train --stpes=3", "unknown option '--stpes=3'; did you mean --steps? (strata train --help lists the options)"},
      {"lab verify --job 3",
       "unknown option '--job'; did you mean --jobs? (strata lab verify --help lists the options)"},
      {"ops --plugn x", "unknown option '--plugn'; did you mean --plugin? (strata ops --help lists the options)"},
      {"--nonsense", "unknown option '--nonsense' (strata --help lists the commands)"},
      {"train --nonsense", "unknown option '--nonsense' (strata train --help lists the options)"},
      {"train a.toml b.toml", "unexpected argument 'b.toml' (strata train --help lists the options)"},
      {"lab verfy", "unknown command 'verfy'; did you mean verify? (strata lab --help lists the commands)"},
      {"lab compare sofmax", "there is no op or family 'sofmax' (did you mean 'softmax'? strata ops lists all)"},
      {"lab bench -x", "unknown option '-x' (strata lab bench --help lists the options)"},
      {"train --steps 0", "--steps: wants an integer of at least 1, got '0' (strata train --help lists the options)"},
      {"train --steps many",
       "--steps: wants an integer of at least 1, got 'many' (strata train --help lists the options)"},
      {"train --seed 1.5", "--seed: wants an integer of at least 0, got '1.5' (strata train --help lists the options)"},
      {"train --device gpu", "--device: wants cpu, cuda or cuda:N, got 'gpu' (strata train --help lists the options)"},
      {"train --memory-timeline /no/such/x.html",
       "--memory-timeline: cannot write into '/no/such': No such file or directory (strata train --help lists the "
       "options)"},
      {"generate --checkpoint x --top-p 2",
       "--top-p: wants a number from 1e-06 to 1, got '2' (strata generate --help lists the options)"},
      {"train --resume --out /no/such/run",
       "'/no/such/run' holds no run to go on with: give its folder as --out, or --data to begin one"}};
  for (const auto& [arguments, text] : cases) {
    const Result r = strata(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_EQ(r.output, std::string("strata: error: ") + text + "\n");
  }
}

TEST(Cli, HelpNamesTheWholeCommandAndFitsTheScreen) {
  for (const char* command :
       {"train", "generate", "chat", "embed", "estimate", "ops", "info", "lab", "lab verify", "lab bench", "lab compare"}) {
    const Result r = strata(std::string(command) + " --help");
    EXPECT_EQ(r.status, 0);
    EXPECT_NE(r.output.find(std::string("Usage: strata ") + command + " "), std::string::npos) << r.output;
    for (size_t begin = 0; begin < r.output.size();) {
      const size_t end = r.output.find('\n', begin);
      EXPECT_LE(end - begin, 110u) << r.output.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(Cli, OpsListsAndTells) {
  const Result list = strata("ops");
  EXPECT_EQ(list.status, 0);
  for (const char* word : {"softmax", "elementwise", "gradient", "families"})
    EXPECT_NE(list.output.find(word), std::string::npos) << word;
  const Result one = strata("ops softmax");
  EXPECT_EQ(one.status, 0);
  for (const char* word :
       {"softmax(Tensor x, int dim) -> Tensor", "Arguments", "Dtypes", "Gradient", "Cost", "Example"})
    EXPECT_NE(one.output.find(word), std::string::npos) << word << "\n" << one.output;
  const Result json = strata("ops --json softmax exp");
  EXPECT_EQ(json.status, 0);
  EXPECT_TRUE(json.output.starts_with(R"({"version":1,"dtypes":[{"name":"u8",)")) << json.output;
  EXPECT_NE(json.output.find(R"("ops":[{"name":"exp",)"), std::string::npos) << json.output;
  const Result unknown = strata("ops sofmax");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.output.find("did you mean 'softmax'"), std::string::npos) << unknown.output;
}

TEST(Cli, PluginsForEveryCommand) {
  const std::string plugin = "--plugin " STRATA_EXAMPLE_PLUGIN " ";
  EXPECT_EQ(strata("ops squared_relu").status, 2);
  const Result told = strata(plugin + "ops squared_relu");
  EXPECT_EQ(told.status, 0) << told.output;
  EXPECT_NE(told.output.find("squared_relu(Tensor x, Tensor bias, float scale=1) -> Tensor"), std::string::npos);
  const Result listed = strata("ops " + plugin);  // behind the command's name, too
  EXPECT_EQ(listed.status, 0) << listed.output;
  EXPECT_NE(listed.output.find("squared_relu (1)"), std::string::npos) << listed.output;
  const Result verified = strata(plugin + "lab verify squared_relu softmax");
  EXPECT_EQ(verified.status, 0) << verified.output;
  EXPECT_NE(verified.output.find("2 ops"), std::string::npos) << verified.output;
  const Result timed = strata(plugin + "lab bench --no-limits --seconds 0.001 squared_relu");
  EXPECT_EQ(timed.status, 0) << timed.output;
  EXPECT_NE(timed.output.find("backward"), std::string::npos) << timed.output;
  const Result missing = strata("--plugin /no/such.so ops");
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.output, "strata: error: cannot open /no/such.so: No such file or directory\n");
  EXPECT_EQ(strata("--plugin").status, 2);
}

TEST(Cli, LabVerifiesAndTimes) {
  const std::string json = ::testing::TempDir() + "strata_lab.json";
  const Result verify = strata("lab verify add softmax --dtype f32,f64 --json " + json);
  EXPECT_EQ(verify.status, 0);
  EXPECT_NE(verify.output.find("2 ops"), std::string::npos) << verify.output;
  EXPECT_NE(verify.output.find("all verified"), std::string::npos) << verify.output;
  const Result bench = strata("lab bench add --seconds 0.01 --no-limits --json " + json);
  EXPECT_EQ(bench.status, 0);
  EXPECT_NE(bench.output.find("backward"), std::string::npos) << bench.output;
  std::FILE* f = std::fopen(json.c_str(), "rb");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(std::fgetc(f), '{');
  std::fclose(f);
  std::remove(json.c_str());
  EXPECT_EQ(strata("lab verify add --json /no/such/folder/x.json").status, 2);
  EXPECT_EQ(strata("lab verify add --dtype f17").status, 2);
  const Result placed = strata("lab verify linear softmax --ranks 4");
  EXPECT_EQ(placed.status, 0) << placed.output;
  EXPECT_NE(placed.output.find("placement changes no result"), std::string::npos) << placed.output;
  EXPECT_EQ(strata("lab verify add --ranks 1").status, 2);
  const std::string plan = ::testing::TempDir() + "strata_plan.jsonl";
  const Result compare = strata("lab compare softmax --device cuda --plan " + plan);
  EXPECT_EQ(compare.status, 0) << compare.output;
  EXPECT_NE(compare.output.find("cases of 1 ops in " + plan), std::string::npos) << compare.output;
  EXPECT_TRUE(strata("lab compare softmax").output.starts_with("{\"op\":\"softmax\"")) << compare.output;
  EXPECT_EQ(strata("lab verify nothing_like_it").status, 2);
  EXPECT_EQ(strata("lab").status, 2);
}

TEST(Cli, LabVerifiesInProcesses) {
  const std::string ops = " abs softmax gather matmul cat ";
  const Result alone = strata("lab verify --dtype f32,i64" + ops);
  const Result shared = strata("lab verify --dtype f32,i64 --jobs 3" + ops);
  EXPECT_EQ(alone.status, 0) << alone.output;
  EXPECT_EQ(shared.status, 0);
  EXPECT_EQ(shared.output, alone.output);
  EXPECT_EQ(strata("lab verify abs --jobs 0").status, 2);

  const Result slow = strata("lab verify einsum abs --jobs 2 --limit 0.05");
  EXPECT_EQ(slow.status, 1);
  for (const char* text : {"einsum [samples", "took longer than 0.05 s", "ops FAILED"})
    EXPECT_NE(slow.output.find(text), std::string::npos) << text << "\n" << slow.output;
}

TEST(Cli, LabNamesTheOpWhoseProcessWasKilled) {
  const Result r = strata(
      "lab verify einsum --jobs 2 & p=$!; for i in $(seq 200); do sleep 0.02;"
      "c=$(grep -sl \"^PPid:[[:space:]]*$p$\" /proc/[0-9]*/status | cut -d/ -f3);"
      "[ -n \"$c\" ] && kill -KILL $c && break; done; wait $p");
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.output.find("einsum [samples"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("was ended by signal 9"), std::string::npos) << r.output;
}

TEST(Cli, LabThatIsStoppedShowsWhatIsDone) {
  // Once it handles SIGTERM (bit 14 of what it catches), it has begun.
  const std::string stop =
      " & p=$!; for i in $(seq 1000); do sleep 0.02; c=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$p/status);"
      "[ $((0x0$c & 0x4000)) -ne 0 ] && break; done; sleep 0.3; kill -TERM $p; wait $p";
  const Result bench = strata("lab bench --no-limits --seconds 0.5" + stop);
  EXPECT_EQ(bench.status, 1);
  EXPECT_NE(bench.output.find("stopped after"), std::string::npos) << bench.output;
  EXPECT_NE(bench.output.find("of limit"), std::string::npos) << bench.output;
  const Result verify = strata("lab verify --jobs 2" + stop);
  EXPECT_EQ(verify.status, 1);
  EXPECT_NE(verify.output.find("stopped before its turn"), std::string::npos) << verify.output;
}

TEST(Cli, ErrorsShowNoNamesFromInside) {
  for (const auto& [arguments, names] : {std::pair{"lab verify add --dtype f17", "parse_dtype"},
                                         {"lab bench add --dtype f17", "parse_dtype"},
                                         {"ops --markdown /dev/null/x", "make_directories"},
                                         {"--plugin /dev/null ops", "load_plugin"},
                                         {"report /no/such", "read_file"},
                                         {"generate --checkpoint /no/such", "find_run"}}) {
    const Result r = strata(arguments);
    EXPECT_NE(r.status, 0) << arguments;
    EXPECT_TRUE(r.output.starts_with("strata: error: ")) << r.output;
    EXPECT_EQ(r.output.find(names), std::string::npos) << r.output;
  }
}

TEST(Cli, FullDiskIsAFailure) {
  const Result r = strata("info --no-peaks >/dev/full");
  EXPECT_EQ(r.status, 1);
}

TEST(Cli, InfoNamesMachineAndLibraries) {
  const Result r = strata("info --no-peaks");
  EXPECT_EQ(r.status, 0);
  for (const char* word : {"Processor", "Memory", "oneDNN", "Highway", "GiB"})
    EXPECT_NE(r.output.find(word), std::string::npos) << word << "\n" << r.output;
}

}  // namespace
}  // namespace strata::cli
