// CUDA: devices, streams, events, graphs, memory.

import type { Tensor, Signal } from './types';

/** 1, 'cuda:1'; left out, the first card. */
export type CudaDevice = number | string | null;
export interface DeviceProperties {
  readonly name: string;
  /** Bytes. */
  readonly totalMemory: number;
  readonly multiProcessorCount: number;
  /** Compute capability. */
  readonly major: number;
  readonly minor: number;
  readonly l2Bytes: number;
  readonly sharedBytesPerBlock: number;
}
/** A queue of work on one device. */
export interface Stream {
  readonly device: number;
  /** Unique on the device; the main stream's is 0. */
  readonly id: number;
  /** The cudaStream_t. */
  readonly handle: bigint;
  synchronize(): void;
  synchronizeAsync(options?: { signal?: Signal }): Promise<void>;
  /** Whether the queue is empty. */
  query(): boolean;
  /** Later work here waits for what `other` holds now. */
  waitStream(other: Stream): void;
  waitEvent(event: Event): void;
  recordEvent(event?: Event): Event;
  equals(other: unknown): boolean;
}
/** A point in a stream; the current one where none is named. */
export interface Event {
  record(stream?: Stream): this;
  /** Later work of the stream waits for this point. */
  wait(stream?: Stream): void;
  query(): boolean;
  synchronize(): void;
  synchronizeAsync(options?: { signal?: Signal }): Promise<void>;
  /** Milliseconds from here to a later event; both with {enableTiming}. */
  elapsedTime(end: Event): number;
}
export interface GraphPool {
  readonly device: number;
  readonly reservedBytes: number;
}
export interface CUDAGraph {
  /** Runs fn, recording what it queues; returns what it returns. */
  capture<T>(fn: () => T, options?: { stream?: Stream | null }): T;
  captureBegin(): void;
  captureEnd(): void;
  /** Queues the recorded work on the current stream. */
  replay(): void;
  /** Kernels, copies and fills of a replay; null before there are any. */
  readonly nodes: number | null;
  readonly pool: GraphPool;
  /** Gives the graph's memory back now. */
  dispose(): void;
  [Symbol.dispose](): void;
}
/** Bytes that tensors hold now, at most since the last reset, and with what is kept for later. */
export interface MemoryStats {
  live: number;
  peak: number;
  reserved: number;
  peakReserved: number;
  /** In use now. */
  blocks: number;
  /** Requests since the start. */
  allocations: number;
  /** Requests that found memory only after holes were given back, or not at all. */
  retries: number;
  /** By parameter, gradient, optimizer, activation, data, workspace. */
  liveByTag: { [tag: string]: number };
  peakByTag: { [tag: string]: number };
}
export interface MemoryBlock {
  [key: string]: unknown;
}
/** A mode that ends with dispose(), or with `using`. */
export interface ModeScope {
  dispose(): void;
  [Symbol.dispose](): void;
}

export interface Cuda {
  isAvailable(): boolean;
  deviceCount(): number;
  /** Why isAvailable() is false; empty where it is not. */
  unavailableReason(): string;
  versions(): { driver: number; runtime: number };
  getDeviceProperties(device?: CudaDevice): DeviceProperties;
  getDeviceName(device?: CudaDevice): string;
  getDeviceCapability(device?: CudaDevice): [number, number];
  /** Waits for all work of the device. */
  synchronize(device?: CudaDevice): void;
  synchronizeAsync(device?: CudaDevice, options?: { signal?: Signal }): Promise<void>;
  /** Whether products of f32 may round their operands to TF32. */
  setAllowTf32(on: boolean): void;
  allowTf32(): boolean;
  /** The same for convolutions: on at first. */
  setAllowTf32Convolutions(on: boolean): void;
  allowTf32Convolutions(): boolean;
  /** While on, every op waits for its kernels and names itself in the error of a failed one. */
  setLaunchBlocking(on: boolean): void;
  Stream: { new (device?: CudaDevice): Stream };
  currentStream(device?: CudaDevice): Stream;
  defaultStream(device?: CudaDevice): Stream;
  /** fn() with `s` as this thread's current stream; without fn an object that ends it. */
  stream<T>(s: Stream | null, fn: () => T): T;
  stream(s: Stream): ModeScope;
  /** The tensor's memory is not reused before `s`, another stream than its own, has passed. */
  recordStream(tensor: Tensor, s: Stream): void;
  Event: { new (options?: { enableTiming?: boolean; device?: CudaDevice }): Event };
  CUDAGraph: { new (options?: { pool?: GraphPool; device?: CudaDevice }): CUDAGraph };
  GraphPool: { new (device?: CudaDevice): GraphPool };
  graphPoolHandle(device?: CudaDevice): GraphPool;
  isCurrentStreamCapturing(): boolean;
  /** Bytes of tensors now; 0 without a card, as the three below. */
  memoryAllocated(device?: CudaDevice): number;
  maxMemoryAllocated(device?: CudaDevice): number;
  memoryReserved(device?: CudaDevice): number;
  maxMemoryReserved(device?: CudaDevice): number;
  memoryStats(device?: CudaDevice): MemoryStats;
  resetPeakMemoryStats(device?: CudaDevice): void;
  /** Every block in use: address, bytes, tag, and the op and module that hold it. */
  memorySnapshot(device?: CudaDevice): MemoryBlock[];
  /** Returns the heaps' holes to the devices and the system. */
  emptyCache(): void;
  /** At most this share of the card's memory for tensors; the share before. */
  setMemoryFraction(fraction: number, device?: CudaDevice): number;
}
