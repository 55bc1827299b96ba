// Models that exist, with their tokenizers.

#include <atomic>
#include <memory>

#include "strata/c/handles.h"
#include "strata/eval/evaluate.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/text_model.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

using namespace strata;
using namespace strata::c;

struct strata_pretrained {
  std::atomic<uint32_t> refs{1};
  std::shared_ptr<TextModel> model;
  nn::NamedTensors parameters;
};

namespace {

TextModel& need_model(const strata_pretrained* model, const char* function) {
  need(model, function, "the model");
  return *model->model;
}

std::string_view or_empty(const char* json) {
  return json ? std::string_view(json) : std::string_view("{}");
}

strata_tensor* give_ids(const std::vector<int64_t>& ids) {
  return give(from_span<int64_t>(ids, {static_cast<int64_t>(ids.size())}));
}
std::vector<int64_t> ids_of(const strata_tensor* t, const char* function) {
  const Tensor ids = need_tensor(t, function);
  check<DTypeError>(ids.dtype() == DType::i64, function, "ids are i64, got ", ids.dtype());
  check<ShapeError>(ids.dim() == 1, function, "ids are [tokens], got ", ids.shape());
  return ids.to_vector<int64_t>();
}

}  // namespace

strata_status strata_pretrained_load(const char* folder, int32_t dtype, strata_device device, strata_pretrained** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_load";
    need(folder, kName, "the folder");
    need(out, kName, "out");
    PretrainedOptions options;
    options.device = device_from(device, kName);
    check<DeviceError>(!options.device.is_meta(), kName, "a model on the meta device would have no weights");
    if (dtype != -1) options.dtype = dtype_from(dtype, kName);
    auto made = std::make_unique<strata_pretrained>();
    made->model = TextModel::load(folder, options);
    made->parameters = made->model->pretrained().module().named_parameters();
    *out = made.release();
  });
}

strata_pretrained* strata_pretrained_retain(strata_pretrained* model) {
  return retain(model);
}

void strata_pretrained_release(strata_pretrained* model) {
  release(model);
}

strata_status strata_pretrained_describe(const strata_pretrained* model, strata_value* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_describe";
    need(out, kName, "out");
    *out = give(Value(need_model(model, kName).describe()));
  });
}

size_t strata_pretrained_num_parameters(const strata_pretrained* model) {
  return model ? model->parameters.size() : 0;
}

strata_status strata_pretrained_parameter(const strata_pretrained* model, size_t index, const char** name,
                                          strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_parameter";
    need_model(model, kName);
    check<IndexError>(index < model->parameters.size(), kName, "there are ", model->parameters.size(),
                      " parameters, no number ", index);
    const auto& [own_name, tensor] = model->parameters[index];
    if (name) *name = own_name.c_str();
    if (out) *out = give(tensor);
  });
}

strata_status strata_pretrained_forward(const strata_pretrained* model, const strata_tensor* input,
                                        const strata_tensor* padding, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_forward";
    need(out, kName, "out");
    *out = give(need_model(model, kName).forward(need_tensor(input, kName), tensor_of(padding)));
  });
}

strata_status strata_pretrained_forward_source(const strata_pretrained* model, const strata_tensor* source,
                                               const strata_tensor* tokens, const strata_tensor* padding,
                                               strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_forward_source";
    need(out, kName, "out");
    *out = give(need_model(model, kName)
                    .forward_source(need_tensor(source, kName), need_tensor(tokens, kName), tensor_of(padding)));
  });
}

strata_status strata_pretrained_transcribe(strata_pretrained* model, const strata_tensor* samples, int64_t rate,
                                           const char* options, strata_value* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_transcribe";
    need(out, kName, "out");
    TextModel& m = need_model(model, kName);
    *out = give(Value(to_json(m.transcribe(data::sound_of(need_tensor(samples, kName), rate), or_empty(options)))));
  });
}

strata_status strata_read_wav(const char* path, strata_tensor** samples, int64_t* rate) {
  return guarded([&] {
    constexpr const char* kName = "strata_read_wav";
    need(path, kName, "the path");
    need(samples, kName, "samples");
    const data::Sound sound = data::read_wav(path);
    if (rate) *rate = sound.rate;
    *samples = give(sound.samples);
  });
}

strata_status strata_pretrained_encode(const strata_pretrained* model, const char* text, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_encode";
    need(text, kName, "the text");
    need(out, kName, "out");
    *out = give_ids(need_model(model, kName).encode(text));
  });
}

strata_status strata_pretrained_decode(const strata_pretrained* model, const strata_tensor* ids,
                                       bool skip_special_tokens, strata_value* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_decode";
    need(out, kName, "out");
    *out = give(Value(need_model(model, kName).decode(ids_of(ids, kName), skip_special_tokens)));
  });
}

strata_status strata_pretrained_chat_prompt(const strata_pretrained* model, const char* messages, const char* variables,
                                            strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_chat_prompt";
    need(messages, kName, "the messages");
    need(out, kName, "out");
    *out = give_ids(need_model(model, kName).chat_prompt(messages, or_empty(variables)));
  });
}

strata_status strata_pretrained_generate(strata_pretrained* model, strata_tensor* const* prompts, size_t num_prompts,
                                         const char* options, strata_piece_fn callback, void* context,
                                         strata_value* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_generate";
    need(out, kName, "out");
    if (num_prompts > 0) need(prompts, kName, "the prompts");
    TextModel& m = need_model(model, kName);
    std::vector<std::vector<int64_t>> all;
    for (size_t i = 0; i < num_prompts; ++i) all.push_back(ids_of(prompts[i], kName));
    TextGenerator::Callback told;
    if (callback)
      told = [&](const GenerationPiece& p) {
        const strata_piece piece{sizeof(strata_piece), p.request,     p.completion, p.token,
                                 p.text.data(),        p.text.size(), p.last};
        return callback(context, &piece);
      };
    *out = give(Value(to_json(m.generate(all, or_empty(options), told))));
  });
}

const char* strata_describe_generation_options(void) {
  return guarded_or("", [] {
    thread_local std::string text;
    text = describe_generation_options();
    return text.c_str();
  });
}

strata_status strata_pretrained_embed(const strata_pretrained* model, const char* const* texts, size_t num_texts,
                                      const char* options, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_pretrained_embed";
    need(out, kName, "out");
    if (num_texts > 0) need(texts, kName, "the texts");
    std::vector<std::string> all;
    for (size_t i = 0; i < num_texts; ++i) {
      need(texts[i], kName, "a text");
      all.emplace_back(texts[i]);
    }
    *out = give(need_model(model, kName).embed(all, or_empty(options)));
  });
}

strata_status strata_eval_run(strata_pretrained* model, const char* options, strata_pretrained* reference,
                              strata_eval_fn callback, void* context, strata_value* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_eval_run";
    need(out, kName, "out");
    eval::EvaluationHooks hooks;
    if (callback)
      hooks.watch = [&](std::string_view name, std::string_view unit, int64_t done, int64_t all) {
        return callback(context, std::string(name).c_str(), std::string(unit).c_str(), done, all);
      };
    TextModel& m = need_model(model, kName);
    *out = give(Value(eval::evaluate(m, or_empty(options), reference ? reference->model.get() : nullptr, hooks)));
  });
}

const char* strata_eval_options(void) {
  return guarded_or("", [] {
    thread_local std::string text;
    text = eval::describe_evaluation_options();
    return text.c_str();
  });
}
