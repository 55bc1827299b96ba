#pragma once
// The interpreter of a state dict's pickle (https://docs.python.org/3/library/pickletools.html has the opcodes).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/dims.h"
#include "strata/io/stored_type.h"

namespace strata::io {

/// A value of the pickle. Texts are views of the pickle; containers, storages and tensors stand in the Pickle's lists,
/// at `index`.
struct PickleValue {
  enum class Kind : uint8_t { mark, none, boolean, integer, real, text, global, tuple, list, dict, storage, tensor };
  Kind kind = Kind::none;
  uint32_t length = 0;  // of a text
  union {
    int64_t integer = 0;
    double real;
    size_t index;
    const char* text;
  };
  std::string_view view() const { return {text, length}; }
};

/// Bytes that tensors show parts of.
struct PickleStorage {
  const StoredType* type = nullptr;  // of its elements; nullptr: bytes without a type
  uint64_t offset = 0, nbytes = 0;   // in the file
};

struct PickleTensor {
  size_t storage = 0;
  const StoredType* type = nullptr;
  int64_t first = 0;  // in elements
  Shape shape;
  Strides strides;
};

/// All that a pickle describes.
struct Pickle {
  std::vector<std::vector<PickleValue>> sequences;  // tuples and lists
  std::vector<std::vector<std::pair<PickleValue, PickleValue>>> dicts;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;
  PickleValue root;
};

/// Interprets `text`, which must outlive the result; `source` stands in the messages. `find_storage` gives the place in
/// the file of a storage by its key. Throws IoError as read_torch_file.
Pickle read_pickle(std::string_view text, std::string_view source,
                   const std::function<PickleStorage(std::string_view key)>& find_storage);

}  // namespace strata::io
