// A launch: independent CTAs over worker threads.
#pragma once

#include "state.h"

namespace fa4emu {

// Runs all CTAs; throws the Fault of the lowest CTA that failed, so that the error does not depend on thread timing.
Stats run_grid(const Program& program, const Launch& launch, GlobalView& global, int workers);

}  // namespace fa4emu
