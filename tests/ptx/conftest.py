import pytest

pytest.importorskip("fa4_cute.emulator", reason="the emulator's C++ core is not built")
