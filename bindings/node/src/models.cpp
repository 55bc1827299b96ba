// Language models: a checkpoint's model, text from it, and the training loop of `strata train`.

#include <cstdio>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/errors.h"
#include "bindings/node/src/task.h"
#include "strata/generate/sampling.h"
#include "strata/train/run.h"
#include "strata/train/trainer.h"

namespace strata::node {
namespace {

using ModelRef = std::shared_ptr<TrainedModel>;

// loadModel(flag, path, device) -> promise of {handle, toml, step, context, vocab, warnings}
napi_value load_model(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const std::string path = c.env.text(c[1], "loadModel", "the path");
  const Device device = c.has(2) ? parse_device(c.env.text(c[2], "loadModel", "device")) : Device::cpu();
  struct Loaded {
    ModelRef model;
    std::vector<std::string> warnings;
  };
  auto loaded = std::make_shared<Loaded>();
  return start_task(
      c.env, false, std::move(flag),
      [path, device, loaded] {
        loaded->model = std::make_shared<TrainedModel>(load_trained_model(path, &loaded->warnings));
        if (!device.is_cpu()) loaded->model->model->to(device);
        loaded->model->model->eval();
      },
      [loaded](Env& env) {
        const TrainedModel& m = *loaded->model;
        napi_value o = env.object();
        env.set(o, "handle", env.boxed(loaded->model));
        env.set(o, "config", env.string(to_toml(m.config)));
        env.set(o, "step", env.integer(m.step));
        env.set(o, "context", env.integer(m.model->context()));
        env.set(o, "vocab", env.integer(m.model->vocab()));
        napi_value warnings = env.array(loaded->warnings.size());
        for (size_t i = 0; i < loaded->warnings.size(); ++i)
          env.put(warnings, static_cast<uint32_t>(i), env.string(loaded->warnings[i]));
        env.set(o, "warnings", warnings);
        return o;
      });
}
ModelRef model_of(Call& c, size_t i) {
  return *c.env.handle<ModelRef>(c[i]);
}
napi_value parameters(Call& c) {
  const ModelRef m = model_of(c, 0);
  napi_value list = c.env.array(0);
  uint32_t i = 0;
  for (auto& [name, t] : m->model->named_parameters()) {
    napi_value pair = c.env.array(2);
    c.env.put(pair, 0, c.env.string(name));
    c.env.put(pair, 1, wrap(c.env, t));
    c.env.put(list, i++, pair);
  }
  return list;
}
// forwardModel(flag, handle, tokens) -> promise of logits
napi_value forward(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const ModelRef m = model_of(c, 1);
  const Tensor tokens = tensor_of(c.env, c[2], "forward", "tokens");
  auto result = std::make_shared<Tensor>();
  return start_task(
      c.env, grad_enabled(), std::move(flag), [m, tokens, result] { *result = m->model->forward(tokens); },
      [result](Env& env) { return wrap(env, std::move(*result)); });
}
napi_value encode(Call& c) {
  const ModelRef m = model_of(c, 0);
  const std::vector<int32_t> ids = m->tokenizer->encode(c.env.text(c[1], "encode", "the text"));
  napi_value list = c.env.array(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) c.env.put(list, static_cast<uint32_t>(i), c.env.integer(ids[i]));
  return list;
}
napi_value decode(Call& c) {
  const ModelRef m = model_of(c, 0);
  std::vector<int32_t> ids;
  c.env.for_each(c[1], [&](napi_value e, uint32_t) {
    const int64_t id = c.env.whole(e, "decode", "a token");
    check<IndexError>(id >= 0 && id < m->tokenizer->vocab_size(), "decode", "token ", id, " is not one of the ",
                      m->tokenizer->vocab_size());
    ids.push_back(static_cast<int32_t>(id));
  });
  return c.env.string(m->tokenizer->decode(ids));
}

// A text being written. One call of next() at a time: lib/models.js awaits each.
struct Writer {
  ModelRef model;
  TokenSampler sampler;
  std::string pending;  // bytes that are not whole characters yet
  std::atomic<bool> busy{false};
};
// Bytes at the end of `s` that begin a UTF-8 character without ending it.
size_t unfinished(const std::string& s) {
  for (size_t back = 1; back <= 3 && back <= s.size(); ++back) {
    const auto byte = static_cast<unsigned char>(s[s.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}
using WriterRef = std::shared_ptr<Writer>;
// newWriter(model, prompt, temperature, topK, topP, seed)
napi_value new_writer(Call& c) {
  Env& env = c.env;
  const ModelRef m = model_of(c, 0);
  std::vector<int32_t> prompt = m->tokenizer->encode(env.text(c[1], "generate", "prompt"));
  check(!prompt.empty(), "generate", "the prompt is empty: the model needs something to continue");
  SampleOptions options;
  options.temperature = env.real(c[2], "generate", "temperature");
  options.top_k = env.whole(c[3], "generate", "topK");
  options.top_p = env.real(c[4], "generate", "topP");
  options.seed = static_cast<uint64_t>(env.whole(c[5], "generate", "seed"));
  options.vocab = m->tokenizer->vocab_size();
  return env.boxed(WriterRef(new Writer{m, TokenSampler(m->model, std::move(prompt), options), {}, {}}));
}
// writerNext(flag, writer, last) -> promise of {token, text}
napi_value writer_next(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const WriterRef w = *c.env.handle<WriterRef>(c[1]);
  const bool last = c.env.truth(c[2], "generate", "last");
  check(!w->busy.exchange(true), "generate", "the token before has not come yet");
  struct Made {
    int32_t token = 0;
    std::string text;
  };
  auto made = std::make_shared<Made>();
  return start_task(
      c.env, false, std::move(flag),
      [w, made, last] {
        struct Free {
          Writer& w;
          ~Free() { w.busy = false; }
        } const free{*w};
        made->token = w->sampler.next();
        w->pending += w->model->tokenizer->decode({&made->token, 1});
        const size_t keep = last ? 0 : unfinished(w->pending);
        made->text = w->pending.substr(0, w->pending.size() - keep);
        w->pending.erase(0, w->pending.size() - keep);
      },
      [made](Env& env) {
        napi_value o = env.object();
        env.set(o, "token", env.integer(made->token));
        env.set(o, "text", env.string(made->text));
        return o;
      });
}

// ---- training ----

thread_local const std::atomic<bool>* t_stop = nullptr;
bool stop_requested() {
  return t_stop && t_stop->load();
}
// A FILE whose text goes to a JavaScript function.
struct Log {
  std::shared_ptr<JsRef> fn;
  static ssize_t write(void* cookie, const char* text, size_t n) {
    const std::shared_ptr<JsRef> fn = static_cast<Log*>(cookie)->fn;
    fn->mailbox()->post([fn, copy = std::string(text, n)](Env& env) {
      napi_value returned, arg = env.string(copy);
      env.check(napi_call_function(env.env, env.undefined(), fn->get(env), 1, &arg, &returned));
    });
    return static_cast<ssize_t>(n);
  }
};
// train(flag, toml, overrides, out, resume, onLog) -> promise of the result
napi_value train_run(Call& c) {
  Env& env = c.env;
  CancelFlag flag = cancel_flag_of(env, c[0]);
  const std::vector<std::string> overrides = env.texts(c[2], "train", "a setting");
  const TrainConfig config = parse_config(env.text(c[1], "train", "the settings"), "settings", overrides);
  const std::string out = env.text(c[3], "train", "out");
  const bool resume = env.truth(c[4], "train", "resume");
  auto log = std::make_shared<Log>();
  if (c.has(5)) log->fn = std::make_shared<JsRef>(env, c[5]);
  auto result = std::make_shared<TrainResult>();
  return start_task(
      env, false, flag,
      [config, out, resume, log, flag, result] {
        t_stop = flag.get();
        const GradMode recording(true);
        struct Close {
          std::FILE* file = nullptr;
          ~Close() {
            if (file) std::fclose(file);
            t_stop = nullptr;
          }
        } close;
        if (log->fn) {
          close.file = fopencookie(log.get(), "w", {nullptr, Log::write, nullptr, nullptr});
          check<IoError>(close.file != nullptr, "train", "the log cannot be opened");
        }
        TrainOptions options;
        options.out = out;
        options.resume = resume;
        options.stop_requested = stop_requested;
        options.log = close.file;
        *result = train(config, options);
      },
      [result](Env& e) {
        napi_value o = e.object();
        e.set(o, "step", e.integer(result->step));
        e.set(o, "status", e.string(result->status));
        e.set(o, "checkpoint", e.string(result->checkpoint));
        e.set(o, "validLoss", e.number(result->valid_loss));
        e.set(o, "loss", e.number(result->last.loss));
        e.set(o, "tokens", e.integer(result->last.tokens));
        e.set(o, "peakMemory", e.integer(result->peak_memory));
        return o;
      });
}

}  // namespace

void add_models(Env& env, napi_value exports) {
  env.add(exports, {{"loadModel", entry<load_model>},
                    {"modelParameters", entry<parameters>},
                    {"forwardModel", entry<forward>},
                    {"encode", entry<encode>},
                    {"decode", entry<decode>},
                    {"newWriter", entry<new_writer>},
                    {"writerNext", entry<writer_next>},
                    {"train", entry<train_run>}});
}

}  // namespace strata::node
