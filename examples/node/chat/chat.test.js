'use strict';
// The program with a tiny model that scripts/make-models wrote, to which a tokenizer of characters is given.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { run, temporary } = require('../../../bindings/node/test/child.js');

const MODELS = process.env.STRATA_MODELS ?? path.join(__dirname, '../../../build/models');
const from = path.join(MODELS, 'llama-plain');
const skip = fs.existsSync(path.join(from, 'config.json')) ? false : `${from} is not there: scripts/make-models writes it`;
const program = path.join(__dirname, 'chat.js');

test('it answers every line, and says what is missing', { skip }, () => {
  const folder = path.join(temporary(), 'model');
  fs.cpSync(from, folder, { recursive: true });
  const none = run(process.execPath, [program, folder]);
  assert.equal(none.status, 1);
  assert.match(none.stderr, /has no chat template/);
  const vocab = Object.fromEntries(Array.from({ length: 91 }, (_, i) => [String.fromCharCode(32 + i), i]));
  fs.writeFileSync(path.join(folder, 'tokenizer.json'), JSON.stringify({
    version: '1.0', added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: { type: 'Fuse' },
    model: { type: 'BPE', unk_token: ' ', vocab, merges: [] },
  }));
  fs.writeFileSync(path.join(folder, 'tokenizer_config.json'), JSON.stringify({ chat_template: '{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}' }));
  fs.writeFileSync(path.join(folder, 'generation_config.json'), JSON.stringify({ max_new_tokens: 10 }));
  const { status, stdout, stderr } = run(process.execPath, [program, folder, 'Be brief.'], { input: 'hello\nand more\n' });
  assert.equal(status, 0, stderr);
  // Ten characters behind each prompt, and the prompt at which the input ended.
  assert.match(stdout, /^> .{10}\n> .{10}\n> $/);
});
