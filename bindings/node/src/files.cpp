// Files: safetensors both ways, IDX files.

#include <map>
#include <optional>
#include <span>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"
#include "strata/core/error.h"
#include "strata/data/idx.h"
#include "strata/io/safetensors.h"

namespace strata::node {
namespace {

using Metadata = std::map<std::string, std::string>;

napi_value text_map(Env& env, const Metadata& metadata) {
  napi_value object = env.object();
  for (const auto& [key, value] : metadata) {
    napi_value k = env.string(key);
    env.check(napi_set_property(env.env, object, k, env.string(value)));
  }
  return object;
}

// save(flag, path, names, tensors, metadataKeys, metadataValues) -> promise; without a path, of a Buffer of the file
napi_value save(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const bool to_file = !c.env.missing(c[1]);
  const std::string path = to_file ? c.env.text(c[1], "save", "the path") : std::string();
  const std::vector<std::string> names = c.env.texts(c[2], "save", "a name");
  const TensorList tensors = tensors_of(c.env, c[3], "save", "the tensors");
  const std::vector<std::string> keys = c.env.texts(c[4], "save", "a key"),
                                 values = c.env.texts(c[5], "save", "a value of the metadata");
  auto map = std::make_shared<io::TensorMap>();
  for (size_t i = 0; i < names.size(); ++i) map->emplace(names[i], tensors[i].detach());
  Metadata metadata;
  for (size_t i = 0; i < keys.size(); ++i) metadata.emplace(keys[i], values[i]);
  if (to_file)
    return start_task(
        c.env, false, std::move(flag), [path, map, metadata] { io::save_safetensors(path, *map, metadata); },
        [](Env& env) { return env.undefined(); });
  auto file = std::make_shared<std::string>();
  return start_task(
      c.env, false, std::move(flag), [file, map, metadata] { *file = io::encode_safetensors(*map, metadata); },
      [file](Env& env) {
        napi_value buffer;
        env.check(napi_create_buffer_copy(env.env, file->size(), file->data(), nullptr, &buffer));
        return buffer;
      });
}

// The bytes of a Buffer or Uint8Array, as they are now.
std::optional<std::string> bytes_of(Env& env, napi_value v) {
  bool is = false;
  env.check(napi_is_typedarray(env.env, v, &is));
  if (!is) return std::nullopt;
  napi_typedarray_type type;
  size_t length = 0, offset = 0;
  void* data = nullptr;
  napi_value buffer;
  env.check(napi_get_typedarray_info(env.env, v, &type, &length, &data, &buffer, &offset));
  check(type == napi_uint8_array, "load", "wants a path, a Buffer or a Uint8Array");
  return std::string(static_cast<const char*>(data), length);
}

// load(flag, path or bytes) -> promise of {tensors, metadata}
napi_value load(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const std::optional<std::string> image = bytes_of(c.env, c[1]);
  const std::string path = image ? std::string("the bytes") : c.env.text(c[1], "load", "the path");
  struct Loaded {
    io::TensorMap tensors;
    Metadata metadata;
  };
  auto loaded = std::make_shared<Loaded>();
  return start_task(
      c.env, false, std::move(flag),
      [path, image, loaded] {
        if (image) {
          const std::span<const std::byte> bytes = std::as_bytes(std::span(*image));
          io::SafetensorsHeader header = io::parse_safetensors(bytes, path);
          loaded->tensors = io::read_safetensors(bytes, header, path);
          loaded->metadata = std::move(header.metadata);
          return;
        }
        const io::SafetensorsFile file(path);
        loaded->tensors = file.tensors();
        loaded->metadata = file.metadata();
      },
      [loaded](Env& env) {
        napi_value tensors = env.object();
        for (auto& [name, t] : loaded->tensors) {
          napi_value key = env.string(name);
          env.check(napi_set_property(env.env, tensors, key, wrap(env, std::move(t))));
        }
        napi_value result = env.object();
        env.set(result, "tensors", tensors);
        env.set(result, "metadata", text_map(env, loaded->metadata));
        return result;
      });
}

// readIdx(flag, path) -> promise of a tensor
napi_value read_idx(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  const std::string path = c.env.text(c[1], "readIdx", "the path");
  auto result = std::make_shared<Tensor>();
  return start_task(
      c.env, false, std::move(flag), [path, result] { *result = data::read_idx(path); },
      [result](Env& env) { return wrap(env, std::move(*result)); });
}

}  // namespace

void add_files(Env& env, napi_value exports) {
  env.add(exports, {{"save", entry<save>}, {"load", entry<load>}, {"readIdx", entry<read_idx>}});
}

}  // namespace strata::node
