// Address spaces as 64-bit generic addresses.
#pragma once

#include "state.h"

namespace fa4emu {

constexpr uint64_t kParamBase = uint64_t(1) << 60;  // generic addresses of kernel parameters

TensorMap tensor_map_at(Warp& warp, uint64_t address);  // in the parameter block or in global memory

}  // namespace fa4emu
