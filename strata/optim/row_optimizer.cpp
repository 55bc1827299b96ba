#include "strata/optim/row_optimizer.h"

#include <algorithm>
#include <utility>

#include "strata/core/node.h"
#include "strata/core/op_call.h"
#include "strata/nn/row_store_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/kernels.h"

namespace strata::optim {
namespace {
using nn::RowStore;

// Rows of one array that are read, updated and written together; on the processor about what its caches hold.
constexpr int64_t kHostChunk = int64_t{1} << 20, kCardChunk = int64_t{64} << 20;
constexpr int64_t kDiskChunk = int64_t{16} << 20;

struct State {
  std::string name;
  std::unique_ptr<RowStore> rows;
};

}  // namespace

struct RowOptimizer::Impl {
  Impl(nn::FeatureTable& t, std::string_view name, const OptionValues& options, RowStore& home)
      : table(t),
        home(home),
        // Options are an optimizer's: one over a number that nobody updates has them checked and kept.
        settings(make_optimizer(name, {{{{"rows", stand_in(t.dtype())}}, options}})),
        record(*settings->record()) {}

  static Tensor stand_in(DType dtype) {
    check<DTypeError>(is_floating(dtype), "RowOptimizer", "a table of ", dtype, " has no gradient");
    const Tensor t = empty({{1}, dtype, Device::cpu(), std::nullopt});
    fill_elements(t, 0);
    return t;
  }

  nn::FeatureTable& table;
  RowStore& home;
  const std::unique_ptr<Optimizer> settings;
  const OptimizerRecord& record;
  std::vector<State> states;
  int64_t updates = 0;
  Tensor count;  // the same on the card, for rules that run there

  Slab slab(const Tensor& rows, const Tensor& grad, const TensorList& state, double grad_scale) const {
    Slab s{.param = rows.raw_data(),
           .grad = grad.raw_data(),
           .numel = rows.numel(),
           .dtype = rows.dtype(),
           .grad_dtype = grad.dtype(),
           .state_dtype = grad.dtype(),
           .device = rows.device(),
           .t = updates};
    for (size_t i = 0; i < state.size(); ++i) s.state[i] = state[i].raw_data();
    s.k[0] = grad_scale;
    record.constants(s.k, settings->raw_options(0), settings->lr(0), updates == 1);
    return s;
  }
};

RowOptimizer::RowOptimizer(nn::FeatureTable& table, std::string_view name, const OptionValues& options)
    : impl_(std::make_unique<Impl>(table, name, options, table.home())) {
  const OptimizerRecord& record = impl_->record;
  const void* given = impl_->settings->raw_options(0);
  check(record.rule != nullptr && record.name != "sparse_adam", "RowOptimizer", "cannot update rows by ", record.name,
        ": it has no rule for single rows", record.name == "sparse_adam" ? " (adam does the same here)" : "");
  for (const char* low : {"master_weights", "stochastic_rounding", "low_state"})
    check(!std::get<bool>(record.option(low)->get(given)), "RowOptimizer", "has no option ", low);
  const DType wide = table.dtype() == DType::f64 ? DType::f64 : DType::f32;
  for (const OptimizerState& s : record.states) {
    using Kind = OptimizerState::Kind;
    if (s.kind == Kind::count || (s.when && !s.when(given))) continue;
    check(s.kind == Kind::like, "RowOptimizer", "cannot update rows by ", record.name, ": its state '", s.name,
          "' is not a number for each element");
    impl_->states.push_back({std::string(s.name), table.make_rows_beside(wide, s.fill ? s.fill(given, lr()) : 0)});
  }
  check(impl_->states.size() <= kMostStates, "RowOptimizer", record.name, " keeps more than ", kMostStates, " states");
}
RowOptimizer::~RowOptimizer() = default;

void RowOptimizer::step(double grad_scale) {
  NoGrad no_grad;
  const strata::detail::PhaseScope phase(Phase::update);
  const memory::TierScope own{Tier()};
  const memory::TagScope tag(memory::Tag::workspace);
  Impl& m = *impl_;
  const nn::RowGradient gradient = m.table.gradient();
  m.table.zero_grad();
  const Device where = m.home.device();
  const Tensor index = gradient.rows.to(where), grad = gradient.values.to(where);
  const int64_t n = index.numel();
  ++m.updates;
  const bool on_card = where.is_cuda(), on_disk = !m.home.table().defined();
  if (on_card && !m.count.defined()) m.count = empty({{}, DType::i64, where, std::nullopt});
  if (on_card) fill_elements(m.count, Scalar(m.updates - 1));
  const int64_t bytes = on_card   ? kCardChunk
                        : on_disk ? kDiskChunk
                                  : kHostChunk,
                chunk = std::max<int64_t>(1, bytes / std::max<int64_t>(1, m.home.row_bytes()));
  struct Part {
    Tensor index, grad;
    RowStore::Reading rows;
    std::vector<RowStore::Reading> states;
  };
  const auto begin = [&](int64_t first) {
    const int64_t count = std::min(chunk, n - first);
    Part p{index.narrow(0, first, count), grad.narrow(0, first, count), {}, {}};
    p.rows = m.home.begin(p.index);
    for (const State& s : m.states) p.states.push_back(s.rows->begin(p.index));
    return p;
  };
  Part next;
  if (n > 0) next = begin(0);
  for (int64_t first = 0; first < n; first += chunk) {
    const Part now = std::exchange(next, {});
    if (first + chunk < n) next = begin(first + chunk);
    const Tensor rows = m.home.finish(now.rows);
    TensorList states;
    for (size_t i = 0; i < m.states.size(); ++i) states.push_back(m.states[i].rows->finish(now.states[i]));
    Slab slab = m.slab(rows, now.grad, states, grad_scale);
    if (on_card) slab.count = static_cast<const int64_t*>(m.count.raw_data());
    run_rule(m.record.rule(m.settings->raw_options(0)), std::span(&slab, 1));
    for (size_t i = 0; i < m.states.size(); ++i) m.states[i].rows->write(now.index, states[i]);
    m.table.write_rows(now.index, rows);
  }
}

void RowOptimizer::set_lr(double lr) {
  impl_->settings->set_lr(lr);
}
double RowOptimizer::lr() const {
  return impl_->settings->lr(0);
}
int64_t RowOptimizer::updates() const {
  return impl_->updates;
}
std::vector<std::string> RowOptimizer::states() const {
  std::vector<std::string> names;
  for (const State& s : impl_->states) names.push_back(s.name);
  return names;
}

namespace {
RowStore& state_of(const std::vector<State>& states, std::string_view name, int64_t first, int64_t count) {
  for (const State& s : states) {
    if (s.name != name) continue;
    check<IndexError>(first >= 0 && count >= 0 && count <= s.rows->rows && first <= s.rows->rows - count,
                      "RowOptimizer", "rows [", first, ", ", first + count, ") are out of range for a table of ",
                      s.rows->rows, " rows");
    return *s.rows;
  }
  std::string names;
  for (const State& s : states) names += (names.empty() ? "" : ", ") + s.name;
  throw ValueError("RowOptimizer", cat("has no state '", name, "', only: ", names));
}
}  // namespace

Tensor RowOptimizer::read_state(std::string_view state, int64_t first, int64_t count) const {
  NoGrad no_grad;
  return state_of(impl_->states, state, first, count).read_range(first, count);
}
void RowOptimizer::write_state(std::string_view state, int64_t first, const Tensor& values) {
  NoGrad no_grad;
  check<ShapeError>(values.dim() == 2 && values.size(1) == impl_->home.width, "RowOptimizer", "cannot write ", values,
                    " to rows of ", impl_->home.width);
  RowStore& rows = state_of(impl_->states, state, first, values.size(0));
  check<DTypeError>(values.dtype() == rows.dtype, "RowOptimizer", "cannot write ", values, " to a state of ",
                    rows.dtype);
  rows.write_range(first, values.detach());
}
void RowOptimizer::set_updates(int64_t updates) {
  check(updates >= 0, "RowOptimizer", "updates must not be negative, got ", updates);
  impl_->updates = updates;
}

}  // namespace strata::optim
