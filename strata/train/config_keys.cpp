#include "strata/train/config.h"

namespace strata {
namespace {

constexpr double kCount = 1e9;  // far past any sensible count, and safe to multiply by a few sizes

template <auto Section, auto Field>
void* in(TrainConfig& c) {
  return &((c.*Section).*Field);
}
template <auto Field>
void* top(TrainConfig& c) {
  return &(c.*Field);
}

template <auto Field>
constexpr auto model = &in<&TrainConfig::model, Field>;
template <auto Field>
constexpr auto data = &in<&TrainConfig::data, Field>;
template <auto Field>
constexpr auto optim = &in<&TrainConfig::optim, Field>;

constexpr auto kInteger = ConfigType::integer;
constexpr auto kNumber = ConfigType::number;
constexpr auto kBoolean = ConfigType::boolean;
constexpr auto kText = ConfigType::text;

using M = ModelConfig;
using D = DataConfig;
using O = OptimConfig;
using T = TrainConfig;

// Muon's are those of the AdamW that moves what is no hidden matrix.
constexpr std::string_view kWithBetas = "adam adamw lion muon adamax nadam radam";

constexpr ConfigKey kKeys[] = {
    {"model.family", kText, "GPT-2 (LayerNorm, GELU, learned positions) or Llama (RMSNorm, SwiGLU, rotary positions).",
     "gpt llama", 0, 0, model<&M::family>},
    {"model.layers", kInteger, "Transformer blocks.", "", 1, 1024, model<&M::layers>},
    {"model.dim", kInteger, "Width of the residual stream; a multiple of heads.", "", 1, 65536, model<&M::dim>},
    {"model.heads", kInteger, "Attention heads.", "", 1, 1024, model<&M::heads>},
    {"model.kv_heads", kInteger, "Key and value heads, a divisor of heads; 0 takes heads.", "", 0, 1024,
     model<&M::kv_heads>},
    {"model.context", kInteger, "Tokens that the model sees at once.", "", 1, 1 << 20, model<&M::context>},
    {"model.vocab", kInteger, "Tokens in the vocabulary; 0 takes the tokenizer's size.", "", 0, 1 << 24,
     model<&M::vocab>},
    {"model.ffn_dim", kInteger,
     "Width inside the feed-forward layer; 0 takes 4 dim (gpt) or 8/3 dim rounded up to a multiple of 64 (llama).", "",
     0, 1 << 20, model<&M::ffn_dim>},
    {"model.dropout", kNumber, "Probability of dropping an activation during training.", "", 0, 0.99,
     model<&M::dropout>},
    {"model.tied_embeddings", kBoolean, "Output layer and token embedding share one weight.", "", 0, 0,
     model<&M::tied_embeddings>},
    {"model.rope_theta", kNumber, "Base of the rotary frequencies (llama).", "", 1, 1e12, model<&M::rope_theta>},
    {"model.norm_eps", kNumber, "Added to the variance inside the norms.", "", 1e-12, 1, model<&M::norm_eps>},

    {"data.path", kText, "Text file, or folder of text files, to train on (--data).", "", 0, 0, data<&D::path>},
    {"data.valid_path", kText, "Text to validate on; empty takes the end of the training text.", "", 0, 0,
     data<&D::valid_path>},
    {"data.valid_fraction", kNumber, "Part of the training text kept for validation.", "", 0, 0.9,
     data<&D::valid_fraction>},
    {"data.tokenizer", kText,
     "Bytes, byte pairs learned from the training text, or a text of numbers that are ids already (the latter two need "
     "model.vocab).",
     "byte bpe ids", 0, 0, data<&D::tokenizer>},
    {"data.shuffle", kBoolean,
     "Windows of the text in random order, cut differently in each epoch; false takes them as they stand.", "", 0, 0,
     data<&D::shuffle>},

    {"train.steps", kInteger, "Optimizer steps (--steps).", "", 1, kCount, top<&T::steps>},
    {"train.max_seconds", kNumber,
     "Saves and stops this long after training began or went on, the schedule unfinished; 0 for no limit.", "", 0,
     kCount, top<&T::max_seconds>},
    {"train.fit_seconds", kNumber,
     "Ends the schedule this long after training began or went on: where the steps take longer, as measured while it "
     "runs, their number is lowered to those that fit in; 0 for no limit.",
     "", 0, kCount, top<&T::fit_seconds>},
    {"train.batch", kInteger, "Sequences per forward pass.", "", 1, 1 << 20, top<&T::batch>},
    {"train.accumulate", kInteger, "Forward passes per optimizer step.", "", 1, 1 << 20, top<&T::accumulate>},
    {"train.optimizer", kText, "Update rule.",
     "sgd adam adamw lion adafactor muon rmsprop adagrad adadelta adamax nadam radam rprop asgd", 0, 0,
     optim<&O::optimizer>},
    {"train.lr", kNumber, "Peak learning rate; lion takes about a tenth of adamw's, adadelta about 1.", "", 0, 1000,
     optim<&O::lr>},
    {"train.schedule", kText, "Learning rate after the warm-up.", "constant linear cosine wsd one_cycle", 0, 0,
     optim<&O::schedule>},
    {"train.warmup", kInteger, "Steps of linear warm-up.", "", 0, kCount, optim<&O::warmup>},
    {"train.min_lr", kNumber, "Learning rate at the end, as a fraction of lr.", "", 0, 1, optim<&O::min_lr>},
    {"train.decay_fraction", kNumber, "Part of the steps over which wsd decays.", "", 0, 1, optim<&O::decay_fraction>},
    {"train.weight_decay", kNumber,
     "Decay of matrices (norms and biases have none): decoupled under adamw, lion, adafactor, muon, nadam and radam; "
     "the "
     "others add it to the gradient, where 0 to 0.001 is usual.",
     "", 0, 100, optim<&O::weight_decay>,
     "sgd adam adamw lion adafactor muon rmsprop adagrad adadelta adamax nadam radam asgd"},
    {"train.decoupled_weight_decay", kBoolean, "Decay apart from the gradient; false adds it to the gradient.", "", 0,
     0, optim<&O::decoupled_weight_decay>, "nadam radam"},
    {"train.beta1", kNumber, "Decay of the first moment.", "", 0, 0.9999999, optim<&O::beta1>, kWithBetas},
    {"train.beta2", kNumber, "Decay of the second moment.", "", 0, 0.9999999, optim<&O::beta2>, kWithBetas},
    {"train.eps", kNumber, "Added to the denominator.", "", 0, 1, optim<&O::eps>,
     "adam adamw muon rmsprop adagrad adadelta adamax nadam radam"},
    {"train.amsgrad", kBoolean, "Divides by the largest second moment so far.", "", 0, 0, optim<&O::amsgrad>,
     "adam adamw"},
    {"train.momentum", kNumber, "Momentum.", "", 0, 0.9999999, optim<&O::momentum>, "sgd muon rmsprop"},
    {"train.nesterov", kBoolean, "Nesterov's form of the momentum.", "", 0, 0, optim<&O::nesterov>, "sgd"},
    {"train.alpha", kNumber, "Decay of the mean of squares.", "", 0, 0.9999999, optim<&O::alpha>, "rmsprop"},
    {"train.centered", kBoolean, "Divides by the gradients' deviation from their mean.", "", 0, 0, optim<&O::centered>,
     "rmsprop"},
    {"train.rho", kNumber, "Decay of the means of squares.", "", 0, 0.9999999, optim<&O::rho>, "adadelta"},
    {"train.lr_decay", kNumber, "Update t takes lr / (1 + (t - 1) lr_decay), beside the schedule.", "", 0, kCount,
     optim<&O::lr_decay>, "adagrad"},
    {"train.initial_accumulator_value", kNumber, "What the sum of squares begins with.", "", 0, kCount,
     optim<&O::initial_accumulator_value>, "adagrad"},
    {"train.momentum_decay", kNumber, "How the momentum grows towards beta1.", "", 0, 1000, optim<&O::momentum_decay>,
     "nadam"},
    {"train.etaminus", kNumber, "Factor of an element's step whose gradient has turned.", "", 1e-6, 0.999999,
     optim<&O::etaminus>, "rprop"},
    {"train.etaplus", kNumber, "Factor of an element's step whose gradient has not turned.", "", 1.000001, 1000,
     optim<&O::etaplus>, "rprop"},
    {"train.step_size_min", kNumber, "Least step of an element; the first one is lr, which counts no more then.", "", 0,
     1000, optim<&O::step_size_min>, "rprop"},
    {"train.step_size_max", kNumber, "Largest step of an element.", "", 0, 1000, optim<&O::step_size_max>, "rprop"},
    {"train.lambd", kNumber, "Decay of the weights and of the learning rate.", "", 0, 1000, optim<&O::lambd>, "asgd"},
    {"train.asgd_alpha", kNumber, "Update t takes lr / (1 + lambd lr (t - 1))^asgd_alpha, beside the schedule.", "", 0,
     1000, optim<&O::asgd_alpha>, "asgd"},
    {"train.t0", kNumber, "Update after which the mean of the weights begins, which the checkpoint keeps.", "", 0,
     kCount, optim<&O::t0>, "asgd"},
    {"train.grad_clip", kNumber, "Largest norm of the gradient; 0 for no limit.", "", 0, 1e30, optim<&O::grad_clip>},
    {"train.dtype", kText, "f32, or autocast to bf16 or (with a loss scale) f16, weights in f32 (--dtype).",
     "f32 bf16 f16", 0, 0, top<&T::dtype>},
    {"train.grad_dtype", kText,
     "Gradients of weights under bf16: kept in f32, or as products round them (accumulate 1), which saves memory and "
     "time.",
     "f32 bf16", 0, 0, top<&T::grad_dtype>},
    {"train.param_dtype", kText,
     "Weights of two or more dimensions: f32, or bf16 (with train.dtype bf16), which halves their memory and that of "
     "their "
     "gradients.",
     "f32 bf16", 0, 0, top<&T::param_dtype>},
    {"train.param_update", kText,
     "How bf16 weights take an update that is smaller than their last bit: rounded up or down at random, exact on "
     "average; through weights in f32 that the optimizer keeps (4 bytes each); or rounded to nearest, which loses it.",
     "stochastic master nearest", 0, 0, optim<&O::param_update>},
    {"train.low_state", kBoolean, "The optimizer's moments of bf16 weights in bf16 too (not with master).", "", 0, 0,
     optim<&O::low_state>},
    {"train.device", kText, "Where the model trains: cpu, cuda, or one card of several, e.g. cuda:1 (--device).", "", 0,
     0, top<&T::device>},
    {"train.graph", kText,
     "On a CUDA device, a step as one CUDA graph: where possible, always (an error where not), or never (--graph).",
     "auto on off", 0, 0, top<&T::graph>},
    {"train.seed", kInteger, "Seed of the weights, the order of the data and dropout (--seed).", "", 0,
     9007199254740992.0, top<&T::seed>},
    {"train.threads", kInteger, "Threads; 0 takes every core. The result does not depend on it.", "", 0, 4096,
     top<&T::threads>},
    {"train.eval_every", kInteger, "Steps between validations; 0 for none.", "", 0, kCount, top<&T::eval_every>},
    {"train.eval_batches", kInteger, "Batches per validation.", "", 1, kCount, top<&T::eval_batches>},
    {"train.save_every", kInteger, "Steps between checkpoints; 0 saves at the end only, -1 never.", "", -1, kCount,
     top<&T::save_every>},
    {"train.save_first", kBoolean, "Saves the initial weights too, as step 0.", "", 0, 0, top<&T::save_first>},
    {"train.keep_last", kInteger, "Checkpoints kept.", "", 1, kCount, top<&T::keep_last>},
    {"train.sample_prompt", kText, "Start of the text that the model continues for the report.", "", 0, 0,
     top<&T::sample_prompt>},
    {"train.sample_tokens", kInteger, "Length of that text; 0 for none.", "", 0, 1 << 20, top<&T::sample_tokens>},
};

}  // namespace

std::span<const ConfigKey> config_keys() {
  return kKeys;
}

}  // namespace strata
