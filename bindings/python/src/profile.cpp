// What strata/profiler.py is made of: every op of a thread with its begin and end.

#include <chrono>
#include <memory>
#include <vector>

#include "py.h"
#include "strata/core/error.h"
#include "strata/lab/profile.h"

namespace strata::python {
namespace {

/// Notes begin, end and nesting of all ops, and of ranges with names, that its thread runs between start() and stop().
class OpEvents final : public CallObserver {
 public:
  void start() {
    if (scope_) throw ValueError("OpEvents", "started already");
    scope_ = std::make_unique<ObserverScope>(*this);
  }
  void stop() {
    scope_.reset();
    while (!open_.empty()) end();
  }
  void before(const Call& call) override { begin(call.op.name(), -1); }
  void after(const Call& call, std::span<const Tensor>) override { end_of(call); }
  void failed(const Call& call) override { end_of(call); }
  void push(const std::string& name) {
    names_.push_back(std::make_unique<std::string>(name));
    begin(*names_.back(), static_cast<int64_t>(names_.size()) - 1);
  }
  void pop() {
    for (size_t i = open_.size(); i-- > 0;) {
      if (events_[open_[i]].range < 0) continue;
      while (open_.size() > i) end();
      return;
    }
  }
  /// (name, begin and end in microseconds since the first, how deep, whether it is a range with a name).
  nb::list events() const {
    nb::list out;
    for (const Event& e : events_)
      out.append(
          nb::make_tuple(nb::str(e.name.data(), e.name.size()), micros(e.begin), micros(e.end), e.depth, e.range >= 0));
    return out;
  }

 private:
  // A range that was begun within the call ends with it.
  void end_of(const Call& call) {
    for (size_t i = open_.size(); i-- > 0;) {
      if (events_[open_[i]].name != call.op.name()) continue;
      while (open_.size() > i) end();
      return;
    }
  }
  using Clock = std::chrono::steady_clock;
  struct Event {
    std::string_view name;  // a record's, or one of names_
    int64_t range;
    int depth;
    Clock::time_point begin, end;
  };
  void begin(std::string_view name, int64_t range) {
    open_.push_back(events_.size());
    const Clock::time_point now = Clock::now();
    events_.push_back({name, range, static_cast<int>(open_.size()) - 1, now, now});
  }
  void end() {
    events_[open_.back()].end = Clock::now();
    open_.pop_back();
  }
  double micros(Clock::time_point t) const {
    return std::chrono::duration<double, std::micro>(t - events_.front().begin).count();
  }

  std::unique_ptr<ObserverScope> scope_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<Event> events_;
  std::vector<size_t> open_;
};

struct DeviceTimes {
  explicit DeviceTimes(Device device) : profile(std::make_unique<lab::OpProfile>(device)) {}
  std::unique_ptr<lab::OpProfile> profile;
};

}  // namespace

void bind_profile(nb::module_& m) {
  nb::class_<OpEvents>(m, "OpEvents", "Notes when each op of this thread begins and ends.")
      .def(nb::init<>())
      .def("start", &OpEvents::start)
      .def("stop", &OpEvents::stop)
      .def("push", &OpEvents::push, nb::arg("name"), "Begins a range with a name.")
      .def("pop", &OpEvents::pop, "Ends the innermost range with a name.")
      .def("events", &OpEvents::events, "(name, begin and end in microseconds, depth, whether it is a range) of each.");
  nb::class_<DeviceTimes>(m, "DeviceTimes", "Times ops on a device's current stream, from now until close().")
      .def(nb::init<Device>(), nb::arg("device"))
      .def(
          "rows",
          [](DeviceTimes& t) {
            if (!t.profile) throw ValueError("DeviceTimes", "closed already");
            nb::list out;
            for (const lab::OpProfile::Row& r : t.profile->rows())
              out.append(nb::make_tuple(nb::str(r.op->name().data(), r.op->name().size()), r.calls, r.seconds));
            return out;
          },
          "(op, calls, seconds) of each; waits for the device.")
      .def("close", [](DeviceTimes& t) { t.profile.reset(); });
}

}  // namespace strata::python
