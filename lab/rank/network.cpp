#include "lab/rank/network.h"

#include "lab/rank/kernels.h"
#include "lab/rank/layers.h"
#include "lab/rank/random.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace dtrun::lab::rank {

namespace {

using Kind = LayerShape::Kind;

LayerShape dense(std::size_t inputs, std::size_t neurons, bool rectified) {
    return {Kind::dense, {1, 1, inputs}, 1, neurons, rectified};
}

std::unique_ptr<Layer> make_layer(const LayerShape& shape, Random& random) {
    if (shape.kind == Kind::pool) return std::make_unique<Pool>(shape.in);
    if (shape.kind == Kind::convolution)
        return std::make_unique<Convolution>(shape.in, shape.kernel, shape.channels, random);
    return std::make_unique<Dense>(shape.inputs(), shape.channels, shape.rectified, random);
}

std::vector<std::unique_ptr<Layer>> make_layers(Model model, std::uint64_t seed) {
    Random random(seed);
    std::vector<std::unique_ptr<Layer>> layers;
    for (const LayerShape& shape : layers_of(model)) layers.push_back(make_layer(shape, random));
    return layers;
}

/// Cross-entropy of scores (which softmax makes probabilities of), and its slopes.
double lose(const float* scores, std::size_t label, float scale, float* slopes) {
    const float largest = *std::max_element(scores, scores + kDigits);
    float sum = 0;
    for (std::size_t i = 0; i < kDigits; ++i) sum += slopes[i] = std::exp(scores[i] - largest);
    const float probability = slopes[label] / sum;
    for (std::size_t i = 0; i < kDigits; ++i)
        slopes[i] = scale * (slopes[i] / sum - (i == label ? 1.0f : 0.0f));
    return -std::log(std::max(probability, 1e-30f));
}

}  // namespace

ImageShape LayerShape::out() const {
    if (kind == Kind::pool) return {in.height / kernel, in.width / kernel, channels};
    return {in.height - kernel + 1, in.width - kernel + 1, channels};
}

std::size_t LayerShape::inputs() const {
    return kind == Kind::pool ? 0 : kernel * kernel * in.channels;
}

std::vector<LayerShape> layers_of(Model model) {
    if (model == Model::mlp) return {dense(kImageBytes, 128, true), dense(128, kDigits, false)};
    std::vector<LayerShape> layers;
    ImageShape shape{kImageSide, kImageSide, 1};
    for (const std::size_t channels : {8, 16}) {
        layers.push_back({Kind::convolution, shape, 5, channels, true});
        layers.push_back({Kind::pool, layers.back().out(), 2, channels, false});
        shape = layers.back().out();
    }
    layers.push_back(dense(shape.size(), kDigits, false));
    return layers;
}

Network::Network(Model model, std::uint64_t seed, std::size_t batch)
    : layers_(make_layers(model, seed)), batch_(batch) {
    values_.emplace_back(batch * kImageBytes);
    for (const auto& layer : layers_) values_.emplace_back(batch * layer->outputs());
    for (const auto& values : values_) slopes_.emplace_back(values.size());
}

std::vector<Tensor*> Network::tensors() {
    std::vector<Tensor*> all;
    for (const auto& layer : layers_)
        for (Tensor& tensor : layer->tensors()) all.push_back(&tensor);
    return all;
}

void Network::forward(std::size_t images) {
    for (std::size_t i = 0; i < layers_.size(); ++i)
        layers_[i]->forward(values_[i].data(), images, values_[i + 1].data());
}

double Network::learn(const Images& images, std::span<const std::uint32_t> picks, float scale) {
    assert(picks.size() <= batch_);
    for (Tensor* tensor : tensors()) std::fill(tensor->slopes.begin(), tensor->slopes.end(), 0.0f);
    for (std::size_t i = 0; i < picks.size(); ++i)
        to_floats(images.image(picks[i]), values_[0].data() + i * kImageBytes, kImageBytes);
    forward(picks.size());
    double loss = 0;
    for (std::size_t i = 0; i < picks.size(); ++i)
        loss += lose(scores() + i * kDigits, images.labels[picks[i]], scale,
                     slopes_.back().data() + i * kDigits);
    for (std::size_t i = layers_.size(); i-- > 0;)
        layers_[i]->backward(values_[i].data(), values_[i + 1].data(), picks.size(),
                             slopes_[i + 1].data(), i == 0 ? nullptr : slopes_[i].data());
    return loss;
}

std::size_t Network::test(const Images& images, std::size_t first, std::size_t count) {
    std::size_t right = 0;
    for (std::size_t done = 0; done < count;) {
        const std::size_t now = std::min(batch_, count - done);
        to_floats(images.image(first + done), values_[0].data(), now * kImageBytes);
        forward(now);
        for (std::size_t i = 0; i < now; ++i) {
            const float* of_image = scores() + i * kDigits;
            const auto told = std::max_element(of_image, of_image + kDigits) - of_image;
            right += static_cast<std::size_t>(told) == images.labels[first + done + i];
        }
        done += now;
    }
    return right;
}

}  // namespace dtrun::lab::rank
