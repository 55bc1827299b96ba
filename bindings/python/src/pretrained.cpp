// Models that exist: folders of Hugging Face, as the engine's modules, and what they write.

#include <algorithm>

#include "py.h"
#include "strata/eval/evaluate.h"
#include "strata/generate/text_model.h"
#include "strata/models/export.h"
#include "strata/models/gguf_model.h"
#include "text.h"

namespace strata::python {
namespace {

using Release = nb::call_guard<Released>;
using OptTensor = std::optional<Tensor>;

Tensor or_none(const OptTensor& t) {
  return t ? *t : Tensor();
}

struct PyPretrained {
  std::shared_ptr<TextModel> model;
  nn::Module& module() const { return model->pretrained().module(); }
};

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

// A function of Python's that is told how a call gets on, from within it: None or what is true lets it go on. What it
// raises, and a signal's error, ends the call, and is raised once it has ended.
class Watcher {
 public:
  explicit Watcher(nb::object f) : f_(std::move(f)) {}

  /// Whether to go on; `arguments` makes what the function is called with, as a tuple.
  template <class F>
  bool operator()(const F& arguments) {
    const nb::gil_scoped_acquire gil;
    if (raised_ || PyErr_CheckSignals() != 0) return raised_ = true, false;
    if (f_.is_none()) return true;
    try {
      const nb::object go_on = f_(*arguments());
      const int truth = go_on.is_none() ? 1 : PyObject_IsTrue(go_on.ptr());
      if (truth < 0) throw nb::python_error();
      return truth != 0;
    } catch (nb::python_error& e) {
      e.restore();
      raised_ = true;
      return false;
    }
  }
  bool raised() const { return raised_; }
  /// Behind the call, with Python's lock.
  void rethrow() const {
    if (raised_) throw nb::python_error();
  }

 private:
  nb::object f_;
  bool raised_ = false;
};

nb::list generate(const PyPretrained& p, const std::vector<std::vector<int64_t>>& prompts, const std::string& options,
                  nb::object callback) {
  std::vector<Generated> made;
  Watcher watcher(std::move(callback));
  {
    Released release;
    made = p.model->generate(prompts, options, [&](const GenerationPiece& piece) {
      return watcher([&] {
        return nb::make_tuple(piece.request, piece.completion, piece.token, text_of(std::string(piece.text)),
                              piece.last);
      });
    });
  }
  watcher.rethrow();
  return to_list(made);
}

std::string evaluate(const PyPretrained& p, const std::string& options, const PyPretrained* reference,
                     nb::object callback) {
  Watcher watcher(std::move(callback));
  eval::EvaluationHooks hooks;
  hooks.watch = [&](std::string_view name, std::string_view unit, int64_t done, int64_t all) {
    return watcher([&] { return nb::make_tuple(std::string(name), std::string(unit), done, all); });
  };
  std::string report;
  try {
    Released release;
    report = eval::evaluate(*p.model, options, reference ? reference->model.get() : nullptr, hooks);
  } catch (const Error&) {
    if (!watcher.raised()) throw;
  }
  watcher.rethrow();
  return report;
}

}  // namespace

void bind_pretrained(nb::module_& m) {
  nb::class_<PyPretrained>(m, "Pretrained", "A model of a folder as Hugging Face writes it.")
      .def_static(
          "load",
          [](const std::string& path, std::optional<DType> dtype, Device device) {
            Released release;
            return PyPretrained{TextModel::load(path, {.dtype = dtype, .device = device})};
          },
          nb::arg("path"), nb::arg("dtype").none(), nb::arg("device"))
      .def(
          "save_gguf",
          [](const PyPretrained& p, const std::string& path, std::string type) {
            std::ranges::transform(type, type.begin(),
                                   [](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c); });
            save_gguf(p.model->pretrained(), path, {.type = type});
          },
          nb::arg("path"), nb::arg("type"), Release())
      .def(
          "save_pretrained",
          [](const PyPretrained& p, const std::string& folder, std::optional<DType> dtype) {
            save_pretrained(p.model->pretrained(), folder, {.dtype = dtype});
          },
          nb::arg("folder"), nb::arg("dtype").none(), Release())
      .def_prop_ro("description", [](const PyPretrained& p) { return p.model->describe(); })
      .def_prop_ro("spec", [](const PyPretrained& p) { return to_string(p.model->pretrained().spec); })
      .def_prop_ro("tokenizer",
                   [](const PyPretrained& p) -> std::optional<PyTokenizer> {
                     if (!p.model->tokenizer()) return std::nullopt;
                     return PyTokenizer{p.model->tokenizer()};
                   })
      .def("named_parameters", [](const PyPretrained& p) { return p.module().named_parameters(); })
      .def("named_buffers", [](const PyPretrained& p) { return p.module().named_buffers(); })
      .def("__str__", [](const PyPretrained& p) { return p.module().to_string(); })
      .def(
          "train", [](const PyPretrained& p, bool on) { p.module().train(on); }, nb::arg("mode") = true)
      .def(
          "to_device", [](const PyPretrained& p, Device d) { p.model->to(d); }, Release())
      .def(
          "forward",
          [](const PyPretrained& p, const Tensor& x, const OptTensor& pad, const OptTensor& kinds) {
            return p.model->forward(x, or_none(pad), or_none(kinds));
          },
          nb::arg("x"), nb::arg("padding").none(), nb::arg("types").none(), Release())
      .def(
          "forward_source",
          [](const PyPretrained& p, const Tensor& source, const Tensor& tokens, const OptTensor& pad) {
            return p.model->forward_source(source, tokens, or_none(pad));
          },
          nb::arg("source"), nb::arg("tokens"), nb::arg("padding").none(), Release())
      .def(
          "source_loss",
          [](const PyPretrained& p, const Tensor& source, const Tensor& x, const Tensor& y, const OptTensor& pad) {
            return p.model->encoder_decoder("loss").loss(source, x, y, or_none(pad));
          },
          nb::arg("source"), nb::arg("tokens"), nb::arg("targets"), nb::arg("padding").none(), Release())
      .def(
          "transcribe",
          [](const PyPretrained& p, const Tensor& samples, int64_t rate, const std::string& options) {
            return to_json(p.model->transcribe(data::sound_of(samples, rate), options));
          },
          nb::arg("samples"), nb::arg("rate"), nb::arg("options"), Release())
      .def(
          "hidden",
          [](const PyPretrained& p, const Tensor& x, const OptTensor& pad, const OptTensor& kinds) {
            return p.model->hidden(x, or_none(pad), or_none(kinds));
          },
          nb::arg("x"), nb::arg("padding").none(), nb::arg("types").none(), Release())
      .def(
          "pooled",
          [](const PyPretrained& p, const Tensor& hidden) {
            return p.model->pretrained().image_encoder ? p.model->image_encoder("pooled").pooled(hidden)
                                                       : p.model->text_encoder("pooled").pooled(hidden);
          },
          Release())
      .def(
          "loss",
          [](const PyPretrained& p, const Tensor& x, const Tensor& y) { return p.model->decoder("loss").loss(x, y); },
          Release())
      .def(
          "text_vectors",
          [](const PyPretrained& p, const Tensor& tokens, const OptTensor& pad) {
            return p.model->pair("text_vectors").text_vectors(tokens, or_none(pad));
          },
          nb::arg("tokens"), nb::arg("padding").none(), Release())
      .def(
          "image_vectors",
          [](const PyPretrained& p, const Tensor& pixels) {
            return p.model->pair("image_vectors").image_vectors(pixels);
          },
          Release())
      .def(
          "scores",
          [](const PyPretrained& p, const Tensor& text, const Tensor& image) {
            return p.model->pair("scores").scores(text, image);
          },
          Release())
      .def(
          "encode", [](const PyPretrained& p, const std::string& text) { return p.model->encode(text); }, Release())
      .def(
          "decode",
          [](const PyPretrained& p, const std::vector<int64_t>& ids, bool skip) {
            return text_of(p.model->decode(ids, skip));
          },
          nb::arg("ids"), nb::arg("skip_special_tokens"))
      .def("generate", &generate, nb::arg("prompts"), nb::arg("options"), nb::arg("callback").none(),
           "Continues lists of ids; options are JSON.")
      .def(
          "chat_prompt",
          [](const PyPretrained& p, const std::string& messages, const std::string& more) {
            return p.model->chat_prompt(messages, more);
          },
          nb::arg("messages"), nb::arg("more"))
      .def(
          "embed",
          [](const PyPretrained& p, const std::vector<std::string>& texts, const std::string& options) {
            return p.model->embed(texts, options);
          },
          nb::arg("texts"), nb::arg("options"), Release());

  m.def("evaluate", &evaluate, nb::arg("model"), nb::arg("options"), nb::arg("reference").none(),
        nb::arg("callback").none(), "Measures a decoder on files; options and result are JSON.");
  m.def("describe_evaluation_options", &eval::describe_evaluation_options,
        "The options of evaluate() as JSON: [{\"name\", \"type\", \"doc\"}, ..].");
  m.def(
      "read_wav",
      [](const std::string& path) {
        const data::Sound sound = data::read_wav(path);
        return std::pair(sound.samples, sound.rate);
      },
      nb::arg("path"), Release(), "The samples of a WAV file, f32 [channels, n], and how many there are a second.");
  m.def(
      "text_embeddings",
      [](const Tensor& hidden, const OptTensor& pad, const std::string& pooling, bool normalize) {
        return text_embeddings(hidden, or_none(pad), {.pooling = parse_pooling(pooling), .normalize = normalize});
      },
      nb::arg("hidden"), nb::arg("padding").none(), nb::arg("pooling") = "mean", nb::arg("normalize") = false,
      Release());
}

}  // namespace strata::python
