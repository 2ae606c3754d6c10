"""Recordings and reports: what they show is what the run did, and a fault is where they say it is."""

import html.parser
import json
import re

import pytest
import torch
from attention import Case

from fa4_cute import api, cache, cli, replay  # noqa: F401  api registers the operators
from fa4_cute.cli import verify
from fa4_cute.compile import compile_forward
from fa4_cute.emulator import (
    Deadlock,
    EmulationError,
    Machine,
    Module,
    Recorder,
    Schedule,
    forward,
    forward_report,
    report,
)
from fa4_cute.plan import plan
from fa4_cute.validate import check

CASE = Case("bf16", 64, "none", (2, 2), (130, 300))
CONFIG = plan(check(*CASE.inputs(), **CASE.mask_arguments), "sm_100a").config
ROLES = ["softmax of half 0", "softmax of half 1", "correction", "MMA", "load", "idle"]


@pytest.fixture(scope="module")
def ptx() -> str:
    return compile_forward(CONFIG, line_info=True).ptx


def recorded(ptx: str, recorder: Recorder, schedule: Schedule | None = None):
    return forward.run(*CASE.inputs(), **CASE.mask_arguments, ptx=ptx, schedule=schedule, recorder=recorder)


def page(ptx: str, **options) -> str:
    return forward_report.of_case(CASE.inputs(), CASE.mask_arguments, title="a <case>", ptx=ptx, **options)


def data_of(text: str) -> dict:
    return json.loads(re.search(r"const REPORT = (.*);</script>", text).group(1))


def lanes_of(data: dict, group: str) -> dict[str, list]:
    (found,) = [g for g in data["groups"] if g["name"].startswith(group)]
    return {lane["label"]: lane["entries"] for lane in found["lanes"]}


class Parsed(html.parser.HTMLParser):
    """Tags that are open, attributes that load something, links into the timeline, text."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.loads, self.links, self.text = [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.open += [] if tag in self.VOID else [tag]
        attributes = dict(attributes)
        self.loads += [v for k, v in attributes.items() if k in ("src", "href") and v != "#"]
        self.links += [attributes] if "data-at" in attributes else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open[-1:] not in (["script"], ["style"]) else ""


@pytest.mark.parametrize("schedule", [Schedule.eager(), Schedule.lazy(), Schedule.random(3)], ids=str)
def test_a_recording_accounts_for_every_instruction_and_operation(ptx, schedule):
    recorder = Recorder(cluster=1)
    stats = recorded(ptx, recorder, schedule).stats
    recording = recorder.recording
    assert recording.first_cta == [1, 0, 0] and recording.dropped == 0
    # The two CTAs do the same work on different heads.
    assert recording.instructions * 2 == stats.warp_instructions
    runs = sorted((start, end) for _, _, _, start, end, _, _ in recording.runs)
    assert [start for start, _ in runs] == [0, *(end for _, end in runs[:-1])] and runs[-1][1] == recording.instructions
    kinds = [kind for _, _, kind, *_ in recording.operations]
    assert [kinds.count(kind) * 2 for kind in (0, 1, 2)] == [stats.tma_loads, stats.tma_stores, stats.mma_count]
    assert all(start <= end <= recording.instructions for _, _, _, start, end, _, _ in recording.operations)
    assert not any(is_open for *_, is_open, _ in recording.operations)
    assert all(start <= end and not is_open for _, _, start, end, is_open, *_ in recording.waits)
    if schedule.mode == "lazy":  # nothing completes before the issuing warp has gone on
        assert all(end > start for _, _, kind, start, end, *_ in recording.operations if kind in (0, 2))


def test_recording_changes_nothing(ptx):
    plain, observed = recorded(ptx, None), recorded(ptx, Recorder())
    assert torch.equal(plain.out, observed.out) and torch.equal(plain.lse, observed.lse)
    assert plain.stats.warp_instructions == observed.stats.warp_instructions


def test_a_recording_is_bounded_and_keeps_the_end(ptx):
    recorder = Recorder(limit=50)
    recorded(ptx, recorder)
    recording = recorder.recording
    assert recording.dropped > 0
    for entries in (recording.runs, recording.waits, recording.operations, recording.phases, recording.holdings):
        assert len(entries) <= 50
    assert recording.runs[-1][4] == recording.instructions


def test_line_information_leaves_the_instructions_alone(ptx):
    def instructions(text):
        return [line.strip() for _, line in report.listing(text) if line.strip()]

    assert ".loc" in ptx and instructions(ptx) == instructions(cache.get(CONFIG).ptx)
    sources = Module(ptx).sources(Module(ptx).kernels[0])
    text = ptx.splitlines()
    files = {report.place(*sources[n + 1]).split(":")[0] for n, line in enumerate(text) if "tcgen05.mma" in line}
    assert files == {"kernel/umma.py"}


def test_a_clean_run(ptx):
    text = page(ptx, schedule=Schedule.lazy(), replay="fa4-cute verify --case 7 --strict")
    parsed = Parsed(text)
    assert parsed.open == [] and parsed.loads == []
    assert "Emulated order, not time." in parsed.text and "a <case>" in parsed.text and "clean" in parsed.text
    assert "fa4-cute verify --case 7 --strict" in parsed.text
    assert len(text) < 1_000_000
    data = data_of(text)
    assert [group["name"] for group in data["groups"]][: len(ROLES)] == ROLES
    waits = [
        entry for entries in lanes_of(data, "softmax of half 0").values() for entry in entries if "waits" in entry[2]
    ]
    assert any("mbarrier s_full[0] (shared" in entry[5] for entry in waits)
    # Every mbarrier that the kernel initialises has a name, and no name is left over.
    mbarriers = lanes_of(data, "mbarriers")
    assert len(mbarriers) == 2 + 2 * CONFIG.kv_slots + 10 and not any("0x" in label for label in mbarriers)
    assert mbarriers["kv_full[0]"][-1][5].startswith("phase 1: 1 of 1 arrivals pending")
    tmem = lanes_of(data, "TMEM")
    s0 = next(entries for label, entries in tmem.items() if label.endswith("S, P of half 0"))
    assert {"MMA of MMA", "tcgen05.st of softmax of half 0"} <= {entry[5] for entry in s0}
    assert (s0[0][2], s0[-1][2]) == ("TMEM allocation", "freed")
    shared = lanes_of(data, "shared memory")
    q0 = next(entries for label, entries in shared.items() if label.endswith("Q of half 0"))
    assert q0[0][5] == "TMA in of load" and q0[-1][5].startswith("ld/st of ")  # O is staged where Q was


def test_a_planted_fault_is_shown_with_its_line(ptx):
    before, after = ptx.split("tcgen05.wait::ld.sync.aligned;", 1)
    text = page(before + after)
    parsed = Parsed(text)
    load = max(n for n, line in enumerate(before.splitlines(), 1) if "tcgen05.ld" in line)
    assert "wait::ld" in parsed.text and f"tcgen05.ld of PTX line {load}" in parsed.text
    assert re.search(r"kernel/(softmax|correction|ptx)\.py:\d+", parsed.text)
    link = next(link for link in parsed.links if link["data-lines"].endswith(f" {load}"))
    data = data_of(text)
    at, other = int(link["data-at"]), int(link["data-other"])
    assert 0 < other < at < data["instructions"]
    (entry,) = [
        entry
        for role in ROLES
        for entries in lanes_of(data, role).values()
        for entry in entries
        if entry[0] <= other < entry[1] and entry[2] == "tcgen05.ld"
    ]
    assert entry[3] <= load <= entry[4]


def test_a_deadlock_shows_who_waits_for_what(ptx):
    text = page(re.sub(r"tcgen05\.commit[^;]*;", "", ptx, count=1), strict=False)
    parsed = Parsed(text)
    assert "deadlock" in parsed.text and "failed" in parsed.text
    data = data_of(text)
    stuck = {
        role: entry[5]
        for role in ROLES
        for entries in lanes_of(data, role).values()
        for entry in entries
        if entry[2] == "waits for ever"
    }
    assert (
        "mbarrier s_full[1] (shared" in stuck["softmax of half 1"] or "mbarrier s_full[0]" in stuck["softmax of half 0"]
    )
    assert "load" in stuck or "MMA" in stuck


def test_the_cluster_that_fails_is_the_one_recorded(ptx):
    trap = "{ .reg .pred bad; .reg .b32 which; mov.u32 which, %ctaid.x; setp.eq.u32 bad, which, 1; @bad trap; }\n"
    text = page(re.sub(r"(\.reg \.b64 [^;]*;\n)", r"\1" + trap, ptx, count=1), strict=False)
    parsed = Parsed(text)
    assert "the kernel trapped" in parsed.text and "Cluster 1, first CTA (1, 0, 0)" in parsed.text


def test_wrong_results_are_not_called_clean(ptx):
    text = Parsed(page(ptx, verdict="O is off by 3")).text
    assert "O is off by 3" in text and "failed" in text and "found nothing" not in text


def test_a_cluster_that_does_not_run_has_no_report(ptx):
    recorder = Recorder(cluster=99)
    recorded(ptx, recorder)
    subject = report.Subject("", ptx, Module(ptx).kernels[0], "")
    with pytest.raises(ValueError, match="nothing was recorded of cluster 99"):
        report.render(subject, recorder)


def test_errors_name_the_cluster(ptx):
    with pytest.raises(Deadlock) as caught:
        recorded(re.sub(r"tcgen05\.commit[^;]*;", "", ptx, count=1), None)
    assert caught.value.cluster == 0


def test_verify_writes_a_report_and_says_how_to_repeat_a_failure(tmp_path, monkeypatch, capsys):
    case = next(n for n, shape in enumerate(verify.SHAPES, 1) if (shape.head_dim, shape.lengths) == (64, (1, 300)))
    target = tmp_path / "out.html"
    words = ["verify", "--strict", "--case", str(case), "--schedule", "random:5"]
    assert cli.main([*words, "--report", str(target)]) == 0
    assert f"fa4-cute verify --case {case} --schedule random:5 --strict" in Parsed(target.read_text()).text
    assert "all right" in capsys.readouterr().out

    def fail(*inputs, **options):
        assert options["strict"] and options["schedule"] == Schedule.random(5)
        raise EmulationError("planted")

    monkeypatch.setattr(forward, "run", fail)
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert f"case {case}: planted\n  again: fa4-cute {' '.join(['verify', *words[2:], '--strict'])}" in out


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["--schedule", "random"], "got 'random', wanted eager, lazy or random:SEED"),
        (["--case", "99"], "99"),
        (["--report", "/no/such/folder/out.html"], "there is no folder /no/such/folder"),
    ],
)
def test_bad_arguments_of_verify(words, wanted, capsys):
    with pytest.raises(SystemExit):
        cli.main(["verify", *words])
    assert wanted in capsys.readouterr().err


def test_schedules_have_names():
    assert replay.schedule_of("random:12") == Schedule.random(12) and replay.schedule_of("lazy") == Schedule.lazy()


def test_the_ctas_of_a_cluster_have_lanes_of_their_own():
    text = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k() {
barrier.cluster.arrive;
barrier.cluster.wait;
ret;
}
"""
    module, recorder = Module(text), Recorder(cluster=1)
    shape = {"grid": (4, 1, 1), "cluster": (2, 1, 1), "block": (64, 1, 1), "smem_bytes": 0, "params": b""}
    Machine().launch(module, "k", **shape, strict=True, recorder=recorder)
    assert recorder.recording.first_cta == [2, 0, 0] and recorder.recording.instructions == 2 * 2 * 3
    data = data_of(report.render(report.Subject("", text, "k", ""), recorder))
    labels = [lane["label"] for group in data["groups"] for lane in group["lanes"] if group["kind"] == "warp"]
    assert labels == [f"CTA {rank}, warp {warp}" for rank in (0, 1) for warp in (0, 1)]
