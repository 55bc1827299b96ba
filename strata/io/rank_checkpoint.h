#pragma once
// Checkpoints of several ranks: each writes its own parts, one rename commits.
//
//   RUN/step-00001000/model.rank-0.safetensors    a file for each rank and name given, with what the rank alone writes
//                     model.rank-1.safetensors
//                     state.json                  as of one process (version 2), and of every tensor its whole shape,
//                     how
//                                                 it lies, where each part is in which file, and hashes
//
// Any process reads them, as many or as few as there are: load_checkpoint() gives whole tensors, and reads the bytes of
// a part where a sharded tensor is wanted. Hashes of tensors are the same however they lie
// (docs/design/io_text_data.md). The folder must be on a file system that all ranks see.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "strata/core/placement.h"
#include "strata/dist/group.h"
#include "strata/io/checkpoint.h"

namespace strata::io {

/// What a rank wants of a checkpoint.
struct RankPlaces {
  /// Of a file, a name in it and the whole's shape.
  using LayoutOf = std::function<LayoutRef(const std::string& file, const std::string& name, const Shape& shape)>;
  /// Of a file and a name in it.
  using Reads = std::function<bool(const std::string& file, const std::string& name)>;
  /// How a tensor of a file ("model", "optimizer") is to lie; nullptr, of the function or the layout, for whole.
  LayoutOf layout;
  /// Whether this rank reads a tensor; every one where nullptr. A stage of a pipeline has a place for its own alone.
  Reads has;
};

/// Writes RUN/step-XXXXXXXX, as save_checkpoint(), by all ranks of `group` together. Sharded tensors are written part
/// by part; what several ranks have alike, replicas and plain tensors of the same name, by one of them, so that each
/// writes about as much. `run_dir`, `state` and `keep_last` are those of the group's first rank. Returns the
/// checkpoint's path in every rank. Throws in every rank where one could not do its part, IoError naming that rank and
/// why: then what was there before is still there, and nothing is left behind. ValueError as save_checkpoint(), and
/// where ranks have a tensor of one name with other shapes, dtypes or layouts.
///
///     io::save_rank_checkpoint(distributed::group("world"), "runs/a", 100, {{"model", model.state_dict()}}, {});
std::string save_rank_checkpoint(distributed::Group& group, const std::string& run_dir, int64_t step,
                                 const TensorFiles& files, const std::map<std::string, std::string>& state,
                                 int keep_last = 0);

/// load_checkpoint(found, only, into, device) by all ranks of `group` together. Sharded tensors of `into` are filled in
/// place, and what `places` name is given as sharded tensors; of both only this rank's parts are read, whatever the
/// checkpoint's own layout. The hash of every tensor is compared with what was written, over all its parts. Throws
/// IoError in every rank where one found something wrong, naming rank, file and tensor, and where no rank wants a
/// tensor.
Checkpoint load_rank_checkpoint(distributed::Group& group, const FoundCheckpoint& found,
                                const std::vector<std::string>& only = {}, const TensorFiles& into = {},
                                Device device = Device::cpu(), const RankPlaces& places = {});

}  // namespace strata::io
