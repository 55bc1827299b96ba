'use strict';
// worker_threads: each has its own classes and modes; tensors travel by ticket; ending one in the middle harms nobody.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const st = require('../lib/index.js');

const entry = JSON.stringify(path.join(__dirname, '../lib/index.js'));
function run(source, workerData) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(`const st = require(${entry}); const { workerData, parentPort } = require('node:worker_threads');
      (async () => { ${source} })().then((v) => parentPort.postMessage(v));`, { eval: true, workerData });
    let result;
    worker.on('message', (v) => { result = v; });
    worker.on('error', reject);
    worker.on('exit', () => resolve(result));
  });
}

test('workers compute side by side', async () => {
  const results = await Promise.all([1, 2, 3, 4].map((n) => run(`
    const w = st.ones([32, 32], { requiresGrad: true });
    for (let i = 0; i < 50; ++i) {
      w.grad = null;
      const y = await st.async.matmul(st.full([32, 32], workerData), w);
      y.sum().backward();
    }
    return w.grad.at(0, 0).item();`, n)));
  assert.deepEqual(results, [32, 64, 96, 128]);
});

test('gradient mode is each thread\'s own', async () => {
  st.setGradEnabled(false);
  try {
    assert.equal(await run('return st.isGradEnabled();'), true);
  } finally {
    st.setGradEnabled(true);
  }
});

test('errors are of the worker\'s own classes', async () => {
  assert.equal(await run('try { st.ones([2]).at(9); } catch (e) { return e instanceof st.IndexError; }'), true);
});

test('tensors travel by ticket, without a copy', async () => {
  const x = st.tensor([1, 2, 3]);
  const ticket = x.share();
  const back = await run('const t = st.fromShared(workerData); t.add_(1); return t.mul(10).share();', ticket);
  assert.deepEqual(x.toArray(), [2, 3, 4], 'the worker wrote to the same memory');
  assert.deepEqual(st.fromShared(back).toArray(), [20, 30, 40]);
  assert.throws(() => st.fromShared(back), st.ValueError);
  assert.throws(() => st.fromShared(12345n), st.ValueError);
  const borrowed = st.fromTypedArray(new Float32Array([7]));
  assert.equal(await run('return st.fromShared(workerData).item();', borrowed.share()), 7);
});

test('a worker that is ended in the middle of calls', async () => {
  for (let i = 0; i < 5; ++i) {
    const worker = new Worker(`const st = require(${entry});
      const x = st.randn([400, 400], { requiresGrad: true });
      x.registerHook((g) => g.mul(2));
      const keep = [];
      (function go() {
        keep.push(x.mul(x), st.fromTypedArray(new Float32Array(1000)), st.ones([10]).data());
        st.async.matmul(x, x).then((y) => y.sum().backwardAsync()).then(go);
        st.async.matmul(x, x).catch(() => {});
      })();
      require('node:worker_threads').parentPort.postMessage('going');`, { eval: true });
    await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    await new Promise((resolve) => { setTimeout(resolve, 20 * i); });
    await worker.terminate();
  }
  assert.deepEqual(st.ones([2]).add(1).toArray(), [2, 2]);
});

test('a worker ends in the middle of a loop that catches whatever is thrown', { timeout: 120000 }, async () => {
  for (const call of ['st.matmul(x, st.ones([3]))', 'x.mul(x).sum().backward()', 'st.checkpoint(() => { x.mul(x); throw null; }, x)']) {
    const worker = new Worker(`const st = require(${entry});
      const x = st.ones([2], { requiresGrad: true });
      x.registerHook((g) => g.mul(2));
      require('node:worker_threads').parentPort.postMessage('going');
      for (;;) { try { ${call}; } catch {} }`, { eval: true });
    await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    await new Promise((resolve) => { setTimeout(resolve, 20); });
    assert.equal(await worker.terminate(), 1, call);
  }
  assert.deepEqual(st.ones([2]).add(1).toArray(), [2, 2]);
});

test('a worker whose script throws ends with its error', async () => {
  await assert.rejects(run('setImmediate(() => st.matmul(st.ones([2, 3]), st.ones([2, 3]))); await new Promise(() => {});'),
    /inner sizes differ/);
});

test('one SharedArrayBuffer, tensors of several threads, no copies', async () => {
  // 4 MB that the workers fill, each its rows.
  const memory = new SharedArrayBuffer(4 << 20);
  const here = st.fromTypedArray(new Float32Array(memory), [1024, 1024]);
  assert.equal(here.data().buffer, memory, 'data() gives the shared buffer itself');
  const made = await Promise.all([0, 1, 2, 3].map((part) => run(`
    const { memory, part } = workerData;
    const x = st.fromTypedArray(new Float32Array(memory), [1024, 1024]);
    const before = st.memoryStats().live;
    x.narrow(0, 256 * part, 256).fill_(part + 1).mul_(2);
    x.data()[part * 256 * 1024] = -1;
    return st.memoryStats().live - before;`, { memory, part })));
  // The others' small tensors are counted as well; a copy would be 4 MB.
  assert.ok(made.every((bytes) => bytes < 1 << 20), `${made} bytes were made for it`);
  assert.deepEqual([0, 300, 600, 1023].map((row) => here.at(row, 1000).item()), [2, 4, 6, 8]);
  assert.deepEqual([0, 256, 512, 768].map((row) => here.data()[1024 * row]), [-1, -1, -1, -1]);
  // A view, by its place in the buffer.
  const view = here.at(512).data();
  assert.equal(await run('const x = st.fromTypedArray(new Float32Array(workerData.buffer, workerData.offset, 1024)); x.fill_(9); return x.sum().item();',
    { buffer: view.buffer, offset: view.byteOffset }), 9 * 1024);
  assert.equal(here.at(512).mean().item(), 9);
});

test('an ArrayBuffer moves to a worker and back, and tensors over it at both ends', async () => {
  const array = new Float32Array(1 << 16).fill(3);
  const worker = new Worker(`const st = require(${entry}); const { parentPort } = require('node:worker_threads');
    parentPort.once('message', (buffer) => {
      // In memory that it owns; then it goes back without a copy.
      const result = new Float32Array(buffer);
      const sum = st.tensor(result).sum().item();
      for (let i = 0; i < result.length; ++i) result[i] *= 2;
      parentPort.postMessage({ buffer, sum }, [buffer]);
    });`, { eval: true });
  const answer = await new Promise((resolve, reject) => {
    worker.once('message', resolve).once('error', reject);
    worker.postMessage(array.buffer, [array.buffer]);
  });
  await worker.terminate();
  assert.equal(array.length, 0, 'it was moved');
  assert.equal(answer.sum, 3 * (1 << 16));
  assert.equal(st.fromTypedArray(new Float32Array(answer.buffer)).mean().item(), 6);
});

test('a ticket\'s memory shows in both threads\' arrays', async () => {
  const x = st.zeros([1000]);
  const array = x.data();
  await run('const t = st.fromShared(workerData); const a = t.data(); a.fill(5); t.mul_(2); return 0;', x.share());
  assert.ok(array.every((v) => v === 10));
  assert.equal(x.sum().item(), 10000);
});
