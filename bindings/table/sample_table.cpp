// Writes every record's samples with their results as JSON: one test table for all languages. docs/design/bindings.md
// describes the format. Results are those of the CPU, computed from row-major arguments as a reader rebuilds them.

#include <cmath>
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
#include "strata/memory/allocator.h"
#include "strata/ops/linalg/linalg.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](size_t k) { return k < bytes.size() ? static_cast<uint8_t>(bytes[k]) : 0u; };
    const uint32_t three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    for (int k = 0; k < 4; ++k)
      text += i + static_cast<size_t>(k) > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
  }
  return text;
}

ordered_json tensor_json(const Tensor& t) {
  if (!t.defined()) return nullptr;
  return {{"dtype", name_of(t.dtype())},
          {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
          {"data", base64(lab::bytes(t))}};
}

ordered_json number_json(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return v;
}

struct ValueJson {
  ordered_json operator()(std::monostate) const { return {{"none", true}}; }
  ordered_json operator()(const Tensor& v) const { return {{"tensor", tensor_json(v)}}; }
  ordered_json operator()(const TensorList& v) const {
    auto list = ordered_json::array();
    for (const Tensor& t : v) list.push_back(tensor_json(t));
    return {{"tensors", list}};
  }
  ordered_json operator()(const Scalar& v) const {
    if (v.kind() == DType::boolean) return (*this)(v.to_bool());
    if (v.kind() == DType::i64) return (*this)(v.to_int());
    return (*this)(v.to_double());
  }
  ordered_json operator()(int64_t v) const { return {{"int", std::to_string(v)}}; }
  ordered_json operator()(double v) const { return {{"float", number_json(v)}}; }
  ordered_json operator()(bool v) const { return {{"bool", v}}; }
  ordered_json operator()(const std::string& v) const { return {{"string", v}}; }
  ordered_json operator()(const Dims& v) const { return {{"ints", std::vector<int64_t>(v.begin(), v.end())}}; }
  ordered_json operator()(DType v) const { return {{"dtype", name_of(v)}}; }
  ordered_json operator()(Device v) const { return {{"device", to_string(v)}}; }
  ordered_json operator()(const RngKey& v) const {
    return {{"key", {std::to_string(v.seed), std::to_string(v.offset)}}};
  }
};

ordered_json values_json(const std::vector<Value>& values) {
  auto list = ordered_json::array();
  for (const Value& v : values) list.push_back(std::visit(ValueJson(), v));
  return list;
}

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
