#include <algorithm>
#include <cctype>
#include <cmath>

#include "strata/core/error.h"
#include "strata/dist/gradient_exchange.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/record.h"
#include "strata/train/config.h"

namespace strata {
namespace {

constexpr double kCount = 1e9;  // far past any sensible count, and safe to multiply by a few sizes

template <auto Section, auto Field>
void* member_of(TrainConfig& c) {
  return &((c.*Section).*Field);
}
template <auto Field>
void* at_top(TrainConfig& c) {
  return &(c.*Field);
}
template <auto Field>
constexpr ConfigField top{&at_top<Field>};

template <auto Field>
constexpr ConfigField model{&member_of<&TrainConfig::model, Field>};
template <auto Field>
constexpr ConfigField data{&member_of<&TrainConfig::data, Field>};
template <auto Field>
constexpr ConfigField optim_of{&member_of<&TrainConfig::optim, Field>};

template <auto Field>
constexpr ConfigField tune{&member_of<&TrainConfig::tune, Field>};

template <auto Field>
constexpr ConfigField memory_of{&member_of<&TrainConfig::memory, Field>};

template <auto Field>
constexpr ConfigField parallel_of{&member_of<&TrainConfig::parallel, Field>};

constexpr auto kInteger = ConfigType::integer;
constexpr auto kNumber = ConfigType::number;
constexpr auto kBoolean = ConfigType::boolean;
constexpr auto kText = ConfigType::text;

using M = ModelConfig;
using D = DataConfig;
using O = OptimConfig;
using T = TrainConfig;
using Y = MemoryConfig;
using U = TuneConfig;

// The names of the rules that `which` holds for, separated by spaces.
template <class F>
std::string rules_with(F&& which) {
  std::string names;
  for (const ::strata::optim::OptimizerRecord* r : ::strata::optim::optimizer_records()) {
    if (!r->in_training || !which(*r)) continue;
    if (!names.empty()) names += ' ';
    names += r->name;
  }
  return names;
}

// The schedules' names: first those that end where the run ends.
std::string schedule_names() {
  std::string own, others;
  for (const ::strata::optim::ScheduleRecord& r : ::strata::optim::schedule_records()) {
    std::string& names = std::islower(static_cast<unsigned char>(r.name[0])) ? own : others;
    names += ' ';
    names += r.name;
  }
  return own.substr(1) + others;
}

std::string pipeline_names() {
  std::string names;
  for (const distributed::pipeline::ScheduleRecord& r : distributed::pipeline::schedule_records())
    names += cat(names.empty() ? "" : " ", r.name);
  return names;
}

std::string exchange_names() {
  std::string names;
  for (const distributed::ExchangeRecord& r : distributed::exchange_records())
    names += cat(names.empty() ? "" : " ", r.name);
  return names;
}

// A row for each number that a way to exchange gradients reads.
std::vector<ConfigKey> keys_of_exchanges() {
  std::vector<ConfigKey> rows;
  for (const distributed::ExchangeOption& o : distributed::exchange_options()) {
    std::string readers;
    for (const distributed::ExchangeRecord& r : distributed::exchange_records())
      if (r.reads(o.name)) readers += cat(readers.empty() ? "" : ", ", r.name);
    rows.push_back({cat("parallel.reduce_", o.name), o.whole ? kInteger : kNumber,
                    cat("With parallel.reduce = ", readers, ": ", o.doc), "", o.min, o.max,
                    ConfigField{nullptr, {}, o.field}});
  }
  return rows;
}

// What training takes where a rule has other defaults.
constexpr struct {
  std::string_view key;
  std::variant<bool, int64_t, double> value;
} kTrainingDefaults[] = {{"beta2", 0.95}, {"eps", 1e-8}, {"momentum", 0.9}, {"decoupled_weight_decay", true}};

std::string key_of(const ::strata::optim::OptimizerOption& o) {
  return std::string(o.key.empty() ? o.name : o.key);
}

// A row for each key that a record gives an option; the first rule's words where several have it.
std::vector<ConfigKey> keys_of_rules() {
  using Kind = ::strata::optim::OptimizerOption::Kind;
  std::vector<ConfigKey> rows;
  for (const ::strata::optim::OptimizerRecord* r : ::strata::optim::optimizer_records()) {
    for (const ::strata::optim::OptimizerOption& o : r->options) {
      const std::string key = key_of(o);
      if (key == "-" || !r->in_training) continue;
      const std::string name = "train." + key;
      const auto row = std::ranges::find(rows, name, &ConfigKey::name);
      if (row != rows.end()) {
        row->optimizers += ' ' + std::string(r->name);
        continue;
      }
      const ::strata::optim::OptionRange range = o.range;
      // Both ends of a key's range are in it.
      const double least = std::max(range.min, -kCount), most = std::min(range.max, kCount);
      rows.push_back({name,
                      o.kind == Kind::boolean  ? kBoolean
                      : o.kind == Kind::number ? kNumber
                                               : kInteger,
                      std::string(o.doc), "", range.above ? least + 1e-6 : least, range.below ? most - 1e-7 : most,
                      ConfigField{nullptr, rule_defaults().find(key)->first}, std::string(r->name)});
    }
  }
  return rows;
}

std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> keys{
      {"model.family", kText,
       "GPT-2 (LayerNorm, GELU, learned positions) or Llama (RMSNorm, SwiGLU, rotary positions); init: what model.init "
       "says.",
       "gpt llama init", 0, 0, model<&M::family>},
      {"model.layers", kInteger, "Transformer blocks.", "", 1, 1024, model<&M::layers>},
      {"model.dim", kInteger, "Width of the residual stream; a multiple of heads.", "", 1, 65536, model<&M::dim>},
      {"model.heads", kInteger, "Attention heads.", "", 1, 1024, model<&M::heads>},
      {"model.kv_heads", kInteger, "Key and value heads, a divisor of heads; 0 takes heads.", "", 0, 1024,
       model<&M::kv_heads>},
      {"model.context", kInteger, "Tokens that the model sees at once.", "", 1, 1 << 20, model<&M::context>},
      {"model.vocab", kInteger, "Tokens in the vocabulary; 0 takes the tokenizer's size.", "", 0, 1 << 24,
       model<&M::vocab>},
      {"model.ffn_dim", kInteger,
       "Width inside the feed-forward layer; 0 takes 4 dim (gpt) or 8/3 dim rounded up to a multiple of 64 (llama).",
       "", 0, 1 << 20, model<&M::ffn_dim>},
      {"model.dropout", kNumber, "Probability of dropping an activation during training.", "", 0, 0.99,
       model<&M::dropout>},
      {"model.tied_embeddings", kBoolean, "Output layer and token embedding share one weight.", "", 0, 0,
       model<&M::tied_embeddings>},
      {"model.rope_theta", kNumber, "Base of the rotary frequencies (llama).", "", 1, 1e12, model<&M::rope_theta>},
      {"model.norm_eps", kNumber, "Added to the variance inside the norms.", "", 1e-12, 1, model<&M::norm_eps>},
      {"model.residual", kText,
       "What attention and feed-forward parts read: all that those before them added, or with ladder all but the last "
       "one's, whose sum with parallel.tp then travels while they compute (another model, trained as such).",
       "plain ladder", 0, 0, model<&M::residual>},
      {"model.experts", kInteger,
       "Experts in place of each feed-forward layer, gated ones of ffn_dim without biases, of which each token takes "
       "some; 0 for none.",
       "", 0, 8192, model<&M::experts>},
      {"model.experts_per_token", kInteger, "Experts that a token goes to.", "", 1, 8192, model<&M::experts_per_token>},
      {"model.shared_dim", kInteger, "Width of an expert that all tokens pass besides; 0 for none.", "", 0, 1 << 20,
       model<&M::shared_dim>},
      {"model.router", kText, "What makes weights of the experts' scores; a token's are divided by their sum.",
       "softmax sigmoid", 0, 0, model<&M::router>},
      {"model.expert_capacity", kNumber,
       "In training an expert takes at most this times its even share of each sequence's choices, so that all sizes "
       "are known and nothing waits; 0: all that come.",
       "", 0, 8192, model<&M::expert_capacity>},
      {"model.expert_overflow", kText,
       "Choices that find their expert full are left out, or go to the best one with room.", "drop reroute", 0, 0,
       model<&M::expert_overflow>},
      {"model.balance_loss", kNumber, "What uneven loads of experts add to the training loss: 1 times this where even.",
       "", 0, 100, model<&M::balance_loss>},
      {"model.z_loss", kNumber,
       "The same for large scores of the router: the mean square of their log-sum-exp times this.", "", 0, 100,
       model<&M::z_loss>},
      {"model.init", kText,
       "What the weights begin as: a folder of a model as Hugging Face writes it, or a run's or a checkpoint's. What "
       "the model is made like and its tokenizer come from there; of this section context counts still, the tokens of "
       "a row, where it is no more than the model's.",
       "", 0, 0, top<&T::init>},

      {"tune.method", kText,
       "What is trained: all weights, or beside frozen ones adapters of low rank (lora), or these with learned lengths "
       "of the rows (dora).",
       "full lora dora", 0, 0, tune<&U::method>},
      {"tune.rank", kInteger, "Rank of the adapters.", "", 1, 1 << 16, tune<&U::rank>},
      {"tune.alpha", kNumber, "What adapters add is multiplied by alpha / rank.", "", 0, 1e9, tune<&U::alpha>},
      {"tune.dropout", kNumber, "Probability of dropping a number that comes into an adapter during training.", "", 0,
       0.99, tune<&U::dropout>},
      {"tune.rslora", kBoolean, "Multiplied by alpha / sqrt(rank) instead.", "", 0, 0, tune<&U::rslora>},
      {"tune.targets", kText,
       "Linear maps that get adapters: names or parts of names between dots, as here or in the model's files, "
       "separated by spaces, * for any part, e.g. \"q_proj v_proj\" or \"blocks.*.attn\". Experts get adapters by "
       "names that have the word experts, e.g. \"experts\" or \"experts.down_proj\".",
       "", 0, 0, tune<&U::targets>},
      {"tune.ranks", kText, "Other ranks for some of them, e.g. \"mlp=8 blocks.0=4\".", "", 0, 0, tune<&U::ranks>},
      {"tune.alphas", kText, "Other alphas for some of them.", "", 0, 0, tune<&U::alphas>},
      {"tune.train", kText,
       "Weights that are trained beside adapters, or of method full the only ones: names as in targets, e.g. \"head "
       "norm\".",
       "", 0, 0, tune<&U::train>},
      {"tune.freeze", kText, "Weights that are not trained.", "", 0, 0, tune<&U::freeze>},
      {"tune.quantize", kText,
       "Keeps the frozen linear maps of the blocks in 4 bits a number (QLoRA: NF4 in blocks of 64, whose scales are in "
       "8 "
       "bits), for lora and dora.",
       "none nf4", 0, 0, tune<&U::quantize>},
      {"tune.preference", kText,
       "The loss of data.format = preferences: DPO's, or IPO's, of the answers' log-probabilities under the model and "
       "under what it began as.",
       "sigmoid ipo", 0, 0, tune<&U::preference>},
      {"tune.beta", kNumber, "What moving away from the beginning costs.", "", 1e-6, 1e6, tune<&U::beta>},
      {"tune.label_smoothing", kNumber, "Of sigmoid, the probability that a pair is the wrong way round.", "", 0, 0.499,
       tune<&U::label_smoothing>},

      {"data.path", kText, "Text file, folder of text files, or tokens that strata data made, to train on (--data).",
       "", 0, 0, data<&D::path>},
      {"data.valid_path", kText, "Text to validate on; empty takes the end of the training text.", "", 0, 0,
       data<&D::valid_path>},
      {"data.valid_fraction", kNumber, "Part of the training text kept for validation.", "", 0, 0.9,
       data<&D::valid_fraction>},
      {"data.tokenizer", kText,
       "byte; bpe, byte pairs learned from the training text; ids, for a text of numbers that are ids already (these "
       "two "
       "need model.vocab); or a tokenizer that exists: its folder as Hugging Face writes it, tokenizer.json or "
       "tokenizer.model.",
       "", 0, 0, data<&D::tokenizer>},
      {"data.format", kText,
       "What the text is: running text; JSON lines of conversations (messages, prompt and completion, text), of which "
       "what the assistant writes is learned; or JSON lines with a chosen and a rejected answer. These two want a "
       "model with a chat template, where lines hold messages. seq2seq: JSON lines with an input and a target, for a "
       "model.init that reads the one and writes the other (T5).",
       "text chat preferences seq2seq", 0, 0, data<&D::format>},
      {"data.packing", kText,
       "How conversations share a row, none seeing another: one behind another in their order, or where they fit best.",
       "first_fit next_fit", 0, 0, data<&D::packing>},
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
      {"train.tile", kInteger,
       "Tokens that feed-forward parts and the loss work on at a time, computed again in backward: for long sequences, "
       "less "
       "memory for one more forward pass of these parts. 0: all.",
       "", 0, kCount, top<&T::tile>},
      {"train.recompute", kText,
       "What backward makes again beside what memory.recompute and parallel.recompute say: nothing, or cheap: the "
       "input "
       "of a gated feed-forward part's last product, from the first one's result, which is kept anyhow. The same bits, "
       "in "
       "any layout, for one more pass over that memory.",
       "none cheap", 0, 0, top<&T::recompute>},
      {"train.optimizer", kText, "Update rule.", rules_with([](const auto&) { return true; }), 0, 0,
       optim_of<&O::optimizer>},
      {"train.lr", kNumber, "Peak learning rate; lion takes about a tenth of adamw's, adadelta about 1.", "", 0, 1000,
       optim_of<&O::lr>},
      {"train.schedule", kText,
       "Learning rate over the steps (docs/reference/schedules.md). Those that do not rise by themselves begin after "
       "the "
       "warm-up.",
       schedule_names(), 0, 0, optim_of<&O::schedule>},
      {"train.schedule_options", kText,
       "The schedule's own options, as in step_size=300 gamma=0.5 or milestones=500,800. Steps and rates that are left "
       "out are those of the run.",
       "", 0, 0, optim_of<&O::schedule_options>},
      {"train.warmup", kInteger, "Steps of linear warm-up.", "", 0, kCount, optim_of<&O::warmup>},
      {"train.min_lr", kNumber, "Learning rate at the end, as a fraction of lr.", "", 0, 1, optim_of<&O::min_lr>},
      {"train.decay_fraction", kNumber, "Part of the steps over which wsd decays.", "", 0, 1,
       optim_of<&O::decay_fraction>},
      {"train.weight_decay", kNumber,
       "Decay of matrices (norms and biases have none): decoupled under " + rules_with([](const auto& r) {
         return r.decoupled != nullptr;
       }) + "; the others add it to the gradient, where 0 to 0.001 is usual.",
       "", 0, 100, optim_of<&O::weight_decay>,
       rules_with([](const auto& r) { return r.option("weight_decay") != nullptr; })},
      {"train.grad_clip", kNumber, "Largest norm of the gradient; 0 for no limit.", "", 0, 1e30,
       optim_of<&O::grad_clip>},
      {"train.dtype", kText,
       "f32, or autocast to bf16 or (with a loss scale) f16, weights in f32; fp8: bf16 with the products of linear "
       "layers in eight bits (--dtype).",
       "f32 bf16 f16 fp8", 0, 0, top<&T::dtype>},
      {"train.fp8_scaling", kText,
       "Under fp8, one scale for each operand of a product, or one for each of its rows: more exact, slower.",
       "tensor row", 0, 0, top<&T::fp8_scaling>},
      {"train.fp8_exclude", kText,
       "Under fp8, the layers that stay in bf16: names or parts of names between dots, separated by spaces, e.g. "
       "\"head blocks.0\".",
       "", 0, 0, top<&T::fp8_exclude>},
      {"train.grad_dtype", kText,
       "Gradients of weights under bf16 and fp8: kept in f32, or as products round them (accumulate 1), which saves "
       "memory and "
       "time.",
       "f32 bf16", 0, 0, top<&T::grad_dtype>},
      {"train.param_dtype", kText,
       "Weights of two or more dimensions: f32, or bf16 (with train.dtype bf16 or fp8), which halves their memory and "
       "that of "
       "their "
       "gradients.",
       "f32 bf16", 0, 0, top<&T::param_dtype>},
      {"train.param_update", kText,
       "How bf16 weights take an update that is smaller than their last bit: rounded up or down at random, exact on "
       "average; through weights in f32 that the optimizer keeps, whole (4 bytes each) or what the weight lacks of "
       "them (2 bytes each, not with adafactor); or rounded to nearest, which loses it.",
       "stochastic master compensated nearest", 0, 0, optim_of<&O::param_update>},
      {"train.low_state", kBoolean,
       "The optimizer's moments of bf16 weights in bf16 too (not with master or compensated).", "", 0, 0,
       optim_of<&O::low_state>},
      {"train.state_8bit", kBoolean,
       "The optimizer's moments in 8 bits (not with low_state), but for those of embeddings and of output layers and "
       "of "
       "tensors of fewer than 4096 elements.",
       "", 0, 0, optim_of<&O::state_8bit>},
      {"train.device", kText, "Where the model trains: cpu, cuda, or one card of several, e.g. cuda:1 (--device).", "",
       0, 0, top<&T::device>},
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
      {"train.save_async", kBoolean,
       "Checkpoints are written beside the steps that follow, from copies in the host's memory, which stay: as much as "
       "this rank writes of weights and optimizer state. Not with [memory].",
       "", 0, 0, top<&T::save_async>},
      {"train.keep_last", kInteger, "Checkpoints kept.", "", 1, kCount, top<&T::keep_last>},
      {"train.sample_prompt", kText, "Start of the text that the model continues for the report.", "", 0, 0,
       top<&T::sample_prompt>},
      {"train.sample_tokens", kInteger, "Length of that text; 0 for none.", "", 0, 1 << 20, top<&T::sample_tokens>},

      {"memory.device", kText,
       "Bytes of the device's memory (with train.device = cpu: of RAM) that the run may take, e.g. 20GiB; what does "
       "not fit is elsewhere while nobody uses it. Empty: all that is free, and only what keys below say moves.",
       "", 0, 0, memory_of<&Y::device>},
      {"memory.host", kText, "Bytes of the host's memory beside a card that it may take; empty: what is free.", "", 0,
       0, memory_of<&Y::host>},
      {"memory.disk", kText,
       "Folders on disks that may hold what fits nowhere else, separated by colons; the files have no names and end "
       "with the process. Empty: no disk.",
       "", 0, 0, memory_of<&Y::disk>},
      {"memory.activations", kText,
       "What forward saves for backward: kept, sent to the memory of a card's host or to a disk and fetched ahead of "
       "backward, or as the budget wants it.",
       "auto keep host disk", 0, 0, memory_of<&Y::activations>},
      {"memory.recompute", kText,
       "What is computed again in backward: nothing, all blocks from their inputs, single calls of most bytes a "
       "second, as few as the budget asks for, or whichever of them costs least.",
       "auto none blocks calls", 0, 0, memory_of<&Y::recompute>},
      {"memory.state", kText,
       "Where the optimizer's state and f32 weights live: on the device, in the memory of a card's host, on a disk, or "
       "as the budget wants it.",
       "auto device host disk", 0, 0, memory_of<&Y::state>},
      {"memory.update", kText,
       "Who updates state that lives elsewhere: the device, in groups that stream through it (the same bits), or of a "
       "card's the host's processor, or both at once (the bits of a step on the host). auto takes what is fastest of "
       "those that have the same bits.",
       "auto device cpu split", 0, 0, memory_of<&Y::update>},
      {"memory.parameters", kText,
       "Where the weights live: on the device, or in the memory of a card's host or on a disk, from where they come "
       "layer by layer, ahead of their use; their gradients go there. auto: as the budget wants it.",
       "auto device host disk", 0, 0, memory_of<&Y::parameters>},
      {"memory.delayed_update", kBoolean,
       "With memory.update = cpu: the host's update of a step runs beside the next step, whose weights are one update "
       "older: other numbers, less waiting.",
       "", 0, 0, memory_of<&Y::delayed_update>},
      {"memory.accumulation", kText,
       "How train.accumulate's batches go through a model whose weights come from elsewhere: one pass after the other "
       "(passes), or all of them through some blocks before the next blocks come (layers), so that weights move once a "
       "step instead of once a pass. The same bits; auto takes what is faster.",
       "auto passes layers", 0, 0, memory_of<&Y::accumulation>},
      {"parallel.auto", kBoolean,
       "The layout of the job's ranks is planned before the run: of those that fit into memory the one that a forecast "
       "says is "
       "fastest. Keys of [parallel] that are set stay; train.batch and train.accumulate may change, their product does "
       "not.",
       "", 0, 0, parallel_of<&ParallelConfig::automatic>},
      {"parallel.links", kText,
       "With parallel.auto: what ranks compute and send, as `strata info --links --out FILE` measured it. Empty: it is "
       "measured "
       "before the run, in some seconds.",
       "", 0, 0, parallel_of<&ParallelConfig::links>},
      {"parallel.dp", kInteger,
       "Ranks that share each batch, each with the whole model: train.batch counts the rows of all. 0: those of the "
       "job "
       "(strata launch, mpirun, srun, torchrun) that parallel.pp, parallel.tp and parallel.cp leave.",
       "", 0, kCount, parallel_of<&ParallelConfig::dp>},
      {"parallel.shares", kText,
       "A number for each rank of parallel.dp: rows of each batch are shared out in this proportion (\"2 1\"), for one "
       "that "
       "is slower, or has less memory, than the others. Empty: evenly. Gradients and losses are those of the whole "
       "batch.",
       "", 0, 0, parallel_of<&ParallelConfig::shares>},
      {"parallel.exact", kInteger,
       "Micro-batches that each batch is computed in, for the same bits on any number of ranks that divides them: "
       "their "
       "gradients are added in f32 in a fixed order, by whoever has them. 0: as the ranks come, up to rounding.",
       "", 0, 1 << 16, parallel_of<&ParallelConfig::exact>},
      {"parallel.ep", kInteger,
       "So many ranks, neighbours, share the experts of model.experts: each has a part of them, and tokens go to their "
       "experts' ranks and back. They are those of parallel.tp first, then of parallel.cp and of parallel.dp; it must "
       "divide their product and the experts.",
       "", 1, 8192, parallel_of<&ParallelConfig::ep>},
      {"parallel.zero", kInteger,
       "What the ranks of parallel.dp keep parts of, instead of all of it each: 1 the optimizer's state, 2 the "
       "gradients, "
       "too, 3 the parameters, too, which are gathered a block ahead of their use. Losses stay the same.",
       "", 0, 3, parallel_of<&ParallelConfig::zero>},
      {"parallel.reshard", kText,
       "With parallel.zero = 3: whether a block's gathered parameters go after its forward, to be gathered again for "
       "backward (always), or stay (never); or a number of neighbouring ranks, which divides parallel.dp, among which "
       "they "
       "lie meanwhile: then only these gather them again.",
       "", 0, 0, parallel_of<&ParallelConfig::reshard>},
      {"parallel.every_pass", kBoolean,
       "With parallel.zero = 3 and train.accumulate or parallel.pp: the gradients of every pass travel, so that none "
       "is ever whole. "
       "false: whole ones add up and travel once, for the bits of parallel.zero = 0.",
       "", 0, 0, parallel_of<&ParallelConfig::every_pass>},
      {"parallel.tp", kInteger,
       "Ranks that share each weight: heads, widths of feed-forward parts and the vocabulary are cut among them. It "
       "must "
       "divide the heads.",
       "", 1, kCount, parallel_of<&ParallelConfig::tp>},
      {"parallel.sequence", kBoolean,
       "With parallel.tp: what lies between the products is shared out by positions, too. As many bytes travel, less "
       "is "
       "kept for backward.",
       "", 0, 0, parallel_of<&ParallelConfig::sequence>},
      {"parallel.cp", kInteger,
       "Ranks that share each sequence: every one has a part of its positions, and attention sees all (context "
       "parallelism). The job has dp times cp ranks; model.context is a multiple of twice as many (ring), or of as "
       "many "
       "(ulysses).",
       "", 1, 1024, parallel_of<&ParallelConfig::cp>},
      {"parallel.cp_kind", kText,
       "How attention sees what other ranks of parallel.cp have: keys and values go round a ring (ring), for any "
       "number of "
       "heads; or positions are exchanged for heads (ulysses), in fewer bytes, where the ranks divide the heads.",
       "ring ulysses", 0, 0, parallel_of<&ParallelConfig::cp_kind>},
      {"parallel.pp", kInteger,
       "Ranks among which the layers are shared out, as stages of a pipeline; 1 for none. The job has dp times pp "
       "ranks.",
       "", 1, 1024, parallel_of<&ParallelConfig::pp>},
      {"parallel.schedule", kText, "In which order the stages work on the micro-batches (docs/design/pipeline.md).",
       pipeline_names(), 0, 0, parallel_of<&ParallelConfig::schedule>},
      {"parallel.micro_batches", kInteger,
       "Parts that a pipeline cuts a rank's rows of each batch into; 0: the most up to two for each rank of it, or "
       "those "
       "of parallel.exact.",
       "", 0, 1 << 16, parallel_of<&ParallelConfig::micro_batches>},
      {"parallel.stages", kInteger, "Stages on each rank of a pipeline, of schedules that have several; 0: the fewest.",
       "", 0, 1024, parallel_of<&ParallelConfig::stages>},
      {"parallel.recompute", kBoolean,
       "Blocks keep their inputs alone for backward, which computes them again, in any layout (of one rank "
       "memory.recompute "
       "says more).",
       "", 0, 0, parallel_of<&ParallelConfig::recompute>},
      {"parallel.check_replicas", kInteger,
       "Steps after which ranks compare hashes of what they should have alike, parameters and optimizer's states; "
       "where "
       "one differs every rank ends, naming step, rank and tensor. 0: never.",
       "", 0, kCount, parallel_of<&ParallelConfig::check_replicas>},
      {"parallel.mirror", kInteger,
       "Steps after which each rank copies all that it needs to go on into its own memory and a neighbour's, beside "
       "the "
       "next steps: where a process is killed and another takes its place (strata launch --restarts), the newest copy "
       "comes back without the disk. 0: never.",
       "", 0, kCount, parallel_of<&ParallelConfig::mirror>},
      {"parallel.reduce", kText,
       "What the ranks of parallel.dp send each other in a step: gradients as they are (plain), or a fraction of the "
       "bytes "
       "(docs/guide/parallel.md#less-communication).",
       exchange_names(), 0, 0, parallel_of<&ParallelConfig::reduce>},
  };
  for (const ConfigKey& key : keys_of_exchanges()) keys.push_back(key);
  const auto after = std::ranges::find(keys, "train.weight_decay", &ConfigKey::name) + 1;
  const std::vector<ConfigKey> rules = keys_of_rules();
  keys.insert(after, rules.begin(), rules.end());
  return keys;
}

}  // namespace

const RuleOptions& rule_defaults() {
  static const RuleOptions all = [] {
    RuleOptions values;
    for (const ::strata::optim::OptimizerRecord* r : ::strata::optim::optimizer_records())
      for (const ::strata::optim::OptimizerOption& o : r->options)
        if (const std::string key = key_of(o); key != "-" && r->in_training) values.emplace(key, o.get(r->defaults));
    for (const auto& [key, value] : kTrainingDefaults) values[std::string(key)] = value;
    return values;
  }();
  return all;
}

void* ConfigField::operator()(TrainConfig& config) const {
  if (member) return member(config);
  if (exchange) return exchange(config.parallel.reduce_options);
  return std::visit([](auto& v) -> void* { return &v; }, config.optim.rule.find(rule)->second);
}

template <class T>
static T& rule_value(RuleOptions& rule, std::string_view key) {
  const auto it = rule.find(key);
  T* value = it == rule.end() ? nullptr : std::get_if<T>(&it->second);
  check(value != nullptr, "OptimConfig", "there is no such option '", key, "'");
  return *value;
}
double& OptimConfig::number(std::string_view key) {
  return rule_value<double>(rule, key);
}
bool& OptimConfig::flag(std::string_view key) {
  return rule_value<bool>(rule, key);
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

}  // namespace strata
