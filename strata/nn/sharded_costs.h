#pragma once
// What sharing a network's memory among ranks costs and saves, known before it is done. docs/design/dist.md

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strata/nn/fully_sharded.h"

namespace strata::nn {

/// Bytes of the first of the ranks that share a network, whose parts are the largest.
struct ShardedCosts {
  int64_t parameters = 0;  ///< that stay: parts of 3, with what stays whole; all of them else
  int64_t gathered = 0;    ///< of 3: whole parameters at most at once, beside the parts
  int64_t gradients = 0;   ///< once backward has ended: parts of 2 and 3, whole ones else
  int64_t buckets = 0;     ///< of 2 and 3: gradients at most on their way at once, beside the parts
  int64_t filling = 0;     ///< what may be there before backward has ended, beside the parts of all gradients
  double updated = 1;      ///< of the trained elements, those that the rank updates and has optimizer state for
  // What it sends in a step, to ranks one by one; of host memory, where all_reduce sends 2 (n-1)/n of the bytes.
  int64_t sends_parameters = 0;  ///< parts for blocks that others gather, and updated parts
  int64_t sends_gradients = 0;
};

/// A table of nn::Embedding as calls of a pass read it.
struct TableReads {
  std::vector<int64_t> ids;  ///< of each lookup, of the rank that has the most
  bool others = false;       ///< whether others read it, too: an output layer
};

/// Of `ranks` ranks that share `module` as these options say, `passes` forward and backward passes a step; zero = 0 is
/// distributed::DataParallel. The module may be on any device, meta included; replicas are not counted. A block is
/// taken to be gathered once in forward and, where it has gone, once in backward; the largest one is still there when
/// backward begins. `cut`: of parameters that tensor parallelism cuts, by name, the shape of what it leaves a rank, of
/// which the costs then are. `others`: of parameters that another number of ranks shares (FullyShardedOptions::apart),
/// by name, that number. `reads`: of parameters that calls read as something else than they are, autocast's copies, by
/// name, bytes of an element of what is gathered for them. `tables`: by name, what is looked up by rows where that is
/// fewer bytes (FullyShardedOptions::rows_from); others are gathered. Throws ValueError for numbers that make no sense.
ShardedCosts sharded_costs(const Module& module, const FullyShardedOptions& options, int ranks, int64_t passes = 1,
                           const std::map<std::string, Shape>& cut = {}, const std::map<std::string, int>& others = {},
                           const std::map<std::string, int64_t>& reads = {},
                           const std::map<std::string, TableReads>& tables = {});

}  // namespace strata::nn
