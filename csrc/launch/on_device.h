// A thread that has not used CUDA yet has no context; one that has may be at another device.
#pragma once

#include "driver.h"

namespace fa4launch {

// A context of the device is current while this lives.
class OnDevice {
  public:
    explicit OnDevice(int device) : driver_(Driver::get()) {
        CUdevice current = -1;
        CUresult result = driver_.cuCtxGetDevice(&current);
        if (result == 0 && current == device) return;
        if (result != 0 && result != kErrorInvalidContext) driver_.check(result, "cuCtxGetDevice");
        // Retained once more each time: the primary context is torch's, which keeps it for the whole process.
        CUcontext primary = nullptr;
        driver_.check(driver_.cuDevicePrimaryCtxRetain(&primary, device), "cuDevicePrimaryCtxRetain");
        driver_.check(driver_.cuCtxPushCurrent(primary), "cuCtxPushCurrent");
        pushed_ = true;
    }
    ~OnDevice() {
        CUcontext popped;
        if (pushed_) driver_.cuCtxPopCurrent(&popped);
    }
    OnDevice(const OnDevice&) = delete;

  private:
    const Driver& driver_;
    bool pushed_ = false;
};

}  // namespace fa4launch
