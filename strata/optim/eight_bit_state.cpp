// Moments in 8 bits as an optimizer's state: which there are, and to and from those in one tensor.

#include <mutex>
#include <set>
#include <string>

#include "strata/core/error.h"
#include "strata/cuda/graph.h"
#include "strata/optim/eight_bit_cpu.h"
#include "strata/optim/eight_bit_inl.h"
#include "strata/optim/kernels.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {
namespace {

// "exp_avg_absmax", for as long as the program runs.
std::string_view scales_key(std::string_view key) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> known;
  const std::lock_guard lock(mutex);
  return *known.insert(cat(key, "_absmax")).first;
}

}  // namespace

void Optimizer::add_moment(std::vector<StateSpec>& spec, std::string_view key, const Param& p, double fill, Rule rule,
                           size_t index) {
  const EightBitStates which = eight_bit_states(rule);
  const bool nonnegative = (which.nonnegative >> index & 1) != 0;
  const DType dtype = moment_dtype(p);
  if (!p.low.state_8bit || dtype == DType::f64 || (which.allowed >> index & 1) == 0 ||
      p.shape().product() < p.low.min_8bit_size) {
    spec.push_back({key, p.shape(), dtype, fill, nullptr, nonnegative});
    return;
  }
  // Every element is what the moment begins with: nothing, or the block's largest.
  const double code = fill == 0 ? (nonnegative ? 0 : kZeroCode) : kCodes - 1;
  spec.push_back({key, p.shape(), DType::u8, code, nullptr, nonnegative});
  spec.push_back({scales_key(key), {scale_blocks(p.shape().product())}, DType::f32, fill});
}

void Optimizer::refit(std::vector<Tensor>& state, const std::vector<StateSpec>& spec) const {
  std::vector<Tensor> fitted;
  bool changed = false;
  size_t at = 0;
  for (size_t i = 0; i < spec.size() && at < state.size(); ++i, ++at) {
    const Tensor& t = state[at];
    const bool fits = t.shape() == spec[i].shape && !t.is_meta();
    if (fits && spec[i].dtype == DType::u8 && is_floating(t.dtype())) {
      auto [codes, scales] = quantized(t, !spec[i].nonnegative);
      fitted.push_back(std::move(codes));
      fitted.push_back(std::move(scales));
      ++i;
      changed = true;
    } else if (fits && is_floating(spec[i].dtype) && t.dtype() == DType::u8 && at + 1 < state.size()) {
      fitted.push_back(dequantized(t, state[at + 1], !spec[i].nonnegative, spec[i].dtype));
      ++at;
      changed = true;
    } else {
      fitted.push_back(t);
    }
  }
  if (!changed) return;
  check(!cuda::capturing(), name_, "run a step before capturing one: a state is in another form than it is kept in");
  fitted.insert(fitted.end(), state.begin() + static_cast<std::ptrdiff_t>(std::min(at, state.size())), state.end());
  state = std::move(fitted);
}

StateDict Optimizer::refitted(const StateDict& state) const {
  StateDict fitted = state;
  for (const Param& p : params_) {
    for (const StateSpec& s : full_spec(p)) {
      const std::string key = cat(p.name, '.', s.key), scales = cat(p.name, '.', scales_key(s.key));
      const auto it = fitted.find(key);
      if (it == fitted.end() || it->second.shape() != (s.lies ? p.shape() : s.shape) || it->second.is_meta()) continue;
      const Tensor t = it->second;
      const auto beside = fitted.find(scales);
      if (s.dtype == DType::u8 && is_floating(t.dtype()) && beside == fitted.end()) {
        std::tie(it->second, fitted[scales]) = quantized(t, !s.nonnegative);
      } else if (is_floating(s.dtype) && t.dtype() == DType::u8 && beside != fitted.end()) {
        it->second = dequantized(t, beside->second, !s.nonnegative, s.dtype);
        fitted.erase(beside);
      }
    }
  }
  return fitted;
}

}  // namespace strata::optim
