"""Reports of runs of our kernel: compiled with line information, recorded, named."""

from typing import Any

import torch

from ..compile import compile_forward
from ..kernel.roles import role_of
from ..plan import plan
from ..validate import check
from . import EmulationError, Module, Recorder, Schedule, forward, names, report


def of_case(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    options: dict[str, Any],
    *,
    title: str,
    arch: str = "sm_100a",
    schedule: Schedule | None = None,
    strict: bool = True,
    replay: str = "",
    verdict: str = "",
    ptx: str | None = None,
) -> str:
    """Runs a case (query, key and value, and the keyword arguments of forward.run) and returns its report as HTML.

    The first cluster is recorded, or of a run that goes wrong the first one that does. ptx replaces the kernel's text,
    which is otherwise compiled again with line information; verdict says what is wrong with the
    results of a run that ends without an error. ValueError for a problem that launches nothing.
    """
    config = plan(check(*inputs, **options), arch).config
    ptx = ptx or compile_forward(config, line_info=True).ptx
    schedule = schedule or Schedule.eager()
    recorder, error = Recorder(), None
    for _ in range(2):
        try:
            forward.run(*inputs, **options, arch=arch, schedule=schedule, ptx=ptx, strict=strict, recorder=recorder)
        except EmulationError as caught:
            error = caught
        if error is None or error.cluster in (-1, recorder.cluster):
            break
        recorder = Recorder(cluster=error.cluster)
    subject = report.Subject(
        title=title,
        ptx=ptx,
        kernel=Module(ptx).kernels[0],
        schedule=str(schedule),
        outcome=str(error) if error else verdict,
        findings=tuple(getattr(error, "findings", ())),
        replay=replay,
    )
    return report.render(subject, recorder, role_of, names.of_forward(config))
