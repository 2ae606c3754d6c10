"""Which kernels public model families need, for `fa4-cute compile --preset`.

A kernel serves every length, batch size, number of heads and scale; what a model decides is the head dim, the masks
and the dtypes it is run in. Each row is from the model's published configuration.
"""

from dataclasses import dataclass

from .config import FA4Config
from .plan import config_for

DTYPES = ("bf16", "fp16")
HEAD_DIMS = (64, 128)
MASKS = ("none", "causal")


@dataclass(frozen=True)
class Needs:
    """The kernels of one model: the product of the three."""

    head_dims: tuple[int, ...]
    dtypes: tuple[str, ...]
    masks: tuple[str, ...]

    def configs(self, arch: str) -> list[FA4Config]:
        """The configurations for an architecture. NotImplementedError for a kernel that cannot be built."""
        found = [
            config_for(dtype=dtype, head_dim=head_dim, mask=mask, arch=arch)
            for dtype in self.dtypes
            for head_dim in self.head_dims
            for mask in self.masks
        ]
        reasons = {reason: None for config in found for reason in config.supported()}
        if reasons:
            raise NotImplementedError("; ".join(reasons))
        return found


ALL = Needs(HEAD_DIMS, DTYPES, MASKS)
# A decoder reads its prompt with the causal mask, and then makes token by token: a single query sees all of the cache.
_DECODER_128 = Needs((128,), ("bf16",), MASKS)
_DECODER_64 = Needs((64,), ("bf16",), MASKS)
_ENCODER_64 = Needs((64,), DTYPES, ("none",))
# Images are made without a mask, from what CLIP's text encoders (head dim 64, causal) read.
_DIFFUSION_64 = Needs((64,), DTYPES, MASKS)
PRESETS = {
    "all": ALL,
    "bert": _ENCODER_64,
    "clip-vit-l": Needs((64,), DTYPES, MASKS),  # images without a mask, texts causal
    "flux.1": Needs((64, 128), ("bf16",), MASKS),  # 64, causal: CLIP's text encoder
    "gpt2": Needs((64,), DTYPES, MASKS),
    "llama2-7b": Needs((128,), DTYPES, MASKS),
    "llama3-8b": _DECODER_128,
    "llama3-70b": _DECODER_128,
    "llama3.2-1b": _DECODER_64,
    "llama3.2-3b": _DECODER_128,
    "mixtral-8x7b": _DECODER_128,
    "qwen2.5-0.5b": _DECODER_64,
    "qwen2.5-7b": _DECODER_128,
    "qwen3-8b": _DECODER_128,
    "sdxl": _DIFFUSION_64,
    "stable-diffusion-3": _DIFFUSION_64,
    "vit-l": _ENCODER_64,
    "whisper": Needs((64,), DTYPES, MASKS),  # encoder and cross attention without a mask, decoder causal
}
