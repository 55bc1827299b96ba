#include "strata/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/nn/init.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/nn/name_pattern.h"
#include "strata/nn/packed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"

namespace strata::nn {
namespace {

constexpr std::string_view kOp = "Lora", kChild = "lora", kMap = "Linear";

thread_local bool t_without = false;

// The module behind whose call the adapters stand.
struct LoraHook final : detail::ModuleHook {
  explicit LoraHook(Lora adapters) : lora(std::move(adapters)) {}
  Tensor call(const Module&, const Tensor& x, const Tensor& y) override { return lora.forward(x, y); }
  Lora lora;
};

LoraHook* hook_of(const Module& map) {
  detail::ModuleHooks* hooks = detail::ModuleHooks::of_module(map, false);
  if (!hooks) return nullptr;
  for (const auto& hook : hooks->of(detail::HookKind::after))
    if (auto* found = dynamic_cast<LoraHook*>(hook.get()); found && !found->removed) return found;
  return nullptr;
}

std::string last_word(std::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

Tensor rows_of(const Tensor& weight, const LinearPart& part) {
  return weight.narrow(0, part.first, part.rows);
}

// [out, in] of a map whose weight may be packed.
Shape shape_of(const Module& map) {
  return is_packed(map) ? dense_shape(packed_weights(map)) : map.parameter("weight").shape();
}

// B A scale, [rows, in] in f32.
Tensor addition(const LoraPart& part) {
  return matmul(part.B, part.A) * part.scale;
}

// Throws unless the parts lie within `out` rows, apart, and have last words of their own.
void check_parts(const std::string& path, std::vector<LinearPart> parts, int64_t out) {
  check(!parts.empty(), kOp, "'", path, "' has no parts");
  std::set<std::string> words;
  for (const LinearPart& p : parts) {
    check(p.first >= 0 && p.rows > 0 && p.first <= out && p.rows <= out - p.first, kOp, "'", p.name, "' is rows ",
          p.first, " to ", p.first + p.rows, " of '", path, "', which has ", out);
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

Lora::Lora(const Module& map, const std::vector<LoraPart>& parts, const LoraOptions& options)
    : Module("Lora"), inside_(std::make_shared<Inside>()) {
  check(map.kind() == kMap, kOp, "adapters are for linear maps, not for a ", map.kind());
  const Shape shape = shape_of(map);
  if (is_packed(map))
    inside_->packed = packed_weights(map);
  else
    inside_->weight = map.parameter("weight");
  for (const auto& [name, p] : map.named_parameters())
    if (name == "bias") inside_->bias = p;
  inside_->in = shape[1];
  inside_->out = shape[0];
  inside_->form = {options.dropout, options.rslora, options.dora};
  check(hook_of(map) == nullptr, kOp, "'", map.path(), "' has adapters already");
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
    p.A = own.register_parameter("A", empty({p.rank, inside_->in}, DType::f32));
    p.B = own.register_parameter("B", empty({p.of.rows, p.rank}, DType::f32));
    if (options.gaussian)
      init::normal_(p.A, 0, 1 / rank);
    else
      init::kaiming_uniform_(p.A, std::sqrt(5.0));
    init::zeros_(p.B);
    if (options.dora) p.magnitude = own.register_parameter("magnitude", lengths(p));
    register_module(last_word(p.of.name), own);
    inside_->parts.push_back(std::move(p));
  }
  train(map.is_training());
  Module(map).register_module(std::string(kChild), static_cast<const Module&>(*this));
  detail::add_module_hook(map, detail::HookKind::after, std::make_shared<LoraHook>(*this));
}

// All A's, one below the other: [ranks, in].
Tensor Lora::down() const {
  if (parts().size() == 1) return parts()[0].A;
  TensorList all;
  for (const LoraPart& p : parts()) all.push_back(p.A);
  return cat(all, 0);
}

// The B's, scaled, each in its rows and beside the others: [out, ranks].
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

Tensor Lora::forward(const Tensor& x, const Tensor& y) const {
  if (inside_->merged || t_without) return y;
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
  const Tensor added = linear(linear(from, down()), up());
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

void Lora::merge() const {
  check(!inside_->merged, "merge_lora", "the adapters of '", path(), "' are merged already");
  check(inside_->packed.empty(), "merge_lora", "the weight of '", path(),
        "' is packed: unpack it (unpack_linear), or merge into the weights that it was made from");
  const NoGrad guard;
  const AutocastScope exact(DType::bf16, false);
  inside_->merged_growth.clear();
  for (const LoraPart& p : parts()) {
    Tensor rows = rows_of(inside_->weight, p.of);
    Tensor sum = rows.to(p.A.dtype()) + addition(p);
    if (inside_->form.dora) {
      const Tensor growth = (p.magnitude / lengths(p)).unsqueeze(1).detach();
      inside_->merged_growth.push_back(growth);
      sum = sum * growth;
    }
    rows.copy_(sum);
  }
  inside_->merged = true;
}

void Lora::unmerge() const {
  check(inside_->merged, "unmerge_lora", "the adapters of '", path(), "' are not merged");
  const NoGrad guard;
  const AutocastScope exact(DType::bf16, false);
  for (size_t i = 0; i < parts().size(); ++i) {
    const LoraPart& p = parts()[i];
    Tensor rows = rows_of(inside_->weight, p.of);
    Tensor sum = rows.to(p.A.dtype());
    if (inside_->form.dora) sum = sum / inside_->merged_growth[i];
    rows.copy_(sum - addition(p));
  }
  inside_->merged = false;
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

std::string names_of(const std::vector<LinearMap>& maps) {
  std::set<std::string> words;
  for (const LinearMap& m : maps)
    for (const LinearPart& p : m.parts) words.insert(last_word(p.name));
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

std::vector<std::string> add_lora(const Module& root, const LoraOptions& o, const LinearParts& parts) {
  constexpr std::string_view op = "add_lora";
  check_dropout(o.dropout);
  const std::vector<LinearMap> maps = linear_maps(root, parts);
  // Patterns that name something, and, of those that give a rank or an alpha, something that gets an adapter.
  std::set<std::string> used, given;
  std::vector<std::pair<const LinearMap*, std::vector<LoraPart>>> wanted;
  std::vector<std::string> names;
  for (const LinearMap& m : maps) {
    std::vector<LoraPart> own;
    for (const LinearPart& p : m.parts) {
      const bool targeted = named(o.targets, m.path, p, used) || o.targets.empty();
      if (!targeted || named(o.exclude, m.path, p, used)) continue;
      LoraPart part{.of = p, .A = {}, .B = {}, .magnitude = {}};
      const auto* rank = named(o.rank_pattern, m.path, p, given);
      const auto* alpha = named(o.alpha_pattern, m.path, p, given);
      part.rank = rank != nullptr ? rank->second : o.rank;
      part.alpha = alpha != nullptr ? alpha->second : o.alpha;
      check_part(part);
      names.push_back(p.name);
      own.push_back(std::move(part));
    }
    check(own.empty() || !hook_of(m.module), op, "'", m.path, "' has adapters already");
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
  for (const auto& [map, own] : wanted) Lora(map->module, own, o);
  return names;
}

std::vector<AdaptedMap> adapted_maps(const Module& root) {
  std::vector<AdaptedMap> all;
  for (const auto& [path, part] : root.named_modules())
    if (const LoraHook* hook = hook_of(part)) all.push_back({path, part, hook->lora});
  return all;
}

NamedTensors lora_parameters(const Module& root) {
  NamedTensors all;
  for (const AdaptedMap& m : adapted_maps(root))
    for (auto& entry :
         m.lora.named_parameters(m.path.empty() ? std::string(kChild) : m.path + "." + std::string(kChild)))
      all.push_back(std::move(entry));
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
    hook_of(m.map)->removed = true;
    detail::ModuleHooks::forget(m.map, kChild);
  }
}

WithoutLora::WithoutLora() : before_(t_without) {
  t_without = true;
}
WithoutLora::~WithoutLora() {
  t_without = before_;
}

}  // namespace strata::nn
