#pragma once
// A Recording: the calls of a piece of program, one after the other, with their values. docs/design/recording.md tells
// how it is made and what it is for.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strata/core/backend.h"
#include "strata/core/node.h"
#include "strata/core/op_base.h"

namespace strata {

/// Bytes that calls read or write: one Storage of the recorded run. It was there for the calls from `born` on, before
/// `freed`.
struct RecordedStorage {
  int64_t nbytes = 0;
  Device device;
  memory::Tag tag = memory::Tag::activation;
  int32_t born = -1;  ///< the call that made it; -1 for what no call made: parameters, data, constants
  int32_t freed = 0;  ///< the first call that began without it; the number of calls where it outlived them all
  /// u8 [nbytes]: what was in it when a call first read it, where no call made it and the bytes were kept.
  Tensor given;
};

/// A tensor as calls saw it: a part of a storage under a shape and strides (in elements, as the offset is).
struct RecordedValue {
  int32_t storage = 0;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
  bool number = false;  ///< made from a plain number: yields in type promotion
  friend bool operator==(const RecordedValue&, const RecordedValue&) = default;
};

/// A tensor argument or result: its place in Recording::values, or -1 for an undefined one.
struct ValueIndex {
  int32_t at = -1;
  friend bool operator==(ValueIndex, ValueIndex) = default;
};
/// As Value, with places in Recording::values where that has tensors.
using RecordedArg = std::variant<std::monostate, ValueIndex, std::vector<ValueIndex>, Scalar, int64_t, double, bool,
                                 std::string, Dims, DType, Device, RngKey>;

/// One call of an op.
struct RecordedCall {
  const OpBase* op = nullptr;
  Form form = Form::fresh;
  bool composed = false;  ///< other calls, whose `parent` this is, do all of it
  Phase phase = Phase::forward;
  bool autocast = false;  ///< whether autocast was on; the arguments are cast already
  DType autocast_dtype = DType::bf16;
  int32_t parent = -1;  ///< the call that it is a part of, or -1
  int32_t stream = 0;   ///< of a CUDA device: cuda::Stream::id()
  /// The module whose forward called it, or recorded what its backward now does; nullptr where none is known. Lives as
  /// long as the program.
  const std::string* module = nullptr;
  std::vector<RecordedArg> args;    ///< in the schema's order, all of them
  std::vector<ValueIndex> targets;  ///< what it wrote over, unless form is fresh
  std::vector<ValueIndex> results;
  Cost cost;           ///< the record's; where that has none, the bytes of arguments and results. Nothing for views
  double seconds = 0;  ///< by the recorder's clock, without the calls that it made
};

/// A write to a storage that no call made (a binding's, a program's own loop), seen before `call` because the version
/// of the storage had moved.
struct RecordedWrite {
  int32_t call = 0;
  int32_t storage = 0;
  Tensor given;  ///< u8 [nbytes]: the bytes then, where they were kept
};

/// A list of calls, in the order in which they began, and the values that go from one to the other.
struct Recording {
  std::vector<RecordedStorage> storages;
  std::vector<RecordedValue> values;
  std::vector<RecordedCall> calls;
  std::vector<RecordedWrite> writes;
  double outside = 0;  ///< seconds that belong to no call: the program's own, autograd's, the recorder's

  /// Whether call `i` ran a kernel or made a view, for a caller that looks at the work: composed calls do none of their
  /// own, and what an op with a kernel calls inside is its own affair.
  bool is_work(size_t i) const;
  /// Bytes of `device` in storages that were there while each call ran; meta counts for any device.
  std::vector<int64_t> live_bytes() const;
  /// The largest of them, and the call at which it was.
  std::pair<int64_t, int32_t> peak_bytes() const;

  /// A line a call: its number, phase, module, op, arguments and results, cost.
  std::string to_string() const;
  /// The whole of it as text, which from_text() reads again: for files. A line is a storage, value, call or write.
  std::string to_text() const;
  /// Throws IoError naming line, byte and field for a text that is none, or not whole, or does not fit together (an
  /// index out of range, a value outside its storage, an op that this program does not have).
  static Recording from_text(std::string_view text);
};

/// Says how long calls take. The host's clock is one; of a device's queue, lab/device_clock.h.
class RecordClock {
 public:
  virtual ~RecordClock() = default;
  /// From now on time belongs to `call`; to none where it is -1.
  virtual void mark(int32_t call) = 0;
  /// Adds to seconds[call] what belonged to each call since the last read(), returns what belonged to none, and begins
  /// again with none. Every call that was marked has a place.
  virtual double read(std::span<double> seconds) = 0;
};

/// Takes a long recording in parts.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  /// The calls since the last part: a Recording of its own, in which what older calls made counts as given. Called
  /// between two calls, on the recording thread; it must not call ops.
  virtual void take(Recording&& part) = 0;
};

/// What a Recorder keeps.
struct RecordOptions {
  /// The bytes of what calls read and no call made (parameters, data): a Replay then needs nothing else. They take as
  /// much memory again. Those of up to 64 bytes on the host are always kept.
  bool values = false;
  RecordClock* clock = nullptr;  ///< the host's where none is given; must outlive the recorder
  RecordSink* sink = nullptr;    ///< gets parts of `part_calls` calls or a little more, so that memory stays bounded
  int32_t part_calls = 4096;
};

/// Records the calls of its thread while it lives: forward, backward, updates. It holds no tensor, so that nothing
/// lives longer or is copied because it looks; but within kernels, and on other threads, nothing is seen. Recorders
/// nest.
class Recorder final : public CallObserver {
 public:
  explicit Recorder(const RecordOptions& options = {});
  ~Recorder() override;
  /// Ends the recording, if it has not ended, and gives it (with a sink: what it has not got). On the thread that began
  /// it, and before any scope that is older ends.
  Recording finish();
  /// Gives what was recorded so far, as a sink gets it, and goes on. Throws ValueError within a call.
  Recording cut();

  void before(const Call& call) override;
  void after(const Call& call, std::span<const Tensor> results) override;
  void failed(const Call& call) override;

 private:
  friend void detail::storage_ends(const Storage& s);
  struct State;
  std::unique_ptr<State> state_;
};

/// The calls that fn() makes:
///
///     Recording step = record([&] { train_step(batch); });
///     std::puts(step.to_string().c_str());
///
/// On the meta device (`DeviceScope dry(Device::meta())` around the building of model and data) nothing is computed and
/// no memory is taken, and the Recording is the same but for devices and times.
template <class F>
Recording record(F&& fn, const RecordOptions& options = {}) {
  Recorder recorder(options);
  fn();
  return recorder.finish();
}

namespace detail {
/// All bytes of a storage, as u8 [nbytes] that shares them.
Tensor storage_bytes(const Ref<Storage>& storage);
}  // namespace detail

/// Runs the calls of a Recording again, one after the other: the same kernels on the same arguments, so the same bits
/// on the same machine, whatever the number of threads. The recording must outlive it.
class Replay {
 public:
  explicit Replay(const Recording& recording);
  /// Gives a storage that no call made its bytes, from a tensor of as many bytes in row-major order. Throws ValueError.
  void give(int32_t storage, const Tensor& bytes);
  /// Runs them all. Throws ValueError naming the call where bytes are missing, or a result is not of the recorded
  /// shape, dtype and strides.
  void run();
  /// Before run(): an argument. After it: a value whose storage outlived the last call. Else ValueError.
  Tensor value(ValueIndex v) const;

 private:
  Value value_of(const RecordedArg& arg, size_t call) const;
  void run_call(size_t i);
  const Recording& recording_;
  std::vector<Tensor> storages_;  // u8, undefined before they are made and after they are freed
};

}  // namespace strata
