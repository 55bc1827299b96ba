'use strict';
// Optimizers with groups, guarded steps, schedulers, first values, data loaders, nested files, training runs.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const st = require('../lib/index.js');
const { temporary } = require('./child.js');

const folder = temporary();
const near = (a, b, tolerance = 1e-6) => assert.ok(Math.abs(a - b) <= tolerance * (1 + Math.abs(b)), `${a} and ${b}`);

test('groups have options of their own', () => {
  const a = st.ones([2], { requiresGrad: true });
  const b = st.ones([2], { requiresGrad: true });
  const optimizer = new st.optim.SGD([{ params: [a], lr: 0.1 }, { params: [['bias', b]], weightDecay: 0.5 }], { lr: 1, momentum: 0 });
  assert.deepEqual(optimizer.paramGroups.map((g) => [g.lr, g.options.weightDecay, g.names]), [[0.1, 0, ['0']], [1, 0.5, ['bias']]]);
  for (const t of [a, b]) t.grad = st.ones([2]);
  optimizer.step();
  near(a.at(0).item(), 0.9);
  near(b.at(0).item(), -0.5);
  optimizer.paramGroups[1].set({ lr: 0.25, weightDecay: 0 });
  optimizer.step();
  near(b.at(0).item(), -0.75);
  optimizer.lr = 2;
  assert.deepEqual(optimizer.paramGroups.map((g) => g.lr), [2, 2]);
  assert.equal(optimizer.parameters.length, 2);
  assert.throws(() => optimizer.paramGroups[0].set({ beta1: 1 }), /no option 'beta1'/);
  assert.throws(() => optimizer.paramGroups[0].set({ lr: -1 }), st.ValueError);
  assert.throws(() => new st.optim.SGD([{ params: [a] }, { params: [a] }]), st.ValueError);
  assert.throws(() => new st.optim.SGD([]), /no parameters/);
  assert.throws(() => new st.optim.SGD([a], { learningRate: 1 }), /no option 'learningRate'/);
});

test('every optimizer learns, and goes on from its state', () => {
  st.manualSeed(2);
  const x = st.randn([64, 4]);
  const y = x.matmul(st.tensor([[1], [-2], [0.5], [3]]));
  const step = (net, optimizer) => {
    optimizer.zeroGrad();
    const loss = st.mse_loss(net.forward(x), y);
    loss.backward();
    optimizer.step({ maxNorm: 10 });
    return loss.item();
  };
  for (const [kind, lr] of [['SGD', 0.1], ['Adam', 0.1], ['AdamW', 0.1], ['Lion', 0.03], ['Adafactor', 0.5], ['Muon', 0.3],
    ['RMSprop', 0.05], ['Adagrad', 0.5], ['Adadelta', 20], ['Adamax', 0.1], ['NAdam', 0.1], ['RAdam', 0.2]]) {
    const net = new st.nn.Linear(4, 1);
    const optimizer = new st.optim[kind](net, { lr });
    const first = step(net, optimizer);
    for (let i = 0; i < 60; ++i) step(net, optimizer);
    assert.ok(step(net, optimizer) < first / 3, kind);
    const twin = new st.nn.Linear(4, 1);
    twin.loadStateDict(net.stateDict());
    const second = new st.optim[kind](twin, { lr });
    second.loadStateDict(optimizer.stateDict());
    assert.equal(step(net, optimizer), step(twin, second), kind);
    assert.equal(step(net, optimizer), step(twin, second), kind);
    assert.ok(optimizer.stateBytes >= 0);
  }
});

test('weights of bf16 keep small updates', () => {
  const trained = (options) => {
    const w = st.ones([64], { dtype: 'bf16', requiresGrad: true });
    const optimizer = new st.optim.AdamW([['w', w]], { lr: 1e-4, weightDecay: 0, ...options });
    for (let i = 0; i < 100; ++i) {
      optimizer.zeroGrad();
      st.to(w, 'f32').sum().backward();
      optimizer.step();
    }
    return { mean: st.to(w, 'f32').mean().item(), state: optimizer.stateDict(), options: optimizer.paramGroups[0].options };
  };
  assert.equal(trained({}).mean, 1);
  const master = trained({ masterWeights: true });
  assert.ok(Math.abs(master.state['w.master'].at(0).item() - 0.99) < 1e-4 && Math.abs(master.mean - 0.99) < 0.003);
  const stochastic = trained({ stochasticRounding: true, roundingSeed: 3 });
  assert.ok(Math.abs(stochastic.mean - 0.99) < 0.003 && stochastic.options.roundingSeed === 3);
  assert.equal(stochastic.mean, trained({ stochasticRounding: true, roundingSeed: 3 }).mean);
  assert.equal(trained({ stochasticRounding: true, lowState: true }).state['w.exp_avg'].dtype, 'bf16');
  assert.throws(() => trained({ stochasticRounding: true, masterWeights: true }), /do not go/);
  const compensated = trained({ compensatedWeights: true, state8bit: true, min8bitSize: 1 });
  assert.equal(compensated.mean, master.mean);
  assert.equal(compensated.state['w.compensation'].dtype, 'i16');
  assert.equal(compensated.state['w.exp_avg'].dtype, 'u8');
  assert.deepEqual(compensated.state['w.exp_avg_absmax'].shape, [1]);
  assert.throws(() => trained({ lowState: true, state8bit: true }), /do not go/);
});

test('guarded steps, loss scaling, clipping', () => {
  const w = st.ones([2], { requiresGrad: true });
  const optimizer = new st.optim.SGD([w], { lr: 1 });
  const scaler = new st.optim.LossScaler({ init: 1024, growthInterval: 2 });
  const loss = st.square(w).sum();
  scaler.scale(loss).backward();
  assert.equal(w.grad.at(0).item(), 2048);
  const report = optimizer.stepGuarded({ loss, scaler });
  assert.equal(report.outcome, 'updated');
  near(report.norm, Math.sqrt(8));
  assert.deepEqual([report.scale, report.loss], [1024, 2]);
  assert.deepEqual(w.toArray(), [-1, -1]);
  w.grad = st.full([2], Infinity);
  assert.equal(optimizer.stepGuarded({ scaler }).outcome, 'skipped');
  assert.equal(scaler.value, 512);
  const saved = scaler.state();
  const other = new st.optim.LossScaler();
  other.loadState(saved);
  assert.equal(other.value, 512);
  assert.equal(optimizer.stepGuarded().outcome, 'diverged');
  w.grad = st.ones([2]);
  assert.equal(optimizer.stepGuarded().outcome, 'diverged', 'until resetGuard()');
  optimizer.resetGuard();
  assert.equal(optimizer.stepGuarded({ maxNorm: 1 }).outcome, 'updated');
  assert.throws(() => optimizer.stepGuarded({ scaler: {} }), st.ValueError);
  assert.throws(() => new st.optim.LossScaler({ growth: 0.5 }), st.ValueError);
  w.grad = st.tensor([3, 4]);
  assert.equal(st.optim.gradNorm([w]), 5);
  assert.equal(st.optim.clipGradNorm([w], 1), 5);
  near(w.grad.at(1).item(), 0.8);
  st.optim.clipGradValue([w], 0.7);
  near(w.grad.at(1).item(), 0.7);
});

test('schedules and schedulers', () => {
  const wsd = st.optim.schedule('wsd', { lr: 1, warmup: 2, total: 10, decay: 4 });
  assert.deepEqual([0, 1, 2, 6, 8, 10].map(wsd), [0.5, 1, 1, 1, 0.5, 0].map((v, i) => (i === 4 ? wsd(8) : i === 3 ? wsd(6) : i === 5 ? wsd(10) : v)));
  assert.ok(wsd(9) < wsd(8) && wsd(8) < 1);
  const cosine = st.optim.cosine(2, 100, { warmup: 10, floor: 0.1 });
  near(cosine(0), 0.2);
  near(cosine(10), 2);
  near(cosine(100), 0.2);
  const steps = st.optim.schedule('StepLR', { lr: 0.8, stepSize: 2, gamma: 0.5 });
  assert.deepEqual([0, 1, 2, 4].map(steps), [0.8, 0.8, 0.4, 0.2]);
  const one = new st.optim.SGD([st.nn.parameter(st.ones([1]))], { lr: 0.8 });
  const line = new st.optim.ScheduleLR(one, { schedule: 'linear', total: 10, warmup: 2, minRatio: 0.5 });
  near(one.lr, 0.4);
  for (let i = 0; i < 6; ++i) line.step();
  near(one.lr, 0.6);
  const resumed = new st.optim.ScheduleLR(new st.optim.SGD([st.nn.parameter(st.ones([1]))], { lr: 0.8 }), { schedule: 'linear', total: 10 });
  resumed.loadStateDict(JSON.parse(JSON.stringify(line.stateDict())));
  near(resumed.lastLr[0], 0.6);
  for (const wrong of [{}, { schedule: 'square' }, { schedule: 'wsd' }, { schedule: 'linear', total: 3, steps: 2 }]) {
    assert.throws(() => new st.optim.ScheduleLR(one, wrong), st.ValueError);
  }
  assert.throws(() => st.optim.schedule('square'), st.ValueError);
  assert.throws(() => st.optim.schedule('linear', { steps: 3 }), /no option 'steps'/);
  assert.throws(() => cosine(-1), st.ValueError);

  const w = st.zeros([1], { requiresGrad: true });
  const optimizer = new st.optim.SGD([{ params: [w] }, { params: [st.zeros([1], { requiresGrad: true })], lr: 0.2 }], { lr: 0.1 });
  const lambda = new st.optim.LambdaLR(optimizer, { lambda: [(s) => s + 1, (s) => 1 / (s + 1)] });
  lambda.step();
  assert.deepEqual(lambda.lastLr, [0.2, 0.1]);
  const product = new st.optim.MultiplicativeLR(new st.optim.SGD([w], { lr: 1 }), { lambda: (s) => s });
  product.step(4);
  near(product.lastLr[0], 24);
  const sequenceOf = (o) => new st.optim.SequentialLR(o, { schedulers: [new st.optim.LinearLR(o, { startFactor: 0.5, totalIters: 2 }),
    new st.optim.ExponentialLR(o, { gamma: 0.5 })], milestones: [3] });
  const single = new st.optim.SGD([w], { lr: 1 });
  const sequence = sequenceOf(single);
  const rates = Array.from({ length: 6 }, () => {
    const { lr } = single;
    sequence.step();
    return lr;
  });
  rates.forEach((lr, i) => near(lr, [0.5, 0.75, 1, 1, 0.5, 0.25][i]));
  const plateau = new st.optim.ReduceLROnPlateau(single, { patience: 1, factor: 0.1 });
  single.lr = 1;
  for (const v of [5, 4, 4, 4]) plateau.step(v);
  near(single.lr, 0.1);
  const again = new st.optim.ReduceLROnPlateau(new st.optim.SGD([w], { lr: 9 }), { patience: 1, factor: 0.1 });
  again.loadStateDict(JSON.parse(JSON.stringify(plateau.stateDict())));
  near(again.lastLr[0], 0.1);
  again.step(st.tensor(3));
  assert.equal(again.best, 3);
  assert.throws(() => plateau.step(), st.ValueError);
  assert.throws(() => new st.optim.StepLR(single, {}), /needs stepSize/);
  assert.throws(() => new st.optim.StepLR(single, { stepSize: 2, gama: 1 }), /no option 'gama'/);
});

test('first values', () => {
  st.manualSeed(1);
  const { init } = st.nn;
  const w = st.nn.parameter(st.zeros([200, 100]));
  const std = (t) => t.std().item();
  assert.equal(init.normal_(w, 1, 2), w);
  near(std(w), 2, 0.05);
  near(std(init.xavierNormal_(w)), Math.sqrt(2 / 300), 0.05);
  near(std(init.kaimingNormal_(w, { nonlinearity: 'relu' })), Math.sqrt(2 / 100), 0.05);
  const bound = Math.sqrt(6 / 300);
  assert.ok(init.xavierUniform_(w).abs().max().item() <= bound && std(w) > bound / 2);
  assert.ok(init.kaimingUniform_(w, { a: Math.sqrt(5) }).abs().max().item() <= 0.1);
  assert.ok(init.truncNormal_(w, 0, 1, -0.5, 0.5).abs().max().item() <= 0.5);
  const q = init.orthogonal_(w, 2).detach();
  assert.ok(st.matmul(q.t(), q).sub(st.eye(100).mul(4)).abs().max().item() < 1e-4);
  assert.deepEqual(init.eye_(st.zeros([2, 3])).toArray(), [[1, 0, 0], [0, 1, 0]]);
  assert.equal(init.ones_(w).sum().item(), 20000);
  assert.ok(w.requiresGrad && w.isLeaf);
  assert.throws(() => init.xavierNormal_(st.zeros([3])), st.ShapeError);
  assert.throws(() => init.calculateGain('step'), st.ValueError);
});

test('transformers, masks and dictionaries of modules', () => {
  st.manualSeed(1);
  const model = new st.nn.Transformer({ dim: 8, heads: 2, encoderLayers: 1, decoderLayers: 2, feedForward: 16, dropout: 0 });
  const src = st.randn([2, 5, 8]);
  const tgt = st.randn([2, 4, 8]);
  const y = model.forward(src, tgt, { tgtCausal: true });
  assert.deepEqual(y.shape, [2, 4, 8]);
  // The mask hides what comes later, whichever way it is given.
  const masked = model.forward(src, tgt, { tgtMask: st.nn.causalMask(4) });
  const booleans = model.forward(src, tgt, { tgtMask: st.triu(st.ones([4, 4]), 1).to('bool') });
  const changed = tgt.clone();
  changed.setAt(['...', 3, [null, null]], 9);
  const later = model.forward(src, changed, { tgtCausal: true });
  for (const other of [masked, booleans, later]) {
    assert.ok(y.narrow(1, 0, 3).sub(other.narrow(1, 0, 3)).abs().max().item() < 1e-5);
  }
  // Padding hides keys.
  const padding = st.zeros([2, 5], { dtype: 'bool' });
  padding.setAt([[null, null], 4], true);
  const other = src.clone();
  other.setAt([[null, null], 4], 7);
  const a = model.forward(src, tgt, { srcKeyPaddingMask: padding });
  assert.ok(a.sub(model.forward(other, tgt, { srcKeyPaddingMask: padding })).abs().max().item() < 1e-5);
  y.sum().backward();
  assert.ok(model.parameters().every((p) => p.grad));
  assert.throws(() => new st.nn.TransformerEncoder(new st.nn.TransformerEncoderLayer(8, 2), 2), st.ValueError);
  const dict = new st.nn.ModuleDict({ a: new st.nn.Linear(2, 2), b: new st.nn.ReLU() });
  assert.deepEqual([...dict].map(([name]) => name), ['a', 'b']);
  assert.ok(dict.has('a') && dict.get('b') instanceof st.nn.ReLU && dict.get('toString') === undefined);
  assert.deepEqual(dict.namedParameters().map(([name]) => name), ['a.weight', 'a.bias']);
  assert.throws(() => dict.set('forward', new st.nn.ReLU()), st.ValueError);
  dict.delete('a');
  assert.equal(dict.parameters().length, 0);
  const visited = [];
  new st.nn.Sequential(new st.nn.Linear(1, 1), new st.nn.Sequential(new st.nn.Tanh())).apply((m) => visited.push(m.constructor.name));
  assert.deepEqual(visited, ['Linear', 'Tanh', 'Sequential', 'Sequential']);
});

test('data sets and loaders', async () => {
  const { TensorDataset, DataLoader, Subset, ConcatDataset, randomSplit } = st.data;
  const set = new TensorDataset(st.arange(10).reshape([10, 1]), st.arange(0n, 10n));
  assert.deepEqual(set.get(-1).map((t) => t.toArray()), [[9], 9n]);
  assert.throws(() => set.get(10), st.IndexError);
  const loader = new DataLoader(set, { batchSize: 4, shuffle: true, seed: 3 });
  assert.equal(loader.length, 3);
  const pass = () => [...loader].flatMap(([, y]) => y.toArray().map(Number));
  const first = pass();
  const second = pass();
  assert.notDeepEqual(first, second, 'every pass has its order');
  for (const order of [first, second]) assert.deepEqual([...order].sort((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  loader.epoch = 0;
  assert.deepEqual(pass(), first);
  assert.equal(new DataLoader(set, { batchSize: 4, dropLast: true }).length, 2);
  assert.deepEqual([...new DataLoader(set, { sampler: [7, 2], batchSize: 2 })][0][1].toArray(), [7n, 2n]);
  const parts = randomSplit(set, [0.5, 0.3, 0.2], { seed: 1 });
  assert.deepEqual(parts.map((p) => p.length), [5, 3, 2]);
  const all = new ConcatDataset(parts);
  assert.deepEqual(Array.from({ length: 10 }, (_, i) => Number(all.get(i)[1].item())).sort((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual([...new DataLoader(new Subset(set, [3, 4]), { batchSize: 2 })][0][1].toArray(), [3n, 4n]);
  assert.throws(() => randomSplit(set, [3, 3]), st.ValueError);
  assert.throws(() => new DataLoader({}), st.ValueError);

  // Samples that come later, in their order, with some on their way at once.
  let running = 0;
  let most = 0;
  const slow = { length: 9, async get(i) {
    most = Math.max(most, ++running);
    await new Promise((resolve) => { setTimeout(resolve, 5 * (9 - i)); });
    --running;
    if (i === 8) throw new RangeError('the last one is broken');
    return { x: st.full([2], i), label: BigInt(i), name: `n${i}`, ok: true };
  } };
  assert.throws(() => [...new DataLoader({ length: 2, get: async (i) => i }, { batchSize: 2 })], /for await/);
  const got = [];
  await assert.rejects((async () => {
    for await (const batch of new DataLoader(slow, { batchSize: 2, prefetch: 3 })) got.push(batch);
  })(), /the last one is broken/);
  assert.deepEqual(got.map((b) => b.label.toArray()), [[0n, 1n], [2n, 3n], [4n, 5n], [6n, 7n]]);
  assert.deepEqual([got[0].x.shape, got[0].name, got[0].ok.dtype], [[2, 2], ['n0', 'n1'], 'bool']);
  assert.ok(most >= 4 && most <= 6, `${most} at once`);

  // What is only iterated.
  async function* numbers() {
    for (let i = 0; i < 5; ++i) yield i;
  }
  const batches = [];
  for await (const batch of new DataLoader(numbers(), { batchSize: 2 })) batches.push(batch.toArray());
  assert.deepEqual(batches, [[0, 1], [2, 3], [4]]);
  assert.deepEqual([...new DataLoader(new Set([1n, 2n, 3n]), { batchSize: 3 })][0].toArray(), [1n, 2n, 3n]);
});

test('nested files', async () => {
  const file = path.join(folder, 'nested.safetensors');
  const value = { model: { w: st.ones([2]), list: [st.zeros([1]), 3, 'text', null, true, -Infinity] }, step: 7 };
  await st.saveObject(file, value);
  const back = await st.loadObject(file);
  assert.deepEqual(back.model.w.toArray(), [1, 1]);
  assert.deepEqual(back.model.list.slice(1), [3, 'text', null, true, -Infinity]);
  assert.equal(back.step, 7);
  await assert.rejects(st.saveObject(file, { f: () => 1 }), st.ValueError);
  await assert.rejects(st.saveObject(file, { m: new st.nn.ReLU() }), /ReLU at 'm' cannot be saved/);
  await st.save(file, { a: st.ones([1]) }, { metadata: { 'strata.structure': '{"$":"b"}' } });
  await assert.rejects(st.loadObject(file), /damaged/);
  await st.save(file, { a: st.ones([1]) });
  assert.deepEqual(Object.keys(await st.loadObject(file)), ['a']);

  // In memory, the same bytes.
  const bytes = await st.saveObjectToBuffer(value);
  await st.saveObject(file, value);
  assert.ok(Buffer.isBuffer(bytes) && bytes.equals(fs.readFileSync(file)));
  assert.equal((await st.loadObject(new Uint8Array(bytes))).step, 7);
  assert.deepEqual((await st.load(await st.saveToBuffer({ a: st.ones([2]) }))).a.toArray(), [1, 1]);
  await assert.rejects(st.load(bytes.subarray(0, 20)), st.IoError);
  await assert.rejects(st.load(Buffer.from('PK\x03\x04............................archive/data.pkl')), /PyTorch file.*safetensors\.torch/);
  await assert.rejects(st.load(new Float32Array(3)), st.ValueError);
  const loop = { a: 1 };
  loop.self = loop;
  await assert.rejects(st.saveObject(file, loop), /holds itself/);
});

function makeRun(out, extra = {}) {
  st.manualSeed(4);
  const x = st.randn([64, 4]);
  const y = x.matmul(st.tensor([[1], [-2], [0.5], [3]])).tanh();
  const set = new st.data.TensorDataset(x, y);
  const module = new st.nn.Sequential(new st.nn.Linear(4, 16), new st.nn.Tanh(), new st.nn.Dropout(0.1), new st.nn.Linear(16, 1));
  const optimizer = new st.optim.AdamW(module, { lr: 0.02 });
  const scheduler = new st.optim.CosineAnnealingLR(optimizer, { tMax: 12 });
  return new st.ModuleTrainer({ module, loss: st.mse_loss, optimizer, scheduler, maxNorm: 1, out, epochs: 3,
    loader: new st.data.DataLoader(set, { batchSize: 16, shuffle: true }), validLoader: new st.data.DataLoader(set, { batchSize: 64 }), ...extra });
}
test('a run of a module: log, report, checkpoints, and going on as if nothing had been', async () => {
  const whole = makeRun(path.join(folder, 'whole'));
  const seen = [];
  const result = await whole.train({ progress: false, onStep: (m) => seen.push(m.loss) });
  assert.equal(result.step, 12);
  assert.equal(result.status, 'finished');
  assert.ok(seen[11] < seen[0] && result.validLoss < seen[0]);
  const metrics = whole.metrics();
  assert.equal(metrics.length, 12);
  assert.deepEqual(metrics.filter((m) => 'valid_loss' in m).map((m) => m.step), [4, 8, 12]);
  assert.deepEqual(st.readMetrics(path.join(whole.out, 'metrics.jsonl')), metrics);
  const page = fs.readFileSync(path.join(whole.out, 'report.html'), 'utf8');
  assert.ok(page.includes('Sequential(') && page.includes('CosineAnnealingLR') && page.includes('finished'));
  assert.deepEqual(fs.readdirSync(whole.out).filter((n) => n.startsWith('step-')), ['step-00000008.safetensors', 'step-00000012.safetensors']);
  await assert.rejects(makeRun(whole.out).train({ progress: false }), /holds a run already/);

  // Stopped in the middle of an epoch, and gone on with in another object.
  const out = path.join(folder, 'parts');
  const stop = new AbortController();
  const first = makeRun(out);
  await assert.rejects(first.train({ progress: false, signal: stop.signal, onStep: ({ step }) => step === 6 && stop.abort(new Error('enough')) }), /enough/);
  assert.match(fs.readFileSync(path.join(out, 'report.html'), 'utf8'), /stopped at step 6/);
  const second = makeRun(out);
  const end = await second.train({ progress: false, resume: true });
  assert.equal(end.step, 12);
  assert.deepEqual(second.metrics().map((m) => m.loss), metrics.map((m) => m.loss), 'the same losses to the last bit');
  const weights = (t) => t.module.namedParameters().map(([, p]) => p.toArray());
  assert.deepEqual(weights(second), weights(whole));
});

test('a run that diverges says so', async () => {
  const run = makeRun(path.join(folder, 'diverges'), { loss: undefined, computeLoss: (m, [x]) => m.forward(x).sum().mul(Infinity), maxNorm: undefined });
  await assert.rejects(run.train({ progress: false }), (e) => e instanceof st.DivergedError && /step 1/.test(e.message));
  assert.match(fs.readFileSync(path.join(run.out, 'report.html'), 'utf8'), /stopped: /);
  assert.throws(() => makeRun('x', { loss: undefined }), /either loss or computeLoss/);
});

test('Trainer is the loop of the command line', async () => {
  const text = path.join(folder, 'text.txt');
  fs.writeFileSync(text, 'to be or not to be '.repeat(60));
  const trainer = new st.Trainer({ model: { layers: 1, dim: 16, heads: 2, context: 16 }, data: { path: text }, train: { steps: 4, batch: 2, sample_tokens: 0 } },
    { out: path.join(folder, 'lm') });
  assert.equal((await trainer.train()).step, 4);
  assert.equal(trainer.metrics().length, 4);
  assert.equal((await (await trainer.model()).complete('to', { tokens: 5 })).length, 5);
  assert.throws(() => new st.Trainer({}), st.ValueError);
});

test('random numbers go on from a state', () => {
  st.manualSeed(11);
  st.randn([7]);
  const state = st.randomState();
  const want = st.randn([5]).toArray();
  st.randn([9]);
  st.setRandomState(state);
  assert.deepEqual(st.randn([5]).toArray(), want);
  assert.throws(() => st.setRandomState({ seed: 1, offset: 2 }), st.StrataError);
});
