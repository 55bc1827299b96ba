'use strict';
// Talks to a model of a folder in the terminal: node examples/node/chat/chat.js MODEL [SYSTEM PROMPT]
// The answer appears as it is written; Ctrl-C ends it, and at the prompt the program.

const readline = require('node:readline/promises');
const st = require('../../../bindings/node');

async function main([folder, system]) {
  if (!folder) throw new Error('usage: chat.js MODEL [SYSTEM PROMPT]');
  const model = await st.loadPretrained(folder, { device: st.cuda.isAvailable() ? 'cuda' : 'cpu' });
  if (!model.hasChatTemplate) throw new Error(`${folder} has no chat template`);
  const terminal = readline.createInterface({ input: process.stdin, output: process.stdout });
  const messages = system ? [{ role: 'system', content: system }] : [];
  let answering = null;
  terminal.on('SIGINT', () => (answering ? answering.abort() : terminal.close()));
  terminal.setPrompt('> ');
  terminal.prompt();
  for await (const line of terminal) {
    messages.push({ role: 'user', content: line });
    answering = new AbortController();
    let answer = '';
    try {
      for await (const { text } of model.stream(model.chatPrompt(messages), { signal: answering.signal })) {
        answer += text;
        process.stdout.write(text);
      }
    } catch (error) {
      if (!answering.signal.aborted) throw error;
    }
    answering = null;
    messages.push({ role: 'assistant', content: answer });
    process.stdout.write('\n');
    terminal.prompt();
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
});
