'use strict';
// Every op, method and asynchronous form with arguments that mostly make no sense: an error each time, or a result, and
// never the end of the process.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

// Numbers that are the same in every run.
let state = Number(process.env.STRATA_FUZZ_SEED ?? 12345);
function random(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
}
const pick = (list) => list[random(list.length)];

const tensors = [
  () => st.tensor(1.5), () => st.ones([3]), () => st.randn([2, 3]), () => st.randn([2, 3]).t(), () => st.zeros([0, 3]), () => st.randn([1, 2, 4, 4]),
  () => st.tensor([[0n, 1n], [1n, 0n]]), () => st.tensor([5n, -7n, 100n]), () => st.tensor([true, false, true]),
  () => st.tensor([NaN, Infinity, -Infinity]), () => st.ones([3], { dtype: 'bf16' }), () => st.ones([2, 2], { dtype: 'i8' }),
  () => st.ones([3, 3], { requiresGrad: true }), () => st.ones([2, 3], { device: 'meta' }), () => st.ones([1]).expand([4]),
  () => { const t = st.ones([2]); t.dispose(); return t; },
];
const integers = [0, 1, 2, 3, -1, -2, 7, 1000003, 2 ** 53 - 1, -(2 ** 53 - 1), 2n ** 63n - 1n, -(2n ** 63n)];
const junk = [null, undefined, NaN, Infinity, -0, 0.5, '', 'mean', 'f32', 'cuda', {}, [], [null], ['x'], [1, 2, 3, 4, 5, 6, 7, 8, 9], () => 1, Symbol('s'),
  new Float32Array(3), new Date(), { dim: 1 }, { seed: 1n }, { seed: {}, offset: [] }, true, new st.Scalar(1, 'f64'), Promise.resolve(1), Object.create(null),
  new Proxy({}, { get() { throw new Error('from a proxy'); } }), Object.create(st.Tensor.prototype)];

function sensible(type) {
  switch (type.replace('?', '')) {
    case 'Tensor': return pick(tensors)();
    case 'Tensor[]': return Array.from({ length: random(4) }, () => pick(tensors)());
    case 'Scalar': return pick([0, 1, -2, 0.5, 3n, true]);
    case 'int': return pick(integers);
    case 'float': return pick([0, 0.5, 1, -1, 1e300, NaN]);
    case 'bool': return random(2) === 0;
    case 'str': return pick(['mean', 'sum', 'none', 'nearest', 'bilinear', 'tanh', 'ij,jk->ik', '...', 'ab', '->', 'constant', 'reflect']);
    case 'int[]': return Array.from({ length: random(5) }, () => pick(integers.slice(0, 7)));
    case 'DType': return pick(['f32', 'i64', 'bool', 'bf16', 'u8']);
    case 'Device': return pick(['cpu', 'meta']);
    default: return { seed: 1n, offset: 0n };
  }
}
function show(args) {
  try {
    return args.map((a) => (a instanceof st.Tensor && !a.disposed ? `${a.dtype}[${a.shape}]` : require('node:util').inspect(a))).join(', ');
  } catch {
    return '?';
  }
}
const known = (e, where) => assert.ok(e instanceof st.StrataError || e instanceof TypeError || /from a proxy/.test(e.message), `${where}: ${e?.stack ?? String(e)}`);

test('arguments that make no sense', { timeout: 600000 }, async () => {
  const rounds = process.env.STRATA_SANITIZED ? 20 : 60;
  let results = 0;
  let errors = 0;
  const records = st.describeOps();
  for (const record of records) {
    const pending = [];
    for (let i = 0; i < rounds; ++i) {
      const args = record.args.map((a) => (random(8) === 0 ? pick(junk) : sensible(a.type)));
      if (random(6) === 0) args.splice(random(args.length + 1));
      if (random(6) === 0) args.push(pick(junk));
      const where = `${record.name}, round ${i}`;
      // The last line before an end of the process names the call.
      if (process.env.STRATA_FUZZ_TRACE) require('node:fs').writeSync(2, `${where}: ${show(args)}\n`);
      try {
        const form = random(4);
        if (form === 0) {
          pending.push(st.async[record.name](...args).then(() => { ++results; }, (e) => { ++errors; known(e, where); }));
        } else if (form === 1 && args[0] instanceof st.Tensor && args[0][`${record.name}_`]) {
          args[0][`${record.name}_`](...args.slice(1));
        } else {
          const result = st.ops[record.name](...args);
          ++results;
          if (result instanceof st.Tensor && result.requiresGrad && result.device === 'cpu') result.sum().backward();
        }
      } catch (e) {
        ++errors;
        known(e, where);
      }
    }
    await Promise.all(pending);
  }
  const many = (records.length * rounds) / 10;
  assert.ok(results > many && errors > many, `${results} results, ${errors} errors`);
});

test('methods, indices, makers and modules with junk', () => {
  const values = () => (random(3) === 0 ? pick(tensors)() : random(2) === 0 ? pick(integers) : pick(junk));
  const methods = Object.getOwnPropertyNames(st.Tensor.prototype).filter((n) => n !== 'constructor');
  const attempt = (f, where, args = []) => {
    if (process.env.STRATA_FUZZ_TRACE) require('node:fs').writeSync(2, `${where}: ${show(args)}\n`);
    try {
      f();
    } catch (e) {
      assert.ok(e instanceof Error, `${where} threw ${String(e)}`);
    }
  };
  for (const name of methods) {
    for (let i = 0; i < 6; ++i) {
      const t = pick(tensors)();
      const args = [values(), values()];
      attempt(() => (typeof Object.getOwnPropertyDescriptor(st.Tensor.prototype, name).value === 'function'
        ? Promise.resolve(t[name](...args)).catch(() => {}) : t[name]), name, [t, ...args]);
    }
  }
  for (let i = 0; i < 2000; ++i) {
    attempt(() => pick(tensors)().at(values(), values(), [values(), values()]), 'at');
    attempt(() => pick(tensors)().setAt([values(), [values(), values()]], values()), 'setAt');
    attempt(() => st.tensor(values(), { dtype: pick(['f32', 'i64', 'bool', 'zz', undefined]) }), 'tensor');
    attempt(() => st.fromTypedArray(values(), values(), { dtype: 'f32' }), 'fromTypedArray');
    attempt(() => st.grad(values(), [values()], { gradOutputs: values() }), 'grad');
    attempt(() => new (pick([st.nn.Linear, st.nn.Embedding, st.nn.LayerNorm]))(pick([0, 2, -1, 'x', null]), pick([0, 3, -2, {}])).forward(values()), 'nn');
    attempt(() => new st.optim.Adam([values()], { lr: values() }).step(), 'optim');
    attempt(() => st.fromShared(values()), 'fromShared');
  }
});
