#include "strata/train/replicas_inl.h"

#include <algorithm>
#include <map>
#include <set>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/dist/group.h"
#include "strata/io/hash.h"
#include "strata/io/tensor_parts_inl.h"
#include "strata/nn/fully_sharded.h"
#include "strata/ops/copy/copy.h"

namespace strata::detail {
namespace {

// Of a sharded tensor the elements that this rank has, each with its place in the whole.
Replica replica_of(const std::string& name, const Tensor& t) {
  const Layout layout = is_placed(t) ? *layout_of(t) : Layout{std::make_shared<const MeshPlace>(), {}};
  const memory::TierScope own{Tier()};
  const Tensor& part = here(t);
  const Tensor elements = part.device().is_cpu() && part.is_contiguous() ? part : part.to(Device::cpu()).contiguous();
  Replica r{io::xxh64(name), io::detail::StoredTensor::number_of(layout, layout.places()), 0};
  if (elements.numel() == 0) return r;
  const Pin pin(elements, Access::read);
  r.hash = io::detail::hash_of(elements.raw_data(), size_of(elements.dtype()), t.shape(),
                               io::detail::box_of(layout, t.shape(), layout.places()));
  return r;
}

std::string numbers(const std::vector<int>& ranks) {
  std::string s = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) s += cat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return s;
}

}  // namespace

std::string differences(const std::vector<std::vector<Replica>>& ranks, const std::vector<std::string>& names) {
  std::map<uint64_t, std::string> known;
  for (const std::string& n : names) known[io::xxh64(n)] = n;
  std::map<std::pair<uint64_t, uint64_t>, std::map<uint64_t, std::vector<int>>> all;  // of each part, by its hash
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const Replica& one : ranks[r]) all[{one.name, one.part}][one.hash].push_back(static_cast<int>(r));
  // Of each sentence's beginning the tensors that it is true of.
  std::map<std::string, std::set<std::string>> found;
  for (const auto& [part, hashes] : all) {
    if (hashes.size() == 1) continue;
    const auto name = known.find(part.first);
    const std::string tensor = name != known.end() ? name->second : cat("a tensor (", io::to_hex(part.first), ")");
    const auto by_count = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
    const auto most = std::ranges::max_element(hashes, by_count);
    const auto as_many =
        std::ranges::count_if(hashes, [&](const auto& h) { return h.second.size() == most->second.size(); });
    std::vector<int> others;
    for (const auto& [hash, who] : hashes)
      if (as_many > 1 || hash != most->first) others.insert(others.end(), who.begin(), who.end());
    std::ranges::sort(others);
    const std::string text =
        as_many > 1 ? cat(numbers(others), " differ, and no more of them agree on one than on another, in ")
                    : cat(numbers(others), others.size() == 1 ? " differs from " : " differ from ",
                          numbers(most->second), " in ");
    found[text].insert(tensor);
  }
  std::string text;
  for (const auto& [who, tensors] : found) {
    text += cat(text.empty() ? "" : "; ", who);
    size_t i = 0;
    for (const std::string& t : tensors) {
      if (i == 2) break;
      text += cat(i++ == 0 ? "" : ", ", t);
    }
    if (tensors.size() > i) text += cat(" and ", tensors.size() - i, " more");
  }
  return text;
}

void check_replicas(int64_t step, const nn::StateDict& model, const nn::StateDict& optimizer) {
  if (distributed::size() == 1) return;
  const NoGrad guard;
  std::vector<std::string> names;
  std::vector<Replica> mine;
  for (const auto& [file, tensors] : {std::pair("", &model), std::pair("the optimizer's ", &optimizer)}) {
    for (const auto& [name, t] : *tensors) {
      if (t.is_meta()) continue;  // in another rank's stage
      names.push_back(file + name);
      mine.push_back(replica_of(names.back(), nn::as_it_lies(t)));
    }
  }
  distributed::Group& world = distributed::group("world");
  const auto ranks = static_cast<size_t>(world.size());
  // Stages of a pipeline have other numbers of them.
  const uint64_t count = mine.size();
  std::vector<uint64_t> counts(ranks);
  world.run("replicas", [&](distributed::Communicator& c) { c.all_gather(counts.data(), &count, sizeof count); });
  const uint64_t most = std::max<uint64_t>(*std::ranges::max_element(counts), 1);
  std::vector<Replica> padded = mine, all(ranks * most);
  padded.resize(most);
  world.run(cat("hashes of replicas [", most, "]"),
            [&](distributed::Communicator& c) { c.all_gather(all.data(), padded.data(), most * sizeof(Replica)); });
  std::vector<std::vector<Replica>> by_rank;
  for (size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + static_cast<int64_t>(r * most);
    by_rank.emplace_back(begin, begin + static_cast<int64_t>(counts[r]));
  }
  const std::string text = differences(by_rank, names);
  check<distributed::DistributedError>(text.empty(), "train", "step ", step,
                                       ": what ranks should have alike is not: ", text, " (parallel.check_replicas)");
}

}  // namespace strata::detail
