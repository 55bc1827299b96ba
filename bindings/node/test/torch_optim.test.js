'use strict';
// Optimizers and schedulers take the steps that PyTorch's take (torch_optim.json, written by torch_values.py); groups, hooks, states
// and errors of those that are written in JavaScript; means of weights.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const { start, target, optimizers, schedulers } = require('./torch_optim.json');

const { optim } = st;
const tensorOf = ({ data, shape }) => st.tensor(data, { shape });
const targets = target.map(tensorOf);
const lossOf = (params) => {
  const parts = params.map((p, i) => st.square(p.sub(targets[i])).mul(st.arange(p.numel).add(1).reshape(p.shape)).sum());
  return parts[0].add(parts[1]).add(st.sin(params[0].sum().mul(params[1].sum())));
};
const parameters = () => start.map((p) => st.tensor(tensorOf(p), { requiresGrad: true }));
function stepping(optimizer, params) {
  return optimizer.step(() => {
    optimizer.zeroGrad();
    const loss = lossOf(params);
    loss.backward();
    return loss;
  }).item();
}
const near = (got, want, tolerance, where) => assert.ok(Math.abs(got - want) <= tolerance * (1 + Math.abs(want)), `${where}: ${got}, not ${want}`);

for (const { name, options, losses, params: wanted } of optimizers) {
  test(`optim.${name}(${JSON.stringify(options)})`, () => {
    const params = parameters();
    const optimizer = new optim[name](params, options);
    const got = losses.map(() => stepping(optimizer, params));
    near(got[0], losses[0], 1e-5, 'the first loss');
    if (options.lineSearchFn) {
      // Searches differ in the steps that they try; both end in a minimum.
      assert.ok(got[7] <= losses[7] + 1e-3, `${got[7]}, not ${losses[7]}`);
    } else {
      losses.forEach((loss, i) => near(got[i], loss, 2e-3, `loss ${i}`));
      params.forEach((p, k) => p.toTypedArray().forEach((v, i) => near(v, wanted[k].data[i], 2e-3, `parameter ${k}[${i}]`)));
    }
    // A second one goes on from its state, saved and loaded.
    const twins = params.map((p) => st.tensor(p, { requiresGrad: true }));
    const second = new optim[name](twins, options);
    second.loadStateDict(Object.fromEntries(Object.entries(optimizer.stateDict()).map(([key, t]) => [key, t.clone()])));
    for (let i = 0; i < 2; ++i) assert.equal(stepping(second, twins), stepping(optimizer, params));
    assert.deepEqual(twins.map((p) => p.toArray()), params.map((p) => p.toArray()));
    assert.ok(optimizer.stateBytes >= 0 && optimizer.parameters.length === 2);
    assert.deepEqual(Object.keys(second.stateDict()).sort(), Object.keys(optimizer.stateDict()).sort());
  });
}

for (const { name, options, rates } of schedulers) {
  test(`optim.${name}(${JSON.stringify(options)})`, () => {
    const make = () => {
      const optimizer = new optim.SGD([st.zeros([1], { requiresGrad: true })], { lr: 0.1, momentum: 0.6 });
      return [optimizer, new optim[name](optimizer, options)];
    };
    const [optimizer, scheduler] = make();
    rates.forEach(([lr, momentum], i) => {
      if (i > 0) scheduler.step();
      const now = optimizer.paramGroups[0].options;
      near(now.lr, lr, 1e-9, `rate ${i}`);
      near(now.momentum, momentum, 1e-9, `momentum ${i}`);
    });
    const [other, again] = make();
    again.loadStateDict(JSON.parse(JSON.stringify(scheduler.stateDict())));
    assert.deepEqual(other.paramGroups[0].options, optimizer.paramGroups[0].options);
  });
}

test('beta1 is the momentum of Adam; an optimizer without is refused', () => {
  const w = () => [st.zeros([1], { requiresGrad: true })];
  const adam = new optim.Adam(w(), { lr: 0.1 });
  new optim.OneCycleLR(adam, { maxLr: 0.1, totalSteps: 10 });
  assert.equal(adam.paramGroups[0].options.beta1, 0.95);
  assert.throws(() => new optim.OneCycleLR(new optim.Adagrad(w()), { maxLr: 0.1, totalSteps: 10 }), /cycleMomentum: false/);
  const plain = new optim.Adagrad(w());
  new optim.OneCycleLR(plain, { maxLr: 0.25, totalSteps: 10, cycleMomentum: false });
  near(plain.lr, 0.01, 1e-9, 'rate');
  assert.throws(() => new optim.OneCycleLR(adam, { maxLr: 0.1, totalSteps: 2 }).step(3), /past the 2/);
});

test('chained and sequential schedulers', () => {
  const optimizer = new optim.SGD([st.zeros([1], { requiresGrad: true })], { lr: 1 });
  const chained = new optim.ChainedScheduler([new optim.ConstantLR(optimizer, { factor: 0.1, totalIters: 2 }), new optim.ExponentialLR(optimizer, { gamma: 0.5 })]);
  const got = [0, 1, 2, 3].map(() => {
    const { lr } = optimizer;
    chained.step();
    return lr;
  });
  got.forEach((lr, i) => near(lr, [0.1, 0.05, 0.25, 0.125][i], 1e-12, i));
  const other = new optim.SGD([st.zeros([1], { requiresGrad: true })], { lr: 1 });
  const plateau = new optim.ReduceLROnPlateau(other, { patience: 0, factor: 0.5, minLr: 0.3 });
  for (const value of [3, 3, 3, 3]) plateau.step(value);
  near(other.lr, 0.3, 1e-12, 'the least rate');
  const saved = JSON.parse(JSON.stringify(plateau.stateDict()));
  plateau.loadStateDict(saved);
  assert.throws(() => plateau.loadStateDict(null), st.ValueError);
  const exponential = new optim.ExponentialLR(other, { gamma: 0.5 });
  for (const f of [() => new optim.ChainedScheduler([]), () => new optim.ChainedScheduler([exponential, new optim.ExponentialLR(optimizer, { gamma: 0.5 })]),
    () => new optim.ChainedScheduler([plateau]), () => new optim.SequentialLR(other, { schedulers: [exponential], milestones: [1] }),
    () => new optim.SequentialLR(other, { schedulers: [plateau], milestones: [] }), () => new optim.SequentialLR(other), () => new optim.ChainedScheduler(3)]) {
    assert.throws(f, st.ValueError, String(f));
  }
});

test('wrong arguments of schedulers', () => {
  const optimizer = new optim.SGD([st.zeros([1], { requiresGrad: true })], { lr: 1 });
  for (const f of [() => new optim.StepLR({}, { stepSize: 1 }), () => new optim.StepLR(optimizer), () => new optim.StepLR(optimizer, { stepSize: 'x' }),
    () => new optim.StepLR(optimizer, { stepSize: 1, gama: 2 }), () => new optim.LambdaLR(optimizer, { lambda: 3 }), () => new optim.LambdaLR(optimizer, { lambda: [] }),
    () => new optim.MultiStepLR(optimizer, { milestones: ['x'] }), () => new optim.CyclicLR(optimizer, { baseLr: 1 }), () => new optim.CyclicLR(optimizer, 3),
    () => new optim.CyclicLR(optimizer, { baseLr: 0, maxLr: 1, mode: 'square' }), () => new optim.CyclicLR(optimizer, { baseLr: 0, maxLr: 1, stepSizeUp: 0 }),
    () => new optim.CyclicLR(optimizer, { baseLr: 0, maxLr: 1, scaleFn: 3 }), () => new optim.OneCycleLR(optimizer, { totalSteps: 3 }),
    () => new optim.OneCycleLR(optimizer, { maxLr: 1 }), () => new optim.OneCycleLR(optimizer, { maxLr: [1, 2], totalSteps: 3 }),
    () => new optim.SWALR(optimizer), () => new optim.SWALR(optimizer, { swaLr: 1, annealEpochs: -1 }), () => new optim.ReduceLROnPlateau(optimizer, { mode: 'up' }),
    () => new optim.ReduceLROnPlateau(optimizer, { factor: 2 }), () => new optim.ExponentialLR(optimizer, { gamma: 0.5 }).step('x'),
    () => new optim.ExponentialLR(optimizer, { gamma: 0.5 }).loadStateDict(null)]) {
    assert.throws(f, st.ValueError, String(f));
  }
  assert.equal(optimizer.lr, 1);
});

test('groups that are added, hooks, maximize', async () => {
  class Momentum extends optim.RuleOptimizer {
    static defaults = { lr: 0.1, beta: 0.9 };
    static stateTensors = 1;
    static complaint({ beta }) { return beta < 1 ? undefined : `beta must be below 1, got ${beta}`; }
    static update(p, grad, state, { lr, beta }) {
      state.mean ??= st.zerosLike(p);
      state.mean.mul_(beta).add_(grad);
      p.sub_(state.mean, lr);
    }
  }
  assert.throws(() => new Momentum([st.ones([1], { requiresGrad: true })], { beta: 2 }), /Momentum: beta must be below 1, got 2/);
  for (const kind of ['Adam', 'Rprop', 'Momentum']) {
    const [a, b] = [st.ones([2], { requiresGrad: true }), st.ones([2], { requiresGrad: true })];
    const Kind = { ...optim, Momentum }[kind];
    const optimizer = new Kind([['a', a]], { lr: 0.1 });
    a.grad = st.ones([2]);
    optimizer.step();
    const before = optimizer.stateDict();
    optimizer.addParamGroup({ params: [['b', b]], lr: 0.5 });
    assert.deepEqual(optimizer.paramGroups.map((g) => [g.names, g.lr]), [[['a'], 0.1], [['b'], 0.5]]);
    const after = optimizer.stateDict();
    for (const [key, t] of Object.entries(before)) assert.deepEqual(after[key].toArray(), t.toArray(), key);
    b.grad = st.ones([2]);
    const calls = [];
    const pre = optimizer.registerStepPreHook((o) => calls.push(['pre', o === optimizer, b.at(0).item()]));
    optimizer.registerStepPostHook(() => calls.push(['post', b.at(0).item() < 1]));
    optimizer.step();
    pre.remove();
    await optimizer.stepAsync();
    assert.deepEqual(calls, [['pre', true, 1], ['post', true], ['post', true]]);
    for (const f of [() => optimizer.addParamGroup({ params: [['a', a]] }), () => optimizer.addParamGroup([a]), () => optimizer.addParamGroup({ params: [] , rate: 1 }),
      () => optimizer.registerStepPreHook(3), () => optimizer.step({ maxnorm: 1 }), () => optimizer.zeroGrad({ none: 1 }), () => optimizer.loadStateDict(null)]) {
      assert.throws(f, st.StrataError, `${kind}: ${f}`);
    }
    assert.equal(optimizer.paramGroups.length, 2);
  }
  const up = st.zeros([3], { requiresGrad: true });
  const climbing = new optim.SGD([up], { lr: 1, maximize: true });
  up.grad = st.full([3], 2);
  assert.ok(Math.abs(climbing.step({ maxNorm: Math.sqrt(3) }) - 2 * Math.sqrt(3)) < 1e-6);
  up.toArray().forEach((v) => near(v, 1, 1e-5, 'a step upwards'));
  up.grad = st.full([3], Infinity);
  assert.equal(climbing.step({ maxNorm: 1 }), Infinity);
  assert.equal(climbing.paramGroups[0].options.maximize, true);
  assert.throws(() => climbing.stepGuarded(), /maximize/);
  assert.throws(() => new optim.SGD([{ params: [up], maximize: true }, { params: [st.ones([1], { requiresGrad: true })] }], { lr: 1 }), /same in all groups/);
  assert.throws(() => new optim.Adam([up], { maximize: 1 }), st.ValueError);
});

test('optimizers of one\'s own', () => {
  class Signs extends optim.RuleOptimizer {
    static defaults = { lr: 0.5, decay: 0 };
    static numbers = ['count'];
    static update(p, grad, state, { lr, decay }) {
      state.count = (state.count ?? 0) + 1;
      p.mul_(1 - decay).sub_(st.sign(grad).mul(lr / state.count));
    }
  }
  const w = st.tensor([1, -1], { requiresGrad: true });
  const optimizer = new Signs([w]);
  assert.deepEqual(optimizer.paramGroups[0].options, { lr: 0.5, decay: 0, maximize: false });
  w.grad = st.tensor([3, -0.1]);
  optimizer.step();
  optimizer.step();
  assert.deepEqual(w.toArray(), [0.25, -0.25]);
  assert.equal(optimizer.stateDict()['0.count'].item(), 2);
  optimizer.paramGroups[0].set({ decay: 1 });
  assert.deepEqual(optimizer.stepGuarded({ loss: st.tensor(2) }), { loss: 2, norm: optim.gradNorm([w]), scale: 1, outcome: 'updated' });
  w.grad = st.tensor([NaN, 1]);
  assert.equal(optimizer.stepGuarded().outcome, 'diverged');
  w.grad = st.tensor([1, 1]);
  assert.equal(optimizer.stepGuarded().outcome, 'diverged');
  optimizer.resetGuard();
  assert.equal(optimizer.stepGuarded().outcome, 'updated');
  optimizer.lr = 2;
  assert.equal(optimizer.paramGroups[0].lr, 2);
  optimizer.zeroGrad({ setToNone: false });
  assert.equal(w.grad.sum().item(), 0);
  optimizer.zeroGrad();
  assert.equal(w.grad, null);
  for (const f of [() => new optim.RuleOptimizer([w]).step(() => { w.grad = st.ones([2]); }), () => new Signs([w], { lr: 'x' }), () => new Signs([w], { lr: -1 }),
    () => new Signs([w], { rate: 1 }), () => new Signs([w, w]), () => new Signs([w.mul(2)]), () => new Signs([st.tensor([1n])]), () => new Signs([]),
    () => optimizer.stepGuarded({ scaler: new optim.LossScaler() }), () => optimizer.loadStateDict({ 'x.count': st.ones([1]) }),
    () => optimizer.loadStateDict({ '0.count': st.ones([2]) }), () => optimizer.loadStateDict({ '0.count': 3 }), () => new optim.Rprop([w], { etaPlus: 0.5 }),
    () => new optim.Rprop([w], { stepSizeMin: 3, stepSizeMax: 1 })]) {
    assert.throws(f, st.StrataError, String(f));
  }
});

test('L-BFGS: what it refuses', async () => {
  const w = st.tensor([1, -1], { requiresGrad: true });
  const optimizer = new optim.LBFGS([w]);
  assert.throws(() => optimizer.step(), /wants a function/);
  assert.throws(() => optimizer.step({ maxNorm: 1 }), st.ValueError);
  await assert.rejects(optimizer.stepAsync(), st.ValueError);
  for (const f of [() => new optim.LBFGS([{ params: [w] }, { params: [st.ones([1], { requiresGrad: true })] }]), () => new optim.LBFGS([w], { lineSearchFn: 'armijo' }),
    () => new optim.LBFGS([w], { maxIter: 'x' }), () => optimizer.step(() => 'x'), () => optimizer.stepGuarded(), () => optimizer.loadStateDict({ d: st.ones([3]) }),
    () => optimizer.loadStateDict({ 'steps.0': st.ones([2]) }), () => optimizer.loadStateDict({ 'steps.x': st.ones([2]) }), () => optimizer.loadStateDict({ other: st.ones([2]) }),
    () => optimizer.addParamGroup({ params: [st.ones([1], { requiresGrad: true })] })]) {
    assert.throws(f, st.StrataError, String(f));
  }
  // What a closure throws comes out, and the next step goes on.
  assert.throws(() => optimizer.step(() => { throw new RangeError('mine'); }), RangeError);
  const step = () => optimizer.step(() => {
    optimizer.zeroGrad();
    const loss = st.square(w.sub(3)).sum();
    loss.backward();
    return loss;
  });
  for (let i = 0; i < 5; ++i) step();
  w.toArray().forEach((v) => near(v, 3, 1e-4, 'the minimum'));
  assert.equal(st.isGradEnabled(), true);
});

test('means of weights, and batch norms after them', async () => {
  const make = () => new st.nn.Sequential(new st.nn.Linear(2, 2, { bias: false }), new st.nn.BatchNorm1d(2));
  const model = make();
  const mean = new optim.AveragedModel(make());
  const ema = new optim.AveragedModel(make(), { average: optim.emaAverage(0.5), useBuffers: true });
  for (const value of [1, 2, 6]) {
    st.noGrad(() => {
      model[0].weight.fill_(value);
      model[1].running_mean.fill_(value);
    });
    mean.updateParameters(model);
    ema.updateParameters(model);
  }
  assert.equal(mean.module[0].weight.at(0, 0).item(), 3);
  assert.equal(mean.module[1].running_mean.at(0).item(), 6);
  assert.equal(ema.module[0].weight.at(0, 0).item(), 3.75);
  // One op, rounded once, in the mean's dtype.
  for (const dtype of ['f64', 'f32', 'bf16']) {
    const [a, b] = [st.tensor([1, -3], { dtype }), st.tensor([2.5, 7], { dtype })];
    assert.deepEqual(optim.emaAverage(0.9)(a, b, 4).toArray(), st.lerp(a, b, 1 - 0.9).toArray(), dtype);
    assert.deepEqual(optim.swaAverage()(a, b, 4).toArray(), st.lerp(a, b, 0.2).toArray(), dtype);
  }
  near(optim.emaAverage(0.999)(st.tensor([1], { dtype: 'f64' }), st.tensor([2], { dtype: 'f64' }), 1).item(), 1.001, 1e-15, 'the mean');
  assert.equal(ema.module[1].running_mean.at(0).item(), 3.75);
  assert.equal(mean.stateDict().n_averaged.item(), 3n);
  assert.deepEqual(mean.forward(st.ones([3, 2])).shape, [3, 2]);
  const batches = [st.randn([8, 2]), [st.randn([8, 2]), st.ones([1])]];
  mean.module.eval();
  await optim.updateBn(batches, mean.module);
  assert.ok(!mean.module.training && mean.module[1].momentum === 0.1 && mean.module[1].num_batches_tracked.item() === 2n);
  const inputs = batches.map((b) => [b].flat()[0].matmul(mean.module[0].weight.t()));
  const wanted = inputs[0].mean([0]).add(inputs[1].mean([0])).mul(0.5);
  assert.ok(st.isclose(mean.module[1].running_mean, wanted, { rtol: 1e-4, atol: 1e-5 }).all().item());
  for (const f of [() => new optim.AveragedModel(3), () => new optim.AveragedModel(make(), { average: 3 }), () => mean.updateParameters(mean.module),
    () => mean.updateParameters(new st.nn.Linear(2, 2)), () => optim.emaAverage(2)]) assert.throws(f, st.StrataError, String(f));
  await assert.rejects(optim.updateBn(3, model), st.ValueError);
  await assert.rejects(optim.updateBn(['x'], model), st.ValueError);
  assert.equal(model[1].momentum, 0.1);
});

test('ASGD hears of another rate one update later, also after loadStateDict()', () => {
  const [lambd, alpha] = [0.2, 0.6];
  const p = st.tensor([1, -2], { dtype: 'f64', requiresGrad: true });
  const make = () => new optim.ASGD([p], { lr: 0.1, lambd, alpha });
  let optimizer = make();
  let [want, eta] = [[1, -2], 0.1];
  [0.1, 0.3, 0.05, 0.2].forEach((lr, i) => {
    optimizer.lr = lr;
    p.grad = st.tensor([0.5, 1], { dtype: 'f64' });
    optimizer.step();
    want = want.map((x, k) => (1 - lambd * eta) * x - eta * [0.5, 1][k]);
    eta = lr / (1 + lambd * lr * (i + 1)) ** alpha;
    const state = optimizer.stateDict();
    assert.deepEqual(Object.keys(state).sort(), ['0.ax', '0.eta', '0.step']);
    near(state['0.eta'].item(), eta, 1e-15, 'eta');
    optimizer = make();
    optimizer.loadStateDict(state);
  });
  p.toArray().forEach((x, k) => near(x, want[k], 1e-12, `parameter ${k}`));
});
