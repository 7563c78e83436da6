#pragma once

#include "lab/rank/gpu/train_kernels.cuh"

#include <initializer_list>

// The functions of TrainKernels, made of kernels. Who includes this has declared, in this namespace,
//   template <class Kernel, class... Arguments>
//   int start(Kernel kernel, unsigned grid, void* stream, Arguments... arguments);
// that starts a kernel on a GPU, or does its work on a CPU, and returns 0 or a cudaError_t.
namespace dtrun::lab::rank::cuda {

/// Threads that a product is spread over, if there is enough to do: some for each of a large GPU's
/// processors.
constexpr std::size_t kThreadsWanted = 1 << 15;
/// The least values of `inner` that a thread adds up, since adding parts up costs too.
constexpr std::size_t kInnerLeast = 64;
constexpr std::size_t kPartsMost = 128;

inline unsigned grid_of(std::size_t items) {
    return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

/// Starts a kernel with a thread for each of so many items.
template <class Kernel, class... Arguments>
int start_for(std::size_t items, void* stream, Kernel kernel, Arguments... arguments) {
    return items == 0 ? 0 : start(kernel, grid_of(items), stream, arguments...);
}

inline std::size_t tiles_of(const Product& product) {
    return (product.rows + kTile - 1) / kTile * ((product.columns + kTile - 1) / kTile);
}

/// In how many parts `inner` is added up.
inline unsigned parts_of(const Product& product) {
    const std::size_t count = product.rows * product.columns;
    std::size_t parts = kPartsMost;
    for (const std::size_t most : {kThreadsWanted / tiles_of(product), product.inner / kInnerLeast,
                                   TrainKernels::kPartsFloats / count})
        if (most < parts) parts = most;
    return parts > 1 ? static_cast<unsigned>(parts) : 1;
}

inline int multiply(const Product& product, float* sums, void* stream) {
    if (product.rows == 0 || product.columns == 0) return 0;
    const unsigned parts = parts_of(product);
    float* const to = parts > 1 ? sums : product.out;
    const int error =
        start_for(tiles_of(product) * parts, stream, multiply_kernel, product, parts, to);
    if (error != 0 || parts == 1) return error;
    return start_for(product.rows * product.columns, stream, sum_kernel, product, parts,
                     static_cast<const float*>(sums));
}

inline int to_floats(const std::uint8_t* pixels, const std::uint32_t* picks, std::size_t images,
                     std::size_t image_bytes, float* out, void* stream) {
    return start_for(images * image_bytes, stream, to_floats_kernel, pixels, picks, images,
                     image_bytes, out);
}

inline int squares_to_rows(const Squares& squares, const float* images, float* rows, void* stream) {
    const std::size_t each =
        (squares.height - squares.kernel + 1) * (squares.width - squares.kernel + 1);
    const std::size_t row_values = squares.kernel * squares.kernel * squares.channels;
    return start_for(squares.images * each * row_values, stream, squares_to_rows_kernel, squares,
                     images, rows);
}

inline int rows_to_squares(const Squares& squares, const float* rows, float* images, void* stream) {
    return start_for(squares.images * squares.height * squares.width * squares.channels, stream,
                     rows_to_squares_kernel, squares, rows, images);
}

inline std::size_t pool_squares(const Squares& squares) {
    return squares.images * (squares.height / squares.kernel) * (squares.width / squares.kernel) *
           squares.channels;
}

inline int pool(const Squares& squares, const float* images, float* out, void* stream) {
    return start_for(pool_squares(squares), stream, pool_kernel, squares, images, out);
}

inline int pool_back(const Squares& squares, const float* images, const float* slopes, float* out,
                     void* stream) {
    return start_for(pool_squares(squares), stream, pool_back_kernel, squares, images, slopes, out);
}

inline int rectify_back(const float* values, float* slopes, std::size_t count, void* stream) {
    return start_for(count, stream, rectify_back_kernel, values, slopes, count);
}

inline int lose(const float* scores, const std::uint8_t* labels, const std::uint32_t* picks,
                std::size_t images, float scale, float* slopes, double* losses, void* stream) {
    return start_for(images, stream, lose_kernel, scores, labels, picks, images, scale, slopes,
                     losses);
}

inline int count_right(const float* scores, const std::uint8_t* labels, std::size_t images,
                       std::uint32_t* right, void* stream) {
    return start_for(images, stream, count_right_kernel, scores, labels, images, right);
}

inline int descend(float rate, float momentum, const float* slopes, float* velocities,
                   float* values, std::size_t count, void* stream) {
    return start_for(count, stream, descend_kernel, rate, momentum, slopes, velocities, values,
                     count);
}

/// The table of these functions.
constexpr TrainKernels kernels_with(int (*check)(), const char* (*error_text)(int)) {
    return {TrainKernels::kAbi, check,   multiply,  to_floats,    squares_to_rows,
            rows_to_squares,    pool,    pool_back, rectify_back, lose,
            count_right,        descend, error_text};
}

}  // namespace dtrun::lab::rank::cuda
