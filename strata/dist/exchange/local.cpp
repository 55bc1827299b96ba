// Ranks that train apart and meet now and then: LocalSteps as an exchange.

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/exchange/exchange_inl.h"
#include "strata/dist/local_steps.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata::distributed::exchange {
namespace {

constexpr int64_t kLocalSgd = 16, kDiLoCo = 500;

int64_t every_of(const ExchangeOptions& o, int64_t own) {
  return o.every > 0 ? o.every : own;
}

class Local final : public GradientExchange {
 public:
  Local(const ExchangeRecord& record, const Parameters& parameters, Group& group, const ExchangeOptions& options,
        const LocalStepsOptions& steps)
      : GradientExchange(record, parameters, group, options), steps_(parameters, group, steps) {}

  void enter_mean() override {
    if (!steps_.apart()) return;
    const NoGrad guard;
    for (const Parameter& p : parameters_) {
      aside_.push_back(p.tensor.detach().clone());
      const Tensor mean = p.tensor.detach().to(DType::f32).clone();
      mean_of_ranks(mean, "mean of the ranks");
      copy_elements(p.tensor.detach(), mean.to(p.tensor.dtype()));
    }
  }
  void leave_mean() override {
    const NoGrad guard;
    for (size_t i = 0; i < aside_.size(); ++i) copy_elements(parameters_[i].tensor.detach(), aside_[i]);
    aside_.clear();
  }

 protected:
  void exchange(double) override {}
  void after_update() override {
    if (!steps_.stepped()) return;
    for (const Parameter& p : parameters_)
      count(reduced_bytes(p.tensor.numel(), p.tensor.dtype() == DType::f64 ? 8 : 4, ranks(), rank(), device_.is_cpu()));
  }

  std::vector<State> states() override {
    std::vector<State> all;
    for (const auto& [name, t] : steps_.state_dict(true)) all.push_back({name, false, t});
    for (size_t i = 0; i < parameters_.size(); ++i)
      all.push_back({parameters_[i].name + ".own", true, aside_.empty() ? parameters_[i].tensor.detach() : aside_[i]});
    return all;
  }

 private:
  LocalSteps steps_;
  TensorList aside_;  // this rank's, while the mean is in their place
};

}  // namespace

std::unique_ptr<GradientExchange> make_local_sgd(const GradientExchange::Parameters& p, Group& g,
                                                 const ExchangeOptions& o) {
  return std::make_unique<Local>(exchange_record("local_sgd"), p, g, o, LocalStepsOptions{.every = every_of(o, kLocalSgd)});
}
std::unique_ptr<GradientExchange> make_diloco(const GradientExchange::Parameters& p, Group& g, const ExchangeOptions& o) {
  return std::make_unique<Local>(
      exchange_record("diloco"), p, g, o,
      LocalStepsOptions{.every = every_of(o, kDiLoCo), .lr = o.outer_lr, .momentum = o.outer_momentum});
}
double sent_local_sgd(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions& o) {
  return sent_plain(shapes, ranks, o) / static_cast<double>(every_of(o, kLocalSgd));
}
double sent_diloco(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions& o) {
  return sent_plain(shapes, ranks, o) / static_cast<double>(every_of(o, kDiLoCo));
}
double kept_local_sgd(const std::vector<Shape>& shapes, int64_t, const ExchangeOptions&) {
  return sent_plain(shapes, 2, {}) + 8;  // where the last meeting ended, and the count of steps
}
double kept_diloco(const std::vector<Shape>& shapes, int64_t, const ExchangeOptions&) {
  return 2 * sent_plain(shapes, 2, {}) + 8;
}

}  // namespace strata::distributed::exchange
