"""The config file: every key, every wrong type, every message."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.config import Config, ConfigError, kinds, load, parse
from tracker.config import keys as k
from tracker.config.kinds import Kind
from tracker.core.plan import PlannedConversion
from tracker.core.plan_check import check_plan
from tracker.core.settings import Model
from tracker.daily import DAYS
from tracker.interfaces import Collector, Context

HERE = Path("/somewhere/run.toml")
EXAMPLE = Path(__file__).parents[1] / "configs" / "run.example.toml"


def _nothing(block: bytes, context: Context) -> list[object]:
    return []


def collector(name: str, kind: str = "log", options: tuple[str, ...] = ()) -> Collector:
    return Collector(
        name=name,
        framework=name,
        version=1,
        parse=_nothing,  # type: ignore[arg-type]
        detect=lambda head: None,
        kind=kind,  # type: ignore[arg-type]
        options=options,
    )


def collectors() -> Mapping[str, Collector]:
    made = (
        collector("megatron"),
        collector("slurm", "scheduler", ("cluster",)),
        collector("jsonl", options=("alias",)),
    )
    return {c.name: c for c in made}


def read(text: str) -> Config:
    return parse(text, path=HERE, collectors=collectors)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value.problems


def only_problem(text: str) -> str:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


MINIMAL = '[run]\nname = "r"\n'

BAD: dict[Kind, tuple[str, ...]] = {
    kinds.TEXT: ("1", "1.5", "true", "[]", "{}", '""', '"  "', "2026-01-05"),
    kinds.PATH: ("1", "true", "[]", '""', r'"a\u0000b"'),
    kinds.BOOLEAN: ("1", '"true"', "[]", "0.0"),
    kinds.GPU: ("1", "true", "[]", '""'),
    kinds.PRECISION: ("16", "true", "[]", '"bf61"', '""'),
    kinds.PEAK_TFLOPS: (
        '"989"', "true", "[]", "0", "-989", "nan", "inf", "989e12", "989_000", "0.989", "989_000_000_000_000",
    ),
    kinds.ZONE: ("1", "true", "[]", '"Europe/Berlim"', '"UTC+2"', '"../../etc/passwd"', '""'),
    kinds.MOMENT: ("1", "true", "[]", '"soon"', "07:00:00", "1969-12-31", "2106-02-07T06:28:15Z"),
    kinds.TIME_OF_DAY: ("7", "true", "[]", '"25:00"', '"7"', '"07:60"', '"seven"', "2026-01-05"),
    kinds.LISTEN: ("9109", "true", "[]", '"9109"', '":9109"', '"localhost"', '"h:70000"', '"a b:1"'),
    kinds.COMMAND: ("1", "true", "[]", '"sacct -P"', "[1]", '[""]', r'["a\u0000"]', "{}"),
    kinds.HOST: ("1", "true", "[]", '""', '"a b"', '"smtp.example.org:25"', r'"h\r\nX: y"', '"a/b"'),
    kinds.NAME: ("1", "true", "[]", '""', '"a b"', '"../x"', '"é"', '"-x"', '"' + "x" * 41 + '"'),
    kinds.VARIABLE: ("1", "true", "[]", '""', '"1A"', '"$PASSWORD"', '"p w"', '"hunter2!"'),
    kinds.WEEKDAYS: ("1", "true", "[]", '"mon"', '["monday", 1]', '["fryday"]', "[1]"),
    kinds.EVENTS: ("1", "true", "[]", '"stall"', '["down", 1]'),
    kinds.SHAPE: ("1", "true", "[]", '"discord"', '""'),
    kinds.ADDRESS: ("1", "true", "[]", '"ops"', '"a@b, c@d"', '"a@b>"', r'"a@b\r\nBcc: c@d"'),
    kinds.ADDRESSES: (
        "1", "true", "[]", '"ops"', '["a@b", 1]', '["a@b", "c"]', str([*map("a{}@b".format, range(101))]),
    ),
    kinds.AMOUNT: ('"2"', "true", "[]", "-1", "nan", "inf"),
    kinds.FRACTION: ('"0.05"', "true", "[]", "-0.1", "nan", "8"),
    kinds.RATIO: ('"0.35"', "true", "[]", "0", "-0.1", "35", "1.01", "nan", "inf", "350"),
    kinds.FACTOR: ('"1.5"', "true", "[]", "0", "0.5", "-1", "nan", "1000"),
    kinds.POSITIVE: ('"700"', "true", "[]", "0", "-1", "nan", "inf"),
    kinds.NOT_NEGATIVE: ('"1"', "true", "[]", "-1", "nan", "inf"),
    kinds.SECONDS: ('"60"', "true", "[]", "0", "-1", "nan", "1e9"),
    kinds.LINGER: ('"60"', "true", "[]", "-1", "nan", "1e9"),
    kinds.NICENESS: ('"10"', "true", "[]", "-1", "20", "1.5"),
    kinds.OOM_SCORE: ('"500"', "true", "[]", "-1", "1001", "1.5"),
    kinds.PORT: ('"587"', "true", "[]", "0", "-1", "1.5", "70000"),
    kinds.COUNT: ('"8"', "true", "[]", "0", "-8", "1.5", "nan", "inf", "1e308", "4611686018427387904"),
    kinds.PARAMETERS: ('"13e9"', "true", "[]", "0", "-13e9", "13", "nan", "inf", "1e30"),
    kinds.TOKENS: ('"4e12"', "true", "[]", "0", "-4e12", "4", "nan", "inf", "1e30", "1" + "0" * 400),
    kinds.BILLING: ("1", "true", "[]", '"atempt"', '""'),
    kinds.TLS: ("1", "true", "[]", '"ssl"', '""'),
    kinds.ON_UNCERTAIN: ("1", "true", "[]", '"retry"', '""'),
    kinds.PAPER: ("1", "true", "[]", '"a5"', '""'),
}  # fmt: skip
"""What each kind refuses, as TOML."""


def every_key() -> list[tuple[k.Section, k.Key]]:
    return [(section, key) for section in k.SECTIONS.values() for key in section.keys]


def with_value(section: k.Section, key: k.Key, value: str) -> str:
    """A config whose only doubtful value is this one."""
    needed = {other.name: other.example for other in section.keys if other.needed}
    if section is k.SOURCE and key.name not in ("path", "command"):
        needed |= {"command": '["x"]', "collector": '"slurm"'} if key.name.endswith("_s") else {"path": '"x"'}
    if section is k.SOURCE and key.name == "command":
        needed["collector"] = '"slurm"'
    if section is k.MAIL and key.name in ("user", "password_file", "password_env"):
        way = "password_env" if key.name == "password_env" else "password_file"
        needed |= {"user": '"u"', way: '"p"'}
    if section is k.WEBHOOK and key.name not in ("url_file", "url_env"):
        needed["url_file"] = '"u"'
    needed[key.name] = value
    body = "".join(f"{name} = {text}\n" for name, text in needed.items())
    table = f"{section.header}\n{body}"
    if section is k.MAIL:
        table = f"[report]\n{table}"
    if section is k.SCHEDULE:
        table += "[report.mail]\nhost = 'h'\nfrom = 'a@b'\nto = 'c@d'\n"
    return table if section is k.RUN else MINIMAL + table


def test_every_kind_has_its_wrong_values() -> None:
    """No key escapes the table below."""
    assert {key.kind for _, key in every_key()} <= BAD.keys()


@pytest.mark.parametrize(
    ("section", "key"), [pytest.param(s, key, id=f"{s.name}.{key.name}") for s, key in every_key()]
)
def test_every_key_refuses_every_wrong_type(section: k.Section, key: k.Key) -> None:
    """Each error names the key by its dotted path, the value, and what was expected."""
    where = f"{section.name}[1]" if section.many else section.name
    for value in BAD[key.kind]:
        found = problems(with_value(section, key, value))
        mine = [p for p in found if p.startswith(f"{where}.{key.name} = ") and ": expected " in p]

        assert mine, (value, found)
        assert len(mine[0]) < 700
        assert mine[0].isprintable()


@pytest.mark.parametrize(
    ("section", "key"), [pytest.param(s, key, id=f"{s.name}.{key.name}") for s, key in every_key()]
)
def test_every_key_takes_its_example(section: k.Section, key: k.Key) -> None:
    """What the reference shows is accepted."""
    assert key.example
    read(with_value(section, key, key.example))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("[plan]\nmfu = 35", "It looks like per cent: write 0.35", id="mfu-in-per-cent"),
        pytest.param("[plan]\ngoodput = 90", "It looks like per cent: write 0.9", id="goodput-in-per-cent"),
        pytest.param("[plan]\nattn_overhead = 5", "per cent: write 0.05", id="overhead-in-per-cent"),
        pytest.param("[hardware]\npeak_tflops = 989e12", "looks like FLOP/s: write 989", id="peak-in-flop"),
        pytest.param("[hardware]\npeak_tflops = 989_000", "GFLOP/s: write 989", id="peak-1000-too-large"),
        pytest.param("[hardware]\npeak_tflops = 0.989", "PFLOP/s: write 989", id="peak-1000-too-small"),
        pytest.param("[hardware]\ngpu = 'h1000'", "peak_tflops in [hardware]",
                     id="unknown-gpu-says-what-to-add"),
        pytest.param("[hardware]\ngpu = 'h100'", "Name one of them", id="ambiguous-gpu"),
        pytest.param("[hardware]\ngpu = 'a100-sxm'\nprecision = 'fp8'", "fp8", id="no-such-peak-on-file"),
        pytest.param("[hardware]\ngpu = 'h1000'\npeak_tflops = 900", "'h1000'",
                     id="gpu-checked-beside-a-peak"),
        pytest.param("[model]\nactive_params = 13", "In billions? Write 13e9", id="parameters-in-billions"),
        pytest.param("[plan]\ntokens = 4", "In trillions? Write 4e12", id="tokens-in-trillions"),
        pytest.param("[model]\nactive_params = 1e308", "at most 1e18. Count parameters",
                     id="more-parameters-than-there-can-be"),
        pytest.param("[plan]\ntokens = 1e308", "at most 1e20. Count tokens",
                     id="more-tokens-than-there-can-be"),
        pytest.param("[serve]\nlisten = ':9109'", "Name the host: 127.0.0.1:9109", id="no-host"),
        pytest.param("[serve]\nlisten = 'localhost'", "Name the port: localhost:9109", id="no-port"),
        pytest.param("[report]\ntimezone = 'Europe/Berlim'", "did you mean 'Europe/Berlin'",
                     id="zone-misspelt"),
        pytest.param("[report]\ntimezone = 'UTC+2'", "Etc/GMT-2", id="offset-as-zone"),
        pytest.param(
            "[[source]]\ncommand = 'sacct -P'\ncollector = 'slurm'", "without a shell", id="command-as-text"
        ),
    ],
)  # fmt: skip
def test_a_likely_slip_is_named(text: str, hint: str) -> None:
    """The message says what the value probably was meant to be."""
    assert any(hint in problem for problem in problems(MINIMAL + text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[hardware]\ngpusx = 8", "hardware.gpusx: unknown key, did you mean 'gpus'",
                     id="misspelt"),
        pytest.param("[plan.failures]\nper_dy = 8\nper_day = 1\nrestart_min = 1\ncheckpoint_interval_min = 1",
                     "plan.failures.per_dy: unknown key, did you mean 'per_day'", id="in-a-nested-table"),
        pytest.param("[report.mial]\nx = 1", "report.mial: unknown key, did you mean 'mail'",
                     id="a-nested-table"),
        pytest.param("[[plan.stage]]\nname = 'a'\ntokens = 1e12\ngpu = 8",
                     "plan.stage[1].gpu: unknown key, did you mean 'gpus'", id="in-a-listed-table"),
        pytest.param("[[source]]\npath = 'x'\n[[source]]\npaht = 'y'",
                     "source[2].paht: unknown key, did you mean 'path'", id="in-the-second-source"),
        pytest.param("[[source]]\npath = 'x'\ncollector = 'jsonl'\nalais = 'y'",
                     "source[1].alais: unknown key, did you mean 'alias'", id="an-option-of-its-collector"),
        pytest.param("[[source]]\npath = 'x'\ncollector = 'megatron'\nalias = 'y'",
                     "source[1].alias: unknown key", id="an-option-of-another-collector"),
        pytest.param("[plans]\ntokens = 1e12", "plans: unknown table, did you mean 'plan'", id="a-table"),
        pytest.param("[plan]\nsequence_length = 8192", "it belongs below [model]", id="in-the-wrong-table"),
        pytest.param("[plan]\n'a b\\n' = 1", "plan.'a b\\\\n': unknown key", id="a-name-with-odd-characters"),
        pytest.param("[[source]]\npath = 'x'\ncollector = 'megtron'", "did you mean 'megatron'",
                     id="a-collector"),
    ],
)  # fmt: skip
def test_an_unknown_name_suggests_the_nearest(text: str, said: str) -> None:
    """At the top, nested, in lists, and among a collector's own options."""
    assert said in only_problem(MINIMAL + text)


def test_a_key_outside_any_table_says_where_it_belongs() -> None:
    """TOML puts what stands before the first header nowhere."""
    found = only_problem('active_params = 13e9\n[run]\nname = "r"')

    assert found == "active_params: it stands outside any table. Move it below [model]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "run.name: missing", id="an-empty-file"),
        pytest.param("[run]", "run.name: missing", id="a-run-without-a-name"),
        pytest.param("run = 5", "run = 5: expected a table. Write [run]", id="a-table-that-is-a-number"),
        pytest.param("[[run]]\nname='r'", "run: expected one table: [run]", id="double-brackets-too-many"),
        pytest.param(MINIMAL + "[source]\npath='x'", "expected a list of tables: [[source]]",
                     id="single-brackets"),
        pytest.param("source = 1\n" + MINIMAL, "source = 1: expected tables", id="sources-that-are-a-number"),
        pytest.param("source = [1]\n" + MINIMAL, "source[1] = 1: expected a table", id="a-list-of-numbers"),
        pytest.param("plan = 1\n" + MINIMAL, "plan = 1: expected a table", id="nested-below-a-number"),
        pytest.param(MINIMAL + "[[source]]", "source[1]: neither path nor command", id="a-source-of-nothing"),
        pytest.param(MINIMAL + "[[source]]\npath='x'\ncommand=['x']\ncollector='slurm'",
                     "source[1]: both path and command", id="a-source-of-two-things"),
        pytest.param(MINIMAL + "[[source]]\ncommand=['x']", "source[1].collector: name it",
                     id="guessing-a-command"),
        pytest.param(MINIMAL + "[[source]]\ncommand=['x']\ncollector='megatron'", "A command is for "
                     "slurm", id="a-log-by-command"),
        pytest.param(MINIMAL + "[[source]]\npath='x'\ninterval_s=5", "interval_s: only for a command",
                     id="interval"),
        pytest.param(MINIMAL + "[reservation]\nstart=2026-02-01\nend=2026-01-01",
                     "expected a moment after reservation.start", id="a-reservation-backwards"),
        pytest.param(MINIMAL + "[plan]\ntokens=4e12\n[[plan.stage]]\nname='a'\ntokens=1e12",
                     "expected stages that sum to plan.tokens", id="stages-that-do-not-sum"),
        pytest.param(MINIMAL + "[plan]\ngpu_hour_price=2\n[[plan.price]]\ngpu_hour_price=3", "not both",
                     id="prices"),
        pytest.param(MINIMAL + "[plan]\n[[plan.price]]\ngpu_hour_price=2\n[[plan.price]]\ngpu_hour_price=3",
                     "a date on every price but the first", id="a-price-without-a-date"),
        pytest.param(MINIMAL + "[plan]\n[[plan.price]]\ngpu_hour_price=2\nfrom=2026-03-01\n[[plan.price]]\n"
                     "gpu_hour_price=3\nfrom=2026-02-01", "ascending order", id="prices-out-of-order"),
        pytest.param(MINIMAL + "[plan.conversion]\nfrom='a100'\nratio=2.5\nto='h1000'",
                     "plan.conversion.to = 'h1000'", id="a-conversion-to-nothing"),
        pytest.param(MINIMAL + "[plan.conversion]\nfrom='a100'", "plan.conversion.ratio: missing",
                     id="half-a-conversion"),
        pytest.param(MINIMAL + "[model]\nactive_params=2e9\ntotal_params=1e9\n[plan]\ntokens=1e12",
                     "at most total_params", id="more-active-than-total"),
        pytest.param(MINIMAL + "[report]\n[report.mail]\nhost='h'\nfrom='a@b'\nto='c@d'\nuser='u'",
                     "report.mail.password_file: missing, because user is set", id="half-a-login"),
        pytest.param(MINIMAL + "[report.mail]\nhost='h'\nfrom='a@b'\nto='c@d'\nuser='u'\npassword_file='p'\n"
                     "password_env='P'", "both password_file and password_env", id="two-passwords"),
        pytest.param(MINIMAL + "[report.mail]\nhost='h'\nfrom='a@b'\nto='c@d'\nuser='u'\npassword_file='p'\n"
                     "tls='none'", "the password would cross the network in clear", id="a-password-in-clear"),
        pytest.param(MINIMAL + "[report.mail]\nhost='h'\nfrom='a@b'\nto='c@d'\ntls='none'\nca_file='x'",
                     "report.mail.ca_file: not used", id="certificates-without-tls"),
        pytest.param(MINIMAL + "[[report.schedule]]\nname='w'\nto='a@b'", "nothing is mailed without",
                     id="recipients-without-a-server"),
        pytest.param(MINIMAL + "[[report.schedule]]\nname='w'\n[[report.schedule]]\nname='W'", "given twice",
                     id="two-schedules-of-one-name"),
        pytest.param(MINIMAL + "[[webhook]]\nname='w'", "neither url_file nor url_env", id="hook-to-nowhere"),
        pytest.param(MINIMAL + "[[webhook]]\nname='w'\nurl_file='a'\nurl_env='B'", "both url_file and",
                     id="hook-to-two"),
        pytest.param("[run\nname='r'", "not TOML: ", id="no-toml"),
        pytest.param(MINIMAL + "name = 'again'", "not TOML: ", id="a-key-twice"),
        pytest.param("a = " + "[" * 100_000, "not usable TOML: nested too deeply", id="nested-too-deep"),
        pytest.param(MINIMAL + "[[source]]\npath = 'x'\n" + ".".join("a" * 2_000) + " = 1",
                     "not usable TOML: nested too deeply", id="a-key-of-too-many-parts"),
        pytest.param("a = 1" + "0" * 5_000, "a number in it has too many digits", id="a-number-without-end"),
    ],
)  # fmt: skip
def test_what_is_wrong_as_a_whole(text: str, said: str) -> None:
    """Tables of the wrong shape, and values that contradict each other."""
    assert any(said in problem for problem in problems(text)), problems(text)


def test_a_secret_in_the_config_is_refused_and_not_repeated() -> None:
    """The message says where a password belongs, without the password."""
    text = MINIMAL + "[report.mail]\nhost='h'\nfrom='a@b'\nto='c@d'\npassword='hunter2'"
    with pytest.raises(ConfigError) as caught:
        read(text)

    assert "report.mail.password: secrets never stand in the config" in str(caught.value)
    assert "password_file" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_url_of_a_webhook_is_refused_and_not_repeated() -> None:
    """Whoever knows it can write to the channel."""
    with pytest.raises(ConfigError) as caught:
        read(MINIMAL + "[[webhook]]\nname='w'\nurl='https://hooks.example.org/T0/B0/hunter2'")

    assert "webhook[1].url: secrets never stand in the config, name a file instead: url_file" in str(
        caught.value
    )
    assert "hunter2" not in str(caught.value)


def test_schedules_take_what_they_leave_out_from_the_report() -> None:
    """Time, zone and recipients; without any schedule there is one, every day."""
    mail = "[report.mail]\nhost='h'\nfrom='a@b'\nto=['c@d', 'C <C@D>', 'e@f']\n"
    plain = read(MINIMAL + f"[report]\nat='06:30'\ntimezone='Europe/Berlin'\n{mail}").report
    weekly = "[[report.schedule]]\nname='weekly'\ndays=['Monday']\nto='lead@x.org'\ntimezone='UTC'\n"
    two = read(MINIMAL + f"[report]\nat='06:30'\n[[report.schedule]]\nname='d'\n{weekly}{mail}").report

    assert plain is not None
    assert two is not None
    assert [(s.name, s.days, s.at, s.zone_name, s.to) for s in plain.schedules] == [
        ("daily", DAYS, dt.time(6, 30), "Europe/Berlin", ("c@d", "e@f"))
    ]
    assert [(s.name, s.days, s.to) for s in two.schedules] == [
        ("d", DAYS, ("c@d", "e@f")),
        ("weekly", ("monday",), ("lead@x.org",)),
    ]


def test_all_faults_are_named_at_once() -> None:
    """A person edits once, not once for each fault."""
    found = problems('[run]\nnmae = "r"\n[plan]\nmfu = 35\ngoodput = 90\n[serve]\nlisten = 1')

    assert len(found) == 5


def test_the_message_names_the_file_and_counts() -> None:
    """One line for one fault; a heading for more."""
    with pytest.raises(ConfigError, match=r"^/somewhere/run\.toml: plan\.mfu = 35: expected"):
        read(MINIMAL + "[plan]\nmfu = 35")
    with pytest.raises(ConfigError, match=r"^/somewhere/run\.toml: 2 problems\n  plan\.mfu = 35: "):
        read(MINIMAL + "[plan]\nmfu = 35\ngoodput = 90")


def test_the_example_is_the_settings_it_shows() -> None:
    """configs/run.example.toml loads, with the values that stand in it."""
    config = load(EXAMPLE, collectors)

    assert config.settings.run == "llama-13b"
    assert config.settings.hardware.peak_flop_per_s == 989e12
    assert config.settings.plan is not None
    assert config.settings.plan.estimate().gpu_hours_per_trillion_tokens > 0
    assert config.settings.plan.sources == {"mfu": "pilot run of 12 December, 128 GPUs"}
    assert [s.collector for s in config.sources] == ["auto", "slurm"]
    assert config.report is not None
    assert config.report.at == dt.time(7, 0)
    assert config.warnings == ()


def test_the_example_shows_every_table() -> None:
    """Set or commented out, each table and each key of the plain ones stands in it."""
    text = EXAMPLE.read_text()
    absent = [s.name for s in k.SECTIONS.values() if s.header not in text]

    assert set(absent) == {"plan.stage", "plan.price"}  # shown in docs/configuration.md


def test_a_conversion_goes_to_the_plans_own_device() -> None:
    """Where it names none; without any device it is not checked, and that is said."""
    conversion = "[plan]\n[plan.conversion]\nfrom='a100-sxm'\nratio=3.17\n"
    plan = read(MINIMAL + "[hardware]\ngpu='h100-sxm'\n" + conversion).settings.plan
    lacking = read(MINIMAL + conversion)

    assert plan is not None
    assert plan.conversion == PlannedConversion(from_gpu="a100-sxm", to_gpu="h100-sxm", ratio=3.17)
    assert [w.code for w in check_plan(plan)] == ["spec_sheet_conversion"]
    assert any("[plan.conversion] is not checked" in warning for warning in lacking.warnings)


def test_prices_change_from_their_dates_on() -> None:
    """A date without an offset is in the run's timezone."""
    plan = read(
        "[run]\nname='r'\ntimezone='Europe/Berlin'\n[plan]\n[[plan.price]]\ngpu_hour_price=2\n"
        "[[plan.price]]\ngpu_hour_price=3\nfrom=2026-02-01T00:00:00"
    ).settings.plan

    assert plan is not None
    assert plan.price_list is not None
    change = dt.datetime(2026, 1, 31, 23, tzinfo=dt.UTC)
    assert plan.price_list.at(change - dt.timedelta(seconds=1)) == 2
    assert plan.price_list.at(change) == 3


def test_a_peak_can_be_vouched_for() -> None:
    """The plan check asks for it by these names, so the config takes them; a given peak keeps its device."""
    plan = read(
        MINIMAL + "[hardware]\ngpu='h100-sxm'\npeak_tflops=989\nprecision='fp8'\n[plan]\n"
        "[plan.sources]\npeak='BF16 as a reference'\nprecision='fp8'\nactive_params='the config'"
    ).settings.plan

    assert plan is not None
    assert "precision_mismatch" not in {w.code for w in check_plan(plan)}
    assert plan.power_w == 700


def test_model_keys_are_the_settings_of_the_core() -> None:
    """The table and the dataclass cannot drift apart."""
    known = {key.name for key in k.MODEL.keys}
    fields = {field.name for field in dataclasses.fields(Model)}

    assert known - {"experts", "experts_per_token"} == fields


def test_paths_start_at_the_folder_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the folder the command happens to run in; home and absolute paths stand."""
    monkeypatch.setenv("HOME", "/home/me")
    config = read(
        MINIMAL + "[store]\npath='db/t.db'\n[report]\ndirectory='/out'\n"
        "[[source]]\npath='logs/*.log'\n[[source]]\npath='/abs/*.log'\n[[source]]\npath='~/l.log'"
    )

    assert config.store == Path("/somewhere/db/t.db")
    assert config.report is not None
    assert config.report.directory == Path("/out")
    assert config.folder == Path("/somewhere")
    assert [s.pattern for s in config.sources] == [
        "logs/*.log", "/abs/*.log", "/home/me/l.log",
    ]  # fmt: skip


def test_times_without_an_offset_are_local_to_the_run() -> None:
    """And become UTC here, once."""
    config = read(
        '[run]\nname="r"\ntimezone="Europe/Berlin"\n[plan]\nstart = 2026-07-01T08:00:00\ntokens=1e12\n'
        "deadline = 2026-08-01T00:00:00Z\n[[source]]\npath='x'\nstarted_at = 2026-01-05"
    )

    assert config.settings.plan is not None
    assert config.settings.plan.start == dt.datetime(2026, 7, 1, 6, tzinfo=dt.UTC)
    assert config.settings.plan.deadline == dt.datetime(2026, 8, 1, tzinfo=dt.UTC)
    assert config.settings.sources[0].started_at_us == 1_767_567_600_000_000


def test_a_peak_of_the_table_names_its_source() -> None:
    """And one that is given says so."""
    table = read(MINIMAL + "[hardware]\ngpu='h100-sxm'\nprecision='fp8'").settings.hardware
    given = read(MINIMAL + "[hardware]\ngpu='h100-sxm'\npeak_tflops=700").settings.hardware

    assert table.peak_flop_per_s == pytest.approx(1978e12, rel=2e-3)
    assert table.peak_source
    assert given.peak_flop_per_s == 700e12
    assert "given" in given.peak_source


def test_absent_tables_are_absent_knowledge() -> None:
    """No plan, no peak, no report: None, never a default."""
    config = read(MINIMAL)

    assert config.settings.plan is None
    assert config.settings.hardware.peak_flop_per_s is None
    assert config.report is None
    assert config.sources == ()


def test_options_reach_their_collector_as_plain_json() -> None:
    """Dates become text, so that they can be stored and compared."""
    config = read(MINIMAL + "[[source]]\npath='x'\ncollector='slurm'\ncluster={a=[2026-01-05, 1]}")

    assert config.sources[0].options == {"cluster": {"a": ["2026-01-05", 1]}}


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param(
            "[report]\nat='02:30'\ntimezone='Europe/Berlin'", "may not exist or come twice", id="dst"
        ),
        pytest.param(
            "[serve]\nlisten='0.0.0.0:9109'", "without encryption (TLS) or password", id="open-to-all"
        ),
        pytest.param("[reservation]\ngpus=8", "is not used", id="a-reservation-that-is-not-billed"),
    ],
)
def test_what_is_allowed_and_probably_not_meant(text: str, warning: str) -> None:
    """Warned of, not refused."""
    (found,) = read(MINIMAL + text).warnings

    assert warning in found


def test_no_warning_where_clocks_do_not_change() -> None:
    """02:30 in UTC is a fine time."""
    assert read(MINIMAL + "[report]\nat='02:30'\ntimezone='UTC'").warnings == ()


@pytest.mark.parametrize(
    ("name", "value"), [("from", '"Ops <ops@example.org>"'), ("to", '["a@example.org", "b@example.org"]')]
)
def test_mail_addresses(name: str, value: str) -> None:
    """With a display name, one or several."""
    mail = {"host": '"h"', "from": '"a@b"', "to": '"c@d"', name: value}
    body = "".join(f"{key} = {text}\n" for key, text in mail.items())

    report = read(MINIMAL + "[report]\n[report.mail]\n" + body).report

    assert report is not None
    assert report.mail is not None
    assert report.mail.port == 587


def test_files_that_are_no_config(tmp_path: Path) -> None:
    """A folder, a missing file, a pipe that nobody writes to, binary, too large: one sentence each."""
    binary, large = tmp_path / "b.toml", tmp_path / "l.toml"
    binary.write_bytes(b"[run]\nname = '\xff'\n")
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    bom = tmp_path / "bom.toml"
    bom.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())

    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)

    for path, words in (
        (tmp_path, "Is a directory"),
        (pipe, "is a pipe, not a file"),
        (Path("/dev/zero"), "is a device, not a file"),
        (tmp_path / "none.toml", "No such file"),
        (binary, r"not UTF-8 text \(line 2\)"),
        (large, "larger than"),
    ):
        with pytest.raises(ConfigError, match=words):
            load(path, collectors)
    assert load(bom, collectors).settings.run == "r"


TOML_VALUES = st.recursive(
    st.one_of(
        st.booleans().map(lambda b: str(b).lower()),
        st.integers(-(10**20), 10**20).map(str),
        st.floats(allow_nan=True).map(lambda f: repr(f)),
        st.text(
            st.characters(codec="utf-8", exclude_characters="'\n\r", exclude_categories=["Cc"]), max_size=20
        ).map(lambda t: f"'{t}'"),
        st.sampled_from(["2026-01-05", "07:00:00", "2026-01-05T00:00:00Z", "{}", "{a=1}"]),
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=4,
)  # fmt: skip


@given(data=st.data())
def test_any_value_at_any_key_is_taken_or_explained(data: st.DataObject) -> None:
    """Whatever stands there: a config, or a ConfigError. Nothing else comes out."""
    section, key = data.draw(st.sampled_from(every_key()))
    text = with_value(section, key, data.draw(TOML_VALUES))
    said = ""
    try:
        read(text)
    except ConfigError as error:
        said = str(error)

    assert said.replace("\n", "").isprintable()
