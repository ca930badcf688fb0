"""The short cuts for records of several parts change nothing: a bar's states and a dict, a metric a line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from collectors._lines import Hot, Reader
from tests.test_collectors import LOGS, load
from tests.test_short_cuts import TROUBLE, reader_of
from tracker.core.records import Reading, Record
from tracker.interfaces import Context

SEEDS = 40


def others(name: str) -> list[bytes]:
    """Return the lines of a collector's fixtures, and trouble."""
    found = [*TROUBLE * 3]
    for path in sorted(path for path in (LOGS / name).iterdir() if path.is_file()):
        found += [line for line in load(path).content.split(b"\n") if line.strip()]
    return found


def damaged(record: bytes, name: str, chance: random.Random) -> bytes:
    """Return one record in five torn, told twice, or with other lines before it."""
    match chance.randrange(25):
        case 0:
            return record[: chance.randrange(len(record))] + b"\n"
        case 1:
            return record * 2
        case 2 | 3 | 4:
            return chance.choice(others(name)) + b"\n" + record
        case _:
            return record


def state(n: int, total: int, s: int) -> bytes:
    clock = b"%d:%02d:%02d" % (s // 3600, s // 60 % 60, s % 60) if s >= 3600 else b"%02d:%02d" % divmod(s, 60)
    return b"%3d%%|%-10s| %d/%d [%s<01:00,  5.00s/it]" % (100 * n // total, b"#" * (n % 9), n, total, clock)


def console(seed: int) -> bytes:
    """Return what a trainer's console has: between two dicts the bar is drawn again, and some steps on."""
    chance = random.Random(seed)
    total, n, s, out = 900, 0, 0, [state(0, 900, 0)]
    label = chance.choice((b"", b"", b"", b"  3: ", b"2025-11-05T00:40:20.500000000+07:00 "))
    for number in range(chance.randrange(5, 60)):
        drawn = [] if number == 0 else [state(n, total, s)]
        for _ in range(chance.choice((0, 1, 1, 1, 3))):
            n, s = n + chance.choice((1, 1, 1, 5)), s + chance.choice((0, 1, 5, 5, 12))
            drawn.append(state(n, total, s))
        tokens = chance.choice((
            b"",
            b", 'num_tokens': 1.5e+06",
            b", 'num_input_tokens_seen': %d" % (n * 4096),
        ))
        loss = chance.choice((b"2.5", b"'2.5'", b"2.5", b"2.5", b"nan"))
        metrics = b"{'loss': %s, 'grad_norm': 1.0, 'epoch': %.2f%s}" % (loss, n / 100, tokens)
        line = label + b"\r".join((*drawn, b" " * chance.choice((0, 30, 30, 600)), metrics)) + b"\n"
        out.append(damaged(line, "huggingface", chance))
        if chance.random() < 0.1:
            n, s, label = chance.randrange(n + 1), 0, label
            out.append(state(0, total, 0) + b"\r")
    return b"".join(out)


def metrics(seed: int) -> bytes:
    """Return Composer's records: of every batch or of some, with rates and without."""
    chance = random.Random(seed)
    batch, total, hours, out = 0, chance.choice((60, 900)), 0.0, []
    unit = chance.choice((
        b"",
        b"",
        b"\t Train time_hours/total: %.4f\n",
        b"\t Train time_days/total: %.4f\n",
    ))
    for _ in range(chance.randrange(5, 60)):
        hours += chance.choice((0.0, 0.002, 0.002, 0.01))
        out.append(
            damaged(
                b"[batch=%d/%d]:\n\t Train time/epoch: 0\n\t Train time/batch: %d\n\t Train time/sample: %d\n"
                % (batch + 1, total, batch, batch * 256)
                + b"\t Train loss/train/total: %s\n" % chance.choice((b"2.5", b"2.5", b"2.5", b"nan"))
                + chance.choice((
                    b"",
                    b"\t Train throughput/tokens_per_sec: 131072.0\n"
                    b"\t Train throughput/device/tokens_per_sec: 2048.0\n"
                    b"\t Train throughput/device/flops_per_sec: 180000000000000.0\n",
                ))
                + b"\t Train time/total: %.4f\n" % hours
                + (unit % hours if unit else b"")
                + b"\t Train lr-DecoupledAdamW/group0: 0.0001\n",
                "composer",
                chance,
            )
        )
        batch += chance.choice((1, 1, 10))
    return b"".join(out)


LOGS_OF: dict[str, Callable[[int], bytes]] = {"huggingface": console, "composer": metrics}


class Counting:
    """A short cut, and how many readings it has made."""

    def __init__(self, hot: Hot) -> None:
        self.hot, self.gate, self.made = hot, hot.gate, 0

    def sweep(self, block: bytes) -> list[tuple[int, Any]]:
        return self.hot.sweep(block)

    def run(
        self, swept: Sequence[tuple[int, Any]], place: Callable[[int], int], context: Context
    ) -> Iterator[Record | int]:
        for item in self.hot.run(swept, place, context):
            self.made += isinstance(item, Reading)
            yield item


@pytest.mark.parametrize("name", LOGS_OF)
def test_a_record_in_one_piece_is_read_as_its_lines_are(name: str) -> None:
    """Usual records mixed with starts, trouble, torn and repeated ones: same records, same memory."""
    whole: Any = reader_of(name)
    counting = Counting(whole._hot)
    quick = Reader(whole.rules, followers=whole.followers, hot=counting)
    slow = Reader(whole.rules, followers=whole.followers)
    readings = 0
    for seed in range(SEEDS):
        log, ours, theirs = LOGS_OF[name](seed), Context(), Context()
        records = list(quick.parse(log, ours))
        assert records == list(slow.parse(log, theirs)), f"seed {seed}"
        assert json.dumps(ours.state, sort_keys=True) == json.dumps(theirs.state, sort_keys=True), f"{seed}"
        readings += sum(isinstance(record, Reading) for record in records)
    assert counting.made > readings / 4, "the short cut was hardly ever taken"
