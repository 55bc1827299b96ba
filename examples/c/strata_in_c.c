/* Strata from C99: trains a small network, and continues a text with a model that `strata train` wrote or that exists.
 *
 *   strata_in_c                     learns which points lie within a circle
 *   strata_in_c CHECKPOINT PROMPT   writes 60 tokens
 *   strata_in_c --model DIR PROMPT  the same with a model that exists, a folder as Hugging Face writes it */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strata/c/strata.h>

static const strata_device cpu = {STRATA_CPU, 0};

/* Ends the program where a call failed. */
static void check(strata_status status) {
  if (status == STRATA_OK) return;
  fprintf(stderr, "error %d: %s\n", (int)status, strata_error_text());
  exit(1);
}

/* ---- arguments of ops ---- */

static strata_value of_kind(strata_kind kind) {
  strata_value v;
  memset(&v, 0, sizeof v);
  v.kind = kind;
  return v;
}
static strata_value tensor(strata_tensor* t) {
  strata_value v = of_kind(STRATA_TENSOR);
  v.as.tensor = t;
  return v;
}
static strata_value number(double x) {
  strata_value v = of_kind(STRATA_FLOAT);
  v.as.number = x;
  return v;
}

/* An op with one tensor as its result. The results of a step are kept and released together. */
static strata_tensor* kept[32];
static size_t num_kept = 0;
static strata_tensor* op(const char* name, size_t num_args, strata_value a, strata_value b, strata_value c) {
  strata_value args[3], result;
  size_t room = 1;
  args[0] = a;
  args[1] = b;
  args[2] = c;
  check(strata_call(name, args, num_args, &result, &room));
  return kept[num_kept++] = result.as.tensor;
}
static strata_tensor* op1(const char* name, strata_tensor* a) {
  return op(name, 1, tensor(a), of_kind(STRATA_NONE), of_kind(STRATA_NONE));
}
static strata_tensor* op2(const char* name, strata_tensor* a, strata_tensor* b) {
  return op(name, 2, tensor(a), tensor(b), of_kind(STRATA_NONE));
}
static void release_kept(void) {
  while (num_kept > 0) strata_tensor_release(kept[--num_kept]);
}

/* ---- a network: 2 inputs, 16 hidden units, 1 output ---- */

enum { POINTS = 256, HIDDEN = 16, STEPS = 600 };

/* Uniform numbers in [-range, range), which remember what becomes of them. */
static strata_tensor* parameter(int64_t rows, int64_t columns, double range, uint64_t stream) {
  int64_t shape[2];
  strata_value args[4], result;
  size_t room = 1;
  shape[0] = rows;
  shape[1] = columns;
  args[0] = of_kind(STRATA_INTS);
  args[0].as.integers = shape;
  args[0].size = 2;
  args[1] = number(-range);
  args[2] = number(range);
  args[3] = of_kind(STRATA_RNG_KEY);
  args[3].as.key.seed = 1;
  args[3].as.key.offset = stream << 20;
  check(strata_call("uniform", args, 4, &result, &room));
  check(strata_tensor_set_requires_grad(result.as.tensor, true));
  return result.as.tensor;
}

static void done(void* data) {
  free(data);
}

static void train(void) {
  /* The points stay the program's memory: the tensors borrow it, and free it when the last of them goes. */
  float* points = (float*)malloc(POINTS * 2 * sizeof(float));
  float inside[POINTS];
  int64_t shape[2] = {POINTS, 2}, column[2] = {POINTS, 1};
  strata_tensor *x, *y, *w[4];
  strata_param_group group = {0};
  strata_optimizer* sgd;
  strata_value text;
  double loss = 0;
  int step, i;
  for (i = 0; i < POINTS; ++i) {
    const float a = (float)(i % 16) / 8 - 1, b = (float)(i / 16) / 8 - 1;
    points[2 * i] = a;
    points[2 * i + 1] = b;
    inside[i] = a * a + b * b < 0.5f ? 1.0f : -1.0f;
  }
  check(strata_tensor_borrow(points, shape, NULL, 2, STRATA_F32, cpu, done, points, &x));
  check(strata_tensor_from_data(inside, sizeof inside, column, 2, STRATA_F32, cpu, &y));
  w[0] = parameter(2, HIDDEN, 1.5, 0);
  w[1] = parameter(1, HIDDEN, 1.5, 1);
  w[2] = parameter(HIDDEN, 1, 0.5, 2);
  w[3] = parameter(1, 1, 0.5, 3);
  group.params = w;
  group.num_params = 4;
  group.options = "{\"lr\": 0.1}";
  check(strata_optimizer_create("sgd", &group, 1, &sgd));
  for (step = 0; step < STEPS; ++step) {
    strata_tensor *hidden, *out, *difference, *mean;
    float value;
    hidden = op1("tanh", op2("add", op2("matmul", x, w[0]), w[1]));
    out = op2("add", op2("matmul", hidden, w[2]), w[3]);
    difference = op2("sub", out, y);
    mean = op1("mean", op1("square", difference));
    check(strata_tensor_backward(mean, NULL, false, false));
    check(strata_tensor_copy_to_host(mean, &value, sizeof value));
    loss = value;
    if (step % 100 == 0) printf("step %4d  loss %.4f\n", step, loss);
    release_kept();
    check(strata_optimizer_step(sgd, 0, NULL));
    check(strata_optimizer_zero_grad(sgd));
  }
  strata_optimizer_release(sgd);
  check(strata_tensor_to_string(w[3], &text));
  printf("step %4d  loss %.4f, output bias %s\n", STEPS, loss, text.as.text);
  strata_value_clear(&text);
  for (i = 0; i < 4; ++i) strata_tensor_release(w[i]);
  strata_tensor_release(x);
  strata_tensor_release(y);
  if (!(loss < 0.3)) {
    fprintf(stderr, "the network did not learn: loss %.4f\n", loss);
    exit(1);
  }
}

/* ---- a trained model ---- */

static void generate(const char* checkpoint, const char* prompt) {
  strata_module* module;
  strata_value text;
  size_t i, elements = 0;
  check(strata_module_load(checkpoint, cpu, &module));
  for (i = 0; i < strata_module_num_parameters(module); ++i) {
    const char* name;
    strata_tensor* t;
    check(strata_module_parameter(module, i, &name, &t));
    elements += (size_t)strata_tensor_numel(t);
    strata_tensor_release(t);
  }
  printf("%lu parameters\n", (unsigned long)elements);
  check(strata_module_generate(module, prompt, 60, 0.8, 0, 1, &text));
  printf("%s%.*s\n", prompt, (int)text.size, text.as.text);
  strata_value_clear(&text);
  strata_module_release(module);
}

/* ---- a model that exists ---- */

static bool write_piece(void* context, const strata_piece* piece) {
  (void)context;
  printf("%.*s", (int)piece->size, piece->text);
  return fflush(stdout) == 0; /* false ends the text */
}

static void continue_text(const char* folder, const char* prompt) {
  strata_pretrained* model;
  strata_tensor* ids;
  strata_value written;
  check(strata_pretrained_load(folder, -1, cpu, &model));
  check(strata_pretrained_encode(model, prompt, &ids));
  printf("%s", prompt);
  check(strata_pretrained_generate(model, &ids, 1, "{\"max_new_tokens\": 60, \"temperature\": 0.8, \"seed\": 1}",
                                   write_piece, NULL, &written));
  printf("\n");
  strata_value_clear(&written);
  strata_tensor_release(ids);
  strata_pretrained_release(model);
}

int main(int argc, char** argv) {
  if (strata_abi_version() != STRATA_ABI_VERSION) {
    fprintf(stderr, "compiled for version %d of the interface, the library has %u\n", STRATA_ABI_VERSION,
            (unsigned)strata_abi_version());
    return 1;
  }
  printf("Strata %s, %lu ops, %d threads, %d cards\n", strata_version(), (unsigned long)strata_op_count(),
         (int)strata_num_threads(), (int)strata_cuda_device_count());
  if (argc == 4 && strcmp(argv[1], "--model") == 0)
    continue_text(argv[2], argv[3]);
  else if (argc == 3)
    generate(argv[1], argv[2]);
  else
    train();
  return 0;
}
