'use strict';
// Calls off the event loop: the loop turns meanwhile, several at once, aborting, sharing tensors with this thread.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const { temporary } = require('./child.js');

test('every record has an asynchronous form', async () => {
  const x = st.tensor([[1, 2], [3, 4]]);
  assert.deepEqual((await st.async.matmul(x, x)).toArray(), st.matmul(x, x).toArray());
  assert.deepEqual((await st.async.topk(x, 1)).values.toArray(), [[2], [4]]);
  assert.ok(await st.async.layer_norm(x, [2]) instanceof st.Tensor);
  assert.deepEqual((await st.async.softmax(x, { dim: 1 })).toArray(), st.softmax(x, 1).toArray());
});

test('the event loop turns while an op runs', async () => {
  const x = st.randn([768, 768]);
  let most = 0;
  // One op is enough; on a machine that is busy with others this thread may sleep through some.
  for (let i = 0; i < 100 && most < 5; ++i) {
    let turns = 0;
    let running = true;
    const tick = () => {
      ++turns;
      if (running) setImmediate(tick);
    };
    setImmediate(tick);
    await st.async.matmul(x, x);
    running = false;
    most = Math.max(most, turns);
  }
  assert.ok(most >= 5, `at most ${most} turns`);
});

test('many calls at once give the same as one after the other', async () => {
  const inputs = Array.from({ length: 40 }, (_, i) => st.full([64, 64], i + 1));
  const w = st.randn([64, 64]);
  const results = await Promise.all(inputs.map((x) => st.async.matmul(x, w)));
  results.forEach((r, i) => assert.deepEqual(r.toTypedArray(), st.matmul(inputs[i], w).toTypedArray()));
});

test('the arguments live until the call is done, whatever becomes of their handles', async () => {
  const x = st.randn([512, 512]);
  const want = st.matmul(x, x).toTypedArray();
  const going = st.async.matmul(x, x);
  x.dispose();
  assert.deepEqual((await going).toTypedArray(), want);
});

test('gradient mode is the one of the call', async () => {
  const w = st.ones([4], { requiresGrad: true });
  const none = st.noGrad(() => st.async.mul(w, 2));
  const some = st.async.mul(w, 2);
  assert.equal((await none).requiresGrad, false);
  assert.equal((await some).requiresGrad, true);
  (await some).sum().backward();
  assert.deepEqual(w.grad.toArray(), [2, 2, 2, 2]);
});

test('graphs over the same leaves are built, walked and dropped on several threads at once', async () => {
  const w = st.ones([64, 64], { requiresGrad: true });
  const x = st.ones([64, 64]);
  const step = async () => {
    const y = await st.async.matmul(x, w);
    const z = y.mul(w);
    await z.sum().backwardAsync();
  };
  for (let round = 0; round < 20; ++round) {
    w.grad = null;
    const going = Array.from({ length: 8 }, step);
    for (let i = 0; i < 20; ++i) st.mul(w, x).dispose();
    await Promise.all(going);
    // d(sum((x w) * w)) = x^T w + x w = 64 + 64, eight times.
    assert.equal(w.grad.at(0, 0).item(), 1024);
  }
});

test('signals abort', async () => {
  const x = st.ones([8]);
  const before = new AbortController();
  before.abort();
  await assert.rejects(st.async.relu(x, { signal: before.signal }), { name: 'AbortError' });
  const why = new Error('enough');
  const during = new AbortController();
  const big = st.randn([1024, 1024]);
  const going = st.async.matmul(big, big, { signal: during.signal });
  during.abort(why);
  await assert.rejects(going, (e) => e === why);
  const fine = await st.async.relu(x, { signal: new AbortController().signal });
  assert.equal(fine.sum().item(), 8);
});

test('many listeners are not left on a signal', async () => {
  const controller = new AbortController();
  let listening = 0;
  const { signal } = controller;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...a) => { ++listening; add(...a); };
  signal.removeEventListener = (...a) => { --listening; remove(...a); };
  for (let i = 0; i < 20; ++i) await st.async.relu(st.ones([1]), { signal });
  assert.equal(listening, 0);
});

test('files are written and read', async () => {
  const fs = require('node:fs');
  const path = require('node:path');
  const folder = temporary();
  const file = path.join(folder, 'x.safetensors');
  const state = { 'a.b': st.randn([3, 2]), n: st.tensor([1n, -5n]), half: st.ones([2], { dtype: 'bf16' }) };
  await st.save(file, state, { metadata: { made: 'here', größe: 'ü' } });
  const { tensors, metadata } = await st.loadWithMetadata(file);
  assert.deepEqual(Object.keys(tensors).sort(), ['a.b', 'half', 'n']);
  assert.deepEqual(tensors['a.b'].toArray(), state['a.b'].toArray());
  assert.deepEqual(tensors.n.toArray(), [1n, -5n]);
  assert.equal(tensors.half.dtype, 'bf16');
  assert.deepEqual({ ...metadata }, { made: 'here', größe: 'ü' });
  fs.truncateSync(file, 20);
  await assert.rejects(st.load(file), st.IoError);
  await assert.rejects(st.save(path.join(folder, 'no', 'x'), state), st.IoError);
});
