"""Parquet and Arrow files to JSONL, and on to a file of tokens.

    python -m strata.data.convert corpus/ --out jsonl/ --columns text
    python -m strata.data.convert corpus/ --out jsonl/ --columns text --tokens corpus.tokens --tokenizer tokenizer.json

Each file becomes one `NAME.jsonl.zst`, which is there whole or not at all; OUT/converted.json says from what each was made.
What is there already for the same file is not made again, so a conversion that was killed goes on. Memory holds some rows at
a time. Wants pyarrow.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

__all__ = ["convert", "find_sources", "main"]

ROWS = 1024  # of a batch
JOURNAL = "converted.json"
# What a file's ending says it is.
READERS = {".parquet": "parquet", ".parq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
OLDEST = 15  # of pyarrow: earlier ones may run code that a file carries


class ConvertError(Exception):
    """What is wrong with a file or the command line, for people."""


def pyarrow() -> Any:
    """The module pyarrow. Raises ConvertError where it is missing or too old."""
    try:
        module = importlib.import_module("pyarrow")
    except ImportError:
        raise ConvertError(
            "Parquet and Arrow files are read by pyarrow, which is not installed: pip install pyarrow"
        ) from None
    if int(module.__version__.split(".")[0]) < OLDEST:
        raise ConvertError(
            f"pyarrow {module.__version__} is too old, at least {OLDEST} is wanted: pip install -U pyarrow"
        )
    return module


def find_sources(sources: Sequence[str | os.PathLike[str]]) -> list[tuple[Path, str]]:
    """The Parquet and Arrow files that are meant, files or all under folders, each with the name of what it becomes.

    Raises ConvertError: one is missing, of another kind, a folder has none, or two would become the same.
    """
    found: list[tuple[Path, str]] = []
    for source in map(Path, sources):
        if source.is_dir():
            files = sorted(
                p for p in source.rglob("*") if p.is_file() and p.suffix in READERS and not p.name.startswith(".")
            )
            if not files:
                raise ConvertError(f"'{source}' has no {', '.join(sorted(READERS))} files")
            found += [(p, "_".join(p.relative_to(source).parts)) for p in files]
        elif not source.is_file():
            raise ConvertError(f"'{source}' is no file or folder")
        elif source.suffix not in READERS:
            raise ConvertError(f"'{source}' does not end with one of {', '.join(sorted(READERS))}")
        else:
            found.append((source, source.name))
    named: dict[str, Path] = {}
    for path, name in found:
        if name in named:
            raise ConvertError(f"'{named[name]}' and '{path}' would both become '{name}.jsonl.zst'")
        named[name] = path
    return [(path, name + ".jsonl.zst") for path, name in found]


def batches(path: Path, columns: Sequence[str] | None) -> Iterator[Any]:
    """Record batches of a file, with these columns in this order."""
    pa = pyarrow()

    def check(schema: Any) -> None:
        missing = [c for c in columns or () if schema.get_field_index(c) < 0]
        if missing:
            raise ConvertError(f"'{path}' has no column '{missing[0]}'; it has {', '.join(schema.names)}")

    if READERS[path.suffix] == "parquet":
        parquet = importlib.import_module("pyarrow.parquet")

        file = parquet.ParquetFile(path)
        check(file.schema_arrow)
        for batch in file.iter_batches(batch_size=ROWS, columns=list(columns) if columns else None):
            yield batch.select(list(columns)) if columns else batch
        return
    with pa.OSFile(os.fspath(path)) as source:
        # A file of Arrow has the magic; what `datasets` saves is a stream.
        reader = pa.ipc.open_file(source) if source.read(6) == b"ARROW1" else None
        if reader is None:
            source.seek(0)
            reader = pa.ipc.open_stream(source)
        check(reader.schema)
        whole = (
            (reader.get_batch(i) for i in range(reader.num_record_batches))
            if hasattr(reader, "num_record_batches")
            else reader
        )
        for batch in whole:
            batch = batch.select(list(columns)) if columns else batch
            for begin in range(0, batch.num_rows, ROWS):
                yield batch.slice(begin, ROWS)


def plain(value: Any) -> Any:
    """A value as JSON has it. Raises TypeError for one that JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    raise TypeError(type(value).__name__)


def convert_file(path: Path, to: Path, columns: Sequence[str] | None) -> int:
    """One file; returns its rows. Raises ConvertError."""
    pa = pyarrow()
    temporary = to.with_name(f".{to.name}.{os.getpid()}.tmp")
    rows = 0
    try:
        with pa.output_stream(os.fspath(temporary), compression="zstd") as out:
            for batch in batches(path, columns):
                names = batch.schema.names
                lists = [column.to_pylist() for column in batch.columns]
                lines = []
                for values in zip(*lists):
                    rows += 1
                    row = {}
                    for name, value in zip(names, values):
                        try:
                            row[name] = plain(value)
                        except TypeError as e:
                            raise ConvertError(
                                f"'{path}': row {rows}, column '{name}': JSON has no {e}; --columns leaves it out"
                            ) from None
                    lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                out.write("".join(lines).encode())
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, to)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
        raise ConvertError(f"'{path}': {e}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def identity(path: Path, columns: Sequence[str] | None) -> dict[str, Any]:
    stat = path.stat()
    return {
        "source": os.fspath(path.resolve()),
        "bytes": stat.st_size,
        "changed": stat.st_mtime_ns,
        "columns": list(columns) if columns else None,
    }


def read_journal(out: Path) -> dict[str, Any]:
    try:
        journal = json.loads((out / JOURNAL).read_text())
        return journal if isinstance(journal, dict) else {}
    except (OSError, ValueError):  # none, or one that somebody changed: all is made anew
        return {}


def write_journal(out: Path, journal: dict[str, Any]) -> None:
    temporary = out / f".{JOURNAL}.{os.getpid()}.tmp"
    temporary.write_text(json.dumps(journal, indent=1, sort_keys=True))
    os.replace(temporary, out / JOURNAL)


def convert(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    jobs: int = 0,
    quiet: bool = True,
) -> dict[str, int]:
    """Converts files into the folder `out`, several at once, and returns the rows of each new file.

    Raises ConvertError for what is wrong with one of them; what is finished then stays, and is not made again.
    """
    pyarrow()
    files = find_sources(sources)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    journal = read_journal(folder)
    started = time.monotonic()
    wanted = []
    for path, name in files:
        known = journal.get(name)
        there = folder / name
        if not (
            isinstance(known, dict)
            and known.get("from") == identity(path, columns)
            and there.is_file()
            and there.stat().st_size == known.get("bytes")
        ):
            wanted.append((path, name))
    all_bytes = sum(path.stat().st_size for path, _ in wanted)
    made: dict[str, int] = {}
    done_bytes = 0

    def finished(path: Path, name: str, before: dict[str, Any], rows: int) -> None:
        nonlocal done_bytes
        made[name] = rows
        done_bytes += path.stat().st_size
        journal[name] = {"from": before, "bytes": (folder / name).stat().st_size, "rows": rows}
        write_journal(folder, journal)
        if not quiet:
            seconds = time.monotonic() - started
            left = seconds * (all_bytes - done_bytes) / max(done_bytes, 1)
            print(
                f"{len(files) - len(wanted) + len(made)}/{len(files)} files, {sum(made.values())} rows, "
                f"{done_bytes / 1e6:.1f} of {all_bytes / 1e6:.1f} MB, {done_bytes / 1e6 / max(seconds, 1e-9):.1f} MB/s, {left:.0f} s left",
                file=sys.stderr,
            )

    jobs = min(jobs or len(os.sched_getaffinity(0)), len(wanted))
    if jobs <= 1:
        for path, name in wanted:
            before = identity(path, columns)
            finished(path, name, before, convert_file(path, folder / name, columns))
        return made
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(convert_file, path, folder / name, columns): (path, name, identity(path, columns))
            for path, name in wanted
        }
        try:
            for future in as_completed(running):
                path, name, before = running[future]
                finished(path, name, before, future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m strata.data.convert",
        description="Parquet and Arrow files to JSONL, and on to a file of tokens.",
    )
    parser.add_argument("sources", nargs="+", help="files, or folders of them")
    parser.add_argument("--out", required=True, help="the folder for NAME.jsonl.zst")
    parser.add_argument("--columns", help="names, with commas between; else all")
    parser.add_argument("--jobs", type=int, default=0, help="files at once; 0: as many as there are cores")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--tokens", help="also makes this file of tokens")
    parser.add_argument("--tokenizer", help="of --tokens: a tokenizer's file, or byte")
    parser.add_argument("--field", default="text", help="of --tokens: the column that is the text")
    parser.add_argument("--separator", default="", help="of --tokens: the special token behind each document")
    given = parser.parse_args(arguments)
    if given.tokens and not given.tokenizer:
        parser.error("--tokens wants --tokenizer")
    try:
        columns = given.columns.split(",") if given.columns else None
        if given.tokens and columns and given.field.split(".")[0] not in columns:
            raise ConvertError(f"--field {given.field} is none of --columns {given.columns}")
        made = convert(given.sources, given.out, columns, given.jobs, given.quiet)
        print(f"{given.out}: {len(made)} files made, {sum(made.values())} rows")
        if given.tokens:
            from .. import _core

            tokenizer = _core.Tokenizer.bytes() if given.tokenizer == "byte" else _core.Tokenizer.load(given.tokenizer)
            files = [os.fspath(Path(given.out) / name) for _, name in find_sources(given.sources)]
            tokens, documents = _core.build_token_file(
                files, tokenizer, given.tokens, given.separator, "jsonl", given.field
            )
            tokenizer.save(given.tokens + ".tokenizer.json")
            print(f"{given.tokens}: {tokens} tokens, {documents} documents")
    except (ConvertError, OSError, RuntimeError, ValueError) as e:
        print(f"strata.data.convert: error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
