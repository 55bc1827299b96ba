#pragma once
// Reading a config.json so that no key of it is passed over.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// The names that a value may have in a config.json: of several that are there all must be equal.
struct ConfigKey {
  ConfigKey(const char* name) : names{name} {}
  ConfigKey(std::string_view name) : names{name} {}
  ConfigKey(std::initializer_list<std::string_view> all) : names(all) {}
  std::vector<std::string_view> names;
};

/// An object of a config.json that knows which of its keys were read. Every function throws ValueError naming the file
/// and the key: for a value of another type or out of range, and for keys that mean the same and differ.
///
///     ConfigReader config(text, "model/config.json");
///     spec.dim = config.size("hidden_size", 4096);
///     config.finish();                                   // refuses what nobody asked for
///
/// A handle: copies share what was read. null is a value of its own: only the `maybe_` functions take it.
class ConfigReader {
 public:
  /// Throws IoError where `text` is not a JSON object.
  ConfigReader(std::string_view text, std::string_view source);

  /// Whether there is such a key, null or not; it counts as read.
  bool has(const ConfigKey& key) const;
  /// Whether it is there and is null.
  bool is_null(const ConfigKey& key) const;

  /// @name A value, or `absent` where there is none; without `absent` the key must be there.
  /// @{
  int64_t integer(const ConfigKey& key, std::optional<int64_t> absent = {}) const;
  int64_t size(const ConfigKey& key, std::optional<int64_t> absent = {}) const;  ///< from 1 to 2^31 - 1
  double number(const ConfigKey& key, std::optional<double> absent = {}) const;  ///< finite
  bool flag(const ConfigKey& key, std::optional<bool> absent = {}) const;
  std::string text(const ConfigKey& key, std::optional<std::string_view> absent = {}) const;
  /// @}
  /// @name The same where null is allowed: nullopt.
  /// @{
  std::optional<int64_t> maybe_size(const ConfigKey& key, std::optional<int64_t> absent = {}) const;
  std::optional<double> maybe_number(const ConfigKey& key, std::optional<double> absent = {}) const;
  /// @}
  /// @name Lists; nullopt where absent or null
  /// @{
  std::optional<std::vector<double>> numbers(const ConfigKey& key) const;
  std::optional<std::vector<std::string>> texts(const ConfigKey& key) const;
  std::optional<std::vector<int64_t>> integers(const ConfigKey& key) const;
  /// @}
  /// Whether a list is under the key; it does not count as read.
  bool is_list(const ConfigKey& key) const;
  /// How many members the object under the key has; nullopt where absent or null.
  std::optional<int64_t> members(const ConfigKey& key) const;
  /// The object under the key; nullopt where absent or null.
  std::optional<ConfigReader> object(const ConfigKey& key) const;

  /// The key is known, and its value changes no result here.
  void ignore(const ConfigKey& key) const;
  /// The key may only be absent, null or this value: what the engine does not have otherwise.
  void expect(const ConfigKey& key, bool value) const;
  void expect(const ConfigKey& key, std::string_view value) const;
  void expect(const ConfigKey& key, const char* value) const { expect(key, std::string_view(value)); }
  void expect(const ConfigKey& key, double value) const;
  /// The key may only be absent or null.
  void expect_none(const ConfigKey& key) const;
  /// Throws ValueError: file, key, its value, and why it is refused.
  [[noreturn]] void refuse(const ConfigKey& key, std::string_view why) const;

  /// Throws ValueError that lists the keys that were not read, here and in objects that were, and that are not in
  /// unread_keys().
  void finish() const;
  /// The file, for messages; of an object within it also the key.
  const std::string& source() const;

 private:
  struct State;
  explicit ConfigReader(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Keys of any config.json that change no result of a forward: transformers_version, use_cache, ids of special tokens
/// (which generation_config.json and the tokenizer have), settings of training and of generation.
std::vector<std::string_view> unread_keys();

}  // namespace strata
