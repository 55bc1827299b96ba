#pragma once
// The handle of an optimizer, for those who work with what is in it.

#include <atomic>
#include <cstdint>
#include <memory>

#include "strata/c/strata.h"
#include "strata/optim/optimizer.h"

struct strata_optimizer {
  std::atomic<uint32_t> refs{1};
  std::unique_ptr<strata::optim::Optimizer> made;
};
