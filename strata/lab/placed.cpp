#include "strata/lab/placed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/autograd/autograd.h"
#include "strata/core/samples.h"
#include "strata/core/sharding.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/lab/compare.h"
#include "strata/lab/gradients_inl.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;

// Samples that are also tried with larger tensors, and elements of their largest.
constexpr size_t kEnlarged = 2;
constexpr double kElements = 500;

// How each tensor argument of a call lies, on the job as one axis or on a mesh of two. Empty text: a plain tensor.
struct Way {
  std::vector<std::string> placements;
  bool two = false;
  std::string text() const {
    std::string s;
    for (const std::string& p : placements) s += cat(s.empty() ? "" : ", ", p.empty() ? "plain" : p);
    return s;
  }
};

// Which numbers come, the same on every rank and in every run.
class Dice {
 public:
  size_t roll(size_t sides) {
    const auto bits = philox({0x706c6163, 0}, next_++);
    return bits[0] % sides;
  }

 private:
  uint64_t next_ = 0;
};

std::vector<std::string> choices(const Tensor& t) {
  if (!t.defined() || t.impl().wrapped_number) return {""};
  std::vector<std::string> all{"R"};
  for (int d = 0; d < t.dim(); ++d) all.push_back(cat("S(", d, ")"));
  if (is_floating(t.dtype())) all.emplace_back("P(sum)");
  return all;
}

std::vector<Way> ways_of(const std::vector<Tensor>& tensors, bool two_axes, int most) {
  std::vector<std::vector<std::string>> each;
  size_t all = 1, deepest = 0;
  for (const Tensor& t : tensors) {
    each.push_back(choices(t));
    all = std::min<size_t>(all * each.back().size(), 1 << 20);
    deepest = std::max(deepest, each.back().size());
  }
  std::vector<Way> ways;
  const auto add = [&](Way w) {
    const bool any =
        std::any_of(w.placements.begin(), w.placements.end(), [](const std::string& p) { return !p.empty(); });
    const bool known = std::any_of(ways.begin(), ways.end(),
                                   [&](const Way& o) { return o.two == w.two && o.placements == w.placements; });
    if (any && !known) ways.push_back(std::move(w));
  };
  const auto count = static_cast<size_t>(most);
  const size_t of_one = two_axes ? (count + 1) / 2 : count;
  if (all <= of_one) {
    for (size_t n = 0; n < all; ++n) {
      Way w;
      size_t left = n;
      for (const auto& e : each) {
        w.placements.push_back(e[left % e.size()]);
        left /= e.size();
      }
      add(std::move(w));
    }
  } else {
    // All alike, each alone, then by chance.
    for (size_t c = 1; c < deepest; ++c) {
      Way w;
      for (const auto& e : each) w.placements.push_back(c < e.size() ? e[c] : e[0]);
      add(std::move(w));
    }
    Dice dice;
    for (size_t n = 0; ways.size() < of_one && n < 4 * of_one; ++n) {
      Way w;
      for (const auto& e : each) {
        const size_t side = dice.roll(e.size() + 1);
        w.placements.push_back(side < e.size() ? e[side] : "");
      }
      add(std::move(w));
    }
  }
  if (!two_axes) return ways;
  Dice dice;
  for (size_t n = 0; ways.size() < count && n < 4 * count; ++n) {
    Way w;
    w.two = true;
    for (const auto& e : each) {
      const std::string first = e[dice.roll(e.size())], second = e[dice.roll(e.size())];
      w.placements.push_back(first.empty() ? "" : first + " " + second);
    }
    add(std::move(w));
  }
  return ways;
}

void expect_same(const Tensor& got, const Tensor& want, double widen, const std::string& what) {
  check(got.defined() == want.defined(), "verify", what, " is ", got.defined() ? "there" : "missing");
  if (!got.defined()) return;
  check(got.shape() == want.shape() && got.dtype() == want.dtype(), "verify", what, " is ", got,
        ", of whole arguments ", want);
  Tolerance t;
  if (is_floating(want.dtype())) {
    double magnitude = 1;
    for (const double v : values(want))
      if (std::isfinite(v)) magnitude = std::max(magnitude, std::abs(v));
    const double eps = want.dtype() == DType::f64 ? 1e-11 : 32 * epsilon(want.dtype());
    t = {eps * widen, eps * widen * magnitude};
  }
  const Difference d = compare(got, want, t);
  check(d.ratio <= 1, "verify", what, ", element ", d.index, ": ", d.got, ", of whole arguments ", d.want, "; allowed ",
        d.bound);
}

Args placed(const Args& args, const Way& way, bool wanting_gradients) {
  size_t i = 0;
  const NoGrad guard;
  Args own = args;
  const auto place = [&](Tensor& t) {
    const std::string& text = way.placements[i++];
    if (!t.defined() || t.impl().wrapped_number) return;
    Tensor x = dense_copy(t);
    if (!text.empty()) x = distributed::distribute(x, text, way.two ? "" : "world");
    if (wanting_gradients && is_floating(x.dtype())) x.set_requires_grad();
    t = x;
  };
  for (Value& v : own) {
    if (Tensor* t = std::get_if<Tensor>(&v)) {
      place(*t);
    } else if (TensorList* list = std::get_if<TensorList>(&v)) {
      for (Tensor& t : *list) place(t);
    }
  }
  return own;
}

Tensor whole(const Tensor& t) {
  const NoGrad guard;
  return t.defined() ? distributed::full_tensor(t) : t;
}

class PlacedVerifier {
 public:
  PlacedVerifier(const OpBase& op, const PlacedOptions& options)
      : op_(op), options_(options), mesh_(mesh_of(options.ranks)) {
    report_.op = op.name();
    report_.family = op.family();
    const ShardRule& rule = detail::rule_of(op);
    report_.rule = rule.function ? "function" : std::string(rule.text);
  }

  PlacedReport run() {
    const auto begin = std::chrono::steady_clock::now();
    if (report_.rule.empty()) {
      report_.failures.emplace_back("the record has no shard rule");
    } else if (report_.rule != "unplaced" && report_.rule != "itself" && op_.has_samples()) {
      for (const DType dtype : {DType::f64, DType::f32, DType::i64, DType::i32, DType::bf16, DType::i8, DType::boolean})
        if (op_.dtypes() & dtype_bit(dtype)) {
          round(dtype);
          break;
        }
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(report_);
  }

 private:
  static distributed::Mesh mesh_of(int ranks) {
    check(ranks >= 2 && ranks <= 64, "verify", "from 2 to 64 ranks, got ", ranks);
    if (ranks >= 4 && ranks % 2 == 0) return distributed::Mesh(cat("outer=2 inner=", ranks / 2));
    return distributed::Mesh(cat("outer=", ranks));
  }

  void round(DType dtype) {
    Samples samples(dtype);
    try {
      op_.samples(samples);
    } catch (const std::exception&) {
      return;  // the plain verification says so
    }
    for (const Sample& s : samples.valid) {
      if (static_cast<int>(report_.failures.size()) >= options_.max_failures) return;
      sample(s, dtype);
    }
    // Dimensions of samples are short: fewer than ranks.
    for (size_t i = 0; i < std::min(samples.valid.size(), kEnlarged); ++i) {
      if (static_cast<int>(report_.failures.size()) >= options_.max_failures) return;
      Sample large = samples.valid[i];
      bool empty = false;
      visit(large.args, [&](const Tensor& t) { empty = empty || (t.defined() && t.numel() == 0); });
      if (empty) continue;
      large.args = enlarged_within(op_, large.args, kElements, {1e6, 1e6, 1e5});
      large.label = cat("enlarged", large.label.empty() ? "" : ", ", large.label);
      // Tiled matrices have next to no inverse: numbers beyond this are those of rounding.
      sample(large, dtype, 1e6);
    }
  }

  void sample(const Sample& s, DType dtype, double most = std::numeric_limits<double>::infinity()) {
    const std::vector<Tensor> tensors = tensors_of(s.args);
    if (tensors.empty()) return;
    std::vector<Tensor> results, gradients, written;
    std::vector<size_t> positions;
    const bool differentiates = op_.has_backward() && is_floating(dtype) && s.differentiable;
    try {
      {
        const NoGrad guard;
        results = tensors_of(op_.call_boxed(s.args));
      }
      if (differentiates) {
        const Args own = leaves(s.args);
        const Recorded y = recorded(tensors_of(op_.call_boxed(own)));
        positions = y.positions;
        gradients = rule_gradients(y.results, wanting(own), y.weights);
      }
    } catch (const std::exception&) {
      return;
    }
    for (const auto* all : {&results, &gradients})
      for (const Tensor& t : *all)
        if (t.defined() && largest_of(t) > most) return;
    const bool inplace = op_.can_inplace() && std::holds_alternative<Tensor>(s.args[0]) && tensors[0].defined() &&
                         results[0].shape() == tensors[0].shape() && results[0].dtype() == tensors[0].dtype();
    ++report_.samples;
    const std::vector<Way> ways = ways_of(tensors, mesh_.axes().size() > 1, options_.most);
    std::atomic<size_t> at{0};
    for (size_t from = 0; from < ways.size();) {
      at = from;
      try {
        distributed::run_as_ranks(mesh_, [&](int rank) {
          for (size_t w = from; w < ways.size(); ++w) {
            if (rank == 0) at = w;
            one(s, ways[w], results, positions, gradients, differentiates, inplace, rank);
          }
        });
        from = ways.size();
      } catch (const std::exception& e) {
        if (static_cast<int>(report_.failures.size()) < options_.max_failures)
          report_.failures.push_back(
              cat(s.label, s.label.empty() ? "" : ": ", text_of(s.args), " as ", ways[at].text(), ": ", e.what()));
        from = at + 1;
        if (static_cast<int>(report_.failures.size()) >= options_.max_failures) break;
      }
    }
    report_.calls += static_cast<int>(ways.size());
    if (differentiates) report_.gradients += static_cast<int>(ways.size());
  }

  // On every rank; the first and the last compare.
  void one(const Sample& s, const Way& way, const std::vector<Tensor>& results, const std::vector<size_t>& positions,
           const std::vector<Tensor>& gradients, bool differentiates, bool inplace, int rank) const {
    const double widen = std::max(1.0, op_.tolerance());
    const bool compares = rank == 0 || rank == mesh_.size() - 1;
    {
      const NoGrad guard;
      const std::vector<Tensor> got = tensors_of(op_.call_boxed(placed(s.args, way, false)));
      check(got.size() == results.size(), "verify", "gives ", got.size(), " results, of whole arguments ",
            results.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const Tensor all = whole(got[i]);
        if (compares) expect_same(all, results[i], widen, cat("result ", i, lies(got[i])));
      }
      if (inplace && !way.placements[0].empty()) {
        const Args own = placed(s.args, way, false);
        const Tensor got_here = whole(std::get<Tensor>(op_.inplace_boxed(own)[0]));
        if (compares) expect_same(got_here, results[0], widen, "the result in place");
      }
    }
    if (!differentiates) return;
    const Args own = placed(s.args, way, true);
    const Recorded y = recorded(tensors_of(op_.call_boxed(own)));
    check(y.positions == positions, "verify", "other results are recorded than of whole arguments");
    const std::vector<Tensor> inputs = wanting(own);
    const std::vector<Tensor> got = rule_gradients(y.results, inputs, y.weights);
    for (size_t i = 0; i < got.size(); ++i) {
      const Tensor all = whole(got[i]);
      if (compares) expect_same(all, gradients[i], 16 * widen, cat("the gradient of input ", i, lies(got[i])));
    }
  }

  static std::string lies(const Tensor& t) {
    return t.defined() && is_placed(t) ? cat(" (", distributed::placements_of(t), ")") : std::string();
  }

  const OpBase& op_;
  PlacedOptions options_;
  distributed::Mesh mesh_;
  PlacedReport report_;
};

}  // namespace

PlacedReport verify_placed(const OpBase& op, const PlacedOptions& options) {
  return PlacedVerifier(op, options).run();
}

std::string table(const std::vector<PlacedReport>& reports) {
  std::string s =
      fmt::format("{:40} {:>7} {:>7} {:>9} {:>8}  {}\n", "op", "samples", "calls", "gradients", "seconds", "rule");
  int calls = 0, failed = 0;
  for (const PlacedReport& r : reports) {
    s += fmt::format("{:40} {:>7} {:>7} {:>9} {:>8.2f}  {}{}\n", r.op, r.samples, r.calls, r.gradients, r.seconds,
                     r.rule.substr(0, 60), r.ok() ? "" : "  FAILED");
    for (const std::string& f : r.failures) s += "    " + f + "\n";
    calls += r.calls;
    failed += !r.ok();
  }
  return s + fmt::format("{} ops, {} calls: {}\n", reports.size(), calls,
                         failed == 0 ? "placement changes no result" : fmt::format("{} failed", failed));
}

std::string to_json(const std::vector<PlacedReport>& reports) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const PlacedReport& r : reports)
    all.push_back({{"op", r.op},
                   {"family", r.family},
                   {"rule", r.rule},
                   {"samples", r.samples},
                   {"calls", r.calls},
                   {"gradients", r.gradients},
                   {"seconds", r.seconds},
                   {"failures", r.failures}});
  return all.dump(1) + "\n";
}

}  // namespace strata::lab
