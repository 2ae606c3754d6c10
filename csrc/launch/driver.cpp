#include "driver.h"

#include <dlfcn.h>

namespace fa4launch {

namespace {

// cuda.h maps some names to versioned symbols; these are the versions the declarations in driver.h belong to.
Driver load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char* why = dlerror();
        throw NoDriver(std::string("no CUDA driver: libcuda.so.1 cannot be loaded (") +
                       (why ? why : "no reason given") + ")");
    }
    Driver driver;
    auto find = [&](auto& pointer, const char* symbol) {
        void* found = dlsym(library, symbol);
        if (!found) throw NoDriver(std::string("the CUDA driver has no ") + symbol + "; CUDA 12.0 or newer is needed");
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
    };
    find(driver.cuInit, "cuInit");
    find(driver.cuGetErrorName, "cuGetErrorName");
    find(driver.cuGetErrorString, "cuGetErrorString");
    find(driver.cuLibraryLoadData, "cuLibraryLoadData");
    find(driver.cuLibraryGetKernel, "cuLibraryGetKernel");
    find(driver.cuKernelSetAttribute, "cuKernelSetAttribute");
    find(driver.cuKernelGetFunction, "cuKernelGetFunction");
    find(driver.cuCtxGetCurrent, "cuCtxGetCurrent");
    find(driver.cuCtxGetDevice, "cuCtxGetDevice");
    find(driver.cuCtxPushCurrent, "cuCtxPushCurrent_v2");
    find(driver.cuCtxPopCurrent, "cuCtxPopCurrent_v2");
    find(driver.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(driver.cuPointerGetAttribute, "cuPointerGetAttribute");
    find(driver.cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
    find(driver.cuLaunchKernelEx, "cuLaunchKernelEx");
    driver.check(driver.cuInit(0), "cuInit");
    return driver;
}

}  // namespace

const Driver& Driver::get() {
    static const Driver driver = load();  // a throw leaves it uninitialised: the next call tries again
    return driver;
}

void Driver::check(CUresult result, const std::string& call) const {
    if (result == 0) return;
    const char *name = nullptr, *text = nullptr;
    if (cuGetErrorName(result, &name) || !name) name = "unknown error";
    if (cuGetErrorString(result, &text) || !text) text = "no description";
    throw LaunchError(call + ": " + name + " (" + std::to_string(result) + "): " + text);
}

}  // namespace fa4launch
