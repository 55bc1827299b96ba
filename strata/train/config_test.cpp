#include "strata/train/config.h"

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/fuzz_test_util.h"
#include "strata/train/run.h"

namespace strata {
namespace {

// The message of the error that `f` throws; fails where there is none.
template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// The rules' records give the keys; a run that says nothing trains as it always did.
TEST(Config, DefaultsOfTheRulesStay) {
  OptimConfig o;
  const std::map<std::string, double> wanted = {{"beta1", 0.9},
                                                {"beta2", 0.95},
                                                {"eps", 1e-8},
                                                {"momentum", 0.9},
                                                {"alpha", 0.99},
                                                {"rho", 0.9},
                                                {"lr_decay", 0},
                                                {"etaminus", 0.5},
                                                {"etaplus", 1.2},
                                                {"step_size_min", 1e-6},
                                                {"step_size_max", 50},
                                                {"lambd", 1e-4},
                                                {"asgd_alpha", 0.75},
                                                {"t0", 1e6},
                                                {"momentum_decay", 4e-3},
                                                {"initial_accumulator_value", 0}};
  for (const auto& [key, value] : wanted) EXPECT_EQ(o.number(key), value) << key;
  EXPECT_TRUE(o.flag("decoupled_weight_decay"));
  for (const char* key : {"nesterov", "amsgrad", "centered"}) EXPECT_FALSE(o.flag(key)) << key;
  EXPECT_EQ(o.rule.size(), wanted.size() + 4);
  EXPECT_THROW(o.number("nesterov"), ValueError);
  EXPECT_THROW(o.flag("beta9"), ValueError);
}

// [memory]: budgets as users write them, and what does not fit together.
TEST(Config, Memory) {
  const TrainConfig c = parse_config(
      "[memory]\ndevice = \"20GiB\"\nhost = \"100 GiB\"\ndisk = \"/a:/b\"\nstate = \"disk\"\n[train]\ndevice = "
      "\"cuda\"\n");
  EXPECT_EQ(c.memory.budget(), (memory::Budget{int64_t{20} << 30, int64_t{100} << 30, {"/a", "/b"}}));
  EXPECT_EQ(parse_config(to_toml(c)), c);
  EXPECT_TRUE(c.memory.any());
  EXPECT_FALSE(TrainConfig{}.memory.any());
  EXPECT_FALSE(TrainConfig{}.memory.budget().any());
  const auto of = [](const char* text) { return message([&] { parse_config(text, "m.toml"); }); };
  EXPECT_EQ(of("[memory]\ndevice = \"20G\"\n"),
            "m.toml:2: memory.device: '20G' has no unit that is known: write bytes as in 20GiB, 512MiB, 1.5TB or 4096");
  EXPECT_EQ(of("[memory]\nstate = \"disk\"\n"), "m.toml:2: memory.state = disk wants memory.disk: a folder on it");
  EXPECT_EQ(of("[memory]\nstate = \"host\"\n"),
            "m.toml:2: memory.state = host is for cards: the memory of train.device = cpu is the host's");
  EXPECT_EQ(of("[memory]\nhost = \"1GiB\"\n"),
            "m.toml:2: memory.host is beside a card: with train.device = cpu say memory.device");
  EXPECT_EQ(of("[memory]\ndelayed_update = true\n"), "m.toml:2: memory.delayed_update wants memory.update = cpu");
  EXPECT_NE(of("[memory]\nupdate = \"gpu\"\n").find("auto device cpu split"), std::string::npos)
      << of("[memory]\nupdate = \"gpu\"\n");
}

// Any of the library's schedules, with its options as text; what is left out is the run's.
TEST(Config, SchedulesHaveTheirOptions) {
  const auto rate = [](std::vector<std::string> overrides, int64_t step) {
    overrides.insert(overrides.begin(), {"train.lr=0.8", "train.steps=100", "train.warmup=10", "train.min_lr=0.5"});
    const TrainConfig c = parse_config("", "c", overrides);
    EXPECT_EQ(parse_config(to_toml(c)), c);
    return make_schedule(c.optim, c.steps)(step);
  };
  const std::string steps = "train.schedule=StepLR", options = "train.schedule_options=\"step_size=30 gamma=0.25\"";
  EXPECT_DOUBLE_EQ(rate({steps, options}, 4), 0.4);
  EXPECT_DOUBLE_EQ(rate({steps, options}, 39), 0.8);
  EXPECT_DOUBLE_EQ(rate({steps, options}, 40), 0.2);
  EXPECT_DOUBLE_EQ(rate({"train.schedule=CosineAnnealingLR"}, 55), 0.6);  // half way down to min_lr
  EXPECT_DOUBLE_EQ(rate({"train.schedule=CosineAnnealingLR"}, 100), 0.4);
  EXPECT_DOUBLE_EQ(rate({"train.schedule=OneCycleLR"}, 29), 0.8);  // no warm-up before it
  EXPECT_DOUBLE_EQ(rate({"train.schedule=OneCycleLR"}, 0), 0.8 / 25);
  EXPECT_DOUBLE_EQ(rate({"train.schedule=OneCycleLR", "train.schedule_options=div_factor=4"}, 0), 0.2);
  EXPECT_DOUBLE_EQ(rate({"train.schedule=PolynomialLR"}, 55), 0.4);
  EXPECT_DOUBLE_EQ(rate({"train.schedule=linear"}, 55), 0.6);
  EXPECT_DOUBLE_EQ(rate({"train.schedule=cosine", "train.schedule_options=warmup=0"}, 0), 0.8);
  const auto refused = [](std::vector<std::string> overrides) {
    return message([&] { parse_config("", "c", overrides); });
  };
  EXPECT_NE(refused({steps}).find("train.schedule_options: StepLR: needs step_size"), std::string::npos);
  EXPECT_NE(refused({steps, "train.schedule_options=size=3"}).find("no option 'size'"), std::string::npos);
  EXPECT_NE(refused({"train.schedule=StepsLR"}).find("StepLR"), std::string::npos);
}

TEST(Config, GradientsInBf16WantAutocastAndOneBatch) {
  EXPECT_EQ(parse_config("", "c", {"train.dtype=\"bf16\"", "train.grad_dtype=\"bf16\""}).grad_dtype, "bf16");
  for (const char* more : {"train.dtype=\"f32\"", "train.accumulate=2"})
    EXPECT_THROW(parse_config("", "c", {"train.dtype=\"bf16\"", "train.grad_dtype=\"bf16\"", more}), ValueError)
        << more;
}

TEST(Config, WeightsInBf16WantAutocast) {
  const TrainConfig c = parse_config("", "c", {"train.dtype=\"bf16\"", "train.param_dtype=\"bf16\""});
  EXPECT_EQ(c.param_dtype, "bf16");
  EXPECT_EQ(c.optim.param_update, "stochastic");
  EXPECT_THROW(parse_config("", "c", {"train.param_dtype=\"bf16\""}), ValueError);
  EXPECT_THROW(parse_config("", "c", {"train.low_state=true", "train.param_update=\"master\""}), ValueError);
  EXPECT_THROW(parse_config("", "c", {"train.low_state=true", "train.param_update=\"compensated\""}), ValueError);
  EXPECT_THROW(parse_config("", "c", {"train.low_state=true", "train.state_8bit=true"}), ValueError);
  EXPECT_THROW(parse_config("", "c", {"train.optimizer=\"adafactor\"", "train.param_update=\"compensated\""}),
               ValueError);
  EXPECT_TRUE(parse_config("", "c", {"train.state_8bit=true"}).optim.state_8bit);
  EXPECT_THROW(parse_config("", "c", {"train.param_update=\"up\""}), ValueError);
}

TEST(Config, DefaultsAreValidAndEmptyTextGivesThem) {
  EXPECT_EQ(parse_config(""), TrainConfig());
  EXPECT_EQ(load_config(""), TrainConfig());
  EXPECT_NO_THROW(validate(TrainConfig()));
}

TEST(Config, ReadsEverySectionAndType) {
  const TrainConfig c = parse_config(R"(
[model]
family = "llama"
layers = 6
kv_heads = 2
dropout = 0
tied_embeddings = false
[data]
path = "a \"b\""
[train]
lr = 3e-4
optimizer = "muon"
seed = 7
)");
  EXPECT_EQ(c.model.family, "llama");
  EXPECT_EQ(c.model.layers, 6);
  EXPECT_EQ(c.model.kv_heads, 2);
  EXPECT_EQ(c.model.dropout, 0.0);
  EXPECT_FALSE(c.model.tied_embeddings);
  EXPECT_EQ(c.data.path, "a \"b\"");
  EXPECT_EQ(c.optim.lr, 3e-4);
  EXPECT_EQ(c.optim.optimizer, "muon");
  EXPECT_EQ(c.seed, 7);
}

TEST(Config, OverridesWinOverTheFile) {
  const TrainConfig c = parse_config(
      "[model]\nlayers = 2", "f",
      {"model.layers=3", "train.dtype=bf16", "train.lr = 1e-2", "train.sample_prompt=\"a\\nb\"", "data.path=/x = y"});
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.dtype, "bf16");
  EXPECT_EQ(c.optim.lr, 1e-2);
  EXPECT_EQ(c.sample_prompt, "a\nb");
  EXPECT_EQ(c.data.path, "/x = y");
}

TEST(Config, MessagesSayWhereAndWhat) {
  const auto of = [](const char* text, const std::vector<std::string>& overrides = {}) {
    return message([&] { parse_config(text, "gpt.toml", overrides); });
  };
  EXPECT_EQ(of("[model]\n\nlayer = 3"), "gpt.toml:3: unknown key 'model.layer'; did you mean model.layers?");
  EXPECT_EQ(of("[model]\nlr = 3.0"), "gpt.toml:2: unknown key 'model.lr'; did you mean train.lr?");
  EXPECT_EQ(of("lr = 3.0"), "gpt.toml:1: unknown key 'lr'; did you mean train.lr?");
  EXPECT_EQ(of("[model]\nqqqqqqqqqq = 3"),
            "gpt.toml:2: unknown key 'model.qqqqqqqqqq'; strata train --help lists the keys");
  EXPECT_EQ(of("[modle]\ndim = 3"),
            "gpt.toml:1: unknown section 'modle'; the sections are [model], [tune], [data], [train], [memory] and [parallel]");
  EXPECT_EQ(of("[model]\ndim = \"wide\""), "gpt.toml:2: model.dim wants an integer, got the text 'wide'");
  EXPECT_EQ(of("[model]\ndim = 2.5"), "gpt.toml:2: model.dim wants an integer, got the number 2.5");
  EXPECT_EQ(of("[model]\ndim = 0"), "gpt.toml:2: model.dim = 0 is out of range, allowed is 1 to 65536");
  EXPECT_EQ(of("[train]\nlr = nan"), "gpt.toml:2: train.lr = nan is out of range, allowed is 0 to 1000");
  EXPECT_EQ(of("[train]\noptimizer = \"adma\""),
            "gpt.toml:2: train.optimizer = 'adma' is not one of: adadelta adafactor adagrad adam adamax adamw asgd "
            "lion muon nadam "
            "radam rmsprop rprop sgd");
  EXPECT_EQ(of("[model]\ndim = 100\nheads = 8"), "gpt.toml:3: model.heads = 8 does not divide model.dim = 100");
  EXPECT_EQ(of("[model]\nkv_heads = 3"), "gpt.toml:2: model.kv_heads = 3 does not divide model.heads = 8");
  EXPECT_EQ(of("[model]\nfamily = \"llama\"\ndim = 24"),
            "gpt.toml:3: rotary positions turn pairs of numbers, but model.dim / model.heads = 3 is odd");
  EXPECT_EQ(of("", {"model.vocab=100"}), "--set: model.vocab = 100 is less than the 256 tokens of the byte tokenizer");
  EXPECT_EQ(of("", {"model.layers"}), "--set: wants key=value, got 'model.layers'");
  EXPECT_EQ(of("", {"model.layers=1e3"}), "--set: model.layers wants an integer, got '1e3'");
  EXPECT_EQ(of("", {"data.path=\xff"}), "--set: data.path = '\\xff' is not UTF-8");
  EXPECT_TRUE(of("[model\n").starts_with("gpt.toml:1:")) << of("[model\n");
}

TEST(Config, CharactersPastAsciiStandInQuotesAndComments) {
  EXPECT_EQ(parse_config("# é\n[data]\npath = \"é\" # ü\n").data.path, "é");
  EXPECT_EQ(parse_config("[data]\npath = 'a\\' # \"é").data.path, "a\\");
  EXPECT_EQ(parse_config("[data]\npath = \"a\\\"é\"").data.path, "a\"é");
  EXPECT_EQ(parse_config("[data]\npath = \"\"\"\na\"é\"\"\"").data.path, "a\"é");
  const auto of = [](const char* text) { return message([&] { parse_config(text, "f"); }); };
  EXPECT_EQ(of("[model]\nläyers = 3"), "f:2: characters other than ASCII belong in quotes");
  EXPECT_EQ(of("[model]\n# \xff"), "f:2: not UTF-8");
  // toml++ asserts on these two.
  EXPECT_THROW(parse_config("[train]\nstrain\xd2\x94 = 5000"), Error);
  EXPECT_THROW(parse_config("[model]\ndim = 1979-05-27 "), Error);
}

TEST(Config, TextThatNestsTooDeepIsRefused) {
  std::string deep = "[model]\n";
  for (int i = 0; i < 100000; ++i) deep += "a.";
  EXPECT_THROW(parse_config(deep + "a = 1"), ValueError);
  EXPECT_THROW(parse_config("a = " + std::string(100000, '[')), ValueError);
  EXPECT_THROW(parse_config(std::string(2 << 20, '#')), ValueError);
}

TEST(Config, FilesThatCannotBeRead) {
  EXPECT_NE(message([] { load_config("/nonexistent.toml"); }).find("No such file"), std::string::npos);
  EXPECT_NE(message([] { load_config("/tmp"); }).find("directory"), std::string::npos);
}

TEST(Config, TheShippedFilesAreValid) {
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  if (source == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(source) + "/configs")) {
    EXPECT_NO_THROW(load_config(entry.path().string())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(Config, WrittenTextReadsBackTheSame) {
  TrainConfig c;
  c.model = {.family = "llama", .layers = 3, .dim = 96, .heads = 6, .kv_heads = 3, .dropout = 0.1};
  c.data.path = "quote \" backslash \\ newline \n tab \t bell \a é";
  c.optim.lr = 0.1 + 0.2;
  c.optim.number("eps") = 1e-30;
  c.seed = 9007199254740991;
  EXPECT_EQ(parse_config(to_toml(c)), c);
}

TEST(Config, TheTableIsWholeAndWithoutRepeats) {
  std::set<std::string_view> names;
  std::set<void*> fields;
  TrainConfig c;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(fields.insert(key.field(c)).second) << key.name << " sets another key's field";
    EXPECT_NE(config_help().find(std::string("  ") + std::string(key.name) + " "), std::string::npos);
    EXPECT_NE(config_markdown().find("`" + std::string(key.name) + "`"), std::string::npos);
  }
  std::string help = config_help(110);
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 110u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

// Text with a few random edits: bytes flipped, cut, doubled, replaced by pieces that matter to TOML.
std::string mutate(std::string s, std::mt19937_64& rng) {
  static const char* kPieces[] = {
      "=",       "[",          "]",     "[[",          "\"\"\"", "'''",   "\n",
      "{",       "}",          ".",     "nan",         "-inf",   "1e999", "0x",
      "\\u0000", "\xff",       "\xc3",  "#",           ",",      "-1",    "99999999999999999999",
      "true",    "1979-05-27", "model", "heads = 0\n", "\r",     "\\"};
  const int edits = 1 + static_cast<int>(rng() % 3);
  for (int i = 0; i < edits && !s.empty(); ++i) {
    const size_t at = rng() % s.size();
    const size_t n = std::min<size_t>(rng() % 20, s.size() - at);
    switch (rng() % 8) {
      case 0:
        s[at] = static_cast<char>(rng());
        break;
      case 1:
        s.erase(at, n);
        break;
      case 2:
        s.insert(at, s.substr(at, n));
        break;
      case 3:
        s.insert(at, kPieces[rng() % std::size(kPieces)]);
        break;
      case 4:
        s.replace(at, n, kPieces[rng() % std::size(kPieces)]);
        break;
      default:  // another number
        if (const size_t digit = s.find_first_of("0123456789", at); digit != std::string::npos)
          s[digit] = static_cast<char>('0' + rng() % 10);
    }
  }
  return s;
}

TEST(Config, MutatedTextsParseOrAreRefused) {
  TrainConfig other;
  other.optim.optimizer = "asgd";
  other.optim.number("t0") = 100;
  const std::string wholes[] = {to_toml(TrainConfig()), to_toml(other)};
  int parsed = 0, refused = 0;
  for (fuzz::Rounds round(1000); round.next();) {
    const std::string text = mutate(wholes[round.number() % 2], round.random);
    try {
      const TrainConfig c = parse_config(text);
      EXPECT_NO_THROW(validate(c)) << text;
      EXPECT_EQ(parse_config(to_toml(c)), c) << text;
      ++parsed;
    } catch (const Error& e) {
      EXPECT_GT(std::string(e.what()).size(), 10u);
      ++refused;
    }
  }
  // Both ways are taken, or the edits are not what they should be.
  EXPECT_GT(parsed, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace strata
