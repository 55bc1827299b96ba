#include "strata/train/estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "strata/autograd/autograd.h"
#include "strata/autograd/offload.h"
#include "strata/core/dry_run.h"
#include "strata/core/placement.h"
#include "strata/data/dataset.h"
#include "strata/dist/exact_gradients.h"
#include "strata/memory/allocator.h"
#include "strata/memory/timeline_data.h"
#include "strata/models/tensor_parallel.h"
#include "strata/nn/convert.h"
#include "strata/nn/packed.h"
#include "strata/nn/sharded_costs.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/vec/scratch_kept.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/estimate_inl.h"
#include "strata/train/exchange_run_inl.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/layered_inl.h"
#include "strata/train/plan/plan.h"
#include "strata/train/precision.h"
#include "strata/train/ranks.h"
#include "strata/train/run.h"
#include "strata/train/train_data.h"

namespace strata {

using memory::Tag;

namespace {

Tensor reserve(int64_t bytes, Tag tag) {
  memory::TagScope scope(tag);
  return empty({{bytes}, DType::u8, Device::meta(), std::nullopt});
}

// What the products of a step with the model's dense weights leave with the thread that calls them: packed operands and
// sums of the largest. Only bf16 has so much of it.
int64_t dense_scratch(const nn::Module& model, int64_t rows) {
  int64_t most = 0;
  for (const auto& [name, weight] : model.named_parameters()) {
    if (weight.dim() != 2) continue;
    const int64_t n = weight.size(0), k = weight.size(1);
    const auto take = [&](int64_t m, int64_t wide, int64_t deep, bool transposed) {
      Gemm g;
      g.in = g.out = DType::bf16;
      g.m = m, g.n = wide, g.k = deep;
      g.a_row = transposed ? 1 : deep, g.a_col = transposed ? m : 1;
      most = std::max(most, cpu::detail::gemm_bf16_scratch(g));
    };
    take(rows, n, k, false);  // forward, the gradient of the rows, that of the weight
    take(rows, k, n, false);
    take(n, k, rows, true);
  }
  return scratch_kept(most);
}
// What the processor's products take besides their results.
int64_t product_workspace(const nn::Module& model, int64_t rows, DType dtype) {
  int64_t packed = 0;
  for (const auto& [name, layer] : model.named_modules()) {
    if (!nn::is_packed(layer)) continue;
    for (const PackedWeight& w : nn::packed_weights(layer))
      packed = std::max(packed, cpu::lowbit_workspace(w.rows, w.columns, dtype, rows));
  }
  return packed + (dtype == DType::bf16 ? dense_scratch(model, rows) : 0);
}
// Bytes of the largest weight that is rounded when it is read: itself, and in f32, or what a file's reader has of it.
int64_t largest_rounded(const nn::Module& model, DType dtype) {
  int64_t most = 0;
  for (const auto& [name, layer] : model.named_modules())
    if (nn::is_packed(layer))
      for (const PackedWeight& w : nn::packed_weights(layer)) most = std::max(most, w.rows * w.columns);
  constexpr int64_t kReader = int64_t{16} << 20;
  const int64_t bytes = most * size_of(dtype), wide = dtype == DType::f32 ? 0 : most * size_of(DType::f32);
  return bytes + std::max(wide, std::min(bytes, kReader));
}

TrainConfig checked(TrainConfig config) {
  apply_init(config);
  if (config.model.vocab == 0)
    config.model.vocab = config.data.names_tokenizer() ? make_tokenizer(config.data, 0)->vocab_size() : 256;
  validate(config);
  return config;
}

TrainConfig rows_of_a_rank(TrainConfig config) {
  const int64_t dp = std::max<int64_t>(config.parallel.dp, 1);
  const std::vector<int64_t> rows = shared_rows(config, dp);
  config.batch = rows.empty() ? (config.batch + dp - 1) / dp : *std::ranges::max_element(rows);
  return config;
}
}  // namespace

ContextCosts context_costs(const LanguageModel& model, const TrainConfig& config) {
  const int64_t n = config.parallel.cp, time = config.model.context / n, size = size_of(activation_dtype(config));
  const bool ring = config.parallel.cp_kind == "ring";
  ContextCosts costs;
  for (const nn::TransformerBlock& block : model.blocks) {
    const nn::AttentionSpec& s = block.attn.spec();
    const int64_t rows = config.batch * time, kv_heads = s.latent ? s.heads : s.kv_heads;
    const int64_t q = rows * s.heads * s.head_size, out = rows * s.heads * s.value_size,
                  kv = rows * kv_heads * (s.head_size + s.value_size);
    // A ring's backward: keys, values and their gradients here and coming, sums of gradients in f32, a block's own.
    const int64_t takes = ring ? (3 * kv + 2 * q) * 4 + (3 * kv + q) * size : 3 * (q + out + kv) * size;
    costs.workspace = std::max(costs.workspace, takes);
    costs.sends += ring ? (n - 1) * 2 * kv * size + n * kv * 4
                        : 2 * (q + out + std::max(kv, kv * n / kv_heads)) * size * (n - 1) / n;
  }
  return costs;
}

namespace {

// With parallel.exact the rows that each of so many ranks has come in passes of a micro-batch each: these.
TrainConfig in_micro_batches(TrainConfig config, int64_t ranks) {
  if (config.parallel.exact == 0) return config;
  const int64_t passes = config.parallel.exact / std::max<int64_t>(ranks, 1);
  config.batch = std::max<int64_t>(config.batch / passes, 1);
  config.accumulate *= passes;
  return config;
}
// Bytes of the sums that a rank keeps while it adds its micro-batches' gradients.
int64_t sums_of_micro_batches(const TrainConfig& config, const nn::Module& module) {
  if (config.parallel.exact == 0) return 0;
  const int64_t ranks = std::max<int64_t>(config.parallel.dp, 1);
  int64_t elements = 0;
  for (const auto& [name, p] : trained_parameters(module)) elements += p.numel();
  const int64_t all = config.accumulate * ranks, bytes = elements * size_of(DType::f32);
  if (config.parallel.zero < 2 || ranks == 1) return bytes * distributed::ExactGradients::sums_held(all, ranks);
  return bytes * distributed::ExactGradients::sums_kept(all, ranks) / ranks;  // of its rows
}

// Whether blocks keep their inputs alone.
bool runs_again(const TrainConfig& config) {
  return config.memory.recompute == "blocks" || config.parallel.recompute;
}

// The settings' model and optimizer on the meta device, and parts of a step.
class DryRun {
 public:
  DryRun(const TrainConfig& config, std::optional<int64_t> recomputed, const OffloadPlan* saved)
      : config_(config), rows_(row_tokens(config)), model(make_tuned_model(config)) {
    if (saved) {
      offload = SavedTensorOffload::create({.away = SavedPlace::keep, .recompute = true});
      if (!saved->choices.empty()) offload->set_plan(*saved);
    }
    module().train();
    if (auto* decoder = dynamic_cast<LanguageModel*>(model.get()))
      decoder->set_recomputed_blocks(recomputed ? *recomputed : runs_again(config) ? config.model.layers : 0);
    // Weights of 16 bits were f32 when they were initialised, and those of few bits dense: what a run does not have at
    // once.
    memory::backend(Device::meta()).release_cached();
    memory::reset_peak(DeviceType::meta);
    optimizer = make_optimizer(ExchangeRun::update(config, std::max<int64_t>(config.parallel.dp, 1)),
                               trained_parameters(module()), 0, table_names(*model));
  }
  data::Batch make_batch() const {
    memory::TagScope tag(Tag::data);
    return empty_batch(config_, rows_);
  }
  // Rows are this rank's positions from now on.
  void share_positions(int64_t ranks) { rows_.read /= ranks; }
  nn::Module& module() const { return model->as_module(); }
  /// Rows of the largest products of a pass, and its tokens.
  int64_t most_rows() const { return config_.batch * std::max(rows_.read, rows_.written); }
  int64_t tokens() const { return config_.batch * (rows_.read + rows_.written); }
  Tensor loss(const data::Batch& batch) const {
    std::optional<AutocastScope> autocast;
    if (const auto settings = autocast_of(config_, *model)) autocast.emplace(*settings);
    std::optional<SavedTensorOffload::Scope> scope;
    if (offload) scope.emplace(offload);
    return batch_loss(*model, batch, config_);
  }
  // All of them through `layers` blocks before the next come.
  void together(const std::vector<data::Batch>& batches, int64_t layers) {
    if (!draws_) {
      const NoGrad guard;
      const uint64_t before = default_generator().state().offset;
      loss(batches[0]);
      draws_ = default_generator().state().offset - before;
    }
    LayeredAccumulation layered(dynamic_cast<LanguageModel&>(*model), {.blocks = layers, .draws = *draws_});
    layered.run(batches, autocast_of(config_, *model));
  }
  uint64_t draws() const { return draws_.value_or(0); }
  void backward(const Tensor& loss) const {
    (config_.accumulate == 1 ? loss : loss * (1.0 / static_cast<double>(config_.accumulate))).backward();
  }

 private:
  const TrainConfig& config_;
  std::optional<uint64_t> draws_;
  RowTokens rows_;
  DeviceScope dry_{Device::meta()};
  DryRunAs way_{config_.device.starts_with("cuda") ? DeviceType::cuda : DeviceType::cpu};

 public:
  std::shared_ptr<TokenDecoder> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<SavedTensorOffload> offload;
};

// Of the weights that tensor and expert parallelism cut, the shape of what they leave the first rank.
std::map<std::string, Shape> left_in_parts(const TrainConfig& config, const TokenDecoder& decoder) {
  std::map<std::string, Shape> left;
  const int64_t tp = config.parallel.tp, ep = config.parallel.ep;
  const auto* const model = dynamic_cast<const LanguageModel*>(&decoder);
  if (!model) return left;
  std::map<std::string, Shape> whole;
  for (const auto& [name, t] : model->named_parameters()) {
    whole.emplace(name, t.shape());
    if (ep == 1 || !is_of_experts(name)) continue;
    left[name] = t.shape();
    left[name][0] /= ep;
  }
  if (tp == 1) return left;
  const auto mesh = std::make_shared<const MeshPlace>(MeshPlace{{{"tp", static_cast<int>(tp), 0}}});
  for (const distributed::ShardPlan::Weight& w : shard_plan(*model, tp).weights)
    left[w.name] = Layout{mesh, {w.placement}}.local_shape(whole.at(w.name));
  return left;
}

struct Weights {
  int64_t bytes = 0;    // of all
  int64_t trained = 0;  // elements
};
Weights weights_of(const nn::Module& module, const std::map<std::string, Shape>& left) {
  Weights all;
  for (const auto& [name, t] : module.named_parameters()) {
    const auto part = left.find(name);
    const int64_t numel = part == left.end() ? t.numel() : part->second.product();
    all.bytes += numel * static_cast<int64_t>(size_of(t.dtype()));
    if (t.requires_grad()) all.trained += numel;
  }
  return all;
}

// What one of parallel.tp ranks has, where one alone would have `e`. Of a block's activations it has its share, but for
// what goes into its two branches, which is whole; without parallel.sequence that is so, too, of what lies between.
MemoryEstimate of_a_part(MemoryEstimate e, const TrainConfig& config, const Weights& whole, const Weights& part,
                         int64_t& activations) {
  const auto tp = static_cast<double>(config.parallel.tp);
  const double bytes = static_cast<double>(part.bytes) / static_cast<double>(whole.bytes);
  const double trained = static_cast<double>(part.trained) / static_cast<double>(std::max<int64_t>(whole.trained, 1));
  const int64_t positions = config.batch * config.model.context / config.parallel.cp;
  const int64_t rows = positions * config.model.dim * size_of(activation_dtype(config));
  const auto whole_rows = static_cast<double>(config.model.layers * (config.parallel.sequence ? 2 : 4) * rows);
  const auto times = [](int64_t n, double share) { return static_cast<int64_t>(static_cast<double>(n) * share); };
  const auto share = [&](int64_t n) {
    return std::min(n, times(n, 1 / tp) + static_cast<int64_t>(whole_rows * (1 - 1 / tp)));
  };
  const MemoryEstimate before = e;
  e.parameters = times(e.parameters, bytes);
  e.gradients = times(e.gradients, trained);
  e.optimizer = times(e.optimizer, trained);
  e.sums = times(e.sums, trained);
  e.activations = share(e.activations);
  activations = share(activations);
  // Gradients and activations at the peak, each by its share.
  const int64_t both = before.peak - before.parameters - before.optimizer - before.data;
  const int64_t gradients = std::min(before.gradients, std::max<int64_t>(both - before.activations, 0));
  e.peak = e.parameters + e.optimizer + e.data + times(gradients, trained) + share(both - gradients);
  return e;
}

}  // namespace

int64_t rows_to_experts(const TrainConfig& config) {
  const ModelConfig& m = config.model;
  const int64_t chosen = m.context * m.experts_per_token;
  const int64_t sharing = config.parallel.cp * config.parallel.tp;  // of a loss
  if (m.expert_capacity == 0) return config.batch * chosen / sharing;
  const double even = static_cast<double>(chosen) / static_cast<double>(m.experts);
  const auto each = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(m.expert_capacity * even - 1e-9)));
  return config.batch * m.experts * each / sharing;
}

namespace {

// Bytes of rows that a rank sends to experts of other ranks, and gets back, in a step.
int64_t sent_to_experts(const TrainConfig& config) {
  const int64_t ep = config.parallel.ep;
  const int64_t ways = runs_again(config) ? 6 : 4;  // there and back, forward and backward
  return ways * config.accumulate * config.model.layers * rows_to_experts(config) / ep * (ep - 1) * config.model.dim *
         static_cast<int64_t>(size_of(activation_dtype(config)));
}

// What parallel.reduce sends and keeps. What it works with beside that is less than activations, which are gone by then.
MemoryEstimate with_exchange(MemoryEstimate e, const TrainConfig& config, const nn::Module& module, int64_t ranks) {
  std::vector<Shape> shapes;
  for (const auto& [name, t] : module.named_parameters())
    if (t.requires_grad()) shapes.push_back(t.shape());
  const distributed::ExchangeRecord& record = distributed::exchange_record(config.parallel.reduce);
  e.sends_gradients = static_cast<int64_t>(record.sent(shapes, ranks, config.parallel.reduce_options));
  e.exchange = static_cast<int64_t>(record.kept(shapes, ranks, config.parallel.reduce_options));
  e.peak += e.exchange;
  return e;
}

// Of the parameters that a dry step has read as autocast's copies bytes of an element of what it read. Embeddings are
// looked up in the table itself.
std::map<std::string, int64_t> bytes_read(TokenDecoder& model) {
  const std::set<std::string> tables = nn::table_names(model.as_module());
  std::map<std::string, int64_t> reads;
  for (const auto& [name, t] : model.as_module().named_parameters()) {
    const AutogradMeta* const known = t.impl().autograd.get();
    if (known == nullptr || !known->low.tensor.defined()) continue;
    reads[name] = size_of(known->low.tensor.dtype()) + (tables.contains(name) ? size_of(t.dtype()) : 0);
  }
  return reads;
}

}  // namespace

MemoryEstimate of_a_rank(MemoryEstimate e, const TrainConfig& config, TokenDecoder& model, int64_t activations) {
  const nn::Module& module = model.as_module();
  const int64_t rows = std::max<int64_t>(config.parallel.dp, 1), dp = rows > 1 ? rows : config.parallel.cp;
  const int64_t all = rows * config.parallel.cp;
  const std::map<std::string, Shape> left = left_in_parts(config, model);
  const Weights part = weights_of(module, left);
  if (!left.empty()) e = of_a_part(e, config, weights_of(module, {}), part, activations);
  if (config.save_async) e.copies = (part.bytes + e.optimizer) / all;
  if (config.parallel.ep > 1) e.sends_tokens = sent_to_experts(config);
  if (dp <= 1) return e;
  e.ranks = all;
  nn::FullyShardedOptions o = sharded_options(config.parallel, dp);
  if (config.parallel.exact > 0 && o.zero > 1) o.micro_batches = config.accumulate * dp;
  look_up_rows(o, config, model);
  const auto sharing = static_cast<int>(o.zero == 0 ? all : dp);
  std::map<std::string, int> others;  // experts, which other ranks have alike
  for (const auto& [name, t] : module.named_parameters())
    if (config.parallel.ep > 1 && is_of_experts(name))
      others[name] = static_cast<int>(std::max<int64_t>(all * config.parallel.tp / config.parallel.ep, 1));
  const nn::ShardedCosts costs = nn::sharded_costs(module, o, sharing, config.accumulate, left, others,
                                                   bytes_read(model), tables_read(config, model));
  if (config.parallel.exact > 0 && o.zero < 2) {  // micro-batches' sums travel otherwise, and no gradient lies in parts
    const int64_t own = static_cast<int64_t>(static_cast<double>(e.optimizer) * costs.updated);
    e.peak -= e.optimizer - own;
    e.optimizer = own;
    return e;
  }
  e.sends_parameters = costs.sends_parameters;
  e.sends_gradients = costs.sends_gradients;
  if (config.parallel.reduce != "plain") e = with_exchange(e, config, module, dp);
  // Buckets of whole gradients stay, so they are there beside all activations. After the first step they are made anew,
  // in the order in which gradients came, beside those that hold them.
  const auto both_buckets = [&] {
    return o.zero < 2 ? e.parameters + e.optimizer + e.data + e.gradients + std::max(e.gradients, activations)
                      : int64_t{0};
  };
  if (o.zero == 0) {
    if (config.parallel.reduce == "plain") e.peak = std::max(e.peak, both_buckets());
    return e;
  }
  const int64_t copies = std::max<int64_t>(e.parameters - part.bytes, 0);  // autocast's, which lie as what they are of
  // Whole ones add up over passes, or leave as they come. Activations go meanwhile: what is both at a time is no more
  // than this.
  const bool adds_up = o.micro_batches == 0 && config.accumulate > 1 && (o.zero == 2 || !o.reduce_every_pass);
  const bool whole = o.zero == 1 || adds_up || e.gradients == 0;
  const double kept = whole ? 1 : static_cast<double>(costs.gradients) / static_cast<double>(e.gradients);
  const auto both = static_cast<double>(e.peak - e.parameters - e.optimizer - e.data - e.sums);
  e.parameters = costs.parameters + costs.gathered + (o.zero == 3 ? copies / dp : copies);
  e.optimizer = static_cast<int64_t>(static_cast<double>(e.optimizer) * costs.updated);
  e.gradients = (whole ? e.gradients : costs.gradients) + costs.buckets;
  if (!whole) e.activations = activations;  // the peak has come nearer to forward's end
  const auto beside = static_cast<int64_t>(kept * both + (1 - kept) * static_cast<double>(activations));
  e.peak = e.parameters + e.optimizer + e.data + e.sums + std::max(costs.buckets, costs.filling + beside);
  e.peak = std::max(e.peak, both_buckets());
  return e;
}

namespace {

std::string holder_of(const RecordedCall& c) {
  return c.module && !c.module->empty() ? cat(c.op->name(), " in ", *c.module) : std::string(c.op->name());
}

}  // namespace

AloneEstimate estimate_alone(const TrainConfig& given, std::optional<int64_t> recomputed, const OffloadPlan* saved,
                             int64_t layered) {
  if (given.parallel.dp > 0) expert_ranks(given, given.parallel.dp);
  const TrainConfig config = in_micro_batches(rows_of_a_rank(checked(given)), given.parallel.dp);
  memory::backend(Device::meta()).release_cached();  // of dry runs before: it counted as taken, and would be used again
  memory::reset_peak(DeviceType::meta);
  const memory::Stats before = memory::stats(DeviceType::meta);
  DryRun run(config, recomputed, saved);
  const auto* const decoder = dynamic_cast<const LanguageModel*>(run.model.get());
  ContextCosts context;
  if (config.parallel.cp > 1 && decoder != nullptr) context = context_costs(*decoder, config);
  const auto make_batch = [&] { return run.make_batch(); };
  // What the loader holds ready, and the one that it is making.
  const std::vector<data::Batch> waiting{make_batch(), make_batch(), make_batch()};
  if (context.workspace > 0) run.share_positions(config.parallel.cp);                        // of whole rows
  const int64_t more = given.accumulate > 0 ? config.accumulate / given.accumulate - 1 : 0;  // of their micro-batches
  const Tensor rest = reserve(6 * more * run.tokens() * static_cast<int64_t>(sizeof(int64_t)), Tag::data);
  const int64_t sums = sums_of_micro_batches(config, run.module());
  const bool on_cpu = !config.device.starts_with("cuda");
  reserve(largest_rounded(run.module(), parse_dtype(config.param_dtype)),
          Tag::workspace);  // gone before the first step
  const Tensor scratch =
      reserve(on_cpu ? product_workspace(run.module(), run.most_rows(), activation_dtype(config)) : 0, Tag::workspace);
  int64_t gradients = 0, saved_bytes = 0;
  const auto live_activations = [&] {
    const int at = static_cast<int>(Tag::activation);
    return memory::stats(DeviceType::meta).live[at] - before.live[at];
  };
  // The first pass of a step makes the gradients, the second adds to them, and all that follow are like it.
  const int64_t passes = layered > 0 ? config.accumulate : std::min<int64_t>(config.accumulate, 3);
  // The first step makes the optimizer's state, the second is like all that follow.
  for (int step = 0; step < 2; ++step) {
    run.optimizer->zero_grad();
    std::vector<data::Batch> batches;
    for (int64_t i = 0; i < passes; ++i) batches.push_back(make_batch());
    const Tensor others =
        reserve(2 * (config.accumulate - passes) * run.tokens() * static_cast<int64_t>(sizeof(int64_t)), Tag::data);
    std::optional<Tensor> added(reserve(sums, Tag::gradient));
    std::optional<Fp8WeightsScope> weights(std::in_place);
    if (layered > 0) run.together(batches, layered);
    for (const data::Batch& batch : layered > 0 ? std::vector<data::Batch>() : batches) {
      const Tensor loss = run.loss(batch);
      saved_bytes = std::max(saved_bytes, live_activations());
      reserve(context.workspace, Tag::workspace);
      // Kernels do not run here, and this one's workspace is large.
      if (decoder != nullptr && config.device.starts_with("cuda")) {
        reserve(detail::linear_cross_entropy_workspace(run.most_rows(), config.model.dim, config.model.vocab,
                                                       activation_dtype(config)),
                Tag::workspace);
      }
      if (decoder != nullptr && on_cpu && config.tile > 0) {  // two chunks of logits, of at most 16 MiB each
        const int64_t logits = run.most_rows() * config.model.vocab * size_of(activation_dtype(config));
        reserve(2 * std::min(logits, int64_t{16} << 20), Tag::workspace);
      }
      run.backward(loss);
    }
    weights.reset();
    added.reset();
    gradients = memory::stats(DeviceType::meta).live[static_cast<int>(Tag::gradient)];
    if (step == 0) run.optimizer->step();
  }
  const memory::Stats after = memory::stats(DeviceType::meta);
  const auto at_peak = [&](Tag tag) { return after.peak[static_cast<int>(tag)] - before.live[static_cast<int>(tag)]; };
  MemoryEstimate alone{.parameter_count = run.module().num_parameters(),
                       .parameters = at_peak(Tag::parameter),
                       .gradients = gradients - before.live[static_cast<int>(Tag::gradient)],
                       .optimizer = at_peak(Tag::optimizer),
                       .activations = at_peak(Tag::activation) + at_peak(Tag::workspace),
                       .data = at_peak(Tag::data),
                       .peak = after.peak_reserved - before.reserved,
                       .sums = sums};
  alone.sends_activations = context.sends * config.accumulate;
  return {config, run.model, alone, std::max(alone.activations, saved_bytes)};
}

MemoryEstimate estimate_memory(const TrainConfig& config, std::optional<int64_t> recomputed, const OffloadPlan* saved,
                               int64_t layered) {
  if (config.parallel.pp > 1) return plan::estimate_stages(config);
  const AloneEstimate a = estimate_alone(config, recomputed, saved, layered);
  MemoryEstimate e = of_a_rank(a.alone, a.config, *a.model, a.activations);
  if (!config.device.starts_with("cuda")) e.peak += e.copies;
  return e;
}

OffloadMeasured dry_saved(const TrainConfig& given) {
  const TrainConfig config = checked(given);
  const OffloadPlan none;  // of nothing: what there is is listed
  const DryRun run(config, 0, &none);
  const Tensor loss = run.loss(run.make_batch());
  return run.offload->measured();
}

DryStep record_dry_step(const TrainConfig& given, std::optional<int64_t> recomputed, const OffloadPlan* saved,
                        int64_t layered) {
  const TrainConfig config = in_micro_batches(checked(given), 1);
  DryStep dry;
  const int64_t before = memory::stats(DeviceType::meta).live_total;
  DryRun run(config, recomputed, saved);
  const int64_t passes = layered > 0 ? config.accumulate : std::min<int64_t>(config.accumulate, 2);
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < passes; ++i) batches.push_back(run.make_batch());
  const auto step = [&] {
    run.optimizer->zero_grad();
    if (layered > 0) {
      run.together(batches, layered);
    } else {
      for (const data::Batch& batch : batches) run.backward(run.loss(batch));
    }
    run.optimizer->step();
  };
  step();  // makes the optimizer's state
  memory::reset_peak(DeviceType::meta);
  dry.step = record(step);
  dry.peak = memory::stats(DeviceType::meta).peak_total - before;
  dry.draws = run.draws();
  dry.further = config.accumulate - passes;
  if (dry.further > 0) dry.pass = record([&] { run.backward(run.loss(batches.back())); });
  dry.tokens = config.accumulate * run.tokens();
  dry.parameters = run.module().num_parameters();
  std::map<std::string, int64_t> parts;
  const auto state = run.optimizer->state_dict();
  for (const auto& [name, p] : run.module().named_parameters()) {
    const bool block = name.starts_with("blocks.");
    parts[name.substr(0, name.find('.', block ? std::string_view("blocks.").size() : 0))] += p.nbytes();
    dry.largest_weight = std::max(dry.largest_weight, static_cast<int64_t>(p.nbytes()));
    // Tables may keep more of it than others.
    const std::string prefix = name + ".";
    int64_t own = 0;
    for (auto it = state.lower_bound(prefix); it != state.end() && it->first.starts_with(prefix); ++it)
      own += it->second.nbytes();
    dry.largest_state = std::max(dry.largest_state, own);
  }
  for (const auto& [name, bytes] : parts) {
    dry.largest_part = std::max(dry.largest_part, bytes);
    if (name.starts_with("blocks.")) dry.largest_block = std::max(dry.largest_block, bytes);
  }
  const auto names = [](const std::set<std::string>& all) { return std::vector<std::string>(all.begin(), all.end()); };
  dry.tables = names(nn::table_names(run.module()));
  dry.tables_and_head = names(table_names(*run.model));
  return dry;
}

lab::StepCosts DryStep::costs(const lab::Limits& limits) const {
  lab::StepCosts costs(limits);
  costs.add(step);
  if (further > 0) costs.add(pass, further);
  return costs;
}

std::string DryStep::timeline_html(std::string_view title, std::string_view where, const lab::Limits& limits) const {
  // When each call begins.
  std::vector<double> begins{0};
  for (size_t i = 0; i < step.calls.size(); ++i)
    begins.push_back(begins.back() + (step.is_work(i) ? lab::least_seconds(step, i, limits) : 0));
  // The times of one event fit into 32 bits.
  memory::TimelineData data{
      .device = std::string(where), .tick = std::max(begins.back() / 4e9, 1e-9), .forecast = true};
  const auto ticks = [&](int32_t call) { return static_cast<uint32_t>(begins[static_cast<size_t>(call)] / data.tick); };
  std::map<std::string, uint32_t> holders;
  const auto holder = [&](const std::string& name) {
    const auto [at, fresh] = holders.try_emplace(name, static_cast<uint32_t>(data.holders.size()));
    if (fresh) data.holders.push_back(name);
    return at->second;
  };
  // Storages in the order in which they come and go; what goes before a call goes before what it makes comes.
  struct Change {
    int32_t call;
    bool comes;
    uint32_t storage;
  };
  std::vector<Change> changes;
  for (uint32_t i = 0; i < step.storages.size(); ++i) {
    const RecordedStorage& s = step.storages[i];
    if (s.nbytes == 0) continue;
    changes.push_back({s.born, true, i});
    if (s.freed < static_cast<int32_t>(step.calls.size())) changes.push_back({s.freed, false, i});
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.call != b.call ? a.call < b.call : a.comes < b.comes;
  });
  std::optional<Phase> phase;
  int32_t marked = 0;
  const auto mark_until = [&](int32_t call) {
    for (; marked <= call && marked < static_cast<int32_t>(step.calls.size()); ++marked) {
      const Phase p = step.calls[static_cast<size_t>(marked)].phase;
      if (p != phase) data.marks.push_back({ticks(marked), std::string(name_of(p))});
      phase = p;
    }
  };
  const auto add = [&](uint32_t storage, int32_t call, bool held) {
    const RecordedStorage& s = step.storages[storage];
    const uint32_t by = holder(s.born < 0 ? std::string() : holder_of(step.calls[static_cast<size_t>(s.born)]));
    data.events.push_back({held ? s.nbytes : 0, ticks(call), storage, by, s.tag});
  };
  for (const Change& c : changes) {
    mark_until(c.call);
    add(c.storage, std::max(c.call, 0), c.comes);
  }
  // The last call's end: what stays is told of once more.
  const auto end = static_cast<int32_t>(step.calls.size());
  mark_until(end);
  for (uint32_t i = 0; i < step.storages.size(); ++i) {
    if (step.storages[i].freed < end || step.storages[i].nbytes == 0) continue;
    add(i, end, true);
    break;
  }
  return memory::to_html(data, title);
}

}  // namespace strata
