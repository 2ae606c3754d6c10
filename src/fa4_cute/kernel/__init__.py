"""The device code, one warp role a file.

Only this package and `fa4_cute.compile` import the CuTe DSL: a cached kernel runs without it.
"""
