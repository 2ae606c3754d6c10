// Tensor maps already encoded, by all their arguments.
#pragma once
#include <mutex>

#include "lru.h"
#include "tensor_map.h"

namespace fa4launch {

class Encodings {
  public:
    Encodings(Encoder encoder, size_t capacity) : encoder_(std::move(encoder)), known_(capacity) {}

    // Two threads that miss at once both encode; the result is the same.
    TensorMapBytes operator()(const TensorMapArgs& args) {
        {
            std::lock_guard lock(mutex_);
            if (const TensorMapBytes* found = known_.get(args)) {
                ++hits_;
                return *found;
            }
            ++misses_;
        }
        TensorMapBytes bytes = encoder_(args);
        std::lock_guard lock(mutex_);
        known_.put(args, bytes);
        return bytes;
    }

    struct Statistics {
        uint64_t hits, misses, evictions, entries;
    };
    Statistics statistics() {
        std::lock_guard lock(mutex_);
        return {hits_, misses_, known_.evictions(), known_.size()};
    }

    void clear() {
        std::lock_guard lock(mutex_);
        known_.clear();
    }

  private:
    Encoder encoder_;
    std::mutex mutex_;
    // Hashed by address and two dimensions: few maps agree in these.
    Lru<TensorMapArgs, TensorMapBytes, BytesHash<TensorMapArgs, 24>> known_;
    uint64_t hits_ = 0, misses_ = 0;
};

}  // namespace fa4launch
