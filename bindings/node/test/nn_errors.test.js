'use strict';
// Wrong arguments of modules, of their forward() and of st.nn.functional: an error of the engine's classes that names the function,
// never another, never the end of the process. And all of it in worker threads.

const test = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const st = require('../lib/index.js');

const { nn } = st;
const F = nn.functional;

/** A module of every class, or null for bases. */
const make = {
  Module: null, parameter: null, buffer: null, init: null, functional: null, utils: null, causalMask: null,
  Linear: [3, 2], Bilinear: [3, 3, 2], Embedding: [5, 3], EmbeddingBag: [5, 3], Unflatten: [1, [3]], Fold: [[4, 4], 2], Unfold: [2], Threshold: [0, 1],
  Upsample: [{ size: 2 }], UpsamplingNearest2d: [{ size: 2 }], UpsamplingBilinear2d: [{ size: 2 }], PixelShuffle: [2], PixelUnshuffle: [2], ChannelShuffle: [3],
  AdaptiveLogSoftmaxWithLoss: [4, 10, [2, 5], { divValue: 2 }], FractionalMaxPool2d: [2, { outputRatio: 0.5 }], FractionalMaxPool3d: [2, { outputSize: 2 }],
  LayerNorm: [3], RMSNorm: [3], GroupNorm: [3, 3], LocalResponseNorm: [2], LazyLinear: [2],
  RNN: [3, 2], LSTM: [3, 2], GRU: [3, 2], SLSTM: [3, 2], RNNCell: [3, 2], LSTMCell: [3, 2], GRUCell: [3, 2], MultiheadAttention: [4, 2], TransformerEncoderLayer: [4, 2],
  TransformerDecoderLayer: [4, 2], TransformerEncoder: [() => new nn.TransformerEncoderLayer(4, 2), 1], TransformerDecoder: [() => new nn.TransformerDecoderLayer(4, 2), 1],
  Transformer: [{ dim: 4, heads: 2, encoderLayers: 1, decoderLayers: 1, feedForward: 4 }],
};
function argsOf(name) {
  if (name in make) return make[name];
  if (/^Lazy(Batch|Instance)Norm/.test(name)) return [];
  if (/^LazyConv/.test(name)) return [2, 2];
  if (/^Conv/.test(name)) return [3, 2, 2];
  if (/Norm\dd$/.test(name)) return [3];
  if (/^LPPool/.test(name)) return [2, 2];
  if (/^Constant/.test(name)) return [1, 2];
  if (/(Pool|Unpool|Pad)\dd$/.test(name)) return [2];
  return [];
}
const names = Object.keys(nn).filter((name) => make[name] !== null);
const junk = ['x', 3, null, undefined, {}, [], [1, 2], NaN, true, Symbol('s'), 2n, () => 1, new Float32Array(3), Promise.resolve(1)];
const tensors = () => [st.ones([]), st.ones([0]), st.ones([3]), st.ones([2, 3]), st.ones([2, 3, 4]), st.ones([2, 3, 4, 4]), st.ones([1, 3, 4, 4, 4]), st.ones([2, 0, 4, 4]),
  st.ones([1, 1, 1, 1, 1, 1]), st.tensor([[1n, 2n]]), st.tensor([-1n, 99n]), st.tensor([true, false]), st.ones([2, 3], { dtype: 'bf16' }), st.ones([2, 3], { device: 'meta' }),
  st.tensor([[NaN, Infinity, 1]]), (() => { const t = st.ones([2, 3]); t.dispose(); return t; })()];

/** Calls f; whatever it throws must be the engine's. */
function known(where, f) {
  try {
    return f();
  } catch (error) {
    assert.ok(error instanceof st.StrataError, `${where}: ${error?.stack ?? String(error)}`);
    assert.ok(error.message.length > 0, where);
    return undefined;
  }
}

test('every class is there to be tried', () => {
  for (const name of names) assert.ok(new nn[name](...argsOf(name)) instanceof nn.Module, name);
});

test('forward() of what is no tensor is a ValueError that names the module', () => {
  const free = new Set(['Identity', 'Sequential', 'ModuleList', 'ModuleDict', 'ParameterList', 'ParameterDict']);
  for (const name of names) {
    if (free.has(name)) continue;
    const module = new nn[name](...argsOf(name));
    for (const x of junk) {
      // A number may stand where an op wants a tensor.
      if (['number', 'bigint', 'boolean'].includes(typeof x)) known(`${name}.forward(${typeof x})`, () => module.forward(x, x, x, x));
      else assert.throws(() => module.forward(x, x, x, x), (error) => known(name, () => { throw error; }) === undefined, `${name}.forward(${String(x)})`);
    }
    known(`${name}.forward()`, () => module.forward());
  }
});

test('forward() of tensors that do not fit', () => {
  for (const name of names) {
    for (const training of [true, false]) {
      for (const x of tensors()) {
        const module = new nn[name](...argsOf(name)).train(training);
        const shape = x.disposed ? 'disposed' : `${x.dtype} [${x.shape}]`;
        known(`${name}.forward(${shape})`, () => module.forward(x));
        known(`${name}.forward(${shape}, ..)`, () => module.forward(x, x, x));
      }
    }
  }
});

test('constructors with wrong arguments', () => {
  for (const name of names) {
    // The usual Transformer has 44 million parameters.
    if (name === 'Transformer') {
      for (const wrong of junk.slice(0, 2)) for (const key of ['dim', 'heads', 'encoderLayers', 'dropout', 'nonsense']) known(name, () => new nn.Transformer({ ...make[name][0], [key]: wrong }));
      continue;
    }
    const args = argsOf(name);
    for (const wrong of [...junk, -1, 0, 0.5, 1e9, 2 ** 53, [], [1, 2, 3, 4, 5, 6, 7], [NaN], ['x'], [null], st.ones([2])]) {
      const count = Math.max(args.length, 1);
      // Tables of 10^9 rows are refused for their memory, or not: they are not made here.
      if (typeof wrong === 'number' && wrong > 1e6 && /linear|conv|embedding|rnn|lstm|gru|norm|attention|transformer|prelu|adaptivelog/i.test(name)) continue;
      for (let i = 0; i < count; ++i) {
        known(`new ${name}(.. ${String(wrong)?.slice?.(0, 30)} at ${i})`, () => new nn[name](...args.map((a, j) => (i === j ? wrong : a)), ...(i >= args.length ? [wrong] : [])));
      }
      known(`new ${name}(.., ${typeof wrong})`, () => new nn[name](...args, wrong));
    }
    known(`new ${name}()`, () => new nn[name]());
  }
});

test('options that there are not are refused everywhere', () => {
  // Those that take options, at the end.
  for (const name of names) {
    if (['Identity', 'Sequential', 'ModuleList', 'ModuleDict', 'ParameterList', 'ParameterDict', 'Flatten', 'Unflatten', 'Threshold', 'Softmax2d'].includes(name)) continue;
    if (/^(ReflectionPad|ReplicationPad|CircularPad|ZeroPad|ConstantPad|Dropout|AlphaDropout|FeatureAlpha|PixelShuffle|PixelUnshuffle|ChannelShuffle|Lazy)/.test(name)) continue;
    const args = argsOf(name);
    const options = typeof args[args.length - 1] === 'object' && !Array.isArray(args[args.length - 1]) ? { ...args[args.length - 1], nonsense: 1 } : { nonsense: 1 };
    const before = options.nonsense && Object.keys(options).length > 1 ? args.slice(0, -1) : args;
    const given = name === 'PReLU' ? [1, options] : [...before, options];
    assert.throws(() => new nn[name](...given), (error) => error instanceof st.ValueError && /nonsense/.test(error.message), name);
  }
});

test('the right class, and what is wrong, for each kind of mistake', () => {
  const x = st.ones([1, 3, 4, 4]);
  for (const [f, cls, text] of [
    [() => new nn.Conv3d(3, 2, 3).forward(x), st.ShapeError, /conv3d/],
    [() => new nn.Conv2d(3, 4, 3, { groups: 2 }), st.ValueError, /2 groups do not divide 3 and 4 channels/],
    [() => new nn.Conv2d(3, 2, [1, 2, 3]), st.ValueError, /kernelSize wants one or 2 whole numbers, got \[1, 2, 3\]/],
    [() => new nn.Conv2d(3, 2, 3, { padding: 'some' }), st.ValueError, /padding must be 'same', 'valid', got the string 'some'/],
    [() => new nn.Conv2d(3, 2, 3, { padding: 'same', stride: 2 }).forward(x), st.ValueError, /stride of 1/],
    [() => new nn.ConvTranspose2d(3, 2, 3, { stride: 2 }).forward(x, [20, 20]), st.ShapeError, /outputSize of \[20, 20\] is not between/],
    [() => new nn.BatchNorm3d(3).forward(x), st.ShapeError, /BatchNorm3d: wants 5 dimensions, got \[1, 3, 4, 4\]/],
    [() => new nn.BatchNorm1d(3).forward(st.ones([1, 3])), st.ShapeError, /more than one value per channel/],
    [() => new nn.BatchNorm2d(5).eval().forward(x), st.ShapeError, /running statistics must be \[3\]/],
    [() => new nn.InstanceNorm2d(3).forward(st.ones([1, 3, 1, 1])), st.ShapeError, /more than one value/],
    [() => new nn.AdaptiveMaxPool3d([1, 2]), st.ValueError, /one or 3 whole numbers/],
    [() => new nn.MaxPool2d(2, { stride: 'x' }), st.ValueError, /stride wants one or 2 whole numbers/],
    [() => new nn.AvgPool2d(2, { divisorOverride: 0 }).forward(x), st.ValueError, /divisorOverride/],
    [() => new nn.MaxUnpool2d(2).forward(x, st.zeros([1, 3, 4, 4], { dtype: 'i64' }), [30, 30]), st.ShapeError, /within a stride/],
    [() => new nn.ReflectionPad2d(9).forward(x), st.StrataError, /pad/],
    [() => new nn.PixelShuffle(2).forward(x), st.ShapeError, /3 channels .* no multiple of 4/],
    [() => new nn.Fold([4, 4], 2).forward(st.ones([1, 12, 4])), st.ShapeError, /does not hold 3 x 3 windows/],
    [() => new nn.Upsample({ size: [2, 2], scaleFactor: 2 }), st.ValueError, /either size or scaleFactor/],
    [() => new nn.Upsample({ size: 3, mode: 'bicubic' }).forward(st.ones([1, 2, 3])), st.ShapeError, /bicubic/],
    [() => new nn.EmbeddingBag(5, 3, { mode: 'median' }), st.ValueError, /'sum', 'mean', 'max'/],
    [() => new nn.EmbeddingBag(5, 3).forward(st.tensor([[9n]])), st.IndexError, /9/],
    [() => new nn.EmbeddingBag(5, 3).forward(st.tensor([1n, 2n])), st.StrataError, /offsets/],
    [() => new nn.Embedding(5, 3, { paddingIdx: 7 }), st.IndexError, /row of the 5/],
    [() => new nn.CTCLoss().forward(st.ones([3, 1, 4]), st.tensor([[1n]]), [9], [1]), st.StrataError, /ctc/],
    [() => new nn.MultiMarginLoss({ p: 3 }).forward(st.ones([1, 2]), st.tensor([0n])), st.ValueError, /p must be 1 or 2/],
    [() => new nn.MultiMarginLoss().forward(st.ones([1, 2]), st.tensor([5n])), st.IndexError, /5/],
    [() => new nn.MSELoss({ reduction: 'median' }), st.ValueError, /'mean', 'sum', 'none'/],
    [() => new nn.BCELoss().forward(st.ones([2]), st.ones([3])), st.ShapeError, /target is \[3\]/],
    [() => new nn.Dropout(2), st.ValueError, /p must be between 0 and 1, got 2/],
    [() => new nn.RReLU(0.5, 0.1).forward(x), st.ValueError, /lower 0.5 is above upper 0.1/],
    [() => new nn.GLU(1).forward(x), st.StrataError, /./],
    [() => F.conv2d(x, st.ones([2, 3, 2])), st.ShapeError, /weight must have 4 dimensions/],
    [() => F.gridSample(x, st.ones([1, 2, 2, 3])), st.ShapeError, /a grid of \[1, 2, 2, 3\]/],
    [() => F.affineGrid(st.ones([1, 2, 2]), [1, 1, 2, 2]), st.ShapeError, /theta/],
    [() => F.interpolate(x), st.ValueError, /either size or scaleFactor/],
    [() => F.interpolate(x, { size: 2, mode: 'nearest', alignCorners: true }), st.ValueError, /alignCorners/],
    [() => F.celu(x, { beta: 1 }), st.ValueError, /celu: has no argument 'beta'/],
    [() => F.celu(x, 1, 2), st.ValueError, /takes at most 2 arguments, got 3/],
    [() => F.celu(x, 1, { alpha: 2 }), st.ValueError, /alpha was given twice/],
    [() => F.celu(), st.ValueError, /x must be a Tensor, got undefined/],
    [() => F.pixelShuffle(x), st.ValueError, /needs upscaleFactor/],
    [() => F.celu(Promise.resolve(x)), st.ValueError, /await it first/],
    [() => nn.buffer(3), st.ValueError, /Tensor/],
    [() => nn.parameter('x'), st.ValueError, /Tensor/],
  ]) {
    assert.throws(f, (error) => {
      assert.ok(error instanceof cls, `${f}: ${error.stack}`);
      assert.match(error.message, text);
      return true;
    }, String(f));
  }
});

test('st.nn.functional with what makes no sense', () => {
  for (const [name, f] of Object.entries(F)) {
    for (const a of [...junk, ...tensors()]) {
      known(`${name}(one)`, () => f(a));
      for (const b of [...junk.slice(0, 9), ...tensors().slice(0, 12)]) {
        known(`${name}(two)`, () => f(a, b));
        known(`${name}(three)`, () => f(a, b, b));
        known(`${name}(four)`, () => f(a, a, b, a));
      }
    }
    known(`${name}()`, () => f());
  }
});

test('nn.utils and nn.init with what makes no sense', () => {
  for (const group of [nn.utils, nn.init]) {
    for (const [name, f] of Object.entries(group)) {
      for (const a of [...junk, ...tensors()]) {
        known(name, () => f(a));
        for (const b of [...junk, st.ones([2])]) known(name, () => f(a, b, b));
      }
    }
  }
});

test('modules in workers, side by side', { timeout: 300000 }, async () => {
  const entry = JSON.stringify(path.join(__dirname, '../lib/index.js'));
  const source = `const st = require(${entry}); const { parentPort, workerData } = require('node:worker_threads');
    const net = new st.nn.Sequential(new st.nn.LazyConv3d(2, 2), new st.nn.BatchNorm3d(2), new st.nn.MaxPool3d(2), new st.nn.Flatten(), new st.nn.LazyLinear(1));
    let calls = 0;
    net[1].registerFullBackwardHook(() => { ++calls; });
    const x = st.full([2, 1, 5, 5, 5], workerData).add(st.arange(250).reshape(2, 1, 5, 5, 5).mul(0.01));
    net.forward(x);
    const optimizer = new st.optim.ASGD(net, { lr: 0.01 });
    for (let i = 0; i < 5; ++i) optimizer.step(() => { optimizer.zeroGrad(); const loss = net.forward(x).square().mean(); loss.backward(); return loss; });
    let name = '';
    try { net.forward(st.ones([2])); } catch (error) { name = error instanceof st.StrataError ? error.name : String(error); }
    net.dispose();
    parentPort.postMessage([calls, name, net[1].weight.disposed]);`;
  const results = await Promise.all([1, 2, 3].map((n) => new Promise((resolve, reject) => {
    const worker = new Worker(source, { eval: true, workerData: n });
    worker.once('message', resolve).once('error', reject);
  })));
  assert.deepEqual(results, [1, 2, 3].map(() => [5, 'ShapeError', true]));
});
