#pragma once
// What a run begins from where that is a model that exists, and what of it is trained. docs/design/fine_tuning.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "strata/models/encoder_decoder.h"
#include "strata/models/family.h"
#include "strata/models/language_model.h"
#include "strata/models/peft.h"
#include "strata/text/tokenizer_folder.h"
#include "strata/train/config.h"

namespace strata {

/// A model that model.init names, its weights not yet read.
struct InitModel {
  std::string path;  ///< a folder as Hugging Face writes it, or a checkpoint of a run
  bool is_run = false;
  const Family* family = nullptr;  ///< of a folder
  ModelSpec spec;
  std::string network;  ///< the text of a config.json that says the spec; empty of runs
  std::string folder;   ///< that it began as: path, or of a run that of its model.init; empty of one from nothing
  std::vector<int64_t> start;  ///< of an encoder-decoder: what its texts begin with

  /// Whether it reads one text and writes another (T5), where others continue one.
  bool answers() const { return spec.kind == ModelKind::encoder_decoder; }
};
/// Looks at a path. Throws IoError for what is neither, ValueError as read_pretrained_spec does, and for a model that
/// writes no text, or reads sound.
InitModel find_init(const std::string& path);

/// Puts what the init says into section [model]: sizes, and a context that it has room for. Nothing without an init.
/// Throws as find_init, and ValueError for a data.format or [memory] that is not for such a model.
void apply_init(TrainConfig& config);

/// The tokenizer of the init and what stands beside it: a run's own, which has no template, or a folder's. Throws as
/// load_tokenizer_folder.
text::TokenizerFolder init_tokenizer(const InitModel& init);

/// Where the maps of a model that began so stand in files: as its family says, or by names of its own.
AdapterNames adapter_names(TokenDecoder& model, const InitModel& init);

/// Puts adapters on the model, and freezes, as section [tune] says. Throws ValueError naming the key, for names that
/// the model has not.
void apply_tuning(const nn::Module& model, const TuneConfig& tune, const AdapterNames& names);

/// The model of the settings, its weights those of the init where there is one (but on the meta device), of
/// train.param_dtype, with its adapters. Adapters are f32 and drawn from default_generator(). Throws as find_init,
/// load_weights and apply_tuning.
std::shared_ptr<TokenDecoder> make_tuned_model(const TrainConfig& config);

/// The same, where it continues texts. Throws ValueError naming `what` for one that answers.
std::shared_ptr<LanguageModel> decoder_of(const std::shared_ptr<TokenDecoder>& model, std::string_view what);
/// Names of embeddings and of the output layer: what optimizers for linear maps leave to others.
std::set<std::string> table_names(const TokenDecoder& model);

/// Writes the adapters of a run, and what is trained beside them, as OUT/adapter, a folder of PEFT's. Throws IoError,
/// and ValueError as save_adapter does.
void save_adapter_of(const std::string& out, TokenDecoder& model, const TrainConfig& config);

/// The mean loss, in nats a token, that a model (as model.init names one) has on a text, in windows of its context, at
/// most 1024 tokens, with weights in f32. Throws as find_init and load_weights, ValueError for a text without two
/// tokens.
double held_out_loss(const std::string& model, const std::string& text, Device device = Device::cpu());

/// The parameters that are trained.
nn::NamedTensors trained_parameters(const nn::Module& model);
/// What a checkpoint of a run holds of the model: all of its state, less what is frozen and comes from the init.
nn::StateDict kept_state(const nn::Module& model, const TrainConfig& config);
/// The names of the state that kept_state() leaves out.
std::set<std::string> left_out(const nn::Module& model, const TrainConfig& config);
/// The checksum of that state; 0 where that is nothing.
uint64_t base_checksum(const nn::Module& model, const TrainConfig& config);
/// The same of tensors that are there one at a time, as they are asked for.
uint64_t base_checksum(const std::set<std::string>& names, const std::function<Tensor(const std::string&)>& tensor);

}  // namespace strata
