// Issue of asynchronous copies: announces them to the observers and queues them.
#pragma once

#include <functional>

#include "state.h"

namespace fa4emu {

// A copy into shared memory that counts `bytes` on the mbarrier at a kernel address once `copy` has been done.
void submit_copy_in(Warp& warp, const Inst& inst, int lane, uint32_t barrier, uint32_t bytes,
                    const Footprint& footprint, std::function<void()> copy);

// A copy that belongs to the open bulk group of the thread.
void submit_copy_out(Warp& warp, const Inst& inst, int lane, const Footprint& footprint, std::function<void()> copy);

}  // namespace fa4emu
