#pragma once

#include "collectives/backends/nccl/codec_values.cuh"

// Blocks of kBlock values. Half a warp has one of them, so that the scale's arithmetic and the
// search for the largest value serve two blocks at once; a lane has kEach values. Where all arrays are
// aligned, these are four times four that lie together, which one instruction loads; where not, what
// lies together is what the lanes load at once.
namespace dtrun::collectives::cuda {

constexpr unsigned kThreads = 256;
constexpr unsigned kLanes = 16;              ///< that share a block
constexpr unsigned kEach = kBlock / kLanes;  ///< values of a lane
constexpr unsigned kFour = 4;
constexpr unsigned kRow = kLanes * kFour;  ///< values that one aligned instruction covers
constexpr std::size_t kBlocksAtOnce = kThreads / kLanes;
static_assert(kEach == 4 * kFour);

/// Which part of which block is this lane's.
struct Place {
    std::size_t block;
    unsigned lane;
    unsigned count;  ///< values of the block; 0: behind the end

    __device__ bool whole() const { return count == kBlock; }
    __device__ std::size_t first() const { return block * kBlock; }
};

/// Lanes behind the end stay, as the others of their warp ask them for their values.
__device__ inline Place find_place(std::size_t count) {
    Place place;
    place.block = static_cast<std::size_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / kLanes;
    place.lane = threadIdx.x % kLanes;
    const std::size_t left = count > place.first() ? count - place.first() : 0;
    place.count = left < kBlock ? static_cast<unsigned>(left) : kBlock;
    return place;
}

/// The place in its block of a lane's value k.
template <bool aligned>
__device__ unsigned at(const Place& place, unsigned k) {
    return aligned ? k / kFour * kRow + place.lane * kFour + k % kFour : k * kLanes + place.lane;
}

// ---- arrays of floats --------------------------------------------------------------------------

/// \param values  of the whole array; what is missing in the last block is 0
template <bool aligned>
__device__ void load_values(const float* values, const Place& place, float (&x)[kEach]) {
    const float* const block = values + place.first();
    if (aligned && place.whole()) {
#pragma unroll
        for (unsigned four = 0; four < kEach / kFour; four++) {
            const float4 some =
                __ldcs(reinterpret_cast<const float4*>(block + four * kRow) + place.lane);
            x[four * kFour + 0] = some.x;
            x[four * kFour + 1] = some.y;
            x[four * kFour + 2] = some.z;
            x[four * kFour + 3] = some.w;
        }
        return;
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) {
        const unsigned i = at<aligned>(place, k);
        x[k] = i < place.count ? block[i] : 0.0f;
    }
}

template <bool aligned>
__device__ void store_values(float* values, const Place& place, const float (&x)[kEach]) {
    float* const block = values + place.first();
    if (aligned && place.whole()) {
#pragma unroll
        for (unsigned four = 0; four < kEach / kFour; four++) {
            const float* const some = x + four * kFour;
            reinterpret_cast<float4*>(block + four * kRow)[place.lane] =
                make_float4(some[0], some[1], some[2], some[3]);
        }
        return;
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) {
        const unsigned i = at<aligned>(place, k);
        if (i < place.count) block[i] = x[k];
    }
}

// ---- arrays of codes ---------------------------------------------------------------------------

/// A lane's codes of one block, and the block's scale if the format has one. Four codes of a byte or
/// two of 16 bits share a word, as they do in memory, for the sake of registers.
template <Format format>
struct Codes {
    static constexpr unsigned kInWord = sizeof(std::uint32_t) / value_bytes(format);
    static constexpr unsigned kBits = 8 * value_bytes(format);

    std::uint32_t word[kEach / kInWord];
    float scale;

    __device__ std::uint32_t code(unsigned k) const {
        return word[k / kInWord] >> k % kInWord * kBits & ((1u << kBits) - 1);
    }
    /// Of values k and k + 1, the first in the lower bits; what is above both is for the caller to ignore.
    /// \param k  even
    __device__ std::uint32_t pair(unsigned k) const {
        return word[k / kInWord] >> k % kInWord * kBits;
    }
};

template <Format format, bool aligned>
__device__ void load_block(const unsigned char* in, const Place& place, Codes<format>& codes) {
    constexpr unsigned bytes = value_bytes(format);
    const unsigned char* const from = in + scale_bytes(format);
    codes.scale = 1.0f;
    if (aligned && place.whole()) {
        if constexpr (has_scale(format)) codes.scale = *reinterpret_cast<const float*>(in);
#pragma unroll
        for (unsigned four = 0; four < kEach / kFour; four++) {
            const unsigned char* const row = from + four * kRow * bytes;
            if constexpr (bytes == 2) {
                const uint2 words = reinterpret_cast<const uint2*>(row)[place.lane];
                codes.word[2 * four] = words.x;
                codes.word[2 * four + 1] = words.y;
            } else {
                codes.word[four] = reinterpret_cast<const std::uint32_t*>(row)[place.lane];
            }
        }
        return;
    }
    if constexpr (has_scale(format)) {
        std::uint32_t bits = 0;
        for (unsigned b = 0; place.count > 0 && b < sizeof(float); b++)
            bits |= static_cast<std::uint32_t>(in[b]) << 8 * b;
        codes.scale = float_of(bits);
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) {
        const unsigned i = at<aligned>(place, k);
        std::uint32_t code = 0;
        for (unsigned b = 0; i < place.count && b < bytes; b++)
            code |= static_cast<std::uint32_t>(from[i * bytes + b]) << 8 * b;
        std::uint32_t& word = codes.word[k / codes.kInWord];
        word = k % codes.kInWord == 0 ? code : word | code << k % codes.kInWord * codes.kBits;
    }
}

template <Format format, bool aligned>
__device__ void store_block(unsigned char* out, const Place& place, const Codes<format>& codes) {
    constexpr unsigned bytes = value_bytes(format);
    unsigned char* const to = out + scale_bytes(format);
    if (aligned && place.whole()) {
        if (has_scale(format) && place.lane == 0) *reinterpret_cast<float*>(out) = codes.scale;
#pragma unroll
        for (unsigned four = 0; four < kEach / kFour; four++) {
            unsigned char* const row = to + four * kRow * bytes;
            if constexpr (bytes == 2) {
                reinterpret_cast<uint2*>(row)[place.lane] =
                    make_uint2(codes.word[2 * four], codes.word[2 * four + 1]);
            } else {
                reinterpret_cast<std::uint32_t*>(row)[place.lane] = codes.word[four];
            }
        }
        return;
    }
    if (has_scale(format) && place.lane == 0 && place.count > 0) {
        for (unsigned b = 0; b < sizeof(float); b++)
            out[b] = static_cast<unsigned char>(bits_of(codes.scale) >> 8 * b);
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) {
        const unsigned i = at<aligned>(place, k);
        for (unsigned b = 0; i < place.count && b < bytes; b++)
            to[i * bytes + b] = static_cast<unsigned char>(codes.code(k) >> 8 * b);
    }
}

// ---- coding ------------------------------------------------------------------------------------

template <Format format>
__device__ void decode_block(const Codes<format>& codes, float (&x)[kEach]) {
    const float factor = factor_of<format>(codes.scale);
#pragma unroll
    for (unsigned k = 0; k < kEach; k += 2) value_pair<format>(codes.pair(k), x + k);
#pragma unroll
    for (unsigned k = 0; k < kEach; k++)
        if constexpr (has_factor<format>()) x[k] = __fmul_rn(x[k], factor);
}

__device__ inline std::uint32_t largest_of_block(const float (&x)[kEach]) {
    std::uint32_t most = 0;
#pragma unroll
    for (unsigned k = 0; k < kEach; k++) most = max(most, bits_of(x[k]) & kMagnitudeBits);
#pragma unroll
    for (unsigned lanes = kLanes / 2; lanes > 0; lanes /= 2)
        most = max(most, __shfl_xor_sync(~0u, most, lanes));
    return most;
}

/// Random bits for a lane's values k and k + 1, where each of these is in the block.
template <bool aligned>
__device__ std::uint32_t random_bits(const BlockKey& key, const Place& place, unsigned k) {
    const unsigned first = at<aligned>(place, k);
    const std::uint32_t pair = random_pair(key, key.start + first / 2 * kPairStep);
    if constexpr (aligned) return pair;
    const unsigned second = at<aligned>(place, k + 1);
    const std::uint32_t other = random_pair(key, key.start + second / 2 * kPairStep);
    const unsigned shift = 16 * (place.lane % 2);
    return (pair >> shift & 0xffff) | (other >> shift & 0xffff) << 16;
}

/// Four codes, of which only the lower bits count, in the words that they have in Codes.
template <Format format>
__device__ void pack(const std::uint32_t (&four)[kFour], std::uint32_t* words) {
    if constexpr (value_bytes(format) == 2) {
        words[0] = __byte_perm(four[0], four[1], 0x5410);
        words[1] = __byte_perm(four[2], four[3], 0x5410);
    } else {
        words[0] = __byte_perm(__byte_perm(four[0], four[1], 0x0040),
                               __byte_perm(four[2], four[3], 0x0040), 0x5410);
    }
}

template <Format format, Rounding rounding, bool aligned>
__device__ void encode_block(std::uint64_t mixed_seed, const Place& place, const float (&x)[kEach],
                             Codes<format>& codes) {
    constexpr unsigned words = kFour / Codes<format>::kInWord;
    float inverse = 1.0f;
    bool finite = true;
    codes.scale = 1.0f;
    if constexpr (has_scale(format)) {
        codes.scale = block_scale<format>(largest_of_block(x));
        finite = is_finite(codes.scale);
        inverse = inverse_of(codes.scale);
    }
    BlockKey key{};
    if constexpr (rounding == Rounding::stochastic) key = key_of_block(mixed_seed, place.block);
#pragma unroll
    for (unsigned k = 0; k < kEach; k += kFour) {
        std::uint32_t four[kFour];
#pragma unroll
        for (unsigned pair = 0; pair < kFour; pair += 2) {
            const float* const two = x + k + pair;
            std::uint32_t random = 0;
            if constexpr (rounding == Rounding::stochastic)
                random = random_bits<aligned>(key, place, k + pair);
            const float first = has_scale(format) ? __fmul_rn(two[0], inverse) : two[0];
            const float second = has_scale(format) ? __fmul_rn(two[1], inverse) : two[1];
            code_pair<format, rounding>(first, second, random, four + pair);
        }
        pack<format>(four, codes.word + k / kFour * words);
    }
#pragma unroll
    for (std::uint32_t& word : codes.word) word = finite ? word : 0;
}

/// What coding has lost of values: 0 where it is no number, so that a block that has blown up does
/// not spoil those of later calls. -0 becomes 0, as it does where errors are sums.
__device__ inline float lost(float value, float back, float factor) {
    const float error = __fadd_rn(__fmul_rn(__fsub_rn(value, back), factor), 0.0f);
    return is_finite(error) ? error : 0.0f;
}

}  // namespace dtrun::collectives::cuda
