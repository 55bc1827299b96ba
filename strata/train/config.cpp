// Settings from TOML and from --set, checked.

#include "strata/train/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/nearest.h"
#include "strata/text/utf8.h"
#include "strata/train/config_inl.h"
#include "strata/train/exact_step_inl.h"
#include "strata/train/exchange_run_inl.h"
#include "strata/train/layered_inl.h"
#include "strata/train/run.h"

// toml++ asserts things about its input that some malformed texts break (and, without assertions, lets the compiler
// assume them). Here a failed assertion refuses the text, in every kind of build.
#pragma push_macro("NDEBUG")
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wterminate"
#endif
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? void() : throw ::strata::ValueError("config", "malformed TOML"))
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma GCC diagnostic pop
#pragma pop_macro("NDEBUG")

namespace strata {
namespace {

using detail::field;
using detail::leaf;

constexpr std::string_view kOp = "config";
constexpr std::string_view kOverride = "--set";
constexpr size_t kMaxBytes = 1 << 20;
// toml++ recurses once per table of a dotted key.
constexpr int kMaxDotsPerLine = 200;

/// Where each key was set: "gpt.toml:3" or "--set".
using Origins = std::map<std::string_view, std::string>;

std::string_view type_name(ConfigType t) {
  switch (t) {
    case ConfigType::integer:
      return "an integer";
    case ConfigType::number:
      return "a number";
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::text:
      break;
  }
  return "a text";
}

[[noreturn]] void fail(const std::string& origin, const std::string& message) {
  throw ValueError(origin.empty() ? kOp : std::string_view(origin), message);
}

// A piece of foreign text, short and printable, for a message.
std::string in_quotes(std::string_view text) {
  std::string s = "'";
  for (const char c : text.substr(0, 60)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u >= 0x7f) {
      s += fmt::format("\\x{:02x}", u);
    } else {
      s += c;
    }
  }
  return s + (text.size() > 60 ? "...'" : "'");
}

[[noreturn]] void fail_unknown(const std::string& origin, std::string_view name) {
  std::string hint = "; strata train --help lists the keys";
  if (name.size() <= 100) {
    const ConfigKey* best = nullptr;
    size_t best_distance = std::numeric_limits<size_t>::max();
    for (const ConfigKey& key : config_keys()) {
      // The right key in the wrong section, or without one, counts as a near miss.
      const size_t d =
          std::min(text::edit_distance(name, key.name), text::edit_distance(leaf(name), leaf(key.name)) + 1);
      if (d < best_distance) best_distance = d, best = &key;
    }
    if (best_distance <= std::max<size_t>(2, name.size() / 3)) hint = fmt::format("; did you mean {}?", best->name);
  }
  fail(origin, fmt::format("unknown key {}{}", in_quotes(name), hint));
}

const ConfigKey& find_key(const std::string& origin, std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return key;
  fail_unknown(origin, name);
}

std::string plain(double v) {
  return fmt::format("{}", v);
}

void check_range(const std::string& origin, const ConfigKey& key, double v) {
  if (v >= key.min && v <= key.max) return;  // false for NaN
  // Counts read better without an exponent.
  const auto bound = [&](double b) { return key.type == ConfigType::integer ? fmt::format("{:.0f}", b) : plain(b); };
  fail(origin,
       fmt::format("{} = {} is out of range, allowed is {} to {}", key.name, bound(v), bound(key.min), bound(key.max)));
}

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t n = std::min(words.find(' '), words.size());
    if (words.substr(0, n) == word) return true;
    words.remove_prefix(std::min(n + 1, words.size()));
  }
  return false;
}

void check_choice(const std::string& origin, const ConfigKey& key, std::string_view v) {
  if (key.choices.empty() || has_word(key.choices, v)) return;
  fail(origin, fmt::format("{} = {} is not one of: {}", key.name, in_quotes(v), key.choices));
}

[[noreturn]] void fail_type(const std::string& origin, const ConfigKey& key, const std::string& got) {
  fail(origin, fmt::format("{} wants {}, got {}", key.name, type_name(key.type), got));
}

void assign(TrainConfig& c, const std::string& origin, const ConfigKey& key, const toml::node& node) {
  const auto got = [&]() -> std::string {
    if (const auto* v = node.as_string()) return "the text " + in_quotes(v->get());
    if (const auto* v = node.as_integer()) return fmt::format("the integer {}", v->get());
    if (const auto* v = node.as_floating_point()) return fmt::format("the number {}", v->get());
    if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
    if (node.is_array()) return "an array";
    if (node.is_table()) return "a table";
    return "a date or time";
  };
  switch (key.type) {
    case ConfigType::integer:
      if (!node.is_integer()) fail_type(origin, key, got());
      field<int64_t>(c, key) = node.as_integer()->get();
      check_range(origin, key, static_cast<double>(field<int64_t>(c, key)));
      return;
    case ConfigType::number:
      if (!node.is_integer() && !node.is_floating_point()) fail_type(origin, key, got());
      field<double>(c, key) = *node.value<double>();
      check_range(origin, key, field<double>(c, key));
      return;
    case ConfigType::boolean:
      if (!node.is_boolean()) fail_type(origin, key, got());
      field<bool>(c, key) = node.as_boolean()->get();
      return;
    case ConfigType::text:
      if (!node.is_string()) fail_type(origin, key, got());
      field<std::string>(c, key) = node.as_string()->get();
      check_choice(origin, key, field<std::string>(c, key));
      return;
  }
}

template <class T>
std::optional<T> number_from(std::string_view text) {
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

// A text as typed in a shell, or in TOML's double quotes with its escapes.
std::string text_value(const std::string& origin, const ConfigKey& key, std::string_view value) {
  if (text::valid_utf8(value) != value) fail(origin, fmt::format("{} = {} is not UTF-8", key.name, in_quotes(value)));
  if (!value.starts_with('"')) return std::string(value);
  try {
    const toml::table t = toml::parse(fmt::format("v = {}", value));
    if (t.size() == 1 && t["v"].is_string()) return t["v"].as_string()->get();
  } catch (const toml::parse_error&) {
    // told below
  }
  fail_type(origin, key, in_quotes(value));
}

void assign_override(TrainConfig& c, std::string_view text, Origins& origins) {
  const std::string origin(kOverride);
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) fail(origin, fmt::format("wants key=value, got {}", in_quotes(text)));
  const auto trim = [](std::string_view s) {
    while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
    while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
    return s;
  };
  const ConfigKey& key = find_key(origin, trim(text.substr(0, equals)));
  std::string_view value = text.substr(equals + 1);
  if (key.type != ConfigType::text) value = trim(value);
  switch (key.type) {
    case ConfigType::integer: {
      const auto v = number_from<int64_t>(value);
      if (!v) fail_type(origin, key, in_quotes(value));
      check_range(origin, key, static_cast<double>(*v));
      field<int64_t>(c, key) = *v;
      break;
    }
    case ConfigType::number: {
      const auto v = number_from<double>(value);
      if (!v) fail_type(origin, key, in_quotes(value));
      check_range(origin, key, *v);
      field<double>(c, key) = *v;
      break;
    }
    case ConfigType::boolean:
      if (value != "true" && value != "false") fail_type(origin, key, in_quotes(value));
      field<bool>(c, key) = value == "true";
      break;
    case ConfigType::text:
      field<std::string>(c, key) = text_value(origin, key, value);
      check_choice(origin, key, field<std::string>(c, key));
      break;
  }
  origins[key.name] = origin;
}

// A key that the optimizer does not read does nothing: who sets it is told, or it takes its default again.
void settle_unread(TrainConfig& c, const Origins& origins, Unread unread) {
  const auto origin_of = [&](std::string_view name) {
    const auto it = origins.find(name);
    return it == origins.end() ? std::string() : it->second;
  };
  TrainConfig defaults;
  const bool switched = origin_of("train.optimizer") == kOverride;
  for (const ConfigKey& key : config_keys()) {
    if (is_read(key, c.optim.optimizer) || value_text(c, key) == value_text(defaults, key)) continue;
    const std::string origin = origin_of(key.name);
    const bool nothing = key.type == ConfigType::number && field<double>(c, key) == 0;
    if (unread == Unread::refused && !nothing && !(switched && origin != kOverride))
      fail(origin, fmt::format("{} is of {}: train.optimizer = {} does not read it", key.name, key.optimizers,
                               c.optim.optimizer));
    if (key.type == ConfigType::number) {
      field<double>(c, key) = field<double>(defaults, key);
    } else {
      field<bool>(c, key) = field<bool>(defaults, key);
    }
  }
}

// What must fit together. Blames the last-named key that the user set.
void check_together(const TrainConfig& c, const Origins& origins) {
  const auto blame = [&](std::initializer_list<std::string_view> keys) -> std::string {
    for (const std::string_view key : keys)
      if (const auto it = origins.find(key); it != origins.end()) return it->second;
    return "";
  };
  if (c.device != "cpu" && c.device != "cuda" && !c.device.starts_with("cuda:"))
    fail(blame({"train.device"}), fmt::format("train.device = \"{}\" is none of cpu, cuda, cuda:N", c.device));
  try {
    parse_device(c.device);
  } catch (const ValueError& e) {
    fail(blame({"train.device"}), fmt::format("train.device: {}", e.what()));
  }
  const std::string low = c.dtype == "fp8" ? "bf16" : c.dtype;
  if (c.grad_dtype == "bf16" && (low != "bf16" || c.accumulate != 1))
    fail(blame({"train.grad_dtype", "train.dtype", "train.accumulate"}),
         fmt::format("train.grad_dtype = bf16 wants train.dtype = bf16 and train.accumulate = 1, got {} and {}",
                     c.dtype, c.accumulate));
  if (c.param_dtype != "f32" && low != c.param_dtype)
    fail(blame({"train.param_dtype", "train.dtype"}),
         fmt::format("train.param_dtype = {} wants train.dtype = {}, got {}", c.param_dtype, c.param_dtype, c.dtype));
  if (const std::string& update = c.optim.param_update;
      c.optim.low_state && (update == "master" || update == "compensated"))
    fail(blame({"train.low_state", "train.param_update"}),
         fmt::format("train.low_state keeps moments in bf16, train.param_update = {} keeps all in f32", update));
  if (c.optim.low_state && c.optim.state_8bit)
    fail(blame({"train.low_state", "train.state_8bit"}),
         "train.low_state keeps moments in bf16, train.state_8bit in 8 bits");
  if (c.optim.param_update == "compensated" && c.optim.optimizer == "adafactor")
    fail(blame({"train.param_update", "train.optimizer"}),
         "train.param_update = compensated is not for adafactor, which takes weights in one array");
  const TuneConfig& u = c.tune;
  const bool own = c.init.empty();  // else sizes are the other model's
  if (c.model.family == "init" && c.init.empty())
    fail(blame({"model.family"}), "model.family = init wants model.init: a folder of a model");
  if (c.init.empty() && c.data.format == "preferences")
    fail(blame({"data.format"}), "data.format = preferences wants model.init: a model that answers already");
  if (c.init.empty() && c.data.format == "seq2seq")
    fail(blame({"data.format"}), "data.format = seq2seq wants model.init: a model that reads one text and writes another");
  if (u.method != "full" && !u.freeze.empty())
    fail(blame({"tune.freeze"}),
         fmt::format("tune.freeze is for tune.method = full: {} trains its adapters and tune.train", u.method));
  if (u.quantize != "none" && (u.method == "full" || own))
    fail(blame({"tune.quantize", "tune.method"}),
         fmt::format("tune.quantize = {} is for adapters (tune.method = lora or dora) on a model that exists "
                     "(model.init)",
                     u.quantize));
  if (u.preference == "ipo" && u.label_smoothing > 0)
    fail(blame({"tune.label_smoothing", "tune.preference"}), "tune.label_smoothing is of tune.preference = sigmoid");
  const MemoryConfig& y = c.memory;
  try {
    y.budget();
  } catch (const ValueError& e) {
    fail(blame({"memory.device", "memory.host", "memory.disk"}), e.what());
  }
  for (const auto& [key, where] : {std::pair{"memory.activations", &y.activations},
                                   {"memory.state", &y.state},
                                   {"memory.parameters", &y.parameters}}) {
    if (*where == "disk" && y.disk.empty())
      fail(blame({key}), fmt::format("{} = disk wants memory.disk: a folder on it", key));
    if (*where == "host" && c.device == "cpu")
      fail(blame({key, "train.device"}),
           fmt::format("{} = host is for cards: the memory of train.device = cpu is the host's", key));
  }
  if (!y.host.empty() && c.device == "cpu")
    fail(blame({"memory.host", "train.device"}),
         "memory.host is beside a card: with train.device = cpu say memory.device");
  if (y.delayed_update && y.update != "cpu")
    fail(blame({"memory.delayed_update", "memory.update"}), "memory.delayed_update wants memory.update = cpu");
  if (y.accumulation == "layers") {
    if (const std::string why = LayeredAccumulation::refuses(c); !why.empty())
      fail(blame({"memory.accumulation", "train.accumulate", "data.format"}), "memory.accumulation = layers: " + why);
  }
  if (c.save_async && c.memory.any())
    fail(blame({"train.save_async"}),
         "train.save_async is not for [memory]: what it copies is in no budget; leave one of them out");
  if (const std::string why = ExactStep::refuses(c); !why.empty()) fail(blame({"parallel.exact"}), why);
  if (const std::string why = ExchangeRun::refuses(c); !why.empty()) fail(blame({"parallel.reduce"}), why);
  const ModelConfig& m = c.model;
  if (own && m.dim % m.heads != 0)
    fail(blame({"model.heads", "model.dim"}),
         fmt::format("model.heads = {} does not divide model.dim = {}", m.heads, m.dim));
  if (own && m.kv_heads != 0 && m.heads % m.kv_heads != 0)
    fail(blame({"model.kv_heads", "model.heads"}),
         fmt::format("model.kv_heads = {} does not divide model.heads = {}", m.kv_heads, m.heads));
  if (own && m.family == "llama" && (m.dim / m.heads) % 2 != 0)
    fail(blame({"model.heads", "model.dim", "model.family"}),
         fmt::format("rotary positions turn pairs of numbers, but model.dim / model.heads = {} is odd",
                     m.dim / m.heads));
  if (const std::string why = own ? unfit_experts(m) : ""; !why.empty())
    fail(blame({"model.experts_per_token", "model.expert_capacity", "model.experts"}), why);
  if (c.data.tokenizer.empty()) fail(blame({"data.tokenizer"}), "data.tokenizer is empty: byte, bpe, ids, or a path");
  if (!own && c.data.names_tokenizer())
    fail(blame({"data.tokenizer", "model.init"}),
         fmt::format("data.tokenizer = {}: the model that model.init names has its own", c.data.tokenizer));
  if (own && c.data.tokenizer == "byte" && m.vocab != 0 && m.vocab < 256)
    fail(blame({"model.vocab", "data.tokenizer"}),
         fmt::format("model.vocab = {} is less than the 256 tokens of the byte tokenizer", m.vocab));
  if (own && c.data.tokenizer == "bpe" && m.vocab < 257)
    fail(blame({"data.tokenizer", "model.vocab"}),
         fmt::format("data.tokenizer = bpe wants model.vocab of at least 257 (256 bytes and one pair), got {}",
                     m.vocab));
  if (own && c.data.tokenizer == "ids" && m.vocab < 1)
    fail(blame({"data.tokenizer", "model.vocab"}), "data.tokenizer = ids wants model.vocab: how many ids there are");
  try {
    make_schedule(c.optim, c.steps);
  } catch (const ValueError& e) {
    fail(blame({"train.schedule_options", "train.schedule"}), fmt::format("train.schedule_options: {}", e.what()));
  }
  OptimConfig o = c.optim;
  const double least = o.number("step_size_min"), most = o.number("step_size_max");
  if (least > most)
    fail(blame({"train.step_size_min", "train.step_size_max"}),
         fmt::format("train.step_size_min = {} is above train.step_size_max = {}", least, most));
  if (o.flag("nesterov") && o.number("momentum") == 0)
    fail(blame({"train.nesterov", "train.momentum"}), "train.nesterov wants train.momentum above 0");
}

// Refuses what TOML forbids anyway and toml++ does not survive: very long dotted keys, bytes that are not UTF-8, and
// characters past ASCII outside of quotes and comments.
void check_lines(std::string_view text, std::string_view source) {
  int line = 1;
  const auto refuse = [&](const char* why) { fail(fmt::format("{}:{}", source, line), why); };
  std::string_view quote;  // what ends the string that we are in
  bool comment = false;
  int dots = 0;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const char c = rest[0];
    const size_t n = text::utf8_length(rest);
    if (n == 0) refuse("not UTF-8");
    if (n > 1 && quote.empty() && !comment) refuse("characters other than ASCII belong in quotes");
    if (c == '.' && ++dots > kMaxDotsPerLine) refuse("too many dots in one line");
    size_t step = n;
    if (c == '\n') {
      ++line;
      dots = 0;
      comment = false;
      if (quote.size() == 1) quote = {};  // an error, which the parser words better
    } else if (comment) {
      // to the end of the line
    } else if (!quote.empty()) {
      if (quote[0] == '"' && c == '\\' && rest.size() > 1 && rest[1] > ' ') {
        step = 2;
      } else if (rest.starts_with(quote)) {
        step = quote.size();
        quote = {};
      }
    } else if (c == '#') {
      comment = true;
    } else if (c == '"' || c == '\'') {
      const std::string_view triple = c == '"' ? "\"\"\"" : "'''";
      quote = rest.starts_with(triple) ? triple : triple.substr(0, 1);
      step = quote.size();
    }
    i += step;
  }
}

void parse_into(TrainConfig& c, std::string_view text, std::string_view source, Origins& origins) {
  if (text.size() > kMaxBytes)
    fail(std::string(source),
         fmt::format("{} bytes is too long for a configuration, the limit is {}", text.size(), kMaxBytes));
  check_lines(text, source);

  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& e) {
    fail(fmt::format("{}:{}:{}", source, e.source().begin.line, e.source().begin.column), std::string(e.description()));
  } catch (const ValueError&) {
    fail(std::string(source), "malformed TOML, probably a value that ends too early");
  }
  for (const auto& [section, node] : root) {
    const std::string at = fmt::format("{}:{}", source, section.source().begin.line);
    const bool known = section.str() == "model" || section.str() == "tune" || section.str() == "data" ||
                       section.str() == "train" || section.str() == "memory" ||
                       section.str() == "parallel";
    if (!known) {
      if (!node.is_table()) fail_unknown(at, section.str());
      fail(at, fmt::format("unknown section {}; the sections are [model], [tune], [data], [train], [memory] and [parallel]",
                           in_quotes(section.str())));
    }
    if (!node.is_table())
      fail(at, fmt::format("{} is a section: write [{}] above its keys", section.str(), section.str()));
    for (const auto& [name, value] : *node.as_table()) {
      const std::string origin = fmt::format("{}:{}", source, name.source().begin.line);
      const ConfigKey& key = find_key(origin, fmt::format("{}.{}", section.str(), name.str()));
      assign(c, origin, key, value);
      origins[key.name] = origin;
    }
  }
}

}  // namespace

bool is_read(const ConfigKey& key, std::string_view optimizer) {
  return key.optimizers.empty() || has_word(key.optimizers, optimizer);
}

TrainConfig parse_config(std::string_view toml, std::string_view source, const std::vector<std::string>& overrides,
                         Unread unread) {
  TrainConfig c;
  Origins origins;
  parse_into(c, toml, source, origins);
  for (const std::string& text : overrides) assign_override(c, text, origins);
  settle_unread(c, origins, unread);
  check_together(c, origins);
  return c;
}

TrainConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  if (path.empty()) return parse_config("", "config", overrides);
  const std::string text = io::read_file(path, kMaxBytes);
  return parse_config(text, path, overrides);
}

void validate(const TrainConfig& config) {
  TrainConfig c = config;
  for (const ConfigKey& key : config_keys()) {
    if (key.type == ConfigType::integer) check_range("", key, static_cast<double>(field<int64_t>(c, key)));
    if (key.type == ConfigType::number) check_range("", key, field<double>(c, key));
    if (key.type == ConfigType::text) check_choice("", key, field<std::string>(c, key));
  }
  settle_unread(c, {}, Unread::refused);
  check_together(config, {});
}

memory::Budget MemoryConfig::budget() const {
  memory::Budget b;
  if (!device.empty()) b.device = memory::parse_bytes(device, "memory.device");
  if (!host.empty()) b.host = memory::parse_bytes(host, "memory.host");
  b.disk = memory::parse_folders(disk);
  return b;
}

bool MemoryConfig::any() const {
  return !(*this == MemoryConfig{});
}

}  // namespace strata
