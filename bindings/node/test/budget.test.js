'use strict';
// st.memoryBudget: loops within a budget have the bits of those without, in the memory that was given.

const test = require('node:test');
const assert = require('node:assert/strict');
const v8 = require('node:v8');
const vm = require('node:vm');
const fs = require('node:fs');
const st = require('../lib/index.js');
const { temporary } = require('./child.js');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');
const folder = temporary();  // one for all: how fast its disk is is measured once

class Perceptron extends st.nn.Module {
  first = new st.nn.Linear(256, 1024);
  drop = new st.nn.Dropout(0.1);
  hidden = new st.nn.ModuleList(Array.from({ length: 4 }, () => new st.nn.Linear(1024, 1024)));
  last = new st.nn.Linear(1024, 16);
  forward(x) {
    x = this.drop.forward(st.relu(this.first.forward(x)));
    for (const layer of this.hidden) x = st.gelu(layer.forward(x));
    return this.last.forward(x);
  }
}
const kinds = {
  perceptron: [() => new Perceptron(), () => st.randn([1024, 256])],
  sequential: [() => new st.nn.Sequential(new st.nn.Linear(64, 512), st.gelu, ...Array.from({ length: 4 }, () => new st.nn.Linear(512, 512)),
    st.tanh, new st.nn.Linear(512, 8)), () => st.randn([2048, 64])],
};
const lossOf = (net, x) => st.mean(st.square(net.forward(x)));
const bits = (t) => Buffer.from(t.detach().to({ tier: 'own' }).toTypedArray().buffer);

/** Losses, then weights and state; the most that tensors took; the budget's object. */
function loop(kind, budget, { steps = 4, passes = 1, optimizer = (net) => new st.optim.AdamW(net, { lr: 1e-3 }), step = (o) => o.step() } = {}) {
  gc();
  st.manualSeed(1);
  const [make, batch] = kinds[kind];
  const net = make();
  const opt = optimizer(net);
  st.resetPeakMemoryStats();
  const seen = [];
  const run = () => {
    for (let i = 0; i < steps; ++i) {
      opt.zeroGrad();
      for (let k = 0; k < passes; ++k) {
        const loss = lossOf(net, batch());
        loss.backward();
        seen.push(bits(loss));
      }
      step(opt);
      st.noGrad(() => seen.push(bits(lossOf(net, batch()))));
    }
  };
  let plan = null;
  let peak;
  if (budget) {
    st.memoryBudget(net, opt, budget, (b) => { plan = b; run(); });
    peak = plan.peak;
  } else {
    run();
    peak = st.memoryStats().peak;
  }
  for (const [, t] of net.namedParameters()) {
    assert.equal(t.tier, 'host');
    seen.push(bits(t));
  }
  for (const [name, t] of Object.entries(opt.stateDict())) seen.push(name, bits(t));
  return { seen, peak, plan };
}
function expectSame(kind, budget, options) {
  const plain = loop(kind, null, options);
  const kept = loop(kind, budget, options);
  assert.equal(kept.seen.length, plain.seen.length);
  kept.seen.forEach((v, i) => assert.deepEqual(v, plain.seen[i], `${i}\n${kept.plan.describe()}`));
  return { ...kept, without: plain.peak };
}

for (const kind of Object.keys(kinds)) {
  test(`a ${kind} within less than its loop takes has its bits`, () => {
    // What a loop takes depends on when garbage is collected: what the engine says that it needs does not.
    const { plan: wide } = loop(kind, { device: '4GiB', disk: folder });
    const device = Math.floor((kind === 'perceptron' ? 0.65 : 0.8) * wide.plan.peakWithout);
    const { plan } = expectSame(kind, { device, disk: folder });
    assert.ok(plan.planned && plan.plan.fits, plan.describe());
    assert.ok(plan.peak <= device, `${plan.peak} of ${device}\n${plan.describe()}`);
    assert.ok(plan.plan.peakDevice < plan.plan.peakWithout);
    assert.match(plan.describe(), /^device +\S+ \S+ of /m);
  });
}

test('each key by itself, several passes, clipped and guarded steps', () => {
  const { plan } = expectSame('perceptron', { disk: [folder], state: 'disk', parameters: 'disk' }, { passes: 2 });
  assert.equal(plan.plan.weights, 'disk');
  assert.equal(plan.plan.state, 'disk');
  assert.equal(expectSame('perceptron', { disk: folder, activations: 'disk' }).plan.plan.activations, 'disk');
  assert.ok(expectSame('perceptron', { recompute: 'blocks' }, { step: (o) => o.step({ maxNorm: 0.5 }) }).plan.plan.recomputed > 0);
  expectSame('perceptron', { disk: folder, state: 'disk' }, { step: (o) => o.stepGuarded({ maxNorm: 0.5 }) });
  assert.ok(fs.readdirSync(folder).length === 0, 'files have no names');
});

test('a closure that makes the gradients, a rule written in JavaScript', () => {
  class Signs extends st.optim.RuleOptimizer {
    static defaults = { lr: 0.01 };
    static update(p, grad, state, { lr }) { p.sub_(st.sign(grad).mul(lr)); }
  }
  const rule = { optimizer: (net) => new Signs(net) };
  expectSame('sequential', { disk: folder, activations: 'disk' }, rule);
  assert.throws(() => loop('sequential', { disk: folder, state: 'disk' }, rule), /its state cannot live on disk/);
  const train = (budget) => {
    st.manualSeed(4);
    const net = new st.nn.Linear(16, 4);
    const opt = new st.optim.SGD(net, { lr: 0.1 });
    const x = st.randn([8, 16]);
    const run = () => Array.from({ length: 4 }, () => opt.step(() => {
      opt.zeroGrad();
      const loss = lossOf(net, x);
      loss.backward();
      return loss.item();
    }));
    return budget ? st.memoryBudget(net, opt, budget, run) : run();
  };
  assert.deepEqual(train({ device: '64MiB', disk: folder }), train(null));
});

test('a loop that awaits its batches ends the budget with its promise', async () => {
  const train = async (budget) => {
    st.manualSeed(2);
    const net = new Perceptron();
    const opt = new st.optim.AdamW(net, { lr: 1e-3 });
    const run = async () => {
      const losses = [];
      for (let i = 0; i < 4; ++i) {
        await new Promise((resolve) => { setImmediate(resolve); });
        opt.zeroGrad();
        const loss = lossOf(net, st.randn([64, 256]));
        loss.backward();
        opt.step();
        losses.push(loss.item());
      }
      return losses;
    };
    const losses = await (budget ? st.memoryBudget(net, opt, budget, run) : run());
    opt.loadStateDict(opt.stateDict());  // it has ended
    return losses;
  };
  assert.deepEqual(await train({ disk: folder, state: 'disk', parameters: 'disk' }), await train(null));
});

test('a budget that cannot be kept names one, and leaves everything usable', async () => {
  const net = new Perceptron();
  const opt = new st.optim.AdamW(net);
  const memory = (pattern) => (e) => e instanceof st.MemoryError && pattern.test(e.message);
  assert.throws(() => st.memoryBudget(net, opt, { device: '1MiB' }, () => {}),
    memory(/before the loop begins, more than the budget of 1\.00 MiB; it needs/));
  const once = () => {
    lossOf(net, st.randn([1024, 256])).backward();
    opt.step();
  };
  const told = /the budget of 12\.00 MiB was not enough: .* device = "\d+MiB" is the least to try/;
  assert.throws(() => st.memoryBudget(net, opt, { device: '12MiB', disk: folder }, once), memory(told));
  await assert.rejects(st.memoryBudget(net, opt, { device: '12MiB', disk: folder }, async () => once()), memory(told));
  const mine = new RangeError('mine');
  assert.throws(() => st.memoryBudget(net, opt, { device: '60MiB', disk: folder }, () => { throw mine; }), (e) => e === mine);
  assert.equal(st.setMemoryLimit(0), 0);  // the bound is lifted
  once();
  assert.ok(net.parameters().every((p) => p.tier === 'host'));
});

test('garbage does not count', () => {
  gc();
  const net = new st.nn.Linear(64, 64);
  const opt = new st.optim.SGD(net, { lr: 0.1 });
  const device = st.memoryStats().live + (24 << 20);
  const peak = st.memoryBudget(net, opt, { device }, (budget) => {
    for (let i = 0; i < 20; ++i) {
      st.zeros([2 << 20]);  // 8 MiB each, dropped at once
      lossOf(net, st.ones([8, 64])).backward();
      opt.step();
    }
    return budget.peak;
  });
  assert.ok(peak <= device);
});

test('what makes no sense', async () => {
  const net = new Perceptron();
  const opt = new st.optim.AdamW(net);
  const fn = () => {};
  for (const [options, pattern] of [[{ device: 'much' }, /memory\.device/], [{ activations: 'disk' }, /memory\.disk/], [{ host: '1GiB' }, /beside a card/],
    [{ devices: '1GiB' }, /no option 'devices'/], [{ device: 0.5 }, /device must be a string or whole number/], [{ state: 3 }, /state must be a string/],
    [{ state: 'moon' }, /not one of/]]) {
    assert.throws(() => st.memoryBudget(net, opt, options, fn), (e) => e instanceof st.ValueError && pattern.test(e.message));
  }
  assert.throws(() => st.memoryBudget(3, opt, {}, fn), /the model must be a Module/);
  assert.throws(() => st.memoryBudget(net, null, {}, fn), /the optimizer must be one of st\.optim/);
  assert.throws(() => st.memoryBudget(net, opt, {}), /needs a function/);
  assert.throws(() => st.memoryBudget(net, new st.optim.LBFGS(net), {}, fn), /LBFGS computes losses within its step\(\)/);
  assert.throws(() => st.memoryBudget(new st.nn.ReLU(), opt, {}, fn), /no parameters/);
  await st.memoryBudget(net, opt, { device: '200MiB', disk: folder }, async () => {
    assert.throws(() => st.memoryBudget(net, opt, {}, fn), /within one already/);
    assert.throws(() => st.memoryBudget(net, new st.optim.SGD(net, { lr: 1 }), { device: '200MiB' }, fn), /one scope at a time/);
    assert.throws(() => opt.loadStateDict(opt.stateDict()), /within st\.memoryBudget/);
    assert.throws(() => opt.addParamGroup({ params: [st.zeros([2], { requiresGrad: true })] }), /within st\.memoryBudget/);
    await assert.rejects(opt.stepAsync(), /within st\.memoryBudget/);
  });
  opt.loadStateDict(opt.stateDict());
});
