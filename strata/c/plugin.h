#pragma once
// Plugins: shared libraries that bring ops of their own. strata/c/strata.h tells what one must export.

#include <string>
#include <string_view>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/op_base.h"

namespace strata {

/// A plugin that cannot be loaded, or that broke the rules of strata/c/strata.h; the text says what is wrong with it.
class PluginError : public Error {
  using Error::Error;
};

/// A plugin that was loaded. It stays until the program ends.
struct Plugin {
  std::string name, version;       ///< as the plugin says them
  std::string path;                ///< the file, without symbolic links
  std::vector<const OpBase*> ops;  ///< its records, in its order
};

/// Loads a plugin and registers its records, all or none of them; from then on they are ordinary ops. The same file
/// twice is one. Throws PluginError; then nothing is registered.
const Plugin& load_plugin(const std::string& path);
/// The plugins that were loaded so far, in their order.
std::vector<const Plugin*> loaded_plugins();

}  // namespace strata
