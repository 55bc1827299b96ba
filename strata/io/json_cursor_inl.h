#pragma once
// A text that nlohmann's parser reads by events, which knows how far it has come.

#include <cstddef>
#include <iterator>

namespace strata::io {

/// An iterator over the text; `*progress` follows the furthest one.
struct JsonCursor {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** progress = nullptr;

  reference operator*() const { return *at; }
  JsonCursor& operator++() {
    *progress = ++at;
    return *this;
  }
  JsonCursor operator++(int) {
    JsonCursor old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const JsonCursor& a, const JsonCursor& b) { return a.at == b.at; }
};

}  // namespace strata::io
