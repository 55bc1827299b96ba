'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const http = require('node:http');
const { spawn, spawnSync } = require('node:child_process');

const main = path.join(__dirname, 'main.js');
const data = process.env.STRATA_DATA_DIR ?? path.join(__dirname, '../../../../shared/data');
const absent = fs.existsSync(path.join(data, 'mnist-t10k-images-idx3-ubyte.gz')) ? false : `no digits in ${data}`;
const slow = process.env.STRATA_SANITIZED ? 'takes minutes under the sanitizer' : false;

/** A folder that goes with its test. */
function temporary(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'strata-node-'));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  return folder;
}

test('the network learns and is saved', { skip: absent || slow, timeout: 300000 }, (t) => {
  const file = path.join(temporary(t), 'net.safetensors');
  const run = spawnSync(process.execPath, [main, '--data', data, '--save', file], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stdout + run.stderr);
  assert.match(run.stdout, /epoch 4 {2}loss 0\.\d+ {2}held-out accuracy 9[6-9]\.\d+ %/);
  assert.ok(fs.statSync(file).size > 400000);
});

test('without data it says so', () => {
  const run = spawnSync(process.execPath, [main, '--data', '/nowhere'], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  assert.match(run.stdout, /skipped: no digits in \/nowhere/);
});

test('--download fetches what is missing, and says what failed', { skip: absent || slow, timeout: 300000 }, async (t) => {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(request.url);
    const file = path.join(data, `mnist-${path.basename(request.url)}`);
    if (request.url.startsWith('/mnist/') && fs.existsSync(file)) fs.createReadStream(file).pipe(response);
    else response.writeHead(404).end();
  });
  t.after(() => server.close());
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const from = `http://127.0.0.1:${server.address().port}`;
  const folder = path.join(temporary(t), 'digits');
  const run = async (...args) => {
    const child = spawn(process.execPath, [main, '--data', folder, '--epochs', '0', '--download', '--mirror', ...args]);
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => { text += piece; });
    const status = await new Promise((resolve) => { child.on('close', resolve); });
    return { status, text };
  };
  const failed = await run(`${from}/elsewhere`);
  assert.equal(failed.status, 1);
  assert.match(failed.text, /cannot fetch .*elsewhere\/t10k-images-idx3-ubyte\.gz: 404/);
  for (let i = 0; i < 2; ++i) {
    const { status, text } = await run(`${from}/mnist`);
    assert.equal(status, 0, text);
  }
  assert.deepEqual(asked, ['/elsewhere/t10k-images-idx3-ubyte.gz', '/mnist/t10k-images-idx3-ubyte.gz', '/mnist/t10k-labels-idx1-ubyte.gz']);
  assert.deepEqual(fs.readdirSync(folder).sort(), ['t10k-images-idx3-ubyte.gz', 't10k-labels-idx1-ubyte.gz']);
});
