'use strict';
// Every op, method and asynchronous form with arguments that mostly make no sense: an error each time, or a result, and
// never the end of the process. Each seed runs in a process of its own, which notes every call in a file before it makes
// it: where that process ends, hangs or grows, the call is named.
//
// STRATA_FUZZ_SEED is the first seed, STRATA_FUZZ_SEEDS how many there are, STRATA_FUZZ_SECONDS for how long at most.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { startNode, temporary } = require('./child.js');

const sanitized = Boolean(process.env.STRATA_SANITIZED);
// Seconds for which one call may compute; and with how many in which nothing happens it counts as hanging.
const slowest = sanitized ? 60 : 10;
const hanging = slowest * 9;

/** Runs one seed; what went wrong, or nothing. */
async function runSeed(seed, folder) {
  const note = path.join(folder, `seed-${seed}`);
  const child = startNode([path.join(__dirname, 'fuzz_seed.js'), note, String(seed), String(slowest)], { seconds: sanitized ? 7200 : 1200, stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ''}:hard_rss_limit_mb=4096:allocator_may_return_null=1` } });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text) => { errors += text; });
  const last = () => (fs.existsSync(note) ? fs.readFileSync(note, 'utf8').trim() : 'nothing');
  let hung = '';
  let before = '';
  let unchanged = 0;
  // A call that never ends.
  const watch = setInterval(() => {
    const now = last();
    unchanged = now === before ? unchanged + 1 : 0;
    before = now;
    if (unchanged < hanging) return;
    hung = `hung for ${hanging} s`;
    child.kill('SIGKILL');
  }, 1000);
  const [code, signal] = await new Promise((resolve) => { child.once('close', (...how) => resolve(how)); });
  clearInterval(watch);
  if (code === 0) {
    fs.rmSync(note, { force: true });
    return '';
  }
  return `seed ${seed} ${hung || (signal ? `ended by ${signal}` : `status ${code}`)}; last call: ${last()}\n${errors.slice(0, 4000)}`;
}

test('calls that make no sense, seed by seed', { timeout: 3600000 }, async (t) => {
  const first = Number(process.env.STRATA_FUZZ_SEED ?? 12345);
  const count = Number(process.env.STRATA_FUZZ_SEEDS ?? 1);
  const until = Date.now() + 1000 * Number(process.env.STRATA_FUZZ_SECONDS ?? 3600);
  const folder = temporary();
  const wrong = [];
  let seed = first;
  for (; seed < first + count && Date.now() < until; ++seed) {
    const what = await runSeed(seed, folder);
    if (what) {
      wrong.push(what);
      console.error(what);
    }
  }
  t.diagnostic(`${seed - first} seeds`);
  assert.equal(wrong.length, 0, wrong.join('\n\n'));
});
