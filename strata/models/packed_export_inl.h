#pragma once
// Low-bit layers of a model on their way into files.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "strata/io/stored_type.h"
#include "strata/models/packed_rows_inl.h"

namespace strata {

/// The rows of a model that are stored in low bits. What is as it came from `source` gets its bytes of there; other
/// packed layers are cut into the rows' matrices and written as the scheme says.
class PackedExport {
 public:
  /// `scheme` is what the weights of `source` are stored in, or, where that is empty, what they are to be stored in;
  /// not given, one is chosen for the formats of the layers: of compressed-tensors, and of nf4 bitsandbytes'. Throws
  /// ValueError where they have several formats or one that only GGUF stores, naming two layers; IoError.
  PackedExport(const nn::Module& module, const Family& family, const std::vector<WeightRow>& rows,
               std::optional<PackedScheme> scheme, const std::string& source);
  ~PackedExport();

  /// Whether any row is stored in low bits; then there is a scheme.
  bool any() const { return !layers_.empty(); }
  const PackedScheme& scheme() const { return *scheme_; }
  /// What the row's weight is stored as; nullptr where that is the row's tensor.
  const std::vector<io::StoredItem>* items(const WeightRow& row) const;
  /// The bytes of one of those, u8.
  Tensor bytes(const std::string& item) const;

 private:
  struct Layer {
    WeightRow row;
    std::string name;          // in the files, without ".weight"
    bool copied = false;       // its pieces are the source's
    PackedWeight weight = {};  // else, what they are made of
    std::vector<io::StoredItem> items = {};
  };
  PackedPieces pieces(const Layer& layer) const;
  bool is_as_it_came(const nn::Module& module, const WeightRow& row);

  std::optional<PackedScheme> scheme_;
  std::unique_ptr<io::WeightFiles> source_;
  std::unique_ptr<PackedRows> there_;
  std::string prefix_;                           // that names of the source lack
  std::map<std::string, Layer> layers_;          // by the row's name
  std::map<std::string, std::string> layer_of_;  // by the item's
  std::set<std::string> parameters_;             // of the module
  std::map<std::string, bool> as_it_came_;       // by the layer's parameter, or the row of a plain one
  mutable std::pair<std::string, PackedPieces> last_;
};

}  // namespace strata
