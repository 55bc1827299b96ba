// The table of functions that plugins get.

#include "strata/c/plugin_op.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/cuda/runtime.h"

namespace strata::c {
namespace {

// samples_... have no status: the first failure is kept, and the round fails with it.
template <class T, class F>
T sampling(strata_samples* s, T otherwise, F&& body) {
  if (!s) return otherwise;
  try {
    return body();
  } catch (...) {
    record_exception();
    if (s->failure.empty()) s->failure = last_failure().text;
    return otherwise;
  }
}

DType sample_dtype(const strata_samples* s, int32_t dtype) {
  return dtype < 0 ? s->samples->dtype() : dtype_from(dtype, "samples");
}

void set_error(const char* text) {
  record_failure(STRATA_OTHER_ERROR, text);
}

void* stream(strata_device device) {
  return guarded_or<void*>(nullptr, [&]() -> void* {
    const Device d = device_from(device, "stream");
    return d.is_cuda() ? cuda::current_stream(d.index).handle() : nullptr;
  });
}

// Not guarded: what a C++ body throws is for the plugin, or for the engine that called it.
void run_parallel(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  if (!body) return;
  parallel_for(0, n, grain < 1 ? 1 : grain, [&](int64_t begin, int64_t end) { body(context, begin, end); });
}

strata_dtype samples_dtype(const strata_samples* s) {
  return s ? c_dtype(s->samples->dtype()) : STRATA_F32;
}
bool samples_benchmarking(const strata_samples* s) {
  return s && s->samples->benchmarking();
}
strata_tensor* samples_tensor(strata_samples* s, const int64_t* shape, int32_t ndim, int32_t dtype) {
  return sampling<strata_tensor*>(s, nullptr, [&] {
    return give(s->samples->tensor(shape_from(shape, ndim, "samples_tensor"), sample_dtype(s, dtype)));
  });
}
strata_tensor* samples_uniform(strata_samples* s, const int64_t* shape, int32_t ndim, double low, double high,
                               int32_t dtype) {
  return sampling<strata_tensor*>(s, nullptr, [&] {
    return give(s->samples->uniform(shape_from(shape, ndim, "samples_uniform"), low, high, sample_dtype(s, dtype)));
  });
}
strata_tensor* samples_integers(strata_samples* s, const int64_t* shape, int32_t ndim, int64_t low, int64_t high,
                                int32_t dtype) {
  return sampling<strata_tensor*>(s, nullptr, [&] {
    const Shape size = shape_from(shape, ndim, "samples_integers");
    return give(s->samples->integers(size, low, high, dtype < 0 ? DType::i64 : sample_dtype(s, dtype)));
  });
}
void samples_add(strata_samples* s, const strata_value* args, size_t num_args, const char* label, bool differentiable,
                 bool benchmark) {
  sampling(s, 0, [&] {
    Sample sample;
    sample.args = values_of(args, num_args, "samples_add");
    // A sample that could not even be called would say nothing of the op.
    static_cast<const PluginOp*>(s->op)->normalised(sample.args);
    sample.label = label ? label : benchmark ? "bench" : "";
    sample.differentiable = differentiable;
    sample.benchmark = benchmark;
    s->samples->valid.push_back(std::move(sample));
    return 0;
  });
}
void samples_invalid(strata_samples* s, strata_status status, const char* message, const strata_value* args,
                     size_t num_args) {
  sampling(s, 0, [&] {
    check(status != STRATA_OK, "samples_invalid", "STRATA_OK is no refusal");
    std::type_index error = typeid(Error);
    try {
      throw_status(status, "samples_invalid", "");
    } catch (const Error& e) {
      error = typeid(e);
    }
    s->samples->refused.push_back({values_of(args, num_args, "samples_invalid"), message ? message : "", error});
    return 0;
  });
}

}  // namespace

const strata_api& plugin_api() {
  static const strata_api api = [] {
    strata_api a = {};
    a.struct_size = sizeof a;
    a.abi_version = STRATA_ABI_VERSION;
    a.set_error = set_error;
    a.error_text = strata_error_text;
    a.tensor_empty = strata_tensor_empty;
    a.tensor_retain = strata_tensor_retain;
    a.tensor_release = strata_tensor_release;
    a.tensor_ndim = strata_tensor_ndim;
    a.tensor_shape = strata_tensor_shape;
    a.tensor_strides = strata_tensor_strides;
    a.tensor_numel = strata_tensor_numel;
    a.tensor_dtype = strata_tensor_dtype;
    a.tensor_device = strata_tensor_device;
    a.tensor_is_contiguous = strata_tensor_is_contiguous;
    a.tensor_data = strata_tensor_data;
    a.op_find = strata_op_find;
    a.op_call = strata_op_call;
    a.value_clear = strata_value_clear;
    a.stream = stream;
    a.parallel_for = run_parallel;
    a.samples_dtype = samples_dtype;
    a.samples_benchmarking = samples_benchmarking;
    a.samples_tensor = samples_tensor;
    a.samples_uniform = samples_uniform;
    a.samples_integers = samples_integers;
    a.samples_add = samples_add;
    a.samples_invalid = samples_invalid;
    return a;
  }();
  return api;
}

}  // namespace strata::c
