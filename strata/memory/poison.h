#pragma once

namespace strata::memory {

/// The byte that PoisonScope fills fresh memory with; -1 while there is none.
int poison_pattern();

}  // namespace strata::memory
