#include <algorithm>
#include <array>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/generation/sample_row_inl.h"

namespace strata::generation {
namespace {

// One thread.
class Alone {
 public:
  template <class T>
  static float load(T v) {
    return static_cast<float>(v);
  }
  static uint64_t high_product(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
  }
  template <class F>
  void each(int64_t n, F&& f) {
    for (int64_t i = 0; i < n; ++i) f(i);
  }
  template <class V>
  V sum(V own) {
    return own;
  }
  uint64_t max(uint64_t own) { return own; }
  void clear() { bins_.fill(0); }
  void add(int bin, uint64_t v) { bins_[static_cast<size_t>(bin)] += v; }
  Found find(uint64_t target) {
    Found r;
    for (uint32_t bin = kBins - 1;; --bin) {
      const uint64_t inside = bins_[bin];
      if (target < r.before + inside || bin == 0) return {bin, r.before, inside};
      r.before += inside;
    }
  }
  template <class F>
  int64_t nth(int64_t n, F&& f, int64_t r) {
    for (int64_t i = 0; i < n; ++i)
      if (f(i) && r-- == 0) return i;
    return -1;
  }

 private:
  std::array<uint64_t, kBins> bins_;
};

}  // namespace

void sample_tokens_cpu(DType t, const void* logits, const SampleArgs& a, int64_t* ids, float* logprobs) {
  constexpr std::string_view kName = "sample_tokens";
  dispatch_floats(t, kName, [&]<class T>() {
    parallel_for(0, a.rows, 1, [&](int64_t begin, int64_t end) {
      Alone team;
      for (int64_t b = begin; b < end; ++b) {
        const T* const row = static_cast<const T*>(logits) + b * a.columns;
        const RowParams p = params_of(a, b);
        double wrong = 0;
        check(in_range(p, wrong), kName, kParamsRule, ", got ", wrong, " in row ", b);
        const int64_t best = likeliest(team, row, a.vocab);
        check(best >= 0, kName, kNumbersRule, ", as in row ", b);
        ids[b] = draw(team, row, a.vocab, best, p);
        logprobs[b] = log_probability(team, row, a.columns, ids[b]);
      }
    });
  });
}

}  // namespace strata::generation
