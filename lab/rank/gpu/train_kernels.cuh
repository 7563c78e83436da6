#pragma once

#include "lab/rank/gpu/train_cuda.h"

#include <cmath>

/// One thread computes one item: a tile of a product, a value, or an image. Threads share nothing and
/// add nothing to what others write, so that results do not depend on their order.
namespace dtrun::lab::rank::cuda {

constexpr unsigned kThreads = 256;  ///< of a block
/// Digits that images show, and so scores of an image: kDigits of images.h.
constexpr unsigned kScores = 10;
/// A thread has kTile x kTile sums of a product in registers.
constexpr unsigned kTile = 4;

__device__ inline std::size_t item() {
    return static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ inline std::size_t least(std::size_t a, std::size_t b) {
    return a < b ? a : b;
}

/// What becomes of a sum in the end.
__device__ inline float finished(const Product& product, std::size_t column, float sum) {
    if (product.bias != nullptr) sum = __fadd_rn(sum, product.bias[column]);
    return product.rectified && !(sum > 0.0f) ? 0.0f : sum;
}

/// The sums of a tile over `inner` from `begin` to `end`. Rows and columns beyond the matrices' are
/// those at their ends, since reading these is harmless.
__device__ inline void add_tile(const Product& product, std::size_t row, std::size_t column,
                                std::size_t begin, std::size_t end, float (&sums)[kTile][kTile]) {
    std::size_t rows[kTile], columns[kTile];
#pragma unroll
    for (unsigned i = 0; i < kTile; i++) {
        rows[i] = least(row + i, product.rows - 1) * product.a.row_stride;
        columns[i] = least(column + i, product.columns - 1) * product.b.column_stride;
    }
    for (std::size_t k = begin; k < end; k++) {
        const float* const a = product.a.data + k * product.a.column_stride;
        const float* const b = product.b.data + k * product.b.row_stride;
        float of_a[kTile], of_b[kTile];
#pragma unroll
        for (unsigned i = 0; i < kTile; i++) {
            of_a[i] = a[rows[i]];
            of_b[i] = b[columns[i]];
        }
#pragma unroll
        for (unsigned i = 0; i < kTile; i++)
#pragma unroll
            for (unsigned j = 0; j < kTile; j++)
                sums[i][j] = __fmaf_rn(of_a[i], of_b[j], sums[i][j]);
    }
}

/// A tile of a product. With several `parts` each thread adds up its part of `inner`, and the parts
/// lie one behind the other in `out`, unfinished.
__global__ void __launch_bounds__(kThreads)
    multiply_kernel(Product product, unsigned parts, float* out) {
    const std::size_t tiles_across = (product.columns + kTile - 1) / kTile;
    const std::size_t tiles = tiles_across * ((product.rows + kTile - 1) / kTile);
    const std::size_t tile = item() % tiles;
    const std::size_t part = item() / tiles;
    if (part >= parts) return;
    const std::size_t row = tile / tiles_across * kTile;
    const std::size_t column = tile % tiles_across * kTile;
    float sums[kTile][kTile] = {};
    add_tile(product, row, column, product.inner * part / parts, product.inner * (part + 1) / parts,
             sums);
    float* const to = out + part * product.rows * product.columns;
#pragma unroll
    for (unsigned i = 0; i < kTile; i++)
#pragma unroll
        for (unsigned j = 0; j < kTile; j++) {
            if (row + i >= product.rows || column + j >= product.columns) continue;
            const float sum = sums[i][j];
            to[(row + i) * product.columns + column + j] =
                parts > 1 ? sum : finished(product, column + j, sum);
        }
}

/// Adds the parts of a product up.
__global__ void __launch_bounds__(kThreads)
    sum_kernel(Product product, unsigned parts, const float* sums) {
    const std::size_t count = product.rows * product.columns;
    const std::size_t i = item();
    if (i >= count) return;
    float sum = sums[i];
    for (unsigned part = 1; part < parts; part++) sum = __fadd_rn(sum, sums[part * count + i]);
    product.out[i] = finished(product, i % product.columns, sum);
}

__global__ void __launch_bounds__(kThreads)
    to_floats_kernel(const std::uint8_t* pixels, const std::uint32_t* picks, std::size_t images,
                     std::size_t image_bytes, float* out) {
    const std::size_t i = item();
    if (i >= images * image_bytes) return;
    const std::size_t image = i / image_bytes;
    const std::size_t from = picks != nullptr ? picks[image] : image;
    out[i] =
        __fmul_rn(static_cast<float>(pixels[from * image_bytes + i % image_bytes]), 1.0f / 255);
}

/// How many squares an image has across and down.
__device__ inline std::size_t squares_across(const Squares& squares) {
    return squares.width - squares.kernel + 1;
}
__device__ inline std::size_t squares_down(const Squares& squares) {
    return squares.height - squares.kernel + 1;
}

/// Where the value (y, x, channel) of an image is.
__device__ inline std::size_t place_of(const Squares& squares, std::size_t image, std::size_t y,
                                       std::size_t x, std::size_t channel) {
    return ((image * squares.height + y) * squares.width + x) * squares.channels + channel;
}

__global__ void __launch_bounds__(kThreads)
    squares_to_rows_kernel(Squares squares, const float* images, float* rows) {
    const std::size_t row_values = squares.kernel * squares.kernel * squares.channels;
    const std::size_t across = squares_across(squares);
    const std::size_t each = across * squares_down(squares);  // squares of an image
    const std::size_t i = item();
    if (i >= squares.images * each * row_values) return;
    const std::size_t row = i / row_values;
    const std::size_t in_row = i % row_values;
    const std::size_t square = row % each;
    const std::size_t channel = in_row % squares.channels;
    const std::size_t dx = in_row / squares.channels % squares.kernel;
    const std::size_t dy = in_row / squares.channels / squares.kernel;
    rows[i] =
        images[place_of(squares, row / each, square / across + dy, square % across + dx, channel)];
}

/// A thread adds up what all squares have of its value.
__global__ void __launch_bounds__(kThreads)
    rows_to_squares_kernel(Squares squares, const float* rows, float* images) {
    const std::size_t i = item();
    if (i >= squares.images * squares.height * squares.width * squares.channels) return;
    const std::size_t channel = i % squares.channels;
    const std::size_t x = i / squares.channels % squares.width;
    const std::size_t y = i / squares.channels / squares.width % squares.height;
    const std::size_t image = i / squares.channels / squares.width / squares.height;
    const std::size_t across = squares_across(squares);
    const std::size_t down = squares_down(squares);
    float sum = 0;
    for (std::size_t dy = 0; dy < squares.kernel && dy <= y; dy++) {
        if (y - dy >= down) continue;
        for (std::size_t dx = 0; dx < squares.kernel && dx <= x; dx++) {
            if (x - dx >= across) continue;
            const std::size_t row = (image * down + y - dy) * across + x - dx;
            const std::size_t in_row = (dy * squares.kernel + dx) * squares.channels + channel;
            sum = __fadd_rn(
                sum, rows[row * squares.kernel * squares.kernel * squares.channels + in_row]);
        }
    }
    images[i] = sum;
}

/// A square of pooling: its first value, and where it is among all of them.
struct PoolSquare {
    std::size_t image, y, x, channel;
    bool is_one;
};

__device__ inline PoolSquare pool_square(const Squares& squares) {
    const std::size_t across = squares.width / squares.kernel;
    const std::size_t down = squares.height / squares.kernel;
    const std::size_t i = item();
    PoolSquare square;
    square.channel = i % squares.channels;
    square.x = i / squares.channels % across * squares.kernel;
    square.y = i / squares.channels / across % down * squares.kernel;
    square.image = i / squares.channels / across / down;
    square.is_one = square.image < squares.images;
    return square;
}

/// Where the largest value of a square is; the first of them if there are several.
__device__ inline std::size_t largest_of(const Squares& squares, const PoolSquare& square,
                                         const float* images) {
    std::size_t largest = place_of(squares, square.image, square.y, square.x, square.channel);
    for (std::size_t dy = 0; dy < squares.kernel; dy++)
        for (std::size_t dx = 0; dx < squares.kernel; dx++) {
            const std::size_t place =
                place_of(squares, square.image, square.y + dy, square.x + dx, square.channel);
            if (images[place] > images[largest]) largest = place;
        }
    return largest;
}

__global__ void __launch_bounds__(kThreads)
    pool_kernel(Squares squares, const float* images, float* out) {
    const PoolSquare square = pool_square(squares);
    if (square.is_one) out[item()] = images[largest_of(squares, square, images)];
}

__global__ void __launch_bounds__(kThreads)
    pool_back_kernel(Squares squares, const float* images, const float* slopes, float* out) {
    const PoolSquare square = pool_square(squares);
    if (!square.is_one) return;
    const std::size_t largest = largest_of(squares, square, images);
    for (std::size_t dy = 0; dy < squares.kernel; dy++)
        for (std::size_t dx = 0; dx < squares.kernel; dx++) {
            const std::size_t place =
                place_of(squares, square.image, square.y + dy, square.x + dx, square.channel);
            out[place] = place == largest ? slopes[item()] : 0.0f;
        }
}

__global__ void __launch_bounds__(kThreads)
    rectify_back_kernel(const float* values, float* slopes, std::size_t count) {
    const std::size_t i = item();
    if (i < count && !(values[i] > 0.0f)) slopes[i] = 0.0f;
}

/// The place of the largest score; the first of them if there are several.
__device__ inline unsigned largest_score(const float* scores) {
    unsigned largest = 0;
    for (unsigned i = 1; i < kScores; i++)
        if (scores[i] > scores[largest]) largest = i;
    return largest;
}

__global__ void __launch_bounds__(kThreads)
    lose_kernel(const float* all_scores, const std::uint8_t* labels, const std::uint32_t* picks,
                std::size_t images, float scale, float* all_slopes, double* losses) {
    const std::size_t image = item();
    if (image >= images) return;
    const float* const scores = all_scores + image * kScores;
    float* const slopes = all_slopes + image * kScores;
    const unsigned label = labels[picks[image]];
    const float largest = scores[largest_score(scores)];
    float powers[kScores];
    float sum = 0;
    for (unsigned i = 0; i < kScores; i++) {
        powers[i] = expf(__fsub_rn(scores[i], largest));
        sum = __fadd_rn(sum, powers[i]);
    }
    for (unsigned i = 0; i < kScores; i++)
        slopes[i] =
            __fmul_rn(scale, __fsub_rn(__fdiv_rn(powers[i], sum), i == label ? 1.0f : 0.0f));
    const float probability = __fdiv_rn(powers[label], sum);
    losses[image] -= logf(probability < 1e-30f ? 1e-30f : probability);  // NaN stays NaN
}

__global__ void __launch_bounds__(kThreads)
    count_right_kernel(const float* scores, const std::uint8_t* labels, std::size_t images,
                       std::uint32_t* right) {
    const std::size_t image = item();
    if (image < images && largest_score(scores + image * kScores) == labels[image]) right[image]++;
}

__global__ void __launch_bounds__(kThreads)
    descend_kernel(float rate, float momentum, const float* slopes, float* velocities,
                   float* values, std::size_t count) {
    const std::size_t i = item();
    if (i >= count) return;
    velocities[i] = __fadd_rn(__fmul_rn(momentum, velocities[i]), slopes[i]);
    values[i] = __fsub_rn(values[i], __fmul_rn(rate, velocities[i]));
}

}  // namespace dtrun::lab::rank::cuda
