// strata model convert: a model's files in another form or with other numbers.

#include <algorithm>
#include <cctype>
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
#include "strata/models/export.h"
#include "strata/models/gguf_model.h"
#include "strata/text/tokenizer_folder.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string in, out, to, type;
  bool no_tokenizer = false;
  LowBits bits;
};

// What --type takes of safetensors; of GGUF any of gguf_types().
constexpr std::pair<std::string_view, DType> kPlain[] = {
    {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}};

std::string changed(std::string_view text, int (*letter)(int)) {
  std::string made(text);
  std::ranges::transform(made, made.begin(),
                         [&](char c) { return static_cast<char>(letter(static_cast<unsigned char>(c))); });
  return made;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const std::string_view name : gguf_types()) names.push_back(changed(name, std::tolower));
  return names;
}

int run(const Arguments& a) {
  const bool gguf = a.to.empty() ? a.out.ends_with(".gguf") : a.to == "gguf";
  std::optional<DType> dtype;
  for (const auto& [name, type] : kPlain)
    if (name == a.type) dtype = type;
  if (!a.type.empty() && !gguf && !dtype)
    throw UsageError(fmt::format("--type {} is GGUF's alone: add --to gguf", a.type));
  const bool numbers = gguf || dtype.has_value();
  check_low_bits(a.bits, numbers);
  // Seen before anything is loaded; the writers refuse or replace only at the end.
  if (fs::symlink_status(a.out).type() != fs::file_type::not_found)
    throw IoError("model", fmt::format("'{}' is there already", a.out));
  if (!fs::exists(a.in)) throw IoError("model", fmt::format("there is no '{}'", a.in));
  refuse_run(a.in);
  Pretrained model = load_pretrained(a.in);
  if (a.no_tokenizer || !text::has_tokenizer(a.in))
    std::fputs("note: no tokenizer is written, only the model\n", stderr);
  // A config.json that speaks of low-bit files would not be true of what is written: the family writes another.
  if (set_low_bits(model.module(), a.bits, numbers)) model.config.clear();
  if (gguf) {
    const std::string type = changed(a.type, std::toupper);
    if (a.no_tokenizer)
      save_gguf(model.module(), *model.family, model.spec, a.out, {.type = type});
    else
      save_gguf(model, a.out, {.type = type});
  } else {
    if (a.no_tokenizer)
      save_pretrained(model.module(), *model.family, model.spec, a.out, {.dtype = dtype, .config = model.config});
    else
      save_pretrained(model, a.out, {.dtype = dtype});
  }
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
  convert
      ->add_option("--type,--dtype", a->type,
                   "Of the matrices; those that begin with q are of GGUF alone. As they are, else")
      ->type_name("TYPE")
      ->check(CLI::IsMember(type_names()));
  convert->add_flag("--no-tokenizer", a->no_tokenizer, "Write the model alone");
  add_low_bits(*convert, a->bits);
  convert->footer(
      "Of GGUF's low-bit files vectors stay f32, and the output layer of q4_0, q4_k and q5_k is q6_k. GGUF is of\n"
      "decoders. With --type and in GGUF low-bit layers are written as numbers.\n"
      "  strata model convert models/llama llama.gguf --type q4_k\n"
      "  strata model convert llama.gguf models/again --type bf16\n"
      "  strata model convert models/llama models/llama-int4 --bits int4");
  convert->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
