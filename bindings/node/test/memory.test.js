'use strict';
// Who owns memory: borrowed and lent arrays, finalizers, no growth.

const test = require('node:test');
const assert = require('node:assert/strict');
const v8 = require('node:v8');
const vm = require('node:vm');
const st = require('../lib/index.js');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');
const turn = () => new Promise((resolve) => { setImmediate(resolve); });
async function collect() {
  for (let i = 0; i < 4; ++i) {
    gc();
    await turn();
  }
}
const sanitized = Boolean(process.env.STRATA_SANITIZED);

test('tensors on other tiers', () => {
  const x = st.tensor([[1, 2], [3, 4]]);
  assert.equal(x.tier, 'host');
  const y = x.to({ tier: 'disk' });
  assert.equal(y.tier, 'disk');
  assert.equal(y.toString(), x.toString());
  assert.deepEqual(Array.from(y.toTypedArray()), [1, 2, 3, 4]);
  assert.equal(y.at(1, 0).item(), 3);
  assert.deepEqual(Array.from(y.to({ tier: 'own' }).data()), [1, 2, 3, 4]);
  assert.equal(y.add(x).tier, 'host');
  assert.throws(() => y.data(), /elements move \(tier 'disk'\)/);
  assert.throws(() => x.to({ tier: 'attic' }), /there is no memory 'attic'.*own, host, disk/);
});

test('data() is the tensor\'s memory, both ways', () => {
  const x = st.tensor([[1, 2], [3, 4]]);
  const array = x.data();
  assert.ok(array instanceof Float32Array);
  array[0] = 10;
  assert.equal(x.at(0, 0).item(), 10);
  x.mul_(2);
  assert.deepEqual(Array.from(array), [20, 4, 6, 8]);
  assert.equal(x.data().buffer, array.buffer, 'one buffer for each storage');
  assert.deepEqual(Array.from(x.at(1).data()), [6, 8]);
  assert.equal(x.at(1).data().buffer, array.buffer);
  assert.throws(() => x.t().data(), /contiguous/);
  assert.deepEqual(Array.from(x.t().toTypedArray()), [20, 6, 4, 8]);
  const kinds = { u8: Uint8Array, bool: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
    f16: Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array };
  for (const [dtype, cls] of Object.entries(kinds)) {
    const t = st.ones([3], { dtype });
    assert.ok(t.data() instanceof cls, dtype);
    assert.equal(t.toTypedArray().length, 3);
  }
  assert.equal(st.ones([1], { dtype: 'bf16' }).data()[0], 0x3f80);
  assert.equal(st.ones([1], { dtype: 'f16' }).data()[0], 0x3c00);
  assert.equal(st.zeros([0, 2]).data().length, 0);
  assert.throws(() => st.zeros([2], { device: 'meta' }).data(), st.DeviceError);
});

test('fromTypedArray borrows the array', () => {
  const array = new Float32Array([1, 2, 3, 4, 5, 6]);
  const x = st.fromTypedArray(array.subarray(2), [2, 2]);
  array[2] = 30;
  assert.deepEqual(x.toArray(), [[30, 4], [5, 6]]);
  x.add_(1);
  assert.deepEqual(Array.from(array), [1, 2, 31, 5, 6, 7]);
  assert.equal(x.data().buffer, array.buffer, 'the original array comes back');
  assert.equal(x.data().byteOffset, 8);
  assert.equal(st.fromTypedArray(new Uint16Array([0x3f80]), [1], { dtype: 'bf16' }).item(), 1);
  assert.deepEqual(st.fromTypedArray(new BigInt64Array([5n])).toArray(), [5n]);
  const shared = new Int32Array(new SharedArrayBuffer(8));
  st.fromTypedArray(shared).add_(7);
  assert.deepEqual(Array.from(shared), [7, 7]);
  assert.throws(() => st.fromTypedArray(array, [7]), st.ShapeError);
  assert.throws(() => st.fromTypedArray(array, [-6]), st.ShapeError);
  assert.throws(() => st.fromTypedArray(new Uint8Array([2]), [1], { dtype: 'bool' }), st.ValueError);
  assert.throws(() => st.fromTypedArray([1, 2]), st.ValueError);
  assert.throws(() => st.fromTypedArray(new DataView(new ArrayBuffer(8))), st.ValueError);
});

test('a borrowed buffer cannot be taken away', () => {
  const array = new Float32Array([1, 2]);
  const x = st.fromTypedArray(array);
  // Node refuses or ignores the transfer; either way the tensor keeps its memory.
  const { port1 } = new (require('node:worker_threads').MessageChannel)();
  try {
    port1.postMessage(array.buffer, [array.buffer]);
  } catch {
    // refused
  }
  port1.close();
  assert.equal(array.length, 2);
  if ('transfer' in ArrayBuffer.prototype) assert.throws(() => array.buffer.transfer(), TypeError);
  assert.deepEqual(x.toArray(), [1, 2]);
  const resizable = new ArrayBuffer(8, { maxByteLength: 16 });
  if (resizable.resizable) assert.throws(() => st.fromTypedArray(new Float32Array(resizable)), st.ValueError);
});

test('a tensor outlives the array it borrowed, an array the tensor it shows', async () => {
  let tensor = (() => st.fromTypedArray(new Float32Array(1 << 16).fill(3)))();
  await collect();
  await collect();
  new Array(100).fill(0).map(() => new Float32Array(1 << 16).fill(9));
  assert.equal(tensor.sum().item(), 3 * (1 << 16));
  let view = tensor.at([10, 20]);
  tensor = null;
  await collect();
  assert.equal(view.sum().item(), 30);
  view = null;

  let array = (() => st.full([1 << 16], 4).data())();
  await collect();
  const others = new Array(50).fill(0).map(() => st.full([1 << 16], 8));
  assert.ok(array.every((v) => v === 4));
  assert.equal(others.length, 50);
  const disposed = st.full([1 << 16], 5);
  array = disposed.data();
  disposed.dispose();
  st.full([1 << 16], 8);
  assert.ok(array.every((v) => v === 5), 'dispose() leaves the memory to the array');
});

test('a borrowed array is collected once no tensor shows it', async () => {
  let collected = 0;
  const registry = new FinalizationRegistry(() => { ++collected; });
  (() => {
    for (let i = 0; i < 10; ++i) {
      const array = new Float32Array(1024);
      registry.register(array.buffer, i);
      st.fromTypedArray(array).dispose();
    }
  })();
  for (let i = 0; i < 10 && collected < 10; ++i) await collect();
  assert.ok(collected >= 9, `${collected} of 10 buffers were collected`);
});

test('finalizers free tensors, without a turn of the event loop', () => {
  gc();
  const before = st.memoryStats().live;
  // 100 x 4 MB, never disposed, never yielding.
  for (let i = 0; i < 100; ++i) st.zeros([1 << 20]);
  gc();
  const after = st.memoryStats().live;
  assert.ok(after - before < 3 * (4 << 20), `${(after - before) >> 20} MB of 400 are still held`);
});

test('external memory is reported, so that the collector runs by itself', () => {
  gc();
  const before = st.memoryStats().live;
  let most = 0;
  for (let i = 0; i < 500; ++i) {
    st.zeros([1 << 20]);
    most = Math.max(most, st.memoryStats().live - before);
  }
  // 2 GB in all, of small JavaScript objects.
  assert.ok(most < 512 << 20, `at most ${most >> 20} MB were held at once`);
});

test('10^5 tensors, graphs, arrays and hooks leave nothing', { timeout: 300000 }, async () => {
  const rounds = sanitized ? 2000 : 100000;
  const w = st.ones([16], { requiresGrad: true });
  const work = async (n) => {
    for (let i = 0; i < n; ++i) {
      const x = st.fromTypedArray(new Float32Array(16), [16]);
      const y = st.mul(x, w).relu();
      if (i % 10 === 0) {
        y.registerHook((g) => g);
        y.sum().backward();
        w.grad = null;
      }
      if (i % 100 === 0) {
        y.data();
        await st.async.add(y, 1);
      }
      if (i % 7 === 0) y.dispose();
      if (i % 5000 === 0) await turn();
    }
    await collect();
  };
  await work(rounds / 10);
  const before = process.memoryUsage().rss;
  const live = st.memoryStats().blocks;
  await work(rounds);
  const grown = process.memoryUsage().rss - before;
  if (!sanitized) assert.ok(grown < 64 << 20, `the process grew by ${grown >> 20} MB`);
  assert.ok(st.memoryStats().blocks - live < 50, 'blocks of the engine are still held');
});

test('a training loop that never yields stays small', () => {
  const net = new st.nn.Sequential(new st.nn.Linear(256, 1024), st.relu, new st.nn.Linear(1024, 10));
  const optimizer = new st.optim.SGD(net, { lr: 0.01 });
  const x = st.randn([256, 256]);
  const y = st.randint(0, 10, [256]);
  const before = st.memoryStats().live;
  let most = 0;
  for (let i = 0; i < (sanitized ? 20 : 300); ++i) {
    optimizer.zeroGrad();
    st.cross_entropy(net.forward(x), y).backward();
    optimizer.step();
    most = Math.max(most, st.memoryStats().live - before);
  }
  assert.ok(most < 512 << 20, `at most ${most >> 20} MB were held at once`);
});
