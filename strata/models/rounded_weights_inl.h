#pragma once
// Models whose dense weights are never there together.

#include <memory>
#include <string>
#include <string_view>

#include "strata/models/family.h"
#include "strata/nn/module.h"
#include "strata/nn/packed.h"

namespace strata {
namespace io {
class WeightFiles;
}

/// load_weights() into a module that was made under nn::detail::DeferredWeights, to the bits of load_weights() and
/// nn::quantize() after it: the layers that quantize() takes are read one after the other, each rounded to `format` and
/// packed before the next is read, so that at most one weight is there in its own dtype (and, where that is no f32, as
/// the f32 copy that is rounded). All else is made on the default device, in the thread's tier. Packed parts are in the
/// device's own memory. Throws as load_weights() and quantize(); some layers may be packed then.
void load_rounded_weights(nn::Module& module, const Family& family, const ModelSpec& spec, const io::WeightFiles& files,
                          std::string_view format, const nn::PackOptions& options);

/// load_weights() into a module that was made under nn::detail::LateWeights: its late parameters are read when they come,
/// one by one. The module outlives that. Throws as load_weights(), now, for all that files do not hold as they should.
void load_late_weights(nn::Module& module, const Family& family, const ModelSpec& spec,
                       const std::shared_ptr<const io::WeightFiles>& files);

/// The weights of a folder, one at a time.
class FolderWeights {
 public:
  /// Compares the files with the family's rows. Throws as load_weights(); `files` outlives this.
  FolderWeights(const Family& family, const ModelSpec& spec, const io::WeightFiles& files);
  ~FolderWeights();
  FolderWeights(const FolderWeights&) = delete;
  /// What load_weights() would fill a parameter (or buffer) of `dtype` with, on the default device. Throws ValueError
  /// for a name that the model has not.
  Tensor read(const std::string& parameter, DType dtype) const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace strata
