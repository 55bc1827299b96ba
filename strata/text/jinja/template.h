#pragma once
// Chat templates: Jinja (https://jinja.palletsprojects.com, 3.1) as `transformers` runs it: blocks trimmed
// (trim_blocks, lstrip_blocks), loop controls, `tojson` without escapes, `raise_exception`, `strftime_now`,
// `generation` blocks, an immutable sandbox. Nothing of the machine can be reached from a template, and what it may
// cost is bounded.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace strata::text::jinja {

/// What rendering may cost. A template that passes one of them ends with a ValueError that names it.
struct Limits {
  int64_t steps = 10'000'000;  ///< expressions and statements, and one for each 64 bytes that an operation makes
  int64_t depth = 200;         ///< calls within calls; in a source: expressions and blocks within each other
  int64_t output_bytes = int64_t{1} << 26;  ///< of the result, and of any text on the way
};

/// Half-open ranges of bytes, in order, none empty, none touching the next.
using Ranges = std::vector<std::pair<size_t, size_t>>;

/// What a template made.
struct Rendered {
  std::string text;
  /// What came from `data` (a message's text, say): a control token that is spelled there is ordinary text.
  Ranges from_data;
  /// What stands within `{% generation %}` blocks: what the assistant wrote.
  Ranges generated;
};

/// How a template is run.
struct Options {
  Limits limits = {};
  /// The time that strftime_now() formats; the system's, as local time, where empty.
  std::function<std::tm()> now = {};
};

struct Node;

/// A template, parsed once; render() may be called from several threads.
///
///     Template t("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}");
///     t.render({{"messages", {{{"role", "user"}, {"content", "Hi"}}}}}).text;  // "<|user|>Hi\n"
class Template {
 public:
  /// Throws ValueError that names the line for what is no template, for a block, filter or test that does not exist,
  /// and for one nested deeper than `options.limits.depth`.
  explicit Template(std::string_view source, Options options = {});
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// Runs it with the members of two objects as variables: `data` comes from outside (messages, tools, documents),
  /// `trusted` from the model's own files (bos_token, ..) and is believed. Throws ValueError with the line for
  /// raise_exception(), undefined values that are used, operations that do not fit their values, and a passed limit.
  Rendered render(const nlohmann::ordered_json& data,
                  const nlohmann::ordered_json& trusted = nlohmann::ordered_json::object()) const;

 private:
  std::unique_ptr<const Node> root_;
  Options options_;
};

}  // namespace strata::text::jinja
