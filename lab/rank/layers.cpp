#include "lab/rank/layers.h"

#include <algorithm>
#include <cmath>

namespace dtrun::lab::rank {

namespace {

/// Weights as He et al. 2015 draw them for rectified neurons, uniformly; biases are 0.
std::array<Tensor, 2> initial(std::size_t inputs, std::size_t outputs, Random& random) {
    std::array<Tensor, 2> tensors;
    const float bound = std::sqrt(6.0f / static_cast<float>(inputs));
    tensors[0].values.resize(inputs * outputs);
    for (float& weight : tensors[0].values) weight = random.uniform(-bound, bound);
    tensors[1].values.resize(outputs);
    for (Tensor& tensor : tensors) tensor.slopes.resize(tensor.values.size());
    return tensors;
}

}  // namespace

Dense::Dense(std::size_t inputs, std::size_t outputs, bool rectified, Random& random)
    : inputs_(inputs),
      outputs_(outputs),
      rectified_(rectified),
      tensors_(initial(inputs, outputs, random)),
      transposed_(inputs * outputs) {}

void Dense::forward(const float* in, std::size_t images, float* out) {
    const auto& [weights, biases] = tensors_;
    fill_rows(biases.values.data(), out, images, outputs_);
    multiply_add({in, inputs_, 1}, weights.values.data(), out, images, inputs_, outputs_);
    if (rectified_) rectify(out, images * outputs_);
}

void Dense::backward(const float* in, const float* out, std::size_t images, float* out_slopes,
                     float* in_slopes) {
    auto& [weights, biases] = tensors_;
    if (rectified_) rectify_back(out, out_slopes, images * outputs_);
    multiply_add({in, 1, inputs_}, out_slopes, weights.slopes.data(), inputs_, images, outputs_);
    add_rows(out_slopes, biases.slopes.data(), images, outputs_);
    if (!in_slopes) return;
    transpose(weights.values.data(), transposed_.data(), inputs_, outputs_);
    std::fill_n(in_slopes, images * inputs_, 0.0f);
    multiply_add({out_slopes, outputs_, 1}, transposed_.data(), in_slopes, images, outputs_,
                 inputs_);
}

Convolution::Convolution(const ImageShape& shape, std::size_t kernel, std::size_t channels,
                         Random& random)
    : shape_(shape),
      kernel_(kernel),
      channels_(channels),
      tensors_(initial(inputs(), channels, random)),
      rows_(pixels() * inputs()),
      transposed_(inputs() * channels) {}

ImageShape Convolution::shape() const {
    return {shape_.height - kernel_ + 1, shape_.width - kernel_ + 1, channels_};
}

void Convolution::forward(const float* in, std::size_t images, float* out) {
    const auto& [weights, biases] = tensors_;
    fill_rows(biases.values.data(), out, images * pixels(), channels_);
    for (std::size_t i = 0; i < images; ++i) {
        squares_to_rows(in + i * shape_.size(), shape_, kernel_, rows_.data());
        multiply_add({rows_.data(), inputs(), 1}, weights.values.data(), out + i * outputs(),
                     pixels(), inputs(), channels_);
    }
    rectify(out, images * outputs());
}

void Convolution::backward(const float* in, const float* out, std::size_t images, float* out_slopes,
                           float* in_slopes) {
    auto& [weights, biases] = tensors_;
    rectify_back(out, out_slopes, images * outputs());
    add_rows(out_slopes, biases.slopes.data(), images * pixels(), channels_);
    transpose(weights.values.data(), transposed_.data(), inputs(), channels_);
    if (in_slopes) std::fill_n(in_slopes, images * shape_.size(), 0.0f);
    for (std::size_t i = 0; i < images; ++i) {
        const float* slopes = out_slopes + i * outputs();
        squares_to_rows(in + i * shape_.size(), shape_, kernel_, rows_.data());
        multiply_add({rows_.data(), 1, inputs()}, slopes, weights.slopes.data(), inputs(), pixels(),
                     channels_);
        if (!in_slopes) continue;
        std::fill(rows_.begin(), rows_.end(), 0.0f);
        multiply_add({slopes, channels_, 1}, transposed_.data(), rows_.data(), pixels(), channels_,
                     inputs());
        add_rows_to_squares(rows_.data(), shape_, kernel_, in_slopes + i * shape_.size());
    }
}

void Pool::forward(const float* in, std::size_t images, float* out) {
    for (std::size_t i = 0; i < images; ++i)
        pool(in + i * shape_.size(), shape_, out + i * outputs());
}

void Pool::backward(const float* in, const float*, std::size_t images, float* out_slopes,
                    float* in_slopes) {
    for (std::size_t i = 0; i < images; ++i)
        pool_back(in + i * shape_.size(), shape_, out_slopes + i * outputs(),
                  in_slopes + i * shape_.size());
}

}  // namespace dtrun::lab::rank
