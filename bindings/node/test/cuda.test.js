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

test('whether convolutions may use TF32', () => {
  assert.equal(st.cuda.allowTf32Convolutions(), true);
  st.cuda.setAllowTf32Convolutions(false);
  assert.equal(st.cuda.allowTf32Convolutions(), false);
  st.cuda.setAllowTf32Convolutions(true);
});

test('what the card is', { skip }, () => {
  const p = st.cuda.getDeviceProperties();
  assert.ok(p.name.length > 0 && p.totalMemory > 2 ** 30 && p.multiProcessorCount > 0);
  assert.equal(st.cuda.getDeviceName('cuda:0'), p.name);
  assert.deepEqual(st.cuda.getDeviceCapability(0), [p.major, p.minor]);
  assert.ok(st.cuda.versions().driver > 0);
  assert.throws(() => st.cuda.getDeviceProperties(99), st.DeviceError);
  assert.throws(() => st.cuda.getDeviceProperties('cpu'), st.ValueError);
  st.cuda.setAllowTf32(true);
  assert.equal(st.cuda.allowTf32(), true);
  st.cuda.setAllowTf32(false);
});

test('streams: current, waiting, memory of other streams', { skip }, async () => {
  const main = st.cuda.currentStream();
  assert.ok(main.equals(st.cuda.defaultStream()) && main.id === 0);
  const side = new st.cuda.Stream();
  assert.ok(side.device === 0 && side.id !== 0 && typeof side.handle === 'bigint' && !side.equals(main));
  const x = st.randn([512, 512], { device: 'cuda' });
  const want = st.matmul(x, x).toTypedArray();
  side.waitStream(main);
  const y = st.cuda.stream(side, () => {
    assert.ok(st.cuda.currentStream().equals(side));
    return st.matmul(x, x);
  });
  st.cuda.recordStream(x, side);
  assert.ok(st.cuda.currentStream().equals(main));
  main.waitStream(side);
  assert.deepEqual(y.toTypedArray(), want);
  side.synchronize();
  assert.equal(side.query(), true);
  // As an object, and taken along by promises.
  const scope = st.cuda.stream(side);
  const promise = st.async.matmul(x, x);
  scope[Symbol.dispose]();
  assert.ok(st.cuda.currentStream().equals(main));
  assert.deepEqual((await promise).toTypedArray(), want);
  await side.synchronizeAsync();
  await st.cuda.synchronizeAsync();
  assert.throws(() => st.cuda.stream(side, () => { throw new Error('mine'); }), /mine/);
  assert.ok(st.cuda.currentStream().equals(main));
  assert.throws(() => st.cuda.stream({}, () => 1), st.ValueError);
});

test('events measure and order', { skip }, async () => {
  const x = st.randn([2048, 2048], { device: 'cuda' });
  st.matmul(x, x);
  const begin = new st.cuda.Event({ enableTiming: true }).record();
  let y = x;
  for (let i = 0; i < 10; ++i) y = st.matmul(x, y.mul(0.01));
  const end = new st.cuda.Event({ enableTiming: true }).record();
  await end.synchronizeAsync();
  assert.equal(end.query(), true);
  const ms = begin.elapsedTime(end);
  assert.ok(ms > 0.05 && ms < 5000, `${ms} ms`);
  const side = new st.cuda.Stream();
  const event = st.cuda.currentStream().recordEvent();
  side.waitEvent(event);
  const z = st.cuda.stream(side, () => y.add(1));
  side.synchronize();
  assert.deepEqual(z.toTypedArray(), y.add(1).toTypedArray());
  assert.throws(() => new st.cuda.Event().record().elapsedTime(end), st.ValueError);
});

test('a graph is recorded once and replayed', { skip }, () => {
  const x = st.randn([64, 64], { device: 'cuda' });
  const w = st.randn([64, 64], { device: 'cuda' });
  st.relu(st.matmul(x, w));
  const graph = new st.cuda.CUDAGraph();
  assert.equal(graph.nodes, null);
  assert.throws(() => graph.replay(), st.DeviceError);
  const y = graph.capture(() => {
    assert.ok(st.cuda.isCurrentStreamCapturing());
    return st.relu(st.matmul(x, w));
  });
  assert.equal(st.cuda.isCurrentStreamCapturing(), false);
  assert.ok(graph.nodes >= 2);
  for (let i = 0; i < 3; ++i) {
    const next = st.randn([64, 64], { device: 'cuda' });
    x.copy_(next);
    graph.replay();
    assert.deepEqual(y.toTypedArray(), st.relu(st.matmul(next, w)).toTypedArray());
  }
  assert.ok(graph.pool.reservedBytes > 0 && graph.pool.device === 0);
  // What cannot be recorded is an error, and the stream as before.
  const other = new st.cuda.CUDAGraph({ pool: graph.pool });
  assert.throws(() => other.capture(() => st.matmul(x, w).sum().item()), st.DeviceError);
  assert.throws(() => other.capture(() => { throw new TypeError('mine'); }), /mine/);
  assert.equal(st.cuda.isCurrentStreamCapturing(), false);
  assert.deepEqual(st.matmul(x, w).shape, [64, 64]);
  const side = new st.cuda.Stream();
  side.waitStream(st.cuda.currentStream());
  const z = other.capture(() => st.add(x, 1), { stream: side });
  st.cuda.synchronize();
  other.replay();
  assert.deepEqual(z.toTypedArray(), x.add(1).toTypedArray());
  other.dispose();
  assert.throws(() => other.replay(), /was disposed/);
  graph[Symbol.dispose]();
});

test('a training step as a graph', { skip }, () => {
  st.manualSeed(1);
  const make = () => new st.nn.Sequential(new st.nn.Linear(8, 32), st.tanh, new st.nn.Linear(32, 1)).to('cuda');
  const net = make();
  const twin = make();
  twin.loadStateDict(net.stateDict());
  const x = st.randn([64, 8], { device: 'cuda' });
  const y = x.sum([1], { keepdim: true });
  const rates = [0.01, 0.01, 0.02, 0.005, 0.01];
  const train = (network, steps) => {
    const optimizer = new st.optim.AdamW(network, { lr: rates[0] });
    const step = () => {
      optimizer.zeroGrad();
      const loss = st.mse_loss(network.forward(x), y);
      loss.backward();
      optimizer.step();
      return loss;
    };
    return steps(optimizer, step);
  };
  const plain = train(twin, (optimizer, step) => rates.map((lr) => {
    optimizer.lr = lr;
    return step().item();
  }));
  const replayed = train(net, (optimizer, step) => {
    const losses = [step().item()];
    const graph = new st.cuda.CUDAGraph();
    const loss = graph.capture(step);
    for (const lr of rates.slice(1)) {
      optimizer.lr = lr;
      graph.replay();
      losses.push(loss.item());
    }
    return losses;
  });
  replayed.forEach((v, i) => assert.ok(Math.abs(v - plain[i]) < 1e-4 * (1 + plain[i]), `${replayed} and ${plain}`));
});

test('autocast and checkpoint on the card', { skip }, async () => {
  const x = st.randn([64, 64], { device: 'cuda' });
  const w = st.randn([64, 64], { device: 'cuda', requiresGrad: true });
  assert.equal(st.autocast({}, () => st.matmul(x, w)).dtype, 'bf16');
  const block = (v) => st.dropout(st.gelu(st.matmul(v, w)), 0.25);
  const gradient = async (f) => {
    w.grad = null;
    st.manualSeed(5);
    await f().sum().backwardAsync();
    return w.grad.toTypedArray();
  };
  assert.deepEqual(await gradient(() => st.checkpoint(block, x)), await gradient(() => block(x)));
});

test('memory of the card', { skip }, () => {
  const before = st.cuda.memoryAllocated();
  const x = st.zeros([1 << 20], { device: 'cuda' });
  assert.ok(st.cuda.memoryAllocated() >= before + (4 << 20));
  assert.ok(st.cuda.memoryReserved() >= st.cuda.memoryAllocated());
  st.zeros([1 << 22], { device: 'cuda' }).dispose();
  assert.ok(st.cuda.maxMemoryAllocated() >= before + (20 << 20));
  assert.ok(st.cuda.maxMemoryReserved() >= st.cuda.memoryReserved());
  st.cuda.resetPeakMemoryStats();
  assert.ok(st.cuda.maxMemoryAllocated('cuda:0') < before + (20 << 20));
  assert.ok(st.cuda.memorySnapshot().length >= 1);
  assert.ok(st.cuda.memoryStats(0).allocations > 0);
  st.cuda.emptyCache();
  const fraction = st.cuda.setMemoryFraction(0.5);
  assert.equal(st.cuda.setMemoryFraction(fraction), 0.5);
  assert.equal(x.at(0).item(), 0);
});

test('without a card the reason is said', { skip: st.cuda.isAvailable() ? 'there is a card' : false }, () => {
  assert.equal(st.cuda.deviceCount(), 0);
  assert.ok(st.cuda.unavailableReason().length > 0);
  assert.throws(() => st.ones([2]).cuda(), st.DeviceError);
  assert.throws(() => st.cuda.synchronize(), st.DeviceError);
  for (const f of [() => new st.cuda.Stream(), () => st.cuda.currentStream(), () => new st.cuda.Event(), () => new st.cuda.CUDAGraph(),
    () => st.cuda.graphPoolHandle(), () => st.cuda.getDeviceName(), () => st.cuda.memoryStats(), () => st.cuda.setMemoryFraction(0.5)]) {
    assert.throws(f, st.DeviceError, String(f));
  }
  assert.equal(st.cuda.memoryAllocated() + st.cuda.maxMemoryAllocated() + st.cuda.memoryReserved(), 0);
  assert.equal(st.cuda.isCurrentStreamCapturing(), false);
  st.cuda.emptyCache();
  assert.equal(typeof st.cuda.versions().runtime, 'number');
});
