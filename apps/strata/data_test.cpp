#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/data/token_file.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::cli {
namespace {
namespace fs = std::filesystem;
using io::TempDir;

std::string rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "{\"id\": " + std::to_string(i) + ", \"text\": \"the quick brown fox number " + std::to_string(i) + "\"}\n";
  return text;
}

TEST(Data, TokensThatATrainingTakes) {
  TempDir dir;
  io::write_file(dir / "a.jsonl", rows(500));
  io::write_file(dir / "b.jsonl", rows(300));
  const Result made = strata("data '" + dir.path() + "/*.jsonl' --vocab 300 --separator '<|end|>' --out " + dir / "t");
  ASSERT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find("800 documents"), std::string::npos) << made.output;
  EXPECT_NE(made.output.find("file 2/2"), std::string::npos) << made.output;
  const data::TokenFile file(dir / "t");
  EXPECT_EQ(file.documents(), 800);
  EXPECT_EQ(file.vocab_size(), 300);
  EXPECT_EQ(file.separator(), 299);
  const Result shown = strata("data --show " + dir / "t");
  EXPECT_EQ(shown.status, 0);
  for (const std::string& part : {file.tokenizer(), std::string("documents  800"), std::string("separator  299"),
                                  std::string("every checksum is right")})
    EXPECT_NE(shown.output.find(part), std::string::npos) << shown.output;

  const std::string train =
      "train --quiet --steps 2 --set model.layers=1 model.dim=16 model.heads=2 model.context=16 "
      "train.batch=2 --out " +
      dir / "run" + " --data " + dir / "t";
  const Result trained = strata(train);
  EXPECT_EQ(trained.status, 0) << trained.output;
  EXPECT_FALSE(fs::exists(dir / "run/data/train.tokens"));
  EXPECT_EQ(strata("train --quiet --resume --steps 3 --out " + dir / "run").status, 0);
  // tokens of another tokenizer under the same name
  ASSERT_EQ(strata("data " + dir / "a.jsonl" + " --vocab 290 --overwrite --quiet --out " + dir / "t").status, 0);
  const Result refused = strata("train --quiet --resume --steps 4 --out " + dir / "run");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.output.find("was made with the tokenizer " + data::TokenFile(dir / "t").tokenizer() +
                                ", of 290 ids; this one is " + file.tokenizer()),
            std::string::npos)
      << refused.output;
  fs::remove(dir / "t.tokenizer.json");
  EXPECT_NE(strata("train --quiet --steps 1 --out " + dir / "other" + " --data " + dir / "t").output.find("is gone"),
            std::string::npos);
}

TEST(Data, BadUsageSaysWhatIsWanted) {
  TempDir dir;
  io::write_file(dir / "a", "text");
  const std::pair<std::string, const char*> cases[] = {
      {"data", "no text to tokenise"},
      {"data " + dir / "a", "--out names the file"},
      {"data " + dir / "a" + " --format csv --out x", "--format: csv not in {auto,whole,paragraphs,lines,jsonl}"},
      {"data " + dir / "a" + " --utf8 maybe --out x", "--utf8: maybe not in {refuse,replace,keep}"},
      {"data " + dir / "a" + " --out " + dir / "a", "is there already; --overwrite builds it anew"},
      {"data " + dir / "a" + " --threads -1 --out x", "--threads: wants an integer from 0 to 1024"},
  };
  for (const auto& [arguments, text] : cases) {
    const Result r = strata(arguments);
    EXPECT_EQ(r.status, 2) << arguments;
    EXPECT_NE(r.output.find(text), std::string::npos) << r.output;
  }
  EXPECT_NE(strata("data " + dir / "none" + " --out " + dir / "x").output.find("No such file"), std::string::npos);
  EXPECT_NE(strata("data " + dir / "a" + " --tokenizer byte --separator '<s>' --out " + dir / "x")
                .output.find("no special token '<s>'"),
            std::string::npos);
  EXPECT_EQ(strata("data --show " + dir / "a").status, 1);
  EXPECT_FALSE(fs::exists(dir / "x"));
}

TEST(Data, AKilledOneGoesOn) {
  TempDir dir;
  std::string text = rows(20'000);
  while (text.size() < (size_t{150} << 20)) text += text;
  io::write_file(dir / "a.jsonl", text);
  const std::string command = "data --quiet --tokenizer byte --threads 1 " + dir / "a.jsonl" + " --out ";
  {
    Child child({"data", "--quiet", "--tokenizer", "byte", "--threads", "1", dir / "a.jsonl", "--out", dir / "t"});
    while (child.running() && !fs::exists(dir / "t.parts/000000.section"))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    child.kill(SIGKILL);
    child.wait();
  }
  ASSERT_TRUE(fs::exists(dir / "t.parts/000000.section"));
  ASSERT_FALSE(fs::exists(dir / "t"));
  const Result other = strata(command + dir / "t");
  ASSERT_EQ(other.status, 0) << other.output;
  ASSERT_EQ(strata("data --quiet --tokenizer byte --threads 2 " + dir / "a.jsonl" + " --out " + dir / "u").status, 0);
  EXPECT_TRUE(io::read_file(dir / "t") == io::read_file(dir / "u"));
  EXPECT_FALSE(fs::exists(dir / "t.parts"));
}

}  // namespace
}  // namespace strata::cli
