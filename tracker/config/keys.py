"""Every key that a config file may hold: the one list that loader, errors and reference share.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tracker.config import kinds
from tracker.config.kinds import Kind


@dataclass(frozen=True, slots=True)
class Key:
    """One key of one table."""

    name: str
    """As in the file, without its table."""
    kind: Kind
    doc: str
    """One or two sentences for the reference."""
    default: str = ""
    """What holds when it is left out, for the reference."""
    example: str = ""
    """A TOML value."""
    needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the file."""

    name: str
    """Dotted, such as "report.mail"."""
    doc: str
    keys: tuple[Key, ...] = ()
    many: bool = False
    """Written [[name]], once for each entry."""
    open: bool = False
    """Other keys are allowed: they are somebody else's."""

    @property
    def header(self) -> str:
        """The line that opens it."""
        return f"[[{self.name}]]" if self.many else f"[{self.name}]"


RUN: Final = Section(
    name="run",
    doc="The run that this file is about.",
    keys=(
        Key("name", kinds.TEXT, "Name of the run: label of every metric, title of every report.",
            example='"llama-13b"', needed=True),
        Key("timezone", kinds.ZONE, "Zone of log times that carry none, and of times in this file without "
            "an offset.", "UTC", '"UTC"'),
        Key("until", kinds.MOMENT, "The last moment that counts, for a run that is history: no answer is of "
            "a later one. For old logs that end without a word, which else count as running until now.",
            "none: the run may go on", "2026-04-05T00:00:00Z"),
        Key("billing", kinds.BILLING, "What is paid for: the allocation of each attempt, or the whole "
            "reservation (then see [reservation]).", "attempt", '"attempt"'),
    ),
)  # fmt: skip

MODEL: Final = Section(
    name="model",
    doc="The model. What the log says about sequence and batch wins over this table; a contradiction is "
    "a warning.",
    keys=(
        Key("active_params", kinds.PARAMETERS, "Parameters that work on one token: all of a dense model, "
            "the active ones of a mixture of experts.", "unknown: no MFU", "13e9"),
        Key("total_params", kinds.PARAMETERS, "Parameters stored.", "unknown", "13e9"),
        Key("sequence_length", kinds.COUNT, "Tokens in a sequence.", "as the log says", "8192"),
        Key("global_batch_size", kinds.COUNT, "Sequences in a step; only where the log does not say.",
            "as the log says", "1024"),
        Key("tokens_per_step", kinds.COUNT, "Tokens in a step; only where the log does not say, instead of "
            "sequence and batch.", "as the log says", "8_388_608"),
        Key("layers", kinds.COUNT, "Transformer layers. With hidden_size and a sequence length, attention "
            "FLOPs are exact and plan.attn_overhead is not used.", "unknown", "40"),
        Key("hidden_size", kinds.COUNT, "Width of the model.", "unknown", "5120"),
        Key("heads", kinds.COUNT, "Attention heads.", "unknown", "40"),
        Key("head_dim", kinds.COUNT, "Dimension of one head.", "hidden_size / heads", "128"),
        Key("causal", kinds.BOOLEAN, "Count attention FLOPs for the lower triangle only; false counts the "
            "full square, as many published figures do.", "false", "true"),
        Key("experts", kinds.COUNT, "Routed experts of a mixture.", "none: a dense model", "64"),
        Key("experts_per_token", kinds.COUNT, "Routed experts that one token visits.", "unknown", "4"),
    ),
)  # fmt: skip

HARDWARE: Final = Section(
    name="hardware",
    doc="What the run trains on. The peak is the dense one of one GPU at the reference precision.",
    keys=(
        Key("gpu", kinds.GPU, "A row of the hardware table; its peak is taken from there.",
            "unknown: no MFU", '"h100-sxm"'),
        Key("peak_tflops", kinds.PEAK_TFLOPS, "Dense peak of one GPU in TFLOP/s, instead of the table's.",
            "of the table", "989"),
        Key("precision", kinds.PRECISION, "Which peak is the reference; named beside every MFU.", "bf16",
            '"bf16"'),
        Key("gpus", kinds.COUNT, "GPUs of the run where neither the log nor the scheduler says.", "unknown",
            "1024"),
    ),
)  # fmt: skip

PLAN: Final = Section(
    name="plan",
    doc="What the run was meant to cost. Without this table nothing is compared with a plan.",
    keys=(
        Key("tokens", kinds.TOKENS, "Target of the run; what `later_stages` adds comes on top.",
            "sum of the stages", "4e12"),
        Key("mfu", kinds.RATIO, "MFU over productive time.", "0.35, listed as assumed", "0.35"),
        Key("goodput", kinds.RATIO, "Productive over allocated time.", "0.90, listed as assumed", "0.90"),
        Key("attn_overhead", kinds.FRACTION, "Attention FLOPs beyond 6N, as a fraction of it.",
            "0.05, listed as assumed", "0.05"),
        Key("later_stages", kinds.FRACTION, "Later stages on top of `tokens`, as a fraction of it; 0 where "
            "stages are listed.", "0.08, listed as assumed", "0.08"),
        Key("rnd_multiplier", kinds.FACTOR, "Programme (with research and failed runs) over final run.",
            "1.5, listed as assumed", "1.5"),
        Key("start", kinds.MOMENT, "Planned start.", "first attempt", "2026-01-05T08:00:00Z"),
        Key("deadline", kinds.MOMENT, "When it must be done.", "none", "2026-04-05T00:00:00Z"),
        Key("budget", kinds.AMOUNT, "Money that it may cost.", "none", "1_000_000"),
        Key("currency", kinds.TEXT, "Printed beside every amount; nothing is converted.", "USD", '"USD"'),
        Key("gpu_hour_price", kinds.AMOUNT, "Money for one GPU-hour; or list [[plan.price]].",
            "none: no cost", "2.0"),
        Key("facility_overhead", kinds.FACTOR, "Energy of the facility over that of the GPUs (PUE).",
            "1.0: GPUs only", "1.2"),
        Key("gpu_power_w", kinds.POSITIVE, "Power of one GPU in watts.", "TDP of the hardware table", "700"),
        Key("carbon_kg_per_mwh", kinds.NOT_NEGATIVE, "Carbon intensity of the grid.", "none: no carbon",
            "350"),
    ),
)  # fmt: skip

STAGE: Final = Section(
    name="plan.stage",
    doc="One stage of training, in order of time: pre-training, context extension, annealing ...",
    many=True,
    keys=(
        Key("name", kinds.TEXT, "What people call it.", example='"pre-training"', needed=True),
        Key("tokens", kinds.TOKENS, "Tokens trained in it.", example="3.8e12", needed=True),
        Key("sequence_length", kinds.COUNT, "Tokens in a sequence.", "the model's", "8192"),
        Key("gpus", kinds.COUNT, "GPUs that it runs on.", "hardware.gpus", "1024"),
        Key("mfu", kinds.RATIO, "Its MFU.", "plan.mfu", "0.35"),
        Key("goodput", kinds.RATIO, "Its goodput.", "plan.goodput", "0.90"),
    ),
)  # fmt: skip

PRICE: Final = Section(
    name="plan.price",
    doc="A price that holds from a date on; instead of plan.gpu_hour_price.",
    many=True,
    keys=(
        Key("gpu_hour_price", kinds.AMOUNT, "Money for one GPU-hour.", example="2.0", needed=True),
        Key("from", kinds.MOMENT, "First moment that it holds.", "the start of time (first entry only)",
            "2026-02-01T00:00:00Z"),
    ),
)  # fmt: skip

CONVERSION: Final = Section(
    name="plan.conversion",
    doc="GPU-hours of another device that the plan took over by a ratio: the plan check looks at it.",
    keys=(
        Key("from", kinds.GPU, "Device that they were measured on.", example='"a100-sxm"', needed=True),
        Key("ratio", kinds.POSITIVE, "By how much they were divided.", example="2.5", needed=True),
        Key("to", kinds.GPU, "Device of the plan.", "hardware.gpu", '"h100-sxm"'),
    ),
)  # fmt: skip

PLAN_SOURCES: Final = Section(
    name="plan.sources",
    doc="Where each number of [plan] came from, by its key. One without a source is listed as assumed.",
    keys=tuple(
        Key(name, kinds.TEXT, f"Where {where} came from.", "assumed", '"pilot run of 12 May"')
        for name, where in (
            *((key.name, f"plan.{key.name}") for key in PLAN.keys),
            ("active_params", "model.active_params"),
            ("precision", "hardware.precision"),
            ("peak", "the peak"),
        )
    ),
)

FAILURES: Final = Section(
    name="plan.failures",
    doc="What the plan expects to go wrong: input of the goodput model and of the plan check.",
    keys=(
        Key("per_day", kinds.NOT_NEGATIVE, "Unexpected interruptions a day.", example="8", needed=True),
        Key("restart_min", kinds.NOT_NEGATIVE, "Minutes from a failure to the first new step.",
            example="10", needed=True),
        Key("checkpoint_interval_min", kinds.POSITIVE, "Minutes of training between checkpoints.",
            example="30", needed=True),
        Key("checkpoint_stall_min", kinds.NOT_NEGATIVE, "Minutes that training stands still for one.",
            "0", "0.5"),
    ),
)  # fmt: skip

SOURCE: Final = Section(
    name="source",
    doc="One place to read from. Files: a glob. Scheduler: a file that is read again when it changes, or a "
    "command on an interval. A collector may know more keys: `tracker collectors` lists them.",
    many=True,
    open=True,
    keys=(
        Key("collector", kinds.TEXT, "A name from `tracker collectors`, or auto.", "auto", '"auto"'),
        Key("path", kinds.PATH, "File or glob (`*`, `?`, `[...]`, `**`). New files are picked up, rotation "
            "is followed.", "(path or command)", '"logs/*.log"'),
        Key("command", kinds.COMMAND, "Program whose output is read, instead of a path. sacct needs "
            "`--duplicates` (`-D`): a requeued job keeps its id, and without it only its last run is listed; "
            "and `--starttime`, the run's first day: without it sacct begins at midnight.",
            "(path or command)",
            '["sacct", "--parsable2", "--duplicates", "--name", "pretrain", "--starttime", "2026-01-05"]'),
        Key("interval_s", kinds.SECONDS, "Seconds between two runs of the command.", "60", "60"),
        Key("timeout_s", kinds.SECONDS, "Seconds after which the command is ended.", "30", "30"),
        Key("started_at", kinds.MOMENT, "When its run began; only where the log carries no clock.",
            "the file's time, marked as estimated", "2026-01-05T08:00:00Z"),
        Key("timezone", kinds.ZONE, "Zone of its times that carry none.", "run.timezone", '"Europe/Berlin"'),
        Key("job_name", kinds.TEXT, "Scheduler rows without a log count as attempts only under this job "
            "name, or a joined job's.", "joined jobs only", '"pretrain"'),
    ),
)  # fmt: skip

RESERVATION: Final = Section(
    name="reservation",
    doc='What is paid for when billing = "reservation".',
    keys=(
        Key("start", kinds.MOMENT, "Its start.", "start of the first attempt", "2026-01-05T00:00:00Z"),
        Key("end", kinds.MOMENT, "Its end.", "the moment of the answer", "2026-04-05T00:00:00Z"),
        Key("gpus", kinds.COUNT, "Its GPUs.", "those of the largest attempt", "1024"),
    ),
)  # fmt: skip

INGEST: Final = Section(
    name="ingest",
    doc="How `tracker run` reads.",
    keys=(
        Key("poll_s", kinds.SECONDS, "Seconds between two looks at the files; a longer one costs less.", "1",
            "1.0"),
    ),
)  # fmt: skip

STORE: Final = Section(
    name="store",
    doc="Where the tracker keeps what it read.",
    keys=(
        Key("path", kinds.PATH, "The SQLite file; on a local disk where possible.", "tracker.db",
            '"tracker.db"'),
    ),
)  # fmt: skip

SERVE: Final = Section(
    name="serve",
    doc="The HTTP server of `tracker run`. Without a web config it has neither TLS nor a login: leave it on "
    "this machine then. See [serving](serving.md).",
    keys=(
        Key("listen", kinds.LISTEN, "Address and port; port 0 takes a free one.", "127.0.0.1:9109",
            '"127.0.0.1:9109"'),
        Key("web_config", kinds.PATH, "A file with TLS, logins and headers, in the form of the Prometheus "
            "exporters' `--web.config.file`; read again when it changes.", "no TLS, no login", '"web.yml"'),
        Key("file_sd", kinds.PATH, "A file that tells Prometheus (`file_sd_configs`) where to scrape, kept "
            "while the sidecar listens; one file for each sidecar. See [export](export.md#discovery).",
            "none", '"targets/llama-13b.json"'),
        Key("announce", kinds.LISTEN, "Host and port to tell there instead of `listen`; port 0 stands for "
            "the real one.", "as `listen`; this host's name for 0.0.0.0", '"node17:0"'),
        Key("linger_s", kinds.LINGER, "Seconds that a finished run stays in /metrics.", "3600", "3600"),
    ),
)  # fmt: skip

LIMITS: Final = Section(
    name="limits",
    doc="How far `tracker run` stands back behind the training job on its node.",
    keys=(
        Key("nice", kinds.NICENESS, "Its niceness is raised to this, and with it goes its share of the disk: "
            "the job comes first. A higher one is kept.", "10", "10"),
        Key("oom_score_adj", kinds.OOM_SCORE, "When the node runs out of memory, the kernel ends the process "
            "with the highest score: the tracker before the job; with less than 1000 only before those of "
            "its processes that hold less of the memory. A higher one is kept.", "1000", "1000"),
    ),
)  # fmt: skip

REPORT: Final = Section(
    name="report",
    doc="The report that `tracker run` writes and mails by itself: once a day, or as [[report.schedule]] "
    "says. docs/mail.md tells what is promised.",
    keys=(
        Key("at", kinds.TIME_OF_DAY, "When it is due; 04:00 or later where clocks change.", "07:00",
            '"07:00"'),
        Key("timezone", kinds.ZONE, "Zone of `at` and of the dates in it.", "run.timezone",
            '"Europe/Berlin"'),
        Key("directory", kinds.PATH, "Folder that the documents go to.", "reports-out", '"reports-out"'),
        Key("paper", kinds.PAPER, "Paper of the PDF.", "a4", '"letter"'),
        Key("time_limit_s", kinds.SECONDS, "How long making one may take.", "300", "300"),
    ),
)  # fmt: skip

SCHEDULE: Final = Section(
    name="report.schedule",
    doc="A report that comes again and again, with recipients of its own. Where one is given, only those "
    "given are made; without any, there is one named daily, every day.",
    many=True,
    keys=(
        Key("name", kinds.NAME, "What it is called: in file names, subjects and metrics.",
            example='"weekly"', needed=True),
        Key("days", kinds.WEEKDAYS, "On which days.", "every day", '["monday"]'),
        Key("at", kinds.TIME_OF_DAY, "When it is due.", "report.at", '"07:00"'),
        Key("timezone", kinds.ZONE, "Zone of its `at` and of its dates.", "report.timezone",
            '"America/New_York"'),
        Key("to", kinds.ADDRESSES, "Whom it is mailed to.", "report.mail.to", '["lead@example.org"]'),
    ),
)  # fmt: skip

MAIL: Final = Section(
    name="report.mail",
    doc="Whom the report is mailed to, and how. Without this table nothing is mailed.",
    keys=(
        Key("host", kinds.HOST, "Mail server.", example='"smtp.example.org"', needed=True),
        Key("port", kinds.PORT, "Its port.", "587 (starttls), 465 (implicit), 25 (none)", "587"),
        Key("tls", kinds.TLS, "How the connection is encrypted; never silently less.", "starttls",
            '"starttls"'),
        Key("ca_file", kinds.PATH, "File with the certificates to trust (PEM), instead of the system's.",
            "the system's", '"mail-ca.pem"'),
        Key("user", kinds.TEXT, "Name to log in with.", "no login", '"tracker"'),
        Key("password_file", kinds.PATH, "File with the password; a password never stands in this file.",
            "no password", '"smtp.password"'),
        Key("password_env", kinds.VARIABLE, "Environment variable with the password, instead of a file.",
            "no password", '"SMTP_PASSWORD"'),
        Key("from", kinds.ADDRESS, "Sender.", example='"tracker@example.org"', needed=True),
        Key("to", kinds.ADDRESSES, "Recipients.", example='["team@example.org"]', needed=True),
        Key("reply_to", kinds.ADDRESS, "Where answers go.", "the sender", '"lead@example.org"'),
        Key("on_uncertain", kinds.ON_UNCERTAIN, "What to do when a mail may or may not have been sent: "
            "resend it under the same Message-ID, or hold it and say so.", "resend", '"resend"'),
        Key("timeout_s", kinds.SECONDS, "How long the server may be silent.", "30", "30"),
    ),
)  # fmt: skip

WEBHOOK: Final = Section(
    name="webhook",
    doc="An address that is told at once when something happens to the run. Its URL is a secret: it stands "
    "in a file or an environment variable, and is never shown.",
    many=True,
    keys=(
        Key("name", kinds.NAME, "What it is called: in messages and metrics.", example='"oncall"',
            needed=True),
        Key("url_file", kinds.PATH, "File whose first line is the URL.", "url_env", '"oncall.url"'),
        Key("url_env", kinds.VARIABLE, "Environment variable with the URL, instead of a file.", "url_file",
            '"ONCALL_URL"'),
        Key("shape", kinds.SHAPE, "What the receiver understands.", "generic", '"slack"'),
        Key("events", kinds.EVENTS, "What is told.", "all of them", '["down", "finished"]'),
        Key("behind_plan_days", kinds.POSITIVE, "How late the forecast's middle must be against the plan "
            "to be told.", "1", "2"),
        Key("most_per_hour", kinds.COUNT, "Most messages in an hour; what happens beyond them is told "
            "together, later.", "12", "12"),
        Key("on_uncertain", kinds.ON_UNCERTAIN, "What to do when a message may or may not have arrived.",
            "resend", '"resend"'),
        Key("plain_http", kinds.BOOLEAN, "Allow http:// beyond this machine: anybody on the way can read "
            "it.", "false", "true"),
        Key("ca_file", kinds.PATH, "File with the certificates to trust (PEM), instead of the system's.",
            "the system's", '"hook-ca.pem"'),
        Key("timeout_s", kinds.SECONDS, "How long the receiver may be silent.", "10", "10"),
    ),
)  # fmt: skip

SECTIONS: Final[Mapping[str, Section]] = {
    section.name: section
    for section in (
        RUN, MODEL, HARDWARE, PLAN, PLAN_SOURCES, FAILURES, CONVERSION, STAGE, PRICE, SOURCE, INGEST,
        RESERVATION, STORE, SERVE, LIMITS, REPORT, SCHEDULE, MAIL, WEBHOOK,
    )
}  # fmt: skip
"""By dotted name, in the order of the reference."""

SECRETS: Final = ("password", "passwd", "secret", "token", "api_key")
"""Names of keys that hold a secret: refused wherever they stand, and their value is never shown."""
