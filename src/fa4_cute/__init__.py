"""FlashAttention-4 class attention forward for NVIDIA SM100, as torch.ops.fa4.mha.

Importing this registers the operators; the CuTe DSL is imported only when a kernel has to be compiled.
FA4_CUTE_LOG=info shows on stderr what is compiled, loaded or left to torch.
"""

from . import logs
from .api import explain, mha, scaled_dot_product_attention
from .flash import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

__version__ = "0.1.0"
logs.configure()
__all__ = [
    "__version__",
    "explain",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "mha",
    "scaled_dot_product_attention",
]
