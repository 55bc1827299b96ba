#include "strata/lab/trace_times.h"

#include <algorithm>

#include <fmt/format.h>

namespace strata::lab {

void Stretches::add(const TraceTrack& track) {
  for (const TraceSpan& s : track.spans)
    if (s.end > s.begin) all_.emplace_back(s.begin, s.end);
  join();
}

void Stretches::join() {
  std::sort(all_.begin(), all_.end());
  size_t n = 0;
  for (const auto& [begin, end] : all_) {
    if (n == 0 || begin > all_[n - 1].second) {
      all_[n++] = {begin, end};
    } else {
      all_[n - 1].second = std::max(all_[n - 1].second, end);
    }
  }
  all_.resize(n);
}

Stretches Stretches::common(const Stretches& other) const {
  Stretches both;
  const auto &x = all_, &y = other.all_;
  for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    const double begin = std::max(x[i].first, y[j].first), end = std::min(x[i].second, y[j].second);
    if (begin < end) both.all_.emplace_back(begin, end);
    (x[i].second < y[j].second ? i : j) += 1;
  }
  return both;
}

Stretches Stretches::without(const Stretches& other) const {
  Stretches rest;
  size_t j = 0;
  for (auto [begin, end] : all_) {
    while (j < other.all_.size() && other.all_[j].second <= begin) ++j;
    for (size_t k = j; k < other.all_.size() && other.all_[k].first < end; ++k) {
      if (other.all_[k].first > begin) rest.all_.emplace_back(begin, other.all_[k].first);
      begin = std::max(begin, other.all_[k].second);
    }
    if (begin < end) rest.all_.emplace_back(begin, end);
  }
  return rest;
}

double Stretches::seconds() const {
  double sum = 0;
  for (const auto& [begin, end] : all_) sum += end - begin;
  return sum;
}

std::string time_text(double s) {
  if (s <= 0) return "0";
  if (s >= 1) return fmt::format("{:.3g} s", s);
  if (s >= 1e-3) return fmt::format("{:.3g} ms", 1e3 * s);
  return fmt::format("{:.3g} us", 1e6 * s);
}

}  // namespace strata::lab
