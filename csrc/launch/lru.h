// A bounded map that forgets what has not been asked for longest.
#pragma once
#include <cstdint>
#include <cstring>
#include <list>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace fa4launch {

// Hash of a value without padding, by its leading bytes (the rest must seldom be all that differs).
template <class T, size_t Bytes = sizeof(T)>
struct BytesHash {
    static_assert(std::has_unique_object_representations_v<T> && Bytes % 8 == 0 && Bytes <= sizeof(T));
    size_t operator()(const T& value) const {
        uint64_t state = 0x9e3779b97f4a7c15ull, word;
        for (size_t at = 0; at < Bytes; at += 8) {
            std::memcpy(&word, reinterpret_cast<const char*>(&value) + at, 8);
            state = (state ^ word) * 0xff51afd7ed558ccdull;
            state ^= state >> 32;
        }
        return state;
    }
};

// Not thread-safe: the owner locks.
template <class Key, class Value, class Hash = BytesHash<Key>>
class Lru {
  public:
    explicit Lru(size_t capacity) : capacity_(capacity) {}

    // nullptr on a miss; valid until the next put.
    Value* get(const Key& key) {
        auto found = index_.find(key);
        if (found == index_.end()) return nullptr;
        if (found->second != order_.begin()) order_.splice(order_.begin(), order_, found->second);
        return &order_.front().second;
    }

    void put(const Key& key, Value value) {
        if (Value* present = get(key)) {
            *present = std::move(value);
            return;
        }
        if (!capacity_) return;
        if (index_.size() == capacity_) {
            index_.erase(order_.back().first);
            order_.pop_back();
            ++evictions_;
        }
        order_.emplace_front(key, std::move(value));
        index_.emplace(key, order_.begin());
    }

    void clear() {
        index_.clear();
        order_.clear();
    }

    size_t size() const { return index_.size(); }
    uint64_t evictions() const { return evictions_; }

  private:
    size_t capacity_;
    uint64_t evictions_ = 0;
    std::list<std::pair<Key, Value>> order_;  // most recent first
    std::unordered_map<Key, typename std::list<std::pair<Key, Value>>::iterator, Hash> index_;
};

}  // namespace fa4launch
