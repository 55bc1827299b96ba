// Values of the special functions against 30 digits (mpmath), over their ranges and at the seams between methods; poles
// and infinities; dtypes; arguments that once took forever; what the gradient rules refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "strata/autograd/autograd.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/special/special.h"

namespace strata {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

Tensor number(double v, DType t = DType::f64) {
  return full({}, v, t);
}
double at(Tensor (*f)(const Tensor&), double x) {
  return f(number(x)).item();
}
double at(Tensor (*f)(const Tensor&, const Tensor&), double a, double b) {
  return f(number(a), number(b)).item();
}
Tensor plain_logit(const Tensor& x) {
  return logit(x);
}

struct OfOne {
  const char* name;
  Tensor (*f)(const Tensor&);
  double x, want;
};
const OfOne kOfOne[] = {
    {"lgamma", lgamma, 1e-300, 690.7755278982137},
    {"lgamma", lgamma, 0.5, 0.5723649429247001},
    {"lgamma", lgamma, 1.5, -0.12078223763524522},
    {"lgamma", lgamma, 10.5, 13.940625219403763},
    {"lgamma", lgamma, -0.5, 1.2655121234846454},
    {"lgamma", lgamma, -7.3, -7.779101629826852},
    {"lgamma", lgamma, 170.25, 702.7206616776805},
    {"digamma", digamma, 1e-10, -10000000000.577215},
    {"digamma", digamma, 1.0, -0.5772156649015329},
    {"digamma", digamma, 1.4616321449683622, -9.241265521729427e-17},
    {"digamma", digamma, 1.47, 0.008066489011364869},
    {"digamma", digamma, 2.5, 0.7031566406452432},
    {"digamma", digamma, 1000000000000000.0, 34.538776394910684},
    {"digamma", digamma, -0.5, 0.03648997397857652},
    {"digamma", digamma, -7.3, 4.33730730551005},
    {"erfinv", erfinv, 1e-300, 8.86226925452758e-301},
    {"erfinv", erfinv, 0.1, 0.08885599049425769},
    {"erfinv", erfinv, -0.5, -0.4769362762044699},
    {"erfinv", erfinv, 0.9, 1.1630871536766743},
    {"erfinv", erfinv, -0.999999, -3.458910737275499},
    {"erfinv", erfinv, 0.9999999999999999, 5.8635847487551676},
    {"erfcx", erfcx, -20.0, 1.0442939379528289e+174},
    {"erfcx", erfcx, -1.0, 5.008980080762283},
    {"erfcx", erfcx, 0.5, 0.6156903441929259},
    {"erfcx", erfcx, 5.0, 0.11070463773306863},
    {"erfcx", erfcx, 9.999, 0.05614655260396594},
    {"erfcx", erfcx, 10.001, 0.05613543397942035},
    {"erfcx", erfcx, 100000.0, 5.6418958351954685e-06},
    {"ndtr", ndtr, -37.0, 5.725571222524577e-300},
    {"ndtr", ndtr, -5.0, 2.866515718791939e-07},
    {"ndtr", ndtr, -0.5, 0.3085375387259869},
    {"ndtr", ndtr, 0.0, 0.5},
    {"ndtr", ndtr, 3.0, 0.9986501019683699},
    {"ndtri", ndtri, 1e-300, -37.0470962993612},
    {"ndtri", ndtri, 1e-10, -6.361340902404057},
    {"ndtri", ndtri, 0.02, -2.053748910631823},
    {"ndtri", ndtri, 0.3, -0.5244005127080408},
    {"ndtri", ndtri, 0.75, 0.6744897501960817},
    {"ndtri", ndtri, 0.999, 3.090232306167813},
    {"log_ndtr", log_ndtr, -1000.0, -500007.82669481216},
    {"log_ndtr", log_ndtr, -20.0, -203.91715537109727},
    {"log_ndtr", log_ndtr, -1.5, -2.7059444008238898},
    {"log_ndtr", log_ndtr, 0.0, -0.6931471805599453},
    {"log_ndtr", log_ndtr, 5.0, -2.866516129637636e-07},
    {"entr", entr, 1e-300, 6.9077552789821376e-298},
    {"entr", entr, 0.5, 0.34657359027997264},
    {"entr", entr, 3.0, -3.295836866004329},
    {"logit", plain_logit, 1e-10, -23.025850929840455},
    {"logit", plain_logit, 0.3, -0.8472978603872037},
    {"logit", plain_logit, 0.5000001, 3.99999999789463e-07},
    {"logit", plain_logit, 0.99, 4.595119850134589},
    {"sinc", sinc, 1e-08, 0.9999999999999999},
    {"sinc", sinc, 0.5, 0.6366197723675814},
    {"sinc", sinc, 1.5, -0.2122065907891938},
    {"sinc", sinc, 100.25, 0.0022451778457783195},
    {"i0", i0, 0.5, 1.0634833707413236},
    {"i0", i0, -3.0, 4.8807925858650245},
    {"i0", i0, 19.9, 39513376.52006682},
    {"i0", i0, 20.1, 48017874.1071365},
    {"i0", i0, 700.0, 1.5295933476718737e+302},
    {"i0e", i0e, 0.5, 0.6450352704491501},
    {"i0e", i0e, -30.0, 0.0731459464822373},
    {"i0e", i0e, 10000.0, 0.003989472674604732},
    {"i1", i1, 1e-10, 5e-11},
    {"i1", i1, -3.0, -3.9533702174026093},
    {"i1", i1, 19.9, 38507423.87486228},
    {"i1", i1, 21.1, 124300509.62534717},
    {"i1", i1, 700.0, 1.5285003902339006e+302},
    {"i1e", i1e, 0.5, 0.1564208031848717},
    {"i1e", i1e, -30.0, -0.07191633059864755},
    {"i1e", i1e, 10000.0, 0.003989273195983662},
    {"i0", i0, 7.999, 427.1644313152026},
    {"i0", i0, 8.001, 427.96417770840884},
    {"i0e", i0e, 7.999, 0.14344107205089568},
    {"i0e", i0e, 8.001, 0.14342249347357044},
    {"i1", i1, -7.999, -399.49573621362},
    {"i1", i1, -8.001, -400.25089627518514},
    {"i1e", i1e, 7.999, 0.13414997242586205},
    {"i1e", i1e, 8.001, 0.13413501537956068},
    {"modified_bessel_k0", modified_bessel_k0, 1.999, 0.11403383058923292},
    {"modified_bessel_k0", modified_bessel_k0, 2.001, 0.11375409873668463},
    {"modified_bessel_k1", modified_bessel_k1, 1.999, 0.14004984207710966},
    {"modified_bessel_k1", modified_bessel_k1, 2.001, 0.13968218830176757},
    {"scaled_modified_bessel_k0", scaled_modified_bessel_k0, 1.999, 0.8417601901891834},
    {"scaled_modified_bessel_k0", scaled_modified_bessel_k0, 2.001, 0.8413763728735403},
    {"scaled_modified_bessel_k1", scaled_modified_bessel_k1, 1.999, 1.033801820860028},
    {"scaled_modified_bessel_k1", scaled_modified_bessel_k1, 2.001, 1.0331521611403638},
    {"bessel_j0", bessel_j0, 0.5, 0.9384698072408129},
    {"bessel_j0", bessel_j0, 2.404825557695773, -6.10876525973673e-17},
    {"bessel_j0", bessel_j0, -10.0, -0.24593576445134835},
    {"bessel_j0", bessel_j0, 10000.0, -0.0070961603533888015},
    {"bessel_j1", bessel_j1, 0.5, 0.2422684576748739},
    {"bessel_j1", bessel_j1, -3.0, -0.3390589585259365},
    {"bessel_j1", bessel_j1, 50.0, -0.09751182812517514},
    {"bessel_j1", bessel_j1, 10000.0, 0.0036474507555295803},
    {"bessel_y0", bessel_y0, 1e-05, -7.40316028370197},
    {"bessel_y0", bessel_y0, 0.5, -0.44451873350670656},
    {"bessel_y0", bessel_y0, 3.0, 0.3768500100127904},
    {"bessel_y0", bessel_y0, 10000.0, 0.0036478055589866058},
    {"bessel_y1", bessel_y1, 1e-05, -63661.97727536548},
    {"bessel_y1", bessel_y1, 0.5, -1.471472392670243},
    {"bessel_y1", bessel_y1, 3.0, 0.3246744247918},
    {"bessel_y1", bessel_y1, 10000.0, 0.007096342752536495},
    {"modified_bessel_k0", modified_bessel_k0, 1e-05, 11.628856980944363},
    {"modified_bessel_k0", modified_bessel_k0, 0.999, 0.42162685730813515},
    {"modified_bessel_k0", modified_bessel_k0, 1.001, 0.42042304210549164},
    {"modified_bessel_k0", modified_bessel_k0, 5.0, 0.0036910983340425942},
    {"modified_bessel_k0", modified_bessel_k0, 19.9, 6.360780949642313e-10},
    {"modified_bessel_k0", modified_bessel_k0, 20.1, 5.182101748797715e-10},
    {"modified_bessel_k0", modified_bessel_k0, 600.0, 1.3558285309948523e-262},
    {"modified_bessel_k1", modified_bessel_k1, 1e-05, 99999.99993935571},
    {"modified_bessel_k1", modified_bessel_k1, 0.999, 0.602931276323012},
    {"modified_bessel_k1", modified_bessel_k1, 1.001, 0.6008854108196824},
    {"modified_bessel_k1", modified_bessel_k1, 5.0, 0.004044613445452165},
    {"modified_bessel_k1", modified_bessel_k1, 19.9, 6.518685500851477e-10},
    {"modified_bessel_k1", modified_bessel_k1, 20.1, 5.309480556151319e-10},
    {"modified_bessel_k1", modified_bessel_k1, 600.0, 1.356957918112806e-262},
    {"scaled_modified_bessel_k0", scaled_modified_bessel_k0, 0.5, 1.5241093857739094},
    {"scaled_modified_bessel_k0", scaled_modified_bessel_k0, 2.0, 0.8415682150707714},
    {"scaled_modified_bessel_k0", scaled_modified_bessel_k0, 1000.0, 0.03962832160075422},
    {"scaled_modified_bessel_k1", scaled_modified_bessel_k1, 0.5, 2.731009708211786},
    {"scaled_modified_bessel_k1", scaled_modified_bessel_k1, 2.0, 1.0334768470686886},
    {"scaled_modified_bessel_k1", scaled_modified_bessel_k1, 1000.0, 0.03964813081296021},
    {"spherical_bessel_j0", spherical_bessel_j0, 1e-05, 0.9999999999833333},
    {"spherical_bessel_j0", spherical_bessel_j0, 0.999, 0.8417720338905119},
    {"spherical_bessel_j0", spherical_bessel_j0, 1.001, 0.8411696965916653},
    {"spherical_bessel_j0", spherical_bessel_j0, 100.0, -0.005063656411097588},
    {"airy_ai", airy_ai, 0.3, 0.2788064819550049},
    {"airy_ai", airy_ai, -0.3, 0.43090309528558085},
    {"airy_ai", airy_ai, 5.2, 6.832855592524807e-05},
    {"airy_ai", airy_ai, 9.99, 1.1405176956374916e-10},
    {"airy_ai", airy_ai, 10.01, 1.0700936543950783e-10},
    {"airy_ai", airy_ai, 50.0, 4.5849417240748285e-104},
    {"airy_ai", airy_ai, -9.99, 0.0501821171621398},
    {"airy_ai", airy_ai, -10.01, 0.03026012358586105},
    {"airy_ai", airy_ai, -1000.0, 0.05597189577301992},
};
struct OfTwo {
  const char* name;
  Tensor (*f)(const Tensor&, const Tensor&);
  double a, b, want;
};
const OfTwo kOfTwo[] = {
    {"zeta", zeta, 2.0, 1.0, 1.6449340668482264},
    {"zeta", zeta, 1.0001, 3.0, 9999.077257603696},
    {"zeta", zeta, 1.5, 0.001, 31625.386966911912},
    {"zeta", zeta, 30.0, 7.5, 5.735621073686468e-27},
    {"zeta", zeta, 3.0, 10000000000.0, 5.0000000005e-21},
    {"zeta", zeta, 3.0, -2.5, 0.0541020258208637},
    {"zeta", zeta, 2.0, -0.25, 18.541879647671607},
    {"igamma", igamma, 0.5, 0.3, 0.5614219739190002},
    {"igamma", igamma, 0.01, 2.0, 0.9995033354627815},
    {"igamma", igamma, 5.0, 5.5, 0.6424819975720745},
    {"igamma", igamma, 25.0, 24.0, 0.44599877692500434},
    {"igamma", igamma, 1000.0, 1100.0, 0.99894067674607},
    {"igamma", igamma, 1000.0, 300.0, 2.4149201482967856e-221},
    {"igamma", igamma, 1000000.0, 1000100.0, 0.5399588284317236},
    {"igamma", igamma, 3.0, 80.0, 1.0},
    {"igammac", igammac, 0.5, 0.3, 0.4385780260809999},
    {"igammac", igammac, 1e-10, 0.5, 5.597735948054988e-11},
    {"igammac", igammac, 5.0, 5.5, 0.35751800242792553},
    {"igammac", igammac, 25.0, 24.0, 0.5540012230749957},
    {"igammac", igammac, 1000.0, 1100.0, 0.0010593232539299773},
    {"igammac", igammac, 1000.0, 1700.0, 4.978103302170433e-76},
    {"igammac", igammac, 3.0, 80.0, 5.921717403520807e-32},
    {"xlog1py", xlog1py, 2.0, 1e-20, 2e-20},
    {"xlog1py", xlog1py, -1.5, 4.0, -2.4141568686511508},
    {"logaddexp2", logaddexp2, 3.0, 5.5, 5.734840581079202},
    {"logaddexp2", logaddexp2, 1000.0, 999.0, 1000.5849625007212},
    {"chebyshev_polynomial_t", chebyshev_polynomial_t, 0.3, 5.0, 0.99888},
    {"chebyshev_polynomial_t", chebyshev_polynomial_t, -0.9, 50.0, -0.847153099844808},
    {"chebyshev_polynomial_t", chebyshev_polynomial_t, 1.5, 7.0, 421.5},
    {"chebyshev_polynomial_t", chebyshev_polynomial_t, -1.2, 41.0, -60367424790.937675},
    {"chebyshev_polynomial_t", chebyshev_polynomial_t, 0.999, 33.0, 0.09472621121289569},
    {"chebyshev_polynomial_u", chebyshev_polynomial_u, 0.3, 5.0, 1.01376},
    {"chebyshev_polynomial_u", chebyshev_polynomial_u, -0.9, 50.0, -1.9442512257466646},
    {"chebyshev_polynomial_u", chebyshev_polynomial_u, 1.5, 7.0, 987.0},
    {"chebyshev_polynomial_u", chebyshev_polynomial_u, -1.2, 41.0, -169576205295.4135},
    {"chebyshev_polynomial_u", chebyshev_polynomial_u, 0.999, 33.0, 22.3381595385183},
    {"chebyshev_polynomial_v", chebyshev_polynomial_v, 0.3, 5.0, 0.9641599999999999},
    {"chebyshev_polynomial_v", chebyshev_polynomial_v, -0.9, 50.0, -3.163249143415394},
    {"chebyshev_polynomial_v", chebyshev_polynomial_v, 1.5, 7.0, 610.0},
    {"chebyshev_polynomial_v", chebyshev_polynomial_v, -1.2, 41.0, -260583522382.4767},
    {"chebyshev_polynomial_v", chebyshev_polynomial_v, 0.999, 33.0, 0.07246051218656394},
    {"chebyshev_polynomial_w", chebyshev_polynomial_w, 0.3, 5.0, 1.06336},
    {"chebyshev_polynomial_w", chebyshev_polynomial_w, -0.9, 50.0, -0.7252533080779351},
    {"chebyshev_polynomial_w", chebyshev_polynomial_w, 1.5, 7.0, 1364.0},
    {"chebyshev_polynomial_w", chebyshev_polynomial_w, -1.2, 41.0, -78568888208.35031},
    {"chebyshev_polynomial_w", chebyshev_polynomial_w, 0.999, 33.0, 44.603858564850036},
    {"shifted_chebyshev_polynomial_t", shifted_chebyshev_polynomial_t, 0.3, 5.0, -0.88384},
    {"shifted_chebyshev_polynomial_t", shifted_chebyshev_polynomial_t, 0.9, 40.0, 0.8211899883346003},
    {"shifted_chebyshev_polynomial_u", shifted_chebyshev_polynomial_u, 0.3, 5.0, -0.6796799999999998},
    {"shifted_chebyshev_polynomial_u", shifted_chebyshev_polynomial_u, 0.9, 40.0, 1.582063174508391},
    {"shifted_chebyshev_polynomial_v", shifted_chebyshev_polynomial_v, 0.3, 5.0, -0.16927999999999976},
    {"shifted_chebyshev_polynomial_v", shifted_chebyshev_polynomial_v, 0.9, 40.0, 0.6309716917911526},
    {"shifted_chebyshev_polynomial_w", shifted_chebyshev_polynomial_w, 0.3, 5.0, -1.19008},
    {"shifted_chebyshev_polynomial_w", shifted_chebyshev_polynomial_w, 0.9, 40.0, 2.5331546572256296},
    {"hermite_polynomial_h", hermite_polynomial_h, 0.3, 5.0, 31.757759999999998},
    {"hermite_polynomial_h", hermite_polynomial_h, -2.5, 20.0, -15799429886575.0},
    {"hermite_polynomial_h", hermite_polynomial_h, 8.0, 100.0, 2.5761505535443435e+107},
    {"hermite_polynomial_he", hermite_polynomial_he, 0.3, 5.0, 4.23243},
    {"hermite_polynomial_he", hermite_polynomial_he, -2.5, 20.0, 570520371.3062525},
    {"hermite_polynomial_he", hermite_polynomial_he, 8.0, 100.0, -2.1930263042240882e+85},
    {"laguerre_polynomial_l", laguerre_polynomial_l, 0.3, 5.0, -0.09333274999999998},
    {"laguerre_polynomial_l", laguerre_polynomial_l, 12.0, 30.0, 34.78047802431294},
    {"legendre_polynomial_p", legendre_polynomial_p, 0.3, 5.0, 0.34538625},
    {"legendre_polynomial_p", legendre_polynomial_p, -0.8, 30.0, 0.1864633352309079},
    {"legendre_polynomial_p", legendre_polynomial_p, 1.1, 25.0, 9654.22356883645},
    {"legendre_polynomial_p", legendre_polynomial_p, 0.99, 2000.0, 0.04411739208659854},
};
struct Polygamma {
  int n;
  double x, want;
};
const Polygamma kPolygamma[] = {
    {1, 0.3, 12.245364546107732},       {1, -2.5, 9.539246644989124},   {2, 5.0, -0.048789732245114494},
    {5, -0.7, 165654.82926950054},      {20, 3.0, -233141556.11225682}, {150, 150.0, -2.325151905593796e-66},
    {200, 40.0, -7.68917391988395e+52},
};

// What a table's arguments allow, rounded to f64 as they are: a few units in the last place, or the argument's own
// rounding times the function's slope where that is larger (near zeros and in tails).
constexpr double kRelative = 5e-15;

TEST(Special, ValuesOfOneArgument) {
  for (const OfOne& p : kOfOne) {
    const double got = at(p.f, p.x);
    EXPECT_LE(std::abs(got - p.want), kRelative * std::abs(p.want) + 3e-16)
        << p.name << "(" << p.x << ") = " << got << ", wanted " << p.want;
    if (std::abs(p.want) > 1e-30 && std::abs(p.want) < 1e30) {
      const double single = p.f(number(p.x, DType::f32)).item();
      const double rounded = p.f(number(static_cast<float>(p.x))).item();
      const auto nearest = static_cast<float>(rounded);  // vectors may round to its neighbour
      if (std::isinf(nearest)) {                         // the argument or the value left f32's range
        EXPECT_EQ(single, nearest) << p.name << "(" << p.x << ") in f32";
        continue;
      }
      EXPECT_LE(std::abs(single - nearest), std::abs(std::nextafter(nearest, 2 * nearest) - nearest))
          << p.name << "(" << p.x << ") in f32 is the f64 value, rounded";
    }
  }
}

TEST(Special, RelativeAccuracyNearZerosAndInTails) {
  // Not merely absolute: a digit lost here is a digit lost.
  const double root = 1.4616321449683622;
  EXPECT_NEAR(at(digamma, root) / -9.241265521729427e-17, 1, 1e-9);
  EXPECT_NEAR(at(erfinv, 1e-300) / 8.862269254527581e-301, 1, 1e-15);
  EXPECT_NEAR(at(ndtr, -37.0) / 5.725571222524577e-300, 1, 1e-14);
  EXPECT_NEAR(at(igammac, 1e-10, 0.5) / 5.597735948054988e-11, 1, 1e-12);
}

TEST(Special, ValuesOfTwoArguments) {
  for (const OfTwo& p : kOfTwo) {
    const double got = at(p.f, p.a, p.b);
    EXPECT_LE(std::abs(got - p.want), 4e-13 * std::abs(p.want))
        << p.name << "(" << p.a << ", " << p.b << ") = " << got << ", wanted " << p.want;
  }
  for (const Polygamma& p : kPolygamma) {
    const double got = polygamma(p.n, number(p.x)).item();
    EXPECT_LE(std::abs(got - p.want), 2e-13 * std::abs(p.want)) << "polygamma(" << p.n << ", " << p.x << ") = " << got;
  }
}

// Orders that kernels of one family take, and others beside them.
TEST(Special, PolynomialsOfMixedOrdersOnACard) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Tensor x = linspace(0.05, 0.95, 1003), n = randint(-2, 42, {1003});
  for (const auto f : {chebyshev_polynomial_t, chebyshev_polynomial_u, shifted_chebyshev_polynomial_v,
                       chebyshev_polynomial_w, laguerre_polynomial_l, legendre_polynomial_p}) {
    const Tensor want = f(x.to(DType::f64), n), got = f(x.to(Device::cuda()), n.to(Device::cuda()));
    const Tensor off = (got.to(Device::cpu()).to(DType::f64) - want).abs();
    EXPECT_LE((off / (1 + want.abs())).max().item(), 1e-4);
  }
  const Tensor nan = full({8}, kNan, DType::f32).to(Device::cuda()), order = zeros({8}, DType::i64).to(Device::cuda());
  EXPECT_TRUE(std::isnan(chebyshev_polynomial_t(nan, order).sum().item()));
}

TEST(Special, Poles) {
  for (const double x : {0.0, -0.0, -1.0, -30.0}) {
    EXPECT_EQ(at(lgamma, x), kInf) << x;
    EXPECT_EQ(polygamma(1, number(x)).item(), kInf) << x;
    EXPECT_EQ(polygamma(2, number(x)).item(), -kInf) << x;
    EXPECT_EQ(at(zeta, 3, x), kInf) << x;
  }
  EXPECT_EQ(at(lgamma, -kInf), kInf);
  EXPECT_EQ(at(digamma, 0.0), -kInf);
  EXPECT_EQ(at(digamma, -0.0), kInf);
  EXPECT_TRUE(std::isnan(at(digamma, -1)));
  EXPECT_TRUE(std::isnan(at(digamma, -30)));
  EXPECT_TRUE(std::isnan(at(digamma, -kInf)));
  EXPECT_EQ(at(digamma, kInf), kInf);
  EXPECT_EQ(at(zeta, 1, 2), kInf);
  EXPECT_TRUE(std::isnan(at(zeta, 0.5, 2)));
  EXPECT_TRUE(std::isnan(at(zeta, -3, 2)));
  EXPECT_TRUE(std::isnan(at(zeta, 2.5, -0.5)));
  EXPECT_EQ(at(zeta, kInf, 2), 0);
  EXPECT_EQ(at(zeta, kInf, 1), 1);
  EXPECT_EQ(at(zeta, 2, kInf), 0);
  EXPECT_EQ(at(erfinv, 1), kInf);
  EXPECT_EQ(at(erfinv, -1), -kInf);
  EXPECT_TRUE(std::isnan(at(erfinv, 1.5)));
  EXPECT_EQ(at(ndtri, 0), -kInf);
  EXPECT_EQ(at(ndtri, 1), kInf);
  EXPECT_TRUE(std::isnan(at(ndtri, -0.1)));
  EXPECT_EQ(at(erfcx, -30), kInf);
  EXPECT_EQ(at(erfcx, kInf), 0);
  EXPECT_EQ(at(log_ndtr, -kInf), -kInf);
  EXPECT_EQ(at(log_ndtr, kInf), 0);
  EXPECT_EQ(at(entr, 0), 0);
  EXPECT_EQ(at(entr, -1), -kInf);
  EXPECT_EQ(at(plain_logit, 0), -kInf);
  EXPECT_EQ(at(plain_logit, 1), kInf);
  EXPECT_TRUE(std::isnan(at(plain_logit, 1.1)));
  EXPECT_EQ(at(sinc, 0), 1);
  EXPECT_EQ(at(sinc, -7), 0);
  EXPECT_EQ(at(bessel_y0, 0), -kInf);
  EXPECT_EQ(at(bessel_y1, 0), -kInf);
  EXPECT_TRUE(std::isnan(at(bessel_y0, -1)));
  EXPECT_EQ(at(modified_bessel_k0, 0), kInf);
  EXPECT_EQ(at(modified_bessel_k1, 0), kInf);
  EXPECT_TRUE(std::isnan(at(modified_bessel_k1, -1)));
  EXPECT_EQ(at(xlog1py, 0, -1), 0);
  EXPECT_TRUE(std::isnan(at(xlog1py, 0, kNan)));
  for (Tensor (*f)(const Tensor&) :
       {bessel_j0, bessel_j1, bessel_y0, bessel_y1, modified_bessel_k0, airy_ai, spherical_bessel_j0, i0e, i1e})
    EXPECT_EQ(at(f, kInf), 0);
  EXPECT_EQ(at(igamma, 0, 1), 1);
  EXPECT_TRUE(std::isnan(at(igamma, 0, 0)));
  EXPECT_TRUE(std::isnan(at(igamma, -1, 1)));
  EXPECT_TRUE(std::isnan(at(igamma, 1, -1)));
  EXPECT_EQ(at(igamma, 2, 0), 0);
  EXPECT_EQ(at(igamma, 2, kInf), 1);
  EXPECT_EQ(at(igammac, kInf, 2), 1);
}

TEST(Special, NanStaysNan) {
  for (const OfOne& p : kOfOne) EXPECT_TRUE(std::isnan(at(p.f, kNan))) << p.name;
  for (const OfTwo& p : kOfTwo) {
    EXPECT_TRUE(std::isnan(at(p.f, kNan, 1.5))) << p.name;
    EXPECT_TRUE(std::isnan(at(p.f, 1.5, kNan))) << p.name;
  }
}

// Each of these has a number of steps that does not grow with the argument.
TEST(Special, HugeArgumentsEnd) {
  EXPECT_EQ(polygamma(int64_t{1} << 31, number(2.0)).item(), -kInf);
  EXPECT_EQ(polygamma(INT64_MAX - 1, number(1e300)).item(), 0);
  EXPECT_EQ(at(i0, 1e13), kInf);
  EXPECT_EQ(at(i1, -1e13), -kInf);
  EXPECT_NEAR(at(i0e, 1e13) / 1.2615662610100958e-7, 1, 1e-12);
  EXPECT_EQ(at(lgamma, 1e300), 1e300 * (std::log(1e300) - 1));
  EXPECT_NEAR(at(digamma, 1e300), std::log(1e300), 1e-12);
  EXPECT_LT(std::abs(at(digamma, -1e15 - 0.5)), 40);
  EXPECT_LE(std::abs(at(bessel_j0, 1e300)), 1e-149);
  EXPECT_LE(std::abs(at(bessel_y1, 1e300)), 1e-149);
  EXPECT_EQ(at(modified_bessel_k0, 1e13), 0);
  EXPECT_NEAR(at(scaled_modified_bessel_k1, 1e300) / std::sqrt(1.5707963267948966e-300), 1, 1e-14);
  EXPECT_LE(std::abs(at(airy_ai, -1e100)), 1e-25);
  EXPECT_EQ(at(airy_ai, 1e300), 0);
  EXPECT_EQ(at(erfcx, 1e300), 1 / (1e300 * 1.7724538509055159));
  EXPECT_EQ(at(log_ndtr, -1e300), -kInf);
  EXPECT_LE(std::abs(at(sinc, 1e300)), 1e-300);
  EXPECT_LT(std::abs(at(zeta, 3, -1e15 + 0.5)), 20);
  EXPECT_EQ(at(zeta, 1e300, 2), 0);
  EXPECT_NEAR(at(zeta, 1.5, 1e300) / 2e-150, 1, 1e-14);
  EXPECT_EQ(at(igamma, 1e300, 1e299), 0);
  EXPECT_NEAR(at(igamma, 1e300, 1e300), 0.5, 1e-14);
  EXPECT_EQ(at(igammac, 1e10, 1e300), 0);
  EXPECT_NEAR(at(chebyshev_polynomial_t, 0.5, 1e9), -0.5, 1e-6);  // cos(1e9 pi / 3), 1e9 = 4 modulo 6
  EXPECT_EQ(at(chebyshev_polynomial_u, 1.5, 1e15), kInf);
  EXPECT_LE(std::abs(at(legendre_polynomial_p, 0.5, 1e9)), 1e-4);
  EXPECT_EQ(at(legendre_polynomial_p, -1, 1e9 + 1), -1);
  EXPECT_TRUE(std::isnan(at(hermite_polynomial_h, 0.5, 1e15)));
  EXPECT_TRUE(std::isnan(at(laguerre_polynomial_l, 0.5, 1e15)));
}

TEST(Special, IntegersBecomeFloating) {
  const Tensor x = full({2}, 2, DType::i64), yes = full({2}, true);
  for (const OfOne& p : kOfOne) {
    EXPECT_EQ(p.f(x).dtype(), DType::f32) << p.name;
    EXPECT_EQ(p.f(yes).dtype(), DType::f32) << p.name;
    EXPECT_EQ(p.f(full({2}, 1, DType::bf16)).dtype(), DType::bf16) << p.name;
    EXPECT_EQ(p.f(full({0, 3}, 1, DType::f16)).shape(), (Shape{0, 3})) << p.name;
  }
  for (const OfTwo& p : kOfTwo) EXPECT_EQ(p.f(x, x).dtype(), DType::f32) << p.name;
  EXPECT_EQ(polygamma(1, x).dtype(), DType::f32);
  EXPECT_EQ(polygamma(1, number(2)).dim(), 0);
  EXPECT_EQ(mvlgamma(x, 2).dtype(), DType::f32);
  EXPECT_NEAR(erfcx(x).sum().item(), 2 * 0.25539567631050574, 1e-6);
  EXPECT_NEAR(log_ndtr(x).sum().item(), 2 * -0.02301290932896349, 1e-7);
  EXPECT_NEAR(entr(x).sum().item(), -4 * std::log(2.0), 1e-6);
}

TEST(Special, SmallDtypesAreTheDoubleRounded) {
  const Tensor x = full({3}, 0.7, DType::bf16);
  EXPECT_EQ(lgamma(x).to(DType::f64).sum().item(),
            lgamma(x.to(DType::f64)).to(DType::bf16).to(DType::f64).sum().item());
  const Tensor y = full({3}, 30.0, DType::f16);
  EXPECT_EQ(i0(y).to(DType::f32).select(0, 0).item(), kInf);  // beyond f16
  EXPECT_EQ(i0e(y).select(0, 0).item(), i0e(y.to(DType::f64)).to(DType::f16).select(0, 0).item());
}

TEST(Special, MultivariateGamma) {
  EXPECT_NEAR(mvlgamma(number(3.7), 4).item(), 6.279434831814241, 1e-13);
  EXPECT_THROW(mvlgamma(number(3), 0), ValueError);
  EXPECT_THROW(polygamma(-1, number(3)), ValueError);
}

Tensor wanting(double v) {
  Tensor x = number(v);
  x.set_requires_grad();
  return x;
}

TEST(SpecialGradients, OfIncompleteGammaIsInTheSecondArgument) {
  Tensor x = wanting(1.3);
  igamma(number(2.5), x).backward();
  const double density = std::exp(1.5 * std::log(1.3) - 1.3 - std::lgamma(2.5));
  EXPECT_NEAR(x.grad().item(), density, 1e-14);
  Tensor y = wanting(1.3);
  igammac(number(2.5), y).backward();
  EXPECT_NEAR(y.grad().item(), -density, 1e-14);
  Tensor q = wanting(1.5);
  zeta(number(3), q).backward();
  EXPECT_NEAR(q.grad().item(), -3 * at(zeta, 4, 1.5), 1e-14);
  const Tensor a = wanting(2.5);
  EXPECT_THROW(igamma(a, number(1)).backward(), AutogradError);
  EXPECT_THROW(igammac(a, number(1)).backward(), AutogradError);
  EXPECT_THROW(zeta(a, number(1)).backward(), AutogradError);
}

TEST(SpecialGradients, SecondOnesOfInverses) {
  // (erfinv)'' = 2 y (y')^2 and (ndtri)'' = y (y')^2 at y = f(x).
  Tensor x = wanting(0.4);
  const Tensor first = grad({erfinv(x)}, {x}, {}, true)[0];
  const double y = at(erfinv, 0.4), slope = first.item();
  EXPECT_NEAR(grad({first}, {x})[0].item(), 2 * y * slope * slope, 1e-12);
  Tensor p = wanting(0.9);
  const Tensor of_p = grad({ndtri(p)}, {p}, {}, true)[0];
  EXPECT_NEAR(grad({of_p}, {p})[0].item(), at(ndtri, 0.9) * of_p.item() * of_p.item(), 1e-11);
}

TEST(Special, SlopesOfLogNdtrFarOut) {
  for (const DType type : {DType::f64, DType::f32, DType::f16})
    for (const double v : {-300.0, -30.0, -4.0, -0.5, 0.0, 0.75, 1.5, 4.5, 8.0, 12.5, 13.5, 30.0}) {
      SCOPED_TRACE(cat(type, " ", v));
      Tensor x = full({1}, v, type).set_requires_grad();
      log_ndtr(x).sum().backward();
      // Of the left tail the quotient of two numbers that underflow: x's next terms by hand.
      const long double at = v, below = std::erfc(-at / std::sqrt(2.0L)) / 2;
      const long double want = v < -100 ? -at - 1 / at + 2 / (at * at * at)
                                        : std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0L)) / below;
      const double digits = type == DType::f64 ? 1e-13 : type == DType::f32 ? 1e-6 : 2e-3;
      const double least = type == DType::f64 ? 0 : type == DType::f32 ? 1e-37 : 1e-7;
      EXPECT_NEAR(x.grad().item(), static_cast<double>(want),
                  static_cast<double>(want) * digits * (1 + 0.1 * v * v * (v > 0)) + least);
    }
}

TEST(SpecialGradients, AtEdges) {
  const auto slope = [](Tensor (*f)(const Tensor&), double v) {
    Tensor x = wanting(v);
    f(x).backward();
    return x.grad().item();
  };
  EXPECT_EQ(slope(sinc, 0), 0);
  EXPECT_EQ(slope(i1, 0), 0.5);
  EXPECT_EQ(slope(bessel_j1, 0), 0.5);
  EXPECT_EQ(slope(i0e, 0), 0);
  EXPECT_EQ(slope(log_ndtr, 40), 0);
  EXPECT_NEAR(slope(log_ndtr, -1e4), 1e4, 1e-3);
  EXPECT_TRUE(std::isnan(slope(plain_logit, 1.5)));
  Tensor x = wanting(1.5);
  logit(x, 0.1).backward();
  EXPECT_EQ(x.grad().item(), 0);
}

// Whole vectors, both sides of where the methods change.
TEST(SpecialGradients, OfBesselFunctionsOfOrderOne) {
  struct Slopes {
    double x, j1, i1, i1e;
  };
  const Slopes want[] = {
      {1e-08, 0.5, 0.5, 0.4999999900000001},
      {0.3, 0.48323019229461606, 0.5169807460062877, 0.2706111957432464},
      {1.9, -0.024053584159000847, 1.3655063134986831, -0.012375017324981846},
      {2.1, -0.10400832240945669, 1.6150927442761318, -0.015969183344970488},
      {7.9, 0.1666176170030819, 343.34882200563794, -0.007602141557066247},
      {8.1, 0.11694859392319336, 415.2432846224229, -0.007358099618508835},
      {-30.0, -0.08240961482715278, 756054563192.679, -0.0011675951363651794},
  };
  for (const Slopes& s : want) {
    const auto slope = [&s](Tensor (*f)(const Tensor&)) {
      Tensor x = full({11}, s.x, DType::f64).set_requires_grad();
      f(x).sum().backward();
      return x.grad().to_vector<double>();
    };
    for (const double got : slope(bessel_j1)) EXPECT_NEAR(got, s.j1, 1e-15) << s.x;
    for (const double got : slope(i1)) EXPECT_NEAR(got / s.i1, 1, 4e-15) << s.x;
    for (const double got : slope(i1e)) EXPECT_NEAR(got, s.i1e, 1e-15) << s.x;
  }
}

TEST(SpecialGradients, OfPolynomialsThreeTimes) {
  Tensor x = wanting(0.3), n = number(4);
  Tensor g = legendre_polynomial_p(x, n);  // (35 x^4 - 30 x^2 + 3) / 8
  for (int i = 0; i < 3; ++i) g = grad({g}, {x}, {}, true)[0];
  EXPECT_NEAR(g.item(), 105 * 0.3, 1e-12);
}

}  // namespace
}  // namespace strata
