#pragma once
// What the ways to exchange gradients have in common.

#include <cstdint>
#include <vector>

#include "strata/dist/gradient_exchange.h"

namespace strata::distributed::exchange {

/// Elements of gradients that are laid out together: what bounds the memory of one exchange.
constexpr int64_t kBucket = int64_t{1} << 22;

/// Bytes that a rank sends where `bytes` are reduced and come back to all.
double ring_bytes(double bytes, int64_t ranks);
/// The same of one all_reduce to the byte: short ones are gathered by the host's Communicator.
int64_t reduced_bytes(int64_t count, int64_t element, int64_t ranks, int64_t rank, bool host);

/// Zeros where gradients are, whatever the thread's default device is.
Tensor zeros_on(Device device, const Shape& shape, DType dtype = DType::f32);

/// Some parameters, one behind the other.
struct Bucket {
  std::vector<size_t> members;
  std::vector<int64_t> offsets;  // of each member
  int64_t numel = 0;
  int64_t padded = 0;  // a multiple of what was asked for
};
std::vector<Bucket> make_buckets(const std::vector<int64_t>& numels, int64_t multiple);

/// How blocks of numbers become few bits: 8 and 4, a symmetric grid under the largest magnitude; 1, the sign, times the mean
/// magnitude.
struct BlockCode {
  int bits = 8;
  int64_t block = 256;  ///< numbers under one scale, a multiple of 8
  /// Bytes of `n` numbers, a multiple of the block.
  int64_t bytes(int64_t n) const { return n / block * (block * bits / 8 + 4); }
};
/// Codes u8 [blocks, block * bits / 8] and scales f32 [blocks, 1] of x f32, whose numbers are whole blocks.
struct Codes {
  Tensor codes, scales;
};
Codes encode(const Tensor& x, const BlockCode& code);
/// What a rank sends of gradients that are coded both ways.
double sent_coded(const std::vector<Shape>& shapes, int64_t ranks, const BlockCode& code);
/// Numbers of the buckets of such gradients, filled up to whole blocks.
double padded_numbers(const std::vector<Shape>& shapes, int64_t ranks, const BlockCode& code);
/// f32 [blocks * block].
Tensor decode(const Codes& c, const BlockCode& code);

/// Averages over ranks of which few bits travel: blocks to the rank that adds them up, in f32 and the order of the ranks, and
/// sums back to all. What coding loses of either is kept where it was lost, and added the next time.
class CodedExchange : public GradientExchange {
 public:
  CodedExchange(const ExchangeRecord& record, const Parameters& parameters, Group& group, const ExchangeOptions& options,
                const BlockCode& code);

 protected:
  struct Flat {
    Bucket bucket;
    Tensor error;      // f32 [padded], of this rank's coding
    Tensor sum_error;  // f32 [padded / ranks], of its part of the sums
  };
  /// f32 [padded] of a bucket's gradients.
  Tensor gradients_of(const Bucket& b) const;
  /// Their places in parameters_.
  void give_gradients(const Bucket& b, const Tensor& flat);
  /// x f32 [padded] -> what all have of the ranks' mean.
  Tensor average(Flat& f, const Tensor& x);
  std::vector<State> states() override;

  BlockCode code_;
  std::vector<Flat> flats_;
};

/// A parameter's gradient becomes `value` (f32, as many elements), in its dtype and in the memory that it has.
void set_gradient(Tensor parameter, const Tensor& value);
/// Gradients of a norm of at most `max_norm`, all of them together.
void clip(TensorList& gradients, double max_norm);
/// The parameter's gradient in f32; zeros without one.
Tensor gradient_of(const Tensor& parameter);

std::unique_ptr<GradientExchange> make_plain(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_int8(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_int4(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_power_sgd(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_one_bit(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_demo(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_local_sgd(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);
std::unique_ptr<GradientExchange> make_diloco(const GradientExchange::Parameters&, Group&, const ExchangeOptions&);

double kept_plain(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_int8(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_int4(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_power_sgd(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_one_bit(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_demo(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_local_sgd(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double kept_diloco(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);

double sent_plain(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_int8(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_int4(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_power_sgd(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_one_bit(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_demo(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_local_sgd(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);
double sent_diloco(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&);

}  // namespace strata::distributed::exchange
