/* A plugin in C for the CPU: scale * relu(x + bias)^2 in one pass over memory, with its gradient.
 *
 * Squared ReLU: So et al., "Primer: Searching for Efficient Transformers", arXiv:2109.08668. */
#include <string.h>

#include <strata/c/strata.h>

static const strata_api* api;

enum { X, BIAS, SCALE, NUM_ARGS };

/* Keeps a text and returns the status that goes with it. */
static strata_status fail(strata_status status, const char* text) {
  api->set_error(text);
  return status;
}

/* ---- small helpers around api->op_call ---- */

static strata_value tensor_value(const strata_tensor* t) {
  strata_value v;
  memset(&v, 0, sizeof v);
  v.kind = STRATA_TENSOR;
  v.as.tensor = (strata_tensor*)t;
  return v;
}

static strata_value float_value(double x) {
  strata_value v;
  memset(&v, 0, sizeof v);
  v.kind = STRATA_FLOAT;
  v.as.number = x;
  return v;
}

/* An op with one tensor as its result: a new reference, which the caller releases. */
static strata_status call(const char* name, const strata_value* args, size_t num_args, strata_tensor** out) {
  strata_value result;
  size_t room = 1;
  strata_status status = api->op_call(api->op_find(name), args, num_args, &result, &room);
  if (status == STRATA_OK) *out = result.as.tensor;
  return status;
}

static strata_status call2(const char* name, const strata_tensor* a, strata_value b, strata_tensor** out) {
  strata_value args[2];
  args[0] = tensor_value(a);
  args[1] = b;
  return call(name, args, 2, out);
}

/* ---- the record's functions ---- */

static strata_status infer(void* data, const strata_value* args, size_t num_args, strata_meta* results) {
  const strata_tensor *x = args[X].as.tensor, *bias = args[BIAS].as.tensor;
  int32_t ndim = api->tensor_ndim(x);
  (void)data, (void)num_args;
  if (api->tensor_dtype(x) != STRATA_F32 && api->tensor_dtype(x) != STRATA_F64)
    return fail(STRATA_DTYPE_ERROR, "x must be f32 or f64");
  if (api->tensor_dtype(bias) != api->tensor_dtype(x))
    return fail(STRATA_DTYPE_ERROR, "x and bias must have the same dtype");
  if (ndim < 1 || api->tensor_ndim(bias) != 1 || api->tensor_shape(bias)[0] != api->tensor_shape(x)[ndim - 1])
    return fail(STRATA_SHAPE_ERROR, "bias must have one dimension, of the size of x's last one");
  results[0].dtype = api->tensor_dtype(x);
  results[0].device = api->tensor_device(x);
  results[0].ndim = ndim;
  memcpy(results[0].shape, api->tensor_shape(x), (size_t)ndim * sizeof(int64_t));
  return STRATA_OK;
}

/* What the threads need: rows of `width` elements. */
typedef struct {
  const void *x, *bias;
  void* y;
  double scale;
  int64_t width;
  strata_dtype dtype;
} job;

static void rows_f32(const job* j, int64_t begin, int64_t end) {
  const float* bias = (const float*)j->bias;
  const float scale = (float)j->scale;
  int64_t r, c;
  for (r = begin; r < end; ++r) {
    const float* x = (const float*)j->x + r * j->width;
    float* y = (float*)j->y + r * j->width;
    for (c = 0; c < j->width; ++c) {
      const float z = x[c] + bias[c];
      /* Written so that a NaN stays one. */
      y[c] = z <= 0 ? 0 : scale * z * z;
    }
  }
}

static void rows_f64(const job* j, int64_t begin, int64_t end) {
  const double* bias = (const double*)j->bias;
  int64_t r, c;
  for (r = begin; r < end; ++r) {
    const double* x = (const double*)j->x + r * j->width;
    double* y = (double*)j->y + r * j->width;
    for (c = 0; c < j->width; ++c) {
      const double z = x[c] + bias[c];
      y[c] = z <= 0 ? 0 : j->scale * z * z;
    }
  }
}

static void rows(void* context, int64_t begin, int64_t end) {
  const job* j = (const job*)context;
  if (j->dtype == STRATA_F32)
    rows_f32(j, begin, end);
  else
    rows_f64(j, begin, end);
}

static strata_status cpu(void* data, strata_tensor* const* results, const strata_value* args, size_t num_args) {
  strata_value x = tensor_value(args[X].as.tensor), bias = tensor_value(args[BIAS].as.tensor);
  strata_tensor *dense_x = NULL, *dense_bias = NULL;
  strata_status status = STRATA_OK;
  job j;
  (void)data, (void)num_args;
  j.width = api->tensor_shape(args[BIAS].as.tensor)[0];
  if (j.width == 0) return STRATA_OK;
  /* Results are row-major, arguments need not be. */
  if (api->tensor_is_contiguous(args[X].as.tensor))
    dense_x = api->tensor_retain(args[X].as.tensor);
  else
    status = call("clone", &x, 1, &dense_x);
  if (status == STRATA_OK) status = call("clone", &bias, 1, &dense_bias);
  if (status == STRATA_OK) {
    j.x = api->tensor_data(dense_x);
    j.bias = api->tensor_data(dense_bias);
    j.y = api->tensor_data(results[0]);
    j.scale = args[SCALE].as.number;
    j.dtype = api->tensor_dtype(dense_x);
    api->parallel_for(api->tensor_numel(results[0]) / j.width, 1 + 16384 / j.width, rows, &j);
  }
  api->tensor_release(dense_x);
  api->tensor_release(dense_bias);
  return status;
}

/* dx = 2 scale relu(x + bias) gy, dbias its sum over the rows. With other ops, so that it has a gradient as well. */
static strata_status backward(void* data, const strata_gradient_call* g) {
  strata_tensor *z = NULL, *r = NULL, *product = NULL, *gx = NULL;
  strata_status status = STRATA_OK;
  (void)data;
  if (g->result_grads[0] == NULL) return STRATA_OK;
  status = call2("add", g->args[X].as.tensor, g->args[BIAS], &z);
  if (status == STRATA_OK) {
    strata_value v = tensor_value(z);
    status = call("relu", &v, 1, &r);
  }
  if (status == STRATA_OK) status = call2("mul", r, tensor_value(g->result_grads[0]), &product);
  if (status == STRATA_OK) {
    /* full([], 2 scale, dtype): a tensor without dimensions. */
    strata_value full[3];
    strata_tensor* factor = NULL;
    memset(full, 0, sizeof full);
    full[0].kind = STRATA_INTS;
    full[1] = float_value(2 * g->args[SCALE].as.number);
    full[2].kind = STRATA_DTYPE_VALUE;
    full[2].as.dtype = api->tensor_dtype(product);
    status = call("full", full, 3, &factor);
    if (status == STRATA_OK) status = call2("mul", product, tensor_value(factor), &gx);
    api->tensor_release(factor);
  }
  if (status == STRATA_OK && g->wanted[BIAS]) {
    int64_t dims[STRATA_MAX_DIMS];
    strata_value args[2];
    int32_t i, n = api->tensor_ndim(gx) - 1;
    for (i = 0; i < n; ++i) dims[i] = i;
    memset(args, 0, sizeof args);
    args[0] = tensor_value(gx);
    args[1].kind = STRATA_INTS;
    args[1].size = (size_t)n;
    args[1].as.integers = dims;
    /* sum() over no dims means all of them. */
    if (n > 0)
      status = call("sum", args, 2, &g->arg_grads[BIAS]);
    else
      g->arg_grads[BIAS] = api->tensor_retain(gx);
  }
  if (status == STRATA_OK && g->wanted[X]) g->arg_grads[X] = api->tensor_retain(gx);
  api->tensor_release(z);
  api->tensor_release(r);
  api->tensor_release(product);
  api->tensor_release(gx);
  return status;
}

static void cost(void* data, const strata_value* args, size_t num_args, double* flops, double* bytes) {
  const double n = (double)api->tensor_numel(args[X].as.tensor);
  (void)data, (void)num_args;
  *flops = 4 * n;
  *bytes = 2 * n * (api->tensor_dtype(args[X].as.tensor) == STRATA_F32 ? 4 : 8);
}

static void add_sample(strata_samples* s, const int64_t* shape, int32_t ndim, double scale, bool benchmark) {
  strata_value args[NUM_ARGS];
  /* Positive or negative by more than the steps of the gradient check: the second gradient jumps at x + bias = 0. */
  strata_tensor* x = api->samples_uniform(s, shape, ndim, 0.5, 2, -1);
  strata_tensor* bias = api->samples_uniform(s, &shape[ndim - 1], 1, -0.3, 0.3, -1);
  args[X] = tensor_value(x);
  args[BIAS] = tensor_value(bias);
  args[SCALE] = float_value(scale);
  api->samples_add(s, args, NUM_ARGS, NULL, true, benchmark);
  /* The other side, and both sides where no gradient is checked. */
  if (!benchmark) {
    strata_tensor* negative = api->samples_uniform(s, shape, ndim, -2, -0.5, -1);
    strata_tensor* both = api->samples_tensor(s, shape, ndim, -1);
    args[X] = tensor_value(negative);
    api->samples_add(s, args, NUM_ARGS, "negative", true, false);
    args[X] = tensor_value(both);
    api->samples_add(s, args, NUM_ARGS, "both signs", false, false);
    api->tensor_release(negative);
    api->tensor_release(both);
  }
  api->tensor_release(x);
  api->tensor_release(bias);
}

static void samples(void* data, strata_samples* s) {
  static const int64_t vector[] = {7}, matrix[] = {3, 5}, batch[] = {2, 3, 4}, large[] = {4096, 1024};
  (void)data;
  add_sample(s, vector, 1, 1, false);
  add_sample(s, matrix, 2, 0.5, false);
  add_sample(s, batch, 3, -2, false);
  if (api->samples_benchmarking(s)) add_sample(s, large, 2, 1, true);
  {
    strata_value args[2];
    strata_tensor *x = api->samples_tensor(s, matrix, 2, -1), *bias = api->samples_tensor(s, vector, 1, -1);
    args[X] = tensor_value(x);
    args[BIAS] = tensor_value(bias);
    api->samples_invalid(s, STRATA_SHAPE_ERROR, "bias must have one dimension", args, 2);
    api->tensor_release(x);
    api->tensor_release(bias);
  }
}

/* The same with the engine's own ops, in double precision. */
static strata_status reference(void* data, const strata_value* args, size_t num_args, strata_value* results) {
  strata_tensor *z = NULL, *r = NULL, *square = NULL, *factor = NULL, *y = NULL;
  strata_value full[3], v;
  strata_status status;
  (void)data, (void)num_args;
  status = call2("add", args[X].as.tensor, args[BIAS], &z);
  v = tensor_value(z);
  if (status == STRATA_OK) status = call("relu", &v, 1, &r);
  v = tensor_value(r);
  if (status == STRATA_OK) status = call("square", &v, 1, &square);
  memset(full, 0, sizeof full);
  full[0].kind = STRATA_INTS;
  full[1] = args[SCALE];
  full[2].kind = STRATA_DTYPE_VALUE;
  full[2].as.dtype = STRATA_F64;
  if (status == STRATA_OK) status = call("full", full, 3, &factor);
  if (status == STRATA_OK) status = call2("mul", square, tensor_value(factor), &y);
  if (status == STRATA_OK) results[0] = tensor_value(y); /* our reference is the engine's now */
  api->tensor_release(z);
  api->tensor_release(r);
  api->tensor_release(square);
  api->tensor_release(factor);
  return status;
}

/* ---- the plugin ---- */

static strata_op_record squared_relu;
static const strata_op_record* records[] = {&squared_relu};
static strata_plugin plugin;

STRATA_EXPORT const strata_plugin* strata_plugin_entry(const strata_api* given) {
  api = given;
  squared_relu.struct_size = sizeof squared_relu;
  squared_relu.schema = "squared_relu(Tensor x, Tensor bias, float scale=1) -> Tensor";
  squared_relu.doc =
      "scale * relu(x + bias)^2 for x [..., n] and bias [n], f32 or f64. ShapeError for another bias. Squared ReLU: So "
      "et al., arXiv:2109.08668.";
  squared_relu.saves = "x bias";
  squared_relu.autocast = STRATA_AUTOCAST_FULL;
  squared_relu.dtypes = STRATA_DTYPE_BIT(STRATA_F32) | STRATA_DTYPE_BIT(STRATA_F64);
  squared_relu.infer = infer;
  squared_relu.cpu = cpu;
  squared_relu.backward = backward;
  squared_relu.cost = cost;
  squared_relu.samples = samples;
  squared_relu.reference = reference;
  plugin.struct_size = sizeof plugin;
  plugin.abi_version = STRATA_ABI_VERSION;
  plugin.name = "squared_relu";
  plugin.version = "1.0";
  plugin.records = records;
  plugin.num_records = 1;
  return &plugin;
}
