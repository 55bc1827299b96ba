#pragma once
// Ranks that are threads of one process: what many processes do, checked in one.

#include <functional>

#include "strata/dist/group.h"

namespace strata::distributed {

/// Calls body(rank) on a thread for each rank of the mesh. In it rank(), size(), mesh() and group() are that rank's, as
/// in a job of so many processes. When a body throws, the others' collectives end with an error; the error of the rank
/// that failed first is thrown again. What a body makes of groups must not outlive it.
///
///     run_as_ranks(Mesh("dp=2 tp=2"), [](int rank) { Tensor y = all_reduce(full({1}, rank), "sum", "tp"); });
void run_as_ranks(const Mesh& mesh, const std::function<void(int rank)>& body);

}  // namespace strata::distributed
