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
  int64_t& steps() const { return *count.data<int64_t>(); }
  Tensor count;  // i64 [1] on the host: steps since the last meeting
  int64_t all_steps = 0, reduced = 0;
};

void LocalSteps::Impl::meet() {
  const NoGrad guard;
  steps() = 0;
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
  impl_->count = empty(TensorMeta{{1}, DType::i64, Device::cpu(), std::nullopt});
  impl_->steps() = 0;
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
  if (++impl_->steps() < impl_->options.every) return false;
  impl_->meet();
  return true;
}
void LocalSteps::meet() {
  if (apart()) impl_->meet();
}
bool LocalSteps::apart() const {
  return impl_->steps() > 0;
}

std::map<std::string, Tensor> LocalSteps::state_dict(bool between) const {
  std::map<std::string, Tensor> state;
  for (const Impl::Parameter& p : impl_->parameters) {
    if (p.velocity.defined()) state[p.name + ".velocity"] = p.velocity;
    if (between) state[p.name + ".last"] = p.last;
  }
  if (between) state["steps"] = impl_->count;
  return state;
}

void LocalSteps::load_state_dict(const std::map<std::string, Tensor>& state) {
  const NoGrad guard;
  const bool between = state.contains("steps");
  const auto wanted = state_dict(between);
  for (const auto& [name, t] : wanted) {
    const auto found = state.find(name);
    check(found != state.end(), kOp, "the state has no '", name, "'");
    check<ShapeError>(found->second.shape() == t.shape(), kOp, name, " is ", found->second, ", wanted ", t.shape());
  }
  impl_->steps() = 0;
  for (const auto& [name, t] : wanted) copy_elements(t, state.at(name).to(t.device()).to(t.dtype()));
  for (const Impl::Parameter& p : impl_->parameters)
    if (!between) copy_elements(p.last, p.tensor.detach().to(p.last.dtype()));
}

int64_t LocalSteps::reduced_bytes() const {
  return impl_->reduced;
}
int64_t LocalSteps::saved_bytes() const {
  return impl_->all_steps * impl_->bytes - impl_->reduced;
}

}  // namespace strata::distributed
