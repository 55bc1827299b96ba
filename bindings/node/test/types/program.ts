// Compiled with --strict: the declarations as a program uses them. test/types.test.js runs the compiler; lines after
// "@ts-expect-error" must be refused.

import st from 'strata';

class Net extends st.nn.Module {
  readonly hidden = new st.nn.Linear(2, 16);
  readonly out = new st.nn.Linear(16, 1, { bias: false });
  forward(x: st.Tensor): st.Tensor {
    return this.out.forward(st.tanh(this.hidden.forward(x)));
  }
}

class Square extends st.Function {
  static forward(ctx: st.FunctionContext, x: st.Tensor): st.Tensor {
    ctx.saveForBackward(x);
    return x.mul(x);
  }
  static backward(ctx: st.FunctionContext, g: st.Tensor): st.Tensor {
    const [x] = ctx.savedTensors;
    return g.mul(x).mul(2);
  }
}

export async function main(signal: AbortSignal): Promise<number> {
  st.manualSeed(1n);
  const net = new Net();
  const optimizer: st.Optimizer = new st.optim.AdamW(net, { lr: 0.05, weightDecay: 0 });
  const x = st.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]);
  const y = st.tensor([[0], [1], [1], [0]], { dtype: 'f32' });
  let loss = st.zeros([]);
  for (let i = 0; i < 200; ++i) {
    optimizer.zeroGrad();
    loss = st.mse_loss(net.forward(x), y, { reduction: 'mean' });
    await loss.backwardAsync(null, { signal });
    await optimizer.stepAsync({ maxNorm: 1 });
  }
  const { values, indices } = st.topk(x, 1, { dim: -1 });
  const product: st.Tensor = await st.async.matmul(x, x.t(), { signal });
  const shape: number[] = product.shape;
  const normed: st.Tensor = st.layer_norm(x, [2]);
  const all: { y: st.Tensor; mean: st.Tensor; rstd: st.Tensor } = st.ops.layer_norm(x, [2], { eps: 1e-3 });
  const squares = Square.apply(x) as st.Tensor;
  squares.add_(1).relu_();
  const windows = st.conv2d(st.ones([1, 1, 4, 4]), st.ones([1, 1, 2, 2]), null, { stride: 2 });
  const borrowed = st.fromTypedArray(new Float32Array(4), [2, 2]);
  const [gradient] = st.grad(borrowed.sum(), [borrowed]);
  const maybe: st.Tensor | null = x.grad;
  const handle = x.registerHook((g) => g.mul(2));
  handle.remove();
  const state: st.StateDict = net.stateDict();
  await st.save('/tmp/x.safetensors', state, { metadata: { made: 'here' } });
  const model = await st.loadModel('runs/x', { device: 'cpu', signal });
  for await (const { text } of model.generate('Once', { tokens: 3, seed: 1n })) console.log(text);
  const pretrained = await st.loadPretrained('models/x', { dtype: 'bf16', signal });
  const options: st.GenerationOptions = { maxNewTokens: 5, topP: 0.9, seed: 1n, stopStrings: ['a'], earlyStopping: 'never', logitBias: { 3: -1 }, temperature: null };
  const [written]: st.PretrainedCompletion[] = await pretrained.generate('Once', options);
  const many: st.PretrainedCompletion[][] = await pretrained.generate(['Once', [1, 2n]], { onPiece: ({ text, last }) => last || text !== '.' });
  for await (const { text, token } of pretrained.stream([1, 2], { maxNewTokens: 3 })) console.log(text, token + 1, written.tokens[0], many[0][0].finish);
  console.log(await pretrained.chat([{ role: 'user', content: 'Hi' }], { variables: { tools: [] } }), await pretrained.embed(['a'], { pooling: 'first' }));
  // @ts-expect-error: no such option
  await pretrained.generate('Once', { tokens: 3 });
  const report: st.EvaluationReport = await pretrained.evaluate({
    text: ['a.txt'], numFewshot: 5, fields: { context: 'q' }, reference: pretrained, logSamples: true, onProgress: ({ done, all }) => done < all,
  });
  console.log(report.results.text.measures.loss.value, report.results.text.samples?.[0].logProbabilities[0]);
  // @ts-expect-error: no such option
  await pretrained.evaluate({ shots: 5 });
  console.log(values.dtype, indices.at(0, [null, 2], '...', null), shape, normed, all.rstd, windows, gradient, maybe);
  const [output, [h, c]] = new st.nn.LSTM(2, 4, { bidirectional: true }).forward(x.unsqueeze(0));
  const encoder = new st.nn.TransformerEncoder(() => new st.nn.TransformerEncoderLayer(8, 2, { normFirst: true }), 2);
  const attended: st.Tensor = encoder.forward(st.zeros([1, 3, 8]), { causal: true });
  const criterion = new st.nn.CrossEntropyLoss({ labelSmoothing: 0.1 });
  const groups = new st.optim.AdamW([{ params: net.hidden, lr: 0.1 }, { params: net.out.parameters(), weightDecay: 0 }], { lr: 0.01 });
  const scheduler: st.LRScheduler = new st.optim.OneCycleLR(groups, { maxLr: 0.1, totalSteps: 10 });
  scheduler.step();
  groups.paramGroups[1].set({ weightDecay: 0.1 });
  const normal: st.Distribution = new st.distributions.Normal(x, 1);
  const coin = new st.distributions.Bernoulli({ logits: 0.3, validateArgs: false });
  const halves = new st.distributions.TransformedDistribution(normal, [new st.distributions.AffineTransform(0, 0.5)]);
  console.log(normal.logProb(x).shape, coin.probs.shape, halves.expand([2, 2]).rsample(3), st.distributions.klDivergence(coin, coin));
  const set = new st.data.TensorDataset(x, y);
  const loader = new st.data.DataLoader(set, { batchSize: 2, shuffle: true });
  for (const [a, b] of loader) st.mse_loss(net.forward(a), b);
  for await (const text of new st.data.DataLoader({ length: 2, get: async (i: number) => `${i}` }, { collate: (all) => all.join() })) text.length;
  const trainer = new st.ModuleTrainer({ module: net, loss: st.mse_loss, optimizer: groups, loader, out: 'runs/x', validLoader: loader });
  const run: { step: number } = await trainer.train({ signal, onStep: ({ loss: l }) => console.log(l) });
  console.log(output, h, c, attended, criterion.forward(x, y), run.step, st.optim.clipGradNorm(net, 1), st.nn.init.zeros_(x));
  class Signs extends st.optim.RuleOptimizer {
    static defaults = { lr: 0.1 };
    static update(p: st.Tensor, grad: st.Tensor, state: { count?: number }, { lr }: { lr: number }): void {
      state.count = (state.count ?? 0) + 1;
      p.sub_(st.sign(grad).mul(lr));
    }
  }
  const signs: st.Optimizer = new Signs(net, { lr: 1 });
  const lbfgs = new st.optim.LBFGS(net, { maxIter: 5, lineSearchFn: 'strong_wolfe' });
  const lossNow: st.Tensor = lbfgs.step(() => st.mse_loss(net.forward(x), y));
  signs.addParamGroup({ params: [x], lr: 2 });
  signs.registerStepPostHook((o) => console.log(o.lr)).remove();
  new st.optim.CyclicLR(signs, { baseLr: 0.1, maxLr: 1, scaleFn: (n) => 1 / n });
  const mean = new st.optim.AveragedModel(new Net(), { average: st.optim.emaAverage(0.9) });
  mean.updateParameters(net);
  await st.optim.updateBn(loader, mean.module);
  const volume: st.Tensor = new st.nn.Conv3d(1, 2, [1, 2, 3], { padding: 'same', paddingMode: 'reflect' }).forward(x);
  const [pooled, at]: [st.Tensor, st.Tensor] = new st.nn.MaxPool3d(2, { returnIndices: true }).forward(volume);
  const hook = net.hidden.registerForwardHook((m, args, result) => { console.log(m.weight.shape, args.length); return (result as st.Tensor).mul(2); });
  hook[Symbol.dispose]();
  const lazy = new st.nn.Sequential(new st.nn.LazyConv2d(3, 3), new st.nn.Hardshrink({ lambd: 0.1 }), (t) => st.nn.functional.softshrink(t, 0.2));
  lazy.append(new st.nn.AdaptiveMaxPool2d([null, 2])).pop();
  const classes = new st.nn.AdaptiveLogSoftmaxWithLoss(8, 100, [10, 30], { divValue: 2 });
  classes.forward(x, y).loss.backward();
  console.log(classes.predict(x), classes.logProb(x).shape, classes.cutoffs);
  const [largest, places] = new st.nn.FractionalMaxPool2d(2, { outputRatio: [0.5, 0.6], returnIndices: true }).forward(x);
  console.log(st.nn.functional.fractionalMaxPool3d(x, [2, 1, 1], { outputSize: 2 }).add(1), largest, places);
  const [mixed, weights]: [st.Tensor, st.Tensor] = new st.nn.MultiheadAttention(4, 2).forward(x, x, x, { needWeights: true });
  const ctc: st.Tensor = new st.nn.CTCLoss({ zeroInfinity: true }).forward(x, y, [1, 2], y);
  const clipped: number = st.nn.utils.clipGradNorm_(net, 1, { normType: Infinity });
  const dict = new st.nn.ParameterDict({ w: x });
  const entries: [string, st.Tensor][] = dict.entries();
  console.log(lossNow, pooled, at, mixed, weights, ctc, clipped, entries, st.nn.functional.gridSample(x, y, { paddingMode: 'border' }));
  net.dispose();
  // @ts-expect-error a mode that there is not
  new st.nn.Upsample({ size: 3, mode: 'cubic' });
  // @ts-expect-error a bag's mode
  new st.nn.EmbeddingBag(3, 2, { mode: 'median' });
  // @ts-expect-error L-BFGS wants a function
  lbfgs.step();
  // @ts-expect-error an option that there is not
  new st.optim.StepLR(groups, { size: 3 });
  // @ts-expect-error an option that must be given
  new st.optim.CosineAnnealingLR(groups, { etaMin: 0.1 });
  new st.optim.Muon(net.parameters(), { lr: 0.02, nsSteps: 5, maximize: true });
  new st.optim.LinearLR(groups, { startFactor: [0.1, 0.2] });
  // @ts-expect-error a cell gives a tensor
  const [wrong] = new st.nn.GRUCell(2, 2).forward(x).wrong;
  // @ts-expect-error computeLoss or loss, not something else
  new st.ModuleTrainer({ module: net, optimizer: groups, loader, out: 'x', lossFunction: st.mse_loss });
  console.log(wrong);
  const low: st.Tensor = st.autocast({ dtype: 'f16' }, () => net.forward(x));
  const again: st.Tensor = st.checkpoint((v, k) => net.forward(v).mul(k), x, 2);
  const step = st.graphed((v: st.Tensor, scale: number) => ({ loss: v.mul(scale), scale }), { warmup: 2, most: 4 });
  const stepped: st.Tensor = step(x, 2).loss;
  step.clear();
  // @ts-expect-error the arguments are those of the function
  step(x, 'two');
  console.log(stepped, step.graphs + step.captures + step.replays, step.note);
  const mode: st.ModeScope = st.autocast();
  mode[Symbol.dispose]();
  const stream: st.CudaStream = st.cuda.currentStream();
  const made: number[] = st.cuda.stream(stream, () => low.add(again).shape);
  const graph: st.CUDAGraph = new st.cuda.CUDAGraph();
  const captured: st.Tensor = graph.capture(() => st.relu(x), { stream });
  const memory: number = st.cuda.memoryAllocated('cuda:0') + st.memoryStats().peakByTag.gradient + made[0] + captured.numel;
  // @ts-expect-error f32 is no low precision
  st.autocast({ dtype: 'f32' }, () => memory);
  // @ts-expect-error the arguments are those of the function
  st.checkpoint((v: st.Tensor) => v, 3);
  const entry: number | bigint | boolean = loss.item();

  // @ts-expect-error there is no such op
  st.softmaxx(x, 0);
  // @ts-expect-error dim is wanted
  st.softmax(x);
  // @ts-expect-error a dtype that there is not
  st.zeros([1], { dtype: 'float' });
  // @ts-expect-error a promise is not a tensor
  st.relu(st.async.relu(x));
  // @ts-expect-error an option that there is not
  new st.optim.SGD(net, { beta1: 0.9 });
  // @ts-expect-error the shape is not to be written
  x.shape = [1];
  // @ts-expect-error grad may be null
  x.grad.sum();
  return Number(entry);
}
