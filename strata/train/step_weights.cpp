#include "strata/train/step_weights_inl.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "strata/core/dtype.h"

namespace strata {
namespace {

using memory::Tag;

// Of a module's name the block that it is in: "blocks.3" of "blocks.3.attn.qkv".
std::string turn_of(const RecordedCall& c) {
  if (!c.module) return {};
  constexpr std::string_view kBlocks = "blocks.";
  const size_t from = c.module->starts_with(kBlocks) ? kBlocks.size() : 0;
  return c.module->substr(0, c.module->find('.', from));
}

bool is_head_loss(const RecordedCall& c) {
  return !c.composed && c.op->name().starts_with("linear_cross_entropy");
}

class Finder {
 public:
  Finder(Recording& step, bool renewed) : step_(step), renewed_(renewed) {}

  StepWeights run() {
    find_casts();
    const bool low = !copies_.empty();
    std::set<int32_t> turns, in_place;
    for (size_t i = 0; i < step_.calls.size(); ++i) {
      const RecordedCall& c = step_.calls[i];
      if (!step_.is_work(i) || c.phase == Phase::update || (renewed_ && is_cast(i))) continue;
      const bool rows = c.op->name() == "embedding", head = low && is_head_loss(c);
      for (const RecordedArg& a : c.args) {
        const auto* v = std::get_if<ValueIndex>(&a);
        if (!v || v->at < 0) continue;
        const int32_t s = step_.values[static_cast<size_t>(v->at)].storage;
        const bool copy = copies_.contains(s);
        if (!copy && storage(s).tag != Tag::parameter) continue;
        (!copy && (rows || head || is_cast(i)) ? in_place : turns).insert(s);
        if (!copy && head && renewed_) heads_[s].push_back(i);
      }
    }
    for (const int32_t s : turns) in_place.erase(s);
    add_heads();
    const auto n = static_cast<int32_t>(step_.calls.size());
    for (size_t i = 0; i < step_.storages.size(); ++i) {
      const auto s = static_cast<int32_t>(i);
      const RecordedStorage& r = step_.storages[i];
      const bool copy = copies_.contains(s);
      if (copy) found_.copied += r.nbytes;
      if (!copy && (r.tag != Tag::parameter || r.born >= 0 || r.freed < n || r.nbytes == 0)) continue;
      if (!copy) {
        found_.bytes += r.nbytes;
        found_.largest = std::max(found_.largest, r.nbytes);
      }
      (copy || turns.contains(s) ? found_.by_turns
       : in_place.contains(s)    ? found_.in_place
                                 : found_.at_rest)
          .push_back(s);
    }
    measure_turns();
    // Which no warm step makes: nothing is read or written.
    for (const int32_t cast : found_.casts) {
      if (!renewed_) break;
      RecordedCall& c = step_.calls[static_cast<size_t>(cast)];
      c.args.clear();
      c.results.clear();
    }
    return std::move(found_);
  }

 private:
  RecordedStorage& storage(int32_t s) { return step_.storages[static_cast<size_t>(s)]; }
  bool is_cast(size_t call) const {
    return std::binary_search(found_.casts.begin(), found_.casts.end(), static_cast<int32_t>(call));
  }

  // Copies of whole parameters in low precision that outlive the step, or were there before it.
  void find_casts() {
    const auto n = static_cast<int32_t>(step_.calls.size());
    for (size_t i = 0; i < step_.calls.size(); ++i) {
      const RecordedCall& c = step_.calls[i];
      if (c.phase != Phase::forward || c.composed || c.op->name() != "to" || c.results.empty()) continue;
      const auto* from = std::get_if<ValueIndex>(&c.args[0]);
      if (!from || from->at < 0 || c.results[0].at < 0) continue;
      const RecordedValue& result = step_.values[static_cast<size_t>(c.results[0].at)];
      const RecordedValue& given = step_.values[static_cast<size_t>(from->at)];
      if (!is_reduced_floating(result.dtype) || storage(given.storage).tag != Tag::parameter) continue;
      if (storage(result.storage).freed < n || !(result.shape == given.shape)) continue;
      found_.casts.push_back(static_cast<int32_t>(i));
      copies_.insert(result.storage);
      if (renewed_) storage(result.storage).born = -1;
    }
    // Those of the step before are replaced by these; without any, they serve.
    for (size_t s = 0; s < step_.storages.size(); ++s) {
      RecordedStorage& r = step_.storages[s];
      if (r.tag != Tag::activation || r.born >= 0 || copies_.contains(static_cast<int32_t>(s))) continue;
      if (r.freed < n && renewed_ && !found_.casts.empty() && is_weight_like(static_cast<int32_t>(s))) r.nbytes = 0;
      if (r.freed >= n && found_.casts.empty() && is_weight_like(static_cast<int32_t>(s)))
        copies_.insert(static_cast<int32_t>(s));
    }
  }
  // A matrix in low precision, of as many elements as a parameter in f32.
  bool is_weight_like(int32_t s) const {
    const int64_t nbytes = step_.storages[static_cast<size_t>(s)].nbytes;
    return std::ranges::any_of(
               step_.storages,
               [&](const RecordedStorage& r) { return r.tag == Tag::parameter && r.nbytes == 2 * nbytes; }) &&
           std::ranges::any_of(step_.values, [&](const RecordedValue& v) {
             return v.storage == s && v.shape.size() >= 2 && is_reduced_floating(v.dtype);
           });
  }
  void add_heads() {
    for (const auto& [s, calls] : heads_) {
      RecordedStorage copy;
      copy.nbytes = storage(s).nbytes / 2;
      copy.device = storage(s).device;
      copy.freed = static_cast<int32_t>(step_.calls.size());
      RecordedValue value;
      value.storage = static_cast<int32_t>(step_.storages.size());
      value.dtype = DType::bf16;
      for (const size_t call : calls)
        step_.calls[call].args.emplace_back(ValueIndex{static_cast<int32_t>(step_.values.size())});
      copies_.insert(value.storage);
      step_.storages.push_back(copy);
      step_.values.push_back(value);
    }
  }
  void measure_turns() {
    std::map<std::string, std::set<int32_t>> read;
    const std::set<int32_t> turns(found_.by_turns.begin(), found_.by_turns.end());
    for (size_t i = 0; i < step_.calls.size(); ++i) {
      const RecordedCall& c = step_.calls[i];
      if (!step_.is_work(i) || c.phase != Phase::forward) continue;
      for (const RecordedArg& a : c.args) {
        const auto* v = std::get_if<ValueIndex>(&a);
        if (!v || v->at < 0) continue;
        const int32_t s = step_.values[static_cast<size_t>(v->at)].storage;
        if (!turns.contains(s)) continue;
        if (is_head_loss(c)) {
          found_.largest_head = std::max(found_.largest_head, storage(s).nbytes);
        } else {
          read[turn_of(c)].insert(s);
        }
      }
    }
    for (const auto& [name, storages] : read) {
      int64_t bytes = 0;
      for (const int32_t s : storages) bytes += storage(s).nbytes;
      found_.largest_turn = std::max(found_.largest_turn, bytes);
    }
  }

  Recording& step_;
  const bool renewed_;
  StepWeights found_;
  std::set<int32_t> copies_;
  std::map<int32_t, std::vector<size_t>> heads_;  // weights of the head's loss, and its calls
};

}  // namespace

StepWeights find_weights(Recording& step, bool renewed) {
  return Finder(step, renewed).run();
}

}  // namespace strata
