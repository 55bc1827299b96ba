/* Strata's C interface, and the interface of plugins. C99; no C++ type and no exception crosses it.
 *
 * Every function that can fail returns a strata_status; the text of the calling thread's last failure is
 * strata_error_text(). Handles (strata_tensor, strata_module, strata_pretrained, strata_optimizer) are counted
 * references: what a function gives out through a pointer belongs to the caller, who releases it; what is given to a
 * function is only borrowed for the call.
 * Functions may be called from any thread. Threads may share tensors and modules while they read them: call ops, record
 * them, run backward to shared leaves, read and set gradients. What writes (in-place ops, strata_tensor_data, an
 * optimizer's step, a module's conversion) must be alone with the tensor, and one handle must not be released while
 * another thread uses it.
 *
 * Names, numbers and layouts here change only together with STRATA_ABI_VERSION; structs that hold `struct_size` may
 * grow at their end without that. docs/design/c_interface.md explains the choices. */
#ifndef STRATA_C_STRATA_H
#define STRATA_C_STRATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define STRATA_EXPORT __declspec(dllexport)
#else
#define STRATA_EXPORT __attribute__((visibility("default")))
#endif

/* The interface's version. A program or plugin compiled for another one is refused. */
#define STRATA_ABI_VERSION 1
/* The most dimensions a tensor may have, and elements of an INTS value. */
#define STRATA_MAX_DIMS 8

/* ---- numbers ------------------------------------------------------------------------------------------- */

/* How a call ended. Errors carry a text: "op: what came, what is wanted". */
typedef enum strata_status {
  STRATA_OK = 0,
  STRATA_VALUE_ERROR = 1,    /* an argument that is not allowed, a name that does not exist */
  STRATA_SHAPE_ERROR = 2,    /* sizes that do not fit together */
  STRATA_DTYPE_ERROR = 3,    /* an element type that the op does not take */
  STRATA_INDEX_ERROR = 4,    /* an index or dim out of range */
  STRATA_DEVICE_ERROR = 5,   /* tensors on different devices, no kernel there, a failed launch */
  STRATA_AUTOGRAD_ERROR = 6, /* misuse of the tape */
  STRATA_MEMORY_ERROR = 7,   /* memory could not be had */
  STRATA_IO_ERROR = 8,       /* a file that cannot be read, or holds something invalid */
  STRATA_PLUGIN_ERROR = 9,   /* a plugin that cannot be loaded or broke the rules of this header */
  STRATA_OTHER_ERROR = 10    /* anything else, also a C++ exception of another kind */
} strata_status;

/* Element types. */
typedef enum strata_dtype {
  STRATA_U8 = 0,
  STRATA_I8 = 1,
  STRATA_I16 = 2,
  STRATA_I32 = 3,
  STRATA_I64 = 4,
  STRATA_F16 = 5,
  STRATA_BF16 = 6,
  STRATA_F32 = 7,
  STRATA_F64 = 8,
  STRATA_BOOL = 9
} strata_dtype;

typedef enum strata_device_type { STRATA_CPU = 0, STRATA_CUDA = 1, STRATA_META = 2 } strata_device_type;

/* Where bytes live: a kind of memory (a strata_device_type) and, for CUDA, which card. */
typedef struct strata_device {
  int32_t type;
  int32_t index;
} strata_device;

typedef struct strata_tensor strata_tensor;       /* an n-dimensional array, or a view of one */
typedef struct strata_module strata_module;       /* a model of a checkpoint */
typedef struct strata_pretrained strata_pretrained; /* a model that exists, with its tokenizer */
typedef struct strata_optimizer strata_optimizer; /* parameters with their state */
typedef struct strata_op strata_op;               /* an op's record; lives as long as the program */

/* ---- values: arguments and results of ops -------------------------------------------------------------- */

typedef enum strata_kind {
  STRATA_NONE = 0,
  STRATA_TENSOR = 1,       /* as.tensor; NULL is an undefined tensor */
  STRATA_TENSORS = 2,      /* as.tensors[0 .. size) */
  STRATA_BOOLEAN = 3,      /* as.boolean */
  STRATA_INT = 4,          /* as.integer; goes wherever a float or a Scalar is wanted, too */
  STRATA_FLOAT = 5,        /* as.number; goes wherever a Scalar is wanted */
  STRATA_STRING = 6,       /* as.text, size bytes without the final 0 */
  STRATA_INTS = 7,         /* as.integers[0 .. size), at most STRATA_MAX_DIMS */
  STRATA_DTYPE_VALUE = 8,  /* as.dtype */
  STRATA_DEVICE_VALUE = 9, /* as.device */
  STRATA_RNG_KEY = 10      /* as.key */
} strata_kind;

/* Which stretch of the Philox stream of `seed` a random op takes; offset counts blocks of four 32-bit numbers. */
typedef struct strata_rng_key {
  uint64_t seed;
  uint64_t offset;
} strata_rng_key;

typedef struct strata_value {
  int32_t kind; /* a strata_kind */
  int32_t reserved;
  size_t size; /* of lists and texts */
  union {
    strata_tensor* tensor;
    strata_tensor* const* tensors;
    const int64_t* integers;
    const char* text;
    int64_t integer;
    double number;
    int32_t boolean;
    int32_t dtype;
    strata_device device;
    strata_rng_key key;
  } as;
} strata_value;

/* Releases what a value that a function gave out holds (tensors, lists, texts) and makes it NONE. */
STRATA_EXPORT void strata_value_clear(strata_value* value);

/* ---- the library --------------------------------------------------------------------------------------- */

/* STRATA_ABI_VERSION of the library, and its release ("0.1.0"). */
STRATA_EXPORT uint32_t strata_abi_version(void);
STRATA_EXPORT const char* strata_version(void);
/* Text and status of this thread's last failed call; "" and STRATA_OK where there was none. Valid until the next
 * failure. */
STRATA_EXPORT const char* strata_error_text(void);
STRATA_EXPORT strata_status strata_error_status(void);
/* Restarts the generator that strata_rng_next draws from. */
STRATA_EXPORT void strata_seed(uint64_t seed);
/* A key for a random op that no call gave before: the generator's next `blocks` blocks of four numbers. An op takes at
 * most one block for each element of its result. */
STRATA_EXPORT strata_rng_key strata_rng_next(uint64_t blocks);
/* Threads that CPU kernels use; count < 1 is a VALUE_ERROR. */
STRATA_EXPORT strata_status strata_set_num_threads(int32_t count);
STRATA_EXPORT int32_t strata_num_threads(void);
/* CUDA cards that can be used; 0 where there is no driver, card or CUDA in the build. */
STRATA_EXPORT int32_t strata_cuda_device_count(void);

/* ---- tensors ------------------------------------------------------------------------------------------- */

/* An uninitialised tensor. */
STRATA_EXPORT strata_status strata_tensor_empty(const int64_t* shape, int32_t ndim, strata_dtype dtype,
                                                strata_device device, strata_tensor** out);
/* A row-major tensor with a copy of `bytes` bytes of host memory, which must be what shape and dtype take. */
STRATA_EXPORT strata_status strata_tensor_from_data(const void* data, size_t bytes, const int64_t* shape, int32_t ndim,
                                                    strata_dtype dtype, strata_device device, strata_tensor** out);
/* A tensor over memory of `device` that the caller owns; strides in elements, NULL for row-major. deleter(context), if
 * not NULL, runs when the last tensor over the memory is gone, on whichever thread that happens; not if this fails. */
STRATA_EXPORT strata_status strata_tensor_borrow(void* data, const int64_t* shape, const int64_t* strides, int32_t ndim,
                                                 strata_dtype dtype, strata_device device, void (*deleter)(void*),
                                                 void* context, strata_tensor** out);
/* One more reference, and one less. NULL is allowed. */
STRATA_EXPORT strata_tensor* strata_tensor_retain(strata_tensor* tensor);
STRATA_EXPORT void strata_tensor_release(strata_tensor* tensor);

/* Number of dimensions, 0 to STRATA_MAX_DIMS. */
STRATA_EXPORT int32_t strata_tensor_ndim(const strata_tensor* tensor);
/* ndim sizes, and strides in elements; valid while the tensor lives. */
STRATA_EXPORT const int64_t* strata_tensor_shape(const strata_tensor* tensor);
STRATA_EXPORT const int64_t* strata_tensor_strides(const strata_tensor* tensor);
STRATA_EXPORT int64_t strata_tensor_numel(const strata_tensor* tensor);
STRATA_EXPORT strata_dtype strata_tensor_dtype(const strata_tensor* tensor);
STRATA_EXPORT strata_device strata_tensor_device(const strata_tensor* tensor);
/* The kind of memory that the bytes live in, "host", "device", "pinned", "disk": a text that strata_value_clear frees. */
STRATA_EXPORT strata_status strata_tensor_tier(const strata_tensor* tensor, strata_value* out);
/* The tensor in memory of a tier: itself where it is there. "own" is the device's own. */
STRATA_EXPORT strata_status strata_tensor_to_tier(const strata_tensor* tensor, const char* tier, strata_tensor** out);
STRATA_EXPORT bool strata_tensor_is_contiguous(const strata_tensor* tensor);
/* The first element: an address of the tensor's device. NULL for a meta tensor, and where the bytes move (a disk's). */
STRATA_EXPORT void* strata_tensor_data(const strata_tensor* tensor);
/* Copies all elements, row-major, to host memory; waits for the device. `bytes` must be what they take. */
STRATA_EXPORT strata_status strata_tensor_copy_to_host(const strata_tensor* tensor, void* data, size_t bytes);
/* Says that the elements were written from outside: saved tensors of the tape then notice. */
STRATA_EXPORT void strata_tensor_written(strata_tensor* tensor);
/* The tensor as text, as a person reads it; strata_value_clear frees it. */
STRATA_EXPORT strata_status strata_tensor_to_string(const strata_tensor* tensor, strata_value* out);

/* DLPack (https://dmlc.github.io/dlpack): the structs are those of dlpack.h. `to` gives a new DLManagedTensor
 * (versioned: a DLManagedTensorVersioned, version 1.x), whose deleter the caller runs; its memory is the tensor's.
 * `from` takes the struct over, on success only; its deleter runs when the last tensor over it is gone. bf16, bool and
 * all strides travel; a tensor that requires a gradient is refused (detach it first). */
struct DLManagedTensor;
struct DLManagedTensorVersioned;
STRATA_EXPORT strata_status strata_tensor_to_dlpack(const strata_tensor* tensor, struct DLManagedTensor** out);
STRATA_EXPORT strata_status strata_tensor_to_dlpack_versioned(const strata_tensor* tensor,
                                                              struct DLManagedTensorVersioned** out);
STRATA_EXPORT strata_status strata_tensor_from_dlpack(struct DLManagedTensor* managed, strata_tensor** out);
STRATA_EXPORT strata_status strata_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed,
                                                                strata_tensor** out);

/* ---- gradients ----------------------------------------------------------------------------------------- */

/* Whether calls with the tensor are recorded: a leaf that was marked, or a result of such. Only a leaf can be marked.
 */
STRATA_EXPORT bool strata_tensor_requires_grad(const strata_tensor* tensor);
STRATA_EXPORT strata_status strata_tensor_set_requires_grad(strata_tensor* tensor, bool value);
/* The accumulated gradient; *out is NULL where there is none. */
STRATA_EXPORT strata_status strata_tensor_grad(const strata_tensor* tensor, strata_tensor** out);
/* Sets it; NULL forgets it. */
STRATA_EXPORT strata_status strata_tensor_set_grad(strata_tensor* tensor, const strata_tensor* grad);
/* The same elements without history. */
STRATA_EXPORT strata_status strata_tensor_detach(const strata_tensor* tensor, strata_tensor** out);
/* Adds the gradient of every leaf to its grad. `grad` is that of `tensor`, NULL for 1 (one element). */
STRATA_EXPORT strata_status strata_tensor_backward(const strata_tensor* tensor, const strata_tensor* grad,
                                                   bool retain_graph, bool create_graph);
/* The gradients of outputs' sum weighted by grad_outputs (NULL: 1 each) for the inputs, into grads[0 .. num_inputs);
 * an input that the outputs do not depend on gives NULL with allow_unused, else an AUTOGRAD_ERROR. */
STRATA_EXPORT strata_status strata_grad(strata_tensor* const* outputs, size_t num_outputs, strata_tensor* const* inputs,
                                        size_t num_inputs, strata_tensor* const* grad_outputs, bool retain_graph,
                                        bool create_graph, bool allow_unused, strata_tensor** grads);
/* Whether calls of this thread are recorded; returns what it was. */
STRATA_EXPORT bool strata_set_grad_enabled(bool enabled);
STRATA_EXPORT bool strata_grad_enabled(void);

/* ---- ops ----------------------------------------------------------------------------------------------- */

/* All records, those of plugins too, in order of name: index in [0, count), else NULL. */
STRATA_EXPORT size_t strata_op_count(void);
STRATA_EXPORT const strata_op* strata_op_at(size_t index);
/* NULL where there is none of that name. */
STRATA_EXPORT const strata_op* strata_op_find(const char* name);
STRATA_EXPORT const char* strata_op_name(const strata_op* op);
/* "softmax(Tensor x, int dim) -> Tensor" */
STRATA_EXPORT const char* strata_op_schema(const strata_op* op);
STRATA_EXPORT const char* strata_op_doc(const strata_op* op);
/* All that the records say, as JSON: {"version": 1, "ops": [...]}, which docs/design/bindings.md describes. For the
   calling thread until it asks again. */
STRATA_EXPORT const char* strata_describe_ops(void);

/* Calls the op with arguments in the schema's order; those left out at the end take the schema's defaults. *num_results
 * is the room in `results` on the way in (VALUE_ERROR where it is too small; nothing is given out then) and their
 * number on the way out. A Tensor[] result is one TENSORS value. */
STRATA_EXPORT strata_status strata_op_call(const strata_op* op, const strata_value* args, size_t num_args,
                                           strata_value* results, size_t* num_results);
/* The in-place form: writes over the first argument. */
STRATA_EXPORT strata_status strata_op_call_inplace(const strata_op* op, const strata_value* args, size_t num_args);
/* strata_op_call by name; VALUE_ERROR for a name that does not exist. */
STRATA_EXPORT strata_status strata_call(const char* name, const strata_value* args, size_t num_args,
                                        strata_value* results, size_t* num_results);

/* ---- modules ------------------------------------------------------------------------------------------- */

/* The model of a checkpoint folder (as `strata train` writes it, or a run's folder: its latest), with its weights on
 * `device`, in evaluation mode. */
STRATA_EXPORT strata_status strata_module_load(const char* path, strata_device device, strata_module** out);
STRATA_EXPORT strata_module* strata_module_retain(strata_module* module);
STRATA_EXPORT void strata_module_release(strata_module* module);
/* One tensor in, one out: token ids i64 [batch, time] to logits [batch, time, vocabulary] for a language model. */
STRATA_EXPORT strata_status strata_module_forward(strata_module* module, const strata_tensor* input,
                                                  strata_tensor** out);
STRATA_EXPORT strata_status strata_module_set_training(strata_module* module, bool training);
/* Parameters in the order of registration. The name lives as long as the module; the tensor is the parameter itself. */
STRATA_EXPORT size_t strata_module_num_parameters(const strata_module* module);
STRATA_EXPORT strata_status strata_module_parameter(const strata_module* module, size_t index, const char** name,
                                                    strata_tensor** out);
/* Continues a text with the checkpoint's tokenizer; temperature 0 takes the likeliest token. The text belongs to the
 * caller (strata_value_clear). */
STRATA_EXPORT strata_status strata_module_generate(strata_module* module, const char* prompt, int32_t max_tokens,
                                                   double temperature, int32_t top_k, uint64_t seed, strata_value* out);

/* ---- models that exist --------------------------------------------------------------------------------- */

/* A folder as Hugging Face writes it (config.json, safetensors or PyTorch's files, tokenizer.json, ..) with its weights
 * on `device`, in evaluation mode. `dtype`: a strata_dtype for the weights, or -1 for the files'. */
STRATA_EXPORT strata_status strata_pretrained_load(const char* folder, int32_t dtype, strata_device device,
                                                   strata_pretrained** out);
STRATA_EXPORT strata_pretrained* strata_pretrained_retain(strata_pretrained* model);
STRATA_EXPORT void strata_pretrained_release(strata_pretrained* model);
/* What is known of it, as JSON that strata_value_clear frees: {"family", "title", "kind" ("decoder", "encoder",
 * "encoder_decoder", "image_encoder", "pair"), "context", "vocab_size", "special_ids", "config", "generation_config",
 * "tokenizer", "chat_template"}. */
STRATA_EXPORT strata_status strata_pretrained_describe(const strata_pretrained* model, strata_value* out);
/* Parameters in the order of registration, as strata_module_parameter gives them. */
STRATA_EXPORT size_t strata_pretrained_num_parameters(const strata_pretrained* model);
STRATA_EXPORT strata_status strata_pretrained_parameter(const strata_pretrained* model, size_t index, const char** name,
                                                        strata_tensor** out);
/* Ids i64 [batch, time] to logits [batch, time, vocabulary] (of an encoder without a head: hidden states), pixels to
 * logits; `padding` is NULL or bool [batch, time], true at what is no token. */
STRATA_EXPORT strata_status strata_pretrained_forward(const strata_pretrained* model, const strata_tensor* input,
                                                      const strata_tensor* padding, strata_tensor** out);

/* Of an encoder-decoder: logits [batch, time, vocabulary] of the token after each of `tokens` i64 [batch, time], for
 * `source`, ids i64 [batch, S] or frames of sound; `padding` [batch, S] of ids, or NULL. */
STRATA_EXPORT strata_status strata_pretrained_forward_source(const strata_pretrained* model,
                                                             const strata_tensor* source, const strata_tensor* tokens,
                                                             const strata_tensor* padding, strata_tensor** out);

/* A text's ids, i64 [tokens] on the CPU, with the special tokens that the model's makers put around one; and the text
 * of ids, which strata_value_clear frees. VALUE_ERROR for a folder without a tokenizer. */
STRATA_EXPORT strata_status strata_pretrained_encode(const strata_pretrained* model, const char* text,
                                                     strata_tensor** out);
STRATA_EXPORT strata_status strata_pretrained_decode(const strata_pretrained* model, const strata_tensor* ids,
                                                     bool skip_special_tokens, strata_value* out);
/* A conversation's ids through the folder's chat template, ending where the assistant is to write. `messages` is JSON,
 * "[{\"role\": \"user\", \"content\": \"Hello\"}]"; `variables` NULL or a JSON object of what else the template knows.
 * What a message spells is text, special tokens too. */
STRATA_EXPORT strata_status strata_pretrained_chat_prompt(const strata_pretrained* model, const char* messages,
                                                          const char* variables, strata_tensor** out);

/* A piece of a text as it is written. */
typedef struct strata_piece {
  size_t struct_size;
  int64_t request;    /* which of the prompts */
  int64_t completion; /* which of its texts */
  int64_t token;      /* that was drawn now */
  const char* text;   /* size bytes, valid during the call: what is decided now, perhaps of earlier tokens */
  size_t size;
  bool last; /* nothing of this text follows */
} strata_piece;
/* Called on the thread of strata_pretrained_generate for every token; false ends that text. */
typedef bool (*strata_piece_fn)(void* context, const strata_piece* piece);

/* Continues prompts, each ids i64 [tokens], together; an encoder-decoder (T5) answers them. `options` is a JSON object ("{\"max_new_tokens\": 50}"), NULL for
 * what the folder's generation_config.json says; what there is says strata_describe_generation_options(). `callback`
 * may be NULL. *out is JSON: [{"completions": [{"text", "tokens", "finish", "score", "logprobs", "top_logprobs"}, ..],
 * "prompt_logprobs", "top_prompt_logprobs"}, ..] for each prompt. Calls of several threads take turns. */
STRATA_EXPORT strata_status strata_pretrained_generate(strata_pretrained* model, strata_tensor* const* prompts,
                                                       size_t num_prompts, const char* options,
                                                       strata_piece_fn callback, void* context, strata_value* out);
/* What is said in sound, f32 [n] or [channels, n] of `rate` samples a second, by a model that reads it (Whisper).
 * `options` is NULL or a JSON object of {"language", "task", "timestamps", "word_timestamps", "prompt",
 * "prompt_condition_type", "condition_on_prev_tokens", "compression_ratio_threshold", "logprob_threshold",
 * "no_speech_threshold"}, of "temperature" as a list that is tried where a text is unlikely, and of generation's
 * options. *out is JSON: {"language", "text", "segments": [{"start", "end", "text", "tokens"}, ..]}; with times of words a
 * segment has "words": [{"start", "end", "text"}, ..] and "token_ends", with a threshold "temperature", "avg_logprob",
 * "compression_ratio" and "no_speech_prob". */
STRATA_EXPORT strata_status strata_pretrained_transcribe(strata_pretrained* model, const strata_tensor* samples,
                                                         int64_t rate, const char* options, strata_value* out);
/* The samples of a WAV file, f32 [channels, n] from -1 to 1, and how many there are a second. */
STRATA_EXPORT strata_status strata_read_wav(const char* path, strata_tensor** samples, int64_t* rate);
/* The options of generation as JSON: [{"name", "type", "doc"}, ..]. For the calling thread until it asks again. */
STRATA_EXPORT const char* strata_describe_generation_options(void);
/* One vector of each text, [texts, dim]: hidden states pooled as the folder says (else their mean), or as `options` do:
 * NULL or "{\"pooling\": \"first\", \"normalize\": true}". */
STRATA_EXPORT strata_status strata_pretrained_embed(const strata_pretrained* model, const char* const* texts,
                                                    size_t num_texts, const char* options, strata_tensor** out);

/* ---- evaluation ---------------------------------------------------------------------------------------- */

/* Called on the thread of strata_eval_run: how far the evaluation of that name ("text", "compare", "choices",
 * "answers") is, in `unit`s ("tok" or "texts"); false ends it, which is a VALUE_ERROR. */
typedef bool (*strata_eval_fn)(void* context, const char* name, const char* unit, int64_t done, int64_t all);
/* Measures a decoder on local files, as `strata eval` does and to its numbers, which are lm-evaluation-harness's.
 * `options` is a JSON object ("{\"text\": \"wiki.txt\", \"choices\": [\"arc.jsonl\"], \"num_fewshot\": 5}"); what there
 * is says strata_eval_options(). `reference` is NULL, or a model that texts are compared with (kl). `callback` may be
 * NULL. *out is JSON that strata_value_clear frees: {"model", "device", "dtype", "context", "prefix", "batch", "shots",
 * "results": {"text": {"files", "documents", "tokens", "seconds", "details", "measures": {"loss": {"value", "error"},
 * ..}}, ..}}. Neither model generates meanwhile: calls of several threads take turns. */
STRATA_EXPORT strata_status strata_eval_run(strata_pretrained* model, const char* options, strata_pretrained* reference,
                                            strata_eval_fn callback, void* context, strata_value* out);
/* The options of an evaluation as JSON: [{"name", "type", "doc"}, ..]. For the calling thread until it asks again. */
STRATA_EXPORT const char* strata_eval_options(void);

/* ---- optimizers ---------------------------------------------------------------------------------------- */

/* What the optimizers' and the schedules' records say, as JSON: names, options with defaults and ranges, states. For
 * the calling thread until it asks again. */
STRATA_EXPORT const char* strata_describe_optimizers(void);
STRATA_EXPORT const char* strata_describe_schedules(void);

/* Parameters that share their options. */
typedef struct strata_param_group {
  strata_tensor* const* params;
  const char* const* names; /* by which states are saved; NULL: "0", "1", ... over all groups */
  size_t num_params;
  const char* options; /* a JSON object: "{\"lr\": 0.001, \"weight_decay\": 0.1}"; NULL: the defaults */
} strata_param_group;

/* The optimizer of a record's name ("adamw"). The parameters are held until it is released. VALUE_ERROR for an option
 * that it does not have or that is out of range, or where some groups have names and others not. */
STRATA_EXPORT strata_status strata_optimizer_create(const char* name, const strata_param_group* groups,
                                                    size_t num_groups, strata_optimizer** out);
STRATA_EXPORT strata_optimizer* strata_optimizer_retain(strata_optimizer* optimizer);
STRATA_EXPORT void strata_optimizer_release(strata_optimizer* optimizer);
/* Updates every parameter that has a gradient. With max_norm > 0 the gradients count as scaled to that joint 2-norm at
 * most, `norm` (may be NULL) is theirs before, and nothing is updated where it is not finite; with 0 it is not set. */
STRATA_EXPORT strata_status strata_optimizer_step(strata_optimizer* optimizer, double max_norm, double* norm);
/* Drops the gradients. */
STRATA_EXPORT strata_status strata_optimizer_zero_grad(strata_optimizer* optimizer);
/* Changes the options of a group that the JSON object names: all, or none where one is wrong. */
STRATA_EXPORT strata_status strata_optimizer_set_options(strata_optimizer* optimizer, size_t group,
                                                         const char* options);
STRATA_EXPORT strata_status strata_optimizer_set_lr(strata_optimizer* optimizer, double lr); /* of every group */
STRATA_EXPORT strata_status strata_optimizer_lr(const strata_optimizer* optimizer, size_t group, double* out);
/* The state to and from a safetensors file, which is replaced as a whole; options are not part of it. */
STRATA_EXPORT strata_status strata_optimizer_save(const strata_optimizer* optimizer, const char* path);
STRATA_EXPORT strata_status strata_optimizer_load(strata_optimizer* optimizer, const char* path);

/* A loop over the optimizer's parameters that keeps to so many bytes of each tier, and changes no number: weights, state
 * and saved activations are elsewhere while nobody uses them. `options`: a JSON object of the keys of [memory] in a
 * configuration, "{\"device\": \"20GiB\", \"host\": \"100GiB\", \"disk\": \"/scratch\"}". Names of parameters tell what
 * comes and goes together: "blocks.0.weight" is of item 0 of "blocks". The first two steps run with as much elsewhere as
 * can be, what is where from the third on is planned from the second. The loop is the calling thread's, one at a time for
 * each device, whose memory for tensors is bounded until the end: MEMORY_ERROR for a request past it. */
typedef struct strata_budget strata_budget;
STRATA_EXPORT strata_status strata_budget_begin(strata_optimizer* optimizer, const char* options, strata_budget** out);
/* strata_optimizer_step, as the end of each of the loop's steps. */
STRATA_EXPORT strata_status strata_budget_step(strata_budget* budget, double max_norm, double* norm);
/* The plan, and what was used and moved so far. For the calling thread until it asks again. */
STRATA_EXPORT const char* strata_budget_describe(strata_budget* budget);
/* Most bytes of the device's tensors at once since the loop began; -1 where that failed. */
STRATA_EXPORT int64_t strata_budget_peak(strata_budget* budget);
/* Ends it, whatever it returns; weights and state return to the device where there is room. NULL is nothing. */
STRATA_EXPORT strata_status strata_budget_end(strata_budget* budget);

/* The learning rate of a step (from 0) by a schedule's record ("CosineAnnealingLR"), for a group that began with
 * `base`; `options` as above, "{\"T_max\": 100}". `momentum` (may be NULL) is that of the step, NaN where the schedule
 * leaves it. */
STRATA_EXPORT strata_status strata_schedule_lr(const char* name, const char* options, int64_t step, double base,
                                               double* lr, double* momentum);

/* ---- streams ------------------------------------------------------------------------------------------- */

/* The cudaStream_t on which this thread's work for the card is queued; NULL for the CPU. */
STRATA_EXPORT strata_status strata_current_stream(strata_device device, void** out);
/* A stream from the engine's pool; it lives as long as the program. */
STRATA_EXPORT strata_status strata_stream_create(strata_device device, void** out);
/* Makes it this thread's current stream: one of strata_stream_create, or NULL for the main one. */
STRATA_EXPORT strata_status strata_set_current_stream(strata_device device, void* stream);
/* Waits for everything that is queued on the card; nothing to do for the CPU. */
STRATA_EXPORT strata_status strata_synchronize(strata_device device);

/* ---- plugins ------------------------------------------------------------------------------------------- */

/* Loads a shared library and registers its records; they are ordinary ops from then on. All or none: where one record
 * is refused (PLUGIN_ERROR, with the reason), none is registered. A plugin is never unloaded; the same file twice is
 * one. */
STRATA_EXPORT strata_status strata_plugin_load(const char* path);

/* What a result will be; strides are row-major. */
typedef struct strata_meta {
  int32_t dtype; /* a strata_dtype */
  int32_t ndim;
  strata_device device;
  int64_t shape[STRATA_MAX_DIMS];
} strata_meta;

/* A call as backward sees it. Arguments and results that the record did not name in `saves` have no elements. A record
 * with a backward takes no Tensor[]. */
typedef struct strata_gradient_call {
  const strata_value* args;
  size_t num_args;
  strata_tensor* const* results;      /* what the call gave */
  strata_tensor* const* result_grads; /* NULL where no gradient arrived */
  size_t num_results;
  const bool* wanted;        /* for each argument: a tensor that wants a gradient */
  strata_tensor** arg_grads; /* set, for those that are wanted: a new reference, which the engine takes over when
                                backward returns STRATA_OK; NULL for no gradient */
} strata_gradient_call;

typedef struct strata_samples strata_samples; /* where a record puts its samples */

/* What the engine gives to a plugin: a plugin calls nothing else of the engine and is linked to nothing. Grows at its
 * end. */
typedef struct strata_api {
  size_t struct_size;
  uint32_t abi_version;

  /* Sets the text of the failure that the plugin's function returns next. */
  void (*set_error)(const char* text);
  const char* (*error_text)(void);

  strata_status (*tensor_empty)(const int64_t* shape, int32_t ndim, strata_dtype dtype, strata_device device,
                                strata_tensor** out);
  strata_tensor* (*tensor_retain)(strata_tensor* tensor);
  void (*tensor_release)(strata_tensor* tensor);
  int32_t (*tensor_ndim)(const strata_tensor* tensor);
  const int64_t* (*tensor_shape)(const strata_tensor* tensor);
  const int64_t* (*tensor_strides)(const strata_tensor* tensor);
  int64_t (*tensor_numel)(const strata_tensor* tensor);
  strata_dtype (*tensor_dtype)(const strata_tensor* tensor);
  strata_device (*tensor_device)(const strata_tensor* tensor);
  bool (*tensor_is_contiguous)(const strata_tensor* tensor);
  void* (*tensor_data)(const strata_tensor* tensor);

  const strata_op* (*op_find)(const char* name);
  strata_status (*op_call)(const strata_op* op, const strata_value* args, size_t num_args, strata_value* results,
                           size_t* num_results);
  void (*value_clear)(strata_value* value);
  /* The cudaStream_t that a kernel queues its launches on. */
  void* (*stream)(strata_device device);
  /* Calls body(context, begin, end) for parts of [0, n), at least `grain` long, on the engine's threads. */
  void (*parallel_for)(int64_t n, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
                       void* context);

  /* Samples, for the dtype of the round (where `dtype` < 0): a tensor with values of both signs in [-2, 2], one with
   * values in [low, high), and integers in [low, high) (`dtype` < 0: i64). New references. */
  strata_dtype (*samples_dtype)(const strata_samples* samples);
  bool (*samples_benchmarking)(const strata_samples* samples);
  strata_tensor* (*samples_tensor)(strata_samples* samples, const int64_t* shape, int32_t ndim, int32_t dtype);
  strata_tensor* (*samples_uniform)(strata_samples* samples, const int64_t* shape, int32_t ndim, double low,
                                    double high, int32_t dtype);
  strata_tensor* (*samples_integers)(strata_samples* samples, const int64_t* shape, int32_t ndim, int64_t low,
                                     int64_t high, int32_t dtype);
  /* Valid arguments (label may be NULL); with `benchmark`, large ones for timing. And arguments that must be refused
   * with that status and `message` somewhere in the text. */
  void (*samples_add)(strata_samples* samples, const strata_value* args, size_t num_args, const char* label,
                      bool differentiable, bool benchmark);
  void (*samples_invalid)(strata_samples* samples, strata_status status, const char* message, const strata_value* args,
                          size_t num_args);
} strata_api;

/* What happens to tensor arguments before infer; see the op record. */
typedef enum strata_adapt {
  STRATA_ADAPT_NONE = 0,
  STRATA_ADAPT_BROADCAST = 1,
  STRATA_ADAPT_PROMOTE = 2,
  STRATA_ADAPT_PROMOTE_FLOAT = 3,
  STRATA_ADAPT_PROMOTE_BUT_FIRST = 4
} strata_adapt;

typedef enum strata_autocast {
  STRATA_AUTOCAST_KEEP = 0,
  STRATA_AUTOCAST_LOW = 1,
  STRATA_AUTOCAST_FULL = 2,
  STRATA_AUTOCAST_PROMOTE = 3
} strata_autocast;

#define STRATA_DTYPE_BIT(dtype) (1u << (dtype))
#define STRATA_FLOATS                                                                            \
  (STRATA_DTYPE_BIT(STRATA_F16) | STRATA_DTYPE_BIT(STRATA_BF16) | STRATA_DTYPE_BIT(STRATA_F32) | \
   STRATA_DTYPE_BIT(STRATA_F64))

/* An op: what the engine's own records say, in C. Functions get `data` of the record and may be called from any thread;
 * they return a status and, where it is not STRATA_OK, say why with api->set_error. Every result is a Tensor, and
 * row-major. Arguments are borrowed and what the schema says: a float is a FLOAT even where an INT was given, defaults
 * are filled in, a Tensor? that was not given is a TENSOR of NULL, another optional argument NONE. Texts and the struct
 * itself must live as long as the program. */
typedef struct strata_op_record {
  size_t struct_size;
  const char* schema; /* "scale_rows(Tensor x, Tensor s) -> Tensor" */
  const char* doc;    /* one paragraph: meaning, shapes, errors, source of the formula */
  const char* saves;  /* arguments and results whose elements backward reads: "x result"; NULL for none */
  int32_t adapt;      /* a strata_adapt */
  int32_t autocast;   /* a strata_autocast */
  bool inplace;       /* the kernel may write over its first argument */
  uint32_t dtypes;    /* what the samples are tried with: STRATA_FLOATS */
  double tolerance;   /* widens the verification's bound; 0 and 1 mean no widening */
  const char* tolerance_reason;
  void* data;

  /* Checks the arguments and says what the results are, in results[0 .. number in the schema). */
  strata_status (*infer)(void* data, const strata_value* args, size_t num_args, strata_meta* results);
  /* Write into results that are allocated; NULL where there is none for the device. cuda queues on api->stream(). */
  strata_status (*cpu)(void* data, strata_tensor* const* results, const strata_value* args, size_t num_args);
  strata_status (*cuda)(void* data, strata_tensor* const* results, const strata_value* args, size_t num_args);
  /* NULL: no gradient. Written with other ops (api->op_call), so that it can be differentiated again. */
  strata_status (*backward)(void* data, const strata_gradient_call* call);
  /* May be NULL: floating-point operations and the fewest bytes that must move. */
  void (*cost)(void* data, const strata_value* args, size_t num_args, double* flops, double* bytes);
  /* May be NULL; `strata lab verify` then has nothing to try, and says so. */
  void (*samples)(void* data, strata_samples* samples);
  /* The function in double precision, slow and obviously right; results as strata_op_call gives them. May be NULL, but
   * `strata lab verify` then fails: nothing says what is right. */
  strata_status (*reference)(void* data, const strata_value* args, size_t num_args, strata_value* results);
} strata_op_record;

typedef struct strata_plugin {
  size_t struct_size;
  uint32_t abi_version; /* STRATA_ABI_VERSION */
  const char* name;
  const char* version;
  const strata_op_record* const* records;
  size_t num_records;
} strata_plugin;

/* The one symbol that a plugin exports. `api` lives as long as the program. NULL refuses to load (say why with
 * api->set_error). */
#define STRATA_PLUGIN_ENTRY "strata_plugin_entry"
typedef const strata_plugin* (*strata_plugin_entry_fn)(const strata_api* api);

#ifdef __cplusplus
}
#endif
#endif
