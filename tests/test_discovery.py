"""The entry for Prometheus' file discovery: whole or not there, gone after a clean stop."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.tsdb_help import ask, prometheus
from tracker.config.kinds import Listen
from tracker.discovery import LABEL_CHARS, MOST_RUNS, FileSd, entry, target

HERE = Listen("127.0.0.1", 9109)


def test_it_is_there_while_the_sidecar_listens_and_gone_after(tmp_path: Path) -> None:
    """In a folder that is made; with nothing half written beside it."""
    place = tmp_path / "targets" / "run.json"
    told = FileSd(place)

    told.listening(HERE, ["llama"], tls=False)

    assert json.loads(place.read_text()) == [
        {"targets": ["127.0.0.1:9109"], "labels": {"__meta_tracker_runs": ",llama,"}}
    ]
    assert place.stat().st_mode & 0o044 == 0o044, "Prometheus is another user"
    assert list(place.parent.iterdir()) == [place]

    told.stopping()

    assert list(place.parent.iterdir()) == []


def test_it_is_written_again_when_the_runs_change_and_only_then(tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    told = FileSd(place)
    told.listening(HERE, ["a"], tls=False)
    first = place.stat().st_ino
    told.listening(HERE, ["a"], tls=False)
    assert place.stat().st_ino == first

    told.listening(HERE, ["a", "b"], tls=True)

    labels = json.loads(place.read_text())[0]["labels"]
    assert labels == {"__meta_tracker_runs": ",a,b,", "__scheme__": "https"}


def test_a_deleted_entry_comes_back_at_the_next_word(tmp_path: Path) -> None:
    place = tmp_path / "run.json"
    told = FileSd(place)
    told.listening(HERE, ["a"], tls=False)
    place.unlink()

    told.listening(HERE, ["a"], tls=False)

    assert place.exists()


def test_a_successors_entry_is_not_taken_away(tmp_path: Path) -> None:
    """The old sidecar stops after the new one has written the same file."""
    place = tmp_path / "run.json"
    old, new = FileSd(place), FileSd(place)
    old.listening(HERE, ["a"], tls=False)
    new.listening(Listen("127.0.0.1", 9110), ["a"], tls=False)

    old.stopping()

    assert "9110" in place.read_text()


def test_many_sidecars_share_a_folder_and_no_reader_sees_half_an_entry(tmp_path: Path) -> None:
    """Eight of them come and go; who reads meanwhile finds whole documents only."""
    ending = threading.Event()
    torn: list[str] = []

    def read() -> None:
        while not ending.is_set():
            for place in tmp_path.glob("*.json"):
                try:
                    json.loads(place.read_text())
                except FileNotFoundError:
                    continue
                except ValueError:
                    torn.append(place.name)

    def live(number: int) -> None:
        told = FileSd(tmp_path / f"run-{number}.json")
        for turn in range(10):
            told.listening(Listen("127.0.0.1", 9000 + turn), [f"run {number}" * turn], tls=False)
        if number % 2:
            told.stopping()

    reader = threading.Thread(target=read)
    reader.start()
    sidecars = [threading.Thread(target=live, args=(n,)) for n in range(8)]
    for one in sidecars:
        one.start()
    for one in sidecars:
        one.join()
    ending.set()
    reader.join()

    assert not torn
    assert sorted(place.name for place in tmp_path.iterdir()) == [f"run-{n}.json" for n in (0, 2, 4, 6)]


def test_a_folder_that_cannot_be_written_to_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    told = FileSd(tmp_path / "file" / "run.json")

    told.listening(HERE, ["a"], tls=False)
    told.stopping()

    assert "the scraper is not told where we are" in caplog.text


def test_labels_are_few_bounded_and_valid() -> None:
    """Names of runs are text of people: any length, any character."""
    runs = [f"{n:03}" + 'x"\n,\ud800\x1b' + "é" * 500 for n in range(100)]

    group = json.loads(entry("h:1", runs, tls=False))[0]

    told = group["labels"]["__meta_tracker_runs"].strip(",").split(",")
    assert len(told) == MOST_RUNS
    assert all(len(one) <= LABEL_CHARS and one.isprintable() for one in told)


ADDRESSES = [
    ("as bound", Listen("10.0.0.7", 4000), None, "10.0.0.7:4000"),
    ("announced", Listen("127.0.0.1", 4000), Listen("node17", 80), "node17:80"),
    ("announced with the real port", Listen("0.0.0.0", 4000), Listen("node17", 0), "node17:4000"),
    ("an IPv6 address", Listen("::1", 4000), None, "[::1]:4000"),
]


@pytest.mark.parametrize(
    ("listen", "announce", "told"), [a[1:] for a in ADDRESSES], ids=[a[0] for a in ADDRESSES]
)
def test_the_address_is_what_a_scraper_can_use(listen: Listen, announce: Listen | None, told: str) -> None:
    assert target(listen, announce) == told


def test_of_all_addresses_the_hosts_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node17")

    assert target(Listen("0.0.0.0", 4000), None) == "node17:4000"


@pytest.mark.slow
@pytest.mark.prometheus
def test_a_real_prometheus_finds_a_real_sidecar_and_loses_it_when_it_stops(tmp_path: Path) -> None:
    """By the file alone: port 0, so that nobody could have known the port."""
    from tests.test_sidecar import CONFIG, TRACKER, line

    (tmp_path / "train.log").write_text("".join(line(step) for step in range(1, 20)))
    served = 'listen = "127.0.0.1:0"\nfile_sd = "targets/live.json"'
    (tmp_path / "run.toml").write_text(CONFIG.replace('listen = "127.0.0.1:0"', served))
    rules = (
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n- job_name: training\n  file_sd_configs:\n"
        f"  - files: ['{tmp_path}/targets/*.json']\n    refresh_interval: 1s\n"
        "  relabel_configs:\n  - {source_labels: [__meta_tracker_runs], target_label: runs}\n"
    )
    child = subprocess.Popen(
        [*TRACKER, "run", "--config", str(tmp_path / "run.toml")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with prometheus(tmp_path / "prom", config=rules) as url:
            rows = waited(lambda: ask(url, "/api/v1/query", query="training_step")["result"])
            assert rows[0]["metric"]["run"] == "live"
            assert rows[0]["metric"]["runs"] == ",live,"
            assert float(rows[0]["value"][1]) == 19

            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0

            assert not (tmp_path / "targets" / "live.json").exists()
            waited(lambda: not ask(url, "/api/v1/targets")["activeTargets"])
    finally:
        child.kill()
        child.wait()


def waited(look):  # type: ignore[no-untyped-def]
    """Return what `look` finds in the end."""
    for _ in range(600):
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it never comes")
