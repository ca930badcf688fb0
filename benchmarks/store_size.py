"""How many bytes a reading takes in the store, what storing one costs, and how fast a million come back.

    python benchmarks/store_size.py [--readings 1000000]

Readings are like Megatron-LM's (step, stamp, step time, samples, batch, rate); committed in one stream 5,000
at a time (a backlog), in twenty streams by turns (many nodes), and one at a time (a live log). Sizes are of
the whole file, log included, after a checkpoint; promised are below 90 bytes a reading and a million read in
less than 1.5 s. The peer is what the same rows take in SQLite by sqlite-utils' `insert_all`, the usual way.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections import deque
from pathlib import Path

from tracker.core.records import Flag, Reading
from tracker.core.segments import Segmenter
from tracker.store import NewStream, Store, StreamBatch
from tracker.store.migrate import migrate

T0 = 1_767_225_600_000_000
LINE_BYTES = 3_000
"""From one training line to the next: one line in twenty, as in parse_speed.py."""


def reading(number: int) -> Reading:
    return Reading(
        offset=number * LINE_BYTES,
        at_us=T0 + number * 15_000_000 + number * 7919 % 1_000_000,
        step=(number + 1) * 10,
        step_time_us=1_500_000 + number * 7919 % 100_000,
        samples=(number + 1) * 10_240,
        batch=1024,
        flags=int(Flag.STEP_TIME_EXCLUDES),
        reported_flop_per_s=400e12 + number % 1000 * 1e9,
    )


def fill(path: Path, readings: int, *, streams: int, at_a_time: int) -> float:
    """Store readings; return CPU seconds, segments included."""
    migrate(path)
    with Store.open_writer(path) as writer:
        segmenters = [Segmenter() for _ in range(streams)]
        new = NewStream(source=0, collector="megatron", parser_version=1, identity="", file_name="train.log",
                        written_us=T0, seen_us=T0)  # fmt: skip
        writer.commit([
            StreamBatch(stream_id=n + 1, new=new, position={}, offset=0, context={}) for n in range(streams)
        ])
        done = [0] * streams
        spent = 0.0
        stored = turn = 0
        while stored < readings:
            stream = turn % streams
            turn += 1
            some = [reading(done[stream] + n) for n in range(min(at_a_time, readings - stored))]
            done[stream] += len(some)
            stored += len(some)
            begun = time.process_time()
            segmenter = segmenters[stream]
            kept = [r for r in segmenter.feed(some) if isinstance(r, Reading)]
            batch = StreamBatch(
                stream_id=stream + 1,
                position={"offset": done[stream] * LINE_BYTES, "head": "00" * 16},
                offset=done[stream] * LINE_BYTES,
                context={},
                readings=kept,
                segments=list(segmenter.segments),
            )
            writer.commit([batch])
            spent += time.process_time() - begun
        writer.checkpoint(truncate=True)
    return spent


def read(path: Path, streams: int) -> float:
    """Read all back; return CPU seconds."""
    with Store.open_reader(path) as reader:
        begun = time.process_time()
        with reader.snapshot() as facts:
            for stream in range(1, streams + 1):
                deque(facts.readings(stream), maxlen=0)
        return time.process_time() - begun


def bare(path: Path) -> float:
    """Fetch the same rows with nothing of ours; return CPU seconds."""
    connection = sqlite3.connect(path)
    begun = time.process_time()
    deque(connection.execute("SELECT * FROM reading"), maxlen=0)
    spent = time.process_time() - begun
    connection.close()
    return spent


def usual(path: Path, readings: int) -> tuple[float, float]:
    """Store the same with sqlite-utils as its documentation does; return bytes a row and CPU seconds."""
    import sqlite_utils

    database = sqlite_utils.Database(path)
    begun = time.process_time()
    database["reading"].insert_all(
        ({"stream": 1, **reading(n)._asdict()} for n in range(readings)), pk=("stream", "offset")
    )
    spent = time.process_time() - begun
    database.close()
    return path.stat().st_size / readings, spent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--readings", type=int, default=1_000_000)
    number: int = parser.parse_args().readings
    print(f"{'':34}{'bytes/reading':>14}{'µs to store':>13}{'s per million read':>20}{'/ bare SELECT':>15}")
    ours = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, streams, at_a_time, share in (
            ("one stream, 5,000 at a time", 1, 5_000, 1),
            ("twenty streams by turns, 50", 20, 50, 1),
            ("one stream, one at a time", 1, 1, 10),
        ):
            count = number // share
            path = Path(folder) / f"{streams}-{at_a_time}.db"
            spent = fill(path, count, streams=streams, at_a_time=at_a_time)
            size = path.stat().st_size / count
            back = min(read(path, streams) for _ in range(3))
            ours = ours or size
            beside = min(bare(path) for _ in range(3))
            figures = f"{spent / count * 1e6:13.2f}{back / count * 1e6:20.2f}{back / beside:15.2f}"
            print(f"{name:34}{size:14.1f}{figures}")
        count = number // 10
        peer, spent = usual(Path(folder) / "usual.db", count)
        print(f"{'sqlite-utils insert_all':34}{peer:14.1f}{spent / count * 1e6:13.2f}")
    print(f"\nsize: {ours:.1f} of at most 90 bytes; {peer / ours:.1f} times smaller than the usual way")


if __name__ == "__main__":
    main()
