#pragma once
// Modules of parameters that have names: for policies that go by a network's tree, over networks that are no Module.

#include <string>
#include <utility>
#include <vector>

#include "strata/nn/module.h"

namespace strata::nn {

/// The tree that the names speak of, over these parameters, whose storages it shares: "blocks.0.weight" is a parameter
/// of item 0 of "blocks", which is a ModuleList because all that it has are numbers. `kinds` says otherwise: paths of
/// all modules, parents first ("" is the root), with their kinds. What is no floating leaf is left out. Throws
/// ValueError for a name that is empty, has an empty part or stands for two things, or whose module `kinds` lacks.
///
///     nn::Module net = nn::module_tree({{"blocks.0.weight", w}, {"blocks.0.bias", b}, {"head.weight", h}});
Module module_tree(const NamedTensors& parameters, const std::vector<std::pair<std::string, std::string>>& kinds = {});

}  // namespace strata::nn
