#pragma once
// A function for each family, with its parameters in order: make(), spelled shorter. Where a family has alternatives
// (probs or logits) these take the first; make("Bernoulli", {{"logits", l}}) takes the others.

#include "strata/distributions/composed.h"

namespace strata::distributions {

/// @name The families, as their records say what they are
/// @{
inline Distribution bernoulli(const Given& probs) {
  return make("Bernoulli", {{"probs", probs}});
}
inline Distribution beta(const Given& concentration1, const Given& concentration0) {
  return make("Beta", {{"concentration1", concentration1}, {"concentration0", concentration0}});
}
inline Distribution binomial(const Given& total_count, const Given& probs) {
  return make("Binomial", {{"total_count", total_count}, {"probs", probs}});
}
inline Distribution categorical(const Given& probs) {
  return make("Categorical", {{"probs", probs}});
}
inline Distribution cauchy(const Given& loc, const Given& scale) {
  return make("Cauchy", {{"loc", loc}, {"scale", scale}});
}
inline Distribution chi2(const Given& df) {
  return make("Chi2", {{"df", df}});
}
inline Distribution continuous_bernoulli(const Given& probs) {
  return make("ContinuousBernoulli", {{"probs", probs}});
}
inline Distribution dirichlet(const Given& concentration) {
  return make("Dirichlet", {{"concentration", concentration}});
}
inline Distribution exponential(const Given& rate) {
  return make("Exponential", {{"rate", rate}});
}
inline Distribution fisher_snedecor(const Given& df1, const Given& df2) {
  return make("FisherSnedecor", {{"df1", df1}, {"df2", df2}});
}
inline Distribution gamma(const Given& concentration, const Given& rate) {
  return make("Gamma", {{"concentration", concentration}, {"rate", rate}});
}
inline Distribution generalized_pareto(const Given& loc, const Given& scale, const Given& concentration) {
  return make("GeneralizedPareto", {{"loc", loc}, {"scale", scale}, {"concentration", concentration}});
}
inline Distribution geometric(const Given& probs) {
  return make("Geometric", {{"probs", probs}});
}
inline Distribution gumbel(const Given& loc, const Given& scale) {
  return make("Gumbel", {{"loc", loc}, {"scale", scale}});
}
inline Distribution half_cauchy(const Given& scale) {
  return make("HalfCauchy", {{"scale", scale}});
}
inline Distribution half_normal(const Given& scale) {
  return make("HalfNormal", {{"scale", scale}});
}
inline Distribution inverse_gamma(const Given& concentration, const Given& rate) {
  return make("InverseGamma", {{"concentration", concentration}, {"rate", rate}});
}
inline Distribution kumaraswamy(const Given& concentration1, const Given& concentration0) {
  return make("Kumaraswamy", {{"concentration1", concentration1}, {"concentration0", concentration0}});
}
inline Distribution lkj_cholesky(const Given& dim, const Given& concentration) {
  return make("LKJCholesky", {{"dim", dim}, {"concentration", concentration}});
}
inline Distribution laplace(const Given& loc, const Given& scale) {
  return make("Laplace", {{"loc", loc}, {"scale", scale}});
}
inline Distribution log_normal(const Given& loc, const Given& scale) {
  return make("LogNormal", {{"loc", loc}, {"scale", scale}});
}
inline Distribution logistic_normal(const Given& loc, const Given& scale) {
  return make("LogisticNormal", {{"loc", loc}, {"scale", scale}});
}
inline Distribution low_rank_multivariate_normal(const Given& loc, const Given& cov_factor, const Given& cov_diag) {
  return make("LowRankMultivariateNormal", {{"loc", loc}, {"cov_factor", cov_factor}, {"cov_diag", cov_diag}});
}
inline Distribution multinomial(const Given& total_count, const Given& probs) {
  return make("Multinomial", {{"total_count", total_count}, {"probs", probs}});
}
inline Distribution multivariate_normal(const Given& loc, const Given& covariance_matrix) {
  return make("MultivariateNormal", {{"loc", loc}, {"covariance_matrix", covariance_matrix}});
}
inline Distribution negative_binomial(const Given& total_count, const Given& probs) {
  return make("NegativeBinomial", {{"total_count", total_count}, {"probs", probs}});
}
inline Distribution normal(const Given& loc, const Given& scale) {
  return make("Normal", {{"loc", loc}, {"scale", scale}});
}
inline Distribution one_hot_categorical(const Given& probs) {
  return make("OneHotCategorical", {{"probs", probs}});
}
inline Distribution one_hot_categorical_straight_through(const Given& probs) {
  return make("OneHotCategoricalStraightThrough", {{"probs", probs}});
}
inline Distribution pareto(const Given& scale, const Given& alpha) {
  return make("Pareto", {{"scale", scale}, {"alpha", alpha}});
}
inline Distribution poisson(const Given& rate) {
  return make("Poisson", {{"rate", rate}});
}
inline Distribution relaxed_bernoulli(const Given& temperature, const Given& probs) {
  return make("RelaxedBernoulli", {{"temperature", temperature}, {"probs", probs}});
}
inline Distribution relaxed_one_hot_categorical(const Given& temperature, const Given& probs) {
  return make("RelaxedOneHotCategorical", {{"temperature", temperature}, {"probs", probs}});
}
inline Distribution student_t(const Given& df, const Given& loc = 0.0, const Given& scale = 1.0) {
  return make("StudentT", {{"df", df}, {"loc", loc}, {"scale", scale}});
}
inline Distribution uniform(const Given& low, const Given& high) {
  return make("Uniform", {{"low", low}, {"high", high}});
}
inline Distribution von_mises(const Given& loc, const Given& concentration) {
  return make("VonMises", {{"loc", loc}, {"concentration", concentration}});
}
inline Distribution weibull(const Given& scale, const Given& concentration) {
  return make("Weibull", {{"scale", scale}, {"concentration", concentration}});
}
inline Distribution wishart(const Given& df, const Given& covariance_matrix) {
  return make("Wishart", {{"df", df}, {"covariance_matrix", covariance_matrix}});
}
/// @}

}  // namespace strata::distributions
