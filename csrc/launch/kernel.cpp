#include "kernel.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "on_device.h"

namespace fa4launch {

namespace {

std::string text(const std::array<uint32_t, 3>& xyz) {
    char buffer[48];
    std::snprintf(buffer, sizeof buffer, "(%u, %u, %u)", xyz[0], xyz[1], xyz[2]);
    return buffer;
}

}  // namespace

Kernel::Kernel(const std::string& cubin, KernelShape shape) : shape_(std::move(shape)) {
    if (shape_.param_offsets.size() > kMostParameters)
        throw std::invalid_argument("kernel: " + std::to_string(shape_.param_offsets.size()) +
                                    " parameters, wanted at most " + std::to_string(kMostParameters));
    const Driver& driver = Driver::get();
    CUlibrary library = nullptr;
    driver.check(driver.cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                 "cuLibraryLoadData");
    driver.check(driver.cuLibraryGetKernel(&kernel_, library, shape_.name.c_str()),
                 "cuLibraryGetKernel(" + shape_.name + ")");
}

bool Kernel::is_ready(int device) const {
    const Ready* last = last_ready_.load(std::memory_order_acquire);
    CUcontext context = nullptr;
    return last && last->device == device && !Driver::get().cuCtxGetCurrent(&context) && context == last->context;
}

void Kernel::prepare(int device) {
    OnDevice guard(device);
    prepare_current(device);
}

void Kernel::prepare_current(int device) {
    const Driver& driver = Driver::get();
    CUcontext context = nullptr;
    driver.check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
    std::lock_guard lock(mutex_);
    auto ready = std::find_if(ready_.begin(), ready_.end(), [&](const Ready& r) { return r.context == context; });
    if (ready == ready_.end()) {
        auto set = [&](int attribute, int value, const char* name) {
            driver.check(driver.cuKernelSetAttribute(attribute, value, kernel_, device),
                         std::string("cuKernelSetAttribute(") + name + ", " + std::to_string(value) + ")");
        };
        set(kFuncAttributeMaxDynamicSharedBytes, int(shape_.smem_bytes), "MAX_DYNAMIC_SHARED_SIZE_BYTES");
        if (shape_.cluster[0] * shape_.cluster[1] * shape_.cluster[2] > 8)
            set(kFuncAttributeNonPortableClusterSize, 1, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED");
        CUfunction loaded = nullptr;
        driver.check(driver.cuKernelGetFunction(&loaded, kernel_), "cuKernelGetFunction");
        ready = ready_.insert(ready_.end(), {context, device});
    }
    last_ready_.store(&*ready, std::memory_order_release);
}

void Kernel::launch(int device, CUstream stream, const std::array<uint32_t, 3>& grid, const uint8_t* block) {
    std::optional<OnDevice> guard;
    if (!is_ready(device)) {
        guard.emplace(device);
        prepare_current(device);
    }
    CUlaunchAttribute attributes[2] = {};
    CUlaunchConfig config{};
    std::copy(grid.begin(), grid.end(), config.grid);
    std::copy(shape_.block.begin(), shape_.block.end(), config.block);
    config.shared_bytes = shape_.smem_bytes;
    config.stream = stream;
    config.attributes = attributes;
    if (shape_.cluster != std::array<uint32_t, 3>{1, 1, 1}) {
        CUlaunchAttribute& attribute = attributes[config.attribute_count++];
        attribute.id = kLaunchAttributeClusterDimension;
        attribute.cluster = {shape_.cluster[0], shape_.cluster[1], shape_.cluster[2]};
    }
    if (shape_.pdl) {
        CUlaunchAttribute& attribute = attributes[config.attribute_count++];
        attribute.id = kLaunchAttributeProgrammaticStreamSerialization;
        attribute.programmatic_serialization_allowed = 1;
    }
    void* pointers[kMostParameters];
    for (size_t i = 0; i < shape_.param_offsets.size(); ++i)
        pointers[i] = const_cast<uint8_t*>(block) + shape_.param_offsets[i];
    const Driver& driver = Driver::get();
    // A kernel's handle is accepted in place of a function's; the driver picks the current context's copy.
    CUresult result = driver.cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel_), pointers, nullptr);
    if (result)
        driver.check(result, "cuLaunchKernelEx(" + shape_.name.substr(0, 60) + ", grid " + text(grid) + ", block " +
                                 text(shape_.block) + ", cluster " + text(shape_.cluster) + ", " +
                                 std::to_string(shape_.smem_bytes) + " bytes of shared memory)");
}

}  // namespace fa4launch
