"""The logger "fa4_cute" and the environment variable FA4_CUTE_LOG.

FA4_CUTE_LOG=debug|info|warning|error prints what the package logs from that level on to stderr. Unset, messages go
wherever the program's own logging configuration sends them.
"""

import logging
import os
import warnings

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure() -> None:
    """Obeys FA4_CUTE_LOG; a value that is no level gives a RuntimeWarning and changes nothing."""
    text = os.environ.get("FA4_CUTE_LOG", "")
    if not text:
        return
    if text.lower() not in LEVELS:
        warnings.warn(f"FA4_CUTE_LOG: got {text!r}, wanted one of {', '.join(LEVELS)}", RuntimeWarning, stacklevel=2)
        return
    logger = logging.getLogger("fa4_cute")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s fa4_cute %(levelname)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(LEVELS[text.lower()])
    logger.propagate = False  # else a program that configures logging too sees each message twice
