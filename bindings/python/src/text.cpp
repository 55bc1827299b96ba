// Tokenizers.

#include "text.h"

#include <nanobind/stl/map.h>

#include "py.h"
#include "strata/text/bpe.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::python {
namespace {

nb::object text_or_bytes(const std::string& s) {
  PyObject* text = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace");
  if (!text) throw nb::python_error();
  return nb::steal(text);
}

std::string_view bytes_of(nb::handle text) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AsString(text.ptr()), static_cast<size_t>(PyBytes_Size(text.ptr()))};
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_Check(text.ptr()) ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
  if (!utf8) {
    if (PyErr_Occurred()) throw nb::python_error();
    throw nb::type_error("a tokenizer takes str or bytes");
  }
  return {utf8, static_cast<size_t>(size)};
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<PyTokenizer>(m, "Tokenizer", "Text to token ids and back.")
      .def_static("bytes", [] { return PyTokenizer{std::make_shared<text::ByteTokenizer>()}; },
                  "One token per byte: 256 ids.")
      .def_static(
          "ids", [](int64_t vocab) { return PyTokenizer{std::make_shared<text::IdTokenizer>(vocab)}; },
          nb::arg("vocab_size"), "Text that is ids already, decimal numbers between blanks.")
      .def_static("load", [](const std::string& path) { return PyTokenizer{text::load_tokenizer(path)}; },
                  nb::arg("path"), "Reads a file that save() wrote.")
      .def_static("from_json", [](const std::string& json) { return PyTokenizer{text::parse_tokenizer(json)}; },
                  nb::arg("json"))
      .def_static(
          "train_bpe",
          [](nb::object text, int64_t vocab_size, int64_t min_frequency, const std::vector<std::string>& special) {
            const std::string copy(bytes_of(text));
            Released release;
            return PyTokenizer{std::shared_ptr<const text::Tokenizer>(new text::BpeTokenizer(text::train_bpe(
                copy, {.vocab_size = vocab_size, .min_frequency = min_frequency, .special_tokens = special})))};
          },
          nb::arg("text"), nb::arg("vocab_size") = 8192, nb::arg("min_frequency") = 2,
          nb::arg("special_tokens") = std::vector<std::string>(), "Learns byte pairs from a text.")
      .def_prop_ro("vocab_size", [](const PyTokenizer& t) { return t.tokenizer->vocab_size(); })
      .def_prop_ro("special_tokens", [](const PyTokenizer& t) { return t.tokenizer->special_tokens(); })
      .def(
          "encode",
          [](const PyTokenizer& t, nb::object text, bool special) {
            const std::string_view bytes = bytes_of(text);
            return special ? t.tokenizer->encode_with_special(bytes) : t.tokenizer->encode(bytes);
          },
          nb::arg("text"), nb::arg("special") = false,
          "Ids of str or bytes; with `special`, names of special tokens become their ids.")
      .def(
          "encode_whole",
          [](const PyTokenizer& t, nb::object text) {
            const std::string_view bytes = bytes_of(text);
            const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(t.tokenizer.get());
            return pipeline ? pipeline->encode(bytes, text::EncodeOptions{}) : t.tokenizer->encode(bytes);
          },
          nb::arg("text"),
          "Ids of a whole text: with the special tokens that a tokenizer.json puts around one, and those that it spells.")
      .def(
          "decode",
          [](const PyTokenizer& t, const std::vector<int32_t>& ids) { return text_or_bytes(t.tokenizer->decode(ids)); },
          nb::arg("ids"), "The text of the ids; bytes that are no UTF-8 show as replacement characters.")
      .def(
          "decode_bytes",
          [](const PyTokenizer& t, const std::vector<int32_t>& ids) {
            const std::string s = t.tokenizer->decode(ids);
            return nb::bytes(s.data(), s.size());
          },
          nb::arg("ids"), "The bytes of the ids.")
      .def("to_json", [](const PyTokenizer& t) { return t.tokenizer->to_json(); })
      .def("save", [](const PyTokenizer& t, const std::string& path) { t.tokenizer->save(path); }, nb::arg("path"));
}

}  // namespace strata::python
