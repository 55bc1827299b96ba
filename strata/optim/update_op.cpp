#include "strata/optim/update_op.h"

#include <array>
#include <utility>

#include "strata/core/boxed_call.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/op_base.h"
#include "strata/optim/eight_bit_inl.h"

namespace strata::optim {
namespace {

constexpr std::string_view kRules[] = {
#define STRATA_ONE_RULE(name, type) #name,
    STRATA_RULES
#undef STRATA_ONE_RULE
};

bool writes_grads(Rule rule) {
  return rule == Rule::scale_grad || rule == Rule::clamp_grad;
}

constexpr int64_t kSettings = 4;

// What it writes, in order.
TensorList targets_of(bool on_grads, const TensorList& params, const TensorList& grads, const TensorList& states,
                      const TensorList& low, const TensorList& rates, const TensorList& scales) {
  TensorList all;
  for (const TensorList* list : {on_grads ? &grads : &params, &states, &low, &rates, &scales})
    for (const Tensor& t : *list)
      if (t.defined()) all.push_back(t);
  return all;
}

// No function that callers have: not listed.
class UpdateOp final : public OpBase {
 public:
  UpdateOp()
      : OpBase(
            "optimizer_update(str rule, Tensor[] params, Tensor[] grads, Tensor[] states, Tensor[] low, "
            "Tensor[] counts, Tensor[] rates, Tensor? constants, Tensor? settings, Tensor? verdict, Tensor[] scales) "
            "-> Tensor[]",
            "One run of an optimizer's rule over lists of tensors, in place.", {}, __FILE__, /*listed=*/false) {}

  bool is_view() const override { return false; }
  bool is_dynamic() const override { return false; }
  bool is_composed() const override { return false; }
  bool has_kernel(DeviceType d) const override { return d == DeviceType::cpu || launch_room(d); }
  bool has_backward() const override { return false; }
  bool has_reference() const override { return false; }
  bool has_composed() const override { return false; }
  bool can_inplace() const override { return true; }
  bool has_samples() const override { return false; }
  void samples(Samples&) const override {}
  std::vector<Value> call_boxed(std::span<const Value>) const override {
    throw ValueError(name_, "has only the in-place form");
  }
  std::vector<Value> reference_boxed(std::span<const Value>) const override {
    throw ValueError(name_, "the record has neither a reference nor a composed form");
  }

  // Bytes: everything read once, what is written once more. Operations: ten an element, as Adam's.
  Cost cost_boxed(std::span<const Value> args) const override {
    Cost cost;
    const auto add = [&](const Value& v, double times) {
      for (const Tensor& t : std::get<TensorList>(v))
        if (t.defined()) cost.bytes += times * static_cast<double>(t.nbytes());
    };
    const bool on_grads = std::get<std::string>(args[0]).ends_with("_grad");
    add(args[1], 2);
    add(args[2], on_grads ? 2 : 1);
    add(args[3], 2);
    add(args[4], 1);
    add(args[10], 2);
    for (const Tensor& t : std::get<TensorList>(args[on_grads ? 2 : 1]))
      cost.flops += (on_grads ? 1.0 : 10.0) * static_cast<double>(t.numel());
    return cost;
  }

  std::vector<Value> inplace_boxed(std::span<const Value> args) const override {
    check(args.size() == schema().args.size(), name_, "takes ", schema().args.size(), " arguments, got ", args.size());
    const auto list = [&](size_t i) -> const TensorList& {
      const auto* l = std::get_if<TensorList>(&args[i]);
      if (!l) detail::throw_boxed_type(*this, i, {});
      return *l;
    };
    const auto tensor = [&](size_t i) {
      const auto* t = std::get_if<Tensor>(&args[i]);
      return t ? *t : Tensor();
    };
    const auto* text = std::get_if<std::string>(&args[0]);
    if (!text) detail::throw_boxed_type(*this, 0, {});
    const TensorList &params = list(1), &grads = list(2), &states = list(3), &low = list(4), &counts = list(5),
                     &rates = list(6);
    const bool on_grads = text->ends_with("_grad");
    const size_t n = grads.size();
    const TensorList& scales = list(10);
    const TensorList targets = targets_of(on_grads, params, grads, states, low, rates, scales);
    bool dry = false;
    for (const Tensor& t : targets) dry = dry || t.is_meta();
    if (!dry) {
      size_t r = 0;
      while (r < std::size(kRules) && kRules[r] != *text) ++r;
      const Tensor constants = tensor(7), settings = tensor(8);
      check(r < std::size(kRules) && constants.defined() && settings.defined(), name_, "an update of ", *text,
            " cannot be run again: it is not one of the fused rules");
      check<ShapeError>(constants.shape() == Shape{static_cast<int64_t>(n), kConstants} &&
                            settings.shape() == Shape{static_cast<int64_t>(n), kSettings} &&
                            (on_grads || params.size() == n) && states.size() == n * kMostStates &&
                            scales.size() == n * kMostStates && low.size() == n && counts.size() == n &&
                            rates.size() == n,
                        name_, "the lists are of different lengths");
      const auto rule = static_cast<Rule>(r);
      std::vector<Slab> slabs(n);
      for (size_t i = 0; i < n; ++i)
        fill(slabs[i], i, on_grads ? Tensor() : params[i], grads[i], states, scales, low[i], counts[i], rates[i],
             constants, settings);
      const Tensor verdict = tensor(9);
      run_rule(rule, slabs, verdict.defined() ? &static_cast<const Verdict*>(verdict.raw_data())->factor : nullptr);
    }
    return {targets};
  }

 private:
  void fill(Slab& s, size_t i, const Tensor& param, const Tensor& grad, const TensorList& states,
            const TensorList& scales, const Tensor& low, const Tensor& count, const Tensor& rate,
            const Tensor& constants, const Tensor& settings) const {
    const Tensor& main = param.defined() ? param : grad;
    const auto fits = [&](const Tensor& t) {
      check<ShapeError>(!t.defined() || (t.numel() == main.numel() && t.is_contiguous() && t.device() == main.device()),
                        name_, "a tensor ", t, " does not go with ", main);
    };
    check(main.defined() && grad.defined(), name_, "a gradient is undefined");
    fits(param);
    fits(grad);
    fits(low);
    s.param = param.defined() ? param.raw_data() : nullptr;
    s.grad = grad.raw_data();
    s.numel = main.numel();
    s.dtype = main.dtype();
    s.grad_dtype = grad.dtype();
    s.state_dtype = s.dtype == DType::f64 ? DType::f64 : DType::f32;
    s.device = main.device();
    for (int k = 0; k < kMostStates; ++k) {
      const Tensor& state = states[i * kMostStates + static_cast<size_t>(k)];
      fits(state);
      if (!state.defined()) continue;
      s.state[k] = state.raw_data();
      s.state_dtype = state.dtype();
      if (state.dtype() != DType::u8) continue;
      const Tensor& scale = scales[i * kMostStates + static_cast<size_t>(k)];
      check<ShapeError>(scale.defined() && scale.shape() == Shape{scale_blocks(state.numel())} &&
                            scale.is_contiguous() && scale.device() == main.device(),
                        name_, "a state in 8 bits, ", state, ", has ", scale_blocks(state.numel()), " scales, got ",
                        scale);
      s.scale[k] = scale.data<float>();
    }
    if (low.defined()) {
      s.low = low.raw_data();
      s.low_dtype = low.dtype();
    }
    const double* k = constants.data<double>() + i * kConstants;
    std::copy(k, k + kConstants, s.k);
    const int64_t* set = settings.data<int64_t>() + i * kSettings;
    s.t = set[0];
    s.stochastic = set[1] != 0;
    s.seed = static_cast<uint64_t>(set[2]);
    if (rate.defined()) {
      check<ShapeError>(rate.numel() == 1 && rate.device() == main.device(), name_, "a rate ", rate,
                        " does not go with ", main);
      s.rate = rate.data<double>();
    }
    if (count.defined()) {
      s.count = static_cast<int64_t*>(count.raw_data());
      if (set[3] != 0) s.step = static_cast<int64_t*>(count.raw_data());
    }
  }
};

const UpdateOp update_op;

}  // namespace

ObservedUpdate::ObservedUpdate(Rule rule, std::span<const Slab> slabs, const Tensor& verdict) {
  if (!(t_mode.unusual & kObserved) || slabs.empty()) return;
  for (const Slab& s : slabs)
    if (!s.tensors) return;
  const auto n = static_cast<int64_t>(slabs.size());
  constants_ = empty({{n, kConstants}, DType::f64, Device::cpu(), std::nullopt});
  settings_ = empty({{n, kSettings}, DType::i64, Device::cpu(), std::nullopt});
  double* k = constants_.data<double>();
  int64_t* set = settings_.data<int64_t>();
  for (const Slab& s : slabs) {
    const SlabTensors& t = *s.tensors;
    if (!writes_grads(rule)) params_.push_back(t.param);
    grads_.push_back(t.grad);
    for (int i = 0; i < kMostStates; ++i) states_.push_back(s.state[i] ? t.state[i] : Tensor());
    for (int i = 0; i < kMostStates; ++i) scales_.push_back(s.state[i] ? t.scale[i] : Tensor());
    low_.push_back(s.low ? t.low : Tensor());
    counts_.push_back(s.count ? t.count : Tensor());
    rates_.push_back(s.rate ? t.rate : Tensor());
    k = std::copy(s.k, s.k + kConstants, k);
    for (const int64_t v : {s.t, int64_t{s.stochastic}, static_cast<int64_t>(s.seed), int64_t{s.step != nullptr}})
      *set++ = v;
  }
  verdict_ = verdict;
  begin(kRules[static_cast<size_t>(rule)], writes_grads(rule));
}

ObservedUpdate::ObservedUpdate(std::string_view name, const TensorList& params, const TensorList& grads,
                               const TensorList& states)
    : params_(params), grads_(grads), states_(states) {
  if (t_mode.unusual & kObserved) begin(name, false);
}

void ObservedUpdate::begin(std::string_view rule, bool on_grads) {
  targets_ = targets_of(on_grads, params_, grads_, states_, low_, rates_, scales_);
  args_ = {std::string(rule),
           params_,
           grads_,
           states_,
           low_,
           counts_,
           rates_,
           detail::to_value(constants_),
           detail::to_value(settings_),
           detail::to_value(verdict_),
           scales_};
  given_ = args_;
  call_.emplace(update_op, Form::inplace, false, targets_, strata::detail::kBoxedReader, &given_);
  observed_.emplace(*call_);
}

void ObservedUpdate::done() {
  if (observed_) observed_->done(targets_);
}
ObservedUpdate::~ObservedUpdate() = default;

}  // namespace strata::optim
