#include "strata/io/rank_checkpoint.h"

#include <algorithm>
#include <optional>
#include <set>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/checkpoint_inl.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/io/rank_save_inl.h"
#include "strata/io/temporary_directory_inl.h"
#include "strata/ops/copy/copy.h"

namespace strata::io {
namespace {

using json = nlohmann::json;
using detail::RankSave;
using detail::StoredTensor;
using Key = std::pair<std::string, std::string>;  // stem, name

// Every rank's text, by rank.
std::vector<json> gathered(distributed::Group& group, const char* what, const json& mine) {
  const std::string text = mine.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto ranks = static_cast<size_t>(group.size());
  const uint64_t bytes = text.size();
  std::vector<uint64_t> sizes(ranks);
  group.run(cat(what, ", bytes"),
            [&](distributed::Communicator& c) { c.all_gather(sizes.data(), &bytes, sizeof bytes); });
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = text, all(ranks * most, '\0');
  padded.resize(most);
  group.run(cat(what, " [", most, "]"),
            [&](distributed::Communicator& c) { c.all_gather(all.data(), padded.data(), most); });
  std::vector<json> texts;
  for (size_t r = 0; r < ranks; ++r)
    texts.push_back(parse_json(std::string_view(all).substr(r * most, sizes[r]), cat("rank ", r)));
  return texts;
}

// Throws in every rank what the first that failed says.
void check_errors(const std::vector<json>& texts, const std::string& what) {
  for (size_t r = 0; r < texts.size(); ++r) {
    const auto error = texts[r].find("error");
    if (error == texts[r].end()) continue;
    const std::string text = cat("rank ", r, " could not ", what, ": ", error->get<std::string>());
    if (texts[r].value("usage", false)) throw ValueError("checkpoint", text);
    throw IoError("checkpoint", text);
  }
}

// f(), or what it threw as a text for the others.
template <class F>
json attempt(F&& f) {
  try {
    return f();
  } catch (const ValueError& e) {
    return {{"error", e.what()}, {"usage", true}};
  } catch (const std::exception& e) {
    return {{"error", e.what()}};
  }
}

Layout layout_for(const Tensor& t) {
  return is_placed(t) ? *layout_of(t) : Layout{std::make_shared<const MeshPlace>(), {}};
}

// What each rank has, and who writes what: the same in every rank, from the same texts.
class Plan {
 public:
  static json listing(const TensorFiles& files) {
    json list = json::array();
    for (const auto& [stem, tensors] : files) {
      detail::check_stem(stem);
      for (const auto& [name, t] : tensors) {
        const Layout layout = layout_for(t);
        json mesh = json::array();
        for (const MeshPlace::Axis& a : layout.mesh->axes) mesh.push_back({a.name, a.size});
        for (const Placement& p : layout.placements)
          check<ValueError>(!p.is_partial(), "save_checkpoint", "tensor ", quote(name),
                            " is a sum that is still to be taken: redistribute() it first");
        const std::vector<int> places = layout.places();
        json entry = {{"dtype", name_of(t.dtype())},
                      {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
                      {"mesh", std::move(mesh)},
                      {"placements", text_of(layout.placements)}};
        list.push_back({stem, name, std::move(entry), StoredTensor::number_of(layout, places),
                        StoredTensor::count_parts(layout),
                        layout.local_shape(t.shape(), places).product() * size_of(t.dtype())});
      }
    }
    return list;
  }

  explicit Plan(const std::vector<json>& texts) {
    struct Part {
      int64_t bytes;
      std::vector<size_t> ranks;
    };
    std::map<Key, std::map<size_t, Part>> parts;
    std::map<Key, size_t> count;
    for (size_t r = 0; r < texts.size(); ++r)
      for (const json& t : texts[r].at("tensors")) {
        const Key key{t[0], t[1]};
        const auto [entry, added] = entries_.try_emplace(key, t[2]);
        check<ValueError>(added || entry->second == t[2], "save_checkpoint", "rank ", r, " has tensor ",
                          quote(key.second), " as ", t[2].dump(), ", one before it as ", entry->second.dump());
        count[key] = t[4].get<size_t>();
        Part& part = parts[key].try_emplace(t[3].get<size_t>(), Part{t[5].get<int64_t>(), {}}).first->second;
        part.ranks.push_back(r);
      }
    std::vector<int64_t> written(texts.size());
    for (const auto& [key, all] : parts) {
      check<ValueError>(all.size() == count[key], "save_checkpoint", "of the ", count[key], " parts of tensor ",
                        quote(key.second), " the group's ranks have ", all.size());
      for (const auto& [number, part] : all) {
        const size_t writer =
            *std::ranges::min_element(part.ranks, {}, [&](size_t r) { return std::pair(written[r], r); });
        written[writer] += part.bytes;
        writers_[key].push_back(writer);
      }
    }
  }

  // Of `files`, what this rank writes: its parts.
  std::vector<RankSave::Piece> mine(const TensorFiles& files, size_t rank) const {
    std::vector<RankSave::Piece> all;
    for (const auto& [stem, tensors] : files)
      for (const auto& [name, t] : tensors) {
        const Layout layout = layout_for(t);
        const size_t number = StoredTensor::number_of(layout, layout.places());
        if (writers_.at({stem, name})[number] == rank)
          all.push_back({stem, name, (is_placed(t) ? local_part(t) : t).detach(), t.shape(), layout});
      }
    return all;
  }

  // The field "tensors", from what every rank says it wrote.
  json index(const std::vector<json>& written) const {
    json all = json::object();
    for (const auto& [key, writers] : writers_) {
      json entry = entries_.at(key);
      json parts = json::array();
      uint64_t sum = 0;
      for (const size_t r : writers) {
        const json& part = written[r].at("tensors").at(key.first).at(key.second);
        uint64_t hash = 0;
        parse_hex(part[1].get<std::string>(), hash);
        sum += hash;
        parts.push_back({r, part[0], part[1]});
      }
      entry["parts"] = std::move(parts);
      entry["hash"] = to_hex(sum);
      all[key.first][key.second] = std::move(entry);
    }
    return all;
  }

 private:
  std::map<Key, json> entries_;
  std::map<Key, std::vector<size_t>> writers_;  // of each part
};

uint64_t hash_of_part(const RankSave::Piece& p, const Tensor& given, bool alone) {
  const NoGrad guard;
  const memory::TierScope own{Tier()};
  const Tensor here = given.device().is_cpu() && given.is_contiguous() ? given : given.to(Device::cpu()).contiguous();
  if (here.numel() == 0) return 0;
  const Pin pin(here, Access::read);
  return detail::hash_of(here.raw_data(), size_of(here.dtype()), p.whole,
                         detail::box_of(p.layout, p.whole, p.layout.places()), alone);
}

}  // namespace

struct detail::RankSave::Impl {
  Impl(distributed::Group& g, const std::string& dir, int64_t s) : group(g), run_dir(dir), step(s) {}

  distributed::Group& group;
  std::string run_dir;
  int64_t step;
  std::optional<TemporaryDirectory> made;  // by the first rank
  std::optional<Plan> plan;
  std::vector<Piece> pieces;
  std::string folder;
  json said;  // of write()
};

detail::RankSave::RankSave(distributed::Group& group, const std::string& run_dir, int64_t step,
                           const TensorFiles& files)
    : impl_(std::make_unique<Impl>(group, run_dir, step)) {
  check<ValueError>(step >= 0, "save_checkpoint", "step must be at least 0, got ", step);
  const std::vector<json> have = gathered(group, "tensors of a checkpoint", attempt([&] {
                                            json mine = {{"tensors", Plan::listing(files)}};
                                            if (group.rank() != 0) return mine;
                                            make_directories(run_dir);
                                            remove_leftover_directories(run_dir, kTemporaryPrefix);
                                            impl_->made.emplace(run_dir, detail::checkpoint_name(step));
                                            mine["folder"] = impl_->made->path();
                                            return mine;
                                          }));
  check_errors(have, cat("save its part of step ", step));
  impl_->plan.emplace(have);
  impl_->pieces = impl_->plan->mine(files, static_cast<size_t>(group.rank()));
  impl_->folder = have[0].at("folder").get<std::string>();
}
detail::RankSave::~RankSave() = default;

const std::vector<detail::RankSave::Piece>& detail::RankSave::pieces() const {
  return impl_->pieces;
}

void detail::RankSave::write(const std::vector<Tensor>& tensors, bool alone, const std::exception_ptr& failed) {
  impl_->said = attempt([&] {
    if (failed) std::rethrow_exception(failed);
    json said = {{"files", json::object()}, {"tensors", json::object()}};
    std::map<std::string, std::map<std::string, size_t>> files;
    for (size_t i = 0; i < impl_->pieces.size(); ++i) files[impl_->pieces[i].stem][impl_->pieces[i].name] = i;
    for (const auto& [stem, names] : files) {
      const std::string name = detail::file_name(stem, impl_->group.rank()), path = impl_->folder + "/" + name;
      TensorMap mine;
      for (const auto& [tensor, i] : names) mine[tensor] = tensors[i];
      const WrittenFile written = save_safetensors(path, mine);
      said["files"][name] = {{"bytes", written.bytes}, {"xxh64", to_hex(written.xxh64)}};
      for (const SafetensorsEntry& e : read_safetensors_header(InputFile(path)).entries) {
        const size_t i = names.at(e.name);
        said["tensors"][stem][e.name] = {e.offset, to_hex(hash_of_part(impl_->pieces[i], tensors[i], alone))};
      }
    }
    return said;
  });
}

std::string detail::RankSave::commit(const std::map<std::string, std::string>& state, int keep_last) {
  distributed::Group& group = impl_->group;
  const std::vector<json> written = gathered(group, "files of a checkpoint", impl_->said);
  check_errors(written, cat("save its part of step ", impl_->step, " in ", quote(impl_->folder),
                            " (all ranks must see one file system)"));
  // Every rank has said its hashes: what the first one writes now makes all of it the checkpoint, or nothing.
  const std::vector<json> done =
      gathered(group, "a checkpoint", attempt([&] {
                 if (group.rank() != 0) return json::object();
                 json index = json::object();
                 for (const json& w : written) index.update(w.at("files"));
                 return json{{"path", detail::finish_checkpoint(impl_->folder, impl_->run_dir, impl_->step,
                                                                {{"version", detail::kInParts},
                                                                 {"files", std::move(index)},
                                                                 {"tensors", impl_->plan->index(written)}},
                                                                state, keep_last)}};
               }));
  check_errors(done, cat("finish step ", impl_->step));
  return done[0].at("path").get<std::string>();
}

std::string save_rank_checkpoint(distributed::Group& group, const std::string& run_dir, int64_t step,
                                 const TensorFiles& files, const std::map<std::string, std::string>& state,
                                 int keep_last) {
  check<ValueError>(keep_last >= 0, "save_checkpoint", "keep_last must be at least 0 (0 keeps all), got ", keep_last);
  detail::RankSave save(group, run_dir, step, files);
  std::vector<Tensor> tensors;
  for (const detail::RankSave::Piece& p : save.pieces()) tensors.push_back(p.part);
  save.write(tensors);
  return save.commit(state, keep_last);
}

Checkpoint load_rank_checkpoint(distributed::Group& group, const FoundCheckpoint& found,
                                const std::vector<std::string>& only, const TensorFiles& into, Device device,
                                const RankPlaces& places) {
  Checkpoint result;
  detail::SeenHashes mine;
  const std::vector<json> said =
      gathered(group, "hashes of a checkpoint", attempt([&] {
                 result = detail::load_parts(found, only, into, device, places, &mine);
                 json list = json::array();
                 for (const auto& [key, seen] : mine)
                   list.push_back({key.first, key.second, seen.part, seen.parts, to_hex(seen.hash)});
                 return json{{"seen", std::move(list)}};
               }));
  check_errors(said, cat("read ", quote(found.path)));
  // Of every tensor, each part once; those who read the same have read the same.
  struct Seen {
    std::map<size_t, std::pair<uint64_t, size_t>> parts;  // hash, and the first rank that read it
    size_t count = 1;
  };
  std::map<Key, Seen> all;
  const auto wrong = [&](const Key& key, const std::string& why) {
    throw IoError("checkpoint", cat(quote(found.path), ": tensor ", quote(key.second), " of ", quote(key.first),
                                    " is not the one that was written: ", why));
  };
  for (size_t r = 0; r < said.size(); ++r)
    for (const json& s : said[r].at("seen")) {
      const Key key{s[0], s[1]};
      uint64_t hash = 0;
      parse_hex(s[4].get<std::string>(), hash);
      Seen& seen = all[key];
      seen.count = s[3].get<size_t>();
      const auto [part, added] = seen.parts.try_emplace(s[2].get<size_t>(), hash, r);
      if (!added && part->second.first != hash)
        wrong(key, cat("ranks ", part->second.second, " and ", r, " have read other bytes of one part"));
    }
  for (const auto& [stem, tensors] : detail::parts_of(found)) {
    if (!only.empty() && std::ranges::find(only, stem) == only.end()) continue;
    for (const auto& [name, t] : tensors) {
      const Key key{stem, name};
      const auto seen = all.find(key);
      check<IoError>(seen != all.end(), "checkpoint", quote(found.path), ": no rank has a place for tensor ",
                     quote(name), " of ", quote(stem));
      check<ValueError>(seen->second.parts.size() == seen->second.count, "load_checkpoint", "of the ",
                        seen->second.count, " parts of tensor ", quote(name), " the group's ranks have ",
                        seen->second.parts.size());
      uint64_t sum = 0;
      for (const auto& [number, part] : seen->second.parts) sum += part.first;
      if (sum != *t.hash) wrong(key, cat("its hash is ", to_hex(sum), ", state.json says ", to_hex(*t.hash)));
    }
  }
  return result;
}

}  // namespace strata::io
