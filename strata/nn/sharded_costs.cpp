#include "strata/nn/sharded_costs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/dist/parts_inl.h"

namespace strata::nn {
namespace {

constexpr std::string_view kOp = "sharded_costs";

// Bytes that lie in parts on n ranks, and what a rank sends of its parts to all others.
struct InParts {
  int64_t whole = 0, sent = 0;
  void add(int64_t bytes, int64_t part, int64_t ranks) { whole += bytes, sent += part * (ranks - 1); }
};

// The buckets of gradients that travel together, in the order in which backward is taken to make them, as
// distributed::ShardedGradients has them; of micro-batches as much comes beside what travels.
struct Gradient {
  DType dtype = DType::f32;
  int64_t bytes = 0;
  bool alone = false;  // in a bucket of its own
};
void on_their_way(ShardedCosts& costs, const std::vector<Gradient>& trained, int64_t bucket_bytes,
                  bool of_micro_batches, int ranks) {
  std::map<DType, size_t> filling;
  std::vector<int64_t> buckets;
  int64_t largest = 0, two = 0, one = 0;
  for (size_t i = trained.size(); i-- > 0;) {
    const auto& [dtype, bytes, alone] = trained[i];
    one = std::max(one, bytes);
    if (alone) {
      buckets.push_back(bytes);
      continue;
    }
    const auto open = filling.find(dtype);
    if (open == filling.end() || buckets[open->second] + bytes > bucket_bytes) {
      filling[dtype] = buckets.size();
      buckets.push_back(0);
    }
    buckets[filling[dtype]] += bytes;
  }
  // Parts of what fills, and of what comes behind it, are not there yet.
  int64_t before = 0, most = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const int64_t both = buckets[i] + (i > 0 ? buckets[i - 1] : 0);
    largest = std::max(largest, buckets[i]);
    two = std::max(two, both);
    most = std::max(most, both + before / ranks);
    before += buckets[i];
  }
  if (of_micro_batches) {
    costs.filling = buckets.size() <= 1 ? largest + one : 3 * largest;
    costs.buckets = std::max(costs.filling, 2 * largest);
    return;
  }
  // One alone is filled as gradients come; else one travels while those of the next are made.
  costs.buckets = buckets.size() <= 1 ? largest + one : two;
  costs.filling = buckets.size() <= 1 ? costs.buckets : most - before / ranks;
}

// How a table is looked up, as FullySharded chooses.
struct ByRows {
  bool forward = false, backward = false;
  int64_t ids = 0, most = 0;  // of all lookups, and of one
};
ByRows by_rows(const std::string& name, const Shape& shape, int64_t bytes, bool trained, const FullyShardedOptions& o,
               int ranks, const TableReads& reads) {
  ByRows by;
  for (const int64_t n : reads.ids) by.ids += n, by.most = std::max(by.most, n);
  const bool alone = std::ranges::find(o.looked_up, name) != o.looked_up.end();
  if (ranks == 1 || shape.size() != 2 || by.ids == 0 || bytes < o.rows_from || 2 * ranks * by.most >= shape[0] ||
      !o.stages.empty() || (o.reshard_to == 1 && !alone))
    return by;
  by.backward = trained && o.reduce_every_pass && o.micro_batches == 0;
  by.forward = by.backward || !trained || alone;
  return by;
}

}  // namespace

ShardedCosts sharded_costs(const Module& module, const FullyShardedOptions& o, int ranks, int64_t passes,
                           const std::map<std::string, Shape>& parts, const std::map<std::string, int>& others,
                           const std::map<std::string, int64_t>& reads,
                           const std::map<std::string, TableReads>& tables) {
  check(o.zero >= 0 && o.zero <= 3 && ranks >= 1 && passes >= 1, kOp,
        "zero is 0 to 3, ranks and passes at least 1, got ", o.zero, ", ", ranks, " and ", passes);
  check(o.reshard_to >= 0 && (o.reshard_to == 0 || ranks % o.reshard_to == 0), kOp, "reshard_to is ", o.reshard_to,
        ", which does not divide the ", ranks, " ranks");
  const NamedTensors all = module.named_parameters();
  std::map<const Storage*, int> on;
  for (const auto& [name, t] : all) ++on[t.storage().get()];

  ShardedCosts costs;
  InParts moved, updated;  // of 3 what comes and goes, of 1 and 2 what is updated in parts
  StreamOptions stream{.whole_parts = true};
  std::map<std::string, int64_t> moving;  // bytes, by name
  std::vector<Gradient> cut;
  int64_t trained = 0, own = 0, reduced = 0, averaged = 0;   // the last two as sent in a pass
  int64_t rows_sent = 0, rows_sent_back = 0, rows_held = 0;  // in a pass, of tables that are looked up by rows
  std::set<std::string> stay;                                // those of them that nothing else reads
  for (const auto& [name, t] : all) {
    const auto left = parts.find(name);
    const Shape shape = left == parts.end() ? t.shape() : left->second;
    const auto other = others.find(name);
    const int n = other == others.end() ? ranks : other->second;
    const auto size = static_cast<int64_t>(size_of(t.dtype()));
    const int64_t numel = shape.product(), bytes = numel * size;
    const bool has_rows = shape.size() > 0 && numel > 0;
    const bool alone = on[t.storage().get()] == 1 && t.nbytes() == static_cast<int64_t>(t.storage()->nbytes);
    const bool moves =
        o.zero == 3 && has_rows && alone && is_floating(t.dtype()) && t.is_contiguous() && numel >= o.whole_below;
    const int64_t part = has_rows ? distributed::Cut(shape, n).numel(0) * size : bytes;
    costs.parameters += moves ? part : bytes;
    ByRows by;
    const auto table = tables.find(name);
    if (moves && left == parts.end() && other == others.end() && table != tables.end())
      by = by_rows(name, shape, bytes, t.requires_grad(), o, n, table->second);
    if (by.forward) {
      const int64_t row = shape[1] * size;
      rows_sent += by.ids * (row + static_cast<int64_t>(sizeof(int64_t))) * (n - 1);
      if (by.backward) rows_sent_back += by.ids * row * (n - 1);
      // All ranks' rows, and two of the sums that come of them.
      if (by.backward) rows_held = std::max(rows_held, n * by.ids * row + 2 * part);
    }
    const bool also_whole = !by.forward || table->second.others;
    if (moves) {
      const auto read = reads.find(name);
      // Of a copy that others read, the table itself beside it no more.
      const int64_t each = read == reads.end() ? size : read->second - (by.forward && also_whole ? size : 0);
      moving[name] = numel * each;
      if (also_whole)
        moved.add(numel * each, part / size * each, n);
      else
        stay.insert(name);
    } else if (alone) {
      stream.in_place.push_back(name);
    }
    if (!t.requires_grad()) continue;
    trained += numel;
    own += o.zero == 0 ? numel : part / size;
    const bool in_parts = o.zero > 1 && has_rows;
    // Of micro-batches they travel in f32.
    const DType travels = o.micro_batches > 0 && size < 4 ? DType::f32 : t.dtype();
    const int64_t wider = size_of(travels) / size;
    costs.gradients += in_parts ? part : bytes;
    if (!by.backward || also_whole) {
      (in_parts ? reduced : averaged) += in_parts ? wider * part * (n - 1) : 2 * bytes / n * (n - 1);
      if (in_parts) cut.push_back({travels, wider * bytes, by.backward});
    }
    if (o.zero > 0 && has_rows && !moves) updated.add(bytes, part, n);
  }
  if (trained > 0) costs.updated = static_cast<double>(own) / static_cast<double>(trained);
  if (o.zero > 1) on_their_way(costs, cut, o.bucket_bytes, o.micro_batches > 0, ranks);
  costs.buckets = std::max(costs.buckets, rows_held);
  if (ranks == 1) return costs;

  const int64_t times = o.micro_batches > 0 || (o.zero == 3 && o.reduce_every_pass) ? passes : 1;
  costs.sends_gradients = times * reduced + averaged + passes * rows_sent_back;
  costs.sends_parameters = updated.sent;
  if (o.zero != 3) return costs;
  int64_t largest = 0, last = 0;  // of what comes, the largest
  for (const StreamedPart& p : parts_of(module, stream)) {
    const std::string list = ", " + p.name + ", ";
    int64_t bytes = 0, comes = 0;
    for (const auto& [name, n] : moving) {
      if (!name.starts_with(p.name + ".") && list.find(", " + name + ", ") == std::string::npos) continue;
      bytes += n;
      if (!stay.contains(name)) comes += n;
    }
    largest = std::max(largest, bytes);
    last = std::max(last, comes);
  }
  const int64_t again = o.reshard_to == 1 ? 0 : moved.whole - last;  // for backward
  const int64_t kept = o.reshard_to > 1 && o.reshard_to < ranks ? again / o.reshard_to : 0;
  costs.gathered = o.reshard_to == 1 ? moved.whole : std::min(moved.whole, 2 * largest) + kept;
  const int64_t sent_again = kept > 0 ? kept * (o.reshard_to - 1) : again / ranks * (ranks - 1);
  costs.sends_parameters += passes * (moved.sent + sent_again + rows_sent);
  return costs;
}

}  // namespace strata::nn
