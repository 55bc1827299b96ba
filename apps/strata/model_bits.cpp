#include "apps/strata/model_bits.h"

#include <string_view>
#include <vector>

#include "apps/strata/model.h"
#include "strata/nn/packed.h"

namespace strata::cli {
namespace {

// The formats that folders store and that are made here, with the columns that have one scale where nothing is said.
struct Made {
  std::string_view format;
  int64_t group;  // 0: all
};
constexpr Made kMade[] = {{"int8", 0}, {"int4", 128}, {"e4m3", 0}, {"nf4", 64}};

}  // namespace

void add_low_bits(CLI::App& command, LowBits& options) {
  std::vector<std::string> names;
  for (const Made& m : kMade) names.emplace_back(m.format);
  command.add_option("--bits", options.format, "Round linear layers but the head, for a folder. As they are, else")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(names));
  command
      .add_option("--group", options.group, "Columns with one scale; else 128 of int4, 64 of nf4, all of the others")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
}

void check_low_bits(const LowBits& options, bool numbers) {
  if (!options.format.empty() && numbers)
    throw UsageError("--bits is for folders whose other weights stay as they are");
  if (options.group != 0 && options.format.empty()) throw UsageError("--group goes with --bits");
}

bool set_low_bits(const nn::Module& module, const LowBits& options, bool numbers) {
  const bool make = !options.format.empty();
  const auto parameters = module.named_parameters();
  const DType own = parameters.empty() ? DType::f32 : parameters.front().second.dtype();
  bool changed = make;
  for (const auto& [name, part] : module.named_modules())
    if (nn::is_packed(part) && (make || numbers || !nn::packed_weights(part)[0].format->scaled)) {
      nn::unpack_linear(part, own);
      changed = true;
    }
  for (const Made& m : kMade) {
    if (m.format != options.format) continue;
    nn::PackOptions how;
    how.rounding.block_columns = options.group != 0 ? options.group : m.group;
    how.rounding.nested = m.format == "nf4";
    nn::quantize(module, m.format, how);
  }
  return changed;
}

}  // namespace strata::cli
