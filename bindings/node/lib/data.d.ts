// st.data, and training runs.

import type { Tensor, Device, LanguageModel, Signal, TrainResult, TrainSettings } from './types';
import type { Module } from './nn';
import type { LRScheduler, Optimizer } from './optim';

/** Samples by number. */
export interface Dataset<S = any> {
  readonly length: number;
  get(index: number): S | Promise<S>;
  /** The samples as one; where it is there, a DataLoader without collate of its own calls it. */
  getBatch?(indices: readonly number[]): any;
}
export interface TensorDataset extends Dataset<Tensor[]> {
  readonly tensors: Tensor[];
  get(index: number): Tensor[];
  getBatch(indices: Iterable<number>): Tensor[];
}
export interface DataLoaderOptions<S, B> {
  batchSize?: number;
  shuffle?: boolean;
  seed?: number;
  dropLast?: boolean;
  collate?: (samples: S[]) => B;
  /** Numbers of samples in the order that is wanted. */
  sampler?: Iterable<number> & { readonly length?: number };
  /** Batches on their way at once, where get() returns promises. */
  prefetch?: number;
}
export interface DataLoader<B = any> extends Iterable<B>, AsyncIterable<B> {
  readonly length: number;
  /** The number of the next pass. */
  epoch: number;
}
export interface Data {
  /** The rows of the tensors in batches, once. */
  batches(tensors: readonly Tensor[], options?: { batchSize?: number; shuffle?: boolean; dropLast?: boolean }): Generator<Tensor[], void>;
  Dataset: { new (): Dataset };
  TensorDataset: { new (...tensors: Tensor[]): TensorDataset };
  /** Images and labels of two IDX files: f32 [1, H, W] within [0, 1], and i64. */
  loadIdxDataset(images: string, labels: string, options?: { signal?: Signal }): Promise<TensorDataset>;
  Subset: { new <S>(dataset: Dataset<S>, indices: Iterable<number>): Dataset<S> };
  ConcatDataset: { new <S>(datasets: Iterable<Dataset<S>>): Dataset<S> };
  /** Sizes, or fractions that sum to 1. */
  randomSplit<S>(dataset: Dataset<S>, lengths: readonly number[], options?: { seed?: number }): Dataset<S>[];
  defaultCollate(samples: readonly any[]): any;
  DataLoader: {
    new (dataset: TensorDataset, options?: DataLoaderOptions<Tensor[], Tensor[]>): DataLoader<Tensor[]>;
    new <S, B = any>(dataset: Dataset<S> | Iterable<S> | AsyncIterable<S>, options?: DataLoaderOptions<S, B>): DataLoader<B>;
  };
}

/** A step of a run, as in metrics.jsonl. */
export interface StepMetrics {
  step: number;
  tokens?: number;
  loss?: number;
  lr?: number;
  grad_norm?: number;
  tokens_per_s?: number;
  elapsed_s?: number;
  valid_loss?: number;
  peak_memory?: number;
}
/** A run of a language model on text: what `strata train` runs. */
export interface Trainer {
  readonly settings: string | TrainSettings;
  readonly out: string;
  train(options?: { resume?: boolean; onLog?: (text: string) => void; signal?: Signal }): Promise<TrainResult>;
  model(options?: { device?: Device; signal?: Signal }): Promise<LanguageModel>;
  metrics(): StepMetrics[];
}
export interface TrainerClass {
  new (settings: string | TrainSettings, options: { out: string }): Trainer;
}
export interface ModuleTrainerOptions {
  module: Module;
  /** loss(module.forward(...inputs), target) of batches [...inputs, target]. */
  loss?: ((output: any, target: any) => Tensor) | Module;
  /** In its place. */
  computeLoss?: (module: any, batch: any) => Tensor;
  optimizer: Optimizer;
  loader: DataLoader;
  /** The folder of the run. */
  out: string;
  epochs?: number;
  steps?: number;
  validLoader?: DataLoader;
  scheduler?: LRScheduler;
  maxNorm?: number;
  /** Steps between validations; 0: after each epoch. */
  evalEvery?: number;
  /** Steps between checkpoints; 0: after each epoch, -1: never. */
  saveEvery?: number;
  keepLast?: number;
  device?: Device;
}
export interface ModuleTrainer {
  readonly step: number;
  readonly totalSteps: number;
  readonly stepsPerEpoch: number;
  validate(): Promise<number>;
  train(options?: { resume?: boolean; progress?: boolean; onStep?: (metrics: StepMetrics) => void; signal?: Signal }): Promise<{
    step: number; status: string; last: StepMetrics; validLoss: number; checkpoint: string;
  }>;
  metrics(): StepMetrics[];
}
export interface ModuleTrainerClass {
  new (options: ModuleTrainerOptions): ModuleTrainer;
}
