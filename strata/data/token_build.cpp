// Texts into a token file: one thread reads, several encode, the caller's writes what they made in the texts' order.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/data/token_file.h"
#include "strata/data/token_format_inl.h"
#include "strata/data/token_sections_inl.h"
#include "strata/data/token_sources_inl.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"
#include "strata/text/bpe.h"

namespace strata::data {
namespace fs = std::filesystem;
using io::quote;
namespace {

constexpr uint64_t kSection = uint64_t{64} << 20;  // bytes of text in a piece of the journal

// The finished pieces are of other texts.
struct SourcesChanged {};

// A text's parts can be encoded apart, cut where encodable_prefix() says.
bool encodes_in_parts(const text::Tokenizer& tokenizer) {
  return dynamic_cast<const text::ByteTokenizer*>(&tokenizer) || dynamic_cast<const text::BpeTokenizer*>(&tokenizer) ||
         dynamic_cast<const text::IdTokenizer*>(&tokenizer);
}

// A block of text on its way.
struct Work {
  TextBlock block;
  size_t file = 0;
  uint64_t number = 0;  // of all blocks
  uint64_t text_bytes = 0;
  uint64_t digest = 0;  // of the sources when it had been read
  BuildProgress read;   // files and bytes then
  std::string tokens;   // in the file's width
  uint64_t count = 0;
  std::vector<uint64_t> ends;  // tokens before the end of each document that ends in it
  std::exception_ptr error;
  bool done = false;
};

struct Job {
  std::vector<TextFile> files;
  const text::Tokenizer& tokenizer;
  TokenFileOptions options;
  std::vector<int32_t> separator;
  uint32_t token_bytes = 2;
  uint64_t all_bytes = 0;
};

template <class Id>
void append(std::span<const int32_t> ids, std::string& bytes) {
  const size_t old = bytes.size();
  bytes.resize(old + ids.size() * sizeof(Id));
  char* to = bytes.data() + old;
  for (const int32_t id : ids) {
    const auto narrow = static_cast<Id>(id);
    std::memcpy(to, &narrow, sizeof narrow);
    to += sizeof narrow;
  }
}

// Encodes the documents of a block.
void encode(const Job& job, Work& work) {
  const int64_t vocab = job.tokenizer.vocab_size();
  std::string text;
  const auto put = [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids)
      check<ValueError>(id >= 0 && id < vocab, "data", "the tokenizer gave the id ", id, ", its vocabulary has ",
                        vocab);
    if (job.token_bytes == 2) {
      append<uint16_t>(ids, work.tokens);
    } else {
      append<uint32_t>(ids, work.tokens);
    }
    work.count += ids.size();
  };
  for (const TextBlock::Part& part : work.block.parts) {
    if (!document_of(work.block, part, job.files[work.file].path, job.options.text, text)) continue;
    put(job.tokenizer.encode(text));
    if (!part.ends_document) continue;
    put(job.separator);
    work.ends.push_back(work.count);
  }
}

// The threads, and what they hand each other.
class Pipeline {
 public:
  Pipeline(const Job& job, const std::vector<Section>& finished, int threads)
      : job_(job), finished_(finished), limit_(2 * static_cast<size_t>(threads) + 2) {
    threads_.emplace_back([this](const std::stop_token& stop) { read(stop); });
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { encode_all(stop); });
  }
  ~Pipeline() {
    for (std::jthread& thread : threads_) thread.request_stop();
    const std::scoped_lock lock(mutex_);
    changed_.notify_all();
  }

  /// The next block in order, encoded; nullptr after the last. `wait` is called several times a second meanwhile.
  template <class Wait>
  std::unique_ptr<Work> next(Wait wait) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!order_.empty() && order_.front()->done) break;
      if (order_.empty() && all_read_) {
        if (reader_error_) std::rethrow_exception(reader_error_);
        return nullptr;
      }
      const bool woken = changed_.wait_for(lock, std::chrono::milliseconds(100), [&] {
        return (!order_.empty() && order_.front()->done) || (order_.empty() && all_read_);
      });
      if (woken) continue;
      const BuildProgress read = skipped_;
      lock.unlock();
      wait(read);
      lock.lock();
    }
    std::unique_ptr<Work> work = std::move(order_.front());
    order_.pop_front();
    changed_.notify_all();
    lock.unlock();
    if (work->error) std::rethrow_exception(work->error);
    return work;
  }
  /// Files and bytes when all had been read, and the digest of the sources then.
  BuildProgress all_read() const { return read_; }
  uint64_t digest() const { return digest_; }

 private:
  void read(const std::stop_token& stop) {
    try {
      read_files(stop);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      reader_error_ = std::current_exception();
    }
    const std::scoped_lock lock(mutex_);
    all_read_ = true;
    changed_.notify_all();
  }

  void read_files(const std::stop_token& stop) {
    SourceHash hash(job_.tokenizer, job_.options);
    BuildProgress read{.files = static_cast<int64_t>(job_.files.size()), .bytes = job_.all_bytes};
    uint64_t number = 0, before = 0;
    for (size_t f = 0; f < job_.files.size(); ++f) {
      const std::string& path = job_.files[f].path;
      std::error_code error;
      const uint64_t bytes = fs::file_size(path, error);
      check<IoError>(!error, "", "cannot open ", quote(path), ": ", error.message());
      hash.begin(job_.files[f], bytes);
      TextReader reader(path, job_.options.text, &hash.bytes());
      check<IoError>(reader.stream().raw_size() == bytes, "", quote(path), " was changed while it was read: try again");
      for (;;) {
        auto work = std::make_unique<Work>();
        if (!reader.next(work->block)) break;
        read.bytes_read = before + reader.stream().raw_position();
        work->file = f;
        work->number = number++;
        work->text_bytes = work->block.bytes.size();
        work->digest = hash.digest();
        work->read = read;
        for (const Section& s : finished_)
          if (s.blocks == number && s.digest != work->digest) throw SourcesChanged();
        const bool skip = !finished_.empty() && number <= finished_.back().blocks;
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return order_.size() < limit_ || stop.stop_requested(); });
        if (stop.stop_requested()) return;
        if (skip) {
          skipped_ = read;
          continue;
        }
        order_.push_back(std::move(work));
        changed_.notify_all();
      }
      before += bytes;
      read.files_read = static_cast<int64_t>(f) + 1;
      read.bytes_read = before;
    }
    if (!finished_.empty() && number < finished_.back().blocks) throw SourcesChanged();
    const std::scoped_lock lock(mutex_);
    read_ = read;
    digest_ = hash.digest();
  }

  void encode_all(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      Work* work = nullptr;
      changed_.wait(lock, [&] {
        work = untaken();
        return work != nullptr || all_read_ || stop.stop_requested();
      });
      if (stop.stop_requested() || work == nullptr) return;
      next_ = work->number + 1;
      lock.unlock();
      try {
        encode(job_, *work);
      } catch (...) {
        work->error = std::current_exception();
      }
      work->block = {};
      lock.lock();
      work->done = true;
      changed_.notify_all();
    }
  }

  // The first block that no thread has.
  Work* untaken() const {
    for (const auto& work : order_)
      if (work->number >= next_) return work.get();
    return nullptr;
  }

  const Job& job_;
  const std::vector<Section>& finished_;
  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Work>> order_;  // read, in order
  uint64_t next_ = 0;                        // the number of the first block that no thread took
  bool all_read_ = false;
  std::exception_ptr reader_error_;
  BuildProgress skipped_;  // of an earlier build
  BuildProgress read_;     // of all
  uint64_t digest_ = 0;
  std::vector<std::jthread> threads_;  // joined before all else goes
};

// What has been encoded and is in no finished piece yet.
class Journal {
 public:
  explicit Journal(SectionFolder& folder) : folder_(folder) {
    if (!folder.sections().empty()) section_.blocks = folder.sections().back().blocks;
  }
  void add(Work& work) {
    for (const uint64_t end : work.ends) ends_.push_back(section_.tokens + end);
    section_.tokens += work.count;
    section_.documents += work.ends.size();
    section_.text_bytes += work.text_bytes;
    section_.blocks = work.number + 1;
    section_.digest = work.digest;
    tokens_.push_back(std::move(work.tokens));
    if (section_.text_bytes >= kSection) flush();
  }
  void flush() {
    if (tokens_.empty()) return;
    folder_.add(section_, tokens_, ends_);
    tokens_.clear();
    ends_.clear();
    section_ = {.blocks = section_.blocks};
  }

 private:
  SectionFolder& folder_;
  Section section_;
  std::vector<std::string> tokens_;
  std::vector<uint64_t> ends_;
};

void copy(const std::string& path, uint64_t begin, uint64_t bytes, BlockWriter& out) {
  const io::InputFile input(path);
  std::string buffer;
  for (uint64_t end = begin + bytes; begin < end;) {
    buffer.resize(static_cast<size_t>(std::min<uint64_t>(uint64_t{4} << 20, end - begin)));
    input.read(begin, buffer.data(), buffer.size());
    out.write(buffer);
    begin += buffer.size();
  }
}

// The finished pieces one behind another.
void assemble(const Job& job, const SectionFolder& folder, uint64_t source, const std::string& path) {
  TokenHeader header;
  std::memcpy(header.magic, kTokenMagic, sizeof kTokenMagic);
  header.vocab = static_cast<uint64_t>(job.tokenizer.vocab_size());
  header.token_bytes = job.token_bytes;
  header.source = source;
  if (!job.separator.empty()) header.separator = job.separator[0];
  const std::string identity = tokenizer_identity(job.tokenizer);
  header.identity_bytes = identity.size();
  for (const Section& s : folder.sections()) {
    header.count += s.tokens;
    header.documents += s.documents;
  }
  check<IoError>(header.count > 0, "", quote(job.files[0].path), " and what else was read has no text");
  io::make_directories(io::parent_directory(path));
  io::FileWriter out(path);
  out.write(&header, sizeof header);
  BlockWriter blocks(out);
  for (size_t i = 0; i < folder.sections().size(); ++i)
    copy(folder.file(i), folder.tokens_begin(), folder.sections()[i].tokens * job.token_bytes, blocks);
  blocks.pad();
  uint64_t start = 0, before = 0;  // of the document, of the piece
  std::vector<uint64_t> ends;
  for (size_t i = 0; i < folder.sections().size(); ++i) {
    const io::InputFile input(folder.file(i));
    for (uint64_t d = 0; d < folder.sections()[i].documents;) {
      ends.resize(static_cast<size_t>(std::min<uint64_t>(folder.sections()[i].documents - d, 1 << 16)));
      input.read(folder.ends_begin(i) + 8 * d, ends.data(), 8 * ends.size());
      d += ends.size();
      for (uint64_t& end : ends) end = std::exchange(start, before + end);
      blocks.write({reinterpret_cast<const char*>(ends.data()), 8 * ends.size()});
    }
    before += folder.sections()[i].tokens;
  }
  blocks.write(identity);
  blocks.pad();
  const std::vector<uint64_t> table = blocks.finish();
  const std::string_view bytes(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(uint64_t));
  out.write(bytes);
  header.table = io::xxh64(bytes);
  header.checksum = header.checksum_of(kTokenHeader3 - 8);
  out.rewrite(0, &header, sizeof header);
  out.commit();
}

BuildProgress run(const Job& job, SectionFolder& folder, const std::string& path, BuildWatch& watch) {
  BuildProgress done;
  for (const Section& s : folder.sections()) {
    done.documents += static_cast<int64_t>(s.documents);
    done.tokens += static_cast<int64_t>(s.tokens);
    done.text_bytes += s.text_bytes;
  }
  done.reused_bytes = done.text_bytes;
  const auto update = [&](const BuildProgress& read) {
    done.files = read.files;
    done.files_read = read.files_read;
    done.bytes = read.bytes;
    done.bytes_read = read.bytes_read;
    watch.progress(done);
  };
  Journal journal(folder);
  const std::vector<Section> finished = folder.sections();
  Pipeline pipeline(job, finished, job.options.threads > 0 ? job.options.threads : num_threads());
  const auto stop_if_asked = [&] {
    if (!watch.stop_requested()) return;
    journal.flush();
    throw IoError("", cat("stopped; what is encoded is in ", quote(path + ".parts"), ", the same command goes on"));
  };
  for (;;) {
    std::unique_ptr<Work> work = pipeline.next([&](const BuildProgress& read) {
      if (read.bytes_read > done.bytes_read) update(read);
      stop_if_asked();
    });
    if (!work) break;
    done.text_bytes += work->text_bytes;
    done.documents += static_cast<int64_t>(work->ends.size());
    done.tokens += static_cast<int64_t>(work->count);
    journal.add(*work);
    update(work->read);
    stop_if_asked();
  }
  journal.flush();
  assemble(job, folder, pipeline.digest(), path);
  done.finished = true;
  update(pipeline.all_read());
  return done;
}

}  // namespace

BuildProgress build_token_file(std::span<const std::string> sources, const text::Tokenizer& tokenizer,
                               const std::string& path, const TokenFileOptions& options, BuildWatch* watch) {
  BuildWatch silent;
  if (!watch) watch = &silent;
  Job job{.files = find_text_files(sources), .tokenizer = tokenizer, .options = options};
  job.options.text.cut = encodes_in_parts(tokenizer);
  job.token_bytes = tokenizer.vocab_size() <= 65536 ? 2 : 4;
  if (!options.separator.empty()) {
    const auto found = tokenizer.special_tokens().find(options.separator);
    check(found != tokenizer.special_tokens().end(), "data", "the tokenizer has no special token ",
          quote(options.separator));
    job.separator = {found->second};
  }
  // Names and sizes now, the contents while they are read.
  SourceHash hash(tokenizer, options);
  for (const TextFile& file : job.files) {
    const uint64_t bytes = io::InputFile(file.path).size();
    hash.begin(file, bytes);
    job.all_bytes += bytes;
  }
  io::make_directories(io::parent_directory(path));
  SectionFolder folder(path + ".parts", hash.digest(), job.token_bytes);
  try {
    BuildProgress done;
    try {
      done = run(job, folder, path, *watch);
    } catch (const SourcesChanged&) {
      watch->note(cat("the texts are not those of the pieces in ", quote(path + ".parts"), ": all is built anew"));
      folder.clear();
      done = run(job, folder, path, *watch);
    }
    folder.remove();
    return done;
  } catch (...) {
    if (folder.sections().empty()) folder.remove();
    throw;
  }
}

void build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                      const TokenFileOptions& options) {
  build_token_file(std::span(&source, 1), tokenizer, path, options, nullptr);
}

}  // namespace strata::data
