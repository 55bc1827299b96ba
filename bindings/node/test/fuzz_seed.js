'use strict';
// One seed of fuzz.test.js: node fuzz_seed.js NOTE SEED SECONDS.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { inspect } = require('node:util');
const st = require('../lib/index.js');

const [noteFile, seed, slowest] = process.argv.slice(2);
const sanitized = Boolean(process.env.STRATA_SANITIZED);
// Bytes that the tensors of all may take at once, and that the process may grow by in one call.
const mostTensors = 256 << 20;
const mostGrowth = 1 << 30;

const noteFd = fs.openSync(noteFile, 'w');
let noted = 0;
/** Notes a call, over the one before. */
function note(text) {
  const line = Buffer.from(`${text.slice(0, 2000)}\n`);
  fs.writeSync(noteFd, line, 0, line.length, 0);
  if (line.length < noted) fs.ftruncateSync(noteFd, line.length);
  noted = line.length;
}
let rss = 0;
/** Makes a noted call; complains of one that computed for long (a machine that is busy with others is no reason) or made the process grow. */
function watched(where, f) {
  const begun = process.cpuUsage();
  try {
    return f();
  } finally {
    const { user, system } = process.cpuUsage(begun);
    const seconds = (user + system) / 1e6;
    if (seconds > Number(slowest)) throw new assert.AssertionError({ message: `${where} computed for ${seconds.toFixed(1)} s` });
    const now = process.memoryUsage.rss();
    const grown = now - rss;
    rss = now;
    if (grown > mostGrowth) throw new assert.AssertionError({ message: `${where}: the process grew by ${grown >> 20} MB` });
  }
}

// Numbers that are the same in every run.
let state = Number(seed);
function random(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
}
const pick = (list) => list[random(list.length)];

const tensors = () => [
  () => st.tensor(1.5), () => st.ones([3]), () => st.randn([2, 3]), () => st.randn([2, 3]).t(), () => st.zeros([0, 3]), () => st.randn([1, 2, 4, 4]),
  () => st.tensor([[0n, 1n], [1n, 0n]]), () => st.tensor([5n, -7n, 100n]), () => st.tensor([true, false, true]),
  () => st.tensor([NaN, Infinity, -Infinity]), () => st.ones([3], { dtype: 'bf16' }), () => st.ones([2, 2], { dtype: 'i8' }),
  () => st.ones([3, 3], { requiresGrad: true }), () => st.ones([2, 3], { device: 'meta' }), () => st.ones([1]).expand([4]),
  () => { const t = st.ones([2]); t.dispose(); return t; },
];
const integers = [0, 1, 2, 3, -1, -2, 7, 1000003, 2 ** 53 - 1, -(2 ** 53 - 1), 2n ** 63n - 1n, -(2n ** 63n)];
const junk = () => [null, undefined, NaN, Infinity, -0, 0.5, '', 'mean', 'f32', 'cuda', {}, [], [null], ['x'], [1, 2, 3, 4, 5, 6, 7, 8, 9], () => 1, Symbol('s'),
  new Float32Array(3), new Date(), { dim: 1 }, { seed: 1n }, { seed: {}, offset: [] }, true, new st.Scalar(1, 'f64'), Promise.resolve(1), Object.create(null),
  new Proxy({}, { get() { throw new Error('from a proxy'); } }), Object.create(st.Tensor.prototype)];

function sensible(type) {
  switch (type.replace('?', '')) {
    case 'Tensor': return pick(tensors())();
    case 'Tensor[]': return Array.from({ length: random(4) }, () => pick(tensors())());
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
    return args.map((a) => (a instanceof st.Tensor ? (a.disposed ? 'disposed' : `${a.dtype}[${a.shape}]${a.requiresGrad ? ' requiresGrad' : ''}`)
      : inspect(a, { breakLength: Infinity, compact: true }))).join(', ');
  } catch {
    return '?';
  }
}
const known = (e, where) => assert.ok(e instanceof st.StrataError || e instanceof TypeError || /from a proxy/.test(e.message),
  `${where}: ${e?.stack ?? String(e)}`);

/** Every record: as a function, in place, as a promise. */
async function ops() {
  const rounds = sanitized ? 20 : 60;
  let results = 0;
  let errors = 0;
  const records = st.describeOps().filter((r) => !r.internal);
  for (const record of records) {
    const pending = [];
    for (let i = 0; i < rounds; ++i) {
      const args = record.args.map((a) => (random(8) === 0 ? pick(junk()) : sensible(a.type)));
      if (random(6) === 0) args.splice(random(args.length + 1));
      if (random(6) === 0) args.push(pick(junk()));
      const form = random(4);
      const where = `${form === 0 ? 'async ' : ''}${record.name}(${show(args)})`;
      note(where);
      try {
        watched(where, () => {
          if (form === 0) {
            pending.push(st.async[record.name](...args).then(() => { ++results; }, (e) => { ++errors; known(e, where); }));
          } else if (form === 1 && args[0] instanceof st.Tensor && args[0][`${record.name}_`]) {
            args[0][`${record.name}_`](...args.slice(1));
          } else {
            const result = st.ops[record.name](...args);
            ++results;
            if (result instanceof st.Tensor && result.requiresGrad && result.device === 'cpu') result.sum().backward();
          }
        });
      } catch (e) {
        ++errors;
        known(e, where);
      }
      // So that a hang or an end while one runs on a pool thread is this one's.
      if (form === 0) await Promise.all(pending.splice(0));
    }
  }
  const many = (records.length * rounds) / 10;
  assert.ok(results > many && errors > many, `${results} results, ${errors} errors`);
}

/** Methods, indices, makers, modules, modes. */
async function others() {
  const values = () => (random(3) === 0 ? pick(tensors())() : random(2) === 0 ? pick(integers) : pick(junk()));
  const methods = Object.getOwnPropertyNames(st.Tensor.prototype).filter((n) => n !== 'constructor');
  const attempt = (f, name, ...args) => {
    const where = `${name}(${show(args)})`;
    note(where);
    try {
      const made = watched(where, () => f(...args));
      if (made instanceof Promise) return made.catch(() => {});
    } catch (e) {
      assert.ok(e instanceof Error && !(e instanceof assert.AssertionError), `${where} threw ${e?.message ?? String(e)}`);
    }
    return undefined;
  };
  for (const name of methods) {
    for (let i = 0; i < 6; ++i) {
      const { value } = Object.getOwnPropertyDescriptor(st.Tensor.prototype, name);
      await attempt((t, ...args) => (typeof value === 'function' ? t[name](...args) : t[name]), name, pick(tensors())(), values(), values());
    }
  }
  const tries = sanitized ? 500 : 2000;
  // (The usual Transformer has more parameters than the tensors may take.)
  const layers = Object.keys(st.nn).filter((name) => /^[A-Z]/.test(name) && name !== 'Transformer');
  const functions = Object.keys(st.nn.functional);
  const optimizers = ['SGD', 'Adam', 'AdamW', 'Lion', 'Adafactor', 'Muon', 'RMSprop', 'Adagrad', 'Adadelta', 'Adamax', 'NAdam', 'RAdam', 'Rprop', 'ASGD', 'LBFGS'];
  for (let i = 0; i < tries; ++i) {
    attempt((t, ...at) => t.at(...at), 'at', pick(tensors())(), values(), values(), [values(), values()]);
    attempt((t, at, v) => t.setAt(at, v), 'setAt', pick(tensors())(), [values(), [values(), values()]], values());
    attempt(st.tensor, 'tensor', values(), { dtype: pick(['f32', 'i64', 'bool', 'zz', undefined]) });
    attempt(st.fromTypedArray, 'fromTypedArray', values(), values(), { dtype: 'f32' });
    attempt(st.grad, 'grad', values(), [values()], { gradOutputs: values() });
    const layer = pick(layers);
    attempt((...args) => new st.nn[layer](...args), layer, values(), values(), values());
    attempt((a, b, c, ...inputs) => {
      const module = new st.nn[layer](a, b, c);
      const y = module.train(random(2) === 0).forward(...inputs);
      if (y instanceof st.Tensor && y.requiresGrad && y.device === 'cpu') y.sum().backward();
      module.dispose();
    }, layer, pick([0, 2, 3, [2, 2], -1, 'x', undefined]), pick([0, 2, 3, 4, [1, 2], -2, {}, undefined]), pick([1, 2, { bias: false }, undefined, junk()]), values(), values(), values());
    attempt(st.nn.functional[pick(functions)], 'functional', values(), values(), values(), pick([values(), { reduction: 'sum' }, { stride: 2 }, undefined]));
    const kind = pick(optimizers);
    attempt((p, lr) => {
      const optimizer = new st.optim[kind]([p], { lr });
      optimizer.step(() => p.mul(p).sum().backward());
      optimizer.loadStateDict(optimizer.stateDict());
      optimizer.step({ maxNorm: lr });
    }, kind, pick([pick(tensors())(), values()]), pick([0.1, 1, values()]));
    attempt(st.fromShared, 'fromShared', values());
    attempt(st.autocast, 'autocast', pick([{}, { dtype: 'f16' }, { enabled: values() }, values()]), () => st.matmul(values(), values()));
    attempt((fn, ...inputs) => st.checkpoint(fn, ...inputs).sum().backward(), 'checkpoint',
      pick([(a, b) => st.mul(a, b), (a) => st.softmax(a, values()), values()]), values(), values());
  }
}

async function main() {
  st.setMemoryLimit(mostTensors);
  rss = process.memoryUsage.rss();
  await ops();
  await others();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
