'use strict';
// A convolutional network reads handwritten digits: the network of examples/mnist.cpp, trained from Node. It learns from
// 9,000 of the 10,000 digits of MNIST's test set and is judged on the 1,000 others.
// Usage: node main.js [--data FOLDER] [--download] [--epochs N] [--device cpu|cuda] [--save FILE]

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const st = require('../../../bindings/node');

const digits = ['t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte'];
const mirror = 'https://ossci-datasets.s3.amazonaws.com/mnist';

class Net extends st.nn.Module {
  constructor() {
    super();
    this.conv1 = new st.nn.Conv2d(1, 16, 3, { padding: 1 });
    this.conv2 = new st.nn.Conv2d(16, 32, 3, { padding: 1 });
    this.dropout = new st.nn.Dropout(0.3);
    this.hidden = new st.nn.Linear(32 * 7 * 7, 64);
    this.out = new st.nn.Linear(64, 10);
  }
  forward(images) {
    let x = st.max_pool2d(st.relu(this.conv1.forward(images)), 2);
    x = st.max_pool2d(st.relu(this.conv2.forward(x)), 2);
    return this.out.forward(this.dropout.forward(st.relu(this.hidden.forward(x.flatten(1)))));
  }
}

/** The digits' file, plain or compressed; undefined where there is none. */
function findFile(folder, name) {
  return [name, `${name}.gz`, `mnist-${name}`, `mnist-${name}.gz`].map((n) => path.join(folder, n)).find((f) => fs.existsSync(f));
}

/** Fetches into the folder what of the digits is not there. */
async function download(folder, from) {
  fs.mkdirSync(folder, { recursive: true });
  for (const name of digits.filter((n) => !findFile(folder, n))) {
    console.log(`fetching ${from}/${name}.gz`);
    const response = await fetch(`${from}/${name}.gz`).catch((error) => ({ status: error.cause?.message ?? error.message }));
    if (!response.ok) throw new Error(`cannot fetch ${from}/${name}.gz: ${response.status} ${response.statusText ?? ''}`);
    const part = path.join(folder, `${name}.part`);
    fs.writeFileSync(part, Buffer.from(await response.arrayBuffer()));
    fs.renameSync(part, path.join(folder, `${name}.gz`));
  }
}

function defaultFolder() {
  const root = path.join(__dirname, '../../..');
  const beside = path.join(root, '../shared/data');
  return process.env.STRATA_DATA_DIR ?? (findFile(beside, digits[0]) ? beside : path.join(root, 'build/mnist'));
}

function accuracy(net, images, labels) {
  net.eval();
  const right = st.noGrad(() => st.eq(net.forward(images).argmax(1), labels).to('f32').mean().item());
  net.train();
  return right;
}

async function main() {
  const { values: options } = parseArgs({ options: {
    data: { type: 'string', default: defaultFolder() },
    download: { type: 'boolean' },
    mirror: { type: 'string', default: mirror },
    epochs: { type: 'string', default: '4' },
    device: { type: 'string', default: 'cpu' },
    save: { type: 'string' },
  } });
  if (options.download) await download(options.data, options.mirror);
  const files = digits.map((name) => findFile(options.data, name));
  if (files.includes(undefined)) {
    console.log(`skipped: no digits in ${options.data} (${digits.join(', ')}, plain or .gz); --download fetches them, ` +
      '--data or STRATA_DATA_DIR names their folder');
    return;
  }
  const [rawImages, rawLabels] = await Promise.all(files.map((f) => st.readIdx(f)));
  const images = rawImages.to('f32').unsqueeze(1).div(255).to(options.device);
  const labels = rawLabels.to('i64').to(options.device);
  const test = [images.narrow(0, 9000, 1000), labels.narrow(0, 9000, 1000)];
  const train = [images.narrow(0, 0, 9000), labels.narrow(0, 0, 9000)];

  st.manualSeed(1);
  const net = new Net().to(options.device);
  console.log(`${net}\n${net.numParameters()} parameters`);
  const optimizer = new st.optim.AdamW(net, { lr: 2e-3 });
  const batchSize = 64;
  const epochs = Number(options.epochs);
  const perEpoch = Math.ceil(9000 / batchSize);
  const rate = st.optim.cosine(2e-3, Math.max(1, epochs) * perEpoch, { warmup: 20 });
  let step = 0;
  let reached = 0;
  for (let epoch = 1; epoch <= epochs; ++epoch) {
    const begun = Date.now();
    let total = 0;
    for (const [x, y] of st.data.batches(train, { batchSize, shuffle: true })) {
      optimizer.lr = rate(step++);
      optimizer.zeroGrad();
      const loss = st.cross_entropy(net.forward(x), y);
      // Off the event loop: a server would go on answering meanwhile.
      await loss.backwardAsync();
      await optimizer.stepAsync();
      total += loss.item();
    }
    reached = accuracy(net, ...test);
    console.log(`epoch ${epoch}  loss ${(total / perEpoch).toFixed(4)}  held-out accuracy ${(100 * reached).toFixed(2)} %  ` +
      `${((Date.now() - begun) / 1000).toFixed(1)} s`);
  }
  if (options.save) {
    await st.save(options.save, net.stateDict(), { metadata: { network: 'mnist', accuracy: String(reached) } });
    console.log(`saved to ${options.save}`);
  }
  if (epochs >= 4 && reached < 0.965) throw new Error(`the network reached ${(100 * reached).toFixed(2)} % only`);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
