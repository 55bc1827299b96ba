#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/io/fill.h"
#include "strata/io/weight_read_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kOp = "WeightFiles";
constexpr int64_t kPiece = int64_t{1} << 20;  // elements: a multiple of every block
constexpr int kThreads = 8;                   // at most: decoding keeps some cores busy where a disk is fast
constexpr size_t kAhead = 16;                 // jobs that the system is asked for before they are read

uint64_t offset_of(const WeightEntry& e, int64_t element) {
  return e.offset + static_cast<uint64_t>(element / e.type->block * e.type->block_bytes);
}

bool is_direct(const WeightPart& p) {
  const StoredType& type = *p.entry->type;
  return type.is_plain() && *type.dtype == p.target.dtype() && *type.dtype != DType::boolean && !p.entry->strides &&
         p.target.is_contiguous();
}

// Elements of an entry, from `first` on, that become `target`'s by way of a piece on the host.
struct Job {
  const WeightEntry* entry;
  int64_t first;
  Tensor target;
};

// Cuts a part into jobs of at most kPiece elements: along the first dimensions, so that any view can be filled.
void cut(const WeightEntry& entry, int64_t first, const Tensor& target, std::vector<Job>& jobs) {
  const int64_t n = target.numel();
  if (n == 0) return;
  if (n <= kPiece) {
    jobs.push_back({&entry, first, target});
    return;
  }
  if (target.is_contiguous() && target.dim() != 1) return cut(entry, first, target.view({n}), jobs);
  const int64_t rows = target.size(0), row = n / rows, step = std::max<int64_t>(1, kPiece / row);
  for (int64_t at = 0; at < rows; at += step) {
    const int64_t count = std::min(step, rows - at);
    const Tensor part = row > kPiece ? target.select(0, at) : target.narrow(0, at, count);
    cut(entry, first + at * row, part, jobs);
  }
}

void check_booleans(const Tensor& t, const WeightEntry& e, const std::string& file) {
  const auto* bytes = static_cast<const uint8_t*>(t.raw_data());
  check<IoError>(std::all_of(bytes, bytes + t.numel(), [](uint8_t b) { return b <= 1; }), kOp, quote(file), ": tensor ",
                 quote(e.name), " has a byte that is neither 0 nor 1, which BOOL does not allow");
}

// Of the dtype that the entry's type has, on the host.
Tensor read_piece(const InputFile& file, const WeightEntry& e, int64_t first, const Shape& shape) {
  const memory::TierScope own{Tier()};
  Tensor piece = empty(TensorMeta{shape, *e.type->dtype, Device::cpu()});
  const uint64_t offset = offset_of(e, first);
  if (e.type->is_plain()) {
    file.read(offset, piece.raw_data(), static_cast<size_t>(piece.nbytes()));
    if (piece.dtype() == DType::boolean) check_booleans(piece, e, file.path());
    return piece;
  }
  const int64_t blocks = piece.numel() / e.type->block;
  const auto bytes = static_cast<size_t>(blocks * e.type->block_bytes);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(bytes);
  file.read(offset, buffer.get(), bytes);
  e.type->decode(buffer.get(), blocks, piece.data<float>());
  return piece;
}

// Jobs of one file: threads read and decode in the file's order; what goes to a card is sent by the caller's thread,
// on its stream, the rest is put in place by whoever has read it.
class Pieces {
 public:
  Pieces(const InputFile& file, const std::vector<Job>& jobs) : file_(file), jobs_(jobs) {}

  void run() {
    std::vector<std::jthread> threads;
    const size_t wanted = jobs_.size() < 2 ? 0 : std::min(most_, jobs_.size());
    try {
      while (threads.size() < wanted) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // those that there are, then
    }
    if (threads.empty()) {
      for (const Job& job : jobs_) place(job, read(job));
      return;
    }
    for (size_t done = 0; done < jobs_.size(); ++done) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !ready_.empty() || error_; });
      if (error_) break;
      const auto [job, piece] = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      changed_.notify_all();
      if (!piece.defined()) continue;
      try {
        place(*job, piece);
      } catch (...) {
        fail();
        break;
      }
    }
    threads.clear();  // joins them
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Tensor read(const Job& job) const { return read_piece(file_, *job.entry, job.first, job.target.shape()); }
  static void place(const Job& job, const Tensor& piece) {
    const memory::TierScope own{Tier()};
    Tensor target = job.target;
    target.copy_(piece);
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    changed_.notify_all();
  }
  void work() {
    try {
      for (;;) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ready_.size() < 2 * most_ || error_; });
        if (next_ >= jobs_.size() || error_) return;
        const size_t k = next_++;
        lock.unlock();
        const Job& job = jobs_[k];
        if (k + kAhead < jobs_.size()) {
          const Job& later = jobs_[k + kAhead];
          const uint64_t begin = offset_of(*later.entry, later.first);
          file_.will_need(begin, offset_of(*later.entry, later.first + later.target.numel()) - begin);
        }
        Tensor piece = read(job);
        if (job.target.device().is_cpu()) {
          place(job, piece);
          piece = {};
        } else {
          const memory::TierScope own{Tier()};
          piece = piece.to(job.target.dtype());
        }
        lock.lock();
        ready_.emplace_back(&job, std::move(piece));
        changed_.notify_all();
      }
    } catch (...) {
      fail();
    }
  }

  const InputFile& file_;
  const std::vector<Job>& jobs_;
  const size_t most_ = static_cast<size_t>(std::clamp(num_threads(), 2, kThreads));
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<const Job*, Tensor>> ready_;  // undefined: is in its place
  size_t next_ = 0;
  std::exception_ptr error_;
};

// A view that PyTorch saved: all that it reaches is read, then it is read off that.
void read_strided(const InputFile& file, const WeightPart& part) {
  const WeightEntry& e = *part.entry;
  if (part.target.numel() == 0) return;
  const memory::TierScope own{Tier()};
  const auto reach = static_cast<int64_t>(e.nbytes) / e.type->block_bytes;
  const Tensor span = read_piece(file, e, 0, {reach});
  const Tensor all = span.as_strided(e.shape, *e.strides, 0).contiguous();
  Tensor target = part.target;
  target.copy_(all.view({all.numel()}).narrow(0, part.first, target.numel()).view(target.shape()));
}

// Straight into place. Tensors that share bytes of the file come in rounds, as fill_tensors wants them apart.
void fill(const InputFile& file, std::vector<Filling> fillings) {
  for (const Filling& f : fillings) bump_version(f.tensor, "read");
  while (!fillings.empty()) {
    std::vector<Filling> round, rest;
    uint64_t end = 0;
    for (Filling& f : fillings) {
      const bool apart = f.offset >= end;
      if (apart) end = f.offset + static_cast<uint64_t>(f.tensor.nbytes());
      (apart ? round : rest).push_back(std::move(f));
    }
    fill_tensors(file, round, nullptr);
    fillings = std::move(rest);
  }
}

}  // namespace

WeightPart check_part(const WeightEntry& e, const WeightRead& part, std::string_view file) {
  const std::string what = cat(quote(file), ": tensor ", quote(e.name));
  check<DTypeError>(e.type->dtype.has_value(), kOp, what, " is ", e.type->name,
                    ", which is not decoded; bytes() reads it as it is");
  const Tensor& t = part.target;
  check<ValueError>(t.defined(), kOp, what, ": the target is undefined");
  check<DeviceError>(!t.is_meta(), kOp, what, ": the target is a meta tensor: it has no memory");
  check<DTypeError>(!is_floating(*e.type->dtype) || is_floating(t.dtype()), kOp, what, " is ", *e.type->dtype,
                    ", the target is ", t.dtype(), ": floating elements do not go into integers");
  const Shape shape = part.view.value_or(e.shape);
  // As many bytes as elements: counted without leaving 64 bits.
  const StoredType& counting = stored_type(DType::u8);
  const std::optional<uint64_t> elements = stored_bytes(counting, shape);
  check<ShapeError>(elements && elements == stored_bytes(counting, e.shape), kOp, what, " of shape ", e.shape,
                    " cannot be viewed as ", shape);
  check<ShapeError>(e.type->block == 1 || shape.empty() || shape.back() % e.type->block == 0, kOp, what,
                    ": the last size of the view ", shape, " is no multiple of ", e.type->block, ", the block of ",
                    e.type->name);
  Shape wanted = shape;
  if (part.first && !shape.empty() && t.dim() == shape.size()) wanted[0] = t.size(0);
  check<ShapeError>(t.shape() == wanted, kOp, what, " is ", shape, ", the target is ", t.shape());
  const int64_t rows = shape.empty() ? 1 : shape[0], count = shape.empty() ? 1 : t.size(0),
                from = part.first.value_or(0);
  check<IndexError>(from >= 0 && from <= rows && count <= rows - from, kOp, what, " has ", rows, " rows, ", count,
                    " from ", from, " on are wanted");
  const int64_t first = rows == 0 ? 0 : from * (shape.product() / rows);
  check<IndexError>(first % e.type->block == 0 && t.numel() % e.type->block == 0, kOp, what,
                    ": its elements are read by blocks of ", e.type->block);
  return {&e, first, t.detach()};
}

void read_parts(const std::vector<InputFile>& files, std::vector<WeightPart> parts) {
  std::sort(parts.begin(), parts.end(), [](const WeightPart& a, const WeightPart& b) {
    const uint64_t oa = offset_of(*a.entry, a.first), ob = offset_of(*b.entry, b.first);
    return a.entry->file != b.entry->file ? a.entry->file < b.entry->file : oa < ob;
  });
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    const InputFile& file = files[parts[begin].entry->file];
    std::vector<Filling> fillings;
    std::vector<Job> jobs;
    for (; end < parts.size() && parts[end].entry->file == parts[begin].entry->file; ++end) {
      const WeightPart& p = parts[end];
      if (p.entry->strides) {
        read_strided(file, p);
      } else if (is_direct(p)) {
        fillings.push_back({offset_of(*p.entry, p.first), p.target});
      } else {
        cut(*p.entry, p.first, p.target, jobs);
      }
    }
    fill(file, std::move(fillings));
    Pieces(file, jobs).run();
  }
}

}  // namespace strata::io
