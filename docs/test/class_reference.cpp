#include "class_reference.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "symbols.h"

namespace strata::docs {
namespace {

namespace fs = std::filesystem;

// The rooms that hold classes for programs, with what they are about.
constexpr std::pair<const char*, const char*> kRooms[] = {{"nn", "Modules and layers"},
                                                          {"optim", "Optimizers and schedules"},
                                                          {"distributions", "Probability distributions"},
                                                          {"data", "Data sets and loaders"},
                                                          {"text", "Tokenizers"},
                                                          {"io", "Files"},
                                                          {"models", "Language models"},
                                                          {"train", "Settings, runs, reports"}};

std::string read(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

// A comment as Markdown: lines that are indented are code, the others text.
std::string prose(const std::string& comment) {
  std::string out;
  bool code_before = false;
  std::istringstream in(comment);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("@")) line = line.substr(std::min(line.find(' '), line.size() - 1) + 1);
    // Code, or a table: what is indented after an empty line, or in four columns.
    const bool indented = line.starts_with("  ") && (code_before || out.ends_with("\n\n"));
    if (indented || line.starts_with("    ")) {
      if (!out.ends_with("\n\n") && !code_before) out += '\n';
      code_before = true;
      out += (line.starts_with("    ") ? "" : "  ") + line + '\n';
      continue;
    }
    code_before = false;
    bool code = false;
    for (const char c : line) {
      if (c == '`') code = !code;
      if (!code && (c == '<' || c == '*' || c == '_' || c == '|')) out += '\\';
      out += c;
    }
    out += '\n';
  }
  return out;
}

// A declaration without the marks that group comments for other tools.
std::string without_marks(const std::string& code) {
  std::string out;
  std::istringstream in(code);
  for (std::string line; std::getline(in, line);) {
    if (const size_t at = line.find("/// @"); at != std::string::npos) {
      if (line.find("@name ") == std::string::npos) continue;  // @{ and @}
      line.erase(at + 4, std::string("@name ").size());
    }
    out += line + '\n';
  }
  return out;
}

std::string header_page(const std::string& name, const std::string& text, std::vector<std::string>& classes) {
  std::string types, functions;
  for (const Declaration& d : declarations(text)) {
    if (d.name.empty()) {
      if (!functions.empty() && !d.comment.empty()) functions += '\n';
      std::istringstream in(d.comment);
      for (std::string line; std::getline(in, line);) functions += "///" + (line.empty() ? "" : " " + line) + '\n';
      functions += d.code + '\n';
    } else {
      classes.push_back(d.name);
      types += "### " + d.name + "\n\n" + prose(d.comment) + "\n```cpp\n" + without_marks(d.code) + "```\n\n";
    }
  }
  if (types.empty() && functions.empty()) return {};
  std::string page = "## " + name + "\n\n";
  if (const std::string head = head_comment(text); !head.empty()) page += prose(head) + '\n';
  page += types;
  if (!functions.empty()) page += "```cpp\n" + functions + "```\n\n";
  return page;
}

// The names that Markdown's renderers give to a heading.
std::string anchor(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> class_reference(const fs::path& root, const std::string& is_private) {
  const std::regex hidden(is_private);
  std::vector<std::pair<std::string, std::string>> files;
  std::string index =
      "# Reference of the classes\n\nGenerated from the headers by `write_class_reference docs/reference/classes`; do "
      "not "
      "edit. The operations have [pages of\ntheir own](../README.md).\n";
  for (const auto& [room, about] : kRooms) {
    std::vector<fs::path> headers;
    for (const auto& entry : fs::recursive_directory_iterator(root / "strata" / room))
      if (entry.path().extension() == ".h") headers.push_back(entry.path());
    std::ranges::sort(headers);
    std::string page = std::string("# ") + room + "\n\n" + about + ". Generated from the headers; do not edit.\n\n";
    std::vector<std::string> classes;
    for (const fs::path& header : headers) {
      const std::string name = fs::relative(header, root).string();
      if (!std::regex_search("/" + name, hidden)) page += header_page(name, read(header), classes);
    }
    while (page.ends_with("\n\n")) page.pop_back();
    const std::string file = std::string(room) + ".md";
    index += std::string("\n## [") + room + "](" + file + ")\n" + about + ".\n";
    std::string line;
    for (const std::string& c : classes) {
      const std::string link = "[" + c + "](" + file + "#" + anchor(c) + ")";
      if (!line.empty() && line.size() + link.size() > 116) {
        index += line + ",\n";
        line.clear();
      }
      line += (line.empty() ? "" : ", ") + link;
    }
    if (!line.empty()) index += line + '\n';
    files.emplace_back(file, page);
  }
  files.emplace_back("README.md", index);
  return files;
}

}  // namespace strata::docs
