#include "strata/train/ranks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/position_share_inl.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/context_length_inl.h"
#include "strata/dist/parts_inl.h"
#include "strata/models/tensor_parallel.h"
#include "strata/nn/name_pattern.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/exact_step_inl.h"
#include "strata/train/exchange_run_inl.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/model_pipeline_inl.h"

namespace strata {

namespace {

// The group's values, reduced; the same ones without a group.
std::vector<double> reduced(distributed::Group* group, std::vector<double> v, const char* what,
                            distributed::Reduction r) {
  if (!group) return v;
  group->run(cat(what, " [", v.size(), "]"), [&](distributed::Communicator& c) {
    c.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::f64, r);
  });
  return v;
}

}  // namespace

bool is_of_experts(std::string_view parameter) {
  return parameter.ends_with("experts.gate_up") || parameter.ends_with("experts.down");
}

ExpertRanks expert_ranks(const TrainConfig& config, int64_t dp) {
  const ParallelConfig& p = config.parallel;
  const int64_t ep = p.ep, experts = config.model.experts;
  check(p.cp == 1 || experts == 0 || config.model.expert_capacity == 0, "train", "parallel.cp is ", p.cp,
        ", and model.expert_capacity counts whole sequences: it is 0 for ranks that share them");
  check(p.tp == 1 || experts == 0 || config.model.expert_capacity == 0 || config.batch / dp % p.tp == 0, "train",
        "parallel.tp is ", p.tp, ", which does not divide the ", config.batch / dp,
        " rows of a rank of parallel.dp, and model.expert_capacity counts whole sequences");
  check(p.tp == 1 || experts == 0 || ep % p.tp == 0, "train", "parallel.tp is ", p.tp,
        ", and a model with experts wants those ranks to share them: parallel.ep is ", ep, ", no multiple of it");
  if (ep == 1) return {};
  const std::vector<std::string> targets = nn::words_of(config.tune.targets);
  check(config.tune.method == "full" ||
            std::ranges::none_of(targets, [](const std::string& t) { return nn::is_named(t, "experts"); }),
        "train", "parallel.ep is ", ep,
        ", and tune.targets gives adapters to experts, of which each rank then has all");
  ExpertRanks r;
  const int64_t within = ep == p.tp ? p.tp : p.tp * p.cp;  // without those of parallel.dp
  const std::string inner = cat(p.cp > 1 ? " and parallel.cp" : "", p.tp > 1 ? " and parallel.tp" : "");
  check(ep % within == 0 && dp % (ep / within) == 0, "train", "parallel.ep is ", ep, ", which does not divide the ",
        dp * p.cp * p.tp, " ranks of parallel.dp", inner,
        inner.empty() ? std::string()
                      : cat(" by neighbours: wanted ", p.tp > 1 ? cat(p.tp, " or ") : std::string(), p.tp * p.cp,
                            " times a number that divides ", dp));
  r.of_dp = ep / within;
  const auto join = [](std::string& to, const char* axis) { to += cat(to.empty() ? "" : "+", axis); };
  if (r.of_dp > 1) join(r.group, "ep");
  if (p.cp > 1) join(within > p.tp ? r.group : r.sharers, "cp");
  if (p.tp > 1) join(r.group, "tp");
  r.sharers = cat("dp", r.sharers.empty() ? "" : "+", r.sharers);
  check(config.init.empty() && experts > 0, "train", "parallel.ep is ", ep,
        ", and the model has no experts: set model.experts");
  check(experts % ep == 0, "train", "parallel.ep is ", ep, ", which does not divide model.experts = ", experts);
  check(p.exact == 0, "train",
        "parallel.ep and parallel.exact are not for one run: a rank's experts have rows of all ranks' micro-batches");
  check(p.shares.empty() || config.model.expert_capacity == 0, "train",
        "parallel.shares gives ranks other numbers of rows, and parallel.ep with model.expert_capacity wants the same");
  return r;
}

nn::FullyShardedOptions sharded_options(const ParallelConfig& parallel, int64_t dp) {
  nn::FullyShardedOptions o{.zero = static_cast<int>(parallel.zero), .reduce_every_pass = parallel.every_pass};
  const std::string& text = parallel.reshard;
  if (text == "always") return o;
  if (text == "never") {
    o.reshard_to = 1;
    return o;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), o.reshard_to);
  check(error == std::errc() && end == text.data() + text.size() && o.reshard_to >= 1 && dp % o.reshard_to == 0,
        "train", "parallel.reshard is '", text, "': wanted always, never, or a number that divides the ", dp,
        " ranks of parallel.dp");
  return o;
}

std::map<std::string, nn::TableReads> tables_read(const TrainConfig& config, const TokenDecoder& model) {
  constexpr std::string_view kTable = "token_embedding.weight";
  const auto* const decoder = dynamic_cast<const LanguageModel*>(&model);
  if (decoder == nullptr || (config.data.format != "text" && config.data.format != "chat")) return {};
  if (std::ranges::none_of(decoder->named_parameters(), [&](const auto& p) { return p.first == kTable; })) return {};
  const int64_t time = row_tokens(config).read / std::max<int64_t>(config.parallel.cp, 1);
  return {{std::string(kTable), {.ids = {config.batch * time}, .others = decoder->spec().tied}}};
}

void look_up_rows(nn::FullyShardedOptions& o, const TrainConfig& config, const TokenDecoder& model) {
  if (config.device.starts_with("cuda")) o.rows_from = std::numeric_limits<int64_t>::max();
  for (const auto& [name, reads] : tables_read(config, model))
    if (!reads.others) o.looked_up.push_back(name);
}

std::vector<int64_t> shared_rows(const TrainConfig& config, int64_t dp) {
  const std::string& text = config.parallel.shares;
  if (text.empty() || dp <= 1) return {};
  check(config.parallel.pp == 1 && config.parallel.exact == 0, "train", "parallel.shares = '", text, "' is not for ",
        config.parallel.pp > 1 ? "parallel.pp" : "parallel.exact", ", whose micro-batches are all alike");
  std::vector<double> shares;
  double all = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    double n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    check(error == std::errc() && end == word.data() + word.size() && n > 0 && std::isfinite(n), "train",
          "parallel.shares is '", text, "': '", word, "' is no positive number");
    shares.push_back(n);
    all += n;
  }
  check(static_cast<int64_t>(shares.size()) == dp, "train", "parallel.shares is '", text, "', of ", shares.size(),
        " numbers: wanted one for each of the ", dp, " ranks of parallel.dp");
  // The largest remainders get what is left over.
  std::vector<int64_t> rows;
  std::vector<std::pair<double, size_t>> rest;
  int64_t left = config.batch;
  for (size_t r = 0; r < shares.size(); ++r) {
    const double exact = static_cast<double>(config.batch) * shares[r] / all;
    rows.push_back(static_cast<int64_t>(exact));
    rest.emplace_back(static_cast<double>(rows[r]) - exact, r);
    left -= rows[r];
  }
  std::ranges::sort(rest);
  for (size_t i = 0; left > 0; ++i, --left) ++rows[rest[i % rest.size()].second];
  for (size_t r = 0; r < rows.size(); ++r)
    check(rows[r] > 0, "train", "parallel.shares is '", text, "', by which rank ", r, " has no row of a batch of ",
          config.batch);
  return rows;
}

int64_t check_layout(const TrainConfig& config, int64_t ranks) {
  const int64_t pp = config.parallel.pp, cp = config.parallel.cp, tp = config.parallel.tp, others = pp * tp * cp;
  const int64_t dp = config.parallel.dp > 0 ? config.parallel.dp : ranks / others;
  std::string layout;
  const auto say = [&](bool given, const char* axis, int64_t n) {
    if (given) layout += cat(layout.empty() ? "" : " and ", "parallel.", axis, " is ", n);
  };
  say(config.parallel.dp > 0, "dp", dp);
  say(pp > 1, "pp", pp);
  say(cp > 1, "cp", cp);
  say(tp > 1, "tp", tp);
  check(dp > 0 && dp * others == ranks, "train", layout, ", and the job has ", ranks,
        ranks == 1 ? " rank: start it with strata launch -n " : " ranks: start it with strata launch -n ",
        std::max<int64_t>(dp, 1) * others, ", mpirun, srun or torchrun");
  check(config.parallel.exact % dp == 0, "train", "parallel.exact is ", config.parallel.exact, ", which ", dp,
        " ranks do not share evenly: take a multiple of the ranks");
  expert_ranks(config, dp);
  check(!config.memory.any() || !config.parallel.recompute, "train",
        "parallel.recompute is for runs without [memory], where memory.recompute says which blocks run again");
  check(!config.memory.any() || config.recompute == "none", "train",
        "train.recompute is for runs without [memory], where memory.recompute says which calls run again");
  if (ranks == 1) return dp;
  check(!shared_rows(config, dp).empty() || config.batch % dp == 0, "train", "train.batch is ", config.batch,
        ", which ", dp,
        " ranks do not share evenly: it counts the rows of all of them (parallel.shares takes uneven ones)");
  check(config.data.format == "text", "train", "data.format = ", config.data.format, " is for one rank: its ",
        "rows have different numbers of learned tokens, so the ranks' losses cannot be averaged");
  check(!config.memory.any(), "train", "[memory] is for one rank: leave it out, or train on one");
  check(tp == 1 || config.tune.method == "full", "train", "parallel.tp is for tune.method = full, not ",
        config.tune.method);
  check(tp == 1 || pp == 1 || config.parallel.exact == 0, "train",
        "parallel.exact is not for parallel.tp with parallel.pp: take one of them, with parallel.dp");
  const int zero = sharded_options(config.parallel, dp > 1 ? dp : cp).zero;
  check(zero == 0 || config.tune.method == "full", "train", "parallel.zero is for tune.method = full, not ",
        config.tune.method);
  check(zero <= 1 || pp == 1 || config.parallel.exact == 0, "train", "parallel.zero = ", zero,
        " with parallel.pp = ", pp, " is not for parallel.exact = ", config.parallel.exact,
        ": stages add up whole gradients of micro-batches, of which parallel.zero = 1 has parts of the sums");
  check(tp == 1 || config.tile == 0, "train",
        "train.tile is not for parallel.tp, whose ranks have parts of what is widest");
  if (pp > 1) ModelPipeline::check_settings(config, dp);
  distributed::check_context(config.model.context, distributed::context_kind(config.parallel.cp_kind), cp);
  return dp;
}

bool keeps_parts(const ParallelConfig& p) {
  return p.zero == 3 || p.tp > 1 || p.pp > 1 || p.ep > 1;
}
bool may_begin_in_parts(const TrainConfig& c) {
  const bool all = c.tune.method == "full" && c.tune.freeze.empty() && c.tune.quantize == "none" && !c.memory.any();
  return all && (c.init.empty() || !find_init(c.init).is_run);
}

void check_layout_of(const TokenDecoder& model, const ParallelConfig& p) {
  const auto* const decoder = dynamic_cast<const LanguageModel*>(&model);
  for (const auto& [axis, n] : {std::pair("tp", p.tp), std::pair("cp", p.cp), std::pair("pp", p.pp)})
    check(n == 1 || decoder != nullptr, "train", "parallel.", axis, " is for decoders");
  check(!p.recompute || decoder != nullptr, "train", "parallel.recompute is for decoders");
  if (p.tp > 1) shard_plan(*decoder, p.tp);
  if (p.pp > 1) ModelPipeline::check_stages(p, static_cast<int64_t>(decoder->blocks.size()));
  if (p.cp == 1 || distributed::context_kind(p.cp_kind) != distributed::ContextKind::ulysses) return;
  for (size_t i = 0; i < decoder->blocks.size(); ++i) {
    const nn::AttentionSpec& s = decoder->blocks[i].attn.spec();
    // Of those that parallel.tp leaves, which divides them.
    const int64_t n = p.cp, heads = s.heads / p.tp, kv_heads = (s.latent ? s.heads : s.kv_heads) / p.tp;
    check(heads % n == 0 && (kv_heads % n == 0 || n % kv_heads == 0), "train", "parallel.cp_kind = ulysses: ", n,
          " ranks do not share the heads of blocks.", i, ": ", heads, " of queries, ", kv_heads,
          " of keys and values; ring takes any");
  }
}

Ranks::Ranks(const TrainConfig& config)
    : tp_(config.parallel.tp),
      ep_(config.parallel.ep),
      exactly_(config.parallel.exact > 0),
      sequence_(config.parallel.sequence),
      parallel_(config.parallel) {
  using namespace distributed;
  const int64_t dp = check_layout(config, distributed::size());
  if (distributed::size() == 1) return;
  const int64_t pp = config.parallel.pp, cp = config.parallel.cp;
  experts_ = expert_ranks(config, dp);
  rows_ = shared_rows(config, dp);
  batch_ = config.batch;
  sharing_ = sharded_options(config.parallel, dp > 1 ? dp : cp);
  // What adds up gradients gives whole ones, but for parts of micro-batches' sums.
  const bool in_parts = exactly_ && sharing_.zero > 1 && dp > 1 && pp == 1;
  if (in_parts) sharing_.micro_batches = config.parallel.exact * config.accumulate;
  sharing_.average = in_parts || ((pp == 1 || sharing_.zero > 1) && !exactly_ && config.parallel.reduce == "plain");
  const auto axis = [](const char* name, int64_t n) { return n > 1 ? cat(name, n) : std::string(); };
  set_mesh(Mesh(cat(axis("pp=", pp), " dp=", dp / experts_.of_dp, axis(" ep=", experts_.of_dp), axis(" cp=", cp),
                    axis(" tp=", tp_))));
  world_ = &group("world");
  leads_ = world_->rank() == 0;
  size_ = dp;
  const std::string rows = experts_.of_dp > 1 ? "dp+ep" : "dp";  // those of parallel.dp
  if (dp > 1) rank_ = group(rows).rank();
  sharing_.axis = rows;
  sharing_.apart_axis = experts_.sharers;
  if (cp > 1) {
    context_ = ContextParallel{.group = "cp", .kind = context_kind(config.parallel.cp_kind)};
    if (dp == 1) sharing_.axis = "cp";
    if (dp > 1) sharing_.replicas = "cp";
    positions_ = std::make_unique<strata::detail::PositionShareScope>(
        strata::detail::PositionShare{.length = config.model.context,
                                      .part = group("cp").rank(),
                                      .parts = cp,
                                      .paired = context_->kind == ContextKind::ring});
  }
  if (dp * cp > 1) group_ = &group(cp == 1 ? rows : dp == 1 ? "cp" : rows + "+cp");
}
Ranks::~Ranks() = default;

RowShare Ranks::own_rows() const {
  if (!group_ || size_ == 1 || exact_ || pipeline_) return {};
  if (rows_.empty()) return {.first = rank_ * (batch_ / size_), .own = batch_ / size_, .all = batch_};
  return {.first = std::accumulate(rows_.begin(), rows_.begin() + rank_, int64_t{0}),
          .own = rows_[static_cast<size_t>(rank_)],
          .all = batch_};
}

double Ranks::row_weight() const {
  if (rows_.empty()) return 1;
  const auto all = static_cast<double>(std::accumulate(rows_.begin(), rows_.end(), int64_t{0}));
  return static_cast<double>(rows_[static_cast<size_t>(rank_)]) * static_cast<double>(size_) / all;
}

void Ranks::meet() const {
  if (world_) world_->barrier();
}

void Ranks::shard(TokenDecoder& model) const {
  check_layout_of(model, parallel_);
  share_positions(model);
  if (auto* decoder = dynamic_cast<LanguageModel*>(&model)) {
    if (parallel_.recompute && parallel_.pp == 1)
      decoder->set_recomputed_blocks(static_cast<int64_t>(decoder->blocks.size()));
    if (parallel_.pp == 1) part_weights(*decoder);
  }
}

void Ranks::part_weights(LanguageModel& model) const {
  share_experts(model, experts_.group, loads_group());
  if (tp_ > 1) distributed::shard_module(model, shard_plan(model, tp_), "tp", {.sequence = sequence_});
}

// On a communicator of its own: a block that is computed again asks while gradients travel. With parallel.exact a
// micro-batch's loads are its own, whoever has the others.
std::string Ranks::loads_group() const {
  if ((!group_ && tp_ == 1) || !world_ || exactly_) return "";
  return cat(experts_.of_dp > 1 ? "ep+dp" : "dp+dp+dp", context_ ? "+cp" : "", tp_ > 1 ? "+tp" : "");
}

void Ranks::connect(Device device) const {
  std::vector<distributed::Group*> groups{&distributed::group("pp")};
  if (group_) groups.push_back(group_);
  if (context_) groups.push_back(&distributed::group(context_->group));
  if (!stages_.empty())
    for (distributed::Group* const g : sharded_->groups()) groups.push_back(g);
  if (ep_ > 1)
    for (const std::string& name : {experts_.group, experts_.sharers, loads_group()})
      if (!name.empty()) groups.push_back(&distributed::group(name));
  for (distributed::Group* const g : groups) {
    const Tensor one = empty(TensorMeta{{1}, DType::f32, device, std::nullopt});
    fill_elements(one, 0.0);
    g->run(device, "connection", [&](distributed::Collectives& c) {
      c.all_reduce(one.raw_data(), 1, DType::f32, distributed::Reduction::sum);
    });
  }
}

void Ranks::share_positions(TokenDecoder& model) const {
  if (!context_) return;
  dynamic_cast<LanguageModel&>(model).set_context_parallel(context_);
}

const char* Ranks::together() const {
  return pipeline_ ? "a pipeline" : context_ ? "ranks that share sequences" : nullptr;
}

Tensor Ranks::own_positions(const Tensor& rows) const {
  return context_ ? distributed::context_part(rows, 1, *context_) : rows;
}

void Ranks::take_stages(const std::shared_ptr<TokenDecoder>& model, const TrainConfig& config) {
  if (parallel_.pp == 1) return;
  pipeline_ = std::make_unique<ModelPipeline>(model, config, distributed::group("pp"));
  part_weights(dynamic_cast<LanguageModel&>(*model));
}

void Ranks::share_parameters(TokenDecoder& decoder, const TrainConfig& config) {
  if (!group_ || sharing_.zero == 0) return;
  const nn::Module& model = decoder.as_module();
  nn::FullyShardedOptions o = sharing_;
  if (!pipeline_) look_up_rows(o, config, decoder);
  if (pipeline_) {
    std::set<std::string> own;
    const Tensor copy = o.zero == 3 ? pipeline_->tied_copy() : Tensor();  // which another rank updates
    nn::NamedTensors here = whole_parameters(model);
    for (const auto& [name, t] : model.named_parameters())
      if (copy.defined() && t.same_as(copy)) here.emplace_back(name, t);
    for (const auto& [name, t] : here) {
      own.insert(name);
      if (o.zero > 1 && pipeline_->tied().defined() && t.same_as(pipeline_->tied())) o.joined.push_back(name);
    }
    for (const auto& [name, t] : model.named_parameters())
      if (!own.contains(name)) o.leave_out.push_back(name);
    for (const auto& [stage, names] : pipeline_->names_by_stage(here)) {
      if (o.zero < 2) break;
      stages_.push_back(stage);
      o.stages.push_back(names);
    }
  }
  for (const auto& [name, t] : model.named_parameters())
    if (ep_ > 1 && is_of_experts(name)) o.apart.push_back(name);
  sharded_ = std::make_unique<nn::FullySharded>(model, o);
}

std::vector<optim::WholeSquares::Gradient> Ranks::gradients_in_parts(const nn::NamedTensors& parameters) const {
  const std::map<std::string, Tensor> parts = [&] {
    const nn::NamedTensors all = sharded_->parameters();
    return std::map<std::string, Tensor>(all.begin(), all.end());
  }();
  const auto ranks = static_cast<size_t>(size_);
  std::vector<optim::WholeSquares::Gradient> gradients;
  for (const auto& [name, whole] : parameters) {
    const Shape shape = strata::detail::here(whole).shape();
    // What has no rows is whole in every rank, and counts in the first.
    std::vector<int64_t> begins(ranks + 1, shape.product());
    begins[0] = 0;
    if (whole.dim() > 0 && shape.product() > 0) begins = distributed::Cut(shape, static_cast<int>(ranks)).begins;
    gradients.push_back({.of = parts.at(name), .whole = whole, .begins = std::move(begins)});
  }
  return gradients;
}

std::vector<optim::WholeSquares::Gradient> Ranks::gradients_of_stages(const nn::Module& model) const {
  const auto ranks = static_cast<size_t>(parallel_.pp);
  const int here = distributed::group("pp").rank();
  std::vector<optim::WholeSquares::Gradient> gradients;
  for (const auto& [name, t] : trained_parameters(model)) {
    const int owner = pipeline_->owner_of(name);
    std::vector<int64_t> begins(ranks + 1, 0);
    for (size_t r = static_cast<size_t>(owner) + 1; r <= ranks; ++r) begins[r] = t.numel();
    gradients.push_back({.of = owner == here ? t : Tensor(), .whole = t, .begins = std::move(begins)});
  }
  return gradients;
}

void Ranks::set_norm(optim::Optimizer& optimizer, const nn::Module& model) {
  if (pipeline_ && exactly_) {
    squares_.emplace(gradients_of_stages(model), "pp");
    return;
  }
  if (pipeline_) optimizer.norm_over("pp");
  if (has_all_rows()) {
    squares_.emplace(gradients_in_parts(whole_parameters(model)), sharing_.axis);
    return;
  }
  if (!sharded_ || pipeline_ || sharing_.average) return;
  TensorList whole;
  for (const auto& [name, t] : whole_parameters(model)) whole.push_back(t);
  optimizer.norm_of(std::move(whole));
}

nn::NamedTensors Ranks::whole_parameters(const nn::Module& model) const {
  return pipeline_ ? pipeline_->own(trained_parameters(model)) : trained_parameters(model);
}

nn::NamedTensors Ranks::own_parameters(const nn::Module& model) const {
  if (!sharded_ || !pipeline_) return sharded_ ? sharded_->parameters() : whole_parameters(model);
  return pipeline_->own(sharded_->parameters());
}

void Ranks::take_gradients(const nn::Module& model, const TrainConfig& config) {
  if (config.parallel.exact > 0 && pipeline_) {
    pipeline_->add_exactly(whole_parameters(model), group_, config);
    return;
  }
  if (config.parallel.exact > 0) {
    exact_ =
        std::make_unique<ExactStep>(whole_parameters(model), group_, config, has_all_rows() ? sharded_.get() : nullptr);
    return;
  }
  if (!group_ || (sharded_ && sharing_.average)) return;
  nn::NamedTensors parameters = whole_parameters(model);
  if ((exchange_ = ExchangeRun::make(parameters, *group_, config))) return;
  if (pipeline_)  // a gradient that comes in two parts travels when they were added
    std::erase_if(parameters, [&](const auto& p) { return p.second.same_as(pipeline_->tied()); });
  if (ep_ > 1) {
    nn::NamedTensors experts;
    for (const auto& p : parameters)
      if (is_of_experts(p.first)) experts.push_back(p);
    std::erase_if(parameters, [](const auto& p) { return is_of_experts(p.first); });
    // Theirs are sums over the ranks that share them already.
    distributed::Group& sharers = distributed::group(experts_.sharers);
    if (sharers.size() > 1 && !experts.empty())
      expert_gradients_ = std::make_unique<distributed::DataParallel>(experts, sharers);
  }
  gradients_ = std::make_unique<distributed::DataParallel>(parameters, *group_);
}

void Ranks::resume_exchange(const FoundRun& found, optim::Optimizer& optimizer, std::vector<std::string>& notes) const {
  if (!exchange_) return;
  if (std::string text = exchange_->resume(found, optimizer); !text.empty()) notes.push_back(std::move(text));
}

void Ranks::last_pass(bool yes) const {
  if (gradients_) gradients_->reduce_next(yes);
  if (expert_gradients_) expert_gradients_->reduce_next(yes);
  if (sharded_) sharded_->reduce_next(yes);
  if (exchange_) exchange_->exchange().reduce_next(yes);
}

void Ranks::before_gradients(const distributed::pipeline::Action& a, bool last) const {
  if (stages_.empty()) return last_pass(last);
  const auto stage = static_cast<size_t>(std::ranges::find(stages_, a.stage) - stages_.begin());
  sharded_->reduce_next(stage, last, a.pass != distributed::pipeline::Pass::input_gradient);
}

// A pipeline's gradients are complete where the optimizer reads them.
void Ranks::finish_stages() const {
  // Both ends of a tied table that lies in parts have the same rows of it: each averages its own, then they add them.
  if (sharded_ && sharing_.zero == 3) {
    sharded_->finish();
    Tensor part;
    for (const auto& [name, t] : sharded_->parameters())
      if (name == ModelPipeline::kTied) part = t;
    if (part.defined()) pipeline_->join_tied(part);
    return;
  }
  pipeline_->join_tied();
  if (stages_.empty()) {
    if (const Tensor table = pipeline_->tied(); table.defined() && group_) {
      const Tensor g = strata::detail::here(table.grad()).contiguous();
      const std::string what = cat("gradient of a tied table ", g.dtype(), ' ', g.shape());
      group_->run(g.device(), what, [&](distributed::Collectives& c) {
        c.all_reduce(g.raw_data(), g.numel(), g.dtype(), distributed::Reduction::avg);
      });
      copy_elements(strata::detail::here(table.grad()), g);
    }
  }
  finish_gradients();
}

void Ranks::finish_gradients() const {
  if (gradients_) gradients_->finish();
  if (expert_gradients_) expert_gradients_->finish();
  if (sharded_) sharded_->finish();
}

Device Ranks::device(const TrainConfig& config) {
  const Device wanted = parse_device(config.device);
  if (distributed::size() == 1 || wanted.is_cpu()) return wanted;
  const Device own = distributed::card();
  check(wanted.index == 0 || wanted == own, "train", "train.device = ", config.device, " is one card, and the job has ",
        distributed::size(), " ranks: cuda gives each its own, here ", own);
  return own;
}

double Ranks::finish_step(Tensor& loss, double max_norm) const {
  if (exact_) {
    loss = exact_->finish();
    if (sharded_) sharded_->finish();
    return max_norm;
  }
  if (pipeline_ && exactly_) {  // whose loss is all ranks'
    pipeline_->finish_sums();
    if (sharded_) sharded_->finish();
    return max_norm;
  }
  if (shares_weights()) loss = distributed::full_tensor(loss);
  if (pipeline_) finish_stages();
  if (!group_) return max_norm;
  if (exchange_) exchange_->exchange().finish(max_norm);
  if (!pipeline_) finish_gradients();
  NoGrad guard;
  loss = loss.clone();
  group_->run(loss.device(), "loss", [&](distributed::Collectives& c) {
    c.all_reduce(loss.raw_data(), loss.numel(), loss.dtype(), distributed::Reduction::avg);
  });
  return exchange_ && exchange_->gives(distributed::ExchangeRecord::Gives::direction) ? INFINITY : max_norm;
}

Tensor Ranks::squares() const {
  return squares_ ? squares_->sum() : Tensor();
}

void Ranks::finish_update() const {
  if (exchange_) exchange_->exchange().updated();
  if (sharded_) sharded_->gather_updated();
  if (pipeline_) pipeline_->renew_tied();
}

void Ranks::seed_step(int64_t seed, int64_t step) const {
  if (world_) distributed::recorder().set_step(step);
  if (exactly_) {
    default_generator().set_state({static_cast<uint64_t>(seed), static_cast<uint64_t>(step) * ExactStep::kStepDraws});
    if (pipeline_) pipeline_->seed(default_generator().state());
    return;
  }
  // The numbers of one rank, of which each has those of its rows and positions.
  if (pipeline_) pipeline_->seed(default_generator().state(), rank_);
}

std::vector<double> Ranks::vote(std::vector<double> v) const {
  return reduced(world_, std::move(v), "vote", distributed::Reduction::max);
}
std::vector<double> Ranks::sum(std::vector<double> v) const {
  v = reduced(group_, std::move(v), "sum", distributed::Reduction::sum);
  if (context_)
    for (double& x : v) x /= static_cast<double>(group_->size()) / static_cast<double>(size_);
  return v;
}
std::vector<double> Ranks::follow(std::vector<double> v) const {
  if (!world_) return v;
  world_->run(cat("decision [", v.size(), "]"),
              [&](distributed::Communicator& c) { c.broadcast(v.data(), v.size() * sizeof(double), 0); });
  return v;
}

}  // namespace strata
