// Writes every record's samples with their results as JSON: one test table for all languages. docs/design/bindings.md
// describes the format. Results are those of the CPU, computed from row-major arguments as a reader rebuilds them.

#include <cstdio>
#include <fstream>
#include <string>
#include <typeindex>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/core/node.h"
#include "strata/core/op_base.h"
#include "strata/core/samples.h"
#include "strata/lab/compare.h"
#include "strata/lab/value_json.h"
#include "strata/memory/allocator.h"
#include "strata/ops/linalg/linalg.h"

namespace strata {
namespace {

using lab::values_json;
using nlohmann::ordered_json;

const char* error_name(std::type_index type) {
  if (type == typeid(ShapeError)) return "ShapeError";
  if (type == typeid(DTypeError)) return "DTypeError";
  if (type == typeid(IndexError)) return "IndexError";
  if (type == typeid(ValueError)) return "ValueError";
  if (type == typeid(DeviceError)) return "DeviceError";
  if (type == typeid(AutogradError)) return "AutogradError";
  if (type == typeid(MemoryError)) return "MemoryError";
  if (type == typeid(IoError)) return "IoError";
  if (type == typeid(LinAlgError)) return "LinAlgError";
  return "Error";
}

// The dtypes of the table: enough for every kind of value to pass through a language, not every kernel again.
std::vector<DType> dtypes_of(const OpBase& op) {
  std::vector<DType> chosen;
  for (const DType dtype : {DType::f32, DType::i64, DType::boolean, DType::f64, DType::i32, DType::i8, DType::u8})
    if (chosen.empty() && (op.dtypes() & dtype_bit(dtype))) chosen.push_back(dtype);
  const std::string_view family = op.family();
  if ((family == "elementwise" || family == "matmul" || family == "view") && (op.dtypes() & dtype_bit(DType::bf16)))
    chosen.push_back(DType::bf16);
  return chosen;
}

// Results that hold what was in memory before could not be compared: they differ between two fillings of fresh memory.
std::vector<Value> reproducible_results(const OpBase& op, const std::vector<Value>& args) {
  NoGrad guard;
  std::vector<Value> results[2];
  for (const int pass : {0, 1}) {
    memory::PoisonScope poison(pass == 0 ? 0xff : 0x2a);
    // An in-place op like no other writes to its arguments: each pass has its own.
    results[pass] = op.call_boxed(lab::map(args, lab::dense_copy));
  }
  check(values_json(results[0]) == values_json(results[1]), op.name(), "gives different results for equal arguments ",
        lab::text_of(args));
  return std::move(results[0]);
}

ordered_json cases_of(const OpBase& op) {
  auto cases = ordered_json::array();
  for (const DType dtype : dtypes_of(op)) {
    Samples samples(dtype);
    op.samples(samples);
    for (const Sample& s : samples.valid) {
      if (s.benchmark) continue;
      cases.push_back({{"label", s.label},
                       {"dtype", name_of(dtype)},
                       {"args", values_json(s.args)},
                       {"results", values_json(reproducible_results(op, s.args))}});
    }
    for (const InvalidSample& s : samples.refused) {
      cases.push_back({{"label", "refused"},
                       {"dtype", name_of(dtype)},
                       {"args", values_json(s.args)},
                       {"error", {{"type", error_name(s.error)}, {"message", s.message}}}});
    }
  }
  return cases;
}

int write_table(const std::string& path) {
  auto ops = ordered_json::array();
  size_t cases = 0;
  for (const OpBase* op : OpBase::all()) {
    if (!op->has_samples()) continue;
    try {
      ops.push_back({{"op", op->name()}, {"cases", cases_of(*op)}});
    } catch (const std::exception& e) {
      throw Error("strata_sample_table", cat("the samples of ", op->name(), ": ", e.what()));
    }
    cases += ops.back()["cases"].size();
  }
  std::ofstream file(path);
  file << ordered_json{{"version", 1}, {"ops", ops}}.dump() << "\n";
  file.close();
  check<IoError>(file.good(), "strata_sample_table", "cannot write ", path);
  std::printf("%zu ops, %zu cases in %s\n", ops.size(), cases, path.c_str());
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: strata_sample_table FILE\n", stderr);
    return 2;
  }
  try {
    return strata::write_table(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "strata_sample_table: %s\n", e.what());
    return 1;
  }
}
