#pragma once
// Benchmark samples for whoever wants their shapes, and of their elements only what they begin with.

namespace strata {

/// While one lives, Samples on this thread fill no more of a benchmark's tensor than the elements that the rest would
/// repeat: the memory behind them is taken, but never touched.
class SampleShapesScope {
 public:
  SampleShapesScope();
  ~SampleShapesScope();
  SampleShapesScope(const SampleShapesScope&) = delete;

 private:
  bool previous_;
};

}  // namespace strata
