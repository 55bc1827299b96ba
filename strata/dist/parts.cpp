#include "strata/dist/parts_inl.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/cuda/graph.h"
#include "strata/ops/copy/copy.h"

namespace strata::distributed {

Cut::Cut(const Shape& whole, int ranks) {
  const int64_t rows = whole[0], row = rows == 0 ? 0 : whole.product() / rows;
  const int64_t each = rows / ranks, more = rows % ranks;
  for (int r = 0; r <= ranks; ++r) begins.push_back(row * (r * each + std::min<int64_t>(r, more)));
}

Tensor Cut::part(const Tensor& whole, int r) const {
  const int64_t each = whole.size(0) / ranks(), more = whole.size(0) % ranks();
  return whole.narrow(0, r * each + std::min<int64_t>(r, more), rows(whole.size(0), r));
}

void gather_parts(Collectives& c, std::byte* whole, const std::byte* part, const Cut& cut, int64_t element_bytes) {
  if (cut.even()) {
    const auto bytes = static_cast<size_t>(cut.numel(0) * element_bytes);
    c.all_gather(whole, part ? part : whole + static_cast<size_t>(c.rank()) * bytes, bytes);
    return;
  }
  for (int r = 0; r < cut.ranks(); ++r) {
    if (cut.numel(r) == 0) continue;
    c.broadcast(whole + cut.begin(r) * element_bytes, static_cast<size_t>(cut.numel(r) * element_bytes), r);
  }
}

namespace {
std::string text_of(const std::string& name, const Tensor& t) {
  return cat(name, " ", t.dtype(), " ", t.shape());
}
}  // namespace

void check_same_parameters(std::string_view op, const std::vector<std::pair<std::string, Tensor>>& parameters,
                           Group& group) {
  // Hashes would tell that lists differ; the texts tell where.
  std::string mine;
  for (const auto& [name, tensor] : parameters) mine += text_of(name, tensor) + "\n";
  int64_t bytes[1] = {static_cast<int64_t>(mine.size())};
  group.run("parameters", [&](Communicator& c) { c.all_reduce(bytes, 1, DType::i64, Reduction::max); });
  mine.resize(static_cast<size_t>(bytes[0]), '\n');
  std::string all(mine.size() * static_cast<size_t>(group.size()), '\0');
  group.run("parameters", [&](Communicator& c) { c.all_gather(all.data(), mine.data(), mine.size()); });
  const auto line = [](const std::string& s, size_t at) { return s.substr(at, s.find('\n', at) - at); };
  for (int r = 0; r < group.size(); ++r) {
    const std::string theirs = all.substr(mine.size() * static_cast<size_t>(r), mine.size());
    if (theirs == mine) continue;
    size_t at = 0;
    while (line(mine, at) == line(theirs, at)) at = mine.find('\n', at) + 1;
    throw DistributedError(op, cat("the parameters of rank ", group.rank(), " and ", r, " of group ", group.name(),
                                   " differ: '", line(mine, at), "' here, '", line(theirs, at), "' there"));
  }
}

void broadcast_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters, Group& group) {
  NoGrad guard;
  for (const auto& [name, tensor] : parameters) {
    const Tensor& here = strata::detail::here(tensor);
    Tensor whole = here.contiguous();
    group.run(here.device(), cat("broadcast ", text_of(name, whole)),
              [&](Collectives& c) { c.broadcast(whole.raw_data(), static_cast<size_t>(whole.nbytes()), 0); });
    if (!whole.same_as(here)) copy_elements(here, whole);
  }
}

std::vector<size_t> agreed_order(const std::vector<size_t>& arrived, size_t count, Group& group) {
  std::vector<bool> seen(count);
  std::vector<size_t> all;
  for (const size_t i : arrived) {
    if (!seen[i]) all.push_back(i);
    seen[i] = true;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!seen[i]) all.push_back(i);
  }
  group.run(cat("order of ", all.size(), " gradients"),
            [&](Communicator& c) { c.broadcast(all.data(), all.size() * sizeof(size_t), 0); });
  return all;
}

std::vector<uint8_t> agreed_use(std::string_view op, std::vector<uint8_t> used, std::vector<uint8_t>& before,
                                const std::vector<Group*>& groups, const std::function<std::string(size_t)>& name) {
  if (cuda::capturing()) {
    for (size_t i = 0; i < used.size(); ++i) {
      check<DeviceError>(!before.empty() && used[i] <= before[i], op, "the gradient of ", name(i),
                         " is new: a step must have run before one is captured in a CUDA graph");
    }
    return before;
  }
  for (Group* const g : groups) {
    g->run(cat("used ", used.size()), [&](Communicator& c) {
      c.all_reduce(used.data(), static_cast<int64_t>(used.size()), DType::u8, Reduction::max);
    });
  }
  before = used;
  return used;
}

}  // namespace strata::distributed
