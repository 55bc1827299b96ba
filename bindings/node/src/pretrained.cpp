// Models that exist: folders as Hugging Face writes them, and what they write.

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/errors.h"
#include "bindings/node/src/task.h"
#include "strata/eval/evaluate.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/text_model.h"

namespace strata::node {
namespace {

using ModelRef = std::shared_ptr<TextModel>;

ModelRef model_of(Call& c, size_t i) {
  return *c.env.handle<ModelRef>(c[i]);
}

napi_value from_ids(Env& env, const std::vector<int64_t>& ids) {
  napi_value list = env.array(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) env.put(list, static_cast<uint32_t>(i), env.integer(ids[i]));
  return list;
}
std::vector<int64_t> to_ids(Env& env, napi_value list, const char* what) {
  std::vector<int64_t> ids;
  env.for_each(list, [&](napi_value id, uint32_t) { ids.push_back(env.whole(id, what, "a token")); });
  return ids;
}

// loadPretrained(flag, folder, dtype, device) -> promise of {handle, description}
napi_value load_pretrained_model(Call& c) {
  Env& env = c.env;
  CancelFlag flag = cancel_flag_of(env, c[0]);
  const std::string folder = env.text(c[1], "loadPretrained", "the folder");
  PretrainedOptions options;
  if (c.has(2)) options.dtype = parse_dtype(env.text(c[2], "loadPretrained", "dtype"));
  if (c.has(3)) options.device = parse_device(env.text(c[3], "loadPretrained", "device"));
  check<DeviceError>(!options.device.is_meta(), "loadPretrained", "a model on the meta device would have no weights");
  auto loaded = std::make_shared<ModelRef>();
  return start_task(
      env, false, std::move(flag), [folder, options, loaded] { *loaded = TextModel::load(folder, options); },
      [loaded](Env& e) {
        napi_value o = e.object();
        e.set(o, "handle", e.boxed(*loaded));
        e.set(o, "description", e.string((*loaded)->describe()));
        return o;
      });
}

napi_value parameters(Call& c) {
  const ModelRef m = model_of(c, 0);
  napi_value list = c.env.array(0);
  uint32_t i = 0;
  for (auto& [name, t] : m->pretrained().module().named_parameters()) {
    napi_value pair = c.env.array(2);
    c.env.put(pair, 0, c.env.string(name));
    c.env.put(pair, 1, wrap(c.env, t));
    c.env.put(list, i++, pair);
  }
  return list;
}

using TensorCall = Tensor (TextModel::*)(const Tensor&, const Tensor&, const Tensor&) const;
// (flag, handle, tokens or pixels, padding, types) -> promise of a tensor
template <TensorCall F>
napi_value tensor_call(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const ModelRef m = model_of(c, 1);
  const Tensor x = tensor_of(c.env, c[2], "forward", "x");
  const Tensor padding = c.has(3) ? tensor_of(c.env, c[3], "forward", "padding") : Tensor();
  const Tensor types = c.has(4) ? tensor_of(c.env, c[4], "forward", "types") : Tensor();
  auto result = std::make_shared<Tensor>();
  return start_task(
      c.env, grad_enabled(), std::move(flag),
      [m, x, padding, types, result] { *result = ((*m).*F)(x, padding, types); },
      [result](Env& env) { return wrap(env, std::move(*result)); });
}

// pretrainedForwardSource(flag, handle, source, tokens, padding) -> promise of a tensor
napi_value forward_source(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const ModelRef m = model_of(c, 1);
  const Tensor source = tensor_of(c.env, c[2], "forward", "x"), tokens = tensor_of(c.env, c[3], "forward", "tokens");
  const Tensor padding = c.has(4) ? tensor_of(c.env, c[4], "forward", "padding") : Tensor();
  auto result = std::make_shared<Tensor>();
  return start_task(
      c.env, grad_enabled(), std::move(flag),
      [m, source, tokens, padding, result] { *result = m->forward_source(source, tokens, padding); },
      [result](Env& env) { return wrap(env, std::move(*result)); });
}

// pretrainedTranscribe(flag, handle, samples or the path of a WAV file, rate, options as JSON) -> promise of JSON
napi_value transcribe(Call& c) {
  Env& env = c.env;
  CancelFlag flag = cancel_flag_of(env, c[0]);
  const ModelRef m = model_of(c, 1);
  const bool file = env.type(c[2]) == napi_string;
  const std::string path = file ? env.text(c[2], "transcribe", "the sound") : std::string();
  const Tensor samples = file ? Tensor() : tensor_of(env, c[2], "transcribe", "samples");
  const int64_t rate = file ? 0 : env.whole(c[3], "transcribe", "rate");
  const std::string options = env.text(c[4], "transcribe", "the options");
  auto made = std::make_shared<std::string>();
  return start_task(
      env, false, std::move(flag),
      [m, file, path, samples, rate, options, made] {
        *made = to_json(m->transcribe(file ? data::read_wav(path) : data::sound_of(samples, rate), options));
      },
      [made](Env& e) { return e.string(*made); });
}

napi_value encode(Call& c) {
  return from_ids(c.env, model_of(c, 0)->encode(c.env.text(c[1], "encode", "the text")));
}
napi_value decode(Call& c) {
  return c.env.string(
      model_of(c, 0)->decode(to_ids(c.env, c[1], "decode"), c.env.truth(c[2], "decode", "skipSpecialTokens")));
}
// pretrainedChat(handle, messages, variables), both JSON
napi_value chat(Call& c) {
  return from_ids(c.env, model_of(c, 0)->chat_prompt(c.env.text(c[1], "chatPrompt", "the messages"),
                                                     c.env.text(c[2], "chatPrompt", "the variables")));
}

// pretrainedGenerate(flag, handle, lists of ids, options as JSON, callback) -> promise of JSON. The callback is called
// with (request, completion, token, text, last) and false ends the text; the writing waits for it.
napi_value generate(Call& c) {
  Env& env = c.env;
  CancelFlag flag = cancel_flag_of(env, c[0]);
  const ModelRef m = model_of(c, 1);
  std::vector<std::vector<int64_t>> prompts;
  env.for_each(c[2], [&](napi_value list, uint32_t) { prompts.push_back(to_ids(env, list, "generate")); });
  const std::string options = env.text(c[3], "generate", "the options");
  std::shared_ptr<JsRef> told;
  if (c.has(4)) told = std::make_shared<JsRef>(env, c[4]);
  auto made = std::make_shared<std::string>();
  return start_task(
      env, false, flag,
      [m, prompts, options, told, flag, made] {
        const auto tell = [&](const GenerationPiece& piece) {
          check<AbortedError>(!flag || !flag->load(), "generate", "aborted");
          if (!told) return true;
          bool go_on = true;
          told->mailbox()->call([&](Env& e) {
            const Scope scope(e);
            napi_value args[] = {e.integer(piece.request), e.integer(piece.completion), e.integer(piece.token),
                                 e.string(piece.text), e.boolean(piece.last)};
            napi_value returned = nullptr;
            e.check(napi_call_function(e.env, e.undefined(), told->get(e), 5, args, &returned));
            if (e.type(returned) == napi_boolean) e.check(napi_get_value_bool(e.env, returned, &go_on));
          });
          return go_on;
        };
        *made = to_json(m->generate(prompts, options, tell));
      },
      [made](Env& e) { return e.string(*made); });
}

// pretrainedEmbed(flag, handle, texts, options as JSON) -> promise of a tensor
napi_value embed(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const ModelRef m = model_of(c, 1);
  const std::vector<std::string> texts = c.env.texts(c[2], "embed", "a text");
  const std::string options = c.env.text(c[3], "embed", "the options");
  auto result = std::make_shared<Tensor>();
  return start_task(
      c.env, false, std::move(flag), [m, texts, options, result] { *result = m->embed(texts, options); },
      [result](Env& env) { return wrap(env, std::move(*result)); });
}

// pretrainedEvaluate(flag, handle, options as JSON, the reference's handle, callback) -> promise of JSON. The callback
// is called with (name, unit, done, all) and false ends the evaluation, which waits for it.
napi_value evaluate(Call& c) {
  Env& env = c.env;
  CancelFlag flag = cancel_flag_of(env, c[0]);
  const ModelRef m = model_of(c, 1), reference = c.has(3) ? model_of(c, 3) : nullptr;
  const std::string options = env.text(c[2], "evaluate", "the options");
  std::shared_ptr<JsRef> told;
  if (c.has(4)) told = std::make_shared<JsRef>(env, c[4]);
  auto made = std::make_shared<std::string>();
  return start_task(
      env, false, flag,
      [m, reference, options, told, flag, made] {
        eval::EvaluationHooks hooks;
        hooks.watch = [&](std::string_view name, std::string_view unit, int64_t done, int64_t all) {
          check<AbortedError>(!flag || !flag->load(), "evaluate", "aborted");
          if (!told) return true;
          bool go_on = true;
          told->mailbox()->call([&](Env& e) {
            const Scope scope(e);
            napi_value args[] = {e.string(name), e.string(unit), e.integer(done), e.integer(all)};
            napi_value returned = nullptr;
            e.check(napi_call_function(e.env, e.undefined(), told->get(e), 4, args, &returned));
            if (e.type(returned) == napi_boolean) e.check(napi_get_value_bool(e.env, returned, &go_on));
          });
          return go_on;
        };
        *made = eval::evaluate(*m, options, reference.get(), hooks);
      },
      [made](Env& e) { return e.string(*made); });
}

napi_value evaluation_options(Call& c) {
  return c.env.string(eval::describe_evaluation_options());
}
napi_value generation_options(Call& c) {
  return c.env.string(describe_generation_options());
}

}  // namespace

void add_pretrained(Env& env, napi_value exports) {
  env.add(exports, {{"loadPretrained", entry<load_pretrained_model>},
                    {"pretrainedParameters", entry<parameters>},
                    {"pretrainedForward", entry<tensor_call<&TextModel::forward>>},
                    {"pretrainedHidden", entry<tensor_call<&TextModel::hidden>>},
                    {"pretrainedEncode", entry<encode>},
                    {"pretrainedDecode", entry<decode>},
                    {"pretrainedChat", entry<chat>},
                    {"pretrainedGenerate", entry<generate>},
                    {"pretrainedEmbed", entry<embed>},
                    {"pretrainedForwardSource", entry<forward_source>},
                    {"pretrainedTranscribe", entry<transcribe>},
                    {"pretrainedEvaluate", entry<evaluate>},
                    {"evaluationOptions", entry<evaluation_options>},
                    {"generationOptions", entry<generation_options>}});
}

}  // namespace strata::node
