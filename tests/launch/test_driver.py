"""Without a driver everything says so; the constants are the driver API's."""

import re
from pathlib import Path

import pytest

from fa4_cute import launch
from fa4_cute.native import launcher
from fa4_cute.tensor_map import DTYPES, SWIZZLES, TensorMapArgs

no_driver_here = pytest.mark.skipif(launcher().driver_available(), reason="this machine has a CUDA driver")


@no_driver_here
def test_no_driver_is_a_clear_error():
    with pytest.raises(launch.NoDriver, match=r"no CUDA driver: libcuda\.so\.1 cannot be loaded"):
        launcher().Kernel(b"", "k", (1, 1, 1), (1, 1, 1), 0, False, [], 0)
    assert issubclass(launch.NoDriver, launch.LaunchError)
    assert issubclass(launch.LaunchError, RuntimeError)
    args = TensorMapArgs("bf16", 1 << 20, (64, 9), (128,), (64, 9), swizzle="128B")
    with pytest.raises(launch.NoDriver):
        launch.encode_tensor_map(args)


def test_bad_tensor_map_is_refused_before_the_driver_is_asked():
    with pytest.raises(ValueError, match="address is 1048578"):
        launch.encode_tensor_map(TensorMapArgs("bf16", (1 << 20) + 2, (64, 9), (128,), (64, 9)))
    encode = launcher().encode_tensor_map
    with pytest.raises(ValueError, match=r"box\[1\] is 257; wanted 1 to 256"):
        encode(1 << 20, 9, 2, (64, 9), (128,), (64, 257), (1, 1), 0, False, 0)
    with pytest.raises(ValueError, match="one stride less"):
        encode(1 << 20, 9, 2, (64, 9), (128, 128), (64, 9), (1, 1), 0, False, 0)
    with pytest.raises(ValueError, match=r"box\[0\] is 64; wanted at most 32 with this swizzle"):
        encode(1 << 20, 9, 2, (64, 9), (128,), (64, 9), (1, 1), 2, False, 0)


def test_constants_are_the_driver_apis():
    driver = pytest.importorskip("cuda.bindings.driver")
    header = (Path(__file__).parents[2] / "csrc/launch/driver.h").read_text()
    declared = dict(re.findall(r"constexpr int (k\w+) = (\d+);", header))
    attribute, launch_attribute = driver.CUfunction_attribute, driver.CUlaunchAttributeID
    expected = {
        "kFuncAttributeMaxDynamicSharedBytes": attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        "kFuncAttributeNonPortableClusterSize": attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
        "kLaunchAttributeClusterDimension": launch_attribute.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        "kLaunchAttributeProgrammaticStreamSerialization": (
            launch_attribute.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        ),
        "kErrorInvalidContext": driver.CUresult.CUDA_ERROR_INVALID_CONTEXT,
        "kPointerAttributeDeviceOrdinal": driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    }
    assert {name: int(value) for name, value in declared.items()} == {n: int(v) for n, v in expected.items()}
    types = driver.CUtensorMapDataType
    named = {"bf16": "BFLOAT16", "fp16": "FLOAT16", "u8": "UINT8", "f32": "FLOAT32", "tf32_ftz": "TFLOAT32_FTZ"}
    for name, theirs in named.items():
        assert DTYPES[name][0] == int(getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{theirs}"))
    for name, (code, _) in SWIZZLES.items():
        assert code == int(getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{name.upper()}"))
