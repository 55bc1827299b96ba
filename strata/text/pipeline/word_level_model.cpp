// WordLevel: a word is a token or unknown.

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"

namespace strata::text::detail {
namespace {

class WordLevelModel final : public VocabularyModel {
 public:
  explicit WordLevelModel(const ModelReader& reader)
      : VocabularyModel(reader.vocabulary(kMaxWordBytes)),
        unk_token_(reader.text("unk_token")),
        unk_(vocabulary_.find(unk_token_)) {}

  std::string_view type() const override { return kWordLevelType.name; }

  void encode(std::string_view word, std::vector<int32_t>& ids) const override {
    int32_t id = vocabulary_.find(word);
    if (id == Vocabulary::kNone) id = unk_;
    check(id != Vocabulary::kNone, "WordLevel", "no token is ", io::quote(word), ", and the unknown token ",
          io::quote(unk_token_), " is not in the vocabulary");
    ids.push_back(id);
  }

  nlohmann::json to_json() const override {
    return {{"type", type()}, {"vocab", vocabulary_json(vocabulary_)}, {"unk_token", unk_token_}};
  }

 private:
  std::string unk_token_;
  int32_t unk_;
};

}  // namespace

const TokenModelType kWordLevelType = {
    .name = "WordLevel",
    .fields = {"unk_token", "vocab"},
    .parse = [](const ModelReader& reader) -> std::unique_ptr<TokenModel> {
      return std::make_unique<WordLevelModel>(reader);
    },
    .train = train_word_level_model,
};

}  // namespace strata::text::detail
