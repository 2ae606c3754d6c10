// Bounds-checked windows on the memory of the emulated device, and the error that everything below throws.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace fa4emu {

// A violation of the ISA or of memory bounds. Thrown without a location; the executor adds kernel, CTA, warp and line.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// No warp can advance and no asynchronous work is in flight.
struct Deadlock : Fault {
    using Fault::Fault;
};

std::string format(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

// Global memory. Both return host pointers to n bytes and throw Fault if any of them is unmapped or read-only.
class GlobalView {
  public:
    virtual ~GlobalView() = default;
    virtual const uint8_t* read(uint64_t address, uint64_t bytes) = 0;
    virtual uint8_t* write(uint64_t address, uint64_t bytes) = 0;
    virtual bool writable(uint64_t address) const = 0;  // whether a kernel may write there
};

// Shared memory of one CTA. Addresses count from the start of the CTA's window, which is 1024-aligned.
class SharedView {
  public:
    SharedView(uint8_t* data, uint32_t size) : data_(data), size_(size) {}
    uint32_t size() const { return size_; }
    uint8_t* at(uint32_t address, uint32_t bytes) const {
        if (uint64_t(address) + bytes > size_)
            throw Fault(format("shared address 0x%x + %u bytes is outside the CTA's %u bytes", address, bytes, size_));
        return data_ + address;
    }

  private:
    uint8_t* data_;
    uint32_t size_;
};

}  // namespace fa4emu
