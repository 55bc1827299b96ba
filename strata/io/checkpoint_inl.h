#pragma once
// Checkpoints from inside: what those of one process and those of several ranks have in common.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/io/checkpoint.h"
#include "strata/io/rank_checkpoint.h"
#include "strata/io/tensor_parts_inl.h"

namespace strata::io::detail {

inline constexpr std::string_view kExtension = ".safetensors";
inline constexpr int kWhole = 1, kInParts = 2;  ///< versions of state.json

/// Tensors in parts, by name, by stem.
using StoredTensors = std::map<std::string, std::map<std::string, StoredTensor>>;

/// "model" of "model.safetensors", in parts of "model.rank-3.safetensors".
std::string stem_of(const std::string& file, bool in_parts);
/// "model.rank-3.safetensors".
std::string file_name(const std::string& stem, int64_t rank);
/// "step-00001000".
std::string checkpoint_name(int64_t step);
/// Throws ValueError for what no file is named.
void check_stem(const std::string& stem);
/// Writes state.json into `temporary`, renames that to the checkpoint's name and deletes old checkpoints. `j` has the
/// fields that are not the same in all. Returns the checkpoint's path.
std::string finish_checkpoint(const std::string& temporary, const std::string& run_dir, int64_t step, nlohmann::json j,
                              const std::map<std::string, std::string>& state, int keep_last);

/// The field "tensors" of state.json. Throws IoError naming the field that makes no sense.
StoredTensors parse_parts(const nlohmann::json& state, const std::string& path,
                          const std::map<std::string, WrittenFile>& files);
/// Throws IoError where a file's header does not have what `tensors` say it has.
void check_parts(const std::map<std::string, StoredTensor>& tensors, const std::string& file,
                 const SafetensorsHeader& header);
/// Those of a file of one process, as tensors of one part each.
std::map<std::string, StoredTensor> whole_tensors(const SafetensorsHeader& header);

/// Hashes of what a rank has read, by stem and name: which part it is, of how many, and its hash.
struct SeenHash {
  size_t part = 0, parts = 1;
  uint64_t hash = 0;
};
using SeenHashes = std::map<std::pair<std::string, std::string>, SeenHash>;
/// Tensors as `into` has them, or `places` say, or whole. Their hashes go to `seen`; where that is nullptr, what was
/// read whole is compared with what was written.
TensorMap read_parts(const std::string& stem, const std::map<std::string, StoredTensor>& tensors,
                     const std::function<const InputFile&(int64_t rank)>& file, const TensorMap& into, Device device,
                     const RankPlaces& places, SeenHashes* seen);

Checkpoint load_parts(const FoundCheckpoint& found, const std::vector<std::string>& only, const TensorFiles& into,
                      Device device, const RankPlaces& places, SeenHashes* seen);
const StoredTensors& parts_of(const FoundCheckpoint& found);

/// The tensors of a stem, read one at a time, for whoever has no room for all of them.
class TensorReader {
 public:
  /// Reads the headers alone. Throws IoError as load_checkpoint().
  TensorReader(const FoundCheckpoint& found, const std::string& stem);
  /// What they are, by name.
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  /// A copy on `device`, in the tier of the thread's TierScope. The first call looks at the checksum of the whole file,
  /// unless find_latest_checkpoint has; tensors in parts have their own. Throws IoError where that is another, and for
  /// a name that is not there.
  Tensor read(const std::string& name, Device device) const;

 private:
  std::shared_ptr<const OpenCheckpoint> files_;
  std::string stem_;
  std::map<std::string, StoredTensor> tensors_;
  mutable bool verified_ = false;
};

}  // namespace strata::io::detail
