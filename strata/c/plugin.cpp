#include "strata/c/plugin.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>

#include "strata/c/plugin_op.h"
#include "strata/core/registration.h"

namespace strata {
namespace {

// What version 1 has; later ones may add members behind these.
constexpr size_t kPluginSize = offsetof(strata_plugin, num_records) + sizeof(size_t);
constexpr size_t kRecordSize = offsetof(strata_op_record, reference) + sizeof(void*);

std::mutex g_mutex;  // one plugin is loaded at a time
std::vector<std::unique_ptr<Plugin>>& plugins() {
  static std::vector<std::unique_ptr<Plugin>> all;
  return all;
}

std::string real_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  check<PluginError>(!failed, "load_plugin", "cannot open ", path, ": ", failed.message());
  check<PluginError>(std::filesystem::is_regular_file(real), "load_plugin", path, " is not a file");
  return real.string();
}

// A shared library, closed again unless it was kept.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    // The loader's text names the file.
    if (!handle_) throw PluginError("load_plugin", cat("this is no shared library that can be loaded: ", dlerror()));
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  void* find(const char* symbol) const { return dlsym(handle_, symbol); }
  void keep() { handle_ = nullptr; }

 private:
  void* handle_;
};

const strata_plugin* enter(strata_plugin_entry_fn entry, const std::string& path) {
  const uint64_t failures = c::last_failure().count;
  const strata_plugin* plugin = nullptr;
  try {
    plugin = entry(&c::plugin_api());
  } catch (const std::exception& e) {
    throw PluginError("load_plugin", cat(path, ": " STRATA_PLUGIN_ENTRY " threw a C++ exception: ", e.what()));
  } catch (...) {
    throw PluginError("load_plugin", cat(path, ": " STRATA_PLUGIN_ENTRY " threw a C++ exception"));
  }
  if (plugin) return plugin;
  throw PluginError("load_plugin", cat(path, ": the plugin refuses to load: ",
                                       c::last_failure().count > failures ? std::string_view(c::last_failure().text)
                                                                          : "it gave no reason"));
}

void check_plugin(const strata_plugin& p, const std::string& path) {
  check<PluginError>(p.struct_size >= offsetof(strata_plugin, name), "load_plugin", path,
                     ": strata_plugin.struct_size is ", p.struct_size, ", version ", STRATA_ABI_VERSION, " has ",
                     kPluginSize, " bytes");
  check<PluginError>(p.abi_version == STRATA_ABI_VERSION, "load_plugin", path, ": the plugin was compiled for version ",
                     p.abi_version, " of strata.h, this program has version ", STRATA_ABI_VERSION,
                     "; compile it again");
  check<PluginError>(p.struct_size >= kPluginSize, "load_plugin", path, ": strata_plugin.struct_size is ",
                     p.struct_size, ", version ", STRATA_ABI_VERSION, " has ", kPluginSize, " bytes");
  check<PluginError>(p.name && *p.name, "load_plugin", path, ": the plugin has no name");
  check<PluginError>(p.records && p.num_records > 0, "load_plugin", path, ": the plugin has no records");
}

std::unique_ptr<c::PluginOp> make_op(const strata_plugin& p, size_t index, const std::string& path) {
  const strata_op_record* r = p.records[index];
  const std::string where = cat(path, ": record ", index);
  check<PluginError>(r != nullptr, "load_plugin", where, " is NULL");
  check<PluginError>(r->struct_size >= kRecordSize, "load_plugin", where, ": strata_op_record.struct_size is ",
                     r->struct_size, ", version ", STRATA_ABI_VERSION, " has ", kRecordSize, " bytes");
  check<PluginError>(r->schema && *r->schema, "load_plugin", where, " has no schema");
  check<PluginError>(r->doc && *r->doc, "load_plugin", where, " (", r->schema, ") has no doc");
  strata_op_record known = {};
  std::memcpy(&known, r, kRecordSize);
  try {
    return std::make_unique<c::PluginOp>(known,
                                         cat("plugin/", p.name, "/", std::filesystem::path(path).filename().string()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw PluginError("load_plugin", cat(where, " is refused: ", e.what()));
  }
}

}  // namespace

const Plugin& load_plugin(const std::string& path) {
  const std::string file = real_path(path);
  const std::lock_guard lock(g_mutex);
  for (const auto& p : plugins())
    if (p->path == file) return *p;
  Library library(file);
  const auto entry = reinterpret_cast<strata_plugin_entry_fn>(library.find(STRATA_PLUGIN_ENTRY));
  check<PluginError>(entry != nullptr, "load_plugin", path, " is no plugin: it has no symbol " STRATA_PLUGIN_ENTRY);
  const strata_plugin* said = enter(entry, path);
  check_plugin(*said, path);
  auto plugin = std::make_unique<Plugin>();
  plugin->name = said->name;
  plugin->version = said->version ? said->version : "";
  plugin->path = file;
  std::vector<std::unique_ptr<c::PluginOp>> ops;
  plugin->ops.reserve(said->num_records);
  plugins().reserve(plugins().size() + 1);
  {
    Registration registration;
    for (size_t i = 0; i < said->num_records; ++i) ops.push_back(make_op(*said, i, path));
    try {
      registration.commit();
    } catch (const ValueError& e) {
      throw PluginError("load_plugin", cat(path, ": ", e.what()));
    }
  }
  // From here on nothing can fail that would leave records of a library that is gone.
  library.keep();
  for (auto& op : ops) plugin->ops.push_back(op.release());
  plugins().push_back(std::move(plugin));
  return *plugins().back();
}

std::vector<const Plugin*> loaded_plugins() {
  const std::lock_guard lock(g_mutex);
  std::vector<const Plugin*> all;
  for (const auto& p : plugins()) all.push_back(p.get());
  return all;
}

}  // namespace strata
