#pragma once
// What an option's value must be; errors say what is wanted and what came.

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "strata/core/device.h"
#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::cli {

/// A whole number (T an integer) or any number within bounds, both included.
template <class T>
CLI::Validator between(T least, T most) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        T v{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
        if (error == std::errc() && end == text.data() + text.size() && v >= least && v <= most) return "";
        const char* what = std::is_integral_v<T> ? "an integer" : "a number";
        if (most == std::numeric_limits<T>::max())
          return fmt::format("wants {} of at least {}, got '{}'", what, least, text);
        return fmt::format("wants {} from {} to {}, got '{}'", what, least, most, text);
      },
      "");
}
inline CLI::Validator at_least(int64_t least) {
  return between<int64_t>(least, std::numeric_limits<int64_t>::max());
}

/// A device that computes.
inline CLI::Validator device_name() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        try {
          if (!parse_device(text).is_meta()) return "";
        } catch (const Error&) {
          // told below
        }
        return fmt::format("wants cpu, cuda or cuda:N, got '{}'", text);
      },
      "");
}

/// A file that can be written once the work is done, which may be hours from now: its folder is there and lets us
/// write, or it is a device or a pipe that does. The file itself is not touched.
inline CLI::Validator writable_file() {
  return CLI::Validator([](std::string& text) -> std::string { return io::why_not_writable(text); }, "");
}

}  // namespace strata::cli
