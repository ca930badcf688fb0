"""The dashboard of one run: its state, its finish, what became of its GPU-hours, its stops, its money.

Pure.
"""

from __future__ import annotations

from typing import Final

from parts import BUCKETS, STATES, Board, Mark, Panel, Query, quantiles, words

RED_UP: Final = ((None, "red"), (0.9, "yellow"), (1.0, "green"))
ODDS: Final = ((None, "red"), (0.1, "orange"), (0.5, "yellow"), (0.8, "green"))
LATE: Final = ((None, "green"), (0.0, "yellow"), (86_400.0, "orange"), (604_800.0, "red"))

NOW: Final = (
    Panel(
        kind="stat",
        title="State",
        unit="short",
        wide=4,
        tall=4,
        named=True,
        says="What the run does now. Stalled: it holds its GPUs and makes no progress. Down: nothing runs.",
        queries=(Query(expr="training_run_state{@} == 1", legend="{{state}}", now=True),),
        colours=STATES,
    ),
    Panel(
        kind="stat",
        title="Done of the target",
        unit="percentunit",
        wide=4,
        tall=4,
        decimals=1,
        says="Tokens in the model, inherited ones too, over the plan's target.",
        queries=(
            Query(
                expr="(training_net_tokens{@} + training_inherited_tokens{@}) / training_planned_tokens{@}",
                legend="{{run}}",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="stat",
        title="Of the tokens due by now",
        unit="percentunit",
        wide=4,
        tall=4,
        steps=RED_UP,
        decimals=0,
        says="Tokens in the model over those that the plan has trained by now. Below 90 % an alert comes.",
        queries=(Query(expr="training_schedule_ratio{@}", legend="{{run}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Finish, even odds",
        unit="dateTimeAsIso",
        wide=4,
        tall=4,
        says="The moment by which training is done with a probability of one half.",
        queries=(
            Query(
                expr='1000 * training_forecast_finish_timestamp_seconds{@, p="0.5"}',
                legend="{{run}}",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="stat",
        title="Later than the plan",
        unit="s",
        wide=4,
        tall=4,
        steps=LATE,
        decimals=1,
        says="Median finish of the forecast minus the plan's. Negative is earlier.",
        queries=(Query(expr="training_forecast_delay_seconds{@}", legend="{{run}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Odds",
        unit="percentunit",
        wide=4,
        tall=4,
        steps=ODDS,
        decimals=0,
        says="Probability to be done by the plan's deadline and by the end of the reservation, and to stay "
        "within the budget; where the config says one.",
        queries=(Query(expr="training_forecast_probability_ratio{@}", legend="{{target}}", now=True),),
    ),
)
PROGRESS: Final = (
    Panel(
        kind="lines",
        title="Tokens against the plan",
        unit="short",
        wide=12,
        tall=9,
        dashed="due by now|target",
        says="Tokens that are in the model (a restart takes some back), those that the plan has trained by "
        "then, and the target.",
        queries=(
            Query(expr="training_net_tokens{@} + training_inherited_tokens{@}", legend="in the model"),
            Query(expr="training_plan_due_tokens{@}", legend="due by now"),
            Query(expr="training_planned_tokens{@}", legend="target"),
        ),
        colours={"in the model": "green", "due by now": "orange", "target": "text"},
    ),
    Panel(
        kind="lines",
        title="Forecast of the finish",
        unit="dateTimeAsIso",
        wide=12,
        tall=9,
        dashed="plan|deadline|end of the reservation",
        band=("P90", "P10"),
        says="By when training is done, with a probability of 10, 50 and 90 %, as it was forecast at each "
        "moment; the plan's finish, the deadline and the end of the reservation beside it.",
        queries=(
            *quantiles("1000 * training_forecast_finish_timestamp_seconds"),
            Query(expr="1000 * training_plan_finish_timestamp_seconds{@}", legend="plan"),
            Query(expr="1000 * training_plan_deadline_timestamp_seconds{@}", legend="deadline"),
            Query(
                expr="1000 * training_reservation_end_timestamp_seconds{@}", legend="end of the reservation"
            ),
        ),
        colours={"P10": "blue", "P50": "blue", "P90": "blue", "plan": "orange", "deadline": "red"},
    ),
)
RATES: Final = (
    Panel(
        kind="lines",
        title="MFU",
        unit="percentunit",
        wide=8,
        tall=8,
        dashed="plan|usual",
        says="Model FLOPs utilisation against the dense peak of the reference precision: of the last hour of "
        "productive time, of all productive time, of all allocated time. An alert comes when the recent one "
        "is 10 % below the usual one.",
        queries=(
            Query(expr='training_mfu_ratio{@, scope="recent"}', legend="last hour"),
            Query(expr='training_mfu_ratio{@, scope="productive"}', legend="productive"),
            Query(expr='training_mfu_ratio{@, scope="allocated"}', legend="allocated"),
            Query(expr="run:training_mfu_ratio:median1d{@}", legend="usual (median of a day)"),
            Query(expr="training_plan_mfu_ratio{@}", legend="plan"),
        ),
    ),
    Panel(
        kind="lines",
        title="Goodput",
        unit="percentunit",
        wide=8,
        tall=8,
        dashed="plan|limit",
        says="Share of the allocated GPU time that became steps in the model, pending time left out: since "
        "the start, and over the last day. An alert comes below the limit.",
        queries=(
            Query(expr="training_goodput_ratio{@}", legend="since the start"),
            Query(expr="run:training_goodput_ratio:delta1d{@}", legend="last day"),
            Query(expr="training_plan_goodput_ratio{@}", legend="plan"),
            Query(expr="run:training_goodput_ratio:limit{@}", legend="limit"),
        ),
    ),
    Panel(
        kind="lines",
        title="GPU-hours for 1e12 tokens",
        unit="short",
        wide=8,
        tall=8,
        dashed="plan",
        says="What a trillion retained tokens cost in allocated GPU-hours: the one number that MFU and "
        "goodput come together in. Below the plan is good.",
        queries=(
            Query(
                expr='training_gpu_hours_per_trillion_tokens{@, kind="realised"}', legend="since the start"
            ),
            Query(expr='training_gpu_hours_per_trillion_tokens{@, kind="recent"}', legend="last 24 h"),
            Query(expr='training_gpu_hours_per_trillion_tokens{@, kind="plan"}', legend="plan"),
        ),
    ),
)
HOURS: Final = (
    Panel(
        kind="bars",
        title="Where the GPU-hours went",
        unit="short",
        wide=8,
        tall=9,
        colours=BUCKETS,
        low=0,
        says="All GPU-hours of the run, each in one bucket; they sum to the allocation. `tracker ledger` has "
        "them by attempt.",
        queries=(
            Query(
                expr="sort_desc(sum by (bucket) (training_gpu_seconds{@}) / 3600)",
                legend="{{bucket}}",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Where the last day's GPU-hours went",
        unit="short",
        wide=8,
        tall=9,
        stacked="percent",
        colours=BUCKETS,
        says="The same over the day before each moment, as shares.",
        queries=(
            Query(
                expr="sum by (bucket) (run_bucket:training_gpu_seconds:delta1d{@}) / 3600",
                legend="{{bucket}}",
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Step time",
        unit="s",
        wide=8,
        tall=9,
        says="Wall time of a step, mean over the last window between two readings. A jump at one moment is a "
        "slow node or a new setting; a slow rise is heat or the data.",
        queries=(Query(expr="training_step_time_seconds{@}", legend="{{run}}"),),
    ),
)
STOPS: Final = (
    Panel(
        kind="states",
        title="State over time",
        unit="short",
        wide=12,
        tall=7,
        says="When the run was in which state.",
        queries=(Query(expr="sum by (state) (training_run_state{@}) > 0", legend="{{state}}"),),
        colours=STATES,
        mappings=(words({"1": ("yes", "green")}),),
    ),
    Panel(
        kind="bars",
        title="Interruptions by cause",
        unit="short",
        wide=12,
        tall=7,
        low=0,
        says="Ends of attempts that were not the end of training. `tracker interruptions` shows the evidence "
        "of each.",
        queries=(
            Query(
                expr="sort_desc(sum by (kind, cause) (training_interruptions{@}))",
                legend="{{cause}} ({{kind}})",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Attempts and interruptions",
        unit="short",
        wide=8,
        tall=8,
        low=0,
        says="Unexpected interruptions since the start and in the last 24 hours, attempts that run now, and "
        "the number in a day above which an alert comes.",
        dashed="limit.*",
        queries=(
            Query(expr="run:training_interruptions:sum{@}", legend="unexpected, since the start"),
            Query(expr='training_recent_interruptions{@, window="24h"}', legend="unexpected, last 24 h"),
            Query(expr="training_running_attempts{@}", legend="running attempts"),
            Query(expr="run:training_recent_interruptions:limit{@}", legend="limit for 24 h"),
        ),
    ),
    Panel(
        kind="lines",
        title="Mean time between failures of the job",
        unit="s",
        wide=8,
        tall=8,
        log=True,
        dashed="plan",
        band=("high", "low"),
        says="With its 90 % interval. An alert comes when the whole interval is below the plan.",
        queries=(
            Query(expr='training_mtbf_seconds{@, scope="job"}', legend="mean"),
            Query(expr='training_mtbf_interval_seconds{@, bound="high"}', legend="high"),
            Query(expr='training_mtbf_interval_seconds{@, bound="low"}', legend="low"),
            Query(expr="training_plan_mtbf_seconds{@}", legend="plan"),
        ),
    ),
    Panel(
        kind="lines",
        title="Training since the last checkpoint",
        unit="s",
        wide=8,
        tall=8,
        dashed="best|plan",
        says="Time of the steps that no durable checkpoint covers yet: what a failure now would cost. Beside "
        "it the interval so far, the one that serves best by the run's own failures, and the plan's.",
        queries=(
            Query(expr="training_at_risk_steps{@} * training_step_time_seconds{@}", legend="at risk"),
            Query(expr='training_checkpoint_interval_seconds{@, kind="now"}', legend="interval so far"),
            Query(expr='training_checkpoint_interval_seconds{@, kind="best"}', legend="best interval"),
            Query(expr='training_checkpoint_interval_seconds{@, kind="plan"}', legend="plan's interval"),
        ),
    ),
)
MONEY: Final = (
    Panel(
        kind="lines",
        title="Cost",
        unit="short",
        wide=8,
        tall=8,
        dashed="plan|budget",
        band=("P90", "P10"),
        says="Money so far, and of the whole run at its finish with a probability of 10, 50 and 90 %, in the "
        "plan's currency; the plan's figure and the budget.",
        queries=(
            Query(expr="training_cost{@}", legend="so far ({{currency}})"),
            *quantiles("training_forecast_cost"),
            Query(expr="training_plan_cost{@}", legend="plan"),
            Query(expr="training_plan_budget{@}", legend="budget"),
        ),
    ),
    Panel(
        kind="lines",
        title="GPU-hours",
        unit="short",
        wide=8,
        tall=8,
        dashed="plan",
        band=("P90", "P10"),
        says="Allocated so far, and of the whole run at its finish; the plan's figure.",
        queries=(
            Query(expr="sum without (bucket) (training_gpu_seconds{@}) / 3600", legend="so far"),
            *quantiles("training_forecast_gpu_hours"),
            Query(expr="training_plan_gpu_seconds{@} / 3600", legend="plan"),
        ),
    ),
    Panel(
        kind="lines",
        title="Energy",
        unit="watth",
        wide=8,
        tall=8,
        dashed="plan",
        band=("P90", "P10"),
        says="With the plan's facility overhead. `so far` says what the power of a GPU is from: with TDP it "
        "is an upper bound.",
        queries=(
            Query(expr="training_energy_joules{@} / 3600", legend="so far ({{power_from}})"),
            *quantiles("training_forecast_energy_joules", per=3600),
            Query(expr="training_plan_energy_joules{@} / 3600", legend="plan"),
        ),
    ),
)
POINT: Final = (
    Panel(
        kind="table",
        title="What the run trains on",
        unit="short",
        wide=12,
        tall=5,
        says="The operating point, as far as the log and the config say it. No rate means anything without.",
        queries=(Query(expr="training_operating_point_info{@}", now=True, rows=True),),
        hidden=("Value", "job", "instance"),
        columns={
            "run": ("run", ""),
            "gpu": ("gpu", ""),
            "gpus": ("gpus", ""),
            "precision": ("precision", ""),
        },
    ),
    Panel(
        kind="table",
        title="What the MFU is measured against",
        unit="short",
        wide=12,
        tall=5,
        says="The precision whose dense peak is 1, how FLOPs are counted, and where the peak is from.",
        queries=(Query(expr="training_convention_info{@}", now=True, rows=True),),
        hidden=("Value", "job", "instance"),
        columns={"run": ("run", ""), "reference": ("reference", ""), "flop_method": ("FLOPs by", "")},
    ),
)
# Each asks back as far as Grafana's last step: over a month a step is hours, and none may fall in between.
MARKS: Final = (
    Mark(
        name="Attempts",
        colour="blue",
        title="{{run}}: an attempt began",
        expr="changes(training_last_attempt_start_timestamp_seconds{@}[$__rate_interval]) > 0",
    ),
    Mark(
        name="Interruptions",
        colour="red",
        title="{{run}}: interrupted, {{cause}}",
        expr='(training_interruptions{@, kind="unexpected"}'
        " > training_interruptions{@} offset $__rate_interval\n"
        ' or training_interruptions{@, kind="unexpected"}'
        " unless training_interruptions{@} offset $__rate_interval)\n"
        "and on (job, instance, run)"
        " time() - training_last_interruption_timestamp_seconds{@} < 900 + $__interval_ms / 1000",
    ),
)

BOARD: Final = Board(
    uid="training-run",
    title="Training run",
    says="One run: is it healthy, when will it finish, where did the GPU-hours go, what will it cost?",
    marks=MARKS,
    rows=(
        ("Now", NOW),
        ("Progress", PROGRESS),
        ("Rates", RATES),
        ("GPU-hours", HOURS),
        ("Stops", STOPS),
        ("Money and energy", MONEY),
        ("Conventions", POINT),
    ),
)
