#include "strata/core/once.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace strata::detail {
namespace {
thread_local OnceScope* t_scope = nullptr;

struct Times {
  std::mutex mutex;
  std::vector<std::pair<const char*, double>> parts;
};
Times& times() {
  static auto* all = new Times;  // libraries are loaded by static objects too
  return *all;
}
}  // namespace

OnceScope::OnceScope(const char* part) : part_(part), outer_(std::exchange(t_scope, this)) {}
OnceScope::~OnceScope() {
  const Clock::duration whole = Clock::now() - begin_;
  t_scope = outer_;
  if (outer_) outer_->inner_ += whole;
  const double own = std::chrono::duration<double>(whole - inner_).count();
  Times& t = times();
  const std::lock_guard lock(t.mutex);
  const auto known = std::ranges::find_if(t.parts, [&](const auto& p) { return std::strcmp(p.first, part_) == 0; });
  if (known != t.parts.end())
    known->second += own;
  else
    t.parts.emplace_back(part_, own);
}

std::vector<std::pair<const char*, double>> once_seconds() {
  Times& t = times();
  const std::lock_guard lock(t.mutex);
  return t.parts;
}

}  // namespace strata::detail
