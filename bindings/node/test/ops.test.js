'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

test('tensors are made from numbers, nested arrays and typed arrays', () => {
  assert.equal(st.tensor(3).dtype, 'f32');
  assert.deepEqual(st.tensor(3).shape, []);
  assert.equal(st.tensor([1n, 2n]).dtype, 'i64');
  assert.equal(st.tensor([true, false]).dtype, 'bool');
  assert.deepEqual(st.tensor([[1, 2, 3], [4, 5, 6]]).shape, [2, 3]);
  assert.deepEqual(st.tensor([[1, 2], [3, 4]]).toArray(), [[1, 2], [3, 4]]);
  assert.deepEqual(st.tensor([1, 2], { dtype: 'i64' }).toArray(), [1n, 2n]);
  assert.equal(st.tensor(new Float64Array(2)).dtype, 'f64');
  assert.equal(st.tensor(new Int32Array(2)).dtype, 'i32');
  assert.deepEqual(st.tensor(new Float32Array(6), { shape: [2, 3] }).shape, [2, 3]);
  assert.deepEqual(st.tensor([]).shape, [0]);
  assert.deepEqual(st.tensor([[], []]).shape, [2, 0]);
  // 1.00390625 lies between two bf16 numbers and goes to the even one.
  assert.deepEqual(st.tensor([1.00390625, 1.01], { dtype: 'bf16' }).toArray(), [1, 1.0078125]);
  const t = st.tensor([1, 2]);
  const copy = st.tensor(t);
  copy.add_(1);
  assert.deepEqual(t.toArray(), [1, 2]);
});

test('i64 travels as BigInt both ways, to its ends', () => {
  const ends = [-(2n ** 63n), 2n ** 63n - 1n, 0n];
  assert.deepEqual(st.tensor(ends).toArray(), ends);
  assert.equal(st.tensor(ends).at(1).item(), 2n ** 63n - 1n);
  assert.throws(() => st.tensor([2n ** 63n]), st.ValueError);
});

test('item gives a number, a BigInt or a boolean', () => {
  assert.equal(st.tensor(1.5).item(), 1.5);
  assert.equal(st.tensor(7n).item(), 7n);
  assert.equal(st.tensor(7, { dtype: 'i32' }).item(), 7);
  assert.equal(st.tensor(true).item(), true);
  assert.throws(() => st.ones([2]).item(), st.ShapeError);
});

test('arguments go by position, by name, and take the defaults', () => {
  const x = st.tensor([[3, 1], [2, 4]]);
  assert.deepEqual(st.softmax(x, 1).toArray(), st.softmax(x, { dim: 1 }).toArray());
  assert.deepEqual(st.sum(x, [0]).toArray(), [5, 5]);
  assert.deepEqual(st.sum(x, 0, true).toArray(), [[5, 5]]);
  assert.deepEqual(x.sum({ dims: [1], keepdim: true }).toArray(), [[4], [6]]);
  assert.deepEqual(st.sum(x, undefined, false).item(), 10);
  const { values, indices } = x.sort({ dim: 0, descending: true });
  assert.deepEqual(values.toArray(), [[3, 4], [2, 1]]);
  assert.deepEqual(indices.toArray(), [[0n, 1n], [1n, 0n]]);
  assert.equal(st.cat([x, x], { dim: 1 }).shape[1], 4);
  assert.equal(st.einsum('ij,jk->ik', [x, x]).at(0, 0).item(), 11);
});

test('numbers stand where tensors are wanted and yield in promotion', () => {
  const i = st.tensor([1, 2], { dtype: 'i32' });
  assert.equal(i.add(1).dtype, 'i32');
  assert.equal(i.mul(1.5).dtype, 'f32');
  assert.deepEqual(st.ones([2], { dtype: 'bf16' }).mul(2).dtype, 'bf16');
  assert.deepEqual(st.sub(10, i).toArray(), [9, 8]);
  assert.equal(st.clamp(st.tensor([1.5]), new st.Scalar(2, 'f64')).item(), 2);
  assert.throws(() => new st.Scalar(1, 'f32'), st.ValueError);
});

test('factories', () => {
  assert.deepEqual(st.zeros([2, 2]).toArray(), [[0, 0], [0, 0]]);
  assert.equal(st.ones(3, { dtype: 'i64' }).dtype, 'i64');
  assert.deepEqual(st.full([2], 2.5).toArray(), [2.5, 2.5]);
  assert.equal(st.full([2], 1).dtype, 'f32');
  assert.deepEqual(st.arange(3).toArray(), [0, 1, 2]);
  assert.deepEqual(st.arange(1, 2, 0.5).toArray(), [1, 1.5]);
  assert.deepEqual(st.arange(3n).toArray(), [0n, 1n, 2n]);
  assert.deepEqual(st.arange(0, 3, { dtype: 'i32' }).dtype, 'i32');
  assert.deepEqual(st.eye(2).toArray(), [[1, 0], [0, 1]]);
  assert.deepEqual(st.eye(1, 2).toArray(), [[1, 0]]);
  assert.equal(st.zerosLike(st.ones([2], { dtype: 'f64' })).dtype, 'f64');
  st.manualSeed(3);
  const a = st.randn([1000]);
  st.manualSeed(3);
  assert.deepEqual(st.randn([1000]).toArray(), a.toArray());
  assert.ok(Math.abs(Number(a.mean().item())) < 0.2);
  assert.notDeepEqual(st.rand([5]).toArray(), st.rand([5]).toArray());
  const m = st.zeros([2, 3], { device: 'meta' });
  assert.equal(m.device, 'meta');
  assert.deepEqual(st.matmul(m, st.zeros([3, 4], { device: 'meta' })).shape, [2, 4]);
});

test('views share memory, indices read and write', () => {
  const x = st.arange(12).reshape(3, 4);
  assert.deepEqual(x.at(1).toArray(), [4, 5, 6, 7]);
  assert.deepEqual(x.at([0, 2], [null, null, 2]).toArray(), [[0, 2], [4, 6]]);
  assert.deepEqual(x.at('...', -1).toArray(), [3, 7, 11]);
  assert.deepEqual(x.at(null, 0, 0).shape, [1]);
  assert.deepEqual(x.at(st.tensor([2n, 0n])).toArray(), [[8, 9, 10, 11], [0, 1, 2, 3]]);
  assert.deepEqual(x.at(x.gt(9)).toArray(), [10, 11]);
  x.setAt([0, [1, 3]], -1);
  assert.deepEqual(x.at(0).toArray(), [0, -1, -1, 3]);
  x.t().setAt([3], st.zeros([3]));
  assert.deepEqual(x.at([], 3).toArray(), [0, 0, 0]);
  assert.deepEqual(x.flatten().shape, [12]);
  assert.deepEqual(x.unsqueeze(0).squeeze(0).shape, [3, 4]);
  assert.equal(x.size(-1), 4);
  assert.throws(() => x.at(7), st.IndexError);
});

test('in-place methods write over the tensor and return it', () => {
  const x = st.tensor([-1, 2]);
  assert.equal(x.relu_(), x);
  assert.deepEqual(x.toArray(), [0, 2]);
  x.add_(st.ones([2])).mul_(3);
  assert.deepEqual(x.toArray(), [3, 9]);
  x.copy_(st.tensor([5n, 6n]));
  assert.deepEqual(x.toArray(), [5, 6]);
  assert.equal(x.zero_().sum().item(), 0);
});

test('dtypes and devices are converted', () => {
  const x = st.tensor([1.5, -2.5]);
  assert.deepEqual(x.to('i32').toArray(), [1, -2]);
  assert.equal(x.to({ dtype: 'f64' }).dtype, 'f64');
  assert.equal(x.to('cpu').device, 'cpu');
  assert.throws(() => x.to('f33'), st.ValueError);
  if (!st.cuda.isAvailable()) {
    assert.throws(() => x.to('cuda'), st.DeviceError);
    assert.equal(typeof st.cuda.unavailableReason(), 'string');
  }
});

test('tensors print as the engine prints them', () => {
  assert.equal(String(st.tensor([1, 2])), 'tensor([1., 2.])');
  assert.match(require('node:util').inspect(st.ones([2], { dtype: 'i32' })), /tensor\(\[1, 1\], dtype=i32\)/);
});

test('the names of records, and results that only a gradient rule reads', () => {
  const x = st.randn([2, 4]);
  assert.ok(st.layer_norm(x, [4]) instanceof st.Tensor);
  assert.deepEqual(Object.keys(st.ops.layer_norm(x, [4])), ['y', 'mean', 'rstd']);
  assert.equal(st.cross_entropy(st.zeros([2, 4]), st.tensor([1n, 3n])).item(), Math.fround(Math.log(4)));
  assert.ok(st.varlen_attention && st.ops.add_rms_norm);
  assert.deepEqual(Object.keys(st.add_rms_norm(x, x, st.ones([4]))), ['y', 'sum']);
  assert.ok(x.layer_norm([4]) instanceof st.Tensor);
});

test('records are offered as they say', async () => {
  const records = st.describeOps();
  assert.ok(records.length >= 284);
  for (const { name, aliases, internal, inplace, method } of records) {
    if (internal) {
      assert.equal(typeof st.ops.internal[name], 'function', name);
      assert.ok(!(name in st) && !(name in st.async) && !(name in st.ops) && !(name in st.Tensor.prototype), name);
      continue;
    }
    assert.equal(typeof st.ops[name], 'function', name);
    for (const each of [name, ...aliases]) {
      assert.equal(typeof st[each], 'function', each);
      assert.equal(typeof st.async[each], 'function', each);
      if (method) assert.equal(typeof st.Tensor.prototype[each], 'function', each);
      if (method && inplace) assert.equal(typeof st.Tensor.prototype[`${each}_`], 'function', `${each}_`);
    }
  }
  assert.ok(records.filter(({ name, internal }) => internal && name.endsWith('_backward')).length >= 37);
  assert.deepEqual(st.greater(st.tensor([1, -1]), 0).toArray(), [true, false]);
  assert.deepEqual((await st.async.absolute(st.tensor([1, -1]))).toArray(), [1, 1]);
  assert.deepEqual(st.tensor([1, -1]).greater_(0).toArray(), [1, 0]);
});

test('random ops draw what their records say', () => {
  const x = st.full([2, 9], 0.5);
  const draws = [['dropout', [x, 0.5], 5n], ['multinomial', [x, 3, true], 6n], ['multinomial', [x, 3], 18n], ['poisson', [x], 5n],
    ['uniform', [[3, 7], 0, 1], 6n], ['randint', [0, 5, [9]], 5n], ['rrelu', [x, 0.1, 0.3], 5n]];
  for (const [name, args, blocks] of draws) {
    st.manualSeed(3);
    st.ops[name](...args);
    assert.deepEqual(st.randomState(), { seed: 3n, offset: blocks }, name);
  }
});

test('ESM gives the same objects', async () => {
  const esm = await import('../lib/index.mjs');
  assert.equal(esm.default, st);
  assert.equal(esm.tensor, st.tensor);
  assert.equal(esm.ShapeError, st.ShapeError);
});
