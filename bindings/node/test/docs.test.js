'use strict';
// The programs in docs/library/node.md run.

const test = require('node:test');
const fs = require('node:fs');
const path = require('node:path');
const assert = require('node:assert/strict');
const st = require('../lib/index.js');
const { temporary } = require('./child.js');

const folder = temporary();
const text = fs.readFileSync(path.join(__dirname, '../../../docs/library/node.md'), 'utf8');
const programs = [...text.matchAll(/^## (.*)$|^```js\n\/\/ run\n([\s\S]*?)^```/gm)];
const AsyncFunction = (async () => {}).constructor;
let heading = 'Node';
let count = 0;
for (const [, title, program] of programs) {
  if (title) {
    heading = title;
    continue;
  }
  ++count;
  test(`docs: ${heading}`, () => new AsyncFunction('st', 'assert', 'folder', 'require', program)(st, assert, folder, require));
}
test('there are programs', () => assert.ok(count >= 8));
