'use strict';
// Nested objects and arrays of tensors and plain values as one safetensors file, as Python's st.save() writes them. Nothing
// in a file is ever executed.

const native = require('./native.js');
const { save, saveToBuffer, loadWithMetadata } = require('./models.js');
const { ValueError } = require('./errors.js');

const { Tensor } = native;
// Structure and plain values stand as JSON in the file's metadata; {"$": NAME} is the tensor of that name
// ({"$array"}, {"$scalar"}: what was a NumPy array in Python).
const KEY = 'strata.structure';

function pack(value, path, tensors) {
  const below = (key) => (path ? `${path}.${key}` : String(key));
  if (value instanceof Tensor) {
    let name = path || 'tensor';
    while (Object.hasOwn(tensors, name)) name += '_';
    tensors[name] = value;
    return { $: name };
  }
  if (typeof value === 'number' && !Number.isFinite(value)) return { $float: Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf' };
  if (value === undefined || value === null) return null;
  if (typeof value === 'bigint') {
    if (!Number.isSafeInteger(Number(value))) throw new ValueError(`saveObject: ${value} at '${path}' is past 2^53, save it as text`, 'saveObject');
    return Number(value);
  }
  if (['number', 'string', 'boolean'].includes(typeof value)) return value;
  if (Array.isArray(value)) return value.map((v, i) => pack(v, below(i), tensors));
  const proto = Object.getPrototypeOf(value);
  if (typeof value === 'object' && (proto === Object.prototype || proto === null)) {
    return { $dict: Object.entries(value).map(([k, v]) => [k, pack(v, below(k), tensors)]) };
  }
  throw new ValueError(`saveObject: ${proto?.constructor?.name ?? typeof value} at '${path}' cannot be saved; tensors, plain objects, arrays, numbers, ` +
    'text, booleans and null can (a module\'s stateDict(), not the module)', 'saveObject');
}
function unpack(value, tensors) {
  if (Array.isArray(value)) return value.map((v) => unpack(v, tensors));
  if (value === null || typeof value !== 'object') return value;
  const [[kind, content] = []] = Object.entries(value);
  if (Object.keys(value).length === 1) {
    if (['$', '$array', '$scalar'].includes(kind) && Object.hasOwn(tensors, content)) return tensors[content];
    if (kind === '$float' && ['nan', 'inf', '-inf'].includes(content)) return content === 'nan' ? NaN : content === 'inf' ? Infinity : -Infinity;
    if (kind === '$tuple' && Array.isArray(content)) return unpack(content, tensors);
    if (kind === '$dict' && Array.isArray(content) && content.every((pair) => Array.isArray(pair) && pair.length === 2)) {
      return Object.fromEntries(content.map(([k, v]) => [k, unpack(v, tensors)]));
    }
  }
  throw new ValueError(`loadObject: the structure in the file is damaged at ${JSON.stringify(value).slice(0, 60)}`, 'loadObject');
}

function packed(value) {
  const tensors = {};
  try {
    return [tensors, { [KEY]: JSON.stringify(pack(value, '', tensors)) }];
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new ValueError('saveObject: the value is nested too deep, or holds itself', 'saveObject');
  }
}

/** Writes nested plain objects and arrays of tensors, numbers, text, booleans and null. */
async function saveObject(path, value, { signal } = {}) {
  const [tensors, metadata] = packed(value);
  await save(path, tensors, { metadata, signal });
}
/** The bytes of the file that saveObject() writes, as a Buffer. */
async function saveObjectToBuffer(value, { signal } = {}) {
  const [tensors, metadata] = packed(value);
  return saveToBuffer(tensors, { metadata, signal });
}
/** What saveObject(), or Python's st.save(), wrote, from a path, a Buffer or a Uint8Array; of any other safetensors file the tensors by name. */
async function loadObject(path, { signal } = {}) {
  const { tensors, metadata } = await loadWithMetadata(path, { signal });
  if (!Object.hasOwn(metadata, KEY)) return tensors;
  try {
    return unpack(JSON.parse(metadata[KEY]), tensors);
  } catch (error) {
    if (error instanceof ValueError) throw error;
    const name = typeof path === 'string' ? path : 'the bytes';
    const why = error instanceof RangeError ? 'it is nested too deep' : error.message;
    throw new ValueError(`loadObject: the structure in ${name} is damaged: ${why}`, 'loadObject');
  }
}

module.exports = { saveObject, saveObjectToBuffer, loadObject };
