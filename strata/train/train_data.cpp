#include "strata/train/train_data.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "strata/data/token_file.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"
#include "strata/text/bpe.h"
#include "strata/text/tokenizer_folder.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/fine_tune_inl.h"

namespace strata {
namespace {

// Learning byte pairs wants a sample of the text, not all of it.
constexpr uint64_t kBpeBytes = uint64_t{64} << 20;

std::string read_start(const std::string& path, uint64_t limit) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::recursive_directory_iterator();
         it.increment(error))
      if (it->is_regular_file(error)) files.push_back(it->path().string());
    check<IoError>(!error, path, "cannot be read: ", error.message());
    std::ranges::sort(files);
  } else {
    files.push_back(path);
  }
  std::string text;
  for (const std::string& file : files) {
    if (text.size() >= limit) break;
    if (fs::file_size(file, error) == 0 && !error && files.size() > 1) continue;
    const io::InputFile input(file);
    const std::string part = input.read(0, std::min<uint64_t>(input.size(), limit - text.size()));
    if (files.size() > 1 && std::string_view(part).substr(0, 8192).find('\0') != std::string_view::npos) continue;
    text += part;
  }
  check<IoError>(!text.empty(), path, "it holds no text");
  return text;
}

// Of a data.tokenizer that is a path.
text::TokenizerFolder named_tokenizer(const DataConfig& data) {
  std::error_code error;
  check<IoError>(std::filesystem::exists(data.tokenizer, error), "data.tokenizer", "'", data.tokenizer,
                 "' is none of byte, bpe and ids, and there is no such file or folder of a tokenizer");
  return text::load_tokenizer_at(data.tokenizer);
}

// The tokenizer that `strata data` wrote beside its tokens.
std::shared_ptr<text::Tokenizer> tokenizer_of_token_file(const std::string& path) {
  const std::string beside = path + ".tokenizer.json";
  std::error_code error;
  check<IoError>(std::filesystem::exists(beside, error), path,
                 "is a file of tokens, and the tokenizer that strata data wrote beside it, '", beside, "', is gone");
  return text::load_tokenizer(beside);
}

}  // namespace

std::shared_ptr<text::Tokenizer> make_tokenizer(const DataConfig& data, int64_t vocab) {
  if (data.tokenizer == "byte") return std::make_shared<text::ByteTokenizer>();
  if (data.tokenizer == "ids") return std::make_shared<text::IdTokenizer>(vocab);
  if (data.names_tokenizer()) return std::move(named_tokenizer(data).tokenizer);
  const std::string sample = read_start(data.path, kBpeBytes);
  return std::shared_ptr<text::Tokenizer>(
      new text::BpeTokenizer(text::train_bpe(sample, {.vocab_size = vocab, .special_tokens = {}})));
}

TrainData open_train_data(const TrainConfig& config, const std::string& out, const std::string& tokenizer_json) {
  check(!config.data.path.empty(), "train", "no text to train on: give --data FILE or --data FOLDER");
  TrainData d;
  d.row_tokens = config.model.context;
  text::TokenizerFolder init;  // of what the model or the settings name
  InitModel model;
  if (!config.init.empty()) {
    model = find_init(config.init);
    init = init_tokenizer(model);
  } else if (config.data.names_tokenizer() && (tokenizer_json.empty() || config.data.format != "text")) {
    init = named_tokenizer(config.data);  // with its template; a run that goes on with a text has all it needs
  }
  if (!tokenizer_json.empty())
    d.tokenizer = text::parse_tokenizer(tokenizer_json, "the checkpoint's tokenizer");
  else if (init.tokenizer)
    d.tokenizer = std::move(init.tokenizer);
  else
    d.tokenizer = data::is_token_file(config.data.path) ? tokenizer_of_token_file(config.data.path)
                                                        : make_tokenizer(config.data, config.model.vocab);
  if (config.data.format == "seq2seq") {
    // A run keeps the tokenizer alone, and the folder that it began as says what ends a text.
    if (model.is_run) init.eos = text::load_tokenizer_folder(model.folder).eos;
    open_source_targets(d, config, init, model.start);
    return d;
  }
  if (config.data.format != "text") {
    open_conversations(d, config, init);
    return d;
  }
  const std::string folder = out + "/data";
  io::make_directories(folder);
  io::remove_leftovers(folder);
  const auto open = [&](const std::string& source, const char* name) {
    if (data::is_token_file(source)) {
      auto tokens = std::make_shared<const data::TokenFile>(source);
      tokens->require_tokenizer(*d.tokenizer);
      tokens->verify();
      return tokens;
    }
    return std::make_shared<const data::TokenFile>(
        data::open_or_build_token_file(source, *d.tokenizer, folder + "/" + name, {}, &d.notes));
  };
  const data::TokenDatasetOptions train_options{.context = config.model.context,
                                                .shift_each_epoch = config.data.shuffle};
  const data::TokenDatasetOptions valid_options{.context = config.model.context, .shift_each_epoch = false};
  const auto train = open(config.data.path, "train.tokens");
  d.text = train->source_checksum();
  d.train_tokens = train->size();
  if (!config.data.valid_path.empty()) {
    const auto valid = open(config.data.valid_path, "valid.tokens");
    d.valid_tokens = valid->size();
    d.valid = std::make_shared<data::TokenDataset>(valid, 0, d.valid_tokens, valid_options);
  } else if (config.data.valid_fraction > 0) {
    d.train_tokens = data::split_tokens(train->size(), config.data.valid_fraction, config.model.context);
    d.valid_tokens = train->size() - d.train_tokens;
    d.valid = std::make_shared<data::TokenDataset>(train, d.train_tokens, train->size(), valid_options);
  }
  d.train = std::make_shared<data::TokenDataset>(train, 0, d.train_tokens, train_options);
  return d;
}

std::vector<std::vector<data::Sample>> validation_samples(const data::Dataset& data, int64_t batch, int64_t batches) {
  const int64_t wanted = std::min(data.size(), batch * batches);
  std::vector<std::vector<data::Sample>> all;
  for (int64_t i = 0; i < wanted; ++i) {
    if (i % batch == 0) all.emplace_back();
    all.back().push_back({.index = i * data.size() / wanted, .epoch = 0});
  }
  return all;
}

}  // namespace strata
