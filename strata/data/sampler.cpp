#include "strata/data/sampler.h"

#include <charconv>

#include "strata/core/error.h"

namespace strata::data {

std::string to_string(const SamplerState& s) {
  return cat("seed=", s.seed, " epoch=", s.epoch, " position=", s.position, " size=", s.size);
}

SamplerState parse_sampler_state(std::string_view text) {
  SamplerState state;
  std::string_view rest = text;
  const auto take = [&](std::string_view name, auto& value) {
    const auto fail = [&] {
      throw ValueError("data",
                       cat("'", text.substr(0, 100), "' is not of the form 'seed=1 epoch=0 position=0 size=9'"));
    };
    if (!rest.starts_with(name)) fail();
    rest.remove_prefix(name.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0) fail();
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  };
  take("seed=", state.seed);
  take(" epoch=", state.epoch);
  take(" position=", state.position);
  take(" size=", state.size);
  check(rest.empty(), "data", "'", text.substr(0, 100), "' has more than seed, epoch, position and size");
  return state;
}

Sampler::Sampler(int64_t size, uint64_t seed, bool shuffle)
    : state_{seed, 0, 0, size}, shuffle_(shuffle), order_(size, mix(seed, 0)) {
  check(size >= 1, "data", "needs at least 1 sample, got ", size);
}

Sample Sampler::next() {
  const Sample sample{shuffle_ ? order_(state_.position) : state_.position, state_.epoch};
  if (++state_.position == state_.size) start_next_epoch();
  return sample;
}

void Sampler::start_next_epoch() {
  ++state_.epoch;
  state_.position = 0;
  order_ = KeyedPermutation(state_.size, mix(state_.seed, static_cast<uint64_t>(state_.epoch)));
}

void Sampler::set_state(const SamplerState& s) {
  check(s.size == state_.size, "data", "the saved place is in a data set of ", s.size, " samples, this one has ",
        state_.size, " (other data, context or split?)");
  check(s.epoch >= 0 && s.position >= 0 && s.position < s.size, "Sampler",
        "the saved place is not one: ", to_string(s));
  state_ = s;
  order_ = KeyedPermutation(s.size, mix(s.seed, static_cast<uint64_t>(s.epoch)));
}

}  // namespace strata::data
