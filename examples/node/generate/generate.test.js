'use strict';
// The server over HTTP, and the page in headless Chromium, spoken to through its debugging pipe.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { spawn, spawnSync } = require('node:child_process');
const st = require('../../../bindings/node');
const { makeServer } = require('./server.js');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'strata-node-'));
const state = { name: 'tensor-guide', model: null, training: null };
let server;
let base;
test.before(async () => {
  const text = path.join(folder, 'text.txt');
  fs.writeFileSync(text, fs.readFileSync(path.join(__dirname, '../../../docs/guide/tensor.md'), 'utf8'));
  const out = path.join(folder, 'tensor-guide');
  await st.train({
    model: { layers: 2, dim: 64, heads: 2, context: 64 },
    data: { path: text },
    train: { steps: process.env.STRATA_SANITIZED ? 5 : 250, batch: 16, lr: 5e-3, eval_every: 1000, save_every: 1000, sample_tokens: 0 },
  }, { out });
  server = makeServer(state);
  state.model = await st.loadModel(out);
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  base = `http://127.0.0.1:${server.address().port}`;
});
test.after(async () => {
  server?.closeAllConnections();
  server?.close();
  // From the start each time: a retry inside rmSync() sees no file that came after its first listing.
  for (let left = 50; fs.existsSync(folder); --left) {
    try {
      fs.rmSync(folder, { recursive: true, force: true });
    } catch (error) {
      if (!left) throw error;
      await new Promise((resolve) => { setTimeout(resolve, 100); });
    }
  }
});

test('text is streamed', async () => {
  const response = await fetch(`${base}/generate?prompt=Tensor&tokens=60&seed=3`);
  assert.equal(response.status, 200);
  let chunks = 0;
  let text = '';
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    ++chunks;
    text += chunk;
  }
  assert.ok(text.length >= 55 && text.length <= 60, text);
  assert.ok(chunks > 1, `${chunks} chunks`);
  assert.equal(await (await fetch(`${base}/generate?prompt=Tensor&tokens=60&seed=3`)).text(), text);
});

test('while the model is not there the server says so', async (t) => {
  const early = makeServer({ name: 'x', model: null, training: { step: 3, steps: 9, loss: 2.5 } });
  t.after(() => early.close());
  await new Promise((resolve) => { early.listen(0, '127.0.0.1', resolve); });
  const url = `http://127.0.0.1:${early.address().port}`;
  assert.deepEqual(await (await fetch(`${url}/model`)).json(), { name: 'x', training: { step: 3, steps: 9, loss: 2.5 } });
  assert.equal((await fetch(`${url}/generate?prompt=A`)).status, 503);
});

test('wrong requests are refused, pages are there', async () => {
  assert.equal((await fetch(`${base}/generate?tokens=99999999`)).status, 400);
  assert.match(await (await fetch(`${base}/generate?temperature=x`)).text(), /temperature must be between/);
  assert.equal((await fetch(`${base}/../server.js`)).status, 404);
  assert.equal((await fetch(base, { method: 'POST' })).status, 405);
  assert.match(await (await fetch(base)).text(), /<title>Strata/);
  assert.equal((await (await fetch(`${base}/model`)).json()).context, 64);
});

test('a reader who leaves ends the work', async () => {
  const request = http.get(`${base}/generate?prompt=A&tokens=2000`);
  await new Promise((resolve) => { request.once('response', (r) => r.once('data', resolve)); });
  request.destroy();
  const begun = Date.now();
  await (await fetch(`${base}/generate?prompt=A&tokens=5`)).text();
  assert.ok(Date.now() - begun < 10000);
});

/** Chromium with a page; send(method, params) speaks the DevTools protocol. */
async function browser(program, t) {
  const child = spawn(program, ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe',
    '--window-size=1100,900', `--user-data-dir=${path.join(folder, 'profile')}`, 'about:blank'],
  { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true });
  const ended = new Promise((resolve) => { child.once('close', resolve); });
  t.after(async () => {
    // The whole group: its other processes write to the profile for a while after the first has gone.
    try { process.kill(-child.pid, 'SIGKILL'); } catch (error) { assert.equal(error.code, 'ESRCH'); }
    await ended;
  });
  const waiting = new Map();
  const events = [];
  let next = 0;
  let pending = '';
  child.stdio[4].setEncoding('utf8').on('data', (data) => {
    pending += data;
    for (let end = pending.indexOf('\0'); end >= 0; end = pending.indexOf('\0')) {
      const message = JSON.parse(pending.slice(0, end));
      pending = pending.slice(end + 1);
      if (message.id === undefined) {
        events.push(message);
        continue;
      }
      const [resolve, reject] = waiting.get(message.id);
      waiting.delete(message.id);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    }
  });
  let sessionId;
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    waiting.set(++next, [resolve, reject]);
    child.stdio[3].write(`${JSON.stringify({ id: next, method, params, ...(sessionId ? { sessionId } : {}) })}\0`);
  });
  const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
  ({ sessionId } = await send('Target.attachToTarget', { targetId, flatten: true }));
  await send('Page.enable');
  await send('Runtime.enable');
  await send('Log.enable');
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const until = async (expression, what) => {
    for (let i = 0; i < 400; ++i) {
      if (await evaluate(expression)) return;
      await new Promise((resolve) => { setTimeout(resolve, 50); });
    }
    assert.fail(`${what}: ${await evaluate('document.body.innerText')}`);
  };
  return { send, evaluate, until, events };
}

const chromium = ['chromium', 'chromium-browser', 'google-chrome'].find((p) => !spawnSync('which', [p]).error && spawnSync('which', [p]).status === 0);
const skip = !chromium ? 'no chromium was found' : process.env.STRATA_SANITIZED ? 'the page is tested without the sanitizer' : false;
test('the page writes in Chromium', { skip, timeout: 120000 }, async (t) => {
  const page = await browser(chromium, t);
  // First a server whose model still learns.
  const { model } = state;
  t.after(() => { state.model = model; });
  Object.assign(state, { model: null, training: { step: 30, steps: 90, loss: 2.5 } });
  await page.send('Page.navigate', { url: base });
  await page.until('document.getElementById("model")?.textContent.includes("step 30 of 90, loss 2.50")', 'the training is not shown');
  assert.equal(await page.evaluate('document.getElementById("go").disabled'), true);
  state.model = model;
  await page.until('document.getElementById("model")?.textContent.includes("context of 64 tokens")', 'the model was not named');
  // A text that is stopped on its way.
  await page.evaluate('document.getElementById("tokens").value = 2000; document.getElementById("go").click()');
  await page.until('document.querySelector("#text span").textContent.length > 20', 'no text came');
  assert.equal(await page.evaluate('document.getElementById("stop").disabled'), false);
  await page.evaluate('document.getElementById("stop").click()');
  await page.until('document.getElementById("status").textContent.endsWith("stopped")', 'it did not stop');
  const stopped = await page.evaluate('document.querySelector("#text span").textContent.length');
  assert.ok(stopped < 2000);
  // One that ends, typed by hand.
  await page.evaluate('document.getElementById("tokens").value = 250; document.getElementById("prompt").select()');
  await page.send('Input.insertText', { text: '# Tensors\n\nA `Tensor` is a handle' });
  await page.evaluate('document.getElementById("go").click()');
  await page.until('document.getElementById("status").textContent.endsWith("done")', 'it did not end');
  const text = await page.evaluate('document.getElementById("text").textContent');
  assert.ok(text.startsWith('# Tensors\n\nA `Tensor` is a handle'));
  assert.ok(text.length > 250);
  assert.equal(await page.evaluate('document.getElementById("stop").disabled'), true);
  assert.match(await page.evaluate('document.getElementById("status").textContent'), /^250 characters in .* seed \d+, done$/);
  // A wrong setting is said on the page.
  if (process.env.STRATA_SCREENSHOT) {
    const { data } = await page.send('Page.captureScreenshot', { format: 'png' });
    fs.writeFileSync(process.env.STRATA_SCREENSHOT, Buffer.from(data, 'base64'));
  }
  await page.evaluate('document.getElementById("form").noValidate = true; document.getElementById("seed").value = -5; document.getElementById("go").click()');
  await page.until('document.getElementById("status").textContent.includes("seed must be between")', 'the error is not shown');
  const errors = page.events.filter((e) => e.method === 'Runtime.exceptionThrown');
  assert.deepEqual(errors, []);
});
