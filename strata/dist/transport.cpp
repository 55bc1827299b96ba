// Finding and loading transports' modules.

#include "strata/dist/transport.h"

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include <dlfcn.h>

#include "strata/core/error.h"
#include "strata/dist/module_file_inl.h"
#include "strata/dist/store.h"

namespace strata::distributed {
namespace {
// The folder of the program or shared library that this code is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code error;
    // A program's own name may be what it was called by, a word without a folder.
    const std::filesystem::path file(info.dli_fname), found = file.has_parent_path() ? file : "/proc/self/exe";
    const std::filesystem::path whole = std::filesystem::canonical(found, error);
    if (!error) return whole.parent_path();
  }
  return ".";
}
}  // namespace

std::string detail::module_file(const std::string& name, std::string& tried) {
  const std::filesystem::path folder = own_folder();
  for (const char* place : {".", "../lib/strata", "../../lib/strata", "lib/strata"}) {
    const std::filesystem::path file = (folder / place / ("strata_" + name + ".so")).lexically_normal();
    std::error_code error;
    if (std::filesystem::exists(file, error)) return file.string();
    tried += (tried.empty() ? "" : ", ") + file.string();
  }
  return {};
}

MakeTransport transport_module(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, MakeTransport> loaded;
  const std::lock_guard lock(mutex);
  if (const auto it = loaded.find(name); it != loaded.end()) return it->second;
  check(!name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos, "dist",
        "'", name, "' is no transport's name");
  std::string tried;
  const std::string file = detail::module_file(name, tried);
  if (file.empty())
    throw DistributedError("dist", cat("there is no transport ", name, " (looked for ", tried,
                                       "); it is built where its library is installed"));
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw DistributedError("dist", cat("the transport ", name, " does not load: ", dlerror()));
  void* const make = dlsym(handle, kTransportSymbol);
  if (make == nullptr) throw DistributedError("dist", cat(file, " is no transport of this version"));
  return loaded[name] = reinterpret_cast<MakeTransport>(make);
}

}  // namespace strata::distributed
