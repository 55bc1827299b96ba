// An adapter folder merged into a model's files, a tensor at a time.

#include <filesystem>
#include <map>
#include <set>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/folder_writer.h"
#include "strata/io/sharded_safetensors.h"
#include "strata/io/weight_files.h"
#include "strata/models/average.h"
#include "strata/models/model_folder_inl.h"
#include "strata/models/peft.h"
#include "strata/models/peft_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "merge_adapter";

class Adapter {
 public:
  explicit Adapter(const std::string& dir)
      : config_(parse_adapter_config(io::read_file(dir + std::string(peft::kConfigFile), peft::kMostConfig),
                                     dir + std::string(peft::kConfigFile))),
        files_(dir + std::string(peft::kTensorFile)) {}

  // Holds each of its tensors against the base's weights.
  void check_fits(const io::WeightFiles& base) {
    std::vector<std::string> wrong;
    for (const io::SafetensorsEntry& e : files_.entries()) {
      if (!e.name.starts_with(peft::kPrefix)) {
        wrong.push_back("no part of an adapter: " + e.name);
        continue;
      }
      const std::string name = e.name.substr(peft::kPrefix.size());
      const auto part = peft::split(name);
      if (!part) {
        const io::WeightEntry* w = base.find(name);
        if (!w || w->shape != e.shape) wrong.push_back("the base has no weight of its shape for " + e.name);
        whole_.insert(name);
        continue;
      }
      const io::WeightEntry* w = base.find(part->first + ".weight");
      if (!w || w->shape.size() != 2) {
        wrong.push_back("the base has no matrix for " + e.name);
        continue;
      }
      adapted_.insert(part->first);
      const int64_t out = w->shape[config_.fan_in_fan_out ? 1 : 0], in = w->shape[config_.fan_in_fan_out ? 0 : 1];
      const int64_t rank = config_.rank_of(part->first);
      const Shape wanted = part->second == peft::kDown ? Shape{rank, in}
                           : part->second == peft::kUp ? Shape{out, rank}
                                                       : Shape{out};
      if (e.shape != wanted) wrong.push_back(cat(e.name, " is ", e.shape, ", wanted ", wanted));
    }
    for (const std::string& module : adapted_)
      for (const std::string_view end : {peft::kDown, peft::kUp, peft::kMagnitude})
        if ((end != peft::kMagnitude || config_.dora) &&
            !files_.contains(std::string(peft::kPrefix) + module + std::string(end)))
          wrong.push_back("no " + module + std::string(end));
    check<IoError>(wrong.empty(), kOp, io::quote(files_.path()), ": ", peft::listed(wrong));
    check<IoError>(!adapted_.empty() || !whole_.empty(), kOp, io::quote(files_.path()), ": holds no adapter");
  }

  bool replaces(const std::string& tensor) const { return whole_.contains(tensor); }
  Tensor whole(const std::string& tensor) const { return read(tensor); }
  bool adapts(const std::string& tensor) const {
    return tensor.ends_with(".weight") && adapted_.contains(tensor.substr(0, tensor.size() - 7));
  }
  Tensor merged(const std::string& tensor, const Tensor& weight) const {
    const NoGrad guard;
    const std::string module = tensor.substr(0, tensor.size() - 7);
    const Tensor down = read(module + std::string(peft::kDown)).to(DType::f32);
    const Tensor up = read(module + std::string(peft::kUp)).to(DType::f32);
    const Tensor w = weight.to(DType::f32);
    Tensor sum = (config_.fan_in_fan_out ? w.t() : w) + matmul(up, down) * config_.scale_of(module);
    if (config_.dora) {
      const Tensor lengths = read(module + std::string(peft::kMagnitude)).to(DType::f32);
      sum = sum * (lengths / linalg_vector_norm(sum, 2, Dims{1})).unsqueeze(1);
    }
    return (config_.fan_in_fan_out ? sum.t() : sum).to(weight.dtype());
  }

 private:
  Tensor read(const std::string& name) const { return files_.tensor(std::string(peft::kPrefix) + name); }

  AdapterConfig config_;
  io::SafetensorsFile files_;
  std::set<std::string> adapted_, whole_;
};

}  // namespace

void merge_adapter(const std::string& base, const std::string& adapter, const std::string& to) {
  const io::WeightFiles files(base);
  Adapter addition(adapter);
  addition.check_fits(files);
  io::FolderWriter folder(to);
  std::vector<io::StoredItem> items;
  for (const io::WeightEntry& e : files.entries()) {
    check<DTypeError>(e.type->dtype.has_value(), kOp, "'", e.name, "' is ", e.type->name, ", which has no numbers");
    items.push_back({e.name, &io::stored_type(*e.type->dtype), e.shape});
  }
  io::ShardedSafetensorsWriter out(folder.path(), std::move(items));
  const std::vector<std::string> order = out.order();
  for (const std::string& name : order) {
    if (addition.replaces(name))
      out.write(addition.whole(name));
    else if (addition.adapts(name))
      out.write(addition.merged(name, files.tensor(name)));
    else
      out.write(files.tensor(name));
  }
  out.commit();
  if (std::filesystem::is_directory(base)) detail::copy_companions(base, folder.path());
  folder.commit();
}

}  // namespace strata
