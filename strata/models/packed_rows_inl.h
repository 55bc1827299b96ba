#pragma once
// Low-bit weights of a model's files on their way into its layers: which rows of a family they are, and where they go.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "strata/models/family.h"
#include "strata/models/packed_files.h"
#include "strata/models/weight_row.h"
#include "strata/nn/module.h"

namespace strata {
namespace io {
class WeightFiles;
}

/// What names of `family` begin with and those of `files` do not, where none does: a model without its head.
std::string_view left_out_prefix(const Family& family, const io::WeightFiles& files);
/// The rows of a parameter [.., columns] that a view of it shows, in order; nothing where it does not show whole rows.
std::optional<std::vector<int64_t>> shown_rows(const WeightView& view, const Shape& shape);

/// Rows whose weight is stored in low bits. A Linear whose rows all are becomes packed: as one matrix where they are of
/// one format, else as several. Of others, embeddings and heads and layers whose matrices cannot be joined, the numbers
/// are decoded into the parameter.
class PackedRows {
 public:
  /// Looks at names and types only. Without `keep_packed` all numbers are decoded. Of GGUF's blocks those of layers
  /// that will be packed; the reader decodes the others.
  PackedRows(const nn::Module& module, const std::vector<WeightRow>& rows, std::string_view prefix,
             const io::WeightFiles& files, const std::optional<PackedScheme>& scheme, bool keep_packed = true);

  /// The entries of the files that make the row; nullptr where it is not stored in low bits.
  const std::vector<std::string>* entries(const WeightRow& row) const;
  /// The parameters of layers that load() is to pack, which need no memory before: it gives some to one whose parts
  /// turn out not to be of one kind.
  std::set<std::string> to_pack() const;
  /// Reads them and packs or fills what `module` has, a layer after the other. Throws as read_packed(), and ShapeError
  /// for a matrix of another shape than its row's.
  void load(const nn::Module& module, const io::WeightFiles& files) const;
  /// Whether load() would change no bit of the layer or parameter that the row is of.
  bool holds(const nn::Module& module, const WeightRow& row, const io::WeightFiles& files) const;

 private:
  struct Part {
    WeightRow row;
    std::string layer;                 // its name in the files, without ".weight"
    std::vector<std::string> entries;  // of its pieces; of GGUF the one
  };
  PackedWeight read(const Part& part, const io::WeightFiles& files) const;
  std::vector<PackedWeight> read_all(const std::vector<Part>& rows, const io::WeightFiles& files) const;
  std::vector<PackedWeight> joined(const std::vector<PackedWeight>& parts, const std::vector<Part>& rows,
                                   const Shape& shape) const;

  std::optional<PackedScheme> scheme_;
  std::map<std::string, std::vector<Part>> of_parameter_;
  std::map<std::string, std::pair<std::string, size_t>> places_;  // by the row's names
  std::set<std::string> packable_;                                // parameters of layers that may be packed
};

}  // namespace strata
