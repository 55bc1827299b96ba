'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const { runNode, temporary } = require('./child.js');

test('one class for each of the engine, with its text and op', () => {
  const cases = [
    [() => st.matmul(st.ones([2, 3]), st.ones([2, 3])), st.ShapeError, 'ShapeError', 'matmul', /inner sizes differ: a is \[2, 3\]/],
    [() => st.ones([2]).at(5), st.IndexError, 'IndexError', undefined, /5/],
    [() => st.sum(st.ones([2]), [3]), st.IndexError, 'IndexError', 'sum', /3/],
    [() => st.uniform([2], 0, 1, { dtype: 'i32' }), st.DTypeError, 'DTypeError', 'uniform', /floating/],
    [() => st.tensor([1], { device: 'tpu' }), st.ValueError, 'ValueError', undefined, /tpu/],
    [() => st.ones([1], { device: 'meta' }).item(), st.DeviceError, 'DeviceError', undefined, /meta/],
    [() => st.ones([1]).backward(), st.AutogradError, 'AutogradError', undefined, /./],
  ];
  for (const [f, cls, name, op, text] of cases) {
    assert.throws(f, (e) => {
      assert.ok(e instanceof cls, `${name}: ${e.stack}`);
      assert.ok(e instanceof st.StrataError && e instanceof Error);
      assert.equal(e.name, name);
      assert.match(e.message, text);
      if (op) assert.equal(e.op, op);
      assert.match(e.stack, /errors\.test\.js/);
      return true;
    });
  }
});

test('wrong arguments name the op, the argument and what came', () => {
  const x = st.ones([2, 2]);
  const cases = [
    [() => st.softmax(x), /softmax: needs dim \(int\); its schema is softmax\(/],
    [() => st.softmax(x, 'rows'), /softmax: dim must be an integer, got the string 'rows'/],
    [() => st.softmax(x, 0.5), /softmax: dim must be an integer.*0\.5/],
    [() => st.softmax(x, NaN), /softmax: dim must be an integer/],
    [() => st.softmax(x, { dimension: 1 }), /softmax: has no argument 'dimension'/],
    [() => st.softmax(x, 1, { dim: 1 }), /softmax: dim was given twice/],
    [() => st.softmax(x, 1, 2, 3), /softmax: takes at most 2 arguments, got 4/],
    [() => st.softmax(null, 1), /softmax: x must not be null/],
    [() => st.softmax('x', 1), /softmax: x must be a Tensor or a number, got the string 'x'/],
    [() => st.softmax([1, 2], 0), /softmax: x must be a Tensor or a number, got an array/],
    [() => st.softmax(Promise.resolve(x), 0), /await it first/],
    [() => st.cat(x), /cat: tensors must be an array of Tensors/],
    [() => st.cat([x, 3]), /cat: tensors\[1\] must be a Tensor, got the number 3/],
    [() => st.sum(x, [0], 'yes'), /sum: keepdim must be true or false, got the string 'yes'/],
    [() => st.zeros(['a']), /full: shape must be an integer, got the string 'a'/],
    [() => st.zeros([-1]), /-1/],
    [() => st.zeros([2 ** 53]), /2\^53/],
    [() => st.zeros([1, 1, 1, 1, 1, 1, 1, 1, 1]), /8|9/],
    [() => st.dropout(x, 0.5, { seed: -1n, offset: 0n }), /seed must fit into 64 bits/],
    [() => st.tensor([1, 'a']), /numbers, BigInts or booleans/],
    [() => st.tensor([[1], [2, 3]]), /not all of one length/],
    [() => st.tensor([1.5], { dtype: 'i64' }), /whole numbers/],
    [() => st.tensor(new Uint16Array(2)), /say which with \{dtype\}/],
    [() => st.tensor(new Uint32Array(2)), /no dtype for Uint32Array/],
    [() => st.tensor(new Uint8Array([0, 7]), { dtype: 'bool' }), /bool/],
    [() => new st.Tensor(), /make tensors with/],
    [() => st.relu(Object.create(st.Tensor.prototype)), /relu: needs x/],
    [() => x.at([1, 2, 3, 4]), /a slice is/],
    [() => x.at(Symbol('s')), /index/],
    [() => new st.optim.SGD([x], { rate: 1 }), /there is no option 'rate'/],
    [() => new st.optim.SGD([], {}), /no parameters/],
    [() => st.setNumThreads(0), /between 1/],
  ];
  for (const [f, text] of cases) {
    assert.throws(f, (e) => {
      assert.ok(e instanceof st.StrataError, `${f}: ${e.stack}`);
      assert.match(e.message, text);
      return true;
    }, String(f));
  }
});

test('methods of Tensor on what is none', () => {
  assert.throws(() => st.Tensor.prototype.item.call({}), TypeError);
  assert.throws(() => st.Tensor.prototype.item.call(undefined), TypeError);
  assert.throws(() => st.Tensor.prototype.relu.call({}), st.ValueError);
  assert.throws(() => Object.getOwnPropertyDescriptor(st.Tensor.prototype, 'shape').get.call([]), /called on an array/);
  assert.throws(() => Object.create(st.Tensor.prototype).item(), /./);
});

test('getters and toString that throw are passed on', () => {
  const options = {};
  Object.defineProperty(options, 'dim', { enumerable: true, get() { throw new RangeError('a getter'); } });
  assert.throws(() => st.softmax(st.ones([2]), options), RangeError);
});

test('memory that cannot be had is an error', () => {
  assert.throws(() => st.zeros([2 ** 20, 2 ** 20, 2 ** 10]), (e) => e instanceof st.MemoryError || e instanceof st.ShapeError);
  assert.equal(st.ones([2]).sum().item(), 2);
});

test('promises reject with the same errors', async () => {
  await assert.rejects(st.async.matmul(st.ones([2, 3]), st.ones([2, 3])), st.ShapeError);
  await assert.rejects(st.async.matmul(st.ones([2, 3])), st.ValueError);
  await assert.rejects(st.load('/nowhere/x.safetensors'), st.IoError);
  await assert.rejects(st.readIdx(__filename), st.IoError);
  await assert.rejects(st.loadModel('/nowhere'), st.IoError);
  await assert.rejects(st.train({ model: { layers: 0 } }, { out: require('node:path').join(temporary(), 'none') }), st.ValueError);
});

test('use after dispose is an error', () => {
  const x = st.ones([2]);
  assert.equal(x.disposed, false);
  x.dispose();
  x.dispose();
  assert.equal(x.disposed, true);
  assert.throws(() => x.shape, /was disposed/);
  assert.throws(() => st.relu(x), /relu: x was disposed/);
  assert.throws(() => st.cat([x]), /was disposed/);
  assert.throws(() => x.data(), /was disposed/);
  assert.throws(() => x.backward(), /was disposed/);
  assert.equal(require('node:util').inspect(x), 'Tensor (disposed)');
  const y = st.ones([2]);
  y[Symbol.dispose]();
  assert.equal(y.disposed, true);
});

test('errors of every kind of call, while tensors are collected', { timeout: 300000 }, () => {
  // Node ends the process where a finalizer runs while it takes an exception over from native code.
  const source = `const st = require(${JSON.stringify(require('node:path').join(__dirname, '../lib/index.js'))});
    const a = st.ones([2, 3]);
    class F extends st.Function { static forward(ctx, x) { return st.matmul(x, x); } }
    const w = st.ones([2], { requiresGrad: true });
    const calls = [() => F.apply(a), () => new st.Tensor(), () => st.checkpoint(() => { throw new RangeError(); }, w), () => a.item()];
    for (const call of calls) {
      let seen = 0;
      for (let i = 0; i < ${process.env.STRATA_SANITIZED ? 3000 : 60000}; ++i) {
        st.ones([1]);
        try { call(); } catch (e) { if (e instanceof st.StrataError || e instanceof RangeError) ++seen; }
        if (i % 7 === 0) new Array(i % 91).fill(1.5);
      }
      if (seen % 1000 !== 0 || seen === 0) process.exitCode = 1;
    }
    for (let i = 0; i < ${process.env.STRATA_SANITIZED ? 3000 : 1000000}; ++i) {
      try { new st.Tensor(); } catch { st.ones([2]); }
    }`;
  const run = runNode(['--max-semi-space-size=1', '-e', source]);
  assert.equal(run.status, 0, `${run.signal} ${run.stderr}`);
});

test('calls that the fuzz test found', () => {
  const w = st.ones([3, 3], { requiresGrad: true });
  const three = st.ones([3]);
  for (const f of [
    () => st.ops.internal.swiglu_packed_backward(w, st.tensor(1.5)),
    () => st.ops.internal.batch_norm_backward(w, NaN, three, three, st.zeros([0, 3])),
    () => st.ops.internal.group_norm_backward(w, st.tensor(1), 1, three, three, three),
    () => st.ops.internal.layer_norm_backward(three, three, [1, 1, 2, -1], three, three, w, null),
    () => st.ops.internal.rms_norm_backward(three, three, [1, 7, 7, 0], three, three, w),
  ]) assert.throws(f, st.StrataError);
  // Nothing to do, or a size that no tensor has.
  const none = st.zeros([0, 3]);
  const most = 2n ** 63n - 1n;
  for (const f of [() => st.ops.adaptive_max_pool(none, most).values, () => st.ops.internal.adaptive_avg_pool_backward(none, most),
    () => st.ops.internal.resize_backward(none, most), () => st.eye(0, most), () => st.diag_embed(none, 2n ** 53n - 1n, -2)]) {
    try {
      assert.equal(f().numel, 0);
    } catch (error) {
      assert.ok(error instanceof st.StrataError, String(error));
    }
  }
});

test('linear algebra: the family under its own name, and what a singular matrix throws', () => {
  const a = st.tensor([[2, 0], [0, 4]]);
  assert.deepEqual(Array.from(st.linalg.inv(a).toTypedArray()), [0.5, 0, 0, 0.25]);
  assert.equal(st.linalg.det, st.linalg_det);
  assert.throws(() => st.linalg.inv(st.zeros([2, 2])), (e) => e instanceof st.LinAlgError && /singular/.test(e.message));
});
