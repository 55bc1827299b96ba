'use strict';
// What every module does: names, hooks, containers, conversions, state; lazy layers, and st.nn.utils and st.nn.init.

const test = require('node:test');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');

const { nn } = st;
const close = (a, b, tolerance = 1e-5) => assert.ok(st.isclose(a, b, { rtol: tolerance, atol: tolerance }).all().item(), `${a}\n${b}`);
const linear = () => new nn.Linear(2, 3);

test('names: own parameters first, each once, and every name in the state', () => {
  class Net extends nn.Module {
    first = linear();
    own = nn.parameter(st.ones([2]));
    tied = this.first;
    counter = nn.buffer(st.zeros([1]));
    scratch = nn.buffer(st.zeros([4]), { persistent: false });
    missing = null;
    plain = st.ones([3]);
  }
  const net = new Net();
  assert.deepEqual(net.namedParameters().map(([n]) => n), ['own', 'first.weight', 'first.bias']);
  assert.deepEqual(net.namedParameters('net').map(([n]) => n), ['net.own', 'net.first.weight', 'net.first.bias']);
  assert.deepEqual(net.namedParameters('', { recurse: false }).map(([n]) => n), ['own']);
  assert.equal(net.namedParameters('', { removeDuplicate: false }).length, 5);
  assert.deepEqual(net.namedBuffers().map(([n]) => n), ['counter', 'scratch']);
  assert.deepEqual(Object.keys(net.stateDict()).sort(), ['counter', 'first.bias', 'first.weight', 'own', 'tied.bias', 'tied.weight']);
  assert.deepEqual(net.namedModules().map(([n]) => n), ['', 'first']);
  assert.equal(net.modules().length, 2);
  assert.equal(net.children().length, 1);
  assert.equal(net.getSubmodule('first'), net.first);
  assert.equal(net.getSubmodule(''), net);
  assert.equal(net.getParameter('tied.weight'), net.first.weight);
  assert.equal(net.getBuffer('counter'), net.counter);
  for (const f of [() => net.getSubmodule('second'), () => net.getParameter('counter'), () => net.getBuffer('own'), () => net.getParameter('first')]) {
    assert.throws(f, st.ValueError);
  }
  // A cycle is walked once.
  net.first.parent = net;
  assert.equal(net.parameters().length, 3);
  assert.equal(net.modules().length, 2);
  assert.ok(Object.keys(net.stateDict()).length >= 6);
});

test('registering by name', () => {
  const net = new nn.Module();
  net.registerParameter('w', st.ones([2])).registerParameter('none', null).registerBuffer('b', st.zeros([1])).addModule('layer', linear());
  net.registerBuffer('hidden', st.zeros([1]), { persistent: false });
  assert.equal(net.w.requiresGrad, true);
  assert.deepEqual(Object.keys(net.stateDict()), ['w', 'layer.weight', 'layer.bias', 'b']);
  for (const f of [() => net.registerParameter('a.b', st.ones([1])), () => net.registerParameter('', st.ones([1])), () => net.registerBuffer('train', st.ones([1])),
    () => net.addModule('x', 3), () => net.registerBuffer('x', 3), () => net.registerParameter('training', st.ones([1])), () => net.registerParameter(3, null)]) {
    assert.throws(f, st.ValueError);
  }
  const computed = st.ones([1], { requiresGrad: true }).mul(2);
  assert.throws(() => nn.parameter(computed), st.AutogradError);
  assert.equal(nn.parameter(st.ones([1]), false).requiresGrad, false);
});

test('forward hooks see and replace arguments and results', () => {
  const net = new nn.Sequential(linear(), new nn.ReLU());
  const x = st.randn([4, 2]);
  const before = net.forward(x);
  const calls = [];
  const pre = net[0].registerForwardPreHook((m, args) => { calls.push(['pre', m === net[0], args.length]); return args[0].mul(2); });
  const after = net[0].registerForwardHook((m, args, y) => { calls.push(['after', y.shape]); return y.neg(); });
  const first = net[0].registerForwardPreHook(() => { calls.push(['first']); }, { prepend: true });
  const whole = net.registerForwardHook(() => { calls.push(['whole']); });
  close(net.forward(x), st.relu(st.neg(st.linear(x.mul(2), net[0].weight, net[0].bias))));
  assert.deepEqual(calls, [['first'], ['pre', true, 1], ['after', [4, 3]], ['whole']]);
  // The hooks are no part of the state, the names or the text.
  assert.deepEqual(Object.keys(net.stateDict()), ['0.weight', '0.bias']);
  assert.doesNotMatch(String(net), /forward|hook/i);
  for (const handle of [pre, after, first, whole]) handle.remove();
  pre.remove();
  assert.deepEqual(net.forward(x).toArray(), before.toArray());
  assert.ok(!Object.hasOwn(net[0], 'forward'));
  assert.throws(() => net.registerForwardHook('no'), st.ValueError);
  const thrown = net.registerForwardHook(() => { throw new RangeError('of a hook'); });
  assert.throws(() => net.forward(x), RangeError);
  thrown[Symbol.dispose]();
  assert.deepEqual(net.forward(x).toArray(), before.toArray());
  // Around a forward() that is set on the module itself, which comes back.
  const own = new nn.Module();
  own.forward = (v) => v.add(1);
  const handle = own.registerForwardHook((m, args, y) => y.mul(10));
  assert.equal(own.forward(st.ones([1])).item(), 20);
  handle.remove();
  assert.equal(own.forward(st.ones([1])).item(), 2);
});

test('backward hooks see and replace gradients', () => {
  const layer = linear();
  const x = st.randn([4, 2], { requiresGrad: true });
  layer.forward(x).sum().backward();
  const plain = x.grad.clone();
  x.grad = null;
  const seen = [];
  const pre = layer.registerFullBackwardPreHook((m, gradOutput) => { seen.push(['pre', gradOutput.map((g) => g.shape)]); return [gradOutput[0].mul(3)]; });
  const after = layer.registerFullBackwardHook((m, gradInput, gradOutput) => {
    seen.push(['after', gradInput[0].shape, gradOutput[0].at(0, 0).item()]);
    return [gradInput[0].mul(2)];
  });
  layer.forward(x).sum().backward();
  assert.deepEqual(seen, [['pre', [[4, 3]]], ['after', [4, 2], 3]]);
  close(x.grad, plain.mul(6));
  pre.remove();
  x.grad = null;
  layer.forward(x).sum().backward();
  close(x.grad, plain.mul(2));
  after.remove();
  // Inputs without a gradient: the hook is called all the same.
  const calls = [];
  layer.registerFullBackwardHook((m, gradInput, gradOutput) => { calls.push([gradInput, gradOutput[0].shape]); });
  layer.forward(st.randn([4, 2])).sum().backward();
  assert.deepEqual(calls, [[[null], [4, 3]]]);
  // Modules with several results.
  const lstm = new nn.LSTM(2, 3);
  let count = 0;
  lstm.registerFullBackwardPreHook((m, gradOutput) => { count = gradOutput.length; });
  lstm.forward(st.randn([3, 1, 2]))[0].sum().backward();
  assert.ok(count >= 1 && lstm.weight_ih_l0.grad !== null);
});

test('an sLSTM goes on from its states', () => {
  const layer = new nn.SLSTM(3, 5, { layers: 2, batchFirst: true });
  assert.equal(String(layer).split('\n')[0].startsWith('SLSTM(3, 5'), true);
  const x = st.randn([2, 6, 3]);
  const [whole, last] = layer.forward(x);
  const [first, between] = layer.forward(x.narrow(1, 0, 4));
  const [second, end] = layer.forward(x.narrow(1, 4, 2), between);
  close(st.cat([first, second], 1), whole);
  for (let i = 0; i < 3; ++i) close(end[i], last[i]);
  // One step by hand of the first layer: nothing was seen, so the cell over its normaliser is tanh(z).
  const one = new nn.SLSTM(3, 5);
  const [h, [, c]] = one.forward(x.narrow(1, 0, 1).transpose(0, 1));
  const sums = x.select(1, 0).matmul(one.weight_ih_l0.transpose(0, 1)).add(one.bias_ih_l0).add(one.bias_hh_l0);
  const z = sums.narrow(1, 10, 5).tanh();
  close(c.squeeze(0), z);
  close(h.squeeze(0), sums.narrow(1, 15, 5).sigmoid().mul(z));
  whole.sum().backward();
  assert.ok(layer.weight_hh_l1.grad.abs().max().item() > 0);
});

test('lists of modules and parameters', () => {
  const list = new nn.ModuleList([linear(), new nn.ReLU()]);
  const extra = new nn.Tanh();
  list.insert(1, extra).append(new nn.Sigmoid()).extend([new nn.SiLU()]);
  assert.deepEqual([...list].map((m) => m.constructor.name), ['Linear', 'Tanh', 'ReLU', 'Sigmoid', 'SiLU']);
  assert.equal(list.at(-1), list[4]);
  assert.equal(list.pop(1), extra);
  assert.equal(list.pop().constructor.name, 'SiLU');
  assert.equal(list.length, 3);
  assert.ok(!('3' in list) && list[1] instanceof nn.ReLU);
  list.set(1, extra);
  assert.equal(list[1], extra);
  assert.deepEqual(list.namedParameters().map(([n]) => n), ['0.weight', '0.bias']);
  for (const f of [() => list.at(7), () => list.pop(-9), () => list.set(1.5, extra)]) assert.throws(f, st.IndexError);
  for (const f of [() => list.push(3), () => new nn.ModuleList(4), () => new nn.ModuleList('ab'), () => new nn.Sequential(1)]) assert.throws(f, st.ValueError);
  assert.equal(list.length, 3, 'what is refused changes nothing');

  const sequence = new nn.Sequential(linear(), st.relu);
  sequence.insert(1, new nn.Identity());
  assert.equal(sequence.length, 3);
  assert.deepEqual(sequence.forward(st.ones([1, 2])).shape, [1, 3]);
  assert.deepEqual(Object.keys(sequence.stateDict()), ['0.weight', '0.bias']);
  assert.equal(sequence.parts.length, 3);

  const parameters = new nn.ParameterList([st.ones([2]), nn.parameter(st.zeros([1]))]);
  parameters.append(st.full([3], 2));
  assert.deepEqual(parameters.namedParameters().map(([n, t]) => [n, t.numel, t.requiresGrad]), [['0', 2, true], ['1', 1, true], ['2', 3, true]]);
  assert.throws(() => parameters.push(1), st.ValueError);
  parameters.to('f64');
  assert.deepEqual([...parameters].map((p) => p.dtype), ['f64', 'f64', 'f64']);
  assert.equal(parameters[0], parameters.at(0));
  // A module put in the place of another.
  list[1] = new nn.Softsign();
  assert.equal([...list][1], list.at(1));
  assert.equal(list.at(1).constructor.name, 'Softsign');
  sequence[0] = new nn.Linear(2, 7);
  assert.deepEqual(sequence.forward(st.ones([1, 2])).shape, [1, 7]);
});

test('dictionaries of modules and parameters', () => {
  const dict = new nn.ModuleDict({ a: linear(), b: new nn.ReLU() });
  dict.update([['c', new nn.Tanh()]]).set('a', new nn.Identity());
  assert.deepEqual(dict.keys(), ['a', 'b', 'c']);
  assert.deepEqual(dict.entries().map(([k, m]) => `${k}:${m.constructor.name}`), ['a:Identity', 'b:ReLU', 'c:Tanh']);
  assert.equal(dict.pop('b').constructor.name, 'ReLU');
  assert.ok(!dict.has('b') && dict.get('b') === undefined && dict.size === 2 && dict.delete('c') && !dict.delete('c'));
  dict.clear();
  assert.equal([...dict].length, 0);
  for (const f of [() => dict.set('forward', linear()), () => dict.set('x.y', linear()), () => dict.set('x', 1), () => dict.pop('x'), () => dict.update(3),
    () => dict.set('keys', linear()), () => new nn.ModuleDict(null)]) assert.throws(f, st.ValueError);
  const parameters = new nn.ParameterDict({ w: st.ones([2, 2]) });
  parameters.set('b', st.zeros([2]));
  assert.deepEqual(parameters.namedParameters().map(([n]) => n), ['w', 'b']);
  assert.deepEqual(Object.keys(parameters.stateDict()), ['w', 'b']);
  const twin = new nn.ParameterDict(parameters);
  assert.equal(twin.get('w'), parameters.get('w'));
});

test('conversions keep names, ties, buffers of whole numbers and gradients', () => {
  class Net extends nn.Module {
    norm = new nn.BatchNorm1d(2);
    a = linear();
    b = this.a;
  }
  const net = new Net();
  net.a.forward(st.ones([1, 2])).sum().backward();
  net.a.bias.requiresGrad = false;
  net.to('f64');
  assert.equal(net.a.weight, net.b.weight);
  assert.deepEqual([net.a.weight.dtype, net.a.weight.grad.dtype, net.norm.running_mean.dtype, net.norm.num_batches_tracked.dtype], ['f64', 'f64', 'f64', 'i64']);
  assert.deepEqual([net.a.weight.requiresGrad, net.a.bias.requiresGrad], [true, false]);
  assert.equal(net.half().a.weight.dtype, 'f16');
  assert.equal(net.bfloat16().a.weight.dtype, 'bf16');
  assert.equal(net.float().a.weight.dtype, 'f32');
  assert.equal(net.double().cpu().to(st.ones([1])).a.weight.dtype, 'f32');
  assert.equal(net.to({ dtype: 'f64', device: 'cpu' }).parameters()[0].dtype, 'f64');
  assert.throws(() => net.to('i64'), st.DTypeError);
  assert.throws(() => net.to('tpu'), st.ValueError);
  assert.throws(() => net.to(3), st.ValueError);
  assert.throws(() => net.to({ dtpe: 'f32' }), st.ValueError);
  assert.equal(net.a.weight.dtype, 'f64', 'what is refused changes nothing');
});

test('modes, gradients, apply', () => {
  const net = new nn.Sequential(linear(), new nn.Sequential(new nn.Dropout()));
  net.eval();
  assert.ok(net.modules().every((m) => !m.training));
  assert.throws(() => net.train('yes'), st.ValueError);
  net.forward(st.ones([1, 2])).sum().backward();
  net.zeroGrad({ setToNone: false });
  assert.equal(net[0].weight.grad.sum().item(), 0);
  net.zeroGrad();
  assert.equal(net[0].weight.grad, null);
  const order = [];
  net.apply((m) => order.push(m.constructor.name));
  assert.deepEqual(order, ['Linear', 'Dropout', 'Sequential', 'Sequential']);
  assert.throws(() => net.apply(3), st.ValueError);
  assert.throws(() => net.zeroGrad({ none: true }), st.ValueError);
});

test('a module that is disposed of', () => {
  const before = st.memoryStats().live;
  // Large beside what may be collected meanwhile of other tests.
  const net = new nn.Sequential(new nn.Linear(1024, 1024), new nn.BatchNorm1d(1024));
  net.forward(st.ones([4, 1024])).sum().backward();
  assert.ok(st.memoryStats().live > before + 2 * 1024 * 1024 * 4);
  const weight = net[0].weight;
  net.dispose();
  net[Symbol.dispose]();
  assert.ok(weight.disposed && net[1].running_mean.disposed);
  assert.throws(() => net.forward(st.ones([4, 1024])), /was disposed/);
  assert.throws(() => net.stateDict(), st.StrataError);
  assert.throws(() => new st.optim.SGD(net, { lr: 1 }), st.StrataError);
});

test('state: nothing changes where it does not fit', () => {
  const net = linear();
  const before = net.weight.toArray();
  const state = { weight: st.ones([3, 2]), bias: st.ones([4]) };
  assert.throws(() => net.loadStateDict(state), st.ShapeError);
  assert.throws(() => net.loadStateDict({ weight: st.ones([3, 2]), bias: [1, 2, 3] }), st.ValueError);
  for (const wrong of [null, 3, st.ones([1]), undefined]) assert.throws(() => net.loadStateDict(wrong), st.ValueError);
  assert.throws(() => net.loadStateDict({}, { strct: false }), st.ValueError);
  assert.deepEqual(net.weight.toArray(), before);
  assert.deepEqual(net.loadStateDict({ weight: st.ones([3, 2], { dtype: 'f64' }), other: st.ones([1]) }, { strict: false }), { missing: ['bias'], unexpected: ['other'] });
  assert.deepEqual(net.weight.toArray(), [[1, 1], [1, 1], [1, 1]]);
});

test('lazy layers become the plain ones', () => {
  for (const [name, args, shape, plain] of [
    ['LazyLinear', [3, { bias: false }], [4, 5], [5, 3, { bias: false }]],
    ['LazyConv1d', [3, 2], [1, 4, 6], [4, 3, 2]], ['LazyConv2d', [3, 2, { padding: 1 }], [1, 4, 6, 6], [4, 3, 2, { padding: 1 }]],
    ['LazyConv3d', [3, 2], [1, 4, 3, 3, 3], [4, 3, 2]], ['LazyConvTranspose1d', [3, 2], [1, 4, 6], [4, 3, 2]],
    ['LazyConvTranspose2d', [3, 2], [1, 4, 3, 3], [4, 3, 2]], ['LazyConvTranspose3d', [3, 2], [1, 4, 2, 2, 2], [4, 3, 2]],
    ['LazyBatchNorm1d', [], [4, 5], [5]], ['LazyBatchNorm2d', [], [2, 5, 2, 2], [5]], ['LazyBatchNorm3d', [{ affine: false }], [2, 5, 2, 2, 2], [5, { affine: false }]],
    ['LazyInstanceNorm1d', [{ affine: true }], [2, 5, 3], [5, { affine: true }]], ['LazyInstanceNorm2d', [], [2, 5, 2, 2], [5]],
    ['LazyInstanceNorm3d', [], [2, 5, 2, 2, 2], [5]],
  ]) {
    const module = new nn[name](...args);
    const net = new nn.Sequential(module);
    assert.throws(() => net.parameters(), /no parameters before/);
    let seen = 0;
    module.registerForwardHook(() => { ++seen; });
    net.eval();
    const y = net.forward(st.randn(shape));
    const Plain = nn[name.slice(4)];
    const twin = new Plain(...plain);
    assert.ok(module instanceof Plain && module.constructor.name === name.slice(4) && !module.training, name);
    assert.deepEqual(Object.entries(module.stateDict()).map(([k, t]) => [k, t.shape]), Object.entries(twin.stateDict()).map(([k, t]) => [k, t.shape]), name);
    assert.deepEqual(net.forward(st.ones(shape)).shape, y.shape);
    assert.equal(seen, 2);
  }
  assert.throws(() => new nn.LazyConv2d(3, 2).forward(st.ones([3])), st.ShapeError);
  assert.throws(() => new nn.LazyLinear(3).forward('x'), st.ValueError);
  assert.throws(() => new nn.LazyLinear(-1).forward(st.ones([2])), st.ValueError);
});

test('what draws random numbers', () => {
  st.manualSeed(5);
  const x = st.ones([4, 50, 6, 7]);
  for (const [name, shape] of [['Dropout', x.shape], ['Dropout1d', [40, 50, 6]], ['Dropout2d', x.shape], ['Dropout3d', [4, 50, 2, 3, 4]], ['Dropout3d', [50, 2, 3, 4]]]) {
    const drop = new nn[name](0.25);
    const ones = st.ones(shape);
    const y = drop.forward(ones);
    const kept = Number(y.gt(0).to('f32').mean().item());
    assert.ok(Math.abs(kept - 0.75) < 0.15, `${name}: ${kept}`);
    assert.ok(y.toTypedArray().every((v) => v === 0 || Math.abs(v - 4 / 3) < 1e-6));
    if (name !== 'Dropout') {
      // A channel is there or not as a whole.
      const channels = shape.length === 4 && name === 'Dropout3d' ? y.reshape([50, y.numel / 50]) : y.reshape([shape[0] * shape[1], y.numel / (shape[0] * shape[1])]);
      assert.deepEqual(channels.amax([1]).toArray(), channels.amin([1]).toArray(), name);
    }
    assert.equal(drop.eval().forward(ones), ones);
  }
  const z = st.randn([200, 500]);
  const alpha = new nn.AlphaDropout(0.2).forward(z);
  assert.ok(Math.abs(alpha.mean().item()) < 0.02 && Math.abs(st.std(alpha).item() - 1) < 0.02);
  const features = new nn.FeatureAlphaDropout(0.5).forward(st.ones([40, 50, 3]));
  assert.deepEqual(features.amax([2]).toArray(), features.amin([2]).toArray());
  assert.equal(new nn.AlphaDropout(1).forward(z).abs().sum().item(), 0);
  const slopes = new nn.RReLU(0.1, 0.3).forward(st.full([1000], -1));
  assert.ok(slopes.amin().item() >= -0.3 && slopes.amax().item() <= -0.1 && Math.abs(slopes.mean().item() + 0.2) < 0.02);
  const logits = st.tensor([[0, 1, 2]], { requiresGrad: true });
  const counts = st.zeros([3]);
  for (let i = 0; i < 300; ++i) {
    const hard = nn.functional.gumbelSoftmax(logits, { tau: 0.7, hard: true });
    assert.ok(Math.abs(hard.sum().item() - 1) < 1e-5);
    counts.add_(hard.detach().reshape([3]));
  }
  const wanted = st.softmax(logits.detach().reshape([3]), 0).mul(300).toArray();
  counts.toArray().forEach((c, i) => assert.ok(Math.abs(c - wanted[i]) < 45, `${c}, not near ${wanted[i]}`));
  nn.functional.gumbelSoftmax(logits, { hard: true }).select(1, 0).sum().backward();
  assert.ok(logits.grad.abs().sum().item() > 0);
});

test('first values', () => {
  const conv = new nn.Conv1d(4, 4, 3, { padding: 1, bias: false });
  nn.init.dirac_(conv.weight);
  const x = st.randn([2, 4, 5]);
  close(conv.forward(x), x);
  nn.init.dirac_(st.zeros([4, 2, 3, 3]), 2);
  const sparse = nn.init.sparse_(st.empty([20, 6]), 0.25, 1);
  assert.deepEqual(sparse.eq(0).to('f32').sum([0]).toArray(), [5, 5, 5, 5, 5, 5]);
  assert.throws(() => nn.init.dirac_(st.ones([2, 2])), st.ShapeError);
  assert.throws(() => nn.init.sparse_(st.ones([2]), 0.1), st.ShapeError);
  assert.throws(() => nn.init.sparse_(st.ones([2, 2]), 7), st.ValueError);
  for (const [name, f] of Object.entries(nn.init)) if (name !== 'calculateGain') assert.throws(() => f('x', 1), st.ValueError, name);
  const table = nn.Embedding.fromPretrained(st.ones([3, 2]), { paddingIdx: -1 });
  assert.deepEqual([table.weight.requiresGrad, table.paddingIdx, table.forward(st.tensor([1n])).toArray()], [false, 2, [[1, 1]]]);
  assert.equal(nn.EmbeddingBag.fromPretrained(st.ones([3, 2]), { freeze: false, mode: 'sum' }).forward(st.tensor([[1n, 2n]])).sum().item(), 4);
  for (const [module, zero] of [[new nn.Linear(3, 4)], [new nn.Conv2d(1, 2, 3)], [new nn.LayerNorm(3), true], [new nn.BatchNorm2d(3), true], [new nn.Embedding(3, 4)]]) {
    st.noGrad(() => module.weight.fill_(9));
    module.resetParameters();
    assert.ok(module.weight.toTypedArray().every((v) => v !== 9));
    if (zero) assert.equal(module.weight.mean().item(), 1);
  }
});

test('functions that write over their argument', () => {
  const F = nn.functional;
  for (const [name, args] of [['relu', []], ['elu', [0.5]], ['celu', [0.5]], ['selu', []], ['leakyRelu', [0.2]], ['hardtanh', [-0.5, 0.5]], ['threshold', [0.1, 3]],
    ['rrelu', []]]) {
    const x = st.randn([4, 3]);
    const want = F[name](x, ...args);
    assert.equal(F[`${name}_`](x, ...args), x, name);
    assert.deepEqual(x.toArray(), want.toArray(), name);
    const leaf = st.tensor([[-1, 0.3, 2]], { requiresGrad: true });
    const [wanted] = st.grad(F[name](leaf.mul(2), ...args).sum(), [leaf]);
    const [got] = st.grad(F[`${name}_`](leaf.mul(2), ...args).sum(), [leaf]);
    close(got, wanted);
    assert.throws(() => F[`${name}_`]('x'), st.ValueError);
    assert.throws(() => F[`${name}_`](leaf, ...args), st.AutogradError);
  }
});

test('maxima with their places', () => {
  const x = st.randn([2, 3, 6]);
  for (const [name, arg] of [['maxPool1d', 2], ['adaptiveMaxPool1d', 3]]) {
    const [values, indices] = nn.functional[`${name}WithIndices`](x, arg);
    assert.deepEqual(values.toArray(), nn.functional[name](x, arg).toArray());
    assert.deepEqual(indices.toArray(), nn.functional[name](x, arg, { returnIndices: true })[1].toArray());
    assert.deepEqual(st.gather(x, 2, indices).toArray(), values.toArray());
  }
});

// torch.nn.functional.fractional_max_pool2d and 3d (2.15) of the same numbers.
test('fractional maxima', () => {
  const F = nn.functional;
  const waves = (shape) => st.sin(st.arange(shape.reduce((a, b) => a * b), { dtype: 'f32' }).reshape(shape).mul(2.7));
  const plane = waves([1, 2, 5, 7]);
  const samples = st.tensor([[[0.3, 0.7], [0.1, 0.9]]]);
  const [values, indices] = F.fractionalMaxPool2d(plane, [2, 3], { outputSize: [3, 4], samples, returnIndices: true });
  assert.deepEqual(Array.from(indices.toTypedArray(), Number),
    [1, 3, 3, 12, 8, 10, 10, 19, 22, 24, 24, 33, 7, 3, 3, 12, 14, 10, 10, 19, 28, 24, 24, 33]);
  assert.deepEqual(values.toArray(), F.fractionalMaxPool2d(plane, [2, 3], { outputSize: [3, 4], samples }).toArray());
  const volume = F.fractionalMaxPool3dWithIndices(waves([2, 4, 5, 3]), 2, { outputRatio: [0.5, 0.6, 0.4], samples: st.tensor([[[0.3, 0.7, 0.5], [0.1, 0.9, 0.2]]]) });
  assert.deepEqual(Array.from(volume[1].toTypedArray(), Number), [17, 19, 10, 47, 38, 40, 1, 22, 29, 50, 50, 43]);
  // Drawn: the same for a seed, each element from its plane.
  const layer = new nn.FractionalMaxPool2d(2, { outputRatio: 0.6, returnIndices: true });
  st.manualSeed(5);
  const [first, at] = layer.forward(plane);
  assert.deepEqual(first.shape, [1, 2, 3, 4]);
  assert.deepEqual(st.gather(plane.reshape([1, 2, 35]), 2, at.reshape([1, 2, 12])).toArray(), first.reshape([1, 2, 12]).toArray());
  st.manualSeed(5);
  assert.deepEqual(layer.forward(plane)[0].toArray(), first.toArray());
  assert.deepEqual(new nn.FractionalMaxPool3d(2, { outputSize: 2 }).forward(waves([2, 4, 5, 3])).shape, [2, 2, 2, 2]);
  assert.match(String(layer), /FractionalMaxPool2d\(kernelSize=\[2, 2\]/);
  for (const [f, error] of [
    [() => new nn.FractionalMaxPool2d(2), st.ValueError], [() => new nn.FractionalMaxPool2d(2, { outputSize: 2, outputRatio: 0.5 }), st.ValueError],
    [() => new nn.FractionalMaxPool2d(2, { outputRatio: 1.5 }), st.ValueError], [() => F.fractionalMaxPool2d(plane, 2), st.ValueError],
    [() => F.fractionalMaxPool2d(plane, 2, { outputRatio: [0.5, 0.5, 0.5] }), st.ValueError], [() => F.fractionalMaxPool3d(st.ones([2, 3]), 2, { outputSize: 1 }), st.ShapeError],
    [() => F.fractionalMaxPool2d(plane, 2, { outputSize: [9, 9] }), st.ShapeError]]) assert.throws(f, error);
});

// torch.nn.AdaptiveLogSoftmaxWithLoss (2.15) of the same parameters.
test('a softmax in clusters', () => {
  const layer = new nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], { divValue: 2, headBias: true });
  const named = layer.namedParameters();
  assert.deepEqual(named.map(([name]) => name), ['head.weight', 'head.bias', 'tail.0.0.weight', 'tail.0.1.weight', 'tail.1.0.weight', 'tail.1.1.weight']);
  st.noGrad(() => named.forEach(([, p], k) => p.copy_(st.sin(st.arange(p.numel, { dtype: 'f32' }).mul(0.7).add(k)).reshape(p.shape))));
  const x = st.cos(st.arange(18, { dtype: 'f32' }).mul(1.3)).reshape([3, 6]);
  const near = (t, wanted) => t.reshape([t.numel]).toArray().forEach((v, i) => assert.ok(Math.abs(v - wanted[i]) < 1e-5, `${i}: ${v}, not ${wanted[i]}`));
  const { output, loss } = layer.forward(x, st.tensor([1n, 5n, 11n]));
  near(output, [-0.7863993644714355, -5.401674270629883, -6.356454849243164]);
  near(loss, [4.181509494781494]);
  near(layer.logProb(x).select(0, 1), [-2.427030324935913, -0.3482685387134552, -3.758286952972412, -6.996665000915527, -3.473677396774292, -5.401674270629883,
    -6.97797966003418, -5.631685256958008, -5.0117034912109375, -3.9983906745910645, -3.068324327468872, -2.658928394317627]);
  assert.deepEqual(Array.from(layer.predict(x.mul(3)).toTypedArray(), Number), [2, 1, 0]);
  loss.backward();
  assert.ok(layer.tail.at(1)[1].weight.grad.abs().sum().item() > 0);
  layer.resetParameters();
  assert.match(String(layer), /AdaptiveLogSoftmaxWithLoss\(6, 12, \[3, 7\]/);
  for (const f of [() => new nn.AdaptiveLogSoftmaxWithLoss(6, 12, []), () => new nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 3]), () => new nn.AdaptiveLogSoftmaxWithLoss(6, 12, [12]),
    () => new nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3], { divValue: 0 }), () => layer.forward(x, st.tensor([1n, 5n, 12n])), () => layer.predict(3)]) assert.throws(f, st.ValueError);
});

test('weight and spectral norm', () => {
  st.manualSeed(11);
  const { utils } = nn;
  const x = st.randn([5, 4]);
  for (const dim of [0, 1, -1, null]) {
    const layer = new nn.Linear(4, 3, { bias: false });
    const before = layer.forward(x);
    assert.equal(utils.weightNorm(layer, { dim }), layer);
    assert.deepEqual(layer.namedParameters().map(([n, p]) => [n, p.shape]), [['weight_g', dim === null ? [] : dim === 0 ? [3, 1] : [1, 4]], ['weight_v', [3, 4]]]);
    close(layer.forward(x), before);
    st.noGrad(() => {
      layer.weight_g.mul_(2);
      layer.weight_v.mul_(7);
    });
    close(layer.forward(x), before.mul(2));
    layer.forward(x).square().sum().backward();
    // The direction's own length makes no difference.
    if (dim === null) assert.ok(Math.abs(st.mul(layer.weight_v.grad, layer.weight_v).sum().item()) < 1e-3);
    const twin = utils.weightNorm(new nn.Linear(4, 3, { bias: false }), { dim });
    twin.loadStateDict(layer.stateDict());
    close(twin.forward(x), layer.forward(x));
    utils.removeWeightNorm(layer);
    assert.deepEqual(layer.namedParameters().map(([n]) => n), ['weight']);
    close(layer.forward(x), before.mul(2));
    assert.throws(() => utils.removeWeightNorm(layer), st.ValueError);
  }
  for (const layer of [new nn.Linear(4, 3), new nn.Conv2d(2, 3, 2), new nn.ConvTranspose1d(2, 3, 2)]) {
    const input = { Linear: x, Conv2d: st.randn([1, 2, 4, 4]), ConvTranspose1d: st.randn([1, 2, 4]) }[layer.constructor.name];
    utils.spectralNorm(layer, { nPowerIterations: 30 });
    layer.forward(input);
    assert.deepEqual(layer.namedBuffers().map(([n]) => n), ['weight_u', 'weight_v']);
    layer.eval();
    const y = layer.forward(input);
    assert.deepEqual(layer.forward(input).toArray(), y.toArray(), 'nothing moves in evaluation');
    const dim = layer.constructor.name === 'ConvTranspose1d' ? 1 : 0;
    const m = layer.weight.detach().movedim([dim], [0]).reshape([3, layer.weight.numel / 3]);
    // The largest singular value: that of many power iterations.
    let v = st.randn([m.shape[1]]);
    for (let i = 0; i < 200; ++i) v = nn.functional.normalize(m.t().matmul(m.matmul(v)), { dim: 0 });
    assert.ok(Math.abs(st.norm(m.matmul(v)).item() - 1) < 1e-2, `${st.norm(m.matmul(v)).item()}`);
    y.sum().backward();
    assert.ok(layer.weight_orig.grad.abs().sum().item() > 0);
    utils.removeSpectralNorm(layer);
    close(layer.forward(input), y);
    assert.deepEqual(layer.namedParameters().map(([n]) => n).sort(), ['bias', 'weight']);
  }
  const layer = new nn.Linear(2, 2);
  for (const f of [() => utils.weightNorm(3), () => utils.weightNorm(layer, { name: 'width' }), () => utils.weightNorm(layer, { dim: 5 }),
    () => utils.spectralNorm(layer, { name: 'bias' }), () => utils.spectralNorm(layer, { nPowerIterations: 0 }), () => utils.removeSpectralNorm(layer)]) {
    assert.throws(f, st.StrataError, String(f));
  }
  assert.equal(layer.namedParameters().length, 2, 'what is refused changes nothing');
});

test('attention weights', () => {
  st.manualSeed(3);
  const attention = new nn.MultiheadAttention(8, 2).eval();
  const x = st.randn([2, 5, 8]);
  const mask = st.zeros([2, 5], { dtype: 'bool' });
  mask.setAt([1, 4], true);
  for (const options of [{}, { causal: true }, { keyPaddingMask: mask }]) {
    const [y, weights] = attention.forward(x, x, x, { ...options, needWeights: true });
    close(y, attention.forward(x, x, x, options));
    assert.deepEqual(weights.shape, [2, 5, 5]);
    close(weights.sum([2]), st.ones([2, 5]));
    assert.deepEqual(attention.forward(x, x, x, { ...options, needWeights: true, averageWeights: false })[1].shape, [2, 2, 5, 5]);
  }
});

test('utils: norms, clipping, parameters as one vector, padded sequences', () => {
  const { utils } = nn;
  const net = linear();
  const set = (w, b) => {
    net.weight.grad = st.full([3, 2], w);
    net.bias.grad = st.full([3], b);
  };
  set(1, 1);
  assert.ok(Math.abs(utils.getTotalNorm(net.parameters().map((p) => p.grad)) - 3) < 1e-6);
  assert.ok(Math.abs(utils.getTotalNorm(net.parameters().map((p) => p.grad), 1) - 9) < 1e-5);
  assert.equal(utils.getTotalNorm(net.parameters().map((p) => p.grad), Infinity), 1);
  assert.equal(utils.getTotalNorm([]), 0);
  assert.equal(utils.clipGradNorm_(net, 1.5), 3);
  assert.ok(Math.abs(net.bias.grad.at(0).item() - 0.5) < 1e-5);
  set(2, -3);
  assert.equal(utils.clipGradNorm_(net.parameters(), 1, { normType: Infinity }), 3);
  assert.ok(Math.abs(net.bias.grad.at(0).item() + 1) < 1e-5);
  set(2, -3);
  utils.clipGradValue_(net, 2.5);
  assert.deepEqual(net.bias.grad.toArray(), [-2.5, -2.5, -2.5]);
  utils.clipGradsWithNorm_(net, 1, 5);
  assert.ok(Math.abs(net.bias.grad.at(0).item() + 0.5) < 1e-5);
  utils.clipGradsWithNorm_(net, 9, 5);
  assert.ok(Math.abs(net.bias.grad.at(0).item() + 0.5) < 1e-5);
  assert.throws(() => utils.clipGradsWithNorm_(net, 1, 'x'), st.ValueError);
  set(NaN, 1);
  assert.ok(Number.isNaN(utils.clipGradNorm_(net, 1, { normType: 1 })));
  assert.equal(net.bias.grad.at(0).item(), 1, 'left as it was');
  assert.throws(() => utils.clipGradNorm_(net, 1, { errorIfNonfinite: true }), st.DivergedError);
  net.zeroGrad();
  assert.equal(utils.clipGradNorm_(net, 1), 0);
  utils.clipGradValue_(net, 1);

  const vector = utils.parametersToVector(net);
  assert.deepEqual(vector.shape, [9]);
  vector.sum().backward();
  assert.equal(net.weight.grad.sum().item(), 6);
  utils.vectorToParameters(st.arange(9), net.parameters());
  assert.deepEqual([net.weight.toArray(), net.bias.toArray()], [[[0, 1], [2, 3], [4, 5]], [6, 7, 8]]);
  assert.throws(() => utils.vectorToParameters(st.arange(8), net), st.ShapeError);
  assert.equal(net.weight.at(0, 1).item(), 1);

  const sequences = [st.tensor([1, 2, 3]), st.tensor([4]), st.tensor([5, 6])];
  assert.deepEqual(utils.padSequence(sequences, { batchFirst: true, paddingValue: -1 }).toArray(), [[1, 2, 3], [4, -1, -1], [5, 6, -1]]);
  assert.deepEqual(utils.padSequence(sequences, { batchFirst: true, paddingSide: 'left' }).toArray(), [[1, 2, 3], [0, 0, 4], [0, 5, 6]]);
  const padded = utils.padSequence(sequences);
  assert.deepEqual(padded.shape, [3, 3]);
  assert.deepEqual(utils.unpadSequence(padded, [3, 1, 2]).map((s) => s.toArray()), [[1, 2, 3], [4], [5, 6]]);
  assert.deepEqual(utils.unpadSequence(padded, st.tensor([3n, 1n, 2n])).map((s) => s.toArray()), [[1, 2, 3], [4], [5, 6]]);
  for (const f of [() => utils.padSequence([]), () => utils.padSequence(3), () => utils.padSequence([3]), () => utils.unpadSequence(padded, [1]),
    () => utils.clipGradNorm_(3, 1), () => utils.clipGradNorm_(net, 'x'), () => utils.parametersToVector([]), () => utils.clipGradValue_(net),
    () => utils.vectorToParameters('x', net), () => utils.padSequence(sequences, { paddingSide: 'top' }), () => utils.unpadSequence(padded, [9, 1, 1])]) {
    assert.throws(f, st.StrataError, String(f));
  }
});
