#include "strata/lab/plan.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/core/sample_shapes.h"
#include "strata/core/samples.h"
#include "strata/lab/growth.h"
#include "strata/lab/value_json.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;

// Arguments are tried for real with no more elements than these.
constexpr double kMostTried = 1 << 16;
// A sample's own elements are written into the plan where nothing else is taken, up to so many.
constexpr int64_t kMostData = 4096;
// Samples that differ only in their numbers say nothing new; of others no more than so many.
constexpr size_t kMostSamples = 8;
// Larger numbers mean something else than a size or a place: no end.
constexpr int64_t kMostNumber = 1 << 30;
// Values of one option that are tried, beside the one that it has.
constexpr size_t kMostValues = 3;
// A result that is so much larger than its arguments was asked for by indices that mean something else, or would be far
// larger still with larger arguments. Looked at with the least arguments first, of so many elements.
constexpr double kMostGrowth = 64, kTiny = 64;

bool is_number(const Tensor& t) {
  return !t.defined() || t.impl().wrapped_number;
}

// Those that map() sees too: a case's contents are counted over them.
template <class F>
void visit_defined(std::span<const Value> args, F&& f) {
  visit(args, [&](const Tensor& t) {
    if (t.defined()) f(t);
  });
}

double elements_of(const Args& args) {
  double n = 0;
  visit_defined(args, [&](const Tensor& t) { n += static_cast<double>(t.numel()); });
  return n;
}

bool runs(const OpBase& op, const Args& args) {
  double given = 0, got = 0;
  const auto add = [](double& sum) {
    return [&sum](const Tensor& t) { sum += t.defined() ? static_cast<double>(t.nbytes()) : 0; };
  };
  try {
    NoGrad guard;
    visit(args, add(given));
    // The results of an op in place are its arguments: each try has its own.
    visit(op.call_boxed(map(args, dense_copy)), add(got));
  } catch (const Error&) {
    return false;
  }
  return got <= kMostGrowth * given + (1 << 16);
}

// With `bounds` integers reach to both ends of their range.
Args filled(std::span<const Value> args, std::span<const Contents> contents, bool bounds = false) {
  size_t at = 0;
  return map(args, [&](const Tensor& t) {
    const Contents& c = contents[at++];
    return is_number(t) ? t : c.make(t.shape(), t.dtype(), bounds);
  });
}

// An unpooling's places are those of maxima, one in each window: how many dimensions a plane of them has; 0 for other
// ops. Repeated places mean another result in each library, and no library is made for them.
int64_t plane_dims(const OpBase& op) {
  constexpr std::string_view kName = "max_unpool";
  return op.name().starts_with(kName) ? op.name()[kName.size()] - '0' : 0;
}

// Elements of the last `dims` dimensions of the result; 0 where the op refuses the arguments.
int64_t plane_of_result(const OpBase& op, const Args& args, int64_t dims) {
  const NoGrad guard;
  const DeviceScope dry(Device::meta());
  const Args shapes = map(args, [](const Tensor& t) {
    return empty({t.shape(), t.dtype(), Device::meta(), std::nullopt});
  });
  int64_t plane = 1;
  try {
    visit(op.call_boxed(shapes), [&](const Tensor& t) {
      for (int64_t d = 0; d < dims; ++d) plane *= t.shape()[t.dim() - 1 - d];
    });
  } catch (const Error&) {
    return 0;
  }
  return plane;
}

// One sample with all that is needed to make it of any size.
class Grown {
 public:
  Grown(const OpBase& op, Args args, const PlanOptions& options) : op_(op), args_(std::move(args)), growth_(op, args_) {
    visit_defined(args_, [&](const Tensor& t) { plain_.push_back(is_number(t) ? Contents() : Contents::like(t)); });
    usable_ = growth_.possible() && choose(options.small);
  }
  bool usable() const { return usable_; }
  const Args& sample() const { return args_; }

  // The arguments and what they hold; nothing where the op does not take that.
  std::optional<Case> sized(double elements, Growth::Round round, const CallLimit& limit) const {
    Case c;
    if (!usable_) return as_it_is();
    for (;; elements /= 2) {
      c.args = growth_.sized(elements, round);
      if (c.args.empty()) return std::nullopt;
      if (elements <= 2 || fits(c.args, limit)) break;
    }
    c.contents = contents(c.args);
    return c;
  }

  Case as_it_is() const {
    Case c;
    c.args = map(args_, [](const Tensor& t) {
      return is_number(t) ? t : empty({t.shape(), t.dtype(), Device::meta(), std::nullopt});
    });
    size_t at = 0;
    visit_defined(args_, [&](const Tensor& t) {
      Contents k = plain_[at++];
      // A benchmark's data are no part of a plan.
      if (spreads(t)) {
        k = spread(args_);
      } else if (!is_number(t) && t.numel() <= kMostData) {
        k.kind = Contents::tiled;
        k.of = t;
      }
      c.contents.push_back(k);
    });
    return c;
  }

 private:
  bool fits(const Args& args, const CallLimit& limit) const {
    try {
      const Cost cost = op_.cost_boxed(args);
      if (cost.flops > limit.flops || cost.bytes > limit.bytes) return false;
    } catch (const Error&) {
      // A cost that needs other arguments tells nothing.
    }
    const double results = result_bytes(op_, args);
    return std::isinf(results) || results <= limit.result_bytes;
  }

  // What integers are multiplied by: by the group of sizes whose growth they must keep up with, or not at all; and
  // which tensors hold the sample's numbers again and again because the op takes no others.
  bool choose(double small) {
    const auto runs_with = [&](const Args& args) { return runs(op_, filled(args, contents(args), true)); };
    tiny_ = growth_.sized(kTiny, Growth::Round::powers);
    if (elements_of(tiny_) > kMostTried) return false;
    const size_t groups = growth_.groups();
    std::vector<int> order(groups + 1);
    for (size_t i = 0; i <= groups; ++i) order[i] = static_cast<int>(i) - 1;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return factor(tiny_, a) > factor(tiny_, b); });
    // Places counted from the end are a habit of this library: first without, then as the sample has them.
    for (const int way : {-1, 0, 1, 2}) {
      tiling_ = std::max(way, 0);
      front_ = way < 0;
      for (const int group : order) {
        group_ = group;
        if (!runs_with(tiny_)) continue;
        // Of several sizes, because two groups may have grown alike in one.
        const double tries[] = {small / 4, small / 2, small, 2 * small};
        const auto takes = [&](double elements) {
          const Args args = growth_.sized(elements, Growth::Round::powers);
          return elements_of(args) <= kMostTried && runs_with(args);
        };
        if (std::all_of(std::begin(tries), std::end(tries), takes)) return true;
      }
    }
    return false;
  }
  double factor(const Args& args, int group) const {
    return group < 0 ? 1 : growth_.factor(args, static_cast<size_t>(group));
  }
  bool spreads(const Tensor& t) const { return plane_dims(op_) > 0 && !is_number(t) && !is_floating(t.dtype()); }
  Contents spread(const Args& args) const {
    const int64_t dims = plane_dims(op_), plane = plane_of_result(op_, args, dims);
    return {.kind = Contents::spread, .low = 0, .high = static_cast<double>(plane - 1), .of = {}, .dims = dims};
  }
  // Where arguments are broadcast to one shape, and among special functions, integers are operands: a shift, a
  // polynomial's degree. Elsewhere they point into something.
  bool operands() const { return op_.adapt() != Adapt::none || op_.family() == "special"; }
  std::vector<Contents> contents(const Args& args) const {
    const double by = factor(args, group_);
    std::vector<Contents> r;
    size_t at = 0;
    visit_defined(args_, [&](const Tensor& t) {
      Contents c = plain_[at++];
      const bool index = !is_number(t) && !operands() && (t.dtype() == DType::i64 || t.dtype() == DType::i32);
      if (spreads(t)) {
        c = spread(args);
      } else if (!is_number(t) && t.numel() <= kMostData &&
                 (tiling_ == 2 || (tiling_ == 1 && !is_floating(t.dtype())))) {
        c.kind = Contents::tiled;
        c.of = t;
      } else if (index) {
        c = (front_ ? c.from_the_front() : c).grown(by);
      }
      r.push_back(c);
    });
    return r;
  }

  const OpBase& op_;
  Args args_, tiny_;
  Growth growth_;
  std::vector<Contents> plain_;
  bool usable_ = false, front_ = true;
  int group_ = -1, tiling_ = 0;
};

bool is_empty(const Args& args) {
  bool empty = false;
  visit(args, [&](const Tensor& t) { empty = empty || (t.defined() && t.numel() == 0); });
  return empty;
}

// What makes a sample differ from others: ranks, dtypes, sizes of one (which broadcast), and the other arguments.
std::string kind_of(const Args& args) {
  std::string text;
  for (const Value& v : args) {
    const auto add = [&](const Tensor& t) {
      text += t.defined() ? name_of(t.dtype()) : "none";
      for (const int64_t n : t.defined() ? t.shape() : Shape()) text += n == 1 ? '1' : 'n';
    };
    if (const Tensor* t = std::get_if<Tensor>(&v)) {
      add(*t);
    } else if (const TensorList* list = std::get_if<TensorList>(&v)) {
      for (const Tensor& t : *list) add(t);
    } else {
      text += text_of(v);
    }
    text += ';';
  }
  return text;
}

// Tensors all count as one value: given.
bool same_value(const Value& a, const Value& b) {
  const bool tensor = std::holds_alternative<Tensor>(a);
  if (tensor != std::holds_alternative<Tensor>(b)) return false;
  return tensor || text_of(a) == text_of(b);
}

class Planner {
 public:
  Planner(const OpBase& op, const PlanOptions& options) : op_(op), options_(options) {}

  Plan run() {
    if (!op_.has_samples()) {
      plan_.problem = "the record has no samples";
      return std::move(plan_);
    }
    first_ = op_.dtypes() & dtype_bit(DType::f32) ? DType::f32 : first_dtype();
    const std::vector<Sample>& samples = samples_of(first_);
    std::set<std::string> seen;
    for (const Sample& s : samples) {
      seen_args_.push_back(s.args);
      if (s.benchmark || (seen.size() < kMostSamples && seen.insert(kind_of(s.args)).second)) chosen_.push_back(&s);
    }
    if (chosen_.empty()) {
      plan_.problem = "all its samples are empty";
      return std::move(plan_);
    }
    // The benchmark's shapes are those of real work; else the first sample that grows.
    std::stable_partition(chosen_.begin(), chosen_.end(), [](const Sample* s) { return s->benchmark; });
    for (const Sample* s : chosen_) grown_.emplace_back(op_, s->args, options_);
    const auto usable = std::find_if(grown_.begin(), grown_.end(), [](const Grown& g) { return g.usable(); });
    base_ = usable == grown_.end() ? 0 : static_cast<size_t>(usable - grown_.begin());
    vary_sizes();
    vary_samples();
    vary_dtypes();
    vary_layouts();
    const size_t options = op_.schema().args.size();
    for (size_t i = 0; i < options; ++i) vary_option(i);
    return std::move(plan_);
  }

 private:
  DType first_dtype() const {
    for (const DType t : kAllDTypes)
      if (op_.dtypes() & dtype_bit(t)) return t;
    return DType::f32;
  }
  // Those that are not empty.
  std::vector<Sample>& samples_of(DType dtype) {
    Samples samples(dtype);
    samples.set_benchmarking(dtype == first_ && !op_.is_dynamic());
    const SampleShapesScope shapes;
    op_.samples(samples);
    std::erase_if(samples.valid, [](const Sample& s) { return is_empty(s.args); });
    for (Sample& s : samples.valid) {
      const size_t given = s.args.size();
      for (size_t i = given; i < op_.schema().args.size(); ++i)
        s.args.push_back(op_.schema().args[i].default_value.value_or(Value()));
    }
    return kept_.emplace_back(std::move(samples.valid));
  }

  void add(std::optional<Case> c, const std::string& size, const std::string& varied, DType dtype,
           const std::string& label = "") {
    if (!c) return;
    c->size = grown_[base_].usable() || size == "sample" ? size : "sample";
    c->varied = varied;
    c->dtype = dtype;
    c->label = label;
    c->gradient = differentiable(*c);
    plan_.cases.push_back(std::move(*c));
  }
  bool differentiable(const Case& c) const {
    bool floating = false;
    visit(c.args, [&](const Tensor& t) { floating = floating || (!is_number(t) && is_floating(t.dtype())); });
    return floating && op_.has_backward();
  }
  std::optional<Case> middle(const Grown& g) const {
    return g.sized(options_.middle, Growth::Round::powers, options_.limit);
  }

  void vary_sizes() {
    const Grown& g = grown_[base_];
    const std::string& label = chosen_[base_]->label;
    add(middle(g), "middle", "", first_, label);
    if (!g.usable()) return;
    add(g.sized(options_.small, Growth::Round::powers, options_.limit), "small", "", first_, label);
    add(g.sized(options_.large, Growth::Round::powers, options_.limit), "large", "", first_, label);
    add(g.sized(options_.middle, Growth::Round::odd, options_.limit), "odd", "", first_, label);
  }

  void vary_samples() {
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (i == base_) continue;
      const std::string name = fmt::format("sample {}", i);
      add(middle(grown_[i]), grown_[i].usable() ? "middle" : "sample", name, first_, chosen_[i]->label);
    }
  }

  // The same place among the samples of another dtype, where these are the same but for the dtype; of a benchmark's
  // sample its tensors converted.
  void vary_dtypes() {
    if (plan_.cases.empty()) return;
    for (const DType dtype : kAllDTypes) {
      if (dtype == first_ || !(op_.dtypes() & dtype_bit(dtype))) continue;
      const std::string name = fmt::format("dtype={}", strata::name_of(dtype));
      Case c = plan_.cases.front();
      if (is_floating(first_) && is_floating(dtype)) {
        c.args = map(c.args, [&](const Tensor& t) {
          return is_number(t) || t.dtype() != first_ ? t : empty({t.shape(), dtype, Device::meta(), std::nullopt});
        });
        size_t at = 0;
        visit_defined(c.args, [&](const Tensor&) {
          Contents& k = c.contents[at++];
          if (k.kind == Contents::tiled && k.of.defined() && k.of.dtype() == first_) k.of = converted(k.of, dtype);
        });
        if (result_bytes(op_, c.args) < std::numeric_limits<double>::infinity()) add(c, c.size, name, dtype, c.label);
        continue;
      }
      const std::vector<Sample>& all = samples_of(dtype);
      for (const Sample& s : all) {
        const Grown g(op_, s.args, options_);
        if (!g.usable()) continue;
        add(middle(g), "middle", name, dtype, s.label);
        break;
      }
    }
  }

  void vary_layouts() {
    if (plan_.cases.empty()) return;
    const Case base = plan_.cases.front();
    int rank = 0;
    visit(base.args, [&](const Tensor& t) { rank = is_number(t) ? rank : std::max(rank, static_cast<int>(t.dim())); });
    for (const Layout layout : {Layout::transposed, Layout::every_second, Layout::channels_last}) {
      if (rank < (layout == Layout::channels_last ? 4 : layout == Layout::transposed ? 2 : 1)) continue;
      if (layout == Layout::channels_last && rank > 5) continue;
      Case c = base;
      c.layout = layout;
      add(c, c.size, std::string(name_of(layout)), first_, c.label);
    }
  }

  // Other values of argument `i`: those that samples have, and what its type suggests.
  std::vector<Value> other_values(size_t i, const Value& now) const {
    std::vector<Value> all;
    const auto add = [&](const Value& v) {
      const auto same = [&](const Value& other) { return same_value(v, other); };
      if (!same_value(v, now) && std::none_of(all.begin(), all.end(), same)) all.push_back(v);
    };
    const SchemaArg& arg = op_.schema().args[i];
    if (const bool* b = std::get_if<bool>(&now)) add(!*b);
    for (const Args& args : seen_args_) add(args[i]);
    if (arg.default_value) add(*arg.default_value);
    if (arg.type.optional) add(Value());
    switch (arg.type.kind) {
      case SchemaType::string: {
        const std::string* s = std::get_if<std::string>(&now);
        if (s && (*s == "mean" || *s == "sum" || *s == "none"))
          for (const char* reduction : {"none", "sum", "mean"}) add(std::string(reduction));
        break;
      }
      case SchemaType::boolean:
        add(true), add(false);
        break;
      case SchemaType::integer:
        for (const int64_t n : {0, 1, -1, 2}) add(n);
        break;
      case SchemaType::number:
        for (const double n : {0.5, 2.0, 0.0}) add(n);
        break;
      case SchemaType::scalar:
        for (const double n : {0.5, 2.0, 0.0}) add(Scalar(n));
        break;
      case SchemaType::dtype:
        for (const DType t : {DType::f64, DType::bf16, DType::f32}) add(t);
        break;
      case SchemaType::integers:
        if (const Dims* d = std::get_if<Dims>(&now)) {
          for (const int64_t by : {1, -1}) {
            Dims other = *d;
            for (int64_t& n : other) n += std::abs(n) < kMostNumber ? by : 0;
            add(other);
          }
        }
        break;
      default:
        break;
    }
    return all;
  }

  void vary_option(size_t i) {
    const SchemaArg& arg = op_.schema().args[i];
    const bool tensor = arg.type.kind == SchemaType::tensor || arg.type.kind == SchemaType::tensors;
    if (tensor && !arg.type.optional && !arg.default_value) return;  // no option: an operand
    const auto no = [&](const char* why) { plan_.not_varied.emplace_back(arg.name, why); };
    if (arg.type.kind == SchemaType::key) return no("the key of random numbers");
    if (arg.type.kind == SchemaType::device) return no("the device is the comparison's");
    // The base first; another sample where it takes no other value.
    std::vector<size_t> order{base_};
    for (size_t s = 0; s < grown_.size(); ++s)
      if (s != base_ && !chosen_[s]->benchmark) order.push_back(s);
    for (const size_t s : order) {
      size_t added = 0;
      const Value now = grown_[s].sample()[i];
      for (const Value& other : other_values(i, now)) {
        if (added == kMostValues) break;
        Args args = grown_[s].sample();
        args[i] = other;
        const Grown g(op_, args, options_);
        if (!g.usable() && (chosen_[s]->benchmark || !runs(op_, args))) continue;
        // Not to be taken for the tensors' dtype.
        const bool clash = arg.name == "dtype";
        std::string name = fmt::format("{}{}={}", clash ? "argument " : "", arg.name, text_of(other));
        if (s != base_) name += fmt::format(" of sample {}", s);
        add(middle(g), g.usable() ? "middle" : "sample", name, first_, chosen_[s]->label);
        ++added;
      }
      if (added > 0) return;
    }
    // Samples may differ in it without being different otherwise.
    for (const Sample* s : chosen_)
      if (!same_value(s->args[i], chosen_[base_]->args[i])) return;
    no("no other value was taken");
  }

  const OpBase& op_;
  const PlanOptions& options_;
  Plan plan_;
  DType first_ = DType::f32;
  std::deque<std::vector<Sample>> kept_;
  std::vector<const Sample*> chosen_;
  std::vector<Args> seen_args_;
  std::deque<Grown> grown_;
  size_t base_ = 0;
};

nlohmann::ordered_json tensor_json(const Tensor& t, const Case& c, size_t& at) {
  if (!t.defined()) return nullptr;
  const Contents& contents = c.contents[at++];
  if (t.impl().wrapped_number) return lab::tensor_json(t);
  const int least = c.layout == Layout::channels_last ? 4 : c.layout == Layout::transposed ? 2 : 1;
  return {{"dtype", strata::name_of(t.dtype())},
          {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
          {"layout", name_of(t.dim() >= least ? c.layout : Layout::contiguous)},
          {"values", contents.json()}};
}

nlohmann::ordered_json args_json(const Case& c) {
  size_t at = 0;
  auto all = nlohmann::ordered_json::array();
  for (const Value& v : c.args) {
    if (const Tensor* t = std::get_if<Tensor>(&v)) {
      all.push_back({{"tensor", tensor_json(*t, c, at)}});
    } else if (const TensorList* list = std::get_if<TensorList>(&v)) {
      auto tensors = nlohmann::ordered_json::array();
      for (const Tensor& t : *list) tensors.push_back(tensor_json(t, c, at));
      all.push_back({{"tensors", tensors}});
    } else {
      all.push_back(value_json(v));
    }
  }
  return all;
}

}  // namespace

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::contiguous:
      return "contiguous";
    case Layout::transposed:
      return "transposed";
    case Layout::every_second:
      return "every_second";
    case Layout::channels_last:
      return "channels_last";
  }
  return "";
}

PlanOptions PlanOptions::card() {
  PlanOptions o;
  o.large = 1 << 24;
  o.limit = {5e12, 2e10, 2e9};
  return o;
}

Plan plan(const OpBase& op, const PlanOptions& options) {
  DeviceScope host(Device::cpu());
  return Planner(op, options).run();
}

std::vector<Value> made(const Case& c) {
  return filled(c.args, c.contents);
}

std::string to_json_lines(const OpBase& op, const Plan& plan) {
  std::string text;
  const auto line = [&](const nlohmann::ordered_json& j) { text += j.dump() + "\n"; };
  for (const Case& c : plan.cases) {
    line({{"op", op.name()},
          {"schema", op.schema_text()},
          {"shown", op.shown()},
          {"random", op.schema().is_random()},
          {"size", c.size},
          {"dtype", strata::name_of(c.dtype)},
          {"varied", c.varied},
          {"label", c.label},
          {"gradient", c.gradient},
          {"args", args_json(c)}});
  }
  for (const auto& [option, why] : plan.not_varied) line({{"op", op.name()}, {"option", option}, {"not_varied", why}});
  if (!plan.problem.empty()) line({{"op", op.name()}, {"problem", plan.problem}});
  return text;
}

}  // namespace strata::lab
