#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/json_cursor_inl.h"
#include "strata/io/weight_index_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kMap = "weight_map";

bool is_plain_name(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.size() <= 255 &&
         std::none_of(name.begin(), name.end(), [](char c) { return c == '/' || c == '\\' || c == '\0'; });
}

// Takes the map from the parser's events and passes over the rest, however deep it nests.
class IndexReader {
 public:
  using json = nlohmann::json;

  IndexReader(std::string_view text, std::string_view source)
      : text_(text), source_(source), progress_(text.data()), counted_(text.data()) {}

  std::vector<WeightIndexLine> run() {
    JsonCursor first{text_.data(), &progress_}, last{text_.data() + text_.size(), &progress_};
    json::sax_parse(first, last, this);
    check<IoError>(found_, "", quote(source_), ": has no weight_map");
    return std::move(lines_);
  }

  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(int64_t) { return value(); }
  bool number_unsigned(uint64_t) { return value(); }
  bool number_float(double, const std::string&) { return value(); }
  bool binary(json::binary_t&) { return value(); }
  bool string(std::string& text) {
    if (!in_map()) return value();
    if (!is_plain_name(text))
      fail("weight_map says of tensor ", quote(lines_.back().name), " that it is in ", quote(text),
           ", which is no name of a file in the index's folder");
    lines_.back().file = std::move(text);
    return true;
  }
  bool start_object(size_t) {
    if (depth_ == 1 && is_map_) {
      found_ = true;
    } else {
      value();
    }
    ++depth_;
    return true;
  }
  bool key(std::string& key) {
    if (depth_ == 1) {
      is_map_ = key == kMap;
      if (is_map_ && found_) fail("weight_map is given twice");
    } else if (in_map()) {
      if (!names_.insert(key).second) fail("weight_map names tensor ", quote(key), " twice");
      lines_.push_back({std::move(key), {}, line()});
    }
    return true;
  }
  bool end_object() { return end(); }
  bool start_array(size_t) {
    value();
    ++depth_;
    return true;
  }
  bool end_array() { return end(); }
  bool parse_error(size_t position, const std::string& token, const json::exception&) {
    fail("not valid JSON at byte ", position > 0 ? position - 1 : 0, ", at ", quote(token, 40));
  }

 private:
  bool in_map() const { return depth_ == 2 && is_map_; }
  bool end() {
    --depth_;
    return true;
  }
  // Any value but a file's name where that is wanted.
  bool value() {
    if (depth_ == 0 && *text_.data() != '{') fail("an object is wanted");
    if (depth_ == 1 && is_map_) fail("weight_map must be an object");
    if (in_map()) fail("weight_map says of tensor ", quote(lines_.back().name), " no file's name");
    return true;
  }
  uint64_t line() {
    line_ += static_cast<uint64_t>(std::count(counted_, progress_, '\n'));
    counted_ = progress_;
    return line_;
  }
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) {
    throw IoError("", cat(quote(source_), ", line ", line(), ": ", parts...));
  }

  std::string_view text_, source_;
  const char *progress_, *counted_;
  uint64_t line_ = 1;
  int depth_ = 0;
  bool is_map_ = false, found_ = false;
  std::set<std::string> names_;
  std::vector<WeightIndexLine> lines_;
};

}  // namespace

std::vector<WeightIndexLine> parse_weight_index(std::string_view text, std::string_view source) {
  check<IoError>(text.size() <= kMaxWeightIndex, "", quote(source), " has ", text.size(), " bytes, at most ",
                 kMaxWeightIndex, " are allowed");
  check<IoError>(!text.empty(), "", quote(source), " is empty");
  return IndexReader(text, source).run();
}

}  // namespace strata::io
