"""One process as its MLLOG lines tell it: what each key means, and what the counters count.

Pure. `Run` is brought up to date line by line, in file order; it is small and goes to JSON and back, so
a file read in pieces gives the same records.

The counters mean different things with different loggers; `_position` decides, by these rules:

- samples_count beside a training loss, in eval_start, eval_accuracy and run_stop counts all sequences so
  far. In block_start and block_stop it may be the block's length: it is not used there, a step is.
- epoch_num counts tokens (GPT-3), else sequences, else epochs: what divides it tells.
- metadata.step is a 0-based step, a count of sequences or of tokens: likewise, and by the distance of
  two records. The validation loop logs its own steps: without a training loss it is no reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from collectors._numbers import count, number, storable
from tracker.core.records import Event, Flag, Json, Kind, Reading, Record, Reject, evidence, problem

_REPEAT_MS: Final = 120_000
"""Ranks print init_start within seconds of each other; this long after the last one it is a new process."""
_LABELS: Final = 1 << 16
"""No srun job here has more tasks; a larger number before a colon is no label."""


_SETTINGS: Final = {"global_batch_size": "global_batch_size", "max_sequence_length": "sequence_length"}
KEYS: Final = frozenset(_SETTINGS) | {
    "tracked_stats", "train_loss", "init_start", "run_start", "block_start", "epoch_start", "block_stop",
    "eval_start", "eval_stop", "eval_accuracy", "run_stop",
}  # fmt: skip
"""The keys that `Run.take` knows; all others are passed over."""

Fields = Mapping[str, Any]


class Line(msgspec.Struct):
    """The object after the marker, as far as it is used."""

    time_ms: int | float | str | None = None
    key: Any = None
    value: Any = None
    metadata: Any = None


class Place(NamedTuple):
    """Where a line stands in the file, and its text for evidence."""

    offset: int
    line: bytes


class Position(NamedTuple):
    """How far training is, as one line says it."""

    step: int
    samples: int | None = None
    tokens: int | None = None


class Run(msgspec.Struct):
    """The memory of the parser, and the meaning of each key."""

    phase: str = "out"
    """"out" (no process), "init" (since init_start), "run" (since run_start), "done" (since run_stop)."""
    fresh: bool = False
    """The launcher said that a new trial begins: the next init_start is a new process."""
    init_ms: int = 0
    """Last init_start of this process."""
    run_ms: int = 0
    stop_ms: int = 0
    succeeded: bool = False
    said: dict[str, Any] = {}
    """Settings stated for this process."""
    inits: int = 0
    """How many init_start lines it printed."""
    labels: str = ""
    """Which srun labels were seen before run_start: bits of a hexadecimal number."""
    world: int | None = None
    """World size, from `MEMBER: 1/1024`."""
    system: dict[str, Any] = {}
    """What the launcher said, for all its trials: job_id, nodes, per_node, gpu_name, framework."""
    early: dict[str, Any] = {}
    """Settings that were printed before the process they belong to."""
    unit: str = ""
    """What metadata.step counts: "", "step0", "step1", "samples", "tokens"."""
    raw: int | None = None
    """The last metadata.step that stood alone."""
    last: int = 0
    """Step of the last reading."""
    in_eval: bool = False

    # -- what surrounds the MLLOG lines ------------------------------------------------------------

    def see_labels(self, labels: set[bytes]) -> None:
        """Remember srun labels; they are looked for while the process starts."""
        bits = before = int(self.labels or "0", 16)
        for label in labels:
            if (task := int(label)) < _LABELS:
                bits |= 1 << task
        if bits != before:
            self.labels = f"{bits:x}"

    def see_system(self, body: Mapping[str, Any]) -> None:
        """Take `:::SYSJSON`: the node as the launcher's first node sees it (its node count may be 1)."""
        for ours, theirs in (("nodes_here", "number_of_nodes"), ("per_node", "accelerators_per_node")):
            if size := count(body.get(theirs)):
                self.system[ours] = size
        for ours, theirs in (("gpu_name", "accelerator_model_name"), ("framework", "framework")):
            name = body.get(theirs)
            if isinstance(name, str) and name:
                self.system[ours] = storable(name)

    def see_job(self, job_id: str, nodes: int) -> None:
        """Take `:::DLPAL image job_id nodes ...`."""
        self.system["job_id"] = job_id
        self.system["nodes"] = nodes

    def see_world(self, size: int, place: Place) -> list[Record]:
        """Take a world size; ranks repeat it."""
        if self.phase == "run" or size == self.world or not 0 < size < 1 << 24:
            return []
        self.world = size
        return self._state_gpus(place, None) if self.phase == "init" else []

    def launcher_stops(self, at_us: int, place: Place) -> list[Record]:
        """Take `RUNANDTIME_STOP`: the processes are gone, whether they ended well or not."""
        phase, self.phase, self.fresh = self.phase, "out", True
        if phase == "out" or (phase == "done" and not self.succeeded):
            return []
        end_kind = "completed" if self.succeeded else "failed"
        return [_event(Kind.EXIT, at_us, place, data={"end_kind": end_kind})]

    # -- the MLLOG lines ---------------------------------------------------------------------------

    def take(self, line: Line, at_ms: int, place: Place) -> list[Record]:
        """Return what one MLLOG line says; its key is one of KEYS."""
        key, meta = line.key, line.metadata if isinstance(line.metadata, dict) else {}
        if (name := _SETTINGS.get(key)) is not None:
            size = count(line.value)
            return self._setting(name, size, at_ms, place) if size else []
        if key == "tracked_stats":
            value = line.value if isinstance(line.value, dict) else {}
            trains = "reduced_train_loss" in value or "train_loss" in value  # else a mean, or validation
            return self._train(value, meta, at_ms, place) if trains else []
        if key == "train_loss":
            return self._train({"train_loss": line.value}, meta, at_ms, place)
        if key == "init_start":
            return self._init_start(at_ms, place)
        if key == "run_start":
            return self._run_start(at_ms, place)
        if key in ("block_start", "epoch_start"):
            return self._block_start(meta, at_ms, place)
        if key == "block_stop":
            return self._block_stop(meta, at_ms, place)
        if key == "eval_start":
            return self._eval_start(meta, at_ms, place)
        if key == "eval_stop":
            return self._eval_stop(at_ms, place)
        if key == "eval_accuracy":
            return self._boundary(self._position(meta), at_ms, place)
        return self._run_stop(meta, at_ms, place)

    def _init_start(self, at_ms: int, place: Place) -> list[Record]:
        if self.phase == "init":
            late = at_ms - self.init_ms > _REPEAT_MS and bool(self.said.get("global_batch_size"))
            if not (self.fresh or late):
                self.inits += 1
                self.init_ms = max(self.init_ms, at_ms)
                return []
        elif at_ms <= {"run": self.run_ms, "done": self.stop_ms}.get(self.phase, -1):
            return []  # a rank whose line arrived late
        return self._launch(at_ms, place)

    def _launch(self, at_ms: int, place: Place) -> list[Record]:
        if self.phase in ("init", "run"):
            self.labels, self.world = "", None
        self.phase, self.fresh, self.inits, self.init_ms = "init", False, 1, at_ms
        self.said, self.unit, self.raw, self.last = {}, "", None, 0
        self.in_eval = self.succeeded = False
        early, self.early = self.early, {}
        data: dict[str, Json] = {}
        if "job_id" in self.system:
            data["job_id"] = self.system["job_id"]
        out: list[Record] = [_event(Kind.LAUNCH, at_ms * 1000, place, data=data)]
        known = ("job_id", "gpu_name", "framework")
        out += self._state({k: self.system[k] for k in known if k in self.system} | early, at_ms, place)
        if self.world is not None or self._nodes() * self.system.get("per_node", 0) > 0:
            out += self._state_gpus(place, at_ms)
        return out

    def _run_start(self, at_ms: int, place: Place) -> list[Record]:
        out: list[Record] = []
        if self.phase == "run":
            if at_ms <= self.run_ms or not self.last:
                return []
            out += self._launch(at_ms, place)  # it started again and init_start is not in this file
        elif self.phase != "init":
            if self.phase == "done" and at_ms <= self.stop_ms:
                return []
            out += self._launch(at_ms, place)
            self.inits = 0
        self.phase, self.run_ms = "run", at_ms
        out += self._state_gpus(place, at_ms)
        out.append(_event(Kind.RESUME, at_ms * 1000, place, step=0))  # by the rules of the benchmark
        out.append(_event(Kind.TRAIN_START, at_ms * 1000, place))
        return out

    def _block_start(self, meta: Fields, at_ms: int, place: Place) -> list[Record]:
        """Take a first block that does not begin at 0: training goes on from there."""
        if self.phase != "run" or self.last:
            return []
        first, step = count(meta.get("first_epoch_num")), count(meta.get("step"))
        position = self._by_tokens(first) if first else Position(step) if step else None
        if position is None or not position.step:
            return []
        self.last = position.step
        data: dict[str, Json] = {} if position.tokens is None else {"tokens": position.tokens}
        return [_event(Kind.RESUME, at_ms * 1000, place, step=position.step, data=data)]

    def _block_stop(self, meta: Fields, at_ms: int, place: Place) -> list[Record]:
        first, length = count(meta.get("first_epoch_num")), count(meta.get("epoch_count"))
        position = None
        if first is not None and length:
            position = self._by_tokens(first + length)
        elif "samples_count" in meta and (step := count(meta.get("step"))):
            batch = self.said.get("global_batch_size")
            position = Position(step, step * batch if batch else None)
        return self._boundary(position, at_ms, place)

    def _eval_start(self, meta: Fields, at_ms: int, place: Place) -> list[Record]:
        if self.in_eval or self.phase == "done":
            return []
        out = self._boundary(self._position(meta), at_ms, place)
        self.in_eval = True
        out.append(_event(Kind.EVAL_START, at_ms * 1000, place, step=self.last or None))
        return out

    def _eval_stop(self, at_ms: int, place: Place) -> list[Record]:
        if not self.in_eval:
            return []
        self.in_eval = False
        return [_event(Kind.EVAL_END, at_ms * 1000, place, step=self.last or None)]

    def _run_stop(self, meta: Fields, at_ms: int, place: Place) -> list[Record]:
        if self.phase == "done":
            return []
        out = self._boundary(self._position(meta), at_ms, place)
        status = meta.get("status", "success")
        self.phase, self.stop_ms, self.succeeded, self.labels = "done", at_ms, status == "success", ""
        step = self.last or None
        if self.succeeded:
            out.append(_event(Kind.COMPLETED, at_ms * 1000, place, step=step))
        else:
            data: dict[str, Json] = {"end_kind": "failed", "status": storable(str(status), 40)}
            out.append(_event(Kind.EXIT, at_ms * 1000, place, step=step, data=data))
        return out

    # -- readings ----------------------------------------------------------------------------------

    def _train(self, value: Fields, meta: Fields, at_ms: int, place: Place) -> list[Record]:
        position = self._position(meta)
        if position is None:
            return [Reject(place.offset, place.line[:200], "training record without a usable count")]
        if position.step == self.last or self.phase == "done":  # another rank, or told by a boundary
            return []
        flags, step_us = 0, None
        seconds = number(value.get("train_step_time"))
        if seconds is not None and 0 < seconds < 1e9:
            step_us = max(1, round(seconds * 1e6))
            flags = int(Flag.STEP_TIME_SAMPLE)
        loss = value.get("reduced_train_loss", value.get("train_loss"))
        if isinstance(loss, (float, str)) and number(loss) is None:
            flags |= Flag.NAN
        return self._read(position, at_ms, place, step_us=step_us, flags=flags)

    def _boundary(self, position: Position | None, at_ms: int, place: Place) -> list[Record]:
        """Read the count at the end of a block, where it goes beyond what the steps told."""
        if position is None or position.step <= self.last or self.phase == "done":
            return []
        return self._read(position, at_ms, place)

    def _read(
        self, position: Position, at_ms: int, place: Place, *, step_us: int | None = None, flags: int = 0
    ) -> list[Record]:
        reading = Reading(
            place.offset,
            at_ms * 1000,
            position.step,
            step_us,
            position.samples,
            position.tokens,
            self.said.get("global_batch_size"),
            0,
            flags,
        )
        reason = problem(reading)
        if reason is not None:
            return [Reject(place.offset, place.line[:200], reason)]
        self.last = position.step
        return [reading]

    def _position(self, meta: Fields) -> Position | None:
        batch, sequence = self.said.get("global_batch_size"), self.said.get("sequence_length")
        samples, step = count(meta.get("samples_count")), count(meta.get("step"))
        if samples is not None:
            if batch:
                return Position(samples // batch, samples)
            if step is None:
                return None
            zero_based = samples % (step + 1) == 0 and (not step or samples % step != 0)
            return Position(step + 1 if zero_based else step, samples)
        epoch = count(meta.get("epoch_num"))
        if epoch and batch:
            if sequence and epoch % (batch * sequence) == 0:
                return self._by_tokens(epoch)
            if epoch % batch == 0:
                return Position(epoch // batch, epoch)
        if step is None:
            return None
        steps = self._steps(step)
        if self.unit == "samples" and batch:
            return Position(step // batch, step)
        if self.unit == "tokens":
            return self._by_tokens(step)
        return Position(steps, steps * batch if batch else None)

    def _by_tokens(self, tokens: int) -> Position | None:
        batch, sequence = self.said.get("global_batch_size"), self.said.get("sequence_length")
        if not batch or not sequence:
            return None
        samples = tokens // sequence
        return Position(samples // batch, samples, tokens)

    def _steps(self, step: int) -> int:
        """Decide what metadata.step counts, and return the steps done if it counts steps."""
        before, self.raw = self.raw, step
        if before is None or step <= before:
            if not self.unit:
                self.unit = self._unit(step, step)
        else:
            decided = self._unit(step, step - before)
            if not self.unit or (decided in ("samples", "tokens")) != (self.unit in ("samples", "tokens")):
                self.unit = decided
        return step + 1 if self.unit == "step0" else step

    def _unit(self, step: int, apart: int) -> str:
        batch, sequence = self.said.get("global_batch_size") or 0, self.said.get("sequence_length") or 0
        for size, unit in ((batch * sequence, "tokens"), (batch, "samples")):
            if size > 1 and step and step % size == 0 and apart % size == 0:
                return unit
        return "step0" if step == 0 or (apart > 1 and (step + 1) % apart == 0) else "step1"

    # -- the operating point -----------------------------------------------------------------------

    def _state(self, settings: Mapping[str, Any], at_ms: int | None, place: Place) -> list[Record]:
        """State settings that this process has not stated yet."""
        new = {name: value for name, value in settings.items() if self.said.get(name) != value}
        if not new:
            return []
        self.said.update(new)
        return [_event(Kind.SETTING, None if at_ms is None else at_ms * 1000, place, data=new)]

    def _setting(self, name: str, size: int, at_ms: int, place: Place) -> list[Record]:
        if self.phase in ("init", "run"):
            return self._state({name: size}, at_ms, place)
        self.early[name] = self.said[name] = size  # of a process to come
        return []

    def _nodes(self) -> int:
        return int(max(self.system.get("nodes", 0), self.system.get("nodes_here", 0)))

    def _state_gpus(self, place: Place, at_ms: int | None) -> list[Record]:
        """State how many GPUs take part: the world size, else the best of what hints at it."""
        nodes, gpus = self._nodes(), self.world
        if gpus is None:
            bits = int(self.labels or "0", 16)
            labels = bits.bit_count() if bits & (bits + 1) == 0 else 0  # 0, 1, 2 ... with none left out
            ranks = max(labels, self.inits)
            gpus = max(nodes * self.system.get("per_node", 0), ranks if ranks > 1 else 0)
        known: dict[str, Any] = {"gpus": gpus} if gpus else {}
        if nodes:
            known["nodes"] = nodes
        return self._state(known, at_ms, place)


def _event(
    kind: Kind,
    at_us: int | None,
    place: Place,
    *,
    step: int | None = None,
    data: Mapping[str, Json] | None = None,
) -> Event:
    return Event(
        offset=place.offset, kind=kind, at_us=at_us, step=step, data=data or {}, text=evidence(place.line)
    )
