// A Recording as text for people.

#include <algorithm>
#include <cmath>

#include "strata/core/recording.h"

namespace strata {
namespace {

std::string describe(const Recording& r, ValueIndex v) {
  if (v.at < 0) return "none";
  const RecordedValue& value = r.values[static_cast<size_t>(v.at)];
  return cat("%", value.storage, to_string(value.shape), name_of(value.dtype));
}
std::string describe(const Recording& r, const std::vector<ValueIndex>& list) {
  std::string s = "(";
  const size_t shown = std::min<size_t>(list.size(), 4);
  for (size_t i = 0; i < shown; ++i) s += cat(i ? ", " : "", describe(r, list[i]));
  return s + (shown < list.size() ? cat(", and ", list.size() - shown, " more)") : std::string(")"));
}
std::string describe(const Recording& r, const RecordedArg& arg) {
  return std::visit(
      [&](const auto& a) -> std::string {
        using T = std::remove_cvref_t<decltype(a)>;
        if constexpr (std::is_same_v<T, ValueIndex> || std::is_same_v<T, std::vector<ValueIndex>>) {
          return describe(r, a);
        } else if constexpr (std::is_same_v<T, std::monostate>) {
          return "None";
        } else if constexpr (std::is_same_v<T, Scalar>) {
          return a.kind() == DType::boolean ? cat(a.to_bool()) : cat(a.to_double());
        } else if constexpr (std::is_same_v<T, RngKey>) {
          return cat("key ", a.seed, ":", a.offset);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return cat('"', a, '"');
        } else {
          return cat(a);
        }
      },
      arg);
}
std::string with_unit(double v, std::string_view unit) {
  constexpr std::string_view kPrefix[] = {"", "k", "M", "G", "T", "P"};
  int p = 0;
  while (v >= 1000 && p < 5) v /= 1000, ++p;
  const double rounded = v < 10 && p > 0 ? std::round(v * 10) / 10 : std::round(v);
  return cat(rounded, " ", kPrefix[p], unit);
}

}  // namespace

std::string Recording::to_string() const {
  size_t work = 0;
  Cost all;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!is_work(i)) continue;
    ++work;
    all.flops += calls[i].cost.flops;
    all.bytes += calls[i].cost.bytes;
  }
  const auto [peak, where] = peak_bytes();
  std::string s = cat(calls.size(), " calls, ", work, " of them kernels and views; ", with_unit(all.flops, "FLOP"),
                      ", at least ", with_unit(all.bytes, "B"), " moved; ", storages.size(), " storages, at most ",
                      with_unit(static_cast<double>(peak), "B"), " at once");
  s += where < 0 ? "\n" : cat(" (call ", where, ")\n");
  std::vector<int> depth(calls.size(), 0);
  for (size_t i = 0; i < calls.size(); ++i) {
    const RecordedCall& c = calls[i];
    if (c.parent >= 0) depth[i] = depth[static_cast<size_t>(c.parent)] + 1;
    s += cat(i, ' ', name_of(c.phase), ' ', c.module ? std::string_view(*c.module) : std::string_view("-"), ' ',
             std::string(static_cast<size_t>(2 * depth[i]), ' '), c.op->name(),
             c.form == Form::inplace ? "_"
             : c.form == Form::out   ? " out"
                                     : "",
             '(');
    for (size_t k = 0; k < c.args.size(); ++k) s += cat(k ? ", " : "", describe(*this, c.args[k]));
    s += ") -> ";
    s += c.results.size() == 1 ? describe(*this, c.results[0]) : describe(*this, c.results);
    if (c.composed) s += "  composed";
    if (c.cost.flops > 0) s += cat("  ", with_unit(c.cost.flops, "FLOP"));
    if (c.cost.bytes > 0) s += cat("  ", with_unit(c.cost.bytes, "B"));
    s += '\n';
  }
  return s;
}

}  // namespace strata
