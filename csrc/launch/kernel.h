// A kernel on the GPU: loaded from its cubin, launched with a packed parameter block.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"

namespace fa4launch {

constexpr size_t kMostParameters = 128;

struct KernelShape {
    std::string name;
    std::array<uint32_t, 3> block{1, 1, 1}, cluster{1, 1, 1};
    uint32_t smem_bytes = 0;              // dynamic shared memory
    bool pdl = false;                     // may start before the stream's previous kernel has ended
    std::vector<uint32_t> param_offsets;  // bytes, in the parameters' order
    uint32_t param_bytes = 0;
};

// Works in every context of every device: the driver loads a library's code into a context on first use. It is never
// unloaded, since a captured CUDA graph may hold the kernel for longer than this object lives.
class Kernel {
  public:
    // NoDriver without a driver, LaunchError if the driver does not take the code or has no such kernel in it.
    Kernel(const std::string& cubin, KernelShape shape);

    // Loads into the current context of `device` (its primary one if none is current), so that a later launch does
    // nothing that a stream capture would refuse.
    void prepare(int device);

    // Asynchronous. `block`: shape().param_bytes bytes, aligned to 64. grid counts CTAs.
    void launch(int device, CUstream stream, const std::array<uint32_t, 3>& grid, const uint8_t* block);

    const KernelShape& shape() const { return shape_; }

  private:
    struct Ready {
        CUcontext context;
        int device;
    };
    // The current context is the device's and has the kernel.
    bool is_ready(int device) const;
    void prepare_current(int device);

    KernelShape shape_;
    CUkernel kernel_ = nullptr;
    std::atomic<const Ready*> last_ready_{nullptr};
    std::mutex mutex_;  // of ready_
    std::deque<Ready> ready_;
};

}  // namespace fa4launch
