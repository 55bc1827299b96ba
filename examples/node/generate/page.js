'use strict';
const $ = (id) => document.getElementById(id);
let going = null;

function say(text, error = false) {
  $('status').textContent = text;
  $('status').classList.toggle('error', error);
}

async function generate() {
  going?.abort();
  const mine = new AbortController();
  going = mine;
  $('stop').disabled = false;
  $('text').textContent = $('prompt').value;
  const made = document.createElement('span');
  $('text').append(made);
  $('text').classList.add('going');
  const query = new URLSearchParams({ prompt: $('prompt').value });
  for (const name of ['tokens', 'temperature', 'topK', 'seed']) query.set(name, $(name).value);
  const begun = performance.now();
  let characters = 0;
  const seconds = () => (performance.now() - begun) / 1000;
  const progress = () => `${characters} characters in ${seconds().toFixed(1)} s`;
  try {
    const response = await fetch(`generate?${query}`, { signal: mine.signal });
    if (!response.ok) throw new Error(await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      made.append(value);
      characters += value.length;
      say(progress());
    }
    say(`${progress()}, done`);
  } catch (error) {
    if (going !== mine) return;
    if (mine.signal.aborted) say(`${progress()}, stopped`);
    else say(error.message, true);
  } finally {
    if (going === mine) {
      going = null;
      $('stop').disabled = true;
      $('text').classList.remove('going');
    }
  }
}

$('form').addEventListener('submit', (event) => {
  event.preventDefault();
  generate();
});
$('prompt').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) generate();
});
$('stop').addEventListener('click', () => going?.abort());
$('temperature').addEventListener('input', () => { $('temperature-value').textContent = Number($('temperature').value).toFixed(1); });

fetch('model').then((r) => r.json()).then((m) => {
  $('model').textContent = `${m.name}, step ${m.step}: ${(m.parameters / 1e6).toFixed(2)} million parameters, context of ${m.context} tokens`;
}).catch(() => { $('model').textContent = 'the server does not answer'; });
