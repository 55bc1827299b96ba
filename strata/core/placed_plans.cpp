#include "strata/core/placed_plans_inl.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace strata::detail {
namespace {

uint64_t hash_of(std::span<const uint64_t> words) {
  uint64_t h = words.size();
  for (const uint64_t w : words) {
    h = (h ^ w) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

void append_words(std::vector<uint64_t>& words, const MeshPlace& mesh) {
  words.push_back(mesh.axes.size());
  for (const MeshPlace::Axis& a : mesh.axes) {
    append_text(words, a.name);
    words.push_back(static_cast<uint64_t>(static_cast<uint32_t>(a.size)) << 32 | static_cast<uint32_t>(a.place));
  }
}

void append_words(std::vector<uint64_t>& words, const Placement& p) {
  words.push_back(static_cast<uint64_t>(p.kind) << 32 | (p.is_shard() && p.part ? 1U << 31 : 0U) |
                  static_cast<uint32_t>(p.is_shard() ? p.dim : 0));
  if (p.is_shard()) {
    words.push_back(static_cast<uint64_t>(p.unit));
    words.push_back(p.segments.size());
    for (const int64_t n : p.segments) words.push_back(static_cast<uint64_t>(n));
  } else if (p.is_partial()) {
    append_text(words, p.reduction);
  }
}

}  // namespace

void append_text(std::vector<uint64_t>& words, std::string_view text) {
  words.push_back(text.size());
  for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
    uint64_t w = 0;
    std::memcpy(&w, text.data() + at, std::min(sizeof w, text.size() - at));
    words.push_back(w);
  }
}

void append_words(std::vector<uint64_t>& words, const Dims& d) {
  words.push_back(static_cast<uint64_t>(d.size()));
  for (const int64_t n : d) words.push_back(static_cast<uint64_t>(n));
}

void append_words(std::vector<uint64_t>& words, const Value& v) {
  words.push_back(v.index());
  if (const auto* n = std::get_if<int64_t>(&v)) {
    words.push_back(static_cast<uint64_t>(*n));
  } else if (const auto* d = std::get_if<Dims>(&v)) {
    append_words(words, *d);
  } else if (const auto* x = std::get_if<double>(&v)) {
    words.push_back(std::bit_cast<uint64_t>(*x));
  } else if (const auto* b = std::get_if<bool>(&v)) {
    words.push_back(*b ? 1 : 0);
  } else if (const auto* s = std::get_if<Scalar>(&v)) {
    words.push_back(static_cast<uint64_t>(s->kind()));
    words.push_back(s->kind() == DType::f64 ? std::bit_cast<uint64_t>(s->to_double())
                                            : static_cast<uint64_t>(s->to_int()));
  } else if (const auto* text = std::get_if<std::string>(&v)) {
    append_text(words, *text);
  } else if (const auto* t = std::get_if<DType>(&v)) {
    words.push_back(static_cast<uint64_t>(*t));
  } else if (const auto* where = std::get_if<Device>(&v)) {
    words.push_back(static_cast<uint64_t>(where->type) << 8 | static_cast<uint8_t>(where->index));
  }
}

void append_words(std::vector<uint64_t>& words, const Tensor& t, const MeshPlace*& mesh) {
  if (!t.defined()) return words.push_back(0);
  const TensorImpl& x = t.impl();
  const bool placed = is_handle(x);
  words.push_back(1 | uint64_t{placed} << 1 | uint64_t{x.wrapped_number} << 2 | static_cast<uint64_t>(x.dtype) << 8 |
                  static_cast<uint64_t>(x.device.type) << 16 |
                  static_cast<uint64_t>(static_cast<uint8_t>(x.device.index)) << 24);
  append_words(words, x.shape);
  for (const int64_t n : x.strides) words.push_back(static_cast<uint64_t>(n));
  if (!placed) return;
  const Layout& layout = *layout_of(t);
  const MeshPlace* const own = layout.mesh.get();
  if (mesh && (own == mesh || *own == *mesh)) {
    words.push_back(0);
  } else {
    words.push_back(1);
    append_words(words, *own);
    if (!mesh) mesh = own;
  }
  for (const Placement& p : layout.placements) append_words(words, p);
}

PlacedPlans& PlacedPlans::mine() {
  static thread_local PlacedPlans plans;
  return plans;
}

std::shared_ptr<const PlacedPlan> PlacedPlans::find(std::span<const uint64_t> key) {
  const uint64_t hash = hash_of(key);
  const auto is_it = [&](const Generation& g, const Generation::const_iterator& e) {
    return e != g.end() && std::equal(key.begin(), key.end(), e->second.key.begin(), e->second.key.end());
  };
  if (const auto e = newer_.find(hash); is_it(newer_, e)) {
    ++found_;
    return e->second.plan;
  }
  const auto e = older_.find(hash);
  if (!is_it(older_, e)) return nullptr;
  ++found_;
  std::shared_ptr<const PlacedPlan> plan = e->second.plan;
  Entry entry = std::move(e->second);
  older_.erase(e);
  put(hash, std::move(entry));
  return plan;
}

void PlacedPlans::keep(std::vector<uint64_t> key, std::shared_ptr<const PlacedPlan> plan) {
  const uint64_t hash = hash_of(key);
  older_.erase(hash);
  put(hash, {std::move(key), std::move(plan)});
}

void PlacedPlans::put(uint64_t hash, Entry entry) {
  if (newer_.size() >= kMost) {
    older_ = std::move(newer_);
    newer_ = {};
  }
  newer_.insert_or_assign(hash, std::move(entry));
}

void PlacedPlans::clear() {
  newer_.clear();
  older_.clear();
}

}  // namespace strata::detail
