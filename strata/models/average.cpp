#include "strata/models/average.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/checkpoint_inl.h"
#include "strata/io/files.h"
#include "strata/io/folder_writer.h"
#include "strata/io/json.h"
#include "strata/io/sharded_safetensors.h"
#include "strata/io/weight_files.h"
#include "strata/models/model_folder_inl.h"
#include "strata/models/peft_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOp = "average_models";
constexpr std::string_view kState = "/state.json", kConfig = "/config.json", kModel = "model";

bool is_checkpoint(const std::string& path) {
  return fs::is_regular_file(path + std::string(kState));
}

// A configuration without what says where a model comes from and how it is stored.
nlohmann::json network_of(const std::string& folder) {
  const std::string path = folder + std::string(kConfig);
  if (!fs::is_regular_file(path)) return {};
  nlohmann::json all = io::parse_json(io::read_file(path, uint64_t{16} << 20), path);
  if (all.is_object())
    for (const char* key : {"_name_or_path", "name_or_path", "transformers_version", "torch_dtype", "dtype"})
      all.erase(key);
  return all;
}

// A tensor of a member. The type as it is stored, where that is a file's own.
struct Entry {
  std::string name;
  Shape shape;
  const io::StoredType* type = nullptr;
};

// Where a member's tensors come from.
class Source {
 public:
  virtual ~Source() = default;
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &entries_[found->second];
  }
  virtual Tensor tensor(const std::string& name) const = 0;

 protected:
  void add(Entry e) {
    by_name_.emplace(e.name, entries_.size());
    entries_.push_back(std::move(e));
  }

 private:
  std::vector<Entry> entries_;
  std::map<std::string, size_t> by_name_;
};

class FolderSource final : public Source {
 public:
  explicit FolderSource(const std::string& path) : files_(path) {
    for (const io::WeightEntry& e : files_.entries()) add({e.name, e.shape, e.type});
  }
  Tensor tensor(const std::string& name) const override { return files_.tensor(name); }

 private:
  io::WeightFiles files_;
};

// A checkpoint, whoever wrote it: one process, or several ranks their parts.
class CheckpointSource final : public Source {
 public:
  explicit CheckpointSource(const std::string& path) : reader_(io::open_checkpoint(path), std::string(kModel)) {
    for (const auto& [name, t] : reader_.tensors()) add({name, t.shape, &io::stored_type(t.dtype)});
  }
  Tensor tensor(const std::string& name) const override { return reader_.read(name, Device::cpu()); }

 private:
  io::detail::TensorReader reader_;
};

class Members {
 public:
  Members(const std::vector<std::string>& paths, const std::vector<double>& weights) : paths_(paths) {
    check(!paths.empty(), kOp, "no members were given");
    check(weights.empty() || weights.size() == paths.size(), kOp, "there are ", paths.size(), " members and ",
          weights.size(), " weights");
    double total = 0;
    for (const double w : weights) {
      check(std::isfinite(w) && w > 0, kOp, "a weight is positive, got ", w);
      total += w;
    }
    for (size_t i = 0; i < paths.size(); ++i) {
      shares_.push_back(weights.empty() ? 1 / static_cast<double>(paths.size()) : weights[i] / total);
      if (is_checkpoint(paths[i]))
        files_.push_back(std::make_unique<CheckpointSource>(paths[i]));
      else
        files_.push_back(std::make_unique<FolderSource>(paths[i]));
    }
    check_alike();
  }

  const std::vector<Entry>& entries() const { return files_[0]->entries(); }

  // One tensor of all members as one.
  Tensor mean(const std::string& name) const {
    const NoGrad guard;
    const Tensor first = files_[0]->tensor(name);
    if (!is_floating(first.dtype())) {
      for (size_t i = 1; i < files_.size(); ++i) {
        const Tensor other = files_[i]->tensor(name);
        check(first.numel() == 0 || (other == first).to(DType::f32).min().item() == 1, kOp, "'", name,
              "' holds whole numbers, which differ in ", io::quote(paths_[0]), " and ", io::quote(paths_[i]));
      }
      return first;
    }
    Tensor sum = first.to(DType::f64) * shares_[0];
    for (size_t i = 1; i < files_.size(); ++i) sum.add_(files_[i]->tensor(name).to(DType::f64), shares_[i]);
    return sum.to(first.dtype());
  }

 private:
  void check_alike() const {
    std::vector<std::string> wrong;
    const nlohmann::json network = network_of(paths_[0]);
    for (size_t i = 1; i < files_.size(); ++i) {
      const std::string who = io::quote(paths_[i]);
      if (network_of(paths_[i]) != network) wrong.push_back(who + " has another config.json");
      for (const Entry& e : entries()) {
        const Entry* other = files_[i]->find(e.name);
        if (!other)
          wrong.push_back(cat(who, " has no ", e.name));
        else if (other->shape != e.shape)
          wrong.push_back(cat(e.name, " of ", who, " is ", other->shape, ", wanted ", e.shape));
      }
      for (const Entry& e : files_[i]->entries())
        if (!files_[0]->find(e.name)) wrong.push_back(cat(who, " also has ", e.name));
    }
    check(wrong.empty(), kOp, "the members are not of one network as ", io::quote(paths_[0]),
          " is: ", peft::listed(wrong));
  }

  std::vector<std::string> paths_;
  std::vector<double> shares_;
  std::vector<std::unique_ptr<Source>> files_;
};

// A tensor of blocks is written as numbers: as f32.
const io::StoredType* written_type(const Entry& e) {
  check<DTypeError>(e.type->dtype.has_value(), kOp, "'", e.name, "' is ", e.type->name, ", which has no numbers");
  return &io::stored_type(*e.type->dtype);
}

void write_checkpoint(const Members& members, const std::string& first, const std::string& to) {
  check<IoError>(!fs::exists(to), kOp, io::quote(to), " exists already");
  io::Checkpoint c = io::load_checkpoint_state(first);
  io::TensorMap tensors;
  for (const Entry& e : members.entries()) tensors.emplace(e.name, members.mean(e.name));
  io::make_directories(to);
  io::save_checkpoint(to, c.step, {{std::string(kModel), std::move(tensors)}}, c.state);
}

void write_folder(const Members& members, const std::string& first, const std::string& to) {
  io::FolderWriter folder(to);
  std::vector<io::StoredItem> items;
  for (const Entry& e : members.entries()) items.push_back({e.name, written_type(e), e.shape});
  io::ShardedSafetensorsWriter out(folder.path(), std::move(items));
  const std::vector<std::string> order = out.order();
  for (const std::string& name : order) out.write(members.mean(name));
  out.commit();
  if (fs::is_directory(first)) detail::copy_companions(first, folder.path());
  folder.commit();
}

}  // namespace

void average_models(const std::vector<std::string>& members, const std::string& to,
                    const std::vector<double>& weights) {
  const Members all(members, weights);
  const auto stored = std::ranges::count_if(members, is_checkpoint);
  check(stored == 0 || stored == static_cast<std::ptrdiff_t>(members.size()), kOp,
        "members are either all checkpoints of runs or none is");
  if (stored > 0)
    write_checkpoint(all, members[0], to);
  else
    write_folder(all, members[0], to);
}

GreedySoup detail::greedy_average(const std::vector<std::string>& members, const std::string& to, FolderLoss loss) {
  check(!members.empty(), "greedy_average", "no members were given");
  check<IoError>(!fs::exists(to), "greedy_average", io::quote(to), " exists already");
  const auto loss_of = [&](const std::string& folder) {
    const double v = loss.call(loss.fn, folder);
    check(!std::isnan(v), "greedy_average", "the loss of ", io::quote(folder), " is NaN");
    return v;
  };
  GreedySoup soup;
  for (const std::string& m : members) soup.losses.emplace_back(m, loss_of(m));
  std::ranges::stable_sort(soup.losses, {}, &std::pair<std::string, double>::second);
  // Beside the result, so that the best one only changes its name.
  struct Tried {
    std::string path;
    ~Tried() {
      std::error_code none;
      fs::remove_all(path, none);
    }
  };
  const std::string beside = io::parent_directory(to) + "/." + fs::path(to).filename().string();
  const Tried best{beside + ".best"}, next{beside + ".next"};
  for (const std::string& left : {best.path, next.path}) {
    std::error_code none;
    fs::remove_all(left, none);
  }
  for (const auto& [member, alone] : soup.losses) {
    std::vector<std::string> with = soup.members;
    with.push_back(member);
    average_models(with, next.path);
    const double now = with.size() == 1 ? alone : loss_of(next.path);
    if (with.size() == 1 || now <= soup.loss) {
      soup.members = std::move(with);
      soup.loss = now;
      fs::remove_all(best.path);
      fs::rename(next.path, best.path);
    } else {
      fs::remove_all(next.path);
    }
  }
  fs::rename(best.path, to);
  io::sync_directory(io::parent_directory(to));
  return soup;
}

}  // namespace strata
