// st.optim

import type { HookHandle, Tensor, Device, Signal } from './types';
import type { Module, StateDict } from './nn';
import type { RecordedOptim } from './optimizers';

export * from './optimizers';

/** Parameters that share their options. */
export interface ParamGroup<O = any> {
  readonly names: string[];
  readonly params: Tensor[];
  lr: number;
  /** All of them, as they are now. */
  readonly options: Required<O>;
  /** Changes some. */
  set(options: Partial<O>): void;
}
export interface StepReport {
  loss: number;
  /** Of the gradients before clipping, without the loss scale. */
  norm: number;
  scale: number;
  outcome: 'updated' | 'skipped' | 'diverged';
}
export interface Optimizer<O = any> {
  /** Of the first group; setting it sets that of all. */
  lr: number;
  readonly parameters: Tensor[];
  readonly paramGroups: ParamGroup<O>[];
  /** Adds {params, ...options of their own}; what the others have learned stays. */
  addParamGroup(group: { params: Some } & O): void;
  /** Updates the parameters that have a gradient; with {maxNorm} clips first and gives the norm before, else null. */
  step(options?: { maxNorm?: number }): number | null;
  /** After closure(), which makes the gradients; gives what it returned. */
  step<T>(closure: () => T): T;
  stepAsync(options?: { maxNorm?: number; signal?: Signal }): Promise<number | null>;
  /** A step that is left out where the loss or a gradient is not finite. */
  stepGuarded(options?: { maxNorm?: number; loss?: Tensor; scaler?: LossScaler }): StepReport;
  /** Lets stepGuarded() update again after a divergence. */
  resetGuard(): void;
  zeroGrad(options?: { setToNone?: boolean }): void;
  registerStepPreHook(hook: (optimizer: this) => void): HookHandle;
  registerStepPostHook(hook: (optimizer: this) => void): HookHandle;
  stateDict(): StateDict;
  loadStateDict(state: StateDict): void;
  /** Bytes of the state that every parameter will have once it was updated. */
  readonly stateBytes: number;
}
export type Some = Module | Tensor | readonly Tensor[] | readonly [string, Tensor][];
export type Params<O> = Some | readonly ({ params: Some } & O)[];
export interface OptimizerClass<O> {
  new (params: Params<O>, options?: O): Optimizer<O>;
}
export interface LbfgsOptions {
  lr?: number;
  maxIter?: number;
  /** maxIter * 5 / 4 where it is null. */
  maxEval?: number | null;
  toleranceGrad?: number;
  toleranceChange?: number;
  historySize?: number;
  lineSearchFn?: 'strong_wolfe' | null;
}
/** step(closure) makes up to maxIter iterations; the closure drops the gradients, computes the loss and its gradients, and returns it. */
export interface Lbfgs extends Omit<Optimizer<LbfgsOptions>, 'step' | 'stepAsync' | 'stepGuarded'> {
  step<T extends Tensor | number>(closure: () => T): T;
}
/** Derive with static defaults, update(), and where the state has numbers their names; see st.optim.RuleOptimizer. */
export interface RuleOptimizerClass {
  new <O = any>(params: Params<O>, options?: O): Optimizer<O>;
  defaults: { [name: string]: number | boolean };
  /** Numbers in the state; what else is there are tensors of the parameter's shape. */
  numbers: readonly string[];
  stateTensors: number;
  /** What is wrong with the options, or nothing. */
  complaint?(options: any): string | undefined;
  /** Writes to p; nothing is recorded. */
  update(p: Tensor, grad: Tensor, state: any, options: any): void;
}
export type Average = (mean: Tensor, value: Tensor, count: number) => Tensor;
export interface AveragedModel<M extends Module = Module> extends Module {
  readonly module: M;
  readonly n_averaged: Tensor;
  updateParameters(model: Module): void;
}
/** Keeps gradients of f16 from vanishing. */
export interface LossScaler {
  scale(loss: Tensor): Tensor;
  readonly value: number;
  state(): Tensor;
  loadState(state: Tensor): void;
}
/** A learning rate by step. */
export type Schedule = (step: number) => number;
/** The rate, and the options of the schedule's record (docs/reference/schedules.md) in camelCase. */
export interface ScheduleOptions {
  lr?: number;
  [option: string]: number | string | readonly number[] | undefined;
}
export interface LRScheduler {
  readonly optimizer: Optimizer;
  readonly baseLrs: number[];
  readonly lastStep: number;
  readonly lastLr: number[];
  /** A group's rate at a step. */
  rate(step: number, base: number, group: number): number;
  /** The momentum (or beta1) at a step, where the scheduler changes it. */
  momentum?(step: number): number | undefined;
  apply(): void;
  step(step?: number): void;
  stateDict(): { [key: string]: unknown };
  loadStateDict(state: { [key: string]: unknown }): void;
}
export interface SchedulerClass<O> {
  new (optimizer: Optimizer, options: O): LRScheduler;
}
type Lambda = Schedule | readonly Schedule[];
/** st.optim. The optimizers and schedules that a record says all of are in optimizers.d.ts. */
export interface Optim extends RecordedOptim {
  LBFGS: { new (params: Params<LbfgsOptions>, options?: LbfgsOptions): Lbfgs };
  RuleOptimizer: RuleOptimizerClass;
  LossScaler: { new (options?: { device?: Device; init?: number; growth?: number; backoff?: number; growthInterval?: number }): LossScaler };
  clipGradNorm(params: Some, maxNorm: number): number;
  clipGradValue(params: Some, max: number): void;
  gradNorm(params: Some): number;

  /** Any of the engine's schedules by the name of its record: 'constant', 'linear', 'cosine', 'wsd', 'one_cycle', 'StepLR' and so on. */
  schedule(name: string, options?: ScheduleOptions): Schedule;
  cosine(lr: number, steps: number, options?: { warmup?: number; floor?: number }): Schedule;
  LRScheduler: { new (optimizer: Optimizer): LRScheduler };
  ScheduleLR: SchedulerClass<{ schedule: string; [option: string]: number | string | readonly number[] | undefined }>;
  LambdaLR: SchedulerClass<{ lambda: Lambda }>;
  MultiplicativeLR: SchedulerClass<{ lambda: Lambda }>;
  OneCycleLR: SchedulerClass<{
    maxLr: number | readonly number[]; totalSteps?: number; epochs?: number; stepsPerEpoch?: number; pctStart?: number; annealStrategy?: 'cos' | 'linear';
    cycleMomentum?: boolean; baseMomentum?: number; maxMomentum?: number; divFactor?: number; finalDivFactor?: number; threePhase?: boolean;
  }>;
  CyclicLR: SchedulerClass<{
    baseLr: number | readonly number[]; maxLr: number | readonly number[]; stepSizeUp?: number; stepSizeDown?: number | null;
    mode?: 'triangular' | 'triangular2' | 'exp_range'; gamma?: number; scaleFn?: ((x: number) => number) | null; scaleMode?: 'cycle' | 'iterations';
    cycleMomentum?: boolean; baseMomentum?: number; maxMomentum?: number;
  }>;
  SWALR: SchedulerClass<{ swaLr: number | readonly number[]; annealEpochs?: number; annealStrategy?: 'cos' | 'linear' }>;
  /** Each changes the rate that the one before it makes. */
  ChainedScheduler: { new (schedulers: readonly LRScheduler[]): LRScheduler };
  SequentialLR: SchedulerClass<{ schedulers: readonly LRScheduler[]; milestones: readonly number[] }>;
  ReduceLROnPlateau: {
    new (optimizer: Optimizer, options?: {
      mode?: 'min' | 'max'; factor?: number; patience?: number; threshold?: number; thresholdMode?: 'rel' | 'abs'; cooldown?: number; minLr?: number | readonly number[];
      eps?: number;
    }): Omit<LRScheduler, 'step'> & { step(value: number | Tensor): void };
  };

  /** `module`, a second module like the model, holds the means. */
  AveragedModel: { new <M extends Module>(module: M, options?: { average?: Average; useBuffers?: boolean }): AveragedModel<M> };
  emaAverage(decay?: number): Average;
  swaAverage(): Average;
  /** The running statistics of the model's batch norms over the batches of a loader, from the start. */
  updateBn(loader: Iterable<any> | AsyncIterable<any>, model: Module): Promise<void>;
}
