"""Facts of the supported GPU architectures."""

import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Arch:
    """What a kernel may use of one SM; sizes in bytes unless the name says otherwise."""

    name: str
    smem_bytes: int  # dynamic shared memory a CTA can have
    tmem_cols: int
    registers: int  # 32-bit, of the SM
    sms: int  # of the whole GPU as sold; only used to judge grids
    l2_bytes: int  # of K and V that a section of heads may keep in L2
    fast_exp2: bool  # the special function unit keeps up with the tensor core: no polynomial


ARCHS = {
    "sm_100a": Arch("sm_100a", 232448, 512, 65536, 148, 50 << 20, fast_exp2=False),
    "sm_103a": Arch("sm_103a", 232448, 512, 65536, 160, 50 << 20, fast_exp2=True),
}
_CAPABILITIES = {(10, 0): "sm_100a", (10, 3): "sm_103a"}


def lookup(name: str) -> Arch:
    """Arch by name. NotImplementedError for one that the kernel is not built for."""
    if name not in ARCHS:
        raise NotImplementedError(f"architecture: got {name}, the kernel is built for {', '.join(ARCHS)}")
    return ARCHS[name]


def of_device(device: Any) -> str:
    """Architecture name of a CUDA device; the environment variable FA4_CUTE_ARCH overrides it.

    NotImplementedError for a GPU that the kernel does not run on.
    """
    override = os.environ.get("FA4_CUTE_ARCH")
    if override:
        return lookup(override).name
    import torch

    capability = torch.cuda.get_device_capability(device)
    if capability not in _CAPABILITIES:
        raise NotImplementedError(
            f"device {torch.cuda.get_device_name(device)} has compute capability {capability[0]}.{capability[1]}; "
            "the kernel runs on 10.0 (B200, GB200) and 10.3 (B300)"
        )
    return _CAPABILITIES[capability]
