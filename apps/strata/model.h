#pragma once
// The parts of `strata model` that have files of their own.

#include <string>

#include "apps/strata/command.h"

namespace strata::cli {

/// Throws IoError, saying what else can be done with it, where `path` is the folder of a training run, a checkpoint of
/// one, or a file of a checkpoint: these have the run's own layout, and no model's folder does.
void refuse_run(const std::string& path);

void add_model_info(CLI::App& model, Body& body);
void add_model_convert(CLI::App& model, Body& body);

}  // namespace strata::cli
