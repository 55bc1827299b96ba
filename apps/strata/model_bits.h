#pragma once
// Low-bit layers of a model that strata model convert writes.

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "strata/nn/module.h"

namespace strata::cli {

/// What --bits and --group say.
struct LowBits {
  std::string format;  ///< empty: layers stay as they are
  int64_t group = 0;   ///< columns with one scale; 0: the format's own
};
void add_low_bits(CLI::App& command, LowBits& options);

/// Throws UsageError where they do not go together; `numbers`: all layers are to be plain (--dtype, GGUF).
void check_low_bits(const LowBits& options, bool numbers);

/// Makes the layers what is to be written: numbers where `numbers` says so, those that folders do not store anyway;
/// then low-bit ones of `options.format`. Throws as nn::quantize(). Whether a config.json that speaks of low-bit layers
/// is no longer true.
bool set_low_bits(const nn::Module& module, const LowBits& options, bool numbers);

}  // namespace strata::cli
