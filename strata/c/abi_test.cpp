// What programs and plugins were compiled against must stay: functions with their signatures, numbers, layouts and
// exported symbols are compared with abi-VERSION.txt.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/c/strata.h"

namespace {

std::string source(const std::string& name) {
  const char* root = std::getenv("STRATA_SOURCE_DIR");
  return std::string(root ? root : ".") + "/strata/c/" + name;
}
std::string read(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

// The header without comments and line breaks.
std::string header() {
  std::string text = std::regex_replace(read(source("strata.h")), std::regex(R"(/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)"), " ");
  return std::regex_replace(text, std::regex(R"(\\\n)"), " ");
}
std::string declarations() {
  return std::regex_replace(header(), std::regex(R"(\n#[^\n]*)"), "\n");
}
std::string one_line(const std::string& text) {
  return std::regex_replace(text, std::regex(R"(\s+)"), " ");
}

struct Layout {
  size_t size;
  std::vector<std::pair<std::string, size_t>> members;
};
#define AT(type, member) \
  { #member, offsetof(type, member) }

// Layouts as the compiler sees them.
std::map<std::string, Layout> layouts() {
  return {
      {"strata_device", {sizeof(strata_device), {AT(strata_device, type), AT(strata_device, index)}}},
      {"strata_rng_key", {sizeof(strata_rng_key), {AT(strata_rng_key, seed), AT(strata_rng_key, offset)}}},
      {"strata_param_group",
       {sizeof(strata_param_group),
        {AT(strata_param_group, params), AT(strata_param_group, names), AT(strata_param_group, num_params),
         AT(strata_param_group, options)}}},
      {"strata_piece",
       {sizeof(strata_piece),
        {AT(strata_piece, struct_size), AT(strata_piece, request), AT(strata_piece, completion),
         AT(strata_piece, token), AT(strata_piece, text), AT(strata_piece, size), AT(strata_piece, last)}}},
      {"strata_value",
       {sizeof(strata_value),
        {AT(strata_value, kind), AT(strata_value, reserved), AT(strata_value, size), AT(strata_value, as)}}},
      {"strata_meta",
       {sizeof(strata_meta),
        {AT(strata_meta, dtype), AT(strata_meta, ndim), AT(strata_meta, device), AT(strata_meta, shape)}}},
      {"strata_gradient_call",
       {sizeof(strata_gradient_call),
        {AT(strata_gradient_call, args), AT(strata_gradient_call, num_args), AT(strata_gradient_call, results),
         AT(strata_gradient_call, result_grads), AT(strata_gradient_call, num_results),
         AT(strata_gradient_call, wanted), AT(strata_gradient_call, arg_grads)}}},
      {"strata_api", {sizeof(strata_api), {AT(strata_api, struct_size),      AT(strata_api, abi_version),
                                           AT(strata_api, set_error),        AT(strata_api, error_text),
                                           AT(strata_api, tensor_empty),     AT(strata_api, tensor_retain),
                                           AT(strata_api, tensor_release),   AT(strata_api, tensor_ndim),
                                           AT(strata_api, tensor_shape),     AT(strata_api, tensor_strides),
                                           AT(strata_api, tensor_numel),     AT(strata_api, tensor_dtype),
                                           AT(strata_api, tensor_device),    AT(strata_api, tensor_is_contiguous),
                                           AT(strata_api, tensor_data),      AT(strata_api, op_find),
                                           AT(strata_api, op_call),          AT(strata_api, value_clear),
                                           AT(strata_api, stream),           AT(strata_api, parallel_for),
                                           AT(strata_api, samples_dtype),    AT(strata_api, samples_benchmarking),
                                           AT(strata_api, samples_tensor),   AT(strata_api, samples_uniform),
                                           AT(strata_api, samples_integers), AT(strata_api, samples_add),
                                           AT(strata_api, samples_invalid)}}},
      {"strata_op_record",
       {sizeof(strata_op_record),
        {AT(strata_op_record, struct_size), AT(strata_op_record, schema), AT(strata_op_record, doc),
         AT(strata_op_record, saves), AT(strata_op_record, adapt), AT(strata_op_record, autocast),
         AT(strata_op_record, inplace), AT(strata_op_record, dtypes), AT(strata_op_record, tolerance),
         AT(strata_op_record, tolerance_reason), AT(strata_op_record, data), AT(strata_op_record, infer),
         AT(strata_op_record, cpu), AT(strata_op_record, cuda), AT(strata_op_record, backward),
         AT(strata_op_record, cost), AT(strata_op_record, samples), AT(strata_op_record, reference)}}},
      {"strata_plugin",
       {sizeof(strata_plugin),
        {AT(strata_plugin, struct_size), AT(strata_plugin, abi_version), AT(strata_plugin, name),
         AT(strata_plugin, version), AT(strata_plugin, records), AT(strata_plugin, num_records)}}},
  };
}

// The members' names in the header, so that none is missing above.
std::vector<std::string> declared_members(const std::string& body) {
  std::vector<std::string> names;
  std::string statement;
  int depth = 0;
  for (const char c : body) {
    depth += c == '{' || c == '(';
    depth -= c == '}' || c == ')';
    if (c != ';' || depth > 0) {
      statement += c;
      continue;
    }
    std::smatch m;
    static const std::regex function(R"(\(\s*\*\s*(\w+)\s*\))"), plain(R"((\w+)\s*(?:\[\w+\])?\s*$)");
    const bool is_union = statement.find("union") != std::string::npos;
    if ((!is_union && std::regex_search(statement, m, function)) || std::regex_search(statement, m, plain))
      names.push_back(m[1]);
    statement.clear();
  }
  return names;
}

std::string interface_text() {
  std::string text = header();
  std::string out = "version " + std::to_string(STRATA_ABI_VERSION) + "\n";
  const auto each = [&](const std::regex& pattern, auto&& f) {
    for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern); it != std::sregex_iterator(); ++it) f(*it);
  };
  each(std::regex(R"(#define (STRATA_(?:MAX_DIMS|PLUGIN_ENTRY)) (\S+))"),
       [&](const std::smatch& m) { out += "constant " + m.str(1) + " " + m.str(2) + "\n"; });
  text = declarations();
  each(std::regex(R"((STRATA_\w+) = (\d+))"),
       [&](const std::smatch& m) { out += "enum " + m.str(1) + " " + m.str(2) + "\n"; });
  for (const auto& [name, layout] : layouts()) {
    out += "struct " + name + " " + std::to_string(layout.size) + ":";
    for (const auto& [member, at] : layout.members) out += " " + member + "@" + std::to_string(at);
    out += "\n";
  }
  std::set<std::string> functions;
  each(std::regex(R"(STRATA_EXPORT ([^;]+);)"), [&](const std::smatch& m) { functions.insert(one_line(m.str(1))); });
  for (const std::string& f : functions) out += "function " + f + "\n";
  // What a record's and the table's functions take.
  each(std::regex(R"(typedef struct (strata_api|strata_op_record) \{([^}]*)\})"), [&](const std::smatch& m) {
    const std::string body = m.str(2);
    const std::regex pointer(R"([^;]*\(\*(\w+)\)[^;]*)");
    for (auto it = std::sregex_iterator(body.begin(), body.end(), pointer); it != std::sregex_iterator(); ++it)
      out += "pointer " + m.str(1) + "." + it->str(1) + ":" + one_line(it->str(0)) + "\n";
  });
  return out;
}

std::vector<std::string> exported() {
  std::vector<std::string> names;
  FILE* pipe = popen("nm -D --defined-only " STRATA_C_LIBRARY, "r");
  if (!pipe) return names;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe)) {
    std::string name(line);
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
    names.push_back(name.substr(name.rfind(' ') + 1));
  }
  pclose(pipe);
  return names;
}

TEST(Abi, IsWhatTheVersionSays) {
  const std::string path = source("abi-" + std::to_string(STRATA_ABI_VERSION) + ".txt"), now = interface_text();
  if (std::getenv("STRATA_WRITE_ABI")) std::ofstream(path) << now;
  const std::string then = read(path);
  if (now == then) return;
  std::set<std::string> lines;
  std::string changes;
  const auto split = [](const std::string& text) {
    std::set<std::string> all;
    std::stringstream in(text);
    for (std::string line; std::getline(in, line);) all.insert(line);
    return all;
  };
  const std::set<std::string> was = split(then), is = split(now);
  bool lost = false;
  for (const std::string& line : was)
    if (!is.contains(line)) changes += "- " + line + "\n", lost = true;
  for (const std::string& line : is)
    if (!was.contains(line)) changes += "+ " + line + "\n";
  ADD_FAILURE()
      << "strata.h is not what " << path << " says:\n"
      << changes
      << (lost ? "Programs and plugins compiled before would break. Put it back, or raise STRATA_ABI_VERSION and "
                 "the shared library's SOVERSION and write the new version's list: "
               : "Only additions: programs and plugins compiled before still work. Write the list again: ")
      << "STRATA_WRITE_ABI=1 test_c --gtest_filter=Abi.*; a struct may grow at its end, where it holds "
         "struct_size, and its line may then change under the same version.";
}

TEST(Abi, ListsEveryMember) {
  const std::string text = header();
  const std::map<std::string, Layout> all = layouts();
  const std::regex pattern(R"(typedef struct (\w+) \{((?:[^{}]|\{[^{}]*\})*)\} \1;)");
  size_t structs = 0;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern); it != std::sregex_iterator(); ++it) {
    const std::string name = it->str(1);
    ++structs;
    ASSERT_TRUE(all.contains(name)) << name << " is missing in abi_test.cpp";
    std::vector<std::string> listed;
    for (const auto& [member, at] : all.at(name).members) listed.push_back(member);
    EXPECT_EQ(declared_members(it->str(2)), listed) << name;
  }
  EXPECT_EQ(structs, all.size());
}

TEST(Abi, SharedLibraryExportsTheHeaderAndNothingElse) {
  const std::string text = declarations();
  std::set<std::string> declared;
  const std::regex pattern(R"(STRATA_EXPORT [^;(]*?(strata_\w+)\s*\()");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern); it != std::sregex_iterator(); ++it)
    declared.insert(it->str(1));
  EXPECT_GT(declared.size(), 50u);
  const std::vector<std::string> names = exported();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), declared);
}

}  // namespace
