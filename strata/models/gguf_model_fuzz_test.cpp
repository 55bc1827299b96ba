// The fuzz target of whole GGUF files over files that are made here, with vocabularies, and mutations of those.

#include <gtest/gtest.h>

#include "strata/core/fuzz_test_util.h"
#include "strata/io/files.h"
#include "strata/io/weight_cases_test_util.h"
#include "strata/models/gguf_model.h"
#include "strata/text/pipeline/gguf_vocabulary.h"

#include "strata/models/gguf_model_fuzz.cpp"

namespace strata {
namespace {

// A vocabulary of single bytes, or of pieces, and a few tokens made of them.
text::GgufVocabulary vocabulary(std::string_view model) {
  text::GgufVocabulary v{.model = std::string(model)};
  const bool pieces = model == "llama";
  v.tokens = {pieces ? "<unk>" : "<|x|>", "<s>", "</s>"};
  v.token_types = {pieces ? 2 : 3, 3, 3};
  for (const char* token : {"a", "n", "d", "an", "t", "e", "x", "1", "2", "12", ",", "."}) {
    v.tokens.emplace_back(token);
    v.token_types.push_back(1);
  }
  if (pieces) {
    v.tokens.emplace_back("\xe2\x96\x81");
    v.token_types.push_back(1);
    for (size_t i = 0; i < v.tokens.size(); ++i) v.scores.push_back(-static_cast<float>(i));
  } else {
    v.pre = "llama-bpe";
    v.merges = {"a n", "1 2"};
  }
  v.bos = 1, v.eos = 2;
  return v;
}

// Files of small models: of each kind of vocabulary, with divisors of frequencies, experts, windows, blocks.
std::vector<std::string> corpus() {
  const io::TempDir dir;
  std::vector<std::string> files;
  const std::tuple<const char*, size_t, const char*, const char*> kinds[] = {
      {"llama", 4, "gpt2", "F16"}, {"gemma2", 0, "llama", "F16"}, {"qwen3_moe", 1, "gpt2", "Q8_0"}};
  for (const auto& [name, sample, model, type] : kinds) {
    const Family& family = family_named(name);
    const ModelSpec spec = read_spec(family, ConfigReader(family.samples.at(sample).config, "config.json"));
    const std::string tokenizer = dir / "tokenizer.gguf", file = dir / "model.gguf";
    io::GgufMetadata metadata;
    set_gguf_vocabulary(vocabulary(model), metadata);
    metadata.set("tokenizer.chat_template", io::GgufValue::of("{{ messages }}"));
    io::GgufWriter(tokenizer, metadata, {}).commit();
    save_gguf(LanguageModel(spec), family, spec, file, {.type = type, .companions = tokenizer});
    files.push_back(io::read_file(file));
  }
  return files;
}

// Half of the mutations change the part before the tensors alone, which decides what is loaded.
TEST(GgufModelFuzz, WholeFilesWithVocabularies) {
  const auto feed = [](const std::string& s) {
    return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(s.data()), s.size());
  };
  const std::vector<std::string> files = corpus();
  for (const std::string& file : files) {
    EXPECT_EQ(feed(file), 0);
    const io::TempDir dir;
    io::write_file(dir / "x.gguf", file);
    EXPECT_NO_THROW(load_pretrained(dir / "x.gguf"));
    EXPECT_NO_THROW(text::load_tokenizer_folder(dir / "x.gguf"));
  }
  for (fuzz::Rounds round(400); round.next();) {
    const std::string& file = files[round.below(files.size())];
    const auto header = static_cast<size_t>(
        io::parse_gguf(std::as_bytes(std::span(file.data(), file.size())), "corpus").entries.front().offset);
    const std::string changed = round.below(2) == 0 ? io::mutated(file, round.random)
                                                  : io::mutated(file.substr(0, header), round.random) + file.substr(header);
    ASSERT_EQ(feed(changed), 0) << round.number();
  }
}

}  // namespace
}  // namespace strata
