// Files of data and the order of samples: what strata/utils/data.py draws from.

#include <memory>
#include <utility>
#include <variant>

#include <nanobind/stl/variant.h>

#include "py.h"
#include "strata/core/node.h"
#include "strata/data/idx.h"
#include "strata/data/sampler.h"
#include "strata/data/token_file.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "text.h"

namespace strata::python {
namespace {

// The order in which the engine's own loader draws samples in an epoch.
Tensor sample_order(int64_t size, uint64_t seed, int64_t epoch) {
  data::Sampler sampler(size, seed, true);
  data::SamplerState state = sampler.state();
  state.epoch = epoch;
  sampler.set_state(state);
  Tensor order = empty({{size}, DType::i64, Device::cpu(), std::nullopt});
  int64_t* out = order.data<int64_t>();
  for (int64_t i = 0; i < size; ++i) out[i] = sampler.next().index;
  return order;
}

Tensor read_tokens(const data::TokenFile& file, int64_t begin, int64_t count) {
  check(count >= 0, "TokenFile.read", "a count is at least 0, got ", count);
  Tensor t = empty({{count}, DType::i64, Device::cpu(), std::nullopt});
  file.read(begin, std::span<int64_t>(t.data<int64_t>(), static_cast<size_t>(count)));
  return t;
}

// memory::TierScope between __enter__ and __exit__.
class PyTierScope {
 public:
  explicit PyTierScope(const std::string& tier) : tier_(memory::parse_tier(tier)) {}
  void enter() { scope_ = std::make_unique<memory::TierScope>(tier_); }
  void exit(nb::handle, nb::handle, nb::handle) { scope_.reset(); }

 private:
  Tier tier_;
  std::unique_ptr<memory::TierScope> scope_;
};

}  // namespace

void bind_data(nb::module_& m) {
  using Release = nb::call_guard<Released>;
  m.def("read_idx", &data::read_idx, nb::arg("path"), Release(),
        "Reads an IDX file (the format of MNIST), plain or gzip-compressed.");
  m.def("sample_order", &sample_order, nb::arg("size"), nb::arg("seed"), nb::arg("epoch") = 0, Release(),
        "The order of 0..size-1 that seed and epoch decide, as the engine's own loader draws it: i64 [size].");
  m.def("pin_memory", &strata::pin_memory, nb::arg("t"), Release(),
        "A host tensor in page-locked memory, from which a CUDA device copies on its own: a copy, unless it is there.");
  nb::class_<PyTierScope>(m, "TierScope", "New tensors of this thread are made in memory of a tier: \"own\", \"pinned\", \"disk\", ...")
      .def(nb::init<const std::string&>(), nb::arg("tier"))
      .def("__enter__", &PyTierScope::enter)
      .def("__exit__", &PyTierScope::exit, nb::arg("type") = nb::none(), nb::arg("value") = nb::none(),
           nb::arg("traceback") = nb::none());

  nb::class_<data::TokenFile>(m, "TokenFile", "Token ids in a file, mapped into memory.")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def("__len__", &data::TokenFile::size)
      .def_prop_ro("path", [](const data::TokenFile& f) { return f.path(); })
      .def_prop_ro("vocab_size", &data::TokenFile::vocab_size)
      .def_prop_ro("token_bytes", &data::TokenFile::token_bytes)
      .def("read", &read_tokens, nb::arg("begin"), nb::arg("count"), "Tokens [begin, begin + count) as an i64 tensor.");
  m.def(
      "build_token_file",
      [](const std::variant<std::string, std::vector<std::string>>& source, const PyTokenizer& tokenizer,
         const std::string& path, const std::string& separator, const std::string& format, const std::string& field,
         const std::string& utf8) {
        const auto* one = std::get_if<std::string>(&source);
        const std::vector<std::string> sources =
            one ? std::vector<std::string>{*one} : std::get<std::vector<std::string>>(source);
        data::TokenFileOptions options{.separator = separator};
        options.text.format = data::parse_text_format(format);
        options.text.field = field;
        options.text.utf8 = data::parse_utf8_policy(utf8);
        Released release;
        const data::BuildProgress done = data::build_token_file(sources, *tokenizer.tokenizer, path, options);
        return std::pair(done.tokens, done.documents);
      },
      nb::arg("source"), nb::arg("tokenizer"), nb::arg("path"), nb::arg("separator") = "",
      nb::arg("format") = to_string(data::TextFormat::whole), nb::arg("field") = "text",
      nb::arg("utf8") = to_string(data::Utf8Policy::keep),
      "Tokenises text files, all of a folder, or what matches a pattern, into a token file: (tokens, documents).");
}

}  // namespace strata::python
