'use strict';
// A web page on which a language model continues texts, word by word as they come.
// Usage: node server.js [--checkpoint FOLDER] [--port N] [--device cpu|cuda] [--steps N]
// FOLDER is a run of `strata train` or a checkpoint. Without one, a small model is trained first, on the repository's own
// documentation, and kept in runs/node-generate.

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { parseArgs } = require('node:util');
const st = require('../../../bindings/node');

const root = path.join(__dirname, '../../..');
const pages = {
  '/': ['index.html', 'text/html; charset=utf-8'],
  '/page.js': ['page.js', 'text/javascript; charset=utf-8'],
  '/page.css': ['page.css', 'text/css; charset=utf-8'],
};

/** Trains the small model unless it is there; says in `state.training` how far it is. */
async function trainSmall(state, out, steps) {
  if (fs.existsSync(path.join(out, 'done'))) return;
  console.log(`no --checkpoint: training a small model on docs/ for ${steps} steps, into ${path.relative(root, out)}`);
  const stop = new AbortController();
  const interrupted = () => stop.abort(new Error('interrupted; what was learned is kept, the same command goes on'));
  process.once('SIGINT', interrupted);
  await st.train({
    model: { layers: 4, dim: 128, heads: 4, context: 128 },
    data: { path: path.join(root, 'docs') },
    train: { steps, batch: 16, lr: 3e-3, eval_every: 500, save_every: 250, sample_tokens: 0 },
  }, {
    out,
    resume: true,
    onLog(text) {
      process.stdout.write(text);
      const found = /step +(\d+)\/(\d+) +loss ([\d.]+)/.exec(text);
      if (found) state.training = { step: Number(found[1]), steps: Number(found[2]), loss: Number(found[3]) };
    },
    signal: stop.signal,
  });
  process.removeListener('SIGINT', interrupted);
  fs.writeFileSync(path.join(out, 'done'), '');
}

const limits = { tokens: [1, 2000], temperature: [0, 5], topK: [0, 100000], topP: [0.01, 1], seed: [0, 2 ** 31] };
/** The options out of a request's query; throws RangeError for what is out of range. */
function optionsOf(query) {
  const options = {};
  for (const [name, [least, most]] of Object.entries(limits)) {
    if (!query.has(name)) continue;
    const value = Number(query.get(name));
    if (!(value >= least && value <= most)) throw new RangeError(`${name} must be between ${least} and ${most}`);
    options[name] = value;
  }
  return options;
}

/** Writes the continuation as it comes; ends when it is done or the reader goes away. */
async function generate(model, query, response) {
  let options;
  const prompt = query.get('prompt') || '\n';
  try {
    options = optionsOf(query);
  } catch (error) {
    response.writeHead(400, { 'content-type': 'text/plain; charset=utf-8' }).end(error.message);
    return;
  }
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' });
  response.flushHeaders();
  try {
    for await (const { text } of model.generate(prompt, { ...options, signal: gone.signal })) {
      if (text && !response.write(text)) await new Promise((resolve) => { response.once('drain', resolve).once('close', resolve); });
    }
    response.end();
  } catch (error) {
    if (gone.signal.aborted) return;
    console.error(error);
    response.destroy(error);
  }
}

/** A server that answers for state.model once it is there; state is {name, model, training}. listen(port) is the caller's. */
function makeServer(state) {
  return http.createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost');
    if (request.method !== 'GET') {
      response.writeHead(405).end();
    } else if (url.pathname in pages) {
      const [file, type] = pages[url.pathname];
      response.writeHead(200, { 'content-type': type });
      fs.createReadStream(path.join(__dirname, file)).pipe(response);
    } else if (url.pathname === '/model') {
      response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' })
        .end(JSON.stringify(describe(state)));
    } else if (url.pathname === '/generate') {
      if (state.model) generate(state.model, url.searchParams, response);
      else response.writeHead(503, { 'content-type': 'text/plain; charset=utf-8', 'retry-after': '5' }).end('the model is not ready yet');
    } else {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('not found');
    }
  });
}
function describe({ name, model, training }) {
  if (!model) return { name, training };
  const parameters = model.namedParameters().reduce((n, [, t]) => n + t.numel, 0);
  return { name, parameters, context: model.context, vocab: model.vocab, step: model.step };
}

async function main() {
  const { values: options } = parseArgs({ options: {
    checkpoint: { type: 'string' },
    port: { type: 'string', default: '8080' },
    device: { type: 'string', default: 'cpu' },
    steps: { type: 'string', default: '1500' },
  } });
  const checkpoint = options.checkpoint ?? path.join(root, 'runs', 'node-generate');
  const state = { name: path.basename(path.resolve(checkpoint)), model: null, training: null };
  const server = makeServer(state);
  await new Promise((resolve, reject) => {
    server.once('error', reject).listen(Number(options.port), '127.0.0.1', resolve);
  });
  // The page is there at once: while the model learns, it shows how far that is.
  console.log(`http://localhost:${server.address().port}/`);
  try {
    if (!options.checkpoint) await trainSmall(state, checkpoint, Number(options.steps));
    state.model = await st.loadModel(checkpoint, { device: options.device });
  } catch (error) {
    server.close();
    server.closeAllConnections();
    throw error;
  }
  for (const warning of state.model.warnings) console.error(`note: ${warning}`);
  console.log(`ready: http://localhost:${server.address().port}/`);
}

module.exports = { makeServer };
if (require.main === module) {
  main().catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}
