// Global memory: host buffers mapped at virtual device addresses with unmapped gaps between them.
#pragma once

#include <map>
#include <string>

#include "views.h"

namespace fa4emu {

class GlobalMemory : public GlobalView {
  public:
    // Returns the address of the first byte. Deterministic: depends on the order and sizes of the mappings only.
    uint64_t map(uint8_t* data, uint64_t bytes, const std::string& name, bool writable) {
        uint64_t address = next_;
        regions_[address] = {data, bytes, name, writable};
        next_ += (bytes + kGap + kAlign - 1) / kAlign * kAlign + kGap;
        return address;
    }
    void clear() { regions_.clear(), next_ = kFirst; }
    const uint8_t* read(uint64_t address, uint64_t bytes) override { return find(address, bytes, "read", false); }
    uint8_t* write(uint64_t address, uint64_t bytes) override { return find(address, bytes, "write", true); }
    bool writable(uint64_t address) const override {
        auto after = regions_.upper_bound(address);
        return after != regions_.begin() && std::prev(after)->second.writable;
    }

  private:
    static constexpr uint64_t kFirst = 0x7000'0000'0000, kGap = 1 << 20, kAlign = 256;
    struct Region {
        uint8_t* data;
        uint64_t bytes;
        std::string name;
        bool writable;
    };
    uint8_t* find(uint64_t address, uint64_t bytes, const char* what, bool writes) {
        auto after = regions_.upper_bound(address);
        if (after != regions_.begin()) {
            auto& [start, region] = *std::prev(after);
            if (address + bytes <= start + region.bytes) {
                if (writes && !region.writable)
                    throw Fault(format("write to '%s', which is read-only", region.name.c_str()));
                return region.data + (address - start);
            }
            if (address < start + region.bytes + kGap)
                throw Fault(format("global %s of %llu bytes ends %llu bytes past the end of '%s'", what,
                                   static_cast<unsigned long long>(bytes),
                                   static_cast<unsigned long long>(address + bytes - start - region.bytes),
                                   region.name.c_str()));
        }
        throw Fault(
            format("global %s at 0x%llx: nothing is mapped there", what, static_cast<unsigned long long>(address)));
    }
    std::map<uint64_t, Region> regions_;
    uint64_t next_ = kFirst;
};

}  // namespace fa4emu
