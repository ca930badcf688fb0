"""The ledger on runs whose every second is known: the traps that real logs set, one by one."""

from __future__ import annotations

import pytest

from tests.core.story import EXCLUDES, Log, facts, row, seconds, tell, us
from tracker.core.records import Flag, Kind
from tracker.core.settings import Hardware, Model, Reservation

WHOLE = int(Flag.WHOLE_SECOND)
INCLUDES = int(Flag.STEP_TIME_INCLUDES)


class TestProbes:
    """Timelines that the closest peer gets wrong (its own test vectors, reservation billed)."""

    def test_a_clean_restart_without_redone_steps_costs_its_downtime(self) -> None:
        """100 steps, an hour down, 100 steps: 2,000 s of 5,600 s."""
        one = Log().launch().train(range(1, 101), 0)
        two = Log(4600).launch(resume=100).train(range(101, 201), 100)

        got = tell(facts(one, two), 5600, billing="reservation")

        assert got.goodput_ratio == pytest.approx(2000 / 5600, abs=1e-9)
        assert got.interruptions[0].kind == "unexpected"
        assert len(got.interruptions) == 1

    def test_a_rollback_below_an_earlier_resume_takes_its_credit_back(self) -> None:
        """Restart at 50, then rollback to 20: 120 useful steps of 2,500 s."""
        one = Log().launch().train(range(1, 101), 0)
        two = Log(1000).launch(resume=50).train(range(51, 101), 50)
        three = Log(1500).launch(resume=20).train(range(21, 121), 20)

        got = tell(facts(one, two, three), 2500, billing="reservation")

        assert got.goodput_ratio == pytest.approx(0.48, abs=1e-9)
        assert got.steps.net == 120
        assert got.steps.processed == 250
        assert [stop.redo_steps for stop in got.interruptions] == [50, 80]

    def test_a_sparse_log_loses_nothing(self) -> None:
        """Every tenth step printed: 100 %."""
        got = tell(facts(Log().launch().train(range(10, 101, 10), 0)), 1000, billing="reservation")

        assert got.goodput_ratio == 1.0

    def test_a_tracker_that_begins_in_mid_run_sees_the_whole_file(self) -> None:
        """A new Book on the same facts, and one that read half before, say the same."""
        from tests.core.story import settings
        from tracker.core.book import Book
        from tracker.core.documents import status_document
        from tracker.core.summary import snapshot

        whole = facts(Log().launch().train(range(1, 201), 0))
        half = facts(Log().launch().train(range(1, 101), 0))
        book = Book(settings())
        snapshot(book, half, as_of_us=us(1000))

        assert status_document(snapshot(book, whole, as_of_us=us(2000))) == status_document(tell(whole, 2000))
        assert tell(whole, 2000).steps.last == 200


class TestWindows:
    def test_the_first_window_after_a_resume_is_shorter_than_the_interval(self) -> None:
        """Resume at 505, line at 510: five steps, whatever the log interval is."""
        log = Log().launch(resume=505).at(130).line(510).at(230).line(520)

        got = tell(facts(log), 230)

        assert got.attempts[0].steps_net == 15
        assert seconds(got) == {"allocated": 230, "startup": 80, "productive": 150}

    def test_a_window_across_the_restart_point_is_split_by_steps(self) -> None:
        """Lines at 100 and 200, resume at 130: 30 of 100 steps stay."""
        one = Log().launch().train([100, 200], 0)
        two = Log(3000).launch(resume=130).train([200, 300], 130)

        got = tell(facts(one, two), 4700)

        assert seconds(got, 1) == {"allocated": 3000, "productive": 1300, "lost": 700, "tail": 1000}
        assert got.attempts[0].tokens_net == 130_000
        assert got.steps.net == 300

    def test_whole_second_stamps_keep_the_length_of_a_stretch(self) -> None:
        """Steps of 1.4 s stamped in whole seconds: no window is clipped."""
        log = Log().launch()
        for step in range(1, 1001):
            log.at(int(100 + 1.4 * step)).line(step, 1.4, flags=EXCLUDES | WHOLE)

        got = tell(facts(log), 1500)

        assert got.wall_us["productive"] == pytest.approx(1.4e9, abs=1e6)
        assert got.wall_us["other"] <= 1e6

    def test_late_lines_do_not_shorten_the_next_window(self) -> None:
        """A line written 50 ms late leaves no gap behind it and takes nothing from the next."""
        log = Log().launch()
        for step in range(1, 101):
            log.at(10 * step + (0.05 if step % 2 else 0.0)).line(step)

        got = tell(facts(log), 1000)

        assert got.wall_us["productive"] == pytest.approx(1000e6, abs=1e5)

    @pytest.mark.parametrize(
        ("flags", "step_s", "productive"),
        [
            pytest.param(EXCLUDES, 10.0, 200, id="the printed time leaves the save out"),
            pytest.param(INCLUDES, 16.0, 200, id="the printed time has the save inside"),
            pytest.param(0, None, 200, id="no printed time: the gap less the save"),
        ],
    )
    def test_a_save_is_counted_once(self, flags: int, step_s: float | None, productive: int) -> None:
        """A save of 60 s with both its stamps, in the second of two windows."""
        log = Log().launch().at(100).line(10, 10.0)
        log.at(105).event(Kind.SAVE_START, step=10).at(165).event(Kind.SAVE_END, step=10)
        log.at(260).line(20, step_s, flags=flags)

        got = tell(facts(log), 260)

        assert seconds(got) == {"allocated": 260, "productive": productive, "checkpoint": 60}

    def test_a_save_without_stamps_takes_what_the_steps_leave(self) -> None:
        """The printed time leaves stops out, so the rest of the gap was the save."""
        log = Log().launch().at(100).line(10)
        log.event(Kind.SAVE_START, step=10, stamp=False).event(Kind.SAVE_END, step=10, stamp=False)
        log.at(245).line(20)

        assert seconds(tell(facts(log), 245)) == {"allocated": 245, "productive": 200, "checkpoint": 45}

    def test_a_gap_that_nothing_explains_is_other(self) -> None:
        """Forty seconds that no line speaks of are shown as such."""
        log = Log().launch().at(100).line(10).at(240).line(20)

        assert seconds(tell(facts(log), 240)) == {"allocated": 240, "productive": 200, "other": 40}

    def test_the_extra_first_line_is_not_counted_twice(self) -> None:
        """Line 1 took 60 s; line 100 says a mean over all hundred, line 1 inside."""
        log = Log().launch().at(70).line(1, 60.0, flags=EXCLUDES | int(Flag.EXTRA))
        log.at(1060).line(100, 10.5)

        got = tell(facts(log), 1060)

        assert seconds(got) == {"allocated": 1060, "startup": 10, "productive": 1050}

    def test_tokens_follow_the_odometer_through_a_batch_ramp(self) -> None:
        """The configured batch is not what a ramp trained on."""
        log = Log().launch(global_batch_size=64)
        log.at(100).line(10, tokens_per_step=None, samples=80, batch=8)
        log.at(200).line(20, tokens_per_step=None, samples=240, batch=16)

        assert tell(facts(log), 200).tokens.net == 240_000

    def test_a_clock_that_steps_back_loses_no_time(self) -> None:
        """An hour back in mid-run: the next window still has its printed length."""
        log = Log(7200).launch().train([10, 20, 30], 0)
        log.at(log.now - 3600).train([40, 50], 30)

        got = tell(facts(log), 20_000)

        assert got.wall_us["productive"] == 500e6
        assert any("set back" in text for text in got.warnings)

    def test_the_same_step_by_another_rank_is_no_restart(self) -> None:
        """Several ranks print one record within seconds."""
        log = Log().launch().at(100).line(10).at(101).line(10).at(200).line(20).at(200).line(20)

        got = tell(facts(log), 200)

        assert len(got.attempts) == 1
        assert got.steps.processed == 20


class TestAttempts:
    def test_an_attempt_that_kept_nothing_is_all_lost(self) -> None:
        """Two launches at step 22,800; the first one's steps were thrown away."""
        one = Log().launch(resume=22800).train([22810, 22820], 22800)
        two = Log(1000).launch(resume=22800).train([22810], 22800)

        got = tell(facts(one, two), 1100)

        assert seconds(got, 1) == {"allocated": 1000, "lost": 200, "tail": 800}
        assert got.steps.net == 10
        assert got.steps.inherited == 22800

    def test_a_resume_above_the_lineage_rejoins_the_abandoned_branch(self) -> None:
        """Attempt 2 rolls back to 20 and fails at 30; attempt 3 takes attempt 1's step 90 again."""
        one = Log().launch().train(range(10, 101, 10), 0)
        two = Log(1000).launch(resume=20).train([30], 20)
        three = Log(2000).launch(resume=90).train([100, 110], 90)

        got = tell(facts(one, two, three), 2200)

        assert seconds(got, 1) == {"allocated": 1000, "productive": 900, "lost": 100}
        assert seconds(got, 2) == {"allocated": 1000, "lost": 100, "tail": 900}
        assert got.steps.net == 110

    def test_a_launch_that_never_reached_a_step_is_startup_then_tail(self) -> None:
        """Its last start-up line came after 40 s; it lasted until the next launch."""
        one = Log().launch().at(40).event(Kind.SIGN)
        two = Log(100).launch().at(150).train([10], 0)

        got = tell(facts(one, two), 250)

        assert seconds(got, 1) == {"allocated": 100, "startup": 40, "tail": 60}
        assert got.interruptions[0].cause == "unknown"

    def test_a_restart_inside_the_job_leaves_no_time_between(self) -> None:
        """No banner: the restart line is the boundary, and both attempts tile the allocation."""
        log = Log().launch().train([10, 20], 0)
        log.at(300).event(Kind.RESTART).event(Kind.RESUME, step=20).at(400).line(30)

        got = tell(
            facts(
                log,
                rows=[row("7", 0, 400, state="COMPLETED")],
            ),
            400,
        )

        assert [line.wall_us["allocated"] for line in got.attempts] == [300e6, 100e6]
        assert got.steps.net == 30

    def test_a_step_that_goes_back_without_a_word_is_a_restart(self) -> None:
        """Line 40 is followed by line 30, minutes later."""
        log = Log().launch().train([10, 20, 30, 40], 0).at(1000).line(30).at(1100).line(40)
        log.at(1200).line(50)

        got = tell(facts(log), 1200)

        assert len(got.attempts) == 2
        assert got.attempts[1].resumed_from == 20
        assert got.steps.net == 50
        assert seconds(got, 1)["lost"] == 200

    def test_the_scheduler_bills_and_the_world_trains(self) -> None:
        """Ten GPUs allocated, eight train: the two spares are idle all along."""
        log = Log(50).launch(gpus=8, job_id="7").at(150).line(10)

        got = tell(facts(log, rows=[row("7", 0, 200, gpus=10)]), 300)

        assert got.gpu_us is not None
        hours = {k: v / 1e6 for k, v in got.gpu_us.items() if v}
        assert hours == {
            "allocated": 2000, "productive": 800, "startup": 400, "tail": 400, "idle": 400,
        }  # fmt: skip

    def test_a_requeued_job_keeps_its_id_and_is_a_new_attempt(self) -> None:
        """Two rows with one job id, each with its own log."""
        one = Log().launch(job_id="7").train([10], 0)
        two = Log(500).launch(job_id="7", resume=10).train([20], 10)
        rows = [row("7", 0, 120, state="NODE_FAIL"), row("7", 480, None)]

        got = tell(facts(one, two, rows=rows), 600)

        assert [line.start_from for line in got.attempts] == ["scheduler"] * 2
        assert [line.wall_us["allocated"] for line in got.attempts] == [120e6, 120e6]
        assert got.interruptions[0].evidence == "scheduler: NODE_FAIL"

    def test_the_gpu_count_may_change_between_attempts(self) -> None:
        """512 then 1,024 GPUs: each attempt is weighed with its own."""
        one = Log().launch(gpus=512).train([10], 0).event(Kind.EXIT, end_kind="failed")
        two = Log(100).launch(gpus=1024, resume=10).train([20], 10)

        got = tell(facts(one, two), 200)

        assert got.gpu_us is not None
        assert got.gpu_us["productive"] == (512 + 1024) * 100_000_000

    def test_rows_of_other_jobs_are_listed_and_not_counted(self) -> None:
        """Only a job name that the run's own jobs carry makes a row without a log an attempt."""
        log = Log().launch(job_id="7").train([10], 0)
        rows = [row("7", 0, 100), row("8", 100, 150), row("9", 100, 400, name="notebook")]

        got = tell(facts(log, rows=rows), 500)

        assert [line.job_id for line in got.attempts] == ["7", "8"]
        assert got.unmatched_jobs == ("9",)

    def test_a_rotated_log_is_one_attempt(self) -> None:
        """The second file begins in mid-run with no banner."""
        one = Log().launch().train([10, 20], 0)
        two = Log(200).train([30, 40], 20)

        got = tell(facts(one, two), 400)

        assert len(got.attempts) == 1
        assert seconds(got) == {"allocated": 400, "productive": 400}

    def test_two_files_of_one_launch_are_counted_once(self) -> None:
        """Every node writes its own log of the same steps."""
        logs = [Log(0.2 * n).launch().train(range(10, 101, 10), 0) for n in range(2)]

        got = tell(facts(*logs), 1000)

        assert len(got.attempts) == 1
        assert got.steps.processed == 100

    def test_a_log_without_a_clock_takes_the_schedulers(self) -> None:
        """Steps follow each other from the allocation's start; the line says it is an estimate."""
        log = Log().event(Kind.LAUNCH, stamp=False).event(Kind.SETTING, stamp=False, job_id="7")
        for step in (10, 20, 30):
            log.line(step, stamp=False)

        got = tell(facts(log, rows=[row("7", 1000, 1400)]), 5000)

        assert got.attempts[0].estimated
        assert seconds(got) == {"allocated": 400, "productive": 300, "tail": 100}

    def test_a_row_of_another_launch_of_the_job_is_not_taken(self) -> None:
        """Without sacct --duplicates only the last row of a requeued job is told."""
        one = Log(10).launch(job_id="11").train(range(10, 101, 10), 0)
        two = Log(1330).launch(job_id="11", resume=100).train([110], 100)

        got = tell(facts(one, two, rows=[row("11", 1300, 1500, state="COMPLETED")]), 2000)

        assert [line.start_from for line in got.attempts] == ["log", "scheduler"]
        assert seconds(got, 1)["productive"] == 1000
        assert any("--duplicates" in text for text in got.warnings)

    def test_an_open_row_ends_where_its_job_began_anew(self) -> None:
        """A document read while the first launch ran, and again after the second had ended."""
        one = Log(10).launch(job_id="11").train(range(10, 101, 10), 0)
        two = Log(1330).launch(job_id="11", resume=100).train([110], 100)
        rows = [row("11", 0, None), row("11", 1300, 1500, state="COMPLETED")]

        got = tell(facts(one, two, rows=rows), 9000)

        assert got.running == 0
        assert seconds(got, 1) == {"allocated": 1010, "startup": 10, "productive": 1000}

    def test_a_restart_without_a_banner_keeps_what_the_file_said(self) -> None:
        """GPU count and sequence length were said once, at the top."""
        log = Log().launch(gpus=64, sequence_length=500, global_batch_size=2)
        log.train([10, 20, 30], 0, tokens_per_step=None).at(1000).line(20, tokens_per_step=None)
        log.train([30, 40], 20, tokens_per_step=None)

        got = tell(facts(log), 1200, hardware=Hardware(peak_flop_per_s=1e15))

        assert [line.gpus for line in got.attempts] == [64, 64]
        assert got.tokens.net == 40 * 2 * 500

    def test_a_new_process_begins_with_its_first_window(self) -> None:
        """Its first line is a reading: ten steps of ten seconds end there, so it began before."""
        log = Log().launch().train([10, 20, 30], 0).at(1000).line(20).at(1100).line(30)

        got = tell(facts(log), 1100)

        assert seconds(got, 2) == {"allocated": 200, "productive": 200}
        assert seconds(got, 1)["tail"] == 600

    def test_the_last_words_after_a_rotation_are_the_attempts_own(self) -> None:
        """The new file holds one line, without a stamp: why the process died."""
        made = facts()
        made.add(Log().launch().train([10, 20], 0).records, file_name="one.log", identity="a")
        words = Log().event(Kind.FAILURE, stamp=False, cause="gpu_hbm", fatal=True, text="ECC").records
        made.add(words, file_name="one.log", identity="b")
        made.add(Log(900).launch(resume=20).train([30], 20).records, file_name="two.log", identity="c")

        got = tell(made, 1000)

        assert got.interruptions[0].cause == "gpu_hbm"
        assert seconds(got, 1) == {"allocated": 200, "productive": 200}

    def test_launches_of_a_log_without_a_clock_do_not_overlap(self) -> None:
        """The second begins where the printed steps of the first end, its resume counted."""
        log = Log().event(Kind.LAUNCH, stamp=False).event(Kind.RESUME, step=0, stamp=False)
        log.line(10, 2.0, stamp=False).line(20, 2.0, stamp=False)
        log.event(Kind.LAUNCH, stamp=False).event(Kind.RESUME, step=10, stamp=False)
        log.line(20, 2.0, stamp=False)

        got = tell(facts(log, written_us=us(40)), 500)

        assert seconds(got, 1) == {"allocated": 40, "productive": 20, "lost": 20}
        assert got.attempts[1].start_us == us(80)

    def test_log_and_config_that_differ_are_named_both(self) -> None:
        """The log's word is used, and the reader is told."""
        log = Log().launch(sequence_length=2000).train([10], 0)

        got = tell(facts(log), 100)

        assert any("sequence_length = 1000" in text and "2000" in text for text in got.warnings)

    def test_steps_after_the_last_stamp_belong_to_a_crashed_attempt(self) -> None:
        """A banner has a clock, the step lines have none, and an error without one ends it."""
        one = Log().launch().event(Kind.TRAIN_START).line(100, 36.0, stamp=False)
        one.event(Kind.FAILURE, stamp=False, cause="gpu_hbm", fatal=True)
        two = Log(4000).launch(resume=100).line(110, 36.0, stamp=False)

        got = tell(facts(one, two), 9000)

        assert seconds(got, 1) == {"allocated": 3600, "productive": 3600}

    def test_a_file_without_a_clock_beside_the_console_is_the_same_run_again(self) -> None:
        """Such as the state file that a trainer writes at the end: no attempt of its own."""
        made = facts(Log().launch().train([10, 20, 30], 0))
        state = [r for n in (10, 20, 30) for r in Log().line(n, None, flags=0, stamp=False).records]
        made.add(state, file_name="trainer_state.json", collector="trainer_state", written_us=us(5000))

        got = tell(made, 300)
        late = tell(made, 6000)

        assert len(got.attempts) == len(late.attempts) == 1
        assert late.steps.processed == 30

    def test_a_finer_second_account_takes_no_start_and_no_end_away(self) -> None:
        """The console prints every tenth step and says when it was done; a table has every step."""
        console = Log().launch().at(50).event(Kind.TRAIN_START).train([10, 20], 0).event(Kind.COMPLETED)
        table = Log(50).train(range(1, 21), 0)
        made = facts(console)
        made.add(table.records, file_name="metrics.csv", collector="csv")

        got = tell(made, 9000)

        assert got.state == "finished"
        assert seconds(got) == {"allocated": 250, "startup": 50, "productive": 200}

    def test_tokens_told_now_and_then_are_all_counted(self) -> None:
        """An odometer on every third line; the rest waits for it, and the last line takes the mean."""
        log = Log().launch(resume=0)
        for step in range(1, 8):
            known = step * 700 if step % 3 == 0 else None
            log.at(10 * step).line(step, tokens_per_step=None, tokens=known)

        got = tell(facts(log), 70)

        assert got.tokens.net == 7 * 700

    def test_silence_without_an_end_is_said_to_be_the_reason(self) -> None:
        """An old log asked about now: its silence is counted, and the reader told what would end it."""
        got = tell(facts(Log().launch().train([10, 20, 30, 40], 0)), 400_000)

        assert any("set run.until" in text for text in got.warnings)


class TestEnds:
    def test_pending_becomes_tail_once_three_usual_gaps_passed(self) -> None:
        """Lines every 100 s: 300 s of silence is pending, more is a stall."""
        made = facts(Log().launch().train(range(10, 101, 10), 0))

        calm, late = tell(made, 1300), tell(made, 1301)

        assert (calm.state, seconds(calm)["pending"]) == ("running", 300)
        assert (late.state, seconds(late)["tail"]) == ("stalled", 301)
        assert calm.goodput_ratio == 1.0

    def test_a_save_after_the_last_line_is_a_sign_of_progress(self) -> None:
        """Saved at step 105 after line 100: five more steps, and the resume there loses nothing."""
        one = Log().launch().train([100], 0)
        one.at(1050).event(Kind.SAVE_START, step=105).at(1070).event(Kind.SAVE_END, step=105)
        two = Log(1500).launch(resume=105).train([110], 105)

        got = tell(facts(one, two), 1550)

        assert seconds(got, 1) == {"allocated": 1500, "productive": 1050, "checkpoint": 20, "tail": 430}
        assert got.steps.net == 110
        assert got.steps.unseen == 0

    def test_success_stands_whatever_comes_after(self) -> None:
        """A time limit that hits the teardown is no interruption."""
        log = Log().launch(job_id="7").train([10], 0).event(Kind.COMPLETED).at(130)
        log.event(Kind.EXIT, end_kind="time_limit", cause="time_limit")

        got = tell(facts(log, rows=[row("7", 0, 140, state="TIMEOUT")]), 500)

        assert got.state == "finished"
        assert got.interruptions == ()

    def test_a_time_limit_is_planned_unless_it_ended_a_hang(self) -> None:
        """Silence for longer than three gaps before the limit is an unexpected hang."""

        def stop(limit: float) -> tuple[str, str]:
            log = Log().launch(job_id="7").train(range(10, 101, 10), 0)
            got = tell(facts(log, rows=[row("7", 0, limit, state="TIMEOUT")]), 99_999)
            return got.interruptions[0].kind, got.interruptions[0].cause

        assert stop(1200) == ("planned", "time_limit")
        assert stop(9000) == ("unexpected", "unknown")

    def test_the_cause_is_the_evidence_nearest_the_root(self) -> None:
        """The watchdog of every rank comes after the one memory fault that set it off."""
        log = Log().launch().train([10], 0)
        log.event(Kind.FAILURE, cause="gpu_hbm", confidence=0.9, text="Xid 94")
        log.at(700).event(Kind.FAILURE, cause="nccl_watchdog", confidence=0.9, fatal=True, text="watchdog")
        two = Log(900).launch(resume=10).train([20], 10)

        got = tell(facts(log, two), 1000)

        assert (got.interruptions[0].cause, got.interruptions[0].evidence) == ("gpu_hbm", "Xid 94")
        assert got.interruptions[0].detect_s == 600
        assert got.interruptions[0].restart_s == 200

    def test_a_jobs_error_file_without_a_clock_explains_its_end(self) -> None:
        """Its name holds the job id; its lines hold no time."""
        made = facts(Log(10).launch(job_id="7").train([10, 20], 0), rows=[row("7", 0, 400, state="FAILED")])
        words = Log().event(Kind.FAILURE, stamp=False, cause="storage", text="No space left").records
        made.add(words, file_name="slurm-7.err", collector="events", written_us=us(390))

        got = tell(made, 1000)

        assert (got.interruptions[0].cause, got.interruptions[0].evidence) == ("storage", "No space left")

    def test_records_after_as_of_are_ignored(self) -> None:
        """An answer for yesterday does not know today."""
        one = Log().launch().train(range(10, 101, 10), 0)
        two = Log(2000).launch(resume=50).train([60, 70], 50)

        then, now = tell(facts(one, two), 500), tell(facts(one, two), 2200)

        assert then.steps.net == 50
        assert len(then.attempts) == 1
        assert seconds(then) == {"allocated": 500, "productive": 500}
        assert seconds(now, 1)["lost"] == 500

    def test_a_reservation_bills_its_idle_time(self) -> None:
        """From its start to as_of, in the total only."""
        log = Log(100).launch().train([10], 0).event(Kind.EXIT, end_kind="failed")
        from tests.core.story import us

        got = tell(facts(log), 1000, billing="reservation", reservation=Reservation(start_us=us(0), gpus=8))

        assert got.gpu_us is not None
        assert got.gpu_us["idle"] == 8 * 900 * 1_000_000
        assert got.gpu_us["allocated"] == 8 * 1000 * 1_000_000


class TestUnknown:
    def test_no_gpu_count_gives_no_gpu_hours_and_says_so(self) -> None:
        """Goodput by wall time is still there."""
        log = Log().launch(gpus=None).train([10], 0)

        got = tell(facts(log), 100, hardware=Hardware(peak_flop_per_s=1e15))

        assert got.gpu_us is None
        assert got.mfu.productive_ratio is None
        assert got.goodput_ratio == 1.0
        assert any("GPU count" in text for text in got.unknown)

    def test_no_tokens_gives_no_mfu_and_says_so(self) -> None:
        """Nothing is made up from a default batch."""
        log = Log().launch().at(100).line(10, tokens_per_step=None)

        got = tell(facts(log), 100, model=Model(active_params=1e9))

        assert got.tokens.net is None
        assert got.mfu.productive_ratio is None
        assert any(text.startswith("tokens:") for text in got.unknown)

    def test_nothing_yet_is_waiting(self) -> None:
        """No attempt, no number."""
        got = tell(facts(), 100)

        assert got.state == "waiting"
        assert got.gpu_us is None
        assert got.goodput_ratio is None
