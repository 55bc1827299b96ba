#pragma once
// Devices, streams and events. This header needs no CUDA toolkit; without CUDA in the build, or without a driver or a
// card on the machine, device_count() is 0 and everything that needs a card throws DeviceError with the reason.
//
// Work on a device is queued on streams: an op returns when its kernels are queued. Each thread has a current stream
// for each device; at first that is the device's main stream, the same one for all threads.

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {
class Tensor;
}

namespace strata::cuda {

/// Cards that this program can use; 0 where there is no driver, no card, or no CUDA in the build. Never throws.
int device_count();
/// Why device_count() is 0; empty where it is not.
std::string unavailable_reason();

/// What a card is.
struct DeviceProperties {
  std::string name;
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int major = 0, minor = 0;  ///< compute capability
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  ///< the most that one block may ask for
};
/// Throws DeviceError unless 0 <= device < device_count().
const DeviceProperties& properties(int device = 0);
/// Versions of the driver and of the runtime in this build, e.g. {13000, 13000}; zeros without CUDA.
struct Versions {
  int driver = 0, runtime = 0;
};
Versions versions();

/// A queue of work on one device. Copies name the same queue; a queue lives until the program ends (they come from a
/// pool of 32 a device, which hands them out in turn).
class Stream {
 public:
  /// The device's main stream.
  static Stream main(int device = 0);
  /// A stream beside the main one.
  static Stream create(int device = 0);

  int device() const { return device_; }
  /// A number that is unique on the device; the main stream's is 0.
  int id() const { return id_; }
  /// The cudaStream_t.
  void* handle() const { return handle_; }

  /// Blocks until the queue is empty. Throws DeviceError for a failed kernel.
  void synchronize() const;
  /// Whether the queue is empty.
  bool query() const;
  /// Later work of this stream waits for what `other` holds now.
  void wait(const Stream& other) const;
  /// Calls fn(context) on a thread of the driver's when the work queued so far is done. It must not call CUDA.
  void host_callback(void (*fn)(void*), void* context) const;

  friend bool operator==(const Stream& a, const Stream& b) { return a.handle_ == b.handle_ && a.device_ == b.device_; }

 private:
  Stream(int device, int id, void* handle) : device_(device), id_(id), handle_(handle) {}
  friend struct StreamAccess;
  int device_ = 0, id_ = 0;
  void* handle_ = nullptr;
};

/// This thread's current stream for `device`.
Stream current_stream(int device = 0);
/// Makes `stream` its device's current one on this thread for a scope.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;

 private:
  Stream previous_;
};

/// A point in a stream.
class Event {
 public:
  /// Without `timing` it is cheaper.
  explicit Event(bool timing = false, int device = 0);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Puts the point after what `stream` holds now.
  void record(const Stream& stream);
  /// Later work of `stream` waits for this point.
  void wait(const Stream& stream) const;
  bool query() const;
  void synchronize() const;
  /// Milliseconds from `start` to here; both with timing, both reached.
  double elapsed_ms(const Event& start) const;

 private:
  void* handle_ = nullptr;
  int device_ = 0;
  bool timing_ = false;
};

/// Blocks until all work of the device is done.
void synchronize(int device = 0);

/// `t` is used by work queued on `stream`, which is not the stream that it was made on: its memory, once given back, is
/// not reused before that work is done.
void record_stream(const Tensor& t, const Stream& stream);

/// Queues on the current stream a copy of `t`'s elements to `pinned`, a tensor in page-locked memory (Tier::pinned), of the same
/// shape and dtype: they are there when the stream has passed, for which an Event can be asked. Throws ShapeError,
/// DTypeError or DeviceError.
void copy_to_pinned(const Tensor& pinned, const Tensor& t);

/// At most this share of the card's memory for tensors, in (0, 1]; returns the previous value. Default 0.97.
double set_memory_fraction(double fraction, int device = 0);

/// Whether products of f32 may round their operands to TF32 (10 bits of mantissa) for the tensor cores. Off at first.
void set_allow_tf32(bool on);
bool allow_tf32();

/// While on, every op waits for its kernels and names itself in the error of a failed one; slow. At the start the
/// environment's STRATA_LAUNCH_BLOCKING=1 turns it on.
void set_launch_blocking(bool on);
bool launch_blocking();
/// While on, every op is an NVTX range (for Nsight Systems). At the start
/// the environment's STRATA_NVTX=1 turns it on.
void set_nvtx(bool on);

}  // namespace strata::cuda
