// safetensors files and checkpoints; plugins.

#include <nanobind/stl/map.h>

#include "py.h"
#include "strata/c/plugin.h"
#include "strata/io/checkpoint.h"
#include "strata/io/safetensors.h"

namespace strata::python {

void bind_io(nb::module_& m) {
  m.def("load_plugin", [](const std::string& path) {
          const Plugin* plugin;
          {
            Released release;
            plugin = &load_plugin(path);
          }
          std::vector<std::string> names;
          for (const OpBase* op : plugin->ops) names.emplace_back(op->name());
          return std::tuple(plugin->name, plugin->version, plugin->path, names);
        },
        nb::arg("path"), "(name, version, path, ops) of a plugin, whose records are registered.");
  m.def("save_safetensors", [](const std::string& path, const io::TensorMap& tensors, const io::Metadata& metadata) {
          Released release;
          io::save_safetensors(path, tensors, metadata);
        },
        nb::arg("path"), nb::arg("tensors"), nb::arg("metadata") = io::Metadata());
  m.def("load_safetensors", [](const std::string& path) {
          Released release;
          const io::SafetensorsFile file(path);
          return std::pair(file.tensors(), file.metadata());
        },
        nb::arg("path"), "(tensors by name, metadata) of a safetensors file.");
  m.def("encode_safetensors", [](const io::TensorMap& tensors, const io::Metadata& metadata) {
          std::string file;
          {
            Released release;
            file = io::encode_safetensors(tensors, metadata);
          }
          return nb::bytes(file.data(), file.size());
        },
        nb::arg("tensors"), nb::arg("metadata") = io::Metadata(), "What save_safetensors writes.");
  m.def("decode_safetensors", [](const nb::bytes& data, const std::string& name) {
          const std::span<const std::byte> file(static_cast<const std::byte*>(data.data()), data.size());
          Released release;
          io::SafetensorsHeader header = io::parse_safetensors(file, name);
          return std::pair(io::read_safetensors(file, header, name), std::move(header.metadata));
        },
        nb::arg("data"), nb::arg("name"), "(tensors by name, metadata) of a safetensors file in memory.");
  m.def("save_checkpoint", [](const std::string& run_dir, int64_t step, const io::TensorFiles& files,
                              const std::map<std::string, std::string>& state, int keep_last) {
          Released release;
          return io::save_checkpoint(run_dir, step, files, state, keep_last);
        },
        nb::arg("run_dir"), nb::arg("step"), nb::arg("files"), nb::arg("state") = std::map<std::string, std::string>(),
        nb::arg("keep_last") = 0, "Writes RUN/step-XXXXXXXX, whole or not at all; returns its path.");
  m.def("load_checkpoint", [](const std::string& dir, const std::vector<std::string>& only) {
          Released release;
          io::Checkpoint c = io::load_checkpoint(dir, only);
          return std::tuple(c.step, std::move(c.files), std::move(c.state));
        },
        nb::arg("path"), nb::arg("only") = std::vector<std::string>(), "(step, tensors by file and name, texts).");
  m.def("list_checkpoints", &io::list_checkpoints, nb::arg("run_dir"));
  m.def("find_latest_checkpoint", [](const std::string& run_dir) -> std::optional<std::string> {
          Released release;
          const auto found = io::find_latest_checkpoint(run_dir);
          return found ? std::optional(found->path) : std::nullopt;
        },
        nb::arg("run_dir"), "The newest checkpoint that verifies, or None.");
}

}  // namespace strata::python
