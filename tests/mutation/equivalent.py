"""Changes that nothing notices, and why they change nothing. Found by reading the kernels.

Kernel -> (what is broken, its number among those of its kind) -> reason. A change of a kernel moves the numbers: then
each case has to be looked at again.
"""

_TAIL = "end of the CTA's last tile: waits that the producer need not do, nothing follows them"
_NEXT = "releases a buffer for another tile of the CTA, and this kernel has one tile a CTA"
_ONE_GROUP = "the first half's store joins the second half's group, which is waited for"
_BEFORE_FREE = "softmax's last wait before TMEM is freed: the correction warps, who free it, have waited for the same"

EQUIVALENT: dict[str, dict[tuple[str, int], str]] = {
    "ours": {
        ("tcgen05 fence", 7): "first arrival of the correction warps: they have not touched tensor memory yet",
        ("tcgen05 fence", 8): "the same, for the second half",
        ("bulk commit", 1): _ONE_GROUP,
        ("bulk commit", 3): _ONE_GROUP + " (where no query sees a key)",
    },
    "flash-attn-4": {
        ("bulk commit", 1): _ONE_GROUP,
        ("bulk wait", 1): "the store of the first half: the wait for the second half's covers it",
        ("arrive", 1): _NEXT,
        ("arrive", 18): _NEXT,
        ("arrive", 21): _NEXT,
        ("commit", 8): _NEXT,
        **{("wait", n): _TAIL for n in (9, 10, 11, 12)},
        ("parity", 11): _TAIL,
        ("expect_tx arrive", 7): _TAIL,
        ("expect_tx bytes", 7): _TAIL,
        ("wait", 34): _BEFORE_FREE,
        ("wait", 39): "last wait of the correction warps for a release that nothing uses",
    },
    "flash-attn-4 pairs": {
        ("mbarrier_init fence", 1): "a second such fence follows before the cluster barrier",
        **{("wait", n): _TAIL for n in (7, 8, 9, 10, 11, 12, 13)},
        ("parity", 12): _TAIL,
        ("expect_tx arrive", 7): _TAIL,
        ("expect_tx bytes", 7): _TAIL,
        ("wait", 36): _BEFORE_FREE,
        ("wait", 41): _TAIL,
    },
}
