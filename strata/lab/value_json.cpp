#include "strata/lab/value_json.h"

#include <cmath>
#include <string_view>
#include <variant>

#include "strata/core/base64_inl.h"
#include "strata/lab/compare.h"

namespace strata::lab {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

nlohmann::ordered_json tensor_json(const Tensor& t) {
  if (!t.defined()) return nullptr;
  return {{"dtype", name_of(t.dtype())},
          {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
          {"data", strata::detail::base64(bytes(t))}};
}

nlohmann::ordered_json value_json(const Value& value) {
  return std::visit(ValueJson(), value);
}

nlohmann::ordered_json values_json(std::span<const Value> values) {
  auto list = ordered_json::array();
  for (const Value& v : values) list.push_back(value_json(v));
  return list;
}

}  // namespace strata::lab
