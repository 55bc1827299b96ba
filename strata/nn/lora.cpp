#include "strata/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/memory/allocator.h"
#include "strata/nn/expert_lora_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/nn/name_pattern.h"
#include "strata/nn/packed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"

namespace strata::nn {
namespace {

constexpr std::string_view kOp = "Lora", kChild = "lora", kMap = "Linear", kExperts = "Experts";
// The weights of experts.
constexpr const char* kStacked[] = {"gate_up", "down"};

thread_local bool t_without = false;

// The module behind whose call the adapters stand.
struct LoraHook final : detail::ModuleHook {
  explicit LoraHook(Lora adapters) : lora(std::move(adapters)) {}
  Tensor call(const Module&, const Tensor& x, const Tensor& y) override { return lora.forward(x, y); }
  Lora lora;
};

// Of a linear map, or of a weight of experts.
LoraHook* hook_of(const Module& map, std::string_view weight = {}) {
  detail::ModuleHooks* hooks = detail::ModuleHooks::of_module(map, false);
  if (!hooks) return nullptr;
  if (!weight.empty()) {
    const auto found = hooks->of_weights.find(weight);
    return found == hooks->of_weights.end() ? nullptr : dynamic_cast<LoraHook*>(found->second.get());
  }
  for (const auto& hook : hooks->of(detail::HookKind::after))
    if (auto* found = dynamic_cast<LoraHook*>(hook.get()); found && !found->removed) return found;
  return nullptr;
}

std::string child_of(const std::string& weight) {
  return weight.empty() ? std::string(kChild) : cat(kChild, '_', weight);
}

std::string last_word(std::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

Tensor rows_of(const Tensor& weight, const LinearPart& part) {
  return weight.narrow(-2, part.first, part.rows);
}

// [out, in] of a map whose weight may be packed.
Shape shape_of(const Module& map) {
  return is_packed(map) ? dense_shape(packed_weights(map)) : map.parameter("weight").shape();
}

// B A scale, [rows, in] in f32.
Tensor addition(const LoraPart& part) {
  return matmul(part.B, part.A) * part.scale;
}

// One expert's, which shares memory.
LoraPart of_expert(const LoraPart& part, int64_t expert) {
  LoraPart one = part;
  one.A = part.A.detach().select(0, expert);
  one.B = part.B.detach().select(0, expert);
  return one;
}

void check_range(const std::string& path, const LinearPart& p, int64_t out) {
  check(p.first >= 0 && p.rows > 0 && p.first <= out && p.rows <= out - p.first, kOp, "'", p.name, "' is rows ",
        p.first, " to ", p.first + p.rows, " of '", path, "', which has ", out);
}

// Throws unless the parts lie within `out` rows, apart, and have last words of their own.
void check_parts(const std::string& path, std::vector<LinearPart> parts, int64_t out) {
  check(!parts.empty(), kOp, "'", path, "' has no parts");
  std::set<std::string> words;
  for (const LinearPart& p : parts) {
    check_range(path, p, out);
    const std::string word = last_word(p.name);
    check(!word.empty() && words.insert(word).second, kOp, "two parts of '", path, "' are named '", word, "'");
  }
  std::ranges::sort(parts, {}, &LinearPart::first);
  for (size_t i = 1; i < parts.size(); ++i)
    check(parts[i - 1].first + parts[i - 1].rows <= parts[i].first, kOp, "'", parts[i - 1].name, "' and '",
          parts[i].name, "' have rows of '", path, "' in common");
}

void check_dropout(double p) {
  check(p >= 0 && p < 1, kOp, "dropout is in [0, 1), got ", p);
}
void check_part(const LoraPart& p) {
  check(p.rank >= 1 && p.rank <= (int64_t{1} << 20), kOp, "the rank of '", p.of.name, "' is ", p.rank);
  check(std::isfinite(p.alpha), kOp, "the alpha of '", p.of.name, "' is ", p.alpha);
}

}  // namespace

Lora::Lora(const Module& map, const std::vector<LoraPart>& parts, const LoraOptions& options, const std::string& weight)
    : Module("Lora"), inside_(std::make_shared<Inside>()) {
  const bool experts = map.kind() == kExperts;
  check(experts || map.kind() == kMap, kOp, "adapters are for linear maps and experts, not for a ", map.kind());
  check(experts ? std::ranges::find(kStacked, weight) != std::end(kStacked) : weight.empty(), kOp, "adapters of a ",
        map.kind(), " are not for a weight named '", weight, "'");
  if (!experts && is_packed(map))
    inside_->packed = packed_weights(map);
  else
    inside_->weight = map.parameter(experts ? weight : "weight");
  if (experts) {
    check(!options.dora, kOp, "adapters of experts have no learned lengths (dora): '", map.path(), "'");
    check(!is_placed(inside_->weight), kOp, "the experts of '", map.path(),
          "' lie on several ranks: adapters of experts are for ranks that have all of them");
    inside_->experts = inside_->weight.size(0);
  } else {
    for (const auto& [name, p] : map.named_parameters())
      if (name == "bias") inside_->bias = p;
  }
  const Shape shape = experts ? Shape{inside_->weight.size(1), inside_->weight.size(2)} : shape_of(map);
  inside_->in = shape[1];
  inside_->out = shape[0];
  inside_->form = {options.dropout, options.rslora, options.dora};
  check(hook_of(map, weight) == nullptr, kOp, "'", map.path(), "' has adapters already");
  check_dropout(options.dropout);
  std::vector<LinearPart> ranges;
  for (const LoraPart& p : parts) ranges.push_back(p.of);
  check_parts(map.path(), ranges, inside_->out);
  const DeviceScope there(inside_->packed.empty() ? inside_->weight.device() : inside_->packed[0].codes.device());
  const memory::TagScope tag(memory::Tag::parameter);
  for (LoraPart p : parts) {
    check_part(p);
    const auto rank = static_cast<double>(p.rank);
    p.scale = p.alpha / (options.rslora ? std::sqrt(rank) : rank);
    Module own("LoraPart", cat("rank=", p.rank, ", alpha=", p.alpha));
    Shape down{p.rank, inside_->in}, up{p.of.rows, p.rank};
    if (experts) down.insert(0, inside_->experts), up.insert(0, inside_->experts);
    p.A = own.register_parameter("A", empty(down, DType::f32));
    p.B = own.register_parameter("B", empty(up, DType::f32));
    if (options.gaussian) {
      init::normal_(p.A, 0, 1 / rank);
    } else if (experts) {  // each as a linear map's
      const double most = 1 / std::sqrt(static_cast<double>(inside_->in));
      init::uniform_(p.A, -most, most);
    } else {
      init::kaiming_uniform_(p.A, std::sqrt(5.0));
    }
    init::zeros_(p.B);
    if (options.dora) p.magnitude = own.register_parameter("magnitude", lengths(p));
    register_module(last_word(p.of.name), own);
    inside_->parts.push_back(std::move(p));
  }
  train(map.is_training());
  Module(map).register_module(child_of(weight), static_cast<const Module&>(*this));
  if (experts)
    detail::ModuleHooks::of_module(map, true)->of_weights[weight] = std::make_shared<LoraHook>(*this);
  else
    detail::add_module_hook(map, detail::HookKind::after, std::make_shared<LoraHook>(*this));
}

// All A's, one below the other: [ranks, in], of experts [count, ranks, in].
Tensor Lora::down() const {
  if (parts().size() == 1) return parts()[0].A;
  TensorList all;
  for (const LoraPart& p : parts()) all.push_back(p.A);
  return cat(all, -2);
}

// The B's, scaled, each in its rows and beside the others: [out, ranks], of experts [count, out, ranks].
Tensor Lora::up() const {
  int64_t ranks = 0, before = 0;
  for (const LoraPart& p : parts()) ranks += p.rank;
  Tensor all;
  for (const LoraPart& p : parts()) {
    const int64_t after = ranks - before - p.rank, below = inside_->out - p.of.first - p.of.rows;
    Tensor own = p.B * p.scale;
    if (ranks != p.rank || inside_->out != p.of.rows) own = pad(own, {before, after, p.of.first, below});
    all = all.defined() ? all + own : own;
    before += p.rank;
  }
  return all;
}

// The weight as a matrix: of a packed one, what its codes stand for.
Tensor Lora::dense(DType dtype) const {
  return inside_->packed.empty() ? inside_->weight.to(dtype) : dense_weight(inside_->packed).to(dtype);
}

// The lengths of the rows of the sum, a constant to the gradient (arXiv:2402.09353, section 4.3).
Tensor Lora::lengths(const LoraPart& part) const {
  const NoGrad guard;
  const AutocastScope exact(DType::bf16, false);
  return linalg_vector_norm(rows_of(dense(part.A.dtype()), part.of) + addition(part), 2, Dims{1});
}

Tensor Lora::forward(const Tensor& x, const Tensor& y, const Tensor& offsets) const {
  if (inside_->merged || t_without) return y;
  check(offsets.defined() == (inside_->experts > 0), kOp,
        "offsets of rows are for adapters of experts, and wanted by them");
  const ModuleCall in(*this);
  const bool drops = inside_->form.dropout > 0 && is_training();
  Tensor from = autocast_enabled() ? x : x.to(parts()[0].A.dtype());
  if (drops) from = dropout(from, inside_->form.dropout);
  // Products so thin are not for eight bits.
  std::optional<AutocastScope> sixteen;
  if (AutocastSettings now = autocast_settings(); autocast_enabled() && now.fp8) {
    now.fp8 = nullptr;
    sixteen.emplace(std::move(now));
  }
  const auto through = [&](const Tensor& rows, const Tensor& w) {
    return offsets.defined() ? grouped_linear(rows, w, offsets) : linear(rows, w);
  };
  const Tensor added = through(through(from, down()), up());
  sixteen.reset();
  if (!inside_->form.dora) return (y + added).to(y.dtype());
  Tensor growth;  // [out]: magnitude over length, less 1; 0 in rows without an adapter
  for (const LoraPart& p : parts()) {
    const int64_t below = inside_->out - p.of.first - p.of.rows;
    const Tensor own = pad(p.magnitude / lengths(p) - 1, {p.of.first, below});
    growth = growth.defined() ? growth + own : own;
  }
  // What the weight alone makes of the input, which with dropout is another than the call had.
  const Tensor base = drops                     ? linear(from, dense(from.dtype()))
                      : inside_->bias.defined() ? y - inside_->bias.to(y.dtype())
                                                : y;
  return (y + growth * base + (growth + 1) * added).to(y.dtype());
}

// Adds B A to the weight, or takes it out again. Experts go one after the other, so that one's sum is there at a time.
void Lora::change(bool in) const {
  const NoGrad guard;
  const AutocastScope exact(DType::bf16, false);
  std::vector<Tensor> growths;
  for (size_t i = 0; i < parts().size(); ++i) {
    const LoraPart& p = parts()[i];
    for (int64_t e = 0; e < std::max<int64_t>(inside_->experts, 1); ++e) {
      const bool one = inside_->experts > 0;
      Tensor rows = rows_of(one ? inside_->weight.detach().select(0, e) : inside_->weight, p.of);
      const Tensor more = addition(one ? of_expert(p, e) : p);
      Tensor sum = rows.to(p.A.dtype());
      if (in) {
        sum = sum + more;
        if (inside_->form.dora) {
          growths.push_back((p.magnitude / lengths(p)).unsqueeze(1).detach());
          sum = sum * growths.back();
        }
      } else {
        if (inside_->form.dora) sum = sum / inside_->merged_growth[i];
        sum = sum - more;
      }
      rows.copy_(sum);
    }
  }
  inside_->merged_growth = std::move(growths);
  inside_->merged = in;
}

void Lora::merge() const {
  check(!inside_->merged, "merge_lora", "the adapters of '", path(), "' are merged already");
  check(inside_->packed.empty(), "merge_lora", "the weight of '", path(),
        "' is packed: unpack it (unpack_linear), or merge into the weights that it was made from");
  change(true);
}

void Lora::unmerge() const {
  check(inside_->merged, "unmerge_lora", "the adapters of '", path(), "' are not merged");
  change(false);
}

Tensor detail::with_expert_lora(const Module& experts, std::string_view weight, const Tensor& rows, const Tensor& y,
                                const Tensor& offsets) {
  if (modules_with_hooks.load(std::memory_order_relaxed) == 0) return y;
  const LoraHook* hook = hook_of(experts, weight);
  return hook ? hook->lora.forward(rows, y, offsets) : y;
}
bool detail::has_expert_lora(const Module& experts) {
  return std::ranges::any_of(kStacked, [&](const char* weight) { return hook_of(experts, weight) != nullptr; });
}

namespace {

// Modules that compute with the weight of a child instead of calling it.
constexpr std::string_view kReadsWeights[] = {"MultiheadAttention"};

// Of patterns alone, and of patterns with values.
const std::string& text_of(const std::string& pattern) {
  return pattern;
}
template <class T>
const std::string& text_of(const std::pair<std::string, T>& pattern) {
  return pattern.first;
}

// The first pattern that names the part, nullptr where none does; all that do are added to `used`.
template <class P>
const P* named(const std::vector<P>& patterns, const std::string& path, const LinearPart& part,
               std::set<std::string>& used) {
  const P* first = nullptr;
  for (const P& p : patterns) {
    if (!is_named(path, text_of(p)) && !is_named(part.name, text_of(p))) continue;
    used.insert(text_of(p));
    if (first == nullptr) first = &p;
  }
  return first;
}

// What experts' patterns have and others have not.
constexpr std::string_view kExpertWord = "experts";

// Whether a pattern may choose the map: experts are named by their word.
bool may_choose(const LinearMap& map, const std::string& pattern) {
  return map.weight.empty() || is_named(pattern, kExpertWord);
}

bool share_rows(const LinearPart& a, const LinearPart& b) {
  return a.first < b.first + b.rows && b.first < a.first + a.rows;
}

// Of experts the name from their word on.
std::string short_name(const LinearMap& map, const LinearPart& part) {
  if (map.weight.empty()) return last_word(part.name);
  const size_t at = part.name.rfind(cat('.', kExpertWord, '.'));
  return at == std::string::npos ? part.name : part.name.substr(at + 1);
}

std::string names_of(const std::vector<LinearMap>& maps) {
  std::set<std::string> words;
  for (const LinearMap& m : maps)
    for (const LinearPart& p : m.parts) words.insert(short_name(m, p));
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text.empty() ? "it has no linear map" : "its maps are named " + text;
}

}  // namespace

std::vector<LinearMap> linear_maps(const Module& root, const LinearParts& parts) {
  std::vector<LinearMap> maps;
  std::vector<std::string> closed;
  for (const auto& [path, part] : root.named_modules()) {
    if (std::ranges::find(kReadsWeights, part.kind()) != std::end(kReadsWeights)) closed.push_back(path);
    const bool inside =
        std::ranges::any_of(closed, [&](const std::string& p) { return p.empty() || path.starts_with(p + "."); });
    if (part.kind() != kMap || inside) continue;
    const Shape shape = shape_of(part);
    const auto given = parts.find(path);
    LinearMap map{path, part, shape,
                  given == parts.end() ? std::vector<LinearPart>{{path.empty() ? part.kind() : path, 0, shape[0]}}
                                       : given->second};
    check_parts(path, map.parts, shape[0]);
    maps.push_back(std::move(map));
  }
  return maps;
}

std::vector<LinearMap> expert_maps(const Module& root, const LinearParts& parts) {
  std::vector<LinearMap> maps;
  for (const auto& [path, part] : root.named_modules()) {
    if (part.kind() != kExperts) continue;
    for (const char* weight : kStacked) {
      const std::string name = path.empty() ? std::string(weight) : cat(path, '.', weight);
      const Shape shape = part.parameter(weight).shape();
      const auto given = parts.find(name);
      LinearMap map{name, part, shape,
                    given == parts.end() ? std::vector<LinearPart>{{name, 0, shape[1]}} : given->second, weight};
      check(!map.parts.empty(), kOp, "'", name, "' has no parts");
      for (const LinearPart& p : map.parts) check_range(name, p, shape[1]);
      maps.push_back(std::move(map));
    }
  }
  return maps;
}

std::vector<std::string> add_lora(const Module& root, const LoraOptions& o, const LinearParts& parts) {
  constexpr std::string_view op = "add_lora";
  check_dropout(o.dropout);
  std::vector<LinearMap> maps = linear_maps(root, parts);
  for (LinearMap& m : expert_maps(root, parts)) maps.push_back(std::move(m));
  // Patterns that name something, and, of those that give a rank or an alpha, something that gets an adapter.
  std::set<std::string> used, given;
  std::vector<std::pair<const LinearMap*, std::vector<LoraPart>>> wanted;
  std::vector<std::string> names;
  for (const LinearMap& m : maps) {
    std::vector<LoraPart> own;
    std::vector<std::string> targets;
    for (const std::string& pattern : o.targets)
      if (may_choose(m, pattern)) targets.push_back(pattern);
    for (const LinearPart& p : m.parts) {
      const bool targeted = named(targets, m.path, p, used) || (o.targets.empty() && m.weight.empty());
      if (!targeted || named(o.exclude, m.path, p, used)) continue;
      if (std::ranges::any_of(own, [&](const LoraPart& taken) { return share_rows(taken.of, p); })) continue;
      LoraPart part{.of = p, .A = {}, .B = {}, .magnitude = {}};
      const auto* rank = named(o.rank_pattern, m.path, p, given);
      const auto* alpha = named(o.alpha_pattern, m.path, p, given);
      part.rank = rank != nullptr ? rank->second : o.rank;
      part.alpha = alpha != nullptr ? alpha->second : o.alpha;
      check_part(part);
      names.push_back(p.name);
      own.push_back(std::move(part));
    }
    check(own.empty() || !hook_of(m.module, m.weight), op, "'", m.path, "' has adapters already");
    check(own.empty() || m.weight.empty() || !o.dora, op, "adapters of experts have no learned lengths (dora): leave '",
          m.path, "' out of the targets");
    if (!own.empty()) wanted.emplace_back(&m, std::move(own));
  }
  for (const std::string& pattern : o.targets)
    check(used.contains(pattern), op, "no linear map of the ", root.kind(), " is named '", pattern, "'; ",
          names_of(maps));
  const auto check_given = [&](const auto& patterns, std::string_view what) {
    for (const auto& [pattern, value] : patterns)
      check(given.contains(pattern), op, "no linear map that gets an adapter is named '", pattern, "', which is given ",
            what, "; the ", root.kind(), ": ", names_of(maps));
  };
  check(!wanted.empty(), op, "no linear map of the ", root.kind(), " is left to adapt; ", names_of(maps));
  check_given(o.rank_pattern, "a rank");
  check_given(o.alpha_pattern, "an alpha");
  Module(root).requires_grad(false);
  for (const auto& [map, own] : wanted) Lora(map->module, own, o, map->weight);
  return names;
}

std::string AdaptedMap::weight_name() const {
  if (!weight.empty()) return path;
  return path.empty() ? "weight" : path + ".weight";
}

std::vector<AdaptedMap> adapted_maps(const Module& root) {
  std::vector<AdaptedMap> all;
  for (const auto& [path, part] : root.named_modules()) {
    const std::string inside = path.empty() ? std::string() : path + ".";
    if (const LoraHook* hook = hook_of(part)) all.push_back({path, part, hook->lora, inside + child_of({})});
    for (const char* weight : kStacked)
      if (const LoraHook* hook = hook_of(part, weight))
        all.push_back({inside + weight, part, hook->lora, inside + child_of(weight), weight});
  }
  return all;
}

NamedTensors lora_parameters(const Module& root) {
  NamedTensors all;
  for (const AdaptedMap& m : adapted_maps(root))
    for (auto& entry : m.lora.named_parameters(m.lora_path)) all.push_back(std::move(entry));
  return all;
}

void merge_lora(const Module& root) {
  for (const AdaptedMap& m : adapted_maps(root))
    if (!m.lora.is_merged()) m.lora.merge();
}
void unmerge_lora(const Module& root) {
  for (const AdaptedMap& m : adapted_maps(root))
    if (m.lora.is_merged()) m.lora.unmerge();
}

void remove_lora(const Module& root) {
  for (const AdaptedMap& m : adapted_maps(root)) {
    hook_of(m.map, m.weight)->removed = true;
    if (!m.weight.empty()) detail::ModuleHooks::of_module(m.map, true)->of_weights.erase(m.weight);
    detail::ModuleHooks::forget(m.map, child_of(m.weight));
  }
}

WithoutLora::WithoutLora() : before_(t_without) {
  t_without = true;
}
WithoutLora::~WithoutLora() {
  t_without = before_;
}

}  // namespace strata::nn
