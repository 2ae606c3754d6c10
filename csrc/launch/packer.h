// Operands and scalars of one call -> the parameter block of a kernel, by the artifact's record.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tensor_map.h"

namespace fa4launch {

// A (batch, heads, seqlen, head dim) tensor in device memory.
struct Operand {
    uint64_t address = 0;
    int64_t shape[4] = {};
    int64_t strides[4] = {};  // elements; the last is 1
    uint8_t dtype = 0;        // CUtensorMapDataType
    uint8_t element_bytes = 0;
};

enum class Kind { tensor_map, dims, i32, f32, address };

struct Param {
    std::string name;
    Kind kind = Kind::i32;
    uint32_t offset = 0, size = 0;  // bytes
    uint32_t source = 0;            // index of the operand, or of the scalar
    uint32_t box[4] = {};           // tensor maps: elements, innermost first
    uint8_t swizzle = 0, oob_nan = 0;
};

// A kernel parameter's value; the parameter's kind says which member counts.
struct Scalar {
    int64_t integer = 0;
    double real = 0;
    uint64_t address = 0;
};

constexpr uint32_t kMostParameterBytes = 4096;
constexpr uint32_t kMostScalars = 32;

// A tensor map in a parameter block.
struct BlockMap {
    uint32_t offset = 0;  // bytes
    uint32_t source = 0;  // index of the operand
    TensorMapArgs args;
};

class Packer {
  public:
    // std::invalid_argument if a size does not fit its kind, or there is more than a launch may pass.
    explicit Packer(std::vector<Param> params);

    // Fills `block` (bytes() long). std::invalid_argument naming the parameter for a value that does not fit.
    void pack(uint8_t* block, const Operand* operands, const Scalar* scalars, const Encoder& encode) const;
    // The same but for the tensor maps, which are returned.
    std::vector<BlockMap> fill(uint8_t* block, const Operand* operands, const Scalar* scalars) const;

    uint32_t bytes() const { return bytes_; }
    const std::vector<Param>& params() const { return params_; }
    const std::vector<std::string>& tensors() const { return tensors_; }  // operands in the order pack wants them
    const std::vector<std::string>& scalars() const { return scalars_; }

  private:
    std::vector<Param> params_;
    std::vector<std::string> tensors_, scalars_;
    uint32_t bytes_ = 0;
};

// Dimensions (head dim, seqlen, heads, batch). A dimension of length 1 may carry any stride and gets one TMA accepts.
TensorMapArgs tensor_map_args(const Param& param, const Operand& operand);

}  // namespace fa4launch
