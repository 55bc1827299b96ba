'use strict';
// CUDA tensors; skipped with the reason where there is no card.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

const skip = st.cuda.isAvailable() ? false : `no card: ${st.cuda.unavailableReason()}`;

test('tensors go to the card and come back', { skip }, () => {
  const x = st.tensor([[1, 2], [3, 4]], { device: 'cuda' });
  assert.equal(x.device, 'cuda:0');
  assert.deepEqual(st.matmul(x, x).toArray(), [[7, 10], [15, 22]]);
  assert.deepEqual(Array.from(x.toTypedArray()), [1, 2, 3, 4]);
  assert.throws(() => x.data(), st.DeviceError);
  assert.throws(() => st.add(x, st.ones([2, 2])), st.DeviceError);
  assert.deepEqual(x.mul(2).cpu().data()[3], 8);
  assert.equal(st.zeros([2], { device: 'cuda:0' }).device, 'cuda:0');
});

test('promises are settled when the card is done', { skip }, async () => {
  const x = st.randn([1024, 1024]).cuda();
  const results = await Promise.all(Array.from({ length: 8 }, () => st.async.matmul(x, x)));
  const want = st.matmul(x, x).cpu().toTypedArray();
  for (const r of results) assert.deepEqual(r.toTypedArray(), want);
});

test('a network learns on the card', { skip }, async () => {
  st.manualSeed(1);
  const net = new st.nn.Sequential(new st.nn.Linear(2, 16), st.tanh, new st.nn.Linear(16, 1)).to('cuda');
  const optimizer = new st.optim.AdamW(net, { lr: 0.05 });
  const x = st.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], { device: 'cuda' });
  const y = st.tensor([[0], [1], [1], [0]], { device: 'cuda' });
  let seen = 0;
  net[0].weight.registerHook((g) => { ++seen; assert.equal(g.device, 'cuda:0'); });
  for (let i = 0; i < 200; ++i) {
    optimizer.zeroGrad();
    await st.mse_loss(net.forward(x), y).backwardAsync();
    await optimizer.stepAsync();
  }
  assert.equal(seen, 200);
  assert.ok(st.mse_loss(net.forward(x), y).item() < 0.01);
});

test('without a card the reason is said', { skip: st.cuda.isAvailable() ? 'there is a card' : false }, () => {
  assert.equal(st.cuda.deviceCount(), 0);
  assert.ok(st.cuda.unavailableReason().length > 0);
  assert.throws(() => st.ones([2]).cuda(), st.DeviceError);
  assert.throws(() => st.cuda.synchronize(), st.DeviceError);
});
