// The CUDA driver API as far as a launch needs it, found at run time: nothing of CUDA is needed to build this.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace fa4launch {

// Documented types of the driver API (cuda.h), under their own names so that a call site reads like the manual.
using CUresult = int;
using CUdevice = int;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;

constexpr int kFuncAttributeMaxDynamicSharedBytes = 8;
constexpr int kFuncAttributeNonPortableClusterSize = 14;
constexpr int kLaunchAttributeClusterDimension = 4;
constexpr int kLaunchAttributeProgrammaticStreamSerialization = 6;
constexpr int kErrorInvalidContext = 201;
constexpr int kPointerAttributeDeviceOrdinal = 9;

struct CUlaunchAttribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int programmatic_serialization_allowed;
    };
};
static_assert(sizeof(CUlaunchAttribute) == 72);

struct CUlaunchConfig {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    CUstream stream;
    CUlaunchAttribute* attributes;
    unsigned attribute_count;
};
static_assert(offsetof(CUlaunchConfig, stream) == 32 && sizeof(CUlaunchConfig) == 56);

struct alignas(64) CUtensorMap {
    uint8_t bytes[128];
};

// A failed driver call: what() ends with the driver's own name and text of the error.
struct LaunchError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// There is no driver, or it lacks a function.
struct NoDriver : LaunchError {
    using LaunchError::LaunchError;
};

struct Driver {
    CUresult (*cuInit)(unsigned);
    CUresult (*cuGetErrorName)(CUresult, const char**);
    CUresult (*cuGetErrorString)(CUresult, const char**);
    CUresult (*cuLibraryLoadData)(CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned);
    CUresult (*cuLibraryGetKernel)(CUkernel*, CUlibrary, const char*);
    CUresult (*cuKernelSetAttribute)(int, int, CUkernel, CUdevice);
    CUresult (*cuKernelGetFunction)(CUfunction*, CUkernel);
    CUresult (*cuCtxGetCurrent)(CUcontext*);
    CUresult (*cuCtxGetDevice)(CUdevice*);
    CUresult (*cuCtxPushCurrent)(CUcontext);
    CUresult (*cuCtxPopCurrent)(CUcontext*);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
    CUresult (*cuPointerGetAttribute)(void*, int, uint64_t);
    CUresult (*cuTensorMapEncodeTiled)(CUtensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                                       const uint32_t*, const uint32_t*, int, int, int, int);
    CUresult (*cuLaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**);

    // The process's driver, initialised. NoDriver, each time, if there is none.
    static const Driver& get();

    // LaunchError "<call>: <name> (<code>): <text>" unless the result is success.
    void check(CUresult result, const std::string& call) const;
};

}  // namespace fa4launch
