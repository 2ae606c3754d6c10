"""The kernel under the checkers: nothing to report and the same bits, whatever the schedule.

Here some cases under all schedules; test_forward.py runs every case under the checkers and one schedule.
`--every-schedule` runs every case under all schedules, which takes long.
"""

import torch
from attention import SCHEDULES, Case, run
from test_forward import GRID

SOME = [
    Case("bf16", 128, "bottom_right", (2, 1), (300, 700)),
    Case("fp16", 64, "none", (2, 2), (257, 1000)),
    Case("fp16", 128, "top_left", (1, 1), (1000, 257)),
    Case("bf16", 64, "bottom_right", (1, 1), (400, 20)),
]


def pytest_generate_tests(metafunc):
    cases = GRID if metafunc.config.getoption("--every-schedule") else SOME
    metafunc.parametrize("case", cases, ids=str)


def test_clean_under_every_schedule(case):
    eager = run(case, strict=True)
    for schedule in SCHEDULES[1:]:
        other = run(case, schedule=schedule, strict=True)
        assert torch.equal(eager.out, other.out) and torch.equal(eager.lse, other.lse), str(schedule)
