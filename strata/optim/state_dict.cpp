// An optimizer's state as files hold it: out, and back in.
#include "strata/optim/optimizer.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/grad_parts_inl.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Param& p : params_)
    for (const StateSpec& spec : full_spec(p)) bytes += spec.shape.product() * size_of(spec.dtype);
  return bytes;
}

StateDict Optimizer::state_dict() const {
  finish();
  StateDict all;
  for (const Param& p : params_) {
    const std::vector<StateSpec> spec = full_spec(p);
    if (p.state.size() != spec.size()) continue;
    for (size_t i = 0; i < spec.size(); ++i)
      all.emplace(cat(p.name, '.', spec[i].key), spec[i].lies ? lying_as(p.state[i], p.sharded) : p.state[i]);
  }
  return all;
}

namespace {
// Memory as a state made here and now would have.
bool is_plain(const Tensor& t) {
  return memory::detail::t_caller.tier == Tier() && t.tier() == memory::backend(t.device()).tier;
}
}  // namespace

void Optimizer::load_state_dict(const StateDict& state) {
  load_state(state, false);
}
void Optimizer::take_state_dict(StateDict&& state) {
  load_state(state, true);
  state.clear();
}

void Optimizer::load_state(const StateDict& given, bool take) {
  finish();
  NoGrad guard;
  memory::TagScope tag(memory::Tag::optimizer);
  const StateDict state = refitted(readable_state(given));
  std::vector<std::vector<Tensor>> loaded(params_.size());
  size_t used = 0;
  for (size_t k = 0; k < params_.size(); ++k) {
    const Param& p = params_[k];
    const std::vector<StateSpec> spec = full_spec(p);
    for (size_t i = 0; i < spec.size(); ++i) {
      const std::string key = cat(p.name, '.', spec[i].key);
      const auto it = state.find(key);
      if (it == state.end() && spec[i].after && !loaded[k].empty() && spec[0].key == "step") {
        // A file from when it was no state of its own.
        const int64_t updates = loaded[k][0].item<int64_t>();
        loaded[k].push_back(empty({spec[i].shape, spec[i].dtype, p.tensor.device(), std::nullopt}));
        fill_elements(loaded[k].back(), spec[i].after(raw_options(p.group), lr(p.group), updates));
        continue;
      }
      if (it == state.end()) {
        check(loaded[k].empty(), name_, "the state has no '", key, "' although it has '", p.name, '.', spec[0].key,
              "'");
        for (size_t j = i + 1; j < spec.size(); ++j)
          check(!state.contains(cat(p.name, '.', spec[j].key)), name_, "the state has no '", key, "'");
        break;
      }
      const Shape& shape = spec[i].lies ? p.shape() : spec[i].shape;
      check<ShapeError>(it->second.shape() == shape, name_, "'", key, "' is ", it->second, ", wanted is ", shape);
      check<DTypeError>(it->second.dtype() == spec[i].dtype, name_, "'", key, "' is ", it->second, ", wanted is ",
                        spec[i].dtype);
      const Place place = place_of(p, spec[i]);
      const Tensor here = spec[i].lies ? part_of(it->second, p.sharded) : it->second;
      Tensor copy = here;
      if (!take || !copy.is_contiguous() || !(copy.device() == place.device) ||
          !(place.tier ? copy.tier() == *place.tier : is_plain(copy))) {
        copy = place.make(spec[i]);
        const Pin to(copy), from(here, Access::read);
        if (!copy.is_meta()) copy_elements(copy, here);
      }
      loaded[k].push_back(std::move(copy));
      ++used;
    }
  }
  if (used != state.size()) {
    for (const auto& entry : state) {
      const std::string& key = entry.first;
      const bool known = std::any_of(params_.begin(), params_.end(), [&](const Param& p) {
        const std::vector<StateSpec> spec = full_spec(p);
        return std::any_of(spec.begin(), spec.end(),
                           [&](const StateSpec& s) { return cat(p.name, '.', s.key) == key; });
      });
      check(known, name_, "the state has '", key, "', which belongs to no parameter of this optimizer");
    }
  }
  for (size_t k = 0; k < params_.size(); ++k) {
    params_[k].state = std::move(loaded[k]);
    params_[k].version = params_[k].given().version() - 1;  // whether the weights go with it is to be seen
  }
}

}  // namespace strata::optim
