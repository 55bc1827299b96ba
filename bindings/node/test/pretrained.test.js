'use strict';
// Models that exist, from Node: tiny ones that scripts/make-models wrote, with what transformers computes.

const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const st = require('../lib/index.js');
const native = require('../lib/native.js');
const { offTheLoop, temporary } = require('./child.js');

const MODELS = process.env.STRATA_MODELS ?? path.join(__dirname, '../../../build/models');
const skip = (name) => (fs.existsSync(path.join(MODELS, name, 'reference.safetensors')) ? false : `${path.join(MODELS, name)} is not there: scripts/make-models writes it`);
const load = async (name) => [await st.loadPretrained(path.join(MODELS, name)), await st.load(path.join(MODELS, name, 'reference.safetensors'))];
const numbers = (t) => t.toArray().flat(Infinity).map(Number);
function near(got, want, share = 1e-4) {
  assert.deepEqual(got.shape, want.shape);
  assert.ok(got.sub(want).abs().max().item() <= share * want.abs().max().item());
}

// A model's folder with a tokenizer of the characters from the blank to 'z', and a template.
function withTokenizer(name) {
  const folder = path.join(temporary(), name);
  fs.cpSync(path.join(MODELS, name), folder, { recursive: true });
  const vocab = { '<s>': 0, '</s>': 1, '<unk>': 2 };
  const special = (id, content) => ({ id, content, special: true, single_word: false, lstrip: false, rstrip: false, normalized: false });
  const added = Object.entries(vocab).map(([content, id]) => special(id, content));
  for (let c = 32; c <= 122; ++c) vocab[String.fromCharCode(c)] = c - 29;
  fs.writeFileSync(path.join(folder, 'tokenizer.json'), JSON.stringify({
    version: '1.0', added_tokens: added, normalizer: null, pre_tokenizer: null, post_processor: null, decoder: { type: 'Fuse' },
    model: { type: 'BPE', unk_token: '<unk>', vocab, merges: [] },
  }));
  fs.writeFileSync(path.join(folder, 'tokenizer_config.json'), JSON.stringify({
    bos_token: '<s>', eos_token: '</s>', chat_template: '{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ mark }} {% endfor %}',
  }));
  return folder;
}

for (const name of ['llama-plain', 'gpt2-plain', 'qwen3-plain']) {
  test(`${name} gives transformers' logits and tokens`, { skip: skip(name) }, async () => {
    const [model, reference] = await load(name);
    assert.equal(model.kind, 'decoder');
    assert.equal(model.family, name.split('-')[0]);
    near(await st.noGrad(() => model.forward(reference.tokens)), reference.logits);
    const want = numbers(reference.greedy);
    const prompt = numbers(reference.prompt);
    const [written] = await offTheLoop(model.generate(prompt, { maxNewTokens: want.length }));
    assert.deepEqual(written.tokens, want);
    assert.equal(written.finish, 'length');
    const many = await model.generate([prompt, prompt.slice(0, 3)], { maxNewTokens: 8 });
    assert.deepEqual(many[0][0].tokens, want.slice(0, 8));
    assert.deepEqual(many[1], await model.generate(prompt.slice(0, 3), { maxNewTokens: 8 }));
  });
}

test('options draw, and what is wrong is told', { skip: skip('llama-plain') }, async () => {
  const [model] = await load('llama-plain');
  const draw = { maxNewTokens: 6, temperature: 0.9, numReturnSequences: 2 };
  const one = await model.generate([1, 2, 3], { seed: 5n, ...draw });
  assert.deepEqual(await model.generate([1, 2, 3], { seed: 5, ...draw }), one);
  assert.notDeepEqual(one[0].tokens, one[1].tokens);
  assert.notDeepEqual((await model.generate([1, 2, 3], { seed: 2n ** 63n, ...draw }))[0].tokens, one[0].tokens);
  const [told] = await model.generate([1, 2, 3], { maxNewTokens: 4, logprobs: true, topLogprobs: 2, promptLogprobs: true });
  assert.equal(told.logprobs.length, 4);
  assert.ok(Math.abs(told.topLogprobs[0][0][1] - told.logprobs[0]) < 1e-4);
  assert.equal(told.promptLogprobs.length, 2);
  await assert.rejects(model.generate([1], { tokens: 3 }), /no option 'tokens'; there are maxNewTokens/);
  await assert.rejects(model.generate([1], { maxNewTokens: 1.5 }), /max_new_tokens/);
  await assert.rejects(model.generate([1], { temperature: 'hot' }), st.ValueError);
  await assert.rejects(model.generate([200], { maxNewTokens: 1 }), st.IndexError);
  await assert.rejects(model.generate(7), /a prompt is a text/);
  await assert.rejects(model.generate('text'), /no tokenizer/);
  await assert.rejects(model.chat([{ role: 'user', content: 'hi' }]), /no tokenizer/);
  await assert.rejects(model.forward(7), st.ValueError);
  await assert.rejects(st.loadPretrained(path.join(MODELS, 'nothing')), st.IoError);
  assert.equal(JSON.parse(native.generationOptions()).filter((o) => o.name === 'max_new_tokens').length, 1);
});

test('pieces come as they are written', { skip: skip('llama-plain') }, async () => {
  const model = await st.loadPretrained(withTokenizer('llama-plain'));
  assert.ok(model.hasTokenizer && model.hasChatTemplate && model.specialIds.eos_token === 1);
  assert.deepEqual(model.encode('ab<s>'), [68, 69, 0]);
  assert.equal(model.decode([0, 68, 69n]), 'ab');
  assert.equal(model.decode([0, 68], { skipSpecialTokens: false }), '<s>a');
  const options = { maxNewTokens: 30, temperature: 1, seed: 4, eosTokenId: [] };
  const pieces = [];
  const [want] = await model.generate('Once', { ...options, onPiece: (p) => { pieces.push(p); } });
  assert.deepEqual(pieces.map((p) => p.token), want.tokens);
  assert.equal(pieces.map((p) => p.text).join(''), want.text);
  assert.ok(want.text.length > 0 && pieces[29].last);
  assert.equal(await model.generateText('Once', options), want.text);
  const streamed = [];
  for await (const { token } of model.stream('Once', options)) streamed.push(token);
  assert.deepEqual(streamed, want.tokens);

  const [cut] = await model.generate('Once', { ...options, onPiece: ({ token }) => token !== want.tokens[3] });
  assert.equal(cut.finish, 'cancelled');
  assert.deepEqual(cut.tokens, want.tokens.slice(0, want.tokens.indexOf(want.tokens[3]) + 1));
  await assert.rejects(model.generate('Once', { ...options, onPiece: () => { throw new RangeError('enough'); } }), new RangeError('enough'));
  for await (const piece of model.stream('Once', { ...options, maxNewTokens: 200 })) {
    assert.ok(piece);
    break;
  }
  await assert.rejects(async () => { for await (const piece of model.stream('Once', { nonsense: 1 })) assert.ok(piece); }, /nonsense/);
  const controller = new AbortController();
  let seen = 0;
  await assert.rejects(model.generate('Once', { ...options, maxNewTokens: 200, signal: controller.signal, onPiece: () => { if (++seen === 3) controller.abort(); } }), { name: 'AbortError' });
  assert.ok(seen < 10, `${seen} pieces after the signal`);
  assert.deepEqual(await Promise.all([1, 2, 3].map(() => model.generateText('Once', options))), [want.text, want.text, want.text], 'calls take turns');

  const prompt = model.chatPrompt([{ role: 'user', content: 'Hi <s>' }], { mark: '!' });
  assert.equal(model.decode(prompt, { skipSpecialTokens: false }), '<s>user: Hi <s>! ');
  assert.equal(prompt.filter((id) => id === 0).length, 1, 'what a message spells is text');
  assert.equal(await model.chat([{ role: 'user', content: 'Hi' }], { maxNewTokens: 5, variables: { mark: '!' } }),
    (await model.generate(model.chatPrompt([{ role: 'user', content: 'Hi' }], { mark: '!' }), { maxNewTokens: 5 }))[0].text);
});

test('it learns, in another dtype too', { skip: skip('llama-plain') }, async () => {
  const [model, reference] = await load('llama-plain');
  const optimizer = new st.optim.AdamW(model.namedParameters(), { lr: 0.01 });
  const tokens = st.narrow(reference.train, 1, 0, 8).contiguous();
  const targets = st.narrow(reference.train, 1, 1, 8).contiguous().reshape([-1]);
  const losses = [];
  for (let i = 0; i < 8; ++i) {
    optimizer.zeroGrad();
    const logits = await model.forward(tokens);
    const loss = st.cross_entropy(logits.reshape([-1, model.vocabSize]), targets);
    loss.backward();
    optimizer.step();
    losses.push(loss.item());
  }
  assert.ok(losses[7] < 0.8 * losses[0], losses.join());
  const low = await st.loadPretrained(path.join(MODELS, 'llama-plain'), { dtype: 'bf16' });
  assert.equal(low.namedParameters()[0][1].dtype, 'bf16');
});

test('encoders give hidden states and vectors', { skip: skip('bert-plain') }, async () => {
  const [bert, reference] = await load('bert-plain');
  const padding = reference.mask.eq(0);
  const hidden = await st.noGrad(() => bert.hidden(reference.tokens, { padding, types: reference.types }));
  near(hidden.mul(reference.mask.unsqueeze(2).to('f32')), reference.hidden);
  await assert.rejects(bert.generate([1]), /no model that writes/);
  const texts = await st.loadPretrained(withTokenizer('bert-plain'));
  const vectors = await texts.embed(['a text', 'b'], { normalize: true });
  assert.deepEqual(vectors.shape, [2, 64]);
  assert.ok(Math.abs(vectors.square().sum().item() - 2) < 1e-4);
  const first = await texts.embed(['b'], { pooling: 'first' });
  const ids = st.tensor([texts.encode('b').map(BigInt)]);
  near(first, (await st.noGrad(() => texts.hidden(ids))).at(null, 0).reshape([1, 64]));
  await assert.rejects(texts.embed(['b'], { pooling: 'middle' }), /weighted_mean/);
  await assert.rejects(texts.embed(['b'], { pool: 'mean' }), /no option 'pool'/);
  await assert.rejects(texts.embed([]), st.ValueError);
});

test('t5 answers as transformers does', { skip: skip('t5-plain') }, async () => {
  const [model, reference] = await load('t5-plain');
  assert.equal(model.kind, 'encoder_decoder');
  const padding = reference.mask.eq(0);
  near(await st.noGrad(() => model.forward(reference.source, { tokens: reference.tokens, padding })), reference.logits);
  const rows = reference.source.toArray();
  const lengths = reference.mask.sum([1]).toArray().map(Number);
  const sources = rows.map((row, i) => row.slice(0, lengths[i]).map(Number));
  const want = reference.greedy.toArray().map((row) => row.map(Number));
  const written = await model.generate(sources, { maxNewTokens: want[0].length, eosTokenId: [] });
  assert.deepEqual(written.map(([{ tokens }]) => tokens), want);
  await assert.rejects(model.forward(reference.source), /tokens that it writes/);
  await assert.rejects(model.transcribe(st.zeros([10]), { rate: 16000 }), /reads no sound/);
});

test('whisper writes what is said', { skip: skip('whisper-plain') }, async () => {
  const folder = path.join(temporary(), 'whisper');
  fs.cpSync(path.join(MODELS, 'whisper-plain'), folder, { recursive: true });
  fs.copyFileSync(path.join(folder, 'transcripts_generation_config.json'), path.join(folder, 'generation_config.json'));
  const model = await st.loadPretrained(folder);
  const reference = await st.load(path.join(folder, 'reference.safetensors'));
  const said = await model.transcribe(reference.loud_end_sound, { rate: 16000, language: 'de', timestamps: true });
  assert.equal(said.language, '<|de|>');
  assert.deepEqual(said.segments.flatMap(({ tokens }) => tokens), numbers(reference.loud_end_tokens));
  const times = numbers(reference.loud_end_times);
  said.segments.forEach(({ start, end }, i) => assert.ok(Math.abs(start - times[2 * i]) + Math.abs(end - times[2 * i + 1]) < 1e-9));
  const timed = await model.transcribe(reference.words_sound, {
    rate: 16000, language: 'de', timestamps: true, wordTimestamps: true, conditionOnPrevTokens: true, logprobThreshold: -100, temperature: [0, 0.5],
  });
  assert.deepEqual(timed.segments.flatMap((s) => s.tokens), reference.words_tokens.toArray().map(Number));
  const ends = reference.words_token_times.toArray();
  timed.segments.flatMap((s) => s.tokenEnds).forEach((end, i) => assert.ok(Math.abs(end - ends[i]) < 1e-5));
  assert.ok(timed.segments.every((s) => s.avgLogprob < 0 && s.temperature === 0 && Array.isArray(s.words)));
  await assert.rejects(model.transcribe(reference.loud_end_sound, { rate: 16000, temperature: [] }), /empty list/);
  await assert.rejects(model.transcribe(reference.loud_end_sound), /want a rate/);
  await assert.rejects(model.transcribe('no.wav'), st.IoError ?? /no\.wav/);
  await assert.rejects(model.generate([1]), /transcribe it/);
});

const CASES = path.join(MODELS, 'eval');
const cases = fs.existsSync(CASES) ? fs.readdirSync(CASES).filter((name) => fs.existsSync(path.join(CASES, name, 'expected.json'))) : [];
const skipEval = cases.length === 0 && `${CASES} is not there: scripts/make-models writes it`;

test("evaluations are transformers', by the harness's definitions", { skip: skipEval }, async () => {
  const close = (got, want, share) => assert.ok(Math.abs(got - want) <= share * Math.max(1, Math.abs(want)), `${got}, not ${want}`);
  for (const name of cases) {
    const folder = path.join(CASES, name);
    const expected = JSON.parse(fs.readFileSync(path.join(folder, 'expected.json'), 'utf8'));
    const model = await st.loadPretrained(folder);
    const heard = new Set();
    const report = await model.evaluate({
      text: path.join(CASES, 'texts.jsonl'), choices: [path.join(CASES, 'choices.jsonl')], answers: path.join(folder, 'answers.jsonl'),
      maxGenToks: 12, until: ['\n\n', '.'], logSamples: true, reference: model, onProgress: (p) => { heard.add(p.name); assert.ok(p.done <= p.all); },
    });
    assert.deepEqual([...heard], ['text', 'compare', 'choices', 'answers']);
    assert.equal(report.results.compare.measures.kl.value, 0);
    for (const kind of ['text', 'choices', 'answers']) {
      const { measures, samples } = report.results[kind];
      for (const [key, value] of Object.entries(expected[kind].measures)) {
        const got = key.endsWith('_stderr') ? measures[key.slice(0, -7)].error : measures[key].value;
        close(got, value, key.endsWith('perplexity') ? 2e-4 : 1e-5);
      }
      assert.equal(samples.length, expected[kind].samples.length);
      samples.forEach(({ written, logProbabilities }, i) => {
        const want = expected[kind].samples[i];
        if (kind === 'answers') assert.equal(written, want);
        else [want].flat().forEach((v, k) => close(logProbabilities[k], v, 1e-5));
      });
    }
  }
});

test('evaluations that are wrong are told', { skip: skipEval }, async () => {
  const model = await st.loadPretrained(path.join(CASES, cases[0]));
  await assert.rejects(model.evaluate({ documents: 'a', shots: 3 }), /there is no option 'shots'/);
  await assert.rejects(model.evaluate(), /nothing to evaluate on/);
  await assert.rejects(model.evaluate({ documents: ['a'], reference: 3 }), /the reference is a model/);
  await assert.rejects(model.evaluate({ text: 'no.txt' }), /no\.txt/);
  await assert.rejects(model.evaluate({ documents: ['a b', 'c'], batchSize: 1, onProgress: () => false }), /stopped after/);
  await assert.rejects(model.evaluate({ documents: 'a', onProgress: () => { throw new RangeError('mine'); } }), (e) => e instanceof RangeError);
  await assert.rejects(model.evaluate({ documents: 'a', signal: AbortSignal.abort() }), { name: 'AbortError' });
  const { results } = await model.evaluate({ documents: ['a b', 'c'], batchSize: 1n });
  assert.equal(results.text.documents, 2);
});
