#pragma once
// Verification divided among processes: a kernel that brings its process down costs one op.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/op.h"
#include "strata/lab/verify.h"

namespace strata::cli {

/// Reads names of ops from the standard input, one a line, and writes a report of each as soon as it is verified.
int verify_named(const lab::VerifyOptions& options);

/// Verifies `ops` in `jobs` processes that run this program with `arguments` (which must lead to verify_named()), each
/// op in the first that is free. Reports are in the order of `ops`. An op fails whose process ends, or that takes
/// longer than `seconds`; another process then goes on with the rest. `started` is told of each op. IoError where no
/// process can be started.
std::vector<lab::OpReport> verify_in_processes(const std::vector<const OpBase*>& ops,
                                               const std::vector<std::string>& arguments, int jobs, double seconds,
                                               const std::function<void(std::string_view)>& started);

}  // namespace strata::cli
