#include "strata/optim/muon/muon.h"

#include <algorithm>
#include <cmath>

#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/adamw/adamw.h"
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

namespace {

// Of what is no hidden matrix.
AdamWOptions adamw_options(const MuonOptions& o) {
  return {.lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.adamw_eps, .weight_decay = o.weight_decay};
}

std::vector<AnyGroup> training_groups_of_muon(const NamedTensors& params, const OptionValues& options,
                                              const std::set<std::string>& tables) {
  AnyGroup maps{{}, options};
  maps.options["match_rms_adamw"] = true;  // one learning rate for what is AdamW's too
  AnyGroup table = maps, vectors = maps;
  table.options["use_adamw"] = true;
  vectors.options["weight_decay"] = 0.0;
  for (const auto& p : params)
    (p.second.dim() < 2 ? vectors : tables.contains(p.first) ? table : maps).params.push_back(p);
  return {maps, table, vectors};
}

}  // namespace

const OptimizerRecord& MuonOptions::record() {
  using O = MuonOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<Muon, O>({
      .name = "muon",
      .title = "Muon",
      .doc =
          "Muon (Jordan et al., 2024): momentum, orthogonalised. What is not a matrix, and groups with use_adamw, are "
          "updated by AdamW.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kNotNegative, "-"),
              option<&O::momentum>("momentum", "Momentum.", kDecay),
              option<&O::nesterov>("nesterov", "Nesterov's form of the momentum.", {}, "-"),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, apart from the gradient.",
                                       kNotNegative, "-"),
              option<&O::ns_steps>("ns_steps", "Newton-Schulz iterations.", {.min = 1, .max = 99}, "-"),
              option<&O::eps>("eps", "Least norm that a momentum matrix is divided by.", {}, "-"),
              option<&O::match_rms_adamw>("match_rms_adamw",
                                          "Scales the step so that its root mean square is that of AdamW's.", {}, "-"),
              option<&O::use_adamw>("use_adamw", "Turns a group over to AdamW.", {}, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment, of AdamW.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment, of AdamW.", kDecay),
              option<&O::adamw_eps>("adamw_eps", "Added to the denominator, of AdamW.", kNotNegative, "eps"),
          },
      .states =
          {
              {"momentum_buffer", "Of a matrix: gradients, added up with momentum.", Kind::own},
              {"step", "Of the others: AdamW's.", Kind::own},
              {"exp_avg", "Likewise.", Kind::own},
              {"exp_avg_sq", "Likewise.", Kind::own},
          },
      .decoupled = of<O, [](const O&) { return true; }>,
      .groups = training_groups_of_muon,
      .unit =
          [](const void* o, int dims) {
            using Unit = OptimizerRecord::Unit;
            return dims == 2 && !static_cast<const O*>(o)->use_adamw ? Unit::whole : Unit::element;
          },
  });
  return r;
}
void MuonOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::muon() {
  return MuonOptions::record();
}

Tensor newton_schulz(const Tensor& x, int steps, double eps) {
  check<ShapeError>(x.dim() == 2, "newton_schulz", "needs a matrix, got ", x);
  NoGrad guard;
  AutocastScope exact(DType::bf16, false);
  // The smaller of the two Gram matrices: a tall matrix is worked on transposed.
  const bool tall = x.size(0) > x.size(1);
  Tensor y = contiguous(tall ? x.detach().t() : x.detach());
  if (y.device().is_cpu()) {
    const Slab norm{.grad = y.raw_data(), .numel = y.numel(), .grad_dtype = y.dtype()};
    y = y * Scalar(1 / std::max(std::sqrt(sum_of_squares({&norm, 1})), eps));
  } else {  // without waiting for the device
    y = y / sum(y * y).sqrt().clamp(eps, std::nullopt);
  }
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  for (int i = 0; i < steps; ++i) {
    const Tensor gram = matmul(y, y.t());
    const Tensor mix = addmm(gram, gram, gram, b, c);
    y = addmm(y, mix, y, a, 1);
  }
  return tall ? y.t() : y;
}

std::vector<Optimizer::StateSpec> Muon::state_spec(const Param& p) const {
  if (orthogonal(p)) {
    std::vector<StateSpec> spec;
    add_moment(spec, "momentum_buffer", p, 0, Rule::muon_momentum, 0);
    return spec;
  }
  const AdamWOptions adamw = adamw_options(options_of(p));
  return states_of(AdamWOptions::record(), &adamw, 0, p);
}

void Muon::update(const std::vector<Param*>& active, double grad_scale) {
  memory::TagScope tag(memory::Tag::workspace);
  const auto shape_scale = [](const Param& p, const MuonOptions& o) {
    const double rows = static_cast<double>(p.tensor.size(0)), cols = static_cast<double>(p.tensor.size(1));
    return o.match_rms_adamw ? 0.2 * std::sqrt(std::max(rows, cols)) : std::sqrt(std::max(1.0, rows / cols));
  };
  std::vector<Slab> adam, momentum, apply;
  std::vector<Param*> matrices;
  TensorList directions;
  for (Param* p : active) {
    const MuonOptions& o = options_of(*p);
    const double rate = lr(p->group);
    if (!orthogonal(*p)) {
      adam.push_back(slab_of(*p, 1));
      const AdamWOptions adamw = adamw_options(o);
      adam.back().k[0] = grad_scale;
      AdamWOptions::record().constants(adam.back().k, &adamw, rate, p->first);
      continue;
    }
    if (p->tensor.numel() == 0) continue;
    const Tensor weights = weights_of(*p);
    const DType dtype = arithmetic_dtype(*p);
    matrices.push_back(p);
    directions.push_back(refreshing() ? weights : empty({weights.shape(), dtype, weights.device(), std::nullopt}));
    Slab s = slab_of(*p);
    s.param = directions.back().raw_data();
    s.dtype = dtype;
    s.low = nullptr;
    s.most = nullptr;
    s.step = nullptr;  // the update counts
    if (s.tensors) s.tensors->param = directions.back();
    s.k[0] = grad_scale * (1 - o.momentum);
    s.k[1] = o.momentum;
    s.k[2] = o.nesterov;
    momentum.push_back(s);
  }
  // Each step's numbers, and on a device whether there is a step, are the loops' constants.
  run(Rule::muon_momentum, momentum);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const MuonOptions& o = options_of(*matrices[i]);
    const double rate = lr(matrices[i]->group);
    Tensor& d = directions[i];
    if (!refreshing()) d = contiguous(newton_schulz(d, o.ns_steps, o.eps));
    Slab s = slab_of(*matrices[i]);
    s.grad = d.raw_data();
    s.grad_dtype = d.dtype();
    if (s.tensors) s.tensors->grad = d;
    s.state[0] = nullptr;
    s.k[0] = 1;
    s.k[1] = 1 - rate * o.weight_decay;
    s.k[2] = rate * shape_scale(*matrices[i], o);
    apply.push_back(s);
  }
  run(Rule::muon_apply, apply);
  run(Rule::adam, adam);
}

std::vector<ParamGroup<MuonOptions>> muon_groups(const NamedTensors& params, const MuonOptions& options,
                                                 const std::set<std::string>& tables) {
  ParamGroup<MuonOptions> hidden{{}, options}, lookup{{}, options}, vectors{{}, options};
  lookup.options.use_adamw = vectors.options.use_adamw = true;
  vectors.options.weight_decay = 0;
  for (const auto& p : params) {
    const bool table = tables.contains(p.first) || p.second.dim() > 2;
    (p.second.dim() < 2 ? vectors : table ? lookup : hidden).params.push_back(p);
  }
  return {hidden, lookup, vectors};
}

}  // namespace strata::optim
