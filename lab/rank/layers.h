#pragma once

#include "lab/rank/kernels.h"
#include "lab/rank/network.h"
#include "lab/rank/random.h"

#include <array>

namespace dtrun::lab::rank {

/// Every neuron sees all values before it.
class Dense final : public Layer {
public:
    Dense(std::size_t inputs, std::size_t outputs, bool rectified, Random& random);

    std::size_t outputs() const override { return outputs_; }
    void forward(const float* in, std::size_t images, float* out) override;
    void backward(const float* in, const float* out, std::size_t images, float* out_slopes,
                  float* in_slopes) override;
    std::span<Tensor> tensors() override { return tensors_; }

private:
    std::size_t inputs_, outputs_;
    bool rectified_;
    std::array<Tensor, 2> tensors_;  ///< weights, a row for each input; biases
    std::vector<float> transposed_;
};

/// Every neuron sees a square of the image; those of a channel share their weights. Rectified.
class Convolution final : public Layer {
public:
    Convolution(const ImageShape& shape, std::size_t kernel, std::size_t channels, Random& random);

    ImageShape shape() const;  ///< of what it gives
    std::size_t outputs() const override { return shape().size(); }
    void forward(const float* in, std::size_t images, float* out) override;
    void backward(const float* in, const float* out, std::size_t images, float* out_slopes,
                  float* in_slopes) override;
    std::span<Tensor> tensors() override { return tensors_; }

private:
    std::size_t pixels() const { return shape().height * shape().width; }
    std::size_t inputs() const { return kernel_ * kernel_ * shape_.channels; }

    ImageShape shape_;
    std::size_t kernel_, channels_;
    std::array<Tensor, 2> tensors_;  ///< weights, a row for each input of a square; biases
    std::vector<float> rows_, transposed_;
};

/// The largest of each 2 x 2 square.
class Pool final : public Layer {
public:
    explicit Pool(const ImageShape& shape) : shape_(shape) {}

    ImageShape shape() const { return {shape_.height / 2, shape_.width / 2, shape_.channels}; }
    std::size_t outputs() const override { return shape().size(); }
    void forward(const float* in, std::size_t images, float* out) override;
    void backward(const float* in, const float* out, std::size_t images, float* out_slopes,
                  float* in_slopes) override;

private:
    ImageShape shape_;
};

}  // namespace dtrun::lab::rank
