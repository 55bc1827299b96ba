// Which files are meant.

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "strata/core/error.h"
#include "strata/data/text_reader.h"
#include "strata/io/files.h"

namespace strata::data {
namespace fs = std::filesystem;
using io::quote;
namespace {

bool is_text(const fs::path& path) {
  io::ByteStream stream(path.string());
  char head[8192];
  try {
    const size_t n = stream.read(head, sizeof head);
    return n > 0 && std::find(head, head + n, '\0') == head + n;
  } catch (const IoError&) {  // begins like compressed data and is not
    return false;
  }
}

void add_folder(const std::string& folder, std::vector<TextFile>& files) {
  const size_t before = files.size();
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator(); ++it) {
      const bool hidden = it->path().filename().string().starts_with('.');
      if (hidden && it->is_directory()) it.disable_recursion_pending();
      if (!hidden && it->is_regular_file() && it->file_size() > 0 && is_text(it->path()))
        files.push_back({it->path().string(), it->path().lexically_relative(folder).string()});
    }
  } catch (const fs::filesystem_error& e) {
    throw IoError("", cat("cannot read the directory ", quote(folder), ": ", e.code().message()));
  }
  check<IoError>(files.size() > before, "", "the directory ", quote(folder), " has no text files");
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
            [](const TextFile& a, const TextFile& b) { return a.path < b.path; });
}

void add(const std::string& source, const std::string& name, std::vector<TextFile>& files) {
  std::error_code error;
  if (fs::is_directory(source, error))
    add_folder(source, files);
  else
    files.push_back({source, name});
}

}  // namespace

std::vector<TextFile> find_text_files(std::span<const std::string> sources) {
  check<IoError>(!sources.empty(), "", "no text is named");
  std::vector<TextFile> files;
  for (const std::string& source : sources) {
    std::error_code error;
    if (fs::exists(source, error) || source.find_first_of("*?[") == std::string::npos) {
      // One that is missing is told of by who opens it. Of a single file the name does not matter.
      add(source, sources.size() == 1 ? "" : fs::path(source).filename().string(), files);
      continue;
    }
    glob_t found{};
    const int status = ::glob(source.c_str(), GLOB_ERR, nullptr, &found);
    std::vector<std::string> paths;
    for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    check<IoError>(status == 0, "", "no file matches ", quote(source));
    std::sort(paths.begin(), paths.end());  // by bytes: glob's order is the locale's
    for (const std::string& path : paths)
      if (fs::is_directory(path, error) || fs::file_size(path, error) > 0)
        add(path, fs::path(path).filename().string(), files);
  }
  check<IoError>(!files.empty(), "", "all files that match are empty");
  return files;
}

std::vector<std::string> read_documents(std::span<const std::string> sources, const TextOptions& options,
                                        uint64_t most) {
  std::vector<std::string> documents;
  uint64_t bytes = 0;
  TextOptions parts = options;
  parts.cut = true;   // of a whole file no more than is wanted
  bool open = false;  // the last document goes on
  for (const TextFile& file : find_text_files(sources)) {
    TextReader reader(file.path, parts);
    TextBlock block;
    std::string text;
    while (bytes < most && reader.next(block))
      for (const TextBlock::Part& part : block.parts) {
        if (bytes >= most || !document_of(block, part, file.path, parts, text)) continue;
        if (text.size() > most - bytes) {
          size_t n = static_cast<size_t>(most - bytes);
          while (n > 0 && (text[n] & 0xc0) == 0x80) --n;
          text.resize(n);
          bytes = most;
        } else {
          bytes += text.size();
        }
        if (open) {
          documents.back() += text;
        } else {
          documents.push_back(std::move(text));
        }
        open = !part.ends_document;
      }
    open = false;
    if (bytes >= most) break;
  }
  check<IoError>(!documents.empty() && bytes > 0, "", quote(sources.front()), " has no text");
  return documents;
}

}  // namespace strata::data
