// Models that exist: folders of Hugging Face, as the engine's modules, and what they write.

#include "strata/models/pretrained.h"

#include <nanobind/stl/map.h>

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "py.h"
#include "strata/core/error.h"
#include "strata/generate/chat_prompt.h"
#include "strata/generate/generation_config.h"
#include "strata/generate/text_generator.h"
#include "strata/io/json.h"
#include "strata/models/gguf_model.h"
#include "text.h"

namespace strata::python {
namespace {

using Release = nb::call_guard<Released>;
using OptTensor = std::optional<Tensor>;

Tensor or_none(const OptTensor& t) {
  return t ? *t : Tensor();
}

// A folder's model with its tokenizer, where it has one.
struct PyPretrained {
  std::shared_ptr<Pretrained> model;
  std::shared_ptr<text::TokenizerFolder> folder;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<TextGenerator> writer;  // made when first needed, then kept

  LanguageModel& decoder(const char* what) const {
    check(model->model != nullptr, what, "a ", model->family->title, " is no model that writes");
    return *model->model;
  }
  TextEncoder& text_encoder(const char* what) const {
    check(model->text_encoder != nullptr, what, "a ", model->family->title, " is no encoder of text");
    return *model->text_encoder;
  }
  ImageEncoder& image_encoder(const char* what) const {
    check(model->image_encoder != nullptr, what, "a ", model->family->title, " is no encoder of images");
    return *model->image_encoder;
  }
  ContrastivePair& pair(const char* what) const {
    check(model->pair != nullptr, what, "a ", model->family->title, " is no pair of encoders");
    return *model->pair;
  }
};

// generation_config.json with what the call says on top of it; keys are that file's, and those that it lacks.
GenerationOptions options_of(const PyPretrained& p, const std::string& call) {
  nlohmann::json all = p.model->generation_config.empty()
                           ? nlohmann::json::object()
                           : io::parse_json(p.model->generation_config, "generation_config.json");
  const nlohmann::json said = io::parse_json(call, "generate");
  GenerationOptions own;
  std::map<std::string, std::function<void(const nlohmann::json&)>> more{
      {"seed", [&](const nlohmann::json& v) { own.seed = v.get<uint64_t>(); }},
      {"frequency_penalty", [&](const nlohmann::json& v) { own.frequency_penalty = v.get<double>(); }},
      {"presence_penalty", [&](const nlohmann::json& v) { own.presence_penalty = v.get<double>(); }},
      {"logprobs", [&](const nlohmann::json& v) { own.logprobs = v.get<bool>(); }},
      {"top_logprobs", [&](const nlohmann::json& v) { own.top_logprobs = v.get<int64_t>(); }},
      {"prompt_logprobs", [&](const nlohmann::json& v) { own.prompt_logprobs = v.get<bool>(); }}};
  for (const auto& [key, value] : said.items()) {
    if (const auto found = more.find(key); found != more.end()) {
      try {
        found->second(value);
      } catch (const nlohmann::json::exception&) {
        check(false, "generate", key, " cannot be ", value.dump());
      }
    } else {
      all[key] = value;
    }
  }
  GenerationOptions o = parse_generation_config(all.dump(), "generate");
  // A file may name an end that a smaller vocabulary has not: it is never drawn.
  if (!said.contains("eos_token_id")) std::erase_if(o.stop_ids, [&](int64_t id) { return id >= p.model->spec.vocab; });
  o.seed = own.seed;
  o.frequency_penalty = own.frequency_penalty, o.presence_penalty = own.presence_penalty;
  o.logprobs = own.logprobs, o.top_logprobs = own.top_logprobs, o.prompt_logprobs = own.prompt_logprobs;
  return o;
}

nb::object text_of(const std::string& s) {
  PyObject* made = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace");
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

nb::list pairs_of(const std::vector<std::vector<TokenLogprob>>& all) {
  nb::list lists;
  for (const auto& place : all) {
    nb::list list;
    for (const TokenLogprob& t : place) list.append(nb::make_tuple(t.id, t.logprob));
    lists.append(list);
  }
  return lists;
}

nb::list to_list(const std::vector<Generated>& all) {
  nb::list requests;
  for (const Generated& g : all) {
    nb::list completions;
    for (const Completion& c : g.completions) {
      nb::dict d;
      d["tokens"] = c.tokens;
      d["text"] = text_of(c.text);
      d["finish"] = std::string(to_string(c.finish));
      d["score"] = c.score;
      d["logprobs"] = c.logprobs;
      d["top_logprobs"] = pairs_of(c.top_logprobs);
      completions.append(d);
    }
    nb::dict d;
    d["completions"] = completions;
    d["prompt_logprobs"] = g.prompt_logprobs;
    d["top_prompt_logprobs"] = pairs_of(g.top_prompt_logprobs);
    requests.append(d);
  }
  return requests;
}

nb::list generate(PyPretrained& p, const std::vector<std::vector<int64_t>>& prompts, const std::string& options,
                  nb::object callback) {
  LanguageModel& model = p.decoder("generate");
  const GenerationOptions o = options_of(p, options);
  std::vector<GenerationRequest> requests;
  for (const std::vector<int64_t>& prompt : prompts) requests.push_back({prompt, o});
  const bool training = model.is_training();
  std::vector<Generated> made;
  bool raised = false;
  {
    Released release;
    if (!p.writer) p.writer = std::make_shared<TextGenerator>(p.model->model, p.tokenizer);
    made = p.writer->generate(requests, [&](const GenerationPiece& piece) {
      const nb::gil_scoped_acquire gil;
      if (raised || PyErr_CheckSignals() != 0) return raised = true, false;
      if (callback.is_none()) return true;
      try {
        const nb::object go_on =
            callback(piece.request, piece.completion, piece.token, text_of(std::string(piece.text)), piece.last);
        const int truth = go_on.is_none() ? 1 : PyObject_IsTrue(go_on.ptr());
        if (truth < 0) throw nb::python_error();
        return truth != 0;
      } catch (nb::python_error& e) {
        e.restore();
        raised = true;
        return false;
      }
    });
  }
  if (training) model.train();
  if (raised) throw nb::python_error();
  return to_list(made);
}

}  // namespace

void bind_pretrained(nb::module_& m) {
  nb::class_<PyPretrained>(m, "Pretrained", "A model of a folder as Hugging Face writes it.")
      .def_static(
          "load",
          [](const std::string& path, std::optional<DType> dtype, Device device) {
            PyPretrained p;
            Released release;
            p.model = std::make_shared<Pretrained>(load_pretrained(path, {.dtype = dtype, .device = device}));
            if (text::has_tokenizer(path))
              p.folder = std::make_shared<text::TokenizerFolder>(text::load_tokenizer_folder(path));
            if (p.folder) p.tokenizer = std::shared_ptr<const text::Tokenizer>(p.folder, p.folder->tokenizer.get());
            return p;
          },
          nb::arg("path"), nb::arg("dtype").none(), nb::arg("device"))
      .def(
          "save_gguf",
          [](const PyPretrained& p, const std::string& path, std::string type) {
            std::ranges::transform(type, type.begin(),
                                   [](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c); });
            save_gguf(*p.model, path, {.type = type});
          },
          nb::arg("path"), nb::arg("type"), Release())
      .def_prop_ro("family", [](const PyPretrained& p) { return std::string(p.model->family->name); })
      .def_prop_ro("kind",
                   [](const PyPretrained& p) -> std::string {
                     switch (p.model->spec.kind) {
                       case ModelKind::decoder:
                         return "decoder";
                       case ModelKind::encoder:
                         return "encoder";
                       case ModelKind::image_encoder:
                         return "image_encoder";
                       case ModelKind::encoder_decoder:
                         return "encoder_decoder";
                       case ModelKind::pair:
                         return "pair";
                     }
                     return "";
                   })
      .def_prop_ro("spec", [](const PyPretrained& p) { return to_string(p.model->spec); })
      .def_prop_ro("config", [](const PyPretrained& p) { return p.model->config; })
      .def_prop_ro("generation_config", [](const PyPretrained& p) { return p.model->generation_config; })
      .def_prop_ro("tokenizer",
                   [](const PyPretrained& p) -> std::optional<PyTokenizer> {
                     if (!p.tokenizer) return std::nullopt;
                     return PyTokenizer{p.tokenizer};
                   })
      .def_prop_ro("special_ids",
                   [](const PyPretrained& p) { return p.folder ? p.folder->named : std::map<std::string, int32_t>(); })
      .def("named_parameters", [](const PyPretrained& p) { return p.model->module().named_parameters(); })
      .def("named_buffers", [](const PyPretrained& p) { return p.model->module().named_buffers(); })
      .def("__str__", [](const PyPretrained& p) { return p.model->module().to_string(); })
      .def(
          "train", [](const PyPretrained& p, bool on) { p.model->module().train(on); }, nb::arg("mode") = true)
      .def(
          "to_device",
          [](PyPretrained& p, Device d) {
            p.writer = nullptr;
            p.model->module().to(d);
          },
          Release())
      .def_prop_ro("context",
                   [](const PyPretrained& p) {
                     return p.model->spec.kind == ModelKind::pair ? p.model->spec.parts[0].context
                                                                  : p.model->spec.context;
                   })
      .def_prop_ro("vocab",
                   [](const PyPretrained& p) {
                     return p.model->spec.kind == ModelKind::pair ? p.model->spec.parts[0].vocab : p.model->spec.vocab;
                   })
      .def(
          "forward",
          [](const PyPretrained& p, const Tensor& x, const OptTensor& pad, const OptTensor& kinds) {
            if (p.model->model) return p.model->model->forward(x, or_none(pad));
            if (p.model->text_encoder) return p.model->text_encoder->forward(x, or_none(pad), or_none(kinds));
            return p.image_encoder("forward").forward(x);
          },
          nb::arg("x"), nb::arg("padding").none(), nb::arg("types").none(), Release())
      .def(
          "hidden",
          [](const PyPretrained& p, const Tensor& x, const OptTensor& pad, const OptTensor& kinds) {
            if (p.model->model) return p.model->model->hidden(x, or_none(pad));
            if (p.model->text_encoder) return p.model->text_encoder->hidden(x, or_none(pad), or_none(kinds));
            return p.image_encoder("hidden").hidden(x);
          },
          nb::arg("x"), nb::arg("padding").none(), nb::arg("types").none(), Release())
      .def(
          "pooled",
          [](const PyPretrained& p, const Tensor& hidden) {
            return p.model->image_encoder ? p.model->image_encoder->pooled(hidden)
                                          : p.text_encoder("pooled").pooled(hidden);
          },
          Release())
      .def(
          "loss", [](const PyPretrained& p, const Tensor& x, const Tensor& y) { return p.decoder("loss").loss(x, y); },
          Release())
      .def(
          "text_vectors",
          [](const PyPretrained& p, const Tensor& tokens, const OptTensor& pad) {
            return p.pair("text_vectors").text_vectors(tokens, or_none(pad));
          },
          nb::arg("tokens"), nb::arg("padding").none(), Release())
      .def(
          "image_vectors",
          [](const PyPretrained& p, const Tensor& pixels) { return p.pair("image_vectors").image_vectors(pixels); },
          Release())
      .def(
          "scores",
          [](const PyPretrained& p, const Tensor& text, const Tensor& image) {
            return p.pair("scores").scores(text, image);
          },
          Release())
      .def("generate", &generate, nb::arg("prompts"), nb::arg("options"), nb::arg("callback").none(),
           "Continues lists of ids; options are JSON.")
      .def(
          "chat_prompt",
          [](const PyPretrained& p, const std::string& messages, const std::string& more) {
            check(p.folder != nullptr, "chat", "this folder has no tokenizer");
            return chat_prompt(*p.folder, messages, more);
          },
          nb::arg("messages"), nb::arg("more"));

  m.def(
      "text_embeddings",
      [](const Tensor& hidden, const OptTensor& pad, const std::string& pooling, bool normalize) {
        static const std::map<std::string, Pooling> kinds{{"first", Pooling::first},
                                                          {"last", Pooling::last},
                                                          {"mean", Pooling::mean},
                                                          {"max", Pooling::max},
                                                          {"weighted_mean", Pooling::weighted_mean},
                                                          {"root_mean", Pooling::root_mean}};
        const auto found = kinds.find(pooling);
        check(found != kinds.end(), "text_embeddings",
              "pooling is first, last, mean, max, weighted_mean or root_mean, got '", pooling, "'");
        return text_embeddings(hidden, or_none(pad), {.pooling = found->second, .normalize = normalize});
      },
      nb::arg("hidden"), nb::arg("padding").none(), nb::arg("pooling") = "mean", nb::arg("normalize") = false,
      Release());
}

}  // namespace strata::python
