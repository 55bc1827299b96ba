'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

class Net extends st.nn.Module {
  constructor() {
    super();
    this.conv = new st.nn.Conv2d(1, 4, 3, { padding: 1 });
    this.norm = new st.nn.BatchNorm2d(4);
    this.drop = new st.nn.Dropout(0.5);
    this.blocks = new st.nn.ModuleList([new st.nn.Linear(4, 4), new st.nn.Linear(4, 2, { bias: false })]);
    this.scale = st.nn.parameter(st.ones([1]));
    this.tied = this.blocks[0];
  }
  forward(x) {
    let y = st.relu(this.norm.forward(this.conv.forward(x)));
    y = y.mean([2, 3]);
    for (const block of this.blocks) y = block.forward(this.drop.forward(y));
    return y.mul(this.scale);
  }
}

test('parameters, buffers and modules by name', () => {
  const net = new Net();
  assert.deepEqual(net.namedParameters().map(([n]) => n),
    ['scale', 'conv.weight', 'conv.bias', 'norm.weight', 'norm.bias', 'blocks.0.weight', 'blocks.0.bias', 'blocks.1.weight']);
  assert.deepEqual(net.namedBuffers().map(([n]) => n), ['norm.running_mean', 'norm.running_var', 'norm.num_batches_tracked']);
  assert.equal(net.numParameters(), 36 + 4 + 8 + 20 + 8 + 1);
  assert.match(String(net), /\(conv\): Conv2d\(1, 4, \[3, 3\], padding=\[1, 1\]\)/);
  assert.deepEqual(net.forward(st.randn([2, 1, 5, 5])).shape, [2, 2]);
});

test('training and evaluation', () => {
  const net = new Net();
  net.eval();
  assert.equal(net.drop.training, false);
  const x = st.randn([3, 1, 4, 4]);
  assert.deepEqual(net.forward(x).toArray(), net.forward(x).toArray());
  net.train();
  const before = net.norm.running_mean.toArray();
  net.forward(x.add(5));
  assert.notDeepEqual(net.norm.running_mean.toArray(), before);
  net.requiresGrad(false);
  assert.equal(net.forward(x).requiresGrad, false);
});

test('batch norm agrees with its definition', () => {
  const norm = new st.nn.BatchNorm1d(3, { momentum: 1 });
  const x = st.randn([50, 3], { dtype: 'f32' }).mul(2).add(1);
  const y = norm.forward(x);
  assert.ok(Math.abs(Number(y.mean().item())) < 1e-5);
  const want = st.var(x, [0]).toArray();
  norm.running_var.toArray().forEach((v, i) => assert.ok(Math.abs(v - want[i]) < 1e-3));
  norm.eval();
  const z = norm.forward(x);
  assert.ok(st.isclose(z, y, { rtol: 0.05, atol: 0.05 }).all().item());
});

test('state is saved and comes back', () => {
  const [a, b] = [new Net(), new Net()];
  b.loadStateDict(a.stateDict());
  a.eval();
  b.eval();
  const x = st.randn([1, 1, 4, 4]);
  assert.deepEqual(a.forward(x).toArray(), b.forward(x).toArray());
  const state = a.stateDict();
  delete state.scale;
  assert.throws(() => b.loadStateDict(state), /missing \[scale\]/);
  assert.deepEqual(b.loadStateDict(state, { strict: false }).missing, ['scale']);
  state.scale = st.ones([2]);
  assert.throws(() => b.loadStateDict(state), st.ShapeError);
});

test('modules convert', () => {
  const net = new st.nn.Linear(2, 2).to('f64');
  assert.equal(net.weight.dtype, 'f64');
  assert.equal(net.weight.requiresGrad, true);
  assert.equal(net.forward(st.ones([1, 2], { dtype: 'f64' })).dtype, 'f64');
  assert.equal(net.parameters().length, 2);
});

test('layers compute what their ops do', () => {
  const x = st.randn([2, 6, 8]);
  assert.deepEqual(new st.nn.LayerNorm(8).forward(x).toArray(), st.layer_norm(x, [8]).toArray());
  assert.deepEqual(new st.nn.RMSNorm(8).forward(x).toArray(), st.rms_norm(x, [8], st.ones([8])).toArray());
  const attention = new st.nn.MultiheadAttention(8, 2, { causal: true });
  const y = attention.forward(x);
  assert.deepEqual(y.shape, [2, 6, 8]);
  // Causal: what comes later changes nothing before.
  const changed = x.clone();
  changed.setAt([[], [4, null]], 0);
  assert.ok(st.isclose(attention.forward(changed).at([], [0, 4]), y.at([], [0, 4])).all().item());
  const table = new st.nn.Embedding(5, 3);
  assert.deepEqual(table.forward(st.tensor([4n, 0n])).toArray(), [table.weight.at(4).toArray(), table.weight.at(0).toArray()]);
  assert.throws(() => table.forward(st.tensor([5n])), st.IndexError);
  assert.throws(() => new st.nn.Module().forward(), st.ValueError);
  assert.deepEqual(new st.nn.MaxPool2d(2).forward(st.arange(16).reshape(1, 1, 4, 4)).toArray(), [[[[5, 7], [13, 15]]]]);
  assert.deepEqual(new st.nn.Sequential(new st.nn.Flatten(), (t) => t.add(1)).forward(st.zeros([2, 1, 2])).shape, [2, 2]);
});

for (const [kind, options] of [['SGD', { lr: 0.1, momentum: 0.9, nesterov: true }], ['Adam', { lr: 0.1 }],
  ['AdamW', { lr: 0.1, weightDecay: 0.001 }], ['Lion', { lr: 0.02 }]]) {
  test(`${kind} finds the minimum, and its state goes on`, () => {
    const make = (p) => new st.optim[kind]([['p', p]], options);
    const p = st.tensor([3, -2], { requiresGrad: true });
    const optimizer = make(p);
    const step = (q, o) => {
      o.zeroGrad();
      st.square(q.sub(st.tensor([1, 2]))).sum().backward();
      o.step();
    };
    for (let i = 0; i < 60; ++i) step(p, optimizer);
    const q = st.tensor(p, { requiresGrad: true });
    const other = make(q);
    step(q, other);
    st.noGrad(() => q.copy_(p));
    other.loadStateDict(optimizer.stateDict());
    for (let i = 0; i < 140; ++i) {
      step(p, optimizer);
      step(q, other);
    }
    assert.deepEqual(q.toArray(), p.toArray());
    assert.ok(st.isclose(p, st.tensor([1, 2]), { atol: 0.1, rtol: 0 }).all().item(), String(p));
  });
}

test('learning rates and clipping', () => {
  const p = st.tensor([3, 4], { requiresGrad: true });
  const optimizer = new st.optim.SGD([p], { lr: 1 });
  optimizer.lr = 0.5;
  assert.equal(optimizer.lr, 0.5);
  p.mul(st.tensor([3, 4])).sum().backward();
  assert.equal(optimizer.step({ maxNorm: 1 }), 5);
  assert.ok(Math.abs(p.toArray()[0] - 2.7) < 1e-6);
  assert.equal(st.optim.clipGradNorm([p], 2.5), 5);
  assert.ok(st.isclose(p.grad, st.tensor([1.5, 2])).all().item());
  const rate = st.optim.cosine(1, 110, { warmup: 10 });
  assert.deepEqual([rate(0), rate(10), rate(60), rate(110)].map((v) => Number(v.toFixed(6))), [0.1, 1, 0.5, 0]);
});

test('batches cover every row once', () => {
  const x = st.arange(10);
  const rows = [];
  for (const [a, b] of st.data.batches([x, x.mul(2)], { batchSize: 4, shuffle: true })) {
    assert.deepEqual(b.toArray(), a.mul(2).toArray());
    rows.push(...a.toArray());
  }
  assert.deepEqual(rows.sort((a, b) => a - b), x.toArray());
  assert.equal([...st.data.batches([x], { batchSize: 4, dropLast: true })].length, 2);
  assert.throws(() => [...st.data.batches([x, st.ones([3])])], st.ValueError);
});
