#pragma once
// The parts of `strata model` that have files of their own.

#include "apps/strata/command.h"

namespace strata::cli {

void add_model_info(CLI::App& model, Body& body);
void add_model_convert(CLI::App& model, Body& body);

}  // namespace strata::cli
