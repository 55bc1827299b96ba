// Weight norm, spectral norm and orthogonal matrices as parametrisations.

#include <cmath>

#include <gtest/gtest.h>

#include "strata/autograd/gradcheck.h"
#include "strata/nn/conv.h"
#include "strata/nn/parametrize.h"
#include "strata/nn/parametrize_test_util.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/optim/sgd/sgd.h"

namespace strata::nn {
namespace {

TEST(WeightNorm, IsLengthTimesDirection) {
  manual_seed(8);
  const Conv2d conv(3, 4, 2);
  Conv2d(conv).to(DType::f64);
  const Tensor before = conv.weight.detach().clone(), x = data({2, 3, 4, 4});
  const Tensor y = conv(x).detach();
  parametrizations::weight_norm(conv);
  const TensorList parts = parametrizations_of(conv, "weight").originals();
  EXPECT_EQ(parts[0].shape(), Shape({4, 1, 1, 1}));
  EXPECT_EQ(distance(parts[1], before), 0);
  EXPECT_LT(distance(conv(x), y), 1e-13);
  {
    const NoGrad guard;
    Tensor(parts[0]).fill_(3);
    Tensor(parts[1]).mul_(7);
  }
  conv(x);
  EXPECT_LT(distance(norm(conv.weight, 2, {1, 2, 3}), full({4}, 3.0, DType::f64)), 1e-14);
  EXPECT_LT(distance(conv.weight, before * 3 / norm(before, 2, {1, 2, 3}, true)), 1e-14);
}

// Gradients of a parametrised layer's originals and input.
void expect_gradients(const Linear& layer) {
  const ParametrizationList list = parametrizations_of(layer, "weight");
  TensorList inputs = list.originals();
  inputs.push_back(data({2, layer.weight.size(1)}).set_requires_grad());
  const GradcheckResult r = gradcheck([&](const TensorList& in) { return layer(in.back()); }, inputs);
  EXPECT_TRUE(r.ok) << r.report;
}

TEST(Parametrizations, Gradients) {
  manual_seed(9);
  for (const std::optional<int64_t> dim :
       {std::optional<int64_t>(0), std::optional<int64_t>(1), std::optional<int64_t>()}) {
    const Linear layer = linear64(4, 3);
    parametrizations::weight_norm(layer, "weight", dim);
    expect_gradients(layer);
  }
  Linear spectral = linear64(4, 3);
  parametrizations::spectral_norm(spectral);
  spectral.eval();  // in training each call moves the singular vectors
  expect_gradients(spectral);
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{3, 3}, {4, 2}, {2, 4}}) {
    const Linear layer = linear64(in, out);
    parametrizations::orthogonal(layer);
    const NoGrad guard;
    Tensor(parametrizations_of(layer, "weight").originals()[0]).copy_(data({out, in}));
    const GradMode on(true);
    expect_gradients(layer);
  }
}

TEST(SpectralNorm, DividesByTheLargestSingularValue) {
  manual_seed(10);
  Linear layer = linear64(5, 4);
  const Tensor before = layer.weight.detach().clone();
  parametrizations::spectral_norm(layer, "weight", 200);
  const Tensor x = data({1, 5});
  layer(x);
  EXPECT_NEAR(amax(linalg_svdvals(layer.weight.detach())).item(), 1, 1e-9);
  EXPECT_LT(distance(layer.weight, before / amax(linalg_svdvals(before))), 1e-9);
  // The vectors move in training only.
  const Tensor u = parametrizations_of(layer, "weight").at(0)->buffer("_u");
  {
    const NoGrad guard;
    Tensor(parametrizations_of(layer, "weight").originals()[0]).copy_(data({4, 5}));
  }
  const Tensor kept = u.clone();
  layer.eval();
  layer(x);
  EXPECT_EQ(distance(u, kept), 0);
  layer.train();
  layer(x);
  EXPECT_GT(distance(u, kept), 1e-3);
  // Transposed convolutions have their outputs in dimension 1.
  const ConvTranspose2d up(3, 5, 2);
  parametrizations::spectral_norm(up);
  EXPECT_EQ(parametrizations_of(up, "weight").at(0)->buffer("_u").shape(), Shape({5}));
  EXPECT_EQ(parametrizations_of(up, "weight").at(0)->buffer("_v").shape(), Shape({12}));
}

double off_orthonormal(const Tensor& w) {
  const Tensor tall = (w.size(0) < w.size(1) ? w.t() : w).detach();
  return distance(matmul(tall.t(), tall), eye(tall.size(1), {}, DType::f64));
}

TEST(Orthogonal, StaysOrthonormalInTraining) {
  manual_seed(11);
  const auto trains = [](int64_t in, int64_t out, const char* map) {
    SCOPED_TRACE(map);
    const Linear layer = linear64(in, out);
    parametrizations::orthogonal(layer, "weight", map);
    const Tensor start = layer.weight.detach().clone();
    EXPECT_LT(off_orthonormal(start), 1e-14);
    const Tensor x = data({16, in}), y = data({16, out});
    optim::SGD optimizer(layer.named_parameters(), {.lr = 0.2});
    double first = 0, last = 0;
    for (int step = 0; step < 8; ++step) {
      Linear(layer).zero_grad();
      const Tensor loss = mean(square(layer(x) - y));
      (step == 0 ? first : last) = loss.item();
      loss.backward();
      optimizer.step();
      EXPECT_LT(off_orthonormal(layer.weight), 1e-13);
    }
    EXPECT_LT(last, first);
    EXPECT_GT(distance(layer.weight, start), 1e-3);
  };
  for (const char* map : {"cayley", "matrix_exp", "householder"})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{4, 4}, {6, 3}, {3, 6}}) trains(in, out, map);
  // An orthonormal weight is where it begins.
  for (const char* map : {"cayley", "matrix_exp", "householder"}) {
    const Linear layer = linear64(4, 4);
    {
      const NoGrad guard;
      Tensor(layer.weight).copy_(-eye(4, {}, DType::f64));
    }
    parametrizations::orthogonal(layer, "weight", map);
    EXPECT_LT(distance(layer.weight, -eye(4, {}, DType::f64)), 1e-14) << map;
  }
}

TEST(Parametrizations, TrainingKeepsTheSpectralNorm) {
  manual_seed(12);
  Linear layer = linear64(5, 4);
  parametrizations::spectral_norm(layer, "weight", 50);
  const Tensor x = data({16, 5}), y = data({16, 4});
  optim::SGD optimizer(layer.named_parameters(), {.lr = 0.1});
  double first = 0, last = 0;
  for (int step = 0; step < 8; ++step) {
    layer.zero_grad();
    const Tensor loss = mean(square(layer(x) - y));
    (step == 0 ? first : last) = loss.item();
    EXPECT_NEAR(amax(linalg_svdvals(layer.weight.detach())).item(), 1, 1e-3);
    loss.backward();
    optimizer.step();
  }
  EXPECT_LT(last, first);
}

// What the Python package computes of the same tensors and seeds.
TEST(Parametrizations, GiveThePythonPackagesNumbers) {
  const Tensor x = cos(arange(0, 8, 1, DType::f64)).reshape({2, 4});
  const auto layer = [](int64_t out) {
    Linear made = linear64(4, out, false);
    const NoGrad guard;
    made.weight.copy_(sin(arange(1, 4 * out + 1, 1, DType::f64)).reshape({out, 4}));
    return made;
  };
  const auto expect = [&](const Linear& of, const std::vector<double>& wanted) {
    EXPECT_LT(distance(of(x).flatten(), from_span<double>(wanted, {static_cast<int64_t>(wanted.size())})), 1e-13);
  };
  const Linear lengths = layer(2);
  parametrizations::weight_norm(lengths);
  {
    const NoGrad guard;
    Tensor(parametrizations_of(lengths, "weight").originals()[0]).mul_(2);
  }
  expect(lengths, {4.046537256155, -4.72550649590585, -1.45428942949277, 3.8484670949064});
  const Linear spectral = layer(2);
  manual_seed(3);
  parametrizations::spectral_norm(spectral);
  spectral(x);
  expect(spectral, {1.01283175147121, -1.1827749796587, -0.364002705715557, 0.963255598915969});
}

// torch.nn.utils.parametrizations.orthogonal (2.15) of the same original and base.
TEST(Parametrizations, OrthogonalMapsArePyTorchs) {
  const Tensor x = cos(arange(0, 8, 1, DType::f64)).reshape({2, 4});
  const auto expect = [&](const char* map, int64_t out, const std::vector<double>& wanted) {
    const Linear made = linear64(4, out, false);
    parametrizations::orthogonal(made, "weight", map);
    const NoGrad guard;
    Tensor original = parametrizations_of(made, "weight").originals()[0];
    original.copy_(cos(arange(0, 4 * out, 1, DType::f64)).reshape({out, 4}));
    if (map == std::string("householder")) original.diagonal().fill_(-1);
    const int64_t n = std::max<int64_t>(out, 4);
    for (const auto& [name, buffer] : made.named_buffers())
      if (name.ends_with("base"))
        Tensor(buffer).copy_(std::get<0>(linalg_qr(sin(square(arange(1, n * n + 1, 1, DType::f64))).reshape({n, n}))));
    EXPECT_LT(distance(made(x).flatten(), from_span<double>(wanted, {2 * out})), 1e-13) << map << ' ' << out;
  };
  expect("cayley", 2, {-1.18471602210775, -0.315122965181207, 0.421617856174559, 0.0461299979697617});
  expect("cayley", 4,
         {-0.817697512257688, -0.0936087981817659, 1.27879654128543, 0.363974575989575, 0.854736794850307,
          -0.305179942694241, -0.924222460814378, 0.565785174832292});
  expect("cayley", 5,
         {-0.47457238242274, 0.599809372524179, -0.196882467954896, -0.797848923682717, -1.08851921153642,
          -0.575672460250172, -0.459029861691186, 0.222665099802528, 0.713601694794823, 0.947151247757612});
  expect("matrix_exp", 2, {-1.09124958566429, -0.336739594379869, 0.212875370722641, 0.266050308058486});
  expect("matrix_exp", 5,
         {-0.295071305114627, 0.790307543677893, 0.146399304006571, -1.06339521318249, -0.762426842582638,
          -0.684649116467239, -0.514691694969029, 0.128963781599691, 0.881367968864653, 0.686233706526479});
  // The default of a square matrix.
  expect("", 4,
         {-0.642778456154424, 0.0335414393078129, 1.40214189055543, 0.254752549589497, 0.853637711396643,
          -0.347683163806227, -0.884439224532705, 0.605141421836923});
  expect("householder", 2, {-0.073475551026182, -1.21462743855373, -0.605633557802945, 0.97645888848769});
  expect("householder", 4,
         {0.617221735152519, -0.724579006222441, 1.23778432809328, 0.0842761243975951, 0.197867812059933,
          0.0693965118475093, -1.39459787747106, 0.0955982231783168});
  expect("householder", 5,
         {-0.0357370072583616, -0.57103621431921, 0.446285222615984, -1.33690815474923, 0.362403792347171,
          -0.417858762492119, 0.30109954296419, 0.413572150571669, 1.2496489855437, -0.00885528452779671});
}

}  // namespace
}  // namespace strata::nn
