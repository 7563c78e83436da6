#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrun::lab::rank {

/// What training spends its time in. Compiled for several instruction sets, without sanitizers, one
/// of which is chosen at the start of the program; results differ in the last bits between them.

/// A matrix that is read by rows or, with the strides exchanged, as its transpose.
struct Matrix {
    const float* data;
    std::size_t row_stride;
    std::size_t column_stride;
};

/// c += a b, where c is rows x columns and densely stored by rows, as is b (inner x columns).
void multiply_add(const Matrix& a, const float* b, float* c, std::size_t rows, std::size_t inner,
                  std::size_t columns);

/// out (columns x rows) = transpose of in (rows x columns)
void transpose(const float* in, float* out, std::size_t rows, std::size_t columns);

/// Each row of `c` becomes `bias`.
void fill_rows(const float* bias, float* c, std::size_t rows, std::size_t columns);
/// sums += all rows of c
void add_rows(const float* c, float* sums, std::size_t rows, std::size_t columns);

void rectify(float* values, std::size_t count);
/// slopes[i] = 0 where rectify() gave 0
void rectify_back(const float* values, float* slopes, std::size_t count);

/// Images with interleaved channels, one behind the other.
struct ImageShape {
    std::size_t height, width, channels;
    std::size_t size() const { return height * width * channels; }
};

/// Every kernel x kernel square of an image as a row of `rows`; squares are within the image.
void squares_to_rows(const float* image, const ImageShape& shape, std::size_t kernel, float* rows);
/// image += rows, each where squares_to_rows() has it from
void add_rows_to_squares(const float* rows, const ImageShape& shape, std::size_t kernel,
                         float* image);

/// The largest of each 2 x 2 square; height and width are even.
void pool(const float* image, const ImageShape& shape, float* out);
/// Gives the slope of each square to its largest value, the first of them if there are several.
void pool_back(const float* image, const ImageShape& shape, const float* slopes, float* out);

/// A step of gradient descent: velocity = momentum * velocity + slope; value -= rate * velocity. It
/// gives the same bits on every processor, since ranks' weights are never synchronized again.
struct Descent {
    float rate, momentum;
};
void descend(const Descent& descent, const float* slopes, float* velocities, float* values,
             std::size_t count);

/// out[i] = bytes[i] / 255
void to_floats(const std::uint8_t* bytes, float* out, std::size_t count);

}  // namespace dtrun::lab::rank
