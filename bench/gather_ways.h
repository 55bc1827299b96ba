#pragma once

namespace strata {

/// Prints what each way to read rows over the bus reaches: bench/gather_ways.cu.
void bench_gather_ways();

}  // namespace strata
