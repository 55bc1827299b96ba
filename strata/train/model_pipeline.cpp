#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "strata/autograd/function.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/position_share_inl.h"
#include "strata/core/rebind.h"
#include "strata/core/recording.h"
#include "strata/core/rng.h"
#include "strata/core/row_share.h"
#include "strata/cuda/graph.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/pipeline/partition.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/lab/step_costs.h"
#include "strata/memory/allocator.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/exact_step_inl.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/precision.h"

namespace strata {

namespace pipeline = distributed::pipeline;

namespace {

// A machine of the usual balance: where blocks are cut must be the same on every rank, whatever each has measured.
constexpr double kFlops = 1e12, kBytes = 1e11;
// y, whose backward pass begins with what another stage has of the gradient of `table`: what comes then is added there,
// as in one pass through all stages.
struct JoinTable : Function<JoinTable> {
  struct Ctx : FunctionCtx {
    std::function<Tensor()> part;
  };
  static Tensor forward(Ctx& ctx, const Tensor& y, const Tensor&, const std::function<Tensor()>& part) {
    ctx.part = part;
    return y.detach();
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) { return {gy[0], ctx.part()}; }
};

// y, whose backward pass begins with that of `added`, a scalar that is a part of the loss, too.
struct JoinLoss : Function<JoinLoss> {
  struct Ctx : FunctionCtx {
    Tensor one;
  };
  static Tensor forward(Ctx& ctx, const Tensor& y, const Tensor& added) {
    ctx.one = ones_like(added);
    return y.detach();
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) { return {gy[0], ctx.one}; }
};

// What a rank of parallel.tp sends to the next stage, and what it makes of what comes: its part of a tensor that lies
// as `placements` say along "tp", as a plain tensor. Gradients go the same way back.
struct Parted : Function<Parted> {
  struct Ctx : FunctionCtx {
    LayoutRef lies;
    TensorMeta whole;
  };
  static Tensor forward(Ctx& ctx, const Tensor& y) {
    ctx.lies = layout_of(y);
    ctx.whole = {y.shape(), y.dtype(), y.device(), std::nullopt};
    return distributed::local(y).detach();
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    return {strata::detail::place(gy[0].contiguous(), ctx.whole, ctx.lies)};
  }
};
struct Joined : Function<Joined> {
  struct Ctx : FunctionCtx {
    std::string placements;
  };
  static Tensor forward(Ctx& ctx, const Tensor& part, const std::string& placements, const Shape& shape) {
    ctx.placements = placements;
    return distributed::from_local(part.detach(), placements, shape, "tp");
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    return {distributed::local(lying(gy[0], ctx.placements))};
  }
  static Tensor lying(const Tensor& t, const std::string& placements) {
    return is_placed(t) ? distributed::redistribute(t, placements) : distributed::distribute(t, placements, "tp");
  }
};

// The block that a module lies in: -1 for embeddings, `blocks` for what is behind the last.
int64_t block_of(std::string_view name, int64_t blocks) {
  constexpr std::string_view kBlocks = "blocks.";
  if (name.starts_with(kBlocks)) {
    int64_t block = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data() + kBlocks.size(), end, block).ec == std::errc()) return block;
  }
  for (const std::string_view behind : {"norm", "head", "loss"})
    if (name.starts_with(behind)) return blocks;
  return -1;
}

// Ranks of parallel.dp.
int64_t rows_sharers(const TrainConfig& config) {
  return distributed::size() / (config.parallel.pp * config.parallel.cp * config.parallel.tp);
}

// Of shapes alone.
std::shared_ptr<LanguageModel> dry_model(const TrainConfig& config) {
  const DeviceScope dry(Device::meta());
  const std::shared_ptr<LanguageModel> model = decoder_of(make_tuned_model(config), "parallel.pp");
  model->train();
  return model;
}

}  // namespace

int64_t ModelPipeline::pieces(const TrainConfig& c, int64_t dp) {
  const int64_t rows = c.batch / std::max<int64_t>(dp, 1);
  if (c.parallel.exact > 0) return std::max<int64_t>(c.parallel.exact / std::max<int64_t>(dp, 1), 1);
  if (c.parallel.micro_batches > 0) return c.parallel.micro_batches;
  int64_t most = std::max<int64_t>(std::min(rows, 2 * c.parallel.pp), 1);
  while (rows % most != 0) --most;
  return most;
}

int64_t ModelPipeline::layer_of(std::string_view name, int64_t blocks) {
  return std::min(block_of(name, blocks), blocks) + 1;
}

std::vector<pipeline::LayerCost> ModelPipeline::layers(const TrainConfig& config) {
  return layers(config, *dry_model(config));
}

// A step of one row on the meta device, call by call.
std::vector<pipeline::LayerCost> ModelPipeline::layers(const TrainConfig& config, LanguageModel& model) {
  TrainConfig one = config;
  one.batch = 1;
  const DeviceScope dry(Device::meta());
  lab::StepCosts costs;
  costs.add(record([&] {
    std::optional<AutocastScope> autocast;
    if (const auto settings = autocast_of(one, model)) autocast.emplace(*settings);
    const data::Batch batch = empty_batch(one, row_tokens(one));
    model.loss(batch[0], batch[1]).backward();
  }));
  const auto blocks = static_cast<int64_t>(model.blocks.size());
  std::vector<pipeline::LayerCost> layers(static_cast<size_t>(blocks + 2));
  const auto layer = [&](std::string_view name) -> pipeline::LayerCost& {
    return layers[static_cast<size_t>(layer_of(name, blocks))];
  };
  for (const lab::StepCosts::Part& p : costs.parts())
    layer(p.module).seconds += std::max(p.sum.flops / kFlops, p.sum.bytes / kBytes);
  for (const auto& [name, t] : model.named_parameters()) layer(name).bytes += static_cast<double>(t.nbytes());
  return layers;
}

std::vector<int64_t> ModelPipeline::cuts(const std::vector<pipeline::LayerCost>& layers, int stages) {
  const auto blocks = static_cast<int64_t>(layers.size()) - 2;
  std::vector<int64_t> begins;
  for (const int begin : pipeline::fastest_partition(layers, stages).begins)
    begins.push_back(std::clamp<int64_t>(begin - 1, 0, blocks));
  begins.push_back(blocks);
  return begins;
}

void ModelPipeline::check_stages(const ParallelConfig& parallel, int64_t blocks) {
  const pipeline::ScheduleRecord& s = pipeline::schedule_record(parallel.schedule);
  const int64_t each = parallel.stages > 0 ? parallel.stages : s.least_stages, stages = each * parallel.pp;
  check(stages <= blocks + 2, "train", "parallel.pp = ", parallel.pp, " with ", each, " stages a rank are ", stages,
        " stages, and the model has ", blocks, " blocks, its embeddings and its head");
}

void ModelPipeline::check_settings(const TrainConfig& c, int64_t dp) {
  const int64_t pp = c.parallel.pp;
  check(c.tune.method == "full", "train", "parallel.pp = ", pp, " is for tune.method = full, not ", c.tune.method);
  check(c.dtype != "fp8", "train", "parallel.pp = ", pp, " is not for train.dtype = fp8");
  check(c.parallel.exact == 0 || c.model.experts == 0 || (c.model.balance_loss == 0 && c.model.z_loss == 0), "train",
        "parallel.pp = ", pp, " with parallel.exact is for model.balance_loss = 0 and model.z_loss = 0: stages add ",
        "them up in another order than one process");
  check(c.model.residual == "plain", "train", "parallel.pp = ", pp, " is for model.residual = plain, not ",
        c.model.residual, ": stages hand on one tensor");
  const int64_t rows = c.batch / std::max<int64_t>(dp, 1), pieces = ModelPipeline::pieces(c, dp);
  check(c.parallel.exact == 0 || c.parallel.micro_batches == 0 || c.parallel.micro_batches == pieces, "train",
        "parallel.micro_batches is ", c.parallel.micro_batches, ", and parallel.exact = ", c.parallel.exact, " on ", dp,
        " ranks of parallel.dp means ", pieces);
  check(rows % pieces == 0, "train", "parallel.micro_batches is ", pieces, ", which does not divide the ", rows,
        " rows that a rank has of each batch");
  const pipeline::ScheduleRecord& s = pipeline::schedule_record(c.parallel.schedule);
  check(c.parallel.stages == 0 ||
            (c.parallel.stages >= s.least_stages && (s.most_stages == 0 || c.parallel.stages <= s.most_stages)),
        "train", "parallel.stages is ", c.parallel.stages, ", and ", s.name, " has ", s.least_stages,
        s.most_stages == 0 ? " or more" : "", " on each rank");
}

ModelPipeline::ModelPipeline(const std::shared_ptr<TokenDecoder>& model, const TrainConfig& config,
                             distributed::Group& group)
    : model_(decoder_of(model, "parallel.pp")),
      group_(group),
      between_(config.dtype == "f32" ? model_->token_embedding.weight.dtype() : activation_dtype(config)),
      halves_(config.parallel.exact > 0),
      tp_(config.parallel.tp),
      sequence_(config.parallel.sequence),
      pieces_(pieces(config, rows_sharers(config))) {
  const RngKey drawn = default_generator().state();
  const pipeline::Table table =
      pipeline::make_table(config.parallel.schedule, group.size(), static_cast<int>(pieces_ * config.accumulate),
                           static_cast<int>(config.parallel.stages));
  const auto blocks = static_cast<int64_t>(model_->blocks.size());
  check_stages(config.parallel, blocks);
  const std::shared_ptr<LanguageModel> dry = dry_model(config);
  begins_ = cuts(layers(config, *dry), table.stages);
  train_.emplace(table, group);
  forward_.emplace(pipeline::forward_table(table, 1), group);
  has_first_ = is_here(0);
  has_last_ = is_here(table.stages - 1);
  for (const auto& name : model_->table_names()) tied_ = tied_ || (name == kTied && model_->spec().tied);
  if (config.parallel.recompute) model_->set_recomputed_blocks(blocks);
  const int64_t dp = rows_sharers(config);
  batch_ = config.batch;
  rows_ = config.batch / (dp * pieces_);
  count_draws(config, *dry);
  default_generator().set_state(drawn);  // dry runs draw what the models' parameters take
  let_go();
}

// By forward passes of what draws at once, the whole batch, on the meta device.
void ModelPipeline::count_draws(const TrainConfig& config, LanguageModel& model) {
  const NoGrad guard;
  const DeviceScope dry(Device::meta());
  const detail::PositionShareScope whole_sequences({});
  TrainConfig drawn = config;
  if (config.parallel.exact > 0) drawn.batch = rows_;  // each micro-batch draws for itself
  const data::Batch batch = empty_batch(drawn, row_tokens(config));
  const Generator& random = default_generator();
  const RngKey before = random.state();
  const int stages = train_->table().stages;
  Tensor x = batch[0], added;
  for (int s = 0; s < stages; ++s) {
    draws_.push_back(random.state().offset - before.offset);
    const bool last = s + 1 == stages;
    x = model.part(x, s == 0, begins_[static_cast<size_t>(s)], begins_[static_cast<size_t>(s) + 1],
                   last ? batch[1] : Tensor(), halves_, &added);
  }
  draws_.push_back(random.state().offset - before.offset);
}

void ModelPipeline::seed(RngKey base, int64_t part) {
  random_ = base;
  part_ = part;
}
void ModelPipeline::seed(RngKey base) {
  random_ = base;
  part_.reset();
}

bool ModelPipeline::is_here(int stage) const {
  return train_->table().rank_of[static_cast<size_t>(stage)] == group_.rank();
}

int ModelPipeline::stage_of(const std::string& parameter) const {
  const int64_t blocks = begins_.back(), block = block_of(parameter, blocks);
  const int last = train_->table().stages - 1;
  if (block < 0) return 0;
  if (block >= blocks) return last;
  int stage = last;
  while (begins_[static_cast<size_t>(stage)] > block) --stage;
  return stage;
}

void ModelPipeline::let_go() {
  const NoGrad guard;
  const Tensor& table = model_->token_embedding.weight;
  for (const auto& [name, t] : model_->named_parameters()) {
    if (is_here(stage_of(name)) || (tied_ && has_last_ && t.same_as(table))) continue;
    nn::detail::never_come(t);
    rebind(t, empty(TensorMeta{t.shape(), t.dtype(), Device::meta(), std::nullopt}));
  }
}

nn::NamedTensors ModelPipeline::own(const nn::NamedTensors& parameters) const {
  nn::NamedTensors mine;
  for (const auto& [name, t] : parameters)
    if (is_here(stage_of(name))) mine.emplace_back(name, t);
  return mine;
}

std::map<int, std::vector<std::string>> ModelPipeline::names_by_stage(const nn::NamedTensors& parameters) const {
  std::map<int, std::vector<std::string>> names;
  const std::vector<int> stages = train_->table().stages_of(group_.rank());
  for (const int s : stages) names[s] = {};
  for (const auto& [name, t] : parameters) {
    const bool copy = tied_copy().defined() && t.same_as(tied_copy());
    if (const int s = copy ? stages.back() : stage_of(name); is_here(s)) names[s].push_back(name);
  }
  return names;
}

Tensor ModelPipeline::forward(int stage, int micro, const Tensor& x) {
  const pipeline::Table& table = train_->table();
  const data::Batch& batch = micro_batches_[static_cast<size_t>(micro)];
  std::optional<RowShareScope> rows;
  if (grad_enabled() && sums_) {
    const auto number = static_cast<uint64_t>(sums_->first() + micro);
    default_generator().set_state({random_.seed, random_.offset +
                                                     number * (ExactStep::kStepDraws / static_cast<uint64_t>(count_)) +
                                                     draws_[static_cast<size_t>(stage)]});
  } else if (grad_enabled() && part_) {
    const int64_t of_step = micro / pieces_, piece = micro % pieces_;
    rows.emplace(RowShare{.first = (*part_ * pieces_ + piece) * rows_, .own = rows_, .all = batch_});
    default_generator().set_state({random_.seed, random_.offset + static_cast<uint64_t>(of_step) * draws_.back() +
                                                     draws_[static_cast<size_t>(stage)]});
  }
  const bool first = stage == 0, last = stage + 1 == table.stages;
  Tensor added;
  const Tensor in = first ? batch[0] : lies_.empty() ? x : Joined::apply(x, lies_, between(batch[0].shape()));
  Tensor y = model_->part(in, first, begins_[static_cast<size_t>(stage)], begins_[static_cast<size_t>(stage) + 1],
                          last ? batch[1] : Tensor(), halves_, &added);
  if (!last && !lies_.empty()) y = Parted::apply(Joined::lying(y, lies_));
  if (!last && first && tied_ && sums_ && grad_enabled())
    return JoinTable::apply(y, model_->token_embedding.weight,
                            std::function<Tensor()>([this, micro] { return take_table(micro); }));
  if (last) return add_loss(y);
  return added.defined() ? JoinLoss::apply(y, add_loss(added)) : y;
}

// A micro-batch's part of the step's loss, as its backward pass begins with it.
Tensor ModelPipeline::add_loss(const Tensor& loss) {
  const bool exactly = grad_enabled() && sums_;
  const Tensor plain = distributed::full_tensor(loss.detach());
  const double share = 1.0 / static_cast<double>(exactly ? count_ : static_cast<int64_t>(micro_batches_.size()));
  if (exactly) {
    const NoGrad guard;
    losses_.push_back(to(plain, DType::f64).view({1}));
  } else {
    const NoGrad guard;
    const Tensor part = to(plain, DType::f64) * share;
    total_ = total_.defined() ? total_ + part : part;
  }
  if (!grad_enabled()) return loss;
  const Tensor shared = share == 1 ? loss : loss * share;
  return scaler_ ? scaler_->scale(shared) : shared;
}

void ModelPipeline::before_gradients(const pipeline::Action& a) {
  if (before_) before_(a, a.micro + 1 == train_->table().micro_batches);
}

// The last stage's part of a tied table's gradient goes to the first one's, or waits for it here.
void ModelPipeline::after_gradients(const pipeline::Action& a) {
  if (!sums_) return;
  const NoGrad guard;
  const pipeline::Table& table = train_->table();
  const bool all = a.pass != pipeline::Pass::input_gradient;
  if (Tensor weight = model_->token_embedding.weight; tied_ && a.stage + 1 == table.stages && weight.grad().defined()) {
    has_first_ ? void(tables_.emplace(a.micro, weight.grad())) : send_table(a.micro, weight.grad());
    weight.set_grad({});
  }
  sums_->came(a.stage, a.micro, all);
}

// The tied table's, without which the first stage's would have to wait for what comes late.
TensorList ModelPipeline::never_late(int stage) {
  if (!sums_ || !tied_ || stage + 1 != train_->table().stages) return {};
  return {model_->token_embedding.weight};
}

void ModelPipeline::add_exactly(const nn::NamedTensors& own, distributed::Group* group, const TrainConfig& config) {
  const pipeline::Table& table = train_->table();
  std::map<int, nn::NamedTensors> stages;
  for (const int s : table.stages_of(group_.rank())) stages[s] = {};
  for (const auto& [name, t] : own) stages.at(stage_of(name)).emplace_back(name, t);
  sharing_ = group;
  count_ = config.parallel.exact * config.accumulate;
  sums_.emplace(stages, group, count_);
  int taken = 0;
  taken_before_.assign(static_cast<size_t>(table.micro_batches), 0);
  for (const pipeline::Action& a : table.actions[static_cast<size_t>(table.rank_of.front())]) {
    if (a.stage != 0) continue;
    if (a.pass == pipeline::Pass::forward) taken_before_[static_cast<size_t>(a.micro)] = taken;
    if (a.pass == pipeline::Pass::backward || a.pass == pipeline::Pass::weight_gradient) ++taken;
  }
}

void ModelPipeline::finish_sums() {
  sums_->finish();
}

int ModelPipeline::owner_of(const std::string& parameter) const {
  return train_->table().rank_of[static_cast<size_t>(stage_of(parameter))];
}

// What a stage without losses adds to them.
Tensor ModelPipeline::nothing(const Shape& shape) const {
  const Tensor none = empty(TensorMeta{shape, DType::f64, device_, std::nullopt});
  fill_elements(none, 0.0);
  return none;
}

// Of all micro-batches, added by their numbers.
Tensor ModelPipeline::exact_loss() {
  const NoGrad guard;
  const auto own = sums_->count();
  Tensor mine = losses_.empty() ? nothing({own}) : strata::cat(std::exchange(losses_, {}), 0), all = mine;
  group_.run(device_, "losses of a pipeline's micro-batches", [&](distributed::Collectives& c) {
    c.all_reduce(mine.raw_data(), own, DType::f64, distributed::Reduction::sum);
  });
  if (sharing_) {
    all = empty(TensorMeta{{count_}, DType::f64, mine.device(), std::nullopt});
    sharing_->run(device_, "losses of micro-batches", [&](distributed::Collectives& c) {
      c.all_gather(all.raw_data(), mine.raw_data(), static_cast<size_t>(mine.nbytes()));
    });
  }
  return sum(all) * (1.0 / static_cast<double>(count_));
}

// Of what goes from stage to stage, of a micro-batch's tokens.
Shape ModelPipeline::between(const Shape& rows) const {
  const int64_t dim = model_->spec().dim;
  return halves_ ? Shape{2, rows[0], rows[1], dim} : Shape{rows[0], rows[1], dim};
}

void ModelPipeline::run(pipeline::Pipeline& p, const std::vector<data::Batch>& micro_batches) {
  micro_batches_ = micro_batches;
  total_ = Tensor();
  const Shape& rows = micro_batches[0][0].shape();
  device_ = micro_batches[0][0].device();
  const std::vector<int>& ranks = train_->table().rank_of;
  if (tied_ && ranks.front() != ranks.back() && !cuda::capturing())
    group_.connect(device_, std::array{to_owner(), to_copy()});
  Shape message = between(rows);
  if (tp_ > 1) {
    // Positions lie in parts behind a block where there is one for each rank.
    const bool parts = sequence_ && rows[1] >= tp_;
    lies_ = parts ? "S(1)" : "R";
    const int rank = distributed::group("tp").rank();
    const auto mesh = std::make_shared<const MeshPlace>(MeshPlace{{{"tp", static_cast<int>(tp_), rank}}});
    message = Layout{mesh, {parts ? Placement::sharded(1) : Placement()}}.local_shape(message);
  }
  p.run(*this, {message, between_, device_, std::nullopt});
  micro_batches_.clear();
}

// The last stage's, and what experts of the others add to it.
Tensor ModelPipeline::total_loss() {
  const NoGrad guard;
  Tensor total = total_.defined() ? total_.clone() : nothing({});
  group_.run(device_, "loss of a pipeline", [&](distributed::Collectives& c) {
    c.all_reduce(total.raw_data(), 1, DType::f64, distributed::Reduction::sum);
  });
  return total;
}

Tensor ModelPipeline::step(const std::vector<data::Batch>& batches, optim::LossScaler* scaler,
                           const BeforeGradients& before) {
  std::vector<data::Batch> pieces;
  const auto take = [&](const data::Batch& batch, int64_t i) {
    const int64_t rows = batch[0].size(0) / pieces_;
    data::Batch& piece = pieces.emplace_back();
    for (const Tensor& t : batch) piece.push_back(t.narrow(0, i * rows, rows));
  };
  if (sums_) {  // by their numbers
    for (int64_t i = 0; i < pieces_; ++i)
      for (const data::Batch& batch : batches) take(batch, i);
    sums_->begin();
    losses_.clear();
    tables_.clear();
  } else {
    for (const data::Batch& batch : batches)
      for (int64_t i = 0; i < pieces_; ++i) take(batch, i);
  }
  scaler_ = scaler;
  before_ = before;
  run(*train_, pieces);
  before_ = nullptr;
  for (; !sent_.empty(); sent_.pop_front()) sent_.front().work.wait();
  if (sums_) {
    default_generator().set_state({random_.seed, random_.offset + ExactStep::kStepDraws});
    return exact_loss();
  }
  if (part_)
    default_generator().set_state(
        {random_.seed, random_.offset + static_cast<uint64_t>(batches.size()) * draws_.back()});
  return total_loss();
}

Tensor ModelPipeline::loss(const data::Batch& batch) {
  const NoGrad guard;
  scaler_ = nullptr;
  run(*forward_, {batch});
  return total_loss();
}

lab::Trace ModelPipeline::trace() const {
  lab::Trace trace;
  const auto spans = train_->all_spans();
  for (size_t r = 0; r < spans.size(); ++r) {
    lab::TraceTrack& track = trace.track(fmt::format("rank {}", group_.ranks()[r]), lab::TrackKind::compute);
    for (const pipeline::ActionSpan& s : spans[r])
      track.spans.push_back({.name = pipeline::to_text(s.action),
                             .begin = s.begin,
                             .end = s.end,
                             .phase = s.action.pass == pipeline::Pass::forward ? Phase::forward : Phase::backward,
                             .queued = s.waited});
  }
  return trace;
}

std::string ModelPipeline::to_text() const {
  const pipeline::Table& t = train_->table();
  std::string blocks;
  for (size_t s = 0; s + 1 < begins_.size(); ++s) {
    const int64_t first = begins_[s], end = begins_[s + 1];
    blocks += s == 0 ? "" : " | ";
    blocks += first == end ? "none" : end == first + 1 ? cat(first) : cat(first, '-', end - 1);
  }
  return fmt::format(
      "a pipeline of {} stages on {} ranks ({}, {} micro-batches), blocks {}; by its table ranks have "
      "nothing to do for {:.1f}% of a step",
      t.stages, t.ranks, t.schedule, t.micro_batches, blocks,
      100 * pipeline::simulate(t, {pipeline::StageCost{}}).bubble);
}

}  // namespace strata
