#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/dist/stragglers_inl.h"

namespace strata::distributed {
namespace {

constexpr double kLeast = 0.1;        // of its time, by which a straggler waits less than the others
constexpr size_t kMostSamples = 600;  // of a rank whose steps take long

// The middle one of the others' shares.
double of_others(const std::vector<RankState>& ranks, const RankState& but) {
  std::vector<double> shares;
  for (const RankState& s : ranks)
    if (&s != &but && s.share >= 0 && !s.left && s.failure.empty()) shares.push_back(s.share);
  if (shares.empty()) return -1;
  const auto middle = shares.begin() + static_cast<int64_t>((shares.size() - 1) / 2);
  std::ranges::nth_element(shares, middle);
  return *middle;
}

}  // namespace

namespace detail {

void Waits::add(Clock::time_point when, double waited, int64_t step, std::chrono::milliseconds window) {
  if (!samples_.empty() && (waited < samples_.back().waited || step < samples_.back().step)) samples_.clear();
  samples_.push_back({when, waited, step});
  // The first one stays the newest that is old enough, and of an earlier step.
  while (samples_.size() > 2 &&
         ((samples_[1].when + window <= when && samples_[1].step < step) || samples_.size() > kMostSamples))
    samples_.pop_front();
}

double Waits::share(std::chrono::milliseconds window) const {
  if (samples_.size() < 2) return -1;
  const Sample &a = samples_.front(), &b = samples_.back();
  if (a.step < 0 || b.step <= a.step || b.when - a.when < window) return -1;
  return std::min((b.waited - a.waited) / std::chrono::duration<double>(b.when - a.when).count(), 1.0);
}

void name_straggler(std::vector<RankState>& ranks) {
  RankState* least = nullptr;
  for (RankState& s : ranks) {
    if (s.left || !s.failure.empty()) continue;
    if (s.share < 0) return;
    if (least == nullptr || s.share < least->share) least = &s;
  }
  if (least == nullptr) return;
  const double others = of_others(ranks, *least);
  least->straggler = others - least->share >= kLeast && least->share <= others / 2;
}

std::string StragglerNews::take(const std::vector<RankState>& ranks) {
  const auto found = std::ranges::find(ranks, true, &RankState::straggler);
  if (found == ranks.end() || found->last.rank == told_) return {};
  told_ = found->last.rank;
  return straggler_text(ranks);
}

}  // namespace detail

std::string straggler_text(const std::vector<RankState>& ranks) {
  for (const RankState& s : ranks) {
    if (!s.straggler) continue;
    const auto percent = [](double share) { return static_cast<int64_t>(std::lround(100 * share)); };
    return cat("rank ", s.last.rank, " (", s.last.host, ", pid ", s.last.pid, ") is waited for: it spends ",
               percent(s.share), " % of its time in collectives, others ", percent(of_others(ranks, s)), " %");
  }
  return {};
}

}  // namespace strata::distributed
