#include <vector>

#include "strata/core/error.h"
#include "strata/data/json_rows_inl.h"
#include "strata/io/files.h"
#include "strata/io/json.h"

namespace strata::data {
using io::quote;
using nlohmann::ordered_json;
namespace {

// Takes the string at a path out of the parser's events.
class FieldFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldFinder(std::string_view field, std::string& text) : text_(text) {
    for (size_t begin = 0;;) {
      const size_t dot = field.find('.', begin);
      path_.emplace_back(field.substr(begin, dot - begin));
      if (dot == std::string_view::npos) break;
      begin = dot + 1;
    }
  }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary"); }
  bool string(string_t& s) override {
    if (wanted()) text_ = std::move(s);
    return value("a string");
  }
  bool key(string_t& name) override {
    armed_ = depth_ == matched_ + 1 && matched_ < path_.size() && name == path_[matched_];
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) object = true;
    if (wanted()) value("an object");
    if (armed_) ++matched_;
    armed_ = false;
    ++depth_;
    return true;
  }
  bool end_object() override { return end(); }
  bool start_array(size_t) override {
    if (wanted()) value("an array");
    armed_ = false;
    ++depth_;
    return true;
  }
  bool end_array() override { return end(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    byte = position;
    out_of_range = dynamic_cast<const nlohmann::json::parse_error*>(&e) == nullptr;
    return false;
  }

  bool object = false, out_of_range = false;
  size_t byte = 0;        // from 1: where it is not JSON
  int found = 0;          // values of the field
  std::string_view type;  // of the last

 private:
  bool wanted() const { return armed_ && matched_ + 1 == path_.size(); }
  bool value(std::string_view what) {
    if (wanted()) {
      ++found;
      type = what;
    }
    armed_ = false;
    return true;
  }
  bool end() {
    --depth_;
    if (matched_ > 0 && depth_ == matched_) --matched_;
    return true;
  }

  std::vector<std::string> path_;
  std::string& text_;
  size_t depth_ = 0;    // of objects and arrays
  size_t matched_ = 0;  // names of the path whose objects are open
  bool armed_ = false;  // the next value belongs to the next name of the path
};

[[noreturn]] void not_json(const JsonLine& line, size_t byte) {
  // The parser counts from 1, and the end of the line as one more.
  throw IoError(
      "", cat(place_of(line), ", byte ", line.byte + (byte > 0 ? byte - 1 : 0), ": is not valid JSON from here on"));
}

}  // namespace

std::string place_of(const JsonLine& line) {
  return cat(quote(line.file), ": line ", line.line);
}

bool json_text(const JsonLine& line, std::string_view field, std::string& text) {
  text.clear();
  FieldFinder finder(field, text);
  if (!nlohmann::json::sax_parse(line.bytes, &finder)) {
    if (finder.out_of_range) throw IoError("", cat(place_of(line), ": a number is out of range"));
    not_json(line, finder.byte);
  }
  check<IoError>(finder.object, "", place_of(line), ": is no JSON object");
  check<IoError>(finder.found > 0, "", place_of(line), ": the object has no member ", quote(field));
  check<IoError>(finder.found == 1, "", place_of(line), ": the object has the member ", quote(field), " ", finder.found,
                 " times");
  if (finder.type == "null") return false;
  check<IoError>(finder.type == "a string", "", place_of(line), ": the member ", quote(field), " is ", finder.type,
                 ", a string is wanted");
  return !text.empty();
}

ordered_json json_row(const JsonLine& line) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < line.bytes.size(); ++i) {
    const char c = line.bytes[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      check<IoError>(++depth <= io::kMaxJsonDepth, "", place_of(line), ", byte ", line.byte + i, ": nests deeper than ",
                     io::kMaxJsonDepth, " levels");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  ordered_json row;
  try {
    row = ordered_json::parse(line.bytes);
  } catch (const ordered_json::parse_error& e) {
    not_json(line, e.byte);
  } catch (const ordered_json::exception&) {
    throw IoError("", cat(place_of(line), ": a number is out of range"));
  }
  check<IoError>(row.is_object(), "", place_of(line), ": is no JSON object");
  return row;
}

const ordered_json* json_member(const ordered_json& row, std::string_view path) {
  if (!row.is_object()) return nullptr;
  if (const auto whole = row.find(std::string(path)); whole != row.end()) return &*whole;
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto first = row.find(std::string(path.substr(0, dot)));
  return first == row.end() ? nullptr : json_member(*first, path.substr(dot + 1));
}

std::string json_members(const ordered_json& row) {
  std::string all;
  int n = 0;
  for (const auto& [name, value] : row.items()) {
    if (++n > 12) return all + ", ...";
    all += cat(all.empty() ? "" : ", ", quote(name));
  }
  return all.empty() ? "none" : all;
}

}  // namespace strata::data
