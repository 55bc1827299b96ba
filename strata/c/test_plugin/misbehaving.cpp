// A plugin for the tests that misbehaves in the way that its file's name says; "right.so" does not. Its op is
// test_NAME(Tensor x, float factor=2) -> Tensor, factor * x, with one thing wrong.

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "strata/c/strata.h"

namespace {

const strata_api* api;
std::string variant;

bool is(const char* name) {
  return variant == name;
}

strata_status fail(strata_status status, const char* text) {
  api->set_error(text);
  return status;
}

strata_status infer(void*, const strata_value* args, size_t num_args, strata_meta* results) {
  if (num_args != 2 || args[0].kind != STRATA_TENSOR || args[1].kind != STRATA_FLOAT)
    return fail(STRATA_OTHER_ERROR, "the engine broke its word: arguments are not what the schema says");
  const strata_tensor* x = args[0].as.tensor;
  strata_meta& m = results[0];
  if (is("infer_throws")) throw std::runtime_error("thrown in infer");
  if (is("infer_throws_int")) throw 5;
  if (is("infer_fails")) return fail(STRATA_SHAPE_ERROR, "no shape is good enough");
  if (is("infer_fails_silently")) return STRATA_SHAPE_ERROR;
  if (is("infer_status")) return static_cast<strata_status>(77);
  if (is("infer_says_nothing")) return STRATA_OK;
  if (api->tensor_dtype(x) != STRATA_F32 && api->tensor_dtype(x) != STRATA_F64)
    return fail(STRATA_DTYPE_ERROR, "f32 or f64 is wanted");
  m.dtype = api->tensor_dtype(x);
  m.device = api->tensor_device(x);
  m.ndim = api->tensor_ndim(x);
  std::memcpy(m.shape, api->tensor_shape(x), sizeof(int64_t) * static_cast<size_t>(m.ndim));
  if (is("two_results")) results[1] = m;
  if (is("infer_ndim")) m.ndim = 9;
  if (is("infer_negative")) m.shape[0] = -3;
  if (is("infer_dtype")) m.dtype = 10;
  if (is("infer_overflow")) m.ndim = 2, m.shape[0] = m.shape[1] = int64_t{1} << 40;
  if (is("infer_huge")) m.ndim = 1, m.shape[0] = int64_t{1} << 55;
  if (is("infer_device")) m.device.type = 3;
  if (is("infer_other_device")) m.device.type = STRATA_META;
  return STRATA_OK;
}

template <class T>
void multiply(strata_tensor* y, const strata_tensor* x, double factor) {
  const auto* p = static_cast<const T*>(api->tensor_data(x));
  auto* q = static_cast<T*>(api->tensor_data(y));
  const int64_t n = api->tensor_numel(y);
  for (int64_t i = 0; i < n; ++i) q[i] = static_cast<T>(factor) * p[i];
  if (is("overrun") && n > 0) q[n] = 1;
  if (is("far_overrun") && n > 0) q[n + 100] = 1;
  if (is("underrun") && n > 0) q[-1] = 1;
}

strata_status cpu(void*, strata_tensor* const* results, const strata_value* args, size_t) {
  if (is("two_results")) {
    multiply<float>(results[0], args[0].as.tensor, args[1].as.number);
    multiply<float>(results[1], args[0].as.tensor, -args[1].as.number);
    return STRATA_OK;
  }
  if (is("kernel_throws")) throw std::runtime_error("thrown in the kernel");
  if (is("kernel_fails")) return fail(STRATA_INDEX_ERROR, "out of fingers");
  strata_value copied;
  size_t room = 1;
  if (const strata_status s = api->op_call(api->op_find("clone"), args, 1, &copied, &room)) return s;
  if (is("kernel_calls_badly")) {
    room = 1;
    strata_value unused;
    api->value_clear(&copied);
    return api->op_call(api->op_find("matmul"), args, 1, &unused, &room);
  }
  if (api->tensor_dtype(results[0]) == STRATA_F32)
    multiply<float>(results[0], copied.as.tensor, args[1].as.number);
  else
    multiply<double>(results[0], copied.as.tensor, args[1].as.number);
  api->value_clear(&copied);
  return STRATA_OK;
}

strata_status backward(void* data, const strata_gradient_call* g) {
  if (is("backward_throws")) throw std::runtime_error("thrown in backward");
  if (is("backward_fails")) return fail(STRATA_AUTOGRAD_ERROR, "no way back");
  if (is("two_results")) {
    // factor * (ga - gb) of those that arrived: a + alpha b is an op.
    strata_tensor *ga = g->result_grads[0], *gb = g->result_grads[1];
    strata_value args[3] = {}, result;
    args[0].kind = args[1].kind = STRATA_TENSOR;
    args[2].kind = STRATA_FLOAT;
    args[0].as.tensor = args[1].as.tensor = ga ? ga : gb;
    args[2].as.number = (ga ? 1 : -1) * g->args[1].as.number - 1;
    size_t room = 1;
    if (ga && gb) return fail(STRATA_AUTOGRAD_ERROR, "one gradient at a time");
    if (const strata_status s = api->op_call(api->op_find("add"), args, 3, &result, &room)) return s;
    g->arg_grads[0] = result.as.tensor;
    return STRATA_OK;
  }
  if (!g->wanted[0] || !g->result_grads[0]) return STRATA_OK;
  if (is("backward_shape")) {
    const int64_t one = 1;
    return api->tensor_empty(&one, 1, STRATA_F32, {STRATA_CPU, 0}, &g->arg_grads[0]);
  }
  // factor * gy: the op itself.
  strata_value args[2] = {}, result;
  args[0].kind = STRATA_TENSOR;
  args[0].as.tensor = g->result_grads[0];
  args[1] = g->args[1];
  if (is("wrong_gradient")) args[1].as.number *= 1.001;
  size_t room = 1;
  const std::string name = "test_" + variant;
  if (const strata_status s = api->op_call(api->op_find(name.c_str()), args, 2, &result, &room)) return s;
  g->arg_grads[0] = result.as.tensor;
  return STRATA_OK;
}

void samples(void*, strata_samples* s) {
  const int64_t shape[] = {4, 4};
  if (is("samples_throw")) throw std::runtime_error("thrown in samples");
  strata_value args[2] = {};
  args[0].kind = STRATA_TENSOR;
  args[0].as.tensor = api->samples_tensor(s, shape, is("samples_shape") ? 12 : 2, -1);
  args[1].kind = is("samples_type") ? STRATA_STRING : STRATA_FLOAT;
  args[1].as.number = 1.5;
  if (is("samples_type")) args[1].as.text = "much";
  api->samples_add(s, args, 2, nullptr, true, false);
  api->tensor_release(args[0].as.tensor);
}

void cost(void*, const strata_value*, size_t, double* flops, double*) {
  if (is("cost_throws")) throw std::runtime_error("thrown in cost");
  *flops = 3;
}

strata_op_record record, second;
const strata_op_record* records[] = {&record, &second};
strata_plugin plugin;
std::string schema;

// factor * x again, in f64.
strata_status reference(void*, const strata_value* args, size_t, strata_value* results) {
  size_t room = 1;
  if (const strata_status s = api->op_call(api->op_find("clone"), args, 1, results, &room)) return s;
  auto* p = static_cast<double*>(api->tensor_data(results[0].as.tensor));
  for (int64_t i = 0, n = api->tensor_numel(results[0].as.tensor); i < n; ++i) p[i] *= args[1].as.number;
  return STRATA_OK;
}

void fill(strata_op_record& r) {
  r.struct_size = sizeof r;
  r.schema = schema.c_str();
  r.doc = "factor * x.";
  r.dtypes = STRATA_DTYPE_BIT(STRATA_F32) | STRATA_DTYPE_BIT(STRATA_F64);
  r.infer = infer;
  r.cpu = cpu;
  r.backward = backward;
  r.cost = cost;
  r.samples = samples;
  r.reference = reference;
}

}  // namespace

extern "C" STRATA_EXPORT const strata_plugin* strata_plugin_entry(const strata_api* given) {
  api = given;
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&strata_plugin_entry), &info);
  variant = info.dli_fname;
  variant = variant.substr(variant.rfind('/') + 1);
  variant = variant.substr(0, variant.rfind('.'));
  schema = "test_" + variant + "(Tensor x, float factor=2) -> Tensor";
  if (is("entry_throws")) throw std::runtime_error("thrown in the entry");
  if (is("entry_throws_int")) throw 5;
  if (is("entry_null")) return nullptr;
  if (is("entry_refuses")) {
    api->set_error("this machine has no left-handed screwdriver");
    return nullptr;
  }
  fill(record);
  plugin = {sizeof plugin, STRATA_ABI_VERSION, "test_plugin", "0.5", records, 1};
  if (is("no_version_member")) plugin.struct_size = 8;
  if (is("version")) plugin.abi_version = 7;
  if (is("small_plugin")) plugin.struct_size = 24;
  if (is("no_name")) plugin.name = nullptr;
  if (is("no_records")) plugin.num_records = 0;
  if (is("null_record")) records[0] = nullptr;
  if (is("small_record")) record.struct_size = 64;
  if (is("no_schema")) record.schema = nullptr;
  if (is("no_doc")) record.doc = "";
  if (is("schema_text")) record.schema = "test_schema_text(Tensor x -> Tensor";
  if (is("schema_name")) record.schema = "test schema_name(Tensor x) -> Tensor";
  if (is("schema_type")) record.schema = "test_schema_type(Matrix x) -> Tensor";
  if (is("optional_text")) record.schema = "test_optional_text(Tensor x, str? mode=None) -> Tensor";
  if (is("unnamed")) record.schema = "test_unnamed(Tensor) -> Tensor";
  if (is("same_names")) record.schema = "test_same_names(Tensor x, Tensor x) -> Tensor";
  if (is("result_type")) record.schema = "test_result_type(Tensor x) -> Tensor[]";
  if (is("default_type")) record.schema = "test_default_type(Tensor x, int n=\"many\") -> Tensor";
  if (is("default_order")) record.schema = "test_default_order(Tensor x, int n=1, int m) -> Tensor";
  if (is("list_gradient")) record.schema = "test_list_gradient(Tensor[] xs) -> Tensor";
  if (is("name_taken")) record.schema = "relu(Tensor x, float factor=2) -> Tensor";
  if (is("saves")) record.saves = "x z";
  if (is("adapt")) record.adapt = 5;
  if (is("autocast")) record.autocast = -1;
  if (is("dtypes")) record.dtypes = 1 << 10;
  if (is("tolerance")) record.tolerance = 100;
  if (is("no_infer")) record.infer = nullptr;
  if (is("no_kernel")) record.cpu = nullptr;
  if (is("inplace")) {
    record.inplace = true;
    record.schema = "test_inplace(float factor, Tensor x) -> Tensor";
  }
  if (is("second_bad") || is("name_twice")) {
    fill(second);
    plugin.num_records = 2;
    if (is("second_bad")) second.schema = "test_second_bad_2(Tensor x) -> Nothing";
  }
  if (is("in_place_right")) record.inplace = true;
  if (is("two_results")) record.schema = "test_two_results(Tensor x, float factor=2) -> (Tensor up, Tensor down)";
  if (is("full_precision")) record.autocast = STRATA_AUTOCAST_FULL;
  if (is("takes_integers")) record.adapt = STRATA_ADAPT_PROMOTE_FLOAT;
  return &plugin;
}
