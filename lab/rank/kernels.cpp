#include "lab/rank/kernels.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_SEVERAL_PROCESSORS \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_SEVERAL_PROCESSORS
#endif

namespace dtrun::lab::rank {

namespace {

using Quad [[gnu::vector_size(4 * sizeof(float))]] = float;

/// Few columns: their sums of several rows stay in registers.
template <std::size_t kColumns>
[[gnu::always_inline]] inline void multiply_add_narrow(const Matrix& a, const float* b, float* c,
                                                       std::size_t rows, std::size_t inner) {
    constexpr std::size_t kRows = 32 / kColumns;
    constexpr std::size_t kQuads = kColumns / 4;
    std::size_t row = 0;
    for (; row + kRows <= rows; row += kRows) {
        const float* factors = a.data + row * a.row_stride;
        Quad sums[kRows][kQuads];
        std::memcpy(sums, c + row * kColumns, sizeof sums);
        for (std::size_t i = 0; i < inner; ++i) {
            Quad of_b[kQuads];
            std::memcpy(of_b, b + i * kColumns, sizeof of_b);
            for (std::size_t j = 0; j < kRows; ++j)
                for (std::size_t k = 0; k < kQuads; ++k)
                    sums[j][k] += factors[j * a.row_stride + i * a.column_stride] * of_b[k];
        }
        std::memcpy(c + row * kColumns, sums, sizeof sums);
    }
    for (; row < rows; ++row)
        for (std::size_t i = 0; i < inner; ++i)
            for (std::size_t column = 0; column < kColumns; ++column)
                c[row * kColumns + column] +=
                    a.data[row * a.row_stride + i * a.column_stride] * b[i * kColumns + column];
}

}  // namespace

FOR_SEVERAL_PROCESSORS
void multiply_add(const Matrix& a, const float* b, float* c, std::size_t rows, std::size_t inner,
                  std::size_t columns) {
    if (columns == 8) return multiply_add_narrow<8>(a, b, c, rows, inner);
    if (columns == 16) return multiply_add_narrow<16>(a, b, c, rows, inner);
    for (std::size_t row = 0; row < rows; ++row) {
        const float* factors = a.data + row * a.row_stride;
        float* __restrict sums = c + row * columns;
        std::size_t i = 0;
        // Four rows of b at a time: c is loaded and stored a fourth as often.
        for (; i + 4 <= inner; i += 4) {
            const float f0 = factors[i * a.column_stride];
            const float f1 = factors[(i + 1) * a.column_stride];
            const float f2 = factors[(i + 2) * a.column_stride];
            const float f3 = factors[(i + 3) * a.column_stride];
            const float* b0 = b + i * columns;
            const float* b1 = b0 + columns;
            const float* b2 = b1 + columns;
            const float* b3 = b2 + columns;
            for (std::size_t column = 0; column < columns; ++column)
                sums[column] +=
                    (f0 * b0[column] + f1 * b1[column]) + (f2 * b2[column] + f3 * b3[column]);
        }
        for (; i < inner; ++i) {
            const float factor = factors[i * a.column_stride];
            for (std::size_t column = 0; column < columns; ++column)
                sums[column] += factor * b[i * columns + column];
        }
    }
}

void transpose(const float* in, float* out, std::size_t rows, std::size_t columns) {
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t column = 0; column < columns; ++column)
            out[column * rows + row] = in[row * columns + column];
}

void fill_rows(const float* bias, float* c, std::size_t rows, std::size_t columns) {
    for (std::size_t row = 0; row < rows; ++row)
        std::memcpy(c + row * columns, bias, columns * sizeof(float));
}

FOR_SEVERAL_PROCESSORS
void add_rows(const float* c, float* sums, std::size_t rows, std::size_t columns) {
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t column = 0; column < columns; ++column)
            sums[column] += c[row * columns + column];
}

FOR_SEVERAL_PROCESSORS
void rectify(float* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) values[i] = values[i] > 0 ? values[i] : 0;
}

FOR_SEVERAL_PROCESSORS
void rectify_back(const float* values, float* slopes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) slopes[i] = values[i] > 0 ? slopes[i] : 0;
}

void squares_to_rows(const float* image, const ImageShape& shape, std::size_t kernel, float* rows) {
    const std::size_t line = kernel * shape.channels;  // of a square; lies in one piece
    for (std::size_t y = 0; y + kernel <= shape.height; ++y)
        for (std::size_t x = 0; x + kernel <= shape.width; ++x)
            for (std::size_t dy = 0; dy < kernel; ++dy, rows += line)
                std::memcpy(rows, image + ((y + dy) * shape.width + x) * shape.channels,
                            line * sizeof(float));
}

void add_rows_to_squares(const float* rows, const ImageShape& shape, std::size_t kernel,
                         float* image) {
    const std::size_t line = kernel * shape.channels;
    for (std::size_t y = 0; y + kernel <= shape.height; ++y)
        for (std::size_t x = 0; x + kernel <= shape.width; ++x)
            for (std::size_t dy = 0; dy < kernel; ++dy, rows += line) {
                float* __restrict to = image + ((y + dy) * shape.width + x) * shape.channels;
                for (std::size_t i = 0; i < line; ++i) to[i] += rows[i];
            }
}

void pool(const float* image, const ImageShape& shape, float* out) {
    const std::size_t channels = shape.channels;
    const std::size_t line = shape.width * channels;
    for (std::size_t y = 0; y < shape.height; y += 2)
        for (std::size_t x = 0; x < shape.width; x += 2, out += channels) {
            const float* corner = image + y * line + x * channels;
            for (std::size_t i = 0; i < channels; ++i)
                out[i] = std::max(std::max(corner[i], corner[channels + i]),
                                  std::max(corner[line + i], corner[line + channels + i]));
        }
}

void pool_back(const float* image, const ImageShape& shape, const float* slopes, float* out) {
    const std::size_t channels = shape.channels;
    const std::size_t line = shape.width * channels;
    for (std::size_t y = 0; y < shape.height; y += 2)
        for (std::size_t x = 0; x < shape.width; x += 2, slopes += channels) {
            const std::size_t corner = y * line + x * channels;
            for (std::size_t i = 0; i < channels; ++i) {
                const std::size_t places[] = {corner + i, corner + channels + i, corner + line + i,
                                              corner + line + channels + i};
                std::size_t largest = places[0];
                for (const std::size_t place : places) {
                    if (image[place] > image[largest]) largest = place;
                    out[place] = 0;
                }
                out[largest] = slopes[i];
            }
        }
}

void descend(const Descent& descent, const float* __restrict slopes, float* __restrict velocities,
             float* __restrict values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        velocities[i] = descent.momentum * velocities[i] + slopes[i];
        values[i] -= descent.rate * velocities[i];
    }
}

FOR_SEVERAL_PROCESSORS
void to_floats(const std::uint8_t* bytes, float* out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(bytes[i]) * (1.0f / 255);
}

}  // namespace dtrun::lab::rank
