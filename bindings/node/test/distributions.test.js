'use strict';
// Distributions: a class of each record, checked against closed forms; Python's and C++'s tests check the records.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const native = require('../lib/native.js');

const D = st.distributions;
const near = (x, wanted, tolerance = 1e-5) => assert.ok(Math.abs((typeof x === 'number' ? x : x.item()) - wanted) <= tolerance, `${x} is not ${wanted}`);
const allclose = (a, b, rtol, atol = rtol) => st.isclose(a, b, rtol, atol).all().item();
const f64 = (data) => st.tensor(data, { dtype: 'f64' });

test('every record is a class', () => {
  const { distributions } = JSON.parse(native.distributionRecords());
  assert.ok(distributions.length >= 38);
  for (const r of distributions) {
    assert.equal(D[r.name].name, r.name);
    assert.ok(D[r.name].prototype instanceof D.Distribution);
  }
  assert.ok(D.Chi2.prototype instanceof D.Gamma);
});

test('parameters by position and by name, numbers and tensors', () => {
  const d = new D.Normal(f64([0, 1]), 2);
  assert.deepEqual([d.batchShape, d.eventShape], [[2], []]);
  assert.deepEqual(d.scale.toArray(), [2, 2]);
  assert.deepEqual(new D.Normal({ loc: f64([0, 1]), scale: 2 }).loc.toArray(), [0, 1]);
  assert.deepEqual(new D.Normal(f64([0, 1]), { scale: 2 }).loc.toArray(), [0, 1]);
  near(new D.Bernoulli({ logits: 0 }).probs, 0.5);
  assert.equal(new D.Multinomial({ totalCount: 4, probs: st.ones([3]) }).totalCount, 4);
  assert.equal(new D.Multinomial({ totalCount: 4, probs: st.ones([3]) }).sample().sum().item(), 4);
  assert.equal(String(d), 'Normal(batchShape=[2], eventShape=[])');
  assert.throws(() => new D.Normal(0), (e) => e instanceof st.ValueError && /Normal.*scale is missing/.test(e.message));
  assert.throws(() => new D.Normal({ mean: 0 }), /no parameter 'mean'; there are loc, scale/);
  assert.throws(() => new D.Normal(0, 1, 2), /at most 2 parameters/);
  assert.throws(() => new D.Normal(0, { loc: 1, scale: 1 }), /loc is given twice/);
  assert.throws(() => new D.Normal(0, -1), /parameter scale .* GreaterThan/);
  assert.throws(() => new D.Bernoulli(), /not both/);
  assert.equal(new D.Normal({ loc: 0, scale: -1, validateArgs: false }).scale.item(), -1);
  assert.throws(() => new D.Distribution(), /make one of a family/);
});

test('a pair of numbers', () => {
  const d = new D.ContinuousBernoulli({ probs: st.tensor([0.45, 0.3]), lims: [0.4, 0.6] });
  const [first, second] = d.logProb(st.tensor([0.2, 0.2])).toArray();
  assert.ok(Math.abs(first - 0.05852381848967225) < 1e-6 && Math.abs(second - 0.2244532348642858) < 1e-6);
  assert.deepEqual(new D.ContinuousBernoulli(0.3).lims.toArray().map((v) => Math.fround(v)), [0.499, 0.501].map(Math.fround));
  assert.throws(() => new D.ContinuousBernoulli({ probs: 0.3, lims: [0.4] }), st.ShapeError);
  assert.throws(() => new D.ContinuousBernoulli({ probs: 0.3, lims: ['x', 1] }), st.ValueError);
});

test('what a distribution can be asked for', () => {
  const d = new D.Normal(f64(0.5), 2);
  near(d.logProb(f64(1)), -0.5 * 0.0625 - Math.log(2) - 0.5 * Math.log(2 * Math.PI), 1e-12);
  near(d.cdf(d.icdf(f64(0.3))), 0.3, 1e-9);
  near(d.entropy(), 0.5 + 0.5 * Math.log(2 * Math.PI) + Math.log(2), 1e-12);
  near(d.perplexity(), Math.exp(d.entropy().item()), 1e-9);
  assert.deepEqual([d.mean.item(), d.mode.item(), d.variance.item(), d.stddev.item()], [0.5, 0.5, 4, 2]);
  assert.equal(d.support.kind, 'real');
  assert.equal(new D.Uniform(0, 3).support.upper.item(), 3);
  assert.equal(new D.Gamma(1, 1).support.lower, 0);
  assert.deepEqual(new D.Binomial(2, 0.3).enumerateSupport().toArray(), [0, 1, 2]);
  assert.deepEqual(new D.Categorical(st.ones([2, 3])).enumerateSupport(false).shape, [3, 1]);
  const larger = d.expand([3, 1]);
  assert.ok(larger instanceof D.Normal);
  assert.deepEqual(larger.sample(2).shape, [2, 3, 1]);
  assert.ok(new D.Chi2(3).expand([2]) instanceof D.Chi2);
  assert.throws(() => new D.Poisson(1).rsample(), /Poisson has no rsample/);
  assert.throws(() => new D.Gamma(1, 1).logProb(st.tensor(-1)), /within the support/);
});

test('samples follow the seed, and carry gradients', () => {
  const loc = st.zeros([3], { requiresGrad: true });
  const d = new D.Normal(loc, 1);
  st.manualSeed(4);
  const first = d.sample([5]).toArray();
  st.manualSeed(4);
  assert.deepEqual(d.sample([5]).toArray(), first);
  assert.equal(d.sample().requiresGrad, false);
  d.rsample([4]).sum().backward();
  assert.deepEqual(loc.grad.toArray(), [4, 4, 4]);
  st.manualSeed(5);
  near(new D.VonMises(f64(1), 4).sample([20000]).mean(), 1, 0.02);
});

test('divergences, events and mixtures', () => {
  near(D.klDivergence(new D.Normal(f64(0), 1), new D.Normal(f64(1), 1)), 0.5, 1e-12);
  assert.throws(() => D.klDivergence(new D.Normal(0, 1), new D.Bernoulli(0.5)), /No KL/);
  assert.throws(() => D.klDivergence(3, new D.Bernoulli(0.5)), /needs a distribution/);
  const rows = new D.Independent(new D.Normal(st.zeros([4, 3]), 1), 1);
  assert.deepEqual([rows.batchShape, rows.eventShape, rows.logProb(rows.sample()).shape], [[4], [3], [4]]);
  assert.deepEqual(rows.expand([2, 4]).sample().shape, [2, 4, 3]);
  const mixed = new D.MixtureSameFamily(new D.Categorical(f64([0.3, 0.7])), new D.Normal(f64([-1, 2]), 0.5));
  near(mixed.mean, 1.1, 1e-12);
  assert.deepEqual(mixed.sample([6]).shape, [6]);
  assert.throws(() => new D.MixtureSameFamily(new D.Categorical(f64([1, 1, 1])), new D.Normal(f64([-1, 2]), 0.5)), /does not equal/);
});

test('transforms, and distributions of transformed values', () => {
  const x = f64([0.3, -0.7]);
  for (const t of [new D.ExpTransform(), new D.TanhTransform(), new D.SigmoidTransform(), new D.AffineTransform(1, -2), new D.SoftplusTransform(),
    new D.ComposeTransform([new D.AffineTransform(1, 2), new D.ExpTransform()]), new D.ExpTransform().inv.inv]) {
    const y = t.forward(x);
    assert.ok(allclose(t.inverse(y), x, 1e-9) && allclose(t.inv.forward(y), x, 1e-9));
    const slope = t.forward(x.add(1e-6)).sub(t.forward(x.sub(1e-6))).div(2e-6);
    assert.ok(allclose(t.logAbsDetJacobian(x, y), slope.abs().log(), 1e-6, 1e-7));
    assert.equal(t.sign, Math.sign(slope.at(0).item()));
    assert.ok(t.bijective && t.domain.kind === 'real');
  }
  const sticks = new D.StickBreakingTransform();
  assert.deepEqual([sticks.forwardShape([4, 2]), sticks.inverseShape([4, 3]), sticks.codomain.kind], [[4, 3], [4, 2], 'simplex']);
  assert.deepEqual(new D.ReshapeTransform([2], [2, 1]).forward(x).shape, [2, 1]);
  assert.deepEqual(new D.IndependentTransform(new D.ExpTransform(), 1).logAbsDetJacobian(x, x).shape, []);
  near(new D.CatTransform([new D.ExpTransform(), new D.AbsTransform()]).forward(x).at(1), 0.7, 1e-12);
  near(new D.StackTransform([new D.ExpTransform(), new D.AbsTransform()]).forward(x).at(1), 0.7, 1e-12);
  near(new D.CumulativeDistributionTransform(new D.Uniform(-1, 1)).forward(x).at(0), 0.65, 1e-12);
  const d = new D.TransformedDistribution(new D.Normal(f64([0, 1]), 1), [new D.ExpTransform()]);
  assert.ok(allclose(d.logProb(f64([1, 2])), new D.LogNormal(f64([0, 1]), 1).logProb(f64([1, 2])), 1e-9));
  assert.deepEqual(d.expand([3, 2]).rsample().shape, [3, 2]);
  assert.throws(() => new D.AbsTransform().sign, /no sign/);
  assert.throws(() => new D.AffineTransform(1), /scale is missing/);
  assert.throws(() => new D.TransformedDistribution(d, [3]), /needs a transform/);
  assert.throws(() => new D.Transform(), /make one of the others/);
});
