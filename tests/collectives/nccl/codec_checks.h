#pragma once

#include "collectives/backends/nccl/codec_cuda.h"
#include "tests/collectives/support/group_checks.h"

#include <cstddef>
#include <string>
#include <vector>

namespace dtrun::collectives {

/// Counts what is wrong and keeps what it is.
class Verdict {
public:
    void check(bool right, const std::string& what) {
        ++checks_;
        if (right) return;
        if (wrong_++ < kKept) texts_.push_back(what);
    }
    int checks() const { return checks_; }
    int wrong() const { return wrong_; }
    const std::vector<std::string>& texts() const { return texts_; }  ///< of the first ones

private:
    static constexpr int kKept = 20;
    int checks_ = 0;
    int wrong_ = 0;
    std::vector<std::string> texts_;
};

/// Block by block: usual gradients, any bits, denormal numbers, huge ones.
std::vector<float> test_values(std::size_t count, std::uint32_t seed);

/// Holds codecs for a GPU against those of the CPU, bit by bit: every format, aligned and not, whole
/// blocks and parts, with and without errors of error feedback. Nothing is written beside results.
/// \param memory   of the GPU that is current
/// \param largest  values of an array; all lengths up to it are taken
void check_codecs(const CudaCodecs& cuda, const DeviceMemory& memory, std::size_t largest,
                  Verdict& verdict);

}  // namespace dtrun::collectives
