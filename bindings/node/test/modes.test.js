'use strict';
// Autocast, recomputation and the other modes: as functions, as objects for `using`, and what promises take with them.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const v8 = require('node:v8');
const vm = require('node:vm');
const { Worker } = require('node:worker_threads');
const st = require('../lib/index.js');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');
const close = (a, b, tolerance = 1e-6) => {
  const [x, y] = [a, b].map((t) => Array.from(t.to('f64').toTypedArray()));
  assert.equal(x.length, y.length);
  x.forEach((v, i) => assert.ok(Math.abs(v - y[i]) <= tolerance * (1 + Math.abs(y[i])), `[${i}] ${v} and ${y[i]}`));
};

test('autocast runs linear layers in fp8, but for those that are left out', () => {
  const [body, head, x] = [new st.nn.Linear(32, 32), new st.nn.Linear(32, 16), st.randn([8, 32])];
  st.noGrad(() => {
    const plain = st.autocast(() => body.forward(x));
    for (const fp8 of ['tensor', 'row']) {
      const want = st.linear_fp8(x.to('bf16'), body.weight, body.bias.to('bf16'), fp8);
      close(st.autocast({ fp8 }, () => body.forward(x)), want, 0);
      assert.throws(() => close(plain, want, 1e-4));
      for (const out of [body, body.weight]) {
        close(st.autocast({ fp8, fp8Exclude: [head, out] }, () => body.forward(x)), plain, 0);
      }
    }
  });
  st.autocast({ fp8: 'tensor' }, () => head.forward(body.forward(x)).to('f32').sum()).backward();
  assert.equal(body.weight.grad.dtype, 'f32');
  assert.throws(() => st.autocast({ fp8: 'block' }, () => 1), /scaling/);
  assert.throws(() => st.autocast({ dtype: 'f16', fp8: 'tensor' }, () => 1), /bf16/);
});

test('autocast runs products in bf16 or f16, and leaves parameters as they are', () => {
  const x = st.randn([4, 8]);
  const net = new st.nn.Linear(8, 3);
  assert.equal(st.isAutocastEnabled(), false);
  const y = st.autocast({ dtype: 'f16' }, () => {
    assert.ok(st.isAutocastEnabled());
    assert.equal(st.autocastDtype(), 'f16');
    const h = net.forward(x);
    assert.equal(h.dtype, 'f16');
    assert.equal(st.softmax(h, -1).dtype, 'f32', 'a softmax wants its precision');
    assert.equal(st.autocast({ enabled: false }, () => net.forward(x).dtype), 'f32');
    return h;
  });
  assert.equal(st.isAutocastEnabled(), false);
  close(y, net.forward(x), 1e-2);
  y.to('f32').square().sum().backward();
  assert.equal(net.weight.grad.dtype, 'f32');
  assert.equal(st.autocast(() => x.matmul(x.t()).dtype), 'bf16');
  const low = new st.nn.Linear(8, 3);
  st.autocast({ lowGradients: true }, () => low.forward(x).to('f32').sum()).backward();
  assert.equal(low.weight.grad.dtype, 'bf16');
  new st.optim.AdamW(low).step();
  assert.throws(() => st.autocast({ dtype: 'f32' }, () => 1), st.DTypeError);
  assert.throws(() => st.autocast({ type: 'bf16' }, () => 1), /no option 'type'/);
  assert.throws(() => st.autocast({}, async () => 1), /async function/);
  assert.throws(() => st.autocast({}, () => { throw new Error('mine'); }), /mine/);
  assert.equal(st.isAutocastEnabled(), false);
});

test('modes as objects end once, innermost first', () => {
  const outer = st.autocast({ dtype: 'bf16' });
  const inner = st.autocast({ dtype: 'f16' });
  assert.equal(st.autocastDtype(), 'f16');
  inner[Symbol.dispose]();
  assert.equal(st.autocastDtype(), 'bf16');
  inner.dispose();
  const third = st.noGrad();
  assert.equal(st.isGradEnabled(), false);
  assert.throws(() => outer.dispose(), /began later/);
  assert.ok(!st.isAutocastEnabled() && st.isGradEnabled());
  third.dispose();
  assert.ok(st.isGradEnabled());
});

test('promises keep the modes of their call', async () => {
  const x = st.randn([8, 8]);
  const w = st.randn([8, 8], { requiresGrad: true });
  const started = st.autocast({ dtype: 'f16' }, () => [st.async.matmul(x, w), st.noGrad(() => st.async.matmul(x, w))]);
  const plain = st.async.matmul(x, w);
  const [a, b, c] = await Promise.all([...started, plain]);
  assert.deepEqual([a.dtype, b.dtype, c.dtype], ['f16', 'f16', 'f32']);
  assert.deepEqual([a.requiresGrad, b.requiresGrad, c.requiresGrad], [true, false, true]);
  // Parameters' casts are kept with them: many threads at once.
  for (let i = 0; i < 20; ++i) {
    const many = st.noGrad(() => st.autocast({}, () => Array.from({ length: 8 }, () => st.async.matmul(x, w))));
    for (const y of await Promise.all(many)) assert.equal(y.dtype, 'bf16');
    st.noGrad(() => w.add_(1));
  }
});

function block(w) {
  return (x, scale) => st.dropout(st.gelu(x.matmul(w)), 0.5).mul(scale);
}
test('checkpoint gives the same gradients, and the same random numbers', async () => {
  const x = st.randn([16, 8], { requiresGrad: true });
  const w = st.randn([8, 8], { requiresGrad: true });
  const run = (f) => {
    st.manualSeed(3);
    return f();
  };
  const want = run(() => block(w)(x, 2));
  want.sum().backward();
  const [gx, gw] = [x.grad, w.grad];
  for (const how of ['backward', 'backwardAsync', 'nested', 'grad', 'retain']) {
    x.grad = null;
    w.grad = null;
    let runs = 0;
    const counted = (...args) => {
      ++runs;
      return block(w)(...args);
    };
    const y = run(() => (how === 'nested' ? st.checkpoint((v) => st.checkpoint(counted, v, 2), x) : st.checkpoint(counted, x, 2)));
    assert.deepEqual(y.toArray(), want.toArray());
    assert.equal(runs, 1);
    if (how === 'backwardAsync') {
      await y.sum().backwardAsync();
    } else if (how === 'grad') {
      [x.grad, w.grad] = st.grad(y.sum(), [x, w]);
    } else {
      const sum = y.sum();
      sum.backward(null, { retainGraph: how === 'retain' });
      if (how === 'retain') {
        x.grad = null;
        w.grad = null;
        sum.backward();
        assert.equal(runs, 3);
      }
    }
    assert.deepEqual(x.grad.toArray(), gx.toArray(), how);
    assert.deepEqual(w.grad.toArray(), gw.toArray(), how);
    assert.ok(runs >= 2, how);
  }
});

test('checkpoint takes any arguments and returns what the function returns', () => {
  const x = st.randn([3], { requiresGrad: true });
  const made = st.checkpoint((options, a, list) => ({ first: a.mul(options.by), list, none: null }), { by: 3 }, x, [1, 2]);
  assert.deepEqual([made.list, made.none], [[1, 2], null]);
  made.first.sum().backward();
  assert.deepEqual(x.grad.toArray(), [3, 3, 3]);
  assert.equal(st.noGrad(() => st.checkpoint((a) => a.mul(2), x)).requiresGrad, false);
  assert.throws(() => st.checkpoint(async (a) => a, x), st.ValueError);
  assert.throws(() => st.checkpoint((a) => Promise.resolve(a), x), /must not be async/);
  assert.throws(() => st.checkpoint(() => { throw new TypeError('mine'); }, x), /mine/);
  assert.throws(() => st.checkpoint(3), st.ValueError);
  // Autocast is as it was in the forward pass.
  const net = new st.nn.Linear(3, 3);
  const dtypes = [];
  const y = st.autocast({}, () => st.checkpoint((a) => {
    const h = net.forward(a);
    dtypes.push(h.dtype);
    return h.to('f32').square();
  }, x));
  y.sum().backward();
  assert.deepEqual(dtypes, ['bf16', 'bf16']);
});

test('what goes wrong in the second run comes out of backward', async () => {
  const x = st.randn([3], { requiresGrad: true });
  let runs = 0;
  const odd = (f) => {
    runs = 0;
    return st.checkpoint((a) => (++runs === 1 ? st.exp(a).mul(a) : f(a)), x).sum();
  };
  assert.throws(() => odd((a) => a.add(1)).backward(), /the function saved .* tensors in the forward pass and 0/);
  assert.throws(() => odd(() => { throw new TypeError('mine'); }).backward(), (e) => e instanceof TypeError && e.message === 'mine');
  await assert.rejects(odd(() => { throw new TypeError('mine'); }).backwardAsync(), (e) => e instanceof TypeError && e.message === 'mine');
  // A function that catches everything does not keep backward from its gradient.
  x.grad = null;
  const y = st.checkpoint((a) => {
    let h = a;
    for (let i = 0; i < 3; ++i) {
      try {
        h = h.mul(a);
      } catch {
        // the engine's way to end the second run
      }
    }
    return h;
  }, x);
  y.sum().backward();
  close(x.grad, x.detach().pow(3).mul(4), 1e-5);
});

test('checkpoint holds the inputs only, and lets go of everything', () => {
  const layers = Array.from({ length: 8 }, () => new st.nn.Linear(256, 256));
  const x = st.randn([256, 256]);
  const run = (h) => layers.reduce((v, l) => st.gelu(l.forward(v)), h);
  const held = (f) => {
    gc();
    const before = st.memoryStats().live;
    const y = f();
    gc();
    const now = st.memoryStats().live - before;
    y.sum().backward();
    return now;
  };
  held(() => run(x));
  const plain = held(() => run(x));
  const less = held(() => st.checkpoint(run, x));
  assert.ok(less < plain / 2, `${less} and ${plain} bytes`);
  const w = st.randn([8, 8], { requiresGrad: true });
  const many = (n) => {
    for (let i = 0; i < n; ++i) {
      const y = st.checkpoint((a) => a.matmul(w).tanh(), x.narrow(0, 0, 8).narrow(1, 0, 8));
      if (i % 2) y.sum().backward();
      w.grad = null;
    }
    gc();
    return st.memoryStats().blocks;
  };
  const blocks = many(10);
  assert.ok(many(500) <= blocks + 5, 'checkpoints are still held');
  const parts = new st.nn.Sequential(...layers);
  const whole = parts.forward(x);
  close(st.checkpointSequential(parts, 4, x), whole);
  close(st.checkpointSequential(layers, 3, x), whole);
  assert.throws(() => st.checkpointSequential(layers, 9, x), st.ValueError);
});

test('hooks on saved tensors', async () => {
  const x = st.tensor([1, 2, 3], { requiresGrad: true });
  const log = [];
  const pack = (t) => {
    log.push('pack');
    return { kept: t.to('f64') };
  };
  const unpack = ({ kept }) => {
    log.push('unpack');
    return kept.to('f32');
  };
  const y = st.savedTensorsHooks(pack, unpack, () => x.mul(x).sum());
  await y.backwardAsync();
  assert.deepEqual(x.grad.toArray(), [2, 4, 6]);
  assert.deepEqual(log.sort(), ['pack', 'pack', 'unpack', 'unpack']);
  assert.throws(() => st.savedTensorsHooks(pack, () => 3, () => x.mul(x).sum()).backward(), /what unpack\(\) returned must be a Tensor/);
  assert.throws(() => st.savedTensorsHooks(() => { throw new Error('mine'); }, unpack, () => x.mul(x)), /mine/);
});

test('detectAnomaly names the op of the first NaN', () => {
  const x = st.tensor([-1], { requiresGrad: true });
  assert.throws(() => st.detectAnomaly(() => st.sqrt(x).sum().backward()), (e) => e instanceof st.AutogradError && /sqrt/.test(e.message));
  st.sqrt(x).sum().backward();
});

test('gradcheck compares with differences', () => {
  const x = st.randn([3], { dtype: 'f64', requiresGrad: true });
  assert.ok(st.gradcheck((a) => st.exp(a).mul(a), [x]));
  assert.ok(st.gradgradcheck((a) => a.mul(a).mul(a), x));
  class Wrong extends st.Function {
    static forward(ctx, a) { return a.mul(2); }
    static backward(ctx, g) { return g.mul(3); }
  }
  assert.throws(() => st.gradcheck((a) => Wrong.apply(a), [x]), /^AutogradError: gradcheck: /);
  assert.equal(st.gradcheck((a) => Wrong.apply(a), [x], { throws: false }), false);
  assert.throws(() => st.gradcheck((a) => a, [st.ones([2], { requiresGrad: true })]), st.DTypeError);
});

test('modes are each thread\'s own', async () => {
  const entry = JSON.stringify(path.join(__dirname, '../lib/index.js'));
  const mode = st.autocast();
  try {
    const worker = new Worker(`const st = require(${entry}); require('node:worker_threads').parentPort.postMessage(st.isAutocastEnabled());`, { eval: true });
    assert.equal(await new Promise((resolve, reject) => { worker.once('message', resolve).once('error', reject); }), false);
  } finally {
    mode.dispose();
  }
});

test('memory: statistics by tag, the peak, a snapshot, a limit', () => {
  const x = st.zeros([1 << 20]);
  const before = st.memoryStats();
  assert.ok(before.live >= 4 << 20 && before.blocks >= 1 && before.reserved >= before.live);
  assert.ok(before.liveByTag.activation >= 4 << 20);
  st.zeros([1 << 22]).dispose();
  assert.ok(st.memoryStats().peak >= before.live + (16 << 20));
  st.resetPeakMemoryStats();
  assert.ok(st.memoryStats().peak < before.live + (16 << 20));
  const blocks = st.memorySnapshot();
  assert.ok(blocks.some((b) => Object.values(b).includes(x.nbytes)), JSON.stringify(blocks[0]));
  st.emptyCache();
  const limit = st.setMemoryLimit(st.memoryStats().live + (1 << 20));
  try {
    assert.throws(() => st.zeros([1 << 22]), st.MemoryError);
  } finally {
    st.setMemoryLimit(limit);
  }
  assert.equal(st.zeros([1 << 22]).numel, 1 << 22);
});
