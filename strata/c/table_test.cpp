// Every sample of the table through the C interface: the same bytes, the same refusals.

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/c/strata.h"

namespace {

using nlohmann::json;

constexpr const char* kDTypes[] = {"u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool"};

int32_t dtype_of(const std::string& name) {
  for (int32_t i = 0; i < 10; ++i)
    if (name == kDTypes[i]) return i;
  throw std::runtime_error("no dtype " + name);
}

std::string decoded(const std::string& text) {
  static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

strata_tensor* tensor_of(const json& t) {
  if (t.is_null()) return nullptr;
  const auto shape = t["shape"].get<std::vector<int64_t>>();
  const std::string bytes = decoded(t["data"]);
  strata_tensor* out = nullptr;
  if (strata_tensor_from_data(bytes.data(), bytes.size(), shape.data(), static_cast<int32_t>(shape.size()),
                              static_cast<strata_dtype>(dtype_of(t["dtype"])), {STRATA_CPU, 0}, &out) != STRATA_OK)
    throw std::runtime_error(strata_error_text());
  return out;
}

double number_of(const json& v) {
  if (v.is_number()) return v.get<double>();
  if (v == "nan") return std::nan("");
  return v == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

// Arguments with all that they point to.
class Args {
 public:
  explicit Args(const json& list) {
    values_.reserve(list.size());
    for (const json& v : list) values_.push_back(value(v));
  }
  ~Args() {
    for (strata_tensor* t : owned_) strata_tensor_release(t);
  }
  Args(const Args&) = delete;
  const strata_value* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }

 private:
  strata_value value(const json& given) {
    const std::string kind = given.begin().key();
    const json& v = given.begin().value();
    strata_value out = {};
    if (kind == "none") return out;
    if (kind == "tensor") {
      out.kind = STRATA_TENSOR;
      out.as.tensor = own(tensor_of(v));
    } else if (kind == "tensors") {
      auto& list = lists_.emplace_back(std::make_unique<std::vector<strata_tensor*>>());
      for (const json& t : v) list->push_back(own(tensor_of(t)));
      out.kind = STRATA_TENSORS;
      out.as.tensors = list->data();
      out.size = list->size();
    } else if (kind == "bool") {
      out.kind = STRATA_BOOLEAN;
      out.as.boolean = v.get<bool>();
    } else if (kind == "int") {
      out.kind = STRATA_INT;
      out.as.integer = std::stoll(v.get<std::string>());
    } else if (kind == "float") {
      out.kind = STRATA_FLOAT;
      out.as.number = number_of(v);
    } else if (kind == "string") {
      auto& text = texts_.emplace_back(std::make_unique<std::string>(v.get<std::string>()));
      out.kind = STRATA_STRING;
      out.as.text = text->c_str();
      out.size = text->size();
    } else if (kind == "ints") {
      auto& ints = ints_.emplace_back(std::make_unique<std::vector<int64_t>>(v.get<std::vector<int64_t>>()));
      out.kind = STRATA_INTS;
      out.as.integers = ints->data();
      out.size = ints->size();
    } else if (kind == "dtype") {
      out.kind = STRATA_DTYPE_VALUE;
      out.as.dtype = dtype_of(v);
    } else if (kind == "device") {
      out.kind = STRATA_DEVICE_VALUE;
      out.as.device = {v == "cpu" ? STRATA_CPU : STRATA_META, 0};
    } else if (kind == "key") {
      out.kind = STRATA_RNG_KEY;
      out.as.key = {std::stoull(v[0].get<std::string>()), std::stoull(v[1].get<std::string>())};
    } else {
      throw std::runtime_error("no kind " + kind);
    }
    return out;
  }
  strata_tensor* own(strata_tensor* t) {
    owned_.push_back(t);
    return t;
  }

  std::vector<strata_value> values_;
  std::vector<strata_tensor*> owned_;
  std::vector<std::unique_ptr<std::vector<strata_tensor*>>> lists_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<std::unique_ptr<std::vector<int64_t>>> ints_;
};

void expect_same(const strata_tensor* got, const json& want) {
  ASSERT_EQ(got == nullptr, want.is_null());
  if (!got) return;
  EXPECT_EQ(kDTypes[strata_tensor_dtype(got)], want["dtype"].get<std::string>());
  const int64_t* shape = strata_tensor_shape(got);
  EXPECT_EQ(std::vector<int64_t>(shape, shape + strata_tensor_ndim(got)), want["shape"].get<std::vector<int64_t>>());
  const std::string bytes = decoded(want["data"]);
  std::string own(bytes.size(), '?');
  ASSERT_EQ(strata_tensor_copy_to_host(got, own.data(), own.size()), STRATA_OK) << strata_error_text();
  EXPECT_TRUE(own == bytes) << "other bytes";
}

strata_status status_of(const std::string& error) {
  const std::pair<const char*, strata_status> all[] = {
      {"ValueError", STRATA_VALUE_ERROR},   {"ShapeError", STRATA_SHAPE_ERROR},
      {"DTypeError", STRATA_DTYPE_ERROR},   {"IndexError", STRATA_INDEX_ERROR},
      {"DeviceError", STRATA_DEVICE_ERROR}, {"IoError", STRATA_IO_ERROR},
      {"MemoryError", STRATA_MEMORY_ERROR}, {"AutogradError", STRATA_AUTOGRAD_ERROR},
      {"LinAlgError", STRATA_OTHER_ERROR},  {"Error", STRATA_OTHER_ERROR}};
  for (const auto& [name, status] : all)
    if (error == name) return status;
  return STRATA_OK;
}

TEST(Table, EverySampleThroughC) {
  std::ifstream file(STRATA_SAMPLE_TABLE);
  ASSERT_TRUE(file) << "strata_sample_table writes " STRATA_SAMPLE_TABLE ", which ctest runs before";
  const json table = json::parse(file);
  ASSERT_EQ(table["version"], 1);
  size_t cases = 0;
  strata_set_grad_enabled(false);
  for (const json& entry : table["ops"]) {
    const std::string name = entry["op"];
    size_t index = 0;
    for (const json& c : entry["cases"]) {
      SCOPED_TRACE(name + ", case " + std::to_string(index++) + " " + c["label"].get<std::string>());
      ++cases;
      const Args args(c["args"]);
      strata_value results[16] = {};
      size_t room = 16;
      const strata_status status = strata_call(name.c_str(), args.data(), args.size(), results, &room);
      if (c.contains("error")) {
        EXPECT_EQ(status, status_of(c["error"]["type"])) << strata_error_text();
        EXPECT_NE(std::string(strata_error_text()).find(c["error"]["message"].get<std::string>()), std::string::npos)
            << strata_error_text();
      } else if (status != STRATA_OK) {
        ADD_FAILURE() << strata_error_text();
      } else {
        const json& want = c["results"];
        EXPECT_EQ(room, want.size());
        for (size_t i = 0; i < room && i < want.size(); ++i) {
          if (want[i].contains("tensors")) {
            ASSERT_EQ(results[i].kind, STRATA_TENSORS);
            ASSERT_EQ(results[i].size, want[i]["tensors"].size());
            for (size_t k = 0; k < results[i].size; ++k) expect_same(results[i].as.tensors[k], want[i]["tensors"][k]);
          } else {
            ASSERT_EQ(results[i].kind, STRATA_TENSOR);
            expect_same(results[i].as.tensor, want[i]["tensor"]);
          }
        }
      }
      for (strata_value& v : results) strata_value_clear(&v);
    }
  }
  strata_set_grad_enabled(true);
  EXPECT_GT(cases, 1500u);
}

}  // namespace
