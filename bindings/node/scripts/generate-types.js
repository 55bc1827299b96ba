'use strict';
// Writes lib/ops.d.ts, lib/optimizers.d.ts, lib/families.d.ts, lib/generation.d.ts and lib/evaluation.d.ts from the records of the
// addon: node bindings/node/scripts/generate-types.js. The files are not kept in the repository; scripts/build-node makes them.

const fs = require('node:fs');
const path = require('node:path');
const strata = require('../lib/index.js');
const native = require('../lib/native.js');
const { camel, recorded } = require('../lib/optim/recorded.js');

// What the description's kinds are in TypeScript.
const TYPES = {
  Tensor: 'TensorLike', 'Tensor[]': 'readonly (Tensor | null)[]', Scalar: 'ScalarLike', int: 'Int', float: 'number | bigint', bool: 'boolean',
  str: 'string', 'int[]': 'Ints', DType: 'DType', Device: 'Device', RngKey: 'RngKey',
};
const RESULTS = { Tensor: 'Tensor', 'Tensor[]': 'Tensor[]' };

const typeOf = (arg) => {
  const type = TYPES[arg.kind];
  if (!type) throw new Error(`no TypeScript type for ${arg.kind}`);
  return arg.optional ? `${type} | null` : type;
};
const mayMiss = (arg) => arg.hasDefault || arg.optional || arg.kind === 'RngKey';

function resultOf(record, whole) {
  const results = whole ? record.results : record.results.slice(0, record.shown);
  if (results.length === 1) return RESULTS[results[0].kind];
  return `{ ${results.map((r) => `${r.name}: ${RESULTS[r.kind]}`).join('; ')} }`;
}

// Words that JavaScript keeps for itself are no names of parameters; as keys of options they are.
const parameter = (a) => (['var', 'in', 'default', 'function', 'with', 'new'].includes(a.name) ? `${a.name}_` : a.name);

/** Parameters: all in order, then each beginning of them with the rest by name. */
function parameterLists(args, withSignal, shortest) {
  const lists = [];
  const positional = args.map((a, i) => {
    const name = parameter(a);
    return args.slice(i).every(mayMiss) ? `${name}?: ${typeOf(a)}` : mayMiss(a) ? `${name}: ${typeOf(a)} | undefined` : `${name}: ${typeOf(a)}`;
  });
  lists.push(positional.join(', '));
  for (let k = shortest; k < args.length || (withSignal && k === args.length); ++k) {
    const before = args.slice(0, k).map((a) => (mayMiss(a) ? `${parameter(a)}: ${typeOf(a)} | undefined` : `${parameter(a)}: ${typeOf(a)}`));
    const named = args.slice(k).map((a) => `${a.name}${mayMiss(a) ? '?' : ''}: ${typeOf(a)}`);
    if (withSignal) named.push('signal?: Signal');
    lists.push([...before, `options: { ${named.join('; ')} }`].join(', '));
  }
  return lists;
}

function comment(text, indent) {
  const words = text.replace(/\*\//g, '* /').split(/\s+/);
  const lines = [];
  let line = '';
  for (const word of words) {
    if (line.length + word.length + indent.length + 4 > 118) {
      lines.push(line);
      line = '';
    }
    line += line ? ` ${word}` : word;
  }
  lines.push(line);
  return `${indent}/**\n${lines.map((l) => `${indent} * ${l}`).join('\n')}\n${indent} */\n`;
}

function members(record, { args, result, name = record.name, withSignal = false, doc = true, shortest = 1 }) {
  return (doc ? comment(`${record.doc} Schema: ${record.schema}`, '  ') : '') +
    parameterLists(args, withSignal, shortest).map((list) => `  ${name}(${list}): ${result};\n`).join('');
}

// A method that Tensor has already keeps its own declaration in index.d.ts.
const OWN = new Set(['to', 'unflatten', 'narrow', 'squeeze']);

function generate() {
  const all = strata.describeOps();
  const records = all.filter((r) => !r.internal);
  const hiding = records.filter((r) => r.shown < r.results.length);
  const aliases = (r, of) => r.aliases.map((name) => `  /** ${r.name}() */\n  ${name}: ${of}['${r.name}'];\n`).join('');
  let text = '// Generated from the op records by scripts/generate-types.js. Not to be edited.\n\n' +
    "import type { Tensor, TensorLike, ScalarLike, Int, Ints, DType, Device, RngKey, Signal } from './types';\n\n" +
    '/** Every record as a function. */\nexport interface Functions {\n';
  for (const r of records) text += members(r, { args: r.args, result: resultOf(r, false) }) + aliases(r, 'Functions');
  text += '}\n\n/** The same with all results of those that return only their first above. */\nexport interface Records extends Omit<Functions, ' +
    `${hiding.map((r) => `'${r.name}'`).join(' | ')}> {\n`;
  for (const r of hiding) text += members(r, { args: r.args, result: resultOf(r, true), doc: false });
  text += '}\n\n/** Records that only other ops and gradient rules call. */\nexport interface Internal {\n';
  for (const r of all.filter((each) => each.internal)) text += members(r, { args: r.args, result: resultOf(r, true) });
  text += '}\n\n/** Every record off the event loop. */\nexport interface AsyncFunctions {\n';
  for (const r of records) {
    text += members(r, { args: r.args, result: `Promise<${resultOf(r, false)}>`, withSignal: true, doc: false }) + aliases(r, 'AsyncFunctions');
  }
  text += '}\n\n/** Records whose first argument is a tensor, as methods; with _, writing over it. */\nexport interface Methods {\n';
  for (const r of records) {
    if (!r.method || OWN.has(r.name)) continue;
    text += members(r, { args: r.args.slice(1), result: resultOf(r, false), shortest: 0 }) + aliases(r, 'Methods');
    if (!r.inplace) continue;
    for (const name of [r.name, ...r.aliases]) {
      text += members(r, { args: r.args.slice(1), result: 'this', name: `${name}_`, doc: false, shortest: 0 });
    }
  }
  return `${text}}\n`;
}

const kindOfOption = { number: 'number', boolean: 'boolean', count: 'number', seed: 'number' };
const optionOf = (option) => {
  const range = option.range ? ` It ${option.range}.` : '';
  return `  /** ${option.doc}${range} ${option.default} where it is left out. */\n  ${camel(option.name)}?: ${kindOfOption[option.kind]};\n`;
};
// A schedule's options are numbers, one or one for each group; milestones are a list of steps.
const scheduleOption = (option) => {
  const type = option.name === 'milestones' ? 'readonly number[]' : 'number | readonly number[]';
  const doc = option.required ? option.doc : `${option.doc} ${option.default} where it is left out.`;
  return `  /** ${doc} */\n  ${camel(option.name)}${option.required ? '' : '?'}: ${type};\n`;
};

/** The optimizers' options and classes, and those of the schedules that are a record and no more. */
function generateOptimizers() {
  const optimizers = JSON.parse(native.optimizerRecords());
  const schedules = JSON.parse(native.scheduleRecords()).filter((r) => recorded.includes(r.name));
  // What all of them have is declared once.
  const common = optimizers[0].options.filter((o) => optimizers.every((r) => r.options.some((p) => p.name === o.name && p.doc === o.doc)) && o.name !== 'lr');
  let text = '// Generated from the records of the optimizers and schedules by scripts/generate-types.js. Not to be edited.\n\n' +
    "import type { OptimizerClass, SchedulerClass } from './optim';\n\n" +
    '/** What becomes of updates smaller than the last bit of a parameter of bf16 or f16; fixed when the optimizer is made. */\n' +
    `export interface LowPrecisionOptions {\n${common.map(optionOf).join('')}` +
    '  /** Climbs; the same in all groups. */\n  maximize?: boolean;\n}\n';
  for (const r of optimizers) {
    const own = r.options.filter((o) => !common.some((c) => c.name === o.name));
    text += `export interface ${r.title}Options extends LowPrecisionOptions {\n${own.map(optionOf).join('')}}\n`;
  }
  for (const r of schedules) text += `export interface ${r.name}Options {\n${r.options.map(scheduleOption).join('')}}\n`;
  text += '\n/** The classes, in st.optim. */\nexport interface RecordedOptim {\n';
  for (const r of optimizers) text += `${comment(r.doc, '  ')}  ${r.title}: OptimizerClass<${r.title}Options>;\n`;
  for (const r of schedules) {
    const options = `${r.name}Options${r.options.some((o) => o.required) ? '' : ' | void'}`;
    text += `${comment(r.doc, '  ')}  ${r.name}: SchedulerClass<${options}>;\n`;
  }
  return `${text}}\n`;
}

/** The classes of the distributions, in st.distributions. */
function generateDistributions() {
  const { distributions, transforms } = JSON.parse(native.distributionRecords());
  const name = (p) => p.name.replace(/(?<=.)_([a-z0-9])/g, (all, c) => c.toUpperCase());
  let text = '// Generated from the records of the distributions by scripts/generate-types.js. Not to be edited.\n\n' +
    "import type { Tensor } from './types';\nimport { Distribution, Transform } from './distributions';\n\n";
  for (const r of distributions) {
    const taken = r.parameters.filter((p) => p.role !== 'derived');
    const type = (p) => ({ count: 'number', pair: 'Tensor | readonly [number, number]' }[p.role] ?? 'Tensor | number');
    const mayMissHere = (p) => p.role === 'one_of' || p.default !== null;
    const positional = taken.map((p, i) => (taken.slice(i).every(mayMissHere) ? `${name(p)}?: ${type(p)} | null` : `${name(p)}: ${type(p)} | ${mayMissHere(p) ? 'null' : 'never'}`))
      .map((each) => each.replace(' | never', ''));
    const named = taken.map((p) => `${name(p)}${mayMissHere(p) ? '?' : ''}: ${type(p)}${mayMissHere(p) ? ' | null' : ''}`);
    text += `${comment(r.doc, '')}export class ${r.name} extends ${r.parent || 'Distribution'} {\n` +
      `  constructor(${positional.join(', ')});\n  constructor(parameters: { ${[...named, 'validateArgs?: boolean'].join('; ')} });\n`;
    for (const p of r.parameters) text += `  /** ${p.doc} */\n  readonly ${name(p)}: ${p.role === 'count' ? 'number' : 'Tensor'};\n`;
    text += '}\n';
  }
  for (const r of transforms) {
    const type = r.name === 'ReshapeTransform' ? 'readonly number[]' : 'Tensor | number';
    const args = r.parameters.map((p) => `${name({ name: p })}: ${type}`);
    if (r.name === 'AffineTransform') args.push('eventDim?: number');
    text += `${comment(r.doc, '')}export class ${r.name} extends Transform {\n  constructor(${args.join(', ')});\n}\n`;
  }
  return text;
}

const TYPES_OF_OPTIONS = {
  integer: 'number | bigint', number: 'number', boolean: 'boolean', ids: 'number | readonly number[]', text: 'string', texts: 'string | readonly string[]',
  'id lists': 'readonly (readonly [number])[]', 'id biases': 'readonly (readonly [readonly [number], number])[]', stopping: "boolean | 'never'",
  biases: '{ [id: number]: number }', fields: '{ context?: string; choices?: string; answer?: string; names?: string; first?: number }',
};
/** The options of a call as an interface. */
function generateOptions(what, name, doc, described) {
  let text = `// Generated from the options of ${what} by scripts/generate-types.js. Not to be edited.\n\n/** ${doc} */\nexport interface ${name} {\n`;
  for (const { name: option, type, doc: about } of JSON.parse(described)) {
    if (!TYPES_OF_OPTIONS[type]) throw new Error(`no TypeScript type for ${type}`);
    text += `${comment(about, '  ')}  ${camel(option)}?: ${TYPES_OF_OPTIONS[type]} | null;\n`;
  }
  return `${text}}\n`;
}

/** The files' texts by their names. */
const files = () => ({
  'ops.d.ts': generate(), 'optimizers.d.ts': generateOptimizers(), 'families.d.ts': generateDistributions(),
  'generation.d.ts': generateOptions('generation', 'GenerationOptions',
    "How a model continues texts. What is left out is as the folder's generation_config.json has it; null takes that back.", native.generationOptions()),
  'evaluation.d.ts': generateOptions('an evaluation', 'EvaluationOptions', 'What a model is evaluated on, and how.', native.evaluationOptions()),
});

module.exports = { files };
if (require.main === module) {
  for (const [name, text] of Object.entries(files())) {
    const file = path.join(__dirname, '..', 'lib', name);
    // The same text is left alone: somebody may be reading it.
    if (!fs.existsSync(file) || fs.readFileSync(file, 'utf8') !== text) fs.writeFileSync(file, text);
  }
}
