#include "strata/eval/shots.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <unordered_set>

#include "strata/core/error.h"

namespace strata::eval {
namespace {

constexpr const char* kOp = "shots";

// What Python's random.seed(int) makes of a seed: Matsumoto and Nishimura's init_by_array
// (http://www.math.sci.hiroshima-u.ac.jp/m-mat/MT/MT2002/emt19937ar.html), as a sequence that std::mt19937 takes.
struct ArraySeed {
  using result_type = uint32_t;
  uint64_t seed = 0;

  template <class It>
  void generate(It begin, It end) const {
    constexpr size_t kSize = std::mt19937::state_size;
    std::array<uint32_t, kSize> state{};
    state[0] = 19650218;
    for (size_t i = 1; i < kSize; ++i)
      state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + static_cast<uint32_t>(i);
    const std::array<uint32_t, 2> key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    const size_t keys = key[1] != 0 ? 2 : 1;
    size_t i = 1, j = 0;
    const auto step = [&] {
      if (++i < kSize) return;
      state[0] = state[kSize - 1];
      i = 1;
    };
    for (size_t k = 0; k < kSize; ++k, step(), j = (j + 1) % keys)
      state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525U)) + key[j] + static_cast<uint32_t>(j);
    for (size_t k = 1; k < kSize; ++k, step())
      state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941U)) - static_cast<uint32_t>(i);
    state[0] = 0x80000000U;
    std::copy_n(state.begin(), std::min<size_t>(kSize, static_cast<size_t>(end - begin)), begin);
  }
};

}  // namespace

// Python's random.Random, as far as sample() goes (its documentation promises the same numbers of a seed).
class ShotSampler::Random {
 public:
  explicit Random(uint64_t seed) {
    ArraySeed array{seed};
    bits_.seed(array);
  }

  // `count` of 0 .. size - 1.
  std::vector<size_t> sample(size_t size, size_t count) {
    // Of few, a pool that shrinks; of many, draws that are repeated.
    double most = 21;
    if (count > 5) most += std::pow(4, std::ceil(std::log(static_cast<double>(count) * 3) / std::log(4)));
    std::vector<size_t> chosen;
    if (static_cast<double>(size) <= most) {
      std::vector<size_t> pool(size);
      std::iota(pool.begin(), pool.end(), size_t{0});
      for (size_t i = 0; i < count; ++i) {
        const size_t j = below(size - i);
        chosen.push_back(pool[j]);
        pool[j] = pool[size - i - 1];
      }
      return chosen;
    }
    std::unordered_set<size_t> taken;
    while (chosen.size() < count)
      if (const size_t j = below(size); taken.insert(j).second) chosen.push_back(j);
    return chosen;
  }

 private:
  size_t below(size_t n) {
    const int width = std::bit_width(n);
    for (;;)
      if (const size_t drawn = bits_() >> (32 - width); drawn < n) return drawn;
  }

  std::mt19937 bits_;
};

ShotSampler::ShotSampler(size_t examples, size_t shots, std::optional<uint64_t> seed)
    : examples_(examples), shots_(shots), random_(seed ? std::make_unique<Random>(*seed) : nullptr) {
  check(shots <= examples, kOp, "there are ", examples, " examples to show ", shots, " of");
  check(examples < (size_t{1} << 32), kOp, "there are ", examples, " examples, at most 2^32 - 1 are drawn from");
}
ShotSampler::~ShotSampler() = default;
ShotSampler::ShotSampler(ShotSampler&&) noexcept = default;

std::vector<size_t> ShotSampler::next(const std::function<bool(size_t)>& same) {
  std::vector<size_t> shown;
  if (shots_ == 0) return shown;
  const auto others = [&] {
    std::vector<size_t> all;
    for (size_t i = 0; i < examples_; ++i)
      if (!same || !same(i)) all.push_back(i);
    check(all.size() >= shots_, kOp, "besides the question itself there are ", all.size(), " examples to show ", shots_,
          " of");
    return all;
  };
  if (random_ == nullptr) {
    for (size_t i = 0; i < examples_ && shown.size() < shots_; ++i)
      if (!same || !same(i)) shown.push_back(i);
    if (shown.size() < shots_) others();  // which says so
    return shown;
  }
  if (!same) return random_->sample(examples_, shots_);
  // One more, for the question itself may be among them.
  check(shots_ < examples_, kOp, "besides the question itself there are ", examples_ - 1, " examples to show ", shots_,
        " of");
  for (const size_t i : random_->sample(examples_, shots_ + 1))
    if (shown.size() < shots_ && !same(i)) shown.push_back(i);
  if (shown.size() == shots_) return shown;
  const std::vector<size_t> all = others();
  shown = random_->sample(all.size(), shots_);
  for (size_t& i : shown) i = all[i];
  return shown;
}

}  // namespace strata::eval
