#pragma once
// safetensors headers with every type of the format, those that Strata has no dtype for included.

#include <string>
#include <vector>

#include "strata/io/safetensors.h"
#include "strata/io/stored_type.h"

namespace strata::io {

/// SafetensorsEntry with whatever type stands there.
struct StoredEntry {
  std::string name;
  const StoredType* type = nullptr;
  Shape shape;
  uint64_t offset = 0;  ///< of its first byte in the file
  uint64_t nbytes = 0;
};

struct StoredHeader {
  std::vector<StoredEntry> entries;  ///< in the order of their bytes
  Metadata metadata;
};

/// As read_safetensors_header, but that refuses types without a dtype.
StoredHeader read_stored_header(const InputFile& file);

/// The header of a file with these tensors, its length before it. `items` come into the order of their data: by falling
/// size of an element, then by name, so that each is aligned to its element. `data_bytes` are what all of them need.
/// Throws ValueError as save_safetensors does, for a type that the format has not, and sizes that make no whole bytes.
std::string stored_header(std::vector<StoredItem>& items, const Metadata& metadata, uint64_t& data_bytes);

}  // namespace strata::io
