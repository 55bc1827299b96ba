#include "strata/nn/sharded_costs.h"

#include <algorithm>
#include <map>
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
void on_their_way(ShardedCosts& costs, const std::vector<std::pair<DType, int64_t>>& trained, int64_t bucket_bytes,
                  bool of_micro_batches, int ranks) {
  std::map<DType, size_t> filling;
  std::vector<int64_t> buckets;
  int64_t largest = 0, two = 0, one = 0;
  for (size_t i = trained.size(); i-- > 0;) {
    const auto [dtype, bytes] = trained[i];
    const auto open = filling.find(dtype);
    if (open == filling.end() || buckets[open->second] + bytes > bucket_bytes) {
      filling[dtype] = buckets.size();
      buckets.push_back(0);
    }
    buckets[filling[dtype]] += bytes;
    one = std::max(one, bytes);
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

}  // namespace

ShardedCosts sharded_costs(const Module& module, const FullyShardedOptions& o, int ranks, int64_t passes,
                           const std::map<std::string, Shape>& parts, const std::map<std::string, int>& others,
                           const std::map<std::string, int64_t>& reads) {
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
  std::vector<std::pair<DType, int64_t>> cut;
  int64_t trained = 0, own = 0, reduced = 0, averaged = 0;  // the last two as sent in a pass
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
    if (moves) {
      const auto read = reads.find(name);
      const int64_t each = read == reads.end() ? size : read->second;
      moving[name] = numel * each;
      moved.add(numel * each, part / size * each, n);
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
    (in_parts ? reduced : averaged) += in_parts ? wider * part * (n - 1) : 2 * bytes / n * (n - 1);
    if (in_parts) cut.emplace_back(travels, wider * bytes);
    if (o.zero > 0 && has_rows && !moves) updated.add(bytes, part, n);
  }
  if (trained > 0) costs.updated = static_cast<double>(own) / static_cast<double>(trained);
  if (o.zero > 1) on_their_way(costs, cut, o.bucket_bytes, o.micro_batches > 0, ranks);
  if (ranks == 1) return costs;

  const int64_t times = o.micro_batches > 0 || (o.zero == 3 && o.reduce_every_pass) ? passes : 1;
  costs.sends_gradients = times * reduced + averaged;
  costs.sends_parameters = updated.sent;
  if (o.zero != 3) return costs;
  int64_t largest = 0;
  for (const StreamedPart& p : parts_of(module, stream)) {
    const std::string list = ", " + p.name + ", ";
    int64_t bytes = 0;
    for (const auto& [name, n] : moving)
      if (name.starts_with(p.name + ".") || list.find(", " + name + ", ") != std::string::npos) bytes += n;
    largest = std::max(largest, bytes);
  }
  const int64_t again = o.reshard_to == 1 ? 0 : moved.whole - largest;  // for backward
  const int64_t kept = o.reshard_to > 1 && o.reshard_to < ranks ? again / o.reshard_to : 0;
  costs.gathered = o.reshard_to == 1 ? moved.whole : std::min(moved.whole, 2 * largest) + kept;
  const int64_t sent_again = kept > 0 ? kept * (o.reshard_to - 1) : again / ranks * (ranks - 1);
  costs.sends_parameters += passes * (moved.sent + sent_again);
  return costs;
}

}  // namespace strata::nn
