// The types of Strata for Node that are written by hand.

import type { Functions, Internal, Records, AsyncFunctions, Methods } from './ops';
import type { Cuda, MemoryBlock, MemoryStats, ModeScope } from './cuda';
import type { EvaluationOptions } from './evaluation';
import type { GenerationOptions } from './generation';
import type { Layer, Module, Nn, StateDict } from './nn';
import type { Optim, Optimizer } from './optim';
import type * as distributions from './distributions';
import type { Data, ModuleTrainerClass, StepMetrics, TrainerClass } from './data';

export type DType = 'u8' | 'i8' | 'i16' | 'i32' | 'i64' | 'f16' | 'bf16' | 'f32' | 'f64' | 'bool';
/** 'cpu', 'cuda', 'cuda:1', 'meta'. */
export type Device = string;
export type TypedArray = Uint8Array | Uint8ClampedArray | Int8Array | Int16Array | Uint16Array | Int32Array | Float32Array |
  Float64Array | BigInt64Array;
export type Int = number | bigint;
export type Ints = number | bigint | readonly (number | bigint)[];
export type ScalarLike = number | bigint | boolean | Scalar;
/** Where a tensor is wanted, a number may stand. */
export type TensorLike = Tensor | number | bigint | boolean;
/** A stretch of the random numbers of `seed`; left out, the default generator gives the next. */
export interface RngKey {
  seed: Int;
  offset?: Int;
}
/** An AbortSignal. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason?: any;
  addEventListener(type: 'abort', listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
  throwIfAborted(): void;
}
export type Nested<T> = T | readonly Nested<T>[];
/** A number, a slice [start, stop, step], a new dimension (null), '...' or a tensor. */
export type Index = Int | null | '...' | readonly (Int | null)[] | Tensor;

export interface TensorOptions {
  dtype?: DType;
  device?: Device;
  requiresGrad?: boolean;
}
export interface HookHandle {
  /** The hook is not called again. */
  remove(): void;
}
export type TensorHook = (grad: Tensor) => Tensor | null | undefined | void;

export interface Tensor extends Methods {
  readonly shape: number[];
  /** In elements. */
  readonly strides: number[];
  readonly dtype: DType;
  readonly device: Device;
  /** The kind of memory that its bytes live in: 'host', 'device', 'pinned', 'disk'. */
  readonly tier: string;
  readonly ndim: number;
  readonly numel: number;
  readonly nbytes: number;
  readonly isContiguous: boolean;
  /** Writes to the memory so far. */
  readonly version: number;
  readonly disposed: boolean;
  requiresGrad: boolean;
  readonly isLeaf: boolean;
  /** The op that made the tensor; null for a leaf. */
  readonly gradFn: string | null;
  grad: Tensor | null;

  /** Lets go of the memory now; any use afterwards is a ValueError. */
  dispose(): void;
  [Symbol.dispose](): void;
  /** The only element: a number, a BigInt (i64) or a boolean. */
  item(): number | bigint | boolean;
  /** A typed array over the elements of a row-major tensor on the CPU; it keeps the memory alive. bf16 and f16 as bits. */
  data(): TypedArray;
  /** A typed array with a copy. */
  toTypedArray(): TypedArray;
  /** Nested arrays of numbers, BigInts (i64) or booleans; one of them for a tensor without dimensions. */
  toArray(): any;
  toString(): string;
  markWritten(): this;
  share(): bigint;
  size(): number[];
  size(dim: number): number;

  to(...where: (DType | Device | { dtype?: DType; device?: Device; tier?: string } | null | undefined)[]): Tensor;
  cpu(): Tensor;
  cuda(index?: number): Tensor;
  detach(): Tensor;
  contiguous(): Tensor;
  reshape(shape: Ints): Tensor;
  reshape(...sizes: Int[]): Tensor;
  flatten(start?: Int, end?: Int): Tensor;
  unflatten(dim: Int, sizes: Ints): Tensor;
  squeeze(dim?: Int): Tensor;
  unsqueeze(dim: Int): Tensor;
  narrow(dim: Int, start: Int, length: Int): Tensor;
  t(): Tensor;
  max(): Tensor;
  max(dim: Int, keepdim?: boolean): { values: Tensor; indices: Tensor };
  min(): Tensor;
  min(dim: Int, keepdim?: boolean): { values: Tensor; indices: Tensor };
  at(...indices: Index[]): Tensor;
  setAt(indices: readonly Index[], value: Tensor | ScalarLike): this;
  zero_(): this;

  /** Adds the gradient of every leaf to its grad; `grad` is that of this tensor, 1 where it has one element. */
  backward(grad?: Tensor | null, options?: { retainGraph?: boolean; createGraph?: boolean }): void;
  backwardAsync(grad?: Tensor | null, options?: { retainGraph?: boolean; createGraph?: boolean; signal?: Signal }): Promise<void>;
  retainGrad(): this;
  registerHook(fn: TensorHook): HookHandle;
  registerPostAccumulateGradHook(fn: (leaf: Tensor) => void): HookHandle;
}
export interface TensorClass {
  readonly prototype: Tensor;
  [Symbol.hasInstance](value: unknown): value is Tensor;
}

/** A number whose kind is said; plain numbers that are whole count as integers. */
export interface Scalar {
  readonly value: number | bigint | boolean;
  readonly kind: 'f64' | 'i64' | 'bool';
}
export interface ScalarClass {
  new (value: number | bigint | boolean, kind: 'f64' | 'i64' | 'bool'): Scalar;
}

export interface StrataError extends Error {
  /** The op, class or function that refused; may be empty. */
  readonly op: string;
}
export interface StrataErrorClass {
  new (message: string, op?: string): StrataError;
  readonly prototype: StrataError;
}

export interface FunctionContext {
  saveForBackward(...tensors: Tensor[]): void;
  /** In backward(): what saveForBackward() kept. */
  readonly savedTensors: Tensor[];
  readonly needsInputGrad: boolean[];
  /** With false, backward() gets null for a result that no gradient reached, instead of zeros. */
  setMaterializeGrads(value: boolean): void;
  /** Anything else that backward() wants. */
  [key: string]: any;
}
/** Derive with static forward(ctx, ...args) and backward(ctx, ...grads); call with apply(...args). */
export interface FunctionClass {
  new (): {};
  apply(...args: any[]): any;
  forward(ctx: FunctionContext, ...args: any[]): Tensor | Tensor[];
  backward(ctx: FunctionContext, ...grads: Tensor[]): Tensor | null | undefined | (Tensor | null | undefined)[];
}

export interface GenerateOptions {
  tokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  seed?: Int;
  signal?: Signal;
}
export interface GeneratedToken {
  token: number;
  /** Whole characters; may be empty while one is being made. */
  text: string;
}
export interface LanguageModel {
  /** TOML. */
  readonly config: string;
  readonly step: number;
  readonly context: number;
  readonly vocab: number;
  readonly warnings: string[];
  forward(tokens: Tensor, options?: { signal?: Signal }): Promise<Tensor>;
  namedParameters(): [string, Tensor][];
  encode(text: string): number[];
  decode(ids: Iterable<number>): string;
  generate(prompt: string, options?: GenerateOptions): AsyncGenerator<GeneratedToken, void>;
  complete(prompt: string, options?: GenerateOptions & { onToken?: (made: GeneratedToken) => void }): Promise<string>;
}

/** A text that a model wrote. */
export interface PretrainedCompletion {
  text: string;
  /** All that were drawn, a stop id included. */
  tokens: number[];
  finish: 'length' | 'stop_id' | 'stop_string' | 'cancelled';
  /** Of beam search. */
  score: number;
  /** Of each token, and of the likeliest at its place, where asked for; and the same of the prompt's tokens but the first. */
  logprobs: number[];
  topLogprobs: [number, number][][];
  promptLogprobs: number[];
  topPromptLogprobs: [number, number][][];
}
/** A piece of a text as it is written. */
export interface PretrainedPiece {
  /** Which of the prompts, and which of its texts. */
  request: number;
  completion: number;
  token: number;
  /** What is decided now: whole characters, perhaps of earlier tokens, or nothing yet. */
  text: string;
  /** Nothing of this text follows. */
  last: boolean;
}
/** A text, or ids. */
export type Prompt = string | readonly (number | bigint)[];
export interface PretrainedCall {
  padding?: Tensor | null;
  types?: Tensor | null;
  signal?: Signal;
}
export interface PretrainedModel {
  /** The record that it was loaded by: 'llama', 'bert'; and what that covers. */
  readonly family: string;
  readonly title: string;
  readonly kind: 'decoder' | 'encoder' | 'encoder_decoder' | 'image_encoder' | 'pair';
  /** The most positions that it was made for. */
  readonly context: number;
  readonly vocabSize: number;
  readonly specialIds: { readonly [name: string]: number };
  /** What config.json and generation_config.json say. */
  readonly config: any;
  readonly generationConfig: any;
  readonly hasTokenizer: boolean;
  readonly hasChatTemplate: boolean;
  /** `tokens`, of an encoder-decoder: what it writes for x, i64 [B, T]. */
  forward(x: Tensor, options?: PretrainedCall & { tokens?: Tensor | null }): Promise<Tensor>;
  hidden(x: Tensor, options?: PretrainedCall): Promise<Tensor>;
  namedParameters(): [string, Tensor][];
  encode(text: string): number[];
  decode(ids: Iterable<number | bigint>, options?: { skipSpecialTokens?: boolean }): string;
  chatPrompt(messages: readonly ChatMessage[], variables?: { [name: string]: unknown }): number[];
  generate(prompt: Prompt, options?: PretrainedGenerateOptions): Promise<PretrainedCompletion[]>;
  generate(prompts: readonly Prompt[], options?: PretrainedGenerateOptions): Promise<PretrainedCompletion[][]>;
  /** What is said in a WAV file, or in samples f32 [n] or [channels, n] of `rate` a second. */
  transcribe(sound: string | Tensor, options?: Omit<GenerationOptions, 'temperature'> & {
    rate?: number; language?: string; task?: 'transcribe' | 'translate'; timestamps?: boolean; signal?: Signal;
    wordTimestamps?: boolean;
    /** A text that stands before: names, a style. */
    prompt?: string;
    promptConditionType?: 'first-segment' | 'all-segments';
    /** A window sees what was said before. */
    conditionOnPrevTokens?: boolean;
    /** A list is tried in turn, where a threshold says that a text is unlikely. */
    temperature?: number | readonly number[];
    compressionRatioThreshold?: number | null; logprobThreshold?: number | null; noSpeechThreshold?: number | null;
  }): Promise<Transcription>;
  generateText(prompt: Prompt, options?: PretrainedGenerateOptions): Promise<string>;
  stream(prompt: Prompt, options?: GenerationOptions & { signal?: Signal }): AsyncGenerator<PretrainedPiece, void>;
  chat(messages: readonly ChatMessage[], options?: PretrainedGenerateOptions & { variables?: { [name: string]: unknown } }): Promise<string>;
  /** Measures a decoder on local files, as `strata eval` does. */
  evaluate(options: EvaluationOptions & {
    /** A model that texts are compared with. */
    reference?: PretrainedModel | null;
    /** Hears how far it is; false ends it. */
    onProgress?: (progress: { name: string; unit: 'tok' | 'texts'; done: number; all: number }) => boolean | void;
    signal?: Signal;
  }): Promise<EvaluationReport>;
  embed(texts: Iterable<string>, options?: {
    pooling?: 'first' | 'last' | 'mean' | 'max' | 'weighted_mean' | 'root_mean'; normalize?: boolean; signal?: Signal;
  }): Promise<Tensor>;
}
/** What an evaluation gave, with what decides its numbers. */
export interface EvaluationReport {
  model: string;
  device: string;
  dtype: string;
  context: number;
  prefix: number;
  batch: number;
  shots: number;
  /** "text", "compare", "proof", "choices", "answers": those that were asked for. */
  results: { [name: string]: EvaluationResult };
}
export interface EvaluationResult {
  files: string[];
  documents: number;
  tokens: number;
  seconds: number;
  details: string;
  /** By the harness's names; `error` is a mean's standard error over documents. */
  measures: { [name: string]: { value: number | null; error: number | null } };
  /** With logSamples. */
  samples?: { values: number[]; logProbabilities: number[]; written: string }[];
}
export interface Transcription {
  /** As the model has it: '<|de|>'. */
  language: string | null;
  text: string;
  /** Times are seconds; tokens are all that was written, times too. */
  segments: {
    start: number; end: number; text: string; tokens: number[];
    /** With wordTimestamps. */
    words?: { start: number; end: number; text: string }[];
    tokenEnds?: number[];
    /** With a threshold. */
    temperature?: number; avgLogprob?: number; compressionRatio?: number; noSpeechProb?: number;
  }[];
}
export interface ChatMessage {
  role: string;
  content?: unknown;
  [key: string]: unknown;
}
export interface PretrainedGenerateOptions extends GenerationOptions {
  /** Sees each token as it is drawn; false ends its text. */
  onPiece?: (piece: PretrainedPiece) => boolean | void;
  signal?: Signal;
}
export interface TrainSettings {
  [key: string]: string | number | boolean | bigint | TrainSettings;
}
export interface TrainResult {
  step: number;
  status: string;
  checkpoint: string;
  validLoss: number;
  loss: number;
  tokens: number;
  peakMemory: number;
}
export interface OpDescription {
  name: string;
  schema: string;
  doc: string;
  family: string;
  /** Other names of the function. */
  aliases: string[];
  /** How many results callers get: the first ones. */
  shown: number;
  /** Only other ops and gradient rules call it: st.ops.internal has it. */
  internal: boolean;
  view: boolean;
  dynamic: boolean;
  composed: boolean;
  inplace: boolean;
  /** Draws random numbers. */
  random: boolean;
  gradient: boolean;
  autocast: 'keep' | 'low' | 'full' | 'promote';
  adapt: 'none' | 'broadcast' | 'promote' | 'promote_float' | 'promote_but_first';
  dtypes: DType[];
  /** Devices with a kernel of their own. */
  kernels: ('cpu' | 'cuda')[];
  method: boolean;
  args: OpArgument[];
  results: { name: string; type: string }[];
}
export interface OpArgument {
  name: string;
  /** As in the schema: "int[]?"; `kind` is that without the question mark, which `optional` stands for. */
  type: string;
  kind: string;
  optional: boolean;
  hasDefault: boolean;
  default?: unknown;
}

type TensorData = Nested<number> | Nested<bigint> | Nested<boolean> | TypedArray | Tensor;

/** A tensor as a recorded call saw it: a part of a storage. */
export interface RecordedValue {
  value: number;
  storage: number;
  shape: number[];
  dtype: DType;
  stride: number[];
  offset: number;
}
export interface RecordedCall {
  op: string;
  form: 'fresh' | 'inplace' | 'out';
  phase: 'forward' | 'backward' | 'update';
  module: string | null;
  /** Other calls, whose `parent` this is, do all of it. */
  composed: boolean;
  /** Whether it ran a kernel or made a view. */
  work: boolean;
  parent: number | null;
  autocast: DType | null;
  stream: number;
  /** By name; tensors as RecordedValue. */
  args: { [name: string]: any };
  targets: (RecordedValue | null)[];
  results: (RecordedValue | null)[];
  flops: number;
  bytes: number;
  seconds: number;
}
export interface RecordedStorage {
  nbytes: number;
  device: string;
  tag: string;
  /** The call that made it, -1 for what no call made. */
  born: number;
  /** The first call that began without it. */
  freed: number;
  /** Whether its bytes are in the recording. */
  kept: boolean;
}
/** What record() gives: the calls of a function, in order. */
export interface Recording extends Iterable<RecordedCall> {
  readonly length: number;
  call(i: number): RecordedCall;
  storages(): RecordedStorage[];
  peakBytes(): number;
  /** Time and bytes by row, beside what the machine can do where that is given (GB/s, GFLOP/s). */
  table(by?: 'op' | 'module' | 'phase', options?: {
    rows?: number; gb_s?: number; gflops?: number; matmul_f32?: number; matmul_bf16?: number;
  }): string;
  /** A line a call. */
  toString(): string;
  /** For a file; Recording.fromText() reads it. */
  toText(): string;
}

/** What graphed() gives: call it as the step. */
export interface GraphedStep<A extends readonly unknown[], R> {
  (...args: A): R;
  /** Graphs that are kept now. */
  readonly graphs: number;
  /** How often the step was captured. */
  readonly captures: number;
  /** Calls that were a replay of a graph that was there. */
  readonly replays: number;
  /** With {fallback}: why the step was not captured when that was last tried; empty where it was. */
  readonly note: string;
  /** Drops the graphs and gives their memory back. */
  clear(): void;
}

export interface Strata extends Omit<Functions, 'full' | 'eye' | 'arange'> {
  Tensor: TensorClass;
  Scalar: ScalarClass;
  /** A copy of numbers (f32), BigInts (i64), booleans, nested arrays of them, a typed array or a tensor. */
  tensor(data: TensorData, options?: TensorOptions & { shape?: Ints }): Tensor;
  /** Over a typed array's memory, which is kept alive. */
  fromTypedArray(array: TypedArray, shape?: Ints, options?: { dtype?: DType }): Tensor;
  /** The tensor behind a ticket of share(), from any thread, once. */
  fromShared(ticket: bigint): Tensor;
  zeros(shape: Ints, options?: TensorOptions): Tensor;
  ones(shape: Ints, options?: TensorOptions): Tensor;
  full(shape: Ints, value: ScalarLike, options?: TensorOptions): Tensor;
  empty(shape: Ints, options?: TensorOptions): Tensor;
  zerosLike(t: Tensor, options?: TensorOptions): Tensor;
  onesLike(t: Tensor, options?: TensorOptions): Tensor;
  fullLike(t: Tensor, value: ScalarLike, options?: TensorOptions): Tensor;
  emptyLike(t: Tensor, options?: TensorOptions): Tensor;
  rand(shape: Ints, options?: TensorOptions): Tensor;
  randn(shape: Ints, options?: TensorOptions): Tensor;
  randLike(t: Tensor, options?: TensorOptions): Tensor;
  randnLike(t: Tensor, options?: TensorOptions): Tensor;
  arange(end: ScalarLike, options?: TensorOptions): Tensor;
  arange(start: ScalarLike, end: ScalarLike, options?: TensorOptions): Tensor;
  arange(start: ScalarLike, end: ScalarLike, step: ScalarLike, options?: TensorOptions): Tensor;
  eye(n: Int, m?: Int, options?: TensorOptions): Tensor;
  eye(n: Int, options: TensorOptions): Tensor;

  reshape(x: Tensor, shape: Ints): Tensor;
  flatten(x: Tensor, start?: Int, end?: Int): Tensor;
  unflatten(x: Tensor, dim: Int, sizes: Ints): Tensor;
  squeeze(x: Tensor, dim?: Int): Tensor;
  unsqueeze(x: Tensor, dim: Int): Tensor;
  narrow(x: Tensor, dim: Int, start: Int, length: Int): Tensor;
  contiguous(x: Tensor): Tensor;
  t(x: Tensor): Tensor;
  max(x: Tensor): Tensor;
  max(x: Tensor, dim: Int, keepdim?: boolean): { values: Tensor; indices: Tensor };
  min(x: Tensor): Tensor;
  min(x: Tensor, dim: Int, keepdim?: boolean): { values: Tensor; indices: Tensor };

  /** fn() with nothing recorded; fn must not be an async function. Without fn: an object that ends it. */
  noGrad<T>(fn: () => T): T;
  noGrad(): ModeScope;
  enableGrad<T>(fn: () => T): T;
  enableGrad(): ModeScope;
  /** Products in bf16 (or {dtype}), what needs precision in f32; parameters stay f32. */
  autocast<T>(options: AutocastOptions, fn: () => T): T;
  autocast<T>(fn: () => T): T;
  autocast(options?: AutocastOptions): ModeScope;
  isAutocastEnabled(): boolean;
  autocastDtype(): DType;
  /** fn(...inputs), computed again in backward in place of keeping what it saves. */
  checkpoint<A extends readonly unknown[], R>(fn: (...inputs: A) => R, ...inputs: A): R;
  checkpointSequential(parts: Iterable<Layer | ((x: Tensor) => Tensor)>, segments: number, x: Tensor): Tensor;
  /** The training step fn as one CUDA graph from its second or third call on, with the same bits; on the CPU as it is. */
  graphed<A extends readonly unknown[], R>(fn: (...args: A) => R,
    options?: { warmup?: number; most?: number; fallback?: boolean }): GraphedStep<A, R>;
  /** Inside, the first NaN is an AutogradError that names the op behind it. */
  detectAnomaly<T>(fn: () => T): T;
  detectAnomaly(): ModeScope;
  /** Inside, what ops save for backward goes through pack, and comes back through unpack. */
  savedTensorsHooks<P, T>(pack: (t: Tensor) => P, unpack: (packed: P) => Tensor, fn: () => T): T;
  savedTensorsHooks<P>(pack: (t: Tensor) => P, unpack: (packed: P) => Tensor): ModeScope;
  /** Compares the gradients of fn(...inputs), in f64, with central differences. */
  gradcheck(fn: (...inputs: Tensor[]) => Tensor | Tensor[], inputs: Tensor | readonly Tensor[], options?: GradcheckOptions): boolean;
  gradgradcheck(fn: (...inputs: Tensor[]) => Tensor | Tensor[], inputs: Tensor | readonly Tensor[], options?: GradcheckOptions): boolean;
  isGradEnabled(): boolean;
  setGradEnabled(on: boolean): boolean;
  grad(outputs: Tensor | readonly Tensor[], inputs: Tensor | readonly Tensor[], options?: GradOptions & { allowUnused?: false }): Tensor[];
  grad(outputs: Tensor | readonly Tensor[], inputs: Tensor | readonly Tensor[], options?: GradOptions): (Tensor | null)[];
  gradAsync(outputs: Tensor | readonly Tensor[], inputs: Tensor | readonly Tensor[],
    options?: GradOptions & { signal?: Signal }): Promise<(Tensor | null)[]>;
  Function: FunctionClass;

  /** The records with all of their results, and apart those that only other ops and gradient rules call. */
  ops: Records & { readonly internal: Internal };
  async: AsyncFunctions;
  describeOps(): OpDescription[];
  nn: Nn;
  optim: Optim;
  data: Data;
  distributions: typeof distributions;

  save(path: string, tensors: StateDict, options?: { metadata?: { [key: string]: string }; signal?: Signal }): Promise<void>;
  /** The file that save() writes, in memory. */
  saveToBuffer(tensors: StateDict, options?: { metadata?: { [key: string]: string }; signal?: Signal }): Promise<Uint8Array>;
  load(file: string | Uint8Array, options?: { signal?: Signal }): Promise<StateDict>;
  loadWithMetadata(file: string | Uint8Array, options?: { signal?: Signal }): Promise<{ tensors: StateDict; metadata: { [key: string]: string } }>;
  /** Nested plain objects and arrays of tensors and plain values, as Python's st.save() writes them. */
  saveObject(path: string, value: unknown, options?: { signal?: Signal }): Promise<void>;
  saveObjectToBuffer(value: unknown, options?: { signal?: Signal }): Promise<Uint8Array>;
  loadObject(file: string | Uint8Array, options?: { signal?: Signal }): Promise<any>;
  readIdx(path: string, options?: { signal?: Signal }): Promise<Tensor>;
  LanguageModel: { readonly prototype: LanguageModel; [Symbol.hasInstance](value: unknown): value is LanguageModel };
  PretrainedModel: { readonly prototype: PretrainedModel; [Symbol.hasInstance](value: unknown): value is PretrainedModel };
  /** The model of a folder as Hugging Face writes it, its weights as stored or in `dtype`. */
  loadPretrained(folder: string, options?: { dtype?: DType; device?: Device; signal?: Signal }): Promise<PretrainedModel>;
  loadModel(path: string, options?: { device?: Device; signal?: Signal }): Promise<LanguageModel>;
  train(settings: string | TrainSettings, options: {
    out: string; resume?: boolean; onLog?: (text: string) => void; signal?: Signal;
  }): Promise<TrainResult>;

  Trainer: TrainerClass;
  ModuleTrainer: ModuleTrainerClass;
  /** The steps in a run's metrics.jsonl. */
  readMetrics(file: string): StepMetrics[];

  /** The calls that fn() makes; fn must not be an async function. With {values} also the bytes of what no call made. */
  record(fn: () => void, options?: { values?: boolean }): Recording;
  Recording: { readonly prototype: Recording; fromText(text: string): Recording; [Symbol.hasInstance](value: unknown): value is Recording };

  /** Loads a plugin; its ops then are st[name], st.ops[name], st.async[name] and methods. */
  loadPlugin(path: string): { name: string; version: string; path: string; ops: string[] };

  manualSeed(seed: Int): void;
  /** Where the random numbers of every op stand. */
  randomState(): { seed: bigint; offset: bigint };
  setRandomState(state: { seed: bigint; offset: bigint }): void;
  numThreads(): number;
  setNumThreads(count: number): void;
  /** Of the processor's memory, or another device's. */
  memoryStats(device?: Device): MemoryStats;
  resetPeakMemoryStats(device?: Device): void;
  memorySnapshot(device?: Device): MemoryBlock[];
  /** Returns the heaps' holes to the devices and the system. */
  emptyCache(): void;
  /** At most this many bytes of the processor's memory for tensors, 0 for all that there is; the limit before. */
  setMemoryLimit(bytes: number): number;
  /**
   * fn(budget), in which a loop over model and optimizer keeps to so many bytes of each tier, with the bits of the loop without;
   * each optimizer.step() ends a step. It ends with fn, or with the promise that fn returns.
   */
  memoryBudget<T>(model: Module, optimizer: Optimizer, options: MemoryBudgetOptions, fn: (budget: MemoryBudget) => T): T;
  /** The records linalg_* under torch.linalg's names. */
  linalg: { [K in keyof Functions as K extends `linalg_${infer Name}` ? Name : never]: Functions[K] };
  cuda: Cuda;
  readonly version: string;

  StrataError: StrataErrorClass;
  ShapeError: StrataErrorClass;
  DTypeError: StrataErrorClass;
  IndexError: StrataErrorClass;
  ValueError: StrataErrorClass;
  DeviceError: StrataErrorClass;
  AutogradError: StrataErrorClass;
  MemoryError: StrataErrorClass;
  IoError: StrataErrorClass;
  LinAlgError: StrataErrorClass;
  DivergedError: StrataErrorClass;
  PluginError: StrataErrorClass;
  AbortedError: StrataErrorClass;
}
/** Bytes are numbers or texts ("7.2GiB"); what is 'auto' (the default) the plan chooses. */
export interface MemoryBudgetOptions {
  /** Of a card's memory; of RAM where the model is on the CPU. */
  device?: number | bigint | string;
  /** Of the host's memory beside a card. */
  host?: number | bigint | string;
  /** Folders on disks that may be used. */
  disk?: string | readonly string[];
  activations?: 'auto' | 'keep' | 'host' | 'disk';
  recompute?: 'auto' | 'none' | 'blocks';
  state?: 'auto' | 'device' | 'host' | 'disk';
  update?: 'auto' | 'device' | 'cpu' | 'split';
  parameters?: 'auto' | 'device' | 'host' | 'disk';
}
type MemoryPlace = 'device' | 'host' | 'disk';
/** What is where, and the forecast: bytes, parts that are computed again, seconds of a step and what bounds them. */
export interface MemoryPlan {
  readonly weights: MemoryPlace;
  readonly state: MemoryPlace;
  readonly activations: MemoryPlace;
  readonly leaving: number;
  readonly kept: number;
  readonly recomputed: number;
  readonly peakDevice: number;
  readonly peakHost: number;
  readonly peakDisk: number;
  readonly peakWithout: number;
  readonly seconds: number;
  readonly secondsWithout: number;
  readonly bound: string;
  readonly fits: boolean;
}
export interface MemoryBudget {
  /** Whether the steps go by a plan yet: from the third on. */
  readonly planned: boolean;
  readonly plan: MemoryPlan;
  /** Most bytes of the device's tensors at once so far. */
  readonly peak: number;
  /** The plan as lines, and what was used and moved so far. */
  describe(): string;
}
export interface AutocastOptions {
  dtype?: 'bf16' | 'f16';
  enabled?: boolean;
  /** Leaves the gradients of parameters in the low dtype, which only the optimizers read. */
  lowGradients?: boolean;
  /** Products of linear layers in eight bits, with one scale for each operand or one for each of its rows; all else in bf16. */
  fp8?: 'tensor' | 'row' | null;
  /** Modules and weights that stay in bf16: best the first and last layers. */
  fp8Exclude?: (Layer | Tensor)[];
}
export interface GradcheckOptions {
  eps?: number;
  atol?: number;
  rtol?: number;
  /** Whether a difference is an AutogradError (as it is when left out) or false. */
  throws?: boolean;
}
export interface GradOptions {
  gradOutputs?: Tensor | readonly (Tensor | null)[] | null;
  retainGraph?: boolean;
  createGraph?: boolean;
  allowUnused?: boolean;
}

declare global {
  interface SymbolConstructor {
    readonly dispose: unique symbol;
  }
}
