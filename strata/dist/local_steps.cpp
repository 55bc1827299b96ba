#include "strata/dist/local_steps.h"

#include <cmath>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/dist/parts_inl.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {
constexpr std::string_view kOp = "LocalSteps";
}

struct LocalSteps::Impl {
  struct Parameter {
    std::string name;
    Tensor tensor;
    Tensor last;      // where the last meeting ended
    Tensor velocity;  // undefined without momentum
  };

  void meet();

  Group& group;
  LocalStepsOptions options;
  std::vector<Parameter> parameters;
  int64_t bytes = 0;  // of all gradients
  int64_t steps = 0;  // since the last meeting
  int64_t all_steps = 0, reduced = 0;
};

void LocalSteps::Impl::meet() {
  const NoGrad guard;
  steps = 0;
  for (Parameter& p : parameters) {
    Tensor d = (p.last - p.tensor.detach().to(p.last.dtype())).contiguous();
    group.run(d.device(), cat("meeting of ", p.name, " ", d.dtype(), " ", d.shape()),
              [&](Collectives& c) { c.all_reduce(d.raw_data(), d.numel(), d.dtype(), Reduction::avg); });
    reduced += d.nbytes();
    if (p.velocity.defined()) {
      copy_elements(p.velocity, p.velocity * options.momentum + d);
      d = d + p.velocity * options.momentum;
    }
    copy_elements(p.last, p.last - d * options.lr);
    copy_elements(p.tensor.detach(), p.last.to(p.tensor.dtype()));
  }
}

LocalSteps::LocalSteps(const Parameters& parameters, Group& group, const LocalStepsOptions& options)
    : impl_(new Impl{.group = group, .options = options, .parameters = {}}) {
  check(options.every >= 1, kOp, "there are ", options.every, " steps between meetings, wanted at least 1");
  check(std::isfinite(options.lr) && options.lr > 0, kOp, "lr is ", options.lr, ", wanted more than 0");
  check(options.momentum >= 0 && options.momentum < 1, kOp, "momentum is ", options.momentum,
        ", wanted at least 0 and less than 1");
  Parameters trained;
  for (const auto& [name, t] : parameters) {
    if (!t.requires_grad()) continue;
    check(!is_placed(t), kOp, name,
          " lies in parts on several ranks, which must go in step: ranks that train apart have whole parameters");
    trained.emplace_back(name, t);
  }
  check_same_parameters(kOp, trained, group);
  broadcast_parameters(trained, group);
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::optimizer);
  for (const auto& [name, t] : trained) {
    const DType wide = t.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor last = t.detach().to(wide).clone();
    impl_->parameters.push_back({name, t, last, options.momentum > 0 ? zeros_like(last) : Tensor()});
    impl_->bytes += t.nbytes();
  }
}
LocalSteps::~LocalSteps() = default;

bool LocalSteps::stepped() {
  ++impl_->all_steps;
  if (++impl_->steps < impl_->options.every) return false;
  impl_->meet();
  return true;
}
void LocalSteps::meet() {
  if (impl_->steps > 0) impl_->meet();
}

std::map<std::string, Tensor> LocalSteps::state_dict() const {
  std::map<std::string, Tensor> state;
  for (const Impl::Parameter& p : impl_->parameters)
    if (p.velocity.defined()) state[p.name + ".velocity"] = p.velocity;
  return state;
}

void LocalSteps::load_state_dict(const std::map<std::string, Tensor>& state) {
  const NoGrad guard;
  for (const Impl::Parameter& p : impl_->parameters) {
    if (!p.velocity.defined()) continue;
    const auto found = state.find(p.name + ".velocity");
    check(found != state.end(), kOp, "the state has no '", p.name, ".velocity'");
    check<ShapeError>(found->second.shape() == p.velocity.shape(), kOp, p.name, ".velocity is ", found->second,
                      ", wanted ", p.velocity.shape());
  }
  impl_->steps = 0;
  for (const Impl::Parameter& p : impl_->parameters) {
    copy_elements(p.last, p.tensor.detach().to(p.last.dtype()));
    if (p.velocity.defined())
      copy_elements(p.velocity, state.at(p.name + ".velocity").to(p.velocity.device()).to(p.velocity.dtype()));
  }
}

int64_t LocalSteps::reduced_bytes() const {
  return impl_->reduced;
}
int64_t LocalSteps::saved_bytes() const {
  return impl_->all_steps * impl_->bytes - impl_->reduced;
}

}  // namespace strata::distributed
