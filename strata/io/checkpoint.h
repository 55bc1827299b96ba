#pragma once
// Checkpoints: directories RUN/step-00001000 that are there whole or not at all, survive a kill and a power cut, and
// know when they have been damaged.
//
//   RUN/step-00001000/model.safetensors      one file per name given
//                     optimizer.safetensors
//                     state.json             step, texts, and size and XXH64 of every file and of itself
//
// Everything is written in RUN/.tmp-..., synced, and renamed. Whoever reads opens all files of a checkpoint at once:
// they stay readable to him while a run that keeps few checkpoints deletes them.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/io/safetensors.h"

namespace strata::io {

/// Tensors by file: {"model": {...}, "optimizer": {...}} become model.safetensors and optimizer.safetensors.
using TensorFiles = std::map<std::string, TensorMap>;

/// All that a checkpoint holds.
struct Checkpoint {
  int64_t step = 0;
  TensorFiles files;
  /// Small texts (UTF-8): random state, loader position, configuration, tokenizer.
  std::map<std::string, std::string> state;
};

/// Writes RUN/step-XXXXXXXX (replacing a checkpoint of the same step), then deletes old checkpoints as
/// prune_checkpoints does; `keep_last` 0 keeps all. Returns the checkpoint's path. Throws IoError (the directory cannot
/// be written, the disk is full: what was there before is still there) or ValueError (negative step, a name that is not
/// made of letters, digits, '.', '_' and '-', text that is not UTF-8 or over 64 MiB).
std::string save_checkpoint(const std::string& run_dir, int64_t step, const TensorFiles& files,
                            const std::map<std::string, std::string>& state, int keep_last = 0);

/// Reads a checkpoint's directory; only the files named in `only`, where given. Throws IoError where a file is missing,
/// or its size or checksum is not what state.json says.
Checkpoint load_checkpoint(const std::string& dir, const std::vector<std::string>& only = {});

/// As load_checkpoint, without the tensors: reads state.json alone.
Checkpoint load_checkpoint_state(const std::string& dir);

/// Throws IoError where load_checkpoint(dir) would; reads every byte, keeps nothing.
void verify_checkpoint(const std::string& dir);

/// Paths of all complete checkpoint directories (by name), lowest step first.
std::vector<std::string> list_checkpoints(const std::string& run_dir);

/// The files of a checkpoint, open.
class OpenCheckpoint;

/// A checkpoint that was found: while this lives it can be read, though its directory be deleted.
struct FoundCheckpoint {
  std::string path;
  int64_t step = 0;
  std::shared_ptr<const OpenCheckpoint> files;
};

/// Opens the checkpoint at `dir` without reading its tensors. Throws IoError where a file is missing.
FoundCheckpoint open_checkpoint(const std::string& dir);
/// What load_checkpoint(found.path) gives, checksums included unless find_latest_checkpoint has just computed them.
Checkpoint load_checkpoint(const FoundCheckpoint& found, const std::vector<std::string>& only = {});
/// The same with what `into` names filled in place, straight from the disk, and the rest made on `device`
/// (SafetensorsFile::read). Where it throws, what was to be filled may hold anything.
Checkpoint load_checkpoint(const FoundCheckpoint& found, const std::vector<std::string>& only, const TensorFiles& into,
                           Device device = Device::cpu());
/// What load_checkpoint_state(found.path) gives.
Checkpoint load_checkpoint_state(const FoundCheckpoint& found);

/// The checkpoint of the highest step that verifies. For each newer one that does not, a line is added to `warnings`;
/// one that is deleted meanwhile, by a run that goes on, is no such: a newer one is looked for. Nothing where there is
/// none, or no `run_dir`.
std::optional<FoundCheckpoint> find_latest_checkpoint(const std::string& run_dir,
                                                      std::vector<std::string>* warnings = nullptr);

/// Deletes all checkpoints but the `keep_last` (at least 1) of the highest steps, counting only those whose files have
/// the sizes that state.json says; goes on keeping until at least one of the kept verifies in full. `written`, the path
/// of a checkpoint just written, is never deleted and counts as verified.
void prune_checkpoints(const std::string& run_dir, int keep_last, const std::string& written = {});

}  // namespace strata::io
