// strata model convert: a model's files in another form or with other numbers.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/model.h"
#include "apps/strata/model_bits.h"
#include "strata/core/error.h"
#include "strata/io/stored_type.h"
#include "strata/models/export.h"
#include "strata/models/gguf_model.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string in, out, to, dtype;
  LowBits bits;
};

// What --dtype takes: of safetensors a dtype, of GGUF any.
struct Stored {
  std::string_view name;
  std::optional<DType> dtype;
  std::string_view gguf;
};
constexpr Stored kStored[] = {{"f32", DType::f32, "F32"},
                              {"bf16", DType::bf16, "BF16"},
                              {"f16", DType::f16, "F16"},
                              {"q8_0", {}, "Q8_0"},
                              {"q4_0", {}, "Q4_0"}};

std::vector<std::string> stored_names() {
  std::vector<std::string> names;
  for (const Stored& s : kStored) names.emplace_back(s.name);
  return names;
}

int run(const Arguments& a) {
  const bool gguf = a.to.empty() ? a.out.ends_with(".gguf") : a.to == "gguf";
  const Stored* asked = nullptr;
  for (const Stored& s : kStored)
    if (s.name == a.dtype) asked = &s;
  if (asked != nullptr && !gguf && !asked->dtype)
    throw UsageError(fmt::format("--dtype {} is GGUF's alone: add --to gguf", asked->name));
  const bool numbers = gguf || asked != nullptr;
  check_low_bits(a.bits, numbers);
  // Seen before anything is loaded; the writers refuse or replace only at the end.
  if (fs::symlink_status(a.out).type() != fs::file_type::not_found)
    throw IoError("model", fmt::format("'{}' is there already", a.out));
  if (!fs::exists(a.in)) throw IoError("model", fmt::format("there is no '{}'", a.in));
  const bool from_folder = fs::exists(fs::path(a.in) / "config.json");
  Pretrained model = from_folder ? load_pretrained(a.in) : load_gguf(a.in);
  const auto parameters = model.module().named_parameters();
  const DType own = parameters.empty() ? DType::f32 : parameters.front().second.dtype();
  // A config.json that speaks of low-bit files would not be true of what is written: the family writes another.
  if (set_low_bits(model.module(), a.bits, numbers)) model.config.clear();
  if (gguf) {
    const std::string_view type = asked != nullptr ? asked->gguf : io::stored_type(own).name;
    save_gguf(model.module(), *model.family, model.spec, a.out, type);
  } else {
    ExportOptions options;
    if (asked != nullptr) options.dtype = asked->dtype;
    save_pretrained(model, a.out, options);
  }
  if (gguf || !from_folder) std::fputs("note: no tokenizer is written, only the model\n", stderr);
  std::fputs(fmt::format("{}\n", a.out).c_str(), stdout);
  return kOk;
}

}  // namespace

void add_model_convert(CLI::App& model, Body& body) {
  CLI::App* convert = model.add_subcommand("convert", "Write a model as Hugging Face's folder or as a GGUF file");
  auto a = std::make_shared<Arguments>();
  convert->add_option("in", a->in, "A model's folder, or a GGUF file")->required()->type_name("PATH");
  convert->add_option("out", a->out, "New folder or file")->required()->type_name("PATH");
  convert
      ->add_option("--to", a->to, "hf: a folder with safetensors, the tokenizer beside them; gguf. As OUT ends, else")
      ->type_name("FORM")
      ->check(CLI::IsMember({"hf", "gguf"}));
  convert->add_option("--dtype", a->dtype, "Of the weights; q8_0 and q4_0 of GGUF alone. As they are, else")
      ->type_name("TYPE")
      ->check(CLI::IsMember(stored_names()));
  add_low_bits(*convert, a->bits);
  convert->footer(
      "With --dtype and in GGUF low-bit layers are written as numbers. GGUF is of decoders, and without a tokenizer.\n"
      "  strata model convert models/llama llama.gguf --dtype q8_0\n"
      "  strata model convert llama.gguf models/again --dtype bf16\n"
      "  strata model convert models/llama models/llama-int4 --bits int4");
  convert->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
