"""Data sets, samplers and the loader, as torch.utils.data. Workers are threads: the engine releases the GIL."""

from __future__ import annotations

import bisect
import itertools
import math
import queue
import threading
from collections import deque
from functools import partial
from typing import (
    Any, Callable, Deque, Generic, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Sized, Tuple, TypeVar, Union,
)

from .. import _core as C
from .. import _functions as F
from .. import _ops as ops
from .. import cuda
from .._core import Tensor, TokenFile, read_idx, sample_order
from ..random import Generator, default_generator

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IdxDataset", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "TokenDataset", "TokenFile", "WeightedRandomSampler", "WorkerInfo", "default_collate", "get_worker_info", "random_split",
    "read_idx",
]

T = TypeVar("T", covariant=True)


# ---- data sets


class Dataset(Generic[T]):
    """Samples by number: write ``__getitem__`` and ``__len__``."""

    def __getitem__(self, index: int) -> T:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: "Dataset[Any]") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples one after the other: write ``__iter__``."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


def _len(dataset: Any) -> int:
    return len(dataset)


class TensorDataset(Dataset[Tuple[Tensor, ...]]):
    """Rows of tensors: sample i is (t[i], ..)."""

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors or any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise ValueError("TensorDataset: Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: int) -> Tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def get_batch(self, indices: Sequence[int]) -> List[Tensor]:
        """The samples as one tensor each, without going through them one by one."""
        rows = F.tensor(list(indices), dtype=C.int64, device=self.tensors[0].device)
        return [ops.index_select(t, 0, rows) for t in self.tensors]


class StackDataset(Dataset[Any]):
    """Data sets side by side: sample i is a tuple (or dict) of their samples i."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset wants data sets either by position or by name")
        self.datasets: Any = args or kwargs
        sizes = {_len(d) for d in (args or kwargs.values())}
        if len(sizes) != 1:
            raise ValueError("StackDataset: Size mismatch between datasets")
        self._size = sizes.pop()

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self) -> int:
        return self._size


class ConcatDataset(Dataset[Any]):
    """Data sets one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: List[Any] = list(datasets)
        if not self.datasets:
            raise ValueError("datasets should not be an empty iterable")
        self.cumulative_sizes = list(itertools.accumulate(_len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("index out of range")
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """Iterable data sets one after the other."""

    def __init__(self, datasets: Iterable[Iterable[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset


class Subset(Dataset[Any]):
    """The samples of the given numbers."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def _seed_of(seed: int, generator: Optional[Generator]) -> int:
    return seed if generator is None else generator._draw_seed()


def random_split(dataset: Any, lengths: Sequence[Union[int, float]], seed: Union[int, Generator] = 0,
                 generator: Optional[Generator] = None) -> List[Subset]:
    """Subsets of the given sizes (or fractions that sum to 1), of samples in an order that ``seed`` (or a generator) decides."""
    seed = seed._draw_seed() if isinstance(seed, Generator) else _seed_of(seed, generator)
    size = _len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 and any(isinstance(n, float) for n in lengths):
        counts = [math.floor(size * n) for n in lengths]
        for i in range(size - sum(counts)):
            counts[i % len(counts)] += 1
    else:
        counts = [int(n) for n in lengths]
    if sum(counts) != size:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = sample_order(size, seed, 0).tolist()
    ends = list(itertools.accumulate(counts))
    return [Subset(dataset, order[end - count : end]) for end, count in zip(ends, counts)]


class IdxDataset(TensorDataset):
    """Images and labels from two IDX files (the format of MNIST), plain or gzip-compressed: float32 in [0, 1] with a
    channel, [1, H, W], and int64."""

    def __init__(self, images: str, labels: str) -> None:
        x, y = read_idx(images), read_idx(labels)
        super().__init__(x.to(C.float32).unsqueeze(1) / 255.0, y.to(C.int64))


class TokenDataset(Dataset[Tuple[Tensor, Tensor]]):
    """Windows of a file of tokens: sample i is (tokens [T], the same one further on [T]) from token ``begin + i T``."""

    def __init__(self, file: Union[str, TokenFile], context: int, begin: int = 0, end: Optional[int] = None) -> None:
        self.file = TokenFile(file) if isinstance(file, str) else file
        self.context, self.begin = context, begin
        stop = len(self.file) if end is None else end
        if context < 1 or not 0 <= begin <= stop <= len(self.file) or stop - begin < context + 1:
            raise ValueError(
                f"TokenDataset: {context} tokens a sample from [{begin}, {stop}) of {len(self.file)} tokens are none"
            )
        self._size = (stop - begin - 1) // context

    def __getitem__(self, index: int) -> Tuple[Tensor, Tensor]:
        if not -self._size <= index < self._size:
            raise IndexError(f"sample {index} of {self._size}")
        tokens = self.file.read(self.begin + index % self._size * self.context, self.context + 1)
        return tokens[:-1], tokens[1:]

    def __len__(self) -> int:
        return self._size


# ---- samplers


class Sampler(Generic[T]):
    """The numbers of samples in the order in which they are drawn."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


_PART = 1 << 16


class RandomSampler(Sampler[int]):
    """Every number once an epoch, in an order that the seed and the epoch decide: that of the engine's own loader."""

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: Optional[int] = None, seed: int = 0,
        generator: Optional[Generator] = None,
    ) -> None:
        self.data_source, self.replacement, self.epoch = data_source, replacement, 0
        self.seed = _seed_of(seed, generator)
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, epoch = len(self.data_source), self.epoch
        self.epoch += 1
        if self.replacement:
            # Part by part, each with the numbers that it has among all: two of 64 bits to a block of the generator.
            first = epoch * (self.num_samples + 1)
            for at in range(0, self.num_samples, _PART):
                drawn = ops.randint(0, size, [min(_PART, self.num_samples - at)], key=(self.seed + 1, first + at // 2))
                yield from drawn.tolist()
            return
        left = self.num_samples
        part = 0
        while left > 0:
            order = sample_order(size, self.seed + (part << 32), epoch).tolist()[:left]
            yield from order
            left -= len(order)
            part += 1

    def __len__(self) -> int:
        return self.num_samples


class DistributedSampler(Sampler[int]):
    """The share of one process among several: by default of the only one there is. The order follows from the seed and
    set_epoch()."""

    def __init__(self, dataset: Sized, num_replicas: Optional[int] = None, rank: Optional[int] = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        self.num_replicas, self.rank = 1 if num_replicas is None else num_replicas, rank or 0
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: Invalid rank {self.rank}, rank should be in [0, {self.num_replicas - 1}]")
        size = len(dataset)
        self.num_samples = size // self.num_replicas if drop_last else -(-size // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        order = sample_order(size, self.seed, self.epoch).tolist() if self.shuffle else list(range(size))
        order = (order * (-(-self.total_size // max(size, 1))))[: self.total_size]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Another order."""
        self.epoch = epoch


class SubsetRandomSampler(Sampler[int]):
    """The given numbers, in an order that the seed and the epoch decide."""

    def __init__(self, indices: Sequence[int], seed: int = 0, generator: Optional[Generator] = None) -> None:
        self.indices, self.seed, self.epoch = indices, _seed_of(seed, generator), 0

    def __iter__(self) -> Iterator[int]:
        order = sample_order(len(self.indices), self.seed, self.epoch).tolist()
        self.epoch += 1
        return iter([self.indices[i] for i in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Numbers drawn with the given weights."""

    def __init__(self, weights: Union[Tensor, Sequence[float]], num_samples: int, replacement: bool = True,
                 generator: Optional[Generator] = None) -> None:
        given = weights.tolist() if isinstance(weights, Tensor) else list(weights)
        self.weights = F.tensor(given, dtype=C.float64)
        self.generator = default_generator if generator is None else generator
        self.num_samples, self.replacement = num_samples, replacement

    def __iter__(self) -> Iterator[int]:
        with self.generator._drawn():
            drawn: List[int] = ops.multinomial(self.weights, self.num_samples, self.replacement).tolist()
        return iter(drawn)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[List[int]]):
    """Numbers of another sampler in batches."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[List[int]]:
        batch: List[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        size = _len(self.sampler)
        return size // self.batch_size if self.drop_last else (size + self.batch_size - 1) // self.batch_size


# ---- batches


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one batch: tensors, arrays and numbers stacked, tuples, lists and dicts by their entries, text as a list."""
    first = batch[0]
    if isinstance(first, Tensor):
        return ops.stack(list(batch), 0)
    if isinstance(first, bool):
        return F.tensor(list(batch))
    if isinstance(first, int):
        return F.tensor(list(batch), dtype=C.int64)
    if isinstance(first, float):
        return F.tensor(list(batch), dtype=C.float64)
    if isinstance(first, (str, bytes)):
        return list(batch)
    if hasattr(first, "__array__"):
        return ops.stack([F.as_tensor(item) for item in batch], 0)
    if isinstance(first, Mapping):
        return {key: default_collate([item[key] for item in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(items) for items in zip(*batch)))
    if isinstance(first, (tuple, list)):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(items) for items in zip(*batch)]
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}")


def _map_tensors(value: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, Mapping):
        return {k: _map_tensors(v, fn) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_tensors(v, fn) for v in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_map_tensors(v, fn) for v in value)
    return value


# ---- the loader


class WorkerInfo(NamedTuple):
    """What a worker knows of itself."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker = threading.local()


def get_worker_info() -> Optional[WorkerInfo]:
    """In a worker thread of a DataLoader over a data set by numbers: which of them. None elsewhere, also where an iterable
    data set is read, which one thread does alone."""
    found: Optional[WorkerInfo] = getattr(_worker, "info", None)
    return found


class DataLoader(Generic[T]):
    """Batches of a data set.

    ``shuffle`` draws in an order that ``seed`` and the number of the epoch decide (the engine's own loader's). With
    ``num_workers`` threads, up to ``prefetch_factor`` batches for each of them are made ahead, in the same order.
    ``pin_memory`` puts them into page-locked memory, ``device`` onto a device. An exception of the data set comes out of
    the loop, for the batch that raised it."""

    def __init__(
        self,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[List[int]]] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Optional[Generator] = None,
        *,
        seed: int = 0,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        device: Any = None,
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if prefetch_factor is not None and (num_workers == 0 or prefetch_factor < 1):
            raise ValueError("prefetch_factor option wants num_workers > 0 and at least 1")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.prefetch_factor = num_workers, 2 if prefetch_factor is None else prefetch_factor
        self.pin_memory, self.device, self.timeout = pin_memory, device, timeout
        self.worker_init_fn = worker_init_fn
        self._default = collate_fn is None
        self.collate_fn: Callable[[List[Any]], Any] = default_collate if collate_fn is None else collate_fn
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle, sampler and batch_sampler")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
        self.sampler: Any = None
        self.batch_sampler: Any = batch_sampler
        if not self._iterable:
            if sampler is None:
                sampler = RandomSampler(dataset, seed=seed, generator=generator) if shuffle else SequentialSampler(dataset)
            self.sampler = sampler
            if batch_sampler is None and batch_size is not None:
                self.batch_sampler = BatchSampler(sampler, batch_size, drop_last)

    def __len__(self) -> int:
        if self._iterable:
            size = _len(self.dataset)
            if self.batch_size is None:
                return size
            return size // self.batch_size if self.drop_last else (size + self.batch_size - 1) // self.batch_size
        return _len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        jobs = self._iterable_jobs() if self._iterable else self._jobs()
        if self.num_workers == 0 or self._iterable:
            # An iterable data set is read by one thread, in order; with workers, that thread runs ahead.
            ready = (job() for job in jobs)
            return self._ahead(ready) if self.num_workers else ready
        return self._pool(jobs)

    # What makes one batch.
    def _jobs(self) -> Iterator[Callable[[], Any]]:
        if self.batch_sampler is None:
            for index in self.sampler:
                yield partial(self._one, index)
        else:
            for indices in self.batch_sampler:
                yield partial(self._many, indices)

    def _one(self, index: int) -> Any:
        return self._finish(self.dataset[index])

    def _many(self, indices: List[int]) -> Any:
        return self._finish(self._fetch(indices))

    def _collated(self, samples: List[Any]) -> Any:
        return self._finish(self._collate(samples))

    # The batch's tensors are made where they are wanted.
    def _collate(self, samples: Any) -> Any:
        with self._tier():
            return self.collate_fn(samples)

    def _tier(self) -> Any:
        return C.TierScope("pinned" if self.pin_memory and cuda.is_available() else "own")

    def _fetch(self, indices: List[int]) -> Any:
        # A data set that overrides __getitem__ alone must not be passed by.
        if self._default and isinstance(self.dataset, TensorDataset) and (
            type(self.dataset).__getitem__ is TensorDataset.__getitem__
        ):
            with self._tier():
                return self.dataset.get_batch(indices)
        if hasattr(self.dataset, "__getitems__"):
            return self._collate(self.dataset.__getitems__(indices))
        return self._collate([self.dataset[i] for i in indices])

    def _iterable_jobs(self) -> Iterator[Callable[[], Any]]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            for sample in samples:
                yield partial(self._finish, sample)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield partial(self._collated, batch)

    def _finish(self, batch: Any) -> Any:
        if self.pin_memory and cuda.is_available():
            batch = _map_tensors(batch, C.pin_memory)
        if self.device is not None:
            batch = _map_tensors(batch, lambda t: t.to(self.device))
        return batch

    def _ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        ready: "queue.Queue[Tuple[bool, Any]]" = queue.Queue(self.num_workers * self.prefetch_factor)
        stop = threading.Event()
        end = object()

        def put(item: Tuple[bool, Any]) -> bool:
            while not stop.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                if self.worker_init_fn is not None:
                    self.worker_init_fn(0)
                for batch in batches:
                    if not put((True, batch)):
                        return
                put((True, end))
            except BaseException as error:  # it belongs to the loop's thread
                put((False, error))

        thread = threading.Thread(target=work, name="strata-loader", daemon=True)
        thread.start()
        try:
            while True:
                good, item = ready.get(timeout=self.timeout or None)
                if not good:
                    raise item
                if item is end:
                    return
                yield item
        finally:
            stop.set()
            thread.join()

    def _pool(self, jobs: Iterator[Callable[[], Any]]) -> Iterator[Any]:
        counter = itertools.count()
        init = self.worker_init_fn

        def start() -> None:
            number = next(counter)
            _worker.info = WorkerInfo(number, self.num_workers, number, self.dataset)
            if init is not None:
                init(number)

        from concurrent.futures import ThreadPoolExecutor  # a tenth of the package's import time

        pending: Deque[Any] = deque()
        pool = ThreadPoolExecutor(self.num_workers, "strata-loader", start)
        try:
            for job in itertools.islice(jobs, self.num_workers * self.prefetch_factor):
                pending.append(pool.submit(job))
            while pending:
                batch = pending.popleft().result(self.timeout or None)
                for job in itertools.islice(jobs, 1):
                    pending.append(pool.submit(job))
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
