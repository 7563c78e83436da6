#pragma once

#include "lab/names.h"
#include "lab/rank/images.h"
#include "lab/rank/kernels.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace dtrun::lab::rank {

/// Numbers that are learnt, and how the loss changes with each.
struct Tensor {
    std::vector<float> values;
    std::vector<float> slopes;
};

/// From the values of one layer of neurons to those of the next.
class Layer {
public:
    virtual ~Layer() = default;
    virtual std::size_t outputs() const = 0;  ///< for one image
    /// \param in  of `images` images, one behind the other; as are all others
    virtual void forward(const float* in, std::size_t images, float* out) = 0;
    /// Adds to the slopes of its tensors.
    /// \param out         what forward() gave
    /// \param out_slopes  how the loss changes with `out`; is overwritten
    /// \param in_slopes   how it changes with `in`; nullptr for the first layer
    virtual void backward(const float* in, const float* out, std::size_t images, float* out_slopes,
                          float* in_slopes) = 0;
    virtual std::span<Tensor> tensors() { return {}; }
};

/// What a layer is, without its numbers.
struct LayerShape {
    enum class Kind {
        dense,        ///< every neuron sees all values before it
        convolution,  ///< a neuron of each channel for each square of the image; weights are shared
        pool,         ///< the largest of each square
    };
    Kind kind = Kind::dense;
    ImageShape in;
    std::size_t kernel = 1;    ///< side of a square
    std::size_t channels = 0;  ///< of what it gives; of dense: neurons
    bool rectified = false;

    ImageShape out() const;
    /// Values that a neuron sees: rows of its weights, of which each channel has a column. Neurons
    /// have a bias, too. 0: nothing is learnt
    std::size_t inputs() const;
    /// Neurons of a channel.
    std::size_t positions() const { return out().height * out().width; }
};

/// mlp: 784 - 128 - 10. cnn: 5 x 5 convolutions to 8 and 16 channels, each with pooling, and 10.
std::vector<LayerShape> layers_of(Model model);

/// A small network that tells digits: plain f32, the same numbers from the same seed.
class Network {
public:
    /// \param seed   of the initial weights
    /// \param batch  most images of a call
    Network(Model model, std::uint64_t seed, std::size_t batch);

    std::vector<Tensor*> tensors();

    /// Sets the slopes of all tensors to those of `scale` times the summed loss (cross-entropy) of
    /// images[picks].
    /// \return the summed loss, without `scale`
    double learn(const Images& images, std::span<const std::uint32_t> picks, float scale);

    /// How many images of [first, first + count) it tells right.
    std::size_t test(const Images& images, std::size_t first, std::size_t count);

private:
    void forward(std::size_t images);
    const float* scores() const { return values_.back().data(); }

    std::vector<std::unique_ptr<Layer>> layers_;
    std::size_t batch_;
    std::vector<std::vector<float>> values_;  ///< values_[0]: pixels; values_[i + 1]: of layer i
    std::vector<std::vector<float>> slopes_;
};

}  // namespace dtrun::lab::rank
