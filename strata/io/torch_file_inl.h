#pragma once
// PyTorch's zip files (torch.save since 1.6): a pickle that says what there is, and one entry for each storage.

#include <string>
#include <string_view>
#include <vector>

#include "strata/io/source_inl.h"
#include "strata/io/weight_files.h"

namespace strata::io {

/// The tensors of a file, in the order of their bytes (`file` is 0): of a dict with texts or integers as keys, dicts
/// and lists in it included, whose keys are joined by '.'. What is no tensor is passed over. Nothing is executed: the
/// pickle is read by an interpreter of the opcodes that a state dict needs, which makes dicts, lists, tuples, numbers,
/// texts, tensors and storages, and knows no function but those that describe a tensor. Throws IoError that names the
/// file and the byte of the pickle for any other global, by its name, and any other opcode; for a TorchScript archive;
/// big-endian numbers; a storage that is not there or of another size; a view that leaves its storage, or shows more
/// elements than it has; a name given twice; and more than the limits below.
std::vector<WeightEntry> read_torch_file(const Source& source);

/// Limits of a pickle: its bytes, the values on its stack, the containers that it makes and the values that it
/// remembers, the depth of dicts in dicts,
/// the tensors, and the bytes of their names together.
inline constexpr uint64_t kMaxPickle = uint64_t{64} << 20;
inline constexpr size_t kMaxPickleStack = size_t{1} << 20;
inline constexpr size_t kMaxPickleContainers = size_t{1} << 22;
inline constexpr int kMaxPickleDepth = 32;
inline constexpr size_t kMaxPickleTensors = size_t{1} << 20;
inline constexpr size_t kMaxPickleNames = size_t{1} << 27;

}  // namespace strata::io
