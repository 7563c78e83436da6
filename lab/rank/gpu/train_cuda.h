#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrun::lab::rank {

/// A matrix in memory of the GPU; with the strides exchanged it is read as its transpose, and with
/// strides of 0 it has one value everywhere.
struct GpuMatrix {
    const float* data = nullptr;
    std::size_t row_stride = 0;
    std::size_t column_stride = 0;
};

/// out = a b, and more if that is wanted: `bias` is added to each row, then what is negative becomes 0.
struct Product {
    GpuMatrix a;                  ///< rows x inner
    GpuMatrix b;                  ///< inner x columns
    const float* bias = nullptr;  ///< `columns` values; nullptr: none
    bool rectified = false;
    float* out = nullptr;  ///< rows x columns, by rows
    std::size_t rows = 0, inner = 0, columns = 0;
};

/// Images with interleaved channels, one behind the other, and the squares in them: `kernel` values
/// wide and high for a convolution, 2 for pooling.
struct Squares {
    std::size_t images = 0;
    std::size_t height = 0, width = 0, channels = 0;
    std::size_t kernel = 0;
};

/// The kernels with which the lab's networks learn on a GPU: what kernels.h has for a processor.
///
/// Functions enqueue their work on a stream (a cudaStream_t) of the current device, and return 0 or
/// a cudaError_t. Results differ from the processor's by rounding only, and are the same on GPUs of
/// one generation; descend() gives the same bits everywhere.
///
/// In a library of its own, libdtrun_train_cuda.so, that is loaded where there is a GPU: it has the
/// CUDA runtime inside.
struct TrainKernels {
    static constexpr std::uint32_t kAbi = 1;
    std::uint32_t abi;

    /// Whether there is code for the current device, and a driver that is new enough: 0, or why not.
    int (*check)();
    /// \param parts  kPartsFloats values for sums that several threads share
    int (*multiply)(const Product& product, float* parts, void* stream);
    /// out = pixels of images, each / 255. \param picks  which images; nullptr: from the first on
    int (*to_floats)(const std::uint8_t* pixels, const std::uint32_t* picks, std::size_t images,
                     std::size_t image_bytes, float* out, void* stream);
    /// Every square of all images as a row of `rows`; squares are within their image.
    int (*squares_to_rows)(const Squares& squares, const float* images, float* rows, void* stream);
    /// images = the sums of rows, each where squares_to_rows() has it from
    int (*rows_to_squares)(const Squares& squares, const float* rows, float* images, void* stream);
    /// The largest of each square; height and width are multiples of `kernel`.
    int (*pool)(const Squares& squares, const float* images, float* out, void* stream);
    /// Gives the slope of each square to its largest value, the first of them if there are several.
    int (*pool_back)(const Squares& squares, const float* images, const float* slopes, float* out,
                     void* stream);
    /// slopes[i] = 0 where values[i] is
    int (*rectify_back)(const float* values, float* slopes, std::size_t count, void* stream);
    /// Cross-entropy of the scores of images (which softmax makes probabilities of).
    /// \param labels  of all images; picks[i] is the place of image i's
    /// \param slopes  of `scale` times the loss
    /// \param losses  losses[i] grows by that of image i, without `scale`
    int (*lose)(const float* scores, const std::uint8_t* labels, const std::uint32_t* picks,
                std::size_t images, float scale, float* slopes, double* losses, void* stream);
    /// right[i] grows by 1 if the first of the largest scores of image i is that of its label.
    int (*count_right)(const float* scores, const std::uint8_t* labels, std::size_t images,
                       std::uint32_t* right, void* stream);
    /// velocity = momentum * velocity + slope; value -= rate * velocity
    int (*descend)(float rate, float momentum, const float* slopes, float* velocities,
                   float* values, std::size_t count, void* stream);
    /// The text of an error that the others return; lives for ever.
    const char* (*error_text)(int error);

    /// Floats of the memory that multiply() needs beside its matrices.
    static constexpr std::size_t kPartsFloats = std::size_t{1} << 20;
};

}  // namespace dtrun::lab::rank

extern "C" __attribute__((visibility("default"))) const dtrun::lab::rank::TrainKernels*
dtrun_train_cuda();
