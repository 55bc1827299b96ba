#include "strata/nn/packed.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/rebind.h"
#include "strata/memory/allocator.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/layer_error_inl.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

constexpr std::string_view kPack = "pack_linear";
constexpr std::string_view kBlocks = "blocks";  // beside the parts: i64 [3], columns and the sizes of blocks

Tensor& part_of(PackedWeight& w, std::string_view name, std::string_view op) {
  const std::pair<std::string_view, Tensor*> all[] = {
      {"codes", &w.codes}, {"scales", &w.scales}, {"zeros", &w.zeros}, {"order", &w.order}, {"nested", &w.nested}};
  for (const auto& [known, t] : all)
    if (known == name) return *t;
  throw ValueError(op, cat("a packed weight has no part \"", name, "\""));
}

// What a packed Linear computes with.
struct PackedForward final : detail::Replacement {
  std::vector<PackedWeight> weights;  // one below the other; their parts are the buffers: to(device) moves them
  Tensor slot, bias;                  // what was the parameter, and what still is one

  Tensor forward(const Tensor& x) const override {
    if (weights.size() == 1) return packed_linear(x, weights[0], bias);
    TensorList columns;
    int64_t first = 0;
    for (const PackedWeight& w : weights) {
      columns.push_back(packed_linear(x, w, bias.defined() ? bias.narrow(0, first, w.rows) : Tensor()));
      first += w.rows;
    }
    return cat(columns, -1);
  }
};
std::shared_ptr<const PackedForward> forward_of(const Module& module) {
  const detail::ModuleHooks* hooks = detail::ModuleHooks::of_module(module, false);
  return hooks ? std::dynamic_pointer_cast<const PackedForward>(hooks->instead) : nullptr;
}

std::optional<Tensor> own_parameter(const Module& module, std::string_view name) {
  for (const auto& [n, t] : module.named_parameters())
    if (n == name) return t;
  return {};
}

// Modules with the parts as buffers, which `w`'s become: "int4.codes" and so on. That the format's name is theirs too
// keeps a state from being loaded into another format. Of several matrices each has a module, by its number.
Module holder_of(std::vector<PackedWeight>& all) {
  Module holder("PackedWeight");
  for (size_t i = 0; all.size() > 1 && i < all.size(); ++i) {
    std::vector<PackedWeight> one{all[i]};
    holder.register_module(std::to_string(i), holder_of(one));
    all[i] = one[0];
  }
  if (all.size() > 1) return holder;
  PackedWeight& w = all[0];
  Module parts("PackedParts", cat(w.rows, " x ", w.columns));
  const memory::TagScope tag(memory::Tag::parameter);
  for (const auto& [name, t] : w.parts()) part_of(w, name, kPack) = parts.register_buffer(name, t);
  parts.register_buffer(std::string(kBlocks),
                        from_span<int64_t>(std::vector<int64_t>{w.columns, w.block_rows, w.block_columns}, {3}));
  holder.register_module(std::string(w.format->name), parts);
  return holder;
}

// The slot shows a tensor without memory, or that of `value`; nothing else of it stays.
void show(const Tensor& slot, const Tensor& value) {
  Tensor(slot).set_grad({});
  AutogradMeta& tape = autograd_meta(slot);
  tape.low = {};
  rebind(slot, value);
  slot.impl().requires_grad = false;
}

// Parameters that several modules have, or whose module reads them without calling the layer.
std::set<const TensorImpl*> not_alone(const Module& module) {
  std::map<const TensorImpl*, int> owners;
  std::set<const TensorImpl*> found;
  for (const auto& [name, part] : module.named_modules()) {
    std::set<const TensorImpl*> below;
    for (const auto& [child_name, child] : part.named_children())
      for (const Tensor& t : child.parameters()) below.insert(&t.impl());
    for (const auto& [own_name, t] : part.named_parameters())
      if (own_name.find('.') == std::string::npos && ++owners[&t.impl()] > 1) found.insert(&t.impl());
    if (part.kind() == "MultiheadAttention") found.insert(below.begin(), below.end());
  }
  return found;
}

bool skipped(const std::string& name, const std::vector<std::string>& skip) {
  const std::string whole = "." + name + ".";
  return std::ranges::any_of(skip,
                             [&](const std::string& s) { return whole.find("." + s + ".") != std::string::npos; });
}

double norm_of(const Tensor& t) {
  return std::sqrt((t * t).sum().item());
}

}  // namespace

void pack_linear(const Module& linear, const PackedWeight& weight) {
  pack_linear(linear, std::vector<PackedWeight>{weight});
}

void pack_linear(const Module& linear, const std::vector<PackedWeight>& rows) {
  check(linear.kind() == "Linear", kPack, "wants a Linear, got a ", linear.kind(), " at \"", linear.path(), "\"");
  check(!rows.empty(), kPack, "wants a matrix for \"", linear.path(), "\"");
  const Shape shape = dense_shape(rows);
  for (const PackedWeight& w : rows) {
    detail::of_layer(kPack, linear.path(), [&] { w.check({}); });
    check<ShapeError>(w.columns == shape[1], kPack, "matrices for \"", linear.path(), "\" have ", shape[1], " and ",
                      w.columns, " columns");
    check<DeviceError>(w.codes.device() == rows[0].codes.device(), kPack, "codes for \"", linear.path(), "\" are ",
                       rows[0].codes, " and ", w.codes);
  }
  const NoGrad guard;
  auto made = std::make_shared<PackedForward>();
  made->weights = rows;
  if (const std::shared_ptr<const PackedForward> before = forward_of(linear)) {
    made->slot = before->slot, made->bias = before->bias;
  } else {
    const std::optional<Tensor> slot = own_parameter(linear, "weight");
    check(slot.has_value(), kPack, "the layer at \"", linear.path(), "\" has no parameter \"weight\"");
    made->slot = *slot, made->bias = own_parameter(linear, "bias").value_or(Tensor());
  }
  check<ShapeError>(made->slot.shape() == shape, kPack, "the weight of \"", linear.path(), "\" is ", made->slot,
                    ", the packed one ", shape);
  check<DeviceError>(!made->bias.defined() || made->bias.device() == rows[0].codes.device() || made->bias.is_meta(),
                     kPack, "the bias of \"", linear.path(), "\" is ", made->bias, ", codes are ", rows[0].codes);
  const Module holder = holder_of(made->weights);
  detail::ModuleHooks& hooks = *detail::ModuleHooks::of_module(linear, true);
  detail::ModuleHooks::forget(linear, "weight");
  Module(linear).register_module("weight", holder);
  // One element however large it looks: dry runs count what meta tensors would take.
  show(made->slot, empty({{}, made->slot.dtype(), Device::meta(), std::nullopt}).expand(made->slot.shape()));
  hooks.instead = std::move(made);
}

bool is_packed(const Module& module) {
  return forward_of(module) != nullptr;
}
std::vector<PackedWeight> packed_weights(const Module& linear) {
  const std::shared_ptr<const PackedForward> forward = forward_of(linear);
  check(forward != nullptr, "packed_weight", "the ", linear.kind(), " at \"", linear.path(), "\" is not packed");
  return forward->weights;
}
PackedWeight packed_weight(const Module& linear) {
  const std::vector<PackedWeight> all = packed_weights(linear);
  check(all.size() == 1, "packed_weight", "the Linear at \"", linear.path(), "\" has ", all.size(),
        " matrices, one below the other: packed_weights() gives them");
  return all[0];
}

Shape dense_shape(const std::vector<PackedWeight>& rows) {
  check(!rows.empty(), "dense_shape", "wants a matrix");
  Shape shape{0, rows[0].columns};
  for (const PackedWeight& w : rows) shape[0] += w.rows;
  return shape;
}

Tensor dense_weight(const std::vector<PackedWeight>& rows, DType dtype) {
  check(!rows.empty(), "dense_weight", "wants a matrix");
  if (rows.size() == 1) return dequantize_weight(rows[0], dtype);
  TensorList all;
  for (const PackedWeight& w : rows) all.push_back(dequantize_weight(w, dtype));
  return cat(all, 0);
}

void unpack_linear(const Module& linear, DType dtype) {
  const std::shared_ptr<const PackedForward> forward = forward_of(linear);
  check(forward != nullptr, "unpack_linear", "the ", linear.kind(), " at \"", linear.path(), "\" is not packed");
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::parameter);
  const Tensor dense = dense_weight(forward->weights, dtype);
  detail::ModuleHooks::of_module(linear, true)->instead = nullptr;
  detail::ModuleHooks::forget(linear, "weight");
  show(forward->slot, dense);
  // Registered as it is, so that old handles show it, then frozen again.
  Tensor weight = Module(linear).register_parameter("weight", forward->slot);
  weight.set_requires_grad(false);
}

void pack_from_state(const Module& module, const StateDict& state) {
  constexpr std::string_view op = "pack_from_state";
  std::map<std::string, Module> modules;
  for (const auto& [name, part] : module.named_modules()) modules.emplace(name, part);
  std::map<std::string, std::map<int64_t, PackedWeight>> several;  // by layer
  for (const auto& [name, blocks] : state) {
    // "<layer>.weight.<format>.blocks", or without a layer; of several matrices
    // "<layer>.weight.<number>.<format>.blocks".
    const std::string end = cat(".", kBlocks);
    if (!name.ends_with(end)) continue;
    const std::string path = name.substr(0, name.size() - end.size());
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) continue;
    std::string slot = path.substr(0, dot);
    int64_t number = -1;
    if (const size_t before = slot.rfind('.'); before != std::string::npos) {
      const char* const end_of = slot.data() + slot.size();
      const auto [end_at, error] = std::from_chars(slot.data() + before + 1, end_of, number);
      if (error == std::errc() && end_at == end_of && number >= 0)
        slot.resize(before);
      else
        number = -1;
    }
    if (slot != "weight" && !slot.ends_with(".weight")) continue;
    const std::string layer = slot == "weight" ? "" : slot.substr(0, slot.size() - std::string_view(".weight").size());
    const auto found = modules.find(layer);
    check(found != modules.end(), op, "there is no layer \"", layer, "\" for \"", name, "\"");
    check<DTypeError>(blocks.dtype() == DType::i64, op, "\"", name, "\" is ", blocks, ", wants i64");
    check<ShapeError>(blocks.shape() == Shape{3}, op, "\"", name, "\" is ", blocks, ", wants [3]");
    const std::vector<int64_t> sizes = blocks.to_vector<int64_t>();
    PackedWeight w;
    w.format = &weight_format(std::string_view(path).substr(dot + 1));
    w.columns = sizes[0], w.block_rows = sizes[1], w.block_columns = sizes[2];
    const std::string prefix = path + ".";
    for (auto it = state.upper_bound(prefix); it != state.end() && it->first.starts_with(prefix); ++it)
      if (it->first != name) part_of(w, std::string_view(it->first).substr(prefix.size()), op) = it->second;
    check(w.codes.defined() && w.codes.dim() == 2, op, "\"", prefix, "codes\" is ", w.codes, ", wants a matrix");
    w.rows = w.codes.size(0);
    if (number < 0)
      pack_linear(found->second, w);
    else
      several[layer].emplace(number, w);
  }
  for (const auto& [layer, by_number] : several) {
    std::vector<PackedWeight> rows;
    for (const auto& [number, w] : by_number) {
      check(number == static_cast<int64_t>(rows.size()), op, "\"", layer, ".weight\" has a matrix ", number, " and no ",
            rows.size());
      rows.push_back(w);
    }
    pack_linear(modules.at(layer), rows);
  }
}

std::vector<std::string> packable_layers(const Module& module, const std::vector<std::string>& skip) {
  const std::set<const TensorImpl*> shared = not_alone(module);
  std::vector<std::string> names;
  for (const auto& [name, part] : module.named_modules()) {
    if (part.kind() != "Linear" || is_packed(part) || skipped(name, skip)) continue;
    const std::optional<Tensor> weight = own_parameter(part, "weight");
    if (weight && !shared.contains(&weight->impl())) names.push_back(name);
  }
  return names;
}

void detail::make_deferred(const Module& module, const PackOptions& options) {
  std::set<std::string> later;
  for (const std::string& layer : packable_layers(module, options.skip)) later.insert(cat(layer, ".weight"));
  make_deferred(module, later);
}

void detail::make_deferred(const Module& module, const std::set<std::string>& but) {
  const memory::TagScope tag(memory::Tag::parameter);
  for (const auto& [name, p] : module.named_parameters())
    if (p.is_meta() && static_cast<int64_t>(p.storage()->nbytes) < p.nbytes() && !but.contains(name))
      rebind(p, empty({p.shape(), p.dtype(), default_device(), std::nullopt}));
}

PackedWeight detail::rounded_weight(const std::string& layer, const Tensor& weight, std::string_view format,
                                    const QuantizeOptions& rounding) {
  return detail::of_layer("quantize", layer, [&] { return quantize_weight(weight, format, rounding); });
}

std::vector<PackedLayer> quantize(const Module& module, std::string_view format, const PackOptions& options) {
  const NoGrad guard;
  std::map<std::string, Module> modules;
  for (const auto& [name, part] : module.named_modules()) modules.emplace(name, part);
  std::vector<PackedLayer> made;
  for (const std::string& name : packable_layers(module, options.skip)) {
    const Module& layer = modules.at(name);
    const Tensor weight = *own_parameter(layer, "weight");
    const PackedWeight w = detail::rounded_weight(name, weight, format, options.rounding);
    const Tensor near = weight.detach().to(Device::cpu()).to(DType::f32);
    const double size = norm_of(near);
    made.push_back({name, w.bits(), size == 0 ? 0 : norm_of(near - dequantize_weight(w)) / size, 0});
    pack_linear(layer, moved(w, weight.device()));
  }
  return made;
}

}  // namespace strata::nn
