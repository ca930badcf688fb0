"""Evidence from beside the training log: kernel messages and Kubernetes objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors import detect, kernel, kubernetes, kubernetes_watch
from collectors._kube import said_by
from tests.factories import parse
from tests.test_collectors import LOGS, iso
from tracker.core.records import CAUSES, END_KINDS, Event, Kind, Record, Reject
from tracker.interfaces import Context


def failures(records: list[Record]) -> list[Event]:
    return [one for one in records if isinstance(one, Event) and one.kind is Kind.FAILURE]


# -- the kernel --------------------------------------------------------------------------------------


@pytest.mark.shared
def test_five_real_messages_of_one_gpu_are_one_incident(shared_data: Path) -> None:
    """The same number from three processes in six minutes: one part, one incident, the truth's GPU."""
    truth = json.loads((shared_data / "xid_kmsg" / "truth.json").read_bytes())["dmesg-with-xid-119.log"]
    body = (shared_data / "xid_kmsg" / "dmesg-with-xid-119.log").read_bytes()
    assert detect(body).collector is kernel.COLLECTOR

    records = parse(body, kernel.COLLECTOR)

    assert body.count(b"Xid (") == truth["xid_lines"] == 5
    (incident,) = failures(records)
    assert len(records) == truth["pci"] == 1
    assert incident.data["xid"] == 119
    assert incident.data["cause"] == "gpu_system_processor"
    assert incident.data["device"] == "0000:9b:00"
    assert incident.at_us is not None
    assert iso(incident.at_us) == "2025-02-23T16:24:18Z"


@pytest.mark.shared
def test_the_real_log_of_a_fabric_manager_holds_one_error_that_is_not_fatal(shared_data: Path) -> None:
    """A hundred lines of its talk yield nothing; its switch's error is no Xid of a GPU."""
    body = (shared_data / "xid_kmsg" / "fabricmanager.log").read_bytes()
    assert detect(body).collector is kernel.COLLECTOR

    (incident,) = failures(parse(body, kernel.COLLECTOR))

    assert incident.data["xid"] == 12028
    assert incident.data["cause"] == "network"
    assert "fatal" not in incident.data
    assert incident.at_us is not None
    assert iso(incident.at_us) == "2025-02-27T15:10:02Z"


def test_a_thousand_parts_that_complain_keep_the_memory_small() -> None:
    """Each is an incident; what is remembered stays bounded."""
    context = Context(file_name="dmesg")
    lines = [
        f"[Mon Mar  2 10:00:00 2026] NVRM: Xid (PCI:{n:04x}:9b:00): 79, pid=1, GPU has fallen off the bus.\n"
        for n in range(1000)
    ]

    records = list(kernel.COLLECTOR.parse("".join(lines).encode(), context))

    assert len(records) == 1000
    assert len(json.dumps(context.state)) < 8192


# -- Kubernetes --------------------------------------------------------------------------------------


def test_pods_tell_who_was_killed_and_who_was_preempted() -> None:
    """In the order of time; the container that was told to stop is no trouble of its own."""
    body = (LOGS / "kubernetes" / "pods.json").read_bytes()
    assert detect(body).collector is kubernetes.COLLECTOR

    killed, preempted = parse(body, kubernetes.COLLECTOR)

    assert isinstance(killed, Event)
    assert killed.data == {
        "cause": "out_of_memory", "confidence": 0.95, "fatal": True,
        "host": "gpu-007", "rank": 7, "exit_code": 137,
    }  # fmt: skip
    assert killed.text == "pod llama-worker-7, container pytorch: OOMKilled, exit code 137"
    assert killed.at_us is not None
    assert iso(killed.at_us) == "2026-03-02T10:00:00Z"
    assert isinstance(preempted, Event)
    assert preempted.kind is Kind.EXIT
    assert preempted.data == {"end_kind": "preempted", "cause": "preempted"}


def pod(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": status}


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-03-02T10:00:00Z"}}
    return pod(containerStatuses=[{"name": "c", "state": state}])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(ended(0, "Completed"), [], id="success-is-nothing"),
        pytest.param(ended(143), [], id="told-to-stop-is-nothing"),
        pytest.param(ended(1), ["unknown"], id="a-plain-error-proves-little"),
        pytest.param(ended(137), ["unknown"], id="a-kill-may-have-many-reasons"),
        pytest.param(ended(137, "OOMKilled"), ["out_of_memory"], id="the-memory-killer-says-so"),
        pytest.param(
            pod(
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
            ),
            ["host_maintenance"],
            id="drained",
        ),
        pytest.param(
            pod(
                conditions=[
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "TerminationByKubelet",
                        "message": "Pod was terminated in response to imminent node shutdown.",
                    }
                ]
            ),
            ["host_maintenance"],
            id="the-node-shuts-down",
        ),
        pytest.param(
            pod(
                conditions=[
                    {"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}
                ]
            ),
            [],
            id="a-condition-that-does-not-hold",
        ),
        pytest.param(pod(conditions="x", containerStatuses=[1, {"state": 2}]), [], id="other-shapes"),
        pytest.param({"kind": "Node", "status": {}}, [], id="another-kind"),
    ],
)
def test_what_an_object_tells(body: dict[str, Any], told: list[str]) -> None:
    """Causes and ends that the core knows, and no more than the object proves."""
    found = list(said_by(body, Context()))

    assert [one.data.get("cause") for one in found] == told
    for one in found:
        assert one.data["cause"] in CAUSES
        assert one.kind is Kind.FAILURE or one.data["end_kind"] in END_KINDS


@pytest.mark.parametrize("body", [b"{", b"[1]", b"nonsense"], ids=["torn", "a-list", "text"])
def test_what_is_no_object_is_rejected(body: bytes) -> None:
    """A command that failed prints something else: that is a reject, not an exception."""
    assert [type(one) for one in kubernetes.COLLECTOR.parse(body, Context())] == [Reject]


def test_lists_within_lists_end() -> None:
    """However deep a document is nested."""
    body = b'{"items": [' * 400 + b"]}" * 400

    assert list(kubernetes.COLLECTOR.parse(body, Context())) == []


def test_an_empty_answer_tells_nothing() -> None:
    """No pods, no events."""
    assert list(kubernetes.COLLECTOR.parse(b'{"kind": "List", "items": []}', Context())) == []
    assert list(kubernetes.COLLECTOR.parse(b"", Context())) == []


def test_lines_are_recognised_beside_a_document() -> None:
    """One object a line is the watch's; a whole document is not."""
    body = b"\n".join(
        line
        for line in (LOGS / "kubernetes_watch" / "events.jsonl").read_bytes().split(b"\n")
        if not line.startswith(b"#")
    )
    assert detect(body).collector is kubernetes_watch.COLLECTOR
