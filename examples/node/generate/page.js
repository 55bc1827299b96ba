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
  for (const name of ['tokens', 'temperature', 'topK', 'seed']) if ($(name).value) query.set(name, $(name).value);
  if (!query.has('seed')) query.set('seed', Math.floor(Math.random() * 1e6));
  const begun = performance.now();
  let characters = 0;
  const seconds = () => (performance.now() - begun) / 1000;
  const progress = () => `${characters} characters in ${seconds().toFixed(1)} s, ` +
    `${Math.round(characters / Math.max(seconds(), 1e-3))} a second, seed ${query.get('seed')}`;
  try {
    const response = await fetch(`generate?${query}`, { signal: mine.signal });
    if (!response.ok) throw new Error(await response.text());
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      // Whoever reads at the end stays there.
      const page = document.documentElement;
      const atEnd = page.scrollHeight - page.scrollTop - page.clientHeight < 40;
      made.append(value);
      if (atEnd) page.scrollTop = page.scrollHeight;
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
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) $('form').requestSubmit();
});
$('stop').addEventListener('click', () => going?.abort());
$('temperature').addEventListener('input', () => { $('temperature-value').textContent = Number($('temperature').value).toFixed(1); });

/** Names the model; while it learns, says how far it is and asks again. */
async function describeModel() {
  let again = 0;
  try {
    const model = await (await fetch('model')).json();
    if (model.parameters) {
      $('model').textContent = `${model.name}, step ${model.step}: ${(model.parameters / 1e6).toFixed(2)} million parameters, context of ${model.context} tokens`;
    } else {
      const { step, steps, loss } = model.training ?? {};
      $('model').textContent = step ? `The model is being trained: step ${step} of ${steps}, loss ${loss.toFixed(2)}. Then it writes.` : 'The model is being loaded.';
      if (step) $('learned').value = step / steps;
      again = 500;
    }
  } catch {
    $('model').textContent = 'The server does not answer.';
    again = 2000;
  }
  $('learned').hidden = again !== 500;
  $('go').disabled = again > 0;
  if (again) setTimeout(describeModel, again);
}
describeModel();
