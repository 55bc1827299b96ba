// A plugin with a CUDA kernel: limit * tanh(x / limit), which keeps logits within (-limit, limit) (Gemma 2,
// arXiv:2408.00118, section 2). The same arithmetic runs on the CPU.

#include <cmath>
#include <cstring>

#include <cuda_runtime.h>
#include <strata/c/strata.h>

namespace {

const strata_api* api;

strata_status fail(strata_status status, const char* text) {
  api->set_error(text);
  return status;
}

// ---- small helpers around api->op_call

strata_value of_kind(strata_kind kind) {
  strata_value v = {};
  v.kind = kind;
  return v;
}
strata_value value(const strata_tensor* t) {
  strata_value v = of_kind(STRATA_TENSOR);
  v.as.tensor = const_cast<strata_tensor*>(t);
  return v;
}
strata_value value(double x) {
  strata_value v = of_kind(STRATA_FLOAT);
  v.as.number = x;
  return v;
}

// A reference that is given back at the end of the scope.
class Handle {
 public:
  explicit Handle(strata_tensor* t = nullptr) : t_(t) {}
  ~Handle() { api->tensor_release(t_); }
  Handle(const Handle&) = delete;
  strata_tensor* get() const { return t_; }
  strata_tensor* release() {
    strata_tensor* t = t_;
    t_ = nullptr;
    return t;
  }
  // Becomes the only result of an op.
  template <class... Args>
  strata_status call(const char* op, const Args&... args) {
    const strata_value all[] = {args...};
    strata_value result;
    size_t room = 1;
    const strata_status status = api->op_call(api->op_find(op), all, sizeof...(args), &result, &room);
    if (status == STRATA_OK) t_ = result.as.tensor;
    return status;
  }

 private:
  strata_tensor* t_;
};

// ---- arithmetic, on both devices

template <class T>
__host__ __device__ T soft_cap(T x, T limit) {
  return limit * tanh(x / limit);
}

template <class T>
__global__ void soft_cap_kernel(T* y, const T* x, T limit, int64_t n) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) y[i] = soft_cap(x[i], limit);
}

template <class T>
struct Job {
  T* y;
  const T* x;
  T limit;
};
template <class T>
void soft_cap_part(void* context, int64_t begin, int64_t end) {
  const auto* job = static_cast<const Job<T>*>(context);
  for (int64_t i = begin; i < end; ++i) job->y[i] = soft_cap(job->x[i], job->limit);
}

// ---- the record's functions

strata_status infer(void*, const strata_value* args, size_t, strata_meta* results) {
  const strata_tensor* x = args[0].as.tensor;
  if (api->tensor_dtype(x) != STRATA_F32 && api->tensor_dtype(x) != STRATA_F64)
    return fail(STRATA_DTYPE_ERROR, "x must be f32 or f64");
  if (!(args[1].as.number > 0)) return fail(STRATA_VALUE_ERROR, "limit must be above 0");
  results[0].dtype = api->tensor_dtype(x);
  results[0].device = api->tensor_device(x);
  results[0].ndim = api->tensor_ndim(x);
  std::memcpy(results[0].shape, api->tensor_shape(x), sizeof(int64_t) * static_cast<size_t>(api->tensor_ndim(x)));
  return STRATA_OK;
}

template <class T>
void cpu_of(strata_tensor* y, const strata_tensor* x, double limit) {
  Job<T> job{static_cast<T*>(api->tensor_data(y)), static_cast<const T*>(api->tensor_data(x)), static_cast<T>(limit)};
  api->parallel_for(api->tensor_numel(y), 4096, soft_cap_part<T>, &job);
}
template <class T>
void cuda_of(strata_tensor* y, const strata_tensor* x, double limit) {
  const int64_t n = api->tensor_numel(y), blocks = (n + 255) / 256;
  const auto stream = static_cast<cudaStream_t>(api->stream(api->tensor_device(y)));
  soft_cap_kernel<T><<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(
      static_cast<T*>(api->tensor_data(y)), static_cast<const T*>(api->tensor_data(x)), static_cast<T>(limit), n);
}

// Results are row-major; an argument that is not is copied first.
template <class F32, class F64>
strata_status run(strata_tensor* y, const strata_value* args, F32 f32, F64 f64) {
  if (api->tensor_numel(y) == 0) return STRATA_OK;
  const strata_tensor* x = args[0].as.tensor;
  Handle dense;
  if (!api->tensor_is_contiguous(x)) {
    if (const strata_status status = dense.call("clone", value(x))) return status;
    x = dense.get();
  }
  if (api->tensor_dtype(y) == STRATA_F32)
    f32(y, x, args[1].as.number);
  else
    f64(y, x, args[1].as.number);
  return STRATA_OK;
}
strata_status cpu(void*, strata_tensor* const* results, const strata_value* args, size_t) {
  return run(results[0], args, cpu_of<float>, cpu_of<double>);
}
// Queues and returns: the engine looks at the launch's error itself.
strata_status cuda(void*, strata_tensor* const* results, const strata_value* args, size_t) {
  return run(results[0], args, cuda_of<float>, cuda_of<double>);
}

// full([], x, dtype of `like`, device of `like`): x as a tensor without dimensions.
strata_status number_like(Handle& result, double x, const strata_tensor* like) {
  strata_value dtype = of_kind(STRATA_DTYPE_VALUE), device = of_kind(STRATA_DEVICE_VALUE);
  dtype.as.dtype = api->tensor_dtype(like);
  device.as.device = api->tensor_device(like);
  return result.call("full", of_kind(STRATA_INTS), value(x), dtype, device);
}

// gx = gy (1 - (y / limit)^2), with other ops, so that it has a gradient as well.
strata_status backward(void*, const strata_gradient_call* g) {
  const strata_tensor *y = g->results[0], *gy = g->result_grads[0];
  if (!g->wanted[0] || !gy) return STRATA_OK;
  Handle factor, ratio, square, part, gx;
  strata_status s = number_like(factor, 1 / g->args[1].as.number, gy);
  if (s == STRATA_OK) s = ratio.call("mul", value(y), value(factor.get()));
  if (s == STRATA_OK) s = square.call("square", value(ratio.get()));
  if (s == STRATA_OK) s = part.call("mul", value(gy), value(square.get()));
  if (s == STRATA_OK) s = gx.call("sub", value(gy), value(part.get()));
  if (s == STRATA_OK) g->arg_grads[0] = gx.release();
  return s;
}

// The same with the engine's own ops, in double precision.
strata_status reference(void*, const strata_value* args, size_t, strata_value* results) {
  Handle limit, ratio, tanh, y;
  strata_status s = number_like(limit, args[1].as.number, args[0].as.tensor);
  if (s == STRATA_OK) s = ratio.call("div", args[0], value(limit.get()));
  if (s == STRATA_OK) s = tanh.call("tanh", value(ratio.get()));
  if (s == STRATA_OK) s = y.call("mul", value(tanh.get()), value(limit.get()));
  if (s == STRATA_OK) results[0] = value(y.release());
  return s;
}

void cost(void*, const strata_value* args, size_t, double* flops, double* bytes) {
  const auto n = static_cast<double>(api->tensor_numel(args[0].as.tensor));
  *flops = 10 * n;
  *bytes = 2 * n * (api->tensor_dtype(args[0].as.tensor) == STRATA_F32 ? 4 : 8);
}

void samples(void*, strata_samples* s) {
  const int64_t matrix[] = {3, 5}, large[] = {4096, 4096};
  const auto add = [&](const int64_t* shape, int32_t ndim, double limit, bool benchmark) {
    const Handle x(api->samples_tensor(s, shape, ndim, -1));
    const strata_value args[] = {value(x.get()), value(limit)};
    api->samples_add(s, args, 2, nullptr, true, benchmark);
  };
  add(matrix, 2, 1, false);
  add(matrix, 2, 30, false);
  add(nullptr, 0, 2, false);
  if (api->samples_benchmarking(s)) add(large, 2, 30, true);
  const Handle x(api->samples_tensor(s, matrix, 2, -1));
  const strata_value bad[] = {value(x.get()), value(0.0)};
  api->samples_invalid(s, STRATA_VALUE_ERROR, "limit must be above 0", bad, 2);
}

const strata_op_record record = [] {
  strata_op_record r = {};
  r.struct_size = sizeof r;
  r.schema = "soft_cap(Tensor x, float limit) -> Tensor";
  r.doc =
      "limit * tanh(x / limit), elementwise, f32 or f64: x kept within (-limit, limit). ValueError unless limit is "
      "above 0. Gemma 2, arXiv:2408.00118.";
  r.saves = "result";
  r.autocast = STRATA_AUTOCAST_FULL;
  r.inplace = true;
  r.dtypes = STRATA_DTYPE_BIT(STRATA_F32) | STRATA_DTYPE_BIT(STRATA_F64);
  r.infer = infer;
  r.cpu = cpu;
  r.cuda = cuda;
  r.backward = backward;
  r.cost = cost;
  r.samples = samples;
  r.reference = reference;
  return r;
}();
const strata_op_record* const records[] = {&record};
const strata_plugin plugin = {sizeof(strata_plugin), STRATA_ABI_VERSION, "soft_cap", "1.0", records, 1};

}  // namespace

extern "C" STRATA_EXPORT const strata_plugin* strata_plugin_entry(const strata_api* given) {
  api = given;
  return &plugin;
}
