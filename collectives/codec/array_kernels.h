#pragma once

// Codecs for arrays of any length, block by block. Only scalar.cpp, avx2.cpp and avx512.cpp may
// include this; block_kernels.h says why.

#include "collectives/codec/block_kernels.h"

namespace dtrun::collectives {

inline constexpr std::size_t kStreamBlocks = 16;  ///< blocks that are streamed from one buffer

/// Copies a buffer to any address, past the caches.
template <class V>
static inline void stream(unsigned char* to, const unsigned char* from, std::size_t bytes) {
    constexpr std::size_t line = 64;
    const std::size_t before = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    std::size_t i = before < bytes ? before : bytes;
    __builtin_memcpy(to, from, i);
    for (; i + line <= bytes; i += line) V::stream_line(to + i, from + i);
    __builtin_memcpy(to + i, from + i, bytes - i);
}

template <class V, class Codec, Rounding rounding>
class ArrayEncoder {
public:
    ArrayEncoder(std::uint64_t seed, const float* values, std::size_t count, unsigned char* out,
                 float* error)
        : mixed_seed_(mix64(seed)),
          values_(values),
          whole_(count / kBlock),
          rest_(count % kBlock),
          out_(out),
          error_(error) {}

    void run() const {
        if (whole_ * kBlock * sizeof(float) < kPastCachesBytes) {
            in_caches();
        } else {
            streamed();
        }
        if (rest_ != 0) tail();
    }

private:
    // Both functions compute a block's scale before they write the block in front of it, because
    // the last maximum and two divisions have a long latency. Both prefetch blocks some time ahead,
    // since memory would be idle while a block is computed.

    void in_caches() const {
        constexpr std::size_t ahead = 3;
        BlockScale next = whole_ == 0 ? BlockScale{} : scale(0);
        for (std::size_t i = 0; i < whole_; i++) {
            const BlockScale now = next;
            if (i + 1 < whole_) next = scale(i + 1);
            encode(i, i + ahead < whole_ ? i + ahead : i, now, out_ + i * Codec::kBytes);
        }
    }

    /// Alternates between four pages, since the processor prefetches within each page by itself.
    void streamed() const {
        constexpr std::size_t ahead = 8;
        alignas(64) unsigned char buffer[kStreamBlocks * Codec::kBytes];
        BlockScale next = scale(0);
        for (std::size_t k = 0; k < whole_; k++) {
            const std::size_t i = place(k);
            const BlockScale now = next;
            if (k + 1 < whole_) next = scale(place(k + 1));
            encode(i, k + ahead < whole_ ? place(k + ahead) : i, now,
                   buffer + i % kStreamBlocks * Codec::kBytes);
            const std::size_t filled = k % kStreamBlocks + 1;
            if (filled < kStreamBlocks && k + 1 < whole_) continue;
            stream<V>(out_ + (k + 1 - filled) * Codec::kBytes, buffer, filled * Codec::kBytes);
        }
        V::fence();
    }

    /// Index of the block that is encoded as the kth.
    std::size_t place(std::size_t k) const {
        constexpr std::size_t pages = 4;
        constexpr std::size_t blocks = kStreamBlocks / pages;
        const std::size_t first = k / kStreamBlocks * kStreamBlocks;
        if (first + kStreamBlocks > whole_) return k;
        return first + k % pages * blocks + (k - first) / pages;
    }

    BlockScale scale(std::size_t block) const { return Codec::scale(values_ + block * kBlock); }

    void encode(std::size_t block, std::size_t ahead, const BlockScale& scale,
                unsigned char* out) const {
        const BlockTask task{values_ + block * kBlock, out,
                             error_ == nullptr ? nullptr : error_ + block * kBlock,
                             key_of_block(mixed_seed_, block), values_ + ahead * kBlock};
        Codec::template encode<rounding>(task, scale);
    }

    void tail() const {
        const std::size_t at = whole_ * kBlock;
        const std::size_t bytes = rest_ * sizeof(float);
        float values[kBlock] = {};
        float error[kBlock] = {};
        unsigned char out[Codec::kBytes];
        __builtin_memcpy(values, values_ + at, bytes);
        if (error_ != nullptr) __builtin_memcpy(error, error_ + at, bytes);
        const BlockTask task{values, out, error_ == nullptr ? nullptr : error,
                             key_of_block(mixed_seed_, whole_), values};
        Codec::template encode<rounding>(task, Codec::scale(values));
        __builtin_memcpy(out_ + whole_ * Codec::kBytes, out, Codec::bytes_of(rest_));
        if (error_ != nullptr) __builtin_memcpy(error_ + at, error, bytes);
    }

    const std::uint64_t mixed_seed_;
    const float* const values_;
    const std::size_t whole_;  ///< blocks
    const std::size_t rest_;   ///< values after the whole blocks
    unsigned char* const out_;
    float* const error_;
};

template <class V, class Codec>
class ArrayDecoder {
public:
    static void decode(const unsigned char* in, std::size_t count, float* values,
                       bool past_caches) {
        const std::size_t whole = count / kBlock;
        if (!past_caches && count * sizeof(float) < kPastCachesBytes) {
            for (std::size_t i = 0; i < whole; i++) {
                Codec::decode(in + i * Codec::kBytes, values + i * kBlock);
            }
        } else {
            streamed(in, whole, values);
        }
        if (count % kBlock == 0) return;
        float tail[kBlock];
        Codec::decode(Tail(in, count).codes, tail);
        __builtin_memcpy(values + whole * kBlock, tail, count % kBlock * sizeof(float));
    }

    static void decode_add(const unsigned char* in, std::size_t count, float* sums) {
        const std::size_t whole = count / kBlock;
        for (std::size_t i = 0; i < whole; i++) {
            Codec::decode_add(in + i * Codec::kBytes, sums + i * kBlock);
        }
        if (count % kBlock == 0) return;
        const std::size_t bytes = count % kBlock * sizeof(float);
        float tail[kBlock] = {};
        __builtin_memcpy(tail, sums + whole * kBlock, bytes);
        Codec::decode_add(Tail(in, count).codes, tail);
        __builtin_memcpy(sums + whole * kBlock, tail, bytes);
    }

private:
    /// A last block that is not whole, with zeros behind it.
    struct Tail {
        Tail(const unsigned char* in, std::size_t count) {
            __builtin_memcpy(codes, in + count / kBlock * Codec::kBytes,
                             Codec::bytes_of(count % kBlock));
        }
        unsigned char codes[Codec::kBytes] = {};
    };

    static void streamed(const unsigned char* in, std::size_t blocks, float* values) {
        alignas(64) float buffer[kStreamBlocks * kBlock];
        for (std::size_t i = 0; i < blocks; i += kStreamBlocks) {
            const std::size_t now = blocks - i < kStreamBlocks ? blocks - i : kStreamBlocks;
            for (std::size_t k = 0; k < now; k++) {
                Codec::decode(in + (i + k) * Codec::kBytes, buffer + k * kBlock);
            }
            stream<V>(reinterpret_cast<unsigned char*>(values + i * kBlock),
                      reinterpret_cast<const unsigned char*>(buffer), now * kBlock * sizeof(float));
        }
        V::fence();
    }
};

/// What the codecs of a Kernels are made of.
template <class V>
struct ArrayCodec {
    static void encode(Format format, Rounding rounding, std::uint64_t seed, const float* values,
                       std::size_t count, unsigned char* out, float* error) {
        with_format(format, [&]<class Codec>(Codec) {
            if (rounding == Rounding::nearest) {
                ArrayEncoder<V, Codec, Rounding::nearest>(seed, values, count, out, error).run();
            } else {
                ArrayEncoder<V, Codec, Rounding::stochastic>(seed, values, count, out, error).run();
            }
        });
    }

    static void decode(Format format, const unsigned char* in, std::size_t count, float* values,
                       bool past_caches) {
        with_format(format, [&]<class Codec>(Codec) {
            ArrayDecoder<V, Codec>::decode(in, count, values, past_caches);
        });
    }

    static void decode_add(Format format, const unsigned char* in, std::size_t count, float* sums) {
        with_format(format, [&]<class Codec>(Codec) {
            ArrayDecoder<V, Codec>::decode_add(in, count, sums);
        });
    }

private:
    template <class F>
    static void with_format(Format format, F&& use) {
        switch (format) {
#define DTRUN_FORMAT(format, ...) \
    case Format::format:          \
        return use(BlockCodec<V, Format::format>());
#include "collectives/codec/formats.def"
#undef DTRUN_FORMAT
        }
    }
};

}  // namespace dtrun::collectives
