'use strict';
// st.graphed: what it takes and gives, on whatever device there is; on a card beside the same steps op by op.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('..');

const skip = st.cuda.isAvailable() ? false : `no card: ${st.cuda.unavailableReason()}`;
const device = skip ? 'cpu' : 'cuda';

function train(asGraph) {
  st.manualSeed(5);
  const net = new st.nn.Sequential(new st.nn.Linear(8, 32), st.tanh, new st.nn.Dropout(0.25), new st.nn.Linear(32, 1)).to(device);
  const optimizer = new st.optim.AdamW(net, { lr: 0.01 });
  const step = ({ x, y }, [scale]) => {
    const loss = st.mse_loss(net.forward(x), y).mul(scale);
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return { loss, more: [scale, null] };
  };
  const run = asGraph ? st.graphed(step) : step;
  const losses = [];
  for (let i = 0; i < 20; ++i) {
    optimizer.lr = 0.01 / (1 + i);
    const x = st.randn([i % 2 ? 6 : 16, 8]).to(device);
    const { loss, more } = run({ x, y: x.sum([1], { keepdim: true }) }, [2]);
    assert.deepEqual(more, [2, null]);
    losses.push(loss);
  }
  if (asGraph && !skip) assert.deepEqual([run.captures, run.replays, run.graphs], [2, 16, 2]);
  return [losses.map((l) => l.item()), [...net.parameters()].map((p) => [...p.detach().toTypedArray()])];
}

test('a training step has the bits of eager', () => {
  assert.deepEqual(train(true), train(false));
});

test('arguments, results and refusals', () => {
  const step = st.graphed((x, how) => (how === 'twice' ? x.mul(2) : [x, how]));
  const x = st.ones([3], { device });
  for (let i = 0; i < 4; ++i) {
    assert.deepEqual([...step(x, 'twice').toTypedArray()], [2, 2, 2]);
    assert.equal(step(x, { a: [1n, undefined] })[1].a[0], 1n);
  }
  assert.throws(() => step(x, new Map()), /an argument of type Map/);
  assert.throws(() => step(st.ones([2], { device, requiresGrad: true }), ''), st.AutogradError);
  assert.throws(() => st.graphed(3), st.ValueError);
  assert.throws(() => st.graphed(() => 0, { warm: 2 }), /no option 'warm'/);
  assert.throws(() => st.graphed(() => 0, { most: 0 }), st.ValueError);
  assert.throws(() => st.graphed(() => { throw new TypeError('mine'); })(), /mine/);
  assert.throws(() => st.graphed(() => Promise.resolve(1))(), /must not be async/);
  assert.equal(st.graphed(() => undefined)(), undefined);
  step.clear();
  assert.equal(step.graphs, 0);
  assert.equal(step.note, '');
});

test('what cannot be captured is refused', { skip }, () => {
  const x = st.ones([3], { device });
  const step = st.graphed((t) => t.sum().item());
  assert.equal(step(x), 3);
  assert.throws(() => step(x), (e) => e instanceof st.DeviceError && /item\(\).*Nothing of this call was run/.test(e.message));
  const anyway = st.graphed((t) => t.sum().item(), { fallback: true });
  for (let i = 0; i < 3; ++i) assert.equal(anyway(x), 3);
  assert.notEqual(anyway.note, '');
  assert.equal(st.cuda.isCurrentStreamCapturing(), false);
});
